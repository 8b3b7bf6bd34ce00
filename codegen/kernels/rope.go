package kernels

import (
	"fmt"

	"github.com/kiln-project/kiln/codegen/kernel"
	"github.com/kiln-project/kiln/ir"
)

func init() {
	register(&Form{Name: "rope", Op: "rope", Match: always, Lower: lowerRope, Joins: true})
}

// lowerRope: one group per vector of the last axis, lanes over the pairs.
func lowerRope(l Lowering, o *ir.Op) error {
	x, pairs := dims(o.Args[0]), dims(o.Args[1])[1]
	d := x[len(x)-1]
	perToken := product(x[1 : len(x)-1])
	inverse := o.Bool("inverse")
	n := product(x) / d
	l.Launch(Launch{
		Name: "rope", Spec: fmt.Sprintf("d%d pairs%d per%d inverse%v", d, pairs, perToken, inverse), Grid: n, Work: int64(n * d * 4),
		In: []Ref{l.Buf(o.Args[0]), l.Buf(o.Args[1]), l.Buf(o.Args[2])}, Out: []Ref{l.Buf(o.Results[0])},
		Body: func(k *kernel.K, b []*kernel.Buf, _ []kernel.V) {
			at := k.Mul(k.Group(), k.Int(d))
			token := k.Mul(k.UDiv(k.Group(), k.Int(perToken)), k.Int(pairs))
			x, y, cos, sin := b[0].At(at), b[3].At(at), b[1].At(token), b[2].At(token)
			if d > 2*pairs {
				k.Lanes(k.Int(d-2*pairs), func(i kernel.V) { y.Store(i, x.Load(i)) })
			}
			rotatePairs(k, x, cos, sin, d, pairs, inverse, y.Store)
		},
	})
	return nil
}

// rotatePairs rotates the last 2*pairs of d elements.
func rotatePairs(k *kernel.K, x, cos, sin *kernel.Buf, d, pairs int, inverse bool, store func(i, v kernel.V)) {
	k.Lanes(k.Int(pairs), func(i kernel.V) {
		even := k.Add(k.Mul(i, k.Int(2)), k.Int(d-2*pairs))
		odd := k.Add(even, k.Int(1))
		p, q, c, s := x.Load(even), x.Load(odd), cos.Load(i), sin.Load(i)
		if inverse {
			s = k.Neg(s)
		}
		store(even, k.Sub(k.Mul(p, c), k.Mul(q, s)))
		store(odd, k.Add(k.Mul(p, s), k.Mul(q, c)))
	})
}
