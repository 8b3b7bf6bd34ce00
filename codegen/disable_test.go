package codegen

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/kiln-project/kiln/codegen/kernels"
	"github.com/kiln-project/kiln/codegen/target"
	"github.com/kiln-project/kiln/ir"
	"github.com/kiln-project/kiln/models/dsv4"
	"github.com/kiln-project/kiln/passes"
)

// Without its form, an op that has a decomposition runs as that, which the module
// says, and a primitive is refused by the name of the form. That the
// decompositions keep the goldens is a test of runtime/host.
func TestDisabledForms(t *testing.T) {
	tg, err := target.Lookup("x86-64-v3")
	if err != nil {
		t.Fatal(err)
	}
	samples := opSamples(t)
	for _, name := range kernels.Ops() {
		g := samples[name]
		if g == nil {
			t.Errorf("%s: no graph has it", name)
			continue
		}
		def, err := ir.Lookup(name)
		if err != nil {
			t.Fatal(err)
		}
		u := NewUnit(tg)
		var forms []string
		for _, f := range kernels.For(name) {
			u.Disable[f.Name] = true
			forms = append(forms, f.Name+": disabled")
		}
		reason := strings.Join(forms, "; ")
		switch _, err = u.Lower(g); {
		case def.Primitive() && (err == nil || !strings.Contains(err.Error(), "no kernel form: "+reason)):
			t.Errorf("%s: error %v, want one that says %q", name, err, reason)
		case def.Primitive():
		case err != nil:
			t.Errorf("%s: %v", name, err)
		case len(u.Module.Decomposed) == 0 || u.Module.Decomposed[0].Op != name || whyNot(u.Module.Decomposed[0].Rejected) != reason:
			t.Errorf("%s: decomposed %+v, want it for %q", name, u.Module.Decomposed, reason)
		}
	}
}

// opSamples has a graph for each op: those of the tiny model before and after
// passes, of what they decompose to, and a few by hand.
func opSamples(t *testing.T) map[string]*ir.Graph {
	t.Helper()
	samples := map[string]*ir.Graph{}
	sample := func(g *ir.Graph) {
		for _, op := range g.Ops {
			if samples[op.Def.Name] == nil && len(kernels.For(op.Def.Name)) > 0 {
				samples[op.Def.Name] = alone(t, op)
			}
		}
	}
	graphs, err := ir.Parse("samples.kir", handMade)
	if err != nil {
		t.Fatal(err)
	}
	for _, g := range graphs {
		samples[g.Name] = g
	}
	for _, bk := range []passes.Bucket{bucket("prefill", "T", 16, "B", 1, "O", 1), bucket("draft", "T", 16, "B", 1, "O", 1)} {
		for _, config := range []passes.Config{{}, {Disable: []string{"fuse-norm-quant"}}, {Disable: []string{"fuse-hc"}}, {Pipeline: "required"}} {
			c, err := dsv4.LoadConfig("../testdata/tiny-dsv4")
			if err != nil {
				t.Fatal(err)
			}
			g, err := dsv4.Build(c, dsv4.Entry(bk.Entry), dsv4.DefaultOptions())
			if err != nil {
				t.Fatal(err)
			}
			m := &passes.Module{Entries: []*ir.Graph{g}, Config: config}
			if err := passes.Run(m); err != nil {
				t.Fatal(err)
			}
			if err := passes.Optimize(m, []passes.Bucket{bk}); err != nil {
				t.Fatal(err)
			}
			sample(m.Steps[0].Graph)
			expanded, err := ir.Expand(m.Steps[0].Graph)
			if err != nil {
				t.Fatal(err)
			}
			sample(expanded)
			sample(m.Pack)
		}
	}
	return samples
}

// alone is a graph with one op, whose operands are inputs.
func alone(t *testing.T, op *ir.Op) *ir.Graph {
	t.Helper()
	b := ir.NewBuilder("alone")
	args := make([]*ir.Value, len(op.Args))
	for i, a := range op.Args {
		if j := slices.Index(op.Args[:i], a); j >= 0 {
			args[i] = args[j]
			continue
		}
		args[i] = b.Input(fmt.Sprintf("x%d", i), a.Type)
	}
	for i, r := range b.Op(op.Def.Name, op.Attrs, args...) {
		b.Output(fmt.Sprintf("y%d", i), r)
	}
	g, err := b.Finish()
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// handMade are graphs of ops that the model has not, or not where they need a
// kernel, each named after its op: a reshape copies only a pool that is written.
const handMade = `graph @abs
input %x : f32[2]
%0 = abs %x : f32[2]
output y = %0
graph @sin
input %x : f32[2]
%0 = sin %x : f32[2]
output y = %0
graph @cos
input %x : f32[2]
%0 = cos %x : f32[2]
output y = %0
graph @le
input %x : f32[2]
%0 = le %x, %x : bool[2]
output y = %0
graph @ne
input %x : f32[2]
%0 = ne %x, %x : bool[2]
output y = %0
graph @linear3
input %x : bf16[2,4]
weight @w : bf16[6,4]
%0, %1, %2 = linear3 %x, @w {sizes = [1,2,3]} : bf16[2,1], bf16[2,2], bf16[2,3]
output y = %0
output z = %1
output w = %2
graph @argmax
input %x : f32[2,4]
%0, %1 = argmax %x : i32[2], i32[2]
output y = %0
output z = %1
graph @linear_argmax
input %x : bf16[2,4]
weight @w : bf16[6,4]
%0, %1 = linear_argmax %x, @w : i32[2], i32[2]
output y = %0
output z = %1
graph @sample
input %x : f32[2,4]
input %temperature : f32[2]
input %top_k : i32[2]
input %top_p : f32[2]
input %seed : i64[2]
input %pos : i32[2]
%0, %1 = sample %x, %temperature, %top_k, %top_p, %seed, %pos : i32[2], i32[2]
output y = %0
output z = %1
graph @recode_fnuz
input %x : f8e4m3[128,128] block(128,128) scale e8m0
%0 = recode_fnuz %x : f8e4m3fnuz[128,128] block(128,128) scale e8m0
output y = %0
graph @swiglu
input %g : bf16[2,4]
input %u : bf16[2,4]
input %w : f32[2,1]
%0 = swiglu %g, %u, %w {limit = 7} : bf16[2,4]
output y = %0
graph @reshape
state !p : f32[2,3]
input %slot : i32[1]
input %x : f32[1,3]
%0 = reshape !p {shape = [6]} : f32[6]
%1 = scatter_rows !p, %slot, %x : f32[2,3]
output y = %0
update !p = %1
`
