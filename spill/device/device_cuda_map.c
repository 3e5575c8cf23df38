#include "spill/device/device_cuda_map.h"

#include "base/alloc.h"
#include "base/descriptors.h"
#include <stdbool.h>
#include <string.h>
#include <unistd.h>

_Static_assert(sizeof(CUipcMemHandle) == SW_MEM_HANDLE_BYTES, "the wire's handle is the driver's");
_Static_assert(sizeof(CUmemPoolPtrExportData) == SW_MEM_HANDLE_BYTES, "the wire's handle is the driver's");
_Static_assert(sizeof(CUuuid) == SW_DEVICE_UUID_BYTES, "the wire's UUID is the driver's");

/* ---- errors ---- */

/* Errors after which every call of this context fails. */
static bool is_sticky(cudaError_t error) {
    switch (error) {
    case cudaErrorIllegalAddress:
    case cudaErrorLaunchFailure:
    case cudaErrorLaunchTimeout:
    case cudaErrorMisalignedAddress:
    case cudaErrorInvalidAddressSpace:
    case cudaErrorInvalidPc:
    case cudaErrorIllegalInstruction:
    case cudaErrorHardwareStackError:
    case cudaErrorAssert:
    case cudaErrorECCUncorrectable:
    case cudaErrorNvlinkUncorrectable:
    case cudaErrorContextIsDestroyed:
    case cudaErrorMpsClientTerminated:
    case cudaErrorExternalDevice:
#if CUDART_VERSION >= 13000
    case cudaErrorContained:
    case cudaErrorTensorMemoryLeak:
#endif
    case cudaErrorUnknown:
        return true;
    default:
        return false;
    }
}

int sw_cuda_fail(struct sw_err *err, cudaError_t error, const char *call) {
    int code = -SW_EGPU;
    enum sw_scope scope = SW_SCOPE_REQUEST;
    (void)cudaGetLastError();
    if (is_sticky(error)) {
        code = -SW_EGPULOST;
        scope = SW_SCOPE_DEVICE;
    } else if (error == cudaErrorMemoryAllocation) {
        code = -SW_ENOMEM;
    }
    (void)sw_err_set(err, code, scope, "%s", cudaGetErrorString(error));
    (void)sw_err_detail(err, "%s: %s", call, cudaGetErrorName(error));
    if (err)
        err->cuda = (int)error;
    return code;
}

int sw_cuda_check_lost(int rc, struct sw_err *err) {
    if (rc == -SW_EGPU && err && is_sticky((cudaError_t)err->cuda)) {
        err->code = rc = -SW_EGPULOST;
        err->scope = SW_SCOPE_DEVICE;
    }
    return rc;
}

/* Records a failed driver call on memory from a client. Returns the code: -SW_EGPULOST if the context is dead,
 * -SW_ELIMIT if this process has no descriptor left, else -SW_EIMPORT or -SW_ENOMEM. */
static int import_fail(const struct sw_cuda_driver *driver, struct sw_err *err, CUresult result, const char *call) {
    const char *name = NULL;
    /* Bad handles may yield any error: only the context itself can tell that it is dead. */
    const cudaError_t health = cudaStreamQuery(driver->unmap_stream);
    if (is_sticky(health))
        return sw_cuda_fail(err, health, call);
    (void)cudaGetLastError();
    (void)driver->error_name(result, &name);
    /* The driver does not tell when an import failed because no descriptor was left. */
    const int code = result == CUDA_ERROR_OUT_OF_MEMORY ? -SW_ENOMEM
                     : sw_descriptors_are_used_up()     ? -SW_ELIMIT
                                                        : -SW_EIMPORT;
    (void)sw_err_set(err, code, SW_SCOPE_REQUEST, "GPU memory could not be opened: %s", name ? name : "unknown error");
    (void)sw_err_detail(err, "%s", call);
    if (err)
        err->cuda = (int)result;
    return code;
}

/* ---- the driver ---- */

static int find_entry_point(const char *name, unsigned version, void **ret, struct sw_err *err) {
    enum cudaDriverEntryPointQueryResult found;
#if CUDART_VERSION >= 12050
    cudaError_t e = cudaGetDriverEntryPointByVersion(name, ret, version, cudaEnableDefault, &found);
#else
    (void)version;
    cudaError_t e = cudaGetDriverEntryPoint(name, ret, cudaEnableDefault, &found);
#endif
    if (e == cudaSuccess && found == cudaDriverEntryPointSuccess && *ret)
        return 0;
    (void)cudaGetLastError();
    return sw_err_set(err, -SW_ENOTSUP, SW_SCOPE_DEVICE, "the CUDA driver is too old: it has no %s", name);
}

static int find_entry_points(struct sw_cuda_driver *ret, struct sw_err *err) {
    void *entry = NULL;
    int rc = 0;
#define LOAD(member, name, version)                                                                                    \
    if (rc == 0 && (rc = find_entry_point(#name, version, &entry, err)) == 0)                                          \
        memcpy(&ret->member, &entry, sizeof entry);
    SW_CUDA_DRIVER(LOAD)
#undef LOAD
    return rc;
}

static int find_context(struct sw_cuda_driver *driver, int ordinal, CUcontext context, struct sw_err *err) {
    CUresult result = driver->device_get(&driver->device, ordinal);
    if (result != CUDA_SUCCESS)
        return sw_cuda_fail(err, (cudaError_t)result, "cuDeviceGet");
    driver->context = context;
    if (context)
        return 0;
    result = driver->retain_primary(&driver->context, driver->device);
    driver->retains = result == CUDA_SUCCESS;
    return driver->retains ? 0 : sw_cuda_fail(err, (cudaError_t)result, "cuDevicePrimaryCtxRetain");
}

int sw_cuda_driver_init(struct sw_cuda_driver *ret, int ordinal, CUcontext context, struct sw_err *err) {
    int rc = find_entry_points(ret, err);
    if (rc == 0)
        rc = find_context(ret, ordinal, context, err);
    if (rc == 0)
        rc = sw_cuda_enter(ret, err);
    if (rc < 0)
        return rc;
    const cudaError_t e = cudaStreamCreateWithFlags(&ret->unmap_stream, cudaStreamNonBlocking);
    return e == cudaSuccess ? 0 : sw_cuda_fail(err, e, "cudaStreamCreateWithFlags");
}

int sw_cuda_enter(const struct sw_cuda_driver *driver, struct sw_err *err) {
    const CUresult result = driver->set_current(driver->context);
    return result == CUDA_SUCCESS ? 0 : sw_cuda_fail(err, (cudaError_t)result, "cuCtxSetCurrent");
}

void sw_cuda_driver_fini(struct sw_cuda_driver *driver) {
    if (driver->unmap_stream)
        (void)cudaStreamDestroy(driver->unmap_stream);
    driver->unmap_stream = NULL;
    if (driver->retains)
        (void)driver->release_primary(driver->device);
    driver->retains = false;
}

/* ---- the three kinds ---- */

/* Returns a descriptor in the form of a pointer, as the driver takes it. */
static void *fd_handle(int fd) {
    return (void *)(intptr_t)fd; /* NOLINT(performance-no-int-to-ptr) */
}

/* Checks the client's length against the driver's. For imported pool memory the driver may know only the pointer's
 * attributes. */
static int check_range(const struct sw_cuda_driver *driver, const struct sw_mapping *m, struct sw_err *err) {
    CUdeviceptr base = 0;
    size_t bytes = 0;
    CUresult result = driver->address_range(&base, &bytes, m->address);
    if (result != CUDA_SUCCESS) {
        result = driver->pointer_attribute(&base, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, m->address);
        if (result == CUDA_SUCCESS)
            result = driver->pointer_attribute(&bytes, CU_POINTER_ATTRIBUTE_RANGE_SIZE, m->address);
    }
    if (result != CUDA_SUCCESS)
        return import_fail(driver, err, result, "extent of the imported allocation");
    const uint64_t before = m->address - base, there = before <= bytes ? bytes - before : 0;
    if (m->bytes > there)
        return sw_err_set(err, -SW_ERANGE, SW_SCOPE_REQUEST, "allocation has %llu bytes, the client says %llu",
                          (unsigned long long)there, (unsigned long long)m->bytes);
    return 0;
}

/* What the driver's error means for a client in a pid namespace; NULL: nothing special. The driver looks for the client
 * in /proc. It takes a process of its own process's id for the same process, in whichever namespace. */
static const char *meaning_of(CUresult result) {
    if (result == CUDA_ERROR_OPERATING_SYSTEM)
        return "mount /proc anew in the client's pid namespace";
    if (result == CUDA_ERROR_INVALID_CONTEXT)
        return "client and service have the same process id in different pid namespaces: run the service in the host's";
    return NULL;
}

static int map_ipc(const struct sw_cuda_driver *driver, const struct sw_mem_desc *desc, struct sw_mapping *m,
                   struct sw_err *err) {
    CUipcMemHandle handle;
    memcpy(&handle, desc->handle, sizeof handle);
    const CUresult result = driver->ipc_open(&m->address, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
    if (result != CUDA_SUCCESS) {
        m->address = 0;
        const int rc = import_fail(driver, err, result, "cuIpcOpenMemHandle");
        if (rc == -SW_EIMPORT && meaning_of(result))
            return sw_err_set(err, rc, SW_SCOPE_REQUEST, "cudaMalloc memory could not be opened: %s",
                              meaning_of(result));
        return rc;
    }
    return check_range(driver, m, err);
}

/* Checks that the parts are whole pages of the device, and add up to the allocation without overflow. */
static int check_parts(const struct sw_cuda_driver *driver, const struct sw_mem_desc *desc, struct sw_err *err) {
    const CUmemAllocationProp properties = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                            .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = driver->device}};
    size_t page_bytes = 0;
    const CUresult result = driver->granularity(&page_bytes, &properties, CU_MEM_ALLOC_GRANULARITY_MINIMUM);
    if (result != CUDA_SUCCESS || !page_bytes)
        return import_fail(driver, err, result, "cuMemGetAllocationGranularity");
    uint64_t sum = 0;
    for (uint32_t i = 0; i < desc->n_parts; i++)
        if (!desc->part_bytes[i] || desc->part_bytes[i] % page_bytes ||
            __builtin_add_overflow(sum, desc->part_bytes[i], &sum))
            return sw_err_set(err, -SW_ERANGE, SW_SCOPE_REQUEST,
                              "part %u has %llu bytes, which is no multiple of the GPU's page of %zu", i,
                              (unsigned long long)desc->part_bytes[i], page_bytes);
    if (!desc->n_parts || sum != desc->bytes)
        return sw_err_set(err, -SW_ERANGE, SW_SCOPE_REQUEST, "%u parts hold %llu bytes, the client says %llu",
                          desc->n_parts, (unsigned long long)sum, (unsigned long long)desc->bytes);
    return 0;
}

/* Maps the next part after the mapped ones. The mapping keeps the allocation, so the handle is released. */
static int map_part(const struct sw_cuda_driver *driver, int fd, uint64_t part_bytes, struct sw_mapping *m,
                    struct sw_err *err) {
    CUmemGenericAllocationHandle allocation;
    if (fd < 0)
        return sw_err_set(err, -SW_EFDS, SW_SCOPE_REQUEST, "part %u has no descriptor", m->n_parts);
    CUresult result = driver->import_allocation(&allocation, fd_handle(fd), CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
    if (result != CUDA_SUCCESS)
        return import_fail(driver, err, result, "cuMemImportFromShareableHandle");
    result = driver->map(m->address + m->mapped_bytes, part_bytes, 0, allocation, 0);
    (void)driver->release_allocation(allocation);
    if (result != CUDA_SUCCESS)
        return import_fail(driver, err, result, "cuMemMap");
    m->part_bytes[m->n_parts++] = part_bytes;
    m->mapped_bytes += part_bytes;
    return 0;
}

static int map_vmm(const struct sw_cuda_driver *driver, const struct sw_mem_desc *desc, struct sw_mapping *m,
                   struct sw_err *err) {
    int rc = check_parts(driver, desc, err);
    if (rc < 0)
        return rc;
    m->part_bytes = sw_alloc_array(desc->n_parts, sizeof *m->part_bytes);
    if (!m->part_bytes)
        return sw_err_set(err, -SW_ENOMEM, SW_SCOPE_REQUEST, "no memory for %u parts", desc->n_parts);
    CUresult result = driver->reserve(&m->address, desc->bytes, 0, 0, 0);
    if (result != CUDA_SUCCESS)
        return import_fail(driver, err, result, "cuMemAddressReserve");
    m->reserved_bytes = desc->bytes;
    for (uint32_t i = 0; i < desc->n_parts; i++)
        if ((rc = map_part(driver, desc->fds[i], desc->part_bytes[i], m, err)) < 0)
            return rc;
    const CUmemAccessDesc access = {.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = driver->device},
                                    .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    result = driver->set_access(m->address, m->mapped_bytes, &access, 1);
    return result == CUDA_SUCCESS ? 0 : import_fail(driver, err, result, "cuMemSetAccess");
}

static int allow_pool(const struct sw_cuda_driver *driver, CUmemoryPool pool, struct sw_err *err) {
    CUmemLocation location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = driver->device};
    CUmemAccess_flags flags;
    CUresult result = driver->pool_access(&flags, pool, &location);
    if (result == CUDA_SUCCESS && flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE)
        return 0;
    const CUmemAccessDesc access = {.location = location, .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    result = driver->set_pool_access(pool, &access, 1);
    return result == CUDA_SUCCESS ? 0 : import_fail(driver, err, result, "cuMemPoolSetAccess");
}

static int map_pool(const struct sw_cuda_driver *driver, const struct sw_mem_desc *desc, struct sw_mapping *m,
                    struct sw_err *err) {
    CUmemPoolPtrExportData data;
    if (desc->n_parts != 1 || !desc->fds || desc->fds[0] < 0)
        return sw_err_set(err, -SW_EFDS, SW_SCOPE_REQUEST, "memory pool: one descriptor wanted, %u given",
                          desc->n_parts);
    /* A client that lies about the length can still make the driver crash: there is no call to check it first. */
    if (desc->bytes > SW_MEM_POOL_MAX_BYTES)
        return sw_err_set(err, -SW_ENOTSUP, SW_SCOPE_REQUEST,
                          "memory pool: allocation of %llu bytes, at most %llu can be imported",
                          (unsigned long long)desc->bytes, SW_MEM_POOL_MAX_BYTES);
    CUresult result =
        driver->import_pool(&m->pool, fd_handle(desc->fds[0]), CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
    if (result != CUDA_SUCCESS) {
        m->pool = NULL;
        return import_fail(driver, err, result, "cuMemPoolImportFromShareableHandle");
    }
    int rc = allow_pool(driver, m->pool, err);
    if (rc < 0)
        return rc;
    memcpy(&data, desc->handle, sizeof data);
    result = driver->import_pointer(&m->address, m->pool, &data);
    if (result != CUDA_SUCCESS) {
        m->address = 0;
        return import_fail(driver, err, result, "cuMemPoolImportPointer");
    }
    return check_range(driver, m, err);
}

/* ---- interface ---- */

int sw_cuda_map(const struct sw_cuda_driver *driver, const struct sw_mem_desc *desc, struct sw_mapping **ret,
                struct sw_err *err) {
    struct sw_mapping *m = sw_alloc(sizeof *m);
    if (!m)
        return sw_err_set(err, -SW_ENOMEM, SW_SCOPE_REQUEST, "no memory for a mapping");
    m->kind = desc->kind;
    m->bytes = desc->bytes;
    int rc;
    switch (desc->kind) {
    case SW_MEM_CUDA_IPC:
        rc = map_ipc(driver, desc, m, err);
        break;
    case SW_MEM_CUDA_VMM:
        rc = map_vmm(driver, desc, m, err);
        break;
    case SW_MEM_CUDA_POOL:
        rc = map_pool(driver, desc, m, err);
        break;
    default:
        rc = sw_err_set(err, -SW_ENOTSUP, SW_SCOPE_REQUEST, "a GPU cannot map memory of kind %s",
                        sw_mem_kind_name(desc->kind));
    }
    if (rc < 0) {
        sw_cuda_unmap(driver, m);
        return rc;
    }
    *ret = m;
    return 0;
}

int sw_cuda_adopt(void *d_data, uint64_t bytes, struct sw_mapping **ret, struct sw_err *err) {
    struct sw_mapping *m = sw_alloc(sizeof *m);
    if (!m)
        return sw_err_set(err, -SW_ENOMEM, SW_SCOPE_REQUEST, "no memory for a mapping");
    m->kind = SW_MEM_KIND_NR;
    m->address = (CUdeviceptr)(uintptr_t)d_data;
    m->bytes = bytes;
    *ret = m;
    return 0;
}

static void unmap_vmm(const struct sw_cuda_driver *driver, struct sw_mapping *m) {
    CUdeviceptr at = m->address;
    for (uint32_t i = 0; i < m->n_parts; i++) {
        (void)driver->unmap(at, m->part_bytes[i]);
        at += m->part_bytes[i];
    }
    if (m->reserved_bytes)
        (void)driver->unreserve(m->address, m->reserved_bytes);
    sw_free(m->part_bytes);
}

/* Frees on a separate stream: a plain free of pool memory would wait for all other work. */
static void unmap_pool(const struct sw_cuda_driver *driver, struct sw_mapping *m) {
    if (m->address && driver->free_async(m->address, driver->unmap_stream) == CUDA_SUCCESS)
        (void)driver->stream_synchronize(driver->unmap_stream);
    if (m->pool)
        (void)driver->destroy_pool(m->pool);
}

void sw_cuda_unmap(const struct sw_cuda_driver *driver, struct sw_mapping *mapping) {
    if (!mapping)
        return;
    if (mapping->kind == SW_MEM_CUDA_IPC && mapping->address)
        (void)driver->ipc_close(mapping->address);
    if (mapping->kind == SW_MEM_CUDA_VMM)
        unmap_vmm(driver, mapping);
    if (mapping->kind == SW_MEM_CUDA_POOL)
        unmap_pool(driver, mapping);
    sw_free(mapping);
}
