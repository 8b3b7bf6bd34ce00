package kernels_test

import (
	"regexp"
	"testing"

	"github.com/kiln-project/kiln/codegen/kernel"
	"github.com/kiln-project/kiln/codegen/kernels"
	"github.com/kiln-project/kiln/codegen/llvm"
)

// The kernels around a step reach past the caches of the device, in the order that the
// numbers of steps rely on.
func TestStepOrder(t *testing.T) {
	_, c := compiler(t)
	for _, tc := range []struct {
		target, kernel string
		want           string // in the instructions
	}{
		{"gfx942", kernels.StepPrologue, `(?s)global_load_dwordx2 [^\n]* sc0 sc1.*buffer_inv sc0 sc1.*global_load_dwordx2 [^\n]* sc0 sc1.*global_store_dwordx2`},
		{"gfx942", kernels.StepEpilogue, `(?s)global_store_dwordx2 [^\n]* sc0 sc1.*buffer_wbl2 sc0 sc1\s+s_waitcnt vmcnt\(0\).*s_barrier.*buffer_wbl2 sc0 sc1.*global_store_dwordx2 [^\n]* sc0 sc1`},
		{"gfx950", kernels.StepPrologue, `(?s)global_load_dwordx2 [^\n]* sc0 sc1.*buffer_inv sc0 sc1.*global_load_dwordx2 [^\n]* sc0 sc1`},
		{"gfx950", kernels.StepEpilogue, `(?s)buffer_wbl2 sc0 sc1\s+s_waitcnt vmcnt\(0\).*s_barrier.*global_store_dwordx2 [^\n]* sc0 sc1`},
		{"sm_90", kernels.StepPrologue, `(?s)ld\.relaxed\.sys\.global\.b64.*fence\.acq_rel\.sys.*ld\.relaxed\.sys\.global\.b64.*st\.global\.b64`},
		{"sm_90", kernels.StepEpilogue, `(?s)st\.relaxed\.sys\.global\.b64.*fence\.acq_rel\.sys.*bar\.sync.*fence\.acq_rel\.sys.*st\.relaxed\.sys\.global\.b64`},
	} {
		tg := mustTarget(t, tc.target)
		for _, s := range kernels.Steps() {
			if s.Form != tc.kernel {
				continue
			}
			m := kernel.NewModule(tg)
			if err := m.Build(s.Form, s.Params, s.Body); err != nil {
				t.Fatal(err)
			}
			r, err := c.Compile(t.Context(), llvm.Job{Name: s.Form, IR: []byte(m.Text()), Triple: tg.Triple, CPU: tg.CPU, Features: tg.Features, OptPasses: "default<O3>", Output: llvm.Asm})
			if err != nil {
				t.Fatal(err)
			}
			if !regexp.MustCompile(tc.want).Match(r.Output) {
				t.Errorf("%s on %s: want %s in\n%s", s.Form, tc.target, tc.want, r.Output)
			}
		}
	}
}

// The host has no kernels around a step.
func TestStepNeedsGPU(t *testing.T) {
	for _, s := range kernels.Steps() {
		if err := kernel.NewModule(mustTarget(t, "x86-64-v3")).Build(s.Form, s.Params, s.Body); err == nil {
			t.Errorf("%s was built for the host", s.Form)
		}
	}
}
