package cli

import (
	"fmt"
	"runtime"
	"slices"
	"strings"

	"github.com/kiln-project/kiln/runtime/host"
)

// devices lists what --device takes.
var devices = []string{"host", "ref"}

// device is what computes, and why that.
type device struct {
	name string
	why  string
}

// chooseDevice reads --device and --bundle. Without them it is the host's, and
// never silently another: ref is right for checks and too slow for the rest.
func chooseDevice(f *flags) (device, error) {
	name := f.text("device")
	if name != "" && !slices.Contains(devices, name) {
		return device{}, refuse(fmt.Errorf("%s %s: this version has %s", f.origins("device"), name, strings.Join(devices, " and ")), "--device host")
	}
	switch {
	case f.text("bundle") != "":
		if name == "ref" && !f.fromEnv["device"] { // a flag wins over a variable
			return device{}, refuse(fmt.Errorf("--bundle runs on host, --device says %s", name), "leave --device out")
		}
		return device{"host", "given by " + f.origins("bundle")}, nil
	case name != "":
		return device{name, "given by " + f.origins("device")}, nil
	}
	return device{"host", "no GPU device in this version"}, nil
}

// describe names the device with what it is made of.
func (d device) describe() string {
	what := "reference evaluator"
	if d.name == "host" {
		what, _ = host.Target() // what it has run on, so it is there
	}
	cores := "cores"
	n := runtime.GOMAXPROCS(0)
	if n == 1 {
		cores = "core"
	}
	return fmt.Sprintf("%s (%s, %d %s)", d.name, what, n, cores)
}

// tell is the one line on the device, before it starts to work.
func (d device) tell(p *progress) { p.note("device: %s: %s", d.describe(), d.why) }
