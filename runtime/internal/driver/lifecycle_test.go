package driver_test

import (
	"errors"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/kiln-project/kiln/runtime/internal/driver"
	"github.com/kiln-project/kiln/runtime/internal/driver/drivertest"
)

// Everything once, in each version: the same launches from a stream, a graph that
// was built and one that was captured.
func TestLifeCycle(t *testing.T) {
	for _, version := range drivertest.Versions() {
		t.Run(version, func(t *testing.T) {
			f := newFake(t, drivertest.Options{Version: version, Devices: []drivertest.Device{mi300}, Execute: runAdd})
			d := openDevice(t, f)
			c := newChain(t, d)
			s := must[*driver.Stream](t)(d.NewStream())

			c.reset(t)
			check(t, s.Run(c.sequence))
			check(t, s.Sync())
			c.verify(t, "eager")
			eager := f.Launches()
			if len(eager) != chainLength || eager[0].Graph {
				t.Fatalf("eager: %d launches, of a graph: %t", len(eager), eager[0].Graph)
			}

			for how, make := range map[string]func(*driver.Sequence) (*driver.Graph, error){"built": d.BuildGraph, "captured": d.CaptureGraph} {
				g := must[*driver.Graph](t)(make(c.sequence))
				if n := must[int](t)(g.Nodes()); n != chainLength {
					t.Errorf("%s: %d nodes, want %d", how, n, chainLength)
				}
				e := must[*driver.Exec](t)(g.Instantiate())
				check(t, g.Close())
				if ran := f.Launches(); len(ran) > 0 {
					t.Errorf("%s: making the graph ran %d kernels", how, len(ran))
				}
				for range 3 {
					c.reset(t)
					check(t, s.Replay(e))
					check(t, s.Sync())
					c.verify(t, how)
					ran := f.Launches()
					sameLaunches(t, how, eager, ran)
					if len(ran) > 0 && !ran[0].Graph {
						t.Errorf("%s: launched from the stream", how)
					}
				}
				check(t, e.Close())
			}

			if n := f.Threads(); n != 1 {
				t.Errorf("the driver was used on %d threads", n)
			}
			check(t, s.Close())
			c.close(t)
			if open := must[[]string](t)(d.Open()); len(open) > 0 {
				t.Errorf("open: %v", open)
			}
			check(t, d.Close())
			if err := d.Close(); !errors.Is(err, driver.ErrClosed) {
				t.Errorf("closed twice: %v", err)
			}
		})
	}
}

func TestMemory(t *testing.T) {
	f := newFake(t, drivertest.Options{Devices: []drivertest.Device{mi300}})
	d := openDevice(t, f)
	s := must[*driver.Stream](t)(d.NewStream())
	a := must[*driver.Buffer](t)(d.Allocate(64))
	b := must[*driver.Buffer](t)(d.Allocate(64))
	p := must[*driver.Pinned](t)(d.AllocatePinned(64))
	free, total, err := d.Memory()
	check(t, err)
	if total != 1<<30 || total-free != 128 {
		t.Errorf("%d of %d bytes free", free, total)
	}
	if p.Address() == 0 || len(p.Bytes()) != 64 {
		t.Errorf("pinned memory of %d bytes at 0x%x", len(p.Bytes()), p.Address())
	}
	copy(p.Bytes(), "0123456789")
	check(t, d.Do(func() error { // several calls without a change of threads
		return errors.Join(
			s.Fill(a, 0, 64, '.'), s.Fill32(a, 8, 2, 'x'<<24|'y'<<16|'z'<<8|'w'), s.Upload(a, 32, p, 2, 4), s.Copy(b, 0, a, 4, 60),
			s.Fill(b, 60, 4, '!'), s.Download(p, 10, b, 4, 40), s.Sync())
	}))
	if got := string(p.Bytes()[:50]); got != "0123456789wzyxwzyx................2345............" {
		t.Errorf("got %q", got)
	}
	got := make([]byte, 8)
	check(t, b.Write(2, []byte("ab")))
	check(t, b.Read(0, got))
	if string(got) != "..abwzyx" {
		t.Errorf("got %q", got)
	}

	e0, e1 := must[*driver.Event](t)(d.NewEvent()), must[*driver.Event](t)(d.NewEvent())
	check(t, errors.Join(s.Record(e0), s.Record(e1), s.Wait(e1), e1.Sync()))
	if took, err := e1.Since(e0); err != nil || took < 0 {
		t.Errorf("time between events %v, error %v", took, err)
	}

	for what, err := range map[string]error{
		"60 bytes at offset 8 lie outside the buffer of 64 bytes":                                    b.Read(8, make([]byte, 60)),
		"1 bytes at offset -1 lie outside the buffer of 64 bytes":                                    b.Write(-1, []byte{1}),
		"65 bytes at offset 0 lie outside the pinned memory of 64 bytes":                             s.Upload(a, 0, p, 0, 65),
		"8 bytes at offset 60 lie outside the buffer of 64 bytes":                                    s.Copy(a, 60, b, 0, 8),
		"-1 bytes at offset 0 lie outside the buffer of 64 bytes":                                    s.Fill(a, 0, -1, 0),
		"1 words at offset 2 do not fit into the buffer of 64 bytes, aligned to 4":                   s.Fill32(a, 2, 1, 0),
		"4611686018427387905 words at offset 0 do not fit into the buffer of 64 bytes, aligned to 4": s.Fill32(a, 0, 1<<62+1, 0),
	} {
		if err == nil || !strings.Contains(err.Error(), what) {
			t.Errorf("error %v, want %s", err, what)
		}
	}
	for _, n := range []int64{0, -1} {
		if _, err := d.Allocate(n); err == nil {
			t.Errorf("a buffer of %d bytes", n)
		}
		if _, err := d.AllocatePinned(n); err == nil {
			t.Errorf("pinned memory of %d bytes", n)
		}
	}
	check(t, errors.Join(a.Close(), b.Close(), p.Close(), e0.Close(), e1.Close(), s.Close(), d.Close()))
}

// What is still open is listed and closed; what is in use or closed is refused.
func TestLeakAndUse(t *testing.T) {
	f := newFake(t, drivertest.Options{Devices: []drivertest.Device{mi300, mi300}})
	d := openDevice(t, f)
	c := newChain(t, d)
	s := must[*driver.Stream](t)(d.NewStream())
	g := must[*driver.Graph](t)(d.BuildGraph(c.sequence))
	e := must[*driver.Exec](t)(g.Instantiate())

	want := "module add is in use by list of 5 launches: close that first"
	if err := c.module.Close(); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("error %v, want %s", err, want)
	}
	check(t, c.sequence.Close())
	check(t, c.sequence.Close()) // again does nothing
	want = "list of 5 launches: closed"
	for _, err := range []error{s.Run(c.sequence), second(d.BuildGraph(c.sequence)), second(d.CaptureGraph(c.sequence))} {
		if !errors.Is(err, driver.ErrClosed) || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %s", err, want)
		}
	}
	want = "module add is in use by graph (built): close that first"
	if err := c.module.Close(); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("error %v, want %s", err, want)
	}
	check(t, g.Close())
	want = "module add is in use by executable graph (built): close that first"
	if err := c.module.Close(); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("error %v, want %s", err, want)
	}
	if err := s.Replay(e); err != nil {
		t.Errorf("an executable needs its graph: %v", err)
	}

	other := must[*driver.Device](t)(d.Library().OpenDevice(1))
	foreign := must[*driver.Stream](t)(other.NewStream())
	want = "executable graph (built) of device 0 used on device 1"
	if err := foreign.Replay(e); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("error %v, want %s", err, want)
	}
	check(t, errors.Join(foreign.Close(), other.Close()))

	check(t, c.buffers[0].Close())
	if err := c.buffers[0].Write(0, []byte{1}); !errors.Is(err, driver.ErrClosed) {
		t.Errorf("a closed buffer was written: %v", err)
	}
	err := d.Close()
	var leak *driver.LeakError
	if !errors.As(err, &leak) || len(leak.Open) != 1+chainLength+1+2 || leak.Open[0] != "module add" || leak.Open[8] != "executable graph (built)" {
		t.Errorf("error %v", err)
	}
	if err := s.Sync(); !errors.Is(err, driver.ErrClosed) {
		t.Errorf("used after the device was closed: %v", err)
	}
}

func second[T any](_ T, err error) error { return err }

// Whatever goroutine calls, the driver sees one thread; the thread survives what
// is done to it.
func TestThread(t *testing.T) {
	f := newFake(t, drivertest.Options{Devices: []drivertest.Device{mi300}})
	d := openDevice(t, f)
	var all sync.WaitGroup
	for range 20 {
		all.Go(func() {
			b, err := d.Allocate(16)
			if err == nil {
				err = errors.Join(b.Write(0, []byte("x")), b.Close())
			}
			if err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if n := f.Threads(); n != 1 {
		t.Errorf("the driver was used on %d threads", n)
	}
	if err := d.Do(d.Close); err == nil || !strings.Contains(err.Error(), "on its own thread") {
		t.Errorf("closed from its own thread: %v", err)
	}
	wrong := errors.New("wrong")
	if err := d.Do(func() error { return d.Do(func() error { return wrong }) }); err != wrong {
		t.Errorf("error %v", err)
	}
	check(t, d.Close())

	// A function that ends the goroutine, as t.FailNow does, ends the device too,
	// and nobody waits for ever.
	d = openDevice(t, f)
	if err := d.Do(func() error { runtime.Goexit(); return nil }); !errors.Is(err, driver.ErrClosed) {
		t.Errorf("error %v", err)
	}
	if _, err := d.Allocate(16); !errors.Is(err, driver.ErrClosed) {
		t.Errorf("error %v", err)
	}
}
