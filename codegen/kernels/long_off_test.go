//go:build !long

package kernels_test

// long tells whether the tests of the build tag "long" run.
const long = false
