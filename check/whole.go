package check

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/kiln-project/kiln/ir"
	"github.com/kiln-project/kiln/ir/eval"
	"github.com/kiln-project/kiln/passes"
)

// Whole is the comparison of the entry as one plan with its ops run one by one,
// both on the device: what is made of whole graphs (chains of elementwise ops in one
// kernel, memory that several values share) changes no bit.
type Whole struct {
	Values   int  `json:"values"` // elements compared
	Differ   int  `json:"differ"`
	Launches int  `json:"launches"`
	OK       bool `json:"ok"`
}

// WholeGraph is what breaches of Whole are of, in place of an op.
const WholeGraph = "the whole graph"

// whole runs the entry both ways, on the plain random operands of each seed: those
// are the ones that the evaluator took.
func (k *opsCheck) whole(ctx context.Context, g *ir.Graph, sites []*site, weights eval.WeightSource) error {
	k.say("compiling the whole graph")
	device, err := openWhole(ctx, &k.cfg, &passes.Step{Graph: g, Bind: k.Bind})
	if err != nil {
		return fmt.Errorf("%s: %w", WholeGraph, err)
	}
	defer device.close()
	if err := device.d.BindWeights(ctx, weights, nil); err != nil {
		return err
	}
	w := &Whole{OK: true, Launches: len(device.plans[nil].Launches)}
	k.report.Whole = w
	for seed := range k.Seeds {
		in, err := k.Make(g, &Cases[0], uint64(seed))
		if err != nil {
			return err
		}
		k.say("seed %d: %s", seed, WholeGraph)
		want, err := k.oneByOne(ctx, g, sites, in, weights)
		if err != nil {
			return err
		}
		got, err := device.runWhole(in)
		if err != nil {
			return err
		}
		for _, name := range slices.Sorted(maps.Keys(want)) {
			d := compare(want[name], got[name], ir.Limit{}, 0, false)
			w.Values += want[name].Len()
			w.Differ += want[name].Len() - identical(want[name], got[name])
			if d.beyond != "" {
				w.OK = false
				k.report.Breaches = append(k.report.Breaches, Breach{WholeGraph, "", name, seed, Cases[0].Name, d.beyond + ", as its ops one by one give"})
			}
		}
	}
	return nil
}

// oneByOne runs the ops on the device, each on what those before it gave there, and
// returns outputs and pools.
func (k *opsCheck) oneByOne(ctx context.Context, g *ir.Graph, sites []*site, in Values, weights eval.WeightSource) (map[string]*eval.Tensor, error) {
	ops := make([]*ir.Op, len(sites))
	for i, s := range sites {
		ops[i] = s.op
	}
	v := newValues(g, ops, in, weights)
	left := map[string]*ir.Value{}
	for _, o := range g.Outputs {
		left["output "+o.Name] = o.Value
	}
	for _, s := range g.States {
		left["pool "+s.Name] = s
	}
	for _, u := range g.Updates {
		left["pool "+u.State.Name] = u.Value
	}
	for _, x := range left {
		v.last[x] = len(sites) // read at the end
	}
	for i, s := range sites {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		args, err := v.args(s.op)
		if err != nil {
			return nil, err
		}
		got, err := k.device.run(s.one, args)
		if err != nil {
			return nil, err
		}
		v.set(s.op, got, i)
	}
	out := map[string]*eval.Tensor{}
	for _, name := range slices.Sorted(maps.Keys(left)) {
		x := left[name]
		t := v.tensors[x]
		switch {
		case x.Constant() != nil: // no op of the device made it
			continue
		case x.Kind == ir.WeightValue:
			var err error
			if t, err = weights.Weight(x.Name, x.Type); err != nil {
				return nil, err
			}
		}
		out[name] = t
	}
	return out, nil
}
