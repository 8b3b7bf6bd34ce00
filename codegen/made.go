package codegen

import (
	"fmt"
	"runtime/debug"
	"sync"
)

// madeKernels are kernels that units for one target share, by their key: all that their
// code depends on. Each is made once, beside the lowering that asks for it. A nil one makes
// each at once, for one unit.
type madeKernels struct {
	ahead *ahead // or nil
	queue chan func()
	ended chan struct{} // once nothing is made any more

	mu      sync.Mutex
	list    map[string]*madeKernel
	stopped bool
}

// madeKernel is what came of a kernel, once done is closed.
type madeKernel struct {
	done   chan struct{}
	ir     string
	shared int // bytes of shared memory that a launch gives
	err    error
}

// waitingKernels is how many kernels may wait to be made before who asks for one more
// waits too: each keeps its step's graph in memory.
const waitingKernels = 64

// startKernels starts to make kernels, one after the other: those of one op may have parts
// in common. end ends it.
func startKernels(a *ahead) *madeKernels {
	m := &madeKernels{ahead: a, queue: make(chan func(), waitingKernels), ended: make(chan struct{}), list: map[string]*madeKernel{}}
	go func() {
		defer close(m.ended)
		for make := range m.queue {
			make()
		}
	}()
	return m
}

// end drops what was not made yet. Nobody asks for a kernel any more.
func (m *madeKernels) end() {
	m.mu.Lock()
	m.stopped = true
	m.mu.Unlock()
	close(m.queue)
	<-m.ended
}

// begin returns a kernel, which is made on first use.
func (m *madeKernels) begin(k *Kernel, build func() (ir string, shared int, err error)) *madeKernel {
	made := &madeKernel{done: make(chan struct{})}
	if m == nil {
		defer close(made.done)
		made.ir, made.shared, made.err = build()
		return made
	}
	m.mu.Lock()
	if other, ok := m.list[k.Spec]; ok {
		m.mu.Unlock()
		return other
	}
	m.list[k.Spec] = made
	m.mu.Unlock()
	symbol, spec := k.Symbol, k.Spec
	m.queue <- func() {
		m.mu.Lock()
		stopped := m.stopped
		m.mu.Unlock()
		if stopped {
			return
		}
		if made.beside(build); made.err == nil {
			m.ahead.begin(&Kernel{Symbol: symbol, Spec: spec, IR: made.ir})
		}
	}
	return made
}

// beside makes the kernel in another goroutine than lowering's. As elsewhere there a panic
// is an error.
func (k *madeKernel) beside(build func() (ir string, shared int, err error)) {
	defer close(k.done)
	defer func() {
		if r := recover(); r != nil {
			k.err = fmt.Errorf("panic: %v\n%s", r, debug.Stack())
		}
	}()
	k.ir, k.shared, k.err = build()
}
