package cli

import (
	"testing"

	"github.com/kiln-project/kiln/runtime/device/devicetest"
)

// A step that does not end is an error with its entry and bucket; the command that it
// names finds the kernel.
func TestWatchdog(t *testing.T) {
	b := tinyBundle(t)
	hip, cuda := devicetest.FakeDrivers(t, devicetest.Fakes{CUDA: []string{"sm_90"}, Hangs: true})
	run := func(more ...string) result {
		t.Helper()
		args := []string{"run", "--model", tinyModel, "--bundle", b, "--prompt-ids", "5", "--max-new-tokens", "1", "--hip-lib", hip, "--cuda-lib", cuda, "--watchdog", "1s", "--cache-dir", t.TempDir()}
		return kilnWith(t, chosen, "", append(args, more...)...)
	}
	run("--startup-check=false").failed(t, exitFailed, "plan prefill B=1 N=", " T=16: ", "CUDA device 0: not done after 1s: the device does not answer; this is step 1 of the plan, none is finished",
		"\n  try: kiln run --model="+tinyModel+" --prompt-ids=5 ", " --graph=off ", " --watchdog=1s ", " --bundle="+b+"\n")
	// The checks before the first step are watched as steps are.
	run().failed(t, exitFailed, "start-up check: probe probe.0: ", "CUDA device 0: not done after 1s: the device does not answer", " --graph=off ")
}

func TestWatchdogNamesKernel(t *testing.T) {
	b := tinyBundle(t)
	hip, cuda := devicetest.FakeDrivers(t, devicetest.Fakes{CUDA: []string{"sm_90"}, Hangs: true})
	kilnWith(t, chosen, "", "run", "--model", tinyModel, "--bundle", b, "--prompt-ids", "5", "--max-new-tokens", "1", "--hip-lib", hip, "--cuda-lib", cuda, "--watchdog", "1s", "--graph", "off", "--startup-check=false").
		failed(t, exitFailed, "plan prefill B=1 N=", ": launch 0, kernel ", "not done after 1s")
}

func TestWatchdogRefuses(t *testing.T) {
	libs := drivers(t, nil, []string{"sm_90"})
	run := append([]string{"run", "--model", tinyModel, "--prompt-ids", "5", "--max-new-tokens", "1"}, libs...)
	for _, text := range []string{"soon", "-1s", "0s"} {
		kilnWith(t, chosen, "", append(run, "--watchdog", text)...).failed(t, exitUsage, `--watchdog "`+text+`": want a time such as 30s`)
	}
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
