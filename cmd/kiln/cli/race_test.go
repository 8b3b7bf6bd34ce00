//go:build race

package cli

// The race detector multiplies the memory of a process.
const raceDetector = true
