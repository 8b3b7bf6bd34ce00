package drivertest

import (
	"encoding/binary"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"unsafe"

	"github.com/kiln-project/kiln/codegen/object"
)

// What differs in the CUDA driver API. Everything else is HIP's under another
// name.

// cudaNode is CUDA_KERNEL_NODE_PARAMS_v2 of cuda.h.
var cudaNode = Layout{
	"sizeof CUDA_KERNEL_NODE_PARAMS": 72, "offset CUDA_KERNEL_NODE_PARAMS.func": 0, "offset CUDA_KERNEL_NODE_PARAMS.gridDim": 8,
	"offset CUDA_KERNEL_NODE_PARAMS.blockDim": 20, "offset CUDA_KERNEL_NODE_PARAMS.sharedMemBytes": 32,
	"offset CUDA_KERNEL_NODE_PARAMS.kernelParams": 40, "offset CUDA_KERNEL_NODE_PARAMS.extra": 48,
}

func (c *callbacks) CuGraphAddKernelNode_v2(to, handle, after, count, params uintptr) int32 {
	return c.addKernel("cuGraphAddKernelNode_v2", cudaNode, "CUDA_KERNEL_NODE_PARAMS", to, handle, after, count, params)
}

// CuGraphAddDependencies_v2 adds edges, of which the fake knows the programmatic ones.
func (c *callbacks) CuGraphAddDependencies_v2(handle, from, to, edges, count uintptr) int32 {
	g, ok := get[*graph](c.fake, "cuGraphAddDependencies_v2", handle)
	if !ok {
		return codeInvalidValue
	}
	for i := range count {
		before, after := *wordAt(from + wordBytes*i), *wordAt(to + wordBytes*i)
		has := func(handle uintptr) int {
			return slices.IndexFunc(g.nodes, func(n *node) bool { return n.handle == handle })
		}
		// from_port programmatic, to_port, type programmatic, reserved bytes
		if has(before) < 0 || has(after) < 0 || *wordAt(edges + wordBytes*i) != 1|1<<16 {
			return codeInvalidValue
		}
		c.fake.overlap(g.nodes[has(after)], before)
	}
	return 0
}

// overlap has a node begin before the one before has ended, which its kernel must be
// made for.
func (f *Fake) overlap(n *node, before uintptr) {
	n.after = append(n.after, before)
	f.overlaps++
	if !n.launch.waits {
		f.problem("a kernel that does not wait for the one before is to overlap with it")
	}
}

// CuLaunchKernelEx takes the one attribute that the bindings give.
func (c *callbacks) CuLaunchKernelEx(config, function, params, extra uintptr) int32 {
	b := bytesAt(config, 56) // CUlaunchConfig
	u32 := func(at int) uint32 { return binary.LittleEndian.Uint32(b[at:]) }
	u64 := func(at int) uintptr { return uintptr(binary.LittleEndian.Uint64(b[at:])) }
	if u32(48) != 1 {
		return codeInvalidValue
	}
	attribute := bytesAt(u64(40), 72) // CUlaunchAttribute
	if attribute[0] != 6 || attribute[8] != 1 {
		return codeInvalidValue
	}
	n, code := c.launch("cuLaunchKernelEx", function, params, extra, [3]uint32{u32(0), u32(4), u32(8)}, [3]uint32{u32(12), u32(16), u32(20)}, u32(24))
	if code != 0 {
		return code
	}
	if code = c.fake.submit("cuLaunchKernelEx", u64(32), n); code != 0 || len(n.after) != 1 {
		return code
	}
	before := n.after[0]
	n.after = nil
	c.fake.overlap(n, before)
	return 0
}

const codeInvalidPTX = 218

// cudaErrors are C strings, by code.
var cudaErrors = map[int][]byte{
	codeInvalidValue: []byte("CUDA_ERROR_INVALID_VALUE\x00"), codeOutOfMemory: []byte("CUDA_ERROR_OUT_OF_MEMORY\x00"),
	codeNoDevice: []byte("CUDA_ERROR_NO_DEVICE\x00"), codeInvalidPTX: []byte("CUDA_ERROR_INVALID_PTX\x00"),
	codeNotFound: []byte("CUDA_ERROR_NOT_FOUND\x00"), codeIllegalAddress: []byte("CUDA_ERROR_ILLEGAL_ADDRESS\x00"),
	codeCaptureUnsupported: []byte("CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED\x00"),
}

var cudaErrorText = []byte("the text of an error\x00")

func (c *callbacks) CuGetErrorName(code, to uintptr) int32 {
	name := cudaErrors[int(code)]
	if name == nil {
		*wordAt(to) = 0
		return codeInvalidValue
	}
	*wordAt(to) = uintptr(unsafe.Pointer(&name[0]))
	return 0
}

func (c *callbacks) CuGetErrorString(code, to uintptr) int32 {
	*wordAt(to) = uintptr(unsafe.Pointer(&cudaErrorText[0]))
	return 0
}

func (c *callbacks) CuInit(flags uintptr) int32 {
	if c.without() {
		return codeNoDevice
	}
	return 0
}

// cudaAttributes by the numbers of CUdevice_attribute.
var cudaAttributes = map[uintptr]int{
	1: maxGroup, 8: cudaShared, 10: 32, 13: 1_980_000, 16: 132, 36: 3_201_000, 37: 6144, 38: 60 << 20, 81: 228 << 10, 97: cudaMaxShared,
}

// Bytes of LDS of a group that does not ask for more, and of one that does.
const (
	cudaShared    = 48 << 10
	cudaMaxShared = 227 << 10
)

func (c *callbacks) CuDeviceGetAttribute(to, attribute, device uintptr) int32 {
	s := c.spec(device)
	if s == nil {
		return codeInvalidDevice
	}
	var capability int
	if _, err := fmt.Sscanf(s.Arch, "sm_%d", &capability); err != nil {
		return codeInvalidValue
	}
	const major, minor = 75, 76
	v, ok := cudaAttributes[attribute]
	switch {
	case attribute == major:
		v = capability / 10
	case attribute == minor:
		v = capability % 10
	case !ok:
		return codeInvalidValue
	}
	*int32At(to) = int32(v)
	return 0
}

// context is a primary context.
type context struct{ device int }

func (c *callbacks) CuDevicePrimaryCtxRetain(to, device uintptr) int32 {
	if c.spec(device) == nil {
		return codeInvalidDevice
	}
	*wordAt(to) = c.fake.put(&context{int(device)})
	return 0
}

func (c *callbacks) CuDevicePrimaryCtxRelease_v2(device uintptr) int32 {
	for _, h := range sortedKeys(c.fake.handles) {
		if x, ok := c.fake.handles[h].(*context); ok && x.device == int(device) {
			delete(c.fake.handles, h)
			return 0
		}
	}
	return codeInvalidValue
}

func (c *callbacks) CuCtxSetCurrent(handle uintptr) int32 {
	if handle == 0 {
		return 0
	}
	x, ok := get[*context](c.fake, "cuCtxSetCurrent", handle)
	if !ok {
		return codeInvalidValue
	}
	c.fake.setDevice(x.device)
	return 0
}

// Options of the PTX compiler.
const (
	jitErrorLog      = 5
	jitErrorLogBytes = 6
)

func (c *callbacks) CuModuleLoadDataEx(to, image, count, names, values uintptr) int32 {
	if code := c.fake.forbidden(codeCaptureUnsupported); code != 0 {
		return code
	}
	text := strings.TrimPrefix(textAt(image), cubinHead)
	kernels, err := parsePTX(text)
	if err == nil {
		m := &module{kernels: kernels}
		if p, err := object.ReadPTX([]byte(text)); err == nil { // not all texts of tests are whole
			for _, e := range p.Entries {
				if e.Pool {
					m.pools = append(m.pools, e.Name)
				}
				if e.Waits {
					m.waits = append(m.waits, e.Name)
				}
			}
		}
		*wordAt(to) = c.fake.put(m)
		return 0
	}
	writeLog(err, count, names, values)
	return codeInvalidPTX
}

// writeLog gives an error of the PTX compiler to whom its options say.
func writeLog(err error, count, names, values uintptr) {
	var log uintptr
	size := 0
	for i := range count {
		value := *wordAt(values + wordBytes*i)
		switch *int32At(names + 4*i) {
		case jitErrorLog:
			log = value
		case jitErrorLogBytes:
			size = int(uint32(value))
		}
	}
	if log != 0 && size > 0 {
		b := bytesAt(log, size)
		b[copy(b[:size-1], err.Error())] = 0
	}
}

// cubinHead is what a cubin of this driver starts with; the text that it was made from
// follows.
const cubinHead = "\x7fELF of a fake\n"

// link is the state of a linker.
type link struct {
	count, names, values uintptr // its options
	cubin                []byte
}

func (c *callbacks) CuLinkCreate_v2(count, names, values, to uintptr) int32 {
	*wordAt(to) = c.fake.put(&link{count: count, names: names, values: values})
	return 0
}

func (c *callbacks) CuLinkAddData_v2(handle, kind, data, size, name, count, names, values uintptr) int32 {
	l, ok := get[*link](c.fake, "cuLinkAddData_v2", handle)
	const ptx = 1
	if !ok || kind != ptx || textAt(name) == "" || count != 0 {
		return codeInvalidValue
	}
	text := textAt(data)
	if len(text)+1 != int(size) {
		c.fake.problem("cuLinkAddData_v2: %d bytes of PTX, of which %d are text", size, len(text))
	}
	if _, err := parsePTX(text); err != nil {
		writeLog(err, l.count, l.names, l.values)
		return codeInvalidPTX
	}
	l.cubin = append([]byte(cubinHead), text...)
	return 0
}

func (c *callbacks) CuLinkComplete(handle, to, size uintptr) int32 {
	l, ok := get[*link](c.fake, "cuLinkComplete", handle)
	if !ok || l.cubin == nil {
		return codeInvalidValue
	}
	*wordAt(to), *wordAt(size) = uintptr(unsafe.Pointer(&l.cubin[0])), uintptr(len(l.cubin))
	return 0
}

func (c *callbacks) CuLinkDestroy(handle uintptr) int32 {
	if _, ok := get[*link](c.fake, "cuLinkDestroy", handle); !ok {
		return codeInvalidValue
	}
	delete(c.fake.handles, handle)
	return 0
}

var (
	ptxEntry = regexp.MustCompile(`\.entry\s+(\w+)\s*\(([^)]*)\)`)
	ptxParam = regexp.MustCompile(`^\.param\s+\.([a-z])([0-9]+)(?:\s+\.ptr\s+\.global\s+\.align\s+[0-9]+)?\s+\w+$`)
)

// parsePTX reads the signatures of the kernels in PTX text.
func parsePTX(text string) ([]object.Kernel, error) {
	if !strings.Contains(text, ".version ") {
		return nil, fmt.Errorf("line 1; fatal: missing .version directive")
	}
	var kernels []object.Kernel
	for _, m := range ptxEntry.FindAllStringSubmatch(text, -1) {
		k := object.Kernel{Name: m[1], MaxWorkgroup: maxGroup}
		for p := range strings.SplitSeq(m[2], ",") {
			p = strings.TrimSpace(p)
			if p == "" {
				continue
			}
			var bits int
			if part := ptxParam.FindStringSubmatch(p); part != nil {
				fmt.Sscan(part[2], &bits)
			}
			if bits == 0 || bits%8 != 0 {
				return nil, fmt.Errorf("kernel %s; error: unexpected parameter %q", k.Name, p)
			}
			offset := align(k.KernargBytes, bits/8)
			k.Args = append(k.Args, object.Arg{Offset: offset, Size: bits / 8, ValueKind: "by_value"})
			k.KernargBytes = offset + bits/8
		}
		kernels = append(kernels, k)
	}
	return kernels, nil
}

func (c *callbacks) CuFuncSetAttribute(handle, attribute, value uintptr) int32 {
	k, ok := get[*kernel](c.fake, "cuFuncSetAttribute", handle)
	const maxDynamicShared = 8
	if !ok || attribute != maxDynamicShared || value > cudaMaxShared {
		return codeInvalidValue
	}
	k.dynamic = int(value)
	return 0
}
