package object

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
	"strings"
)

const (
	bundleMagic     = "__CLANG_OFFLOAD_BUNDLE__"
	compressedMagic = "CCOB"

	// Bounds of what a real bundle has: tens of targets, IDs of tens of bytes.
	maxEntries = 4096
	maxEntryID = 4096
)

// Entry is a file in an offload bundle (clang's "Clang Offload Bundler", table
// "Bundled Code Object Layout").
type Entry struct {
	ID     string // hipv4-amdgcn-amd-amdhsa--gfx942:sramecc+
	Kind   string // what made it: host, hip, hipv4, openmp, ...
	Triple string // amdgcn-amd-amdhsa-
	Target string // target ID, "" if there is none: gfx942:sramecc+
	Offset uint64 // in the bundle
	Size   uint64

	// Object is nil for an entry that is not for an AMDGPU, which is skipped.
	Object *CodeObject
}

func readBundle(data []byte) (*File, error) {
	pos := uint64(len(bundleMagic))
	word := func(what string) (uint64, error) {
		b, err := window(data, pos, 8, what)
		if err != nil {
			return 0, err
		}
		pos += 8
		return le.Uint64(b), nil
	}
	count, err := word("bundle: number of entries")
	if err != nil {
		return nil, err
	}
	if count > maxEntries {
		return nil, fmt.Errorf("bundle: number of entries at offset 0x18 is %d, more than %d", count, maxEntries)
	}
	f := &File{Kind: KindBundle}
	var p problems
	seen := map[string]bool{}
	for i := range count {
		what := fmt.Sprintf("bundle entry %d", i)
		at := pos
		var e Entry
		if e.Offset, err = word(what + ": offset"); err != nil {
			return nil, err
		}
		if e.Size, err = word(what + ": size"); err != nil {
			return nil, err
		}
		n, err := word(what + ": length of the ID")
		if err != nil {
			return nil, err
		}
		if n > maxEntryID {
			return nil, fmt.Errorf("%s: length of the ID at offset 0x%x is %d, more than %d", what, pos-8, n, maxEntryID)
		}
		id, err := window(data, pos, n, what+": ID")
		if err != nil {
			return nil, err
		}
		for _, c := range id {
			if c <= ' ' || c >= 0x7f {
				return nil, fmt.Errorf("%s: ID at offset 0x%x is %q, want printable ASCII", what, pos, id)
			}
		}
		pos += n
		e.ID = string(id)
		if seen[e.ID] {
			return nil, fmt.Errorf("%s at offset 0x%x: ID %s is there twice", what, at, e.ID)
		}
		seen[e.ID] = true
		if _, err := window(data, e.Offset, e.Size, fmt.Sprintf("%s (%s): offset, size", what, e.ID)); err != nil {
			return nil, err
		}
		e.split()
		f.Entries = append(f.Entries, e)
	}
	if err := overlap(f.Entries); err != nil {
		return nil, err
	}
	for i := range f.Entries {
		e := &f.Entries[i]
		if arch, _, _ := strings.Cut(e.Triple, "-"); arch != "amdgcn" && arch != "amdgpu" {
			continue
		}
		if e.Object, err = readEntry(data[e.Offset : e.Offset+e.Size]); err != nil {
			return nil, fmt.Errorf("bundle entry %d (%s) at offset 0x%x: %w", i, e.ID, e.Offset, err)
		}
		if t, err := ParseTargetID(e.Target); err != nil {
			p.add("%s: %v", e.ID, err)
		} else if t.String() != e.Object.Target.String() {
			p.add("%s: the entry's target is %s, its code object's is %s", e.ID, t, e.Object.Target)
		}
		for _, text := range e.Object.Problems {
			p.add("%s: %s", e.ID, text)
		}
	}
	f.Problems = p.all()
	return f, nil
}

// overlap refuses entries that share bytes: no tool makes them, and many
// entries of one large file would take many times its size to read.
func overlap(entries []Entry) error {
	order := slices.Clone(entries)
	slices.SortStableFunc(order, func(a, b Entry) int { return cmp.Compare(a.Offset, b.Offset) })
	order = slices.DeleteFunc(order, func(e Entry) bool { return e.Size == 0 })
	for i := 1; i < len(order); i++ {
		if a, b := order[i-1], order[i]; a.Offset+a.Size > b.Offset {
			return fmt.Errorf("bundle entries %s (0x%x bytes at offset 0x%x) and %s (at offset 0x%x) overlap", a.ID, a.Size, a.Offset, b.ID, b.Offset)
		}
	}
	return nil
}

// split takes the ID apart: KIND-ARCH-VENDOR-OS-ENVIRONMENT[-TARGET], where old
// bundles leave the environment out.
func (e *Entry) split() {
	e.Kind, e.Triple, _ = strings.Cut(e.ID, "-")
	parts := strings.SplitN(e.Triple, "-", 5)
	n := min(4, len(parts))
	if n == 4 && strings.HasPrefix(parts[3], "gfx") {
		n = 3
	}
	e.Triple, e.Target = strings.Join(parts[:n], "-"), strings.Join(parts[n:], "-")
}

func readEntry(data []byte) (*CodeObject, error) {
	if !bytes.HasPrefix(data, []byte(elfMagic)) {
		return nil, fmt.Errorf("magic is %q: not an ELF file", data[:min(4, len(data))])
	}
	e, err := readELF(data)
	if err != nil {
		return nil, err
	}
	if e.machine != emAMDGPU {
		return nil, fmt.Errorf("elf e_machine at offset 0x12 is %d, want %d (AMDGPU)", e.machine, emAMDGPU)
	}
	return readCodeObject(e)
}
