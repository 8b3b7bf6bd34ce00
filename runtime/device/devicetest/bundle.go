package devicetest

import (
	"context"
	"slices"
	"testing"

	"github.com/kiln-project/kiln/codegen"
	"github.com/kiln-project/kiln/codegen/bundle"
	"github.com/kiln-project/kiln/codegen/plan"
	"github.com/kiln-project/kiln/codegen/target"
	"github.com/kiln-project/kiln/ir"
	"github.com/kiln-project/kiln/ir/eval"
	"github.com/kiln-project/kiln/models/dsv4"
	"github.com/kiln-project/kiln/passes"
	"github.com/kiln-project/kiln/runtime/device"
	"github.com/kiln-project/kiln/runtime/engine"
	"github.com/kiln-project/kiln/runtime/weights"
)

// Bundle is a compiled model with its weights, for one target.
type Bundle struct {
	Code    *bundle.Code
	Layout  engine.Layout
	Rings   int // requests at a time
	Pages   int // of one request
	MaxSeq  int
	Batches []int // that decode is compiled for, ascending
	weights eval.WeightSource
}

// OpenBundle reads a bundle's code for a target, and the checkpoint in a folder.
func OpenBundle(t testing.TB, path, target, model string) *Bundle {
	t.Helper()
	b, err := openBundle(t, path, target, model)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func openBundle(t testing.TB, path, target, model string) (*Bundle, error) {
	b, err := bundle.ReadManifest(path)
	if err != nil {
		return nil, err
	}
	code, err := b.ReadCode(path, target)
	if err != nil {
		return nil, err
	}
	return newBundle(t, code, b.Manifest.Settings, model)
}

// BuildBundle compiles decode steps of a model for a target, without a folder.
func BuildBundle(t testing.TB, c *codegen.Compiler, tg *target.Target, model string, maxSeq int, batches ...int) *Bundle {
	t.Helper()
	b, err := buildBundle(t, c, tg, model, maxSeq, batches)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func buildBundle(t testing.TB, c *codegen.Compiler, tg *target.Target, model string, maxSeq int, batches []int) (*Bundle, error) {
	set := bundle.Settings{Numerics: string(dsv4.Production), Batch: batches, MaxSeq: maxSeq}
	g, layout, err := decodeGraph(set, model)
	if err != nil {
		return nil, err
	}
	m := &passes.Module{Entries: []*ir.Graph{g}, Target: tg.ForPasses()}
	if err := passes.Run(m); err != nil {
		return nil, err
	}
	rings, pages := slices.Max(batches), layout.Pages(maxSeq)
	var buckets []passes.Bucket
	for _, n := range batches {
		buckets = append(buckets, passes.Bucket{Entry: "decode", Bind: map[string]int{"B": n, "R": rings, "P": pages, "N": rings * pages}})
	}
	files, _, err := c.Build(context.Background(), tg, m, buckets, codegen.Emit{})
	if err != nil {
		return nil, err
	}
	code, err := files.Decode(tg.Name)
	if err != nil {
		return nil, err
	}
	return newBundle(t, code, set, model)
}

func decodeGraph(set bundle.Settings, model string) (*ir.Graph, engine.Layout, error) {
	cfg, err := dsv4.LoadConfig(model)
	if err != nil {
		return nil, engine.Layout{}, err
	}
	o := dsv4.DefaultOptions()
	o.Numerics, o.Taps, o.MaxDraft = dsv4.Numerics(set.Numerics), set.Taps, set.Speculate
	if o.Head, err = dsv4.ParseHead(set.Head); err != nil {
		return nil, engine.Layout{}, err
	}
	g, err := dsv4.Build(cfg, dsv4.Decode, o)
	if err != nil {
		return nil, engine.Layout{}, err
	}
	layout, err := engine.LayoutOf(g)
	return g, layout, err
}

func newBundle(t testing.TB, code *bundle.Code, set bundle.Settings, model string) (*Bundle, error) {
	_, layout, err := decodeGraph(set, model)
	if err != nil {
		return nil, err
	}
	pack, err := code.PackGraph()
	if err != nil {
		return nil, err
	}
	file, err := weights.Open(model)
	if err != nil {
		return nil, err
	}
	t.Cleanup(func() { file.Close() })
	w, err := engine.BindPack(pack, engine.CheckpointSource{File: file})
	if err != nil {
		return nil, err
	}
	p := code.Module.Plans[0]
	return &Bundle{
		Code: code, Layout: layout, Rings: p.Symbol("R"), Pages: p.Symbol("P"), MaxSeq: set.MaxSeq, Batches: set.Batch, weights: w,
	}, nil
}

// Runner runs a bundle on a device, with one state.
type Runner struct {
	*engine.Engine
	Bundle *Bundle
	Exec   *device.Executor
	State  *device.State // of the main entries
	states []*device.State
	tap    *tap
}

// Start loads a bundle on a device, which is closed with it.
func (b *Bundle) Start(t testing.TB, dev device.Device) *Runner {
	t.Helper()
	r := &Runner{Bundle: b, tap: &tap{Device: dev}}
	var err error
	if r.Exec, err = device.NewExecutor(context.Background(), r.tap, b.Code.Object, b.Code.Module, b.weights, nil); err != nil {
		t.Fatal(err)
	}
	r.tap.keeps = true
	if r.Engine, err = engine.New(&kept{r.Exec, r}, b.Layout, b.Rings, b.Rings*b.Pages); err != nil {
		t.Fatal(err)
	}
	return r
}

// Close closes the states, the executor and its device.
func (r *Runner) Close(t testing.TB) {
	t.Helper()
	for _, s := range r.states {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
	if err := r.Exec.Close(); err != nil {
		t.Error(err)
	}
}

// Again runs the last plan n times more with the same inputs, which lie in memory that
// a run uses for other values too, and waits for the device; how many launches one run
// has is the result, without those around a step.
func (r *Runner) Again(t testing.TB, n int) int {
	t.Helper()
	last := r.tap.last
	for range n {
		for _, in := range last.inputs {
			if err := in.to.Memory.Write(in.offset, in.bytes); err != nil {
				t.Fatal(err)
			}
		}
		if err := last.run(); err != nil {
			t.Fatal(err)
		}
	}
	if err := r.tap.Sync(); err != nil {
		t.Fatal(err)
	}
	return last.launches
}

// LastStep is the step that ran last; nil on a device without steps.
func (r *Runner) LastStep() device.Step { return r.tap.last.step }

// kept keeps the states.
type kept struct {
	*device.Executor
	r *Runner
}

func (k *kept) NewState(entry string, bind map[string]int) (engine.State, error) {
	st, err := k.Executor.NewState(entry, bind)
	if s, ok := st.(*device.State); ok && err == nil {
		k.r.states = append(k.r.states, s)
		if entry == "decode" {
			k.r.State = s
		}
	}
	return st, err
}

// tap is a device that remembers what ran last, and what was written for it.
type tap struct {
	device.Device
	last    *ran
	keeps   bool // writes are remembered: the weights have been written
	written []written
}

// written is a write to memory.
type written struct {
	to     *tappedMemory
	offset int64
	bytes  []byte
}

type tappedMemory struct {
	device.Memory
	tap *tap
}

type tapLibrary struct {
	device.Library
	tap *tap
}

// ran is a sequence, or a step, that ran.
type ran struct {
	run      func() error
	step     device.Step // or nil
	launches int
	inputs   []written // of the last run, of a sequence
}

type tapped struct {
	device.Sequence
	tap *tap
	ran ran
}

type tappedStep struct {
	device.Step
	tap *tap
	ran ran
}

func (d *tap) Alloc(bytes int64) (device.Memory, error) {
	m, err := d.Device.Alloc(bytes)
	if err != nil {
		return nil, err
	}
	return &tappedMemory{m, d}, nil
}

// NewRing implements device.Uploader.
func (d *tap) NewRing(slots int, bytes int64) (device.Ring, error) {
	r, err := device.NewRing(d.Device, slots, bytes)
	return &tapRing{r}, err
}

// tapRing sends to what is tapped.
type tapRing struct{ device.Ring }

func (r *tapRing) Send(i int, list []device.Transfer) error {
	under := slices.Clone(list)
	for j := range under {
		under[j].To = under[j].To.(*tappedMemory).Memory
	}
	return r.Ring.Send(i, under)
}

func (m *tappedMemory) Write(offset int64, src []byte) error {
	if m.tap.keeps {
		m.tap.written = append(m.tap.written, written{m, offset, slices.Clone(src)})
	}
	return m.Memory.Write(offset, src)
}

func (d *tap) Load(code []byte, kernels []string) (device.Library, error) {
	l, err := d.Device.Load(code, kernels)
	if err != nil {
		return nil, err
	}
	if steps, ok := l.(device.StepLibrary); ok {
		return &tapSteps{tapLibrary{l, d}, steps}, nil
	}
	return &tapLibrary{l, d}, nil
}

func (l *tapLibrary) Prepare(launches []device.Launch) (device.Sequence, error) {
	s, err := l.Library.Prepare(launches)
	if err != nil {
		return nil, err
	}
	return &tapped{Sequence: s, tap: l.tap, ran: ran{run: s.Run, launches: len(launches)}}, nil
}

func (s *tapped) Run() error {
	s.tap.last, s.ran.inputs, s.tap.written = &s.ran, s.tap.written, nil
	return s.Sequence.Run()
}

// tapSteps is a library of a device with steps.
type tapSteps struct {
	tapLibrary
	steps device.StepLibrary
}

func (l *tapSteps) PrepareStep(x device.StepLaunches) (device.Step, error) {
	s, err := l.steps.PrepareStep(x)
	if err != nil {
		return nil, err
	}
	return &tappedStep{s, l.tap, ran{run: s.Run, step: s, launches: len(x.Launches)}}, nil
}

func (s *tappedStep) Run() error {
	s.tap.last, s.tap.written = &s.ran, nil
	return s.Step.Run()
}

// pools are the names of a module's states.
func pools(m *plan.Module) []string {
	var names []string
	for _, s := range m.States {
		names = append(names, s.Name)
	}
	return names
}
