package cli

import (
	"encoding/json"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kiln-project/kiln/codegen/bundle"
	"github.com/kiln-project/kiln/runtime/device/devicetest"
)

// tinyBundle compiles the tiny model with a large batch for GPUs.
func tinyBundle(t *testing.T) string {
	t.Helper()
	needLLVM(t)
	dir := t.TempDir()
	out := filepath.Join(dir, "tiny.kiln")
	kiln(t, "compile", "--model", tinyModel, "--target", "sm_90", "--batch", "1,64", "--prefill", "16", "--max-seq", "512", "--speculate", "0",
		"-o", out).ok(t)
	return out
}

var negativeFree = regexp.MustCompile(`\n  free +-`)

func TestPlan(t *testing.T) {
	b := tinyBundle(t)
	plan := func(args ...string) targetNeeds {
		t.Helper()
		var r planReport
		kiln(t, append([]string{"plan", b, "--json"}, args...)...).decode(t, &r)
		if r.Bundle != b || len(r.Targets) != 1 || r.Targets[0].Target != "sm_90" {
			t.Fatalf("report %+v", r)
		}
		return r.Targets[0]
	}
	compiled := plan()

	// Inspect reads the same numbers from the plans.
	var in bundleInspection
	if err := json.Unmarshal([]byte(kiln(t, "inspect", b, "--json").ok(t).stdout), &in); err != nil {
		t.Fatal(err)
	}
	total := in.Totals[0]
	got := []int64{compiled.Weights, compiled.Pools, compiled.Arena, compiled.Code, int64(compiled.Launches)}
	if diff := cmp.Diff([]int64{total.WeightBytes, total.PoolBytes, total.ArenaBytes, int64(total.CodeBytes), int64(total.Launches)}, got); diff != "" {
		t.Errorf("-inspect +plan:\n%s", diff)
	}
	if sum := compiled.Weights + compiled.Pools + compiled.Arena + compiled.Code + compiled.Graphs; sum != compiled.Total || compiled.Graphs < 64*int64(compiled.Launches) || compiled.ArenaEstimated {
		t.Errorf("needs %+v, sum %d", compiled, sum)
	}
	if compiled.Checks == nil || *compiled.Checks < 1 || *compiled.Checks > compiled.Pools || compiled.Unfused == nil || *compiled.Unfused <= compiled.Total {
		t.Errorf("start-up checks %v, without fused kernels %v, total %d", compiled.Checks, compiled.Unfused, compiled.Total)
	}
	if compiled.Device != nil || compiled.Free != nil || len(compiled.Fits) != 0 {
		t.Errorf("without a device: %+v", compiled)
	}

	// Other sizes: a smaller batch that was compiled has its own arena; pools grow with
	// either number.
	one, twice, long := plan("--max-batch", "1"), plan("--max-batch", "128"), plan("--max-seq", "1024")
	if one.Pools*64 != compiled.Pools || one.Arena > compiled.Arena || one.Launches >= compiled.Launches || one.ArenaEstimated {
		t.Errorf("batch 1: %+v, batch 64: %+v", one, compiled)
	}
	if twice.Pools != 2*compiled.Pools || twice.Arena != 2*compiled.Arena || !twice.ArenaEstimated {
		t.Errorf("batch 128: %+v, batch 64: %+v", twice, compiled)
	}
	if long.Pools <= compiled.Pools || long.Pools >= 2*compiled.Pools || !long.ArenaEstimated {
		t.Errorf("max-seq 1024: %+v, 512: %+v", long, compiled)
	}

	// What fits a device is what fits when it is asked for, and a page more is not.
	memory := itoa(int(compiled.Total))
	for _, x := range plan("--device-memory", memory).Fits {
		ask := []string{"plan", b, "--device-memory", memory, "--max-batch", itoa(x.Batch), "--max-seq"}
		kiln(t, append(ask, itoa(x.MaxSeq))...).ok(t)
		if x.MaxSeq == 4096 {
			continue
		}
		if x.Batch != 64 || x.MaxSeq != 512 {
			t.Errorf("fits %+v", x)
		}
		if r := kiln(t, append(ask, itoa(x.MaxSeq+1))...); r.code != exitRefused || !strings.Contains(r.stderr, "--device-memory is") {
			t.Errorf("a page more: exit code %d, standard error %q", r.code, r.stderr)
		}
	}
	for _, tc := range []struct {
		memory int64
		want   string
	}{
		{compiled.Total - 1, "kiln compile --model DIR --target sm_90 --batch 1 --max-seq 512 -o OTHER.kiln"},
		{1000, "a device with more memory: batch 1 with the shortest --max-seq needs "},
	} {
		r := kiln(t, "plan", b, "--device-memory", itoa(int(tc.memory)))
		if r.code != exitRefused || !strings.Contains(r.stderr, "  try: "+tc.want) || !negativeFree.MatchString(r.stdout) {
			t.Errorf("%d bytes: exit code %d, standard error %q, standard output\n%s", tc.memory, r.code, r.stderr, r.stdout)
		}
	}
	for text, code := range map[string]int{"--device-memory=many": exitUsage, "--device-memory=-1GiB": exitUsage, "--device-memory=1e30": exitUsage, "--max-batch=-1": exitUsage, "--max-seq=4097": exitRefused} {
		kiln(t, "plan", b, text).failed(t, code, strings.Split(text, "=")[0])
	}
}

// What runs on the CPU has no graphs, so that they take nothing: the total is that of
// run --dry-run.
func TestPlanHost(t *testing.T) {
	b := benchBundle(t, hostTargetName(t))
	var plan, dry planReport
	kiln(t, "plan", b, "--json").decode(t, &plan)
	kiln(t, "run", "--model", tinyModel, "--bundle", b, "--device", "host", "--prompt-ids", "5", "--max-new-tokens", "1", "--dry-run", "--json").decode(t, &dry)
	if n := plan.Targets[0]; n.Graphs != 0 || n.Launches < 20 || n.Total != n.Weights+n.Pools+n.Arena+n.Code {
		t.Errorf("needs %+v", n)
	}
	if diff := cmp.Diff(plan.Targets[0].memoryNeed, dry.Targets[0].memoryNeed); diff != "" {
		t.Errorf("-plan +dry run:\n%s", diff)
	}
	if out := kiln(t, "plan", b).ok(t).stdout; !strings.Contains(out, "\n  graphs            0 B  none: launches go to the device one by one\n") {
		t.Errorf("standard output\n%s", out)
	}
}

// A bundle runs in the memory that its plan names. In less it is refused, with what
// would fit, before weights are read.
func TestRunFitsMemory(t *testing.T) {
	b := tinyBundle(t)
	var r planReport
	kiln(t, "plan", b, "--json").decode(t, &r)
	total := r.Targets[0].Total
	run := func(model string, memory int64, more ...string) result {
		t.Helper()
		hip, cuda := devicetest.FakeDrivers(t, devicetest.Fakes{CUDA: []string{"sm_90"}, Memory: memory})
		args := []string{"run", "--model", model, "--bundle", b, "--prompt-ids", "5", "--max-new-tokens", "1", "--hip-lib", hip, "--cuda-lib", cuda}
		return kilnWith(t, chosen, "", append(args, more...)...)
	}
	run(tinyModel, total, "--startup-check=false").ok(t) // on a fake that computes nothing every fused kernel is wrong
	run(tinyModel, total-r.Targets[0].Graphs, "--graph", "off", "--startup-check=false").ok(t)
	weightless := modelFolder(t, map[string][]byte{"model.safetensors": nil})
	want := []string{"kiln: " + b + " needs " + binarySize(total) + " for batch 64 and max-seq 512 (", "free on cuda:0 (NVIDIA, sm_90, graphs) are " + binarySize(total-1) + "\n", "\n  try: kiln compile --model " + weightless + " --target sm_90 --batch 1 --max-seq 512 -o OTHER.kiln\n"}
	run(weightless, total-1).failed(t, exitRefused, want...)

	dry := run(weightless, total, "--dry-run").ok(t)
	if !strings.Contains(dry.stdout, "\n  free              0 B\n") || !strings.HasPrefix(dry.stderr, "device: cuda:0 (NVIDIA, sm_90, graphs)") {
		t.Errorf("standard output\n%sstandard error %q", dry.stdout, dry.stderr)
	}
	graphed := func(want string, more ...string) {
		t.Helper()
		if r := run(weightless, total, append(more, "--dry-run")...).ok(t); !regexp.MustCompile(want).MatchString(r.stdout) {
			t.Errorf("%v: standard output\n%swant %s", more, r.stdout, want)
		}
	}
	graphed(`(?m)^  entry +bucket +nodes +graphed +why\n(  .* yes +built node by node; kernels overlap\n)+$`)
	graphed(`(?m)^  decode +B=1 .* [0-9]+ +yes +recorded from a stream; kernels overlap$`, "--graph-build", "capture")
	graphed(`(?m)^  decode +B=1 .* [0-9]+ +no +--graph off$`, "--graph", "off")
	if less := run(weightless, total-1, "--dry-run"); less.code != exitRefused || !negativeFree.MatchString(less.stdout) {
		t.Errorf("exit code %d, standard output\n%s", less.code, less.stdout)
	}
	run(tinyModel, total, "--dry-run", "--max-new-tokens", "512").failed(t, exitRefused, "was compiled for 512 positions")
	kiln(t, "run", "--model", tinyModel, "--prompt-ids", "5", "--dry-run").failed(t, exitUsage, "--dry-run: only a bundle's needs are known")
}

// Start-up checks that do not fit beside the weights are left out and told, in every run,
// or refused with --strict; so are plans without fused kernels that do not fit.
func TestChecksFitMemory(t *testing.T) {
	needLLVM(t)
	dir := t.TempDir()
	b := filepath.Join(dir, "tiny.kiln")
	kiln(t, "compile", "--model", tinyModel, "--target", "sm_90", "--batch", "1", "--prefill", "16", "--max-seq", "128", "--speculate", "0", "-o", b).ok(t)
	var r planReport
	kiln(t, "plan", b, "--json").decode(t, &r)
	n := r.Targets[0]
	with := n.Total - n.Pools + *n.Checks
	if with <= n.Total {
		t.Fatalf("start-up checks of %d bytes fit in the place of the pools: %+v", *n.Checks, n)
	}
	run := func(memory int64, more ...string) result {
		t.Helper()
		hip, cuda := devicetest.FakeDrivers(t, devicetest.Fakes{CUDA: []string{"sm_90"}, Memory: memory})
		args := []string{"run", "--model", tinyModel, "--bundle", b, "--prompt-ids", "5", "--max-new-tokens", "1", "--cache-dir", filepath.Join(dir, "cache"), "--hip-lib", hip, "--cuda-lib", cuda}
		return kilnWith(t, chosen, "", append(args, more...)...)
	}
	const told = "start-up check: fused kernels are not checked: with the start-up checks "
	for range 2 {
		if got := run(n.Total).ok(t); strings.Count(got.stderr, told) != 1 {
			t.Errorf("standard error %q, want %q in it", got.stderr, told)
		}
	}
	run(n.Total, "--strict").failed(t, exitRefused, "--strict: start-up check: with the start-up checks "+b+" needs "+binarySize(with)+", before it has pools, of "+binarySize(n.Total)+" that are free", "  try: "+smaller)
	// The fake computes nothing: what fits is checked and does not hold.
	const replaced = "start-up check: the plans without fused kernels run instead"
	if got := run(max(with, *n.Unfused)).ok(t); strings.Contains(got.stderr, told) || !strings.Contains(got.stderr, replaced) {
		t.Errorf("what fits: standard error %q", got.stderr)
	}
	run(max(with, *n.Unfused-1)).failed(t, exitRefused, b+" needs "+binarySize(*n.Unfused)+" without fused kernels, ", "  try: "+smaller)

	read, err := bundle.ReadManifest(b)
	if err != nil {
		t.Fatal(err)
	}
	code, err := read.ReadCode(b, "sm_90")
	if err != nil {
		t.Fatal(err)
	}
	side, err := read.ReadUnfused(b, code.Module)
	if err != nil {
		t.Fatal(err)
	}
	m := &compiledModel{path: b, maxSeq: 128}
	if m.sizer, err = newSizer(b, read, code); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		free *int64
		fits bool
	}{{nil, true}, {n.Unfused, true}, {ptrTo(*n.Unfused - 1), false}} {
		m.free = tc.free
		if err := m.replaces(side); (err == nil) != tc.fits {
			t.Errorf("without fused kernels in %v: %v", tc.free, err)
		}
	}
}

func TestMemoryFlag(t *testing.T) {
	for text, want := range map[string]int64{"1": 1, "288GiB": 288 << 30, "1.5 MiB": 3 << 19, "141GB": 141e9, "2kB": 2000, "3B": 3, "4KiB": 4096, "5MB": 5e6, "1TiB": 1 << 40, "1.5TB": 1500e9, "0.5 TiB": 1 << 39} {
		f, err := parsed("plan", "--device-memory", text)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := memoryFlag(f, "device-memory"); err != nil || *got != want {
			t.Errorf("%s: %v, error %v, want %d", text, got, err, want)
		}
	}
}

func TestBinarySize(t *testing.T) {
	for n, want := range map[int64]string{0: "0 B", 1023: "1023 B", 1024: "1.00 KiB", -3 << 19: "-1.50 MiB", 5 << 30: "5.00 GiB"} {
		if got := binarySize(n); got != want {
			t.Errorf("%d: %s, want %s", n, got, want)
		}
	}
}
