/* A mover in the process whose memory it moves: the host device adopts the memory, and encodes and decodes in frame
 * buffers that a sink in another process reads and writes (away_sink.h). */
#include "base/alloc.h"
#include "base/clock.h"
#include "spill/mover/mover.h"
#include "tests/mover/away_sink.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#define MIB ((uint64_t)1 << 20)
#define CHUNK_BYTES MIB
enum { MAX_RUNS = 48 };

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
    long live;
} rig;

static void finished(struct sw_run *run, void *arg) {
    (void)run, (void)arg;
    ck_assert_uint_eq(run->n_in_sink, 0);
    rig.n_out--;
}

static void progress(void *arg) {
    (void)arg;
}

static int make_plan(struct sw_device *device, unsigned s, enum sw_value_type type, const struct sw_mapping *mapping,
                     uint64_t offset, uint64_t bytes, struct sw_err *err) {
    rig.n_plans++;
    return rig.real->make_plan(device, s, type, mapping, offset, bytes, err);
}

static int encode_group(struct sw_device *device, unsigned s, const struct sw_plan *plan, struct sw_group_item *items,
                        unsigned n, struct sw_err *err) {
    rig.n_encoded += n;
    return rig.real->encode_group(device, s, plan, items, n, err);
}

static int decode(struct sw_device *device, unsigned s, struct sw_mapping *mapping, const struct sw_decode_item *items,
                  unsigned n, struct sw_err *err) {
    const int code = rig.decode_fails;
    rig.decode_fails = 0;
    return code ? sw_err_set(err, code, SW_SCOPE_REQUEST, "the device refuses")
                : rig.real->decode(device, s, mapping, items, n, err);
}

static void rig_open(unsigned n_slots, uint64_t chunk_bytes, enum sw_away_how how) {
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

static void rig_close(void) {
    ck_assert_uint_eq(rig.sink.n_out, 0);
    ck_assert_uint_eq(sw_mover_mapped(rig.mover), 0);
    sw_mover_free(rig.mover);
    sw_away_sink_fini(&rig.sink);
    rig.device->ops->close(rig.device);
    (void)munmap(rig.buffers, rig.buffers_bytes);
    ck_assert_int_eq(sw_alloc_live(), rig.live);
}

/* ---- runs ---- */

enum content { TEXT, NUMBERS, RANDOM, MIXED, CONTENTS };

/* The next four bytes of a content. */
static uint32_t next_value(enum content content, uint64_t at, uint64_t random) {
    static const char words[][5] = {"the ", "fox ", "ran ", "and ", "hid ", "from", " it."};
    uint32_t value = (uint32_t)random;
    if (content == NUMBERS)
        return value % 16;
    if (content == TEXT)
        memcpy(&value, words[(at / 4 + random % 3) % 7], sizeof value);
    return value;
}

static uint8_t *fill(uint64_t bytes, enum content content, uint64_t seed) {
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

static void one_init(struct one *one, uint64_t bytes, enum content content, enum sw_value_type type, uint64_t seed) {
    *one = (struct one){.bytes = bytes, .type = type, .data = fill(bytes, content, seed), .back = calloc(1, bytes)};
    ck_assert_ptr_nonnull(one->back);
}

static void one_fini(struct one *one) {
    sw_away_frames_free(&one->frames);
    free(one->data);
    free(one->back);
}

static void describe(struct one *one, enum sw_operation operation, uint64_t session) {
    one->memory = (struct sw_run_memory){
        .desc = {.bytes = one->bytes}, .data = operation == SW_OP_SPILL ? one->data : one->back, .once = true};
    one->buffer = (struct sw_buffer){.memory = &one->memory, .bytes = one->bytes, .type = one->type};
    one->request =
        (struct sw_request){.operation = operation, .session = session, .n_buffers = 1, .buffers = &one->buffer};
    one->signals = (struct sw_signals){0};
    one->away = (struct sw_away_run){.frames = &one->frames};
}

static void begin(struct one *one, const struct sw_request *request, unsigned index, uint64_t chunk_bytes) {
    sw_run_init(&one->away.run, request, index, &one->signals);
    if (request->operation == SW_OP_RESTORE)
        one->away.run.frames = sw_frames_new(one->bytes, chunk_bytes, false);
    rig.n_out++;
    sw_mover_add(rig.mover, &one->away.run);
}

static void add_spill(struct one *one, uint64_t session) {
    describe(one, SW_OP_SPILL, session);
    begin(one, &one->request, 0, 0);
}

static void add_restore(struct one *one, uint64_t session) {
    describe(one, SW_OP_RESTORE, session);
    begin(one, &one->request, 0, one->chunk_bytes);
}

static void step(void) {
    const struct timespec rest = {.tv_nsec = 10000};
    if (!sw_mover_step(rig.mover, true) && !sw_mover_step(rig.mover, false) && !sw_mover_wait(rig.mover))
        (void)nanosleep(&rest, NULL);
}

static void finish(void) {
    while (rig.n_out > 0)
        step();
}

/* Ends the run. Returns its code. */
static int end(struct one *one) {
    const int code = one->away.run.outcome.err.code;
    const bool is_spill = one->request.operation == SW_OP_SPILL;
    ck_assert(!is_spill || (one->away.run.frames != NULL) == (code == 0));
    if (is_spill && code == 0)
        one->chunk_bytes = one->away.run.frames->chunk_bytes;
    sw_frames_delete(one->away.run.frames);
    one->away.run.frames = NULL;
    return code;
}

static int spill(struct one *one) {
    add_spill(one, 1);
    finish();
    return end(one);
}

static int restore(struct one *one) {
    memset(one->back, 0xEE, one->bytes);
    add_restore(one, 1);
    finish();
    return end(one);
}

static void assert_back(const struct one *one) {
    ck_assert_int_eq(memcmp(one->data, one->back, one->bytes), 0);
}

/* ---- what goes out comes back ---- */

static const struct content_case {
    enum content content;
    enum sw_value_type type;
} contents[] = {{TEXT, SW_VALUE_NONE},   {NUMBERS, SW_VALUE_U32}, {NUMBERS, SW_VALUE_I64}, {NUMBERS, SW_VALUE_F32},
                {RANDOM, SW_VALUE_NONE}, {RANDOM, SW_VALUE_F64},  {MIXED, SW_VALUE_NONE},  {MIXED, SW_VALUE_U16}};
enum { N_CONTENTS = sizeof contents / sizeof contents[0] };

static void there_and_back(const struct content_case *c, uint64_t bytes) {
    struct one one;
    one_init(&one, bytes, c->content, c->type, bytes);
    ck_assert_int_eq(spill(&one), 0);
    const struct sw_run_outcome *outcome = &one.away.run.outcome;
    uint64_t stored_bytes = 0;
    for (size_t i = 0; i < one.frames.n; i++)
        stored_bytes += one.frames.frames[i].layout.frame_bytes;
    ck_assert_uint_eq(outcome->stored_bytes, stored_bytes);
    if (c->content == TEXT && bytes >= MIB)
        ck_assert_uint_lt(stored_bytes, bytes * 2 / 3);
    if (c->content == RANDOM)
        ck_assert_uint_eq(outcome->codec_raw_bytes[SW_CODEC_RAW], bytes);
    ck_assert_int_eq(restore(&one), 0);
    assert_back(&one);
    ck_assert_uint_eq(rig.sink.n_ended, 2);
    ck_assert_uint_eq(rig.sink.n_sent, one.frames.n);
    ck_assert_uint_eq(rig.sink.n_chunks_fetched, one.frames.n);
    one_fini(&one);
}

/* Each content and each length on one to four slots. */
START_TEST(regions_come_back) {
    static const uint64_t lengths[] = {1, 4096, 300000, MIB, MIB + 1, 5 * MIB, 9 * MIB + 12345};
    for (unsigned i = 0; i < sizeof lengths / sizeof lengths[0]; i++) {
        const unsigned n = (unsigned)_i + i;
        rig_open(1 + n % 4, CHUNK_BYTES, n / 4 % 2 ? SW_AWAY_INSIDE : SW_AWAY_LATER);
        there_and_back(&contents[_i], lengths[i]);
        rig_close();
    }
}
END_TEST

/* A step's frames have rooms of one length, so what fits depends on the chunks. The first step of a spill is one chunk,
 * and the next ones grow, unless the device is as slow as a busy GPU. A restore that fits into all slots leaves none
 * without a step. */
START_TEST(a_step_takes_as_many_chunks_as_have_room) {
    static const struct {
        unsigned n_slots;
        uint64_t device_chunk, bytes, most_out, sends, most, fetches;
    } cases[] = {{1, 9 * MIB, 13 * MIB, SW_DECODE_MAX, 3, SW_DECODE_MAX, 2}, /* by number */
                 {1, MIB, 9 * MIB, 1, 9, 1, 9}, /* by room: of 2 MiB, each wants a little more than one */
                 {1, 2 * MIB, 9 * MIB, 3, 4, 3, 3},
                 {3, 4 * MIB, 9 * MIB, 4, 4, 4, 3}, /* by share */
                 {4, 4 * MIB, 3 * MIB, 2, 2, 1, 3}};
    for (unsigned i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct one one;
        rig_open(cases[i].n_slots, cases[i].device_chunk, SW_AWAY_LATER);
        rig.sink.sink.chunk_bytes = MIB;
        one_init(&one, cases[i].bytes, TEXT, SW_VALUE_NONE, 1);
        ck_assert_int_eq(spill(&one), 0);
        ck_assert_uint_eq(one.chunk_bytes, MIB);
        ck_assert_int_eq(restore(&one), 0);
        assert_back(&one);
        ck_assert_uint_eq(rig.sink.max_sent, cases[i].most_out);
        ck_assert_uint_eq(rig.sink.n_sends, cases[i].sends);
        ck_assert_uint_eq(rig.sink.max_step, cases[i].most);
        ck_assert_uint_eq(rig.sink.n_fetched, cases[i].fetches);
        one_fini(&one);
        rig_close();
    }
}
END_TEST

/* ---- many ---- */

/* Of one request, each with its own type. */
START_TEST(several_buffers_come_back) {
    enum { N = 5 };
    struct one ones[N];
    struct sw_buffer buffers[N];
    struct sw_request request;
    rig_open(3, CHUNK_BYTES, SW_AWAY_LATER);
    for (unsigned i = 0; i < N; i++)
        one_init(&ones[i], (i + 1) * MIB - i * 1000, contents[i].content, contents[i].type, i);
    for (int back = 0; back < 2; back++) {
        request = (struct sw_request){.operation = back ? SW_OP_RESTORE : SW_OP_SPILL,
                                      .session = 1,
                                      .number = 1 + (uint64_t)back,
                                      .n_buffers = N,
                                      .buffers = buffers};
        for (unsigned i = 0; i < N; i++) {
            describe(&ones[i], request.operation, 1);
            buffers[i] = ones[i].buffer;
            buffers[i].number = i + 1;
        }
        for (unsigned i = 0; i < N; i++)
            begin(&ones[i], &request, i, back ? ones[i].chunk_bytes : 0);
        finish();
        for (unsigned i = 0; i < N; i++)
            ck_assert_int_eq(end(&ones[i]), 0);
    }
    for (unsigned i = 0; i < N; i++) {
        assert_back(&ones[i]);
        one_fini(&ones[i]);
    }
    rig_close();
}
END_TEST

/* Of several tenants and sessions, and both ways at once. */
START_TEST(many_runs_go_both_ways_at_once) {
    static const char tenants[3];
    static struct one ones[MAX_RUNS];
    rig_open(4, CHUNK_BYTES, _i ? SW_AWAY_INSIDE : SW_AWAY_LATER);
    for (unsigned round = 0; round < 3; round++) {
        for (unsigned i = 0; i < MAX_RUNS; i++) {
            const bool is_back = i % 2 == round % 2; /* each goes out, and comes back in the next round */
            if (round == 0 && is_back)
                continue;
            if (!is_back && round < 2) {
                const struct content_case *c = &contents[i % N_CONTENTS];
                one_init(&ones[i], 1 + (i * 7919u % 23) * 100000, c->content, c->type, i);
            }
            if (round == 2 && !is_back)
                continue;
            describe(&ones[i], is_back ? SW_OP_RESTORE : SW_OP_SPILL, 1 + i % 5);
            ones[i].request.tenant = &tenants[i % 3];
            begin(&ones[i], &ones[i].request, 0, is_back ? ones[i].chunk_bytes : 0);
        }
        finish();
        for (unsigned i = 0; i < MAX_RUNS; i++) {
            const bool is_back = i % 2 == round % 2;
            if ((round == 0 && is_back) || (round == 2 && !is_back))
                continue;
            ck_assert_int_eq(end(&ones[i]), 0);
            if (is_back) {
                assert_back(&ones[i]);
                one_fini(&ones[i]);
            }
        }
    }
    if (!_i)
        ck_assert_uint_gt(rig.sink.n_out_of_order, 0);
    rig_close();
}
END_TEST

/* ---- what fails ---- */

/* If the other process refuses a buffer at any time, the run ends with that error, once all buffers were reported. */
START_TEST(each_send_and_each_fetch_may_fail) {
    const enum sw_away_how how = _i ? SW_AWAY_INSIDE : SW_AWAY_LATER;
    const uint64_t bytes = 5 * MIB + 1000;
    enum { N_CHUNKS = 2 };
    for (unsigned n_slots = 1; n_slots <= 4; n_slots++)
        for (unsigned nth = 1; nth <= N_CHUNKS; nth++) {
            struct one one;
            rig_open(n_slots, CHUNK_BYTES, how);
            one_init(&one, bytes, MIXED, SW_VALUE_NONE, nth);
            rig.sink.fail_code = -SW_ENOSPACE;
            rig.sink.fail_nth = nth * 3 - 2; /* of six */
            ck_assert_int_eq(spill(&one), -SW_ENOSPACE);
            ck_assert_ptr_null(one.away.run.frames);
            ck_assert_uint_eq(rig.sink.fail_nth, 0);
            sw_away_frames_free(&one.frames);
            ck_assert_int_eq(spill(&one), 0);
            rig.sink.fail_code = -SW_ELIMIT;
            rig.sink.fail_nth = nth * 3 - 2;
            ck_assert_int_eq(restore(&one), -SW_ELIMIT);
            ck_assert_uint_eq(one.away.run.outcome.failed.n, 1);
            ck_assert_int_eq(restore(&one), 0);
            assert_back(&one);
            ck_assert_uint_eq(rig.sink.n_ended, 4);
            one_fini(&one);
            rig_close();
        }
}
END_TEST

START_TEST(a_device_that_refuses_fails_the_run) {
    struct one one;
    rig_open(2, CHUNK_BYTES, _i ? SW_AWAY_INSIDE : SW_AWAY_LATER);
    one_init(&one, 3 * MIB, TEXT, SW_VALUE_NONE, 1);
    ck_assert_int_eq(spill(&one), 0);
    rig.decode_fails = -SW_ENOMEM;
    ck_assert_int_eq(restore(&one), -SW_ENOMEM);
    ck_assert_int_eq(restore(&one), 0);
    assert_back(&one);
    one_fini(&one);
    rig_close();
}
END_TEST

/* Also one of several that come back in one step. */
START_TEST(a_damaged_frame_fails_its_restore) {
    struct one one;
    rig_open(1 + (unsigned)_i, 4 * MIB, SW_AWAY_LATER);
    rig.sink.sink.chunk_bytes = MIB;
    one_init(&one, 6 * MIB, MIXED, SW_VALUE_NONE, 1);
    ck_assert_int_eq(spill(&one), 0);
    for (size_t i = 0; i < one.frames.n; i++) {
        struct sw_away_frame *frame = &one.frames.frames[i];
        uint8_t *byte = &frame->bytes[frame->layout.records_offset + sizeof(uint32_t)]; /* of a tile's hash */
        *byte ^= 1;
        const int code = restore(&one);
        ck_assert_msg(code == -SW_ECHECKSUM, "%d %s", code, one.away.run.outcome.err.msg);
        const struct sw_failed_chunks *failed = &one.away.run.outcome.failed;
        ck_assert(failed->first <= i && i < failed->first + failed->n);
        *byte ^= 1;
        ck_assert_uint_ge(rig.sink.n_disputed, i + 1);
    }
    ck_assert_int_eq(restore(&one), 0);
    assert_back(&one);
    one_fini(&one);
    rig_close();
}
END_TEST

/* A frame that is spoilt on its way is fetched again, once. */
START_TEST(a_spoilt_frame_is_fetched_again) {
    struct one one;
    rig_open(2, CHUNK_BYTES, _i ? SW_AWAY_INSIDE : SW_AWAY_LATER);
    one_init(&one, 3 * MIB, TEXT, SW_VALUE_NONE, 1);
    ck_assert_int_eq(spill(&one), 0);
    rig.sink.n_to_spoil = 1;
    ck_assert_int_eq(restore(&one), 0);
    assert_back(&one);
    ck_assert_uint_eq(rig.sink.n_disputed, 1);
    rig.sink.n_to_spoil = UINT32_MAX;
    const int code = restore(&one);
    ck_assert_msg(code == -SW_ECHECKSUM || code == -SW_EFRAME, "%d", code);
    ck_assert(rig.sink.n_disputed >= 2 && rig.sink.n_disputed <= 3); /* one for each slot */
    one_fini(&one);
    rig_close();
}
END_TEST

/* Nothing is decoded by a layout that is not the chunk's, or that leaves its room. */
START_TEST(a_layout_of_another_chunk_fails_its_restore) {
    struct one one;
    rig_open(2, CHUNK_BYTES, SW_AWAY_LATER);
    one_init(&one, 2 * MIB + 5, TEXT, SW_VALUE_NONE, 1);
    ck_assert_int_eq(spill(&one), 0);
    memset(one.back, 0xEE, one.bytes);
    for (size_t i = 0; i < one.frames.n; i++) {
        struct sw_frame_layout *layout = &one.frames.frames[i].layout, right = *layout;
        for (int longer = 0; longer < 2; longer++) {
            uint8_t *short_bytes = one.frames.frames[i].bytes;
            if (longer) { /* the sink copies as much as the layout says */
                layout->frame_bytes = sw_frame_bound_bytes(layout->raw_bytes) + 16;
                one.frames.frames[i].bytes = calloc(1, layout->frame_bytes);
            } else {
                layout->raw_bytes--;
            }
            ck_assert_int_eq(restore(&one), -SW_EFRAME);
            if (longer)
                free(one.frames.frames[i].bytes);
            one.frames.frames[i].bytes = short_bytes;
            *layout = right;
        }
    }
    ck_assert_int_eq(restore(&one), 0);
    assert_back(&one);
    one_fini(&one);
    rig_close();
}
END_TEST

/* ---- cancellations ---- */

/* Canceled after each number of the mover's looks: it ends as canceled, or as done if all of it was. */
static void cancel_after(struct one *one, unsigned n_steps) {
    for (unsigned i = 0; i < n_steps && rig.n_out > 0; i++)
        step();
    sw_mover_cancel(rig.mover, &one->signals);
    finish();
}

START_TEST(runs_may_be_canceled_at_any_time) {
    const enum sw_away_how how = _i ? SW_AWAY_INSIDE : SW_AWAY_LATER;
    unsigned n_canceled[2] = {0}, n_done[2] = {0};
    struct one one;
    rig_open(2, CHUNK_BYTES, how);
    one_init(&one, 4 * MIB + 1000, TEXT, SW_VALUE_NONE, 1);
    for (unsigned i = 0; i < 30 || !n_done[0]; i++) {
        sw_away_frames_free(&one.frames);
        add_spill(&one, 1);
        cancel_after(&one, i);
        const int code = end(&one);
        ck_assert(code == 0 || code == -SW_ECANCELED);
        *(code ? &n_canceled[0] : &n_done[0]) += 1;
    }
    sw_away_frames_free(&one.frames);
    ck_assert_int_eq(spill(&one), 0);
    for (unsigned i = 0; i < 30 || !n_done[1]; i++) {
        add_restore(&one, 1);
        cancel_after(&one, i);
        const int code = end(&one);
        ck_assert(code == 0 || code == -SW_ECANCELED);
        *(code ? &n_canceled[1] : &n_done[1]) += 1;
    }
    ck_assert(n_canceled[0] > 0 && n_canceled[1] > 0);
    ck_assert_int_eq(restore(&one), 0);
    assert_back(&one);
    one_fini(&one);
    rig_close();
}
END_TEST

static void step_for_ms(unsigned ms) {
    const struct timespec rest = {.tv_nsec = 1000000};
    for (unsigned i = 0; i < ms; i++) {
        while (sw_mover_step(rig.mover, false))
            continue;
        (void)nanosleep(&rest, NULL);
    }
}

/* While the other process has a buffer, its run stays, canceled or not, and keeps the slot; the mover does not wait for
 * it. The sink is told that the run is canceled. A free slot serves other runs meanwhile. */
START_TEST(a_canceled_run_waits_for_the_other_process) {
    struct one held, other;
    rig_open(2, CHUNK_BYTES, SW_AWAY_LATER);
    one_init(&held, 900000, TEXT, SW_VALUE_NONE, 1);
    one_init(&other, 3 * MIB, TEXT, SW_VALUE_NONE, 2);
    if (_i) /* a restore */
        ck_assert_int_eq(spill(&held), 0);
    rig.sink.how = SW_AWAY_HELD;
    if (_i)
        add_restore(&held, 1);
    else
        add_spill(&held, 1);
    while (rig.sink.n_out == 0)
        step();
    step_for_ms(1);
    ck_assert(!sw_mover_has_steps(rig.mover) && !sw_mover_wait(rig.mover));
    sw_mover_cancel(rig.mover, &held.signals);
    step_for_ms(20);
    ck_assert_uint_eq(rig.n_out, 1);
    ck_assert_int_eq(held.away.run.outcome.err.code, -SW_ECANCELED);
    ck_assert_uint_eq(held.away.run.n_in_sink, 1);
    ck_assert_uint_gt(rig.sink.n_abandoned, 0);
    rig.sink.how = SW_AWAY_INSIDE; /* for what is new */
    add_spill(&other, 2);
    while (rig.n_out > 1)
        step();
    ck_assert_int_eq(end(&other), 0);
    sw_away_sink_release(&rig.sink);
    finish();
    ck_assert_int_eq(end(&held), -SW_ECANCELED);
    one_fini(&held);
    one_fini(&other);
    rig_close();
}
END_TEST

/* ---- plans ---- */

/* By a clock that stands still, no rate is known, and no plan too dear. */
static uint64_t still(void) {
    return 1000000;
}

/* Plans are kept for the session's next region of the type; bytes of another kind get one of their own. */
START_TEST(plans_are_kept) {
    struct one text, again, numbers, other;
    rig_open(2, CHUNK_BYTES, SW_AWAY_LATER);
    one_init(&text, 2 * MIB, TEXT, SW_VALUE_NONE, 1);
    one_init(&again, 2 * MIB, TEXT, SW_VALUE_NONE, 2);
    one_init(&numbers, 2 * MIB, NUMBERS, SW_VALUE_U32, 3);
    one_init(&other, 2 * MIB, TEXT, SW_VALUE_NONE, 4);
    struct one *const ones[] = {&text, &again, &numbers, &other};
    const unsigned n_plans[] = {1, 1, 2, 3}, sessions[] = {1, 1, 1, 2};
    for (int i = 0; i < 4; i++) {
        add_spill(ones[i], sessions[i]);
        finish();
        ck_assert_int_eq(end(ones[i]), 0);
        ck_assert_uint_eq(rig.n_plans, n_plans[i]);
        ck_assert_uint_eq(ones[i]->away.run.outcome.codec_raw_bytes[SW_CODEC_RAW], 0);
        ck_assert_int_eq(restore(ones[i]), 0);
        assert_back(ones[i]);
        one_fini(ones[i]);
    }
    rig_close();
}
END_TEST

/* Bytes that a kept plan does not match: they are encoded again, by a plan of their own, before anything is sent. */
START_TEST(bytes_that_match_no_plan_are_planned_anew) {
    struct one text, zeros;
    rig_open(2, CHUNK_BYTES, SW_AWAY_LATER);
    one_init(&text, 2 * MIB, TEXT, SW_VALUE_NONE, 1);
    one_init(&zeros, 2 * MIB, TEXT, SW_VALUE_NONE, 2);
    for (uint64_t i = 0; i < zeros.bytes; i++)
        zeros.data[i] = (uint8_t) "0123456789ABCDEFGHIJKLMN"[(i * i + i / 7) % 23];
    ck_assert_int_eq(spill(&text), 0);
    const unsigned n_plans = rig.n_plans, n_encoded = rig.n_encoded;
    rig.sink.n_sent = 0;
    ck_assert_int_eq(spill(&zeros), 0);
    ck_assert_uint_gt(rig.n_plans, n_plans);
    ck_assert_uint_gt(rig.n_encoded - n_encoded, zeros.frames.n);
    ck_assert_uint_eq(rig.sink.n_sent, zeros.frames.n);
    ck_assert_int_eq(restore(&zeros), 0);
    assert_back(&zeros);
    one_fini(&text);
    one_fini(&zeros);
    rig_close();
}
END_TEST

/* Spaces, and from the middle on digits. */
START_TEST(bytes_that_drift_are_planned_anew) {
    struct one one;
    sw_clock_set(still);
    rig_open(1, CHUNK_BYTES, SW_AWAY_LATER);
    one_init(&one, 12 * MIB, TEXT, SW_VALUE_NONE, 1);
    memset(one.data, ' ', 6 * MIB);
    for (uint64_t i = 6 * MIB, random = 1; i < one.bytes; i++) {
        random = random * 6364136223846793005u + 1442695040888963407u;
        one.data[i] = (uint8_t)('0' + (random >> 33) % 10);
    }
    ck_assert_int_eq(spill(&one), 0);
    ck_assert_uint_ge(rig.n_plans, 2);
    ck_assert_int_eq(restore(&one), 0);
    assert_back(&one);
    one_fini(&one);
    rig_close();
    sw_clock_set(NULL);
}
END_TEST

/* A session whose bytes do not shrink makes no plan for each region. */
START_TEST(bytes_that_do_not_shrink_need_no_plans) {
    struct one one;
    rig_open(2, CHUNK_BYTES, SW_AWAY_LATER);
    for (unsigned i = 0; i < 12; i++) {
        one_init(&one, 2 * MIB, RANDOM, SW_VALUE_NONE, i);
        ck_assert_int_eq(spill(&one), 0);
        one_fini(&one);
    }
    ck_assert_uint_ge(rig.n_plans, 4);
    ck_assert_uint_lt(rig.n_plans, 12);
    rig_close();
}
END_TEST

int main(void) {
    Suite *suite = suite_create("mover beside data");
    TCase *tcase = tcase_create("away sink");
    tcase_set_timeout(tcase, 240); /* the machine may be busy */
    tcase_add_loop_test(tcase, regions_come_back, 0, N_CONTENTS);
    tcase_add_test(tcase, a_step_takes_as_many_chunks_as_have_room);
    tcase_add_test(tcase, several_buffers_come_back);
    tcase_add_loop_test(tcase, many_runs_go_both_ways_at_once, 0, 2);
    tcase_add_loop_test(tcase, each_send_and_each_fetch_may_fail, 0, 2);
    tcase_add_loop_test(tcase, a_device_that_refuses_fails_the_run, 0, 2);
    tcase_add_loop_test(tcase, a_damaged_frame_fails_its_restore, 0, 4);
    tcase_add_loop_test(tcase, a_spoilt_frame_is_fetched_again, 0, 2);
    tcase_add_test(tcase, a_layout_of_another_chunk_fails_its_restore);
    tcase_add_loop_test(tcase, runs_may_be_canceled_at_any_time, 0, 2);
    tcase_add_loop_test(tcase, a_canceled_run_waits_for_the_other_process, 0, 2);
    tcase_add_test(tcase, plans_are_kept);
    tcase_add_test(tcase, bytes_that_match_no_plan_are_planned_anew);
    tcase_add_test(tcase, bytes_that_drift_are_planned_anew);
    tcase_add_test(tcase, bytes_that_do_not_shrink_need_no_plans);
    suite_add_tcase(suite, tcase);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    const int n_failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return n_failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
