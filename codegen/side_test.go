package codegen

import (
	"errors"
	"strings"
	"testing"

	"github.com/kiln-project/kiln/codegen/target"
	"github.com/kiln-project/kiln/ir"
	"github.com/kiln-project/kiln/passes"
)

// TestProbeErrors: what is wrong with a start-up check names the op of the model that it
// stands for, by graph, size, and place in the text.
func TestProbeErrors(t *testing.T) {
	g, err := ir.ParseOne("model.kir", `graph @decode
input %x : bf16[4,8]
input %cos : f32[4,4]
input %sin : f32[4,4]
%0 = rope_row %x, %cos, %sin : bf16[4,8]
output y = %0
`)
	if err != nil {
		t.Fatal(err)
	}
	list, err := findProbes(&passes.Step{Graph: g, Bind: map[string]int{"B": 4}}, 0, nil, map[string]int{})
	if err != nil || len(list) != 1 {
		t.Fatalf("%d checks: %v", len(list), err)
	}
	tg, err := target.Lookup("gfx950")
	if err != nil {
		t.Fatal(err)
	}
	stop := errors.New("stopped")
	u := NewUnit(tg)
	u.Interrupted = func() error { return stop }
	_, err = lowerProbes(u, list)
	if want := "graph @decode, 4 rows: model.kir:5:1: rope_row: stopped"; !errors.Is(err, stop) || err.Error() != want {
		t.Errorf("error %v, want %s", err, want)
	}

	// So do errors of kernels that are made beside the lowering.
	u = NewUnit(tg)
	u.made = startKernels(nil)
	if _, err = lowerProbes(u, list); err != nil {
		t.Fatal(err)
	}
	for _, k := range u.Kernels {
		<-k.made.done
	}
	u.made.end()
	u.Kernels[0].made = &madeKernel{done: u.Kernels[0].made.done, err: stop}
	if err := u.settleAll(); !errors.Is(err, stop) || !strings.HasPrefix(err.Error(), "graph @decode, 4 rows: model.kir:5:1: rope_row: ") {
		t.Errorf("error %v", err)
	}
}
