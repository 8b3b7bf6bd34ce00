package cli

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/kiln-project/kiln/codegen/plan"
)

// graphedRow says of a plan how a device runs it.
type graphedRow struct {
	Entry    string `json:"entry"`
	Bucket   string `json:"bucket"`
	Launches int    `json:"launches"`
	// Nodes are the kernels of a run: the launches, and on a GPU those around a step.
	Nodes   int    `json:"nodes"`
	Graphed bool   `json:"graphed"`
	Why     string `json:"why"`
}

// graphed lists the plans of a module, in its order, for the device that was chosen.
func (d device) graphed(m *plan.Module) []graphedRow {
	yes, why := d.graphs()
	rows := []graphedRow{}
	for _, p := range m.Plans {
		var bucket []string
		for _, b := range p.Binding {
			bucket = append(bucket, fmt.Sprintf("%s=%d", b.Symbol, b.Value))
		}
		r := graphedRow{Entry: p.Entry, Bucket: strings.Join(bucket, " "), Launches: len(p.Launches), Nodes: len(p.Launches), Graphed: yes, Why: why}
		if d.gpu != nil {
			r.Nodes += m.Around()
		}
		if r.Nodes == 0 {
			r.Graphed, r.Why = false, "there is nothing to launch"
		}
		rows = append(rows, r)
	}
	return rows
}

// graphs tells whether the device replays graphs, and why, or why not. It is the same
// for every plan.
func (d device) graphs() (yes bool, why string) {
	switch {
	case d.gpu == nil:
		return false, "device " + d.name + " has no graphs"
	case d.gpu.opened == nil || !d.gpu.opened.Graphs():
		return false, d.gpu.eager
	}
	why = "built node by node"
	if d.gpu.opened.Options().Build == "capture" {
		why = "recorded from a stream"
	}
	if d.gpu.kind != "cuda" { // no other driver has launches that overlap
		return true, why
	}
	if overlaps, not := d.gpu.opened.Overlaps(); !overlaps {
		return true, fmt.Sprintf("%s; kernels do not overlap: %v", why, not)
	}
	return true, why + "; kernels overlap"
}

// printGraphed writes the table for people.
func printGraphed(w io.Writer, rows []graphedRow) error {
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(tw, "\n  entry\tbucket\tnodes\tgraphed\twhy")
	for _, r := range rows {
		graphed := "no"
		if r.Graphed {
			graphed = "yes"
		}
		fmt.Fprintf(tw, "  %s\t%s\t%d\t%s\t%s\n", r.Entry, r.Bucket, r.Nodes, graphed, r.Why)
	}
	return tw.Flush()
}
