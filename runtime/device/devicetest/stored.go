package devicetest

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/kiln-project/kiln/codegen"
)

// Record compiles, and keeps the code in a folder, for Stored.
func Record(dir string, compile Compile) Compile {
	return func(ctx context.Context, u *codegen.Unit) (*codegen.Compiled, error) {
		out, err := compile(ctx, u)
		if err != nil {
			return nil, err
		}
		var buf bytes.Buffer
		w, err := gzip.NewWriterLevel(&buf, gzip.BestCompression)
		if err != nil {
			return nil, err
		}
		if _, err := w.Write(out.Object); err != nil {
			return nil, err
		}
		if err := w.Close(); err != nil {
			return nil, err
		}
		return out, os.WriteFile(storedName(dir, u), buf.Bytes(), 0o644)
	}
}

// Stored takes code from a folder that Record filled, where there is no LLVM. What
// is lowered there must be what was lowered then.
func Stored(dir string) Compile {
	return func(_ context.Context, u *codegen.Unit) (*codegen.Compiled, error) {
		if err := u.AddAround(); err != nil {
			return nil, err
		}
		f, err := os.Open(storedName(dir, u))
		if err != nil {
			return nil, fmt.Errorf("code that was not recorded: %w", err)
		}
		defer f.Close()
		r, err := gzip.NewReader(f)
		if err != nil {
			return nil, err
		}
		code, err := io.ReadAll(r)
		return &codegen.Compiled{Object: code}, err
	}
}

// storedName is the file of a unit with all of its kernels, by what its code depends on.
func storedName(dir string, u *codegen.Unit) string {
	h := sha256.New()
	fmt.Fprintln(h, u.Target.Name)
	for _, k := range u.Kernels {
		fmt.Fprintln(h, len(k.IR), k.Symbol)
		io.WriteString(h, k.IR)
	}
	return filepath.Join(dir, hex.EncodeToString(h.Sum(nil)[:16])+".gz")
}
