package object

import (
	"os"
	"testing"
)

// A loader finds kernels by their symbols; kernels are no device functions.
func TestExportedSymbols(t *testing.T) {
	data, err := os.ReadFile("testdata/fixture.gfx942.hsaco")
	if err != nil {
		t.Fatal(err)
	}
	o := mustRead(t, data).Object
	if len(o.Functions) != 0 {
		t.Errorf("functions %v, want none", o.Functions)
	}
	for i := range o.Kernels {
		k := &o.Kernels[i]
		if got, ok := o.Exported[k.Symbol]; !ok || got != k.Descriptor.Address {
			t.Errorf("symbol %s is at 0x%x, want 0x%x", k.Symbol, got, k.Descriptor.Address)
		}
		if got, ok := o.Exported[k.Name]; !ok || got != k.Address {
			t.Errorf("symbol %s is at 0x%x, want 0x%x", k.Name, got, k.Address)
		}
	}
}
