package check

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/kiln-project/kiln/codegen"
	"github.com/kiln-project/kiln/codegen/plan"
	"github.com/kiln-project/kiln/ir/eval"
	"github.com/kiln-project/kiln/runtime/host"
)

// device runs ops as they were compiled, all of them in one library.
type device struct {
	d        *host.Device
	plans    map[*oneOp]*plan.Plan
	programs map[*oneOp]*host.Program
}

// openDevice compiles ops without some kernel forms; a composite whose forms are
// all disabled runs as its decomposition.
func openDevice(ctx context.Context, c *OpsConfig, ops []*oneOp, disable []string) (*device, error) {
	u := codegen.NewUnit(c.Target)
	for _, form := range disable {
		u.Disable[form] = true
	}
	d := &device{plans: map[*oneOp]*plan.Plan{}, programs: map[*oneOp]*host.Program{}}
	for _, o := range ops {
		p, err := u.Lower(o.graph)
		if err != nil {
			return nil, err
		}
		d.plans[o] = p
	}
	if c.Lowered != nil {
		c.Lowered(u)
	}
	code, err := c.Compiler.Compile(ctx, u)
	if err != nil {
		return nil, err
	}
	lib, err := host.OpenLibrary(code.Object)
	if err != nil {
		return nil, err
	}
	d.d = host.NewDevice(lib, u.Module)
	for _, o := range ops {
		if d.programs[o], err = d.d.Load(d.plans[o]); err != nil {
			d.close()
			return nil, err
		}
	}
	return d, nil
}

func (d *device) close() error {
	for _, p := range d.programs {
		if p != nil {
			p.Close()
		}
	}
	return d.d.Close()
}

// run runs an op.
func (d *device) run(o *oneOp, args []*eval.Tensor) ([]*eval.Tensor, error) {
	in := o.values(args)
	st, err := d.d.NewState(d.plans[o])
	if err != nil {
		return nil, err
	}
	defer st.Close()
	for _, name := range slices.Sorted(maps.Keys(in.States)) {
		t := in.States[name]
		if err := st.SetPool(name, t); err != nil {
			return nil, err
		}
	}
	out, err := d.programs[o].Run(in.Inputs, st)
	if err != nil {
		return nil, fmt.Errorf("%s on the device: %w", o.def.Name, err)
	}
	states := map[string]*eval.Tensor{}
	for _, name := range slices.Sorted(maps.Keys(in.States)) {
		if states[name], err = st.Pool(name); err != nil {
			return nil, err
		}
	}
	return o.results(out, states), nil
}
