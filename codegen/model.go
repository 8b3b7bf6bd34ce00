package codegen

import (
	"fmt"
	"maps"
	"slices"

	"github.com/kiln-project/kiln/codegen/plan"
	"github.com/kiln-project/kiln/ir"
)

// Bucket asks for one plan: an entry with all of its symbols bound.
type Bucket struct {
	Entry string
	Bind  map[string]int
}

// LowerAll lowers every bucket into u and returns the plans in order.
func (u *Unit) LowerAll(entries []*ir.Graph, buckets []Bucket) ([]*plan.Plan, error) {
	var plans []*plan.Plan
	for _, b := range buckets {
		i := slices.IndexFunc(entries, func(g *ir.Graph) bool { return g.Name == b.Entry })
		if i < 0 {
			return nil, fmt.Errorf("no entry %q", b.Entry)
		}
		bind := map[string]int{}
		var binding []plan.Binding
		for _, s := range slices.Sorted(maps.Keys(b.Bind)) {
			if slices.Contains(entries[i].Syms, s) { // a bucket names pools that an entry may lack
				bind[s] = b.Bind[s]
				binding = append(binding, plan.Binding{Symbol: s, Value: b.Bind[s]})
			}
		}
		g, err := ir.Bind(entries[i], bind)
		if err != nil {
			return nil, err
		}
		p, err := u.Lower(g, binding)
		if err != nil {
			return nil, err
		}
		plans = append(plans, p)
	}
	return plans, nil
}
