package passes

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Config says which passes run, and how. The zero Config is the default
// pipeline.
type Config struct {
	// Pipeline is default (also ""), or required: the required passes only.
	Pipeline string
	// Only, if not nil, are the optional passes that run, off ones included,
	// instead of the pipeline's. The table decides on the order.
	Only []string
	// Disable are optional passes that do not run.
	Disable []string
	// Set overrides thresholds, by key.
	Set map[string]int
	// Bisect, if not nil, is how many applications of optional passes run: one
	// application is one pass on one graph. Required passes always run.
	Bisect *int
	// Shuffle, if not 0, is the seed of a random order of each graph's ops, another
	// valid one before every pass: no result may depend on it.
	Shuffle uint64
	// VerifyEach also finds passes that change the graph that they were given: after
	// every application all graphs are verified. It changes no result.
	VerifyEach bool
	// Trace, if set, hears of every application.
	Trace func(Event)
}

// Check finds names that do not exist.
func (c *Config) Check() error {
	if c.Pipeline != "" && c.Pipeline != "default" && c.Pipeline != "required" {
		return fmt.Errorf("unknown pipeline %q: want default or required", c.Pipeline)
	}
	for _, name := range c.Only {
		if _, err := Lookup(name); err != nil {
			return err
		}
	}
	for _, name := range c.Disable {
		p, err := Lookup(name)
		if err != nil {
			return err
		}
		if p.Required {
			return fmt.Errorf("pass %s is required", name)
		}
	}
	for _, key := range slices.Sorted(maps.Keys(c.Set)) {
		if !slices.ContainsFunc(Thresholds, func(t Threshold) bool { return t.Key == key }) {
			return fmt.Errorf("unknown threshold %q: want one of %s", key, strings.Join(thresholdKeys(), ", "))
		}
		if c.Set[key] < 0 {
			return fmt.Errorf("threshold %s=%d: want at least 0", key, c.Set[key])
		}
	}
	if c.Bisect != nil && *c.Bisect < 0 {
		return fmt.Errorf("bisect %d: want at least 0", *c.Bisect)
	}
	return nil
}

// runs reports whether a pass runs at all.
func (c *Config) runs(p *Pass) bool {
	switch {
	case p.Required:
		return true
	case slices.Contains(c.Disable, p.Name):
		return false
	case c.Only != nil:
		return slices.Contains(c.Only, p.Name)
	}
	return !p.Off && c.Pipeline != "required"
}

// Key is the part of a cache key that the config decides: equal configs have
// equal keys.
func (c *Config) Key() string {
	var b strings.Builder
	fmt.Fprintf(&b, "pipeline=%s", c.Pipeline)
	if c.Only != nil {
		fmt.Fprintf(&b, " only=%s", strings.Join(sorted(c.Only), ","))
	}
	fmt.Fprintf(&b, " disable=%s", strings.Join(sorted(c.Disable), ","))
	for _, k := range slices.Sorted(maps.Keys(c.Set)) {
		fmt.Fprintf(&b, " %s=%d", k, c.Set[k])
	}
	if c.Bisect != nil {
		fmt.Fprintf(&b, " bisect=%d", *c.Bisect)
	}
	fmt.Fprintf(&b, " shuffle=%d", c.Shuffle)
	return b.String()
}

func sorted(list []string) []string {
	list = slices.Clone(list)
	slices.Sort(list)
	return list
}

// Lookup finds a pass by name.
func Lookup(name string) (*Pass, error) {
	var names []string
	for i := range Table {
		if Table[i].Name == name {
			return &Table[i], nil
		}
		names = append(names, Table[i].Name)
	}
	return nil, fmt.Errorf("unknown pass %q: have %s", name, strings.Join(names, ", "))
}
