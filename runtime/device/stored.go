package device

import (
	"errors"
	"fmt"

	"github.com/kiln-project/kiln/ir"
	"github.com/kiln-project/kiln/ir/eval"
)

// stored is a tensor in device memory: data, and scales if block scaled.
type stored struct {
	typ   ir.Type
	parts [2]Memory // the second nil without scales
}

func (s stored) free() error {
	var errs []error
	for _, p := range s.parts {
		if p != nil {
			errs = append(errs, p.Free())
		}
	}
	return errors.Join(errs...)
}

// allocate reserves memory for a tensor.
func allocate(dev Device, t ir.Type) (stored, error) {
	s := stored{typ: t}
	data, scales, ok := t.Bytes()
	if !ok {
		return s, fmt.Errorf("%s is not bound", t)
	}
	var err error
	if s.parts[0], err = dev.Alloc(data); err == nil && t.Quant != nil {
		s.parts[1], err = dev.Alloc(scales)
	}
	if err != nil {
		err = errors.Join(err, s.free())
	}
	return s, err
}

// write stores a tensor's elements at an offset of memory: in place if the memory
// is this process's, else through staging, which grows as needed.
func write(m Memory, offset int64, t *eval.Tensor, staging *[]byte) error {
	n := t.DType.Bytes(t.Len())
	if b := m.Bytes(); b != nil {
		return t.Encode(b[offset : offset+n])
	}
	b := stage(staging, n)
	if err := t.Encode(b); err != nil {
		return err
	}
	return m.Write(offset, b)
}

// read is write's inverse.
func read(m Memory, offset int64, t *eval.Tensor, staging *[]byte) error {
	n := t.DType.Bytes(t.Len())
	if b := m.Bytes(); b != nil {
		return t.Decode(b[offset : offset+n])
	}
	b := stage(staging, n)
	if err := m.Read(offset, b); err != nil {
		return err
	}
	return t.Decode(b)
}

// stage returns n bytes of a buffer that is kept for the next time.
func stage(buf *[]byte, n int64) []byte {
	if int64(cap(*buf)) < n {
		*buf = make([]byte, n)
	}
	return (*buf)[:n]
}
