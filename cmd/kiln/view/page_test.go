package view

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kiln-project/kiln/codegen/plan"
	"github.com/kiln-project/kiln/ir"
	"github.com/kiln-project/kiln/passes"
)

// layersText has equal layers, in which the second product is the first again, and
// an op that nothing reads.
const layersText = `graph @step {model = "toy"}
sym B
input %x : f32[B,4]
weight @layers.0.w : f32[4,4]
weight @layers.1.w : f32[4,4]
weight @layers.2.w : f32[4,4]
%0 = add %x, %x : f32[B,4] loc("layers.0.a")
%1 = add %x, %x : f32[B,4] loc("layers.0.a")
%2 = add %0, %1 : f32[B,4] loc("layers.0.b")
%3 = dot %2, @layers.0.w : f32[B,4] loc("layers.0.b")
%4 = add %3, %3 : f32[B,4] loc("layers.1.a")
%5 = add %3, %3 : f32[B,4] loc("layers.1.a")
%6 = add %4, %5 : f32[B,4] loc("layers.1.b")
%7 = dot %6, @layers.1.w : f32[B,4] loc("layers.1.b")
%8 = add %7, %7 : f32[B,4] loc("layers.2.a")
%9 = add %7, %7 : f32[B,4] loc("layers.2.a")
%10 = add %8, %9 : f32[B,4] loc("layers.2.b")
%11 = dot %10, @layers.2.w : f32[B,4] loc("layers.2.b")
%12 = exp %11 : f32[B,4] loc("head")
output y = %11
`

func parse(t *testing.T, text string) *ir.Graph {
	t.Helper()
	g, err := ir.ParseOne("t.kir", text)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// recorded runs the passes on a graph and returns its page.
func recorded(t *testing.T, text string, config passes.Config) *Page {
	t.Helper()
	m := &passes.Module{Entries: []*ir.Graph{parse(t, text)}, Config: config}
	rec := Record(m, m.Entries[0].Name, "read", "as it was")
	if err := passes.Run(m); err != nil {
		t.Fatal(err)
	}
	return &Page{Title: "t", Columns: rec.Columns}
}

func written(t *testing.T, p *Page) string {
	t.Helper()
	var b bytes.Buffer
	if err := p.Write(&b); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// dataText lists what the page's script gets: the columns, and of each group that
// is not like another the lines.
func dataText(d *pageData) string {
	var b strings.Builder
	str := func(i any) string { return d.Strings[i.(int)] }
	for _, c := range d.Columns {
		fmt.Fprintf(&b, "column %s: %s, %d ops, %d remarks aside\n", d.Strings[c.Name], c.State, c.Ops, len(c.Remarks))
		for g, cell := range c.Cells {
			if d.Groups[g].Like >= 0 {
				fmt.Fprintf(&b, "  %s like %s\n", d.Groups[g].Name, d.Groups[d.Groups[g].Like].Name)
				continue
			}
			fmt.Fprintf(&b, "  %s\n", d.Groups[g].Name)
			for _, x := range cell {
				switch x[0] {
				case declLine:
					fmt.Fprintf(&b, "    %s #%v : %s, mark %v\n", str(x[1]), x[2], str(x[3]), x[4])
				case opLine, goneLine:
					what := map[any]string{opLine: "op", goneLine: "gone"}[x[0]]
					fmt.Fprintf(&b, "    %s %%%v: #%v = %s #%v %s at %s, mark %v\n", what, x[1], x[2], str(x[3]), x[4], str(x[5]), str(x[7]), x[8])
				case outLine:
					fmt.Fprintf(&b, "    %s = #%v\n", str(x[1]), x[2])
				case textLine:
					fmt.Fprintf(&b, "    %s\n", str(x[1]))
				case remarkLine:
					// Without the place in the text, which moves with it.
					fmt.Fprintf(&b, "    remark %s of #%v: %s\n", str(x[1]), x[5], textPlace.ReplaceAllString(str(x[2]), "$1"))
				}
			}
		}
	}
	return b.String()
}

func TestColumns(t *testing.T) {
	const want = `column read: changed, 13 ops, 0 remarks aside
  graph
    meta model = "toy"
    sym B
    input #0 : f32[B,4], mark 0
  layers.0
    op %0: #[4] = add #[0 0]  at layers.0.a, mark 0
    op %1: #[5] = add #[0 0]  at layers.0.a, mark 0
    op %2: #[6] = add #[4 5]  at layers.0.b, mark 0
    op %3: #[7] = dot #[6 1]  at layers.0.b, mark 0
    weight #1 : f32[4,4], mark 0
  layers.1
    op %4: #[8] = add #[7 7]  at layers.1.a, mark 0
    op %5: #[9] = add #[7 7]  at layers.1.a, mark 0
    op %6: #[10] = add #[8 9]  at layers.1.b, mark 0
    op %7: #[11] = dot #[10 2]  at layers.1.b, mark 0
    weight #2 : f32[4,4], mark 0
  layers.2 like layers.1
  head
    op %12: #[16] = exp #[15]  at head, mark 0
  outputs
    output y = #15
column fnuz-weights: unchanged, 13 ops, 0 remarks aside
column hoist-pack: unchanged, 13 ops, 0 remarks aside
column cse: changed, 10 ops, 0 remarks aside
  graph
    meta model = "toy"
    sym B
    input #0 : f32[B,4], mark 0
  layers.0
    op %0: #[4] = add #[0 0]  at layers.0.a, mark 0
    gone %1: #[5] = add #[0 0]  at layers.0.a, mark 0
    remark applied of #[5]: is computed at layers.0.a already
    op %1: #[6] = add #[4 4]  at layers.0.b, mark 2
    op %2: #[7] = dot #[6 1]  at layers.0.b, mark 0
    weight #1 : f32[4,4], mark 0
  layers.1
    op %3: #[8] = add #[7 7]  at layers.1.a, mark 0
    gone %5: #[9] = add #[7 7]  at layers.1.a, mark 0
    remark applied of #[9]: is computed at layers.1.a already
    op %4: #[10] = add #[8 8]  at layers.1.b, mark 2
    op %5: #[11] = dot #[10 2]  at layers.1.b, mark 0
    weight #2 : f32[4,4], mark 0
  layers.2 like layers.1
  head
    op %9: #[16] = exp #[15]  at head, mark 0
  outputs
    output y = #15
column dce: changed, 9 ops, 0 remarks aside
  graph
    meta model = "toy"
    sym B
    input #0 : f32[B,4], mark 0
  layers.0
    op %0: #[4] = add #[0 0]  at layers.0.a, mark 0
    op %1: #[6] = add #[4 4]  at layers.0.b, mark 0
    op %2: #[7] = dot #[6 1]  at layers.0.b, mark 0
    weight #1 : f32[4,4], mark 0
  layers.1
    op %3: #[8] = add #[7 7]  at layers.1.a, mark 0
    op %4: #[10] = add #[8 8]  at layers.1.b, mark 0
    op %5: #[11] = dot #[10 2]  at layers.1.b, mark 0
    weight #2 : f32[4,4], mark 0
  layers.2 like layers.1
  head
    gone %9: #[16] = exp #[15]  at head, mark 0
  outputs
    output y = #15
`
	p := recorded(t, layersText, passes.Config{Only: twoPasses})
	if diff := cmp.Diff(want, dataText(p.data())); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// twoPasses keeps the tests apart from what else joins the table.
var twoPasses = []string{"cse", "dce"}

// Passes that do not run, a bisection's end and a random order of ops.
func TestConfigs(t *testing.T) {
	zero := 0
	for _, tc := range []struct {
		name   string
		config passes.Config
		want   string
	}{
		{"disabled", passes.Config{Only: twoPasses, Disable: []string{"cse"}}, "read changed, fnuz-weights unchanged, hoist-pack unchanged, dce changed"},
		{"bisect", passes.Config{Only: twoPasses, Bisect: &zero}, "read changed, fnuz-weights unchanged, hoist-pack unchanged, cse skipped, dce skipped"},
		{"shuffle", passes.Config{Only: twoPasses, Shuffle: 7}, "read changed, fnuz-weights unchanged, hoist-pack unchanged, cse changed, dce changed"},
	} {
		d := recorded(t, layersText, tc.config).data()
		var got []string
		for _, c := range d.Columns {
			got = append(got, d.Strings[c.Name]+" "+string(c.State))
		}
		if s := strings.Join(got, ", "); s != tc.want {
			t.Errorf("%s: %s, want %s", tc.name, s, tc.want)
		}
	}
	// The order of ops does not change who is who.
	d := recorded(t, layersText, passes.Config{Shuffle: 7}).data()
	if len(d.Names) != 17 {
		t.Errorf("%d values, want the 17 of the graph that was read", len(d.Names))
	}
}

// What a text says never becomes markup, wherever it comes from.
func TestEscaping(t *testing.T) {
	const evil = "</script><b>&\"'<!--`${x}\u2028"
	b := ir.NewBuilder("g", ir.Meta{Key: "k", Val: evil})
	x := b.Input("x", ir.Type{DType: ir.F32, Dims: []ir.Dim{ir.Int(4)}})
	w := b.Weight("w", ir.Type{DType: ir.F32, Dims: []ir.Dim{ir.Int(4)}})
	y := b.Op("add", nil, x, w)[0]
	b.Output("y", y)
	g, err := b.Finish()
	if err != nil {
		t.Fatal(err)
	}
	w.Name, g.Outputs[0].Name, g.Ops[0].Loc = evil, evil, evil // which no verifier lets pass
	m := &plan.Module{Target: "t", Kernels: []plan.Kernel{{Symbol: evil, Form: evil, Spec: evil, Rejected: []plan.Rejected{{Form: evil, Reason: evil}}}}}
	pl := &plan.Plan{Entry: evil, Arena: 64, Launches: []plan.Launch{{Op: evil, Loc: evil, Grid: 1}}}
	text := written(t, &Page{
		Title: evil, Facts: []Fact{{evil, evil}}, Notes: []string{evil},
		Columns: []Column{
			{Name: evil, Doc: evil, State: Changed, Graph: g},
			{Name: "p", State: Unchanged, Before: g, Graph: g, Remarks: []passes.Remark{{Kind: passes.Missed, Op: evil, Loc: evil, Text: evil, At: g.Ops[0]}}},
		},
		Plan: &Plan{Module: m, Plan: pl, Code: map[string]Kernel{evil: {Resources: []Fact{{evil, evil}}, IR: evil, ISA: evil}}},
	})
	if n := strings.Count(text, "</script"); n != 2 {
		t.Errorf("%d ends of scripts, want 2", n)
	}
	if strings.Contains(text, "<b>&") || strings.Contains(text, "<!--") {
		t.Error("a text is markup")
	}
	var d struct {
		Strings []string `json:"strings"`
		Names   []string `json:"names"`
		Plan    struct {
			Kernels []struct {
				IR string `json:"ir"`
			} `json:"kernels"`
		} `json:"plan"`
	}
	if err := json.Unmarshal([]byte(dataOf(t, text)), &d); err != nil {
		t.Fatal(err)
	}
	if d.Strings[0] != evil || d.Names[1] != "@"+evil || d.Plan.Kernels[0].IR != evil {
		t.Errorf("texts arrive as %q, %q and %q", d.Strings[0], d.Names[1], d.Plan.Kernels[0].IR)
	}
}

var textPlace = regexp.MustCompile(`t\.kir:\d+:\d+ \(([^)]*)\)`)

var dataForm = regexp.MustCompile(`(?s)<script type="application/json" id="data">(.*?)</script>`)

func dataOf(t *testing.T, page string) string {
	t.Helper()
	m := dataForm.FindStringSubmatch(page)
	if m == nil {
		t.Fatal("the page has no data")
	}
	return m[1]
}

// Equal input makes equal bytes, and the page asks for nothing from elsewhere.
func TestWrite(t *testing.T) {
	a, b := written(t, recorded(t, layersText, passes.Config{})), written(t, recorded(t, layersText, passes.Config{}))
	if a != b {
		t.Error("two pages of one graph differ")
	}
	for _, outside := range []string{"http:", "https:", "src=", "@import", "url("} {
		if strings.Contains(a, outside) {
			t.Errorf("the page has %q", outside)
		}
	}
	if !strings.Contains(a, `content="default-src 'none'; `) {
		t.Error("the page does not forbid the network")
	}
	// Every file of the script is in it.
	files, err := assets.ReadDir("assets")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		text, err := assets.ReadFile("assets/" + f.Name())
		if err != nil {
			t.Fatal(err)
		}
		if f.Name() != "page.html" && !strings.Contains(a, string(text)) {
			t.Errorf("the page lacks %s", f.Name())
		}
	}
}
