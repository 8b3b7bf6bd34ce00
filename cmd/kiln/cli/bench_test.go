package cli

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kiln-project/kiln/codegen/plan"
	"github.com/kiln-project/kiln/ir"
	"github.com/kiln-project/kiln/ir/eval"
)

// benchBundle compiles a bundle of the tiny model for some targets.
func benchBundle(t *testing.T, targets string, args ...string) string {
	t.Helper()
	dir := t.TempDir()
	out := filepath.Join(dir, "tiny.kiln")
	kiln(t, append([]string{"compile", "--model", tinyModel, "--target", targets, "--batch", "1,2", "--prefill", "16", "--max-seq", "128", "--speculate", "0",
		plansOnly, "-o", out}, args...)...).ok(t)
	return out
}

// hostTargetName is the target of this CPU.
func hostTargetName(t *testing.T) string {
	t.Helper()
	needLLVM(t)
	tg, err := hostTarget()
	if err != nil {
		t.Skip(err)
	}
	return tg.Name
}

// checkBench checks what holds for every report: of each step that was asked for, the
// launches add up to the kernels and to the sum, which differs from the step by the
// gap.
func checkBench(t *testing.T, r *benchReport, steps []string) {
	t.Helper()
	near := func(a, b float64) bool { return math.Abs(a-b) <= 1e-6*(1+math.Abs(a)) }
	var got []string
	for _, s := range r.Steps {
		got = append(got, strings.Join([]string{s.Entry, itoa(s.Batch), itoa(s.Tokens), itoa(s.Ctx)}, " "))
		var each, kernels float64
		var bytes, grouped int64
		launches := 0
		for i, l := range s.Each {
			if l.Index != i || l.Kernel == "" || l.Form == "" || l.Op == "" || l.Grid < 1 || l.Bytes < 1 {
				t.Errorf("launch %d: %+v", i, l)
			}
			each, bytes = each+l.Median, bytes+l.Bytes
		}
		first := -1 // launch of the kernels before: they stand in this order, not in that of times
		for _, k := range s.Kernels {
			kernels, grouped, launches = kernels+k.Us, grouped+k.Bytes, launches+k.Launches
			at := slices.IndexFunc(s.Each, func(l benchLaunch) bool { return l.Form == k.Form && l.Op == k.Op })
			if at <= first {
				t.Errorf("%s for %s, first launched at %d, stands behind one of launch %d", k.Form, k.Op, at, first)
			}
			first = at
		}
		step := s.Replay
		if step == nil {
			step = s.Eager
		}
		switch {
		case len(s.Each) != s.Launches || launches != s.Launches || s.Launches < 20:
			t.Errorf("%d launches, %d listed, %d grouped", s.Launches, len(s.Each), launches)
		case bytes != s.Bytes || grouped != s.Bytes:
			t.Errorf("%d bytes, %d listed, %d grouped", s.Bytes, bytes, grouped)
		case !near(each, *s.Sum) || !near(kernels, *s.Sum) || !near(*s.Sum+*s.Gap, step.Median):
			t.Errorf("sum %g of launches %g and kernels %g, step %g, gap %g", *s.Sum, each, kernels, step.Median, *s.Gap)
		case s.Whole.Median <= 0 || s.Whole.P95 < s.Whole.Median:
			t.Errorf("whole steps %+v", s.Whole)
		case s.Drafts == nil && !near(*s.TokensPerS, float64(s.Tokens)/s.Whole.Median*1e6):
			t.Errorf("whole steps %+v, %g tokens/s", s.Whole, *s.TokensPerS)
		}
	}
	if d := cmp.Diff(steps, got); d != "" {
		t.Errorf("steps (-want +got):\n%s", d)
	}
}

// withoutTimes is a report with all that was measured taken out.
func withoutTimes(r benchReport) benchReport {
	r.Load = nil
	for i := range r.Steps {
		s := &r.Steps[i]
		for _, x := range []**stat{&s.Whole, &s.Replay, &s.Eager} {
			if *x != nil {
				*x = &stat{Samples: (*x).Samples}
			}
		}
		s.TokensPerS, s.GBPerS, s.Part, s.Sum, s.Gap = nil, nil, nil, nil, nil
		for j := range s.Each {
			l := &s.Each[j]
			l.Median, l.P95, l.GBPerS, l.Part = 0, 0, nil, nil
		}
		for j := range s.Kernels {
			k := &s.Kernels[j]
			k.Us, k.Median, k.P95, k.Share, k.GBPerS, k.Part = 0, 0, 0, nil, nil, nil
		}
	}
	return r
}

// A sum or a time that is 0 or less is noise: no share and no rate is made of it.
func TestBenchNoise(t *testing.T) {
	for _, tc := range []struct {
		us, gap float64
		want    string
	}{
		{4, 6, "form  op   launches  us   of all  median us  p95 us  bytes   GB/s  of bandwidth\nf     add  1         4.0  100.0%  4.00       0.00    8000 B  2     2.0%\nsum 4.0 us, step 10.0 us, gap 6.0 us (60.0%); 3 samples of each launch\n"},
		{-4, 14, "form  op   launches  us    of all  median us  p95 us  bytes   GB/s  of bandwidth\nf     add  1         -4.0  -       -4.00      0.00    8000 B  -     -\nsum -4.0 us, step 10.0 us, gap 14.0 us (140.0%); 3 samples of each launch\n"},
	} {
		s := benchStep{Sum: &tc.us, Gap: &tc.gap, LaunchSamples: 3, bandwidth: ptrTo(1e11)}
		x := benchLaunch{Form: "f", Op: "add", Median: tc.us, Bytes: 8000}
		x.GBPerS, x.Part = s.rate(x.Bytes, x.Median)
		s.Each = []benchLaunch{x}
		s.group(tc.us)
		var b strings.Builder
		if err := s.print(&b); err != nil {
			t.Fatal(err)
		}
		if _, table, _ := strings.Cut(b.String(), "\n\nform"); "form"+table != tc.want {
			t.Errorf("%g us:\n%s\nwant\n%s", tc.us, b.String(), tc.want)
		}
		if k := s.Kernels[0]; (k.Share == nil) != (tc.us < 0) || (k.GBPerS == nil) != (tc.us < 0) || (x.GBPerS == nil) != (tc.us < 0) {
			t.Errorf("%g us: kernel %+v, launch %+v", tc.us, k, x)
		}
	}
}

// On the host: random weights and those of a checkpoint, decode and prefill; the
// trace; and equal reports but for the times.
func TestBenchHost(t *testing.T) {
	b := benchBundle(t, hostTargetName(t), "--layers", "2")
	trace := filepath.Join(t.TempDir(), "trace.json")
	args := []string{"bench", b, "--device", "host", "--samples", "2", "--json"}
	random := append(slices.Clone(args), "--random-weights", "--ctx", "100,0", "--trace", trace)
	var reports [2]benchReport
	for i := range reports {
		kiln(t, random...).decode(t, &reports[i])
		checkBench(t, &reports[i], []string{"decode 1 1 0", "decode 1 1 100", "decode 2 2 0", "decode 2 2 100"})
	}
	r := reports[0]
	if r.Device != "host" || r.Weights != "random" || r.Graphs != noGraphs || r.Cache != "hot" || r.Bandwidth != nil || r.Steps[0].Replay != nil || len(r.Digest) != 64 || r.Layers != 2 {
		t.Errorf("report %+v", r)
	}
	checkTrace(t, trace, &reports[1])
	if d := cmp.Diff(withoutTimes(reports[0]), withoutTimes(reports[1]), cmp.AllowUnexported(benchStep{}, benchKernel{})); d != "" {
		t.Errorf("two reports:\n%s", d)
	}

	kiln(t, append(args, "--model", tinyModel, "--entry", "prefill", "--steps-only")...).decode(t, &r)
	if len(r.Steps) != 1 || r.Steps[0].Tokens != 16 || r.Steps[0].Ctx != 112 || r.Steps[0].Sum != nil || r.Weights != tinyModel {
		t.Errorf("report %+v", r)
	}
	text := kiln(t, "bench", b, "--device", "host", "--samples", "1", "--random-weights", "--batch", "2", "--window", "0").ok(t)
	for _, want := range []string{"decode, 2 requests, context 127: ", "tokens/s\n", "\nwhole ", "\none by one ", "\nblock_linear ", "\nsum ", " gap "} {
		if !strings.Contains(text.stdout, want) {
			t.Errorf("standard output lacks %q:\n%s", want, text.stdout)
		}
	}
}

// Steps with drafts, all of which are right: tokens/s by the acceptance that is measured
// with a checkpoint's weights, and for each number of accepted drafts.
func TestBenchSpeculate(t *testing.T) {
	b := benchBundle(t, hostTargetName(t), "--speculate", "2")
	args := []string{"bench", b, "--device", "host", "--samples", "1", "--steps-only", "--batch", "2"}
	rates := func(s *benchStep) []float64 {
		seconds := s.Whole.Median / 1e6
		return []float64{2 / seconds, 4 / seconds, 6 / seconds}
	}
	check := func(r *benchReport) *benchStep {
		t.Helper()
		s := &r.Steps[0]
		d := s.Drafts
		if len(r.Steps) != 1 || s.Entry != "speculate2" || s.Batch != 2 || s.Tokens != 6 || s.Ctx != 125 || d == nil || d.Drafts != 2 || len(d.PerAccepted) != 3 {
			t.Fatalf("steps %+v", r.Steps)
		}
		for i, want := range rates(s) {
			if math.Abs(d.PerAccepted[i]/want-1) > 1e-6 {
				t.Errorf("%g tokens/s with %d accepted, want %g", d.PerAccepted[i], i, want)
			}
		}
		return s
	}
	var random, real benchReport
	kiln(t, append(slices.Clone(args), "--speculate", "2", "--random-weights", "--json")...).decode(t, &random)
	if s := check(&random); s.TokensPerS != nil || s.Drafts.Acceptance != nil || s.Drafts.TokensPerStep != nil {
		t.Errorf("with random weights: %v tokens/s, drafts %+v", s.TokensPerS, s.Drafts)
	}
	kiln(t, append(slices.Clone(args), "--speculate", "2", "--model", tinyModel, "--json")...).decode(t, &real)
	s := check(&real)
	d := s.Drafts
	if s.TokensPerS == nil || len(d.Acceptance) != 2 || *d.Acceptance[0] < 0.3 || *d.Acceptance[1] > *d.Acceptance[0] || *d.TokensPerStep <= 1.3 || *d.TokensPerStep > 3 {
		t.Fatalf("with a checkpoint: %v tokens/s, drafts %+v", s.TokensPerS, d)
	}
	if want := 2 * *d.TokensPerStep / s.Whole.Median * 1e6; math.Abs(*s.TokensPerS/want-1) > 1e-6 {
		t.Errorf("%g tokens/s, want %g", *s.TokensPerS, want)
	}
	text := kiln(t, append(slices.Clone(args), "--speculate", "1", "--random-weights")...).ok(t).stdout
	for _, want := range []string{"speculate1, 2 requests, 4 tokens, context 126: ", "\nacceptance of 1 drafts is not measured with random weights; tokens/s by accepted drafts: 0: ", " 1: "} {
		if !strings.Contains(text, want) {
			t.Errorf("standard output lacks %q:\n%s", want, text)
		}
	}
	for _, tc := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"--speculate", "3"}, exitRefused, "--speculate 3: " + b + " was compiled with --speculate 2\n  try: --speculate 2, or kiln compile --speculate 3"},
		{[]string{"--speculate", "-1"}, exitUsage, "--speculate is -1, want at least 0"},
		{[]string{"--speculate", "1", "--entry", "prefill"}, exitUsage, "--speculate is of decode steps, --entry is prefill"},
		{[]string{"--speculate", "2", "--ctx", "126"}, exitRefused, "--ctx 126: with 3 new, " + b + " has room for 128 tokens of a request"},
	} {
		args := args
		if slices.Contains(tc.args, "prefill") {
			args = args[:len(args)-2]
		}
		kiln(t, slices.Concat(args, []string{"--random-weights"}, tc.args)...).failed(t, tc.code, tc.want)
	}
	// The other tools list such steps of a bundle.
	var in bundleInspection
	kiln(t, "inspect", b, "--json").decode(t, &in)
	var rows []string
	for _, e := range in.Entries {
		if strings.HasPrefix(e.Name, "speculate") {
			rows = append(rows, fmt.Sprintf("%s %d %d %s", e.Name, e.Batch, e.Tokens, e.OrderClass))
		}
	}
	if d := cmp.Diff([]string{"speculate1 1 2 step", "speculate2 1 3 step", "speculate1 2 4 step", "speculate2 2 6 step"}, rows); d != "" {
		t.Errorf("inspect (-want +got):\n%s", d)
	}
	var needs planReport
	kiln(t, "plan", b, "--json").decode(t, &needs)
	if total := in.Totals[0]; needs.Targets[0].Launches != total.Launches || needs.Targets[0].Arena != total.ArenaBytes {
		t.Errorf("plan %+v, inspect %+v", needs.Targets[0], total)
	}
	page := filepath.Join(t.TempDir(), "page.html")
	kiln(t, "view", "--bundle", b, "--entry", "speculate2", "--bind", "B=2", "-o", page).ok(t)
	if p, _, text := readPage(t, page); p.Plan == nil || !strings.Contains(text, "speculate2") {
		t.Error("the page of a bundle's speculative step has no plan")
	}
}

// checkTrace reads a trace: the launches of each step, one after the other.
func checkTrace(t *testing.T, path string, r *benchReport) {
	t.Helper()
	var file struct{ TraceEvents []traceEvent }
	if err := json.Unmarshal(readFile(t, path), &file); err != nil {
		t.Fatal(err)
	}
	at, step := 0, -1
	end := 0.0
	for _, e := range file.TraceEvents {
		if e.Phase == "M" {
			step, at, end = step+1, 0, 0
			continue
		}
		l := r.Steps[step].Each[at]
		if e.Phase != "X" || e.Name != l.Op || e.Category != l.Form || e.Process != step+1 || e.Ts != end || *e.Duration != max(l.Median, 0) || e.Args["median_us"] != l.Median {
			t.Fatalf("step %d launch %d: %+v, want %+v at %g", step, at, e, l, end)
		}
		end += *e.Duration
		at++
	}
	if step != len(r.Steps)-1 || at != r.Steps[step].Launches {
		t.Errorf("the trace ends in step %d with %d launches", step, at)
	}
}

// On GPUs that compute nothing, by fake drivers: replays beside launches one by one,
// the bandwidth of the chip or of the driver; what is left open fails the test.
func TestBenchGPU(t *testing.T) {
	needGPU(t)
	b := benchBundle(t, "sm_90,gfx942", "--layers", "1")
	args := []string{"bench", b, "--random-weights", "--samples", "2", "--batch", "2", "--ctx", "5", "--json"}
	for _, tc := range []struct {
		drivers   []string
		args      []string
		graphs    string
		device    string
		from      string
		bandwidth float64
	}{
		{drivers(t, nil, []string{"sm_90"}), nil, "built", "cuda:0", "the driver: ", 2 * 3.201e9 * 6144 / 8},
		{drivers(t, []string{"gfx942:sramecc+:xnack-"}, nil), []string{"--graph-build", "capture", "--cold", "--window", "7"}, "captured", "hip:0", "MI300X: ", 5.3e12},
		{drivers(t, []string{"gfx942:sramecc+:xnack-"}, nil), []string{"--graph", "off", "--device", "hip"}, noGraphs, "hip:0", "MI300X: ", 5.3e12},
	} {
		var r benchReport
		kilnWith(t, chosen, "", slices.Concat(args, tc.args, tc.drivers)...).decode(t, &r)
		s := r.Steps[0]
		if r.Graphs != tc.graphs || r.Device != tc.device || r.Layers != 1 || r.Driver == "" || r.Clocks == nil || r.Clocks.Core == 0 || *r.CacheSize == 0 || !strings.HasPrefix(r.Source, tc.from) || *r.Bandwidth != tc.bandwidth {
			t.Errorf("%v: %+v", tc.args, r)
		}
		if (r.Cache == "cold") != slices.Contains(tc.args, "--cold") || (s.Replay == nil) != (tc.graphs == noGraphs) || s.Eager == nil {
			t.Errorf("%v: cache %s, replay %v, eager %v", tc.args, r.Cache, s.Replay, s.Eager)
		}
		checkBench(t, &r, []string{"decode 2 2 5"})
	}
}

// What cannot be timed is refused before anything runs, with what to do instead.
func TestBenchRefuses(t *testing.T) {
	b := benchBundle(t, hostTargetName(t), "--layers", "1")
	random := []string{"bench", b, "--random-weights", "--device", "host"}
	with := func(args ...string) []string { return append(slices.Clone(random), args...) }
	other := withConfig(t, `"rope_theta": 10000`, `"rope_theta": 20000`)
	for _, tc := range []struct {
		args  []string
		code  int
		parts []string
	}{
		{[]string{"bench", b}, exitUsage, []string{"bench needs exactly one of --model, --random-weights, got 0"}},
		{with("--model", tinyModel), exitUsage, []string{"got 2"}},
		{[]string{"bench", b, "--model", other}, exitRefused, []string{b + " was compiled from another config.json than " + other + " has\n  try: kiln compile --model " + other + " -o OTHER.kiln\n"}},
		{[]string{"bench", b, "--model", other + "/none"}, exitFailed, []string{"model folder " + other + "/none: "}},
		{with("--batch", "3"), exitRefused, []string{"--batch 3: " + b + " was compiled for 1,2\n", "--batch 1\n"}},
		{with("--batch", "0"), exitUsage, []string{`--batch: "0"`}},
		{with("--ctx", "128"), exitRefused, []string{"--ctx 128: with 1 new, " + b + " has room for 128 tokens of a request", "--ctx 127\n"}},
		{with("--entry", "prefill", "--ctx", "113"), exitRefused, []string{"--ctx 113: with 16 new", "--ctx 112\n"}},
		{with("--ctx", "1,-1"), exitUsage, []string{`--ctx "1,-1": want distinct numbers`}},
		{with("--entry", "verify"), exitRefused, []string{"--entry verify: decode and prefill can be timed", "  try: --entry decode\n"}},
		{with("--entry", "speculate1"), exitRefused, []string{"--entry speculate1: decode and prefill can be timed, and steps with drafts by --speculate\n", "  try: --speculate 1\n"}},
		{with("--prefill", "16"), exitUsage, []string{"--prefill is of entry prefill, not of decode", "  try: --batch 1\n"}},
		{with("--entry", "prefill", "--batch", "1"), exitUsage, []string{"--batch is of entry decode, not of prefill", "  try: --prefill 16\n"}},
		{with("--steps-only", "--window", "0"), exitUsage, []string{"--window: with --steps-only no launch is timed\n  try: leave --window out\n"}},
		{with("--graph", "foo"), exitUsage, []string{`--graph "foo": want one of auto, on, off`, "  try: --graph auto\n"}},
		{with("--device", "emu:gfx942"), exitRefused, []string{"device emu:gfx942 is emulated", "--counters c.json, then kiln inspect " + b + " --profile c.json\n"}},
		{with("--device", "ref"), exitRefused, []string{"device ref has no kernels"}},
		{with("--device", "abacus"), exitRefused, []string{"--device abacus: this version has"}},
		{with("--device", "cuda:0", "--cuda-lib", "/nowhere.so"), exitFailed, []string{"--device cuda:0: no CUDA library could be loaded"}},
		{with("--cold"), exitRefused, []string{"--cold: the size of the caches of device host is not known"}},
		{with("--graph", "on"), exitRefused, []string{"--graph: device host has no graphs"}},
		{with("--seconds", "5", "--samples", "2"), exitUsage, []string{"--seconds, --samples: a number of samples takes the time that it takes"}},
		{with("--seconds", "0"), exitUsage, []string{"--seconds is 0, want a positive number"}},
		{with("--window", "-1"), exitUsage, []string{"--window is -1, want at least 0"}},
		{[]string{"bench", filepath.Join(b, "none"), "--random-weights", "--device", "host"}, exitFailed, []string{"manifest.json: no such file", "\n  try: kiln compile --model DIR -o OTHER.kiln\n"}},
	} {
		kiln(t, tc.args...).failed(t, tc.code, tc.parts...)
	}
	gpu := slices.Concat(random[:3], []string{"--device", "cuda"}, drivers(t, nil, []string{"sm_90"}))
	kiln(t, gpu...).failed(t, exitRefused, "was compiled for ["+hostTargetName(t)+"], device cuda:0 (given by --device) runs none of them")

	// Of an older kiln: without the kernels that make random weights.
	old := filepath.Join(t.TempDir(), "old.kiln")
	if err := os.CopyFS(old, os.DirFS(b)); err != nil {
		t.Fatal(err)
	}
	resealed(t, old, filepath.Join(hostTargetName(t), "module.json"), func(text []byte) []byte {
		return bytes.Replace(text, []byte(`"form": "random_fill"`), []byte(`"form": "something"`), 1)
	})
	kiln(t, "bench", old, "--random-weights", "--device", "host").failed(t, exitFailed, "weight embed: the code has no kernel of form random_fill", "compile it again")
}

// resealed changes a file of a bundle, and its digest in the manifest.
func resealed(t *testing.T, path, file string, change func([]byte) []byte) {
	t.Helper()
	name, manifest := filepath.Join(path, file), filepath.Join(path, "manifest.json")
	before := readFile(t, name)
	after := change(before)
	digest := func(data []byte) []byte { return fmt.Appendf(nil, "%x", sha256.Sum256(data)) }
	for name, data := range map[string][]byte{name: after, manifest: bytes.Replace(readFile(t, manifest), digest(before), digest(after), 1)} {
		if err := os.WriteFile(name, data, 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// Results that are not finite end the measurement, with their place.
func TestBenchFinite(t *testing.T) {
	nan := float32(math.NaN())
	logits := func(v ...float32) *eval.Tensor { return &eval.Tensor{DType: ir.F32, Shape: []int{1, len(v)}, F: v} }
	flags := func(v ...int64) *eval.Tensor { return &eval.Tensor{DType: ir.I32, Shape: []int{len(v)}, I: v} }
	for want, out := range map[string]*eval.Tensor{
		"":                            logits(1, -2, 0),
		"output x, element 1 is NaN":  logits(1, nan),
		"output x, element 0 is +Inf": logits(float32(math.Inf(1)), nan),
		"output x_flags, row 1: the flags are 0x1: a logit is not finite": flags(0, 1),
	} {
		name := "x"
		if out.DType == ir.I32 {
			name = "x_flags"
		}
		err := finite(map[string]*eval.Tensor{name: out}, []plan.Tensor{{Name: name}})
		if got := fmt.Sprint(err); got != want && (want != "" || err != nil) {
			t.Errorf("error %v, want %q", err, want)
		}
	}
}
