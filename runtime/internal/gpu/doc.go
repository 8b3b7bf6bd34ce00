// Package gpu is what plans run on where there is a GPU driver: device.Device over
// the bindings of package driver, the same for both vendors. Packages hip and cuda
// add how their code is loaded.
//
// All work goes through one stream. What the host writes is copied to pinned memory
// at once and enqueued with the next launches. A step's inputs and small outputs need
// no copies: its own first and last kernel read and write pinned memory (step.go), so
// that it crosses to the device's thread once.
package gpu
