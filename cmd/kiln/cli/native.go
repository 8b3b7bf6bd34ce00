package cli

import (
	"fmt"
	"slices"

	"github.com/kiln-project/kiln/codegen"
	"github.com/kiln-project/kiln/codegen/bundle"
	"github.com/kiln-project/kiln/codegen/llvm"
	"github.com/kiln-project/kiln/codegen/target"
	"github.com/kiln-project/kiln/passes"
	rt "github.com/kiln-project/kiln/runtime/device"
	"github.com/kiln-project/kiln/runtime/engine"
	"github.com/kiln-project/kiln/runtime/host"
)

// prefillBuckets are the step sizes that a prompt runs in: the largest that is
// not mostly padding, then a tail.
var prefillBuckets = []int{16, 128, 512}

// newCompiler finds an LLVM and opens the cache.
func newCompiler(e *env, f *flags) (*codegen.Compiler, func(), error) {
	tools, err := llvm.Find(e.ctx, llvm.FindOptions{Dir: f.text("llvm")})
	if e.ctx.Err() != nil {
		return nil, nil, e.ctx.Err()
	}
	if err != nil {
		hint := "make toolchain"
		if f.command != "compile" {
			hint += ", or --device ref, which needs no LLVM"
		}
		return nil, nil, &codedError{exitFailed, err, hint}
	}
	lc, err := llvm.New(e.ctx, tools, llvm.Options{})
	if err != nil {
		return nil, nil, err
	}
	dir, err := cacheDir(f)
	if err != nil {
		return nil, nil, err
	}
	cache := codegen.OpenCache(dir)
	if err := cache.Check(); err != nil {
		lc.Close()
		return nil, nil, &codedError{exitFailed, err, "--cache-dir DIR, a folder that can be written"}
	}
	return &codegen.Compiler{Tools: tools, LLVM: lc, Cache: cache}, func() { lc.Close() }, nil
}

// hostTarget is the best host target that this CPU runs.
func hostTarget() (*target.Target, error) {
	name, err := host.Target()
	if err != nil {
		return nil, refuse(err, "--device ref")
	}
	return target.Lookup(name)
}

// hostBuckets are the plans that one request of prompt + new tokens needs.
func hostBuckets(l engine.Layout, prompt, positions int, draft bool) []passes.Bucket {
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
	if draft {
		for _, t := range append(slices.Clone(sizes), 1) {
			out = append(out, passes.Bucket{Entry: "draft", Bind: bind(t)})
		}
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

// openHost compiles the buckets for this CPU and binds the weights.
func openHost(e *env, f *flags, dev device, m *passes.Module, disabled []string, buckets []passes.Bucket, src engine.CheckpointSource, progress *progress) (*rt.Executor, error) {
	t, err := hostTarget()
	if err != nil {
		return nil, err
	}
	c, done, err := newCompiler(e, f)
	if err != nil {
		return nil, fmt.Errorf("device host (%s): %w", dev.why, err)
	}
	defer done()
	c.Disable = disabled
	dev.tell(progress)
	progress.say("planning")
	c.Progress = func(n, total int) { progress.count("compiling kernels", n, total) }
	files, _, err := c.Build(e.ctx, t, m, buckets, codegen.Emit{})
	if err != nil {
		return nil, err
	}
	code, err := files.Decode(t.Name)
	if err != nil {
		return nil, err
	}
	return bindHost(code, src, progress)
}

// bindHost loads code and binds the weights to it, packed as it says.
func bindHost(code *bundle.Code, src engine.CheckpointSource, progress *progress) (*rt.Executor, error) {
	progress.say("binding weights")
	pack, err := code.PackGraph()
	if err != nil {
		return nil, err
	}
	weights, err := engine.BindPack(pack, src)
	if err != nil {
		return nil, err
	}
	dev, err := host.Open()
	if err != nil {
		return nil, refuse(err, "--device ref")
	}
	return rt.NewExecutor(dev, code.Object, code.Module, weights)
}
