package emu

import (
	"encoding/binary"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unsafe"

	"github.com/google/go-cmp/cmp"

	"github.com/kiln-project/kiln/codegen/llvm"
)

// compiled compiles a file of testdata and loads the code object.
func compiled(t testing.TB, chip, file string) *Program {
	t.Helper()
	tools, err := llvm.Find(t.Context(), llvm.FindOptions{})
	if err != nil {
		t.Skipf("no LLVM (run make toolchain): %v", err)
	}
	obj, linked := filepath.Join(t.TempDir(), "a.o"), filepath.Join(t.TempDir(), "a.hsaco")
	for _, c := range [][]string{
		{tools.LLC, "-mtriple=amdgcn-amd-amdhsa", "-mcpu=" + chip, "-O2", "-filetype=obj", filepath.Join("testdata", file), "-o", obj},
		{tools.LLD, "-shared", obj, "-o", linked},
	} {
		if out, err := exec.CommandContext(t.Context(), c[0], c[1:]...).CombinedOutput(); err != nil {
			t.Fatalf("%s: %v\n%s", strings.Join(c, " "), err, out)
		}
	}
	code, err := os.ReadFile(linked)
	if err != nil {
		t.Fatal(err)
	}
	p, err := Load(t.Context(), tools.ObjDump, code)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// buffers are blocks of memory of a launch.
type buffers struct {
	space Space
	bytes [][]byte
}

// add maps n bytes and returns the argument that points to them.
func (b *buffers) add(t testing.TB, data []byte) Argument {
	t.Helper()
	words := make([]uint64, (len(data)+7)/8) // aligned, as an allocator would
	block := asBytes(words)[:len(data)]
	copy(block, data)
	if err := b.space.Map(block, "buffer"); err != nil {
		t.Fatal(err)
	}
	b.bytes = append(b.bytes, block)
	return Argument{Data: le.AppendUint64(nil, Address(block))}
}

func asBytes(words []uint64) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(words))), 8*len(words))
}

func u32s(b []byte) []uint32 {
	v := make([]uint32, len(b)/4)
	if _, err := binary.Decode(b, le, v); err != nil {
		panic(err) // the lengths agree
	}
	return v
}

// launch runs a kernel of the program with arguments.
func launch(t testing.TB, p *Program, kernel string, l Launch, args ...Argument) {
	t.Helper()
	k, err := p.Kernel(kernel)
	if err != nil {
		t.Fatal(err)
	}
	if l.Kernarg, err = k.Segment(l, args...); err != nil {
		t.Fatal(err)
	}
	if _, err := k.Run(t.Context(), l); err != nil {
		t.Fatal(err)
	}
}

func word(x uint32) Argument { return Argument{Data: le.AppendUint32(nil, x)} }

// TestCompiledMemory runs the kernels of memory.ll and computes what they should.
func TestCompiledMemory(t *testing.T) {
	for _, chip := range Chips {
		t.Run(chip, func(t *testing.T) {
			p := compiled(t, chip, "memory.ll")
			one := func(groups int) Launch { return Launch{Grid: [3]int{groups, 1, 1}, Block: [3]int{Lanes, 1, 1}} }
			perLane := func(f func(t uint32) uint32) []uint32 {
				var v []uint32
				for i := range uint32(Lanes) {
					v = append(v, f(i))
				}
				return v
			}
			run := func(kernel string, l Launch, out int, args ...Argument) []uint32 {
				t.Helper()
				var b buffers
				l.Memory = &b.space
				launch(t, p, kernel, l, append([]Argument{b.add(t, make([]byte, out))}, args...)...)
				return u32s(b.bytes[0])
			}
			check := func(what string, got, want []uint32) {
				t.Helper()
				if d := cmp.Diff(want, got); d != "" {
					t.Errorf("%s: -want +got:\n%s", what, d)
				}
			}

			check("private", run("private", one(1), 256), perLane(func(t uint32) uint32 {
				return 100*t + (7+48-t%48)%48 // the j that meets index 7
			}))
			check("calls", run("calls", one(1), 256), perLane(func(t uint32) uint32 { return 10*t + t + 10*(t+1) }))
			for launches := range uint32(2) {
				check("lookup", run("lookup", one(1), 260), append(perLane(func(t uint32) uint32 {
					return [2][4]uint32{{2, 3, 5, 7}, {0, 1, 4, 9}}[t%2][t/2%4]
				}), 1000+64*(launches+1)))
			}
			// All work-groups of these two store the same: that is a race.
			check("hidden", run("hidden", Launch{Grid: [3]int{2, 3, 4}, Block: [3]int{8, 2, 4}, LDS: 640, Workers: 1}, 40, word(77)),
				[]uint32{2, 3, 4, 8, 2, 4, 0, 0, 3, 77})
			packet := run("packet", Launch{Grid: [3]int{3, 2, 1}, Block: [3]int{32, 2, 1}, LDS: 64, Workers: 1}, 64)
			check("packet", packet[:8], []uint32{2 | 3<<16, 32 | 2<<16, 1, 96, 4, 1, 0, 64})
			for _, preloaded := range []bool{false, true} {
				l := one(3)
				l.Preloaded = preloaded
				line := perLane(func(t uint32) uint32 { return 3*t + 1000 })
				check("preload", run("preload", l, 3*256, word(3), word(1000)), slices.Repeat(line, 3))
			}
			windows := run("windows", one(1), 512)
			for i := range uint32(Lanes) {
				// A lane of global memory has its own result added to before it is stored there.
				if got := windows[2*i]; got != 5*i+3 {
					t.Errorf("windows: lane %d has %d, want %d", i, got, 5*i+3)
				}
			}
			atomics := run("atomics", Launch{Grid: [3]int{8, 1, 1}, Block: [3]int{Lanes, 1, 1}, Workers: 4}, 40)
			check("atomics", atomics, []uint32{0x43ff8000, 0, 511, 0, 0, 0x407ff000, 511, 0, (600 - 512) % 100, 0})
			checkNarrow(t, p)
			checkSpills(t, p)
		})
	}
}

func checkNarrow(t *testing.T, p *Program) {
	t.Helper()
	in := randomBytes(11, 300)
	var b buffers
	l := Launch{Grid: [3]int{1, 1, 1}, Block: [3]int{Lanes, 1, 1}, Memory: &b.space}
	launch(t, p, "narrow", l, b.add(t, in), b.add(t, make([]byte, 4096)))
	want := make([]byte, 4096)
	for i := range Lanes {
		x := []uint32{uint32(int32(int8(in[i]))), uint32(in[i+1]), uint32(int32(int16(le.Uint16(in[2*i+1:])))), le.Uint32(in[4*i+3:])}
		copy(want[16*i:], wordsToBytes(x))
		want[1024+i] = byte(x[3])
		le.PutUint16(want[2048+2*i:], uint16(x[3]>>16))
		copy(want[3072+12*i:], wordsToBytes([]uint32{x[0], x[2], x[3]}))
	}
	if d := cmp.Diff(want, b.bytes[1]); d != "" {
		t.Errorf("narrow: %s", d)
	}
}

func checkSpills(t *testing.T, p *Program) {
	t.Helper()
	k, err := p.Kernel("spills")
	if err != nil {
		t.Fatal(err)
	}
	if n := k.Meta.VGPRSpills; n == nil || *n == 0 {
		t.Error("kernel spills does not spill")
	}
	in := randomBytes(12, 4*40*Lanes)
	var b buffers
	l := Launch{Grid: [3]int{1, 1, 1}, Block: [3]int{Lanes, 1, 1}, Memory: &b.space}
	launch(t, p, "spills", l, b.add(t, in), b.add(t, make([]byte, 256)))
	for i, got := range u32s(b.bytes[1]) {
		want := uint32(0)
		for j := range 40 {
			want += uint32(j+1) * le.Uint32(in[4*(40*i+j):])
		}
		if got != want {
			t.Errorf("spills: lane %d has %d, want %d", i, got, want)
		}
	}
}
