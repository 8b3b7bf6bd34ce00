package llvm

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// stampName is the file that scripts/get-llvm.sh leaves in the folder it made.
const stampName = "get-llvm.stamp"

// stamp is what that file says. Paths in it are relative to its folder.
type stamp struct {
	major, source   string
	loader, libpath string // the C library's ld.so, and its library folders, colons between
	libllvm         string
}

// parseStamp reads lines of the form key=value.
func parseStamp(text string) (stamp, error) {
	var s stamp
	fields := map[string]*string{
		"major": &s.major, "source": &s.source, "loader": &s.loader, "libpath": &s.libpath, "libllvm": &s.libllvm,
	}
	n := 0
	for line := range strings.Lines(text) {
		n++
		key, value, ok := strings.Cut(strings.TrimSuffix(line, "\n"), "=")
		field := fields[key]
		switch {
		case !ok || field == nil:
			return stamp{}, fmt.Errorf("line %d: unknown key %q", n, key)
		case value == "":
			return stamp{}, fmt.Errorf("line %d: %s is empty", n, key)
		case *field != "":
			return stamp{}, fmt.Errorf("line %d: second %s", n, key)
		}
		*field = value
	}
	switch {
	case s.major == "" || s.source == "":
		return stamp{}, errors.New("no major or no source: the file is incomplete")
	case (s.loader == "") != (s.libpath == "") || (s.loader == "") != (s.libllvm == ""):
		return stamp{}, errors.New("loader, libpath and libllvm must come together")
	}
	if s.loader == "" {
		return s, nil
	}
	for _, p := range append(strings.Split(s.libpath, ":"), s.loader, s.libllvm) {
		if !filepath.IsLocal(p) { // also the empty path
			return stamp{}, fmt.Errorf("path %q leaves the folder", p)
		}
	}
	return s, nil
}

// readStamp reads the stamp of a folder; it is nil without error where there is none.
func readStamp(prefix string) (*stamp, error) {
	path := filepath.Join(prefix, stampName)
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	s, err := parseStamp(string(text))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return &s, nil
}

// loaderCommand is the start of a command line that runs a program under the
// unpacked C library; nil when the tools use the system's own.
func (s *stamp) loaderCommand(prefix string) []string {
	if s == nil || s.loader == "" {
		return nil
	}
	var dirs []string
	for d := range strings.SplitSeq(s.libpath, ":") {
		dirs = append(dirs, filepath.Join(prefix, d))
	}
	return []string{filepath.Join(prefix, s.loader), "--library-path", strings.Join(dirs, ":")}
}
