package driver

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"debug/elf"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
)

// Build identifies the build of the library: Version is that of its interface, which
// several releases of a driver have. It is the build ID that linkers write (libcuda.so of
// NVIDIA's driver 580.159.04 has one), or without one the SHA-256 of the file; of a file
// that is no longer there, of its first segment in memory. CUDA's PTX compiler is a library
// beside libcuda, of the same release.
func (l *Library) Build() (string, error) {
	m := mappedAt(l.address)
	file, err := os.Open(cmp.Or(m.path, l.Path))
	if errors.Is(err, os.ErrNotExist) && m.first != nil { // removed or replaced since it was loaded
		return m.firstSegment()
	}
	if err != nil {
		return "", fmt.Errorf("which build %s is: %w", l.Path, err)
	}
	defer file.Close()
	if id := buildID(file); id != "" {
		return id, nil
	}
	h := sha256.New()
	if _, err := io.Copy(h, file); err != nil {
		return "", fmt.Errorf("which build %s is: %w", l.Path, err)
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

// mapped is a file that is mapped in this process.
type mapped struct {
	path  string     // with links followed; "" if the system does not say
	first *[2]uint64 // where its beginning lies, from and to
}

// mappedAt is the file at an address.
func mappedAt(address uintptr) mapped {
	maps, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		return mapped{}
	}
	begins := map[string]*[2]uint64{}
	for line := range strings.Lines(string(maps)) {
		// from-to permissions offset device inode path (proc_pid_maps(5))
		fields := strings.SplitN(strings.TrimRight(line, "\n"), " ", 6)
		if len(fields) < 6 {
			continue
		}
		first, last, _ := strings.Cut(fields[0], "-")
		from, err := strconv.ParseUint(first, 16, 64)
		if err != nil {
			continue
		}
		to, err := strconv.ParseUint(last, 16, 64)
		if err != nil {
			continue
		}
		path := strings.TrimLeft(fields[5], " ")
		if strings.Trim(fields[2], "0") == "" && begins[path] == nil {
			begins[path] = &[2]uint64{from, to}
		}
		if from <= uint64(address) && uint64(address) < to {
			return mapped{path, begins[path]}
		}
	}
	return mapped{}
}

// firstSegment is the SHA-256 of the file's first segment, which is only read: headers,
// symbols and, where the file has one, the build ID.
func (m mapped) firstSegment() (string, error) {
	memory, err := os.Open("/proc/self/mem")
	if err != nil {
		return "", fmt.Errorf("which build %s is: %w", m.path, err)
	}
	defer memory.Close()
	h := sha256.New()
	if _, err := io.Copy(h, io.NewSectionReader(memory, int64(m.first[0]), int64(m.first[1]-m.first[0]))); err != nil {
		return "", fmt.Errorf("which build %s is: %w", m.path, err)
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

// noteBuildID is the type of a GNU note that holds a build ID (elf(5)).
const noteBuildID = 3

// buildID reads the build ID of an ELF file, in hexadecimal; "" if there is none.
func buildID(r io.ReaderAt) string {
	f, err := elf.NewFile(r)
	if err != nil {
		return ""
	}
	for _, p := range f.Progs {
		if p.Type != elf.PT_NOTE {
			continue
		}
		notes, err := io.ReadAll(p.Open())
		if err != nil {
			return ""
		}
		for len(notes) >= 12 {
			name, desc := int(f.ByteOrder.Uint32(notes)), int(f.ByteOrder.Uint32(notes[4:]))
			kind := f.ByteOrder.Uint32(notes[8:])
			at := 12 + (name+3)/4*4
			end := at + (desc+3)/4*4
			if name < 0 || desc < 0 || end < at || at+desc > len(notes) {
				break
			}
			if kind == noteBuildID && bytes.Equal(notes[12:12+name], []byte("GNU\x00")) {
				return hex.EncodeToString(notes[at : at+desc])
			}
			notes = notes[min(end, len(notes)):]
		}
	}
	return ""
}
