package kernels

import (
	"github.com/kiln-project/kiln/codegen/kernel"
)

// RuntimeKernel is a kernel that no op is lowered to and no plan launches: the runtime
// does, by its form.
type RuntimeKernel struct {
	Form   string // of package plan
	Params []kernel.Param
	Body   func(k *kernel.K, bufs []*kernel.Buf, ints []kernel.V)
}

// Runtime lists the kernels that every module has for the runtime.
var Runtime = []RuntimeKernel{randomFill, randomIDs}
