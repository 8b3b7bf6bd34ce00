package driver

// The structs of C that cross the border, field by field as the headers have
// them; the layout tests compare them with what C compilers say.

// hipKernelNodeParams is HIP's, alphabetical and unlike CUDA's. Equal in HIP 5.2,
// 5.7, 6.2.
type hipKernelNodeParams struct {
	blockDim       [3]uint32
	_              uint32
	extra          uintptr // void **
	function       uintptr
	gridDim        [3]uint32
	_              uint32
	kernelParams   uintptr // void **
	sharedMemBytes uint32
	_              uint32
}

// cudaKernelNodeParams is CUDA_KERNEL_NODE_PARAMS_v2 of cuda.h.
type cudaKernelNodeParams struct {
	function       uintptr
	gridDim        [3]uint32
	blockDim       [3]uint32
	sharedMemBytes uint32
	_              uint32
	kernelParams   uintptr // void **
	extra          uintptr // void **
	kern           uintptr
	ctx            uintptr
}

// cudaLaunchConfig is CUlaunchConfig of cuda.h, cudaLaunchAttribute CUlaunchAttribute.
type (
	cudaLaunchConfig struct {
		gridDim        [3]uint32
		blockDim       [3]uint32
		sharedMemBytes uint32
		_              uint32
		stream         uintptr
		attrs          uintptr
		numAttrs       uint32
		_              uint32
	}
	cudaLaunchAttribute struct {
		id    uint32
		_     uint32
		value [64]byte
	}
)

// cudaProgrammaticLaunch is CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION, whose
// value is an int: not 0 for a launch that need not wait for the end of the one before.
const cudaProgrammaticLaunch = 6

// cudaProgrammaticEdge is a CUgraphEdgeData, of 8 bytes: from_port
// CU_GRAPH_KERNEL_NODE_PORT_PROGRAMMATIC, to_port 0, type
// CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC.
var cudaProgrammaticEdge = [8]byte{0: 1, 2: 1}

// propertiesLayout is the part of a generation of hipDeviceProp_t that is read.
// The symbol without a generation in its name keeps the oldest layout for ever.
type propertiesLayout struct {
	name     string
	size     int
	archName int // offset of gcnArchName, char[256]
}

var (
	propertiesR0000 = propertiesLayout{"hipDeviceProp_tR0000", 792, 396}
	propertiesR0600 = propertiesLayout{"hipDeviceProp_tR0600", 1472, 1160}
)

// archNameBytes is the size of gcnArchName in both.
const archNameBytes = 256
