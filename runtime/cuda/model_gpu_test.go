//go:build gpu

package cuda

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/kiln-project/kiln/codegen"
	"github.com/kiln-project/kiln/models/dsv4"
	"github.com/kiln-project/kiln/runtime/device"
	"github.com/kiln-project/kiln/runtime/device/devicetest"
	"github.com/kiln-project/kiln/runtime/engine"
	"github.com/kiln-project/kiln/runtime/internal/driver"
	"github.com/kiln-project/kiln/runtime/internal/driver/drivertest"
	"github.com/kiln-project/kiln/runtime/internal/gpu"
)

var (
	record  = flag.Bool("record", false, "TestRecord compiles what TestModel, the matrices and BenchmarkSample run, which needs LLVM and no GPU")
	objects = flag.String("objects", "objects", "folder of what was recorded")
	codeDir = flag.String("code", "", "cache of compiled code for TestStart")
	bundled = flag.String("bundle", "tiny.kiln", "bundle of the tiny model for sm_90")
	onFakes = flag.Bool("fake", false, "run the tests of the model on a fake driver that computes nothing, to try them")
	replays = flag.Int("replays", 1000, "steps of TestReplays")
)

const tinyModel = "../../testdata/tiny-dsv4"

// openPlans opens GPU 0 for plans, or a fake.
func openPlans(t testing.TB, o PlanOptions) *PlanDevice {
	t.Helper()
	lib := Options{}
	if *onFakes || *record {
		var err error
		if lib.Library, err = fakeLibrary(); err != nil {
			t.Fatal(err)
		}
	}
	d, err := openDriver(lib)
	if err != nil {
		t.Fatal(err)
	}
	x, err := OpenForPlans(d, o)
	if err != nil {
		t.Fatal(err)
	}
	return x
}

func openDriver(o Options) (*Device, error) {
	l, err := Open(o)
	if err != nil {
		return nil, err
	}
	return l.OpenDevice(0)
}

// fakeLibrary is one fake for all tests: callbacks are few.
var fakeLibrary = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "kiln-fake-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(dir) // loaded by then
	fake, err := drivertest.New(dir, drivertest.Options{Kind: driver.CUDA, Devices: []drivertest.Device{{Name: "H200", Arch: "sm_90", Memory: 1 << 37}}})
	if err != nil {
		return "", err
	}
	_, err = Open(Options{Library: fake.Path})
	return fake.Path, err
})

func opener(t testing.TB, o PlanOptions) devicetest.Opener {
	return func(*codegen.Compiler) (device.Device, error) { return openPlans(t, o), nil }
}

var variants = []dsv4.Numerics{dsv4.Production, dsv4.Unrounded}

// TestRecord compiles all that TestModel, TestArgmaxMatrix, TestSampleMatrix and
// BenchmarkSample run. What comes out of the checks does not matter: the driver is a
// fake.
func TestRecord(t *testing.T) {
	if !*record {
		t.Skip("no -record")
	}
	c := devicetest.Compiler(t)
	if err := os.MkdirAll(*objects, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, n := range variants {
		s := devicetest.Suite(t, c, opener(t, PlanOptions{Graph: gpu.GraphOff}), devicetest.Variant{Numerics: n, Compile: devicetest.Record(*objects, c.Compile)})
		for _, check := range s.Checks() {
			if err := check.Run(); err != nil && len(err.Error()) < 200 {
				t.Logf("%s: %v", check.Name, err)
			}
		}
	}
	tg := devicetest.Target(t, c, opener(t, PlanOptions{}))
	greedyMatrix(devicetest.Record(*objects, c.Compile)).Record(t, c, tg)
	devicetest.SampleMatrix{Compile: devicetest.Record(*objects, c.Compile)}.Record(t, c, tg)
	devicetest.RecordSampleBench(t, c, tg, devicetest.Record(*objects, c.Compile))
}

// emit prints a line of JSON.
func emit(t testing.TB, kind string, v any) {
	t.Helper()
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	fmt.Printf("%s %s\n", kind, text)
}

// TestModel runs the golden suite of the tiny model, operators and end to end, with
// code that TestRecord made.
func TestModel(t *testing.T) {
	if *record {
		t.Skip("-record")
	}
	for _, n := range variants {
		t.Run(string(n), func(t *testing.T) {
			s := devicetest.Suite(t, nil, opener(t, PlanOptions{}), devicetest.Variant{Numerics: n, Compile: devicetest.Stored(*objects)})
			passed, failed := 0, []string{}
			for _, check := range s.Checks() {
				t.Run(check.Name, func(t *testing.T) {
					if err := check.Run(); err != nil {
						failed = append(failed, check.Name)
						t.Error(err)
						return
					}
					passed++
				})
			}
			emit(t, "GOLDEN", map[string]any{"numerics": n, "passed": passed, "failed": failed})
		})
	}
}

// TestGreedy compares greedy tokens up to the first step at which the reference's
// two largest logits are near each other.
func TestGreedy(t *testing.T) {
	const apart = 0.5
	for _, n := range variants {
		for _, c := range []struct {
			name   string
			tokens int
		}{{"one", 8}, {"short", 48}, {"long", 96}, {"edge128", 6}} {
			t.Run(string(n)+"/"+c.name, func(t *testing.T) {
				s := devicetest.Suite(t, nil, opener(t, PlanOptions{}), devicetest.Variant{Numerics: n, Compile: devicetest.Stored(*objects)})
				g, err := s.Greedy(c.name, c.tokens)
				if err != nil {
					t.Fatal(err)
				}
				until := slices.IndexFunc(g.Margins, func(m float32) bool { return m < apart })
				if until < 0 {
					until = len(g.Want)
				}
				same := slices.Equal(g.Got[:until], g.Want[:until])
				if !same {
					t.Errorf("tokens %v, want %v", g.Got[:until], g.Want[:until])
				}
				emit(t, "GREEDY", map[string]any{"numerics": n, "case": c.name, "compared": until, "equal": same, "ids": g.Got})
			})
		}
	}
}

// ways are how launches reach the device.
var ways = []struct {
	name string
	opts PlanOptions
}{
	{"eager", PlanOptions{Graph: gpu.GraphOff}},
	{"built", PlanOptions{Graph: gpu.GraphOn, Build: gpu.BuildExplicit}},
	{"captured", PlanOptions{Graph: gpu.GraphOn, Build: gpu.BuildCapture}},
}

func openTiny(t *testing.T) *devicetest.Bundle {
	t.Helper()
	return devicetest.OpenBundle(t, *bundled, "sm_90", tinyModel)
}

// TestReplays: graphs give the bits of launches, with a state that changes.
func TestReplays(t *testing.T) {
	b := openTiny(t)
	for _, w := range ways[1:] {
		t.Run(w.name, func(t *testing.T) {
			eager, graph := b.Start(t, openPlans(t, ways[0].opts)), b.Start(t, openPlans(t, w.opts))
			bad := devicetest.Replays(t, eager, graph, *replays)
			emit(t, "REPLAYS", map[string]any{"graph": w.name, "replays": *replays, "different": bad})
			graph.Close(t)
			eager.Close(t)
		})
	}
}

// TestBatches: 1 to 64 requests in padded steps, eager and as graphs.
func TestBatches(t *testing.T) {
	b := openTiny(t)
	most := min(64, b.Rings)
	eager, graph := b.Start(t, openPlans(t, ways[0].opts)), b.Start(t, openPlans(t, ways[1].opts))
	devicetest.Batches(t, eager, graph, most)
	emit(t, "BATCHES", map[string]any{"requests": most, "failed": t.Failed()})
	graph.Close(t)
	eager.Close(t)
}

// TestStart measures starts: in this process, and in a new one, in which the driver
// has the code in its cache.
func TestStart(t *testing.T) {
	var o PlanOptions
	if *codeDir != "" {
		o.Code = codegen.OpenCache(*codeDir)
	}
	child := os.Getenv("KILN_TEST_CHILD")
	for i, name := range []string{"first in the process", "second in the process"} {
		start := time.Now()
		d := openPlans(t, o)
		opened := time.Since(start)
		b := openTiny(t)
		read := time.Since(start)
		r := b.Start(t, d)
		loaded := time.Since(start)
		s, err := r.NewSeq(0, b.Pages)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := r.Prefill(s, []int32{0, 303, 222}, 0, nil); err != nil {
			t.Fatal(err)
		}
		emit(t, "START", map[string]any{
			"start": name, "process": child, "number": i + 1, "open_ms": ms(opened), "read_and_pack_ms": ms(read - opened),
			"load_ms": ms(loaded - read), "first_token_ms": ms(time.Since(start)),
		})
		r.Close(t)
	}
	if child != "" {
		return
	}
	dir := t.TempDir()
	for _, p := range []struct {
		name string
		args []string
		env  []string
	}{
		{"the driver's cache", nil, nil},
		{"no cache", nil, driverCacheOff},
		{"kiln's cache, empty", []string{"-code", dir}, driverCacheOff},
		{"kiln's cache", []string{"-code", dir}, driverCacheOff},
	} {
		c := exec.Command(os.Args[0], append([]string{"-test.run=^TestStart$", "-bundle", *bundled, fmt.Sprintf("-fake=%v", *onFakes)}, p.args...)...)
		c.Env = append(os.Environ(), append(p.env, "KILN_TEST_CHILD="+p.name)...)
		out, err := c.CombinedOutput()
		fmt.Printf("%s", out)
		if err != nil {
			t.Errorf("%s: %v", p.name, err)
		}
	}
}

// driverCacheOff makes the driver compile text each time.
var driverCacheOff = []string{"CUDA_CACHE_DISABLE=1"}

func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// TestSpeed measures decode steps of each compiled batch: whole, as the engine does
// them, and the launches alone.
func TestSpeed(t *testing.T) {
	b := openTiny(t)
	for _, w := range ways {
		r := b.Start(t, openPlans(t, w.opts))
		for _, n := range b.Batches {
			const warm, few, steps = 5, 10, 200
			var seqs []*engine.Seq
			for i := range n {
				s, err := r.NewSeq(i, b.Pages)
				if err != nil {
					t.Fatal(err)
				}
				seqs = append(seqs, s)
			}
			random := rand.New(rand.NewPCG(5, uint64(n)))
			step := func() {
				var feeds []engine.Feed
				for _, s := range seqs {
					feeds = append(feeds, engine.Feed{Seq: s, IDs: []int32{int32(2 + random.IntN(b.Layout.Vocab-2))}, Out: []int{0}})
				}
				if _, err := r.Step("decode", feeds, engine.Shape{T: n, B: n, O: n, P: b.Pages}); err != nil {
					t.Fatal(err)
				}
				for _, s := range seqs {
					s.Len++
				}
			}
			for range warm {
				step()
			}
			start := time.Now()
			for range steps {
				step()
			}
			whole := time.Since(start) / steps
			r.Again(t, warm)
			start = time.Now()
			launches := r.Again(t, steps)
			alone := time.Since(start) / steps
			us := func(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1000 }
			if w.opts.Graph == gpu.GraphOn {
				p, err := r.LastStep().(gpu.Pacer).Pace(few, steps)
				if err != nil {
					t.Fatal(err)
				}
				emit(t, "PACE", map[string]any{
					"way": w.name, "batch": n, "nodes": p.Nodes, "host_us_per_replay": us(p.Host), "replay_us": us(p.Whole),
					"device_us_per_node": us(p.Whole) / float64(p.Nodes),
				})
			}
			emit(t, "SPEED", map[string]any{
				"way": w.name, "batch": n, "launches": launches, "step_us": us(whole), "launches_us": us(alone),
				"launch_us": us(alone) / float64(launches), "tokens_per_s": float64(n) / whole.Seconds(),
			})
		}
		r.Close(t)
	}
}

// The device's limits are reported with what was asked for.
func TestPlanErrors(t *testing.T) {
	d := openPlans(t, PlanOptions{})
	defer d.Close()
	if _, err := d.Load([]byte("no code"), nil); !errors.Is(err, ErrWrongImage) {
		t.Errorf("error %v", err)
	}
	if _, err := d.Alloc(1 << 50); !errors.Is(err, ErrOutOfMemory) && !*onFakes {
		t.Errorf("error %v", err)
	}
}
