package drivertest

import (
	"bytes"
	"encoding/binary"

	"github.com/kiln-project/kiln/codegen/object"
)

// module is a loaded code object. Its memory is the caller's, as in ROCm.
type module struct{ object *object.CodeObject }

// kernel is a function handle, which belongs to a module and is not given back.
type kernel struct {
	module uintptr
	object *object.CodeObject
	kernel *object.Kernel
}

// imageBytes is the length of an ELF file in memory: nothing else tells it. The
// section table is its last part.
func imageBytes(address uintptr) int {
	h := bytesAt(address, 64)
	if !bytes.HasPrefix(h, []byte("\x7fELF")) {
		return 0
	}
	const sectionOffset, sectionSize, sectionCount = 0x28, 0x3a, 0x3c
	return int(binary.LittleEndian.Uint64(h[sectionOffset:])) +
		int(binary.LittleEndian.Uint16(h[sectionSize:]))*int(binary.LittleEndian.Uint16(h[sectionCount:]))
}

func (c *callbacks) HipModuleLoadData(to, image uintptr) int32 {
	if code := c.fake.forbidden(codeCaptureUnsupported); code != 0 {
		return code
	}
	n := imageBytes(image)
	if n == 0 {
		return codeInvalidImage
	}
	file, err := object.Read(bytesAt(image, n))
	if err != nil || file.Object == nil || file.Object.Relocatable {
		return codeInvalidImage
	}
	device, err := object.ParseDevice(c.fake.options.Devices[c.fake.device()].Arch)
	if err != nil || !file.Object.Target.RunsOn(device) {
		return codeNoBinaryForGPU
	}
	*wordAt(to) = c.fake.put(&module{file.Object})
	return 0
}

func (c *callbacks) HipModuleUnload(handle uintptr) int32 {
	if _, ok := get[*module](c.fake, "hipModuleUnload", handle); !ok {
		return codeInvalidHandle
	}
	delete(c.fake.handles, handle)
	for _, h := range sortedKeys(c.fake.handles) {
		if k, ok := c.fake.handles[h].(*kernel); ok && k.module == handle {
			delete(c.fake.handles, h)
		}
	}
	return 0
}

func (c *callbacks) HipModuleGetFunction(to, handle, name uintptr) int32 {
	m, ok := get[*module](c.fake, "hipModuleGetFunction", handle)
	if !ok {
		return codeInvalidHandle
	}
	k, err := m.object.Kernel(textAt(name))
	if err != nil {
		return codeNotFound
	}
	*wordAt(to) = c.fake.put(&kernel{handle, m.object, k})
	return 0
}

// HipModuleGetGlobal finds nothing: code objects are not mapped.
func (c *callbacks) HipModuleGetGlobal(address, size, handle, name uintptr) int32 {
	return codeNotFound
}

func (c *callbacks) HipFuncGetAttribute(to, attribute, handle uintptr) int32 {
	k, ok := get[*kernel](c.fake, "hipFuncGetAttribute", handle)
	if !ok {
		return codeInvalidHandle
	}
	l, err := LayoutOf("5.2.3") // the one that lists them
	if err != nil {
		return codeInvalidValue
	}
	for name, v := range map[string]int{
		"MAX_THREADS_PER_BLOCK":         k.kernel.MaxWorkgroup,
		"SHARED_SIZE_BYTES":             k.kernel.LDSBytes,
		"LOCAL_SIZE_BYTES":              k.kernel.ScratchBytes,
		"NUM_REGS":                      k.kernel.VGPRs,
		"MAX_DYNAMIC_SHARED_SIZE_BYTES": sharedBytes - k.kernel.LDSBytes,
	} {
		if uintptr(l["enum HIP_FUNC_ATTRIBUTE_"+name]) == attribute {
			*int32At(to) = int32(v)
			return 0
		}
	}
	return codeInvalidValue
}
