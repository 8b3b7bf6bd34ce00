package emu

import (
	"bytes"
	"hash/maphash"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
)

// Why a mutant that nothing noticed may be the same kernel. All of these look at what
// happens in a subject's launches, so they hold for its inputs.

// stepOf is what an instruction is compiled to.
type stepOf struct {
	step step
	uses uses
}

// difference compares an instruction with what a mutant has instead of it.
type difference struct {
	k                 *Kernel
	at                int
	original, changed stepOf
}

// waveState is what an instruction can change, beside memory.
type waveState struct {
	s      [numSGPRs]uint32
	scc    bool
	pc     int
	status status
	vector []Vec // of the spans that either instruction writes
}

func (d *difference) spans() []span {
	return slices.Concat(d.original.uses.writes, d.changed.uses.writes)
}

func (d *difference) save(w *wave) waveState {
	x := waveState{s: w.s, scc: w.scc, pc: w.pc, status: w.status}
	for _, r := range d.spans() {
		if r = w.shifted(r); r.vector {
			x.vector = append(x.vector, w.v[r.reg:][:r.n]...)
		}
	}
	return x
}

func (d *difference) load(w *wave, x waveState) {
	w.s, w.scc, w.pc, w.status, w.fault = x.s, x.scc, x.pc, x.status, nil
	v := x.vector
	for _, r := range d.spans() {
		if r = w.shifted(r); r.vector {
			copy(w.v[r.reg:][:r.n], v)
			v = v[r.n:]
		}
	}
}

func (a waveState) equal(b waveState) bool {
	return a.s == b.s && a.scc == b.scc && a.pc == b.pc && a.status == b.status && slices.Equal(a.vector, b.vector)
}

// writesMemory tells whether a step may change memory.
func (d *difference) writesMemory() bool {
	for _, u := range []*uses{&d.original.uses, &d.changed.uses} {
		switch u.class {
		case classStore, classAtomic, classLoadLDS, classLDS:
			return true
		}
	}
	return false
}

// memoryOf is what both steps may write: LDS and the launches' buffers.
func (d *difference) memoryOf(s *subject, w *wave) [][]byte {
	if !d.writesMemory() {
		return nil
	}
	return s.memory(w)
}

// memory is all that a wave of the subject's launches may write.
func (s *subject) memory(w *wave) [][]byte {
	list := [][]byte{w.group.lds}
	for _, r := range s.launches {
		for _, b := range r.blocks {
			if !b.readOnly && w.group.launch.Memory == r.launch.Memory {
				list = append(list, b.now)
			}
		}
	}
	return list
}

func cloneAll(list [][]byte) [][]byte {
	var out [][]byte
	for _, b := range list {
		out = append(out, bytes.Clone(b))
	}
	return out
}

func copyAll(dst, src [][]byte) {
	for i := range dst {
		copy(dst[i], src[i])
	}
}

// both executes the original instruction, after the changed one, which it undoes.
func (d *difference) both(s *subject, w *wave) (now, changed waveState, written [][]byte) {
	before, memory := d.save(w), d.memoryOf(s, w)
	was := cloneAll(memory)
	d.changed.step(w)
	changed, written = d.save(w), cloneAll(memory)
	d.load(w, before)
	copyAll(memory, was)
	d.original.step(w)
	return d.save(w), changed, written
}

// stop ends a launch of which all is known.
func stop(w *wave) { w.fault, w.status = errEnough, faulted }

// mostExecuted is how often an instruction that writes memory may be executed to be
// compared.
const mostExecuted = 2000

// same tells whether both instructions do the same each time they are executed.
func (d *difference) same(s *subject, run func()) bool {
	if d.writesMemory() && s.executed[d.at] > mostExecuted {
		return false
	}
	same := true
	d.k.steps[d.at] = func(w *wave) {
		now, changed, written := d.both(s, w)
		if same = now.equal(changed) && slices.EqualFunc(d.memoryOf(s, w), written, bytes.Equal); !same {
			stop(w)
		}
	}
	run()
	return same
}

// ignored tells whether the results that differ are of no consequence: with bits at
// random in their place all is as it should be. A word that differs is replaced as a
// whole; of one whose lower half is dropped anyway (half), as the sum that rounds to
// bf16 is, only that half. Single bits (conditions, SCC) have no other value than the
// mutant's, so they are not looked at.
func (d *difference) ignored(s *subject, half bool, run func() outcome) bool {
	if d.writesMemory() && s.executed[d.at] > mostExecuted {
		return false
	}
	for seed := range uint64(3) {
		rng := rand.New(rand.NewPCG(seed, 2))
		other := false
		d.k.steps[d.at] = func(w *wave) {
			now, changed, written := d.both(s, w)
			other = other || now.s != changed.s || now.scc != changed.scc || now.pc != changed.pc || now.status != changed.status
			for i := range now.vector {
				for lane, x := range now.vector[i] {
					diff := x ^ changed.vector[i][lane]
					switch {
					case diff == 0:
					case !half:
						now.vector[i][lane] = rng.Uint32()
					case diff>>16 == 0:
						now.vector[i][lane] ^= rng.Uint32() & 0xffff
					default:
						other = true
					}
				}
			}
			fault := w.fault
			d.load(w, now)
			if w.fault = fault; other {
				stop(w)
			}
			for i, b := range d.memoryOf(s, w) {
				if bytes.Equal(b, written[i]) {
					continue
				}
				for j := range b {
					if b[j] != written[i][j] {
						b[j] = byte(rng.Uint32())
					}
				}
			}
		}
		if run() != survived || other {
			return false
		}
	}
	return true
}

// absorbed tells whether the results that differ are lost in later roundings: with f32 or
// f64 values at random around the original's, as far away as the mutant's, all is as it
// should be.
func (d *difference) absorbed(s *subject, run func() outcome) bool {
	if d.writesMemory() {
		return false
	}
	for seed := range uint64(3) {
		rng := rand.New(rand.NewPCG(seed, 4))
		other := false
		d.k.steps[d.at] = func(w *wave) {
			now, changed, _ := d.both(s, w)
			other = other || now.s != changed.s || now.scc != changed.scc || now.pc != changed.pc || now.status != changed.status
			i := 0
			for _, r := range d.spans() {
				if !r.vector {
					continue
				}
				step := 1 // registers of a number
				if r.n == 2 && strings.Contains(d.k.insts[d.at].Op, "_f64") {
					step = 2
				}
				for end := i + r.n; i < end; i += step {
					near(now.vector[i:i+step], changed.vector[i:i+step], rng)
				}
			}
			if d.load(w, now); other {
				stop(w)
			}
		}
		if run() != survived || other {
			return false
		}
	}
	return true
}

// near replaces numbers that differ, f32 or in two registers f64, by ones as far away at
// most as the others are.
func near(now, changed []Vec, rng *rand.Rand) {
	for lane := range now[0] {
		switch r := 2*rng.Float64() - 1; {
		case len(now) == 1 && now[0][lane] != changed[0][lane]:
			from, to := math.Float32frombits(now[0][lane]), math.Float32frombits(changed[0][lane])
			now[0][lane] = math.Float32bits(from + (to-from)*float32(r))
		case len(now) == 2 && (now[0][lane] != changed[0][lane] || now[1][lane] != changed[1][lane]):
			double := func(v []Vec) float64 { return math.Float64frombits(uint64(v[0][lane]) | uint64(v[1][lane])<<32) }
			x := math.Float64bits(double(now) + (double(changed)-double(now))*r)
			now[0][lane], now[1][lane] = uint32(x), uint32(x>>32)
		}
	}
}

// sameMemory tells whether a mutant leaves in memory, LDS included, what the kernel
// does, whenever a wave comes to a barrier or ends.
func (s *subject) sameMemory(at int, original, changed stepOf, run func()) bool {
	steps := slices.Clone(s.k.steps)
	defer copy(s.k.steps, steps)
	seed := maphash.MakeSeed()
	trace := func(of stepOf) []uint64 {
		copy(s.k.steps, steps)
		s.k.steps[at] = of.step
		var sums []uint64
		for i, in := range s.k.insts {
			if in.Op != "s_barrier" && in.Op != "s_endpgm" {
				continue
			}
			step := s.k.steps[i]
			s.k.steps[i] = func(w *wave) {
				var h maphash.Hash
				h.SetSeed(seed)
				for _, b := range s.memory(w) {
					h.Write(b)
				}
				sums = append(sums, h.Sum64())
				step(w)
			}
		}
		run()
		return sums
	}
	return slices.Equal(trace(original), trace(changed))
}

// orders is how many orders of waves are tried.
const orders = 8

// anyOrder runs the subject's launches with the waves of each group taking turns at
// random, a few instructions at a time, and tells whether all is as it should be.
func (s *subject) anyOrder(n uint64) bool {
	for _, r := range s.launches[:min(2, len(s.launches))] {
		for seed := range n {
			if !r.interleaved(s.k, seed) {
				return false
			}
		}
	}
	return true
}

// interleaved is one such run.
func (r *replay) interleaved(k *Kernel, seed uint64) bool {
	for _, b := range r.blocks {
		copy(b.now, b.before)
	}
	rng := rand.New(rand.NewPCG(seed, 3))
	l := r.launch
	if k.prepare(&l) != nil {
		return false
	}
	args := regionOf(l.segment, "kernel arguments")
	packet := regionOf(k.packet(&l, args.lo), "dispatch packet")
	l.dispatch = packet.lo
	rs, err := l.Memory.regions().with(append([]region{args, packet}, k.image...)...)
	if err != nil {
		return false
	}
	g := newGroup(k, &l, rs, args.lo, k.steps)
	turn := []int{1, 3, 20, 200}[seed%4]
	for i := range l.Grid[0] * l.Grid[1] * l.Grid[2] {
		g.start([3]int{i % l.Grid[0], i / l.Grid[0] % l.Grid[1], i / l.Grid[0] / l.Grid[1]})
		for {
			var live, going []*wave
			for _, w := range g.waves {
				switch w.status {
				case faulted:
					return false
				case running:
					going = append(going, w)
					fallthrough
				case atBarrier:
					live = append(live, w)
				}
			}
			switch {
			case len(live) == 0:
			case len(going) == 0:
				for _, w := range live {
					w.status = running
				}
				continue
			default:
				going[rng.IntN(len(going))].run(g.steps, 1+rng.IntN(turn))
				continue
			}
			break
		}
	}
	for _, b := range r.blocks {
		if !bytes.Equal(b.now, b.after) {
			return false
		}
	}
	return true
}
