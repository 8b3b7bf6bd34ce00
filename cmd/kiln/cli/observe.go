package cli

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/kiln-project/kiln/ir"
	"github.com/kiln-project/kiln/passes"
)

// observer shows on standard error, or in files, what passes do. One observer
// watches the run of one module.
type observer struct {
	w       io.Writer
	before  []string // passes
	after   []string // passes, or all
	changed bool
	dir     string // "" for no files
	remarks string // text, json or ""
	times   bool

	rows []*passTime
	err  error // the first of writing
}

// passTime is a row of --time-passes.
type passTime struct {
	name          string
	runs          int
	took          time.Duration
	before, after int // ops
}

// newObserver reads the flags that ask for something to be shown; nil if none
// does. The subfolder of the dumps tells runs of one command apart.
func newObserver(e *env, f *flags, sub string) (*observer, error) {
	o := &observer{
		w: e.stderr, before: f.list("print-before"), after: f.list("print-after"), changed: f.boolean("print-changed"),
		dir: f.text("dump-dir"), remarks: f.text("remarks"), times: f.boolean("time-passes"),
	}
	for _, flag := range []string{"print-before", "print-after"} {
		for _, name := range f.list(flag) {
			if flag == "print-after" && name == "all" {
				continue
			}
			p, err := passes.Lookup(name)
			if err != nil {
				return nil, usagef("kiln passes", "%s: %v", f.origins(flag), err)
			}
			if p.On == passes.Steps && p.Graph == nil && p.Name != "bind" {
				return nil, usagef("kiln inspect BUNDLE", "%s: pass %s makes launches, no graph", f.origins(flag), name)
			}
		}
	}
	if o.remarks != "" && o.remarks != "text" && o.remarks != "json" {
		return nil, usagef("--remarks text", "%s: unknown form %q: want text or json", f.origins("remarks"), o.remarks)
	}
	if len(o.before) == 0 && len(o.after) == 0 && !o.changed && o.dir == "" && o.remarks == "" && !o.times {
		return nil, nil
	}
	if o.dir != "" {
		o.dir = filepath.Join(o.dir, sub)
		if err := os.MkdirAll(o.dir, 0o755); err != nil {
			return nil, fmt.Errorf("%s: %w", f.origins("dump-dir"), err)
		}
		if err := removeDumps(o.dir); err != nil {
			return nil, fmt.Errorf("%s: %w", f.origins("dump-dir"), err)
		}
	}
	return o, nil
}

// removeDumps removes what an earlier dump left in a folder, so that its files are
// not taken for this one's.
func removeDumps(dir string) error {
	files, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, file := range files {
		m := dumpName.FindStringSubmatch(file.Name())
		if m == nil {
			continue
		}
		if _, err := passes.Lookup(m[1]); err != nil {
			continue
		}
		if err := os.Remove(filepath.Join(dir, file.Name())); err != nil {
			return err
		}
	}
	return nil
}

// dumpName are the files of dump.
var dumpName = regexp.MustCompile(`^\d{2,}-(.+?)(\.plan-\d{3,})?\.kir$`)

// watch has a module's passes tell the observer. A nil observer hears nothing.
func (o *observer) watch(m *passes.Module) {
	if o == nil {
		return
	}
	first := m.Config.Trace
	m.Config.Trace = func(e passes.Event) {
		if first != nil {
			first(e)
		}
		o.event(m, e)
	}
}

func (o *observer) event(m *passes.Module, e passes.Event) {
	if e.Skipped {
		return
	}
	given, left := e.Given, e.Left
	if e.Before != nil {
		given, left = []*ir.Graph{e.Before}, []*ir.Graph{e.After}
	}
	if e.Err != nil {
		left = nil
	}
	o.count(e, given, left)
	if e.Pass.On == passes.Steps && e.Pass.Graph == nil && e.Pass.Name != "bind" {
		return // its launches are in the plans
	}
	if slices.Contains(o.before, e.Pass.Name) {
		for _, g := range given {
			o.banner("before", e.Pass, g, "")
			o.printf("%s", ir.Text(g))
		}
	}
	named := slices.Contains(o.after, e.Pass.Name) || slices.Contains(o.after, "all")
	if e.Err == nil && (named || o.changed) {
		for i, g := range left {
			same := unchanged(given, g)
			if same && named {
				o.banner("after", e.Pass, g, " (unchanged)")
			}
			if !same {
				o.banner("after", e.Pass, left[i], "")
				o.printf("%s", ir.Text(g))
			}
		}
	}
	if o.dir != "" && e.Err == nil {
		o.dump(m, e, left)
	}
}

// unchanged reports whether a graph of that name was given with the same text.
func unchanged(given []*ir.Graph, g *ir.Graph) bool {
	return slices.ContainsFunc(given, func(b *ir.Graph) bool { return b == g || b.Name == g.Name && ir.Text(b) == ir.Text(g) })
}

// banner is a comment of .kir text, so that what is printed can be read again.
func (o *observer) banner(when string, p *passes.Pass, g *ir.Graph, note string) {
	o.printf("// %s %s (%s)%s\n", when, p.Name, g.Name, note)
}

func (o *observer) printf(format string, args ...any) {
	if _, err := fmt.Fprintf(o.w, format, args...); err != nil && o.err == nil {
		o.err = err
	}
}

// count adds an application to its pass's row.
func (o *observer) count(e passes.Event, given, left []*ir.Graph) {
	i := slices.IndexFunc(o.rows, func(r *passTime) bool { return r.name == e.Pass.Name })
	if i < 0 {
		i = len(o.rows)
		o.rows = append(o.rows, &passTime{name: e.Pass.Name})
	}
	r := o.rows[i]
	r.runs++
	r.took += e.Took
	for _, g := range given {
		r.before += len(g.Ops)
	}
	for _, g := range left {
		r.after += len(g.Ops)
	}
}

// dump writes what a pass left: one file for each pass. Where there will be plans
// of several buckets, each step has its own, numbered as its plan is.
func (o *observer) dump(m *passes.Module, e passes.Event, left []*ir.Graph) {
	name := fmt.Sprintf("%02d-%s", len(o.rows), e.Pass.Name)
	numbered := func(i int) string { return fmt.Sprintf("%s.plan-%03d.kir", name, i) }
	several := m.Backend != nil && len(m.Steps) > 1
	switch {
	case several && e.Step >= 0:
		o.write(numbered(e.Step), os.O_TRUNC, left...)
	case several && e.Pass.Name == "bind":
		for i, s := range m.Steps {
			o.write(numbered(i), os.O_TRUNC, s.Graph)
		}
	case o.rows[len(o.rows)-1].runs > 1: // on another graph
		o.write(name+".kir", os.O_APPEND, left...)
	default:
		o.write(name+".kir", os.O_TRUNC, left...)
	}
}

func (o *observer) write(name string, mode int, graphs ...*ir.Graph) {
	file, err := os.OpenFile(filepath.Join(o.dir, name), os.O_CREATE|os.O_WRONLY|mode, 0o644)
	if err == nil {
		for _, g := range graphs {
			_, werr := io.WriteString(file, ir.Text(g))
			if err == nil {
				err = werr
			}
		}
		if cerr := file.Close(); err == nil {
			err = cerr
		}
	}
	if err != nil && o.err == nil {
		o.err = err
	}
}

// finish writes what is told at the end, also after a failure of the passes: the
// remarks and the table of times. It returns what could not be written.
func (o *observer) finish(m *passes.Module) error {
	if o == nil {
		return nil
	}
	for _, r := range m.Remarks {
		switch o.remarks {
		case "text":
			o.printf("%s\n", r)
		case "json":
			if err := printJSON(o.w, r); err != nil {
				return err
			}
		}
	}
	if o.times {
		var b strings.Builder
		tw := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
		fmt.Fprintln(tw, "pass\ttimes\tms\tops before\tops after")
		var total time.Duration
		for _, r := range o.rows {
			fmt.Fprintf(tw, "%s\t%d\t%.2f\t%d\t%d\n", r.name, r.runs, 1e3*r.took.Seconds(), r.before, r.after)
			total += r.took
		}
		fmt.Fprintf(tw, "total\t\t%.2f\t\t\n", 1e3*total.Seconds())
		if err := tw.Flush(); err != nil {
			return err
		}
		o.printf("%s", b.String())
	}
	return o.err
}
