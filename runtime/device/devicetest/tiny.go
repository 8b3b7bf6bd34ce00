package devicetest

import (
	"math"
	"testing"

	"github.com/kiln-project/kiln/codegen"
	"github.com/kiln-project/kiln/ir"
	"github.com/kiln-project/kiln/models/dsv4"
	"github.com/kiln-project/kiln/passes"
	"github.com/kiln-project/kiln/runtime/device"
	"github.com/kiln-project/kiln/runtime/engine"
	"github.com/kiln-project/kiln/runtime/weights"
)

// Tiny is the tiny checkpoint on a device, compiled as shapes come.
type Tiny struct {
	Exec   *Lazy
	Layout engine.Layout
	States []*ir.Value // pools of the steps, without those of drafts
	// Made are the pools of the last engine: those of steps, then those of drafts.
	Made []*device.State
}

// OpenTiny opens the tiny checkpoint for a target with 8-bit floats of e4m3fnuz, if
// fnuz, with whole speculative steps of the numbers of drafts.
func OpenTiny(t testing.TB, c *codegen.Compiler, open Opener, fnuz bool, o dsv4.Options, drafts ...int) *Tiny {
	t.Helper()
	const dir = "../../testdata/tiny-dsv4"
	cfg, err := dsv4.LoadConfig(dir)
	if err != nil {
		t.Fatal(err)
	}
	m := &passes.Module{Target: passes.Target{FNUZ: fnuz}}
	for _, e := range dsv4.Entries {
		g, err := dsv4.Build(cfg, e, o)
		if err != nil {
			t.Fatal(err)
		}
		m.Entries = append(m.Entries, g)
	}
	for _, k := range drafts {
		g, err := dsv4.BuildSpeculate(cfg, k, o)
		if err != nil {
			t.Fatal(err)
		}
		m.Entries = append(m.Entries, g)
	}
	if err := passes.Run(m); err != nil {
		t.Fatal(err)
	}
	file, err := weights.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { file.Close() })
	x, err := NewLazy(t, c, open, m.Entries, m.Pack, engine.CheckpointSource{File: file})
	if err != nil {
		t.Fatal(err)
	}
	own := *x.Target
	own.FNUZ = fnuz
	x.Target = &own
	l, err := engine.LayoutOf(m.Entries[0])
	if err != nil {
		t.Fatal(err)
	}
	return &Tiny{Exec: x, Layout: l, States: m.Entries[0].States}
}

// recorder keeps the states that an engine makes, to look into them.
type recorder struct {
	*Lazy
	m *Tiny
}

// NewState implements engine.Executor.
func (r recorder) NewState(entry string, bind map[string]int) (engine.State, error) {
	st, err := r.Lazy.NewState(entry, bind)
	if s, ok := st.(*device.State); ok {
		r.m.Made = append(r.m.Made, s)
	}
	return st, err
}

// Engine makes an engine, and the pools that its steps share.
func (m *Tiny) Engine(t testing.TB, rings, pages int) (*engine.Engine, *device.State) {
	t.Helper()
	m.Made = nil
	e, err := engine.New(recorder{m.Exec, m}, m.Layout, rings, pages)
	if err != nil {
		t.Fatal(err)
	}
	return e, m.Made[0]
}

// PoolBytes is the memory of a pool.
func PoolBytes(t testing.TB, st *device.State, name string) []byte {
	t.Helper()
	b, err := st.Bytes(name)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// Prompt is n ids, always the same ones.
func Prompt(n int) []int32 {
	ids := make([]int32, n)
	for i := range ids {
		ids[i] = int32(2 + i*i*31%2000)
	}
	return ids
}

// SameBits holds numbers to others, bit for bit.
func SameBits(t testing.TB, what string, want, got []float32) {
	t.Helper()
	if len(want) != len(got) {
		t.Errorf("%s: %d values, want %d", what, len(got), len(want))
		return
	}
	for i := range want {
		if math.Float32bits(want[i]) != math.Float32bits(got[i]) {
			t.Errorf("%s: value %d is %v, want %v", what, i, got[i], want[i])
			return
		}
	}
}
