package ir

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func itoa(n int) string { return strconv.Itoa(n) }

// inferCase is a line of testdata/infer: one op, its operand types, and its
// result types or the error.
//
//	rms_norm {eps = 1e-06} bf16[T,4], bf16[4] : bf16[T,4]
//	rms_norm {eps = 1e-06} bf16[T,4], bf16[5] ! operand w is ...
type inferCase struct {
	file string
	line int
	op   string // name and attributes, as in text
	args []string
	want string // ": types" or "! error"
}

const inferSyms = "T, B, P, N"

func inferCases(t testing.TB) []inferCase {
	t.Helper()
	var out []inferCase
	for _, path := range glob(t, filepath.Join("testdata", "infer", "*.txt")) {
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for i, line := range strings.Split(string(data), "\n") {
			if line != "" && line[0] != '#' {
				out = append(out, newInferCase(t, path, i, line))
			}
		}
	}
	return out
}

func newInferCase(t testing.TB, path string, i int, line string) inferCase {
	t.Helper()
	c := inferCase{file: path, line: i}
	cut := strings.Index(line, " : ")
	if bang := strings.Index(line, " ! "); bang >= 0 && (cut < 0 || bang < cut) {
		cut = bang
	}
	if cut < 0 {
		t.Fatalf("%s:%d: no result", path, i+1)
	}
	c.want = line[cut+1:]
	c.op = strings.TrimSpace(line[:cut])
	types := ""
	if brace := strings.IndexByte(c.op, '}'); brace >= 0 {
		c.op, types = c.op[:brace+1], c.op[brace+1:]
	} else if space := strings.IndexByte(c.op, ' '); space >= 0 {
		c.op, types = c.op[:space], c.op[space:]
	}
	c.args = splitTypes(types)
	return c
}

// splitTypes cuts a list at the commas outside brackets.
func splitTypes(s string) []string {
	var out []string
	depth, from := 0, 0
	for i := range len(s) {
		switch s[i] {
		case '[', '(':
			depth++
		case ']', ')':
			depth--
		case ',':
			if depth == 0 {
				out = append(out, strings.TrimSpace(s[from:i]))
				from = i + 1
			}
		}
	}
	if last := strings.TrimSpace(s[from:]); last != "" {
		out = append(out, last)
	}
	return out
}

func (c inferCase) name() string { name, _, _ := strings.Cut(c.op, " "); return name }

func (c inferCase) legal() bool { return c.want[0] == ':' }

// text is a graph of the one op. Where the case expects an error the results
// have some type.
func (c inferCase) text() string {
	results := splitTypes(c.want[1:])
	if !c.legal() || c.want == ": ?" { // a new line, before -update
		results = []string{"f32[1]"}
		if d, err := Lookup(c.name()); err == nil {
			results = make([]string, len(d.Results))
			for i := range results {
				results[i] = "f32[1]"
			}
		}
	}
	var b strings.Builder
	fmt.Fprintf(&b, "graph @g\nsym %s\n", inferSyms)
	var args, names []string
	for i, a := range c.args {
		fmt.Fprintf(&b, "input %%x%d : %s\n", i, a)
		args = append(args, fmt.Sprintf(" %%x%d", i))
	}
	for i := range results {
		names = append(names, fmt.Sprintf("%%%d", i))
	}
	name, attrs, _ := strings.Cut(c.op, " ")
	fmt.Fprintf(&b, "%s = %s%s %s : %s\n", strings.Join(names, ", "), name, strings.Join(args, ","), attrs, strings.Join(results, ", "))
	for i, n := range names {
		fmt.Fprintf(&b, "output y%d = %s\n", i, n)
	}
	return b.String()
}

// got is the case's outcome as the table of cases writes it. The op is made both
// by the parser and by a Builder.
func (c inferCase) got(t *testing.T) string {
	graphs, err := ParseUnverified("", c.text())
	if err != nil { // attributes are refused there
		return "! " + strings.TrimSpace(err.Error()[strings.Index(err.Error(), c.name()):])
	}
	op := graphs[0].Ops[0]
	o, errNew := newOp(op.Def, op.Args, op.Attrs, "", Pos{})
	err = Verify(graphs[0])
	if errNew != nil {
		if err == nil {
			t.Errorf("Verify takes what newOp refuses: %v", errNew)
		} else if ve := verifyErrors(err)[0]; !strings.HasPrefix(ve.Msg, c.name()+": ") || strings.TrimPrefix(ve.Msg, c.name()+": ") != errNew.Error() {
			t.Errorf("Verify says %v, newOp %v", ve, errNew)
		}
		return "! " + errNew.Error()
	}
	var types []string
	for _, r := range o.Results {
		types = append(types, r.Type.String())
	}
	if err != nil && c.legal() && !*update {
		t.Errorf("newOp takes what Verify refuses: %v", err)
	}
	return ": " + strings.Join(types, ", ")
}

func TestInfer(t *testing.T) {
	results := map[string]map[int]string{}
	for _, c := range inferCases(t) {
		if results[c.file] == nil {
			results[c.file] = map[int]string{}
		}
		t.Run(fmt.Sprintf("%s:%d:%s", filepath.Base(c.file), c.line+1, c.name()), func(t *testing.T) {
			got := c.got(t)
			results[c.file][c.line] = got
			if *update {
				return
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Fatalf("%s %s: -want +got:\n%s", c.op, strings.Join(c.args, ", "), diff)
			}
			if c.legal() {
				c.checkLegal(t)
			}
		})
	}
	if *update {
		for path, byLine := range results {
			updateInfer(t, path, byLine)
		}
	}
}

func updateInfer(t *testing.T, path string, byLine map[int]string) {
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(string(data), "\n")
	for i, got := range byLine {
		c := newInferCase(t, path, i, lines[i])
		lines[i] = strings.TrimSpace(c.op+" "+strings.Join(c.args, ", ")) + " " + got
	}
	if err := os.WriteFile(path, []byte(strings.Join(lines, "\n")), 0o644); err != nil {
		t.Fatal(err)
	}
}

// checkLegal runs a legal case through everything that takes a graph.
func (c inferCase) checkLegal(t *testing.T) {
	text := printed(t, "t.kir", c.text())
	g, err := ParseOne("t.kir", text)
	if err != nil {
		t.Fatal(err)
	}
	e := checkExpand(t, g)
	small := map[string]int{"T": 3, "B": 2, "P": 2, "N": 8}
	bound, err := Bind(g, small)
	if err != nil {
		t.Fatal(err)
	}
	// Binding and expanding commute.
	be, err := Bind(e, small)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(Text(checkExpand(t, bound)), Text(be)); diff != "" {
		t.Errorf("-expanded after bind +bound after expand:\n%s", diff)
	}
	if got := Text(g); got != text {
		t.Errorf("Expand or Bind changed the graph:\n%s", cmp.Diff(text, got))
	}
}

// checkExpand expands g and checks that primitives are left, that inputs and
// results kept their types, and that the result prints and parses.
func checkExpand(t testing.TB, g *Graph) *Graph {
	t.Helper()
	e, err := Expand(g)
	if err != nil {
		t.Fatal(err)
	}
	for _, op := range e.Ops {
		if !op.Def.Primitive() {
			t.Errorf("%s is left", op.Def.Name)
		}
	}
	for i, o := range g.Outputs {
		if got := e.Outputs[i]; got.Name != o.Name || !got.Value.Type.Equal(o.Value.Type) {
			t.Errorf("output %s : %s became %s : %s", o.Name, o.Value.Type, got.Name, got.Value.Type)
		}
	}
	if len(e.Inputs) != len(g.Inputs) || len(e.Weights) != len(g.Weights) || len(e.States) != len(g.States) || len(e.Updates) != len(g.Updates) {
		t.Errorf("declarations changed")
	}
	text := Text(e)
	if diff := cmp.Diff(text, reprint(t, "expanded.kir", text)); diff != "" {
		t.Errorf("the expanded graph does not read back, -printed +again:\n%s", diff)
	}
	return e
}

// Every op has a case that is legal and one that Infer refuses.
func TestInferCasesCoverTheTable(t *testing.T) {
	legal, refused := map[string]bool{}, map[string]bool{}
	for _, c := range inferCases(t) {
		if c.legal() {
			legal[c.name()] = true
		} else if !strings.HasSuffix(c.want, "["+string(RuleAttr)+"]") { // an attribute of the wrong kind is not Infer's
			refused[c.name()] = true
		}
	}
	for _, d := range Ops() {
		if !legal[d.Name] {
			t.Errorf("testdata/infer has no legal case of %s", d.Name)
		}
		if !refused[d.Name] {
			t.Errorf("testdata/infer has no case that %s refuses", d.Name)
		}
	}
}
