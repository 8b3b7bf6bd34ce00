package llvm

import (
	"context"
	"sync"
)

// NewLater is New in mode [Auto] without starting anything yet: the first job does. Who
// finds all that is asked for in a cache needs no worker.
func NewLater(tc *Toolchain, opts Options) Compiler {
	opts.Mode = Auto
	return &later{tc: tc, opts: opts}
}

// later makes its compiler on first use.
type later struct {
	tc   *Toolchain
	opts Options

	mu     sync.Mutex
	made   Compiler // nil: not yet
	closed bool
}

func (l *later) get(ctx context.Context) (Compiler, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return nil, ErrClosed
	}
	if l.made == nil {
		made, err := New(ctx, l.tc, l.opts)
		if err != nil {
			return nil, err // the next job tries again: this one's context may have ended
		}
		l.made = made
	}
	return l.made, nil
}

func (l *later) Compile(ctx context.Context, job Job) (Result, error) {
	c, err := l.get(ctx)
	if err != nil {
		return Result{}, job.fail("worker", "", err)
	}
	return c.Compile(ctx, job)
}

func (l *later) Mode() (Mode, string) {
	c, err := l.get(context.Background())
	if err != nil {
		return Auto, err.Error()
	}
	return c.Mode()
}

func (l *later) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	if l.made == nil {
		return nil
	}
	return l.made.Close()
}
