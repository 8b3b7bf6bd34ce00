//go:build long

package host_test

import (
	"flag"
	"fmt"
	"math"
	"os"
	"slices"
	"testing"

	"github.com/kiln-project/kiln/ir/metric"
	"github.com/kiln-project/kiln/runtime/device"
	"github.com/kiln-project/kiln/runtime/engine"
	"github.com/kiln-project/kiln/runtime/tokenizer"
)

var (
	update    = flag.Bool("update", false, "rewrite docs/measurements/drift-host.md")
	driftText = flag.String("text", "testdata/drift/text.go.txt", "what TestDrift feeds, from the root of the project")
)

// What TestDrift holds the host to.
const (
	driftPositions = 2000
	driftWindow    = 100
	driftLimit     = 5e-3  // of decode logits: docs/dsv4.md section 9
	nearTie        = 0.005 // of gate scores: there, too
	sameLogits     = 1e-12 // 1-cos of logits that differ in the last bits of their sums at most
	mostControl    = 1.5   // times the control, in a window
	mostGrowth     = 1.2   // of that ratio, from half to half
	mostUnlike     = 0.3   // of single steps that are not the oracle's
	mostUnlikeUp   = 1.3   // growth of their number, from half to half
)

// TestDrift feeds a text, a token at a time whatever the model would say, to the host
// and to the oracle, and compares their logits. They drift apart, since any difference,
// however small, changes what later positions choose to attend to. So the host is held
// to a control: the oracle with the last bits of its f32 results changed. And each step
// is held to the oracle's alone, with the oracle's pools.
// docs/measurements/drift-host.md is what it writes.
func TestDrift(t *testing.T) {
	ids := driftIDs(t)
	m := openTiny(t)
	if len(ids) > m.Layout.MaxPositions {
		t.Fatalf("the tiny checkpoint has %d positions", m.Layout.MaxPositions)
	}
	pages := m.Layout.Pages(len(ids))
	ref, control := newDrifter(t, driftModel{}, pages), newDrifter(t, driftModel{perturbed: true}, pages)
	givenHost, givenControl := newDrifter(t, driftModel{host: true, given: true}, pages), newDrifter(t, driftModel{perturbed: true, given: true}, pages)
	through, _ := m.Engine(t, 1, pages)
	single, pools := m.Engine(t, 1, pages)
	s, err := through.NewSeq(0, pages)
	if err != nil {
		t.Fatal(err)
	}
	var r driftReport
	for _, id := range ids {
		setPools(t, pools, ref)
		want := ref.step(t, id, nil)
		r.gaps = append(r.gaps, ref.gap(want))
		cos := func(got engine.Tensors) float64 {
			return metric.Measure(got["logits"].F, want["logits"].F).OneMinusCos
		}
		r.host = append(r.host, cos(decodeOne(t, through, s, id)))
		r.single = append(r.single, cos(decodeOne(t, single, s, id)))
		s.Len++
		r.control = append(r.control, cos(control.step(t, id, nil)))
		out := givenHost.step(t, id, want)
		r.givenHost, r.otherHost = append(r.givenHost, cos(out)), append(r.otherHost, ref.others(want, out))
		out = givenControl.step(t, id, want)
		r.givenControl, r.otherControl = append(r.givenControl, cos(out)), append(r.otherControl, ref.others(want, out))
	}
	for _, fault := range r.faults() {
		t.Error(fault)
	}
	const doc = "../../docs/measurements/drift-host.md"
	if *update {
		if err := os.WriteFile(doc, []byte(r.text()), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	t.Log(r.text())
}

// driftIDs are the first tokens of the text.
func driftIDs(t *testing.T) []int32 {
	t.Helper()
	tok, err := tokenizer.Load("../../testdata/tiny-dsv4/tokenizer.json")
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile("../../" + *driftText)
	if err != nil {
		t.Fatal(err)
	}
	ids := append([]int32{0}, tok.Encode(string(text))...) // begin of sentence
	if len(ids) < driftPositions {
		t.Fatalf("%s has %d tokens, want %d", *driftText, len(ids), driftPositions)
	}
	return ids[:driftPositions]
}

func setPools(t *testing.T, pools *device.State, from *drifter) {
	t.Helper()
	for _, name := range pools.Names() {
		if err := pools.SetPool(name, from.pools[name]); err != nil {
			t.Fatal(err)
		}
	}
}

func decodeOne(t *testing.T, e *engine.Engine, s *engine.Seq, id int32) engine.Tensors {
	t.Helper()
	out, err := e.DecodeOne(s, id)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// What TestDrift must notice.
func TestDriftFaults(t *testing.T) {
	even := func() driftReport {
		var r driftReport
		for i := range driftPositions {
			for _, x := range []*[]float64{&r.host, &r.control, &r.givenHost, &r.givenControl} {
				*x = append(*x, 1e-4)
			}
			r.single, r.gaps = append(r.single, 1e-4*float64(i%5/4)), append(r.gaps, 1)
			r.otherHost, r.otherControl = append(r.otherHost, 1), append(r.otherControl, 1)
		}
		return r
	}
	grow := func(x []float64, by float64) {
		for i := range x {
			x[i] *= 1 + by*float64(i)/driftPositions
		}
	}
	for _, tc := range []struct {
		name   string
		change func(r driftReport)
		faults int
	}{
		{"none", func(driftReport) {}, 0},
		{"a window beyond the limit, without ties", func(r driftReport) {
			for i := range 60 {
				r.host[300+i], r.control[300+i] = 6e-3, 5e-3
			}
		}, 61},
		{"a window that is worse than the control", func(r driftReport) {
			for i := range 60 {
				r.host[300+i] = 2e-4
			}
		}, 1},
		{"a step at a tie", func(r driftReport) { r.host[7], r.gaps[7] = 1, 4e-3 }, 0},
		{"a step that is no number", func(r driftReport) { r.host[7] = math.NaN() }, 1},
		{"errors that pile up a little", func(r driftReport) { grow(r.host, 0.3) }, 0},
		{"errors that pile up", func(r driftReport) { grow(r.host, 0.49) }, 1},
		{"errors that pile up where choices are the same", func(r driftReport) { grow(r.givenHost, 0.49) }, 1},
		{"more sensitive positions", func(r driftReport) {
			for _, x := range [][]float64{r.host, r.control, r.givenHost, r.givenControl} {
				grow(x, 9)
			}
		}, 0},
		{"single steps that are worse later", func(r driftReport) {
			for i := driftPositions / 2; i < driftPositions; i += 10 {
				r.single[i] = 1e-4
			}
		}, 1},
		{"single steps that are worse everywhere", func(r driftReport) {
			for i := range r.single {
				r.single[i] = 1e-9 * float64(i%3)
			}
		}, 1},
		{"a single step that is no number", func(r driftReport) {
			for i := range 100 {
				r.single[driftPositions-5*(i+1)] = math.NaN()
			}
		}, 1},
	} {
		r := even()
		tc.change(r)
		if got := r.faults(); len(got) != tc.faults {
			t.Errorf("%s: %d faults %q, want %d", tc.name, len(got), got, tc.faults)
		}
	}
}

func median(x []float64) float64 {
	y := slices.Sorted(slices.Values(x))
	return (y[(len(y)-1)/2] + y[len(y)/2]) / 2
}

func mean(x []int) float64 {
	sum := 0
	for _, v := range x {
		sum += v
	}
	return float64(sum) / float64(len(x))
}

// windows calls f with the first position of each window and the one behind it.
func windows(n int, f func(from, to int)) {
	for from := 0; from < n; from += driftWindow {
		f(from, min(from+driftWindow, n))
	}
}

// trend is of how many times the medians of x's windows are those of y's: the medians
// of both halves.
func trend(x, y []float64) (first, second float64) {
	var list []float64
	windows(len(x), func(from, to int) { list = append(list, median(x[from:to])/median(y[from:to])) })
	half := len(list) / 2
	return median(list[:half]), median(list[half:])
}

// unlike counts steps that are not the oracle's.
func unlike(x []float64) (n int) {
	for _, c := range x {
		if !(c <= sameLogits) {
			n++
		}
	}
	return n
}

// faults are what does not hold.
func (r driftReport) faults() (list []string) {
	fault := func(format string, args ...any) { list = append(list, fmt.Sprintf(format, args...)) }
	windows(len(r.host), func(from, to int) {
		m, c := median(r.host[from:to]), median(r.control[from:to])
		if !(m <= driftLimit) {
			fault("positions %d to %d: the median 1-cos is %.2g, limit %g", from, to-1, m, driftLimit)
		}
		if !(m <= mostControl*c) {
			fault("positions %d to %d: the median 1-cos is %.2g, of the control %.2g, limit %g times as much", from, to-1, m, c, mostControl)
		}
	})
	for _, p := range []struct {
		what          string
		host, control []float64
	}{{"medians", r.host, r.control}, {"medians with the oracle's choices", r.givenHost, r.givenControl}} {
		if first, second := trend(p.host, p.control); !(second <= mostGrowth*first) {
			fault("errors pile up: %s are %.2f times the control's in the first half, %.2f times in the second, limit %g times as much", p.what, first, second, mostGrowth)
		}
	}
	half := len(r.single) / 2
	first, second := unlike(r.single[:half]), unlike(r.single[half:])
	if n, most := first+second, mostUnlike*float64(len(r.single)); float64(n) > most {
		fault("single steps from the oracle's pools: %d are not the oracle's, limit %g of %d", n, most, len(r.single))
	}
	if float64(second) > mostUnlikeUp*float64(first) {
		fault("single steps from the oracle's pools: %d of the first half are not the oracle's, %d of the second, limit %g times as many", first, second, mostUnlikeUp)
	}
	for _, p := range r.beyond() {
		if !(r.gaps[p] < nearTie) {
			fault("position %d: 1-cos is %.2g, and gates are %.2g apart", p, r.host[p], r.gaps[p])
		}
	}
	return list
}
