/* device_cuda_map.c - opens what a client exported: the importing side of every CUDA memory kind.
 *
 * Costs on an H200 (design measurements): IPC open 72 us, close 116 us; VMM import 51 us a part; pool import 465 us. An
 * import keeps the device memory alive after its owner has freed it or died, so everything is undone at once on
 * failure. */
#include "spill/device/device_cuda.h"

#include "base/alloc.h"

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

_Static_assert(sizeof(cudaIpcMemHandle_t) == SW_MEM_HANDLE_BYTES, "handles fit the description");
_Static_assert(sizeof(struct cudaMemPoolPtrExportData) == SW_MEM_HANDLE_BYTES, "handles fit the description");

static bool is_sticky(cudaError_t e) {
    switch (e) {
    case cudaErrorIllegalAddress:
    case cudaErrorLaunchFailure:
    case cudaErrorLaunchTimeout:
    case cudaErrorHardwareStackError:
    case cudaErrorIllegalInstruction:
    case cudaErrorMisalignedAddress:
    case cudaErrorInvalidAddressSpace:
    case cudaErrorInvalidPc:
    case cudaErrorAssert:
    case cudaErrorECCUncorrectable:
    case cudaErrorNvlinkUncorrectable:
    case cudaErrorContextIsDestroyed:
    case cudaErrorContained:
    case cudaErrorUnknown:
        return true;
    default:
        return false;
    }
}

int sw_cuda_fail(struct sw_err *err, int code, cudaError_t e, const char *call) {
    const bool lost = is_sticky(e);
    code = sw_err_set(err, lost ? -SW_EGPULOST : code, lost ? SW_SCOPE_DEVICE : SW_SCOPE_REQUEST, "%s",
                      cudaGetErrorString(e));
    (void)sw_err_detail(err, "%s: %s", call, cudaGetErrorName(e));
    if (err)
        err->cuda = (int)e;
    (void)cudaGetLastError(); /* a failure that is not sticky must not be found again by the next launch */
    return code;
}

int sw_cuda_driver_fail(struct sw_err *err, int code, CUresult e, const char *call) {
    return sw_cuda_fail(err, code, (cudaError_t)e, call); /* the two lists share their numbers since CUDA 11 */
}

int sw_cuda_driver_load(struct sw_cuda_driver *ret, struct sw_err *err) {
    enum cudaDriverEntryPointQueryResult found;
    void *symbol = NULL;
#define LOAD(member, name, version)                                                                                    \
    if (cudaGetDriverEntryPointByVersion(#name, &symbol, version, cudaEnableDefault, &found) != cudaSuccess ||         \
        found != cudaDriverEntryPointSuccess)                                                                          \
        return sw_err_set(err, -SW_ENOTSUP, SW_SCOPE_DEVICE, "the CUDA driver has no %s", #name);                      \
    memcpy(&ret->member, &symbol, sizeof symbol); /* ISO C has no cast from object to function pointers */
    SW_CUDA_DRIVER(LOAD)
#undef LOAD
    return 0;
}

/* The client's claim about the length against what the driver knows. */
static int check_length(const struct sw_cuda_driver *driver, const struct sw_mapping *m, struct sw_err *err) {
    size_t bytes = 0;
    CUdeviceptr base;
    const CUdeviceptr address = (uintptr_t)m->d_base;
    CUresult e = driver->address_range(&base, &bytes, address);
    if (e != CUDA_SUCCESS) /* imported pool memory is known by its attribute only */
        e = driver->pointer_attribute(&bytes, CU_POINTER_ATTRIBUTE_RANGE_SIZE, address);
    if (e != CUDA_SUCCESS)
        return sw_cuda_driver_fail(err, -SW_EIMPORT, e, "length of the imported allocation");
    if (m->bytes > bytes)
        return sw_err_set(err, -SW_ERANGE, SW_SCOPE_REQUEST, "allocation has %zu bytes, %llu were claimed", bytes,
                          (unsigned long long)m->bytes);
    return 0;
}

static int open_ipc(struct sw_mapping *m, const struct sw_mem_desc *desc, struct sw_err *err) {
    cudaIpcMemHandle_t handle;
    memcpy(&handle, desc->handle, sizeof handle);
    const cudaError_t e = cudaIpcOpenMemHandle((void **)&m->d_base, handle, cudaIpcMemLazyEnablePeerAccess);
    return e == cudaSuccess ? 0 : sw_cuda_fail(err, -SW_EIMPORT, e, "cudaIpcOpenMemHandle");
}

static int open_pool(struct sw_mapping *m, const struct sw_mem_desc *desc, struct sw_err *err) {
    struct cudaMemPoolPtrExportData data;
    memcpy(&data, desc->handle, sizeof data);
    cudaError_t e = cudaMemPoolImportFromShareableHandle(&m->pool, (void *)(intptr_t)desc->fds[0],
                                                         cudaMemHandleTypePosixFileDescriptor, 0);
    if (e != cudaSuccess) {
        m->pool = NULL;
        return sw_cuda_fail(err, -SW_EIMPORT, e, "cudaMemPoolImportFromShareableHandle");
    }
    e = cudaMemPoolImportPointer((void **)&m->d_base, m->pool, &data);
    return e == cudaSuccess ? 0 : sw_cuda_fail(err, -SW_EIMPORT, e, "cudaMemPoolImportPointer");
}

/* Imports part i and maps it `at` bytes into the reserved range. */
static int map_part(const struct sw_cuda_driver *driver, struct sw_mapping *m, const struct sw_mem_desc *desc,
                    uint32_t i, uint64_t at, struct sw_err *err) {
    CUmemGenericAllocationHandle handle;
    CUresult e = driver->import(&handle, (void *)(intptr_t)desc->fds[i], CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
    if (e != CUDA_SUCCESS)
        return sw_cuda_driver_fail(err, -SW_EIMPORT, e, "cuMemImportFromShareableHandle");
    e = driver->map((uintptr_t)m->d_base + at, desc->part_bytes[i], 0, handle, 0);
    (void)driver->release(handle); /* the mapping holds the memory */
    if (e != CUDA_SUCCESS)
        return sw_cuda_driver_fail(err, -SW_EIMPORT, e, "cuMemMap");
    m->part_bytes[m->n_parts++] = desc->part_bytes[i];
    return 0;
}

static int open_vmm(const struct sw_cuda_driver *driver, int ordinal, struct sw_mapping *m,
                    const struct sw_mem_desc *desc, struct sw_err *err) {
    CUdeviceptr base = 0;
    m->part_bytes = sw_alloc_array(desc->n_parts, sizeof *m->part_bytes);
    if (!m->part_bytes)
        return sw_err_set(err, -SW_ENOMEM, SW_SCOPE_REQUEST, "out of memory for a mapping of %u parts", desc->n_parts);
    CUresult e = driver->reserve(&base, desc->bytes, 0, 0, 0);
    if (e != CUDA_SUCCESS)
        return sw_cuda_driver_fail(err, -SW_EIMPORT, e, "cuMemAddressReserve");
    m->d_base = (uint8_t *)(uintptr_t)base;
    uint64_t at = 0;
    for (uint32_t i = 0; i < desc->n_parts; i++) {
        const int rc = map_part(driver, m, desc, i, at, err);
        if (rc)
            return rc;
        at += desc->part_bytes[i];
    }
    const CUmemAccessDesc access = {.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = ordinal},
                                    .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    e = driver->set_access(base, desc->bytes, &access, 1);
    return e == CUDA_SUCCESS ? 0 : sw_cuda_driver_fail(err, -SW_EIMPORT, e, "cuMemSetAccess");
}

static void close_vmm(const struct sw_cuda_driver *driver, struct sw_mapping *m) {
    CUdeviceptr at = (uintptr_t)m->d_base;
    for (uint32_t i = 0; i < m->n_parts; i++) {
        (void)driver->unmap(at, m->part_bytes[i]);
        at += m->part_bytes[i];
    }
    if (m->d_base)
        (void)driver->unreserve((uintptr_t)m->d_base, m->bytes);
    sw_free(m->part_bytes);
}

void sw_cuda_unmap(const struct sw_cuda_driver *driver, struct sw_mapping *m) {
    if (!m)
        return;
    if (m->kind == SW_MEM_CUDA_VMM)
        close_vmm(driver, m);
    if (m->kind == SW_MEM_CUDA_IPC && m->d_base)
        (void)cudaIpcCloseMemHandle(m->d_base);
    if (m->kind == SW_MEM_CUDA_POOL && m->d_base)
        (void)cudaFree(m->d_base);
    if (m->kind == SW_MEM_CUDA_POOL && m->pool)
        (void)cudaMemPoolDestroy(m->pool);
    sw_free(m);
}

int sw_cuda_map(const struct sw_cuda_driver *driver, int ordinal, const struct sw_mem_desc *desc,
                struct sw_mapping **ret, struct sw_err *err) {
    if (desc->kind == SW_MEM_MEMFD)
        return sw_err_set(err, -SW_ENOTSUP, SW_SCOPE_REQUEST, "a GPU cannot reach memory of kind %s",
                          sw_mem_kind_name(desc->kind));
    struct sw_mapping *m = sw_alloc(sizeof *m);
    if (!m)
        return sw_err_set(err, -SW_ENOMEM, SW_SCOPE_REQUEST, "out of memory for a mapping");
    m->kind = desc->kind;
    m->bytes = desc->bytes;
    int rc;
    if (desc->kind == SW_MEM_CUDA_IPC)
        rc = open_ipc(m, desc, err);
    else if (desc->kind == SW_MEM_CUDA_POOL)
        rc = open_pool(m, desc, err);
    else
        rc = open_vmm(driver, ordinal, m, desc, err);
    if (!rc && desc->kind != SW_MEM_CUDA_VMM) /* cuMemMap has compared each part's length with the allocation's */
        rc = check_length(driver, m, err);
    if (rc) {
        sw_cuda_unmap(driver, m);
        return rc;
    }
    *ret = m;
    return 0;
}
