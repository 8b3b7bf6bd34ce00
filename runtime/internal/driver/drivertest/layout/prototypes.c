// Compiles only where HIP's headers declare the functions as the bindings call
// them: one line for each symbol of the table in functions.go.
//   cc -fsyntax-only -D__HIP_PLATFORM_AMD__=1 -D__HIP_PLATFORM_HCC__=1 -I INCLUDE prototypes.c
#include <hip/hip_runtime_api.h>
#include <stddef.h>

#define RETURNS(type, name, ...) \
	_Static_assert(__builtin_types_compatible_p(__typeof__(&name), type (*)(__VA_ARGS__)), #name)
#define CALL(name, ...) RETURNS(hipError_t, name, __VA_ARGS__)

CALL(hipInit, unsigned);
CALL(hipDriverGetVersion, int *);
CALL(hipRuntimeGetVersion, int *);
RETURNS(const char *, hipGetErrorName, hipError_t);
RETURNS(const char *, hipGetErrorString, hipError_t);
CALL(hipGetDeviceCount, int *);
CALL(hipDeviceGet, hipDevice_t *, int);
CALL(hipDeviceGetName, char *, int, hipDevice_t);
CALL(hipDeviceGetAttribute, int *, hipDeviceAttribute_t, int);
CALL(hipDeviceTotalMem, size_t *, hipDevice_t);
CALL(hipGetDeviceProperties, hipDeviceProp_t *, int); // a macro for hipGetDevicePropertiesR0600 since 6.0
CALL(hipSetDevice, int);
CALL(hipMemGetInfo, size_t *, size_t *);
CALL(hipMalloc, void **, size_t);
CALL(hipFree, void *);
CALL(hipHostMalloc, void **, size_t, unsigned);
CALL(hipHostFree, void *);
CALL(hipHostGetDevicePointer, void **, void *, unsigned);
CALL(hipMemcpyHtoD, hipDeviceptr_t, void *, size_t);
CALL(hipMemcpyDtoH, void *, hipDeviceptr_t, size_t);
CALL(hipMemcpyHtoDAsync, hipDeviceptr_t, void *, size_t, hipStream_t);
CALL(hipMemcpyDtoHAsync, void *, hipDeviceptr_t, size_t, hipStream_t);
CALL(hipMemcpyDtoDAsync, hipDeviceptr_t, hipDeviceptr_t, size_t, hipStream_t);
CALL(hipMemsetD8Async, hipDeviceptr_t, unsigned char, size_t, hipStream_t);
CALL(hipMemsetD32Async, hipDeviceptr_t, int, size_t, hipStream_t);
CALL(hipModuleLoadData, hipModule_t *, const void *);
CALL(hipModuleUnload, hipModule_t);
CALL(hipModuleGetFunction, hipFunction_t *, hipModule_t, const char *);
CALL(hipModuleGetGlobal, hipDeviceptr_t *, size_t *, hipModule_t, const char *);
CALL(hipFuncGetAttribute, int *, hipFunction_attribute, hipFunction_t);
CALL(hipModuleLaunchKernel, hipFunction_t, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, hipStream_t, void **, void **);
CALL(hipStreamCreateWithFlags, hipStream_t *, unsigned);
CALL(hipStreamDestroy, hipStream_t);
CALL(hipStreamSynchronize, hipStream_t);
CALL(hipStreamWaitEvent, hipStream_t, hipEvent_t, unsigned);
CALL(hipEventCreateWithFlags, hipEvent_t *, unsigned);
CALL(hipEventDestroy, hipEvent_t);
CALL(hipEventRecord, hipEvent_t, hipStream_t);
CALL(hipEventSynchronize, hipEvent_t);
CALL(hipEventElapsedTime, float *, hipEvent_t, hipEvent_t);
CALL(hipStreamBeginCapture, hipStream_t, hipStreamCaptureMode);
CALL(hipStreamEndCapture, hipStream_t, hipGraph_t *);
CALL(hipStreamIsCapturing, hipStream_t, hipStreamCaptureStatus *);
CALL(hipGraphCreate, hipGraph_t *, unsigned);
CALL(hipGraphDestroy, hipGraph_t);
CALL(hipGraphAddKernelNode, hipGraphNode_t *, hipGraph_t, const hipGraphNode_t *, size_t, const hipKernelNodeParams *);
CALL(hipGraphGetNodes, hipGraph_t, hipGraphNode_t *, size_t *);
CALL(hipGraphInstantiateWithFlags, hipGraphExec_t *, hipGraph_t, unsigned long long);
CALL(hipGraphLaunch, hipGraphExec_t, hipStream_t);
CALL(hipGraphExecDestroy, hipGraphExec_t);
