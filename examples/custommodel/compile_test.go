package main

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"github.com/kiln-project/kiln/codegen"
	"github.com/kiln-project/kiln/codegen/bundle"
	"github.com/kiln-project/kiln/codegen/llvm"
	"github.com/kiln-project/kiln/codegen/object"
	"github.com/kiln-project/kiln/runtime/device"
	"github.com/kiln-project/kiln/runtime/engine"
	"github.com/kiln-project/kiln/runtime/host"
)

func TestMain(m *testing.M) {
	llvm.MaybeServeWorker(os.Args)
	code := m.Run()
	if shared.cc != nil {
		shared.cc.LLVM.Close()
	}
	os.Exit(code)
}

// shared is the model compiled once for all tests.
var shared struct {
	once      sync.Once
	none, err error
	cc        *codegen.Compiler
	cpu       string
	byTarget  map[string]*compiled
}

// native is the model for "host" or a GPU. Without LLVM, or on another kind of
// machine than host runs on, the test is skipped.
func native(t *testing.T, name string) *compiled {
	t.Helper()
	s := &shared
	s.once.Do(func() {
		if s.cpu, s.none = host.Target(); s.none != nil {
			return
		}
		if s.cc, s.none = openCompiler(context.Background(), ""); s.none != nil {
			return
		}
		s.byTarget = map[string]*compiled{}
		for _, target := range []string{s.cpu, gpu} {
			as := target
			if target == s.cpu {
				as = "host"
			}
			if s.byTarget[as], s.err = compile(context.Background(), s.cc, tiny, target); s.err != nil {
				return
			}
		}
	})
	if s.none != nil {
		t.Skipf("this test compiles the model: %v", s.none)
	}
	if s.err != nil {
		t.Fatal(s.err)
	}
	return s.byTarget[name]
}

func onHost(t *testing.T, code *bundle.Code) *device.Executor {
	t.Helper()
	x, err := open(code, weights)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := x.Close(); err != nil {
			t.Error(err)
		}
	})
	return x
}

// The compiled model against the evaluator: prompts that fill a step and that do
// not, each followed by decode steps.
func TestHost(t *testing.T) {
	device, oracle := onHost(t, native(t, "host").code), evaluator(t)
	for _, n := range []int{1, 2, 15, 16, 17, 40} {
		a, b := session(t, device), session(t, oracle)
		next := text(n)
		for range 4 {
			got, want := feed(t, a, next...), feed(t, b, next...)
			if d := difference(got, want); !(d <= limit) {
				t.Errorf("%d tokens, position %d: logits differ by %.2g, allowed %.2g", n, a.len-1, d, limit)
			}
			next = []int32{engine.Argmax(want)}
		}
	}
}

// A text cut into other steps: the kernels of another row count may add in
// another order, so that bits may differ, within the limit.
func TestHostChunks(t *testing.T) {
	x := onHost(t, native(t, "host").code)
	want := feed(t, session(t, x), text(33)...)
	s := session(t, x)
	var got []float32
	for _, id := range text(33) {
		got = feed(t, s, id)
	}
	if d := difference(got, want); !(d <= limit) {
		t.Errorf("token by token the logits differ by %.2g, allowed %.2g", d, limit)
	}
}

// The code for the GPU is one object that reads back clean, with every kernel of
// the plans in it, and no registers spilled. Nothing here executes it.
func TestGPU(t *testing.T) {
	code := native(t, gpu).code
	f, err := object.Read(code.Object)
	if err != nil {
		t.Fatal(err)
	}
	o := f.Object
	if f.Kind != object.KindAMDGPU || o.Target.String() != gpu {
		t.Errorf("%s for %s", f.Kind, o.Target)
	}
	if len(o.Problems) > 0 || len(o.Undefined) > 0 || len(o.Kernels) != len(code.Module.Kernels) {
		t.Errorf("problems %q, undefined %q, %d kernels of %d", o.Problems, o.Undefined, len(o.Kernels), len(code.Module.Kernels))
	}
	for _, k := range code.Module.Kernels {
		got, err := o.Kernel(k.Symbol)
		if err != nil {
			t.Error(err)
		} else if got.ScratchBytes != 0 || got.VGPRSpills == nil || *got.VGPRSpills != 0 {
			t.Errorf("%s spills: %d bytes of scratch", k.Symbol, got.ScratchBytes)
		}
	}
	if d := code.Module.Decomposed; len(d) > 0 {
		t.Errorf("no kernel form for %s: %v", d[0].Op, d[0].Rejected)
	}
}

// A bundle holds all that running takes but the weights.
func TestBundle(t *testing.T) {
	made := native(t, "host")
	dir := filepath.Join(t.TempDir(), "m.kiln")
	if err := write(dir, shared.cc, tiny, []*compiled{made, native(t, gpu)}); err != nil {
		t.Fatal(err)
	}
	b, err := bundle.ReadManifest(dir)
	if err != nil {
		t.Fatal(err)
	}
	if want := []string{shared.cpu, gpu}; !slices.Equal(b.Manifest.Targets, want) {
		t.Errorf("targets %v, want %v", b.Manifest.Targets, want)
	}
	code, err := b.ReadCode(dir, shared.cpu)
	if err != nil {
		t.Fatal(err)
	}
	got := feed(t, session(t, onHost(t, code)), text(17)...)
	want := feed(t, session(t, onHost(t, made.code)), text(17)...)
	if !slices.Equal(got, want) {
		t.Errorf("run from the bundle, the logits differ by %.2g", difference(got, want))
	}
}
