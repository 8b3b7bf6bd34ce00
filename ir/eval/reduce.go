package eval

import (
	"math"
	"slices"

	"github.com/kiln-project/kiln/ir"
)

// axisView splits a shape around an axis: outer x n x inner.
func axisView(op *ir.Op) (outer, n, inner int) {
	shape, axis := shapeOf(op.Args[0]), op.Int("axis")
	return product(shape[:axis]), shape[axis], product(shape[axis+1:])
}

func makeReduceSum(op *ir.Op) (kernel, error) {
	outer, n, inner := axisView(op)
	round := rounder64(op.DType("to"))
	return func(in, out []*Tensor) error {
		x, y := in[0].F, out[0].F
		parallel(outer, outer*n*inner, func(from, to int) {
			acc := make([]float64, inner)
			for o := from; o < to; o++ {
				clear(acc)
				for i := range n {
					row := x[(o*n+i)*inner : (o*n+i+1)*inner]
					for j, v := range row {
						acc[j] += float64(v)
					}
				}
				for j, a := range acc {
					y[o*inner+j] = round(a)
				}
			}
		})
		return nil
	}, nil
}

func makeReduceMax(op *ir.Op) (kernel, error) {
	outer, n, inner := axisView(op)
	return func(in, out []*Tensor) error {
		for o := range outer {
			for j := range inner {
				m := in[0].F[o*n*inner+j]
				for i := 1; i < n; i++ {
					m = max(m, in[0].F[(o*n+i)*inner+j]) // NaN wins
				}
				out[0].F[o*inner+j] = m
			}
		}
		return nil
	}, nil
}

// makeDot accumulates each result alone, in float64, in index order of k.
func makeDot(op *ir.Op) (kernel, error) {
	xs, ws, ys := shapeOf(op.Args[0]), shapeOf(op.Args[1]), shapeOf(op.Results[0])
	r := len(xs)
	m, n, k := xs[r-2], ws[r-2], xs[r-1]
	batch := newBroadcast(append(slices.Clone(ys[:r-2]), 1), append(slices.Clone(xs[:r-2]), 1), append(slices.Clone(ws[:r-2]), 1))
	round := rounder64(op.DType("to"))
	type pair struct{ x, w int } // batch indices
	var pairs []pair
	batch.rows(func(_, rows int, off, step []int) {
		for i := range rows {
			pairs = append(pairs, pair{off[0] + i*step[0], off[1] + i*step[1]})
		}
	})
	return func(in, out []*Tensor) error {
		x, w, y := in[0].F, in[1].F, out[0].F
		// Work is split over all weight rows of all batches.
		parallel(len(pairs)*n, len(pairs)*m*n*k, func(from, to int) {
			var d dotScratch
			for from < to {
				p := from / n
				lo, hi := from%n, min(n, from%n+to-from)
				xb := x[pairs[p].x*m*k:][:m*k]
				wb := w[pairs[p].w*n*k:][:n*k]
				d.rows(y[p*m*n:][:m*n], xb, wb, m, n, k, lo, hi, round)
				from += hi - lo
			}
		})
		return nil
	}, nil
}

// dotScratch holds operands widened to float64.
type dotScratch struct {
	x, w []float64
}

// rows computes columns lo..hi-1 of y [m,n]. Four weight rows go together: four
// independent sums, each in index order.
func (d *dotScratch) rows(y, x, w []float32, m, n, k, lo, hi int, round func(float64) float32) {
	d.x = widen(d.x, x)
	j := lo
	for ; j+4 <= hi; j += 4 {
		d.w = widen(d.w, w[j*k:(j+4)*k])
		w0, w1, w2, w3 := d.w[:k], d.w[k:2*k], d.w[2*k:3*k], d.w[3*k:4*k]
		for i := range m {
			var s0, s1, s2, s3 float64
			for l, a := range d.x[i*k : (i+1)*k] {
				s0 += a * w0[l]
				s1 += a * w1[l]
				s2 += a * w2[l]
				s3 += a * w3[l]
			}
			row := y[i*n+j : i*n+j+4]
			row[0], row[1], row[2], row[3] = round(s0), round(s1), round(s2), round(s3)
		}
	}
	for ; j < hi; j++ {
		d.w = widen(d.w, w[j*k:(j+1)*k])
		for i := range m {
			var s float64
			for l, a := range d.x[i*k : (i+1)*k] {
				s += a * d.w[l]
			}
			y[i*n+j] = round(s)
		}
	}
}

func widen(dst []float64, src []float32) []float64 {
	if cap(dst) < len(src) {
		dst = make([]float64, len(src))
	}
	dst = dst[:len(src)]
	for i, v := range src {
		dst[i] = float64(v)
	}
	return dst
}

func makeTopK(op *ir.Op) (kernel, error) {
	shape := shapeOf(op.Args[0])
	n, k := shape[len(shape)-1], op.Int("k")
	return func(in, out []*Tensor) error {
		ids := make([]int, 0, n)
		for row := range len(in[0].F) / n {
			s := in[0].F[row*n : (row+1)*n]
			ids = ids[:0]
			for i, v := range s {
				if v == v && !math.IsInf(float64(v), -1) {
					ids = append(ids, i)
				}
			}
			slices.SortFunc(ids, func(a, b int) int {
				switch {
				case s[a] > s[b]:
					return -1
				case s[a] < s[b]:
					return 1
				}
				return a - b
			})
			for j := range k {
				out[0].I[row*k+j] = -1
				if j < len(ids) {
					out[0].I[row*k+j] = int64(ids[j])
				}
			}
		}
		return nil
	}, nil
}
