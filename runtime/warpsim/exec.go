package warpsim

import (
	"encoding/binary"
	"fmt"
	"math/bits"
	"slices"
)

// Buffer is what a launch may touch.
type buffer struct {
	address uint64
	bytes   []byte
	write   bool
}

// group is a work-group that runs.
type group struct {
	kernel  *function
	id      int
	buffers []buffer
	hit     int // the buffer that was touched last
	lds     local
	pool    local   // given by the launch
	phase   int32   // barriers that the group has passed
	writes  int32   // to shared memory
	fences  []int32 // by lane: how many writes there were when it fenced last
	warps   []*warp
}

// local is shared memory.
type local struct {
	bytes   []byte
	touched []touch // by touchBytes
}

// touchBytes is how many bytes of shared memory are touched together: kernels have
// nothing narrower there but in vectors.
const touchBytes = 2

// untouched is such memory as a group finds it, in place of what l was.
func (l local) untouched(bytes int) local {
	if len(l.bytes) != bytes {
		return local{make([]byte, bytes), make([]touch, (bytes+touchBytes-1)/touchBytes)}
	}
	clear(l.bytes)
	clear(l.touched)
	return l
}

// touch is who wrote or read touchBytes of shared memory last, and before which barrier.
type touch struct {
	wrote, wasReadAt int32 // phases
	order            int32 // of the writes of a group
	writer, reader   int16 // lanes of the group; reader many: more than one
	written          bool
	copying          bool // writer has not waited for its copy
}

const many = -1

// warp is 32 lanes of a group.
type warp struct {
	*group
	first int // lane of the group
	slots []uint64
	at    [Warp]*block // nil: has returned
	// waited are the lanes that have waited for the launches before.
	waited uint32
	from   [Warp]*block
	// copies are each lane's that it has not waited for: groups, and last what is in
	// none yet.
	copies [Warp][][]copied
	// products are groups of matrix products that the warp has not waited for, as copies.
	products [][]asyncRead
	// registers are those of assembler that runs.
	registers map[string]*[Warp]uint64
	arriving  []arrival
	resume
}

// arrival is what a lane's phi becomes.
type arrival struct {
	to      operand
	lane, i int
	x       uint64
}

// resume is where a warp goes on behind a barrier.
type resume struct {
	block *block
	next  int
	mask  uint32
}

// run runs the group with that number to its end. Warps take turns, in another order
// after each barrier. What the group before left is used again: all but the numbers of the
// program, which are written before they are read, as SSA has it.
func (g *group) run(id, lanes, pool int, args []uint64) error {
	g.id, g.writes = id, 0
	g.lds, g.pool = g.lds.untouched(g.kernel.shared), g.pool.untouched(pool)
	if g.warps == nil {
		g.fences, g.warps = make([]int32, lanes), make([]*warp, lanes/Warp)
		for i := range g.warps {
			g.warps[i] = &warp{slots: make([]uint64, g.kernel.slots*Warp)}
		}
	}
	clear(g.fences)
	warps := g.warps
	for i, w := range warps {
		*w = warp{group: g, first: i * Warp, slots: w.slots, arriving: w.arriving[:0]}
		for j, slot := range g.kernel.params {
			for lane := range Warp {
				w.slots[slot*Warp+lane] = args[j]
			}
		}
		for lane := range Warp {
			w.at[lane] = g.kernel.blocks[0]
		}
	}
	for g.phase = 1; ; g.phase++ {
		waiting := 0
		for i := range warps {
			if g.phase%2 == 0 {
				i = len(warps) - 1 - i
			}
			stopped, err := warps[i].run()
			if err != nil {
				return fmt.Errorf("group %d, warp %d: %w", g.id, i, err)
			}
			if stopped {
				waiting++
			}
		}
		switch waiting {
		case 0:
			return nil
		case len(warps):
		default:
			return fmt.Errorf("group %d: %d of %d warps wait at a barrier that the others do not reach", g.id, waiting, len(warps))
		}
		for _, w := range warps[1:] {
			if w.block != warps[0].block || w.next != warps[0].next {
				return fmt.Errorf("group %d: warps wait at different barriers, in %s and %s", g.id, w.block.name, warps[0].block.name)
			}
		}
	}
}

// errBarrier stops a warp.
var errBarrier = fmt.Errorf("barrier")

// run runs the warp to a barrier or to its end.
func (w *warp) run() (stopped bool, err error) {
	for {
		if w.block == nil && !w.pick() {
			return false, nil
		}
		b := w.block
		for w.next < len(b.insts) {
			err := b.insts[w.next](w, w.mask)
			w.next++
			if err == errBarrier {
				return true, nil
			}
			if err != nil {
				return false, fmt.Errorf("block %s: %w", b.name, err)
			}
		}
		w.leave(b)
		w.block = nil
	}
}

// pick chooses the block to run, the first that a lane is at.
func (w *warp) pick() bool {
	w.resume = resume{}
	for _, b := range w.at {
		if b != nil && (w.block == nil || b.order < w.block.order) {
			w.block = b
		}
	}
	if w.block == nil {
		return false
	}
	for lane, b := range w.at {
		if b == w.block {
			w.mask |= 1 << lane
		}
	}
	// All phis of a block take their values at once.
	w.arriving = w.arriving[:0]
	for _, p := range w.block.phis {
		for lane := range lanesOf(w.mask) {
			o := p.from[w.from[lane]]
			for i := range p.to.t.lanes() {
				w.arriving = append(w.arriving, arrival{p.to, lane, i, o.get(w, lane, i)})
			}
		}
	}
	for _, s := range w.arriving {
		s.to.set(w, s.lane, s.i, s.x)
	}
	return true
}

// leave sends the lanes on.
func (w *warp) leave(b *block) {
	for lane := range lanesOf(w.mask) {
		w.from[lane] = b
		switch {
		case len(b.branch.to) == 0:
			w.at[lane] = nil
		case b.branch.cond == nil || b.branch.cond.get(w, lane, 0) == 1:
			w.at[lane] = b.branch.to[0]
		default:
			w.at[lane] = b.branch.to[1]
		}
	}
}

// lanesOf are the lanes of a mask.
func lanesOf(mask uint32) func(yield func(int) bool) {
	return func(yield func(int) bool) {
		for ; mask != 0; mask &= mask - 1 {
			if !yield(bits.TrailingZeros32(mask)) {
				return
			}
		}
	}
}

// Address spaces.
const (
	globalSpace = 1
	sharedSpace = 3
)

// bytes is memory at an address, for a lane that reads or writes it.
func (w *warp) memory(as int, address uint64, n int, lane int, write bool) ([]byte, error) {
	if address%uint64(n) != 0 {
		return nil, fmt.Errorf("lane %d: %d bytes at %#x, which is no multiple of that", w.first+lane, n, address)
	}
	switch as {
	case globalSpace:
		if w.waited>>lane&1 == 0 {
			return nil, fmt.Errorf("lane %d: %d bytes at %#x before it waited for the launches before (griddepcontrol.wait)", w.first+lane, n, address)
		}
		for i := range w.buffers {
			b := &w.buffers[(w.hit+i)%len(w.buffers)]
			if at := address - b.address; address >= b.address && at+uint64(n) <= uint64(len(b.bytes)) && (b.write || !write) {
				w.hit = (w.hit + i) % len(w.buffers)
				return b.bytes[at : at+uint64(n)], nil
			}
		}
		return nil, fmt.Errorf("lane %d: %d bytes at %#x are outside of the arguments (write: %v)", w.first+lane, n, address, write)
	case sharedSpace:
		b, touched, err := w.local(address, n, lane)
		if err != nil {
			return nil, err
		}
		for i := range touched {
			if err := w.touch(&touched[i], w.first+lane, write); err != nil {
				return nil, fmt.Errorf("shared memory at %d: %w", address+uint64(touchBytes*i), err)
			}
		}
		return b, nil
	}
	return nil, fmt.Errorf("memory of address space %d", as)
}

// has tells whether an address is in a buffer.
func (w *warp) has(address uint64) bool {
	return slices.ContainsFunc(w.buffers, func(b buffer) bool { return address-b.address < uint64(len(b.bytes)) })
}

// local is shared memory at an address, and who touched it.
func (w *warp) local(address uint64, n, lane int) ([]byte, []touch, error) {
	m, at, what := &w.lds, address, "shared memory"
	if address >= poolBase {
		m, at, what = &w.pool, address-poolBase, "shared memory that the launch gives"
	}
	if at+uint64(n) > uint64(len(m.bytes)) {
		return nil, nil, fmt.Errorf("lane %d: %d bytes at %d of %d bytes of %s", w.first+lane, n, at, len(m.bytes), what)
	}
	return m.bytes[at : at+uint64(n)], m.touched[at/touchBytes : (at+uint64(n)+touchBytes-1)/touchBytes], nil
}

func (w *warp) touch(t *touch, l int, write bool) error {
	lane := int16(l)
	if t.copying {
		return fmt.Errorf("lane %d touches what lane %d copies and has not waited for", lane, t.writer)
	}
	if t.written && t.wrote == w.phase && t.writer != lane {
		return fmt.Errorf("lane %d touches what lane %d wrote, with no barrier between", lane, t.writer)
	}
	if !write {
		if !t.written {
			return fmt.Errorf("lane %d reads what nobody wrote", lane)
		}
		if t.wasReadAt == w.phase && t.reader != lane {
			lane = many
		}
		t.reader, t.wasReadAt = lane, w.phase
		return nil
	}
	if t.wasReadAt == w.phase && t.reader != lane {
		return fmt.Errorf("lane %d writes what another lane read, with no barrier between", lane)
	}
	w.writes++
	t.written, t.writer, t.wrote, t.order = true, lane, w.phase, w.writes
	return nil
}

// get and put are little-endian numbers of 1, 2, 4 or 8 bytes.
func get(b []byte) uint64 {
	var x [8]byte
	copy(x[:], b)
	return binary.LittleEndian.Uint64(x[:])
}

func put(b []byte, x uint64) {
	var y [8]byte
	binary.LittleEndian.PutUint64(y[:], x)
	copy(b, y[:])
}
