package host_test

import (
	"bytes"
	"math"
	"testing"

	"github.com/kiln-project/kiln/ir"
	"github.com/kiln-project/kiln/models/dsv4"
	"github.com/kiln-project/kiln/passes"
	"github.com/kiln-project/kiln/runtime/device"
	"github.com/kiln-project/kiln/runtime/device/devicetest"
	"github.com/kiln-project/kiln/runtime/engine"
	"github.com/kiln-project/kiln/runtime/weights"
)

// tiny is the tiny checkpoint on the host, compiled as shapes come.
type tiny struct {
	exec   *devicetest.Lazy
	layout engine.Layout
	states []*ir.Value
}

func openTiny(t *testing.T) *tiny {
	t.Helper()
	return openTinyAs(t, false, dsv4.DefaultOptions())
}

// openTinyAs is openTiny with other options, on a host whose 8-bit floats are
// e4m3fnuz, if fnuz.
func openTinyAs(t *testing.T, fnuz bool, o dsv4.Options) *tiny {
	t.Helper()
	const dir = "../../testdata/tiny-dsv4"
	c := devicetest.Compiler(t)
	cfg, err := dsv4.LoadConfig(dir)
	if err != nil {
		t.Fatal(err)
	}
	m := &passes.Module{Target: passes.Target{FNUZ: fnuz}}
	for _, e := range []dsv4.Entry{dsv4.Prefill, dsv4.Decode, dsv4.Verify} {
		g, err := dsv4.Build(cfg, e, o)
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
	x, err := devicetest.NewLazy(t, c, openHost, m.Entries, m.Pack, engine.CheckpointSource{File: file})
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
	return &tiny{exec: x, layout: l, states: m.Entries[0].States}
}

// recorder keeps the state that the engine makes, to look into it.
type recorder struct {
	*devicetest.Lazy
	state *device.State
}

func (r *recorder) NewState(entry string, bind map[string]int) (engine.State, error) {
	st, err := r.Lazy.NewState(entry, bind)
	if s, ok := st.(*device.State); ok {
		r.state = s
	}
	return st, err
}

func (m *tiny) engine(t *testing.T, rings, pages int) (*engine.Engine, *device.State) {
	t.Helper()
	r := &recorder{Lazy: m.exec}
	e, err := engine.New(r, m.layout, rings, pages)
	if err != nil {
		t.Fatal(err)
	}
	return e, r.state
}

func poolBytes(t *testing.T, st *device.State, name string) []byte {
	t.Helper()
	b, err := st.Bytes(name)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func prompt(n int) []int32 {
	ids := make([]int32, n)
	for i := range ids {
		ids[i] = int32(2 + i*i*31%2000)
	}
	return ids
}

func sameBits(t *testing.T, what string, want, got []float32) {
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

// TestChunksAndBatches: the bits of a row depend neither on how its prompt was
// cut, nor on the rows beside it, nor on padding.
func TestChunksAndBatches(t *testing.T) {
	m := openTiny(t)
	const n, pages = 137, 2 // beyond the window and one group of 128
	ids := prompt(n)
	feedAll := func(chunk int) ([]float32, *device.State) {
		e, st := m.engine(t, 1, pages)
		s, err := e.NewSeq(0, pages)
		if err != nil {
			t.Fatal(err)
		}
		logits, err := e.Prefill(s, ids, chunk, nil)
		if err != nil {
			t.Fatal(err)
		}
		return logits, st
	}
	want, wantState := feedAll(n)
	for _, chunk := range []int{1, 7, 32} {
		got, st := feedAll(chunk)
		sameBits(t, "logits after chunks", want, got)
		for _, v := range m.states {
			if !bytes.Equal(poolBytes(t, wantState, v.Name), poolBytes(t, st, v.Name)) {
				t.Errorf("chunk %d: pool %s differs", chunk, v.Name)
			}
		}
	}

	// The same request as the second of three, in a padded step.
	e, _ := m.engine(t, 3, 3*pages)
	var feeds []engine.Feed
	for i, p := range [][]int32{prompt(9), ids[:70], prompt(3)} {
		s, err := e.NewSeq(i, pages)
		if err != nil {
			t.Fatal(err)
		}
		feeds = append(feeds, engine.Feed{Seq: s, IDs: p, Out: []int{len(p) - 1}})
	}
	out, err := e.Step("prefill", feeds, engine.Shape{T: 96, B: 4, O: 5, P: 3})
	if err != nil {
		t.Fatal(err)
	}
	alone, _ := m.engine(t, 1, pages)
	s, err := alone.NewSeq(0, pages)
	if err != nil {
		t.Fatal(err)
	}
	single, err := alone.Prefill(s, ids[:70], 70, nil)
	if err != nil {
		t.Fatal(err)
	}
	sameBits(t, "the second request of three", single, out["logits"].F[m.layout.Vocab:2*m.layout.Vocab])
}

// TestPaddingWritesNothing: pools filled with a canary are untouched outside the
// rows of the step's tokens.
func TestPaddingWritesNothing(t *testing.T) {
	m := openTiny(t)
	e, st := m.engine(t, 3, 6)
	const canary = 0xA5
	for _, v := range m.states {
		b := poolBytes(t, st, v.Name)
		for i := range b {
			b[i] = canary
		}
		if err := st.SetBytes(v.Name, b); err != nil {
			t.Fatal(err)
		}
	}
	s, err := e.NewSeq(1, 2)
	if err != nil {
		t.Fatal(err)
	}
	f := []engine.Feed{{Seq: s, IDs: prompt(5), Out: []int{4}}}
	if _, err := e.Step("prefill", f, engine.Shape{T: 16, B: 4, O: 3, P: 2}); err != nil {
		t.Fatal(err)
	}
	for _, v := range m.states {
		b := poolBytes(t, st, v.Name)
		pool, err := st.Pool(v.Name)
		if err != nil {
			t.Fatal(err)
		}
		row := len(b) / pool.Shape[0]
		touched := 0
		for r := range pool.Shape[0] {
			if !bytes.Equal(b[r*row:(r+1)*row], bytes.Repeat([]byte{canary}, row)) {
				touched++
			}
		}
		// 5 tokens: 5 ring rows, and one group of 4 closed; none of 128.
		want := map[string]int{"window": 5, "comp_k": 5, "comp_g": 5, "index_comp_k": 5, "index_comp_g": 5, "entries": 1, "index_entries": 1}
		kind := v.Name[len("layers.0."):]
		if wide := pool.Shape[0] == 6; wide && kind == "entries" { // ratio 128: one entry a page
			want["entries"] = 0
		}
		if touched != want[kind] {
			t.Errorf("%s: %d rows written, want %d", v.Name, touched, want[kind])
		}
	}
}

// TestVerifyEqualsDecode: K+1 tokens in one verify step give the bits of as many
// decode steps.
func TestVerifyEqualsDecode(t *testing.T) {
	m := openTiny(t)
	ids := prompt(70)
	run := func(step func(e *engine.Engine, s *engine.Seq) []float32) []float32 {
		e, _ := m.engine(t, 1, 1)
		s, err := e.NewSeq(0, 1)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := e.Prefill(s, ids[:62], 62, nil); err != nil {
			t.Fatal(err)
		}
		return step(e, s)
	}
	var want []float32
	run(func(e *engine.Engine, s *engine.Seq) []float32 {
		for _, id := range ids[62:66] {
			out, err := e.DecodeOne(s, id)
			if err != nil {
				t.Fatal(err)
			}
			want = append(want, out["logits"].F...)
			s.Len++
		}
		return want
	})
	got := run(func(e *engine.Engine, s *engine.Seq) []float32 {
		f := []engine.Feed{{Seq: s, IDs: ids[62:66], Out: []int{0, 1, 2, 3}}}
		out, err := e.Step("verify", f, engine.ShapeOf(f))
		if err != nil {
			t.Fatal(err)
		}
		return out["logits"].F
	})
	sameBits(t, "verify", want, got)
}

// TestTaps: outputs of hidden states change no other bit, of logits or pools.
func TestTaps(t *testing.T) {
	const n, pages = 137, 2
	ids := prompt(n + 2)
	var logits [2][]float32
	var pools [2]*device.State
	var names []string
	for i, taps := range []bool{false, true} {
		o := dsv4.DefaultOptions()
		o.Taps = taps
		m := openTinyAs(t, false, o)
		e, st := m.engine(t, 1, pages)
		s, err := e.NewSeq(0, pages)
		if err != nil {
			t.Fatal(err)
		}
		if logits[i], err = e.Prefill(s, ids[:n], 64, nil); err != nil {
			t.Fatal(err)
		}
		for _, id := range ids[n:] {
			out, err := e.DecodeOne(s, id)
			if err != nil {
				t.Fatal(err)
			}
			s.Len++
			logits[i] = append(logits[i], out["logits"].F...)
		}
		pools[i], names = st, nil
		for _, v := range m.states {
			names = append(names, v.Name)
		}
	}
	sameBits(t, "logits", logits[0], logits[1])
	for _, name := range names {
		if !bytes.Equal(poolBytes(t, pools[0], name), poolBytes(t, pools[1], name)) {
			t.Errorf("pool %s differs", name)
		}
	}
}
