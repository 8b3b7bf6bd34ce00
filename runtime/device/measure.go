package device

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/kiln-project/kiln/ir/eval"
)

// Timer is a Device with a clock of its own.
type Timer interface {
	// Elapsed is the device's time from before to after the work that f starts. It
	// waits for that work.
	Elapsed(f func() error) (time.Duration, error)
}

// Measurement is a program with a state and inputs, to be run for its time, as a whole
// and in parts. Each run starts from the same inputs: later values of a step may lie
// where they were.
type Measurement struct {
	// Interrupted, if set, is asked before each sample; its error ends the measurement.
	Interrupted func() error

	g        *Program
	st       *State
	inputs   map[string]*eval.Tensor
	launches []Launch
	whole    Sequence
	cold     Memory // written before each sample; nil: hot
}

// Measure runs a program once with a state and prepares it for measurements. Pools are written where
// the inputs say, again and again at the same rows. With cold, as many bytes of other
// memory are written before each sample, so that caches hold nothing of the step.
func (g *Program) Measure(inputs map[string]*eval.Tensor, st *State, cold int64) (*Measurement, error) {
	m := &Measurement{g: g, st: st, inputs: inputs}
	if _, err := m.Run(); err != nil { // also checks the inputs
		return nil, err
	}
	err := m.ready(cold)
	if err != nil {
		err = errors.Join(err, m.Close())
	}
	return m, err
}

func (m *Measurement) ready(cold int64) error {
	var err error
	if m.launches, err = m.g.launches(m.st); err != nil {
		return err
	}
	if m.whole, err = m.g.m.lib.Prepare(m.launches); err != nil {
		return err
	}
	if cold > 0 {
		m.cold, err = m.g.m.dev.Alloc(cold)
	}
	return err
}

// Close frees what was made for the measurements.
func (m *Measurement) Close() error {
	var errs []error
	if m.whole != nil {
		errs = append(errs, m.whole.Close())
	}
	if m.cold != nil {
		errs = append(errs, m.cold.Free())
	}
	return errors.Join(errs...)
}

// interrupted is the error of Interrupted.
func (m *Measurement) interrupted() error {
	if m.Interrupted == nil {
		return nil
	}
	return m.Interrupted()
}

// Launches are those of the step.
func (m *Measurement) Launches() []Launch { return m.launches }

// Run runs the step as an engine does: inputs to the device, launches, results back.
func (m *Measurement) Run() (map[string]*eval.Tensor, error) { return m.g.Run(m.inputs, m.st) }

// write writes the inputs to where the launches read them.
func (m *Measurement) write() error {
	for i := range m.g.p.Inputs {
		in := &m.g.p.Inputs[i]
		if err := m.g.put(in, m.inputs[in.Name], m.st); err != nil {
			return fmt.Errorf("input %s: %w", in.Name, err)
		}
	}
	return nil
}

// Samples are times of one thing.
type Samples []time.Duration

// Median is the time in the middle.
func (s Samples) Median() time.Duration {
	if len(s) == 0 {
		return 0
	}
	s = sorted(s)
	return (s[(len(s)-1)/2] + s[len(s)/2]) / 2
}

// P95 is the time that 95 of 100 are not above.
func (s Samples) P95() time.Duration {
	if len(s) == 0 {
		return 0
	}
	return sorted(s)[int(math.Ceil(0.95*float64(len(s))))-1]
}

func sorted(s Samples) Samples {
	s = slices.Clone(s)
	slices.Sort(s)
	return s
}

// Whole times n runs by the host's clock.
func (m *Measurement) Whole(n int) (Samples, error) {
	var out Samples
	for range n {
		if err := m.interrupted(); err != nil {
			return nil, err
		}
		start := time.Now()
		if _, err := m.Run(); err != nil {
			return nil, err
		}
		out = append(out, time.Since(start))
	}
	return out, nil
}

// Step times the launches of n runs, without inputs and results: replayed where the
// device has graphs, or one by one.
func (m *Measurement) Step(n int, eager bool) (Samples, error) {
	seq := m.whole
	if eager {
		var err error
		if seq, err = m.oneByOne(); err != nil {
			return nil, err
		}
	}
	var out Samples
	var err error
	for range n {
		var d time.Duration
		if d, err = m.sample(nil, seq); err != nil {
			break
		}
		out = append(out, d)
	}
	if eager {
		err = errors.Join(err, seq.Close())
	}
	return out, err
}

// oneByOne are the launches without a graph.
func (m *Measurement) oneByOne() (Sequence, error) {
	r, ok := m.g.m.dev.(Replayer)
	if !ok || !r.Graphs() {
		return nil, fmt.Errorf("device %s runs launches one by one in any case", m.g.m.dev.Name())
	}
	r.SetGraphs(false)
	seq, err := m.g.m.lib.Prepare(m.launches)
	r.SetGraphs(true)
	return seq, err
}

// Differs compares the results of a replay with those of launches one by one, and names
// an output whose bits differ; "" if there is none. A step that begins where another of
// the same inputs ended has to give the same results, as decode and prefill steps do.
func (m *Measurement) Differs() (output string, err error) {
	replayed, err := m.Run()
	if err != nil {
		return "", err
	}
	if err := m.write(); err != nil {
		return "", err
	}
	seq, err := m.oneByOne()
	if err != nil {
		return "", err
	}
	err = seq.Run()
	for i := range m.g.p.Outputs {
		o := &m.g.p.Outputs[i]
		var t *eval.Tensor
		if err == nil {
			t, err = m.g.get(o, m.st)
		}
		if err == nil && output == "" && !t.SameBits(replayed[o.Name]) {
			output = o.Name
		}
	}
	return output, errors.Join(err, seq.Close())
}

// sample times one run of a sequence. lead, if not nil, are the launches of the step
// before it, which are not timed.
func (m *Measurement) sample(lead, seq Sequence) (time.Duration, error) {
	if err := m.interrupted(); err != nil {
		return 0, err
	}
	dev := m.g.m.dev
	timer, own := dev.(Timer)
	if own && lead == nil {
		// Keeps the device busy until the host has enqueued what is timed.
		if err := m.write(); err != nil {
			return 0, err
		}
		if err := m.whole.Run(); err != nil {
			return 0, err
		}
	}
	if err := m.write(); err != nil {
		return 0, err
	}
	if lead != nil {
		if err := lead.Run(); err != nil {
			return 0, err
		}
	}
	if m.cold != nil {
		if err := m.cold.Zero(); err != nil {
			return 0, err
		}
	}
	if own {
		return timer.Elapsed(seq.Run)
	}
	if err := dev.Sync(); err != nil {
		return 0, err
	}
	start := time.Now()
	err := errors.Join(seq.Run(), dev.Sync())
	return time.Since(start), err
}

// LaunchTime is what a launch adds to the step: the differences of the samples of the
// launches up to it and of those before it.
type LaunchTime struct {
	Median time.Duration // of the longer list less that of the shorter one
	P95    time.Duration // of the differences of samples taken one after the other
}

// Each times every launch by n samples of two lists: the launches up to it, and those
// before it. With a window, the lists begin one launch before the last multiple of it,
// and what comes before them runs untimed, so that short launches do not drown in the
// noise of a long list; 0 has them begin with the step. done, if not nil, hears how
// many launches are timed.
func (m *Measurement) Each(n, window int, done func(launches int)) ([]LaunchTime, error) {
	if window <= 0 {
		window = len(m.launches)
	}
	out := make([]LaunchTime, 0, len(m.launches))
	for from := 0; from < len(m.launches); from += window {
		times, err := m.window(n, max(from-1, 0), from, min(from+window, len(m.launches)), func(i int) {
			if done != nil {
				done(i)
			}
		})
		if err != nil {
			return nil, err
		}
		out = append(out, times...)
	}
	return out, nil
}

// window times the launches from .. to-1 by lists that begin with launch start.
func (m *Measurement) window(n, start, from, to int, done func(int)) (out []LaunchTime, err error) {
	var open []Sequence
	prepare := func(from, to int) (Sequence, error) {
		s, err := m.g.m.lib.Prepare(m.launches[from:to])
		if err == nil {
			open = append(open, s)
		}
		return s, err
	}
	defer func() {
		for _, s := range open {
			err = errors.Join(err, s.Close())
		}
	}()
	var lead Sequence
	if start > 0 {
		if lead, err = prepare(0, start); err != nil {
			return nil, err
		}
	}
	leads := len(open)
	shorter, err := prepare(start, from)
	if err != nil {
		return nil, err
	}
	for i := from; i < to; i++ {
		longer, err := prepare(start, i+1)
		if err != nil {
			return nil, err
		}
		t, err := m.difference(n, lead, shorter, longer)
		if err != nil {
			return nil, err
		}
		out = append(out, t)
		open = slices.Delete(open, leads, leads+1)
		if err := shorter.Close(); err != nil {
			return nil, err
		}
		shorter = longer
		done(i + 1)
	}
	return out, nil
}

// difference times two lists in turns.
func (m *Measurement) difference(n int, lead, shorter, longer Sequence) (LaunchTime, error) {
	var long, short, differences Samples
	for i := range n {
		a, err := m.sample(lead, [...]Sequence{shorter, longer}[i%2])
		if err != nil {
			return LaunchTime{}, err
		}
		b, err := m.sample(lead, [...]Sequence{longer, shorter}[i%2])
		if err != nil {
			return LaunchTime{}, err
		}
		if i%2 == 1 {
			a, b = b, a
		}
		short, long, differences = append(short, a), append(long, b), append(differences, b-a)
	}
	return LaunchTime{Median: long.Median() - short.Median(), P95: differences.P95()}, nil
}
