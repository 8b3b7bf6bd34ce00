//go:build !linux

package driver

// threadID is never the number of a device's thread: no device opens here.
func threadID() int { return -1 }
