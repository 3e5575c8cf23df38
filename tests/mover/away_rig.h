/* away_rig.h - a mover in the process whose memory it moves, and runs on it: the host device adopts the memory, and
 * encodes and decodes in frame buffers that a sink in another process reads and writes (away_sink.h).
 *
 * For one test program each: its state is static. What does not fit fails the test. thread: one. */
#ifndef SW_TEST_AWAY_RIG_H
#define SW_TEST_AWAY_RIG_H

#include "base/alloc.h"
#include "spill/mover/mover.h"
#include "tests/mover/away_sink.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#define MIB ((uint64_t)1 << 20)
#define CHUNK_BYTES MIB

static struct {
    struct sw_device *device;
    struct sw_device_ops ops;
    const struct sw_device_ops *real;
    void *buffers;
    uint64_t buffers_bytes;
    struct sw_away_sink sink;
    struct sw_mover *mover;
    unsigned n_out, n_plans, n_encoded;
    int decode_fails; /* the next decode's code */
    unsigned n_wrong; /* items of decodes whose frames leave their rooms */
    long live;
} rig;

static inline void finished(struct sw_run *run, void *arg) {
    (void)run, (void)arg;
    ck_assert_uint_eq(run->n_in_sink, 0);
    rig.n_out--;
}

static inline void progress(void *arg) {
    (void)arg;
}

static inline int make_plan(struct sw_device *device, unsigned s, enum sw_value_type type, bool is_dense,
                            const struct sw_mapping *mapping, uint64_t offset, uint64_t bytes, struct sw_err *err) {
    rig.n_plans++;
    return rig.real->make_plan(device, s, type, is_dense, mapping, offset, bytes, err);
}

static inline int encode_group(struct sw_device *device, unsigned s, const struct sw_plan *plan,
                               struct sw_group_item *items, unsigned n, struct sw_err *err) {
    rig.n_encoded += n;
    return rig.real->encode_group(device, s, plan, items, n, err);
}

static inline int decode(struct sw_device *device, unsigned s, struct sw_mapping *mapping,
                         const struct sw_decode_item *items, unsigned n, struct sw_err *err) {
    const int code = rig.decode_fails;
    rig.decode_fails = 0;
    for (unsigned i = 0; i < n; i++)
        rig.n_wrong += items[i].layout->frame_bytes > sw_frame_bound_bytes(items[i].layout->raw_bytes);
    return code ? sw_err_set(err, code, SW_SCOPE_REQUEST, "the device refuses")
                : rig.real->decode(device, s, mapping, items, n, err);
}

static inline void rig_open(unsigned n_slots, uint64_t chunk_bytes, enum sw_away_how how) {
    const struct sw_mover_host host = {.finished = finished, .progress = progress};
    const uint64_t stride = sw_device_frame_stride(chunk_bytes);
    memset(&rig, 0, sizeof rig);
    rig.live = sw_alloc_live();
    rig.buffers_bytes = n_slots * stride;
    rig.buffers =
        mmap(NULL, rig.buffers_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    ck_assert_ptr_ne(rig.buffers, MAP_FAILED);
    const struct sw_device_config config = {.scratch_bytes = 64 * MIB,
                                            .n_slots = n_slots,
                                            .chunk_bytes = chunk_bytes,
                                            .frames = rig.buffers,
                                            .frames_bytes = rig.buffers_bytes,
                                            .is_guest = true};
    ck_assert_int_eq(sw_device_host_open(&rig.device, &config, NULL), 0);
    rig.real = rig.device->ops;
    rig.ops = *rig.real;
    rig.ops.make_plan = make_plan;
    rig.ops.encode_group = encode_group;
    rig.ops.decode = decode;
    rig.device->ops = &rig.ops;
    sw_away_sink_init(&rig.sink, rig.buffers, stride, how);
    ck_assert_int_eq(sw_mover_new(&rig.mover, rig.device, &rig.sink.sink, &host, NULL), 0);
}

static inline void rig_close(void) {
    ck_assert_uint_eq(rig.sink.n_out, 0);
    ck_assert_uint_eq(sw_mover_mapped(rig.mover), 0);
    sw_mover_free(rig.mover);
    sw_away_sink_fini(&rig.sink);
    rig.device->ops->close(rig.device);
    (void)munmap(rig.buffers, rig.buffers_bytes);
    ck_assert_int_eq(sw_alloc_live(), rig.live);
}

enum content { TEXT, NUMBERS, RANDOM, MIXED, CONTENTS };

/* The next four bytes of a content. */
static inline uint32_t next_value(enum content content, uint64_t at, uint64_t random) {
    static const char words[][5] = {"the ", "fox ", "ran ", "and ", "hid ", "from", " it."};
    uint32_t value = (uint32_t)random;
    if (content == NUMBERS)
        return value % 16;
    if (content == TEXT)
        memcpy(&value, words[(at / 4 + random % 3) % 7], sizeof value);
    return value;
}

static inline uint8_t *fill(uint64_t bytes, enum content content, uint64_t seed) {
    uint64_t random = 88172645463325252u + seed;
    uint8_t *data = malloc(bytes);
    ck_assert_ptr_nonnull(data);
    for (uint64_t i = 0; i < bytes; i += sizeof(uint32_t)) {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        const uint32_t value =
            next_value(content == MIXED ? (enum content)(i / CHUNK_BYTES % 3) : content, i, random >> 20);
        memcpy(data + i, &value, bytes - i < sizeof value ? bytes - i : sizeof value);
    }
    return data;
}

/* One buffer of a request; of several buffers, the first one's request. */
struct one {
    struct sw_request request;
    struct sw_run_memory memory;
    struct sw_buffer buffer;
    struct sw_signals signals;
    struct sw_away_run away;
    struct sw_away_frames frames;
    enum sw_value_type type;
    uint8_t *data, *back;
    uint64_t bytes, chunk_bytes; /* chunk_bytes: from its spill on */
};

static inline void one_init(struct one *one, uint64_t bytes, enum content content, enum sw_value_type type,
                            uint64_t seed) {
    *one = (struct one){.bytes = bytes, .type = type, .data = fill(bytes, content, seed), .back = calloc(1, bytes)};
    ck_assert_ptr_nonnull(one->back);
}

static inline void one_fini(struct one *one) {
    sw_away_frames_free(&one->frames);
    free(one->data);
    free(one->back);
}

static inline void describe(struct one *one, enum sw_operation operation, uint64_t session) {
    one->memory = (struct sw_run_memory){
        .desc = {.bytes = one->bytes}, .data = operation == SW_OP_SPILL ? one->data : one->back, .once = true};
    one->buffer = (struct sw_buffer){.memory = &one->memory, .bytes = one->bytes, .type = one->type};
    one->request =
        (struct sw_request){.operation = operation, .session = session, .n_buffers = 1, .buffers = &one->buffer};
    one->signals = (struct sw_signals){0};
    one->away = (struct sw_away_run){.frames = &one->frames};
}

static inline void begin(struct one *one, const struct sw_request *request, unsigned index, uint64_t chunk_bytes) {
    sw_run_init(&one->away.run, request, index, &one->signals);
    if (request->operation == SW_OP_RESTORE)
        one->away.run.frames = sw_frames_new(one->bytes, chunk_bytes, false);
    rig.n_out++;
    sw_mover_add(rig.mover, &one->away.run);
}

static inline void add_spill(struct one *one, uint64_t session) {
    describe(one, SW_OP_SPILL, session);
    begin(one, &one->request, 0, 0);
}

static inline void add_restore(struct one *one, uint64_t session) {
    describe(one, SW_OP_RESTORE, session);
    begin(one, &one->request, 0, one->chunk_bytes);
}

static inline void step(void) {
    const struct timespec rest = {.tv_nsec = 10000};
    if (!sw_mover_step(rig.mover, true) && !sw_mover_step(rig.mover, false) && !sw_mover_wait(rig.mover))
        (void)nanosleep(&rest, NULL);
}

static inline void finish(void) {
    while (rig.n_out > 0)
        step();
}

/* Ends the run. Returns its code. */
static inline int end(struct one *one) {
    const int code = one->away.run.outcome.err.code;
    const bool is_spill = one->request.operation == SW_OP_SPILL;
    ck_assert(!is_spill || (one->away.run.frames != NULL) == (code == 0));
    if (is_spill && code == 0)
        one->chunk_bytes = one->away.run.frames->chunk_bytes;
    sw_frames_delete(one->away.run.frames);
    one->away.run.frames = NULL;
    return code;
}

static inline int spill(struct one *one) {
    add_spill(one, 1);
    finish();
    return end(one);
}

static inline int restore(struct one *one) {
    memset(one->back, 0xEE, one->bytes);
    add_restore(one, 1);
    finish();
    return end(one);
}

static inline void assert_back(const struct one *one) {
    ck_assert_int_eq(memcmp(one->data, one->back, one->bytes), 0);
}

#endif
