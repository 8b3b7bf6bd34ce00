package emu

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
)

// The registers that are recorded as read and written are those that the step reads
// and writes: it changes no others, and what the others hold changes nothing.
func TestUsesAgreeWithSteps(t *testing.T) {
	text, err := os.ReadFile("testdata/uses.txt")
	if err != nil {
		t.Fatal(err)
	}
	rng := rand.New(rand.NewPCG(1, 2))
	for line := range strings.Lines(string(text)) {
		chip, inst, ok := strings.Cut(strings.TrimSpace(line), ": ")
		if !ok {
			t.Fatalf("%q: want CHIP: INSTRUCTION", line)
		}
		k, err := trySnippet(chip, inst)
		if err != nil {
			t.Error(err)
			continue
		}
		for range 6 {
			if err := checkUses(k, rng); err != nil {
				t.Errorf("%s: %v", inst, err)
				break
			}
		}
	}
}

// A row that records too little is found.
func TestUsesOfAWrongRow(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for _, c := range []struct {
		line, want string
		forget     func(u *uses)
	}{
		{"s_add_u32 s0, s1, s2", "s125 changes", func(u *uses) { u.writes = u.writes[:0]; u.writes = append(u.writes, span{0, false, 0, 1, 0, allBits}) }},
		{"s_addc_u32 s0, s1, s2", "depends", func(u *uses) { u.reads = u.reads[1:] }},
		{"v_add_u32_e32 v0, v1, v2", "depends", func(u *uses) { u.reads = u.reads[1:] }},
		{"v_add_u32_e32 v0, v1, v2", "v0 changes", func(u *uses) { u.writes = nil }},
	} {
		k := snippet(t, "gfx942", c.line)
		c.forget(&k.uses[0])
		found := error(nil)
		for range 20 {
			if found = checkUses(k, rng); found != nil {
				break
			}
		}
		if found == nil || !strings.Contains(found.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.line, found, c.want)
		}
	}
}

// checkUses runs the first instruction twice, with everything that it is said not to
// read different.
func checkUses(k *Kernel, rng *rand.Rand) error {
	l := &Launch{Grid: [3]int{1, 1, 1}, Block: [3]int{Lanes, 1, 1}, Memory: &Space{}}
	if err := k.prepare(l); err != nil {
		return err
	}
	fresh := func() *wave {
		g := newGroup(k, l, nil, 0, k.steps)
		g.start([3]int{})
		return g.waves[0]
	}
	a, b := fresh(), fresh()
	scramble := func(w *wave, keep func(vector bool, r int) bool) {
		for r := range w.v {
			for i := range w.v[r] {
				if x := rng.Uint32(); !keep(true, r) {
					w.v[r][i] = x >> (x & 28)
				}
			}
		}
		for r := range w.s {
			if x := rng.Uint32(); r != regEXEC && r != regEXEC+1 && !keep(false, r) {
				w.s[r] = x
			}
		}
		if x := rng.Uint32()&1 != 0; !keep(false, regSCC) {
			w.scc = x
		}
	}
	scramble(a, func(bool, int) bool { return false })
	if rng.IntN(2) == 0 {
		a.setExec(rng.Uint64())
	}
	copy(b.v, a.v)
	b.s, b.scc = a.s, a.scc
	u := &k.uses[0]
	scramble(b, func(vector bool, r int) bool { return within(u.reads, vector, r) || within(u.kept, vector, r) })
	before := [2]registerFile{filed(a), filed(b)}
	k.steps[0](a)
	k.steps[0](b)
	after := [2]registerFile{filed(a), filed(b)}
	for _, w := range []*wave{a, b} {
		if w.fault != nil {
			return w.fault
		}
	}
	for r := range after[0].s {
		if !within(u.writes, false, r) {
			if after[0].s[r] != before[0].s[r] {
				return fmt.Errorf("s%d changes, and is not among what is written", r)
			}
		} else if x, y := after[0].s[r], after[1].s[r]; x != y {
			return fmt.Errorf("s%d depends on what is not among what is read: %#x, %#x", r, x, y)
		}
	}
	for r := range after[0].v {
		for i := range Lanes {
			x, y := after[0].v[r][i], after[1].v[r][i]
			kept := x == before[0].v[r][i] && y == before[1].v[r][i]
			switch {
			case kept:
			case !within(u.writes, true, r):
				return fmt.Errorf("v%d changes, and is not among what is written", r)
			case x != y:
				return fmt.Errorf("v%d of lane %d depends on what is not among what is read: %#x, %#x", r, i, x, y)
			}
		}
	}
	return nil
}

// registerFile is all registers of a wave; SCC is among s.
type registerFile struct {
	v []Vec
	s [numSGPRs]uint32
}

func filed(w *wave) registerFile {
	f := registerFile{append([]Vec(nil), w.v...), w.s}
	f.s[regSCC] = b2u(w.scc)
	return f
}

func within(list []span, vector bool, r int) bool {
	for _, s := range list {
		if s.vector == vector && s.reg <= r && r < s.reg+s.n {
			return true
		}
	}
	return false
}
