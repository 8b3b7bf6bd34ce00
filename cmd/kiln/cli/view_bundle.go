package cli

import (
	"fmt"
	"slices"

	"github.com/kiln-project/kiln/cmd/kiln/view"
	"github.com/kiln-project/kiln/codegen/plan"
	"github.com/kiln-project/kiln/ir"
)

// bundle shows a plan of a bundle, the first that --entry and --bind leave.
func (v *viewer) bundle(path string) error {
	b, err := readManifest(v.f, path)
	if err != nil {
		return err
	}
	name := v.f.text("target")
	if name == "" && len(b.Manifest.Targets) > 0 {
		name = b.Manifest.Targets[0]
	}
	if !slices.Contains(b.Manifest.Targets, name) {
		return usagef("kiln inspect "+path, "--target %s: %s was compiled for %s", name, path, shortList(b.Manifest.Targets))
	}
	o, err := options(v.f, false)
	if err != nil {
		return err
	}
	wanted := &o.Head
	if !v.f.given("head") {
		wanted = nil
	}
	if _, err := agrees(v.f, path, name, b.Manifest.Settings, false, wanted); err != nil {
		return err
	}
	c, err := readCode(v.f, b, path, name)
	if err != nil {
		return err
	}
	p, err := v.choosePlan(path, c.Module)
	if err != nil {
		return err
	}
	v.page.Title = p.Entry + " of " + path
	v.fact("numerics", "%s", b.Manifest.Settings.Numerics)
	v.fact("target", "%s", name)
	bind := map[string]int{}
	for _, s := range p.Binding {
		bind[s.Symbol] = s.Value
	}
	v.fact("binding", "%s", bindingText(bind))
	v.fact("LLVM", "%s", b.Manifest.LLVM)
	if text, err := b.Emitted(path, name, "kir/"+p.Entry+".kir"); err != nil {
		v.note("no graph: the bundle was compiled without --emit kir")
	} else {
		g, err := ir.ParseOne(path+": "+p.Entry+".kir", string(text))
		if err != nil {
			return err
		}
		v.page.Columns = []view.Column{{Name: "compiled", Doc: "the graph after the passes on graphs", State: view.Changed, Graph: g}}
	}
	missing := map[string]bool{}
	code, err := v.kernels(c, func(file string) string {
		text, err := b.Emitted(path, name, file)
		if err != nil {
			missing[file[:2]] = true
		}
		return string(text)
	})
	if err != nil {
		return err
	}
	if missing["ll"] {
		v.note("no LLVM IR: the bundle was compiled without --emit ll")
	}
	if missing["s/"] {
		v.note("no instructions: the bundle was compiled without --emit s")
	}
	v.addPlan(c.Module, p, code)
	return nil
}

// choosePlan finds the first plan of an entry that agrees with --bind.
func (v *viewer) choosePlan(path string, m *plan.Module) (*plan.Plan, error) {
	bind, err := bindings(v.f)
	if err != nil {
		return nil, err
	}
	var entries []string
	var fit []*plan.Plan
	all := 0
	entry := v.f.text("entry")
	for _, p := range m.Plans {
		if !slices.Contains(entries, p.Entry) {
			entries = append(entries, p.Entry)
		}
		if p.Entry != entry {
			continue
		}
		all++
		agrees := true
		for sym, n := range bind {
			agrees = agrees && p.Symbol(sym) == n
		}
		if agrees {
			fit = append(fit, p)
		}
	}
	if all == 0 {
		return nil, usagef("kiln view --bundle "+path+" --entry "+entries[0]+" -o page.html", "--entry %q: %s has %s", entry, path, shortList(entries))
	}
	if len(fit) == 0 {
		return nil, usagef("kiln inspect "+path, "%s: none of the %d plans of %s is bound so", v.f.origins("bind"), all, entry)
	}
	v.fact("plan", "%s", fmt.Sprintf("the first of %d that fit, of %d for this entry", len(fit), all))
	return fit[0], nil
}
