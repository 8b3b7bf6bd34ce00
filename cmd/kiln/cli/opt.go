package cli

import (
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/kiln-project/kiln/codegen/target"
	"github.com/kiln-project/kiln/ir"
	"github.com/kiln-project/kiln/passes"
)

const optHelp = `Runs passes on .kir text, of FILE or standard input, and prints the graphs that
come out; a graph @pack is the pack graph and comes last. What runs is what
compile runs, up to select-kernels: required passes and those that the pipeline,
or --passes, names.

Passes on steps see the entries bound as --bind says; without it their symbols
stay, and what depends on them does not apply. --remarks says so.

Inputs of --split-input are separated by lines "// -----", and outputs likewise;
the errors of one do not hide the others.

A pass that panics or leaves a broken graph leaves a file that shows it, see
"try:" in the message.`

// splitLine separates the inputs of --split-input.
const splitLine = "// -----"

func runOpt(e *env, f *flags, args []string) error {
	config, err := passConfig(f)
	if err != nil {
		return err
	}
	config.VerifyEach = f.boolean("verify-each")
	var t passes.Target
	if f.text("target") != "" {
		row, err := target.Lookup(f.text("target"))
		if err != nil {
			return usagef("kiln opt --target gfx950", "%s: %v", f.origins("target"), err)
		}
		t = row.ForPasses()
	}
	bind, err := bindings(f)
	if err != nil {
		return err
	}
	if _, err := newObserver(e, f, ""); err != nil { // before anything is read
		return err
	}
	name, text, err := readGraphs(e, args)
	if err != nil {
		return err
	}
	inputs := []string{text}
	if f.boolean("split-input") {
		inputs = splitInputs(text)
	}
	modules, errs := make([]*passes.Module, len(inputs)), make([]error, len(inputs))
	for i, in := range inputs {
		if modules[i], errs[i] = parseModule(name, in); errs[i] == nil {
			modules[i].Target, modules[i].Config = t, config
		}
	}
	if err := checkBindings(f, bind, modules); err != nil {
		return err
	}
	var out strings.Builder
	failed := 0
	for i, m := range modules {
		if i > 0 {
			out.WriteString(splitLine + "\n")
		}
		sub := ""
		if len(inputs) > 1 {
			sub = fmt.Sprintf("input-%03d", i)
		}
		if errs[i] == nil {
			errs[i] = optimize(e, f, m, bind, sub)
		}
		if errs[i] == nil {
			out.WriteString(moduleText(m))
			continue
		}
		failed++
		if len(inputs) > 1 {
			errs[i] = reproduce(f, errs[i])
			tell(e.log, errs[i])
		}
	}
	switch {
	case failed == 0:
	case len(inputs) == 1:
		return errs[0]
	default:
		err = &codedError{exitFailed, fmt.Errorf("%d of %d inputs failed", failed, len(inputs)), ""}
	}
	if _, werr := io.WriteString(e.stdout, out.String()); err == nil {
		err = werr
	}
	return err
}

// optimize runs the passes on one module.
func optimize(e *env, f *flags, m *passes.Module, bind map[string]int, sub string) error {
	o, err := newObserver(e, f, sub)
	if err != nil {
		return err
	}
	o.watch(m)
	err = passes.Run(m)
	if err == nil {
		var buckets []passes.Bucket
		for _, g := range m.Entries {
			if len(bind) > 0 {
				buckets = append(buckets, passes.Bucket{Entry: g.Name, Bind: bind})
			}
		}
		err = passes.Optimize(m, buckets)
	}
	if ferr := o.finish(m); err == nil {
		err = ferr
	}
	return err
}

// moduleText prints what the passes left, the pack graph last.
func moduleText(m *passes.Module) string {
	var b strings.Builder
	for _, s := range m.Steps {
		b.WriteString(ir.Text(s.Graph))
	}
	if m.Pack != nil {
		b.WriteString(ir.Text(m.Pack))
	}
	return b.String()
}

// readGraphs reads the file that is named, or standard input.
func readGraphs(e *env, args []string) (name, text string, err error) {
	if len(args) == 0 || args[0] == "-" {
		data, err := io.ReadAll(e.stdin)
		return "<stdin>", string(data), err
	}
	data, err := os.ReadFile(args[0])
	if err != nil {
		return "", "", &codedError{exitFailed, err, "kiln dump --model DIR --entry decode --pipeline required > " + args[0]}
	}
	return args[0], string(data), nil
}

// splitInputs cuts a text at its separators. Lines keep their numbers.
func splitInputs(text string) []string {
	var out []string
	var cur strings.Builder
	line := 0
	for l := range strings.Lines(text) {
		line++
		if strings.TrimRight(l, " \t\r\n") != splitLine {
			cur.WriteString(l)
			continue
		}
		out = append(out, cur.String())
		cur.Reset()
		cur.WriteString(strings.Repeat("\n", line))
	}
	return append(out, cur.String())
}

// parseModule reads entries and, if there is one, the pack graph.
func parseModule(name, text string) (*passes.Module, error) {
	graphs, err := ir.Parse(name, text)
	if err != nil {
		return nil, &codedError{exitFailed, err, "correct the graph: docs/ops.md says what each op takes"}
	}
	m := &passes.Module{}
	for _, g := range graphs {
		if g.Name == passes.PackGraph {
			m.Pack = g
		} else {
			m.Entries = append(m.Entries, g)
		}
	}
	return m, nil
}

// bindings reads --bind T=8,B=8.
func bindings(f *flags) (map[string]int, error) {
	bind := map[string]int{}
	for _, kv := range f.list("bind") {
		sym, value, ok := strings.Cut(strings.TrimSpace(kv), "=")
		n, err := strconv.Atoi(value)
		if !ok || sym == "" || err != nil || n < 1 {
			return nil, usagef("--bind T=8,B=8", "%s %q: want SYMBOL=N with N at least 1", f.origins("bind"), kv)
		}
		if old, twice := bind[sym]; twice && old != n {
			return nil, usagef("--bind T=8,B=8", "%s: %s is bound to %d and to %d", f.origins("bind"), sym, old, n)
		}
		bind[sym] = n
	}
	return bind, nil
}

// checkBindings finds symbols that no entry has.
func checkBindings(f *flags, bind map[string]int, modules []*passes.Module) error {
	var have []string
	for _, m := range modules {
		if m == nil {
			return nil // what failed to parse may have had the symbol
		}
		for _, g := range m.Entries {
			for _, s := range g.Syms {
				if !slices.Contains(have, s) {
					have = append(have, s)
				}
			}
		}
	}
	var unknown []string
	for sym := range bind {
		if !slices.Contains(have, sym) {
			unknown = append(unknown, sym)
		}
	}
	if len(unknown) == 0 {
		return nil
	}
	slices.Sort(unknown)
	text := "they have none"
	if len(have) > 0 {
		text = "they have " + strings.Join(have, ", ")
	}
	return usagef("kiln opt --help", "%s: no graph has symbol %s: %s", f.origins("bind"), strings.Join(unknown, ", "), text)
}
