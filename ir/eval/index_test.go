package eval

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/kiln-project/kiln/ir"
)

// drawIndices draws -1..n-1, or with a chance one index outside.
func drawIndices(t *rapid.T, n int, shape ...int) (ix *Tensor, bad bool) {
	r := drawRand(t)
	ix = zeroTensor(ir.I32, shape...)
	none := rapid.IntRange(0, 5).Draw(t, "none") == 0
	for i := range ix.I {
		if ix.I[i] = int64(r.IntN(n+1)) - 1; none {
			ix.I[i] = -1
		}
	}
	if rapid.IntRange(0, 4).Draw(t, "outside") == 0 {
		ix.I[r.IntN(len(ix.I))] = []int64{int64(n), -2, 1 << 30, -1 << 31}[r.IntN(4)]
		bad = true
	}
	return ix, bad
}

func gatherProp(t *rapid.T) {
	dt := rapid.SampledFrom(valueTypes).Draw(t, "dtype")
	table := drawTensor(t, dt, drawShape(t, 1, 3)...)
	rows, bad := drawIndices(t, table.Shape[0], drawShape(t, 0, 3)...)
	got, err := apply(t, "gather_rows", nil, table, rows)
	if bad {
		if err == nil {
			t.Fatalf("gather_rows of rows %v of %d: no error", rows.I, table.Shape[0])
		}
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	shape := append(slices.Clone(rows.Shape), table.Shape[1:]...)
	wantShape(t, "gather_rows", got[0], dt, shape...)
	each(shape, func(ix []int) {
		row := rows.I[flat(rows.Shape, ix[:len(rows.Shape)]...)]
		var want uint64
		if row >= 0 {
			want = cell(table, flat(table.Shape, append([]int{int(row)}, ix[len(rows.Shape):]...)...))
		}
		if i := flat(shape, ix...); cell(got[0], i) != want {
			t.Fatalf("gather_rows: element %v is %s, want bits %#x", ix, show(got[0], i), want)
		}
	})
}

func scatterProp(t *rapid.T) {
	dt := rapid.SampledFrom(numTypes).Draw(t, "dtype")
	pool := drawTensor(t, dt, drawShape(t, 1, 3)...)
	n := pool.Shape[0]
	k := rapid.IntRange(1, n+1).Draw(t, "rows")
	slots, bad := drawIndices(t, n, k)
	written := map[int64]int{}
	for i, s := range slots.I {
		if s < 0 {
			continue
		}
		if _, twice := written[s]; twice {
			if rapid.IntRange(0, 5).Draw(t, "keep duplicate") > 0 {
				slots.I[i] = -1
				continue
			}
			bad = true
		}
		written[s] = i
	}
	for _, s := range slots.I {
		bad = bad || s < -1 || s >= int64(n)
	}
	rows := drawTensor(t, dt, append([]int{k}, pool.Shape[1:]...)...)
	got, err := apply(t, "scatter_rows", nil, pool, slots, rows)
	if bad {
		if err == nil {
			t.Fatalf("scatter_rows to slots %v of %d: no error", slots.I, n)
		}
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	wantShape(t, "scatter_rows", got[0], dt, pool.Shape...)
	each(pool.Shape, func(ix []int) {
		from, at := pool, flat(pool.Shape, ix...)
		if i, ok := written[int64(ix[0])]; ok {
			from = rows
			at = flat(rows.Shape, append([]int{i}, ix[1:]...)...)
		}
		if p := flat(pool.Shape, ix...); cell(got[0], p) != cell(from, at) {
			t.Fatalf("scatter_rows: element %v is %s, want %s", ix, show(got[0], p), show(from, at))
		}
	})
}

func takeProp(t *rapid.T) {
	dt := rapid.SampledFrom(numTypes).Draw(t, "dtype")
	x := drawTensor(t, dt, drawShape(t, 1, 3)...)
	r := len(x.Shape)
	shape := slices.Clone(x.Shape)
	shape[r-1] = rapid.SampledFrom(extents).Draw(t, "k")
	cols, bad := drawIndices(t, x.Shape[r-1], shape...)
	fill := rapid.SampledFrom([]float64{0, -1, 7, 0.1, 300}).Draw(t, "fill")
	if b, isInt := intBounds[dt]; isInt && (fill == 0.1 || fill < float64(b[0]) || fill > float64(b[1])) {
		fill = 1 // the op table refuses what the dtype does not hold
	}
	got, err := apply(t, "take_along", ir.A("fill", fill), x, cols)
	if bad {
		if err == nil {
			t.Fatalf("take_along of columns %v of %d: no error", cols.I, x.Shape[r-1])
		}
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	wantShape(t, "take_along", got[0], dt, shape...)
	each(shape, func(ix []int) {
		p := flat(shape, ix...)
		from := slices.Clone(ix)
		if from[r-1] = int(cols.I[p]); from[r-1] >= 0 {
			if at := flat(x.Shape, from...); cell(got[0], p) != cell(x, at) {
				t.Fatalf("take_along: element %v is %s, want %s", ix, show(got[0], p), show(x, at))
			}
			return
		}
		if got[0].I != nil && got[0].I[p] != int64(fill) || got[0].F != nil && float64(got[0].F[p]) != roundTo(dt, fill) {
			t.Fatalf("take_along: element %v is %s, want fill %v", ix, show(got[0], p), fill)
		}
	})
}

func TestIndexErrorsNameTheIndex(t *testing.T) {
	x := f32s([]float32{1, 2, 3, 4, 5, 6}, 3, 2)
	for _, c := range []struct {
		op   string
		args []*Tensor
		want string
	}{
		{"gather_rows", []*Tensor{x, i32s([]int32{0, -1, 3}, 3)}, "index 2: row 3 is outside 0..2"},
		{"gather_rows", []*Tensor{x, i32s([]int32{-2}, 1)}, "index 0: row -2 is outside 0..2"},
		{"scatter_rows", []*Tensor{x, i32s([]int32{1, 5}, 2), f32s(make([]float32, 4), 2, 2)}, "slot 1: row 5 is outside 0..2"},
		{"scatter_rows", []*Tensor{x, i32s([]int32{2, -1, 2}, 3), f32s(make([]float32, 6), 3, 2)}, "slots 0 and 2 both write row 2"},
		{"take_along", []*Tensor{x, i32s([]int32{0, 1, 2}, 3, 1)}, "column 2: row 2 is outside 0..1"},
	} {
		if _, err := apply(t, c.op, nil, c.args...); !matches(err, c.want) {
			t.Errorf("%s: error %v, want %q", c.op, err, c.want)
		}
	}
}
