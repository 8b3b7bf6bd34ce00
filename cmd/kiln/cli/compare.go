package cli

import (
	"fmt"
	"math"
	"slices"
	"text/tabwriter"

	"github.com/kiln-project/kiln/runtime/weights"
)

const compareHelp = `Compares the tensors of A with those of the same name in B, as numbers: largest
absolute difference, relative Frobenius error |A-B|/|B|, 1-cosine, and the share
of rows (last axis) whose largest element is the same one. If one side has more
rows (first axis), the common ones are compared and the others reported.

With --max-rel, a tensor that is missing, of another shape, NaN, or beyond the
bound makes the exit code 4.`

func runCompare(e *env, f *flags, args []string) error {
	a, err := weights.Open(args[0])
	if err != nil {
		return err
	}
	defer a.Close()
	b, err := weights.Open(args[1])
	if err != nil {
		return err
	}
	defer b.Close()

	limit, prefix := f.float("max-rel"), f.text("prefix")
	if f.given("max-rel") && !(limit >= 0) {
		return usagef("kiln compare --max-rel 1e-3 A B", "--max-rel is %v, want a number of at least 0", limit)
	}
	tw := tabwriter.NewWriter(e.stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(tw, "tensor\tshape\tmax abs\trel\t1-cos\targmax\tnote")
	var bad []string
	compared := 0
	for _, name := range a.Names() {
		other := prefix + name
		if !b.Has(other) {
			fmt.Fprintf(tw, "%s\t\t\t\t\t\tB has no %s\n", name, other)
			bad = append(bad, name)
			continue
		}
		d, err := compareTensors(a, name, b, other)
		if err != nil {
			return err
		}
		if d.mismatch != "" {
			fmt.Fprintf(tw, "%s\t\t\t\t\t\t%s\n", name, d.mismatch)
			bad = append(bad, name)
			continue
		}
		compared++
		fmt.Fprintf(tw, "%s\t%v\t%.3g\t%.3g\t%.2g\t%d/%d\t%s\n", name, d.shape, d.maxAbs, d.rel, d.cos, d.sameTop, d.rows, d.note)
		if !(d.rel <= limit) { // NaN is beyond every bound
			bad = append(bad, name)
		}
	}
	if err := tw.Flush(); err != nil {
		return err
	}
	if compared == 0 {
		return fmt.Errorf("%s and %s (prefix %q) have no tensor to compare", args[0], args[1], prefix)
	}
	if f.given("max-rel") && len(bad) > 0 {
		return &codedError{exitCheck, fmt.Errorf("%d of %d tensors beyond --max-rel %g, missing or of another shape: first %s", len(bad), len(a.Names()), limit, bad[0]), ""}
	}
	return nil
}

// difference is how far two tensors are apart.
type difference struct {
	shape         []int
	maxAbs        float64
	rel           float64 // Frobenius norm of the difference over that of B
	cos           float64 // 1 - cosine
	sameTop, rows int     // rows with the same largest element
	note          string
	mismatch      string // why they cannot be compared
}

func compareTensors(a *weights.Checkpoint, nameA string, b *weights.Checkpoint, nameB string) (difference, error) {
	var d difference
	ta, err := a.Lookup(nameA)
	if err != nil {
		return d, err
	}
	tb, err := b.Lookup(nameB)
	if err != nil {
		return d, err
	}
	if len(ta.Shape) != len(tb.Shape) || len(ta.Shape) > 0 && !slices.Equal(ta.Shape[1:], tb.Shape[1:]) {
		d.mismatch = fmt.Sprintf("shapes differ: %v and %v", ta.Shape, tb.Shape)
		return d, nil
	}
	x, err := numbers(ta)
	if err != nil {
		return d, err
	}
	y, err := numbers(tb)
	if err != nil {
		return d, err
	}
	d.shape = slices.Clone(ta.Shape)
	if len(d.shape) > 0 && ta.Shape[0] != tb.Shape[0] {
		d.shape[0] = min(ta.Shape[0], tb.Shape[0])
		side, extra := "A", ta.Shape[0]-d.shape[0]
		if extra == 0 {
			side, extra = "B", tb.Shape[0]-d.shape[0]
		}
		d.note = fmt.Sprintf("%s has %d more rows", side, extra)
		n := min(len(x), len(y))
		x, y = x[:n], y[:n]
	}
	d.measure(x, y)
	return d, nil
}

// measure fills in the errors of x against y.
func (d *difference) measure(x, y []float64) {
	var xy, xx, yy, dd float64
	for i := range x {
		diff := x[i] - y[i]
		if x[i] == y[i] {
			diff = 0 // equal infinities
		}
		d.maxAbs = max(d.maxAbs, math.Abs(diff)) // NaN stays
		xy, xx, yy, dd = xy+x[i]*y[i], xx+x[i]*x[i], yy+y[i]*y[i], dd+diff*diff
	}
	switch {
	case dd == 0:
	case yy == 0:
		d.rel, d.cos = math.Inf(1), 1
	default:
		d.rel = math.Sqrt(dd / yy)
		d.cos = max(0, 1-xy/math.Sqrt(xx*yy))
	}
	width := 1
	if n := len(d.shape); n > 0 {
		width = d.shape[n-1]
	}
	for i := 0; i+width <= len(x); i += width {
		d.rows++
		if argmax(x[i:i+width]) == argmax(y[i:i+width]) {
			d.sameTop++
		}
	}
}

func argmax(v []float64) int {
	best := 0
	for i, x := range v {
		if x > v[best] {
			best = i
		}
	}
	return best
}

// numbers reads any checkpoint tensor.
func numbers(t *weights.Tensor) ([]float64, error) {
	if f, err := t.Float32s(); err == nil {
		out := make([]float64, len(f))
		for i, v := range f {
			out[i] = float64(v)
		}
		return out, nil
	}
	n, err := t.Int64s()
	if err != nil {
		return nil, err
	}
	out := make([]float64, len(n))
	for i, v := range n {
		out[i] = float64(v)
	}
	return out, nil
}
