package kernel_test

import (
	"strings"
	"testing"

	"github.com/kiln-project/kiln/codegen/kernel"
	"github.com/kiln-project/kiln/codegen/llvm"
	"github.com/kiln-project/kiln/codegen/target"
	"github.com/kiln-project/kiln/ir"
)

// Targets with instructions for their own 8-bit floats use them for that format
// and not for the other one. The code is compiled here, not executed.
func TestFloat8Instructions(t *testing.T) {
	_, c := compiler(t)
	const decodes, encodes = "v_cvt_f32_fp8", "v_cvt_pk_fp8_f32"
	for _, tc := range []struct {
		name string
		dt   ir.DType
		body func(k *kernel.K, in, out *kernel.Buf)
		out  ir.DType
		has  string
		on   string // the one target that has it
	}{
		{name: "load e4m3", dt: ir.F8E4M3, out: ir.F32, has: decodes, on: "gfx950", body: func(k *kernel.K, in, out *kernel.Buf) {
			k.Lanes(k.Int(300), func(i kernel.V) { out.Store(i, in.Load(i)) })
		}},
		{name: "load e4m3 weight", dt: ir.F8E4M3, out: ir.F32, has: decodes, on: "gfx950", body: func(k *kernel.K, in, out *kernel.Buf) {
			k.Lanes(k.Int(300), func(i kernel.V) { out.Store(i, in.LoadWeight(i)) })
		}},
		{name: "load fnuz weight", dt: ir.F8E4M3FNUZ, out: ir.F32, has: decodes, on: "gfx942", body: func(k *kernel.K, in, out *kernel.Buf) {
			k.Lanes(k.Int(300), func(i kernel.V) { out.Store(i, in.LoadWeight(i)) })
		}},
		{name: "encode e4m3", dt: ir.F32, out: ir.F8E4M3, has: encodes, on: "gfx950", body: func(k *kernel.K, in, out *kernel.Buf) {
			k.Lanes(k.Int(300), func(i kernel.V) { out.Store(i, k.EncodeE4M3(in.Load(i))) })
		}},
		{name: "encode fnuz", dt: ir.F32, out: ir.F8E4M3FNUZ, has: encodes, on: "gfx942", body: func(k *kernel.K, in, out *kernel.Buf) {
			k.Lanes(k.Int(300), func(i kernel.V) { out.Store(i, k.EncodeFNUZ(in.Load(i))) })
		}},
		{name: "encode half", dt: ir.BF16, out: ir.F8E4M3FNUZ, has: encodes, on: "gfx942", body: func(k *kernel.K, in, out *kernel.Buf) {
			k.Lanes(k.Int(300), func(i kernel.V) { out.Store(i, k.EncodeHalf(in.Load(i))) })
		}},
	} {
		for _, name := range []string{"gfx942", "gfx950", "sm_90"} {
			want := name == tc.on
			tg, err := target.Lookup(name)
			if err != nil {
				t.Fatal(err)
			}
			m := kernel.NewModule(tg)
			params := []kernel.Param{{Name: "in", Mem: tc.dt}, {Name: "out", Mem: tc.out, Out: true}}
			if err := m.Build("f", params, func(k *kernel.K, b []*kernel.Buf, _ []kernel.V) { tc.body(k, b[0], b[1]) }); err != nil {
				t.Fatalf("%s: %s: %v", name, tc.name, err)
			}
			if tg.Kind == target.NVPTX {
				if strings.Contains(m.Text(), "amdgcn") {
					t.Errorf("%s: %s: AMD's instruction", name, tc.name)
				}
				continue
			}
			r, err := c.Compile(t.Context(), llvm.Job{Name: "f", IR: []byte(m.Text()), Triple: tg.Triple, CPU: tg.CPU, Features: tg.Features, OptPasses: "default<O3>", Output: llvm.Asm})
			if err != nil {
				t.Fatalf("%s: %s: %v", name, tc.name, err)
			}
			if got := strings.Contains(string(r.Output), tc.has); got != want {
				t.Errorf("%s: %s: has %s: %t, want %t\n%s", name, tc.name, tc.has, got, want, r.Output)
			}
		}
	}
}
