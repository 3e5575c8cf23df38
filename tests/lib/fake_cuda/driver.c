/* driver.c - the driver's calls on memory of other processes: memfds, mapped into this one. */
#include "tests/lib/fake_cuda/handle.h"
#include "tests/lib/fake_cuda/state.h"

#include "base/assert.h"
#include <cudaTypedefs.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

const uint8_t sw_fake_uuid[SW_DEVICE_UUID_BYTES] = SW_FAKE_UUID;

struct CUmemPoolHandle_st {
    int fd;
};

void sw_fake_ipc_handle(uint8_t ret[SW_MEM_HANDLE_BYTES], int fd, uint64_t bytes) {
    sw_fake_handle_make(ret, fd, bytes);
}

void sw_fake_pool_handle(uint8_t ret[SW_MEM_HANDLE_BYTES], uint64_t bytes) {
    sw_fake_ipc_handle(ret, -1, bytes);
}

/* The two enums share their numbers. */
static CUresult enter(enum sw_fake_call call) {
    return (CUresult)sw_fake_enter(call);
}

static CUresult leave(CUresult result) {
    (void)sw_fake_leave(cudaSuccess);
    return result;
}

/* NOLINTBEGIN(performance-no-int-to-ptr): the driver's integers */
static void *at(CUdeviceptr address) {
    return (void *)(uintptr_t)address;
}

static int fd_of(void *handle) {
    return (int)(intptr_t)handle;
}
/* NOLINTEND(performance-no-int-to-ptr) */

static CUresult map_file(CUdeviceptr *ret, int fd, uint64_t bytes, enum sw_fake_thing thing) {
    void *memory = fd < 0 ? MAP_FAILED : mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (memory == MAP_FAILED)
        return CUDA_ERROR_INVALID_VALUE;
    sw_fake_range_add(thing, memory, bytes);
    *ret = (uintptr_t)memory;
    return CUDA_SUCCESS;
}

static void unmap_file(CUdeviceptr address, enum sw_fake_thing thing) {
    const size_t bytes = sw_fake_range_remove(thing, at(address));
    SW_ASSERT(bytes > 0 && munmap(at(address), bytes) == 0);
}

static CUresult get_error_name(CUresult result, const char **ret) {
    *ret = cudaGetErrorName((cudaError_t)result);
    return CUDA_SUCCESS;
}

static CUresult device_get(CUdevice *ret, int ordinal) {
    *ret = ordinal;
    return ordinal == 0 ? leave(enter(SW_FAKE_cuDeviceGet)) : CUDA_ERROR_INVALID_VALUE;
}

/* Two contexts: the primary one, and one that a test gives. */
struct CUctx_st {
    char unused;
};
static struct CUctx_st primary, given;
static _Thread_local CUcontext current;
static atomic_int n_retained;

CUcontext sw_fake_context(void) {
    return &given;
}

CUcontext sw_fake_current(void) {
    return current;
}

void sw_fake_set_current(struct CUctx_st *context) {
    current = context;
}

int sw_fake_retained(void) {
    return atomic_load(&n_retained);
}

static atomic_ullong given_id = 7; /* of `given`; 0: it is destroyed */
static bool hides_ids;

void sw_fake_context_destroy(bool is_replaced) {
    atomic_store(&given_id, is_replaced ? atomic_load(&given_id) + 1 : 0);
}

void sw_fake_hide_context_ids(void) {
    hides_ids = true;
}

static CUresult check_context(CUcontext context) {
    SW_ASSERT(context == &primary || context == &given);
    return context == &given && !atomic_load(&given_id) ? CUDA_ERROR_CONTEXT_IS_DESTROYED : CUDA_SUCCESS;
}

static CUresult context_id(CUcontext context, unsigned long long *ret) {
    const CUresult result = enter(SW_FAKE_cuCtxGetId), there = check_context(context);
    if (result == CUDA_SUCCESS && there == CUDA_SUCCESS)
        *ret = context == &given ? atomic_load(&given_id) : 1;
    return leave(result != CUDA_SUCCESS ? result : there);
}

static CUresult set_current(CUcontext context) {
    const CUresult result = enter(SW_FAKE_cuCtxSetCurrent);
    SW_ASSERT(context == &primary || context == &given);
    if (result == CUDA_SUCCESS)
        current = context;
    return leave(result);
}

static CUresult retain_primary(CUcontext *ret, CUdevice device) {
    const CUresult result = enter(SW_FAKE_cuDevicePrimaryCtxRetain);
    SW_ASSERT(device == 0);
    *ret = &primary;
    atomic_fetch_add(&n_retained, result == CUDA_SUCCESS);
    return leave(result);
}

static CUresult release_primary(CUdevice device) {
    const CUresult result = enter(SW_FAKE_cuDevicePrimaryCtxRelease);
    SW_ASSERT(device == 0 && atomic_fetch_sub(&n_retained, 1) > 0);
    return leave(result);
}

static CUresult device_uuid(CUuuid *ret, CUdevice device) {
    (void)device;
    memcpy(ret, sw_fake_uuid, sizeof *ret);
    return leave(enter(SW_FAKE_cuDeviceGetUuid));
}

/* Like the driver, it knows pool memory by its attributes only. */
static CUresult address_range(CUdeviceptr *ret_base, size_t *ret_bytes, CUdeviceptr address) {
    const CUresult result = enter(SW_FAKE_cuMemGetAddressRange);
    const struct sw_fake_range *range = sw_fake_range_find(at(address), 1);
    if (result != CUDA_SUCCESS)
        return leave(result);
    if (!range || range->thing == SW_FAKE_POOL_MEMORY)
        return leave(CUDA_ERROR_INVALID_VALUE);
    *ret_base = (uintptr_t)range->from;
    *ret_bytes = range->bytes;
    return leave(result);
}

static CUresult pointer_attribute(void *ret, CUpointer_attribute attribute, CUdeviceptr address) {
    const CUresult result = enter(SW_FAKE_cuPointerGetAttribute);
    const struct sw_fake_range *range = sw_fake_range_find(at(address), 1);
    if (result != CUDA_SUCCESS)
        return leave(result);
    if (!range)
        return leave(CUDA_ERROR_INVALID_VALUE);
    if (attribute == CU_POINTER_ATTRIBUTE_RANGE_START_ADDR)
        *(CUdeviceptr *)ret = (uintptr_t)range->from;
    else if (attribute == CU_POINTER_ATTRIBUTE_MEMORY_TYPE)
        *(unsigned *)ret = CU_MEMORYTYPE_DEVICE;
    else if (attribute == CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL)
        *(int *)ret = 0;
    else if (attribute == CU_POINTER_ATTRIBUTE_CONTEXT)
        *(CUcontext *)ret = NULL; /* as of memory of a pool: the primary one */
    else
        *(size_t *)ret = range->bytes;
    return leave(result);
}

static CUresult ipc_open(CUdeviceptr *ret, CUipcMemHandle wire, unsigned flags) {
    struct sw_fake_handle handle;
    char path[64];
    CUresult result = enter(SW_FAKE_cuIpcOpenMemHandle);
    (void)flags;
    if (result != CUDA_SUCCESS)
        return leave(result);
    memcpy(&handle, &wire, sizeof handle);
    (void)snprintf(path, sizeof path, "/proc/%d/fd/%d", handle.pid, handle.fd);
    const int fd = open(path, O_RDWR | O_CLOEXEC);
    result = map_file(ret, fd, handle.bytes, SW_FAKE_IPC_MEMORY);
    if (fd >= 0)
        (void)close(fd);
    return leave(result);
}

static CUresult ipc_close(CUdeviceptr address) {
    const CUresult result = enter(SW_FAKE_cuIpcCloseMemHandle);
    unmap_file(address, SW_FAKE_IPC_MEMORY);
    return leave(result);
}

static CUresult import_allocation(CUmemGenericAllocationHandle *ret, void *handle, CUmemAllocationHandleType type) {
    const CUresult result = enter(SW_FAKE_cuMemImportFromShareableHandle);
    SW_ASSERT(type == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
    if (result != CUDA_SUCCESS)
        return leave(result);
    const int fd = fcntl(fd_of(handle), F_DUPFD_CLOEXEC, 0);
    SW_ASSERT(fd >= 0);
    sw_fake_hold(SW_FAKE_HANDLE, 1);
    *ret = (CUmemGenericAllocationHandle)fd;
    return leave(result);
}

static CUresult create_allocation(CUmemGenericAllocationHandle *ret, size_t bytes,
                                  const CUmemAllocationProp *properties, unsigned long long flags) {
    const CUresult result = enter(SW_FAKE_cuMemCreate);
    SW_ASSERT(bytes % SW_FAKE_PAGE_BYTES == 0 && flags == 0 &&
              properties->requestedHandleTypes == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
    if (result != CUDA_SUCCESS)
        return leave(result);
    const int fd = memfd_create("fake GPU memory", MFD_CLOEXEC);
    SW_ASSERT(fd >= 0 && ftruncate(fd, (off_t)bytes) == 0);
    sw_fake_hold(SW_FAKE_HANDLE, 1);
    *ret = (CUmemGenericAllocationHandle)fd;
    return leave(result);
}

static CUresult release_allocation(CUmemGenericAllocationHandle handle) {
    const CUresult result = enter(SW_FAKE_cuMemRelease);
    SW_ASSERT(close((int)handle) == 0);
    sw_fake_hold(SW_FAKE_HANDLE, -1);
    return leave(result);
}

static CUresult granularity(size_t *ret, const CUmemAllocationProp *properties,
                            CUmemAllocationGranularity_flags flags) {
    (void)properties;
    (void)flags;
    *ret = SW_FAKE_PAGE_BYTES;
    return leave(enter(SW_FAKE_cuMemGetAllocationGranularity));
}

/* Addresses that nothing can be reached at, so they are no range. */
static CUresult reserve(CUdeviceptr *ret, size_t bytes, size_t alignment, CUdeviceptr wanted,
                        unsigned long long flags) {
    const CUresult result = enter(SW_FAKE_cuMemAddressReserve);
    (void)alignment;
    (void)wanted;
    (void)flags;
    if (result != CUDA_SUCCESS)
        return leave(result);
    void *memory = mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    SW_ASSERT(memory != MAP_FAILED);
    sw_fake_hold(SW_FAKE_RESERVED, 1);
    *ret = (uintptr_t)memory;
    return leave(result);
}

static CUresult unreserve(CUdeviceptr address, size_t bytes) {
    const CUresult result = enter(SW_FAKE_cuMemAddressFree);
    SW_ASSERT(munmap(at(address), bytes) == 0);
    sw_fake_hold(SW_FAKE_RESERVED, -1);
    return leave(result);
}

static CUresult map(CUdeviceptr address, size_t bytes, size_t offset, CUmemGenericAllocationHandle handle,
                    unsigned long long flags) {
    const CUresult result = enter(SW_FAKE_cuMemMap);
    const off_t begin = lseek((int)handle, 0, SEEK_CUR); /* where the allocation is in its file */
    (void)flags;
    if (result != CUDA_SUCCESS)
        return leave(result);
    if (mmap(at(address), bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, (int)handle, begin + (off_t)offset) ==
        MAP_FAILED)
        return leave(CUDA_ERROR_INVALID_VALUE);
    sw_fake_range_add(SW_FAKE_PART, at(address), bytes);
    return leave(result);
}

static CUresult unmap(CUdeviceptr address, size_t bytes) {
    const CUresult result = enter(SW_FAKE_cuMemUnmap);
    SW_ASSERT(sw_fake_range_remove(SW_FAKE_PART, at(address)) == bytes);
    SW_ASSERT(mmap(at(address), bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0) !=
              MAP_FAILED);
    return leave(result);
}

static CUresult set_access(CUdeviceptr address, size_t bytes, const CUmemAccessDesc *access, size_t n) {
    const CUresult result = enter(SW_FAKE_cuMemSetAccess);
    SW_ASSERT(address && bytes && n == 1 && access->flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    return leave(result);
}

static CUresult import_pool(CUmemoryPool *ret, void *handle, CUmemAllocationHandleType type, unsigned long long flags) {
    const CUresult result = enter(SW_FAKE_cuMemPoolImportFromShareableHandle);
    (void)flags;
    SW_ASSERT(type == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
    if (result != CUDA_SUCCESS)
        return leave(result);
    struct CUmemPoolHandle_st *pool = malloc(sizeof *pool);
    SW_ASSERT(pool);
    pool->fd = fcntl(fd_of(handle), F_DUPFD_CLOEXEC, 0);
    SW_ASSERT(pool->fd >= 0);
    sw_fake_hold(SW_FAKE_POOL, 1);
    *ret = pool;
    return leave(result);
}

static CUresult import_pointer(CUdeviceptr *ret, CUmemoryPool pool, CUmemPoolPtrExportData *data) {
    struct sw_fake_handle handle;
    const CUresult result = enter(SW_FAKE_cuMemPoolImportPointer);
    memcpy(&handle, data, sizeof handle);
    return leave(result != CUDA_SUCCESS ? result : map_file(ret, pool->fd, handle.bytes, SW_FAKE_POOL_MEMORY));
}

static CUresult destroy_pool(CUmemoryPool pool) {
    const CUresult result = enter(SW_FAKE_cuMemPoolDestroy);
    (void)close(pool->fd);
    free(pool);
    sw_fake_hold(SW_FAKE_POOL, -1);
    return leave(result);
}

static CUresult pool_access(CUmemAccess_flags *ret, CUmemoryPool pool, CUmemLocation *location) {
    (void)pool;
    (void)location;
    *ret = CU_MEM_ACCESS_FLAGS_PROT_NONE;
    return leave(enter(SW_FAKE_cuMemPoolGetAccess));
}

static CUresult set_pool_access(CUmemoryPool pool, const CUmemAccessDesc *access, size_t n) {
    const CUresult result = enter(SW_FAKE_cuMemPoolSetAccess);
    SW_ASSERT(pool && n == 1 && access->flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    return leave(result);
}

static CUresult free_async(CUdeviceptr address, CUstream stream) {
    const CUresult result = enter(SW_FAKE_cuMemFreeAsync);
    (void)stream;
    unmap_file(address, SW_FAKE_POOL_MEMORY);
    return leave(result);
}

static CUresult stream_synchronize(CUstream stream) {
    const CUresult result = enter(SW_FAKE_cuStreamSynchronize);
    return leave(result != CUDA_SUCCESS ? result : (CUresult)sw_fake_run(stream));
}

/* ---- what the client's buffer manager needs besides: streams, events, memory of this process ---- */

enum { MAX_PUSHED = 8 };
static _Thread_local CUcontext pushed[MAX_PUSHED];
static _Thread_local unsigned n_pushed;
static _Thread_local CUstreamCaptureMode mode;
static struct CUstream_st *captured;

void sw_fake_capture(struct CUstream_st *stream) {
    captured = stream;
}

static CUresult push_context(CUcontext context) {
    const CUresult result = check_context(context);
    SW_ASSERT(n_pushed < MAX_PUSHED);
    if (result != CUDA_SUCCESS)
        return result;
    pushed[n_pushed++] = current;
    current = context;
    return CUDA_SUCCESS;
}

static CUresult pop_context(CUcontext *ret) {
    SW_ASSERT(n_pushed > 0);
    *ret = current;
    current = pushed[--n_pushed];
    return CUDA_SUCCESS;
}

static CUresult get_current(CUcontext *ret) {
    *ret = current;
    return CUDA_SUCCESS;
}

static CUresult exchange_mode(CUstreamCaptureMode *ret) {
    const CUstreamCaptureMode before = mode;
    mode = *ret;
    *ret = before;
    return CUDA_SUCCESS;
}

static CUresult stream_context(CUstream stream, CUcontext *ret) {
    SW_ASSERT(stream);
    *ret = &primary;
    return CUDA_SUCCESS;
}

/* Ids of streams, also of the default stream, are not used again. */
static CUstream legacy(void) {
    static CUstream stream;
    if (!stream)
        SW_ASSERT(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) == cudaSuccess);
    return stream;
}

static CUresult stream_id(CUstream stream, unsigned long long *ret) {
    SW_ASSERT(current);
    *ret = (uintptr_t)(stream ? stream : legacy());
    return CUDA_SUCCESS;
}

/* Answers like a driver in a thread in relaxed mode: captures elsewhere affect only the default stream. */
static CUresult is_capturing(CUstream stream, CUstreamCaptureStatus *ret) {
    SW_ASSERT(mode == CU_STREAM_CAPTURE_MODE_RELAXED);
    if (!stream && captured)
        return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
    *ret = stream && stream == captured ? CU_STREAM_CAPTURE_STATUS_ACTIVE : CU_STREAM_CAPTURE_STATUS_NONE;
    return CUDA_SUCCESS;
}

static CUresult create_stream(CUstream *ret, unsigned flags) {
    (void)flags; /* nothing in the fake waits for the default stream */
    SW_ASSERT(current);
    return (CUresult)cudaStreamCreateWithFlags(ret, cudaStreamNonBlocking);
}

static CUresult destroy_stream(CUstream stream) {
    return (CUresult)cudaStreamDestroy(stream);
}

static CUresult create_event(CUevent *ret, unsigned flags) {
    SW_ASSERT(current);
    return (CUresult)cudaEventCreateWithFlags(ret, flags);
}

static CUresult record_event(CUevent event, CUstream stream) {
    SW_ASSERT(current && mode == CU_STREAM_CAPTURE_MODE_RELAXED);
    return (CUresult)cudaEventRecord(event, stream ? stream : legacy());
}

static CUresult query_event(CUevent event) {
    return (CUresult)cudaEventQuery(event);
}

static CUresult synchronize_event(CUevent event) {
    return (CUresult)cudaEventSynchronize(event);
}

static CUresult destroy_event(CUevent event) {
    return (CUresult)cudaEventDestroy(event);
}

static CUresult allocate(CUdeviceptr *ret, size_t bytes) {
    void *memory = NULL;
    SW_ASSERT(current);
    const CUresult result = (CUresult)cudaMalloc(&memory, bytes);
    *ret = (uintptr_t)memory;
    return result;
}

static CUresult free_memory(CUdeviceptr address) {
    return (CUresult)cudaFree(at(address));
}

/* clang-format off */
#define DRIVER(X) \
    X(cuGetErrorName, 6000, get_error_name) X(cuDeviceGet, 2000, device_get) X(cuCtxSetCurrent, 4000, set_current) \
    X(cuCtxGetId, 12000, context_id) X(cuMemCreate, 10020, create_allocation) \
    X(cuDevicePrimaryCtxRetain, 7000, retain_primary) X(cuDevicePrimaryCtxRelease, 11000, release_primary) \
    X(cuDeviceGetUuid, 11040, device_uuid) \
    X(cuMemGetAddressRange, 3020, address_range) X(cuPointerGetAttribute, 4000, pointer_attribute) \
    X(cuIpcOpenMemHandle, 11000, ipc_open) X(cuIpcCloseMemHandle, 4010, ipc_close) \
    X(cuMemImportFromShareableHandle, 10020, import_allocation) X(cuMemRelease, 10020, release_allocation) \
    X(cuMemGetAllocationGranularity, 10020, granularity) X(cuMemAddressReserve, 10020, reserve) \
    X(cuMemAddressFree, 10020, unreserve) X(cuMemMap, 10020, map) X(cuMemUnmap, 10020, unmap) \
    X(cuMemSetAccess, 10020, set_access) X(cuMemPoolImportFromShareableHandle, 11020, import_pool) \
    X(cuMemPoolImportPointer, 11020, import_pointer) X(cuMemPoolDestroy, 11020, destroy_pool) \
    X(cuMemPoolGetAccess, 11020, pool_access) X(cuMemPoolSetAccess, 11020, set_pool_access) \
    X(cuMemFreeAsync, 11020, free_async) X(cuStreamSynchronize, 2000, stream_synchronize) \
    X(cuCtxPushCurrent, 4000, push_context) X(cuCtxPopCurrent, 4000, pop_context) \
    X(cuCtxGetCurrent, 4000, get_current) X(cuThreadExchangeStreamCaptureMode, 10010, exchange_mode) \
    X(cuStreamGetCtx, 9020, stream_context) X(cuStreamGetId, 12000, stream_id) \
    X(cuStreamIsCapturing, 10000, is_capturing) X(cuStreamCreate, 2000, create_stream) \
    X(cuStreamDestroy, 4000, destroy_stream) X(cuEventCreate, 2000, create_event) \
    X(cuEventRecord, 2000, record_event) X(cuEventQuery, 2000, query_event) \
    X(cuEventSynchronize, 2000, synchronize_event) X(cuEventDestroy, 4000, destroy_event) \
    X(cuMemAlloc, 3020, allocate) X(cuMemFree, 3020, free_memory)
/* clang-format on */

void *sw_fake_driver_entry(const char *name) {
    void *entry = NULL;
#define FIND(function, version, fake)                                                                                  \
    if (strcmp(name, #function) == 0) {                                                                                \
        const PFN_##function##_v##version typed = fake;                                                                \
        memcpy(&entry, &typed, sizeof entry); /* ISO C has no cast from function to object pointers */                 \
    }
    DRIVER(FIND)
#undef FIND
    return hides_ids && strcmp(name, "cuCtxGetId") == 0 ? NULL : entry;
}

/* ---- the driver as a library that the process has loaded ---- */

static bool is_loaded;

void sw_fake_load_driver(bool loaded) {
    is_loaded = loaded;
}

static CUresult get_address(const char *name, void **ret, int version, uint64_t flags,
                            CUdriverProcAddressQueryResult *status) {
    (void)version, (void)flags, (void)status;
    *ret = sw_fake_driver_entry(name);
    return *ret ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

void *sw_fake_dlopen(const char *name, int flags) {
    static char library;
    (void)flags;
    return is_loaded && strcmp(name, "libcuda.so.1") == 0 ? &library : NULL;
}

void *sw_fake_dlsym(void *library, const char *name) {
    const PFN_cuGetProcAddress_v12000 get = get_address;
    void *symbol = NULL;
    (void)library;
    if (strcmp(name, "cuGetProcAddress_v2") == 0)
        memcpy(&symbol, &get, sizeof symbol);
    return symbol;
}

int sw_fake_dlclose(void *library) {
    (void)library;
    return 0;
}
