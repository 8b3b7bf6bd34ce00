//go:build gpu

package kernels_test

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/kiln-project/kiln/codegen/kernel"
	"github.com/kiln-project/kiln/codegen/kernels"
	"github.com/kiln-project/kiln/codegen/target"
	"github.com/kiln-project/kiln/ir"
)

// rate is a launch of matrix products whose operands do not move, which tells what the
// instruction does at most on the whole GPU.
type rate struct {
	name   string
	groups int
	flops  int64 // of a group
	body   func(k *kernel.K, x, y *kernel.Buf)
}

const rateProcessors, rateWords = 132, 1 << 16

// rates are mma.sync, with sums as large as registers hold in one group on a processor or
// as two of them do, and the products of four warps together as mma_gemm_group.go has
// them, of so many columns.
func rates() []rate {
	var list []rate
	for _, s := range []struct{ rows, cols, resident int }{{4, 8, 1}, {2, 8, 2}} {
		const turns = 1024
		list = append(list, rate{
			fmt.Sprintf("mma_%dx%d", s.rows*target.MatrixTile, s.cols*target.MMACols), rateProcessors * s.resident,
			int64(8 * turns * s.rows * s.cols * 2 * 16 * 16 * 8), func(k *kernel.K, x, y *kernel.Buf) { rateWarp(k, x, y, s.rows, s.cols, turns) },
		})
	}
	for _, n := range []int{96, 128, 192, 256} {
		const turns, steps = 512, 4
		flops := int64(2 * turns * steps * 2 * 64 * n * 16)
		list = append(list, rate{fmt.Sprintf("wgmma_n%d", n), rateProcessors, flops, func(k *kernel.K, x, y *kernel.Buf) { rateHeld(k, x, y, n, steps, turns) }})
	}
	return list
}

// rateWord reads n words of x that differ from lane to lane.
func rateWord(k *kernel.K, x *kernel.Buf, i, n int) kernel.Vec {
	return x.LoadVec(k.Mul(k.Add(k.Lane(), k.Int(i*k.T.Lanes)), k.Int(8)), 2*n)
}

func rateStore(k *kernel.K, y *kernel.Buf, sums [][]*kernel.VecVar) {
	x := k.Float(0)
	for _, row := range sums {
		for _, v := range row {
			for e := range target.ResultRun {
				x = k.Add(x, k.At(v.Get(), e))
			}
		}
	}
	y.Store(k.Add(k.Mul(k.Group(), k.Int(k.T.Lanes)), k.Lane()), x)
}

func rateZeros(k *kernel.K, rows, cols int) [][]*kernel.VecVar {
	out := make([][]*kernel.VecVar, rows)
	for m := range out {
		for range cols {
			out[m] = append(out[m], k.VecVar(k.ZeroVec(kernel.F32, target.ResultRun)))
		}
	}
	return out
}

func rateWarp(k *kernel.K, x, y *kernel.Buf, rows, cols, turns int) {
	sums := rateZeros(k, rows, cols)
	var a, b []kernel.Vec
	for m := range rows {
		a = append(a, rateWord(k, x, m, 4))
	}
	for n := range cols {
		b = append(b, rateWord(k, x, 8+n, 2))
	}
	k.For(k.Int(0), k.Int(turns), 1, func(kernel.V) {
		for n := range cols {
			for m := range rows {
				sums[m][n].Set(k.WarpMMA(k.T.MMA(), a[m], b[n], sums[m][n].Get()))
			}
		}
	})
	rateStore(k, y, sums)
}

// ratePool fills shared memory with x.
func ratePool(k *kernel.K, x *kernel.Buf, bytes int) *kernel.Buf {
	pool := k.SharedPool(bytes)
	k.For(k.Int(0), k.Int(bytes/16), k.T.Lanes, func(i kernel.V) {
		at := k.Add(i, k.Lane())
		pool.StoreVec(k.Mul(at, k.Int(16)), x.LoadVec(k.Mul(at, k.Int(8)), 8))
	})
	k.FenceForMatrices()
	k.Barrier()
	return pool
}

func rateHeld(k *kernel.K, x, y *kernel.Buf, n, steps, turns int) {
	pool := ratePool(k, x, n*128)
	sums := rateZeros(k, 1, n/8)
	var a []kernel.Vec
	var at []int
	for i := range steps {
		a, at = append(a, rateWord(k, x, i, 4)), append(at, 32*i)
	}
	b := pool.SharedMatrix(k.Int(0), 1024)
	k.For(k.Int(0), k.Int(turns), 1, func(kernel.V) {
		var old []kernel.Vec
		for _, v := range sums[0] {
			old = append(old, v.Get())
		}
		for i, v := range k.WaitGroupMMA(0, k.AddGroupMMA(old, a, b, at))[0] {
			sums[0][i].Set(v)
		}
	})
	rateStore(k, y, sums)
}

var registerRates = sync.OnceValue(func() error {
	var err error
	for _, r := range rates() {
		op := "test.rate_" + r.name
		err = errors.Join(err, ir.Register(&ir.OpDef{
			Name: op, Group: "test", Doc: "Sums of products.", Operands: []ir.OperandDef{{Name: "x", Doc: "bf16 [N]"}}, Results: []string{"y"},
			Infer: func(*ir.Op) ([]ir.Type, error) { return []ir.Type{ir.T(ir.F32, ir.Int(r.groups*256))}, nil },
		}), kernels.Register(&kernels.Form{
			Name: "test_rate_" + r.name, Op: op, Match: func(*ir.Op, *target.Target) string { return "" },
			Lower: func(l kernels.Lowering, o *ir.Op) error {
				l.Launch(kernels.Launch{
					Name: "rate", Grid: r.groups, Spec: r.name, In: []kernels.Ref{l.Buf(o.Args[0])}, Out: []kernels.Ref{l.Buf(o.Results[0])},
					Body: func(k *kernel.K, b []*kernel.Buf, _ []kernel.V) { r.body(k, b[0], b[1]) },
				})
				return nil
			},
		}))
	}
	return err
})

// BenchmarkRates times the launches of rates, for sm_90a.
func BenchmarkRates(b *testing.B) {
	if err := registerRates(); err != nil {
		b.Fatal(err)
	}
	*rowsTarget = "sm_90a"
	for _, r := range rates() {
		row := perfRow{name: r.name, copies: 4, flops: int64(r.groups) * r.flops, add: func(g *perfGraph) {
			g.add("test.rate_"+r.name, nil, g.all("x", ir.BF16, rateWords))
		}}
		b.Run(r.name, func(b *testing.B) { row.time(b) })
	}
}

// BenchmarkGemm times each tile of many rows on its own, for the target that has it.
func BenchmarkGemm(b *testing.B) { eachGemm(b, perfRow.time) }

// BenchmarkGemmRegisters tells of their kernels what the driver made of them.
func BenchmarkGemmRegisters(b *testing.B) { eachGemm(b, perfRow.registers) }

func eachGemm(b *testing.B, do func(r perfRow, b *testing.B)) {
	old := *rowsTarget
	defer func() { *rowsTarget = old }()
	for i := range kernels.GemmTiles() {
		chip := kernels.GemmTarget(i)
		for _, r := range perfRows() {
			if !strings.HasPrefix(r.name, "gemm/") {
				continue
			}
			b.Run(fmt.Sprintf("%d/%s", i, r.name), func(b *testing.B) {
				defer kernels.UseGemm(i)()
				*rowsTarget = chip
				do(r, b)
			})
		}
	}
}
