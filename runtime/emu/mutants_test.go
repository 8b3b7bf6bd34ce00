package emu

import (
	"fmt"
	"math/rand/v2"
	"os"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/kiln-project/kiln/runtime/device/devicetest"
)

// outcome is how a mutant ends.
type outcome int

const (
	caughtLoad     outcome = iota // it is refused
	caughtFault                   // it does what no kernel may, or does not end
	caughtOutput                  // memory differs from what it should be, in any bit
	caughtReport                  // a sanitizer reports it
	notExecuted                   // no launch comes to the instruction
	nothingPending                // the wait never had anything to wait for
	onlyStores                    // all that the wait had to wait for writes no register
	lateSame                      // results are the same with loads as late as the mutant allows
	otherOrders                   // results are the same whatever the order of waves
	sameEffect                    // the instruction does the same whenever it is executed
	sameUse                       // it does not, but whatever reads its result does
	corrected                     // a step of a division, which comes out the same
	ignored                       // where its results differ, any other value gives the same
	absorbed                      // the difference is lost in later roundings
	redundantLanes                // other lanes are active, which store what is stored anyway
	explained                     // testdata/mutants.txt says why it is the same kernel
	survived
	numOutcomes
)

var outcomeNames = [numOutcomes]string{
	"refused", "fault", "output", "sanitizer", "not executed", "nothing pending", "only stores", "late loads", "any order", "same effect", "same use", "corrected", "ignored", "absorbed", "redundant lanes", "explained", "survived",
}

func (o outcome) caught() bool { return o <= caughtReport }

// tried is what became of a mutant.
type tried struct {
	s *subject
	mutant
	outcome
}

func (r tried) String() string {
	in := r.s.k.insts[r.at]
	to := r.text
	if r.chip != "" {
		to += " of " + r.chip
	}
	return fmt.Sprintf("%s+0x%x: %s -> %s", r.s.name, in.Offset, in.Text, to)
}

// explanation says of survivors why they are the same kernel, or why they are not
// noticed.
type explanation struct {
	kind   string         // or several, between ", "
	match  *regexp.Regexp // of the mutant as tried.String writes it
	reason string
}

type explanationList []explanation

// explanations are the rows of testdata/mutants.txt.
var explanations = sync.OnceValue(func() explanationList { return readExplanations("testdata/mutants.txt") })

func readExplanations(file string) explanationList {
	data, err := os.ReadFile(file)
	if err != nil {
		panic(err) // of the package's own testdata
	}
	var list explanationList
	for line := range strings.Lines(string(data)) {
		if line = strings.TrimSpace(line); line == "" || line[0] == '#' {
			continue
		}
		f := strings.SplitN(line, " | ", 3)
		list = append(list, explanation{f[0], regexp.MustCompile(f[1]), f[2]})
	}
	return list
}

func (list explanationList) of(r tried) string {
	for _, e := range list {
		if slices.Contains(strings.Split(e.kind, ", "), r.kind.name) && e.match.MatchString(r.String()) {
			return e.reason
		}
	}
	return ""
}

// choosesLanes tells whether the mutation changes which lanes do something: by EXEC,
// or by an integer comparison in each lane.
func (m mutant) choosesLanes(in *Inst) bool {
	return m.kind.name == "exec" || m.kind.name == "bound" && in.has("v_cmp") && !strings.Contains(in.Op, "_f")
}

// try runs a mutant until it is caught.
func (s *subject) try(m mutant) outcome {
	k := s.k
	in, step, use, err := m.compile(k)
	if err != nil {
		return caughtLoad
	}
	if s.executed[m.at] == 0 {
		return notExecuted
	}
	waits := k.uses[m.at].class == classWait
	oldInst, oldStep, oldUse := k.insts[m.at], k.steps[m.at], k.uses[m.at]
	set := func(in *Inst, s2 stepOf) { k.insts[m.at], k.steps[m.at], k.uses[m.at] = in, s2.step, s2.uses }
	original, changed := stepOf{oldStep, oldUse}, stepOf{step, use}
	defer set(oldInst, original)
	set(in, changed)
	runs := func(launches []*replay, checks Checks) outcome {
		for _, r := range launches {
			if o := r.run(k, checks); o != survived {
				return o
			}
		}
		return survived
	}
	all := func(checks Checks) outcome { return runs(s.launches, checks) }
	if waits {
		if o := all(CheckWaitcnt); o != survived {
			return o
		}
		set(oldInst, original)
		pending, results := pendingAt(k, m.at, in, func() { all(0) })
		switch {
		case !pending:
			return nothingPending
		case !results:
			return onlyStores
		}
		set(in, changed)
		defer lateLoads(k)()
		if all(0) == survived {
			return lateSame
		}
		return survived
	}
	if o := all(0); o != survived {
		return o
	}
	// Sanitizers take long: if the effect is the same, two launches do.
	some := s.launches[:min(2, len(s.launches))]
	if o := runs(some, CheckAll); o != survived {
		return o
	}
	defer func() { k.steps[m.at] = oldStep }()
	d := &difference{k: k, at: m.at, original: original, changed: changed}
	barrier := use.class == classBarrier || oldUse.class == classBarrier
	if set(oldInst, original); !barrier && d.same(s, func() { all(0) }) {
		return sameEffect
	}
	set(in, changed)
	if o := runs(s.launches[len(some):], CheckAll); o != survived {
		return o
	}
	set(oldInst, original)
	switch {
	case barrier:
		set(in, changed)
		if s.anyOrder(orders) {
			return otherOrders
		}
	case d.sameUse(func() { all(0) }):
		return sameUse
	case d.corrected(func() { all(0) }):
		return corrected
	case d.ignored(s, m.kind.name == "bf16 rounding" && oldInst.Op == "v_add3_u32", func() outcome { return all(0) }):
		return ignored
	case d.absorbed(s, func() outcome { return all(0) }):
		return absorbed
	case m.choosesLanes(oldInst) && s.sameMemory(m.at, original, changed, func() { all(0) }):
		return redundantLanes
	case explanations().of(tried{s, m, survived}) != "":
		return explained
	}
	return survived
}

// work is a mutant of a subject.
type work struct {
	s *subject
	m mutant
}

// tryAll runs mutants, those of one subject one after the other, and calls done, if it
// is not nil, with each one's outcome.
func tryAll(list []work, done func(tried)) []tried {
	out := make([]tried, len(list))
	bySubject := map[*subject][]int{}
	var order []*subject
	for i, w := range list {
		if bySubject[w.s] == nil {
			order = append(order, w.s)
		}
		bySubject[w.s] = append(bySubject[w.s], i)
	}
	next := make(chan *subject)
	var wg sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		wg.Go(func() {
			for s := range next {
				for _, i := range bySubject[s] {
					out[i] = tried{s, list[i].m, s.try(list[i].m)}
					if done != nil {
						done(out[i])
					}
				}
			}
		})
	}
	for _, s := range order {
		next <- s
	}
	close(next)
	wg.Wait()
	return out
}

// scores counts outcomes by kind.
type scores map[string]*[numOutcomes]int

func scoresOf(list []tried) scores {
	s := scores{}
	for i := range mutations {
		s[mutations[i].name] = &[numOutcomes]int{}
	}
	for _, r := range list {
		s[r.kind.name][r.outcome]++
	}
	return s
}

// of returns how many mutants of a kind are caught, out of those that are not known to
// be the same kernel.
func (s scores) of(kind string) (caught, of int) {
	n := s[kind]
	for o := range numOutcomes {
		if o.caught() {
			caught += n[o]
		}
	}
	return caught, caught + n[survived]
}

// table is the scores as people read them.
func (s scores) table() string {
	var b strings.Builder
	b.WriteString("| kind | mutants |")
	for _, name := range outcomeNames {
		b.WriteString(" " + name + " |")
	}
	b.WriteString(" caught |\n|---|" + strings.Repeat("--:|", int(numOutcomes)+2) + "\n")
	row := func(name string, n [numOutcomes]int, caught, of int) {
		total := 0
		for _, x := range n {
			total += x
		}
		fmt.Fprintf(&b, "| %s | %d |", name, total)
		for _, x := range n {
			fmt.Fprintf(&b, " %d |", x)
		}
		if of == 0 {
			b.WriteString(" - |\n")
		} else {
			fmt.Fprintf(&b, " %.1f %% |\n", 100*float64(caught)/float64(of))
		}
	}
	var sum [numOutcomes]int
	allCaught, allOf := 0, 0
	for i := range mutations {
		name := mutations[i].name
		caught, of := s.of(name)
		row(name, *s[name], caught, of)
		for o, x := range s[name] {
			sum[o] += x
		}
		allCaught, allOf = allCaught+caught, allOf+of
	}
	row("all", sum, allCaught, allOf)
	return b.String()
}

// subjects are all kernels of which mutants are made.
func subjects(t *testing.T, prompts ...int) []*subject {
	list := foreignSubjects(t)
	c := devicetest.Compiler(t)
	for _, chip := range Chips {
		list = append(list, fenceSubjects(t, chip)...)
		list = append(list, ownSubjects(t, c, chip, prompts)...)
		list = append(list, rowSubjects(t, c, chip)...)
	}
	return list
}

// allMutants are the mutants of subjects, in order.
func allMutants(list []*subject) []work {
	var out []work
	for _, s := range list {
		for _, m := range mutantsOf(s.k) {
			out = append(out, work{s, m})
		}
	}
	return out
}

// leastCaught is the share of mutants of a kind that have to be caught, of those that
// are not known to be the same kernel, if they are at least enough.
const (
	leastCaught = 0.95
	enough      = 20
)

// check reports kinds of which too few are caught.
func (s scores) check(t *testing.T) {
	t.Helper()
	for i := range mutations {
		name := mutations[i].name
		if caught, of := s.of(name); of >= enough && float64(caught) < leastCaught*float64(of) {
			t.Errorf("%s: %d of %d mutants are caught", name, caught, of)
		}
	}
}

// unmutated checks that nothing is found in the kernels themselves: neither by
// sanitizers, nor with late loads, nor in another order of waves. Of each so many
// launches are checked.
func unmutated(t *testing.T, list []*subject, most int) {
	t.Helper()
	for _, s := range list {
		for _, r := range s.launches[1:min(most, len(s.launches))] {
			if o := r.run(s.k, CheckAll); o != survived {
				t.Errorf("%s, unmutated, another launch: %s", s.name, outcomeNames[o])
			}
		}
		r := s.launches[0]
		for _, checks := range []Checks{0, CheckAll} {
			if o := r.run(s.k, checks); o != survived {
				t.Errorf("%s, unmutated, checks %v: %s", s.name, checks, outcomeNames[o])
			}
		}
		restore := lateLoads(s.k)
		if o := r.run(s.k, 0); o != survived {
			t.Errorf("%s, unmutated, with late loads: %s", s.name, outcomeNames[o])
		}
		restore()
		if !r.interleaved(s.k, 1) {
			t.Errorf("%s, unmutated, in another order of waves: results differ", s.name)
		}
	}
}

// TestMutants tries a sample of the mutants. Kinds of which fewer than enough count are not
// judged.
// The long tests try all of them.
func TestMutants(t *testing.T) {
	if testing.Short() {
		t.Skip("compiles a model")
	}
	list := subjects(t, 19)
	unmutated(t, list, 1)
	found := tryAll(sampled(allMutants(list), enough, 1), nil)
	s := scoresOf(found)
	t.Logf("%d kernels\n%s", len(list), s.table())
	s.check(t)
	for _, r := range found {
		if r.outcome == survived {
			t.Logf("survived: %s: %v", r.kind.name, r)
		}
	}
}

// sampled are so many of each kind that are executed, chosen by a seed.
func sampled(list []work, each int, seed uint64) []work {
	rng := rand.New(rand.NewPCG(seed, 0))
	byKind := map[*mutation][]work{}
	for _, w := range list {
		if w.s.executed[w.m.at] > 0 {
			byKind[w.m.kind] = append(byKind[w.m.kind], w)
		}
	}
	var out []work
	for i := range mutations {
		l := byKind[&mutations[i]]
		rng.Shuffle(len(l), func(i, j int) { l[i], l[j] = l[j], l[i] })
		out = append(out, l[:min(each, len(l))]...)
	}
	return out
}
