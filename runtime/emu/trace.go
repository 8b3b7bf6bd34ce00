package emu

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
)

// Trace asks a launch for the first instructions of one wave, as text: each with the
// registers that it reads, before, and those that it writes, after.
type Trace struct {
	Group  int64 // index of the work-group
	Wave   int
	Limit  int   // instructions; 0 is 100
	Lanes  []int // whose values of vector registers are shown; nil is 0 and 63
	Floats bool  // show words as f32 too

	text strings.Builder
	mu   sync.Mutex
}

// defaultTrace is the number of instructions if no limit is given.
const defaultTrace = 100

// String is what has been traced.
func (t *Trace) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.text.String()
}

func (t *Trace) observer(k *Kernel, l *Launch) (observer, error) {
	groups := int64(l.Grid[0]) * int64(l.Grid[1]) * int64(l.Grid[2])
	waves := (l.Block[0]*l.Block[1]*l.Block[2] + Lanes - 1) / Lanes
	if t.Group < 0 || t.Group >= groups || t.Wave < 0 || t.Wave >= waves {
		return nil, fmt.Errorf("trace: no wave %d of work-group %d: there are %d groups of %d waves", t.Wave, t.Group, groups, waves)
	}
	for _, lane := range t.Lanes {
		if lane < 0 || lane >= Lanes {
			return nil, fmt.Errorf("trace: no lane %d", lane)
		}
	}
	return traceObserver{t, k}, nil
}

type traceObserver struct {
	*Trace
	k *Kernel
}

func (o traceObserver) watch(*group) watcher { return &tracer{Trace: o.Trace, k: o.k} }

func (traceObserver) finish(bool) {}

type tracer struct {
	blind
	*Trace
	k  *Kernel
	on bool // this is the group
	n  int
}

func (t *tracer) start(g *group) {
	t.on, t.n = g.index() == t.Group, 0
	if t.on {
		t.mu.Lock()
		defer t.mu.Unlock()
		fmt.Fprintf(&t.text, "kernel %s, work-group %v, wave %d\n", g.k.Meta.Name, g.id, t.Wave)
	}
}

func (t *tracer) limit() int {
	if t.Limit > 0 {
		return t.Limit
	}
	return defaultTrace
}

func (t *tracer) traces(w *wave) bool { return t.on && w.id == t.Wave && t.n < t.limit() }

// before writes the instruction and what it reads; what faults is there too.
func (t *tracer) before(w *wave, at int) {
	if !t.traces(w) {
		return
	}
	in := t.k.insts[at]
	t.mu.Lock()
	defer t.mu.Unlock()
	fmt.Fprintf(&t.text, "+0x%x: %s\n", in.Offset, in.Text)
	if exec := w.exec(); exec != fullMask {
		fmt.Fprintf(&t.text, "    exec 0x%x\n", exec)
	}
	t.values(w, "  ", slices.Concat(t.k.uses[at].reads, t.k.uses[at].kept))
}

func (t *tracer) after(w *wave, at int) {
	if !t.traces(w) {
		return
	}
	t.n++
	t.mu.Lock()
	defer t.mu.Unlock()
	t.values(w, "->", t.k.uses[at].writes)
}

// values writes registers, each span once.
func (t *tracer) values(w *wave, before string, list []span) {
	var done []span
	for _, s := range list {
		s = w.shifted(s)
		s.arg, s.index, s.mask = 0, 0, 0
		if slices.Contains(done, s) {
			continue
		}
		done = append(done, s)
		fmt.Fprintf(&t.text, "  %s %s =", before, s.name())
		switch {
		case s.vector:
			for i := range s.n {
				if i > 0 {
					t.text.WriteString(",")
				}
				t.vector(&w.v[s.reg+i])
			}
		case s.reg == regSCC:
			fmt.Fprintf(&t.text, " %d", b2u(w.scc))
		default:
			for i := range s.n {
				t.word(w.s[s.reg+i])
			}
		}
		t.text.WriteString("\n")
	}
}

// vector writes a word once if all lanes have it, else those of the lanes asked for.
func (t *tracer) vector(v *Vec) {
	same := true
	for _, x := range v {
		same = same && x == v[0]
	}
	if same {
		t.word(v[0])
		return
	}
	lanes := t.Lanes
	if lanes == nil {
		lanes = []int{0, Lanes - 1}
	}
	for _, i := range lanes {
		fmt.Fprintf(&t.text, " [%d]", i)
		t.word(v[i])
	}
}

func (t *tracer) word(x uint32) {
	fmt.Fprintf(&t.text, " 0x%x", x)
	if t.Floats {
		fmt.Fprintf(&t.text, " (%g)", math.Float32frombits(x))
	}
}
