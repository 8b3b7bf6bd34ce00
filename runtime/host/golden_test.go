package host_test

import (
	"context"
	"fmt"
	"maps"
	"os"
	"slices"
	"testing"

	"github.com/kiln-project/kiln/codegen"
	"github.com/kiln-project/kiln/codegen/llvm"
	"github.com/kiln-project/kiln/codegen/plan"
	"github.com/kiln-project/kiln/codegen/target"
	"github.com/kiln-project/kiln/ir"
	"github.com/kiln-project/kiln/ir/eval"
	"github.com/kiln-project/kiln/models/dsv4"
	"github.com/kiln-project/kiln/models/dsv4/golden"
	"github.com/kiln-project/kiln/passes"
	"github.com/kiln-project/kiln/runtime/device"
	"github.com/kiln-project/kiln/runtime/engine"
	"github.com/kiln-project/kiln/runtime/host"
)

// cacheDir is the cache of all tests: what several of them compile is compiled
// once.
var cacheDir string

func TestMain(m *testing.M) {
	llvm.MaybeServeWorker(os.Args)
	var err error
	if cacheDir, err = os.MkdirTemp("", "kiln-host-test-"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code := m.Run()
	os.RemoveAll(cacheDir)
	os.Exit(code)
}

// newCompiler finds an LLVM or skips: the host device cannot be tested without.
func newCompiler(t testing.TB) *codegen.Compiler {
	t.Helper()
	tools, err := llvm.Find(context.Background(), llvm.FindOptions{})
	if err != nil {
		t.Skipf("no LLVM (run make toolchain): %v", err)
	}
	lc, err := llvm.New(context.Background(), tools, llvm.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { lc.Close() })
	return &codegen.Compiler{Tools: tools, LLVM: lc, Cache: codegen.OpenCache(cacheDir)}
}

// lazy is an executor that compiles an entry for each binding that it meets.
type lazy struct {
	t        testing.TB // its end unloads the libraries and frees the memory
	entries  map[string]*ir.Graph
	weights  eval.WeightSource
	compiler *codegen.Compiler
	target   *target.Target
	config   passes.Config
	disable  map[string]bool
	lowered  func(*plan.Module) // hears of every unit; may be nil
	dev      device.Device
	relay    func(*plan.Plan) (*plan.Plan, error) // another layout of the arena; may be nil
	programs map[string]*device.Program
}

func newLazy(t testing.TB, c *codegen.Compiler, entries []*ir.Graph, pack *ir.Graph, w eval.WeightSource) (*lazy, error) {
	cpu, err := host.Open()
	if err != nil {
		return nil, err
	}
	t.Cleanup(func() { cpu.Close() })
	tg, err := target.Lookup(cpu.Chip())
	if err != nil {
		return nil, err
	}
	bound, err := engine.BindPack(pack, w)
	if err != nil {
		return nil, err
	}
	x := &lazy{t: t, entries: map[string]*ir.Graph{}, weights: bound, compiler: c, target: tg, dev: cpu, programs: map[string]*device.Program{}}
	for _, g := range entries {
		x.entries[g.Name] = g
	}
	return x, nil
}

func (x *lazy) Device() string        { return "host" }
func (x *lazy) Has(entry string) bool { return x.entries[entry] != nil }
func (x *lazy) MaxPrefill() int       { return 128 }

func (x *lazy) Fit(_ string, s engine.Shape) (engine.Shape, error) { return s, nil }

func (x *lazy) program(entry string, bind map[string]int) (*device.Program, error) {
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
	u := codegen.NewUnit(x.target)
	u.Disable = x.disable
	m := &passes.Module{Entries: []*ir.Graph{g}, Target: x.target.ForPasses(), Config: x.config}
	if err := passes.Lower(m, []passes.Bucket{{Entry: entry, Bind: bind}}, u); err != nil {
		return nil, err
	}
	if x.lowered != nil {
		x.lowered(u.Module)
	}
	out, err := x.compiler.Compile(context.Background(), u)
	if err != nil {
		return nil, err
	}
	d, err := device.NewModel(x.dev, out.Object, u.Module)
	if err != nil {
		return nil, err
	}
	x.t.Cleanup(func() { d.Close() })
	if err := d.BindWeights(x.weights); err != nil {
		return nil, err
	}
	pl := u.Module.Plans[0]
	if x.relay != nil {
		if pl, err = x.relay(pl); err != nil {
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

func (x *lazy) Run(entry string, bind map[string]int, in engine.Tensors, st engine.State) (engine.Tensors, error) {
	p, err := x.program(entry, bind)
	if err != nil {
		return nil, err
	}
	pools, _ := st.(*device.State)
	out, err := p.Run(in, pools)
	return out, err
}

func (x *lazy) NewState(entry string, bind map[string]int) (engine.State, error) {
	g := x.entries[entry]
	if g == nil {
		return nil, fmt.Errorf("no entry %q", entry)
	}
	env := map[string]ir.Dim{}
	for s, n := range bind {
		env[s] = ir.Int(n)
	}
	st, err := device.NewState(x.dev, g.States, env)
	if err == nil {
		x.t.Cleanup(func() { st.Close() })
	}
	return st, err
}

// variant is one way to compile the graphs of the goldens.
type variant struct {
	numerics dsv4.Numerics
	passes   passes.Config
	disable  []string           // kernel forms
	lowered  func(*plan.Module) // hears of every unit; may be nil
	skip     map[string]string  // a check -> why not
}

// runGolden runs the whole golden suite on the host: the ops, one layer at a
// time, and end to end, with the limits of docs/dsv4.md.
func runGolden(t *testing.T, c *codegen.Compiler, v variant) {
	t.Helper()
	dir := map[dsv4.Numerics]string{dsv4.Production: "expected-production", dsv4.Unrounded: "expected"}[v.numerics]
	disable := map[string]bool{}
	for _, form := range v.disable {
		disable[form] = true
	}
	s, err := golden.Open(golden.Config{
		Model: "../../testdata/tiny-dsv4", Golden: "../../testdata/golden/" + dir, Numerics: v.numerics, Passes: v.passes,
		Executor: func(entries []*ir.Graph, pack *ir.Graph, w eval.WeightSource) (engine.Executor, error) {
			x, err := newLazy(t, c, entries, pack, w)
			if err != nil {
				return nil, err
			}
			x.config, x.disable, x.lowered = v.passes, disable, v.lowered
			return x, nil
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for _, check := range s.Checks() {
		t.Run(check.Name, func(t *testing.T) {
			if why := v.skip[check.Name]; why != "" {
				t.Skip(why)
			}
			if err := check.Run(); err != nil {
				t.Error(err)
			}
		})
	}
}

// The default passes and kernels.
func TestGolden(t *testing.T) {
	c := newCompiler(t)
	for _, n := range []dsv4.Numerics{dsv4.Production, dsv4.Unrounded} {
		t.Run(string(n), func(t *testing.T) { runGolden(t, c, variant{numerics: n}) })
	}
}
