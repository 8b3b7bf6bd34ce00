package cli

import (
	"errors"
	"fmt"
	"time"

	rt "github.com/kiln-project/kiln/runtime/device"
	"github.com/kiln-project/kiln/runtime/engine"
)

// How many samples are taken of what fits the time: an odd number in between. What
// part of --seconds the whole steps get; launches get the rest.
const (
	leastSamples, mostSamples = 3, 101
	partOfSteps               = 0.25
	warmSteps                 = 3
)

// samplesFor is how many samples of something fit a time.
func samplesFor(seconds float64, each time.Duration) int {
	n := seconds / max(each.Seconds(), 1e-9)
	return max(leastSamples, int(min(n, mostSamples)))
}

// step times one step.
func (b *bench) step(s benchPlan) (*benchStep, error) {
	name := describeStep(s)
	b.progress.say("%s: first step", name)
	in, err := b.inputs(s)
	if err != nil {
		return nil, err
	}
	program, err := b.model.Load(s.plan)
	if err != nil {
		return nil, err
	}
	state, err := b.model.RandomState(s.plan, b.random())
	if err != nil {
		return nil, errors.Join(err, program.Close())
	}
	if k := engine.DraftsOf(s.plan.Entry); k > 0 {
		if err := b.rightDrafts(s, k, program, in, state); err != nil {
			return nil, errors.Join(fmt.Errorf("%s: %w", name, err), state.Close(), program.Close())
		}
	}
	m, err := program.Measure(in, state, b.coldBytes())
	if err != nil {
		return nil, errors.Join(err, state.Close(), program.Close())
	}
	m.Interrupted = b.e.ctx.Err
	r, err := b.time(s, m)
	if err != nil {
		err = fmt.Errorf("%s: %w", name, err)
	}
	return r, errors.Join(err, m.Close(), state.Close(), program.Close())
}

// describeStep names a step.
func describeStep(s benchPlan) string {
	p := s.plan
	if t := p.Symbol("T"); t > 0 {
		return fmt.Sprintf("%s of %d tokens, context %d", p.Entry, t, s.ctx)
	}
	return fmt.Sprintf("%s of %s, context %d", p.Entry, count(int64(p.Symbol("B")), "request"), s.ctx)
}

// time checks that a step computes something, and times it.
func (b *bench) time(s benchPlan, m *rt.Measurement) (*benchStep, error) {
	out, err := m.Run()
	if err != nil {
		return nil, err
	}
	if err := finite(out, s.plan.Outputs); err != nil {
		hint := fmt.Sprintf("kiln bench %s --random-weights: whether it is the weights", b.path)
		if b.f.boolean("random-weights") {
			hint = fmt.Sprintf("kiln check --model DIR --entry %s --device %s: which kernel it is", s.plan.Entry, b.dev.name)
		}
		return nil, &codedError{exitFailed, fmt.Errorf("the step's results are of no use: %w", err), hint}
	}
	b.progress.say("%s: timing steps", describeStep(s))
	warm, err := m.Whole(warmSteps)
	if err != nil {
		return nil, err
	}
	seconds := b.f.float("seconds")
	n := b.f.number("samples")
	steps := n
	if n == 0 {
		steps = samplesFor(seconds*partOfSteps/3, 2*warm.Median())
	}
	whole, err := m.Whole(steps)
	if err != nil {
		return nil, err
	}
	r := newBenchStep(s, m.Launches(), b.report.Bandwidth)
	r.Whole = statOf(whole)
	launched, err := m.Step(steps, false)
	if err != nil {
		return nil, err
	}
	took := launched.Median()
	r.launched(launched, b.report.Graphs != noGraphs)
	if b.report.Graphs != noGraphs {
		if differs, err := m.Differs(); err != nil {
			return nil, err
		} else if differs != "" {
			return nil, &codedError{exitCheck, fmt.Errorf("a replay and launches one by one differ in %s", differs), fmt.Sprintf("kiln bench %s --overlap off: whether it is the overlap of kernels", b.path)}
		}
		eager, err := m.Step(steps, true)
		if err != nil {
			return nil, err
		}
		r.launched(eager, false)
	}
	r.TokensPerS = ptrTo(float64(r.Tokens) / whole.Median().Seconds())
	if k := engine.DraftsOf(s.plan.Entry); k > 0 {
		r.speculates(k, b.acceptance, b.tokensPerStep, whole.Median().Seconds())
	}
	if b.f.boolean("steps-only") {
		return r, nil
	}
	each := n
	if n == 0 {
		lists := time.Duration(len(m.Launches())) * max(whole.Median(), took) // one more and one less launch take about a step
		if b.f.number("window") == 0 {
			lists *= 3 // each behind a step
		}
		each = samplesFor(seconds*(1-partOfSteps), lists)
	}
	times, err := m.Each(each, b.f.number("window"), func(i int) {
		b.progress.count(describeStep(s)+": timing launches", i, len(m.Launches()))
	})
	if err != nil {
		return nil, err
	}
	r.add(m.Launches(), s.plan, times, each, took)
	return r, nil
}
