package cli

import (
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/kiln-project/kiln/codegen/kernels"
	"github.com/kiln-project/kiln/passes"
)

const passesHelp = `Lists what the flags of the passes take, in the order in which passes run: the
passes, the constraints on their order with the reasons, the thresholds of --set
with where each number comes from, and the kernel forms of --disable-kernel, for
each op the best first.`

// passList is the JSON of passes.
type passList struct {
	Passes     []passRow      `json:"passes"`
	Orders     []orderRow     `json:"orders"`
	Thresholds []thresholdRow `json:"thresholds"`
	Kernels    []kernelForms  `json:"kernels"`
}

type passRow struct {
	Name  string `json:"name"`
	Stage string `json:"stage"` // graphs or steps
	Runs  string `json:"runs"`  // required, on or off
	Doc   string `json:"doc"`
}

type orderRow struct {
	Before string `json:"before"`
	After  string `json:"after"`
	Why    string `json:"why"`
}

type thresholdRow struct {
	Key    string        `json:"key"`
	Target string        `json:"target"` // "" for all without a row of their own
	Value  int           `json:"value"`
	Origin passes.Origin `json:"origin"`
	Source string        `json:"source"`
	Doc    string        `json:"doc"`
}

type kernelForms struct {
	Op    string   `json:"op"`
	Forms []string `json:"forms"`
}

func runPasses(e *env, f *flags, _ []string) error {
	list := passTables()
	if f.boolean("json") {
		return printJSON(e.stdout, list)
	}
	return list.print(e.stdout)
}

// passTables collects the rows of all tables.
func passTables() passList {
	l := passList{Passes: []passRow{}, Orders: []orderRow{}, Thresholds: []thresholdRow{}, Kernels: []kernelForms{}}
	for _, p := range passes.Table {
		r := passRow{p.Name, "graphs", "on", p.Doc}
		if p.On == passes.Steps {
			r.Stage = "steps"
		}
		switch {
		case p.Required:
			r.Runs = "required"
		case p.Off:
			r.Runs = "off"
		}
		l.Passes = append(l.Passes, r)
	}
	for _, o := range passes.Orders {
		l.Orders = append(l.Orders, orderRow(o))
	}
	for _, t := range passes.Thresholds {
		l.Thresholds = append(l.Thresholds, thresholdRow(t))
	}
	for _, op := range kernels.Ops() {
		row := kernelForms{Op: op}
		for _, form := range kernels.For(op) {
			row.Forms = append(row.Forms, form.Name)
		}
		l.Kernels = append(l.Kernels, row)
	}
	return l
}

func (l passList) print(w io.Writer) error {
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(tw, "pass\tstage\truns\t")
	for _, p := range l.Passes {
		fmt.Fprintf(tw, "%s\t%s\t%s\t%s\n", p.Name, p.Stage, p.Runs, p.Doc)
	}
	if err := tw.Flush(); err != nil {
		return err
	}
	fmt.Fprintln(w, "\norder:")
	for _, o := range l.Orders {
		fmt.Fprintf(w, "  %s before %s: %s\n", o.Before, o.After, o.Why)
	}
	fmt.Fprintln(w, "\nthresholds, for --set:")
	if len(l.Thresholds) == 0 {
		fmt.Fprintln(w, "  none")
	}
	for _, t := range l.Thresholds {
		target := t.Target
		if target == "" {
			target = "other targets"
		}
		fmt.Fprintf(tw, "  %s\t%s\t%d\t%s: %s\t%s\n", t.Key, target, t.Value, t.Origin, t.Source, t.Doc)
	}
	if err := tw.Flush(); err != nil {
		return err
	}
	fmt.Fprintln(w, "\nkernel forms, for --disable-kernel:")
	for _, k := range l.Kernels {
		fmt.Fprintf(tw, "  %s", k.Op)
		for _, form := range k.Forms {
			fmt.Fprintf(tw, "\t%s", form)
		}
		fmt.Fprintln(tw)
	}
	return tw.Flush()
}
