// Package mypasses has an analysis and a fusion for Kiln, with the op that the
// fusion makes and a kernel for it.
package mypasses

import (
	"errors"

	"github.com/kiln-project/kiln/codegen/kernels"
	"github.com/kiln-project/kiln/ir"
	"github.com/kiln-project/kiln/passes"
)

// Register adds everything to Kiln's tables. Call it once, before anything runs.
func Register() error {
	return errors.Join(
		ir.Register(addRow),
		kernels.Register(addRowForm), // after its op
		passes.Register(fuseAddRow, "", passes.Order{
			Before: "dce", After: "fuse-add-row", Why: "a sum that nothing reads needs no kernel",
		}),
		passes.Register(bytesPerLayer, "", passes.Order{
			Before: "dce", After: "bytes-per-layer", Why: "a weight that nothing reads is gone by then",
		}),
	)
}
