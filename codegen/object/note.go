package object

import (
	"debug/elf"
	"fmt"
	"strings"
)

// The note that holds the metadata (AMDGPUUsage, "Note Records").
const (
	noteOwner = "AMDGPU\x00"
	noteType  = 32 // NT_AMDGPU_METADATA
)

// metadata is the root map of the note.
type metadata struct {
	version [2]int
	target  string
	kernels []Kernel
	unknown []string
}

// metadataNote finds the one metadata note, and its offset in the file.
func (e *elfFile) metadataNote() (note []byte, offset uint64, err error) {
	for i, s := range e.sections {
		if s.typ != elf.SHT_NOTE {
			continue
		}
		for pos := uint64(0); pos < uint64(len(s.data)); {
			what := fmt.Sprintf("elf section %d (%s): note at offset 0x%x", i, s.name, s.offset+pos)
			head, err := window(s.data, pos, 12, what)
			if err != nil {
				return nil, 0, err
			}
			nameSize, descSize, typ := uint64(le.Uint32(head)), uint64(le.Uint32(head[4:])), le.Uint32(head[8:])
			pos += 12
			name, err := window(s.data, pos, nameSize, what+": n_namesz")
			if err != nil {
				return nil, 0, err
			}
			pos += align4(nameSize)
			desc, err := window(s.data, pos, descSize, what+": n_descsz")
			if err != nil {
				return nil, 0, err
			}
			if string(name) == noteOwner && typ == noteType {
				if note != nil {
					return nil, 0, fmt.Errorf("%s: a second AMDGPU metadata note, after the one at 0x%x", what, offset)
				}
				note, offset = desc, s.offset+pos
			}
			pos += align4(descSize)
		}
	}
	if note == nil {
		return nil, 0, fmt.Errorf("no note of owner AMDGPU and type %d: no kernel metadata", noteType)
	}
	return note, offset, nil
}

func align4(n uint64) uint64 { return (n + 3) &^ 3 }

// decodeMetadata reads the note. Its tables are those of AMDGPUUsage, "Code
// Object V3 Metadata" with the changes of V4 and V5.
func decodeMetadata(note []byte, offset uint64) (*metadata, error) {
	d := &decoder{data: note, base: offset}
	m := &metadata{}
	if err := readMap(d, rootFields, m, keep(&m.unknown, "")); err != nil {
		return nil, err
	}
	if d.pos != len(note) {
		return nil, d.errorAt(d.pos, "%d bytes follow the map", len(note)-d.pos)
	}
	return m, nil
}

// keep collects the keys that no table has.
func keep(into *[]string, prefix string) func(string) {
	return func(key string) {
		if len(*into) <= maxProblems { // more are not shown
			*into = append(*into, prefix+key)
		}
	}
}

var rootFields = []field[metadata]{
	{"amdhsa.version", true, func(d *decoder, m *metadata) error {
		v, err := counts(d, 2)
		if err == nil {
			m.version = [2]int(v)
		}
		return err
	}},
	{"amdhsa.target", true, func(d *decoder, m *metadata) (err error) {
		m.target, err = d.str()
		return err
	}},
	{"amdhsa.kernels", true, func(d *decoder, m *metadata) error {
		return d.array(func(int) error {
			var k Kernel
			err := readMap(d, kernelFields, &k, keep(&k.unknown, ""))
			if e, ok := err.(*fieldError); ok && k.Name != "" {
				e.what += fmt.Sprintf(" (kernel %q)", k.Name)
			}
			m.kernels = append(m.kernels, k)
			return err
		})
	}},
	{"amdhsa.printf", false, nil},
}

var kernelFields = []field[Kernel]{
	{".name", true, text1(func(k *Kernel) *string { return &k.Name })},
	{".symbol", true, text1(func(k *Kernel) *string { return &k.Symbol })},
	{".args", false, func(d *decoder, k *Kernel) error {
		return d.array(func(i int) error {
			var a Arg
			err := readMap(d, argFields, &a, keep(&k.unknown, fmt.Sprintf(".args[%d]", i)))
			k.Args = append(k.Args, a)
			return err
		})
	}},
	{".kernarg_segment_size", true, number(func(k *Kernel) *int { return &k.KernargBytes })},
	{".kernarg_segment_align", true, number(func(k *Kernel) *int { return &k.KernargAlign })},
	{".group_segment_fixed_size", true, number(func(k *Kernel) *int { return &k.LDSBytes })},
	{".private_segment_fixed_size", true, number(func(k *Kernel) *int { return &k.ScratchBytes })},
	{".wavefront_size", true, number(func(k *Kernel) *int { return &k.Wavefront })},
	{".sgpr_count", true, number(func(k *Kernel) *int { return &k.SGPRs })},
	{".vgpr_count", true, number(func(k *Kernel) *int { return &k.VGPRs })},
	{".agpr_count", false, optional(func(k *Kernel) **int { return &k.AGPRs })},
	{".max_flat_workgroup_size", true, number(func(k *Kernel) *int { return &k.MaxWorkgroup })},
	{".sgpr_spill_count", false, optional(func(k *Kernel) **int { return &k.SGPRSpills })},
	{".vgpr_spill_count", false, optional(func(k *Kernel) **int { return &k.VGPRSpills })},
	{".reqd_workgroup_size", false, func(d *decoder, k *Kernel) (err error) {
		k.RequiredWorkgroup, err = counts(d, 3)
		return err
	}},
	{".uses_dynamic_stack", false, func(d *decoder, k *Kernel) error {
		b, err := d.boolean()
		k.DynamicStack = &b
		return err
	}},
	{".language", false, nil},
	{".language_version", false, nil},
	{".workgroup_size_hint", false, nil},
	{".vec_type_hint", false, nil},
	{".device_enqueue_symbol", false, nil},
	{".kind", false, nil},
	{".workgroup_processor_mode", false, nil},
	{".uniform_work_group_size", false, nil},
}

var argFields = []field[Arg]{
	{".name", false, text1(func(a *Arg) *string { return &a.Name })},
	{".offset", true, number(func(a *Arg) *int { return &a.Offset })},
	{".size", true, number(func(a *Arg) *int { return &a.Size })},
	{".value_kind", true, text1(func(a *Arg) *string { return &a.ValueKind })},
	{".address_space", false, text1(func(a *Arg) *string { return &a.AddressSpace })},
	{".access", false, text1(func(a *Arg) *string { return &a.Access })},
	{".actual_access", false, text1(func(a *Arg) *string { return &a.ActualAccess })},
	{".type_name", false, nil},
	{".value_type", false, nil},
	{".pointee_align", false, nil},
	{".is_const", false, nil},
	{".is_restrict", false, nil},
	{".is_volatile", false, nil},
	{".is_pipe", false, nil},
}

// text1 reads a string that is printed in one line: without control characters,
// which could rewrite a terminal.
func text1[T any](at func(*T) *string) func(*decoder, *T) error {
	return func(d *decoder, into *T) error {
		pos := d.pos
		s, err := d.str()
		if err == nil && strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r >= 0x7f && r < 0xa0 }) {
			err = d.errorAt(pos, "the string %q has control characters", s)
		}
		*at(into) = s
		return err
	}
}

func number[T any](at func(*T) *int) func(*decoder, *T) error {
	return func(d *decoder, into *T) (err error) {
		*at(into), err = d.count()
		return err
	}
}

func optional[T any](at func(*T) **int) func(*decoder, *T) error {
	return func(d *decoder, into *T) error {
		n, err := d.count()
		*at(into) = &n
		return err
	}
}

// counts reads an array of n numbers.
func counts(d *decoder, n int) ([]int, error) {
	at := d.pos
	var list []int
	err := d.array(func(i int) error {
		if i == n {
			return d.errorAt(d.pos, "one item more than the %d that belong here", n)
		}
		v, err := d.count()
		list = append(list, v)
		return err
	})
	if err == nil && len(list) != n {
		err = d.errorAt(at, "has %d items, want %d", len(list), n)
	}
	return list, err
}
