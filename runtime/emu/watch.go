package emu

import (
	"fmt"
	"math"
)

// accessKind is what a memory instruction does with an address.
type accessKind uint8

const (
	accessRead accessKind = iota
	accessWrite
	accessAtomic
)

// observer looks at a launch: a sanitizer, the counters, a trace. It makes a watcher
// for the storage of each group under way; groups run on several goroutines at once.
type observer interface {
	watch(g *group) watcher
	// finish is called once, after the launch; failed tells that groups are missing.
	finish(failed bool)
}

// watcher looks at one group at a time, from one goroutine at a time. A group that a
// launch gives up has no end.
type watcher interface {
	// start is called when a group's waves are set up, and end when they have ended.
	start(g *group)
	end(g *group)
	// before is called before the instruction of an index, and after when it is done
	// without a fault.
	before(w *wave, at int)
	after(w *wave, at int)
	// access is called before size bytes of global memory at an address are read or
	// written by a lane (-1: by the scalar unit), once for each access of an
	// instruction, in the order of its registers; for all lanes before any of them is
	// executed.
	access(w *wave, in *Inst, lane int, address, size uint64, kind accessKind)
	// lds is the same for the group's LDS, and scratch for a lane's private memory.
	lds(w *wave, in *Inst, lane int, offset, size uint32, kind accessKind)
	scratch(w *wave, in *Inst, lane int, offset, size uint32, kind accessKind)
	// barrier is called when all waves of a group have reached one.
	barrier(g *group)
}

// blind is a watcher that looks at nothing, to be embedded.
type blind struct{}

func (blind) start(*group)                                          {}
func (blind) end(*group)                                            {}
func (blind) before(*wave, int)                                     {}
func (blind) after(*wave, int)                                      {}
func (blind) access(*wave, *Inst, int, uint64, uint64, accessKind)  {}
func (blind) lds(*wave, *Inst, int, uint32, uint32, accessKind)     {}
func (blind) scratch(*wave, *Inst, int, uint32, uint32, accessKind) {}
func (blind) barrier(*group)                                        {}

// watchers are several.
type watchers []watcher

func (ws watchers) start(g *group) {
	for _, x := range ws {
		x.start(g)
	}
}

func (ws watchers) end(g *group) {
	for _, x := range ws {
		x.end(g)
	}
}

func (ws watchers) before(w *wave, at int) {
	for _, x := range ws {
		x.before(w, at)
	}
}

func (ws watchers) after(w *wave, at int) {
	for _, x := range ws {
		x.after(w, at)
	}
}

func (ws watchers) access(w *wave, in *Inst, lane int, address, size uint64, kind accessKind) {
	for _, x := range ws {
		x.access(w, in, lane, address, size, kind)
	}
}

func (ws watchers) lds(w *wave, in *Inst, lane int, offset, size uint32, kind accessKind) {
	for _, x := range ws {
		x.lds(w, in, lane, offset, size, kind)
	}
}

func (ws watchers) scratch(w *wave, in *Inst, lane int, offset, size uint32, kind accessKind) {
	for _, x := range ws {
		x.scratch(w, in, lane, offset, size, kind)
	}
}

func (ws watchers) barrier(g *group) {
	for _, x := range ws {
		x.barrier(g)
	}
}

// observers are those that the launch asks for.
func (l *Launch) observers(k *Kernel) ([]observer, error) {
	var all []observer
	if l.Trace != nil {
		o, err := l.Trace.observer(k, l)
		if err != nil {
			return nil, err
		}
		all = append(all, o)
	}
	if l.Counters != nil {
		all = append(all, l.Counters.observer(k, l))
	}
	if l.Sanitize != nil && l.Sanitize.Checks != 0 {
		if groups := int64(l.Grid[0]) * int64(l.Grid[1]) * int64(l.Grid[2]); l.Sanitize.Checks&CheckRace != 0 && groups >= math.MaxInt32 {
			return nil, fmt.Errorf("the race sanitizer takes %d work-groups at most, not %d", math.MaxInt32-1, groups)
		}
		all = append(all, l.Sanitize.observers(k, l)...)
	}
	return all, nil
}

// observe makes the group one that the observers look at.
func (g *group) observe(all []observer, steps []step) {
	var ws watchers
	for _, o := range all {
		ws = append(ws, o.watch(g))
	}
	switch len(ws) {
	case 0:
		return
	case 1:
		g.watch = ws[0]
	default:
		g.watch = ws
	}
	g.steps = steps
}

// watched are the kernel's steps with calls of the group's watcher around them.
func (k *Kernel) watched() []step {
	steps := make([]step, len(k.steps))
	for i, s := range k.steps {
		steps[i] = func(w *wave) {
			w.group.watch.before(w, i)
			s(w)
			if w.status != faulted {
				w.group.watch.after(w, i)
			}
		}
	}
	return steps
}
