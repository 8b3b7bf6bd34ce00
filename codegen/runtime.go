package codegen

import (
	"fmt"

	"github.com/kiln-project/kiln/codegen/kernels"
)

// AddRuntime gives the unit the kernels that the runtime of a bundle launches by itself,
// to make weights and random ones. They follow those of the plans. What every unit for a GPU needs,
// Compile adds: AddAround.
func (u *Unit) AddRuntime() error {
	for _, r := range kernels.Runtime {
		k := kernels.Launch{Name: r.Form, Body: r.Body}
		if _, err := u.kernel(r.Form, nil, k, r.Params); err != nil {
			return fmt.Errorf("kernel %s: %w", r.Form, err)
		}
	}
	return nil
}
