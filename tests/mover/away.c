/* A mover in the process whose memory it moves: the host device adopts the memory, and encodes and decodes in frame
 * buffers that a sink in another process reads and writes (away_sink.h). */
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

static int encode(struct sw_device *device, unsigned s, const struct sw_plan *plan, const struct sw_mapping *mapping,
                  uint64_t offset, uint64_t bytes, struct sw_err *err) {
    rig.n_encoded++;
    return rig.real->encode(device, s, plan, mapping, offset, bytes, err);
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
    rig.ops.encode = encode;
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

static uint8_t *fill(uint64_t bytes, enum content content, uint64_t seed) {
    static const char text[] = "the quick brown fox jumps over the lazy dog and runs away from it; ";
    uint64_t random = 88172645463325252u + seed;
    uint8_t *data = malloc(bytes);
    ck_assert_ptr_nonnull(data);
    for (uint64_t i = 0; i < bytes; i++) {
        const enum content here = content == MIXED ? (enum content)(i / CHUNK_BYTES % 3) : content;
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        data[i] = here == RANDOM    ? (uint8_t)random
                  : here == NUMBERS ? (uint8_t)(i % 4 ? 0 : random % 16)
                                    : (uint8_t)text[(i + seed + random % 3) % (sizeof text - 1)];
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
    uint64_t bytes;
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

/* As the other process has it: in chunks of the spill's length. */
static uint64_t chunk_bytes_of(const struct one *one) {
    return one->frames.frames[0].layout.raw_bytes;
}

static void add_restore(struct one *one, uint64_t session) {
    describe(one, SW_OP_RESTORE, session);
    begin(one, &one->request, 0, chunk_bytes_of(one));
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

START_TEST(regions_come_back) {
    static const uint64_t lengths[] = {1, 4096, 300000, MIB, MIB + 1, 9 * MIB + 12345};
    for (unsigned n_slots = 1; n_slots <= 4; n_slots += n_slots == 1 ? 2 : 1)
        for (unsigned i = 0; i < sizeof lengths / sizeof lengths[0]; i++) {
            rig_open(n_slots, CHUNK_BYTES, (n_slots + i) % 2 ? SW_AWAY_INSIDE : SW_AWAY_LATER);
            there_and_back(&contents[_i], lengths[i]);
            rig_close();
        }
}
END_TEST

int main(void) {
    Suite *suite = suite_create("mover beside data");
    TCase *tcase = tcase_create("away sink");
    tcase_set_timeout(tcase, 240); /* the machine may be busy */
    tcase_add_loop_test(tcase, regions_come_back, 0, N_CONTENTS);
    suite_add_tcase(suite, tcase);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    const int n_failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return n_failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
