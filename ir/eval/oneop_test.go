package eval

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/kiln-project/kiln/ir"
)

// mapSource serves weights by name and counts the calls.
type mapSource struct {
	tensors map[string]*Tensor
	calls   map[string]int
}

func (s *mapSource) Weight(name string, t ir.Type) (*Tensor, error) {
	if s.calls == nil {
		s.calls = map[string]int{}
	}
	s.calls[name]++
	w, ok := s.tensors[name]
	if !ok {
		return nil, fmt.Errorf("no tensor %s", name)
	}
	return w, nil
}

// poison fills the program's pool with storage of every result's size that
// holds garbage, so that a kernel that leaves part of its result unwritten
// shows.
func poison(p *Program) {
	for _, s := range p.steps {
		for _, r := range s.op.Results {
			n := size(shapeOf(r))
			switch storageOf(r.Type.DType) {
			case storeF:
				f := make([]float32, n)
				for i := range f {
					f[i] = math.Float32frombits(0x7FC0DEAD)
				}
				p.pool.put(&Tensor{F: f})
			case storeI:
				v := make([]int64, n)
				for i := range v {
					v[i] = 0x5A5A5A5A5A
				}
				p.pool.put(&Tensor{I: v})
			}
		}
	}
}

// opGraph is the graph of one op whose operands are declared by declare.
func opGraph(op string, attrs ir.Attrs, args []*Tensor, declare func(b *ir.Builder, name string, t ir.Type) *ir.Value) (*ir.Graph, error) {
	b := ir.NewBuilder("g")
	in := make([]*ir.Value, len(args))
	for i, a := range args {
		in[i] = declare(b, fmt.Sprintf("a%d", i), a.Type())
	}
	for i, r := range b.Op(op, attrs, in...) {
		b.Output(fmt.Sprintf("r%d", i), r)
	}
	return b.Finish()
}

// apply evaluates one op. It does so with the operands as inputs, twice on
// poisoned storage, and once more with the operands as weights, which are
// folded when the graph is compiled; all must agree, and no operand may change.
func apply(t rapid.TB, op string, attrs ir.Attrs, args ...*Tensor) ([]*Tensor, error) {
	t.Helper()
	named := map[string]*Tensor{}
	for i, a := range args {
		if err := a.Check(); err != nil {
			t.Fatalf("%s: operand %d: %v", op, i, err)
		}
		named[fmt.Sprintf("a%d", i)] = a.Clone()
	}
	unchanged := func() {
		for i, a := range args {
			if d := difference(a, named[fmt.Sprintf("a%d", i)]); d != "" {
				t.Fatalf("%s changed operand %d: %s", op, i, d)
			}
		}
	}
	collect := func(out map[string]*Tensor, err error) ([]*Tensor, error) {
		unchanged()
		if err != nil {
			return nil, err
		}
		list := make([]*Tensor, len(out))
		for i := range list {
			if list[i] = out[fmt.Sprintf("r%d", i)]; list[i].Check() != nil {
				t.Fatalf("%s: result %d: %v", op, i, list[i].Check())
			}
		}
		return list, nil
	}
	same := func(what string, a []*Tensor, errA error, b []*Tensor, errB error) {
		if (errA == nil) != (errB == nil) {
			t.Fatalf("%s: %s: errors %v and %v", op, what, errA, errB)
		}
		for i := range a {
			if d := difference(a[i], b[i]); d != "" {
				t.Fatalf("%s: %s: result %d: %s", op, what, i, d)
			}
		}
	}

	folded, err := opGraph(op, attrs, args, (*ir.Builder).Weight)
	if err != nil {
		t.Fatalf("%v", err)
	}
	var asConst []*Tensor
	p, errConst := Compile(folded, NewConsts(&mapSource{tensors: named}))
	if errConst == nil {
		asConst, errConst = collect(p.Run(nil, nil))
	}
	if len(args) == 0 {
		return asConst, errConst
	}

	g, err := opGraph(op, attrs, args, (*ir.Builder).Input)
	if err != nil {
		t.Fatalf("%v", err)
	}
	if p, err = Compile(g, NewConsts(nil)); err != nil {
		return nil, err
	}
	poison(p)
	first, err := collect(p.Run(named, nil))
	second, err2 := collect(p.Run(named, nil))
	same("second run", first, err, second, err2)
	same("operands as weights", first, err, asConst, errConst)
	return first, err
}

// apply1 is apply for an op with one result that must succeed.
func apply1(t rapid.TB, op string, attrs ir.Attrs, args ...*Tensor) *Tensor {
	t.Helper()
	out, err := apply(t, op, attrs, args...)
	if err != nil {
		t.Fatalf("%v", err)
	}
	return out[0]
}

// sameBits compares two floats bit for bit, all NaNs being equal.
func sameBits(a, b float32) bool {
	return math.Float32bits(a) == math.Float32bits(b) || a != a && b != b
}

// difference describes the first difference of two tensors, or is empty.
func difference(a, b *Tensor) string {
	if !a.Type().Equal(b.Type()) {
		return fmt.Sprintf("%s and %s", a.Type(), b.Type())
	}
	for i := range a.Len() {
		if a.F != nil && b.F != nil && sameBits(a.F[i], b.F[i]) {
			continue
		}
		if cell(a, i) != cell(b, i) {
			return fmt.Sprintf("element %d of %s: %s and %s", i, a.Type(), show(a, i), show(b, i))
		}
	}
	if !slices.Equal(a.Scales, b.Scales) {
		return fmt.Sprintf("scales %v and %v", a.Scales, b.Scales)
	}
	return ""
}

func show(t *Tensor, i int) string {
	switch {
	case t.F != nil:
		return fmt.Sprintf("%v (%#08x)", t.F[i], math.Float32bits(t.F[i]))
	case t.I != nil:
		return fmt.Sprint(t.I[i])
	}
	return fmt.Sprintf("code %#x", cell(t, i))
}

// wantFloats compares a result with values that are on the grid of its dtype.
func wantFloats(t rapid.TB, what string, got *Tensor, want []float64) {
	t.Helper()
	if len(want) != got.Len() {
		t.Fatalf("%s: %s has %d elements, want %d", what, got.Type(), got.Len(), len(want))
	}
	have := floats(got)
	for i, w := range want {
		if math.Float64bits(have[i]) != math.Float64bits(w) && !(have[i] != have[i] && w != w) {
			t.Fatalf("%s: element %d of %s is %v, want %v", what, i, got.Type(), have[i], w)
		}
	}
}

// wantNear compares within an absolute error.
func wantNear(t rapid.TB, what string, got *Tensor, want []float64, bound float64) {
	t.Helper()
	if len(want) != got.Len() {
		t.Fatalf("%s: %s has %d elements, want %d", what, got.Type(), got.Len(), len(want))
	}
	for i, v := range floats(got) {
		if !(math.Abs(v-want[i]) <= bound) {
			t.Fatalf("%s: element %d of %s is %v, want %v within %v", what, i, got.Type(), v, want[i], bound)
		}
	}
}

func wantInts(t rapid.TB, what string, got *Tensor, want []int64) {
	t.Helper()
	if !slices.Equal(got.I, want) {
		t.Fatalf("%s: %s is %v, want %v", what, got.Type(), got.I, want)
	}
}

func wantShape(t rapid.TB, what string, got *Tensor, dt ir.DType, shape ...int) {
	t.Helper()
	if got.DType != dt || !slices.Equal(got.Shape, shape) {
		t.Fatalf("%s: result is %s, want %s%v", what, got.Type(), dt, shape)
	}
}

// Generators. Shapes are drawn by rapid, so that they shrink; elements come from
// a seeded source, which is much faster.

// style is a way to choose elements.
type style int

const (
	normal   style = iota // ordinary numbers
	patterns              // random bit patterns: every magnitude, NaN, infinities
	special               // few values: signed zeros, ones, infinities, NaN, extremes
	styles
)

var extents = []int{1, 1, 2, 3, 4, 5, 7, 8}

func drawShape(t *rapid.T, minRank, maxRank int) []int {
	shape := make([]int, rapid.IntRange(minRank, maxRank).Draw(t, "rank"))
	for i := range shape {
		shape[i] = rapid.SampledFrom(extents).Draw(t, "extent")
	}
	return shape
}

// drawRepeated draws the shape of an operand that broadcasts to shape, rank 0
// included.
func drawRepeated(t *rapid.T, shape []int) []int {
	if rapid.IntRange(0, 4).Draw(t, "scalar") == 0 {
		return []int{}
	}
	out := slices.Clone(shape)
	for i := range out {
		if rapid.IntRange(0, 2).Draw(t, "repeat") == 0 {
			out[i] = 1
		}
	}
	return out
}

func drawRand(t *rapid.T) *rand.Rand {
	return rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 1))
}

func drawStyle(t *rapid.T) style { return style(rapid.IntRange(0, int(styles)-1).Draw(t, "style")) }

func drawTensor(t *rapid.T, dt ir.DType, shape ...int) *Tensor {
	return randTensor(drawRand(t), drawStyle(t), dt, shape...)
}

// drawNormal has ordinary numbers only.
func drawNormal(t *rapid.T, dt ir.DType, shape ...int) *Tensor {
	return randTensor(drawRand(t), normal, dt, shape...)
}

func randTensor(r *rand.Rand, st style, dt ir.DType, shape ...int) *Tensor {
	x := zeroTensor(dt, shape...)
	for i := range x.F {
		x.F[i] = float32(roundTo(dt, randFloat(r, st, dt)))
	}
	for i := range x.I {
		x.I[i] = randInt(r, st, dt)
	}
	for i := range x.Codes {
		x.Codes[i] = byte(r.Uint32())
	}
	return x
}

// zeroTensor makes a tensor without block scales.
func zeroTensor(dt ir.DType, shape ...int) *Tensor {
	return must(New((&Tensor{DType: dt, Shape: shape}).Type()))
}

func must(x *Tensor, err error) *Tensor {
	if err != nil {
		panic(err)
	}
	return x
}

func randFloat(r *rand.Rand, st style, dt ir.DType) float64 {
	switch st {
	case patterns:
		switch dt {
		case ir.BF16:
			return float64(math.Float32frombits(r.Uint32() & 0xFFFF0000))
		case ir.F16:
			return halfValue(uint16(r.Uint32()))
		}
		return float64(math.Float32frombits(r.Uint32()))
	case special:
		g := grids[dt]
		tiny := math.Ldexp(1, g.emin-g.p+1)
		list := []float64{0, math.Copysign(0, -1), 1, -1, 2, math.Inf(1), math.Inf(-1), math.NaN(), g.max, -g.max, tiny, -tiny}
		return list[r.IntN(len(list))]
	}
	return r.NormFloat64() * math.Pow(2, float64(r.IntN(7)-3))
}

func randInt(r *rand.Rand, st style, dt ir.DType) int64 {
	lo, hi := intBounds[dt][0], intBounds[dt][1]
	var v int64
	switch st {
	case patterns:
		v = int64(r.Uint64())
		if dt != ir.I64 {
			v = lo + int64(r.Uint64N(uint64(hi-lo)+1))
		}
	case special:
		v = []int64{lo, lo + 1, hi - 1, hi, 0, 1, -1, 2}[r.IntN(8)]
	default:
		v = int64(r.IntN(15) - 7)
	}
	return max(lo, min(hi, v))
}

// halfValue decodes an IEEE half from its fields.
func halfValue(b uint16) float64 {
	sign := 1.0
	if b>>15 == 1 {
		sign = -1
	}
	e, m := int(b>>10&31), float64(b&1023)/1024
	switch {
	case e == 31 && m != 0:
		return math.NaN()
	case e == 31:
		return math.Inf(int(sign))
	case e == 0:
		return sign * m * 0x1p-14
	}
	return sign * (1 + m) * math.Pow(2, float64(e-15))
}

// randScaled makes a block-scaled tensor of finite codes, with scales 2^-lo to
// 2^hi.
func randScaled(r *rand.Rand, dt ir.DType, block0, block1, lo, hi int, shape ...int) *Tensor {
	dims := make([]ir.Dim, len(shape))
	for i, s := range shape {
		dims[i] = ir.Int(s)
	}
	x := must(New(ir.Scaled(dt, block0, block1, dims...)))
	for i := range x.Codes {
		for ok := false; !ok; {
			x.Codes[i] = byte(r.Uint32())
			ok = dt == ir.F4E2M1 || !math.IsNaN(codeValue(dt, x.Codes[i]))
		}
	}
	for i := range x.Scales {
		x.Scales[i] = byte(127 - lo + r.IntN(lo+hi+1))
	}
	return x
}

// f32s and i32s make tensors from literals.
func f32s(v []float32, shape ...int) *Tensor  { return must(FromF32(ir.F32, v, shape...)) }
func bf16s(v []float32, shape ...int) *Tensor { return must(FromF32(ir.BF16, v, shape...)) }
func i32s(v []int32, shape ...int) *Tensor    { return must(FromI32(v, shape...)) }

// check runs a property under the name of an op.
func check(t *testing.T, name string, prop func(t *rapid.T)) {
	t.Helper()
	t.Run(name, func(t *testing.T) { rapid.Check(t, prop) })
}
