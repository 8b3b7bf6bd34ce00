package kernels

import (
	"fmt"

	"github.com/kiln-project/kiln/codegen/kernel"
	"github.com/kiln-project/kiln/codegen/target"
	"github.com/kiln-project/kiln/ir"
)

func init() {
	register(
		&Form{Name: "swiglu", Op: "swiglu", Match: always, Lower: lowerSwiGLU},
		&Form{Name: "expert", Op: "expert", Match: matchExpert, Lower: lowerExpert},
		&Form{Name: "moe_experts", Op: "moe_experts", Match: matchMoE, Lower: lowerMoE},
	)
}

func lowerSwiGLU(l Lowering, o *ir.Op) error {
	shape := dims(o.Args[0])
	inner := shape[len(shape)-1]
	swiglu(l, l.Buf(o.Args[0]), l.Buf(o.Args[1]), l.Buf(o.Args[2]), l.Buf(o.Results[0]), product(shape)/inner, inner, o.Float("limit"))
	return nil
}

// swiglu: one group per row; weight has one element per row.
func swiglu(l Lowering, g, u, weight, y Ref, rows, inner int, limit float64) {
	l.Launch(Launch{
		Name: "swiglu", Spec: fmt.Sprintf("i%d limit%g", inner, limit), Grid: rows, Work: int64(rows * inner * 16),
		In: []Ref{g, u, weight}, Out: []Ref{y},
		Body: func(k *kernel.K, b []*kernel.Buf, _ []kernel.V) {
			at := k.Mul(k.Group(), k.Int(inner))
			g, u, y := b[0].At(at), b[1].At(at), b[3].At(at)
			w := b[2].Load(k.Group())
			k.Lanes(k.Int(inner), func(i kernel.V) {
				a, v := g.Load(i), u.Load(i)
				if limit > 0 {
					lim := k.Float(limit)
					a = k.MinNaN(a, lim)
					v = k.MinNaN(k.MaxNaN(v, k.Neg(lim)), lim)
				}
				y.Store(i, k.Mul(w, k.Mul(k.Mul(a, k.Sigmoid(a)), v)))
			})
		},
	})
}

func matchExpert(o *ir.Op, _ *target.Target) string { return wholeBlocks(o.Args[1:4]) }

func matchMoE(o *ir.Op, _ *target.Target) string { return wholeBlocks(o.Args[1:4]) }

// wholeBlocks refuses weights whose blocks end inside a vector.
func wholeBlocks(ws []*ir.Value) string {
	for _, w := range ws {
		k := extent(w.Type.Dims[w.Type.Rank()-1])
		if b := w.Type.Quant.Block[1]; k%b != 0 || b%32 != 0 || k%expertActBlock != 0 {
			return fmt.Sprintf("blocks of %s do not divide its last axis into whole vectors", w.Type)
		}
	}
	return ""
}

// expertActBlock is the activation block of the experts' products.
const expertActBlock = 128

func lowerExpert(l Lowering, o *ir.Op) error {
	x, w1 := dims(o.Args[0]), dims(o.Args[1])
	t, d, inner := x[0], x[1], w1[0]
	xq := l.Scratch(ir.F32, t*d)
	actQuant(l, l.Buf(o.Args[0]), xq, t*d, expertActBlock)
	product := func(x Ref, w *ir.Value, y Ref, n, k int) {
		matmul(l, matProduct{x: x, w: l.Buf(w), scales: l.Scales(w), block: w.Type.Quant.Block, y: y, m: t, n: n, k: k})
	}
	g, u, a := l.Scratch(ir.BF16, t*inner), l.Scratch(ir.BF16, t*inner), l.Scratch(ir.BF16, t*inner)
	product(xq, o.Args[1], g, inner, d)
	product(xq, o.Args[2], u, inner, d)
	swiglu(l, g, u, l.Buf(o.Args[4]), a, t, inner, o.Float("limit"))
	aq := l.Scratch(ir.F32, t*inner)
	actQuant(l, a, aq, t*inner, expertActBlock)
	product(aq, o.Args[3], l.Buf(o.Results[0]), d, inner)
	return nil
}

// lowerMoE multiplies each (token, choice) pair with its expert's weights and
// adds each token's results in ascending expert id.
func lowerMoE(l Lowering, o *ir.Op) error {
	x, w1, kk := dims(o.Args[0]), dims(o.Args[1]), dims(o.Args[4])[1]
	t, d, inner := x[0], x[1], w1[1]
	pairs := t * kk
	xq := l.Scratch(ir.F32, t*d)
	actQuant(l, l.Buf(o.Args[0]), xq, t*d, expertActBlock)
	ids, weights := l.Scratch(ir.I32, pairs), l.Scratch(ir.F32, pairs)
	mergePairs(l, l.Buf(o.Args[4]), l.Buf(o.Args[5]), ids, weights, t, kk)

	g, u, a, y := l.Scratch(ir.BF16, pairs*inner), l.Scratch(ir.BF16, pairs*inner), l.Scratch(ir.BF16, pairs*inner), l.Scratch(ir.BF16, pairs*d)
	expertProduct(l, o.Args[1], ids, xq, g, pairs, kk)
	expertProduct(l, o.Args[2], ids, xq, u, pairs, kk)
	swiglu(l, g, u, weights, a, pairs, inner, o.Float("limit"))
	aq := l.Scratch(ir.F32, pairs*inner)
	actQuant(l, a, aq, pairs*inner, expertActBlock)
	expertProduct(l, o.Args[3], ids, aq, y, pairs, 1)
	addInOrder(l, ids, y, l.Buf(o.Results[0]), t, kk, d)
	return nil
}

// mergePairs gives an expert that a token chose twice one pair with both
// weights; the other pair's id becomes -1.
func mergePairs(l Lowering, ids, weights, outIDs, outWeights Ref, t, n int) {
	l.Launch(Launch{
		Name: "merge_pairs", Spec: fmt.Sprintf("k%d", n), Grid: t, Work: int64(t * n * n),
		In: []Ref{ids, weights}, Out: []Ref{outIDs, outWeights},
		Body: func(k *kernel.K, b []*kernel.Buf, _ []kernel.V) {
			at := k.Mul(k.Group(), k.Int(n))
			id, w := make([]kernel.V, n), make([]kernel.V, n)
			for j := range id {
				id[j], w[j] = b[0].Load(k.Add(at, k.Int(j))), b[1].Load(k.Add(at, k.Int(j)))
			}
			k.First(func() {
				for j := range id {
					first, sum := id[j], w[j]
					for i := range id {
						same := k.Cmp(kernel.EQ, id[i], id[j])
						if i < j {
							first = k.Select(same, k.Int32(-1), first)
						} else if i > j {
							sum = k.Add(sum, k.Select(same, w[i], k.Float(0)))
						}
					}
					b[2].Store(k.Add(at, k.Int(j)), first)
					b[3].Store(k.Add(at, k.Int(j)), sum)
				}
			})
		},
	})
}

// expertTileN is the number of weight rows that one group of an expert product
// multiplies.
const expertTileN = 4

// expertProduct is y[p,:] = w[ids[p]] x[p/share,:]; a pair without expert is
// left alone. The sum over k has the order that matmul has.
func expertProduct(l Lowering, w *ir.Value, ids, x, y Ref, pairs, share int) {
	ws, block := dims(w), w.Type.Quant.Block
	n, kd := ws[1], ws[2]
	tiles := (n + expertTileN - 1) / expertTileN
	scaleRows, scaleCols := (n+block[0]-1)/block[0], (kd+block[1]-1)/block[1]
	codes, scales, chosen := l.Buf(w), l.Scales(w), min(ws[0], pairs) // experts at most
	l.Launch(Launch{
		Name: "expert_product", Spec: fmt.Sprintf("n%d k%d block%v share%d", n, kd, block, share), Grid: pairs * tiles, Work: int64(pairs) * int64(n) * int64(kd),
		In: []Ref{ids, x, codes, scales}, Out: []Ref{y},
		Touched: map[Ref]int64{codes: codes.DT.Bytes(chosen * n * kd), scales: int64(chosen * scaleRows * scaleCols)},
		Body: func(k *kernel.K, b []*kernel.Buf, _ []kernel.V) {
			pair := k.UDiv(k.Group(), k.Int(tiles))
			n0 := k.Mul(k.URem(k.Group(), k.Int(tiles)), k.Int(expertTileN))
			id := k.Convert(b[0].Load(pair), kernel.I64)
			k.If(k.Cmp(kernel.GE, id, k.Int(0)), func() {
				x := b[1].At(k.Mul(k.UDiv(pair, k.Int(share)), k.Int(kd)))
				cols, rows := make([]kernel.V, expertTileN), make([]*kernel.Buf, expertTileN)
				scales := make([]*kernel.Buf, expertTileN)
				acc := make([]*kernel.Var, expertTileN)
				for j := range cols {
					c := k.Add(n0, k.Int(j))
					cols[j] = k.Select(k.Cmp(kernel.LT, c, k.Int(n)), c, k.Int(n-1))
					rows[j] = b[2].At(k.Mul(k.Add(k.Mul(id, k.Int(n)), cols[j]), k.Int(kd)))
					row := k.Add(k.Mul(id, k.Int(scaleRows)), k.UDiv(cols[j], k.Int(block[0])))
					scales[j] = b[3].At(k.Mul(row, k.Int(scaleCols)))
					acc[j] = k.Var(k.Float(0))
				}
				k.For(k.Int(0), k.Int(kd), block[1], func(from kernel.V) {
					part := make([]*kernel.Var, expertTileN)
					for j := range part {
						part[j] = k.Var(k.Float(0))
					}
					k.Lanes(k.Int(block[1]), func(i kernel.V) {
						i = k.Add(i, from)
						v := x.Load(i)
						for j := range part {
							part[j].Set(k.FMA(v, rows[j].LoadWeight(i), part[j].Get()))
						}
					})
					for j := range part {
						s := scales[j].Load(k.UDiv(from, k.Int(block[1])))
						acc[j].Set(k.FMA(part[j].Get(), s, acc[j].Get()))
					}
				})
				for j := range acc {
					sum := k.Sum(acc[j].Get())
					col := k.Add(n0, k.Int(j))
					k.If(k.Cmp(kernel.LT, col, k.Int(n)), func() {
						k.First(func() { b[4].Store(k.Add(k.Mul(pair, k.Int(n)), col), sum) })
					})
				}
			})
		},
	})
}

// addInOrder sums each token's pairs in ascending expert id; pairs without an
// expert add nothing.
func addInOrder(l Lowering, ids, y, out Ref, t, n, d int) {
	l.Launch(Launch{
		Name: "add_experts", Spec: fmt.Sprintf("k%d d%d", n, d), Grid: t, Work: int64(t * n * d * 2),
		In: []Ref{ids, y}, Out: []Ref{out},
		Body: func(k *kernel.K, b []*kernel.Buf, _ []kernel.V) {
			id := make([]kernel.V, n)
			for j := range id {
				id[j] = b[0].Load(k.Add(k.Mul(k.Group(), k.Int(n)), k.Int(j)))
			}
			// rank[j] is the place of pair j among the token's pairs by id.
			rank := make([]kernel.V, n)
			for j := range id {
				rank[j] = k.Int32(0)
				for i := range id {
					before := k.Cmp(kernel.LT, id[i], id[j])
					if i < j { // equal ids are -1 only; keep the ranks distinct
						before = k.Cmp(kernel.LE, id[i], id[j])
					}
					rank[j] = k.Add(rank[j], k.Convert(before, kernel.I32))
				}
			}
			order := make([]kernel.V, n) // order[r] is the pair of rank r
			for r := range order {
				order[r] = k.Int32(0)
				for j := range id {
					order[r] = k.Select(k.Cmp(kernel.EQ, rank[j], k.Int32(r)), k.Int32(j), order[r])
				}
			}
			rows, there := make([]*kernel.Buf, n), make([]kernel.V, n)
			for r := range order {
				pair := k.Add(k.Mul(k.Group(), k.Int(n)), k.Convert(order[r], kernel.I64))
				rows[r] = b[1].At(k.Mul(pair, k.Int(d)))
				there[r] = k.Cmp(kernel.GE, b[0].Load(pair), k.Int32(0))
			}
			dst := b[2].At(k.Mul(k.Group(), k.Int(d)))
			k.Lanes(k.Int(d), func(i kernel.V) {
				sum := k.Float(0)
				for r := range rows {
					sum = k.Add(sum, k.Select(there[r], rows[r].Load(i), k.Float(0)))
				}
				dst.Store(i, sum)
			})
		},
	})
}
