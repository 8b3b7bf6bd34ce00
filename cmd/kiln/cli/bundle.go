package cli

import (
	"fmt"
	"reflect"
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
}

// headGives says what of a head's result a command may miss.
var headGives = map[dsv4.Head]string{
	dsv4.HeadSample: "it gives tokens, no logits",
	dsv4.HeadGreedy: "it gives the greedy token, no logits and no other token",
}

// openBundle reads a bundle for the device and sets the options that it was
// compiled with. What the command line or the model's folder says otherwise, or heads
// that do not serve the wanted one, is refused, naming it.
func openBundle(f *flags, dev device, path string, c *dsv4.Config, o *dsv4.Options) (*compiledModel, error) {
	b, err := bundle.ReadManifest(path)
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
		hint := fmt.Sprintf("kiln compile --model %s --target %s -o OTHER.kiln", f.text("model"), t.Name)
		why := ""
		if !strings.HasPrefix(dev.why, "given by ") {
			why = ": " + dev.why
		}
		return nil, refuse(fmt.Errorf("%s was compiled for %v, device %s runs %s%s", path, b.Manifest.Targets, dev.name, t.Name, why), hint)
	}
	set := b.Manifest.Settings
	differs := func(what string, have, want any) error {
		hint := fmt.Sprintf("kiln compile --model %s --%s %v -o OTHER.kiln", f.text("model"), what, want)
		return refuse(fmt.Errorf("%s was compiled with %s %v, not %v", path, what, have, want), hint)
	}
	if f.given("numerics") && f.text("numerics") != set.Numerics {
		return nil, differs("numerics", set.Numerics, f.text("numerics"))
	}
	if o.Taps && !set.Taps {
		return nil, differs("taps", "none", "hidden")
	}
	head, err := dsv4.ParseHead(set.Head)
	if err != nil {
		return nil, fmt.Errorf("%s: manifest.json: %w", path, err)
	}
	if !head.Serves(o.Head) {
		hint := fmt.Sprintf("kiln compile --model %s --head %v -o OTHER.kiln", f.text("model"), o.Head)
		return nil, refuse(fmt.Errorf("%s was compiled with --head %v: %s", path, head, headGives[head]), hint)
	}
	if err := checkBundlePasses(f, path, set.Passes); err != nil {
		return nil, err
	}
	compiled, err := dsv4.ParseConfig(b.Config, path+"/config.json")
	if err != nil {
		return nil, refuse(err, "")
	}
	if !reflect.DeepEqual(compiled, c) {
		return nil, refuse(fmt.Errorf("%s was compiled from another config.json than %s has", path, f.text("model")), "kiln compile --model "+f.text("model")+" -o OTHER.kiln")
	}
	if set.Layers != c.Layers { // a part of the model is for looking at, not for running
		return nil, differs("layers", set.Layers, c.Layers)
	}
	o.Numerics, o.Taps, o.Head, o.MaxDraft = dsv4.Numerics(set.Numerics), set.Taps, head, set.Speculate
	code, err := b.ReadCode(path, runs[0])
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

// executor binds the weights of one request of that many positions.
func (m *compiledModel) executor(e *env, f *flags, src engine.CheckpointSource, positions int, layout engine.Layout, progress *progress) (*rt.Executor, error) {
	if err := m.holds(positions); err != nil {
		return nil, err
	}
	s := &startup{e: e, f: f, dev: m.dev, code: m.code, layout: layout, progress: progress}
	s.unfused = func() (*bundle.Side, error) { return m.bundle.ReadUnfused(m.path, m.code.Module) }
	return s.bind(src)
}

// holds refuses a request of too many positions.
func (m *compiledModel) holds(positions int) error {
	if positions > m.maxSeq {
		return refuse(fmt.Errorf("%s was compiled for %d positions (--max-seq), the request needs %d", m.path, m.maxSeq, positions), fmt.Sprintf("kiln compile --max-seq %d -o OTHER.kiln", positions))
	}
	return nil
}

// fits refuses a model that is too large for what is free on the device.
func (m *compiledModel) fits(f *flags) error {
	free, err := m.dev.freeMemory()
	if err != nil || free == nil {
		return err
	}
	n, err := m.sizer.need(m.sizer.batch(), m.maxSeq)
	if err != nil {
		return err
	}
	return m.sizer.tooLarge(n, m.sizer.batch(), m.maxSeq, *free, "free on "+m.dev.describe()+" are", f.text("model"))
}
