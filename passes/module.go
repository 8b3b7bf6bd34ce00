package passes

import "github.com/kiln-project/kiln/ir"

// Module is what passes work on: the entries of one model, the pack graph that is
// evaluated once when weights are bound, and, while a target is compiled for, the
// steps.
type Module struct {
	Entries []*ir.Graph
	Pack    *ir.Graph // nil until a pass hoists something
	// FNUZ: the target's 8-bit floats are e4m3fnuz.
	FNUZ bool

	Buckets []Bucket // asks for the steps
	Steps   []*Step  // nil until bind
	Backend Backend  // of the target
}

// Bucket asks for one step: an entry with all of its symbols bound. Symbols that
// the entry lacks are ignored.
type Bucket struct {
	Entry string
	Bind  map[string]int
}

// Step is an entry bound to a bucket.
type Step struct {
	Graph *ir.Graph
	Bind  map[string]int // the entry's symbols only
}

// Backend is the target's part of the required passes.
type Backend interface {
	// SelectKernels turns a step into launches over memory without addresses.
	SelectKernels(*Step) error
	// PlanMemory gives the memory of a step's launches addresses.
	PlanMemory(*Step) error
}
