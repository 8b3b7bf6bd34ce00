package object

import "strings"

// Kernel is what a code object says about a kernel. A nil pointer is a value
// that the object does not state.
type Kernel struct {
	Name   string // in the source
	Symbol string // of the kernel descriptor: NAME.kd

	Args         []Arg // explicit and hidden ones, in the order of the metadata
	KernargBytes int   // of the whole argument segment
	KernargAlign int   // bytes

	// VGPRs counts the vector registers of a work-item. On chips with one
	// register file (gfx90a and later of that family) it includes the AGPRs.
	VGPRs int
	AGPRs *int // accumulation registers
	SGPRs int  // scalar registers of a wave, those for VCC and the like included

	VGPRSpills *int // vector registers spilled
	SGPRSpills *int // scalar registers spilled

	LDSBytes     int // of a workgroup, fixed; dynamic LDS comes on top at launch
	ScratchBytes int // of a work-item, fixed

	MaxWorkgroup      int   // work-items
	RequiredWorkgroup []int // x, y, z; nil if any size up to MaxWorkgroup will do
	Wavefront         int   // work-items of a wave
	DynamicStack      *bool // the stack can grow beyond ScratchBytes

	Descriptor *Descriptor // nil if its symbol is missing

	Section string // of the code
	Address uint64 // of the code: virtual, or an offset in Section if the object is relocatable
	Code    []byte // machine code by the size of the function's symbol; nil if the symbol is missing

	// Occupancy is the number of waves that fit on a SIMD, by the rules of the
	// function Occupancy; nil for chips that it does not know.
	Occupancy *int

	unknown []string // metadata keys that are not in the tables
}

// Arg is an argument of a kernel.
type Arg struct {
	Name         string // "" if the compiler did not say
	Offset       int    // in the argument segment
	Size         int    // bytes
	ValueKind    string // by_value, global_buffer, hidden_block_count_x, ...
	AddressSpace string // of a pointer: global, ...; else ""
	Access       string // that the source declares: read_only, ...; else ""
	ActualAccess string // that the code was found to do: read_only, write_only, read_write; else ""
}

// Hidden tells whether the argument is filled in by the runtime rather than
// given by the caller.
func (a Arg) Hidden() bool { return strings.HasPrefix(a.ValueKind, "hidden_") }

// HiddenArgs lists the arguments that the runtime fills in: exactly these, at
// their offsets, and nothing between them.
func (k *Kernel) HiddenArgs() []Arg {
	var list []Arg
	for _, a := range k.Args {
		if a.Hidden() {
			list = append(list, a)
		}
	}
	return list
}

// valueKinds are those of AMDGPUUsage, tables "Kernel Argument Metadata Map"
// of code object versions 3 and 5.
var valueKinds = map[string]bool{
	"by_value": true, "global_buffer": true, "dynamic_shared_pointer": true, "sampler": true, "image": true, "pipe": true,
	"queue": true, "hidden_global_offset_x": true, "hidden_global_offset_y": true, "hidden_global_offset_z": true,
	"hidden_none": true, "hidden_printf_buffer": true, "hidden_hostcall_buffer": true, "hidden_default_queue": true,
	"hidden_completion_action": true, "hidden_multigrid_sync_arg": true, "hidden_block_count_x": true,
	"hidden_block_count_y": true, "hidden_block_count_z": true, "hidden_group_size_x": true, "hidden_group_size_y": true,
	"hidden_group_size_z": true, "hidden_remainder_x": true, "hidden_remainder_y": true, "hidden_remainder_z": true,
	"hidden_grid_dims": true, "hidden_heap_v1": true, "hidden_dynamic_lds_size": true, "hidden_private_base": true,
	"hidden_shared_base": true, "hidden_queue_ptr": true,
}
