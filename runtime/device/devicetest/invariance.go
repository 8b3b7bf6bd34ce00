package devicetest

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/kiln-project/kiln/ir/eval"
	"github.com/kiln-project/kiln/runtime/device"
	"github.com/kiln-project/kiln/runtime/engine"
)

// ChunksAndBatches tests that the bits of a row, and of what is left in the pools, the
// MTP block's included, depend neither on how its prompt was cut, nor on the rows beside
// it, nor on padding.
func ChunksAndBatches(t *testing.T, m *Tiny, chunks ...int) {
	const n, pages = 137, 2 // beyond the window and one group of 128
	ids := Prompt(n + 1)    // the draft step takes what follows each token
	feedAll := func(chunk int) ([]float32, []*device.State) {
		e, _ := m.Engine(t, 1, pages)
		s, err := e.NewSeq(0, pages)
		if err != nil {
			t.Fatal(err)
		}
		logits, err := e.Prefill(s, ids[:n], chunk, func(f engine.Feed, out engine.Tensors) error {
			next := []engine.Feed{{Seq: s, IDs: ids[s.Len+1:][:len(f.IDs)], Out: f.Out}}
			_, err := e.Draft(next, engine.ShapeOf(next), LastHidden(out))
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		return logits, m.Made
	}
	want, wantStates := feedAll(n)
	for _, chunk := range chunks {
		got, states := feedAll(chunk)
		SameBits(t, "logits after chunks", want, got)
		if len(states) != 2 || len(states[1].Names()) == 0 {
			t.Fatalf("%d sets of pools, want those of steps and of drafts", len(states))
		}
		for i, st := range states {
			for _, name := range st.Names() {
				if !bytes.Equal(PoolBytes(t, wantStates[i], name), PoolBytes(t, st, name)) {
					t.Errorf("chunk %d: pool %s differs", chunk, name)
				}
			}
		}
	}

	// The same request as the second of three, in a padded step.
	e, _ := m.Engine(t, 3, 3*pages)
	var feeds []engine.Feed
	for i, p := range [][]int32{Prompt(9), ids[:70], Prompt(3)} {
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
	alone, _ := m.Engine(t, 1, pages)
	s, err := alone.NewSeq(0, pages)
	if err != nil {
		t.Fatal(err)
	}
	single, err := alone.Prefill(s, ids[:70], 70, nil)
	if err != nil {
		t.Fatal(err)
	}
	SameBits(t, "the second request of three", single, out["logits"].F[m.Layout.Vocab:2*m.Layout.Vocab])
}

// LastHidden is the hidden output of the last layer, the only one of a step without taps;
// nil if there is none.
func LastHidden(out engine.Tensors) *eval.Tensor {
	var last *eval.Tensor
	layer := -1
	for _, name := range slices.Sorted(maps.Keys(out)) {
		var n int
		if k, _ := fmt.Sscanf(name, "hidden.%d", &n); k == 1 && n > layer {
			layer, last = n, out[name]
		}
	}
	return last
}

// PaddingWritesNothing tests that pools filled with a canary are untouched outside the
// rows of the step's tokens.
func PaddingWritesNothing(t *testing.T, m *Tiny) {
	e, st := m.Engine(t, 3, 6)
	m.Spoil(t, st)
	s, err := e.NewSeq(1, 2)
	if err != nil {
		t.Fatal(err)
	}
	f := []engine.Feed{{Seq: s, IDs: Prompt(5), Out: []int{4}}}
	if _, err := e.Step("prefill", f, engine.Shape{T: 16, B: 4, O: 3, P: 2}); err != nil {
		t.Fatal(err)
	}
	// 5 tokens: 5 ring rows, and one group of 4 closed; none of 128.
	want := map[string]int{"window": 5, "comp_k": 5, "comp_g": 5, "index_comp_k": 5, "index_comp_g": 5, "entries": 1, "index_entries": 1}
	m.Touched(t, st, func(kind string, rows int) int {
		if rows == 6 && kind == "entries" { // ratio 128: one entry a page
			return 0
		}
		return want[kind]
	})
}

// Spoil fills the pools of the steps with a canary.
func (m *Tiny) Spoil(t testing.TB, st *device.State) {
	t.Helper()
	for _, v := range m.States {
		b := PoolBytes(t, st, v.Name)
		for i := range b {
			b[i] = canary
		}
		if err := st.SetBytes(v.Name, b); err != nil {
			t.Fatal(err)
		}
	}
}

// Touched holds the number of rows that steps have written of each spoiled pool to
// that for its kind and size.
func (m *Tiny) Touched(t testing.TB, st *device.State, want func(kind string, rows int) int) {
	t.Helper()
	for _, v := range m.States {
		b := PoolBytes(t, st, v.Name)
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
		if n := want(v.Name[len("layers.0."):], pool.Shape[0]); touched != n {
			t.Errorf("%s: %d rows written, want %d", v.Name, touched, n)
		}
	}
}

// VerifyEqualsDecode tests that K+1 tokens in one verify step give the bits of as many
// decode steps.
func VerifyEqualsDecode(t *testing.T, m *Tiny) {
	ids := Prompt(70)
	run := func(step func(e *engine.Engine, s *engine.Seq) []float32) []float32 {
		e, _ := m.Engine(t, 1, 1)
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
	SameBits(t, "verify", want, got)
}
