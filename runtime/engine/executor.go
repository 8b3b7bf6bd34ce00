package engine

import "github.com/kiln-project/kiln/ir/eval"

// Tensors are named values.
type Tensors map[string]*eval.Tensor

// State is a set of pools where the device keeps them. Only the executor that
// made one understands it; the oracle's are Tensors.
type State any

// Executor runs the entries of one model with its weights bound.
type Executor interface {
	// Device names what computes, for reports.
	Device() string
	// Has reports whether there is an entry of that name.
	Has(entry string) bool
	// Run evaluates an entry with its symbols bound. State pools are updated in
	// place; after an error their content is undefined.
	Run(entry string, bind map[string]int, inputs Tensors, state State) (Tensors, error)
	// NewState makes zeroed pools for an entry, with the symbols of its state
	// types bound.
	NewState(entry string, bind map[string]int) (State, error)
	// Fit is the smallest step shape, at least s, that the entry can run.
	Fit(entry string, s Shape) (Shape, error)
	// MaxPrefill is the largest number of tokens of a prefill step.
	MaxPrefill() int
}
