//go:build !linux

package driver

// ThreadID is never the number of a device's thread: no device opens here.
func ThreadID() int { return -1 }
