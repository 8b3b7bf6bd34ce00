package object

import (
	"bytes"
	"context"
	"encoding/binary"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
)

const golden = "../../testdata/golden/triton"

func readTestFile(t testing.TB, path string) []byte {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func mustRead(t testing.TB, data []byte) *File {
	t.Helper()
	f, err := Read(data)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// tool finds a program of an LLVM that knows gfx950, below the repository's
// .toolchain or on the PATH, and skips the test if there is none.
func tool(t *testing.T, name string) string {
	t.Helper()
	reason := "not found"
	for _, dir := range []string{"../../.toolchain/llvm/bin", ""} {
		path := name
		if dir != "" {
			path, _ = filepath.Abs(filepath.Join(dir, name))
		}
		path, err := exec.LookPath(path)
		if err != nil {
			continue
		}
		if name == "ld.lld" { // has no processors to ask for
			return path
		}
		// Every program of LLVM lists the processors it knows, given a triple.
		out, _ := exec.CommandContext(context.Background(), path, "--version").CombinedOutput()
		if major(out) >= 20 {
			return path
		}
		reason = path + " is older than LLVM 20, the first with gfx950"
	}
	t.Skipf("%s: %s (make toolchain)", name, reason)
	return ""
}

// major reads the 22 of "LLVM version 22.1.8".
func major(version []byte) int {
	_, rest, ok := bytes.Cut(version, []byte("LLVM version "))
	n := 0
	for _, c := range rest {
		if !ok || c < '0' || c > '9' {
			break
		}
		n = 10*n + int(c-'0')
	}
	return n
}

// pack writes MessagePack: nil, bool, int, uint64, float64, string, []byte,
// []any and pairs.
func pack(v any) []byte {
	head := func(fix byte, most int, wide []byte, n int) []byte {
		switch {
		case n <= most:
			return []byte{fix | byte(n)}
		case len(wide) == 3 && n < 1<<8:
			return []byte{wide[0], byte(n)}
		case n < 1<<16:
			return binary.BigEndian.AppendUint16([]byte{wide[len(wide)-2]}, uint16(n))
		}
		return binary.BigEndian.AppendUint32([]byte{wide[len(wide)-1]}, uint32(n))
	}
	switch v := v.(type) {
	case nil:
		return []byte{0xc0}
	case bool:
		if v {
			return []byte{0xc3}
		}
		return []byte{0xc2}
	case int:
		if v >= 0 {
			return pack(uint64(v))
		}
		return binary.BigEndian.AppendUint64([]byte{0xd3}, uint64(v))
	case uint64:
		if v < 128 {
			return []byte{byte(v)}
		}
		return binary.BigEndian.AppendUint64([]byte{0xcf}, v)
	case float64:
		return binary.BigEndian.AppendUint64([]byte{0xcb}, math.Float64bits(v))
	case string:
		return append(head(0xa0, 31, []byte{0xd9, 0xda, 0xdb}, len(v)), v...)
	case []byte:
		return append(head(0, -1, []byte{0xc4, 0xc5, 0xc6}, len(v)), v...)
	case []any:
		out := head(0x90, 15, []byte{0xdc, 0xdd}, len(v))
		for _, x := range v {
			out = append(out, pack(x)...)
		}
		return out
	case pairs:
		out := head(0x80, 15, []byte{0xde, 0xdf}, len(v))
		for _, p := range v {
			out = append(append(out, pack(p.key)...), pack(p.value)...)
		}
		return out
	}
	panic("pack: unknown type")
}

// pairs is a map in the order of writing.
type pairs []pair

type pair struct{ key, value any }

// with returns the pairs with one value replaced or appended, without one if
// the value is drop.
func (p pairs) with(key string, value any) pairs {
	out := slices.Clone(p)
	at := slices.IndexFunc(out, func(q pair) bool { return q.key == key })
	switch {
	case value == drop && at >= 0:
		return slices.Delete(out, at, at+1)
	case at >= 0:
		out[at].value = value
	default:
		out = append(out, pair{key, value})
	}
	return out
}

// drop marks a key to leave out.
var drop = struct{ dropped bool }{true}

// goodArgs, goodKernel and goodRoot are metadata without a fault.
func goodArgs() []any {
	return []any{
		pairs{{".name", "out"}, {".offset", 0}, {".size", 8}, {".value_kind", "global_buffer"}, {".address_space", "global"}, {".actual_access", "write_only"}},
		pairs{{".offset", 8}, {".size", 4}, {".value_kind", "by_value"}},
		pairs{{".offset", 16}, {".size", 4}, {".value_kind", "hidden_block_count_x"}},
	}
}

func goodKernel() pairs {
	return pairs{
		{".agpr_count", 4}, {".args", goodArgs()}, {".group_segment_fixed_size", 1024}, {".kernarg_segment_align", 8},
		{".kernarg_segment_size", 24}, {".max_flat_workgroup_size", 256}, {".name", "k"}, {".private_segment_fixed_size", 16},
		{".sgpr_count", 20}, {".sgpr_spill_count", 1}, {".symbol", "k.kd"}, {".uses_dynamic_stack", false}, {".vgpr_count", 12},
		{".vgpr_spill_count", 2}, {".wavefront_size", 64},
	}
}

func rootOf(kernels ...any) pairs {
	return pairs{{"amdhsa.kernels", kernels}, {"amdhsa.target", "amdgcn-amd-amdhsa--gfx942"}, {"amdhsa.version", []any{1, 2}}}
}

// goodDescriptor goes with goodKernel.
func goodDescriptor() []byte {
	d := make([]byte, descriptorSize)
	le.PutUint32(d, 1024)
	le.PutUint32(d[4:], 16)
	le.PutUint32(d[8:], 24)
	le.PutUint64(d[16:], testText-testRodata)
	le.PutUint32(d[44:], 8/4-1)                                 // accum_offset 8
	le.PutUint32(d[48:], 1|2<<6)                                // 16 VGPRs, 24 SGPRs
	le.PutUint32(d[52:], 6<<1|1<<7|1<<9|1<<11)                  // 6 user SGPRs, workgroup ids x and z, work-item ids x and y
	le.PutUint16(d[56:], uint16(KernargSegmentPtr|DispatchPtr)) // 4 SGPRs
	le.PutUint16(d[58:], 2|1<<7)                                // 2 dwords from dword 1
	return d
}

// Virtual addresses of a made-up object.
const (
	testRodata = 0x1040
	testText   = 0x2000
)

// testObject makes a code object: a note, a descriptor "k.kd" and code "k".
func testObject(note, descriptor []byte) []byte {
	type sec struct {
		name string
		typ  uint32
		addr uint64
		data []byte
		link int
	}
	var noteData []byte
	noteData = le.AppendUint32(noteData, uint32(len(noteOwner)))
	noteData = le.AppendUint32(noteData, uint32(len(note)))
	noteData = le.AppendUint32(noteData, noteType)
	noteData = append(noteData, noteOwner+"\x00"...)
	noteData = append(noteData, note...)
	for len(noteData)%4 != 0 {
		noteData = append(noteData, 0)
	}
	sym := func(name uint32, typ byte, section uint16, value, size uint64) []byte {
		b := le.AppendUint32(nil, name)
		b = append(b, 1<<4|typ, 0)
		b = le.AppendUint16(b, section)
		b = le.AppendUint64(b, value)
		return le.AppendUint64(b, size)
	}
	dynsym := slices.Concat(make([]byte, symSize), sym(1, 1, 4, testRodata, uint64(len(descriptor))), sym(6, 2, 5, testText, 8))
	sections := []sec{
		{},
		{name: ".note", typ: 7, data: noteData},
		{name: ".dynsym", typ: 11, data: dynsym, link: 3},
		{name: ".dynstr", typ: 3, data: []byte("\x00k.kd\x00k\x00")},
		{name: ".rodata", typ: 1, addr: testRodata, data: descriptor},
		{name: ".text", typ: 1, addr: testText, data: []byte{0, 0, 0x80, 0xbf, 0, 0, 0x81, 0xbf}},
		{name: ".comment", typ: 1, data: []byte("a linker\x00")},
		{name: ".shstrtab", typ: 3},
	}
	names := []byte{0}
	var nameAt []int
	for _, s := range sections {
		nameAt = append(nameAt, len(names))
		names = append(append(names, s.name...), 0)
	}
	sections[len(sections)-1].data = names

	body := make([]byte, ehdrSize)
	var table []byte
	for i, s := range sections {
		for len(body)%8 != 0 {
			body = append(body, 0)
		}
		at := len(body)
		body = append(body, s.data...)
		h := make([]byte, shdrSize)
		le.PutUint32(h, uint32(nameAt[i]))
		le.PutUint32(h[4:], s.typ)
		le.PutUint64(h[16:], s.addr)
		if i > 0 {
			le.PutUint64(h[24:], uint64(at))
		}
		le.PutUint64(h[32:], uint64(len(s.data)))
		le.PutUint32(h[40:], uint32(s.link))
		table = append(table, h...)
	}
	copy(body, elfMagic)
	copy(body[4:], []byte{2, 1, 1, osABIHSA, 3})
	le.PutUint16(body[16:], 3)
	le.PutUint16(body[18:], emAMDGPU)
	le.PutUint32(body[20:], 1)
	le.PutUint64(body[40:], uint64(len(body)))
	le.PutUint32(body[48:], 0x54c)
	le.PutUint16(body[52:], ehdrSize)
	le.PutUint16(body[54:], phdrSize)
	le.PutUint16(body[58:], shdrSize)
	le.PutUint16(body[60:], uint16(len(sections)))
	le.PutUint16(body[62:], uint16(len(sections)-1))
	return append(body, table...)
}

// goodObject has no problem at all.
func goodObject() []byte { return testObject(pack(rootOf(goodKernel())), goodDescriptor()) }

// testBundle makes an offload bundle.
func testBundle(entries ...bundled) []byte {
	out := []byte(bundleMagic)
	out = le.AppendUint64(out, uint64(len(entries)))
	size := len(out)
	for _, e := range entries {
		size += 24 + len(e.id)
	}
	var bodies []byte
	for _, e := range entries {
		out = le.AppendUint64(out, uint64(size+len(bodies)))
		out = le.AppendUint64(out, uint64(len(e.data)))
		out = le.AppendUint64(out, uint64(len(e.id)))
		out = append(out, e.id...)
		bodies = append(bodies, e.data...)
	}
	return append(out, bodies...)
}

type bundled struct {
	id   string
	data []byte
}

func ptr[T any](v T) *T { return &v }
