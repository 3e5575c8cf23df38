/* Regions of several buffers: spilled, restored, kept, moved and dropped as one, or not at all. */
#include "base/alloc.h"
#include "spill/engine_state.h"
#include "spill/operator.h"
#include "spill/store/frames.h"
#include "tests/lib/content.h"
#include "tests/lib/engine_fixture.h"
#include "tests/lib/numbers.h"
#include "tests/lib/run.h"
#include "tests/lib/transfer.h"

#include <check.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { N = 5, MANY = SW_FRAMES_MAX_BUFFERS, BUFFER_BYTES = 256 << 10 };

static struct sw_fixture f;
static struct sw_memory from, to;
static struct sw_mem *from_mem, *to_mem;

/* Buffers as of an engine's table: characters of a text, offsets and validity, keys, and a column without rows. */
static const struct {
    uint64_t bytes;
    enum sw_value_type type;
    enum sw_codec_id codec;
} buffers[N] = {{200001, SW_VALUE_NONE, SW_CODEC_PHRASE},
                {100000, SW_VALUE_I32, SW_CODEC_DFOR},
                {12501, SW_VALUE_NONE, SW_CODEC_PHRASE},
                {0, SW_VALUE_I64, SW_CODEC_RAW},
                {BUFFER_BYTES, SW_VALUE_U16, SW_CODEC_FOR}};

static void fill(void) {
    for (unsigned i = 0; i < N; i++) {
        uint8_t *data = from.data + (size_t)i * BUFFER_BYTES;
        if (buffers[i].type == SW_VALUE_NONE)
            sw_content_fill(data, buffers[i].bytes, SW_CONTENT_TEXT, i);
        else
            sw_numbers_fill(data, 0, buffers[i].bytes, buffers[i].type, i == 1 ? SW_NUMBERS_SORTED : SW_NUMBERS_UNIFORM,
                            3, i);
    }
}

static void open_with(const struct sw_fixture_config *config) {
    sw_fixture_open(&f, config);
    from = sw_memory_new((size_t)MANY * BUFFER_BYTES);
    to = sw_memory_new((size_t)MANY * BUFFER_BYTES);
    from_mem = sw_fixture_mem(&f, f.owner, &from, false);
    to_mem = sw_fixture_mem(&f, f.owner, &to, false);
    fill();
}

static void open_fixture(void) {
    open_with(NULL);
}

static void close_fixture(void) {
    if (f.owner) {
        sw_fixture_close_mem(&f, from_mem);
        sw_fixture_close_mem(&f, to_mem);
    }
    sw_memory_free(&from);
    sw_memory_free(&to);
    sw_fixture_close(&f);
}

static void set_ranges(struct sw_range ret[N], struct sw_mem *mem) {
    for (unsigned i = 0; i < N; i++)
        ret[i] = (struct sw_range){
            .mem = mem, .offset = (uint64_t)i * BUFFER_BYTES, .bytes = buffers[i].bytes, .type = buffers[i].type};
}

static int wait_for(struct sw_test_op *op, int rc) {
    if (!rc) {
        sw_fixture_until(&f, &op->done);
        rc = op->outcome.err.code;
    }
    sw_engine_check(f.engine);
    return rc;
}

static int spill(struct sw_test_op *op) {
    struct sw_range ranges[N];
    set_ranges(ranges, from_mem);
    *op = (struct sw_test_op){0};
    return wait_for(op, sw_engine_spill(f.owner, SW_TRANSFER(ranges, N), sw_test_op_done, op, &op->id, NULL));
}

static int begin_restore(struct sw_test_op *op, bool keep) {
    struct sw_range ranges[N];
    const struct sw_region_id id = op->id;
    set_ranges(ranges, to_mem);
    *op = (struct sw_test_op){.id = id};
    return sw_engine_restore(f.owner, id, SW_TRANSFER(ranges, N, .keep = keep), sw_test_op_done, op, NULL);
}

static int restore(struct sw_test_op *op, bool keep) {
    return wait_for(op, begin_restore(op, keep));
}

static void ck_back(void) {
    for (unsigned i = 0; i < N; i++)
        ck_assert(buffers[i].bytes == 0 || memcmp(to.data + (size_t)i * BUFFER_BYTES,
                                                  from.data + (size_t)i * BUFFER_BYTES, buffers[i].bytes) == 0);
    memset(to.data, 0, (size_t)N * BUFFER_BYTES);
}

static void ck_nothing_left(void) {
    struct sw_engine_stats stats;
    sw_engine_stats(f.engine, &stats);
    ck_assert_uint_eq(stats.n_regions + stats.tiers[0].used_bytes + stats.tiers[1].used_bytes, 0);
}

static uint64_t stage_us(enum sw_op_stage stage) {
    return sw_engine_op_statistics(f.engine)->latency[SW_OP_KIND_SPILL][stage].sum_us;
}

/* The buffers' times are the operation's: planning ends with the last plan. Each buffer has a slot. */
START_TEST(the_last_plan_of_all_buffers_counts) {
    enum { LONG_US = 50000 };
    struct sw_range ranges[N];
    struct sw_test_op op = {0};
    set_ranges(ranges, from_mem);
    sw_device_faulty_arm(f.device, "make_plan", 1, -SW_EAGAIN, SW_FAULT_DONE);
    sw_engine_hold(f.engine, false); /* until both are there: the worker may sleep then */
    ck_assert_int_eq(sw_engine_spill(f.owner, SW_TRANSFER(ranges, 2), sw_test_op_done, &op, &op.id, NULL), 0);
    sw_engine_release(f.engine);
    while (!sw_device_faulty_hangs(f.device))
        (void)uv_run(&f.loop, UV_RUN_NOWAIT);
    (void)usleep(LONG_US);
    sw_device_faulty_release(f.device);
    ck_assert_int_eq(wait_for(&op, 0), 0);
    ck_assert_uint_ge(stage_us(SW_OP_STAGE_PLAN), LONG_US);
    ck_assert_uint_eq(stage_us(SW_OP_STAGE_WHOLE),
                      stage_us(SW_OP_STAGE_WAIT) + stage_us(SW_OP_STAGE_PLAN) + stage_us(SW_OP_STAGE_MOVE));
    ck_assert_int_eq(sw_engine_drop(f.owner, op.id, NULL), 0);
    ck_nothing_left();
}
END_TEST

/* A buffer that needs no plan may be mapped after the last plan was made: planning has then taken none of the time. */
START_TEST(a_buffer_may_be_mapped_after_the_last_plan) {
    const struct sw_run_outcome sum = {.started_us = 1010, .mapped_us = 1300, .planned_us = 1200};
    const struct sw_ended ended = {.engine = f.engine, .operation = SW_OP_SPILL, .sum = &sum, .submitted_us = 1000};
    sw_outcome_note(&ended, &(struct sw_outcome){.total_us = 500});
    ck_assert_uint_eq(stage_us(SW_OP_STAGE_WAIT), 300);
    ck_assert_uint_eq(stage_us(SW_OP_STAGE_PLAN), 0);
    ck_assert_uint_eq(stage_us(SW_OP_STAGE_MOVE), 200);
    ck_assert_uint_eq(stage_us(SW_OP_STAGE_WHOLE), 500);
}
END_TEST

/* The operation has begun with its first buffer, whichever that is; one that has not begun does not count. */
START_TEST(the_first_buffer_that_begins_counts) {
    static const uint64_t started_us[] = {0, 1300, 1100, 0, 1200};
    const struct sw_buffer buffer = {.bytes = 10};
    struct sw_run_outcome sum = {.started_us = 0};
    uint64_t most = 0;
    for (unsigned i = 0; i < sizeof started_us / sizeof started_us[0]; i++) {
        const struct sw_run run = {.buffer = &buffer, .outcome = {.started_us = started_us[i], .mapped_us = 1500 - i}};
        sw_run_outcome_add(&sum, &run, &most);
    }
    ck_assert_uint_eq(sum.started_us, 1100);
    ck_assert_uint_eq(sum.mapped_us, 1500);
}
END_TEST

/* The longest buffer's reason is the region's, wherever it stands; a client's frame counts little, an empty buffer not
 * at all. */
START_TEST(the_longest_buffer_gives_the_reason) {
    static const struct {
        uint64_t bytes[3];
        enum sw_cost_reason reasons[3], expected;
    } cases[] = {
        {{10, 30, 20}, {SW_COST_PAYS, SW_COST_ROOM, SW_COST_SHORT}, SW_COST_ROOM},
        {{30, 20, 10}, {SW_COST_PAYS, SW_COST_ROOM, SW_COST_SHORT}, SW_COST_PAYS},
        {{1, 90, 1}, {SW_COST_PAYS, SW_COST_CLIENT, SW_COST_CLIENT}, SW_COST_PAYS},
        {{1, 0, 0}, {SW_COST_CLIENT, SW_COST_UNKNOWN, SW_COST_UNKNOWN}, SW_COST_CLIENT},
    };
    for (size_t k = 0; k < sizeof cases / sizeof cases[0]; k++) {
        struct sw_run_outcome sum = {.started_us = 0};
        uint64_t most = 0;
        for (unsigned i = 0; i < 3; i++) {
            const struct sw_buffer buffer = {.bytes = cases[k].bytes[i]};
            const struct sw_run run = {.buffer = &buffer, .outcome = {.reason = cases[k].reasons[i]}};
            sw_run_outcome_add(&sum, &run, &most);
        }
        ck_assert_msg(sum.reason == cases[k].expected, "case %zu: %s", k, sw_cost_reason_text(sum.reason));
    }
}
END_TEST

/* An operation is as far as the buffer that is least far, whichever that is. */
START_TEST(the_last_buffer_gives_the_phase) {
    enum { N_JOBS = 3 };
    struct sw_op *op = sw_alloc(sizeof *op + N_JOBS * sizeof op->jobs[0]);
    op->request.n_buffers = op->n_left = N_JOBS;
    for (unsigned late = 0; late < N_JOBS; late++) {
        for (unsigned i = 0; i < N_JOBS; i++)
            atomic_store(&op->jobs[i].signals.phase, i == late ? SW_PHASE_STAGING : SW_PHASE_STORING - (int)(i % 2));
        ck_assert_int_eq(sw_op_phase(op), SW_PHASE_STAGING);
    }
    op->n_left = 0;
    ck_assert_int_eq(sw_op_phase(op), SW_PHASE_STORING);
    sw_free(op);
}
END_TEST

START_TEST(one_region_of_several_buffers) {
    struct sw_buffer_info infos[SW_FRAMES_MAX_BUFFERS];
    struct sw_region_info info;
    struct sw_test_op op;
    uint64_t raw_bytes = 0, stored_bytes = 0;
    unsigned n = 0;
    ck_assert_int_eq(spill(&op), 0);
    ck_assert_int_eq(sw_engine_query_buffers(f.owner, op.id, infos, &n, NULL), 0);
    ck_assert_uint_eq(n, N);
    for (unsigned i = 0; i < N; i++) {
        ck_assert_uint_eq(infos[i].raw_bytes, buffers[i].bytes);
        ck_assert_msg(infos[i].codec == buffers[i].codec, "buffer %u: %s", i, sw_codec_name(infos[i].codec));
        ck_assert_str_eq(infos[i].reason, sw_cost_reason_text(buffers[i].bytes ? SW_COST_ROOM : SW_COST_UNKNOWN));
        raw_bytes += infos[i].raw_bytes;
        stored_bytes += infos[i].stored_bytes;
    }
    ck_assert_int_eq(sw_engine_query(f.owner, op.id, &info, NULL), 0);
    ck_assert_uint_eq(info.raw_bytes, raw_bytes);
    ck_assert_uint_eq(info.stored_bytes, stored_bytes);
    ck_assert_uint_eq(op.outcome.raw_bytes, raw_bytes);
    ck_assert_uint_eq(op.outcome.stored_bytes, stored_bytes);
    ck_assert_int_eq(restore(&op, true), 0);
    ck_back();
    ck_assert_int_eq(restore(&op, false), 0);
    ck_back();
    ck_assert_int_eq(restore(&op, false), -SW_ESTALE);
    ck_nothing_left();
    ck_assert_int_eq(spill(&op), 0);
    ck_assert_int_eq(sw_engine_drop(f.owner, op.id, NULL), 0);
    ck_nothing_left();
}
END_TEST

START_TEST(any_number_of_buffers) {
    static const unsigned numbers[] = {1, 2, 3, MANY};
    for (size_t k = 0; k < sizeof numbers / sizeof numbers[0]; k++) {
        struct sw_range ranges[MANY];
        struct sw_test_op op = {0};
        const unsigned n = numbers[k];
        sw_content_fill(from.data, (size_t)n * 1000, SW_CONTENT_MIXED, n);
        for (unsigned i = 0; i < n; i++)
            ranges[i] =
                (struct sw_range){.mem = from_mem, .offset = i * UINT64_C(1000), .bytes = 1000, .type = SW_VALUE_I8};
        ck_assert_int_eq(
            wait_for(&op, sw_engine_spill(f.owner, SW_TRANSFER(ranges, n), sw_test_op_done, &op, &op.id, NULL)), 0);
        for (unsigned i = 0; i < n; i++) /* in another order, with room to spare */
            ranges[i] = (struct sw_range){.mem = to_mem, .offset = (n - 1 - i) * UINT64_C(1001), .bytes = 1001};
        const struct sw_region_id id = op.id;
        op = (struct sw_test_op){0};
        ck_assert_int_eq(
            wait_for(&op, sw_engine_restore(f.owner, id, SW_TRANSFER(ranges, n), sw_test_op_done, &op, NULL)), 0);
        for (unsigned i = 0; i < n; i++)
            ck_assert(memcmp(to.data + (size_t)(n - 1 - i) * 1001, from.data + (size_t)i * 1000, 1000) == 0);
    }
    ck_nothing_left();
}
END_TEST

/* Once, as long as they are stored. */
START_TEST(all_buffers_count_for_their_tenant) {
    static struct sw_quota quota;
    struct sw_region_info info;
    struct sw_test_op op;
    memset(&quota, 0, sizeof quota);
    sw_owner_set_quota(f.owner, &quota);
    ck_assert_int_eq(spill(&op), 0);
    ck_assert_int_eq(sw_engine_query(f.owner, op.id, &info, NULL), 0);
    ck_assert_uint_gt(info.stored_bytes, 0);
    ck_assert_uint_eq(atomic_load(&quota.bytes), info.stored_bytes);
    ck_assert_uint_eq(quota.n_regions, 1);
    ck_assert_int_eq(restore(&op, false), 0);
    ck_back();
    ck_assert_uint_eq(atomic_load(&quota.bytes), 0);
    ck_assert_uint_eq(quota.n_regions, 0);
}
END_TEST

START_TEST(invalid_requests_are_refused) {
    struct sw_range ranges[MANY + 1];
    struct sw_buffer_info infos[SW_FRAMES_MAX_BUFFERS];
    struct sw_region_id id;
    struct sw_test_op op, one = {0};
    unsigned n;
    for (unsigned i = 0; i <= MANY; i++)
        ranges[i] = (struct sw_range){.mem = from_mem, .bytes = 8};
    ck_assert_int_eq(sw_engine_spill(f.owner, SW_TRANSFER(ranges, 0), sw_test_op_done, &one, &id, NULL), -SW_EINVAL);
    ck_assert_int_eq(sw_engine_spill(f.owner, SW_TRANSFER(ranges, MANY + 1), sw_test_op_done, &one, &id, NULL),
                     -SW_EINVAL);
    for (unsigned bad = 0; bad < N; bad += N - 1) {
        set_ranges(ranges, from_mem);
        ranges[bad].offset = from.bytes;
        ranges[bad].bytes = 2;
        ck_assert_int_eq(sw_engine_spill(f.owner, SW_TRANSFER(ranges, N), sw_test_op_done, &one, &id, NULL),
                         -SW_ERANGE);
        set_ranges(ranges, from_mem);
        ranges[bad].type = SW_VALUE_NR;
        ck_assert_int_eq(sw_engine_spill(f.owner, SW_TRANSFER(ranges, N), sw_test_op_done, &one, &id, NULL),
                         -SW_EINVAL);
        ranges[bad].type = SW_VALUE_U64;
        ranges[bad].bytes = 7;
        ck_assert_int_eq(sw_engine_spill(f.owner, SW_TRANSFER(ranges, N), sw_test_op_done, &one, &id, NULL),
                         -SW_EINVAL);
    }
    ck_nothing_left();
    ck_assert_int_eq(spill(&op), 0);
    set_ranges(ranges, to_mem);
    ck_assert_int_eq(sw_engine_restore(f.owner, op.id, SW_TRANSFER(ranges, 1), sw_test_op_done, &one, NULL),
                     -SW_EINVAL);
    ck_assert_int_eq(sw_engine_restore(f.owner, op.id, SW_TRANSFER(ranges, N - 1), sw_test_op_done, &one, NULL),
                     -SW_EINVAL);
    ranges[4].bytes--;
    ck_assert_int_eq(sw_engine_restore(f.owner, op.id, SW_TRANSFER(ranges, N), sw_test_op_done, &one, NULL),
                     -SW_ETOOSMALL);
    ranges[4].bytes++;
    ranges[0].bytes--; /* though the others fit */
    ck_assert_int_eq(sw_engine_restore(f.owner, op.id, SW_TRANSFER(ranges, N), sw_test_op_done, &one, NULL),
                     -SW_ETOOSMALL);
    ck_assert_uint_eq(one.calls, 0);
    ck_assert_int_eq(restore(&op, false), 0);
    ck_back();
    ck_assert_int_eq(sw_engine_query_buffers(f.owner, op.id, infos, &n, NULL), -SW_ESTALE);
}
END_TEST

/* Whichever buffer's step fails, however, nothing is stored and no destination counts. */
START_TEST(one_failed_buffer_fails_the_region) {
    static const char *const steps[] = {"make_plan", "encode", "store", "load", "decode", "restore_group"};
    static const enum sw_fault faults[] = {SW_FAULT_AT_ONCE, SW_FAULT_LATE};
    for (size_t s = 0; s < sizeof steps / sizeof steps[0]; s++)
        for (unsigned nth = 1; nth <= N; nth += 2)
            for (size_t k = 0; k < 2; k++) {
                struct sw_test_op op;
                sw_device_faulty_arm(f.device, steps[s], nth, -SW_EGPU, faults[k]);
                int rc = spill(&op);
                if (rc) {
                    ck_assert_int_eq(rc, -SW_EGPU);
                    ck_assert_ptr_nonnull(strstr(op.outcome.err.msg, "buffer "));
                    ck_nothing_left();
                } else {
                    rc = restore(&op, false);
                    ck_assert(rc == 0 || rc == -SW_EGPU);
                    sw_device_faulty_arm(f.device, steps[s], 0, 0, SW_FAULT_LATE);
                    if (rc)
                        ck_assert_int_eq(restore(&op, false), 0);
                    ck_back();
                }
                sw_device_faulty_arm(f.device, steps[s], 0, 0, SW_FAULT_LATE);
            }
    ck_nothing_left();
}
END_TEST

/* The other buffers' work is canceled at once, not done for nothing; and the operation has failed once. */
START_TEST(one_failed_buffer_stops_the_others) {
    struct sw_memory unsealed = {.fd = memfd_create("unsealed", MFD_CLOEXEC), .bytes = BUFFER_BYTES};
    struct sw_engine_stats stats;
    struct sw_test_op op = {0};
    ck_assert_int_eq(ftruncate(unsealed.fd, BUFFER_BYTES), 0);
    struct sw_mem *bad = sw_fixture_mem(&f, f.owner, &unsealed, false);
    const struct sw_range ranges[] = {{.mem = bad, .bytes = BUFFER_BYTES}, {.mem = from_mem, .bytes = BUFFER_BYTES}};
    sw_device_faulty_arm(f.device, "make_plan", 1, -SW_EAGAIN, SW_FAULT_DONE);
    ck_assert_int_eq(sw_engine_spill(f.owner, SW_TRANSFER(ranges, 2), sw_test_op_done, &op, &op.id, NULL), 0);
    const struct sw_op *running = SW_CONTAINER_OF(f.owner->ops.next, struct sw_op, node);
    while (!op.calls && (running->n_left == 2 || !sw_device_faulty_hangs(f.device)))
        (void)uv_run(&f.loop, UV_RUN_NOWAIT);
    ck_assert(op.calls || atomic_load(&running->jobs[1].signals.cancel)); /* maybe before it began */
    sw_device_faulty_release(f.device);
    ck_assert_int_eq(wait_for(&op, 0), -SW_EUNSEALED);
    sw_engine_stats(f.engine, &stats);
    ck_assert_uint_eq(stats.failed_ops, 1);
    ck_assert_uint_eq(stats.canceled_ops, 0);
    ck_nothing_left();
    sw_fixture_close_mem(&f, bad);
    (void)close(unsealed.fd);
}
END_TEST

START_TEST(no_memory_for_any_part_of_it) {
    for (unsigned nth = 1; nth < 60; nth += 1 + nth / 8) {
        struct sw_test_op op;
        sw_alloc_fail_nth(nth);
        int rc = spill(&op);
        sw_alloc_fail_nth(0);
        if (!rc) {
            sw_alloc_fail_nth(nth);
            rc = restore(&op, true);
            sw_alloc_fail_nth(0);
            ck_assert(rc == 0 || rc == -SW_ENOMEM);
            ck_assert_int_eq(restore(&op, false), 0);
            ck_back();
        }
        ck_assert(rc == 0 || rc == -SW_ENOMEM);
        ck_nothing_left();
    }
}
END_TEST

static void set_flag(void *arg) {
    *(bool *)arg = true;
}

START_TEST(owners_close_during_their_operations) {
    struct sw_range ranges[N];
    struct sw_test_op op = {0};
    bool closed = false;
    set_ranges(ranges, from_mem);
    sw_device_faulty_arm(f.device, "encode", 2, -SW_EAGAIN, SW_FAULT_LATE);
    ck_assert_int_eq(sw_engine_spill(f.owner, SW_TRANSFER(ranges, N), sw_test_op_done, &op, &op.id, NULL), 0);
    for (int i = 0; i < 50; i++)
        (void)uv_run(&f.loop, UV_RUN_NOWAIT);
    ck_assert(!op.done);
    sw_owner_close(f.owner, set_flag, &closed);
    f.owner = NULL;
    sw_device_faulty_release(f.device);
    sw_fixture_until(&f, &closed);
    ck_assert_uint_eq(op.calls, 1);
    ck_assert_int_eq(op.outcome.err.code, -SW_ECANCELED);
}
END_TEST

/* The region goes to the disk and back. There, chunks are known by their buffers. */
START_TEST(buffers_move_between_tiers_together) {
    struct sw_region_info info;
    struct sw_test_op op;
    ck_assert_int_eq(spill(&op), 0);
    ck_assert_int_eq(sw_engine_advise(f.owner, op.id, SW_ADVISE_PIN, 1, NULL), 0);
    ck_assert_int_eq(sw_engine_advise(f.owner, op.id, SW_ADVISE_DEMOTE, 0, NULL), 0);
    do {
        (void)uv_run(&f.loop, UV_RUN_NOWAIT);
        ck_assert_int_eq(sw_engine_query(f.owner, op.id, &info, NULL), 0);
    } while (strcmp(info.tier, "nvme") != 0);
    sw_engine_check(f.engine);
    ck_assert_uint_eq(f.engine->balance.moving_bytes, 0);
    ck_assert_int_eq(begin_restore(&op, true), 0);
    ck_assert_int_eq(sw_engine_query(f.owner, op.id, &info, NULL), 0);
    ck_assert_int_eq(info.state, SW_REGION_RESTORING);
    ck_assert_str_eq(info.tier, "nvme"); /* as before and after */
    ck_assert_int_eq(wait_for(&op, 0), 0);
    ck_back();
    ck_assert_int_eq(sw_engine_advise(f.owner, op.id, SW_ADVISE_PREFETCH, 0, NULL), 0);
    ck_assert_int_eq(restore(&op, false), 0); /* cancels the move and goes on */
    ck_back();
    ck_nothing_left();
}
END_TEST

/* An operator who asks for room sees what is still to be moved, until nothing is left that could leave. */
START_TEST(room_is_asked_for_until_nothing_can_leave) {
    const uint64_t asked_bytes = UINT64_C(1) << 40;
    struct sw_region_info info;
    struct sw_test_op op;
    ck_assert_int_eq(spill(&op), 0);
    const uint64_t moved_bytes = f.engine->store.regions.regions[op.id.slot].tier_bytes[0];
    ck_assert_int_eq(sw_engine_make_room(f.engine, asked_bytes, NULL), 0);
    ck_assert_uint_eq(sw_engine_room_bytes(f.engine), asked_bytes - moved_bytes);
    while (f.engine->balance.n_moves > 0)
        (void)uv_run(&f.loop, UV_RUN_NOWAIT);
    ck_assert_uint_eq(sw_engine_room_bytes(f.engine), 0);
    ck_assert_int_eq(sw_engine_query(f.owner, op.id, &info, NULL), 0);
    ck_assert_str_eq(info.tier, "nvme");
    ck_assert_int_eq(restore(&op, false), 0);
    ck_back();
    ck_nothing_left();
}
END_TEST

static void open_with_disk(unsigned watermark_pct) {
    struct sw_fixture_config config = sw_fixture_defaults;
    config.nvme_bytes = 64 << 20;
    config.staging_bytes = 4 << 20;
    config.high_pct = config.low_pct = watermark_pct;
    open_with(&config);
}

static void open_with_idle_disk(void) {
    open_with_disk(100);
}

/* Whatever is spilled begins to move at once. */
static void open_with_busy_disk(void) {
    open_with_disk(0);
}

/* The restore cancels the move and waits for it: some chunks are here by then, and some there. */
START_TEST(restored_while_it_moves) {
    struct sw_test_op op;
    for (int i = 0; i < 12; i++) {
        ck_assert_int_eq(spill(&op), 0);
        for (int k = 0; k < i; k++)
            (void)uv_run(&f.loop, UV_RUN_NOWAIT);
        ck_assert_int_eq(restore(&op, i % 2), 0);
        ck_back();
        if (i % 2)
            ck_assert_int_eq(sw_engine_drop(f.owner, op.id, NULL), 0);
    }
}
END_TEST

/* ---- frames ------------------------------------------------------------------------------------------------------ */

START_TEST(chunks_are_known_by_their_buffers) {
    const struct sw_frames_buffer parts[] = {{.raw_bytes = 0, .chunk_bytes = 5},
                                             {.raw_bytes = 11, .chunk_bytes = 5},
                                             {.raw_bytes = 0, .chunk_bytes = 1},
                                             {.raw_bytes = 7, .chunk_bytes = 7}};
    static const uint64_t lengths[] = {5, 5, 1, 7}, keys[] = {1ull << 32, 1ull << 32 | 1, 1ull << 32 | 2, 3ull << 32};
    struct sw_frames *frames = sw_frames_new_buffers(parts, 4);
    size_t at;
    ck_assert_ptr_nonnull(frames);
    ck_assert_uint_eq(frames->n_chunks, 4);
    ck_assert_uint_eq(frames->raw_bytes, 18);
    for (size_t i = 0; i < 4; i++) {
        ck_assert_uint_eq(sw_frames_chunk_bytes(frames, i), lengths[i]);
        ck_assert_uint_eq(sw_frames_key(frames, i), keys[i]);
        ck_assert(sw_frames_find(frames, keys[i], &at) && at == i);
    }
    ck_assert(!sw_frames_find(frames, 0, &at) && !sw_frames_find(frames, 1ull << 32 | 3, &at));
    ck_assert(!sw_frames_find(frames, 4ull << 32, &at) && !sw_frames_find(frames, UINT64_MAX, &at));
    struct sw_frames *view = sw_frames_view(frames, 1, 0, 3);
    ck_assert_uint_eq(view->n_chunks, 3);
    for (size_t i = 0; i < 3; i++) {
        ck_assert_uint_eq(sw_frames_chunk_bytes(view, i), lengths[i]);
        ck_assert_uint_eq(sw_frames_key(view, i), keys[i]);
    }
    sw_free(view);
    view = sw_frames_view(frames, 1, 1, 2); /* the end of the buffer, which is short */
    ck_assert_uint_eq(view->raw_bytes, 6);
    for (size_t i = 0; i < 2; i++) {
        ck_assert_uint_eq(sw_frames_chunk_bytes(view, i), lengths[i + 1]);
        ck_assert_uint_eq(sw_frames_key(view, i), keys[i + 1]);
    }
    sw_free(view);
    sw_frames_free(frames);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("buffers");
    TCase *tcase = tcase_create("all"), *disk = tcase_create("disk"), *busy = tcase_create("busy"),
          *frames = tcase_create("frames");
    tcase_add_checked_fixture(tcase, open_fixture, close_fixture);
    tcase_add_test(tcase, one_region_of_several_buffers);
    tcase_add_test(tcase, the_last_plan_of_all_buffers_counts);
    tcase_add_test(tcase, a_buffer_may_be_mapped_after_the_last_plan);
    tcase_add_test(tcase, the_first_buffer_that_begins_counts);
    tcase_add_test(tcase, the_longest_buffer_gives_the_reason);
    tcase_add_test(tcase, the_last_buffer_gives_the_phase);
    tcase_add_test(tcase, any_number_of_buffers);
    tcase_add_test(tcase, all_buffers_count_for_their_tenant);
    tcase_add_test(tcase, invalid_requests_are_refused);
    tcase_add_test(tcase, one_failed_buffer_fails_the_region);
    tcase_add_test(tcase, one_failed_buffer_stops_the_others);
    tcase_add_test(tcase, no_memory_for_any_part_of_it);
    tcase_add_test(tcase, owners_close_during_their_operations);
    tcase_add_checked_fixture(disk, open_with_idle_disk, close_fixture);
    tcase_add_test(disk, one_region_of_several_buffers);
    tcase_add_test(disk, buffers_move_between_tiers_together);
    tcase_add_test(disk, room_is_asked_for_until_nothing_can_leave);
    tcase_add_checked_fixture(busy, open_with_busy_disk, close_fixture);
    tcase_add_test(busy, restored_while_it_moves);
    tcase_add_test(frames, chunks_are_known_by_their_buffers);
    suite_add_tcase(suite, tcase);
    suite_add_tcase(suite, disk);
    suite_add_tcase(suite, busy);
    suite_add_tcase(suite, frames);
    return sw_test_run(suite, CK_FORK);
}
