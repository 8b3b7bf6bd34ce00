package object

import (
	"debug/elf"
	"fmt"
	"slices"
	"strings"
)

// The reader below knows ELF64 little endian as far as code objects need it.
// The standard library's debug/elf reads more (compressed sections, 32 bits)
// and reports less: its errors do not name the field.

const (
	elfMagic = "\x7fELF"

	ehdrSize = 64
	shdrSize = 64
	phdrSize = 56
	symSize  = 24
	relaSize = 24

	emX86_64 = 62
	emAMDGPU = 224

	shnUndef     = 0
	shnLoReserve = 0xff00

	// maxName bounds a symbol's or section's name, so that many symbols with
	// one unterminated name cost no quadratic time.
	maxName = 1 << 16
)

type elfFile struct {
	data       []byte
	osABI      byte
	abiVersion byte
	typ        elf.Type
	machine    uint16
	flags      uint32
	sections   []section
	segments   []Segment
	symtab     []symbol // without the empty first one
	dynsym     []symbol // likewise
}

type section struct {
	name       string
	typ        elf.SectionType
	addr       uint64
	offset     uint64
	size       uint64
	link, info uint32
	data       []byte // nil for SHT_NOBITS
}

// Segment is a PT_LOAD segment: what a loader maps, and where.
type Segment struct {
	Address  uint64
	Data     []byte // the part that is in the file
	MemSize  uint64 // at least len(Data); the rest is zeros
	Writable bool
	Exec     bool
}

type symbol struct {
	name    string
	typ     elf.SymType
	bind    elf.SymBind
	vis     elf.SymVis
	section uint16
	value   uint64
	size    uint64
}

func readELF(data []byte) (*elfFile, error) {
	h, err := window(data, 0, ehdrSize, "elf header")
	if err != nil {
		return nil, err
	}
	if h[4] != 2 || h[5] != 1 {
		return nil, fmt.Errorf("elf e_ident at offset 0x4: class %d, byte order %d, want 2 (64 bits) and 1 (little endian): %w", h[4], h[5], ErrUnsupported)
	}
	if h[6] != 1 || le.Uint32(h[20:]) != 1 {
		return nil, fmt.Errorf("elf version at offsets 0x6 and 0x14 is %d and %d, want 1", h[6], le.Uint32(h[20:]))
	}
	e := &elfFile{
		data: data, osABI: h[7], abiVersion: h[8],
		typ: elf.Type(le.Uint16(h[16:])), machine: le.Uint16(h[18:]), flags: le.Uint32(h[48:]),
	}
	if err := e.readSections(le.Uint64(h[40:]), le.Uint16(h[58:]), le.Uint16(h[60:]), le.Uint16(h[62:])); err != nil {
		return nil, err
	}
	if err := e.readSegments(le.Uint64(h[32:]), le.Uint16(h[54:]), le.Uint16(h[56:])); err != nil {
		return nil, err
	}
	if e.symtab, err = e.readSymbols(elf.SHT_SYMTAB); err != nil {
		return nil, err
	}
	if e.dynsym, err = e.readSymbols(elf.SHT_DYNSYM); err != nil {
		return nil, err
	}
	return e, nil
}

func (e *elfFile) readSections(off uint64, entSize, count, names uint16) error {
	if off == 0 || count == 0 {
		return fmt.Errorf("elf e_shoff at offset 0x28 is 0x%x and e_shnum at offset 0x3c is %d: no section table", off, count)
	}
	if entSize != shdrSize {
		return fmt.Errorf("elf e_shentsize at offset 0x3a is %d, want %d", entSize, shdrSize)
	}
	table, err := window(e.data, off, uint64(count)*shdrSize, "elf section table (e_shoff, e_shnum)")
	if err != nil {
		return err
	}
	e.sections = make([]section, count)
	nameAt := make([]uint32, count)
	for i := range e.sections {
		b := table[i*shdrSize:]
		s := &e.sections[i]
		nameAt[i] = le.Uint32(b)
		*s = section{
			typ: elf.SectionType(le.Uint32(b[4:])), addr: le.Uint64(b[16:]), offset: le.Uint64(b[24:]),
			size: le.Uint64(b[32:]), link: le.Uint32(b[40:]), info: le.Uint32(b[44:]),
		}
		if s.typ == elf.SHT_NULL || s.typ == elf.SHT_NOBITS {
			continue
		}
		if elf.SectionFlag(le.Uint64(b[8:]))&elf.SHF_COMPRESSED != 0 {
			continue // debug information; no section that is read here is compressed
		}
		if s.data, err = window(e.data, s.offset, s.size, fmt.Sprintf("elf section %d (sh_offset, sh_size)", i)); err != nil {
			return err
		}
	}
	if int(names) >= len(e.sections) || e.sections[names].typ != elf.SHT_STRTAB {
		return fmt.Errorf("elf e_shstrndx at offset 0x3e is %d, which is no string table", names)
	}
	all := string(e.sections[names].data)
	for i := range e.sections {
		s := &e.sections[i]
		if s.name, err = text(all, nameAt[i]); err != nil {
			return fmt.Errorf("elf section %d: sh_name: %w", i, err)
		}
	}
	return nil
}

func (e *elfFile) readSegments(off uint64, entSize, count uint16) error {
	if count == 0 {
		return nil // a relocatable object has none
	}
	if entSize != phdrSize {
		return fmt.Errorf("elf e_phentsize at offset 0x36 is %d, want %d", entSize, phdrSize)
	}
	table, err := window(e.data, off, uint64(count)*phdrSize, "elf program header table (e_phoff, e_phnum)")
	if err != nil {
		return err
	}
	for i := range int(count) {
		b := table[i*phdrSize:]
		if elf.ProgType(le.Uint32(b)) != elf.PT_LOAD {
			continue
		}
		flags := elf.ProgFlag(le.Uint32(b[4:]))
		s := Segment{
			Address: le.Uint64(b[16:]), MemSize: le.Uint64(b[40:]),
			Writable: flags&elf.PF_W != 0, Exec: flags&elf.PF_X != 0,
		}
		what := fmt.Sprintf("elf program header %d", i)
		if s.Data, err = window(e.data, le.Uint64(b[8:]), le.Uint64(b[32:]), what+" (p_offset, p_filesz)"); err != nil {
			return err
		}
		if s.MemSize < uint64(len(s.Data)) || s.Address+s.MemSize < s.Address {
			return fmt.Errorf("%s: p_memsz 0x%x at p_vaddr 0x%x does not hold p_filesz 0x%x", what, s.MemSize, s.Address, len(s.Data))
		}
		e.segments = append(e.segments, s)
	}
	return nil
}

func (e *elfFile) readSymbols(typ elf.SectionType) ([]symbol, error) {
	at := slices.IndexFunc(e.sections, func(s section) bool { return s.typ == typ })
	if at < 0 {
		return nil, nil
	}
	s := &e.sections[at]
	what := fmt.Sprintf("elf section %d (%s)", at, s.name)
	if i := slices.IndexFunc(e.sections[at+1:], func(s section) bool { return s.typ == typ }); i >= 0 {
		return nil, fmt.Errorf("%s and section %d are both of type %v", what, at+1+i, typ)
	}
	if s.size%symSize != 0 {
		return nil, fmt.Errorf("%s: sh_size 0x%x is no multiple of %d", what, s.size, symSize)
	}
	if int64(s.link) >= int64(len(e.sections)) || e.sections[s.link].typ != elf.SHT_STRTAB {
		return nil, fmt.Errorf("%s: sh_link %d is no string table", what, s.link)
	}
	// One conversion for all names, which share it: a name costs no memory of
	// its own, however many symbols have it.
	names := string(e.sections[s.link].data)
	var list []symbol
	for n := symSize; n < len(s.data); n += symSize {
		b := s.data[n:]
		name, err := text(names, le.Uint32(b))
		if err != nil {
			return nil, fmt.Errorf("%s: symbol %d at offset 0x%x: st_name: %w", what, n/symSize, s.offset+uint64(n), err)
		}
		list = append(list, symbol{
			name: name, typ: elf.SymType(b[4] & 15), bind: elf.SymBind(b[4] >> 4), vis: elf.SymVis(b[5] & 3),
			section: le.Uint16(b[6:]), value: le.Uint64(b[8:]), size: le.Uint64(b[16:]),
		})
	}
	return list, nil
}

// text returns the NUL-terminated string at an offset of a string table.
func text(table string, at uint32) (string, error) {
	if uint64(at) >= uint64(len(table)) {
		return "", fmt.Errorf("0x%x is outside the string table of 0x%x bytes", at, len(table))
	}
	s := table[at:]
	s = s[:min(len(s), maxName)]
	n := strings.IndexByte(s, 0)
	if n < 0 {
		return "", fmt.Errorf("the string at 0x%x of the string table does not end within %d bytes", at, len(s))
	}
	return s[:n], nil
}

// undefined names the symbols that another object would have to define, sorted.
func (e *elfFile) undefined() []string {
	var names []string
	for _, table := range [][]symbol{e.symtab, e.dynsym} {
		for _, s := range table {
			if s.section == shnUndef && s.name != "" {
				names = append(names, s.name)
			}
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// symbolKey is what a symbol is looked up by.
type symbolKey struct {
	name string
	typ  elf.SymType
}

// defined indexes the symbols that are defined. The table that a loader uses
// comes first, and a global symbol before local ones of the same name.
func (e *elfFile) defined() map[symbolKey]*symbol {
	index := map[symbolKey]*symbol{}
	for _, table := range [][]symbol{e.dynsym, e.symtab} {
		for i := range table {
			s := &table[i]
			key := symbolKey{s.name, s.typ}
			old := index[key]
			if s.section != shnUndef && (old == nil || old.bind == elf.STB_LOCAL && s.bind != elf.STB_LOCAL) {
				index[key] = s
			}
		}
	}
	return index
}

// contents returns the bytes that a symbol stands for.
func (e *elfFile) contents(s *symbol) ([]byte, error) {
	if s.section == shnUndef || s.section >= shnLoReserve || int(s.section) >= len(e.sections) {
		return nil, fmt.Errorf("symbol %s: st_shndx %d is no section", s.name, s.section)
	}
	sec := &e.sections[s.section]
	off := s.value
	if e.typ != elf.ET_REL {
		off -= sec.addr // wraps around, and is then outside
	}
	return window(sec.data, off, s.size, fmt.Sprintf("symbol %s in section %s (st_value, st_size)", s.name, sec.name))
}

// Relocation is an entry of a SHT_RELA section.
type Relocation struct {
	Section string // that the relocation changes; "" if a loader applies it
	Offset  uint64 // in Section, or an address
	Type    string // R_AMDGPU_REL64, ..., or its number
	Symbol  string
	Addend  int64
}

// relocationTypes are those of AMDGPUUsage, "Relocation Records".
var relocationTypes = map[uint32]string{
	0: "R_AMDGPU_NONE", 1: "R_AMDGPU_ABS32_LO", 2: "R_AMDGPU_ABS32_HI", 3: "R_AMDGPU_ABS64", 4: "R_AMDGPU_REL32",
	5: "R_AMDGPU_REL64", 6: "R_AMDGPU_ABS32", 7: "R_AMDGPU_GOTPCREL", 8: "R_AMDGPU_GOTPCREL32_LO",
	9: "R_AMDGPU_GOTPCREL32_HI", 10: "R_AMDGPU_REL32_LO", 11: "R_AMDGPU_REL32_HI", 13: "R_AMDGPU_RELATIVE64", 14: "R_AMDGPU_REL16",
}

// relocations reads those of an AMDGPU object.
func (e *elfFile) relocations() ([]Relocation, error) {
	var list []Relocation
	for i, s := range e.sections {
		switch s.typ {
		case elf.SHT_RELA:
		case elf.SHT_REL, shtRELR:
			return nil, fmt.Errorf("elf section %d (%s): relocations of type %d, where AMDGPU has SHT_RELA only: %w", i, s.name, uint32(s.typ), ErrUnsupported)
		default:
			continue
		}
		if s.size%relaSize != 0 {
			return nil, fmt.Errorf("elf section %d (%s): sh_size 0x%x is no multiple of %d", i, s.name, s.size, relaSize)
		}
		target := ""
		if e.typ == elf.ET_REL {
			if int64(s.info) >= int64(len(e.sections)) {
				return nil, fmt.Errorf("elf section %d (%s): sh_info %d is no section", i, s.name, s.info)
			}
			target = e.sections[s.info].name
		}
		symbols := e.symtab
		if int64(s.link) < int64(len(e.sections)) && e.sections[s.link].typ == elf.SHT_DYNSYM {
			symbols = e.dynsym
		}
		for n := 0; n < len(s.data); n += relaSize {
			b := s.data[n:]
			info := le.Uint64(b[8:])
			r := Relocation{Section: target, Offset: le.Uint64(b), Type: relocationTypes[uint32(info)], Addend: int64(le.Uint64(b[16:]))}
			if r.Type == "" {
				r.Type = fmt.Sprint(uint32(info))
			}
			if num := info >> 32; num > 0 {
				if num > uint64(len(symbols)) {
					return nil, fmt.Errorf("elf section %d (%s): relocation at offset 0x%x: r_info names symbol %d of %d", i, s.name, s.offset+uint64(n), num, len(symbols))
				}
				sym := &symbols[num-1] // symbol 0 is the empty one, which is left out
				r.Symbol = sym.name
				if sym.typ == elf.STT_SECTION && int(sym.section) < len(e.sections) {
					r.Symbol = e.sections[sym.section].name
				}
			}
			list = append(list, r)
		}
	}
	return list, nil
}

// shtRELR packs relative relocations; debug/elf has no name for it.
const shtRELR elf.SectionType = 19

// comments splits .comment, where compilers and linkers sign.
func (e *elfFile) comments() []string {
	var list []string
	for _, s := range e.sections {
		if s.name != ".comment" {
			continue
		}
		for _, line := range strings.Split(string(s.data[:min(len(s.data), maxName)]), "\x00") {
			if line != "" {
				list = append(list, line)
			}
		}
	}
	return list
}
