package weights

import (
	"os"
	"syscall"
)

type advice int

const (
	willNeed   advice = syscall.MADV_WILLNEED
	dontNeed   advice = syscall.MADV_DONTNEED
	sequential advice = syscall.MADV_SEQUENTIAL
)

var pageSize = os.Getpagesize()

// advise tells the system about a part of the mapping that starts at a page. What
// comes back is not looked at: advice may be refused.
func (m mapping) advise(b []byte, what advice) { _ = syscall.Madvise(b, int(what)) }
