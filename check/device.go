package check

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/kiln-project/kiln/codegen"
	"github.com/kiln-project/kiln/codegen/plan"
	"github.com/kiln-project/kiln/ir/eval"
	"github.com/kiln-project/kiln/passes"
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
	if err := d.open(ctx, c, u); err != nil {
		return nil, err
	}
	for _, o := range ops {
		var err error
		if d.programs[o], err = d.d.Load(d.plans[o]); err != nil {
			d.close()
			return nil, err
		}
	}
	return d, nil
}

// openWhole compiles a step as it is; its plan and program are those of no op. Its
// weights are still to be bound, before it runs.
func openWhole(ctx context.Context, c *OpsConfig, s *passes.Step) (*device, error) {
	u := codegen.NewUnit(c.Target)
	for _, form := range c.Disable {
		u.Disable[form] = true
	}
	if err := u.SelectKernels(s); err != nil {
		return nil, err
	}
	if err := u.PlanMemory(s); err != nil {
		return nil, err
	}
	d := &device{plans: map[*oneOp]*plan.Plan{nil: u.Module.Plans[0]}, programs: map[*oneOp]*host.Program{}}
	return d, d.open(ctx, c, u)
}

// open compiles a unit and opens its library.
func (d *device) open(ctx context.Context, c *OpsConfig, u *codegen.Unit) error {
	if c.Lowered != nil {
		c.Lowered(u)
	}
	code, err := c.Compiler.Compile(ctx, u)
	if err != nil {
		return err
	}
	lib, err := host.OpenLibrary(code.Object)
	if err != nil {
		return err
	}
	d.d = host.NewDevice(lib, u.Module)
	return nil
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
	out, states, err := d.execute(o, o.values(args))
	if err != nil {
		return nil, fmt.Errorf("%s on the device: %w", o.def.Name, err)
	}
	return o.results(out, states), nil
}

// runWhole runs the step of openWhole: outputs, and pools afterwards.
func (d *device) runWhole(in Values) (map[string]*eval.Tensor, error) {
	var err error
	if d.programs[nil] == nil {
		if d.programs[nil], err = d.d.Load(d.plans[nil]); err != nil {
			return nil, err
		}
	}
	out, states, err := d.execute(nil, in)
	if err != nil {
		return nil, fmt.Errorf("%s on the device: %w", WholeGraph, err)
	}
	all := map[string]*eval.Tensor{}
	for name, t := range out {
		all["output "+name] = t
	}
	for name, t := range states {
		all["pool "+name] = t
	}
	return all, nil
}

// execute runs a program on copies of the pools.
func (d *device) execute(o *oneOp, in Values) (out, states map[string]*eval.Tensor, err error) {
	st, err := d.d.NewState(d.plans[o])
	if err != nil {
		return nil, nil, err
	}
	defer st.Close()
	names := slices.Sorted(maps.Keys(in.States))
	for _, name := range names {
		if err := st.SetPool(name, in.States[name]); err != nil {
			return nil, nil, err
		}
	}
	if out, err = d.programs[o].Run(in.Inputs, st); err != nil {
		return nil, nil, err
	}
	states = map[string]*eval.Tensor{}
	for _, name := range names {
		if states[name], err = st.Pool(name); err != nil {
			return nil, nil, err
		}
	}
	return out, states, nil
}
