/* How runs of the mover fail, and what becomes of the others. On the host device. */
#include "base/alloc.h"
#include "spill/mover/mover_state.h"
#include "spill/store/frames.h"
#include "spill/tier/host/tier_host.h"
#include "spill/worker/transfer.h"
#include "tests/lib/content.h"
#include "tests/lib/engine_fixture.h"
#include "tests/lib/one_run.h"
#include "tests/lib/run.h"

#include <check.h>
#include <string.h>

enum { BYTES = 100000, MOST = 3 };

static struct {
    struct sw_device *device;
    struct sw_device_ops ops, real;
    struct sw_tier *tier;
    struct sw_placement place;
    struct sw_tier_sink sink;
    struct sw_mover *mover;
    struct sw_memory memory;
    struct sw_run_memory mems[MOST];
    struct sw_one_run runs[MOST];
    unsigned n_finished, n_maps;
    bool was_once; /* the memory mapped last */
    int map_code;
} rig;

static int map(struct sw_device *device, const struct sw_mem_desc *desc, struct sw_mapping **ret, struct sw_err *err) {
    rig.n_maps++;
    rig.was_once = desc->once;
    return rig.map_code ? sw_err_set(err, rig.map_code, SW_SCOPE_DEVICE, "it is dead")
                        : rig.real.map(device, desc, ret, err);
}

static int canary(struct sw_device *device, struct sw_err *err) {
    (void)device;
    return sw_err_set(err, -SW_EGPULOST, SW_SCOPE_DEVICE, "it is dead");
}

static void on_finished(struct sw_run *run, void *arg) {
    (void)run, (void)arg;
    rig.n_finished++;
}

static void on_event(void *arg) {
    (void)arg;
}

static void setup(void) {
    const struct sw_device_config config = {.scratch_bytes = 16 << 20, .n_slots = 1, .chunk_bytes = 128 << 10};
    const struct sw_mover_host host = {.finished = on_finished, .progress = on_event};
    memset(&rig, 0, sizeof rig);
    ck_assert_int_eq(sw_fixture_open_device(&rig.device, &config, NULL), 0);
    rig.ops = rig.real = *rig.device->ops;
    rig.ops.map = map;
    rig.device->ops = &rig.ops;
    const struct sw_tier_host_config memory = {
        .capacity_bytes = 16 << 20, .slab_bytes = 2 << 20, .devices = &rig.device, .n_devices = 1};
    ck_assert_int_eq(sw_tier_host_open(&rig.tier, &memory, NULL), 0);
    sw_placement_init(&rig.place, &(struct sw_tiers){.at = {rig.tier}, .n = 1}, 0);
    sw_tier_sink_init(&rig.sink, &rig.place, on_event, NULL);
    ck_assert_int_eq(sw_mover_new(&rig.mover, rig.device, &rig.sink.sink, &host, NULL), 0);
    rig.memory = sw_memory_new(BYTES);
    for (unsigned i = 0; i < MOST; i++) {
        rig.mems[i] = (struct sw_run_memory){.desc = sw_memory_desc(&rig.memory), .once = true};
        sw_one_run_init(&rig.runs[i], SW_OP_SPILL, &rig.mems[i], BYTES, NULL);
    }
}

static void teardown(void) {
    sw_mover_free(rig.mover);
    for (unsigned i = 0; i < MOST; i++) {
        sw_mem_desc_fini(&rig.mems[i].desc);
        sw_frames_free(rig.runs[i].job.run.frames);
    }
    sw_tier_sink_fini(&rig.sink);
    sw_memory_free(&rig.memory);
    rig.tier->ops->close(rig.tier);
    rig.device->ops->close(rig.device);
}

static struct sw_run *run_of(unsigned i) {
    return &rig.runs[i].job.run;
}

static void add(unsigned i) {
    sw_mover_add(rig.mover, run_of(i));
}

static void finish(unsigned n) {
    while (rig.n_finished < n)
        (void)sw_mover_step(rig.mover, false);
}

static int code_of(unsigned i) {
    return run_of(i)->outcome.err.code;
}

START_TEST(runs_end) {
    for (unsigned i = 0; i < MOST; i++)
        add(i);
    finish(MOST);
    for (unsigned i = 0; i < MOST; i++)
        ck_assert_int_eq(code_of(i), 0);
    ck_assert_uint_eq(rig.n_maps, MOST);
    ck_assert_uint_eq(sw_mover_mapped(rig.mover), 0);
}
END_TEST

/* The mover has looked for canceled runs before it comes. */
START_TEST(a_run_may_be_canceled_before_it_comes) {
    sw_mover_cancel(rig.mover, &rig.runs[0].job.signals);
    (void)sw_mover_step(rig.mover, false);
    add(0);
    finish(1);
    ck_assert_int_eq(code_of(0), -SW_ECANCELED);
    ck_assert_uint_eq(rig.n_maps, 0);
}
END_TEST

/* Others follow from it. */
START_TEST(the_first_error_stands) {
    const struct sw_err first = {.code = -SW_ECHECKSUM, .scope = SW_SCOPE_REGION},
                        second = {.code = -SW_EIO, .scope = SW_SCOPE_REQUEST};
    add(0);
    sw_mover_fail_at(rig.mover, run_of(0), 3, 2, &first);
    sw_mover_fail_at(rig.mover, run_of(0), 5, 1, &second);
    sw_mover_fail(rig.mover, run_of(0), &second);
    finish(1);
    ck_assert_int_eq(code_of(0), -SW_ECHECKSUM);
    ck_assert_uint_eq(run_of(0)->outcome.failed.first, 3);
    ck_assert_uint_eq(run_of(0)->outcome.failed.n, 2);
}
END_TEST

/* Whatever finds out first (_i): a step, a mapping, a sign of life. No call reaches the device any more. */
START_TEST(a_dead_context_fails_runs_that_wait_and_later_ones) {
    const struct sw_err dead = {.code = -SW_EGPULOST, .scope = SW_SCOPE_DEVICE};
    struct sw_err err = {0};
    add(0);
    add(1);
    rig.map_code = -SW_EGPULOST;
    rig.ops.canary = canary;
    if (_i == 0)
        sw_mover_fail(rig.mover, run_of(0), &dead);
    else if (_i == 1)
        ck_assert_int_eq(sw_mover_map(rig.mover, &rig.mems[2], &err), -SW_EGPULOST);
    else
        ck_assert_int_eq(sw_mover_canary(rig.mover, &err), -SW_EGPULOST);
    ck_assert(sw_mover_lost(rig.mover));
    rig.map_code = 0;
    rig.n_maps = 0;
    add(2);
    finish(MOST);
    for (unsigned i = 0; i < MOST; i++)
        ck_assert_int_eq(code_of(i), -SW_EGPULOST);
    ck_assert_int_eq(sw_mover_map(rig.mover, &rig.mems[2], &err), -SW_EGPULOST);
    ck_assert_uint_eq(rig.n_maps, 0);
}
END_TEST

/* Descriptors are scarce. _i: it is for one operation. */
START_TEST(mapped_memory_keeps_no_descriptor) {
    const unsigned n_fds = sw_count_fds();
    rig.mems[0].once = _i;
    ck_assert_int_eq(sw_mover_map(rig.mover, &rig.mems[0], NULL), 0);
    ck_assert_ptr_null(rig.mems[0].desc.fds);
    ck_assert_int_eq(rig.was_once, _i);
    ck_assert_int_eq(sw_mover_map(rig.mover, &rig.mems[0], NULL), 0);
    ck_assert_uint_eq(rig.n_maps, 1); /* it is mapped already */
    sw_mover_unmap(rig.mover, &rig.mems[0]);
    ck_assert_uint_lt(sw_count_fds(), n_fds);
}
END_TEST

/* ---- regions of several chunks ---- */

enum { CHUNK_BYTES = 128 << 10, N_CHUNKS = 17, LONG_BYTES = (N_CHUNKS - 1) * CHUNK_BYTES + 50000 };

static struct sw_memory long_memory;
static struct sw_run_memory long_mem;

/* Makes the first run one of several chunks, of this operation. */
static struct sw_run *long_run(enum sw_operation operation, struct sw_frames *frames) {
    long_mem = (struct sw_run_memory){.desc = sw_memory_desc(&long_memory), .once = true};
    sw_one_run_init(&rig.runs[0], operation, &long_mem, LONG_BYTES, frames);
    return run_of(0);
}

/* Spills it, and returns the frames. */
static struct sw_frames *spill_long(struct sw_run *run) {
    rig.n_finished = 0;
    add(0);
    finish(1);
    ck_assert_int_eq(code_of(0), 0);
    struct sw_frames *frames = run->frames;
    run->frames = NULL;
    ck_assert_uint_eq(frames->n_chunks, N_CHUNKS);
    return frames;
}

static void setup_long(void) {
    setup();
    long_memory = sw_memory_new(LONG_BYTES);
}

static void teardown_long(void) {
    sw_mem_desc_fini(&long_mem.desc);
    sw_memory_free(&long_memory);
    teardown();
}

/* Of a step that fails all chunks are named, since any of them may be the damaged one: here each in turn. _i & 1: raw
 * frames; _i & 2: another frame lies in its place, which is found before the step is queued. */
START_TEST(a_failed_step_names_all_of_its_chunks) {
    sw_content_fill(long_memory.data, LONG_BYTES, _i & 1 ? SW_CONTENT_RANDOM : SW_CONTENT_TEXT, 1);
    struct sw_frames *frames = spill_long(long_run(SW_OP_SPILL, NULL));
    sw_mem_desc_fini(&long_mem.desc);
    for (size_t i = 0; i < N_CHUNKS; i++)
        ck_assert_int_eq(frames->layouts[i].codec == SW_CODEC_RAW, _i & 1);
    struct sw_run *run = long_run(SW_OP_RESTORE, frames);
    rig.n_finished = 0;
    for (size_t last = N_CHUNKS; last-- > 1;) {
        uint8_t *memory = frames->stored[last].extents[0].memory;
        const uint64_t at = _i & 2 ? frames->layouts[last].counts_offset - 1 : frames->layouts[last].data_offset;
        memory[at] ^= 0x55;
        add(0);
        finish(1);
        memory[at] ^= 0x55;
        ck_assert(code_of(0) == -SW_ECHECKSUM || (!(_i & 2) && code_of(0) == -SW_EFRAME));
        const struct sw_failed_chunks failed = run->outcome.failed;
        ck_assert_msg(failed.first <= last && last < failed.first + failed.n, "chunk %zu: %zu from %zu on", last,
                      failed.n, failed.first);
        sw_mem_desc_fini(&long_mem.desc);
        run = long_run(SW_OP_RESTORE, frames);
        rig.n_finished = 0;
    }
    add(0);
    finish(1);
    ck_assert_int_eq(code_of(0), 0);
}
END_TEST

/* A place in text that does not shrink is no reason to say so of all of it. */
START_TEST(one_raw_chunk_is_no_reason) {
    sw_content_fill(long_memory.data, LONG_BYTES, SW_CONTENT_TEXT, 1);
    sw_content_fill(long_memory.data + 2 * CHUNK_BYTES, CHUNK_BYTES, SW_CONTENT_RANDOM, 2);
    struct sw_run *run = long_run(SW_OP_SPILL, NULL);
    struct sw_frames *frames = spill_long(run);
    ck_assert_int_eq(frames->layouts[2].codec, SW_CODEC_RAW);
    ck_assert_int_ne(frames->layouts[3].codec, SW_CODEC_RAW);
    ck_assert_int_eq(run->outcome.reason, SW_COST_ROOM);
    sw_frames_free(frames);
}
END_TEST

/* A client pays for the bytes that were moved; its last chunk is shorter than the others. */
START_TEST(a_run_counts_the_bytes_that_it_has_dealt) {
    sw_content_fill(long_memory.data, LONG_BYTES, SW_CONTENT_TEXT, 1);
    struct sw_run *run = long_run(SW_OP_SPILL, NULL);
    struct sw_frames *frames = spill_long(run);
    run->frames = frames;
    for (run->n_dealt = 0; run->n_dealt < N_CHUNKS; run->n_dealt++)
        ck_assert_uint_eq(sw_run_dealt_bytes(run), run->n_dealt * CHUNK_BYTES);
    ck_assert_uint_eq(sw_run_dealt_bytes(run), LONG_BYTES);
    run->frames = NULL;
    ck_assert_uint_eq(sw_run_dealt_bytes(run), 0);
    sw_frames_free(frames);
}
END_TEST

/* Rates are not measured where raw frames come beside others, unless they are few. */
START_TEST(few_raw_frames_do_not_count) {
    sw_content_fill(long_memory.data, LONG_BYTES, SW_CONTENT_TEXT, 1);
    sw_content_fill(long_memory.data + 2 * CHUNK_BYTES, (size_t)_i * CHUNK_BYTES, SW_CONTENT_RANDOM, 2);
    struct sw_frames *frames = spill_long(long_run(SW_OP_SPILL, NULL));
    sw_mem_desc_fini(&long_mem.desc);
    struct sw_run *run = long_run(SW_OP_RESTORE, frames);
    rig.n_finished = 0;
    add(0);
    finish(1);
    ck_assert_int_eq(code_of(0), 0);
    ck_assert_int_eq(run->course.is_mixed, _i > N_CHUNKS / 8);
}
END_TEST

/* A run takes room for its plan from the tenant's budget, and gives it back; the records of its frames stay. */
START_TEST(a_runs_plan_is_paid_back) {
    struct sw_budget kept = {.limit_bytes = 1 << 20};
    struct sw_run *run = long_run(SW_OP_SPILL, NULL);
    rig.runs[0].request.kept = &kept;
    struct sw_frames *frames = spill_long(run);
    ck_assert_uint_gt(run->outcome.kept_bytes, 0);
    ck_assert_uint_eq(atomic_load(&kept.used_bytes), run->outcome.kept_bytes);
    sw_frames_free(frames);
}
END_TEST

/* Without memory for its dictionary a plan stores bytes raw: the slot's own changes with its next plan. */
START_TEST(a_plan_without_memory_keeps_no_dictionary) {
    static struct sw_frame_dictionary slots;
    struct sw_plan plan = {.codec = SW_CODEC_ONPAIR, .expected_ratio = 4, .dictionary = &slots};
    sw_alloc_fail_nth(1);
    ck_assert_int_eq(sw_mover_keep_dictionary(rig.mover, &plan, NULL), -SW_ENOMEM);
    sw_alloc_fail_nth(0);
    ck_assert_ptr_null(plan.dictionary);
    ck_assert_int_eq(plan.codec, SW_CODEC_RAW);
    plan = (struct sw_plan){.codec = SW_CODEC_ONPAIR, .expected_ratio = 4, .dictionary = &slots};
    ck_assert_int_eq(sw_mover_keep_dictionary(rig.mover, &plan, NULL), 0);
    ck_assert(plan.dictionary && plan.dictionary != &slots);
}
END_TEST

int main(void) {
    TCase *tests = tcase_create("runs");
    tcase_add_checked_fixture(tests, setup, teardown);
    tcase_add_test(tests, runs_end);
    tcase_add_test(tests, a_run_may_be_canceled_before_it_comes);
    tcase_add_test(tests, the_first_error_stands);
    tcase_add_loop_test(tests, a_dead_context_fails_runs_that_wait_and_later_ones, 0, 3);
    tcase_add_loop_test(tests, mapped_memory_keeps_no_descriptor, 0, 2);
    TCase *chunks = tcase_create("chunks");
    tcase_add_checked_fixture(chunks, setup_long, teardown_long);
    tcase_add_loop_test(chunks, a_failed_step_names_all_of_its_chunks, 0, 4);
    tcase_add_test(chunks, one_raw_chunk_is_no_reason);
    tcase_add_test(chunks, a_run_counts_the_bytes_that_it_has_dealt);
    tcase_add_loop_test(chunks, few_raw_frames_do_not_count, 2, 4);
    tcase_add_test(chunks, a_runs_plan_is_paid_back);
    tcase_add_test(chunks, a_plan_without_memory_keeps_no_dictionary);
    Suite *suite = suite_create("runs");
    suite_add_tcase(suite, tests);
    suite_add_tcase(suite, chunks);
    return sw_test_run(suite, CK_FORK);
}
