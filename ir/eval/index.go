package eval

import (
	"fmt"

	"github.com/kiln-project/kiln/ir"
)

// rowIndex checks an index; -1 is legal and means no row.
func rowIndex(ix int64, n int) error {
	if ix < -1 || ix >= int64(n) {
		return fmt.Errorf("row %d is outside 0..%d", ix, n-1)
	}
	return nil
}

func makeGatherRows(op *ir.Op) (kernel, error) {
	shape := shapeOf(op.Args[0])
	n, width := shape[0], product(shape[1:])
	return func(in, out []*Tensor) error {
		for i, ix := range in[1].I {
			if err := rowIndex(ix, n); err != nil {
				return fmt.Errorf("index %d: %w", i, err)
			}
			if out[0].F != nil {
				moveRow(out[0].F, i, in[0].F, int(ix), width)
			} else {
				moveRow(out[0].I, i, in[0].I, int(ix), width)
			}
		}
		return nil
	}, nil
}

func moveRow[V any](dst []V, i int, src []V, j, width int) {
	d := dst[i*width : (i+1)*width]
	if j < 0 {
		clear(d)
		return
	}
	copy(d, src[j*width:(j+1)*width])
}

// makeScatterRows writes into out, which holds the pool already: the program
// passes the pool itself where its old value is dead, and a copy elsewhere.
func makeScatterRows(op *ir.Op) (kernel, error) {
	shape := shapeOf(op.Args[0])
	n, width := shape[0], product(shape[1:])
	return func(in, out []*Tensor) error {
		seen := make(map[int64]int, len(in[1].I))
		for i, slot := range in[1].I {
			if err := rowIndex(slot, n); err != nil {
				return fmt.Errorf("slot %d: %w", i, err)
			}
			if slot < 0 {
				continue
			}
			if first, dup := seen[slot]; dup {
				return fmt.Errorf("slots %d and %d both write row %d", first, i, slot)
			}
			seen[slot] = i
			if out[0].F != nil {
				moveRow(out[0].F, int(slot), in[2].F, i, width)
			} else {
				moveRow(out[0].I, int(slot), in[2].I, i, width)
			}
		}
		return nil
	}, nil
}

func makeTakeAlong(op *ir.Op) (kernel, error) {
	xs, cs := shapeOf(op.Args[0]), shapeOf(op.Args[1])
	n, k := xs[len(xs)-1], cs[len(cs)-1]
	fill, round := op.Float("fill"), rounder64(op.Results[0].Type.DType)
	return func(in, out []*Tensor) error {
		for i, c := range in[1].I {
			if err := rowIndex(c, n); err != nil {
				return fmt.Errorf("column %d: %w", i, err)
			}
			from := i/k*n + int(c)
			switch {
			case out[0].F != nil && c < 0:
				out[0].F[i] = round(fill)
			case out[0].F != nil:
				out[0].F[i] = in[0].F[from]
			case c < 0:
				out[0].I[i] = int64(fill)
			default:
				out[0].I[i] = in[0].I[from]
			}
		}
		return nil
	}, nil
}
