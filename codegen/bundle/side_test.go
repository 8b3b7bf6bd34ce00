package bundle

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/kiln-project/kiln/codegen/plan"
)

// What lies beside the plans comes back: probes with the code, plans without fused
// kernels when they are asked for. Weights of their own are refused.
func TestSides(t *testing.T) {
	with := func(change func(c *Code)) (string, *Code) {
		t.Helper()
		c := code()
		c.Unfused = &Side{Module: code().Module, Object: []byte("unfused")}
		c.Probes = &Side{Module: code().Module, Object: []byte("probes"), Graphs: "graph @probe.0\n"}
		change(c)
		files, err := c.Encode()
		if err != nil {
			t.Fatal(err)
		}
		b := sample(t)
		b.Code[testTarget] = files
		dir := filepath.Join(t.TempDir(), "m.kiln")
		if err := b.Write(dir); err != nil {
			t.Fatal(err)
		}
		return dir, c
	}
	dir, want := with(func(*Code) {})
	b, got, err := read(dir)
	if err != nil {
		t.Fatal(err)
	}
	unfused, err := b.ReadUnfused(dir, got.Module)
	if err != nil {
		t.Fatal(err)
	}
	same := cmpopts.EquateEmpty()
	if d := cmp.Diff(want.Probes, got.Probes, same); d != "" || got.Unfused != nil {
		t.Errorf("probes (-want +got), without fused kernels %v\n%s", got.Unfused, d)
	}
	if d := cmp.Diff(want.Unfused, unfused, same); d != "" {
		t.Errorf("without fused kernels (-want +got)\n%s", d)
	}

	_, dir = write(t)
	b, got, err = read(dir)
	if err != nil {
		t.Fatal(err)
	}
	if unfused, err = b.ReadUnfused(dir, got.Module); got.Probes != nil || unfused != nil || err != nil {
		t.Errorf("a bundle without sides: %v, %v, error %v", got.Probes, unfused, err)
	}

	for _, name := range []string{"unfused/plan-000.json", "unfused/kernels.so", "probes/plan-000.json", "probes/graphs.kir"} {
		dir, _ := with(func(*Code) {})
		if err := os.Truncate(filepath.Join(dir, testTarget, filepath.FromSlash(name)), 3); err != nil {
			t.Fatal(err)
		}
		if _, _, err := read(dir); err == nil || !strings.Contains(err.Error(), name+": the content is not what was compiled") {
			t.Errorf("damaged %s: %v", name, err)
		}
	}

	other := []plan.Storage{{Name: "w", Type: "f32[5]", Bytes: [2]int64{20, 0}}}
	dir, _ = with(func(c *Code) { c.Probes.Module.Weights = other })
	if _, _, err := read(dir); err == nil || !strings.Contains(err.Error(), "probes/: weight w is not that of the plans") {
		t.Errorf("a probe's weight: %v", err)
	}
	dir, _ = with(func(c *Code) { c.Unfused.Module.Weights = other })
	if b, got, err = read(dir); err != nil {
		t.Fatal(err)
	}
	if _, err := b.ReadUnfused(dir, got.Module); err == nil || !strings.Contains(err.Error(), "unfused/: weight w is not that of the plans") {
		t.Errorf("a weight of the plans without fused kernels: %v", err)
	}
}
