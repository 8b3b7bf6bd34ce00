package eval

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"testing"

	"github.com/kiln-project/kiln/ir"
)

// finish verifies and compiles the graph of b.
func finish(t *testing.T, b *ir.Builder, w WeightSource) *Program {
	t.Helper()
	g, err := b.Finish()
	if err != nil {
		t.Fatal(err)
	}
	p, err := Compile(g, NewConsts(w))
	if err != nil {
		t.Fatal(err)
	}
	poison(p)
	return p
}

func run(t *testing.T, p *Program, inputs, states map[string]*Tensor) map[string]*Tensor {
	t.Helper()
	out, err := p.Run(inputs, states)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// typ is an unscaled type.
func typ(dt ir.DType, shape ...int) ir.Type { return ir.T(dt, dims(shape...)...) }

// Pools are written in place, row by row: all other rows keep their bits, NaN
// payloads and values that no kernel would produce included.
func TestStatesAreWrittenInPlace(t *testing.T) {
	const rows, width = 7, 3
	for _, dt := range numTypes {
		b := ir.NewBuilder("g")
		pool := b.State("pool", typ(dt, rows, width))
		other := b.State("other", typ(dt, rows, width))
		slots, x := b.Input("slots", typ(ir.I32, 3)), b.Input("x", typ(dt, 3, width))
		b.Output("before", b.Op1("gather_rows", nil, pool, slots))
		once := b.Op1("scatter_rows", nil, pool, slots, x)
		b.Output("between", b.Op1("gather_rows", nil, once, slots))
		one, last := b.Input("one", typ(ir.I32, 1)), b.Slice(x, 0, 2, 1)
		twice := b.Op1("scatter_rows", nil, once, one, last)
		b.Update(pool, twice)
		b.Output("pool", twice)
		b.Output("other", other)
		p := finish(t, b, nil)

		canary := zeroTensor(dt, rows, width)
		for i := range canary.F {
			canary.F[i] = math.Float32frombits(0x7FC00000 | uint32(i)<<16 | 0xBEEF)
		}
		for i := range canary.I {
			canary.I[i] = -1 - int64(i)<<40
		}
		states := map[string]*Tensor{"pool": canary.Clone(), "other": canary.Clone()}
		in := map[string]*Tensor{
			"slots": i32s([]int32{5, -1, 2}, 3), "one": i32s([]int32{0}, 1),
			"x": randTensor(rand.New(rand.NewPCG(1, 1)), normal, dt, 3, width),
		}
		out := run(t, p, in, states)

		want := canary.Clone()
		for slot, row := range map[int]int{5: 0, 2: 2, 0: 2} {
			copyRow(want, slot, in["x"], row)
		}
		for i := range want.Len() {
			if cell(states["pool"], i) != cell(want, i) {
				t.Errorf("%s: pool element %d has bits %#x, want %#x", dt, i, cell(states["pool"], i), cell(want, i))
			}
			if cell(states["other"], i) != cell(canary, i) {
				t.Errorf("%s: element %d of the pool that is only read is %#x, was %#x", dt, i, cell(states["other"], i), cell(canary, i))
			}
			if cell(out["pool"], i) != cell(want, i) || cell(out["other"], i) != cell(canary, i) {
				t.Errorf("%s: outputs of the pools differ from the pools at element %d", dt, i)
			}
		}
		before, between := zeroTensor(dt, 3, width), zeroTensor(dt, 3, width)
		copyRow(before, 0, canary, 5)
		copyRow(before, 2, canary, 2)
		copyRow(between, 0, in["x"], 0)
		copyRow(between, 2, in["x"], 2)
		for i := range before.Len() {
			if cell(out["before"], i) != cell(before, i) {
				t.Errorf("%s: rows read before the write: element %d is %s", dt, i, show(out["before"], i))
			}
		}
		if d := difference(out["between"], between); d != "" {
			t.Errorf("%s: rows read between the writes: %s", dt, d)
		}
	}
}

func copyRow(dst *Tensor, i int, src *Tensor, j int) {
	w := dst.Shape[1]
	if dst.F != nil {
		copy(dst.F[i*w:(i+1)*w], src.F[j*w:])
		return
	}
	copy(dst.I[i*w:(i+1)*w], src.I[j*w:])
}

// scribble overwrites all of a tensor's storage.
func scribble(t *Tensor) {
	for i := range t.F {
		t.F[i] = -12345
	}
	for i := range t.I {
		t.I[i] = -12345
	}
	for i := range t.Codes {
		t.Codes[i] = 0x55
	}
	for i := range t.Scales {
		t.Scales[i] = 0x55
	}
}

// Outputs that are inputs, states, weights, views of them, or one value twice
// belong to the caller: writing to one changes nothing else.
func TestOutputsAreTheCallersOwn(t *testing.T) {
	r := rand.New(rand.NewPCG(2, 2))
	w := randTensor(r, normal, ir.F32, 2, 3)
	codes := randScaled(r, ir.F4E2M1, 1, 2, 3, 3, 2, 4)
	b := ir.NewBuilder("g")
	x := b.Input("x", typ(ir.F32, 2, 3))
	pool := b.State("pool", typ(ir.F32, 2, 3))
	read := b.State("read", typ(ir.F32, 2, 3))
	wv, cv := b.Weight("w", w.Type()), b.Weight("c", codes.Type())
	sum := b.Bin("add", x, wv)
	written := b.Op1("scatter_rows", nil, pool, b.Input("slots", typ(ir.I32, 2)), x)
	b.Update(pool, written)
	for i, v := range []*ir.Value{
		x, written, read, wv, cv, sum, sum,
		b.Reshape(x, ir.Int(6)), b.Reshape(read, ir.Int(6)), b.Reshape(wv, ir.Int(6)), b.Reshape(sum, ir.Int(6)),
		b.Reshape(cv, ir.Int(1), ir.Int(2), ir.Int(4)),
	} {
		b.Output(fmt.Sprintf("o%d", i), v)
	}
	p := finish(t, b, &mapSource{tensors: map[string]*Tensor{"w": w, "c": codes}})
	fresh := func() (in, st map[string]*Tensor) {
		r := rand.New(rand.NewPCG(3, 3))
		return map[string]*Tensor{"x": randTensor(r, normal, ir.F32, 2, 3), "slots": i32s([]int32{1, 0}, 2)},
			map[string]*Tensor{"pool": randTensor(r, normal, ir.F32, 2, 3), "read": randTensor(r, normal, ir.F32, 2, 3)}
	}
	in, st := fresh()
	out := run(t, p, in, st)
	want := map[string]*Tensor{}
	for name, o := range out {
		want[name] = o.Clone()
	}
	for name, o := range out {
		keepIn, keepSt := in["x"].Clone(), st["pool"].Clone()
		scribble(o)
		if difference(in["x"], keepIn) != "" || difference(st["pool"], keepSt) != "" {
			t.Errorf("output %s shares storage with an input or a state", name)
		}
		for other, keep := range want {
			if other != name && difference(out[other], keep) != "" {
				t.Errorf("outputs %s and %s share storage", name, other)
			}
		}
		out[name] = want[name].Clone()
	}
	in, st = fresh()
	for name, o := range run(t, p, in, st) {
		if d := difference(o, want[name]); d != "" {
			t.Errorf("second run: output %s: %s", name, d)
		}
	}
	// States given to Run are not kept: writing to them later changes no output.
	scribble(st["pool"])
	scribble(in["x"])
	in, st = fresh()
	for name, o := range run(t, p, in, st) {
		if d := difference(o, want[name]); d != "" {
			t.Errorf("third run: output %s: %s", name, d)
		}
	}
}

// A reshape of a pool is a value: it holds what the pool held, also after the
// pool is written, and also as the source of that write.
func TestReshapeOfAPoolKeepsItsValue(t *testing.T) {
	build := func(f func(b *ir.Builder, pool, flat, slots *ir.Value)) *ir.Builder {
		b := ir.NewBuilder("g")
		pool := b.State("pool", typ(ir.F32, 3, 1))
		f(b, pool, b.Reshape(pool, ir.Int(3)), b.Input("slots", typ(ir.I32, 3)))
		return b
	}
	pool := func() *Tensor { return f32s([]float32{1, 2, 3}, 3, 1) }
	in := map[string]*Tensor{"slots": i32s([]int32{1, 2, 0}, 3)}
	for _, c := range []struct {
		what     string
		b        *ir.Builder
		old, new []float64 // the output and the pool afterwards
	}{
		{"read after the write", build(func(b *ir.Builder, pool, flat, slots *ir.Value) {
			b.Update(pool, b.Op1("scatter_rows", nil, pool, slots, b.Broadcast(b.F(9), ir.Int(3), ir.Int(1))))
			b.Output("old", b.Bin("add", flat, b.F(0)))
		}), []float64{1, 2, 3}, []float64{9, 9, 9}},
		{"output", build(func(b *ir.Builder, pool, flat, slots *ir.Value) {
			b.Update(pool, b.Op1("scatter_rows", nil, pool, slots, b.Broadcast(b.F(9), ir.Int(3), ir.Int(1))))
			b.Output("old", flat)
		}), []float64{1, 2, 3}, []float64{9, 9, 9}},
		{"rows of the write", build(func(b *ir.Builder, pool, flat, slots *ir.Value) {
			b.Update(pool, b.Op1("scatter_rows", nil, pool, slots, b.Reshape(flat, ir.Int(3), ir.Int(1))))
			b.Output("old", flat)
		}), []float64{1, 2, 3}, []float64{3, 1, 2}},
	} {
		g, err := c.b.Finish()
		var breach *ir.VerifyError
		if errors.As(err, &breach) && breach.Rule == ir.RuleStateUse {
			continue // refused: that too is never silently wrong
		}
		if err != nil {
			t.Fatal(err)
		}
		p, err := Compile(g, NewConsts(nil))
		if err != nil {
			t.Fatal(err)
		}
		st := map[string]*Tensor{"pool": pool()}
		out := run(t, p, in, st)
		wantFloats(t, c.what, out["old"], c.old)
		wantFloats(t, c.what+": the pool", st["pool"], c.new)
	}
}

// Storage of a value lives as long as any view of it: here the operand of two
// reshapes dies before its views, among ops that want storage of its size.
func TestViewsKeepStorageAlive(t *testing.T) {
	b := ir.NewBuilder("g")
	x := b.Input("x", typ(ir.F32, 2, 3))
	a := b.Bin("mul", x, x)
	v := b.Reshape(a, ir.Int(3), ir.Int(2))
	w := b.Reshape(v, ir.Int(6))
	noise := b.Bin("add", x, x)
	for range 3 {
		noise = b.Bin("add", noise, x)
	}
	unused := b.Reshape(b.Bin("sub", x, x), ir.Int(6)) // dies at once, with its view
	b.Un("neg", unused)
	b.Output("sum", b.Bin("add", w, b.Reshape(noise, ir.Int(6))))
	kept := b.Bin("sub", noise, x)
	b.Output("view", b.Reshape(kept, ir.Int(6)))
	more := b.Bin("mul", noise, noise)
	b.Output("last", b.Bin("add", more, x))
	p := finish(t, b, nil)
	x0 := []float32{1, 2, 3, 4, 5, 6}
	for range 2 {
		out := run(t, p, map[string]*Tensor{"x": f32s(x0, 2, 3)}, nil)
		var sum, view, last []float64
		for _, v := range x0 {
			f := float64(v)
			sum, view, last = append(sum, f*f+5*f), append(view, 4*f), append(last, 25*f*f+f)
		}
		wantFloats(t, "sum", out["sum"], sum)
		wantFloats(t, "view", out["view"], view)
		wantFloats(t, "last", out["last"], last)
	}
}

// A failed run leaves the program usable.
func TestRunAfterError(t *testing.T) {
	b := ir.NewBuilder("g")
	x, y := b.Input("x", typ(ir.I32, 2)), b.Input("y", typ(ir.I32, 2))
	b.Output("q", b.Bin("add", b.Bin("div", x, y), x))
	p := finish(t, b, nil)
	args := func(y ...int32) map[string]*Tensor {
		return map[string]*Tensor{"x": i32s([]int32{6, 7}, 2), "y": i32s(y, 2)}
	}
	for range 3 {
		if _, err := p.Run(args(2, 0), nil); !matches(err, "div by zero at element 1") {
			t.Fatalf("error %v", err)
		}
		wantInts(t, "q", run(t, p, args(2, 7), nil)["q"], []int64{9, 8})
	}
}

func TestRunErrors(t *testing.T) {
	b := ir.NewBuilder("g")
	x, s := b.Input("x", typ(ir.F32, 2)), b.State("pool", typ(ir.BF16, 2, 1))
	b.Output("y", b.Un("neg", x))
	b.Output("s", s)
	p := finish(t, b, nil)
	good := f32s([]float32{1, 2}, 2)
	pool := zeroTensor(ir.BF16, 2, 1)
	type tensors = map[string]*Tensor
	for _, c := range []struct {
		in, st tensors
		want   string
	}{
		{tensors{}, tensors{"pool": pool}, "graph @g: input %x is missing"},
		{tensors{"x": nil}, tensors{"pool": pool}, "graph @g: input %x is missing"},
		{tensors{"x": good}, nil, "graph @g: state !pool is missing"},
		{tensors{"x": good, "z": good}, tensors{"pool": pool}, `graph @g: input "z" is not declared`},
		{tensors{"x": good}, tensors{"pool": pool, "old": pool}, `graph @g: state "old" is not declared`},
		{tensors{"x": zeroTensor(ir.F32, 3)}, tensors{"pool": pool}, "graph @g: input %x is f32[3], want f32[2]"},
		{tensors{"x": zeroTensor(ir.BF16, 2)}, tensors{"pool": pool}, "graph @g: input %x is bf16[2], want f32[2]"},
		{tensors{"x": good}, tensors{"pool": good}, "graph @g: state !pool is f32[2], want bf16[2,1]"},
		{tensors{"x": {DType: ir.F32, Shape: []int{2}, F: []float32{1}}}, tensors{"pool": pool}, "graph @g: input %x: f32[2] has 1 floats, want 2"},
		{tensors{"x": {DType: ir.F32, Shape: []int{2}, F: []float32{1, 2}, I: []int64{1}}}, tensors{"pool": pool}, "input %x: f32[2] has 1 integers, want 0"},
		{tensors{"x": good}, tensors{"pool": {DType: ir.BF16, Shape: []int{2, 1}}}, "state !pool: bf16[2,1] has 0 floats, want 2"},
	} {
		if _, err := p.Run(c.in, c.st); err == nil || !matches(err, c.want) {
			t.Errorf("error %v, want %q", err, c.want)
		}
	}
	run(t, p, tensors{"x": good}, tensors{"pool": pool})
}

// brokenSource fails in one way for each name.
type brokenSource struct{}

func (brokenSource) Weight(name string, t ir.Type) (*Tensor, error) {
	switch name {
	case "gone":
		return nil, errors.New("no such tensor in the file")
	case "nothing":
		return nil, nil
	case "long":
		return zeroTensor(ir.F32, 3), nil
	case "torn":
		return &Tensor{DType: ir.F32, Shape: []int{2}, F: make([]float32, 5)}, nil
	}
	return New(t)
}

func TestCompileErrors(t *testing.T) {
	weight := func(name string) *ir.Builder {
		b := ir.NewBuilder("g")
		b.At("layers.0")
		b.Output("y", b.Bin("add", b.Input("x", typ(ir.F32, 2)), b.Weight(name, typ(ir.F32, 2))))
		return b
	}
	unbound := ir.NewBuilder("g")
	unbound.Output("y", unbound.Un("neg", unbound.Input("x", ir.T(ir.F32, unbound.Sym("T"), unbound.Sym("B")))))
	folded := ir.NewBuilder("g")
	folded.Output("y", folded.Bin("div", folded.I(1), folded.I(0)))
	for _, c := range []struct {
		b       *ir.Builder
		weights WeightSource
		want    string
	}{
		{weight("gone"), brokenSource{}, "weight @gone: no such tensor in the file"},
		{weight("nothing"), brokenSource{}, "weight @nothing: the source gives no tensor"},
		{weight("long"), brokenSource{}, "weight @long is f32[3], the graph wants f32[2]"},
		{weight("torn"), brokenSource{}, "weight @torn: f32[2] has 5 floats, want 2"},
		{weight("w"), nil, "weight @w: no weights are bound"},
		{unbound, nil, "symbols T, B are not bound"},
		{folded, nil, "div by zero at element 0"},
		{weight("w"), brokenSource{}, ""},
	} {
		g, err := c.b.Finish()
		if err != nil {
			t.Fatal(err)
		}
		if _, err = Compile(g, NewConsts(c.weights)); !matches(err, c.want) {
			t.Errorf("error %v, want %q", err, c.want)
		} else if err != nil && !matches(err, "graph @g") {
			t.Errorf("error %q does not name the graph", err)
		}
	}
}

// Programs over one Consts share each weight and each weight-only value; what is
// used by nothing is not asked for.
func TestConstsAreSharedBetweenPrograms(t *testing.T) {
	r := rand.New(rand.NewPCG(4, 4))
	src := &mapSource{tensors: map[string]*Tensor{
		"w": randScaled(r, ir.F8E4M3, 2, 2, 3, 3, 4, 4), "n": randTensor(r, normal, ir.BF16, 4), "unused": zeroTensor(ir.F32, 1),
	}}
	consts := NewConsts(src)
	program := func(tokens int, to ir.DType) *Program {
		b := ir.NewBuilder("g")
		x := b.Input("x", typ(ir.BF16, tokens, 4))
		w := b.Op1("dequantize", ir.A("to", to), b.Weight("w", src.tensors["w"].Type()))
		b.Weight("unused", typ(ir.F32, 1))
		b.Output("y", b.Dot(x, w, ir.F32))
		b.Output("n", b.Bin("mul", x, b.Reshape(b.Weight("n", typ(ir.BF16, 4)), ir.Int(1), ir.Int(4))))
		g, err := b.Finish()
		if err != nil {
			t.Fatal(err)
		}
		p, err := Compile(g, consts)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := p.Run(map[string]*Tensor{"x": zeroTensor(ir.BF16, tokens, 4)}, nil); err != nil {
			t.Fatal(err)
		}
		return p
	}
	value := func(p *Program, i int) *Tensor { return p.consts[i].value }
	one, three, half := program(1, ir.F32), program(3, ir.F32), program(1, ir.BF16)
	if len(one.consts) != 2 {
		t.Fatalf("%d constants, want the dequantised weight and the vector", len(one.consts))
	}
	for i := range one.consts {
		if value(one, i) != value(three, i) {
			t.Errorf("constant %d is computed twice", i)
		}
	}
	if value(one, 0) == value(half, 0) || value(half, 0).DType != ir.BF16 {
		t.Error("dequantize to f32 and to bf16 share a value")
	}
	for name, want := range map[string]int{"w": 1, "n": 1, "unused": 0} {
		if src.calls[name] != want {
			t.Errorf("weight %s was asked for %d times, want %d", name, src.calls[name], want)
		}
	}
}

// Folding costs by the number of ops, not of paths through them.
func TestConstsOfSharedOperands(t *testing.T) {
	b := ir.NewBuilder("g")
	v := b.Weight("w", typ(ir.F32, 1))
	for range 60 {
		v = b.Bin("add", v, v)
	}
	b.Output("y", v)
	p := finish(t, b, &mapSource{tensors: map[string]*Tensor{"w": f32s([]float32{3}, 1)}})
	wantFloats(t, "3 * 2^60", run(t, p, nil, nil)["y"], []float64{3 * 0x1p60})
}

// The number of processors changes no bit: sizes that split inside a batch,
// inside a group of four columns, and unevenly.
func TestParallelismChangesNoBit(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 5))
	b := ir.NewBuilder("g")
	in := map[string]*Tensor{}
	input := func(name string, dt ir.DType, shape ...int) *ir.Value {
		in[name] = randTensor(r, normal, dt, shape...)
		return b.Input(name, typ(dt, shape...))
	}
	x, w := input("x", ir.BF16, 3, 2, 5, 257), input("w", ir.F32, 1, 2, 31, 257)
	b.Output("batched", b.Dot(x, w, ir.BF16))
	b.Output("batched.f32", b.Dot(x, w, ir.F32))
	b.Output("row", b.Dot(input("v", ir.F32, 1, 301), input("m", ir.BF16, 333, 301), ir.F32))
	s := input("s", ir.F32, 37, 41, 53)
	for axis := range 3 {
		b.Output(fmt.Sprintf("sum%d", axis), b.Sum(s, axis, ir.BF16))
	}
	p := finish(t, b, nil)
	want := map[string]*Tensor{}
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(0))
	for _, procs := range []int{1, 2, 3, 7, 64} {
		runtime.GOMAXPROCS(procs)
		for name, got := range run(t, p, in, nil) {
			if want[name] == nil {
				want[name] = got
			} else if d := difference(got, want[name]); d != "" {
				t.Errorf("%d processors: %s: %s", procs, name, d)
			}
		}
	}
	y, _ := dotRef(ir.BF16, floats(in["x"]), in["x"].Shape, floats(in["w"]), in["w"].Shape)
	wantFloats(t, "batched", want["batched"], y)
	y, _ = dotRef(ir.F32, floats(in["v"]), in["v"].Shape, floats(in["m"]), in["m"].Shape)
	wantFloats(t, "row", want["row"], y)
}
