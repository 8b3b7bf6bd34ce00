package kernels_test

import (
	"bytes"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/kiln-project/kiln/codegen"
	"github.com/kiln-project/kiln/ir"
	"github.com/kiln-project/kiln/ir/eval"
)

// valueTypes are the formats of row ops.
var valueTypes = []ir.DType{ir.F32, ir.BF16, ir.F16, ir.I64, ir.I32, ir.I8, ir.U8}

// indices are rows of n, each -1 with probability none.
func indices(t *testing.T, r *rand.Rand, n int, none float64, shape ...int) *eval.Tensor {
	t.Helper()
	x := blank(t, ir.T(ir.I32, intDims(shape)...))
	for i := range x.I {
		x.I[i] = int64(r.IntN(n))
		if r.Float64() < none {
			x.I[i] = -1
		}
	}
	return x
}

func TestGatherRows(t *testing.T) {
	r := rand.New(rand.NewPCG(4, 1))
	c := newBatch(t)
	for _, dt := range append(valueTypes, ir.Bool) {
		for _, s := range []struct{ table, rows []int }{
			{[]int{1}, []int{1}}, {[]int{9}, []int{300}}, {[]int{5, 3}, []int{7}}, {[]int{5, 8}, []int{2, 3}}, {[]int{5, 300}, []int{9}},
			{[]int{3, 2, 4}, []int{2, 1, 5}}, {[]int{3, 5000}, []int{4}}, {[]int{7, 64}, []int{100}}, {[]int{7, 2}, nil},
		} {
			c.op("gather_rows", nil, exact, random(t, r, patterns, dt, s.table...), indices(t, r, s.table[0], 0.2, s.rows...))
		}
		c.op("gather_rows", nil, exact, random(t, r, patterns, dt, 4, 9), indices(t, r, 4, 1, 5))
	}
	c.run()
}

func TestTakeAlong(t *testing.T) {
	r := rand.New(rand.NewPCG(4, 2))
	c := newBatch(t)
	for _, dt := range valueTypes {
		fills := []float64{0, 7}
		if dt.IsFloat() {
			fills = append(fills, math.Inf(-1), math.NaN(), 0.1, math.Copysign(0, -1))
		}
		for i, s := range []struct{ x, cols []int }{
			{[]int{1}, []int{1}}, {[]int{9}, []int{300}}, {[]int{5, 3}, []int{5, 7}}, {[]int{5, 300}, []int{5, 8}}, {[]int{3, 2, 4}, []int{3, 2, 1}}, {[]int{2, 7}, []int{2, 5000}},
		} {
			for j := range 2 {
				c.op("take_along", ir.A("fill", fills[(i+3*j)%len(fills)]), exact, random(t, r, patterns, dt, s.x...), indices(t, r, s.x[len(s.x)-1], 0.2, s.cols...))
			}
		}
	}
	c.run()
}

// slots are n distinct slots of a pool, each -1 with probability none.
func slots(t *testing.T, r *rand.Rand, pool, n int, none float64) *eval.Tensor {
	t.Helper()
	x := intsOf(t, ir.I32, make([]int64, n), n)
	for i, p := range r.Perm(pool)[:n] {
		x.I[i] = int64(p)
		if r.Float64() < none {
			x.I[i] = -1
		}
	}
	return x
}

func TestScatterRows(t *testing.T) {
	r := rand.New(rand.NewPCG(4, 3))
	c := newBatch(t)
	for _, dt := range valueTypes {
		for i, s := range []struct {
			pool []int
			rows int
		}{{[]int{1}, 1}, {[]int{9}, 5}, {[]int{300}, 300}, {[]int{5, 3}, 2}, {[]int{5, 300}, 5}, {[]int{6, 2, 4}, 3}, {[]int{3, 5000}, 2}, {[]int{70, 64}, 64}} {
			none := float64(i%3) / 2
			x, at := random(t, r, patterns, dt, s.pool...), slots(t, r, s.pool[0], s.rows, none)
			rows := random(t, r, patterns, dt, append([]int{s.rows}, s.pool[1:]...)...)
			// Another value is copied and stays what it was.
			c.op("scatter_rows", nil, exact, x, at, rows)
			c.output("the operand", exact, c.input(x))
			// A pool is written in place, twice.
			name := fmt.Sprintf("s%d.%s", i, dt)
			c.states[name] = random(t, r, patterns, dt, s.pool...)
			state := c.b.State(name, x.Type())
			once := c.b.Op1("scatter_rows", nil, state, c.input(at), c.input(rows))
			again := slots(t, r, s.pool[0], s.rows, none)
			c.b.Update(state, c.b.Op1("scatter_rows", nil, once, c.input(again), c.input(rows)))
		}
	}
	c.run()
}

// A reshape of a pool keeps what the pool held before a write, a pool that is
// not written needs no copy, and several constant outputs have memory of their
// own.
func TestPoolValues(t *testing.T) {
	r := rand.New(rand.NewPCG(4, 4))
	c := newBatch(t)
	c.states["s"], c.states["kept"] = random(t, r, ordinary, ir.F32, 4, 6), random(t, r, ordinary, ir.F32, 4, 6)
	s, kept := c.b.State("s", c.states["s"].Type()), c.b.State("kept", c.states["kept"].Type())
	before := c.b.Reshape(s, ir.Int(24))
	written := c.b.Op1("scatter_rows", nil, s, c.input(intsOf(t, ir.I32, []int64{2, -1}, 2)), c.input(random(t, r, ordinary, ir.F32, 2, 6)))
	c.output("before", exact, before)
	c.output("after", exact, c.b.Reshape(written, ir.Int(2), ir.Int(12)))
	c.output("kept", exact, c.b.Reshape(kept, ir.Int(24)))
	c.output("the pool itself", exact, kept)
	c.b.Update(s, written)
	for i := range 5 {
		c.output("constant", exact, c.b.F(float64(i)))
	}
	c.run()
}

// An index that is not a row reads nothing and writes nothing, whatever its size.
func TestIndexOutside(t *testing.T) {
	c := newBatch(t)
	bad := intsOf(t, ir.I32, []int64{5, 0, math.MaxInt32, math.MinInt32, -2}, 5)
	x := floatsOf(t, ir.F32, []float32{1, 2, 3, 4, 5}, 5)
	wide := floatsOf(t, ir.F32, []float32{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31, 32, 33, 34, 35, 36, 37, 38, 39, 40, 41, 42, 43, 44, 45}, 5, 9)
	c.op("gather_rows", nil, exact, x, bad)
	c.op("gather_rows", nil, exact, wide, bad)
	c.op("take_along", ir.A("fill", 9.0), exact, x, bad)
	c.op("scatter_rows", nil, exact, x, bad, floatsOf(t, ir.F32, []float32{-1, -2, -3, -4, -5}, 5))
	got := c.outputs("x86-64-v3")
	row := append(make([]float32, 9), wide.F[:9]...)
	for name, want := range map[string][]float32{
		"y0": {0, 1, 0, 0, 0}, "y1": append(row, make([]float32, 27)...), "y2": {9, 1, 9, 9, 9}, "y3": {-2, 2, 3, 4, 5},
	} {
		if d := exact.compare(floatsOf(t, ir.F32, want, got[name].Shape...), got[name]); d != "" {
			t.Errorf("%s: %s", name, d)
		}
	}
}

// Padding rows leave every byte of a pool alone.
func TestScatterOfNothing(t *testing.T) {
	c := newBatch(t)
	r := rand.New(rand.NewPCG(4, 5))
	pool := random(t, r, patterns, ir.BF16, 5, 7)
	s := c.b.State("s", pool.Type())
	at := c.input(intsOf(t, ir.I32, []int64{-1, -1, -1}, 3))
	c.b.Update(s, c.b.Op1("scatter_rows", nil, s, at, c.input(random(t, r, patterns, ir.BF16, 3, 7))))
	u := codegen.NewUnit(mustTarget(t, "x86-64-v3"))
	pl, err := u.Lower(c.graph())
	if err != nil {
		t.Fatal(err)
	}
	d := buildHost(t, u)
	defer d.Close()
	prog, err := d.Load(pl)
	if err != nil {
		t.Fatal(err)
	}
	defer prog.Close()
	st, err := d.NewState(pl)
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	if err := st.SetPool("s", pool); err != nil {
		t.Fatal(err)
	}
	before, err := st.Bytes("s")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := prog.Run(c.in, st); err != nil {
		t.Fatal(err)
	}
	after, err := st.Bytes("s")
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(before, after) {
		t.Error("the pool changed")
	}
}
