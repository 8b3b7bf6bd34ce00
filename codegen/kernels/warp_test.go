package kernels_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/kiln-project/kiln/codegen/kernels"
	"github.com/kiln-project/kiln/codegen/llvm"
	"github.com/kiln-project/kiln/codegen/object"
	"github.com/kiln-project/kiln/ir"
	"github.com/kiln-project/kiln/ir/eval"
	"github.com/kiln-project/kiln/passes"
)

// warpOps are the ops with forms for NVIDIA's matrix units.
var warpOps = []string{
	"linear", "linear2", "linear3", "linear4", "grouped_linear", "block_linear", "split_linear", "expert", "moe_experts", "moe_experts_add", "gate", "hash_gate",
	"hc_pre", "hc_fused", "hc_fused_quant", "sparse_attention", "indexer_scores", "linear_argmax",
}

// warpTiles are row counts with all sizes of tiles.
var warpTiles = []int{8, 16, 17, 40}

// TestWarps runs forms for NVIDIA's matrix units, as LLVM gets them, on simulated
// warps: some of the cases of TestComposites, and those about the tiles of matrix units.
func TestWarps(t *testing.T) {
	ran := 0
	for _, op := range warpOps {
		def, err := ir.Lookup(op)
		if err != nil {
			t.Fatal(err)
		}
		for _, v := range []struct {
			what string
			fill func(c *cases)
		}{{"", composites[op]}, {"tiles", matrixCases}} {
			if v.what == "tiles" && !tiled[op] {
				continue
			}
			t.Run(strings.TrimSpace(op+" "+v.what), func(t *testing.T) {
				ran++
				c := &cases{batch: newBatch(t), r: rand.New(rand.NewPCG(compositeSeed, 11)), def: def, positive: v.what == "tiles"}
				if onGPU == nil && !long { // simulated warps are slow
					c.every, c.counts = 2*max(1, emulatedEvery[op]), warpTiles
					if v.what == "tiles" {
						c.every = 4
					}
				}
				v.fill(c)
				c.takeLiberty(op + "_mma")
				c.run("sm_90")
			})
		}
	}
	if ran < len(warpOps) { // -run chose
		return
	}
	for _, op := range kernels.Ops() {
		for _, f := range kernels.For(op) {
			if strings.HasSuffix(f.Name, "_mma") && !warpForms[f.Name] {
				t.Errorf("form %s of %s did not run", f.Name, op)
			}
		}
	}
}

// TestMatrixFormsWarps is TestMatrixFormsEmulated for NVIDIA's matrix units.
func TestMatrixFormsWarps(t *testing.T) {
	for _, m := range matrixFormCases {
		chips := []string{"sm_90"}
		if warpgroups[m.op] {
			chips = append(chips, "sm_90a")
		}
		for _, chip := range chips {
			t.Run(strings.TrimPrefix(chip+"/", "sm_90/")+m.op, func(t *testing.T) {
				def, err := ir.Lookup(m.op)
				if err != nil {
					t.Fatal(err)
				}
				c := &cases{batch: newBatch(t), r: rand.New(rand.NewPCG(compositeSeed, 11)), def: def}
				m.fill(c)
				if m.op == "sparse_attention" {
					manyHeads(c)
				}
				form := m.op + "_mma"
				c.takeLiberty(form)
				c.runEmulated(chip, form, slices.Concat(m.set, warpSets[m.op]))
			})
		}
	}
}

// manyHeads has more heads than a group of four warps has.
func manyHeads(c *cases) {
	const t, h, d, n = 2, 72, 128, 150
	q, sink, kv := c.bf16(1, t, h, d), c.f32(1, h), c.bf16(1, 90, d)
	attrs := ir.A("scale", math.Pow(d, -0.5))
	c.add(attrs, q, sink, kv, c.rows(90, t, n))
	c.add(attrs, q, sink, kv, without(c.rows(90, t, n)), c.bf16(1, 5, d), c.rows(5, t, 3))
}

// warpSets are settings that change what only NVIDIA's GPUs run.
var warpSets = map[string][]map[string]int{"sparse_attention": {
	{passes.SliceParts: 0, passes.NoSliceTokens: 1 << 30}, {passes.SliceParts: 0, passes.NoSliceTokens: 1 << 30, passes.AttentionGroups: 1},
	{passes.NoSliceTokens: 0, passes.NoSplitTokens: 1 << 30, passes.AttentionGroups: 1},
}}

// warpgroups are the ops with code of its own where warps multiply together.
var warpgroups = map[string]bool{"sparse_attention": true}

// warpRows are row counts about all tiles of NVIDIA's matrix units.
var warpRows = []int{1, 2, 3, 7, 8, 15, 16, 17, 63, 64, 65, 255, 256, 1000}

// TestWarpRows runs products of as many rows, and with K of the models, on a GPU: it is
// too much for simulated warps, which take the counts that cross a tile of few rows.
func TestWarpRows(t *testing.T) {
	for _, op := range warpOps {
		def, err := ir.Lookup(op)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range warpRows {
			if onGPU == nil && (m != 2 && m != 8 || !long) {
				continue
			}
			t.Run(fmt.Sprintf("%s/%d", op, m), func(t *testing.T) {
				c := &cases{batch: newBatch(t), r: rand.New(rand.NewPCG(compositeSeed, uint64(m))), def: def, positive: tiled[op], counts: []int{m}}
				matrixCases(c)
				c.wide(m)
				if len(c.what) == 0 {
					t.Skip("no case of so many rows")
				}
				c.takeLiberty(op + "_mma")
				for i := range c.limit {
					if steps[op] != 0 {
						c.limit[i] = limit{cos: steps[op]}
					}
				}
				c.run("sm_90")
			})
		}
	}
}

// steps are ops that round between their sums, with limits of 1 - cosine: of as many
// results as TestWarpRows has, some come of a number that was rounded the other way.
// TestWarps holds them to the op table's limits.
var steps = map[string]float64{"expert": 1e-5, "moe_experts": 1e-5, "moe_experts_add": 1e-5, "hc_fused_quant": 1e-5, "indexer_scores": 1e-5}

// wide has cases of m rows with the K, heads and streams of the models.
func (c *cases) wide(m int) {
	const n = 40
	for _, k := range []int{4096, 7168} {
		switch c.def.Name {
		case "linear":
			c.add(ir.A("to", ir.BF16), c.bf16(1, m, k), c.bf16(1, n, k))
		case "block_linear":
			x := c.bf16(1, m, k)
			c.add(ir.A("act_block", 128), x, c.w8(n, k))
			c.add(ir.A("act_block", 128), x, c.w4(n, k))
		case "hc_pre", "hc_fused", "hc_fused_quant":
			if m <= 65 {
				c.hcTokens(4, k, m)
			}
		}
	}
	switch c.def.Name {
	case "hc_pre", "hc_fused", "hc_fused_quant":
		if m > 65 {
			c.hcTokens(4, 256, m)
		}
	case "sparse_attention":
		heads, keys := 64, 640
		switch {
		case m == 64: // as many heads to a group as there are
			keys = 130
		case m > 8:
			heads, keys = 16, 130
		}
		if m <= 256 {
			kv, own := c.bf16(1, 2000, 512), c.bf16(1, 50, 512)
			q, sink := c.bf16(1, m, heads, 512), c.f32(1, heads)
			c.add(ir.A("scale", math.Pow(512, -0.5)), q, sink, kv, c.rows(2000, m, keys), own, without(c.rows(50, m, 9)))
		}
	case "indexer_scores":
		if m <= 256 {
			c.add(nil, c.bf16(1, m, 64, 128), c.bf16(1, m, 64), c.bf16(1, 900, 128), c.rows(900, m, 150))
		}
	}
}

// TestWarpRowsAlone: the bits of a row do not depend on the rows beside it.
func TestWarpRowsAlone(t *testing.T) {
	shapes := [][3]int{{65, 33, 1152}}
	if onGPU != nil { // with all tiles of many rows
		shapes = append(shapes, [3]int{300, 520, 4096}, [3]int{1000, 4096, 1024}, [3]int{513, 2100, 7168}, [3]int{512, 4096, 512})
	}
	chips := []string{"sm_90"}
	if onGPU != nil { // TestGemm has those of warps together, of which simulated ones are slow
		chips = append(chips, "sm_90a")
	}
	for _, chip := range chips {
		for _, s := range shapes {
			for _, name := range []string{"bf16", "w8", "w4"} {
				t.Run(fmt.Sprintf("%s/%s/%dx%dx%d", chip, name, s[0], s[1], s[2]), func(t *testing.T) { rowsAlone(t, chip, name, s[0], s[1], s[2]) })
			}
		}
	}
}

// rowsAlone compares some of the results of a product of rows x k and n x k with those of
// fewer rows.
func rowsAlone(t *testing.T, chip, name string, rows, n, k int) {
	c := &cases{batch: newBatch(t), r: rand.New(rand.NewPCG(7, 3))}
	x := c.bf16(1, rows, k)
	op, attrs, w := "block_linear", ir.A("act_block", 128), (*eval.Tensor)(nil)
	switch name {
	case "bf16":
		op, attrs, w = "linear", ir.A("to", ir.F32), c.bf16(1, n, k)
	case "w8":
		w = c.w8(n, k)
	case "w4":
		w = c.w4(n, k)
	}
	const first = 16
	few := x.Clone() // its first rows
	few.Shape, few.F = []int{first, k}, few.F[:first*k]
	c.batch.op(op, attrs, exact, x, w)
	c.batch.op(op, attrs, exact, few, w)
	c.batch.op(op, attrs, exact, row(t, x, rows-1), w)
	if recordOnly() {
		load(t, chip, c.graph())
		return
	}
	out := c.outputs(chip)
	for i := range first + 1 {
		at, got, of := i, "y1", i
		if i == first {
			at, got, of = rows-1, "y2", 0
		}
		if d := exact.compare(row(t, out["y0"], at), row(t, out[got], of)); d != "" {
			t.Errorf("row %d: %s", at, d)
		}
	}
}

// TestGemm runs the tiles of many rows where they would not be chosen: their bits are those
// of few rows, with fewer pieces of K than waves and with more for some of them, and all
// that products have beside is right: several of them, side by side or at once.
func TestGemm(t *testing.T) {
	for i := range kernels.GemmTiles() {
		chip := kernels.GemmTarget(i)
		use := func(name string, f func(t *testing.T)) {
			t.Run(fmt.Sprintf("%d/%s", i, name), func(t *testing.T) {
				defer kernels.UseGemm(i)()
				f(t)
			})
		}
		depths := []int{384, 1152}
		if onGPU != nil {
			depths = append(depths, 4096)
		}
		for _, k := range depths {
			for _, name := range []string{"bf16", "w8"} {
				use(fmt.Sprintf("%s/%d", name, k), func(t *testing.T) { rowsAlone(t, chip, name, 65, 130, k) })
			}
		}
		if onGPU != nil { // several blocks of tiles
			for _, name := range []string{"bf16", "w8"} {
				use(name+"/blocks", func(t *testing.T) { rowsAlone(t, chip, name, 4000, 300, 256) })
			}
		}
		for _, op := range []string{"linear", "linear3", "grouped_linear", "block_linear", "split_linear", "expert"} {
			def, err := ir.Lookup(op)
			if err != nil {
				t.Fatal(err)
			}
			use(op, func(t *testing.T) {
				c := &cases{batch: newBatch(t), r: rand.New(rand.NewPCG(compositeSeed, 5)), def: def}
				const m, k = 65, 256
				x := c.bf16(1, m, k)
				switch op {
				case "linear":
					c.add(ir.A("to", ir.BF16), c.spoiled(x, m), c.bf16(1, 150, k))
				case "linear3":
					c.add(ir.A("sizes", []int{17, 128, 15}, "to", ir.BF16), x, c.bf16(1, 160, k))
				case "grouped_linear":
					c.add(nil, c.bf16(1, m, 2, k), c.bf16(1, 2, 144, k))
				case "block_linear":
					c.add(ir.A("act_block", 128), c.spoiled(x, m), c.w8(200, k))
				case "split_linear":
					c.add(ir.A("sizes", []int{131, 5}, "act_block", 128), x, c.w8(136, k))
				case "expert":
					c.add(ir.A("limit", 10.0), x, c.w8(256, k), c.w8(256, k), c.w8(k, 256), c.f32(1, m, 1))
				}
				c.takeLiberty(op + "_mma")
				if steps[op] != 0 {
					c.limit[0] = limit{cos: steps[op]}
				}
				c.run(chip)
			})
		}
	}
}

// TestWarpHCAlone: the bits of a token's hyper-connections do not depend on the tokens
// beside it, which decide how groups of the first launch go through them: 8 of a piece,
// 32 or 64 of it, or 16 of two pieces after the other.
func TestWarpHCAlone(t *testing.T) {
	const streams, n = 4, 24
	const tokens = 257
	counts := []int{1, 100, 129, tokens}
	for _, test := range []struct {
		op string
		d  int
	}{{"hc_pre", 2048}, {"hc_fused", 2048}, {"hc_fused_quant", 2048}, {"hc_fused", 3072}} { // of 3072, sums that do not divide evenly among lanes
		op, d := test.op, test.d
		t.Run(fmt.Sprintf("%s/%d", op, d), func(t *testing.T) {
			def, err := ir.Lookup(op)
			if err != nil {
				t.Fatal(err)
			}
			c := &cases{batch: newBatch(t), r: rand.New(rand.NewPCG(7, 3))}
			shared := []*eval.Tensor{c.f32(1/math.Sqrt(float64(streams*d)), n, streams*d), c.f32(1, 3), c.f32(1, n)}
			own, attrs := []*eval.Tensor{c.bf16(1, tokens, streams, d)}, hcAttrs
			if op != "hc_pre" {
				shared, attrs = append(shared, c.bf16(1, d)), hcFusedAttrs
				own = []*eval.Tensor{c.bf16(1, tokens, d), own[0], c.f32(1, tokens, streams), c.f32(1, tokens, streams, streams)}
			}
			if op == "hc_fused_quant" {
				attrs = append(ir.A("act_block", 128), attrs...)
			}
			for _, count := range counts { // the last tokens of all
				var some []*eval.Tensor
				for _, x := range own {
					last := x.Clone()
					last.Shape[0], last.F = count, last.F[len(x.F)/tokens*(tokens-count):]
					some = append(some, last)
				}
				c.batch.op(op, attrs, exact, append(some, shared...)...)
			}
			if recordOnly() {
				load(t, "sm_90", c.graph())
				return
			}
			out := c.outputs("sm_90")
			result := func(i, r int) *eval.Tensor { return out[fmt.Sprintf("y%d", i*len(def.Results)+r)] }
			for r, name := range def.Results {
				whole := result(len(counts)-1, r)
				for i, count := range counts[:len(counts)-1] {
					for token := range count {
						if d := exact.compare(row(t, whole, tokens-count+token), row(t, result(i, r), token)); d != "" {
							t.Errorf("%s: token %d of %d: %s", name, token, count, d)
						}
					}
				}
			}
		})
	}
}

// Tiles of many rows are chosen for both formats of weights that they are for.
func TestGemmChosen(t *testing.T) {
	for op, rows := range map[string][]int{"linear": {512, 1000}, "block_linear": {512}} {
		for _, m := range rows {
			const n = 4096
			b := newMatrixOps(t, "sm_90")
			if op == "linear" {
				b.add(op, nil, b.in(ir.BF16, m, n), b.in(ir.BF16, n, n))
			} else {
				b.add(op, ir.A("act_block", 128), b.in(ir.BF16, m, n), b.w8(n, n))
			}
			list := b.unit().Module.Kernels
			if k := list[len(list)-1]; !strings.Contains(k.Spec, " gemm[") || k.Shared == 0 {
				t.Errorf("%s of %d rows: %s with %d bytes of shared memory", op, m, k.Spec, k.Shared)
			}
		}
	}
}

// The ops of the models have forms for matrix units, whose code is loaded as it is:
// nothing on a stack, nothing called, and no more shared memory than a launch has.
func TestWarpForms(t *testing.T) {
	for _, rows := range []int{3, 400} {
		m := newMatrixOps(t, "sm_90")
		m.step(rows)
		m.models(rows)
		u := m.unit()
		for _, k := range u.Module.Kernels {
			if !strings.HasSuffix(k.Form, "_mma") {
				t.Errorf("%d rows: kernel of form %s", rows, k.Form)
			}
		}
		texts, _ := compileMerged(t, u.Kernels, u.Target, llvm.Asm)
		products := 0
		for _, text := range texts {
			p, err := object.ReadPTX(text)
			if err != nil {
				t.Fatal(err)
			}
			for _, part := range strings.Split(string(text), "\n.visible ")[1:] {
				name := ptxEntry.FindStringSubmatch("\n.visible " + part)[1]
				if uses := strings.Contains(part, "mma.sync"); uses != strings.HasPrefix(name, "matrix_") {
					t.Errorf("%d rows: %s uses matrix units: %v", rows, name, uses)
				} else if uses {
					products++
				}
				if e, err := p.Entry(name); err != nil || e.Shared > 48<<10 {
					t.Errorf("%d rows: %s: %d bytes of shared memory (%v)", rows, name, e.Shared, err)
				}
				for _, line := range ptxCall.FindAllString(part, -1) {
					t.Errorf("%d rows: %s: %s", rows, name, line)
				}
			}
		}
		if products < 15 {
			t.Errorf("%d rows: %d kernels of products", rows, products)
		}
	}
}
