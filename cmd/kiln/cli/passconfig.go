package cli

import (
	"cmp"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/kiln-project/kiln/codegen/bundle"
	"github.com/kiln-project/kiln/codegen/kernels"
	"github.com/kiln-project/kiln/passes"
)

// passCommands run passes; dumpCommands show what the passes do to the graphs.
// kernelCommands choose kernels beside.
var (
	passCommands   = []string{"opt", "compile", "run", "logits", "explain", "dump", "view", "check"}
	kernelCommands = []string{"compile", "run", "logits", "explain", "view", "check"}
	dumpCommands   = []string{"opt", "compile"}
)

// passConfig reads the flags that say which passes run and how, of any command
// that has them.
func passConfig(f *flags) (passes.Config, error) {
	c := passes.Config{Pipeline: f.text("pipeline"), Shuffle: f.seed("shuffle")}
	help := "kiln passes"
	names := func(flag string) ([]string, error) {
		for _, name := range f.list(flag) {
			if name == "" {
				return nil, usagef(help, "%s: a name is empty", f.origins(flag))
			}
		}
		return sortedSet(f.list(flag)), nil
	}
	only := f.given("passes")
	if only && f.given("pipeline") { // on the command line a flag wins over a variable
		if f.fromEnv["passes"] == f.fromEnv["pipeline"] {
			return c, usagef("--passes A,B", "%s: give one of them", f.origins("passes", "pipeline"))
		}
		only = f.fromEnv["pipeline"]
	}
	var err error
	if only {
		if c.Only, err = names("passes"); err != nil {
			return c, err
		}
		if len(c.Only) == 0 {
			return c, usagef("--pipeline required", "%s is empty", f.origins("passes"))
		}
	}
	if only || c.Pipeline == "default" {
		c.Pipeline = "" // equal configs have equal keys
	}
	if c.Disable, err = names("disable-pass"); err != nil {
		return c, err
	}
	if err := contradiction(f, c); err != nil {
		return c, err
	}
	for _, kv := range f.list("set") {
		key, value, ok := strings.Cut(kv, "=")
		n, err := strconv.Atoi(value)
		if !ok || key == "" || err != nil {
			return c, usagef(help, "%s %q: want KEY=VALUE with an integer", f.origins("set"), kv)
		}
		if old, twice := c.Set[key]; twice && old != n {
			return c, usagef(help, "%s: %s is set to %d and to %d", f.origins("set"), key, old, n)
		}
		if c.Set == nil {
			c.Set = map[string]int{}
		}
		c.Set[key] = n
	}
	if f.given("bisect") {
		n := f.number("bisect")
		c.Bisect = &n
	}
	if err := c.Check(); err != nil {
		given := f.origins("passes", "pipeline", "disable-pass", "set", "bisect")
		return c, usagef(help, "%s: %v", given, err)
	}
	if path := f.text("bisect-log"); path != "" {
		if b := f.text("bundle"); b != "" && !f.fromEnv["bisect-log"] { // kiln bisect tells every command by the variable
			return c, refuse(fmt.Errorf("%s: %s has its passes behind it, there is nothing to note", f.origins("bisect-log"), b), recompile(f, "", "--bisect-log", path))
		}
		file, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
		if err != nil {
			return c, fmt.Errorf("%s: %w", f.origins("bisect-log"), err)
		}
		file.Close()
		c.Trace = bisectLog(path)
	}
	return c, nil
}

// contradiction finds passes that are disabled where other flags have them run, or not
// run at all. On the command line a flag wins over a variable: those are none.
func contradiction(f *flags, c passes.Config) error {
	with := "passes"
	if c.Only == nil {
		with = "pipeline"
	}
	if !f.given(with) || f.fromEnv[with] != f.fromEnv["disable-pass"] {
		return nil
	}
	for _, name := range c.Disable {
		switch p, err := passes.Lookup(name); {
		case err != nil || p.Required: // Check tells
		case slices.Contains(c.Only, name):
			return usagef("leave "+name+" out of one of them", "%s: pass %s is to run and is disabled", f.origins("passes", "disable-pass"), name)
		case c.Pipeline == "required":
			return usagef("leave "+f.origins("disable-pass")+" out", "%s required, %s %s: that pipeline has no optional pass to disable", f.origins("pipeline"), f.origins("disable-pass"), name)
		}
	}
	return nil
}

// bisectLog appends a line for each application of an optional pass that ran, or
// failed, for kiln bisect to read.
func bisectLog(path string) func(passes.Event) {
	return func(e passes.Event) {
		if e.N == 0 || e.Skipped {
			return
		}
		file, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
		if err != nil {
			return // it could be opened before: who removes it does not want it
		}
		defer file.Close()
		fmt.Fprintf(file, "%d %s %s\n", e.N, e.Pass.Name, cmp.Or(e.Graph, "module"))
	}
}

// disabledKernels reads --disable-kernel.
func disabledKernels(f *flags) ([]string, error) {
	var all []string
	for _, op := range kernels.Ops() {
		for _, form := range kernels.For(op) {
			all = append(all, form.Name)
		}
	}
	for _, name := range f.list("disable-kernel") {
		if !slices.Contains(all, name) {
			return nil, usagef("kiln passes", "%s: unknown kernel form %q: near are %s", f.origins("disable-kernel"), name, strings.Join(near(name, all), ", "))
		}
	}
	return sortedSet(f.list("disable-kernel")), nil
}

// sortedSet is a list without repetition, nil if it is empty.
func sortedSet(list []string) []string {
	out := slices.Compact(slices.Sorted(slices.Values(list)))
	if len(out) == 0 {
		return nil
	}
	return out
}

// near lists the names that share the most pairs of letters with a name, at most
// three of them.
func near(name string, names []string) []string {
	pairs := func(s string) map[string]bool {
		m := map[string]bool{}
		for i := range len(s) - 1 {
			m[s[i:i+2]] = true
		}
		return m
	}
	own := pairs(name)
	score := func(other string) float64 {
		n, theirs := 0, pairs(other)
		for p := range theirs {
			if own[p] {
				n++
			}
		}
		return float64(2*n) / float64(max(1, len(own)+len(theirs)))
	}
	list := slices.Clone(names)
	slices.SortStableFunc(list, func(a, b string) int { return cmp.Compare(score(b), score(a)) })
	return list[:min(3, len(list))]
}

// passSettings is what a bundle's manifest says of a config; nil for the default.
func passSettings(c passes.Config, disabled []string) *bundle.Passes {
	p := &bundle.Passes{
		Pipeline: c.Pipeline, Only: c.Only, Disable: c.Disable, DisableKernels: disabled, Set: c.Set, Bisect: c.Bisect, Shuffle: c.Shuffle,
	}
	if len(describePasses(p)) == 0 {
		return nil
	}
	return p
}

// passFlag is a flag of the passes with its value in a bundle.
type passFlag struct{ flag, value string }

// describePasses lists what differs from the default, as flags.
func describePasses(p *bundle.Passes) []passFlag {
	if p == nil {
		return nil
	}
	var out []passFlag
	add := func(flag, value string) {
		if value != "" {
			out = append(out, passFlag{flag, value})
		}
	}
	add("pipeline", p.Pipeline)
	add("passes", strings.Join(p.Only, ","))
	add("disable-pass", strings.Join(p.Disable, ","))
	add("disable-kernel", strings.Join(p.DisableKernels, ","))
	var set []string
	for key, n := range p.Set {
		set = append(set, fmt.Sprintf("%s=%d", key, n))
	}
	slices.Sort(set)
	add("set", strings.Join(set, ","))
	if p.Bisect != nil {
		add("bisect", strconv.Itoa(*p.Bisect))
	}
	if p.Shuffle != 0 {
		add("shuffle", strconv.FormatUint(p.Shuffle, 10))
	}
	return out
}

// checkBundlePasses refuses flags of the passes that a bundle was not compiled
// with. Flags that are not given are the bundle's.
func checkBundlePasses(f *flags, path string, have *bundle.Passes) error {
	c, err := passConfig(f)
	if err != nil {
		return err
	}
	disabled, err := disabledKernels(f)
	if err != nil {
		return err
	}
	value := func(list []passFlag, flag string) string {
		for _, x := range list {
			if x.flag == flag {
				return x.value
			}
		}
		return "default"
	}
	want := describePasses(passSettings(c, disabled))
	for _, flag := range []string{"pipeline", "passes", "disable-pass", "disable-kernel", "set", "bisect", "shuffle"} {
		is, asked := value(describePasses(have), flag), value(want, flag)
		if f.given(flag) && is != asked {
			compiled, option := "with --"+flag+" "+is, []string{"--" + flag, asked}
			if is == "default" {
				compiled = "without --" + flag
			}
			if asked == "default" {
				option = nil
			}
			return refuse(fmt.Errorf("%s was compiled %s, %s says %s", path, compiled, f.origins(flag), asked), recompile(f, "", option...))
		}
	}
	return nil
}
