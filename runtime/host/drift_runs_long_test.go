//go:build long

package host_test

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/kiln-project/kiln/ir"
	"github.com/kiln-project/kiln/ir/eval"
	"github.com/kiln-project/kiln/models/dsv4"
	"github.com/kiln-project/kiln/passes"
	"github.com/kiln-project/kiln/runtime/device/devicetest"
	"github.com/kiln-project/kiln/runtime/engine"
	"github.com/kiln-project/kiln/runtime/weights"
)

// driftModel says how a sequence runs.
type driftModel struct {
	host      bool // not on the oracle
	perturbed bool // its f32 results are, in their last bits
	given     bool // the entries that layers attend to are another sequence's choice
}

// drifter is a sequence that is fed a token at a time. Outputs chosen.N are the entries
// that its indexers choose, also where it is given others; gate.N the operands of gates.
type drifter struct {
	engine.Executor
	engine *engine.Engine
	seq    *engine.Seq
	pools  engine.Tensors // of the oracle
	given  engine.Tensors // inputs of the next step beside the engine's
	gates  []gate
}

// NewState keeps the oracle's pools, to look into them.
func (d *drifter) NewState(entry string, bind map[string]int) (engine.State, error) {
	st, err := d.Executor.NewState(entry, bind)
	d.pools, _ = st.(engine.Tensors)
	return st, err
}

// Run gives the step what it is given.
func (d *drifter) Run(entry string, bind map[string]int, in engine.Tensors, st engine.State) (engine.Tensors, error) {
	all := maps.Clone(in)
	maps.Copy(all, d.given)
	return d.Executor.Run(entry, bind, all, st)
}

const (
	chosenOutput = "chosen."
	givenInput   = "given."
)

func newDrifter(t *testing.T, o driftModel, pages int) *drifter {
	t.Helper()
	const dir = "../../testdata/tiny-dsv4"
	cfg, err := dsv4.LoadConfig(dir)
	if err != nil {
		t.Fatal(err)
	}
	plain, err := dsv4.Build(cfg, dsv4.Decode, dsv4.DefaultOptions())
	if err != nil {
		t.Fatal(err)
	}
	file, err := weights.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { file.Close() })
	d := &drifter{}
	source := engine.CheckpointSource{File: file}
	mod := &passes.Module{Entries: []*ir.Graph{d.graph(t, plain, o.given, source)}}
	if o.perturbed {
		mod.Config.Only = []string{"cse", "dce", "perturb"}
	}
	if err := passes.Run(mod); err != nil {
		t.Fatal(err)
	}
	if o.host {
		d.Executor, err = devicetest.NewLazy(t, devicetest.Compiler(t), openHost, mod.Entries, mod.Pack, source)
	} else {
		d.Executor, err = engine.NewRef(mod.Entries, mod.Pack, source)
	}
	if err != nil {
		t.Fatal(err)
	}
	layout, err := engine.LayoutOf(mod.Entries[0])
	if err != nil {
		t.Fatal(err)
	}
	if d.engine, err = engine.New(d, layout, 1, pages); err != nil {
		t.Fatal(err)
	}
	if d.seq, err = d.engine.NewSeq(0, pages); err != nil {
		t.Fatal(err)
	}
	return d
}

// graph is plain with the outputs, and the inputs if choices are given.
func (d *drifter) graph(t *testing.T, plain *ir.Graph, given bool, source eval.WeightSource) *ir.Graph {
	t.Helper()
	e := ir.NewEdit(plain)
	var outputs []ir.Output
	choices := 0
	for _, op := range plain.Ops {
		e.Copy(op)
		switch op.Def.Name {
		case "topk":
			r := op.Results[0]
			outputs = append(outputs, ir.Output{Name: fmt.Sprint(chosenOutput, choices), Value: e.Value(r)})
			if given {
				e.Replace(r, e.Input(fmt.Sprint(givenInput, choices), r.Type))
			}
			choices++
		case "gate":
			g := gate{output: fmt.Sprintf("gate.%d", len(d.gates)), k: op.Int("k")}
			outputs = append(outputs, ir.Output{Name: g.output, Value: e.Value(op.Args[0])})
			for i, x := range []**eval.Tensor{&g.w, &g.bias} {
				v := op.Args[1+i]
				var err error
				if *x, err = source.Weight(v.Name, v.Type); err != nil {
					t.Fatal(err)
				}
			}
			d.gates = append(d.gates, g)
		}
	}
	if choices == 0 || len(d.gates) == 0 {
		t.Fatalf("the model has %d indexers and %d gates", choices, len(d.gates))
	}
	g, err := e.Finish()
	if err != nil {
		t.Fatal(err)
	}
	g.Outputs = append(g.Outputs, outputs...)
	return g
}

// step feeds a token; its layers attend to the entries that another step chose, if
// they are given any.
func (d *drifter) step(t *testing.T, id int32, chose engine.Tensors) engine.Tensors {
	t.Helper()
	d.given = engine.Tensors{}
	for name, x := range chose {
		if n, ok := strings.CutPrefix(name, chosenOutput); ok {
			d.given[givenInput+n] = x
		}
	}
	out := decodeOne(t, d.engine, d.seq, id)
	d.seq.Len++
	return out
}

// others is how many entries that one step chose another did not.
func (d *drifter) others(one, other engine.Tensors) (n int) {
	for name, x := range one {
		if !strings.HasPrefix(name, chosenOutput) {
			continue
		}
		for _, entry := range x.I {
			if !slices.Contains(other[name].I, entry) {
				n++
			}
		}
	}
	return n
}

// gap is the smallest distance, over the gates, of the last chosen score from the first
// rejected one.
func (d *drifter) gap(out engine.Tensors) float64 {
	gap := math.Inf(1)
	for _, g := range d.gates {
		gap = min(gap, g.gap(out[g.output].F))
	}
	return gap
}

// gate is a gate whose operand is an output of the graph.
type gate struct {
	output  string
	k       int
	w, bias *eval.Tensor
}

// gap is how far the last chosen score is from the first rejected one.
func (o gate) gap(x []float32) float64 {
	scores := make([]float64, len(o.bias.F))
	for i := range scores {
		v := 0.0
		for j, a := range x {
			v += float64(a) * float64(o.w.F[i*len(x)+j])
		}
		scores[i] = math.Sqrt(math.Log1p(math.Exp(v))) + float64(o.bias.F[i])
	}
	slices.Sort(scores)
	n := len(scores) - o.k
	return scores[n] - scores[n-1]
}
