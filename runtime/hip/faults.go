package hip

import (
	"fmt"
	"slices"
)

// Effect is what Kiln does without because of a fault.
type Effect string

// The effects.
const (
	GraphsOff  Effect = "graphs off"  // kernels are launched one by one
	CaptureOff Effect = "capture off" // graphs are built explicitly only
)

// Fault is a row: a known fault of some releases of ROCm.
type Fault struct {
	From, To Release  // both included
	Chips    []string // nil: every chip
	Effect   Effect
	What     string
	Source   string // where it was reported
	Override string // the flag that sets the row aside
}

// Faults of ROCm that were reported by others; none was reproduced here.
var Faults = []Fault{
	{Release{5, 0, 0}, Release{5, 2, 2}, nil, GraphsOff,
		"a kernel that is twice in a captured graph gets the second's arguments in both places (fixed in 5.2.3)",
		"https://github.com/ROCm/legacy-rocm-build/pull/1788", "--graph-build explicit"},
	{Release{6, 4, 0}, Release{6, 4, 0}, nil, CaptureOff,
		"a capture ends early on the state of an earlier one",
		"https://github.com/ROCm/legacy-rocm-build/issues/4614", "--graph-build capture"},
	{Release{7, 2, 0}, Release{7, 2, 3}, []string{"gfx942"}, GraphsOff,
		"replays give corrupt output in one of five processes, launches do not",
		"https://github.com/ROCm/clr/issues/279", "--graph-build explicit"},
	{Release{7, 2, 0}, Release{7, 2, 4}, []string{"gfx950"}, GraphsOff,
		"a kernel in a graph reads the old value of memory that was written just before the replay",
		"https://github.com/ROCm/hip/issues/3902", "--graph-build explicit"},
}

// Assessment is what the table says about a machine.
type Assessment struct {
	Release    Release
	Chip       string
	Faults     []Fault // that hold
	Overridden []Fault // that would
	// Newer: the release is newer than every row, so the table cannot know it.
	Newer bool
}

// Assess looks a release and a chip (gfx942) up. Where the last part of the
// release is not known, every row that could hold does. The overrides are flags as
// the rows have them; one that no row has is an error.
func Assess(r Release, chip string, overrides ...string) (Assessment, error) {
	return assess(Faults, r, chip, overrides)
}

func assess(table []Fault, r Release, chip string, overrides []string) (Assessment, error) {
	for _, o := range overrides {
		if !slices.ContainsFunc(table, func(f Fault) bool { return f.Override == o }) {
			return Assessment{}, fmt.Errorf("no known fault of ROCm is set aside with %q", o)
		}
	}
	a := Assessment{Release: r, Chip: chip, Newer: true}
	for _, f := range table {
		if r.compare(f.To) <= 0 {
			a.Newer = false
		}
		switch {
		case r.compare(f.From) < 0 || r.compare(f.To) > 0 || f.Chips != nil && !slices.Contains(f.Chips, chip):
		case slices.Contains(overrides, f.Override):
			a.Overridden = append(a.Overridden, f)
		default:
			a.Faults = append(a.Faults, f)
		}
	}
	return a, nil
}

// Has tells whether a fault that holds has this effect.
func (a Assessment) Has(e Effect) bool {
	return slices.ContainsFunc(a.Faults, func(f Fault) bool { return f.Effect == e })
}

// Lines are the assessment in words, one line for each thing to know; none if
// there is nothing.
func (a Assessment) Lines() []string {
	var list []string
	for _, f := range a.Faults {
		list = append(list, fmt.Sprintf("%s: %s", f.Effect, a.line(f)))
	}
	for _, f := range a.Overridden {
		list = append(list, fmt.Sprintf("not %s, because of %s: ROCm %s on %s: %s; %s", f.Effect, f.Override, a.Release, a.Chip, f.What, f.Source))
	}
	if a.Newer {
		list = append(list, fmt.Sprintf("ROCm %s is newer than every release with a known fault (%s): faults of it are not known here", a.Release, newest(Faults)))
	}
	return list
}

// Reasons are the faults that hold and have this effect, in words.
func (a Assessment) Reasons(e Effect) []string {
	var list []string
	for _, f := range a.Faults {
		if f.Effect == e {
			list = append(list, a.line(f))
		}
	}
	return list
}

func (a Assessment) line(f Fault) string {
	return fmt.Sprintf("ROCm %s on %s: %s; %s; %s sets this aside", a.Release, a.Chip, f.What, f.Source, f.Override)
}

func newest(table []Fault) string {
	return slices.MaxFunc(table, func(a, b Fault) int { return a.To.compare(b.To) }).To.String()
}
