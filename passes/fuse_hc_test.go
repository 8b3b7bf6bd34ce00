package passes

import (
	"fmt"
	"hash/fnv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kiln-project/kiln/ir"
	"github.com/kiln-project/kiln/models/dsv4"
)

// noBackend lowers nothing: passes before it can be looked at.
type noBackend struct{}

func (noBackend) SelectKernels(*Step) error { return nil }
func (noBackend) JoinLaunches(*Step) error  { return nil }
func (noBackend) PlanMemory(*Step) error    { return nil }

// tinySteps are the four entries of the tiny model at small buckets; c is for the
// passes on steps: the order of ops decides on the names of packed weights.
func tinySteps(t *testing.T, c Config) *Module {
	t.Helper()
	m := tinyModule(t)
	if err := Run(m); err != nil {
		t.Fatal(err)
	}
	m.Config = c
	var buckets []Bucket
	for _, text := range []string{"prefill T=9 B=1 O=9", "decode B=4", "verify B=2 K=3", "draft T=9 B=1 O=9"} {
		buckets = append(buckets, parseBucket(t, text+" R=4 P=2 N=8"))
	}
	if err := Lower(m, buckets, noBackend{}); err != nil {
		t.Fatal(err)
	}
	return m
}

// Every border between two sublayers is one op, in every entry: of six layers 11
// borders, of the one block of draft one. Left are the first hc_pre and the last
// hc_post, each with a remark.
func TestFuseHCOfTheModel(t *testing.T) {
	m := tinySteps(t, Config{})
	got := map[string]string{}
	for _, s := range m.Steps {
		n := map[string]int{}
		for _, op := range s.Graph.Ops {
			n[op.Def.Name]++
		}
		got[s.Graph.Name] = fmt.Sprintf("hc_fused %d, hc_pre %d, hc_post %d", n["hc_fused"]+n["hc_fused_quant"], n["hc_pre"], n["hc_post"])
	}
	const main = "hc_fused 11, hc_pre 1, hc_post 1"
	want := map[string]string{"prefill": main, "decode": main, "verify": main, "draft": "hc_fused 1, hc_pre 1, hc_post 1"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	var missed []string
	for _, r := range m.Remarks {
		if r.Pass == "fuse-hc" && r.Kind == Missed && r.Graph != "prefill" && r.Graph != "verify" {
			missed = append(missed, fmt.Sprintf("@%s %s: %s: %s", r.Graph, r.Loc, r.Op, r.Text))
		}
	}
	if diff := cmp.Diff([]string{
		"@decode layers.0.attn: hc_pre: operand 0 of hc_pre is a result of broadcast, not of hc_post",
		"@decode layers.5.ffn: hc_post: no hc_pre reads the streams",
		"@draft mtp.0.attn: hc_pre: operand 0 of hc_pre is a result of add, not of hc_post",
		"@draft mtp.0.ffn: hc_post: no hc_pre reads the streams",
	}, missed); diff != "" {
		t.Errorf("missed, -want +got:\n%s", diff)
	}
}

// In any order of the ops the same borders are fused, and what a step computes
// stays what it was: with every op expanded, each output and update is the same
// expression of inputs, weights and pools.
func TestFuseHCKeepsTheMeaning(t *testing.T) {
	want := meanings(t, tinySteps(t, Config{Disable: []string{"fuse-hc"}}))
	for seed := range uint64(4) {
		m := tinySteps(t, Config{Shuffle: seed})
		fused := 0
		for _, s := range m.Steps {
			fused += strings.Count(ir.Text(s.Graph), "hc_fused")
		}
		if fused != 3*11+1 {
			t.Errorf("seed %d: %d ops were fused", seed, fused)
		}
		if diff := cmp.Diff(want, meanings(t, m)); diff != "" {
			t.Errorf("seed %d: -apart +fused:\n%s", seed, diff)
		}
	}
}

// meanings are digests of the expressions that a module's outputs and updates are.
func meanings(t *testing.T, m *Module) map[string]uint64 {
	t.Helper()
	out := map[string]uint64{}
	for _, s := range m.Steps {
		g, err := ir.Expand(s.Graph)
		if err != nil {
			t.Fatal(err)
		}
		of := map[*ir.Value]uint64{}
		for _, list := range [][]*ir.Value{g.Inputs, g.Weights, g.States} {
			for _, v := range list {
				of[v] = digest(v.String(), v.Type)
			}
		}
		for _, op := range g.Ops {
			parts := []any{op.Def.Name, op.Attrs}
			for _, a := range op.Args {
				parts = append(parts, of[a])
			}
			for i, r := range op.Results {
				of[r] = digest(append(parts, i)...)
			}
		}
		for _, o := range g.Outputs {
			out[g.Name+" "+o.Name] = of[o.Value]
		}
		for _, u := range g.Updates {
			out[g.Name+" "+u.State.Name] = of[u.Value]
		}
	}
	if len(out) < len(dsv4.Entries) {
		t.Fatalf("%d outputs and updates of %d entries", len(out), len(dsv4.Entries))
	}
	return out
}

func digest(parts ...any) uint64 {
	h := fnv.New64a()
	fmt.Fprintln(h, parts...)
	return h.Sum64()
}

// The published number of one chip is that chip's alone.
func TestFuseHCThreshold(t *testing.T) {
	for _, tc := range []struct {
		chip   string
		value  int
		origin Origin
	}{{"gfx950", 64, Published}, {"gfx942", 1 << 30, Modelled}, {"", 1 << 30, Modelled}} {
		row, err := ThresholdOf("fuse-hc.max_tokens", tc.chip)
		if err != nil || row.Value != tc.value || row.Origin != tc.origin {
			t.Errorf("%q: %+v, %v", tc.chip, row, err)
		}
	}
}
