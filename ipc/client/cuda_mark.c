/* cuda_mark.c - orders operations behind the caller's stream: the stream writes a mark (mark.h) after its queued work.
 */
#include "ipc/client/cuda_driver.h"

#include "base/alloc.h"
#include <dlfcn.h>

/* ---- which stream ------------------------------------------------------------------------------------------------ */

static bool is_default(CUstream stream) {
    return !stream || stream == CU_STREAM_LEGACY || stream == CU_STREAM_PER_THREAD;
}

/* Returns whether the stream has no work to wait for. Asks only non-blocking streams. The work that the default stream
 * waits for cannot be found out, and for other blocking streams the query would break a capture in another thread. */
static bool is_idle(const struct sw_cuda *cuda, CUstream stream) {
    unsigned flags;
    return !is_default(stream) && cuda->stream_flags(stream, &flags) == CUDA_SUCCESS &&
           (flags & CU_STREAM_NON_BLOCKING) && cuda->stream_query(stream) == CUDA_SUCCESS;
}

/* Gets a blocking stream of the library's own in this context. NULL: the driver makes none. */
static struct sw_cuda_stand_in *find_stand_in(struct sw_cuda *cuda, CUcontext context) {
    for (struct sw_list *n = cuda->stand_ins.next; n != &cuda->stand_ins; n = n->next) {
        struct sw_cuda_stand_in *found = SW_CONTAINER_OF(n, struct sw_cuda_stand_in, node);
        if (found->context == context)
            return found;
    }
    struct sw_cuda_stand_in *made = sw_alloc(sizeof *made);
    if (!made || cuda->stream_create(&made->stream, CU_STREAM_DEFAULT) != CUDA_SUCCESS) {
        sw_free(made);
        return NULL;
    }
    made->context = context;
    sw_list_append(&cuda->stand_ins, &made->node);
    return made;
}

static void free_stand_ins(struct sw_cuda *cuda) {
    for (struct sw_list *n; (n = sw_list_take_first(&cuda->stand_ins));) {
        struct sw_cuda_stand_in *s = SW_CONTAINER_OF(n, struct sw_cuda_stand_in, node);
        (void)cuda->stream_destroy(s->stream);
        sw_free(s);
    }
}

/* Chooses the stream that writes the mark. While a blocking stream is captured, using the default stream would break
 * the capture. A blocking stream of the library's own waits for all work of the default stream, which gets no new work
 * during the capture. */
static int choose_stream(struct sw_cuda *cuda, CUcontext context, CUstream *stream, struct sw_err *err) {
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    const CUresult result = cuda->stream_captures(*stream, &status);
    if (result == CUDA_ERROR_STREAM_CAPTURE_IMPLICIT) {
        const struct sw_cuda_stand_in *stand_in = find_stand_in(cuda, context);
        if (!stand_in)
            return sw_driver_fail(cuda, err, -SW_EGPU, result, "order with the default stream, beside a capture",
                                  "cuStreamIsCapturing");
        *stream = stand_in->stream;
        return 0;
    }
    if (result == CUDA_SUCCESS && status != CU_STREAM_CAPTURE_STATUS_NONE)
        return sw_err_set(err, -SW_EINVAL, SW_SCOPE_REQUEST,
                          "the stream is being captured: nothing would be waited for");
    return 0;
}

/* ---- the mark ---------------------------------------------------------------------------------------------------- */

/* Registers the page for the GPUs. The registration serves every context, but ends with the context that made it. */
static bool find_on_gpu(const struct sw_cuda *cuda, const struct sw_mark *mark, CUdeviceptr *ret) {
    void *page = sw_mark_page_data(cuda->page);
    CUdeviceptr address;
    if (cuda->host_pointer(&address, page, 0) != CUDA_SUCCESS &&
        (cuda->host_register(page, sw_mark_page_bytes(cuda->page),
                             CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP) != CUDA_SUCCESS ||
         cuda->host_pointer(&address, page, 0) != CUDA_SUCCESS))
        return false;
    *ret = address + sw_mark_word(mark) * sizeof(uint64_t);
    return true;
}

/* Where streams cannot write, the driver calls back, which takes about 70 us (H100). */
static CUresult write_mark(const struct sw_cuda *cuda, CUstream stream, struct sw_mark *mark) {
    CUdeviceptr address;
    if (find_on_gpu(cuda, mark, &address) &&
        cuda->write_value(stream, address, sw_mark_value(mark), CU_STREAM_WRITE_VALUE_DEFAULT) == CUDA_SUCCESS)
        return CUDA_SUCCESS;
    return cuda->launch_host(stream, sw_mark_write, mark);
}

/* Finds a mark of the same request and context, which serves for this stream as well. */
static struct sw_mark *find_known(const struct sw_marks *known, CUcontext context) {
    for (unsigned i = 0; known && i < known->n; i++)
        if (sw_mark_context(known->marks[i]) == (void *)context)
            return known->marks[i];
    return NULL;
}

/* Needs the context as the current one. */
static int mark_stream(struct sw_cuda *cuda, struct sw_export *ret, CUcontext context, CUstream stream,
                       struct sw_err *err) {
    int rc = choose_stream(cuda, context, &stream, err);
    if (rc < 0 || is_idle(cuda, stream))
        return rc;
    if (!cuda->page && (rc = sw_mark_page_get(&cuda->page, err)) < 0)
        return rc;
    struct sw_mark *mark = sw_mark_new(cuda->page, context, err);
    if (!mark)
        return -SW_ELIMIT;
    const CUresult result = write_mark(cuda, stream, mark);
    if (result != CUDA_SUCCESS) {
        sw_mark_write(mark); /* the stream does not write it */
        sw_mark_unref(mark);
        return sw_driver_fail(cuda, err, -SW_EGPU, result, "order with the caller's stream",
                              "cuStreamWriteValue64, cuLaunchHostFunc");
    }
    ret->mark = mark;
    return 0;
}

/* Runs mark_stream() in the stream's context; the default stream belongs to the current one. Breaks no capture of any
 * thread. */
static int order(struct sw_cuda *cuda, struct sw_export *ret, const struct sw_cuda_pointer *p,
                 const struct sw_marks *known, CUstream stream, struct sw_err *err) {
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    CUcontext context = p->context, popped;
    CUresult result = CUDA_SUCCESS;
    if (!is_default(stream))
        result = cuda->stream_context(stream, &context);
    if (result != CUDA_SUCCESS)
        return sw_driver_fail(cuda, err, -SW_EGPU, result, "the caller's stream", "cuStreamGetCtx");
    struct sw_mark *mark = find_known(known, context);
    if (mark) {
        ret->mark = sw_mark_ref(mark);
        return 0;
    }
    result = cuda->push(context);
    if (result != CUDA_SUCCESS)
        return sw_driver_fail(cuda, err, -SW_EGPU, result, "context of the caller's stream", "cuCtxPushCurrent");
    const bool is_relaxed = cuda->capture_mode(&mode) == CUDA_SUCCESS;
    const int rc = mark_stream(cuda, ret, context, stream, err);
    if (is_relaxed)
        (void)cuda->capture_mode(&mode);
    (void)cuda->pop(&popped);
    return rc;
}

int sw_cuda_order(struct sw_export *e, struct sw_cuda **cuda, const struct sw_marks *known, const void *data,
                  struct CUstream_st *stream, struct sw_err *err) {
    struct sw_cuda_pointer p;
    if (!*cuda || !sw_cuda_look_up(*cuda, (uintptr_t)data, &p) || !p.type)
        return sw_err_set(err, -SW_EMEMKIND, SW_SCOPE_REQUEST, "%p is no GPU memory any more; was it freed?", data);
    const int rc = sw_cuda_find_context(*cuda, &p, err);
    return rc < 0 ? rc : order(*cuda, e, &p, known, stream, err);
}

const struct sw_mark_page *sw_cuda_mark_page(const struct sw_cuda *cuda) {
    return cuda ? cuda->page : NULL;
}

/* ---- the end ----------------------------------------------------------------------------------------------------- */

void sw_cuda_free(struct sw_cuda *cuda) {
    if (!cuda)
        return;
    free_stand_ins(cuda);
    sw_mark_page_put(cuda->page);
    for (int i = 0; i < SW_CUDA_MAX_DEVICES; i++) {
        CUdevice device;
        if (cuda->primary[i] && cuda->device_get(&device, i) == CUDA_SUCCESS)
            (void)cuda->primary_release(device);
    }
    (void)dlclose(cuda->library);
    sw_free(cuda);
}
