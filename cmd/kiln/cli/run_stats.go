package cli

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	rt "github.com/kiln-project/kiln/runtime/device"
	"github.com/kiln-project/kiln/runtime/engine"
)

// runStats is what --stats says of a run: in its JSON, or as lines of text.
type runStats struct {
	Prefill stepStats `json:"prefill"`
	Decode  stepStats `json:"decode"`
	// With --speculate: steps in place of decode steps, whole ones or those that verify,
	// and those of the MTP block alone.
	Speculate *stepStats `json:"speculate,omitempty"`
	Verify    *stepStats `json:"verify,omitempty"`
	Draft     *stepStats `json:"draft,omitempty"`
	// Replays are steps that were one replay of a graph, Eager those whose launches
	// went to the device one by one, or that were evaluated.
	Replays int        `json:"graph_replays"`
	Eager   int        `json:"eager_steps"`
	Memory  *deviceUse `json:"memory"` // null of the evaluator
	Host    *int64     `json:"host_peak_bytes"`
}

// stepStats are the steps of an entry, by the host's clock: inputs, launches, results.
type stepStats struct {
	Steps   int     `json:"steps"`
	Tokens  int     `json:"tokens"`
	Seconds float64 `json:"seconds"`
	Median  float64 `json:"median_us"`
	P95     float64 `json:"p95_us"`
}

// deviceUse is the device memory at the end, in bytes.
type deviceUse struct {
	Weights int64 `json:"weights_bytes"`
	Pools   int64 `json:"pools_bytes"`
	Arena   int64 `json:"arena_bytes"`
	Graphs  int64 `json:"graphs_estimate_bytes"`
}

// watched is an executor whose steps are timed.
type watched struct {
	engine.Executor
	times map[string]rt.Samples // by entry
	pools int64
}

// watchSteps watches an executor if --stats is given; else there is none to ask.
func (s *session) watchSteps(f *flags, exec engine.Executor) engine.Executor {
	if !f.boolean("stats") {
		return exec
	}
	s.watched = &watched{Executor: exec, times: map[string]rt.Samples{}}
	return s.watched
}

// Run implements engine.Executor.
func (w *watched) Run(entry string, bind map[string]int, inputs engine.Tensors, state engine.State) (engine.Tensors, error) {
	start := time.Now()
	out, err := w.Executor.Run(entry, bind, inputs, state)
	w.times[entry] = append(w.times[entry], time.Since(start))
	return out, err
}

// NewState implements engine.Executor.
func (w *watched) NewState(entry string, bind map[string]int) (engine.State, error) {
	st, err := w.Executor.NewState(entry, bind)
	if p, ok := st.(*rt.State); ok && err == nil {
		w.pools += p.Size()
	}
	return st, err
}

// stats sums the run up; nil without --stats.
func (s *session) stats(prompt, tokens int) *runStats {
	w := s.watched
	if w == nil {
		return nil
	}
	rest := max(tokens-1, 0)
	r := &runStats{Prefill: w.of("prefill", prompt), Host: peakBytes()}
	drafted := prompt // tokens that the MTP block ran over by itself
	for _, entry := range slices.Sorted(maps.Keys(w.times)) {
		of := w.of(entry, rest)
		switch {
		case entry == "decode":
			r.Decode = of
		case entry == "verify":
			r.Verify = &of
			drafted += rest
		case strings.HasPrefix(entry, "speculate"):
			r.Speculate = &of
		}
	}
	if len(w.times["draft"]) > 0 {
		of := w.of("draft", drafted)
		r.Draft = &of
	}
	for _, e := range r.entries() {
		r.Eager += e.Steps
	}
	if x, ok := w.Executor.(*rt.Executor); ok {
		u, replays := x.Usage(), x.Replayer() != nil && x.Replayer().Graphs()
		if replays {
			r.Replays, r.Eager = r.Eager, 0
		}
		r.Memory = &deviceUse{Weights: u.Weights, Pools: w.pools, Arena: u.Arena}
		for _, p := range u.Prepared {
			for i := range p.Launches {
				if replays {
					r.Memory.Graphs += graphNode(len(p.Launches[i].Args))
				}
			}
		}
	}
	return r
}

func (w *watched) of(entry string, tokens int) stepStats {
	s := w.times[entry]
	out := stepStats{Steps: len(s), Tokens: tokens, Median: us(s.Median()), P95: us(s.P95())}
	for _, d := range s {
		out.Seconds += d.Seconds()
	}
	return out
}

// entryStats are the steps of an entry that has a name.
type entryStats struct {
	name string
	stepStats
}

// entries are those that ran.
func (r *runStats) entries() []entryStats {
	list := []entryStats{{"prefill", r.Prefill}}
	if r.Draft == nil {
		return append(list, entryStats{"decode", r.Decode})
	}
	for _, e := range []struct {
		name string
		*stepStats
	}{{"speculate", r.Speculate}, {"verify", r.Verify}, {"draft", r.Draft}} {
		if e.stepStats != nil {
			list = append(list, entryStats{e.name, *e.stepStats})
		}
	}
	return list
}

// print writes the lines of --stats.
func (r *runStats) print(w io.Writer) {
	for _, e := range r.entries() {
		fmt.Fprintf(w, "%s: %s, %s, %.3f s, a step takes %.0f us (median), %.0f us (p95)\n", e.name, count(int64(e.Steps), "step"), count(int64(e.Tokens), "token"), e.Seconds, e.Median, e.P95)
	}
	fmt.Fprintf(w, "steps: %d by replay of a graph, %d launch by launch\n", r.Replays, r.Eager)
	if m := r.Memory; m != nil {
		fmt.Fprintf(w, "device memory: weights %s, pools %s, arena %s, graphs about %s\n", binarySize(m.Weights), binarySize(m.Pools), binarySize(m.Arena), binarySize(m.Graphs))
	}
	fmt.Fprintf(w, "host memory: %s at most\n", peakMemory())
}

// oneDevice refuses --tp and --ep: a model runs on one device.
func oneDevice(f *flags) error {
	for _, name := range []string{"tp", "ep"} {
		if n := f.number(name); n != 1 {
			return refuse(fmt.Errorf("%s %d: kiln runs a model on one device", f.origins(name), n),
				fmt.Sprintf("leave %s out; kiln plan BUNDLE --device-memory 288GiB says what fits one device", f.origins(name)))
		}
	}
	return nil
}
