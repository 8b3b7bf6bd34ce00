package tune

import (
	"embed"
	"errors"
	"io/fs"
	"path"
	"strings"
	"sync"
)

//go:embed tables
var files embed.FS

const folder, suffix = "tables", ".txt"

// For returns the committed table of a target, or nil if nothing was measured there. A
// name with an "a" behind it is that of a chip with the instructions that newer ones need
// not have: such a target has the chip's table where it has none of its own.
func For(target string) (*Table, error) {
	all, err := committed()
	if t := all[target]; t != nil {
		return t, err
	}
	return all[strings.TrimSuffix(target, "a")], err
}

// committed reads all tables once.
var committed = sync.OnceValues(func() (map[string]*Table, error) { return read(files) })

// read reads the tables of a file system by target.
func read(from fs.FS) (map[string]*Table, error) {
	list, err := fs.ReadDir(from, folder)
	if err != nil {
		return nil, err
	}
	out := map[string]*Table{}
	var errs []error
	for _, f := range list {
		if path.Ext(f.Name()) != suffix {
			continue
		}
		name := path.Join(folder, f.Name())
		text, err := fs.ReadFile(from, name)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		t, err := Parse(name, string(text))
		switch {
		case err != nil:
			errs = append(errs, err)
		case t.Target+suffix != f.Name():
			errs = append(errs, errors.New(name+":2: is the table of target "+t.Target))
		default:
			out[t.Target] = t
		}
	}
	return out, errors.Join(errs...)
}
