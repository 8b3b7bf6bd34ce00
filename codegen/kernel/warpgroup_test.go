package kernel_test

import (
	"strings"
	"testing"

	"github.com/kiln-project/kiln/codegen/kernel"
	"github.com/kiln-project/kiln/codegen/llvm"
	"github.com/kiln-project/kiln/ir"
)

// groupProduct is a kernel whose two fours of warps each multiply two matrices in a pool.
func groupProduct(k *kernel.K, b *kernel.Buf) {
	pool := k.SharedPool(16 << 10)
	k.FenceForMatrices()
	k.Barrier()
	x, y := pool.SharedMatrix(k.Int(0), 1024), pool.SharedMatrix(k.Int(8<<10), 1024)
	steps := [][2]int{{0, 0}, {32, 32}}
	first, second := k.StartGroupMMA(8, kernel.GroupChain{A: x, B: y, Steps: steps}), k.StartGroupMMA(8, kernel.GroupChain{A: x, B: y, Across: true, Steps: steps})
	for i, sums := range []kernel.GroupSums{first, second} {
		b.StoreVec(k.Add(k.Mul(k.Lane(), k.Int(8)), k.Int(4*i)), k.WaitGroupMMA(1-i, sums)[0][0])
	}
}

// heldProduct is a kernel that adds products with A in registers to sums, some before
// others are done.
func heldProduct(k *kernel.K, b *kernel.Buf) {
	pool := k.SharedPool(16 << 10)
	k.FenceForMatrices()
	k.Barrier()
	y := pool.SharedMatrix(k.Int(0), 1024)
	at := k.Mul(k.Lane(), k.Int(8))
	first, second := b.LoadVec(at, 4), b.LoadVec(k.Add(at, k.Int(4096)), 4)
	sum := k.VecVar(k.ZeroVec(kernel.F32, 4))
	k.For(k.Int(0), k.Int(9), 1, func(kernel.V) {
		s := k.AddGroupMMA([]kernel.Vec{sum.Get()}, []kernel.Vec{first, second}, y, []int{0, 32})
		s = k.WaitEarlierMMA(k.AddMoreMMA(s, []kernel.Vec{second}, y, []int{64}))
		sum.Set(k.WaitGroupMMA(0, s)[0][0])
	})
	across := k.WaitGroupMMA(0, k.StartAcrossMMA(8, []kernel.Vec{first}, y, []int{0}))[0][0]
	b.StoreVec(at, sum.Get())
	b.StoreVec(k.Add(at, k.Int(4)), across)
}

// Sums go through registers without copies, which would read them before they are there.
func TestGroupCode(t *testing.T) {
	_, c := compiler(t)
	tg := mustTarget(t, "sm_90a")
	for name, tc := range map[string]struct {
		body func(k *kernel.K, b *kernel.Buf)
		want []string
	}{
		"memory":    {groupProduct, []string{"fence.proxy.async.shared::cta;", "a, b, set, 1, 1, 0, 0;", "a, b, add, 1, 1, 0, 1;"}},
		"registers": {heldProduct, []string{"}, b, add, 1, 1, 0;", "}, b, set, 1, 1, 1;"}},
	} {
		t.Run(name, func(t *testing.T) {
			m := kernel.NewModule(tg)
			if err := m.Build("k", []kernel.Param{{Name: "out", Mem: ir.F32, Out: true}}, func(k *kernel.K, b []*kernel.Buf, _ []kernel.V) { tc.body(k, b[0]) }); err != nil {
				t.Fatal(err)
			}
			r, err := c.Compile(t.Context(), llvm.Job{
				Name: "k", IR: []byte(m.Text()), Triple: tg.Triple, CPU: tg.CPU, Features: tg.Features, OptPasses: "default<O3>", Output: llvm.Asm,
			})
			if err != nil {
				t.Fatal(err)
			}
			text := string(r.Output)
			for _, want := range append(tc.want, ".target sm_90a", "wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16", "wgmma.wait_group.sync.aligned 1;", "wgmma.wait_group.sync.aligned 0;") {
				if !strings.Contains(text, want) {
					t.Errorf("no %q in\n%s", want, text)
				}
			}
			from, to := strings.Index(text, "wgmma.fence"), strings.LastIndex(text, "wgmma.wait_group")
			if from < 0 || strings.Contains(text[from:to], "mov.b32 \t%") {
				t.Errorf("sums are copied in\n%s", text)
			}
		})
	}
}

func TestGroupMisuse(t *testing.T) {
	for _, tc := range []struct {
		chip, want string
		body       func(k *kernel.K, b *kernel.Buf)
	}{
		{"sm_90", "fence for matrices: not on sm_90", func(k *kernel.K, _ *kernel.Buf) { k.FenceForMatrices() }},
		{"sm_90", "product of a warpgroup: not on sm_90", func(k *kernel.K, _ *kernel.Buf) { k.StartGroupMMA(8) }},
		{"sm_90", "product of a warpgroup: not on sm_90", func(k *kernel.K, _ *kernel.Buf) { k.AddGroupMMA(nil, nil, k.Int(0), nil) }},
		{"sm_90", "product of a warpgroup: not on sm_90", func(k *kernel.K, _ *kernel.Buf) { k.WaitEarlierMMA(kernel.GroupSums{}) }},
		{"gfx942", "product of a warpgroup: not on gfx942", func(k *kernel.K, _ *kernel.Buf) { k.WaitGroupMMA(0, kernel.GroupSums{}) }},
		{"sm_90a", "matrix of address space 1, 1024 bytes", func(k *kernel.K, b *kernel.Buf) { b.SharedMatrix(k.Int(0), 1024) }},
		{"sm_90a", "matrix of address space 3, 1000 bytes", func(k *kernel.K, _ *kernel.Buf) { k.SharedPool(1024).SharedMatrix(k.Int(0), 1000) }},
	} {
		m := kernel.NewModule(mustTarget(t, tc.chip))
		err := m.Build("k", []kernel.Param{{Name: "b", Mem: ir.U8}}, func(k *kernel.K, b []*kernel.Buf, _ []kernel.V) { tc.body(k, b[0]) })
		if err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: error %v, want %q", tc.chip, err, tc.want)
		}
	}
}
