package kernel_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/kiln-project/kiln/codegen/kernel"
	"github.com/kiln-project/kiln/codegen/llvm"
	"github.com/kiln-project/kiln/codegen/target"
	"github.com/kiln-project/kiln/ir"
)

func mustTarget(t *testing.T, name string) *target.Target {
	t.Helper()
	tg, err := target.Lookup(name)
	if err != nil {
		t.Fatal(err)
	}
	return tg
}

// matrixKernel is one wave's product of a tile: operands of two formats, scales as
// bytes, an f32 result.
func matrixKernel(m *kernel.Module, name string, op *target.MFMA) error {
	params := []kernel.Param{{Name: "a", Mem: op.A}, {Name: "b", Mem: op.B}, {Name: "sa", Mem: ir.U8}, {Name: "sb", Mem: ir.U8}, {Name: "d", Mem: ir.F32, Out: true}}
	return m.Build(name, params, func(k *kernel.K, b []*kernel.Buf, _ []kernel.V) {
		lane := k.WaveLane()
		load := func(x *kernel.Buf, d ir.DType) kernel.Vec {
			n := op.PerLane()
			at := k.Mul(lane, k.Int(n))
			if d.Bytes(n) <= 16 {
				return x.LoadVec(at, n)
			}
			return k.Join(x.LoadVec(at, n/2), x.LoadVec(k.Add(at, k.Int(n/2)), n/2))
		}
		acc := k.VecVar(k.ZeroVec(kernel.F32, target.ResultRun))
		k.For(k.Wave(), k.Int(16), 4, func(kernel.V) {
			x, y := load(b[0], op.A), load(b[1], op.B)
			if op.Scaled {
				acc.Set(k.MMAScaled(op, x, y, acc.Get(), b[2].Load(lane), b[3].Load(lane)))
			} else {
				acc.Set(k.MMA(op, x, y, acc.Get()))
			}
		})
		largest := k.MapVec(func(v ...kernel.V) kernel.V { return k.Max(v[0], k.LaneXor(v[0], 16)) }, acc.Get())
		b[4].StoreVec(k.Mul(lane, k.Int(target.ResultRun)), largest)
	})
}

// Each instruction of the table is what LLVM makes of its intrinsic.
func TestMatrixCode(t *testing.T) {
	_, c := compiler(t)
	for _, tc := range []struct {
		chip   string
		a, b   ir.DType
		scaled bool
		want   string
	}{
		{"gfx942", ir.BF16, ir.BF16, false, "v_mfma_f32_16x16x16_bf16 v["},
		{"gfx942", ir.F8E4M3FNUZ, ir.F8E4M3FNUZ, false, "v_mfma_f32_16x16x32_fp8_fp8 v["},
		{"gfx950", ir.BF16, ir.BF16, false, "v_mfma_f32_16x16x32_bf16 v["},
		{"gfx950", ir.F8E4M3, ir.F8E4M3, false, "v_mfma_f32_16x16x32_fp8_fp8 v["},
		{"gfx950", ir.F8E4M3, ir.F8E4M3, true, "v_mfma_scale_f32_16x16x128_f8f6f4 v["},
		{"gfx950", ir.F4E2M1, ir.F8E4M3, true, "cbsz:4"},
		{"gfx950", ir.F4E2M1, ir.F4E2M1, true, "cbsz:4 blgp:4"},
	} {
		t.Run(fmt.Sprintf("%s/%v %v %v", tc.chip, tc.a, tc.b, tc.scaled), func(t *testing.T) {
			tg := mustTarget(t, tc.chip)
			op := tg.MFMA(tc.a, tc.b, tc.scaled)
			if op == nil {
				t.Fatal("no instruction")
			}
			m := kernel.NewModule(tg)
			if err := matrixKernel(m, "product", op); err != nil {
				t.Fatal(err)
			}
			r, err := c.Compile(t.Context(), llvm.Job{Name: "product", IR: []byte(m.Text()), Triple: tg.Triple, CPU: tg.CPU, OptPasses: "default<O3>", Output: llvm.Asm})
			if err != nil {
				t.Fatal(err)
			}
			asm := string(r.Output)
			if !strings.Contains(asm, "v_mfma_"+op.Name+" ") || !strings.Contains(asm, tc.want) {
				t.Errorf("no %s with %q in\n%s", op.Name, tc.want, asm)
			}
			for _, bad := range []string{"v_accvgpr", "scratch_"} {
				if strings.Contains(asm, bad) {
					t.Errorf("%s in\n%s", bad, asm)
				}
			}
		})
	}
}

// Codes become bf16 in the instructions that each chip has for it.
func TestCodesToBF16(t *testing.T) {
	_, c := compiler(t)
	for _, tc := range []struct {
		chip string
		own  ir.DType
		want []string // number of instructions for 16 bytes, at least
	}{
		{"gfx942", ir.F8E4M3FNUZ, []string{"8 v_cvt_pk_f32_fp8", "40 v_perm_b32"}},
		{"gfx950", ir.F8E4M3, []string{"8 v_cvt_pk_f32_fp8", "16 v_cvt_scalef32_pk_f32_fp4", "24 v_perm_b32"}},
	} {
		tg := mustTarget(t, tc.chip)
		m := kernel.NewModule(tg)
		params := []kernel.Param{{Name: "a", Mem: tc.own}, {Name: "b", Mem: ir.F4E2M1}, {Name: "s", Mem: ir.E8M0}, {Name: "d", Mem: ir.I32, Out: true}}
		err := m.Build("codes", params, func(k *kernel.K, b []*kernel.Buf, _ []kernel.V) {
			lane := k.WaveLane()
			even := k.Cmp(kernel.EQ, k.And(lane, k.Int(1)), k.Int(0))
			x := k.CodesToBF16(b[0].LoadVecIf(even, k.Mul(lane, k.Int(16)), 16), tc.own)
			y := k.E2M1ToBF16(b[1].LoadVec(k.Mul(lane, k.Int(32)), 32), b[2].Load(lane))
			for i := 0; i < x.Len(); i += 4 {
				b[3].StoreVec(k.Add(k.Mul(lane, k.Int(x.Len())), k.Int(i)), k.Part(x, i, 4))
			}
			b[3].At(k.Int(512)).StoreVec(lane, k.MakeVec(k.Xor(k.At(y, 0), k.PackBF16(b[2].Load(lane), k.Float(1)))))
			for i := 0; i < y.Len(); i += 4 {
				b[3].At(k.Int(1024)).StoreVec(k.Add(k.Mul(lane, k.Int(y.Len())), k.Int(i)), k.Part(y, i, 4))
			}
		})
		if err != nil {
			t.Fatal(err)
		}
		r, err := c.Compile(t.Context(), llvm.Job{Name: "codes", IR: []byte(m.Text()), Triple: tg.Triple, CPU: tg.CPU, OptPasses: "default<O3>", Output: llvm.Asm})
		if err != nil {
			t.Fatal(err)
		}
		for _, w := range tc.want {
			var n int
			var what string
			if _, err := fmt.Sscan(w, &n, &what); err != nil {
				t.Fatal(err)
			}
			if got := strings.Count(string(r.Output), what); got < n {
				t.Errorf("%s: %d of %s, want %d in\n%s", tc.chip, got, what, n, r.Output)
			}
		}
	}
}

// Misuse is an error, with what is wrong.
func TestMatrixMisuse(t *testing.T) {
	amd := mustTarget(t, "gfx942")
	bf16 := amd.MFMA(ir.BF16, ir.BF16, false)
	zero := func(k *kernel.K, n int) kernel.Vec { return k.ZeroVec(kernel.I32, n) }
	acc := func(k *kernel.K) kernel.Vec { return k.ZeroVec(kernel.F32, 4) }
	for _, tc := range []struct {
		target, want string
		body         func(k *kernel.K, b *kernel.Buf)
	}{
		{"x86-64-v3", "x86-64-v3 has none", func(k *kernel.K, b *kernel.Buf) { b.LoadVec(k.Int(0), 8) }},
		{"gfx942", "no instruction", func(k *kernel.K, _ *kernel.Buf) { k.MMA(nil, zero(k, 2), zero(k, 2), acc(k)) }},
		{"gfx942", "no instruction", func(k *kernel.K, _ *kernel.Buf) {
			k.MMAScaled(bf16, zero(k, 2), zero(k, 2), acc(k), k.Int32(0), k.Int32(0))
		}},
		{"gfx942", "of 4 and 2 words", func(k *kernel.K, _ *kernel.Buf) { k.MMA(bf16, zero(k, 4), zero(k, 2), acc(k)) }},
		{"gfx942", "adds to 4 i32", func(k *kernel.K, _ *kernel.Buf) { k.MMA(bf16, zero(k, 2), zero(k, 2), zero(k, 4)) }},
		{"gfx942", "load of 32 bytes", func(k *kernel.K, b *kernel.Buf) { b.LoadVec(k.Int(0), 16) }},
		{"gfx942", "store of 12 bytes", func(k *kernel.K, b *kernel.Buf) { b.StoreVec(k.Int(0), zero(k, 3)) }},
		{"gfx942", "numbers 2 to 4 of a vector of 4", func(k *kernel.K, _ *kernel.Buf) { k.Part(zero(k, 4), 2, 3) }},
		{"gfx942", "join of 4 i32 and 2 i32", func(k *kernel.K, _ *kernel.Buf) { k.Join(zero(k, 4), zero(k, 2)) }},
		{"gfx942", "set to 2 i32", func(k *kernel.K, _ *kernel.Buf) { k.VecVar(zero(k, 4)).Set(zero(k, 2)) }},
		{"gfx942", "vector of i32 and f32", func(k *kernel.K, _ *kernel.Buf) { k.MakeVec(k.Int32(1), k.Float(1)) }},
		{"gfx942", "f8e4m3 to bf16", func(k *kernel.K, _ *kernel.Buf) { k.CodesToBF16(zero(k, 4), ir.F8E4M3) }},
		{"gfx942", "e2m1 to bf16 by halves", func(k *kernel.K, _ *kernel.Buf) { k.E2M1Apart(zero(k, 4), k.Float(1)) }},
		{"gfx942", "maximum of two bf16: not on gfx942", func(k *kernel.K, _ *kernel.Buf) { k.MaxBF16(k.Int32(1), k.Int32(2)) }},
		{"gfx942", "mask of two bf16: not on gfx942", func(k *kernel.K, _ *kernel.Buf) { k.AtLeastMaskBF16(k.Int32(1), k.Int32(2)) }},
	} {
		m := kernel.NewModule(mustTarget(t, tc.target))
		err := m.Build("bad", []kernel.Param{{Name: "x", Mem: ir.BF16}}, func(k *kernel.K, b []*kernel.Buf, _ []kernel.V) { tc.body(k, b[0]) })
		if err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: error %v, want %q", tc.target, err, tc.want)
		}
	}
}

// Blocks of lanes exchange vectors by DPP with masks of banks, and only within banks by
// a choice; nothing goes through LDS.
func TestTransposeLanesCode(t *testing.T) {
	_, c := compiler(t)
	for n, want := range map[int][]string{
		2: {"8 row_ror:8", "4 bank_mask:0x3", "4 bank_mask:0xc"},
		4: {"16 row_ror:8", "8 row_ror:4", "8 row_ror:12", "8 bank_mask:0x5", "8 bank_mask:0xa"},
		8: {"32 row_ror:8", "16 row_ror:4", "16 row_ror:12", "32 quad_perm:[2,3,0,1]"},
	} {
		tg := mustTarget(t, "gfx942")
		m := kernel.NewModule(tg)
		err := m.Build("turn", []kernel.Param{{Name: "a", Mem: ir.F32}, {Name: "d", Mem: ir.F32, Out: true}}, func(k *kernel.K, b []*kernel.Buf, _ []kernel.V) {
			place := func(i int) kernel.V { return k.Mul(k.Add(k.Lane(), k.Int(i*tg.Lanes)), k.Int(4)) }
			var xs []kernel.Vec
			for i := range n {
				xs = append(xs, b[0].LoadVec(place(i), 4))
			}
			for i, x := range k.TransposeLanes(xs) {
				b[1].StoreVec(place(i), x)
			}
		})
		if err != nil {
			t.Fatal(err)
		}
		r, err := c.Compile(t.Context(), llvm.Job{Name: "turn", IR: []byte(m.Text()), Triple: tg.Triple, CPU: tg.CPU, OptPasses: "default<O3>", Output: llvm.Asm})
		if err != nil {
			t.Fatal(err)
		}
		asm := string(r.Output)
		for _, w := range want {
			var least int
			var in string
			if _, err := fmt.Sscanf(w, "%d %s", &least, &in); err != nil {
				t.Fatal(err)
			}
			if got := strings.Count(asm, in+" "); got+strings.Count(asm, in+"\n") < least {
				t.Errorf("%d vectors: %d times %s, want %d in\n%s", n, got, in, least, asm)
			}
		}
		if strings.Contains(asm, "ds_") {
			t.Errorf("%d vectors: LDS in\n%s", n, asm)
		}
	}
}
