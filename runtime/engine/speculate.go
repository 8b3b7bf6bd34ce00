package engine

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/kiln-project/kiln/ir/eval"
)

// Speculative generation. The MTP block drafts K tokens ahead of each request; one
// step of the main model over the last token and its drafts (entry verify) says what
// follows each of them, and the drafts up to the first wrong one are accepted. What
// is given out is always the main model's choice, so drafts decide how many tokens a
// step gives and nothing else: a greedy text is the plain greedy text, and a sampled
// one is the plain sampled one of the same seed, as each choice is drawn by seed and
// position alone. (That is rejection sampling with drafts that have all of their
// probability on one token: it is accepted with the probability that the model gives
// it, and what replaces it is drawn from the rest.)
//
// A rejected draft is undone by not advancing its sequence: Layout.MaxDraft says how
// many the rings have room for (docs/dsv4.md section 5).

// DraftStats count the drafts that were verified.
type DraftStats struct {
	Drafted  []int // steps that verified a draft, by its place behind the last token
	Accepted []int // those whose draft there, and all before it, were right
}

// newDraftStats counts nothing yet, for k places.
func newDraftStats(k int) DraftStats {
	return DraftStats{Drafted: make([]int, k), Accepted: make([]int, k)}
}

// Acceptance is the fraction of accepted drafts by place; 0 where there were none.
func (d DraftStats) Acceptance() []float64 {
	list := make([]float64, len(d.Drafted))
	for i, n := range d.Drafted {
		if n > 0 {
			list[i] = float64(d.Accepted[i]) / float64(n)
		}
	}
	return list
}

// CheckDrafts refuses a number of drafts that the model's rings have no room for, and
// a model without entries to draft and verify.
func (e *Engine) CheckDrafts(k int) error {
	switch {
	case k < 1:
		return fmt.Errorf("%d drafts, want at least 1", k)
	case k > e.layout.MaxDraft:
		return fmt.Errorf("%d drafts, the rings have room for %d", k, e.layout.MaxDraft)
	case e.draft == nil:
		return errNoDraft
	case !e.exec.Has(entryVerify) && !e.exec.Has(speculateEntry(k)):
		return fmt.Errorf("the model has no entry that verifies %d drafts", k)
	}
	return nil
}

// StepRows are the token rows of the steps that a batch of requests takes: a decode
// step, and one that verifies k drafts of each.
func (e *Engine) StepRows(batch, k int) (decode, verify int, err error) {
	s := Shape{T: batch, B: batch, O: batch, P: 1}
	plain, err := e.exec.Fit(entryDecode, s)
	if err != nil {
		return 0, 0, err
	}
	s.T *= k + 1
	s.O = s.T
	entry := speculateEntry(k)
	if !e.exec.Has(entry) {
		entry = entryVerify
	}
	drafted, err := e.exec.Fit(entry, s)
	return plain.T, drafted.T, err
}

var errNoDraft = errors.New("the model has no draft entry (no MTP block)")

// Speculate is GenerateBatch with up to k drafts a step; requests accept as many as
// are right, each for itself. progress, if not nil, hears how many tokens of a
// request's prompt are done. The times of the stats are those of all requests.
func (e *Engine) Speculate(ctx context.Context, seqs []*Seq, reqs []Request, k int, progress func(request, done int), emit func(request int, id int32) error) ([]Outcome, Stats, error) {
	s, list, err := e.newSpeculation(seqs, reqs, k, emit)
	if err != nil {
		return nil, Stats{}, err
	}
	start := time.Now()
	for i := range reqs {
		if err := s.prompt(ctx, i, progress); err != nil {
			return list, s.stats, s.failed(i, err)
		}
	}
	s.stats.Prefill = time.Since(start)
	start = time.Now()
	if err := s.chain(); err != nil {
		return list, s.stats, err
	}
	for len(s.live) > 0 {
		if err := ctx.Err(); err != nil {
			return list, s.stats, err
		}
		if err := s.step(); err != nil {
			return list, s.stats, err
		}
	}
	s.stats.Decode = time.Since(start)
	return list, s.stats, nil
}

// speculation is the state of requests that speculate between steps.
type speculation struct {
	e     *Engine
	k     int
	whole bool // steps are one run of an entry, not one of verify and k of draft
	all   []*drafting
	live  []*drafting // those that go on, in the order of all
	stats Stats
}

// drafting is a request that speculates.
type drafting struct {
	request int
	seq     *Seq
	r       *Request
	out     *Outcome
	// give gives out the choice that follows a position, or ends the request with what
	// is wrong with it, and reports whether the request goes on. Its error ends all.
	give   func(c Choice, pos int) (on bool, err error)
	drafts []int32   // of the tokens behind the last one
	x      streamRow // of the MTP block where it made the last draft
}

// streamRow is a row [C,D] of a step's residual streams [T,C,D].
type streamRow struct {
	of  *eval.Tensor
	row int
}

func (e *Engine) newSpeculation(seqs []*Seq, reqs []Request, k int, emit func(request int, id int32) error) (*speculation, []Outcome, error) {
	if err := e.CheckDrafts(k); err != nil {
		return nil, nil, err
	}
	if len(seqs) != len(reqs) {
		return nil, nil, fmt.Errorf("%d requests on %d sequences", len(reqs), len(seqs))
	}
	s := &speculation{e: e, k: k, whole: e.exec.Has(speculateEntry(k))}
	s.stats.Drafts = newDraftStats(k)
	list := make([]Outcome, len(reqs))
	for i := range reqs {
		d := &drafting{request: i, seq: seqs[i], r: &reqs[i], out: &list[i]}
		d.out.Drafts = newDraftStats(k)
		d.give = func(c Choice, pos int) (bool, error) {
			return d.take(c, pos, func(id int32) error { return emit(i, id) }), nil
		}
		s.all = append(s.all, d)
		s.whole = s.whole && e.wholeStep(d.r.Sampling)
		err := e.layout.Check(*d.r)
		if err == nil { // the last token is not fed, and there are no drafts beyond it
			err = e.layout.room(seqs[i], len(d.r.Prompt)+d.r.MaxNew-1)
		}
		if err != nil {
			return nil, nil, s.failed(i, err)
		}
	}
	return s, list, nil
}

// wholeStep tells whether the head of a whole step, which gives no logits, chooses by
// a sampling.
func (e *Engine) wholeStep(by Sampling) bool {
	return by.Temperature == 0 || e.layout.Head == HeadSample
}

// failed names the request of an error, if there are several.
func (s *speculation) failed(i int, err error) error {
	if len(s.all) == 1 {
		return err
	}
	return fmt.Errorf("request %d: %w", i, err)
}

// take adds a choice to the outcome, and emits it.
func (d *drafting) take(c Choice, pos int, emit func(id int32) error) bool {
	o := d.out
	if o.Err = c.Err; o.Err == nil {
		o.IDs = append(o.IDs, c.ID)
		o.Err = emit(c.ID)
	}
	if o.Err != nil {
		o.Err = fmt.Errorf("position %d: %w", pos, o.Err)
	}
	return o.Err == nil && !d.r.done(o.IDs)
}

// room is how many drafts of a request may be verified at its next step: together
// with the token that follows them they are no more than it wants.
func (s *speculation) room(d *drafting) int { return min(s.k, d.r.MaxNew-len(d.out.IDs)-1) }

// trim leaves no more drafts than there is room for.
func (s *speculation) trim() {
	for _, d := range s.live {
		d.drafts = d.drafts[:min(len(d.drafts), s.room(d))]
	}
}

// fault ends a request whose draft behind a position is faulty.
func (d *drafting) fault(err error, pos int) error {
	_, err = d.give(Choice{Err: fmt.Errorf("the MTP block: %w", err)}, pos)
	return err
}

// prompt prefills a request, the MTP block beside it, takes its first token and makes
// the first draft.
func (s *speculation) prompt(ctx context.Context, i int, progress func(request, done int)) error {
	d := s.all[i]
	_, err := s.e.prefill(d.seq, d.r.Prompt, d.r.Sampling, 0, func(f Feed, out Tensors) error {
		end := f.Seq.Len + len(f.IDs)
		if progress != nil {
			progress(i, end)
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		return s.chunk(d, f.Seq.Len, end, out)
	})
	return err
}

// chunk goes on from a step over the prompt's tokens from..end-1: the MTP block runs over
// them. The last of the prompt give the first token and a draft, and the request is live
// then, if it goes on.
func (s *speculation) chunk(d *drafting, from, end int, out Tensors) error {
	a := ahead{d: d, at: from, ids: slices.Clone(d.r.Prompt[from+1 : min(end+1, len(d.r.Prompt))])}
	last := end == len(d.r.Prompt)
	if last {
		c, err := choose(out, 0, d.r.Sampling, end-1)
		if err != nil {
			return err
		}
		if on, err := d.give(c, end-1); err != nil || !on {
			return err
		}
		a.ids = append(a.ids, c.ID)
		s.live = append(s.live, d)
	}
	h, err := lastHidden(out)
	if err != nil {
		return err
	}
	for row := range a.ids {
		a.h = append(a.h, streamRow{h, row})
	}
	return s.draft([]ahead{a}, Shape{T: len(a.ids), B: 1, O: 1, P: 1}, last)
}

// feeds are the last tokens of all live requests and their drafts.
func (s *speculation) feeds() []Feed {
	feeds := make([]Feed, len(s.live))
	for i, d := range s.live {
		f := Feed{Seq: d.seq, IDs: append([]int32{d.out.IDs[len(d.out.IDs)-1]}, d.drafts...), Sampling: d.r.Sampling}
		for row := range f.IDs {
			f.Out = append(f.Out, row)
		}
		feeds[i] = f
	}
	return feeds
}

// step verifies the drafts of all live requests, accepts, and makes new ones.
func (s *speculation) step() error {
	if s.whole {
		return s.wholeStep()
	}
	feeds := s.feeds()
	shape := ShapeOf(feeds)
	shape.T = shape.B * (s.k + 1)
	shape.O = shape.T
	shape, err := s.e.exec.Fit(entryVerify, shape)
	if err != nil {
		return err
	}
	out, err := s.e.Step(entryVerify, feeds, shape)
	if err != nil {
		return err
	}
	s.stats.Steps++
	chosen, err := Choose(feeds, out)
	if err != nil {
		return err
	}
	h, err := lastHidden(out)
	if err != nil {
		return err
	}
	var live []*drafting
	var list []ahead
	row := 0
	for i, d := range s.live {
		a, on, err := s.accept(d, chosen[row:row+len(feeds[i].IDs)])
		if err != nil {
			return err
		}
		for n := range a.ids {
			a.h = append(a.h, streamRow{h, row + n})
		}
		row += len(feeds[i].IDs)
		if on {
			live, list = append(live, d), append(list, a)
		}
	}
	s.live = live
	if len(live) == 0 {
		return nil
	}
	b := len(live)
	if err := s.draft(list, Shape{T: b * (s.k + 1), B: b, O: b, P: 1}, true); err != nil {
		return err
	}
	return s.chain()
}

// accept takes what follows the last token of a request and each of its drafts, up to
// the first wrong draft, and advances its sequence. It returns the tokens that were
// taken, and whether the request goes on. What is counted is counted before the tokens
// are given out, which may end the request.
func (s *speculation) accept(d *drafting, chosen []Choice) (a ahead, on bool, err error) {
	a = ahead{d: d, at: d.seq.Len}
	d.out.Steps++
	for i := range d.drafts {
		d.out.Drafts.Drafted[i]++
		s.stats.Drafts.Drafted[i]++
	}
	right := true
	on = true
	for i := 0; on && right; i++ {
		c := chosen[i]
		if c.Err == nil {
			a.ids = append(a.ids, c.ID)
		}
		right = i < len(d.drafts) && c.Err == nil && d.drafts[i] == c.ID
		if right {
			d.out.Drafts.Accepted[i]++
			s.stats.Drafts.Accepted[i]++
		}
		if on, err = d.give(c, a.at+i); err != nil {
			return a, false, err
		}
	}
	d.drafts = d.drafts[:0]
	d.seq.Len += len(a.ids)
	return a, on, nil
}

// chain makes the drafts behind the first one: the MTP block over its own streams and
// its own draft, at positions that are not final.
func (s *speculation) chain() error {
	s.trim()
	for {
		var list []ahead
		for _, d := range s.live {
			n := len(d.drafts)
			if n >= s.room(d) {
				continue
			}
			list = append(list, ahead{d: d, at: d.seq.Len + n - 1, ids: d.drafts[n-1:], h: []streamRow{d.x}})
		}
		if len(list) == 0 {
			return nil
		}
		b := len(s.live)
		if err := s.draft(list, Shape{T: b, B: b, O: b, P: 1}, true); err != nil {
			return err
		}
	}
}

// ahead is what the MTP block runs over for a request: from position at on, the ids
// one token behind each position, and the streams there.
type ahead struct {
	d   *drafting
	at  int
	ids []int32
	h   []streamRow
}

// draft runs the MTP block in the smallest step that holds the shape. With keep the
// choice of each request's last row is its next draft, which is greedy.
func (s *speculation) draft(list []ahead, shape Shape, keep bool) error {
	shape, err := s.e.exec.Fit(entryDraft, shape)
	if err != nil {
		return err
	}
	var feeds []Feed
	var h *eval.Tensor
	row := 0
	for _, a := range list {
		feeds = append(feeds, Feed{Seq: &Seq{Ring: a.d.seq.Ring, Len: a.at}, IDs: a.ids, Out: []int{len(a.ids) - 1}})
		for _, x := range a.h {
			width := x.of.Len() / x.of.Shape[0]
			if h == nil { // rows of padding stay 0
				h = &eval.Tensor{DType: x.of.DType, Shape: append([]int{shape.T}, x.of.Shape[1:]...), F: make([]float32, shape.T*width)}
			}
			copy(h.F[row*width:(row+1)*width], x.of.F[x.row*width:])
			row++
		}
	}
	out, err := s.e.Draft(feeds, shape, h)
	if err != nil || !keep {
		return err
	}
	chosen, err := Choose(feeds, out)
	if err != nil {
		return err
	}
	x := out[outHidden]
	if x == nil {
		return fmt.Errorf("entry draft gives no %s", outHidden)
	}
	row = 0
	for i, a := range list {
		row += len(a.ids)
		if err := chosen[i].Err; err != nil {
			if err := a.d.fault(err, a.at+len(a.ids)-1); err != nil {
				return err
			}
			s.live = slices.DeleteFunc(slices.Clone(s.live), func(d *drafting) bool { return d == a.d })
			continue
		}
		a.d.drafts = append(a.d.drafts, chosen[i].ID)
		a.d.x = streamRow{x, row - 1}
	}
	return nil
}

// outHidden is the draft entry's output that its chains go on from.
const outHidden = "hidden"

// lastHidden is the output of a main step that the MTP block goes on from: hidden.N of
// the largest N.
func lastHidden(out Tensors) (*eval.Tensor, error) {
	layer, h := -1, (*eval.Tensor)(nil)
	for _, name := range slices.Sorted(maps.Keys(out)) {
		var n int
		if k, _ := fmt.Sscanf(name, "hidden.%d", &n); k == 1 && n > layer {
			layer, h = n, out[name]
		}
	}
	if h == nil {
		return nil, fmt.Errorf("the main step gives no hidden state to draft from")
	}
	return h, nil
}
