/* The engine through a real loop, on the host device with chunks small enough that every region has many. */
#include "base/alloc.h"
#include "base/clock.h"
#include "spill/engine_state.h"
#include "tests/lib/content.h"
#include "tests/lib/engine_fixture.h"
#include "tests/lib/run.h"
#include "tests/lib/transfer.h"

#include <check.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

static struct sw_fixture f;

static void setup(void) {
    sw_fixture_open(&f, NULL);
}

static void teardown(void) {
    sw_fixture_close(&f);
}

static void fill(const struct sw_memory *memory, enum sw_content kind, uint64_t seed) {
    sw_content_fill(memory->data, memory->bytes, kind, seed);
}

START_TEST(test_every_size_comes_back) {
    static const size_t sizes[] = {0,     1,     7,     8,     9,     511,    512,    513,    1023,         4097,
                                   32767, 32768, 65535, 65536, 65537, 131072, 200000, 655361, (1 << 20) + 3};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        enum sw_content kind = (enum sw_content)(i % SW_CONTENT_NR);
        size_t offset = i * 13;
        struct sw_memory from = sw_memory_new(sizes[i] + offset + 5), to = sw_memory_new(sizes[i] + offset + 50);
        struct sw_test_op op;
        fill(&from, kind, i);
        ck_assert_int_eq(sw_fixture_spill(&f, &from, offset, sizes[i], &op), 0);
        ck_assert_uint_eq(op.outcome.raw_bytes, sizes[i]);
        ck_assert_uint_eq(op.outcome.region.slot, op.id.slot);
        ck_assert_int_eq(sw_fixture_state(&f, op.id), SW_REGION_OUT);
        sw_engine_check(f.engine);
        ck_assert_int_eq(sw_fixture_restore(&f, op.id, &to, 7, sizes[i] + offset + 40, false, &op), 0);
        ck_assert(sizes[i] == 0 || memcmp(to.data + 7, from.data + offset, sizes[i]) == 0);
        for (size_t b = 0; b < 7; b++)
            ck_assert_uint_eq(to.data[b], 0);
        for (size_t b = sizes[i] + 7; b < to.bytes; b++)
            ck_assert_uint_eq(to.data[b], 0);
        ck_assert_int_eq(sw_fixture_state(&f, op.outcome.region), -SW_ESTALE);
        sw_engine_check(f.engine);
        sw_memory_free(&from);
        sw_memory_free(&to);
    }
}
END_TEST

START_TEST(test_text_shrinks_and_is_counted) {
    struct sw_memory from = sw_memory_new(1 << 20);
    struct sw_engine_stats stats;
    struct sw_region_info info;
    struct sw_test_op op;
    fill(&from, SW_CONTENT_TEXT, 1);
    ck_assert_int_eq(sw_fixture_spill(&f, &from, 0, from.bytes, &op), 0);
    ck_assert_int_eq(op.outcome.codec, SW_CODEC_PHRASE);
    ck_assert_uint_lt(op.outcome.stored_bytes, from.bytes / 2);
    ck_assert_uint_le(op.outcome.queued_us, op.outcome.total_us);
    ck_assert_int_eq(sw_engine_query(f.owner, op.id, &info, NULL), 0);
    ck_assert_uint_eq(info.raw_bytes, from.bytes);
    ck_assert_uint_eq(info.stored_bytes, op.outcome.stored_bytes);
    ck_assert_str_eq(info.tier, "host");
    sw_engine_stats(f.engine, &stats);
    ck_assert_uint_eq(stats.spills, 1);
    ck_assert_uint_eq(stats.spilled_raw_bytes, from.bytes);
    ck_assert_uint_eq(stats.spilled_stored_bytes, op.outcome.stored_bytes);
    ck_assert_uint_eq(stats.n_regions, 1);
    ck_assert_uint_eq(stats.n_mapped, 0);
    ck_assert_uint_ge(stats.tiers[0].used_bytes, op.outcome.stored_bytes);
    sw_memory_free(&from);
}
END_TEST

/* The time between two operations belongs to neither. */
START_TEST(test_an_operation_takes_no_longer_than_its_call) {
    struct sw_memory from = sw_memory_new(1000);
    struct sw_test_op op;
    for (int i = 0; i < 3; i++) {
        (void)usleep(20000);
        const uint64_t begin_us = sw_clock_us();
        ck_assert_int_eq(sw_fixture_spill(&f, &from, 0, from.bytes, &op), 0);
        ck_assert_uint_le(op.outcome.total_us, sw_clock_us() - begin_us);
    }
    sw_memory_free(&from);
}
END_TEST

START_TEST(test_keep_restores_again_and_drop_frees) {
    struct sw_memory from = sw_memory_new(300000), to = sw_memory_new(300000);
    struct sw_engine_stats stats;
    struct sw_test_op op, again;
    fill(&from, SW_CONTENT_MIXED, 3);
    ck_assert_int_eq(sw_fixture_spill(&f, &from, 0, from.bytes, &op), 0);
    for (int i = 0; i < 3; i++) {
        memset(to.data, i, to.bytes);
        ck_assert_int_eq(sw_fixture_restore(&f, op.id, &to, 0, to.bytes, true, &again), 0);
        ck_assert_int_eq(memcmp(to.data, from.data, to.bytes), 0);
        ck_assert_int_eq(sw_fixture_state(&f, op.id), SW_REGION_OUT);
    }
    ck_assert_int_eq(sw_engine_drop(f.owner, op.id, NULL), 0);
    ck_assert_int_eq(sw_engine_drop(f.owner, op.id, NULL), -SW_ESTALE);
    sw_engine_stats(f.engine, &stats);
    ck_assert_uint_eq(stats.tiers[0].used_bytes, 0);
    sw_memory_free(&from);
    sw_memory_free(&to);
}
END_TEST

static const char secret[] = "another tenant's";

/* Whether a region's frames, up to the ends of their last blocks, hold the secret. */
static bool frames_hold_secret(struct sw_region_id id) {
    struct sw_region *region;
    ck_assert_int_eq(sw_region_find(&f.engine->store.regions, f.owner, id, &region, NULL), 0);
    for (size_t i = 0; i < region->frames->n_chunks; i++)
        for (unsigned e = 0; e < region->frames->stored[i].n_extents; e++) {
            const struct sw_extent *extent = &region->frames->stored[i].extents[e];
            if (memmem(extent->memory, (extent->bytes + 4095) / 4096 * 4096, secret, strlen(secret)))
                return true;
        }
    return false;
}

START_TEST(test_bytes_of_another_tenant_are_neither_stored_nor_restored) {
    static const size_t sizes[] = {0, 1, 15, 100, 4000, 4097, 70000, 200000};
    struct sw_memory theirs = sw_memory_new(400000), from = sw_memory_new(200000), to = sw_memory_new(210000);
    struct sw_test_op op;
    fill(&theirs, SW_CONTENT_RANDOM, 1); /* stored as it is, so that the secret is in the arena and in every slot */
    for (size_t at = 0; at < theirs.bytes; at += 1000)
        memcpy(theirs.data + at, secret, strlen(secret));
    fill(&from, SW_CONTENT_MIXED, 2);
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        ck_assert_int_eq(sw_fixture_spill(&f, &theirs, 0, theirs.bytes, &op), 0);
        ck_assert_uint_ge(op.outcome.stored_bytes, theirs.bytes);
        ck_assert(frames_hold_secret(op.id));
        sw_fixture_close_owner(&f, f.owner);
        ck_assert_int_eq(sw_owner_open(f.engine, &f.owner, NULL), 0);
        memset(to.data, 0, to.bytes);
        ck_assert_int_eq(sw_fixture_spill(&f, &from, 0, sizes[i], &op), 0);
        ck_assert_msg(!frames_hold_secret(op.id), "stored with %zu bytes", sizes[i]);
        ck_assert_int_eq(sw_fixture_restore(&f, op.id, &to, 0, to.bytes, false, &op), 0);
        ck_assert(memcmp(to.data, from.data, sizes[i]) == 0);
        for (size_t at = sizes[i]; at < to.bytes; at++)
            ck_assert_msg(to.data[at] == 0, "byte %zu behind %zu was written", at, sizes[i]);
    }
    sw_memory_free(&theirs);
    sw_memory_free(&from);
    sw_memory_free(&to);
}
END_TEST

/* Stored bytes of a region's last four chunks. */
static uint64_t last_frames(struct sw_region_id id) {
    struct sw_region *region;
    uint64_t bytes = 0;
    ck_assert_int_eq(sw_region_find(&f.engine->store.regions, f.owner, id, &region, NULL), 0);
    for (size_t i = region->frames->n_chunks - 4; i < region->frames->n_chunks; i++)
        bytes += region->frames->stored[i].bytes;
    return bytes;
}

START_TEST(test_drifting_content_is_retrained) {
    /* A head of 40 words of 8 random bytes dominates the symbol table, and the text behind it gets the rest, until the
     * drift is seen. At the end it must be as small as with a table of its own, not twice as long. */
    enum { HEAD = 6 << 20, TAIL = 1 << 20 };
    struct sw_memory from = sw_memory_new(HEAD + TAIL), to = sw_memory_new(HEAD + TAIL);
    struct sw_test_op whole, tail;
    uint64_t words[40], seed = 5;
    for (int i = 0; i < 40; i++)
        words[i] = sw_random(&seed);
    for (size_t i = 0; i < HEAD; i += 8)
        memcpy(from.data + i, &words[sw_random(&seed) % 40], 8);
    sw_content_fill(from.data + HEAD, TAIL, SW_CONTENT_HEX, 1);
    ck_assert_int_eq(sw_fixture_spill(&f, &from, HEAD, TAIL, &tail), 0);
    ck_assert_int_eq(sw_fixture_spill(&f, &from, 0, from.bytes, &whole), 0);
    ck_assert_uint_lt(last_frames(whole.id) * 100, last_frames(tail.id) * 110);
    ck_assert_int_eq(sw_fixture_restore(&f, whole.id, &to, 0, to.bytes, false, &whole), 0);
    ck_assert_int_eq(memcmp(to.data, from.data, to.bytes), 0);
    sw_memory_free(&from);
    sw_memory_free(&to);
}
END_TEST

START_TEST(test_refusals_name_their_cause) {
    struct sw_memory memory = sw_memory_new(100000);
    struct sw_region_id id, none = {0, 0}, far = {100000, 1}, future = {0, 77};
    struct sw_owner *other;
    struct sw_test_op op;
    struct sw_err err = {0};
    fill(&memory, SW_CONTENT_TEXT, 1);
    ck_assert_int_eq(sw_fixture_spill(&f, &memory, 1, memory.bytes, &op), -SW_ERANGE);
    ck_assert_int_eq(sw_fixture_spill(&f, &memory, UINT64_MAX, 2, &op), -SW_ERANGE);
    ck_assert_int_eq(sw_fixture_spill(&f, &memory, 2, UINT64_MAX, &op), -SW_ERANGE);
    ck_assert_int_eq(sw_fixture_spill(&f, &memory, 0, memory.bytes, &op), 0);
    id = op.id;
    ck_assert_int_eq(sw_fixture_restore(&f, id, &memory, 0, memory.bytes - 1, false, &op), -SW_ETOOSMALL);
    ck_assert_int_eq(sw_fixture_restore(&f, id, &memory, 1, memory.bytes, false, &op), -SW_ERANGE);
    ck_assert_int_eq(sw_fixture_restore(&f, none, &memory, 0, memory.bytes, false, &op), -SW_ENOENT);
    ck_assert_int_eq(sw_fixture_restore(&f, far, &memory, 0, memory.bytes, false, &op), -SW_ENOENT);
    ck_assert_int_eq(sw_fixture_restore(&f, future, &memory, 0, memory.bytes, false, &op), -SW_ENOENT);
    ck_assert_int_eq(sw_owner_open(f.engine, &other, &err), 0);
    struct sw_region_info info;
    ck_assert_int_eq(sw_engine_query(other, id, &info, &err), -SW_ENOENT);
    ck_assert_int_eq(sw_engine_drop(other, id, &err), -SW_ENOENT);
    struct sw_mem *mem = sw_fixture_mem(&f, other, &memory, false);
    struct sw_range range = {.mem = mem, .bytes = memory.bytes};
    ck_assert_int_eq(sw_engine_restore(other, id, SW_TRANSFER(&range, 1), sw_test_op_done, &op, &err), -SW_ENOENT);
    sw_fixture_close_owner(&f, other);
    ck_assert_int_eq(sw_fixture_state(&f, id), SW_REGION_OUT);

    struct sw_mem_desc gpu = sw_memory_desc(&memory);
    gpu.kind = SW_MEM_CUDA_VMM;
    ck_assert_int_eq(sw_mem_open(f.owner, &gpu, true, &mem, &err), -SW_EDEVICE);
    ck_assert_ptr_null(gpu.fds);
    sw_memory_free(&memory);
}
END_TEST

START_TEST(test_a_once_memory_serves_one_operation) {
    struct sw_memory memory = sw_memory_new(70000);
    struct sw_engine_stats stats;
    struct sw_test_op ops[3] = {0};
    struct sw_err err = {0};
    fill(&memory, SW_CONTENT_TEXT, 9);
    struct sw_mem *once = sw_fixture_mem(&f, f.owner, &memory, true);
    struct sw_range range = {.mem = once, .bytes = memory.bytes};
    ck_assert_int_eq(sw_engine_spill(f.owner, SW_TRANSFER(&range, 1), sw_test_op_done, &ops[0], &ops[0].id, &err), 0);
    ck_assert_int_eq(sw_engine_spill(f.owner, SW_TRANSFER(&range, 1), sw_test_op_done, &ops[1], &ops[1].id, &err),
                     -SW_EINVAL);
    sw_fixture_until(&f, &ops[0].done);
    sw_engine_stats(f.engine, &stats);
    ck_assert_uint_eq(stats.n_mapped, 0);
    sw_fixture_close_mem(&f, once);

    range.mem = sw_fixture_mem(&f, f.owner, &memory, false);
    ck_assert_int_eq(sw_engine_spill(f.owner, SW_TRANSFER(&range, 1), sw_test_op_done, &ops[1], &ops[1].id, &err), 0);
    ck_assert_int_eq(sw_engine_spill(f.owner, SW_TRANSFER(&range, 1), sw_test_op_done, &ops[2], &ops[2].id, &err), 0);
    sw_fixture_until(&f, &ops[1].done);
    sw_fixture_until(&f, &ops[2].done);
    sw_engine_stats(f.engine, &stats);
    ck_assert_uint_eq(stats.n_mapped, 1);
    sw_fixture_close_mem(&f, range.mem);
    sw_engine_stats(f.engine, &stats);
    ck_assert_uint_eq(stats.n_mapped, 0);
    sw_memory_free(&memory);
}
END_TEST

struct mapped {
    bool done;
    int code;
};

static void on_mapped(const struct sw_err *map_err, void *arg) {
    struct mapped *mapped = arg;
    ck_assert(!mapped->done);
    mapped->done = true;
    mapped->code = map_err->code;
}

static void set_flag(void *arg) {
    *(bool *)arg = true;
}

START_TEST(test_memory_may_be_mapped_before_its_first_operation) {
    struct sw_memory memory = sw_memory_new(70000);
    struct sw_engine_stats stats;
    struct sw_test_op op = {0};
    struct sw_err err = {0};
    struct mapped first = {0}, refused = {0}, closing = {0};
    bool closed = false;
    struct sw_range range = {.mem = sw_fixture_mem(&f, f.owner, &memory, false), .bytes = memory.bytes};
    sw_mem_map(range.mem, on_mapped, &first);
    sw_fixture_until(&f, &first.done);
    ck_assert_int_eq(first.code, 0);
    sw_engine_stats(f.engine, &stats);
    ck_assert_uint_eq(stats.n_mapped, 1);
    ck_assert_int_eq(sw_engine_spill(f.owner, SW_TRANSFER(&range, 1), sw_test_op_done, &op, &op.id, &err), 0);
    sw_fixture_until(&f, &op.done);
    ck_assert_int_eq(op.outcome.err.code, 0);
    sw_fixture_close_mem(&f, range.mem);

    range.mem = sw_fixture_mem(&f, f.owner, &memory, false);
    sw_device_faulty_arm(f.device, "map", 1, -SW_EIMPORT, 0);
    sw_mem_map(range.mem, on_mapped, &refused);
    sw_fixture_until(&f, &refused.done);
    ck_assert_int_eq(refused.code, -SW_EIMPORT);
    sw_engine_stats(f.engine, &stats);
    ck_assert_uint_eq(stats.n_mapped, 0);
    sw_fixture_close_mem(&f, range.mem);

    range.mem = sw_fixture_mem(&f, f.owner, &memory, false);
    sw_mem_map(range.mem, on_mapped, &closing);
    sw_mem_close(range.mem, set_flag, &closed); /* at once: unmapped after it was mapped */
    sw_fixture_until(&f, &closed);
    ck_assert(closing.done);
    sw_engine_stats(f.engine, &stats);
    ck_assert_uint_eq(stats.n_mapped, 0);
    sw_memory_free(&memory);
}
END_TEST

START_TEST(test_busy_regions_are_left_alone) {
    struct sw_memory memory = sw_memory_new(1 << 20);
    struct sw_test_op spill = {0}, first = {0}, second = {0};
    struct sw_err err = {0};
    fill(&memory, SW_CONTENT_RANDOM, 4);
    struct sw_range range = {.mem = sw_fixture_mem(&f, f.owner, &memory, false), .bytes = memory.bytes};
    ck_assert_int_eq(sw_engine_spill(f.owner, SW_TRANSFER(&range, 1), sw_test_op_done, &spill, &spill.id, &err), 0);
    ck_assert_int_eq(sw_engine_restore(f.owner, spill.id, SW_TRANSFER(&range, 1), sw_test_op_done, &first, &err),
                     -SW_ESTATE);
    ck_assert_int_eq(sw_engine_drop(f.owner, spill.id, &err), -SW_EBUSY);
    sw_fixture_until(&f, &spill.done);
    ck_assert_int_eq(
        sw_engine_restore(f.owner, spill.id, SW_TRANSFER(&range, 1, .keep = true), sw_test_op_done, &first, &err), 0);
    ck_assert_int_eq(
        sw_engine_restore(f.owner, spill.id, SW_TRANSFER(&range, 1, .keep = true), sw_test_op_done, &second, &err),
        -SW_EBUSY);
    ck_assert_int_eq(sw_engine_drop(f.owner, spill.id, &err), -SW_EBUSY);
    sw_engine_check(f.engine);
    sw_fixture_until(&f, &first.done);
    ck_assert_int_eq(first.outcome.err.code, 0);
    sw_memory_free(&memory);
}
END_TEST

START_TEST(test_every_cap_refuses_with_limit) {
    struct sw_test_op ops[4] = {0};
    struct sw_err err = {0};
    sw_fixture_close(&f);
    struct sw_fixture_config config = sw_fixture_defaults;
    config.max_owner_regions = 3;
    config.max_owner_mems = 1;
    config.max_regions = 4;
    sw_fixture_open(&f, &config);
    struct sw_memory memory = sw_memory_new(1000);
    struct sw_range range = {.mem = sw_fixture_mem(&f, f.owner, &memory, false), .bytes = memory.bytes};
    struct sw_mem_desc desc = sw_memory_desc(&memory);
    struct sw_mem *mem;
    ck_assert_int_eq(sw_mem_open(f.owner, &desc, false, &mem, &err), -SW_ELIMIT);
    for (int i = 0; i < 3; i++)
        ck_assert_int_eq(sw_engine_spill(f.owner, SW_TRANSFER(&range, 1), sw_test_op_done, &ops[i], &ops[i].id, &err),
                         0);
    for (int i = 0; i < 3; i++)
        sw_fixture_until(&f, &ops[i].done);
    ck_assert_int_eq(sw_engine_spill(f.owner, SW_TRANSFER(&range, 1), sw_test_op_done, &ops[3], &ops[3].id, &err),
                     -SW_ELIMIT);
    struct sw_owner *other;
    ck_assert_int_eq(sw_owner_open(f.engine, &other, &err), 0);
    range.mem = sw_fixture_mem(&f, other, &memory, false);
    ck_assert_int_eq(sw_engine_spill(other, SW_TRANSFER(&range, 1), sw_test_op_done, &ops[3], &ops[3].id, &err), 0);
    struct sw_region_id id;
    ck_assert_int_eq(sw_engine_spill(other, SW_TRANSFER(&range, 1), sw_test_op_done, &ops[3], &id, &err), -SW_ELIMIT);
    sw_fixture_close_owner(&f, other);
    sw_memory_free(&memory);
}
END_TEST

enum { N_OWNERS = 3, N_EACH = 12, FLIGHT_BYTES = 150000 };

START_TEST(test_many_in_flight_of_many_owners) {
    struct sw_memory from[N_OWNERS][N_EACH], to[N_OWNERS][N_EACH];
    struct sw_owner *owners[N_OWNERS];
    struct sw_test_op ops[N_OWNERS][N_EACH] = {0}, back[N_OWNERS][N_EACH] = {0};
    struct sw_err err = {0};
    for (int o = 0; o < N_OWNERS; o++) {
        ck_assert_int_eq(sw_owner_open(f.engine, &owners[o], &err), 0);
        for (int i = 0; i < N_EACH; i++) {
            size_t bytes = (size_t)(FLIGHT_BYTES * i / 3 + o);
            from[o][i] = sw_memory_new(bytes);
            to[o][i] = sw_memory_new(bytes);
            fill(&from[o][i], (enum sw_content)(i % SW_CONTENT_NR), (uint64_t)(o * 100 + i));
            struct sw_range range = {.mem = sw_fixture_mem(&f, owners[o], &from[o][i], true), .bytes = bytes};
            struct sw_test_op *op = &ops[o][i];
            ck_assert_int_eq(sw_engine_spill(owners[o], SW_TRANSFER(&range, 1), sw_test_op_done, op, &op->id, &err), 0);
        }
    }
    sw_engine_check(f.engine);
    for (int o = 0; o < N_OWNERS; o++)
        for (int i = 0; i < N_EACH; i++) {
            sw_fixture_until(&f, &ops[o][i].done);
            ck_assert_int_eq(ops[o][i].outcome.err.code, 0);
            struct sw_range range = {.mem = sw_fixture_mem(&f, owners[o], &to[o][i], true), .bytes = to[o][i].bytes};
            ck_assert_int_eq(sw_engine_restore(owners[o], ops[o][i].id, SW_TRANSFER(&range, 1, .keep = i % 2 == 0),
                                               sw_test_op_done, &back[o][i], &err),
                             0);
        }
    for (int o = 0; o < N_OWNERS; o++)
        for (int i = 0; i < N_EACH; i++) {
            sw_fixture_until(&f, &back[o][i].done);
            ck_assert_int_eq(back[o][i].outcome.err.code, 0);
            ck_assert_uint_eq(back[o][i].calls, 1);
            ck_assert(to[o][i].bytes == 0 || memcmp(to[o][i].data, from[o][i].data, to[o][i].bytes) == 0);
        }
    sw_engine_check(f.engine);
    for (int o = 0; o < N_OWNERS; o++) {
        sw_fixture_close_owner(&f, owners[o]);
        for (int i = 0; i < N_EACH; i++) {
            sw_memory_free(&from[o][i]);
            sw_memory_free(&to[o][i]);
        }
    }
}
END_TEST

START_TEST(test_closing_an_owner_cancels_its_operations) {
    /* Every chunk of the first region may be under way, the later regions wait in line. */
    enum { N = 6 };
    struct sw_memory memory = sw_memory_new(8 << 20);
    struct sw_test_op ops[N] = {0};
    struct sw_owner *owner;
    struct sw_err err = {0};
    unsigned canceled = 0;
    fill(&memory, SW_CONTENT_MIXED, 5);
    ck_assert_int_eq(sw_owner_open(f.engine, &owner, &err), 0);
    for (int i = 0; i < N; i++) {
        struct sw_range range = {.mem = sw_fixture_mem(&f, owner, &memory, true), .bytes = memory.bytes};
        ck_assert_int_eq(sw_engine_spill(owner, SW_TRANSFER(&range, 1), sw_test_op_done, &ops[i], &ops[i].id, &err), 0);
    }
    struct sw_region_info info = {.state = SW_REGION_STAGING};
    while (info.state == SW_REGION_STAGING)
        ck_assert_int_eq(sw_engine_query(owner, ops[0].id, &info, &err), 0);
    sw_fixture_close_owner(&f, owner);
    for (int i = 0; i < N; i++) {
        ck_assert_uint_eq(ops[i].calls, 1);
        ck_assert(ops[i].outcome.err.code == 0 || ops[i].outcome.err.code == -SW_ECANCELED);
        canceled += ops[i].outcome.err.code == -SW_ECANCELED;
    }
    ck_assert_uint_gt(canceled, 0);
    struct sw_engine_stats stats;
    sw_engine_stats(f.engine, &stats);
    ck_assert_uint_eq(stats.canceled_ops, canceled);
    ck_assert_uint_eq(stats.failed_ops, 0);
    ck_assert_uint_eq(stats.n_mapped + stats.n_mems + stats.n_regions, 0);
    ck_assert_uint_eq(stats.tiers[0].used_bytes, 0);
    sw_memory_free(&memory);
}
END_TEST

START_TEST(test_held_operations_begin_together) {
    enum { N = 20 };
    struct sw_memory memory = sw_memory_new((size_t)N * 5000);
    struct sw_test_op ops[N] = {0};
    struct sw_region_info info;
    struct sw_err err = {0};
    fill(&memory, SW_CONTENT_TEXT, 5);
    struct sw_range range = {.mem = sw_fixture_mem(&f, f.owner, &memory, false), .bytes = 5000};
    sw_engine_hold(f.engine, true);
    for (int i = 0; i < N; i++) {
        range.offset = (uint64_t)i * 5000;
        ck_assert_int_eq(sw_engine_spill(f.owner, SW_TRANSFER(&range, 1), sw_test_op_done, &ops[i], &ops[i].id, &err),
                         0);
    }
    for (int i = 1; i < N; i += 2)
        sw_engine_cancel(f.owner, ops[i].id);
    ck_assert_int_eq(sw_engine_query(f.owner, ops[0].id, &info, &err), 0);
    ck_assert_int_eq(info.state, SW_REGION_STAGING);
    sw_engine_release(f.engine);
    for (int i = 0; i < N; i++) {
        sw_fixture_until(&f, &ops[i].done);
        ck_assert_int_eq(ops[i].outcome.err.code, i % 2 ? -SW_ECANCELED : 0);
        ck_assert_int_eq(sw_fixture_state(&f, ops[i].id), i % 2 ? -SW_ESTALE : SW_REGION_OUT);
    }
    sw_engine_cancel(f.owner, ops[0].id); /* of those that have ended it is nothing */
    sw_engine_cancel(f.owner, ops[1].id);
    ck_assert_int_eq(sw_fixture_state(&f, ops[0].id), SW_REGION_OUT);
    sw_memory_free(&memory);
}
END_TEST

START_TEST(test_states_pass_in_order) {
    struct sw_memory memory = sw_memory_new(4 << 20);
    struct sw_test_op op = {0};
    struct sw_err err = {0};
    int last = SW_REGION_STAGING;
    fill(&memory, SW_CONTENT_TEXT, 5);
    struct sw_range range = {.mem = sw_fixture_mem(&f, f.owner, &memory, true), .bytes = memory.bytes};
    ck_assert_int_eq(sw_engine_spill(f.owner, SW_TRANSFER(&range, 1), sw_test_op_done, &op, &op.id, &err), 0);
    ck_assert_int_eq(sw_fixture_state(&f, op.id), SW_REGION_STAGING);
    while (!op.done) {
        (void)uv_run(&f.loop, UV_RUN_ONCE);
        int state = sw_fixture_state(&f, op.id);
        ck_assert_int_ge(state, last);
        last = state;
    }
    ck_assert_int_eq(last, SW_REGION_OUT);
    sw_memory_free(&memory);
}
END_TEST

/* While a step of it hangs, a spill is in that step's state. */
START_TEST(test_states_are_those_of_the_steps) {
    static const struct {
        const char *step;
        unsigned nth;
        int state;
    } steps[] = {{"make_plan", 1, SW_REGION_STAGING},
                 {"encode", 1, SW_REGION_ENCODING},
                 {"store", 2, SW_REGION_STORING}}; /* of the last chunk */
    enum { PATIENCE_US = 5000000 };
    struct sw_memory memory = sw_memory_new(2 * 65536);
    fill(&memory, SW_CONTENT_TEXT, 5);
    for (size_t i = 0; i < sizeof steps / sizeof steps[0]; i++) {
        struct sw_test_op op = {0};
        struct sw_range range = {.mem = sw_fixture_mem(&f, f.owner, &memory, true), .bytes = memory.bytes};
        const uint64_t until_us = sw_clock_us() + PATIENCE_US;
        sw_device_faulty_arm(f.device, steps[i].step, steps[i].nth, -SW_EAGAIN, SW_FAULT_DONE);
        ck_assert_int_eq(sw_engine_spill(f.owner, SW_TRANSFER(&range, 1), sw_test_op_done, &op, &op.id, NULL), 0);
        while (!sw_device_faulty_hangs(f.device) ||
               (sw_fixture_state(&f, op.id) != steps[i].state && sw_clock_us() < until_us))
            (void)uv_run(&f.loop, UV_RUN_NOWAIT);
        ck_assert_int_eq(sw_fixture_state(&f, op.id), steps[i].state);
        sw_device_faulty_release(f.device);
        sw_fixture_until(&f, &op.done);
        ck_assert_int_eq(sw_fixture_state(&f, op.id), SW_REGION_OUT);
        ck_assert_int_eq(sw_engine_drop(f.owner, op.id, NULL), 0);
    }
    sw_memory_free(&memory);
}
END_TEST

struct chain {
    struct sw_owner *owner;
    struct sw_range range;
    unsigned left;
    bool done, closed;
};

static void on_closed(void *arg) {
    struct chain *chain = arg;
    chain->closed = true;
}

static void on_chain(const struct sw_outcome *outcome, void *arg) {
    struct chain *chain = arg;
    struct sw_region_id id;
    ck_assert_int_eq(outcome->err.code, 0);
    ck_assert_int_eq(sw_engine_drop(chain->owner, outcome->region, NULL), 0);
    if (chain->left-- > 0) {
        ck_assert_int_eq(sw_engine_spill(chain->owner, SW_TRANSFER(&chain->range, 1), on_chain, chain, &id, NULL), 0);
    } else {
        sw_mem_close(chain->range.mem, NULL, NULL);
        sw_owner_close(chain->owner, on_closed, chain);
        ck_assert_int_eq(sw_engine_spill(chain->owner, SW_TRANSFER(&chain->range, 1), on_chain, chain, &id, NULL),
                         -SW_ESHUTDOWN);
    }
}

START_TEST(test_callbacks_may_start_and_close_things) {
    struct sw_memory memory = sw_memory_new(100000);
    struct chain chain = {.left = 10};
    struct sw_region_id id;
    ck_assert_int_eq(sw_owner_open(f.engine, &chain.owner, NULL), 0);
    chain.range.mem = sw_fixture_mem(&f, chain.owner, &memory, false);
    chain.range.bytes = memory.bytes;
    ck_assert_int_eq(sw_engine_spill(chain.owner, SW_TRANSFER(&chain.range, 1), on_chain, &chain, &id, NULL), 0);
    sw_fixture_until(&f, &chain.closed);
    sw_memory_free(&memory);
}
END_TEST

/* Other operations may not use bytes that are being moved in place, if the memory is known to be the same. */
START_TEST(test_memory_of_a_pack_is_in_no_other_operation) {
    enum { BYTES = 400000, HALF = BYTES / 2 };
    struct sw_memory memory = sw_memory_new(BYTES);
    struct sw_test_op first = {0}, other = {0};
    fill(&memory, SW_CONTENT_TEXT, 3);
    struct sw_mem *mem = sw_fixture_mem(&f, f.owner, &memory, false);
    const struct sw_range pack = {.mem = mem, .bytes = HALF}, beside = {.mem = mem, .offset = HALF, .bytes = HALF},
                          across = {.mem = mem, .offset = HALF - 1, .bytes = 10},
                          pack_across = {.mem = mem, .offset = HALF - 1, .bytes = HALF};
    ck_assert_int_eq(
        sw_engine_spill(f.owner, SW_TRANSFER(&pack, 1, .in_place = true), sw_test_op_done, &first, &first.id, NULL), 0);
    ck_assert_int_eq(
        sw_engine_spill(f.owner, SW_TRANSFER(&pack, 1, .in_place = true), sw_test_op_done, &other, &other.id, NULL),
        -SW_EBUSY);
    ck_assert_int_eq(sw_engine_spill(f.owner, SW_TRANSFER(&across, 1), sw_test_op_done, &other, &other.id, NULL),
                     -SW_EBUSY);
    ck_assert_int_eq(sw_engine_spill(f.owner, SW_TRANSFER(&beside, 1), sw_test_op_done, &other, &other.id, NULL), 0);
    ck_assert_int_eq(sw_engine_spill(f.owner, SW_TRANSFER(&pack_across, 1, .in_place = true), sw_test_op_done, &other,
                                     &other.id, NULL),
                     -SW_EBUSY);
    sw_fixture_until(&f, &first.done);
    sw_fixture_until(&f, &other.done);
    ck_assert_int_eq(first.outcome.err.code, 0);
    ck_assert_int_eq(other.outcome.err.code, 0);
    struct sw_test_op back = {0}, third = {0};
    ck_assert_int_eq(
        sw_engine_restore(f.owner, first.id, SW_TRANSFER(&pack, 1, .in_place = true), sw_test_op_done, &back, NULL), 0);
    ck_assert_int_eq(
        sw_engine_restore(f.owner, other.id, SW_TRANSFER(&across, 1, .keep = true), sw_test_op_done, &third, NULL),
        -SW_ETOOSMALL);
    ck_assert_int_eq(sw_engine_spill(f.owner, SW_TRANSFER(&across, 1), sw_test_op_done, &third, &third.id, NULL),
                     -SW_EBUSY);
    sw_fixture_until(&f, &back.done);
    ck_assert_int_eq(back.outcome.err.code, 0);
    ck_assert_int_eq(sw_engine_spill(f.owner, SW_TRANSFER(&across, 1), sw_test_op_done, &third, &third.id, NULL), 0);
    sw_fixture_until(&f, &third.done);
    ck_assert_int_eq(sw_engine_drop(f.owner, third.id, NULL), 0);
    ck_assert_int_eq(sw_engine_drop(f.owner, other.id, NULL), 0);
    /* What ends where a pack begins is beside it, too, by the byte. */
    struct sw_test_op packs = {0}, before = {0}, unpacks = {0};
    const struct sw_range last = {.mem = mem, .offset = HALF - 10, .bytes = 10},
                          touches = {.mem = mem, .offset = HALF - 9, .bytes = 10};
    ck_assert_int_eq(
        sw_engine_spill(f.owner, SW_TRANSFER(&beside, 1, .in_place = true), sw_test_op_done, &packs, &packs.id, NULL),
        0);
    ck_assert_int_eq(sw_engine_spill(f.owner, SW_TRANSFER(&touches, 1), sw_test_op_done, &before, &before.id, NULL),
                     -SW_EBUSY);
    ck_assert_int_eq(sw_engine_spill(f.owner, SW_TRANSFER(&last, 1), sw_test_op_done, &before, &before.id, NULL), 0);
    sw_fixture_until(&f, &packs.done);
    sw_fixture_until(&f, &before.done);
    ck_assert_int_eq(sw_engine_drop(f.owner, before.id, NULL), 0);
    ck_assert_int_eq(sw_engine_restore(f.owner, packs.id, SW_TRANSFER(&beside, 1, .in_place = true, .keep = true),
                                       sw_test_op_done, &unpacks, NULL),
                     -SW_EINVAL); /* it would be overwritten */
    ck_assert_int_eq(sw_engine_restore(f.owner, packs.id, SW_TRANSFER(&beside, 1, .in_place = true), sw_test_op_done,
                                       &unpacks, NULL),
                     0);
    sw_fixture_until(&f, &unpacks.done);
    ck_assert_int_eq(unpacks.outcome.err.code, 0);
    sw_fixture_close_mem(&f, mem);
    sw_memory_free(&memory);
}
END_TEST

/* ---- signs of life of several devices ---- */

static void set_closed(void *arg) {
    *(bool *)arg = true;
}

static atomic_int silent_device; /* its index */
static const struct sw_device *watched[2];

static int canary(struct sw_device *device, struct sw_err *err) {
    const bool is_silent = device == watched[atomic_load(&silent_device)];
    return is_silent ? sw_err_set(err, -SW_EGPU, SW_SCOPE_DEVICE, "no answer") : 0;
}

/* _i: which of two devices does not answer; the other does. */
START_TEST(test_any_device_that_is_silent_is_noticed) {
    enum { LONG_US = 30000 };
    const struct sw_device_config device_config = {.scratch_bytes = 64 << 20, .n_slots = 1, .chunk_bytes = 64 << 10};
    struct sw_device *devices[2] = {f.device};
    ck_assert_int_eq(sw_fixture_open_device(&devices[1], &device_config, NULL), 0);
    const struct sw_device_ops *const real[2] = {devices[0]->ops, devices[1]->ops};
    struct sw_device_ops ops[2];
    atomic_store(&silent_device, _i);
    for (unsigned i = 0; i < 2; i++) {
        ops[i] = *real[i];
        ops[i].canary = canary;
        devices[i]->ops = &ops[i];
        watched[i] = devices[i];
    }
    const struct sw_engine_config config = {
        .devices = devices, .n_devices = 2, .tiers = {.at = {f.tier}, .n = 1}, .max_regions = 10};
    struct sw_engine *engine = NULL;
    bool closed = false;
    ck_assert_int_eq(sw_engine_open(&engine, &f.loop, &config, NULL), 0);
    const uint64_t begun_us = sw_clock_us();
    while (sw_clock_us() < begun_us + LONG_US) {
        sw_engine_ask_life(engine);
        (void)uv_run(&f.loop, UV_RUN_NOWAIT);
    }
    ck_assert_uint_ge(sw_engine_silent_us(engine), LONG_US);
    sw_engine_close(engine, set_closed, &closed);
    sw_fixture_until(&f, &closed);
    for (unsigned i = 0; i < 2; i++)
        devices[i]->ops = real[i];
    devices[1]->ops->close(devices[1]);
}
END_TEST

/* A device that is polled keeps the loop awake, whichever it is (_i). */
START_TEST(test_any_polled_device_keeps_the_loop_awake) {
    enum { LONG_US = 60000000 };
    const struct sw_device_config device_config = {.scratch_bytes = 64 << 20, .n_slots = 1, .chunk_bytes = 64 << 10};
    struct sw_device *devices[2];
    struct sw_engine *engine = NULL;
    bool closed = false;
    for (int i = 0; i < 2; i++) {
        ck_assert_int_eq(sw_fixture_open_device(&devices[i], &device_config, NULL), 0);
        ((struct sw_device_info *)(uintptr_t)devices[i]->ops->info(devices[i]))->poll_us = i == _i ? LONG_US : 0;
    }
    const struct sw_engine_config config = {
        .devices = devices, .n_devices = 2, .tiers = {.at = {f.tier}, .n = 1}, .max_regions = 10};
    ck_assert_int_eq(sw_engine_open(&engine, &f.loop, &config, NULL), 0);
    sw_engine_keep_awake(engine);
    (void)uv_run(&f.loop, UV_RUN_NOWAIT);
    ck_assert(uv_is_active((const uv_handle_t *)&engine->spin));
    sw_engine_close(engine, set_closed, &closed);
    sw_fixture_until(&f, &closed);
    for (int i = 0; i < 2; i++)
        devices[i]->ops->close(devices[i]);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("engine");
    TCase *tcase = tcase_create("engine");
    sw_test_slow(tcase, 90);
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_test(tcase, test_every_size_comes_back);
    tcase_add_test(tcase, test_text_shrinks_and_is_counted);
    tcase_add_test(tcase, test_an_operation_takes_no_longer_than_its_call);
    tcase_add_test(tcase, test_keep_restores_again_and_drop_frees);
    tcase_add_test(tcase, test_bytes_of_another_tenant_are_neither_stored_nor_restored);
    tcase_add_test(tcase, test_drifting_content_is_retrained);
    tcase_add_test(tcase, test_refusals_name_their_cause);
    tcase_add_test(tcase, test_a_once_memory_serves_one_operation);
    tcase_add_test(tcase, test_memory_may_be_mapped_before_its_first_operation);
    tcase_add_test(tcase, test_busy_regions_are_left_alone);
    tcase_add_test(tcase, test_every_cap_refuses_with_limit);
    tcase_add_test(tcase, test_many_in_flight_of_many_owners);
    tcase_add_test(tcase, test_closing_an_owner_cancels_its_operations);
    tcase_add_test(tcase, test_states_pass_in_order);
    tcase_add_test(tcase, test_states_are_those_of_the_steps);
    tcase_add_test(tcase, test_held_operations_begin_together);
    tcase_add_test(tcase, test_callbacks_may_start_and_close_things);
    tcase_add_test(tcase, test_memory_of_a_pack_is_in_no_other_operation);
    tcase_add_loop_test(tcase, test_any_device_that_is_silent_is_noticed, 0, 2);
    tcase_add_loop_test(tcase, test_any_polled_device_keeps_the_loop_awake, 0, 2);
    suite_add_tcase(suite, tcase);
    return sw_test_run(suite, CK_FORK);
}
