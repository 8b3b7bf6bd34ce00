package engine

import (
	"context"
	"fmt"
)

// Forced are the results of a teacher-forced run over n ids, prefill of them in
// the prompt.
type Forced struct {
	PrefillLogits []float32   // [V], after the last prompt token
	DecodeLogits  [][]float32 // [n-prefill][V]: step p fed ids[p] at position p
	Hidden        [][]float32 // per layer [Rows,C,D]; nil without taps
	HiddenShape   []int       // Rows, C, D
	// With MTP: row p predicts the token at p+2 from position p and ids[p+1].
	PrefillMTP []float32   // after the last prompt token
	DecodeMTP  [][]float32 // one row less than DecodeLogits
}

// hiddenRows is how many prompt rows of the hidden states are kept, as in the
// golden files: all of a short prompt, the last 8 of a long one.
func hiddenRows(prefill int) int {
	if prefill <= 64 {
		return prefill
	}
	return 8
}

// Force feeds ids in order and records what the model says after each.
func (e *Engine) Force(ctx context.Context, s *Seq, ids []int32, prefill, chunk, layers int, taps, mtp bool) (*Forced, error) {
	n := len(ids)
	switch {
	case prefill < 1 || prefill > n:
		return nil, fmt.Errorf("prefill is %d, want 1..%d (the number of ids)", prefill, n)
	case mtp && prefill == n:
		return nil, fmt.Errorf("MTP at the last prompt position needs the id that follows it: give more than %d ids", n)
	}
	f := &Forced{}
	keepFrom := prefill - hiddenRows(prefill)
	if taps {
		f.Hidden = make([][]float32, layers)
	}
	last := fmt.Sprintf("hidden.%d", layers-1)
	// draft runs the MTP step beside a main step, where the next ids are known.
	draft := func(feed Feed, out Tensors) ([]float32, error) {
		from := feed.Seq.Len + 1
		next := Feed{Seq: feed.Seq, IDs: ids[from : from+len(feed.IDs)], Out: feed.Out}
		shape := ShapeOf([]Feed{next})
		if h := out[last]; h != nil {
			shape.T = h.Shape[0] // padded as the main step was
		}
		shape, err := e.exec.Fit(entryDraft, shape)
		if err != nil {
			return nil, err
		}
		d, err := e.Draft([]Feed{next}, shape, out[last])
		if err != nil {
			return nil, err
		}
		return logitsRow(d, 0)
	}
	var err error
	f.PrefillLogits, err = e.Prefill(s, ids[:prefill], chunk, func(feed Feed, out Tensors) error {
		if taps {
			if err := f.keepHidden(out, feed, keepFrom); err != nil {
				return err
			}
		}
		if mtp {
			row, err := draft(feed, out)
			if err != nil {
				return err
			}
			f.PrefillMTP = row
		}
		return ctx.Err()
	})
	if err != nil {
		return nil, err
	}
	for p := prefill; p < n; p++ {
		out, err := e.DecodeOne(s, ids[p])
		if err != nil {
			return nil, err
		}
		row, err := logitsRow(out, 0)
		if err != nil {
			return nil, err
		}
		f.DecodeLogits = append(f.DecodeLogits, row)
		if mtp && p+1 < n {
			row, err := draft(Feed{Seq: s, IDs: ids[p : p+1], Out: []int{0}}, out)
			if err != nil {
				return nil, err
			}
			f.DecodeMTP = append(f.DecodeMTP, row)
		}
		s.Len++
		if err := ctx.Err(); err != nil {
			return nil, err
		}
	}
	return f, nil
}

// keepHidden appends the feed's rows at positions >= from.
func (f *Forced) keepHidden(out Tensors, feed Feed, from int) error {
	for l := range f.Hidden {
		h := out[fmt.Sprintf("hidden.%d", l)]
		if h == nil {
			return fmt.Errorf("the model has no output hidden.%d: it was built without taps, or with fewer layers", l)
		}
		rows, width := len(feed.IDs), h.Shape[1]*h.Shape[2]
		skip := min(max(from-feed.Seq.Len, 0), rows)
		f.Hidden[l] = append(f.Hidden[l], h.F[skip*width:rows*width]...)
		f.HiddenShape = []int{len(f.Hidden[l]) / width, h.Shape[1], h.Shape[2]}
	}
	return nil
}
