package ir_test

import (
	"regexp"
	"strings"
	"testing"

	"github.com/kiln-project/kiln/ir"
)

// hostile are texts that have broken parsers of this kind.
var hostile = []string{
	"",
	"graph",
	"graph @",
	"graph @g {",
	"graph @g\nsym",
	"graph @g\nlet",
	"graph @g\nlet A = ",
	"graph @g\nlet let = let\nlet =",
	"graph @g\nlet A = let\nB = 1",
	"graph @g\n%0 = reduce_sum %x {\"axis = 5 : i64\"} : f32[1]",
	"graph @g\n%0 = reduce_sum %x {dimensions = 0",
	"graph @g\n%0 = const {value = 0x1p-1} : f32[]",
	"graph @g\n%0 = const {value = 1e-400} : f32[]\noutput y = %0",
	"graph @g\ninput %x : f32[" + strings.Repeat("(", 200) + "1",
	"graph @g\ninput %x : f32[" + strings.Repeat("1,", 200) + "1]\noutput y = %x",
	"graph @g\nsym A, B, C\nlet D = (A+B+C)*(A+B+C)*(A+B+C)\ninput %x : f32[D,D,D,D,D]\n%0 = reshape %x {shape = [D*D,D*D,D]} : f32[D*D,D*D,D]\noutput y = %0",
	"graph @g\ninput %x : f32[2147483647,2147483647,2147483647]\n%0 = reshape %x {shape = [1]} : f32[1]\noutput y = %0",
	"graph @g\ninput %x : f8e4m3[4] block(1,2) scale e8m0\n%0 = reshape %x {shape = [4,1]} : f8e4m3[4,1] block(1,2) scale e8m0\noutput y = %0",
	"graph @g\ninput %x : bf16[4]\n%0 = gate %x, %x, %x {k = 1, scale = 1} : f32[1]\noutput y = %0",
	"graph @g\nstate !s : f32[1]\nupdate !s = !s\nupdate !s = !s",
	"graph @g\nstate !s : f32[4]\ninput %i : i32[4]\n%0 = scatter_rows !s, %i, !s : f32[4]\nupdate !s = %0",
	"graph @g\r\ninput %x : f32[1]\r\noutput y = %x\r\n",
	"graph @g {a = \"\\\n",
	"graph @g {a = \"\xff\"}",
	"\x00",
	"\ufeffgraph @g",
	"graph @g // " + strings.Repeat("x", 1000),
	"graph @" + strings.Repeat("a.", 500) + "b\ninput %x : f32[]\noutput y = %x",
}

var placed = regexp.MustCompile(`^f\.kir:[1-9][0-9]*:[1-9][0-9]*: `)

// FuzzParse: no text panics anything that takes graphs, every error has a place,
// and what is legal prints as text that reads back the same.
func FuzzParse(f *testing.F) {
	for _, text := range hostile {
		f.Add(text)
	}
	for _, text := range ir.AllInputs(f) {
		f.Add(text)
	}
	for _, g := range modelGraphs(f) {
		if g.Name == "draft" { // the smallest
			f.Add(ir.Text(g))
		}
	}
	f.Fuzz(func(t *testing.T, text string) {
		if len(text) > 1<<16 {
			t.Skip("long texts only cost time")
		}
		graphs, err := ir.ParseUnverified("f.kir", text)
		if err != nil {
			mustBePlaced(t, err)
			return
		}
		for _, g := range graphs {
			checkParsed(t, g)
		}
	})
}

func mustBePlaced(t *testing.T, err error) {
	t.Helper()
	for _, line := range strings.Split(err.Error(), "\nf.kir:") {
		if !placed.MatchString("f.kir:" + strings.TrimPrefix(line, "f.kir:")) {
			t.Errorf("the error has no place: %v", err)
		}
	}
}

func checkParsed(t *testing.T, g *ir.Graph) {
	values := map[string]int{}
	for i, s := range g.Syms {
		values[s] = 1 + i%5
	}
	bound, bindErr := ir.Bind(g, values)
	var expanded *ir.Graph
	var expandErr error
	if small := len(g.Ops) <= 200; small {
		expanded, expandErr = ir.Expand(g)
	}
	if err := ir.Verify(g); err != nil {
		mustBePlaced(t, err)
		if expandErr == nil && len(g.Ops) <= 200 {
			t.Error("Expand takes a graph that Verify refuses")
		}
		ir.Text(g)
		return
	}
	reread(t, g)
	if bindErr == nil {
		reread(t, bound)
	}
	switch {
	case expandErr != nil:
		// Only a product of extents that leaves the range may stop it.
		if !strings.Contains(expandErr.Error(), "?") && !strings.Contains(expandErr.Error(), "out of range") {
			t.Errorf("a legal graph does not expand: %v", expandErr)
		}
	case expanded != nil:
		for _, op := range expanded.Ops {
			if !op.Def.Primitive() {
				t.Errorf("%s is left", op.Def.Name)
			}
		}
		reread(t, expanded)
	}
}

// FuzzParseDim: what reads prints as text that reads the same, and has the value
// that the text has.
func FuzzParseDim(f *testing.F) {
	for _, s := range []string{
		"", "0", "-1", "T", "T/4+B", "(T+B)*(T-B)", "(4*T+3)/4", "-(T/3)/2", "T*T*T/7*B", "((((T))))", "2147483647*T+2147483647",
		"T/2147483647", "(-7*T+B)/3-T/2", "T+*2", "1_000", "0x10", "T/0", "T/-1", "?", "T\x00", strings.Repeat("(", 100) + "T",
	} {
		f.Add(s, 3, 2)
	}
	f.Fuzz(func(t *testing.T, text string, tv, bv int) {
		if len(text) > 1<<12 {
			t.Skip("long texts only cost time")
		}
		resolve := func(name string) (ir.Dim, error) { return ir.Sym(name), nil }
		d, err := ir.ParseDim(text, resolve)
		if err != nil {
			return
		}
		again, err := ir.ParseDim(d.String(), resolve)
		if err != nil || !again.Equal(d) || again.String() != d.String() {
			t.Fatalf("%q prints as %s, which reads as %s, %v", text, d, again, err)
		}
		if d.Subst(nil).String() != d.String() {
			t.Fatalf("%s without a value becomes %s", d, d.Subst(nil))
		}
		// Reading with the values is reading and then putting them in.
		env := map[string]ir.Dim{}
		for i, s := range d.Symbols(nil) {
			if _, ok := env[s]; !ok {
				env[s] = ir.Int([]int{tv, bv}[i%2] % 1000)
			}
		}
		valued, err := ir.ParseDim(text, func(name string) (ir.Dim, error) {
			if v, ok := env[name]; ok {
				return v, nil
			}
			return ir.Sym(name), nil // cancelled out
		})
		n, ok := d.Subst(env).Const()
		m, okValued := valued.Const()
		if err == nil && ok && okValued && n != m {
			t.Fatalf("%q is %s = %d at %v, but reads as %d", text, d, n, env, m)
		}
	})
}
