// Package ir is Kiln's tensor IR: a pure SSA graph over typed tensors.
//
// A Graph has inputs, weights, state pools and ops. State is a value like any
// other: it goes in, and the updated value comes out (Update). Every op is one
// row of the op table (OpDef): operands, attributes, type inference, cost and,
// for composites, the decomposition into simpler ops that is its meaning.
// Primitives are given their meaning by package ir/eval.
//
// Text form (.kir): Print and Parse round-trip exactly.
package ir
