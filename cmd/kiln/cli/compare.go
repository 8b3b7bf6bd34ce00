package cli

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"unicode"

	"github.com/kiln-project/kiln/runtime/weights"
)

const compareHelp = `Compares the tensors of A with those of the same name in B, as numbers: largest
absolute difference, relative Frobenius error |A-B|/|B|, 1-cosine, and the share
of rows (last axis) whose largest element is the same one. If one side has more
rows (first axis), the common ones are compared and the others reported. Equal
infinities count as equal and are left out of the norms.

With --max-rel, a tensor that is missing, of another shape, NaN, or beyond the
bound makes the exit code 4.`

func runCompare(e *env, f *flags, args []string) error {
	limit, prefix := f.float("max-rel"), f.text("prefix")
	if f.given("max-rel") && !(limit >= 0) {
		return usagef("kiln compare --max-rel 1e-3 A B", "%s is %v, want a number of at least 0", f.origins("max-rel"), limit)
	}
	a, err := openCompared(args[0])
	if err != nil {
		return err
	}
	defer a.Close()
	b, err := openCompared(args[1])
	if err != nil {
		return err
	}
	defer b.Close()

	tw := tabwriter.NewWriter(e.stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(tw, "tensor\tshape\tmax abs\trel\t1-cos\targmax\tnote")
	var bad []string
	compared := 0
	for _, name := range a.Names() {
		if err := e.ctx.Err(); err != nil {
			return err
		}
		other, shown := prefix+name, printable(name)
		if !b.Has(other) {
			fmt.Fprintf(tw, "%s\t\t\t\t\t\tB has no %s\n", shown, printable(other))
			bad = append(bad, shown)
			continue
		}
		d, err := compareTensors(a, name, b, other)
		if err != nil {
			return err
		}
		if d.mismatch != "" {
			fmt.Fprintf(tw, "%s\t\t\t\t\t\t%s\n", shown, d.mismatch)
			bad = append(bad, shown)
			continue
		}
		compared++
		fmt.Fprintf(tw, "%s\t%v\t%.3g\t%.3g\t%.2g\t%d/%d\t%s\n", shown, d.shape, d.maxAbs, d.rel, d.cos, d.sameTop, d.rows, d.note)
		if !(d.rel <= limit) { // NaN is beyond every bound
			bad = append(bad, shown)
		}
	}
	if err := tw.Flush(); err != nil {
		return err
	}
	if f.given("max-rel") && len(bad) > 0 {
		return &codedError{exitCheck, fmt.Errorf("%d of %d tensors beyond --max-rel %g, missing or of another shape: first %s", len(bad), len(a.Names()), limit, bad[0]), ""}
	}
	if compared == 0 {
		return fmt.Errorf("%s and %s (prefix %q) have no tensor to compare", args[0], args[1], prefix)
	}
	return nil
}

// openCompared opens A or B.
func openCompared(path string) (*weights.Checkpoint, error) {
	c, err := weights.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, &codedError{exitFailed, err, "kiln compare A B, each a .safetensors file or a model folder"}
	}
	return c, err
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

// scale is a power of two that brings the numbers near 1, so that their squares
// neither overflow nor lose bits.
func scale(v []float64) float64 {
	top := 0.0
	for _, x := range v {
		if a := math.Abs(x); a > top && !math.IsInf(a, 0) {
			top = a
		}
	}
	_, e := math.Frexp(top)
	return math.Ldexp(1, -max(-1000, min(e, 1000)))
}

// measure fills in the errors of x against y.
func (d *difference) measure(x, y []float64) {
	sx, sy := scale(x), scale(y)
	both := min(sx, sy)
	var xy, xx, yy, dd float64
	for i := range x {
		if x[i] == y[i] && math.IsInf(x[i], 0) {
			continue // in the norms it would hide every other difference
		}
		diff := x[i] - y[i]
		d.maxAbs = max(d.maxAbs, math.Abs(diff)) // NaN stays
		a, b, c := x[i]*sx, y[i]*sy, diff*both
		xy, xx, yy, dd = xy+a*b, xx+a*a, yy+b*b, dd+c*c
	}
	switch {
	case dd == 0:
	case yy == 0:
		d.rel, d.cos = math.Inf(1), 1
	case xx == 0:
		d.rel, d.cos = math.Sqrt(dd/yy)*(sy/both), 1
	default:
		d.rel = math.Sqrt(dd/yy) * (sy / both)
		d.cos = max(0, 1-xy/(math.Sqrt(xx)*math.Sqrt(yy)))
	}
	width := 1
	if n := len(d.shape); n > 0 {
		width = d.shape[n-1]
	}
	for i := 0; i+width <= len(x); i += width {
		d.rows++
		topX, okX := argmax(x[i : i+width])
		topY, okY := argmax(y[i : i+width])
		if okX && okY && topX == topY {
			d.sameTop++
		}
	}
}

// argmax is the first index of the largest value; with a NaN there is none.
func argmax(v []float64) (best int, ok bool) {
	for i, x := range v {
		if x != x {
			return 0, false
		}
		if x > v[best] {
			best = i
		}
	}
	return best, true
}

// printable keeps a name from a file on its line and in its column.
func printable(name string) string {
	if strings.ContainsFunc(name, unicode.IsControl) {
		return strconv.Quote(name)
	}
	return name
}

// numbers reads any checkpoint tensor, exactly.
func numbers(t *weights.Tensor) ([]float64, error) {
	if t.DType == weights.F64 {
		out := make([]float64, len(t.Data)/8)
		for i := range out {
			out[i] = math.Float64frombits(binary.LittleEndian.Uint64(t.Data[8*i:]))
		}
		return out, nil
	}
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
		if out[i] = float64(v); v > 1<<53 || v < -1<<53 {
			return nil, fmt.Errorf("%s: tensor %s: element %d is %d, beyond the integers that a float64 holds", t.File, printable(t.Name), i, v)
		}
	}
	return out, nil
}
