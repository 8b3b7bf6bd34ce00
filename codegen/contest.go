package codegen

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/kiln-project/kiln/codegen/bundle"
	"github.com/kiln-project/kiln/codegen/target"
	"github.com/kiln-project/kiln/ir"
	"github.com/kiln-project/kiln/passes"
)

// Decisions lowers the buckets of a module on which passes.Run was called, and returns
// what was chosen, sorted: of equal forms, shapes and rows the first.
func (c *Compiler) Decisions(ctx context.Context, t *target.Target, m *passes.Module, buckets []passes.Bucket) ([]Decision, error) {
	var list []Decision
	u := c.unit(ctx, t)
	u.Ask = func(d Decision) string {
		if !slices.ContainsFunc(list, d.same) {
			list = append(list, d)
		}
		return ""
	}
	if err := passes.LowerEach(m, buckets, u); err != nil {
		return nil, err
	}
	slices.SortFunc(list, func(a, b Decision) int {
		return cmp.Or(strings.Compare(a.Form, b.Form), strings.Compare(a.Key, b.Key), a.Rows-b.Rows)
	})
	return list, nil
}

// same reports whether two decisions are about one shape.
func (d Decision) same(o Decision) bool {
	return d.Form == o.Form && d.Key == o.Key && d.Rows == o.Rows
}

// Contest is the code that decides between candidates: a plan for each, in their order,
// of the same copies of an op with the same operands.
type Contest struct {
	Copies int
	Graph  string // .kir text of the first candidate's
	Code   *bundle.Code
}

// How many copies of an op follow each other in a plan: as many as have contestBytes of
// weights of their own, several times what a cache holds, within bounds.
const (
	contestBytes            = 256 << 20
	leastCopies, mostCopies = 4, 64
)

// Contest compiles the candidates of a decision.
func (c *Compiler) Contest(ctx context.Context, t *target.Target, d Decision) (*Contest, error) {
	x := &Contest{Copies: d.copies()}
	u := c.unit(ctx, t)
	for i, candidate := range d.Candidates {
		u.Ask = func(o Decision) string {
			if d.same(o) {
				return candidate
			}
			return ""
		}
		g, err := d.graph(fmt.Sprintf("candidate%d", i), x.Copies)
		if err == nil {
			x.Graph = cmp.Or(x.Graph, ir.Text(g))
			err = u.lower(&passes.Step{Graph: g, Bind: map[string]int{"B": d.Requests}, Set: d.Set})
		}
		if err != nil {
			return nil, err
		}
	}
	if err := u.AddRuntime(); err != nil {
		return nil, err
	}
	out, err := c.Compile(ctx, u)
	if err != nil {
		return nil, err
	}
	x.Code = &bundle.Code{Module: u.Module, Object: out.Object}
	return x, nil
}

// copies is how many copies of the op are measured together.
func (d Decision) copies() int {
	var own int64
	for _, a := range d.Op.Args {
		if ownOperand(a) {
			data, scales, _ := a.Type.Bytes() // bound
			own += data + scales
		}
	}
	if own == 0 {
		return mostCopies
	}
	return int(min(max(contestBytes/own, leastCopies), mostCopies))
}

// ownOperand reports whether each copy has an operand for itself: a step reads its
// weights and pools once, so that they are in no cache, unlike what it has just computed.
func ownOperand(v *ir.Value) bool { return v.Kind == ir.WeightValue || isPool(v) }

// graph is so many copies of the op. Operands are weights, so that a device makes their
// numbers, but for integers: of those which the op is not given as weights, what they may
// be follows from the graph. Operands that copies do not own are two, by turns. The
// results of the first and the last copy are outputs.
func (d Decision) graph(name string, copies int) (*ir.Graph, error) {
	b := ir.NewBuilder(name)
	b.At(d.Op.Loc)
	for i := range copies {
		args := make([]*ir.Value, len(d.Op.Args))
		for j, a := range d.Op.Args {
			own := i
			switch {
			case a.Constant() != nil:
				args[j] = b.Op1("const", a.Constant().Attrs)
				continue
			case !ownOperand(a):
				own %= 2
			}
			declare := b.Weight
			if a.Type.DType.IsInt() && a.Kind != ir.WeightValue {
				declare = b.Input
			}
			args[j] = declare(fmt.Sprintf("operand%d.%d", j, own), a.Type)
		}
		for j, r := range b.Op(d.Op.Def.Name, d.Op.Attrs, args...) {
			if i == 0 || i == copies-1 {
				b.Output(fmt.Sprintf("result%d.%d", j, i), r)
			}
		}
	}
	return b.Finish()
}
