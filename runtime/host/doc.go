// Package host runs plans on the CPU of this process: a bundle's shared object
// is loaded with dlopen, without cgo, and its kernels are called directly.
package host
