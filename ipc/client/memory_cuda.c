/* memory_cuda.c - exports GPU memory as handles that another process can open. */
#include "ipc/client/cuda_driver.h"

#include "base/descriptors.h"
#include <string.h>
#include <unistd.h>

_Static_assert(sizeof(CUipcMemHandle) == SW_MEM_HANDLE_BYTES, "handles fit the wire's fields");
_Static_assert(sizeof(CUmemPoolPtrExportData) == SW_MEM_HANDLE_BYTES, "handles fit the wire's fields");

/* Reports a failed call that makes a descriptor. */
static int fail_export(const struct sw_cuda *cuda, struct sw_err *err, CUresult result, const char *fact,
                       const char *call) {
    if (sw_descriptors_are_used_up()) /* the driver does not report this cause */
        return sw_driver_fail(cuda, err, -SW_ELIMIT, result, "no descriptor is left for a part of the memory", call);
    return sw_driver_fail(cuda, err, -SW_EMEMKIND, result, fact, call);
}

static int export_ipc(struct sw_cuda *cuda, struct sw_export *ret, CUdeviceptr address, struct sw_err *err) {
    CUdeviceptr base;
    size_t bytes;
    CUipcMemHandle handle;
    CUresult result = cuda->address_range(&base, &bytes, address);
    if (result != CUDA_SUCCESS)
        return sw_driver_fail(cuda, err, -SW_EMEMKIND, result, "extent of the allocation", "cuMemGetAddressRange");
    result = cuda->ipc_handle(&handle, base);
    if (result == CUDA_ERROR_OPERATING_SYSTEM)
        return sw_driver_fail(
            cuda, err, -SW_EGPU, result,
            "cudaMalloc memory can be shared only where /proc shows this process: mount /proc anew in "
            "its pid namespace",
            "cuIpcGetMemHandle");
    if (result != CUDA_SUCCESS)
        return sw_driver_fail(cuda, err, -SW_EMEMKIND, result, "memory was not allocated in a way that can be shared",
                              "cuIpcGetMemHandle");
    ret->kind = SW_MEM_CUDA_IPC;
    memcpy(ret->handle, &handle, sizeof handle);
    ret->bytes = bytes;
    ret->offset = address - base;
    return 0;
}

static int export_pool(struct sw_cuda *cuda, struct sw_export *ret, const struct sw_cuda_pointer *p,
                       CUdeviceptr address, struct sw_err *err) {
    CUmemPoolPtrExportData data;
    if (p->range_bytes > SW_MEM_POOL_MAX_BYTES)
        return sw_err_set(err, -SW_EMEMKIND, SW_SCOPE_REQUEST,
                          "allocation of %zu bytes from a memory pool, at most %llu can be shared; use cudaMalloc",
                          p->range_bytes, SW_MEM_POOL_MAX_BYTES);
    int rc = sw_export_reserve(ret, 1, err);
    if (rc < 0)
        return rc;
    CUresult result = cuda->export_pool(&ret->fds[0], p->pool, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
    if (result != CUDA_SUCCESS) {
        ret->fds[0] = -1;
        return fail_export(cuda, err, result,
                           "memory pool cannot be shared; create it with cudaMemHandleTypePosixFileDescriptor",
                           "cuMemPoolExportToShareableHandle");
    }
    result = cuda->export_pointer(&data, p->range);
    if (result != CUDA_SUCCESS)
        return sw_driver_fail(cuda, err, -SW_EMEMKIND, result, "allocation of a memory pool", "cuMemPoolExportPointer");
    ret->kind = SW_MEM_CUDA_POOL;
    memcpy(ret->handle, &data, sizeof data);
    ret->bytes = ret->part_bytes[0] = p->range_bytes;
    ret->offset = address - p->range;
    return 0;
}

/* Visits the physical allocations under [address, end) in order, until a gap. Returns their number. */
static uint32_t count_allocations(struct sw_cuda *cuda, CUdeviceptr address, CUdeviceptr end, CUdeviceptr *ret_first,
                                  CUdeviceptr *ret_end) {
    uint32_t n = 0;
    for (CUdeviceptr next = address; n <= SW_MEM_MAX_PARTS && (n == 0 || next < end); n++) {
        CUdeviceptr base;
        size_t bytes;
        if (cuda->address_range(&base, &bytes, next) != CUDA_SUCCESS || (n && base != next))
            break;
        if (!n)
            *ret_first = base;
        next = *ret_end = base + bytes;
    }
    return n;
}

static int export_allocation(struct sw_cuda *cuda, CUdeviceptr base, int ordinal, int *ret_fd, struct sw_err *err) {
    CUmemGenericAllocationHandle allocation;
    CUmemAllocationProp properties;
    void *address; /* a device address, as the pointer that this call takes */
    memcpy(&address, &base, sizeof address);
    CUresult result = cuda->retain_allocation(&allocation, address);
    if (result != CUDA_SUCCESS)
        return sw_driver_fail(cuda, err, -SW_EMEMKIND, result, "memory was not allocated in a way that can be shared",
                              "cuMemRetainAllocationHandle");
    int rc = 0;
    result = cuda->allocation_properties(&properties, allocation);
    if (result != CUDA_SUCCESS)
        rc = sw_driver_fail(cuda, err, -SW_EMEMKIND, result, "properties of the allocation",
                            "cuMemGetAllocationPropertiesFromHandle");
    else if (properties.location.type != CU_MEM_LOCATION_TYPE_DEVICE || properties.location.id != ordinal)
        rc = sw_err_set(err, -SW_EMEMKIND, SW_SCOPE_REQUEST,
                        "virtual range has memory of several devices, or of the host, in it");
    else {
        result = cuda->export_allocation(ret_fd, allocation, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
        if (result != CUDA_SUCCESS) {
            *ret_fd = -1;
            rc = fail_export(cuda, err, result,
                             "allocation cannot be shared; create it with CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR",
                             "cuMemExportToShareableHandle");
        }
    }
    (void)cuda->release_allocation(allocation);
    return rc;
}

static int export_vmm(struct sw_cuda *cuda, struct sw_export *ret, int ordinal, CUdeviceptr address, uint64_t bytes,
                      struct sw_err *err) {
    CUdeviceptr first = address, end = address;
    const uint32_t n = count_allocations(cuda, address, address + bytes, &first, &end);
    if (!n)
        return sw_err_set(err, -SW_EMEMKIND, SW_SCOPE_REQUEST, "GPU memory of a kind that cannot be shared");
    if (n > SW_MEM_MAX_PARTS)
        return sw_err_set(err, -SW_EMEMKIND, SW_SCOPE_REQUEST, "memory consists of more than %d allocations",
                          SW_MEM_MAX_PARTS);
    if (bytes > end - address)
        return sw_err_set(err, -SW_ERANGE, SW_SCOPE_REQUEST, "%llu bytes, but the mapped range ends after %llu",
                          (unsigned long long)bytes, (unsigned long long)(end - address));
    int rc = sw_export_reserve(ret, n, err);
    CUdeviceptr base = first;
    for (uint32_t i = 0; rc == 0 && i < n; i++) {
        CUdeviceptr part;
        size_t part_bytes = 0;
        (void)cuda->address_range(&part, &part_bytes, base);
        rc = export_allocation(cuda, base, ordinal, &ret->fds[i], err);
        ret->part_bytes[i] = part_bytes;
        base += part_bytes;
    }
    ret->kind = SW_MEM_CUDA_VMM;
    ret->bytes = end - first;
    ret->offset = address - first;
    return rc;
}

static int find_uuid(struct sw_cuda *cuda, int ordinal, uint8_t ret[SW_DEVICE_UUID_BYTES], struct sw_err *err) {
    CUdevice device;
    CUuuid uuid;
    CUresult result = cuda->device_get(&device, ordinal);
    if (result == CUDA_SUCCESS)
        result = cuda->device_uuid(&uuid, device);
    if (result != CUDA_SUCCESS)
        return sw_driver_fail(cuda, err, -SW_EGPU, result, "device of the memory", "cuDeviceGetUuid");
    memcpy(ret, &uuid, sizeof uuid);
    return 0;
}

/* Chooses the way to share. The driver marks memory for legacy IPC. Other memory belongs to a pool, or is VMM memory.
 */
static int export_memory(struct sw_cuda *cuda, struct sw_export *ret, const struct sw_cuda_pointer *p,
                         CUdeviceptr address, uint64_t bytes, struct sw_err *err) {
    int rc = find_uuid(cuda, p->ordinal, ret->device_uuid, err);
    if (rc < 0)
        return rc;
    if (p->managed)
        return sw_err_set(err, -SW_EMEMKIND, SW_SCOPE_REQUEST,
                          "managed memory cannot be shared; use cudaMalloc, cuMemCreate or an exportable pool");
    if (p->pool)
        rc = export_pool(cuda, ret, p, address, err);
    else if (p->legacy_ipc)
        rc = export_ipc(cuda, ret, address, err);
    else
        rc = export_vmm(cuda, ret, p->ordinal, address, bytes, err);
    if (rc == 0 && bytes > ret->bytes - ret->offset)
        rc = sw_err_set(err, -SW_ERANGE, SW_SCOPE_REQUEST, "%llu bytes, but the allocation ends after %llu",
                        (unsigned long long)bytes, (unsigned long long)(ret->bytes - ret->offset));
    return rc;
}

/* Makes the memory's context the current one until pop(). */
static int enter_context(struct sw_cuda *cuda, struct sw_cuda_pointer *p, struct sw_err *err) {
    const int rc = sw_cuda_find_context(cuda, p, err);
    if (rc < 0)
        return rc;
    const CUresult result = cuda->push(p->context);
    return result == CUDA_SUCCESS
               ? 0
               : sw_driver_fail(cuda, err, -SW_EGPU, result, "context of the memory", "cuCtxPushCurrent");
}

int sw_cuda_export(struct sw_export *ret, struct sw_cuda **cuda, const void *data, uint64_t bytes, struct sw_err *err) {
    const CUdeviceptr address = (uintptr_t)data;
    struct sw_cuda_pointer p;
    CUcontext popped;
    int rc = sw_cuda_find_driver(cuda, err);
    if (rc <= 0 || !sw_cuda_look_up(*cuda, address, &p) || !sw_cuda_is_gpu(&p))
        return rc < 0 ? rc : 0;
    if ((rc = enter_context(*cuda, &p, err)) < 0)
        return rc;
    rc = export_memory(*cuda, ret, &p, address, bytes, err);
    (void)(*cuda)->pop(&popped);
    return rc < 0 ? rc : 1;
}

/* Returns where the memory around the address ends. Allocations of a pool are adjacent, but are not one memory. A
 * virtual range may have several allocations. */
static CUdeviceptr memory_end(struct sw_cuda *cuda, const struct sw_cuda_pointer *p, CUdeviceptr address,
                              uint64_t bytes) {
    CUdeviceptr base, end = address;
    size_t range_bytes;
    if ((p->pool || p->managed) && p->range_bytes)
        return p->range + p->range_bytes;
    while (end - address < bytes && cuda->address_range(&base, &range_bytes, end) == CUDA_SUCCESS)
        end = base + range_bytes;
    return end;
}

int sw_cuda_locate(struct sw_cuda **cuda, const void *data, uint64_t bytes, struct sw_cuda_place *ret,
                   struct sw_err *err) {
    const CUdeviceptr address = (uintptr_t)data;
    struct sw_cuda_pointer p;
    CUcontext popped;
    int rc = sw_cuda_find_driver(cuda, err);
    if (rc <= 0 || !sw_cuda_look_up(*cuda, address, &p) || !p.type)
        return rc < 0 ? rc : SW_CUDA_UNKNOWN;
    if (!sw_cuda_is_gpu(&p))
        return SW_CUDA_PAGE_LOCKED;
    if ((rc = enter_context(*cuda, &p, err)) < 0)
        return rc;
    const CUdeviceptr end = memory_end(*cuda, &p, address, bytes);
    (void)(*cuda)->pop(&popped);
    ret->context = p.context;
    ret->ordinal = p.ordinal;
    ret->end = (uintptr_t)end;
    if ((rc = find_uuid(*cuda, p.ordinal, ret->device_uuid, err)) < 0)
        return rc;
    if (bytes > end - address)
        return sw_err_set(err, -SW_ERANGE, SW_SCOPE_REQUEST, "%llu bytes, but the allocation ends after %llu",
                          (unsigned long long)bytes, (unsigned long long)(end - address));
    return SW_CUDA_GPU;
}
