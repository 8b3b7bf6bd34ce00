package host

import (
	"fmt"
	"os"

	"github.com/ebitengine/purego"
)

// Library is a loaded shared object of kernels.
type Library struct {
	handle  uintptr
	kernels map[string]uintptr
}

// OpenLibrary loads a shared object from memory; empty is a library without
// kernels. The file it needs for dlopen
// is gone when OpenLibrary returns.
func OpenLibrary(so []byte) (*Library, error) {
	if len(so) == 0 {
		return &Library{kernels: map[string]uintptr{}}, nil
	}
	f, err := os.CreateTemp("", "kiln-*.so")
	if err != nil {
		return nil, err
	}
	defer os.Remove(f.Name())
	_, err = f.Write(so)
	if e := f.Close(); err == nil {
		err = e
	}
	if err != nil {
		return nil, err
	}
	h, err := purego.Dlopen(f.Name(), purego.RTLD_NOW|purego.RTLD_LOCAL)
	if err != nil {
		return nil, fmt.Errorf("loading compiled kernels: %w", err)
	}
	return &Library{handle: h, kernels: map[string]uintptr{}}, nil
}

// Close unloads the library; its kernels must not run afterwards.
func (l *Library) Close() error {
	if l.handle == 0 {
		return nil
	}
	return purego.Dlclose(l.handle)
}

func (l *Library) kernel(symbol string) (uintptr, error) {
	if f, ok := l.kernels[symbol]; ok {
		return f, nil
	}
	if l.handle == 0 {
		return 0, fmt.Errorf("kernel %s: the library is empty", symbol)
	}
	f, err := purego.Dlsym(l.handle, symbol)
	if err != nil {
		return 0, fmt.Errorf("kernel %s is not in the compiled library: %w", symbol, err)
	}
	l.kernels[symbol] = f
	return f, nil
}
