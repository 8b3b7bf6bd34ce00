// Package eval is the oracle: it evaluates a tensor IR graph directly.
//
// Compile expands every composite into primitives by its decomposition, which
// is its meaning, and gives each primitive its evaluator (the evaluators
// table). Sums are accumulated in float64 in index order and rounded once to
// the declared dtype, so the degree of parallelism changes no bit.
package eval
