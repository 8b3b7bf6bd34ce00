package ir

import "testing"

// Ops have one signature where nothing but places and values of operands differs.
func TestSignature(t *testing.T) {
	g, err := ParseOne("test.kir", `graph @g
input %a : f32[4]
input %b : f32[4]
input %c : f32[5]
%0 = const {value = 1.0} : f32[]
%1 = const {value = 2.0} : f32[]
%2 = mul %a, %0 : f32[4]
%3 = mul %b, %0 : f32[4]
%4 = mul %a, %1 : f32[4]
%5 = mul %c, %0 : f32[5]
%6 = add %a, %0 : f32[4]
output y0 = %2
output y1 = %3
output y2 = %4
output y3 = %5
output y4 = %6
`)
	if err != nil {
		t.Fatal(err)
	}
	first := g.Ops[2]
	key := func(op *Op, mark func(int) string) string { return string(op.AppendSignature(nil, mark)) }
	for i, same := range []bool{true, true, false, false, false} {
		if got := key(g.Ops[2+i], nil) == key(first, nil); got != same {
			t.Errorf("op %d: %q, op 0: %q", i, key(g.Ops[2+i], nil), key(first, nil))
		}
	}
	marked := func(i int) string { return [2]string{" pool", ""}[i] }
	if key(first, marked) == key(first, nil) {
		t.Error("a mark makes no difference")
	}
	if first.Args[1].Constant() != g.Ops[0] || first.Args[0].Constant() != nil {
		t.Error("another operand is the constant")
	}
}
