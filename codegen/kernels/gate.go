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
		&Form{Name: "gate_mfma", Op: "gate", Match: onMFMA(matchMatrixGate), Lower: lowerGate(matrixLogits)},
		&Form{Name: "gate_mma", Op: "gate", Match: onMMA(matchMatrixGate), Lower: lowerGate(matrixLogits)},
		&Form{Name: "hash_gate_mfma", Op: "hash_gate", Match: onMFMA(matchMatrixGate), Lower: lowerGate(matrixLogits)},
		&Form{Name: "hash_gate_mma", Op: "hash_gate", Match: onMMA(matchMatrixGate), Lower: lowerGate(matrixLogits)},
		&Form{Name: "gate", Op: "gate", Match: matchGate, Lower: lowerGate(lanesLogits)},
		&Form{Name: "hash_gate", Op: "hash_gate", Match: matchGate, Lower: lowerGate(lanesLogits)},
	)
}

func matchGate(o *ir.Op, _ *target.Target) string {
	if e := dims(o.Args[1])[0]; 8*e > maxShared {
		return fmt.Sprintf("scores of %d experts do not fit shared memory", e)
	}
	return ""
}

// matchMatrixGate takes a weight that matrix units take.
func matchMatrixGate(o *ir.Op, t *target.Target) string {
	if why := matchGate(o, t); why != "" {
		return why
	}
	return matchMatrixLinear(o, t)
}

// lanesLogits and matrixLogits are y = x w^T of a gate, f32.
func lanesLogits(l Lowering, o *ir.Op, y Ref) {
	x := dims(o.Args[0])
	matmul(l, matProduct{x: l.Buf(o.Args[0]), w: l.Buf(o.Args[1]), y: y, m: x[0], n: dims(o.Args[1])[0], k: x[1]})
}

func matrixLogits(l Lowering, o *ir.Op, y Ref) {
	p := matrixLaunch{m: dims(o.Args[0])[0], groups: 1, x: matrixOperand{x: l.Buf(o.Args[0])}, y: []Ref{y}}
	p.weights(l, dims(o.Args[1])[0], o.Args[1])
	p.launch(l)
}

// lowerGate has product make the scores; then one group per token chooses and
// normalises.
func lowerGate(product func(l Lowering, o *ir.Op, y Ref)) func(l Lowering, o *ir.Op) error {
	return func(l Lowering, o *ir.Op) error { return lowerGateOf(l, o, product) }
}

func lowerGateOf(l Lowering, o *ir.Op, product func(l Lowering, o *ir.Op, y Ref)) error {
	x, w := dims(o.Args[0]), dims(o.Args[1])
	t, e, n := x[0], w[0], o.Int("k")
	scale := o.Float("scale")
	hash := o.Def.Name == "hash_gate"
	logits := l.Scratch(ir.F32, t*e)
	product(l, o, logits)
	in := []Ref{logits, l.Buf(o.Args[2])} // bias, or the table of ids
	touched := map[Ref]int64{}
	if hash {
		in = append(in, l.Buf(o.Args[3]))
		touched[in[1]] = in[1].DT.Bytes(t * n)
	}
	l.Launch(Launch{
		Name: o.Def.Name, Spec: fmt.Sprintf("e%d k%d scale%g", e, n, scale), Grid: t, Work: int64(t * e * (n + 32)), Joins: true,
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
			pick := pickBest
			if k.T.Kind == target.NVPTX {
				pick = pickBestTogether
			}
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
					chosen[j] = pick(k, biased, e)
				}
				got := k.Cmp(kernel.GE, chosen[j], k.Int32(0))
				picked[j] = k.Select(got, score.Load(k.Select(got, chosen[j], k.Int32(0))), k.Float(0))
			}
			sum := picked[0]
			for _, v := range picked[1:] {
				sum = k.Add(sum, v)
			}
			if k.T.Kind == target.AMDGPU { // a lane for each: they lie together
				id, score := chosen[0], picked[0]
				for j := range chosen {
					here := k.Cmp(kernel.EQ, k.Lane(), k.Int(j))
					id, score = k.Select(here, chosen[j], id), k.Select(here, picked[j], score)
				}
				k.If(k.Cmp(kernel.LT, k.Lane(), k.Int(n)), func() {
					ids.Store(k.Lane(), id)
					weights.Store(k.Lane(), k.Mul(k.Div(score, sum), k.Float(scale)))
				})
				return
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
	removeScore(k, scores, id)
	return id
}

// pickBestTogether is pickBest by lanes that look at some of the scores each.
func pickBestTogether(k *kernel.K, scores *kernel.Buf, n int) kernel.V {
	const none = 1<<31 - 1
	best, at := k.Var(k.Float(math.Inf(-1))), k.Var(k.Int32(none))
	k.Lanes(k.Int(n), func(i kernel.V) {
		v := scores.Load(i)
		better := k.Cmp(kernel.GT, v, best.Get())
		best.Set(k.Select(better, v, best.Get()))
		at.Set(k.Select(better, k.Convert(i, kernel.I32), at.Get()))
	})
	largest := k.Cmp(kernel.EQ, best.Get(), k.MaxOf(best.Get()))
	id := k.Reduce(k.Select(largest, at.Get(), k.Int32(none)), k.Min)
	id = k.Select(k.Cmp(kernel.EQ, id, k.Int32(none)), k.Int32(-1), id)
	removeScore(k, scores, id)
	return id
}

// removeScore has no later pick see a score, if there is one of the index.
func removeScore(k *kernel.K, scores *kernel.Buf, id kernel.V) {
	k.Barrier()
	k.If(k.Cmp(kernel.GE, id, k.Int32(0)), func() {
		k.First(func() { scores.Store(id, k.Float(math.Inf(-1))) })
	})
	k.Barrier()
}
