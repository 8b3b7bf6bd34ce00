// Package plan is what a compiled entry consists of: launches over slices of
// memory, ready to be run by any device. It knows nothing of graphs or LLVM.
package plan

// Version is the format's version: a plan of another version is refused.
const Version = 1

// Plan runs one entry with one binding.
type Plan struct {
	Version  int       `json:"version"`
	Entry    string    `json:"entry"`
	Target   string    `json:"target"`
	Binding  []Binding `json:"binding"`     // sorted by symbol
	Arena    int64     `json:"arena_bytes"` // scratch memory of one run, inputs and outputs included
	Inputs   []Tensor  `json:"inputs"`
	Outputs  []Tensor  `json:"outputs"`
	States   []Tensor  `json:"states"`  // pools, updated in place
	Weights  []Tensor  `json:"weights"` // bound once
	Launches []Launch  `json:"launches"`
}

// Binding gives a symbol its value.
type Binding struct {
	Symbol string `json:"symbol"`
	Value  int    `json:"value"`
}

// Space says which memory a slice is in.
type Space string

// The memory spaces.
const (
	Arena  Space = "arena"
	State  Space = "state"
	Weight Space = "weight"
)

// Tensor is a named value and where it lies. Type is IR text with integer
// extents. Block-scaled weights have their scales in a second slice.
type Tensor struct {
	Name   string `json:"name"`
	Type   string `json:"type"`
	Data   Slice  `json:"data"`
	Scales *Slice `json:"scales,omitempty"`
}

// Slice is a run of bytes: in the arena, or in the data (Part 0) or scales
// (Part 1) of a named pool or weight.
type Slice struct {
	Space  Space  `json:"space"`
	Name   string `json:"name,omitempty"` // of the pool or weight
	Part   int    `json:"part,omitempty"`
	Offset int64  `json:"offset,omitempty"`
	Bytes  int64  `json:"bytes"`
}

// Launch runs one kernel over a grid of groups.
type Launch struct {
	Kernel string `json:"kernel"` // symbol in the code object
	Form   string `json:"form"`   // kernel form of the library, e.g. "gemm8"
	Op     string `json:"op"`
	Loc    string `json:"loc,omitempty"`
	Grid   int    `json:"grid"`
	Work   int64  `json:"work"` // rough number of element operations: whether to split it over cores
	Args   []Arg  `json:"args"`
}

// Arg is one kernel argument: a buffer, or an integer when Buf is nil.
type Arg struct {
	Buf  *Slice `json:"buf,omitempty"`
	Mode Mode   `json:"mode,omitempty"`
	Int  int64  `json:"int,omitempty"`
}

// Mode says what a kernel does with a buffer.
type Mode string

// The modes.
const (
	Read   Mode = "r"
	Write  Mode = "w"
	Update Mode = "rw"
)
