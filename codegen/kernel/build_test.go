package kernel_test

import (
	"context"
	"fmt"
	"math"
	"os"
	"sync"
	"testing"

	"github.com/kiln-project/kiln/codegen/kernel"
	"github.com/kiln-project/kiln/codegen/llvm"
	"github.com/kiln-project/kiln/codegen/plan"
	"github.com/kiln-project/kiln/codegen/target"
	"github.com/kiln-project/kiln/ir"
	"github.com/kiln-project/kiln/ir/eval"
	"github.com/kiln-project/kiln/runtime/device"
	"github.com/kiln-project/kiln/runtime/host"
)

func TestMain(m *testing.M) {
	llvm.MaybeServeWorker(os.Args)
	code := m.Run()
	if shared.llvm != nil {
		shared.llvm.Close()
	}
	os.Exit(code)
}

// shared is the compiler of all tests.
var shared struct {
	once  sync.Once
	tools *llvm.Toolchain
	llvm  llvm.Compiler
	none  error // there is no LLVM
	err   error
}

func compiler(t *testing.T) (*llvm.Toolchain, llvm.Compiler) {
	t.Helper()
	shared.once.Do(func() {
		if shared.tools, shared.none = llvm.Find(context.Background(), llvm.FindOptions{}); shared.none == nil {
			shared.llvm, shared.err = llvm.New(context.Background(), shared.tools, llvm.Options{})
		}
	})
	if shared.none != nil {
		t.Skipf("this test compiles with LLVM, and there is none: %v", shared.none)
	}
	if shared.err != nil {
		t.Fatal(shared.err)
	}
	return shared.tools, shared.llvm
}

// hosts are the targets whose code this machine runs.
var hosts = []string{"x86-64-v3", "x86-64-v2"}

// unit is a test kernel: one group, inputs and one output.
type unit struct {
	name string
	in   []*eval.Tensor
	out  ir.Type
	body func(k *kernel.K, in []*kernel.Buf, out *kernel.Buf)
	// check compares the result.
	check func(t *testing.T, y *eval.Tensor)
}

// elementwise is a body that stores f of every element.
func elementwise(n int, f func(k *kernel.K, x kernel.V) kernel.V) func(*kernel.K, []*kernel.Buf, *kernel.Buf) {
	return func(k *kernel.K, in []*kernel.Buf, out *kernel.Buf) {
		k.Lanes(k.Int(n), func(i kernel.V) { out.Store(i, f(k, in[0].Load(i))) })
	}
}

// run compiles all units as one module for each host and runs them.
func run(t *testing.T, units []unit) {
	t.Helper()
	tc, c := compiler(t)
	for _, name := range hosts {
		if best, err := host.Target(); err != nil || best == "x86-64-v2" && name != best {
			t.Logf("this CPU does not run %s code (best: %q, %v)", name, best, err)
			continue
		}
		tg, err := target.Lookup(name)
		if err != nil {
			t.Fatal(err)
		}
		m := kernel.NewModule(tg)
		for i, u := range units {
			var params []kernel.Param
			for j, x := range u.in {
				params = append(params, kernel.Param{Name: fmt.Sprintf("in%d", j), Mem: x.DType})
			}
			params = append(params, kernel.Param{Name: "out", Mem: u.out.DType, Out: true})
			err := m.Build(fmt.Sprintf("unit%d", i), params, func(k *kernel.K, b []*kernel.Buf, _ []kernel.V) {
				u.body(k, b[:len(b)-1], b[len(b)-1])
			})
			if err != nil {
				t.Fatalf("%s: %v", u.name, err)
			}
		}
		r, err := c.Compile(t.Context(), llvm.Job{Name: "units", IR: []byte(m.Text()), Triple: tg.Triple, CPU: tg.CPU, OptPasses: "default<O3>", PIC: true})
		if err != nil {
			t.Fatal(err)
		}
		so, err := tc.Link(t.Context(), "units", [][]byte{r.Output})
		if err != nil {
			t.Fatal(err)
		}
		mod := &plan.Module{Version: plan.Version, Target: name, Block: 1}
		for i, u := range units {
			kn := plan.Kernel{Symbol: fmt.Sprintf("unit%d", i)}
			for _, x := range u.in {
				kn.Params = append(kn.Params, x.DType.String())
			}
			kn.Params = append(kn.Params, "="+u.out.DType.String())
			mod.Kernels = append(mod.Kernels, kn)
		}
		cpu, err := host.Open()
		if err != nil {
			t.Fatal(err)
		}
		d, err := device.NewModel(cpu, so, mod)
		if err != nil {
			t.Fatal(err)
		}
		for i, u := range units {
			t.Run(u.name+"/"+name, func(t *testing.T) { u.check(t, launch(t, d, i, u)) })
		}
		d.Close()
		cpu.Close()
	}
}

// launch runs one unit.
func launch(t *testing.T, d *device.Model, kernel int, u unit) *eval.Tensor {
	t.Helper()
	p := &plan.Plan{Entry: "unit"}
	l := plan.Launch{Kernel: kernel, Grid: 1}
	add := func(typ ir.Type, mode plan.Mode) plan.Tensor {
		n, _ := typ.Size()
		s := plan.Slice{Space: plan.Arena, Offset: p.Arena, Bytes: int64(n*typ.DType.Bits()+7) / 8}
		p.Arena += (s.Bytes + 63) / 64 * 64
		v := plan.Value{Name: typ.String(), Offset: s.Offset, Bytes: s.Bytes, First: -1}
		if mode == plan.Write {
			v.First, v.Last = 0, 1
		}
		p.Values = append(p.Values, v)
		l.Args = append(l.Args, plan.Arg{Buf: s, Mode: mode})
		return plan.Tensor{Type: typ.String(), Data: s}
	}
	in := map[string]*eval.Tensor{}
	for i, x := range u.in {
		a := add(x.Type(), plan.Read)
		a.Name = fmt.Sprintf("x%d", i)
		in[a.Name] = x
		p.Inputs = append(p.Inputs, a)
	}
	y := add(u.out, plan.Write)
	y.Name = "y"
	p.Outputs, p.Launches = []plan.Tensor{y}, []plan.Launch{l}
	prog, err := d.Load(p)
	if err != nil {
		t.Fatal(err)
	}
	defer prog.Close()
	out, err := prog.Run(in, nil)
	if err != nil {
		t.Fatal(err)
	}
	return out["y"]
}

func floats(t *testing.T, dt ir.DType, v []float32) *eval.Tensor {
	t.Helper()
	x, err := eval.FromF32(dt, v, len(v))
	if err != nil {
		t.Fatal(err)
	}
	return x
}

// codes is a tensor of the codes 0, 1, 2, ....
func codes(t *testing.T, dt ir.DType, n int) *eval.Tensor {
	t.Helper()
	x, err := eval.New(ir.T(dt, ir.Int(n)))
	if err != nil {
		t.Fatal(err)
	}
	for i := range x.Codes {
		x.Codes[i] = byte(i)
	}
	return x
}

func ints(t *testing.T, dt ir.DType, v ...int64) *eval.Tensor {
	t.Helper()
	x, err := eval.New(ir.T(dt, ir.Int(len(v))))
	if err != nil {
		t.Fatal(err)
	}
	copy(x.I, v)
	return x
}

func same(a, b float32) bool {
	return math.Float32bits(a) == math.Float32bits(b) || a != a && b != b
}

// wantFloats compares bit for bit, all NaNs being equal.
func wantFloats(want func(i int) float32) func(*testing.T, *eval.Tensor) {
	return func(t *testing.T, y *eval.Tensor) {
		bad := 0
		for i, g := range y.F {
			if w := want(i); !same(g, w) {
				if bad++; bad <= 5 {
					t.Errorf("element %d is %x, want %x", i, g, w)
				}
			}
		}
		if bad > 5 {
			t.Errorf("%d elements in all", bad)
		}
	}
}

func wantInts(want func(i int) int64) func(*testing.T, *eval.Tensor) {
	return func(t *testing.T, y *eval.Tensor) {
		bad := 0
		for i, g := range y.I {
			if w := want(i); g != w {
				if bad++; bad <= 5 {
					t.Errorf("element %d is %d, want %d", i, g, w)
				}
			}
		}
	}
}

func wantCodes(want func(i int) byte) func(*testing.T, *eval.Tensor) {
	return func(t *testing.T, y *eval.Tensor) {
		bad := 0
		for i, g := range y.Codes {
			if w := want(i); g != w {
				if bad++; bad <= 5 {
					t.Errorf("element %d is %#02x, want %#02x", i, g, w)
				}
			}
		}
	}
}
