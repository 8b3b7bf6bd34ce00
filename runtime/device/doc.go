// Package device is what plans run on: the interface of a device, and over it the
// one executor of plans. Packages beside this one implement the interface.
//
// Who owns what: an Executor takes over its device and has one Model; a Model is a
// loaded code object with its weights and its arena, which all of its Programs
// share; a Program is a plan of the model; a State is a set of pools. A program
// prepares one Sequence for each state that it meets.
//
// Nothing here is safe for concurrent use.
package device
