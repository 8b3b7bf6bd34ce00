//go:build gpu

package cuda

import (
	"cmp"
	"encoding/binary"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// fault makes the kernel of TestIllegalAddress run in this process.
var fault = flag.Bool("fault", false, "let a kernel of TestIllegalAddress fault in this process")

// vaddParams are x, y, out, n.
var vaddParams = []Param{{Offset: 0, Size: 8}, {Offset: 8, Size: 8}, {Offset: 16, Size: 8}, {Offset: 24, Size: 4}}

// openDevice opens device 0 and checks at the end that nothing of it is open.
func openDevice(t *testing.T) *Device {
	t.Helper()
	l, err := Open(Options{})
	if err != nil {
		t.Fatal(err)
	}
	d, err := l.OpenDevice(0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	return d
}

// closer closes at the end of a test, before the device.
func closer(t *testing.T, c interface{ Close() error }) {
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// keep takes the result of a call and closes it at the end.
func keep[T interface{ Close() error }](t *testing.T) func(T, error) T {
	return func(v T, err error) T {
		t.Helper()
		check(t, err)
		closer(t, v)
		return v
	}
}

func kernel(t *testing.T, m *Module, name string) *Function {
	t.Helper()
	f, err := m.Function(name)
	check(t, err)
	return f
}

func TestDevice(t *testing.T) {
	d := openDevice(t)
	i := d.Info()
	text, err := json.Marshal(i)
	check(t, err)
	fmt.Printf("DEVICE %s\n", text)
	if i.Name == "" || !strings.HasPrefix(i.Target, "sm_") || i.Version < 11000 || i.Wave != 32 || i.Units < 1 || i.MaxGroup < 1024 ||
		i.Shared < 48<<10 || i.MaxShared < i.Shared || i.UnitShared < i.MaxShared || i.L2 < 1<<20 || i.ClockKHz < 100_000 || i.Memory < 1<<30 || i.MemoryFree > i.Memory {
		t.Errorf("device %+v", i)
	}
}

func TestCopies(t *testing.T) {
	d := openDevice(t)
	s := keep[*Stream](t)(d.NewStream())
	a, b := keep[*Buffer](t)(d.Allocate(64)), keep[*Buffer](t)(d.Allocate(64))
	p := keep[*Pinned](t)(d.AllocatePinned(64))
	copy(p.Bytes(), "0123456789")
	check(t, d.Do(func() error {
		return errors.Join(
			s.Fill(a, 0, 64, '.'), s.Fill32(a, 8, 2, 'x'<<24|'y'<<16|'z'<<8|'w'), s.Upload(a, 32, p, 2, 4), s.Copy(b, 0, a, 4, 60),
			s.Fill(b, 60, 4, '!'), s.Download(p, 10, b, 0, 40), s.Sync())
	}))
	if got := string(p.Bytes()[:50]); got != "0123456789....wzyxwzyx................2345........" {
		t.Errorf("got %q", got)
	}
	got := make([]byte, 8)
	check(t, errors.Join(b.Write(2, []byte("ab")), b.Read(0, got)))
	if string(got) != "..abwzyx" {
		t.Errorf("got %q", got)
	}
	if p.Address() == 0 {
		t.Error("pinned memory has no address on the device")
	}
}

func TestModule(t *testing.T) {
	d := openDevice(t)
	m := keep[*Module](t)(Load(d, "probe", probe))
	address, size, err := m.Global("primes")
	if err != nil || size != 16 || address == 0 {
		t.Errorf("primes: %d bytes at 0x%x, error %v", size, address, err)
	}
	if _, err := m.Function("absent"); err == nil || !strings.Contains(err.Error(), "module probe: kernel absent: cuModuleGetFunction: error 500 CUDA_ERROR_NOT_FOUND") {
		t.Errorf("error %v", err)
	}
	f := kernel(t, m, "vadd")
	a, err := f.Attributes()
	if err != nil || a.MaxGroup != 1024 || a.Registers < 4 || a.Shared != 0 || a.MaxShared < 48<<10 {
		t.Errorf("attributes %+v, error %v", a, err)
	}
	most := d.Info().MaxShared
	check(t, f.AllowShared(most))
	if a, err := f.Attributes(); err != nil || a.MaxShared != most {
		t.Errorf("attributes %+v, error %v, want %d bytes of shared memory", a, err, most)
	}
	if err := f.AllowShared(most + 1); err == nil {
		t.Error("more shared memory than there is")
	}
}

// The log of the PTX compiler is in the error.
func TestBadPTX(t *testing.T) {
	d := openDevice(t)
	bad := strings.Replace(string(probe), "add.rn.f32 %f3", "add.rn.f33 %f3", 1)
	_, err := Load(d, "bad", []byte(bad))
	var compile *CompileError
	if !errors.As(err, &compile) || !errors.Is(err, ErrWrongImage) || !strings.Contains(compile.Log, "error") || !strings.Contains(compile.Log, "line") {
		t.Errorf("error %v", err)
	}
	fmt.Printf("BADPTX %q\n", fmt.Sprint(err))
	// The driver is as before.
	keep[*Module](t)(Load(d, "probe", probe))
}

func TestOutOfMemory(t *testing.T) {
	d := openDevice(t)
	_, total, err := d.Memory()
	check(t, err)
	_, err = d.Allocate(int64(total) * 2)
	if !errors.Is(err, ErrOutOfMemory) || !strings.Contains(err.Error(), "are free: cuMemAlloc_v2: error 2 CUDA_ERROR_OUT_OF_MEMORY") {
		t.Errorf("error %v", err)
	}
	fmt.Printf("OOM %q\n", fmt.Sprint(err))
	check(t, keep[*Buffer](t)(d.Allocate(1<<20)).Write(0, []byte{1}))
}

const (
	chainLength = 20
	chainFloats = 10_000
)

// chain adds each buffer to the one before: the result shows the order of all
// launches.
type chain struct {
	buffers []*Buffer
	*Sequence
}

func newChain(t *testing.T, d *Device, f *Function) *chain {
	c := &chain{}
	for range chainLength + 2 {
		c.buffers = append(c.buffers, keep[*Buffer](t)(d.Allocate(4*chainFloats)))
	}
	var list []Launch
	for i := range chainLength {
		var args []byte
		for _, b := range c.buffers[i : i+3] {
			args = binary.LittleEndian.AppendUint64(args, b.Address())
		}
		args = binary.LittleEndian.AppendUint32(args, chainFloats)
		list = append(list, Launch{
			Function: f, Grid: [3]uint32{(chainFloats + 255) / 256, 1, 1}, Block: [3]uint32{256, 1, 1},
			Args: args, Params: vaddParams,
		})
	}
	c.Sequence = keep[*Sequence](t)(d.Prepare(list))
	return c
}

// run sets the buffers for round n, does the launches and returns the last one.
func (c *chain) run(t *testing.T, d *Device, s *Stream, n int, launch func() error) []byte {
	t.Helper()
	out := make([]byte, 4*chainFloats)
	check(t, d.Do(func() error {
		err := errors.Join(s.Fill(c.buffers[0], 0, 4*chainFloats, byte(n%30+40)), s.Fill(c.buffers[1], 0, 4*chainFloats, byte(n%7+50)))
		for _, b := range c.buffers[2:] {
			err = errors.Join(err, s.Fill(b, 0, 4*chainFloats, 0xff))
		}
		return errors.Join(err, launch(), s.Sync(), c.buffers[chainLength+1].Read(0, out))
	}))
	return out
}

// Graphs, built and captured, give the bits of launches, 1,000 times.
func TestGraphs(t *testing.T) {
	d := openDevice(t)
	s := keep[*Stream](t)(d.NewStream())
	c := newChain(t, d, kernel(t, keep[*Module](t)(Load(d, "probe", probe)), "vadd"))
	want := map[int]string{}
	for n := range 210 { // where both bytes repeat
		want[n] = string(c.run(t, d, s, n, func() error { return s.Run(c.Sequence) }))
	}
	if want[0] == want[1] || want[0] == strings.Repeat(string([]byte{0xff}), 4*chainFloats) {
		t.Fatal("the launches have no effect")
	}
	for how, make := range map[string]func(*Sequence) (*Graph, error){"built": d.BuildGraph, "captured": d.CaptureGraph} {
		g := keep[*Graph](t)(make(c.Sequence))
		if n, err := g.Nodes(); err != nil || n != chainLength {
			t.Errorf("%s: %d nodes, error %v", how, n, err)
		}
		e := keep[*Exec](t)(g.Instantiate())
		bad := 0
		for n := range 1000 {
			if got := c.run(t, d, s, n, func() error { return s.Replay(e) }); string(got) != want[n%210] {
				bad++
			}
		}
		if bad > 0 {
			t.Errorf("%s: %d of 1000 replays differ from launches", how, bad)
		}
		fmt.Printf("REPLAYS {\"graph\": %q, \"replays\": 1000, \"different\": %d}\n", how, bad)
	}
}

// What is forbidden in a capture fails, and the device works afterwards.
func TestCaptureError(t *testing.T) {
	d := openDevice(t)
	_, err := d.Capture(func(s *Stream) error { return s.Sync() })
	if err == nil || !strings.Contains(err.Error(), "cuStreamSynchronize: error 900") {
		t.Errorf("error %v", err)
	}
	s := keep[*Stream](t)(d.NewStream())
	check(t, s.Sync())
}

// A fault of a kernel ends the device for the process, so it happens in another.
func TestIllegalAddress(t *testing.T) {
	if !*fault {
		out, err := exec.Command(os.Args[0], "-test.run=^TestIllegalAddress$", "-test.v", "-fault").CombinedOutput()
		if err != nil || !strings.Contains(string(out), "LOST") {
			t.Errorf("error %v\n%s", err, out)
		}
		fmt.Printf("%s", out)
		return
	}
	l, err := Open(Options{})
	check(t, err)
	d, err := l.OpenDevice(0)
	check(t, err)
	m, err := Load(d, "probe", probe)
	check(t, err)
	q, err := d.Prepare([]Launch{{Function: kernel(t, m, "vadd"), Grid: [3]uint32{1, 1, 1}, Block: [3]uint32{32, 1, 1},
		Args: append(make([]byte, 24), 32, 0, 0, 0), Params: vaddParams}})
	check(t, err)
	s, err := d.NewStream()
	check(t, err)
	err = errors.Join(s.Run(q), s.Sync())
	if !errors.Is(err, ErrDeviceLost) || !strings.Contains(err.Error(), "error 700 CUDA_ERROR_ILLEGAL_ADDRESS") {
		t.Errorf("error %v", err)
	}
	_, again := d.Allocate(16)
	if !errors.Is(again, ErrDeviceLost) || !strings.Contains(again.Error(), "was lost before") {
		t.Errorf("error %v", again)
	}
	check(t, errors.Join(s.Close(), q.Close(), m.Close(), d.Close()))
	fmt.Printf("LOST %q\n", fmt.Sprint(err))
}

// timing is what a chain of empty kernels takes, in microseconds.
type timing struct {
	How           string  `json:"how"`
	Nodes         int     `json:"nodes"`
	Make          float64 `json:"make_us"`            // of the graph, and to make it executable
	HostPerReplay float64 `json:"host_us_per_replay"` // in a row, on the device's thread; the best of 5
	HostPerCall   float64 `json:"host_us_per_call"`   // each from another thread
	PerNode       float64 `json:"device_us_per_node"`
}

func TestTiming(t *testing.T) {
	d := openDevice(t)
	s := keep[*Stream](t)(d.NewStream())
	from, until := keep[*Event](t)(d.NewEvent()), keep[*Event](t)(d.NewEvent())
	f := kernel(t, keep[*Module](t)(Load(d, "probe", probe)), "nop")
	us := func(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }

	const changes = 10_000
	start := time.Now()
	for range changes {
		check(t, d.Do(func() error { return nil }))
	}
	fmt.Printf("THREAD {\"us_per_change\": %.2f}\n", us(time.Since(start))/changes)

	for _, nodes := range []int{100, 1000} {
		list := make([]Launch, nodes)
		for i := range list {
			list[i] = Launch{Function: f, Grid: [3]uint32{1, 1, 1}, Block: [3]uint32{32, 1, 1}}
		}
		q := keep[*Sequence](t)(d.Prepare(list))
		measure := func(how string, made time.Duration, once func() error) {
			r := timing{How: how, Nodes: nodes, Make: us(made)}
			repeat := func(n int) error {
				for range n {
					if err := once(); err != nil {
						return err
					}
				}
				return nil
			}
			// The best of some batches, as of all that the host takes its time for.
			const batches, few, many = 5, 10, 200
			check(t, d.Do(func() error {
				if err := errors.Join(repeat(few), s.Sync()); err != nil {
					return err
				}
				for range batches {
					start := time.Now()
					err := repeat(many)
					took := us(time.Since(start)) / many
					if r.HostPerReplay = min(cmp.Or(r.HostPerReplay, took), took); err != nil {
						return err
					}
					if err := s.Sync(); err != nil {
						return err
					}
				}
				return errors.Join(s.Record(from), repeat(many), s.Record(until), until.Sync())
			}))
			start := time.Now()
			for range few {
				check(t, d.Do(once))
			}
			r.HostPerCall = us(time.Since(start)) / few
			check(t, s.Sync())
			took, err := until.Since(from)
			check(t, err)
			r.PerNode = us(took) / float64(many*nodes)
			text, err := json.Marshal(r)
			check(t, err)
			fmt.Printf("TIMING %s\n", text)
		}
		measure("eager", 0, func() error { return s.Run(q) })
		for _, way := range []struct {
			how  string
			make func(*Sequence) (*Graph, error)
		}{{"built", d.BuildGraph}, {"captured", d.CaptureGraph}} {
			start := time.Now()
			g := keep[*Graph](t)(way.make(q))
			e := keep[*Exec](t)(g.Instantiate())
			measure(way.how, time.Since(start), func() error { return s.ReplayInDo(e) })
		}
	}
}

// TestBranches measures what one chain of kernels costs that do not depend on each other:
// beside the chain, the same kernels in branches, which a capture makes of streams.
func TestBranches(t *testing.T) {
	d := openDevice(t)
	m := keep[*Module](t)(Load(d, "probe", probe))
	nop, vadd := kernel(t, m, "nop"), kernel(t, m, "vadd")
	const kernels, most = 96, 4
	main := keep[*Stream](t)(d.NewStream())
	from, until := keep[*Event](t)(d.NewEvent()), keep[*Event](t)(d.NewEvent())
	var side []*Stream
	var joins []*Event
	for range most - 1 {
		side = append(side, keep[*Stream](t)(d.NewStream()))
		joins = append(joins, keep[*Event](t)(d.NewEvent()))
	}
	fork := keep[*Event](t)(d.NewEvent())
	for _, c := range []struct {
		name   string
		floats int // of vadd; 0: nop
	}{{"empty", 0}, {"40 kB each", 10_000}, {"4 MB each", 1_000_000}} {
		var list []Launch
		for i := range kernels {
			l := Launch{Function: nop, Grid: [3]uint32{1, 1, 1}, Block: [3]uint32{256, 1, 1}}
			if c.floats > 0 {
				if i < most { // a branch has buffers of its own
					for range 3 {
						b := keep[*Buffer](t)(d.Allocate(int64(4 * c.floats)))
						l.Args = binary.LittleEndian.AppendUint64(l.Args, b.Address())
					}
					l.Args = binary.LittleEndian.AppendUint32(l.Args, uint32(c.floats))
				} else {
					l.Args = list[i-most].Args
				}
				l.Function, l.Grid[0], l.Params = vadd, uint32(c.floats+255)/256, vaddParams
			}
			list = append(list, l)
		}
		for _, branches := range []int{1, 2, most} {
			var parts []*Sequence // branch i has the kernels i, i+branches, ...
			for i := range branches {
				var part []Launch
				for j := i; j < kernels; j += branches {
					part = append(part, list[j])
				}
				parts = append(parts, keep[*Sequence](t)(d.Prepare(part)))
			}
			g := keep[*Graph](t)(d.Capture(func(s *Stream) error {
				err := s.Record(fork)
				for i := range branches - 1 {
					err = errors.Join(err, side[i].Wait(fork), side[i].Run(parts[i+1]), side[i].Record(joins[i]))
				}
				err = errors.Join(err, s.Run(parts[0]))
				for i := range branches - 1 {
					err = errors.Join(err, s.Wait(joins[i]))
				}
				return err
			}))
			e := keep[*Exec](t)(g.Instantiate())
			const few, many = 10, 200
			var host time.Duration
			check(t, d.Do(func() error {
				repeat := func(n int) (err error) {
					for range n {
						err = errors.Join(err, main.ReplayInDo(e))
					}
					return err
				}
				err := errors.Join(repeat(few), main.Sync())
				start := time.Now()
				err = errors.Join(err, repeat(few))
				host = time.Since(start) / few
				return errors.Join(err, main.Sync(), main.Record(from), repeat(many), main.Record(until), until.Sync())
			}))
			took, err := until.Since(from)
			check(t, err)
			us := float64(took.Nanoseconds()) / 1000 / many
			fmt.Printf("BRANCHES {\"kernels\": %d, \"work\": %q, \"branches\": %d, \"us_per_replay\": %.2f, \"us_per_kernel\": %.3f, \"host_us_per_replay\": %.2f}\n",
				kernels, c.name, branches, us, us/kernels, float64(host.Nanoseconds())/1000)
		}
	}
}
