package devicetest

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/kiln-project/kiln/codegen"
	"github.com/kiln-project/kiln/codegen/plan"
	"github.com/kiln-project/kiln/codegen/target"
	"github.com/kiln-project/kiln/ir"
	"github.com/kiln-project/kiln/ir/eval"
	"github.com/kiln-project/kiln/passes"
	"github.com/kiln-project/kiln/runtime/device"
	"github.com/kiln-project/kiln/runtime/engine"
)

// faultGraph is a step that is small enough for an emulator: it adds rows to those of a
// pool. Its tensors are no multiples of the words that a prologue copies.
const faultGraph = `graph @decode
sym B
input %slots : i32[B]
input %rows : bf16[B,8]
weight @w : bf16[13,8]
state !pool : bf16[16,8]
%0 = gather_rows !pool, %slots : bf16[B,8] loc("layers.0.attn")
%1 = add %0, %rows : bf16[B,8] loc("layers.0.attn")
%2 = scatter_rows !pool, %slots, %1 : bf16[16,8] loc("layers.0.attn")
%3 = linear %1, @w : bf16[B,13] loc("layers.0.ffn")
output y = %3
output sum = %1
update !pool = %2
`

// faultBatches are the buckets of faultGraph.
var faultBatches = []int{1, 3, 8}

// replaysOfFaults is how many steps are compared before a fault and after it.
const replaysOfFaults = 20

// FaultKind is what goes wrong.
type FaultKind string

// The kinds.
const (
	FaultLaunch FaultKind = "launch error"
	FaultMemory FaultKind = "out of memory"
	FaultLost   FaultKind = "device lost"
	FaultStale  FaultKind = "stale read"
)

// Fault is one of a FaultDevice's: Arm lets it happen once, at the next chance.
type Fault struct {
	Kind FaultKind
	Name string // tells it from others of the kind
	Arm  func()
	// Fresh: it happens when a state is new. Else it happens in a step that ran before.
	Fresh bool
	Is    error    // the error's, for errors.Is
	Want  []string // in its text, beside the entry and the bucket
}

// FaultDevice is a device with its faults.
type FaultDevice struct {
	Open func() (device.Device, error)
	// Eager opens what results are compared with.
	Eager func() (device.Device, error)
	// Faults are those for a plan, fewer without full.
	Faults func(p *plan.Plan, full bool) []Fault
	Left   func() []string // what is open on devices
	Forget func() error    // ends the process of a device that was lost
}

// faultModel is faultGraph for a target.
type faultModel struct {
	mod     *plan.Module
	code    []byte
	weights fixedWeight
}

// fixedWeight is every weight.
type fixedWeight struct{}

// Weight implements eval.WeightSource.
func (fixedWeight) Weight(_ string, t ir.Type) (*eval.Tensor, error) {
	x, err := eval.New(t)
	if err == nil {
		for i := range x.F {
			x.F[i] = float32(i%7 - 3)
		}
	}
	return x, err
}

func buildFaults(t testing.TB, c *codegen.Compiler, tg *target.Target) *faultModel {
	t.Helper()
	graphs, err := ir.Parse("faults.kir", faultGraph)
	if err != nil {
		t.Fatal(err)
	}
	var buckets []passes.Bucket
	for _, b := range faultBatches {
		buckets = append(buckets, passes.Bucket{Entry: "decode", Bind: map[string]int{"B": b}})
	}
	u := codegen.NewUnit(tg)
	if _, err := u.LowerAll(graphs, buckets); err != nil {
		t.Fatal(err)
	}
	out, err := c.Compile(context.Background(), u)
	if err != nil {
		t.Fatal(err)
	}
	return &faultModel{mod: u.Module, code: out.Object}
}

// faultRun is an executor with a state.
type faultRun struct {
	x     *device.Executor
	state engine.State
	batch int
}

func (m *faultModel) start(t testing.TB, open func() (device.Device, error), batch int) *faultRun {
	t.Helper()
	dev, err := open()
	if err != nil {
		t.Fatal(err)
	}
	x, err := device.NewExecutor(t.Context(), dev, m.code, m.mod, m.weights, nil)
	if err != nil {
		t.Fatal(err)
	}
	r := &faultRun{x: x, batch: batch}
	if err := r.fresh(); err != nil {
		t.Fatal(err)
	}
	return r
}

// fresh makes a state, in place of the one that there may be.
func (r *faultRun) fresh() error {
	if err := r.drop(); err != nil {
		return err
	}
	var err error
	r.state, err = r.x.NewState("decode", nil)
	return err
}

func (r *faultRun) drop() error {
	if st, ok := r.state.(*device.State); ok && st != nil {
		r.state = nil
		return st.Close()
	}
	return nil
}

// step is step n; its inputs depend on n alone.
func (r *faultRun) step(n int) (string, error) {
	in := engine.Tensors{
		"slots": &eval.Tensor{DType: ir.I32, Shape: []int{r.batch}, I: make([]int64, r.batch)},
		"rows":  &eval.Tensor{DType: ir.BF16, Shape: []int{r.batch, 8}, F: make([]float32, 8*r.batch)},
	}
	for i := range in["slots"].I {
		in["slots"].I[i] = int64((n + 2*i) % 16)
	}
	for i := range in["rows"].F {
		in["rows"].F[i] = float32((n*n+i)%11 - 5)
	}
	out, err := r.x.Run("decode", map[string]int{"B": r.batch}, in, r.state)
	if err != nil {
		return "", err
	}
	return fmt.Sprint(out["y"].F, out["sum"].F), nil
}

// equal compares steps from new states on.
func equal(t testing.TB, when string, a, b *faultRun) {
	t.Helper()
	for n := range replaysOfFaults {
		one, err := a.step(n)
		two, other := b.step(n)
		if err != nil || other != nil || one != two {
			t.Fatalf("%s, step %d: %s, error %v; eager %s, error %v", when, n, one, err, two, other)
		}
	}
}

// Faults lets everything go wrong that can, one thing at a time, between steps that
// must be those of launches one by one. After each the device works on, or closes with
// nothing left; full is every launch and every allocation.
func Faults(t *testing.T, chip string, d FaultDevice, full bool) {
	c := Compiler(t)
	tg, err := target.Lookup(chip)
	if err != nil {
		t.Fatal(err)
	}
	m := buildFaults(t, c, tg)
	for _, batch := range faultBatches {
		at := slices.IndexFunc(m.mod.Plans, func(p *plan.Plan) bool { return p.Symbol("B") == batch })
		for _, f := range d.Faults(m.mod.Plans[at], full) {
			t.Run(fmt.Sprintf("B=%d/%s/%s", batch, f.Kind, f.Name), func(t *testing.T) {
				goroutines := runtime.NumGoroutine()
				m.fault(t, d, f, batch)
				awaitGoroutines(t, goroutines)
			})
		}
	}
}

func (m *faultModel) fault(t *testing.T, d FaultDevice, f Fault, batch int) {
	eager, run := m.start(t, d.Eager, batch), m.start(t, d.Open, batch)
	equal(t, "before", run, eager)
	if f.Fresh {
		check(t, run.drop())
	}
	before := d.Left()
	f.Arm()
	var err error
	if f.Fresh {
		err = run.fresh()
	}
	if err == nil {
		_, err = run.step(replaysOfFaults)
	}
	bucket := fmt.Sprintf("plan decode B=%d: ", batch)
	if err != nil && strings.HasPrefix(err.Error(), "state pool: ") {
		bucket = "" // pools are of every bucket
	}
	if err == nil || f.Is != nil && !errors.Is(err, f.Is) {
		t.Fatalf("error %v, want %v", err, f.Is)
	}
	for _, want := range append([]string{bucket}, f.Want...) {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q in it", err, want)
		}
	}
	if f.Kind == FaultLost {
		if _, err := run.step(0); !errors.Is(err, f.Is) {
			t.Errorf("a step on a lost device: error %v", err)
		}
		quiet := func(what string, err error) {
			if err != nil && !errors.Is(err, f.Is) {
				t.Errorf("closing %s: %v", what, err)
			}
		}
		quiet("the state", run.drop())
		quiet("the device", run.x.Close())
		// The other device is another process's, so to speak.
		quiet("the state", eager.drop())
		quiet("the device", eager.x.Close())
		check(t, d.Forget())
		return
	}
	if f.Fresh {
		check(t, run.drop())
		if left := d.Left(); !slices.Equal(left, before) {
			t.Errorf("open after the fault: %v, before: %v", left, before)
		}
	}
	check(t, run.fresh())
	check(t, eager.fresh())
	equal(t, "after", run, eager)
	check(t, errors.Join(run.drop(), run.x.Close(), eager.drop(), eager.x.Close()))
	if left := d.Left(); len(left) > 0 {
		t.Errorf("left %v", left)
	}
}

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Error(err)
	}
}
