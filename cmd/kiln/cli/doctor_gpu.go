package cli

import (
	"errors"
	"fmt"
	"strings"

	"github.com/kiln-project/kiln/runtime/cuda"
	"github.com/kiln-project/kiln/runtime/hip"
)

// doctorDriver is the report on a vendor's driver library.
type doctorDriver struct {
	Kind    string         `json:"kind"` // of gpuKinds
	Library string         `json:"library,omitempty"`
	Version string         `json:"version,omitempty"` // what the library says
	Tried   []doctorTried  `json:"tried,omitempty"`   // libraries that did not load
	Devices []doctorDevice `json:"devices"`
	Notes   []string       `json:"notes,omitempty"`
	Problem string         `json:"problem,omitempty"`

	// Of hip: the release of ROCm, and the file that was read for it.
	Release     string `json:"release,omitempty"`
	ReleaseFile string `json:"release_file,omitempty"`
}

type doctorTried struct {
	Path    string `json:"path"`
	Problem string `json:"problem"`
}

// doctorDevice is the report on a GPU.
type doctorDevice struct {
	Device string   `json:"device"` // as --device takes it
	Name   string   `json:"name"`
	Target string   `json:"target"` // with features: gfx942:sramecc+:xnack-, sm_90
	Memory uint64   `json:"memory_bytes"`
	Free   uint64   `json:"memory_free_bytes"`
	Code   string   `json:"code,omitempty"`  // the best target of --target that it runs
	Notes  []string `json:"notes,omitempty"` // known faults, what the driver says
	// Newer: the release of ROCm is newer than every row of the table of faults.
	Newer   bool   `json:"newer_than_known_faults,omitempty"`
	Problem string `json:"problem,omitempty"`
}

func examineHIP(e *env, f *flags) doctorDriver {
	root := e.variable("ROCM_PATH")
	r := doctorDriver{Kind: "hip", Devices: []doctorDevice{}}
	lib, err := hip.Open(hip.Options{Library: f.text("hip-lib"), Root: root})
	if err != nil {
		r.failed(err)
		return r
	}
	r.Library = lib.Path
	version, release, file, note, err := rocmRelease(lib, root)
	if version != 0 {
		r.Version, r.Release, r.ReleaseFile = hip.VersionText(version), release.String(), file
	}
	if note != "" {
		r.Notes = append(r.Notes, note)
	}
	warning, werr := hip.OverrideWarning(e.variable("HSA_OVERRIDE_GFX_VERSION"), kfdTopology())
	if warning != "" {
		r.Notes = append(r.Notes, warning)
	}
	r.devices(lib, func(d *doctorDevice) {
		chip, _, _ := strings.Cut(d.Target, ":")
		a, err := hip.Assess(release, chip)
		if err != nil {
			d.Problem = err.Error()
		}
		d.Notes, d.Newer = append(d.Notes, a.Lines()...), a.Newer
	})
	for _, err := range []error{err, werr} { // what was found is said all the same
		if err != nil {
			r.Notes = append(r.Notes, oneLine(err))
		}
	}
	return r
}

func examineCUDA(f *flags) doctorDriver {
	r := doctorDriver{Kind: "cuda", Devices: []doctorDevice{}}
	lib, err := cuda.Open(cuda.Options{Library: f.text("cuda-lib")})
	if err != nil {
		r.failed(err)
		return r
	}
	r.Library = lib.Path
	version, err := lib.Version()
	if err != nil {
		r.Problem = err.Error()
		return r
	}
	r.Version = cuda.VersionText(version)
	r.devices(lib, func(*doctorDevice) {})
	return r
}

// failed records why there is no library.
func (r *doctorDriver) failed(err error) {
	var none *cuda.NotFoundError
	if !errors.As(err, &none) {
		r.Problem = oneLine(err)
		return
	}
	for _, a := range none.Tried {
		r.Tried = append(r.Tried, doctorTried{a.Path, a.Problem})
	}
}

// devices opens each device and lets assess add to its report.
func (r *doctorDriver) devices(lib *cuda.Library, assess func(*doctorDevice)) {
	n, err := lib.DeviceCount()
	if err != nil {
		r.Problem = oneLine(err)
		return
	}
	for i := range n {
		d := doctorDevice{Device: fmt.Sprintf("%s:%d", r.Kind, i)}
		if open, err := lib.OpenDevice(i); err != nil {
			d.Problem = oneLine(err)
		} else {
			info := open.Info()
			d.Name, d.Target, d.Memory, d.Free, d.Notes = info.Name, info.Target, info.Memory, info.MemoryFree, info.Problems
			t, err := (&gpuDevice{kind: r.Kind, index: i, info: info}).target()
			if err == nil {
				d.Code = t.Name
			}
			assess(&d)
			if err = errors.Join(err, open.Close()); err != nil {
				d.Problem = oneLine(err)
			}
		}
		r.Devices = append(r.Devices, d)
	}
}

// print writes the report by line, which takes a name and a value.
func (r doctorDriver) print(line func(name, format string, args ...any)) {
	switch {
	case r.Library == "":
		line(r.Kind, "not found")
	case r.Release != "":
		from := "its last part is not known: no release file"
		if r.ReleaseFile != "" {
			from = "by " + r.ReleaseFile
		}
		line(r.Kind, "%s (%s), ROCm %s (%s)", r.Version, r.Library, r.Release, from)
	default:
		line(r.Kind, "%s (%s)", r.Version, r.Library)
	}
	for i := 0; i < len(r.Tried); { // paths with one problem on one line
		paths := []string{r.Tried[i].Path}
		problem := r.Tried[i].Problem
		for i++; i < len(r.Tried) && r.Tried[i].Problem == problem; i++ {
			paths = append(paths, r.Tried[i].Path)
		}
		line("  not", "%s: %s", strings.Join(paths, ", "), problem)
	}
	for _, d := range r.Devices {
		d.print(line)
	}
	for _, n := range r.Notes {
		line("  note", "%s", n)
	}
	if r.Problem != "" {
		line("  problem", "%s", r.Problem)
	}
}

func (d doctorDevice) print(line func(name, format string, args ...any)) {
	if d.Target == "" {
		line("  "+d.Device, "cannot be opened")
	} else {
		code := "runs code for " + d.Code
		if d.Code == "" {
			code = "no code for it"
		}
		line("  "+d.Device, "%s, %s, %s, %s free; %s", d.Name, d.Target, binarySize(int64(d.Memory)), binarySize(int64(d.Free)), code)
	}
	for _, n := range d.Notes {
		line("  note", "%s", n)
	}
	if d.Problem != "" {
		line("  problem", "%s", d.Problem)
	}
}
