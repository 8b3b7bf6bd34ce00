// Package codegen is the home of code generation: the launch plan (plan), the
// kernel builder and library (kernel, kernels), the targets (target), the LLVM
// driver (llvm) and the reader of code objects (object). None of them exists
// yet; models run in the reference evaluator, package ir/eval.
package codegen
