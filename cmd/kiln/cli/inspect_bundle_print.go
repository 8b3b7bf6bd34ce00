package cli

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/kiln-project/kiln/codegen/plan"
)

// print writes the text form: per target its plans and kernels, or the kernel
// that was asked for in detail.
func (in *bundleInspection) print(e *env, detail bool) error {
	w := e.stdout
	fmt.Fprintf(w, "%s: kiln %s, %s\n%s\n", in.Bundle, in.Kiln, in.LLVM, settingsLine(in.Settings))
	for _, t := range in.Totals {
		if err := in.printTarget(w, t, detail); err != nil {
			return err
		}
	}
	if err := in.printChoices(w); err != nil {
		return err
	}
	for _, d := range in.Decomposed {
		fmt.Fprintf(w, "%s: %d x %s decomposed, first at %s\n", d.Target, d.Count, d.Op, d.Loc)
		for _, r := range d.Rejected {
			fmt.Fprintf(w, "  not %s: %s\n", r.Form, r.Reason)
		}
	}
	for i := range in.Kernels {
		if err := in.Kernels[i].printDetail(w, detail); err != nil {
			return err
		}
	}
	if len(in.Problems) > 0 {
		fmt.Fprintln(w, "\nproblems:")
	}
	for _, p := range in.Problems {
		fmt.Fprintf(w, "  %s\n", printable(p))
	}
	for _, n := range in.Notes {
		e.notef("note: %s", n)
	}
	return nil
}

func (in *bundleInspection) printTarget(w io.Writer, t targetTotal, detail bool) error {
	fmt.Fprintf(w, "\n%s: %d plans, %d launches%s, %d kernels in %d bytes of code, %d+%d spills; weights %s, pools %s, arena %s; %s\n\n",
		t.Target, t.Plans, t.Launches, t.around(), t.Kernels, t.CodeBytes, t.VGPRSpills, t.SGPRSpills, size(t.WeightBytes), size(t.PoolBytes), size(t.ArenaBytes), floorTimes(t.Target, t.Card))
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	if !detail {
		fmt.Fprintln(tw, "entry\ttokens\tbatch\torder class\tlaunches\tarena\tGFLOP\tread+written\tfloor us")
		for _, r := range in.Entries {
			if r.Target == t.Target {
				fmt.Fprintf(tw, "%s\t%d\t%d\t%s\t%d\t%s\t%.3g\t%s\t%s\n", r.Name, r.Tokens, r.Batch, r.OrderClass, r.Launches, size(r.ArenaBytes), float64(r.Flops)/1e9, size(r.Bytes), microseconds(r.FloorUS))
			}
		}
		if err := tw.Flush(); err != nil {
			return err
		}
		fmt.Fprintln(w)
	}
	fmt.Fprintln(tw, "kernel\tform\tops\tlayers\tvgpr\tagpr\tsgpr\tspills\tlds\tscratch\toccupancy\tcode\tmfma\tlargest launch\tgrid\tMFLOP\tread+written\tfloor us")
	for _, k := range in.Kernels {
		if k.bundleTarget != t.Target {
			continue
		}
		fmt.Fprintf(tw, "%s\t%s\t%s\t%d", k.Name, k.Chosen, strings.Join(k.Ops, ","), k.Layers)
		for _, v := range []*int{k.VGPR, k.AGPR, k.SGPR, k.VGPRSpills, k.LDSBytes, k.ScratchBytes, k.Occupancy, k.CodeBytes, k.MFMA} {
			fmt.Fprint(tw, "\t", cell(v))
		}
		if k.Largest == "" { // no plan launches it
			fmt.Fprintln(tw, "\t-\t-\t-\t-\t-")
			continue
		}
		fmt.Fprintf(tw, "\t%s\t%d\t%.3g\t%s\t%s\n", k.Largest, k.Grid, float64(k.Flops)/1e6, size(k.Bytes), microseconds(k.FloorUS))
	}
	if err := tw.Flush(); err != nil {
		return err
	}
	return in.printProfile(w, t)
}

// printChoices counts the choices of each target, and lists those that its table did not
// make.
func (in *bundleInspection) printChoices(w io.Writer) error {
	for _, t := range in.Totals {
		var all, others []choiceRow
		for _, c := range in.Choices {
			if c.Target != t.Target {
				continue
			}
			all = append(all, c)
			if c.By != plan.ByTable {
				others = append(others, c)
			}
		}
		if len(all) == 0 {
			continue
		}
		fmt.Fprintf(w, "\n%s: %d choices by the target's table, %d by the cost model\n", t.Target, len(all)-len(others), len(others))
		tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
		for _, c := range others {
			fmt.Fprintf(tw, "  %s\t%s\t%s\t%s\t%s\n", c.Form, c.Key, count(int64(c.Rows), "row"), c.Taken, c.Why)
		}
		if err := tw.Flush(); err != nil {
			return err
		}
	}
	return nil
}

// around says what runs beside the launches.
func (t targetTotal) around() string {
	if t.Around == 0 {
		return ""
	}
	return fmt.Sprintf(" (and %d more kernels around each run)", t.Around)
}

// printDetail writes what the table has no room for.
func (k *bundleKernel) printDetail(w io.Writer, detail bool) error {
	if detail {
		fmt.Fprintf(w, "\n%s (%s)\n  form %s\n", k.Name, k.bundleTarget, k.Chosen)
		for _, r := range k.Rejected {
			fmt.Fprintf(w, "  not %s: %s\n", r.Form, r.Reason)
		}
		fmt.Fprintf(w, "  spec %s\n", k.Spec)
		if k.Args != nil {
			if err := k.printArgs(w, tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)); err != nil {
				return err
			}
		}
	}
	k.printAsm(w)
	if k.LL != "" {
		fmt.Fprintf(w, "\n; %s (%s)\n%s", k.Name, k.bundleTarget, k.LL)
	}
	return nil
}

// size is a number of bytes for people.
func size(n int64) string {
	switch {
	case n >= 10e9:
		return fmt.Sprintf("%.1f GB", float64(n)/1e9)
	case n >= 10e6:
		return fmt.Sprintf("%.1f MB", float64(n)/1e6)
	case n >= 10e3:
		return fmt.Sprintf("%.1f kB", float64(n)/1e3)
	}
	return fmt.Sprintf("%d B", n)
}

func microseconds(us *float64) string {
	if us == nil {
		return "-"
	}
	return fmt.Sprintf("%.3g", *us)
}
