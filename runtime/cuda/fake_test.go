package cuda

import (
	_ "embed"
	"encoding/binary"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kiln-project/kiln/runtime/internal/driver"
	"github.com/kiln-project/kiln/runtime/internal/driver/drivertest"
)

// probe is the module of all tests.
//
//go:embed testdata/probe.ptx
var probe []byte

// runVadd is kernel vadd of testdata/probe.ptx on integers.
func runVadd(l *drivertest.Launch) error {
	n := int(binary.LittleEndian.Uint32(l.Kernarg[24:]))
	var part [3][]byte
	for i := range part {
		var err error
		if part[i], err = l.Memory(binary.LittleEndian.Uint64(l.Kernarg[8*i:]), int64(4*n)); err != nil {
			return err
		}
	}
	for i := 0; i < 4*n; i += 4 {
		sum := binary.LittleEndian.Uint32(part[0][i:]) + binary.LittleEndian.Uint32(part[1][i:])
		binary.LittleEndian.PutUint32(part[2][i:], sum)
	}
	return nil
}

func ok(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func refused(t *testing.T, err, is error, want string) {
	t.Helper()
	if !errors.Is(err, is) || !strings.Contains(err.Error(), want) {
		t.Errorf("error %v, want %s", err, want)
	}
}

// onFake runs f on device 1 of a fake driver, and checks that nothing is left.
func onFake(t *testing.T, f func(d *Device, fake *drivertest.Fake, ptx string)) {
	t.Helper()
	if err := drivertest.Supported(); err != nil {
		t.Skip(err)
	}
	fake, err := drivertest.New(t.TempDir(), drivertest.Options{Kind: driver.CUDA, Execute: runVadd, Devices: []drivertest.Device{
		{Name: "A100", Arch: "sm_80", Memory: 1 << 20}, {Name: "H200", Arch: "sm_90", Memory: 2 << 20},
	}})
	ok(t, err)
	l, err := Open(Options{Library: fake.Path})
	ok(t, err)
	d, err := l.OpenDevice(1)
	ok(t, err)
	f(d, fake, string(probe))
	ok(t, d.Close())
	if open, problems := fake.Open(), fake.Problems(); len(open)+len(problems) > 0 {
		t.Errorf("open %v, problems %v", open, problems)
	}
	ok(t, fake.Close())
}

func TestInfo(t *testing.T) {
	onFake(t, func(d *Device, _ *drivertest.Fake, _ string) {
		want := Info{
			Kind: driver.CUDA, Index: 1, Name: "H200", Target: "sm_90", Version: 13000, Units: 132, Wave: 32, MaxGroup: 1024, Shared: 48 << 10,
			MaxShared: 227 << 10, UnitShared: 228 << 10, L2: 60 << 20, ClockKHz: 1_980_000, MemoryClockKHz: 3_201_000, BusBits: 6144,
			Memory: 2 << 20, MemoryFree: 2 << 20, Build: d.Info().Build, // package driver tests it
		}
		if diff := cmp.Diff(want, d.Info()); diff != "" {
			t.Errorf("(-want +got)\n%s", diff)
		}
	})
}

func TestLoad(t *testing.T) {
	onFake(t, func(d *Device, fake *drivertest.Fake, ptx string) {
		_, err := Load(d, "new", []byte(strings.Replace(ptx, "sm_80", "sm_100", 1)))
		refused(t, err, ErrWrongImage, "module new on device 1 (H200): code is not for this device: the PTX is for sm_100, the device is sm_90")
		if fake.Calls("cuModuleLoadDataEx") != 0 {
			t.Error("the driver was called")
		}
		_, err = Load(d, "bad", []byte(strings.Replace(ptx, ".param .u64 vadd_y", ".param word vadd_y", 1)))
		refused(t, err, ErrWrongImage, "module bad: kernel vadd; error: unexpected parameter \".param word vadd_y\"\n"+
			"cuModuleLoadDataEx: error 218 CUDA_ERROR_INVALID_PTX (the text of an error); the log above")
		_, err = LoadCached(d, "bad", []byte(strings.Replace(ptx, ".param .u64 vadd_y", ".param word vadd_y", 1)), codeMap{})
		refused(t, err, ErrWrongImage, "module bad: kernel vadd; error: unexpected parameter \".param word vadd_y\"\n"+
			"cuLinkAddData_v2: error 218 CUDA_ERROR_INVALID_PTX (the text of an error); the log above")
		_, err = LoadCached(d, "new", []byte(strings.Replace(ptx, "sm_80", "sm_100", 1)), codeMap{})
		refused(t, err, ErrWrongImage, "the PTX is for sm_100, the device is sm_90")
		m, err := Load(d, "probe", []byte(ptx))
		ok(t, err)
		f, err := m.Function("vadd")
		ok(t, err)
		const most = 227 << 10
		ok(t, f.AllowShared(most))
		if a, err := f.Attributes(); err != nil || a.MaxShared != most {
			t.Errorf("attributes %+v, error %v", a, err)
		}
		if err := f.AllowShared(most + 1); err == nil || fake.Calls("cuFuncSetAttribute") != 1 {
			t.Errorf("%d bytes of shared memory: %v", most+1, err)
		}
		_, err = d.Allocate(4 << 20)
		refused(t, err, ErrOutOfMemory, "2097152 of 2097152 are free: cuMemAlloc_v2: error 2 CUDA_ERROR_OUT_OF_MEMORY")
		ok(t, m.Close())
	})
}

// The same launches from a stream, a graph that was built and one that was
// captured; and a fault.
func TestLaunches(t *testing.T) {
	onFake(t, func(d *Device, fake *drivertest.Fake, ptx string) {
		m, err := Load(d, "probe", []byte(ptx))
		ok(t, err)
		f, err := m.Function("vadd")
		ok(t, err)
		s, err := d.NewStream()
		ok(t, err)
		const n, length = 100, 6
		b, err := d.Allocate(4 * n * (length + 2))
		ok(t, err)
		launch := func(i int, count uint32) Launch {
			var args []byte
			for j := range 3 {
				args = binary.LittleEndian.AppendUint64(args, b.Address()+uint64(4*n*(i+j)))
			}
			args = binary.LittleEndian.AppendUint32(args, count)
			return Launch{Function: f, Grid: [3]uint32{1, 1, 1}, Block: [3]uint32{128, 1, 1}, Shared: 64, Args: args,
				Params: []Param{{Offset: 0, Size: 8}, {Offset: 8, Size: 8}, {Offset: 16, Size: 8}, {Offset: 24, Size: 4}}}
		}
		var list []Launch
		for i := range length {
			list = append(list, launch(i, n))
		}
		q, err := d.Prepare(list)
		ok(t, err)

		var eager []drivertest.Launch
		run := func(how string, launch func() error) {
			t.Helper()
			out := make([]byte, 4*n)
			ok(t, errors.Join(s.Fill32(b, 0, n*(length+2), 0), s.Fill32(b, 0, 2*n, 1), launch(), s.Sync(), b.Read(4*n*(length+1), out)))
			if v := binary.LittleEndian.Uint32(out[4*n-4:]); v != 21 { // 1 1 2 3 5 8 13 21
				t.Errorf("%s: %d", how, v)
			}
			ran := fake.Launches()
			for i := range ran {
				if ran[i].Graph != (how != "eager") || ran[i].Device != 1 {
					t.Errorf("%s: launch %d %+v", how, i, ran[i])
				}
				ran[i].Graph = false
			}
			if eager == nil {
				eager = ran
			}
			view := func(list []drivertest.Launch) (out []any) {
				for _, l := range list {
					out = append(out, l.Kernel.Name, l.Grid, l.Block, l.Shared, l.Kernarg)
				}
				return out
			}
			if diff := cmp.Diff(view(eager), view(ran)); diff != "" || len(ran) != length {
				t.Errorf("%d launches (-eager +%s)\n%s", len(ran), how, diff)
			}
		}
		run("eager", func() error { return s.Run(q) })
		for how, make := range map[string]func(*Sequence) (*Graph, error){"built": d.BuildGraph, "captured": d.CaptureGraph} {
			g, err := make(q)
			ok(t, err)
			e, err := g.Instantiate()
			ok(t, err)
			for range 2 {
				run(how, func() error { return s.Replay(e) })
			}
			ok(t, errors.Join(e.Close(), g.Close()))
		}
		_, err = d.Capture(func(s *Stream) error { return s.Sync() })
		refused(t, err, err, "cuStreamSynchronize: error 900 CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED")
		ok(t, q.Close())

		wide := launch(0, 1)
		wide.Grid[1] = 65536
		_, err = d.Prepare([]Launch{wide})
		refused(t, err, err, "launch 0 (vadd): grid [1 65536 1]: more than 65535 blocks along y")
		ok(t, errors.Join(s.Close(), m.Close(), b.Close()))
	})
}

func TestDeviceLost(t *testing.T) {
	onFake(t, func(d *Device, fake *drivertest.Fake, ptx string) {
		fake.Inject(drivertest.Fault{Call: "cuStreamSynchronize", Code: 700})
		s, err := d.NewStream()
		ok(t, err)
		refused(t, s.Sync(), ErrDeviceLost, "cuStreamSynchronize: error 700 CUDA_ERROR_ILLEGAL_ADDRESS (the text of an error); a kernel used an address")
		_, err = d.NewStream()
		refused(t, err, ErrDeviceLost, "cuStreamCreate: CUDA device 1 was lost before: cuStreamSynchronize: error 700")
		// Nothing is given back to a device that is lost.
		ok(t, s.Close())
		if n := fake.Calls("cuStreamDestroy_v2"); n != 0 {
			t.Errorf("cuStreamDestroy_v2 was called")
		}
		ok(t, fake.Forget())
	})
}

func TestNoDevice(t *testing.T) {
	if err := drivertest.Supported(); err != nil {
		t.Skip(err)
	}
	fake, err := drivertest.New(t.TempDir(), drivertest.Options{Kind: driver.CUDA})
	ok(t, err)
	defer fake.Close()
	l, err := Open(Options{Library: fake.Path})
	ok(t, err)
	_, err = l.DeviceCount()
	refused(t, err, ErrNoDevice, "no device: CUDA 13.0 ("+fake.Path+"): cuInit says 100 CUDA_ERROR_NO_DEVICE; check nvidia-smi")
}
