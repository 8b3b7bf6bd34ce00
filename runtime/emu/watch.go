package emu

// accessKind is what a memory instruction does with an address.
type accessKind uint8

const (
	accessRead accessKind = iota
	accessWrite
	accessAtomic
)

// watcher observes a launch: the sanitizers, the counters, a trace. Groups run on
// several goroutines at once; the calls for one group come from one at a time.
type watcher interface {
	// start is called when a group's waves are set up, and end when they have ended.
	start(g *group)
	end(g *group)
	// before is called before each instruction.
	before(w *wave, in *Inst)
	// access is called before size bytes of global memory at an address are read or
	// written by a lane (-1: by the scalar unit).
	access(w *wave, in *Inst, lane int, address, size uint64, kind accessKind)
	// lds is the same for the group's LDS.
	lds(w *wave, in *Inst, lane int, offset, size uint32, kind accessKind)
	// barrier is called when all waves of a group have reached one.
	barrier(g *group)
}
