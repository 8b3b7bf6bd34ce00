package devicetest

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/kiln-project/kiln/codegen"
	"github.com/kiln-project/kiln/codegen/kernels"
	"github.com/kiln-project/kiln/codegen/plan"
	"github.com/kiln-project/kiln/codegen/target"
	"github.com/kiln-project/kiln/ir"
	"github.com/kiln-project/kiln/ir/eval"
	"github.com/kiln-project/kiln/passes"
	"github.com/kiln-project/kiln/runtime/device"
	"github.com/kiln-project/kiln/runtime/engine"
)

// Compile makes the code of a unit.
type Compile func(context.Context, *codegen.Unit) (*codegen.Compiled, error)

// unit makes the code of a unit by the function, or by the compiler if that is nil.
func (f Compile) unit(t testing.TB, c *codegen.Compiler, u *codegen.Unit) *codegen.Compiled {
	t.Helper()
	if f == nil {
		f = c.Compile
	}
	code, err := f(context.Background(), u)
	if err != nil {
		t.Fatal(err)
	}
	return code
}

// Opener opens a device for one test.
type Opener func(*codegen.Compiler) (device.Device, error)

// Target is what a device's code is compiled for.
func Target(t testing.TB, c *codegen.Compiler, open Opener) *target.Target {
	t.Helper()
	dev, err := open(c)
	if err != nil {
		t.Fatal(err)
	}
	defer dev.Close()
	tg, err := target.Lookup(dev.Chip())
	if err != nil {
		t.Fatal(err)
	}
	return tg
}

// Lazy is an executor that compiles an entry for each binding that it meets. The
// exported fields may be changed before the first run.
type Lazy struct {
	Dev     device.Device
	Target  *target.Target
	Config  passes.Config // of the passes on steps
	Disable map[string]bool
	Lowered func(*plan.Module)                   // hears of every unit; may be nil
	Relay   func(*plan.Plan) (*plan.Plan, error) // another layout of the arena; may be nil
	Compile Compile                              // nil: the compiler's own
	// Requests is how many requests steps have at least, but those of prompts: fewer
	// are padded, so that a batch that becomes smaller meets no new binding.
	Requests int

	t        testing.TB // its end unloads the libraries and frees the memory
	entries  map[string]*ir.Graph
	weights  eval.WeightSource
	compiler *codegen.Compiler
	programs map[string]*device.Program
	taken    []string // liberties
}

// NewLazy makes an executor of entries after the passes on graphs, for the target
// of the device, with the pack graph that those left.
func NewLazy(t testing.TB, c *codegen.Compiler, open Opener, entries []*ir.Graph, pack *ir.Graph, w eval.WeightSource) (*Lazy, error) {
	dev, err := open(c)
	if err != nil {
		return nil, err
	}
	t.Cleanup(func() { dev.Close() })
	tg, err := target.Lookup(dev.Chip())
	if err != nil {
		return nil, err
	}
	bound, err := engine.BindPack(pack, w)
	if err != nil {
		return nil, err
	}
	x := &Lazy{Dev: dev, Target: tg, t: t, entries: map[string]*ir.Graph{}, weights: bound, compiler: c, programs: map[string]*device.Program{}}
	for _, g := range entries {
		x.entries[g.Name] = g
	}
	return x, nil
}

// Device implements engine.Executor.
func (x *Lazy) Device() string { return x.Dev.Name() }

// Has implements engine.Executor.
func (x *Lazy) Has(entry string) bool { return x.entries[entry] != nil }

// MaxPrefill implements engine.Executor.
func (x *Lazy) MaxPrefill() int { return 128 }

// promptRows is how many token rows of a request make its step one of a prompt.
const promptRows = 5

// Fit implements engine.Executor: every shape fits, after padding.
func (x *Lazy) Fit(entry string, s engine.Shape) (engine.Shape, error) {
	if rows := s.T / s.B; entry != "prefill" && rows < promptRows && s.B < x.Requests {
		s.T, s.O, s.B = rows*x.Requests, s.O/s.B*x.Requests, x.Requests
	}
	return s, nil
}

func (x *Lazy) program(entry string, bind map[string]int) (*device.Program, error) {
	key := fmt.Sprint(entry, slices.Sorted(maps.Keys(bind)))
	for _, s := range slices.Sorted(maps.Keys(bind)) {
		key += fmt.Sprint(" ", bind[s])
	}
	if p := x.programs[key]; p != nil {
		return p, nil
	}
	g := x.entries[entry]
	if g == nil {
		return nil, fmt.Errorf("no entry %q", entry)
	}
	u := codegen.NewUnit(x.Target)
	u.Disable = x.Disable
	m := &passes.Module{Entries: []*ir.Graph{g}, Target: x.Target.ForPasses(), Config: x.Config}
	if err := passes.Lower(m, []passes.Bucket{{Entry: entry, Bind: bind}}, u); err != nil {
		return nil, err
	}
	x.note(u.Module)
	if x.Lowered != nil {
		x.Lowered(u.Module)
	}
	compile := x.Compile
	if compile == nil {
		compile = x.compiler.Compile
	}
	out, err := compile(context.Background(), u)
	if err != nil {
		return nil, err
	}
	d, err := device.NewModel(x.Dev, out.Object, u.Module)
	if err != nil {
		return nil, err
	}
	x.t.Cleanup(func() { d.Close() })
	if err := d.BindWeights(context.Background(), x.weights, nil); err != nil {
		return nil, err
	}
	pl := u.Module.Plans[0]
	if x.Relay != nil {
		if pl, err = x.Relay(pl); err != nil {
			return nil, err
		}
	}
	p, err := d.Load(pl)
	if err != nil {
		return nil, err
	}
	x.programs[key] = p
	return p, nil
}

// note keeps the liberties that a unit's kernels take.
func (x *Lazy) note(m *plan.Module) {
	for _, op := range kernels.Ops() {
		for _, f := range kernels.For(op) {
			made := func(k plan.Kernel) bool { return k.Form == f.Name }
			if f.Liberty != "" && !slices.Contains(x.taken, f.Liberty) && slices.ContainsFunc(m.Kernels, made) {
				x.taken = append(x.taken, f.Liberty)
			}
		}
	}
}

// Liberties implements golden.LibertyTaker.
func (x *Lazy) Liberties() []string { return x.taken }

// Run implements engine.Executor.
func (x *Lazy) Run(entry string, bind map[string]int, in engine.Tensors, st engine.State) (engine.Tensors, error) {
	p, err := x.program(entry, bind)
	if err != nil {
		return nil, err
	}
	pools, _ := st.(*device.State)
	out, err := p.Run(in, pools)
	return out, err
}

// NewState implements engine.Executor.
func (x *Lazy) NewState(entry string, bind map[string]int) (engine.State, error) {
	g := x.entries[entry]
	if g == nil {
		return nil, fmt.Errorf("no entry %q", entry)
	}
	env := map[string]ir.Dim{}
	for s, n := range bind {
		env[s] = ir.Int(n)
	}
	st, err := device.NewState(x.Dev, g.States, env)
	if err == nil {
		x.t.Cleanup(func() { st.Close() })
	}
	return st, err
}
