package golden

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kiln-project/kiln/ir"
	"github.com/kiln-project/kiln/ir/eval"
	"github.com/kiln-project/kiln/models/dsv4"
	"github.com/kiln-project/kiln/runtime/engine"
)

// config is the suite of a variant on the oracle.
func config(n dsv4.Numerics) Config {
	golden := map[dsv4.Numerics]string{dsv4.Unrounded: "expected", dsv4.Production: "expected-production"}[n]
	return Config{Model: "../../../testdata/tiny-dsv4", Golden: "../../../testdata/golden/" + golden, Numerics: n}
}

func open(t *testing.T, c Config) *Suite {
	t.Helper()
	s, err := Open(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// TestSuite runs every check of both variants, and requires that they read every
// golden tensor. With -v it lists the worst result of each limit.
func TestSuite(t *testing.T) {
	for _, n := range []dsv4.Numerics{dsv4.Unrounded, dsv4.Production} {
		t.Run(string(n), func(t *testing.T) {
			worst := map[string]Result{}
			cfg := config(n)
			cfg.Observe = func(r Result) {
				key := fmt.Sprintf("%s %s", r.Limit.Name, r.Bound.Metric)
				old, ok := worst[key]
				if !ok || !(metrics[r.Bound.Metric].relation == ">=" && r.Got >= old.Got || metrics[r.Bound.Metric].relation != ">=" && r.Got <= old.Got) {
					worst[key] = r
				}
			}
			s := open(t, cfg)
			checks, ran := s.Checks(), 0
			for _, c := range checks {
				t.Run(c.Name, func(t *testing.T) {
					ran++
					if err := c.Run(); err != nil {
						t.Error(err)
					}
				})
			}
			for _, l := range Limits {
				for _, b := range l.Bounds {
					if r, ok := worst[fmt.Sprintf("%s %s", l.Name, b.Metric)]; ok {
						t.Logf("worst of limit %s: %s", l.Name, r)
					}
				}
			}
			if ran < len(checks) {
				return // -run selects some
			}
			for _, l := range Limits {
				if _, ok := worst[fmt.Sprintf("%s %s", l.Name, l.Bounds[0].Metric)]; !ok && l.Liberty == "" && n == dsv4.Unrounded {
					t.Errorf("no check is held to limit %s", l.Name)
				}
			}
			if u := s.Unread(); len(u) > 0 {
				t.Errorf("no check reads these golden tensors: %v", u)
			}
		})
	}
}

// TestOpenRefuses checks that a suite over files that do not belong together is
// refused, and what the message names.
func TestOpenRefuses(t *testing.T) {
	index, err := os.ReadFile("../../../testdata/golden/expected/index.json")
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		name, index, want string
		change            func(*Config)
	}{
		{name: "numerics", change: func(c *Config) { c.Numerics = "exact" }, want: `unknown numerics "exact"`},
		{name: "no model", change: func(c *Config) { c.Model = t.TempDir() }, want: "config.json"},
		{name: "no golden folder", change: func(c *Config) { c.Golden = "nowhere" }, want: "nowhere"},
		{name: "another config", index: strings.Replace(string(index), `"sliding_window": 64`, `"sliding_window": 32`, 1), want: "made with another config"},
		{name: "unknown field", index: strings.Replace(string(index), `"cases"`, `"note": "", "cases"`, 1), want: `unknown field "note"`},
		{name: "no cases", index: string(index[:bytes.Index(index, []byte(`"cases"`))]) + `"cases": []}`, want: "lists no cases"},
		{name: "case twice", index: strings.Replace(string(index), `"name": "long"`, `"name": "short"`, 1), want: "a name of its own"},
		{name: "no steps", index: strings.Replace(string(index), `"decode_steps": 96`, `"decode_steps": 0`, 1), want: "decode_steps >= 1"},
		{name: "no tensors", index: string(index), want: "ops.safetensors"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := config(dsv4.Unrounded)
			if tc.change != nil {
				tc.change(&c)
			}
			if tc.index != "" {
				c.Golden = t.TempDir()
				if err := os.WriteFile(filepath.Join(c.Golden, "index.json"), []byte(tc.index), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			s, err := Open(c)
			if err == nil {
				t.Errorf("Open succeeded; closing: %v", s.Close())
			} else if !strings.Contains(err.Error(), tc.want) {
				t.Errorf("Open: %v, want %q in it", err, tc.want)
			}
		})
	}
}

func TestCheckNames(t *testing.T) {
	s := open(t, config(dsv4.Unrounded))
	names := func() (list []string) {
		for _, c := range s.Checks() {
			list = append(list, c.Name)
		}
		return list
	}
	first := names()
	if d := cmp.Diff(first, names()); d != "" {
		t.Errorf("the order of checks changes:\n%s", d)
	}
	seen := map[string]bool{}
	for _, n := range first {
		if seen[n] {
			t.Errorf("two checks are named %s", n)
		}
		seen[n] = true
	}
}

// faulty passes an executor's outputs through f.
type faulty struct {
	engine.Executor
	f func(engine.Tensors)
}

func (x faulty) Run(entry string, bind map[string]int, in engine.Tensors, state engine.State) (engine.Tensors, error) {
	out, err := x.Executor.Run(entry, bind, in, state)
	if err == nil {
		x.f(out)
	}
	return out, err
}

// TestFaultyExecutor checks that results which are not numbers, incomplete or
// missing are reported, and how.
func TestFaultyExecutor(t *testing.T) {
	nan := float32(math.NaN())
	each := func(f func(*eval.Tensor)) func(engine.Tensors) {
		return func(out engine.Tensors) {
			for _, x := range out {
				f(x)
			}
		}
	}
	for _, tc := range []struct {
		name, check, want string
		miss              bool
		f                 func(engine.Tensors)
	}{
		{"one NaN", "op/hadamard", "1 NaN and 0 missing of 640 elements, first at 3", true, each(func(x *eval.Tensor) { x.F[3] = nan })},
		{"NaN in a layer", "local/one/layer.1", "1-cos is NaN", true, each(func(x *eval.Tensor) { x.F[5] = nan })},
		{"cut short", "op/hadamard", "0 NaN and 1 missing of 640 elements, first at 639", true, each(func(x *eval.Tensor) { x.F = x.F[:639] })},
		{"one step off", "op/expert.3.2", "identical share is 0.999", true, each(func(x *eval.Tensor) { x.F[0] = math.Nextafter32(x.F[0], 1) })},
		{"no output of an op", "op/hadamard", "did not return output y", false, func(out engine.Tensors) { clear(out) }},
		{"no output of a part", "moe.1", "did not return output y", false, func(out engine.Tensors) { clear(out) }},
		{"no logits", "local/one/mtp", "did not return output logits", false, func(out engine.Tensors) { delete(out, "logits") }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := config(dsv4.Unrounded)
			c.Executor = func(entries []*ir.Graph, pack *ir.Graph, w eval.WeightSource) (engine.Executor, error) {
				x, err := oracle(entries, pack, w)
				return faulty{x, tc.f}, err
			}
			s := open(t, c)
			i := slices.IndexFunc(s.Checks(), func(c Check) bool { return c.Name == tc.check })
			if i < 0 {
				t.Fatalf("no check %s", tc.check)
			}
			err := s.Checks()[i].Run()
			if err == nil || !strings.Contains(err.Error(), tc.want) || !strings.Contains(err.Error(), tc.check) {
				t.Errorf("error %v, want %q and %q in it", err, tc.want, tc.check)
			}
			var miss *Miss
			if errors.As(err, &miss) != tc.miss {
				t.Errorf("error %v: is a miss: %t, want %t", err, !tc.miss, tc.miss)
			}
		})
	}
}
