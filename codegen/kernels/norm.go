package kernels

import (
	"fmt"

	"github.com/kiln-project/kiln/codegen/kernel"
	"github.com/kiln-project/kiln/ir"
)

func init() {
	register(
		&Form{Name: "rms_norm", Op: "rms_norm", Match: always, Lower: lowerRMSNorm, Joins: true},
		&Form{Name: "head_rms_norm", Op: "head_rms_norm", Match: always, Lower: lowerHeadRMSNorm, Joins: true},
	)
}

// lowerRMSNorm: one group per row.
func lowerRMSNorm(l Lowering, o *ir.Op) error {
	shape := dims(o.Args[0])
	d := shape[len(shape)-1]
	eps := o.Float("eps")
	rows := product(shape) / d
	l.Launch(Launch{
		Name: "rms_norm", Spec: fmt.Sprintf("d%d eps%g", d, eps), Grid: rows, Work: int64(rows * d * 2),
		In: []Ref{l.Buf(o.Args[0]), l.Buf(o.Args[1])}, Out: []Ref{l.Buf(o.Results[0])},
		Body: func(k *kernel.K, b []*kernel.Buf, _ []kernel.V) {
			row := k.Mul(k.Group(), k.Int(d))
			rmsNorm(k, b[0].At(row), b[1], d, eps, b[2].At(row).Store)
		},
	})
	return nil
}

// rmsNorm gives the elements of the norm of a row, not rounded yet, to store. It
// may store to x: a lane writes what it read itself.
func rmsNorm(k *kernel.K, x, w *kernel.Buf, d int, eps float64, store func(i, v kernel.V)) {
	row := newLaneRow(k, d, x, w)
	r := rmsScale(k, row, eps)
	row.each(func(i kernel.V, element func(int) kernel.V) {
		store(i, k.Mul(element(1), k.Mul(element(0), r)))
	})
}

// lowerHeadRMSNorm: one group per head; every step is rounded to bf16.
func lowerHeadRMSNorm(l Lowering, o *ir.Op) error {
	shape := dims(o.Args[0])
	d := shape[2]
	eps := o.Float("eps")
	n := shape[0] * shape[1]
	l.Launch(Launch{
		Name: "head_rms_norm", Spec: fmt.Sprintf("d%d eps%g", d, eps), Grid: n, Work: int64(n * d * 4),
		In: []Ref{l.Buf(o.Args[0])}, Out: []Ref{l.Buf(o.Results[0])},
		Body: func(k *kernel.K, b []*kernel.Buf, _ []kernel.V) {
			at := k.Mul(k.Group(), k.Int(d))
			headRMSNorm(k, b[0].At(at), d, eps, b[1].At(at).Store)
		},
	})
	return nil
}

// rmsScale is 1/sqrt(mean(x^2) + eps) of a row's first buffer, in f32.
func rmsScale(k *kernel.K, row *laneRow, eps float64) kernel.V {
	acc := k.Var(k.Float(0))
	row.each(func(_ kernel.V, element func(int) kernel.V) {
		v := element(0)
		acc.Set(k.FMA(v, v, acc.Get()))
	})
	mean := k.Div(k.Sum(acc.Get()), k.Float(float64(row.d)))
	return k.Rsqrt(k.Add(mean, k.Float(eps)))
}

// headRMSNorm gives the elements of the norm of a head, not rounded yet, to store. Every
// step before is rounded to bf16.
func headRMSNorm(k *kernel.K, x *kernel.Buf, d int, eps float64, store func(i, v kernel.V)) {
	row, acc := newLaneRow(k, d, x), k.Var(k.Float(0))
	row.each(func(_ kernel.V, element func(int) kernel.V) {
		v := element(0)
		acc.Set(k.Add(acc.Get(), k.RoundBF16(k.Mul(v, v))))
	})
	u := k.RoundBF16(k.Div(k.Sum(acc.Get()), k.Float(float64(d))))
	s := k.RoundBF16(k.Rsqrt(k.RoundBF16(k.Add(u, k.Float(eps)))))
	row.each(func(i kernel.V, element func(int) kernel.V) { store(i, k.Mul(element(0), s)) })
}
