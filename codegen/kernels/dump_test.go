package kernels_test

import (
	"fmt"
	"os"
	"testing"

	"github.com/kiln-project/kiln/codegen"
	"github.com/kiln-project/kiln/codegen/llvm"
	"github.com/kiln-project/kiln/ir"
)

func TestDumpGemm(t *testing.T) {
	b := ir.NewBuilder("g")
	x := b.Input("x", ir.T(ir.BF16, intDims([]int{512, 4096})...))
	w := b.Weight("w", ir.T(ir.BF16, intDims([]int{4096, 4096})...))
	b.Output("y", b.Op1("linear", nil, x, w))
	if os.Getenv("FP8") != "" {
		wt := ir.T(ir.F8E4M3, intDims([]int{4096, 4096})...)
		wt.Quant = &ir.Quant{Block: [2]int{128, 128}, Scale: ir.E8M0}
		b.Output("z", b.Op1("block_linear", ir.A("act_block", 128), x, b.Weight("w8", wt)))
	}
	g, err := b.Finish()
	if err != nil {
		t.Fatal(err)
	}
	u := codegen.NewUnit(mustTarget(t, "sm_90"))
	if _, err := u.Lower(g); err != nil {
		t.Fatal(err)
	}
	_, c := compiler(t)
	for _, k := range u.Kernels {
		r, err := c.Compile(t.Context(), llvm.Job{Name: k.Symbol, IR: []byte(k.IR), Triple: u.Target.Triple, CPU: u.Target.CPU, Features: u.Target.Features, OptPasses: "default<O3>", Output: llvm.Asm})
		if err != nil {
			t.Fatal(err)
		}
		os.WriteFile(fmt.Sprintf("/tmp/kiln/gpu/dump_%s_%s.ptx", os.Getenv("KILN_GEMM"), k.Symbol), r.Output, 0o644)
	}
}
