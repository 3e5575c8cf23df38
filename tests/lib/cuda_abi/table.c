/* table.c - sizes, offsets and numbers of the CUDA driver's header, as base/cuda_driver has them or as the Toolkit has:
 * it is compiled against either. Everything that our header defines and code uses has a row. */
#include "tests/lib/cuda_abi/table.h"

#include <cuda.h>
#include <cudaTypedefs.h>
#include <stddef.h>

#define SIZE(type)                                                                                                     \
    { "sizeof " #type, sizeof(type) }
#define PLACE(type, member)                                                                                            \
    { #type "." #member, offsetof(type, member) }
#define NUMBER(name)                                                                                                   \
    { #name, (unsigned long long)(name) }

const struct sw_cuda_abi_row SW_CUDA_ABI_TABLE[] = {SIZE(CUresult),
                                                    SIZE(CUdevice),
                                                    SIZE(CUdeviceptr),
                                                    SIZE(CUmemGenericAllocationHandle),
                                                    SIZE(CUuuid),
                                                    SIZE(CUipcMemHandle),
                                                    SIZE(CUmemPoolPtrExportData),
                                                    SIZE(CUmemLocation),
                                                    SIZE(CUmemAllocationProp),
                                                    SIZE(CUmemAccessDesc),
                                                    SIZE(CUpointer_attribute),
                                                    SIZE(CUstreamCaptureMode),
                                                    SIZE(CUhostFn),
                                                    SIZE(cuuint64_t),
                                                    PLACE(CUmemLocation, type),
                                                    PLACE(CUmemLocation, id),
                                                    PLACE(CUmemAllocationProp, type),
                                                    PLACE(CUmemAllocationProp, requestedHandleTypes),
                                                    PLACE(CUmemAllocationProp, location),
                                                    PLACE(CUmemAllocationProp, allocFlags),
                                                    PLACE(CUmemAccessDesc, location),
                                                    PLACE(CUmemAccessDesc, flags),
                                                    NUMBER(CUDA_SUCCESS),
                                                    NUMBER(CUDA_ERROR_INVALID_VALUE),
                                                    NUMBER(CUDA_ERROR_OUT_OF_MEMORY),
                                                    NUMBER(CUDA_ERROR_INVALID_CONTEXT),
                                                    NUMBER(CUDA_ERROR_OPERATING_SYSTEM),
                                                    NUMBER(CUDA_ERROR_NOT_READY),
                                                    NUMBER(CUDA_ERROR_CONTEXT_IS_DESTROYED),
                                                    NUMBER(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT),
                                                    NUMBER(CUDA_ERROR_LAUNCH_FAILED),
                                                    NUMBER(CUDA_ERROR_NOT_SUPPORTED),
                                                    NUMBER(CU_MEM_LOCATION_TYPE_DEVICE),
                                                    NUMBER(CU_MEM_ALLOCATION_TYPE_PINNED),
                                                    NUMBER(CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR),
                                                    NUMBER(CU_MEM_ALLOC_GRANULARITY_MINIMUM),
                                                    NUMBER(CU_MEM_ACCESS_FLAGS_PROT_NONE),
                                                    NUMBER(CU_MEM_ACCESS_FLAGS_PROT_READWRITE),
                                                    NUMBER(CU_POINTER_ATTRIBUTE_CONTEXT),
                                                    NUMBER(CU_POINTER_ATTRIBUTE_MEMORY_TYPE),
                                                    NUMBER(CU_POINTER_ATTRIBUTE_IS_MANAGED),
                                                    NUMBER(CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL),
                                                    NUMBER(CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE),
                                                    NUMBER(CU_POINTER_ATTRIBUTE_RANGE_START_ADDR),
                                                    NUMBER(CU_POINTER_ATTRIBUTE_RANGE_SIZE),
                                                    NUMBER(CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE),
                                                    NUMBER(CU_MEMORYTYPE_DEVICE),
                                                    NUMBER(CU_STREAM_CAPTURE_STATUS_NONE),
                                                    NUMBER(CU_STREAM_CAPTURE_STATUS_ACTIVE),
                                                    NUMBER(CU_STREAM_CAPTURE_STATUS_INVALIDATED),
                                                    NUMBER(CU_STREAM_CAPTURE_MODE_GLOBAL),
                                                    NUMBER(CU_STREAM_CAPTURE_MODE_RELAXED),
                                                    NUMBER(CU_STREAM_DEFAULT),
                                                    NUMBER(CU_STREAM_NON_BLOCKING),
                                                    NUMBER(CU_EVENT_DISABLE_TIMING),
                                                    NUMBER(CU_STREAM_WRITE_VALUE_DEFAULT),
                                                    NUMBER(CU_MEMHOSTREGISTER_PORTABLE),
                                                    NUMBER(CU_MEMHOSTREGISTER_DEVICEMAP),
                                                    NUMBER(CU_GET_PROC_ADDRESS_DEFAULT),
                                                    NUMBER(CU_GET_PROC_ADDRESS_SUCCESS),
                                                    NUMBER(CU_STREAM_LEGACY),
                                                    NUMBER(CU_STREAM_PER_THREAD),
                                                    NUMBER(CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS),
                                                    {NULL, 0}};
