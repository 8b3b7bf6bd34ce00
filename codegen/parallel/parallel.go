// Package parallel runs equal pieces of work on all cores.
package parallel

import (
	"errors"
	"runtime"
	"sync"
	"sync/atomic"
)

// Each calls f with 0 to n-1, on as many goroutines as there are cores, and waits for all.
// The error joins those of the calls, in the order of their numbers.
func Each(n int, f func(i int) error) error {
	errs := make([]error, n)
	var next atomic.Int64
	var wg sync.WaitGroup
	for range min(n, runtime.GOMAXPROCS(0)) {
		wg.Go(func() {
			for i := int(next.Add(1)) - 1; i < n; i = int(next.Add(1)) - 1 {
				errs[i] = f(i)
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}
