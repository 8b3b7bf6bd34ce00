package check

import (
	"fmt"
	"math"

	"github.com/kiln-project/kiln/ir"
	"github.com/kiln-project/kiln/ir/eval"
)

// fewElements is the smallest number of elements that a share is taken of: one
// rounding the other way in a row of 128 is no share of 99.5 percent.
const fewElements = 1000

// shareBreach says how a limit's share of identical elements is missed, or "".
func shareBreach(l ir.Limit, different, count int) string {
	if l.Kind != ir.BF16ULP && l.Kind != ir.LastPlace && l.Kind != ir.OneCode {
		return ""
	}
	const rounding = 1e-6 // of 1 - Bound
	if float64(different) <= (1-l.Bound)*float64(max(count, fewElements))+rounding {
		return ""
	}
	return fmt.Sprintf("%d of %d elements differ, at least %g%% must be identical", different, count, 100*l.Bound)
}

// A rounding inside of an op goes the other way where an f32 sum lies next to the
// border of two numbers, about once in 10^5 sums. It shows in one element where the
// rounded value goes into one sum, in a row where it goes into all of the row's.
const (
	flipShare    = 1e-4 // of elements
	flipRowShare = 1e-2 // of rows
)

// tally counts the comparisons of one result of one kind of op.
type tally struct{ different, count, flips, differentRows, rows int }

func (t *tally) add(d difference) {
	t.different, t.count, t.flips = t.different+d.different, t.count+d.Count, t.flips+d.flips
	t.differentRows, t.rows = t.differentRows+d.differentRows, t.rows+d.rows
}

// breach says which share of a limit is missed, or "".
func (t *tally) breach(l ir.Limit, roundsInside bool) string {
	if roundsInside && float64(t.differentRows) <= max(1, flipRowShare*float64(t.rows)) {
		return ""
	}
	if float64(t.flips) > max(1, flipShare*float64(t.count)) {
		return fmt.Sprintf("%d of %d elements, in some of %d rows, are more than one bf16 step off, more than roundings inside of the op explain", t.flips, t.count, t.differentRows)
	}
	return shareBreach(l, t.different, t.count)
}

// finite is x, or 0 where there is no number: NaN and infinite errors are beyond
// the limits and reported as such.
func finite(x float64) float64 {
	if math.IsNaN(x) || math.IsInf(x, 0) {
		return 0
	}
	return x
}

// identical counts the elements that are equal bit for bit, or both NaN.
func identical(want, got *eval.Tensor) int {
	if got == nil || !want.Type().Equal(got.Type()) {
		return 0
	}
	n := 0
	for i, x := range want.F {
		if math.Float32bits(x) == math.Float32bits(got.F[i]) || x != x && got.F[i] != got.F[i] {
			n++
		}
	}
	for i, x := range want.I {
		if x == got.I[i] {
			n++
		}
	}
	if len(want.Codes) > 0 && string(want.Codes) == string(got.Codes) && string(want.Scales) == string(got.Scales) {
		n += want.Len()
	}
	return n
}
