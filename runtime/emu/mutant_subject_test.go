package emu

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"unsafe"

	"github.com/kiln-project/kiln/codegen"
	"github.com/kiln-project/kiln/codegen/plan"
	"github.com/kiln-project/kiln/models/dsv4"
	"github.com/kiln-project/kiln/runtime/device"
	"github.com/kiln-project/kiln/runtime/device/devicetest"
)

// subject is a kernel of which mutants are made, with launches whose results are known.
type subject struct {
	name     string // chip, kernel form or "triton", symbol
	form     string
	k        *Kernel
	launches []*replay // the shortest first
	executed []uint64  // of each instruction, how often, by all launches
}

// replay is a launch with memory of its own, which can be repeated.
type replay struct {
	launch       Launch
	blocks       []*block
	buffers      []Buffer // for sanitizers
	instructions uint64
}

// block is memory of a replay, with what it holds before and after the unmutated
// launch.
type block struct {
	now, before, after []byte
	readOnly           bool
}

var (
	errBudget = errors.New("many more instructions than the kernel needs")
	errEnough = errors.New("there is a report")
)

// budget ends a launch when a group of it has had more shares of instructions than all
// groups of the unmutated launch need, or when there is a report: so mutants that do not
// end are the same ones each time, and take no longer than they have to.
func (r *replay) budget() func(*group) error {
	last, shares := int64(-1), uint64(0)
	return func(g *group) error {
		if i := g.index(); i != last {
			last, shares = i, 0
		}
		shares++
		switch reports := g.launch.reports; {
		case reports != nil && len(reports.reports) > 0:
			return errEnough
		case shares > 2+r.instructions/share:
			return errBudget
		}
		return nil
	}
}

// run repeats the launch from its beginning, with checks, and compares all memory.
func (r *replay) run(k *Kernel, checks Checks) outcome {
	for _, b := range r.blocks {
		if !b.readOnly {
			copy(b.now, b.before)
		}
	}
	l := r.launch
	if checks != 0 {
		l.Sanitize = &Sanitize{Checks: checks, Buffers: r.buffers, Shadow: &Shadow{}}
	}
	l.goOn = r.budget()
	_, err := k.Run(context.Background(), l)
	var report *SanitizerError
	switch {
	case errors.As(err, &report):
		return caughtReport
	case err != nil:
		return caughtFault
	}
	for _, b := range r.blocks {
		if !b.readOnly && !bytes.Equal(b.now, b.after) {
			return caughtOutput
		}
	}
	return survived
}

// record runs the unmutated kernel, for what is expected and for what it executes.
func (s *subject) record(t testing.TB) error {
	s.executed = make([]uint64, len(s.k.insts))
	original := slices.Clone(s.k.steps)
	for i, step := range original {
		s.k.steps[i] = func(w *wave) {
			s.executed[i]++
			step(w)
		}
	}
	defer copy(s.k.steps, original)
	for _, r := range s.launches {
		stats, err := s.k.Run(t.Context(), r.launch)
		if err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
		r.instructions = stats.Instructions
		for _, b := range r.blocks {
			if b.after = b.before; !b.readOnly {
				b.after = bytes.Clone(b.now)
			}
		}
	}
	return nil
}

// foreignSubjects are the kernels of another compiler; their results stand in the
// files.
func foreignSubjects(t *testing.T) []*subject {
	var list []*subject
	for _, o := range foreignObjects(t) {
		l, buffers := o.launch(t)
		l.Workers = 1
		r := &replay{launch: l}
		for _, arg := range slices.Sorted(maps.Keys(buffers)) {
			b := buffers[arg]
			r.buffers = append(r.buffers, o.buffer(arg, b))
			r.blocks = append(r.blocks, &block{now: b, before: bytes.Clone(b)})
		}
		s := &subject{name: o.chip + " triton " + o.name, form: "triton", k: o.k, launches: append([]*replay{r}, o.otherSizes(t)...)}
		if err := s.record(t); err != nil {
			t.Fatal(err)
		}
		for i, arg := range slices.Sorted(maps.Keys(buffers)) {
			want, err := o.io.Lookup(o.name + "." + arg)
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(r.blocks[i].after, want.Data) {
				t.Fatalf("%s: %s is not what it should be", s.name, arg)
			}
		}
		list = append(list, s)
	}
	return list
}

// recorder is an emulated device that keeps launches with the memory they began with.
type recorder struct {
	*Device
	kept map[string]*kept // by symbol
}

// kept are the launches of a kernel.
type kept struct {
	form string
	k    *Kernel
	list []*recording
}

type recording struct {
	args         []device.Arg
	launch       Launch
	memory       [][]byte // of each argument
	instructions uint64
}

// Of a kernel's launches the one with the fewest instructions of waves is replayed, and
// others of at most longest.
const (
	longest  = 40_000
	replayed = 3
)

type recordingLibrary struct {
	device.Library
	d *recorder
}

type recordingSequence struct {
	*sequence
	d *recorder
}

func (d *recorder) Load(code []byte, kernels []string) (device.Library, error) {
	l, err := d.Device.Load(code, kernels)
	return recordingLibrary{l, d}, err
}

func (l recordingLibrary) Prepare(launches []device.Launch) (device.Sequence, error) {
	s, err := l.Library.Prepare(launches)
	if err != nil {
		return nil, err
	}
	return recordingSequence{s.(*sequence), l.d}, nil
}

func (s recordingSequence) Run() error {
	for i := range s.runs {
		r, x := &s.runs[i], &s.launches[i]
		rec := &recording{args: x.Args, launch: r.launch}
		for _, a := range x.Args {
			var content []byte
			if a.Mode != "" && a.Bytes > 0 {
				b := s.sequence.d.space.regions().find(a.Address)
				content = bytes.Clone(unsafe.Slice((*byte)(b.base), b.hi-b.lo)[a.Address-b.lo:][:a.Bytes])
			}
			rec.memory = append(rec.memory, content)
		}
		stats, err := r.kernel.Run(s.sequence.d.ctx, r.launch)
		if err != nil {
			return x.Failed(i, err)
		}
		rec.instructions = stats.Instructions
		s.d.keep(x, r.kernel, rec)
	}
	return nil
}

func (d *recorder) keep(x *device.Launch, k *Kernel, r *recording) {
	e := d.kept[x.Symbol]
	if e == nil {
		e = &kept{form: x.Form, k: k}
		d.kept[x.Symbol] = e
	}
	if r.instructions <= longest || len(e.list) == 0 {
		e.list = append(e.list, r)
	}
}

// chosen are the launches to replay: the shortest, the longest and some in between, and
// those whose numbers differ.
func (e *kept) chosen() []*recording {
	slices.SortStableFunc(e.list, func(a, b *recording) int { return cmp.Compare(a.instructions, b.instructions) })
	if e.list[0].instructions <= longest {
		e.list = slices.DeleteFunc(e.list, func(r *recording) bool { return r.instructions > longest })
	}
	var list []*recording
	n := len(e.list)
	for i := range min(n, replayed) {
		r := e.list[0]
		if n > 1 {
			r = e.list[i*(n-1)/(min(n, replayed)-1)]
		}
		list = append(list, r)
	}
	for _, r := range e.list {
		if !slices.ContainsFunc(list, func(x *recording) bool { return x.shape() == r.shape() }) {
			list = append(list, r)
		}
	}
	return list
}

// shape is what launches of a kernel differ in apart from the contents of memory.
func (r *recording) shape() string {
	s := fmt.Sprint(r.launch.Grid)
	for _, a := range r.args {
		s += fmt.Sprint(" ", a.Int, a.Bytes)
	}
	return s
}

// ownSubjects are the kernels of the tiny model's prefill and decode step on a chip,
// with what they met there, for prompts of several lengths.
func ownSubjects(t *testing.T, c *codegen.Compiler, chip string, prompts []int) []*subject {
	rec := &recorder{kept: map[string]*kept{}}
	open := func(c *codegen.Compiler) (device.Device, error) {
		err := rec.open(t, c, chip)
		return rec, err
	}
	suite := devicetest.Suite(t, c, open, devicetest.Variant{Numerics: dsv4.Production})
	for _, prompt := range prompts {
		if err := suite.Continue("short", prompt, 3); err != nil {
			t.Fatal(err)
		}
	}
	return rec.subjects(t, chip)
}

// open makes the device.
func (d *recorder) open(t *testing.T, c *codegen.Compiler, chip string) (err error) {
	d.Device, err = Open(t.Context(), chip, Loader{ObjDump: c.Tools.ObjDump, Version: c.Tools.Version, Store: c.Cache}, Options{})
	return err
}

// subjects are the kernels of which launches were kept.
func (d *recorder) subjects(t *testing.T, chip string) []*subject {
	var list []*subject
	for _, symbol := range slices.Sorted(maps.Keys(d.kept)) {
		e := d.kept[symbol]
		k := *e.k // the device's is shared by the launches of its sequences
		k.steps, k.uses, k.insts = slices.Clone(k.steps), slices.Clone(k.uses), slices.Clone(k.insts)
		s := &subject{name: chip + " " + e.form + " " + symbol, form: e.form, k: &k}
		for _, r := range append(e.chosen(), e.varied(symbol)...) {
			again, err := r.replay(&k, uint64(len(list)+1000*len(s.launches)))
			if err != nil {
				t.Fatalf("%s: %v", s.name, err)
			}
			s.launches = append(s.launches, again)
		}
		if err := s.record(t); err != nil {
			t.Fatal(err)
		}
		list = append(list, s)
	}
	return list
}

// gap is the unmapped memory on both sides of a block of a replay, which is as large as
// the block within limits: an access outside of a buffer faults also without sanitizers.
func gap(bytes uint64) uint64 { return min(max(bytes, 1<<12), 1<<15) }

// replay gives the launch memory of its own: arguments that overlap stay together. What
// it only writes is filled at random, so that a result that was there before does not
// stand for one that the launch has to compute.
func (r *recording) replay(k *Kernel, seed uint64) (*replay, error) {
	type part struct{ lo, hi uint64 }
	var parts []part
	order := make([]int, 0, len(r.args))
	for i, a := range r.args {
		if r.memory[i] != nil {
			order = append(order, i)
			parts = append(parts, part{a.Address, a.Address + uint64(a.Bytes)})
		}
	}
	slices.SortFunc(parts, func(a, b part) int { return cmp.Compare(a.lo, b.lo) })
	joined := parts[:0]
	for _, p := range parts {
		if n := len(joined); n > 0 && p.lo < joined[n-1].hi {
			joined[n-1].hi = max(joined[n-1].hi, p.hi)
		} else {
			joined = append(joined, p)
		}
	}
	// Blocks lie in the order of the arguments, as addresses differ from run to run.
	first := func(p part) int {
		return slices.IndexFunc(r.args, func(a device.Arg) bool { return a.Bytes > 0 && a.Mode != "" && p.lo <= a.Address && a.Address < p.hi })
	}
	slices.SortFunc(joined, func(a, b part) int { return cmp.Compare(first(a), first(b)) })
	total := uint64(0)
	for _, p := range joined {
		total += p.hi - p.lo + 2*gap(p.hi-p.lo) + 3*plan.Align
	}
	arena := asBytes(make([]uint64, total/8+1))
	out := &replay{launch: r.launch}
	space := &Space{}
	at, align := uint64(0), -Address(arena)%plan.Align
	offset := func(address uint64) uint64 { return address % plan.Align }
	starts := make([]uint64, len(joined))
	for i, p := range joined {
		starts[i] = (at+gap(p.hi-p.lo)+plan.Align-1)/plan.Align*plan.Align + align + offset(p.lo)
		b := &block{now: arena[starts[i]:][: p.hi-p.lo : p.hi-p.lo], readOnly: true}
		out.blocks = append(out.blocks, b)
		at = starts[i] + p.hi - p.lo + gap(p.hi-p.lo)
	}
	blockOf := func(address uint64) int {
		return slices.IndexFunc(joined, func(p part) bool { return p.lo <= address && address < p.hi })
	}
	args := slices.Clone(r.args)
	fill := rand.New(rand.NewPCG(seed, 1))
	// Read arguments last: what is read was there.
	slices.SortStableFunc(order, func(i, j int) int { return cmp.Compare(writeOnly(args[j]), writeOnly(args[i])) })
	for _, i := range order {
		a := &args[i]
		n := blockOf(a.Address)
		to := starts[n] + a.Address - joined[n].lo
		dst := arena[to:][:a.Bytes]
		copy(dst, r.memory[i])
		if writeOnly(*a) == 1 {
			for j := range dst {
				dst[j] = byte(fill.Uint32())
			}
		}
		if a.Mode != plan.Read {
			out.blocks[n].readOnly = false
		}
		a.Address = Address(arena) + to
	}
	for i, b := range out.blocks {
		if b.before = b.now; !b.readOnly {
			b.before = bytes.Clone(b.now)
		}
		g := regionOf(b.now, fmt.Sprint("block ", i))
		g.readOnly = b.readOnly
		list, err := space.list.with(g)
		if err != nil {
			return nil, err
		}
		space.list = list
	}
	segment, err := planArgs(k.Meta, args)
	if err != nil {
		return nil, err
	}
	d := &Device{opts: Options{Sanitize: CheckAll}}
	out.buffers = d.sanitize(&device.Launch{Args: args}).Buffers
	l := &out.launch
	l.Kernarg, l.Memory, l.Workers, l.Counters, l.Sanitize = segment, space, 1, nil, nil
	return out, nil
}

// writeOnly is 1 for an argument whose bytes the launch does not read.
func writeOnly(a device.Arg) int {
	if a.Mode == plan.Write {
		return 1
	}
	return 0
}
