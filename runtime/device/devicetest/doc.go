// Package devicetest is what the tests of devices have in common: a compiler with a
// cache, an executor that compiles what it meets, and the golden suite over it, so
// that every device runs the same one. Only tests import it.
package devicetest
