package device

import "github.com/kiln-project/kiln/codegen/plan"

// Usage is the device memory that an executor has taken, in bytes, and the plans that
// it has made ready to run.
type Usage struct {
	Weights, Arena int64
	// Prepared has a plan once for each state that it has run with.
	Prepared []*plan.Plan
}

// Usage says what is in use now. Pools are their states'.
func (x *Executor) Usage() Usage {
	u := Usage{}
	for _, w := range x.m.weights {
		u.Weights += w.bytes()
	}
	if x.m.arena != nil {
		u.Arena = x.m.arena.Size()
	}
	for _, p := range x.plans {
		for range x.programs[p].bound {
			u.Prepared = append(u.Prepared, p)
		}
	}
	return u
}

func (s stored) bytes() int64 {
	n := int64(0)
	for _, p := range s.parts {
		if p != nil {
			n += p.Size()
		}
	}
	return n
}
