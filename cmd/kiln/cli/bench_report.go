package cli

import (
	"cmp"
	"fmt"
	"io"
	"runtime"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/kiln-project/kiln/codegen/plan"
	"github.com/kiln-project/kiln/codegen/target"
	"github.com/kiln-project/kiln/runtime/cuda"
	rt "github.com/kiln-project/kiln/runtime/device"
	"github.com/kiln-project/kiln/runtime/hip"
)

// benchReport is the JSON of bench. Times are microseconds; what is not known is
// null.
type benchReport struct {
	Bundle  string `json:"bundle"`
	Digest  string `json:"bundle_sha256"` // of its manifest, which has those of its files
	Kiln    string `json:"kiln"`
	Layers  int    `json:"layers"`
	Target  string `json:"target"`
	Device  string `json:"device"`
	Name    string `json:"device_name"`
	Chip    string `json:"device_target"`
	Driver  string `json:"driver,omitempty"`
	Cores   int    `json:"cores,omitempty"` // of the host, if that is the device
	Weights string `json:"weights"`         // random, or the model's folder
	Seed    uint64 `json:"seed"`

	Graphs    string    `json:"graphs"`    // none, built or captured
	Cache     string    `json:"cache"`     // hot, or cold
	CacheSize *int64    `json:"l2_bytes"`  // null where it is not known
	Bandwidth *float64  `json:"bandwidth"` // bytes per second
	Source    string    `json:"bandwidth_from,omitempty"`
	Clocks    *benchMHz `json:"clocks"` // that the driver names: peaks, not what they were
	Load      *float64  `json:"load_average"`
	Method    []string  `json:"method"`

	Steps []benchStep `json:"steps"`
}

// benchMHz are clocks.
type benchMHz struct {
	Core   float64 `json:"core_mhz"`
	Memory float64 `json:"memory_mhz"`
	Bus    int     `json:"memory_bus_bits"`
}

const noGraphs = "none"

// stat sums samples up.
type stat struct {
	Median  float64 `json:"median_us"`
	P95     float64 `json:"p95_us"`
	Samples int     `json:"samples"`
}

func us(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1000 }

func statOf(s rt.Samples) *stat { return &stat{us(s.Median()), us(s.P95()), len(s)} }

// benchStep is a step that was timed.
type benchStep struct {
	Entry    string `json:"entry"`
	Batch    int    `json:"batch"`
	Tokens   int    `json:"tokens"` // of the step
	Ctx      int    `json:"ctx"`
	Launches int    `json:"launches"`
	Bytes    int64  `json:"bytes"` // of all launches, by the plan
	Arena    int64  `json:"arena_bytes"`

	Whole  *stat `json:"whole"`  // with inputs and results, by the host's clock
	Replay *stat `json:"replay"` // of the graph; null without graphs
	Eager  *stat `json:"eager"`  // launches one by one
	// TokensPerS is by the median of Whole: with drafts at the acceptance that was
	// measured, null where none was.
	TokensPerS *float64     `json:"tokens_per_s"`
	Drafts     *benchDrafts `json:"speculate,omitempty"`
	GBPerS     *float64     `json:"gb_per_s"` // by Replay, or else Eager
	Part       *float64     `json:"of_bandwidth"`

	LaunchSamples int           `json:"launch_samples"`
	Sum           *float64      `json:"sum_us"` // of the launches
	Gap           *float64      `json:"gap_us"` // Replay or Eager less Sum
	Kernels       []benchKernel `json:"kernels"`
	Each          []benchLaunch `json:"each"`

	bandwidth *float64
}

// benchKernel is all launches of a form for an op.
type benchKernel struct {
	Form     string   `json:"form"`
	Op       string   `json:"op"`
	Launches int      `json:"launches"`
	Us       float64  `json:"sum_us"`    // of all
	Median   float64  `json:"median_us"` // of one
	P95      float64  `json:"p95_us"`    // the largest of one
	Share    *float64 `json:"share"`     // of the sum; null where that is noise
	Bytes    int64    `json:"bytes"`
	GBPerS   *float64 `json:"gb_per_s"` // null where the time is noise
	Part     *float64 `json:"of_bandwidth"`

	each []float64
}

// benchLaunch is one launch.
type benchLaunch struct {
	Index  int      `json:"index"`
	Kernel string   `json:"kernel"`
	Form   string   `json:"form"`
	Op     string   `json:"op"`
	Loc    string   `json:"loc,omitempty"`
	Grid   int      `json:"grid"`
	Median float64  `json:"median_us"`
	P95    float64  `json:"p95_us"`
	Bytes  int64    `json:"bytes"`
	Flops  int64    `json:"flops"`
	GBPerS *float64 `json:"gb_per_s"` // null where the time is noise
	Part   *float64 `json:"of_bandwidth"`
}

// benchMethod says how it was measured.
var benchMethod = []string{
	"whole: inputs to the device, launches, results back, by the host's clock",
	"replay, eager: the launches alone, by events of the device's stream behind another step, on the host by its clock",
	"each: the launches up to it less those before it, in turns; p95 of the differences; 0 or less is noise",
	"bytes: what the plan says a launch moves if every row is there that it may gather",
}

// describe fills in what is known before anything is timed.
func (b *bench) describe() (*benchReport, error) {
	r := &benchReport{
		Bundle: b.path, Kiln: Version, Layers: b.manifest.Settings.Layers, Target: b.code.Module.Target, Device: b.dev.name, Weights: "random", Seed: b.f.seed("seed"),
		Graphs: noGraphs, Cache: "hot", Method: benchMethod, Steps: []benchStep{},
	}
	if dir := b.f.text("model"); dir != "" {
		r.Weights = dir
	}
	if b.f.boolean("cold") {
		r.Cache = "cold"
	}
	var err error
	if r.Digest, err = b.digest(); err != nil {
		return nil, err
	}
	g := b.dev.gpu
	if g == nil {
		r.Name, r.Chip, r.Cores, r.Load = b.dev.describe(), r.Target, runtime.GOMAXPROCS(0), loadAverage()
		return r, nil
	}
	r.Name, r.Chip, r.Driver = g.info.Name, g.info.Target, cuda.VersionText(g.info.Version)
	if g.kind == "hip" {
		r.Driver = hip.VersionText(g.info.Version)
	}
	if g.opened.Graphs() {
		r.Graphs = map[string]string{"explicit": "built", "capture": "captured"}[string(g.opened.Options().Build)]
	}
	if n := b.cache(); n > 0 {
		r.CacheSize = &n
	}
	r.Clocks = &benchMHz{float64(g.info.ClockKHz) / 1000, float64(g.info.MemoryClockKHz) / 1000, g.info.BusBits}
	r.Bandwidth, r.Source = bandwidthOf(g)
	r.Load = loadAverage()
	return r, nil
}

// bandwidthOf is what a GPU's memory can move, in bytes per second: of the table of
// chips, or else what the driver says of clock and bus.
func bandwidthOf(g *gpuDevice) (*float64, string) {
	chip, _, _ := strings.Cut(g.info.Target, ":")
	if c := target.ChipOf(chip); c != nil {
		return &c.Memory, c.Card + ": " + c.Source
	}
	if g.info.MemoryClockKHz == 0 || g.info.BusBits == 0 {
		return nil, ""
	}
	rate := 2 * float64(g.info.MemoryClockKHz) * 1000 * float64(g.info.BusBits) / 8
	return &rate, "the driver: two transfers a cycle of the memory's clock, times its bus"
}

// newBenchStep fills in what is known of a step by its plan.
func newBenchStep(s benchPlan, launches []rt.Launch, bandwidth *float64) *benchStep {
	p := s.plan
	r := &benchStep{
		Entry: p.Entry, Batch: p.Symbol("B"), Tokens: p.Rows(), Ctx: s.ctx, Launches: len(launches), Arena: p.Arena,
		Kernels: []benchKernel{}, Each: []benchLaunch{}, bandwidth: bandwidth,
	}
	for i := range p.Launches {
		r.Bytes += p.Launches[i].Bytes
	}
	return r
}

// launched adds the times of the launches of a step.
func (r *benchStep) launched(s rt.Samples, replayed bool) {
	if replayed {
		r.Replay = statOf(s)
	} else {
		r.Eager = statOf(s)
	}
	if replayed || r.Replay == nil {
		r.GBPerS, r.Part = r.rate(r.Bytes, us(s.Median()))
	}
}

// rate is bytes in a time as GB/s, and as a part of the bandwidth. A time that is not
// above 0 is noise, and gives none.
func (r *benchStep) rate(bytes int64, us float64) (perS, part *float64) {
	if us <= 0 {
		return nil, nil
	}
	rate := float64(bytes) / us / 1000
	if r.bandwidth == nil {
		return &rate, nil
	}
	return &rate, ptrTo(rate * 1e9 / *r.bandwidth)
}

// add fills in the launches, of a step that took so long by itself.
func (r *benchStep) add(launches []rt.Launch, p *plan.Plan, times []rt.LaunchTime, samples int, step time.Duration) {
	r.LaunchSamples = samples
	sum := 0.0
	for i, l := range launches {
		x := benchLaunch{
			Index: i, Kernel: l.Symbol, Form: l.Form, Op: l.Op, Loc: l.Loc, Grid: l.Grid, Median: us(times[i].Median), P95: us(times[i].P95),
			Bytes: p.Launches[i].Bytes, Flops: p.Launches[i].Flops,
		}
		x.GBPerS, x.Part = r.rate(x.Bytes, x.Median)
		sum += x.Median
		r.Each = append(r.Each, x)
	}
	r.Sum, r.Gap = &sum, ptrTo(us(step)-sum)
	r.group(sum)
}

// group sums the launches up by form and op, in the order of their first launches. Of a
// sum that is not above 0, so noise, no launch is a part.
func (r *benchStep) group(sum float64) {
	for _, x := range r.Each {
		at := slices.IndexFunc(r.Kernels, func(k benchKernel) bool { return k.Form == x.Form && k.Op == x.Op })
		if at < 0 {
			at = len(r.Kernels)
			r.Kernels = append(r.Kernels, benchKernel{Form: x.Form, Op: x.Op})
		}
		k := &r.Kernels[at]
		k.Launches, k.Us, k.Bytes, k.P95, k.each = k.Launches+1, k.Us+x.Median, k.Bytes+x.Bytes, max(k.P95, x.P95), append(k.each, x.Median)
	}
	for i := range r.Kernels {
		k := &r.Kernels[i]
		slices.Sort(k.each)
		k.Median = (k.each[(len(k.each)-1)/2] + k.each[len(k.each)/2]) / 2
		if sum > 0 {
			k.Share = ptrTo(k.Us / sum)
		}
		k.GBPerS, k.Part = r.rate(k.Bytes, k.Us)
	}
}

// print writes the report for people.
func (r *benchReport) print(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%s, %s on %s", r.Bundle, r.Target, r.Name)
	if r.Driver != "" {
		fmt.Fprintf(&b, ", driver %s", r.Driver)
	}
	fmt.Fprintf(&b, ", weights %s, caches %s", r.Weights, r.Cache)
	if r.CacheSize != nil {
		fmt.Fprintf(&b, " (L2 %s)", size(*r.CacheSize))
	}
	fmt.Fprintln(&b)
	if r.Bandwidth != nil {
		fmt.Fprintf(&b, "bandwidth %.2f TB/s (%s)\n", *r.Bandwidth/1e12, r.Source)
	}
	if r.Load != nil {
		fmt.Fprintf(&b, "load average %.1f\n", *r.Load)
	}
	for i := range r.Steps {
		if err := r.Steps[i].print(&b); err != nil {
			return err
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func (r *benchStep) print(w io.Writer) error {
	what := count(int64(r.Batch), "request")
	if r.Tokens != r.Batch {
		what += ", " + count(int64(r.Tokens), "token")
	}
	fmt.Fprintf(w, "\n%s, %s, context %d: %d launches, %s", r.Entry, what, r.Ctx, r.Launches, size(r.Bytes))
	if r.TokensPerS != nil {
		fmt.Fprintf(w, ", %.1f tokens/s", *r.TokensPerS)
	}
	fmt.Fprintln(w)
	if r.Drafts != nil {
		fmt.Fprintln(w, r.Drafts.describe())
	}
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(tw, "step\tmedian us\tp95 us\tsamples")
	for _, s := range []struct {
		name string
		stat *stat
	}{{"whole", r.Whole}, {"replayed", r.Replay}, {"one by one", r.Eager}} {
		if s.stat != nil {
			fmt.Fprintf(tw, "%s\t%.1f\t%.1f\t%d\n", s.name, s.stat.Median, s.stat.P95, s.stat.Samples)
		}
	}
	if err := tw.Flush(); err != nil || r.Sum == nil {
		return err
	}
	fmt.Fprintln(w)
	tw = tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(tw, "form\top\tlaunches\tus\tof all\tmedian us\tp95 us\tbytes\tGB/s\tof bandwidth")
	byTime := slices.Clone(r.Kernels)
	slices.SortStableFunc(byTime, func(a, b benchKernel) int { return cmp.Compare(b.Us, a.Us) })
	for _, k := range byTime {
		fmt.Fprintf(tw, "%s\t%s\t%d\t%.1f\t%s\t%.2f\t%.2f\t%s\t%s\t%s\n", k.Form, k.Op, k.Launches, k.Us, percent(k.Share), k.Median, k.P95, size(k.Bytes), perSecond(k.GBPerS), percent(k.Part))
	}
	if err := tw.Flush(); err != nil {
		return err
	}
	_, err := fmt.Fprintf(w, "sum %.1f us, step %.1f us, gap %.1f us (%.1f%%); %d samples of each launch\n", *r.Sum, *r.Sum+*r.Gap, *r.Gap, 100**r.Gap/max(*r.Sum+*r.Gap, 1e-9), r.LaunchSamples)
	return err
}

// percent is a part that may not be known.
func percent(part *float64) string {
	if part == nil {
		return "-"
	}
	return fmt.Sprintf("%.1f%%", 100**part)
}

// perSecond are GB/s that may not be known.
func perSecond(rate *float64) string {
	if rate == nil {
		return "-"
	}
	return fmt.Sprintf("%.0f", *rate)
}
