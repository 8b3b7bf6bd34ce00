// Package kernels is the kernel library: for each op, the forms that can run
// it. A form says whether it matches an op on a target, and lowers the op to
// launches of kernels that it builds with package kernel.
//
// One file per op or family of ops. The generic emitter (generic_*.go) takes
// every primitive, so any valid graph compiles.
package kernels
