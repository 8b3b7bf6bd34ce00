package emu

import "testing"

// ForeignCount is what a kernel of another compiler executes.
type ForeignCount struct {
	Name, Chip string
	KernelCounters
}

// CountForeign runs the kernels of TestForeignObjects, entered behind the code that loads
// their arguments, which is the shorter way.
func CountForeign(t *testing.T) []ForeignCount {
	t.Helper()
	var out []ForeignCount
	for _, o := range foreignObjects(t) {
		l, _ := o.launch(t)
		l.Preloaded, l.Counters = true, &Counters{}
		if _, err := o.k.Run(t.Context(), l); err != nil {
			t.Fatal(err)
		}
		out = append(out, ForeignCount{o.name, o.chip, l.Counters.Kernels()[0]})
	}
	return out
}
