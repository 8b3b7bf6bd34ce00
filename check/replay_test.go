package check

import (
	"slices"
	"testing"

	"github.com/kiln-project/kiln/passes"
	"github.com/kiln-project/kiln/runtime/device"
	"github.com/kiln-project/kiln/runtime/host"
)

// forgetful is the host as a device with graphs, whose replays leave out a launch from
// the nth on; 0: none.
type forgetful struct {
	device.Device
	graphs  bool
	from    int
	replays int
}

func (d *forgetful) Graphs() bool      { return d.graphs }
func (d *forgetful) SetGraphs(on bool) { d.graphs = on }

func (d *forgetful) Load(code []byte, kernels []string) (device.Library, error) {
	l, err := d.Device.Load(code, kernels)
	return &forgetfulLibrary{l, d}, err
}

type forgetfulLibrary struct {
	device.Library
	d *forgetful
}

func (l *forgetfulLibrary) Prepare(list []device.Launch) (device.Sequence, error) {
	whole, err := l.Library.Prepare(list)
	if err != nil || !l.d.graphs {
		return whole, err
	}
	part, err := l.Library.Prepare(slices.Delete(slices.Clone(list), len(list)/2, len(list)/2+1))
	return &forgetfulSequence{whole, part, l.d}, err
}

type forgetfulSequence struct {
	device.Sequence
	part device.Sequence
	d    *forgetful
}

func (s *forgetfulSequence) Run() error {
	if s.d.replays++; s.d.from > 0 && s.d.replays >= s.d.from {
		return s.part.Run()
	}
	return s.Sequence.Run()
}

// A replay that is not what its launches are is found, also if it is a later one.
func TestReplays(t *testing.T) {
	c := onHost(t)
	s := subject(t, "decode", nil)
	code, weights := built(t, c, s, passes.Bucket{Entry: "decode", Bind: map[string]int{"R": 2, "N": 4, "P": 2, "B": 2}})
	for _, tc := range []struct {
		graphs bool
		from   int
		want   string
	}{
		{true, 0, ""},
		{true, 1, "decode step 0: hidden.5 differs from that of the same launches one by one"},
		{true, 4, "decode step 3: hidden.5 differs from that of the same launches one by one"},
		{false, 1, ""}, // there are no replays
	} {
		h, err := host.Open()
		if err != nil {
			t.Fatal(err)
		}
		d := &forgetful{Device: h, graphs: tc.graphs, from: tc.from}
		x, err := device.NewExecutor(t.Context(), d, code.Object, code.Module, weights, nil)
		if err != nil {
			t.Fatal(err)
		}
		why, err := Replays(t.Context(), x, mustLayout(t, s))
		if err != nil || why != tc.want {
			t.Errorf("%+v: %q, error %v", tc, why, err)
		}
		if d.graphs != tc.graphs {
			t.Errorf("graphs are %v afterwards", d.graphs)
		}
		if err := x.Close(); err != nil {
			t.Error(err)
		}
	}
}
