//go:build unix

package llvm

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// newTestPool makes a pool of one worker.
func newTestPool(t *testing.T) *pool {
	t.Helper()
	tc := toolchain(t)
	c, err := New(t.Context(), tc, Options{Workers: 1, Mode: Worker})
	if err != nil {
		if tc.Loader != nil {
			t.Fatal(err)
		}
		t.Skipf("libLLVM does not load here: %v", err)
	}
	t.Cleanup(func() { c.Close() })
	return c.(*pool)
}

// signal sends the pool's idle worker a signal.
func (p *pool) signal(t *testing.T, s syscall.Signal) {
	t.Helper()
	w := <-p.slots
	defer func() { p.slots <- w }()
	if w == nil {
		t.Fatal("no worker runs")
	}
	if err := w.cmd.Process.Signal(s); err != nil {
		t.Fatal(err)
	}
}

// mustWork compiles a small job.
func mustWork(t *testing.T, c Compiler) {
	t.Helper()
	if _, err := c.Compile(t.Context(), amd("next", emptyKernel)); err != nil {
		t.Fatalf("the next job: %v", err)
	}
}

// A worker that was killed, idle or at work, costs one job.
func TestDeadWorker(t *testing.T) {
	p := newTestPool(t)
	mustWork(t, p)
	p.signal(t, syscall.SIGKILL)
	_, err := p.Compile(t.Context(), amd("victim", emptyKernel))
	if want := "llvm: victim (gfx942): worker: the worker died: signal: killed"; err == nil || err.Error() != want {
		t.Errorf("error %v, want %q", err, want)
	}
	mustWork(t, p)

	w := <-p.slots
	pid := w.cmd.Process.Pid
	p.slots <- w
	p.signal(t, syscall.SIGSTOP)
	time.AfterFunc(50*time.Millisecond, func() { syscall.Kill(pid, syscall.SIGKILL) })
	_, err = p.Compile(t.Context(), amd("victim", emptyKernel))
	if err == nil || !strings.Contains(err.Error(), "victim (gfx942): worker: the worker died") {
		t.Errorf("error %v, want a dead worker", err)
	}
	mustWork(t, p)
}

// A worker that hangs is ended by the job's timeout, its context, or Close.
func TestHangingWorker(t *testing.T) {
	p := newTestPool(t)
	p.opts.Timeout = 100 * time.Millisecond
	p.signal(t, syscall.SIGSTOP)
	_, err := p.Compile(t.Context(), amd("slow", emptyKernel))
	if want := "llvm: slow (gfx942): worker: no result after 100ms"; err == nil || err.Error() != want || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("error %v, want %q", err, want)
	}
	p.opts.Timeout = time.Minute
	mustWork(t, p)

	p.signal(t, syscall.SIGSTOP)
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	_, err = p.Compile(ctx, amd("impatient", emptyKernel))
	if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "impatient (gfx942)") {
		t.Errorf("error %v, want the deadline", err)
	}
	mustWork(t, p)

	p.signal(t, syscall.SIGSTOP)
	ended := make(chan error)
	go func() {
		_, err := p.Compile(t.Context(), amd("interrupted", emptyKernel))
		ended <- err
	}()
	for len(p.slots) > 0 { // until the job has the worker
		time.Sleep(time.Millisecond)
	}
	if err := p.Close(); err != nil {
		t.Error(err)
	}
	if err := <-ended; !errors.Is(err, ErrClosed) || !strings.Contains(err.Error(), "interrupted (gfx942)") {
		t.Errorf("error %v, want ErrClosed", err)
	}
	if _, err := p.Compile(t.Context(), amd("late", emptyKernel)); !errors.Is(err, ErrClosed) {
		t.Errorf("after Close: error %v, want ErrClosed", err)
	}
}

// Programs that hang are ended too. The tools here are scripts that do.
func TestHangingPrograms(t *testing.T) {
	sleep := filepath.Join(t.TempDir(), "sleep")
	if err := os.WriteFile(sleep, []byte("#!/bin/sh\nexec sleep 60\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	tc := &Toolchain{Opt: sleep, LLC: sleep, LLD: sleep, targets: map[string]*targetInfo{AMDGPU: {cpus: []string{"gfx942"}}}}
	c, err := New(t.Context(), tc, Options{Workers: 1, Mode: Programs, Timeout: 50 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	start := time.Now()
	_, err = c.Compile(t.Context(), amd("slow", emptyKernel))
	if want := "llvm: slow (gfx942): llc: no result after 50ms"; err == nil || err.Error() != want || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("error %v, want %q", err, want)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := c.Compile(ctx, amd("cancelled", emptyKernel)); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v, want context.Canceled", err)
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	if _, err := c.Compile(t.Context(), amd("late", emptyKernel)); !errors.Is(err, ErrClosed) {
		t.Errorf("after Close: error %v, want ErrClosed", err)
	}
	if took := time.Since(start); took > 30*time.Second {
		t.Errorf("ending the programs took %v", took)
	}
}

// Where libLLVM does not load, Worker says why and Auto takes the programs,
// saying why.
func TestWorkerCannotStart(t *testing.T) {
	real := toolchain(t)
	foreign := filepath.Join(t.TempDir(), "libLLVM.so.22.1")
	if err := os.WriteFile(foreign, []byte("not a library"), 0o644); err != nil {
		t.Fatal(err)
	}
	like := func(change func(*Toolchain)) *Toolchain {
		tc := &Toolchain{
			Version: real.Version, Major: real.Major, Dir: real.Dir, Opt: real.Opt, LLC: real.LLC, LLD: real.LLD,
			LibLLVM: real.LibLLVM, LibLLVMWhy: real.LibLLVMWhy, Loader: real.Loader,
		}
		change(tc)
		return tc
	}
	tests := map[string]struct {
		tc    *Toolchain
		wants []string
	}{
		"no library":    {like(func(tc *Toolchain) { tc.LibLLVM, tc.LibLLVMWhy = "", "llc contains LLVM itself" }), []string{"llc contains LLVM itself"}},
		"not a library": {like(func(tc *Toolchain) { tc.LibLLVM = foreign }), []string{"starting a worker with " + foreign, foreign + ": "}},
		"other library": {like(func(tc *Toolchain) { tc.LibLLVM = "libm.so.6" }), []string{"has no function LLVMGetVersion"}},
		"no loader":     {like(func(tc *Toolchain) { tc.Loader = []string{foreign + ".none"} }), []string{"starting a worker: "}},
		"other version": {like(func(tc *Toolchain) { tc.Version = "9.0.0" }), []string{"libLLVM is version " + real.Version, "llc is version 9.0.0"}},
	}
	if real.LibLLVM == "" {
		delete(tests, "other version")
	}
	for name, tt := range tests {
		_, err := New(t.Context(), tt.tc, Options{Mode: Worker})
		c, autoErr := New(t.Context(), tt.tc, Options{Mode: Auto})
		if err == nil || autoErr != nil {
			t.Errorf("%s: Worker gives error %v, Auto %v", name, err, autoErr)
			continue
		}
		mode, why := c.Mode()
		if mode != Programs || why != err.Error() {
			t.Errorf("%s: Auto gives mode %s because %q, Worker the error %q", name, mode, why, err)
		}
		for _, want := range tt.wants {
			if !strings.Contains(why, want) {
				t.Errorf("%s: reason %q does not contain %q", name, why, want)
			}
		}
		if _, err := c.Compile(t.Context(), amd("next", emptyKernel)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		c.Close()
	}
}

// Without MaybeServeWorker in main, a worker would start workers in turn.
func TestNoWorkersOfWorkers(t *testing.T) {
	args := os.Args
	defer func() { os.Args = args }()
	os.Args = []string{args[0], workerArg, "libLLVM.so"}
	_, err := New(t.Context(), &Toolchain{LibLLVM: "libLLVM.so"}, Options{Mode: Worker})
	if err == nil || !strings.Contains(err.Error(), "MaybeServeWorker") {
		t.Errorf("error %v, want one that names MaybeServeWorker", err)
	}
}

// What LLVM writes past its diagnostics reaches the result of the job it belongs to.
func TestStrayOutput(t *testing.T) {
	tp := newTap()
	tp.Write([]byte("first\nwarning: careful\n"))
	tp.Write([]byte("\x00second"))
	if got := <-tp.marks; got != "first\nwarning: careful\n" {
		t.Errorf("first job: %q", got)
	}
	if got := tp.rest(); got != "second" {
		t.Errorf("rest: %q", got)
	}
	tp.Write(make([]byte, 3)) // marks that nobody waits for do not block
	if got := <-tp.marks; got != "second" {
		t.Errorf("second job: %q", got)
	}
	tp.Write([]byte(strings.Repeat("x", maxNotes+1)))
	if got := len(tp.rest()); got != maxNotes {
		t.Errorf("%d bytes kept, want %d", got, maxNotes)
	}
}
