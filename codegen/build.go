package codegen

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/kiln-project/kiln/codegen/bundle"
	"github.com/kiln-project/kiln/codegen/llvm"
	"github.com/kiln-project/kiln/codegen/target"
	"github.com/kiln-project/kiln/ir"
	"github.com/kiln-project/kiln/passes"
)

// Emit says which intermediate forms Build keeps beside the code.
type Emit struct {
	KIR bool // graphs after the passes
	LL  bool // LLVM IR of each kernel, as it goes to LLVM
	Asm bool // instructions of each kernel
}

func (e Emit) any() bool { return e.KIR || e.LL || e.Asm }

// Build compiles the buckets of a module, on which passes.Run was called for the
// target, and returns the target's part of a bundle. What the cache has of the
// same graphs, made by this very program and LLVM, is not made again, unless
// something is to be emitted or the config has a Trace.
func (c *Compiler) Build(ctx context.Context, t *target.Target, m *passes.Module, buckets []passes.Bucket, emit Emit) (bundle.Files, Stats, error) {
	key, err := c.buildKey(t, m, buckets)
	if err != nil {
		return nil, Stats{}, err
	}
	if cacheable(m, emit) {
		if files, st, ok := c.recall(key, bundle.Files.Load); ok {
			return files, st, nil
		}
	}
	return c.build(ctx, key, t, m, buckets, emit)
}

// Origin is what the graphs of a build are made of.
type Origin struct {
	// Key says all that the result of Make depends on besides this program and the target:
	// the model's config, options, the config of the passes, the buckets.
	Key []string
	// Listens: somebody wants to hear every pass, so that none is left out.
	Listens bool
	// Make builds the entries for the target, with no pass run on them.
	Make func() (*passes.Module, []passes.Bucket, error)
}

// BuildFrom makes the graphs, runs passes.Run, and builds. What was built before from the
// same key is taken from the cache, and nothing of that is done: its files are then Stored
// there, each compared with its digest.
func (c *Compiler) BuildFrom(ctx context.Context, t *target.Target, o Origin, emit Emit) (bundle.Files, Stats, error) {
	var source string
	if c.Cache != nil {
		parts, err := c.keyParts("source", t)
		if err != nil {
			return nil, Stats{}, err
		}
		source = cacheKey(append(parts, o.Key...)...)
	}
	if !o.Listens && !emit.any() {
		if key, ok := c.Cache.Get(source); ok {
			if files, st, ok := c.recall(string(key), checked); ok {
				return files, st, nil
			}
		}
	}
	start := time.Now()
	m, buckets, err := o.Make()
	if err == nil {
		err = passes.Run(m)
	}
	if err != nil {
		return nil, Stats{}, err
	}
	took := time.Since(start)
	key, err := c.buildKey(t, m, buckets)
	if err != nil {
		return nil, Stats{}, err
	}
	var files bundle.Files
	var st Stats
	ok := false
	if cacheable(m, emit) && !o.Listens {
		files, st, ok = c.recall(key, checked) // another source gave the same graphs
	}
	if !ok {
		files, st, err = c.build(ctx, key, t, m, buckets, emit)
	}
	st.Passes = took
	if err == nil {
		err = c.Cache.Put(source, []byte(key))
	}
	return files, st, err
}

// feed is a unit that hands on each step whose kernels it has selected.
type feed struct {
	*Unit
	steps chan<- *passes.Step
}

func (f *feed) SelectKernels(s *passes.Step) error {
	err := f.Unit.SelectKernels(s)
	if err == nil {
		f.steps <- s
	}
	return err
}

// stepsAhead is how many steps may wait to be lowered beside the plans: each is a graph
// in memory.
const stepsAhead = 2

// unit starts a unit with the compiler's settings.
func (c *Compiler) unit(ctx context.Context, t *target.Target) *Unit {
	u := NewUnit(t)
	u.Interrupted = ctx.Err
	for _, form := range c.Disable {
		u.Disable[form] = true
	}
	return u
}

// cacheable reports whether the files of a build may come from the cache: who listens
// wants every pass to run.
func cacheable(m *passes.Module, emit Emit) bool { return !emit.any() && m.Config.Trace == nil }

// build makes the files and keeps them in the cache under the key.
func (c *Compiler) build(ctx context.Context, key string, t *target.Target, m *passes.Module, buckets []passes.Bucket, emit Emit) (bundle.Files, Stats, error) {
	start := time.Now()
	c, ahead := c.startAhead(ctx, t)
	defer ahead.end()
	u := c.unit(ctx, t)
	u.encode, u.made = true, startKernels(ahead)
	defer u.made.end()
	// What is beside the plans is lowered from the same steps on another core. Most of its
	// kernels are those of the plans.
	steps := make(chan *passes.Step, stepsAhead)
	wait := c.startSides(ctx, t, steps, u.made)
	err := passes.LowerEach(m, buckets, &feed{u, steps})
	close(steps)
	lowering := time.Since(start)
	var out *Compiled
	if err == nil {
		err = u.AddRuntime()
	}
	if err == nil {
		out, err = c.Compile(ctx, u)
	}
	sides, sidesErr := wait()
	if err = cmp.Or(err, sidesErr); err != nil {
		return nil, Stats{}, err
	}
	st := out.Stats
	st.Plans, st.Lowering = len(u.plans), lowering
	st.choices(u.Module)
	code := bundle.Code{Module: u.Module, Plans: u.plans, Object: out.Object}
	if m.Pack != nil {
		code.Pack = ir.Text(m.Pack)
	}
	start = time.Now()
	if err := c.compileSides(ctx, sides, &code); err != nil {
		return nil, Stats{}, err
	}
	st.Sides = time.Since(start)
	files, err := code.Encode()
	if err == nil {
		err = c.keep(key, files, &st)
	}
	if err == nil && emit.any() {
		files, err = c.emit(ctx, files, u, m, emit)
	}
	return files, st, err
}

// buildKey digests all that Build depends on: graphs as they are after the passes on
// graphs. A module whose passes are for another target is refused.
func (c *Compiler) buildKey(t *target.Target, m *passes.Module, buckets []passes.Bucket) (string, error) {
	if m.Target != t.ForPasses() {
		return "", fmt.Errorf("the passes on graphs ran for target %q, not %s: give passes.Module the Target that its ForPasses makes", m.Target.Name, t.Name)
	}
	if c.Cache == nil {
		return "", nil
	}
	parts, err := c.keyParts("build", t)
	if err != nil {
		return "", err
	}
	parts = append(parts, m.Config.Key())
	for _, g := range m.Entries {
		parts = append(parts, ir.Text(g))
	}
	if m.Pack != nil {
		parts = append(parts, ir.Text(m.Pack))
	}
	for _, b := range buckets {
		text := b.Entry
		for _, s := range slices.Sorted(maps.Keys(b.Bind)) {
			text += fmt.Sprintf(" %s=%d", s, b.Bind[s])
		}
		parts = append(parts, text)
	}
	return cacheKey(parts...), nil
}

// keyParts are what every build depends on besides its graphs. What follows from those is
// this program's doing, so that its own bytes are part of it: an edited kernel or pass is
// never served stale.
func (c *Compiler) keyParts(what string, t *target.Target) ([]string, error) {
	self, err := program()
	if err != nil {
		return nil, err
	}
	return []string{what, Version, self, c.Tools.ID(), fmt.Sprintf("%+v", *t), fmt.Sprint(c.version(t)),
		"disable " + strings.Join(slices.Sorted(slices.Values(c.Disable)), ","), fmt.Sprintf("%+v", c.Sides)}, nil
}

// emit adds the forms that were asked for.
func (c *Compiler) emit(ctx context.Context, files bundle.Files, u *Unit, m *passes.Module, e Emit) (bundle.Files, error) {
	if e.KIR {
		for _, g := range m.Entries {
			files = files.Emit("kir/"+g.Name+".kir", []byte(ir.Text(g)))
		}
	}
	if e.LL {
		for _, k := range u.Kernels {
			files = files.Emit("ll/"+k.Symbol+".ll", []byte(k.IR))
		}
	}
	if !e.Asm {
		return files, nil
	}
	// Text is not cached: it is asked for to be looked at, not to be run.
	fresh := &Compiler{Tools: c.Tools, LLVM: c.LLVM, Progress: c.Progress}
	asm, _, err := fresh.objects(ctx, u, llvm.Asm, c.version(u.Target), make([]string, len(u.Kernels)))
	for i, text := range asm {
		files = files.Emit("s/"+u.Kernels[i].Symbol+".s", text)
	}
	return files, err
}
