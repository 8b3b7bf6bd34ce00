// Package driver binds the HIP runtime and the CUDA driver API, without cgo.
//
// The two agree call for call in what Kiln needs: one table (functions) holds
// both spellings, and the few places that differ say so: how a device becomes
// current, how an error gets its text, the numbers of device attributes, the
// struct of a kernel node. So a run on one vendor's hardware exercises what the
// other will use.
//
// A Device owns one operating system thread, on which every call of it is made:
// the current device, the mode of a stream capture and the last error belong to a
// thread. Memory that C code keeps or follows pointers in lies outside of the Go
// heap. Whatever a Device made is closed by its own Close; what is still open when
// the device is closed is an error that lists it.
package driver
