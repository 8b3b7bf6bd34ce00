package eval

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/kiln-project/kiln/ir"
	"github.com/kiln-project/kiln/ir/num"
)

// Encode writes the elements in their memory format, little-endian and row-major, as
// devices hold them and checkpoints store them; block scales are bytes as they are.
func (t *Tensor) Encode(dst []byte) error {
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

// Decode is Encode's inverse; src has as many bytes as the elements take.
func (t *Tensor) Decode(src []byte) error {
	le := binary.LittleEndian
	if want := int(t.DType.Bytes(t.Len())); len(src) != want {
		return fmt.Errorf("%s has %d bytes, its memory %d", t.Type(), want, len(src))
	}
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
	return nil
}

// Part is the elements from..to-1 of a tensor, in row-major order, as a tensor of one
// axis without block scales that shares storage. Of packed formats the bounds lie
// between bytes.
func (t *Tensor) Part(from, to int) *Tensor {
	p := &Tensor{DType: t.DType, Shape: []int{to - from}}
	switch storageOf(t.DType) {
	case storeF:
		p.F = t.F[from:to]
	case storeI:
		p.I = t.I[from:to]
	default:
		p.Codes = t.Codes[codeBytes(t.DType, from):codeBytes(t.DType, to)]
	}
	return p
}

// Held is how many bytes of this process's memory a tensor of a type takes, whose
// extents are integers.
func Held(t ir.Type) (int64, error) {
	n, ok := t.Size()
	if !ok {
		return 0, fmt.Errorf("%s is not bound", t)
	}
	switch storageOf(t.DType) {
	case storeF:
		return 4 * int64(n), nil
	case storeI:
		return 8 * int64(n), nil
	}
	data, scales, _ := t.Bytes()
	return data + scales, nil
}
