package host_test

import (
	"testing"

	"github.com/kiln-project/kiln/models/dsv4"
	"github.com/kiln-project/kiln/runtime/device"
	"github.com/kiln-project/kiln/runtime/device/devicetest"
)

// TestFNUZ runs the model as a chip with e4m3fnuz does: weights recoded in the
// pack graph, activations and caches through e4m3fnuz. Logits have the bits that
// OCP e4m3 gives, and the pools too, but for zeros without a sign.
func TestFNUZ(t *testing.T) {
	const n, pages = 137, 2
	ids := devicetest.Prompt(n)
	run := func(fnuz bool) ([]float32, *device.State, *devicetest.Tiny) {
		m := openTinyAs(t, fnuz, dsv4.DefaultOptions())
		e, st := m.Engine(t, 1, pages)
		s, err := e.NewSeq(0, pages)
		if err != nil {
			t.Fatal(err)
		}
		logits, err := e.Prefill(s, ids, n, nil)
		if err != nil {
			t.Fatal(err)
		}
		return logits, st, m
	}
	want, wantState, m := run(false)
	got, state, _ := run(true)
	devicetest.SameBits(t, "logits", want, got)
	for _, v := range m.States {
		w, err := wantState.Pool(v.Name)
		if err != nil {
			t.Fatal(err)
		}
		g, err := state.Pool(v.Name)
		if err != nil {
			t.Fatal(err)
		}
		devicetest.SameBits(t, "pool "+v.Name, plusZeros(w.F), plusZeros(g.F))
	}
}

// plusZeros takes the signs off zeros.
func plusZeros(x []float32) []float32 {
	for i := range x {
		x[i] += 0 // -0 + 0 is +0
	}
	return x
}
