package mypasses

import (
	"context"
	"errors"
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
	"github.com/kiln-project/kiln/runtime/device"
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

// addRowOf is a graph of the op alone.
func addRowOf(t *testing.T, in map[string]*eval.Tensor) *ir.Graph {
	t.Helper()
	b := ir.NewBuilder("g")
	arg := func(name string) *ir.Value { return b.Input(name, in[name].Type()) }
	b.Output("z", b.Op1("my.add_row", nil, arg("x"), arg("table"), arg("rows")))
	g, err := b.Finish()
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// operands have zeros of both signs, infinities, NaN, extremes and subnormals, and
// rows that are none.
func operands(t *testing.T, n, width int) map[string]*eval.Tensor {
	t.Helper()
	special := []float32{1, -1, 0, float32(math.Copysign(0, -1)), 0x1p-149, -0x1p-126, math.MaxFloat32, float32(math.Inf(1)), float32(math.Inf(-1)), float32(math.NaN()), 3.5}
	const entries = 5
	x, table, rows := make([]float32, n*width), make([]float32, entries*width), make([]int32, n)
	for i := range x {
		x[i] = special[i%len(special)]
	}
	for i := range table {
		table[i] = special[(i/3)%len(special)]
	}
	for i := range rows {
		rows[i] = int32(i%(entries+1)) - 1
	}
	out := map[string]*eval.Tensor{}
	var err error
	set := func(name string, t *eval.Tensor, e error) { out[name], err = t, errors.Join(err, e) }
	y, e := eval.FromF32(ir.F32, x, n, width)
	set("x", y, e)
	y, e = eval.FromF32(ir.F32, table, entries, width)
	set("table", y, e)
	y, e = eval.FromI32(rows, n)
	set("rows", y, e)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// The kernel on this CPU gives the bits that the op's meaning has in the evaluator,
// and so do the kernels of the meaning, which run when the form is disabled.
func TestKernelOnHost(t *testing.T) {
	best, err := host.Target()
	if err != nil {
		t.Skip(err)
	}
	for _, width := range []int{1, 7, 8, 9, 100} {
		in := operands(t, 13, width)
		g := addRowOf(t, in)
		p, err := eval.Compile(g, eval.NewConsts(nil))
		if err != nil {
			t.Fatal(err)
		}
		want, err := p.Run(in, nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, without := range [][]string{nil, {"my_add_row"}} {
			u, p, code := compile(t, g, best, without...)
			if fused := len(p.Launches) == 1 && p.Launches[0].Op == "my.add_row"; fused == (without != nil) {
				t.Fatalf("without %v: launches %v", without, p.Launches)
			}
			if d := u.Module.Decomposed; without != nil && (len(d) != 1 || d[0].Op != "my.add_row" || d[0].Rejected[0].Reason != "disabled") {
				t.Errorf("without %v: decomposed %v", without, d)
			}
			got := onHost(t, code, u.Module, p, in)
			for i, w := range want["z"].F {
				if v := got["z"].F[i]; math.Float32bits(v) != math.Float32bits(w) && (v == v || w == w) {
					t.Errorf("width %d, without %v: element %d is %v, want %v", width, without, i, v, w)
				}
			}
		}
	}
}

func onHost(t *testing.T, code []byte, m *plan.Module, p *plan.Plan, in map[string]*eval.Tensor) map[string]*eval.Tensor {
	t.Helper()
	cpu, err := host.Open()
	if err != nil {
		t.Fatal(err)
	}
	defer cpu.Close()
	d, err := device.NewModel(cpu, code, m)
	if err != nil {
		t.Fatal(err)
	}
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
	g := addRowOf(t, operands(t, 3, 256))
	for _, name := range []string{"gfx942", "gfx950"} {
		u, p, code := compile(t, g, name)
		f, err := object.Read(code)
		if err != nil {
			t.Fatal(err)
		}
		k, err := f.Object.Kernel(u.Kernels[0].Symbol)
		if err != nil {
			t.Fatal(err)
		}
		// The unit has the kernels around a step too: what counts is what the plan launches.
		if launches := len(p.Launches); k.ScratchBytes != 0 || len(u.Module.Decomposed) != 0 || launches != 1 {
			t.Errorf("%s: %d launches, %d bytes of scratch, decomposed %v", name, launches, k.ScratchBytes, u.Module.Decomposed)
		}
	}
}
