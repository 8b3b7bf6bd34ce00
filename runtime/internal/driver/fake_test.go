package driver_test

import (
	"encoding/binary"
	"math"
	"os"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/kiln-project/kiln/runtime/internal/driver"
	"github.com/kiln-project/kiln/runtime/internal/driver/drivertest"
)

// mi300 is the device of most tests.
var mi300 = drivertest.Device{Name: "AMD Instinct MI300X", Arch: "gfx942:sramecc+:xnack-", Memory: 1 << 30}

// newFake makes a fake that must be left as it was found: nothing open, nothing
// done that a real driver punishes.
func newFake(t testing.TB, o drivertest.Options) *drivertest.Fake {
	t.Helper()
	if err := drivertest.Supported(); err != nil {
		t.Skip(err)
	}
	f, err := drivertest.New(t.TempDir(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if open := f.Open(); len(open) > 0 {
			t.Errorf("open in the driver: %v", open)
		}
		if p := f.Problems(); len(p) > 0 {
			t.Errorf("the driver complains: %v", p)
		}
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	})
	return f
}

func openLibrary(t testing.TB, f *drivertest.Fake) *driver.Library {
	t.Helper()
	l, err := driver.Open(driver.HIP, driver.Options{Library: f.Path})
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// openDevice opens device 0, which the test closes at its end if it has not
// done so itself.
func openDevice(t testing.TB, f *drivertest.Fake) *driver.Device {
	t.Helper()
	d, err := openLibrary(t, f).OpenDevice(0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	return d
}

// must gives the value of a call that may not fail.
func must[T any](t testing.TB) func(v T, err error) T {
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// addImage is a code object of another compiler: kernel k_add of x, y, out, n and
// two pointers that it does not use.
func addImage(t testing.TB) []byte {
	t.Helper()
	return must[[]byte](t)(os.ReadFile("../../../testdata/golden/triton/add.gfx942.hsaco"))
}

var addParams = []driver.Param{{Offset: 0, Size: 8}, {Offset: 8, Size: 8}, {Offset: 16, Size: 8}, {Offset: 24, Size: 4}, {Offset: 32, Size: 8}, {Offset: 40, Size: 8}}

// addArgs is the argument block of k_add.
func addArgs(x, y, out uint64, n uint32) []byte {
	b := make([]byte, 48)
	for i, p := range []uint64{x, y, out} {
		binary.LittleEndian.PutUint64(b[8*i:], p)
	}
	binary.LittleEndian.PutUint32(b[24:], n)
	return b
}

// runAdd is k_add.
func runAdd(l *drivertest.Launch) error {
	n := int(binary.LittleEndian.Uint32(l.Kernarg[24:]))
	var views [3][]byte
	for i := range views {
		var err error
		if views[i], err = l.Memory(binary.LittleEndian.Uint64(l.Kernarg[8*i:]), int64(4*n)); err != nil {
			return err
		}
	}
	x, y := floats(views[0]), floats(views[1])
	for i := range x {
		x[i] += y[i]
	}
	copy(views[2], floatBytes(x))
	return nil
}

func floats(b []byte) []float32 {
	list := make([]float32, len(b)/4)
	for i := range list {
		list[i] = math.Float32frombits(binary.LittleEndian.Uint32(b[4*i:]))
	}
	return list
}

func floatBytes(list []float32) []byte {
	var b []byte
	for _, v := range list {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(v))
	}
	return b
}

// chain is a computation that shows the order of its launches: buffer i+1 is
// buffer i plus buffer i-1.
type chain struct {
	module   *driver.Module
	buffers  []*driver.Buffer
	sequence *driver.Sequence
}

const chainLength, chainFloats = 5, 300

func newChain(t testing.TB, d *driver.Device) *chain {
	t.Helper()
	c := &chain{module: must[*driver.Module](t)(d.LoadModule("add", addImage(t)))}
	f := must[*driver.Function](t)(c.module.Function("k_add"))
	for range chainLength + 2 {
		c.buffers = append(c.buffers, must[*driver.Buffer](t)(d.Allocate(4*chainFloats)))
	}
	var list []driver.Launch
	for i := range chainLength {
		args := addArgs(c.buffers[i].Address(), c.buffers[i+1].Address(), c.buffers[i+2].Address(), chainFloats)
		list = append(list, driver.Launch{Function: f, Grid: [3]uint32{1, 1, 1}, Block: [3]uint32{256, 1, 1}, Shared: uint32(64 * i), Args: args, Params: addParams})
	}
	c.sequence = must[*driver.Sequence](t)(d.Prepare(list))
	// Prepare has copied them.
	for i := range list {
		clear(list[i].Args)
	}
	return c
}

// reset gives the first two buffers their values and the others none.
func (c *chain) reset(t *testing.T) {
	t.Helper()
	for i, b := range c.buffers {
		v := make([]float32, chainFloats)
		for j := range v {
			v[j] = []float32{float32(j), 1, float32(math.NaN())}[min(i, 2)]
		}
		check(t, b.Write(0, floatBytes(v)))
	}
}

// verify checks the last buffer.
func (c *chain) verify(t *testing.T, how string) {
	t.Helper()
	b := make([]byte, 4*chainFloats)
	check(t, c.buffers[chainLength+1].Read(0, b))
	for j, got := range floats(b) {
		x, y := float32(j), float32(1)
		for range chainLength {
			x, y = y, x+y
		}
		if got != y {
			t.Fatalf("%s: element %d is %g, want %g", how, j, got, y)
		}
	}
}

func (c *chain) close(t testing.TB) {
	t.Helper()
	check(t, c.sequence.Close())
	for _, b := range c.buffers {
		check(t, b.Close())
	}
	check(t, c.module.Close())
}

// sameLaunches compares what a device ran, whether from a stream or a graph.
func sameLaunches(t *testing.T, how string, want, got []drivertest.Launch) {
	t.Helper()
	type plain struct {
		Kernel      string
		Grid, Block [3]uint32
		Shared      uint32
		Kernarg     []byte
	}
	view := func(list []drivertest.Launch) (out []plain) {
		for _, l := range list {
			out = append(out, plain{l.Kernel.Name, l.Grid, l.Block, l.Shared, slices.Clone(l.Kernarg)})
		}
		return out
	}
	if d := cmp.Diff(view(want), view(got)); d != "" {
		t.Errorf("%s: launches differ (-eager +%s)\n%s", how, how, d)
	}
}
