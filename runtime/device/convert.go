package device

import (
	"fmt"

	"github.com/kiln-project/kiln/ir"
)

// parseType reads a plan's type, whose extents are integers.
func parseType(text string) (ir.Type, error) {
	return ir.ParseType(text, func(name string) (ir.Dim, error) {
		return ir.Dim{}, fmt.Errorf("symbol %s in a plan", name)
	})
}
