package devicetest

import (
	"errors"
	"fmt"
	"os"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Anonymous is how much anonymous memory of this process is resident: heap, stacks and
// private mappings, and neither files that are mapped nor shared memory. Of the sizes
// that Linux has, VmRSS and VmHWM count pages of mapped files, which belong to the
// system's cache and are dropped when somebody needs memory: they would say that a
// checkpoint of 8 GB takes 8 GB.
func Anonymous() (int64, error) {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0, fmt.Errorf("%w (%w)", ErrNoAnonymous, err)
	}
	for line := range strings.Lines(string(status)) {
		if f := strings.Fields(line); len(f) == 3 && f[0] == "RssAnon:" {
			kib, err := strconv.ParseInt(f[1], 10, 64)
			return kib << 10, err
		}
	}
	return 0, ErrNoAnonymous
}

// ErrNoAnonymous is the error where there is no such number.
var ErrNoAnonymous = errors.New("no RssAnon in /proc/self/status")

// Peak is the most anonymous memory while f runs, looked at each millisecond, and what
// there was before. The system does not keep a peak of it.
func Peak(f func() error) (before, peak int64, err error) {
	debug.FreeOSMemory()
	if before, err = Anonymous(); err != nil {
		return 0, 0, err
	}
	stop := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		tick := time.NewTicker(time.Millisecond)
		defer tick.Stop()
		for {
			n, _ := Anonymous() // it has worked before
			peak = max(peak, n)
			select {
			case <-stop:
				return
			case <-tick.C:
			}
		}
	})
	err = f()
	close(stop)
	wg.Wait()
	return before, peak, err
}
