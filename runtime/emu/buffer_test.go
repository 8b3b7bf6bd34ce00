package emu

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// bufferBytes is num_records of the buffer of these tests: not a multiple of a word.
const bufferBytes = 254

// setBuffer describes the first bytes of a larger block in s[4:7]: what lies beyond
// the buffer is memory that it does not reach.
func setBuffer(w *wave, base uint64) {
	w.s[4], w.s[5], w.s[6], w.s[7] = uint32(base), uint32(base>>32), bufferBytes, 0x27000
}

// bufferOffsets are lanes inside, across the end word by word, and far outside.
func bufferOffset(lane, size int) uint32 {
	switch {
	case lane < 40:
		return uint32(lane * 5)
	case lane < 60:
		return uint32(bufferBytes - 2*size + lane - 40)
	}
	return 0x8000_0000 + uint32(lane)
}

func TestBufferLoads(t *testing.T) {
	mem := randomBytes(21, 4096)
	for _, c := range loadCases {
		words := len(c.want(make([]byte, 16)))
		for _, f := range []struct {
			operands string
			add      int // to the vector offset
			offen    bool
		}{
			{"v2, s[4:7], 0 offen", 0, true},
			{"v2, s[4:7], s3 offen offset:16 sc0 nt", 48, true},
			{"off, s[4:7], s3 offset:16", 48, false},
			{"off, s[4:7], 0 offset:252", 252, false},
		} {
			k := snippet(t, "gfx942", "buffer_load_"+c.name+" "+registers("v", 2, words)+", "+f.operands)
			for _, exec := range masks {
				w := runWave(t, k, func(w *wave) {
					setBuffer(w, mapped(t, w, mem, "data"))
					w.s[3] = 32
					for i := range Lanes {
						w.v[2][i] = bufferOffset(i, c.size) - uint32(f.add)
						if f.offen && w.v[2][i] > 0xffff0000 {
							w.v[2][i] = 0
						}
						for j := 1; j < words; j++ {
							w.v[2+j][i] = 0xdead
						}
					}
					w.setExec(exec)
				})
				for i := range Lanes {
					if exec>>i&1 == 0 {
						continue
					}
					at := f.add
					if f.offen {
						x := int(bufferOffset(i, c.size)) - f.add
						at = max(x, 0) + f.add
					}
					for j := range words {
						// A word counts if all of it is inside.
						n := min(4, c.size)
						want := uint32(0)
						if at+4*j+n <= bufferBytes {
							want = c.want(mem[at:])[j]
						}
						if got := w.v[2+j][i]; got != want {
							t.Fatalf("buffer_load_%s %s exec %x: lane %d at %d word %d: %#x, want %#x", c.name, f.operands, exec, i, at, j, got, want)
						}
					}
				}
			}
		}
	}
}

func TestBufferStores(t *testing.T) {
	for _, c := range storeCases {
		k := snippet(t, "gfx942", "buffer_store_"+c.name+" "+registers("v", 6, c.words)+", v2, s[4:7], 0 offen")
		for _, exec := range masks {
			mem := randomBytes(22, 4096)
			want := append([]byte(nil), mem...)
			runWave(t, k, func(w *wave) {
				setBuffer(w, mapped(t, w, mem, "data"))
				for i := range Lanes {
					v := make([]uint32, c.words)
					for j := range v {
						v[j] = uint32(0x01020304*(i+1) + j)
						w.v[6+j][i] = v[j]
					}
					b := c.want(v)
					w.v[2][i] = bufferOffset(i, len(b))
				}
				w.setExec(exec)
			})
			// Word by word, lane by lane within a word: the lanes overlap at the end.
			size := len(c.want(make([]uint32, 4)[:c.words]))
			whole := exec != 0
			for i := range Lanes {
				if exec>>i&1 != 0 && int(bufferOffset(i, size))+size > bufferBytes {
					whole = false
				}
			}
			store := func(i, from, n int) {
				v := make([]uint32, c.words)
				for j := range v {
					v[j] = uint32(0x01020304*(i+1) + j)
				}
				at := int(bufferOffset(i, size)) + from
				if exec>>i&1 != 0 && at+n <= bufferBytes {
					copy(want[at:at+n], c.want(v)[from:])
				}
			}
			n := min(4, size)
			if whole {
				n = size
			}
			for from := 0; from < size; from += n {
				for i := range Lanes {
					store(i, from, n)
				}
			}
			if d := cmp.Diff(want, mem); d != "" {
				t.Fatalf("buffer_store_%s exec %x: %s", c.name, exec, d)
			}
		}
	}
}

func TestBufferAtomicOutOfRange(t *testing.T) {
	k := snippet(t, "gfx942", "buffer_atomic_add_x2 v[4:5], v2, s[4:7], 0 offen sc0")
	words := make([]uint64, 64)
	w := runWave(t, k, func(w *wave) {
		setBuffer(w, mapped(t, w, asBytes(words), "data"))
		for i := range Lanes {
			w.v[2][i], w.v[4][i], w.v[5][i] = uint32(8*i), 7, 1
		}
	})
	for i := range Lanes {
		want := uint64(0)
		if 8*i+8 <= bufferBytes {
			want = 1<<32 + 7
		}
		if words[i] != want || w.v[4][i] != 0 || w.v[5][i] != 0 {
			t.Errorf("lane %d: memory is %#x, want %#x; the result is %#x %#x, want 0", i, words[i], want, w.v[4][i], w.v[5][i])
		}
	}
}

func TestBadBuffers(t *testing.T) {
	mem := make([]byte, 4096)
	for _, c := range []struct {
		line string
		set  func(w *wave)
		want string
	}{
		{"buffer_load_dword v4, v2, s[4:7], 0 offen", func(w *wave) { w.s[5] |= 4 << 16 }, "a stride"},
		{"buffer_load_dword v4, v2, s[4:7], 0 offen", func(w *wave) { w.s[5] |= 1 << 31 }, "not supported"},
		{"buffer_store_dword v4, v2, s[4:7], 0 offen", func(w *wave) { w.s[7] |= 1 << 23 }, "the lane's number"},
		{"buffer_store_dword v4, off, s[4:7], 0 offset:8", func(w *wave) { w.s[4] += 4092; w.s[6] = 1 << 30 }, "outside of all memory"},
		{"s_buffer_load_dword s8, s[4:7], 0x0", func(w *wave) { w.s[5] |= 4 << 16 }, "a stride"},
	} {
		_, err := tryWave(snippet(t, "gfx942", c.line), func(w *wave) {
			setBuffer(w, mapped(t, w, mem, "data"))
			c.set(w)
		})
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v, want one with %q", c.line, err, c.want)
		}
	}
	for _, c := range []struct{ chip, line, want string }{
		{"gfx942", "buffer_load_dword v4, v2, s[4:7], 0 idxen", "does not go with the modifiers"},
		{"gfx942", "buffer_load_dword v4, v[2:3], s[4:7], 0 idxen offen", "2 registers, not 1"},
		{"gfx942", "buffer_load_dword v4, off, s[4:7], 0 idxen", "modifier idxen is not supported"},
		{"gfx942", "buffer_load_dword v4, off, s[4:7], 0 offen", "does not go with the modifiers"},
		{"gfx942", "buffer_load_dwordx4 v2, s[4:7], 0 offen lds", "to LDS is not supported for gfx942"},
		{"gfx950", "buffer_load_dwordx2 v2, s[4:7], 0 offen lds", "to LDS is not supported"},
		{"gfx950", "buffer_load_ubyte v2, s[4:7], 0 offen lds", "to LDS is not supported"},
		{"gfx942", "buffer_load_format_x v4, off, s[4:7], 0", "unknown instruction"},
		{"gfx942", "buffer_load_dword v4, off, s[4:6], 0", "is not 4 scalar registers"},
	} {
		if _, err := trySnippet(c.chip, c.line); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v, want one with %q", c.line, err, c.want)
		}
	}
}

// TestLoadsToLDS: global memory and buffers, with the offset counted on both sides.
func TestLoadsToLDS(t *testing.T) {
	mem := randomBytes(23, 8192)
	for name, size := range map[string]int{"dword": 4, "dwordx3": 12, "dwordx4": 16} {
		for _, line := range []string{
			"global_load_lds_" + name + " v[2:3], off offset:16 sc1", "global_load_lds_" + name + " v8, s[0:1] offset:16",
			"buffer_load_" + name + " v8, s[4:7], 0 offen offset:16 lds",
		} {
			k := snippet(t, "gfx950", line)
			buffer := strings.HasPrefix(line, "buffer_")
			for _, exec := range masks {
				at := func(i int) int { return (63 - i) * 20 }
				w := runWave(t, k, func(w *wave) {
					base := mapped(t, w, mem, "data")
					w.setS64(0, base)
					setBuffer(w, base)
					setAddress(w, 2, func(i int) uint64 { return base + uint64(at(i)) })
					for i := range Lanes {
						w.v[8][i] = uint32(at(i))
					}
					for i := range w.group.lds {
						w.group.lds[i] = 0xee
					}
					w.s[regM0] = 256
					w.setExec(exec)
				})
				want := make([]byte, len(w.group.lds))
				for i := range want {
					want[i] = 0xee
				}
				for i := range Lanes {
					if exec>>i&1 == 0 {
						continue
					}
					for j := 0; j < size; j += 4 {
						to := want[256+16+i*size+j:][:4]
						clear(to)
						if from := at(i) + 16 + j; !buffer || from+4 <= bufferBytes {
							copy(to, mem[from:])
						}
					}
				}
				if d := cmp.Diff(want, w.group.lds); d != "" {
					t.Fatalf("%s exec %x: %s", line, exec, d)
				}
			}
		}
	}
	k := snippet(t, "gfx942", "global_load_lds_dword v8, s[0:1]")
	_, err := tryWave(k, func(w *wave) {
		w.setS64(0, mapped(t, w, mem, "data"))
		w.s[regM0] = 1 << 16
	})
	if err == nil || !strings.Contains(err.Error(), "of LDS") {
		t.Errorf("error %v, want one about LDS", err)
	}
}

func TestScalarLoads(t *testing.T) {
	mem := randomBytes(24, 512)
	for _, c := range []struct {
		line string
		d, n int
		at   int // negative: zeros from there
	}{
		{"s_load_dword s10, s[0:1], 0x10", 10, 1, 116},
		{"s_load_dword s10, s[0:1], -0x10 glc", 10, 1, 84},
		{"s_load_dword s10, s[0:1], s3", 10, 1, 132},
		{"s_load_dwordx2 s[10:11], s[0:1], s3 offset:0x13", 10, 2, 148}, // 151, in words
		{"s_load_dwordx2 s[0:1], s[0:1], 0x0", 0, 2, 100},
		{"s_load_dwordx16 s[16:31], s[0:1], 0x20", 16, 16, 132},
		{"s_buffer_load_dwordx4 s[20:23], s[4:7], 0x20", 20, 4, 32},
		{"s_buffer_load_dwordx2 s[4:5], s[4:7], s3", 4, 2, 32},
	} {
		w := runWave(t, snippet(t, "gfx942", c.line), func(w *wave) {
			base := mapped(t, w, mem, "data")
			w.setS64(0, base+100)
			setBuffer(w, base)
			w.s[3] = 32
		})
		for j := range c.n {
			if got, want := w.s[c.d+j], le.Uint32(mem[c.at+4*j:]); got != want {
				t.Errorf("%s: word %d is %#x, want %#x", c.line, j, got, want)
			}
		}
	}
	w := runWave(t, snippet(t, "gfx942", "s_buffer_load_dwordx4 s[20:23], s[4:7], 0xf4"), func(w *wave) { setBuffer(w, mapped(t, w, mem, "data")) })
	want := []uint32{le.Uint32(mem[244:]), le.Uint32(mem[248:]), 0, 0}
	if d := cmp.Diff(want, w.s[20:24]); d != "" {
		t.Errorf("words beyond the end: %s", d)
	}
}

// TestTransposedLoads fills a matrix of 16 columns for each 16 lanes and looks for its
// columns in the lanes.
func TestTransposedLoads(t *testing.T) {
	for _, c := range []struct {
		op         string
		bits, size int
	}{{"ds_read_b64_tr_b16", 16, 8}, {"ds_read_b64_tr_b8", 8, 8}, {"ds_read_b64_tr_b4", 4, 8}, {"ds_read_b96_tr_b6", 6, 12}} {
		rows := 8 * c.size / c.bits
		k := snippet(t, "gfx950", fmt.Sprintf("%s %s, v1 offset:32", c.op, registers("v", 2, c.size/4)))
		element := func(matrix, row, column int) uint32 {
			return uint32(matrix*7919+row*131+column*17) & (1<<c.bits - 1)
		}
		// Rows lie apart, in reverse order.
		rowAt := func(matrix, row int) int { return (matrix*16 + 15 - row) * 64 }
		lanesOfRow := 16 / (8 * c.size / c.bits)
		w := runWave(t, k, func(w *wave) {
			for m := range 4 {
				for r := range rows {
					for col := range 16 {
						for b := range c.bits {
							if element(m, r, col)>>b&1 != 0 {
								bit := col*c.bits + b
								w.group.lds[rowAt(m, r)+bit/8] |= 1 << (bit % 8)
							}
						}
					}
				}
			}
			for i := range Lanes {
				row, part := i%16/lanesOfRow, i%16%lanesOfRow
				w.v[1][i] = uint32(rowAt(i/16, row) + part*c.size - 32)
			}
		})
		for i := range Lanes {
			for r := range rows {
				got := uint32(0)
				for b := range c.bits {
					bit := r*c.bits + b
					got |= w.v[2+bit/32][i] >> (bit % 32) & 1 << b
				}
				if want := element(i/16, r, i%16); got != want {
					t.Fatalf("%s: lane %d element %d is %#x, want %#x", c.op, i, r, got, want)
				}
			}
		}
		if _, err := tryWave(k, func(w *wave) { w.setExec(1) }); err == nil || !strings.Contains(err.Error(), "needs all lanes") {
			t.Errorf("%s: error %v, want one about EXEC", c.op, err)
		}
		if _, err := tryWave(k, func(w *wave) { w.v[1][3] = 2 }); err == nil || !strings.Contains(err.Error(), "not aligned") {
			t.Errorf("%s: error %v, want one about the alignment", c.op, err)
		}
	}
	if _, err := trySnippet("gfx942", "ds_read_b64_tr_b16 v[2:3], v1"); err == nil {
		t.Error("gfx942 has transposing loads")
	}
}

func TestScratch(t *testing.T) {
	k := snippet(t, "gfx942",
		"scratch_store_dwordx2 off, v[4:5], s32 offset:4", // at 12
		"scratch_store_short v2, v6, off offset:32",       // at 32 + 2*(lane%4)
		"scratch_load_dword v7, off, s32 offset:8",
		"scratch_load_ushort v8, v2, s33", // at 32 + 2*(lane%4)
		"scratch_load_dword v9, off, off offset:12",
	)
	w := runWave(t, k, func(w *wave) {
		w.group.private, w.scratch = 48, make([]byte, 48*Lanes)
		w.s[32], w.s[33] = 8, 32
		for i := range Lanes {
			w.v[2][i], w.v[4][i], w.v[5][i], w.v[6][i] = uint32(i%4*2), uint32(1000+i), uint32(2000+i), uint32(0x13000+i)
		}
	})
	for i := range Lanes {
		got := []uint32{w.v[7][i], w.v[8][i], w.v[9][i]}
		if d := cmp.Diff([]uint32{uint32(2000 + i), uint32(0x3000 + i), uint32(1000 + i)}, got); d != "" {
			t.Fatalf("lane %d: %s", i, d)
		}
	}
}
