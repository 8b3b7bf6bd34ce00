package cli

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"

	"github.com/kiln-project/kiln/codegen"
	"github.com/kiln-project/kiln/codegen/llvm"
	"github.com/kiln-project/kiln/codegen/object"
	"github.com/kiln-project/kiln/codegen/plan"
	"github.com/kiln-project/kiln/codegen/target"
	rt "github.com/kiln-project/kiln/runtime/device"
	"github.com/kiln-project/kiln/runtime/emu"
	"github.com/kiln-project/kiln/runtime/host"
)

// devices lists what --device takes.
var devices = []string{"host", "emu:gfx942", "emu:gfx950", "ref"}

// defaultChip is the one that emu alone stands for.
const defaultChip = "gfx950"

// device is what computes, and why that.
type device struct {
	name     string // as --device takes it: host, emu:CHIP, ref
	chip     string // of emu; else ""
	why      string
	sanitize emu.Checks    // of emu
	counters *countersFlag // of emu; nil: none
}

// parseDevice reads a value of --device.
func parseDevice(f *flags, name string) (device, error) {
	if name == "emu" {
		name += ":" + defaultChip
	}
	if !slices.Contains(devices, name) {
		return device{}, refuse(fmt.Errorf("%s %s: this version has %s", f.origins("device"), name, strings.Join(devices, ", ")), "--device host")
	}
	_, chip, _ := strings.Cut(name, ":")
	return device{name: name, chip: chip, why: "given by " + f.origins("device")}, nil
}

// chooseDevice reads --device, --bundle and what watches a device. Without them it is
// the host's, and never silently another: ref is right for checks and too slow for the
// rest, and what is emulated is no GPU.
func chooseDevice(f *flags) (device, error) {
	d := device{name: "host", why: "no GPU device in this version"}
	if name := f.text("device"); name != "" {
		var err error
		if d, err = parseDevice(f, name); err != nil {
			return device{}, err
		}
	}
	if f.text("bundle") != "" && (d.name == "ref" || !f.given("device")) {
		if d.name == "ref" && !f.fromEnv["device"] { // a flag wins over a variable
			return device{}, refuse(fmt.Errorf("--bundle runs on host and emu, --device says %s", d.name), "leave --device out")
		}
		d = device{name: "host", why: "given by " + f.origins("bundle")}
	}
	return d, d.watch(f)
}

// watch reads --sanitize and --counters.
func (d *device) watch(f *flags) error {
	for _, name := range []string{"sanitize", "counters"} {
		if f.text(name) != "" && d.chip == "" {
			return refuse(fmt.Errorf("%s: device %s cannot: only what is emulated can be watched", f.origins(name), d.name), "--device emu")
		}
	}
	var err error
	if list := f.text("sanitize"); list != "" {
		if d.sanitize, err = emu.ParseChecks(list); err != nil {
			return usagef("--sanitize all", "%s: %v", f.origins("sanitize"), err)
		}
	}
	d.counters, err = newCountersFlag(f)
	return err
}

// target is what code for the device is compiled for.
func (d device) target() (*target.Target, error) {
	if d.chip != "" {
		return target.Lookup(d.chip)
	}
	return hostTarget()
}

// hostTarget is the best host target that this CPU runs.
func hostTarget() (*target.Target, error) {
	name, err := host.Target()
	if err != nil {
		return nil, refuse(err, "--device ref")
	}
	return target.Lookup(name)
}

// runs are the targets of a bundle that the device executes, the best first.
func (d device) runs(targets []string) ([]string, error) {
	if d.chip == "" {
		runs, err := host.Targets()
		if err != nil {
			return nil, refuse(err, "--device ref")
		}
		return slices.DeleteFunc(runs, func(t string) bool { return !slices.Contains(targets, t) }), nil
	}
	chip, err := emu.Target(d.chip)
	if err != nil {
		return nil, err
	}
	var runs []string
	for _, t := range targets {
		if id, err := object.ParseTargetID(t); err == nil && id.RunsOn(chip) {
			runs = append(runs, t)
		}
	}
	return runs, nil
}

// open opens the device.
func (d device) open(e *env, f *flags) (rt.Device, error) {
	if d.chip == "" {
		dev, err := host.Open()
		if err != nil {
			return nil, refuse(err, "--device ref")
		}
		return dev, nil
	}
	l, err := emuLoader(e, f)
	if err != nil {
		return nil, err
	}
	return emu.Open(e.ctx, d.chip, l, emu.Options{Sanitize: d.sanitize, Counters: d.counters.counters()})
}

// redZone is how many bytes lie between the values of an arena whose accesses are
// checked: a wavefront's widest access.
const redZone = 64 * 16

// spread lays out a module's plans for the device: without reuse of memory if
// accesses are checked.
func (d device) spread(m *plan.Module) (*plan.Module, error) {
	if d.sanitize == 0 {
		return m, nil
	}
	return m.Spread(redZone)
}

// emuLoader finds the disassembler, and the cache of what it said before.
func emuLoader(e *env, f *flags) (emu.Loader, error) {
	tools, err := llvm.Find(e.ctx, llvm.FindOptions{Dir: f.text("llvm")})
	if err != nil {
		return emu.Loader{}, &codedError{exitFailed, err, "make toolchain"}
	}
	if tools.ObjDump == "" {
		return emu.Loader{}, &codedError{exitFailed, fmt.Errorf("the LLVM of %s has no llvm-objdump", tools.Source), "make toolchain"}
	}
	dir, err := cacheDir(f)
	if err != nil {
		return emu.Loader{}, err
	}
	return emu.Loader{ObjDump: tools.ObjDump, Version: tools.Version, Store: codegen.OpenCache(dir)}, nil
}

// describe names the device with what it is made of.
func (d device) describe() string {
	what := "reference evaluator"
	switch {
	case d.chip != "":
		what = "emulated"
	case d.name == "host":
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
func (d device) tell(p *progress) {
	watched := ""
	if d.sanitize != 0 {
		watched = ", with the sanitizers " + d.sanitize.String()
	}
	p.note("device: %s%s: %s", d.describe(), watched, d.why)
}

// sanitized writes what sanitizers reported, and makes it a check that did not hold.
func sanitized(e *env, err error) error {
	var found *emu.SanitizerError
	if !errors.As(err, &found) {
		return err
	}
	for _, r := range found.Reports {
		fmt.Fprintf(e.stderr, "%s\n", r)
	}
	n := len(found.Reports) + found.Omitted
	where := ""
	var l *rt.LaunchError
	if errors.As(err, &l) {
		where = fmt.Sprintf("launch %d, kernel %s: ", l.Index, l.Symbol)
	}
	return &codedError{exitCheck, fmt.Errorf("%s%s", where, count(int64(n), "sanitizer report")), ""}
}
