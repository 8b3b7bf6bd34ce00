package object

import (
	"debug/elf"
	"fmt"
	"slices"
	"strings"
)

// HostObject is an x86-64 shared object.
type HostObject struct {
	Functions []Function // exported ones, by name
	Undefined []string   // symbols that the loader must find elsewhere, sorted
	Comments  []string   // what compiler and linker wrote about themselves
}

// Function is an exported function.
type Function struct {
	Name    string
	Address uint64
	Bytes   *int // of machine code; nil if the symbol has no size
}

func readHost(e *elfFile) (*HostObject, error) {
	if e.typ != elf.ET_DYN {
		return nil, fmt.Errorf("elf e_type at offset 0x10 is %d, want 3: of x86-64 files only shared objects are read: %w", e.typ, ErrUnsupported)
	}
	h := &HostObject{Undefined: e.undefined(), Comments: e.comments()}
	for i := range e.dynsym {
		s := &e.dynsym[i]
		exported := s.bind != elf.STB_LOCAL && (s.vis == elf.STV_DEFAULT || s.vis == elf.STV_PROTECTED)
		if s.typ != elf.STT_FUNC || s.section == shnUndef || !exported {
			continue
		}
		f := Function{Name: s.name, Address: s.value}
		if s.size > 0 {
			b, err := e.contents(s)
			if err != nil {
				return nil, fmt.Errorf("function %s: %w", s.name, err)
			}
			n := len(b)
			f.Bytes = &n
		}
		h.Functions = append(h.Functions, f)
	}
	slices.SortStableFunc(h.Functions, func(a, b Function) int { return strings.Compare(a.Name, b.Name) })
	return h, nil
}
