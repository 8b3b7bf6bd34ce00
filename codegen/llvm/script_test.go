//go:build unix

package llvm

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// scriptWorld is where scripts/get-llvm.sh runs in a test: a PATH that holds the
// programs it needs and nothing else, so that no LLVM of this machine is found.
type scriptWorld struct {
	root, path, rocm, prefix string
	script                   string
}

// scriptTools are the programs that the script calls.
var scriptTools = []string{
	"sh", "sed", "grep", "mkdir", "ln", "rm", "mv", "dirname", "basename", "ls", "du", "find", "sort", "cat", "chmod", "id",
	"readlink", "awk", "sleep", "date",
}

func newScriptWorld(t *testing.T) *scriptWorld {
	t.Helper()
	root, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	script, err := filepath.Abs(filepath.FromSlash("../../scripts/get-llvm.sh"))
	if err != nil {
		t.Fatal(err)
	}
	w := &scriptWorld{
		root: root, path: filepath.Join(root, "path"), rocm: filepath.Join(root, "rocm"),
		prefix: filepath.Join(root, "pre fix", "llvm"), script: script,
	}
	if err := os.MkdirAll(w.path, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, name := range scriptTools {
		real, err := exec.LookPath(name)
		if err != nil {
			t.Skipf("the script needs %s, which this machine has not: %v", name, err)
		}
		if err := os.Symlink(real, filepath.Join(w.path, name)); err != nil {
			t.Fatal(err)
		}
	}
	return w
}

// command is a run of the script with --no-packages unless packages is true.
func (w *scriptWorld) command(packages bool, args ...string) *exec.Cmd {
	args = append([]string{w.script, "--rocm", w.rocm}, args...)
	if !packages {
		args = append(args, "--no-packages")
	}
	cmd := exec.Command("/bin/sh", append(args, w.prefix)...)
	cmd.Env = []string{"PATH=" + w.path}
	cmd.Dir = w.root
	return cmd
}

// run runs it and returns what it printed and its exit status.
func (w *scriptWorld) run(t *testing.T, packages bool, args ...string) (string, int) {
	t.Helper()
	out, err := w.command(packages, args...).CombinedOutput()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	if exit != nil {
		return string(out), exit.ExitCode()
	}
	return string(out), 0
}

// tree describes every file below the parent of PREFIX: its path and content, or
// where it links to.
func (w *scriptWorld) tree(t *testing.T) map[string]string {
	t.Helper()
	files := map[string]string{}
	err := filepath.WalkDir(filepath.Dir(w.prefix), func(p string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		rel, err := filepath.Rel(filepath.Dir(w.prefix), p)
		if err != nil {
			return err
		}
		if d.Type()&fs.ModeSymlink != 0 {
			files[rel], err = os.Readlink(p)
			return err
		}
		data, err := os.ReadFile(p)
		files[rel] = string(data)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// Which of the LLVMs on a machine is linked to.
func TestScriptSearch(t *testing.T) {
	for _, tt := range []struct {
		name   string
		build  func(t *testing.T, w *scriptWorld)
		major  string // "" if there is none
		source string
		llc    string // what PREFIX/bin/llc links to, below root
	}{
		{"path", func(t *testing.T, w *scriptWorld) { fakeTools(t, w.path, "22.1.8", tools("")...) }, "22", "PATH", "path/llc"},
		{"versioned", func(t *testing.T, w *scriptWorld) {
			fakeTools(t, w.path, "14.0.6", tools("")...)
			fakeTools(t, w.path, "20.1.0", tools("-20")...)
			fakeTools(t, w.path, "21.1.0", tools("-21")...)
		}, "21", "PATH (llc-21)", "path/llc-21"},
		{"rocm", func(t *testing.T, w *scriptWorld) {
			fakeTools(t, w.path, "19.1.7", tools("")...)
			fakeTools(t, filepath.Join(w.rocm, "llvm", "bin"), "20.0.0git", tools("")...)
		}, "20", "ROOT/rocm/llvm/bin", "rocm/llvm/bin/llc"},
		{"incomplete", func(t *testing.T, w *scriptWorld) {
			fakeTools(t, w.path, "22.1.8", "llc", "opt", "llvm-objdump")
			fakeTools(t, w.path, "20.1.0", tools("-20")...)
		}, "20", "PATH (llc-20)", "path/llc-20"},
		{"mixed", func(t *testing.T, w *scriptWorld) {
			fakeTools(t, w.path, "22.1.8", "llc", "opt", "llvm-objdump")
			fakeTools(t, w.path, "21.1.0", "ld.lld")
		}, "", "", ""},
		{"only 19", func(t *testing.T, w *scriptWorld) { fakeTools(t, w.path, "19.1.7", tools("-19")...) }, "19", "PATH (llc-19)", "path/llc-19"},
		{"only 18", func(t *testing.T, w *scriptWorld) { fakeTools(t, w.path, "18.1.7", tools("")...) }, "", "", ""},
		{"nothing", func(*testing.T, *scriptWorld) {}, "", "", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			w := newScriptWorld(t)
			tt.build(t, w)
			out, status := w.run(t, false)
			if tt.major == "" {
				if status != 1 || !strings.Contains(out, "no usable LLVM") || !strings.Contains(out, "llvm-22") || !strings.Contains(out, "--device ref") {
					t.Errorf("status %d, output without what to do:\n%s", status, out)
				}
				if files := w.tree(t); len(files) != 0 {
					t.Errorf("left behind: %v", files)
				}
				return
			}
			if status != 0 || !strings.Contains(out, "ready: LLVM "+tt.major) || strings.Contains(out, "warning") != (tt.major == "19") {
				t.Errorf("status %d, output:\n%s", status, out)
			}
			files := w.tree(t)
			source := strings.Replace(tt.source, "ROOT", w.root, 1)
			if got, want := files["llvm/"+stampName], fmt.Sprintf("major=%s\nsource=%s\n", tt.major, source); got != want {
				t.Errorf("stamp %q, want %q", got, want)
			}
			if got, want := files["llvm/bin/llc"], filepath.Join(w.root, filepath.FromSlash(tt.llc)); got != want {
				t.Errorf("llc links to %s, want %s", got, want)
			}
			if len(files) != 1+len(tools("")) {
				t.Errorf("files %v", files)
			}
			tc, err := Find(t.Context(), FindOptions{Dir: w.prefix})
			if err != nil {
				t.Fatal(err)
			}
			if want := w.prefix + " (" + source + ")"; tc.Source != want || tc.Loader != nil {
				t.Errorf("found as %q with loader %q, want %q", tc.Source, tc.Loader, want)
			}

			out, status = w.run(t, false)
			if status != 0 || !strings.Contains(out, "up to date: LLVM "+tt.major) {
				t.Errorf("second run: status %d, output:\n%s", status, out)
			}
			if out, status := w.run(t, false, "--quiet"); status != 0 || (out != "") != (tt.major == "19") {
				t.Errorf("quiet run: status %d, output:\n%s", status, out)
			}
			if diff := cmp.Diff(files, w.tree(t)); diff != "" {
				t.Errorf("a second run changed:\n%s", diff)
			}
		})
	}
}

// A PREFIX whose tools went away or changed is made anew; one that cannot be made
// anew, and one that is not the script's, stays as it is.
func TestScriptExistingPrefix(t *testing.T) {
	w := newScriptWorld(t)
	fakeTools(t, w.path, "22.1.8", tools("")...)
	if out, status := w.run(t, false); status != 0 {
		t.Fatal(out)
	}
	fakeTools(t, w.path, "21.1.0", tools("")...)
	if out, status := w.run(t, false); status != 0 || !strings.Contains(out, "building anew") || !strings.Contains(out, "ready: LLVM 21") {
		t.Errorf("status %d, output:\n%s", status, out)
	}
	before := w.tree(t)
	for _, name := range tools("") {
		if err := os.Remove(filepath.Join(w.path, name)); err != nil {
			t.Fatal(err)
		}
	}
	if out, status := w.run(t, false); status != 1 || !strings.Contains(out, "no usable LLVM") {
		t.Errorf("status %d, output:\n%s", status, out)
	}
	if diff := cmp.Diff(before, w.tree(t)); diff != "" {
		t.Errorf("a failed run changed:\n%s", diff)
	}

	fakeTools(t, w.path, "22.1.8", tools("")...)
	if err := os.Remove(filepath.Join(w.prefix, stampName)); err != nil {
		t.Fatal(err)
	}
	before = w.tree(t)
	if out, status := w.run(t, false, "--force"); status != 1 || !strings.Contains(out, "was not made by this script") {
		t.Errorf("status %d, output:\n%s", status, out)
	}
	if diff := cmp.Diff(before, w.tree(t)); diff != "" {
		t.Errorf("a refused run changed:\n%s", diff)
	}
	for _, args := range [][]string{{"--fast"}, {w.root}} {
		if out, status := w.run(t, false, args...); status != 1 || !strings.Contains(out, "error: ") || !strings.Contains(out, args[0]) {
			t.Errorf("%q: status %d, output:\n%s", args, status, out)
		}
	}
}

// A run that is interrupted leaves PREFIX as it was, and so does one that was
// killed, as soon as the next begins.
func TestScriptInterrupted(t *testing.T) {
	w := newScriptWorld(t)
	fakeTools(t, w.path, "22.1.8", tools("")...)
	if out, status := w.run(t, false); status != 0 {
		t.Fatal(out)
	}
	before := w.tree(t)
	opt, err := os.ReadFile(filepath.Join(w.path, "opt"))
	if err != nil {
		t.Fatal(err)
	}
	mark := filepath.Join(w.root, "mark")
	if err := os.WriteFile(filepath.Join(w.path, "opt"), []byte("#!/bin/sh\n: >'"+mark+"'\nexec sleep 60\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT, syscall.SIGKILL} {
		cmd := w.command(false, "--force")
		cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		for start := time.Now(); ; time.Sleep(5 * time.Millisecond) { // until it asks opt
			if _, err := os.Stat(mark); err == nil {
				break
			}
			if time.Since(start) > time.Minute {
				t.Fatal("the script does not ask opt")
			}
		}
		if err := syscall.Kill(-cmd.Process.Pid, sig); err != nil {
			t.Fatal(err)
		}
		if err := cmd.Wait(); err == nil {
			t.Errorf("%v: exit status 0", sig)
		}
		if sig == syscall.SIGKILL { // the next run cleans up, even if it is a no-op
			if diff := cmp.Diff(before, w.tree(t)); diff == "" {
				t.Error("the killed run had done nothing")
			}
			if err := os.WriteFile(filepath.Join(w.path, "opt"), opt, 0o755); err != nil {
				t.Fatal(err)
			}
			if out, status := w.run(t, false); status != 0 || !strings.Contains(out, "up to date") {
				t.Errorf("status %d, output:\n%s", status, out)
			}
		}
		if diff := cmp.Diff(before, w.tree(t)); diff != "" {
			t.Errorf("%v changed:\n%s", sig, diff)
		}
		if err := os.Remove(mark); err != nil {
			t.Fatal(err)
		}
	}

	// Killed between the two moves at the end: the old tree lies beside. The number
	// is that of a process that has ended.
	ended := w.command(false, "--help")
	if err := ended.Run(); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(w.prefix, fmt.Sprintf("%s.old.%d", w.prefix, ended.Process.Pid)); err != nil {
		t.Fatal(err)
	}
	if out, status := w.run(t, false); status != 0 || !strings.Contains(out, "up to date") {
		t.Errorf("status %d, output:\n%s", status, out)
	}
	if diff := cmp.Diff(before, w.tree(t)); diff != "" {
		t.Errorf("the old tree did not come back:\n%s", diff)
	}
}

// The package step, with stand-ins for apt and dpkg: which packages are asked for,
// and that the unpacked tools run under the unpacked loader, also after a move.
func TestScriptPackages(t *testing.T) {
	w := newScriptWorld(t)
	write := func(path, text string) {
		t.Helper()
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	// What the packages hold: a loader that says so and runs the program, the
	// libraries, tools, and things that nobody needs.
	tree := filepath.Join(w.root, "tree")
	bin := filepath.Join(tree, "usr", "lib", "llvm-21", "bin")
	fakeTools(t, bin, "21.1.0", "llc", "opt", "lld", "llvm-objdump", "llvm-exegesis")
	fakeTools(t, bin, "21.1.0", "ld.lld.real")
	if err := os.Rename(filepath.Join(bin, "ld.lld.real"), filepath.Join(bin, "lld")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("lld", filepath.Join(bin, "ld.lld")); err != nil {
		t.Fatal(err)
	}
	lib := filepath.Join(tree, "usr", "lib", "some-linux-gnu")
	write(filepath.Join(lib, "ld-linux-some.so.2"), `#!/bin/sh
[ "$1" = --argv0 ] && [ "$3" = --library-path ] && [ -e "$4/libc.so.6" ] || exit 8
shift 4
exec "$@"
`)
	write(filepath.Join(lib, "libc.so.6"), "")
	write(filepath.Join(lib, "libLLVM.so.21.1"), "")
	write(filepath.Join(tree, "etc", "conf"), "")
	write(filepath.Join(tree, "usr", "share", "doc", "llvm", "copyright"), "licence")
	write(filepath.Join(tree, "usr", "share", "doc", "llvm", "changelog"), "")
	write(filepath.Join(tree, "usr", "share", "man", "llc.1"), "")
	write(filepath.Join(w.root, "keys"), "")
	// apt knows LLVM 21 and 20, complete, and of 22 only the library.
	asked := filepath.Join(w.root, "asked")
	write(filepath.Join(w.path, "apt-cache"), `#!/bin/sh
for a; do
	case $a in
	llvm-2[01] | lld-2[01] | libllvm2[012] | llvm-2[01]-linker-tools | libc6 | libstdc++6) echo "Package: $a" ;;
	esac
done
`)
	write(filepath.Join(w.path, "apt-get"), `#!/bin/sh
case "$*" in
*--print-uris*) echo "'u' llc.deb 5000000 SHA256:0"; echo "'u' c.deb 2000000 SHA256:1" ;;
*download*) sleep 2.5; : >pkg.deb; echo "$*" >>'`+asked+`' ;;
*update*) for a; do case $a in Dir::Etc::sourcelist=*) cat "${a#*=}" >>'`+asked+`' ;; esac; done ;;
*) exit 7 ;;
esac
`)
	write(filepath.Join(w.path, "dpkg-deb"), "#!/bin/sh\nexec cp -R '"+tree+"/.' \"$3\"\n")
	if cp, err := exec.LookPath("cp"); err != nil {
		t.Skipf("the stand-in for dpkg needs cp: %v", err)
	} else if err := os.Symlink(cp, filepath.Join(w.path, "cp")); err != nil {
		t.Fatal(err)
	}

	out, status := w.run(t, true, "--repo", "file:/mirror", "--keyring", filepath.Join(w.root, "keys"))
	if status != 0 || !strings.Contains(out, "downloading LLVM 21: 6 packages, 7 MB") || !strings.Contains(out, "ready: LLVM 21 from Debian trixie packages") {
		t.Fatalf("status %d, output:\n%s", status, out)
	}
	if !strings.Contains(out, "downloading, 0 MB after ") {
		t.Errorf("the slow download is silent:\n%s", out)
	}
	log, err := os.ReadFile(asked)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"deb [signed-by=" + filepath.Join(w.root, "keys") + "] file:/mirror trixie main\n",
		"download llvm-21 lld-21 libllvm21 llvm-21-linker-tools libc6 libstdc++6\n",
		"APT::Get::AllowUnauthenticated=false", "Acquire::AllowInsecureRepositories=false", "Dir::Etc::sourceparts=/dev/null",
	} {
		if !strings.Contains(string(log), want) {
			t.Errorf("apt was not given %q:\n%s", want, log)
		}
	}
	var names []string
	for name := range w.tree(t) {
		names = append(names, name)
	}
	root, unpacked := "llvm/root/usr/", "llvm/root/usr/lib/llvm-21/bin/"
	want := []string{
		"llvm/" + stampName, "llvm/bin/llc", "llvm/bin/opt", "llvm/bin/ld.lld", "llvm/bin/llvm-objdump",
		unpacked + "llc", unpacked + "opt", unpacked + "ld.lld", unpacked + "lld", unpacked + "llvm-objdump",
		root + "lib/some-linux-gnu/ld-linux-some.so.2", root + "lib/some-linux-gnu/libc.so.6", root + "lib/some-linux-gnu/libLLVM.so.21.1",
		root + "share/doc/llvm/copyright",
	}
	if diff := cmp.Diff(sorted(want), sorted(names)); diff != "" {
		t.Errorf("files (-want +got):\n%s", diff)
	}

	moved := filepath.Join(w.root, "moved")
	if err := os.Rename(w.prefix, moved); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", w.path)
	tc, err := Find(t.Context(), FindOptions{Dir: moved})
	if err != nil {
		t.Fatal(err)
	}
	libs := filepath.Join(moved, "root", "usr", "lib", "some-linux-gnu")
	if diff := cmp.Diff([]string{filepath.Join(libs, "ld-linux-some.so.2"), "--library-path", libs}, tc.Loader); diff != "" {
		t.Errorf("loader:\n%s", diff)
	}
	if want := filepath.Join(libs, "libLLVM.so.21.1"); tc.LibLLVM != want || tc.Version != "21.1.0" {
		t.Errorf("libLLVM %s of version %s, want %s", tc.LibLLVM, tc.Version, want)
	}
}

// Without a network apt says so, and nothing is left behind.
func TestScriptOffline(t *testing.T) {
	w := newScriptWorld(t)
	for name, text := range map[string]string{
		"apt-get": "#!/bin/sh\necho 'E: Failed to fetch' >&2\nexit 100\n", "apt-cache": "#!/bin/sh\n", "dpkg-deb": "#!/bin/sh\n",
	} {
		if err := os.WriteFile(filepath.Join(w.path, name), []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	out, status := w.run(t, true, "--repo", "file:/mirror", "--keyring", w.script)
	for _, want := range []string{"E: Failed to fetch", "apt-get update failed", "no usable LLVM", "Install llc, opt, ld.lld", "--device ref", "make run DEVICE=ref", "TOOLCHAIN=none"} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in the output", want)
		}
	}
	if files := w.tree(t); status != 1 || len(files) != 0 {
		t.Errorf("status %d, left behind %v, output:\n%s", status, files, out)
	}
}

func sorted(names []string) []string {
	names = slices.Clone(names)
	slices.Sort(names)
	return names
}
