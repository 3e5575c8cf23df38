/* memory_cuda.c - GPU memory to handles that another process can open, by the CUDA driver that the process has loaded.
 *
 * The driver is never loaded, initialised or linked here: a process that holds a GPU pointer has done so. Entry points
 * come from cuGetProcAddress with the version that their type in cudaTypedefs.h names. Every call that needs a context
 * runs in the pointer's or the stream's own, pushed for the call and popped again. */
#include "ipc/client/memory.h"

#include "base/alloc.h"
#include "base/list.h"
#include <cuda.h>
#include <cudaTypedefs.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* clang-format off */
/* X(member, entry point, version of its type) */
#define DRIVER_FUNCTIONS(X) \
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
    X(stream_synchronize, cuStreamSynchronize, 2000) X(event_create, cuEventCreate, 2000) \
    X(event_record, cuEventRecord, 2000) X(event_destroy, cuEventDestroy, 4000) \
    X(event_handle, cuIpcGetEventHandle, 4010) X(event_query, cuEventQuery, 2000) \
    X(stream_create, cuStreamCreate, 2000) X(stream_destroy, cuStreamDestroy, 4000) \
    X(allocate, cuMemAlloc, 3020) X(free, cuMemFree, 3020) X(copy, cuMemcpyAsync, 4000)
/* clang-format on */

enum { MAX_DEVICES = 64 };

struct sw_cuda {
    void *library;
    struct sw_list events;          /* sw_cuda_event.node: those not in use, the last used first, then the others */
    CUcontext primary[MAX_DEVICES]; /* retained by ordinal; NULL: not yet */
#define DRIVER_MEMBER(member, name, version) PFN_##name##_v##version member;
    DRIVER_FUNCTIONS(DRIVER_MEMBER)
#undef DRIVER_MEMBER
};

struct sw_cuda_event {
    struct sw_list node;
    bool in_use; /* by an operation that has not ended */
    struct sw_cuda *cuda;
    CUcontext context;
    CUevent event;
    CUipcEventHandle handle;
};

_Static_assert(sizeof(CUipcEventHandle) == SW_MEM_HANDLE_BYTES, "handles fit the wire's fields");
_Static_assert(sizeof(CUipcMemHandle) == SW_MEM_HANDLE_BYTES, "handles fit the wire's fields");
_Static_assert(sizeof(CUmemPoolPtrExportData) == SW_MEM_HANDLE_BYTES, "handles fit the wire's fields");
_Static_assert(sizeof(CUuuid) == SW_DEVICE_UUID_BYTES, "handles fit the wire's fields");

/* What the driver says about a pointer. */
struct pointer {
    unsigned type; /* CUmemorytype; 0: not the driver's */
    unsigned managed, legacy_ipc;
    int ordinal;
    CUcontext context;
    CUdeviceptr range;
    size_t range_bytes;
    CUmemoryPool pool;
};

int sw_cuda_built(void) {
    return 1;
}

static int fail(const struct sw_cuda *cuda, struct sw_err *err, int code, CUresult result, const char *fact,
                const char *call) {
    const char *name = NULL;
    (void)cuda->error_name(result, &name);
    (void)sw_err_set(err, code, SW_SCOPE_REQUEST, "%s: %s", fact, name ? name : "unknown CUDA error");
    (void)sw_err_detail(err, "%s", call);
    if (err)
        err->cuda = (int)result;
    return code;
}

static int load(struct sw_cuda **ret, void *library, struct sw_err *err) {
    PFN_cuGetProcAddress_v12000 get = NULL;
    void *symbol = dlsym(library, "cuGetProcAddress_v2");
    memcpy(&get, &symbol, sizeof get); /* ISO C has no cast from object to function pointers */
    struct sw_cuda *cuda = sw_alloc(sizeof *cuda);
    if (!cuda)
        return sw_err_set(err, -SW_ENOMEM, SW_SCOPE_REQUEST, "no memory for the CUDA driver's entry points");
    sw_list_init(&cuda->events);
    const char *missing = get ? NULL : "cuGetProcAddress_v2";
#define DRIVER_LOAD(member, name, version)                                                                             \
    if (!missing && (get(#name, &symbol, version, CU_GET_PROC_ADDRESS_DEFAULT, NULL) != CUDA_SUCCESS || !symbol))      \
        missing = #name;                                                                                               \
    memcpy(&cuda->member, &symbol, sizeof symbol);
    DRIVER_FUNCTIONS(DRIVER_LOAD)
#undef DRIVER_LOAD
    if (missing) {
        sw_free(cuda);
        return sw_err_set(err, -SW_EMEMKIND, SW_SCOPE_REQUEST, "the CUDA driver is too old: it has no %s", missing);
    }
    cuda->library = library;
    *ret = cuda;
    return 0;
}

/* Returns 1 with the driver at hand, 0 in a process that has not loaded it. */
static int find_driver(struct sw_cuda **cuda, struct sw_err *err) {
    if (*cuda)
        return 1;
    void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
    if (!library)
        return 0;
    const int rc = load(cuda, library, err);
    if (rc < 0)
        (void)dlclose(library);
    return rc < 0 ? rc : 1;
}

void sw_cuda_free(struct sw_cuda *cuda) {
    if (!cuda)
        return;
    for (struct sw_list *n; (n = sw_list_take_first(&cuda->events));) {
        struct sw_cuda_event *e = SW_CONTAINER_OF(n, struct sw_cuda_event, node);
        (void)cuda->event_destroy(e->event);
        sw_free(e);
    }
    for (int i = 0; i < MAX_DEVICES; i++) {
        CUdevice device;
        if (cuda->primary[i] && cuda->device_get(&device, i) == CUDA_SUCCESS)
            (void)cuda->primary_release(device);
    }
    (void)dlclose(cuda->library);
    sw_free(cuda);
}

/* What the driver says about an address; an attribute that does not apply stays zero. False: it failed. */
static bool look_up(struct sw_cuda *cuda, CUdeviceptr address, struct pointer *ret) {
    CUpointer_attribute names[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
                                   CU_POINTER_ATTRIBUTE_IS_MANAGED,
                                   CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE,
                                   CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
                                   CU_POINTER_ATTRIBUTE_CONTEXT,
                                   CU_POINTER_ATTRIBUTE_RANGE_START_ADDR,
                                   CU_POINTER_ATTRIBUTE_RANGE_SIZE,
                                   CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE};
    memset(ret, 0, sizeof *ret);
    void *values[] = {&ret->type,    &ret->managed, &ret->legacy_ipc,  &ret->ordinal,
                      &ret->context, &ret->range,   &ret->range_bytes, &ret->pool};
    return cuda->attributes(sizeof names / sizeof *names, names, values, address) == CUDA_SUCCESS;
}

static bool is_gpu(const struct pointer *p) {
    return p->type == CU_MEMORYTYPE_DEVICE || p->managed;
}

/* The context to work in: the pointer's; for memory that has none the current one, if it is on the same device, else
 * the device's primary context, retained until the connection ends. */
static int find_context(struct sw_cuda *cuda, struct pointer *p, struct sw_err *err) {
    CUdevice device, current_device;
    CUcontext current;
    if (p->context)
        return 0;
    CUresult result = cuda->device_get(&device, p->ordinal);
    if (result != CUDA_SUCCESS || p->ordinal < 0 || p->ordinal >= MAX_DEVICES)
        return fail(cuda, err, -SW_EGPU, result, "device of the memory", "cuDeviceGet");
    if (cuda->current(&current) == CUDA_SUCCESS && current && cuda->current_device(&current_device) == CUDA_SUCCESS &&
        current_device == device) {
        p->context = current;
        return 0;
    }
    if (!cuda->primary[p->ordinal]) {
        result = cuda->primary_retain(&cuda->primary[p->ordinal], device);
        if (result != CUDA_SUCCESS) {
            cuda->primary[p->ordinal] = NULL;
            return fail(cuda, err, -SW_EGPU, result, "context of the memory", "cuDevicePrimaryCtxRetain");
        }
    }
    p->context = cuda->primary[p->ordinal];
    return 0;
}

/* The driver does not say so when an export failed for want of a descriptor. */
static bool out_of_descriptors(void) {
    const int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    if (fd >= 0)
        (void)close(fd);
    return fd < 0 && (errno == EMFILE || errno == ENFILE);
}

/* A failed call that should have made a descriptor. */
static int fail_export(const struct sw_cuda *cuda, struct sw_err *err, CUresult result, const char *fact,
                       const char *call) {
    if (out_of_descriptors())
        return fail(cuda, err, -SW_ELIMIT, result, "no descriptor is left for a part of the memory", call);
    return fail(cuda, err, -SW_EMEMKIND, result, fact, call);
}

static int export_ipc(struct sw_cuda *cuda, struct sw_export *ret, CUdeviceptr address, struct sw_err *err) {
    CUdeviceptr base;
    size_t bytes;
    CUipcMemHandle handle;
    CUresult result = cuda->address_range(&base, &bytes, address);
    if (result != CUDA_SUCCESS)
        return fail(cuda, err, -SW_EMEMKIND, result, "extent of the allocation", "cuMemGetAddressRange");
    result = cuda->ipc_handle(&handle, base);
    if (result != CUDA_SUCCESS)
        return fail(cuda, err, -SW_EMEMKIND, result, "memory was not allocated in a way that can be shared",
                    "cuIpcGetMemHandle");
    ret->kind = SW_MEM_CUDA_IPC;
    memcpy(ret->handle, &handle, sizeof handle);
    ret->bytes = bytes;
    ret->offset = address - base;
    return 0;
}

static int export_pool(struct sw_cuda *cuda, struct sw_export *ret, const struct pointer *p, CUdeviceptr address,
                       struct sw_err *err) {
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
        return fail(cuda, err, -SW_EMEMKIND, result, "allocation of a memory pool", "cuMemPoolExportPointer");
    ret->kind = SW_MEM_CUDA_POOL;
    memcpy(ret->handle, &data, sizeof data);
    ret->bytes = ret->part_bytes[0] = p->range_bytes;
    ret->offset = address - p->range;
    return 0;
}

/* Visits the physical allocations under [address, end) in order; a gap ends the walk. Returns how many there are. */
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
    void *address; /* an address of the device in the disguise that this call wants */
    memcpy(&address, &base, sizeof address);
    CUresult result = cuda->retain_allocation(&allocation, address);
    if (result != CUDA_SUCCESS)
        return fail(cuda, err, -SW_EMEMKIND, result, "memory was not allocated in a way that can be shared",
                    "cuMemRetainAllocationHandle");
    int rc = 0;
    result = cuda->allocation_properties(&properties, allocation);
    if (result != CUDA_SUCCESS)
        rc = fail(cuda, err, -SW_EMEMKIND, result, "properties of the allocation",
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

/* Memory that the legacy call can share says so; of the rest, what is no pool's is VMM, or nothing. */
static int export_memory(struct sw_cuda *cuda, struct sw_export *ret, const struct pointer *p, CUdeviceptr address,
                         uint64_t bytes, struct sw_err *err) {
    CUdevice device;
    CUuuid uuid;
    CUresult result = cuda->device_get(&device, p->ordinal);
    if (result == CUDA_SUCCESS)
        result = cuda->device_uuid(&uuid, device);
    if (result != CUDA_SUCCESS)
        return fail(cuda, err, -SW_EGPU, result, "device of the memory", "cuDeviceGetUuid");
    memcpy(ret->device_uuid, &uuid, sizeof uuid);
    if (p->managed)
        return sw_err_set(err, -SW_EMEMKIND, SW_SCOPE_REQUEST,
                          "managed memory cannot be shared; use cudaMalloc, cuMemCreate or an exportable pool");
    int rc;
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

/* True if the daemon may have opened another event of this handle: one whose context the process has destroyed. */
static bool had_handle(const struct sw_cuda *cuda, const CUipcEventHandle *handle) {
    for (const struct sw_list *n = cuda->events.next; n != &cuda->events; n = n->next)
        if (memcmp(&SW_CONTAINER_OF(n, struct sw_cuda_event, node)->handle, handle, sizeof *handle) == 0)
            return true;
    return false;
}

/* NULL if the driver cannot share events. */
static struct sw_cuda_event *new_event(struct sw_cuda *cuda, CUcontext context) {
    struct sw_cuda_event *e = sw_alloc(sizeof *e);
    if (!e || cuda->event_create(&e->event, CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING) != CUDA_SUCCESS) {
        sw_free(e);
        return NULL;
    }
    if (cuda->event_handle(&e->handle, e->event) != CUDA_SUCCESS || had_handle(cuda, &e->handle)) {
        (void)cuda->event_destroy(e->event);
        sw_free(e);
        return NULL;
    }
    e->cuda = cuda;
    e->context = context;
    sw_list_append(&cuda->events, &e->node);
    return e;
}

/* An event of the current context, from the pool or new: the one that was used last, since the daemon keeps open what
 * it has seen of late. NULL if there is none to be had. */
static struct sw_cuda_event *acquire_event(struct sw_cuda *cuda, CUcontext context) {
    struct sw_cuda_event *e = NULL;
    for (struct sw_list *n = cuda->events.next; n != &cuda->events && !e; n = n->next) {
        struct sw_cuda_event *candidate = SW_CONTAINER_OF(n, struct sw_cuda_event, node);
        if (candidate->in_use)
            break;
        if (candidate->context == context)
            e = candidate;
    }
    if (!e && !(e = new_event(cuda, context)))
        return NULL;
    e->in_use = true;
    sw_list_remove(&e->node);
    sw_list_append(&cuda->events, &e->node);
    return e;
}

void sw_cuda_event_release(struct sw_cuda_event *event) {
    if (!event)
        return;
    event->in_use = false;
    sw_list_remove(&event->node);
    sw_list_prepend(&event->cuda->events, &event->node);
}

const uint8_t *sw_cuda_event_handle(const struct sw_cuda_event *event) {
    return (const uint8_t *)&event->handle;
}

/* True if nothing that was queued before this call is still to be waited for. Only non-blocking streams are asked: what
 * others wait for besides cannot be found out, of the default stream, or only by a call that breaks a capture which
 * goes on elsewhere. The query itself breaks none in relaxed mode. */
static bool is_idle(const struct sw_cuda *cuda, CUstream stream) {
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    unsigned flags;
    if (!stream || stream == CU_STREAM_LEGACY || stream == CU_STREAM_PER_THREAD ||
        cuda->stream_flags(stream, &flags) != CUDA_SUCCESS || !(flags & CU_STREAM_NON_BLOCKING) ||
        cuda->capture_mode(&mode) != CUDA_SUCCESS)
        return false;
    const bool idle = cuda->stream_query(stream) == CUDA_SUCCESS;
    (void)cuda->capture_mode(&mode);
    return idle;
}

/* A captured record would be no record. */
static bool is_captured(const struct sw_cuda *cuda, CUstream stream) {
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    return cuda->stream_captures(stream, &status) == CUDA_SUCCESS && status != CU_STREAM_CAPTURE_STATUS_NONE;
}

/* Marks the stream's present end by an event that the daemon can wait for. Where none can be shared, or the stream is
 * on another device than the memory, the stream is waited for here. */
static int mark_stream(struct sw_cuda *cuda, struct sw_export *ret, CUcontext context, const struct pointer *p,
                       CUstream stream, struct sw_err *err) {
    CUdevice stream_device, device;
    if (is_captured(cuda, stream))
        return sw_err_set(err, -SW_EINVAL, SW_SCOPE_REQUEST,
                          "the stream is being captured: nothing would be waited for");
    if (is_idle(cuda, stream))
        return 0;
    const bool same = cuda->current_device(&stream_device) == CUDA_SUCCESS &&
                      cuda->device_get(&device, p->ordinal) == CUDA_SUCCESS && device == stream_device;
    ret->event = same ? acquire_event(cuda, context) : NULL;
    const CUresult result =
        ret->event ? cuda->event_record(ret->event->event, stream) : cuda->stream_synchronize(stream);
    if (result == CUDA_SUCCESS)
        return 0;
    return fail(cuda, err, -SW_EGPU, result, "order with the caller's stream",
                ret->event ? "cuEventRecord" : "cuStreamSynchronize");
}

/* Runs mark_stream in the stream's context; the default streams belong to whatever context is current. */
static int order(struct sw_cuda *cuda, struct sw_export *ret, const struct pointer *p, CUstream stream,
                 struct sw_err *err) {
    CUcontext context = p->context, popped;
    CUresult result = CUDA_SUCCESS;
    if (stream && stream != CU_STREAM_LEGACY && stream != CU_STREAM_PER_THREAD)
        result = cuda->stream_context(stream, &context);
    if (result != CUDA_SUCCESS)
        return fail(cuda, err, -SW_EGPU, result, "the caller's stream", "cuStreamGetCtx");
    result = cuda->push(context);
    if (result != CUDA_SUCCESS)
        return fail(cuda, err, -SW_EGPU, result, "context of the caller's stream", "cuCtxPushCurrent");
    const int rc = mark_stream(cuda, ret, context, p, stream, err);
    (void)cuda->pop(&popped);
    return rc;
}

int sw_cuda_export(struct sw_export *ret, struct sw_cuda **cuda, const void *data, uint64_t bytes, struct sw_err *err) {
    const CUdeviceptr address = (uintptr_t)data;
    struct pointer p;
    CUcontext popped;
    int rc = find_driver(cuda, err);
    if (rc <= 0 || !look_up(*cuda, address, &p) || !is_gpu(&p))
        return rc < 0 ? rc : 0;
    if ((rc = find_context(*cuda, &p, err)) < 0)
        return rc;
    const CUresult result = (*cuda)->push(p.context);
    if (result != CUDA_SUCCESS)
        return fail(*cuda, err, -SW_EGPU, result, "context of the memory", "cuCtxPushCurrent");
    rc = export_memory(*cuda, ret, &p, address, bytes, err);
    (void)(*cuda)->pop(&popped);
    return rc < 0 ? rc : 1;
}

int sw_cuda_order(struct sw_export *e, struct sw_cuda **cuda, const void *data, struct CUstream_st *stream,
                  struct sw_err *err) {
    struct pointer p;
    if (!*cuda || !look_up(*cuda, (uintptr_t)data, &p) || !p.type)
        return sw_err_set(err, -SW_EMEMKIND, SW_SCOPE_REQUEST, "%p is no GPU memory any more; was it freed?", data);
    const int rc = find_context(*cuda, &p, err);
    return rc < 0 ? rc : order(*cuda, e, &p, stream, err);
}

/* ---- memory of the library's own, for copies --------------------------------------------------------------------- */

struct sw_cuda_block {
    struct sw_cuda *cuda;
    CUcontext context;
    CUdeviceptr address;
    CUstream stream;
};

/* Where the memory around the address ends. That of pools lies side by side and is not one for that; a virtual range
 * may have several allocations in it. */
static CUdeviceptr memory_end(struct sw_cuda *cuda, const struct pointer *p, CUdeviceptr address, uint64_t bytes) {
    CUdeviceptr base, end = address;
    size_t range_bytes;
    if ((p->pool || p->managed) && p->range_bytes)
        return p->range + p->range_bytes;
    while (end - address < bytes && cuda->address_range(&base, &range_bytes, end) == CUDA_SUCCESS)
        end = base + range_bytes;
    return end;
}

int sw_cuda_locate(struct sw_cuda **cuda, const void *data, uint64_t bytes, int *ret_gpu, struct sw_err *err) {
    const CUdeviceptr address = (uintptr_t)data;
    struct pointer p;
    CUcontext popped;
    int rc = find_driver(cuda, err);
    if (rc <= 0 || !look_up(*cuda, address, &p) || !p.type)
        return rc < 0 ? rc : SW_CUDA_UNKNOWN;
    if (!is_gpu(&p))
        return SW_CUDA_PAGE_LOCKED;
    if ((rc = find_context(*cuda, &p, err)) < 0)
        return rc;
    const CUresult result = (*cuda)->push(p.context);
    if (result != CUDA_SUCCESS)
        return fail(*cuda, err, -SW_EGPU, result, "context of the memory", "cuCtxPushCurrent");
    const CUdeviceptr end = memory_end(*cuda, &p, address, bytes);
    (void)(*cuda)->pop(&popped);
    *ret_gpu = p.ordinal;
    if (bytes > end - address)
        return sw_err_set(err, -SW_ERANGE, SW_SCOPE_REQUEST, "%llu bytes, but the allocation ends after %llu",
                          (unsigned long long)bytes, (unsigned long long)(end - address));
    return SW_CUDA_GPU;
}

/* In the block's context. */
static int fill_block(struct sw_cuda_block *block, uint64_t bytes, int gpu, struct sw_err *err) {
    struct sw_cuda *cuda = block->cuda;
    CUresult result = cuda->allocate(&block->address, bytes);
    if (result != CUDA_SUCCESS) {
        char fact[96];
        block->address = 0;
        (void)snprintf(fact, sizeof fact, "GPU %d has no room for the staging arena of %llu bytes", gpu,
                       (unsigned long long)bytes);
        return fail(cuda, err, result == CUDA_ERROR_OUT_OF_MEMORY ? -SW_ENOMEM : -SW_EGPU, result, fact, "cuMemAlloc");
    }
    result = cuda->stream_create(&block->stream, CU_STREAM_NON_BLOCKING);
    if (result == CUDA_SUCCESS)
        return 0;
    block->stream = NULL;
    return fail(cuda, err, -SW_EGPU, result, "stream for the staging arena", "cuStreamCreate");
}

int sw_cuda_block_new(struct sw_cuda_block **ret, struct sw_cuda *cuda, const void *near, uint64_t bytes,
                      struct sw_err *err) {
    struct pointer p;
    CUcontext popped;
    if (!look_up(cuda, (uintptr_t)near, &p) || !is_gpu(&p))
        return sw_err_set(err, -SW_EMEMKIND, SW_SCOPE_REQUEST, "%p is no GPU memory any more; was it freed?", near);
    int rc = find_context(cuda, &p, err);
    if (rc < 0)
        return rc;
    const CUresult result = cuda->push(p.context);
    if (result != CUDA_SUCCESS)
        return fail(cuda, err, -SW_EGPU, result, "context of the memory", "cuCtxPushCurrent");
    struct sw_cuda_block *block = sw_alloc(sizeof *block);
    if (block) {
        *block = (struct sw_cuda_block){.cuda = cuda, .context = p.context};
        rc = fill_block(block, bytes, p.ordinal, err);
    } else {
        rc = sw_err_set(err, -SW_ENOMEM, SW_SCOPE_REQUEST, "no memory for a staging arena");
    }
    (void)cuda->pop(&popped);
    if (rc < 0)
        sw_cuda_block_free(block);
    else
        *ret = block;
    return rc;
}

uint8_t *sw_cuda_block_data(const struct sw_cuda_block *block) {
    uint8_t *data; /* an address of the device in the disguise of the host's */
    memcpy(&data, &block->address, sizeof data);
    return data;
}

struct CUstream_st *sw_cuda_block_stream(const struct sw_cuda_block *block) {
    return block->stream;
}

int sw_cuda_block_copy(struct sw_cuda_block *block, void *to, const void *from, uint64_t bytes, struct sw_err *err) {
    struct sw_cuda *cuda = block->cuda;
    CUcontext popped;
    if (!bytes)
        return 0;
    CUresult result = cuda->push(block->context);
    if (result != CUDA_SUCCESS)
        return fail(cuda, err, -SW_EGPU, result, "context of the staging arena", "cuCtxPushCurrent");
    result = cuda->copy((uintptr_t)to, (uintptr_t)from, bytes, block->stream);
    (void)cuda->pop(&popped);
    return result == CUDA_SUCCESS
               ? 0
               : fail(cuda, err, -SW_EGPU, result, "copy between memory and staging arena", "cuMemcpyAsync");
}

void sw_cuda_block_free(struct sw_cuda_block *block) {
    CUcontext popped;
    if (!block)
        return;
    struct sw_cuda *cuda = block->cuda;
    if (cuda->push(block->context) == CUDA_SUCCESS) { /* else the context has gone, and all of this with it */
        if (block->stream) {
            (void)cuda->stream_synchronize(block->stream);
            (void)cuda->stream_destroy(block->stream);
        }
        if (block->address)
            (void)cuda->free(block->address);
        (void)cuda->pop(&popped);
    }
    sw_free(block);
}

bool sw_cuda_event_is_beside(const struct sw_cuda_event *event, const struct sw_cuda_event *other) {
    return event->context == other->context;
}

int sw_cuda_event_reached(const struct sw_cuda_event *event, struct sw_err *err) {
    const struct sw_cuda *cuda = event->cuda;
    CUcontext popped;
    CUresult result = cuda->push(event->context);
    if (result != CUDA_SUCCESS)
        return fail(cuda, err, -SW_EGPU, result, "context of the caller's stream", "cuCtxPushCurrent");
    result = cuda->event_query(event->event);
    (void)cuda->pop(&popped);
    if (result == CUDA_ERROR_NOT_READY)
        return 0;
    return result == CUDA_SUCCESS ? 1 : fail(cuda, err, -SW_EGPU, result, "work on the stream", "cuEventQuery");
}
