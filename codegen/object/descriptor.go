package object

import "fmt"

// descriptorSize is the size of a kernel descriptor, which the hardware's
// command processor reads to start a kernel.
const descriptorSize = 64

// Descriptor is a kernel descriptor (AMDGPUUsage, "Kernel Descriptor"). The
// methods decode fields of the register words.
type Descriptor struct {
	Address      uint64 // virtual, or an offset in its section if the object is relocatable
	LDSBytes     uint32 // group_segment_fixed_size
	ScratchBytes uint32 // private_segment_fixed_size
	KernargBytes uint32 // kernarg_size
	EntryOffset  int64  // kernel_code_entry_byte_offset, from Address; 0 in a relocatable object
	Rsrc1        uint32 // compute_pgm_rsrc1
	Rsrc2        uint32 // compute_pgm_rsrc2
	Rsrc3        uint32 // compute_pgm_rsrc3
	Properties   uint16 // kernel_code_properties
	Preload      uint16 // kernarg_preload

	reserved string // names the reserved bytes that are not zero
}

// Property is a bit of kernel_code_properties: something the kernel wants in
// its user SGPRs, in the order of the bits, or how it runs.
type Property uint16

// The properties.
const (
	PrivateSegmentBuffer Property = 1 << 0 // 4 SGPRs
	DispatchPtr          Property = 1 << 1 // 2 SGPRs
	QueuePtr             Property = 1 << 2 // 2 SGPRs
	KernargSegmentPtr    Property = 1 << 3 // 2 SGPRs
	DispatchID           Property = 1 << 4 // 2 SGPRs
	FlatScratchInit      Property = 1 << 5 // 2 SGPRs
	PrivateSegmentSize   Property = 1 << 6 // 1 SGPR
	Wavefront32          Property = 1 << 10
	UsesDynamicStack     Property = 1 << 11

	reservedProperties = 7<<7 | 15<<12
)

func bits(word uint32, low, count int) int { return int(word >> low & (1<<count - 1)) }

// Has tells whether a property is set.
func (d *Descriptor) Has(p Property) bool { return d.Properties&uint16(p) != 0 }

// VGPRGranules is the number of granules of vector registers that a wave
// allocates; on gfx90a, gfx942 and gfx950 a granule is 8 registers.
func (d *Descriptor) VGPRGranules() int { return bits(d.Rsrc1, 0, 6) + 1 }

// SGPRGranules is the number of granules of 8 scalar registers; 1 on gfx10 and
// later, where every wave has all of them.
func (d *Descriptor) SGPRGranules() int { return bits(d.Rsrc1, 6, 4) + 1 }

// FloatMode is the initial MODE register's rounding and denormal bits.
func (d *Descriptor) FloatMode() int { return bits(d.Rsrc1, 12, 8) }

// UserSGPRs is the number of scalar registers that are set at the start,
// preloaded arguments included; the workgroup's ids follow them.
func (d *Descriptor) UserSGPRs() int { return bits(d.Rsrc2, 1, 5) }

// WorkgroupIDs tells for x, y and z whether the kernel gets the workgroup's id.
func (d *Descriptor) WorkgroupIDs() [3]bool {
	return [3]bool{bits(d.Rsrc2, 7, 1) == 1, bits(d.Rsrc2, 8, 1) == 1, bits(d.Rsrc2, 9, 1) == 1}
}

// WorkitemIDs is how many of the work-item ids x, y, z the kernel gets.
func (d *Descriptor) WorkitemIDs() int { return bits(d.Rsrc2, 11, 2) + 1 }

// AccumOffset is the index of the first AGPR in the unified register file
// (gfx90a, gfx942, gfx950).
func (d *Descriptor) AccumOffset() int { return 4 * (bits(d.Rsrc3, 0, 6) + 1) }

// PreloadLength is how many dwords of the argument segment are in user SGPRs
// when the kernel starts. If it is not 0, the first 256 bytes of the code load
// them for firmware that cannot, and firmware that can starts after them.
func (d *Descriptor) PreloadLength() int { return bits(uint32(d.Preload), 0, 7) }

// PreloadOffset is the dword of the argument segment where preloading begins.
func (d *Descriptor) PreloadOffset() int { return bits(uint32(d.Preload), 7, 9) }

// readDescriptor decodes the bytes of a SYMBOL.kd.
func readDescriptor(b []byte, address uint64) (*Descriptor, error) {
	if len(b) != descriptorSize {
		return nil, fmt.Errorf("a kernel descriptor has %d bytes, not %d", descriptorSize, len(b))
	}
	d := &Descriptor{
		Address:      address,
		LDSBytes:     le.Uint32(b),
		ScratchBytes: le.Uint32(b[4:]),
		KernargBytes: le.Uint32(b[8:]),
		EntryOffset:  int64(le.Uint64(b[16:])),
		Rsrc3:        le.Uint32(b[44:]),
		Rsrc1:        le.Uint32(b[48:]),
		Rsrc2:        le.Uint32(b[52:]),
		Properties:   le.Uint16(b[56:]),
		Preload:      le.Uint16(b[58:]),
	}
	for _, r := range [][2]int{{12, 16}, {24, 44}, {60, 64}} {
		for _, c := range b[r[0]:r[1]] {
			if c != 0 {
				d.reserved = fmt.Sprintf("bytes %d to %d", r[0], r[1]-1)
			}
		}
	}
	return d, nil
}
