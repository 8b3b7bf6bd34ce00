package drivertest

import (
	"encoding/binary"
	"unsafe"
)

// Codes of hipError_t that the fake gives by itself.
const (
	codeInvalidValue       = 1
	codeOutOfMemory        = 2
	codeNotInitialized     = 3
	codeInvalidFunction    = 98
	codeNoDevice           = 100
	codeInvalidDevice      = 101
	codeInvalidImage       = 200
	codeNoBinaryForGPU     = 209
	codeInvalidHandle      = 400
	codeNotFound           = 500
	codeIllegalAddress     = 700
	codeCaptureUnsupported = 900
	codeCaptureInvalidated = 901
	codeCaptureImplicit    = 906
)

// errorNames of hipError_t. hipGetErrorString of the real library says the same.
var errorNames = map[int]string{
	codeInvalidValue: "hipErrorInvalidValue", codeOutOfMemory: "hipErrorOutOfMemory", codeNotInitialized: "hipErrorNotInitialized",
	codeInvalidFunction: "hipErrorInvalidDeviceFunction", codeNoDevice: "hipErrorNoDevice", codeInvalidDevice: "hipErrorInvalidDevice",
	codeInvalidImage: "hipErrorInvalidImage", codeNoBinaryForGPU: "hipErrorNoBinaryForGpu", codeInvalidHandle: "hipErrorInvalidHandle",
	codeNotFound: "hipErrorNotFound", codeIllegalAddress: "hipErrorIllegalAddress", 719: "hipErrorLaunchFailure",
	codeCaptureUnsupported: "hipErrorStreamCaptureUnsupported", codeCaptureInvalidated: "hipErrorStreamCaptureInvalidated",
	codeCaptureImplicit: "hipErrorStreamCaptureImplicit",
}

// errorTexts are C strings, which stay where they are.
var errorTexts = func() map[int][]byte {
	m := map[int][]byte{}
	for code, name := range errorNames {
		m[code] = append([]byte(name), 0)
	}
	return m
}()

var unknownError = []byte("hipErrorUnknown\x00")

func (c *callbacks) HipGetErrorName(code uintptr) uintptr {
	t := errorTexts[int(code)]
	if t == nil {
		t = unknownError
	}
	return uintptr(unsafe.Pointer(&t[0]))
}

func (c *callbacks) HipGetErrorString(code uintptr) uintptr { return c.HipGetErrorName(code) }

// without a device nothing but the version works, as in the real library.
func (c *callbacks) without() bool { return len(c.fake.options.Devices) == 0 }

func (c *callbacks) HipInit(flags uintptr) int32 {
	if c.without() {
		return codeInvalidDevice
	}
	return 0
}

func (c *callbacks) HipDriverGetVersion(to uintptr) int32 { return c.HipRuntimeGetVersion(to) }

func (c *callbacks) HipRuntimeGetVersion(to uintptr) int32 {
	*int32At(to) = int32(c.fake.release.number)
	return 0
}

func (c *callbacks) HipGetDeviceCount(to uintptr) int32 {
	if c.without() {
		return codeNoDevice
	}
	*int32At(to) = int32(len(c.fake.options.Devices))
	return 0
}

// spec is a device by its number, or nil.
func (c *callbacks) spec(device uintptr) *Device {
	if device >= uintptr(len(c.fake.options.Devices)) {
		return nil
	}
	return &c.fake.options.Devices[device]
}

func (c *callbacks) HipDeviceGet(to, device uintptr) int32 {
	if c.spec(device) == nil {
		return codeInvalidDevice
	}
	*int32At(to) = int32(device)
	return 0
}

func (c *callbacks) HipDeviceGetName(to, n, device uintptr) int32 {
	s := c.spec(device)
	if s == nil || n == 0 {
		return codeInvalidDevice
	}
	b := bytesAt(to, int(n))
	b[copy(b[:n-1], s.Name)] = 0
	return 0
}

// What the attributes of each fake device are.
const (
	units       = 304
	wave        = 64
	maxGroup    = 1024
	sharedBytes = 64 << 10
)

var attributeValues = map[string]int{
	"hipDeviceAttributeMultiprocessorCount":              units,
	"hipDeviceAttributeWarpSize":                         wave,
	"hipDeviceAttributeMaxThreadsPerBlock":               maxGroup,
	"hipDeviceAttributeMaxSharedMemoryPerBlock":          sharedBytes,
	"hipDeviceAttributeMaxSharedMemoryPerMultiprocessor": sharedBytes,
	"hipDeviceAttributeL2CacheSize":                      4 << 20,
	"hipDeviceAttributeClockRate":                        2_100_000,
	"hipDeviceAttributeMemoryClockRate":                  1_300_000,
	"hipDeviceAttributeMemoryBusWidth":                   8192,
}

func (c *callbacks) HipDeviceGetAttribute(to, attribute, device uintptr) int32 {
	if c.spec(device) == nil {
		return codeInvalidDevice
	}
	for name, v := range attributeValues {
		if uintptr(c.fake.headers["enum "+name]) == attribute {
			*int32At(to) = int32(v)
			return 0
		}
	}
	return codeInvalidValue
}

func (c *callbacks) HipDeviceTotalMem(to, device uintptr) int32 {
	s := c.spec(device)
	if s == nil {
		return codeInvalidDevice
	}
	*wordAt(to) = uintptr(s.Memory)
	return 0
}

func (c *callbacks) HipGetDeviceProperties(to, device uintptr) int32 {
	return c.properties("hipGetDeviceProperties", to, device)
}

func (c *callbacks) HipGetDevicePropertiesR0600(to, device uintptr) int32 {
	return c.properties("hipGetDevicePropertiesR0600", to, device)
}

// properties writes the whole struct, in the symbol's own layout.
func (c *callbacks) properties(symbol string, to, device uintptr) int32 {
	s := c.spec(device)
	if s == nil {
		return codeInvalidDevice
	}
	l := c.fake.props[symbol]
	b := bytesAt(to, l["sizeof hipDeviceProp_t"])
	clear(b)
	field := func(name string) []byte { return b[l["offset hipDeviceProp_t."+name]:] }
	copy(field("name"), s.Name)
	copy(field("gcnArchName"), s.Arch)
	binary.LittleEndian.PutUint64(field("totalGlobalMem"), uint64(s.Memory))
	binary.LittleEndian.PutUint64(field("sharedMemPerBlock"), sharedBytes)
	binary.LittleEndian.PutUint32(field("warpSize"), wave)
	binary.LittleEndian.PutUint32(field("multiProcessorCount"), units)
	return 0
}

func (c *callbacks) HipSetDevice(device uintptr) int32 {
	if c.spec(device) == nil {
		return codeInvalidDevice
	}
	c.fake.setDevice(int(device))
	return 0
}
