package ir

import (
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestBuilder(t *testing.T) {
	b := NewBuilder("g", Meta{"model", "m"})
	n := b.Sym("T")
	e := b.Let("E", n.Div(4).Add(Int(1)))
	x := b.Input("x", T(BF16, n, Int(8)))
	if b.Input("x", T(BF16, n, Int(8))) != x {
		t.Error("asking again for an input makes another")
	}
	w := b.Weight("x", T(BF16, Int(8)))
	s := b.State("x", T(F32, e, Int(8)))
	slots := b.Input("slots", T(I32, n))
	b.At("layers.0")
	y := b.Op1("rms_norm", A("eps", 1e-6), x, w)
	f := b.Cast(y, F32)
	if b.Cast(f, F32) != f {
		t.Error("a cast to the same dtype makes an op")
	}
	b.At("")
	half := b.Slice(f, 1, 0, 4)
	f = b.Concat(1, half, b.Bin("mul", half, b.F(2)))
	b.Update(s, b.Op1("scatter_rows", nil, s, slots, f))
	pick := b.Select(b.Bin("lt", slots, b.I(3)), b.I(-1), b.Iota(0, n))
	b.Output("pick", pick)
	row := b.Reshape(b.Sum(f, 1, BF16), Int(1), n)
	b.Output("row", b.Broadcast(row, e, n))
	b.Output("gram", b.Dot(b.Transpose(f, 1, 0), b.Transpose(b.Un("neg", f), 1, 0), F32))
	g, err := b.Finish()
	if err != nil {
		t.Fatal(err)
	}
	const want = `graph @g {model = "m"}
sym T
let E = T/4+1
input %x : bf16[T,8]
input %slots : i32[T]
weight @x : bf16[8]
state !x : f32[E,8]
%0 = rms_norm %x, @x {eps = 1e-06} : bf16[T,8] loc("layers.0")
%1 = cast %0 {to = f32} : f32[T,8] loc("layers.0")
%2 = slice %1 {axis = 1, start = 0, size = 4} : f32[T,4]
%3 = const {value = 2} : f32[]
%4 = mul %2, %3 : f32[T,4]
%5 = concat %2, %4 {axis = 1} : f32[T,8]
%6 = scatter_rows !x, %slots, %5 : f32[E,8]
%7 = const {value = 3, dtype = i32} : i32[]
%8 = lt %slots, %7 : bool[T]
%9 = const {value = -1, dtype = i32} : i32[]
%10 = iota {axis = 0, shape = [T]} : i32[T]
%11 = select %8, %9, %10 : i32[T]
%12 = reduce_sum %5 {axis = 1, to = bf16} : bf16[T,1]
%13 = reshape %12 {shape = [1,T]} : bf16[1,T]
%14 = broadcast %13 {shape = [E,T]} : bf16[E,T]
%15 = transpose %5 {perm = [1,0]} : f32[8,T]
%16 = neg %5 : f32[T,8]
%17 = transpose %16 {perm = [1,0]} : f32[8,T]
%18 = dot %15, %17 : f32[8,8]
output pick = %11
output row = %14
output gram = %18
update !x = %6
`
	if diff := cmp.Diff(want, Text(g)); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if g.Get("model") != "m" || g.Get("nosuch") != "" {
		t.Errorf("Get: %q, %q", g.Get("model"), g.Get("nosuch"))
	}
}

// The first error sticks, with the op and its loc; what follows does not panic,
// whatever it looks at.
func TestBuilderErrors(t *testing.T) {
	for _, c := range []struct {
		name string
		do   func(b *Builder, x *Value)
		want string
	}{
		{"unknown op", func(b *Builder, x *Value) { b.Op("nosuch", nil, x) }, `graph @g: layers.0: unknown op "nosuch"`},
		{"unknown op of several results", func(b *Builder, x *Value) {
			r := b.Op("hc_split_", nil, x)
			b.Bin("add", r[0], r[2])
		}, `graph @g: layers.0: unknown op "hc_split_"`},
		{"operands", func(b *Builder, x *Value) { b.Op("add", nil, x) }, "graph @g: layers.0: add: has 1 operands, want 2"},
		{"nil operand", func(b *Builder, x *Value) { b.Bin("add", x, nil) }, "graph @g: layers.0: add: operand 1 is nil"},
		{"infer", func(b *Builder, x *Value) { b.Un("not", x) }, "graph @g: layers.0: not: operand x is f32[T], want dtype bool"},
		{"unknown attribute", func(b *Builder, x *Value) { b.Op("neg", A("axis", 1), x) }, `graph @g: layers.0: neg: has no attribute "axis"`},
		{"attribute without a value", func(b *Builder, x *Value) { b.Op("cast", A("to"), x) }, `graph @g: layers.0: cast: has no attribute "to (without a value)"`},
		{"attribute key not a string", func(b *Builder, x *Value) { b.Op("cast", A(1, F32), x) }, `graph @g: layers.0: cast: has no attribute "1"`},
		{"attribute of another kind", func(b *Builder, x *Value) { b.Op("reduce_sum", A("axis", int64(0)), x) }, "graph @g: layers.0: reduce_sum: attribute axis: 0 (Go type int64) is not a valid int"},
		{"integer for a float", func(b *Builder, x *Value) { b.Op("rms_norm", A("eps", 1), x, x) }, "graph @g: layers.0: rms_norm: attribute eps: 1 (Go type int) is not a valid float"},
		{"one of several results", func(b *Builder, x *Value) { b.Op1("hc_split", nil, x) }, "graph @g: layers.0: hc_split has 3 results: use Op"},
		{"attribute twice", func(b *Builder, x *Value) { b.Op("cast", A("to", F32, "to", BF16), x) }, "graph @g: layers.0: cast: attribute to is given twice"},
		{"attribute not finite", func(b *Builder, x *Value) { b.Op("rms_norm", A("eps", math.Inf(1)), x, x) }, "graph @g: layers.0: rms_norm: attribute eps: +Inf is not a finite number"},
		{"constant out of range", func(b *Builder, x *Value) { b.I(1 << 31) }, "graph @g: layers.0: const: value 2.147483648e+09 is not an i32"},
		{"input of another type", func(b *Builder, x *Value) { b.Input("x", T(F32)) }, "graph @g: layers.0: %x is declared as f32[T] and as f32[]"},
		{"illegal operand", func(b *Builder, x *Value) {
			b.Reshape(b.Weight("w", Scaled(F8E4M3, 1, 2, Int(4))), Int(4), Int(1))
		}, "graph @g: layers.0: reshape: operand x: f8e4m3[4] block(1,2) scale e8m0: block scaling needs two axes"},
		{"no loc", func(b *Builder, x *Value) { b.At(""); b.Un("not", x) }, "graph @g: g: not: operand x is f32[T], want dtype bool"},
		{"first error stays", func(b *Builder, x *Value) {
			y := b.Un("not", x)
			b.At("layers.1")
			z := b.Op("gate", nil, y, nil, x)
			b.Reshape(z[1], z[0].Type.Dims[0], z[1].Type.Dims[5]) // placeholders have axes
			b.Output("y", b.Op1("nosuch", nil))
			b.Update(z[0], z[1])
		}, "graph @g: layers.0: not: operand x is f32[T], want dtype bool"},
		{"result out of range", func(b *Builder, x *Value) {
			b.Iota(0, Sym("T").Mul(Int(1<<40)))
		}, "graph @g: layers.0: iota: result i: i32[1099511627776*T]: axis 0: factor 1099511627776 of T is out of range"},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := NewBuilder("g")
			x := b.Input("x", T(F32, b.Sym("T")))
			b.At("layers.0")
			c.do(b, x)
			b.Output("x", x)
			g, err := b.Finish()
			if err == nil || err.Error() != c.want || g != nil {
				t.Fatalf("got %v, %v, want %s", g, err, c.want)
			}
			if !strings.HasSuffix(c.want, b.Err().Error()) {
				t.Errorf("Err is %v", b.Err())
			}
		})
	}
}

// What the builder does not see, Finish sees.
func TestBuilderFinish(t *testing.T) {
	for _, c := range []struct {
		name string
		do   func(b *Builder)
		want string
	}{
		{"empty", func(b *Builder) {}, "graph @g: there is no output and no state update [output]"},
		{"undeclared symbol", func(b *Builder) { b.Output("y", b.Input("x", T(F32, Sym("U")))) }, "graph @g: %x uses undeclared symbol U [symbol]"},
		{"symbol twice", func(b *Builder) { b.Sym("T"); b.Sym("T"); b.Output("y", b.F(1)) }, "graph @g: symbol T is declared twice [symbol]"},
		{"symbol without a name", func(b *Builder) { b.Output("y", b.Input("x", T(F32, b.Sym("")))) }, `graph @g: symbol "" is not a name [symbol]`},
		{"nil output", func(b *Builder) { b.Output("y", nil) }, "graph @g: output y is not a value of this graph [dominance]"},
		{"value of another builder", func(b *Builder) {
			other := NewBuilder("h")
			b.Output("y", b.Un("neg", other.Input("x", T(F32))))
		}, "graph @g: neg: operand 0 (%x) is not defined before its use in this graph [dominance]"},
		{"op of another builder", func(b *Builder) {
			other := NewBuilder("h")
			b.Output("y", b.Un("neg", other.F(1)))
		}, "graph @g: neg: operand 0 (%0) is not defined before its use in this graph [dominance]"},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := NewBuilder("g")
			c.do(b)
			_, err := b.Finish()
			if errs := verifyErrors(err); len(errs) == 0 || errs[0].Error() != c.want {
				t.Errorf("got %v, want %s", err, c.want)
			}
		})
	}
}

func TestAttributeAccessorPanics(t *testing.T) {
	o := &Op{Def: table["neg"]}
	defer func() {
		if got := recover(); got != `ir: op neg has no int attribute "axis"` {
			t.Errorf("got %v", got)
		}
	}()
	o.Int("axis")
}
