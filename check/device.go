package check

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/kiln-project/kiln/codegen"
	"github.com/kiln-project/kiln/codegen/plan"
	"github.com/kiln-project/kiln/ir/eval"
	"github.com/kiln-project/kiln/passes"
	"github.com/kiln-project/kiln/runtime/device"
	"github.com/kiln-project/kiln/runtime/host"
)

// machine runs ops as they were compiled, all of them in one library.
type machine struct {
	dev      device.Device
	d        *device.Model
	plans    map[*oneOp]*plan.Plan
	programs map[*oneOp]*device.Program
	forms    map[*oneOp][]string // kernel forms that run it
}

// openDevice compiles ops without some kernel forms; a composite whose forms are
// all disabled runs as its decomposition.
func openDevice(ctx context.Context, c *OpsConfig, ops []*oneOp, disable []string) (*machine, error) {
	u := codegen.NewUnit(c.Target)
	for _, form := range disable {
		u.Disable[form] = true
	}
	d := &machine{plans: map[*oneOp]*plan.Plan{}, programs: map[*oneOp]*device.Program{}, forms: map[*oneOp][]string{}}
	for _, o := range ops {
		if _, err := u.Lower(o.graph); err != nil {
			return nil, err
		}
	}
	m, err := d.open(ctx, c, u)
	if err != nil {
		return nil, err
	}
	for i, o := range ops {
		d.plans[o], d.forms[o] = m.Plans[i], formsOf(m, m.Plans[i])
		if d.programs[o], err = d.d.Load(d.plans[o]); err != nil {
			d.close()
			return nil, err
		}
	}
	return d, nil
}

// openWhole compiles a step as it is; its plan and program are those of no op. Its
// weights are still to be bound, before it runs.
func openWhole(ctx context.Context, c *OpsConfig, s *passes.Step) (*machine, error) {
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
	d := &machine{plans: map[*oneOp]*plan.Plan{}, programs: map[*oneOp]*device.Program{}}
	m, err := d.open(ctx, c, u)
	if err != nil {
		return nil, err
	}
	d.plans[nil] = m.Plans[0]
	return d, nil
}

// open compiles a unit and opens its library. The module has the plans as they run.
func (d *machine) open(ctx context.Context, c *OpsConfig, u *codegen.Unit) (*plan.Module, error) {
	if c.Lowered != nil {
		c.Lowered(u)
	}
	code, err := c.Compiler.Compile(ctx, u)
	if err != nil {
		return nil, err
	}
	m := u.Module
	if c.Spread != nil {
		if m, err = c.Spread(m); err != nil {
			return nil, err
		}
	}
	open := c.Open
	if open == nil {
		open = func() (device.Device, error) { return host.Open() }
	}
	if d.dev, err = open(); err != nil {
		return nil, err
	}
	if d.d, err = device.NewModel(d.dev, code.Object, m); err != nil {
		return nil, errors.Join(err, d.dev.Close())
	}
	return m, nil
}

func (d *machine) close() error {
	return errors.Join(d.d.Close(), d.dev.Close())
}

// run runs an op.
func (d *machine) run(o *oneOp, args []*eval.Tensor) ([]*eval.Tensor, error) {
	out, states, err := d.execute(o, o.values(args))
	if err != nil {
		return nil, fmt.Errorf("%s on the device: %w", o.def.Name, err)
	}
	return o.results(out, states), nil
}

// runWhole runs the step of openWhole: outputs, and pools afterwards.
func (d *machine) runWhole(in Values) (map[string]*eval.Tensor, error) {
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
func (d *machine) execute(o *oneOp, in Values) (out, states map[string]*eval.Tensor, err error) {
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
