package cli

import (
	"cmp"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"

	"github.com/kiln-project/kiln/codegen"
	"github.com/kiln-project/kiln/codegen/bundle"
	"github.com/kiln-project/kiln/codegen/llvm"
	"github.com/kiln-project/kiln/codegen/object"
	"github.com/kiln-project/kiln/codegen/plan"
	"github.com/kiln-project/kiln/codegen/target"
	rt "github.com/kiln-project/kiln/runtime/device"
	"github.com/kiln-project/kiln/runtime/emu"
	"github.com/kiln-project/kiln/runtime/host"
)

// devices lists what --device takes besides auto, hip[:N] and cuda[:N].
var devices = []string{"host", "emu:gfx942", "emu:gfx950", "ref"}

// defaultChip is the one that emu alone stands for.
const defaultChip = "gfx950"

// device is what computes, and why that.
type device struct {
	name     string     // as --device takes it: hip:N, cuda:N, host, emu:CHIP, ref
	chip     string     // of emu; else ""
	gpu      *gpuDevice // of hip and cuda
	why      string
	told     bool          // its lines are written
	sanitize emu.Checks    // of emu
	counters *countersFlag // of emu; nil: none
}

// parseDevice reads a value of --device. A GPU is opened: one that is not there is
// an error, and no other device takes its place.
func parseDevice(e *env, f *flags, name string) (device, error) {
	if kind, index, ok := parseGPU(name); ok {
		g, _, err := openGPU(e, f, kind, index)
		if err != nil {
			var coded *codedError
			if errors.As(err, &coded) {
				return device{}, err
			}
			return device{}, &codedError{exitFailed, fmt.Errorf("%s %s: %w", f.origins("device"), name, err), withoutGPU(f)}
		}
		return g.device("given by " + f.origins("device")), nil
	}
	if name == "auto" {
		return chooseAuto(e, f)
	}
	if name == "emu" {
		name += ":" + defaultChip
	}
	if !slices.Contains(devices, name) {
		return device{}, refuse(fmt.Errorf("%s %s: this version has auto, hip:N, cuda:N, %s", f.origins("device"), name, strings.Join(devices, ", ")), "--device host")
	}
	_, chip, _ := strings.Cut(name, ":")
	return device{name: name, chip: chip, why: "given by " + f.origins("device")}, nil
}

// withoutGPU is what to try where a GPU is not there: the host, if it can do the same.
func withoutGPU(f *flags) string {
	path := cmp.Or(f.bundle, f.text("bundle"))
	host := path == "" && f.command != "tune"
	if path != "" {
		if b, err := bundle.ReadManifest(path); err == nil {
			targets, err := device{}.runs(b.Manifest.Targets)
			host = err == nil && len(targets) > 0
		}
	}
	if host {
		return "--device host"
	}
	return "kiln doctor"
}

// chooseDevice reads --device, --bundle and what goes with a device. Without them, or
// with auto, it is the first GPU, or the host: never silently, and never another. Ref
// is right for checks and too slow for the rest, and what is emulated is no GPU.
func chooseDevice(e *env, f *flags) (device, error) {
	return e.deviceFirst(func() (device, error) { return deviceOf(e, f) })
}

func deviceOf(e *env, f *flags) (device, error) {
	name := f.text("device")
	if name == "ref" && f.text("bundle") != "" {
		if !f.fromEnv["device"] { // a flag wins over a variable
			return device{}, refuse(fmt.Errorf("--bundle runs on GPUs, host and emu, --device says %s", name), "leave --device out")
		}
		name = ""
	}
	d, err := parseDevice(e, f, cmp.Or(name, "auto"))
	if err == nil {
		err = errors.Join(d.watch(f), checkStartup(f, d))
	}
	if err != nil {
		return device{}, errors.Join(err, d.close())
	}
	return d, nil
}

// close closes a GPU that was chosen and is not in use.
func (d device) close() error {
	if d.gpu == nil {
		return nil
	}
	return d.gpu.close()
}

// watch reads --sanitize and --counters, and refuses flags that go with another
// device.
func (d *device) watch(f *flags) error {
	if _, err := graphOptions(f); err != nil { // a value that is none is wrong on every device
		return err
	}
	for _, name := range []string{"graph", "graph-build", "overlap"} {
		if f.given(name) && !f.fromEnv[name] && d.gpu == nil {
			return refuse(fmt.Errorf("--%s: device %s has no graphs", name, d.name), "--device cuda")
		}
	}
	if name := "watchdog"; f.given(name) && !f.fromEnv[name] && d.gpu == nil {
		return refuse(fmt.Errorf("--%s: device %s is no GPU", name, d.name), "--device cuda")
	}
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
	if d.gpu != nil {
		return d.gpu.target()
	}
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
	if d.gpu != nil {
		return d.gpu.runs(targets)
	}
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
	if d.gpu != nil {
		return d.gpu.open()
	}
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
	dir, err := cacheDir(f)
	if err != nil {
		return emu.Loader{}, err
	}
	cache := codegen.OpenCache(dir)
	tools, err := llvm.Find(e.ctx, llvm.FindOptions{Dir: f.text("llvm"), Memo: cache})
	if err != nil {
		return emu.Loader{}, &codedError{exitFailed, err, "make toolchain"}
	}
	if tools.ObjDump == "" {
		return emu.Loader{}, &codedError{exitFailed, fmt.Errorf("the LLVM of %s has no llvm-objdump", tools.Source), "make toolchain"}
	}
	return emu.Loader{ObjDump: tools.ObjDump, Version: tools.Version, Store: cache}, nil
}

// describe names the device with what it is made of.
func (d device) describe() string {
	if d.gpu != nil {
		return fmt.Sprintf("%s (%s, %s, %s)", d.name, d.gpu.info.Name, d.gpu.info.Target, d.gpu.graphs)
	}
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

// tell writes the lines on the device, before it starts to work.
func (d device) tell(p *progress) {
	if d.told {
		return
	}
	for _, line := range d.lines() {
		p.note("%s", line)
	}
}

// lines are one on the device, and what is to be known of a GPU.
func (d device) lines() []string {
	watched := ""
	if d.sanitize != 0 {
		watched = ", with the sanitizers " + d.sanitize.String()
	}
	lines := []string{fmt.Sprintf("device: %s%s: %s", d.describe(), watched, d.why)}
	if d.gpu != nil {
		for _, n := range d.gpu.notes {
			lines = append(lines, "device: "+n)
		}
	}
	return lines
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
