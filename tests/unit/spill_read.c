/* Regions that come back chunk by chunk: every byte, before the stored copy is dropped, and no damaged byte. */
#include "base/alloc.h"
#include "spill/build.h"
#include "spill/engine_state.h"
#include "spill/read.h"
#include "tests/lib/lives.h"
#include "tests/lib/pair_fixture.h"
#include "tests/lib/run.h"
#include "tests/lib/transfer.h"

#include <check.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

enum { CHUNK = 64 << 10, N = 3, BUFFER_BYTES = 6 * CHUNK, N_CHUNKS = 8 };

static const uint64_t lengths[N] = {5 * CHUNK + 77, 0, 2 * CHUNK};
static const struct sw_build_buffer_config buffers[N] = {
    {5 * CHUNK + 77, CHUNK, SW_VALUE_NONE}, {0, 0, SW_VALUE_I64}, {2 * CHUNK, CHUNK, SW_VALUE_I32}};
/* The region's chunks, in an order of their own. */
static const struct {
    unsigned buffer;
    uint64_t at;
} chunks[N_CHUNKS] = {{2, CHUNK},     {0, 3 * CHUNK}, {0, 0},         {2, 0},
                      {0, 5 * CHUNK}, {0, CHUNK},     {0, 2 * CHUNK}, {0, 4 * CHUNK}};

static void open_fixture(void) {
    sw_pair_open(NULL, N * BUFFER_BYTES);
}

static void open_with_disk(void) {
    sw_pair_open_busy_disk(N * BUFFER_BYTES);
}

/* A region of all buffers, by a build. */
static struct sw_region_id store(void) {
    const struct sw_build_config config = {.buffers = buffers, .n_buffers = N};
    struct sw_build *build = NULL;
    struct sw_range ranges[2] = {
        {.mem = sw_pair.from_mem, .bytes = lengths[0]},
        {.mem = sw_pair.from_mem, .offset = 2 * BUFFER_BYTES, .bytes = lengths[2], .buffer = 2}};
    struct sw_test_op op = {0}, end = {0};
    ck_assert_int_eq(sw_build_begin(sw_pair.f.owner, &config, &build, NULL), 0);
    ck_assert_int_eq(sw_build_append(build, ranges, 2, sw_test_op_done, &op, NULL), 0);
    ck_assert_int_eq(sw_build_commit(build, 1, 0, sw_test_op_done, &end, NULL), 0);
    ck_assert_int_eq(sw_pair_wait(&end), 0);
    memset(sw_pair.to.data, 0, sw_pair.to.bytes);
    return end.outcome.region;
}

static struct sw_read *begin(struct sw_region_id id) {
    struct sw_buffer_info infos[SW_FRAMES_MAX_BUFFERS];
    struct sw_read *read = NULL;
    unsigned n = 0;
    ck_assert_int_eq(sw_read_begin(sw_pair.f.owner, id, &read, infos, &n, NULL), 0);
    ck_assert_uint_eq(n, N);
    for (unsigned i = 0; i < N; i++) {
        ck_assert_uint_eq(infos[i].raw_bytes, lengths[i]);
        ck_assert(infos[i].chunk_bytes == CHUNK || lengths[i] == 0);
        ck_assert(infos[i].type == buffers[i].type || infos[i].type == SW_VALUE_NONE);
    }
    sw_engine_check(sw_pair.f.engine);
    return read;
}

static struct sw_range range_of(unsigned i, uint64_t room) {
    return (struct sw_range){.mem = sw_pair.to_mem,
                             .offset = chunks[i].buffer * (uint64_t)BUFFER_BYTES + chunks[i].at,
                             .bytes = room,
                             .buffer = chunks[i].buffer,
                             .at = chunks[i].at};
}

static uint64_t bytes_of(unsigned i) {
    const uint64_t left = lengths[chunks[i].buffer] - chunks[i].at;
    return left < CHUNK ? left : CHUNK;
}

static int ask(struct sw_read *read, unsigned i, uint64_t room, struct sw_test_op *op) {
    const struct sw_range range = range_of(i, room);
    *op = (struct sw_test_op){0};
    const int rc = sw_read_chunks(read, &range, 1, sw_test_op_done, op, NULL);
    sw_engine_check(sw_pair.f.engine);
    return rc;
}

static int end(struct sw_read *read, bool keep, struct sw_test_op *op) {
    *op = (struct sw_test_op){0};
    const int rc = sw_read_end(read, keep, sw_test_op_done, op, NULL);
    ck_assert(!op->done);
    return rc ? rc : sw_pair_wait(op);
}

static void ck_back(void) {
    for (unsigned i = 0; i < N; i++)
        ck_assert(memcmp(sw_pair.to.data + i * BUFFER_BYTES, sw_pair.from.data + i * BUFFER_BYTES, lengths[i]) == 0);
    memset(sw_pair.to.data, 0, sw_pair.to.bytes);
}

/* A move may have the frames of a region that is gone. */
static void ck_nothing_left(void) {
    struct sw_engine_stats stats;
    while (sw_pair.f.engine->balance.n_moves)
        (void)uv_run(&sw_pair.f.loop, UV_RUN_ONCE);
    sw_engine_stats(sw_pair.f.engine, &stats);
    ck_assert_uint_eq(stats.n_regions + stats.tiers[0].used_bytes + stats.tiers[1].used_bytes, 0);
    ck_assert_uint_eq(sw_pair.f.owner->n_series, 0);
    sw_engine_check(sw_pair.f.engine);
}

static void drop(struct sw_region_id id) {
    ck_assert_int_eq(sw_fixture_state(&sw_pair.f, id), SW_REGION_OUT);
    ck_assert_int_eq(sw_engine_drop(sw_pair.f.owner, id, NULL), 0);
    ck_nothing_left();
}

/* ---- what comes back ---- */

/* One chunk after the other; or all under way when the end comes; or all in one. */
START_TEST(chunks_make_a_region_whole) {
    for (int keep = 1; keep >= 0; keep--) {
        struct sw_test_op ops[N_CHUNKS] = {0}, last;
        struct sw_range ranges[N_CHUNKS];
        const struct sw_region_id id = store();
        const uint64_t stored_bytes = sw_pair.f.engine->store.regions.regions[id.slot].stored_bytes;
        struct sw_read *read = begin(id);
        for (unsigned i = 0; i < N_CHUNKS; i++) {
            ranges[i] = range_of(i, CHUNK);
            if (_i == 0 && !keep) /* not even for the last one alone */
                ck_assert_int_eq(end(read, false, &last), -SW_EINVAL);
            if (_i < 2)
                ck_assert_int_eq(ask(read, i, CHUNK, &ops[i]), 0);
            if (_i == 0) {
                ck_assert_int_eq(sw_pair_wait(&ops[i]), 0);
                ck_assert_uint_eq(ops[i].outcome.raw_bytes, bytes_of(i));
                ck_assert(
                    memcmp(sw_pair.to.data + ranges[i].offset, sw_pair.from.data + ranges[i].offset, bytes_of(i)) == 0);
            }
        }
        if (_i == 2)
            ck_assert_int_eq(sw_read_chunks(read, ranges, N_CHUNKS, sw_test_op_done, &ops[0], NULL), 0);
        ck_assert_int_eq(end(read, keep, &last), 0);
        for (unsigned i = 0; i < (_i < 2 ? N_CHUNKS : 1); i++)
            ck_assert(ops[i].calls == 1 && ops[i].outcome.err.code == 0);
        ck_assert_uint_eq(last.outcome.raw_bytes, lengths[0] + lengths[2]);
        ck_assert_uint_eq(last.outcome.stored_bytes, stored_bytes);
        ck_back();
        if (keep)
            drop(id);
        else
            ck_assert_int_eq(sw_fixture_state(&sw_pair.f, id), -SW_ESTALE);
        ck_nothing_left();
    }
}
END_TEST

/* As many chunks come as fit, to any place, also a second time. */
START_TEST(as_many_chunks_as_fit) {
    static const struct {
        uint64_t at, room, bytes;
    } asked[] = {{0, 2 * CHUNK + 5, 2 * CHUNK},
                 {CHUNK, BUFFER_BYTES, 4 * CHUNK + 77},
                 {4 * CHUNK, CHUNK + 76, CHUNK},
                 {4 * CHUNK, CHUNK + 77, CHUNK + 77},
                 {5 * CHUNK, 77, 77}};
    const struct sw_region_id id = store();
    struct sw_read *read = begin(id);
    struct sw_test_op op, last;
    uint64_t raw_bytes = 0, stored_bytes = 0;
    for (size_t i = 0; i < sizeof asked / sizeof asked[0]; i++) {
        const struct sw_range range = {.mem = sw_pair.to_mem, .offset = 3, .bytes = asked[i].room, .at = asked[i].at};
        op = (struct sw_test_op){0};
        memset(sw_pair.to.data, 0xAA, sw_pair.to.bytes);
        ck_assert_int_eq(sw_read_chunks(read, &range, 1, sw_test_op_done, &op, NULL), 0);
        ck_assert_int_eq(sw_pair_wait(&op), 0);
        ck_assert_uint_eq(op.outcome.raw_bytes, asked[i].bytes);
        raw_bytes += asked[i].bytes;
        stored_bytes += op.outcome.stored_bytes;
        ck_assert(memcmp(sw_pair.to.data + 3, sw_pair.from.data + asked[i].at, asked[i].bytes) == 0);
        ck_assert(sw_pair.to.data[2] == 0xAA && sw_pair.to.data[3 + asked[i].bytes] == 0xAA);
    }
    ck_assert_int_eq(end(read, false, &last), -SW_EINVAL); /* the other buffer is not back */
    ck_assert_int_eq(sw_read_state(read), SW_READ_OPEN);
    ck_assert_int_eq(end(read, true, &last), 0);
    ck_assert_uint_eq(last.outcome.raw_bytes, raw_bytes); /* what was read, not what the region has */
    ck_assert_uint_eq(last.outcome.stored_bytes, stored_bytes);
    drop(id);
}
END_TEST

/* Spilled by one operation, and of one buffer: there is one way of storing, and one way back. */
START_TEST(regions_spilled_by_one_operation_are_read) {
    struct sw_buffer_info infos[SW_FRAMES_MAX_BUFFERS];
    struct sw_read *read = NULL;
    struct sw_test_op op, last;
    unsigned n = 0;
    const uint64_t bytes = _i ? 3 * CHUNK + 1 : 0;
    ck_assert_int_eq(sw_fixture_spill(&sw_pair.f, &sw_pair.from, 0, bytes, &op), 0);
    ck_assert_int_eq(sw_read_begin(sw_pair.f.owner, op.id, &read, infos, &n, NULL), 0);
    ck_assert(n == 1 && infos[0].raw_bytes == bytes);
    const struct sw_range range = {.mem = sw_fixture_mem(&sw_pair.f, sw_pair.f.owner, &sw_pair.to, true),
                                   .bytes = bytes};
    op = (struct sw_test_op){.id = op.id};
    ck_assert_int_eq(sw_read_chunks(read, &range, 1, sw_test_op_done, &op, NULL), 0);
    ck_assert_int_eq(end(read, false, &last), 0);
    ck_assert(op.calls == 1 && memcmp(sw_pair.to.data, sw_pair.from.data, bytes) == 0);
    sw_fixture_close_mem(&sw_pair.f, range.mem);
    ck_nothing_left();
}
END_TEST

/* ---- what is refused ---- */

static int try_chunks(struct sw_read *read, unsigned buffer, uint64_t at, uint64_t room) {
    const struct sw_range range = {.mem = sw_pair.to_mem, .bytes = room, .buffer = buffer, .at = at};
    return sw_read_chunks(read, &range, 1, sw_test_op_done, NULL, NULL);
}

START_TEST(invalid_chunks_are_refused) {
    const struct sw_region_id id = store();
    struct sw_read *read = begin(id), *second = NULL;
    struct sw_buffer_info infos[SW_FRAMES_MAX_BUFFERS];
    struct sw_test_op op, last = {0};
    struct sw_range ranges[N];
    unsigned n;
    ck_assert_int_eq(try_chunks(read, N, 0, CHUNK), -SW_EINVAL);
    ck_assert_int_eq(try_chunks(read, 0, 1, CHUNK), -SW_EINVAL);
    ck_assert_int_eq(try_chunks(read, 0, 6 * CHUNK, CHUNK), -SW_EINVAL);
    ck_assert_int_eq(try_chunks(read, 0, lengths[0], CHUNK), -SW_EINVAL);
    for (unsigned i = 0; i < N; i++)
        ck_assert_int_eq(lengths[i] ? try_chunks(read, i, lengths[i], CHUNK) : -SW_EINVAL, -SW_EINVAL);
    ck_assert_int_eq(try_chunks(read, 0, 0, CHUNK - 1), -SW_ETOOSMALL);
    ck_assert_int_eq(try_chunks(read, 0, 5 * CHUNK, 76), -SW_ETOOSMALL);
    ck_assert_int_eq(try_chunks(read, 0, 0, sw_pair.to.bytes + 1), -SW_ERANGE);
    ck_assert_int_eq(sw_read_chunks(read, ranges, 0, sw_test_op_done, NULL, NULL), -SW_EINVAL);
    /* All others get an error that the region is in use. */
    for (unsigned i = 0; i < N; i++)
        ranges[i] = (struct sw_range){.mem = sw_pair.to_mem, .bytes = BUFFER_BYTES};
    ck_assert_int_eq(sw_read_begin(sw_pair.f.owner, id, &second, infos, &n, NULL), -SW_EBUSY);
    ck_assert_int_eq(
        sw_engine_restore(sw_pair.f.owner, id, SW_TRANSFER(ranges, N, .keep = true), sw_test_op_done, &op, NULL),
        -SW_EBUSY);
    ck_assert_int_eq(sw_engine_drop(sw_pair.f.owner, id, NULL), -SW_EBUSY);
    ck_assert_int_eq(sw_engine_advise(sw_pair.f.owner, id, SW_ADVISE_PIN, 1, NULL), -SW_EBUSY);
    ck_assert_int_eq(sw_fixture_state(&sw_pair.f, id), SW_REGION_RESTORING);
    /* None of this has harmed the read. */
    ck_assert_int_eq(ask(read, 2, BUFFER_BYTES, &op), 0);
    ck_assert_int_eq(sw_pair_wait(&op), 0);
    ck_assert_int_eq(sw_read_end(read, false, sw_test_op_done, &last, NULL), -SW_EINVAL);
    ck_assert_int_eq(ask(read, 3, BUFFER_BYTES, &op), 0);
    ck_assert_int_eq(sw_read_end(read, false, sw_test_op_done, &last, NULL), 0);
    ck_assert_int_eq(sw_read_state(read), SW_READ_ENDING);
    ck_assert_int_eq(sw_read_end(read, false, sw_test_op_done, &last, NULL), -SW_EINVAL);
    ck_assert_int_eq(try_chunks(read, 0, 0, CHUNK), -SW_EINVAL);
    ck_assert_int_eq(sw_pair_wait(&last), 0);
    ck_back();
    ck_assert_int_eq(sw_read_begin(sw_pair.f.owner, id, &second, infos, &n, NULL), -SW_ESTALE);
    ck_nothing_left();
}
END_TEST

START_TEST(a_packed_region_is_not_read) {
    struct sw_buffer_info infos[SW_FRAMES_MAX_BUFFERS];
    struct sw_read *read;
    struct sw_test_op op;
    unsigned n;
    ck_assert_int_eq(sw_fixture_pack(&sw_pair.f, &sw_pair.from, 0, 3 * CHUNK, &op), 0);
    ck_assert_int_eq(sw_read_begin(sw_pair.f.owner, op.id, &read, infos, &n, NULL), -SW_EINVAL);
    ck_assert_int_eq(sw_fixture_unpack(&sw_pair.f, op.id, &sw_pair.from, 0, 3 * CHUNK, &op), 0);
    ck_nothing_left();
}
END_TEST

/* ---- what ends it ---- */

/* The region is whole after any of it. */
START_TEST(a_failed_chunk_fails_the_read) {
    static const char *const steps[] = {"load", "decode", "restore_group"};
    unsigned n_all = 0;
    for (size_t s = 0; s < sizeof steps / sizeof steps[0]; s++)
        for (unsigned nth = 1; nth <= 4; nth++) {
            struct sw_test_op ops[N_CHUNKS] = {0}, last, late;
            const struct sw_region_id id = store();
            struct sw_read *read = begin(id);
            unsigned n_failed = 0;
            sw_device_faulty_arm(sw_pair.f.device, steps[s], nth, -SW_EGPU, nth % 2 ? SW_FAULT_LATE : SW_FAULT_AT_ONCE);
            for (unsigned i = 0; i < N_CHUNKS; i++)
                ck_assert_int_eq(ask(read, i, CHUNK, &ops[i]), 0);
            for (unsigned i = 0; i < N_CHUNKS; i++)
                n_failed += sw_pair_wait(&ops[i]) == -SW_EGPU;
            sw_device_faulty_arm(sw_pair.f.device, steps[s], 0, 0, SW_FAULT_LATE);
            n_all += n_failed;
            if (n_failed) {
                ck_assert_int_eq(sw_read_state(read), SW_READ_FAILED);
                ck_assert_int_eq(sw_fixture_state(&sw_pair.f, id), SW_REGION_OUT); /* and others may have it */
                ck_assert_int_eq(ask(read, 0, CHUNK, &late), -SW_EGPU);
                ck_assert_int_eq(end(read, nth % 2, &last), -SW_EGPU);
                drop(id);
            } else {
                ck_assert_int_eq(end(read, false, &last), 0);
                ck_back();
            }
            ck_nothing_left();
        }
    ck_assert_uint_gt(n_all, 8);
}
END_TEST

START_TEST(damage_fails_only_its_chunk) {
    const struct sw_region_id id = store();
    struct sw_region *region = &sw_pair.f.engine->store.regions.regions[id.slot];
    struct sw_buffer_info infos[SW_FRAMES_MAX_BUFFERS];
    struct sw_test_op op, last;
    struct sw_read *read = begin(id);
    unsigned n;
    uint8_t *stored = region->frames->stored[3].extents[0].memory;
    stored[100] ^= 1;
    for (unsigned i = 2; i < N_CHUNKS; i++) { /* all but buffer 0's chunk 3 */
        ck_assert_int_eq(ask(read, i, CHUNK, &op), 0);
        ck_assert_int_eq(sw_pair_wait(&op), 0);
    }
    memset(sw_pair.to.data, 0, sw_pair.to.bytes);
    ck_assert_int_eq(ask(read, 1, CHUNK, &op), 0);
    const int rc = sw_pair_wait(&op);
    ck_assert(rc == -SW_ECHECKSUM || rc == -SW_EFRAME);
    ck_assert_int_eq(op.outcome.err.scope, SW_SCOPE_REGION);
    ck_assert_int_eq(sw_fixture_state(&sw_pair.f, id), SW_REGION_LOST);
    ck_assert_int_eq(sw_read_begin(sw_pair.f.owner, id, &read, infos, &n, NULL), -SW_ELOST);
    ck_assert_int_eq(end(read, true, &last), rc);
    ck_assert_int_eq(sw_engine_drop(sw_pair.f.owner, id, NULL), 0);
    ck_nothing_left();
}
END_TEST

static const struct sw_err expired = {-SW_ETIMEDOUT, .scope = SW_SCOPE_REQUEST, .msg = "nothing was asked for long"};

START_TEST(reads_that_expire) {
    for (unsigned n = 0; n <= 3; n++)
        for (int hangs = 0; hangs < 2; hangs++) {
            struct sw_test_op ops[3] = {0}, last = {0};
            const struct sw_region_id id = store();
            struct sw_read *read = begin(id);
            if (hangs)
                sw_device_faulty_arm(sw_pair.f.device, "decode", 1, -SW_EAGAIN, SW_FAULT_LATE);
            for (unsigned i = 0; i < n; i++)
                ck_assert_int_eq(ask(read, 2, BUFFER_BYTES, &ops[i]), 0);
            ck_assert_uint_eq(sw_read_idle_since_us(read) == 0, n > 0);
            for (unsigned i = 0; !hangs && i < n; i++)
                ck_assert_int_eq(sw_pair_wait(&ops[i]), 0);
            const bool is_ending = n == 3 && hangs;
            if (is_ending)
                ck_assert_int_eq(sw_read_end(read, true, sw_test_op_done, &last, NULL), 0);
            sw_read_fail(read, &expired);
            sw_read_fail(read, &(struct sw_err){.code = -SW_EIO});
            sw_engine_check(sw_pair.f.engine);
            for (unsigned i = 0; i < n; i++)
                ck_assert_int_eq(sw_pair_wait(&ops[i]), hangs ? -SW_ETIMEDOUT : 0);
            ck_assert_int_eq(is_ending ? sw_pair_wait(&last) : end(read, false, &last), -SW_ETIMEDOUT);
            sw_device_faulty_arm(sw_pair.f.device, "decode", 0, 0, SW_FAULT_LATE);
            drop(id);
        }
}
END_TEST

START_TEST(no_memory_for_any_part_of_it) {
    for (unsigned nth = 1; nth < 40; nth++) {
        struct sw_buffer_info infos[SW_FRAMES_MAX_BUFFERS];
        struct sw_test_op op, last = {0};
        struct sw_read *read = NULL;
        unsigned n;
        const struct sw_region_id id = store();
        sw_alloc_fail_nth(nth);
        int rc = sw_read_begin(sw_pair.f.owner, id, &read, infos, &n, NULL);
        for (unsigned i = 0; !rc && i < N_CHUNKS; i++)
            if (!(rc = ask(read, i, CHUNK, &op)))
                rc = sw_pair_wait(&op);
        if (read)
            (void)end(read, rc != 0, &last);
        sw_alloc_fail_nth(0);
        ck_assert(rc == 0 || rc == -SW_ENOMEM);
        if (rc)
            drop(id);
        else
            ck_back();
        ck_nothing_left();
    }
}
END_TEST

/* ---- batches ---- */

enum { MANY = 3 };

static void ask_all(struct sw_read *read, struct sw_test_op *op) {
    struct sw_range ranges[N_CHUNKS];
    for (unsigned i = 0; i < N_CHUNKS; i++)
        ranges[i] = range_of(i, CHUNK);
    *op = (struct sw_test_op){0};
    ck_assert_int_eq(sw_read_chunks(read, ranges, N_CHUNKS, sw_test_op_done, op, NULL), 0);
}

/* No stored copy goes before all are back. One of them fails: with a chunk, before the end or after it; or is not
 * wanted any more; or is found bad, which says nothing of the others. */
START_TEST(reads_end_together) {
    static const int results[] = {0, -SW_ETIMEDOUT, -SW_EGPU, -SW_ETIMEDOUT, -SW_ECHECKSUM};
    struct sw_test_op ops[MANY], last[MANY] = {0};
    struct sw_region_id ids[MANY];
    struct sw_read_end ends[MANY];
    for (unsigned i = 0; i < MANY; i++) {
        ids[i] = store();
        ends[i] = (struct sw_read_end){begin(ids[i]), false, &last[i]};
    }
    ask_all(ends[0].read, &ops[0]);
    ask_all(ends[2].read, &ops[2]);
    ck_assert_int_eq(sw_read_end_batch(ends, MANY, sw_test_op_done, NULL), -SW_EINVAL);
    for (unsigned i = 0; i < MANY; i++)
        ck_assert_int_eq(sw_read_state(ends[i].read), SW_READ_OPEN);
    if (_i == 1)
        sw_read_fail(ends[1].read, &expired);
    if (_i == 2)
        sw_device_faulty_arm(sw_pair.f.device, "decode", 2, -SW_EGPU, SW_FAULT_LATE);
    if (_i == 4) /* in one of them alone */
        ((uint8_t *)sw_pair.f.engine->store.regions.regions[ids[1].slot].frames->stored[3].extents[0].memory)[100] ^= 1;
    if (_i != 1)
        ask_all(ends[1].read, &ops[1]);
    ck_assert_int_eq(sw_read_end_batch(ends, MANY, sw_test_op_done, NULL), 0);
    ck_assert_int_eq(sw_read_end_batch(ends, MANY, sw_test_op_done, NULL), -SW_EINVAL);
    if (_i == 3)
        sw_read_fail(ends[1].read, &expired);
    for (unsigned i = 0; i < MANY; i++)
        ck_assert_int_eq(sw_pair_wait(&last[i]), results[_i]);
    for (unsigned i = 0; i < MANY; i++)
        if (_i != 1 || i != 1)
            (void)sw_pair_wait(&ops[i]);
    sw_device_faulty_arm(sw_pair.f.device, "decode", 0, 0, SW_FAULT_LATE);
    for (unsigned i = 0; i < MANY; i++) {
        ck_assert_int_eq(sw_fixture_state(&sw_pair.f, ids[i]), _i == 0             ? -SW_ESTALE
                                                               : _i == 4 && i == 1 ? (int)SW_REGION_LOST
                                                                                   : (int)SW_REGION_OUT);
        if (_i)
            ck_assert_int_eq(sw_engine_drop(sw_pair.f.owner, ids[i], NULL), 0);
    }
    ck_nothing_left();
}
END_TEST

static void set_flag(void *arg) {
    *(bool *)arg = true;
}

START_TEST(reads_end_with_their_owner) {
    struct sw_test_op op = {0}, last = {0};
    bool closed = false;
    struct sw_read *open = begin(store()), *failed = begin(store()), *busy = begin(store()), *ending = begin(store());
    ck_assert_int_eq(ask(open, 0, CHUNK, &op), 0);
    ck_assert_int_eq(sw_pair_wait(&op), 0);
    sw_read_fail(failed, &expired);
    sw_device_faulty_arm(sw_pair.f.device, "decode", 1, -SW_EAGAIN, SW_FAULT_LATE);
    ck_assert_int_eq(ask(busy, 2, BUFFER_BYTES, &op), 0);
    struct sw_test_op other = {0};
    ck_assert_int_eq(ask(ending, 2, BUFFER_BYTES, &other), 0);
    ck_assert_int_eq(sw_read_end(ending, true, sw_test_op_done, &last, NULL), 0);
    sw_owner_close(sw_pair.f.owner, set_flag, &closed);
    sw_pair.f.owner = NULL;
    sw_pair_release_until(&closed);
    ck_assert(op.calls == 1 && other.calls == 1 && last.calls == 1);
    ck_assert_int_eq(last.outcome.err.code, -SW_ECANCELED);
}
END_TEST

/* After a read the tenant's memory is as before. */
START_TEST(an_open_read_counts_for_its_tenant) {
    static struct sw_quota quota;
    struct sw_test_op op, last;
    memset(&quota, 0, sizeof quota);
    sw_owner_set_quota(sw_pair.f.owner, &quota);
    const struct sw_region_id id = store();
    const uint64_t kept = atomic_load(&quota.kept.used_bytes), stored = atomic_load(&quota.bytes);
    struct sw_read *read = begin(id);
    ck_assert_uint_ge(atomic_load(&quota.kept.used_bytes), kept + sizeof *read);
    ck_assert_int_eq(ask(read, 2, BUFFER_BYTES, &op), 0);
    ck_assert_int_eq(sw_pair_wait(&op), 0);
    ck_assert_uint_eq(atomic_load(&quota.bytes), stored);
    ck_assert_int_eq(end(read, true, &last), 0);
    ck_assert_uint_eq(atomic_load(&quota.kept.used_bytes), kept);
    ck_assert_uint_eq(atomic_load(&quota.bytes), stored);
    drop(id);
}
END_TEST

/* The first chunks wait until a move has been canceled: some frames are here by then, and some on the disk. The
 * session's other operations go on. */
START_TEST(read_while_it_moves) {
    const struct sw_range range = {.mem = sw_pair.from_mem, .bytes = BUFFER_BYTES};
    for (int i = 0; i < 12; i++) {
        struct sw_test_op ops[N_CHUNKS] = {0}, last, other = {0};
        const struct sw_region_id id = store();
        for (int k = 0; k < i; k++)
            (void)uv_run(&sw_pair.f.loop, UV_RUN_NOWAIT);
        struct sw_read *read = begin(id);
        for (unsigned c = 0; c < N_CHUNKS; c++)
            ck_assert_int_eq(ask(read, c, CHUNK, &ops[c]), 0);
        ck_assert_int_eq(
            sw_engine_spill(sw_pair.f.owner, SW_TRANSFER(&range, 1), sw_test_op_done, &other, &other.id, NULL), 0);
        if (i % 3 == 2)
            sw_read_fail(read, &expired);
        ck_assert_int_eq(end(read, i % 3 == 1, &last), i % 3 == 2 ? -SW_ETIMEDOUT : 0);
        if (i % 3 != 2)
            ck_back();
        ck_assert_int_eq(sw_pair_wait(&other), 0);
        ck_assert_int_eq(sw_engine_drop(sw_pair.f.owner, other.id, NULL), 0);
        if (i % 3)
            drop(id);
        ck_nothing_left();
    }
}
END_TEST

static void note_bad(const struct sw_bad_frame *bad, void *arg) {
    *(struct sw_bad_frame *)arg = *bad;
}

/* A damaged frame is reported as the region's chunk that it is, whichever part of a buffer was asked for. */
START_TEST(damage_is_reported_by_the_regions_chunk) {
    static const size_t numbers[] = {7, 3, 0}; /* of the chunks that are asked for first */
    const struct sw_region_id id = store();
    struct sw_region_info info;
    struct sw_bad_frame bad = {.chunk = SIZE_MAX};
    struct sw_test_op op, last;
    uint8_t byte;
    do {
        (void)uv_run(&sw_pair.f.loop, UV_RUN_NOWAIT);
        ck_assert_int_eq(sw_engine_query(sw_pair.f.owner, id, &info, NULL), 0);
    } while (strcmp(info.tier, "nvme") != 0);
    struct sw_region *region = &sw_pair.f.engine->store.regions.regions[id.slot];
    const off_t at = (off_t)region->frames->stored[numbers[_i]].extents[0].offset + 20;
    const int disk = sw_nvme_open_data(&sw_pair.f.folder);
    ck_assert_int_eq(pread(disk, &byte, 1, at), 1);
    byte ^= 1;
    ck_assert_int_eq(pwrite(disk, &byte, 1, at), 1);
    (void)close(disk);
    sw_pair.f.engine->store.observer = (struct sw_observer){.bad_frame = note_bad, .arg = &bad};
    struct sw_read *read = begin(id);
    ck_assert_int_eq(ask(read, (unsigned)_i, CHUNK, &op), 0);
    const int rc = sw_pair_wait(&op);
    ck_assert(rc == -SW_ECHECKSUM || rc == -SW_EFRAME);
    ck_assert_uint_eq(bad.chunk, numbers[_i]);
    ck_assert_uint_eq(bad.n_chunks, 1);
    ck_assert_int_eq(end(read, true, &last), rc);
    ck_assert_int_eq(sw_engine_drop(sw_pair.f.owner, id, NULL), 0);
}
END_TEST

/* ---- across lives ---- */

static struct sw_life life;

/* A region that is being read when its process ends in order is there as before; a durable one stays in any case. */
START_TEST(the_next_process_finds_regions_being_read) {
    struct sw_buffer_info infos[SW_FRAMES_MAX_BUFFERS];
    struct sw_read *read = NULL;
    unsigned n;
    (void)sw_life_next(&life, sw_life_disks[_i]);
    struct sw_owner *owner = sw_life_named_owner(&life, 1000, sw_life_token);
    sw_world.spill_as = "a durable one";
    sw_world_fill(sw_world.memory.data, 0);
    ck_assert_int_eq(sw_life_run(&life, owner, 0, false, false), 0);
    sw_world.spill_as = NULL;
    sw_world_fill(sw_world.memory.data, 1);
    ck_assert_int_eq(sw_life_run(&life, owner, 1, false, false), 0);
    ck_assert_int_eq(sw_read_begin(owner, sw_world.ids[1], &read, infos, &n, NULL), 0);

    struct sw_mem_desc desc = sw_memory_desc(&sw_world.memory);
    struct sw_test_op op = {0}, last = {0};
    struct sw_read *durable = NULL;
    struct sw_mem *mem;
    ck_assert_int_eq(sw_mem_open(owner, &desc, false, &mem, NULL), 0);
    ck_assert_int_eq(sw_read_begin(owner, sw_world.ids[0], &durable, infos, &n, NULL), 0);
    const struct sw_range all = {.mem = mem, .bytes = SW_WORLD_REGION_BYTES};
    ck_assert_int_eq(sw_read_chunks(durable, &all, 1, sw_test_op_done, &op, NULL), 0);
    ck_assert_int_eq(sw_read_end(durable, false, sw_test_op_done, &last, NULL), 0);
    sw_life_until(&life, &last.done);
    ck_assert_int_eq(last.outcome.err.code, 0);
    ck_assert_str_eq(last.outcome.name, "a durable one");
    sw_mem_close(mem, NULL, NULL);
    sw_life_end(&life, owner);

    (void)sw_life_next(&life, sw_life_disks[_i]);
    ck_assert(life.found.n_regions == 2 && life.found.n_lost == 0);
    owner = sw_owner_claim(life.engine, 1000, sw_life_token);
    sw_life_restore_and_compare(&life, owner, 0, true);
    sw_life_restore_and_compare(&life, owner, 1, false);
    ck_assert_int_eq(sw_engine_drop(owner, sw_world.ids[0], NULL), 0);
    sw_life_end(&life, owner);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("read");
    TCase *all = tcase_create("all"), *disk = tcase_create("disk"), *lives = tcase_create("lives");
    tcase_add_checked_fixture(all, open_fixture, sw_pair_close);
    tcase_add_loop_test(all, chunks_make_a_region_whole, 0, 3);
    tcase_add_test(all, as_many_chunks_as_fit);
    tcase_add_loop_test(all, regions_spilled_by_one_operation_are_read, 0, 2);
    tcase_add_test(all, invalid_chunks_are_refused);
    tcase_add_test(all, a_packed_region_is_not_read);
    tcase_add_test(all, a_failed_chunk_fails_the_read);
    tcase_add_test(all, damage_fails_only_its_chunk);
    tcase_add_test(all, reads_that_expire);
    tcase_add_test(all, no_memory_for_any_part_of_it);
    tcase_add_loop_test(all, reads_end_together, 0, 5);
    tcase_add_test(all, reads_end_with_their_owner);
    tcase_add_test(all, an_open_read_counts_for_its_tenant);
    tcase_add_checked_fixture(disk, open_with_disk, sw_pair_close);
    tcase_add_loop_test(disk, chunks_make_a_region_whole, 0, 3);
    tcase_add_test(disk, read_while_it_moves);
    tcase_add_loop_test(disk, damage_is_reported_by_the_regions_chunk, 0, 3);
    tcase_add_checked_fixture(lives, sw_world_setup, sw_world_teardown);
    tcase_add_loop_test(lives, the_next_process_finds_regions_being_read, 0, 2);
    suite_add_tcase(suite, all);
    suite_add_tcase(suite, disk);
    suite_add_tcase(suite, lives);
    return sw_test_run(suite, CK_FORK);
}
