/* device_cuda_report.c - ends steps when a slot's streams are empty. The worker polls them (cudaStreamQuery,
 * cudaEventQuery), or sleeps on an event with blocking synchronisation. */
#include "spill/device/device_cuda_state.h"

#include "codec/identity.h"

#include <string.h>

static void learn(void *arg) {
    sw_gpu_planning_learn(arg);
}

/* Continues make_plan. Another thread does work of milliseconds, so that the worker can serve other slots. -SW_EAGAIN:
 * the slot runs again, or waits for this thread. */
static int finish_plan(const struct device_cuda *d, struct slot *slot, struct sw_err *err) {
    if (slot->work == WORK_PLAN && sw_gpu_planning_waits(&slot->planning)) {
        slot->work = WORK_LEARN;
        const int rc = sw_sealer_run(slot->sealer, learn, &slot->planning, err);
        return rc < 0 ? rc : -SW_EAGAIN;
    }
    if (slot->work == WORK_LEARN && !sw_sealer_ended(slot->sealer))
        return -SW_EAGAIN;
    slot->work = WORK_PLAN;
    slot->planning.room.pass = sw_cuda_pass(d, slot);
    return sw_cuda_check_lost(sw_gpu_planning_go_on(&slot->planning, err), err);
}

/* Ends an encode. A frame that is no smaller than the raw frame is encoded again, as a raw one: -SW_EAGAIN, the slot
 * runs again. */
static int finish_encode(struct device_cuda *d, struct slot *slot, struct sw_slot_result *ret, struct sw_err *err) {
    const struct sw_gpu_plan raw = raw_plan();
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

/* Ends an identify: hashes the beginnings that were copied. */
static void finish_heads(const struct slot *slot) {
    const uint8_t *head = slot->h_heads;
    for (unsigned i = 0; slot->heads && i < slot->n_heads; head += slot->heads[i++].bytes)
        slot->heads[i].identity = sw_identity_of(head, slot->heads[i].bytes);
}

static void finish_identify(const struct slot *slot) {
    for (unsigned i = 0; i < slot->n_heads; i++)
        slot->identified[i].identity = slot->h->identities[i];
}

static int finish_work(struct device_cuda *d, struct slot *slot, struct sw_slot_result *ret, struct sw_err *err) {
    switch (slot->work) {
    case WORK_PLAN:
    case WORK_LEARN:
        return finish_plan(d, slot, err);
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
    case WORK_GATHER_GROUP:
        return 0;
    case WORK_IDENTIFY:
        finish_identify(slot);
        return 0;
    case WORK_SPILL_RAW:
    case WORK_SEAL:
    case WORK_RESTORE_RAW:
    case WORK_RECHECK:
        return sw_cuda_finish_raw(slot, err);
    case WORK_VERIFY:
        return sw_cuda_finish_verify(slot, err);
    case WORK_NONE:
        return 0;
    }
    return 0;
}

/* Notes that the slot has no more work. */
static void end_work(struct slot *slot) {
    slot->work = WORK_NONE;
    slot->begin = BEGIN_SEEN;
    slot->copies = NULL;
    slot->heads = NULL;
}

/* Ends the slot's step: its streams are empty. */
static int finish(struct device_cuda *d, struct slot *slot, struct sw_slot_result *ret, struct sw_err *err) {
    memset(ret, 0, sizeof *ret);
    const int rc = finish_work(d, slot, ret, err);
    slot->is_marked = false; /* more may be queued now */
    if (rc == -SW_EAGAIN)
        return rc;
    if (rc < 0) /* some of the queued work may still read the client's memory */
        (void)cudaStreamSynchronize(slot->stream);
    else
        finish_heads(slot);
    end_work(slot);
    return rc;
}

/* Ends the slot's work after a failure. Waits for the streams, since copies may still use memory that will be released.
 */
static void give_up(const struct device_cuda *d, struct slot *slot) {
    if (slot->copies && !d->is_gone)
        (void)cudaStreamSynchronize(slot->copies); /* at once if the context is dead */
    if (!d->is_gone)
        (void)cudaStreamSynchronize(slot->stream);
    sw_sealer_wait(slot->sealer);
    end_work(slot);
}

/* Returns true if all queued work is on the copy stream, and none on `stream`. */
static bool only_copies_run(const struct slot *slot) {
    return slot->copies && slot->n_items == 0;
}

/* Records an event after all queued work, for slot_wait to sleep on. An event on an empty stream of a busy GPU would
 * itself wait for its turn, so an empty stream gets none. */
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

/* Polling needs no event; the next query reports a dead context. */
static int mark_and_wait(struct slot *slot) {
    if (mark(slot) != cudaSuccess)
        (void)cudaGetLastError();
    return -SW_EAGAIN;
}

/* A step that is given up ends, although its kernels are still in the stream. */
static int poll_begin(struct device_cuda *d, struct slot *slot, struct sw_err *err) {
    const int rc = sw_cuda_poll_begin(d, slot, err);
    if (rc != -SW_EAGAIN)
        end_work(slot);
    return rc;
}

int sw_cuda_slot_poll(struct sw_device *device, unsigned s, struct sw_slot_result *ret, struct sw_err *err) {
    struct device_cuda *d = cuda_of(device);
    struct slot *slot = &d->slots[s];
    const int rc = enter(d, err);
    if (rc < 0) {
        give_up(d, slot);
        return rc;
    }
    const cudaError_t e = query(slot);
    if (e == cudaErrorNotReady) {
        (void)cudaGetLastError();
        return d->is_guest ? poll_begin(d, slot, err) : mark_and_wait(slot);
    }
    if (e == cudaSuccess)
        return finish(d, slot, ret, err);
    give_up(d, slot);
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
    give_up(d, slot);
    return rc;
}
