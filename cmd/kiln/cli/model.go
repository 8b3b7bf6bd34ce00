package cli

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/kiln-project/kiln/ir"
	"github.com/kiln-project/kiln/models/dsv4"
	"github.com/kiln-project/kiln/passes"
	rt "github.com/kiln-project/kiln/runtime/device"
	"github.com/kiln-project/kiln/runtime/engine"
	"github.com/kiln-project/kiln/runtime/weights"
)

// loadConfig tells a missing file (failed) from a model that is not supported
// (refused).
func loadConfig(dir string) (*dsv4.Config, error) {
	path := filepath.Join(dir, "config.json")
	if _, err := os.Stat(path); err != nil {
		return nil, &codedError{exitFailed, fmt.Errorf("model folder %s: %w", dir, err), "kiln run --model testdata/tiny-dsv4 --prompt 'package main'"}
	}
	c, err := dsv4.LoadConfig(dir)
	return c, refuse(err, "")
}

// options reads the flags that change the graph.
func options(f *flags, taps bool) (dsv4.Options, error) {
	o := dsv4.DefaultOptions()
	n, err := dsv4.ParseNumerics(f.text("numerics"))
	if err != nil {
		return o, usagef("--numerics production", "%s: %v", f.origins("numerics"), err)
	}
	o.Numerics, o.Taps = n, taps
	if o.Head, err = dsv4.ParseHead(f.text("head")); err != nil {
		return o, usagef("--head logits", "%s: %v", f.origins("head"), err)
	}
	if f.command == "run" { // rings with room for what is asked for; a bundle has its own
		o.MaxDraft = max(o.MaxDraft, f.number("speculate"))
	}
	return o, nil
}

// session is a model with its weights bound, ready for one request.
type session struct {
	config *dsv4.Config
	engine *engine.Engine
	layout engine.Layout
	device device
	// numerics that the graphs were built with: a bundle brings its own.
	numerics dsv4.Numerics
	// fusedHC is up to how many rows a step fuses hc; otherClass says, of verify steps
	// in another order class than decode steps, that the text may differ.
	fusedHC    int
	otherClass string
	watched    *watched // with --stats
	close      func() error
	compiled   *compiledModel // the bundle, if there is one
	// serve makes the engine for requests beside each other, in place of a placer.
	serve func(serving) (engine.Limits, error)
}

// placer makes the pools for one request: its prompt, all its positions, and what runs
// beside the main model.
type placer func(prompt, positions int, with beside) (*engine.Seq, error)

// openModel reads a model's folder for the device that is chosen. Its heads give what
// is wanted; those of a bundle may give more. The placer that it returns makes the
// session's engine.
func openModel(e *env, f *flags, taps bool, want dsv4.Head, progress *progress) (*session, placer, error) {
	dev, err := chooseDevice(e, f)
	if err != nil {
		return nil, nil, err
	}
	s, place, err := openModelOn(e, f, dev, taps, want, progress)
	if err != nil {
		return nil, nil, errors.Join(err, dev.close())
	}
	closed := s.close
	s.close = func() error { return errors.Join(closed(), dev.close()) }
	return s, place, nil
}

func openModelOn(e *env, f *flags, dev device, taps bool, want dsv4.Head, progress *progress) (*session, placer, error) {
	o, err := options(f, taps)
	if err != nil {
		return nil, nil, err
	}
	o.Head = want
	config, err := passConfig(f)
	if err != nil {
		return nil, nil, err
	}
	disabled, err := disabledKernels(f)
	if err != nil {
		return nil, nil, err
	}
	if f.text("bundle") == "" {
		e.tellPasses(passSettings(config, disabled))
	}
	dir := f.text("model")
	c, err := loadConfig(dir)
	if err != nil {
		return nil, nil, err
	}
	var compiled *compiledModel
	if path := f.text("bundle"); path != "" {
		if compiled, err = openBundle(f, dev, path, c, &o); err != nil {
			return nil, nil, err
		}
		if err := compiled.fits(f); err != nil {
			return nil, nil, err
		}
		e.debugf("bundle %s: code for %s", path, compiled.code.Module.Target)
		config = passes.Config{Pipeline: "required"} // the bundle has its plans; the graphs only say the layout
	}
	var t passes.Target
	if dev.name != "ref" {
		compiledFor, err := dev.target()
		if err != nil {
			return nil, nil, err
		}
		t = compiledFor.ForPasses()
	} else if len(disabled) > 0 {
		return nil, nil, refuse(fmt.Errorf("%s: device %s has no kernels", f.origins("disable-kernel"), dev.name), "--device host")
	}
	var drafts []int
	if f.command == "run" && f.number("speculate") > 0 && compiled == nil && c.NextN > 0 {
		drafts = append(drafts, f.number("speculate"))
		if f.text("requests") != "" { // many have fewer
			drafts = upTo(f.number("speculate"))
		}
	}
	m, err := entriesOf(c, o, t, config, drafts...)
	if err != nil {
		return nil, nil, err
	}
	layout, err := engine.LayoutOf(m.Entries[0])
	if err != nil {
		return nil, nil, err
	}
	file, err := weights.Open(dir)
	if err != nil {
		return nil, nil, err
	}
	src := engine.CheckpointSource{File: file}
	set := config.Set
	if compiled != nil && compiled.bundle.Manifest.Settings.Passes != nil {
		set = compiled.bundle.Manifest.Settings.Passes.Set
	}
	fused, err := passes.ThresholdOf(passes.FusedHCTokens, t.Chip)
	if err != nil {
		return nil, nil, errors.Join(err, file.Close())
	}
	if n, given := set[passes.FusedHCTokens]; given {
		fused.Value = n
	}
	s := &session{config: c, layout: layout, device: dev, numerics: o.Numerics, fusedHC: fused.Value, close: file.Close, compiled: compiled}
	// execute loads the bundle's plans, or those of the buckets, with the weights.
	execute := func(positions int, buckets []passes.Bucket) (engine.Executor, error) {
		var h *rt.Executor
		var err error
		switch {
		case compiled != nil:
			dev.tell(progress)
			h, err = compiled.executor(e, f, src, positions, layout, progress)
		case dev.name == "ref":
			dev.tell(progress)
			progress.say("binding weights")
			return engine.NewRef(m.Entries, m.Pack, src)
		default:
			h, err = compileNeeded(e, f, dev, m, disabled, buckets, src, layout, progress)
		}
		if err != nil {
			return nil, err
		}
		s.close = func() error { return errors.Join(h.Close(), file.Close()) }
		return h, nil
	}
	place := func(prompt, positions int, with beside) (*engine.Seq, error) {
		exec, err := execute(positions, requestBuckets(layout, prompt, positions, with))
		if err != nil {
			return nil, err
		}
		rings, pages := 1, layout.Pages(positions)
		if compiled != nil {
			rings, pages = compiled.rings, compiled.pages
		}
		if s.engine, err = engine.New(s.watchSteps(f, exec), layout, rings, rings*pages); err != nil {
			return nil, err
		}
		return s.engine.NewSeq(0, pages)
	}
	s.serve = func(want serving) (engine.Limits, error) {
		size, err := want.size(f, layout, compiled)
		if err != nil {
			return engine.Limits{}, err
		}
		if size.limits.Rows, err = stepRows(config, compiled, t.Chip); err != nil {
			return engine.Limits{}, err
		}
		exec, err := execute(want.positions, size.buckets())
		if err != nil {
			return engine.Limits{}, err
		}
		if dev.name == "ref" {
			exec = &engine.Buckets{Executor: exec, Decode: size.batches(min(1, size.limits.Drafts), 0), Prefill: refPrefill, Pages: size.limits.SessionPages}
		}
		s.engine, err = engine.New(s.watchSteps(f, exec), layout, size.rings, size.pages)
		return size.limits, err
	}
	return s, place, nil
}

// readIDs reads ids that a flag gives as text, @FILE or F.safetensors:NAME.
func readIDs(f *flags, flag string) ([]int32, error) {
	arg := f.text(flag)
	if path, ok := strings.CutPrefix(arg, "@"); ok {
		text, err := os.ReadFile(path)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", f.origins(flag), err)
		}
		ids, err := parseIDs(string(text))
		if err != nil {
			return nil, fmt.Errorf("%s: %s: %w", f.origins(flag), path, err)
		}
		return ids, nil
	}
	if path, name, ok := strings.Cut(arg, ".safetensors:"); ok {
		ids, err := idsOfTensor(path+".safetensors", name)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", f.origins(flag), err)
		}
		return ids, nil
	}
	ids, err := parseIDs(arg)
	if err != nil {
		return nil, usagef("kiln "+f.command+" --"+flag+" 1,2,3", "%s: %v", f.origins(flag), err)
	}
	return ids, nil
}

func idsOfTensor(path, name string) ([]int32, error) {
	file, err := weights.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	t, err := file.Lookup(name)
	if err != nil {
		return nil, err
	}
	v, err := t.Int64s()
	if err != nil {
		return nil, err
	}
	ids := make([]int32, len(v))
	for i, x := range v {
		if int64(int32(x)) != x {
			return nil, fmt.Errorf("%s: tensor %s: id %d is %d, not a 32-bit integer", path, name, i, x)
		}
		ids[i] = int32(x)
	}
	return ids, nil
}

// checkVocabulary refuses ids that the model does not have.
func checkVocabulary(f *flags, ids []int32, vocab int, what string) error {
	for i, id := range ids {
		if id < 0 || int(id) >= vocab {
			return refuse(fmt.Errorf("%s: id %d at index %d is out of vocabulary (0..%d)", what, id, i, vocab-1),
				fmt.Sprintf("kiln tokenize --model %s: the ids of a text", f.text("model")))
		}
	}
	return nil
}

// entryGraph finds an entry, or the pack graph, by name.
func entryGraph(m *passes.Module, name string) *ir.Graph {
	if name == passes.PackGraph {
		return m.Pack
	}
	for _, g := range m.Entries {
		if g.Name == name {
			return g
		}
	}
	return nil
}
