package drivertest

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"fmt"
	"strings"
)

// slotsSymbol is the table of the functions' addresses, in the order of the
// symbols.
const slotsSymbol = "kiln_fake_slots"

const (
	page      = 0x1000
	jumpBytes = 8
	wordBytes = 8
)

// sharedObject makes an x86-64 ELF library that exports the symbols. Each is a
// jump through its word of the table, which the loader of the library fills in.
func sharedObject(symbols []string) ([]byte, error) {
	names := append(append([]string{}, symbols...), slotsSymbol)
	strs := "\x00" + strings.Join(names, "\x00") + "\x00"

	// The first segment: headers, symbol table, strings, hash table, code.
	const segments = 4
	headers := binary.Size(elf.Header64{}) + segments*binary.Size(elf.Prog64{})
	symtab := align(headers, wordBytes)
	strtab := symtab + (len(names)+1)*elf.Sym64Size
	hash := align(strtab+len(strs), wordBytes)
	code := align(hash+4*(3+len(names)+1), 16)
	codeEnd := code + jumpBytes*len(symbols)
	// The second: what the dynamic loader reads, and the table.
	dynamic := align(codeEnd, page)
	table := []elf.Dyn64{
		{Tag: int64(elf.DT_HASH), Val: uint64(hash)},
		{Tag: int64(elf.DT_SYMTAB), Val: uint64(symtab)},
		{Tag: int64(elf.DT_SYMENT), Val: elf.Sym64Size},
		{Tag: int64(elf.DT_STRTAB), Val: uint64(strtab)},
		{Tag: int64(elf.DT_STRSZ), Val: uint64(len(strs))},
		{Tag: int64(elf.DT_NULL)},
	}
	slots := dynamic + binary.Size(table)
	end := slots + wordBytes*len(symbols)

	var b bytes.Buffer
	var failed error
	put := func(at int, v any) {
		if b.Len() > at {
			failed = fmt.Errorf("shared object: 0x%x bytes where 0x%x were expected", b.Len(), at)
			return
		}
		b.Write(make([]byte, at-b.Len()))
		if err := binary.Write(&b, binary.LittleEndian, v); err != nil {
			failed = err
		}
	}
	segment := func(kind elf.ProgType, flags elf.ProgFlag, from, to, alignment int) elf.Prog64 {
		n := uint64(to - from)
		return elf.Prog64{Type: uint32(kind), Flags: uint32(flags), Off: uint64(from), Vaddr: uint64(from), Paddr: uint64(from), Filesz: n, Memsz: n, Align: uint64(alignment)}
	}
	h := elf.Header64{
		Type: uint16(elf.ET_DYN), Machine: uint16(elf.EM_X86_64), Version: uint32(elf.EV_CURRENT),
		Phoff: uint64(binary.Size(elf.Header64{})), Ehsize: uint16(binary.Size(elf.Header64{})),
		Phentsize: uint16(binary.Size(elf.Prog64{})), Phnum: segments,
	}
	copy(h.Ident[:], elf.ELFMAG)
	h.Ident[elf.EI_CLASS], h.Ident[elf.EI_DATA], h.Ident[elf.EI_VERSION] = byte(elf.ELFCLASS64), byte(elf.ELFDATA2LSB), byte(elf.EV_CURRENT)
	put(0, h)
	put(b.Len(), []elf.Prog64{
		segment(elf.PT_LOAD, elf.PF_R|elf.PF_X, 0, codeEnd, page),
		segment(elf.PT_LOAD, elf.PF_R|elf.PF_W, dynamic, end, page),
		segment(elf.PT_DYNAMIC, elf.PF_R|elf.PF_W, dynamic, slots, wordBytes),
		segment(elf.PT_GNU_STACK, elf.PF_R|elf.PF_W, 0, 0, 16),
	})
	put(symtab, elf.Sym64{})
	name := 1
	for i, s := range names {
		sym := elf.Sym64{Name: uint32(name), Info: elf.ST_INFO(elf.STB_GLOBAL, elf.STT_FUNC), Shndx: 1, Value: uint64(code + jumpBytes*i), Size: jumpBytes}
		if s == slotsSymbol {
			sym.Info, sym.Value, sym.Size = elf.ST_INFO(elf.STB_GLOBAL, elf.STT_OBJECT), uint64(slots), uint64(wordBytes*len(symbols))
		}
		put(b.Len(), sym)
		name += len(s) + 1
	}
	put(strtab, []byte(strs))
	// One bucket with all symbols in it.
	chain := []uint32{1, uint32(len(names) + 1), 1, 0}
	for i := range names {
		chain = append(chain, uint32(i+2)%uint32(len(names)+1))
	}
	put(hash, chain)
	for i := range symbols {
		at := code + jumpBytes*i
		put(at, []byte{0xff, 0x25}) // jmp *displacement(%rip)
		put(b.Len(), int32(slots+wordBytes*i-(at+6)))
	}
	put(dynamic, table)
	put(end, []byte{})
	return b.Bytes(), failed
}

func align(n, to int) int { return (n + to - 1) / to * to }
