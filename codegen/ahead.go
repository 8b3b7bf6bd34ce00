package codegen

import (
	"context"
	"sync"

	"github.com/kiln-project/kiln/codegen/llvm"
	"github.com/kiln-project/kiln/codegen/target"
)

// ahead compiles kernels as they are made, while others are still lowered: LLVM takes most
// of the time of a build, and lowering does not keep all cores busy. Kernels that several
// units have are compiled once.
type ahead struct {
	c    *Compiler
	t    *target.Target
	ctx  context.Context
	stop context.CancelFunc
	wg   sync.WaitGroup

	mu   sync.Mutex
	list map[string]*aheadObject // by the key of the cache
}

// aheadObject is a kernel's object, once done is closed.
type aheadObject struct {
	done   chan struct{}
	code   []byte
	cached bool
	err    error
}

// startAhead returns a compiler that finds what ahead compiles, which end ends. A build in
// a random order compiles nothing ahead.
func (c *Compiler) startAhead(ctx context.Context, t *target.Target) (with *Compiler, a *ahead) {
	if c.Seed != 0 {
		return c, nil
	}
	a = &ahead{c: c, t: t, list: map[string]*aheadObject{}}
	a.ctx, a.stop = context.WithCancel(ctx)
	made := *c
	made.ahead = a
	return &made, a
}

// begin has a kernel compiled: as many at a time as LLVM's compiler takes.
func (a *ahead) begin(k *Kernel) {
	if a == nil {
		return
	}
	version := a.c.version(a.t)
	key := a.c.kernelKey(a.t, version, k)
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.list[key] != nil {
		return
	}
	o := &aheadObject{done: make(chan struct{})}
	a.list[key] = o
	a.wg.Go(func() {
		defer close(o.done)
		o.code, o.cached, o.err = a.c.object(a.ctx, a.t, k, llvm.Object, version, key)
	})
}

// find returns what was begun under a key, or nil.
func (a *ahead) find(key string) *aheadObject {
	if a == nil {
		return nil
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.list[key]
}

// end stops what nobody has waited for.
func (a *ahead) end() {
	if a == nil {
		return
	}
	a.stop()
	a.wg.Wait()
}
