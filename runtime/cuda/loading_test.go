package cuda

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/kiln-project/kiln/runtime/device"
	"github.com/kiln-project/kiln/runtime/device/devicetest"
	"github.com/kiln-project/kiln/runtime/engine"
	"github.com/kiln-project/kiln/runtime/internal/driver"
	"github.com/kiln-project/kiln/runtime/internal/driver/drivertest"
	"github.com/kiln-project/kiln/runtime/weights"
)

// recorder is a device that knows its memories.
type recorder struct {
	*PlanDevice
	memories []device.Memory
}

func (r *recorder) Alloc(n int64) (device.Memory, error) {
	m, err := r.PlanDevice.Alloc(n)
	if err == nil {
		r.memories = append(r.memories, m)
	}
	return m, err
}

// load opens a synthetic checkpoint and loads it; the model is the caller's.
func load(ctx context.Context, dev device.Device, s *devicetest.Synthetic, progress func(done, total int64)) (m *device.Model, err error) {
	file, err := weights.Open(s.Path)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	src, err := engine.BindPack(s.Pack, engine.CheckpointSource{File: file})
	if err != nil {
		return nil, err
	}
	if m, err = device.NewModel(dev, nil, s.Module); err != nil {
		return nil, err
	}
	if err := m.BindWeights(ctx, src, progress); err != nil {
		return nil, errors.Join(err, m.Close())
	}
	return m, nil
}

// verifyLoaded compares all bytes on the device with those of the checkpoint and of the
// oracle, made in other pieces.
func verifyLoaded(t *testing.T, r *recorder, s *devicetest.Synthetic) {
	t.Helper()
	file, err := weights.Open(s.Path)
	ok(t, err)
	defer file.Close()
	src, err := engine.BindPack(s.Pack, engine.CheckpointSource{File: file})
	ok(t, err)
	at := 0
	for _, w := range s.Module.Weights {
		typ, err := device.ParseType(w.Type)
		ok(t, err)
		jobs, err := engine.Jobs(src, w.Name, typ, 1<<20)
		ok(t, err)
		for i := range jobs {
			j := &jobs[i]
			want := j.Copy
			if j.Make != nil {
				x, err := j.Make()
				ok(t, err)
				want[0], want[1] = make([]byte, j.Size[0]), x.Scales
				ok(t, x.Encode(want[0]))
			}
			for part, b := range want {
				if len(b) == 0 {
					continue
				}
				got := make([]byte, len(b))
				ok(t, r.memories[at+part].Read(j.Base[part], got))
				if !bytes.Equal(got, b) {
					t.Fatalf("%s: part %d differs in bytes %d..%d", w.Name, part, j.Base[part], j.Base[part]+int64(len(b)))
				}
			}
		}
		at++
		if typ.Quant != nil {
			at++
		}
	}
}

// loadingFake makes a fake GPU and opens it for plans.
func loadingFake(t testing.TB, o drivertest.Options) (*PlanDevice, *drivertest.Fake) {
	t.Helper()
	if err := drivertest.Supported(); err != nil {
		t.Skip(err)
	}
	o.Kind, o.Devices = driver.CUDA, []drivertest.Device{{Name: "H200", Arch: "sm_90", Memory: 1 << 40}}
	fake, err := drivertest.New(t.TempDir(), o)
	if err != nil {
		t.Fatal(err)
	}
	l, err := Open(Options{Library: fake.Path})
	if err != nil {
		t.Fatal(err)
	}
	d, err := l.OpenDevice(0)
	if err != nil {
		t.Fatal(err)
	}
	x, err := OpenForPlans(d, PlanOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return x, fake
}

// nothingLeft closes a device and the fake under it: nothing of them may be open.
func nothingLeft(t *testing.T, what string, d *PlanDevice, fake *drivertest.Fake) {
	t.Helper()
	if open, err := d.Open(); err != nil || len(open) != 2 { // its stream and its own staging
		t.Errorf("%s: open are %v (%v)", what, open, err)
	}
	if err := d.Close(); err != nil {
		t.Errorf("%s: %v", what, err)
	}
	if open, problems := fake.Open(), fake.Problems(); len(open)+len(problems) > 0 {
		t.Errorf("%s: open %v, problems %v", what, open, problems)
	}
	ok(t, fake.Close())
}

// Every weight arrives whole, through the ring, whatever its kind, and what was done is
// said on the way.
func TestLoading(t *testing.T) {
	s, err := devicetest.WriteSynthetic(t.TempDir(), 48<<20, false)
	ok(t, err)
	d, fake := loadingFake(t, drivertest.Options{})
	r := &recorder{PlanDevice: d}
	var last, total int64
	m, err := load(t.Context(), r, s, func(done, all int64) {
		if done < last || done > all || total != 0 && all != total {
			t.Errorf("%d of %d bytes after %d of %d", done, all, last, total)
		}
		last, total = done, all
	})
	ok(t, err)
	var want int64
	for _, w := range s.Module.Weights {
		want += w.Bytes[0] + w.Bytes[1]
	}
	if last != want || total != want {
		t.Errorf("the last news is %d of %d bytes, want %d", last, total, want)
	}
	if n := fake.Calls("cuMemcpyHtoDAsync_v2"); n == 0 || fake.Calls("cuEventSynchronize") == 0 {
		t.Errorf("%d copies, %d waits for slots", n, fake.Calls("cuEventSynchronize"))
	}
	verifyLoaded(t, r, s)
	ok(t, m.Close())
	nothingLeft(t, "loaded", d, fake)
}

// Loading that is interrupted, wherever that is, leaves nothing behind: no memory of
// the device, nothing pinned, no goroutine; the file is unmapped by who opened it.
func TestLoadingInterrupted(t *testing.T) {
	s, err := devicetest.WriteSynthetic(t.TempDir(), 64<<20, true)
	ok(t, err)
	before := runtime.NumGoroutine()
	for at := 0; ; at++ {
		d, fake := loadingFake(t, drivertest.Options{Forgets: true})
		ctx, cancel := context.WithCancel(t.Context())
		n := 0
		step := func(int64, int64) {
			if n++; n == at {
				cancel()
			}
		}
		if at == 0 {
			cancel()
		}
		m, err := load(ctx, d, s, step)
		cancel()
		what := fmt.Sprintf("interrupted at %d", at)
		if n < at {
			ok(t, err) // all was done before
			ok(t, m.Close())
			nothingLeft(t, what, d, fake)
			if at < 8 {
				t.Errorf("loading was in %d pieces only", at)
			}
			break
		}
		if err == nil && n == at { // the last piece of all
			ok(t, m.Close())
		} else if !errors.Is(err, context.Canceled) {
			t.Errorf("%s: error %v", what, err)
		}
		nothingLeft(t, what, d, fake)
	}
	noGoroutines(t, before)
}

// noGoroutines waits for goroutines that are about to end.
func noGoroutines(t *testing.T, before int) {
	t.Helper()
	deadline := time.Now().Add(10 * time.Second)
	for runtime.NumGoroutine() > before {
		if time.Now().After(deadline) {
			stacks := make([]byte, 1<<16)
			t.Fatalf("%d goroutines, %d before\n%s", runtime.NumGoroutine(), before, stacks[:runtime.Stack(stacks, true)])
		}
		runtime.Gosched()
	}
}

// A checkpoint that is cut short while it is mapped is an error that names a weight, not
// the end of the process.
func TestLoadingCutShort(t *testing.T) {
	s, err := devicetest.WriteSynthetic(t.TempDir(), 24<<20, true)
	ok(t, err)
	file, err := weights.Open(s.Path)
	ok(t, err)
	defer file.Close()
	src, err := engine.BindPack(s.Pack, engine.CheckpointSource{File: file})
	ok(t, err)
	ok(t, os.Truncate(s.Path, s.Bytes/2))
	d, fake := loadingFake(t, drivertest.Options{Forgets: true})
	m, err := device.NewModel(d, nil, s.Module)
	ok(t, err)
	err = m.BindWeights(t.Context(), src, nil)
	if err == nil || !strings.HasPrefix(err.Error(), "weight ") || !strings.Contains(err.Error(), ": the checkpoint cannot be read any more: it was cut short, or its disk failed (") {
		t.Errorf("error %v", err)
	}
	ok(t, m.Close())
	nothingLeft(t, "cut short", d, fake)
}

// Whichever call of the driver fails, loading fails with its error, and nothing stays
// behind.
func TestLoadingCallFails(t *testing.T) {
	s, err := devicetest.WriteSynthetic(t.TempDir(), 24<<20, true)
	ok(t, err)
	before := runtime.NumGoroutine()
	for _, call := range []string{"cuMemAlloc_v2", "cuMemHostAlloc", "cuMemHostGetDevicePointer_v2", "cuEventCreate", "cuMemcpyHtoDAsync_v2", "cuEventRecord", "cuEventSynchronize"} {
		failed := 0
		for skip := 0; ; skip += 3 {
			d, fake := loadingFake(t, drivertest.Options{Forgets: true})
			const outOfMemory = 2
			fake.Inject(drivertest.Fault{Call: call, Skip: skip, Code: outOfMemory})
			m, err := load(t.Context(), d, s, nil)
			what := fmt.Sprintf("%s fails after %d", call, skip)
			if err == nil {
				ok(t, m.Close())
				nothingLeft(t, what, d, fake)
				break
			}
			failed++
			if !errors.Is(err, ErrOutOfMemory) || !strings.Contains(err.Error(), call) {
				t.Errorf("%s: error %v", what, err)
			}
			nothingLeft(t, what, d, fake)
		}
		if failed == 0 {
			t.Errorf("%s was not called", call)
		}
	}
	noGoroutines(t, before)
}

// The anonymous memory that loading takes does not depend on the size of the model: the
// pinned ring and the rows that are being evaluated.
func TestLoadingPeak(t *testing.T) {
	loadingPeak(t, 600_000_000, 96<<20+96<<20)
}

// loadingPeak loads a sparse checkpoint on a fake, whose pinned memory counts and whose
// device memory does not.
func loadingPeak(t *testing.T, size, limit int64) {
	t.Helper()
	if raceDetector {
		t.Skip("the race detector has memory of its own")
	}
	s, err := devicetest.WriteSynthetic(t.TempDir(), size, true)
	ok(t, err)
	d, fake := loadingFake(t, drivertest.Options{Forgets: true})
	var m *device.Model
	before, peak, err := devicetest.Peak(func() (err error) {
		m, err = load(t.Context(), d, s, nil)
		return err
	})
	if errors.Is(err, devicetest.ErrNoAnonymous) {
		t.Skip(err)
	}
	ok(t, err)
	ok(t, m.Close())
	nothingLeft(t, "loaded", d, fake)
	t.Logf("a file of %d bytes: %d MiB of anonymous memory before, at most %d MiB while it was loaded", s.Bytes, before>>20, peak>>20)
	if peak-before > limit {
		t.Errorf("loading %d bytes took %d MiB of anonymous memory, the limit is %d MiB", s.Bytes, (peak-before)>>20, limit>>20)
	}
}

// BenchmarkLoading is the rate of the host's side: the driver's copies do nothing.
func BenchmarkLoading(b *testing.B) {
	s, err := devicetest.WriteSynthetic(b.TempDir(), 1<<30, true)
	if err != nil {
		b.Fatal(err)
	}
	d, fake := loadingFake(b, drivertest.Options{Forgets: true})
	b.SetBytes(s.Bytes)
	for b.Loop() {
		m, err := load(b.Context(), d, s, nil)
		if err != nil {
			b.Fatal(err)
		}
		if err := m.Close(); err != nil {
			b.Fatal(err)
		}
	}
	if err := errors.Join(d.Close(), fake.Close()); err != nil {
		b.Fatal(err)
	}
}
