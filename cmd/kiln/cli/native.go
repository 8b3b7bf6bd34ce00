package cli

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"

	"github.com/kiln-project/kiln/codegen"
	"github.com/kiln-project/kiln/codegen/bundle"
	"github.com/kiln-project/kiln/codegen/llvm"
	"github.com/kiln-project/kiln/models/dsv4"
	"github.com/kiln-project/kiln/passes"
	rt "github.com/kiln-project/kiln/runtime/device"
	"github.com/kiln-project/kiln/runtime/engine"
)

// prefillBuckets are the step sizes that a prompt runs in: the largest that is
// not mostly padding, then a tail.
var prefillBuckets = []int{16, 128, 512}

// newCompiler finds an LLVM and opens the cache. What it returns beside the compiler ends
// it, and says what of the cache was damaged.
func newCompiler(e *env, f *flags) (*codegen.Compiler, func(), error) {
	dir, err := cacheDir(f)
	if err != nil {
		return nil, nil, err
	}
	cache := codegen.OpenCache(dir)
	if err := cache.Check(); err != nil {
		return nil, nil, &codedError{exitFailed, err, "--cache-dir DIR, a folder that can be written"}
	}
	tools, err := llvm.Find(e.ctx, llvm.FindOptions{Dir: f.text("llvm"), Memo: cache})
	if e.ctx.Err() != nil {
		return nil, nil, e.ctx.Err()
	}
	if err != nil {
		hint := "make toolchain"
		if f.command != "compile" && f.command != "tune" {
			hint += ", or --device ref, which needs no LLVM"
		}
		return nil, nil, &codedError{exitFailed, err, hint}
	}
	e.debugf("LLVM: %s, %s", tools.Version, tools.Source)
	lc := llvm.NewLater(tools, llvm.Options{})
	done := func() {
		lc.Close()
		for _, name := range cache.Damaged() {
			e.notef("note: %s was damaged: what it held was made again", filepath.Join(dir, name))
		}
	}
	return &codegen.Compiler{Tools: tools, LLVM: lc, Cache: cache}, done, nil
}

// beside says what runs beside the main model.
type beside struct {
	mtp    bool // the MTP block at every position
	drafts int  // drafts of each step, verified by the next one; with mtp
}

// requestBuckets are the plans that one request of prompt + new tokens needs.
func requestBuckets(l engine.Layout, prompt, positions int, with beside) []passes.Bucket {
	pages := l.Pages(positions)
	bind := func(t int) map[string]int {
		return map[string]int{"T": t, "B": 1, "O": 1, "R": 1, "P": pages, "N": pages}
	}
	sizes := prefillSizes(prompt)
	var out []passes.Bucket
	for _, t := range sizes {
		out = append(out, passes.Bucket{Entry: "prefill", Bind: bind(t)})
	}
	out = append(out, passes.Bucket{Entry: "decode", Bind: bind(1)})
	if with.mtp {
		for _, t := range append(slices.Clone(sizes), 1) {
			out = append(out, passes.Bucket{Entry: "draft", Bind: bind(t)})
		}
	}
	if with.drafts > 0 {
		out = append(out, passes.Bucket{Entry: string(dsv4.SpeculateEntry(with.drafts)), Bind: bind(1)})
	}
	return out
}

// prefillSizes are the buckets that a prompt of n tokens uses: chunks of the
// largest bucket that it fills, and the smallest that holds the rest.
func prefillSizes(n int) []int {
	var out []int
	largest := prefillBuckets[0]
	for _, b := range prefillBuckets {
		if b <= n {
			largest = b
		}
	}
	if largest <= n {
		out = append(out, largest)
	}
	if rest := n % largest; rest > 0 {
		for _, b := range prefillBuckets {
			if b >= rest {
				if !slices.Contains(out, b) {
					out = append(out, b)
				}
				break
			}
		}
	}
	slices.Sort(out)
	return out
}

// compileNeeded compiles the buckets for the device and binds the weights.
func compileNeeded(e *env, f *flags, dev device, m *passes.Module, disabled []string, buckets []passes.Bucket, src engine.CheckpointSource, layout engine.Layout, progress *progress) (*rt.Executor, error) {
	t, err := dev.target()
	if err != nil {
		return nil, err
	}
	c, done, err := newCompiler(e, f)
	if err != nil {
		return nil, fmt.Errorf("device %s (%s): %w", dev.name, dev.why, err)
	}
	defer done()
	c.Disable = disabled
	dev.tell(progress)
	progress.say("planning")
	c.Progress = func(n, total int) { progress.count("compiling kernels", n, total) }
	s := &startup{e: e, f: f, dev: dev, layout: layout, progress: progress}
	build := func(sides codegen.Sides) (*bundle.Code, string, error) {
		c.Sides = sides
		files, st, err := c.Build(e.ctx, t, m, buckets, codegen.Emit{})
		if err != nil {
			return nil, "", err
		}
		e.tellBuild(f, t.Name, st)
		code, err := files.Decode(t.Name)
		return code, files.Digest(), err
	}
	if s.code, s.digest, err = build(codegen.Sides{Probes: s.wanted()}); err != nil {
		return nil, err
	}
	s.unfused = func() (*bundle.Side, error) {
		code, _, err := build(codegen.Sides{Unfused: true})
		if err != nil {
			return nil, err
		}
		return code.Unfused, nil
	}
	return s.bind(src)
}

// bind loads code on the device and binds the weights to it, packed as it says. Then
// the checks run.
func (s *startup) bind(src engine.CheckpointSource) (*rt.Executor, error) {
	pack, err := s.code.PackGraph()
	if err != nil {
		return nil, err
	}
	weights, err := engine.BindPack(pack, src)
	if err != nil {
		return nil, err
	}
	m, err := s.dev.spread(s.code.Module)
	if err != nil {
		return nil, err
	}
	dev, err := s.dev.open(s.e, s.f)
	if err != nil {
		return nil, err
	}
	x, err := rt.NewExecutor(s.e.ctx, dev, s.code.Object, m, weights, s.progress.transfer("loading weights"))
	if err != nil {
		return nil, err
	}
	if err := s.run(x); err != nil {
		return nil, errors.Join(err, x.Close())
	}
	return x, nil
}
