package object

import (
	"cmp"
	"debug/elf"
	"fmt"
	"slices"
	"strings"
)

// CodeObject is an AMDGPU ELF file.
type CodeObject struct {
	Data []byte // the file

	Target         TargetID // by the ELF header
	GenericVersion int      // of a generic processor (gfx9-4-generic), else 0
	ABIVersion     int      // ELF e_ident[EI_ABIVERSION]
	Version        int      // code object version: 4, 5 or 6

	MetadataVersion [2]int // major, minor
	MetadataTarget  string // as the metadata writes it

	Relocatable bool // not linked yet: addresses are offsets in sections
	Kernels     []Kernel
	Functions   []DeviceFunction // the others, by address; as far as symbols tell
	Segments    []Segment        // what a loader maps; none if Relocatable
	Relocations []Relocation
	Exported    map[string]uint64 // addresses of the symbols that a loader sees
	Undefined   []string          // symbols that the object uses and does not define, sorted
	Comments    []string          // what compiler and linker wrote about themselves

	Problems []string
}

// versions maps e_ident[EI_ABIVERSION] to the code object version and the
// metadata's minor version (AMDGPUUsage, "ELF Header" and "Code Object
// Metadata").
var versions = map[byte]struct{ object, minor int }{
	2: {4, 1},
	3: {5, 2},
	4: {6, 2},
}

// osABIHSA is ELFOSABI_AMDGPU_HSA.
const osABIHSA = 64

// Kernel finds a kernel by name.
func (o *CodeObject) Kernel(name string) (*Kernel, error) {
	var names []string
	for i := range o.Kernels {
		if o.Kernels[i].Name == name {
			return &o.Kernels[i], nil
		}
		names = append(names, o.Kernels[i].Name)
	}
	return nil, fmt.Errorf("no kernel %q: the code object has %s", name, listNames(names))
}

// listNames keeps an error readable when there are very many.
func listNames(names []string) string {
	const most = 50
	switch {
	case len(names) == 0:
		return "none"
	case len(names) > most:
		return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), len(names)-most)
	}
	return strings.Join(names, ", ")
}

func readCodeObject(e *elfFile) (*CodeObject, error) {
	if e.osABI != osABIHSA {
		return nil, fmt.Errorf("elf e_ident[EI_OSABI] at offset 0x7 is %d, want %d (AMDGPU HSA): %w", e.osABI, osABIHSA, ErrUnsupported)
	}
	v, ok := versions[e.abiVersion]
	if !ok {
		return nil, fmt.Errorf("elf e_ident[EI_ABIVERSION] at offset 0x8 is %d, want 2, 3 or 4 (code object version 4, 5 or 6): %w", e.abiVersion, ErrUnsupported)
	}
	if e.typ != elf.ET_DYN && e.typ != elf.ET_REL {
		return nil, fmt.Errorf("elf e_type at offset 0x10 is %d, want 3 (shared object) or 1 (relocatable): %w", e.typ, ErrUnsupported)
	}
	o := &CodeObject{
		Data: e.data, ABIVersion: int(e.abiVersion), Version: v.object, Relocatable: e.typ == elf.ET_REL,
		Segments: e.segments, Undefined: e.undefined(), Comments: e.comments(),
	}
	var err error
	if o.Target, o.GenericVersion, err = targetOfFlags(e.flags, v.object); err != nil {
		return nil, err
	}
	if o.Relocations, err = e.relocations(); err != nil {
		return nil, err
	}
	note, offset, err := e.metadataNote()
	if err != nil {
		return nil, err
	}
	m, err := decodeMetadata(note, offset)
	if err != nil {
		return nil, err
	}
	o.MetadataVersion, o.MetadataTarget, o.Kernels = m.version, m.target, m.kernels

	names := map[string]bool{}
	for i := range o.Kernels {
		k := &o.Kernels[i]
		if names[k.Name] {
			return nil, fmt.Errorf("metadata at offset 0x%x: kernel %q is there twice", offset, k.Name)
		}
		names[k.Name] = true
	}

	var p problems
	if want := [2]int{1, v.minor}; m.version != want {
		p.add("metadata amdhsa.version is %d.%d, code object version %d has %d.%d", m.version[0], m.version[1], v.object, want[0], want[1])
	}
	if t, err := ParseTargetID(m.target); err != nil {
		p.add("metadata amdhsa.target: %v", err)
	} else if t.String() != o.Target.String() {
		p.add("metadata amdhsa.target is %s, the ELF header's is %s", t, o.Target)
	}
	for _, key := range m.unknown {
		p.add("metadata key %q is not known", key)
	}
	for _, name := range o.Undefined {
		p.add("undefined symbol %q", name)
	}
	described := map[string]bool{}
	symbols := e.defined()
	for i := range o.Kernels {
		k := &o.Kernels[i]
		described[k.Symbol] = true
		e.locate(k, symbols, &p)
		k.check(o, &p)
		k.occupancy(o.Target.Chip)
	}
	if !o.Relocatable {
		o.Functions = e.functions(o.Kernels, &p)
		o.Exported = map[string]uint64{}
		for i := range e.dynsym {
			if s := &e.dynsym[i]; s.section != shnUndef && s.bind != elf.STB_LOCAL {
				o.Exported[s.name] = s.value
			}
		}
	}
	for _, name := range e.descriptors() {
		if !described[name] {
			p.add("kernel descriptor %q has no metadata", name)
		}
	}
	o.Problems = p.all()
	return o, nil
}

// descriptors names the symbols that look like kernel descriptors.
func (e *elfFile) descriptors() []string {
	table := e.dynsym
	if table == nil {
		table = e.symtab
	}
	var names []string
	for _, s := range table {
		if s.typ == elf.STT_OBJECT && s.section != shnUndef && s.size == descriptorSize && strings.HasSuffix(s.name, ".kd") {
			names = append(names, s.name)
		}
	}
	return names
}

// locate finds a kernel's descriptor and code in the symbol table.
func (e *elfFile) locate(k *Kernel, symbols map[symbolKey]*symbol, p *problems) {
	function, ok := strings.CutSuffix(k.Symbol, ".kd")
	if !ok {
		p.add("kernel %s: metadata .symbol %q does not end in .kd", k.Name, k.Symbol)
		return
	}
	if s := symbols[symbolKey{k.Symbol, elf.STT_OBJECT}]; s == nil {
		p.add("kernel %s: no symbol %q for its descriptor", k.Name, k.Symbol)
	} else if b, err := e.contents(s); err != nil {
		p.add("kernel %s: descriptor: %v", k.Name, err)
	} else if k.Descriptor, err = readDescriptor(b, s.value); err != nil {
		p.add("kernel %s: symbol %s: %v", k.Name, k.Symbol, err)
	}
	s := symbols[symbolKey{function, elf.STT_FUNC}]
	if s == nil {
		p.add("kernel %s: no function symbol %q for its code", k.Name, function)
		return
	}
	b, err := e.contents(s)
	switch {
	case err != nil:
		p.add("kernel %s: code: %v", k.Name, err)
	case len(b) == 0 || len(b)%4 != 0:
		p.add("kernel %s: code of %d bytes: not a positive multiple of 4", k.Name, len(b))
	default:
		k.Section, k.Address, k.Code = e.sections[s.section].name, s.value, b
	}
}

// DeviceFunction is a function that kernels call.
type DeviceFunction struct {
	Name    string
	Section string
	Address uint64
	Code    []byte
}

// functions lists those that are no kernel. Aliases of one function are one.
func (e *elfFile) functions(kernels []Kernel, p *problems) []DeviceFunction {
	seen, ofKernel := map[uint64]bool{}, map[string]bool{}
	for i := range kernels {
		seen[kernels[i].Address] = true
		ofKernel[strings.TrimSuffix(kernels[i].Symbol, ".kd")] = true
	}
	var list []DeviceFunction
	for _, table := range [][]symbol{e.symtab, e.dynsym} {
		for i := range table {
			s := &table[i]
			if s.typ != elf.STT_FUNC || s.section == shnUndef || s.size == 0 || seen[s.value] || ofKernel[s.name] {
				continue
			}
			seen[s.value] = true
			b, err := e.contents(s)
			switch {
			case err != nil:
				p.add("function %s: %v", s.name, err)
			case len(b)%4 != 0:
				p.add("function %s: code of %d bytes: not a multiple of 4", s.name, len(b))
			default:
				list = append(list, DeviceFunction{Name: s.name, Section: e.sections[s.section].name, Address: s.value, Code: b})
			}
		}
	}
	slices.SortFunc(list, func(a, b DeviceFunction) int { return cmp.Compare(a.Address, b.Address) })
	return list
}

// occupancy fills in k.Occupancy. The descriptor can allocate more registers
// than the metadata counts, if the source bounds the number of waves.
func (k *Kernel) occupancy(chipName string) {
	r := Resources{VGPRs: k.VGPRs, SGPRs: k.SGPRs, LDSBytes: k.LDSBytes, Workgroup: k.MaxWorkgroup}
	if len(k.RequiredWorkgroup) == 3 {
		n := int64(1)
		for _, side := range k.RequiredWorkgroup {
			if n *= int64(side); n > int64(k.MaxWorkgroup) {
				return // reported by check
			}
		}
		r.Workgroup = int(n)
	}
	if c, ok := chips[chipName]; ok && k.Descriptor != nil {
		r.VGPRs = max(r.VGPRs, k.Descriptor.VGPRGranules()*c.vgprGranule)
	}
	if waves, ok := Occupancy(chipName, r); ok {
		k.Occupancy = &waves
	}
}
