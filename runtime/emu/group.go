package emu

import (
	"fmt"

	"github.com/kiln-project/kiln/codegen/object"
)

// group is a work-group: its waves and their LDS.
type group struct {
	k       *Kernel
	launch  *Launch
	id      [3]int
	lds     []byte
	waves   []*wave
	regions regions
	kernarg uint64
	private uint64 // bytes of scratch memory of a work-item
	steps   []step
	watch   watcher // nil if nobody looks
}

// slice is how many instructions a wave runs before another of its group has a
// turn: waves may wait for each other without a barrier.
const slice = 1 << 14

func newGroup(k *Kernel, l *Launch, rs regions, kernarg uint64, steps []step) *group {
	g := &group{k: k, launch: l, regions: rs, kernarg: kernarg, steps: steps}
	lds := k.Meta.LDSBytes + l.LDS
	g.lds = make([]byte, lds, (lds+15)&^15) // aligned for atomic operations
	g.private = uint64(k.Meta.Descriptor.ScratchBytes)
	n := k.vgprs
	if k.agprs {
		n = agprs + 256
	}
	items := l.Block[0] * l.Block[1] * l.Block[2]
	for i := range (items + Lanes - 1) / Lanes {
		w := &wave{v: make([]Vec, n), id: i, group: g, scratch: make([]byte, Lanes*g.private)}
		w.items, w.lanes = g.lanes(w.id)
		g.waves = append(g.waves, w)
	}
	return g
}

// start sets up the waves for the group at id (AMDGPUUsage, "Initial Kernel
// Execution State").
func (g *group) start(id [3]int) {
	g.id = id
	d := g.k.Meta.Descriptor
	for _, w := range g.waves {
		w.reset(g.launch.entry)
		if g.launch.reports != nil {
			w.poison()
		}
		at := 0
		for _, p := range []struct {
			bit   object.Property
			words int
			value uint64
		}{
			{object.DispatchPtr, 2, g.launch.dispatch},
			{object.KernargSegmentPtr, 2, g.kernarg},
			{object.FlatScratchInit, 2, 0},
			{object.PrivateSegmentSize, 1, uint64(d.ScratchBytes)},
		} {
			if !d.Has(p.bit) {
				continue
			}
			w.s[at] = uint32(p.value)
			if p.words == 2 {
				w.s[at+1] = uint32(p.value >> 32)
			}
			at += p.words
		}
		for i := range d.PreloadLength() {
			w.s[at+i] = le.Uint32(g.launch.segment[4*(d.PreloadOffset()+i):])
		}
		at = d.UserSGPRs()
		for axis, has := range d.WorkgroupIDs() {
			if has {
				w.s[at] = uint32(id[axis])
				at++
			}
		}
		w.v[0] = w.items
		w.setExec(w.lanes)
	}
	if g.launch.reports != nil {
		for i := range len(g.lds) / 4 {
			le.PutUint32(g.lds[4*i:], poison)
		}
	}
	if g.watch != nil {
		g.watch.start(g)
	}
}

// lanes are the work-items of a wave: their ids, packed as x | y<<10 | z<<20, and the
// mask of the lanes that have one.
func (g *group) lanes(wave int) (ids Vec, mask uint64) {
	b := g.launch.Block
	items := b[0] * b[1] * b[2]
	for i := range min(Lanes, items-wave*Lanes) {
		item := wave*Lanes + i
		mask |= 1 << i
		ids[i] = uint32(item%b[0] | item/b[0]%b[1]<<10 | item/(b[0]*b[1])<<20)
	}
	return ids, mask
}

// run executes up to budget instructions of the group's waves and tells whether all
// of them have ended.
func (g *group) run(budget int) (done bool, err error) {
	for budget > 0 {
		waiting, live := 0, 0
		for _, w := range g.waves {
			if w.status == running {
				n := min(slice, budget)
				budget -= n - w.run(g.steps, n)
			}
			switch w.status {
			case faulted:
				return true, fmt.Errorf("kernel %s: %w", g.k.Meta.Name, w.fault)
			case atBarrier:
				waiting++
				live++
			case running:
				live++
			}
		}
		if live == 0 {
			if g.watch != nil {
				g.watch.end(g)
			}
			return true, nil
		}
		if waiting == live { // a wave that has ended counts no more
			if g.watch != nil {
				g.watch.barrier(g)
			}
			for _, w := range g.waves {
				if w.status == atBarrier {
					w.status = running
				}
			}
		}
	}
	return false, nil
}
