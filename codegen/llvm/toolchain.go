package llvm

import (
	"fmt"
	"strings"
	"sync"
)

// Toolchain is an LLVM that [Find] found. Its fields are for reading.
type Toolchain struct {
	Version string // "22.1.8", as llc prints it
	Major   int    // 22
	Vendor  string // what llc prints before its version, such as "Debian" or "AMD"; often empty
	Source  string // where it was found, in words
	Dir     string // folder of llc

	// Opt, LLC and LLD (ld.lld) are absolute paths. ObjDump (llvm-objdump) is
	// empty if there is none: nothing here needs it.
	Opt, LLC, LLD, ObjDump string

	// LibLLVM is the library that llc itself uses: a path, or a name that the
	// system's loader finds. It is empty where LibLLVMWhy says why.
	LibLLVM, LibLLVMWhy string
	// Loader starts a command line that runs a program under the C library that
	// LibLLVM needs; nil when that is the system's.
	Loader []string
	// BuildID identifies the build of LibLLVM (of llc where there is none), in
	// hex; empty if it carries none.
	BuildID string

	// Tried lists the places that were looked at before this one, and why they
	// would not do.
	Tried []Attempt

	memo    Memo // of FindOptions
	mu      sync.Mutex
	targets map[string]*targetInfo // by triple; see target.go
}

// Attempt is a place where an LLVM was looked for.
type Attempt struct {
	Where   string `json:"where"`
	Problem string `json:"problem"`
}

// ID names the exact LLVM, for the key of a cache of its results: one version
// number can stand for many builds of a development branch.
func (tc *Toolchain) ID() string {
	parts := []string{"LLVM", tc.Version}
	if tc.Vendor != "" {
		parts = append(parts, tc.Vendor)
	}
	if tc.BuildID != "" {
		parts = append(parts, tc.BuildID)
	}
	return strings.Join(parts, " ")
}

// NotFoundError is the error of [Find] when no place has a usable LLVM.
type NotFoundError struct {
	Tried []Attempt
}

// Remedy says how to get an LLVM.
const Remedy = "run make toolchain, or install opt, llc and ld.lld of LLVM 20 or later with the AMDGPU target"

// Error gives one line with every place.
func (e *NotFoundError) Error() string {
	var b strings.Builder
	b.WriteString("llvm: no usable LLVM found")
	for _, a := range e.Tried {
		fmt.Fprintf(&b, "; %s: %s", a.Where, a.Problem)
	}
	return b.String() + "; " + Remedy
}
