package warpsim

import (
	"math"
	"strings"
	"testing"

	"github.com/kiln-project/kiln/codegen/kernel"
	"github.com/kiln-project/kiln/ir"
)

// A pipeline of copies brings what memory has: each round a group of them, two under
// way while a third is read.
func TestCopies(t *testing.T) {
	const rounds, lanes, four = 5, 256, 4
	in := make([]float32, rounds*lanes*four)
	for i := range in {
		in[i] = float32(i)
	}
	got, err := launch(t, [][]float32{in}, len(in), func(k *kernel.K, b []*kernel.Buf) {
		s := k.SharedPool(pool).As(ir.F32)
		half := k.Shared(ir.F32, 2*lanes*four)
		stage := func(i int) (*kernel.Buf, kernel.V) {
			if i%3 == 0 {
				return s, k.Int(0)
			}
			return half, k.Int((i%3 - 1) * lanes * four)
		}
		at := k.Mul(k.Lane(), k.Int(four))
		start := func(i int) {
			if i < rounds {
				to, from := stage(i)
				to.CopyAsync(k.Add(from, at), b[0], k.Add(at, k.Int(i*lanes*four)))
			}
			k.CommitCopies()
		}
		start(0)
		start(1)
		for i := range rounds {
			k.WaitCopies(1)
			k.Barrier()
			start(i + 2)
			from, base := stage(i)
			other := k.Xor(at, k.Int(four*37))
			b[1].StoreVec(k.Add(other, k.Int(i*lanes*four)), from.LoadVec(k.Add(base, other), four))
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	for i := range in {
		if got[i] != in[i] {
			t.Fatalf("element %d is %v, want %v", i, got[i], in[i])
		}
	}
}

// Lanes get the elements of matrices that the PTX ISA says, and the largest of a warp.
func TestLoadMatrices(t *testing.T) {
	const lanes = 256
	got, err := launch(t, nil, lanes*9, func(k *kernel.K, b []*kernel.Buf) {
		s := k.SharedPool(pool)
		words := s.As(ir.I32)
		for i := range 4 { // element e of row r is the number 8 r + e, of all rows of four matrices
			e := k.Convert(k.Add(k.Mul(k.Lane(), k.Int(8)), k.Int(2*i)), kernel.I32)
			words.StoreBits(k.Add(k.Mul(k.Lane(), k.Int(4)), k.Int(i)), k.Or(e, k.Shl(k.Add(e, k.Int32(1)), k.Int32(16))))
		}
		k.Barrier()
		at := k.Mul(k.Lane(), k.Int(16))
		for i, transposed := range []bool{false, true} {
			x := s.LoadMatrices(at, transposed)
			for j := range 4 {
				b[0].Store(k.Add(k.Mul(k.Lane(), k.Int(9)), k.Int(4*i+j)), k.Bits(k.At(x, j)))
			}
		}
		b[0].Store(k.Add(k.Mul(k.Lane(), k.Int(9)), k.Int(8)), k.Bits(k.WaveMaxUnsigned(k.Xor(k.Convert(k.Lane(), kernel.I32), k.Int32(-0x80000000)))))
	})
	if err != nil {
		t.Fatal(err)
	}
	bits := fromF32(got)
	for lane := range lanes {
		first, l := lane/Warp*Warp*8, lane%Warp
		for i := range 4 {
			row, col := l/4, l%4*2
			at := first + 64*i
			for j, want := range []int{at + 8*row + col, at + 8*col + row} {
				next := want + []int{1, 8}[j]
				if have := bits[9*lane+4*j+i]; have != uint32(want|next<<16) {
					t.Fatalf("lane %d, matrix %d, transposed %v: %#x, want %#x", lane, i, j == 1, have, want|next<<16)
				}
			}
		}
		if have, want := bits[9*lane+8], uint32(lane|(Warp-1))|1<<31; have != want {
			t.Fatalf("lane %d: the largest is %#x, want %#x", lane, have, want)
		}
	}
}

// What a copy brings may not be touched before it was waited for, and by another lane not
// before a barrier after that.
func TestCopiesRefused(t *testing.T) {
	for _, tc := range []struct {
		want string
		body func(k *kernel.K, b []*kernel.Buf, s *kernel.Buf, at kernel.V)
	}{
		{"copies and has not waited for", func(k *kernel.K, b []*kernel.Buf, s *kernel.Buf, at kernel.V) {
			k.CommitCopies()
			b[1].StoreVec(at, s.LoadVec(at, 4))
		}},
		{"copies and has not waited for", func(k *kernel.K, b []*kernel.Buf, s *kernel.Buf, at kernel.V) {
			k.CommitCopies()
			k.WaitCopies(1)
			k.Barrier()
			b[1].StoreVec(at, s.LoadVec(at, 4))
		}},
		{"copies and has not waited for", func(k *kernel.K, b []*kernel.Buf, s *kernel.Buf, at kernel.V) {
			k.WaitCopies(0) // of no group
			b[1].StoreVec(at, s.LoadVec(at, 4))
		}},
		{"lane 0 touches what lane 1 wrote, with no barrier between", func(k *kernel.K, b []*kernel.Buf, s *kernel.Buf, at kernel.V) {
			k.CommitCopies()
			k.WaitCopies(0)
			b[1].StoreVec(at, s.LoadVec(k.Xor(at, k.Int(4)), 4))
		}},
		{"copies and has not waited for", func(k *kernel.K, _ []*kernel.Buf, s *kernel.Buf, at kernel.V) {
			s.StoreVec(at, k.ZeroVec(kernel.I32, 4))
		}},
		{"copies and has not waited for", func(k *kernel.K, b []*kernel.Buf, s *kernel.Buf, at kernel.V) {
			s.CopyAsync(at, b[0], at)
		}},
		{"writes what another lane read, with no barrier between", func(k *kernel.K, b []*kernel.Buf, s *kernel.Buf, at kernel.V) {
			k.CommitCopies()
			k.WaitCopies(0)
			k.Barrier()
			b[1].StoreVec(at, s.LoadVec(k.Xor(at, k.Int(4)), 4))
			s.CopyAsync(at, b[0], at)
		}},
		{"16 bytes at 0x4, which is no multiple", func(k *kernel.K, b []*kernel.Buf, s *kernel.Buf, at kernel.V) {
			k.Shared(ir.F32, 256*4).CopyAsync(k.Add(at, k.Int(1)), b[0], at)
		}},
		{"are outside of the arguments (write: false)", func(k *kernel.K, b []*kernel.Buf, _ *kernel.Buf, at kernel.V) {
			k.Shared(ir.F32, 256*4).CopyAsync(at, b[0], k.Add(at, k.Int(4)))
		}},
		{"lane 1: 16 bytes at 4096 of 4096 bytes of shared memory that the launch gives", func(k *kernel.K, b []*kernel.Buf, s *kernel.Buf, at kernel.V) {
			k.CommitCopies()
			k.WaitCopies(0)
			k.Barrier()
			s.LoadMatrices(k.Select(k.Cmp(kernel.EQ, k.Lane(), k.Int(1)), k.Int(1024), k.Int(0)), false)
		}},
		{"load of matrices: lanes 0x1 of the warp are there", func(k *kernel.K, b []*kernel.Buf, s *kernel.Buf, at kernel.V) {
			k.First(func() { s.LoadMatrices(at, false) })
		}},
		{"maximum: lanes 0x1 of the warp are there", func(k *kernel.K, b []*kernel.Buf, s *kernel.Buf, at kernel.V) {
			k.First(func() { k.WaveMaxUnsigned(k.Int32(1)) })
		}},
	} {
		_, err := launch(t, [][]float32{make([]float32, 256*4)}, 256*4, func(k *kernel.K, b []*kernel.Buf) {
			s, at := k.SharedPool(pool).As(ir.F32), k.Mul(k.Lane(), k.Int(4))
			s.CopyAsync(at, b[0], at)
			tc.body(k, b, s, at)
		})
		if err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("error %v, want %q", err, tc.want)
		}
	}
}

// A launch gives shared memory to a kernel that has a pool, and to no other.
func TestPool(t *testing.T) {
	_, err := launch(t, nil, 1, func(k *kernel.K, b []*kernel.Buf) {
		s := k.SharedPool(pool + 4).As(ir.F32)
		s.Store(k.Add(k.Lane(), k.Int(pool/4-255)), k.Float(1))
	})
	if err == nil || !strings.Contains(err.Error(), "lane 255: 4 bytes at 4096 of 4096 bytes of shared memory that the launch gives") {
		t.Errorf("error %v", err)
	}
}

func fromF32(x []float32) []uint32 {
	out := make([]uint32, len(x))
	for i, v := range x {
		out[i] = math.Float32bits(v)
	}
	return out
}
