package check

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/kiln-project/kiln/ir"
	"github.com/kiln-project/kiln/ir/eval"
	"github.com/kiln-project/kiln/passes"
)

// planted are passes that are wrong on purpose; they run where a config names them.
var planted = []passes.Pass{
	{Name: "plant-constant", Doc: "Makes every constant that is not 0 larger.", Off: true, Graph: largerConstants},
	{Name: "plant-step", Doc: "The same, on steps.", Off: true, On: passes.Steps, Graph: largerConstants},
	{Name: "plant-declared", Doc: "The same, and says so.", Off: true, Graph: largerConstants, Limit: ir.Limit{Kind: ir.AbsF32, Bound: 1}},
	{Name: "plant-error", Doc: "Fails.", Off: true, Graph: func(*passes.Context, *ir.Graph) (*ir.Graph, error) { return nil, errors.New("not today") }},
	{Name: "plant-module-error", Doc: "Fails.", Off: true, Module: func(*passes.Context) error { return errors.New("not today") }},
}

func largerConstants(_ *passes.Context, g *ir.Graph) (*ir.Graph, error) {
	e := ir.NewEdit(g)
	for _, op := range g.Ops {
		if op.Def.Name != "const" || !op.DType("dtype").IsFloat() || op.Float("value") == 0 {
			e.Copy(op)
			continue
		}
		e.At(op.Loc)
		e.Replace(op.Results[0], e.Op1("const", ir.A("value", op.Float("value")*(1+1e-4), "dtype", op.DType("dtype"))))
	}
	return e.Finish()
}

const scaled = `graph @scaled
sym T
input %x : f32[T,4]
input %rows : i32[T]
state !pool : f32[8,4]
%0 = const {value = 2.0} : f32[]
%1 = mul %x, %0 : f32[T,4]
%2 = scatter_rows !pool, %rows, %1 : f32[8,4]
output y = %1
update !pool = %2
`

// A miscompile is found and named, wherever it happens, and the passes about it are
// not blamed; what a pass declares is no breach.
func TestPlantedMiscompile(t *testing.T) {
	for _, tc := range []struct {
		pass string
		ok   bool
	}{{"plant-constant", false}, {"plant-step", false}, {"plant-declared", true}} {
		s := parsed(t, scaled, map[string]int{"T": 5})
		s.Module.Config.Only = []string{"cse", "dce", tc.pass}
		results, breaches, err := Passes(t.Context(), s)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range results {
			if r.OK != (tc.ok || r.Pass != tc.pass) {
				t.Errorf("with %s: verdict on %s is %t", tc.pass, r.Pass, r.OK)
			}
			if r.Pass == tc.pass && (!r.Changed || r.MaxAbs == 0 || r.Identical == 1) {
				t.Errorf("%s changed nothing: %+v", tc.pass, r)
			}
		}
		of := map[string]bool{}
		for _, b := range breaches {
			of[b.Of] = true
			if b.What != "pass "+tc.pass {
				t.Errorf("%s is blamed for %s: %s", b.What, tc.pass, b)
			}
		}
		if want := !tc.ok; of["output y"] != want || of["pool pool"] != want {
			t.Errorf("with %s: breaches are of %v", tc.pass, of)
		}
		if !tc.ok && !strings.Contains(breaches[0].String(), "(seed 0, case random): element 0 of f32[5,4] is ") {
			t.Errorf("the report does not say where: %s", breaches[0])
		}
	}
}

// In the model a constant that changes is found too: the checkpoint's weights do
// not hide it.
func TestPlantedMiscompileInTheModel(t *testing.T) {
	s := subject(t, "decode", decode)
	s.Module.Config.Only = []string{"plant-step"}
	_, breaches, err := Passes(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	if len(breaches) == 0 || breaches[0].What != "pass plant-step" {
		t.Errorf("breaches %v", breaches)
	}
}

// A bisection leaves passes out, and the report says so.
func TestSkippedPasses(t *testing.T) {
	s := parsed(t, scaled, map[string]int{"T": 5})
	none := 0
	s.Module.Config = passes.Config{Only: []string{"plant-constant"}, Bisect: &none}
	results, breaches, err := Passes(t.Context(), s)
	if err != nil || len(breaches) > 0 {
		t.Fatal(err, breaches)
	}
	for _, r := range results {
		if r.Skipped != (r.Pass == "plant-constant") {
			t.Errorf("%s skipped: %t", r.Pass, r.Skipped)
		}
	}
}

func TestPassesTakeNoGraphWithoutInputsThatFit(t *testing.T) {
	s := parsed(t, "graph @d\ninput %x : i32[64]\n%0 = const {value = 1.0, dtype = i32} : i32[]\n%1 = div %0, %x : i32[64]\noutput y = %1\n", nil)
	if _, _, err := Passes(t.Context(), s); err == nil || !strings.Contains(err.Error(), "seed 0, case random") {
		t.Errorf("error %v", err)
	}
}

// The pack graph that a module comes with makes the packed weights of the graph as
// built, too.
func TestPassesWithAPackGraph(t *testing.T) {
	gs, err := ir.Parse("test.kir", `graph @g
input %x : f32[2,3]
weight @packed.w : f32[2,3]
%0 = mul %x, @packed.w : f32[2,3]
%1 = mul %x, @packed.w : f32[2,3]
%2 = add %0, %1 : f32[2,3]
output y = %2
graph @pack
weight @w : f32[3,2]
%0 = transpose @w {perm = [1, 0]} : f32[2,3]
output packed.w = %0
`)
	if err != nil {
		t.Fatal(err)
	}
	s := &Subject{Module: &passes.Module{Entries: gs[:1], Pack: gs[1]}, Entry: "g", Weights: unpacked{NewRandom(0, gs...)}, Make: Fill, Seeds: 1}
	results, breaches, err := Passes(t.Context(), s)
	if err != nil || len(breaches) > 0 {
		t.Fatal(err, breaches)
	}
	if !slices.ContainsFunc(results, func(r PassResult) bool { return r.Pass == "cse" && r.Changed }) {
		t.Errorf("cse changed nothing: %+v", results)
	}
}

// unpacked has no packed weights.
type unpacked struct{ *Random }

func (u unpacked) Weight(name string, typ ir.Type) (*eval.Tensor, error) {
	if strings.HasPrefix(name, passes.PackedPrefix) {
		return nil, fmt.Errorf("%s is not in the checkpoint", name)
	}
	return u.Random.Weight(name, typ)
}

// A pass that fails is an error, on a graph and on the module.
func TestPassesThatFail(t *testing.T) {
	for _, pass := range []string{"plant-error", "plant-module-error"} {
		s := parsed(t, scaled, map[string]int{"T": 5})
		s.Module.Config.Only = []string{pass}
		if _, _, err := Passes(t.Context(), s); err == nil || err.Error() != "pass "+pass+": not today" {
			t.Errorf("error %v", err)
		}
	}
}
