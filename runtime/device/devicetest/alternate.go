package devicetest

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"

	"github.com/kiln-project/kiln/codegen"
	"github.com/kiln-project/kiln/codegen/bundle"
	"github.com/kiln-project/kiln/codegen/target"
	"github.com/kiln-project/kiln/ir"
	"github.com/kiln-project/kiln/ir/eval"
	"github.com/kiln-project/kiln/models/dsv4"
	"github.com/kiln-project/kiln/passes"
	"github.com/kiln-project/kiln/runtime/device"
	"github.com/kiln-project/kiln/runtime/engine"
)

// Alternation is the first layers of the tiny checkpoint, compiled for decode steps and
// whole speculative steps of up to alternateBatch of alternateRings requests.
type Alternation struct {
	code    *bundle.Code
	weights eval.WeightSource
	layout  engine.Layout
	drafts  []int
}

const alternateBatch, alternateRings, alternatePages = 2, 3, 1

// BuildAlternation compiles them, with speculative steps of the numbers of drafts.
func BuildAlternation(t testing.TB, c *codegen.Compiler, tg *target.Target, layers int, drafts ...int) *Alternation {
	t.Helper()
	a, err := compileAlternation(t, c, tg, layers, drafts)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func compileAlternation(t testing.TB, c *codegen.Compiler, tg *target.Target, layers int, drafts []int) (*Alternation, error) {
	const dir = "../../testdata/tiny-dsv4"
	cfg, err := dsv4.LoadConfig(dir)
	if err != nil {
		return nil, err
	}
	cfg.Ratios = append(slices.Clone(cfg.Ratios[:layers]), cfg.Ratios[cfg.Layers:]...)
	cfg.Layers, cfg.HashLayers = layers, min(cfg.HashLayers, layers)
	o := dsv4.DefaultOptions()
	o.Head = dsv4.HeadGreedy
	a := &Alternation{drafts: drafts}
	g, err := dsv4.Build(cfg, dsv4.Decode, o)
	if err != nil {
		return nil, err
	}
	if a.layout, err = engine.LayoutOf(g); err != nil {
		return nil, err
	}
	m := &passes.Module{Target: tg.ForPasses(), Entries: []*ir.Graph{g}}
	buckets := []passes.Bucket{{Entry: "decode", Bind: alternateBinding()}}
	for _, k := range drafts {
		if g, err = dsv4.BuildSpeculate(cfg, k, o); err != nil {
			return nil, err
		}
		m.Entries = append(m.Entries, g)
		buckets = append(buckets, passes.Bucket{Entry: g.Name, Bind: alternateBinding()})
	}
	if err := passes.Run(m); err != nil {
		return nil, err
	}
	a.code, a.weights, err = buildBound(t, c, tg, m, buckets, dir)
	return a, err
}

func alternateBinding() map[string]int {
	return map[string]int{"B": alternateBatch, "R": alternateRings, "P": alternatePages, "N": alternateRings * alternatePages}
}

// alternating is an alternation on a device, with pools full of canaries.
type alternating struct {
	*device.Executor
	state *device.State
}

func (a *Alternation) start(t testing.TB, dev device.Device) *alternating {
	t.Helper()
	x, err := device.NewExecutor(t.Context(), dev, a.code.Object, a.code.Module, a.weights, nil)
	if err != nil {
		t.Fatal(err)
	}
	widest := string(dsv4.SpeculateEntry(slices.Max(a.drafts)))
	st, err := x.NewState(widest, alternateBinding())
	if err != nil {
		t.Fatal(err)
	}
	r := &alternating{x, st.(*device.State)}
	for _, name := range r.state.Names() {
		b := PoolBytes(t, r.state, name)
		for i := range b {
			b[i] = canary
		}
		check(t, r.state.SetBytes(name, b))
	}
	return r
}

func (r *alternating) close(t testing.TB) {
	t.Helper()
	check(t, r.state.Close())
	check(t, r.Close())
}

// alternated is a request between steps: its last token and what was drafted behind it.
type alternated struct {
	seq    *engine.Seq
	last   int32
	drafts []int32
}

// Run runs n decode steps and n speculative ones by turns on two devices: which requests
// are part of a step, in which order, and how many drafts each has changes from step to
// step, and some requests begin again. All outputs of every step, and all pools after
// it, must have the same bits.
func (a *Alternation) Run(t testing.TB, eager, replayed device.Device, n int) {
	t.Helper()
	one, two := a.start(t, eager), a.start(t, replayed)
	r := rand.New(rand.NewPCG(5, 6))
	var list []*alternated
	for i := range alternateRings {
		list = append(list, &alternated{seq: &engine.Seq{Ring: i, Pages: []int{i}}, last: int32(2 + i)})
	}
	lens := map[int]bool{}
	for step := range 2 * n {
		r.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
		members := list[:1+r.IntN(alternateBatch)]
		k := 0
		if step%2 == 1 {
			k = a.drafts[step/2%len(a.drafts)]
		}
		entry, feeds := "decode", make([]engine.Feed, len(members))
		if k > 0 {
			entry = string(dsv4.SpeculateEntry(k))
		}
		for i, m := range members {
			if m.seq.Len > 0 && r.IntN(5) == 0 {
				m.seq.Len, m.drafts = 0, nil
			}
			f := engine.Feed{Seq: m.seq, IDs: []int32{m.last}, Rows: k + 1}
			f.IDs = append(f.IDs, m.drafts[:min(len(m.drafts), k)]...)
			for len(f.IDs) < k+1 && r.IntN(2) == 0 { // most likely wrong
				f.IDs = append(f.IDs, int32(r.IntN(a.layout.Vocab)))
			}
			for row := range f.IDs {
				f.Out = append(f.Out, row)
			}
			feeds[i] = f
		}
		rows := alternateBatch * (k + 1)
		shape := engine.Shape{T: rows, B: alternateBatch, O: rows, P: alternatePages}
		in, err := engine.SpeculateMetadata(a.layout, feeds, k, shape)
		if err != nil {
			t.Fatal(err)
		}
		when := fmt.Sprintf("step %d, %s of %d requests", step, entry, len(members))
		x, y := one.run(t, entry, in), two.run(t, entry, in)
		if !reflect.DeepEqual(x, y) {
			t.Fatalf("%s: outputs differ: launched %v, replayed %v", when, x, y)
		}
		for _, name := range one.state.Names() {
			if !bytes.Equal(PoolBytes(t, one.state, name), PoolBytes(t, two.state, name)) {
				t.Fatalf("%s: pool %s differs", when, name)
			}
		}
		for i, m := range members {
			taken := 1
			if k > 0 {
				taken += int(x["accept_len"].I[i])
				m.drafts = m.drafts[:0]
				for j := range k {
					m.drafts = append(m.drafts, int32(x["drafts"].I[i*k+j]))
				}
				lens[taken] = true
			} else {
				m.drafts = nil
			}
			m.last = int32(x["greedy_ids"].I[i*(k+1)+taken-1])
			m.seq.Len += taken
		}
	}
	if n >= 6 && len(lens) < 2 {
		t.Errorf("steps gave %v tokens of a request, want a variety", lens)
	}
	one.close(t)
	two.close(t)
}

func (r *alternating) run(t testing.TB, entry string, in engine.Tensors) engine.Tensors {
	t.Helper()
	out, err := r.Run(entry, alternateBinding(), in, r.state)
	if err != nil {
		t.Fatal(err)
	}
	return out
}
