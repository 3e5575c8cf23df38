/* cuda_event.c - order with the caller's stream, by interprocess events that the daemon waits for. */
#include "ipc/client/cuda_driver.h"

#include "base/alloc.h"
#include <string.h>

struct sw_cuda_event {
    struct sw_list node;
    bool in_use; /* by an operation that has not ended */
    struct sw_cuda *cuda;
    CUcontext context;
    CUevent event;
    CUipcEventHandle handle;
};

_Static_assert(sizeof(CUipcEventHandle) == SW_MEM_HANDLE_BYTES, "handles fit the wire's fields");

void sw_cuda_free_events(struct sw_cuda *cuda) {
    for (struct sw_list *n; (n = sw_list_take_first(&cuda->events));) {
        struct sw_cuda_event *e = SW_CONTAINER_OF(n, struct sw_cuda_event, node);
        (void)cuda->event_destroy(e->event);
        sw_free(e);
    }
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
static int mark_stream(struct sw_cuda *cuda, struct sw_export *ret, CUcontext context, const struct sw_cuda_pointer *p,
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
    return sw_cuda_fail(cuda, err, -SW_EGPU, result, "order with the caller's stream",
                        ret->event ? "cuEventRecord" : "cuStreamSynchronize");
}

/* Runs mark_stream in the stream's context; the default streams belong to whatever context is current. */
static int order(struct sw_cuda *cuda, struct sw_export *ret, const struct sw_cuda_pointer *p, CUstream stream,
                 struct sw_err *err) {
    CUcontext context = p->context, popped;
    CUresult result = CUDA_SUCCESS;
    if (stream && stream != CU_STREAM_LEGACY && stream != CU_STREAM_PER_THREAD)
        result = cuda->stream_context(stream, &context);
    if (result != CUDA_SUCCESS)
        return sw_cuda_fail(cuda, err, -SW_EGPU, result, "the caller's stream", "cuStreamGetCtx");
    result = cuda->push(context);
    if (result != CUDA_SUCCESS)
        return sw_cuda_fail(cuda, err, -SW_EGPU, result, "context of the caller's stream", "cuCtxPushCurrent");
    const int rc = mark_stream(cuda, ret, context, p, stream, err);
    (void)cuda->pop(&popped);
    return rc;
}

int sw_cuda_order(struct sw_export *e, struct sw_cuda **cuda, const void *data, struct CUstream_st *stream,
                  struct sw_err *err) {
    struct sw_cuda_pointer p;
    if (!*cuda || !sw_cuda_look_up(*cuda, (uintptr_t)data, &p) || !p.type)
        return sw_err_set(err, -SW_EMEMKIND, SW_SCOPE_REQUEST, "%p is no GPU memory any more; was it freed?", data);
    const int rc = sw_cuda_find_context(*cuda, &p, err);
    return rc < 0 ? rc : order(*cuda, e, &p, stream, err);
}

bool sw_cuda_event_is_beside(const struct sw_cuda_event *event, const struct sw_cuda_event *other) {
    return event->context == other->context;
}

int sw_cuda_event_reached(const struct sw_cuda_event *event, struct sw_err *err) {
    const struct sw_cuda *cuda = event->cuda;
    CUcontext popped;
    CUresult result = cuda->push(event->context);
    if (result != CUDA_SUCCESS)
        return sw_cuda_fail(cuda, err, -SW_EGPU, result, "context of the caller's stream", "cuCtxPushCurrent");
    result = cuda->event_query(event->event);
    (void)cuda->pop(&popped);
    if (result == CUDA_ERROR_NOT_READY)
        return 0;
    return result == CUDA_SUCCESS ? 1 : sw_cuda_fail(cuda, err, -SW_EGPU, result, "work on the stream", "cuEventQuery");
}
