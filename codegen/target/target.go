// Package target lists the machines that Kiln compiles for: one table row each.
package target

import (
	"fmt"
	"slices"
	"strings"

	"github.com/llir/llvm/ir/types"

	"github.com/kiln-project/kiln/codegen/object"
	"github.com/kiln-project/kiln/passes"
)

// Kind is a family of machines.
type Kind uint8

// The families.
const (
	Host   Kind = iota // the CPU this process runs on
	AMDGPU             // HSA code objects
	NVPTX              // PTX text
)

// Target is one row: all that a kernel needs to know about a machine.
type Target struct {
	Name     string // as --target takes it, a target ID in its canonical form
	Kind     Kind
	Triple   string
	CPU      string // LLVM's -mcpu
	Features string // LLVM's -mattr
	// ID is what an AMDGPU code object is for. In the table it says which features
	// the chip has: SettingAny, or SettingUnsupported.
	ID object.TargetID
	// Lanes is the number of work-items of a group that act together: the width
	// of a vector on the host, a workgroup on a GPU.
	Lanes int
	// Wave is the number of lanes that exchange values without memory.
	Wave   int
	Global types.AddrSpace
	Shared types.AddrSpace
	// BFloat: the code generator handles LLVM's bfloat. On x86 it turns into
	// library calls, so bf16 travels as i16 there.
	BFloat bool
	// Permute8: eight f32 are picked by index in one instruction.
	Permute8 bool
	// FMA: a fused multiply-add is one instruction.
	FMA bool
	// FNUZ: 8-bit floats are e4m3fnuz (bias 8, max 240) instead of OCP e4m3.
	FNUZ bool
	// Convert8: one instruction converts an f32 to the target's own 8-bit float,
	// and one converts it back.
	Convert8 bool
	// Convert4: one instruction converts two scaled e2m1 codes to f32.
	Convert4 bool
}

// Table lists the targets.
var Table = []Target{
	{Name: "x86-64-v3", Kind: Host, Triple: "x86_64-unknown-linux-gnu", CPU: "x86-64-v3", Lanes: 8, Wave: 8, FMA: true, Permute8: true},
	{Name: "x86-64-v2", Kind: Host, Triple: "x86_64-unknown-linux-gnu", CPU: "x86-64-v2", Lanes: 4, Wave: 4},
	{Name: "gfx942", Kind: AMDGPU, Triple: "amdgcn-amd-amdhsa", CPU: "gfx942", ID: object.TargetID{Chip: "gfx942"}, Lanes: 256, Wave: 64, Global: 1, Shared: 3, BFloat: true, FMA: true, FNUZ: true, Convert8: true},
	{Name: "gfx950", Kind: AMDGPU, Triple: "amdgcn-amd-amdhsa", CPU: "gfx950", ID: object.TargetID{Chip: "gfx950"}, Lanes: 256, Wave: 64, Global: 1, Shared: 3, BFloat: true, FMA: true, Convert8: true, Convert4: true},
	{Name: "sm_90", Kind: NVPTX, Triple: "nvptx64-nvidia-cuda", CPU: "sm_90", Features: "+ptx78", Lanes: 256, Wave: 32, Global: 1, Shared: 3, BFloat: true, FMA: true},
	// sm_90's instructions and those that newer chips need not have.
	{Name: "sm_90a", Kind: NVPTX, Triple: "nvptx64-nvidia-cuda", CPU: "sm_90a", Features: "+ptx80", Lanes: 256, Wave: 32, Global: 1, Shared: 3, BFloat: true, FMA: true},
}

// Lookup finds a target by name. That of an AMD GPU may go on with the features of
// a target ID, in any order: gfx942:sramecc+:xnack-.
func Lookup(name string) (*Target, error) {
	chip, features, _ := strings.Cut(name, ":")
	at := slices.IndexFunc(Table, func(t Target) bool { return t.Name == chip })
	if at < 0 {
		var names []string
		for _, t := range Table {
			names = append(names, t.Name)
		}
		return nil, fmt.Errorf("unknown target %q: have %s", name, strings.Join(names, ", "))
	}
	row := &Table[at]
	if name == chip {
		return row, nil
	}
	if row.Kind != AMDGPU {
		return nil, fmt.Errorf("target %q: %s takes no features, got %q", name, chip, features)
	}
	id, err := object.ParseTargetID(name)
	if err == nil {
		id, err = id.On(row.ID)
	}
	if err != nil {
		return nil, err
	}
	t := *row
	t.Name, t.ID, t.Features = id.String(), id, id.Attributes()
	return &t, nil
}

// GPU reports whether lanes are threads of their own.
func (t *Target) GPU() bool { return t.Kind != Host }

// Block is the number of work-items that a launch has in a group.
func (t *Target) Block() int {
	if t.GPU() {
		return t.Lanes
	}
	return 1
}

// ForPasses is what passes may know of the target.
func (t *Target) ForPasses() passes.Target {
	return passes.Target{Name: t.Name, Chip: t.CPU, GPU: t.GPU(), FNUZ: t.FNUZ}
}
