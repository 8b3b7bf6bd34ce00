// Package view makes one HTML page of a compilation: what every pass did to a
// graph, the plan that became of it, and the kernels. The page needs nothing but
// itself, and equal input makes equal bytes.
package view

import (
	"embed"
	"encoding/json"
	"html/template"
	"io"

	"github.com/kiln-project/kiln/codegen/plan"
	"github.com/kiln-project/kiln/codegen/target"
	"github.com/kiln-project/kiln/ir"
	"github.com/kiln-project/kiln/passes"
)

// Page is what a page shows. What it lacks is told by a note.
type Page struct {
	Title   string
	Facts   []Fact // about the whole: model, target, binding
	Columns []Column
	Plan    *Plan // nil: none
	Notes   []string
}

// Fact is a named text.
type Fact struct {
	Name string `json:"name"`
	Text string `json:"text"`
}

// Column is a graph as it was built or read, or as a pass left it.
type Column struct {
	Name, Doc string
	State     State
	// Before is what the pass was given; nil for the first column.
	Before, Graph *ir.Graph
	Remarks       []passes.Remark
}

// State says whether a pass changed the graph.
type State string

// The states. Of all but changed columns only name and remarks are shown.
const (
	Changed   State = "changed"
	Unchanged State = "unchanged"
	Skipped   State = "skipped"
)

// Plan is a plan with what its module and the compiler say of it.
type Plan struct {
	Module *plan.Module
	Plan   *plan.Plan
	Chip   *target.Chip      // whose rates floor times are of; nil: not known
	Code   map[string]Kernel // by symbol; what is not there is not known
}

// Kernel is what the compiler made of a kernel.
type Kernel struct {
	Resources []Fact // registers and the like
	IR        string // LLVM IR as it goes to LLVM; "" if it was not kept
	ISA       string // instructions; "" if they are not known
}

//go:embed assets
var assets embed.FS

var page = template.Must(template.ParseFS(assets, "assets/page.html"))

// scripts run in this order.
var scripts = []string{"text.js", "passes.js", "follow.js", "arena.js", "plan.js", "start.js"}

// Write writes the page.
func (p *Page) Write(w io.Writer) error {
	data, err := json.Marshal(p.data()) // which escapes what could end a script
	if err != nil {
		return err
	}
	var script []byte
	for _, name := range scripts {
		text, err := assets.ReadFile("assets/" + name)
		if err != nil {
			return err
		}
		script = append(script, text...)
	}
	style, err := assets.ReadFile("assets/page.css")
	if err != nil {
		return err
	}
	return page.Execute(w, struct {
		*Page
		Style        template.CSS
		Script, Data template.JS
	}{p, template.CSS(style), template.JS(script), template.JS(data)})
}

// pageData is what the page's script reads. Texts are indices of Strings: the
// layers of a model repeat them.
type pageData struct {
	Strings []string     `json:"strings"`
	Names   []string     `json:"names"` // of values, by number; "" for results of ops
	Groups  []groupData  `json:"groups"`
	Columns []columnData `json:"columns"`
	Plan    *planData    `json:"plan"`
}

func (p *Page) data() *pageData {
	t := &table{index: map[string]int{}}
	d := &pageData{Groups: []groupData{}, Columns: []columnData{}}
	d.Names = t.columns(p.Columns, d)
	if p.Plan != nil {
		d.Plan = t.plan(p.Plan)
	}
	d.Strings = t.strings
	return d
}

// table numbers texts in the order of first use.
type table struct {
	index   map[string]int
	strings []string
}

func (t *table) add(s string) int {
	i, ok := t.index[s]
	if !ok {
		i = len(t.strings)
		t.index[s] = i
		t.strings = append(t.strings, s)
	}
	return i
}
