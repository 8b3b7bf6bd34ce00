package cli

import (
	"fmt"

	"github.com/kiln-project/kiln/codegen"
	"github.com/kiln-project/kiln/codegen/bundle"
	"github.com/kiln-project/kiln/codegen/target"
	"github.com/kiln-project/kiln/models/dsv4"
	"github.com/kiln-project/kiln/passes"
	"github.com/kiln-project/kiln/runtime/engine"
)

const tuneHelp = `Measures which of several ways to run a kernel is the fastest for a shape, where no
bit of a result depends on it, and writes the table that code is compiled by:
docs/tune.md says how, and how to commit it.

It takes two steps, on two machines if need be. With --model it finds the choices
in the plans of a model and compiles all candidates to a folder (-o); a config.json
is enough, and no GPU is needed. With --from it measures that folder's candidates on
a GPU, without LLVM, and prints the table.

In a contest each candidate is a plan of the same copies of an op, with weights of
their own, random numbers and cold caches. Candidates are timed in turns; the median
counts. If two candidates differ in a bit of a result, nothing is printed and the
exit code is 4.`

func runTune(e *env, f *flags, _ []string) error {
	step, err := f.oneOf("model", "from")
	if err != nil {
		return err
	}
	other := map[string][]string{"model": {"device", "samples"}, "from": {"target", "out", "batch", "prefill", "max-seq", "speculate", "layers", "head", "numerics"}}
	for _, name := range other[step] {
		if f.given(name) && !f.fromEnv[name] {
			return usagef("kiln tune --help", "--%s does not go with %s", name, f.origins(step))
		}
	}
	if step == "from" {
		return measureTune(e, f)
	}
	for _, name := range []string{"target", "out"} {
		if f.text(name) == "" {
			return usagef("kiln tune --model DIR --target sm_90 -o DIR", "%s needs --%s", f.origins("model"), name)
		}
	}
	return compileTune(e, f)
}

// compileTune finds the choices of a model's plans and compiles what decides them.
func compileTune(e *env, f *flags) error {
	targets, err := compileTargets(f.text("target"))
	if err != nil {
		return err
	}
	if len(targets) != 1 {
		return usagef("--target "+targets[0].Name, "%s: %d targets: a table is of one", f.origins("target"), len(targets))
	}
	t := targets[0]
	if err := canWriteTune(f.text("out")); err != nil {
		return err
	}
	// What is wrong with the command line comes before a missing LLVM.
	set, opts, c, err := tuneSettings(f)
	if err != nil {
		return err
	}
	progress := newProgress(e, f)
	defer progress.close()
	cc, done, err := newCompiler(e, f)
	if err != nil {
		return err
	}
	defer done()
	if err := cc.Tools.CheckTarget(e.ctx, t.Triple, t.CPU, t.Features); err != nil {
		return refuse(err, "make toolchain")
	}
	progress.say("%s: graphs and plans", t.Name)
	decisions, err := tuneDecisions(e, cc, t, set, opts, c)
	if err != nil {
		return err
	}
	if len(decisions) == 0 {
		return refuse(fmt.Errorf("target %s: its kernels have no choices in the plans of %s", t.Name, f.text("model")), "--target sm_90")
	}
	w := &tuneFolder{Format: tuneFormat, Kiln: Version, LLVM: cc.Tools.ID(), Target: t.Name, Compiled: tuneCommand(f, set)}
	for i, d := range decisions {
		progress.count(t.Name+": compiling candidates", i, len(decisions))
		x, err := cc.Contest(e.ctx, t, d)
		if err == nil {
			err = w.add(d, x)
		}
		if err != nil {
			return fmt.Errorf("%s, %s, %s: %w", d.Form, d.Key, count(int64(d.Rows), "row"), err)
		}
	}
	progress.clear()
	size, err := w.write(f.text("out"))
	if err != nil {
		return err
	}
	candidates := 0
	for _, d := range decisions {
		candidates += len(d.Candidates)
	}
	_, err = fmt.Fprintf(e.stdout, "%s: %s, %d choices with %d candidates, %d bytes\n", f.text("out"), t.Name, len(decisions), candidates, size)
	return err
}

// tuneCommand is the command that finds the same choices, whatever defaults become.
func tuneCommand(f *flags, s bundle.Settings) string {
	return fmt.Sprintf("kiln tune --model %s --target %s --batch %s --prefill %s --max-seq %d --speculate %d --layers %d --numerics %s --head %s -o DIR",
		f.text("model"), f.text("target"), joinInts(s.Batch), joinInts(s.Prefill), s.MaxSeq, s.Speculate, s.Layers, s.Numerics, f.text("head"))
}

// tuneSettings reads what choices are looked for in.
func tuneSettings(f *flags) (bundle.Settings, dsv4.Options, *dsv4.Config, error) {
	set, opts, err := compileSettings(f)
	if err != nil {
		return set, opts, nil, err
	}
	c, err := loadConfig(f.text("model"))
	if err == nil {
		err = applyLimits(c, &set)
	}
	if err == nil {
		err = limitPrefill(f, &set)
	}
	return set, opts, c, err
}

// tuneDecisions lowers the plans of a model.
func tuneDecisions(e *env, cc *codegen.Compiler, t *target.Target, set bundle.Settings, opts dsv4.Options, c *dsv4.Config) ([]codegen.Decision, error) {
	m, err := entriesOf(c, opts, t.ForPasses(), passes.Config{}, upTo(set.Speculate)...)
	if err != nil {
		return nil, err
	}
	layout, err := engine.LayoutOf(m.Entries[0])
	if err != nil {
		return nil, err
	}
	return cc.Decisions(e.ctx, t, m, bundleBuckets(set, layout, c))
}
