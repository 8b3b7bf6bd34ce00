package emu

import "math/bits"

// Lanes is the number of lanes of a wavefront.
const Lanes = 64

// Vec is a vector register: a word per lane.
type Vec [Lanes]uint32

// agprs is where the accumulation registers begin in wave.v. They are a file of
// their own: the kernel's accum_offset only says where the hardware keeps them.
const agprs = 256

// wave is the state of a wavefront.
type wave struct {
	v   []Vec
	s   [numSGPRs]uint32
	scc bool

	pc     int // index of the next step
	status status
	id     int // in its group
	// What v0 and EXEC start with: the ids of the work-items, and who has one.
	items Vec
	lanes uint64
	group *group
	count uint64 // instructions executed, of all groups that this wave's storage ran

	gprIndexed bool // between s_set_gpr_idx_on and s_set_gpr_idx_off

	// Storage for operands that are no register as they stand, and for results under a
	// partial EXEC; in the wave so that steps allocate nothing.
	operand [6]Vec // low and high word of each source
	result  [16]Vec
	addr    [Lanes]uint64 // of the lanes' accesses
	offset  [Lanes]uint64 // the same from the block of memory that they lie in

	near    *region // where the last global access was
	scratch []byte  // private memory: group.private bytes for each lane in turn

	// For accesses that the memory sanitizer reports.
	nowhere region
	lost    [64]byte

	fault error
}

// reset makes the wave one that is about to execute its first instruction. Vector
// registers keep what they had, as on hardware.
func (w *wave) reset(entry int) {
	w.s, w.scc, w.gprIndexed = [numSGPRs]uint32{}, false, false
	w.pc, w.status, w.fault = entry, running, nil
	w.near = nil
}

// poison fills the registers with it.
func (w *wave) poison() {
	for i := range w.v {
		broadcast(&w.v[i], poison)
	}
	for i := range w.s {
		w.s[i] = poison
	}
	for i := range len(w.scratch) / 4 {
		le.PutUint32(w.scratch[4*i:], poison)
	}
}

type status uint8

const (
	running status = iota
	atBarrier
	ended
	faulted
)

// step is a compiled instruction.
type step func(w *wave)

func (w *wave) s64(r int) uint64 { return uint64(w.s[r]) | uint64(w.s[r+1])<<32 }

func (w *wave) setS64(r int, x uint64) { w.s[r], w.s[r+1] = uint32(x), uint32(x>>32) }

func (w *wave) exec() uint64 { return w.s64(regEXEC) }

func (w *wave) setExec(x uint64) { w.setS64(regEXEC, x) }

func (w *wave) vcc() uint64 { return w.s64(regVCC) }

// fail ends the wave with an error; the first one stays.
func (w *wave) fail(in *Inst, format string, args ...any) {
	if w.fault == nil {
		w.fault = in.errorf(format, args...)
	}
	w.status = faulted
}

// run executes up to budget instructions and returns how many are left.
func (w *wave) run(steps []step, budget int) int {
	n := budget
	for ; n > 0 && w.status == running; n-- {
		pc := w.pc
		w.pc++
		steps[pc](w)
	}
	w.count += uint64(budget - n)
	return n
}

// write stores t in the lanes of mask.
func write(d, t *Vec, mask uint64) {
	if mask == ^uint64(0) {
		*d = *t
		return
	}
	for m := mask; m != 0; m &= m - 1 {
		i := bits.TrailingZeros64(m) & 63
		d[i] = t[i]
	}
}

// broadcast stores x in all lanes.
func broadcast(d *Vec, x uint32) {
	d[0], d[1], d[2], d[3] = x, x, x, x
	for n := 4; n < len(d); n *= 2 {
		copy(d[n:], d[:n])
	}
}
