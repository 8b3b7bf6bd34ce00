package emu

import (
	"fmt"
	"unsafe"
)

// imageAlign is what the code object's first address is a multiple of: the alignment
// of its segments, and of anything in them, is right with it.
const imageAlign = 4096

// maxImage bounds a code object in memory: more comes from a damaged file.
const maxImage = 1 << 28

// load lays the segments out in memory as a loader does and applies its relocations.
func (p *Program) load() error {
	size := uint64(0)
	for i, s := range p.object.Segments {
		if s.Address > maxImage || s.MemSize > maxImage-s.Address || uint64(len(s.Data)) > s.MemSize {
			return fmt.Errorf("segment %d has %d bytes at 0x%x and %d in the file, at most %d in memory are supported", i, s.MemSize, s.Address, len(s.Data), maxImage)
		}
		size = max(size, s.Address+s.MemSize)
	}
	if size == 0 {
		return fmt.Errorf("the code object has no segments")
	}
	b := make([]byte, size+imageAlign-1)
	skip := -uintptr(unsafe.Pointer(unsafe.SliceData(b))) % imageAlign
	p.image = b[skip:][:size:size]
	for _, s := range p.object.Segments {
		copy(p.image[s.Address:], s.Data)
	}
	if err := p.relocate(); err != nil {
		return err
	}
	for i, s := range p.object.Segments {
		if s.MemSize == 0 {
			continue
		}
		label := fmt.Sprintf("segment %d of the code object", i)
		if s.Exec {
			label = "code"
		}
		r := regionOf(p.image[s.Address:][:s.MemSize], label)
		r.readOnly = !s.Writable
		p.regions = append(p.regions, r)
	}
	return nil
}

// relocate applies what the linker leaves to a loader: addresses within the code
// object. Symbols of other objects have nowhere to come from.
func (p *Program) relocate() error {
	for _, r := range p.object.Relocations {
		to := uint64(r.Addend)
		symbol, exported := p.object.Exported[r.Symbol]
		switch {
		case r.Type == "R_AMDGPU_RELATIVE64":
		case r.Type == "R_AMDGPU_ABS64" && exported:
			to += symbol
		default:
			return fmt.Errorf("a relocation %s of symbol %q at 0x%x is not supported: only addresses within the code object are", r.Type, r.Symbol, r.Offset)
		}
		if r.Offset > uint64(len(p.image)) || uint64(len(p.image))-r.Offset < 8 {
			return fmt.Errorf("a relocation at 0x%x, where the code object has no byte", r.Offset)
		}
		le.PutUint64(p.image[r.Offset:], Address(p.image)+to)
	}
	return nil
}
