package cli

import (
	"bytes"
	"encoding/binary"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/kiln-project/kiln/runtime/weights"
	"pgregory.net/rapid"
)

func f32(name string, shape []int, v ...float32) weights.Tensor {
	return weights.Float32Tensor(name, shape, v)
}

func f64(name string, shape []int, v ...float64) weights.Tensor {
	t := weights.Tensor{Name: name, DType: weights.F64, Shape: shape}
	for _, x := range v {
		t.Data = binary.LittleEndian.AppendUint64(t.Data, math.Float64bits(x))
	}
	return t
}

func i64(name string, shape []int, v ...int64) weights.Tensor {
	t := weights.Tensor{Name: name, DType: weights.I64, Shape: shape}
	for _, x := range v {
		t.Data = binary.LittleEndian.AppendUint64(t.Data, uint64(x))
	}
	return t
}

// raw is a tensor of one-byte or two-byte elements.
func raw(name string, d weights.DType, shape []int, data ...byte) weights.Tensor {
	return weights.Tensor{Name: name, DType: d, Shape: shape, Data: data}
}

var (
	inf  = float32(math.Inf(1))
	nan  = float32(math.NaN())
	one  = []int{1}
	two  = []int{2}
	four = []int{4}
)

// The line of one tensor, column by column.
func TestCompareLine(t *testing.T) {
	for _, tc := range []struct {
		name string
		a, b weights.Tensor
		want string // shape, max abs, rel, 1-cos, argmax, note
	}{
		{"equal", f32("t", two, 1, 2), f32("t", two, 1, 2), "[2]|0|0|0|1/1|"},
		{"difference", f32("t", two, 3, 4), f32("t", two, 3, 5), "[2]|1|0.171|0.0053|1/1|"},
		{"twice as large", f32("t", two, 6, 8), f32("t", two, 3, 4), "[2]|4|1|0|1/1|"},
		{"opposite", f32("t", two, -1, -2), f32("t", two, 1, 2), "[2]|4|2|2|0/1|"},
		{"rows", f32("t", []int{2, 2}, 1, 2, 4, 3), f32("t", []int{2, 2}, 2, 1, 4, 3), "[2 2]|1|0.258|0.033|1/2|"},
		{"one number", f32("t", nil, 1), f32("t", nil, 1.5), "[]|0.5|0.333|0|1/1|"},
		{"rank 3", f32("t", []int{1, 2, 2}, 1, 2, 3, 4), f32("t", []int{1, 2, 2}, 1, 2, 3, 4), "[1 2 2]|0|0|0|2/2|"},

		{"zeros", f32("t", two, 0, 0), f32("t", two, 0, 0), "[2]|0|0|0|1/1|"},
		{"zeros of two signs", f32("t", one, 0), f32("t", one, float32(math.Copysign(0, -1))), "[1]|0|0|0|1/1|"},
		{"something against zeros", f32("t", two, 0, 1), f32("t", two, 0, 0), "[2]|1|+Inf|1|0/1|"},
		{"zeros against something", f32("t", two, 0, 0), f32("t", two, 0, 1), "[2]|1|1|1|0/1|"},

		{"A has a NaN", f32("t", two, 0, nan), f32("t", two, 0, 1), "[2]|NaN|NaN|NaN|0/1|"},
		{"B has a NaN", f32("t", two, nan, 1), f32("t", two, 0, 1), "[2]|NaN|NaN|NaN|0/1|"},
		{"both have a NaN", f32("t", two, nan, 1), f32("t", two, nan, 1), "[2]|NaN|NaN|NaN|0/1|"},
		{"equal infinities", f32("t", two, inf, -inf), f32("t", two, inf, -inf), "[2]|0|0|0|1/1|"},
		{"an infinity hides no difference", f32("t", two, -inf, 5), f32("t", two, -inf, 500), "[2]|495|0.99|0|1/1|"},
		{"A has an infinity", f32("t", two, inf, 1), f32("t", two, 1, 1), "[2]|+Inf|+Inf|NaN|1/1|"},
		{"B has an infinity", f32("t", two, 1, 1), f32("t", two, inf, 1), "[2]|+Inf|NaN|NaN|1/1|"},
		{"infinities of two signs", f32("t", one, inf), f32("t", one, -inf), "[1]|+Inf|NaN|NaN|1/1|"},

		{"bf16 and f32", raw("t", weights.BF16, two, 0x80, 0x3f, 0x00, 0x40), f32("t", two, 1, 2), "[2]|0|0|0|1/1|"},
		{"f16 and f32", raw("t", weights.F16, two, 0x00, 0x3c, 0x00, 0x40), f32("t", two, 1, 2.5), "[2]|0.5|0.186|0.0035|1/1|"},
		{"f8 and scale", raw("t", weights.F8E4M3, one, 0x38), raw("t", weights.F8E8M0, one, 128), "[1]|1|0.5|0|1/1|"},
		{"f64 below the precision of f32", f64("t", one, 1), f64("t", one, 1+1e-9), "[1]|1e-09|1e-09|0|1/1|"},
		{"f64 beyond the range of f32", f64("t", one, 1e100), f64("t", one, 2e100), "[1]|1e+100|0.5|0|1/1|"},
		{"integers", i64("t", []int{3}, 1, 5, 2), i64("t", []int{3}, 1, 5, 4), "[3]|2|0.309|0.042|1/1|"},
		{"large integers", i64("t", one, 1<<53), i64("t", one, 1<<53-1), "[1]|1|1.11e-16|0|1/1|"},
		{"bytes", raw("t", weights.I8, one, 0xff), raw("t", weights.U8, one, 0xff), "[1]|256|1|2|1/1|"},
		{"bools", raw("t", weights.Bool, two, 0, 1), raw("t", weights.Bool, two, 1, 1), "[2]|1|0.707|0.29|0/1|"},
		{"integers and floats", i64("t", one, 2), f32("t", one, 2), "[1]|0|0|0|1/1|"},

		{"A has more rows", f32("t", []int{3, 1}, 1, 2, 3), f32("t", []int{2, 1}, 1, 2), "[2 1]|0|0|0|2/2|A has 1 more rows"},
		{"B has more rows", f32("t", []int{1, 2}, 1, 2), f32("t", []int{3, 2}, 1, 2, 3, 4, 5, 6), "[1 2]|0|0|0|1/1|B has 2 more rows"},
		{"more elements", f32("t", two, 1, 2), f32("t", four, 1, 2, 3, 4), "[2]|0|0|0|1/1|B has 2 more rows"},
		{"shapes differ", f32("t", []int{2, 1}, 1, 2), f32("t", []int{1, 2}, 1, 2), "|||||shapes differ: [2 1] and [1 2]"},
		{"ranks differ", f32("t", one, 1), f32("t", nil, 1), "|||||shapes differ: [1] and []"},
		{"not there", f32("t", one, 1), f32("u", one, 1), "|||||B has no t"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			a, b := writeTensors(t, tc.a), writeTensors(t, tc.b)
			r := kiln(t, "compare", a, b)
			lines := strings.Split(r.stdout, "\n")
			if len(lines) != 3 || lines[2] != "" {
				t.Fatalf("standard output is %q, want a header and a line", r.stdout)
			}
			if got := columns(lines[0], lines[1]); got != tc.want {
				t.Errorf("got  %s\nwant %s\nin\n%s", got, tc.want, r.stdout)
			}
		})
	}
}

// columns are a line's cells after the first, cut where the header's words start.
func columns(header, line string) string {
	var cells []string
	var starts []int
	for _, h := range []string{"shape", "max abs", "rel", "1-cos", "argmax", "note"} {
		starts = append(starts, strings.Index(header, h))
	}
	for i, from := range starts {
		to := len(line)
		if i+1 < len(starts) {
			to = min(to, starts[i+1])
		}
		cells = append(cells, strings.TrimSpace(line[min(from, to):to]))
	}
	return strings.Join(cells, "|")
}

func TestCompareFiles(t *testing.T) {
	a := writeTensors(t, f32("x", two, 1, 2), f32("y", two, 3, 4))
	near := writeTensors(t, f32("x", two, 1, 2), f32("y", two, 3, 4.01), f32("z", one, 0))
	prefixed := writeTensors(t, f32("c.x", two, 1, 2), f32("c.y", two, 3, 4))
	other := writeTensors(t, f32("q", one, 1))
	lacking := writeTensors(t, f32("x", two, 1, 2))
	withNaN := writeTensors(t, f32("x", two, 1, nan), f32("y", two, 3, 4))
	shaped := writeTensors(t, f32("x", []int{1, 2}, 1, 2), f32("y", two, 3, 4))
	nothing := writeTensors(t)
	fewer := writeTensors(t, f32("x", one, 1), f32("y", one, 3))
	huge := writeTensors(t, i64("x", one, 1<<53+1))
	boolish := writeTensors(t, raw("x", weights.Bool, one, 2))
	for _, tc := range []struct {
		name    string
		args    []string
		environ []string
		code    int
		parts   []string // of standard error; none: it is empty
	}{
		{"the same file", []string{a, a, "--max-rel", "0"}, nil, 0, nil},
		{"B has more tensors", []string{a, near, "--max-rel", "0.01"}, nil, 0, nil},
		{"no bound", []string{a, near}, nil, 0, nil},
		{"beyond the bound", []string{a, near, "--max-rel", "1e-6"}, nil, 4, []string{"kiln: 1 of 2 tensors beyond --max-rel 1e-06, missing or of another shape: first y\n"}},
		{"bound of the environment", []string{a, near}, []string{"KILN_MAX_REL=1e-6"}, 4, []string{"first y"}},
		{"infinite bound", []string{a, near, "--max-rel", "inf"}, nil, 0, nil},
		{"prefix", []string{a, prefixed, "--prefix", "c.", "--max-rel", "0"}, nil, 0, nil},
		{"prefix of the environment", []string{a, prefixed, "--max-rel", "0"}, []string{"KILN_PREFIX=c."}, 0, nil},
		{"missing, no bound", []string{a, lacking}, nil, 0, nil},
		{"missing", []string{a, lacking, "--max-rel", "1"}, nil, 4, []string{"1 of 2 tensors", "first y"}},
		{"NaN, no bound", []string{a, withNaN}, nil, 0, nil},
		{"NaN is beyond every bound", []string{withNaN, withNaN, "--max-rel", "inf"}, nil, 4, []string{"first x"}},
		{"another shape", []string{a, shaped, "--max-rel", "1"}, nil, 4, []string{"first x"}},
		{"fewer rows are compared", []string{a, fewer, "--max-rel", "0"}, nil, 0, nil},
		{"nothing in common", []string{a, other}, nil, 1, []string{`(prefix "") have no tensor to compare`}},
		{"nothing in common, with a bound", []string{a, other, "--max-rel", "1"}, nil, 4, []string{"2 of 2 tensors", "first x"}},
		{"nothing in A", []string{nothing, a, "--max-rel", "1"}, nil, 1, []string{"have no tensor to compare"}},
		{"integers that float64 lacks", []string{huge, huge}, nil, 1, []string{huge + ": tensor x: element 0 is 9007199254740993"}},
		{"a bool that is none", []string{boolish, boolish}, nil, 1, []string{boolish + `: tensor "x": element 0: byte 2 is not a bool`}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := kilnWith(t, tc.environ, "", append([]string{"compare"}, tc.args...)...)
			if r.code != tc.code {
				t.Errorf("exit code %d, want %d; standard error: %s", r.code, tc.code, r.stderr)
			}
			if len(tc.parts) == 0 && r.stderr != "" {
				t.Errorf("standard error is %q, want nothing", r.stderr)
			}
			for _, p := range tc.parts {
				if !strings.Contains(r.stderr, p) {
					t.Errorf("standard error is %q, want %q in it", r.stderr, p)
				}
			}
		})
	}
}

func TestCompareOutput(t *testing.T) {
	a := writeTensors(t, f32("x", two, 1, 2), f32("y\tz\n", two, 3, 4))
	b := writeTensors(t, f32("x", []int{3}, 1, 2.5, 0))
	want := "" +
		"tensor    shape  max abs  rel    1-cos   argmax  note\n" +
		"x         [2]    0.5      0.186  0.0035  1/1     B has 1 more rows\n" +
		`"y\tz\n"                                         B has no "y\tz\n"` + "\n"
	if diff := cmp.Diff(want, kiln(t, "compare", a, b).ok(t).stdout); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}

	var stdout, stderr bytes.Buffer
	code := run(&env{stdout: &stdout, stderr: &stderr, ctx: cancelled(t), started: time.Now()}, []string{"compare", a, b})
	result{code, "", stderr.String()}.failed(t, exitFailed, "kiln: interrupted\n")
}

// measured runs measure on rows of one shape.
func measured(x, y []float64, shape ...int) difference {
	d := difference{shape: shape}
	d.measure(x, y)
	return d
}

// Squares of small or large numbers lose no bits.
func TestMeasureScale(t *testing.T) {
	for _, s := range []float64{1e-300, 1e-158, 1, 1e158, 1e300} {
		if d := measured([]float64{s, 2 * s}, []float64{s, -2 * s}, 2); math.Abs(d.rel-4/math.Sqrt(5)) > 1e-12 || math.Abs(d.cos-1.6) > 1e-12 {
			t.Errorf("numbers near %g: rel %v, 1-cos %v", s, d.rel, d.cos)
		}
	}
}

func TestMeasureProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 40).Draw(t, "n")
		value := rapid.Float64Range(-1e6, 1e6)
		x := rapid.SliceOfN(value, n, n).Draw(t, "x")
		y := rapid.SliceOfN(value, n, n).Draw(t, "y")
		if d := measured(x, x, n); d.maxAbs != 0 || d.rel != 0 || d.cos != 0 || d.sameTop != d.rows || d.rows != 1 {
			t.Fatalf("a tensor against itself: %+v", d)
		}
		a, b := measured(x, y, n), measured(y, x, n)
		if a.maxAbs != b.maxAbs || a.sameTop != b.sameTop || math.Abs(a.cos-b.cos) > 1e-12 {
			t.Fatalf("not symmetric: %+v and %+v", a, b)
		}
		if a.rel < 0 || a.cos < 0 || a.cos > 2+1e-12 || a.maxAbs < 0 {
			t.Fatalf("out of range: %+v", a)
		}
		// An equal infinity on both sides changes no error.
		low := math.Inf(-1)
		c := measured(append([]float64{low}, x...), append([]float64{low}, y...), n+1)
		c.shape = a.shape
		if diff := cmp.Diff(a, c, cmp.AllowUnexported(difference{})); diff != "" {
			t.Fatalf("an equal infinity changes the result:\n%s", diff)
		}
		// A factor shows in the relative error and not in the angle.
		norm := 0.0
		for _, v := range y {
			norm += v * v
		}
		if norm > 1 {
			twice := make([]float64, n)
			for i, v := range y {
				twice[i] = 2 * v
			}
			if d := measured(twice, y, n); math.Abs(d.rel-1) > 1e-12 || d.cos > 1e-12 {
				t.Fatalf("twice a tensor: %+v", d)
			}
		}
	})
}
