package ir

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// Expansion keeps everything around the ops, and their locs.
func TestExpand(t *testing.T) {
	g, err := ParseOne("t.kir", `graph @g {k = "v"}
sym T, N
let E = T/4+1
input %x : bf16[T,128]
input %slots : i32[T]
weight @w : f8e4m3[2,128] block(2,128) scale e8m0
weight @unused : f32[E]
state !s : bf16[N,2]
%0 = block_linear %x, @w : bf16[T,2] loc("layers.0")
%1 = scatter_rows !s, %slots, %0 : bf16[N,2] loc("layers.1")
%2 = group_start %slots, %slots {ratio = 4} : i32[T]
output y = %2
output x = %x
update !s = %1
`)
	if err != nil {
		t.Fatal(err)
	}
	before := Text(g)
	const want = `graph @g {k = "v"}
sym T, N
let E = T/4+1
input %x : bf16[T,128]
input %slots : i32[T]
weight @w : f8e4m3[2,128] block(2,128) scale e8m0
weight @unused : f32[E]
state !s : bf16[N,2]
%0 = quantize %x {to = f8e4m3, block = 128, floor = 0.0001} : f8e4m3[T,128] block(1,128) scale e8m0 loc("layers.0")
%1 = dequantize %0 : f32[T,128] loc("layers.0")
%2 = dequantize @w : f32[2,128] loc("layers.0")
%3 = dot %1, %2 {to = bf16} : bf16[T,2] loc("layers.0")
%4 = scatter_rows !s, %slots, %3 : bf16[N,2] loc("layers.1")
%5 = gather_rows %slots, %slots : i32[T]
%6 = const {value = 3, dtype = i32} : i32[]
%7 = sub %5, %6 : i32[T]
%8 = const {value = 0, dtype = i32} : i32[]
%9 = ge %slots, %8 : bool[T]
%10 = const {value = -1, dtype = i32} : i32[]
%11 = select %9, %7, %10 : i32[T]
output y = %11
output x = %x
update !s = %4
`
	e := checkExpand(t, g)
	if diff := cmp.Diff(want, Text(e)); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if diff := cmp.Diff(before, Text(g)); diff != "" {
		t.Errorf("Expand changed its operand:\n%s", diff)
	}
	if again := checkExpand(t, e); Text(again) != Text(e) {
		t.Error("expanding twice is not expanding once")
	}
}

// Every composite of the table expands; TestInferCasesCoverTheTable says that
// each has a legal case, and TestInfer expands those. Here: that the table has
// composites at all, and that they are really replaced.
func TestExpandReplacesComposites(t *testing.T) {
	composites := 0
	for _, c := range inferCases(t) {
		d, err := Lookup(c.name())
		if err != nil || !c.legal() {
			continue
		}
		g, err := ParseOne("t.kir", c.text())
		if err != nil {
			t.Fatal(err)
		}
		e := checkExpand(t, g)
		if d.Primitive() {
			if diff := cmp.Diff(Text(g), Text(e)); diff != "" {
				t.Errorf("the primitive %s changed:\n%s", d.Name, diff)
			}
			continue
		}
		composites++
		if len(e.Ops) == 0 || strings.Contains(Text(e), " = "+d.Name+" ") {
			t.Errorf("%s is left", d.Name)
		}
	}
	if composites < 20 {
		t.Errorf("only %d composites", composites)
	}
}

// Decompositions that are wrong are errors that name the op.
func TestExpandRefuses(t *testing.T) {
	f32 := func(o *Op) ([]Type, error) { return []Type{T(F32)}, nil }
	op := func(decompose func(b *Builder, o *Op) []*Value) *OpDef {
		return &OpDef{Name: "bad", Group: "test", Doc: "d.", Results: []string{"y"}, Infer: f32, Decompose: decompose}
	}
	for _, c := range []struct {
		name string
		def  *OpDef
		want string
	}{
		{"no results", op(func(b *Builder, o *Op) []*Value { return nil }), "graph @g: l: decomposition of bad gives 0 results, want 1"},
		{"nil result", op(func(b *Builder, o *Op) []*Value { return []*Value{nil} }), "graph @g: l: decomposition of bad: result y is nil"},
		{"another type", op(func(b *Builder, o *Op) []*Value { return []*Value{b.I(1)} }), "graph @g: l: decomposition of bad: result y is i32[], inferred f32[]"},
		{"an error inside", op(func(b *Builder, o *Op) []*Value { return []*Value{b.Un("not", b.F(1))} }), "graph @g: l: decomposition of bad: l: not: operand x is f32[], want dtype bool"},
		{"itself", op(func(b *Builder, o *Op) []*Value { return []*Value{b.Bin("add", b.Op1("bad", nil), b.Op1("bad", nil))} }), "graph @g: l: bad: decompositions are nested deeper than 32"},
		{"a value of nowhere", op(func(b *Builder, o *Op) []*Value { return []*Value{NewBuilder("h").F(1)} }), "graph @g: output y is not a value of this graph [dominance]"},
	} {
		t.Run(c.name, func(t *testing.T) {
			register(t, c.def)
			b := NewBuilder("g")
			b.At("l")
			b.Output("y", b.Op1("bad", nil))
			g, err := b.Finish()
			if err != nil {
				t.Fatal(err)
			}
			if _, err := Expand(g); err == nil || err.Error() != c.want {
				t.Errorf("got %v, want %s", err, c.want)
			}
		})
	}
}

// A composite may give an operand back, and hold composites that hold others.
func TestExpandNested(t *testing.T) {
	outer := testOp("outer")
	outer.Results = []string{"same", "norm"}
	outer.Infer = func(o *Op) ([]Type, error) { return []Type{o.Args[0].Type, o.Args[0].Type}, nil }
	outer.Decompose = func(b *Builder, o *Op) []*Value {
		in := b.Op("inner", nil, o.Args[0])
		return []*Value{o.Args[0], in[0]}
	}
	inner := testOp("inner")
	inner.Decompose = func(b *Builder, o *Op) []*Value {
		return []*Value{b.Op1("head_rms_norm", A("eps", 1e-6), o.Args[0])}
	}
	register(t, outer, inner)
	b := NewBuilder("g")
	r := b.Op("outer", nil, b.Input("x", T(BF16, b.Sym("T"), Int(2), Int(4))))
	b.Output("a", r[0])
	b.Output("b", r[1])
	g, err := b.Finish()
	if err != nil {
		t.Fatal(err)
	}
	e := checkExpand(t, g)
	if e.Outputs[0].Value != e.Inputs[0] || e.Outputs[1].Value.Op.Def.Name != "mul" {
		t.Errorf("got:\n%s", Text(e))
	}
}

// Decompose gives one level: what it holds may be composite.
func TestDecompose(t *testing.T) {
	g, err := ParseOne("t.kir", `graph @g
sym T
input %h : bf16[T,4,8]
input %fn : f32[24,32]
input %scale : f32[3]
input %base : f32[24]
%0, %1, %2 = hc_pre %h, %fn, %scale, %base {eps = 1e-06, norm_eps = 1e-06} : bf16[T,8], f32[T,4], f32[T,4,4] loc("l")
%3 = neg %0 : bf16[T,8]
output y = %3
`)
	if err != nil {
		t.Fatal(err)
	}
	ops, results, err := Decompose(g.Ops[0])
	if err != nil || len(results) != 3 {
		t.Fatalf("%d results, %v", len(results), err)
	}
	composite := 0
	for _, op := range ops {
		if !op.Def.Primitive() {
			composite++
		}
		if op.Loc != "l" {
			t.Errorf("%s has loc %q", op.Def.Name, op.Loc)
		}
	}
	if composite != 1 {
		t.Errorf("%d composites in it, want hc_split", composite)
	}
	if _, _, err := Decompose(g.Ops[1]); err == nil || err.Error() != "neg is a primitive" {
		t.Errorf("got %v", err)
	}
}

// The costs of the primitives that have one.
func TestFlops(t *testing.T) {
	for _, c := range []struct {
		op    string
		attrs Attrs
		types []Type
		want  int64
	}{
		{"add", nil, []Type{T(F32, Int(3), Int(4)), T(F32)}, 12},
		{"exp", nil, []Type{T(F32, Int(3))}, 3},
		{"reduce_sum", A("axis", 0), []Type{T(F32, Int(3), Int(4))}, 12},
		{"dot", nil, []Type{T(F32, Int(3), Int(5)), T(F32, Int(4), Int(5))}, 2 * 3 * 4 * 5},
	} {
		b := NewBuilder("g")
		var args []*Value
		for i, typ := range c.types {
			args = append(args, b.Input("x"+itoa(i), typ))
		}
		o := b.Op1(c.op, c.attrs, args...).Op
		if err := b.Err(); err != nil {
			t.Fatal(err)
		}
		if got := o.Def.Flops(o); got != c.want {
			t.Errorf("%s: got %d, want %d", c.op, got, c.want)
		}
	}
}
