package cli

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/kiln-project/kiln/check"
	"github.com/kiln-project/kiln/ir"
	"github.com/kiln-project/kiln/models/dsv4"
	"github.com/kiln-project/kiln/passes"
	"github.com/kiln-project/kiln/runtime/engine"
	"github.com/kiln-project/kiln/runtime/weights"
)

// subject is what check is about.
type subject struct {
	check.Subject
	weights string // random or checkpoint
	close   func() error
}

// weightKinds are what --weights takes.
var weightKinds = []string{"checkpoint", "random"}

func readSubject(f *flags, args []string, cfg passes.Config) (*subject, error) {
	s := &subject{close: func() error { return nil }}
	s.Module, s.Seeds = &passes.Module{Config: cfg}, f.number("seeds")
	if s.Seeds < 1 {
		return nil, usagef("--seeds 1", "%s is %d, want at least 1", f.origins("seeds"), s.Seeds)
	}
	if w := f.text("weights"); w != "" && !slices.Contains(weightKinds, w) {
		return nil, usagef("--weights random", "%s: unknown weights %q: want %s", f.origins("weights"), w, strings.Join(weightKinds, " or "))
	}
	if (f.text("model") == "") == (len(args) == 0) {
		return nil, usagef("kiln check --model DIR --entry decode", "check needs --model or a FILE.kir, one of the two")
	}
	var err error
	if len(args) == 1 {
		err = s.fromFile(f, args[0])
	} else {
		err = s.fromModel(f)
	}
	if err != nil {
		return nil, err
	}
	g, err := s.bind(f)
	if err != nil {
		return nil, err
	}
	if err := s.makers(f, g); err != nil {
		return nil, err
	}
	return s, nil
}

func (s *subject) fromFile(f *flags, path string) error {
	for _, name := range []string{"layers", "numerics", "head"} {
		if f.given(name) && !f.fromEnv[name] {
			return usagef("--model DIR", "--%s changes the graphs of a model, and %s is a graph", name, path)
		}
	}
	if f.text("weights") == "checkpoint" {
		return usagef("--weights random", "%s checkpoint: %s has no checkpoint", f.origins("weights"), path)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	m, err := parseModule(path, string(text))
	if err != nil {
		return err
	}
	if len(m.Entries) == 0 {
		return refuse(fmt.Errorf("%s has the pack graph alone: check is about an entry", path), "")
	}
	s.Module.Entries, s.Module.Pack = m.Entries, m.Pack
	return s.choose(f)
}

func (s *subject) fromModel(f *flags) error {
	o, err := options(f, false)
	if err != nil {
		return err
	}
	c, err := loadConfig(f.text("model"))
	if err != nil {
		return err
	}
	if n := f.number("layers"); n < 0 || n > c.Layers {
		return refuse(fmt.Errorf("%s %d: the model has %d", f.origins("layers"), n, c.Layers), "")
	} else if n > 0 {
		firstLayers(c, n)
	}
	drafts, err := draftsOfEntry(f, c, f.text("entry"), &o)
	if err != nil {
		return err
	}
	m, err := buildEntries(c, o, passes.Target{}, passes.Config{}, drafts...)
	if err != nil {
		return err
	}
	s.Module.Entries = m.Entries
	return s.choose(f)
}

// choose finds --entry, which a file with a single graph does not need.
func (s *subject) choose(f *flags) error {
	var names []string
	for _, g := range s.Module.Entries {
		names = append(names, g.Name)
	}
	s.Entry = f.text("entry")
	if s.Entry == "" && len(names) == 1 {
		s.Entry = names[0]
	}
	if slices.Contains(names, s.Entry) {
		return nil
	}
	first := names[0]
	if slices.Contains(names, string(dsv4.Draft)) && f.text("model") != "" {
		names = []string{entryNames}
	}
	if s.Entry == "" {
		return usagef("--entry "+first, "check needs --entry, one of %s", strings.Join(names, ", "))
	}
	return usagef("--entry "+first, "%s: no entry %q: want one of %s", f.origins("entry"), s.Entry, strings.Join(names, ", "))
}

// bind reads --bind, which must give every symbol, and returns the bound graph.
func (s *subject) bind(f *flags) (*ir.Graph, error) {
	i := slices.IndexFunc(s.Module.Entries, func(g *ir.Graph) bool { return g.Name == s.Entry })
	g := s.Module.Entries[i]
	suggestion := "--bind " + suggestedBinding(g.Syms)
	var err error
	if s.Bind, err = bindings(f); err != nil {
		return nil, err
	}
	for _, sym := range slices.Sorted(maps.Keys(s.Bind)) {
		if !slices.Contains(g.Syms, sym) {
			return nil, usagef(suggestion, "%s: entry %s has no symbol %s: it has %s", f.origins("bind"), g.Name, sym, strings.Join(g.Syms, ", "))
		}
	}
	var missing []string
	for _, sym := range g.Syms {
		if s.Bind[sym] == 0 {
			missing = append(missing, sym)
		}
	}
	if len(missing) > 0 {
		return nil, usagef(suggestion, "entry %s: --bind does not give %s", g.Name, strings.Join(missing, ", "))
	}
	bound, err := ir.Bind(g, s.Bind)
	if err != nil {
		return nil, usagef(suggestion, "%s: %w", f.origins("bind"), err)
	}
	return bound, nil
}

// suggestedBinding is a small step.
func suggestedBinding(syms []string) string {
	small := map[string]string{"T": "8", "B": "1", "O": "1", "R": "1"}
	list := slices.Clone(syms)
	for i, sym := range list {
		n, ok := small[sym]
		if !ok {
			n = "2"
		}
		list[i] = sym + "=" + n
	}
	slices.Sort(list)
	return strings.Join(list, ",")
}

// makers says where inputs and weights come from.
func (s *subject) makers(f *flags, g *ir.Graph) error {
	s.Make = check.Fill
	if f.text("model") != "" {
		l, err := engine.LayoutOf(s.Module.Entries[0])
		if err != nil {
			return err
		}
		if k := s.Bind["K"]; k > l.MaxDraft {
			return refuse(fmt.Errorf("%s: K=%d drafts per request, the rings have room for %d", f.origins("bind"), k, l.MaxDraft), fmt.Sprintf("--bind K=%d", l.MaxDraft))
		}
		s.Make = check.Step(l, s.Bind)
	}
	s.weights = f.text("weights")
	if s.weights == "" {
		s.weights = "random"
		if found, _ := filepath.Glob(filepath.Join(f.text("model"), "*.safetensors")); f.text("model") != "" && len(found) > 0 {
			s.weights = "checkpoint"
		}
	}
	if s.weights == "random" {
		graphs := []*ir.Graph{g}
		if s.Module.Pack != nil {
			graphs = append(graphs, s.Module.Pack)
		}
		s.Weights = check.NewRandom(0, graphs...)
		return nil
	}
	file, err := weights.Open(f.text("model"))
	if err != nil {
		return err
	}
	s.Weights, s.close = engine.CheckpointSource{File: file}, file.Close
	return nil
}
