package cli

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/kiln-project/kiln/cmd/kiln/view"
	"github.com/kiln-project/kiln/codegen/target"
	"github.com/kiln-project/kiln/ir"
	"github.com/kiln-project/kiln/models/dsv4"
	"github.com/kiln-project/kiln/passes"
	"github.com/kiln-project/kiln/runtime/engine"
)

const viewHelp = `Writes one HTML page that needs no network: the graph of an entry after every
pass that changed it, with remarks, and, for a target, its plan and kernels.

  kiln view --model DIR --entry decode --target gfx950 --bind B=64 -o page.html
  kiln view FILE.kir [--target T --bind T=8] -o page.html
  kiln view --bundle F.kiln --entry decode [--bind B=64] -o page.html

Symbols of a model that --bind leaves out are those of a step of one request with
8192 positions. A bundle has graphs, LLVM IR and instructions if it was compiled
with --emit kir,ll,s. A page that is there already is replaced.`

// viewer collects what goes into a page.
type viewer struct {
	e        *env
	f        *flags
	progress *progress
	page     view.Page
	target   *target.Target // nil: passes only
}

func runView(e *env, f *flags, args []string) error {
	out := f.text("out")
	if !strings.HasSuffix(out, ".html") {
		return usagef("-o page.html", "--out %s: a page's name ends in .html", out)
	}
	if _, err := os.Stat(filepath.Dir(out)); err != nil {
		return fmt.Errorf("--out %s: %w", out, err)
	}
	v := &viewer{e: e, f: f, progress: newProgress(e, f)}
	defer v.progress.close()
	if err := v.collect(args); err != nil {
		return err
	}
	v.progress.say("writing %s", out)
	n, err := v.write(out)
	v.progress.clear()
	if err != nil {
		return err
	}
	changed, launches, kernels := 0, 0, 0
	for _, c := range v.page.Columns {
		if c.State == view.Changed {
			changed++
		}
	}
	if p := v.page.Plan; p != nil {
		launches, kernels = len(p.Plan.Launches), len(p.Code)
	}
	for _, n := range v.page.Notes {
		e.notef("note: %s", n)
	}
	_, err = fmt.Fprintf(e.stdout, "%s: columns %d, passes that changed nothing %d, launches %d, kernels %d, %s\n",
		out, changed, len(v.page.Columns)-changed, launches, kernels, size(n))
	return err
}

// collect fills the page from where the command line says.
func (v *viewer) collect(args []string) error {
	if len(args) == 1 {
		if given := v.f.origins("model", "bundle"); given != "" && strings.Contains(given, "--") {
			return usagef("kiln view --help", "view shows %s or %s, not both", args[0], given)
		}
		return v.file(args[0])
	}
	from, err := v.f.oneOf("model", "bundle")
	if err != nil {
		return usagef("kiln view --help", "view needs exactly one of --model, --bundle and FILE.kir")
	}
	if from == "bundle" {
		return v.bundle(v.f.text("bundle"))
	}
	return v.model(v.f.text("model"))
}

// write makes the page appear whole or not at all, and returns its size.
func (v *viewer) write(path string) (int64, error) {
	tmp, err := os.CreateTemp(filepath.Dir(path), ".kiln-*")
	if err != nil {
		return 0, err
	}
	defer os.Remove(tmp.Name())
	err = errors.Join(v.page.Write(tmp), tmp.Chmod(0o644))
	info, serr := tmp.Stat()
	if err := errors.Join(err, serr, tmp.Close()); err != nil {
		return 0, err
	}
	return info.Size(), os.Rename(tmp.Name(), path)
}

func (v *viewer) fact(name, format string, args ...any) {
	v.page.Facts = append(v.page.Facts, view.Fact{Name: name, Text: fmt.Sprintf(format, args...)})
}

func (v *viewer) note(format string, args ...any) {
	v.page.Notes = append(v.page.Notes, fmt.Sprintf(format, args...))
}

// chooseTarget reads --target; none is fine.
func (v *viewer) chooseTarget() error {
	if v.f.text("target") == "" {
		return nil
	}
	list, err := compileTargets(v.f.text("target"))
	if err != nil {
		return err
	}
	if len(list) != 1 {
		return usagef("--target gfx950", "--target: a page shows one target, got %d", len(list))
	}
	v.target = list[0]
	v.fact("target", "%s", v.target.Name)
	return nil
}

// model shows an entry of a model.
func (v *viewer) model(dir string) error {
	entry := v.f.text("entry")
	if entry == "" {
		return usagef("kiln view --model "+dir+" --entry decode -o page.html", "--model needs --entry: %s or pack", entryNames)
	}
	o, err := options(v.f, false)
	if err != nil {
		return err
	}
	c, err := loadConfig(dir)
	if err != nil {
		return err
	}
	v.page.Title = entry + " of " + dir
	v.fact("numerics", "%s", o.Numerics)
	if err := v.chooseTarget(); err != nil {
		return err
	}
	v.progress.say("building the graphs")
	config, err := passConfig(v.f)
	if err != nil {
		return err
	}
	drafts, err := draftsOfEntry(v.f, c, entry, &o)
	if err != nil {
		return err
	}
	m, err := buildEntries(c, o, v.passTarget(), config, drafts...)
	if err != nil {
		return err
	}
	rec := view.Record(m, entry, "built", "the graph as the model's builder makes it")
	v.progress.say("running the passes")
	err = passes.Run(m)
	v.page.Columns = rec.Columns
	if err != nil {
		return err
	}
	g := entryGraph(m, entry)
	switch {
	case g == nil && (entry == string(dsv4.Draft) || entry == passes.PackGraph):
		return noGraph(v.f, entry)
	case g == nil:
		return usagef("kiln view --help", "--entry: unknown entry %q: want %s or pack", entry, entryNames)
	}
	given, err := v.binding(g)
	if err != nil {
		return err
	}
	layout, err := engine.LayoutOf(m.Entries[0])
	if err != nil {
		return err
	}
	bind := stepBinding(g, given, layout)
	if k := bind["K"]; k > o.MaxDraft {
		return refuse(fmt.Errorf("--bind K=%d: the rings have room for %d drafts", k, o.MaxDraft), fmt.Sprintf("--bind K=%d", o.MaxDraft))
	}
	return v.lower(m, rec, g, bind)
}

func (v *viewer) passTarget() passes.Target {
	if v.target == nil {
		return passes.Target{}
	}
	return v.target.ForPasses()
}

// stepBinding completes a binding of a model's entry: one request, whose pools
// hold as many positions as compile gives them by default.
func stepBinding(g *ir.Graph, given map[string]int, l engine.Layout) map[string]int {
	bind := map[string]int{}
	set := func(sym string, n int) {
		if have, ok := given[sym]; ok {
			n = have
		}
		bind[sym] = n
	}
	set("B", 1)
	set("K", 1)
	set("T", bind["B"])
	if g.Name == string(dsv4.Prefill) {
		set("T", prefillBuckets[0])
	}
	set("O", bind["B"])
	if g.Name == string(dsv4.Draft) {
		set("O", bind["T"])
	}
	set("R", bind["B"])
	set("P", l.Pages(min(l.MaxPositions, defaultMaxSeq)))
	set("N", bind["R"]*bind["P"])
	out := map[string]int{}
	for _, sym := range g.Syms {
		if n, ok := bind[sym]; ok {
			out[sym] = n
		}
	}
	return out
}

// file shows a graph of a .kir file.
func (v *viewer) file(path string) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	graphs, err := ir.Parse(path, string(text))
	if err != nil {
		return err
	}
	config, err := passConfig(v.f)
	if err != nil {
		return err
	}
	m := &passes.Module{Config: config}
	var names []string
	for _, g := range graphs {
		if err := ir.Verify(g); err != nil {
			return err
		}
		if names = append(names, g.Name); g.Name == passes.PackGraph {
			m.Pack = g
		} else {
			m.Entries = append(m.Entries, g)
		}
	}
	entry := v.f.text("entry")
	if entry == "" && len(graphs) == 1 {
		entry = names[0]
	}
	if entryGraph(m, entry) == nil {
		return usagef("kiln view "+path+" --entry "+names[0]+" -o page.html", "--entry %q: %s has %s", entry, path, shortList(names))
	}
	v.page.Title = entry + " of " + path
	if err := v.chooseTarget(); err != nil {
		return err
	}
	m.Target = v.passTarget()
	rec := view.Record(m, entry, "read", "the graph as the file has it")
	err = passes.Run(m)
	v.page.Columns = rec.Columns
	if err != nil {
		return err
	}
	g := entryGraph(m, entry)
	bind, err := v.binding(g)
	if err != nil {
		return err
	}
	return v.lower(m, rec, g, bind)
}
