package driver

import (
	"bytes"
	"crypto/sha256"
	"debug/elf"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
)

// Build identifies the build of the library: Version is that of its interface, which
// several releases of a driver have. It is the build ID that linkers write (libcuda.so of
// NVIDIA's driver 580.159.04 has one), or without one the SHA-256 of the file. CUDA's PTX
// compiler is a library beside libcuda, of the same release.
func (l *Library) Build() (string, error) {
	path := mappedFile(l.address)
	if path == "" {
		path = l.Path
	}
	file, err := os.Open(path)
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

// mappedFile is the file that is mapped at an address of this process, with links
// followed; "" if the system does not say.
func mappedFile(address uintptr) string {
	maps, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		return ""
	}
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
		if err == nil && from <= uint64(address) && uint64(address) < to {
			return strings.TrimLeft(fields[5], " ")
		}
	}
	return ""
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
