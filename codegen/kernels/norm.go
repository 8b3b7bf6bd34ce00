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
	if i := rowPieces(k, d); i != nil {
		xs, ws, acc := loadPieces(x, i), loadPieces(w, i), k.Float(0)
		for _, v := range xs {
			acc = k.FMA(v, v, acc)
		}
		r := rmsOf(k, acc, d, eps)
		for j, v := range xs {
			store(i[j], k.Mul(ws[j], k.Mul(v, r)))
		}
		return
	}
	r := rmsScale(k, x, d, eps)
	k.Lanes(k.Int(d), func(i kernel.V) {
		store(i, k.Mul(w.Load(i), k.Mul(x.Load(i), r)))
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

// maxPieces bounds the elements of a row that a lane keeps in registers.
const maxPieces = 16

// rowPieces are a lane's elements of a row of d, in the order of Lanes, if every lane of a
// GPU has as many and they fit registers: their loads then wait for each other no more.
func rowPieces(k *kernel.K, d int) []kernel.V {
	if n := d / k.T.Lanes; !k.T.GPU() || d%k.T.Lanes != 0 || n > maxPieces {
		return nil
	}
	var i []kernel.V
	for from := 0; from < d; from += k.T.Lanes {
		i = append(i, k.Add(k.Lane(), k.Int(from)))
	}
	return i
}

func loadPieces(x *kernel.Buf, i []kernel.V) []kernel.V {
	var out []kernel.V
	for _, at := range i {
		out = append(out, x.Load(at))
	}
	return out
}

// rmsScale is 1/sqrt(mean(x^2) + eps) of d elements, in f32.
func rmsScale(k *kernel.K, x *kernel.Buf, d int, eps float64) kernel.V {
	acc := k.Var(k.Float(0))
	k.Lanes(k.Int(d), func(i kernel.V) {
		v := x.Load(i)
		acc.Set(k.FMA(v, v, acc.Get()))
	})
	return rmsOf(k, acc.Get(), d, eps)
}

// rmsOf is rmsScale of the lanes' sums of squares.
func rmsOf(k *kernel.K, squares kernel.V, d int, eps float64) kernel.V {
	mean := k.Div(k.Sum(squares), k.Float(float64(d)))
	return k.Rsqrt(k.Add(mean, k.Float(eps)))
}

// headRMSNorm gives the elements of the norm of a head, not rounded yet, to store. Every
// step before is rounded to bf16.
func headRMSNorm(k *kernel.K, x *kernel.Buf, d int, eps float64, store func(i, v kernel.V)) {
	add := func(sum, v kernel.V) kernel.V { return k.Add(sum, k.RoundBF16(k.Mul(v, v))) }
	scale := func(squares kernel.V) kernel.V {
		u := k.RoundBF16(k.Div(k.Sum(squares), k.Float(float64(d))))
		return k.RoundBF16(k.Rsqrt(k.RoundBF16(k.Add(u, k.Float(eps)))))
	}
	if i := rowPieces(k, d); i != nil {
		xs, acc := loadPieces(x, i), k.Float(0)
		for _, v := range xs {
			acc = add(acc, v)
		}
		s := scale(acc)
		for j, v := range xs {
			store(i[j], k.Mul(v, s))
		}
		return
	}
	acc := k.Var(k.Float(0))
	k.Lanes(k.Int(d), func(i kernel.V) { acc.Set(add(acc.Get(), x.Load(i))) })
	s := scale(acc.Get())
	k.Lanes(k.Int(d), func(i kernel.V) { store(i, k.Mul(x.Load(i), s)) })
}
