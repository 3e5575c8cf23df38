/* device_cuda_report.c - what a slot's streams left when they have run dry, and how the worker learns of it: it asks
 * (cudaStreamQuery, cudaEventQuery), or sleeps on an event with blocking synchronisation. */
#include "spill/device/device_cuda_state.h"

#include "codec/identity.h"

#include <string.h>

static void learn(void *arg) {
    sw_gpu_planning_learn(arg);
}

/* What takes milliseconds is not for this thread: other slots' chunks are to move. -SW_EAGAIN: the slot runs again, or
 * waits for the thread that learns. */
static int finish_plan(struct slot *slot, struct sw_err *err) {
    if (slot->work == WORK_PLAN && sw_gpu_planning_waits(&slot->planning)) {
        slot->work = WORK_LEARN;
        const int rc = sw_sealer_run(slot->sealer, learn, &slot->planning, err);
        return rc < 0 ? rc : -SW_EAGAIN;
    }
    if (slot->work == WORK_LEARN && !sw_sealer_ended(slot->sealer))
        return -SW_EAGAIN;
    slot->work = WORK_PLAN;
    return sw_cuda_check_lost(sw_gpu_planning_go_on(&slot->planning, err), err);
}

/* A frame that is no smaller than the raw one is made anew as that: -SW_EAGAIN, the slot runs again. */
static int finish_encode(struct device_cuda *d, struct slot *slot, struct sw_slot_result *ret, struct sw_err *err) {
    const struct sw_gpu_plan raw = {.codec = SW_CODEC_RAW, .segment_log2 = SW_RAW_SEGMENT_LOG2};
    const struct sw_gpu_result *result = &slot->h->result;
    if (slot->frame.codec != SW_CODEC_RAW && result->frame_bytes >= raw_frame_bytes(slot->in_bytes)) {
        const int rc = sw_cuda_queue_encode(d, slot, &raw, err);
        return rc < 0 ? rc : -SW_EAGAIN;
    }
    if (result->frame_bytes > d->info.buffer_bytes)
        return sw_err_set(err, -SW_EGPU, SW_SCOPE_REQUEST, "encoder made a frame of %llu bytes, bound is %llu",
                          (unsigned long long)result->frame_bytes, (unsigned long long)d->info.buffer_bytes);
    SW_ASSERT(result->codec == (uint32_t)slot->frame.codec);
    ret->frame = slot->frame;
    ret->frame.frame_bytes = result->frame_bytes;
    return 0;
}

static int finish_decode(const struct slot *slot, struct sw_err *err) {
    uint32_t bad = 0;
    for (unsigned i = 0; i < slot->n_items; i++)
        bad += slot->h->results[i].bad_tiles;
    if (bad)
        return sw_err_set(err, -SW_ECHECKSUM, SW_SCOPE_REGION, "%u tiles of a stored frame are damaged", bad);
    return 0;
}

/* What identify has brought. */
static void finish_heads(const struct slot *slot) {
    const uint8_t *head = slot->h_heads;
    for (unsigned i = 0; slot->heads && i < slot->n_heads; head += slot->heads[i++].bytes)
        slot->heads[i].identity = sw_identity_of(head, slot->heads[i].bytes);
}

static int finish_work(struct device_cuda *d, struct slot *slot, struct sw_slot_result *ret, struct sw_err *err) {
    switch (slot->work) {
    case WORK_PLAN:
    case WORK_LEARN:
        return finish_plan(slot, err);
    case WORK_ENCODE:
        return finish_encode(d, slot, ret, err);
    case WORK_DECODE:
        return finish_decode(slot, err);
    case WORK_ENCODE_GROUP:
        return sw_cuda_finish_encode_group(d, slot, err);
    case WORK_STORE_GROUP:
        sw_cuda_finish_store_group(slot);
        return 0;
    case WORK_RESTORE_GROUP:
        sw_cuda_finish_restore_group(slot);
        return 0;
    case WORK_SPILL_RAW:
    case WORK_SEAL:
    case WORK_RESTORE_RAW:
    case WORK_RECHECK:
        return sw_cuda_finish_raw(slot, err);
    case WORK_NONE:
        return 0;
    }
    return 0;
}

/* Nothing of the slot's work goes on. */
static void end_work(struct slot *slot) {
    slot->work = WORK_NONE;
    slot->copies = NULL;
    slot->heads = NULL;
}

/* The streams have run dry: looks at what they left. */
static int finish(struct device_cuda *d, struct slot *slot, struct sw_slot_result *ret, struct sw_err *err) {
    memset(ret, 0, sizeof *ret);
    const int rc = finish_work(d, slot, ret, err);
    slot->is_marked = false; /* it may have queued more */
    if (rc == -SW_EAGAIN)
        return rc;
    if (rc < 0) /* a part of what was to be done then may read the client's memory */
        (void)cudaStreamSynchronize(slot->stream);
    else
        finish_heads(slot);
    end_work(slot);
    return rc;
}

/* A stream has failed, or a call has: then copies may still be under way to and from what the slot will let go of. */
static void give_up(struct slot *slot) {
    if (slot->copies)
        (void)cudaStreamSynchronize(slot->copies); /* at once if the context is dead */
    (void)cudaStreamSynchronize(slot->stream);
    sw_sealer_wait(slot->sealer);
    end_work(slot);
}

/* Nothing is on `stream` then. */
static bool only_copies_run(const struct slot *slot) {
    return slot->copies && slot->n_items == 0;
}

/* Puts an event behind what is queued, so that slot_wait can sleep on it. One that nothing has to be waited for would
 * have to wait itself, for its turn on a busy GPU. */
static cudaError_t mark(struct slot *slot) {
    if (slot->is_marked || only_copies_run(slot))
        return cudaSuccess;
    const cudaError_t e = cudaEventRecord(slot->done, slot->stream);
    slot->is_marked = e == cudaSuccess;
    return e;
}

static cudaError_t query(const struct slot *slot) {
    const cudaError_t e = slot->copies ? cudaEventQuery(slot->copied) : cudaSuccess;
    return e != cudaSuccess || only_copies_run(slot) ? e : cudaStreamQuery(slot->stream);
}

int sw_cuda_slot_poll(struct sw_device *device, unsigned s, struct sw_slot_result *ret, struct sw_err *err) {
    struct device_cuda *d = cuda_of(device);
    struct slot *slot = &d->slots[s];
    const int rc = enter(d, err);
    if (rc < 0) {
        give_up(slot);
        return rc;
    }
    const cudaError_t e = query(slot);
    if (e == cudaErrorNotReady) {
        (void)cudaGetLastError();
        if (mark(slot) != cudaSuccess)
            (void)cudaGetLastError(); /* polling needs no event; a dead context is told by the next query */
        return -SW_EAGAIN;
    }
    if (e == cudaSuccess)
        return finish(d, slot, ret, err);
    give_up(slot);
    return sw_cuda_fail(err, e, "cudaStreamQuery or cudaEventQuery");
}

static int sleep_on(struct slot *slot, struct sw_err *err) {
    cudaError_t e = query(slot);
    if (e != cudaErrorNotReady)
        return check(e, err, "cudaStreamQuery or cudaEventQuery");
    (void)cudaGetLastError();
    e = mark(slot);
    if (e == cudaSuccess && slot->copies)
        e = cudaEventSynchronize(slot->copied);
    if (e == cudaSuccess && !only_copies_run(slot))
        e = cudaEventSynchronize(slot->done);
    return check(e, err, "cudaEventSynchronize");
}

int sw_cuda_slot_wait(struct sw_device *device, unsigned s, struct sw_slot_result *ret, struct sw_err *err) {
    struct device_cuda *d = cuda_of(device);
    struct slot *slot = &d->slots[s];
    int rc = enter(d, err);
    while (rc == 0) {
        rc = sleep_on(slot, err);
        if (rc < 0)
            break;
        sw_sealer_wait(slot->sealer);
        rc = finish(d, slot, ret, err);
        if (rc != -SW_EAGAIN)
            return rc;
        rc = 0;
    }
    give_up(slot);
    return rc;
}
