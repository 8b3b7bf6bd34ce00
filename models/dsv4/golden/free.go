package golden

import (
	"context"
	"fmt"
	"math"
	"slices"

	"github.com/kiln-project/kiln/ir"
	"github.com/kiln-project/kiln/ir/metric"
	"github.com/kiln-project/kiln/models/dsv4"
	"github.com/kiln-project/kiln/runtime/engine"
)

// freeChecks run whole cases on the model's own outputs.
func (s *Suite) freeChecks() []Check {
	var list []Check
	for _, c := range s.cases {
		for _, k := range []struct {
			name string
			run  func(v *verdict, c caseInfo) error
		}{
			{"hidden", s.freeHidden},
			{"prefill", s.freePrefill},
			{"decode", s.freeDecode},
			{"greedy", s.greedy},
		} {
			name := "e2e/" + c.Name + "/" + k.name
			list = append(list, Check{name, func() error {
				v := s.verdict(name)
				if err := k.run(v, c); err != nil {
					return fmt.Errorf("%s: %w", name, err)
				}
				return v.err()
			}})
		}
	}
	return list
}

// whole is the model's executor.
type whole struct {
	exec   engine.Executor
	layout engine.Layout
}

// engine makes an engine with fresh state for one sequence of n positions.
func (s *Suite) engine(n int) (*engine.Engine, *engine.Seq, error) {
	w, err := once(s, "model", func() (*whole, error) {
		var graphs []*ir.Graph
		for _, e := range []dsv4.Entry{dsv4.Prefill, dsv4.Decode, dsv4.Draft} {
			g, err := dsv4.Build(s.model, e, s.options())
			if err != nil {
				return nil, err
			}
			graphs = append(graphs, g)
		}
		layout, err := engine.LayoutOf(graphs[0])
		if err != nil {
			return nil, err
		}
		exec, err := s.executor(nil, graphs...)
		return &whole{exec, layout}, err
	})
	if err != nil {
		return nil, nil, err
	}
	pages := w.layout.Pages(n)
	e, err := engine.New(w.exec, w.layout, 1, pages)
	if err != nil {
		return nil, nil, err
	}
	seq, err := e.NewSeq(0, pages)
	return e, seq, err
}

// forced feeds a case's own ids, once for all its checks.
func (s *Suite) forced(c caseInfo) (*engine.Forced, error) {
	return once(s, "forced "+c.Name, func() (*engine.Forced, error) {
		ids, err := s.ids(c)
		if err != nil {
			return nil, err
		}
		e, seq, err := s.engine(len(ids))
		if err != nil {
			return nil, err
		}
		return e.Force(context.Background(), seq, ids, c.Prefill, chunk, s.model.Layers, true, true)
	})
}

// freeHidden compares the streams after every layer. The limit for them is that
// of the prefill logits.
func (s *Suite) freeHidden(v *verdict, c caseInfo) error {
	f, err := s.forced(c)
	if err != nil {
		return err
	}
	for l, got := range f.Hidden {
		want, err := s.hidden(c, l)
		if err != nil {
			return err
		}
		v.compare(fmt.Sprintf("layer %d", l), got, want, prefillLimit)
	}
	return nil
}

func (s *Suite) freePrefill(v *verdict, c caseInfo) error {
	f, err := s.forced(c)
	if err != nil {
		return err
	}
	if err := s.logits(v, "logits", [][]float32{f.PrefillLogits}, c.Name+".prefill.logits", prefillLimit); err != nil {
		return err
	}
	return s.logits(v, "MTP logits", [][]float32{f.PrefillMTP}, c.Name+".prefill.mtp_logits", prefillLimit)
}

func (s *Suite) freeDecode(v *verdict, c caseInfo) error {
	f, err := s.forced(c)
	if err != nil {
		return err
	}
	// The last id is there for the MTP step only.
	if err := s.logits(v, "logits", f.DecodeLogits[:len(f.DecodeLogits)-1], c.Name+".decode.logits", decodeLimit); err != nil {
		return err
	}
	return s.logits(v, "MTP logits", f.DecodeMTP, c.Name+".decode.mtp_logits", decodeMTPLimit)
}

// logits compares rows of logits: each row's error and its largest logit. Of the
// errors the worst row is reported.
func (s *Suite) logits(v *verdict, what string, got [][]float32, goldenName string, limit int) error {
	want, err := s.e2e.floats(goldenName)
	if err != nil {
		return err
	}
	n := s.model.Vocab
	if len(want) != len(got)*n {
		return fmt.Errorf("tensor %s has %d values, the run gave %d rows of %d", goldenName, len(want), len(got), n)
	}
	var worst metric.Metrics
	worstRow := 0
	var rows [][]float32
	for i, row := range got {
		w := want[i*n : (i+1)*n]
		rows = append(rows, w)
		if m := metric.Measure(row, w); i == 0 || m.OneMinusCos > worst.OneMinusCos || math.IsNaN(m.OneMinusCos) {
			worst, worstRow = m, i
		}
	}
	v.judge(what, worst, limit, fmt.Sprintf("worst of %d rows is %d, max abs %.3g", len(got), worstRow, worst.MaxAbs))
	margin, note := flipMargin(got, rows)
	v.number(what, Limits[argmaxLimit].Bounds[0], margin, argmaxLimit, note)
	return nil
}

// flipMargin is the metric of that name, with a note for reports.
func flipMargin(got, want [][]float32) (largest float64, note string) {
	flips, at := 0, 0
	for i, row := range got {
		if engine.Argmax(row) == engine.Argmax(want[i]) {
			continue
		}
		if m := topMargin(want[i]); flips == 0 || m > largest {
			largest, at = m, i
		}
		flips++
	}
	if flips == 0 {
		return 0, fmt.Sprintf("all %d rows agree", len(got))
	}
	return largest, fmt.Sprintf("%d of %d rows agree, row %d has the largest margin", len(got)-flips, len(got), at)
}

// topMargin is the distance of the two largest logits.
func topMargin(v []float32) float64 {
	first, second := math.Inf(-1), math.Inf(-1)
	for _, x := range v {
		switch y := float64(x); {
		case y > first:
			first, second = y, first
		case y > second:
			second = y
		}
	}
	return first - second
}

// greedy generates and does not stop at the end-of-sequence token, as the
// reference did.
func (s *Suite) greedy(v *verdict, c caseInfo) error {
	g, err := s.generate(c, c.Steps)
	if err != nil {
		return err
	}
	least, note := greedyMargin(g.Got, g.Want, g.Margins)
	v.number("ids", Limits[greedyLimit].Bounds[0], least, greedyLimit, note)
	return nil
}

// Greedy is a greedy generation beside the golden one.
type Greedy struct {
	Got, Want []int32   // new tokens
	Margins   []float32 // of the reference's two largest logits, at each of them
}

// Greedy generates the first n tokens of a case.
func (s *Suite) Greedy(name string, n int) (Greedy, error) {
	i := slices.IndexFunc(s.cases, func(c caseInfo) bool { return c.Name == name })
	if i < 0 || n < 1 || n > s.cases[i].Steps {
		return Greedy{}, fmt.Errorf("no case %q with %d steps", name, n)
	}
	return s.generate(s.cases[i], n)
}

// Continue generates n tokens after the first ones of a case's prompt. They are no
// reference's: it is for tests that need launches of other sizes.
func (s *Suite) Continue(name string, prompt, n int) error {
	i := slices.IndexFunc(s.cases, func(c caseInfo) bool { return c.Name == name })
	if i < 0 || prompt < 1 || prompt > s.cases[i].Prefill {
		return fmt.Errorf("no case %q with %d tokens in its prompt", name, prompt)
	}
	ids, err := s.e2e.i32s(name + ".greedy.ids")
	if err != nil {
		return err
	}
	e, seq, err := s.engine(prompt + n)
	if err != nil {
		return err
	}
	_, _, err = e.Generate(context.Background(), seq, engine.Request{Prompt: ids[:prompt], MaxNew: n}, nil, func(int32) error { return nil })
	return err
}

func (s *Suite) generate(c caseInfo, n int) (Greedy, error) {
	ids, err := s.e2e.i32s(c.Name + ".greedy.ids")
	if err != nil {
		return Greedy{}, err
	}
	margins, err := s.e2e.floats(c.Name + ".greedy.margins")
	if err != nil {
		return Greedy{}, err
	}
	if len(ids) != c.Prefill+c.Steps || len(margins) != c.Steps {
		return Greedy{}, fmt.Errorf("e2e: case %s has %d greedy ids and %d margins, want %d and %d", c.Name, len(ids), len(margins), c.Prefill+c.Steps, c.Steps)
	}
	e, seq, err := s.engine(len(ids))
	if err != nil {
		return Greedy{}, err
	}
	r := engine.Request{Prompt: ids[:c.Prefill], MaxNew: n}
	got, _, err := e.Generate(context.Background(), seq, r, nil, func(int32) error { return nil })
	return Greedy{Got: got, Want: ids[c.Prefill:][:n], Margins: margins[:n]}, err
}

// greedyMargin is the metric of that name, with a note for reports. A token that
// was not generated is another one.
func greedyMargin(got, want []int32, margins []float32) (least float64, note string) {
	for i, id := range want {
		if i < len(got) && got[i] == id {
			continue
		}
		return float64(slices.Min(margins[:i+1])), fmt.Sprintf("%d tokens agree, then a step with margin %.3g", i, margins[i])
	}
	return 0, fmt.Sprintf("all %d tokens agree", len(want))
}
