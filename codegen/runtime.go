package codegen

import (
	"fmt"

	"github.com/kiln-project/kiln/codegen/kernels"
	"github.com/kiln-project/kiln/codegen/plan"
)

// AddRuntime gives the unit the kernels that the runtime of a bundle launches by itself,
// to make weights and random ones. They follow those of the plans. What every unit for a GPU needs,
// Compile adds: AddAround.
func (u *Unit) AddRuntime() error {
	for _, r := range kernels.Runtime {
		key := specOf(string(appendSpec(nil, r.Form, &kernels.Launch{Name: r.Form})), r.Params) // as of a launch
		if _, ok := u.symbols[key]; ok {
			continue
		}
		if _, err := u.build(key, r.Form, r.Params, r.Body, plan.Kernel{Form: r.Form, Spec: key, Params: formatsOf(r.Params)}); err != nil {
			return fmt.Errorf("kernel %s: %w", r.Form, err)
		}
	}
	return nil
}
