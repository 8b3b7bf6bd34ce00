package driver_test

import (
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kiln-project/kiln/runtime/internal/driver"
	"github.com/kiln-project/kiln/runtime/internal/driver/drivertest"
)

// replayer is a graph whose calls do nothing in C.
func replayer(t testing.TB) (*driver.Device, *driver.Stream, *driver.Exec) {
	f := newFake(t, drivertest.Options{Devices: []drivertest.Device{mi300}})
	d := openDevice(t, f)
	c := newChain(t, d)
	g := must[*driver.Graph](t)(d.BuildGraph(c.sequence))
	e := must[*driver.Exec](t)(g.Instantiate())
	s := must[*driver.Stream](t)(d.NewStream())
	check(t, driver.NoOpCalls(d))
	t.Cleanup(func() {
		check(t, errors.Join(e.Close(), g.Close(), s.Close()))
		c.close(t)
	})
	return d, s, e
}

// A step's calls allocate nothing, on either side of the change of threads and with a
// watchdog.
func TestReplayAllocatesNothing(t *testing.T) {
	d, s, e := replayer(t)
	step := func() error {
		if err := s.ReplayInDo(e); err != nil {
			return err
		}
		return s.SyncInDo()
	}
	for _, limit := range []time.Duration{0, time.Hour} {
		n := testing.AllocsPerRun(100, func() {
			if err := d.DoWithin(limit, step); err != nil {
				t.Error(err)
			}
		})
		if n != 0 {
			t.Errorf("limit %v: %v allocations", limit, n)
		}
	}
}

// Calls for the device's thread are refused elsewhere, and with what is closed.
func TestInDo(t *testing.T) {
	d, s, e := replayer(t)
	for _, err := range []error{s.ReplayInDo(e), s.SyncInDo()} {
		if err == nil || !strings.Contains(err.Error(), "device 0: called outside of Do") {
			t.Errorf("error %v", err)
		}
	}
	gone := must[*driver.Stream](t)(d.NewStream())
	check(t, gone.Close())
	check(t, d.Do(func() error {
		for _, err := range []error{gone.ReplayInDo(e), gone.SyncInDo()} {
			if !errors.Is(err, driver.ErrClosed) {
				t.Errorf("error %v", err)
			}
		}
		return nil
	}))
}

// Callers take turns, whoever of them has to wake the thread.
func TestDoTurns(t *testing.T) {
	d := openDevice(t, newFake(t, drivertest.Options{Devices: []drivertest.Device{mi300}}))
	const callers, calls = 8, 200
	n, inside := 0, 0
	var wg sync.WaitGroup
	for range callers {
		wg.Go(func() {
			for i := range calls {
				want := error(nil)
				if i%2 == 1 {
					want = driver.ErrClosed
				}
				err := d.DoWithin(time.Duration(i%3)*time.Hour, func() error {
					if inside++; inside != 1 {
						t.Error("two jobs at a time")
					}
					n++
					inside--
					return want
				})
				if err != want {
					t.Errorf("error %v, want %v", err, want)
				}
			}
		})
	}
	wg.Wait()
	if n != callers*calls {
		t.Errorf("%d jobs, want %d", n, callers*calls)
	}
}

// Who waits for a turn while another caller gives up hears of it.
func TestWaitingForStuck(t *testing.T) {
	d := openDevice(t, newFake(t, drivertest.Options{Devices: []drivertest.Device{mi300}}))
	begun, ended, came := make(chan struct{}), make(chan struct{}), make(chan struct{})
	first, second := make(chan error), make(chan error)
	go func() {
		first <- d.DoWithin(50*time.Millisecond, func() error { close(begun); <-ended; close(came); return nil })
	}()
	<-begun
	go func() { second <- d.Do(func() error { return nil }) }()
	for _, c := range []chan error{first, second} {
		if err := <-c; !errors.Is(err, driver.ErrStuck) {
			t.Errorf("error %v", err)
		}
	}
	close(ended)
	<-came
}

// BenchmarkDo is the way to the device's thread and back.
func BenchmarkDo(b *testing.B) {
	d, _, _ := replayer(b)
	f := func() error { return nil }
	b.ReportAllocs()
	for b.Loop() {
		check(b, d.Do(f))
	}
}

// BenchmarkReplay is the binding's part of a replay: from another thread, and in a row
// on the device's own.
func BenchmarkReplay(b *testing.B) {
	d, s, e := replayer(b)
	b.Run("one", func(b *testing.B) {
		f := func() error { return s.ReplayInDo(e) }
		b.ReportAllocs()
		for b.Loop() {
			check(b, d.Do(f))
		}
	})
	b.Run("row", func(b *testing.B) {
		b.ReportAllocs()
		check(b, d.Do(func() error {
			for b.Loop() {
				check(b, s.ReplayInDo(e))
			}
			return nil
		}))
	})
	b.Run("row, looking at the thread", func(b *testing.B) {
		b.ReportAllocs()
		check(b, d.Do(func() error {
			for b.Loop() {
				check(b, s.Replay(e))
			}
			return nil
		}))
	})
}
