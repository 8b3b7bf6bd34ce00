package kernels

import (
	"fmt"
	"math"

	"github.com/kiln-project/kiln/codegen/kernel"
	"github.com/kiln-project/kiln/codegen/target"
	"github.com/kiln-project/kiln/ir"
)

func init() {
	for _, op := range []string{"rope_row", "rms_norm_rope", "head_rms_norm_rope"} {
		register(&Form{Name: op, Op: op, Match: matchRopeRow, Lower: lowerRopeRow})
	}
}

func matchRopeRow(o *ir.Op, t *target.Target) string {
	if why := matchHadamard(o, t); why != "" {
		return why // the row lies in shared memory, as hadamard's
	}
	switch {
	case o.DType("to") == ir.BF16:
		return ""
	case o.Bool("packed"):
		return matchPackRows(o, t)
	}
	return matchFakeQuant(o, t)
}

// lowerRopeRow: one group per row, which stays in shared memory between the steps.
// Every step rounds as its own op does.
func lowerRopeRow(l Lowering, o *ir.Op) error {
	x, pairs := dims(o.Args[0]), dims(o.Args[1])[1]
	d := x[len(x)-1]
	perToken := product(x[1 : len(x)-1])
	n := product(x) / d
	in := []Ref{l.Buf(o.Args[0]), l.Buf(o.Args[1]), l.Buf(o.Args[2])}
	if o.Def.Name == "rms_norm_rope" {
		in = append(in, l.Buf(o.Args[3]))
	}
	inverse, hadamard, to := o.Bool("inverse"), o.Bool("hadamard"), o.DType("to")
	packed := o.Bool("packed")
	l.Launch(Launch{
		Name: o.Def.Name, Spec: fmt.Sprintf("d%d pairs%d per%d%s", d, pairs, perToken, attrSpec(o)), Grid: n, Work: int64(n * d * 24),
		In: in, Out: []Ref{l.Buf(o.Results[0])},
		Body: func(k *kernel.K, b []*kernel.Buf, _ []kernel.V) {
			at := k.Mul(k.Group(), k.Int(d))
			token := k.Mul(k.UDiv(k.Group(), k.Int(perToken)), k.Int(pairs))
			x, cos, sin := b[0].At(at), b[1].At(token), b[2].At(token)
			row := k.Shared(ir.F32, d)
			switch o.Def.Name {
			case "rms_norm_rope":
				rmsNorm(k, x, b[3], d, o.Float("eps"), func(i, v kernel.V) { row.Store(i, k.RoundBF16(v)) })
			case "head_rms_norm_rope":
				read := newLaneRow(k, d, x)
				s := headRMSScale(k, read, o.Float("eps"))
				read.each(func(i kernel.V, element func(int) kernel.V) { row.Store(i, k.RoundBF16(k.Mul(element(0), s))) })
			default:
				k.Lanes(k.Int(d), func(i kernel.V) { row.Store(i, x.Load(i)) })
			}
			k.Barrier()
			rotatePairs(k, row, cos, sin, d, pairs, inverse, func(i, v kernel.V) { row.Store(i, k.RoundBF16(v)) })
			k.Barrier()
			if hadamard {
				butterflies(k, row, d)
				scale := k.Float(hadamardScale(d))
				k.Lanes(k.Int(d), func(i kernel.V) { row.Store(i, k.RoundBF16(k.Mul(k.RoundBF16(row.Load(i)), scale))) })
				k.Barrier()
			}
			y, from := b[len(b)-1].At(at), 0
			switch {
			case packed:
				format, f := packedResult(o, k.T)
				packRow(k, row, b[len(b)-1].At(k.Mul(k.Group(), k.Int(format.Bytes()))), format, f)
				return
			case to != ir.BF16:
				f, _ := codeFormatOf(to, k.T)
				from = o.Int("dims")
				k.For(k.Int(0), k.Int(from), o.Int("block"), func(at kernel.V) { quantBlock(k, row.At(at), y.At(at), o.Int("block"), f) })
			}
			if from < d {
				k.Lanes(k.Int(d-from), func(i kernel.V) {
					i = k.Add(i, k.Int(from))
					y.Store(i, row.Load(i))
				})
			}
		},
	})
	return nil
}

// hadamardScale is n^-0.5 as f32.
func hadamardScale(n int) float64 { return float64(float32(math.Pow(float64(n), -0.5))) }
