package kernel_test

import (
	"strings"
	"testing"

	"github.com/kiln-project/kiln/codegen/kernel"
	"github.com/kiln-project/kiln/ir"
)

// A kernel waits for the launches before, once, and then lets the next begin, or not
// before its end.
func TestNextAtEnd(t *testing.T) {
	for _, tc := range []struct {
		chip        string
		atEnd       bool
		waits, lets int
	}{{"sm_90", false, 1, 1}, {"sm_90", true, 1, 0}, {"gfx950", true, 0, 0}} {
		m := kernel.NewModule(mustTarget(t, tc.chip))
		err := m.Build("k", []kernel.Param{{Name: "out", Mem: ir.I32, Out: true}}, func(k *kernel.K, b []*kernel.Buf, _ []kernel.V) {
			b[0].StoreBits(k.Lane(), k.Int32(1))
			if tc.atEnd {
				k.NextAtEnd()
				k.NextAtEnd() // of another part of the grid
			}
		})
		if err != nil {
			t.Fatal(err)
		}
		waits, lets := strings.Count(m.Text(), "griddepcontrol.wait;"), strings.Count(m.Text(), "griddepcontrol.launch_dependents;")
		if waits != tc.waits || lets != tc.lets {
			t.Errorf("%s, at the end %v: waits %d times and lets the next begin %d times, want %d and %d", tc.chip, tc.atEnd, waits, lets, tc.waits, tc.lets)
		}
	}
}
