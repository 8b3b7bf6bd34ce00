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
	"github.com/kiln-project/kiln/codegen/target"
	"github.com/kiln-project/kiln/ir"
	"github.com/kiln-project/kiln/ir/eval"
	"github.com/kiln-project/kiln/models/dsv4"
	"github.com/kiln-project/kiln/models/dsv4/golden"
	"github.com/kiln-project/kiln/passes"
	"github.com/kiln-project/kiln/runtime/engine"
	"github.com/kiln-project/kiln/runtime/host"
)

func TestMain(m *testing.M) {
	llvm.MaybeServeWorker(os.Args)
	os.Exit(m.Run())
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
	return &codegen.Compiler{Tools: tools, LLVM: lc, Cache: codegen.OpenCache(t.TempDir())}
}

// lazy is an executor that compiles an entry for each binding that it meets.
type lazy struct {
	entries  map[string]*ir.Graph
	weights  eval.WeightSource
	compiler *codegen.Compiler
	target   *target.Target
	disable  map[string]bool
	programs map[string]*host.Program
}

func newLazy(c *codegen.Compiler, entries []*ir.Graph, pack *ir.Graph, w eval.WeightSource) (*lazy, error) {
	name, err := host.Target()
	if err != nil {
		return nil, err
	}
	tg, err := target.Lookup(name)
	if err != nil {
		return nil, err
	}
	bound, err := engine.BindPack(pack, w)
	if err != nil {
		return nil, err
	}
	x := &lazy{entries: map[string]*ir.Graph{}, weights: bound, compiler: c, target: tg, programs: map[string]*host.Program{}}
	for _, g := range entries {
		x.entries[g.Name] = g
	}
	return x, nil
}

func (x *lazy) Device() string        { return "host" }
func (x *lazy) Has(entry string) bool { return x.entries[entry] != nil }
func (x *lazy) MaxPrefill() int       { return 128 }

func (x *lazy) Fit(_ string, s engine.Shape) (engine.Shape, error) { return s, nil }

func (x *lazy) program(entry string, bind map[string]int) (*host.Program, error) {
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
	plans, err := u.LowerAll([]*ir.Graph{g}, []passes.Bucket{{Entry: entry, Bind: bind}})
	if err != nil {
		return nil, err
	}
	out, err := x.compiler.Compile(context.Background(), u)
	if err != nil {
		return nil, err
	}
	lib, err := host.OpenLibrary(out.Object)
	if err != nil {
		return nil, err
	}
	d := host.NewDevice(lib, u.Module)
	if err := d.BindWeights(x.weights); err != nil {
		return nil, err
	}
	p, err := d.Load(plans[0])
	x.programs[key] = p
	return p, err
}

func (x *lazy) Run(entry string, bind map[string]int, in engine.Tensors, st engine.State) (engine.Tensors, error) {
	p, err := x.program(entry, bind)
	if err != nil {
		return nil, err
	}
	pools, _ := st.(*host.State)
	if pools == nil {
		pools = &host.State{}
	}
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
	return host.NewStateOf(g.States, env)
}

// TestGolden runs the whole golden suite on the host: the ops, one layer at a
// time, and end to end, with the limits of docs/dsv4.md.
func TestGolden(t *testing.T) {
	for _, v := range []struct {
		numerics dsv4.Numerics
		dir      string
	}{{dsv4.Production, "expected-production"}, {dsv4.Unrounded, "expected"}} {
		t.Run(string(v.numerics), func(t *testing.T) {
			c := newCompiler(t)
			s, err := golden.Open(golden.Config{
				Model: "../../testdata/tiny-dsv4", Golden: "../../testdata/golden/" + v.dir, Numerics: v.numerics,
				Executor: func(entries []*ir.Graph, pack *ir.Graph, w eval.WeightSource) (engine.Executor, error) {
					return newLazy(c, entries, pack, w)
				},
			})
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			for _, check := range s.Checks() {
				t.Run(check.Name, func(t *testing.T) {
					if err := check.Run(); err != nil {
						t.Error(err)
					}
				})
			}
		})
	}
}
