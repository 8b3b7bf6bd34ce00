package warpsim

import (
	"strings"
	"testing"

	"github.com/kiln-project/kiln/codegen/kernel"
	"github.com/kiln-project/kiln/ir"
)

const (
	groupRows, groupCols, groupDepth = 64, 8, 16
	eightRows                        = 1024 // bytes
	groupPool                        = groupRows/8*eightRows + 2*eightRows
)

// groupOperands writes A[64,16] and B, of 16 rows of 8 or of 8 columns of 16, as words of
// two equal numbers, each a byte of its place, to a pool.
func groupOperands(k *kernel.K, pool *kernel.Buf) {
	words := pool.As(ir.I32)
	k.For(k.Int(0), k.Int(groupPool/4), k.T.Lanes, func(from kernel.V) {
		i := k.Add(from, k.Lane())
		x := k.Convert(k.And(i, k.Int(15)), kernel.F32)
		words.StoreBits(i, k.PackBF16(x, k.Sub(x, k.Float(4))))
	})
}

// groupElement is element e of a row of what groupOperands wrote from a byte on.
func groupElement(at, row, e int) float32 {
	word := (at + row/8*eightRows + row%8*128 + (e/8^row%8)*16 + e%8*2) / 4
	return float32(word%16 - 4*(e%2))
}

// Products of four warps, with both orders of B, over two steps that are one: A and B of
// the second follow 32 bytes on.
func TestGroupProduct(t *testing.T) {
	const lanes, atB = 256, groupRows / 8 * eightRows
	for _, across := range []bool{false, true} {
		got, err := launchOn(t, "sm_90a", groupPool, nil, lanes*4, func(k *kernel.K, b []*kernel.Buf) {
			s := k.SharedPool(groupPool)
			groupOperands(k, s)
			k.FenceForMatrices()
			k.Barrier()
			steps := [][2]int{{0, 0}, {32, 32}}
			if across {
				steps[1][1] = 0
			}
			c := kernel.GroupChain{A: s.SharedMatrix(k.Int(0), eightRows), B: s.SharedMatrix(k.Int(atB), eightRows), Across: across, Steps: steps}
			b[0].StoreVec(k.Mul(k.Lane(), k.Int(4)), k.WaitGroupMMA(0, k.StartGroupMMA(groupCols, c))[0][0])
		})
		if err != nil {
			t.Fatal(err)
		}
		for lane := range lanes {
			for e := range 4 {
				row, col := lane/Warp%4*16+lane%Warp/4+e/2*8, lane%4*2+e%2
				var want float32
				for step := range 2 {
					for i := range groupDepth {
						b := groupElement(atB, col, 16*step+i)
						if across {
							b = groupElement(atB, i, col)
						}
						want += groupElement(0, row, 16*step+i) * b
					}
				}
				if have := got[4*lane+e]; have != want {
					t.Fatalf("across %v: row %d, column %d: %v, want %v", across, row, col, have, want)
				}
			}
		}
	}
}

// Products whose A is in registers, added to sums, the second step before the first was
// waited for.
func TestGroupProductHeld(t *testing.T) {
	const lanes, atB = 256, 0
	a := func(row, k int) float32 { return float32((row*3+k)%8 - 3) }
	got, err := launchOn(t, "sm_90a", groupPool, nil, lanes*4, func(k *kernel.K, b []*kernel.Buf) {
		s := k.SharedPool(groupPool)
		groupOperands(k, s)
		k.FenceForMatrices()
		k.Barrier()
		row := k.Add(k.Mul(k.And(k.Wave(), k.Int(3)), k.Int(16)), k.LShr(k.WaveLane(), k.Int(2)))
		word := func(row, col kernel.V) kernel.V {
			of := func(c kernel.V) kernel.V {
				i := k.And(k.Add(k.Mul(row, k.Int(3)), c), k.Int(7))
				return k.Sub(k.Convert(i, kernel.F32), k.Float(3))
			}
			return k.PackBF16(of(col), of(k.Add(col, k.Int(1))))
		}
		held := func(step int) kernel.Vec {
			col := k.Add(k.Mul(k.And(k.WaveLane(), k.Int(3)), k.Int(2)), k.Int(16*step))
			lower, right := k.Add(row, k.Int(8)), k.Add(col, k.Int(8))
			return k.MakeVec(word(row, col), word(lower, col), word(row, right), word(lower, right))
		}
		sums := k.MakeVec(k.Float(1), k.Float(2), k.Float(3), k.Float(4))
		m := s.SharedMatrix(k.Int(atB), eightRows)
		started := k.AddMoreMMA(k.AddGroupMMA([]kernel.Vec{sums}, []kernel.Vec{held(0)}, m, []int{0}), []kernel.Vec{held(1)}, m, []int{32})
		b[0].StoreVec(k.Mul(k.Lane(), k.Int(4)), k.WaitGroupMMA(0, k.WaitEarlierMMA(started))[0][0])
	})
	if err != nil {
		t.Fatal(err)
	}
	for lane := range lanes {
		for e := range 4 {
			row, col := lane/Warp%4*16+lane%Warp/4+e/2*8, lane%4*2+e%2
			want := float32(1 + e)
			for i := range 2 * groupDepth {
				want += a(row, i) * groupElement(atB, col, i)
			}
			if have := got[4*lane+e]; have != want {
				t.Fatalf("row %d, column %d: %v, want %v", row, col, have, want)
			}
		}
	}
}

// What a product reads must have been fenced by its writers, before a barrier, and stay.
func TestGroupRefused(t *testing.T) {
	for _, tc := range []struct {
		want string
		body func(k *kernel.K, s *kernel.Buf, start func() kernel.GroupSums)
	}{
		{"a matrix product reads what lane 0 wrote and has not fenced", func(k *kernel.K, _ *kernel.Buf, start func() kernel.GroupSums) {
			k.Barrier()
			start()
		}},
		{"touches what lane 0 wrote, with no barrier between", func(k *kernel.K, _ *kernel.Buf, start func() kernel.GroupSums) {
			k.FenceForMatrices()
			start()
		}},
		{"wrote what a matrix product under way reads", func(k *kernel.K, s *kernel.Buf, start func() kernel.GroupSums) {
			k.FenceForMatrices()
			k.Barrier()
			sums := start()
			k.Barrier()
			s.As(ir.I32).StoreBits(k.Lane(), k.Int32(0))
			k.WaitGroupMMA(0, sums)
		}},
		{"lanes have different descriptors", func(k *kernel.K, s *kernel.Buf, _ func() kernel.GroupSums) {
			k.FenceForMatrices()
			k.Barrier()
			m := s.SharedMatrix(k.Mul(k.Lane(), k.Int(16)), eightRows)
			k.StartGroupMMA(groupCols, kernel.GroupChain{A: m, B: m, Steps: [][2]int{{0, 0}}})
		}},
		{"wgmma.fence.sync.aligned: lanes 0x1 of the warp are there", func(k *kernel.K, _ *kernel.Buf, start func() kernel.GroupSums) {
			k.FenceForMatrices()
			k.Barrier()
			k.First(func() { start() })
		}},
	} {
		_, err := launchOn(t, "sm_90a", groupPool, nil, 1, func(k *kernel.K, _ []*kernel.Buf) {
			s := k.SharedPool(groupPool)
			groupOperands(k, s)
			m := s.SharedMatrix(k.Int(0), eightRows)
			tc.body(k, s, func() kernel.GroupSums {
				return k.StartGroupMMA(groupCols, kernel.GroupChain{A: m, B: m, Steps: [][2]int{{0, 0}}})
			})
		})
		if err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("error %v, want %q", err, tc.want)
		}
	}
}
