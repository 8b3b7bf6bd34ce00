package cli

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
)

// print writes the text form: a table of the kinds of layers, then their remarks.
func (x *explanation) print(w io.Writer) error {
	var bind []string
	for _, sym := range slices.Sorted(maps.Keys(x.Bind)) {
		bind = append(bind, fmt.Sprintf("%s=%d", sym, x.Bind[sym]))
	}
	fmt.Fprintf(w, "%s for %s, %s; %s", x.Entry, x.Target, strings.Join(bind, " "), floorTimes(x.Target, x.Card))
	for _, p := range describePasses(x.Passes) {
		fmt.Fprintf(w, ", %s %s", p.flag, p.value)
	}
	fmt.Fprint(w, "\n\n")
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(tw, "\t\tlaunches\t\tread+written\t\tfloor us\t")
	fmt.Fprintln(tw, "where\tlayers\trequired\tnow\trequired\tnow\trequired\tnow")
	for _, k := range x.Kinds {
		fmt.Fprintf(tw, "%s\t%s\t%s\n", k.title(), k.count(), k.Cost.cells())
	}
	fmt.Fprintf(tw, "the step\t\t%s\n", x.Total.cells())
	if err := tw.Flush(); err != nil {
		return err
	}
	for _, k := range x.Kinds {
		if len(k.Remarks)+len(k.Before)+len(k.After) == 0 {
			continue
		}
		fmt.Fprintf(w, "\n%s:\n", k.title())
		for _, r := range k.Remarks {
			times := ""
			if r.Count > 1 {
				times = fmt.Sprintf(" (%d times)", r.Count)
			}
			fmt.Fprintf(w, "  %s: %s: %s at %s: %s%s\n", r.Kind, r.Pass, r.Op, r.At, r.Text, times)
		}
		if err := printLaunches(w, "required", k.Before); err != nil {
			return err
		}
		if err := printLaunches(w, "now", k.After); err != nil {
			return err
		}
	}
	return nil
}

// floorTimes says whose floor times are shown, if the target has any.
func floorTimes(target string, card *string) string {
	if card == nil {
		return "no floor times: the rates of " + target + " are not known"
	}
	return "floor times of " + *card
}

func printLaunches(w io.Writer, title string, list []launchRow) error {
	if len(list) == 0 {
		return nil
	}
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintf(tw, "  launches, %s:\tform\tgrid\tread+written\tfloor us\n", title)
	for _, l := range list {
		fmt.Fprintf(tw, "  %s at %s\t%s\t%d\t%s\t%s\n", l.Op, l.Loc, l.Form, l.Grid, size(l.Bytes), microseconds(l.FloorUS))
	}
	return tw.Flush()
}

// title names a kind: its first layers, and what they have in common.
func (k *layerKind) title() string {
	if len(k.Layers) == 0 {
		return k.Name
	}
	const most = 3
	first := joinInts(k.Layers[:min(most, len(k.Layers))])
	if len(k.Layers) > most {
		first += "..."
	}
	if k.Ratio != nil {
		return fmt.Sprintf("%s %s (ratio %d)", k.Name, first, *k.Ratio)
	}
	return k.Name + " " + first
}

func (k *layerKind) count() string {
	if len(k.Layers) == 0 {
		return ""
	}
	return fmt.Sprint(len(k.Layers))
}

func (c beforeAfter) cells() string {
	return fmt.Sprintf("%d\t%d\t%s\t%s\t%s\t%s", c.Before.Launches, c.After.Launches, size(c.Before.Bytes), size(c.After.Bytes),
		floorCell(c.Before.FloorUS), floorCell(c.After.FloorUS))
}

// floorCell is a floor time in whole tenths, where there are some.
func floorCell(us *float64) string {
	if us == nil || *us < 10 {
		return microseconds(us)
	}
	return fmt.Sprintf("%.1f", *us)
}
