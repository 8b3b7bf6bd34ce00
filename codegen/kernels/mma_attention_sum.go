package kernels

import (
	"fmt"
	"math"

	"github.com/kiln-project/kiln/codegen/kernel"
)

// warpAttentionSum adds the parts of a token and head, as a group that has all of them
// does. All of them are read at once, which of them are there or not.
type warpAttentionSum struct{ h, d, parts int }

// maxHeldParts is how many parts a lane holds.
const maxHeldParts = 20

func (a *warpAttentionSum) spec() string { return fmt.Sprintf("h%d d%d parts%d", a.h, a.d, a.parts) }

func (a *warpAttentionSum) body(k *kernel.K, b []*kernel.Buf, _ []kernel.V) {
	acc, softmax, y := b[0], b[1], b[4]
	token, head := k.UDiv(k.Group(), k.Int(a.h)), k.URem(k.Group(), k.Int(a.h))
	count, sink := b[2].Load(token), b[3].Load(head)
	first := k.Add(k.Mul(token, k.Int(a.parts*a.h)), head)
	place := func(part int) kernel.V { return k.Add(first, k.Int(part*a.h)) }
	const run = 2
	mine := k.Mul(k.Lane(), k.Int(run))
	own := k.Cmp(kernel.LT, mine, k.Int(a.d))
	element := k.Select(own, mine, k.Int(0))
	s, sums := newSoftmaxSum(k), [run]*kernel.Var{k.Var(k.Float(0)), k.Var(k.Float(0))}
	for from := 0; from < a.parts; from += maxHeldParts {
		var x, of []kernel.Vec
		for part := from; part < min(a.parts, from+maxHeldParts); part++ {
			of = append(of, k.AsF32(softmax.LoadVec(k.Mul(place(part), k.Int(2)), 2)))
			x = append(x, k.AsF32(acc.LoadVec(k.Add(k.Mul(place(part), k.Int(a.d)), element), run)))
		}
		k.Barrier() // or the compiler reads one after the other, to save registers
		for i := range x {
			there := k.Cmp(kernel.GT, count, k.Int32((from+i)*attentionPart))
			top := k.Select(there, k.At(of[i], 0), k.Float(math.Inf(-1)))
			old, add := s.add(top, k.Select(there, k.At(of[i], 1), k.Float(0)))
			for e, v := range sums {
				v.Set(k.Select(there, addScaled(k, v.Get(), old, k.At(x[i], e), add), v.Get()))
			}
		}
	}
	f := s.factor(sink, count)
	k.If(own, func() {
		y.StoreVec(k.Add(k.Mul(k.Group(), k.Int(a.d)), mine), k.MakeVec(k.PackBF16(k.Mul(sums[0].Get(), f), k.Mul(sums[1].Get(), f))))
	})
}
