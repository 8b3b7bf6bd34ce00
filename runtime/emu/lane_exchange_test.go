package emu

import (
	"testing"
)

// TestBpermute reads lane 3*i+1 by an address and an offset that add up to it.
func TestBpermute(t *testing.T) {
	k := snippet(t, "gfx942", "ds_bpermute_b32 v1, v1, v2 offset:4")
	for _, exec := range masks {
		w := runWave(t, k, func(w *wave) {
			for i := range Lanes {
				w.v[1][i] = uint32(12*i + i%4) // low bits do not count
				w.v[2][i] = uint32(100 + i)
			}
			w.setExec(exec)
		})
		for i := range Lanes {
			from := (3*i + 1) % Lanes
			want := uint32(12*i + i%4)
			switch {
			case exec>>i&1 == 0:
			case exec>>from&1 == 0:
				want = 0
			default:
				want = uint32(100 + from)
			}
			if w.v[1][i] != want {
				t.Fatalf("exec %x lane %d: %d, want %d", exec, i, w.v[1][i], want)
			}
		}
	}
}

// TestPermute writes to lane i/2: the odd lane of a pair wins, lanes from 32 get 0.
func TestPermute(t *testing.T) {
	k := snippet(t, "gfx942", "ds_permute_b32 v1, v1, v2")
	w := runWave(t, k, func(w *wave) {
		for i := range Lanes {
			w.v[1][i] = uint32(4 * (i / 2))
			w.v[2][i] = uint32(100 + i)
		}
	})
	for i := range Lanes {
		want := uint32(0)
		if i < 32 {
			want = uint32(100 + 2*i + 1)
		}
		if w.v[1][i] != want {
			t.Fatalf("lane %d: %d, want %d", i, w.v[1][i], want)
		}
	}
	// Of lanes 0 and 1 only lane 0 is on, and gets what it wrote.
	w = runWave(t, k, func(w *wave) {
		for i := range Lanes {
			w.v[1][i], w.v[2][i] = 4, uint32(100+i)
		}
		w.setExec(1 | 1<<1 | 1<<40)
	})
	for i, want := range map[int]uint32{0: 0, 1: 140, 40: 0, 41: 4} {
		if w.v[1][i] != want {
			t.Errorf("lane %d: %d, want %d", i, w.v[1][i], want)
		}
	}
}

func TestSwizzle(t *testing.T) {
	for _, c := range []struct {
		offset string
		from   func(i int) int // within 32 lanes
	}{
		{"swizzle(QUAD_PERM,3,0,2,2)", func(i int) int { return i/4*4 + []int{3, 0, 2, 2}[i%4] }},
		{"swizzle(SWAP,1)", func(i int) int { return i ^ 1 }},
		{"swizzle(SWAP,16)", func(i int) int { return (i + 16) % 32 }},
		{"swizzle(REVERSE,32)", func(i int) int { return 31 - i }},
		{"swizzle(REVERSE,4)", func(i int) int { return i/4*4 + 3 - i%4 }},
		{"swizzle(BROADCAST,8,5)", func(i int) int { return i/8*8 + 5 }},
		{"swizzle(BROADCAST,32,7)", func(i int) int { return 7 }},
		{`swizzle(BITMASK_PERM,"10i0p")`, func(i int) int { return 16 + (i&4 ^ 4) + i&1 }},
		{"swizzle(ROTATE,0,3)", func(i int) int { return (i + 3) % 32 }},
		{"swizzle(ROTATE,1,3)", func(i int) int { return (i + 29) % 32 }},
		{"swizzle(FFT,31)", func(i int) int { return i }},
		{"swizzle(FFT,0)", func(i int) int { return i&1<<4 | i&2<<2 | i&4 | i&8>>2 | i&16>>4 }},
		{"swizzle(FFT,16)", func(i int) int { return i&16 | i&1<<3 | i&2<<1 | i&4>>1 | i&8>>3 }},
		{"0", func(i int) int { return 0 }},
		{"31", func(i int) int { return i }},
		{"0x8000", func(i int) int { return i / 4 * 4 }},
	} {
		k := snippet(t, "gfx942", "ds_swizzle_b32 v1, v1 offset:"+c.offset)
		for _, exec := range masks {
			w := runWave(t, k, func(w *wave) {
				for i := range Lanes {
					w.v[1][i] = uint32(100 + i)
				}
				w.setExec(exec)
			})
			for i := range Lanes {
				from := i/32*32 + c.from(i%32)
				want := uint32(100 + from)
				switch {
				case exec>>i&1 == 0:
					want = uint32(100 + i)
				case exec>>from&1 == 0:
					want = 0
				}
				if w.v[1][i] != want {
					t.Fatalf("%s exec %x lane %d: %d, want %d", c.offset, exec, i, w.v[1][i], want)
				}
			}
		}
	}
}
