package check

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/kiln-project/kiln/ir"
	"github.com/kiln-project/kiln/ir/eval"
	"github.com/kiln-project/kiln/passes"
	"github.com/kiln-project/kiln/runtime/engine"
)

// Subject is what a check is about: one entry of a module on which no pass ran
// yet, in one binding.
type Subject struct {
	Module  *passes.Module
	Entry   string
	Bind    map[string]int
	Weights eval.WeightSource
	Make    Maker
	Seeds   int // at least 1
	// Progress, if set, hears what is being done.
	Progress func(format string, args ...any)
}

func (s *Subject) say(format string, args ...any) {
	if s.Progress != nil {
		s.Progress(format, args...)
	}
}

// entry is the module's graph of the entry, or nil.
func (s *Subject) entry() *ir.Graph {
	i := slices.IndexFunc(s.Module.Entries, func(g *ir.Graph) bool { return g.Name == s.Entry })
	if i < 0 {
		return nil
	}
	return s.Module.Entries[i]
}

// bound is a graph of the entry with the symbols that it has left bound.
func (s *Subject) bound(g *ir.Graph) (*ir.Graph, error) {
	bind := map[string]int{}
	for _, sym := range g.Syms {
		if n, ok := s.Bind[sym]; ok {
			bind[sym] = n
		}
	}
	return ir.Bind(g, bind)
}

// PassResult is what one pass did to the entry, and to its results.
type PassResult struct {
	Pass      string  `json:"pass"`
	Changed   bool    `json:"changed"`
	Skipped   bool    `json:"skipped,omitempty"` // the config's bisection ends before it
	Values    int     `json:"values"`            // elements compared
	Identical float64 `json:"identical"`         // share of them
	MaxAbs    float64 `json:"max_abs"`
	Cos       float64 `json:"one_minus_cos"`
	Limit     string  `json:"limit"`
	OK        bool    `json:"ok"`
	identical int
	limit     ir.Limit
}

// Breach is one place where a limit did not hold.
type Breach struct {
	What string `json:"what"` // pass or op
	Loc  string `json:"loc,omitempty"`
	Of   string `json:"of"` // output, pool or result
	Seed int    `json:"seed"`
	Case string `json:"case"`
	Text string `json:"text"`
}

func (b Breach) String() string {
	where := b.What
	if b.Loc != "" {
		where += " at " + b.Loc
	}
	return fmt.Sprintf("%s: %s (seed %d, case %s): %s", where, b.Of, b.Seed, b.Case, b.Text)
}

// version is the entry after a pass.
type version struct {
	by      *passes.Pass
	graph   *ir.Graph
	pack    *ir.Graph
	skipped bool
	same    bool // as before the pass
}

// noBackend ends the pipeline: the evaluator runs graphs, not plans.
type noBackend struct{ asked bool }

func (b *noBackend) SelectKernels(*passes.Step) error { b.asked = true; return nil }
func (b *noBackend) JoinLaunches(*passes.Step) error  { b.asked = true; return nil }
func (b *noBackend) PlanMemory(*passes.Step) error    { b.asked = true; return nil }

// versions runs all passes and keeps the entry as each left it; the first is the
// entry as built.
func (s *Subject) versions() ([]version, error) {
	m := s.Module
	g := s.entry()
	if g == nil {
		return nil, fmt.Errorf("no entry %q", s.Entry)
	}
	list := []version{{graph: g, pack: m.Pack}}
	backend := &noBackend{}
	heard := m.Config.Trace
	m.Config.Trace = func(e passes.Event) {
		if heard != nil {
			heard(e)
		}
		if backend.asked { // what the target makes of the graph is no new graph
			backend.asked = false
			return
		}
		if e.Err != nil { // there is no After; the manager returns the error
			return
		}
		last := list[len(list)-1]
		after := e.After
		switch {
		case e.Graph != "" && e.Graph != s.Entry:
			return
		case e.Graph == "" && e.Pass.On == passes.Steps && len(m.Steps) > 0:
			after = m.Steps[0].Graph
		case e.Graph == "":
			after = s.entry()
		}
		list = append(list, version{e.Pass, after, m.Pack, e.Skipped, after == last.graph || ir.Text(after) == ir.Text(last.graph)})
	}
	defer func() { m.Config.Trace = heard }()
	if err := passes.Run(m); err != nil {
		return nil, err
	}
	if err := passes.Lower(m, []passes.Bucket{{Entry: s.Entry, Bind: s.Bind}}, backend); err != nil {
		return nil, err
	}
	return list, nil
}

// runner evaluates one version.
type runner struct {
	program *eval.Program
	err     error // the graph does not even compile
}

// Passes runs the pipeline and compares, on the evaluator, every output and every
// pool of the entry before and after each pass that changed it.
func Passes(ctx context.Context, s *Subject) ([]PassResult, []Breach, error) {
	list, err := s.versions()
	if err != nil {
		return nil, nil, err
	}
	first, err := s.bound(list[0].graph)
	if err != nil {
		return nil, nil, err
	}
	if err := fitsEvaluator(first); err != nil {
		return nil, nil, err
	}
	runners, err := s.runners(list)
	if err != nil {
		return nil, nil, err
	}
	results := make([]PassResult, len(list)-1)
	for i, v := range list[1:] {
		results[i] = PassResult{Pass: v.by.Name, Changed: !v.same, Skipped: v.skipped, OK: true, Limit: v.by.Limit.String(), limit: v.by.Limit}
	}
	var breaches []Breach
	for seed := range s.Seeds {
		for c := range Cases {
			if seed > 0 && c > 0 {
				break
			}
			in, err := s.Make(first, &Cases[c], uint64(seed))
			if err != nil {
				return nil, nil, err
			}
			var before *evaluated
			for i, v := range list {
				if err := ctx.Err(); err != nil {
					return nil, nil, err
				}
				if i > 0 && v.same {
					continue
				}
				after := evaluate(runners[i], in)
				if i == 0 {
					if after.err != nil {
						return nil, nil, fmt.Errorf("seed %d, case %s: %w", seed, Cases[c].Name, after.err)
					}
					before = after
					continue
				}
				s.say("seed %d, case %s: after %s", seed, Cases[c].Name, v.by.Name)
				for _, b := range results[i-1].compare(before, after) {
					b.Seed, b.Case = seed, Cases[c].Name
					breaches = append(breaches, b)
				}
				if after.err == nil {
					before = after
				}
			}
		}
	}
	for i := range results {
		if r := &results[i]; r.Values > 0 {
			r.Identical = float64(r.identical) / float64(r.Values)
			if b := r.share(s.Seeds); b != nil {
				breaches = append(breaches, *b)
			}
		}
	}
	return results, breaches, nil
}

// runners compiles the versions. Those over one pack graph share what is made of
// weights.
func (s *Subject) runners(list []version) ([]runner, error) {
	out := make([]runner, len(list))
	consts := map[*ir.Graph]*eval.Consts{}
	read := map[string]bool{} // weights of any version
	for _, v := range list {
		for _, w := range v.graph.Weights {
			read[w.Name] = true
		}
	}
	for i, v := range list {
		if i > 0 && v.same {
			continue
		}
		g, err := s.bound(v.graph)
		if err != nil {
			return nil, err
		}
		if consts[v.pack] == nil {
			weights, err := engine.BindPack(only(v.pack, read), s.Weights)
			if err != nil {
				return nil, err
			}
			consts[v.pack] = eval.NewConsts(weights)
		}
		s.say("preparing the graph %d of %d", i+1, len(list))
		out[i].program, out[i].err = eval.Compile(g, consts[v.pack])
		if i == 0 && out[i].err != nil {
			return nil, out[i].err
		}
	}
	return out, nil
}

// only is the pack graph with the outputs that are read.
func only(pack *ir.Graph, read map[string]bool) *ir.Graph {
	if pack == nil {
		return nil
	}
	part := *pack
	part.Outputs = nil
	for _, o := range pack.Outputs {
		if read[o.Name] {
			part.Outputs = append(part.Outputs, o)
		}
	}
	if len(part.Outputs) == 0 {
		return nil
	}
	return &part
}

// evaluated are the outputs of one run and its pools afterwards.
type evaluated struct {
	values map[string]*eval.Tensor
	err    error
}

func evaluate(r runner, in Values) *evaluated {
	if r.err != nil {
		return &evaluated{err: r.err}
	}
	e := &evaluated{values: map[string]*eval.Tensor{}}
	states := map[string]*eval.Tensor{}
	for name, t := range in.States {
		states[name] = t.Clone()
	}
	out, err := r.program.Run(in.Inputs, states)
	if err != nil {
		e.err = err
		return e
	}
	for name, t := range out {
		e.values["output "+name] = t
	}
	for name, t := range states {
		e.values["pool "+name] = t
	}
	return e
}

// compare adds one run on both sides of the pass.
func (r *PassResult) compare(before, after *evaluated) []Breach {
	fail := func(of, text string) []Breach {
		r.OK = false
		return []Breach{{What: "pass " + r.Pass, Of: of, Text: text}}
	}
	if after.err != nil {
		return fail("the graph", "does not run any more: "+after.err.Error())
	}
	var out []Breach
	for _, name := range slices.Sorted(maps.Keys(before.values)) {
		want := before.values[name]
		d := compare(want, after.values[name], r.limit, 0, false)
		r.Values += want.Len()
		r.identical += identical(want, after.values[name])
		r.MaxAbs, r.Cos = max(r.MaxAbs, finite(d.MaxAbs)), max(r.Cos, finite(d.OneMinusCos))
		if d.beyond != "" {
			out = append(out, fail(name, d.beyond)...)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(after.values)) {
		if before.values[name] == nil {
			out = append(out, fail(name, "is new")...)
		}
	}
	return out
}

// share holds a limit's share of identical elements over all runs.
func (r *PassResult) share(seeds int) *Breach {
	text := shareBreach(r.limit, r.Values-r.identical, r.Values)
	if text == "" || !r.OK {
		return nil
	}
	r.OK = false
	return &Breach{What: "pass " + r.Pass, Of: "all outputs and pools", Seed: seeds - 1, Case: "all", Text: text}
}

// errTooLarge says that the evaluator would take more memory than is sensible.
type errTooLarge struct{ text string }

func (e *errTooLarge) Error() string { return e.text }

// TooLarge reports whether a check was refused since the evaluator cannot do it.
func TooLarge(err error) bool {
	var e *errTooLarge
	return errors.As(err, &e)
}

// mostElements bounds what the evaluator holds at once: 4 bytes each.
const mostElements = 1 << 28

// fitsEvaluator refuses a graph whose weights are too many.
func fitsEvaluator(g *ir.Graph) error {
	sum := 0
	for _, w := range g.Weights {
		n, _ := w.Type.Size()
		sum += n
	}
	if sum > mostElements {
		return &errTooLarge{fmt.Sprintf("graph @%s has %.3g weights, the evaluator takes %.3g at most", g.Name, float64(sum), float64(mostElements))}
	}
	return nil
}
