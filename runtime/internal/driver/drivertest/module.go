package drivertest

import (
	"bytes"
	"encoding/binary"
	"slices"

	"github.com/kiln-project/kiln/codegen/object"
)

// module is a loaded code object, whose memory is the caller's, as in ROCm; or PTX.
type module struct {
	object  *object.CodeObject
	kernels []object.Kernel
	pools   []string // names of those that use LDS which a launch adds
	waits   []string // names of those that wait for the launch before
}

// kernel is a function handle, which belongs to a module and is not given back.
type kernel struct {
	module uintptr
	object *object.CodeObject
	kernel *object.Kernel
	// dynamic is how much LDS a launch may add; 0 if the kernel did not ask.
	dynamic int
	pool    bool // the code uses LDS that a launch adds
	waits   bool // it waits for the launch before
}

// maxShared is how much LDS a launch of the kernel may add.
func (f *Fake) maxShared(k *kernel) int {
	if k.dynamic > 0 {
		return k.dynamic
	}
	if k.object == nil {
		return cudaShared - k.kernel.LDSBytes
	}
	return sharedBytes - k.kernel.LDSBytes
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
	*wordAt(to) = c.fake.put(&module{object: file.Object, kernels: file.Object.Kernels})
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
	text := textAt(name)
	at := slices.IndexFunc(m.kernels, func(k object.Kernel) bool { return k.Name == text })
	if at < 0 {
		return codeNotFound
	}
	*wordAt(to) = c.fake.put(&kernel{module: handle, object: m.object, kernel: &m.kernels[at], pool: slices.Contains(m.pools, text), waits: slices.Contains(m.waits, text)})
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
		"MAX_DYNAMIC_SHARED_SIZE_BYTES": c.fake.maxShared(k),
	} {
		if uintptr(l["enum HIP_FUNC_ATTRIBUTE_"+name]) == attribute {
			*int32At(to) = int32(v)
			return 0
		}
	}
	return codeInvalidValue
}
