// Package host is device host: launches run on the CPU of this process. A bundle's
// shared object is loaded with dlopen, without cgo, and its kernels are called
// directly.
package host
