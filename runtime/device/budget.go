package device

import (
	"context"
	"sync"
)

// budget is memory that jobs take while they run.
type budget struct {
	mu   sync.Mutex
	cond *sync.Cond
	left int64
}

func newBudget(n int64) *budget {
	b := &budget{left: n}
	b.cond = sync.NewCond(&b.mu)
	return b
}

// take waits until n bytes are left; false if the context is done before.
func (b *budget) take(ctx context.Context, n int64) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	for b.left < n {
		if ctx.Err() != nil {
			return false
		}
		b.cond.Wait()
	}
	b.left -= n
	return true
}

func (b *budget) give(n int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.left += n
	b.cond.Broadcast()
}

// wake lets those that wait look at their context.
func (b *budget) wake() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.cond.Broadcast()
}
