// Package kiln is the root of the Kiln module and holds no code: the folders
// below it do, and the test beside this file enforces which of them may import
// which.
//
// Kiln is a graph compiler and runtime for the DeepSeek-V4 forward pass:
// ir holds the tensor IR and ir/eval its reference evaluator, passes rewrite
// it, codegen turns it into launches, runtime executes, models/dsv4 builds the
// model, and cmd/kiln is the command.
package kiln
