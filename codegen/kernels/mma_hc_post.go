package kernels

import (
	"fmt"

	"github.com/kiln-project/kiln/codegen/kernel"
	"github.com/kiln-project/kiln/codegen/target"
	"github.com/kiln-project/kiln/ir"
)

// hc_post alone on NVIDIA's GPUs: a lane makes matrixRun elements of all streams, and
// lanes follow each other through all tokens.

func matchWarpHCPost(o *ir.Op, _ *target.Target) string {
	h := dims(o.Args[1])
	if why := fewStreams(h[1]); why != "" {
		return why
	}
	if h[2]%matrixRun != 0 {
		return fmt.Sprintf("%d elements are no multiple of %d", h[2], matrixRun)
	}
	return ""
}

func lowerWarpHCPost(l Lowering, o *ir.Op) error {
	h := dims(o.Args[1])
	t, c, d := h[0], h[1], h[2]
	runs := d / matrixRun
	l.Launch(Launch{
		Name: "hc_post", Spec: fmt.Sprintf("c%d d%d", c, d), Grid: ceilDiv(t*runs, l.Target().Lanes), Work: int64(t * c * c * d),
		In: []Ref{l.Buf(o.Args[0]), l.Buf(o.Args[1]), l.Buf(o.Args[2]), l.Buf(o.Args[3])}, Out: []Ref{l.Buf(o.Results[0])}, Ints: []int{t * runs},
		Body: func(k *kernel.K, b []*kernel.Buf, ints []kernel.V) {
			p := &hcProduct{hcPreShape: hcPreShape{c: c, d: d}}
			i := k.Add(k.Mul(k.Group(), k.Int(k.T.Lanes)), k.Lane())
			k.If(k.Cmp(kernel.LT, i, ints[0]), func() {
				token, element := k.UDiv(i, k.Int(runs)), k.Mul(k.URem(i, k.Int(runs)), k.Int(matrixRun))
				for j, x := range p.post(k, b[:4], token, element) {
					b[4].StoreVec(k.Add(k.Mul(k.Add(k.Mul(token, k.Int(c)), k.Int(j)), k.Int(d)), element), x)
				}
			})
		},
	})
	return nil
}
