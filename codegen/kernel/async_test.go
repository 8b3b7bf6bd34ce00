package kernel_test

import (
	"strings"
	"testing"

	"github.com/kiln-project/kiln/codegen/kernel"
	"github.com/kiln-project/kiln/codegen/llvm"
	"github.com/kiln-project/kiln/ir"
)

// Copies to a pool of shared memory and loads of matrices from it are what LLVM makes of
// their intrinsics, and the pool is no variable of the module's own.
func TestAsyncCode(t *testing.T) {
	_, c := compiler(t)
	tg := mustTarget(t, "sm_90")
	m := kernel.NewModule(tg)
	params := []kernel.Param{{Name: "in", Mem: ir.BF16}, {Name: "out", Mem: ir.I32, Out: true}}
	err := m.Build("k", params, func(k *kernel.K, b []*kernel.Buf, _ []kernel.V) {
		pool := k.SharedPool(64 << 10).As(ir.BF16)
		at := k.Mul(k.Lane(), k.Int(8))
		pool.CopyAsync(at, b[0], at)
		k.CommitCopies()
		k.WaitCopies(0)
		k.Barrier()
		for i, transposed := range []bool{false, true} {
			b[1].StoreVec(k.Add(k.Mul(k.Lane(), k.Int(8)), k.Int(4*i)), pool.LoadMatrices(at, transposed))
		}
		b[1].StoreBits(k.Add(k.Lane(), k.Int(2048)), k.WaveMaxUnsigned(b[0].LoadBits(at)))
	})
	if err != nil {
		t.Fatal(err)
	}
	if m.Pool("k") != 64<<10 || m.Pool("j") != 0 {
		t.Errorf("pools of %d and %d bytes", m.Pool("k"), m.Pool("j"))
	}
	r, err := c.Compile(t.Context(), llvm.Job{
		Name: "k", IR: []byte(m.Text()), Triple: tg.Triple, CPU: tg.CPU, Features: tg.Features, OptPasses: "default<O3>", Output: llvm.Asm,
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		".extern .shared .align 1024 .b8 k_pool[];", "cp.async.cg.shared.global", "cp.async.commit_group;", "cp.async.wait_group \t0;", "bar.sync",
		"ldmatrix.sync.aligned.m8n8.x4.shared.b16", "ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16", "redux.sync.max.u32",
	} {
		if !strings.Contains(string(r.Output), want) {
			t.Errorf("no %q in\n%s", want, r.Output)
		}
	}
}

// What a target lacks or a kernel may not do sticks as an error.
func TestAsyncMisuse(t *testing.T) {
	for _, tc := range []struct {
		chip, want string
		body       func(k *kernel.K, b *kernel.Buf)
	}{
		{"gfx942", "copy to shared memory: not on gfx942", func(k *kernel.K, b *kernel.Buf) { k.SharedPool(16).CopyAsync(k.Int(0), b, k.Int(0)) }},
		{"gfx942", "group of copies: not on gfx942", func(k *kernel.K, _ *kernel.Buf) { k.CommitCopies() }},
		{"gfx942", "wait for copies: not on gfx942", func(k *kernel.K, _ *kernel.Buf) { k.WaitCopies(1) }},
		{"gfx942", "maximum of a warp: not on gfx942", func(k *kernel.K, _ *kernel.Buf) { k.WaveMaxUnsigned(k.Int32(1)) }},
		{"gfx942", "load of matrices: not on gfx942", func(k *kernel.K, b *kernel.Buf) { b.LoadMatrices(k.Int(0), false) }},
		{"x86-64-v3", "pool of shared memory: not on x86-64-v3", func(k *kernel.K, _ *kernel.Buf) { k.SharedPool(16) }},
		{"sm_90", "a copy of address space 3 to 1", func(k *kernel.K, b *kernel.Buf) { b.CopyAsync(k.Int(0), k.SharedPool(16), k.Int(0)) }},
		{"sm_90", "load of matrices from address space 1", func(k *kernel.K, b *kernel.Buf) { b.LoadMatrices(k.Int(0), false) }},
		{"sm_90", "a pool of 16 bytes of shared memory, beside one of 32", func(k *kernel.K, _ *kernel.Buf) { k.SharedPool(32); k.SharedPool(16) }},
		{"sm_90", "maximum of f32 in a warp", func(k *kernel.K, _ *kernel.Buf) { k.WaveMaxUnsigned(k.Float(1)) }},
	} {
		m := kernel.NewModule(mustTarget(t, tc.chip))
		err := m.Build("k", []kernel.Param{{Name: "b", Mem: ir.U8}}, func(k *kernel.K, b []*kernel.Buf, _ []kernel.V) { tc.body(k, b[0]) })
		if err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: error %v, want %q", tc.chip, err, tc.want)
		}
	}
}
