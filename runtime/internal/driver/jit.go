package driver

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"unsafe"
)

// CompileError is an error of the CUDA driver's PTX compiler.
type CompileError struct {
	Label string // of the module
	Log   string // the compiler's
	Err   error
}

func (e *CompileError) Error() string {
	if e.Log == "" {
		return fmt.Sprintf("module %s: %v", e.Label, e.Err)
	}
	return fmt.Sprintf("module %s: %s\n%v", e.Label, e.Log, e.Err)
}

func (e *CompileError) Unwrap() error { return e.Err }

// Options of the PTX compiler, and its kinds of input (cuda.h, CUjit_option and
// CUjitInputType).
const (
	jitErrorLogBuffer      = 5
	jitErrorLogBufferBytes = 6
	jitLogBytes            = 16 << 10

	jitInputPTX = 1
)

// withLog runs f with options that make the PTX compiler write a log, which the error
// of f gets.
func withLog(label string, f func(count, names, values uintptr) error) error {
	memory, err := newBlock(room(jitLogBytes) + 2*room(16))
	if err != nil {
		return err
	}
	log := memory.take(jitLogBytes)
	names := (*[2]uint32)(pointerTo(at(memory.take(8))))
	values := (*[2]uintptr)(pointerTo(at(memory.take(16))))
	names[0], values[0] = jitErrorLogBuffer, at(log)
	names[1], values[1] = jitErrorLogBufferBytes, jitLogBytes
	err = f(2, uintptr(unsafe.Pointer(names)), uintptr(unsafe.Pointer(values)))
	if err != nil {
		err = &CompileError{label, strings.TrimSpace(cut(log)), err}
	}
	return errors.Join(err, memory.free())
}

// Link compiles PTX text for the device, on CUDA: the result, a cubin, is what
// LoadModule takes without compiling again. It runs on devices of exactly this target.
// The label is for errors; those of the compiler are a *CompileError.
func (d *Device) Link(label string, ptx []byte) ([]byte, error) {
	var cubin []byte
	err := d.Do(func() error {
		// The driver reads the text until it is linked; a zero ends it.
		text, err := newBlock(len(ptx) + 8)
		if err != nil {
			return err
		}
		copy(text.bytes, ptx)
		err = withLog(label, func(count, names, values uintptr) error {
			var state uintptr
			if err := d.try(&d.lib.fn.LinkCreate, count, names, values, uintptr(unsafe.Pointer(&state))); err != nil {
				return err
			}
			var image, size uintptr
			err := d.try(&d.lib.fn.LinkAdd, state, jitInputPTX, at(text.bytes), uintptr(len(ptx)+1), uintptr(unsafe.Pointer(cstring(label))), 0, 0, 0)
			if err == nil {
				err = d.try(&d.lib.fn.LinkComplete, state, uintptr(unsafe.Pointer(&image)), uintptr(unsafe.Pointer(&size)))
			}
			if err == nil { // the image is gone with the state
				cubin = bytes.Clone(unsafe.Slice((*byte)(pointerTo(image)), size))
			}
			return errors.Join(err, d.try(&d.lib.fn.LinkDestroy, state))
		})
		return errors.Join(err, text.free())
	})
	return cubin, err
}
