package device_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/kiln-project/kiln/codegen/plan"
	"github.com/kiln-project/kiln/runtime/device"
)

// fake is a device whose memory is not this process's and which does nothing until
// it must: sequences wait in a queue until memory is touched. Its kernels are Go
// functions over f32.
type fake struct {
	blocks    []*block // by number; nil if freed
	libraries int      // that are open
	sequences int
	closed    bool
	queue     []*sequence
	prepared  [][]device.Launch // of all time

	calls   int            // that could have failed
	fail    int            // number of the call that does; 0: none
	failed  string         // what it was
	failing map[string]int // launches that fail, by symbol: how often still
}

var errInjected = errors.New("injected")

// call counts a call, which may fail.
func (d *fake) call(what string) error {
	if d.closed {
		return fmt.Errorf("%s after the device was closed", what)
	}
	d.calls++
	if d.calls == d.fail {
		d.failed = what
		return fmt.Errorf("%s: %w", what, errInjected)
	}
	return nil
}

// left counts what has not been given back.
func (d *fake) left() int {
	n := d.libraries + d.sequences
	for _, b := range d.blocks {
		if b != nil {
			n++
		}
	}
	return n
}

func (d *fake) Name() string { return "fake" }
func (d *fake) Chip() string { return "fake1" }

func (d *fake) Close() error {
	err := d.call("close")
	d.closed = true
	return err
}

func (d *fake) Sync() error {
	if err := d.call("sync"); err != nil {
		return err
	}
	return d.drain()
}

// drain does what is in the queue.
func (d *fake) drain() error {
	for len(d.queue) > 0 {
		s := d.queue[0]
		d.queue = d.queue[1:]
		for i := range s.launches {
			if err := s.launches[i].run(d); err != nil {
				d.queue = nil
				return s.launches[i].Failed(i, err)
			}
		}
	}
	return nil
}

type block struct {
	d     *fake
	id    int
	bytes []byte
}

func (d *fake) Alloc(n int64) (device.Memory, error) {
	if err := d.call("alloc"); err != nil {
		return nil, err
	}
	b := &block{d, len(d.blocks), make([]byte, n)}
	for i := range b.bytes {
		b.bytes[i] = 0xA5
	}
	d.blocks = append(d.blocks, b)
	return b, nil
}

// Address is nothing that this process could look at.
func (b *block) Address() uint64 { return uint64(b.id+1) << 40 }
func (b *block) Size() int64     { return int64(len(b.bytes)) }
func (b *block) Bytes() []byte   { return nil }

// touch is a call that needs all work to be done.
func (b *block) touch(what string) error {
	if err := b.d.call(what); err != nil {
		return err
	}
	if b.d.blocks[b.id] == nil {
		return errors.New(what + " of freed memory")
	}
	return b.d.drain()
}

func (b *block) Write(offset int64, src []byte) error {
	if err := b.touch("write"); err != nil {
		return err
	}
	copy(b.bytes[offset:][:len(src)], src)
	return nil
}

func (b *block) Read(offset int64, dst []byte) error {
	if err := b.touch("read"); err != nil {
		return err
	}
	copy(dst, b.bytes[offset:][:len(dst)])
	return nil
}

func (b *block) Zero() error {
	if err := b.touch("zero"); err != nil {
		return err
	}
	clear(b.bytes)
	return nil
}

func (b *block) Free() error {
	err := b.touch("free")
	b.d.blocks[b.id] = nil
	return err
}

// library has the kernels that its code names, one a line.
type library struct {
	d       *fake
	kernels []string
}

func (d *fake) Load(code []byte, kernels []string) (device.Library, error) {
	if err := d.call("load"); err != nil {
		return nil, err
	}
	have := strings.Fields(string(code))
	for _, k := range kernels {
		if !slices.Contains(have, k) {
			return nil, fmt.Errorf("kernel %s is not in the compiled library", k)
		}
	}
	d.libraries++
	return &library{d, kernels}, nil
}

func (l *library) Close() error {
	err := l.d.call("unload")
	l.d.libraries--
	return err
}

type sequence struct {
	d        *fake
	launches []launch
}

type launch struct {
	device.Launch
	kernel string
}

func (l *library) Prepare(launches []device.Launch) (device.Sequence, error) {
	if err := l.d.call("prepare"); err != nil {
		return nil, err
	}
	s := &sequence{d: l.d}
	for _, x := range launches {
		s.launches = append(s.launches, launch{x, l.kernels[x.Kernel]})
	}
	l.d.sequences++
	l.d.prepared = append(l.d.prepared, launches)
	return s, nil
}

func (s *sequence) Run() error {
	if err := s.d.call("run"); err != nil {
		return err
	}
	s.d.queue = append(s.d.queue, s)
	return nil
}

func (s *sequence) Close() error {
	err := s.d.call("close sequence")
	s.d.sequences--
	return err
}

// run is a kernel on the buffers of its arguments.
func (l *launch) run(d *fake) error {
	if d.failing[l.kernel] > 0 {
		d.failing[l.kernel]--
		return errInjected
	}
	at := func(arg, i int) []byte {
		a := l.Args[arg]
		b := d.blocks[a.Address>>40-1]
		return b.bytes[a.Address&(1<<40-1):][:a.Bytes][4*i:]
	}
	get := func(arg, i int) float32 { return math.Float32frombits(binary.LittleEndian.Uint32(at(arg, i))) }
	set := func(arg, i int, v float32) { binary.LittleEndian.PutUint32(at(arg, i), math.Float32bits(v)) }
	for i := range l.Grid * l.Block {
		switch l.kernel {
		case "mul": // x, w -> t
			set(2, i, get(0, i)*get(1, i))
		case "add": // t, pool
			set(1, i, get(1, i)+get(0, i))
		case "scale": // pool -> y, by an integer
			set(1, i, get(0, i)*float32(l.Args[2].Int))
		default:
			return fmt.Errorf("no kernel %s", l.kernel)
		}
	}
	return nil
}

var _ device.Device = (*fake)(nil)

const code = "mul\nadd\nscale\n"

// module has one entry, decode: s += x * w; y = 3 * s; over 4 elements.
func module() *plan.Module {
	arena := func(offset int64) plan.Slice { return plan.Slice{Space: plan.Arena, Offset: offset, Bytes: 16} }
	pool, weight := plan.Slice{Space: plan.State, Bytes: 16}, plan.Slice{Space: plan.Weight, Bytes: 16}
	p := &plan.Plan{
		Entry: "decode", Binding: []plan.Binding{{Symbol: "B", Value: 1}, {Symbol: "T", Value: 4}}, Arena: 128, States: []int{0},
		Inputs:  []plan.Tensor{{Name: "x", Type: "f32[4]", Data: arena(0)}},
		Outputs: []plan.Tensor{{Name: "y", Type: "f32[4]", Data: arena(0)}},
		Values:  []plan.Value{{Name: "x", Bytes: 16, First: -1}, {Name: "mul ffn", Offset: 64, Bytes: 16, Last: 1}, {Name: "y", Bytes: 16, First: 2, Last: 3}},
		Launches: []plan.Launch{
			{Kernel: 0, Op: "mul", Loc: "ffn", Grid: 2, Work: 4, Args: []plan.Arg{{Mode: plan.Read, Buf: arena(0)}, {Mode: plan.Read, Buf: weight}, {Mode: plan.Write, Buf: arena(64)}}},
			{Kernel: 1, Op: "scatter_rows", Loc: "kv", Grid: 2, Work: 4, Args: []plan.Arg{{Mode: plan.Read, Buf: arena(64)}, {Mode: plan.Update, Buf: pool}}},
			{Kernel: 2, Op: "scale", Grid: 2, Work: 4, Args: []plan.Arg{{Mode: plan.Read, Buf: pool}, {Mode: plan.Write, Buf: arena(0)}, {Int: 3}}},
		},
	}
	f32 := [2]int64{16, 0}
	return &plan.Module{
		Version: plan.Version, Target: "fake1", Block: 2,
		States:  []plan.Storage{{Name: "kv.pool", Type: "f32[4]", Bytes: f32}},
		Weights: []plan.Storage{{Name: "ffn.w", Type: "f32[4]", Bytes: f32}},
		Kernels: []plan.Kernel{
			{Symbol: "mul", Form: "generic_mul", Params: []string{"f32", "f32", "=f32"}},
			{Symbol: "add", Form: "generic_add", Params: []string{"f32", "=f32"}, Shared: 65536},
			{Symbol: "scale", Form: "generic_scale", Params: []string{"f32", "=f32", "int"}},
		},
		Plans: []*plan.Plan{p},
	}
}
