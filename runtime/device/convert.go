package device

import (
	"fmt"

	"github.com/kiln-project/kiln/ir"
)

// ParseType reads a plan's type, whose extents are integers.
func ParseType(text string) (ir.Type, error) {
	return ir.ParseType(text, func(name string) (ir.Dim, error) {
		return ir.Dim{}, fmt.Errorf("symbol %s in a plan", name)
	})
}
