package host

import (
	"fmt"
	"os"
	"runtime"

	"github.com/ebitengine/purego"

	"github.com/kiln-project/kiln/runtime/device"
)

// library is a loaded shared object of kernels.
type library struct {
	team    *team
	handle  uintptr // 0 if it has no kernels
	kernels []uintptr
}

// open loads a shared object from memory. The file that dlopen needs is gone when
// it returns.
func (l *library) open(so []byte) error {
	if len(so) == 0 {
		return nil
	}
	f, err := os.CreateTemp("", "kiln-*.so")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	_, err = f.Write(so)
	if e := f.Close(); err == nil {
		err = e
	}
	if err != nil {
		return err
	}
	// Why it does not load is kept by thread, and purego asks in a second call.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if l.handle, err = purego.Dlopen(f.Name(), purego.RTLD_NOW|purego.RTLD_LOCAL); err != nil {
		return fmt.Errorf("loading compiled kernels: %w", err)
	}
	return nil
}

// Close unloads the library; its kernels must not run afterwards.
func (l *library) Close() error {
	if l.handle == 0 {
		return nil
	}
	h := l.handle
	l.handle = 0
	return purego.Dlclose(h)
}

func (l *library) kernel(symbol string) (uintptr, error) {
	if l.handle == 0 {
		return 0, fmt.Errorf("kernel %s: the library is empty", symbol)
	}
	f, err := purego.Dlsym(l.handle, symbol)
	if err != nil {
		return 0, fmt.Errorf("kernel %s is not in the compiled library: %w", symbol, err)
	}
	return f, nil
}

// sequence is a list of calls.
type sequence struct {
	team  *team
	args  *device.Mapped // all launches' argument words, one block after the other
	calls []launch
}

// launch is a call of a kernel for every group of a grid.
type launch struct {
	kernel, args uintptr
	grid         int
	work         int64
}

// Prepare implements device.Library.
func (l *library) Prepare(launches []device.Launch) (device.Sequence, error) {
	words := 0
	for i := range launches {
		words += len(launches[i].Args)
	}
	args, err := device.Map(int64(words) * 8)
	if err != nil {
		return nil, err
	}
	s := &sequence{team: l.team, args: args, calls: make([]launch, len(launches))}
	w, at := args.Words(), 0
	for i := range launches {
		x := &launches[i]
		s.calls[i] = launch{l.kernels[x.Kernel], uintptr(args.Address()) + uintptr(8*at), x.Grid, x.Work}
		for _, a := range x.Args {
			w[at] = a.Int
			if a.Mode != "" {
				w[at] = int64(a.Address)
			}
			at++
		}
	}
	return s, nil
}

// Run implements device.Sequence.
func (s *sequence) Run() error {
	for i := range s.calls {
		l := &s.calls[i]
		s.team.run(l.kernel, l.args, l.grid, l.work)
	}
	return nil
}

// Close implements device.Sequence.
func (s *sequence) Close() error { return s.args.Free() }
