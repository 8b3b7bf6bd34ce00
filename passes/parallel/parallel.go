// Package parallel runs equal pieces of work on all cores.
package parallel

import (
	"errors"
	"runtime"
	"sync"
	"sync/atomic"
)

// Do calls f with 0 to n-1, on as many goroutines as there are cores, and waits for all.
func Do(n int, f func(i int)) {
	var next atomic.Int64
	var wg sync.WaitGroup
	for range min(n, runtime.GOMAXPROCS(0)) {
		wg.Go(func() {
			for i := int(next.Add(1)) - 1; i < n; i = int(next.Add(1)) - 1 {
				f(i)
			}
		})
	}
	wg.Wait()
}

// Each is Do of what can fail. The error joins those of the calls, in the order of their
// numbers.
func Each(n int, f func(i int) error) error {
	errs := make([]error, n)
	Do(n, func(i int) { errs[i] = f(i) })
	return errors.Join(errs...)
}

// First is Each with the error of the lowest number alone.
func First(n int, f func(i int) error) error {
	errs := make([]error, n)
	Do(n, func(i int) { errs[i] = f(i) })
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}
