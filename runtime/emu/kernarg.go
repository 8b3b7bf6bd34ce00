package emu

import (
	"errors"
	"fmt"

	"github.com/kiln-project/kiln/codegen/object"
)

// Argument is an argument of a kernel as its source declares it, for Segment.
type Argument struct {
	Name string // as the metadata has it; "" goes by the position
	Data []byte // little endian: as many bytes as the kernel's argument has
}

// gridDims is the number of dimensions that a launch has: always three, as HIP says.
const gridDims = 3

// hidden are the arguments that a runtime fills in (AMDGPUUsage, "Kernel Argument
// Metadata Map"), as far as there is anything to fill in. Of a launch all work-groups
// are whole, so that nothing remains, and it begins at work-item 0.
var hidden = map[string]func(l *Launch) uint64{
	"hidden_none":             func(*Launch) uint64 { return 0 },
	"hidden_global_offset_x":  func(*Launch) uint64 { return 0 },
	"hidden_global_offset_y":  func(*Launch) uint64 { return 0 },
	"hidden_global_offset_z":  func(*Launch) uint64 { return 0 },
	"hidden_block_count_x":    func(l *Launch) uint64 { return uint64(l.Grid[0]) },
	"hidden_block_count_y":    func(l *Launch) uint64 { return uint64(l.Grid[1]) },
	"hidden_block_count_z":    func(l *Launch) uint64 { return uint64(l.Grid[2]) },
	"hidden_group_size_x":     func(l *Launch) uint64 { return uint64(l.Block[0]) },
	"hidden_group_size_y":     func(l *Launch) uint64 { return uint64(l.Block[1]) },
	"hidden_group_size_z":     func(l *Launch) uint64 { return uint64(l.Block[2]) },
	"hidden_remainder_x":      func(*Launch) uint64 { return 0 },
	"hidden_remainder_y":      func(*Launch) uint64 { return 0 },
	"hidden_remainder_z":      func(*Launch) uint64 { return 0 },
	"hidden_grid_dims":        func(*Launch) uint64 { return gridDims },
	"hidden_dynamic_lds_size": func(l *Launch) uint64 { return uint64(l.LDS) },
	"hidden_private_base":     func(*Launch) uint64 { return privateBase >> 32 },
	"hidden_shared_base":      func(*Launch) uint64 { return sharedBase >> 32 },
}

// explicitKinds are the kinds of arguments that a caller gives as bytes.
var explicitKinds = map[string]bool{"by_value": true, "global_buffer": true}

// Segment builds the argument segment of a launch, of which Grid, Block and LDS count:
// the explicit arguments, given by name or else by their position in the list, and the
// hidden ones. Each explicit argument has to be there once and with its size; an
// argument of a kind that cannot be filled in is an error that names it.
func (k *Kernel) Segment(l Launch, args ...Argument) ([]byte, error) {
	segment := make([]byte, k.Meta.KernargBytes)
	var explicit []object.Arg
	for _, a := range k.Meta.Args {
		if !a.Hidden() {
			explicit = append(explicit, a)
			continue
		}
		value, ok := hidden[a.ValueKind]
		if !ok {
			return nil, fmt.Errorf("kernel %s wants argument %s, which is not supported", k.Meta.Name, a.ValueKind)
		}
		if err := putUint(segment, a, value(&l)); err != nil {
			return nil, fmt.Errorf("kernel %s: %w", k.Meta.Name, err)
		}
	}
	given := make([]bool, len(explicit))
	for i, arg := range args {
		at, err := position(explicit, i, arg.Name)
		if err != nil {
			return nil, fmt.Errorf("kernel %s: %w", k.Meta.Name, err)
		}
		a := explicit[at]
		switch {
		case given[at]:
			return nil, fmt.Errorf("kernel %s: %s is given twice", k.Meta.Name, describe(at, a))
		case !explicitKinds[a.ValueKind]:
			return nil, fmt.Errorf("kernel %s: %s is of kind %s, which is not supported", k.Meta.Name, describe(at, a), a.ValueKind)
		case len(arg.Data) != a.Size:
			return nil, fmt.Errorf("kernel %s: %d bytes for %s, which has %d", k.Meta.Name, len(arg.Data), describe(at, a), a.Size)
		}
		given[at] = true
		copy(segment[a.Offset:], arg.Data)
	}
	for i, ok := range given {
		if !ok {
			return nil, fmt.Errorf("kernel %s: %s is not given", k.Meta.Name, describe(i, explicit[i]))
		}
	}
	return segment, nil
}

// describe names an explicit argument.
func describe(i int, a object.Arg) string {
	if a.Name == "" {
		return fmt.Sprintf("argument %d", i+1)
	}
	return fmt.Sprintf("argument %d (%s)", i+1, a.Name)
}

// position finds the argument that is given as number i, by its name if it has one.
func position(explicit []object.Arg, i int, name string) (int, error) {
	if name == "" {
		if i >= len(explicit) {
			return 0, fmt.Errorf("argument %d is given, the kernel has %d", i+1, len(explicit))
		}
		return i, nil
	}
	for at, a := range explicit {
		if a.Name == name {
			return at, nil
		}
	}
	return 0, fmt.Errorf("no argument is named %q", name)
}

// putUint writes a number into as many bytes as the argument has.
func putUint(segment []byte, a object.Arg, x uint64) error {
	if a.Size < 8 && x>>(8*a.Size) != 0 {
		return fmt.Errorf("argument %s of %d bytes cannot hold %d", a.ValueKind, a.Size, x)
	}
	if a.Size > 8 && x != 0 {
		return errors.New("argument " + a.ValueKind + " has more than 8 bytes")
	}
	for i := range min(a.Size, 8) {
		segment[a.Offset+i] = byte(x >> (8 * i))
	}
	return nil
}

// packet builds the packet by which the launch would be put into a queue, which a
// kernel can ask for (HSA runtime specification, "Kernel dispatch packet").
func (k *Kernel) packet(l *Launch, kernarg uint64) []byte {
	const (
		size           = 64
		kernelDispatch = 2 // the packet's type
	)
	b := le.AppendUint16(make([]byte, 0, size), kernelDispatch)
	b = le.AppendUint16(b, gridDims)
	for axis := range 3 {
		b = le.AppendUint16(b, uint16(l.Block[axis]))
	}
	b = le.AppendUint16(b, 0)
	for axis := range 3 {
		b = le.AppendUint32(b, uint32(l.Grid[axis]*l.Block[axis])) // work-items
	}
	b = le.AppendUint32(b, k.Meta.Descriptor.ScratchBytes)
	b = le.AppendUint32(b, uint32(k.Meta.LDSBytes+l.LDS))
	b = le.AppendUint64(b, k.address-k.Meta.Address+k.Meta.Descriptor.Address)
	b = le.AppendUint64(b, kernarg)
	return b[:size] // no completion signal
}
