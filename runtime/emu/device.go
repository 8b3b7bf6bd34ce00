package emu

import (
	"context"
	"fmt"
	"slices"
	"syscall"

	"github.com/kiln-project/kiln/codegen/object"
	"github.com/kiln-project/kiln/codegen/plan"
	"github.com/kiln-project/kiln/runtime/device"
)

// Device is an emulated GPU: device.Device. Its memory is the process's own, and all
// is done when a call returns.
type Device struct {
	ctx    context.Context
	chip   string
	loader Loader
	opts   Options
	space  Space
	shadow *Shadow // of the space; nil without the sanitizer of uninitialised memory
}

// Options are what an emulated device does beside executing.
type Options struct {
	Workers int // goroutines that run work-groups; 0 is one per core
	// Sanitize are the checks of every launch.
	Sanitize Checks
	// Shuffle, if it is not 0, is the seed of the order of work-groups.
	Shuffle uint64
	// Counters, if there are any, count all launches.
	Counters *Counters
}

// Open makes a device. ctx ends launches that are under way.
func Open(ctx context.Context, chip string, l Loader, o Options) (*Device, error) {
	if !slices.Contains(Chips, chip) {
		return nil, fmt.Errorf("emu:%s: unknown chip, only %v can be executed", chip, Chips)
	}
	d := &Device{ctx: ctx, chip: chip, loader: l, opts: o}
	if o.Sanitize&CheckUninit != 0 {
		d.shadow = &Shadow{}
	}
	return d, nil
}

// Name implements device.Device.
func (d *Device) Name() string { return "emu" }

// Chip implements device.Device.
func (d *Device) Chip() string { return d.chip }

// Sync implements device.Device.
func (d *Device) Sync() error { return nil }

// Close implements device.Device.
func (d *Device) Close() error { return nil }

// memory is a block outside the Go heap, so that it keeps its address.
type memory struct {
	space  *Space
	bytes  []byte
	size   int64 // what was asked for: a mapping has a byte at least
	fresh  bool  // still the zeros that it was mapped as
	shadow *Shadow
}

// Alloc implements device.Device.
func (d *Device) Alloc(bytes int64) (device.Memory, error) {
	if bytes < 0 {
		return nil, fmt.Errorf("allocating %d bytes", bytes)
	}
	b, err := syscall.Mmap(-1, 0, int(max(bytes, 1)), syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_PRIVATE|syscall.MAP_ANON)
	if err != nil {
		return nil, fmt.Errorf("allocating %d bytes: %w", bytes, err)
	}
	if err := d.space.Map(b, "memory"); err != nil {
		return nil, err
	}
	if d.shadow != nil {
		d.shadow.Undefine(Address(b), uint64(len(b)))
	}
	return &memory{&d.space, b, bytes, true, d.shadow}, nil
}

// Address implements device.Memory.
func (m *memory) Address() uint64 {
	m.fresh = false
	return Address(m.bytes)
}

// Size implements device.Memory.
func (m *memory) Size() int64 { return m.size }

// Bytes implements device.Memory. With the sanitizer of uninitialised memory there
// are none, so that it hears of all that the host writes and reads.
func (m *memory) Bytes() []byte {
	if m.shadow != nil {
		return nil
	}
	m.fresh = false
	return m.bytes[:m.size]
}

// Write implements device.Memory.
func (m *memory) Write(offset int64, src []byte) error {
	b, err := m.at(offset, len(src))
	copy(b, src)
	if m.shadow != nil && len(b) > 0 {
		m.shadow.Define(Address(b), uint64(len(b)))
	}
	return err
}

// Read implements device.Memory.
func (m *memory) Read(offset int64, dst []byte) error {
	b, err := m.at(offset, len(dst))
	if m.shadow != nil {
		if r, found := m.shadow.Result(b, m.bytes, fmt.Sprintf("a block of %d", m.size)); found {
			return &SanitizerError{Reports: []Report{r}}
		}
	}
	copy(dst, b)
	return err
}

// Zero implements device.Memory.
func (m *memory) Zero() error {
	if !m.fresh {
		clear(m.bytes)
	}
	if m.shadow != nil {
		m.shadow.Define(Address(m.bytes), uint64(len(m.bytes)))
	}
	return nil
}

// Free implements device.Memory.
func (m *memory) Free() error {
	b := m.bytes
	m.space.Unmap(b)
	if m.shadow != nil {
		m.shadow.Define(Address(b), uint64(len(b)))
	}
	m.bytes, m.size = nil, 0
	return syscall.Munmap(b)
}

// at is the view of a range.
func (m *memory) at(offset int64, n int) ([]byte, error) {
	if offset < 0 || offset > m.size-int64(n) {
		return nil, fmt.Errorf("bytes %d..%d of a block of %d", offset, offset+int64(n), m.size)
	}
	m.fresh = false
	return m.bytes[offset:][:n], nil
}

// library is a loaded code object. Kernels are compiled when a sequence has them.
type library struct {
	d       *Device
	program *Program // nil if there is no code
	kernels []string
}

// Load implements device.Device.
func (d *Device) Load(code []byte, kernels []string) (device.Library, error) {
	l := &library{d: d, kernels: kernels}
	if len(code) == 0 {
		if len(kernels) > 0 {
			return nil, fmt.Errorf("kernel %s: the library is empty", kernels[0])
		}
		return l, nil
	}
	p, err := d.loader.Load(d.ctx, code)
	if err != nil {
		return nil, err
	}
	if p.Chip() != d.chip {
		return nil, fmt.Errorf("the code object is for %s, the device is emu:%s", p.Chip(), d.chip)
	}
	for _, name := range kernels {
		if _, err := p.object.Kernel(name); err != nil {
			return nil, err
		}
	}
	l.program = p
	return l, nil
}

// Close implements device.Library.
func (l *library) Close() error { return nil }

// sequence is a list of launches.
type sequence struct {
	d        *Device
	launches []device.Launch
	runs     []prepared
}

// prepared is a launch as the emulator takes it.
type prepared struct {
	kernel *Kernel
	launch Launch
}

// Prepare implements device.Library.
func (l *library) Prepare(launches []device.Launch) (device.Sequence, error) {
	s := &sequence{d: l.d, launches: launches}
	for i := range launches {
		x := &launches[i]
		k, err := l.program.Kernel(l.kernels[x.Kernel])
		if err != nil {
			return nil, x.Failed(i, err)
		}
		segment, err := planArgs(k.Meta, x.Args)
		if err != nil {
			return nil, x.Failed(i, fmt.Errorf("kernel %s: %w", k.Meta.Name, err))
		}
		s.runs = append(s.runs, prepared{k, Launch{
			Grid: [3]int{x.Grid, 1, 1}, Block: [3]int{x.Block, 1, 1}, Kernarg: segment, Memory: &l.d.space, Workers: l.d.opts.Workers,
			Shuffle: l.d.opts.Shuffle, Counters: l.d.opts.Counters, Sanitize: l.d.sanitize(x),
		}})
	}
	return s, nil
}

// sanitize are the checks of a launch: it may touch what its arguments say. What it
// is the first to touch it may read back, which the plan calls writing: fused kernels
// do, and use scratch memory. Reading it before it is written is for CheckUninit.
func (d *Device) sanitize(x *device.Launch) *Sanitize {
	if d.opts.Sanitize == 0 {
		return nil
	}
	s := &Sanitize{Checks: d.opts.Sanitize, Shadow: d.shadow, Op: x.Op, Layer: x.Loc, Buffers: []Buffer{}}
	for _, a := range x.Args {
		if a.Mode == "" {
			continue
		}
		mode := map[plan.Mode]Mode{plan.Read: ModeRead, plan.Write: ModeWrite, plan.Update: ModeRead | ModeWrite}[a.Mode]
		if a.First {
			mode |= ModeRead
		}
		s.Buffers = append(s.Buffers, Buffer{Address: a.Address, Bytes: uint64(a.Bytes), Mode: mode, Label: a.Label, Undefined: a.First})
	}
	return s
}

// planArgs is the argument segment of a plan's launch: words of 8 bytes, which the
// kernel has to have as its arguments too.
func planArgs(k *object.Kernel, args []device.Arg) ([]byte, error) {
	if hidden := k.HiddenArgs(); len(hidden) > 0 {
		return nil, fmt.Errorf("it has the hidden argument %s, a plan gives none", hidden[0].ValueKind)
	}
	if len(k.Args) != len(args) {
		return nil, fmt.Errorf("it has %d arguments, the plan gives %d", len(k.Args), len(args))
	}
	segment := make([]byte, k.KernargBytes)
	for i, a := range args {
		p := k.Args[i]
		if p.Size != 8 || p.Offset+8 > len(segment) {
			return nil, fmt.Errorf("argument %d (%s) has %d bytes at %d, not 8 within %d", i+1, p.Name, p.Size, p.Offset, len(segment))
		}
		word := uint64(a.Int)
		if a.Mode != "" {
			word = a.Address
		}
		le.PutUint64(segment[p.Offset:], word)
	}
	return segment, nil
}

// Run implements device.Sequence.
func (s *sequence) Run() error {
	for i := range s.runs {
		r := &s.runs[i]
		if _, err := r.kernel.Run(s.d.ctx, r.launch); err != nil {
			return s.launches[i].Failed(i, err)
		}
	}
	return nil
}

// Close implements device.Sequence.
func (s *sequence) Close() error { return nil }
