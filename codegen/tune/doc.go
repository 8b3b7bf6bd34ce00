// Package tune holds the tables of what was measured: which of the ways to run a kernel,
// none of which changes a bit of a result, is the fastest for a shape on a target. kiln
// tune writes them. A table names the run that made it, and what a kernel is compiled to
// follows from it alone, not from the machine that compiles.
package tune
