package eval

// broadcast walks the elements of a result and of its operands together.
// Extents of 1 and rank-0 operands repeat. Axes that all operands run through
// alike are merged, so that equal shapes become one long row.
type broadcast struct {
	n       int     // elements of the result
	dims    []int   // merged extents, the last is the inner row
	strides [][]int // per operand, per merged axis
}

func newBroadcast(result []int, operands ...[]int) *broadcast {
	b := &broadcast{n: 1}
	full := make([][]int, len(operands)) // strides per axis
	for k, shape := range operands {
		full[k] = make([]int, len(result))
		if len(shape) == 0 {
			continue
		}
		step := 1
		for i := len(result) - 1; i >= 0; i-- {
			if shape[i] != 1 {
				full[k][i] = step
			}
			step *= shape[i]
		}
	}
	for i, d := range result {
		b.n *= d
		if d == 1 {
			continue
		}
		last := len(b.dims) - 1
		merge := last >= 0
		for k := range operands {
			if merge && b.strides[k][last] != full[k][i]*d {
				merge = false
			}
		}
		if merge {
			b.dims[last] *= d
			for k := range operands {
				b.strides[k][last] = full[k][i]
			}
			continue
		}
		b.dims = append(b.dims, d)
		if b.strides == nil {
			b.strides = make([][]int, len(operands))
		}
		for k := range operands {
			b.strides[k] = append(b.strides[k], full[k][i])
		}
	}
	if len(b.dims) == 0 {
		b.dims = []int{1}
		b.strides = make([][]int, len(operands))
		for k := range operands {
			b.strides[k] = []int{0}
		}
	}
	return b
}

// rows calls f for each inner row: offset and length in the result, and for
// each operand its offset and step.
func (b *broadcast) rows(f func(out, n int, off, step []int)) {
	last := len(b.dims) - 1
	n := b.dims[last]
	off := make([]int, len(b.strides))
	step := make([]int, len(b.strides))
	for k := range b.strides {
		step[k] = b.strides[k][last]
	}
	idx := make([]int, last)
	for out := 0; out < b.n; out += n {
		f(out, n, off, step)
		for i := last - 1; i >= 0; i-- {
			idx[i]++
			for k := range off {
				off[k] += b.strides[k][i]
			}
			if idx[i] < b.dims[i] {
				break
			}
			for k := range off {
				off[k] -= b.dims[i] * b.strides[k][i]
			}
			idx[i] = 0
		}
	}
}
