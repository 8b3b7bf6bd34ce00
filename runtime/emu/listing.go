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

// disassemble returns the instructions of the code's kernels.
func (l Loader) disassemble(ctx context.Context, code []byte) (map[string][]object.Line, error) {
	if l.Store == nil {
		return object.Disassemble(ctx, l.ObjDump, code, "")
	}
	digest := sha256.New()
	fmt.Fprintf(digest, "disassembly as JSON\n%q\n", l.Version)
	digest.Write(code)
	key := hex.EncodeToString(digest.Sum(nil))
	if data, ok := l.Store.Get(key); ok {
		var listing map[string][]object.Line
		if err := json.Unmarshal(data, &listing); err == nil {
			return listing, nil
		}
	}
	listing, err := object.Disassemble(ctx, l.ObjDump, code, "")
	if err != nil {
		return nil, err
	}
	data, err := json.Marshal(listing)
	if err != nil {
		return nil, err
	}
	return listing, l.Store.Put(key, data)
}
