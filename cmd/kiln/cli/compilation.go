package cli

import (
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
	start := time.Now()
	cn.e.tellPasses(passSettings(cn.config, cc.Disable))
	m, err := buildEntries(cn.c, cn.opts, t.ForPasses(), cn.config, upTo(cn.set.Speculate)...)
	if err != nil {
		return nil, codegen.Stats{}, err
	}
	o.watch(m)
	files, st, err := cn.lower(cc, t, m, start)
	if o != nil {
		cn.progress.clear()
	}
	if ferr := o.finish(m); err == nil { // also of passes that failed
		err = ferr
	}
	return files, st, err
}

func (cn *compilation) lower(cc *codegen.Compiler, t *target.Target, m *passes.Module, start time.Time) (bundle.Files, codegen.Stats, error) {
	layout, err := engine.LayoutOf(m.Entries[0])
	if err != nil {
		return nil, codegen.Stats{}, err
	}
	graphs := time.Since(start)
	files, st, err := cc.BuildFrom(cn.e.ctx, t, m, bundleBuckets(cn.set, layout, cn.c), cn.emit)
	cn.times.Passes += (graphs + st.Passes).Seconds()
	cn.times.Codegen += st.Lowering.Seconds()
	cn.times.LLVM += st.LLVM.Seconds()
	cn.times.Link += st.Link.Seconds()
	cn.times.Sides += st.Sides.Seconds()
	if err == nil {
		cn.e.tellBuild(cn.f, t.Name, st)
	}
	return files, st, err
}
