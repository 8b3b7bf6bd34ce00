package kernels_test

import (
	"fmt"
	"math"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/kiln-project/kiln/codegen"
	"github.com/kiln-project/kiln/codegen/llvm"
	"github.com/kiln-project/kiln/ir"
)

// matrixOps builds graphs that are compiled only.
type matrixOps struct {
	*ir.Builder
	t     *testing.T
	chip  string
	codes ir.DType // of 8-bit weights
	n     int
}

func newMatrixOps(t *testing.T, chip string) *matrixOps {
	m := &matrixOps{Builder: ir.NewBuilder("g"), t: t, chip: chip, codes: ir.F8E4M3}
	if mustTarget(t, chip).FNUZ {
		m.codes = ir.F8E4M3FNUZ
	}
	return m
}

func (m *matrixOps) of(t ir.Type) *ir.Value {
	m.n++
	return m.Input(fmt.Sprintf("x%d", m.n), t)
}

func (m *matrixOps) in(dt ir.DType, shape ...int) *ir.Value { return m.of(ir.T(dt, intDims(shape)...)) }

func (m *matrixOps) scaled(dt ir.DType, b0, b1 int, shape ...int) *ir.Value {
	t := ir.T(dt, intDims(shape)...)
	t.Quant = &ir.Quant{Block: [2]int{b0, b1}, Scale: ir.E8M0}
	return m.of(t)
}

func (m *matrixOps) w8(shape ...int) *ir.Value { return m.scaled(m.codes, 128, 128, shape...) }
func (m *matrixOps) w4(shape ...int) *ir.Value { return m.scaled(ir.F4E2M1, 1, 32, shape...) }

// add adds an op; its results are outputs.
func (m *matrixOps) add(op string, attrs ir.Attrs, args ...*ir.Value) {
	for _, r := range m.Op(op, attrs, args...) {
		m.n++
		m.Output(fmt.Sprintf("y%d", m.n), r)
	}
}

// experts adds the expert ops for t tokens, with weights of one kind.
func (m *matrixOps) experts(t, d, inner, act int, w func(...int) *ir.Value) {
	const e, k = 64, 6
	attrs := ir.A("limit", 10.0, "act_block", act)
	x, ids, weights := m.in(ir.BF16, t, d), m.in(ir.I32, t, k), m.in(ir.F32, t, k)
	m.add("expert", attrs, x, w(inner, d), w(inner, d), w(d, inner), m.in(ir.F32, t, 1))
	w1, w3, w2 := w(e, inner, d), w(e, inner, d), w(e, d, inner)
	m.add("moe_experts", attrs, x, w1, w3, w2, ids, weights)
	m.add("moe_experts_add", attrs, x, w1, w3, w2, ids, weights, x)
}

func (m *matrixOps) unit() *codegen.Unit {
	m.t.Helper()
	g, err := m.Finish()
	if err != nil {
		m.t.Fatal(err)
	}
	u := codegen.NewUnit(mustTarget(m.t, m.chip))
	if _, err := u.Lower(g); err != nil {
		m.t.Fatal(err)
	}
	return u
}

// step adds every op with a matrix form, for t rows of x.
func (m *matrixOps) step(t int) {
	m.add("linear", nil, m.in(ir.BF16, t, 512), m.in(ir.BF16, 72, 512))
	m.add("linear", ir.A("to", ir.F32), m.in(ir.BF16, t, 136), m.in(ir.BF16, 33, 136)) // ragged N and K
	m.add("linear2", ir.A("sizes", []int{40, 32}), m.in(ir.BF16, t, 512), m.in(ir.BF16, 72, 512))
	m.add("linear3", ir.A("sizes", []int{1, 2, 30}), m.in(ir.BF16, t, 512), m.in(ir.BF16, 33, 512))
	m.add("linear4", ir.A("sizes", []int{64, 64, 8, 8}), m.in(ir.BF16, t, 4096), m.in(ir.BF16, 144, 4096))
	m.add("grouped_linear", nil, m.in(ir.BF16, t, 8, 4096), m.in(ir.BF16, 8, 1024, 4096))
	for _, act := range []int{0, 64, 128} {
		attrs := ir.A("act_block", act)
		m.add("block_linear", attrs, m.in(ir.BF16, t, 1152), m.w8(200, 1152))
		m.add("block_linear", attrs, m.in(ir.BF16, t, 1152), m.w4(200, 1152))
		m.add("split_linear", append(attrs, ir.A("sizes", []int{192, 64})...), m.in(ir.BF16, t, 7168), m.w8(256, 7168))
	}
	m.experts(t, 256, 512, 128, m.w8)
	m.experts(t, 512, 256, 0, m.w4)
}

// models adds the ops of the models that are no products with weights, for t tokens.
func (m *matrixOps) models(t int) {
	for _, s := range []struct{ d, heads, chosen int }{{4096, 64, 512}, {7168, 128, 1024}} { // Flash and Pro
		m.hc(t, s.d)
		m.attention(t, s.heads, s.chosen)
		m.add("gate", ir.A("k", 6, "scale", 1.5), m.in(ir.BF16, t, s.d), m.in(ir.BF16, 256, s.d), m.in(ir.F32, 256))
		m.add("hash_gate", ir.A("k", 6, "scale", 1.5), m.in(ir.BF16, t, s.d), m.in(ir.BF16, 256, s.d), m.in(ir.I64, 1000, 6), m.in(ir.I32, t))
	}
}

// hc adds the hyper-connections for t tokens.
func (m *matrixOps) hc(t, d int) {
	next := []*ir.Value{m.in(ir.F32, 24, 4*d), m.in(ir.F32, 3), m.in(ir.F32, 24)}
	m.add("hc_pre", hcAttrs, slices.Concat([]*ir.Value{m.in(ir.BF16, t, 4, d)}, next)...)
	args := slices.Concat([]*ir.Value{m.in(ir.BF16, t, d), m.in(ir.BF16, t, 4, d), m.in(ir.F32, t, 4), m.in(ir.F32, t, 4, 4)}, next, []*ir.Value{m.in(ir.BF16, d)})
	m.add("hc_fused", hcFusedAttrs, args...)
	m.add("hc_fused_quant", append(ir.A("act_block", 128), hcFusedAttrs...), args...)
}

// attention adds what chooses entries and attends to them, for t tokens.
func (m *matrixOps) attention(t, heads, chosen int) {
	m.add("indexer_scores", nil, m.in(ir.BF16, t, 64, 128), m.in(ir.BF16, t, 64), m.in(ir.BF16, 5000, 128), m.in(ir.I32, t, 4096))
	window, own, entries := m.in(ir.BF16, 5000, 512), m.in(ir.BF16, t, 512), m.in(ir.BF16, 5000, 512)
	q, sink, old, new := m.in(ir.BF16, t, heads, 512), m.in(ir.F32, heads), m.in(ir.I32, t, 128), m.in(ir.I32, t, 128)
	attrs := ir.A("scale", math.Pow(512, -0.5))
	m.add("sparse_attention", attrs, q, sink, window, old, own, new)
	m.add("sparse_attention", attrs, q, sink, window, old, own, new, entries, m.in(ir.I32, t, chosen))
}

var asmFunction = regexp.MustCompile(`(?ms)^(\w+):\s.*?^\.Lfunc_end`)

// The products of every op run on matrix units, for few rows and many, in code that
// spills nothing, keeps no accumulator in an AGPR and calls nothing.
func TestMatrixForms(t *testing.T) {
	for _, chip := range []string{"gfx942", "gfx950"} {
		for _, rows := range []int{3, 400} {
			m := newMatrixOps(t, chip)
			m.step(rows)
			m.models(rows)
			u := m.unit()
			for _, k := range u.Module.Kernels {
				if !strings.HasSuffix(k.Form, "_mfma") {
					t.Errorf("%s, %d rows: kernel of form %s", chip, rows, k.Form)
				}
			}
			asm, parts := compileMerged(t, u.Kernels, u.Target, llvm.Asm)
			products := 0
			for i := range asm {
				for _, problem := range gpuProblems(string(asm[i]), parts[i]) {
					t.Errorf("%s, %d rows: %s", chip, rows, problem)
				}
				for _, f := range asmFunction.FindAllStringSubmatch(string(asm[i]), -1) {
					if product := strings.HasPrefix(f[1], "matrix_"); product != strings.Contains(f[0], "v_mfma_") {
						t.Errorf("%s, %d rows: %s uses matrix units: %v", chip, rows, f[1], !product)
					} else if product {
						products++
					}
					if strings.Contains(f[0], "v_accvgpr") {
						t.Errorf("%s, %d rows: %s uses AGPRs", chip, rows, f[1])
					}
				}
			}
			if products < 15 {
				t.Errorf("%s, %d rows: %d kernels of products", chip, rows, products)
			}
		}
	}
}

// What matrix units do not take goes to the other forms, with the reason.
func TestMatrixRefuses(t *testing.T) {
	for _, tc := range []struct {
		chip, want string
		add        func(m *matrixOps)
	}{
		{"sm_90", "linear_mfma: no matrix instructions on sm_90", func(m *matrixOps) {
			m.add("linear", nil, m.in(ir.BF16, 3, 128), m.in(ir.BF16, 16, 128))
		}},
		{"x86-64-v3", "moe_experts_mfma: no matrix instructions on x86-64-v3", func(m *matrixOps) { m.experts(2, 128, 128, 0, m.w8) }},
		{"gfx942", "linear_mfma: weight is f32, matrix units take bf16", func(m *matrixOps) {
			m.add("linear", nil, m.in(ir.BF16, 3, 128), m.in(ir.F32, 16, 128))
		}},
		{"gfx942", "linear_mfma: x is f32, matrix units take bf16", func(m *matrixOps) {
			m.add("linear", nil, m.in(ir.F32, 3, 128), m.in(ir.BF16, 16, 128))
		}},
		{"gfx950", "grouped_linear_mfma: rows of 12 elements are no multiple of 16 bytes", func(m *matrixOps) {
			m.add("grouped_linear", nil, m.in(ir.BF16, 3, 2, 12), m.in(ir.BF16, 2, 16, 12))
		}},
		{"gfx942", "block_linear_mfma: weight is f8e4m3, the 8-bit floats of gfx942 are f8e4m3fnuz", func(m *matrixOps) {
			m.add("block_linear", nil, m.in(ir.BF16, 3, 128), m.scaled(ir.F8E4M3, 128, 128, 16, 128))
		}},
		{"gfx950", "block_linear_mfma: K 64 is no multiple of 128", func(m *matrixOps) {
			m.add("block_linear", ir.A("act_block", 64), m.in(ir.BF16, 3, 64), m.scaled(ir.F4E2M1, 1, 32, 16, 64))
		}},
		{"gfx950", "block_linear_mfma: block [1 64] of f4e2m1 is not [1 32]", func(m *matrixOps) {
			m.add("block_linear", nil, m.in(ir.BF16, 3, 128), m.scaled(ir.F4E2M1, 1, 64, 16, 128))
		}},
		{"gfx950", "split_linear_mfma: block [128 64] of f8e4m3 does not hold whole tiles of [16 128]", func(m *matrixOps) {
			m.add("split_linear", ir.A("sizes", []int{8, 8}), m.in(ir.BF16, 3, 128), m.scaled(ir.F8E4M3, 128, 64, 16, 128))
		}},
		{"sm_90", "sparse_attention_mfma: no matrix instructions on sm_90", func(m *matrixOps) { m.attention(3, 64, 512) }},
		{"sm_90", "indexer_scores_mfma: no matrix instructions on sm_90", func(m *matrixOps) { m.attention(3, 64, 512) }},
		{"sm_90", "hc_pre_mfma: no matrix instructions on sm_90", func(m *matrixOps) { m.hc(3, 256) }},
		{"gfx950", "hc_fused_mfma: 200 elements are no multiple of 128", func(m *matrixOps) {
			h := m.in(ir.BF16, 3, 4, 200)
			m.add("hc_fused", hcFusedAttrs, m.in(ir.BF16, 3, 200), h, m.in(ir.F32, 3, 4), m.in(ir.F32, 3, 4, 4), m.in(ir.F32, 24, 800), m.in(ir.F32, 3), m.in(ir.F32, 24), m.in(ir.BF16, 200))
		}},
		{"gfx942", "hc_pre_mfma: 5 streams, at most 4 are taken", func(m *matrixOps) {
			m.add("hc_pre", hcAttrs, m.in(ir.BF16, 3, 5, 128), m.in(ir.F32, 35, 640), m.in(ir.F32, 3), m.in(ir.F32, 35))
		}},
		{"gfx942", "sparse_attention_mfma: heads of 64 elements, want 128, 256 or 512", func(m *matrixOps) {
			m.add("sparse_attention", ir.A("scale", 0.125), m.in(ir.BF16, 3, 4, 64), m.in(ir.F32, 4), m.in(ir.BF16, 9, 64), m.in(ir.I32, 3, 5))
		}},
		{"gfx942", "indexer_scores_mfma: heads of 40 elements are no multiple of 32", func(m *matrixOps) {
			m.add("indexer_scores", nil, m.in(ir.BF16, 3, 4, 40), m.in(ir.BF16, 3, 4), m.in(ir.BF16, 9, 40), m.in(ir.I32, 3, 5))
		}},
		{"gfx942", "indexer_scores_mfma: 128 heads of 128 elements take 128 registers, more than 64", func(m *matrixOps) {
			m.add("indexer_scores", nil, m.in(ir.BF16, 3, 128, 128), m.in(ir.BF16, 3, 128), m.in(ir.BF16, 9, 128), m.in(ir.I32, 3, 5))
		}},
		{"gfx950", "have different formats", func(m *matrixOps) {
			m.add("expert", ir.A("limit", 0.0), m.in(ir.BF16, 3, 128), m.scaled(ir.F4E2M1, 1, 32, 128, 128), m.scaled(ir.F8E4M3, 1, 32, 128, 128), m.w8(128, 128), m.in(ir.F32, 3, 1))
		}},
	} {
		m := newMatrixOps(t, tc.chip)
		tc.add(m)
		var got []string
		for _, k := range m.unit().Module.Kernels {
			for _, r := range k.Rejected {
				got = append(got, r.Form+": "+r.Reason)
			}
		}
		if !strings.Contains(strings.Join(got, "\n"), tc.want) {
			t.Errorf("%s: rejected for %q, want %q", tc.chip, got, tc.want)
		}
	}
}

// Buckets share kernels: of one product there is code for few rows, for the rows of
// a step, and for more; of attention for fewer tokens than the threshold and for more.
func TestMatrixRowsAreNotInTheCode(t *testing.T) {
	for _, tc := range []struct {
		add  func(m *matrixOps, rows int)
		same [][]int
	}{
		{(*matrixOps).step, [][]int{{1, 2, 16}, {17, 64, 128}, {129, 340}}},
		{func(m *matrixOps, rows int) { m.attention(rows, 64, 512); m.hc(rows, 4096) }, [][]int{{1, 2, 15}, {16, 17, 340}}},
	} {
		symbols := func(rows int) string {
			m := newMatrixOps(t, "gfx942")
			tc.add(m, rows)
			var list []string
			for _, k := range m.unit().Kernels {
				list = append(list, k.Symbol)
			}
			return strings.Join(list, "\n")
		}
		for i, same := range tc.same {
			want := symbols(same[0])
			for _, rows := range same[1:] {
				if symbols(rows) != want {
					t.Errorf("the kernels for %d rows are not those for %d", rows, same[0])
				}
			}
			if i > 0 && symbols(tc.same[i-1][0]) == want {
				t.Error("there is one kernel for all rows: the test shows nothing")
			}
		}
	}
}
