package cuda

import (
	"encoding/binary"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kiln-project/kiln/codegen/plan"
	"github.com/kiln-project/kiln/codegen/target"
	"github.com/kiln-project/kiln/runtime/device"
	"github.com/kiln-project/kiln/runtime/device/devicetest"
	"github.com/kiln-project/kiln/runtime/internal/driver"
	"github.com/kiln-project/kiln/runtime/internal/driver/drivertest"
	"github.com/kiln-project/kiln/runtime/internal/gpu"
)

func TestMain(m *testing.M) { devicetest.Main(m) }

// addPTX takes arguments as plans give them: 8 bytes each.
var addPTX = func() []byte {
	text := strings.Replace(string(probe), ".param .u32 vadd_n", ".param .u64 vadd_n", 1)
	return []byte(text)
}()

// onPlans runs f on a device of plans; staging is small, so that copies are cut.
func onPlans(t *testing.T, o PlanOptions, f func(d *PlanDevice, fake *drivertest.Fake)) {
	t.Helper()
	onSteps(t, o, runVadd, f)
}

// options are all ways for launches to reach the device.
var options = []PlanOptions{
	{Graph: gpu.GraphOff},
	{},
	{Graph: gpu.GraphOn, Build: gpu.BuildCapture},
}

func words(v ...uint32) []byte {
	var b []byte
	for _, w := range v {
		b = binary.LittleEndian.AppendUint32(b, w)
	}
	return b
}

// sums is a plan's list: out[i+2] = out[i] + out[i+1] of rows of n words.
func sums(m device.Memory, n, length int) []device.Launch {
	var list []device.Launch
	for i := range length {
		l := device.Launch{Symbol: "vadd", Op: "add", Loc: "ffn", Grid: 1, Block: 256, Args: make([]device.Arg, 4)}
		for j := range 3 {
			l.Args[j] = device.Arg{Address: m.Address() + uint64(4*n*(i+j)), Bytes: int64(4 * n), Mode: plan.Read}
		}
		l.Args[3].Int = int64(n)
		list = append(list, l)
	}
	return list
}

// Launches see what was written before, and what is read waits for them: with
// copies in parts, and however launches reach the device.
func TestPlanDevice(t *testing.T) {
	for _, o := range options {
		onPlans(t, o, func(d *PlanDevice, fake *drivertest.Fake) {
			if d.Name() != "cuda" || d.Chip() != "sm_90" || d.Graphs() != (o.Graph != gpu.GraphOff) {
				t.Errorf("device %s, chip %s, graphs %v", d.Name(), d.Chip(), d.Graphs())
			}
			lib, err := d.Load(addPTX, []string{"vadd"})
			ok(t, err)
			const n, length = 20, 4
			m, err := d.Alloc(4 * n * (length + 2))
			ok(t, err)
			if m.Bytes() != nil || m.Size() != 4*n*(length+2) {
				t.Errorf("a block of %d bytes", m.Size())
			}
			s, err := lib.Prepare(sums(m, n, length))
			ok(t, err)
			got := make([]byte, 4*n)
			for round := range uint32(3) {
				one := make([]uint32, n)
				for i := range one {
					one[i] = uint32(i) + round
				}
				ok(t, errors.Join(m.Zero(), m.Write(0, words(one...)), m.Write(4*n, words(one...)), s.Run(), m.Read(4*n*(length+1), got)))
				for i := range one {
					one[i] *= 8 // 1 1 2 3 5 8
				}
				if d := cmp.Diff(words(one...), got); d != "" {
					t.Fatalf("round %d: %s", round, d)
				}
			}
			for i, l := range fake.Launches() {
				if l.Graph != d.Graphs() {
					t.Errorf("launch %d in a graph: %v", i, l.Graph)
				}
			}
			if made := fake.Calls("cuGraphInstantiateWithFlags"); made != map[bool]int{true: 1}[d.Graphs()] {
				t.Errorf("%d graphs for one sequence", made)
			}
			empty, err := lib.Prepare(nil)
			ok(t, errors.Join(err, empty.Run(), empty.Close(), d.Sync()))
			nothing, err := d.Alloc(0)
			ok(t, errors.Join(err, nothing.Read(0, nil), nothing.Write(0, nil), nothing.Zero()))
			ok(t, errors.Join(nothing.Free(), s.Close(), m.Free(), lib.Close()))
		})
	}
}

// A kernel whose shared memory a launch gives gets as much as its plan says, beyond what
// a launch may give unasked too: from a stream and from a graph, built or captured.
func TestPlanPool(t *testing.T) {
	text := strings.Replace(string(addPTX), ".visible .entry vadd", ".extern .shared .align 128 .b8 vadd_pool[];\n.visible .entry vadd", 1)
	text = strings.Replace(text, "ret;", "mov.u64 %rd1, vadd_pool;\n\tret;", 1)
	for _, o := range options {
		onPlans(t, o, func(d *PlanDevice, fake *drivertest.Fake) {
			lib, err := d.Load([]byte(text), []string{"vadd"})
			ok(t, err)
			m, err := d.Alloc(400)
			ok(t, err)
			list := sums(m, 10, 3)
			list[0].Shared, list[1].Shared, list[2].Shared = 100, 200<<10, 64<<10
			s, err := lib.Prepare(list)
			ok(t, errors.Join(err, m.Zero(), s.Run(), d.Sync()))
			for i, l := range fake.Launches() {
				if int(l.Shared) != list[i].Shared {
					t.Errorf("launch %d has %d bytes of shared memory, want %d", i, l.Shared, list[i].Shared)
				}
			}
			if n := fake.Calls("cuFuncSetAttribute"); n != 2 {
				t.Errorf("more shared memory was asked for %d times, want 2", n)
			}
			for _, c := range []struct {
				bytes int
				want  string
			}{
				{0, "the plan gives 0 bytes of shared memory, the code uses such: true"},
				{1 << 20, "kernel vadd: 1048576 bytes of LDS and 0 that the code declares: device 0 has 232448 for a workgroup"},
			} {
				list[1].Shared = c.bytes
				_, err = lib.Prepare(list)
				refused(t, err, err, c.want)
			}
			ok(t, errors.Join(s.Close(), m.Free(), lib.Close()))
		})
	}
}

// What does not fit is refused with the name of the launch and its kernel.
func TestPlanRefuses(t *testing.T) {
	onPlans(t, PlanOptions{}, func(d *PlanDevice, fake *drivertest.Fake) {
		lib, err := d.Load(addPTX, []string{"vadd"})
		ok(t, err)
		m, err := d.Alloc(400)
		ok(t, err)
		for want, change := range map[string]func(l *device.Launch){
			"the code takes 4 arguments, the plan gives 3":                        func(l *device.Launch) { l.Args = l.Args[:3] },
			"the plan gives 64 bytes of shared memory, the code uses such: false": func(l *device.Launch) { l.Shared = 64 },
			"a grid of 0 groups":                                                  func(l *device.Launch) { l.Grid = 0 },
			"block [4096 1 1]: more than 1024 work-items":                         func(l *device.Launch) { l.Block = 4096 },
			"launch 1, kernel vadd (add at ffn): grid [1 1 1], block [0 1 1]: no": func(l *device.Launch) { l.Block = 0 },
		} {
			list := sums(m, 10, 3)
			change(&list[1])
			_, err := lib.Prepare(list)
			var at *device.LaunchError
			if !errors.As(err, &at) || at.Index != 1 || at.Loc != "ffn" || !strings.Contains(err.Error(), want) {
				t.Errorf("error %v, want %s", err, want)
			}
		}
		fake.Inject(drivertest.Fault{Call: "cuGraphAddKernelNode_v2", Skip: 2, Code: 1})
		_, err = lib.Prepare(sums(m, 10, 3))
		refused(t, err, err, "launch 2, kernel vadd (add at ffn): cuGraphAddKernelNode_v2: error 1")
		for _, at := range []int64{-1, 399} {
			for _, err := range []error{m.Write(at, make([]byte, 2)), m.Read(at, make([]byte, 2))} {
				refused(t, err, err, "of a block of 400")
			}
		}
		_, err = d.Load(addPTX, []string{"vadd", "vsub"})
		refused(t, err, err, "module kernels.ptx: no kernel vsub in the PTX text")
		_, err = d.Load(nil, []string{"vadd"})
		refused(t, err, err, "kernel vadd: the library is empty")
		_, err = d.Load([]byte("\x7fELF\x00"), nil)
		refused(t, err, ErrWrongImage, "no PTX text")
		none, err := d.Load(nil, nil)
		ok(t, errors.Join(err, none.Close(), m.Free(), lib.Close()))
	})
}

// A fault shows where the host waits next, and closing after it is quiet.
func TestPlanDeviceLost(t *testing.T) {
	d, fake := openFake(t, func(*drivertest.Launch) error { return errors.New("fault") })
	x, err := OpenForPlans(d, PlanOptions{})
	ok(t, err)
	lib, err := x.Load(addPTX, []string{"vadd"})
	ok(t, err)
	m, err := x.Alloc(400)
	ok(t, err)
	s, err := lib.Prepare(sums(m, 10, 3))
	ok(t, errors.Join(err, s.Run()))
	refused(t, m.Read(0, make([]byte, 4)), ErrDeviceLost, "error 700 CUDA_ERROR_ILLEGAL_ADDRESS")
	refused(t, s.Run(), ErrDeviceLost, "was lost before")
	refused(t, errors.Join(s.Close(), m.Free(), lib.Close()), ErrDeviceLost, "was lost before")
	ok(t, errors.Join(x.Close(), fake.Forget(), fake.Close()))
}

func TestRuns(t *testing.T) {
	all := []string{"x86-64-v3", "gfx942", "sm_80", "sm_90", "sm_90a", "sm_100"}
	for device, want := range map[string][]string{
		"sm_90": {"sm_90a", "sm_90", "sm_80"}, "sm_89": {"sm_80"}, "sm_120": {"sm_100", "sm_90", "sm_80"}, "sm_70": {},
	} {
		if d := cmp.Diff(want, Runs(device, all)); d != "" {
			t.Errorf("%s: %s", device, d)
		}
	}
}

// codeMap is a cache in memory.
type codeMap map[string][]byte

func (c codeMap) Get(digest string) ([]byte, bool) { b, ok := c[digest]; return b, ok }

func (c codeMap) Put(digest string, code []byte) error {
	if _, ok := c[digest]; !ok && len(c) > 0 {
		return errors.New("the cache is full")
	}
	c[digest] = code
	return nil
}

// Another target, version or build of the driver makes another cubin of the same text.
func TestCubinKey(t *testing.T) {
	base := Info{Target: "sm_90", Version: 13000, Build: "a"}
	keys := map[string]bool{cubinKey(base, []byte("x")): true, cubinKey(base, []byte("y")): true}
	for _, change := range []func(*Info){func(i *Info) { i.Target = "sm_100" }, func(i *Info) { i.Version++ }, func(i *Info) { i.Build = "b" }} {
		i := base
		change(&i)
		keys[cubinKey(i, []byte("x"))] = true
	}
	if len(keys) != 5 {
		t.Errorf("%d keys of 5 cubins", len(keys))
	}
}

// Text is compiled once; a cubin that the driver refuses is made again; what the
// compiler or the cache refuses is an error.
func TestCodeCache(t *testing.T) {
	cache := codeMap{}
	for _, tc := range []struct {
		links, loads int // calls of the driver
		damage       bool
	}{{1, 1, false}, {0, 1, true}, {1, 2, false}, {0, 1, false}} {
		onPlans(t, PlanOptions{Code: cache}, func(d *PlanDevice, fake *drivertest.Fake) {
			lib, err := d.Load(addPTX, []string{"vadd"})
			ok(t, err)
			ok(t, lib.Close())
			if links, loads := fake.Calls("cuLinkComplete"), fake.Calls("cuModuleLoadDataEx"); links != tc.links || loads != tc.loads {
				t.Errorf("compiled %d times and loaded %d times, want %d and %d", links, loads, tc.links, tc.loads)
			}
			if fake.Calls("cuLinkCreate_v2") != fake.Calls("cuLinkDestroy") {
				t.Error("a linker is left")
			}
		})
		for k := range cache {
			if tc.damage {
				cache[k] = []byte("no code")
			}
		}
	}
	onPlans(t, PlanOptions{Code: cache}, func(d *PlanDevice, fake *drivertest.Fake) {
		other := []byte(string(addPTX) + "// not the same text\n")
		if _, err := d.Load(other, []string{"vadd"}); err == nil || !strings.Contains(err.Error(), "module kernels.ptx: the cache is full") {
			t.Errorf("a full cache: %v", err)
		}
	})
}

// The whole tiny model compiles to PTX, and its plans are taken by the device. The
// fake computes nothing: real GPUs run the tests with the tag gpu.
func TestModelIsTaken(t *testing.T) {
	c := devicetest.Compiler(t)
	tg, err := target.Lookup("sm_90")
	ok(t, err)
	if err := c.Tools.CheckTarget(t.Context(), tg.Triple, tg.CPU, tg.Features); err != nil {
		t.Skip(err)
	}
	b := devicetest.BuildBundle(t, c, tg, "../../testdata/tiny-dsv4", 128, 1, 4)
	for _, o := range options {
		d, fake := openFake(t, nil)
		x, err := OpenForPlans(d, o)
		ok(t, err)
		r := b.Start(t, x)
		s, err := r.NewSeq(0, b.Pages)
		ok(t, err)
		if _, err := r.DecodeOne(s, 7); err != nil {
			t.Error(err)
		}
		launches := fake.Launches()
		if n := len(b.Code.Module.Plans[0].Launches) + b.Code.Module.Around(); len(launches) != n {
			t.Errorf("%d launches, the plan has %d", len(launches), n)
		}
		r.Close(t)
		ok(t, fake.Close())
	}
}

// openFake opens an H200 with much memory.
func openFake(t *testing.T, execute func(*drivertest.Launch) error) (*Device, *drivertest.Fake) {
	t.Helper()
	if err := drivertest.Supported(); err != nil {
		t.Skip(err)
	}
	fake, err := drivertest.New(t.TempDir(), drivertest.Options{Kind: driver.CUDA, Execute: execute, Devices: []drivertest.Device{{Name: "H200", Arch: "sm_90", Memory: 1 << 32}}})
	ok(t, err)
	l, err := Open(Options{Library: fake.Path})
	ok(t, err)
	d, err := l.OpenDevice(0)
	ok(t, err)
	return d, fake
}
