package cli

import (
	"cmp"
	"fmt"
	"reflect"
	"strconv"
	"strings"

	"github.com/kiln-project/kiln/codegen/bundle"
	"github.com/kiln-project/kiln/models/dsv4"
	rt "github.com/kiln-project/kiln/runtime/device"
	"github.com/kiln-project/kiln/runtime/engine"
)

// compiledModel is a bundle's code for a device.
type compiledModel struct {
	path         string
	dev          device
	maxSeq       int
	rings, pages int // pool sizes that the plans were compiled for
	bundle       *bundle.Bundle
	code         *bundle.Code
	sizer        *sizer
	free         *int64 // of the device's memory before anything was there; nil: not known
}

// headGives says what of a head's result a command may miss.
var headGives = map[dsv4.Head]string{
	dsv4.HeadSample: "it gives tokens, no logits",
	dsv4.HeadGreedy: "it gives the greedy token, no logits and no other token",
}

// recompile is the command that compiles the model for a target, "" for that of this
// CPU, with more flags.
func recompile(f *flags, target string, more ...string) string {
	words := []string{"kiln compile --model", cmp.Or(f.text("model"), "DIR")}
	if target != "" {
		words = append(words, "--target", target)
	}
	return strings.Join(append(append(words, more...), "-o OTHER.kiln"), " ")
}

// sameConfig refuses a bundle that was compiled from another config than the model's.
func sameConfig(f *flags, path, target string, compiled, c *dsv4.Config) error {
	if reflect.DeepEqual(compiled, c) {
		return nil
	}
	return refuse(fmt.Errorf("%s was compiled from another config.json than %s has", path, f.text("model")), recompile(f, target))
}

// readManifest reads a bundle's manifest. One that cannot be read is an error with the
// command that writes another.
func readManifest(f *flags, path string) (*bundle.Bundle, error) {
	b, err := bundle.ReadManifest(path)
	if err != nil {
		return nil, &codedError{exitFailed, err, recompile(f, f.text("target"))}
	}
	return b, nil
}

// readCode reads what a bundle holds for a target, as readManifest does.
func readCode(f *flags, b *bundle.Bundle, path, target string) (*bundle.Code, error) {
	c, err := b.ReadCode(path, target)
	if err != nil {
		return nil, &codedError{exitFailed, err, recompile(f, target)}
	}
	return c, nil
}

// openBundle reads a bundle for the device and sets the options that it was
// compiled with. What the command line or the model's folder says otherwise, or heads
// that do not serve the wanted one, is refused, naming it.
func openBundle(f *flags, dev device, path string, c *dsv4.Config, o *dsv4.Options) (*compiledModel, error) {
	b, err := readManifest(f, path)
	if err != nil {
		return nil, err
	}
	runs, err := dev.runs(b.Manifest.Targets)
	if err != nil {
		return nil, err
	}
	if len(runs) == 0 {
		t, err := dev.target()
		if err != nil {
			return nil, err
		}
		hint := recompile(f, t.Name)
		why := ""
		if !strings.HasPrefix(dev.why, "given by ") {
			why = ": " + dev.why
		}
		return nil, refuse(fmt.Errorf("%s was compiled for %v, device %s runs %s%s", path, b.Manifest.Targets, dev.name, t.Name, why), hint)
	}
	set := b.Manifest.Settings
	head, err := agrees(f, path, runs[0], set, o.Taps, &o.Head)
	if err != nil {
		return nil, err
	}
	compiled, err := dsv4.ParseConfig(b.Config, path+"/config.json")
	if err != nil {
		return nil, refuse(err, "")
	}
	if err := sameConfig(f, path, runs[0], compiled, c); err != nil {
		return nil, err
	}
	if set.Layers != c.Layers { // a part of the model is for looking at, not for running
		return nil, compiledOtherwise(f, path, runs[0], "layers", set.Layers, c.Layers)
	}
	o.Numerics, o.Taps, o.Head, o.MaxDraft = dsv4.Numerics(set.Numerics), set.Taps, head, set.Speculate
	code, err := readCode(f, b, path, runs[0])
	if err != nil {
		return nil, err
	}
	m := &compiledModel{path: path, dev: dev, maxSeq: set.MaxSeq, bundle: b, code: code, pages: 1}
	if m.sizer, err = newSizer(path, b, code); err != nil {
		return nil, err
	}
	m.sizer.eager = dev.gpu == nil || dev.gpu.opened != nil && !dev.gpu.opened.Graphs()
	for _, b := range code.Module.Plans[0].Binding {
		switch b.Symbol {
		case "R":
			m.rings = b.Value
		case "P":
			m.pages = b.Value
		}
	}
	return m, nil
}

// compiledOtherwise refuses a bundle for a setting that it was not compiled with.
func compiledOtherwise(f *flags, path, target, what string, have, want any) error {
	return refuse(fmt.Errorf("%s was compiled with %s %v, not %v", path, what, have, want), recompile(f, target, fmt.Sprintf("--%s %v", what, want)))
}

// agrees refuses what the command line says otherwise than the settings that a bundle was
// compiled with, and heads that do not serve the wanted one (nil: any). It returns the
// bundle's heads.
func agrees(f *flags, path, target string, set bundle.Settings, taps bool, wanted *dsv4.Head) (dsv4.Head, error) {
	if f.given("numerics") && f.text("numerics") != set.Numerics {
		return 0, compiledOtherwise(f, path, target, "numerics", set.Numerics, f.text("numerics"))
	}
	if taps && !set.Taps {
		return 0, compiledOtherwise(f, path, target, "taps", "none", "hidden")
	}
	head, err := dsv4.ParseHead(set.Head)
	if err != nil {
		return 0, fmt.Errorf("%s: manifest.json: %w", path, err)
	}
	if wanted != nil && !head.Serves(*wanted) {
		hint := recompile(f, target, fmt.Sprintf("--head %v", *wanted))
		return 0, refuse(fmt.Errorf("%s was compiled with --head %v: %s", path, head, headGives[head]), hint)
	}
	return head, checkBundlePasses(f, path, set.Passes)
}

// executor binds the weights of one request of that many positions.
func (m *compiledModel) executor(e *env, f *flags, src engine.CheckpointSource, positions int, layout engine.Layout, progress *progress) (*rt.Executor, error) {
	if err := m.holds(f, positions); err != nil {
		return nil, err
	}
	s := &startup{e: e, f: f, dev: m.dev, code: m.code, digest: m.bundle.CodeDigest(m.code.Module.Target), layout: layout, progress: progress}
	if m.free != nil {
		n, err := m.sizer.need(m.sizer.batch(), m.maxSeq)
		if err != nil {
			return nil, err
		}
		s.noRoom = m.sizer.noRoom(n, *m.free)
	}
	s.unfused = func() (*bundle.Side, error) {
		side, err := m.bundle.ReadUnfused(m.path, m.code.Module)
		if err == nil && side != nil {
			err = m.replaces(side)
		}
		return side, err
	}
	return s.bind(src)
}

// replaces refuses plans without fused kernels that do not fit what was free.
func (m *compiledModel) replaces(side *bundle.Side) error {
	if m.free == nil {
		return nil
	}
	n, err := m.sizer.unfused(side, m.sizer.batch(), m.maxSeq)
	if err == nil && n > *m.free {
		err = refuse(fmt.Errorf("%s needs %s without fused kernels, %s are free", m.path, binarySize(n), binarySize(*m.free)), smaller)
	}
	return err
}

// smaller is what to try where a model fits the device's memory and its checks do not.
const smaller = "kiln compile with a smaller --batch or --max-seq"

// holds refuses a request of too many positions.
func (m *compiledModel) holds(f *flags, positions int) error {
	if positions <= m.maxSeq {
		return nil
	}
	hint := recompile(f, m.code.Module.Target, "--max-seq "+strconv.Itoa(positions))
	if left := m.maxSeq - (positions - f.number("max-new-tokens")); f.command == "run" && f.text("requests") == "" && left > 0 {
		hint = fmt.Sprintf("--max-new-tokens %d, or %s", left, hint)
	}
	return refuse(fmt.Errorf("%s was compiled for %d positions (--max-seq), the request needs %d", m.path, m.maxSeq, positions), hint)
}

// fits refuses a model that is too large for what is free on the device.
func (m *compiledModel) fits(f *flags) error {
	free, err := m.dev.freeMemory()
	if err != nil || free == nil {
		return err
	}
	m.free = free
	n, err := m.sizer.need(m.sizer.batch(), m.maxSeq)
	if err != nil {
		return err
	}
	return m.sizer.tooLarge(n, m.sizer.batch(), m.maxSeq, *free, "free on "+m.dev.describe()+" are", f.text("model"))
}
