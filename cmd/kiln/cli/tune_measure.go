package cli

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"strings"
	"sync"

	"github.com/kiln-project/kiln/check"
	"github.com/kiln-project/kiln/codegen/bundle"
	"github.com/kiln-project/kiln/codegen/tune"
	"github.com/kiln-project/kiln/ir"
	"github.com/kiln-project/kiln/ir/eval"
	"github.com/kiln-project/kiln/runtime/cuda"
	rt "github.com/kiln-project/kiln/runtime/device"
	"github.com/kiln-project/kiln/runtime/hip"
)

// tuner measures the contests of a folder on a GPU.
type tuner struct {
	e        *env
	f        *flags
	folder   *tuneFolder
	dev      device
	cold     int64 // bytes that are written before each sample
	progress *progress

	changed []string // candidates that give other bits than the first of their contest
}

// measureTune prints the table of a folder's contests.
func measureTune(e *env, f *flags) error {
	if n := f.number("samples"); n < 1 {
		return usagef("--samples 15", "%s is %d, want at least 1", f.origins("samples"), n)
	}
	w, err := readTune(f.text("from"))
	if err != nil {
		return err
	}
	dev, err := chooseDevice(e, f)
	if err != nil {
		return err
	}
	t := &tuner{e: e, f: f, folder: w, dev: dev, progress: newProgress(e, f)}
	defer t.progress.close()
	return errors.Join(t.run(), dev.close())
}

func (t *tuner) run() error {
	g := t.dev.gpu
	switch {
	case t.dev.chip != "":
		return refuse(fmt.Errorf("device %s is emulated: how long it takes says nothing of a GPU", t.dev.name), "--device cuda")
	case g == nil:
		return refuse(fmt.Errorf("device %s (%s) is no GPU: choices are those of kernels for GPUs", t.dev.name, t.dev.why), "--device cuda")
	}
	runs, err := t.dev.runs([]string{t.folder.Target})
	if err != nil {
		return err
	}
	if len(runs) == 0 {
		return refuse(fmt.Errorf("%s was compiled for %s, device %s (%s) does not run it", t.folder.dir, t.folder.Target, t.dev.name, t.dev.why), "kiln tune --model DIR --target T -o OTHER")
	}
	t.cold = 2*int64(g.info.L2) + 1<<20
	t.dev.tell(t.progress)
	table := &tune.Table{Run: t.describe()}
	if err := t.preload(); err != nil {
		return err
	}
	open, err := t.dev.open(t.e, t.f)
	if err != nil {
		return err
	}
	for i := range t.folder.Contests {
		c := &t.folder.Contests[i]
		t.progress.count("measuring", i, len(t.folder.Contests))
		times, err := t.contest(open, c)
		if err != nil {
			return errors.Join(fmt.Errorf("%s: %w", c, err), open.Close())
		}
		table.Rows = append(table.Rows, tune.Row{Form: c.Form, From: c.Rows, To: c.Rows, Key: c.Key, Times: ranked(times, c.Model)})
	}
	t.progress.clear()
	if err := open.Close(); err != nil {
		return err
	}
	if len(t.changed) > 0 {
		return &codedError{exitCheck, fmt.Errorf("results depend on choices, as they must not: %s", strings.Join(t.changed, "; ")), ""}
	}
	widen(table.Rows)
	text, err := table.Text()
	if err == nil {
		_, err = t.e.stdout.Write([]byte(text))
	}
	return err
}

// describe is the head of the table.
func (t *tuner) describe() tune.Run {
	info := t.dev.gpu.info
	driver := "CUDA " + cuda.VersionText(info.Version)
	if t.dev.gpu.kind == "hip" {
		driver = "HIP " + hip.VersionText(info.Version)
	}
	return tune.Run{
		Target: t.folder.Target, Kiln: Version, Date: t.e.started.UTC().Format("2006-01-02"),
		Device: fmt.Sprintf("%s, %s", info.Name, info.Target), Driver: driver, Compiled: t.folder.Compiled,
		Measured: fmt.Sprintf("kiln tune --from DIR --device %s --graph %s --samples %d", t.dev.name, t.f.text("graph"), t.f.number("samples")),
		Method:   fmt.Sprintf("microseconds of an op, medians of %d samples in turns; %d bytes written before each; the cost model's choice if it is within %.0f %% of the fastest", t.f.number("samples"), t.cold, 100*tuneTie),
	}
}

// preloaders is how many contests a driver compiles at a time.
const preloaders = 16

// preload has the driver compile the code of the contests, several at a time, each on an
// opened device of its own: CUDA's takes a second for a few kernels. Kiln's cache keeps
// what it makes; where a driver has nothing to compile, nothing is loaded.
func (t *tuner) preload() error {
	if t.dev.gpu.kind != "cuda" {
		return nil
	}
	n := len(t.folder.Contests)
	next := make(chan *bundle.Code)
	errs := make([]error, min(n, preloaders, runtime.GOMAXPROCS(0)))
	failed := make(chan struct{})
	var once sync.Once
	var wg sync.WaitGroup
	for i := range errs {
		wg.Go(func() {
			if errs[i] = t.preloadEach(next); errs[i] != nil {
				once.Do(func() { close(failed) })
			}
		})
	}
	feed := func() error {
		seen := map[string]bool{} // the same kernels decide for other rows
		for i := range t.folder.Contests {
			t.progress.count("loading code", i, n)
			code, err := t.folder.code(&t.folder.Contests[i])
			if err != nil {
				return err
			}
			digest := sha256Text(code.Object)
			if seen[digest] {
				continue
			}
			seen[digest] = true
			select {
			case next <- code:
			case <-failed:
				return nil
			case <-t.e.ctx.Done():
				return t.e.ctx.Err()
			}
		}
		return nil
	}
	err := feed()
	close(next)
	wg.Wait()
	return cmp.Or(err, cmp.Or(errs...))
}

// preloadEach loads code until there is no more.
func (t *tuner) preloadEach(list <-chan *bundle.Code) error {
	dev, err := t.dev.gpu.reopen()
	if err != nil {
		return err
	}
	for code := range list {
		m, err := rt.NewModel(dev, code.Object, code.Module)
		if err == nil {
			err = m.Close()
		}
		if err != nil {
			return errors.Join(err, dev.Close())
		}
	}
	return dev.Close()
}

// contest measures the candidates of a choice.
func (t *tuner) contest(dev rt.Device, c *tuneContest) (times []tune.Time, err error) {
	code, err := t.folder.code(c)
	if err != nil {
		return nil, err
	}
	graphs, err := ir.Parse(c.File, c.Graph)
	if err != nil {
		return nil, err
	}
	inputs, below, err := check.Indexes(graphs[0], tuneSeed)
	if err != nil {
		return nil, err
	}
	m, err := rt.NewModel(dev, code.Object, code.Module)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, m.Close()) }()
	if err := m.BindRandom(rt.Random{Seed: tuneSeed, IDs: func(name string) int { return below[name] }}); err != nil {
		return nil, err
	}
	var programs []*rt.Program
	for _, p := range code.Module.Plans { // all of them first: they share an arena, which may move
		g, err := m.Load(p)
		if err != nil {
			return nil, err
		}
		programs = append(programs, g)
	}
	runs := make([]*rt.Measurement, len(programs))
	defer func() {
		for _, r := range runs {
			if r != nil {
				err = errors.Join(err, r.Close())
			}
		}
	}()
	var first map[string]*eval.Tensor
	for i, g := range programs {
		if runs[i], err = g.Measure(inputs, nil, t.cold); err != nil {
			return nil, err
		}
		runs[i].Interrupted = t.e.ctx.Err
		out, err := runs[i].Run()
		if err == nil {
			err = finite(out, code.Module.Plans[i].Outputs)
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", c.Candidates[i], err)
		}
		if first == nil {
			first = out
			continue
		}
		name, err := otherBits(first, out)
		if err != nil {
			return nil, err
		}
		if name != "" {
			t.changed = append(t.changed, fmt.Sprintf("%s: %s of %s has not the bits of %s", c, name, c.Candidates[i], c.Candidates[0]))
		}
	}
	samples := make([]rt.Samples, len(runs))
	for n := range t.f.number("samples") {
		for i := range runs {
			if n%2 == 1 { // no candidate always follows the same one
				i = len(runs) - 1 - i
			}
			s, err := runs[i].Step(1, false)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", c.Candidates[i], err)
			}
			samples[i] = append(samples[i], s...)
		}
	}
	for i, s := range samples {
		// A table has times above 0: of a hundredth of a microsecond up.
		times = append(times, tune.Time{Choice: c.Candidates[i], Us: max(us(s.Median())/float64(c.Copies), 0.01)})
	}
	return times, nil
}

// tuneSeed is that of operands.
const tuneSeed = 1

// otherBits names the first result that differs, or is "".
func otherBits(want, got map[string]*eval.Tensor) (string, error) {
	for _, name := range slices.Sorted(maps.Keys(want)) {
		a, err := encoded(want[name])
		if err != nil {
			return "", err
		}
		b, err := encoded(got[name])
		if err != nil {
			return "", err
		}
		if !bytes.Equal(a, b) || !bytes.Equal(want[name].Scales, got[name].Scales) {
			return name, nil
		}
	}
	return "", nil
}

// encoded are a tensor's elements as they lie in memory.
func encoded(x *eval.Tensor) ([]byte, error) {
	data := make([]byte, x.DType.Bytes(x.Len()))
	return data, x.Encode(data)
}

// tuneTie is by what part a candidate must be faster than the cost model's to be taken:
// less is noise.
const tuneTie = 0.01

// ranked has the choice first.
func ranked(times []tune.Time, model string) []tune.Time {
	times = slices.Clone(times)
	slices.SortStableFunc(times, func(a, b tune.Time) int { return cmp.Compare(a.Us, b.Us) })
	at := slices.IndexFunc(times, func(t tune.Time) bool { return t.Choice == model })
	if at > 0 && times[at].Us <= times[0].Us*(1+tuneTie) {
		taken := times[at]
		times = slices.Insert(slices.Delete(times, at, at+1), 0, taken)
	}
	return times
}

// widen has a row hold of all rows down to those of the row before, if the same was
// chosen there. The rows are sorted as decisions are.
func widen(rows []tune.Row) {
	for i := 1; i < len(rows); i++ {
		r, before := &rows[i], &rows[i-1]
		if r.Form == before.Form && r.Key == before.Key && r.Choice() == before.Choice() {
			r.From = before.To + 1
		}
	}
}
