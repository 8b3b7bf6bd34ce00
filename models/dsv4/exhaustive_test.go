//go:build !long

package dsv4_test

// exhaustive widens the tests that sample otherwise.
const exhaustive = false
