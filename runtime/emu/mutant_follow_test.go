package emu

import (
	"math/bits"
	"slices"
)

// Where a mutant's results go that differ from the original's. Each wave has the
// registers that differ with the values that they have in the mutant; an instruction
// that reads one is executed with both. So it is known what becomes of a difference in
// the launches: nothing, if it does not get past the instructions that read it.

// alternative is what registers of a wave hold in the mutant, as far as they differ.
type alternative struct {
	scalar map[int]uint32 // SCC as regSCC
	vector map[int]Vec
}

func (a *alternative) any() bool { return len(a.scalar)+len(a.vector) > 0 }

// in tells whether one of the spans has a register that differs.
func (a *alternative) in(w *wave, spans ...[]span) bool {
	for _, list := range spans {
		for _, r := range list {
			r = w.shifted(r)
			for i := r.reg; i < r.reg+r.n; i++ {
				_, s := a.scalar[i]
				_, v := a.vector[i]
				if s && !r.vector || v && r.vector {
					return true
				}
			}
		}
	}
	return false
}

// swap exchanges the wave's registers with the mutant's.
func (a *alternative) swap(w *wave) {
	for r, x := range a.scalar {
		if r == regSCC {
			a.scalar[r] = b2u(w.scc)
			w.scc = x != 0
			continue
		}
		a.scalar[r], w.s[r] = w.s[r], x
	}
	for r, x := range a.vector {
		a.vector[r], w.v[r] = w.v[r], x
	}
}

// overwrite takes note that the wave has executed an instruction that is the same in
// the mutant: what it wrote differs no more.
func (a *alternative) overwrite(w *wave, use *uses) {
	lanes := w.exec()
	if use.class == classMFMA {
		lanes = ^uint64(0)
	}
	for _, r := range use.writes {
		r = w.shifted(r)
		for i := r.reg; i < r.reg+r.n; i++ {
			if !r.vector {
				delete(a.scalar, i)
				continue
			}
			x, ok := a.vector[i]
			if !ok {
				continue
			}
			for m := lanes; m != 0; m &= m - 1 {
				lane := bits.TrailingZeros64(m) & 63
				x[lane] = w.v[i][lane]
			}
			if a.vector[i] = x; x == w.v[i] {
				delete(a.vector, i)
			}
		}
	}
}

// twice executes an instruction as the mutant does and then as the kernel does, and
// notes what differs now. passes is false if that is more than registers: EXEC, where
// the wave goes on, a fault. vectors tells whether vector registers differ that it wrote.
func (a *alternative) twice(w *wave, mutant, original stepOf) (passes, vectors bool) {
	d := &difference{original: original, changed: mutant}
	before := d.save(w)
	a.swap(w)
	mutant.step(w)
	changed := d.save(w)
	a.swap(w)
	d.load(w, before)
	original.step(w)
	now := d.save(w)
	clear(a.scalar)
	for r, x := range changed.s {
		if x != now.s[r] {
			a.scalar[r] = x
		}
	}
	if changed.scc != now.scc {
		a.scalar[regSCC] = b2u(changed.scc)
	}
	i := 0
	for _, r := range d.spans() {
		if r = w.shifted(r); !r.vector {
			continue
		}
		for reg := r.reg; reg < r.reg+r.n; reg++ {
			if now.vector[i] == changed.vector[i] {
				delete(a.vector, reg)
			} else {
				a.vector[reg] = changed.vector[i]
				vectors = true
			}
			i++
		}
	}
	_, lo := a.scalar[regEXEC]
	_, hi := a.scalar[regEXEC+1]
	return changed.pc == now.pc && changed.status == now.status && !lo && !hi, vectors
}

// settle tells whether what an instruction has written differs by two in the last place
// of an f32, or of the lower word of an f64, at most, and forgets it if so.
func (a *alternative) settle(w *wave, use *uses) bool {
	for _, r := range use.writes {
		for reg := r.reg; reg < r.reg+r.n && r.vector; reg++ {
			x, ok := a.vector[reg]
			if !ok {
				continue
			}
			for lane := range x {
				if d := int32(x[lane] - w.v[reg][lane]); d < -2 || d > 2 || d != 0 && r.n == 2 && reg > r.reg {
					return false
				}
			}
		}
	}
	for _, r := range use.writes {
		for reg := r.reg; reg < r.reg+r.n && r.vector; reg++ {
			delete(a.vector, reg)
		}
	}
	return true
}

// confined tells whether what differs stays in registers, whenever the instruction is
// executed: in scalar ones, and in vector registers that instructions write of which
// through is true. Others that read what differs do the same with both values, and end
// has to be true of them. What executes memory instructions or barriers with it is not
// confined, nor is a difference in EXEC or in a branch.
//
// nearly is true of those that may be two units in the last place off, and then count
// as the same.
func (d *difference) confined(through, end, nearly func(*Inst) bool, run func()) bool {
	if d.writesMemory() {
		return false
	}
	steps := slices.Clone(d.k.steps)
	defer copy(d.k.steps, steps)
	good := true
	waves := map[*wave]*alternative{}
	for i := range steps {
		in, original := d.k.insts[i], stepOf{steps[i], d.k.uses[i]}
		mutant, at := original, i == d.at
		if at {
			original, mutant = d.original, d.changed
		}
		passes, ends, close := through(in), end(in), nearly(in)
		twice := slices.Contains([]class{classSALU, classVALU, classMFMA, classBranch, classPermute}, original.uses.class)
		d.k.steps[i] = func(w *wave) {
			a := waves[w]
			if a == nil || i == 0 {
				a = &alternative{map[int]uint32{}, map[int]Vec{}}
				waves[w] = a
			}
			reads := good && a.any() && a.in(w, original.uses.reads, original.uses.kept)
			switch {
			case !good:
				stop(w)
			case at || reads && twice && (passes || ends):
				same, vectors := a.twice(w, mutant, original)
				if vectors && close {
					vectors = !a.settle(w, &original.uses)
				}
				if good = same && (!vectors || passes); !good {
					stop(w)
				}
			case reads:
				good = false
				stop(w)
			default:
				original.step(w)
				if a.any() {
					a.overwrite(w, &original.uses)
				}
			}
		}
	}
	run()
	return good
}

// sameUse tells whether what differs are scalar registers, and all that read them do
// the same: a choice between equal values, bits that are shifted out.
func (d *difference) sameUse(run func()) bool {
	no, yes := func(*Inst) bool { return false }, func(*Inst) bool { return true }
	return d.confined(no, yes, no, run)
}

// corrected tells whether the instruction is a step of a division or a square root that
// comes out the same each time: the steps after it make up for what differs, or decide
// the same by it. A quotient may be two units in the last place off.
func (d *difference) corrected(run func()) bool {
	step := func(in *Inst) bool {
		return in.has("v_fma_f", "v_fmac_f", "v_mul_f", "v_pk_fma_f", "v_pk_mul_f", "v_div_fmas")
	}
	end := func(in *Inst) bool { return in.has("v_div_fixup", "v_cmp_") }
	return step(d.k.insts[d.at]) && d.confined(step, end, func(in *Inst) bool { return in.has("v_div_fixup") }, run)
}
