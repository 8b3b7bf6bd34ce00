package kernels_test

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/kiln-project/kiln/codegen"
	"github.com/kiln-project/kiln/codegen/llvm"
	"github.com/kiln-project/kiln/codegen/plan"
	"github.com/kiln-project/kiln/ir"
)

// The library's rms_norm compiles for sm_90, at the widths of the models and at
// one that no vector divides. The other forms are compiled with the model, in
// runtime/cuda.
func TestPTX(t *testing.T) {
	b := ir.NewBuilder("g")
	for _, d := range []int{7, 512, 4096, 7168} {
		x, w := b.Input(fmt.Sprintf("x%d", d), ir.T(ir.BF16, intDims([]int{3, d})...)), b.Input(fmt.Sprintf("w%d", d), ir.T(ir.BF16, ir.Int(d)))
		b.Output(fmt.Sprintf("y%d", d), b.Op1("rms_norm", ir.A("eps", 1e-6), x, w))
	}
	g, err := b.Finish()
	if err != nil {
		t.Fatal(err)
	}
	u := codegen.NewUnit(mustTarget(t, "sm_90"))
	p, err := u.Lower(g)
	if err != nil {
		t.Fatal(err)
	}
	if len(p.Launches) != 4 {
		t.Fatalf("%d launches, want one per op", len(p.Launches))
	}
	tools, c := compiler(t)
	if err := tools.CheckTarget(t.Context(), u.Target.Triple, u.Target.CPU, u.Target.Features); err != nil {
		t.Skipf("this test compiles for sm_90: %v", err)
	}
	for i, l := range p.Launches {
		if u.Module.Kernels[l.Kernel].Form != "rms_norm" {
			t.Fatalf("launch %d has form %s", i, u.Module.Kernels[l.Kernel].Form)
		}
		k := u.Kernels[l.Kernel]
		r, err := c.Compile(t.Context(), llvm.Job{
			Name: k.Symbol, IR: []byte(k.IR), Triple: u.Target.Triple, CPU: u.Target.CPU, Features: u.Target.Features,
			OptPasses: "default<O3>", Output: llvm.Asm,
		})
		if err != nil {
			t.Fatal(err)
		}
		for _, problem := range ptxProblems(string(r.Output), k.Symbol, l, u.Target.Lanes) {
			t.Errorf("%s: %s", k.Spec, problem)
		}
	}
}

var (
	ptxEntry = regexp.MustCompile(`(?m)^\.visible \.entry (\S+)\(([^)]*)\)`)
	ptxParam = regexp.MustCompile(`\.param \.(\w+)( \.ptr \.global)?[^,\n]* (\w+),?\n`)
	ptxLoad  = regexp.MustCompile(`ld\.param\.\w+\s+%\w+, \[(\w+)\]`)
	ptxCall  = regexp.MustCompile(`(?m)^.*(?:\.extern|\bcall\b|\.local\b|%SP).*$`)
)

// ptxProblems reads PTX: one entry of the launch's name with its parameters, each
// of which is loaded; nothing from outside the text, and no stack.
func ptxProblems(text, symbol string, l plan.Launch, lanes int) []string {
	var out []string
	for _, want := range []string{"\n.target sm_90\n", "\n.version 7.8\n", "\n.address_size 64\n", fmt.Sprintf("\n.reqntid %d\n", lanes)} {
		if strings.Count(text, want) != 1 {
			out = append(out, fmt.Sprintf("not once %q", want))
		}
	}
	entries := ptxEntry.FindAllStringSubmatch(text, -1)
	if len(entries) != 1 || entries[0][1] != symbol {
		return append(out, fmt.Sprintf("entries %q, want %s alone", entries, symbol))
	}
	params := ptxParam.FindAllStringSubmatch(entries[0][2], -1)
	if len(params) != len(l.Args) {
		out = append(out, fmt.Sprintf("%d parameters, the launch has %d arguments", len(params), len(l.Args)))
	}
	loaded := map[string]bool{}
	for _, m := range ptxLoad.FindAllStringSubmatch(text, -1) {
		loaded[m[1]] = true
	}
	for i, p := range params {
		if want := fmt.Sprintf("%s_param_%d", symbol, i); p[3] != want || p[1] != "u64" || (p[2] != "") != (i < len(l.Args) && l.Args[i].Mode != "") {
			out = append(out, fmt.Sprintf("parameter %d is %q, want %s of the launch's kind", i, p[0], want))
		}
		if !loaded[p[3]] {
			out = append(out, fmt.Sprintf("parameter %s is not loaded", p[3]))
		}
	}
	return append(out, ptxCall.FindAllString(text, -1)...)
}

// The reading of PTX finds what it looks for.
func TestPTXProblems(t *testing.T) {
	l := plan.Launch{Args: []plan.Arg{{Mode: plan.Read}, {Int: 1}}}
	good := `//
.version 7.8
.target sm_90
.address_size 64

.visible .entry k(
	.param .u64 .ptr .global .align 1 k_param_0,
	.param .u64 k_param_1
)
.reqntid 256
{
	ld.param.b64 	%rd1, [k_param_0];
	ld.param.b64 	%rd2, [k_param_1];
	ret;
}
`
	if got := ptxProblems(good, "k", l, 256); len(got) > 0 {
		t.Errorf("problems in good PTX: %v", got)
	}
	for _, tc := range []struct{ old, new, want string }{
		{"sm_90", "sm_80", `not once "\n.target sm_90\n"`},
		{".visible .entry", ".entry", `entries []`},
		{"entry k(", "entry j(", `want k alone`},
		{",\n\t.param .u64 k_param_1", "\n", "1 parameters, the launch has 2 arguments"},
		{".u64 .ptr .global .align 1", ".u64", "of the launch's kind"},
		{"[k_param_1]", "[k_param_0]", "k_param_1 is not loaded"},
		{"\tret;", "\tcall.uni (r), f, (p);", "\tcall.uni (r), f, (p);"},
		{"\n.visible", "\n.extern .func (.param .b32 r) f\n.visible", ".extern .func"},
		{"{\n", "{\n\t.local .align 4 .b8 \t__local_depot0[400];\n", ".local"},
		{".reqntid 256", ".maxntid 256", ".reqntid 256"},
	} {
		if got := strings.Join(ptxProblems(strings.Replace(good, tc.old, tc.new, 1), "k", l, 256), "\n"); !strings.Contains(got, tc.want) {
			t.Errorf("%q for %q: problems %q, want %q", tc.new, tc.old, got, tc.want)
		}
	}
}
