package check

import (
	"slices"
	"strings"

	"github.com/kiln-project/kiln/codegen/kernels"
	"github.com/kiln-project/kiln/codegen/plan"
	"github.com/kiln-project/kiln/ir"
)

// Taken is a liberty of the op table that kernels took, in place of whose limits the
// op's own do not hold.
type Taken struct {
	Name  string   `json:"name"`
	Forms []string `json:"forms"` // kernel forms that declare it
}

func (t *Taken) String() string {
	return "liberty " + t.Name + " of " + strings.Join(t.Forms, ", ")
}

// libertyOf is the liberty of an op that some of the kernel forms which ran it declare,
// and those forms; nil: none of them declares one, or the op has none of that name. It
// may be the form of an op that it was decomposed into.
func libertyOf(d *ir.OpDef, forms []string) (*ir.Liberty, []string) {
	takes := map[string][]string{} // by liberty
	for _, op := range kernels.Ops() {
		for _, f := range kernels.For(op) {
			if f.Liberty != "" && slices.Contains(forms, f.Name) {
				takes[f.Liberty] = append(takes[f.Liberty], f.Name)
			}
		}
	}
	for i := range d.Liberties {
		if y := &d.Liberties[i]; takes[y.Name] != nil {
			return y, takes[y.Name]
		}
	}
	return nil, nil
}

// limitOf is the limit of result i of an op whose kernels took a liberty, or none (nil).
func limitOf(d *ir.OpDef, y *ir.Liberty, i int) ir.Limit {
	if y != nil {
		return y.LimitOf(i)
	}
	return d.LimitOf(i)
}

// formsOf lists the forms of a plan's launches, each once.
func formsOf(m *plan.Module, p *plan.Plan) []string {
	var names []string
	for _, l := range p.Launches {
		if f := m.Kernels[l.Kernel].Form; !slices.Contains(names, f) {
			names = append(names, f)
		}
	}
	return names
}
