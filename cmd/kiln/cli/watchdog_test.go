package cli

import (
	"testing"

	"github.com/kiln-project/kiln/runtime/device/devicetest"
)

// hanging runs a bundle of the tiny model on a fake whose kernels do not end: from the first on, or
// after the start-up checks, which another fake has passed or not.
func hanging(t *testing.T, b string, afterChecks bool, want []string, more ...string) {
	t.Helper()
	cache := t.TempDir()
	args := func(hangs bool) []string {
		hip, cuda := devicetest.FakeDrivers(t, devicetest.Fakes{CUDA: []string{"sm_90"}, Hangs: hangs})
		list := []string{"--model", tinyModel, "--prompt-ids", "5", "--max-new-tokens", "1", "--device", "cuda:0"}
		return append(append(list, more...), "--hip-lib", hip, "--cuda-lib", cuda, "--cache-dir", cache, "--bundle", b)
	}
	if afterChecks {
		kilnWith(t, chosen, "", append([]string{"run"}, args(false)...)...).ok(t)
	}
	run := append(args(true), "--watchdog", "1s")
	kilnWith(t, chosen, "", append([]string{"run"}, run...)...).failed(t, exitFailed, want...)
}

// A step that does not end is an error with its entry and bucket, and the last step that
// did; the command that it names finds the kernel.
func TestWatchdog(t *testing.T) {
	b := tinyBundle(t)
	hint := "\n  try: kiln run --model=" + tinyModel + " --prompt-ids=5 --max-new-tokens=1 --device=cuda:0 --graph=off --watchdog=1s --hip-lib="
	const stuck = ": CUDA device 0: not done after 1s: the device does not answer; this is step 1 of the plan, none is finished"
	hanging(t, b, true, []string{"kiln: plan prefill B=1 N=", " T=16" + stuck, hint})
	hanging(t, b, false, []string{"kiln: start-up check: probe ", ": plan probe.0 B=1" + stuck, hint})
}

func TestWatchdogNamesKernel(t *testing.T) {
	b := tinyBundle(t)
	hanging(t, b, false, []string{"kiln: start-up check: probe ", ": launch 0, kernel ", "not done after 1s"}, "--graph", "off")
	hanging(t, b, true, []string{"kiln: plan prefill B=1 N=", ": launch 0, kernel ", "not done after 1s"}, "--graph", "off")
}

func TestWatchdogRefuses(t *testing.T) {
	libs := drivers(t, nil, []string{"sm_90"})
	run := append([]string{"run", "--model", tinyModel, "--prompt-ids", "5", "--max-new-tokens", "1"}, libs...)
	for _, text := range []string{"soon", "-1s", "0s"} {
		kilnWith(t, chosen, "", append(run, "--watchdog", text)...).failed(t, exitUsage, `--watchdog "`+text+`": want a time such as 30s`)
	}
	kiln(t, append(run, "--watchdog", "abc", "--device", "ref")...).failed(t, exitUsage, `--watchdog "abc": want a time such as 30s`, "  try: --watchdog 30s\n")
	kiln(t, append(run, "--graph", "foo", "--device", "ref")...).failed(t, exitUsage, `--graph "foo": want one of auto, on, off`)
	kiln(t, append(run, "--graph-build", "foo", "--device", "ref")...).failed(t, exitUsage, `--graph-build "foo": want one of explicit, capture`)
	kiln(t, append(run, "--watchdog", "30s", "--device", "ref")...).failed(t, exitRefused, "--watchdog: device ref is no GPU")
}

func TestCommandWith(t *testing.T) {
	f, err := parsed("run", "--prompt", "it's a b", "--disable-kernel", "x,y", "--seed", "7", "--ignore-eos")
	if err != nil {
		t.Fatal(err)
	}
	const want = `kiln run --prompt='it'\''s a b' --ignore-eos=true --seed=7 --graph=off --disable-kernel=x,y`
	if got := f.commandWith("graph", "off"); got != want {
		t.Errorf("%s, want %s", got, want)
	}
}
