package driver

import (
	"unsafe"

	"github.com/ebitengine/purego"
)

// What the layout tests compare: the structs of this package by the names of C.
func StructLayout() map[string]int {
	var k hipKernelNodeParams
	return map[string]int{
		"sizeof hipKernelNodeParams":                int(unsafe.Sizeof(k)),
		"offset hipKernelNodeParams.blockDim":       int(unsafe.Offsetof(k.blockDim)),
		"offset hipKernelNodeParams.extra":          int(unsafe.Offsetof(k.extra)),
		"offset hipKernelNodeParams.func":           int(unsafe.Offsetof(k.function)),
		"offset hipKernelNodeParams.gridDim":        int(unsafe.Offsetof(k.gridDim)),
		"offset hipKernelNodeParams.kernelParams":   int(unsafe.Offsetof(k.kernelParams)),
		"offset hipKernelNodeParams.sharedMemBytes": int(unsafe.Offsetof(k.sharedMemBytes)),
	}
}

// CUDAStructLayout is CUDA_KERNEL_NODE_PARAMS_v2.
func CUDAStructLayout() map[string]int {
	var k cudaKernelNodeParams
	return map[string]int{
		"sizeof": int(unsafe.Sizeof(k)), "func": int(unsafe.Offsetof(k.function)), "gridDim": int(unsafe.Offsetof(k.gridDim)),
		"blockDim": int(unsafe.Offsetof(k.blockDim)), "sharedMemBytes": int(unsafe.Offsetof(k.sharedMemBytes)),
		"kernelParams": int(unsafe.Offsetof(k.kernelParams)), "extra": int(unsafe.Offsetof(k.extra)),
		"kern": int(unsafe.Offsetof(k.kern)), "ctx": int(unsafe.Offsetof(k.ctx)),
	}
}

// PropertiesLayout is a generation of hipDeviceProp_t.
func PropertiesLayout(r0600 bool) map[string]int {
	l := propertiesR0000
	if r0600 {
		l = propertiesR0600
	}
	return map[string]int{"sizeof hipDeviceProp_t": l.size, "offset hipDeviceProp_t.gcnArchName": l.archName}
}

// Numbers are the enumerators that the bindings use, by the names of HIP.
func Numbers() map[string]int {
	m := map[string]int{
		"hipErrorOutOfMemory": codeOutOfMemory, "hipErrorNoDevice": codeNoDevice, "hipErrorInvalidDevice": codeInvalidDevice,
		"hipStreamNonBlocking": streamNonBlocking, "hipStreamCaptureModeThreadLocal": captureThreadLocal,
		"hipStreamCaptureStatusActive":                     captureActive,
		"HIP_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES": attributeMaxShared,
	}
	for i, name := range []string{
		"MultiprocessorCount", "WarpSize", "MaxThreadsPerBlock", "MaxSharedMemoryPerBlock", "MaxSharedMemoryPerBlock",
		"MaxSharedMemoryPerMultiprocessor", "L2CacheSize", "ClockRate", "MemoryClockRate", "MemoryBusWidth",
	} {
		m["hipDeviceAttribute"+name] = attributes[i].number[HIP]
	}
	for i, name := range []string{"MAX_THREADS_PER_BLOCK", "SHARED_SIZE_BYTES", "LOCAL_SIZE_BYTES", "NUM_REGS", "MAX_DYNAMIC_SHARED_SIZE_BYTES"} {
		m["HIP_FUNC_ATTRIBUTE_"+name] = int(functionAttributes[i].number)
	}
	return m
}

// PinnedFlags are those of hipHostMalloc.
func PinnedFlags() int { return int(pinnedFlags[HIP]) }

// Means are the error values by code.
func Means(code int) error { return meanings[code].is }

// FindArchName reads properties of the newer layout.
func FindArchName(properties []byte) (target, problem string) {
	return findArchName(properties, propertiesR0600)
}

// NoOpCalls lets replays and waits end in memcmp of the C library, with a length of 0:
// what is left is the binding's own time.
func NoOpCalls(d *Device) error {
	libc, err := purego.Dlopen("libc.so.6", purego.RTLD_NOW)
	if err != nil {
		return err
	}
	f, err := purego.Dlsym(libc, "memcmp")
	d.lib.fn.GraphLaunch.address, d.lib.fn.StreamSync.address = f, f
	return err
}

// BuildID reads the build ID of a file.
var BuildID = buildID
