package passes

import (
	"github.com/kiln-project/kiln/ir"
)

// Module is what passes work on: the entries of one model, the pack graph that is
// evaluated once when weights are bound, and, while a target is compiled for, the
// steps.
type Module struct {
	Entries []*ir.Graph
	Pack    *ir.Graph // nil until a pass hoists something
	Target  Target    // the zero Target: none in particular
	Config  Config

	Buckets []Bucket // asks for the steps
	Steps   []*Step  // nil until bind
	Backend Backend  // of the target

	Remarks []Remark // of all passes that ran, in order
	applied int      // applications of optional passes so far
	visits  int      // of ops and uses, by rules so far

	unverified bool // graphs are verified later on, not after each pass
	// While the buckets are lowered one by one: which one this is, and of how many; else 0.
	bucket, of int
}

// Target is what passes may know of a target.
type Target struct {
	Name string // "" for none in particular
	Chip string // the name without features; rows of the threshold table name it
	GPU  bool
	// FNUZ: its 8-bit floats are e4m3fnuz.
	FNUZ bool
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
	Set   map[string]int // thresholds that the user set, by key
}

// Backend is the target's part of the required passes.
type Backend interface {
	// SelectKernels turns a step into launches over memory without addresses.
	SelectKernels(*Step) error
	// JoinLaunches has launches of a step that do not need each other run as one.
	JoinLaunches(*Step) error
	// PlanMemory gives the memory of a step's launches addresses.
	PlanMemory(*Step) error
}

// Context is what a pass sees beside its graph.
type Context struct {
	Module *Module
	pass   string
	graph  string
}

// visit counts that a rule looks at an op, or at a use of a value: a test holds the
// count to the number of ops.
func (c *Context) visit() { c.Module.visits++ }

// Target is the target compiled for.
func (c *Context) Target() Target { return c.Module.Target }

// Threshold is a number of the threshold table, or what the user set.
func (c *Context) Threshold(key string) (int, error) {
	if n, ok := c.Module.Config.Set[key]; ok {
		return n, nil
	}
	t, err := ThresholdOf(key, c.Module.Target.Chip)
	return t.Value, err
}
