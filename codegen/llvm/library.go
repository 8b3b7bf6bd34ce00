package llvm

import (
	"debug/elf"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// libraryOf returns the libLLVM that an llc is linked to, or why there is none.
// Only that library is sure to give llc's results.
func libraryOf(llc string) (path, why string) {
	real, err := filepath.EvalSymlinks(llc)
	if err != nil {
		return "", err.Error()
	}
	beside := filepath.Join(filepath.Dir(real), "..", "lib")
	f, err := elf.Open(real)
	if err != nil {
		// macOS: Mach-O, and one fixed name.
		if dylib := filepath.Join(beside, "libLLVM.dylib"); regular(dylib) {
			return filepath.Clean(dylib), ""
		}
		return "", fmt.Sprintf("cannot tell which libLLVM %s uses: %v", real, err)
	}
	defer f.Close()
	needed, err := f.ImportedLibraries()
	if err != nil {
		return "", fmt.Sprintf("%s: %v", real, err)
	}
	name := ""
	for _, n := range needed {
		if strings.HasPrefix(n, "libLLVM") {
			name = n
		}
	}
	if name == "" {
		return "", fmt.Sprintf("%s contains LLVM itself and uses no libLLVM", real)
	}
	var dirs []string
	for _, tag := range []elf.DynTag{elf.DT_RUNPATH, elf.DT_RPATH} {
		values, err := f.DynString(tag)
		if err != nil {
			continue // this tag is absent or unreadable; the loader's own search remains
		}
		for _, v := range values {
			for d := range strings.SplitSeq(v, ":") {
				d = strings.NewReplacer("${ORIGIN}", "$ORIGIN").Replace(d)
				if rest, ok := strings.CutPrefix(d, "$ORIGIN"); ok {
					d = filepath.Dir(real) + rest
				}
				dirs = append(dirs, d)
			}
		}
	}
	for _, d := range append(dirs, beside) {
		if p := filepath.Join(d, name); filepath.IsAbs(p) && regular(p) {
			return p, ""
		}
	}
	return name, "" // the system's loader knows where
}

// buildID returns the GNU build id of the first file that has one, in hex.
func buildID(paths ...string) string {
	for _, path := range paths {
		real, err := filepath.EvalSymlinks(path)
		if err != nil {
			continue
		}
		f, err := elf.Open(real)
		if err != nil {
			continue
		}
		id := gnuBuildID(f)
		f.Close()
		if id != "" {
			return id
		}
	}
	return ""
}

func gnuBuildID(f *elf.File) string {
	s := f.Section(".note.gnu.build-id")
	if s == nil {
		return ""
	}
	// Header of a note: sizes of name and content, type; then "GNU\0".
	data, err := s.Data()
	if err != nil || len(data) < 16 {
		return ""
	}
	n := uint64(binary.LittleEndian.Uint32(data[4:]))
	if binary.LittleEndian.Uint32(data) != 4 || string(data[12:16]) != "GNU\x00" || n > uint64(len(data)-16) {
		return ""
	}
	return hex.EncodeToString(data[16 : 16+n])
}

func regular(path string) bool {
	st, err := os.Stat(path)
	return err == nil && st.Mode().IsRegular()
}
