package llvm

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestParseVersion(t *testing.T) {
	for text, want := range map[string]version{
		"Debian LLVM version 22.1.8\n  Optimized build.\n":               {"Debian", "22.1.8", 22},
		"LLVM (http://llvm.example/):\n  LLVM version 20.1.2\n":          {"", "20.1.2", 20},
		"Homebrew LLVM version 21.1.0\n":                                 {"Homebrew", "21.1.0", 21},
		"AMD LLVM version 20.0.0git\n":                                   {"AMD", "20.0.0git", 20},
		"Debian LLD 22.1.8 (compatible with GNU linkers)\n":              {"Debian", "22.1.8", 22},
		"AMD LLD 20.0.0 (ssh://host/llvm 1234) (compatible with GNU ld)": {"AMD", "20.0.0", 20},
		"Ubuntu LLVM version 19.1.1\n":                                   {"Ubuntu", "19.1.1", 19},
	} {
		got, err := parseVersion(text)
		if err != nil || got != want {
			t.Errorf("%q: %+v, error %v, want %+v", text, got, err, want)
		}
	}
	for _, text := range []string{"", "LLVM", "LLVM version\n", "clang version 22.1.8", "GNU ld 2.44", "LLVM version x.1"} {
		if got, err := parseVersion(text); err == nil {
			t.Errorf("%q: %+v, want an error", text, got)
		}
	}
}

func TestParseCPUHelp(t *testing.T) {
	got, err := parseCPUHelp(`Available CPUs for this target:

  znver5        - Select the znver5 processor.
  x86-64-v3     - Select the x86-64-v3 processor.

Available features for this target:

  sse4.1 - Enable SSE 4.1.
  avx2   - Enable AVX2.

Use +feature to enable a feature, or -feature to disable it.
`)
	if err != nil {
		t.Fatal(err)
	}
	want := &targetInfo{cpus: []string{"x86-64-v3", "znver5"}, features: []string{"avx2", "sse4.1"}}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(targetInfo{})); diff != "" {
		t.Error(diff)
	}
	for _, text := range []string{"", "  gfx942 - Select", "Available CPUs for this target:\n\nAvailable features for this target:\n\n  a - b\n"} {
		if got, err := parseCPUHelp(text); err == nil {
			t.Errorf("%q: %+v, want an error", text, got)
		}
	}
}

func TestParseStamp(t *testing.T) {
	full := "loader=root/lib/ld.so\nlibpath=root/lib:root/usr/lib\nlibllvm=root/lib/libLLVM.so\nmajor=22\nsource=Debian packages\n"
	got, err := parseStamp(full)
	if err != nil {
		t.Fatal(err)
	}
	want := stamp{"22", "Debian packages", "root/lib/ld.so", "root/lib:root/usr/lib", "root/lib/libLLVM.so"}
	if got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	prefix := filepath.FromSlash("/p q")
	dir := func(s string) string { return filepath.Join(prefix, filepath.FromSlash(s)) }
	if diff := cmp.Diff([]string{dir("root/lib/ld.so"), "--library-path", dir("root/lib") + ":" + dir("root/usr/lib")}, got.loaderCommand(prefix)); diff != "" {
		t.Error(diff)
	}
	if s, err := parseStamp("major=22\nsource=PATH\n"); err != nil || s.loaderCommand(prefix) != nil {
		t.Errorf("linked tools: loader %q, error %v", s.loaderCommand(prefix), err)
	}
	for text, want := range map[string]string{
		"":                  "incomplete",
		"major=22\n":        "incomplete",
		full + "major=22\n": "line 6: second major",
		full + "\n":         `line 6: unknown key ""`,
		"major\n":           `line 1: unknown key "major"`,
		"major=\n":          "line 1: major is empty",
		full[:strings.Index(full, "libpath")] + "major=22\nsource=x\n":   "must come together",
		strings.Replace(full, "root/lib/ld.so", "/lib/ld.so", 1):         `path "/lib/ld.so" leaves the folder`,
		strings.Replace(full, ":root/usr/lib", ":", 1):                   `path "" leaves the folder`,
		strings.Replace(full, ":root/usr/lib", ":root/../../usr/lib", 1): `path "root/../../usr/lib" leaves`,
	} {
		if s, err := parseStamp(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %+v, error %v, want %q", text, s, err, want)
		}
	}
}

func TestDiagnostics(t *testing.T) {
	text := `remark: <unknown>:0:0: Function Name: f
remark: <unknown>:0:0:     VGPRs: 3
warning: <stdin>:4:7: deprecated
  %x = add i32 1, 2
      ^
/some/where/llc: error: 'half' is broken
stray words
`
	want := []Diag{
		{SevRemark, "Function Name: f"},
		{SevRemark, "VGPRs: 3"},
		{SevWarning, "line 3, column 7: deprecated\n%x = add i32 1, 2\n^"},
		{SevError, "'half' is broken\nstray words"},
	}
	got := parseDiags(text)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if first, bad := errorsAmong(got); !bad || first != "'half' is broken" {
		t.Errorf("first error %q, %t", first, bad)
	}
	if diff := cmp.Diff([]Diag{{SevWarning, "'+foo' is not a recognized feature"}, {SevRemark, "x"}, {SevWarning, "y"}},
		parseDiags("'+foo' is not a recognized feature\nremark: x\n\ny\n")); diff != "" {
		t.Error(diff)
	}
}

func TestHeadline(t *testing.T) {
	for text, want := range map[string]string{
		"":                                "",
		"warning: odd\nremark: fine\n":    "",
		"warning: odd\nsomething\nelse\n": "something",
		"odd\nerror: <unknown>:0:0: too much\nerror: more\n":                    "too much",
		"error: odd\nLLVM ERROR: Cannot select: t1\nPLEASE submit a bug":        "LLVM ERROR: Cannot select: t1",
		"opt: <stdin>:3:1: error: expected type\nsource\n^\n":                   "line 2, column 1: expected type",
		"llc: error: llc: <stdin>:2:24: error: bad result\n":                    "line 1, column 24: bad result",
		"<stdin>:1:1: error: in the prologue":                                   "in the prologue",
		"Broken!\n  %x\nllc: error: '<stdin>': input module cannot be verified": "Broken!",
		"ld.lld: error: undefined symbol: f\n>>> referenced by 0.o":             "undefined symbol: f",
	} {
		if got := headline(text); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}

func TestSource(t *testing.T) {
	j := Job{Name: "a\"b\\\n", Triple: AMDGPU, IR: []byte("define\n")}
	want := `source_filename = "a\22b\5C\0A" target triple = "amdgcn-amd-amdhsa" target datalayout = "e"` + "\ndefine\n"
	if got := string(j.source("e")); got != want {
		t.Errorf("%q, want %q", got, want)
	}
	if head, _, _ := strings.Cut(string(j.source("")), "define"); strings.Count(head, "\n") != prologueLines {
		t.Errorf("the prologue %q has not %d lines", head, prologueLines)
	}
}

// Whatever a tool prints is taken apart without losing words, and without a panic.
func FuzzToolOutput(f *testing.F) {
	for _, seed := range []string{
		"Debian LLVM version 22.1.8\n", "Available CPUs for this target:\n\n  a - b\nAvailable features\n  c - d\n",
		"opt: <stdin>:3:1: error: expected type\n\n^\n", "remark: <unknown>:0:0:     VGPRs: 3\n", "LLVM ERROR: x\nwarning: y\nz",
		"<stdin>:99999999999999999999:1: error: error: error:", "\x00\xff: ",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if v, err := parseVersion(text); err == nil && (v.full == "" || !strings.Contains(text, v.full)) {
			t.Errorf("version %+v is not in the text", v)
		}
		if ti, err := parseCPUHelp(text); err == nil && len(ti.cpus) == 0 {
			t.Error("no CPUs and no error")
		}
		for _, d := range parseDiags(text) {
			if d.Severity == "" {
				t.Errorf("diagnostic %+v without a severity", d)
			}
			for line := range strings.SplitSeq(d.Text, "\n") {
				if line != strings.TrimSpace(line) {
					t.Errorf("diagnostic line %q keeps spaces around it", line)
				}
			}
		}
		if strings.Contains(headline(text), "\n") {
			t.Errorf("headline %q", headline(text))
		}
	})
}

func FuzzStamp(f *testing.F) {
	f.Add("major=22\nsource=PATH\n")
	f.Add("loader=a/ld.so\nlibpath=a:b\nlibllvm=a/l\nmajor=22\nsource=x=y\n")
	f.Add("loader=../ld.so\n")
	f.Fuzz(func(t *testing.T, text string) {
		s, err := parseStamp(text)
		if err != nil {
			return
		}
		argv := s.loaderCommand("/prefix")
		if argv == nil {
			return
		}
		for _, p := range append(strings.Split(argv[2], ":"), argv[0]) {
			if p != "/prefix" && !strings.HasPrefix(p, "/prefix/") {
				t.Errorf("%q leaves the folder", p)
			}
		}
	})
}
