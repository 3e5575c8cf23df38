/* device_cuda.h - what the files of the CUDA device share. Private to device_cuda*.c.
 *
 * thread: gpu, with the device made current by sw_cuda_enter(), unless stated otherwise. */
#ifndef SW_SPILL_DEVICE_CUDA_H
#define SW_SPILL_DEVICE_CUDA_H

#include "codec/gpu.h"
#include "spill/device/device.h"
#include <cuda.h>
#include <cudaTypedefs.h>
#include <cuda_runtime_api.h>

/* clang-format off */
/* Driver functions that the runtime has no counterpart of: X(member, function, version of its type). They are looked up
 * through the runtime, so that nothing links libcuda. */
#define SW_CUDA_DRIVER(X) \
    X(address_range, cuMemGetAddressRange, 3020) X(import, cuMemImportFromShareableHandle, 10020) \
    X(reserve, cuMemAddressReserve, 10020) X(map, cuMemMap, 10020) X(set_access, cuMemSetAccess, 10020) \
    X(unmap, cuMemUnmap, 10020) X(unreserve, cuMemAddressFree, 10020) X(release, cuMemRelease, 10020) \
    X(pointer_attribute, cuPointerGetAttribute, 4000)
/* clang-format on */

struct sw_cuda_driver {
#define SW_CUDA_MEMBER(member, name, version) PFN_##name##_v##version member;
    SW_CUDA_DRIVER(SW_CUDA_MEMBER)
#undef SW_CUDA_MEMBER
};

/* A client's memory in this process. */
struct sw_mapping {
    enum sw_mem_kind kind;
    uint8_t *d_base;
    uint64_t bytes;
    uint32_t n_parts;     /* CUDA_VMM: parts that are mapped; 0 for the other kinds */
    uint64_t *part_bytes; /* [n_parts] */
    cudaMemPool_t pool;   /* CUDA_POOL */
};

/* Records a failed runtime or driver call; a sticky error, after which no call of this process's context can succeed,
 * becomes -SW_EGPULOST whatever `code` says. thread: any. */
int sw_cuda_fail(struct sw_err *err, int code, cudaError_t e, const char *call);
int sw_cuda_driver_fail(struct sw_err *err, int code, CUresult e, const char *call);

/* errors: -SW_ENOTSUP (driver too old). thread: any. */
int sw_cuda_driver_load(struct sw_cuda_driver *ret, struct sw_err *err);

/* ops->map and ops->unmap for the current device. */
int sw_cuda_map(const struct sw_cuda_driver *driver, int ordinal, const struct sw_mem_desc *desc,
                struct sw_mapping **ret, struct sw_err *err);
void sw_cuda_unmap(const struct sw_cuda_driver *driver, struct sw_mapping *mapping);

#endif
