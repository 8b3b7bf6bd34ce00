package ir

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

const bindText = `graph @g {k = "v"}
sym T, B
let E = T/4+B
let B2 = 2*B
let N = 4
input %x : bf16[T,B]
weight @w : f8e4m3[N,8] block(2,8) scale e8m0
state !s : f32[E,B2]
%0 = iota {axis = 0, shape = [E,B2]} : i32[E,B2] loc("l")
%1 = reshape %x {shape = [B,T]} : bf16[B,T]
output y = %0
output z = %1
output w = @w
output s = !s
`

func TestBind(t *testing.T) {
	for _, c := range []struct {
		name   string
		values map[string]int
		want   string
	}{
		{"nothing", nil, `graph @g {k = "v"}
sym T, B
let E = T/4+B
let B2 = 2*B
input %x : bf16[T,B]
weight @w : f8e4m3[4,8] block(2,8) scale e8m0
state !s : f32[E,B2]
%0 = iota {axis = 0, shape = [E,B2]} : i32[E,B2] loc("l")
%1 = reshape %x {shape = [B,T]} : bf16[B,T]
output y = %0
output z = %1
output w = @w
output s = !s
`},
		{"one symbol", map[string]int{"B": 3}, `graph @g {k = "v"}
sym T
let E = T/4+3
input %x : bf16[T,3]
weight @w : f8e4m3[4,8] block(2,8) scale e8m0
state !s : f32[E,6]
%0 = iota {axis = 0, shape = [E,6]} : i32[E,6] loc("l")
%1 = reshape %x {shape = [3,T]} : bf16[3,T]
output y = %0
output z = %1
output w = @w
output s = !s
`},
		{"all", map[string]int{"B": 3, "T": 7}, `graph @g {k = "v"}
input %x : bf16[7,3]
weight @w : f8e4m3[4,8] block(2,8) scale e8m0
state !s : f32[4,6]
%0 = iota {axis = 0, shape = [4,6]} : i32[4,6] loc("l")
%1 = reshape %x {shape = [3,7]} : bf16[3,7]
output y = %0
output z = %1
output w = @w
output s = !s
`},
	} {
		t.Run(c.name, func(t *testing.T) {
			g, err := ParseOne("t.kir", bindText)
			if err != nil {
				t.Fatal(err)
			}
			before := Text(g)
			bound, err := Bind(g, c.values)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(c.want, printed(t, "bound.kir", Text(bound))); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
			if diff := cmp.Diff(before, Text(g)); diff != "" {
				t.Errorf("Bind changed its operand:\n%s", diff)
			}
			// Nothing is shared but the op table.
			for i, op := range bound.Ops {
				if op == g.Ops[i] || op.Results[0] == g.Ops[i].Results[0] || op.Results[0].Op != op {
					t.Errorf("op %d is shared", i)
				}
			}
			// In two steps, in any order.
			for _, first := range []string{"T", "B"} {
				if c.values[first] == 0 {
					continue
				}
				step, err := Bind(g, map[string]int{first: c.values[first]})
				if err != nil {
					t.Fatal(err)
				}
				rest := map[string]int{}
				for s, n := range c.values {
					if s != first {
						rest[s] = n
					}
				}
				if step, err = Bind(step, rest); err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(Text(bound), Text(step)); diff != "" {
					t.Errorf("%s first: -at once +in steps:\n%s", first, diff)
				}
			}
		})
	}
}

func TestBindRefuses(t *testing.T) {
	for _, c := range []struct {
		text   string
		values map[string]int
		want   string
	}{
		{bindText, map[string]int{"T": 1, "U": 2}, "graph @g: bind U: no such symbol; the graph declares T, B"},
		{bindText, map[string]int{"E": 2}, "graph @g: bind E: no such symbol; the graph declares T, B"},
		{bindText, map[string]int{"": 2}, "graph @g: bind : no such symbol; the graph declares T, B"},
		{bindText, map[string]int{"T": 0}, "graph @g: bind T=0: extents are at least 1"},
		{bindText, map[string]int{"T": -7, "B": 1}, "graph @g: bind T=-7: extents are at least 1"},
		{bindText, map[string]int{"B": 0, "T": 0}, "graph @g: bind B=0: extents are at least 1"}, // the first by name
		{"graph @g\nsym T\ninput %x : f32[T-3]\noutput y = %x\n", map[string]int{"T": 3},
			"t.kir:3:1: graph @g: %x: f32[0]: axis 0 has extent 0; extents are at least 1 [type]"},
		{"graph @g\nsym T\ninput %x : f4e2m1[T]\noutput y = %x\n", map[string]int{"T": 3},
			"t.kir:3:1: graph @g: %x: f4e2m1[3]: packed two to a byte, so the last extent must be even, not 3 [type]"},
		{"graph @g\nsym T\ninput %x : f32[T]\noutput y = %x\n", map[string]int{"T": 1 << 40},
			"t.kir:3:1: graph @g: %x: f32[1099511627776]: axis 0: constant 1099511627776 is out of range [type]"},
		{"graph @g\nsym T\ninput %x : f32[T*T]\noutput y = %x\n", map[string]int{"T": 1 << 32}, // 2^64 is 0 in 64 bits
			"t.kir:3:1: graph @g: %x: f32[?]: axis 0: the expression is out of range [type]"},
	} {
		g, err := ParseOne("t.kir", c.text)
		if err != nil {
			t.Fatal(err)
		}
		bound, err := Bind(g, c.values)
		if err == nil || err.Error() != c.want || bound != nil {
			t.Errorf("%v: got %v, want %s", c.values, err, c.want)
		}
	}
	g := brokenGraph(t)
	g.Ops[1].Args[1] = &Value{Type: T(F32)} // of no graph
	if _, err := Bind(g, map[string]int{"T": 4}); err == nil {
		t.Error("Bind takes a broken graph")
	}
}
