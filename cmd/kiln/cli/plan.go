package cli

import (
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/kiln-project/kiln/codegen/bundle"
	"github.com/kiln-project/kiln/models/dsv4"
)

const planHelp = `Says what a bundle takes of a device's memory: weights, pools, the arena of the
largest plan, code, and an estimate of graphs. Neither a GPU nor weights are
needed. What the driver takes for itself is not counted. Beside them stands what
the start-up checks take at most before there are pools, what the total is where
the plans without fused kernels run, and what loading the weights takes of the
host's memory at most.

--max-batch and --max-seq ask about other sizes than the bundle was compiled for:
pools are exact then, too, and the arena is an estimate, scaled from the plans
that there are. With --device-memory the report says what is left, and how many
positions fit for each batch; the exit code is 3 if it does not fit.`

// planReport is the JSON of plan.
type planReport struct {
	Bundle  string        `json:"bundle"`
	Batch   int           `json:"batch"`
	MaxSeq  int           `json:"max_seq"`
	Targets []targetNeeds `json:"targets"`
}

// targetNeeds is what the code for a target takes.
type targetNeeds struct {
	Target string `json:"target"`
	memoryNeed
	// Checks are what start-up checks take at most, before the pools are made; Unfused is
	// the total with the plans without fused kernels. Both are null where there are none.
	Checks  *int64 `json:"startup_checks_bytes"`
	Unfused *int64 `json:"unfused_total_bytes"`
	Device  *int64 `json:"device_bytes"` // that may be used; null if it is not known
	Free    *int64 `json:"free_bytes"`   // after all; negative if it does not fit
	Fits    []fit  `json:"fits"`         // for each compiled batch
	// Plans say how the chosen device runs each plan; without one nobody knows.
	Plans []graphedRow `json:"plans,omitempty"`
}

func runPlan(e *env, f *flags, args []string) error {
	path := args[0]
	b, err := readManifest(f, path)
	if err != nil {
		return err
	}
	memory, err := memoryFlag(f, "device-memory")
	if err != nil {
		return err
	}
	r := planReport{Bundle: path}
	var refused error
	for _, t := range b.Manifest.Targets {
		code, err := readCode(f, b, path, t)
		if err != nil {
			return err
		}
		s, err := newSizer(path, b, code)
		if err != nil {
			return err
		}
		if r.Batch, r.MaxSeq, err = s.asked(f); err != nil {
			return err
		}
		needs, err := s.needs(b, r.Batch, r.MaxSeq, memory)
		if err != nil {
			return err
		}
		r.Targets = append(r.Targets, needs)
		if memory != nil && refused == nil {
			refused = s.tooLarge(needs.memoryNeed, r.Batch, r.MaxSeq, *memory, f.origins("device-memory")+" is", "")
		}
	}
	if err := r.show(e, f); err != nil {
		return err
	}
	return refused
}

// asked reads --max-batch and --max-seq; 0 is what was compiled.
func (s *sizer) asked(f *flags) (batch, maxSeq int, err error) {
	batch, maxSeq = f.number("max-batch"), f.number("max-seq")
	if batch < 0 || maxSeq < 0 || batch > math.MaxInt16 {
		return 0, 0, usagef("kiln plan --help", "%s: want 1 to %d requests of a positive number of positions", f.origins("max-batch", "max-seq"), math.MaxInt16)
	}
	if maxSeq > s.maxPositions {
		return 0, 0, refuse(fmt.Errorf("%s %d is beyond max_position_embeddings %d", f.origins("max-seq"), maxSeq, s.maxPositions), "")
	}
	if batch == 0 {
		batch = s.batch()
	}
	if maxSeq == 0 {
		maxSeq = s.set.MaxSeq
	}
	return batch, maxSeq, nil
}

// needs is what some requests take, and what that leaves of a device's memory; nil
// is one that is not known.
func (s *sizer) needs(b *bundle.Bundle, batch, maxSeq int, memory *int64) (targetNeeds, error) {
	t := targetNeeds{Target: s.code.Module.Target, Device: memory, Fits: []fit{}}
	side, err := b.ReadUnfused(s.path, s.code.Module)
	if err != nil {
		return t, err
	}
	if side != nil {
		n, err := s.unfused(side, batch, maxSeq)
		if err != nil {
			return t, err
		}
		t.Unfused = &n
	}
	if s.code.Probes != nil {
		t.Checks = ptrTo(s.checks())
	}
	if t.memoryNeed, err = s.need(batch, maxSeq); err != nil || memory == nil {
		return t, err
	}
	t.Free = ptrTo(*memory - t.Total)
	t.Fits, err = s.fitting(*memory)
	return t, err
}

// runDry is run --dry-run: what the bundle takes of the device that was chosen, and
// which of its plans that replays as graphs. Of devices whose memory is this process's
// nothing is known.
func runDry(e *env, f *flags, want dsv4.Head, positions int) error {
	path := f.text("bundle")
	if path == "" {
		return usagef("kiln run --bundle F.kiln --dry-run ...", "%s: only a bundle's needs are known before it is compiled", f.origins("dry-run"))
	}
	dev, err := chooseDevice(e, f)
	if err != nil {
		return err
	}
	err = dryOn(e, f, dev, path, want, positions)
	return errors.Join(err, dev.close())
}

func dryOn(e *env, f *flags, dev device, path string, want dsv4.Head, positions int) error {
	o, err := options(f, false)
	if err != nil {
		return err
	}
	o.Head = want
	c, err := loadConfig(f.text("model"))
	if err != nil {
		return err
	}
	m, err := openBundle(f, dev, path, c, &o)
	if err != nil {
		return err
	}
	if err := speculates(f, c, o.MaxDraft); err != nil {
		return err
	}
	if err := m.holds(f, positions); err != nil {
		return err
	}
	progress := newProgress(e, f)
	defer progress.close()
	dev.tell(progress)
	free, err := dev.freeMemory()
	if err != nil {
		return err
	}
	r := planReport{Bundle: path, Batch: m.sizer.batch(), MaxSeq: m.maxSeq}
	needs, err := m.sizer.needs(m.bundle, r.Batch, r.MaxSeq, free)
	if err != nil {
		return err
	}
	needs.Plans = dev.graphed(m.code.Module)
	r.Targets = []targetNeeds{needs}
	if err := r.show(e, f); err != nil {
		return err
	}
	return m.fits(f)
}

func (r planReport) show(e *env, f *flags) error {
	if f.boolean("json") {
		return printJSON(e.stdout, r)
	}
	for i, t := range r.Targets {
		if i > 0 {
			fmt.Fprintln(e.stdout)
		}
		fmt.Fprintf(e.stdout, "%s for %s: batch %d, max-seq %d\n", r.Bundle, t.Target, r.Batch, r.MaxSeq)
		if err := t.print(e.stdout); err != nil {
			return err
		}
	}
	return nil
}

func (t targetNeeds) print(w io.Writer) error {
	line := func(name string, bytes int64, note string) {
		fmt.Fprintln(w, strings.TrimRight(fmt.Sprintf("  %-8s %12s  %s", name, binarySize(bytes), note), " "))
	}
	arena := "of the largest plan"
	if t.ArenaEstimated {
		arena = "an estimate: no plan was compiled for these sizes"
	}
	line("weights", t.Weights, "")
	line("pools", t.Pools, "")
	line("arena", t.Arena, arena)
	line("code", t.Code, "")
	graphs := fmt.Sprintf("an estimate, of %d nodes: %d launches and the kernels around each step; 0 with --graph off", t.Nodes, t.Launches)
	if t.Graphs == 0 {
		graphs = "none: launches go to the device one by one"
	}
	line("graphs", t.Graphs, graphs)
	line("total", t.Total, "")
	if t.Checks != nil {
		line("checks", *t.Checks, "of start-up checks, at most, before there are pools; not in the total")
	}
	if t.Unfused != nil {
		line("unfused", *t.Unfused, "in place of the total where a fused kernel is wrong; graphs are an estimate")
	}
	line("host", t.Host, "of this machine, at most, while weights are loaded")
	if t.Device == nil {
		return t.printPlans(w)
	}
	line("device", *t.Device, "")
	line("free", *t.Free, "")
	fmt.Fprintln(w)
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(tw, "  batch\tfits max-seq")
	for _, x := range t.Fits {
		fits := strconv.Itoa(x.MaxSeq)
		if x.MaxSeq == 0 {
			fits = "none"
		}
		fmt.Fprintf(tw, "  %d\t%s\n", x.Batch, fits)
	}
	if err := tw.Flush(); err != nil {
		return err
	}
	return t.printPlans(w)
}

func (t targetNeeds) printPlans(w io.Writer) error {
	if t.Plans == nil {
		return nil
	}
	return printGraphed(w, t.Plans)
}

// memoryUnits are the suffixes of a number of bytes.
var memoryUnits = []struct {
	suffix string
	bytes  float64
}{
	{"TiB", 1 << 40}, {"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}, {"TB", 1e12}, {"GB", 1e9}, {"MB", 1e6}, {"kB", 1e3}, {"B", 1}, {"", 1},
}

// memoryFlag reads 288GiB, 141GB, or bytes; nil if the flag is not given.
func memoryFlag(f *flags, name string) (*int64, error) {
	text := f.text(name)
	if text == "" {
		return nil, nil
	}
	for _, u := range memoryUnits {
		number, ok := strings.CutSuffix(text, u.suffix)
		if !ok {
			continue
		}
		n, err := strconv.ParseFloat(strings.TrimSpace(number), 64)
		if bytes := n * u.bytes; err == nil && bytes >= 1 && bytes < 1<<60 {
			return ptrTo(int64(bytes)), nil
		}
		break
	}
	return nil, usagef("--"+name+" 288GiB", "%s: %q is no amount of memory", f.origins(name), text)
}
