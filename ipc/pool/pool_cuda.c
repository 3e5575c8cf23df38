/* pool_cuda.c - events and memory by the CUDA driver that the process has loaded. */
#include "ipc/pool/pool_gpu.h"

#include "base/alloc.h"
#include "ipc/pool/pool.h"
#include <cuda.h>
#include <cudaTypedefs.h>
#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

/* clang-format off */
/* X(member, entry point, version of its type) */
#define FUNCTIONS(X) \
    X(error_name, cuGetErrorName, 6000) X(attribute, cuPointerGetAttribute, 4000) X(device_get, cuDeviceGet, 2000) \
    X(primary_retain, cuDevicePrimaryCtxRetain, 7000) X(primary_release, cuDevicePrimaryCtxRelease, 11000) \
    X(push, cuCtxPushCurrent, 4000) X(pop, cuCtxPopCurrent, 4000) X(current, cuCtxGetCurrent, 4000) X(context_id, cuCtxGetId, 12000) \
    X(capture_mode, cuThreadExchangeStreamCaptureMode, 10010) X(stream_context, cuStreamGetCtx, 9020) \
    X(stream_id, cuStreamGetId, 12000) X(stream_captures, cuStreamIsCapturing, 10000) \
    X(stream_create, cuStreamCreate, 2000) X(stream_destroy, cuStreamDestroy, 4000) \
    X(event_create, cuEventCreate, 2000) X(event_record, cuEventRecord, 2000) X(event_query, cuEventQuery, 2000) \
    X(event_synchronize, cuEventSynchronize, 2000) X(event_destroy, cuEventDestroy, 4000) \
    X(allocate, cuMemAlloc, 3020) X(free, cuMemFree, 3020)
/* clang-format on */

enum { MAX_PLACES = 64, MAX_DEVICES = 64 };

/* A context in which buffers were used. */
struct place {
    CUcontext context;
    unsigned long long id; /* the context's, because handles are used again */
    CUstream quiet;        /* non-blocking: never has work */
    CUstream stand_in; /* blocking: replaces the default stream while a capture forbids its use (client/cuda_mark.c) */
    struct sw_list unused; /* sw_pool_event.node */
};

struct sw_pool_event {
    struct sw_list node;
    struct place *place;
    CUevent event;
    unsigned long long stream; /* its id, which no other stream of the process ever has */
    uint64_t begun, ended;     /* the event was recorded between these numbers of `clock` */
};

struct sw_pool_gpu {
    void *library;
    CUcontext home; /* where memory is allocated; NULL: nowhere */
    atomic_uint_fast64_t clock;
    pthread_mutex_t lock;           /* of places and their lists, and of contexts */
    CUcontext primary[MAX_DEVICES]; /* retained, by ordinal; NULL: not yet */
    struct place places[MAX_PLACES];
    unsigned n_places;
#define MEMBER(member, name, version) PFN_##name##_v##version member;
    FUNCTIONS(MEMBER)
#undef MEMBER
};

static int fail(const struct sw_pool_gpu *gpu, struct spillway_error *error, CUresult result, const char *call) {
    const char *name = NULL;
    (void)gpu->error_name(result, &name);
    (void)sw_pool_fail(error, -SPILLWAY_EGPU, "%s: %s", call, name ? name : "unknown CUDA error");
    if (error)
        error->cuda = (int)result;
    return -SPILLWAY_EGPU;
}

/* ---- the driver -------------------------------------------------------------------------------------------------- */

/* Returns the name of a function that the driver does not have, or NULL. */
static const char *load(struct sw_pool_gpu *gpu) {
    PFN_cuGetProcAddress_v12000 get = NULL;
    void *symbol = dlsym(gpu->library, "cuGetProcAddress_v2");
    memcpy(&get, &symbol, sizeof get); /* ISO C has no cast from object to function pointers */
    if (!get)
        return "cuGetProcAddress_v2";
#define LOAD(member, name, version)                                                                                    \
    if (get(#name, &symbol, version, CU_GET_PROC_ADDRESS_DEFAULT, NULL) != CUDA_SUCCESS || !symbol)                    \
        return #name;                                                                                                  \
    memcpy(&gpu->member, &symbol, sizeof symbol);
    FUNCTIONS(LOAD)
#undef LOAD
    return NULL;
}

/* Returns a GPU's primary context, which the process has or gets. */
static CUresult find_primary(struct sw_pool_gpu *gpu, int ordinal, CUcontext *ret) {
    CUdevice device;
    if (ordinal < 0 || ordinal >= MAX_DEVICES)
        return CUDA_ERROR_INVALID_VALUE;
    (void)pthread_mutex_lock(&gpu->lock);
    CUresult result = CUDA_SUCCESS;
    CUcontext context = gpu->primary[ordinal];
    if (!context)
        result = gpu->device_get(&device, ordinal);
    if (!context && result == CUDA_SUCCESS)
        result = gpu->primary_retain(&context, device);
    if (result == CUDA_SUCCESS)
        *ret = gpu->primary[ordinal] = context;
    (void)pthread_mutex_unlock(&gpu->lock);
    return result;
}

static int open_home(struct sw_pool_gpu *gpu, int ordinal, struct spillway_error *error) {
    const CUresult result = ordinal < 0 ? CUDA_SUCCESS : find_primary(gpu, ordinal, &gpu->home);
    return result == CUDA_SUCCESS ? 0 : fail(gpu, error, result, "GPU of the pool: cuDevicePrimaryCtxRetain");
}

int sw_pool_gpu_open(struct sw_pool_gpu **ret, int ordinal, struct spillway_error *error) {
    *ret = NULL;
    void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
    if (!library)
        return 0;
    struct sw_pool_gpu *gpu = sw_alloc(sizeof *gpu);
    if (!gpu) {
        (void)dlclose(library);
        return sw_pool_fail(error, -SPILLWAY_ENOMEM, "no memory for the CUDA driver's entry points");
    }
    gpu->library = library;
    (void)pthread_mutex_init(&gpu->lock, NULL);
    const char *missing = load(gpu);
    const int rc = missing
                       ? sw_pool_fail(error, -SPILLWAY_EMEMKIND, "the CUDA driver is too old: it has no %s", missing)
                       : open_home(gpu, ordinal, error);
    if (rc < 0)
        sw_pool_gpu_close(gpu);
    else
        *ret = gpu;
    return rc;
}

/* Returns whether the context still exists. If not, its streams and events are gone, and must not be named. */
static bool is_there(const struct sw_pool_gpu *gpu, const struct place *place) {
    unsigned long long id;
    return gpu->context_id(place->context, &id) == CUDA_SUCCESS && id == place->id;
}

static void close_place(struct sw_pool_gpu *gpu, struct place *place) {
    const bool exists = is_there(gpu, place);
    for (struct sw_list *n; (n = sw_list_take_first(&place->unused));) {
        struct sw_pool_event *event = SW_CONTAINER_OF(n, struct sw_pool_event, node);
        if (exists)
            (void)gpu->event_destroy(event->event);
        sw_free(event);
    }
    if (!exists)
        return;
    (void)gpu->stream_destroy(place->quiet);
    (void)gpu->stream_destroy(place->stand_in);
}

void sw_pool_gpu_close(struct sw_pool_gpu *gpu) {
    CUdevice device;
    if (!gpu)
        return;
    for (unsigned i = 0; i < gpu->n_places; i++)
        close_place(gpu, &gpu->places[i]);
    for (int i = 0; i < MAX_DEVICES; i++)
        if (gpu->primary[i] && gpu->device_get(&device, i) == CUDA_SUCCESS)
            (void)gpu->primary_release(device);
    (void)pthread_mutex_destroy(&gpu->lock);
    (void)dlclose(gpu->library);
    sw_free(gpu);
}

/* Makes the context the current one, and allows calls that would break captures of other threads. */
static CUresult enter(struct sw_pool_gpu *gpu, CUcontext context, CUstreamCaptureMode *ret_mode) {
    const CUresult result = gpu->push(context);
    *ret_mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    if (result == CUDA_SUCCESS)
        (void)gpu->capture_mode(ret_mode);
    return result;
}

static void leave(struct sw_pool_gpu *gpu, CUstreamCaptureMode mode) {
    CUcontext popped;
    (void)gpu->capture_mode(&mode);
    (void)gpu->pop(&popped);
}

/* ---- memory ------------------------------------------------------------------------------------------------------ */

void *sw_pool_gpu_alloc(struct sw_pool_gpu *gpu, uint64_t bytes) {
    CUstreamCaptureMode mode;
    CUdeviceptr address = 0;
    void *data;
    if (enter(gpu, gpu->home, &mode) != CUDA_SUCCESS)
        return NULL;
    if (gpu->allocate(&address, bytes) != CUDA_SUCCESS)
        address = 0;
    leave(gpu, mode);
    memcpy(&data, &address, sizeof data); /* a device address, as the caller's pointer */
    return data;
}

void sw_pool_gpu_free(struct sw_pool_gpu *gpu, void *data) {
    CUstreamCaptureMode mode;
    if (enter(gpu, gpu->home, &mode) != CUDA_SUCCESS)
        return;
    (void)gpu->free((uintptr_t)data);
    leave(gpu, mode);
}

/* ---- contexts ---------------------------------------------------------------------------------------------------- */

/* Finds a context's place or makes one. Needs gpu->lock, and the context as the current one. NULL: too many, or the
 * driver makes no stream. */
static struct place *find_place(struct sw_pool_gpu *gpu, CUcontext context) {
    for (unsigned i = 0; i < gpu->n_places; i++)
        if (gpu->places[i].context == context && is_there(gpu, &gpu->places[i]))
            return &gpu->places[i];
    struct place *place = &gpu->places[gpu->n_places];
    if (gpu->n_places == MAX_PLACES || gpu->context_id(context, &place->id) != CUDA_SUCCESS ||
        gpu->stream_create(&place->quiet, CU_STREAM_NON_BLOCKING) != CUDA_SUCCESS)
        return NULL;
    if (gpu->stream_create(&place->stand_in, CU_STREAM_DEFAULT) != CUDA_SUCCESS) {
        (void)gpu->stream_destroy(place->quiet);
        return NULL;
    }
    place->context = context;
    sw_list_init(&place->unused);
    gpu->n_places++;
    return place;
}

static struct place *find_place_locked(struct sw_pool_gpu *gpu, CUcontext context) {
    (void)pthread_mutex_lock(&gpu->lock);
    struct place *place = find_place(gpu, context);
    (void)pthread_mutex_unlock(&gpu->lock);
    return place;
}

/* The context of GPU memory; NULL: it is none. Memory of a stream-ordered pool has no context of its own. */
static CUcontext context_of(struct sw_pool_gpu *gpu, const void *data) {
    CUcontext context = NULL;
    unsigned type = 0;
    int ordinal = -1;
    if (gpu->attribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, (uintptr_t)data) != CUDA_SUCCESS ||
        type != CU_MEMORYTYPE_DEVICE)
        return NULL;
    if (gpu->attribute(&context, CU_POINTER_ATTRIBUTE_CONTEXT, (uintptr_t)data) == CUDA_SUCCESS && context)
        return context;
    (void)gpu->attribute(&ordinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, (uintptr_t)data);
    return find_primary(gpu, ordinal, &context) == CUDA_SUCCESS ? context : NULL;
}

struct CUstream_st *sw_pool_gpu_stream(struct sw_pool_gpu *gpu, const void *data) {
    CUstreamCaptureMode mode;
    const CUcontext context = gpu ? context_of(gpu, data) : NULL;
    if (!context || enter(gpu, context, &mode) != CUDA_SUCCESS)
        return NULL;
    const struct place *place = find_place_locked(gpu, context);
    leave(gpu, mode);
    return place ? place->quiet : NULL;
}

/* ---- events ------------------------------------------------------------------------------------------------------ */

/* Needs the context as the current one. */
static struct sw_pool_event *take_event(struct sw_pool_gpu *gpu, CUcontext context) {
    (void)pthread_mutex_lock(&gpu->lock);
    struct place *place = find_place(gpu, context);
    struct sw_list *node = place ? sw_list_take_first(&place->unused) : NULL;
    (void)pthread_mutex_unlock(&gpu->lock);
    if (node || !place)
        return node ? SW_CONTAINER_OF(node, struct sw_pool_event, node) : NULL;
    struct sw_pool_event *event = sw_alloc(sizeof *event);
    if (!event || gpu->event_create(&event->event, CU_EVENT_DISABLE_TIMING) != CUDA_SUCCESS) {
        sw_free(event);
        return NULL;
    }
    sw_list_init(&event->node);
    event->place = place;
    return event;
}

static void put_event(struct sw_pool_gpu *gpu, struct sw_pool_event *event) {
    (void)pthread_mutex_lock(&gpu->lock);
    sw_list_append(&event->place->unused, &event->node);
    (void)pthread_mutex_unlock(&gpu->lock);
}

/* Records in the stream, or in the stand-in of a default stream that a capture elsewhere forbids. */
static int record(struct sw_pool_gpu *gpu, struct sw_pool_event *event, CUstream stream, struct spillway_error *error) {
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    CUresult result = gpu->stream_captures(stream, &status);
    if (result == CUDA_ERROR_STREAM_CAPTURE_IMPLICIT)
        stream = event->place->stand_in;
    else if (result != CUDA_SUCCESS)
        return fail(gpu, error, result, "stream of an unpin: cuStreamIsCapturing");
    else if (status != CU_STREAM_CAPTURE_STATUS_NONE)
        return sw_pool_fail(error, -SPILLWAY_EINVAL,
                            "the stream is being captured: keep the buffer pinned as long as the "
                            "graph may run");
    result = gpu->stream_id(stream, &event->stream);
    event->begun = atomic_fetch_add(&gpu->clock, 1);
    if (result == CUDA_SUCCESS)
        result = gpu->event_record(event->event, stream);
    event->ended = atomic_fetch_add(&gpu->clock, 1);
    return result == CUDA_SUCCESS ? 0 : fail(gpu, error, result, "stream of an unpin: cuEventRecord");
}

static bool is_default(CUstream stream) {
    return !stream || stream == CU_STREAM_LEGACY || stream == CU_STREAM_PER_THREAD;
}

/* The default stream belongs to the thread's context. Without one it belongs to the memory's context. */
static CUresult find_context(struct sw_pool_gpu *gpu, CUstream stream, const void *memory, CUcontext *ret) {
    if (!is_default(stream))
        return gpu->stream_context(stream, ret);
    if (gpu->current(ret) != CUDA_SUCCESS || !*ret)
        *ret = context_of(gpu, memory);
    return CUDA_SUCCESS;
}

int sw_pool_event_record(struct sw_pool_gpu *gpu, struct CUstream_st *stream, const void *memory,
                         struct sw_pool_event **ret, struct spillway_error *error) {
    CUstreamCaptureMode mode;
    CUcontext context = NULL;
    *ret = NULL;
    CUresult result = gpu ? find_context(gpu, stream, memory, &context) : CUDA_SUCCESS;
    if (!context && result == CUDA_SUCCESS)
        return 0; /* host memory, in a thread without CUDA */
    if (result == CUDA_SUCCESS)
        result = enter(gpu, context, &mode);
    if (result != CUDA_SUCCESS)
        return fail(gpu, error, result, "context of a stream");
    struct sw_pool_event *event = take_event(gpu, context);
    const int rc =
        event ? record(gpu, event, stream, error) : sw_pool_fail(error, -SPILLWAY_ENOMEM, "no memory for an event");
    leave(gpu, mode);
    if (rc == 0)
        *ret = event;
    else if (event)
        put_event(gpu, event);
    return rc;
}

void sw_pool_event_add(struct sw_list *events, struct sw_pool_event *event, struct sw_list *replaced) {
    if (!event)
        return;
    for (struct sw_list *n = events->next, *next; n != events; n = next) {
        struct sw_pool_event *old = SW_CONTAINER_OF(n, struct sw_pool_event, node);
        next = n->next;
        if (old->stream != event->stream || old->ended > event->begun) /* it is not known which was recorded first */
            continue;
        sw_list_remove(n);
        sw_list_append(replaced, n);
    }
    sw_list_append(events, &event->node);
}

/* An event that cannot be asked counts as passed: its context is dead or gone, and so is its work. */
static bool is_passed(struct sw_pool_gpu *gpu, const struct sw_pool_event *event) {
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    if (!is_there(gpu, event->place))
        return true;
    (void)gpu->capture_mode(&mode);
    const CUresult result = gpu->event_query(event->event);
    (void)gpu->capture_mode(&mode);
    return result != CUDA_ERROR_NOT_READY;
}

bool sw_pool_events_passed(struct sw_pool_gpu *gpu, struct sw_list *events) {
    while (!sw_list_empty(events)) {
        struct sw_pool_event *event = SW_CONTAINER_OF(events->next, struct sw_pool_event, node);
        if (!is_passed(gpu, event))
            return false;
        sw_list_remove(&event->node);
        put_event(gpu, event);
    }
    return true;
}

void sw_pool_events_await(struct sw_pool_gpu *gpu, struct sw_list *events) {
    for (struct sw_list *n = events->next; n != events; n = n->next) {
        const struct sw_pool_event *event = SW_CONTAINER_OF(n, struct sw_pool_event, node);
        if (is_there(gpu, event->place))
            (void)gpu->event_synchronize(event->event);
    }
    sw_pool_events_put(gpu, events);
}

void sw_pool_events_put(struct sw_pool_gpu *gpu, struct sw_list *events) {
    for (struct sw_list *n; (n = sw_list_take_first(events));)
        put_event(gpu, SW_CONTAINER_OF(n, struct sw_pool_event, node));
}
