package engine

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
)

// Limits bound what a scheduler takes on. A zero is the default.
type Limits struct {
	Sessions     int // that have a place at a time; all rings
	Pages        int // of all sessions; all pages
	SessionPages int // of one session, as the plans' page tables have; Pages
	Rows         int // of a decode or speculative step, padding included, so that all are of one order class
	Queue        int // requests that wait for a place; 256
	Chunk        int // tokens of a prefill step; what the executor takes
	Drafts       int // of a session's step at most: speculative steps take the place of decode steps; none
}

// defaultQueue is how many requests wait if nobody says.
const defaultQueue = 256

// Scheduler runs requests beside each other on one engine, which nobody else may step.
//
// A request is accepted or refused by Submit, before anything runs. It waits in the
// order of submission until a ring and pages for all of its positions are free, so that
// it never runs out of them. Prompts are fed one after another in the order of
// admission, a chunk a step; while there are prompts and sessions past theirs, such
// steps alternate with decode steps of all the latter. With drafts those are speculative
// steps, and a session may get several tokens of one: the same tokens. Where a step has no
// rows for all sessions with so many drafts, it has fewer drafts; where it has none for all
// with one, or without drafts, they take turns in several steps. Nothing depends on
// a clock: equal submissions between equal steps give equal steps.
//
// One goroutine calls Step, Drain or Serve; any may call Submit, and Cancel of sessions.
type Scheduler struct {
	e      *Engine
	limits Limits
	groups []int         // by drafts: sessions of a step at most, 0 if there is no such step
	wake   chan struct{} // has one if something was submitted or cancelled

	mu      sync.Mutex
	places  *Places
	queue   []*Session
	running []*Session // in the order of admission
	ended   error      // why nothing more is taken on
	fed     bool       // the last step was a chunk of a prompt
	stats   Stats
}

// NewScheduler makes a scheduler for an engine, all of whose rings and pages are free.
// An executor that cannot run the limits is refused.
func NewScheduler(e *Engine, l Limits) (*Scheduler, error) {
	chunk := e.exec.MaxPrefill()
	for _, x := range []struct {
		what      string
		n         *int
		def, most int
	}{
		{"sessions at a time", &l.Sessions, e.rings, e.rings},
		{"pages", &l.Pages, e.pages, e.pages},
		{"waiting requests", &l.Queue, defaultQueue, math.MaxInt32},
		{"rows of a decode step", &l.Rows, math.MaxInt32, math.MaxInt32},
		{"tokens of a prefill step", &l.Chunk, chunk, chunk},
		{"drafts", &l.Drafts, 0, e.layout.MaxDraft},
	} {
		if err := limit(x.what, x.n, x.def, x.most); err != nil {
			return nil, err
		}
	}
	if err := limit("pages of a session", &l.SessionPages, l.Pages, l.Pages); err != nil {
		return nil, err
	}
	s := &Scheduler{e: e, limits: l, groups: make([]int, l.Drafts+1), wake: make(chan struct{}, 1), places: NewPlaces(l.Sessions, l.Pages)}
	s.stats.Drafts = newDraftStats(l.Drafts)
	if err := s.fits(); err != nil {
		return nil, fmt.Errorf("scheduler: %w", err)
	}
	return s, nil
}

// fits refuses limits that the executor has no steps for.
func (s *Scheduler) fits() error {
	l, e := s.limits, s.e
	if l.Drafts > 0 {
		if err := e.CheckDrafts(l.Drafts); err != nil {
			return err
		}
		if l.Rows <= l.Drafts {
			return fmt.Errorf("a step with %d drafts has %d rows of a request, beyond %d, where its order class ends: results would depend on the batch", l.Drafts, l.Drafts+1, l.Rows)
		}
		if _, err := e.exec.Fit(entryDraft, Shape{T: l.Chunk, B: 1, O: 1, P: 1}); err != nil {
			return err
		}
	}
	if _, err := e.exec.Fit(entryPrefill, Shape{T: l.Chunk, B: 1, O: 1, P: l.SessionPages}); err != nil {
		return err
	}
	var err error
	if s.groups[l.Drafts], err = s.most(l.Drafts); err != nil {
		return err
	}
	for k := 1; k < l.Drafts; k++ { // such steps need not be there
		s.groups[k], _ = s.most(k)
	}
	return nil
}

// most is how many sessions a step with k drafts holds, of those that there may be. It is
// an error if the executor has no step for as many as there are rows for, or if there are
// too few rows for one.
func (s *Scheduler) most(k int) (int, error) {
	for n := 1; n <= min(s.limits.Sessions, s.limits.Rows/(k+1)); n++ {
		for _, step := range s.steps(n, k) {
			fit, err := s.e.exec.Fit(step.entry, step.Shape)
			switch {
			case err != nil:
				return n - 1, err
			case fit.T <= s.limits.Rows:
			case n == 1:
				return 0, fmt.Errorf("a %s step of one request has %d rows, beyond %d, where its order class ends: results would depend on the batch", step.entry, fit.T, s.limits.Rows)
			default:
				return n - 1, nil
			}
		}
	}
	return min(s.limits.Sessions, s.limits.Rows/(k+1)), nil
}

// drafts chooses how many drafts each of n sessions has in a step, and how many sessions a
// step has.
func (s *Scheduler) drafts(n int) (k, group int) {
	for k := len(s.groups) - 1; k > 0; k-- {
		if n <= s.groups[k] {
			return k, n
		}
	}
	for i, most := range s.groups {
		if most >= group {
			k, group = i, most
		}
	}
	return k, group
}

// StepSessions is how many sessions a step has at most behind their prompts; more of them
// take several steps, so that all are of one order class.
func (s *Scheduler) StepSessions() int { return slices.Max(s.groups) }

// entryShape is a step of an entry.
type entryShape struct {
	entry string
	Shape
}

// steps are those that n sessions may take which are past their prompts, with k drafts.
func (s *Scheduler) steps(n, k int) []entryShape {
	pages := s.limits.SessionPages
	if k == 0 {
		return []entryShape{{entryDecode, Shape{T: n, B: n, O: n, P: pages}}}
	}
	rows := n * (k + 1)
	var list []entryShape
	whole := s.e.exec.Has(speculateEntry(k))
	if whole {
		list = append(list, entryShape{speculateEntry(k), Shape{T: rows, B: n, O: rows, P: pages}})
	}
	if !whole || s.e.layout.Head == HeadLogits { // whole steps do not sample then
		list = append(list,
			entryShape{entryVerify, Shape{T: rows, B: n, O: rows, P: pages}},
			entryShape{entryDraft, Shape{T: rows, B: n, O: n, P: 1}})
	}
	return list
}

// limit fills in the default of a number, and bounds it.
func limit(what string, n *int, def, most int) error {
	if *n == 0 {
		*n = def
	}
	if *n < 0 || *n > most {
		return fmt.Errorf("scheduler: %d %s, want at most %d", *n, what, most)
	}
	return nil
}

// Check refuses a request that could not finish: beside what Layout.Check says, one
// whose prompt, new tokens and drafts have no room in the model's positions or in a
// session's pages.
func (s *Scheduler) Check(r Request) error {
	l := s.e.layout
	if err := l.Check(r); err != nil {
		return err
	}
	n := s.positions(r)
	if n > l.MaxPositions {
		return fmt.Errorf("%d prompt tokens, %d new ones and %d drafts need %d positions, max_position_embeddings is %d", len(r.Prompt), r.MaxNew, s.limits.Drafts, n, l.MaxPositions)
	}
	if most := s.limits.SessionPages; l.Pages(n) > most {
		return fmt.Errorf("%d prompt tokens, %d new ones and %d drafts need %d positions, a session has %d (%d pages of %d)", len(r.Prompt), r.MaxNew, s.limits.Drafts, n, most*l.PageTokens, most, l.PageTokens)
	}
	return nil
}

// positions are those that a request holds a place for.
func (s *Scheduler) positions(r Request) int { return len(r.Prompt) + r.MaxNew + s.limits.Drafts }

// Submit accepts a request or says why not. emit, if not nil, hears of each new token
// on the goroutine that steps, which waits for it; its error ends the session.
func (s *Scheduler) Submit(r Request, emit func(id int32) error) (*Session, error) {
	if err := s.Check(r); err != nil {
		return nil, err
	}
	x := &Session{req: r, emit: emit, out: Outcome{Drafts: newDraftStats(s.limits.Drafts)}, pages: s.e.layout.Pages(s.positions(r)), wake: s.wake, done: make(chan struct{})}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended != nil {
		return nil, fmt.Errorf("no request is taken on any more: %w", s.ended)
	}
	if len(s.queue) == s.limits.Queue {
		return nil, fmt.Errorf("%d requests wait already, as many as may", len(s.queue))
	}
	s.queue = append(s.queue, x)
	poke(s.wake)
	return x, nil
}

// Load is how many requests wait, how many sessions have a place, and what they hold.
type Load struct{ Waiting, Running, Rings, Pages int }

// Load tells what there is now.
func (s *Scheduler) Load() Load {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := Load{Waiting: len(s.queue), Running: len(s.running)}
	l.Rings, l.Pages = s.places.Held()
	return l
}

// Step runs a chunk of a prompt or a decode step (several if there are more sessions than
// rows) and tells whether there was one to run. Its error, with which all
// sessions end, is the device's: the pools are undefined after it, so the scheduler
// takes nothing on any more.
func (s *Scheduler) Step() (ran bool, err error) {
	prompt, rest, err := s.next()
	switch {
	case err != nil:
	case prompt != nil:
		err = s.prefill(prompt)
	case len(rest) > 0:
		k, group := s.drafts(len(rest))
		for list := range slices.Chunk(rest, group) {
			if err = s.decode(list, k); err != nil {
				break
			}
		}
	default:
		return false, nil
	}
	if err != nil {
		return false, errors.Join(err, s.endAll(err))
	}
	return true, nil
}

// next ends what was cancelled, admits what fits, and chooses a step: a chunk of a
// session's prompt, or a token of all sessions that are past theirs.
func (s *Scheduler) next() (prompt *Session, rest []*Session, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended != nil {
		return nil, nil, s.ended
	}
	for _, x := range append(append([]*Session{}, s.running...), s.queue...) {
		if x.cancelled.Load() {
			if err := s.end(x, ErrCancelled); err != nil {
				return nil, nil, err
			}
		}
	}
	for len(s.queue) > 0 && s.places.Fits(s.queue[0].pages) {
		x := s.queue[0]
		if x.seq, err = s.places.Take(x.pages); err != nil {
			return nil, nil, err
		}
		s.queue, s.running = s.queue[1:], append(s.running, x)
		if s.limits.Drafts > 0 {
			x.spec = &drafting{seq: x.seq, r: &x.req, out: &x.out, give: func(c Choice, _ int) (bool, error) { return s.take(x, c) }}
		}
	}
	for _, x := range s.running {
		switch {
		case !x.prefilling():
			rest = append(rest, x)
		case prompt == nil:
			prompt = x
		}
	}
	if prompt != nil && len(rest) > 0 && s.fed {
		prompt = nil
	}
	s.fed = prompt != nil
	return prompt, rest, nil
}

// prefill feeds the next chunk of a session's prompt; the last one gives a token.
func (s *Scheduler) prefill(x *Session) error {
	from := x.seq.Len
	part := x.req.Prompt[from:min(from+s.limits.Chunk, len(x.req.Prompt))]
	f := []Feed{{Seq: x.seq, IDs: part, Out: []int{len(part) - 1}, Sampling: x.req.Sampling}}
	out, err := s.e.run(entryPrefill, f)
	if err != nil {
		return fmt.Errorf("prompt tokens %d..%d of a request: %w", from, from+len(part)-1, err)
	}
	if x.spec != nil {
		ahead := s.speculation(nil, s.limits.Drafts)
		err := ahead.chunk(x.spec, from, from+len(part), out)
		Commit(f)
		ahead.trim() // no chain of drafts: a run for one request alone costs more than it saves
		if err != nil {
			return fmt.Errorf("MTP block behind prompt tokens %d..%d of a request: %w", from, from+len(part)-1, err)
		}
		return nil
	}
	list, err := Choose(f, out)
	if err != nil {
		return err
	}
	Commit(f)
	if x.prefilling() {
		return nil
	}
	_, err = s.take(x, list[0])
	return err
}

// decode gives each session its next tokens, of a step with so many drafts.
func (s *Scheduler) decode(list []*Session, drafts int) error {
	if drafts > 0 {
		return s.speculate(list, drafts)
	}
	feeds := make([]Feed, len(list))
	for i, x := range list {
		feeds[i] = x.req.next(x.seq, x.out.IDs[len(x.out.IDs)-1])
	}
	out, err := s.e.run(entryDecode, feeds)
	if err != nil {
		return fmt.Errorf("decode step of %d requests: %w", len(list), err)
	}
	chosen, err := Choose(feeds, out)
	if err != nil {
		return err
	}
	Commit(feeds)
	s.count(Stats{Steps: 1})
	for i, x := range list {
		x.out.Steps++
		if _, err := s.take(x, chosen[i]); err != nil {
			return err
		}
	}
	return nil
}

// speculate verifies up to k drafts of each session, gives each the tokens that follow, and makes
// new drafts. How many are right is each session's own matter.
func (s *Scheduler) speculate(list []*Session, k int) error {
	ahead := s.speculation(list, k)
	ahead.trim() // the step before may have had room for more
	err := ahead.step()
	s.count(ahead.stats)
	if err != nil {
		return fmt.Errorf("speculative step of %d requests: %w", len(list), err)
	}
	return nil
}

// speculation has sessions speculate. All that is kept of it between steps is what each
// session drafted.
func (s *Scheduler) speculation(list []*Session, k int) *speculation {
	a := &speculation{e: s.e, k: k, whole: s.e.exec.Has(speculateEntry(k)), stats: Stats{Drafts: newDraftStats(s.limits.Drafts)}}
	for i, x := range list {
		x.spec.request = i
		a.live = append(a.live, x.spec)
		a.whole = a.whole && s.e.wholeStep(x.req.Sampling)
	}
	a.all = a.live
	return a
}

// count adds to the scheduler's numbers.
func (s *Scheduler) count(st Stats) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stats.Steps += st.Steps
	for i := range st.Drafts.Drafted {
		s.stats.Drafts.Drafted[i] += st.Drafts.Drafted[i]
		s.stats.Drafts.Accepted[i] += st.Drafts.Accepted[i]
	}
}

// Stats are the steps of the main model behind prompts until now, each with any number of
// sessions, and the drafts that they verified. There are no times.
func (s *Scheduler) Stats() Stats {
	s.mu.Lock()
	defer s.mu.Unlock()
	st := s.stats
	st.Drafts = DraftStats{Drafted: slices.Clone(st.Drafts.Drafted), Accepted: slices.Clone(st.Drafts.Accepted)}
	return st
}

// take adds a new token to a session, ends it if it is done or the choice is a fault, and
// reports whether it goes on.
func (s *Scheduler) take(x *Session, c Choice) (on bool, err error) {
	why, at := c.Err, len(x.req.Prompt)+len(x.out.IDs)-1
	if x.cancelled.Load() {
		why = ErrCancelled
	}
	if why == nil {
		x.out.IDs = append(x.out.IDs, c.ID)
		if x.emit != nil {
			why = x.emit(c.ID)
		}
	}
	if why != nil && !errors.Is(why, ErrCancelled) {
		why = fmt.Errorf("position %d: %w", at, why)
	}
	if why == nil && !x.req.done(x.out.IDs) {
		return true, nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return false, s.end(x, why)
}

// end takes a session out and gives back its place.
func (s *Scheduler) end(x *Session, why error) error {
	var err error
	if x.seq != nil {
		err = s.places.Free(x.seq)
	}
	x.seq, x.spec, x.out.Err = nil, nil, why
	s.queue, s.running = without(s.queue, x), without(s.running, x)
	close(x.done)
	return err
}

func without(list []*Session, x *Session) []*Session {
	var rest []*Session
	for _, y := range list {
		if y != x {
			rest = append(rest, y)
		}
	}
	return rest
}

// endAll ends all sessions, and the scheduler; the first reason stays.
func (s *Scheduler) endAll(why error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended != nil {
		return nil
	}
	s.ended = why
	var errs []error
	for _, x := range append(append([]*Session{}, s.running...), s.queue...) {
		errs = append(errs, s.end(x, why))
	}
	return errors.Join(errs...)
}

// Drain steps until nothing is left. When the context ends, all sessions end as
// cancelled, and the scheduler takes nothing on any more.
func (s *Scheduler) Drain(ctx context.Context) error {
	for {
		if err := ctx.Err(); err != nil {
			return errors.Join(err, s.endAll(fmt.Errorf("%w: %w", ErrCancelled, err)))
		}
		if ran, err := s.Step(); err != nil || !ran {
			return err
		}
	}
}

// Serve is Drain that waits for more, until the context ends or a step fails.
func (s *Scheduler) Serve(ctx context.Context) error {
	for {
		if err := s.Drain(ctx); err != nil {
			return err
		}
		select {
		case <-s.wake:
		case <-ctx.Done():
		}
	}
}
