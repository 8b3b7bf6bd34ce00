package engine

import (
	"context"
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

// Stats are the times of a generation.
type Stats struct {
	Prefill time.Duration // prompt in, first token out
	Decode  time.Duration // all later tokens
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
	if err := r.Sampling.Check(); err != nil {
		return err
	}
	if l.Greedy && r.Sampling.Temperature != 0 {
		return fmt.Errorf("sampling at temperature %v: %w", r.Sampling.Temperature, errNoLogits)
	}
	return nil
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
	sampler, err := NewSampler(r.Sampling)
	if err != nil {
		return nil, st, err
	}
	start := time.Now()
	out, err := e.prefill(s, r.Prompt, 0, func(f Feed, _ Tensors) error {
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
		id, err := sampler.next(out)
		if err != nil {
			return ids, st, fmt.Errorf("position %d: %w", s.Len-1, err)
		}
		ids = append(ids, id)
		if len(ids) == 1 {
			st.Prefill = time.Since(start)
			start = time.Now()
		}
		if err := emit(id); err != nil {
			return ids, st, err
		}
		if slices.Contains(r.Stop, id) || len(ids) == r.MaxNew {
			st.Decode = time.Since(start)
			return ids, st, nil
		}
		if err := ctx.Err(); err != nil {
			return ids, st, err
		}
		if out, err = e.DecodeOne(s, id); err != nil {
			return ids, st, err
		}
		s.Len++
	}
}
