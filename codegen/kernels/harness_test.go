package kernels_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kiln-project/kiln/codegen"
	"github.com/kiln-project/kiln/codegen/target"
	"github.com/kiln-project/kiln/ir"
	"github.com/kiln-project/kiln/ir/eval"
	"github.com/kiln-project/kiln/runtime/host"
)

func llvmBin(t *testing.T) string {
	t.Helper()
	dir, err := filepath.Abs("../../.toolchain/llvm/bin")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(dir, "llc")); err != nil {
		t.Skip("no LLVM: run make toolchain")
	}
	return dir
}

// compileHost turns a unit's kernels into a loaded library.
func compileHost(t *testing.T, u *codegen.Unit) *host.Library {
	t.Helper()
	bin, dir := llvmBin(t), t.TempDir()
	var objs []string
	for _, k := range u.Kernels {
		base := filepath.Join(dir, k.Symbol)
		if err := os.WriteFile(base+".ll", []byte(k.IR), 0o644); err != nil {
			t.Fatal(err)
		}
		for _, cmd := range [][]string{
			{"opt", "-passes=default<O3>", "-mcpu=" + u.Target.CPU, base + ".ll", "-o", base + ".bc"},
			{"llc", "-O3", "-mcpu=" + u.Target.CPU, "-relocation-model=pic", "-filetype=obj", base + ".bc", "-o", base + ".o"},
		} {
			if out, err := exec.Command(filepath.Join(bin, cmd[0]), cmd[1:]...).CombinedOutput(); err != nil {
				t.Fatalf("%s (%s): %v\n%s\n%s", k.Symbol, k.Spec, err, out, k.IR)
			}
		}
		objs = append(objs, base+".o")
	}
	so := filepath.Join(dir, "k.so")
	if out, err := exec.Command(filepath.Join(bin, "ld.lld"), append([]string{"-shared", "-o", so}, objs...)...).CombinedOutput(); err != nil {
		t.Fatalf("ld.lld: %v\n%s", err, out)
	}
	data, err := os.ReadFile(so)
	if err != nil {
		t.Fatal(err)
	}
	lib, err := host.OpenLibrary(data)
	if err != nil {
		t.Fatal(err)
	}
	return lib
}

// runBoth evaluates a bound graph on the oracle and on the host.
func runBoth(t *testing.T, g *ir.Graph, in map[string]*eval.Tensor) (want, got map[string]*eval.Tensor) {
	t.Helper()
	p, err := eval.Compile(g, eval.NewConsts(nil))
	if err != nil {
		t.Fatal(err)
	}
	if want, err = p.Run(in, nil); err != nil {
		t.Fatal(err)
	}
	tg, err := target.Lookup("x86-64-v3")
	if err != nil {
		t.Fatal(err)
	}
	u := codegen.NewUnit(tg)
	pl, err := u.Lower(g, nil)
	if err != nil {
		t.Fatal(err)
	}
	d := host.NewDevice(compileHost(t, u))
	defer d.Close()
	prog, err := d.Load(pl)
	if err != nil {
		t.Fatal(err)
	}
	defer prog.Close()
	st, err := host.NewState(pl)
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	if got, err = prog.Run(in, st); err != nil {
		t.Fatal(err)
	}
	return want, got
}

// opGraph is a graph of one op on inputs x0, x1, ....
func opGraph(t *testing.T, op string, attrs ir.Attrs, in ...*eval.Tensor) (*ir.Graph, map[string]*eval.Tensor) {
	t.Helper()
	b := ir.NewBuilder("one")
	vals := map[string]*eval.Tensor{}
	var args []*ir.Value
	for i, x := range in {
		name := fmt.Sprintf("x%d", i)
		vals[name] = x
		args = append(args, b.Input(name, x.Type()))
	}
	for i, r := range b.Op(op, attrs, args...) {
		b.Output(fmt.Sprintf("y%d", i), r)
	}
	g, err := b.Finish()
	if err != nil {
		t.Fatal(err)
	}
	return g, vals
}

// describe summarises how two tensors differ: "" if they are bit-equal (any NaN
// equals any NaN).
func describe(want, got *eval.Tensor) string {
	if !want.Type().Equal(got.Type()) {
		return fmt.Sprintf("type %s, want %s", got.Type(), want.Type())
	}
	diff, first, worst := 0, "", 0.0
	note := func(i int, w, g any) {
		if diff++; diff == 1 {
			first = fmt.Sprintf("element %d is %v, want %v", i, g, w)
		}
	}
	for i := range want.F {
		w, g := want.F[i], got.F[i]
		if w != g && (w == w || g == g) {
			note(i, w, g)
			if d := float64(w - g); d > worst || -d > worst {
				worst = max(d, -d)
			}
		}
	}
	for i := range want.I {
		if want.I[i] != got.I[i] {
			note(i, want.I[i], got.I[i])
		}
	}
	for i := range want.Codes {
		if want.Codes[i] != got.Codes[i] {
			note(i, want.Codes[i], got.Codes[i])
		}
	}
	for i := range want.Scales {
		if want.Scales[i] != got.Scales[i] {
			note(i, want.Scales[i], got.Scales[i])
		}
	}
	if diff == 0 {
		return ""
	}
	return fmt.Sprintf("%d of %d differ (%s; worst %g)", diff, want.Len(), first, worst)
}

var _ = strings.TrimSpace
