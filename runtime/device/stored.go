package device

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/kiln-project/kiln/ir"
	"github.com/kiln-project/kiln/ir/eval"
	"github.com/kiln-project/kiln/ir/num"
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

// put copies a tensor to a device.
func put(dev Device, t *eval.Tensor) (stored, error) {
	s := stored{typ: t.Type()}
	err := s.fill(dev, t)
	if err != nil {
		err = errors.Join(err, s.free())
	}
	return s, err
}

func (s *stored) fill(dev Device, t *eval.Tensor) error {
	var err error
	if s.parts[0], err = dev.Alloc(t.DType.Bytes(t.Len())); err != nil {
		return err
	}
	var staging []byte
	if err := write(s.parts[0], 0, t, &staging); err != nil || t.Quant == nil {
		return err
	}
	if s.parts[1], err = dev.Alloc(int64(len(t.Scales))); err != nil {
		return err
	}
	return s.parts[1].Write(0, t.Scales)
}

// finiteCodes refuses NaN codes in 8-bit weights: kernels decode OCP's without
// looking (kernel.LoadWeight), and e4m3fnuz has them only where a checkpoint had
// them. A NaN scale of e4m3fnuz may stand for one that had no double.
func finiteCodes(t *eval.Tensor) error {
	if t.Quant == nil || t.DType != ir.F8E4M3 && t.DType != ir.F8E4M3FNUZ {
		return nil
	}
	fnuz := t.DType == ir.F8E4M3FNUZ
	for i, c := range t.Codes {
		if fnuz && c == 0x80 || !fnuz && c&0x7F == 0x7F {
			return fmt.Errorf("element %d is NaN (code %#02x)", i, c)
		}
	}
	if at := bytes.IndexByte(t.Scales, num.ScaleNaN); fnuz && at >= 0 {
		return fmt.Errorf("block scale %d is NaN, or 2^127 before it was doubled for e4m3fnuz", at)
	}
	return nil
}

// write stores a tensor's elements at an offset of memory: in place if the memory
// is this process's, else through staging, which grows as needed.
func write(m Memory, offset int64, t *eval.Tensor, staging *[]byte) error {
	n := t.DType.Bytes(t.Len())
	if b := m.Bytes(); b != nil {
		return store(b[offset:offset+n], t)
	}
	b := stage(staging, n)
	if err := store(b, t); err != nil {
		return err
	}
	return m.Write(offset, b)
}

// read is write's inverse.
func read(m Memory, offset int64, t *eval.Tensor, staging *[]byte) error {
	n := t.DType.Bytes(t.Len())
	if b := m.Bytes(); b != nil {
		load(t, b[offset:offset+n])
		return nil
	}
	b := stage(staging, n)
	if err := m.Read(offset, b); err != nil {
		return err
	}
	load(t, b)
	return nil
}

// stage returns n bytes of a buffer that is kept for the next time.
func stage(buf *[]byte, n int64) []byte {
	if int64(cap(*buf)) < n {
		*buf = make([]byte, n)
	}
	return (*buf)[:n]
}
