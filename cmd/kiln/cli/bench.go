package cli

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/kiln-project/kiln/codegen/bundle"
	"github.com/kiln-project/kiln/codegen/plan"
	"github.com/kiln-project/kiln/ir/eval"
	"github.com/kiln-project/kiln/models/dsv4"
	rt "github.com/kiln-project/kiln/runtime/device"
	"github.com/kiln-project/kiln/runtime/engine"
	"github.com/kiln-project/kiln/runtime/weights"
)

const benchHelp = `Times the steps of a bundle on a GPU or on this CPU, as a whole and kernel by
kernel, and says which part of the memory's bandwidth each kernel reaches:
docs/bench.md says how, and how to read it.

Weights are those of --model, or with --random-weights made on the device by a
kernel from --seed. Pools hold random numbers too. A first step must give finite
results, or nothing is timed.

A decode step has one token of each request, behind --ctx tokens that are cached;
a prefill step (--entry prefill) the next --prefill tokens of one request. With
--speculate K a step verifies K drafts of each request, all of them right, and makes
new ones; tokens/s is by the acceptance that is measured with the weights of --model,
and for each number of accepted drafts. Each bucket is timed with each context;
without the flags, those that were compiled.

The time of a kernel is that of the launches up to it less that of those before
it, both measured in turns. Their sum, the time of the step and the gap between
the two are printed, and launches one by one beside replays of a graph. --trace
writes the launches of the steps for a viewer of Chrome's traces.`

func runBench(e *env, f *flags, args []string) error {
	b, err := openBench(e, f, args[0])
	if err != nil {
		return err
	}
	err = b.run()
	return errors.Join(err, b.close())
}

// bench is a bundle on a device, with what is to be timed.
type bench struct {
	e        *env
	f        *flags
	path     string
	manifest bundle.Manifest
	config   *dsv4.Config
	code     *bundle.Code
	sizer    *sizer
	dev      device
	progress *progress
	report   *benchReport

	// Of the drafts that the checkpoint's weights make; nil without them.
	acceptance    []*float64
	tokensPerStep float64

	steps []benchPlan
	model *rt.Model
	open  rt.Device
}

// benchPlan is a step to be timed: a plan, and how many tokens are cached of each
// request.
type benchPlan struct {
	plan *plan.Plan
	ctx  int
}

// openBench reads the flags and the bundle, and refuses what cannot be timed before
// anything is put on the device.
func openBench(e *env, f *flags, path string) (*bench, error) {
	if _, err := f.oneOf("model", "random-weights"); err != nil {
		return nil, err
	}
	for _, name := range []string{"samples", "window"} {
		if f.number(name) < 0 {
			return nil, usagef("kiln bench --help", "%s is %d, want at least 0", f.origins(name), f.number(name))
		}
	}
	if s := f.float("seconds"); !(s > 0) || math.IsInf(s, 0) {
		return nil, usagef("--seconds 10", "%s is %v, want a positive number", f.origins("seconds"), s)
	}
	if f.number("samples") > 0 && f.given("seconds") && f.fromEnv["samples"] == f.fromEnv["seconds"] { // on the command line a flag wins
		return nil, usagef("leave one of them out", "%s: a number of samples takes the time that it takes", f.origins("seconds", "samples"))
	}
	if name := "window"; f.boolean("steps-only") && f.given(name) && !f.fromEnv[name] {
		return nil, usagef("leave --window out", "--window: with %s no launch is timed", f.origins("steps-only"))
	}
	f.bundle = path
	m, err := readManifest(f, path)
	if err != nil {
		return nil, err
	}
	b := &bench{e: e, f: f, path: path, manifest: m.Manifest}
	if b.config, err = dsv4.ParseConfig(m.Config, path+"/config.json"); err != nil {
		return nil, refuse(err, "")
	}
	if dir := f.text("model"); dir != "" {
		c, err := loadConfig(dir)
		if err == nil {
			err = sameConfig(f, path, "", b.config, c)
		}
		if err != nil {
			return nil, err
		}
	}
	if b.dev, err = chooseDevice(e, f); err != nil {
		return nil, err
	}
	if err := b.choose(m); err != nil {
		return nil, errors.Join(err, b.dev.close())
	}
	return b, nil
}

// choose finds the code for the device and the steps that are asked for.
func (b *bench) choose(m *bundle.Bundle) error {
	switch {
	case b.dev.name == "ref":
		return refuse(fmt.Errorf("device ref has no kernels to be timed"), "--device host")
	case b.dev.chip != "":
		return refuse(fmt.Errorf("device %s is emulated: how long it takes says nothing of a GPU; it can count instructions", b.dev.name),
			fmt.Sprintf("kiln run --model DIR --bundle %s --device %s --prompt-ids 1 --max-new-tokens 2 --counters c.json, then kiln inspect %s --profile c.json", b.path, b.dev.name, b.path))
	case b.f.boolean("cold") && b.cache() == 0:
		return refuse(fmt.Errorf("--cold: the size of the caches of device %s is not known", b.dev.name), "leave --cold out")
	}
	runs, err := b.dev.runs(m.Manifest.Targets)
	if err != nil {
		return err
	}
	if len(runs) == 0 {
		return refuse(fmt.Errorf("%s was compiled for %v, device %s (%s) runs none of them", b.path, m.Manifest.Targets, b.dev.name, b.dev.why), "--device D, or kiln compile --target T")
	}
	if b.code, err = readCode(b.f, m, b.path, runs[0]); err != nil {
		return err
	}
	if b.sizer, err = newSizer(b.path, m, b.code); err != nil {
		return err
	}
	return b.chooseSteps()
}

// cache is the size of the device's last cache in bytes, 0 where it is not known.
func (b *bench) cache() int64 {
	if b.dev.gpu == nil {
		return 0
	}
	return int64(b.dev.gpu.info.L2)
}

// benchEntries are the entries that can be timed: by which symbol their plans are
// told apart, and the flag that chooses among them.
var benchEntries = []struct{ name, symbol, flag string }{{"decode", "B", "batch"}, {"prefill", "T", "prefill"}}

// defaultCtx bounds the default of --ctx.
const defaultCtx = 1024

func (b *bench) chooseSteps() error {
	at := slices.IndexFunc(benchEntries, func(e struct{ name, symbol, flag string }) bool { return e.name == b.f.text("entry") })
	if at < 0 {
		hint := "--entry decode"
		if k, ok := strings.CutPrefix(b.f.text("entry"), "speculate"); ok && k != "" {
			hint = "--speculate " + k
		}
		return refuse(fmt.Errorf("%s %s: decode and prefill can be timed, and steps with drafts by --speculate", b.f.origins("entry"), b.f.text("entry")), hint)
	}
	entry := benchEntries[at]
	if err := b.checkDrafts(); err != nil {
		return err
	}
	k := b.f.number("speculate")
	if k > 0 {
		entry.name = string(dsv4.SpeculateEntry(k))
	}
	plans := map[int]*plan.Plan{}
	var have []int
	for _, p := range b.code.Module.Plans {
		if p.Entry == entry.name {
			n := p.Symbol(entry.symbol)
			plans[n], have = p, append(have, n)
		}
	}
	slices.Sort(have)
	if len(have) == 0 {
		return &codedError{exitFailed, fmt.Errorf("%s has no plans of entry %s", b.path, entry.name), recompile(b.f, b.code.Module.Target)}
	}
	for _, other := range benchEntries {
		if name := other.flag; name != entry.flag && b.f.given(name) && !b.f.fromEnv[name] {
			return usagef("--"+entry.flag+" "+strconv.Itoa(have[0]), "--%s is of entry %s, not of %s", name, other.name, entry.name)
		}
	}
	want := have
	if b.f.text(entry.flag) != "" {
		var err error
		if want, err = sizes(b.f, entry.flag); err != nil {
			return err
		}
	}
	contexts, err := b.contexts()
	if err != nil {
		return err
	}
	for _, n := range want {
		p := plans[n]
		if p == nil {
			return refuse(fmt.Errorf("%s %d: %s was compiled for %s", b.f.origins(entry.flag), n, b.path, joinInts(have)), "--"+entry.flag+" "+strconv.Itoa(have[0]))
		}
		tokens := k + 1 // of a request
		if entry.name == "prefill" {
			tokens = n
		}
		most := b.manifest.Settings.MaxSeq - tokens
		list := contexts
		if list == nil {
			list = []int{min(defaultCtx, most)}
		}
		for _, ctx := range list {
			if ctx > most {
				return refuse(fmt.Errorf("%s %d: with %d new, %s has room for %d tokens of a request (--max-seq)", b.f.origins("ctx"), ctx, tokens, b.path, b.manifest.Settings.MaxSeq), "--ctx "+strconv.Itoa(most))
			}
			b.steps = append(b.steps, benchPlan{p, ctx})
		}
	}
	return nil
}

// contexts reads --ctx; nil is the default.
func (b *bench) contexts() ([]int, error) {
	text := b.f.text("ctx")
	if text == "" {
		return nil, nil
	}
	var list []int
	for _, s := range strings.Split(text, ",") {
		n, err := strconv.Atoi(strings.TrimSpace(s))
		if err != nil || n < 0 || slices.Contains(list, n) {
			return nil, usagef("--ctx 128,1024", "%s %q: want distinct numbers of tokens, 0 or more", b.f.origins("ctx"), text)
		}
		list = append(list, n)
	}
	slices.Sort(list)
	return list, nil
}

// run puts the model on the device, times the steps and writes the report.
func (b *bench) run() error {
	b.progress = newProgress(b.e, b.f)
	defer b.progress.close()
	if err := b.fits(); err != nil {
		return err
	}
	var err error
	if b.report, err = b.describe(); err != nil {
		return err
	}
	trace, err := b.openTrace()
	if err != nil {
		return err
	}
	defer trace.Close() // what was written is closed before
	b.dev.tell(b.progress)
	if err := b.bind(); err != nil {
		return err
	}
	if err := b.measureAcceptance(b.f.number("speculate")); err != nil {
		return err
	}
	for _, s := range b.steps {
		r, err := b.step(s)
		if err != nil {
			return err
		}
		b.report.Steps = append(b.report.Steps, *r)
	}
	b.progress.clear()
	if trace != nil {
		text, err := b.report.trace()
		if err == nil {
			_, err = trace.Write(text)
		}
		if err := errors.Join(err, trace.Close()); err != nil {
			return fmt.Errorf("%s: %w", b.f.origins("trace"), err)
		}
	}
	if b.f.boolean("json") {
		return printJSON(b.e.stdout, b.report)
	}
	return b.report.print(b.e.stdout)
}

// openTrace makes the file of --trace before anything is timed; nil without the flag.
func (b *bench) openTrace() (*os.File, error) {
	path := b.f.text("trace")
	if path == "" {
		return nil, nil
	}
	if b.f.boolean("steps-only") {
		return nil, usagef("leave --steps-only out", "%s: with --steps-only no launch is timed", b.f.origins("trace"))
	}
	f, err := os.Create(path)
	if err != nil {
		return nil, &codedError{exitFailed, fmt.Errorf("%s: %w", b.f.origins("trace"), err), "--trace F.json in a folder that can be written"}
	}
	return f, nil
}

// fits refuses what is too large for the memory that is free on the device.
func (b *bench) fits() error {
	free, err := b.dev.freeMemory()
	if err != nil || free == nil {
		return err
	}
	need := int64(len(b.code.Object))
	for _, list := range [][]plan.Storage{b.code.Module.Weights, b.code.Module.States} {
		for _, s := range list {
			need += s.Bytes[0] + s.Bytes[1]
		}
	}
	var arena int64
	for _, s := range b.steps {
		arena = max(arena, s.plan.Arena)
	}
	if b.f.number("speculate") > 0 && b.f.text("model") != "" { // acceptance is measured by all plans
		for _, p := range b.code.Module.Plans {
			arena = max(arena, p.Arena)
		}
	}
	if b.f.boolean("cold") {
		need += b.coldBytes()
	}
	if need += arena; need > *free {
		return refuse(fmt.Errorf("%s needs %s, free on %s are %s", b.path, binarySize(need), b.dev.describe(), binarySize(*free)), "kiln plan "+b.path)
	}
	return nil
}

// coldBytes are written before each sample with --cold, and else 0.
func (b *bench) coldBytes() int64 {
	if !b.f.boolean("cold") {
		return 0
	}
	return 2*b.cache() + 1<<20
}

// bind opens the device and makes or reads the weights.
func (b *bench) bind() error {
	var err error
	if b.open, err = b.dev.open(b.e, b.f); err != nil {
		return err
	}
	b.progress.say("loading code")
	if b.model, err = rt.NewModel(b.open, b.code.Object, b.code.Module); err != nil {
		return err
	}
	dir := b.f.text("model")
	if dir == "" {
		b.progress.say("making random weights")
		return b.model.BindRandom(b.random())
	}
	b.progress.say("binding weights")
	file, err := weights.Open(dir)
	if err != nil {
		return err
	}
	pack, err := b.code.PackGraph()
	if err == nil {
		var src eval.WeightSource
		if src, err = engine.BindPack(pack, engine.CheckpointSource{File: file}); err == nil {
			err = b.model.BindWeights(b.e.ctx, src, b.progress.transfer("loading weights"))
		}
	}
	return errors.Join(err, file.Close())
}

// random says what random weights are: ids of experts are below their number.
func (b *bench) random() rt.Random {
	return rt.Random{Seed: b.f.seed("seed"), IDs: func(name string) int {
		if strings.HasSuffix(name, ".tid2eid") {
			return b.config.Experts
		}
		return 0
	}}
}

func (b *bench) close() error {
	var errs []error
	if b.model != nil {
		errs = append(errs, b.model.Close())
	}
	if b.open != nil {
		errs = append(errs, b.open.Close())
	}
	return errors.Join(append(errs, b.dev.close())...)
}

// inputs makes the metadata of a step with random tokens. The requests lie in the
// pools one after the other.
func (b *bench) inputs(s benchPlan) (engine.Tensors, error) {
	p := s.plan
	shape := engine.Shape{T: p.Symbol("T"), B: p.Symbol("B"), O: p.Symbol("O"), P: max(1, p.Symbol("P"))}
	k := engine.DraftsOf(p.Entry)
	if k > 0 {
		shape.T, shape.O = p.Rows(), p.Rows()
	}
	shape.T, shape.O = cmp.Or(shape.T, shape.B), cmp.Or(shape.O, shape.B)
	feeds := make([]engine.Feed, shape.B)
	n := uint64(0)
	for i := range feeds {
		seq := &engine.Seq{Ring: i, Len: s.ctx}
		for page := range shape.P {
			seq.Pages = append(seq.Pages, i*shape.P+page)
		}
		ids := make([]int32, shape.T/shape.B)
		for j := range ids {
			ids[j] = int32(plan.Mix(b.f.seed("seed"), n) % uint64(b.sizer.layout.Vocab))
			n++
		}
		feeds[i] = engine.Feed{Seq: seq, IDs: ids, Out: []int{len(ids) - 1}}
		if k > 0 {
			feeds[i].Out = nil
			for j := range ids {
				feeds[i].Out = append(feeds[i].Out, j)
			}
		}
	}
	if k > 0 {
		return engine.SpeculateMetadata(b.sizer.layout, feeds, k, shape)
	}
	return engine.Metadata(b.sizer.layout, feeds, shape)
}

// finite refuses results that are not: what is computed with them could be as fast as
// it likes.
func finite(out map[string]*eval.Tensor, outputs []plan.Tensor) error {
	for _, o := range outputs {
		t := out[o.Name]
		if strings.HasSuffix(o.Name, "_flags") { // of heads that choose a token
			if at := slices.IndexFunc(t.I, func(n int64) bool { return n != 0 }); at >= 0 {
				return fmt.Errorf("output %s, row %d: the flags are %#x: a logit is not finite", o.Name, at, t.I[at])
			}
		}
		if at := slices.IndexFunc(t.F, func(x float32) bool { return x-x != 0 }); at >= 0 {
			return fmt.Errorf("output %s, element %d is %v", o.Name, at, t.F[at])
		}
	}
	return nil
}

// digest is the SHA-256 of the bundle's manifest, which has those of its files.
func (b *bench) digest() (string, error) {
	data, err := os.ReadFile(filepath.Join(b.path, "manifest.json"))
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:]), err
}
