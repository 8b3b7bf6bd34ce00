package driver

import "syscall"

// ThreadID identifies the operating system thread that calls it.
func ThreadID() int { return syscall.Gettid() }
