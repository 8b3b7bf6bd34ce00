package hip

import (
	"errors"

	"github.com/kiln-project/kiln/codegen/object"
	"github.com/kiln-project/kiln/runtime/internal/driver"
	"github.com/kiln-project/kiln/runtime/internal/gpu"
)

// What runs plans on a GPU: see package gpu.
type (
	PlanDevice  = gpu.Device
	PlanOptions = gpu.Options
)

// OpenForPlans makes an open GPU a device of plans, which closes it; it is closed
// also when this fails. Where the assessment knows of a fault, graphs are off
// unless the options say on, and are built explicitly.
func OpenForPlans(d *Device, a Assessment, o PlanOptions) (*PlanDevice, error) {
	id, err := object.ParseDevice(d.Info().Target)
	if err != nil {
		return nil, errors.Join(err, d.Close())
	}
	if a.Has(GraphsOff) && o.Graph != gpu.GraphOn {
		o.Graph = gpu.GraphOff
	}
	if a.Has(CaptureOff) {
		o.Build = gpu.BuildExplicit
	}
	return gpu.New(d, gpu.Vendor{Name: "hip", Chip: id.Chip, Load: loadKernels}, o)
}

// loadKernels loads a code object and finds kernels in it.
func loadKernels(d *driver.Device, code []byte, names []string) (*driver.Module, []gpu.Kernel, error) {
	m, err := Load(d, "kernels.hsaco", code)
	if err != nil {
		return nil, nil, err
	}
	kernels := make([]gpu.Kernel, len(names))
	for i, name := range names {
		k, err := m.Kernel(name)
		if err != nil {
			return nil, nil, errors.Join(err, m.Close())
		}
		kernels[i] = gpu.Kernel{Function: k.Function, Params: k.Params}
		if r := k.Meta.RequiredWorkgroup; r != nil {
			kernels[i].Block = r[0] * r[1] * r[2]
		} else {
			kernels[i].Block = k.Meta.MaxWorkgroup
		}
	}
	return m.Module, kernels, nil
}
