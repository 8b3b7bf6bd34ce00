package cli

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/kiln-project/kiln/codegen"
	"github.com/kiln-project/kiln/codegen/bundle"
	"github.com/kiln-project/kiln/codegen/object"
	"github.com/kiln-project/kiln/codegen/target"
	"github.com/kiln-project/kiln/runtime/cuda"
	rt "github.com/kiln-project/kiln/runtime/device"
	"github.com/kiln-project/kiln/runtime/hip"
)

// gpuKinds are the vendors' devices, in the order in which auto looks for one.
var gpuKinds = []string{"hip", "cuda"}

// gpuDevice is a GPU that plans run on.
type gpuDevice struct {
	kind   string // of gpuKinds
	index  int
	info   cuda.Info // hip.Info is the same
	graphs string    // how launches reach it, for people
	eager  string    // why it replays no graphs, if it does not
	notes  []string  // what is to be known of it, one line each

	reopen func() (*cuda.PlanDevice, error) // hip.PlanDevice is the same
	opened *cuda.PlanDevice                 // since it was chosen; nil once it is taken
}

// parseGPU reads hip[:N] and cuda[:N].
func parseGPU(name string) (kind string, index int, ok bool) {
	kind, number, found := strings.Cut(name, ":")
	if !slices.Contains(gpuKinds, kind) {
		return "", 0, false
	}
	if !found {
		return kind, 0, true
	}
	n, err := strconv.Atoi(number)
	return kind, n, err == nil && n >= 0 && strconv.Itoa(n) == number
}

// graphOptions reads --graph, --graph-build, --overlap and --watchdog.
func graphOptions(f *flags) (cuda.PlanOptions, error) {
	var o cuda.PlanOptions
	var err error
	if o.Graph, err = cuda.ParseGraph(f.text("graph")); err != nil {
		return o, usagef("--graph auto", "%s %w", f.origins("graph"), err)
	}
	if o.Build, err = cuda.ParseBuild(f.text("graph-build")); err != nil {
		return o, usagef("--graph-build explicit", "%s %w", f.origins("graph-build"), err)
	}
	if o.Overlap, err = cuda.ParseOverlap(f.text("overlap")); err != nil {
		return o, usagef("--overlap auto", "%s %w", f.origins("overlap"), err)
	}
	if text := f.text("watchdog"); text != "" {
		if o.Watchdog, err = time.ParseDuration(text); err != nil || o.Watchdog <= 0 {
			return o, usagef("--watchdog 30s", "%s %q: want a time such as 30s or 2m", f.origins("watchdog"), text)
		}
	}
	return o, nil
}

// stuck is the error of a step that the watchdog ended, with the command that finds
// the kernel; without graphs the error has it. What could not be closed on the way out
// is no news.
func stuck(f *flags, err error) error {
	if !errors.Is(err, cuda.ErrStuck) {
		return err
	}
	first, _, _ := strings.Cut(err.Error(), "\n")
	if l := (*rt.LaunchError)(nil); errors.As(err, &l) {
		return errors.New(first)
	}
	return &codedError{exitFailed, errors.New(first), f.commandWith("graph", "off")}
}

// openGPU opens a GPU. absent says that there is none, or no library of the vendor's
// where nobody named one.
func openGPU(e *env, f *flags, kind string, index int) (g *gpuDevice, absent bool, err error) {
	o, err := graphOptions(f)
	if err != nil {
		return nil, false, err
	}
	overlap := o.Overlap
	if kind == "hip" {
		o.Overlap = cuda.PlanOptions{}.Overlap
	}
	g = &gpuDevice{kind: kind, index: index}
	named := f.text(kind + "-lib")
	if kind == "hip" {
		err = g.openHIP(e, f, hip.Options{Library: named, Root: e.variable("ROCM_PATH")}, o)
	} else {
		dir, dirErr := cacheDir(f)
		if dirErr != nil {
			return nil, false, dirErr
		}
		o.Code = codegen.OpenCache(dir)
		err = g.openCUDA(cuda.Options{Library: named}, o)
	}
	if err != nil {
		var none *cuda.NotFoundError
		return nil, errors.Is(err, cuda.ErrNoDevice) || named == "" && errors.As(err, &none), err
	}
	if kind == "hip" && overlap == "on" { // known once there is one
		err := refuse(fmt.Errorf("%s on: ROCm has no launches that overlap", f.origins("overlap")), f.commandWith("overlap", "auto"))
		return nil, false, errors.Join(err, g.close())
	}
	g.info = g.opened.Info()
	e.debugf("device %s:%d: %s, %s, by %s, %s of %s free", kind, index, g.info.Name, g.info.Target, g.opened.Library().Path, binarySize(int64(g.info.MemoryFree)), binarySize(int64(g.info.Memory)))
	g.notes = append(g.notes, g.info.Problems...)
	g.eager = cmp.Or(g.eager, "--graph off")
	g.graphs = "no graphs"
	if o := g.opened.Options(); g.opened.Graphs() {
		g.graphs = "graphs"
		if o.Build == "capture" {
			g.graphs = "captured graphs"
		}
	}
	return g, false, nil
}

func (g *gpuDevice) openCUDA(from cuda.Options, o cuda.PlanOptions) error {
	lib, err := cuda.Open(from)
	if err != nil {
		return err
	}
	g.reopen = func() (*cuda.PlanDevice, error) {
		d, err := lib.OpenDevice(g.index)
		if err != nil {
			return nil, err
		}
		return cuda.OpenForPlans(d, o)
	}
	g.opened, err = g.reopen()
	return err
}

// rocmRelease is the version of a HIP library and the release of ROCm that it and the
// release file of the installation say. root is ROCM_PATH; file is "" without one.
func rocmRelease(lib *hip.Library, root string) (version int, release hip.Release, file, note string, err error) {
	if version, err = lib.Version(); err != nil {
		return version, release, "", "", err
	}
	file = filepath.Join(cmp.Or(root, "/opt/rocm"), ".info", "version")
	if _, err := os.Stat(file); errors.Is(err, fs.ErrNotExist) {
		file = ""
	}
	release, note, err = hip.ReleaseOf(version, file)
	return version, release, file, note, err
}

// kfdTopology is where Linux lists the chips of AMD that are there.
func kfdTopology() fs.FS { return os.DirFS("/sys/class/kfd/kfd/topology") }

func (g *gpuDevice) openHIP(e *env, f *flags, from hip.Options, o hip.PlanOptions) error {
	lib, err := hip.Open(from)
	if err != nil {
		return err
	}
	_, release, _, note, err := rocmRelease(lib, from.Root)
	if err != nil {
		return err
	}
	if note != "" {
		g.notes = append(g.notes, note)
	}
	warning, err := hip.OverrideWarning(e.variable("HSA_OVERRIDE_GFX_VERSION"), kfdTopology())
	if err != nil {
		return err
	}
	if warning != "" {
		g.notes = append(g.notes, warning)
	}
	var overrides []string
	if f.given("graph-build") {
		overrides = append(overrides, "--graph-build "+string(o.Build))
	}
	d, err := lib.OpenDevice(g.index)
	if err != nil {
		return err
	}
	chip, _, _ := strings.Cut(d.Info().Target, ":")
	a, err := hip.Assess(release, chip, overrides...)
	if err != nil {
		return errors.Join(err, d.Close())
	}
	if o.Graph != "off" {
		g.eager = strings.Join(a.Reasons(hip.GraphsOff), "; ")
	}
	g.notes = append(g.notes, a.Lines()...)
	g.reopen = func() (*cuda.PlanDevice, error) {
		d, err := lib.OpenDevice(g.index)
		if err != nil {
			return nil, err
		}
		return hip.OpenForPlans(d, a, o)
	}
	g.opened, err = hip.OpenForPlans(d, a, o)
	return err
}

// open takes the device that was opened when it was chosen, or opens it again.
func (g *gpuDevice) open() (rt.Device, error) {
	if d := g.opened; d != nil {
		g.opened = nil
		return d, nil
	}
	return g.reopen()
}

// freeMemory is how many bytes of the device that was chosen are free; nil where
// that is not known, as of all whose memory is this process's.
func (d device) freeMemory() (*int64, error) {
	if d.gpu == nil || d.gpu.opened == nil {
		return nil, nil
	}
	var open rt.Device = d.gpu.opened
	m, ok := open.(rt.MemoryReporter)
	if !ok {
		return nil, nil
	}
	free, _, err := m.Memory()
	return ptrTo(int64(free)), err
}

// close closes the device unless it was taken.
func (g *gpuDevice) close() error {
	if g.opened == nil {
		return nil
	}
	d := g.opened
	g.opened = nil
	return d.Close()
}

// runs are those of some targets that the GPU executes, the best first.
func (g *gpuDevice) runs(targets []string) ([]string, error) {
	if g.kind == "cuda" {
		return cuda.Runs(g.info.Target, targets), nil
	}
	id, err := object.ParseDevice(g.info.Target)
	if err != nil {
		return nil, err
	}
	var runs []string
	for _, t := range targets {
		if code, err := object.ParseTargetID(t); err == nil && code.RunsOn(id) {
			runs = append(runs, t)
		}
	}
	return runs, nil
}

// target is the best row of the target table that the GPU executes.
func (g *gpuDevice) target() (*target.Target, error) {
	var rows []string
	for _, t := range target.Table {
		rows = append(rows, t.Name)
	}
	runs, err := g.runs(rows)
	if err != nil {
		return nil, err
	}
	if len(runs) == 0 {
		return nil, refuse(fmt.Errorf("device %s:%d (%s) is %s, for which there is no target: have %s", g.kind, g.index, g.info.Name, g.info.Target, strings.Join(rows, ", ")), "--device host")
	}
	return target.Lookup(runs[0])
}

// device is the GPU as a device of the command line.
func (g *gpuDevice) device(why string) device {
	return device{name: fmt.Sprintf("%s:%d", g.kind, g.index), gpu: g, why: why}
}

// chooseAuto takes the first GPU that can run what is asked for, else the host. What
// it does not take it says.
func chooseAuto(e *env, f *flags) (device, error) {
	var targets []string // of the bundle
	if path := cmp.Or(f.bundle, f.text("bundle")); path != "" {
		b, err := bundle.ReadManifest(path)
		switch {
		case err != nil: // who opens the bundle says so
		case !slices.ContainsFunc(b.Manifest.Targets, isGPUTarget):
		default:
			targets = b.Manifest.Targets
		}
		if targets == nil { // no code for a GPU
			return device{name: "host", why: "given by " + cmp.Or(f.origins("bundle"), "the bundle")}, nil
		}
	}
	var not []string
	for _, kind := range gpuKinds {
		g, absent, err := openGPU(e, f, kind, 0)
		var usage *codedError
		if err != nil {
			e.debugf("device %s: %v", kind, err)
		}
		switch {
		case errors.As(err, &usage):
			return device{}, err
		case absent && errors.Is(err, cuda.ErrNoDevice):
			not = append(not, kind+": no GPU")
			continue
		case absent:
			not = append(not, kind+": no library")
			continue
		case err != nil && f.text(kind+"-lib") != "": // what was named must work
			return device{}, fmt.Errorf("%s: %w", f.origins(kind+"-lib"), err)
		case err != nil:
			not = append(not, fmt.Sprintf("%s: %v", kind, err))
			continue
		}
		why := g.unfit(targets)
		if why == "" {
			return g.device("the first GPU that was found"), nil
		}
		e.debugf("device %s: %s", kind, why)
		not = append(not, kind+": "+why)
		if err := g.close(); err != nil {
			return device{}, err
		}
	}
	return device{name: "host", why: "no GPU (" + strings.Join(not, "; ") + ")"}, nil
}

// unfit says why the GPU cannot run a bundle of some targets, or of none in
// particular; "" if it can.
func (g *gpuDevice) unfit(targets []string) string {
	if _, err := g.target(); err != nil {
		return err.Error()
	}
	if targets == nil {
		return ""
	}
	if runs, err := g.runs(targets); err != nil || len(runs) == 0 {
		return fmt.Sprintf("%s runs none of the bundle's targets %s", g.info.Target, strings.Join(targets, ", "))
	}
	return ""
}

func isGPUTarget(name string) bool {
	t, err := target.Lookup(name)
	return err == nil && t.GPU()
}
