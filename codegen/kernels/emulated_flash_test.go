package kernels_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/kiln-project/kiln/codegen"
	"github.com/kiln-project/kiln/codegen/plan"
	"github.com/kiln-project/kiln/ir"
	"github.com/kiln-project/kiln/ir/eval"
	"github.com/kiln-project/kiln/models/dsv4"
	"github.com/kiln-project/kiln/passes"
)

// kernelKind is what kernels have in common that differ in extents alone: form, which of
// the form's launches, and the formats of the parameters; those of primitives, which are
// copies and expressions of any formats, do not count.
type kernelKind struct{ chip, form, launch, params string }

func kindOf(chip string, k plan.Kernel) kernelKind {
	kind := kernelKind{chip, k.Form, k.Symbol[:strings.LastIndex(k.Symbol, "_")], ""}
	if !strings.HasPrefix(k.Form, "generic_") {
		kind.params = strings.Join(k.Params, " ")
	}
	return kind
}

// emulatedKinds are those of all code that was loaded on emulated chips.
var emulatedKinds = map[kernelKind]bool{}

// flashKinds are the kinds of all kernels in plans of Flash, whatever its heads give, and
// how many kernels those are.
func flashKinds(t *testing.T, chip string) (kinds map[kernelKind]bool, kernels int) {
	t.Helper()
	c, err := dsv4.LoadConfig("../../testdata/configs/flash")
	if err != nil {
		t.Fatal(err)
	}
	kinds = map[kernelKind]bool{}
	const drafts, most, pages = 3, 256, 4
	for _, head := range []dsv4.Head{dsv4.HeadLogits, dsv4.HeadGreedy, dsv4.HeadSample} {
		o := dsv4.DefaultOptions()
		o.Head = head
		tg := mustTarget(t, chip)
		m := &passes.Module{Target: tg.ForPasses()}
		for _, e := range dsv4.Entries {
			g, err := dsv4.Build(c, e, o)
			if err != nil {
				t.Fatal(err)
			}
			m.Entries = append(m.Entries, g)
		}
		if head != dsv4.HeadSample {
			g, err := dsv4.BuildSpeculate(c, drafts, o)
			if err != nil {
				t.Fatal(err)
			}
			m.Entries = append(m.Entries, g)
		}
		var buckets []passes.Bucket
		for _, g := range m.Entries {
			for _, n := range []int{1, 16, 64, most} { // requests, or tokens of a prompt
				bind := map[string]int{"R": most, "P": pages, "N": most * pages, "T": n, "O": n, "B": n, "K": drafts}
				if g.Name == string(dsv4.Prefill) {
					bind["O"], bind["B"] = 1, 1
				}
				buckets = append(buckets, passes.Bucket{Entry: g.Name, Bind: bind})
			}
		}
		if err := passes.Run(m); err != nil {
			t.Fatal(err)
		}
		u := codegen.NewUnit(tg)
		if err := passes.Lower(m, buckets, apart{u}); err != nil {
			t.Fatal(err)
		}
		for _, k := range u.Module.Kernels {
			kinds[kindOf(chip, k)] = true
		}
		kernels += len(u.Module.Kernels)
	}
	return kinds, kernels
}

// apart leaves launches apart: a joined one runs the code of its parts (TestJoinedLaunches),
// each in a form and with parameters that count here.
type apart struct{ *codegen.Unit }

func (apart) JoinLaunches(*passes.Step) error { return nil }

// flashCases are cases of the kinds that no case of TestComposites is of: pools of packed
// rows, attention of one launch and of parts, and activations that were rounded before.
var flashCases = map[string]func(c *cases){
	"sparse_attention": func(c *cases) {
		const d, heads = 128, 4
		attrs := ir.A("scale", math.Pow(d, -0.5))
		q, sink, window, entries, own := c.bf16(1, 2, heads, d), c.f32(1, heads), c.bf16(1, 60, d), c.bf16(1, 90, d), c.bf16(1, 5, d)
		for _, columns := range []int{40, 131} { // of one part, and of several
			few, rows, new := c.rows(60, 2, 9), c.rows(90, 2, columns), c.rows(5, 2, 3)
			c.addPacked(attrs, kvFormat(d), 1e-4, []int{2, 4}, q, sink, entries, rows, own, new)
			c.addPacked(attrs, kvFormat(d), 1e-4, []int{2, 4, 6}, q, sink, window, few, entries, rows, own, new)
		}
	},
	"indexer_scores": func(c *cases) {
		const d, heads = 128, 64
		c.addPacked(nil, indexFormat(d), 6*0x1p-126, []int{2}, c.bf16(1, 2, heads, d), c.bf16(1, 2, heads), c.bf16(1, 50, d), c.rows(50, 2, 40))
	},
	"expert": func(c *cases) {
		const d, inner, tokens = 256, 128, 3
		c.add(ir.A("limit", 10.0, "act_block", 0), c.bf16(1, tokens, d), c.w8(inner, d), c.w8(inner, d), c.w8(d, inner), c.f32(1, tokens, 1))
	},
}

// pooledEntries are entries that are compressed where a pool has them, one without a place.
func pooledEntries(t *testing.T) *batch {
	const entries, members, d, w, pairs = 3, 8, 128, 128, 32
	c := &cases{batch: newBatch(t), r: rand.New(rand.NewPCG(3, 8))}
	for i, tail := range rowTails(d) {
		if _, packed := tail.Get("packed"); packed { // a chip with e4m3fnuz reads and writes -0 as 0: TestPackRows
			continue
		}
		args := []*ir.Value{}
		for _, x := range []*eval.Tensor{c.f32(2, 40, w), c.f32(1, entries, pairs), c.f32(1, entries, pairs), c.bf16(1, d), c.f32(2, 40, w), c.f32(2, 9, w), c.f32(2, 9, w)} {
			args = append(args, c.batch.input(x))
		}
		old, own := c.rows(40, entries, members), c.rows(9, entries, members)
		args = append(args, c.batch.input(without(old)), c.batch.input(without(own)))
		y := c.b.Op1("compress_row", append(ir.A("overlap", false, "eps", 1e-6), tail...), args...)
		pool := fmt.Sprintf("p%d", i)
		c.states[pool] = random(t, c.r, patterns, y.Type.DType, 6, intExtent(blank(t, y.Type), 1))
		s := c.b.State(pool, c.states[pool].Type())
		c.b.Update(s, c.b.Op1("scatter_rows", nil, s, c.batch.input(i32s(t, 4, -1, 0)), y))
	}
	c.output("weights", exact, c.b.Op1("neg", nil, c.batch.input(c.f32(1, 3))))
	return c.batch
}
