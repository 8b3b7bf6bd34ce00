package cli

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/kiln-project/kiln/cmd/kiln/view"
	"github.com/kiln-project/kiln/codegen"
	"github.com/kiln-project/kiln/codegen/bundle"
	"github.com/kiln-project/kiln/codegen/object"
	"github.com/kiln-project/kiln/codegen/plan"
	"github.com/kiln-project/kiln/codegen/target"
	"github.com/kiln-project/kiln/ir"
	"github.com/kiln-project/kiln/passes"
)

// bindingText is a binding as --bind takes it.
func bindingText(bind map[string]int) string {
	var list []string
	for _, sym := range slices.Sorted(maps.Keys(bind)) {
		list = append(list, fmt.Sprintf("%s=%d", sym, bind[sym]))
	}
	return strings.Join(list, ",")
}

// binding reads --bind for a graph, which must have the symbols.
func (v *viewer) binding(g *ir.Graph) (map[string]int, error) {
	bind, err := bindings(v.f)
	if err != nil {
		return nil, err
	}
	for _, sym := range slices.Sorted(maps.Keys(bind)) {
		if !slices.Contains(g.Syms, sym) {
			return nil, usagef("kiln view --help", "%s: graph @%s has no symbol %s, it has %s", v.f.origins("bind"), g.Name, sym, strings.Join(g.Syms, ", "))
		}
	}
	return bind, nil
}

// lower adds the plan of an entry with its kernels; why there is none is a note.
func (v *viewer) lower(m *passes.Module, rec *view.Recorder, g *ir.Graph, bind map[string]int) error {
	if v.target == nil {
		v.note("no plan and no kernels: --target chooses what to compile for")
		return nil
	}
	if g.Name == passes.PackGraph {
		v.note("no plan and no kernels: the evaluator runs the pack graph, once, when weights are bound")
		return nil
	}
	var free []string
	for _, sym := range g.Syms {
		if _, ok := bind[sym]; !ok {
			free = append(free, sym)
		}
	}
	if len(free) > 0 {
		v.note("no plan and no kernels: --bind leaves %s open", strings.Join(free, ", "))
		return nil
	}
	if len(bind) > 0 {
		v.fact("binding", "%s", bindingText(bind))
	}
	module, code, err := v.compile(m, []passes.Bucket{{Entry: g.Name, Bind: bind}})
	v.page.Columns = rec.Columns
	if err != nil {
		return err
	}
	v.addPlan(module, module.Plans[0], code)
	return nil
}

// compile lowers a bucket and says of each kernel what is to be known here.
func (v *viewer) compile(m *passes.Module, buckets []passes.Bucket) (*plan.Module, map[string]view.Kernel, error) {
	disabled, err := disabledKernels(v.f)
	if err != nil {
		return nil, nil, err
	}
	cc, done, err := newCompiler(v.e, v.f)
	if err == nil {
		defer done()
		cc.Disable = disabled
		err = cc.Tools.CheckTarget(v.e.ctx, v.target.Triple, v.target.CPU, v.target.Features)
	}
	switch {
	case v.e.ctx.Err() != nil:
		return nil, nil, v.e.ctx.Err()
	case err != nil && v.f.text("llvm") != "":
		return nil, nil, err
	case err != nil:
		v.note("no registers and no instructions: %v", err)
		return v.compileWithoutLLVM(m, buckets, disabled)
	}
	v.progress.say("planning")
	cc.Progress = func(n, total int) { v.progress.count("compiling kernels", n, total) }
	files, _, err := cc.Build(v.e.ctx, v.target, m, buckets, codegen.Emit{LL: true, Asm: true})
	if err != nil {
		return nil, nil, err
	}
	v.fact("LLVM", "%s", cc.Tools.Version)
	c, err := files.Decode(v.target.Name)
	if err != nil {
		return nil, nil, err
	}
	code, err := v.kernels(c, func(name string) string {
		text, err := files.Get("ir/" + name)
		if err != nil { // it was not emitted
			return ""
		}
		return string(text)
	})
	return c.Module, code, err
}

// compileWithoutLLVM goes as far as LLVM IR.
func (v *viewer) compileWithoutLLVM(m *passes.Module, buckets []passes.Bucket, disabled []string) (*plan.Module, map[string]view.Kernel, error) {
	u := codegen.NewUnit(v.target)
	for _, form := range disabled {
		u.Disable[form] = true
	}
	if err := passes.Lower(m, buckets, u); err != nil {
		return nil, nil, err
	}
	code := map[string]view.Kernel{}
	for _, k := range u.Kernels {
		code[k.Symbol] = view.Kernel{IR: k.IR}
	}
	return u.Module, code, nil
}

// kernels reads what the code object and the emitted files say of the kernels.
func (v *viewer) kernels(c *bundle.Code, emitted func(name string) string) (map[string]view.Kernel, error) {
	code := map[string]view.Kernel{}
	for _, k := range c.Module.Kernels {
		code[k.Symbol] = view.Kernel{IR: emitted("ll/" + k.Symbol + ".ll"), ISA: emitted("s/" + k.Symbol + ".s")}
	}
	if len(c.Object) == 0 { // without kernels there is none
		return code, nil
	}
	file, err := object.Read(c.Object)
	if err != nil {
		return nil, err
	}
	for _, row := range newInspection("", file).Kernels {
		if k, ok := code[row.Name]; ok {
			k.Resources = resources(row)
			code[row.Name] = k
		}
	}
	return code, nil
}

// resources are the numbers that inspect prints of a kernel, those that its kind
// of target has.
func resources(k kernelRow) []view.Fact {
	var out []view.Fact
	for _, r := range []struct {
		name string
		n    *int
	}{
		{"vgpr", k.VGPR}, {"agpr", k.AGPR}, {"sgpr", k.SGPR}, {"vgpr spills", k.VGPRSpills}, {"sgpr spills", k.SGPRSpills},
		{"lds", k.LDSBytes}, {"scratch", k.ScratchBytes}, {"occupancy", k.Occupancy}, {"code bytes", k.CodeBytes},
	} {
		if r.n != nil {
			out = append(out, view.Fact{Name: r.name, Text: strconv.Itoa(*r.n)})
		}
	}
	return out
}

// addPlan puts a plan on the page, with the kernels that it launches.
func (v *viewer) addPlan(m *plan.Module, p *plan.Plan, code map[string]view.Kernel) {
	chip, _, _ := strings.Cut(m.Target, ":")
	used := map[string]view.Kernel{}
	for _, l := range p.Launches {
		symbol := m.Kernels[l.Kernel].Symbol
		used[symbol] = code[symbol]
	}
	v.page.Plan = &view.Plan{Module: m, Plan: p, Chip: target.ChipOf(chip), Code: used}
}
