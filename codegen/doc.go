// Package codegen turns bound graphs into plans and native code: it selects a
// kernel form for every op (select.go), lays out memory (memory.go), and compiles
// and links the kernels (compile.go) through a cache (cache.go).
//
// Its subpackages: plan (what a device runs), kernel (the SPMD builder over LLVM
// IR), kernels (the library of kernel forms), target (the machines), tune (tables of
// measured choices), llvm (the driver of LLVM), object (the reader of code objects),
// bundle (compiled models on disk).
package codegen
