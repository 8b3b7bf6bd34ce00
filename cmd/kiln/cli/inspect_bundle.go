package cli

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/kiln-project/kiln/codegen/bundle"
	"github.com/kiln-project/kiln/codegen/object"
	"github.com/kiln-project/kiln/codegen/plan"
	"github.com/kiln-project/kiln/codegen/target"
	"github.com/kiln-project/kiln/runtime/emu"
)

// bundleInspection is what inspect says of a bundle.
type bundleInspection struct {
	Bundle     string          `json:"bundle"`
	Kiln       string          `json:"kiln"`
	LLVM       string          `json:"llvm"`
	Settings   bundle.Settings `json:"settings"`
	Totals     []targetTotal   `json:"totals"` // one for each target
	Entries    []bundleEntry   `json:"entries"`
	Kernels    []bundleKernel  `json:"kernels"`
	Choices    []choiceRow     `json:"choices"`    // among ways to run a kernel
	Decomposed []decomposedRow `json:"decomposed"` // composites that no kernel form took
	Problems   []string        `json:"problems"`
	Notes      []string        `json:"notes"`
}

// targetTotal sums up a target.
type targetTotal struct {
	Target      string  `json:"target"`
	Card        *string `json:"card"` // whose rates the floor times are of
	Kernels     int     `json:"kernels"`
	Plans       int     `json:"plans"`
	Launches    int     `json:"launches"` // of all plans
	Around      int     `json:"around"`   // kernels around the launches of each run
	CodeBytes   int     `json:"code_bytes"`
	VGPRSpills  int     `json:"vgpr_spills"`
	SGPRSpills  int     `json:"sgpr_spills"`
	WeightBytes int64   `json:"weight_bytes"`
	PoolBytes   int64   `json:"pool_bytes"`
	ArenaBytes  int64   `json:"arena_bytes"` // of the largest plan
}

// bundleEntry is one plan. The floor time is the sum of its launches'.
type bundleEntry struct {
	Name       string   `json:"name"`
	Target     string   `json:"target"`
	Tokens     int      `json:"tokens"`
	Batch      int      `json:"batch"`
	OrderClass string   `json:"order_class"`
	Launches   int      `json:"launches"`
	ArenaBytes int64    `json:"arena_bytes"`
	Flops      int64    `json:"flops"`
	Bytes      int64    `json:"bytes"`
	FloorUS    *float64 `json:"floor_us"`
}

// bundleKernel is one kernel with where the plans use it.
type bundleKernel struct {
	kernelRow
	Ops      []string        `json:"ops"`
	Layers   int             `json:"layers"` // layers of the model that launch it
	Chosen   string          `json:"chosen"` // kernel form
	Rejected []plan.Rejected `json:"rejected"`
	Spec     string          `json:"spec"`
	LL       string          `json:"ll,omitempty"`
	// Profile is what a run on an emulated chip counted; sums over its launches.
	Profile *emu.KernelCounters `json:"profile,omitempty"`
	// Of the launch that moves the most bytes:
	Largest string   `json:"largest"` // its entry and rows
	Grid    int      `json:"grid"`
	Flops   int64    `json:"flops"`
	Bytes   int64    `json:"bytes"`
	FloorUS *float64 `json:"floor_us"`
}

type choiceRow struct {
	Target string `json:"target"`
	plan.Choice
}

type decomposedRow struct {
	Target string `json:"target"`
	plan.Decomposed
}

// isBundle reports whether path is a bundle's folder.
func isBundle(path string) bool {
	info, err := os.Stat(filepath.Join(path, "manifest.json"))
	return err == nil && info.Mode().IsRegular()
}

func inspectBundle(e *env, f *flags, path string) error {
	b, err := readManifest(f, path)
	if err != nil {
		return err
	}
	if err := b.Verify(path); err != nil {
		return &codedError{exitFailed, err, recompile(f, "")}
	}
	in := &bundleInspection{
		Bundle: path, Kiln: b.Manifest.Kiln, LLVM: b.Manifest.LLVM, Settings: b.Manifest.Settings,
		Totals: []targetTotal{}, Entries: []bundleEntry{}, Kernels: []bundleKernel{}, Choices: []choiceRow{}, Decomposed: []decomposedRow{}, Problems: []string{}, Notes: []string{},
	}
	for _, t := range b.Manifest.Targets {
		if err := in.add(e, f, b, path, t); err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
	}
	if file := f.text("profile"); file != "" {
		if err := in.profile(file); err != nil {
			return err
		}
	}
	if f.given("kernel") {
		var names []string
		for _, k := range in.Kernels {
			names = append(names, k.Name)
		}
		if !slices.Contains(names, f.text("kernel")) {
			return usagef("kiln inspect "+path, "--kernel: %s has no kernel %q: want one of %s", path, f.text("kernel"), shortList(names))
		}
		in.Kernels = slices.DeleteFunc(in.Kernels, func(k bundleKernel) bool { return k.Name != f.text("kernel") })
	}
	if f.boolean("ll") {
		if err := in.readLL(b, path); err != nil {
			return err
		}
	}
	if f.boolean("json") {
		return printJSON(e.stdout, in)
	}
	return in.print(e, f.given("kernel"))
}

// readLL fills in the LLVM IR of the kernels that are shown.
func (in *bundleInspection) readLL(b *bundle.Bundle, path string) error {
	for i := range in.Kernels {
		k := &in.Kernels[i]
		text, err := b.Emitted(path, k.bundleTarget, "ll/"+k.Name+".ll")
		if err != nil {
			return refuse(fmt.Errorf("--ll: %w", err), "kiln compile --emit ll ... -o "+path)
		}
		k.LL = string(text)
	}
	return nil
}

// add inspects what a bundle holds for one target.
func (in *bundleInspection) add(e *env, f *flags, b *bundle.Bundle, path, name string) error {
	code, err := readCode(f, b, path, name)
	if err != nil {
		return err
	}
	resources := map[string]kernelRow{}
	if len(code.Object) > 0 { // a bundle without kernels has none
		file, err := object.Read(code.Object)
		if err != nil {
			return err
		}
		of := newInspection(path, file)
		if len(file.Objects()) > 0 {
			if err := of.disassemble(e, f, file); err != nil {
				return err
			}
		} else if f.boolean("asm") {
			return refuse(fmt.Errorf("--asm disassembles AMDGPU code only, not %s", name), asmHint(file.Kind, filepath.Join(path, name, bundle.ObjectName(name))))
		}
		for _, k := range of.Kernels {
			resources[k.Name] = k
		}
		for _, p := range of.Problems {
			in.Problems = append(in.Problems, name+": "+p)
		}
		for _, n := range of.Notes {
			in.Notes = append(in.Notes, name+": "+n)
		}
	}
	chip, _, _ := strings.Cut(name, ":")
	card := target.ChipOf(chip)
	total := targetTotal{Target: name, Kernels: len(code.Module.Kernels), Plans: len(code.Module.Plans), Around: code.Module.Around(), CodeBytes: len(code.Object)}
	if card != nil {
		total.Card = &card.Card
	}
	rows := make([]bundleKernel, len(code.Module.Kernels))
	for i, k := range code.Module.Kernels {
		row, ok := resources[k.Symbol]
		if !ok {
			in.Problems = append(in.Problems, fmt.Sprintf("%s: kernel %s is not in the code object", name, k.Symbol))
			row = kernelRow{Name: k.Symbol, Target: name}
		}
		row.bundleTarget = name
		rows[i] = bundleKernel{kernelRow: row, Chosen: k.Form, Rejected: append([]plan.Rejected{}, k.Rejected...), Spec: k.Spec}
		total.VGPRSpills += value(row.VGPRSpills)
		total.SGPRSpills += value(row.SGPRSpills)
	}
	in.use(code.Module, rows, card, b.Manifest.OrderClass, &total)
	for _, s := range code.Module.Weights {
		total.WeightBytes += s.Bytes[0] + s.Bytes[1]
	}
	for _, s := range code.Module.States {
		total.PoolBytes += s.Bytes[0] + s.Bytes[1]
	}
	for _, c := range code.Module.Choices {
		in.Choices = append(in.Choices, choiceRow{name, c})
	}
	for _, d := range code.Module.Decomposed {
		in.Decomposed = append(in.Decomposed, decomposedRow{name, d})
	}
	in.Kernels = append(in.Kernels, rows...)
	in.Totals = append(in.Totals, total)
	return nil
}

// use walks the plans: it adds their entries and fills in where each kernel is
// launched.
func (in *bundleInspection) use(m *plan.Module, rows []bundleKernel, card *target.Chip, classes map[string]string, total *targetTotal) {
	ops, layers := make([]map[string]bool, len(rows)), make([]map[string]bool, len(rows))
	for i := range rows {
		ops[i], layers[i] = map[string]bool{}, map[string]bool{}
	}
	for _, p := range m.Plans {
		entry := entryOf(p, classes[p.Entry])
		entry.Target = m.Target
		var floor float64
		for _, l := range p.Launches {
			ops[l.Kernel][l.Op] = true
			if parts := strings.SplitN(l.Loc, ".", 3); len(parts) > 1 && (parts[0] == "layers" || parts[0] == "mtp") {
				layers[l.Kernel][parts[0]+"."+parts[1]] = true
			}
			entry.Flops += l.Flops
			entry.Bytes += l.Bytes
			var us *float64
			if card != nil {
				us = ptrTo(card.Floor(l.Bytes, l.Flops, target.Rate(l.Rate)))
				floor += *us
			}
			if k := &rows[l.Kernel]; k.Largest == "" || l.Bytes > k.Bytes {
				k.Largest = fmt.Sprintf("%s of %d", p.Entry, entry.Tokens)
				k.Grid, k.Flops, k.Bytes, k.FloorUS = l.Grid, l.Flops, l.Bytes, us
			}
		}
		if card != nil {
			entry.FloorUS = &floor
		}
		total.Launches += entry.Launches
		total.ArenaBytes = max(total.ArenaBytes, entry.ArenaBytes)
		in.Entries = append(in.Entries, entry)
	}
	if s := m.Step; s != nil { // no plan launches them
		ops[s.Prologue]["before each step"], ops[s.Epilogue]["after each step"] = true, true
	}
	for i := range rows {
		rows[i].Ops, rows[i].Layers = slices.Sorted(maps.Keys(ops[i])), len(layers[i])
	}
}

func entryOf(p *plan.Plan, class string) bundleEntry {
	return bundleEntry{Name: p.Entry, OrderClass: class, Launches: len(p.Launches), ArenaBytes: p.Arena, Tokens: p.Rows(), Batch: p.Symbol("B")}
}

// value is a number that may be unknown, or 0.
func value(v *int) int {
	if v == nil {
		return 0
	}
	return *v
}
