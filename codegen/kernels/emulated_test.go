package kernels_test

import (
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/kiln-project/kiln/codegen/kernels"
	"github.com/kiln-project/kiln/ir"
	"github.com/kiln-project/kiln/runtime/emu"
)

// emulatedEvery takes every so manieth case of an op whose cases take long to emulate;
// of the others, each. The long tests take all.
var emulatedEvery = map[string]int{
	"indexer_scores": 23, "sparse_attention": 17, "hc_fused": 13, "hc_pre": 2, "moe_experts": 23, "moe_experts_add": 13, "linear_argmax": 7, "topk_rows": 5,
	"compress": 5, "compress_row": 9, "hc_split": 5, "linear4": 9, "linear3": 9, "split_linear": 13, "rope_row": 9, "rms_norm_rope": 9, "head_rms_norm_rope": 9,
	"block_linear": 9, "rms_norm_and_quant": 5, "rms_norm_quant": 7, "hc_fused_quant": 3, "expert": 13, "fake_quant": 3, "hc_head": 5, "gate": 3,
	"hash_gate": 5, "linear": 7, "linear2": 9, "grouped_linear": 5, "swiglu": 5, "rope": 7, "hadamard": 2, "history_rows": 5, "entry_rows": 2,
	"head_rms_norm": 3, "rms_norm": 2, "hc_post": 2,
}

// emulatedMost is the number of elements of a case's operands above which only the
// long tests emulate it, where that matters.
var emulatedMost = map[string]int{"topk_rows": 10000}

// notOnGPU are forms that match nothing on a GPU, with the reason.
var notOnGPU = map[string]string{}

// TestEmulated runs every form on emulated chips, under every sanitizer: primitives
// in random graphs, composites with the cases of TestComposites. Products with 8-bit
// weights run as passes leave them, recoded on a chip with e4m3fnuz, and as they are;
// those with a form for matrix units also run without it. All forms must have run, and
// kernels of all kinds that Flash has.
func TestEmulated(t *testing.T) {
	ran := 0
	t.Run("primitives", func(t *testing.T) {
		ran++
		randomGraphs(t, bothChips...)
		reshapedPool(t).run(bothChips...)
		pooledEntries(t).run(bothChips...)
		vectors := newSampleCases(t) // rows that lie in vectors; others: TestSampleEmulated
		sampleCases(vectors, 2, 16)
		vectors.run(bothChips...)
	})
	want := 1
	for _, d := range ir.Ops() {
		fill := composites[d.Name]
		if fill == nil {
			continue
		}
		want++
		t.Run(d.Name, func(t *testing.T) {
			ran++
			emulateComposite(t, d, fill)
		})
	}
	if ran < want {
		t.Logf("%d of %d parts ran: which forms did is not checked", ran, want)
		return
	}
	for _, chip := range emu.Chips {
		kinds, n := flashKinds(t, chip)
		t.Logf("%s: %d kernels of Flash are of %d kinds", chip, n, len(kinds))
		for kind := range kinds {
			if !emulatedKinds[kind] {
				t.Errorf("no kernel ran that is as Flash's %+v", kind)
			}
		}
		for _, op := range kernels.Ops() {
			for _, f := range kernels.For(op) {
				if strings.HasPrefix(f.Name, "test_") { // of TestRegister
					continue
				}
				why := notOnGPU[f.Name]
				if strings.HasSuffix(f.Name, "_mma") {
					why = "NVIDIA's matrix units: TestWarps"
				}
				if has := emulatedForms[formOn{f.Name, chip}]; has == (why != "") {
					t.Errorf("%s: form %s of %s ran: %v; %s", chip, f.Name, op, has, why)
				}
			}
		}
	}
}

// reshapedPool has the one use of reshape's form: what a pool held before the step
// that updates it.
func reshapedPool(t *testing.T) *batch {
	c, r := newBatch(t), rand.New(rand.NewPCG(1, 1))
	c.states["s"] = random(t, r, patterns, ir.BF16, 5, 7)
	s := c.b.State("s", c.states["s"].Type())
	c.output("reshape", exact, c.b.Op1("reshape", ir.A("shape", intDims([]int{7, 5})), s))
	rows, x := c.input(intsOf(t, ir.I32, []int64{3, -1}, 2)), c.input(random(t, r, patterns, ir.BF16, 2, 7))
	c.b.Update(s, c.b.Op1("scatter_rows", nil, s, rows, x))
	return c
}

// emulateComposite runs an op's cases on both chips.
func emulateComposite(t *testing.T, d *ir.OpDef, fill func(c *cases)) {
	matrix := ""
	for _, f := range kernels.For(d.Name) {
		if strings.HasSuffix(f.Name, "_mfma") {
			matrix = f.Name
		}
	}
	for _, name := range bothChips {
		fnuz := mustTarget(t, strings.TrimPrefix(name, "emu:")).FNUZ
		for _, v := range []struct {
			what    string
			wanted  bool
			fill    func(c *cases)
			every   int
			recoded bool
			disable string
		}{
			{"", true, fill, max(1, emulatedEvery[d.Name]), fnuz, ""},
			{"tiles", tiled[d.Name], matrixCases, 1, fnuz, ""},
			{"as in Flash", flashCases[d.Name] != nil, flashCases[d.Name], 1, fnuz, ""},
			{"weights as they are", matrix != "" && fnuz, fill, 3 * max(1, emulatedEvery[d.Name]), false, ""},
			{"without " + matrix, matrix != "", fill, 3 * max(1, emulatedEvery[d.Name]), fnuz, matrix},
			{"decomposed", d.Name == "hadamard", fill, 1, fnuz, d.Name}, // its matrix has a form
		} {
			if !v.wanted {
				continue
			}
			c := &cases{batch: newBatch(t), r: rand.New(rand.NewPCG(compositeSeed, 11)), def: d, recoded: v.recoded}
			c.positive = v.what == "tiles"
			if !long {
				c.every, c.most = v.every, emulatedMost[d.Name]
			}
			v.fill(c)
			if v.disable == "" {
				c.takeLiberty(matrix)
			}
			g := c.graph()
			want, _ := c.want(g)
			got := emulate(t, name, v.disable, c.batch, g)
			c.check(strings.TrimSpace(name+" "+v.what), want, got)
		}
	}
}
