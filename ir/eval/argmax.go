package eval

import (
	"math"

	"github.com/kiln-project/kiln/ir"
)

func makeArgmax(op *ir.Op) (kernel, error) {
	shape := shapeOf(op.Args[0])
	rows, n := shape[0], shape[1]
	columns := op.Columns(n)
	return func(in, out []*Tensor) error {
		parallel(rows, rows*n, func(from, to int) {
			for row := from; row < to; row++ {
				out[0].I[row], out[1].I[row] = argmax(in[0].F[row*n:][:columns])
			}
		})
		return nil
	}, nil
}

// argmax is the index and the flags of a row.
func argmax(row []float32) (id, flags int64) {
	best, nans := float32(math.Inf(-1)), 0
	for i, v := range row {
		switch {
		case v != v:
			nans++
		case v > best: // never of -0 and +0
			best, id = v, int64(i)
		}
	}
	if nans > 0 {
		flags |= ir.ArgmaxNaN
	}
	switch {
	case nans == len(row):
		flags |= ir.ArgmaxAllNaN
	case math.IsInf(float64(best), 1):
		flags |= ir.ArgmaxHigh
	case math.IsInf(float64(best), -1):
		flags |= ir.ArgmaxAllLow
	}
	return id, flags
}
