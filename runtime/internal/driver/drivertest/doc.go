// Package drivertest is a HIP runtime without a GPU, for tests of whatever uses
// package driver.
//
// A Fake writes a shared object whose functions jump into Go. The real bindings
// load it like any libamdhip64: the same search, symbols, calling convention and
// structs. Device memory is memory of the process; kernels are run by a function
// of the test, or not at all. What comes in by a pointer is read by the layouts of
// the C headers (layout/), not by the bindings' own types.
//
// It imitates what the bindings rely on: which symbols a version has, the load
// rule of code objects, that the arguments of a launch are copied, the rules of
// captures, the order of graph nodes, errors at a chosen call and devices that
// die. Work is done when it is enqueued; the semantics are ours, not ROCm's.
package drivertest
