package cli

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/kiln-project/kiln/codegen/bundle"
	"github.com/kiln-project/kiln/codegen/object"
	"github.com/kiln-project/kiln/codegen/plan"
)

// bundleInspection is what inspect says of a bundle.
type bundleInspection struct {
	Bundle   string             `json:"bundle"`
	Kiln     string             `json:"kiln"`
	LLVM     string             `json:"llvm"`
	Settings bundle.Settings    `json:"settings"`
	Targets  []targetInspection `json:"targets"`
}

type targetInspection struct {
	Target  string            `json:"target"`
	Entries []bundleEntry     `json:"entries"`
	Kernels []bundleKernelRow `json:"kernels"`
}

// bundleEntry is one plan.
type bundleEntry struct {
	Name       string `json:"name"`
	Tokens     int    `json:"tokens"`
	Batch      int    `json:"batch"`
	OrderClass string `json:"order_class"`
	Launches   int    `json:"launches"`
	ArenaBytes int64  `json:"arena_bytes"`
}

// bundleKernelRow is one kernel with where the plans use it. Registers are known
// for GPU targets only.
type bundleKernelRow struct {
	Name         string   `json:"name"`
	Form         string   `json:"form"`
	Spec         string   `json:"spec"`
	Ops          []string `json:"ops"`
	Layers       int      `json:"layers"` // layers of the model that launch it
	VGPR         *int     `json:"vgpr"`
	VGPRSpills   *int     `json:"vgpr_spills"`
	LDSBytes     *int     `json:"lds_bytes"`
	ScratchBytes *int     `json:"scratch_bytes"`
	Occupancy    *int     `json:"occupancy"`
	CodeBytes    *int     `json:"code_bytes"`
}

// isBundle reports whether path is a bundle's folder.
func isBundle(path string) bool {
	info, err := os.Stat(filepath.Join(path, "manifest.json"))
	return err == nil && info.Mode().IsRegular()
}

func inspectBundle(e *env, f *flags, path string) error {
	if f.given("kernel") || f.boolean("asm") {
		return usagef("kiln inspect "+filepath.Join(path, "TARGET", "kernels.hsaco"), "--kernel and --asm look into a code object, %s is a bundle", path)
	}
	b, err := bundle.ReadManifest(path)
	if err != nil {
		return err
	}
	in := bundleInspection{Bundle: path, Kiln: b.Manifest.Kiln, LLVM: b.Manifest.LLVM, Settings: b.Manifest.Settings}
	for _, t := range b.Manifest.Targets {
		code, err := b.ReadCode(path, t)
		if err != nil {
			return err
		}
		row, err := inspectTarget(t, code, b.Manifest.OrderClass)
		if err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		in.Targets = append(in.Targets, row)
	}
	if f.boolean("json") {
		return printJSON(e.stdout, in)
	}
	return in.print(e)
}

func inspectTarget(name string, code *bundle.Code, classes map[string]string) (targetInspection, error) {
	out := targetInspection{Target: name}
	ops, layers := map[string]map[string]bool{}, map[string]map[string]bool{}
	for _, p := range code.Plans {
		out.Entries = append(out.Entries, entryOf(p, classes[p.Entry]))
		for _, l := range p.Launches {
			if ops[l.Kernel] == nil {
				ops[l.Kernel], layers[l.Kernel] = map[string]bool{}, map[string]bool{}
			}
			ops[l.Kernel][l.Op] = true
			if parts := strings.SplitN(l.Loc, ".", 3); len(parts) > 1 && (parts[0] == "layers" || parts[0] == "mtp") {
				layers[l.Kernel][parts[0]+"."+parts[1]] = true
			}
		}
	}
	resources := map[string]*object.Kernel{}
	file, err := object.Read(code.Object)
	if err != nil {
		return out, err
	}
	for _, o := range file.Objects() {
		for i := range o.Kernels {
			resources[o.Kernels[i].Name] = &o.Kernels[i]
		}
	}
	for _, k := range code.Kernels {
		row := bundleKernelRow{Name: k.Symbol, Form: k.Form, Spec: k.Spec, Ops: slices.Sorted(maps.Keys(ops[k.Symbol])), Layers: len(layers[k.Symbol])}
		if r := resources[k.Symbol]; r != nil {
			row.VGPR, row.VGPRSpills, row.Occupancy = ptrTo(r.VGPRs), r.VGPRSpills, r.Occupancy
			row.LDSBytes, row.ScratchBytes, row.CodeBytes = ptrTo(r.LDSBytes), ptrTo(r.ScratchBytes), ptrTo(len(r.Code))
		}
		out.Kernels = append(out.Kernels, row)
	}
	return out, nil
}

func entryOf(p *plan.Plan, class string) bundleEntry {
	e := bundleEntry{Name: p.Entry, OrderClass: class, Launches: len(p.Launches), ArenaBytes: p.Arena}
	k := 0
	for _, b := range p.Binding {
		switch b.Symbol {
		case "T":
			e.Tokens = b.Value
		case "B":
			e.Batch = b.Value
		case "K":
			k = b.Value
		}
	}
	if e.Tokens == 0 {
		e.Tokens = e.Batch * (k + 1)
	}
	return e
}

func (in *bundleInspection) print(e *env) error {
	fmt.Fprintf(e.stdout, "%s: kiln %s, %s\n%s\n", in.Bundle, in.Kiln, in.LLVM, settingsLine(in.Settings))
	for _, t := range in.Targets {
		fmt.Fprintf(e.stdout, "\n%s\n", t.Target)
		tw := tabwriter.NewWriter(e.stdout, 0, 0, 2, ' ', 0)
		fmt.Fprintln(tw, "entry\ttokens\tbatch\torder class\tlaunches\tarena bytes")
		for _, r := range t.Entries {
			fmt.Fprintf(tw, "%s\t%d\t%d\t%s\t%d\t%d\n", r.Name, r.Tokens, r.Batch, r.OrderClass, r.Launches, r.ArenaBytes)
		}
		if err := tw.Flush(); err != nil {
			return err
		}
		fmt.Fprintln(e.stdout)
		fmt.Fprintln(tw, "kernel\tform\tops\tlayers\tvgpr\tspills\tlds\tscratch\toccupancy\tcode")
		for _, k := range t.Kernels {
			fmt.Fprintf(tw, "%s\t%s\t%s\t%d\t%s\t%s\t%s\t%s\t%s\t%s\n", k.Name, k.Form, strings.Join(k.Ops, ","), k.Layers,
				cell(k.VGPR), cell(k.VGPRSpills), cell(k.LDSBytes), cell(k.ScratchBytes), cell(k.Occupancy), cell(k.CodeBytes))
		}
		if err := tw.Flush(); err != nil {
			return err
		}
	}
	return nil
}
