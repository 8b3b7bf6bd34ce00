package cli

import (
	"encoding/json"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/kiln-project/kiln/codegen/bundle"
	"github.com/kiln-project/kiln/codegen/plan"
)

// A bundle whose probe does not hold runs its plans without fused kernels, says so once
// for each run, also when it is remembered, and gives the same text. With --strict, or
// without such plans, it is an error.
func TestStartupChecks(t *testing.T) {
	needLLVM(t)
	tg, err := hostTarget()
	if err != nil {
		t.Skip(err)
	}
	dir := t.TempDir()
	good, bad, bare := filepath.Join(dir, "good.kiln"), filepath.Join(dir, "bad.kiln"), filepath.Join(dir, "bare.kiln")
	compile := []string{"compile", "--model", tinyModel, "--target", tg.Name, "--batch", "1", "--prefill", "16", "--max-seq", "128", "--speculate", "0"}
	kiln(t, append(compile, "-o", good)...).ok(t)
	kiln(t, append(compile, "-o", bare, "--no-fallback")...).ok(t)

	change := func(out string, f func(c *bundle.Code)) {
		t.Helper()
		b, err := bundle.ReadManifest(good)
		if err != nil {
			t.Fatal(err)
		}
		c, err := b.ReadCode(good, tg.Name)
		if err != nil {
			t.Fatal(err)
		}
		if c.Unfused, err = b.ReadUnfused(good, c.Module); err != nil {
			t.Fatal(err)
		}
		f(c)
		if b.Code[tg.Name], err = c.Encode(); err != nil {
			t.Fatal(err)
		}
		if err := b.Write(out); err != nil {
			t.Fatal(err)
		}
	}
	change(bad, func(c *bundle.Code) { exchange(t, c.Probes.Module) })

	run := func(b string, more ...string) result {
		t.Helper()
		return kiln(t, append([]string{"run", "--model", tinyModel, "--bundle", b, "--prompt", "package main", "--max-new-tokens", "6", "--cache-dir", filepath.Join(dir, "cache")}, more...)...)
	}
	want := run(good)
	want.ok(t)
	if strings.Contains(want.stderr, "start-up check") {
		t.Errorf("a good bundle: %s", want.stderr)
	}
	run(good, "--strict").ok(t)
	run(bare).ok(t)
	run(bare, "--strict").failed(t, exitRefused, bare+" has no probes of fused kernels")
	run(good, "--strict", "--startup-check=false").failed(t, exitUsage, "no check can fail that does not run")
	const line = "start-up check: rms_norm_rope at layers.0.attn (kernel rms_norm_rope): y: 1-cos of bf16[1,128] is 0."
	for range 2 {
		r := run(bad)
		r.ok(t)
		if strings.Count(r.stderr, line) != 1 || strings.Count(r.stderr, "start-up check: the plans without fused kernels run instead, which are slower\n") != 1 {
			t.Errorf("a bad bundle says\n%s", r.stderr)
		}
		if r.stdout != want.stdout {
			t.Errorf("without fused kernels %q, want %q", r.stdout, want.stdout)
		}
	}
	var asJSON runResult
	if r := run(bad, "--json"); r.code != exitOK || json.Unmarshal([]byte(r.stdout), &asJSON) != nil || !strings.Contains(r.stderr, line) {
		t.Errorf("--json: exit code %d, %s, %s", r.code, r.stdout, r.stderr)
	}
	if len(asJSON.StartupChecks) != 2 || !strings.HasPrefix(asJSON.StartupChecks[0], strings.TrimSpace(line)) {
		t.Errorf("JSON has %q", asJSON.StartupChecks)
	}
	run(bad, "--strict").failed(t, exitCheck, line)
	doctor := kiln(t, "doctor", "--cache-dir", filepath.Join(dir, "cache"))
	doctor.ok(t)
	for _, want := range []string{good + " on host (", "): fused kernels and replays are right\n", bad + " on host (", strings.TrimPrefix(line, "start-up check")} {
		if !strings.Contains(doctor.stdout, want) {
			t.Errorf("doctor says\n%s\nwant %q in it", doctor.stdout, want)
		}
	}

	change(bad, func(c *bundle.Code) {
		exchange(t, c.Probes.Module)
		c.Unfused = nil
	})
	r := run(bad)
	if r.code != exitCheck || !strings.Contains(r.stderr, line) || !strings.Contains(r.stderr, "kiln: start-up check: a fused kernel is wrong, and the bundle has no plans without them\n  try: kiln compile") {
		t.Errorf("without the plans: exit code %d, %s", r.code, r.stderr)
	}
}

// exchange gives a probe the sines of its rotation for the cosines.
func exchange(t *testing.T, m *plan.Module) {
	t.Helper()
	for _, p := range m.Plans {
		if p.Launches[0].Op != "rms_norm_rope" {
			continue
		}
		i := slices.IndexFunc(p.Inputs, func(x plan.Tensor) bool { return x.Name == "a1" })
		j := slices.IndexFunc(p.Inputs, func(x plan.Tensor) bool { return x.Name == "a2" })
		p.Inputs[i].Data, p.Inputs[j].Data = p.Inputs[j].Data, p.Inputs[i].Data
		return
	}
	t.Fatal("there is no probe of rms_norm_rope")
}
