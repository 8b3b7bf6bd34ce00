package emu

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// Loads as late as s_waitcnt allows: what a load returns is kept back, with other
// values in its registers, until a wait makes sure that it is there. A kernel that
// waits for all that it uses computes the same. It shares nothing with the waitcnt
// sanitizer, which it checks: of a wait whose removal the sanitizer does not report,
// it tells whether anything needed it.

// lateLoad is an access under way.
type lateLoad struct {
	vm, lgkm bool // counters that have still to be waited for
	scalar   bool // in no order with others
	result   bool // it writes registers
	words    []lateWord
}

// lateWord is a register that is still to be written, in the lanes of mask.
type lateWord struct {
	vector bool
	reg    int
	mask   uint64
	lanes  Vec // of a scalar register the first
}

// notYet is what a register has before a load returns.
func notYet(x uint32) uint32 { return ^x ^ 0x00350000 }

// lateLoads changes the kernel's steps; the returned function changes them back.
func lateLoads(k *Kernel) (restore func()) {
	original := slices.Clone(k.steps)
	boards := map[*wave][]lateLoad{}
	for i, s := range original {
		in, use := k.insts[i], &k.uses[i]
		entry := i == 0
		l, counts := lateLoadOf(in, use)
		switch {
		case counts:
			k.steps[i] = func(w *wave) {
				if entry {
					delete(boards, w)
				}
				exec := w.exec()
				s(w)
				if w.status == faulted {
					return
				}
				p := l
				for _, d := range use.writes {
					p.words = append(p.words, w.keepBack(w.shifted(d), exec)...)
				}
				boards[w] = append(boards[w], p)
			}
		case use.class == classWait:
			k.steps[i] = func(w *wave) {
				if entry {
					delete(boards, w)
				}
				s(w)
				boards[w] = waited(boards[w], in, func(p lateLoad) { w.deliver(p) })
			}
		case entry:
			k.steps[i] = func(w *wave) {
				delete(boards, w)
				s(w)
			}
		}
	}
	return func() { copy(k.steps, original) }
}

// lateLoadOf tells whether a counter counts the instruction, and which.
func lateLoadOf(in *Inst, use *uses) (lateLoad, bool) {
	l := lateLoad{result: len(use.writes) > 0}
	switch use.class {
	case classLoad, classStore, classAtomic, classLoadLDS, classCache:
		l.vm, l.lgkm = true, in.has("flat_")
	case classLDS, classPermute:
		l.lgkm = true
	case classSMEM:
		l.lgkm, l.scalar = true, true
	default:
		return l, false
	}
	return l, true
}

// waited takes from the list what is certainly over after a wait, the oldest first.
func waited(list []lateLoad, in *Inst, over func(lateLoad)) []lateLoad {
	list = slices.Clone(list)
	for _, o := range in.Args {
		counted := func(l *lateLoad) *bool {
			if o.Text == "vmcnt" {
				return &l.vm
			}
			return &l.lgkm
		}
		// Of what is in order all but the last few are over; of the scalar unit's
		// accesses none is certain to be over before all are.
		under := 0
		for i := range slices.Backward(list) {
			l := &list[i]
			if !*counted(l) {
				continue
			}
			if o.Int == 0 || !l.scalar && under >= int(o.Int) {
				*counted(l) = false
			}
			if !l.scalar {
				under++
			}
		}
	}
	return slices.DeleteFunc(list, func(l lateLoad) bool {
		done := !l.vm && !l.lgkm
		if done {
			over(l)
		}
		return done
	})
}

// keepBack takes what a load has written out of the registers.
func (w *wave) keepBack(d span, exec uint64) []lateWord {
	var words []lateWord
	for reg := d.reg; reg < d.reg+d.n; reg++ {
		if !d.vector {
			if reg == regSCC {
				continue
			}
			words = append(words, lateWord{reg: reg, mask: 1, lanes: Vec{w.s[reg]}})
			w.s[reg] = notYet(w.s[reg])
			continue
		}
		words = append(words, lateWord{true, reg, exec, w.v[reg]})
		for i := range w.v[reg] {
			if exec>>i&1 != 0 {
				w.v[reg][i] = notYet(w.v[reg][i])
			}
		}
	}
	return words
}

// deliver writes what a load returns.
func (w *wave) deliver(l lateLoad) {
	for _, x := range l.words {
		if x.vector {
			write(&w.v[x.reg], &x.lanes, x.mask)
		} else {
			w.s[x.reg] = x.lanes[0]
		}
	}
}

// pendingAt tells whether the mutant's wait ever leaves something under way that the
// kernel's own does not, in the launches of a subject.
func pendingAt(k *Kernel, at int, other *Inst, run func()) (any, results bool) {
	original := slices.Clone(k.steps)
	defer copy(k.steps, original)
	boards := map[*wave][]lateLoad{}
	for i, s := range original {
		in := k.insts[i]
		l, counts := lateLoadOf(in, &k.uses[i])
		if !counts && k.uses[i].class != classWait && i != 0 {
			continue
		}
		k.steps[i] = func(w *wave) {
			if i == 0 {
				delete(boards, w)
			}
			s(w)
			switch {
			case counts:
				boards[w] = append(boards[w], l)
			case k.uses[i].class == classWait:
				left := waited(boards[w], in, func(lateLoad) {})
				if i == at {
					more := waited(boards[w], other, func(lateLoad) {})
					any = any || len(more) != len(left)
					with := func(list []lateLoad) (n int) {
						for _, l := range list {
							if l.result {
								n++
							}
						}
						return n
					}
					results = results || with(more) != with(left)
				}
				boards[w] = left
			}
		}
	}
	run()
	return any, results
}

// unseenWaits are those for values of columns past the end of a row, which are computed
// with and not stored.
var unseenWaits = []string{"rmsnorm/gfx942+0x5c4", "rmsnorm/gfx950+0x54c"}

// TestLateLoads removes the waits of another compiler's objects one at a time. Results
// are wrong without those whose removal the sanitizer reports, but for waits that are
// there for other waves: for LDS that is written before a barrier.
func TestLateLoads(t *testing.T) {
	wrong, barriers := 0, 0
	var same, unseen []string
	for _, s := range foreignSubjects(t) {
		k, r := s.k, s.launches[0]
		for _, in := range k.insts {
			if in.Op != "s_waitcnt" {
				continue
			}
			args := in.Args
			in.Args = nil
			restore := lateLoads(k)
			late := r.run(k, 0)
			restore()
			l := r.launch
			l.Sanitize = &Sanitize{Checks: CheckWaitcnt, Buffers: r.buffers}
			_, err := k.Run(t.Context(), l)
			in.Args = args
			var found *SanitizerError
			reported := errors.As(err, &found)
			name := strings.Fields(s.name)
			place := fmt.Sprintf("%s/%s+0x%x", name[2], name[0], in.Offset)
			switch {
			case late != survived && reported:
				wrong++
			case late != survived:
				t.Errorf("%s: results are wrong without it, and nothing is reported", place)
			case !reported:
				same = append(same, place)
			case found.Reports[0].Kind == "pending lds at barrier":
				barriers++
			default:
				unseen = append(unseen, place)
			}
		}
	}
	slices.Sort(unseen)
	if d := cmp.Diff(unseenWaits, unseen); d != "" {
		t.Errorf("waits that are needed, without which results are right (-want +got):\n%s", d)
	}
	slices.Sort(same)
	if d := cmp.Diff(redundantWaits, same); d != "" || wrong < 40 || barriers == 0 {
		t.Errorf("%d waits are needed, %d before barriers; those that nothing needs (-want +got):\n%s", wrong, barriers, d)
	}
}
