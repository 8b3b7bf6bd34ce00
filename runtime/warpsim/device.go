package warpsim

import (
	"fmt"
	"slices"

	"github.com/kiln-project/kiln/codegen/plan"
	"github.com/kiln-project/kiln/runtime/device"
)

// Device is device.Device: its code is the IR of kernels, several modules in one text.
// Memory is the process's own, and all is done when a call returns.
type Device struct {
	chip   string
	blocks []*device.Mapped
}

// Open makes a device of a chip.
func Open(chip string) *Device { return &Device{chip: chip} }

// Name implements device.Device.
func (d *Device) Name() string { return "warpsim" }

// Chip implements device.Device.
func (d *Device) Chip() string { return d.chip }

// Sync implements device.Device.
func (d *Device) Sync() error { return nil }

// Close implements device.Device.
func (d *Device) Close() error { return nil }

// memory is a block that the device knows.
type memory struct {
	*device.Mapped
	d *Device
}

// Alloc implements device.Device.
func (d *Device) Alloc(bytes int64) (device.Memory, error) {
	m, err := device.Map(bytes)
	if err != nil {
		return nil, err
	}
	d.blocks = append(d.blocks, m)
	return &memory{m, d}, nil
}

// Free implements device.Memory.
func (m *memory) Free() error {
	m.d.blocks = slices.DeleteFunc(m.d.blocks, func(b *device.Mapped) bool { return b == m.Mapped })
	return m.Mapped.Free()
}

// at is n bytes at an address.
func (d *Device) at(address uint64, n int64) ([]byte, error) {
	for _, b := range d.blocks {
		if from := address - b.Address(); address >= b.Address() && int64(from)+n <= b.Size() {
			return b.At(int64(from), int(n))
		}
	}
	return nil, fmt.Errorf("%d bytes at %#x are no memory of the device", n, address)
}

// library is parsed code.
type library struct {
	d       *Device
	program *program
	kernels []string
}

// Load implements device.Device.
func (d *Device) Load(code []byte, kernels []string) (device.Library, error) {
	p, err := parse(string(code))
	if err != nil {
		return nil, err
	}
	for _, name := range kernels {
		if p.kernels[name] == nil {
			return nil, fmt.Errorf("kernel %s: the code has none of that name", name)
		}
	}
	return &library{d, p, kernels}, nil
}

// Close implements device.Library.
func (l *library) Close() error { return nil }

type sequence struct {
	l        *library
	launches []device.Launch
}

// Prepare implements device.Library.
func (l *library) Prepare(launches []device.Launch) (device.Sequence, error) {
	return &sequence{l, launches}, nil
}

// Close implements device.Sequence.
func (s *sequence) Close() error { return nil }

// Run implements device.Sequence.
func (s *sequence) Run() error {
	for i := range s.launches {
		x := &s.launches[i]
		if err := s.l.run(x); err != nil {
			return x.Failed(i, err)
		}
	}
	return nil
}

func (l *library) run(x *device.Launch) error {
	k := l.program.kernels[l.kernels[x.Kernel]]
	if len(x.Args) != len(k.params) {
		return fmt.Errorf("%d arguments, the kernel has %d parameters", len(x.Args), len(k.params))
	}
	if k.pool != (x.Shared > 0) {
		return fmt.Errorf("the launch gives %d bytes of shared memory, the kernel uses such: %v", x.Shared, k.pool)
	}
	var buffers []buffer
	args := make([]uint64, len(x.Args))
	for i, a := range x.Args {
		if a.Mode == "" {
			args[i] = uint64(a.Int)
			continue
		}
		args[i] = a.Address
		b, err := l.d.at(a.Address, a.Bytes)
		if err != nil {
			return fmt.Errorf("argument %d: %w", i, err)
		}
		buffers = append(buffers, buffer{a.Address, b, a.Mode != plan.Read})
	}
	g := group{kernel: k, buffers: buffers}
	for id := range x.Grid {
		if err := g.run(id, x.Block, x.Shared, args); err != nil {
			return err
		}
	}
	return nil
}
