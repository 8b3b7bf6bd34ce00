package codegen

import (
	"strings"
	"testing"

	"github.com/kiln-project/kiln/codegen/target"
	"github.com/kiln-project/kiln/passes"
)

// TestFNUZCompiles: the tiny model's decode step with e4m3fnuz weights is a code
// object for gfx942 that reads back clean. It is not executed.
func TestFNUZCompiles(t *testing.T) {
	c := newCompiler(t)
	tg, err := target.Lookup("gfx942")
	if err != nil {
		t.Fatal(err)
	}
	u := NewUnit(tg)
	m := &passes.Module{Entries: entries(t, "../testdata/tiny-dsv4", tg), Target: tg.ForPasses(), Config: passes.Config{Disable: []string{"join-launches"}}}
	if err := passes.Lower(m, []passes.Bucket{bucket("decode", "B", 2)}, u); err != nil {
		t.Fatal(err)
	}
	// Products decode their weights or multiply their codes, and activations pass
	// through codes, by the chip's own instructions.
	uses := map[string]int{}
	for i, k := range u.Kernels {
		for _, call := range []string{"llvm.amdgcn.cvt.pk.f32.fp8(", "llvm.amdgcn.mfma.f32.16x16x32.fp8.fp8(", "llvm.amdgcn.cvt.pk.fp8.f32("} {
			if strings.Contains(k.IR, call) {
				uses[u.Module.Kernels[i].Form+" "+call]++
			}
		}
	}
	for _, want := range []string{
		"block_linear_mfma llvm.amdgcn.cvt.pk.f32.fp8(", "expert_mfma llvm.amdgcn.cvt.pk.f32.fp8(",
		"block_linear_mfma llvm.amdgcn.mfma.f32.16x16x32.fp8.fp8(", "expert_mfma llvm.amdgcn.mfma.f32.16x16x32.fp8.fp8(",
		"block_linear_mfma llvm.amdgcn.cvt.pk.fp8.f32(", "rms_norm_rope llvm.amdgcn.cvt.pk.fp8.f32(",
	} {
		if uses[want] == 0 {
			t.Errorf("no kernel of form and call %q", want)
		}
	}
	out, err := c.Compile(t.Context(), u)
	if err != nil {
		t.Fatal(err)
	}
	if len(out.Object) == 0 || out.Stats.Kernels != len(u.Kernels) {
		t.Errorf("%d bytes of %d kernels, want %d", len(out.Object), out.Stats.Kernels, len(u.Kernels))
	}
}
