// Package warpsim runs kernels for NVIDIA GPUs without one: it executes the LLVM IR
// that package kernel emits, before LLVM sees it, a warp of 32 lanes in lock-step, for
// tests. Of instructions and intrinsics it knows those that kernels have; another one is
// an error that names it. It says nothing about what LLVM and the driver make of the IR.
//
// It refuses what a GPU would run in its own way: an access outside of what the launch
// has as arguments, shared memory that is read before it is written, or that two lanes
// touch between two barriers, one of them writing; and a barrier, shuffle, vote or matrix
// product that some lanes do not reach.
package warpsim
