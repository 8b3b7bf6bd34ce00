package eval

import (
	"cmp"
	"math"
	"slices"

	"github.com/kiln-project/kiln/ir"
	"github.com/kiln-project/kiln/ir/num"
)

// Draw is how op sample draws from a row.
type Draw struct {
	Temperature float32 // 0: the largest logit
	TopK        int32   // 0: all
	TopP        float32 // 0 or 1: all
	Seed        uint64
	Pos         int32 // the row's place in its sequence
}

func makeSample(op *ir.Op) (kernel, error) {
	shape := shapeOf(op.Args[0])
	rows, n := shape[0], shape[1]
	columns := op.Columns(n)
	return func(in, out []*Tensor) error {
		parallel(rows, 8*rows*n, func(from, to int) {
			for row := from; row < to; row++ {
				d := Draw{in[1].F[row], int32(in[2].I[row]), in[3].F[row], uint64(in[4].I[row]), int32(in[5].I[row])}
				out[0].I[row], out[1].I[row] = d.Choose(in[0].F[row*n:][:columns])
			}
		})
		return nil
	}, nil
}

// inRange reports whether every parameter is what the op table says of it.
func (d Draw) inRange() bool {
	return d.Temperature >= 0 && !math.IsInf(float64(d.Temperature), 1) && d.TopK >= 0 && d.TopP >= 0 && d.TopP <= 1
}

// Choose is the id and the flags of op sample for a row of logits.
func (d Draw) Choose(row []float32) (id, flags int64) {
	id, flags = argmax(row)
	if !d.inRange() {
		flags |= ir.SampleRange
	}
	if flags != 0 || d.Temperature == 0 {
		return id, flags
	}
	top, scale := row[id], num.WeightScale(d.Temperature)
	weights := make([]int64, len(row))
	for i, x := range row {
		weights[i] = num.Weight(top-x, scale)
	}
	kept := d.kept(row, weights)
	total := int64(0)
	for i, w := range weights {
		if kept != nil && !kept[i] {
			weights[i] = 0
			continue
		}
		total += w
	}
	u := num.Draw(d.Seed, uint32(d.Pos), total)
	for i, w := range weights {
		if u -= w; u < 0 {
			return int64(i), 0
		}
	}
	return id, 0 // not reached: u is below the sum of the weights
}

// kept tells which columns top-k and top-p leave; nil: all.
func (d Draw) kept(row []float32, weights []int64) []bool {
	k, p := int(d.TopK), d.TopP
	if k == 0 || k > len(row) {
		k = len(row)
	}
	if k == len(row) && (p == 0 || p == 1) {
		return nil
	}
	order := make([]int, len(row))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int { return cmp.Or(cmp.Compare(row[b], row[a]), a-b) })
	order = order[:k]
	if p > 0 && p < 1 {
		total := int64(0)
		for _, i := range order {
			total += weights[i]
		}
		want, sum := num.Share(p, total), int64(0)
		for n, i := range order {
			if sum += weights[i]; sum >= want {
				order = order[:n+1]
				break
			}
		}
	}
	kept := make([]bool, len(row))
	for _, i := range order {
		kept[i] = true
	}
	return kept
}
