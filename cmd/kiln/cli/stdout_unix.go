//go:build unix

package cli

import (
	"os"

	"golang.org/x/sys/unix"
)

// closedOutput tells of standard output whether it was closed when the process started:
// Go opens the null device in its place, to read and to write. A program that gives its
// child that very thing cannot be told apart.
func closedOutput(f *os.File) bool {
	var is, null unix.Stat_t
	flags, err := unix.FcntlInt(f.Fd(), unix.F_GETFL, 0)
	if err != nil || flags&unix.O_ACCMODE != unix.O_RDWR {
		return false
	}
	return unix.Fstat(int(f.Fd()), &is) == nil && unix.Stat(os.DevNull, &null) == nil && is.Rdev == null.Rdev && is.Mode == null.Mode
}
