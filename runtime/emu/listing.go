package emu

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"

	"github.com/kiln-project/kiln/codegen/object"
)

// Loader loads code objects, and knows the disassemblies of those loaded before.
type Loader struct {
	ObjDump string // LLVM's llvm-objdump
	Version string // of that LLVM: texts of another one are not used
	Store   Store  // nil keeps nothing
}

// Store keeps what is costly to make, by digests in hexadecimal; compiled kernels
// are in it too (codegen.Cache).
type Store interface {
	// Get returns an entry that is whole.
	Get(key string) ([]byte, bool)
	Put(key string, data []byte) error
}

// disassembly is what the disassembler says of a code object.
type disassembly struct {
	Kernels map[string][]object.Line
	// Functions are those that kernels may call, in the order of the object's list.
	Functions [][]object.Line
}

// disassemble returns the instructions of the code's kernels, and of so many
// functions.
func (l Loader) disassemble(ctx context.Context, code []byte, functions int) (*disassembly, error) {
	key := ""
	if l.Store != nil {
		digest := sha256.New()
		fmt.Fprintf(digest, "disassembly as JSON\n%q\n", l.Version)
		digest.Write(code)
		key = hex.EncodeToString(digest.Sum(nil))
		if data, ok := l.Store.Get(key); ok {
			d := &disassembly{}
			if err := json.Unmarshal(data, d); err == nil && len(d.Functions) == functions {
				return d, nil
			}
		}
	}
	kernels, err := object.Disassemble(ctx, l.ObjDump, code, "")
	if err != nil {
		return nil, err
	}
	d := &disassembly{Kernels: kernels}
	if functions > 0 {
		if d.Functions, err = object.DisassembleFunctions(ctx, l.ObjDump, code, ""); err != nil {
			return nil, err
		}
	}
	if l.Store == nil {
		return d, nil
	}
	data, err := json.Marshal(d)
	if err != nil {
		return nil, err
	}
	return d, l.Store.Put(key, data)
}
