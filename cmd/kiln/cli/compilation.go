package cli

import (
	"fmt"
	"runtime/debug"
	"time"

	"github.com/kiln-project/kiln/codegen"
	"github.com/kiln-project/kiln/codegen/bundle"
	"github.com/kiln-project/kiln/codegen/target"
	"github.com/kiln-project/kiln/models/dsv4"
	"github.com/kiln-project/kiln/passes"
	"github.com/kiln-project/kiln/runtime/engine"
)

// compilation is what the targets of one kiln compile have in common.
type compilation struct {
	e        *env
	f        *flags
	cc       *codegen.Compiler
	c        *dsv4.Config
	opts     dsv4.Options
	set      bundle.Settings
	config   passes.Config
	emit     codegen.Emit
	progress *progress
	times    timings
}

// compileConfig reads the flags of the passes, and finds what is wrong with those
// that show them before anything is built.
func compileConfig(e *env, f *flags) (passes.Config, error) {
	config, err := passConfig(f)
	if err != nil {
		return config, err
	}
	o, err := newObserver(e, f, "")
	if err == nil && o != nil && f.boolean("check-determinism") {
		err = usagef("leave --check-determinism out", "--check-determinism compiles many times and shows nothing of it")
	}
	return config, err
}

// target compiles for one target, of several or as the only one.
func (cn *compilation) target(t *target.Target, several bool) (bundle.Files, codegen.Stats, error) {
	if err := cn.cc.Tools.CheckTarget(cn.e.ctx, t.Triple, t.CPU, t.Features); err != nil {
		return nil, codegen.Stats{}, refuse(err, "make toolchain")
	}
	cn.progress.say("%s: graphs and plans", t.Name)
	cn.cc.Progress = func(n, total int) { cn.progress.count(t.Name+": compiling kernels", n, total) }
	if cn.f.boolean("check-determinism") {
		return checkDeterminism(cn.cc, func(cc *codegen.Compiler) (bundle.Files, codegen.Stats, error) { return cn.build(cc, t, nil) })
	}
	sub := ""
	if several {
		sub = t.Name
	}
	o, err := newObserver(cn.e, cn.f, sub)
	if err != nil {
		return nil, codegen.Stats{}, err
	}
	if o != nil {
		cn.progress.clear() // the observer writes
	}
	return cn.build(cn.cc, t, o)
}

// gcPercent is how much garbage a compilation lets lie, in percent of what it holds:
// collecting takes as long as asking for more memory does beyond that.
const gcPercent = 200

// build makes a target's files, from the config on.
func (cn *compilation) build(cc *codegen.Compiler, t *target.Target, o *observer) (bundle.Files, codegen.Stats, error) {
	defer debug.SetGCPercent(debug.SetGCPercent(gcPercent))
	cn.e.tellPasses(passSettings(cn.config, cc.Disable))
	var m *passes.Module
	var graphs time.Duration
	origin := codegen.Origin{Key: cn.key(), Listens: o != nil, Make: func() (*passes.Module, []passes.Bucket, error) {
		start := time.Now()
		var err error
		if m, err = buildEntries(cn.c, cn.opts, t.ForPasses(), cn.config, upTo(cn.set.Speculate)...); err != nil {
			return nil, nil, err
		}
		o.watch(m)
		layout, err := engine.LayoutOf(m.Entries[0])
		graphs = time.Since(start)
		return m, bundleBuckets(cn.set, layout, cn.c), err
	}}
	files, st, err := cc.BuildFrom(cn.e.ctx, t, origin, cn.emit)
	cn.times.Passes += (graphs + st.Passes).Seconds()
	cn.times.Codegen += st.Lowering.Seconds()
	cn.times.LLVM += st.LLVM.Seconds()
	cn.times.Link += st.Link.Seconds()
	cn.times.Sides += st.Sides.Seconds()
	if err == nil {
		cn.e.tellBuild(cn.f, t.Name, st)
	}
	if o != nil {
		cn.progress.clear()
	}
	if m != nil { // also of passes that failed
		if ferr := o.finish(m); err == nil {
			err = ferr
		}
	}
	return files, st, err
}

// key is all that the graphs and the buckets of a target depend on.
func (cn *compilation) key() []string {
	return []string{
		fmt.Sprintf("config %+v", *cn.c), fmt.Sprintf("options %+v", cn.opts), fmt.Sprintf("buckets %v %v, %d positions, %d drafts", cn.set.Batch, cn.set.Prefill, cn.set.MaxSeq, cn.set.Speculate),
		"passes " + cn.config.Key(),
	}
}
