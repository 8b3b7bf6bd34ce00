package mypasses

import (
	"context"
	"fmt"
	"math"
	"os"
	"sync"
	"testing"

	"github.com/kiln-project/kiln/codegen"
	"github.com/kiln-project/kiln/codegen/llvm"
	"github.com/kiln-project/kiln/codegen/object"
	"github.com/kiln-project/kiln/codegen/plan"
	"github.com/kiln-project/kiln/codegen/target"
	"github.com/kiln-project/kiln/ir"
	"github.com/kiln-project/kiln/ir/eval"
	"github.com/kiln-project/kiln/runtime/host"
)

func TestMain(m *testing.M) {
	llvm.MaybeServeWorker(os.Args)
	if err := Register(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// compiler needs an LLVM: the one of Kiln's repository, else one of the machine.
var compiler = sync.OnceValues(func() (*codegen.Compiler, error) {
	dir := "../../../.toolchain/llvm"
	if _, err := os.Stat(dir); err != nil {
		dir = ""
	}
	tools, err := llvm.Find(context.Background(), llvm.FindOptions{Dir: dir})
	if err != nil {
		return nil, err
	}
	lc, err := llvm.New(context.Background(), tools, llvm.Options{})
	return &codegen.Compiler{Tools: tools, LLVM: lc}, err
})

// compile makes code of a graph, without some forms.
func compile(t *testing.T, g *ir.Graph, targetName string, without ...string) (*codegen.Unit, *plan.Plan, []byte) {
	t.Helper()
	cc, err := compiler()
	if err != nil {
		t.Skipf("this test compiles: %v", err)
	}
	tg, err := target.Lookup(targetName)
	if err != nil {
		t.Fatal(err)
	}
	u := codegen.NewUnit(tg)
	for _, form := range without {
		u.Disable[form] = true
	}
	p, err := u.Lower(g)
	if err != nil {
		t.Fatal(err)
	}
	c, err := cc.Compile(t.Context(), u)
	if err != nil {
		t.Fatal(err)
	}
	return u, p, c.Object
}

// addRoundOf is a graph of the op alone.
func addRoundOf(t *testing.T, x, y *eval.Tensor) *ir.Graph {
	t.Helper()
	b := ir.NewBuilder("g")
	b.Output("z", b.Op1("my.add_round", nil, b.Input("x", x.Type()), b.Input("y", y.Type())))
	g, err := b.Finish()
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// operands meet every case of rounding: sums that are exact, that tie, that are just
// off a tie, that overflow, infinities, NaN, zeros of both signs, subnormals.
func operands(t *testing.T, rows, width int) (x, y *eval.Tensor) {
	t.Helper()
	inf := float32(math.Inf(1))
	xs := []float32{1, 0x1p-8, -0x1p-8, 0x1.01p-8, 3, inf, -inf, float32(math.NaN()), 0, float32(math.Copysign(0, -1)), 0x1p-149, math.MaxFloat32, -1}
	ys := []float32{1, -1, inf, 0, float32(math.Copysign(0, -1)), 0x1p-133, 0x1.fep127}
	a, b := make([]float32, rows*width), make([]float32, rows*width)
	for i := range a {
		a[i], b[i] = xs[i%len(xs)], ys[i/len(xs)%len(ys)]
	}
	x, err := eval.FromF32(ir.F32, a, rows, width)
	if err != nil {
		t.Fatal(err)
	}
	if y, err = eval.FromF32(ir.BF16, b, rows, width); err != nil {
		t.Fatal(err)
	}
	return x, y
}

// The kernel on this CPU gives the bits that the op's meaning has in the evaluator,
// and so do the kernels of the meaning, which run when the form is disabled.
func TestKernelOnHost(t *testing.T) {
	best, err := host.Target()
	if err != nil {
		t.Skip(err)
	}
	for _, width := range []int{1, 7, 8, 9, 100} {
		x, y := operands(t, 13, width)
		g := addRoundOf(t, x, y)
		in := map[string]*eval.Tensor{"x": x, "y": y}
		p, err := eval.Compile(g, eval.NewConsts(nil))
		if err != nil {
			t.Fatal(err)
		}
		want, err := p.Run(in, nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, without := range [][]string{nil, {"my_add_round"}} {
			u, p, code := compile(t, g, best, without...)
			if fused := len(p.Launches) == 1 && p.Launches[0].Op == "my.add_round"; fused == (without != nil) {
				t.Fatalf("without %v: launches %v", without, p.Launches)
			}
			if d := u.Module.Decomposed; without != nil && (len(d) != 1 || d[0].Op != "my.add_round" || d[0].Rejected[0].Reason != "disabled") {
				t.Errorf("without %v: decomposed %v", without, d)
			}
			lib, err := host.OpenLibrary(code)
			if err != nil {
				t.Fatal(err)
			}
			got := onHost(t, host.NewDevice(lib, u.Module), p, in)
			for i, w := range want["z"].F {
				if v := got["z"].F[i]; math.Float32bits(v) != math.Float32bits(w) && (v == v || w == w) {
					t.Errorf("width %d, without %v: %v + %v is %v, want %v", width, without, x.F[i], y.F[i], v, w)
				}
			}
		}
	}
}

func onHost(t *testing.T, d *host.Device, p *plan.Plan, in map[string]*eval.Tensor) map[string]*eval.Tensor {
	t.Helper()
	defer d.Close()
	prog, err := d.Load(p)
	if err != nil {
		t.Fatal(err)
	}
	defer prog.Close()
	st, err := d.NewState(p)
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	out, err := prog.Run(in, st)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// For AMD GPUs the kernel compiles and reads back clean. Nothing here executes it.
func TestKernelForGPUs(t *testing.T) {
	x, y := operands(t, 3, 256)
	for _, name := range []string{"gfx942", "gfx950"} {
		u, _, code := compile(t, addRoundOf(t, x, y), name)
		f, err := object.Read(code)
		if err != nil {
			t.Fatal(err)
		}
		k, err := f.Object.Kernel(u.Kernels[0].Symbol)
		if err != nil {
			t.Fatal(err)
		}
		if k.ScratchBytes != 0 || len(u.Module.Decomposed) != 0 || len(u.Kernels) != 1 {
			t.Errorf("%s: %d kernels, %d bytes of scratch, decomposed %v", name, len(u.Kernels), k.ScratchBytes, u.Module.Decomposed)
		}
	}
}
