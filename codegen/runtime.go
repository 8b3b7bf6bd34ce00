package codegen

import (
	"fmt"

	"github.com/kiln-project/kiln/codegen/kernels"
)

// addRuntime gives the unit the kernels that the runtime launches by itself. They
// follow those of the plans.
func (u *Unit) addRuntime() error {
	for _, r := range kernels.Runtime {
		k := kernels.Launch{Name: r.Form, Body: r.Body}
		if _, err := u.kernel(r.Form, nil, k, r.Params); err != nil {
			return fmt.Errorf("kernel %s: %w", r.Form, err)
		}
	}
	return nil
}
