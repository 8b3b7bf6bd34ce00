package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/kiln-project/kiln/models/dsv4"
	"github.com/kiln-project/kiln/passes"
	"github.com/kiln-project/kiln/runtime/engine"
)

// checkSpeculate refuses drafts that no model has, before one is read.
func checkSpeculate(f *flags) error {
	switch k := f.number("speculate"); {
	case k < 0:
		return usagef("kiln run --speculate 2 ...", "%s is %d, want at least 0", f.origins("speculate"), k)
	case k > maxSpeculate:
		return refuse(fmt.Errorf("%s %d: at most %d draft tokens", f.origins("speculate"), k, maxSpeculate), "--speculate 3")
	}
	if w := f.number("draft-tree"); w != 1 {
		return refuse(fmt.Errorf("%s %d: tree drafts are not supported, the drafts of a step are one chain", f.origins("draft-tree"), w),
			"leave "+f.origins("draft-tree")+" out")
	}
	return nil
}

// speculates refuses drafts that the model has no MTP block for, or more of them than
// a bundle was compiled for; without one there is room for all that are asked for.
func speculates(f *flags, c *dsv4.Config, most int) error {
	k := f.number("speculate")
	switch {
	case k == 0:
		return nil
	case c.NextN == 0:
		return refuse(fmt.Errorf("%s %d: the model has no MTP block", f.origins("speculate"), k), "--speculate 0")
	case k > most:
		return refuse(fmt.Errorf("%s %d: %s was compiled with --speculate %d", f.origins("speculate"), k, f.text("bundle"), most),
			fmt.Sprintf("--speculate %d, or kiln compile --model %s --speculate %d -o OTHER.kiln", most, f.text("model"), k))
	}
	return nil
}

// generate runs a request, with k drafts a step if that is not 0.
func (s *session) generate(ctx context.Context, k int, seq *engine.Seq, req engine.Request, progress func(done int), emit func(id int32) error) ([]int32, engine.Stats, error) {
	if k == 0 {
		return s.engine.Generate(ctx, seq, req, progress, emit)
	}
	list, st, err := s.engine.Speculate(ctx, []*engine.Seq{seq}, []engine.Request{req}, k,
		func(_, done int) { progress(done) }, func(_ int, id int32) error { return emit(id) })
	if len(list) == 0 {
		return nil, st, err
	}
	return list[0].IDs, st, errors.Join(err, list[0].Err)
}

// stepClassRows is how many rows a step of the order class "step" has at most.
const stepClassRows = 128

// classes says so if verify steps with k drafts are in another order class than decode
// steps: then a speculative text may differ from the plain one.
func (s *session) classes(k int) (string, error) {
	if k == 0 {
		return "", nil
	}
	plain, verify, err := s.engine.StepRows(1, k)
	if err != nil {
		return "", err
	}
	for _, border := range []struct {
		rows int
		why  string
	}{{s.fusedHC, passes.FusedHCTokens}, {stepClassRows, "the step class"}} {
		if plain <= border.rows && border.rows < verify {
			return fmt.Sprintf("--speculate %d: decode steps of %d rows and verify steps of %d are of different order classes (%s ends at %d): the text may differ from the plain one",
				k, plain, verify, border.why, border.rows), nil
		}
	}
	return "", nil
}

// printSteps says what a run of the main model took behind the prompt or the prompts, and
// what its drafts were worth.
func printSteps(w io.Writer, behind string, steps int, acceptance []*float64) {
	line := fmt.Sprintf("main model: %s behind %s", count(int64(steps), "step"), behind)
	if len(acceptance) > 0 {
		line += "; acceptance by draft: " + fractions(acceptance)
	}
	fmt.Fprintln(w, line)
}

// acceptanceOf is the fraction of accepted drafts by place, nil where none was verified.
func acceptanceOf(d engine.DraftStats) []*float64 {
	list := make([]*float64, len(d.Drafted))
	for i, a := range d.Acceptance() {
		if d.Drafted[i] > 0 {
			list[i] = &a
		}
	}
	return list
}

// fractions are numbers with three places; - is not known.
func fractions(list []*float64) string {
	text := make([]string, len(list))
	for i, a := range list {
		if text[i] = "-"; a != nil {
			text[i] = fmt.Sprintf("%.3f", *a)
		}
	}
	return strings.Join(text, ", ")
}
