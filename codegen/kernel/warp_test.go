package kernel_test

import (
	"strings"
	"testing"

	"github.com/kiln-project/kiln/codegen/kernel"
	"github.com/kiln-project/kiln/codegen/llvm"
	"github.com/kiln-project/kiln/ir"
)

// The maximum of two pairs of bf16 numbers is one instruction.
func TestMaxBF16Code(t *testing.T) {
	_, c := compiler(t)
	tg := mustTarget(t, "sm_90")
	m := kernel.NewModule(tg)
	err := m.Build("k", []kernel.Param{{Name: "x", Mem: ir.I32, Out: true}}, func(k *kernel.K, b []*kernel.Buf, _ []kernel.V) {
		b[0].Store(k.Lane(), k.MaxBF16(b[0].Load(k.Lane()), b[0].Load(k.Add(k.Lane(), k.Int(256)))))
	})
	if err != nil {
		t.Fatal(err)
	}
	r, err := c.Compile(t.Context(), llvm.Job{
		Name: "k", IR: []byte(m.Text()), Triple: tg.Triple, CPU: tg.CPU, Features: tg.Features, OptPasses: "default<O3>", Output: llvm.Asm,
	})
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(string(r.Output), "max.NaN.bf16x2"); n != 1 {
		t.Errorf("%d maxima of pairs, want 1, in\n%s", n, r.Output)
	}
}
