package kernels

import (
	"fmt"

	"github.com/kiln-project/kiln/codegen/kernel"
	"github.com/kiln-project/kiln/ir"
)

// lowerMoE multiplies each (token, choice) pair with its expert's weights and
// adds each token's results in ascending expert id: quantise, gate and up and
// SwiGLU, quantise, down and sum.
func lowerMoE(l Lowering, o *ir.Op) error {
	x, w1, choices := dims(o.Args[0]), dims(o.Args[1]), dims(o.Args[4])[1]
	t, d, inner := x[0], x[1], w1[1]
	pairs := t * choices
	xq := activations(l, o, t*d)
	ids := l.Buf(o.Args[4])
	a, aq := l.Scratch(ir.BF16, pairs*inner), l.Scratch(ir.F32, pairs*inner)
	expertGateUp(l, o, xq, a, pairs, choices)
	actQuant(l, a, aq, pairs*inner, expertActBlock)
	var shared []Ref
	for _, v := range o.Args[6:] {
		shared = append(shared, l.Buf(v))
	}
	expertDown(l, o.Args[3], ids, aq, shared, l.Buf(o.Results[0]), t, choices)
	return nil
}

// chosenPair is choice j of the token whose choices begin at from: the expert's id
// and the weight. An expert that was chosen twice counts once, with both weights,
// at its first choice; the id of the other is -1.
func chosenPair(k *kernel.K, ids, weights *kernel.Buf, from, j kernel.V, choices int) (id, weight kernel.V) {
	own := ids.Load(k.Add(from, j))
	id, weight = own, weights.Load(k.Add(from, j))
	for i := range choices {
		at := k.Add(from, k.Int(i))
		same := k.Cmp(kernel.EQ, ids.Load(at), own)
		id = k.Select(k.And(same, k.Cmp(kernel.LT, k.Int(i), j)), k.Int32(-1), id)
		later := k.And(same, k.Cmp(kernel.GT, k.Int(i), j))
		weight = k.Add(weight, k.Select(later, weights.Load(at), k.Float(0)))
	}
	return id, weight
}

// noExpert is above all ids.
const noExpert = 1<<31 - 1

// nextExpert is the least id above last of a token's choices, which begin at from, or
// noExpert, and the first choice that has it.
func nextExpert(k *kernel.K, ids *kernel.Buf, from, last kernel.V, choices int) (id, choice kernel.V) {
	id, choice = k.Int32(noExpert), k.Int(0)
	for i := choices - 1; i >= 0; i-- {
		v := ids.Load(k.Add(from, k.Int(i)))
		least := k.And(k.Cmp(kernel.GT, v, last), k.Cmp(kernel.LE, v, id))
		id, choice = k.Select(least, v, id), k.Select(least, k.Int(i), choice)
	}
	return id, choice
}

// eachExpert runs body for the experts that a token chose, in ascending id, with the
// first choice of each.
func eachExpert(k *kernel.K, ids *kernel.Buf, from kernel.V, choices int, body func(id, choice kernel.V)) {
	last := k.UniformVar(k.Int32(-1))
	k.For(k.Int(0), k.Int(choices), 1, func(kernel.V) {
		id, choice := nextExpert(k, ids, from, last.Get(), choices)
		k.If(k.Cmp(kernel.NE, id, k.Int32(noExpert)), func() {
			body(id, choice)
			last.Set(id)
		})
	})
}

// rankExperts has some lanes call each with the experts that a token chose: with how many
// of them have lower ids, the id, and the first choice that has it. It returns how many
// there are, i32. GPU only.
func rankExperts(k *kernel.K, ids *kernel.Buf, from kernel.V, choices int, each func(rank, id, choice kernel.V)) kernel.V {
	one := func(cond kernel.V) kernel.V { return k.Convert(cond, kernel.I32) }
	own := k.Select(k.Cmp(kernel.LT, k.Lane(), k.Int(choices)), k.Lane(), k.Int(0))
	id, rank, count, first := ids.Load(k.Add(from, own)), k.Int32(0), k.Int32(0), k.Cmp(kernel.LT, k.Lane(), k.Int(choices))
	var all []kernel.V
	for i := range choices {
		v := ids.Load(k.Add(from, k.Int(i)))
		counts := k.Cmp(kernel.GE, v, k.Int32(0))
		for _, before := range all {
			counts = k.And(counts, k.Cmp(kernel.NE, v, before))
		}
		all = append(all, v)
		count = k.Add(count, one(counts))
		rank = k.Add(rank, one(k.And(counts, k.Cmp(kernel.LT, v, id))))
		first = k.And(first, k.Not(k.And(k.Cmp(kernel.EQ, v, id), k.Cmp(kernel.LT, k.Int(i), own))))
	}
	k.If(k.And(first, k.Cmp(kernel.GE, id, k.Int32(0))), func() { each(k.Convert(rank, kernel.I64), id, own) })
	return count
}

// expertTileN is the number of weight rows that one group of an expert product
// multiplies.
const expertTileN = 4

// expertWeight is a stack of block-scaled matrices [E,N,K].
type expertWeight struct {
	codes, scales        Ref
	block                [2]int
	n, k                 int
	scaleRows, scaleCols int
	touched              map[Ref]int64
}

// expertWeightOf describes an operand of which at most chosen matrices are read.
func expertWeightOf(l Lowering, v *ir.Value, chosen int) expertWeight {
	s, block := dims(v), v.Type.Quant.Block
	w := expertWeight{codes: l.Buf(v), scales: l.Scales(v), block: block, n: s[1], k: s[2], scaleRows: ceilDiv(s[1], block[0]), scaleCols: ceilDiv(s[2], block[1])}
	chosen = min(s[0], chosen)
	w.touched = map[Ref]int64{w.codes: w.codes.DT.Bytes(chosen * w.n * w.k), w.scales: int64(chosen * w.scaleRows * w.scaleCols)}
	return w
}

// tiles is the number of groups for all rows of a matrix.
func (w expertWeight) tiles() int { return ceilDiv(w.n, expertTileN) }

// spec is what the code of a product depends on.
func (w expertWeight) spec() string { return fmt.Sprintf("n%d k%d block%v", w.n, w.k, w.block) }

// cols are the rows of the matrix that tile n0 multiplies; those beyond the last
// repeat it.
func (w expertWeight) cols(k *kernel.K, n0 kernel.V) []kernel.V {
	out := make([]kernel.V, expertTileN)
	for j := range out {
		c := k.Add(n0, k.Int(j))
		out[j] = k.Select(k.Cmp(kernel.LT, c, k.Int(w.n)), c, k.Int(w.n-1))
	}
	return out
}

// dot multiplies x with some rows of matrix id of each weight. The sum over k has
// the order that matmul has.
func (w expertWeight) dot(k *kernel.K, x *kernel.Buf, id kernel.V, cols []kernel.V, codes, scales []*kernel.Buf) [][]kernel.V {
	rows, blocks := make([][]*kernel.Buf, len(codes)), make([][]*kernel.Buf, len(codes))
	acc := make([][]*kernel.Var, len(codes))
	for m := range codes {
		for _, c := range cols {
			rows[m] = append(rows[m], codes[m].At(k.Mul(k.Add(k.Mul(id, k.Int(w.n)), c), k.Int(w.k))))
			row := k.Add(k.Mul(id, k.Int(w.scaleRows)), k.UDiv(c, k.Int(w.block[0])))
			blocks[m] = append(blocks[m], scales[m].At(k.Mul(row, k.Int(w.scaleCols))))
			acc[m] = append(acc[m], k.Var(k.Float(0)))
		}
	}
	k.For(k.Int(0), k.Int(w.k), w.block[1], func(from kernel.V) {
		part := make([][]*kernel.Var, len(codes))
		for m := range part {
			for range cols {
				part[m] = append(part[m], k.Var(k.Float(0)))
			}
		}
		k.Lanes(k.Int(w.block[1]), func(i kernel.V) {
			i = k.Add(i, from)
			v := x.Load(i)
			for m := range part {
				for j, p := range part[m] {
					p.Set(k.FMA(v, rows[m][j].LoadWeight(i), p.Get()))
				}
			}
		})
		for m := range part {
			for j, p := range part[m] {
				s := blocks[m][j].Load(k.UDiv(from, k.Int(w.block[1])))
				acc[m][j].Set(k.FMA(p.Get(), s, acc[m][j].Get()))
			}
		}
	})
	sums := make([][]kernel.V, len(codes))
	for m := range acc {
		for _, a := range acc[m] {
			sums[m] = append(sums[m], k.Sum(a.Get()))
		}
	}
	return sums
}

// expertGateUp is a[p,:] = SwiGLU of both products of pair p, zeros for a pair
// that does not count.
func expertGateUp(l Lowering, o *ir.Op, xq, a Ref, pairs, choices int) {
	w1, w3 := expertWeightOf(l, o.Args[1], pairs), expertWeightOf(l, o.Args[2], pairs)
	limit, tiles := o.Float("limit"), w1.tiles()
	touched := w1.touched
	for r, n := range w3.touched {
		touched[r] = n
	}
	l.Launch(Launch{
		Name: "expert_gate_up", Spec: fmt.Sprintf("%s choices%d limit%g", w1.spec(), choices, limit), Grid: pairs * tiles,
		Work: 2 * int64(pairs) * int64(w1.n) * int64(w1.k), Flops: 4 * int64(pairs) * int64(w1.n) * int64(w1.k), Touched: touched,
		In: []Ref{l.Buf(o.Args[4]), l.Buf(o.Args[5]), xq, w1.codes, w1.scales, w3.codes, w3.scales}, Out: []Ref{a},
		Body: func(k *kernel.K, b []*kernel.Buf, _ []kernel.V) {
			pair := k.UDiv(k.Group(), k.Int(tiles))
			n0 := k.Mul(k.URem(k.Group(), k.Int(tiles)), k.Int(expertTileN))
			token := k.UDiv(pair, k.Int(choices))
			id32, weight := chosenPair(k, b[0], b[1], k.Mul(token, k.Int(choices)), k.URem(pair, k.Int(choices)), choices)
			id := k.Convert(id32, kernel.I64)
			store := func(j int, v kernel.V) {
				col := k.Add(n0, k.Int(j))
				k.If(k.Cmp(kernel.LT, col, k.Int(w1.n)), func() {
					k.First(func() { b[7].Store(k.Add(k.Mul(pair, k.Int(w1.n)), col), v) })
				})
			}
			counts := k.Cmp(kernel.GE, id, k.Int(0))
			k.If(counts, func() {
				sums := w1.dot(k, b[2].At(k.Mul(token, k.Int(w1.k))), id, w1.cols(k, n0), []*kernel.Buf{b[3], b[5]}, []*kernel.Buf{b[4], b[6]})
				for j := range expertTileN {
					store(j, swigluOf(k, k.RoundBF16(sums[0][j]), k.RoundBF16(sums[1][j]), weight, limit))
				}
			})
			k.If(k.Not(counts), func() {
				for j := range expertTileN {
					store(j, k.Float(0))
				}
			})
		},
	})
}

// expertDown is y[t,:], the sum of the products of token t's pairs, each rounded
// to bf16, in ascending expert id; pairs that do not count add nothing. What is
// shared, if anything, is added to the sum.
func expertDown(l Lowering, w2 *ir.Value, ids, aq Ref, shared []Ref, y Ref, t, choices int) {
	w := expertWeightOf(l, w2, t*choices)
	tiles := w.tiles()
	l.Launch(Launch{
		Name: "expert_down", Spec: fmt.Sprintf("%s choices%d shared%d", w.spec(), choices, len(shared)), Grid: t * tiles,
		Work: int64(t*choices) * int64(w.n) * int64(w.k), Flops: 2 * int64(t*choices) * int64(w.n) * int64(w.k), Touched: w.touched,
		In: append([]Ref{ids, aq, w.codes, w.scales}, shared...), Out: []Ref{y},
		Body: func(k *kernel.K, b []*kernel.Buf, _ []kernel.V) {
			token := k.UDiv(k.Group(), k.Int(tiles))
			n0 := k.Mul(k.URem(k.Group(), k.Int(tiles)), k.Int(expertTileN))
			from := k.Mul(token, k.Int(choices))
			cols := w.cols(k, n0)
			total := make([]*kernel.Var, expertTileN)
			for j := range total {
				total[j] = k.UniformVar(k.Float(0))
			}
			eachExpert(k, b[0], from, choices, func(id, at kernel.V) {
				x := b[1].At(k.Mul(k.Add(from, at), k.Int(w.k)))
				sums := w.dot(k, x, k.Convert(id, kernel.I64), cols, b[2:3], b[3:4])
				for j := range total {
					total[j].Set(k.Add(total[j].Get(), k.RoundBF16(sums[0][j])))
				}
			})
			for j := range total {
				col := k.Add(n0, k.Int(j))
				k.If(k.Cmp(kernel.LT, col, k.Int(w.n)), func() {
					at, sum := k.Add(k.Mul(token, k.Int(w.n)), col), total[j].Get()
					for i := range shared {
						sum = k.Add(sum, b[4+i].Load(at))
					}
					k.First(func() { b[len(b)-1].Store(at, sum) })
				})
			}
		},
	})
}
