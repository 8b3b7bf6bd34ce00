package cli

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/kiln-project/kiln/passes"
)

// viewedPage is what tests look at of a page's data.
type viewedPage struct {
	Strings []string
	Groups  []struct {
		Name string
		Like int
	}
	Columns []struct {
		Name  int
		State string
		Ops   int
	}
	Plan *struct {
		Card     string
		Arena    int64
		Launches []struct{ Kernel int }
		Buffers  []struct {
			Offset, Bytes int64
			First, Last   int
		}
		Kernels []struct {
			Symbol, IR, ISA string
			Resources       []struct{ Name, Text string }
		}
	}
}

var viewData = regexp.MustCompile(`(?s)<script type="application/json" id="data">(.*?)</script>`)

// readPage reads a page's data; columns are listed as NAME STATE.
func readPage(t *testing.T, path string) (*viewedPage, string, string) {
	t.Helper()
	text := string(readFile(t, path))
	m := viewData.FindStringSubmatch(text)
	if m == nil {
		t.Fatalf("%s has no data", path)
	}
	p := &viewedPage{}
	if err := json.Unmarshal([]byte(m[1]), p); err != nil {
		t.Fatal(err)
	}
	var columns []string
	for _, c := range p.Columns {
		// Optional passes come and go.
		if pass, err := passes.Lookup(p.Strings[c.Name]); err != nil || pass.Required {
			columns = append(columns, p.Strings[c.Name]+" "+c.State)
		}
	}
	return p, strings.Join(columns, ", "), text
}

const graphColumns = "built changed, fnuz-weights unchanged, hoist-pack changed"

// Without a target a page has the passes, and says why there is no more.
func TestViewPasses(t *testing.T) {
	out := filepath.Join(t.TempDir(), "page.html")
	r := kiln(t, "view", "--model", tinyModel, "--entry", "decode", "-o", out).ok(t)
	const note = "no plan and no kernels: --target chooses what to compile for"
	if !regexp.MustCompile(`: columns \d+, passes that changed nothing \d+, launches 0, kernels 0, `).MatchString(r.stdout) || withoutNotes(r.stderr) != "note: "+note+"\n" {
		t.Errorf("standard output %q, standard error %q", r.stdout, r.stderr)
	}
	p, columns, text := readPage(t, out)
	if columns != graphColumns || p.Plan != nil || !strings.Contains(text, note) || !strings.Contains(text, "<title>decode of "+tinyModel+"</title>") {
		t.Errorf("columns %s, plan %v", columns, p.Plan)
	}
	// A page that is there is replaced, by the same bytes.
	kiln(t, "view", "--model", tinyModel, "--entry", "decode", "-o", out).ok(t)
	if string(readFile(t, out)) != text {
		t.Error("two pages of one model differ")
	}
	if files, err := filepath.Glob(filepath.Join(filepath.Dir(out), ".*")); err != nil || len(files) > 0 {
		t.Errorf("left behind: %v (%v)", files, err)
	}
	// A whole speculative step.
	kiln(t, "view", "--model", tinyModel, "--entry", "speculate2", "-o", out).ok(t)
	if _, columns, text := readPage(t, out); columns != graphColumns || !strings.Contains(text, "accept_len") || !strings.Contains(text, "<title>speculate2 of "+tinyModel+"</title>") {
		t.Errorf("columns of a speculative step: %s", columns)
	}
	// The pack graph appears when a pass makes it.
	kiln(t, "view", "--model", tinyModel, "--entry", "pack", "--target", "gfx942", "-o", out).ok(t)
	if _, columns, text := readPage(t, out); columns != "hoist-pack changed" || !strings.Contains(text, "the evaluator runs the pack graph") {
		t.Errorf("columns of the pack graph: %s", columns)
	}
}

// Without LLVM a page has the plan and LLVM IR. What the launches say of the arena
// fits the planner's rule: what lives at a time does not overlap.
func TestViewPlan(t *testing.T) {
	model, err := filepath.Abs(tinyModel)
	if err != nil {
		t.Fatal(err)
	}
	t.Chdir(t.TempDir()) // where no toolchain is
	t.Setenv("PATH", "")
	const out = "page.html"
	r := kiln(t, "view", "--model", model, "--entry", "verify", "--target", "gfx950", "--bind", "B=2, K=3", "--cache-dir", "cache", "-o", out).ok(t)
	p, columns, text := readPage(t, out)
	if columns != graphColumns+", bind changed, select-kernels unchanged, plan-memory unchanged" || p.Plan == nil {
		t.Fatalf("columns %s, plan %v", columns, p.Plan)
	}
	if !strings.Contains(text, "<dd>B=2,K=3,N=64,P=32,R=2</dd>") {
		t.Error("the page does not say the binding")
	}
	if p.Plan.Card != "MI355X" || len(p.Plan.Launches) < 100 || !strings.Contains(p.Plan.Kernels[0].IR, "define amdgpu_kernel") {
		t.Errorf("card %q, %d launches, IR %.60q", p.Plan.Card, len(p.Plan.Launches), p.Plan.Kernels[0].IR)
	}
	if p.Plan.Kernels[0].ISA == "" && !strings.Contains(r.stderr, "note: no registers and no instructions: ") {
		t.Errorf("standard error %q does not say why there are no instructions", r.stderr)
	}
	bufs := p.Plan.Buffers
	for i, a := range bufs {
		if a.First > a.Last || a.Offset+a.Bytes > p.Plan.Arena {
			t.Errorf("buffer %+v in an arena of %d bytes", a, p.Plan.Arena)
		}
		for _, b := range bufs[i+1:] {
			if a.First <= b.Last && b.First <= a.Last && a.Offset < b.Offset+b.Bytes && b.Offset < a.Offset+a.Bytes {
				t.Errorf("buffers %+v and %+v live at a time in the same bytes", a, b)
			}
		}
	}
}

// With LLVM there are registers and instructions; a bundle's page has what was
// emitted into it.
func TestViewCode(t *testing.T) {
	needGPU(t)
	dir := t.TempDir()
	out, b := filepath.Join(dir, "page.html"), filepath.Join(dir, "tiny.kiln")
	cache := []string{"--cache-dir", filepath.Join(dir, "cache")}
	kiln(t, append(cache, "view", "--model", tinyModel, "--entry", "decode", "--target", "gfx950", "-o", out)...).ok(t)
	p, _, _ := readPage(t, out)
	for _, k := range p.Plan.Kernels {
		if len(k.Resources) != 9 || !strings.Contains(k.ISA, "s_endpgm") || !strings.Contains(k.IR, "@"+k.Symbol) {
			t.Errorf("kernel %s: %d numbers, instructions %.40q, IR %.40q", k.Symbol, len(k.Resources), k.ISA, k.IR)
		}
	}
	compile := append(cache, "compile", "--model", tinyModel, "--target", "gfx950", "--batch", "1,2", "--prefill", "16", "--speculate", "0", "-o", b)
	kiln(t, append(compile, "--emit", "kir,ll,s")...).ok(t)
	show := []string{"view", "--bundle", b, "-o", out}
	kiln(t, append(show, "--entry", "decode", "--bind", "B=2")...).ok(t)
	full, columns, text := readPage(t, out)
	if columns != "compiled changed" || full.Plan.Kernels[0].ISA == "" || full.Plan.Kernels[0].IR == "" ||
		!strings.Contains(text, "the first of 1 that fit, of 2 for this entry") {
		t.Errorf("columns %s, kernel %+v", columns, full.Plan.Kernels[0])
	}
	kiln(t, append(show, "--entry", "encode")...).failed(t, exitUsage, `--entry "encode": `, "prefill, decode, draft")
	kiln(t, append(show, "--entry", "decode", "--bind", "B=3")...).failed(t, exitUsage, "--bind: none of the 2 plans of decode is bound so")
	kiln(t, append(show, "--entry", "decode", "--target", "gfx942")...).failed(t, exitUsage, "--target gfx942: ", "was compiled for gfx950")

	kiln(t, compile...).ok(t)
	r := kiln(t, append(show, "--entry", "decode")...).ok(t)
	bare, columns, _ := readPage(t, out)
	for _, form := range []string{"no graph", "no LLVM IR", "no instructions"} {
		if !strings.Contains(r.stderr, "note: "+form+": the bundle was compiled without --emit ") {
			t.Errorf("standard error %q does not say that there is %s", r.stderr, form)
		}
	}
	if columns != "" || bare.Plan.Kernels[0].IR != "" || len(bare.Plan.Kernels[0].Resources) != 9 {
		t.Errorf("a bundle without emitted files: columns %q, kernel %+v", columns, bare.Plan.Kernels[0])
	}
}

func TestViewFile(t *testing.T) {
	out := filepath.Join(t.TempDir(), "page.html")
	one := "graph @f\nsym T\ninput %x : f32[T,8]\n%0 = add %x, %x : f32[T,8] loc(\"a.b\")\n%1 = exp %0 : f32[T,8]\noutput y = %1\n"
	file := writeFile(t, "one.kir", one)
	r := kiln(t, "view", file, "--target", "gfx950", "-o", out).ok(t)
	if _, columns, _ := readPage(t, out); !strings.HasPrefix(columns, "read changed") || !strings.Contains(r.stderr, "note: no plan and no kernels: --bind leaves T open\n") {
		t.Errorf("columns %s, standard error %q", columns, r.stderr)
	}
	kiln(t, "view", file, "--target", "gfx950", "--bind", "T=5", "--cache-dir", t.TempDir(), "-o", out).ok(t)
	p, _, _ := readPage(t, out)
	if p.Plan == nil || len(p.Plan.Launches) != 1 {
		t.Fatalf("plan %+v", p.Plan)
	}
	var groups []string
	for _, g := range p.Groups {
		groups = append(groups, g.Name)
	}
	if want := []string{"graph", "a.b", "no place", "outputs"}; !slices.Equal(groups, want) {
		t.Errorf("groups %q, want %q", groups, want)
	}
	two := writeFile(t, "two.kir", one+strings.Replace(one, "@f", "@g", 1))
	kiln(t, "view", two, "-o", out).failed(t, exitUsage, `--entry "": `, "has f, g", "--entry f")
	kiln(t, "view", two, "--entry", "g", "-o", out).ok(t)
	kiln(t, "view", writeFile(t, "bad.kir", "graph @f\noutput y = %1\n"), "-o", out).failed(t, exitFailed, "bad.kir:2:")
	kiln(t, "view", filepath.Join(t.TempDir(), "none.kir"), "-o", out).failed(t, exitFailed, "none.kir: no such file")
	kiln(t, "view", file, "--bind", "T=5,B=1", "-o", out).failed(t, exitUsage, "--bind: graph @f has no symbol B, it has T")
}

func TestViewUsage(t *testing.T) {
	dir := t.TempDir()
	out := filepath.Join(dir, "page.html")
	model := []string{"view", "--model", tinyModel, "-o", out}
	for _, tc := range []struct {
		name string
		args []string
		code int
		want string
	}{
		{"no output", []string{"view", "--model", tinyModel, "--entry", "decode"}, exitUsage, "view needs --out"},
		{"another name", []string{"view", "--model", tinyModel, "--entry", "decode", "-o", "page.txt"}, exitUsage, "--out page.txt: a page's name ends in .html"},
		{"no folder", []string{"view", "--model", tinyModel, "--entry", "decode", "-o", filepath.Join(dir, "none", "p.html")}, exitFailed, "no such file"},
		{"nothing to show", []string{"view", "-o", out}, exitUsage, "view needs exactly one of --model, --bundle and FILE.kir"},
		{"model and bundle", append(model, "--bundle", "x.kiln"), exitUsage, "view needs exactly one of"},
		{"model and file", append(model, "x.kir"), exitUsage, "view shows x.kir or --model, not both"},
		{"two files", []string{"view", "a.kir", "b.kir", "-o", out}, exitUsage, "view takes 1 argument ([FILE.kir]), got 2"},
		{"no entry", model, exitUsage, "--model needs --entry"},
		{"unknown entry", append(model, "--entry", "encode"), exitUsage, `--entry: unknown entry "encode"`},
		{"drafts beyond all", append(model, "--entry", "speculate99"), exitRefused, "--entry speculate99: at most 16 draft tokens"},
		{"two targets", append(model, "--entry", "decode", "--target", "gfx942,gfx950"), exitUsage, "--target: a page shows one target, got 2"},
		{"unknown target", append(model, "--entry", "decode", "--target", "gfx1"), exitUsage, `unknown target "gfx1"`},
		{"no number", append(model, "--entry", "decode", "--target", "gfx950", "--bind", "B=x"), exitUsage, `--bind "B=x": want SYMBOL=N`},
		{"twice", append(model, "--entry", "decode", "--target", "gfx950", "--bind", "B=1,B=2"), exitUsage, "--bind: B is bound to 1 and to 2"},
		{"no symbol", append(model, "--entry", "decode", "--target", "gfx950", "--bind", "T=1"), exitUsage, "--bind: graph @decode has no symbol T, it has B, R, P, N"},
		{"too many drafts", append(model, "--entry", "verify", "--target", "gfx950", "--bind", "K=4"), exitRefused, "--bind K=4: the rings have room for 3 drafts"},
		{"no bundle", []string{"view", "--bundle", dir, "--entry", "decode", "-o", out}, exitFailed, "manifest.json"},
		{"no LLVM there", append(model, "--entry", "decode", "--target", "gfx950", "--llvm", dir), exitFailed, dir},
	} {
		t.Run(tc.name, func(t *testing.T) {
			kiln(t, tc.args...).failed(t, tc.code, tc.want)
			if _, err := os.Stat(out); err == nil {
				t.Error("a page was written")
			}
		})
	}
}
