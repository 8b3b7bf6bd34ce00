package emu

import (
	"context"
	"errors"
	"fmt"
	"slices"

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

// memory is a block of the space. With the sanitizer of uninitialised memory the
// shadow hears of all that the host writes and reads.
type memory struct {
	*device.Mapped
	space  *Space
	shadow *Shadow // nil without the sanitizer
}

// Alloc implements device.Device.
func (d *Device) Alloc(bytes int64) (device.Memory, error) {
	m, err := device.Map(bytes)
	if err != nil {
		return nil, err
	}
	b := m.Whole()
	if err := d.space.Map(b, "memory"); err != nil {
		return nil, errors.Join(err, m.Free())
	}
	if d.shadow != nil {
		d.shadow.Undefine(Address(b), uint64(len(b)))
	}
	return &memory{m, &d.space, d.shadow}, nil
}

// Bytes implements device.Memory: there are none with a shadow, which would not hear
// of what is done with them.
func (m *memory) Bytes() []byte {
	if m.shadow != nil {
		return nil
	}
	return m.Mapped.Bytes()
}

// Write implements device.Memory.
func (m *memory) Write(offset int64, src []byte) error {
	if err := m.Mapped.Write(offset, src); err != nil {
		return err
	}
	if m.shadow != nil && len(src) > 0 {
		m.shadow.Define(m.Address()+uint64(offset), uint64(len(src)))
	}
	return nil
}

// Read implements device.Memory.
func (m *memory) Read(offset int64, dst []byte) error {
	if m.shadow != nil {
		b, _ := m.At(offset, len(dst)) // an error is Mapped.Read's
		if r, found := m.shadow.Result(b, m.Whole(), fmt.Sprintf("a block of %d", m.Size())); found {
			return &SanitizerError{Reports: []Report{r}}
		}
	}
	return m.Mapped.Read(offset, dst)
}

// Zero implements device.Memory.
func (m *memory) Zero() error {
	if m.shadow != nil {
		m.define()
	}
	return m.Mapped.Zero()
}

// Free implements device.Memory.
func (m *memory) Free() error {
	m.space.Unmap(m.Whole())
	if m.shadow != nil {
		m.define()
	}
	return m.Mapped.Free()
}

// define has the shadow take the whole block for defined.
func (m *memory) define() { m.shadow.Define(Address(m.Whole()), uint64(len(m.Whole()))) }

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
