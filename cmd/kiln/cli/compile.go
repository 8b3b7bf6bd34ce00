package cli

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/kiln-project/kiln/codegen"
	"github.com/kiln-project/kiln/codegen/bundle"
	"github.com/kiln-project/kiln/codegen/target"
	"github.com/kiln-project/kiln/ir"
	"github.com/kiln-project/kiln/models/dsv4"
	"github.com/kiln-project/kiln/passes"
	"github.com/kiln-project/kiln/passes/parallel"
	"github.com/kiln-project/kiln/runtime/engine"
)

const compileHelp = `Compiles a model to native code ahead of time, from config.json alone, and
writes a bundle: plans and code objects per target. Defaults that were used are
printed and kept in the bundle's manifest.`

// compileResult is the JSON of compile.
type compileResult struct {
	Bundle  string          `json:"bundle"`
	Targets []targetResult  `json:"targets"`
	Set     bundle.Settings `json:"settings"`
	Timings *timings        `json:"timings,omitempty"`
}

type targetResult struct {
	Target  string `json:"target"`
	Plans   int    `json:"plans"`
	Kernels int    `json:"kernels"`
	Cached  int    `json:"cached"`
	Bytes   int    `json:"code_bytes"`
	// Choices among ways to run a kernel, and how many the target's table did not make.
	Choices  int `json:"choices"`
	Modelled int `json:"choices_by_cost_model"`
}

type timings struct {
	Passes  float64 `json:"passes_s"`
	Codegen float64 `json:"codegen_s"`
	LLVM    float64 `json:"llvm_s"`
	Link    float64 `json:"link_s"`
	Sides   float64 `json:"fallback_s"` // what --no-fallback leaves out
}

func runCompile(e *env, f *flags, _ []string) error {
	set, opts, err := compileSettings(f)
	if err != nil {
		return err
	}
	targets, err := compileTargets(f.text("target"))
	if err != nil {
		return err
	}
	if set.CodeObjectVersion, err = codeObjectVersion(f, targets); err != nil {
		return err
	}
	config, err := compileConfig(e, f)
	if err != nil {
		return err
	}
	disabled, err := disabledKernels(f)
	if err != nil {
		return err
	}
	set.Passes = passSettings(config, disabled)
	dir := f.text("model")
	c, err := loadConfig(dir)
	if err != nil {
		return err
	}
	if !strings.HasSuffix(f.text("out"), ".kiln") {
		return usagef("-o model.kiln", "--out %s: a bundle's name ends in .kiln", f.text("out"))
	}
	if err := bundle.CanWrite(f.text("out")); err != nil {
		return &codedError{exitFailed, fmt.Errorf("%s: %w", f.origins("out"), err), "-o model.kiln, in a folder that is there"}
	}
	if err := applyLimits(c, &set); err != nil {
		return err
	}
	if err := limitPrefill(f, &set); err != nil {
		return err
	}
	progress := newProgress(e, f)
	defer progress.close()
	emit, err := emitted(f)
	if err != nil {
		return err
	}
	modelConfig, err := os.ReadFile(filepath.Join(dir, "config.json"))
	if err != nil {
		return err
	}
	cc, done, err := newCompiler(e, f)
	if err != nil {
		return err
	}
	defer done()
	cc.CodeObjectVersion, cc.Disable = set.CodeObjectVersion, disabled
	if !f.boolean("no-fallback") {
		cc.Sides = codegen.Sides{Unfused: true, Probes: true}
	}

	b := &bundle.Bundle{Config: modelConfig, Code: map[string]bundle.Files{}, Manifest: bundle.Manifest{
		Format: bundle.Format, Kiln: Version, LLVM: cc.Tools.ID(), Model: "deepseek_v4", Settings: set,
		OrderClass: map[string]string{"prefill": "prefill", "decode": "step", "verify": "step", "draft": "step"},
	}}
	for _, k := range upTo(set.Speculate) {
		b.Manifest.OrderClass[string(dsv4.SpeculateEntry(k))] = "step"
	}
	res := compileResult{Bundle: f.text("out"), Set: set}
	cn := &compilation{e: e, f: f, cc: cc, c: c, opts: opts, set: set, config: config, emit: emit, progress: progress}
	for _, t := range targets {
		files, st, err := cn.target(t, len(targets) > 1)
		if err != nil {
			return err
		}
		b.Code[t.Name] = files
		b.Manifest.Targets = append(b.Manifest.Targets, t.Name)
		res.Targets = append(res.Targets, targetResult{t.Name, st.Plans, st.Kernels, st.Cached, files.CodeBytes(t.Name), st.Choices, st.Modelled})
	}
	progress.say("writing %s", f.text("out"))
	if err := b.Write(f.text("out")); err != nil {
		return err
	}
	progress.clear()
	if f.boolean("timings") {
		res.Timings = &cn.times
	}
	if f.boolean("json") {
		return printJSON(e.stdout, res)
	}
	return printCompiled(e, res)
}

// emitted reads --emit.
func emitted(f *flags) (codegen.Emit, error) {
	var out codegen.Emit
	if f.text("emit") == "" {
		return out, nil
	}
	for _, s := range strings.Split(f.text("emit"), ",") {
		switch strings.TrimSpace(s) {
		case "kir":
			out.KIR = true
		case "ll":
			out.LL = true
		case "s":
			out.Asm = true
		default:
			return out, usagef("--emit kir,ll,s", "%s: unknown form %q: want kir, ll or s", f.origins("emit"), s)
		}
	}
	return out, nil
}

func printCompiled(e *env, r compileResult) error {
	var b strings.Builder
	for _, t := range r.Targets {
		fmt.Fprintf(&b, "%s: %s, %d plans, %d kernels (%d from the cache), %d bytes of code\n", r.Bundle, t.Target, t.Plans, t.Kernels, t.Cached, t.Bytes)
	}
	fmt.Fprintln(&b, settingsLine(r.Set))
	if t := r.Timings; t != nil {
		fmt.Fprintf(&b, "passes %.2f s, codegen %.2f s, LLVM %.2f s, link %.2f s, fallback %.2f s\n", t.Passes, t.Codegen, t.LLVM, t.Link, t.Sides)
	}
	if _, err := e.stdout.Write([]byte(b.String())); err != nil {
		return err
	}
	for _, t := range r.Targets {
		if t.Modelled > 0 {
			e.notef("note: %s: %d of %d choices are not in the target's table, the cost model made them: kiln inspect %s lists them", t.Target, t.Modelled, t.Choices, r.Bundle)
		}
	}
	return nil
}

// settingsLine says what a bundle was compiled with.
func settingsLine(s bundle.Settings) string {
	line := fmt.Sprintf("numerics %s, max-seq %d, batch %s, prefill %s, speculate %d, layers %d, taps %v",
		s.Numerics, s.MaxSeq, joinInts(s.Batch), joinInts(s.Prefill), s.Speculate, s.Layers, s.Taps)
	if s.Head != "" {
		line += ", head " + s.Head
	}
	if s.CodeObjectVersion > 0 {
		line += fmt.Sprintf(", code object version %d", s.CodeObjectVersion)
	}
	for _, x := range describePasses(s.Passes) {
		line += fmt.Sprintf(", %s %s", x.flag, x.value)
	}
	return line
}

// compileSettings reads the flags that choose what is compiled.
func compileSettings(f *flags) (bundle.Settings, dsv4.Options, error) {
	set := bundle.Settings{Numerics: f.text("numerics"), MaxSeq: f.number("max-seq"), Speculate: f.number("speculate"), Layers: f.number("layers")}
	switch f.text("taps") {
	case "":
	case "hidden":
		set.Taps = true
	default:
		return set, dsv4.Options{}, usagef("--taps hidden", "--taps: unknown tap %q: want hidden", f.text("taps"))
	}
	o, err := options(f, set.Taps)
	if err != nil {
		return set, o, err
	}
	if set.Speculate > maxSpeculate {
		return set, o, refuse(fmt.Errorf("--speculate %d: at most %d draft tokens", set.Speculate, maxSpeculate), "--speculate 3")
	}
	if set.Speculate < 0 || set.Layers < 0 || set.MaxSeq < 0 {
		return set, o, usagef("kiln compile --help", "--speculate, --layers and --max-seq must not be negative")
	}
	o.MaxDraft = set.Speculate
	if o.Head != dsv4.HeadLogits {
		set.Head = o.Head.String()
	}
	if set.Batch, err = sizes(f, "batch"); err != nil {
		return set, o, err
	}
	set.Prefill, err = sizes(f, "prefill")
	return set, o, err
}

// maxSpeculate bounds the draft tokens of a step: each is another verify and draft
// bucket, and a chain of that many guesses is hardly ever right.
const maxSpeculate = 16

// sizes reads a list of distinct positive numbers and sorts it.
func sizes(f *flags, flag string) ([]int, error) {
	var out []int
	for _, s := range strings.Split(f.text(flag), ",") {
		n, err := strconv.Atoi(strings.TrimSpace(s))
		if err != nil || n < 1 || slices.Contains(out, n) {
			return nil, usagef("--"+flag+" 1,2,4", "--%s: %q: want distinct positive numbers", flag, f.text(flag))
		}
		out = append(out, n)
	}
	slices.Sort(out)
	return out, nil
}

func joinInts[T int | int32](v []T) string {
	s := make([]string, len(v))
	for i, n := range v {
		s[i] = strconv.Itoa(int(n))
	}
	return strings.Join(s, ",")
}

// compileTargets looks up a comma-separated list; empty is this machine.
func compileTargets(list string) ([]*target.Target, error) {
	if list == "" {
		t, err := hostTarget()
		return []*target.Target{t}, err
	}
	var out []*target.Target
	for _, name := range strings.Split(list, ",") {
		t, err := target.Lookup(strings.TrimSpace(name))
		if err != nil {
			return nil, usagef("--target gfx942,gfx950", "--target: %v", err)
		}
		if slices.ContainsFunc(out, func(o *target.Target) bool { return o.Name == t.Name }) {
			return nil, usagef("--target "+t.Name, "--target: %s is given twice", t.Name)
		}
		out = append(out, t)
	}
	return out, nil
}

// codeObjectVersion is the version of the AMDGPU targets, 0 if there are none.
func codeObjectVersion(f *flags, targets []*target.Target) (int, error) {
	const flag = "code-object-version"
	v := f.number(flag)
	if !slices.Contains(codegen.CodeObjectVersions, v) {
		return 0, usagef("--"+flag+" 5", "%s %d: want one of %s", f.origins(flag), v, joinInts(codegen.CodeObjectVersions))
	}
	if slices.ContainsFunc(targets, func(t *target.Target) bool { return t.Kind == target.AMDGPU }) {
		return v, nil
	}
	if f.given(flag) && !f.fromEnv[flag] { // a variable may be meant for other compilations
		return 0, usagef("--target gfx950", "--%s: no target is an AMD GPU", flag)
	}
	return 0, nil
}

// defaultMaxSeq bounds the default of --max-seq.
const defaultMaxSeq = 8192

// applyLimits resolves the settings that depend on the config.
func applyLimits(c *dsv4.Config, set *bundle.Settings) error {
	if set.MaxSeq == 0 {
		set.MaxSeq = min(c.MaxPositions, defaultMaxSeq)
	}
	if set.MaxSeq > c.MaxPositions {
		return refuse(fmt.Errorf("--max-seq %d is beyond max_position_embeddings %d", set.MaxSeq, c.MaxPositions), "")
	}
	if set.Layers > c.Layers {
		return refuse(fmt.Errorf("--layers %d: the model has %d", set.Layers, c.Layers), "")
	}
	if set.Layers == 0 {
		set.Layers = c.Layers
	}
	firstLayers(c, set.Layers)
	if set.Speculate > 0 && c.NextN == 0 {
		return refuse(errors.New("--speculate: the model has no MTP block"), "--speculate 0")
	}
	return nil
}

// limitPrefill refuses prefill steps of more tokens than a request can have; of the
// default ones those that fit stay.
func limitPrefill(f *flags, set *bundle.Settings) error {
	if most := slices.Max(set.Prefill); f.given("prefill") && most > set.MaxSeq {
		return refuse(fmt.Errorf("%s: %d tokens are beyond --max-seq %d", f.origins("prefill"), most, set.MaxSeq), fmt.Sprintf("--prefill %d", set.MaxSeq))
	}
	set.Prefill = slices.DeleteFunc(set.Prefill, func(n int) bool { return n > set.MaxSeq })
	if len(set.Prefill) == 0 {
		set.Prefill = []int{set.MaxSeq}
	}
	return nil
}

// firstLayers keeps the first n layers of a config, and the MTP block.
func firstLayers(c *dsv4.Config, n int) {
	c.Ratios = append(slices.Clone(c.Ratios[:n]), c.Ratios[c.Layers:]...)
	c.Layers = n
	c.HashLayers = min(c.HashLayers, n)
}

// bundleBuckets lists the plans of a bundle: decode and verify for each batch,
// prefill for each size, and the MTP step beside each of them.
func bundleBuckets(set bundle.Settings, l engine.Layout, c *dsv4.Config) []passes.Bucket {
	pages := l.Pages(set.MaxSeq)
	largest := slices.Max(set.Batch)
	bind := func(kv ...any) map[string]int {
		m := map[string]int{"R": largest, "P": pages, "N": largest * pages}
		for i := 0; i < len(kv); i += 2 {
			m[kv[i].(string)] = kv[i+1].(int)
		}
		return m
	}
	var out []passes.Bucket
	add := func(entry string, kv ...any) { out = append(out, passes.Bucket{Entry: entry, Bind: bind(kv...)}) }
	for _, t := range set.Prefill {
		add("prefill", "T", t, "B", 1, "O", 1)
	}
	for _, b := range set.Batch {
		add("decode", "B", b)
	}
	for _, b := range set.Batch {
		for k := 1; k <= set.Speculate; k++ {
			add("verify", "B", b, "K", k)
		}
	}
	if c.NextN == 0 {
		return out
	}
	for _, t := range set.Prefill {
		add("draft", "T", t, "B", 1, "O", 1)
	}
	for _, b := range set.Batch {
		for k := 0; k <= set.Speculate; k++ {
			add("draft", "T", b*(k+1), "B", b, "O", b*(k+1))
		}
	}
	for _, b := range set.Batch {
		for _, k := range upTo(set.Speculate) {
			add(string(dsv4.SpeculateEntry(k)), "B", b)
		}
	}
	return out
}

// upTo are the numbers 1 to n.
func upTo(n int) []int {
	var list []int
	for k := 1; k <= n; k++ {
		list = append(list, k)
	}
	return list
}

// entriesOf builds the entries of a config and runs the passes on graphs, for a
// target or for none in particular.
func entriesOf(c *dsv4.Config, o dsv4.Options, t passes.Target, config passes.Config, drafts ...int) (*passes.Module, error) {
	m, err := buildEntries(c, o, t, config, drafts...)
	if err != nil {
		return nil, err
	}
	return m, passes.Run(m)
}

// buildEntries builds the entries of a config, without any pass, and whole speculative
// steps of some numbers of drafts.
func buildEntries(c *dsv4.Config, o dsv4.Options, t passes.Target, config passes.Config, drafts ...int) (*passes.Module, error) {
	var entries []dsv4.Entry
	for _, entry := range dsv4.Entries {
		if entry != dsv4.Draft || c.NextN > 0 {
			entries = append(entries, entry)
		}
	}
	m := &passes.Module{Target: t, Config: config, Entries: make([]*ir.Graph, len(entries)+len(drafts))}
	err := parallel.First(len(m.Entries), func(i int) (err error) {
		if i < len(entries) {
			m.Entries[i], err = dsv4.Build(c, entries[i], o)
		} else {
			m.Entries[i], err = dsv4.BuildSpeculate(c, drafts[i-len(entries)], o)
		}
		return err
	})
	return m, err
}
