package kernels

import (
	"fmt"

	"github.com/kiln-project/kiln/codegen/kernel"
	"github.com/kiln-project/kiln/codegen/target"
	"github.com/kiln-project/kiln/ir"
)

func init() {
	register(
		&Form{Name: "hc_fused_mfma", Op: "hc_fused", Match: onMFMA(matchMatrixHCFused), Lower: lowerMatrixHCFused, Liberty: "two-bf16-weights"},
		&Form{Name: "hc_fused_mma", Op: "hc_fused", Match: onMMA(matchMatrixHCFused), Lower: lowerMatrixHCFused, Liberty: "two-bf16-weights"},
		&Form{Name: "hc_fused_quant_mfma", Op: "hc_fused_quant", Match: onMFMA(matchMatrixHCFused), Lower: lowerMatrixHCFused, Liberty: "two-bf16-weights"},
		&Form{Name: "hc_fused_quant_mma", Op: "hc_fused_quant", Match: onMMA(matchMatrixHCFused), Lower: lowerMatrixHCFused, Liberty: "two-bf16-weights"},
		&Form{Name: "hc_fused", Op: "hc_fused", Match: matchHCFused, Lower: lowerHCFused},
		&Form{Name: "hc_fused_quant", Op: "hc_fused_quant", Match: matchHCFused, Lower: lowerHCFused},
	)
}

func matchHCFused(o *ir.Op, _ *target.Target) string {
	h := dims(o.Args[1])
	if why := fewStreams(h[1]); why != "" || len(o.Results) == 4 {
		return why
	}
	return matchBlockScales(h[2], o.Int("act_block"), 0)
}

// lowerHCFused: one group per token does what the groups of hc_post, hc_pre,
// rms_norm and, for hc_fused_quant, the quantisation do for it, in their order and with their code, so that the results have
// the bits of those launches: what goes from one to the next goes through
// memory, rounded, as between launches.
func lowerHCFused(l Lowering, o *ir.Op) error {
	s, t := hcPreShapeOf(o, o.Args[1]), dims(o.Args[1])[0]
	c, d, rmsEps := s.c, s.d, o.Float("rms_eps")
	in, out := make([]Ref, len(o.Args)), make([]Ref, len(o.Results))
	for i, v := range o.Args {
		in[i] = l.Buf(v)
	}
	for i, v := range o.Results {
		out[i] = l.Buf(v)
	}
	spec, block := fmt.Sprintf("%s,%g", s.spec(), rmsEps), 0
	if len(out) == 5 {
		block = o.Int("act_block")
		spec = fmt.Sprintf("%s b%d", spec, block)
	}
	f, _ := codeFormatOf(ir.F8E4M3, l.Target())
	l.Launch(Launch{
		Name: o.Def.Name, Spec: spec, Grid: t, Work: s.work(t) + int64(t*c*c*d) + int64(t*d*2),
		In: in, Out: out,
		Body: func(k *kernel.K, b []*kernel.Buf, _ []kernel.V) {
			at := func(i, n int) *kernel.Buf { return b[i].At(k.Mul(k.Group(), k.Int(n))) }
			residual, hidden := at(8, c*d), at(9, d)
			hcPostRow(k, at(0, d), at(1, c*d), at(2, c), at(3, c*c), residual, c, d)
			k.Barrier() // lanes read streams that others wrote
			s.row(k, residual, b[4], b[5], b[6], hidden, at(10, c), at(11, c*c))
			rmsNorm(k, hidden, b[7], d, rmsEps, hidden.Store) // y's elements stay with their lanes
			if block > 0 {
				k.Barrier()
				quantRow(k, hidden, at(12, d), d, block, f)
			}
		},
	})
	return nil
}
