/* appends.h - builds on the engine of lib/pair_fixture.h: the appends of one region, and what has to come back.
 *
 * For one test program each: its state is static. What does not fit fails the test. thread: one, the loop's. */
#ifndef SW_TEST_APPENDS_H
#define SW_TEST_APPENDS_H

#include "spill/build.h"
#include "spill/engine_state.h"
#include "tests/lib/numbers.h"
#include "tests/lib/pair_fixture.h"
#include "tests/lib/transfer.h"

#include <check.h>
#include <string.h>

enum { CHUNK = 64 << 10, N = 4, BUFFER_BYTES = 8 * CHUNK, N_APPENDS = 5, N_REGIONS = 6 };

/* Buffers with the client's chunk length, with the device's, an empty one, and one that is shorter than its chunk. */
static const struct sw_build_buffer_config buffers[N] = {{5 * CHUNK + 77, CHUNK, SW_VALUE_NONE},
                                                         {BUFFER_BYTES, 0, SW_VALUE_U32},
                                                         {0, 0, SW_VALUE_I64},
                                                         {1000, CHUNK, SW_VALUE_I8}};
static const struct sw_build_config config = {.buffers = buffers, .n_buffers = N};
/* The appends, in their order. */
static const struct {
    unsigned buffer;
    uint64_t at, bytes;
} appends[N_APPENDS] = {
    {0, 0, CHUNK}, {1, 0, BUFFER_BYTES}, {0, CHUNK, 3 * CHUNK}, {3, 0, 1000}, {0, 4 * CHUNK, CHUNK + 77}};

static inline void open_with(const struct sw_fixture_config *fixture) {
    sw_pair_open(fixture, N * BUFFER_BYTES);
    sw_numbers_fill(sw_pair.from.data + BUFFER_BYTES, 0, BUFFER_BYTES, SW_VALUE_U32, SW_NUMBERS_SORTED, 3, 1);
}

static inline void open_fixture(void) {
    struct sw_fixture_config fixture = sw_fixture_defaults;
    fixture.max_owner_regions = N_REGIONS;
    open_with(&fixture);
}

static inline struct sw_build *begin(void) {
    struct sw_build *build = NULL;
    ck_assert_int_eq(sw_build_begin(sw_pair.f.owner, &config, &build, NULL), 0);
    sw_engine_check(sw_pair.f.engine);
    return build;
}

static inline struct sw_range range_of(unsigned i) {
    return (struct sw_range){.mem = sw_pair.from_mem,
                             .offset = appends[i].buffer * (uint64_t)BUFFER_BYTES + appends[i].at,
                             .bytes = appends[i].bytes,
                             .buffer = appends[i].buffer,
                             .at = appends[i].at};
}

static inline int append(struct sw_build *build, unsigned i, struct sw_test_op *op) {
    const struct sw_range range = range_of(i);
    *op = (struct sw_test_op){0};
    const int rc = sw_build_append(build, &range, 1, sw_test_op_done, op, NULL);
    sw_engine_check(sw_pair.f.engine);
    return rc;
}

static inline int commit(struct sw_build *build, struct sw_test_op *op) {
    *op = (struct sw_test_op){0};
    ck_assert_int_eq(sw_build_commit(build, 7, 3, sw_test_op_done, op, NULL), 0);
    ck_assert(!op->done);
    return sw_pair_wait(op);
}

static inline int abort_build(struct sw_build *build, struct sw_test_op *op) {
    *op = (struct sw_test_op){0};
    ck_assert_int_eq(sw_build_abort(build, sw_test_op_done, op, NULL), 0);
    ck_assert(!op->done);
    return sw_pair_wait(op);
}

static inline void restore_and_compare(struct sw_region_id id) {
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

static inline void ck_nothing_left(void) {
    struct sw_engine_stats stats;
    sw_engine_stats(sw_pair.f.engine, &stats);
    ck_assert_uint_eq(stats.n_regions + stats.tiers[0].used_bytes + stats.tiers[1].used_bytes, 0);
    ck_assert_uint_eq(sw_pair.f.owner->n_series, 0);
    sw_engine_check(sw_pair.f.engine);
}

static const struct sw_err expired = {-SW_ETIMEDOUT, .scope = SW_SCOPE_REQUEST, .msg = "nothing has come for long"};

static inline void set_flag(void *arg) {
    *(bool *)arg = true;
}

#endif
