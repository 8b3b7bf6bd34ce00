// Prints what HIP's headers say about the structs and numbers that the bindings
// use. Its output for three versions is in this folder:
//   cc -D__HIP_PLATFORM_AMD__=1 -D__HIP_PLATFORM_HCC__=1 -I INCLUDE layout.c
#include <hip/hip_runtime_api.h>
#include <stddef.h>
#include <stdio.h>

#define SIZE(type) printf("sizeof %s %zu\n", #type, sizeof(type))
#define FIELD(type, field) printf("offset %s.%s %zu\n", #type, #field, offsetof(type, field))
#define NUMBER(name) printf("enum %s %d\n", #name, (int)(name))

int main(void) {
	SIZE(dim3);
	SIZE(hipKernelNodeParams);
	FIELD(hipKernelNodeParams, blockDim);
	FIELD(hipKernelNodeParams, extra);
	FIELD(hipKernelNodeParams, func);
	FIELD(hipKernelNodeParams, gridDim);
	FIELD(hipKernelNodeParams, kernelParams);
	FIELD(hipKernelNodeParams, sharedMemBytes);
	SIZE(hipDeviceProp_t);
	FIELD(hipDeviceProp_t, name);
	FIELD(hipDeviceProp_t, totalGlobalMem);
	FIELD(hipDeviceProp_t, sharedMemPerBlock);
	FIELD(hipDeviceProp_t, warpSize);
	FIELD(hipDeviceProp_t, multiProcessorCount);
	FIELD(hipDeviceProp_t, gcnArchName);

	NUMBER(hipDeviceAttributeMultiprocessorCount);
	NUMBER(hipDeviceAttributeWarpSize);
	NUMBER(hipDeviceAttributeMaxThreadsPerBlock);
	NUMBER(hipDeviceAttributeMaxSharedMemoryPerBlock);
	NUMBER(hipDeviceAttributeMaxSharedMemoryPerMultiprocessor);
	NUMBER(hipDeviceAttributeL2CacheSize);
	NUMBER(hipDeviceAttributeClockRate);
	NUMBER(hipDeviceAttributeMemoryClockRate);
	NUMBER(hipDeviceAttributeMemoryBusWidth);

	NUMBER(hipErrorInvalidValue);
	NUMBER(hipErrorOutOfMemory);
	NUMBER(hipErrorInvalidDeviceFunction);
	NUMBER(hipErrorNoDevice);
	NUMBER(hipErrorInvalidDevice);
	NUMBER(hipErrorInvalidImage);
	NUMBER(hipErrorNoBinaryForGpu);
	NUMBER(hipErrorECCNotCorrectable);
	NUMBER(hipErrorInvalidHandle);
	NUMBER(hipErrorNotFound);
	NUMBER(hipErrorIllegalAddress);
	NUMBER(hipErrorLaunchTimeOut);
	NUMBER(hipErrorAssert);
	NUMBER(hipErrorLaunchFailure);
	NUMBER(hipErrorNotSupported);
	NUMBER(hipErrorStreamCaptureUnsupported);
	NUMBER(hipErrorStreamCaptureInvalidated);
	NUMBER(hipErrorStreamCaptureImplicit);

	NUMBER(hipStreamNonBlocking);
	NUMBER(hipStreamCaptureModeThreadLocal);
	NUMBER(hipStreamCaptureStatusActive);
	NUMBER(hipHostMallocPortable);
	NUMBER(hipHostMallocMapped);
	NUMBER(hipHostMallocCoherent);
	NUMBER(HIP_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK);
	NUMBER(HIP_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES);
	NUMBER(HIP_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES);
	NUMBER(HIP_FUNC_ATTRIBUTE_NUM_REGS);
	NUMBER(HIP_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES);
	return 0;
}
