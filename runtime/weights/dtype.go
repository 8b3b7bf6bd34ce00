package weights

import "fmt"

// DType is the element type of a tensor. The zero DType is not valid.
type DType uint8

// The element types this package reads and writes. Packed e2m1 weights are
// stored as I8, two codes per byte.
const (
	F8E4M3 DType = iota + 1 // OCP e4m3fn
	F8E8M0                  // power-of-two scale
	I8
	U8
	Bool // one byte, 0 or 1
	BF16
	F16
	F32
	F64
	I32
	I64
)

// dtypes is indexed by DType.
var dtypes = [...]struct {
	name string // spelling in the file
	size int    // bytes of one element
}{
	F8E4M3: {"F8_E4M3", 1},
	F8E8M0: {"F8_E8M0", 1},
	I8:     {"I8", 1},
	U8:     {"U8", 1},
	Bool:   {"BOOL", 1},
	BF16:   {"BF16", 2},
	F16:    {"F16", 2},
	F32:    {"F32", 4},
	F64:    {"F64", 8},
	I32:    {"I32", 4},
	I64:    {"I64", 8},
}

// ParseDType returns the DType with the given safetensors spelling.
func ParseDType(name string) (DType, error) {
	for d := range dtypes {
		if d > 0 && dtypes[d].name == name {
			return DType(d), nil
		}
	}
	return 0, &UnsupportedError{fmt.Sprintf("dtype %s is not supported", quote(name))}
}

func (d DType) valid() bool { return d > 0 && int(d) < len(dtypes) }

// String returns the safetensors spelling.
func (d DType) String() string {
	if !d.valid() {
		return fmt.Sprintf("DType(%d)", uint8(d))
	}
	return dtypes[d].name
}

// Size returns the bytes of one element, 0 for a DType that is not valid.
func (d DType) Size() int {
	if !d.valid() {
		return 0
	}
	return dtypes[d].size
}

// UnsupportedError is about something that is well formed and that this package
// does not read.
type UnsupportedError struct{ what string }

func (e *UnsupportedError) Error() string { return e.what }
