package check

import (
	"fmt"
	"math"

	"github.com/kiln-project/kiln/ir"
	"github.com/kiln-project/kiln/ir/eval"
	"github.com/kiln-project/kiln/ir/metric"
	"github.com/kiln-project/kiln/ir/num"
)

// difference is how far a tensor is from its reference. All NaNs are equal.
type difference struct {
	metric.Metrics
	different int    // elements that count against a limit's share
	beyond    string // the first element that no share excuses, or ""
	// flips are elements that another rounding inside of the op explains, if they or
	// the rows that differ are few.
	flips               int
	rows, differentRows int
}

// compare holds got to a limit. Integers, codes and scales are equal or beyond
// every limit. block is what a limit of codes needs (ir.Limit.Block); roundsInside: see
// there.
func compare(want, got *eval.Tensor, l ir.Limit, block int, roundsInside bool) difference {
	var d difference
	if got == nil || !want.Type().Equal(got.Type()) {
		d.beyond = "there is no result of type " + want.Type().String()
		return d
	}
	w, g, where := bothNumbers(want, got)
	d.Metrics = metric.Measure(g, w)
	d.Count = want.Len()
	largest, row, last := rowLargest(want, l), rowLength(want), -1
	d.rows = want.Len() / row
	var codes []float64
	if l.Kind == ir.OneCode {
		codes = metric.CodesApart(want.F, got.F, block)
	}
	for i := range w {
		within, equal := holds(want.DType, w[i], g[i], l)
		if codes != nil {
			within = codes[where(i)] <= 1
		}
		if !within && largest != nil {
			diff, top := math.Abs(float64(w[i])-float64(g[i])), largest(where(i))
			within = diff <= metric.F32Noise*top
			if !within && roundsInside && diff <= bf16Step*top {
				d.flips++
				within = true
			}
		}
		if !equal {
			d.different++
			if r := where(i) / row; r != last {
				d.differentRows, last = d.differentRows+1, r
			}
		}
		if !within && d.beyond == "" {
			d.beyond = fmt.Sprintf("element %d of %s is %v, want %v", where(i), want.Type(), g[i], w[i])
		}
	}
	if l.Kind == ir.OneMinCos && !(d.OneMinusCos <= l.Bound) {
		d.beyond = fmt.Sprintf("1-cos of %s is %.3g", want.Type(), d.OneMinusCos)
	}
	if most := math.Sqrt(2 * l.Bound); l.Kind == ir.OneMinCos && d.beyond == "" && d.MaxAbs > 0 && !(math.Abs(length(g)/length(w)-1) <= most) {
		d.beyond = fmt.Sprintf("%s has %.3g times the length that is wanted, where an error of that angle makes %.2g at most", want.Type(), length(g)/length(w), 1+most)
	}
	for i, x := range want.I {
		if x != got.I[i] && d.beyond == "" {
			d.beyond = fmt.Sprintf("element %d of %s is %d, want %d", i, want.Type(), got.I[i], x)
		}
	}
	for _, b := range []struct {
		what      string
		want, got []byte
	}{{"code byte", want.Codes, got.Codes}, {"scale", want.Scales, got.Scales}} {
		for i, x := range b.want {
			if x != b.got[i] && d.beyond == "" {
				d.beyond = fmt.Sprintf("%s %d of %s is %#02x, want %#02x", b.what, i, want.Type(), b.got[i], x)
			}
		}
	}
	return d
}

// length is the length of a vector. An angle does not show a factor, so vectors whose
// angle is limited are held to their lengths too: an error that turns a vector by a small
// angle a, sqrt(2 (1-cos a)), changes its length by no larger part than that.
func length(x []float32) float64 {
	sum := 0.0
	for _, v := range x {
		sum += float64(v) * float64(v)
	}
	return math.Sqrt(sum)
}

// bf16Step is one step of a bf16 number, as a part of it.
const bf16Step = 0x1p-7

// rowLargest is the largest number of an element's row. An element may be in the
// noise of its row: a sum that cancels keeps the rounding of its terms, which is
// many steps of the little that is left. docs/dsv4.md section 9 says 2e-6 of the sums
// of streams, whose terms are about 1; here it is that part of the row's largest
// number. nil: the limit is no bf16 one.
func rowLargest(want *eval.Tensor, l ir.Limit) func(i int) float64 {
	if l.Kind != ir.BF16ULP || len(want.F) == 0 {
		return nil
	}
	row := rowLength(want)
	largest := make([]float64, len(want.F)/row)
	for i, x := range want.F {
		if a := math.Abs(float64(x)); a <= math.MaxFloat32 {
			largest[i/row] = max(largest[i/row], a)
		}
	}
	return func(i int) float64 { return largest[i/row] }
}

// rowLength is the extent of the last axis.
func rowLength(x *eval.Tensor) int {
	if n := len(x.Shape); n > 0 {
		return x.Shape[n-1]
	}
	return 1
}

// holds compares two elements: whether the limit excuses the difference, if its
// share of different ones does, and whether there is none to excuse.
func holds(dt ir.DType, want, got float32, l ir.Limit) (within, equal bool) {
	if l.Kind == ir.BF16ULP && dt == ir.F32 {
		dt, want, got = ir.BF16, num.RoundBF16(want), num.RoundBF16(got)
	}
	if math.Float32bits(want) == math.Float32bits(got) {
		return true, true
	}
	diff := math.Abs(float64(want) - float64(got))
	switch l.Kind {
	case ir.AbsF32:
		return diff <= l.Bound, true
	case ir.BF16ULP:
		if diff <= l.Abs {
			return true, true
		}
		return steps(dt, want, got) <= float64(max(1, l.Ulps)), false
	case ir.LastPlace:
		return steps(dt, want, got) <= 1, false
	case ir.OneMinCos:
		return true, true
	}
	return false, false
}

// steps is how many numbers of the dtype two are apart; NaN is infinitely far
// from all.
func steps(dt ir.DType, a, b float32) float64 {
	if a != a || b != b {
		return math.Inf(1)
	}
	line := func(x float32) float64 { // the numbers of a dtype in order
		u := int64(math.Float32bits(x))
		sign := int64(1) << 31
		switch dt {
		case ir.BF16:
			u, sign = int64(num.BF16Bits(x)), 1<<15
		case ir.F16:
			u, sign = int64(num.F16Bits(x)), 1<<15
		}
		if u >= sign {
			u = sign - u
		}
		return float64(u)
	}
	return math.Abs(line(a) - line(b))
}

// bothNumbers gives the elements of two tensors of one type as numbers, without
// those where both are NaN; where is the index of the i-th of them.
func bothNumbers(want, got *eval.Tensor) (w, g []float32, where func(int) int) {
	kept := []int(nil)
	for i, x := range want.F {
		if x != x && got.F[i] != got.F[i] {
			if kept == nil {
				kept = make([]int, 0, len(want.F))
				for j := range i {
					kept = append(kept, j)
				}
				w, g = append(w, want.F[:i]...), append(g, got.F[:i]...)
			}
			continue
		}
		if kept != nil {
			kept = append(kept, i)
			w, g = append(w, x), append(g, got.F[i])
		}
	}
	if kept != nil {
		return w, g, func(i int) int { return kept[i] }
	}
	return want.F, got.F, func(i int) int { return i }
}
