package check

import (
	"os"
	"testing"

	"github.com/kiln-project/kiln/codegen/llvm"
	"github.com/kiln-project/kiln/codegen/target"
	"github.com/kiln-project/kiln/ir"
	"github.com/kiln-project/kiln/models/dsv4"
	"github.com/kiln-project/kiln/passes"
	"github.com/kiln-project/kiln/runtime/device/devicetest"
	"github.com/kiln-project/kiln/runtime/engine"
	"github.com/kiln-project/kiln/runtime/host"
	"github.com/kiln-project/kiln/runtime/weights"
)

const tinyDir = "../testdata/tiny-dsv4"

func TestMain(m *testing.M) {
	llvm.MaybeServeWorker(os.Args)
	for _, p := range planted {
		next := "" // at the end of the optional passes
		if p.On == passes.Steps {
			next = "select-kernels"
		}
		if err := passes.Register(p, next); err != nil {
			panic(err)
		}
	}
	os.Exit(m.Run())
}

// subject is an entry of the tiny model over its checkpoint.
func subject(t *testing.T, entry string, bind map[string]int) *Subject {
	t.Helper()
	cfg, err := dsv4.LoadConfig(tinyDir)
	if err != nil {
		t.Fatal(err)
	}
	file, err := weights.Open(tinyDir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { file.Close() })
	m := &passes.Module{}
	for _, e := range dsv4.Entries {
		g, err := dsv4.Build(cfg, e, dsv4.DefaultOptions())
		if err != nil {
			t.Fatal(err)
		}
		m.Entries = append(m.Entries, g)
	}
	l, err := engine.LayoutOf(m.Entries[0])
	if err != nil {
		t.Fatal(err)
	}
	return &Subject{Module: m, Entry: entry, Bind: bind, Weights: engine.CheckpointSource{File: file}, Make: Step(l, bind), Seeds: 1}
}

// parsed is the only graph of a text, bound.
func parsed(t *testing.T, text string, bind map[string]int) *Subject {
	t.Helper()
	gs, err := ir.Parse("test.kir", text)
	if err != nil {
		t.Fatal(err)
	}
	s := &Subject{Module: &passes.Module{Entries: gs}, Entry: gs[0].Name, Bind: bind, Make: Fill, Seeds: 1}
	g, err := s.bound(gs[0])
	if err != nil {
		t.Fatal(err)
	}
	s.Weights = NewRandom(0, g)
	return s
}

// onHost is a config for the best target of this machine, which needs an LLVM.
func onHost(t *testing.T) OpsConfig {
	t.Helper()
	name, err := host.Target()
	if err != nil {
		t.Skip(err)
	}
	tg, err := target.Lookup(name)
	if err != nil {
		t.Fatal(err)
	}
	return OpsConfig{Compiler: devicetest.Compiler(t), Target: tg}
}

var decode = map[string]int{"B": 2, "R": 2, "N": 4, "P": 2}

var prefill = map[string]int{"T": 9, "B": 1, "O": 1, "R": 1, "N": 3, "P": 3}
