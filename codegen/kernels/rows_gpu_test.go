//go:build gpu

package kernels_test

import (
	"errors"
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/kiln-project/kiln/codegen"
	"github.com/kiln-project/kiln/codegen/kernel"
	"github.com/kiln-project/kiln/codegen/kernels"
	"github.com/kiln-project/kiln/codegen/target"
	"github.com/kiln-project/kiln/ir"
	"github.com/kiln-project/kiln/ir/eval"
	"github.com/kiln-project/kiln/runtime/cuda"
	"github.com/kiln-project/kiln/runtime/device"
	"github.com/kiln-project/kiln/runtime/device/devicetest"
)

// perfRow is an op at a shape of the models, timed as a chain of copies of it in one
// graph. Copies with operands of their own have them cold, if all of them are several
// times what the L2 cache holds; the others' lie in it.
type perfRow struct {
	name   string
	copies int
	cold   bool
	// bytes and flops are what one copy cannot do without; 0 is not reported.
	bytes, flops int64
	// add adds a copy.
	add func(m *perfGraph)
}

// perfGraph builds the copies. Operands are weights, so that the device makes their
// numbers, and indexes are inputs; those of one name are one.
type perfGraph struct {
	*ir.Builder
	made  map[string]*ir.Value
	in    map[string]*eval.Tensor // inputs
	tb    testing.TB
	r     *rand.Rand
	own   string // of the copy: its own operands' names begin with it
	count int
	kept  int
}

// on is an operand that a copy has for itself, and one that all share if own is empty.
func (g *perfGraph) on(own, name string, t ir.Type) *ir.Value {
	name = own + name
	if g.made[name] == nil {
		g.made[name] = g.Weight(name, t)
	}
	return g.made[name]
}

// each is the copy's own operand.
func (g *perfGraph) each(name string, dt ir.DType, shape ...int) *ir.Value {
	return g.on(g.own, name, ir.T(dt, intDims(shape)...))
}

// all is an operand of all copies.
func (g *perfGraph) all(name string, dt ir.DType, shape ...int) *ir.Value {
	return g.on("", name, ir.T(dt, intDims(shape)...))
}

// turn is one of two operands that copies take by turns.
func (g *perfGraph) turn(name string, dt ir.DType, shape ...int) *ir.Value {
	return g.on(fmt.Sprintf("%d.", g.count%2), name, ir.T(dt, intDims(shape)...))
}

// scaled is an operand with scales.
func (g *perfGraph) scaled(own, name string, dt ir.DType, b0, b1 int, shape ...int) *ir.Value {
	t := ir.T(dt, intDims(shape)...)
	t.Quant = &ir.Quant{Block: [2]int{b0, b1}, Scale: ir.E8M0}
	return g.on(own, name, t)
}

// rowsBelow are the copy's indexes of rows, below n.
func (g *perfGraph) rowsBelow(n int, name string, shape ...int) *ir.Value {
	name = g.own + name
	if g.made[name] == nil {
		x := blank(g.tb, ir.T(ir.I32, intDims(shape)...))
		for i := range x.I {
			x.I[i] = int64(g.r.IntN(n))
		}
		g.in[name], g.made[name] = x, g.Input(name, x.Type())
	}
	return g.made[name]
}

// idsBelow are k different ids below n for each of t tokens: the copy's own.
func (g *perfGraph) idsBelow(n int, name string, t, k int) *ir.Value {
	v := g.rowsBelow(n, name, t, k)
	x := g.in[g.own+name]
	for i := range t {
		for j, id := range g.r.Perm(n)[:k] {
			x.I[i*k+j] = int64(id)
		}
	}
	return v
}

// inOrder are n indexes of rows that follow each other, for each of t tokens.
func (g *perfGraph) inOrder(t, n int) *ir.Value {
	v := g.rowsBelow(t*n, "sequence", t, n)
	for i := range t * n {
		g.in[g.own+"sequence"].I[i] = int64(i)
	}
	return v
}

// add adds an op whose results are kept.
func (g *perfGraph) add(op string, attrs ir.Attrs, args ...*ir.Value) {
	g.keep(g.Op(op, attrs, args...)...)
}

func (g *perfGraph) keep(results ...*ir.Value) {
	for _, r := range results {
		g.kept++
		g.Output(fmt.Sprintf("y%d", g.kept), r)
	}
}

// readWords is an op that reads and does nothing else, for the bandwidth of the GPU: a
// group reads readPart bytes, all of its loads at once.
var readWords = &ir.OpDef{
	Name: "test.read_words", Group: "test", Doc: "The sums of parts of x.",
	Operands: []ir.OperandDef{{Name: "x", Doc: "bf16 [N]"}}, Results: []string{"y"},
	Infer: func(o *ir.Op) ([]ir.Type, error) {
		n, _ := o.Args[0].Type.Dims[0].Const()
		return []ir.Type{ir.T(ir.I32, ir.Int(n/(readPart/2)))}, nil
	},
}

const readPart, readLoads = 32 << 10, 8

var readWordsForm = &kernels.Form{
	Name: "test_read_words", Op: "test.read_words", Match: func(*ir.Op, *target.Target) string { return "" },
	Lower: func(l kernels.Lowering, o *ir.Op) error {
		groups, _ := o.Results[0].Type.Dims[0].Const()
		l.Launch(kernels.Launch{
			Name: "read_words", Grid: groups, In: []kernels.Ref{l.Buf(o.Args[0])}, Out: []kernels.Ref{l.Buf(o.Results[0])},
			Body: func(k *kernel.K, b []*kernel.Buf, _ []kernel.V) {
				at := k.Mul(k.Group(), k.Int(readPart/2))
				var loads []kernel.Vec
				for i := range readLoads {
					loads = append(loads, b[0].LoadVec(k.Add(at, k.Mul(k.Add(k.Lane(), k.Int(i*readPart/16/readLoads)), k.Int(8))), 4))
				}
				sum := k.Int32(0)
				for _, v := range loads {
					for i := range v.Len() {
						sum = k.Xor(sum, k.At(v, i))
					}
				}
				sum = k.Reduce(sum, k.Xor)
				k.First(func() { b[1].Store(k.Group(), sum) })
			},
		})
		return nil
	},
}

// perfRows are the rows of docs/measurements/h200-rows.md.
func perfRows() []perfRow {
	var rows []perfRow
	for _, n := range []int{6 << 20, 14 << 20, 32 << 20} {
		rows = append(rows, perfRow{name: fmt.Sprintf("read/%dMiB", n>>20), copies: 20, cold: true, bytes: int64(n), add: func(g *perfGraph) {
			g.add("test.read_words", nil, g.each("x", ir.BF16, n/2))
		}})
	}
	for _, d := range []int{4096, 7168} {
		for _, t := range []int{1, 8, 64, 256, 1024} {
			// Without codes, as the peer and the target: from h to residual, hidden, post, comb.
			bytes := int64(t)*int64(2*(4+4+1+1)*d) + 24*4*int64(d)*4
			for _, cold := range []bool{false, true} {
				r := perfRow{name: fmt.Sprintf("hc/%d/T%d", d, t), copies: 20, cold: cold, bytes: bytes, add: func(g *perfGraph) {
					of := g.turn
					if cold {
						of = g.each
					}
					g.add("hc_fused", hcFusedAttrs, of("x", ir.BF16, t, d), of("h", ir.BF16, t, 4, d), of("post", ir.F32, t, 4), of("comb", ir.F32, t, 4, 4),
						of("fn", ir.F32, 24, 4*d), of("scale", ir.F32, 3), of("base", ir.F32, 24), of("gain", ir.BF16, d))
				}}
				rows = append(rows, r)
			}
		}
	}
	for _, s := range []struct{ heads, keys int }{{64, 640}, {128, 1152}} {
		for _, t := range []int{1, 16, 64, 256} {
			const pool = 32768
			for _, f := range []ir.RowFormat{{D: 512}, kvFormat(512)} {
				for _, cold := range []bool{false, true} {
					name := fmt.Sprintf("attention/%dx%d/T%d", s.heads, s.keys, t)
					if f.Packed() {
						name += "/packed"
					}
					bytes := int64(t) * (int64(min(s.keys, pool))*f.Elements().Bytes(f.Width()) + 2*2*int64(s.heads)*512)
					r := perfRow{name: name, copies: 20, cold: cold, bytes: bytes, flops: 4 * 512 * int64(t) * int64(s.heads) * int64(s.keys), add: func(g *perfGraph) {
						of := g.all
						if cold {
							of = g.each
						}
						kv := of("kv", f.Elements(), pool, f.Width())
						own := g.all("own", f.Elements(), t, f.Width())
						g.add("sparse_attention", append(ir.A("scale", math.Pow(512, -0.5)), f.Attrs()...), g.turn("q", ir.BF16, t, s.heads, 512), g.all("sink", ir.F32, s.heads),
							kv, g.rowsBelow(pool, "rows", t, s.keys-1), own, g.rowsBelow(t, "new", t, 1))
					}}
					rows = append(rows, r)
				}
			}
		}
	}
	for _, dt := range []ir.DType{ir.BF16, ir.F32} {
		for _, b := range []int{1, 64, 256} {
			const n = 129_280
			rows = append(rows, perfRow{name: fmt.Sprintf("argmax/%s/B%d", dt, b), copies: 20, bytes: int64(b) * dt.Bytes(n), add: func(g *perfGraph) {
				g.add("argmax", nil, g.turn("x", dt, b, n))
			}})
		}
	}
	for _, n := range []struct{ n, k, copies int }{{32768, 1024, 20}, {1536, 4096, 40}, {2048, 7168, 20}} {
		for _, t := range []int{1, 16, 64} {
			rows = append(rows, perfRow{name: fmt.Sprintf("linear/fp8/%dx%d/T%d", n.n, n.k, t), copies: n.copies, cold: true, bytes: int64(n.n) * int64(n.k), flops: 2 * int64(t) * int64(n.n) * int64(n.k),
				add: func(g *perfGraph) {
					g.add("block_linear", ir.A("act_block", 128), g.turn("x", ir.BF16, t, n.k), g.scaled(g.own, "w", ir.F8E4M3, 128, 128, n.n, n.k))
				}})
			rows = append(rows, perfRow{name: fmt.Sprintf("linear/bf16/%dx%d/T%d", n.n, n.k, t), copies: n.copies, cold: true, bytes: 2 * int64(n.n) * int64(n.k), flops: 2 * int64(t) * int64(n.n) * int64(n.k),
				add: func(g *perfGraph) {
					g.add("linear", nil, g.turn("x", ir.BF16, t, n.k), g.each("w", ir.BF16, n.n, n.k))
				}})
		}
	}
	for _, t := range []int{1, 4, 16, 64, 128, 512, 2048} {
		const e, d, inner, k = 256, 4096, 2048, 6
		copies := 20
		if t > 16 {
			copies = 4
		}
		// As many experts as random ids hit, on average.
		hit := float64(e) * (1 - math.Pow(1-float64(k)/e, float64(t)))
		bytes := int64(hit * 3 * d * inner * (0.5 + 1.0/32))
		rows = append(rows, perfRow{name: fmt.Sprintf("experts/T%d", t), copies: copies, cold: true, bytes: bytes, flops: 2 * 3 * int64(t) * k * d * inner, add: func(g *perfGraph) {
			w := func(name string, n, k int) *ir.Value { return g.scaled("", name, ir.F4E2M1, 1, 32, e, n, k) }
			g.add("moe_experts", ir.A("limit", 10.0, "act_block", 128), g.turn("x", ir.BF16, t, d), w("w1", inner, d), w("w3", inner, d), w("w2", d, inner),
				g.idsBelow(e, "ids", t, k), g.turn("weights", ir.F32, t, k))
		}})
	}
	for _, t := range []int{1, 8, 16, 64} {
		const n, top = 32768, 512 // entries of 131,072 positions, four to an entry
		f := indexFormat(128)
		copies := min(20, 160/t)
		rows = append(rows, perfRow{name: fmt.Sprintf("scores/%d/T%d", n, t), copies: copies, cold: true, bytes: int64(t) * n * int64(f.Bytes()+4+2), add: func(g *perfGraph) {
			g.add("indexer_scores", f.Attrs(), g.turn("q", ir.BF16, t, 64, 128), g.turn("w", ir.BF16, t, 64), g.each("keys", ir.U8, t*n, f.Bytes()), g.inOrder(t, n))
		}}, perfRow{name: fmt.Sprintf("topk/%d/T%d", n, t), copies: copies, cold: true, bytes: int64(t) * n * 2, add: func(g *perfGraph) {
			g.add("topk_rows", ir.A("k", top), g.each("scores", ir.BF16, t, n), g.inOrder(t, n))
		}}, perfRow{name: fmt.Sprintf("scores+topk/%d/T%d", n, t), copies: copies, cold: true, bytes: int64(t) * n * int64(f.Bytes()+4+2+2), add: func(g *perfGraph) {
			rows := g.inOrder(t, n)
			scores := g.Op1("indexer_scores", f.Attrs(), g.turn("q", ir.BF16, t, 64, 128), g.turn("w", ir.BF16, t, 64), g.each("keys", ir.U8, t*n, f.Bytes()), rows)
			g.add("topk_rows", ir.A("k", top), scores, rows)
		}})
	}
	rows = append(append(rows, separateRows()...), smallRows()...)
	for _, t := range []int{128, 512, 1000, 4096} {
		const n = 4096
		rows = append(rows, perfRow{name: fmt.Sprintf("gemm/bf16/%d/T%d", n, t), copies: 10, flops: 2 * int64(t) * n * n, bytes: 2 * n * (n + 2*int64(t)), add: func(g *perfGraph) {
			g.add("linear", nil, g.turn("x", ir.BF16, t, n), g.turn("w", ir.BF16, n, n))
		}}, perfRow{name: fmt.Sprintf("gemm/fp8/%d/T%d", n, t), copies: 10, flops: 2 * int64(t) * n * n, bytes: n * (n + 4*int64(t)), add: func(g *perfGraph) {
			g.add("block_linear", ir.A("act_block", 128), g.turn("x", ir.BF16, t, n), g.scaled(fmt.Sprintf("%d.", g.count%2), "w", ir.F8E4M3, 128, 128, n, n))
		}})
	}
	for _, t := range []int{512, 4096} { // few tiles, so that what comes before them tells
		const n, k = 128, 4096
		rows = append(rows, perfRow{name: fmt.Sprintf("gemm/bf16/%dx%d/T%d", n, k, t), copies: 10, flops: 2 * int64(t) * n * k, bytes: 2 * int64(n*k+n*t+k*t), add: func(g *perfGraph) {
			g.add("linear", nil, g.turn("x", ir.BF16, t, k), g.turn("w", ir.BF16, n, k))
		}})
	}
	return rows
}

// separateRows are fused ops beside what they fuse, the best kernels of each.
func separateRows() []perfRow {
	var rows []perfRow
	for _, t := range []int{1, 8, 64} {
		const d = 4096
		rows = append(rows, perfRow{name: fmt.Sprintf("separate/hc/%d/T%d", d, t), copies: 20, add: func(g *perfGraph) {
			h := g.Op1("hc_post", nil, g.turn("x", ir.BF16, t, d), g.turn("h", ir.BF16, t, 4, d), g.turn("post", ir.F32, t, 4), g.turn("comb", ir.F32, t, 4, 4))
			pre := g.Op("hc_pre", hcAttrs, h, g.turn("fn", ir.F32, 24, 4*d), g.turn("scale", ir.F32, 3), g.turn("base", ir.F32, 24))
			g.keep(h, g.Op1("rms_norm", ir.A("eps", 1e-6), pre[0], g.turn("gain", ir.BF16, d)), pre[1], pre[2])
		}})
	}
	for _, s := range []struct{ k, q, kv, copies int }{{4096, 1024, 512, 40}, {7168, 1536, 512, 20}} {
		for _, t := range []int{1, 16} {
			attrs := ir.A("act_block", 128)
			w := func(g *perfGraph, name string, n int) *ir.Value {
				return g.scaled(g.own, name, ir.F8E4M3, 128, 128, n, s.k)
			}
			bytes := int64(s.k) * int64(s.q+s.kv)
			rows = append(rows, perfRow{name: fmt.Sprintf("qkv/%d/T%d", s.k, t), copies: s.copies, cold: true, bytes: bytes, add: func(g *perfGraph) {
				g.add("split_linear", append(ir.A("sizes", []int{s.q, s.kv}), attrs...), g.turn("x", ir.BF16, t, s.k), w(g, "w", s.q+s.kv))
			}}, perfRow{name: fmt.Sprintf("separate/qkv/%d/T%d", s.k, t), copies: s.copies, cold: true, bytes: bytes, add: func(g *perfGraph) {
				x := g.turn("x", ir.BF16, t, s.k)
				g.add("block_linear", attrs, x, w(g, "wq", s.q))
				g.add("block_linear", attrs, x, w(g, "wkv", s.kv))
			}})
		}
	}
	for _, s := range []struct{ heads, keys int }{{64, 640}, {128, 1152}} {
		for _, t := range []int{64, 256} {
			const pool = 32768
			n := s.keys - 1
			rows = append(rows, perfRow{name: fmt.Sprintf("separate/gather/%d/T%d", n, t), copies: 20, bytes: int64(t) * int64(n) * 2 * 2 * 512, add: func(g *perfGraph) {
				g.add("gather_rows", nil, g.all("kv", ir.BF16, pool, 512), g.rowsBelow(pool, "rows", t*n))
			}}, perfRow{name: fmt.Sprintf("separate/attention/%dx%d/T%d", s.heads, s.keys, t), copies: 20, add: func(g *perfGraph) {
				kv := g.Op1("gather_rows", nil, g.all("kv", ir.BF16, pool, 512), g.rowsBelow(pool, "rows", t*n))
				g.add("sparse_attention", ir.A("scale", math.Pow(512, -0.5)), g.turn("q", ir.BF16, t, s.heads, 512), g.all("sink", ir.F32, s.heads),
					kv, g.inOrder(t, n), g.all("own", ir.BF16, t, 512), g.rowsBelow(t, "new", t, 1))
			}})
		}
	}
	return append(rows, decodeRows()...)
}

// decodeRows are the products of a decode step of Flash with weights of their own.
func decodeRows() []perfRow {
	var rows []perfRow
	for _, t := range []int{1, 4, 16} {
		add := func(name string, copies int, bytes int64, add func(g *perfGraph)) {
			rows = append(rows, perfRow{name: fmt.Sprintf("decode/%s/T%d", name, t), copies: copies, cold: true, bytes: bytes, add: add})
		}
		linear := func(g *perfGraph, name string, act, n, k int) {
			g.add("block_linear", ir.A("act_block", act), g.turn("x", ir.BF16, t, k), g.scaled(g.own, name, ir.F8E4M3, 128, 128, n, k))
		}
		add("wq_b", 20, 32768*1024, func(g *perfGraph) { linear(g, "w", 0, 32768, 1024) })
		add("wq_b+index", 20, 40960*1024, func(g *perfGraph) { linear(g, "w", 0, 40960, 1024) })
		add("w_qkv", 40, 1536*4096, func(g *perfGraph) {
			g.add("split_linear", ir.A("act_block", 0, "sizes", []int{1024, 512}), g.turn("x", ir.BF16, t, 4096), g.scaled(g.own, "w", ir.F8E4M3, 128, 128, 1536, 4096))
		})
		add("w_qkv apart", 40, 1536*4096, func(g *perfGraph) {
			x := g.turn("x", ir.BF16, t, 4096)
			for i, n := range []int{1024, 512} {
				y := g.Op("block_linear", ir.A("act_block", 0), x, g.scaled(g.own, fmt.Sprint("w", n), ir.F8E4M3, 128, 128, n, 4096))
				g.Output(fmt.Sprintf("%sy%d", g.own, i), y[0])
			}
		})
		add("wo_a", 10, 2*8192*4096, func(g *perfGraph) {
			g.add("grouped_linear", nil, g.turn("x", ir.BF16, t, 8, 4096), g.each("w", ir.BF16, 8, 1024, 4096))
		})
		add("wo_b", 20, 4096*8192, func(g *perfGraph) { linear(g, "w", 128, 4096, 8192) })
		add("compressor", 20, 2*2560*4096, func(g *perfGraph) {
			g.add("linear", ir.A("to", ir.F32), g.turn("x", ir.BF16, t, 4096), g.each("w", ir.BF16, 2560, 4096))
		})
		const d, inner, e, k = 4096, 2048, 256, 6
		w8 := func(g *perfGraph, name string, n, k int) *ir.Value {
			return g.scaled(g.own, name, ir.F8E4M3, 128, 128, n, k)
		}
		limit := ir.A("limit", 10.0, "act_block", 0)
		add("expert", 20, 3*d*inner, func(g *perfGraph) {
			g.add("expert", limit, g.turn("x", ir.BF16, t, d), w8(g, "w1", inner, d), w8(g, "w3", inner, d), w8(g, "w2", d, inner), g.turn("one", ir.F32, t, 1))
		})
		hit := float64(e) * (1 - math.Pow(1-float64(k)/e, float64(t)))
		add("moe", 20, int64(hit*3*d*inner*(0.5+1.0/32)), func(g *perfGraph) {
			w := func(name string, n, k int) *ir.Value { return g.scaled("", name, ir.F4E2M1, 1, 32, e, n, k) }
			g.add("moe_experts_add", limit, g.turn("x", ir.BF16, t, d), w("w1", inner, d), w("w3", inner, d), w("w2", d, inner),
				g.idsBelow(e, "ids", t, k), g.turn("weights", ir.F32, t, k), g.turn("s", ir.BF16, t, d))
		})
	}
	return rows
}

// graph is the row's copies, and its inputs.
func (r perfRow) graph(t testing.TB) (*ir.Graph, map[string]*eval.Tensor, error) {
	g := &perfGraph{Builder: ir.NewBuilder("rows"), made: map[string]*ir.Value{}, in: map[string]*eval.Tensor{}, tb: t, r: rand.New(rand.NewPCG(1, 2))}
	for g.count = range r.copies {
		g.own = fmt.Sprintf("c%d.", g.count)
		r.add(g)
	}
	out, err := g.Finish()
	return out, g.in, err
}

// BenchmarkRows times the rows on GPU 0, with code that the same benchmark recorded.
// A row's time is the median of replays of its graph, by the copies.
func BenchmarkRows(b *testing.B) {
	registerReadWords(b)
	for _, r := range perfRows() {
		name := r.name
		if r.cold {
			name += "/cold"
		}
		b.Run(name, func(b *testing.B) { r.time(b) })
	}
}

// time times the copies, on GPU 0.
func (r perfRow) time(b *testing.B) {
	graph, in, err := r.graph(b)
	if err != nil {
		b.Fatal(err)
	}
	u := codegen.NewUnit(mustTarget(b, *rowsTarget))
	p, err := u.Lower(graph)
	if err == nil {
		err = u.AddRuntime()
	}
	if err != nil {
		b.Fatal(err)
	}
	m := buildGPU(b, u)
	if *record || *loadOnly {
		b.Skip("-record or -load")
	}
	if err := m.BindRandom(device.Random{Seed: 1, IDs: func(string) int { return 0 }}); err != nil {
		b.Fatal(err)
	}
	prog, err := m.Load(p)
	if err != nil {
		b.Fatal(err)
	}
	var flush int64
	if r.cold {
		flush = 2 * l2Bytes
	}
	run, err := prog.Measure(in, nil, flush)
	if err != nil {
		b.Fatal(err)
	}
	var samples device.Samples
	for b.Loop() {
		s, err := run.Step(perfSamples, false)
		if err != nil {
			b.Fatal(err)
		}
		samples = append(samples, s...)
	}
	us := float64(samples.Median().Nanoseconds()) / 1e3 / float64(r.copies)
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(us, "us")
	b.ReportMetric(float64(samples.P95().Nanoseconds())/1e3/float64(r.copies), "us(p95)")
	b.ReportMetric(float64(len(p.Launches))/float64(r.copies), "launches")
	b.ReportMetric(float64(r.bytes)/us/1e6, "TB/s")
	if r.flops > 0 {
		b.ReportMetric(float64(r.flops)/us/1e6, "TFLOP/s")
	}
	if err := run.Close(); err != nil {
		b.Fatal(err)
	}
	if err := m.Close(); err != nil {
		b.Fatal(err)
	}
}

// registerReadWords is called before anything is lowered.
var registerReadWords = func() func(b *testing.B) {
	err := sync.OnceValue(func() error { return errors.Join(ir.Register(readWords), kernels.Register(readWordsForm)) })
	return func(b *testing.B) {
		if err := err(); err != nil {
			b.Fatal(err)
		}
	}
}()

// loadOnly has the driver compile what the rows run, which its cache on disk keeps:
// several processes can do that side by side, and one times the rows after them.
var loadOnly = flag.Bool("load", false, "load the code of rows, and run nothing")

// rowsTarget is what the rows are compiled for.
var rowsTarget = flag.String("rows-target", "sm_90", "target of the rows: sm_90 or sm_90a")

// l2Bytes is what an H200's L2 cache holds, and a little more.
const l2Bytes = 64 << 20

// perfSamples is how many replays one round has.
const perfSamples = 15

// BenchmarkRegisters tells of each kernel of the rows what the driver made of it.
func BenchmarkRegisters(b *testing.B) {
	registerReadWords(b)
	for _, r := range perfRows() {
		b.Run(r.name, r.registers)
	}
}

// registers tells of the row's kernels.
func (r perfRow) registers(b *testing.B) {
	gpu, err := openRawGPU()
	if err != nil {
		b.Fatal(err)
	}
	graph, _, err := r.graph(b)
	if err != nil {
		b.Fatal(err)
	}
	u := codegen.NewUnit(mustTarget(b, *rowsTarget))
	if _, err := u.Lower(graph); err != nil {
		b.Fatal(err)
	}
	n := len(u.Kernels)
	if err := u.AddRuntime(); err != nil {
		b.Fatal(err)
	}
	code, err := devicetest.Stored(*objects)(b.Context(), u)
	if err != nil {
		b.Fatal(err)
	}
	m, err := cuda.Load(gpu, "rows", code.Object)
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		for i, k := range u.Kernels[:n] {
			f, err := m.Function(k.Symbol)
			if err != nil {
				b.Fatal(err)
			}
			a, err := f.Attributes()
			if err != nil {
				b.Fatal(err)
			}
			fmt.Printf("%s: kernel %d %s: %d registers, %d bytes spilled or on a stack, %d of shared memory\n", r.name, i, u.Module.Kernels[i].Spec, a.Registers, a.Local, a.Shared)
		}
	}
	if err := m.Close(); err != nil {
		b.Fatal(err)
	}
}

// openRawGPU opens GPU 0 for what has no plan, once for all: the process's end closes it.
var openRawGPU = sync.OnceValues(func() (*cuda.Device, error) {
	l, err := cuda.Open(cuda.Options{})
	if err != nil {
		return nil, err
	}
	return l.OpenDevice(0)
})
