//go:build long

package host_test

import (
	"flag"
	"fmt"
	"math"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/kiln-project/kiln/ir"
	"github.com/kiln-project/kiln/ir/eval"
	"github.com/kiln-project/kiln/ir/metric"
	"github.com/kiln-project/kiln/models/dsv4"
	"github.com/kiln-project/kiln/passes"
	"github.com/kiln-project/kiln/runtime/engine"
	"github.com/kiln-project/kiln/runtime/tokenizer"
	"github.com/kiln-project/kiln/runtime/weights"
)

var update = flag.Bool("update", false, "rewrite docs/measurements/drift-host.md")

// What TestDrift feeds, and what it holds the host to.
const (
	driftText      = "testdata/drift/text.go.txt"
	driftPositions = 2000
	driftWindow    = 100
	driftLimit     = 5e-3  // of decode logits: docs/dsv4.md section 9
	nearTie        = 0.005 // of gate scores: there, too
	mostGrowth     = 1.5   // of the error's ratio to that of windows begun anew, from half to half
)

// TestDrift feeds a text, a token at a time whatever the model would say, to the host
// and to the oracle, and compares their logits. Errors that pile up in the pools show in
// comparison with windows that begin with the oracle's pools: by themselves, later
// positions of this text are more sensitive. docs/measurements/drift-host.md is what it
// writes.
func TestDrift(t *testing.T) {
	tok, err := tokenizer.Load("../../testdata/tiny-dsv4/tokenizer.json")
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile("../../" + driftText)
	if err != nil {
		t.Fatal(err)
	}
	ids := append([]int32{0}, tok.Encode(string(text))...) // begin of sentence
	if len(ids) < driftPositions {
		t.Fatalf("%s has %d tokens, want %d", driftText, len(ids), driftPositions)
	}
	ids = ids[:driftPositions]
	m := openTiny(t)
	if len(ids) > m.Layout.MaxPositions {
		t.Fatalf("the tiny checkpoint has %d positions", m.Layout.MaxPositions)
	}
	pages := m.Layout.Pages(len(ids))
	ref := newOracle(t, pages)
	through, _ := m.Engine(t, 1, pages)
	anew, pools := m.Engine(t, 1, pages)
	var r driftReport
	var s *engine.Seq
	if s, err = through.NewSeq(0, pages); err != nil {
		t.Fatal(err)
	}
	for window := range slices.Chunk(ids, driftWindow) {
		for _, name := range pools.Names() {
			if err := pools.SetPool(name, ref.pools[name]); err != nil {
				t.Fatal(err)
			}
		}
		other := *s
		want := ref.feed(t, window, &r)
		r.cos = append(r.cos, decodeAgainst(t, through, s, window, want)...)
		r.anew = append(r.anew, decodeAgainst(t, anew, &other, window, want)...)
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

// decodeAgainst feeds ids a token at a time and says how far the logits are from others.
func decodeAgainst(t *testing.T, e *engine.Engine, s *engine.Seq, ids []int32, want [][]float32) (cos []float64) {
	t.Helper()
	for i, id := range ids {
		out, err := e.DecodeOne(s, id)
		if err != nil {
			t.Fatal(err)
		}
		s.Len++
		cos = append(cos, metric.Measure(out["logits"].F, want[i]).OneMinusCos)
	}
	return cos
}

// oracle is a sequence on the oracle.
type oracle struct {
	*engine.Ref
	engine *engine.Engine
	seq    *engine.Seq
	pools  engine.Tensors
	gates  []gate
}

// NewState keeps the pools, to look into them.
func (o *oracle) NewState(entry string, bind map[string]int) (engine.State, error) {
	st, err := o.Ref.NewState(entry, bind)
	o.pools, _ = st.(engine.Tensors)
	return st, err
}

// newOracle has the operand of each gate as another output of the graph.
func newOracle(t *testing.T, pages int) *oracle {
	t.Helper()
	const dir = "../../testdata/tiny-dsv4"
	cfg, err := dsv4.LoadConfig(dir)
	if err != nil {
		t.Fatal(err)
	}
	var entries []*ir.Graph
	for _, entry := range []dsv4.Entry{dsv4.Prefill, dsv4.Decode} { // the pools are those of decode
		g, err := dsv4.Build(cfg, entry, dsv4.DefaultOptions())
		if err != nil {
			t.Fatal(err)
		}
		entries = append(entries, g)
	}
	file, err := weights.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { file.Close() })
	source := engine.CheckpointSource{File: file}
	o := &oracle{}
	prefill := entries[0]
	for _, op := range prefill.Ops {
		if op.Def.Name != "gate" {
			continue
		}
		g := gate{output: fmt.Sprintf("gate.%d", len(o.gates)), k: op.Int("k")}
		prefill.Outputs = append(prefill.Outputs, ir.Output{Name: g.output, Value: op.Args[0]})
		for i, x := range []**eval.Tensor{&g.w, &g.bias} {
			v := op.Args[1+i]
			if *x, err = source.Weight(v.Name, v.Type); err != nil {
				t.Fatal(err)
			}
		}
		o.gates = append(o.gates, g)
	}
	if len(o.gates) == 0 {
		t.Fatal("the model has no gates")
	}
	mod := &passes.Module{Entries: entries}
	if err := passes.Run(mod); err != nil {
		t.Fatal(err)
	}
	if o.Ref, err = engine.NewRef(mod.Entries, mod.Pack, source); err != nil {
		t.Fatal(err)
	}
	layout, err := engine.LayoutOf(mod.Entries[0])
	if err != nil {
		t.Fatal(err)
	}
	if o.engine, err = engine.New(o, layout, 1, pages); err != nil {
		t.Fatal(err)
	}
	if o.seq, err = o.engine.NewSeq(0, pages); err != nil {
		t.Fatal(err)
	}
	return o
}

// feed returns the logits at each position, and adds to the report the smallest gap
// between the last chosen and the first rejected score of a gate there.
func (o *oracle) feed(t *testing.T, ids []int32, r *driftReport) (logits [][]float32) {
	t.Helper()
	for part := range slices.Chunk(ids, 50) {
		f := []engine.Feed{{Seq: o.seq, IDs: part}}
		for i := range part {
			f[0].Out = append(f[0].Out, i)
		}
		out, err := o.engine.Step("prefill", f, engine.ShapeOf(f))
		if err != nil {
			t.Fatal(err)
		}
		engine.Commit(f)
		for i := range part {
			all := out["logits"]
			logits = append(logits, all.F[i*all.Shape[1]:][:all.Shape[1]])
			gap := math.Inf(1)
			for _, g := range o.gates {
				width := g.w.Shape[1]
				gap = min(gap, g.gap(out[g.output].F[i*width:][:width]))
			}
			r.gaps = append(r.gaps, gap)
		}
	}
	return logits
}

// gate is a gate whose operand is an output of the graph.
type gate struct {
	output  string
	k       int
	w, bias *eval.Tensor
}

// gap is how far the last chosen score is from the first rejected one.
func (o gate) gap(x []float32) float64 {
	scores := make([]float64, len(o.bias.F))
	for i := range scores {
		v := 0.0
		for j, a := range x {
			v += float64(a) * float64(o.w.F[i*len(x)+j])
		}
		scores[i] = math.Sqrt(math.Log1p(math.Exp(v))) + float64(o.bias.F[i])
	}
	slices.Sort(scores)
	n := len(scores) - o.k
	return scores[n] - scores[n-1]
}

// driftReport has, by position, how far the logits are from the oracle's, the same where
// the window began with the oracle's pools, and the smallest gap of a gate.
type driftReport struct{ cos, anew, gaps []float64 }

func median(x []float64) float64 {
	y := slices.Sorted(slices.Values(x))
	return (y[(len(y)-1)/2] + y[len(y)/2]) / 2
}

// beyond are the positions beyond the limit.
func (r driftReport) beyond() (list []int) {
	for p, c := range r.cos {
		if !(c <= driftLimit) {
			list = append(list, p)
		}
	}
	return list
}

// ratios are the medians, over the windows of each half, of how many times the error is
// that of the window begun anew.
func (r driftReport) ratios() (first, second float64) {
	var list []float64
	for from := 0; from < len(r.cos); from += driftWindow {
		to := min(from+driftWindow, len(r.cos))
		list = append(list, median(r.cos[from:to])/median(r.anew[from:to]))
	}
	half := len(list) / 2
	return median(list[:half]), median(list[half:])
}

// faults are what does not hold.
func (r driftReport) faults() (list []string) {
	for from := 0; from < len(r.cos); from += driftWindow {
		to := min(from+driftWindow, len(r.cos))
		if m := median(r.cos[from:to]); !(m <= driftLimit) {
			list = append(list, fmt.Sprintf("positions %d to %d: the median 1-cos is %.2g, limit %g", from, to-1, m, driftLimit))
		}
	}
	if first, second := r.ratios(); !(second <= mostGrowth*first) {
		list = append(list, fmt.Sprintf("errors pile up: medians of windows are %.2f times those begun anew in the second half, %.2f times in the first", second, first))
	}
	for _, p := range r.beyond() {
		if !(r.gaps[p] < nearTie) {
			list = append(list, fmt.Sprintf("position %d: 1-cos is %.2g, and gates are %.2g apart", p, r.cos[p], r.gaps[p]))
		}
	}
	return list
}

// text is the report.
func (r driftReport) text() string {
	var b strings.Builder
	fmt.Fprintf(&b, `# Drift of the host against the oracle

    go test -tags long ./runtime/host -run TestDrift -update

Tiny checkpoint (rope tables for 4,096 positions), production numerics. The first %d tokens of %s go to the oracle (ref) and, one at a time, to the host, whatever they say. 1-cos is of
the logits of a position on host and on ref. Begun anew: the host again, with the oracle's pools at the beginning of the window, so that no error is older than the window. Windows are of
%d positions. A median must be within %g, the limit of decode logits (docs/dsv4.md section 9).

The gap of a position is the smallest distance, over the layers that choose experts by score, of the last chosen score from the first
rejected one, on ref.

| positions | median 1-cos | begun anew | largest | at | gap there | beyond the limit |
|---|--:|--:|--:|--:|--:|--:|
`, len(r.cos), "`"+driftText+"`", driftWindow, driftLimit)
	for from := 0; from < len(r.cos); from += driftWindow {
		w := r.cos[from:min(from+driftWindow, len(r.cos))]
		at, beyond := from, 0
		for i, c := range w {
			if c > r.cos[at] {
				at = from + i
			}
			if c > driftLimit {
				beyond++
			}
		}
		fmt.Fprintf(&b, "| %d-%d | %.1e | %.1e | %.1e | %d | %.1e | %d |\n", from, from+len(w)-1, median(w), median(r.anew[from:from+len(w)]), r.cos[at], at, r.gaps[at], beyond)
	}
	half := len(r.cos) / 2
	first, second := r.ratios()
	fmt.Fprintf(&b, `
From the first half of the positions to the second the median goes from %.1e to %.1e, and begun anew from %.1e to %.1e: later positions of this text are more sensitive, also
without errors from before the window. Those make the windows' medians %.2f times the ones begun anew in the first half, %.2f times in the second (medians of the ratios; the test allows
growth by %g).
`, median(r.cos[:half]), median(r.cos[half:]), median(r.anew[:half]), median(r.anew[half:]), first, second, mostGrowth)
	near := 0
	for _, gap := range r.gaps {
		if gap < nearTie {
			near++
		}
	}
	fmt.Fprintf(&b, "\nGaps below %g: %d of %d positions.\n\n", nearTie, near, len(r.gaps))
	list := r.beyond()
	if len(list) == 0 {
		return b.String() + "No position is beyond the limit.\n"
	}
	fmt.Fprintf(&b, "Positions beyond the limit, with gaps that must be below %g:\n\n| position | 1-cos | gap |\n|--:|--:|--:|\n", nearTie)
	for _, p := range list {
		fmt.Fprintf(&b, "| %d | %.1e | %.1e |\n", p, r.cos[p], r.gaps[p])
	}
	return b.String()
}

// What TestDrift must notice.
func TestDriftFaults(t *testing.T) {
	even := func() driftReport {
		var r driftReport
		for range driftPositions {
			r.cos, r.anew, r.gaps = append(r.cos, 1e-4), append(r.anew, 1e-4), append(r.gaps, 1)
		}
		return r
	}
	for _, tc := range []struct {
		name   string
		change func(r driftReport)
		faults int
	}{
		{"none", func(driftReport) {}, 0},
		{"a window beyond the limit, without ties", func(r driftReport) {
			for i := range 60 {
				r.cos[300+i] = 6e-3
			}
		}, 61},
		{"a step at a tie", func(r driftReport) { r.cos[7], r.gaps[7] = 1, 4e-3 }, 0},
		{"a step that is no number", func(r driftReport) { r.cos[7] = math.NaN() }, 1},
		{"errors that pile up slowly", func(r driftReport) {
			for i := range r.cos {
				r.cos[i] *= 1 + float64(i)/driftPositions
			}
		}, 0},
		{"errors that pile up", func(r driftReport) {
			for i := range r.cos {
				r.cos[i] *= 1 + 2*float64(i)/driftPositions
			}
		}, 1},
		{"more sensitive positions", func(r driftReport) {
			for i := range r.cos {
				r.cos[i] *= 1 + 9*float64(i)/driftPositions
				r.anew[i] = r.cos[i]
			}
		}, 0},
	} {
		r := even()
		tc.change(r)
		if got := r.faults(); len(got) != tc.faults {
			t.Errorf("%s: %d faults %q, want %d", tc.name, len(got), got, tc.faults)
		}
	}
}
