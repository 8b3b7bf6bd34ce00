package driver

import (
	"bytes"
	"fmt"
	"regexp"
	"unsafe"
)

// Info describes a device.
type Info struct {
	Kind    Kind
	Index   int
	Name    string
	Target  string // gfx942:sramecc+:xnack-, or sm_90
	Version int    // of the library's interface
	Build   string // of the library: Library.Build

	Units          int    // compute units, streaming multiprocessors
	Wave           int    // work-items of a wavefront, of a warp
	MaxGroup       int    // work-items of a workgroup
	Shared         int    // bytes of LDS of a workgroup, without asking for more
	MaxShared      int    // bytes of LDS of a workgroup that asks (Function.AllowShared)
	UnitShared     int    // bytes of LDS of a compute unit
	L2             int    // bytes
	ClockKHz       int    // peak
	MemoryClockKHz int    // peak
	BusBits        int    // width of the memory bus
	Memory         uint64 // bytes
	MemoryFree     uint64 // bytes, when the device was opened

	// Problems: what the driver reported in a way that is not known. The values
	// above are right all the same.
	Problems []string
}

// attributes of a device that are numbers, by the enumerations
// hipDeviceAttribute_t (equal in HIP 5.2, 5.7, 6.2) and CUdevice_attribute.
var attributes = []struct {
	number [2]int // by Kind
	into   func(*Info) *int
}{
	{[...]int{HIP: 63, CUDA: 16}, func(i *Info) *int { return &i.Units }},
	{[...]int{HIP: 87, CUDA: 10}, func(i *Info) *int { return &i.Wave }},
	{[...]int{HIP: 56, CUDA: 1}, func(i *Info) *int { return &i.MaxGroup }},
	{[...]int{HIP: 74, CUDA: 8}, func(i *Info) *int { return &i.Shared }},
	{[...]int{HIP: 74, CUDA: 97}, func(i *Info) *int { return &i.MaxShared }}, // LDS is never opt-in
	{[...]int{HIP: 10002, CUDA: 81}, func(i *Info) *int { return &i.UnitShared }},
	{[...]int{HIP: 19, CUDA: 38}, func(i *Info) *int { return &i.L2 }},
	{[...]int{HIP: 5, CUDA: 13}, func(i *Info) *int { return &i.ClockKHz }},
	{[...]int{HIP: 60, CUDA: 36}, func(i *Info) *int { return &i.MemoryClockKHz }},
	{[...]int{HIP: 59, CUDA: 37}, func(i *Info) *int { return &i.BusBits }},
}

// The compute capability, of CUDA devices.
const (
	cudaCapabilityMajor = 75
	cudaCapabilityMinor = 76
)

// examine fills Info, on the device's thread.
func (d *Device) examine() error {
	i := &d.info
	i.Kind, i.Index = d.lib.Kind, d.index
	var err error
	if i.Version, err = d.lib.Version(); err != nil {
		return err
	}
	if i.Build, err = d.lib.Build(); err != nil {
		return err
	}
	name := make([]byte, 256)
	if err := d.try(&d.lib.fn.DeviceName, uintptr(unsafe.Pointer(&name[0])), uintptr(len(name)), uintptr(d.handle)); err != nil {
		return err
	}
	i.Name = cut(name)
	for _, a := range attributes {
		if *a.into(i), err = d.attribute(a.number[d.lib.Kind]); err != nil {
			return err
		}
	}
	if err := d.try(&d.lib.fn.DeviceMemory, uintptr(unsafe.Pointer(&i.Memory)), uintptr(d.handle)); err != nil {
		return err
	}
	if i.MemoryFree, _, err = d.Memory(); err != nil {
		return err
	}
	if d.lib.Kind == HIP {
		return d.archName()
	}
	major, err := d.attribute(cudaCapabilityMajor)
	if err != nil {
		return err
	}
	minor, err := d.attribute(cudaCapabilityMinor)
	i.Target = fmt.Sprintf("sm_%d%d", major, minor)
	return err
}

func (d *Device) attribute(number int) (int, error) {
	var v int32
	err := d.try(&d.lib.fn.DeviceAttribute, uintptr(unsafe.Pointer(&v)), uintptr(number), uintptr(d.handle))
	return int(v), err
}

// archName reads the target ID, which only the struct of all properties has.
func (d *Device) archName() error {
	f, layout := &d.lib.fn.PropertiesR0600, propertiesR0600
	if f.address == 0 {
		f, layout = &d.lib.fn.PropertiesR0000, propertiesR0000
	}
	// Larger than any generation, should the library write more than is known.
	properties := make([]byte, 8192)
	if err := d.try(f, uintptr(unsafe.Pointer(&properties[0])), uintptr(d.handle)); err != nil {
		return err
	}
	target, problem := findArchName(properties, layout)
	if target == "" {
		return fmt.Errorf("%s: no target ID (gfx...) in the properties of device %d: %s has it at offset %d; this version of HIP is not known, run rocminfo",
			f.name, d.index, layout.name, layout.archName)
	}
	if problem != "" {
		d.info.Problems = append(d.info.Problems, f.name+": "+problem)
	}
	d.info.Target = target
	return nil
}

// archNamePattern is what a target ID starts with.
var archNamePattern = regexp.MustCompile(`gfx[0-9][0-9a-f]{2,3}(:[a-z]+[+-])*\x00`)

// findArchName reads gcnArchName where the layout has it. If it is not there, it
// looks for one behind the device's name, and says so.
func findArchName(properties []byte, layout propertiesLayout) (target, problem string) {
	field := properties[layout.archName : layout.archName+archNameBytes]
	if bytes.HasPrefix(field, []byte("gfx")) {
		return cut(field), ""
	}
	const name = 256 // bytes of the device's name, the first field
	at := archNamePattern.FindIndex(properties[name:])
	if at == nil {
		return "", ""
	}
	return cut(properties[name+at[0]:]), fmt.Sprintf("gcnArchName is at offset %d, not at %d as in %s", name+at[0], layout.archName, layout.name)
}
