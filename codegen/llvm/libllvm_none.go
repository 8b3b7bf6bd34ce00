//go:build !((linux || darwin) && (amd64 || arm64))

package llvm

import (
	"fmt"
	"runtime"
)

// library is a loaded libLLVM, which this system cannot have: its functions are
// called without cgo, and that works on few systems.
type library struct{}

func openLibrary(string) (*library, error) {
	return nil, fmt.Errorf("libLLVM cannot be called on %s/%s", runtime.GOOS, runtime.GOARCH)
}

func (*library) version() string { return "" }

func (*library) compile(*request) *response { return &response{Stage: "parse", Err: "no libLLVM"} }
