package weights

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/bits"

	"github.com/kiln-project/kiln/ir/num"
)

// Tensor is a named array in row-major, little-endian layout.
type Tensor struct {
	// Name is the tensor's name; in a Checkpoint, the canonical one.
	Name  string
	DType DType
	// Shape holds the extents, outermost first, each at least 1. Rank 0 is one
	// element.
	Shape []int
	// Data holds the elements' bytes without any alignment. In a Checkpoint it is
	// a slice of a read-only mapping: it must not be written to, nor used after
	// Close.
	Data []byte
	// File is the path of the file that holds the tensor, empty for one made in
	// memory.
	File string
}

// Float32Tensor makes an F32 tensor. Write refuses it if data does not have as
// many elements as shape.
func Float32Tensor(name string, shape []int, data []float32) Tensor {
	b := make([]byte, 0, 4*len(data))
	for _, v := range data {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(v))
	}
	return Tensor{Name: name, DType: F32, Shape: shape, Data: b}
}

// Int32Tensor makes an I32 tensor. Write refuses it if data does not have as
// many elements as shape.
func Int32Tensor(name string, shape []int, data []int32) Tensor {
	b := make([]byte, 0, 4*len(data))
	for _, v := range data {
		b = binary.LittleEndian.AppendUint32(b, uint32(v))
	}
	return Tensor{Name: name, DType: I32, Shape: shape, Data: b}
}

// maxRank bounds the dimensions of a tensor. The format has no bound of its
// own, and a header may list millions of ones.
const maxRank = 32

// byteSize returns the bytes that a tensor of this type and shape occupies.
func byteSize(d DType, shape []int) (uint64, error) {
	if !d.valid() {
		return 0, fmt.Errorf("dtype %v is not supported", d)
	}
	if len(shape) > maxRank {
		return 0, fmt.Errorf("shape has %d dimensions, at most %d are supported", len(shape), maxRank)
	}
	n := uint64(d.Size())
	for i, dim := range shape {
		if dim < 1 {
			return 0, fmt.Errorf("shape: dimension %d is %d, must be at least 1", i, dim)
		}
		hi, lo := bits.Mul64(n, uint64(dim))
		if hi != 0 || lo > math.MaxInt64 {
			return 0, fmt.Errorf("shape %v: size in bytes overflows", shape)
		}
		n = lo
	}
	return n, nil
}

// check verifies that Data has the size that DType and Shape ask for.
func (t *Tensor) check() error {
	size, err := byteSize(t.DType, t.Shape)
	if err == nil && size != uint64(len(t.Data)) {
		err = fmt.Errorf("%v of shape %v takes %d bytes, the data has %d", t.DType, t.Shape, size, len(t.Data))
	}
	return t.wrap(err)
}

// wrap adds the tensor's name and file to an error.
func (t *Tensor) wrap(err error) error {
	switch {
	case err == nil:
		return nil
	case t.File == "":
		return fmt.Errorf("tensor %s: %w", quote(t.Name), err)
	}
	return fmt.Errorf("%s: tensor %s: %w", t.File, quote(t.Name), err)
}

// Float32s returns the elements of a floating-point tensor, decoded to float32.
// F64 is rounded to nearest even; all other types fit exactly. F8_E8M0 gives
// the power of two. Integer tensors are an error.
func (t *Tensor) Float32s() ([]float32, error) {
	if err := t.check(); err != nil {
		return nil, err
	}
	// Elements are assembled from bytes, so unaligned data needs no special case.
	out := make([]float32, len(t.Data)/t.DType.Size())
	le, b := binary.LittleEndian, t.Data
	switch t.DType {
	case F8E4M3:
		for i := range out {
			out[i] = num.FromE4M3(b[i])
		}
	case F8E8M0:
		for i := range out {
			out[i] = num.FromE8M0(b[i])
		}
	case BF16:
		for i := range out {
			out[i] = num.FromBF16(le.Uint16(b[2*i:]))
		}
	case F16:
		for i := range out {
			out[i] = num.FromF16(le.Uint16(b[2*i:]))
		}
	case F32:
		for i := range out {
			out[i] = math.Float32frombits(le.Uint32(b[4*i:]))
		}
	case F64:
		for i := range out {
			out[i] = float32(math.Float64frombits(le.Uint64(b[8*i:])))
		}
	default:
		return nil, t.wrap(fmt.Errorf("dtype %v is not a floating-point type", t.DType))
	}
	return out, nil
}

// Int64s returns the elements of an integer or BOOL tensor. A BOOL byte other
// than 0 and 1, and floating-point tensors, are an error.
func (t *Tensor) Int64s() ([]int64, error) {
	if err := t.check(); err != nil {
		return nil, err
	}
	out := make([]int64, len(t.Data)/t.DType.Size())
	le, b := binary.LittleEndian, t.Data
	switch t.DType {
	case I8:
		for i := range out {
			out[i] = int64(int8(b[i]))
		}
	case U8:
		for i := range out {
			out[i] = int64(b[i])
		}
	case Bool:
		for i := range out {
			if b[i] > 1 {
				return nil, t.wrap(fmt.Errorf("element %d: byte %d is not a bool", i, b[i]))
			}
			out[i] = int64(b[i])
		}
	case I32:
		for i := range out {
			out[i] = int64(int32(le.Uint32(b[4*i:])))
		}
	case I64:
		for i := range out {
			out[i] = int64(le.Uint64(b[8*i:]))
		}
	default:
		return nil, t.wrap(fmt.Errorf("dtype %v is not an integer type", t.DType))
	}
	return out, nil
}
