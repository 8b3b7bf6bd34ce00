package kernels_test

import (
	"fmt"
	"testing"

	"github.com/kiln-project/kiln/ir/eval"
)

// everyHost runs a batch on both hosts, and on one as if it had e4m3fnuz.
var everyHost = []struct {
	name string
	run  func(c *batch) map[string]*eval.Tensor
}{
	{bothHosts[0], func(c *batch) map[string]*eval.Tensor { return c.outputs(bothHosts[0]) }},
	{bothHosts[1], func(c *batch) map[string]*eval.Tensor { return c.outputs(bothHosts[1]) }},
	{"e4m3fnuz", func(c *batch) map[string]*eval.Tensor { return c.fnuzHost(bothHosts[1], c.graph()) }},
}

// sameBits holds the results of a batch to those of another, bit for bit.
func sameBits(t *testing.T, want, got *batch) {
	t.Helper()
	for _, host := range everyHost {
		w, g := host.run(want), host.run(got)
		for i, what := range want.what {
			y := fmt.Sprintf("y%d", i)
			if d := exact.compare(w[y], g[y]); d != "" {
				t.Errorf("%s: %s: %s", host.name, what, d)
			}
		}
	}
}
