package kernels_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/kiln-project/kiln/codegen/kernels"
	"github.com/kiln-project/kiln/ir"
	"github.com/kiln-project/kiln/ir/eval"
	"github.com/kiln-project/kiln/ir/num"
)

// onProcessors has products cut up for a GPU of so many processors until the test ends.
func onProcessors(t *testing.T, n int) {
	was := *kernels.Processors
	*kernels.Processors = n
	t.Cleanup(func() { *kernels.Processors = was })
}

// TestWarpStrips: on a GPU of one processor groups multiply several tiles, one after the
// other. That changes no bit, nor do the rows beside a row.
func TestWarpStrips(t *testing.T) {
	const n, e, choices = 72, 5, 3
	type product struct {
		name string
		add  func(c *cases, x *eval.Tensor, w []*eval.Tensor)
		w    func(c *cases, k int) []*eval.Tensor
	}
	linear := func(op string, attrs ir.Attrs, w func(c *cases, k int) *eval.Tensor) product {
		return product{fmt.Sprint(op, attrs), func(c *cases, x *eval.Tensor, ws []*eval.Tensor) { c.batch.op(op, attrs, exact, x, ws[0]) },
			func(c *cases, k int) []*eval.Tensor { return []*eval.Tensor{w(c, k)} }}
	}
	w8 := func(c *cases, k int) *eval.Tensor { return c.w8(n, k) }
	w4 := func(c *cases, k int) *eval.Tensor { return c.w4(n, k) }
	products := []product{
		linear("linear", ir.A("to", ir.F32), func(c *cases, k int) *eval.Tensor { return c.bf16(1, n, k) }),
		linear("block_linear", ir.A("act_block", 0), w8), linear("block_linear", ir.A("act_block", 128), w8),
		linear("block_linear", ir.A("act_block", 0), w4), linear("block_linear", ir.A("act_block", 128), w4),
		{"moe_experts", func(c *cases, x *eval.Tensor, w []*eval.Tensor) {
			rows := x.Shape[0]
			ids := blank(c.t, ir.T(ir.I32, ir.Int(rows), ir.Int(choices)))
			for i := range ids.I {
				ids.I[i] = int64(i*i+i) % (e + 1) // some twice
				if i%7 == 3 {
					ids.I[i] = -1
				}
			}
			weights := blank(c.t, ir.T(ir.F32, ir.Int(rows), ir.Int(choices)))
			for i := range weights.F {
				weights.F[i] = 1 + float32(i%5)/4
			}
			for i, id := range ids.I {
				ids.I[i] = min(id, e-1)
			}
			c.batch.op("moe_experts", ir.A("limit", 10.0, "act_block", 128), exact, append([]*eval.Tensor{x}, append(w, ids, weights)...)...)
		}, func(c *cases, k int) []*eval.Tensor {
			inner := 1024 * 128 / k
			return []*eval.Tensor{c.w4(e, inner, k), c.w4(e, inner, k), c.w4(e, k, inner)}
		}},
	}
	for _, p := range products {
		sizes := []int{1024, 2048}
		if p.name == "moe_experts" { // of the first product; the second's is 1024 where that is 128
			sizes = []int{1024, 128}
		}
		for _, k := range sizes {
			t.Run(fmt.Sprintf("%s/%d", p.name, k), func(t *testing.T) {
				c := &cases{batch: newBatch(t), r: rand.New(rand.NewPCG(7, uint64(k)))}
				x, w := c.bf16(1, 16, k), p.w(c, k)
				counts := []int{1, 3, 16}
				if onGPU == nil && !long { // simulated warps are slow
					if p.name == "moe_experts" {
						counts = counts[:2]
					} else if k > 1024 {
						t.Skip("long")
					}
				}
				for _, rows := range counts {
					few := x.Clone()
					few.Shape, few.F = []int{rows, k}, few.F[:rows*k]
					p.add(c, few, w)
				}
				run := func(processors int) map[string]*eval.Tensor {
					onProcessors(t, processors)
					if recordOnly() {
						load(t, "sm_90", c.graph())
						return nil
					}
					return c.outputs("sm_90")
				}
				many, one := run(132), run(1)
				if recordOnly() {
					return
				}
				all := fmt.Sprintf("y%d", len(counts)-1)
				for i, rows := range counts {
					y := fmt.Sprintf("y%d", i)
					if d := exact.compare(many[y], one[y]); d != "" {
						t.Errorf("%d rows on one processor: %s", rows, d)
					}
					for r := range rows {
						if d := exact.compare(row(t, many[all], r), row(t, many[y], r)); d != "" {
							t.Errorf("row %d among %d: %s", r, rows, d)
						}
					}
				}
			})
		}
	}
}

// TestWarpWeights: every code with every scale, of which a row of x that has one number
// picks some, is what the format says.
func TestWarpWeights(t *testing.T) {
	const n, rows = 48, 16
	for _, k := range []int{128, 1024} {
		for _, dt := range []ir.DType{ir.F8E4M3, ir.F4E2M1} {
			t.Run(fmt.Sprintf("%s/%d", dt, k), func(t *testing.T) {
				c := &cases{batch: newBatch(t), r: rand.New(rand.NewPCG(9, uint64(k)))}
				w := c.w8(n, k)
				if dt == ir.F4E2M1 {
					w = c.w4(n, k)
				}
				perRow := len(w.Scales) / n // of e2m1; 8-bit weights have them for all rows
				for i := range w.Scales {
					w.Scales[i] = byte(20 + i*37%210) // so that bf16 has the products
				}
				if dt == ir.F4E2M1 {
					w.Scales[len(w.Scales)-1] = 255 // NaN in all results of the last row of w
				}
				v := make([]float32, rows*k)
				for r := range rows {
					v[r*k+(r*67+r/8)%k] = 1
				}
				x := floatsOf(t, ir.BF16, v, rows, k)
				c.batch.op("block_linear", ir.A("act_block", 0), exact, x, w)
				if recordOnly() {
					load(t, "sm_90", c.graph())
					return
				}
				y := c.outputs("sm_90")["y0"]
				for r := range rows {
					at := (r*67 + r/8) % k
					for col := range n {
						i := col*k + at
						var value float32
						scale := w.Scales[at/128]
						if dt == ir.F4E2M1 {
							value, scale = num.FromE2M1(w.Codes[i/2]>>(4*(i%2))&15), w.Scales[col*perRow+at/32]
						} else {
							value = num.FromE4M3(w.Codes[i])
						}
						got, want := float64(y.F[r*n+col]), float64(value)*float64(num.FromE8M0(scale))
						if dt == ir.F4E2M1 && col == n-1 {
							want = math.NaN()
						}
						if got != want && !(math.IsNaN(got) && math.IsNaN(want)) {
							t.Fatalf("w[%d,%d], scale %d: %g, want %g", col, at, scale, got, want)
						}
					}
				}
			})
		}
	}
}

// TestWarpRounds: rows of x that groups round themselves, of numbers that stress it, are
// those that the op's meaning has: each result is one number of x.
func TestWarpRounds(t *testing.T) {
	const block = 128
	for _, k := range []int{1024, 1152} {
		for _, dt := range []ir.DType{ir.F8E4M3, ir.F4E2M1} {
			t.Run(fmt.Sprintf("%s/%d", dt, k), func(t *testing.T) {
				c := &cases{batch: newBatch(t), r: rand.New(rand.NewPCG(11, uint64(k)))}
				w := c.w8(k, k)
				if dt == ir.F4E2M1 {
					w = c.w4(k, k)
				}
				clear(w.Codes)
				for i := range w.Scales {
					w.Scales[i] = 127
				}
				for i := range k {
					if at := i*k + i; dt == ir.F4E2M1 {
						w.Codes[at/2] = 2 << (4 * (at % 2))
					} else {
						w.Codes[at] = 0x38
					}
				}
				for _, rows := range []int{1, 1, 1, 2} { // in the second of two rows some blocks have NaN or infinities
					x := blocks(t, c.r, ir.BF16, block, rows, k)
					for i := range 4 { // signs, a tie, and what is next to nothing
						x.F[i*block/2] = []float32{float32(math.Copysign(0, -1)), 0x1p-133, -0x1p-126, 1.0625}[i]
					}
					c.batch.op("block_linear", ir.A("act_block", block), exact, x, w)
				}
				c.run("sm_90")
			})
		}
	}
}
