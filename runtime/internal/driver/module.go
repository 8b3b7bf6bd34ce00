package driver

import (
	"errors"
	"fmt"
	"unsafe"
)

// Module is code on a device.
type Module struct {
	resource
	handle uintptr
	label  string
}

// Function is a kernel of a module. It is valid until the module is closed.
type Function struct {
	module *Module
	handle uintptr
	name   string
}

// Name is the kernel's.
func (f *Function) Name() string { return f.name }

// LoadModule loads code: an AMDGPU code object on HIP, PTX text or a cubin on
// CUDA. The label is for errors. Nothing is checked: packages hip and cuda do
// that.
func (d *Device) LoadModule(label string, image []byte) (*Module, error) {
	m := &Module{label: label}
	return made(m, d.Do(func() error {
		// HIP refers to the image for as long as the module is loaded. The zeroed
		// bytes that follow end PTX text.
		copied, err := newBlock(len(image) + 8)
		if err != nil {
			return err
		}
		copy(copied.bytes, image)
		if d.lib.Kind == HIP {
			err = d.try(&d.lib.fn.ModuleLoad, uintptr(unsafe.Pointer(&m.handle)), at(copied.bytes))
			if err != nil {
				err = fmt.Errorf("device %d (%s): module %s: %w", d.index, d.info.Target, label, err)
			}
		} else {
			err = d.compile(m, at(copied.bytes))
		}
		if err != nil {
			return errors.Join(err, copied.free())
		}
		d.own(&m.resource, "module "+label, func() error {
			return errors.Join(d.try(&d.lib.fn.ModuleUnload, m.handle), copied.free())
		})
		return nil
	}))
}

// compile loads a module on CUDA, with the log of the PTX compiler.
func (d *Device) compile(m *Module, image uintptr) error {
	return withLog(m.label, func(count, names, values uintptr) error {
		return d.try(&d.lib.fn.ModuleCompile, uintptr(unsafe.Pointer(&m.handle)), image, count, names, values)
	})
}

// Function finds a kernel.
func (m *Module) Function(name string) (*Function, error) {
	f := &Function{module: m, name: name}
	d := m.device
	return made(f, d.Do(func() error {
		if err := d.usable(&m.resource); err != nil {
			return err
		}
		if err := d.try(&d.lib.fn.ModuleFunction, uintptr(unsafe.Pointer(&f.handle)), m.handle, uintptr(unsafe.Pointer(cstring(name)))); err != nil {
			return fmt.Errorf("module %s: kernel %s: %w", m.label, name, err)
		}
		return nil
	}))
}

// Global finds a variable: its address on the device and its size in bytes.
func (m *Module) Global(name string) (address uint64, size int64, err error) {
	d := m.device
	err = d.Do(func() error {
		if err := d.usable(&m.resource); err != nil {
			return err
		}
		if err := d.try(&d.lib.fn.ModuleGlobal, uintptr(unsafe.Pointer(&address)), uintptr(unsafe.Pointer(&size)), m.handle,
			uintptr(unsafe.Pointer(cstring(name)))); err != nil {
			return fmt.Errorf("module %s: variable %s: %w", m.label, name, err)
		}
		return nil
	})
	return address, size, err
}

// Attributes are what a driver says about a kernel.
type Attributes struct {
	MaxGroup  int // work-items of a workgroup
	Shared    int // bytes of LDS that the code declares
	Local     int // bytes of private memory of a work-item
	Registers int // of a work-item
	MaxShared int // bytes of LDS that a launch may add
}

// functionAttributes by the enumerations hipFunction_attribute and
// CUfunction_attribute, which agree.
var functionAttributes = []struct {
	number uintptr
	into   func(*Attributes) *int
}{
	{0, func(a *Attributes) *int { return &a.MaxGroup }},
	{1, func(a *Attributes) *int { return &a.Shared }},
	{3, func(a *Attributes) *int { return &a.Local }},
	{4, func(a *Attributes) *int { return &a.Registers }},
	{attributeMaxShared, func(a *Attributes) *int { return &a.MaxShared }},
}

const attributeMaxShared = 8

// Attributes asks the driver about the kernel.
func (f *Function) Attributes() (Attributes, error) {
	var a Attributes
	d := f.module.device
	err := d.Do(func() error {
		if err := d.usable(&f.module.resource); err != nil {
			return err
		}
		for _, row := range functionAttributes {
			var v int32
			if err := d.try(&d.lib.fn.FunctionGet, uintptr(unsafe.Pointer(&v)), row.number, f.handle); err != nil {
				return fmt.Errorf("kernel %s: attribute %d: %w", f.name, row.number, err)
			}
			*row.into(&a) = int(v)
		}
		return nil
	})
	return a, err
}

// AllowShared permits launches with n bytes of LDS beyond what the code declares.
// CUDA needs it above Info.Shared. On HIP it only checks: LDS is not opt-in there.
func (f *Function) AllowShared(n int) error {
	a, err := f.Attributes()
	if err != nil {
		return err
	}
	d := f.module.device
	if n < 0 || a.Shared+n > d.info.MaxShared {
		return fmt.Errorf("kernel %s: %d bytes of LDS and %d that the code declares: device %d has %d for a workgroup",
			f.name, n, a.Shared, d.index, d.info.MaxShared)
	}
	if d.lib.Kind == HIP {
		return nil
	}
	return d.Do(func() error {
		if err := d.try(&d.lib.fn.FunctionSet, f.handle, attributeMaxShared, uintptr(n)); err != nil {
			return fmt.Errorf("kernel %s: %d bytes of shared memory: %w", f.name, n, err)
		}
		return nil
	})
}
