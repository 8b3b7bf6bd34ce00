// Package check compares what should be equal: a graph before and after each
// pass, on the evaluator (Passes), and each op of a graph as a device runs it with
// the evaluator's result (Ops), within the limits of the op table. It is the logic
// of kiln check; a test of one's own passes or kernels can call it as well.
package check
