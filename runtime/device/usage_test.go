package device_test

import (
	"testing"
)

// What an executor has taken: weights, arena, pools, and each plan once for each state
// that it ran with.
func TestUsage(t *testing.T) {
	d := &fake{}
	x := open(t, d)
	a, b := newState(t, x), newState(t, x)
	if u := x.Usage(); u.Weights != 16 || u.Arena != 128 || len(u.Prepared) != 0 {
		t.Errorf("before a step: %+v", u)
	}
	wantStep(t, x, a, 3, 6, 9, 12)
	wantStep(t, x, a, 6, 12, 18, 24)
	wantStep(t, x, b, 3, 6, 9, 12)
	if u := x.Usage(); len(u.Prepared) != 2 || u.Prepared[0].Entry != "decode" {
		t.Errorf("after steps with two states: %+v", u)
	}
	if a.Size() != 16 {
		t.Errorf("a state of %d bytes", a.Size())
	}
	for _, err := range []error{a.Close(), b.Close(), x.Close()} {
		if err != nil {
			t.Error(err)
		}
	}
}
