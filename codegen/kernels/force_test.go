package kernels_test

import (
	"fmt"
	"os"

	"github.com/kiln-project/kiln/codegen/kernels"
)

func init() {
	if v := os.Getenv("KILN_GEMM"); v != "" {
		fmt.Sscan(v, kernels.ForceGemm)
	}
}
