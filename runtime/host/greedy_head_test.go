package host_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/kiln-project/kiln/codegen/plan"
	"github.com/kiln-project/kiln/models/dsv4"
	"github.com/kiln-project/kiln/runtime/device/devicetest"
	"github.com/kiln-project/kiln/runtime/engine"
	"github.com/kiln-project/kiln/runtime/weights"
)

// greedyTiny is the tiny checkpoint with greedy heads; each of its plans is seen to
// choose the token without logits.
func greedyTiny(t *testing.T) *devicetest.Tiny {
	t.Helper()
	o := dsv4.DefaultOptions()
	o.Head = dsv4.HeadGreedy
	m := openTinyAs(t, false, o)
	m.Exec.Lowered = func(mod *plan.Module) {
		for _, p := range mod.Plans {
			ops := map[string]int{}
			for _, l := range p.Launches {
				ops[l.Op]++
			}
			if ops["linear_argmax"] != 2 || ops["argmax"] != 0 {
				t.Errorf("%s: %d launches of linear_argmax and %d of argmax, want 2 and 0", p.Entry, ops["linear_argmax"], ops["argmax"])
			}
			if slices.ContainsFunc(p.Outputs, func(out plan.Tensor) bool { return out.Name == "logits" }) {
				t.Errorf("%s: has logits", p.Entry)
			}
		}
	}
	return m
}

// Greedy generation of the golden cases is the same, token for token, by logits and
// by greedy heads.
func TestGreedyHeadGenerates(t *testing.T) {
	file, err := weights.Open("../../testdata/golden/expected-production/e2e.safetensors")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	models := []*devicetest.Tiny{openTiny(t), greedyTiny(t)}
	for _, c := range []struct {
		name           string
		prompt, maxNew int
	}{{"one", 1, 8}, {"short", 37, 48}, {"edge128", 128, 6}, {"long", 300, 96}} {
		raw, err := file.Lookup(c.name + ".greedy.ids")
		if err != nil {
			t.Fatal(err)
		}
		wide, err := raw.Int64s()
		if err != nil {
			t.Fatal(err)
		}
		if len(wide) != c.prompt+c.maxNew {
			t.Fatalf("%s: %d golden ids, want %d", c.name, len(wide), c.prompt+c.maxNew)
		}
		var prompt []int32
		for _, id := range wide[:c.prompt] {
			prompt = append(prompt, int32(id))
		}
		var ids [2][]int32
		for i, m := range models {
			pages := m.Layout.Pages(len(wide))
			e, _ := m.Engine(t, 1, pages)
			s, err := e.NewSeq(0, pages)
			if err != nil {
				t.Fatal(err)
			}
			ids[i], _, err = e.Generate(t.Context(), s, engine.Request{Prompt: prompt, MaxNew: c.maxNew}, nil, func(int32) error { return nil })
			if err != nil {
				t.Fatal(err)
			}
		}
		if len(ids[0]) != c.maxNew || !slices.Equal(ids[0], ids[1]) {
			t.Errorf("%s: by logits %v, by greedy heads %v", c.name, ids[0], ids[1])
		}
	}
}

// Every row of a verify step has its own choice; padding rows have some and no
// flags.
func TestGreedyHeadVerifies(t *testing.T) {
	const pages, n, drafts = 1, 41, 3
	ids := devicetest.Prompt(n + drafts + 1)
	step := func(m *devicetest.Tiny) engine.Tensors {
		e, _ := m.Engine(t, 2, 2*pages)
		s, err := e.NewSeq(1, pages)
		if err != nil {
			t.Fatal(err)
		}
		f := engine.Feed{Seq: s, IDs: ids[:n], Out: []int{0}}
		if _, err := e.Step("prefill", []engine.Feed{f}, engine.ShapeOf([]engine.Feed{f})); err != nil {
			t.Fatal(err)
		}
		engine.Commit([]engine.Feed{f})
		f = engine.Feed{Seq: s, IDs: ids[n:], Out: []int{0, 1, 2, 3}}
		out, err := e.Step("verify", []engine.Feed{f}, engine.Shape{T: 2 * (drafts + 1), B: 2, O: 2 * (drafts + 1), P: pages})
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	logits, got := step(openTiny(t))["logits"], step(greedyTiny(t))
	rows, vocab := logits.Shape[0], logits.Shape[1]
	for i := range rows {
		want := engine.Argmax(logits.F[i*vocab : (i+1)*vocab])
		if got["greedy_ids"].I[i] != int64(want) || got["greedy_flags"].I[i] != 0 {
			t.Errorf("row %d: token %d, flags %d; want %d, 0", i, got["greedy_ids"].I[i], got["greedy_flags"].I[i], want)
		}
	}
	if rows != 2*(drafts+1) {
		t.Errorf("%d rows", rows)
	}
}

// What needs logits says that there are none.
func TestGreedyHeadHasNoLogits(t *testing.T) {
	m := greedyTiny(t)
	e, _ := m.Engine(t, 1, 1)
	s, err := e.NewSeq(0, 1)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"the model's heads give tokens, no logits", "the model's heads give tokens, no logits", "sampling at temperature 0.5: the model's heads give the greedy token only"}
	_, err1 := e.Prefill(s, devicetest.Prompt(3), 0, nil)
	_, err2 := e.Force(t.Context(), s, devicetest.Prompt(3), 2, 0, 6, false, false)
	_, _, err3 := e.Generate(t.Context(), s, engine.Request{Prompt: devicetest.Prompt(3), MaxNew: 1, Sampling: engine.Sampling{Temperature: 0.5}}, nil, nil)
	for i, err := range []error{err1, err2, err3} {
		if err == nil || !strings.Contains(err.Error(), want[i]) {
			t.Errorf("%d: error %v, want %q", i, err, want[i])
		}
	}
	if s.Len != 0 {
		t.Errorf("%d positions were fed", s.Len)
	}
}
