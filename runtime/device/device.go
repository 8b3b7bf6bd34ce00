package device

import (
	"errors"
	"fmt"

	"github.com/kiln-project/kiln/codegen/plan"
)

// Device is a machine that executes launches, one after the other in the order in
// which sequences are run. It may be behind: work that was started need not have
// been done until Sync, or until memory is read.
type Device interface {
	// Name is what --device takes: host, emu, hip, cuda.
	Name() string
	// Chip is the name of the best target (codegen/target) that it runs.
	Chip() string
	// Alloc reserves memory, aligned to plan.Align. Zero bytes have an address, too.
	// The content is undefined until it is written.
	Alloc(bytes int64) (Memory, error)
	// Load loads a code object and finds its kernels; a missing one is an error that
	// names it. Empty code is a library without kernels.
	Load(code []byte, kernels []string) (Library, error)
	// Sync waits for all work and returns its error.
	Sync() error
	// Close gives the device back. What was made on it must have been closed.
	Close() error
}

// MemoryReporter is a Device that knows how much memory it has; one whose memory is
// this process's is none.
type MemoryReporter interface {
	// Memory is how many bytes are free, and of how many.
	Memory() (free, total uint64, err error)
}

// Memory is a block of device memory. Offsets and lengths are bytes; a range
// outside the block is an error.
type Memory interface {
	// Address is what kernels get; it need not mean anything to this process.
	Address() uint64
	// Size is the number of bytes that Alloc was asked for.
	Size() int64
	// Write copies src to the block, after the work that was started before. When it
	// returns, src may change.
	Write(offset int64, src []byte) error
	// Read copies from the block to dst, after the work that was started before, and
	// reports an error of that work.
	Read(offset int64, dst []byte) error
	// Zero writes zeros to the whole block, after the work that was started before.
	Zero() error
	// Bytes is the block itself, if it is memory of this process and launches are
	// done when Sequence.Run returns; else nil. It is valid until Free.
	Bytes() []byte
	// Free gives the block back, after the work that uses it.
	Free() error
}

// Library is loaded code.
type Library interface {
	// Prepare makes launches ready to be run as a whole, any number of times. The
	// sequence may keep the launches, which must not change.
	Prepare([]Launch) (Sequence, error)
	// Close unloads the code. Its sequences must have been closed.
	Close() error
}

// Sequence is a list of launches with all of their arguments.
type Sequence interface {
	// Run starts the launches, each after the one before. What goes wrong in one is
	// a *LaunchError where the device knows which.
	Run() error
	// Close frees what Prepare made. It does not touch the buffers of the launches,
	// which may be gone.
	Close() error
}

// StepLibrary is a Library that runs steps: launches between a prologue and an
// epilogue, kernels of the library, which bring the inputs from this process's memory
// and put outputs there. A device whose memory is this process's needs none.
type StepLibrary interface {
	Library
	// PrepareStep is Prepare for a step.
	PrepareStep(StepLaunches) (Step, error)
}

// StepLaunches are the launches of a step, the kernels around them, and what those
// bring.
type StepLaunches struct {
	Prologue, Epilogue Launch // kernel, symbol and block: the device gives grid and arguments
	Launches           []Launch
	In, Out            []Region
}

// Region is a run of bytes of device memory.
type Region struct {
	Name    string
	Address uint64
	Bytes   int64
}

// Step is a sequence that is given its inputs in memory of this process.
type Step interface {
	// Input is where input i is written before Run; it keeps what was written.
	Input(i int) []byte
	// Output is where output i lies after Run, until the next one; nil if it is too
	// large for that: then it is read from the device's memory.
	Output(i int) []byte
	// Run runs the step to its end. It is an error if the device has worked with
	// older inputs, or has not run the step exactly once.
	Run() error
	// Close is Sequence.Close.
	Close() error
}

// ErrStale: a step worked with the inputs of another one, or its results are another
// one's.
var ErrStale = errors.New("stale read")

// Launch runs one kernel over a grid of groups. All but Kernel, Grid, Block, Work
// and the arguments' values are for reports.
type Launch struct {
	Kernel  int    // index in the kernels that the library was loaded with
	Symbol  string // its name there
	Form    string // kernel form of the library, e.g. "gemm8"
	Op, Loc string // what it computes, and of which part of the model
	Grid    int    // groups, along x
	Block   int    // work-items of a group, along x: 1 on the host
	Shared  int    // bytes of shared memory that the launch gives a group
	Work    int64  // rough number of element operations
	Args    []Arg
}

// Arg is one kernel argument, 8 bytes: a buffer, or an integer when Mode is empty.
type Arg struct {
	Int int64

	Address uint64
	Bytes   int64 // the kernel may touch these bytes of the buffer and no others
	Mode    plan.Mode
	Label   string // what lies there: "weight NAME", "state NAME", "value NAME" of the arena
	// First: the launch is the first that touches the value, whose bytes hold nothing
	// before. Last: no launch touches it after this one, and the run does not return
	// it. Both are false of states and weights.
	First, Last bool
}

// LaunchError is what went wrong in a launch of a sequence.
type LaunchError struct {
	Index           int // in the sequence; Around for the kernels around a step
	Symbol, Op, Loc string
	Err             error
}

// Around is the index of a kernel around the launches of a step.
const Around = -1

// Failed is the error of a launch with its place in the sequence.
func (l *Launch) Failed(index int, err error) *LaunchError {
	return &LaunchError{Index: index, Symbol: l.Symbol, Op: l.Op, Loc: l.Loc, Err: err}
}

func (e *LaunchError) Error() string {
	at := ""
	if e.Loc != "" {
		at = " at " + e.Loc
	}
	if e.Index == Around {
		return fmt.Sprintf("kernel %s (%s): %v", e.Symbol, e.Op, e.Err)
	}
	return fmt.Sprintf("launch %d, kernel %s (%s%s): %v", e.Index, e.Symbol, e.Op, at, e.Err)
}

// Unwrap returns the device's error.
func (e *LaunchError) Unwrap() error { return e.Err }
