//go:build long

package host_test

import (
	"fmt"
	"testing"

	"github.com/kiln-project/kiln/models/dsv4"
	"github.com/kiln-project/kiln/passes"
	"github.com/kiln-project/kiln/runtime/device/devicetest"
)

// With each optional pass off in turn, and with 20 random subsets of them, in both
// numerics. What TestGoldenPasses runs is not run again.
func TestGoldenPassesLong(t *testing.T) {
	c := devicetest.Compiler(t)
	run := func(name string, n dsv4.Numerics, config passes.Config) {
		t.Run(fmt.Sprintf("%s/%s", n, name), func(t *testing.T) {
			t.Log(config.Key())
			runGolden(t, c, devicetest.Variant{Numerics: n, Passes: config})
		})
	}
	for _, n := range []dsv4.Numerics{dsv4.Production, dsv4.Unrounded} {
		for _, name := range optional() {
			run("without-"+name, n, passes.Config{Disable: []string{name}})
		}
		first := uint64(1)
		if n == dsv4.Unrounded {
			first = 0
			run("required", n, passes.Config{Pipeline: "required"})
		}
		for seed := first; seed < 20; seed++ {
			run(fmt.Sprint("subset-", seed), n, subset(seed))
		}
	}
}
