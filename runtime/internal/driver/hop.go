package driver

import (
	"fmt"
	"runtime"
	"sync/atomic"
	"time"
)

// hop is the way to a device's thread and back. There is one job at a time; who has
// the turn gives it. Both sides look for each other for a while before they sleep:
// waking a thread takes longer than most calls.
type hop struct {
	turn chan struct{} // of capacity 1: full while somebody has the turn

	run   func() error // written before the job is given
	err   error        // written before it is done
	state atomic.Uint32

	// Who sleeps says so first and looks again; who wakes it takes the word back.
	threadSleeps, callerSleeps atomic.Bool
	wakeThread, wakeCaller     chan struct{} // of capacity 1

	timer *time.Timer // of who has the turn
}

// The states of the job.
const (
	jobNone = iota
	jobGiven
	jobDone
)

// spin is how long either side looks before it sleeps: a few times what waking a
// thread takes, so that the calls of one step find it awake, and that a device that
// nobody calls costs nothing.
const spin = 50 * time.Microsecond

func newHop() *hop {
	timer := time.NewTimer(time.Hour)
	timer.Stop()
	return &hop{turn: make(chan struct{}, 1), wakeThread: make(chan struct{}, 1), wakeCaller: make(chan struct{}, 1), timer: timer}
}

// spinners is the fewest processors with which anybody spins: two sides that look for
// each other take two, and where that is all there is they keep each other, and all
// else, from getting on.
const spinners = 4

// reaches looks for a state, for a while.
func (h *hop) reaches(state uint32) bool {
	if h.state.Load() == state {
		return true
	}
	if runtime.GOMAXPROCS(0) < spinners {
		return false
	}
	for start := time.Now(); time.Since(start) < spin; {
		for range 100 {
			if h.state.Load() == state {
				return true
			}
		}
	}
	return false
}

// next waits for a job, on the device's thread. It may be woken for the job before,
// by a caller that was late to look who sleeps.
func (h *hop) next() func() error {
	for !h.reaches(jobGiven) {
		h.threadSleeps.Store(true)
		if h.state.Load() == jobGiven && h.threadSleeps.Swap(false) {
			break
		}
		<-h.wakeThread
	}
	return h.run
}

// done ends a job, on the device's thread.
func (h *hop) done(err error) {
	h.err = err
	h.state.Store(jobDone)
	if h.callerSleeps.Swap(false) {
		h.wakeCaller <- struct{}{}
	}
}

// give starts a job. The caller has the turn.
func (h *hop) give(f func() error) {
	h.run = f
	h.state.Store(jobGiven)
	if h.threadSleeps.Swap(false) {
		h.wakeThread <- struct{}{}
	}
}

// send gives f to the device's thread and waits for it, at most for a limit that is
// not 0.
func (d *Device) send(limit time.Duration, f func() error) error {
	h := d.hop
	var late <-chan time.Time
	start := time.Time{}
	if limit != 0 {
		start = time.Now()
	}
	select {
	case h.turn <- struct{}{}:
	default: // somebody has it
		if limit != 0 {
			wait := time.NewTimer(limit)
			defer wait.Stop()
			late = wait.C
		}
		select {
		case h.turn <- struct{}{}:
		case <-d.gaveUp:
			return d.Answers()
		case <-late:
			return d.giveUp(limit)
		}
	}
	if err := d.Answers(); err != nil { // who had the turn gave up, and keeps the job
		<-h.turn
		return err
	}
	if d.closed.Load() {
		<-h.turn
		return fmt.Errorf("%s device %d: %w", d.lib.Kind, d.index, ErrClosed)
	}
	h.give(f)
	late = nil
	for !h.reaches(jobDone) { // it may be woken for the job before, as the thread may
		h.callerSleeps.Store(true)
		if h.state.Load() == jobDone && h.callerSleeps.Swap(false) {
			break
		}
		if limit != 0 && late == nil {
			h.timer.Reset(max(limit-time.Since(start), 1))
			late = h.timer.C
		}
		select {
		case <-h.wakeCaller:
		case <-late:
			return d.giveUp(limit) // with the turn: the job is not over
		case <-d.done:
			// f ended the goroutine, as a failing test does, or was Close's.
			if h.state.Load() != jobDone {
				h.timer.Stop()
				<-h.turn
				return fmt.Errorf("%s device %d: its thread ended: %w", d.lib.Kind, d.index, ErrClosed)
			}
		}
	}
	if late != nil {
		h.timer.Stop()
	}
	err := h.err
	h.run, h.err = nil, nil
	h.state.Store(jobNone)
	<-h.turn
	return err
}
