package object

import (
	"errors"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// Offsets of fields in an ELF header and in a section header.
const (
	ehMachine = 18
	ehShoff   = 40
	ehFlags   = 48
	shOffset  = 24
	shSize    = 32
	shLink    = 40
)

// sectionHeader is where the header of section n of an object is.
func sectionHeader(data []byte, n int) int { return int(le.Uint64(data[ehShoff:])) + n*shdrSize }

func TestELFErrors(t *testing.T) {
	section := func(n, at int, value uint64) func([]byte) {
		return func(b []byte) { le.PutUint64(b[sectionHeader(b, n)+at:], value) }
	}
	link := func(n int, value uint32) func([]byte) {
		return func(b []byte) { le.PutUint32(b[sectionHeader(b, n)+shLink:], value) }
	}
	set := func(at int, value byte) func([]byte) { return func(b []byte) { b[at] = value } }
	for _, tc := range []struct {
		name        string
		change      func([]byte)
		want        string
		unsupported bool
	}{
		{"magic", set(0, 'X'), `magic at offset 0x0 is "XELF": neither an ELF file nor an offload bundle`, false},
		{"32 bits", set(4, 1), "elf e_ident at offset 0x4: class 1, byte order 1, want 2 (64 bits) and 1 (little endian)", true},
		{"big endian", set(5, 2), "class 2, byte order 2", true},
		{"version", set(6, 0), "elf version at offsets 0x6 and 0x14 is 0 and 1, want 1", false},
		{"machine", set(ehMachine, 183), "elf e_machine at offset 0x12 is 183, want 224 (AMDGPU) or 62 (x86-64)", true},
		{"operating system", set(7, 0), "elf e_ident[EI_OSABI] at offset 0x7 is 0, want 64 (AMDGPU HSA)", true},
		{"code object version 3", set(8, 1), "elf e_ident[EI_ABIVERSION] at offset 0x8 is 1, want 2, 3 or 4", true},
		{"later code object version", set(8, 5), "elf e_ident[EI_ABIVERSION] at offset 0x8 is 5", true},
		{"executable", set(16, 2), "elf e_type at offset 0x10 is 2, want 3 (shared object) or 1 (relocatable)", true},
		{"unknown chip", set(ehFlags, 0x77), "elf e_flags at offset 0x30 is 0x577: machine 0x77 is no known AMDGPU processor", true},
		{"reserved flags", set(ehFlags+2, 1), "elf e_flags at offset 0x30 is 0x1054c: bits 0x10000 have no meaning in code object version 5", false},
		{"generic version", set(ehFlags+3, 1), "bits 0x1000000 have no meaning in code object version 5", false},
		{"generic version of a chip", func(b []byte) { b[8] = 4; b[ehFlags+3] = 1 }, "generic version 1 does not go with gfx942", false},
		{"generic processor without version", func(b []byte) { b[8] = 4; b[ehFlags] = 0x5f }, "generic version 0 does not go with gfx9-4-generic", false},
		{"no sections", set(60, 0), "e_shnum at offset 0x3c is 0: no section table", false},
		{"size of a section header", set(58, 40), "elf e_shentsize at offset 0x3a is 40, want 64", false},
		{"section table outside", func(b []byte) { le.PutUint64(b[ehShoff:], 1<<63) }, "elf section table (e_shoff, e_shnum): 0x200 bytes at offset 0x8000000000000000 lie outside", false},
		{"too many sections", set(61, 1), "elf section table (e_shoff, e_shnum)", false},
		{"section outside", section(5, shOffset, 1<<40), "elf section 5 (sh_offset, sh_size): 0x8 bytes at offset 0x10000000000 lie outside", false},
		{"section that overflows", section(5, shSize, 1<<64-8), "elf section 5 (sh_offset, sh_size): 0xfffffffffffffff8 bytes", false},
		{"names", set(62, 1), "elf e_shstrndx at offset 0x3e is 1, which is no string table", false},
		{"name outside", func(b []byte) { le.PutUint32(b[sectionHeader(b, 5):], 1000) }, "elf section 5: sh_name: 0x3e8 is outside the string table of", false},
		{"program headers", func(b []byte) { b[56] = 1; b[39] = 1 }, "elf program header table (e_phoff, e_phnum): 0x38 bytes at offset 0x100000000000000 lie outside", false},
		{"segment outside", func(b []byte) { makeLoad(b, 1<<40, 8, 8) }, "elf program header 0 (p_offset, p_filesz): 0x8 bytes at offset 0x10000000000 lie outside", false},
		{"segment smaller than its file part", func(b []byte) { makeLoad(b, 0, 8, 4) }, "elf program header 0: p_memsz 0x4 at p_vaddr 0xffffffffffffff00 does not hold p_filesz 0x8", false},
		{"segment that wraps around", func(b []byte) { makeLoad(b, 0, 8, 0x101) }, "elf program header 0: p_memsz 0x101 at p_vaddr 0xffffffffffffff00", false},
		{"size of a program header", func(b []byte) { b[56] = 1; b[54] = 1 }, "elf e_phentsize at offset 0x36 is 1, want 56", false},
		{"symbols", section(2, shSize, 71), "elf section 2 (.dynsym): sh_size 0x47 is no multiple of 24", false},
		{"symbol names", link(2, 99), "elf section 2 (.dynsym): sh_link 99 is no string table", false},
		{"symbol names of another type", link(2, 5), "elf section 2 (.dynsym): sh_link 5 is no string table", false},
		{"symbol name outside", func(b []byte) { le.PutUint32(b[le.Uint64(b[sectionHeader(b, 2)+shOffset:])+symSize:], 1000) }, "elf section 2 (.dynsym): symbol 1 at offset 0x298: st_name: 0x3e8 is outside the string table of 0x8 bytes", false},
		{"unterminated names", func(b []byte) {
			at := le.Uint64(b[sectionHeader(b, 3)+shOffset:])
			copy(b[at+5:], "xxxx")
		}, "does not end within", false},
		{"two symbol tables", func(b []byte) { b[sectionHeader(b, 6)+4] = 11 }, "elf section 2 (.dynsym) and section 6 are both of type SHT_DYNSYM", false},
		{"another note", func(b []byte) { b[le.Uint64(b[sectionHeader(b, 1)+shOffset:])+12] = 'B' }, "no note of owner AMDGPU and type 32: no kernel metadata", false},
		{"no note", func(b []byte) { b[sectionHeader(b, 1)+4] = 1 }, "no note of owner AMDGPU and type 32", false},
		{"long note name", func(b []byte) { le.PutUint32(b[le.Uint64(b[sectionHeader(b, 1)+shOffset:]):], 1<<32-1) }, "elf section 1 (.note): note at offset 0x40: n_namesz: 0xffffffff bytes", false},
		{"long note", func(b []byte) { le.PutUint32(b[le.Uint64(b[sectionHeader(b, 1)+shOffset:])+4:], 1<<31) }, "elf section 1 (.note): note at offset 0x40: n_descsz: 0x80000000 bytes", false},
		{"cut note", section(1, shSize, 8), "elf section 1 (.note): note at offset 0x40: 0xc bytes at offset 0x0 lie outside", false},
		{"REL", func(b []byte) { b[sectionHeader(b, 6)+4] = 9 }, "elf section 6 (.comment): relocations of type 9, where AMDGPU has SHT_RELA only", true},
		{"RELR", func(b []byte) { b[sectionHeader(b, 6)+4] = 19 }, "relocations of type 19", true},
		{"size of RELA", func(b []byte) { b[sectionHeader(b, 6)+4] = 4 }, "elf section 6 (.comment): sh_size 0x9 is no multiple of 24", false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			data := goodObject()
			tc.change(data)
			_, err := Read(data)
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Fatalf("error %v, want %q in it", err, tc.want)
			}
			if errors.Is(err, ErrUnsupported) != tc.unsupported {
				t.Errorf("error %v: unsupported is %t", err, !tc.unsupported)
			}
		})
	}
}

// makeLoad makes the descriptor's bytes a program header of type PT_LOAD.
func makeLoad(b []byte, offset, fileSize, memSize uint64) {
	at := le.Uint64(b[sectionHeader(b, 4)+shOffset:])
	le.PutUint64(b[32:], at)
	b[56] = 1
	h := b[at:]
	le.PutUint32(h, 1)
	le.PutUint64(h[8:], offset)
	le.PutUint64(h[16:], 1<<64-256)
	le.PutUint64(h[32:], fileSize)
	le.PutUint64(h[40:], memSize)
}

// Cut anywhere, a file is an error and no panic.
func TestCutFiles(t *testing.T) {
	for name, data := range map[string][]byte{
		"object": goodObject(),
		"bundle": testBundle(bundled{"host-x86_64-unknown-linux-gnu-", nil}, bundled{"hipv4-amdgcn-amd-amdhsa--gfx942", goodObject()}),
		"host":   readTestFile(t, "testdata/host.so"),
	} {
		mustRead(t, data)
		for n := range data {
			if _, err := Read(data[:n:n]); err == nil {
				t.Errorf("%s: %d of %d bytes are read without error", name, n, len(data))
			}
		}
	}
}

// Symbols of segments and sections: what a symbol's address leads to.
func TestMissingBytes(t *testing.T) {
	symbol := func(b []byte, n int) []byte { return b[int(le.Uint64(b[sectionHeader(b, 2)+shOffset:]))+n*symSize:] }
	for _, tc := range []struct {
		name   string
		change func([]byte)
		want   []string
	}{
		{"descriptor undefined", func(b []byte) { le.PutUint16(symbol(b, 1)[6:], 0) },
			[]string{`undefined symbol "k.kd"`, `kernel k: no symbol "k.kd" for its descriptor`}},
		{"descriptor absolute", func(b []byte) { le.PutUint16(symbol(b, 1)[6:], 0xfff1) },
			[]string{"kernel k: descriptor: symbol k.kd: st_shndx 65521 is no section"}},
		{"descriptor outside", func(b []byte) { le.PutUint64(symbol(b, 1)[8:], testRodata+1) },
			[]string{"kernel k: descriptor: symbol k.kd in section .rodata (st_value, st_size): 0x40 bytes at offset 0x1 lie outside the 0x40 bytes that are there"}},
		{"code before its section", func(b []byte) { le.PutUint64(symbol(b, 2)[8:], testText-256) },
			[]string{"kernel k: code: symbol k in section .text (st_value, st_size): 0x8 bytes at offset 0xffffffffffffff00 lie outside the 0x8 bytes that are there"}},
		{"code of half a word", func(b []byte) { le.PutUint64(symbol(b, 2)[16:], 6) },
			[]string{"kernel k: code of 6 bytes: not a positive multiple of 4"}},
		{"no code", func(b []byte) { le.PutUint64(symbol(b, 2)[16:], 0) },
			[]string{"kernel k: code of 0 bytes: not a positive multiple of 4"}},
		{"code in no bytes", func(b []byte) { b[sectionHeader(b, 5)+4] = 8 },
			[]string{"kernel k: code: symbol k in section .text (st_value, st_size): 0x8 bytes at offset 0x0 lie outside the 0x0 bytes that are there"}},
		{"code not aligned", func(b []byte) {
			le.PutUint64(symbol(b, 2)[8:], testText+4)
			le.PutUint64(symbol(b, 2)[16:], 4)
		}, []string{"kernel k: descriptor's entry is 0x2000, the function's symbol is at 0x2004", "kernel k: code at 0x2004 is not aligned to 256 bytes"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			data := goodObject()
			tc.change(data)
			o := mustRead(t, data).Object
			if diff := cmp.Diff(tc.want, o.Problems); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

// Files that ask for much memory or time get neither.
func TestHostileSizes(t *testing.T) {
	deep := slices.Concat([]byte{0x81, 0xa1, 'x'}, slices.Repeat([]byte{0x91}, 1<<20), []byte{0xc0})
	manyKeys := append([]byte{0xdf, 0, 1, 0, 0}, slices.Repeat([]byte{0xa1, 'x', 0xc0}, 1<<16)...)
	longName := func() []byte {
		// A megabyte of symbols which all have one name of nearly 64 KiB.
		data := goodObject()
		names := append(slices.Repeat([]byte{'a'}, maxName-1), 0)
		symbols := make([]byte, 1<<20/symSize*symSize)
		for i := 0; i < len(symbols); i += symSize {
			symbols[i+4], symbols[i+6] = 0x11, 4
		}
		for i, body := range [][]byte{symbols, names} {
			header := sectionHeader(data, 2+i)
			le.PutUint64(data[header+shOffset:], uint64(len(data)))
			le.PutUint64(data[header+shSize:], uint64(len(body)))
			data = append(data, body...)
		}
		return data
	}
	for name, data := range map[string][]byte{
		"array of 2^32 items":   testObject([]byte{0xdd, 0xff, 0xff, 0xff, 0xff}, goodDescriptor()),
		"map of 2^32 items":     testObject([]byte{0xdf, 0xff, 0xff, 0xff, 0xff}, goodDescriptor()),
		"string of 2^32 bytes":  testObject([]byte{0xdb, 0xff, 0xff, 0xff, 0xff}, goodDescriptor()),
		"a million arrays":      testObject(deep, goodDescriptor()),
		"65536 unknown keys":    testObject(manyKeys, goodDescriptor()),
		"one name of many":      longName(),
		"bundle of 2^64-1":      append([]byte(bundleMagic), slices.Repeat([]byte{0xff}, 64)...),
		"ID of 2^64-1":          append([]byte(bundleMagic+"\x01\x00\x00\x00\x00\x00\x00\x00"), slices.Repeat([]byte{0xff}, 64)...),
		"many arrays in kernel": testObject(pack(rootOf(append(goodKernel(), pair{".x", slices.Repeat([]any{[]any{}}, 1<<16)}))), goodDescriptor()),
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, _ = Read(data) // an error or not: it must not cost much
		runtime.ReadMemStats(&after)
		if got, limit := after.TotalAlloc-before.TotalAlloc, uint64(64<<10+16*len(data)); got > limit {
			t.Errorf("%s: %d bytes of file made Read allocate %d bytes, more than %d", name, len(data), got, limit)
		}
	}
	if _, err := Read(testObject(deep, goodDescriptor())); err == nil || !strings.Contains(err.Error(), "values nest deeper than 32") {
		t.Errorf("nested arrays: error %v", err)
	}
}
