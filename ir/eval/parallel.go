package eval

import (
	"runtime"
	"sync"
)

// parallelWork is the number of multiply-adds below which a second goroutine
// costs more than it saves.
const parallelWork = 1 << 16

// parallel splits 0..n-1 into one range per processor. Each element is computed
// by one goroutine alone, so results do not depend on the split.
func parallel(n, work int, f func(from, to int)) {
	p := runtime.GOMAXPROCS(0)
	if p > n {
		p = n
	}
	if p < 2 || work < parallelWork {
		f(0, n)
		return
	}
	var wg sync.WaitGroup
	for i := range p {
		wg.Go(func() { f(n*i/p, n*(i+1)/p) })
	}
	wg.Wait()
}
