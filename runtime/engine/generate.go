package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
)

// Request is one generation.
type Request struct {
	Prompt   []int32
	MaxNew   int     // new tokens at most, at least 1
	Stop     []int32 // generation ends with the first of these, which is kept
	Sampling Sampling
}

// Stats are the times of a generation, and its steps behind the prompt.
type Stats struct {
	Prefill time.Duration // prompt in, first token out
	Decode  time.Duration // all later tokens
	Steps   int           // of the main model, behind the prompt
	Drafts  DraftStats    // of a speculative generation
}

// Check refuses a request that could not finish, before anything runs.
func (l Layout) Check(r Request) error {
	n := len(r.Prompt)
	switch {
	case n == 0:
		return fmt.Errorf("the prompt has no tokens")
	case r.MaxNew < 1:
		return fmt.Errorf("max new tokens is %d, want at least 1", r.MaxNew)
	case n > l.MaxPositions:
		return fmt.Errorf("the prompt has %d tokens, max_position_embeddings is %d", n, l.MaxPositions)
	case r.MaxNew > l.MaxPositions-n:
		return fmt.Errorf("the prompt has %d tokens and max_position_embeddings is %d, so at most %d new tokens fit, not %d", n, l.MaxPositions, l.MaxPositions-n, r.MaxNew)
	}
	for i, id := range r.Prompt {
		if id < 0 || int(id) >= l.Vocab {
			return fmt.Errorf("prompt token %d: id %d is out of vocabulary (%d)", i, id, l.Vocab)
		}
	}
	return l.samples(r.Sampling)
}

// room refuses a sequence that is not fresh or cannot hold n positions.
func (l Layout) room(s *Seq, n int) error {
	if s.Len != 0 {
		return fmt.Errorf("the sequence already holds %d positions, a generation starts at 0", s.Len)
	}
	if len(l.Groups) > 0 && n > len(s.Pages)*l.PageTokens {
		return fmt.Errorf("%d positions do not fit the sequence's %d pages of %d tokens", n, len(s.Pages), l.PageTokens)
	}
	return nil
}

// Generate runs one request on a fresh sequence and calls emit with each new
// token as it is known. progress, if not nil, hears how many prompt tokens are
// done.
func (e *Engine) Generate(ctx context.Context, s *Seq, r Request, progress func(done int), emit func(id int32) error) ([]int32, Stats, error) {
	var st Stats
	if err := e.layout.Check(r); err != nil {
		return nil, st, err
	}
	if err := e.layout.room(s, len(r.Prompt)+r.MaxNew-1); err != nil { // the last token is not fed
		return nil, st, err
	}
	start := time.Now()
	out, err := e.prefill(s, r.Prompt, r.Sampling, 0, func(f Feed, _ Tensors) error {
		if progress != nil {
			progress(f.Seq.Len + len(f.IDs))
		}
		return ctx.Err()
	})
	if err != nil {
		return nil, st, err
	}
	var ids []int32
	for {
		c, err := choose(out, 0, r.Sampling, s.Len-1)
		if err = errors.Join(err, c.Err); err != nil {
			return ids, st, fmt.Errorf("position %d: %w", s.Len-1, err)
		}
		id := c.ID
		ids = append(ids, id)
		if len(ids) == 1 {
			st.Prefill = time.Since(start)
			start = time.Now()
		}
		if err := emit(id); err != nil {
			return ids, st, err
		}
		if r.done(ids) {
			st.Decode = time.Since(start)
			return ids, st, nil
		}
		if err := ctx.Err(); err != nil {
			return ids, st, err
		}
		f := []Feed{r.next(s, id)}
		if out, err = e.run(entryDecode, f); err != nil {
			return ids, st, err
		}
		st.Steps++
		Commit(f)
	}
}

// next feeds the last token of a request.
func (r *Request) next(s *Seq, id int32) Feed {
	return Feed{Seq: s, IDs: []int32{id}, Out: []int{0}, Sampling: r.Sampling}
}

// done reports whether a request ends with the last of its new tokens.
func (r *Request) done(ids []int32) bool {
	return slices.Contains(r.Stop, ids[len(ids)-1]) || len(ids) == r.MaxNew
}

// Outcome is what became of a request of a batch: its new tokens, and what ended it
// if that was an error.
type Outcome struct {
	IDs    []int32
	Err    error
	Steps  int        // of the main model behind the prompt that it was part of
	Drafts DraftStats // of speculative steps
}

// GenerateBatch runs requests beside each other, each on a fresh sequence of its own:
// their prompts one after another, then decode steps of all that go on. emit hears of
// each new token; its error, like a row of the heads' that is faulty, ends its request,
// and the others go on. What is returned as an error ends all.
func (e *Engine) GenerateBatch(ctx context.Context, seqs []*Seq, reqs []Request, emit func(request int, id int32) error) ([]Outcome, error) {
	if len(seqs) != len(reqs) {
		return nil, fmt.Errorf("%d requests on %d sequences", len(reqs), len(seqs))
	}
	for i, r := range reqs {
		err := e.layout.Check(r)
		if err == nil {
			err = e.layout.room(seqs[i], len(r.Prompt)+r.MaxNew-1)
		}
		if err != nil {
			return nil, fmt.Errorf("request %d: %w", i, err)
		}
	}
	list := make([]Outcome, len(reqs))
	var live []int // requests that go on
	take := func(i int, c Choice) {
		o := &list[i]
		if o.Err = c.Err; o.Err == nil {
			o.IDs = append(o.IDs, c.ID)
			o.Err = emit(i, c.ID)
		}
		if o.Err != nil {
			o.Err = fmt.Errorf("position %d: %w", seqs[i].Len-1, o.Err)
		} else if !reqs[i].done(o.IDs) {
			live = append(live, i)
		}
	}
	for i, r := range reqs {
		out, err := e.prefill(seqs[i], r.Prompt, r.Sampling, 0, func(Feed, Tensors) error { return ctx.Err() })
		if err != nil {
			return list, fmt.Errorf("request %d: %w", i, err)
		}
		c, err := choose(out, 0, r.Sampling, seqs[i].Len-1)
		if err != nil {
			return list, fmt.Errorf("request %d: %w", i, err)
		}
		take(i, c)
	}
	for len(live) > 0 {
		if err := ctx.Err(); err != nil {
			return list, err
		}
		step := live
		var feeds []Feed
		for _, i := range step {
			feeds = append(feeds, reqs[i].next(seqs[i], list[i].IDs[len(list[i].IDs)-1]))
		}
		out, err := e.run(entryDecode, feeds)
		if err != nil {
			return list, err
		}
		chosen, err := Choose(feeds, out)
		if err != nil {
			return list, err
		}
		Commit(feeds)
		live = nil
		for n, i := range step {
			list[i].Steps++
			take(i, chosen[n])
		}
	}
	return list, nil
}
