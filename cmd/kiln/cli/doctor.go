package cli

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"

	"github.com/kiln-project/kiln/codegen/llvm"
	"github.com/kiln-project/kiln/runtime/host"
)

const doctorHelp = `Says what kiln finds on this machine: the processor, memory, GPU drivers with their
devices and the faults that are known of them, the environment variables that
matter, the cache with what start-up checks found, and LLVM, with what it can
compile for, how it runs and why.
The exit code is 0 also when something is missing; the report says what to do.`

// doctorReport is the whole of kiln doctor --json.
type doctorReport struct {
	Kiln   string       `json:"kiln"`
	Go     string       `json:"go"`
	OS     string       `json:"os"`
	Arch   string       `json:"arch"`
	CPU    doctorCPU    `json:"cpu"`
	Memory doctorMemory `json:"memory"`
	// Drivers are those of AMD and NVIDIA, in the order in which devices are chosen.
	Drivers   []doctorDriver   `json:"drivers"`
	Variables []doctorVariable `json:"variables"`
	Cache     doctorCache      `json:"cache"`
	LLVM      doctorLLVM       `json:"llvm"`
}

type doctorCPU struct {
	Cores   int    `json:"cores"`
	V2      bool   `json:"x86-64-v2"`
	V3      bool   `json:"x86-64-v3"`
	Problem string `json:"problem,omitempty"` // why device host does not run
}

// doctorMemory is in bytes; 0 is unknown, or no limit.
type doctorMemory struct {
	Total int64 `json:"total_bytes"`
	Limit int64 `json:"limit_bytes"` // of the control group, if below the total
}

type doctorLLVM struct {
	Found   bool   `json:"found"`
	Version string `json:"version,omitempty"`
	Vendor  string `json:"vendor,omitempty"`
	ID      string `json:"id,omitempty"` // the exact build
	Source  string `json:"source,omitempty"`
	Dir     string `json:"dir,omitempty"`
	Opt     string `json:"opt,omitempty"`
	LLC     string `json:"llc,omitempty"`
	LLD     string `json:"ld.lld,omitempty"`
	ObjDump string `json:"llvm-objdump,omitempty"`

	Library        string   `json:"library,omitempty"`
	LibraryProblem string   `json:"library_problem,omitempty"`
	Loader         []string `json:"loader,omitempty"` // command line that starts a worker
	Mode           string   `json:"mode,omitempty"`   // worker or programs
	Why            string   `json:"why,omitempty"`

	GPUs  []doctorGPU    `json:"gpus,omitempty"`
	Tried []llvm.Attempt `json:"tried,omitempty"` // places passed over
	// Problem says what does not work, Remedy what to do about it.
	Problem string `json:"problem,omitempty"`
	Remedy  string `json:"remedy,omitempty"`
}

type doctorGPU struct {
	CPU   string `json:"cpu"`
	Known bool   `json:"known"`
}

// doctorGPUs are the GPUs whose support is reported.
var doctorGPUs = []string{"gfx942", "gfx950"}

func runDoctor(e *env, f *flags, _ []string) error {
	r := doctorReport{Kiln: Version, Go: runtime.Version(), OS: runtime.GOOS, Arch: runtime.GOARCH}
	r.CPU = examineCPU()
	r.Memory = examineMemory(os.DirFS("/"))
	r.Drivers = []doctorDriver{examineHIP(e, f), examineCUDA(f)}
	r.Variables = examineVariables(e.getenv)
	r.Cache = examineCache(f)
	var err error
	if r.LLVM, err = examineLLVM(e, f.text("llvm")); err != nil {
		return err
	}
	if f.boolean("json") {
		return printJSON(e.stdout, r)
	}
	return r.print(e.stdout)
}

func examineCPU() doctorCPU {
	c := doctorCPU{Cores: runtime.NumCPU()}
	target, err := host.Target()
	if err != nil {
		c.Problem = err.Error()
	}
	c.V3 = target == "x86-64-v3"
	c.V2 = c.V3 || target == "x86-64-v2"
	return c
}

// examineMemory reads what Linux tells; elsewhere nothing is known.
func examineMemory(root fs.FS) doctorMemory {
	var m doctorMemory
	if text, err := fs.ReadFile(root, "proc/meminfo"); err == nil {
		for line := range strings.Lines(string(text)) {
			var kib int64
			if n, _ := fmt.Sscanf(line, "MemTotal: %d kB", &kib); n == 1 {
				m.Total = kib * 1024
			}
		}
	}
	for _, file := range []string{"sys/fs/cgroup/memory.max", "sys/fs/cgroup/memory/memory.limit_in_bytes"} {
		text, err := fs.ReadFile(root, file)
		if err != nil {
			continue
		}
		// "max", or a number beyond the total, is no limit.
		if n, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64); err == nil && n > 0 && n < m.Total {
			m.Limit = n
		}
	}
	return m
}

// examineLLVM reports on the LLVM in a folder, or on the one that is found. The
// error is for an interruption only: all else is part of the report.
func examineLLVM(e *env, dir string) (doctorLLVM, error) {
	tc, err := llvm.Find(e.ctx, llvm.FindOptions{Dir: dir})
	if e.ctx.Err() != nil {
		return doctorLLVM{}, e.ctx.Err()
	}
	if err != nil {
		r := doctorLLVM{Problem: err.Error(), Remedy: llvm.Remedy}
		var none *llvm.NotFoundError
		if errors.As(err, &none) {
			r.Problem, r.Tried = "no usable LLVM found", none.Tried
		}
		return r, nil
	}
	r := doctorLLVM{
		Found: true, Version: tc.Version, Vendor: tc.Vendor, ID: tc.ID(), Source: tc.Source, Dir: tc.Dir,
		Opt: tc.Opt, LLC: tc.LLC, LLD: tc.LLD, ObjDump: tc.ObjDump,
		Library: tc.LibLLVM, LibraryProblem: tc.LibLLVMWhy, Loader: tc.Loader, Tried: tc.Tried,
	}
	var problems []string
	for _, cpu := range doctorGPUs {
		err := tc.CheckTarget(e.ctx, llvm.AMDGPU, cpu, "")
		r.GPUs = append(r.GPUs, doctorGPU{cpu, err == nil})
		if err != nil {
			problems = append(problems, err.Error())
			r.Remedy = llvm.Remedy
		}
	}
	c, err := llvm.New(e.ctx, tc, llvm.Options{Workers: 1})
	if e.ctx.Err() != nil {
		return doctorLLVM{}, e.ctx.Err()
	}
	if err != nil {
		problems = append(problems, err.Error())
	} else {
		mode, why := c.Mode()
		r.Mode, r.Why = string(mode), why
		if err := c.Close(); err != nil {
			problems = append(problems, err.Error())
		}
	}
	r.Problem = strings.Join(problems, "; ")
	return r, nil
}

// print writes the report as text: a name and a value on each line.
func (r doctorReport) print(w io.Writer) error {
	var b strings.Builder
	line := func(name, format string, args ...any) {
		fmt.Fprintf(&b, "%-10s %s\n", name, fmt.Sprintf(format, args...))
	}
	line("kiln", "%s", r.Kiln)
	line("go", "%s %s/%s", r.Go, r.OS, r.Arch)
	switch {
	case r.CPU.V3:
		line("cpu", "%d cores, x86-64-v3", r.CPU.Cores)
	case r.CPU.V2:
		line("cpu", "%d cores, x86-64-v2 (not v3)", r.CPU.Cores)
	default:
		line("cpu", "%d cores", r.CPU.Cores)
	}
	if r.CPU.Problem != "" {
		line("", "%s", r.CPU.Problem)
	}
	switch {
	case r.Memory.Total == 0:
		line("memory", "unknown")
	case r.Memory.Limit > 0:
		line("memory", "%d MB, limited to %d MB", r.Memory.Total/1_000_000, r.Memory.Limit/1_000_000)
	default:
		line("memory", "%d MB", r.Memory.Total/1_000_000)
	}
	for _, d := range r.Drivers {
		d.print(line)
	}
	for i, v := range r.Variables {
		name := ""
		if i == 0 {
			name = "variables"
		}
		line(name, "%s (%s)", printable(v.Name+"="+v.Value), v.ReadBy)
	}
	r.Cache.print(line)
	l := r.LLVM
	if l.Found {
		vendor := ""
		if l.Vendor != "" {
			vendor = " (" + l.Vendor + ")"
		}
		line("llvm", "%s%s", l.Version, vendor)
		line("  found", "%s", l.Source)
		line("  programs", "%s", l.programs())
		switch {
		case l.Library == "":
			line("  library", "none: %s", l.LibraryProblem)
		case l.Loader != nil:
			line("  library", "%s, under %s", l.Library, l.Loader[0])
		default:
			line("  library", "%s", l.Library)
		}
		if l.Mode != "" {
			line("  mode", "%s: %s", l.Mode, l.Why)
		}
		for _, g := range l.GPUs {
			word := "no"
			if g.Known {
				word = "yes"
			}
			line("  "+g.CPU, "%s", word)
		}
	} else {
		line("llvm", "not found")
	}
	for _, a := range l.Tried {
		line("  not", "%s: %s", a.Where, a.Problem)
	}
	if l.Problem != "" {
		line("  problem", "%s", l.Problem)
	}
	if l.Remedy != "" {
		line("  to do", "%s; --device ref works without", l.Remedy)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// programs lists the tools by name where they are all in one folder under their
// usual names, and by path otherwise.
func (l doctorLLVM) programs() string {
	names := []string{"opt", "llc", "ld.lld", "llvm-objdump"}
	var paths []string
	plain := true
	for i, p := range []string{l.Opt, l.LLC, l.LLD, l.ObjDump} {
		if p == "" {
			plain = false
			paths = append(paths, "no "+names[i])
			continue
		}
		plain = plain && p == filepath.Join(l.Dir, names[i])
		paths = append(paths, p)
	}
	if plain {
		return l.Dir + ": " + strings.Join(names, " ")
	}
	return strings.Join(paths, ", ")
}
