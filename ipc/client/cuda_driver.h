/* cuda_driver.h - inside of libspillway: the CUDA driver that the process has loaded, for memory_cuda.c, cuda_mark.c
 * and cuda_block.c.
 *
 * The library never loads, initialises or links the driver, because a process with a GPU pointer has loaded it. Entry
 * points come from cuGetProcAddress, with the version of their type in cudaTypedefs.h. A call that needs a context runs
 * in the context of the pointer or stream, which is pushed for the call and popped again. thread: any, one at a time
 * for each connection. */
#ifndef SW_IPC_CUDA_DRIVER_H
#define SW_IPC_CUDA_DRIVER_H

#include "base/list.h"
#include "ipc/client/memory.h"
#include <cuda.h>
#include <cudaTypedefs.h>
#include <stdbool.h>
#include <stddef.h>

/* clang-format off */
/* X(member, entry point, version of its type) */
#define SW_DRIVER_FUNCTIONS(X) \
    X(error_name, cuGetErrorName, 6000) X(attributes, cuPointerGetAttributes, 7000) \
    X(address_range, cuMemGetAddressRange, 3020) X(ipc_handle, cuIpcGetMemHandle, 4010) \
    X(retain_allocation, cuMemRetainAllocationHandle, 11000) X(release_allocation, cuMemRelease, 10020) \
    X(allocation_properties, cuMemGetAllocationPropertiesFromHandle, 10020) \
    X(export_allocation, cuMemExportToShareableHandle, 10020) \
    X(export_pool, cuMemPoolExportToShareableHandle, 11020) X(export_pointer, cuMemPoolExportPointer, 11020) \
    X(device_get, cuDeviceGet, 2000) X(device_uuid, cuDeviceGetUuid, 11040) \
    X(primary_retain, cuDevicePrimaryCtxRetain, 7000) X(primary_release, cuDevicePrimaryCtxRelease, 11000) \
    X(push, cuCtxPushCurrent, 4000) X(pop, cuCtxPopCurrent, 4000) X(current_device, cuCtxGetDevice, 2000) \
    X(current, cuCtxGetCurrent, 4000) X(stream_context, cuStreamGetCtx, 9020) \
    X(stream_flags, cuStreamGetFlags, 5050) X(stream_query, cuStreamQuery, 2000) \
    X(stream_captures, cuStreamIsCapturing, 10000) X(capture_mode, cuThreadExchangeStreamCaptureMode, 10010) \
    X(stream_synchronize, cuStreamSynchronize, 2000) X(write_value, cuStreamWriteValue64, 11070) \
    X(launch_host, cuLaunchHostFunc, 10000) X(host_register, cuMemHostRegister, 6050) \
    X(host_pointer, cuMemHostGetDevicePointer, 3020) \
    X(stream_create, cuStreamCreate, 2000) X(stream_destroy, cuStreamDestroy, 4000) \
    X(allocate, cuMemAlloc, 3020) X(free, cuMemFree, 3020) X(copy, cuMemcpyAsync, 4000)
/* clang-format on */

enum { SW_CUDA_MAX_DEVICES = 64 };

struct sw_cuda {
    void *library;
    struct sw_mark_page *page;              /* the connection's marks; NULL: none was needed yet */
    struct sw_list stand_ins;               /* sw_cuda_stand_in.node */
    CUcontext primary[SW_CUDA_MAX_DEVICES]; /* retained by ordinal; NULL: not yet */
#define SW_DRIVER_MEMBER(member, name, version) PFN_##name##_v##version member;
    SW_DRIVER_FUNCTIONS(SW_DRIVER_MEMBER)
#undef SW_DRIVER_MEMBER
};

/* A blocking stream of the library's own that replaces a context's default stream while a capture forbids its use. */
struct sw_cuda_stand_in {
    struct sw_list node;
    CUcontext context;
    CUstream stream;
};

/* The driver's description of a pointer. */
struct sw_cuda_pointer {
    unsigned type; /* CUmemorytype; 0: the driver does not know it */
    unsigned managed, legacy_ipc;
    int ordinal;
    CUcontext context;
    CUdeviceptr range;
    size_t range_bytes;
    CUmemoryPool pool;
};

/* Fills in *err with the fact, the name of the driver's result, and the call. Returns the code. */
int sw_driver_fail(const struct sw_cuda *cuda, struct sw_err *err, int code, CUresult result, const char *fact,
                   const char *call);
/* Finds the driver. Returns 1, or 0 if the process has not loaded it. errors: -SW_EMEMKIND (too old),
 * -SW_ENOMEM. */
int sw_cuda_find_driver(struct sw_cuda **cuda, struct sw_err *err);
/* Asks the driver about an address. Attributes that do not apply stay 0. Returns false if the driver failed. */
bool sw_cuda_look_up(struct sw_cuda *cuda, CUdeviceptr address, struct sw_cuda_pointer *ret);
bool sw_cuda_is_gpu(const struct sw_cuda_pointer *p);
/* Chooses the context to work in: the pointer's, else the current one if it is on the same device, else the device's
 * primary context, which is retained until the connection ends. errors: -SW_EGPU. */
int sw_cuda_find_context(struct sw_cuda *cuda, struct sw_cuda_pointer *p, struct sw_err *err);

#endif
