package llvm

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// fakeTools writes scripts that answer like LLVM tools of a version, which is all
// that finding asks of them. Names are file names; those that begin with ld.lld
// answer like lld.
func fakeTools(t testing.TB, dir, version string, names ...string) {
	t.Helper()
	if runtime.GOOS == "windows" {
		t.Skip("the fake tools are shell scripts")
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	cpus := "gfx90a gfx942"
	if version >= "20" {
		cpus += " gfx950"
	}
	for _, name := range names {
		prints := "Fake LLVM version " + version
		if strings.HasPrefix(name, "ld.lld") {
			prints = "Fake LLD " + version + " (compatible with GNU linkers)"
		}
		script := fmt.Sprintf(`#!/bin/sh
case "$*" in
*--version*) echo 'Something else first'; echo '  %s' ;;
*-mcpu=help*)
	exec >&2
	echo 'Available CPUs for this target:'
	echo
	for c in %s; do echo "  $c - Select the $c processor."; done
	echo
	echo 'Available features for this target:'
	echo
	echo '  xnack - Needs replay.'
	echo
	echo 'Use +feature to enable a feature, or -feature to disable it.'
	;;
*) exit 9 ;;
esac
`, prints, cpus)
		if err := os.WriteFile(filepath.Join(dir, name), []byte(script), 0o755); err != nil {
			t.Fatal(err)
		}
	}
}

// tools returns the names of a complete set with a suffix.
func tools(suffix string) []string {
	return []string{"llc" + suffix, "opt" + suffix, "ld.lld" + suffix, "llvm-objdump" + suffix}
}

func TestFind(t *testing.T) {
	type world struct{ root, cwd, path, rocm string }
	tests := []struct {
		name    string
		build   func(w *world, opts *FindOptions)
		source  string // of the result
		version string
		dir     string   // of its llc, below root
		tried   []string // parts of the other places' lines
		err     string   // instead
	}{
		{
			name:   "path",
			build:  func(w *world, _ *FindOptions) { fakeTools(t, w.path, "22.1.8", tools("")...) },
			source: "PATH", version: "22.1.8", dir: "path",
		}, {
			name: "versioned names beat an old llc",
			build: func(w *world, _ *FindOptions) {
				fakeTools(t, w.path, "14.0.6", tools("")...)
				fakeTools(t, w.path, "20.1.0", tools("-20")...)
				fakeTools(t, w.path, "21.1.0", tools("-21")...)
			},
			source: "PATH (llc-21)", version: "21.1.0", dir: "path",
			tried: []string{"PATH: LLVM 14.0.6 is too old: 19 is the oldest that works, 20 the oldest with gfx950"},
		}, {
			name: "19 is taken when there is no better",
			build: func(w *world, _ *FindOptions) {
				fakeTools(t, w.path, "19.1.7", tools("")...)
				fakeTools(t, w.path, "19.1.0", tools("-19")...)
			},
			source: "PATH", version: "19.1.7", dir: "path",
			tried: []string{"PATH (llc-19): LLVM 19.1.0 does not know gfx950"},
		}, {
			name: "ROCm beats 19",
			build: func(w *world, _ *FindOptions) {
				fakeTools(t, w.path, "19.1.7", tools("")...)
				fakeTools(t, filepath.Join(w.rocm, "llvm", "bin"), "20.0.0git", tools("")...)
			},
			source: "ROCm", version: "20.0.0git", dir: "rocm/llvm/bin",
			tried: []string{"PATH: LLVM 19.1.7 does not know gfx950"},
		}, {
			name: "incomplete and mixed sets",
			build: func(w *world, _ *FindOptions) {
				fakeTools(t, w.path, "22.1.8", "llc", "llc-21", "opt-21", "ld.lld-21", "llc-20")
				fakeTools(t, w.path, "21.1.0", "opt-21")
			},
			err: "llvm: no usable LLVM found; PATH: llc without opt and ld.lld; PATH (llc-21): llc is version 22.1.8, opt is version 21.1.0; PATH (llc-20): llc-20 without opt-20 and ld.lld-20; run make toolchain, or",
		}, {
			name: "the other tools may be beside the real llc only",
			build: func(w *world, _ *FindOptions) {
				fakeTools(t, filepath.Join(w.root, "keg", "bin"), "22.1.8", tools("")...)
				if err := os.Symlink(filepath.Join(w.root, "keg", "bin", "llc"), filepath.Join(w.path, "llc")); err != nil {
					t.Fatal(err)
				}
			},
			source: "PATH", version: "22.1.8", dir: "path",
		}, {
			name: "the working directory's toolchain beats PATH",
			build: func(w *world, _ *FindOptions) {
				fakeTools(t, w.path, "22.1.8", tools("")...)
				fakeTools(t, filepath.Join(w.cwd, ".toolchain", "llvm", "bin"), "21.1.0", tools("")...)
			},
			source: ".toolchain/llvm of the working directory", version: "21.1.0", dir: "up/cwd/.toolchain/llvm/bin",
		}, {
			name: "a module's toolchain is seen from below",
			build: func(w *world, _ *FindOptions) {
				up := filepath.Dir(w.cwd)
				fakeTools(t, filepath.Join(up, ".toolchain", "llvm", "bin"), "21.1.0", tools("")...)
				if err := os.WriteFile(filepath.Join(up, "go.mod"), []byte("module m\n"), 0o644); err != nil {
					t.Fatal(err)
				}
			},
			source: ".toolchain/llvm of the module", version: "21.1.0", dir: "up/.toolchain/llvm/bin",
		}, {
			name: "outside a module folders above are not looked at",
			build: func(w *world, _ *FindOptions) {
				fakeTools(t, filepath.Join(filepath.Dir(w.cwd), ".toolchain", "llvm", "bin"), "21.1.0", tools("")...)
			},
			err: "llvm: no usable LLVM found; run make toolchain",
		}, {
			name: "a given folder is the only one",
			build: func(w *world, opts *FindOptions) {
				fakeTools(t, w.path, "22.1.8", tools("")...)
				fakeTools(t, filepath.Join(w.root, "given", "bin"), "19.1.7", tools("")...)
				opts.Dir = filepath.Join(w.root, "given")
			},
			source: "given", version: "19.1.7", dir: "given/bin",
		}, {
			name: "a given folder of tools",
			build: func(w *world, opts *FindOptions) {
				fakeTools(t, filepath.Join(w.root, "given", "bin"), "22.1.8", tools("")...)
				opts.Dir = filepath.Join(w.root, "given", "bin")
			},
			source: "given/bin", version: "22.1.8", dir: "given/bin",
		}, {
			name: "a given folder without tools",
			build: func(w *world, opts *FindOptions) {
				fakeTools(t, w.path, "22.1.8", tools("")...)
				opts.Dir = filepath.Join(w.root, "given")
			},
			err: "given: no LLVM tools; run make toolchain",
		}, {
			name: "a broken stamp",
			build: func(w *world, _ *FindOptions) {
				dir := filepath.Join(w.cwd, ".toolchain", "llvm")
				fakeTools(t, filepath.Join(dir, "bin"), "21.1.0", tools("")...)
				if err := os.WriteFile(filepath.Join(dir, stampName), []byte("major=21\nshape=round\n"), 0o644); err != nil {
					t.Fatal(err)
				}
			},
			err: `get-llvm.stamp: line 2: unknown key "shape"`,
		}, {
			name: "a tool that does not answer",
			build: func(w *world, _ *FindOptions) {
				fakeTools(t, w.path, "22.1.8", "llc", "ld.lld")
				if err := os.WriteFile(filepath.Join(w.path, "opt"), []byte("#!/bin/sh\necho 'cannot open shared object' >&2\nexit 127\n"), 0o755); err != nil {
					t.Fatal(err)
				}
			},
			err: "opt ended with exit status 127: cannot open shared object",
		}, {
			name: "something else named llc",
			build: func(w *world, _ *FindOptions) {
				fakeTools(t, w.path, "22.1.8", "opt", "ld.lld")
				if err := os.WriteFile(filepath.Join(w.path, "llc"), []byte("#!/bin/sh\necho 'Lisp Compiler 3'\n"), 0o755); err != nil {
					t.Fatal(err)
				}
			},
			err: `llc: --version names no LLVM version: "Lisp Compiler 3"`,
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			root, err := filepath.EvalSymlinks(t.TempDir())
			if err != nil {
				t.Fatal(err)
			}
			w := &world{root: root, cwd: filepath.Join(root, "up", "cwd"), path: filepath.Join(root, "path"), rocm: filepath.Join(root, "rocm")}
			for _, d := range []string{w.cwd, w.path} {
				if err := os.MkdirAll(d, 0o755); err != nil {
					t.Fatal(err)
				}
			}
			t.Setenv("PATH", w.path)
			t.Chdir(w.cwd)
			opts := FindOptions{ROCm: w.rocm}
			tt.build(w, &opts)
			tc, err := Find(t.Context(), opts)
			if tt.err != "" {
				var none *NotFoundError
				if !errors.As(err, &none) || !strings.Contains(err.Error(), tt.err) {
					t.Errorf("error %v, want a NotFoundError with %q", err, tt.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if want := filepath.Join(root, filepath.FromSlash(tt.dir)); tc.Dir != want || filepath.Dir(tc.LLC) != want {
				t.Errorf("tools in %s, llc %s, want them in %s", tc.Dir, tc.LLC, want)
			}
			if !strings.HasSuffix(tc.Source, tt.source) || tc.Version != tt.version || tc.Vendor != "Fake" {
				t.Errorf("source %q, version %q, vendor %q, want %q, %q, Fake", tc.Source, tc.Version, tc.Vendor, tt.source, tt.version)
			}
			for _, tool := range []string{tc.Opt, tc.LLC, tc.LLD, tc.ObjDump} {
				if !filepath.IsAbs(tool) || !executable(tool) {
					t.Errorf("tool %q is not an absolute path of a program", tool)
				}
			}
			if tc.LibLLVM != "" || !strings.Contains(tc.LibLLVMWhy, "cannot tell which libLLVM") {
				t.Errorf("a script has libLLVM %q, why %q", tc.LibLLVM, tc.LibLLVMWhy)
			}
			if len(tc.Tried) != len(tt.tried) {
				t.Fatalf("tried %v, want %q", tc.Tried, tt.tried)
			}
			for i, a := range tc.Tried {
				if line := a.Where + ": " + a.Problem; line != tt.tried[i] {
					t.Errorf("tried %q, want %q", line, tt.tried[i])
				}
			}
		})
	}
}

// A name in the working directory is not taken for one in PATH.
func TestFindNoRelativePath(t *testing.T) {
	dir := t.TempDir()
	fakeTools(t, dir, "22.1.8", tools("")...)
	t.Chdir(dir)
	t.Setenv("PATH", ".")
	tc, err := Find(t.Context(), FindOptions{ROCm: filepath.Join(dir, "none")})
	if err == nil {
		t.Errorf("found %s in a relative folder of PATH", tc.LLC)
	}
}

// LLVM 19 compiles for gfx942; for gfx950 it is refused with what to do.
func TestOldLLVM(t *testing.T) {
	dir := t.TempDir()
	fakeTools(t, dir, "19.1.7", tools("")...)
	tc, err := Find(t.Context(), FindOptions{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	if err := tc.CheckTarget(t.Context(), AMDGPU, "gfx942", "-xnack"); err != nil {
		t.Error(err)
	}
	want := "LLVM 19.1.7 in " + dir + " does not know gfx950, which LLVM 20 and later do: run make toolchain"
	if err := tc.CheckTarget(t.Context(), AMDGPU, "gfx950", ""); err == nil || !strings.HasPrefix(err.Error(), want) {
		t.Errorf("error %v, want %q", err, want)
	}
	c, err := New(t.Context(), tc, Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_, err = c.Compile(t.Context(), Job{Name: "modern", Triple: AMDGPU, CPU: "gfx950", IR: []byte(emptyKernel)})
	if err == nil || !strings.HasPrefix(err.Error(), "llvm: modern (gfx950): job: "+want) {
		t.Errorf("error %v, want %q", err, want)
	}
}

// The real toolchain of this machine, as far as it is one that make toolchain made.
func TestRealToolchain(t *testing.T) {
	tc := toolchain(t)
	if tc.Version == "" || tc.Major < minMajor || !strings.HasPrefix(tc.Version, fmt.Sprint(tc.Major, ".")) {
		t.Errorf("version %q, major %d", tc.Version, tc.Major)
	}
	if (tc.LibLLVM == "") == (tc.LibLLVMWhy == "") {
		t.Errorf("libLLVM %q, why none: %q", tc.LibLLVM, tc.LibLLVMWhy)
	}
	if tc.Loader != nil {
		if len(tc.Loader) != 3 || !executable(tc.Loader[0]) || tc.Loader[1] != "--library-path" || !regular(tc.LibLLVM) {
			t.Errorf("loader %q, libLLVM %s", tc.Loader, tc.LibLLVM)
		}
	}
	if filepath.IsAbs(tc.LibLLVM) && runtime.GOOS == "linux" && len(tc.BuildID) < 16 {
		t.Errorf("build id %q of %s", tc.BuildID, tc.LibLLVM)
	}
	if id := tc.ID(); !strings.HasPrefix(id, "LLVM "+tc.Version) || !strings.HasSuffix(id, tc.BuildID) {
		t.Errorf("id %q", id)
	}
	for cpu, want := range map[string]bool{"gfx942": true, "gfx950": tc.Major >= gfx950Major, "gfx951": false, "help": false} {
		if got, err := tc.KnowsCPU(t.Context(), AMDGPU, cpu); err != nil || got != want {
			t.Errorf("%s: known %t, error %v, want %t", cpu, got, err, want)
		}
	}
}

func TestLibraryOf(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("reads an ELF file: this test binary")
	}
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	// Linked to the C library by purego, and to no LLVM.
	if path, why := libraryOf(exe); path != "" || !strings.Contains(why, "contains LLVM itself") {
		t.Errorf("libLLVM %q, why %q", path, why)
	}
	if path, why := libraryOf(exe + ".none"); path != "" || why == "" {
		t.Errorf("libLLVM %q, why %q", path, why)
	}
	tc := toolchain(t)
	if tc.Loader == nil {
		return
	}
	// The unpacked llc itself names the library, and not where it is: its wrapper
	// passes that to the loader.
	real := filepath.Join(tc.Dir, "..", "root", "usr", "lib", fmt.Sprintf("llvm-%d", tc.Major), "bin", "llc")
	if path, why := libraryOf(real); why != "" || filepath.Base(path) != filepath.Base(tc.LibLLVM) {
		t.Errorf("libLLVM %q, why %q, want %s", path, why, filepath.Base(tc.LibLLVM))
	}
}

// The order of the usual places, with both folders near the executable.
func TestPlaces(t *testing.T) {
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Dir(exe)
	var dirs []string
	names := 0
	for _, p := range places(FindOptions{ROCm: "rocm"}) {
		if p.dir != "" {
			dirs = append(dirs, p.dir)
		} else {
			names++
		}
	}
	local := func(root string) string { return filepath.Join(root, ".toolchain", "llvm") }
	cwd, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		local(cwd), local(filepath.Dir(cwd)), local(filepath.Dir(filepath.Dir(cwd))),
		local(dir), local(filepath.Dir(dir)), filepath.Join("rocm", "llvm"),
	}
	if fmt.Sprint(dirs) != fmt.Sprint(want) {
		t.Errorf("folders %q, want %q", dirs, want)
	}
	if want := 1 + newestMajor - minMajor + 1; names != want {
		t.Errorf("%d names in PATH, want %d", names, want)
	}
}
