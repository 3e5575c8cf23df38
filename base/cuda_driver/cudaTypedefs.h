/* cudaTypedefs.h - types of the driver's entry points; see cuda.h beside it. */
#ifndef SW_BASE_CUDA_DRIVER_TYPEDEFS_H
#define SW_BASE_CUDA_DRIVER_TYPEDEFS_H

#include <cuda.h>

typedef CUresult (*PFN_cuGetErrorName_v6000)(CUresult, const char **);
typedef CUresult (*PFN_cuDeviceGet_v2000)(CUdevice *, int);
typedef CUresult (*PFN_cuCtxSetCurrent_v4000)(CUcontext);
typedef CUresult (*PFN_cuCtxGetId_v12000)(CUcontext, unsigned long long *);
typedef CUresult (*PFN_cuMemCreate_v10020)(CUmemGenericAllocationHandle *, size_t, const CUmemAllocationProp *,
                                           unsigned long long);
typedef CUresult (*PFN_cuDevicePrimaryCtxRetain_v7000)(CUcontext *, CUdevice);
typedef CUresult (*PFN_cuDevicePrimaryCtxRelease_v11000)(CUdevice);
typedef CUresult (*PFN_cuDeviceGetUuid_v11040)(CUuuid *, CUdevice);
typedef CUresult (*PFN_cuMemGetAddressRange_v3020)(CUdeviceptr *, size_t *, CUdeviceptr);
typedef CUresult (*PFN_cuPointerGetAttribute_v4000)(void *, CUpointer_attribute, CUdeviceptr);
typedef CUresult (*PFN_cuIpcOpenMemHandle_v11000)(CUdeviceptr *, CUipcMemHandle, unsigned);
typedef CUresult (*PFN_cuIpcCloseMemHandle_v4010)(CUdeviceptr);
typedef CUresult (*PFN_cuMemImportFromShareableHandle_v10020)(CUmemGenericAllocationHandle *, void *,
                                                              CUmemAllocationHandleType);
typedef CUresult (*PFN_cuMemRelease_v10020)(CUmemGenericAllocationHandle);
typedef CUresult (*PFN_cuMemGetAllocationGranularity_v10020)(size_t *, const CUmemAllocationProp *,
                                                             CUmemAllocationGranularity_flags);
typedef CUresult (*PFN_cuMemAddressReserve_v10020)(CUdeviceptr *, size_t, size_t, CUdeviceptr, unsigned long long);
typedef CUresult (*PFN_cuMemAddressFree_v10020)(CUdeviceptr, size_t);
typedef CUresult (*PFN_cuMemMap_v10020)(CUdeviceptr, size_t, size_t, CUmemGenericAllocationHandle, unsigned long long);
typedef CUresult (*PFN_cuMemUnmap_v10020)(CUdeviceptr, size_t);
typedef CUresult (*PFN_cuMemSetAccess_v10020)(CUdeviceptr, size_t, const CUmemAccessDesc *, size_t);
typedef CUresult (*PFN_cuMemPoolImportFromShareableHandle_v11020)(CUmemoryPool *, void *, CUmemAllocationHandleType,
                                                                  unsigned long long);
typedef CUresult (*PFN_cuMemPoolImportPointer_v11020)(CUdeviceptr *, CUmemoryPool, CUmemPoolPtrExportData *);
typedef CUresult (*PFN_cuMemPoolDestroy_v11020)(CUmemoryPool);
typedef CUresult (*PFN_cuMemPoolGetAccess_v11020)(CUmemAccess_flags *, CUmemoryPool, CUmemLocation *);
typedef CUresult (*PFN_cuMemPoolSetAccess_v11020)(CUmemoryPool, const CUmemAccessDesc *, size_t);
typedef CUresult (*PFN_cuMemFreeAsync_v11020)(CUdeviceptr, CUstream);
typedef CUresult (*PFN_cuStreamSynchronize_v2000)(CUstream);
typedef CUresult (*PFN_cuGetProcAddress_v12000)(const char *, void **, int, uint64_t, CUdriverProcAddressQueryResult *);
typedef CUresult (*PFN_cuCtxPushCurrent_v4000)(CUcontext);
typedef CUresult (*PFN_cuCtxPopCurrent_v4000)(CUcontext *);
typedef CUresult (*PFN_cuCtxGetCurrent_v4000)(CUcontext *);
typedef CUresult (*PFN_cuThreadExchangeStreamCaptureMode_v10010)(CUstreamCaptureMode *);
typedef CUresult (*PFN_cuStreamGetCtx_v9020)(CUstream, CUcontext *);
typedef CUresult (*PFN_cuStreamGetId_v12000)(CUstream, unsigned long long *);
typedef CUresult (*PFN_cuStreamIsCapturing_v10000)(CUstream, CUstreamCaptureStatus *);
typedef CUresult (*PFN_cuStreamCreate_v2000)(CUstream *, unsigned);
typedef CUresult (*PFN_cuStreamDestroy_v4000)(CUstream);
typedef CUresult (*PFN_cuEventCreate_v2000)(CUevent *, unsigned);
typedef CUresult (*PFN_cuEventRecord_v2000)(CUevent, CUstream);
typedef CUresult (*PFN_cuEventQuery_v2000)(CUevent);
typedef CUresult (*PFN_cuEventSynchronize_v2000)(CUevent);
typedef CUresult (*PFN_cuEventDestroy_v4000)(CUevent);
typedef CUresult (*PFN_cuMemAlloc_v3020)(CUdeviceptr *, size_t);
typedef CUresult (*PFN_cuMemFree_v3020)(CUdeviceptr);
typedef CUresult (*PFN_cuPointerGetAttributes_v7000)(unsigned, CUpointer_attribute *, void **, CUdeviceptr);
typedef CUresult (*PFN_cuIpcGetMemHandle_v4010)(CUipcMemHandle *, CUdeviceptr);
typedef CUresult (*PFN_cuMemRetainAllocationHandle_v11000)(CUmemGenericAllocationHandle *, void *);
typedef CUresult (*PFN_cuMemGetAllocationPropertiesFromHandle_v10020)(CUmemAllocationProp *,
                                                                      CUmemGenericAllocationHandle);
typedef CUresult (*PFN_cuMemExportToShareableHandle_v10020)(void *, CUmemGenericAllocationHandle,
                                                            CUmemAllocationHandleType, unsigned long long);
typedef CUresult (*PFN_cuMemPoolExportToShareableHandle_v11020)(void *, CUmemoryPool, CUmemAllocationHandleType,
                                                                unsigned long long);
typedef CUresult (*PFN_cuMemPoolExportPointer_v11020)(CUmemPoolPtrExportData *, CUdeviceptr);
typedef CUresult (*PFN_cuCtxGetDevice_v2000)(CUdevice *);
typedef CUresult (*PFN_cuStreamGetFlags_v5050)(CUstream, unsigned *);
typedef CUresult (*PFN_cuStreamQuery_v2000)(CUstream);
typedef CUresult (*PFN_cuStreamWriteValue64_v11070)(CUstream, CUdeviceptr, cuuint64_t, unsigned);
typedef CUresult (*PFN_cuLaunchHostFunc_v10000)(CUstream, CUhostFn, void *);
typedef CUresult (*PFN_cuMemHostRegister_v6050)(void *, size_t, unsigned);
typedef CUresult (*PFN_cuMemHostGetDevicePointer_v3020)(CUdeviceptr *, void *, unsigned);
typedef CUresult (*PFN_cuMemcpyAsync_v4000)(CUdeviceptr, CUdeviceptr, size_t, CUstream);

#endif
