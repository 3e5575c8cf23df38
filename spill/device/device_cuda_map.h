/* device_cuda_map.h - imports clients' GPU memory, checks its bounds, releases it; and translates CUDA's errors.
 *
 * A mapping covers the bytes [0, bytes). It keeps the client's memory alive, even after the client has freed it or
 * died: unmap it as soon as it is not needed. Only for device_cuda*.c. thread: gpu, with the context current. */
#ifndef SW_SPILL_DEVICE_CUDA_MAP_H
#define SW_SPILL_DEVICE_CUDA_MAP_H

#include "spill/device/device.h"
#include <cuda.h>
#include <cudaTypedefs.h>
#include <cuda_runtime_api.h>

/* clang-format off */
/* X(member, entry point, version of its type in cudaTypedefs.h) */
#define SW_CUDA_DRIVER(X) \
    X(error_name, cuGetErrorName, 6000) X(device_get, cuDeviceGet, 2000) X(device_uuid, cuDeviceGetUuid, 11040) \
    X(address_range, cuMemGetAddressRange, 3020) X(pointer_attribute, cuPointerGetAttribute, 4000) \
    X(ipc_open, cuIpcOpenMemHandle, 11000) X(ipc_close, cuIpcCloseMemHandle, 4010) \
    X(import_allocation, cuMemImportFromShareableHandle, 10020) X(release_allocation, cuMemRelease, 10020) \
    X(granularity, cuMemGetAllocationGranularity, 10020) X(reserve, cuMemAddressReserve, 10020) \
    X(unreserve, cuMemAddressFree, 10020) X(map, cuMemMap, 10020) X(unmap, cuMemUnmap, 10020) \
    X(set_access, cuMemSetAccess, 10020) X(import_pool, cuMemPoolImportFromShareableHandle, 11020) \
    X(import_pointer, cuMemPoolImportPointer, 11020) X(destroy_pool, cuMemPoolDestroy, 11020) \
    X(pool_access, cuMemPoolGetAccess, 11020) X(set_pool_access, cuMemPoolSetAccess, 11020) \
    X(free_async, cuMemFreeAsync, 11020) X(stream_synchronize, cuStreamSynchronize, 2000) \
    X(set_current, cuCtxSetCurrent, 4000) X(retain_primary, cuDevicePrimaryCtxRetain, 7000) \
    X(release_primary, cuDevicePrimaryCtxRelease, 11000)
/* clang-format on */

/* The driver's entry points, found through the runtime: nothing links libcuda. */
struct sw_cuda_driver {
    CUdevice device;
    CUcontext context;     /* all calls are made in it */
    bool retains;          /* it is the primary context, which this structure retains */
    CUstream unmap_stream; /* for freeing imported pool memory: a wait for it waits for nothing else */
#define SW_CUDA_DRIVER_MEMBER(member, name, version) PFN_##name##_v##version member;
    SW_CUDA_DRIVER(SW_CUDA_DRIVER_MEMBER)
#undef SW_CUDA_DRIVER_MEMBER
};

struct sw_mapping {
    enum sw_mem_kind kind; /* SW_MEM_KIND_NR: adopted, and not ours to unmap */
    CUdeviceptr address;   /* of the client's byte 0 */
    uint64_t bytes;
    /* VMM */
    uint64_t reserved_bytes, mapped_bytes;
    uint32_t n_parts;     /* mapped so far */
    uint64_t *part_bytes; /* [n_parts] */
    /* pool */
    CUmemoryPool pool;
};

/* Returns the address of a mapped byte, for the codec's calls. */
static inline void *sw_cuda_at(const struct sw_mapping *mapping, uint64_t offset) {
    return (void *)(uintptr_t)(mapping->address + offset); /* NOLINT(performance-no-int-to-ptr): the driver's integer */
}

/* Finds the driver's functions, and makes the context current on the calling thread. context: of this GPU; NULL: the
 * primary context, which is retained until _fini(). errors: -SW_ENOTSUP (driver too old), -SW_EGPU. Call _fini() also
 * after an error. */
int sw_cuda_driver_init(struct sw_cuda_driver *ret, int ordinal, CUcontext context, struct sw_err *err);
/* Makes the context current on the calling thread. Every operation calls this, since each may be the first on its
 * thread. */
int sw_cuda_enter(const struct sw_cuda_driver *driver, struct sw_err *err);
void sw_cuda_driver_fini(struct sw_cuda_driver *driver);

/* Maps a client's memory. errors: as sw_device_ops.map. */
int sw_cuda_map(const struct sw_cuda_driver *driver, const struct sw_mem_desc *desc, struct sw_mapping **ret,
                struct sw_err *err);
int sw_cuda_adopt(void *d_data, uint64_t bytes, struct sw_mapping **ret, struct sw_err *err);
/* Unmaps it, also a half-made mapping. NULL is a no-op. */
void sw_cuda_unmap(const struct sw_cuda_driver *driver, struct sw_mapping *mapping);

/* Records a failed runtime call: -SW_EGPULOST (scope device) for errors after which the context is unusable,
 * -SW_ENOMEM, else -SW_EGPU. Clears the runtime's last error. Returns the code. */
int sw_cuda_fail(struct sw_err *err, cudaError_t error, const char *call);
/* Returns rc, or -SW_EGPULOST if err->cuda says that the context is dead. */
int sw_cuda_check_lost(int rc, struct sw_err *err);

#endif
