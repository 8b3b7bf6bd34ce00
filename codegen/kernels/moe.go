package kernels

import (
	"fmt"
	"math"

	"github.com/kiln-project/kiln/codegen/kernel"
	"github.com/kiln-project/kiln/codegen/target"
	"github.com/kiln-project/kiln/ir"
)

func init() {
	register(
		&Form{Name: "gate", Op: "gate", Match: matchGate, Lower: lowerGate},
		&Form{Name: "hash_gate", Op: "hash_gate", Match: matchGate, Lower: lowerGate},
		&Form{Name: "swiglu", Op: "swiglu", Match: always, Lower: lowerSwiGLU},
		&Form{Name: "expert", Op: "expert", Match: matchExpert, Lower: lowerExpert},
		&Form{Name: "moe_experts", Op: "moe_experts", Match: matchMoE, Lower: lowerMoE},
	)
}

func matchGate(o *ir.Op, _ *target.Target) string {
	if e := dims(o.Args[1])[0]; 8*e > maxShared {
		return fmt.Sprintf("scores of %d experts do not fit shared memory", e)
	}
	return ""
}

// lowerGate: the scores by matmul, then one group per token chooses and
// normalises.
func lowerGate(l Lowering, o *ir.Op) error {
	x, w := dims(o.Args[0]), dims(o.Args[1])
	t, e, n := x[0], w[0], o.Int("k")
	scale := o.Float("scale")
	hash := o.Def.Name == "hash_gate"
	logits := l.Scratch(ir.F32, t*e)
	matmul(l, matProduct{x: l.Buf(o.Args[0]), w: l.Buf(o.Args[1]), y: logits, m: t, n: e, k: x[1]})
	in := []Ref{logits, l.Buf(o.Args[2])} // bias, or the table of ids
	touched := map[Ref]int64{}
	if hash {
		in = append(in, l.Buf(o.Args[3]))
		touched[in[1]] = in[1].DT.Bytes(t * n)
	}
	l.Launch(Launch{
		Name: o.Def.Name, Spec: fmt.Sprintf("e%d k%d scale%g", e, n, scale), Grid: t, Work: int64(t * e * (n + 32)),
		In: in, Out: []Ref{l.Buf(o.Results[0]), l.Buf(o.Results[1])}, Touched: touched,
		Body: func(k *kernel.K, b []*kernel.Buf, _ []kernel.V) {
			logit := b[0].At(k.Mul(k.Group(), k.Int(e)))
			ids, weights := b[len(b)-2].At(k.Mul(k.Group(), k.Int(n))), b[len(b)-1].At(k.Mul(k.Group(), k.Int(n)))
			score, biased := k.Shared(ir.F32, e), k.Shared(ir.F32, e)
			k.Lanes(k.Int(e), func(i kernel.V) {
				v := logit.Load(i)
				soft := k.Convert(k.Log1pD(k.ExpD(k.Convert(v, kernel.F64))), kernel.F32)
				s := k.Sqrt(k.Select(k.Cmp(kernel.GT, v, k.Float(20)), v, soft))
				score.Store(i, s)
				if !hash {
					biased.Store(i, k.Add(s, b[1].Load(i)))
				}
			})
			k.Barrier()
			chosen, picked := make([]kernel.V, n), make([]kernel.V, n)
			var token, known kernel.V
			if hash {
				token = b[2].Load(k.Group())
				known = k.Cmp(kernel.GE, token, k.Int32(0))
				token = k.Convert(k.Select(known, token, k.Int32(0)), kernel.I64) // some row that can be read
			}
			for j := range chosen {
				if hash { // token -1 reads a row of zeros
					id := k.Convert(b[1].Load(k.Add(k.Mul(token, k.Int(n)), k.Int(j))), kernel.I32)
					chosen[j] = k.Select(known, id, k.Int32(0))
				} else {
					chosen[j] = pickBest(k, biased, e)
				}
				got := k.Cmp(kernel.GE, chosen[j], k.Int32(0))
				picked[j] = k.Select(got, score.Load(k.Select(got, chosen[j], k.Int32(0))), k.Float(0))
			}
			sum := picked[0]
			for _, v := range picked[1:] {
				sum = k.Add(sum, v)
			}
			k.First(func() {
				for j := range chosen {
					ids.Store(k.Int(j), chosen[j])
					weights.Store(k.Int(j), k.Mul(k.Div(picked[j], sum), k.Float(scale)))
				}
			})
		},
	})
	return nil
}

// pickBest finds the largest of n scores, the lower index first, and removes it;
// -1 if only -inf and NaN are left. Every lane looks at all of them.
func pickBest(k *kernel.K, scores *kernel.Buf, n int) kernel.V {
	best, at := k.UniformVar(k.Float(math.Inf(-1))), k.UniformVar(k.Int32(-1))
	k.For(k.Int(0), k.Int(n), 1, func(i kernel.V) {
		v := scores.Load(i)
		better := k.Cmp(kernel.GT, v, best.Get())
		best.Set(k.Select(better, v, best.Get()))
		at.Set(k.Select(better, k.Convert(i, kernel.I32), at.Get()))
	})
	id := at.Get()
	k.Barrier()
	k.If(k.Cmp(kernel.GE, id, k.Int32(0)), func() {
		k.First(func() { scores.Store(id, k.Float(math.Inf(-1))) })
	})
	k.Barrier()
	return id
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

// expertActBlock is the activation block between the experts' products.
const expertActBlock = 128

func lowerExpert(l Lowering, o *ir.Op) error {
	x, w1 := dims(o.Args[0]), dims(o.Args[1])
	t, d, inner := x[0], x[1], w1[0]
	xq := activations(l, o, t*d)
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
	xq := activations(l, o, t*d)
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
