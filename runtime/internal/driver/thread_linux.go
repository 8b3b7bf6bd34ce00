package driver

import "syscall"

// threadID identifies the operating system thread that calls it.
func threadID() int { return syscall.Gettid() }
