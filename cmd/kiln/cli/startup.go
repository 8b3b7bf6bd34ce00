package cli

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/kiln-project/kiln/check"
	"github.com/kiln-project/kiln/codegen"
	"github.com/kiln-project/kiln/codegen/bundle"
	rt "github.com/kiln-project/kiln/runtime/device"
	"github.com/kiln-project/kiln/runtime/engine"
)

// startup checks a model that is bound, before its first step: each fused kernel
// against the ops that it stands for, and replays of graphs against launches one by one.
// What does not hold is replaced and told once, or is an error with --strict. What was
// found is kept by what it depends on: device, driver and code.
type startup struct {
	e        *env
	f        *flags
	dev      device
	code     *bundle.Code
	digest   string // of the code
	layout   engine.Layout
	progress *progress
	// noRoom says why fused kernels cannot be checked: the probes do not fit; else "".
	noRoom string
	// unfused makes or reads the plans without fused kernels; nil: there are none.
	unfused func() (*bundle.Side, error)
}

// found is what the checks found, as it is kept.
type found struct {
	Device string             `json:"device"`
	Of     string             `json:"of"` // the bundle, or the model's folder
	Faults []check.ProbeFault `json:"faults"`
	Replay string             `json:"replay,omitempty"` // how replays differ
}

// foundHead tells what checks found from what else a cache keeps.
const foundHead = "kiln start-up checks\n"

func (r found) encode() ([]byte, error) {
	data, err := json.Marshal(r)
	return append([]byte(foundHead), data...), err
}

func decodeFound(data []byte) (r found, ok bool) {
	text, ok := bytes.CutPrefix(data, []byte(foundHead))
	return r, ok && json.Unmarshal(text, &r) == nil
}

// wanted tells whether the checks run: where they are quick, if nothing else was said.
func (s *startup) wanted() bool {
	if s.f.given("startup-check") {
		return s.f.boolean("startup-check")
	}
	return s.dev.chip == "" || s.f.boolean("strict")
}

// checkStartup refuses flags of the checks where there is nothing that they could check.
func checkStartup(f *flags, dev device) error {
	for _, name := range []string{"strict", "startup-check"} {
		if dev.name == "ref" && f.boolean(name) && !f.fromEnv[name] {
			return refuse(fmt.Errorf("--%s: device ref has no kernels", name), "--device host")
		}
	}
	if f.boolean("strict") && f.given("startup-check") && !f.boolean("startup-check") {
		return usagef("--strict, or --startup-check=false", "%s: no check can fail that does not run", f.origins("strict", "startup-check"))
	}
	return nil
}

// run makes the checks: fused kernels, then replays, of the plans that run from now on.
func (s *startup) run(x *rt.Executor) error {
	if !s.wanted() {
		return nil
	}
	if b := s.f.text("bundle"); b != "" && s.code.Probes == nil && s.f.boolean("strict") {
		return refuse(fmt.Errorf("--strict: %s has no probes of fused kernels", b), "kiln compile, without --no-fallback")
	}
	if s.noRoom != "" && s.f.boolean("strict") {
		return refuse(fmt.Errorf("--strict: start-up check: %s", s.noRoom), smaller)
	}
	key, err := s.key(x)
	if err != nil {
		return err
	}
	cache := s.cache()
	r, known := found{}, false
	if data, ok := cache.Get(key); ok && !s.f.boolean("startup-check") {
		if r, known = decodeFound(data); known {
			s.e.debugf("start-up checks: what was found before; --startup-check checks again")
		}
	}
	if !known {
		s.progress.say("start-up checks")
		r = found{Device: s.dev.describe(), Of: cmp.Or(s.f.text("bundle"), s.f.text("model")), Faults: []check.ProbeFault{}}
		if s.noRoom != "" && s.code.Probes != nil {
			s.tell("start-up check: fused kernels are not checked: %s", s.noRoom)
		} else if err := s.probe(x, &r); err != nil {
			return stuck(s.f, fmt.Errorf("start-up check: %w", err))
		}
	}
	strict := s.f.boolean("strict")
	if len(r.Faults) > 0 && !strict {
		if err := s.replace(x, r); err != nil {
			return err
		}
	}
	if !known {
		if r.Replay, err = check.Replays(s.e.ctx, x, s.layout); err != nil {
			return stuck(s.f, fmt.Errorf("start-up check: %w", err))
		}
		if data, err := r.encode(); err != nil {
			return err
		} else if s.noRoom != "" {
			s.e.debugf("start-up checks: what was found is not kept, because it is not all")
		} else if err := cache.Put(key, data); err != nil {
			s.progress.warn("start-up check: what was found is not kept, so that the next start checks again: %v; --cache-dir DIR is where it would be", err)
		}
	}
	if strict && (len(r.Faults) > 0 || r.Replay != "") {
		return r.failed(s.f.commandWith("strict", "false"))
	}
	if g := x.Replayer(); r.Replay != "" && g != nil {
		s.tell("start-up check: %s; kernels are launched one by one instead", r.Replay)
		g.SetGraphs(false)
	}
	return nil
}

// tell says what was replaced, on standard error and in the JSON of the command.
func (s *startup) tell(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	s.e.replaced = append(s.e.replaced, text)
	s.progress.warn("%s", text)
}

// cache is where what was found is kept; nil where there is no folder for it.
func (s *startup) cache() *codegen.Cache {
	dir, err := cacheDir(s.f)
	if err != nil {
		s.progress.warn("start-up check: what is found is not kept: %v", err)
		return nil
	}
	return codegen.OpenCache(dir)
}

// probe compares fused kernels with what they stand for.
func (s *startup) probe(x *rt.Executor, r *found) error {
	start, probes := time.Now(), 0
	if p := s.code.Probes; p != nil {
		m, err := s.dev.spread(p.Module)
		if err != nil {
			return err
		}
		probes = len(m.Plans) / 2
		if r.Faults, err = check.Probes(s.e.ctx, x, p.Object, m, p.Graphs); err != nil {
			return err
		}
	}
	s.e.debugf("start-up checks: %s in %.2f s", count(int64(probes), "probe"), time.Since(start).Seconds())
	return nil
}

// failed is what was found as an error.
func (r found) failed(hint string) error {
	var list []string
	for _, f := range r.Faults {
		list = append(list, f.String())
	}
	if r.Replay != "" {
		list = append(list, r.Replay)
	}
	return &codedError{exitCheck, fmt.Errorf("start-up check: %s", strings.Join(list, "; ")), hint}
}

// replace runs the plans without fused kernels from now on.
func (s *startup) replace(x *rt.Executor, r found) error {
	for _, f := range r.Faults {
		s.tell("start-up check: %s", f)
	}
	side, err := s.unfused()
	if err != nil {
		return fmt.Errorf("start-up check: the plans without fused kernels: %w", err)
	}
	if side == nil { // with probes, so somebody took them out
		return &codedError{exitCheck, errors.New("start-up check: a fused kernel is wrong, and the bundle has no plans without them"), "kiln compile, without --no-fallback"}
	}
	m, err := s.dev.spread(side.Module)
	if err != nil {
		return err
	}
	s.tell("start-up check: the plans without fused kernels run instead, which are slower")
	return x.Replace(side.Object, m)
}

// key digests what the checks depend on.
func (s *startup) key(x *rt.Executor) (string, error) {
	h := sha256.New()
	fmt.Fprintf(h, "start-up checks of kiln %s, %d operands\n%s\n", Version, check.ProbeSeeds, s.dev.describe())
	if g := s.dev.gpu; g != nil {
		fmt.Fprintf(h, "%d %s %+v\n", g.info.Version, g.info.Build, x.Replayer() != nil && x.Replayer().Graphs())
	}
	fmt.Fprintln(h, s.digest)
	// Probes run on the model's weights: other files are another model.
	dir, err := filepath.Abs(s.f.text("model"))
	if err != nil {
		return "", err
	}
	files, err := os.ReadDir(dir)
	if err != nil {
		return "", err
	}
	for _, file := range files {
		info, err := file.Info()
		if err != nil {
			return "", err
		}
		if strings.HasSuffix(file.Name(), ".safetensors") {
			fmt.Fprintf(h, "%s/%s %d %d\n", dir, file.Name(), info.Size(), info.ModTime().UnixNano())
		}
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}
