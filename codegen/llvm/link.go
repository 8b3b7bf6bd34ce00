package llvm

import (
	"bytes"
	"context"
	"debug/elf"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// hostSymbols are the functions that a shared object of the host may leave to
// the process that loads it: LLVM calls them on its own account, and a process
// that loads libraries without cgo has the C library loaded. AMDGPU has none.
var hostSymbols = []string{"memcpy", "memset"}

// elfMachine has the fields of debug/elf that say for what an object is.
type elfMachine struct {
	machine elf.Machine
	class   elf.Class
	data    elf.Data
}

// Link joins relocatable objects to a shared object with ld.lld: a code object
// from AMDGPU objects, a library to load from those of a host (compiled with
// PIC). The output's name is for errors only. A symbol left undefined is an error
// that names it and who uses it, except memcpy and memset on a host. The result
// depends on the objects and their order alone.
func (tc *Toolchain) Link(ctx context.Context, name string, objs [][]byte) ([]byte, error) {
	fail := func(text string, cause error) error {
		j := Job{Name: name}
		return j.fail("link", text, cause)
	}
	if len(objs) == 0 {
		return nil, fail("no objects", nil)
	}
	files := make([]*elf.File, len(objs))
	var first elfMachine
	for i, o := range objs {
		f, err := elf.NewFile(bytes.NewReader(o))
		if err != nil {
			return nil, fail(fmt.Sprintf("object %d: %v", i, err), err)
		}
		if f.Type != elf.ET_REL {
			return nil, fail(fmt.Sprintf("object %d: its type is %v, not %v", i, f.Type, elf.ET_REL), nil)
		}
		m := elfMachine{f.Machine, f.Class, f.Data}
		if i == 0 {
			first = m
		}
		if m != first {
			return nil, fail(fmt.Sprintf("object %d is for %v, object 0 for %v", i, m.machine, first.machine), nil)
		}
		files[i] = f
	}

	out, notes, err := tc.runLLD(ctx, objs)
	if err != nil {
		if ctx.Err() != nil {
			return nil, fail("", err)
		}
		return nil, fail(notes, err)
	}
	linked, err := elf.NewFile(bytes.NewReader(out))
	if err != nil {
		return nil, fail(fmt.Sprintf("ld.lld's result cannot be read: %v", err), err)
	}
	defer linked.Close()
	allowed := hostSymbols
	if first.machine == elf.EM_AMDGPU {
		allowed = nil
	}
	symbols, err := linked.DynamicSymbols()
	if err != nil && !errors.Is(err, elf.ErrNoSymbols) {
		return nil, fail(fmt.Sprintf("ld.lld's result has no readable symbols: %v", err), err)
	}
	var missing []string
	for _, s := range symbols {
		if s.Section == elf.SHN_UNDEF && !slices.Contains(allowed, s.Name) {
			missing = append(missing, s.Name+usedBy(files, s.Name))
		}
	}
	if missing != nil {
		slices.Sort(missing)
		return nil, fail("undefined symbol "+strings.Join(missing, ", "), nil)
	}
	return out, nil
}

// usedBy says which objects refer to a symbol, by the functions they define.
func usedBy(files []*elf.File, name string) string {
	var users []string
	for _, f := range files {
		if !slices.Contains(undefined(f), name) {
			continue
		}
		symbols, err := f.Symbols()
		if err != nil {
			continue
		}
		for _, s := range symbols {
			if elf.ST_TYPE(s.Info) == elf.STT_FUNC && s.Section != elf.SHN_UNDEF {
				users = append(users, s.Name)
			}
		}
	}
	if users == nil {
		return ""
	}
	return " (in the object of " + strings.Join(users, ", ") + ")"
}

// runLLD links in a folder of its own, with relative names, so that neither the
// result nor a message depends on where that is.
func (tc *Toolchain) runLLD(ctx context.Context, objs [][]byte) (out []byte, notes string, err error) {
	dir, err := os.MkdirTemp("", "kiln-link-")
	if err != nil {
		return nil, "", err
	}
	defer os.RemoveAll(dir)
	args := []string{"-shared", "--fatal-warnings", "--threads=1", "-o", "out"}
	for i, o := range objs {
		file := strconv.Itoa(i) + ".o"
		if err := os.WriteFile(filepath.Join(dir, file), o, 0o600); err != nil {
			return nil, "", err
		}
		args = append(args, file)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, defaultTimeout, &timeoutError{Options{Timeout: defaultTimeout}})
	defer cancel()
	if _, stderr, err := program(ctx, dir, nil, tc.LLD, args...); err != nil {
		return nil, string(stderr), err
	}
	out, err = os.ReadFile(filepath.Join(dir, "out"))
	return out, "", err
}
