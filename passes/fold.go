package passes

import (
	"math"

	"github.com/kiln-project/kiln/ir"
)

// fold replaces ops that do nothing, or that do in two steps what one can, until
// none is left. Every rule keeps every bit of every input, NaN, infinities and -0
// included.
func fold(c *Context, g *ir.Graph) (*ir.Graph, error) {
	for {
		out, err := Rewrite(c, g, foldRules...)
		if err != nil || out == g {
			return g, err
		}
		g = out
	}
}

// foldRules is the table. The inner op of a chain stays if something else reads it;
// otherwise dce drops it.
var foldRules = []Rule{
	nothing("reshape", "to its own shape", nil),
	nothing("broadcast", "to its own shape", nil),
	nothing("slice", "of the whole axis", nil),
	nothing("cast", "to its own dtype", nil),
	nothing("concat", "of one operand", nil), // of two, the type is another
	nothing("transpose", "to the same order", func(op *ir.Op) bool {
		for i, p := range op.Ints("perm") {
			if p != i {
				return false
			}
		}
		return true
	}),

	chain("reshape", "reshape", func(b *ir.Edit, outer, _ *ir.Op, x *ir.Value) *ir.Value {
		return b.Op1("reshape", outer.Attrs, x)
	}),
	chain("broadcast", "broadcast", func(b *ir.Edit, outer, _ *ir.Op, x *ir.Value) *ir.Value {
		return b.Op1("broadcast", outer.Attrs, x)
	}),
	chain("transpose", "transpose", func(b *ir.Edit, outer, inner *ir.Op, x *ir.Value) *ir.Value {
		perm := make([]int, len(outer.Ints("perm")))
		for i, p := range outer.Ints("perm") {
			perm[i] = inner.Ints("perm")[p]
		}
		return b.Transpose(x, perm...)
	}),
	chainIf("slice", "slice", func(outer, inner *ir.Op) bool { return outer.Int("axis") == inner.Int("axis") },
		func(b *ir.Edit, outer, inner *ir.Op, x *ir.Value) *ir.Value {
			return b.Slice(x, outer.Int("axis"), inner.Int("start")+outer.Int("start"), outer.Int("size"))
		}),
	chainIf("cast", "cast", func(_, inner *ir.Op) bool { return widens[[2]ir.DType{inner.Args[0].Type.DType, inner.DType("to")}] },
		func(b *ir.Edit, outer, _ *ir.Op, x *ir.Value) *ir.Value { return b.Cast(x, outer.DType("to")) }),
	chainIf("neg", "neg", func(outer, _ *ir.Op) bool { return outer.Args[0].Type.DType.IsFloat() },
		func(_ *ir.Edit, _, _ *ir.Op, x *ir.Value) *ir.Value { return x }),
	chain("not", "not", func(_ *ir.Edit, _, _ *ir.Op, x *ir.Value) *ir.Value { return x }),

	neutral("mul", 1, isNumber(1)),
	neutral("mul", 0, isNumber(1)),
	neutral("div", 1, isNumber(1)),
	neutral("add", 1, isZero(true)), // -0 + 0 is 0, so that it takes a -0
	neutral("add", 0, isZero(true)),
	neutral("sub", 1, isZero(false)), // -0 - -0 is 0

	{
		Pattern: Pattern{Op: "select", As: "op", Where: func(_ *Match, op *ir.Op) string {
			if op.Args[1] != op.Args[2] {
				return "it has a choice"
			}
			return replaceable(op, op.Args[1])
		}},
		Results: foldResult, Build: operand(1), Says: "between equal values",
	},
}

// widens are casts that keep every value.
var widens = map[[2]ir.DType]bool{
	{ir.BF16, ir.F32}: true, {ir.F16, ir.F32}: true,
	{ir.I8, ir.I32}: true, {ir.U8, ir.I32}: true, {ir.I8, ir.I64}: true, {ir.U8, ir.I64}: true, {ir.I32, ir.I64}: true,
}

var foldResult = []Result{{"op", 0}}

// operand has operand i of the op take its place.
func operand(i int) func(*ir.Edit, *Match) []*ir.Value {
	return func(e *ir.Edit, m *Match) []*ir.Value { return []*ir.Value{e.Value(m.Arg("op", i))} }
}

// nothing is the rule of an op that gives operand 0 as it is, if that has the
// result's type and the condition, if there is one, holds.
func nothing(name, says string, cond func(*ir.Op) bool) Rule {
	return Rule{
		Pattern: Pattern{Op: name, As: "op", Where: func(_ *Match, op *ir.Op) string {
			if cond != nil && !cond(op) {
				return "it does something"
			}
			return replaceable(op, op.Args[0])
		}},
		Results: foldResult, Build: operand(0), Says: says,
	}
}

// neutral is the rule of an op whose operand at changes nothing in the other one.
func neutral(name string, at int, is func(*ir.Op) bool) Rule {
	return Rule{
		Pattern: Pattern{Op: name, As: "op", Where: func(_ *Match, op *ir.Op) string {
			if c := op.Args[at].Op; c == nil || c.Def.Name != "const" || !is(c) {
				return "no operand is neutral"
			}
			return replaceable(op, op.Args[1-at])
		}},
		Results: foldResult, Build: operand(1 - at), Says: "of a neutral constant",
	}
}

// isNumber reports whether a constant has a value.
func isNumber(v float64) func(*ir.Op) bool {
	return func(c *ir.Op) bool { return c.Float("value") == v }
}

// isZero reports whether a constant is 0, of the given sign if it is a float.
func isZero(negative bool) func(*ir.Op) bool {
	return func(c *ir.Op) bool {
		v := c.Float("value")
		return v == 0 && (!c.DType("dtype").IsFloat() || math.Signbit(v) == negative)
	}
}

// chain is the rule of an op on another op's result; build makes the one op.
func chain(outer, inner string, build func(e *ir.Edit, outer, inner *ir.Op, x *ir.Value) *ir.Value) Rule {
	return chainIf(outer, inner, func(_, _ *ir.Op) bool { return true }, build)
}

func chainIf(outer, inner string, cond func(outer, inner *ir.Op) bool, build func(e *ir.Edit, outer, inner *ir.Op, x *ir.Value) *ir.Value) Rule {
	return Rule{
		Pattern: Pattern{Op: outer, As: "op", Where: func(_ *Match, op *ir.Op) string {
			in := op.Args[0].Op
			if in == nil || in.Def.Name != inner || !cond(op, in) {
				return "it is no such chain"
			}
			return readableLater(in.Args[0])
		}},
		Results: foldResult,
		Build: func(e *ir.Edit, m *Match) []*ir.Value {
			op, in := m.Op("op"), m.Arg("op", 0).Op
			return []*ir.Value{build(e, op, in, e.Value(in.Args[0]))}
		},
		Says: "of " + inner,
	}
}

// replaceable says why uses of an op's result cannot read x instead, or "".
func replaceable(op *ir.Op, x *ir.Value) string {
	if !op.Results[0].Type.Equal(x.Type) {
		return "its type is another"
	}
	return readableLater(x)
}

// readableLater refuses pools: one may be written between where it is read and
// where it would be.
func readableLater(x *ir.Value) string {
	if x.Kind == ir.StateValue || x.Kind == ir.OpResult && x.Op.Def.Name == "scatter_rows" {
		return "it copies a pool"
	}
	return ""
}
