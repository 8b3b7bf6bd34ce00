package device_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kiln-project/kiln/codegen/plan"
	"github.com/kiln-project/kiln/ir"
	"github.com/kiln-project/kiln/ir/eval"
	"github.com/kiln-project/kiln/runtime/device"
	"github.com/kiln-project/kiln/runtime/engine"
)

// given is a source of one weight.
type given []float32

func (g given) Weight(_ string, t ir.Type) (*eval.Tensor, error) {
	return eval.FromF32(t.DType, g, len(g))
}

var (
	weights = given{1, 2, 3, 4}
	bind    = map[string]int{"B": 1, "T": 4}
)

func tensor(t testing.TB, v ...float32) *eval.Tensor {
	t.Helper()
	x, err := eval.FromF32(ir.F32, v, len(v))
	if err != nil {
		t.Fatal(err)
	}
	return x
}

func open(t testing.TB, d *fake) *device.Executor {
	t.Helper()
	x, err := device.NewExecutor(t.Context(), d, []byte(code), module(), weights, nil)
	if err != nil {
		t.Fatal(err)
	}
	return x
}

// step feeds ones.
func step(t testing.TB, x *device.Executor, st engine.State) ([]float32, error) {
	t.Helper()
	out, err := x.Run("decode", bind, engine.Tensors{"x": tensor(t, 1, 1, 1, 1)}, st)
	if err != nil {
		return nil, err
	}
	return out["y"].F, nil
}

func newState(t testing.TB, x *device.Executor) *device.State {
	t.Helper()
	st, err := x.NewState("decode", bind)
	if err != nil {
		t.Fatal(err)
	}
	return st.(*device.State)
}

func wantStep(t *testing.T, x *device.Executor, st *device.State, want ...float32) {
	t.Helper()
	got, err := step(t, x, st)
	if err != nil || !cmp.Equal(got, want) {
		t.Errorf("y is %v (%v), want %v", got, err, want)
	}
}

// The executor over memory that it cannot look into: states are independent, a
// sequence is prepared once for each, everything is given back.
func TestExecutor(t *testing.T) {
	d := &fake{}
	x := open(t, d)
	a, b := newState(t, x), newState(t, x)
	wantStep(t, x, a, 3, 6, 9, 12)
	wantStep(t, x, a, 6, 12, 18, 24)
	wantStep(t, x, b, 3, 6, 9, 12)
	wantStep(t, x, a, 9, 18, 27, 36)
	if len(d.prepared) != 2 {
		t.Errorf("%d sequences were prepared for two states", len(d.prepared))
	}
	pool, err := a.Pool("kv.pool")
	if err != nil || !cmp.Equal(pool.F, []float32{3, 6, 9, 12}) {
		t.Errorf("the pool is %v (%v)", pool, err)
	}
	if err := a.SetPool("kv.pool", tensor(t, 0, 0, 0, 10)); err != nil {
		t.Error(err)
	}
	wantStep(t, x, a, 3, 6, 9, 42)
	if raw, err := a.Bytes("kv.pool"); err != nil || len(raw) != 16 {
		t.Errorf("the pool has bytes %v (%v)", raw, err)
	}
	if err := a.SetBytes("kv.pool", make([]byte, 16)); err != nil {
		t.Error(err)
	}
	wantStep(t, x, a, 3, 6, 9, 12)

	if err := a.Close(); err != nil || d.sequences != 1 {
		t.Errorf("%d sequences after one of two states was closed (%v)", d.sequences, err)
	}
	wantStep(t, x, b, 6, 12, 18, 24)
	if x.Device() != "fake" {
		t.Errorf("device %q", x.Device())
	}
	if err := errors.Join(b.Close(), x.Close()); err != nil || d.left() != 0 || !d.closed {
		t.Errorf("%d things are left, the device is closed: %t (%v)", d.left(), d.closed, err)
	}
}

// A launch carries all that reports and sanitizers need.
func TestLaunches(t *testing.T) {
	d := &fake{}
	x := open(t, d)
	wantStep(t, x, newState(t, x), 3, 6, 9, 12)
	at := func(block int, offset uint64) uint64 { return uint64(block+1)<<40 + offset }
	const weight, arena, pool = 0, 1, 2 // in the order of allocation
	want := []device.Launch{
		{Kernel: 0, Symbol: "mul", Form: "generic_mul", Op: "mul", Loc: "ffn", Grid: 2, Block: 2, Work: 4, Args: []device.Arg{
			{Address: at(arena, 0), Bytes: 16, Mode: plan.Read, Label: "value x", Last: true},
			{Address: at(weight, 0), Bytes: 16, Mode: plan.Read, Label: "weight ffn.w"},
			{Address: at(arena, 64), Bytes: 16, Mode: plan.Write, Label: "value mul ffn", First: true},
		}},
		{Kernel: 1, Symbol: "add", Form: "generic_add", Op: "scatter_rows", Loc: "kv", Grid: 2, Block: 2, Shared: 65536, Work: 4, Args: []device.Arg{
			{Address: at(arena, 64), Bytes: 16, Mode: plan.Read, Label: "value mul ffn", Last: true},
			{Address: at(pool, 0), Bytes: 16, Mode: plan.Update, Label: "state kv.pool"},
		}},
		{Kernel: 2, Symbol: "scale", Form: "generic_scale", Op: "scale", Grid: 2, Block: 2, Work: 4, Args: []device.Arg{
			{Address: at(pool, 0), Bytes: 16, Mode: plan.Read, Label: "state kv.pool"},
			{Address: at(arena, 0), Bytes: 16, Mode: plan.Write, Label: "value y", First: true},
			{Int: 3},
		}},
	}
	if diff := cmp.Diff(want, d.prepared[0]); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// A plan that needs a larger arena moves it; programs that have run go on with the
// new one.
func TestArenaGrows(t *testing.T) {
	d := &fake{}
	mod := module()
	m, err := device.NewModel(d, []byte(code), mod)
	if err != nil {
		t.Fatal(err)
	}
	if err := m.BindWeights(t.Context(), weights, nil); err != nil {
		t.Fatal(err)
	}
	st, err := m.NewState(mod.Plans[0])
	if err != nil {
		t.Fatal(err)
	}
	run := func(g *device.Program, want ...float32) {
		t.Helper()
		out, err := g.Run(map[string]*eval.Tensor{"x": tensor(t, 1, 1, 1, 1)}, st)
		if err != nil || !cmp.Equal(out["y"].F, want) {
			t.Errorf("y is %v (%v), want %v", out["y"], err, want)
		}
	}
	small, err := m.Load(mod.Plans[0])
	if err != nil {
		t.Fatal(err)
	}
	run(small, 3, 6, 9, 12)
	spread, err := plan.Spread(mod.Plans[0], 64)
	if err != nil {
		t.Fatal(err)
	}
	large, err := m.Load(spread)
	if err != nil {
		t.Fatal(err)
	}
	run(small, 6, 12, 18, 24)
	run(large, 9, 18, 27, 36)
	run(small, 12, 24, 36, 48)
	if len(d.prepared) != 3 || d.sequences != 2 || d.left() != 2+1+3 { // library; weight, pool, arena
		t.Errorf("%d sequences were prepared, %d are open, %d things in all; want 3, 2 and 6", len(d.prepared), d.sequences, d.left())
	}
	if err := large.Close(); err != nil || d.sequences != 1 {
		t.Errorf("%d sequences after one of two programs was closed (%v)", d.sequences, err)
	}
	if err := errors.Join(m.Close(), st.Close()); err != nil || d.left() != 0 {
		t.Errorf("%d things are left (%v)", d.left(), err)
	}
}

// An error of a launch names all that there is to know, and the executor goes on.
func TestLaunchError(t *testing.T) {
	d := &fake{}
	x := open(t, d)
	for _, tc := range []struct{ kernel, want string }{
		{"mul", "plan decode B=1 T=4: output y: launch 0, kernel mul (mul at ffn): injected"},
		{"add", "plan decode B=1 T=4: output y: launch 1, kernel add (scatter_rows at kv): injected"},
		{"scale", "plan decode B=1 T=4: output y: launch 2, kernel scale (scale): injected"},
	} {
		st := newState(t, x)
		d.failing = map[string]int{tc.kernel: 1}
		_, err := step(t, x, st)
		var le *device.LaunchError
		if err == nil || err.Error() != tc.want || !errors.As(err, &le) || le.Symbol != tc.kernel || !errors.Is(err, errInjected) {
			t.Errorf("error %v, want %q", err, tc.want)
		}
		if err := st.SetPool("kv.pool", tensor(t, 0, 0, 0, 0)); err != nil { // it was undefined
			t.Error(err)
		}
		wantStep(t, x, st, 3, 6, 9, 12)
		if err := st.Close(); err != nil {
			t.Error(err)
		}
	}
	if err := x.Close(); err != nil || d.left() != 0 {
		t.Errorf("%d things are left (%v)", d.left(), err)
	}
}

// A plan without outputs waits for its launches all the same.
func TestNoOutputs(t *testing.T) {
	d, mod := &fake{failing: map[string]int{"add": 1}}, module()
	p := mod.Plans[0]
	p.Outputs, p.Launches, p.Values = nil, p.Launches[:2], p.Values[:2]
	x, err := device.NewExecutor(t.Context(), d, []byte(code), mod, weights, nil)
	if err != nil {
		t.Fatal(err)
	}
	st := newState(t, x)
	want := "plan decode B=1 T=4: launch 1, kernel add (scatter_rows at kv): injected"
	if _, err := step(t, x, st); err == nil || err.Error() != want {
		t.Errorf("error %v, want %q", err, want)
	}
}

// Whichever call of the device fails, what was to be done fails with its error,
// nothing stays behind, and a run after it gives the right numbers.
func TestEveryCallFails(t *testing.T) {
	seen := map[string]bool{}
	fail := 1
	for ; ; fail++ {
		d := &fake{fail: fail}
		err := life(t, d)
		if d.failed == "" {
			if err != nil {
				t.Fatalf("nothing fails, yet: %v", err)
			}
			break
		}
		seen[d.failed] = true
		if !errors.Is(err, errInjected) {
			t.Errorf("call %d (%s) failed, the error is %v", fail, d.failed, err)
		}
		if d.left() != 0 || !d.closed {
			t.Errorf("call %d (%s) failed: %d things are left, the device is closed: %t", fail, d.failed, d.left(), d.closed)
		}
	}
	for _, what := range []string{"alloc", "load", "write", "read", "zero", "free", "prepare", "run", "close sequence", "unload", "close"} {
		if !seen[what] {
			t.Errorf("%s has not failed in %d calls", what, fail)
		}
	}
}

// life opens an executor, runs it and closes everything: the errors of all that
// failed. A run that failed is tried again.
func life(t *testing.T, d *fake) error {
	x, err := device.NewExecutor(t.Context(), d, []byte(code), module(), weights, nil)
	if err != nil {
		return err
	}
	st, err := x.NewState("decode", bind)
	if err != nil {
		return errors.Join(err, x.Close())
	}
	s := st.(*device.State)
	errs := []error{s.SetPool("kv.pool", tensor(t, 0, 0, 0, 1))}
	if errs[0] != nil {
		errs = append(errs, s.SetPool("kv.pool", tensor(t, 0, 0, 0, 1)))
	}
	y, err := step(t, x, st)
	if err != nil {
		errs = append(errs, err, s.SetPool("kv.pool", tensor(t, 0, 0, 0, 1)))
		if y, err = step(t, x, st); err != nil {
			t.Errorf("after %s failed a run fails again: %v", d.failed, err)
		}
	}
	if want := []float32{3, 6, 9, 15}; !cmp.Equal(y, want) {
		t.Errorf("after %q failed y is %v, want %v", d.failed, y, want)
	}
	if _, err := s.Pool("kv.pool"); err != nil {
		errs = append(errs, err)
	}
	return errors.Join(append(errs, s.Close(), x.Close())...)
}

func TestRefuses(t *testing.T) {
	x := open(t, &fake{})
	st := newState(t, x)
	other := newState(t, open(t, &fake{}))
	ones := engine.Tensors{"x": tensor(t, 1, 1, 1, 1)}
	run := func(entry string, bind map[string]int, in engine.Tensors, st engine.State) func() error {
		return func() error { _, err := x.Run(entry, bind, in, st); return err }
	}
	construct := func(edit func(*plan.Module), code string) func() error {
		return func() error {
			d, mod := &fake{}, module()
			edit(mod)
			_, err := device.NewExecutor(t.Context(), d, []byte(code), mod, weights, nil)
			if d.left() != 0 || !d.closed {
				return fmt.Errorf("%d things are left, the device is closed: %t", d.left(), d.closed)
			}
			return err
		}
	}
	for _, tc := range []struct {
		want string
		do   func() error
	}{
		{"entry decode: no compiled bucket for [B=1 T=5]", run("decode", map[string]int{"B": 1, "T": 5}, ones, st)},
		{"entry draft: no compiled bucket for [B=1 T=4]", run("draft", bind, ones, st)},
		{"plan decode B=1 T=4: input x is missing", run("decode", bind, nil, st)},
		{"plan decode B=1 T=4: input x is f32[2], want f32[4]", run("decode", bind, engine.Tensors{"x": tensor(t, 1, 2)}, st)},
		{"fake: the state was made by another device (*device.State)", run("decode", bind, ones, other)},
		{"fake: the state was made by another device (engine.Tensors)", run("decode", bind, ones, engine.Tensors{})},
		{"plan decode B=1 T=4: the state has no pool kv.pool", run("decode", bind, ones, nil)},
		{`no entry "draft" is compiled`, func() error { _, err := x.NewState("draft", bind); return err }},
		{"entry decode was compiled for T=4, not 7", func() error { _, err := x.NewState("decode", map[string]int{"T": 7}); return err }},
		{`no state pool "kv"`, func() error { _, err := st.Pool("kv"); return err }},
		{`no state pool "kv"`, func() error { _, err := st.Bytes("kv"); return err }},
		{`state pool "kv.pool" is f32[4], not f32[2]`, func() error { return st.SetPool("kv.pool", tensor(t, 1, 2)) }},
		{`state pool "kv.pool" is not one of 15 bytes`, func() error { return st.SetBytes("kv.pool", make([]byte, 15)) }},
		{"device fake: kernel scale is not in the compiled library", construct(func(*plan.Module) {}, "mul add")},
		{"weight ffn.w: f32[4], the plans want f32[5]", construct(func(m *plan.Module) { m.Weights[0].Type = "f32[5]" }, code)},
		{"plan decode [{B 1} {T 4}]: launch 2 (scale): grid 0", construct(func(m *plan.Module) { m.Plans[0].Launches[2].Grid = 0 }, code)},
	} {
		if err := tc.do(); err == nil || !strings.HasPrefix(err.Error(), tc.want) {
			t.Errorf("error %v, want %q", err, tc.want)
		}
	}
}
