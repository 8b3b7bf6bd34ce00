package kernels

import "github.com/kiln-project/kiln/codegen/kernel"

// laneRow is a row of some buffers that the lanes of a group go through more than once,
// each always through the same elements: lane, lane + Lanes, ....
type laneRow struct {
	k    *kernel.K
	d    int
	bufs []*kernel.Buf
	kept [][]kernel.V // by buffer, what this lane read; nil if it reads again each time
}

// maxKept is how many elements of a buffer a lane keeps.
const maxKept = 32

// newLaneRow has a GPU's lane read all of its elements at once and keep them: none waits
// for another, and what is read late, a norm's weights, comes while the sum is made.
func newLaneRow(k *kernel.K, d int, bufs ...*kernel.Buf) *laneRow {
	r := &laneRow{k: k, d: d, bufs: bufs}
	if !k.T.GPU() || d > maxKept*k.T.Lanes {
		return r
	}
	for _, b := range bufs {
		var kept []kernel.V
		for from := 0; from < d; from += k.T.Lanes {
			i := r.at(from)
			if d-from < k.T.Lanes { // a lane past the end reads something that is there
				i = k.Select(r.inside(from), i, k.Int(0))
			}
			kept = append(kept, b.Load(i))
		}
		r.kept = append(r.kept, kept)
	}
	return r
}

// at is this lane's element of those from from on.
func (r *laneRow) at(from int) kernel.V { return r.k.Add(r.k.Lane(), r.k.Int(from)) }

// inside reports whether the row has it.
func (r *laneRow) inside(from int) kernel.V {
	return r.k.Cmp(kernel.LT, r.k.Lane(), r.k.Int(r.d-from))
}

// each runs body for the lane's elements, in order; element is that of a buffer.
func (r *laneRow) each(body func(i kernel.V, element func(buf int) kernel.V)) {
	if r.kept == nil {
		r.k.Lanes(r.k.Int(r.d), func(i kernel.V) {
			body(i, func(buf int) kernel.V { return r.bufs[buf].Load(i) })
		})
		return
	}
	for n := range r.kept[0] {
		from := n * r.k.T.Lanes
		one := func() { body(r.at(from), func(buf int) kernel.V { return r.kept[buf][n] }) }
		if r.d-from < r.k.T.Lanes {
			r.k.If(r.inside(from), one)
		} else {
			one()
		}
	}
}
