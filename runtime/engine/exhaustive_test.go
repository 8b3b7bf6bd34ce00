//go:build !long

package engine

// exhaustive widens the tests that sample otherwise.
const exhaustive = false
