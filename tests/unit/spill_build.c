/* Regions that come to be by several appends: whole or not at all, whatever fails, and for whatever reason it ends. */
#include "base/alloc.h"
#include "spill/build.h"
#include "spill/engine_state.h"
#include "tests/lib/lives.h"
#include "tests/lib/numbers.h"
#include "tests/lib/pair_fixture.h"
#include "tests/lib/run.h"
#include "tests/lib/transfer.h"

#include <check.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { CHUNK = 64 << 10, N = 4, BUFFER_BYTES = 8 * CHUNK, N_APPENDS = 5, N_REGIONS = 6 };

/* Buffers with the client's chunk length, with the device's, an empty one, and one that is shorter than its chunk. */
static const struct sw_build_buffer_config buffers[N] = {{5 * CHUNK + 77, CHUNK, SW_VALUE_NONE},
                                                         {BUFFER_BYTES, 0, SW_VALUE_U32},
                                                         {0, 0, SW_VALUE_I64},
                                                         {1000, CHUNK, SW_VALUE_I8}};
static const struct sw_build_config config = {.buffers = buffers, .n_buffers = N};
/* In which the appends come, and how long each is. */
static const struct {
    unsigned buffer;
    uint64_t at, bytes;
} appends[N_APPENDS] = {
    {0, 0, CHUNK}, {1, 0, BUFFER_BYTES}, {0, CHUNK, 3 * CHUNK}, {3, 0, 1000}, {0, 4 * CHUNK, CHUNK + 77}};

static void open_with(const struct sw_fixture_config *fixture) {
    sw_pair_open(fixture, N * BUFFER_BYTES);
    sw_numbers_fill(sw_pair.from.data + BUFFER_BYTES, 0, BUFFER_BYTES, SW_VALUE_U32, SW_NUMBERS_SORTED, 3, 1);
}

static void open_fixture(void) {
    struct sw_fixture_config fixture = sw_fixture_defaults;
    fixture.max_owner_regions = N_REGIONS;
    open_with(&fixture);
}

/* So little room in memory that frames go to the disk. */
static void open_with_disk(void) {
    struct sw_fixture_config fixture = sw_fixture_defaults;
    fixture.capacity_bytes = fixture.initial_bytes = 1 << 20;
    fixture.staging_bytes = 900 << 10;
    fixture.nvme_bytes = 64 << 20;
    open_with(&fixture);
}

static void open_with_busy_disk(void) {
    sw_pair_open_busy_disk(N * BUFFER_BYTES);
    sw_numbers_fill(sw_pair.from.data + BUFFER_BYTES, 0, BUFFER_BYTES, SW_VALUE_U32, SW_NUMBERS_SORTED, 3, 1);
}

static struct sw_build *begin(void) {
    struct sw_build *build = NULL;
    ck_assert_int_eq(sw_build_begin(sw_pair.f.owner, &config, &build, NULL), 0);
    sw_engine_check(sw_pair.f.engine);
    return build;
}

static struct sw_range range_of(unsigned i) {
    return (struct sw_range){.mem = sw_pair.from_mem,
                             .offset = appends[i].buffer * (uint64_t)BUFFER_BYTES + appends[i].at,
                             .bytes = appends[i].bytes,
                             .buffer = appends[i].buffer,
                             .at = appends[i].at};
}

static int append(struct sw_build *build, unsigned i, struct sw_test_op *op) {
    const struct sw_range range = range_of(i);
    *op = (struct sw_test_op){0};
    const int rc = sw_build_append(build, &range, 1, sw_test_op_done, op, NULL);
    sw_engine_check(sw_pair.f.engine);
    return rc;
}

static int commit(struct sw_build *build, struct sw_test_op *op) {
    *op = (struct sw_test_op){0};
    ck_assert_int_eq(sw_build_commit(build, 7, 3, sw_test_op_done, op, NULL), 0);
    ck_assert(!op->done);
    return sw_pair_wait(op);
}

static int abort_build(struct sw_build *build, struct sw_test_op *op) {
    *op = (struct sw_test_op){0};
    ck_assert_int_eq(sw_build_abort(build, sw_test_op_done, op, NULL), 0);
    ck_assert(!op->done);
    return sw_pair_wait(op);
}

static void restore_and_compare(struct sw_region_id id) {
    struct sw_range ranges[N];
    struct sw_test_op op = {0};
    for (unsigned i = 0; i < N; i++)
        ranges[i] =
            (struct sw_range){.mem = sw_pair.to_mem, .offset = i * (uint64_t)BUFFER_BYTES, .bytes = BUFFER_BYTES};
    memset(sw_pair.to.data, 0, sw_pair.to.bytes);
    ck_assert_int_eq(sw_engine_restore(sw_pair.f.owner, id, SW_TRANSFER(ranges, N), sw_test_op_done, &op, NULL), 0);
    ck_assert_int_eq(sw_pair_wait(&op), 0);
    for (unsigned i = 0; i < N; i++)
        ck_assert(memcmp(sw_pair.to.data + i * BUFFER_BYTES, sw_pair.from.data + i * BUFFER_BYTES,
                         buffers[i].raw_bytes) == 0);
}

static void ck_nothing_left(void) {
    struct sw_engine_stats stats;
    sw_engine_stats(sw_pair.f.engine, &stats);
    ck_assert_uint_eq(stats.n_regions + stats.tiers[0].used_bytes + stats.tiers[1].used_bytes, 0);
    ck_assert_uint_eq(sw_pair.f.owner->n_series, 0);
    sw_engine_check(sw_pair.f.engine);
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

START_TEST(an_empty_build) {
    const struct sw_build_config none = {.buffers = &buffers[2], .n_buffers = 1};
    const struct sw_range range = {.mem = sw_pair.from_mem};
    struct sw_build *build = NULL;
    struct sw_test_op op = {0}, end;
    ck_assert_int_eq(sw_build_begin(sw_pair.f.owner, &none, &build, NULL), 0);
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
    ck_assert_int_eq(try_begin(1, 8, CHUNK + 4096, SW_VALUE_NONE), -SW_EINVAL);
    ck_assert_int_eq(try_begin(1, 8, UINT64_MAX - (UINT64_MAX % CHUNK), SW_VALUE_NONE), -SW_EINVAL);
    ck_assert_int_eq(try_begin(1, 7, CHUNK, SW_VALUE_U32), -SW_EINVAL);
    ck_assert_int_eq(try_begin(1, 8, CHUNK, SW_VALUE_NR), -SW_EINVAL);
    ck_assert_int_eq(try_begin(2, UINT64_MAX, 0, SW_VALUE_NONE), -SW_ERANGE);
    ck_assert_int_eq(try_begin(1, UINT64_C(1) << 50, CHUNK, SW_VALUE_NONE), -SW_ENOSPACE);
    ck_nothing_left();
}
END_TEST

static int try_append(struct sw_build *build, unsigned buffer, uint64_t at, uint64_t bytes) {
    const struct sw_range range = {.mem = sw_pair.from_mem, .bytes = bytes, .buffer = buffer, .at = at};
    return sw_build_append(build, &range, 1, sw_test_op_done, NULL, NULL);
}

/* And the build goes on after each of them. */
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

static const struct sw_err expired = {-SW_ETIMEDOUT, .scope = SW_SCOPE_REQUEST, .msg = "nothing has come for long"};

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

static void set_flag(void *arg) {
    *(bool *)arg = true;
}

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

/* ---- batches ---- */

enum { MANY = 5 };

static void commit_all(struct sw_build *const *builds, unsigned n, struct sw_test_op *ops) {
    struct sw_build_end ends[MANY];
    for (unsigned i = 0; i < n; i++) {
        ops[i] = (struct sw_test_op){0};
        ends[i] = (struct sw_build_end){builds[i], 10 + i, &ops[i]};
    }
    ck_assert_int_eq(sw_build_commit_batch(ends, n, 7, sw_test_op_done, NULL), 0);
    sw_engine_check(sw_pair.f.engine);
}

/* With all appends of all under way: none of the regions is there before all are. */
START_TEST(builds_are_committed_together) {
    struct sw_test_op ops[MANY][N_APPENDS], ends[MANY];
    struct sw_build *builds[MANY];
    struct sw_region_id made[10 + MANY];
    for (unsigned i = 0; i < MANY; i++) {
        builds[i] = begin();
        for (unsigned k = 0; k < N_APPENDS; k++)
            ck_assert_int_eq(append(builds[i], k, &ops[i][k]), 0);
    }
    commit_all(builds, MANY, ends);
    while (!ends[0].done) { /* then the builds are no more */
        unsigned n_out = 0;
        for (unsigned i = 0; i < MANY; i++)
            n_out += builds[i]->series.region == NULL;
        ck_assert(n_out == 0);
        (void)uv_run(&sw_pair.f.loop, UV_RUN_NOWAIT);
    }
    for (unsigned i = 0; i < MANY; i++)
        ck_assert_int_eq(sw_pair_wait(&ends[i]), 0);
    sw_engine_find_by_request(sw_pair.f.owner, 7, made, 10 + MANY);
    for (unsigned i = 0; i < MANY; i++) {
        ck_assert(made[10 + i].slot == ends[i].id.slot && made[10 + i].gen == ends[i].id.gen);
        restore_and_compare(ends[i].id);
    }
    ck_nothing_left();
}
END_TEST

/* One fails: before the commit, or after it; by an append, or because it is not wanted any more. */
START_TEST(one_failure_fails_the_batch) {
    struct sw_test_op ops[MANY][N_APPENDS], ends[MANY];
    struct sw_build *builds[MANY];
    for (unsigned i = 0; i < MANY; i++) {
        builds[i] = begin();
        if (_i == 2 && i == 3)
            sw_device_faulty_arm(sw_pair.f.device, "store", 3, -SW_EGPU, SW_FAULT_LATE);
        for (unsigned k = 0; k < N_APPENDS; k++)
            ck_assert_int_eq(append(builds[i], k, &ops[i][k]), 0);
    }
    if (_i == 0)
        sw_build_fail(builds[3], &expired);
    commit_all(builds, MANY, ends);
    if (_i == 1)
        sw_build_fail(builds[3], &expired);
    for (unsigned i = 0; i < MANY; i++)
        ck_assert_int_eq(sw_pair_wait(&ends[i]), _i == 2 ? -SW_EGPU : -SW_ETIMEDOUT);
    for (unsigned i = 0; i < MANY; i++)
        for (unsigned k = 0; k < N_APPENDS; k++)
            (void)sw_pair_wait(&ops[i][k]);
    sw_device_faulty_arm(sw_pair.f.device, "store", 0, 0, SW_FAULT_LATE);
    ck_nothing_left();
}
END_TEST

START_TEST(invalid_batches_are_refused) {
    struct sw_test_op op, ends[MANY] = {0};
    struct sw_owner *other;
    struct sw_build *builds[2] = {begin(), begin()}, *others = NULL;
    for (unsigned k = 0; k < N_APPENDS; k++)
        for (unsigned i = 0; i < 2; i++) {
            const struct sw_build_end two[] = {{builds[0], 0, NULL}, {builds[1], 1, NULL}};
            ck_assert_int_eq(sw_build_commit_batch(two, 2, 7, sw_test_op_done, NULL), -SW_EINVAL);
            ck_assert_int_eq(append(builds[i], k, &op), 0);
            ck_assert_int_eq(sw_pair_wait(&op), 0);
        }
    ck_assert_int_eq(sw_owner_open(sw_pair.f.engine, &other, NULL), 0);
    const struct sw_build_config nothing = {.buffers = &buffers[2], .n_buffers = 1};
    ck_assert_int_eq(sw_build_begin(other, &nothing, &others, NULL), 0);
    const struct sw_build_end twice[] = {{builds[0], 0, NULL}, {builds[0], 1, NULL}},
                              mixed[] = {{builds[0], 0, NULL}, {others, 1, NULL}};
    struct sw_build_end *many = sw_alloc_array(SW_SERIES_MAX_BATCH + 1, sizeof *many);
    for (unsigned i = 0; i <= SW_SERIES_MAX_BATCH; i++)
        many[i] = (struct sw_build_end){builds[0], 0, NULL};
    ck_assert_int_eq(sw_build_commit_batch(twice, 2, 7, sw_test_op_done, NULL), -SW_EINVAL);
    ck_assert_int_eq(sw_build_commit_batch(mixed, 2, 7, sw_test_op_done, NULL), -SW_EINVAL);
    ck_assert_int_eq(sw_build_commit_batch(many, 0, 7, sw_test_op_done, NULL), -SW_EINVAL);
    ck_assert_int_eq(sw_build_commit_batch(many, SW_SERIES_MAX_BATCH + 1, 7, sw_test_op_done, NULL), -SW_EINVAL);
    sw_free(many);
    commit_all(builds, 2, ends);
    for (unsigned i = 0; i < 2; i++) {
        ck_assert_int_eq(sw_pair_wait(&ends[i]), 0);
        restore_and_compare(ends[i].id);
    }
    sw_fixture_close_owner(&sw_pair.f, other);
    ck_nothing_left();
}
END_TEST

START_TEST(no_memory_for_a_batch) {
    for (unsigned nth = 1; nth < 20; nth++) {
        struct sw_test_op op, ends[2] = {0};
        struct sw_build *builds[2] = {begin(), begin()};
        for (unsigned k = 0; k < N_APPENDS; k++)
            for (unsigned i = 0; i < 2; i++) {
                ck_assert_int_eq(append(builds[i], k, &op), 0);
                ck_assert_int_eq(sw_pair_wait(&op), 0);
            }
        const struct sw_build_end two[] = {{builds[0], 0, &ends[0]}, {builds[1], 1, &ends[1]}};
        sw_alloc_fail_nth(nth);
        int rc = sw_build_commit_batch(two, 2, 7, sw_test_op_done, NULL);
        sw_alloc_fail_nth(0);
        if (rc) {
            ck_assert_int_eq(rc, -SW_ENOMEM);
            ck_assert_int_eq(sw_build_commit_batch(two, 2, 7, sw_test_op_done, NULL), 0);
        }
        rc = sw_pair_wait(&ends[0]);
        ck_assert_int_eq(sw_pair_wait(&ends[1]), rc);
        ck_assert(rc == 0 || rc == -SW_ENOMEM);
        for (unsigned i = 0; !rc && i < 2; i++)
            restore_and_compare(ends[i].id);
        ck_nothing_left();
    }
}
END_TEST

/* Its callbacks run, and the memory of the batch is given back. */
START_TEST(a_batch_ends_with_its_owner) {
    struct sw_test_op ops[MANY][N_APPENDS], ends[MANY];
    struct sw_build *builds[MANY];
    bool closed = false;
    for (unsigned i = 0; i < MANY; i++) {
        builds[i] = begin();
        for (unsigned k = 0; k < N_APPENDS && i != 1; k++)
            ck_assert_int_eq(append(builds[i], k, &ops[i][k]), 0);
        for (unsigned k = 0; k < N_APPENDS && i == 1; k++) {
            ck_assert_int_eq(append(builds[i], k, &ops[i][k]), 0);
            ck_assert_int_eq(sw_pair_wait(&ops[i][k]), 0);
        }
    }
    commit_all(builds, MANY, ends);
    sw_owner_close(sw_pair.f.owner, set_flag, &closed);
    sw_pair.f.owner = NULL;
    sw_pair_release_until(&closed);
    for (unsigned i = 0; i < MANY; i++)
        ck_assert(ends[i].calls == 1 && ends[i].outcome.err.code == -SW_ECANCELED);
}
END_TEST

/* ---- what counts ---- */

START_TEST(an_open_build_counts_for_its_tenant) {
    static struct sw_quota quota;
    struct sw_test_op op, end;
    memset(&quota, 0, sizeof quota);
    sw_owner_set_quota(sw_pair.f.owner, &quota);
    const uint64_t kept = atomic_load(&quota.kept.used_bytes);
    struct sw_build *build = begin();
    ck_assert_uint_eq(quota.n_regions, 1);
    ck_assert_uint_ge(atomic_load(&quota.kept.used_bytes),
                      kept + SW_REGION_KEPT_BYTES + sw_frames_kept_bytes(buffers[0].raw_bytes, CHUNK, false));
    uint64_t stored = 0;
    for (unsigned i = 0; i < N_APPENDS; i++) {
        ck_assert_uint_eq(atomic_load(&quota.bytes), stored);
        ck_assert_int_eq(append(build, i, &op), 0);
        ck_assert_int_eq(sw_pair_wait(&op), 0);
        stored += op.outcome.stored_bytes;
    }
    ck_assert_uint_eq(atomic_load(&quota.bytes), stored);
    if (_i) {
        ck_assert_int_eq(commit(build, &end), 0);
        ck_assert_uint_eq(end.outcome.stored_bytes, stored);
        ck_assert_uint_eq(atomic_load(&quota.bytes), stored);
        ck_assert_uint_eq(atomic_load(&quota.kept.used_bytes),
                          kept + SW_REGION_KEPT_BYTES + sw_frames_kept_bytes(buffers[0].raw_bytes, CHUNK, false) +
                              3 * sw_frames_kept_bytes(0, CHUNK, false) +
                              sw_frames_kept_bytes(9 * CHUNK, CHUNK, false) - sw_frames_kept_bytes(0, CHUNK, false));
        restore_and_compare(end.id);
    } else {
        sw_build_fail(build, &expired); /* the small record stays, and counts, until the client ends the build */
        ck_assert_uint_eq(atomic_load(&quota.bytes) + quota.n_regions, 0);
        ck_assert_uint_eq(atomic_load(&quota.kept.used_bytes),
                          kept + sizeof(struct sw_build) + N * sizeof(struct sw_build_buffer));
        ck_assert_int_eq(commit(build, &end), -SW_ETIMEDOUT);
    }
    ck_assert_uint_eq(atomic_load(&quota.bytes) + quota.n_regions, 0);
    ck_assert_uint_eq(atomic_load(&quota.kept.used_bytes), kept);
    ck_nothing_left();
}
END_TEST

START_TEST(limits_of_a_tenant) {
    static struct sw_quota quota;
    struct sw_build *build, *second = NULL;
    struct sw_test_op op, end;
    memset(&quota, 0, sizeof quota);
    quota.max_regions = 1;
    quota.max_bytes = CHUNK;
    sw_owner_set_quota(sw_pair.f.owner, &quota);
    build = begin();
    ck_assert_int_eq(sw_build_begin(sw_pair.f.owner, &config, &second, NULL), -SW_ETENANTREGIONS);
    int rc = 0;
    for (unsigned i = 0; !rc && i < N_APPENDS; i++) {
        ck_assert_int_eq(append(build, i, &op), 0);
        rc = sw_pair_wait(&op);
    }
    ck_assert_int_eq(rc, -SW_ETENANTBYTES);
    ck_assert_uint_eq(atomic_load(&quota.bytes), 0);
    ck_assert_int_eq(commit(build, &end), -SW_ETENANTBYTES);
    ck_nothing_left();
}
END_TEST

START_TEST(as_many_regions_as_an_owner_may_have) {
    struct sw_build *builds[N_REGIONS] = {NULL}, *more = NULL;
    struct sw_test_op op;
    unsigned n = 0;
    while (n < N_REGIONS)
        builds[n++] = begin();
    ck_assert_int_eq(sw_build_begin(sw_pair.f.owner, &config, &more, NULL), -SW_ELIMIT);
    while (n > 0)
        ck_assert_int_eq(abort_build(builds[--n], &op), -SW_ECANCELED);
    ck_nothing_left();
}
END_TEST

/* Once it is there it may have to leave memory, although nothing else begins or ends. */
START_TEST(committed_regions_move_between_tiers) {
    struct sw_test_op ops[N_APPENDS], end;
    struct sw_region_info info;
    struct sw_build *build = begin();
    for (unsigned i = 0; i < N_APPENDS; i++) {
        ck_assert_int_eq(append(build, i, &ops[i]), 0);
        ck_assert_int_eq(sw_pair_wait(&ops[i]), 0);
    }
    ck_assert_int_eq(commit(build, &end), 0);
    do {
        (void)uv_run(&sw_pair.f.loop, UV_RUN_NOWAIT);
        ck_assert_int_eq(sw_engine_query(sw_pair.f.owner, end.id, &info, NULL), 0);
    } while (strcmp(info.tier, "nvme") != 0);
    restore_and_compare(end.id);
    ck_nothing_left();
}
END_TEST

/* ---- across lives ---- */

static struct sw_life life;

static struct sw_build *life_begin(struct sw_owner *owner, unsigned n_appends, const char *name, bool is_committed) {
    static const struct sw_build_buffer_config two[2] = {{SW_WORLD_REGION_BYTES, CHUNK, SW_VALUE_NONE},
                                                         {SW_WORLD_REGION_BYTES, CHUNK, SW_VALUE_NONE}};
    const struct sw_build_config durable = {.buffers = two, .n_buffers = 2, .name = name};
    struct sw_mem_desc desc = sw_memory_desc(&sw_world.memory);
    struct sw_build *build = NULL;
    struct sw_mem *mem;
    sw_world_fill(sw_world.memory.data, 1);
    ck_assert_int_eq(sw_mem_open(owner, &desc, false, &mem, NULL), 0);
    ck_assert_int_eq(sw_build_begin(owner, &durable, &build, NULL), 0);
    for (unsigned i = 0; i < n_appends; i++) {
        const uint64_t at = i / 2 * UINT64_C(2) * CHUNK, left = SW_WORLD_REGION_BYTES - at;
        const struct sw_range range = {
            .mem = mem, .offset = at, .bytes = left < 2 * CHUNK ? left : 2 * CHUNK, .buffer = i % 2, .at = at};
        struct sw_test_op op = {0};
        ck_assert_int_eq(sw_build_append(build, &range, 1, sw_test_op_done, &op, NULL), 0);
        sw_life_until(&life, &op.done);
        ck_assert_int_eq(op.outcome.err.code, 0);
    }
    sw_mem_close(mem, NULL, NULL);
    if (is_committed) {
        struct sw_test_op op = {0};
        ck_assert_int_eq(sw_build_commit(build, 5, 0, sw_test_op_done, &op, NULL), 0);
        sw_life_until(&life, &op.done);
        ck_assert_int_eq(op.outcome.err.code, 0);
        sw_world.ids[0] = op.outcome.region;
    }
    return build;
}

static struct sw_tier_stats stats_of(struct sw_tier *tier) {
    struct sw_tier_stats stats = {0};
    if (tier)
        tier->ops->stats(tier, &stats);
    return stats;
}

/* Makes the state that outlives the process, as the service manager keeps it. */
static void make_world(uint64_t disk_bytes) {
    sw_world.host_bytes = 2 << 20; /* of which one half is for frames on their way to the disk */
    sw_life_open(&life, disk_bytes);
    sw_life_await_arena(&life);
    ck_assert_int_eq(sw_engine_recover(life.engine, &life.found, NULL), 0);
    sw_life_close(&life, NULL, false);
}

/* Left in order, or killed with all or some chunks stored. */
START_TEST(the_next_process_frees_uncommitted_builds) {
    const uint64_t disk_bytes = sw_life_disks[_i % 2];
    const unsigned n_appends = disk_bytes ? 9 : 5;
    int status;
    make_world(disk_bytes);
    const pid_t child = fork();
    ck_assert_int_ge(child, 0);
    if (child == 0) {
        sw_life_open(&life, disk_bytes);
        struct sw_owner *owner = sw_life_new_owner(&life);
        (void)life_begin(owner, n_appends, NULL, false);
        ck_assert_uint_gt(stats_of(life.host).used_bytes, 0);
        ck_assert(!disk_bytes || stats_of(life.nvme).used_bytes > 0);
        if (_i < 2)
            (void)kill(getpid(), SIGKILL);
        sw_life_close(&life, owner, true);
        _exit(0);
    }
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    ck_assert(_i < 2 ? WIFSIGNALED(status) : WIFEXITED(status) && WEXITSTATUS(status) == 0);
    sw_life_open(&life, disk_bytes);
    ck_assert_int_eq(sw_engine_recover(life.engine, &life.found, NULL), 0);
    ck_assert(life.found.n_sessions == 1 && life.found.n_regions == 0 && life.found.n_damaged == 0);
    ck_assert(_i < 2 && disk_bytes ? life.found.n_released > 0 : life.found.n_released == 0);
    ck_assert_uint_eq(stats_of(life.host).used_bytes + stats_of(life.nvme).used_bytes, 0);
    sw_engine_check(life.engine);
    sw_life_close(&life, NULL, false);
}
END_TEST

static void restore_two(struct sw_owner *owner, struct sw_region_id id) {
    struct sw_memory two = sw_memory_new(2 * SW_WORLD_REGION_BYTES);
    struct sw_mem_desc desc = sw_memory_desc(&two);
    struct sw_test_op op = {0};
    struct sw_mem *mem;
    ck_assert_int_eq(sw_mem_open(owner, &desc, false, &mem, NULL), 0);
    const struct sw_range ranges[2] = {{.mem = mem, .bytes = SW_WORLD_REGION_BYTES},
                                       {.mem = mem, .offset = SW_WORLD_REGION_BYTES, .bytes = SW_WORLD_REGION_BYTES}};
    ck_assert_int_eq(sw_engine_restore(owner, id, SW_TRANSFER(ranges, 2), sw_test_op_done, &op, NULL), 0);
    sw_life_until(&life, &op.done);
    ck_assert_int_eq(op.outcome.err.code, 0);
    sw_world_fill(sw_world.memory.data, 1);
    for (unsigned i = 0; i < 2; i++)
        ck_assert(memcmp(two.data + i * SW_WORLD_REGION_BYTES, sw_world.memory.data, SW_WORLD_REGION_BYTES) == 0);
    sw_mem_close(mem, NULL, NULL);
    sw_memory_free(&two);
}

/* Frames that went to the disk append by append are found there as the region's. */
START_TEST(the_next_process_finds_committed_builds) {
    struct sw_region_id made;
    make_world(sw_life_disks[1]);
    (void)sw_life_next(&life, sw_life_disks[1]);
    struct sw_owner *owner = sw_life_named_owner(&life, 1000, sw_life_token);
    (void)life_begin(owner, 10, "a durable one", true);
    struct sw_build *second = NULL;
    const struct sw_build_config same = {.buffers = buffers, .n_buffers = N, .name = "a durable one"},
                                 other = {.buffers = buffers, .n_buffers = N, .name = "another"};
    ck_assert_int_eq(sw_build_begin(owner, &same, &second, NULL), -SW_EEXIST);
    ck_assert_int_eq(sw_build_begin(owner, &other, &second, NULL), 0);
    ck_assert_int_eq(sw_build_begin(owner, &other, &second, NULL), -SW_EEXIST); /* the name is the open build's */
    ck_assert_int_eq(sw_engine_adopt(owner, "another", &made, NULL), -SW_EBUSY);
    ck_assert_uint_gt(stats_of(life.nvme).used_bytes, 0);
    sw_life_end(&life, owner);

    (void)sw_life_next(&life, sw_life_disks[1]);
    ck_assert(life.found.n_regions == 1 && life.found.n_lost == 0 && life.found.n_released == 0);
    owner = sw_owner_claim(life.engine, 1000, sw_life_token);
    ck_assert_ptr_nonnull(owner);
    sw_engine_find_by_request(owner, 5, &made, 1);
    ck_assert(made.slot == sw_world.ids[0].slot && made.gen == sw_world.ids[0].gen);
    restore_two(owner, made);
    ck_assert_int_eq(sw_engine_drop(owner, made, NULL), 0);
    while (life.engine->balance.n_moves) /* one may have the frames */
        (void)uv_run(&life.loop, UV_RUN_ONCE);
    ck_assert_uint_eq(stats_of(life.host).used_bytes + stats_of(life.nvme).used_bytes, 0);
    sw_life_end(&life, owner);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("build");
    TCase *all = tcase_create("all"), *disk = tcase_create("disk"), *lives = tcase_create("lives"),
          *busy = tcase_create("busy");
    tcase_add_checked_fixture(all, open_fixture, sw_pair_close);
    tcase_add_loop_test(all, appends_make_a_region, 0, 3);
    tcase_add_test(all, one_buffer_of_many_appends);
    tcase_add_loop_test(all, an_empty_build, 0, 2);
    tcase_add_test(all, invalid_builds_are_refused);
    tcase_add_test(all, invalid_appends_are_refused);
    tcase_add_test(all, a_build_is_no_region_yet);
    tcase_add_test(all, a_failed_append_fails_the_build);
    tcase_add_test(all, builds_that_expire);
    tcase_add_test(all, a_build_is_canceled_by_its_region_id);
    tcase_add_test(all, no_memory_for_any_part_of_it);
    tcase_add_test(all, builds_end_with_their_owner);
    tcase_add_test(all, builds_are_committed_together);
    tcase_add_loop_test(all, one_failure_fails_the_batch, 0, 3);
    tcase_add_test(all, invalid_batches_are_refused);
    tcase_add_test(all, no_memory_for_a_batch);
    tcase_add_test(all, a_batch_ends_with_its_owner);
    tcase_add_loop_test(all, an_open_build_counts_for_its_tenant, 0, 2);
    tcase_add_test(all, limits_of_a_tenant);
    tcase_add_test(all, as_many_regions_as_an_owner_may_have);
    tcase_add_checked_fixture(disk, open_with_disk, sw_pair_close);
    tcase_add_loop_test(disk, appends_make_a_region, 0, 3);
    tcase_add_test(disk, a_failed_append_fails_the_build);
    tcase_add_checked_fixture(busy, open_with_busy_disk, sw_pair_close);
    tcase_add_test(busy, committed_regions_move_between_tiers);
    suite_add_tcase(suite, busy);
    tcase_add_checked_fixture(lives, sw_world_setup, sw_world_teardown);
    tcase_add_loop_test(lives, the_next_process_frees_uncommitted_builds, 0, 4);
    tcase_add_test(lives, the_next_process_finds_committed_builds);
    suite_add_tcase(suite, all);
    suite_add_tcase(suite, disk);
    suite_add_tcase(suite, lives);
    return sw_test_run(suite, CK_FORK);
}
