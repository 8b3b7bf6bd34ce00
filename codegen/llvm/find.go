package llvm

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
)

const (
	// minMajor is the oldest LLVM that reads the IR we print.
	minMajor = 19
	// gfx950Major is the oldest LLVM that knows gfx950; older ones are taken
	// only where there is no better.
	gfx950Major = 20
	// newestMajor bounds the names with a version that are looked for.
	newestMajor = 29
)

// FindOptions says where to look. The zero value looks in the usual places.
type FindOptions struct {
	// Dir is a folder with the tools, or one whose folder bin has them. If it is
	// given, no other place is looked at.
	Dir string
	// ROCm is where ROCm lives; /opt/rocm if empty.
	ROCm string
	// Memo, if set, keeps what the programs say: they are not asked again while they are
	// the same files.
	Memo Memo
}

// Find returns an LLVM, looking at these places in order:
//
//   - FindOptions.Dir alone, if given;
//   - .toolchain/llvm in the working directory or, inside a Go module, in a
//     folder above it up to the module's root;
//   - .toolchain/llvm beside the running executable or beside its folder;
//   - PATH, then PATH with names that carry a version (llc-22);
//   - ROCm's folder.
//
// The first that knows gfx950 wins, else the first LLVM 19 or later; it then is
// an error of a job to ask it for gfx950. If there is none, the error is a
// [NotFoundError].
func Find(ctx context.Context, opts FindOptions) (*Toolchain, error) {
	var tried []Attempt
	var fallback *Toolchain
	fallbackAt := 0
	for _, p := range places(opts) {
		tc, err := p.probe(ctx)
		if err == nil {
			tc.memo = opts.Memo
			err = tc.fill(ctx)
		}
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		if err != nil {
			if !errors.Is(err, errNothingThere) || opts.Dir != "" {
				tried = append(tried, Attempt{p.where, err.Error()})
			}
			continue
		}
		modern, err := tc.KnowsCPU(ctx, AMDGPU, "gfx950")
		if err == nil && modern || opts.Dir != "" {
			tc.Tried = tried
			return tc, nil
		}
		problem := fmt.Sprintf("LLVM %s does not know gfx950", tc.Version)
		if err != nil {
			problem = fmt.Sprintf("LLVM %s: %v", tc.Version, err)
		}
		tried = append(tried, Attempt{p.where, problem})
		if fallback == nil {
			fallback, fallbackAt = tc, len(tried)-1
		}
	}
	if fallback == nil {
		return nil, &NotFoundError{tried}
	}
	fallback.Tried = append(tried[:fallbackAt:fallbackAt], tried[fallbackAt+1:]...)
	return fallback, nil
}

// place is one place to look at: a folder, or PATH with a suffix to the names.
type place struct {
	where  string
	dir    string
	suffix string // of names in PATH: "" or "-22"
}

// errNothingThere is the answer of a place that has no tools at all, which is
// not worth a line in a report.
var errNothingThere = errors.New("no LLVM tools")

func places(opts FindOptions) []place {
	if opts.Dir != "" {
		return []place{{where: opts.Dir, dir: opts.Dir}}
	}
	var ps []place
	seen := map[string]bool{}
	local := func(root, of string) {
		dir := filepath.Join(root, ".toolchain", "llvm")
		if !seen[dir] {
			seen[dir] = true
			ps = append(ps, place{where: ".toolchain/llvm of " + of, dir: dir})
		}
	}
	if cwd, err := os.Getwd(); err == nil {
		local(cwd, "the working directory")
		if root, ok := moduleRoot(cwd); ok {
			for dir := cwd; dir != root; {
				dir = filepath.Dir(dir)
				local(dir, "the module")
			}
		}
	}
	if exe, err := os.Executable(); err == nil {
		dir := filepath.Dir(exe)
		local(dir, "the executable's folder")
		local(filepath.Dir(dir), "the executable's parent folder")
	}
	ps = append(ps, place{where: "PATH"})
	for n := newestMajor; n >= minMajor; n-- {
		suffix := "-" + strconv.Itoa(n)
		ps = append(ps, place{where: "PATH (llc" + suffix + ")", suffix: suffix})
	}
	rocm := opts.ROCm
	if rocm == "" {
		rocm = filepath.FromSlash("/opt/rocm")
	}
	return append(ps, place{where: "ROCm", dir: filepath.Join(rocm, "llvm")})
}

// moduleRoot returns the nearest folder at or above dir that holds a go.mod.
// Outside a module nothing above the working directory is looked at: those
// folders may be anybody's.
func moduleRoot(dir string) (string, bool) {
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir, true
		}
		up := filepath.Dir(dir)
		if up == dir {
			return "", false
		}
		dir = up
	}
}

// probe returns the tools of a place, without having run any.
func (p place) probe(ctx context.Context) (*Toolchain, error) {
	tc := &Toolchain{Source: p.where}
	var st *stamp
	look := func(name string) string {
		path, err := exec.LookPath(name + p.suffix)
		if err != nil { // also a relative folder in PATH, which os/exec refuses
			return ""
		}
		if path, err = filepath.Abs(path); err != nil {
			return ""
		}
		return path
	}
	if p.dir != "" {
		dir, err := filepath.Abs(p.dir)
		if err != nil {
			return nil, err
		}
		if st, err = readStamp(dir); err != nil {
			return nil, err
		}
		tc.Loader = st.loaderCommand(dir)
		if st != nil {
			tc.Source += " (" + st.source + ")"
			if st.libllvm != "" {
				tc.LibLLVM = filepath.Join(dir, st.libllvm)
			}
		}
		if bin := filepath.Join(dir, "bin"); executable(filepath.Join(bin, "llc")) {
			dir = bin
		}
		look = func(name string) string { return inDir(dir, name) }
	}
	tc.LLC = look("llc")
	if tc.LLC == "" {
		return nil, errNothingThere
	}
	tc.Dir = filepath.Dir(tc.LLC)
	real, err := filepath.EvalSymlinks(tc.LLC)
	if err != nil {
		return nil, err
	}
	// A package may put only some of its tools in PATH.
	find := func(name string) string {
		if path := look(name); path != "" {
			return path
		}
		return inDir(filepath.Dir(real), name)
	}
	tc.Opt, tc.LLD, tc.ObjDump = find("opt"), find("ld.lld"), find("llvm-objdump")
	var missing []string
	for _, t := range []struct{ name, path string }{{"opt", tc.Opt}, {"ld.lld", tc.LLD}} {
		if t.path == "" {
			missing = append(missing, t.name+p.suffix)
		}
	}
	if missing != nil {
		return nil, fmt.Errorf("llc%s without %s", p.suffix, strings.Join(missing, " and "))
	}
	return tc, nil
}

// fill finds the library, and runs the tools to learn their version.
func (tc *Toolchain) fill(ctx context.Context) error {
	if tc.LibLLVM == "" {
		tc.LibLLVM, tc.LibLLVMWhy = libraryOf(tc.LLC)
	}
	tools := []struct{ name, path string }{{"llc", tc.LLC}, {"opt", tc.Opt}, {"ld.lld", tc.LLD}}
	versions := make([]version, len(tools))
	errs := make([]error, len(tools))
	var wg sync.WaitGroup
	for i, t := range tools {
		wg.Go(func() {
			text, err := tc.ask(ctx, t.path, "--version")
			if err == nil {
				versions[i], err = parseVersion(text)
			}
			if err != nil {
				errs[i] = fmt.Errorf("%s: %w", t.name, err)
			}
		})
	}
	wg.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	llc := versions[0]
	if llc.major < minMajor {
		return fmt.Errorf("LLVM %s is too old: %d is the oldest that works, %d the oldest with gfx950", llc.full, minMajor, gfx950Major)
	}
	for i, v := range versions {
		if v.full != llc.full {
			return fmt.Errorf("llc is version %s, %s is version %s", llc.full, tools[i].name, v.full)
		}
	}
	tc.Version, tc.Major, tc.Vendor = llc.full, llc.major, llc.vendor
	tc.BuildID = buildID(tc.LibLLVM, tc.LLC)
	return nil
}

// version is what a tool prints about itself.
type version struct {
	vendor string // "Debian"
	full   string // "22.1.8"
	major  int
}

var versionLine = regexp.MustCompile(`(?m)^[ \t]*(?:(\S.*?)[ \t]+)?(?:LLVM version|LLD) ((\d{1,4})\.\d[0-9A-Za-z.+-]*)`)

// parseVersion finds the version in the output of --version.
func parseVersion(text string) (version, error) {
	m := versionLine.FindStringSubmatch(text)
	if m == nil {
		first, _, _ := strings.Cut(strings.TrimSpace(text), "\n")
		return version{}, fmt.Errorf("--version names no LLVM version: %q", first)
	}
	major, err := strconv.Atoi(m[3])
	if err != nil {
		return version{}, err
	}
	return version{m[1], m[2], major}, nil
}

// inDir returns the path of a program in a folder, or "".
func inDir(dir, name string) string {
	if path := filepath.Join(dir, name); executable(path) {
		return path
	}
	return ""
}

func executable(path string) bool {
	st, err := os.Stat(path)
	return err == nil && st.Mode().IsRegular() && st.Mode()&0o111 != 0
}
