package codegen

import (
	"bytes"
	"os"
	"strings"
	"testing"

	"github.com/kiln-project/kiln/codegen/llvm"
	"github.com/kiln-project/kiln/codegen/object"
	"github.com/kiln-project/kiln/codegen/target"
	"github.com/kiln-project/kiln/ir"
)

func TestMain(m *testing.M) {
	llvm.MaybeServeWorker(os.Args)
	os.Exit(m.Run())
}

// newCompiler is a compiler without a cache, or skips where nothing can be compiled.
func newCompiler(t *testing.T) *Compiler {
	t.Helper()
	tools, err := llvm.Find(t.Context(), llvm.FindOptions{})
	if err != nil {
		t.Skipf("no LLVM (run make toolchain): %v", err)
	}
	lc, err := llvm.New(t.Context(), tools, llvm.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { lc.Close() })
	return &Compiler{Tools: tools, LLVM: lc}
}

// compilers makes a compiler of each way to run LLVM that works here.
func compilers(t *testing.T) map[llvm.Mode]*Compiler {
	t.Helper()
	tools, err := llvm.Find(t.Context(), llvm.FindOptions{})
	if err != nil {
		t.Skipf("this test compiles with LLVM, and there is none: %v", err)
	}
	if ok, err := tools.KnowsCPU(t.Context(), llvm.AMDGPU, "gfx950"); !ok {
		t.Skipf("this test compiles for gfx950, which LLVM %s does not know: %v", tools.Version, err)
	}
	out := map[llvm.Mode]*Compiler{}
	for _, mode := range []llvm.Mode{llvm.Worker, llvm.Programs} {
		lc, err := llvm.New(t.Context(), tools, llvm.Options{Mode: mode})
		if err != nil {
			t.Logf("no mode %s here: %v", mode, err)
			continue
		}
		t.Cleanup(func() { lc.Close() })
		out[mode] = &Compiler{Tools: tools, LLVM: lc}
	}
	return out
}

// twoKernels is a unit with more than one kernel, so that the linker has objects
// to join.
func twoKernels(t *testing.T, name string) *Unit {
	t.Helper()
	tg, err := target.Lookup(name)
	if err != nil {
		t.Fatal(err)
	}
	b := ir.NewBuilder("two")
	x := b.Input("x", ir.T(ir.BF16, ir.Int(3), ir.Int(64)))
	y := b.Op1("rms_norm", ir.A("eps", 1e-6), x, b.Input("w", ir.T(ir.BF16, ir.Int(64))))
	b.Output("y", b.Op1("hadamard", nil, y))
	g, err := b.Finish()
	if err != nil {
		t.Fatal(err)
	}
	u := NewUnit(tg)
	if _, err := u.Lower(g); err != nil {
		t.Fatal(err)
	}
	if len(u.Kernels) < 2 {
		t.Fatalf("%d kernels", len(u.Kernels))
	}
	return u
}

// The features of a target ID reach the ELF header and the metadata, however LLVM
// runs, and both ways give the same bytes.
func TestTargetIDs(t *testing.T) {
	cs := compilers(t)
	for _, name := range []string{"gfx942", "gfx942:xnack-", "gfx942:sramecc+:xnack-", "gfx950:sramecc-:xnack+", "gfx950:sramecc+"} {
		u := twoKernels(t, name)
		var first []byte
		for mode, c := range cs {
			out, err := c.Compile(t.Context(), u)
			if err != nil {
				t.Fatal(mode, err)
			}
			f, err := object.Read(out.Object)
			if err != nil {
				t.Fatal(mode, err)
			}
			if o := f.Object; o.Target != u.Target.ID || o.Target.String() != name || o.MetadataTarget != "amdgcn-amd-amdhsa--"+name {
				t.Errorf("%s, %s: ELF header %s, metadata %s", mode, name, o.Target, o.MetadataTarget)
			}
			if first == nil {
				first = out.Object
			}
			if !bytes.Equal(first, out.Object) {
				t.Errorf("%s: the two ways to run LLVM give different code objects", name)
			}
		}
	}
}

// Code for other settings than were asked for is refused, and so is code whose
// metadata says something else than its header.
func TestReadBackRefuses(t *testing.T) {
	u := twoKernels(t, "gfx942:sramecc+:xnack-")
	for mode, c := range compilers(t) {
		out, err := c.Compile(t.Context(), u)
		if err != nil {
			t.Fatal(mode, err)
		}
		lies := bytes.Replace(out.Object, []byte("--gfx942:sramecc+:xnack-"), []byte("--gfx942:sramecc+:xnack+"), 1)
		for _, tc := range []struct {
			code []byte
			id   string
			want string
		}{
			{out.Object, "gfx942:sramecc+:xnack+", "ELF header is for gfx942:sramecc+:xnack-, want gfx942:sramecc+:xnack+"},
			{out.Object, "gfx942:sramecc+", "ELF header is for gfx942:sramecc+:xnack-, want gfx942:sramecc+"},
			{out.Object, "gfx950:sramecc+:xnack-", "want gfx950:sramecc+:xnack-"},
			{lies, "gfx942:sramecc+:xnack-", "metadata is for amdgcn-amd-amdhsa--gfx942:sramecc+:xnack+, want"},
		} {
			id, err := object.ParseTargetID(tc.id)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := readBack(tc.code, id, 5); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("%s, asked for %s: error %v, want %q in it", mode, tc.id, err, tc.want)
			}
		}
		if _, err := readBack(out.Object, u.Target.ID, 6); err == nil || !strings.Contains(err.Error(), "is of version 5, want 6") {
			t.Errorf("%s, asked for version 6: error %v", mode, err)
		}
	}
}

// A version that cannot be made is an error that names those that can, and host
// code has none.
func TestCodeObjectVersions(t *testing.T) {
	for mode, c := range compilers(t) {
		for _, tc := range []struct {
			target        string
			version, want int
		}{{"gfx950", 0, 5}, {"gfx950", 5, 5}, {"gfx950:xnack-", 6, 6}} {
			c.CodeObjectVersion = tc.version
			out, err := c.Compile(t.Context(), twoKernels(t, tc.target))
			if err != nil {
				t.Fatal(mode, err)
			}
			if f, err := object.Read(out.Object); err != nil || f.Object.Version != tc.want || f.Object.ABIVersion != tc.want-2 {
				t.Errorf("%s: version %d for %s: %v", mode, tc.version, tc.target, err)
			}
		}
		c.CodeObjectVersion = 7
		if _, err := c.Compile(t.Context(), twoKernels(t, "gfx950")); err == nil || !strings.Contains(err.Error(), "code object version 700: only 500 and 600") {
			t.Errorf("%s: version 7: error %v", mode, err)
		}
		if _, err := c.Compile(t.Context(), twoKernels(t, "x86-64-v2")); err != nil {
			t.Errorf("%s: host code: %v", mode, err)
		}
	}
}
