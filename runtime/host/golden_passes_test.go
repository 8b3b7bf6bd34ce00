package host_test

import (
	"math/rand/v2"
	"testing"

	"github.com/kiln-project/kiln/models/dsv4"
	"github.com/kiln-project/kiln/passes"
	"github.com/kiln-project/kiln/runtime/device/devicetest"
)

// optional lists the passes that run unless they are disabled.
func optional() (names []string) {
	for _, p := range passes.Table {
		if !p.Required && !p.Off {
			names = append(names, p.Name)
		}
	}
	return names
}

// subset chooses about half of the optional passes.
func subset(seed uint64) passes.Config {
	r := rand.New(rand.NewPCG(seed, 0))
	c := passes.Config{Only: []string{}}
	for _, name := range optional() {
		if r.IntN(2) == 0 {
			c.Only = append(c.Only, name)
		}
	}
	return c
}

// The goldens hold without the optional passes, and with some of them. The other
// subsets, and all but one pass, are in the long tests.
func TestGoldenPasses(t *testing.T) {
	c := devicetest.Compiler(t)
	run := func(name string, config passes.Config) {
		t.Run(name, func(t *testing.T) {
			t.Log(config.Key())
			runGolden(t, c, devicetest.Variant{Numerics: dsv4.Production, Passes: config})
		})
	}
	run("required", passes.Config{Pipeline: "required"})
	run("subset-0", subset(0))
}
