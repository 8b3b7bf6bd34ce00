package check

import (
	"errors"
	"strings"
	"testing"

	"github.com/kiln-project/kiln/codegen"
	"github.com/kiln-project/kiln/ir"
)

const norms = `graph @norms
sym T
input %x : bf16[T,64]
weight @w : bf16[64]
%0 = rms_norm %x, @w {eps = 1e-6} : bf16[T,64] loc("layers.0.attn")
%1 = add %0, %x : bf16[T,64] loc("layers.0.attn")
%2 = rms_norm %1, @w {eps = 1e-6} : bf16[T,64] loc("layers.1.ffn")
output y = %2
`

// A wrong kernel is found and named, at the first place where it runs, and no other
// op is blamed: what it computes goes nowhere.
func TestPlantedKernel(t *testing.T) {
	cfg := onHost(t)
	cfg.Lowered = func(u *codegen.Unit) {
		for i, k := range u.Kernels {
			if strings.HasPrefix(u.Module.Kernels[i].Form, "rms_norm") {
				wrong := strings.Replace(k.IR, "= fmul <", "= fadd <", 1)
				if wrong == k.IR {
					t.Fatalf("nothing to plant in\n%s", k.IR)
				}
				k.IR = wrong
			}
		}
	}
	r, err := Ops(t.Context(), parsed(t, norms, map[string]int{"T": 3}), cfg)
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range r.Ops {
		if o.OK != (o.Op != "rms_norm") {
			t.Errorf("verdict %+v", o)
		}
	}
	places := map[string]bool{}
	for _, b := range r.Breaches {
		places[b.Loc] = true
		if b.What != "rms_norm" || b.Of != "y" {
			t.Errorf("blamed: %s", b)
		}
	}
	if !places["layers.0.attn"] || !places["layers.1.ffn"] {
		t.Errorf("breaches at %v", places)
	}
}

// What a limit is decides.
func TestLimitOfOps(t *testing.T) {
	cfg := onHost(t)
	cfg.LimitOf = func(d *ir.OpDef, i int) ir.Limit {
		if d.Name == "hc_pre" {
			return ir.Limit{Kind: ir.AbsF32, Bound: 1e-12}
		}
		return d.LimitOf(i)
	}
	cfg.Only = "hc_pre"
	s := subject(t, "decode", decode)
	r, err := Ops(t.Context(), s, cfg)
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Breaches) == 0 || len(r.Ops) != 1 || r.Ops[0].OK {
		t.Errorf("ops %+v, breaches %v", r.Ops, r.Breaches)
	}
	if len(r.Decomposed) != 1 || r.Decomposed[0].Op != "hc_pre" || r.Decomposed[0].Values == 0 {
		t.Errorf("decompositions %+v", r.Decomposed)
	}
}

// Only takes a name, a loc, or the beginning of one.
func TestOnly(t *testing.T) {
	cfg := onHost(t)
	for _, tc := range []struct {
		only  string
		sites int
	}{{"rms_norm", 2}, {"layers.0.attn", 2}, {"layers.1", 1}, {"add", 1}} {
		cfg.Only = tc.only
		r, err := Ops(t.Context(), parsed(t, norms, map[string]int{"T": 3}), cfg)
		if err != nil {
			t.Fatal(err)
		}
		n := 0
		for _, o := range r.Ops {
			n += o.Sites
		}
		if n != tc.sites || len(r.Breaches) > 0 {
			t.Errorf("%s: %d places, breaches %v", tc.only, n, r.Breaches)
		}
	}
	cfg.Only = "layers.0.at"
	_, err := Ops(t.Context(), parsed(t, norms, map[string]int{"T": 3}), cfg)
	var unknown *UnknownOp
	if !errors.As(err, &unknown) || !strings.Contains(err.Error(), "it has add, rms_norm; layers.0 to layers.1") {
		t.Errorf("error %v", err)
	}
}

// A disabled form is not run: what is decomposed keeps the limit.
func TestDisabledForm(t *testing.T) {
	cfg := onHost(t)
	cfg.Disable = []string{"rms_norm"}
	cfg.Lowered = func(u *codegen.Unit) {
		for _, k := range u.Module.Kernels {
			if k.Form == "rms_norm" {
				t.Error("the disabled form was chosen")
			}
		}
	}
	r, err := Ops(t.Context(), parsed(t, norms, map[string]int{"T": 3}), cfg)
	if err != nil || len(r.Breaches) > 0 {
		t.Error(err, r.Breaches)
	}
}

// Graphs that the evaluator cannot hold are refused, but for ops by name.
func TestTooLarge(t *testing.T) {
	text := strings.ReplaceAll(norms, "output y", `%3 = linear %2, @big {to = bf16} : bf16[T,8388608]
%4 = slice %3 {axis = 1, start = 0, size = 64} : bf16[T,64]
output z = %4
output y`)
	text = strings.Replace(text, "weight @w", "weight @big : bf16[8388608,64]\nweight @w", 1)
	bind := map[string]int{"T": 1}
	cfg := onHost(t)
	if _, _, err := Passes(t.Context(), parsed(t, text, bind)); !TooLarge(err) {
		t.Errorf("passes: error %v", err)
	}
	if _, err := Ops(t.Context(), parsed(t, text, bind), cfg); !TooLarge(err) {
		t.Errorf("ops: error %v", err)
	}
	cfg.Only = "linear"
	if _, err := Ops(t.Context(), parsed(t, text, bind), cfg); !TooLarge(err) {
		t.Errorf("linear: error %v", err)
	}
	cfg.Only = "rms_norm"
	r, err := Ops(t.Context(), parsed(t, text, bind), cfg)
	if err != nil || r.Generated == "" || len(r.Layers) > 0 || r.Ops[0].Values == 0 {
		t.Errorf("rms_norm: %+v, error %v", r, err)
	}
}
