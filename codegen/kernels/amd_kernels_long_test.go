//go:build long

package kernels_test

import (
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/kiln-project/kiln/codegen"
	"github.com/kiln-project/kiln/codegen/llvm"
	"github.com/kiln-project/kiln/codegen/object"
	"github.com/kiln-project/kiln/codegen/plan"
	"github.com/kiln-project/kiln/ir"
	"github.com/kiln-project/kiln/ir/eval"
	"github.com/kiln-project/kiln/ir/num"
	"github.com/kiln-project/kiln/models/dsv4"
	"github.com/kiln-project/kiln/passes"
	"github.com/kiln-project/kiln/runtime/device"
	"github.com/kiln-project/kiln/runtime/emu"
)

var (
	update  = flag.Bool("update", false, "rewrite docs/measurements/amd-kernels.md")
	onlyOps = flag.String("ops", "", "a regular expression: TestAMDKernels runs the ops that it matches with their first operands, and rewrites nothing")
)

// What TestAMDKernels runs: decode steps of the first layers of a model, of each kind,
// at so many positions.
const (
	amdLayers = 6
	amdPages  = 32 // of 128 positions: 1024 entries
	// Of weights, emulation needs no more than this: experts that are not chosen are not
	// there, and of the head there is a part of the columns.
	amdExperts  = 16
	amdHeadPart = 4

	amdChosen = 512 // entries of a token, at least, if not all
)

var amdTokens = []int{1, 8, 64}

// amdOps are the ops of a step that take time on a GPU.
var amdOps = []string{
	"linear", "linear2", "linear3", "linear4", "block_linear", "split_linear", "grouped_linear", "expert", "moe_experts", "moe_experts_add",
	"sparse_attention", "indexer_scores", "topk_rows", "gate", "compress",
	"hc_pre", "hc_post", "hc_fused", "hc_fused_quant", "hc_head", "rms_norm", "rms_norm_quant", "rms_norm_and_quant", "rms_norm_rope", "head_rms_norm_rope", "rope_row", "rope",
}

// Bars that a kernel meets, or amdBeyond says why not.
const (
	leastCoalesced = 0.90
	mostConflicts  = 0.05
)

// amdOp is an op of a step, alone in a graph.
type amdOp struct {
	name, operands string
	tokens         int
	graph          *ir.Graph
	in             map[string]*eval.Tensor
	set            map[string]int
}

// stepsOf keeps the graphs that passes give a backend.
type stepsOf struct{ steps []*passes.Step }

func (s *stepsOf) SelectKernels(p *passes.Step) error { s.steps = append(s.steps, p); return nil }
func (s *stepsOf) JoinLaunches(*passes.Step) error    { return nil }
func (s *stepsOf) PlanMemory(*passes.Step) error      { return nil }

// amdSteps are decode steps of a model on a chip, with rows as the product has them or of
// bf16, and heads as they are.
func amdSteps(t *testing.T, model, chip string, o dsv4.Options) []*passes.Step {
	t.Helper()
	c, err := dsv4.LoadConfig("../../testdata/configs/" + model)
	if err != nil {
		t.Fatal(err)
	}
	c.Ratios = append(slices.Clone(c.Ratios[:amdLayers]), c.Ratios[c.Layers:]...)
	c.Layers = amdLayers
	g, err := dsv4.Build(c, dsv4.Decode, o)
	if err != nil {
		t.Fatal(err)
	}
	m := &passes.Module{Target: mustTarget(t, chip).ForPasses(), Entries: []*ir.Graph{g}}
	if err := passes.Run(m); err != nil {
		t.Fatal(err)
	}
	var buckets []passes.Bucket
	for _, n := range amdTokens {
		buckets = append(buckets, passes.Bucket{Entry: g.Name, Bind: map[string]int{"B": n, "R": n, "P": amdPages, "N": amdPages}})
	}
	var out stepsOf
	if err := passes.Lower(m, buckets, &out); err != nil {
		t.Fatal(err)
	}
	return out.steps
}

// amdWeights makes up operands, of numbers that repeat.
type amdWeights struct{ t *testing.T }

func (w amdWeights) Weight(_ string, typ ir.Type) (*eval.Tensor, error) {
	const period, scale = 1009, 120 // a prime, and e8m0's 2^-7
	r := rand.New(rand.NewPCG(3, 4))
	var numbers [period]float32
	var codes [period]byte
	for i := range period {
		numbers[i] = num.RoundBF16(float32(r.NormFloat64()))
		if codes[i] = byte(r.Uint32()) & 0x77; typ.DType == ir.F4E2M1 {
			codes[i] &= 7
		}
	}
	x := blank(w.t, typ)
	for i := range x.F {
		x.F[i] = numbers[i%period]
	}
	for i := range x.I {
		x.I[i] = int64(codes[i%period])
	}
	for i := range x.Codes {
		x.Codes[i] = codes[i%period]
	}
	for i := range x.Scales {
		x.Scales[i] = scale
	}
	return x, nil
}

// alone is an op of a step with operands of its own: weights, and integers and what is
// chosen by its size as inputs.
func alone(t *testing.T, o *ir.Op, r *rand.Rand) (*ir.Graph, map[string]*eval.Tensor) {
	t.Helper()
	b, in := ir.NewBuilder("g"), map[string]*eval.Tensor{}
	var args []*ir.Value
	for i, a := range o.Args {
		typ := a.Type
		typ.Dims = slices.Clone(typ.Dims)
		switch {
		case strings.HasPrefix(o.Def.Name, "moe_experts") && i >= 1 && i <= 3:
			typ.Dims[0] = ir.Int(amdExperts)
		case (o.Def.Name == "linear" || o.Def.Name == "linear_argmax") && i == 1 && extentOf(typ, 0) > 1<<16:
			typ.Dims[0] = ir.Int(extentOf(typ, 0) / amdHeadPart)
		}
		if typ.DType == ir.I32 || typ.DType == ir.I64 || o.Def.Name == "topk_rows" {
			x := blank(t, typ)
			for j := range x.F {
				x.F[j] = float32(r.NormFloat64())
			}
			amdIndexes(o, i, x, r)
			in[fmt.Sprintf("x%d", i)] = x
			args = append(args, b.Input(fmt.Sprintf("x%d", i), typ))
			continue
		}
		args = append(args, b.Weight(fmt.Sprintf("w%d_%s", i, strings.Map(letters, typ.String())), typ))
	}
	for i, y := range b.Op(o.Def.Name, o.Attrs, args...) {
		b.Output(fmt.Sprintf("y%d", i), y)
	}
	g, err := b.Finish()
	if err != nil {
		t.Fatalf("%s: %v", o.Def.Name, err)
	}
	return g, in
}

// letters makes names of types: operands of one type at one place of an op are one weight.
func letters(r rune) rune {
	if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' {
		return r
	}
	return '_'
}

func extentOf(t ir.Type, i int) int {
	n, _ := t.Dims[i].Const()
	return n
}

// amdIndexes fills integers of operand i, which are rows or experts.
func amdIndexes(o *ir.Op, i int, x *eval.Tensor, r *rand.Rand) {
	if len(x.I) == 0 {
		return
	}
	below := 1 << 15
	switch o.Def.Name {
	case "sparse_attention", "indexer_scores":
		below = extentOf(o.Args[i-1].Type, 0)
	case "compress":
		below = extentOf(o.Args[2*(i-4)].Type, 0)
	case "moe_experts", "moe_experts_add":
		k := x.Shape[1]
		for at := 0; at < len(x.I); at += k {
			for j, id := range r.Perm(amdExperts)[:k] {
				x.I[at+j] = int64(id)
			}
		}
		return
	}
	// What top-k chose lies anywhere, the rows of windows and all entries one after the other.
	chosen := o.Def.Name == "sparse_attention" && extentOf(o.Args[i].Type, 1) >= amdChosen
	for j := range x.I {
		if x.I[j] = int64(j % below); chosen {
			x.I[j] = int64(r.IntN(below))
		}
	}
}

// amdOpsOf are the ops of steps that take time, each once.
func amdOpsOf(t *testing.T, model, chip string) []amdOp {
	t.Helper()
	r := rand.New(rand.NewPCG(1, 2))
	seen := map[string]bool{}
	var list []amdOp
	add := func(o *ir.Op, tokens int, what string, set map[string]int) {
		var types []string
		for _, a := range o.Args {
			types = append(types, a.Type.String())
		}
		key := fmt.Sprint(o.Def.Name, o.Attrs, types, set)
		if seen[key] {
			return
		}
		seen[key] = true
		g, in := alone(t, o, r)
		list = append(list, amdOp{o.Def.Name + what, strings.Join(types[:2], ", "), tokens, g, in, set})
	}
	product, rows, greedy := dsv4.DefaultOptions(), dsv4.DefaultOptions(), dsv4.DefaultOptions()
	rows.BF16Pools, greedy.Head = true, dsv4.HeadGreedy
	for _, v := range []struct {
		dsv4.Options
		what string
		ops  []string
		most int // tokens
	}{
		{product, "", amdOps, 64},
		{rows, ", bf16 rows", []string{"sparse_attention", "indexer_scores"}, 1},
		{greedy, "", []string{"linear_argmax"}, 1},
	} {
		for i, s := range amdSteps(t, model, chip, v.Options) {
			tokens := amdTokens[i]
			for _, op := range s.Graph.Ops {
				name := op.Def.Name
				heavy := model == "pro" && name == "moe_experts_add" || op.Results[0].Type.DType == ir.F32 && name == "linear"
				if !slices.Contains(v.ops, name) || tokens > v.most || heavy && tokens > 8 {
					continue
				}
				if name == "sparse_attention" && tokens == 1 {
					add(op, tokens, v.what+", no split", map[string]int{passes.NoSplitTokens: 0})
				}
				add(op, tokens, v.what, nil)
			}
		}
	}
	return list
}

// amdChosenOps are the ops that -ops chooses.
func amdChosenOps(t *testing.T, ops []amdOp) []amdOp {
	t.Helper()
	re, err := regexp.Compile(*onlyOps)
	if err != nil {
		t.Fatal(err)
	}
	return slices.DeleteFunc(ops, func(o amdOp) bool { return !re.MatchString(o.name + " " + o.operands) })
}

// amdRow is a kernel of an op.
type amdRow struct {
	amdOp
	launch string
	kernel *object.Kernel
	emu.KernelCounters
}

// amdRows runs the ops on an emulated chip.
func amdRows(t *testing.T, chip string, ops []amdOp) []amdRow {
	t.Helper()
	u := codegen.NewUnit(mustTarget(t, chip))
	var plans []*plan.Plan
	for _, o := range ops {
		s := &passes.Step{Graph: o.graph, Set: o.set}
		if err := u.SelectKernels(s); err != nil {
			t.Fatal(err)
		}
		if err := u.PlanMemory(s); err != nil {
			t.Fatal(err)
		}
		plans = append(plans, u.Module.Plans[len(u.Module.Plans)-1])
	}
	tools, _ := compiler(t)
	objs, _ := compileMerged(t, u.Kernels, u.Target, llvm.Object)
	linked, err := tools.Link(t.Context(), "kernels", objs)
	if err != nil {
		t.Fatal(err)
	}
	code, err := object.MergeNotes(linked)
	if err != nil {
		t.Fatal(err)
	}
	file, err := object.Read(code)
	if err != nil {
		t.Fatal(err)
	}
	counters := &emu.Counters{}
	dev, err := emu.Open(t.Context(), chip, emu.Loader{ObjDump: tools.ObjDump, Version: tools.Version}, emu.Options{Counters: counters})
	if err != nil {
		t.Fatal(err)
	}
	defer dev.Close()
	m, err := device.NewModel(dev, code, u.Module)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	if err := m.BindWeights(t.Context(), amdWeights{t}, nil); err != nil {
		t.Fatal(err)
	}
	var rows []amdRow
	for i, o := range ops {
		before := byName(counters)
		prog, err := m.Load(plans[i])
		if err != nil {
			t.Fatal(err)
		}
		st, err := m.NewState(plans[i])
		if err != nil {
			t.Fatal(err)
		}
		if _, err := prog.Run(o.in, st); err != nil {
			t.Fatal(err)
		}
		after, seen := byName(counters), map[int]bool{}
		for _, l := range plans[i].Launches {
			if seen[l.Kernel] {
				continue
			}
			seen[l.Kernel] = true
			k := u.Module.Kernels[l.Kernel]
			n := since(after[k.Symbol], before[k.Symbol])
			at := slices.IndexFunc(file.Objects()[0].Kernels, func(x object.Kernel) bool { return x.Name == k.Symbol })
			rows = append(rows, amdRow{o, kindOf(chip, k).launch, &file.Objects()[0].Kernels[at], n})
			t.Log(rows[len(rows)-1].line())
		}
		for _, c := range []interface{ Close() error }{prog, st} {
			if err := c.Close(); err != nil {
				t.Fatal(err)
			}
		}
	}
	return rows
}

// byName are counters so far.
func byName(c *emu.Counters) map[string]emu.KernelCounters {
	m := map[string]emu.KernelCounters{}
	for _, k := range c.Kernels() {
		m[k.Kernel] = k
	}
	return m
}

// since is what came to counters after earlier ones, of what the page has.
func since(k, before emu.KernelCounters) emu.KernelCounters {
	for _, p := range [][2]*int64{
		{&k.Groups, &before.Groups}, {&k.Instructions, &before.Instructions}, {&k.MFMA, &before.MFMA}, {&k.RequestedBytes, &before.RequestedBytes},
		{&k.Lines, &before.Lines}, {&k.NewLines, &before.NewLines},
		{&k.LDSCycles, &before.LDSCycles}, {&k.LDSConflicts, &before.LDSConflicts},
	} {
		*p[0] -= *p[1]
	}
	return k
}

// amdBeyond are the launches that miss a bar at some shape, with the reason.
var amdBeyond = map[string]string{
	"matrix_attention": "coalescing: packed rows have 592 bytes and begin anywhere in a line, so that one of them takes 5 or 6 lines for 4.6, and a load of 128 bytes of each of 4 or 8 rows two lines of each",
	"matrix_scores":    "coalescing: packed keys have 80 bytes, of which a load has 64 of 4 rows, or the 4 of scales of 16 rows",
	"rms_norm_rope":    "coalescing: the packed rows that it stores, of 592 or 80 bytes, begin anywhere in a line",
	"gate":             "coalescing: 24 bytes of a line are stored for a token's 6 ids, and for their weights, and some of them cross into the next",
	"expert_route":     "coalescing: the lists of experts end anywhere in a line, and counts are single words",
	"topk_few":         "both: scores that are sorted, and what stands at their columns, are read at any columns, 2 and 4 bytes of a line each; lanes leave the columns of what they keep in LDS at places that others' counts make",
}

// beyond reports which bars a kernel misses.
func (r *amdRow) beyond() string {
	var list []string
	if r.Lines > 0 && r.Coalescing() < leastCoalesced {
		list = append(list, "coalescing")
	}
	if r.conflicts() >= mostConflicts {
		list = append(list, "LDS conflicts")
	}
	return strings.Join(list, " and ")
}

func (r *amdRow) conflicts() float64 { return float64(r.LDSConflicts) / float64(max(1, r.LDSCycles)) }

// line is the row of the page.
func (r *amdRow) line() string {
	part := func(x float64, of int64) string {
		if of == 0 {
			return ""
		}
		return fmt.Sprintf("%.1f %%", 100*x)
	}
	return fmt.Sprintf("| %s | %s | %d | %s | %d | %d | %d | %d | %d | %s | %s | %s | %s |\n", r.name, r.operands, r.tokens, r.launch, r.kernel.VGPRs, r.Occupancy, r.kernel.LDSBytes,
		r.Groups, r.Instructions, part(float64(r.MFMA)/float64(r.Instructions), r.MFMA), part(r.Coalescing(), r.Lines), part(r.LineUse(), r.NewLines), part(r.conflicts(), r.LDSCycles))
}

// TestAMDKernels runs the kernels of a decode step, at the shapes of Flash and Pro, one by
// one on emulated chips. None spills, uses scratch memory or AGPRs; which do not coalesce or
// have conflicts in LDS stands in amdBeyond. docs/measurements/amd-kernels.md has the rest.
func TestAMDKernels(t *testing.T) {
	var page strings.Builder
	page.WriteString(amdHead)
	for _, launch := range slices.Sorted(maps.Keys(amdBeyond)) {
		fmt.Fprintf(&page, "| %s | %s |\n", launch, amdBeyond[launch])
	}
	beyond, parts := map[string]bool{}, 0
	for _, model := range []string{"flash", "pro"} {
		for _, chip := range emu.Chips {
			t.Run(model+"/"+chip, func(t *testing.T) {
				parts++
				fmt.Fprintf(&page, "\n## %s, %s\n\n%s", model, chip, amdColumns)
				for _, r := range amdRows(t, chip, amdChosenOps(t, amdOpsOf(t, model, chip))) {
					page.WriteString(r.line())
					if k := r.kernel; *k.AGPRs != 0 || *k.VGPRSpills != 0 || *k.SGPRSpills != 0 || k.ScratchBytes != 0 {
						t.Errorf("%s: %d AGPRs, %d and %d spills, %d bytes of scratch memory", k.Name, *k.AGPRs, *k.VGPRSpills, *k.SGPRSpills, k.ScratchBytes)
					}
					if b := r.beyond(); b != "" {
						beyond[r.launch] = true
						if amdBeyond[r.launch] == "" {
							t.Errorf("misses %s: %s", b, r.line())
						}
					}
				}
			})
		}
	}
	if parts < 4 || *onlyOps != "" { // -run or -ops chose
		return
	}
	for launch := range amdBeyond {
		if !beyond[launch] {
			t.Errorf("%s meets the bars now", launch)
		}
	}
	if *update {
		if err := os.WriteFile("../../docs/measurements/amd-kernels.md", []byte(page.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

const amdHead = `# Kernels on AMD chips, without one

**Emulated, not run on ROCm hardware.** What the code objects say, and what the emulator counts ([emulator.md](../emulator.md)), of the kernels of a decode step,
one op at a time. Generated; to renew it, or to look at some ops on one chip:

    go test -tags long ./codegen/kernels -run TestAMDKernels -update -timeout 60m
    go test -tags long ./codegen/kernels -run TestAMDKernels/flash/gfx950 -v -ops '^gate|f8e4m3.1536'

These are counts and no times. The shapes are those of testdata/configs/flash and pro, with 4096 positions of context (1024 entries to score) and pools of packed rows
as the product has them; "bf16 rows" has none, "no split" takes all rows of a token in one group. T is the number of requests, each with a token. Of the weights of
routed experts there are 16, of which each token chooses 6, and of the head's there is a quarter of the columns. Entries that top-k chose lie at random
places of their pool.

No kernel spills, uses scratch memory or AGPRs: the test holds them to it. "Waves" are those that fit on a SIMD, by registers and LDS. "Coalesced" is the part
of the lines of 128 bytes that an instruction touches that its lanes ask for; more than 100 % where lanes ask for the same bytes. "Line use" is the same of the lines that
none of the wave's last 8 accesses touched. Where lanes read one row of x for all 16, at small T, both are higher, which hides what the weights alone have: the rows of T = 64 show that.
"LDS conflicts" is a model: the part of the LDS's cycles that repeat one because lanes meet in a bank.

## How matrix instructions get whole lines

Their lanes want 16 rows: four lanes a row, 16 bytes each, so that a load of what lanes multiply takes half of each of 16 lines, 50 %, whatever order instructions have. Weights lie as they do
in a checkpoint, which every backend reads; weights in an order of their own, as other libraries shuffle them, would save what follows, but one bundle has them once for all forms and chips.
Instead a load takes the lines of 8 rows, the next one those of the 8 others, and lanes 8 apart exchange half of what they have: two DPP moves, which have a mask of banks, and a copy for two words.
Which k a lane multiplies, and with it every bit, is as it was. Per 128 k of bf16 (4 KiB of w, and as much of x) that is 56 of 87 instructions of a wave that were 31;
a CU that gets its part of the memory's 5.3 TB/s has about 490 cycles of each SIMD for a KiB of w, of which these take about 60. Of x, where w has codes, a lane's k are up to 64 bytes that lie together:
two or four loads take 128 or 256 bytes of 8 or 4 rows. Tiles of 64 rows of x with e2m1 have registers for half lines of it only (T > 1365 with 256 experts).

Of e2m1, 128 k, which a wave sums at a time, are half a line. Two waves share two chunks: each has both, of half of the columns or of the weights, and sums them apart. A row's scales of a chunk are 4 bytes:
the group reads all of its rows' at once, next to each other, behind the first loads of w, and has them in LDS, by words in an order without conflicts. Scales of codes of x are by chunk, then row, and those who make them
take the blocks in that order. Sums that waves add are finished along rows: a store has up to 128 bytes of a row. Streams of hyper-connections go through LDS, 16 KiB of a group, from lanes
that read, make and write whole lines to those that multiply; registers hold all loads of fn at once then, and 2 to 4 waves fit instead of 7. The Hadamard transform exchanges among lanes up to 32 apart.

The bars are 90 % coalesced and 5 % of conflicts; the launches that miss one:

| launch | why |
|---|---|
`

const amdColumns = `| op | its first operands | T | launch | VGPRs | waves | LDS, bytes | groups | wave instructions | MFMA | coalesced | line use | LDS conflicts |
|---|---|---|---|---|---|---|---|---|---|---|---|---|
`
