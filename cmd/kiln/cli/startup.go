package cli

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/kiln-project/kiln/check"
	"github.com/kiln-project/kiln/codegen"
	"github.com/kiln-project/kiln/codegen/bundle"
	"github.com/kiln-project/kiln/codegen/plan"
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
	layout   engine.Layout
	progress *progress
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
	return s.dev.chip == ""
}

func (s *startup) run(x *rt.Executor) error {
	if !s.wanted() {
		return nil
	}
	r, err := s.look(x)
	if err != nil {
		return stuck(s.f, fmt.Errorf("start-up check: %w", err))
	}
	if s.f.boolean("strict") && (len(r.Faults) > 0 || r.Replay != "") {
		return r.failed(s.f.commandWith("strict", "false"))
	}
	if len(r.Faults) > 0 {
		if err := s.replace(x, r); err != nil {
			return err
		}
	}
	if r.Replay != "" {
		s.progress.note("start-up check: %s; kernels are launched one by one instead", r.Replay)
		x.Replayer().SetGraphs(false)
	}
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
	side, err := s.unfused()
	if err != nil {
		return err
	}
	if side == nil { // with probes, so somebody took them out
		return r.failed("kiln compile, without --no-fallback: the bundle has no plans without fused kernels")
	}
	m, err := s.dev.spread(side.Module)
	if err != nil {
		return err
	}
	for _, f := range r.Faults {
		s.progress.note("start-up check: %s", f)
	}
	s.progress.note("start-up check: the plans without fused kernels run instead, which are slower")
	return x.Replace(side.Object, m)
}

// look finds what was found before, or runs the checks.
func (s *startup) look(x *rt.Executor) (found, error) {
	key, err := s.key(x)
	if err != nil {
		return found{}, err
	}
	dir, err := cacheDir(s.f)
	if err != nil {
		return found{}, err
	}
	cache := codegen.OpenCache(dir)
	if data, ok := cache.Get(key); ok {
		if r, ok := decodeFound(data); ok {
			s.e.debugf("start-up checks: what was found before, by the cache in %s", dir)
			return r, nil
		}
	}
	s.progress.say("start-up checks")
	start, probes := time.Now(), 0
	r := found{Device: s.dev.describe(), Of: cmp.Or(s.f.text("bundle"), s.f.text("model")), Faults: []check.ProbeFault{}}
	if p := s.code.Probes; p != nil {
		m, err := s.dev.spread(p.Module)
		if err != nil {
			return r, err
		}
		probes = len(m.Plans) / 2
		if r.Faults, err = check.Probes(s.e.ctx, x, p.Object, m, p.Graphs); err != nil {
			return r, err
		}
	}
	if r.Replay, err = check.Replays(s.e.ctx, x, s.layout); err != nil {
		return r, err
	}
	s.e.debugf("start-up checks: %s and the replays of a step in %.2f s", count(int64(probes), "probe"), time.Since(start).Seconds())
	data, err := r.encode()
	if err != nil {
		return r, err
	}
	return r, cache.Put(key, data)
}

// key digests what the checks depend on.
func (s *startup) key(x *rt.Executor) (string, error) {
	h := sha256.New()
	fmt.Fprintf(h, "start-up checks of kiln %s, %d operands\n%s\n", Version, check.ProbeSeeds, s.dev.describe())
	if g := s.dev.gpu; g != nil {
		fmt.Fprintf(h, "%d %+v\n", g.info.Version, x.Replayer() != nil && x.Replayer().Graphs())
	}
	parts := []*plan.Module{s.code.Module}
	h.Write(s.code.Object)
	if p := s.code.Probes; p != nil {
		h.Write(p.Object)
		fmt.Fprint(h, p.Graphs)
		parts = append(parts, p.Module)
	}
	for _, m := range parts {
		data, err := json.Marshal(m.Plans)
		if err != nil {
			return "", err
		}
		h.Write(data)
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}
