package driver_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/kiln-project/kiln/runtime/internal/driver"
	"github.com/kiln-project/kiln/runtime/internal/driver/drivertest"
)

// ways to run a list of launches once.
var ways = map[string]func(*driver.Device, *driver.Stream, *driver.Sequence) error{
	"eager": func(d *driver.Device, s *driver.Stream, q *driver.Sequence) error {
		return errors.Join(s.Run(q), s.Sync())
	},
	"built": func(d *driver.Device, s *driver.Stream, q *driver.Sequence) error {
		g, err := d.BuildGraph(q)
		return replay(s, g, err)
	},
	"captured": func(d *driver.Device, s *driver.Stream, q *driver.Sequence) error {
		g, err := d.CaptureGraph(q)
		return replay(s, g, err)
	},
}

func replay(s *driver.Stream, g *driver.Graph, err error) error {
	if err != nil {
		return err
	}
	e, err := g.Instantiate()
	if err != nil {
		return errors.Join(err, g.Close())
	}
	return errors.Join(s.Replay(e), s.Sync(), e.Close(), g.Close())
}

// Each fault in each version: the error says where and what, nothing stays open,
// and what is left works.
func TestFaults(t *testing.T) {
	const invalid = "error 1 hipErrorInvalidValue; an argument is out of range"
	for _, tc := range []struct {
		way   string
		fault drivertest.Fault
		want  string
		index int // of the launch, or -1
	}{
		{"eager", drivertest.Fault{Call: "hipModuleLaunchKernel", Skip: 3, Code: 1}, "launch 3 (k_add): hipModuleLaunchKernel: " + invalid, 3},
		{"eager", drivertest.Fault{Call: "hipModuleLaunchKernel", Code: 98}, "launch 0 (k_add): hipModuleLaunchKernel: error 98 hipErrorInvalidDeviceFunction", 0},
		{"eager", drivertest.Fault{Call: "hipStreamSynchronize", Code: 2}, "hipStreamSynchronize: error 2 hipErrorOutOfMemory", -1},
		{"built", drivertest.Fault{Call: "hipGraphCreate", Code: 2}, "hipGraphCreate: error 2", -1},
		{"built", drivertest.Fault{Call: "hipGraphAddKernelNode", Skip: 4, Code: 1}, "building a graph: launch 4 (k_add): hipGraphAddKernelNode: " + invalid, 4},
		{"built", drivertest.Fault{Call: "hipGraphInstantiateWithFlags", Code: 2}, "graph (built): hipGraphInstantiateWithFlags: error 2", -1},
		{"built", drivertest.Fault{Call: "hipGraphLaunch", Code: 1}, "hipGraphLaunch: " + invalid, -1},
		{"captured", drivertest.Fault{Call: "hipStreamCreateWithFlags", Code: 2}, "hipStreamCreateWithFlags: error 2", -1},
		{"captured", drivertest.Fault{Call: "hipStreamBeginCapture", Code: 900}, "capturing a graph: hipStreamBeginCapture: error 900 hipErrorStreamCaptureUnsupported; a call that is not allowed", -1},
		{"captured", drivertest.Fault{Call: "hipModuleLaunchKernel", Skip: 2, Code: 1}, "capturing a graph: launch 2 (k_add): hipModuleLaunchKernel: " + invalid, 2},
		// Reported by the call, or, as before ROCm 7.14, by the status alone.
		{"captured", drivertest.Fault{Call: "hipModuleLaunchKernel", Skip: 1, Code: 900, Invalidate: true}, "launch 1 (k_add): hipModuleLaunchKernel: error 900", 1},
		{"captured", drivertest.Fault{Call: "hipStreamIsCapturing", Skip: 1, Invalidate: true}, "launch 1 (k_add): hipStreamIsCapturing: the capture is not active any more (status 2)", 1},
		{"captured", drivertest.Fault{Call: "hipStreamEndCapture", Invalidate: true}, "capturing a graph: hipStreamEndCapture: error 901 hipErrorStreamCaptureInvalidated", -1},
		{"captured", drivertest.Fault{Call: "hipGraphGetNodes", Code: 1}, "capturing a graph: hipGraphGetNodes: " + invalid, -1},
		{"captured", drivertest.Fault{Call: "hipGraphInstantiateWithFlags", Code: 2}, "graph (captured): hipGraphInstantiateWithFlags: error 2", -1},
	} {
		for _, version := range drivertest.Versions() {
			t.Run(fmt.Sprintf("%s/%s/%s", tc.way, tc.fault.Call, version), func(t *testing.T) {
				f := newFake(t, drivertest.Options{Version: version, Devices: []drivertest.Device{mi300}, Execute: runAdd})
				d := openDevice(t, f)
				c := newChain(t, d)
				s := must[*driver.Stream](t)(d.NewStream())
				c.reset(t)
				before := len(must[[]string](t)(d.Open()))

				f.Inject(tc.fault)
				err := ways[tc.way](d, s, c.sequence)
				if err == nil || !strings.Contains(err.Error(), tc.want) {
					t.Errorf("error %v, want %s", err, tc.want)
				}
				var at *driver.LaunchError
				if got := errors.As(err, &at); got != (tc.index >= 0) || got && at.Index != tc.index {
					t.Errorf("launch %+v, want %d", at, tc.index)
				}
				if open := must[[]string](t)(d.Open()); len(open) != before {
					t.Errorf("open afterwards: %v", open)
				}

				c.reset(t)
				check(t, ways[tc.way](d, s, c.sequence))
				c.verify(t, "after the fault")
				check(t, s.Close())
				c.close(t)
				check(t, d.Close())
			})
		}
	}
}

func TestOutOfMemory(t *testing.T) {
	small := mi300
	small.Memory = 1000
	f := newFake(t, drivertest.Options{Devices: []drivertest.Device{small}})
	d := openDevice(t, f)
	b := must[*driver.Buffer](t)(d.Allocate(600))
	_, err := d.Allocate(500)
	want := "device 0: allocating 500 bytes, 400 of 1000 are free: hipMalloc: error 2 hipErrorOutOfMemory; rocm-smi"
	if !errors.Is(err, driver.ErrOutOfMemory) || !strings.Contains(err.Error(), want) {
		t.Errorf("error %v, want %s", err, want)
	}
	f.Inject(drivertest.Fault{Call: "hipHostMalloc", Code: 2})
	if _, err := d.AllocatePinned(16); !errors.Is(err, driver.ErrOutOfMemory) {
		t.Errorf("error %v", err)
	}
	f.Inject(drivertest.Fault{Call: "hipHostGetDevicePointer", Code: 1})
	if _, err := d.AllocatePinned(16); err == nil {
		t.Error("pinned memory without an address")
	}
	check(t, b.Close())
	check(t, must[*driver.Buffer](t)(d.Allocate(1000)).Close())
	check(t, d.Close())
}

// A kernel that faults loses the device: the next wait says so, everything later
// says which call found it, and closing does not call the driver any more.
func TestDeviceLost(t *testing.T) {
	for way, run := range ways {
		t.Run(way, func(t *testing.T) {
			f := newFake(t, drivertest.Options{Devices: []drivertest.Device{mi300}, Execute: func(l *drivertest.Launch) error {
				_, err := l.Memory(16, 4) // an address that is not mapped
				return err
			}})
			d := openDevice(t, f)
			c := newChain(t, d)
			s := must[*driver.Stream](t)(d.NewStream())
			err := run(d, s, c.sequence)
			if !errors.Is(err, driver.ErrDeviceLost) || !strings.Contains(err.Error(), "error 700 hipErrorIllegalAddress; a kernel used an address that is not mapped") {
				t.Errorf("error %v", err)
			}
			calls := f.Calls("hipMalloc")
			_, err = d.Allocate(16)
			if !errors.Is(err, driver.ErrDeviceLost) || !strings.Contains(err.Error(), "hipMalloc: HIP device 0 was lost before: hip") {
				t.Errorf("error %v", err)
			}
			check(t, s.Close())
			c.close(t)
			check(t, d.Close())
			if f.Calls("hipMalloc") != calls || f.Calls("hipFree") != 0 || f.Calls("hipStreamDestroy") > 1 {
				t.Error("the driver was called after the device was lost")
			}
			check(t, f.Forget())
		})
	}
}

// What a capture may not do is an error of the capture.
func TestCaptureOfCalls(t *testing.T) {
	f := newFake(t, drivertest.Options{Devices: []drivertest.Device{mi300}, Execute: runAdd})
	d := openDevice(t, f)
	c := newChain(t, d)
	g := must[*driver.Graph](t)(d.Capture(func(s *driver.Stream) error {
		return errors.Join(s.Fill(c.buffers[0], 0, 8, 1), s.Run(c.sequence))
	}))
	if n := must[int](t)(g.Nodes()); n != 1+chainLength {
		t.Errorf("%d nodes", n)
	}
	check(t, g.Close())

	for what, call := range map[string]func(*driver.Stream) error{
		"hipMalloc: error 900":            func(*driver.Stream) error { return second(d.Allocate(16)) },
		"hipMemcpyHtoD: error 906":        func(*driver.Stream) error { return c.buffers[0].Write(0, []byte{1}) },
		"hipStreamSynchronize: error 900": (*driver.Stream).Sync,
		"hipModuleLoadData: error 900":    func(*driver.Stream) error { return second(d.LoadModule("add", addImage(t))) },
		"hipStreamIsCapturing: the capture is not active any more (status 2)": func(*driver.Stream) error {
			_ = second(d.Allocate(16)) // an error that a careless library drops
			return nil
		},
	} {
		if _, err := d.Capture(call); err == nil || !strings.Contains(err.Error(), "capturing a graph: ") || !strings.Contains(err.Error(), what) {
			t.Errorf("error %v, want %s", err, what)
		}
	}
	c.close(t)
	check(t, d.Close())
}

// A graph with less than was put in is not accepted.
func TestCaptureLosesLaunches(t *testing.T) {
	f := newFake(t, drivertest.Options{Devices: []drivertest.Device{mi300}})
	d := openDevice(t, f)
	c := newChain(t, d)
	f.DropFromCapture(2)
	_, err := d.CaptureGraph(c.sequence)
	if want := "5 launches were captured as 4 nodes"; err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("error %v, want %s", err, want)
	}
	c.close(t)
	check(t, d.Close())
}

func TestCheckLaunch(t *testing.T) {
	f := newFake(t, drivertest.Options{Devices: []drivertest.Device{mi300}})
	d := openDevice(t, f)
	m := must[*driver.Module](t)(d.LoadModule("add", addImage(t)))
	k := must[*driver.Function](t)(m.Function("k_add"))
	good := driver.Launch{Function: k, Grid: [3]uint32{1, 1, 1}, Block: [3]uint32{64, 1, 1}, Args: make([]byte, 48), Params: addParams}
	for want, change := range map[string]func(*driver.Launch){
		"launch 1 (no kernel): the launch has no kernel":                   func(l *driver.Launch) { l.Function = nil },
		"grid [1 0 1], block [64 1 1]: no dimension may be 0":              func(l *driver.Launch) { l.Grid[1] = 0 },
		"grid [1 1 1], block [64 1 0]: no dimension may be 0":              func(l *driver.Launch) { l.Block[2] = 0 },
		"block [64 17 1]: more than 1024 work-items":                       func(l *driver.Launch) { l.Block[1] = 17 },
		"more than 4294967295 work-items along x":                          func(l *driver.Launch) { l.Grid[0] = 1 << 26 },
		"65537 bytes of LDS: a workgroup has 65536":                        func(l *driver.Launch) { l.Shared = 65537 },
		"parameter 5: 8 bytes at offset 40 do not follow the one before":   func(l *driver.Launch) { l.Args = l.Args[:47] },
		"parameter 1: 8 bytes at offset 7 do not follow the one before":    func(l *driver.Launch) { l.Params = []driver.Param{{Offset: 0, Size: 8}, {Offset: 7, Size: 8}} },
		"parameter 0: 0 bytes at offset 0 do not follow the one before":    func(l *driver.Launch) { l.Params = []driver.Param{{}} },
		"parameter 0: 8 bytes at offset 9000 do not follow the one before": func(l *driver.Launch) { l.Params = []driver.Param{{Offset: 9000, Size: 8}} },
	} {
		bad := good
		change(&bad)
		_, err := d.Prepare([]driver.Launch{good, bad})
		var at *driver.LaunchError
		if !errors.As(err, &at) || at.Index != 1 || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %s", err, want)
		}
	}
	check(t, must[*driver.Sequence](t)(d.Prepare(nil)).Close())
	check(t, m.Close())
	if _, err := d.Prepare([]driver.Launch{good}); !errors.Is(err, driver.ErrClosed) {
		t.Errorf("a launch of a closed module: %v", err)
	}
	check(t, d.Close())
}

func TestModule(t *testing.T) {
	f := newFake(t, drivertest.Options{Devices: []drivertest.Device{mi300}})
	d := openDevice(t, f)
	if _, err := d.LoadModule("text", []byte("no code object")); !errors.Is(err, driver.ErrWrongImage) ||
		!strings.Contains(err.Error(), "device 0 (gfx942:sramecc+:xnack-): module text: hipModuleLoadData: error 200 hipErrorInvalidImage; kiln inspect") {
		t.Errorf("error %v", err)
	}
	m := must[*driver.Module](t)(d.LoadModule("add", addImage(t)))
	if _, err := m.Function("k_sub"); err == nil || !strings.Contains(err.Error(), "module add: kernel k_sub: hipModuleGetFunction: error 500 hipErrorNotFound; kiln inspect") {
		t.Errorf("error %v", err)
	}
	if _, _, err := m.Global("table"); err == nil || !strings.Contains(err.Error(), "module add: variable table: hipModuleGetGlobal: error 500") {
		t.Errorf("error %v", err)
	}
	k := must[*driver.Function](t)(m.Function("k_add"))
	want := driver.Attributes{MaxGroup: 256, Registers: 14, MaxShared: 65536}
	if a := must[driver.Attributes](t)(k.Attributes()); a != want {
		t.Errorf("attributes %+v, want %+v", a, want)
	}
	check(t, k.AllowShared(65536))
	if err := k.AllowShared(65537); err == nil || !strings.Contains(err.Error(), "kernel k_add: 65537 bytes of LDS and 0 that the code declares: device 0 has 65536") {
		t.Errorf("error %v", err)
	}
	check(t, m.Close())
	if _, err := k.Attributes(); !errors.Is(err, driver.ErrClosed) {
		t.Errorf("a kernel of a closed module: %v", err)
	}
	check(t, d.Close())
}
