package kernels

import (
	"fmt"
	"math"

	"github.com/kiln-project/kiln/codegen/kernel"
	"github.com/kiln-project/kiln/codegen/target"
	"github.com/kiln-project/kiln/ir"
)

// Rows that a wave of a GPU has for itself: its lanes keep the elements in registers,
// and exchange them where a step needs those of others. Nothing waits at a barrier, so
// that many rows are under way.

// waveRow is how a row lies in the lanes: runs of elements that follow each other, of
// each lane one in every piece of the row.
type waveRow struct {
	d, pairs, run, pieces int

	headNorm, inverse, hadamard bool
	eps                         float64
	to                          ir.DType // of fake_quant; BF16: none
	dims, block                 int
}

// maxWaveRow bounds the elements of a lane.
const maxWaveRow = 16

// waveRowOf is how the rows of an op are done by waves, or nil: they are done by groups.
func waveRowOf(o *ir.Op, t *target.Target) *waveRow {
	if !t.GPU() || o.Def.Name == "rms_norm_rope" { // the latter has one row for a token
		return nil
	}
	x := dims(o.Args[0])
	r := &waveRow{d: x[len(x)-1], pairs: dims(o.Args[1])[1], inverse: o.Bool("inverse"), to: ir.BF16, run: 8}
	if o.Def.Name != "rope" {
		r.hadamard, r.to, r.dims, r.block = o.Bool("hadamard"), o.DType("to"), o.Int("dims"), o.Int("block")
		if o.Bool("packed") {
			return nil
		}
	}
	if r.headNorm = o.Def.Name == "head_rms_norm_rope"; r.headNorm {
		r.eps = o.Float("eps")
	}
	for r.run > 2 && r.d%(r.run*t.Wave) != 0 {
		r.run /= 2
	}
	piece, lanes := r.run*t.Wave, r.block/r.run
	switch {
	case r.d%piece != 0 || r.d/t.Wave > maxWaveRow:
		return nil
	case (r.d-2*r.pairs)%r.run != 0 || r.pairs%(r.run/2) != 0: // a run is rotated or not
		return nil
	case r.to != ir.BF16 && (r.block%r.run != 0 || lanes&(lanes-1) != 0 || lanes > t.Wave || r.dims%r.block != 0):
		return nil
	}
	r.pieces = r.d / piece
	return r
}

// launch has a wave for each row.
func (r *waveRow) launch(l Lowering, o *ir.Op) {
	x := dims(o.Args[0])
	perToken, n := product(x[1:len(x)-1]), product(x)/r.d
	rows := l.Target().Lanes / l.Target().Wave // of a group
	l.Launch(Launch{
		Name: o.Def.Name + "_wave", Spec: fmt.Sprintf("d%d pairs%d per%d%s", r.d, r.pairs, perToken, attrSpec(o)), Grid: ceilDiv(n, rows), Work: int64(n * r.d * 8),
		In: []Ref{l.Buf(o.Args[0]), l.Buf(o.Args[1]), l.Buf(o.Args[2])}, Out: []Ref{l.Buf(o.Results[0])}, Ints: []int{n},
		Body: func(k *kernel.K, b []*kernel.Buf, ints []kernel.V) {
			row := k.Add(k.Mul(k.Group(), k.Int(rows)), k.Wave())
			k.If(k.Cmp(kernel.LT, row, ints[0]), func() {
				w := &waveRowIn{K: k, waveRow: r}
				first := k.Mul(row, k.Int(r.d))
				w.load(b[0], first)
				if r.headNorm {
					w.norm()
				}
				w.rotate(b[1], b[2], k.Mul(k.UDiv(row, k.Int(perToken)), k.Int(r.pairs)))
				if r.hadamard {
					w.transform()
				}
				if r.to != ir.BF16 {
					w.round()
				}
				w.store(b[3], first)
			})
		},
	})
}

// waveRowIn is a row in a kernel.
type waveRowIn struct {
	*kernel.K
	*waveRow
	at []kernel.V   // the first element of each piece's run
	v  [][]kernel.V // of each piece, the run
}

// each replaces every element.
func (w *waveRowIn) each(f func(v kernel.V) kernel.V) {
	for _, run := range w.v {
		for j := range run {
			run[j] = f(run[j])
		}
	}
}

func (w *waveRowIn) load(x *kernel.Buf, first kernel.V) {
	for p := range w.pieces {
		at := w.Add(w.Mul(w.WaveLane(), w.Int(w.run)), w.Int(p*w.run*w.T.Wave))
		words := x.LoadVec(w.Add(first, at), w.run)
		run := make([]kernel.V, w.run)
		for j := range run {
			run[j] = numberOf(w.K, words, j, w.run)
		}
		w.at, w.v = append(w.at, at), append(w.v, run)
	}
}

// norm is head_rms_norm: every step is rounded to bf16, the sum is f32.
func (w *waveRowIn) norm() {
	sum := w.Float(0)
	w.each(func(v kernel.V) kernel.V {
		sum = w.Add(sum, w.RoundBF16(w.Mul(v, v)))
		return v
	})
	for mask := 1; mask < w.T.Wave; mask *= 2 {
		sum = w.Add(sum, w.LaneXor(sum, mask))
	}
	u := w.RoundBF16(w.Div(sum, w.Float(float64(w.d))))
	s := w.RoundBF16(w.Rsqrt(w.RoundBF16(w.Add(u, w.Float(w.eps)))))
	w.each(func(v kernel.V) kernel.V { return w.RoundBF16(w.Mul(v, s)) })
}

// rotate is rope, whose pairs lie in one run.
func (w *waveRowIn) rotate(cos, sin *kernel.Buf, token kernel.V) {
	from := w.d - 2*w.pairs
	for p, run := range w.v {
		if (p+1)*w.run*w.T.Wave <= from {
			continue
		}
		in := w.Cmp(kernel.GE, w.at[p], w.Int(from))
		pair := w.LShr(w.Select(in, w.Sub(w.at[p], w.Int(from)), w.Int(0)), w.Int(1))
		for j := 0; j < w.run; j += 2 {
			at := w.Add(token, w.Add(pair, w.Int(j/2)))
			c, s := cos.Load(at), sin.Load(at)
			if w.inverse {
				s = w.Neg(s)
			}
			x, y := run[j], run[j+1]
			run[j] = w.Select(in, w.RoundBF16(w.Sub(w.Mul(x, c), w.Mul(y, s))), x)
			run[j+1] = w.Select(in, w.RoundBF16(w.Add(w.Mul(x, s), w.Mul(y, c))), y)
		}
	}
}

// transform is hadamard.
func (w *waveRowIn) transform() {
	piece := w.run * w.T.Wave
	for h := 1; h < w.d; h *= 2 {
		switch {
		case h < w.run:
			for _, run := range w.v {
				for j := range run {
					if j&h == 0 {
						run[j], run[j+h] = w.Add(run[j], run[j+h]), w.Sub(run[j], run[j+h])
					}
				}
			}
		case h < piece:
			mask := h / w.run
			upper := w.Cmp(kernel.NE, w.And(w.WaveLane(), w.Int(mask)), w.Int(0))
			w.each(func(v kernel.V) kernel.V {
				other := w.LaneXor(v, mask)
				return w.Select(upper, w.Sub(other, v), w.Add(v, other))
			})
		default:
			for p, run := range w.v {
				if p&(h/piece) == 0 {
					far := w.v[p+h/piece]
					for j := range run {
						run[j], far[j] = w.Add(run[j], far[j]), w.Sub(run[j], far[j])
					}
				}
			}
		}
	}
	scale := w.Float(hadamardScale(w.d))
	w.each(func(v kernel.V) kernel.V { return w.RoundBF16(w.Mul(w.RoundBF16(v), scale)) })
}

// round is fake_quant of the first dims elements; the scales are those of blockScales.
func (w *waveRowIn) round() {
	f, _ := codeFormatOf(w.to, w.T)
	for p, run := range w.v {
		if p*w.run*w.T.Wave >= w.dims {
			continue
		}
		top := w.Float(f.floor)
		for _, v := range run {
			top = w.MaxNaN(top, w.Abs(v))
		}
		for mask := 1; mask < w.block/w.run; mask *= 2 {
			top = w.MaxNaN(top, w.LaneXor(top, mask))
		}
		s, _ := w.Pow2Ceil(w.Mul(top, w.Float(float64(float32(1/f.max)))))
		s = w.Select(w.Cmp(kernel.LE, top, w.Float(math.MaxFloat32)), s, w.Float(math.NaN()))
		inverse, in := w.Div(w.Float(1), s), w.Cmp(kernel.LT, w.at[p], w.Int(w.dims))
		for j, v := range run {
			run[j] = w.Select(in, w.Mul(f.decode(w.K, f.encode(w.K, w.Mul(v, inverse))), s), v)
		}
	}
}

func (w *waveRowIn) store(y *kernel.Buf, first kernel.V) {
	for p, run := range w.v {
		var words []kernel.V
		for j := 0; j < w.run; j += 2 {
			words = append(words, w.PackBF16(run[j], run[j+1]))
		}
		y.StoreVec(w.Add(first, w.at[p]), w.MakeVec(words...))
	}
}
