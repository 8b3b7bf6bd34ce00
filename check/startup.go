package check

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/kiln-project/kiln/codegen/bundle"
	"github.com/kiln-project/kiln/codegen/plan"
	"github.com/kiln-project/kiln/ir"
	"github.com/kiln-project/kiln/ir/eval"
	"github.com/kiln-project/kiln/ir/metric"
	"github.com/kiln-project/kiln/runtime/device"
)

// ProbeFault is a fused op that is not what it decomposes into, on the device.
type ProbeFault struct {
	Op    string   `json:"op"`
	Loc   string   `json:"loc"`
	Forms []string `json:"forms"` // kernel forms that made it
	Why   string   `json:"why"`
}

func (f ProbeFault) String() string {
	return fmt.Sprintf("%s at %s (kernel %s): %s", f.Op, f.Loc, strings.Join(f.Forms, ", "), f.Why)
}

// ProbeSeeds is how many operands a probe has: shares of different elements need some
// hundred elements, and a decode step has one row.
const ProbeSeeds = 4

// Probes runs the probes of a bundle over the weights of an executor: each fused op on
// made-up operands, and the same op as it decomposes, both on the device. What the op
// table allows of a kernel against the meaning is allowed of the two against each other.
func Probes(ctx context.Context, x *device.Executor, object []byte, m *plan.Module, graphs string) (faults []ProbeFault, err error) {
	list, err := ir.Parse("graphs.kir", graphs)
	if err != nil {
		return nil, err
	}
	if len(m.Plans) != 2*len(list) {
		return nil, fmt.Errorf("probes: %d plans for %d graphs", len(m.Plans), len(list))
	}
	d, err := x.Sibling(object, m)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, d.Close()) }()
	for i, g := range list {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		p, err := newProbe(d, m, g, m.Plans[2*i], m.Plans[2*i+1])
		if err != nil {
			return nil, fmt.Errorf("probe %s: %w", g.Name, err)
		}
		why, err := p.run(ctx)
		if err != nil {
			return nil, fmt.Errorf("probe %s: %s at %s: %w", g.Name, p.op.Def.Name, p.op.Loc, err)
		}
		if why != "" {
			faults = append(faults, ProbeFault{p.op.Def.Name, p.op.Loc, p.forms, why})
		}
	}
	return faults, nil
}

// probe is one fused op in two plans.
type probe struct {
	graph        *ir.Graph
	op           *ir.Op
	forms        []string // of the op's launches
	limits       []ir.Limit
	roundsInside bool
	fused, plain *device.Program
}

func newProbe(d *device.Model, m *plan.Module, g *ir.Graph, fused, plain *plan.Plan) (*probe, error) {
	p := &probe{graph: g}
	at := slices.IndexFunc(g.Ops, func(op *ir.Op) bool { return op.Def.FusedBy != "" })
	if at < 0 || fused.Entry != g.Name || plain.Entry != g.Name+".plain" {
		return nil, fmt.Errorf("the graph has no fused op, or its plans are %s and %s", fused.Entry, plain.Entry)
	}
	p.op = g.Ops[at]
	var err error
	if p.roundsInside, err = roundsInside(g); err != nil {
		return nil, err
	}
	p.forms = formsOf(m, fused)
	p.limits = probeLimits(p.op.Def, append(formsOf(m, plain), p.forms...))
	if p.fused, err = d.Load(fused); err != nil {
		return nil, err
	}
	p.plain, err = d.Load(plain)
	return p, err
}

// probeLimits are those of an op's results: of the liberty that one of the forms takes,
// where the op has it too.
func probeLimits(d *ir.OpDef, forms []string) []ir.Limit {
	y, _ := libertyOf(d, forms)
	limits := make([]ir.Limit, len(d.Results))
	for i := range limits {
		limits[i] = limitOf(d, y, i)
	}
	return limits
}

// run says what is beyond the limits, or "".
func (p *probe) run(ctx context.Context) (string, error) {
	spans, packs := spansOf(p.graph), packsOf(p.graph)
	counts := make([]tally, len(p.limits))
	for seed := range ProbeSeeds {
		in := map[string]*eval.Tensor{}
		for _, v := range p.graph.Inputs {
			var err error
			if in[v.Name], err = Cases[0].value(source(uint64(seed), "probe", p.graph.Name+" "+v.Name), v, spans, packs); err != nil {
				return "", err
			}
		}
		got, err := p.fused.Run(in, nil)
		if fault, ok := beside(ctx, err); ok {
			return "it fails: " + fault, nil
		}
		if err != nil {
			return "", err
		}
		if p.op.Def.Rest != nil {
			in[bundle.ProbeFirst] = got[bundle.ProbeResult(0)]
		}
		want, err := p.plain.Run(in, nil)
		if err != nil {
			return "", fmt.Errorf("the ops that it decomposes into: %w", err)
		}
		for i, l := range p.limits {
			name := bundle.ProbeResult(i)
			if l.Kind == ir.ByChoice {
				if why := chosen(want[bundle.ProbeScores], want[name], got[name]); why != "" {
					return why, nil
				}
				continue
			}
			w, g, err := p.numbers(want[name], got[name])
			if err != nil {
				return "", err
			}
			d := compare(w, g, l, l.Block(p.op), p.roundsInside)
			counts[i].add(d)
			if d.beyond != "" {
				return fmt.Sprintf("%s: %s", p.op.Def.Results[i], d.beyond), nil
			}
		}
	}
	for i, l := range p.limits {
		if why := counts[i].breach(l, p.roundsInside); why != "" && l.Kind != ir.ByChoice {
			return fmt.Sprintf("%s: %s", p.op.Def.Results[i], why), nil
		}
	}
	return "", nil
}

// numbers are a result as it is compared.
func (p *probe) numbers(want, got *eval.Tensor) (w, g *eval.Tensor, err error) {
	a, err := numbers(p.op, []*eval.Tensor{want})
	if err != nil {
		return nil, nil, err
	}
	b, err := numbers(p.op, []*eval.Tensor{got})
	if err != nil {
		return nil, nil, err
	}
	return a[0], b[0], nil
}

// chosen judges the argmax of rows where it is not the one that is wanted.
func chosen(scores, want, got *eval.Tensor) string {
	if slices.Equal(want.I, got.I) {
		return ""
	}
	return valid(scores, asTop1(scores, got), metric.F32Noise)
}
