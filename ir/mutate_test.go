package ir

import (
	"math"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// Legal ops with something changed: an operand's format, rank, extent or
// scaling, the number or order of operands, an attribute. Infer must not panic,
// and what it takes must verify, print and expand.
func TestInferMutated(t *testing.T) {
	type start struct {
		def   *OpDef
		types []Type
		attrs Attrs
	}
	var starts []start
	for _, c := range inferCases(t) {
		if c.legal() {
			g, err := ParseOne("t.kir", c.text())
			if err != nil {
				t.Fatal(err)
			}
			s := start{def: g.Ops[0].Def, attrs: g.Ops[0].Attrs}
			for _, a := range g.Ops[0].Args {
				s.types = append(s.types, a.Type)
			}
			starts = append(starts, s)
		}
	}
	for range 30 {
		rapid.Check(t, func(t *rapid.T) {
			s := starts[rapid.IntRange(0, len(starts)-1).Draw(t, "case")]
			types, attrs := slices.Clone(s.types), slices.Clone(s.attrs)
			for range rapid.IntRange(1, 3).Draw(t, "mutations") {
				mutate(t, &types, attrs)
			}
			b := NewBuilder("g")
			for _, name := range []string{"T", "B", "P", "N"} {
				b.Sym(name)
			}
			var args []*Value
			for i, typ := range types {
				args = append(args, b.Input("x"+itoa(i), typ))
			}
			for i, v := range b.Op(s.def.Name, attrs, args...) {
				b.Output("y"+itoa(i), v)
			}
			g, err := b.Finish()
			if err != nil {
				return
			}
			text := Text(g)
			if back := reprint(t, "t.kir", text); back != text {
				t.Fatalf("prints as\n%s\nand then as\n%s", text, back)
			}
			e, err := Expand(g)
			if err != nil {
				if strings.Contains(err.Error(), "out of range") {
					return // a decomposition multiplies extents, e.g. to flatten axes
				}
				t.Fatalf("a legal graph does not expand: %v\n%s", err, text)
			}
			text = Text(e)
			if back := reprint(t, "e.kir", text); back != text {
				t.Fatalf("expanded it prints as\n%s\nand then as\n%s", text, back)
			}
			if _, err := Bind(g, map[string]int{"T": 1, "B": 2, "P": 5, "N": 128}); err != nil && verifyErrors(err) == nil {
				t.Fatalf("Bind: %v", err)
			}
		})
	}
}

func mutate(t *rapid.T, types *[]Type, attrs Attrs) {
	kinds := []string{"add operand"}
	if len(*types) > 0 {
		kinds = append(kinds, "dtype", "extent", "extent", "drop axis", "add axis", "scaling", "drop operand", "swap", "copy")
	}
	if len(attrs) > 0 {
		kinds = append(kinds, "attribute", "attribute")
	}
	pick := func(what string) int { return rapid.IntRange(0, len(*types)-1).Draw(t, what) }
	extent := func() Dim {
		T := Sym("T")
		return rapid.SampledFrom([]Dim{
			Int(1), Int(2), Int(3), Int(4), Int(24), Int(128), Int(256), T, Sym("B"), T.Mul(Int(2)), T.Div(4).Add(Sym("B")),
			T.Mul(T), T.Sub(Int(1)), Int(0), Int(-1), Int(math.MaxInt32), Int(math.MaxInt32).Mul(T), Int(1 << 62).Mul(Int(2)),
		}).Draw(t, "extent")
	}
	switch rapid.SampledFrom(kinds).Draw(t, "mutation") {
	case "dtype":
		i := pick("operand")
		(*types)[i].DType = DType(rapid.IntRange(0, int(Bool)+1).Draw(t, "dtype"))
	case "extent":
		i := pick("operand")
		if n := (*types)[i].Rank(); n > 0 {
			(*types)[i].Dims = withAxis((*types)[i].Dims, rapid.IntRange(0, n-1).Draw(t, "axis"), extent())
		}
	case "drop axis":
		i := pick("operand")
		if n := (*types)[i].Rank(); n > 0 {
			a := rapid.IntRange(0, n-1).Draw(t, "axis")
			(*types)[i].Dims = slices.Delete(slices.Clone((*types)[i].Dims), a, a+1)
		}
	case "add axis":
		i := pick("operand")
		a := rapid.IntRange(0, (*types)[i].Rank()).Draw(t, "axis")
		(*types)[i].Dims = slices.Insert(slices.Clone((*types)[i].Dims), a, extent())
	case "scaling":
		i := pick("operand")
		(*types)[i].Quant = rapid.SampledFrom([]*Quant{nil, {[2]int{1, 32}, E8M0}, {[2]int{128, 128}, E8M0}, {[2]int{0, 1}, E8M0}}).Draw(t, "scaling")
	case "drop operand":
		i := pick("operand")
		*types = slices.Delete(*types, i, i+1)
	case "swap":
		i, j := pick("one"), pick("other")
		(*types)[i], (*types)[j] = (*types)[j], (*types)[i]
	case "copy":
		i, j := pick("from"), pick("to")
		(*types)[j] = (*types)[i]
	case "add operand":
		*types = append(*types, T(F32, extent()))
	case "attribute":
		i := rapid.IntRange(0, len(attrs)-1).Draw(t, "attribute")
		integer := func() int {
			return rapid.SampledFrom([]int{-1, 0, 1, 2, 3, 4, 7, 32, 100, 128, math.MaxInt32, math.MaxInt, math.MinInt}).Draw(t, "int")
		}
		switch attrs[i].Val.(type) {
		case int:
			attrs[i].Val = integer()
		case float64:
			attrs[i].Val = rapid.SampledFrom([]float64{0, -1, 1, 0.5, 20, 1e30, -1e300, math.Inf(1), math.NaN()}).Draw(t, "float")
		case bool:
			attrs[i].Val = !attrs[i].Val.(bool)
		case []int:
			attrs[i].Val = []int{integer(), integer()}
		case DType:
			attrs[i].Val = DType(rapid.IntRange(0, int(Bool)+1).Draw(t, "dtype"))
		case []Dim:
			dims := []Dim{}
			for range rapid.IntRange(0, 4).Draw(t, "rank") {
				dims = append(dims, extent())
			}
			attrs[i].Val = dims
		}
	}
}
