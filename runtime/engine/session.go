package engine

import (
	"errors"
	"slices"
	"sync/atomic"
)

// ErrCancelled is what a session ends with that was cancelled.
var ErrCancelled = errors.New("the request was cancelled")

// Ending says what ended a session.
type Ending string

// The endings.
const (
	EndStop      Ending = "eos"       // one of the request's stop tokens
	EndLength    Ending = "length"    // its number of new tokens
	EndError     Ending = "error"     // its own, or the device's
	EndCancelled Ending = "cancelled" // by Cancel, or with all others
)

// Session is a request that a scheduler has accepted.
type Session struct {
	req       Request
	emit      func(id int32) error
	pages     int // that it needs
	cancelled atomic.Bool
	wake      chan<- struct{}
	done      chan struct{}

	// Of the goroutine that steps, until done is closed.
	seq  *Seq // its place, while it has one
	out  Outcome
	spec *drafting // with drafts, while it has a place
}

// Cancel ends the session before its next token; of one that has ended nothing
// changes. Any goroutine may call it.
func (s *Session) Cancel() {
	s.cancelled.Store(true)
	poke(s.wake)
}

// Done is closed when the session has ended and has given its place back.
func (s *Session) Done() <-chan struct{} { return s.done }

// Wait is the outcome, once there is one: the new tokens, and what ended the session
// if that was an error.
func (s *Session) Wait() Outcome {
	<-s.done
	return s.out
}

// End says what ended the session, once something has.
func (s *Session) End() Ending {
	switch out := s.Wait(); {
	case errors.Is(out.Err, ErrCancelled):
		return EndCancelled
	case out.Err != nil:
		return EndError
	case slices.Contains(s.req.Stop, out.IDs[len(out.IDs)-1]):
		return EndStop
	}
	return EndLength
}

// prefilling tells whether some of the prompt has not been fed.
func (s *Session) prefilling() bool { return s.seq.Len < len(s.req.Prompt) }

// poke wakes who waits at a channel of one place, now or the next time.
func poke(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
