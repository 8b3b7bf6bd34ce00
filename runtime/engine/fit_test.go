package engine

import (
	"fmt"
	"slices"
	"testing"

	"github.com/kiln-project/kiln/models/dsv4"
)

// bucketed is an executor that has few step shapes, as a compiled model has:
// every step it is asked to fit is padded in all directions.
type bucketed struct {
	*Ref
	max int
}

func (b bucketed) Fit(entry string, s Shape) (Shape, error) {
	switch {
	case entry == entryDecode:
		return Shape{T: 2, B: 2, O: 2, P: s.P + 1}, nil
	case entry == entryPrefill && s.T > b.max:
		return s, fmt.Errorf("entry %s: %d tokens, at most %d fit", entry, s.T, b.max)
	case entry == entryPrefill:
		return Shape{T: (s.T + 4) / 4 * 4, B: 2, O: 3, P: s.P + 1}, nil
	}
	return Shape{T: s.T, B: 2, O: 4, P: s.P}, nil // h fixes the rows of draft
}

func (b bucketed) MaxPrefill() int { return b.max }

// Padding to the shapes that an executor has changes no result of Prefill,
// Generate or Force.
func TestPaddedExecutor(t *testing.T) {
	m := tiny(t, dsv4.Production)
	exec := bucketed{m.ref, 16}
	padded := func() (*Engine, *Seq) {
		e, err := New(exec, m.layout, 1, onePages)
		if err != nil {
			t.Fatal(err)
		}
		s, err := e.NewSeq(0, onePages)
		if err != nil {
			t.Fatal(err)
		}
		return e, s
	}
	ids := goldenIDs(t, "short")[:40]

	e, s := m.one(t)
	want, err := e.Force(t.Context(), s, ids, 36, 16, m.cfg.Layers, true, true)
	if err != nil {
		t.Fatal(err)
	}
	pe, ps := padded()
	got, err := pe.Force(t.Context(), ps, ids, 36, 0, m.cfg.Layers, true, true)
	if err != nil {
		t.Fatal(err)
	}
	sameBits(t, "prefill logits", want.PrefillLogits, got.PrefillLogits)
	sameBits(t, "prefill MTP logits", want.PrefillMTP, got.PrefillMTP)
	for l := range want.Hidden {
		sameBits(t, fmt.Sprintf("hidden states of layer %d", l), want.Hidden[l], got.Hidden[l])
	}
	sameBits(t, "decode logits", slices.Concat(want.DecodeLogits...), slices.Concat(got.DecodeLogits...))
	sameBits(t, "decode MTP logits", slices.Concat(want.DecodeMTP...), slices.Concat(got.DecodeMTP...))
	samePools(t, "after a forced run", e.allPools(), pe.allPools())

	r := Request{Prompt: ids[:20], MaxNew: 6}
	pe, ps = padded()
	var done []int
	made, _, err := pe.Generate(t.Context(), ps, r, func(n int) { done = append(done, n) }, func(int32) error { return nil })
	if err != nil {
		t.Fatal(err)
	}
	if want := generate(t, m, r); !slices.Equal(made, want) {
		t.Errorf("generated %v, want %v", made, want)
	}
	if !slices.Equal(done, []int{16, 20}) {
		t.Errorf("prompt progress %v, want chunks of the executor's 16", done)
	}
	pe, ps = padded()
	wantError(t, "chunk above the executor's", func() error { _, err := pe.Prefill(ps, ids[:20], 20, nil); return err }, "entry prefill: 20 tokens, at most 16 fit")
}

// Pools of one executor mean nothing to another.
func TestForeignState(t *testing.T) {
	m := tiny(t, dsv4.Production)
	in, err := Metadata(m.layout, []Feed{{Seq: &Seq{Pages: []int{0}}, IDs: []int32{1}}}, Shape{1, 1, 1, 1})
	if err != nil {
		t.Fatal(err)
	}
	wantError(t, "foreign", func() error {
		_, err := m.ref.Run(entryDecode, map[string]int{"B": 1, "P": 1, "R": 1, "N": 1}, in, "pools")
		return err
	}, "ref: the state was made by another device (string)")
}
