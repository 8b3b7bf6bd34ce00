package kernels

import (
	"fmt"

	"github.com/kiln-project/kiln/codegen/kernel"
	"github.com/kiln-project/kiln/ir"
)

func init() {
	register(&Form{Name: "generic_hadamard_matrix", Op: "hadamard_matrix", Match: always, Lower: lowerHadamardMatrix})
}

// lowerHadamardMatrix makes the matrix in the step: the decomposition of hadamard
// comes too late for the pack graph.
func lowerHadamardMatrix(l Lowering, o *ir.Op) error {
	n := o.Int("n")
	l.Launch(Launch{
		Name: "hadamard_matrix", Spec: fmt.Sprintf("n%d", n), Grid: ceilDiv(n*n, chunk), Work: int64(n * n * 16),
		Out: []Ref{l.Buf(o.Results[0])},
		Body: func(k *kernel.K, b []*kernel.Buf, _ []kernel.V) {
			from := k.Mul(k.Group(), k.Int(chunk))
			left := k.Sub(k.Int(n*n), from)
			count := k.Select(k.Cmp(kernel.LT, left, k.Int(chunk)), left, k.Int(chunk))
			k.Lanes(count, func(i kernel.V) {
				at := k.Add(i, from)
				ones := k.And(k.UDiv(at, k.Int(n)), k.URem(at, k.Int(n)))
				for half := 32; half > 0; half /= 2 { // bit 0 becomes the parity of all
					ones = k.Xor(ones, k.LShr(ones, k.Int(half)))
				}
				odd := k.And(ones, k.Int(1))
				b[0].Store(at, k.Convert(k.Sub(k.Int(1), k.Add(odd, odd)), kernel.F32))
			})
		},
	})
	return nil
}
