package emu

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// masks are values of EXEC for tests.
var masks = []uint64{fullMask, 1, 1 << 63, 0x5555555555555555, 0x00ff00000000ff01, 0}

// randomBytes are n bytes of a fixed sequence.
func randomBytes(seed uint64, n int) []byte {
	r := rand.New(rand.NewPCG(seed, 7))
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	return b
}

// setAddress puts 64-bit addresses into v[r:r+1].
func setAddress(w *wave, r int, address func(lane int) uint64) {
	for i := range Lanes {
		x := address(i)
		w.v[r][i], w.v[r+1][i] = uint32(x), uint32(x>>32)
	}
}

// laneOrders are addresses of lanes: contiguous, strided, scattered (and unaligned),
// all the same.
var laneOrders = map[string]func(lane, size int) int{
	"contiguous": func(lane, size int) int { return 64 + lane*size },
	"strided":    func(lane, size int) int { return lane * 2 * size },
	"scattered":  func(lane, size int) int { return lane*37%64*29 + 3 },
	"same":       func(lane, size int) int { return 1000 },
}

// loadCases have what a load of a lane's bytes gives, by the words of the result.
var loadCases = []struct {
	name string
	size int
	want func(b []byte) []uint32
}{
	{"ubyte", 1, func(b []byte) []uint32 { return []uint32{uint32(b[0])} }},
	{"sbyte", 1, func(b []byte) []uint32 { return []uint32{uint32(int32(int8(b[0])))} }},
	{"ushort", 2, func(b []byte) []uint32 { return []uint32{uint32(b[0]) + 256*uint32(b[1])} }},
	{"sshort", 2, func(b []byte) []uint32 { return []uint32{uint32(int32(int16(uint16(b[0]) + 256*uint16(b[1]))))} }},
	{"dword", 4, func(b []byte) []uint32 { return []uint32{le.Uint32(b)} }},
	{"dwordx2", 8, func(b []byte) []uint32 { return []uint32{le.Uint32(b), le.Uint32(b[4:])} }},
	{"dwordx3", 12, func(b []byte) []uint32 { return []uint32{le.Uint32(b), le.Uint32(b[4:]), le.Uint32(b[8:])} }},
	{"dwordx4", 16, func(b []byte) []uint32 {
		return []uint32{le.Uint32(b), le.Uint32(b[4:]), le.Uint32(b[8:]), le.Uint32(b[12:])}
	}},
	{"ubyte_d16", 1, func(b []byte) []uint32 { return []uint32{uint32(b[0])} }},
	{"ubyte_d16_hi", 1, func(b []byte) []uint32 { return []uint32{uint32(b[0]) << 16} }},
	{"sbyte_d16", 1, func(b []byte) []uint32 { return []uint32{uint32(int32(int8(b[0]))) & 0xffff} }},
	{"sbyte_d16_hi", 1, func(b []byte) []uint32 { return []uint32{uint32(int32(int8(b[0]))) << 16} }},
	{"short_d16", 2, func(b []byte) []uint32 { return []uint32{uint32(le.Uint16(b))} }},
	{"short_d16_hi", 2, func(b []byte) []uint32 { return []uint32{uint32(le.Uint16(b)) << 16} }},
}

// registers names n registers from r as an operand.
func registers(kind string, r, n int) string {
	if n == 1 {
		return fmt.Sprintf("%s%d", kind, r)
	}
	return fmt.Sprintf("%s[%d:%d]", kind, r, r+n-1)
}

// memoryForm is a way to address the same bytes.
type memoryForm struct {
	name, prefix string
	lds          bool
	// address, operands and modifiers of a load (and of a store, around the data).
	before, after string
	init          func(w *wave, base uint64, at func(lane int) int)
}

var memoryForms = []memoryForm{
	{"global", "global_", false, "v[2:3]", ", off", func(w *wave, base uint64, at func(int) int) {
		setAddress(w, 2, func(i int) uint64 { return base + uint64(at(i)) })
	}},
	{"global offset", "global_", false, "v[2:3]", ", off offset:-128 nt", func(w *wave, base uint64, at func(int) int) {
		setAddress(w, 2, func(i int) uint64 { return base + uint64(at(i)) + 128 })
	}},
	{"global coherent", "global_", false, "v[2:3]", ", off sc0 sc1", func(w *wave, base uint64, at func(int) int) {
		setAddress(w, 2, func(i int) uint64 { return base + uint64(at(i)) })
	}},
	{"global saddr", "global_", false, "v2", ", s[4:5] offset:16", func(w *wave, base uint64, at func(int) int) {
		w.setS64(4, base-20)
		for i := range Lanes {
			w.v[2][i] = uint32(at(i) + 4)
		}
	}},
	{"flat", "flat_", false, "v[2:3]", "", func(w *wave, base uint64, at func(int) int) {
		setAddress(w, 2, func(i int) uint64 { return base + uint64(at(i)) })
	}},
	{"flat LDS", "flat_", true, "v[2:3]", " offset:8", func(w *wave, base uint64, at func(int) int) {
		setAddress(w, 2, func(i int) uint64 { return sharedBase + uint64(at(i)) - 8 })
	}},
}

// TestLoads runs every load in every form, with every order of addresses and EXEC,
// against bytes picked here; the destination overwrites the address.
func TestLoads(t *testing.T) {
	for _, form := range memoryForms {
		for _, c := range loadCases {
			words := len(c.want(make([]byte, 16)))
			k := snippet(t, "gfx942", form.prefix+"load_"+c.name+" "+registers("v", 2, words)+", "+form.before+form.after)
			for order, at := range laneOrders {
				for _, exec := range masks {
					checkLoad(t, fmt.Sprintf("%s %s %s exec %x", form.name, c.name, order, exec), k, 2, exec, words,
						func(w *wave, base uint64) { form.init(w, base, func(i int) int { return at(i, c.size) }) },
						form.lds, func(b []byte, i int) []uint32 { return c.want(b[at(i, c.size):]) })
				}
			}
		}
	}
}

func checkLoad(t *testing.T, what string, k *Kernel, d int, exec uint64, words int, init func(w *wave, base uint64), lds bool, want func(b []byte, lane int) []uint32) {
	t.Helper()
	b := randomBytes(1, 4096)
	var before [4]Vec
	w := runWave(t, k, func(w *wave) {
		if lds {
			copy(w.group.lds, b)
			init(w, 0)
		} else {
			init(w, mapped(t, w, b, "data"))
		}
		copy(before[:], w.v[d:])
		w.setExec(exec)
	})
	for i := range Lanes {
		for j := range words {
			x := before[j][i]
			if exec>>i&1 != 0 {
				x = want(b, i)[j]
			}
			if w.v[d+j][i] != x {
				t.Fatalf("%s: lane %d word %d: %#x, want %#x", what, i, j, w.v[d+j][i], x)
			}
		}
	}
}

func TestLDSLoads(t *testing.T) {
	names := map[string]string{
		"u8": "ubyte", "i8": "sbyte", "u16": "ushort", "i16": "sshort", "b32": "dword", "b64": "dwordx2", "b96": "dwordx3", "b128": "dwordx4",
		"u8_d16": "ubyte_d16", "u8_d16_hi": "ubyte_d16_hi", "i8_d16": "sbyte_d16", "i8_d16_hi": "sbyte_d16_hi", "u16_d16": "short_d16", "u16_d16_hi": "short_d16_hi",
	}
	for ds, name := range names {
		for _, c := range loadCases {
			if c.name != name {
				continue
			}
			words := len(c.want(make([]byte, 16)))
			k := snippet(t, "gfx942", "ds_read_"+ds+" "+registers("v", 4, words)+", v4 offset:24")
			for order, at := range laneOrders {
				for _, exec := range masks {
					checkLoad(t, fmt.Sprintf("%s %s exec %x", ds, order, exec), k, 4, exec, words, func(w *wave, _ uint64) {
						for i := range Lanes {
							w.v[4][i] = uint32(at(i, c.size) - 24)
						}
					}, true, func(b []byte, i int) []uint32 { return c.want(b[at(i, c.size):]) })
				}
			}
		}
	}
}

func TestLDSPairs(t *testing.T) {
	for _, c := range []struct {
		op           string
		size, stride int
	}{{"2_b32", 4, 4}, {"2_b64", 8, 8}, {"2st64_b32", 4, 256}, {"2st64_b64", 8, 512}} {
		words := c.size / 4
		read := snippet(t, "gfx942", fmt.Sprintf("ds_read%s %s, v4 offset0:3 offset1:1", c.op, registers("v", 4, 2*words)))
		write := snippet(t, "gfx942", fmt.Sprintf("ds_write%s v4, %s, %s offset0:3 offset1:1", c.op, registers("v", 6, words), registers("v", 10, words)))
		for _, exec := range masks {
			checkLoad(t, c.op, read, 4, exec, 2*words, func(w *wave, _ uint64) {
				for i := range Lanes {
					w.v[4][i] = uint32(i * c.size)
				}
			}, true, func(b []byte, i int) []uint32 {
				var out []uint32
				for _, o := range []int{3 * c.stride, c.stride} {
					for j := range words {
						out = append(out, le.Uint32(b[i*c.size+o+4*j:]))
					}
				}
				return out
			})
			b := randomBytes(2, 4096)
			want := append([]byte(nil), b...)
			for i := range Lanes {
				for j := range words {
					if exec>>i&1 != 0 {
						le.PutUint32(want[i*c.size+3*c.stride+4*j:], uint32(1000+100*j+i))
					}
				}
			}
			for i := range Lanes {
				for j := range words {
					if exec>>i&1 != 0 {
						le.PutUint32(want[i*c.size+c.stride+4*j:], uint32(2000+100*j+i))
					}
				}
			}
			w := runWave(t, write, func(w *wave) {
				copy(w.group.lds, b)
				for i := range Lanes {
					w.v[4][i] = uint32(i * c.size)
					for j := range words {
						w.v[6+j][i], w.v[10+j][i] = uint32(1000+100*j+i), uint32(2000+100*j+i)
					}
				}
				w.setExec(exec)
			})
			if d := cmp.Diff(want, w.group.lds[:4096]); d != "" {
				t.Errorf("ds_write%s exec %x: %s", c.op, exec, d)
			}
		}
	}
}

// storeCases have the bytes that a store of a lane's words leaves.
var storeCases = []struct {
	name, ds string
	words    int
	want     func(v []uint32) []byte
}{
	{"byte", "b8", 1, func(v []uint32) []byte { return []byte{byte(v[0])} }},
	{"short", "b16", 1, func(v []uint32) []byte { return []byte{byte(v[0]), byte(v[0] >> 8)} }},
	{"byte_d16_hi", "b8_d16_hi", 1, func(v []uint32) []byte { return []byte{byte(v[0] >> 16)} }},
	{"short_d16_hi", "b16_d16_hi", 1, func(v []uint32) []byte { return []byte{byte(v[0] >> 16), byte(v[0] >> 24)} }},
	{"dword", "b32", 1, wordsToBytes}, {"dwordx2", "b64", 2, wordsToBytes}, {"dwordx3", "b96", 3, wordsToBytes}, {"dwordx4", "b128", 4, wordsToBytes},
}

func wordsToBytes(v []uint32) []byte {
	var b []byte
	for _, x := range v {
		b = le.AppendUint32(b, x)
	}
	return b
}

func TestStores(t *testing.T) {
	ds := memoryForm{"ds", "ds_write_", true, "v2", " offset:8", func(w *wave, base uint64, at func(int) int) {
		for i := range Lanes {
			w.v[2][i] = uint32(at(i) - 8)
		}
	}}
	for _, form := range append(memoryForms, ds) {
		for _, c := range storeCases {
			op := form.prefix + "store_" + c.name
			if form.prefix == ds.prefix {
				op = form.prefix + c.ds
			}
			for _, kind := range []string{"v", "a"} {
				k := snippet(t, "gfx942", op+" "+form.before+", "+registers(kind, 6, c.words)+form.after)
				at := map[string]int{"v": 6, "a": agprs + 6}[kind]
				for order, lane := range laneOrders {
					for _, exec := range masks {
						checkStore(t, fmt.Sprintf("%s %s %s %s exec %x", form.name, c.name, kind, order, exec), k, form, c.want, c.words, at, exec, lane)
					}
				}
			}
		}
	}
}

func checkStore(t *testing.T, what string, k *Kernel, form memoryForm, bytes func([]uint32) []byte, words, at int, exec uint64, lane func(int, int) int) {
	t.Helper()
	b := randomBytes(3, 4096)
	want := append([]byte(nil), b...)
	size := len(bytes(make([]uint32, 4)[:words]))
	got := b
	w := runWave(t, k, func(w *wave) {
		base := uint64(0)
		if form.lds {
			copy(w.group.lds, b)
		} else {
			base = mapped(t, w, b, "data")
		}
		r := rand.New(rand.NewPCG(9, 9))
		for i := range Lanes {
			v := make([]uint32, words)
			for j := range v {
				v[j] = r.Uint32()
				w.v[at+j][i] = v[j]
			}
			if exec>>i&1 != 0 {
				copy(want[lane(i, size):], bytes(v))
			}
		}
		form.init(w, base, func(i int) int { return lane(i, size) })
		w.setExec(exec)
	})
	if form.lds {
		got = w.group.lds[:len(b)]
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Fatalf("%s: %s", what, d)
	}
}

func TestLoadsIntoAccumulators(t *testing.T) {
	k := snippet(t, "gfx942", "global_load_dwordx2 a[2:3], v2, s[0:1]", "ds_read_b32 a4, v2")
	b := randomBytes(4, 512)
	w := runWave(t, k, func(w *wave) {
		w.setS64(0, mapped(t, w, b, "data"))
		copy(w.group.lds, b)
		for i := range Lanes {
			w.v[2][i] = uint32(8 * i)
		}
	})
	for i := range Lanes {
		got := []uint32{w.v[agprs+2][i], w.v[agprs+3][i], w.v[agprs+4][i]}
		want := []uint32{le.Uint32(b[8*i:]), le.Uint32(b[8*i+4:]), le.Uint32(b[8*i:])}
		if d := cmp.Diff(want, got); d != "" {
			t.Fatalf("lane %d: %s", i, d)
		}
	}
}

// TestBlocks has lanes in several blocks of memory and windows at once.
func TestBlocks(t *testing.T) {
	blocks := [][]byte{randomBytes(5, 64), randomBytes(6, 300), randomBytes(7, 64)}
	k := snippet(t, "gfx942", "flat_load_dword v4, v[2:3]", "flat_store_short v[2:3], v6 offset:4")
	for _, exec := range masks {
		var want [Lanes]uint32
		where := func(i int) (int, int) { return i * 7 % 5, i % 4 * 12 } // block, offset; an own one per lane of i < 20
		w := runWave(t, k, func(w *wave) {
			w.group.private = 64
			w.scratch = randomBytes(8, 64*Lanes)
			copy(w.group.lds, randomBytes(9, 64))
			var base [5]uint64
			for j, b := range blocks {
				base[j] = mapped(t, w, b, fmt.Sprint("block ", j))
			}
			base[3], base[4] = sharedBase, privateBase
			setAddress(w, 2, func(i int) uint64 {
				j, o := where(i)
				b := [][]byte{blocks[0], blocks[1], blocks[2], w.group.lds, w.scratch[64*i:]}[j]
				want[i] = le.Uint32(b[o:])
				w.v[6][i] = uint32(0x7700 + j*4 + i%4)
				return base[j] + uint64(o)
			})
			w.setExec(exec)
		})
		for i := range Lanes {
			if exec>>i&1 == 0 {
				continue
			}
			j, o := where(i)
			if w.v[4][i] != want[i] {
				t.Errorf("exec %x lane %d: loads %#x, want %#x", exec, i, w.v[4][i], want[i])
			}
			b := [][]byte{blocks[0], blocks[1], blocks[2], w.group.lds, w.scratch[64*i:]}[j]
			if got, want := le.Uint16(b[o+4:]), uint16(0x7700+j*4+i%4); got != want {
				t.Errorf("exec %x lane %d: memory is %#x after the store, want %#x", exec, i, got, want)
			}
		}
	}
}

func TestBadAccesses(t *testing.T) {
	for _, c := range []struct {
		line string
		lane int
		at   int64 // of lane; others are at 0
		want []string
	}{
		{"global_load_dword v4, v2, s[0:1]", 5, 256, []string{"lane 5 accesses 4 bytes", "0 bytes after the end of data (256 bytes)"}},
		{"global_load_dword v4, v2, s[0:1]", 5, 253, []string{"lane 5 accesses 4 bytes at data+253", "across its end"}},
		{"global_load_dwordx4 v[4:7], v2, s[0:1]", 63, 244, []string{"lane 63 accesses 16 bytes at data+244", "across its end"}},
		{"global_load_dword v4, v2, s[0:1] offset:-4", 0, 0, []string{"lane 0 accesses 4 bytes", "4 bytes before data"}},
		{"global_store_dword v2, v4, s[0:1]", 9, 1000, []string{"lane 9 accesses 4 bytes", "744 bytes after the end of data"}},
		{"global_store_dword v2, v4, s[2:3]", 9, 0, []string{"lane 0 writes 4 bytes", "constants+0, which is only to be read"}},
		{"global_load_dword v4, v2, s[8:9]", 9, 0, []string{"outside of all memory"}},
		{"ds_read_b32 v4, v2", 7, 65533, []string{"lane 7 accesses 4 bytes at offset 65533 of LDS, of which the work-group has 65536 bytes"}},
		{"ds_write_b64 v2, v[4:5] offset:8", 7, -4, []string{"lane 7 accesses 8 bytes at offset 4", "LDS"}},
		{"ds_write2_b32 v2, v4, v5 offset1:255", 7, 65000, []string{"lane 7 accesses 4 bytes at offset 66020 of LDS"}},
		{"scratch_load_dword v4, v2, off", 7, 64, []string{"lane 7 accesses 4 bytes at offset 64 of scratch memory, of which a work-item has 64 bytes"}},
		{"scratch_store_dwordx2 off, v[4:5], s10 offset:4", 7, 0, []string{"lane 0 accesses 8 bytes at offset 60 of scratch memory"}},
	} {
		k := snippet(t, "gfx942", c.line)
		far := make([]byte, 1<<20) // so that the blocks are not neighbours
		b, constants := far[1<<18:][:256], far[1<<19:][:256]
		_, err := tryWave(k, func(w *wave) {
			w.setS64(0, mapped(t, w, b, "data"))
			w.setS64(2, Address(constants))
			r := regionOf(constants, "constants")
			r.readOnly = true
			rs, err := w.group.regions.with(r)
			if err != nil {
				t.Fatal(err)
			}
			w.group.regions = rs
			w.group.private, w.scratch = 64, make([]byte, 64*Lanes)
			w.s[10] = 56
			w.v[2][c.lane] = uint32(c.at)
		})
		if c.line == "ds_write_b64 v2, v[4:5] offset:8" { // the sum has 32 bits: -4 + 8 is 4
			if err != nil {
				t.Errorf("%s: %v", c.line, err)
			}
			continue
		}
		if err == nil {
			t.Errorf("%s: no error", c.line)
			continue
		}
		for _, want := range append(c.want, "+0x0: "+c.line) {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%s: error %v, want one with %q", c.line, err, want)
			}
		}
	}
}

func TestMemoryIsRefused(t *testing.T) {
	for _, c := range []struct{ chip, line, want string }{
		{"gfx942", "global_load_lds_dwordx4 v[2:3], off", "has no instruction"},
		{"gfx942", "global_load_dword v1, v2, off", "1 registers, not 2"},
		{"gfx942", "global_load_dword v1, a[2:3], off", "no accumulation register"},
		{"gfx942", "global_load_dword v1, v[2:3], off lds", "modifier lds is not supported"},
		{"gfx942", "global_load_dwordx4 v[0:2], v[2:3], off", "3 registers, not 4"},
		{"gfx942", "ds_read_b32 v1, v2 gds", "modifier gds is not supported"},
		{"gfx942", "ds_read_b32 v1, v2 sc0", "modifier sc0 is not supported"},
		{"gfx942", "ds_swizzle_b32 v1, v2 offset:swizzle(SWAP,3)", "is not known"},
		{"gfx942", "ds_swizzle_b32 v1, v2 offset:swizzle(SPIN,3)", "is not known"},
		{"gfx942", `ds_swizzle_b32 v1, v2 offset:swizzle(BITMASK_PERM,"01p")`, "is not five"},
		{"gfx942", "flat_load_dword v1, v[2:3], off", "3 operands, 2 are understood"},
	} {
		_, err := trySnippet(c.chip, c.line)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v, want one with %q", c.line, err, c.want)
		}
	}
}
