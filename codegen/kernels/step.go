package kernels

import (
	"github.com/kiln-project/kiln/codegen/kernel"
	"github.com/kiln-project/kiln/ir"
)

// The kernels around the launches of a step. The prologue takes inputs from memory
// of the host that both see, and the epilogue puts small outputs there, with the
// step's number: a replay reads and writes through its own kernels, so that nothing
// has to be copied in front of it or behind it. Their layout of memory is package
// gpu's (runtime/internal/gpu/step.go).

// Names of the forms and of the kernels.
const (
	StepPrologue = "step_prologue"
	StepEpilogue = "step_epilogue"
)

// A row of the table that tells each group what to copy, in 64-bit words.
const (
	stepAddress = iota // of memory on the device
	stepOffset         // in the block of the host, in words
	stepBytes          // how many to copy, to or from the address
	stepStamp          // where the group leaves the step's number, in words: the prologue in the device's block, the epilogue in the host's
	stepRow            // the size of a row
)

// Words of the device's block.
const (
	stepStarted  = iota // number of the step that was started last, the device's own count
	stepFinished        // and of the one that was finished last
)

// Steps are the prologue and the epilogue. A group has a row of the table.
func Steps() [2]RuntimeKernel {
	params := func(hostOut bool) []kernel.Param {
		return []kernel.Param{{Name: "host", Mem: ir.I64, Out: hostOut}, {Name: "rows", Mem: ir.I64}, {Name: "state", Mem: ir.I64, Out: true}}
	}
	return [2]RuntimeKernel{{StepPrologue, params(false), prologue}, {StepEpilogue, params(true), epilogue}}
}

// prologue copies inputs to the device. The first word of the host's block is the
// step's number, which was written after the inputs: each group leaves the number
// that it read, so that the host learns of one that read an old block.
func prologue(k *kernel.K, b []*kernel.Buf, _ []kernel.V) {
	host, row, state := b[0], b[1].At(k.Mul(k.Group(), k.Int(stepRow))), b[2]
	to := k.Memory(row.Load(k.Int(stepAddress)), ir.I64)
	from, bytes := host.At(row.Load(k.Int(stepOffset))), row.Load(k.Int(stepBytes))
	words := k.LShr(bytes, k.Int(3))
	step := host.LoadSystem(k.Int(0)) // far away: the row is on its way meanwhile
	k.AcquireSystem()
	k.Lanes(words, func(i kernel.V) { to.StoreBits(i, from.LoadSystem(i)) })
	rest := k.And(bytes, k.Int(7))
	tail := to.At(words).Bytes()
	k.Lanes(rest, func(i kernel.V) {
		last := k.LShr(from.LoadSystem(words), k.Shl(i, k.Int(3)))
		tail.Store(i, k.Convert(last, kernel.I32))
	})
	k.First(func() { state.StoreBits(row.Load(k.Int(stepStamp)), step) })
	k.If(k.Cmp(kernel.EQ, k.Group(), k.Int(0)), func() {
		k.First(func() {
			started := k.Add(state.Load(k.Int(stepFinished)), k.Int(1))
			state.StoreBits(k.Int(stepStarted), started)
		})
	})
}

// epilogue copies outputs to the host. Each group leaves the step's number, after all
// that it copied; it is the device's own, which counts the runs.
func epilogue(k *kernel.K, b []*kernel.Buf, _ []kernel.V) {
	host, row, state := b[0], b[1].At(k.Mul(k.Group(), k.Int(stepRow))), b[2]
	step := state.Load(k.Int(stepStarted))
	from := k.Memory(row.Load(k.Int(stepAddress)), ir.I64)
	to, bytes := host.At(row.Load(k.Int(stepOffset))), row.Load(k.Int(stepBytes))
	words := k.LShr(bytes, k.Int(3))
	k.Lanes(words, func(i kernel.V) { to.StoreSystem(i, from.LoadBits(i)) })
	rest := k.And(bytes, k.Int(7))
	tail, out := from.At(words).Bytes(), to.At(words).Bytes()
	k.Lanes(rest, func(i kernel.V) { out.StoreBits(i, tail.LoadBits(i)) })
	// Both: what each wave has stored leaves the device before the group meets, and the
	// lane that says so has it behind it.
	k.ReleaseSystem()
	k.Barrier()
	k.First(func() {
		k.ReleaseSystem()
		host.StoreSystem(row.Load(k.Int(stepStamp)), step)
	})
	k.If(k.Cmp(kernel.EQ, k.Group(), k.Int(0)), func() {
		k.First(func() { state.StoreBits(k.Int(stepFinished), step) })
	})
}
