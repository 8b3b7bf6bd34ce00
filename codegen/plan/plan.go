// Package plan is what a compiled entry consists of: launches over slices of
// memory, ready to be run by any device. It knows nothing of graphs or LLVM.
package plan

import "fmt"

// Version is the format's version: a module of another version is refused.
const Version = 4

// Module is what is compiled for one target: the memory and the kernels that all
// of its plans share, each declared once, and the plans.
type Module struct {
	Version int       `json:"version"`
	Target  string    `json:"target"`
	Block   int       `json:"block"`   // work-items of a group; on the host, 1
	States  []Storage `json:"states"`  // pools, updated in place
	Weights []Storage `json:"weights"` // bound once
	Kernels []Kernel  `json:"kernels"`
	// Step are the kernels around the launches of every run on a GPU. No plan launches
	// them; nil on the host, and if there are no other kernels.
	Step *Step `json:"step,omitempty"`
	// Decomposed lists the composites that no kernel form of the target took.
	Decomposed []Decomposed `json:"decomposed"`
	Plans      []*Plan      `json:"-"` // files of their own
}

// Storage is memory that outlives a run. Type is IR text with integer extents;
// block-scaled weights have their scales in a second part.
type Storage struct {
	Name  string   `json:"name"`
	Type  string   `json:"type"`
	Bytes [2]int64 `json:"bytes"` // data, scales
}

// Kernel is one function of the code object.
type Kernel struct {
	Symbol string `json:"symbol"`
	Form   string `json:"form"` // kernel form of the library, e.g. "gemm8"
	Spec   string `json:"spec"` // all that its code depends on besides form and target
	// Params are its parameters: a memory format that is read, "=" and one that is
	// written, or "int".
	Params []string `json:"params"`
	// Shared is how many bytes of shared memory a launch gives, beyond what the code
	// declares. A kiln that does not know of them refuses the module.
	Shared int `json:"shared,omitempty"`
	// Rejected are the forms that were looked at before this one for an op that
	// the kernel runs.
	Rejected []Rejected `json:"rejected,omitempty"`
}

// Step names two of a module's kernels by index: the prologue takes inputs from
// memory of the host, the epilogue leaves small outputs and the step's number there.
type Step struct {
	Prologue int `json:"prologue"`
	Epilogue int `json:"epilogue"`
}

// Around is how many kernels run around the launches of a plan.
func (m *Module) Around() int {
	if m.Step == nil {
		return 0
	}
	return 2
}

// StepParams are the parameters of the kernels around a step, as many for both; none
// without them.
func (m *Module) StepParams() []string {
	if m.Step == nil {
		return nil
	}
	return m.Kernels[m.Step.Prologue].Params
}

// Rejected is a form that did not take an op, and why.
type Rejected struct {
	Form   string `json:"form"`
	Reason string `json:"reason"`
}

// Decomposed is a composite op that was replaced by its definition.
type Decomposed struct {
	Op       string     `json:"op"`
	Loc      string     `json:"loc"` // the first place
	Count    int        `json:"count"`
	Rejected []Rejected `json:"rejected,omitempty"`
}

// Plan runs one entry with one binding.
type Plan struct {
	Entry    string    `json:"entry"`
	Binding  []Binding `json:"binding"`     // sorted by symbol
	Arena    int64     `json:"arena_bytes"` // scratch memory of one run, inputs and outputs included
	Inputs   []Tensor  `json:"inputs"`
	Outputs  []Tensor  `json:"outputs"`
	States   []int     `json:"states"` // the module's pools that the entry has
	Values   []Value   `json:"values"` // what the arena holds, in the order of Sort
	Launches []Launch  `json:"launches"`
}

// Binding gives a symbol its value.
type Binding struct {
	Symbol string `json:"symbol"`
	Value  int    `json:"value"`
}

// Symbol is the value that the binding gives a symbol; 0 if it has none.
func (p *Plan) Symbol(name string) int {
	for _, b := range p.Binding {
		if b.Symbol == name {
			return b.Value
		}
	}
	return 0
}

// Rows is the number of token rows of a step: symbol T, or what makes it up, or the
// length of input ids where rows are no symbol.
func (p *Plan) Rows() int {
	if t := p.Symbol("T"); t > 0 {
		return t
	}
	b := p.Symbol("B")
	if k := p.Symbol("K"); k > 0 {
		return b * (k + 1)
	}
	for i := range p.Inputs {
		var n int
		if in := &p.Inputs[i]; in.Name == "ids" {
			if _, err := fmt.Sscanf(in.Type, "i32[%d]", &n); err == nil {
				return n
			}
		}
	}
	return b
}

// Space says which memory a slice is in.
type Space byte

// The memory spaces, by the letter that texts have for them.
const (
	Arena  Space = 'a'
	State  Space = 's'
	Weight Space = 'w'
)

func (s Space) String() string {
	switch s {
	case Arena:
		return "arena"
	case State:
		return "state"
	case Weight:
		return "weight"
	}
	return "space " + string(rune(s))
}

// Tensor is a named value of a run and where it lies. Type is IR text with
// integer extents.
type Tensor struct {
	Name   string `json:"name"`
	Type   string `json:"type"`
	Data   Slice  `json:"data"`
	Scales *Slice `json:"scales,omitempty"`
}

// Slice is a run of bytes: in the arena, or in the data (Part 0) or scales
// (Part 1) of a pool or weight of the module.
type Slice struct {
	Space  Space
	Index  int // of the pool or weight
	Part   int
	Offset int64
	Bytes  int64
}

// Launch runs one kernel over a grid of groups.
type Launch struct {
	Kernel int    `json:"k"` // index in the module's kernels
	Op     string `json:"op"`
	Loc    string `json:"loc,omitempty"`
	Grid   int    `json:"grid"`
	Work   int64  `json:"work"` // rough number of element operations: whether to split it over cores
	// Flops is the launch's part of the op's floating point operations; Rate is the
	// arithmetic, of those that a chip has a rate for, that they are done in. Bytes
	// is what the launch reads and writes when every row that it may gather is there
	// and a request's tokens gather the same ones.
	Flops int64  `json:"flops,omitempty"`
	Bytes int64  `json:"bytes"`
	Rate  string `json:"rate,omitempty"`
	Args  []Arg  `json:"args"`
}

// Arg is one kernel argument: a buffer, or an integer when Mode is empty.
type Arg struct {
	Buf  Slice
	Mode Mode
	Int  int64
}

// Mode says what a kernel does with a buffer.
type Mode string

// The modes.
const (
	Read   Mode = "r"
	Write  Mode = "w"
	Update Mode = "rw"
)
