/* Regions that come to be by several appends: whole or not at all, whatever fails, and for whatever reason it ends. */
#include "base/alloc.h"
#include "base/clock.h"
#include "spill/build.h"
#include "spill/engine_state.h"
#include "spill/operator.h"
#include "tests/lib/appends.h"
#include "tests/lib/content.h"
#include "tests/lib/pair_fixture.h"
#include "tests/lib/run.h"
#include "tests/lib/transfer.h"

#include <check.h>
#include <string.h>
#include <unistd.h>

/* So little room in memory that frames go to the disk. */
static void open_with_disk(void) {
    struct sw_fixture_config fixture = sw_fixture_defaults;
    fixture.capacity_bytes = fixture.initial_bytes = 1 << 20;
    fixture.staging_bytes = 900 << 10;
    fixture.nvme_bytes = 64 << 20;
    open_with(&fixture);
}

/* ---- what is built ---- */

/* One append after the other; or all under way when the commit comes; or all in one. */
START_TEST(appends_make_a_region) {
    struct sw_test_op ops[N_APPENDS] = {0}, end;
    struct sw_range ranges[N_APPENDS];
    struct sw_buffer_info infos[SW_FRAMES_MAX_BUFFERS];
    struct sw_region_info info;
    struct sw_build *build = begin();
    unsigned n = 0;
    for (unsigned i = 0; i < N_APPENDS; i++) {
        ranges[i] = range_of(i);
        if (_i < 2)
            ck_assert_int_eq(append(build, i, &ops[i]), 0);
        if (_i == 0)
            ck_assert_int_eq(sw_pair_wait(&ops[i]), 0);
    }
    if (_i == 2)
        ck_assert_int_eq(sw_build_append(build, ranges, N_APPENDS, sw_test_op_done, &ops[0], NULL), 0);
    ck_assert_int_eq(commit(build, &end), 0);
    for (unsigned i = 0; i < (_i < 2 ? N_APPENDS : 1); i++) {
        ck_assert_uint_eq(ops[i].calls, 1);
        ck_assert_int_eq(ops[i].outcome.err.code, 0);
        ck_assert_uint_gt(ops[i].outcome.stored_bytes, 0);
        ck_assert(_i == 2 || ops[i].outcome.raw_bytes == appends[i].bytes);
    }
    ck_assert_int_eq(sw_engine_query(sw_pair.f.owner, end.id, &info, NULL), 0);
    ck_assert_int_eq(info.state, SW_REGION_OUT);
    ck_assert_uint_eq(info.stored_bytes, end.outcome.stored_bytes);
    ck_assert_uint_eq(info.raw_bytes, end.outcome.raw_bytes);
    ck_assert_uint_eq(info.raw_bytes, 5 * CHUNK + 77 + BUFFER_BYTES + 1000);
    ck_assert_int_eq(sw_engine_query_buffers(sw_pair.f.owner, end.id, infos, &n, NULL), 0);
    ck_assert_uint_eq(n, N);
    for (unsigned i = 0; i < N; i++)
        ck_assert_uint_eq(infos[i].raw_bytes, buffers[i].raw_bytes);
    ck_assert(infos[1].codec == SW_CODEC_DFOR);
    struct sw_region_id made[4];
    sw_engine_find_by_request(sw_pair.f.owner, 7, made, 4);
    ck_assert(made[3].slot == end.id.slot && made[3].gen == end.id.gen && made[2].gen == 0);
    restore_and_compare(end.id);
    ck_nothing_left();
}
END_TEST

START_TEST(one_buffer_of_many_appends) {
    const struct sw_build_buffer_config buffer = {20 * CHUNK + 1, 32 << 10, SW_VALUE_NONE};
    const struct sw_build_config one = {.buffers = &buffer, .n_buffers = 1, .priority = 9};
    struct sw_build *build = NULL;
    struct sw_test_op ops[41] = {0}, end;
    ck_assert_int_eq(sw_build_begin(sw_pair.f.owner, &one, &build, NULL), 0);
    for (unsigned i = 0; i < 41;
         i++) { /* at most so many at once as an owner may have, each through a memory of its own */
        struct sw_range range = {.mem = sw_fixture_mem(&sw_pair.f, sw_pair.f.owner, &sw_pair.from, true),
                                 .offset = i * (uint64_t)(32 << 10),
                                 .bytes = i < 40 ? 32 << 10 : 1,
                                 .at = i * (uint64_t)(32 << 10)};
        ck_assert_int_eq(sw_build_append(build, &range, 1, sw_test_op_done, &ops[i], NULL), 0);
        sw_mem_close(range.mem, NULL, NULL);
        if (i % 3 == 0)
            ck_assert_int_eq(sw_pair_wait(&ops[i]), 0);
    }
    ck_assert_int_eq(commit(build, &end), 0);
    const struct sw_region *region = &sw_pair.f.engine->store.regions.regions[end.id.slot];
    ck_assert_uint_eq(region->frames->n_chunks, 41);
    ck_assert(region->frames->n_buffers == 0 && region->priority == 9);
    struct sw_test_op op;
    ck_assert_int_eq(sw_fixture_restore(&sw_pair.f, end.id, &sw_pair.to, 0, buffer.raw_bytes, false, &op), 0);
    ck_assert(memcmp(sw_pair.to.data, sw_pair.from.data, buffer.raw_bytes) == 0);
    ck_nothing_left();
}
END_TEST

/* Each buffer has the reason of its longest append, whichever comes last. */
START_TEST(each_buffer_has_its_reason) {
    const struct sw_build_buffer_config two[] = {{4 * CHUNK, CHUNK, SW_VALUE_NONE}, {CHUNK, CHUNK, SW_VALUE_NONE}};
    const struct sw_build_config of_two = {.buffers = two, .n_buffers = 2};
    const struct sw_range ranges[] = {{.mem = sw_pair.from_mem, .bytes = 3 * CHUNK},
                                      {.mem = sw_pair.from_mem, .offset = 3 * CHUNK, .bytes = CHUNK, .at = 3 * CHUNK},
                                      {.mem = sw_pair.from_mem, .offset = 3 * CHUNK, .bytes = CHUNK, .buffer = 1}};
    struct sw_buffer_info infos[SW_FRAMES_MAX_BUFFERS];
    struct sw_build *build = NULL;
    struct sw_test_op op, end;
    unsigned n = 0;
    sw_content_fill(sw_pair.from.data, 3 * CHUNK, SW_CONTENT_TEXT, 1);
    sw_content_fill(sw_pair.from.data + 3 * CHUNK, CHUNK, SW_CONTENT_RANDOM, 1);
    ck_assert_int_eq(sw_build_begin(sw_pair.f.owner, &of_two, &build, NULL), 0);
    for (unsigned i = 0; i < 3; i++) {
        op = (struct sw_test_op){0};
        ck_assert_int_eq(sw_build_append(build, &ranges[i], 1, sw_test_op_done, &op, NULL), 0);
        ck_assert_int_eq(sw_pair_wait(&op), 0);
    }
    ck_assert_int_eq(commit(build, &end), 0);
    ck_assert_str_eq(end.outcome.reason, sw_cost_reason_text(SW_COST_ROOM));
    ck_assert_int_eq(sw_engine_query_buffers(sw_pair.f.owner, end.id, infos, &n, NULL), 0);
    ck_assert_uint_eq(n, 2);
    ck_assert_str_eq(infos[0].reason, sw_cost_reason_text(SW_COST_ROOM));
    ck_assert_str_eq(infos[1].reason, sw_cost_reason_text(SW_COST_NO_GAIN));
    ck_assert_int_eq(sw_engine_drop(sw_pair.f.owner, end.id, NULL), 0);
    ck_nothing_left();
}
END_TEST

/* From its first append on, not from its last; and an empty build has taken none. */
START_TEST(a_build_takes_the_time_of_all_its_appends) {
    enum { PAUSE_US = 50000 };
    const struct sw_build_config none = {.buffers = &buffers[2], .n_buffers = 1};
    const struct sw_histogram *whole =
        &sw_engine_op_statistics(sw_pair.f.engine)->latency[SW_OP_KIND_SPILL][SW_OP_STAGE_WHOLE];
    struct sw_build *build = NULL;
    struct sw_test_op op, end;
    ck_assert_int_eq(sw_build_begin(sw_pair.f.owner, &none, &build, NULL), 0);
    ck_assert_int_eq(commit(build, &end), 0);
    ck_assert_uint_eq(whole->count, 0);
    ck_assert_int_eq(sw_engine_drop(sw_pair.f.owner, end.id, NULL), 0);
    build = begin();
    for (unsigned i = 0; i < N_APPENDS; i++) {
        ck_assert_int_eq(append(build, i, &op), 0);
        ck_assert_int_eq(sw_pair_wait(&op), 0);
        if (i + 2 == N_APPENDS)
            (void)usleep(PAUSE_US);
    }
    ck_assert_int_eq(commit(build, &end), 0);
    ck_assert_uint_ge(end.outcome.total_us, PAUSE_US);
    ck_assert_uint_eq(whole->count, 1);
    ck_assert_uint_ge(whole->sum_us, PAUSE_US);
    ck_assert_int_eq(sw_engine_drop(sw_pair.f.owner, end.id, NULL), 0);
    ck_nothing_left();
}
END_TEST

START_TEST(an_empty_build) {
    const struct sw_build_config none = {.buffers = &buffers[2], .n_buffers = 1};
    const struct sw_range range = {.mem = sw_pair.from_mem};
    const struct sw_range frame = {.mem = sw_pair.from_mem, .frame_bytes = sw_frame_bound_bytes(0)};
    struct sw_build *build = NULL;
    struct sw_test_op op = {0}, end;
    ck_assert_int_eq(sw_build_begin(sw_pair.f.owner, &none, &build, NULL), 0);
    ck_assert_int_eq(sw_build_append(build, &frame, 1, sw_test_op_done, &op, NULL), -SW_EINVAL);
    if (_i)
        ck_assert_int_eq(sw_build_append(build, &range, 1, sw_test_op_done, &op, NULL), 0);
    ck_assert_int_eq(commit(build, &end), 0);
    ck_assert_int_eq(sw_fixture_restore(&sw_pair.f, end.id, &sw_pair.to, 0, 0, false, &op), 0);
    ck_nothing_left();
}
END_TEST

/* ---- what is refused ---- */

static int try_begin(unsigned n, uint64_t raw_bytes, uint64_t chunk_bytes, enum sw_value_type type) {
    struct sw_build_buffer_config many[SW_FRAMES_MAX_BUFFERS + 1];
    const struct sw_build_config bad = {.buffers = many, .n_buffers = n};
    struct sw_build *build;
    for (unsigned i = 0; i <= SW_FRAMES_MAX_BUFFERS; i++)
        many[i] = (struct sw_build_buffer_config){raw_bytes, chunk_bytes, type};
    const int rc = sw_build_begin(sw_pair.f.owner, &bad, &build, NULL);
    ck_assert_int_ne(rc, 0);
    return rc;
}

START_TEST(invalid_builds_are_refused) {
    ck_assert_int_eq(try_begin(0, 8, CHUNK, SW_VALUE_NONE), -SW_EINVAL);
    ck_assert_int_eq(try_begin(SW_FRAMES_MAX_BUFFERS + 1, 8, CHUNK, SW_VALUE_NONE), -SW_EINVAL);
    const uint64_t longest = sw_pair.f.engine->store.place.chunk_bytes;
    ck_assert_int_eq(try_begin(1, 8, CHUNK + 4096, SW_VALUE_NONE), -SW_EINVAL);
    ck_assert_int_eq(try_begin(1, 8, longest + SW_BUILD_CHUNK_STEP_BYTES, SW_VALUE_NONE), -SW_EINVAL);
    ck_assert_int_eq(try_begin(1, 8, UINT64_MAX - (UINT64_MAX % CHUNK), SW_VALUE_NONE), -SW_EINVAL);
    ck_assert_int_eq(try_begin(1, 7, CHUNK, SW_VALUE_U32), -SW_EINVAL);
    ck_assert_int_eq(try_begin(1, 8, CHUNK, SW_VALUE_NR), -SW_EINVAL);
    ck_assert_int_eq(try_begin(2, UINT64_MAX, 0, SW_VALUE_NONE), -SW_ERANGE);
    ck_assert_int_eq(try_begin(1, UINT64_C(1) << 50, CHUNK, SW_VALUE_NONE), -SW_ENOSPACE);
    ck_nothing_left();
}
END_TEST

START_TEST(an_append_has_no_more_than_its_most_ranges) {
    enum { STEP = SW_BUILD_CHUNK_STEP_BYTES, MOST = SW_BUILD_MAX_RANGES };
    const struct sw_build_buffer_config buffer = {(uint64_t)STEP * (MOST + 1), STEP, SW_VALUE_NONE};
    const struct sw_build_config one = {.buffers = &buffer, .n_buffers = 1};
    struct sw_range ranges[MOST + 1];
    struct sw_test_op op = {0}, end = {0};
    struct sw_build *build = NULL;
    for (unsigned i = 0; i <= MOST; i++)
        ranges[i] = (struct sw_range){.mem = sw_pair.from_mem, .bytes = STEP, .at = (uint64_t)STEP * i};
    ck_assert_int_eq(sw_build_begin(sw_pair.f.owner, &one, &build, NULL), 0);
    ck_assert_int_eq(sw_build_append(build, ranges, MOST + 1, sw_test_op_done, &op, NULL), -SW_EINVAL);
    ck_assert_int_eq(sw_build_append(build, ranges, MOST, sw_test_op_done, &op, NULL), 0);
    ck_assert_int_eq(sw_pair_wait(&op), 0);
    ck_assert_int_eq(sw_build_abort(build, sw_test_op_done, &end, NULL), 0);
    (void)sw_pair_wait(&end);
    ck_nothing_left();
}
END_TEST

static int try_append(struct sw_build *build, unsigned buffer, uint64_t at, uint64_t bytes) {
    const struct sw_range range = {.mem = sw_pair.from_mem, .bytes = bytes, .buffer = buffer, .at = at};
    return sw_build_append(build, &range, 1, sw_test_op_done, NULL, NULL);
}

/* The build goes on after each of them. */
START_TEST(invalid_appends_are_refused) {
    struct sw_test_op ops[N_APPENDS], end = {0};
    struct sw_build *build = begin();
    const struct sw_range once[2] = {
        {.mem = sw_fixture_mem(&sw_pair.f, sw_pair.f.owner, &sw_pair.from, true), .bytes = CHUNK},
        {.mem = sw_pair.from_mem, .bytes = CHUNK, .at = CHUNK}};
    const struct sw_range outside = {.mem = sw_pair.from_mem, .offset = sw_pair.from.bytes - CHUNK + 1, .bytes = CHUNK};
    for (unsigned i = 0; i < N_APPENDS; i++) {
        ck_assert_int_eq(try_append(build, N, 0, CHUNK), -SW_EINVAL);
        ck_assert_int_eq(try_append(build, 0, 5 * CHUNK, 77), -SW_EINVAL);
        ck_assert_int_eq(try_append(build, 0, appends[i].at + (appends[i].buffer ? 1 : 4096), CHUNK), -SW_EINVAL);
        ck_assert_int_eq(try_append(build, 1, 0, BUFFER_BYTES - CHUNK), -SW_EINVAL);
        if (appends[i].buffer == 0 && appends[i].at > 0) /* more than is left, not more than the buffer has */
            ck_assert_int_eq(try_append(build, 0, appends[i].at, 5 * CHUNK), -SW_EINVAL);
        ck_assert_int_eq(try_append(build, 3, 0, 0), -SW_EINVAL);
        ck_assert_int_eq(sw_build_commit(build, 7, 0, sw_test_op_done, &end, NULL), -SW_EINVAL);
        if (i == 0) {
            ck_assert_int_eq(try_append(build, 0, 0, CHUNK - 1), -SW_EINVAL);
            ck_assert_int_eq(try_append(build, 0, 0, 6 * CHUNK), -SW_EINVAL);
            ck_assert_int_eq(sw_build_append(build, once, 2, sw_test_op_done, NULL, NULL), -SW_EINVAL);
            ck_assert_int_eq(sw_build_append(build, once, 0, sw_test_op_done, NULL, NULL), -SW_EINVAL);
            ck_assert_int_eq(sw_build_append(build, &outside, 1, sw_test_op_done, NULL, NULL), -SW_ERANGE);
        }
        ck_assert_int_eq(append(build, i, &ops[i]), 0);
        ck_assert_int_eq(sw_pair_wait(&ops[i]), 0);
    }
    ck_assert_int_eq(try_append(build, 0, 5 * CHUNK + 77, 0), -SW_EINVAL);
    ck_assert_int_eq(sw_build_commit(build, 7, 3, sw_test_op_done, &end, NULL), 0);
    ck_assert_int_eq(sw_build_commit(build, 7, 3, sw_test_op_done, &end, NULL), -SW_EINVAL);
    ck_assert_int_eq(sw_build_abort(build, sw_test_op_done, &end, NULL), -SW_EINVAL);
    ck_assert_int_eq(append(build, 0, &ops[0]), -SW_EINVAL);
    ck_assert_int_eq(sw_pair_wait(&end), 0);
    sw_fixture_close_mem(&sw_pair.f, once[0].mem);
    restore_and_compare(end.id);
    ck_nothing_left();
}
END_TEST

START_TEST(a_build_is_no_region_yet) {
    struct sw_region_id made;
    struct sw_test_op op, end;
    struct sw_build *build = begin();
    const struct sw_range range = {.mem = sw_pair.to_mem, .bytes = BUFFER_BYTES};
    ck_assert_int_eq(append(build, 0, &op), 0);
    ck_assert_int_eq(sw_pair_wait(&op), 0);
    ck_assert_int_eq(sw_engine_drop(sw_pair.f.owner, op.id, NULL), -SW_EBUSY);
    ck_assert_int_eq(sw_engine_consume(sw_pair.f.owner, op.id, NULL), -SW_EBUSY);
    ck_assert_int_eq(sw_engine_advise(sw_pair.f.owner, op.id, SW_ADVISE_PRIORITY, 1, NULL), -SW_EBUSY);
    ck_assert_int_eq(sw_engine_restore(sw_pair.f.owner, op.id, SW_TRANSFER(&range, 1), sw_test_op_done, &op, NULL),
                     -SW_ESTATE);
    sw_engine_find_by_request(sw_pair.f.owner, 7, &made, 1);
    ck_assert_uint_eq(made.gen, 0);
    ck_assert_int_eq(abort_build(build, &end), -SW_ECANCELED);
    ck_nothing_left();
}
END_TEST

/* ---- what ends it ---- */

/* Whether the build failed. late_commit: the commit is there before the failure. */
static bool try_failing(bool late_commit, bool aborts) {
    struct sw_test_op ops[N_APPENDS] = {0}, end = {0}, late;
    struct sw_engine_stats stats;
    struct sw_build *build = begin();
    unsigned n_failed = 0;
    for (unsigned i = 0; i < N_APPENDS; i++)
        ck_assert_int_eq(append(build, i, &ops[i]), 0);
    if (late_commit)
        ck_assert_int_eq(sw_build_commit(build, 7, 3, sw_test_op_done, &end, NULL), 0);
    for (unsigned i = 0; i < N_APPENDS; i++)
        n_failed += sw_pair_wait(&ops[i]) == -SW_EGPU;
    if (!late_commit && n_failed) {
        ck_assert_int_eq(sw_build_state(build), SW_BUILD_FAILED);
        sw_engine_stats(sw_pair.f.engine, &stats);
        ck_assert_uint_eq(stats.n_regions + stats.tiers[0].used_bytes + stats.tiers[1].used_bytes, 0);
        ck_assert_int_eq(append(build, 0, &late), -SW_EGPU);
    }
    const int rc = late_commit          ? sw_pair_wait(&end)
                   : n_failed && aborts ? abort_build(build, &end)
                                        : commit(build, &end);
    ck_assert_int_eq(rc, n_failed ? -SW_EGPU : 0);
    if (!rc)
        restore_and_compare(end.id);
    return rc;
}

START_TEST(a_failed_append_fails_the_build) {
    static const char *const steps[] = {"make_plan", "encode", "store", "encode_group"};
    unsigned n_failed = 0;
    for (size_t s = 0; s < sizeof steps / sizeof steps[0]; s++)
        for (unsigned nth = 1; nth <= 4; nth++) {
            sw_device_faulty_arm(sw_pair.f.device, steps[s], nth, -SW_EGPU, nth % 2 ? SW_FAULT_LATE : SW_FAULT_AT_ONCE);
            n_failed += try_failing(nth == 4, nth == 2);
            sw_device_faulty_arm(sw_pair.f.device, steps[s], 0, 0, SW_FAULT_LATE);
            ck_nothing_left();
        }
    ck_assert_uint_ge(n_failed, 8);
}
END_TEST

/* Before, while and after appends are under way; committed or not. */
START_TEST(builds_that_expire) {
    struct sw_test_op ops[N_APPENDS] = {0}, end;
    for (unsigned n = 0; n <= N_APPENDS; n++)
        for (int hangs = 0; hangs < 2; hangs++) {
            struct sw_build *build = begin();
            ck_assert_uint_gt(sw_build_idle_since_us(build), 0);
            if (hangs)
                sw_device_faulty_arm(sw_pair.f.device, "store", 1, -SW_EAGAIN, SW_FAULT_LATE);
            for (unsigned i = 0; i < n; i++)
                ck_assert_int_eq(append(build, i, &ops[i]), 0);
            ck_assert_uint_eq(sw_build_idle_since_us(build) == 0, n > 0);
            for (unsigned i = 0; !hangs && i < n; i++)
                ck_assert_int_eq(sw_pair_wait(&ops[i]), 0);
            end = (struct sw_test_op){0};
            if (n == N_APPENDS && hangs)
                ck_assert_int_eq(sw_build_commit(build, 7, 3, sw_test_op_done, &end, NULL), 0);
            sw_build_fail(build, &expired);
            sw_build_fail(build, &(struct sw_err){.code = -SW_EIO});
            sw_engine_check(sw_pair.f.engine);
            for (unsigned i = 0; i < n; i++)
                ck_assert_int_eq(sw_pair_wait(&ops[i]), hangs ? -SW_ETIMEDOUT : 0);
            if (n == N_APPENDS && hangs)
                ck_assert_int_eq(sw_pair_wait(&end), -SW_ETIMEDOUT);
            else
                ck_assert_int_eq(commit(build, &end), -SW_ETIMEDOUT);
            sw_device_faulty_arm(sw_pair.f.device, "store", 0, 0, SW_FAULT_LATE);
            ck_nothing_left();
        }
}
END_TEST

/* A build is idle from the end of its last append on. */
START_TEST(each_append_begins_the_time_anew) {
    struct sw_build *build = begin();
    struct sw_test_op op, end;
    uint64_t last_us = sw_build_idle_since_us(build);
    for (unsigned i = 0; i < N_APPENDS; i++) {
        const uint64_t before_us = sw_clock_us();
        ck_assert_uint_ge(before_us, last_us);
        ck_assert_int_eq(append(build, i, &op), 0);
        ck_assert_uint_eq(sw_build_idle_since_us(build), 0);
        ck_assert_int_eq(sw_pair_wait(&op), 0);
        last_us = sw_build_idle_since_us(build);
        ck_assert_uint_ge(last_us, before_us);
    }
    ck_assert_int_eq(abort_build(build, &end), -SW_ECANCELED);
    ck_nothing_left();
}
END_TEST

START_TEST(a_build_is_canceled_by_its_region_id) {
    struct sw_test_op op, end;
    struct sw_build *build = begin();
    ck_assert_int_eq(append(build, 0, &op), 0);
    ck_assert_int_eq(sw_pair_wait(&op), 0);
    sw_engine_cancel(sw_pair.f.owner, op.id);
    ck_assert_int_eq(commit(build, &end), -SW_ECANCELED);
    ck_nothing_left();
}
END_TEST

START_TEST(no_memory_for_any_part_of_it) {
    for (unsigned nth = 1; nth < 80; nth += 1 + nth / 8) {
        struct sw_test_op ops[N_APPENDS] = {0}, end = {0};
        struct sw_build *build = NULL;
        sw_alloc_fail_nth(nth);
        int rc = sw_build_begin(sw_pair.f.owner, &config, &build, NULL);
        for (unsigned i = 0; !rc && i < N_APPENDS; i++)
            if (!(rc = append(build, i, &ops[i])))
                rc = sw_pair_wait(&ops[i]);
        if (!rc)
            rc = commit(build, &end);
        else if (build)
            (void)abort_build(build, &end);
        sw_alloc_fail_nth(0);
        ck_assert(rc == 0 || rc == -SW_ENOMEM);
        if (!rc)
            restore_and_compare(end.id);
        ck_nothing_left();
    }
}
END_TEST

/* An open build, a failed one, one with an append under way, and a sealed one. */
START_TEST(builds_end_with_their_owner) {
    struct sw_test_op op = {0}, sealed[N_APPENDS] = {0}, end = {0};
    bool closed = false;
    struct sw_build *open = begin(), *failed = begin(), *busy = begin(), *last = begin();
    ck_assert_int_eq(append(open, 0, &op), 0);
    ck_assert_int_eq(sw_pair_wait(&op), 0);
    sw_build_fail(failed, &expired);
    sw_device_faulty_arm(sw_pair.f.device, "store", 1, -SW_EAGAIN, SW_FAULT_LATE);
    ck_assert_int_eq(append(busy, 0, &op), 0);
    for (unsigned i = 0; i < N_APPENDS; i++)
        ck_assert_int_eq(append(last, i, &sealed[i]), 0);
    ck_assert_int_eq(sw_build_commit(last, 7, 3, sw_test_op_done, &end, NULL), 0);
    for (int i = 0; i < 50; i++)
        (void)uv_run(&sw_pair.f.loop, UV_RUN_NOWAIT);
    ck_assert(!op.done && !end.done);
    sw_owner_close(sw_pair.f.owner, set_flag, &closed);
    sw_pair.f.owner = NULL;
    sw_pair_release_until(&closed);
    ck_assert(op.calls == 1 && end.calls == 1);
    ck_assert_int_eq(op.outcome.err.code, -SW_ECANCELED);
    ck_assert_int_eq(end.outcome.err.code, -SW_ECANCELED);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("build");
    TCase *all = tcase_create("all"), *disk = tcase_create("disk");
    tcase_add_checked_fixture(all, open_fixture, sw_pair_close);
    tcase_add_loop_test(all, appends_make_a_region, 0, 3);
    tcase_add_test(all, one_buffer_of_many_appends);
    tcase_add_test(all, each_buffer_has_its_reason);
    tcase_add_test(all, a_build_takes_the_time_of_all_its_appends);
    tcase_add_loop_test(all, an_empty_build, 0, 2);
    tcase_add_test(all, invalid_builds_are_refused);
    tcase_add_test(all, invalid_appends_are_refused);
    tcase_add_test(all, an_append_has_no_more_than_its_most_ranges);
    tcase_add_test(all, a_build_is_no_region_yet);
    tcase_add_test(all, a_failed_append_fails_the_build);
    tcase_add_test(all, builds_that_expire);
    tcase_add_test(all, each_append_begins_the_time_anew);
    tcase_add_test(all, a_build_is_canceled_by_its_region_id);
    tcase_add_test(all, no_memory_for_any_part_of_it);
    tcase_add_test(all, builds_end_with_their_owner);
    tcase_add_checked_fixture(disk, open_with_disk, sw_pair_close);
    tcase_add_loop_test(disk, appends_make_a_region, 0, 3);
    tcase_add_test(disk, a_failed_append_fails_the_build);
    suite_add_tcase(suite, all);
    suite_add_tcase(suite, disk);
    return sw_test_run(suite, CK_FORK);
}
