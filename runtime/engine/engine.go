package engine

import (
	"errors"
	"fmt"

	"github.com/kiln-project/kiln/ir/eval"
)

// Entry names, as the model builder gives them.
const (
	entryPrefill = "prefill"
	entryDecode  = "decode"
	entryVerify  = "verify"
	entryDraft   = "draft"
)

// Names of what the heads give: logits, or the results of op argmax or sample.
const (
	outLogits   = "logits"
	greedyIDs   = "greedy_ids"
	greedyFlags = "greedy_flags"
	sampleIDs   = "sample_ids"
	sampleFlags = "sample_flags"
)

// Engine runs steps over one set of state pools. It is not safe for concurrent
// use.
type Engine struct {
	exec   Executor
	layout Layout
	rings  int
	pages  int
	state  State // pools of the main entries
	draft  State // pools of the draft entry, or all of them; nil without one
}

// New makes an engine with zeroed pools: rings for as many requests at a time,
// and pages shared by all of them.
func New(exec Executor, l Layout, rings, pages int) (*Engine, error) {
	if err := l.check(); err != nil {
		return nil, err
	}
	if rings < 1 || pages < 1 {
		return nil, fmt.Errorf("engine: %d rings and %d pages: want at least 1", rings, pages)
	}
	e := &Engine{exec: exec, layout: l, rings: rings, pages: pages}
	var err error
	for k := 1; k <= l.MaxDraft; k++ { // an entry that runs both has the pools of both
		if entry := speculateEntry(k); exec.Has(entry) {
			e.state, err = exec.NewState(entry, e.pools())
			e.draft = e.state
			return e, err
		}
	}
	if e.state, err = exec.NewState(entryDecode, e.pools()); err != nil {
		return nil, err
	}
	if exec.Has(entryDraft) {
		if e.draft, err = exec.NewState(entryDraft, map[string]int{"R": rings}); err != nil {
			return nil, err
		}
	}
	return e, nil
}

// pools binds the symbols of the pools' sizes.
func (e *Engine) pools() map[string]int {
	b := map[string]int{"R": e.rings}
	if len(e.layout.Groups) > 0 {
		b["N"] = e.pages
	}
	return b
}

// NewSeq makes the identity placement of request i when every request may hold
// perRequest pages: ring i, pages i*perRequest and up.
func (e *Engine) NewSeq(i, perRequest int) (*Seq, error) {
	if i < 0 || i >= e.rings || perRequest < 1 || (i+1)*perRequest > e.pages {
		return nil, fmt.Errorf("engine: request %d with %d pages does not fit %d rings and %d pages", i, perRequest, e.rings, e.pages)
	}
	s := &Seq{Ring: i}
	for p := range perRequest {
		s.Pages = append(s.Pages, i*perRequest+p)
	}
	return s, nil
}

// Step runs a main entry over the feeds, padded to shape, and returns its
// outputs: what Choose takes tokens from, and hidden.N [T,C,D].
// It does not advance the sequences: Commit does, and not committing undoes the
// step.
func (e *Engine) Step(entry string, feeds []Feed, s Shape) (Tensors, error) {
	in, err := Metadata(e.layout, feeds, s)
	if err != nil {
		return nil, err
	}
	bind, err := e.bind(entry, s)
	if err != nil {
		return nil, err
	}
	return e.exec.Run(entry, bind, in, e.state)
}

// bind gives an entry's symbols for a step shape, refusing a shape that the
// entry does not have.
func (e *Engine) bind(entry string, s Shape) (map[string]int, error) {
	b := e.pools()
	if len(e.layout.Groups) > 0 {
		b["P"] = s.P
	}
	b["B"] = s.B
	switch entry {
	case entryPrefill:
		b["T"], b["O"] = s.T, s.O
	case entryDecode:
		if s.T != s.B || s.O != s.B {
			return nil, fmt.Errorf("entry decode: shape %+v: want T = O = B", s)
		}
	case entryVerify:
		if s.T%s.B != 0 || s.T == s.B || s.O != s.T {
			return nil, fmt.Errorf("entry verify: shape %+v: want T = O = B*(K+1), K >= 1", s)
		}
		k := s.T/s.B - 1
		if k > e.layout.MaxDraft {
			return nil, fmt.Errorf("entry verify: shape %+v has %d drafts, the rings have room for %d", s, k, e.layout.MaxDraft)
		}
		b["K"] = k
	default:
		k := DraftsOf(entry)
		if k == 0 {
			return nil, fmt.Errorf("entry %q is not a step of the main model", entry)
		}
		if s.T != s.B*(k+1) || s.O != s.T {
			return nil, fmt.Errorf("entry %s: shape %+v: want T = O = B*%d", entry, s, k+1)
		}
	}
	return b, nil
}

// Draft runs the MTP step at the same positions as the last Step: h is that
// step's last hidden output, and the feeds hold the tokens that follow.
func (e *Engine) Draft(feeds []Feed, s Shape, h *eval.Tensor) (Tensors, error) {
	if e.draft == nil {
		return nil, errNoDraft
	}
	if h == nil {
		return nil, fmt.Errorf("the draft step needs the main step's last hidden output")
	}
	in, err := Metadata(e.layout.Draft(), feeds, s)
	if err != nil {
		return nil, err
	}
	in["h"] = h
	return e.exec.Run(entryDraft, map[string]int{"T": s.T, "B": s.B, "O": s.O, "R": e.rings}, in, e.draft)
}

// Commit makes the positions of the last step final.
func Commit(feeds []Feed) {
	for _, f := range feeds {
		f.Seq.Len += len(f.IDs)
	}
}

// run is Step in the smallest shape that the executor has for the feeds.
func (e *Engine) run(entry string, feeds []Feed) (Tensors, error) {
	s, err := e.exec.Fit(entry, ShapeOf(feeds))
	if err != nil {
		return nil, err
	}
	return e.Step(entry, feeds, s)
}

// Prefill feeds ids in chunks of at most chunk (0: the largest the executor
// takes) and returns the last token's logits. each, if not nil, sees every
// chunk's outputs before the next one runs; rows beyond the feed are padding.
func (e *Engine) Prefill(s *Seq, ids []int32, chunk int, each func(f Feed, out Tensors) error) ([]float32, error) {
	if e.layout.Head != HeadLogits {
		return nil, errNoLogits
	}
	out, err := e.prefill(s, ids, Sampling{}, chunk, each)
	if err != nil {
		return nil, err
	}
	return logitsRow(out, 0)
}

// prefill is Prefill that returns the outputs of the last chunk, whose last row is
// sampled.
func (e *Engine) prefill(s *Seq, ids []int32, by Sampling, chunk int, each func(f Feed, out Tensors) error) (Tensors, error) {
	if chunk == 0 {
		chunk = e.exec.MaxPrefill()
	}
	if chunk < 1 {
		return nil, fmt.Errorf("prefill: chunk %d, want at least 1", chunk)
	}
	if len(ids) == 0 {
		return nil, fmt.Errorf("prefill: the prompt is empty")
	}
	var last Tensors
	for from := 0; from < len(ids); from += chunk {
		part := ids[from:min(from+chunk, len(ids))]
		f := Feed{Seq: s, IDs: part, Out: []int{len(part) - 1}, Sampling: by}
		out, err := e.run(entryPrefill, []Feed{f})
		if err != nil {
			return nil, err
		}
		if each != nil {
			if err := each(f, out); err != nil {
				return nil, err
			}
		}
		Commit([]Feed{f})
		last = out
	}
	return last, nil
}

// errNoLogits says what a model whose heads choose cannot do, errOnlyGreedy one whose
// heads choose the greedy token.
var (
	errNoLogits   = errors.New("the model's heads give tokens, no logits")
	errOnlyGreedy = errors.New("the model's heads give the greedy token only")
)

// logitsRow is a row of a step's logits; padding rows follow those that are wanted.
func logitsRow(out Tensors, row int) ([]float32, error) {
	l := out[outLogits]
	if l == nil {
		return nil, errNoLogits
	}
	if row >= l.Shape[0] {
		return nil, fmt.Errorf("output row %d of a step with %d", row, l.Shape[0])
	}
	return l.F[row*l.Shape[1]:][:l.Shape[1]], nil
}

// DecodeOne feeds one token of one request and returns the step's outputs; a head
// that chooses chooses the greedy token.
func (e *Engine) DecodeOne(s *Seq, id int32) (Tensors, error) {
	return e.run(entryDecode, []Feed{{Seq: s, IDs: []int32{id}, Out: []int{0}}})
}
