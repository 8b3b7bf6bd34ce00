// Package engine runs a model's entries: it builds the metadata of each step,
// keeps the state pools, samples, and generates text.
//
// Executor is the border to whatever computes: Ref is the oracle of ir/eval.
package engine
