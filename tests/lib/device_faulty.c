/* A late failure is not queued on the inner device: as on a real one, its slot skips later steps until the failure is
 * reported. After -SW_EGPULOST every queued step and every report fails, as with a dead context. A slot that "fails"
 * with -SW_EAGAIN hangs until it is released; so does a pin, which then continues normally. */
#include "tests/lib/device_faulty.h"

#include "base/alloc.h"
#include "base/assert.h"
#include "base/list.h"

#include <pthread.h>
#include <stdbool.h>
#include <string.h>

static const char *const operations[] = {
    "map",          "pin",       "encode",      "store",        "load",        "place",         "fetch",
    "decode",       "unpack",    "make_plan",   "encode_group", "store_group", "restore_group", "gather_group",
    "decode_group", "spill_raw", "restore_raw", "identify",     "take_frames", "give_frames",   "verify_frame"};
enum {
    OP_MAP,
    OP_PIN,
    OP_ENCODE,
    OP_STORE,
    OP_LOAD,
    OP_PLACE,
    OP_FETCH,
    OP_DECODE,
    OP_UNPACK,
    OP_MAKE_PLAN,
    OP_ENCODE_GROUP,
    OP_STORE_GROUP,
    OP_RESTORE_GROUP,
    OP_GATHER_GROUP,
    OP_DECODE_GROUP,
    OP_SPILL_RAW,
    OP_RESTORE_RAW,
    OP_IDENTIFY,
    OP_TAKE_FRAMES,
    OP_GIVE_FRAMES,
    OP_VERIFY_FRAME,
    OP_NR
};

/* The lock guards all but `inner`: a test arms from its own thread, a tier pins from any. */
struct device_faulty {
    struct sw_device device;
    struct sw_device *inner;
    pthread_mutex_t lock;
    unsigned countdown[OP_NR]; /* 1: the next call fails; 0: not armed */
    int code[OP_NR];
    enum sw_fault fault[OP_NR];
    bool lost;
    bool pin_hangs;
    pthread_cond_t released;
    int *pending; /* [n_slots] late failure that its slot has still to report; -SW_EAGAIN: it hangs */
};

static struct device_faulty *faulty_of(const struct sw_device *device) {
    return SW_CONTAINER_OF(device, struct device_faulty, device);
}

static int injected(int code, const char *operation, struct sw_err *err) {
    return sw_err_set(err, code, code == -SW_EGPULOST ? SW_SCOPE_DEVICE : SW_SCOPE_REQUEST, "injected: %s failed",
                      operation);
}

/* Decides the fate of one call: 0 go on, 1 skip it silently, else the error to return. slot < 0: not a queued step. */
static int fate(struct device_faulty *f, int operation, int slot, struct sw_err *err) {
    int rc = 0;
    (void)pthread_mutex_lock(&f->lock);
    if (slot >= 0 && f->lost)
        rc = -SW_EGPULOST;
    else if (slot >= 0 && f->pending[slot] && f->pending[slot] != -SW_EAGAIN)
        rc = 1;
    else if (f->countdown[operation] > 0 && --f->countdown[operation] == 0) {
        f->lost = f->lost || f->code[operation] == -SW_EGPULOST;
        f->pin_hangs = f->pin_hangs || (operation == OP_PIN && f->code[operation] == -SW_EAGAIN);
        rc = f->code[operation];
        if (f->fault[operation] != SW_FAULT_AT_ONCE && slot >= 0) {
            f->pending[slot] = f->code[operation];
            rc = f->fault[operation] == SW_FAULT_LATE;
        }
    }
    (void)pthread_mutex_unlock(&f->lock);
    return rc < 0 ? injected(rc, operations[operation], err) : rc;
}

#define FORWARD(operation, slot, call)                                                                                 \
    do {                                                                                                               \
        int verdict = fate(faulty_of(device), operation, slot, err);                                                   \
        if (verdict)                                                                                                   \
            return verdict > 0 ? 0 : verdict;                                                                          \
        struct sw_device *inner = faulty_of(device)->inner;                                                            \
        return inner->ops->call;                                                                                       \
    } while (0)

static int faulty_map(struct sw_device *device, const struct sw_mem_desc *desc, struct sw_mapping **ret,
                      struct sw_err *err) {
    FORWARD(OP_MAP, -1, map(inner, desc, ret, err));
}

static int faulty_pin(struct sw_device *device, void *slab, size_t bytes, struct sw_err *err) {
    struct device_faulty *f = faulty_of(device);
    const int verdict = fate(f, OP_PIN, -1, err);
    if (verdict && verdict != -SW_EAGAIN)
        return verdict;
    (void)pthread_mutex_lock(&f->lock);
    while (f->pin_hangs)
        (void)pthread_cond_wait(&f->released, &f->lock);
    (void)pthread_mutex_unlock(&f->lock);
    return f->inner->ops->pin(f->inner, slab, bytes, err);
}

static int faulty_make_plan(struct sw_device *device, unsigned s, enum sw_value_type type, bool is_dense,
                            const struct sw_mapping *mapping, uint64_t offset, uint64_t bytes, struct sw_err *err) {
    FORWARD(OP_MAKE_PLAN, (int)s, make_plan(inner, s, type, is_dense, mapping, offset, bytes, err));
}

static int faulty_encode(struct sw_device *device, unsigned s, const struct sw_plan *plan,
                         const struct sw_mapping *mapping, uint64_t offset, uint64_t bytes, struct sw_err *err) {
    FORWARD(OP_ENCODE, (int)s, encode(inner, s, plan, mapping, offset, bytes, err));
}

static int faulty_store(struct sw_device *device, unsigned s, void *h_to, uint64_t frame_offset, uint64_t bytes,
                        struct sw_err *err) {
    FORWARD(OP_STORE, (int)s, store(inner, s, h_to, frame_offset, bytes, err));
}

static int faulty_load(struct sw_device *device, unsigned s, const void *h_from, uint64_t frame_offset, uint64_t bytes,
                       struct sw_err *err) {
    FORWARD(OP_LOAD, (int)s, load(inner, s, h_from, frame_offset, bytes, err));
}

static int faulty_place(struct sw_device *device, unsigned s, struct sw_mapping *mapping, uint64_t offset,
                        uint64_t frame_offset, uint64_t bytes, struct sw_err *err) {
    FORWARD(OP_PLACE, (int)s, place(inner, s, mapping, offset, frame_offset, bytes, err));
}

static int faulty_fetch(struct sw_device *device, unsigned s, const struct sw_mapping *mapping, uint64_t offset,
                        uint64_t frame_offset, uint64_t bytes, struct sw_err *err) {
    FORWARD(OP_FETCH, (int)s, fetch(inner, s, mapping, offset, frame_offset, bytes, err));
}

static int faulty_decode(struct sw_device *device, unsigned s, struct sw_mapping *mapping,
                         const struct sw_decode_item *items, unsigned n, struct sw_err *err) {
    FORWARD(OP_DECODE, (int)s, decode(inner, s, mapping, items, n, err));
}

static int faulty_unpack(struct sw_device *device, unsigned s, struct sw_mapping *mapping,
                         const struct sw_decode_item *items, unsigned n, struct sw_err *err) {
    FORWARD(OP_UNPACK, (int)s, unpack(inner, s, mapping, items, n, err));
}

static int faulty_identify(struct sw_device *device, unsigned s, const struct sw_mapping *mapping,
                           struct sw_head_item *items, unsigned n, struct sw_err *err) {
    FORWARD(OP_IDENTIFY, (int)s, identify(inner, s, mapping, items, n, err));
}

static void faulty_wake(struct sw_device *device) {
    struct sw_device *inner = faulty_of(device)->inner;
    inner->ops->wake(inner);
}

static int faulty_encode_group(struct sw_device *device, unsigned s, const struct sw_plan *plan,
                               struct sw_group_item *items, unsigned n, struct sw_err *err) {
    FORWARD(OP_ENCODE_GROUP, (int)s, encode_group(inner, s, plan, items, n, err));
}

static int faulty_store_group(struct sw_device *device, unsigned s, struct sw_group_item *items, unsigned n,
                              struct sw_err *err) {
    FORWARD(OP_STORE_GROUP, (int)s, store_group(inner, s, items, n, err));
}

static int faulty_restore_group(struct sw_device *device, unsigned s, struct sw_group_item *items, unsigned n,
                                struct sw_err *err) {
    FORWARD(OP_RESTORE_GROUP, (int)s, restore_group(inner, s, items, n, err));
}

static int faulty_gather_group(struct sw_device *device, unsigned s, struct sw_group_item *items, unsigned n,
                               uint64_t at, struct sw_err *err) {
    FORWARD(OP_GATHER_GROUP, (int)s, gather_group(inner, s, items, n, at, err));
}

static int faulty_decode_group(struct sw_device *device, unsigned s, struct sw_group_item *items, unsigned n,
                               struct sw_err *err) {
    FORWARD(OP_DECODE_GROUP, (int)s, decode_group(inner, s, items, n, err));
}

static int faulty_spill_raw(struct sw_device *device, unsigned s, const struct sw_mapping *mapping,
                            const struct sw_raw_item *items, unsigned n, unsigned n_by_cpu, struct sw_err *err) {
    FORWARD(OP_SPILL_RAW, (int)s, spill_raw(inner, s, mapping, items, n, n_by_cpu, err));
}

static int faulty_restore_raw(struct sw_device *device, unsigned s, struct sw_mapping *mapping,
                              const struct sw_raw_item *items, unsigned n, unsigned n_by_cpu, struct sw_err *err) {
    FORWARD(OP_RESTORE_RAW, (int)s, restore_raw(inner, s, mapping, items, n, n_by_cpu, err));
}

static int faulty_take_frames(struct sw_device *device, unsigned s, const struct sw_mapping *mapping,
                              const struct sw_frame_item *items, unsigned n, struct sw_err *err) {
    FORWARD(OP_TAKE_FRAMES, (int)s, take_frames(inner, s, mapping, items, n, err));
}

static int faulty_give_frames(struct sw_device *device, unsigned s, struct sw_mapping *mapping,
                              const struct sw_frame_item *items, unsigned n, bool may_fill_holes, struct sw_err *err) {
    FORWARD(OP_GIVE_FRAMES, (int)s, give_frames(inner, s, mapping, items, n, may_fill_holes, err));
}

static int faulty_verify_frame(struct sw_device *device, unsigned s, const struct sw_stored *stored,
                               struct sw_err *err) {
    FORWARD(OP_VERIFY_FRAME, (int)s, verify_frame(inner, s, stored, err));
}

static const struct sw_device_info *faulty_info(const struct sw_device *device) {
    struct sw_device *inner = faulty_of(device)->inner;
    return inner->ops->info(inner);
}

static void faulty_unmap(struct sw_device *device, struct sw_mapping *mapping) {
    struct sw_device *inner = faulty_of(device)->inner;
    inner->ops->unmap(inner, mapping);
}

static void faulty_unpin(struct sw_device *device, void *slab, size_t bytes) {
    struct sw_device *inner = faulty_of(device)->inner;
    inner->ops->unpin(inner, slab, bytes);
}

static const struct sw_plan *faulty_plan(struct sw_device *device, unsigned s) {
    struct sw_device *inner = faulty_of(device)->inner;
    return inner->ops->plan(inner, s);
}

static bool hangs(struct device_faulty *f, unsigned s, bool wait) {
    (void)pthread_mutex_lock(&f->lock);
    while (wait && f->pending[s] == -SW_EAGAIN)
        (void)pthread_cond_wait(&f->released, &f->lock);
    bool hung = f->pending[s] == -SW_EAGAIN;
    (void)pthread_mutex_unlock(&f->lock);
    return hung;
}

/* The inner slot's report, overruled by a late failure. */
static int overrule(struct device_faulty *f, unsigned s, int rc, struct sw_err *err) {
    if (rc == -SW_EAGAIN)
        return rc;
    (void)pthread_mutex_lock(&f->lock);
    int code = f->pending[s] ? f->pending[s] : f->lost ? -SW_EGPULOST : 0;
    f->pending[s] = 0;
    (void)pthread_mutex_unlock(&f->lock);
    return code ? injected(code, "a queued step", err) : rc;
}

static int faulty_slot_poll(struct sw_device *device, unsigned s, struct sw_slot_result *ret, struct sw_err *err) {
    struct device_faulty *f = faulty_of(device);
    if (hangs(f, s, false))
        return -SW_EAGAIN;
    return overrule(f, s, f->inner->ops->slot_poll(f->inner, s, ret, err), err);
}

static int faulty_slot_wait(struct sw_device *device, unsigned s, struct sw_slot_result *ret, struct sw_err *err) {
    struct device_faulty *f = faulty_of(device);
    (void)hangs(f, s, true);
    return overrule(f, s, f->inner->ops->slot_wait(f->inner, s, ret, err), err);
}

static void faulty_close(struct sw_device *device) {
    struct device_faulty *f = faulty_of(device);
    f->inner->ops->close(f->inner);
    (void)pthread_cond_destroy(&f->released);
    (void)pthread_mutex_destroy(&f->lock);
    sw_free(f->pending);
    sw_free(f);
}

static const struct sw_device_ops faulty_ops = {
    .info = faulty_info,
    .map = faulty_map,
    .unmap = faulty_unmap,
    .pin = faulty_pin,
    .unpin = faulty_unpin,
    .make_plan = faulty_make_plan,
    .plan = faulty_plan,
    .encode = faulty_encode,
    .store = faulty_store,
    .load = faulty_load,
    .place = faulty_place,
    .fetch = faulty_fetch,
    .decode = faulty_decode,
    .unpack = faulty_unpack,
    .identify = faulty_identify,
    .wake = faulty_wake,
    .encode_group = faulty_encode_group,
    .store_group = faulty_store_group,
    .restore_group = faulty_restore_group,
    .gather_group = faulty_gather_group,
    .decode_group = faulty_decode_group,
    .spill_raw = faulty_spill_raw,
    .restore_raw = faulty_restore_raw,
    .take_frames = faulty_take_frames,
    .give_frames = faulty_give_frames,
    .verify_frame = faulty_verify_frame,
    .slot_poll = faulty_slot_poll,
    .slot_wait = faulty_slot_wait,
    .close = faulty_close,
};

int sw_device_faulty_open(struct sw_device **ret, struct sw_device *inner, struct sw_err *err) {
    struct device_faulty *f = sw_alloc(sizeof *f);
    int *pending = sw_alloc_array(inner->ops->info(inner)->n_slots, sizeof *pending);
    if (!f || !pending) {
        sw_free(f);
        sw_free(pending);
        return sw_err_set(err, -SW_ENOMEM, SW_SCOPE_DEVICE, "out of memory for a faulty device");
    }
    f->device.ops = &faulty_ops;
    f->inner = inner;
    f->pending = pending;
    (void)pthread_mutex_init(&f->lock, NULL);
    (void)pthread_cond_init(&f->released, NULL);
    *ret = &f->device;
    return 0;
}

void sw_device_faulty_arm(struct sw_device *faulty, const char *operation, unsigned nth, int code,
                          enum sw_fault fault) {
    struct device_faulty *f = faulty_of(faulty);
    int i = 0;
    while (i < OP_NR && strcmp(operations[i], operation) != 0)
        i++;
    SW_ASSERT(i < OP_NR);
    (void)pthread_mutex_lock(&f->lock);
    f->countdown[i] = nth;
    f->code[i] = code;
    f->fault[i] = fault;
    (void)pthread_mutex_unlock(&f->lock);
}

bool sw_device_faulty_hangs(struct sw_device *faulty) {
    struct device_faulty *f = faulty_of(faulty);
    bool hang = false;
    for (unsigned s = 0; s < f->inner->ops->info(f->inner)->n_slots; s++)
        hang |= hangs(f, s, false);
    return hang;
}

void sw_device_faulty_release(struct sw_device *faulty) {
    struct device_faulty *f = faulty_of(faulty);
    (void)pthread_mutex_lock(&f->lock);
    for (unsigned s = 0; s < f->inner->ops->info(f->inner)->n_slots; s++)
        if (f->pending[s] == -SW_EAGAIN)
            f->pending[s] = 0;
    f->pin_hangs = false;
    if (f->code[OP_PIN] == -SW_EAGAIN) /* a pin that is still to come would hang for ever */
        f->countdown[OP_PIN] = 0;
    (void)pthread_cond_broadcast(&f->released);
    (void)pthread_mutex_unlock(&f->lock);
}
