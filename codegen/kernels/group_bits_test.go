package kernels_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/kiln-project/kiln/codegen/kernel"
	"github.com/kiln-project/kiln/codegen/kernels"
	"github.com/kiln-project/kiln/codegen/target"
	"github.com/kiln-project/kiln/ir"
	"github.com/kiln-project/kiln/ir/eval"
)

// groupBits multiplies a[p,64,k] with b[p,64,k]^T, 16 k after the other, in four ways:
// by four warps together with A in registers, added to sums and not, and in shared
// memory, and by one warp.
var groupBits = &ir.OpDef{
	Name: "test.group_bits", Group: "test", Doc: "a b^T in four ways.",
	Operands: []ir.OperandDef{{Name: "a", Doc: "bf16 [P,64,K]"}, {Name: "b", Doc: "bf16 [P,64,K]"}},
	Results:  []string{"held", "begun", "shared", "warp"},
	Infer: func(o *ir.Op) ([]ir.Type, error) {
		p, _ := o.Args[0].Type.Dims[0].Const()
		t := ir.T(ir.F32, intDims([]int{p, groupBitsRows, groupBitsRows})...)
		return []ir.Type{t, t, t, t}, nil
	},
}

const groupBitsRows = 64

var groupBitsForm = &kernels.Form{
	Name: "test_group_bits", Op: "test.group_bits", Match: func(*ir.Op, *target.Target) string { return "" },
	Lower: func(l kernels.Lowering, o *ir.Op) error {
		p, _ := o.Args[0].Type.Dims[0].Const()
		depth, _ := o.Args[0].Type.Dims[2].Const()
		l.Launch(kernels.Launch{
			Name: "group_bits", Spec: fmt.Sprintf("k%d", depth), Grid: p, In: []kernels.Ref{l.Buf(o.Args[0]), l.Buf(o.Args[1])},
			Out:  []kernels.Ref{l.Buf(o.Results[0]), l.Buf(o.Results[1]), l.Buf(o.Results[2]), l.Buf(o.Results[3])},
			Body: func(k *kernel.K, b []*kernel.Buf, _ []kernel.V) { groupBitsBody(k, b, depth) },
		})
		return nil
	},
}

func groupBitsBody(k *kernel.K, b []*kernel.Buf, depth int) {
	const rows, rowBytes, eightRows, block = groupBitsRows, 128, 1024, 8192
	first := k.Mul(k.Group(), k.Int(rows*depth))
	pool := k.SharedPool(2 * block)
	lane := k.WaveLane()
	sub, column, warp := k.LShr(lane, k.Int(2)), k.And(lane, k.Int(3)), k.And(k.Wave(), k.Int(3))
	// A lane's words of a row: from its pair of k on, and from 8 behind it.
	words := func(buf *kernel.Buf, row kernel.V, step kernel.V) [2]kernel.V {
		at := k.Add(k.Add(first, k.Mul(row, k.Int(depth))), k.Add(k.Mul(step, k.Int(16)), k.Mul(column, k.Int(2))))
		return [2]kernel.V{k.At(buf.LoadVec(at, 2), 0), k.At(buf.LoadVec(k.Add(at, k.Int(8)), 2), 0)}
	}
	const eights = rows / 8
	var held, begun, shared, one []*kernel.VecVar
	for range eights {
		for _, list := range []*[]*kernel.VecVar{&held, &begun, &shared, &one} {
			*list = append(*list, k.VecVar(k.ZeroVec(kernel.F32, target.ResultRun)))
		}
	}
	mma := k.T.MMA()
	k.For(k.Int(0), k.Int(depth/16), 1, func(step kernel.V) {
		k.Barrier()
		for m := range 2 { // 64 rows of two pieces of 16 bytes
			k.If(k.Cmp(kernel.LT, k.Lane(), k.Int(2*rows)), func() {
				row, c := k.UDiv(k.Lane(), k.Int(2)), k.And(k.Lane(), k.Int(1))
				v := b[m].LoadVec(k.Add(k.Add(first, k.Mul(row, k.Int(depth))), k.Add(k.Mul(step, k.Int(16)), k.Mul(c, k.Int(8)))), 8)
				at := k.Add(k.Mul(row, k.Int(rowBytes)), k.Mul(k.Xor(c, k.And(row, k.Int(7))), k.Int(16)))
				pool.StoreVec(k.Add(at, k.Int(m*block)), v)
			})
		}
		k.FenceForMatrices()
		k.Barrier()
		row := k.Add(k.Mul(warp, k.Int(16)), sub)
		upper, lower := words(b[0], row, step), words(b[0], k.Add(row, k.Int(8)), step)
		a := k.MakeVec(upper[0], lower[0], upper[1], lower[1])
		values := func(list []*kernel.VecVar) []kernel.Vec {
			var out []kernel.Vec
			for _, v := range list {
				out = append(out, v.Get())
			}
			return out
		}
		ma, mb := pool.SharedMatrix(k.Int(0), eightRows), pool.SharedMatrix(k.Int(block), eightRows)
		for i, v := range k.WaitGroupMMA(0, k.AddGroupMMA(values(held), []kernel.Vec{a}, mb, []int{0}))[0] {
			held[i].Set(v)
		}
		// Sums that begin in the instruction are those of one step.
		for i, v := range k.WaitGroupMMA(0, k.StartHeldMMA(rows, []kernel.Vec{a}, mb, []int{0}))[0] {
			begun[i].Set(v)
		}
		for i, v := range k.WaitGroupMMA(0, k.StartGroupMMA(rows, kernel.GroupChain{A: ma, B: mb, Steps: [][2]int{{0, 0}}}))[0] {
			shared[i].Set(v)
		}
		for i, v := range one {
			w := words(b[1], k.Add(sub, k.Int(8*i)), step)
			v.Set(k.WarpMMA(mma, a, k.MakeVec(w[0], w[1]), v.Get()))
		}
	})
	k.If(k.Cmp(kernel.LT, k.Wave(), k.Int(4)), func() {
		for n, list := range [][]*kernel.VecVar{held, begun, shared, one} {
			for i, v := range list {
				for e := range target.ResultRun {
					row := k.Add(k.Add(k.Mul(warp, k.Int(16)), sub), k.Int(e/2*8))
					col := k.Add(k.Mul(column, k.Int(2)), k.Int(8*i+e%2))
					at := k.Add(k.Mul(k.Add(k.Mul(k.Group(), k.Int(rows)), row), k.Int(rows)), col)
					b[2+n].Store(at, k.At(v.Get(), e))
				}
			}
		}
	})
}

var registerGroupBits = sync.OnceValue(func() error {
	if err := ir.Register(groupBits); err != nil {
		return err
	}
	return kernels.Register(groupBitsForm)
})

// groupBitsKinds are operands that a sum of products might lose bits of: each makes
// element i of a row.
var groupBitsKinds = []struct {
	name string
	of   func(r *rand.Rand, row, i int) float64
}{
	{"normal", func(r *rand.Rand, _, _ int) float64 { return r.NormFloat64() }},
	{"wide", func(r *rand.Rand, _, _ int) float64 { return math.Ldexp(r.NormFloat64(), r.IntN(41)-20) }},
	{"far", func(r *rand.Rand, _, _ int) float64 { return math.Ldexp(r.NormFloat64(), r.IntN(121)-60) }},
	{"close", func(r *rand.Rand, _, _ int) float64 { return 1 + r.Float64() }},
	{"cancelling", func(r *rand.Rand, _, i int) float64 {
		x := math.Ldexp(1+float64(i/2%7)/8, 12-i%3)
		if i%2 == 1 {
			x = -x
		}
		return x + float64(r.IntN(3)-1)
	}},
	{"denormal", func(r *rand.Rand, row, _ int) float64 {
		if row%2 == 0 {
			return math.Ldexp(float64(r.IntN(255)-127), -133)
		}
		return math.Ldexp(r.NormFloat64(), r.IntN(9)-4)
	}},
	{"small", func(r *rand.Rand, _, _ int) float64 { return math.Ldexp(r.NormFloat64(), r.IntN(24)-75) }},
	{"zeros", func(r *rand.Rand, _, _ int) float64 {
		return []float64{0, math.Copysign(0, -1), 1, -1, 0x1p-60, -0x1p-60}[r.IntN(6)]
	}},
}

// TestGroupBits: sums of products of four warps together have the bits of those of one
// warp, which all forms of an op that use either need.
func TestGroupBits(t *testing.T) {
	if err := registerGroupBits(); err != nil {
		t.Fatal(err)
	}
	const rounds = 4
	for _, depth := range []int{16, 512} {
		t.Run(fmt.Sprint(depth), func(t *testing.T) {
			c := &cases{batch: newBatch(t), r: rand.New(rand.NewPCG(5, uint64(depth)))}
			n := rounds * len(groupBitsKinds)
			fill := func() *eval.Tensor {
				x := c.bf16(1, n, groupBitsRows, depth)
				for i := range x.F {
					p := i / (groupBitsRows * depth)
					v := groupBitsKinds[p/rounds].of(c.r, i/depth%groupBitsRows, i%depth)
					x.F[i] = math.Float32frombits(math.Float32bits(float32(v)) &^ 0xFFFF)
				}
				return x
			}
			c.batch.op("test.group_bits", nil, exact, fill(), fill())
			if recordOnly() {
				load(t, "sm_90a", c.graph())
				return
			}
			out := c.outputs("sm_90a")
			for p, kind := range groupBitsKinds {
				for i, name := range []string{"held", "begun", "shared"} {
					if name != "held" && depth > 16 {
						continue
					}
					have, want, different, first := out[fmt.Sprintf("y%d", i)], out["y3"], 0, ""
					const size = rounds * groupBitsRows * groupBitsRows
					for j := p * size; j < (p+1)*size; j++ {
						x, y := have.F[j], want.F[j]
						if math.Float32bits(x) != math.Float32bits(y) {
							if different++; different == 1 {
								first = fmt.Sprintf("%x, %x", x, y)
							}
						}
					}
					if different > 0 {
						t.Errorf("%s, A %s: %d of %d differ, the first: %s", kind.name, name, different, size, first)
					}
				}
			}
		})
	}
}
