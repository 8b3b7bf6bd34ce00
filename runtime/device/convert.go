package device

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/kiln-project/kiln/ir"
	"github.com/kiln-project/kiln/ir/eval"
	"github.com/kiln-project/kiln/ir/num"
)

// store writes a tensor's elements in their memory format.
func store(dst []byte, t *eval.Tensor) error {
	le := binary.LittleEndian
	if want := int(t.DType.Bytes(t.Len())); len(dst) != want {
		return fmt.Errorf("%s has %d bytes, its memory %d", t.Type(), want, len(dst))
	}
	switch t.DType {
	case ir.F32:
		for i, v := range t.F {
			le.PutUint32(dst[4*i:], math.Float32bits(v))
		}
	case ir.BF16:
		for i, v := range t.F {
			le.PutUint16(dst[2*i:], num.BF16Bits(v))
		}
	case ir.F16:
		for i, v := range t.F {
			le.PutUint16(dst[2*i:], num.F16Bits(v))
		}
	case ir.I64:
		for i, v := range t.I {
			le.PutUint64(dst[8*i:], uint64(v))
		}
	case ir.I32:
		for i, v := range t.I {
			le.PutUint32(dst[4*i:], uint32(int32(v)))
		}
	case ir.I8, ir.U8, ir.Bool:
		for i, v := range t.I {
			dst[i] = byte(v)
		}
	default:
		copy(dst, t.Codes)
	}
	return nil
}

// load reads a tensor's elements from their memory format.
func load(t *eval.Tensor, src []byte) {
	le := binary.LittleEndian
	switch t.DType {
	case ir.F32:
		for i := range t.F {
			t.F[i] = math.Float32frombits(le.Uint32(src[4*i:]))
		}
	case ir.BF16:
		for i := range t.F {
			t.F[i] = num.FromBF16(le.Uint16(src[2*i:]))
		}
	case ir.F16:
		for i := range t.F {
			t.F[i] = num.FromF16(le.Uint16(src[2*i:]))
		}
	case ir.I64:
		for i := range t.I {
			t.I[i] = int64(le.Uint64(src[8*i:]))
		}
	case ir.I32:
		for i := range t.I {
			t.I[i] = int64(int32(le.Uint32(src[4*i:])))
		}
	case ir.I8:
		for i := range t.I {
			t.I[i] = int64(int8(src[i]))
		}
	case ir.U8, ir.Bool:
		for i := range t.I {
			t.I[i] = int64(src[i])
		}
	default:
		copy(t.Codes, src)
	}
}

// parseType reads a plan's type, whose extents are integers.
func parseType(text string) (ir.Type, error) {
	return ir.ParseType(text, func(name string) (ir.Dim, error) {
		return ir.Dim{}, fmt.Errorf("symbol %s in a plan", name)
	})
}
