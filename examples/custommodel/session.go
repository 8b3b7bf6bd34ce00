package main

import (
	"errors"
	"fmt"
	"slices"

	"github.com/kiln-project/kiln/ir/eval"
	"github.com/kiln-project/kiln/passes"
	"github.com/kiln-project/kiln/runtime/engine"
)

// What is compiled: how many tokens a prefill step takes, how many positions a
// text can have, and pools that hold one text.
const (
	chunk     = 16
	positions = 64
)

// bindings are the integers for an entry's symbols.
func bindings(entry string) map[string]int {
	bind := map[string]int{"C": positions, "N": positions}
	if entry == Prefill {
		bind["T"] = chunk
	}
	return bind
}

// buckets asks for one plan of each entry.
func buckets() []passes.Bucket {
	var out []passes.Bucket
	for _, entry := range Entries {
		out = append(out, passes.Bucket{Entry: entry, Bind: bindings(entry)})
	}
	return out
}

// Session is one text on a device: any engine.Executor, so the evaluator and the
// compiled model run the same way.
type Session struct {
	device engine.Executor
	state  engine.State // the key and value pools
	rows   []int32      // pool row of each position
	len    int          // positions that the pools hold
}

// NewSession starts an empty text.
func NewSession(device engine.Executor) (*Session, error) {
	state, err := device.NewState(Prefill, bindings(Prefill))
	if err != nil {
		return nil, err
	}
	s := &Session{device: device, state: state, rows: make([]int32, positions)}
	for i := range s.rows {
		s.rows[i] = int32(i)
	}
	return s, nil
}

// Feed appends tokens to the text and returns the logits that follow the last.
func (s *Session) Feed(tokens ...int32) ([]float32, error) {
	if len(tokens) == 0 {
		return nil, errors.New("feed: no tokens")
	}
	if n := s.len + len(tokens); n > positions {
		return nil, fmt.Errorf("feed: %d positions, the plans hold %d", n, positions)
	}
	for _, id := range tokens {
		// The evaluator would say so; a kernel takes zeros for a row that is not there.
		if id < 0 || int(id) >= tiny.Vocab {
			return nil, fmt.Errorf("feed: token %d is outside the vocabulary of %d", id, tiny.Vocab)
		}
	}
	var logits []float32
	for len(tokens) > 0 {
		n := min(len(tokens), chunk)
		var err error
		if logits, err = s.step(tokens[:n]); err != nil {
			return nil, err
		}
		tokens = tokens[n:]
	}
	return logits, nil
}

// step runs the plan that the tokens fit, at most chunk of them.
func (s *Session) step(tokens []int32) ([]float32, error) {
	entry, size := Decode, 1
	if len(tokens) > 1 {
		entry, size = Prefill, chunk
	}
	in, err := s.inputs(tokens, size)
	if err != nil {
		return nil, err
	}
	out, err := s.device.Run(entry, bindings(entry), in, s.state)
	if err != nil {
		return nil, err
	}
	s.len += len(tokens)
	logits := out["logits"] // [T,V]
	vocab := logits.Shape[1]
	return logits.F[(len(tokens)-1)*vocab : len(tokens)*vocab], nil
}

// inputs are those of a step of size rows. What the tokens do not fill is padding:
// token 0 at position -1, which writes to no slot.
func (s *Session) inputs(tokens []int32, size int) (engine.Tensors, error) {
	none := []int32{-1} // padding
	ids, pos, slots, rows := make([]int32, size), slices.Repeat(none, size), slices.Repeat(none, size), slices.Repeat(none, positions)
	for i, id := range tokens {
		ids[i], pos[i], slots[i] = id, int32(s.len+i), s.rows[s.len+i]
	}
	copy(rows, s.rows[:s.len+len(tokens)])
	in := engine.Tensors{}
	for _, v := range []struct {
		name string
		ints []int32
	}{{"ids", ids}, {"pos", pos}, {"slots", slots}, {"rows", rows}} {
		t, err := eval.FromI32(v.ints, len(v.ints))
		if err != nil {
			return nil, err
		}
		in[v.name] = t
	}
	return in, nil
}
