package cli

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
)

// mostBreaches bounds what is printed of them; --json has all.
const mostBreaches = 10

func printCheck(e *env, r checkResult) error {
	bind := bindingText(r.Bind)
	if bind != "" {
		bind = " with " + bind
	}
	fmt.Fprintf(e.stdout, "%s%s on %s: %s weights, seeds 0 to %d, cases %s\n\n", r.Entry, bind, r.Device, r.Weights, r.Seeds-1, strings.Join(r.Cases, ", "))
	tw := tabwriter.NewWriter(e.stdout, 0, 0, 2, ' ', 0)
	if r.Device == "ref" {
		printPasses(tw, r)
	} else {
		printOps(tw, r)
	}
	if err := tw.Flush(); err != nil {
		return err
	}
	if r.Note != "" {
		fmt.Fprintf(e.stdout, "\nmade-up operands only: %s\n", r.Note)
	}
	for i, b := range r.Breach {
		if i == 0 {
			fmt.Fprintln(e.stdout)
		}
		if i == mostBreaches {
			fmt.Fprintf(e.stdout, "and %d more; --json has them\n", len(r.Breach)-i)
			break
		}
		fmt.Fprintf(e.stdout, "beyond the limit: %s\n", b)
	}
	return nil
}

func printPasses(w io.Writer, r checkResult) {
	fmt.Fprintln(w, "pass\tgraph\tvalues\tidentical\tmax abs\t1-cos\tlimit\tverdict")
	for _, p := range r.Passes {
		switch {
		case p.Skipped:
			fmt.Fprintf(w, "%s\tskipped\t\t\t\t\t\t\n", p.Pass)
		case !p.Changed:
			fmt.Fprintf(w, "%s\tunchanged\t\t\t\t\t\t\n", p.Pass)
		default:
			fmt.Fprintf(w, "%s\tchanged\t%d\t%.6g%%\t%.3g\t%.2g\t%s\t%s\n", p.Pass, p.Values, 100*p.Identical, p.MaxAbs, p.Cos, p.Limit, verdict(p.OK))
		}
	}
}

func printOps(w io.Writer, r checkResult) {
	fmt.Fprintln(w, "op\tplaces\tshapes\tvalues\tdiffer\tmax abs\t1-cos\tworst at\tverdict\tlimit")
	for _, o := range r.Ops {
		limit := o.Limit
		if o.More != "" {
			limit += "; further results " + o.More
		}
		if o.Liberty != nil {
			limit += " (" + o.Liberty.String() + ")"
		}
		if o.Flips > 0 {
			limit += fmt.Sprintf(" (%d off by a rounding inside)", o.Flips)
		}
		if o.Refused > 0 {
			limit += fmt.Sprintf(" (%d made-up operands are an error)", o.Refused)
		}
		fmt.Fprintf(w, "%s\t%d\t%d\t%d\t%d\t%.3g\t%.2g\t%s\t%s\t%s\n", o.Op, o.Sites, o.Shapes, o.Values, o.Differ, o.MaxAbs, o.Cos, o.Worst, verdict(o.OK), limit)
	}
	if len(r.Layers) > 0 {
		fmt.Fprintln(w, "\nlayer\t1-cos\tof\tat")
	}
	for _, l := range r.Layers {
		fmt.Fprintf(w, "%s\t%.2g\t%s\t%s\n", l.Layer, l.Cos, l.Op, l.Loc)
	}
	if r.Whole != nil {
		fmt.Fprintf(w, "\nthe whole graph\tlaunches\tvalues\tdiffer\tverdict\n")
		fmt.Fprintf(w, "against its ops one by one on the device\t%d\t%d\t%d\t%s\n", r.Whole.Launches, r.Whole.Values, r.Whole.Differ, verdict(r.Whole.OK))
	}
	if len(r.Decomp) > 0 {
		fmt.Fprintln(w, "\nagainst its decomposition on the device\tshapes\tvalues\tdiffer\tmax abs\t1-cos")
	}
	for _, d := range r.Decomp {
		fmt.Fprintf(w, "%s\t%d\t%d\t%d\t%.3g\t%.2g\n", d.Op, d.Shapes, d.Values, d.Differ, d.MaxAbs, d.Cos)
	}
}

func verdict(ok bool) string {
	if ok {
		return "ok"
	}
	return "BEYOND"
}
