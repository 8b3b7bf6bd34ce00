//go:build long

package emu

import (
	"bufio"
	"flag"
	"fmt"
	"hash/fnv"
	"io"
	"maps"
	"math"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
)

var (
	updateMutants  = flag.Bool("update-mutants", false, "write docs/mutants.md")
	mutantsOfKind  = flag.Int("mutants", 40, "try a sample of so many mutants of each kind; 0 is all of them, which takes an hour")
	mutantSubjects = flag.String("mutant-subjects", "", "try mutants of kernels that match this regular expression only")
	mutantResults  = flag.String("mutant-results", "", "keep outcomes in this `file`, and do not try again what stands there")
)

// resultFile keeps the outcomes of mutants, so that trying all of them can be
// interrupted. A line: digest of the subject, kind, mutant, outcome, between tabs.
type resultFile struct {
	known   map[string]outcome
	digests map[*subject]string

	mu  sync.Mutex
	out *os.File
	err error // the first one of out
}

func openResults(name string, subjects []*subject) (*resultFile, error) {
	f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o666)
	if err != nil {
		return nil, err
	}
	r := &resultFile{known: map[string]outcome{}, digests: map[*subject]string{}, out: f}
	for _, s := range subjects {
		r.digests[s] = s.digest()
	}
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		i := strings.LastIndex(lines.Text(), "\t")
		o := slices.Index(outcomeNames[:], lines.Text()[i+1:])
		if i < 0 || o < 0 {
			return nil, fmt.Errorf("%s: line %q", name, lines.Text())
		}
		r.known[lines.Text()[:i]] = outcome(o)
	}
	return r, lines.Err()
}

// digest is of what a subject's mutants start from: its instructions and launches.
func (s *subject) digest() string {
	h := fnv.New64a()
	for _, in := range s.k.insts {
		io.WriteString(h, in.Text+"\n")
	}
	for _, r := range s.launches {
		blocks := uint64(0) // in any order
		for _, b := range r.blocks {
			h := fnv.New64a()
			h.Write(b.before)
			h.Write(b.after)
			blocks += h.Sum64()
		}
		fmt.Fprintln(h, r.launch.Grid, r.launch.Block, r.launch.LDS, blocks)
	}
	return fmt.Sprintf("%016x", h.Sum64())
}

func (r *resultFile) key(t tried) string {
	return r.digests[t.s] + "\t" + t.kind.name + "\t" + t.String()
}

func (r *resultFile) add(t tried) {
	r.mu.Lock()
	defer r.mu.Unlock()
	o := t.outcome
	if o == explained {
		o = survived // what the rows say is looked up when the file is read
	}
	if _, err := fmt.Fprintf(r.out, "%s\t%s\n", r.key(t), outcomeNames[o]); err != nil && r.err == nil {
		r.err = err
	}
}

// tryNew is tryAll of what does not stand in the file.
func (r *resultFile) tryNew(list []work) []tried {
	out := make([]tried, len(list))
	var open []work
	var at []int
	for i, w := range list {
		out[i] = tried{w.s, w.m, survived}
		if o, ok := r.known[r.key(out[i])]; ok {
			if o == survived && explanations().of(out[i]) != "" { // by a row that is newer
				o = explained
			}
			out[i].outcome = o
			continue
		}
		open, at = append(open, w), append(at, i)
	}
	for i, t := range tryAll(open, r.add) {
		out[at[i]] = t
	}
	return out
}

// TestMutantsLong tries all mutants, or a larger sample, and keeps the result in
// docs/mutants.md.
func TestMutantsLong(t *testing.T) {
	// 37 rows are no whole number of a matrix instruction's tiles, 16 are one.
	list := subjects(t, 37, 16)
	if *mutantSubjects != "" {
		only := regexp.MustCompile(*mutantSubjects)
		list = slices.DeleteFunc(list, func(s *subject) bool { return !only.MatchString(s.name) })
	}
	unmutated(t, list, math.MaxInt)
	all := allMutants(list)
	made := len(all)
	extent := "all"
	if *mutantsOfKind > 0 {
		all = sampled(all, *mutantsOfKind, 1)
		extent = fmt.Sprintf("up to %d of each kind, chosen at random with a seed among those whose instruction is executed", *mutantsOfKind)
	}
	var found []tried
	if *mutantResults == "" {
		found = tryAll(all, nil)
	} else {
		r, err := openResults(*mutantResults, list)
		if err != nil {
			t.Fatal(err)
		}
		defer r.out.Close()
		if found = r.tryNew(all); r.err != nil {
			t.Fatal(r.err)
		}
	}
	s := scoresOf(found)
	s.check(t)
	text := report(found, s, len(list), made, extent)
	if !*updateMutants {
		t.Log(text)
		return
	}
	const doc = "../../docs/mutants.md"
	old, err := os.ReadFile(doc)
	if err != nil {
		t.Fatal(err)
	}
	intro, _, ok := strings.Cut(string(old), generated)
	if !ok {
		t.Fatalf("%s has no line %q", doc, generated)
	}
	if err := writeSurvivors(found); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(doc, []byte(intro+generated+"\n"+text), 0o666); err != nil {
		t.Fatal(err)
	}
}

// generated stands before the part of docs/mutants.md that the test writes.
const generated = "## Result\n"

// missed are the rows of testdata/mutants_missed.txt: why mutants that are not the same
// kernel are not noticed.
var missed = sync.OnceValue(func() explanationList { return readExplanations("testdata/mutants_missed.txt") })

// reasonOf says why a survivor is not noticed.
func reasonOf(r tried) string {
	if why := missed().of(r); why != "" {
		return why
	}
	return "not looked at"
}

// survivorList is written with the report: what is not noticed, a line each.
const survivorList = "runtime/emu/testdata/mutants_survived.txt"

func writeSurvivors(found []tried) error {
	var b strings.Builder
	b.WriteString("# Made by TestMutantsLong: kind | mutant | why it is not noticed.\n\n")
	for _, r := range found {
		if r.outcome == survived {
			fmt.Fprintf(&b, "%s | %s | %s\n", r.kind.name, r, reasonOf(r))
		}
	}
	return os.WriteFile("../../"+survivorList, []byte(b.String()), 0o666)
}

func report(found []tried, s scores, kernels, made int, extent string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d kernels, %d mutants; tried: %s.\n\n%s\n", kernels, made, extent, s.table())
	b.WriteString("## Not noticed\n\n`" + survivorList + "` has each of them.\n\n| kinds | mutants | why | one of them |\n|---|--:|---|---|\n")
	byReason := map[string][]tried{}
	for _, r := range found {
		if r.outcome == survived {
			byReason[reasonOf(r)] = append(byReason[reasonOf(r)], r)
		}
	}
	for _, why := range slices.Sorted(maps.Keys(byReason)) {
		list := byReason[why]
		var kinds []string
		for _, r := range list {
			if !slices.Contains(kinds, r.kind.name) {
				kinds = append(kinds, r.kind.name)
			}
		}
		fmt.Fprintf(&b, "| %s | %d | %s | `%s` |\n", strings.Join(kinds, ", "), len(list), why, strings.ReplaceAll(list[0].String(), "|", "\\|"))
	}
	b.WriteString("\n## The same kernel, by hand\n\n| kind | mutants | reason |\n|---|--:|---|\n")
	for _, e := range explanations() {
		n := len(slices.DeleteFunc(slices.Clone(found), func(r tried) bool {
			return r.outcome != explained || explanationList{e}.of(r) == ""
		}))
		fmt.Fprintf(&b, "| %s | %d | %s |\n", e.kind, n, e.reason)
	}
	return b.String()
}
