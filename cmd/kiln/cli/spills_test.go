package cli

import (
	"testing"

	"github.com/spf13/pflag"

	"github.com/kiln-project/kiln/codegen"
	"github.com/kiln-project/kiln/codegen/object"
	"github.com/kiln-project/kiln/codegen/target"
	"github.com/kiln-project/kiln/passes"
	"github.com/kiln-project/kiln/runtime/device/devicetest"
	"github.com/kiln-project/kiln/runtime/engine"
)

// defaultUnit lowers every entry and bucket that compile has by default.
func defaultUnit(t *testing.T, model string, tg *target.Target) *codegen.Unit {
	t.Helper()
	f := newFlags("compile", pflag.NewFlagSet("compile", pflag.ContinueOnError))
	set, o, err := compileSettings(f)
	if err != nil {
		t.Fatal(err)
	}
	c, err := loadConfig(model)
	if err != nil {
		t.Fatal(err)
	}
	if err := applyLimits(c, &set); err != nil {
		t.Fatal(err)
	}
	m, err := entriesOf(c, o, tg.ForPasses(), passes.Config{}, upTo(set.Speculate)...)
	if err != nil {
		t.Fatal(err)
	}
	layout, err := engine.LayoutOf(m.Entries[0])
	if err != nil {
		t.Fatal(err)
	}
	u := codegen.NewUnit(tg)
	if _, err := u.LowerAll(m.Entries, bundleBuckets(set, layout, c)); err != nil {
		t.Fatal(err)
	}
	return u
}

// No kernel of any default bucket keeps registers in memory: a spill costs more than what a
// kernel's form was chosen for. Joined kernels differ from bucket to bucket, so that fewer
// buckets are not enough. Kernels of gfx942, compiled from the same IR but for its forms of
// matrix units, are held to it by the tests of tag "long".
func TestTinyModelSpillsNothing(t *testing.T) {
	if testing.Short() {
		t.Skip("this test compiles some 230 kernels of which each takes LLVM a part of a second")
	}
	compiler := devicetest.Compiler(t)
	tg, err := target.Lookup("gfx950")
	if err != nil {
		t.Fatal(err)
	}
	out, err := compiler.Compile(t.Context(), defaultUnit(t, tinyModel, tg))
	if err != nil {
		t.Fatal(err)
	}
	f, err := object.Read(out.Object)
	if err != nil {
		t.Fatal(err)
	}
	for _, k := range f.Object.Kernels {
		if k.SGPRSpills == nil || k.VGPRSpills == nil || *k.SGPRSpills != 0 || *k.VGPRSpills != 0 || k.ScratchBytes != 0 {
			t.Errorf("%s: %s SGPR and %s VGPR spills, %d bytes of scratch, want none", k.Name, cell(k.SGPRSpills), cell(k.VGPRSpills), k.ScratchBytes)
		}
	}
}
