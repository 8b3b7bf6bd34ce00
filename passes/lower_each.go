package passes

import "slices"

// LowerEach is Lower bucket by bucket, for callers that look at no step afterwards: m has
// no Steps then. Only the graphs of a few steps are in memory at a time: while the backend
// has one, the passes make the next. Applications have the numbers, and remarks the order,
// that Lower gives them. A module that someone listens to, and passes that need all steps
// at once, are lowered as Lower does it.
func LowerEach(m *Module, buckets []Bucket, b Backend) error {
	list := slices.DeleteFunc(stage(Steps), func(p *Pass) bool { return !m.Config.runs(p) })
	if m.Config.Trace != nil || m.Config.VerifyEach || b == nil || slices.ContainsFunc(list, func(p *Pass) bool { return p.Module != nil && !p.Each }) {
		return Lower(m, buckets, b)
	}
	// Those that make graphs of graphs come first, and the graphs are verified then.
	graphs := slices.IndexFunc(list, func(p *Pass) bool { return p.Module != nil && p.Name != bindName })
	if graphs < 0 {
		graphs = len(list)
	}
	first, remarks := m.applied, len(m.Remarks)
	end := first
	defer func() { m.Buckets, m.Steps, m.applied = buckets, nil, end }()
	m.Backend = b
	made, stop := makeEach(m, buckets, list[:graphs])
	defer stop()
	for i := range buckets {
		next := <-made
		if next.err != nil {
			return next.err
		}
		m.Buckets, m.Steps, m.bucket, m.of = buckets[i:i+1], next.Steps, i, len(buckets)
		m.applied, m.visits = next.applied, m.visits+next.visits
		m.Remarks = append(m.Remarks, next.Remarks...)
		err := run(m, list[graphs:])
		m.bucket, m.of = 0, 0
		if err != nil {
			return err
		}
		end = m.applied
	}
	at := map[string]int{}
	for i, p := range list {
		at[p.Name] = i
	}
	slices.SortStableFunc(m.Remarks[remarks:], func(a, b Remark) int { return at[a.Pass] - at[b.Pass] })
	return nil
}

// madeStep is a module of one step, to which the passes that make graphs were applied.
type madeStep struct {
	Module
	err error
}

// makeEach makes the steps of the buckets, in order and one ahead of who takes them. stop
// ends it, and returns when it has ended.
func makeEach(m *Module, buckets []Bucket, list []*Pass) (made <-chan *madeStep, stop func()) {
	out, ended := make(chan *madeStep, 1), make(chan struct{})
	entries, pack, target, config, first := m.Entries, m.Pack, m.Target, m.Config, m.applied
	go func() {
		defer close(out)
		for i := range buckets {
			s := &madeStep{Module: Module{
				Entries: entries, Pack: pack, Target: target, Config: config,
				Buckets: buckets[i : i+1], applied: first, bucket: i, of: len(buckets),
			}}
			s.err = together(&s.Module, list)
			select {
			case out <- s:
			case <-ended:
				return
			}
			if s.err != nil {
				return
			}
		}
	}()
	return out, func() {
		close(ended)
		for range out { // the one that was ready
		}
	}
}
