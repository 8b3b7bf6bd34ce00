package kernels_test

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/kiln-project/kiln/codegen"
	"github.com/kiln-project/kiln/codegen/kernels"
	"github.com/kiln-project/kiln/ir"
	"github.com/kiln-project/kiln/ir/eval"
)

// composites has the cases of every composite op. Each is compiled for both
// hosts and compared with the evaluator, within the limits of the op table.
var composites = map[string]func(c *cases){
	"block_linear":       blockLinearCases,
	"compress":           compressCases,
	"compress_row":       compressRowCases,
	"entry_rows":         entryRowsCases,
	"expert":             expertCases,
	"fake_quant":         fakeQuantCases,
	"gate":               gateCases,
	"group_start":        groupStartCases,
	"grouped_linear":     groupedLinearCases,
	"hadamard":           hadamardCases,
	"hash_gate":          hashGateCases,
	"hc_head":            hcHeadCases,
	"hc_post":            hcPostCases,
	"hc_pre":             hcPreCases,
	"hc_split":           hcSplitCases,
	"head_rms_norm":      headRMSNormCases,
	"history_rows":       historyRowsCases,
	"indexer_scores":     indexerScoresCases,
	"linear":             linearCases,
	"linear_argmax":      linearArgmaxCases,
	"linear2":            joinedLinearCases,
	"linear3":            joinedLinearCases,
	"linear4":            joinedLinearCases,
	"moe_experts":        moeCases,
	"moe_experts_add":    moeAddCases,
	"rms_norm":           rmsNormCases,
	"rms_norm_and_quant": normQuantCases,
	"rms_norm_quant":     normQuantCases,
	"rope":               ropeCases,
	"sparse_attention":   attentionCases,
	"split_linear":       splitLinearCases,
	"swiglu":             swigluCases,
	"topk_rows":          topkRowsCases,
	"hc_fused":           hcFusedCases,
	"hc_fused_quant":     hcFusedQuantCases,
	"rope_row":           ropeRowCases,
	"rms_norm_rope":      ropeRowCases,
	"head_rms_norm_rope": ropeRowCases,
}

// compositeSeed gives operands whose sums cancel no further than f32 can take. Of
// random ones about one in 10^5 ends a thousand times below its terms; no kernel
// that sums in f32, or rounds between two products as an expert does, then stays
// within a bf16 ulp.
const compositeSeed = 1

// TestComposites: a form, or what its op decomposes into, gives what the
// evaluator gives.
func TestComposites(t *testing.T) {
	for _, d := range ir.Ops() {
		fill := composites[d.Name]
		if fill == nil {
			continue
		}
		t.Run(d.Name, func(t *testing.T) {
			c := &cases{batch: newBatch(t), r: rand.New(rand.NewPCG(compositeSeed, 11)), def: d}
			fill(c)
			c.run(bothHosts...)
		})
	}
}

// TestEveryCompositeHasCases: a composite that joins the op table is tested, or
// says why it has no code.
func TestEveryCompositeHasCases(t *testing.T) {
	known := map[string]bool{}
	for _, d := range ir.Ops() {
		if d.Primitive() {
			continue
		}
		known[d.Name] = true
		// What makes a table is evaluated once, when weights are bound: no target has
		// code for it.
		if has := composites[d.Name] != nil; has == d.Table {
			t.Errorf("composite %s: makes a table: %v, has cases: %v", d.Name, d.Table, has)
		}
	}
	for name := range composites {
		if !known[name] {
			t.Errorf("%s has cases and is no composite", name)
		}
	}
}

// cases collects the cases of one op.
type cases struct {
	*batch
	r   *rand.Rand
	def *ir.OpDef

	positive bool // floats and codes lose their signs: sums do not cancel
	recoded  bool // 8-bit weights become e4m3fnuz
	every    int  // if not 0: only every so manieth case
	most     int  // if not 0: only cases with operands of so many elements
	seen     int
	counts   []int // if not nil: row counts of matrixCases
	recodes  map[*eval.Tensor]*eval.Tensor
	packs    map[*eval.Tensor]*eval.Tensor
}

// op adds an op, unless its turn has not come.
func (c *cases) op(op string, attrs ir.Attrs, l limit, args ...*eval.Tensor) {
	c.t.Helper()
	c.seen++
	if c.every > 0 && c.seen%c.every != 0 {
		return
	}
	size, own := 0, slices.Clone(args)
	for i, a := range args {
		size += a.Len()
		if c.positive {
			own[i] = positive(a)
		}
		if c.recoded && a.DType == ir.F8E4M3 {
			own[i] = c.recode(own[i])
		}
	}
	if c.most > 0 && size > c.most {
		return
	}
	c.batch.op(op, attrs, l, own...)
}

// positive is x without signs.
func positive(x *eval.Tensor) *eval.Tensor {
	y := x.Clone()
	for i, v := range y.F {
		y.F[i] = float32(math.Abs(float64(v)))
	}
	for i := range y.Codes {
		y.Codes[i] &= map[ir.DType]byte{ir.F8E4M3: 0x7f, ir.F4E2M1: 0x07}[x.DType]
	}
	return y
}

// recode is recode_fnuz of a weight, once for all cases that have it.
func (c *cases) recode(w *eval.Tensor) *eval.Tensor {
	if c.recodes == nil {
		c.recodes = map[*eval.Tensor]*eval.Tensor{}
	}
	if c.recodes[w] == nil {
		c.recodes[w] = recode(c.t, w)
	}
	return c.recodes[w]
}

// add adds a case, held to the op table's limits.
func (c *cases) add(attrs ir.Attrs, args ...*eval.Tensor) {
	c.t.Helper()
	before := len(c.what)
	c.op(c.def.Name, attrs, exact, args...)
	if c.def.Rest != nil && len(c.what) > before {
		c.rest = append(c.rest, rest{c.def, attrs, args, before})
	}
	for i := range c.limit[before:] {
		c.limit[before+i] = fromTable(c.t, c.def.LimitOf(i), c.value[before+i].Op)
	}
}

// fromTable is how a limit of the op table is checked for results of an op. A choice must be the
// evaluator's own, which is more than valid: the scores of random operands are
// never so close that rounding decides, and ties have one answer.
func fromTable(t testing.TB, l ir.Limit, o *ir.Op) limit {
	t.Helper()
	switch l.Kind {
	case ir.Exact, ir.ByChoice:
		return exact
	case ir.AbsF32:
		return limit{abs: l.Bound}
	case ir.OneMinCos:
		return limit{cos: l.Bound}
	case ir.BF16ULP:
		return limit{ulps: float64(max(1, l.Ulps)), share: 1 - l.Bound, abs: l.Abs, bf16: true}
	case ir.OneCode:
		return limit{block: l.Block(o), share: 1 - l.Bound}
	}
	t.Fatalf("no check of the limit %q", l)
	return limit{}
}

// around lists row counts: 1, 3, those about a tile's height, and any.
func (c *cases) around(tile int) []int {
	list := []int{1, 3, tile - 1, tile, tile + 1, 2*tile + 1, 1 + c.r.IntN(3*tile)}
	slices.Sort(list)
	return slices.DeleteFunc(slices.Compact(list), func(n int) bool { return n < 1 })
}

func (c *cases) bf16(scale float64, shape ...int) *eval.Tensor {
	return gauss(c.t, c.r, ir.BF16, scale, shape...)
}

func (c *cases) f32(scale float64, shape ...int) *eval.Tensor {
	return gauss(c.t, c.r, ir.F32, scale, shape...)
}

// w8 and w4 are weights as checkpoints hold them.
func (c *cases) w8(shape ...int) *eval.Tensor {
	return finiteWeight(c.t, c.r, ir.F8E4M3, 128, 128, shape...)
}

func (c *cases) w4(shape ...int) *eval.Tensor {
	return finiteWeight(c.t, c.r, ir.F4E2M1, 1, 32, shape...)
}

// rows makes row indices below n, some of them -1.
func (c *cases) rows(n int, shape ...int) *eval.Tensor {
	return rowsIn(c.t, c.r, n, shape...)
}

// bad are the numbers that spoil a row.
var bad = []float32{float32(math.NaN()), float32(math.Inf(1)), float32(math.Inf(-1))}

// spoiled is a copy of x with a bad number in the first rows but one, each at
// another place, and the rest as it was: what is bad must not leave its row.
func (c *cases) spoiled(x *eval.Tensor, rows int) *eval.Tensor {
	y := x.Clone()
	width := len(y.F) / rows
	for i := 0; i < min(rows-1, len(bad)); i++ {
		y.F[i*width+c.r.IntN(width)] = bad[i]
	}
	return y
}

// without is a copy of indices whose first row has none.
func without(x *eval.Tensor) *eval.Tensor {
	y := x.Clone()
	for i := range len(y.I) / intExtent(x, 0) {
		y.I[i] = -1
	}
	return y
}

// none is a copy of indices that are all -1.
func none(x *eval.Tensor) *eval.Tensor {
	y := x.Clone()
	for i := range y.I {
		y.I[i] = -1
	}
	return y
}

func intExtent(x *eval.Tensor, axis int) int {
	n, _ := x.Type().Dims[axis].Const()
	return n
}

// gauss makes normally distributed numbers.
func gauss(t testing.TB, r *rand.Rand, dt ir.DType, scale float64, shape ...int) *eval.Tensor {
	t.Helper()
	x := blank(t, ir.T(dt, intDims(shape)...))
	v := make([]float32, len(x.F))
	for i := range v {
		v[i] = float32(r.NormFloat64() * scale)
	}
	return floatsOf(t, dt, v, shape...)
}

// rowsIn makes row indices below n, some of them -1.
func rowsIn(t testing.TB, r *rand.Rand, n int, shape ...int) *eval.Tensor {
	t.Helper()
	x := blank(t, ir.T(ir.I32, intDims(shape)...))
	for i := range x.I {
		x.I[i] = int64(r.IntN(n+1) - 1)
	}
	return x
}

func i32s(t testing.TB, v ...int64) *eval.Tensor {
	t.Helper()
	return intsOf(t, ir.I32, v, len(v))
}

// finiteWeight is a block-scaled weight without NaN codes, as checkpoints hold.
func finiteWeight(t testing.TB, r *rand.Rand, dt ir.DType, b0, b1 int, shape ...int) *eval.Tensor {
	t.Helper()
	w := randomScaled(t, r, ordinary, dt, b0, b1, shape...)
	for i, c := range w.Codes {
		if dt == ir.F8E4M3 && c&0x7F == 0x7F {
			w.Codes[i] = 0
		}
	}
	for i := range w.Scales {
		w.Scales[i] = byte(115 + r.IntN(6))
	}
	return w
}

// TestEveryCompositeHasAForm: a DSV4 op that decomposes where a kernel was
// expected would be silently slow.
func TestEveryCompositeHasAForm(t *testing.T) {
	decomposed := []string{
		"freqs_cis",   // a table: packed
		"group_start", // three small launches once per layer
		"hc_split",    // inside hc_pre
	}
	for _, d := range ir.Ops() {
		if d.Primitive() || slices.Contains(decomposed, d.Name) {
			continue
		}
		if len(kernels.For(d.Name)) == 0 {
			t.Errorf("composite %s has no kernel form", d.Name)
		}
	}
	for _, name := range decomposed {
		if len(kernels.For(name)) > 0 {
			t.Errorf("%s has a form now: take it off the list", name)
		}
	}
}

// TestDisabledForms: with a form disabled the op is decomposed, and the results
// stay within its limit.
func TestDisabledForms(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 9))
	c := newBatch(t)
	c.op("rms_norm", ir.A("eps", 1e-6), exact, gauss(t, r, ir.BF16, 1, 3, 40), gauss(t, r, ir.BF16, 1, 40))
	u := codegen.NewUnit(mustTarget(t, "x86-64-v3"))
	u.Disable["rms_norm"] = true
	g := c.graph()
	p, err := u.Lower(g)
	if err != nil {
		t.Fatal(err)
	}
	if len(p.Launches) < 5 {
		t.Errorf("%d launches: rms_norm was not decomposed", len(p.Launches))
	}
	for _, l := range p.Launches {
		if u.Module.Kernels[l.Kernel].Form == "rms_norm" {
			t.Error("the disabled form was chosen")
		}
	}
}
