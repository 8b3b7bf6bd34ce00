package eval

import (
	"math"
	"testing"

	"pgregory.net/rapid"

	"github.com/kiln-project/kiln/ir"
)

// argmaxRef says it in the words of the op table.
func argmaxRef(row []float64) (id, flags int64) {
	if top := largest(row, 1)[0]; top >= 0 {
		id = top
	}
	nan, low, high := 0, 0, 0
	for _, x := range row {
		switch {
		case math.IsNaN(x):
			nan++
		case math.IsInf(x, -1):
			low++
		case math.IsInf(x, 1):
			high++
		}
	}
	for bit, set := range []bool{nan > 0, nan == len(row), high > 0, low > 0 && low+nan == len(row)} {
		if set {
			flags |= 1 << bit
		}
	}
	return id, flags
}

func wantArgmax(t rapid.TB, op string, got []*Tensor, v []float64, rows int) {
	t.Helper()
	var ids, flags []int64
	for row := range rows {
		id, flag := argmaxRef(v[row*len(v)/rows : (row+1)*len(v)/rows])
		ids, flags = append(ids, id), append(flags, flag)
	}
	for i, want := range [][]int64{ids, flags} {
		wantShape(t, op, got[i], ir.I32, rows)
		wantInts(t, op, got[i], want)
	}
}

// firstColumns is a matrix of so many rows without what follows the valid columns of
// each; 0: all are valid.
func firstColumns(v []float64, rows, valid int) []float64 {
	if valid == 0 {
		return v
	}
	var out []float64
	for row := range rows {
		out = append(out, v[row*len(v)/rows:][:valid]...)
	}
	return out
}

func argmaxProp(t *rapid.T) {
	rows, n := rapid.SampledFrom(extents).Draw(t, "B"), rapid.SampledFrom(extents).Draw(t, "V")
	x := drawTensor(t, rapid.SampledFrom([]ir.DType{ir.F32, ir.BF16}).Draw(t, "dtype"), rows, n)
	inf := float32(math.Inf(1))
	values := map[string][]float32{
		"as drawn": nil, "ties": {2, 1, 2}, "zeros": {0, float32(math.Copysign(0, -1))},
		"bad": {float32(math.NaN()), -inf, inf, 1}, "low": {-inf, float32(math.NaN())}, "all low": {-inf}, "NaN": {float32(math.NaN())},
	}
	if pick := values[rapid.SampledFrom([]string{"as drawn", "ties", "zeros", "bad", "low", "all low", "NaN"}).Draw(t, "values")]; pick != nil {
		for i := range x.F {
			x.F[i] = rapid.SampledFrom(pick).Draw(t, "value")
		}
	}
	valid := rapid.IntRange(0, n).Draw(t, "valid")
	got, err := apply(t, "argmax", ir.A("valid", valid), x)
	if err != nil {
		t.Fatal(err)
	}
	wantArgmax(t, "argmax", got, firstColumns(floats(x), rows, valid), rows)
}

func linearArgmaxProp(t *rapid.T) {
	m, n, k := rapid.SampledFrom(extents).Draw(t, "M"), rapid.SampledFrom(extents).Draw(t, "N"), rapid.SampledFrom([]int{1, 7, 33}).Draw(t, "K")
	x, w := drawNormal(t, ir.BF16, m, k), drawNormal(t, ir.BF16, n, k)
	if n > 1 && rapid.Bool().Draw(t, "equal columns") {
		copy(w.F[(n-1)*k:], w.F[:k])
	}
	valid := rapid.IntRange(0, n).Draw(t, "valid")
	got, err := apply(t, "linear_argmax", ir.A("valid", valid), x, w)
	if err != nil {
		t.Fatal(err)
	}
	wantArgmax(t, "linear_argmax", got, firstColumns(linearRef(ir.F32, floats(x), floats(w), k), m, valid), m)
}

func TestArgmaxRows(t *testing.T) {
	inf, nan, zero := float32(math.Inf(1)), float32(math.NaN()), float32(math.Copysign(0, -1))
	for _, tc := range []struct {
		row       []float32
		id, flags int64
	}{
		{[]float32{1, 3, 2}, 1, 0},
		{[]float32{0, 1, 1}, 1, 0},
		{[]float32{-1, zero, 0}, 1, 0},
		{[]float32{-1, 0, zero}, 1, 0},
		{[]float32{nan, 1, 2}, 2, ir.ArgmaxNaN},
		{[]float32{2, 1, nan}, 0, ir.ArgmaxNaN},
		{[]float32{nan, nan}, 0, ir.ArgmaxNaN | ir.ArgmaxAllNaN},
		{[]float32{1, inf, inf}, 1, ir.ArgmaxHigh},
		{[]float32{nan, inf}, 1, ir.ArgmaxNaN | ir.ArgmaxHigh},
		{[]float32{-inf, -inf}, 0, ir.ArgmaxAllLow},
		{[]float32{nan, -inf}, 0, ir.ArgmaxNaN | ir.ArgmaxAllLow},
		{[]float32{-inf, -math.MaxFloat32}, 1, 0},
	} {
		got, err := apply(t, "argmax", nil, f32s(tc.row, 1, len(tc.row)))
		if err != nil {
			t.Fatal(err)
		}
		if got[0].I[0] != tc.id || got[1].I[0] != tc.flags {
			t.Errorf("argmax of %v is %d, flags %d; want %d, %d", tc.row, got[0].I[0], got[1].I[0], tc.id, tc.flags)
		}
	}
}
