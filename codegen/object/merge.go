package object

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"fmt"
	"slices"
)

// kernelsKey is the root map's list of kernels.
const kernelsKey = "amdhsa.kernels"

// MergeNotes gives a linked code object one metadata note. A linker joins the
// note sections of its inputs and leaves one note per input, of which a loader
// reads the first alone: this makes one note that lists the kernels of all, and
// shortens section and segment to it. Other bytes stay as they are. The notes
// must agree in everything but their kernels.
func MergeNotes(data []byte) ([]byte, error) {
	e, err := readELF(data)
	if err != nil {
		return nil, err
	}
	for i, s := range e.sections {
		if s.typ != elf.SHT_NOTE {
			continue
		}
		descs, offsets, err := metadataNotes(s, i)
		if err != nil {
			return nil, err
		}
		if len(descs) < 2 {
			continue
		}
		merged, err := mergeMetadata(descs, offsets)
		if err != nil {
			return nil, err
		}
		return replaceNote(bytes.Clone(data), i, s, merged)
	}
	return data, nil
}

// metadataNotes lists the metadata notes of a section that holds nothing else,
// and their offsets in the file.
func metadataNotes(s section, index int) (descs [][]byte, offsets []uint64, err error) {
	for pos := uint64(0); pos < uint64(len(s.data)); {
		what := fmt.Sprintf("elf section %d (%s): note at offset 0x%x", index, s.name, s.offset+pos)
		head, err := window(s.data, pos, 12, what)
		if err != nil {
			return nil, nil, err
		}
		nameSize, descSize, typ := uint64(le.Uint32(head)), uint64(le.Uint32(head[4:])), le.Uint32(head[8:])
		name, err := window(s.data, pos+12, nameSize, what+": n_namesz")
		if err != nil {
			return nil, nil, err
		}
		if string(name) != noteOwner || typ != noteType {
			return nil, nil, fmt.Errorf("%s: owner %q, type %d among the metadata", what, name, typ)
		}
		pos += 12 + align4(nameSize)
		desc, err := window(s.data, pos, descSize, what+": n_descsz")
		if err != nil {
			return nil, nil, err
		}
		descs, offsets = append(descs, desc), append(offsets, s.offset+pos)
		pos += align4(descSize)
	}
	return descs, offsets, nil
}

// rootEntry is one key of a metadata map with its value's bytes. Of the list of
// kernels, value holds the elements without the list's head.
type rootEntry struct {
	key   string
	value []byte
	count int // elements of the list of kernels
}

func rootEntries(desc []byte, offset uint64) ([]rootEntry, error) {
	d := &decoder{data: desc, base: offset}
	root, err := d.want(kindMap)
	if err != nil {
		return nil, err
	}
	var out []rootEntry
	for range root.num {
		key, err := d.str()
		if err != nil {
			return nil, err
		}
		r := rootEntry{key: key}
		if key == kernelsKey {
			list, err := d.want(kindArray)
			if err != nil {
				return nil, within(key, err)
			}
			r.count = int(list.num)
			start := d.pos
			for range r.count {
				if err := d.skip(0); err != nil {
					return nil, within(key, err)
				}
			}
			r.value = desc[start:d.pos]
		} else {
			start := d.pos
			if err := d.skip(0); err != nil {
				return nil, within(key, err)
			}
			r.value = desc[start:d.pos]
		}
		out = append(out, r)
	}
	if d.pos != len(desc) {
		return nil, d.errorAt(d.pos, "%d bytes follow the map", len(desc)-d.pos)
	}
	return out, nil
}

// mergeMetadata makes one map of several.
func mergeMetadata(descs [][]byte, offsets []uint64) ([]byte, error) {
	first, err := rootEntries(descs[0], offsets[0])
	if err != nil {
		return nil, err
	}
	at := slices.IndexFunc(first, func(r rootEntry) bool { return r.key == kernelsKey })
	if at < 0 {
		return nil, fmt.Errorf("metadata at offset 0x%x: no %s", offsets[0], kernelsKey)
	}
	first[at].value = slices.Clone(first[at].value)
	for i := 1; i < len(descs); i++ {
		next, err := rootEntries(descs[i], offsets[i])
		if err != nil {
			return nil, err
		}
		for j, r := range next {
			if j >= len(first) || len(next) != len(first) || r.key != first[j].key || r.key != kernelsKey && !bytes.Equal(r.value, first[j].value) {
				return nil, fmt.Errorf("metadata at offset 0x%x: %s differs from the note at 0x%x", offsets[i], r.key, offsets[0])
			}
			if r.key == kernelsKey {
				first[at].value, first[at].count = append(first[at].value, r.value...), first[at].count+r.count
			}
		}
	}
	out := []byte{0xDE} // map16
	out = binary.BigEndian.AppendUint16(out, uint16(len(first)))
	for _, r := range first {
		out = append(out, 0xDA) // str16
		out = binary.BigEndian.AppendUint16(out, uint16(len(r.key)))
		out = append(out, r.key...)
		if r.key == kernelsKey {
			out = append(out, 0xDD) // array32
			out = binary.BigEndian.AppendUint32(out, uint32(r.count))
		}
		out = append(out, r.value...)
	}
	return out, nil
}

// replaceNote writes one note over a section's notes and shortens the section
// and the note segment that shows it.
func replaceNote(data []byte, index int, s section, desc []byte) ([]byte, error) {
	var note []byte
	note = le.AppendUint32(note, uint32(len(noteOwner)))
	note = le.AppendUint32(note, uint32(len(desc)))
	note = le.AppendUint32(note, noteType)
	note = append(note, noteOwner...)
	for len(note)%4 != 0 {
		note = append(note, 0)
	}
	note = append(note, desc...)
	for len(note)%4 != 0 {
		note = append(note, 0)
	}
	if len(note) > len(s.data) {
		return nil, fmt.Errorf("elf section %d (%s): the merged note needs %d bytes, there are %d", index, s.name, len(note), len(s.data))
	}
	clear(data[s.offset : s.offset+uint64(len(s.data))])
	copy(data[s.offset:], note)

	// Offsets in the ELF64 header, section header and program header.
	shoff, phoff := le.Uint64(data[0x28:]), le.Uint64(data[0x20:])
	shent, phent, phnum := uint64(le.Uint16(data[0x3A:])), uint64(le.Uint16(data[0x36:])), uint64(le.Uint16(data[0x38:]))
	le.PutUint64(data[shoff+uint64(index)*shent+0x20:], uint64(len(note)))
	for i := range phnum {
		p := data[phoff+i*phent:]
		if elf.ProgType(le.Uint32(p)) == elf.PT_NOTE && le.Uint64(p[0x8:]) == s.offset {
			le.PutUint64(p[0x20:], uint64(len(note)))
			le.PutUint64(p[0x28:], uint64(len(note)))
		}
	}
	return data, nil
}
