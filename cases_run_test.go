package kiln_test

import (
	"bytes"
	"fmt"
	"math"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/tools/txtar"

	"github.com/kiln-project/kiln/codegen"
	"github.com/kiln-project/kiln/codegen/target"
	"github.com/kiln-project/kiln/ir"
	"github.com/kiln-project/kiln/ir/eval"
	"github.com/kiln-project/kiln/ir/metric"
	"github.com/kiln-project/kiln/ir/num"
	"github.com/kiln-project/kiln/runtime/device"
	"github.com/kiln-project/kiln/runtime/host"
)

// TestRunCases: what a graph gives for some numbers. The evaluator must give it
// exactly; compiled code within the case's limit.
func TestRunCases(t *testing.T) {
	cases(t, "run", []string{"limit"}, func(t *testing.T, c *textCase) {
		files := c.archive.Files
		if len(files) < 2 || files[1].Name != "given" || len(files) > 2 && files[2].Name != "gives" || len(files) > 3 {
			t.Fatalf("%s: want the sections before.kir, given, gives", c.file)
		}
		in, err := readTensors(string(files[1].Data), operandsOf(c.graph))
		if err != nil {
			t.Fatalf("%s: given: %v", c.file, err)
		}
		want, err := evaluate(c.graph, in)
		if err != nil {
			t.Fatal(err)
		}
		text := printTensors(c.graph, want)
		all := txtar.Format(&txtar.Archive{Comment: c.archive.Comment, Files: append(slices.Clone(files[:2]), txtar.File{Name: "gives", Data: []byte(text)})})
		if have, err := os.ReadFile(c.file); err != nil {
			t.Fatal(err)
		} else if !bytes.Equal(have, all) {
			if *update {
				err = os.WriteFile(c.file, all, 0o644)
			} else {
				err = fmt.Errorf("%s: -file +ref (rewrite with -update):\n%s", c.file, cmp.Diff(string(have), string(all)))
			}
			if err != nil {
				t.Error(err)
			}
		}
		t.Run("host", func(t *testing.T) {
			got := runOnHost(t, c.graph, in)
			for name, w := range want {
				l, block, err := limitOf(c, name)
				if err != nil {
					t.Fatalf("%s: %v", c.file, err)
				}
				if d := differs(w, got[name], l, block); d != "" {
					t.Errorf("%s: %s: %s (limit: %s)", c.file, name, d, l)
				}
			}
		})
	})
}

// operandsOf are what a graph wants to be given, by name in text.
func operandsOf(g *ir.Graph) map[string]ir.Type {
	out := map[string]ir.Type{}
	for _, list := range [][]*ir.Value{g.Inputs, g.Weights, g.States} {
		for _, v := range list {
			out[v.String()] = v.Type
		}
	}
	return out
}

// split takes the sigils off the names of one kind.
func split(in map[string]*eval.Tensor, sigil string) map[string]*eval.Tensor {
	out := map[string]*eval.Tensor{}
	for name, x := range in {
		if rest, ok := strings.CutPrefix(name, sigil); ok {
			out[rest] = x.Clone()
		}
	}
	return out
}

// given are weights.
type given map[string]*eval.Tensor

func (w given) Weight(name string, _ ir.Type) (*eval.Tensor, error) { return w[name], nil }

// evaluate gives the outputs, and the pools that are updated, by name in text.
func evaluate(g *ir.Graph, in map[string]*eval.Tensor) (map[string]*eval.Tensor, error) {
	p, err := eval.Compile(g, eval.NewConsts(given(split(in, "@"))))
	if err != nil {
		return nil, err
	}
	states := split(in, "!")
	out, err := p.Run(split(in, "%"), states)
	if err != nil {
		return nil, err
	}
	return withStates(g, out, states), nil
}

func withStates(g *ir.Graph, out, states map[string]*eval.Tensor) map[string]*eval.Tensor {
	for _, u := range g.Updates {
		out[u.State.String()] = states[u.State.Name]
	}
	return out
}

// runOnHost is evaluate by compiled code.
func runOnHost(t *testing.T, g *ir.Graph, in map[string]*eval.Tensor) map[string]*eval.Tensor {
	t.Helper()
	best, err := host.Target()
	if err != nil {
		t.Skip(err)
	}
	tg, err := target.Lookup(best)
	if err != nil {
		t.Fatal(err)
	}
	cc, u := compiler(t), codegen.NewUnit(tg)
	pl, err := u.Lower(g)
	if err != nil {
		t.Fatal(err)
	}
	made, err := cc.Compile(t.Context(), u)
	if err != nil {
		t.Fatal(err)
	}
	dev, err := host.Open()
	if err != nil {
		t.Fatal(err)
	}
	defer dev.Close()
	d, err := device.NewModel(dev, made.Object, u.Module)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	if err := d.BindWeights(t.Context(), given(split(in, "@")), nil); err != nil {
		t.Fatal(err)
	}
	p, err := d.Load(pl)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	st, err := d.NewState(pl)
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	states := split(in, "!")
	for _, v := range g.States {
		if err := st.SetPool(v.Name, states[v.Name]); err != nil {
			t.Fatal(err)
		}
	}
	out, err := p.Run(split(in, "%"), st)
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range g.States {
		if states[v.Name], err = st.Pool(v.Name); err != nil {
			t.Fatal(err)
		}
	}
	return withStates(g, out, states)
}

// limitOf is how far compiled code may be from the evaluator in an output or pool:
// exact or, if the case says "limit: table", what the op table says of the op that
// makes the output. A choice must be the evaluator's: cases have no scores so close
// that rounding decides.
func limitOf(c *textCase, name string) (l ir.Limit, block int, err error) {
	exact := ir.Limit{Kind: ir.Exact}
	switch c.settings["limit"] {
	case "", "exact":
		return exact, 0, nil
	case "table":
	default:
		return exact, 0, fmt.Errorf("limit: %s: want exact or table", c.settings["limit"])
	}
	for _, o := range c.graph.Outputs {
		if o.Name == name && o.Value.Op != nil {
			l := o.Value.Op.Def.LimitOf(o.Value.Index)
			if l.Kind == ir.ByChoice {
				l = exact
			}
			return l, l.Block(o.Value.Op), nil
		}
	}
	return exact, 0, nil
}

// differs says how got differs from want beyond a limit, or "". All NaNs are equal.
func differs(want, got *eval.Tensor, l ir.Limit, block int) string {
	if got == nil || !want.Type().Equal(got.Type()) {
		return "no result of type " + want.Type().String()
	}
	if !slices.Equal(want.I, got.I) || !bytes.Equal(want.Codes, got.Codes) || !bytes.Equal(want.Scales, got.Scales) {
		return fmt.Sprintf("is %s, want %s", values(got), values(want))
	}
	other := 0
	var codes []float64
	if l.Kind == ir.OneCode {
		codes = metric.CodesApart(want.F, got.F, block)
	}
	for i, w := range want.F {
		g, near := got.F[i], false
		if math.Float32bits(w) == math.Float32bits(g) || w != w && g != g {
			continue
		}
		off := math.Abs(float64(w) - float64(g))
		switch l.Kind {
		case ir.AbsF32:
			near = off <= l.Bound
		case ir.BF16ULP:
			other++
			near = steps(w, g) <= 1 || off <= l.Abs
		case ir.OneCode:
			other++
			near = codes[i] <= 1
		}
		if !near {
			return fmt.Sprintf("element %d is %v, want %v", i, g, w)
		}
	}
	if other > 0 && float64(other) > (1-l.Bound)*float64(len(want.F)) {
		return fmt.Sprintf("%d of %d elements differ", other, len(want.F))
	}
	return ""
}

// steps is the distance of two numbers in bf16.
func steps(a, b float32) int {
	if a != a || b != b {
		return math.MaxInt
	}
	line := func(x float32) int {
		u := int(num.BF16Bits(x))
		if u >= 1<<15 {
			u = 1<<15 - u
		}
		return u
	}
	d := line(a) - line(b)
	return max(d, -d)
}

// What is beyond a limit is noticed.
func TestDiffers(t *testing.T) {
	nan := float32(math.NaN())
	ulp := ir.Limit{Kind: ir.BF16ULP, Bound: 0.5}
	code := ir.Limit{Kind: ir.OneCode, Bound: 0.5}
	for _, tc := range []struct {
		want, got []float32
		limit     ir.Limit
		differ    bool
	}{
		{[]float32{1, nan, -0.5}, []float32{1, nan, -0.5}, ir.Limit{}, false},
		{[]float32{1}, []float32{1.0078125}, ir.Limit{}, true},
		{[]float32{0}, []float32{float32(math.Copysign(0, -1))}, ir.Limit{}, true},
		{[]float32{1}, []float32{1.5}, ir.Limit{Kind: ir.AbsF32, Bound: 0.5}, false},
		{[]float32{1}, []float32{nan}, ir.Limit{Kind: ir.AbsF32, Bound: 0.5}, true},
		{[]float32{1, 1}, []float32{1, 1.0078125}, ulp, false},
		{[]float32{1, 1}, []float32{1.0078125, 1.0078125}, ulp, true},
		{[]float32{1, 1}, []float32{1, 1.015625}, ulp, true},
		{[]float32{1, nan}, []float32{1, 1}, ulp, true},
		{[]float32{1, 0x1p-133}, []float32{1, -0x1p-133}, ulp, true},
		{[]float32{416, 0}, []float32{416, 0x1p-9}, code, false},
		{[]float32{416, 0}, []float32{384, 0x1p-9}, code, true},
		{[]float32{416, 0}, []float32{416, 0x1p-8}, code, true},
	} {
		want, err := eval.FromF32(ir.BF16, tc.want, len(tc.want))
		if err != nil {
			t.Fatal(err)
		}
		got, err := eval.FromF32(ir.BF16, tc.got, len(tc.got))
		if err != nil {
			t.Fatal(err)
		}
		if why := differs(want, got, tc.limit, 2); (why != "") != tc.differ {
			t.Errorf("%v and %v, %s: %q", tc.want, tc.got, tc.limit, why)
		}
	}
}
