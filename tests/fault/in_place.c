/* Pack and unpack with failures at every chunk: the memory has its bytes again, or the region still has them. */
#include "base/alloc.h"
#include "spill/engine_state.h"
#include "tests/lib/content.h"
#include "tests/lib/engine_fixture.h"
#include "tests/lib/frames.h"
#include "tests/lib/run.h"
#include "tests/lib/transfer.h"

#include <check.h>
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

/* Chunks of 64 KiB; an odd start and end. */
enum { OFFSET = 77, REGION_BYTES = 6 * 65536 + 4321, BEHIND = 333, MANY = 400 };

static const enum sw_content contents[] = {SW_CONTENT_TEXT, SW_CONTENT_MIXED, SW_CONTENT_RANDOM};
static const struct {
    const char *name;
    enum sw_fault fault;
} pack_faults[] =
    {
        {"map", SW_FAULT_AT_ONCE}, {"make_plan", SW_FAULT_LATE}, {"encode", SW_FAULT_AT_ONCE},
        {"encode", SW_FAULT_LATE}, {"encode", SW_FAULT_DONE},    {"place", SW_FAULT_AT_ONCE},
        {"place", SW_FAULT_LATE},  {"place", SW_FAULT_DONE},     {"store", SW_FAULT_AT_ONCE},
        {"store", SW_FAULT_LATE},
},
  unpack_faults[] = {
      {"map", SW_FAULT_AT_ONCE},    {"fetch", SW_FAULT_AT_ONCE}, {"fetch", SW_FAULT_LATE},  {"fetch", SW_FAULT_DONE},
      {"decode", SW_FAULT_AT_ONCE}, {"decode", SW_FAULT_LATE},   {"decode", SW_FAULT_DONE}, {"load", SW_FAULT_LATE},
      {"unpack", SW_FAULT_AT_ONCE}, {"unpack", SW_FAULT_LATE},   {"unpack", SW_FAULT_DONE},
};
enum { N_CONTENTS = 3, N_PACK_FAULTS = 10, N_UNPACK_FAULTS = 11 };

static struct sw_fixture f;
static struct sw_memory memory;
static uint8_t *original;

static void set_up(unsigned n_slots) {
    struct sw_fixture_config config = sw_fixture_defaults;
    config.n_slots = n_slots;
    sw_fixture_open(&f, &config);
    memory = sw_memory_new(OFFSET + REGION_BYTES + BEHIND);
    original = sw_alloc(memory.bytes);
    ck_assert_ptr_nonnull(original);
}

static void setup(void) {
    set_up(3);
}

static void teardown(void) {
    sw_memory_free(&memory);
    sw_free(original);
    sw_fixture_close(&f);
}

/* Text in front, so that frames move up; then the content that was asked for. */
static void fill(enum sw_content content) {
    sw_content_fill(original, memory.bytes, content, 5);
    sw_content_fill(original + OFFSET, REGION_BYTES / 5, SW_CONTENT_TEXT, 6);
    memcpy(memory.data, original, memory.bytes);
}

static void check_whole(void) {
    ck_assert_int_eq(memcmp(memory.data, original, memory.bytes), 0);
}

static void check_nothing_in_use(unsigned n_regions) {
    struct sw_engine_stats stats;
    sw_engine_check(f.engine);
    sw_engine_stats(f.engine, &stats);
    ck_assert_uint_eq(stats.n_mapped + stats.n_ops + stats.n_mems, 0);
    ck_assert_uint_eq(stats.n_regions, n_regions);
    ck_assert(n_regions > 0 || stats.tiers[0].used_bytes == 0);
}

static int pack(struct sw_test_op *op) {
    return sw_fixture_pack(&f, &memory, OFFSET, REGION_BYTES, op);
}

static int unpack(struct sw_region_id id, struct sw_test_op *op) {
    return sw_fixture_unpack(&f, id, &memory, OFFSET, REGION_BYTES, op);
}

/* Overwrites the memory that the client may reuse; memory outside the range must not have changed. */
static void reuse_tail(const struct sw_test_op *packed) {
    uint64_t kept = packed->outcome.stored_bytes;
    ck_assert_uint_le(kept, REGION_BYTES);
    memset(memory.data + OFFSET + kept, 0xDB, REGION_BYTES - kept);
    ck_assert_int_eq(memcmp(memory.data, original, OFFSET), 0);
    ck_assert_int_eq(memcmp(memory.data + OFFSET + REGION_BYTES, original + OFFSET + REGION_BYTES, BEHIND), 0);
}

/* Checks which chunks of the region are packed. Returns the bytes that can be read in place. */
static uint64_t check_directory(struct sw_region_id id) {
    enum { MOST = REGION_BYTES / 65536 + 1 };
    struct spillway_packed_chunk chunks[MOST + 1];
    size_t n = 0, n_chunks = 0;
    ck_assert_int_eq(sw_engine_query_packed(f.owner, id, 0, chunks, MOST + 1, &n, &n_chunks, NULL), 0);
    ck_assert(n == MOST && n_chunks == MOST);
    return sw_packed_ck(memory.data + OFFSET, REGION_BYTES, chunks, n, original + OFFSET, REGION_BYTES);
}

START_TEST(test_pack_frees_the_tail_and_unpack_brings_it_back) {
    struct sw_test_op op, back;
    struct sw_region_info info;
    fill(contents[_i]);
    ck_assert_int_eq(pack(&op), 0);
    ck_assert_str_eq(op.outcome.tier, "device");
    ck_assert(contents[_i] != SW_CONTENT_TEXT || op.outcome.stored_bytes < REGION_BYTES / 2);
    ck_assert_int_eq(sw_engine_query(f.owner, op.id, &info, NULL), 0);
    ck_assert_str_eq(info.tier, "device");
    ck_assert_int_eq(info.state, SW_REGION_OUT);
    check_nothing_in_use(1);
    reuse_tail(&op);
    ck_assert_uint_eq(check_directory(op.id), REGION_BYTES);
    ck_assert_int_eq(unpack(op.id, &back), 0);
    check_whole();
    ck_assert_int_eq(sw_fixture_state(&f, op.id), -SW_ESTALE);
    check_nothing_in_use(0);
}
END_TEST

START_TEST(test_any_length_packs) {
    static const uint64_t lengths[] = {0, 1, 15, 16, 17, 65535, 65536, 65537, 131072, 200001};
    fill(contents[_i]);
    for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++) {
        struct sw_test_op op, back;
        ck_assert_int_eq(sw_fixture_pack(&f, &memory, OFFSET + i, lengths[i], &op), 0);
        ck_assert_uint_le(op.outcome.stored_bytes, lengths[i]);
        memset(memory.data + OFFSET + i + op.outcome.stored_bytes, 0xDB, lengths[i] - op.outcome.stored_bytes);
        ck_assert_int_eq(sw_fixture_unpack(&f, op.id, &memory, OFFSET + i, lengths[i], &back), 0);
        check_whole();
        check_nothing_in_use(0);
    }
}
END_TEST

START_TEST(test_a_pack_that_fails_anywhere_is_undone) {
    const char *step = pack_faults[_i / N_CONTENTS].name;
    struct sw_test_op op, back;
    unsigned nth = 1;
    fill(contents[_i % N_CONTENTS]);
    for (;; nth++) {
        sw_device_faulty_arm(f.device, step, nth, -SW_EGPU, pack_faults[_i / N_CONTENTS].fault);
        int rc = pack(&op);
        if (rc == 0)
            break;
        ck_assert_int_eq(rc, -SW_EGPU);
        check_whole();
        ck_assert_int_eq(sw_fixture_state(&f, op.id), -SW_ESTALE);
        check_nothing_in_use(0);
        ck_assert_uint_lt(nth, MANY);
    }
    sw_device_faulty_arm(f.device, step, 0, 0, SW_FAULT_AT_ONCE);
    ck_assert(nth >= 7 || (strcmp(step, "encode") != 0 && strcmp(step, "place") != 0)); /* every chunk's */
    ck_assert_int_eq(unpack(op.id, &back), 0);
    check_whole();
    check_nothing_in_use(0);
}
END_TEST

/* Of the beginning of a frame that is longer than its chunk, and lies in host memory. */
START_TEST(test_a_pack_whose_commit_fails_is_undone) {
    struct sw_test_op op, back;
    unsigned nth = 0;
    fill(SW_CONTENT_RANDOM);
    int rc;
    do {
        (void)sw_fixture_fail_commit(&f, ++nth);
        rc = pack(&op);
        ck_assert(rc == 0 || rc == -SW_EIO);
        if (rc) {
            check_whole();
            check_nothing_in_use(0);
        }
    } while (rc);
    ck_assert_uint_eq(sw_fixture_fail_commit(&f, 0), nth - 1);
    ck_assert_uint_gt(nth, 3);
    ck_assert_int_eq(unpack(op.id, &back), 0);
    check_whole();
}
END_TEST

/* The step fails, and the attempt to undo it fails once as well. */
START_TEST(test_undoing_is_tried_again) {
    struct sw_test_op op;
    fill(contents[_i % N_CONTENTS]);
    for (unsigned nth = 1; nth <= 7; nth++) {
        sw_device_faulty_arm(f.device, "place", nth, -SW_EGPU, SW_FAULT_DONE);
        sw_device_faulty_arm(f.device, "decode", 1 + nth / 2, -SW_EGPU, (enum sw_fault)(_i / N_CONTENTS));
        sw_device_faulty_arm(f.device, "fetch", 1 + nth / 3, -SW_EGPU, (enum sw_fault)(_i / N_CONTENTS));
        sw_device_faulty_arm(f.device, "unpack", 1 + nth / 3, -SW_EGPU, (enum sw_fault)(_i / N_CONTENTS));
        ck_assert_int_eq(pack(&op), -SW_EGPU);
        check_whole();
        check_nothing_in_use(0);
    }
}
END_TEST

START_TEST(test_an_unpack_that_fails_anywhere_can_be_repeated) {
    const char *step = unpack_faults[_i / N_CONTENTS].name;
    struct sw_test_op op, back;
    bool failed = true;
    unsigned nth = 1;
    fill(contents[_i % N_CONTENTS]);
    for (; failed; nth++) {
        ck_assert_int_eq(pack(&op), 0);
        reuse_tail(&op);
        sw_device_faulty_arm(f.device, step, nth, -SW_EGPU, unpack_faults[_i / N_CONTENTS].fault);
        int rc = unpack(op.id, &back);
        failed = rc != 0;
        sw_device_faulty_arm(f.device, step, 0, 0, SW_FAULT_AT_ONCE);
        if (failed) {
            ck_assert_int_eq(rc, -SW_EGPU);
            ck_assert_int_eq(sw_fixture_state(&f, op.id), SW_REGION_OUT);
            check_nothing_in_use(1);
            ck_assert_uint_eq(check_directory(op.id), REGION_BYTES);
            ck_assert_int_eq(unpack(op.id, &back), 0);
        }
        check_whole();
        check_nothing_in_use(0);
        ck_assert_uint_lt(nth, MANY);
    }
    /* Incompressible chunks are all fetched; most chunks of a text are decoded where they lie. */
    ck_assert(contents[_i % N_CONTENTS] != SW_CONTENT_RANDOM || strcmp(step, "fetch") != 0 || nth > 4);
    ck_assert(contents[_i % N_CONTENTS] != SW_CONTENT_TEXT || strcmp(step, "unpack") != 0 || nth > 4);
}
END_TEST

/* Puts the former bytes back into frames that are still packed. */
static void put_frames_back(struct sw_region_id id, const uint8_t *packed) {
    struct sw_region *region;
    ck_assert_int_eq(sw_region_find(&f.engine->store.regions, f.owner, id, &region, NULL), 0);
    for (size_t i = 0; i < region->frames->n_chunks; i++) {
        const struct sw_packed_chunk *chunk = &region->frames->packed[i];
        if (chunk->is_packed)
            memcpy(memory.data + OFFSET + chunk->offset, packed + chunk->offset, chunk->bytes);
    }
}

/* The client that has damaged them may put them back. */
START_TEST(test_damage_in_the_packed_bytes_is_found) {
    struct sw_test_op op, back;
    uint64_t seed = 3;
    unsigned refused = 0;
    uint8_t *packed = sw_alloc(REGION_BYTES);
    ck_assert_ptr_nonnull(packed);
    fill(contents[_i]);
    for (int i = 0; i < 20; i++) {
        memcpy(memory.data, original, memory.bytes);
        ck_assert_int_eq(pack(&op), 0);
        memcpy(packed, memory.data + OFFSET, REGION_BYTES);
        memory.data[OFFSET + sw_random(&seed) % op.outcome.stored_bytes] ^= (uint8_t)(1 + i);
        int rc = unpack(op.id, &back);
        if (rc == 0) { /* padding was hit */
            check_whole();
            continue;
        }
        refused++;
        ck_assert(rc == -SW_EFRAME || rc == -SW_ECHECKSUM || rc == -SW_EVERSION);
        ck_assert_int_eq(back.outcome.err.scope, SW_SCOPE_REGION);
        ck_assert_int_eq(sw_fixture_state(&f, op.id), SW_REGION_OUT);
        check_nothing_in_use(1);
        put_frames_back(op.id, packed);
        ck_assert_int_eq(unpack(op.id, &back), 0);
        check_whole();
        check_nothing_in_use(0);
    }
    ck_assert_uint_gt(refused, 10);
    sw_free(packed);
}
END_TEST

/* Steps that are under way when one of them fails fail with it, as they would if a device had a bad moment: that says
 * nothing of whether they can be undone. */
static struct {
    const struct sw_device_ops *real;
    struct sw_device_ops ops;
    atomic_uint n_left; /* failing calls, reported at the last one */
    atomic_bool failed[16];
} burst;

static int burst_place(struct sw_device *device, unsigned s, struct sw_mapping *mapping, uint64_t offset,
                       uint64_t frame_at, uint64_t bytes, struct sw_err *err) {
    if (atomic_load(&burst.n_left) == 0)
        return burst.real->place(device, s, mapping, offset, frame_at, bytes, err);
    atomic_store(&burst.failed[s], true);
    atomic_fetch_sub(&burst.n_left, 1);
    return 0;
}

static int burst_poll(struct sw_device *device, unsigned s, struct sw_slot_result *ret, struct sw_err *err) {
    if (!atomic_load(&burst.failed[s]))
        return burst.real->slot_poll(device, s, ret, err);
    if (atomic_load(&burst.n_left) > 0)
        return -SW_EAGAIN;
    atomic_store(&burst.failed[s], false);
    return sw_err_set(err, -SW_EGPU, SW_SCOPE_REQUEST, "one of many");
}

static int (*open_device)(struct sw_device **ret, const struct sw_device_config *config, struct sw_err *err);

static int open_polled(struct sw_device **ret, const struct sw_device_config *config, struct sw_err *err) {
    const int rc = open_device(ret, config, err);
    if (rc == 0) /* the worker never sleeps on a slot */
        ((struct sw_device_info *)(uintptr_t)(*ret)->ops->info(*ret))->poll_us = 60000000;
    return rc;
}

START_TEST(test_transient_failures_do_not_count_as_attempts_to_undo) {
    static const unsigned n_failing[] = {1, 9, 12, 16};
    static uint8_t bytes[32 * 65536];
    struct sw_fixture_config config = sw_fixture_defaults;
    struct sw_fixture many;
    struct sw_test_op op;
    config.n_slots = 16;
    open_device = sw_fixture_open_device;
    sw_fixture_open_device = open_polled;
    sw_fixture_open(&many, &config);
    struct sw_memory packed = sw_memory_new(sizeof bytes);
    sw_content_fill(bytes, sizeof bytes, SW_CONTENT_TEXT, 1);
    memcpy(packed.data, bytes, sizeof bytes);
    memset(&burst, 0, sizeof burst);
    burst.real = many.device->ops;
    burst.ops = *burst.real;
    burst.ops.place = burst_place;
    burst.ops.slot_poll = burst_poll;
    many.device->ops = &burst.ops;
    atomic_store(&burst.n_left, n_failing[_i]);
    ck_assert_int_eq(sw_fixture_pack(&many, &packed, 0, sizeof bytes, &op), -SW_EGPU);
    ck_assert_int_eq(memcmp(packed.data, bytes, sizeof bytes), 0);
    many.device->ops = burst.real;
    sw_memory_free(&packed);
    sw_fixture_close(&many);
}
END_TEST

/* ---- a device that never recovers ---- */

static struct {
    const struct sw_device_ops *real;
    struct sw_device_ops ops;
    atomic_uint n_good, n_failed; /* placings that still succeed; steps that have failed */
    int code;                     /* with which they fail */
} broken;

static int fail_step(struct sw_err *err) {
    atomic_fetch_add(&broken.n_failed, 1);
    return sw_err_set(err, broken.code, SW_SCOPE_REQUEST, "it never works again");
}

static int broken_place(struct sw_device *device, unsigned s, struct sw_mapping *mapping, uint64_t offset,
                        uint64_t frame_at, uint64_t bytes, struct sw_err *err) {
    if (atomic_load(&broken.n_good) == 0)
        return fail_step(err);
    atomic_fetch_sub(&broken.n_good, 1);
    return broken.real->place(device, s, mapping, offset, frame_at, bytes, err);
}

static int broken_decode(struct sw_device *device, unsigned s, struct sw_mapping *mapping,
                         const struct sw_decode_item *items, unsigned n, struct sw_err *err) {
    (void)device, (void)s, (void)mapping, (void)items, (void)n;
    return fail_step(err);
}

static void break_device(unsigned n_good, int code) {
    broken.real = f.device->ops;
    broken.ops = *broken.real;
    broken.ops.place = broken_place;
    broken.ops.decode = broken_decode;
    atomic_store(&broken.n_good, n_good);
    atomic_store(&broken.n_failed, 0);
    broken.code = code;
    f.device->ops = &broken.ops;
}

/* Then the bytes are lost, and the client is told so, after a few attempts. _i: chunks that a pack has placed. */
START_TEST(test_undoing_ends_if_it_never_succeeds) {
    struct sw_test_op op, back;
    fill(SW_CONTENT_RANDOM);
    break_device((unsigned)_i, -SW_EGPU);
    ck_assert_int_eq(pack(&op), -SW_ELOST);
    ck_assert_uint_le(atomic_load(&broken.n_failed), 20);
    f.device->ops = broken.real;
    check_nothing_in_use(0);
    memcpy(memory.data, original, memory.bytes);
    ck_assert_int_eq(pack(&op), 0);
    break_device(0, -SW_EGPU);
    ck_assert_int_eq(unpack(op.id, &back), -SW_ELOST);
    ck_assert_uint_le(atomic_load(&broken.n_failed), 40);
    f.device->ops = broken.real;
    ck_assert_int_eq(sw_fixture_state(&f, op.id), SW_REGION_LOST);
    ck_assert_int_eq(sw_engine_drop(f.owner, op.id, NULL), 0);
    check_nothing_in_use(0);
}
END_TEST

/* Frames that are damaged cannot be decoded later either: a pack is not undone then. After an unpack the client may put
 * the right ones back. */
START_TEST(test_damage_is_not_tried_again) {
    static const int codes[] = {-SW_ECHECKSUM, -SW_EFRAME, -SW_EVERSION};
    struct sw_test_op op, back;
    fill(SW_CONTENT_RANDOM);
    break_device(2, codes[_i]);
    ck_assert_int_eq(pack(&op), -SW_ELOST);
    ck_assert_uint_eq(atomic_load(&broken.n_failed), 1);
    f.device->ops = broken.real;
    memcpy(memory.data, original, memory.bytes);
    ck_assert_int_eq(pack(&op), 0);
    break_device(0, codes[_i]);
    ck_assert_int_eq(unpack(op.id, &back), codes[_i]);
    f.device->ops = broken.real;
    ck_assert_int_eq(sw_fixture_state(&f, op.id), SW_REGION_OUT);
    ck_assert_int_eq(unpack(op.id, &back), 0);
    check_whole();
    check_nothing_in_use(0);
}
END_TEST

/* Stretches of text among random bytes, which shrink so little that a frame lies but a few chunks before its own. */
static void fill_dense(uint8_t *ret, size_t bytes) {
    enum { STRETCH = 4096, TEXT = 1600 };
    sw_content_fill(ret, bytes, SW_CONTENT_RANDOM, 1);
    for (size_t at = 0; at + TEXT <= bytes; at += STRETCH)
        sw_content_fill(ret + at, TEXT, SW_CONTENT_TEXT, at);
}

/* The arguments of an unpack's steps. */
static struct {
    const struct sw_device_ops *real;
    struct sw_device_ops ops;
    atomic_uint longest, n_overlaps;
} steps;

static bool falls_on(const struct sw_decode_item *raw, const struct sw_decode_item *frame) {
    return raw->offset < frame->frame_at + frame->layout->frame_bytes &&
           frame->frame_at < raw->offset + raw->layout->raw_bytes;
}

static int watched_unpack(struct sw_device *device, unsigned s, struct sw_mapping *mapping,
                          const struct sw_decode_item *items, unsigned n, struct sw_err *err) {
    for (unsigned i = 0; i < n * n; i++)
        atomic_fetch_add(&steps.n_overlaps, falls_on(&items[i / n], &items[i % n]));
    if (n > atomic_load(&steps.longest)) /* the worker alone writes it */
        atomic_store(&steps.longest, n);
    return steps.real->unpack(device, s, mapping, items, n, err);
}

/* A GPU decodes the chunks of a step side by side: none of them may fall on the frame of another, which the order in
 * which the host device takes them would hide. */
START_TEST(test_no_step_writes_over_the_frames_it_reads) {
    static uint8_t bytes[40 * 65536];
    struct sw_memory dense = sw_memory_new(sizeof bytes);
    struct sw_test_op packed, op;
    fill_dense(bytes, sizeof bytes);
    memcpy(dense.data, bytes, sizeof bytes);
    ck_assert_int_eq(sw_fixture_pack(&f, &dense, 0, sizeof bytes, &packed), 0);
    ck_assert_uint_lt(packed.outcome.stored_bytes * 100, sizeof bytes * 95);
    ck_assert_uint_gt(packed.outcome.stored_bytes * 100, sizeof bytes * 85);
    steps.real = f.device->ops;
    steps.ops = *steps.real;
    steps.ops.unpack = watched_unpack;
    f.device->ops = &steps.ops;
    ck_assert_int_eq(sw_fixture_unpack(&f, packed.id, &dense, 0, sizeof bytes, &op), 0);
    f.device->ops = steps.real;
    const unsigned longest = atomic_load(&steps.longest), n_overlaps = atomic_load(&steps.n_overlaps);
    ck_assert_uint_gt(longest, 1);
    ck_assert_uint_eq(n_overlaps, 0);
    ck_assert_int_eq(memcmp(dense.data, bytes, sizeof bytes), 0);
    sw_memory_free(&dense);
    check_nothing_in_use(0);
}
END_TEST

START_TEST(test_a_dead_context_is_reported_as_a_loss) {
    struct sw_test_op op;
    fill(SW_CONTENT_TEXT);
    sw_device_faulty_arm(f.device, "place", 5, -SW_EGPULOST, SW_FAULT_LATE);
    ck_assert_int_eq(pack(&op), -SW_ELOST);
    ck_assert_ptr_nonnull(strstr(op.outcome.err.detail, "injected"));
    check_nothing_in_use(0);
    ck_assert(sw_engine_device_lost(f.engine));
}
END_TEST

static struct sw_mem *begin_pack(uint64_t offset, uint64_t bytes, struct sw_test_op *op) {
    struct sw_range range = {.mem = sw_fixture_mem(&f, f.owner, &memory, true), .offset = offset, .bytes = bytes};
    ck_assert_int_eq(
        sw_engine_spill(f.owner, SW_TRANSFER(&range, 1, .in_place = true), sw_test_op_done, op, &op->id, NULL), 0);
    return range.mem;
}

/* Packs that have not begun when the context dies, and packs that come later, end like everything else of the device.
 */
START_TEST(test_waiting_packs_fail_unchanged_with_a_dead_context) {
    enum { PACKS = 6, HALF = REGION_BYTES / 2, PIECE_BYTES = REGION_BYTES / 16 };
    struct sw_test_op ops[PACKS] = {0};
    struct sw_mem *mems[PACKS];
    fill(SW_CONTENT_TEXT);
    sw_device_faulty_arm(f.device, "encode", 2, -SW_EGPULOST, SW_FAULT_LATE);
    mems[0] = begin_pack(OFFSET, HALF, &ops[0]);
    for (uint64_t i = 1; i < PACKS; i++) {
        mems[i] = begin_pack(OFFSET + HALF + i * PIECE_BYTES, PIECE_BYTES, &ops[i]);
        if (i == PACKS - 2) /* the last one comes after */
            sw_fixture_until(&f, &ops[0].done);
    }
    for (size_t i = 0; i < PACKS; i++) {
        sw_fixture_until(&f, &ops[i].done);
        sw_fixture_close_mem(&f, mems[i]);
        ck_assert(ops[i].outcome.err.code == -SW_EGPULOST || (i == 0 && ops[i].outcome.err.code == -SW_ELOST));
    }
    ck_assert_int_eq(memcmp(memory.data + OFFSET + HALF, original + OFFSET + HALF, HALF), 0);
    check_nothing_in_use(0);
    ck_assert(sw_engine_device_lost(f.engine));
}
END_TEST

/* A session that ends in the middle gives its client the bytes back, or has packed all of them; never a mixture. */
START_TEST(test_a_pack_that_is_canceled_is_undone) {
    enum { ROUNDS = 60, MOST_ROUNDS = 4000, ENOUGH = 6 };
    unsigned undone = 0;
    for (int i = 0; i < ROUNDS || (undone < ENOUGH && i < MOST_ROUNDS); i++) { /* on a fast machine few are in time */
        struct sw_owner *owner;
        struct sw_test_op op = {0};
        fill(contents[i % N_CONTENTS]);
        ck_assert_int_eq(sw_owner_open(f.engine, &owner, NULL), 0);
        struct sw_range range = {
            .mem = sw_fixture_mem(&f, owner, &memory, true), .offset = OFFSET, .bytes = REGION_BYTES};
        ck_assert_int_eq(
            sw_engine_spill(owner, SW_TRANSFER(&range, 1, .in_place = true), sw_test_op_done, &op, &op.id, NULL), 0);
        for (int turn = 0; turn < (i < ROUNDS ? i % 20 : i % 3);
             turn++) { /* any moment will do; the early ones are for a fast device */
            (void)uv_run(&f.loop, UV_RUN_NOWAIT);
            (void)(turn >= 10 && usleep(500));
        }
        sw_fixture_close_owner(&f, owner);
        ck_assert_uint_eq(op.calls, 1);
        if (op.outcome.err.code) {
            ck_assert_int_eq(op.outcome.err.code, -SW_ECANCELED);
            check_whole();
            undone++;
        }
        check_nothing_in_use(0);
    }
    ck_assert_uint_ge(undone, ENOUGH);
}
END_TEST

/* All chunks are raw then, and the unpack that is repeated has nothing to do. It has one slot, and so only one turn in
 * each of the mover's steps. */
START_TEST(test_an_unpack_that_is_canceled_in_its_last_step_can_be_repeated) {
    enum { BYTES = 65536 }; /* a single chunk */
    struct sw_test_op op, canceled = {0}, back;
    teardown();
    set_up(1);
    fill(SW_CONTENT_TEXT);
    ck_assert_int_eq(sw_fixture_pack(&f, &memory, OFFSET, BYTES, &op), 0);
    sw_device_faulty_arm(f.device, "decode", 1, -SW_EAGAIN, SW_FAULT_DONE);
    struct sw_range range = {.mem = sw_fixture_mem(&f, f.owner, &memory, true), .offset = OFFSET, .bytes = BYTES};
    ck_assert_int_eq(
        sw_engine_restore(f.owner, op.id, SW_TRANSFER(&range, 1, .in_place = true), sw_test_op_done, &canceled, NULL),
        0);
    while (!sw_device_faulty_hangs(f.device))
        (void)uv_run(&f.loop, UV_RUN_NOWAIT);
    sw_engine_cancel(f.owner, op.id);
    sw_device_faulty_release(f.device);
    sw_fixture_until(&f, &canceled.done);
    sw_fixture_close_mem(&f, range.mem);
    ck_assert_int_eq(canceled.outcome.err.code, -SW_ECANCELED);
    ck_assert_int_eq(sw_fixture_state(&f, op.id), SW_REGION_OUT);
    ck_assert_int_eq(sw_fixture_unpack(&f, op.id, &memory, OFFSET, BYTES, &back), 0);
    check_whole();
    check_nothing_in_use(0);
}
END_TEST

START_TEST(test_every_allocation_fails_in_turn) {
    enum { THROUGH = 12 };
    unsigned failed = 0, successes = 0;
    fill(SW_CONTENT_MIXED);
    for (unsigned long nth = 1; successes < THROUGH; nth++) {
        struct sw_range range = {
            .mem = sw_fixture_mem(&f, f.owner, &memory, true), .offset = OFFSET, .bytes = REGION_BYTES};
        struct sw_test_op op = {0}, back;
        sw_alloc_fail_nth(nth);
        int rc = sw_engine_spill(f.owner, SW_TRANSFER(&range, 1, .in_place = true), sw_test_op_done, &op, &op.id,
                                 &op.outcome.err);
        if (!rc) {
            sw_fixture_until(&f, &op.done);
            rc = op.outcome.err.code;
        }
        sw_alloc_fail_nth(0);
        ck_assert(rc == 0 || rc == -SW_ENOMEM);
        sw_fixture_close_mem(&f, range.mem);
        failed += rc != 0;
        successes = rc ? 0 : successes + 1;
        if (!rc)
            ck_assert_int_eq(unpack(op.id, &back), 0);
        check_whole();
        check_nothing_in_use(0);
    }
    ck_assert_uint_gt(failed, 3);
}
END_TEST

START_TEST(test_restoring_packed_and_unpacking_stored_regions_is_refused) {
    struct sw_test_op packed, spilled, op;
    struct sw_range range;
    fill(SW_CONTENT_TEXT);
    ck_assert_int_eq(sw_fixture_spill(&f, &memory, OFFSET, REGION_BYTES, &spilled), 0);
    ck_assert_int_eq(pack(&packed), 0);
    ck_assert_int_eq(unpack(spilled.id, &op), -SW_EINVAL);
    ck_assert_int_eq(sw_fixture_restore(&f, packed.id, &memory, OFFSET, REGION_BYTES, false, &op), -SW_EINVAL);
    ck_assert_int_eq(sw_fixture_unpack(&f, packed.id, &memory, OFFSET, REGION_BYTES - 1, &op), -SW_ETOOSMALL);
    range =
        (struct sw_range){.mem = sw_fixture_mem(&f, f.owner, &memory, true), .offset = OFFSET, .bytes = REGION_BYTES};
    ck_assert_int_eq(
        sw_engine_restore(f.owner, packed.id, SW_TRANSFER(&range, 1, .keep = true), sw_test_op_done, &op, NULL),
        -SW_EINVAL);
    sw_fixture_close_mem(&f, range.mem);
    ck_assert_int_eq(unpack(packed.id, &op), 0);
    check_whole();
    ck_assert_int_eq(sw_engine_drop(f.owner, spilled.id, NULL), 0);
    check_nothing_in_use(0);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("in place");
    TCase *tcase = tcase_create("in place");
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_loop_test(tcase, test_pack_frees_the_tail_and_unpack_brings_it_back, 0, N_CONTENTS);
    tcase_add_loop_test(tcase, test_any_length_packs, 0, N_CONTENTS);
    tcase_add_loop_test(tcase, test_a_pack_that_fails_anywhere_is_undone, 0, N_PACK_FAULTS * N_CONTENTS);
    tcase_add_test(tcase, test_a_pack_whose_commit_fails_is_undone);
    tcase_add_loop_test(tcase, test_undoing_is_tried_again, 0, 3 * N_CONTENTS);
    tcase_add_loop_test(tcase, test_undoing_ends_if_it_never_succeeds, 0, 4);
    tcase_add_loop_test(tcase, test_damage_is_not_tried_again, 0, 3);
    tcase_add_loop_test(tcase, test_an_unpack_that_fails_anywhere_can_be_repeated, 0, N_UNPACK_FAULTS * N_CONTENTS);
    tcase_add_loop_test(tcase, test_damage_in_the_packed_bytes_is_found, 0, N_CONTENTS);
    tcase_add_loop_test(tcase, test_transient_failures_do_not_count_as_attempts_to_undo, 0, 4);
    tcase_add_test(tcase, test_no_step_writes_over_the_frames_it_reads);
    tcase_add_test(tcase, test_a_dead_context_is_reported_as_a_loss);
    tcase_add_test(tcase, test_waiting_packs_fail_unchanged_with_a_dead_context);
    tcase_add_test(tcase, test_a_pack_that_is_canceled_is_undone);
    tcase_add_test(tcase, test_an_unpack_that_is_canceled_in_its_last_step_can_be_repeated);
    tcase_add_test(tcase, test_every_allocation_fails_in_turn);
    tcase_add_test(tcase, test_restoring_packed_and_unpacking_stored_regions_is_refused);
    suite_add_tcase(suite, tcase);
    return sw_test_run(suite, CK_FORK);
}
