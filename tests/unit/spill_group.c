/* Short operations that wait together: they share steps, and nothing else. */
#include "base/alloc.h"
#include "spill/engine_state.h"
#include "spill/operator.h"
#include "tests/lib/content.h"
#include "tests/lib/group_rig.h"
#include "tests/lib/run.h"
#include "tests/lib/transfer.h"

#include <check.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { N = 8, BYTES = 5000, STRIDE = 8192, MAX = 64 };

/* Regions of one session, in one memory that stays mapped. */
struct client {
    struct sw_owner *owner;
    struct sw_memory from, to;
    struct sw_mem *source, *target;
    unsigned n;
    uint64_t bytes[MAX];
    struct sw_test_op spills[MAX], restores[MAX];
};

static struct sw_rig rig;

static void client_open(struct client *c, unsigned n, uint64_t bytes) {
    memset(c, 0, sizeof *c);
    ck_assert_int_eq(sw_owner_open(rig.f.engine, &c->owner, NULL), 0);
    c->from = sw_memory_new((size_t)MAX * STRIDE);
    c->to = sw_memory_new((size_t)MAX * STRIDE);
    sw_content_fill(c->from.data, c->from.bytes, SW_CONTENT_TEXT, 7);
    c->source = sw_fixture_mem(&rig.f, c->owner, &c->from, false);
    c->target = sw_fixture_mem(&rig.f, c->owner, &c->to, false);
    c->n = n;
    for (unsigned i = 0; i < n; i++)
        c->bytes[i] = bytes;
}

static void client_close(struct client *c) {
    sw_fixture_close_owner(&rig.f, c->owner);
    sw_memory_free(&c->from);
    sw_memory_free(&c->to);
}

static void queue_spills(struct client *c) {
    for (unsigned i = 0; i < c->n; i++) {
        struct sw_range range = {.mem = c->source, .offset = (uint64_t)i * STRIDE, .bytes = c->bytes[i]};
        ck_assert_int_eq(
            sw_engine_spill(c->owner, SW_TRANSFER(&range, 1), sw_test_op_done, &c->spills[i], &c->spills[i].id, NULL),
            0);
    }
}

static void queue_restores(struct client *c) {
    memset(c->restores, 0, sizeof c->restores);
    for (unsigned i = 0; i < c->n; i++) {
        struct sw_range range = {.mem = c->target, .offset = (uint64_t)i * STRIDE, .bytes = c->bytes[i]};
        ck_assert_int_eq(sw_engine_restore(c->owner, c->spills[i].id, SW_TRANSFER(&range, 1, .keep = true),
                                           sw_test_op_done, &c->restores[i], NULL),
                         0);
    }
}

/* Hands over the operations of one client or of two, without waiting. */
static void submit(void (*queue)(struct client *), struct client *a, struct client *b) {
    sw_engine_hold(rig.f.engine, true); /* so that none is late for the group */
    queue(a);
    if (b)
        queue(b);
    sw_engine_release(rig.f.engine);
}

static void await(const struct client *c, const struct sw_test_op *ops) {
    for (unsigned i = 0; i < c->n; i++) {
        sw_fixture_until(&rig.f, &ops[i].done);
        ck_assert_uint_eq(ops[i].calls, 1);
    }
    sw_engine_check(rig.f.engine);
}

static void await_success(const struct client *c, const struct sw_test_op *ops) {
    await(c, ops);
    for (unsigned i = 0; i < c->n; i++)
        ck_assert_msg(ops[i].outcome.err.code == 0, "%u: %s", i, ops[i].outcome.err.msg);
}

static bool came_back(const struct client *c, unsigned i) {
    return memcmp(c->to.data + (size_t)i * STRIDE, c->from.data + (size_t)i * STRIDE, c->bytes[i]) == 0;
}

static void check_bytes(const struct client *c) {
    for (unsigned i = 0; i < c->n; i++)
        ck_assert_msg(came_back(c, i), "region %u", i);
}

static void spill_held(struct client *c) {
    sw_rig_hold(&rig);
    submit(queue_spills, c, NULL);
    sw_rig_release(&rig);
    await_success(c, c->spills);
}

static void restore_held(struct client *c) {
    memset(c->to.data, 0xEE, c->to.bytes);
    sw_rig_hold(&rig);
    submit(queue_restores, c, NULL);
    sw_rig_release(&rig);
}

static struct sw_stored *stored_frame(struct client *c, unsigned i) {
    struct sw_region *region;
    ck_assert_int_eq(sw_region_find(&rig.f.engine->store.regions, c->owner, c->spills[i].id, &region, NULL), 0);
    return &region->frames->stored[0];
}

static void setup(void) {
    sw_rig_open(&rig, NULL);
}

static void teardown(void) {
    sw_rig_close(&rig);
}

START_TEST(test_regions_that_wait_together_share_steps) {
    struct client c;
    struct sw_rig_counts counts;
    client_open(&c, 6, BYTES);
    spill_held(&c);
    counts = sw_rig_counts();
    ck_assert_uint_eq(counts.encode_groups, 1);
    ck_assert_uint_eq(counts.encoded_items, 6);
    ck_assert_uint_eq(counts.store_groups, 1);
    ck_assert_uint_eq(counts.make_plans, 1);
    ck_assert_uint_eq(counts.encodes, 0);
    for (unsigned i = 0; i < c.n; i++) {
        ck_assert_int_eq(c.spills[i].outcome.codec, SW_CODEC_PHRASE);
        ck_assert_str_eq(c.spills[i].outcome.reason, sw_cost_reason_text(SW_COST_ROOM));
        ck_assert_uint_eq(c.spills[i].outcome.stored_bytes, stored_frame(&c, i)->bytes);
    }
    restore_held(&c);
    await_success(&c, c.restores);
    check_bytes(&c);
    counts = sw_rig_counts();
    ck_assert_uint_eq(counts.restore_groups, 1);
    ck_assert_uint_eq(counts.restored_items, 6);
    ck_assert_uint_eq(counts.decodes, 2); /* the spill that held the slot, twice */
    client_close(&c);
}
END_TEST

/* Groups are as long as a slot's buffers allow; the last ones of a line need none. */
START_TEST(test_a_long_line_makes_several_groups) {
    struct client c;
    const struct sw_device_info *info = rig.f.device->ops->info(rig.f.device);
    const unsigned grouped = 2 * (unsigned)(info->group_bytes / sw_group_item_bytes(BYTES));
    ck_assert_uint_lt(grouped, MAX);
    client_open(&c, grouped + 1, BYTES);
    spill_held(&c);
    ck_assert_uint_eq(sw_rig_counts().encode_groups, 2);
    ck_assert_uint_eq(sw_rig_counts().encoded_items, grouped);
    ck_assert_uint_eq(sw_rig_counts().encodes, 1);
    restore_held(&c);
    await_success(&c, c.restores);
    ck_assert_uint_eq(sw_rig_counts().restore_groups, 2);
    ck_assert_uint_eq(sw_rig_counts().restored_items, grouped);
    check_bytes(&c);
    client_close(&c);
}
END_TEST

START_TEST(test_long_and_empty_regions_go_their_own_way) {
    enum { LONG = 200000 };
    struct client c;
    struct sw_memory memory = sw_memory_new(LONG);
    struct sw_test_op op = {0};
    client_open(&c, 9, 0);
    for (unsigned i = 1; i < c.n; i++)
        c.bytes[i] = (uint64_t)1 << (i + 4);
    sw_content_fill(memory.data, LONG, SW_CONTENT_TEXT, 3);
    sw_rig_hold(&rig);
    struct sw_range range = {.mem = sw_fixture_mem(&rig.f, c.owner, &memory, true), .bytes = LONG};
    ck_assert_int_eq(sw_engine_spill(c.owner, SW_TRANSFER(&range, 1), sw_test_op_done, &op, &op.id, NULL), 0);
    submit(queue_spills, &c, NULL);
    sw_rig_release(&rig);
    await_success(&c, c.spills);
    sw_fixture_until(&rig.f, &op.done);
    ck_assert_int_eq(op.outcome.err.code, 0);
    ck_assert_uint_eq(sw_rig_counts().encoded_items, 8);
    ck_assert_uint_eq(sw_rig_counts().encodes, 4);
    restore_held(&c);
    await_success(&c, c.restores);
    check_bytes(&c);
    client_close(&c);
    sw_memory_free(&memory);
}
END_TEST

START_TEST(test_sessions_share_restores_but_no_table) {
    struct client a, b;
    client_open(&a, 3, BYTES);
    client_open(&b, 3, BYTES);
    sw_rig_hold(&rig);
    submit(queue_spills, &a, &b);
    sw_rig_release(&rig);
    await_success(&a, a.spills);
    await_success(&b, b.spills);
    ck_assert_uint_eq(sw_rig_counts().encode_groups, 2);
    ck_assert_uint_eq(sw_rig_counts().make_plans, 2);
    sw_rig_hold(&rig);
    submit(queue_restores, &a, &b);
    sw_rig_release(&rig);
    await_success(&a, a.restores);
    await_success(&b, b.restores);
    check_bytes(&a);
    check_bytes(&b);
    ck_assert_uint_eq(sw_rig_counts().restore_groups, 1);
    ck_assert_uint_eq(sw_rig_counts().restored_items, 6);
    client_close(&a);
    client_close(&b);
}
END_TEST

/* Two clients with three regions each, all of them out. */
static void open_spilled(struct client *a, struct client *b) {
    client_open(a, 3, BYTES);
    client_open(b, 3, BYTES);
    spill_held(a);
    spill_held(b);
    sw_rig_reset_counts();
}

/* A client whose memory must not be written fails alone. */
START_TEST(test_a_client_harms_only_itself) {
    struct client good, bad;
    open_spilled(&good, &bad);
    (void)munmap(bad.to.data, bad.to.bytes);
    bad.to.data = NULL;
    ck_assert_int_eq(fcntl(bad.to.fd, F_ADD_SEALS, F_SEAL_WRITE), 0);
    sw_rig_hold(&rig);
    submit(queue_restores, &bad, &good);
    sw_rig_release(&rig);
    await(&bad, bad.restores);
    await_success(&good, good.restores);
    check_bytes(&good);
    ck_assert_uint_eq(sw_rig_counts().restore_groups, 1);
    ck_assert_uint_eq(sw_rig_counts().decodes, 1 + 6);
    for (unsigned i = 0; i < bad.n; i++)
        ck_assert_int_eq(bad.restores[i].outcome.err.code, -SW_EACCES);
    /* Nor itself, where it has others' memory to restore to. */
    sw_rig_reset_counts();
    sw_rig_hold(&rig);
    submit(queue_restores, &bad, NULL);
    sw_rig_release(&rig);
    await(&bad, bad.restores);
    ck_assert_uint_eq(sw_rig_counts().decodes, 1 + 3);
    for (unsigned i = 0; i < bad.n; i++)
        ck_assert_int_eq(bad.restores[i].outcome.err.code, -SW_EACCES);
    client_close(&good);
    client_close(&bad);
}
END_TEST

/* A step that could not begin, or that failed, does not fail all of its members. */
START_TEST(test_restores_are_tried_alone) {
    struct client a, b;
    open_spilled(&a, &b);
    sw_rig_hold(&rig);
    submit(queue_restores, &a, &b);
    sw_device_faulty_arm(rig.f.device, "restore_group", 1, -SW_EGPU, (enum sw_fault)_i);
    sw_rig_release(&rig);
    await_success(&a, a.restores);
    await_success(&b, b.restores);
    check_bytes(&a);
    check_bytes(&b);
    ck_assert_uint_eq(sw_rig_counts().restore_groups, 1);
    ck_assert_uint_eq(sw_rig_counts().decodes, 1 + 6);
    client_close(&a);
    client_close(&b);
}
END_TEST

START_TEST(test_a_plan_counts_one_use_for_a_group) {
    enum { USES = 256 }; /* of short regions */
    struct client c;
    client_open(&c, 4, BYTES);
    for (int i = 0; i < USES; i++) {
        memset(c.spills, 0, sizeof c.spills);
        spill_held(&c);
        ck_assert_uint_eq(sw_rig_counts().make_plans, 1);
        for (unsigned k = 0; k < c.n; k++)
            ck_assert_int_eq(sw_engine_drop(c.owner, c.spills[k].id, NULL), 0);
    }
    memset(c.spills, 0, sizeof c.spills);
    spill_held(&c);
    ck_assert_uint_eq(sw_rig_counts().make_plans, 2);
    ck_assert_uint_eq(sw_rig_counts().encodes, 0);
    client_close(&c);
}
END_TEST

/* Shrinks well, by a table of its own. */
static void fill_odd(struct client *c, unsigned i) {
    static const uint8_t digits[] = "0123456789abcdef";
    for (unsigned b = 0; b < STRIDE; b++)
        c->from.data[(size_t)i * STRIDE + b] = digits[b / 3 % 16];
}

/* The table was trained on other bytes: that region gets one of its own, the others are not held up. It is kept. */
START_TEST(test_a_region_with_a_plan_mismatch_leaves_its_group) {
    enum { ODD = 3 };
    struct client other, c;
    client_open(&other, 1, STRIDE);
    fill_odd(&other, 0);
    spill_held(&other);
    client_open(&c, 5, STRIDE);
    fill_odd(&c, ODD);
    for (int round = 0; round < 2; round++) {
        memset(c.spills, 0, sizeof c.spills);
        sw_rig_reset_counts();
        spill_held(&c);
        /* The plan made last is expected to go on: then it is the others that leave, together. */
        ck_assert_uint_eq(sw_rig_counts().encode_groups, round == 0 ? 1 : 2);
        ck_assert_uint_eq(sw_rig_counts().encodes, round == 0 ? 1 : 0);
        ck_assert_uint_eq(sw_rig_counts().make_plans, round == 0 ? 2 : 0);
        ck_assert_uint_le(c.spills[ODD].outcome.stored_bytes * 100, other.spills[0].outcome.stored_bytes * 118);
        for (unsigned i = 0; i < c.n; i++)
            ck_assert_uint_lt(c.spills[i].outcome.stored_bytes * 2, STRIDE);
        restore_held(&c);
        await_success(&c, c.restores);
        check_bytes(&c);
    }
    client_close(&other);
    client_close(&c);
}
END_TEST

/* Pages of two columns. The pages of the second column leave together, get one plan, and later use it at once. */
START_TEST(test_regions_that_leave_go_together) {
    enum { N_PAGES = 6, N_ROUNDS = 3 };
    struct client c;
    client_open(&c, N_PAGES, STRIDE);
    for (unsigned i = 1; i < N_PAGES; i += 2)
        fill_odd(&c, i);
    for (int round = 0; round < N_ROUNDS; round++) {
        memset(c.spills, 0, sizeof c.spills);
        sw_rig_reset_counts();
        spill_held(&c);
        ck_assert_uint_eq(sw_rig_counts().make_plans, round == 0 ? 2 : 0);
        ck_assert_uint_eq(sw_rig_counts().encode_groups, 2);
        ck_assert_uint_eq(sw_rig_counts().encoded_items, N_PAGES + N_PAGES / 2);
        ck_assert_uint_eq(sw_rig_counts().encodes, 0);
        for (unsigned i = 0; i < N_PAGES; i++)
            ck_assert_uint_lt(c.spills[i].outcome.stored_bytes * 2, STRIDE);
        restore_held(&c);
        await_success(&c, c.restores);
        check_bytes(&c);
    }
    client_close(&c);
}
END_TEST

/* Too short to be judged, and not shrunk by the others' table. */
START_TEST(test_regions_that_do_not_shrink_report_it) {
    enum { ODD = 2, SHORT = 2000 };
    struct client c;
    client_open(&c, 4, STRIDE);
    c.bytes[ODD] = SHORT;
    sw_content_fill(c.from.data + (size_t)ODD * STRIDE, SHORT, SW_CONTENT_RANDOM, 1);
    spill_held(&c);
    ck_assert_uint_eq(sw_rig_counts().encodes, 0);
    for (unsigned i = 0; i < c.n; i++) {
        ck_assert_int_eq(c.spills[i].outcome.codec, i == ODD ? SW_CODEC_RAW : SW_CODEC_PHRASE);
        ck_assert_str_eq(c.spills[i].outcome.reason, sw_cost_reason_text(i == ODD ? SW_COST_NO_GAIN : SW_COST_ROOM));
    }
    restore_held(&c);
    await_success(&c, c.restores);
    check_bytes(&c);
    client_close(&c);
}
END_TEST

START_TEST(test_a_damaged_frame_loses_only_its_region) {
    struct client c;
    client_open(&c, N, BYTES);
    spill_held(&c);
    struct sw_stored *header = stored_frame(&c, 2), *data = stored_frame(&c, 5);
    ((uint8_t *)header->extents[0].memory)[0] ^= 1;
    ((uint8_t *)data->extents[0].memory)[data->bytes / 2] ^= 1;
    restore_held(&c);
    await(&c, c.restores);
    ck_assert_uint_eq(sw_rig_counts().restored_items, N - 1); /* it is another frame: not even begun */
    for (unsigned i = 0; i < N; i++) {
        const int rc = c.restores[i].outcome.err.code;
        struct sw_region_info info;
        ck_assert_int_eq(sw_engine_query(c.owner, c.spills[i].id, &info, NULL), 0);
        ck_assert_int_eq(rc, i == 2 || i == 5 ? -SW_ECHECKSUM : 0);
        ck_assert_int_eq(info.state, rc ? SW_REGION_LOST : SW_REGION_OUT);
        ck_assert(rc || came_back(&c, i));
        ck_assert(!rc || c.to.data[(size_t)i * STRIDE] == 0xEE);
    }
    client_close(&c);
}
END_TEST

/* The destination of each restore, and which of them can share a step. */
static const struct {
    uint64_t offsets[4];
    unsigned groups, items;
} places[] = {
    {{0, 100, 0, 100}, 0, 0},
    {{2 * STRIDE, 0, STRIDE, 2 * STRIDE}, 1, 3}, /* behind the one before, but not behind the first */
};

START_TEST(test_two_restores_to_the_same_bytes_do_not_meet) {
    struct client c;
    client_open(&c, 4, BYTES);
    spill_held(&c);
    sw_rig_hold(&rig);
    for (unsigned i = 0; i < c.n; i++) {
        struct sw_range range = {.mem = c.target, .offset = places[_i].offsets[i], .bytes = BYTES};
        ck_assert_int_eq(sw_engine_restore(c.owner, c.spills[i].id, SW_TRANSFER(&range, 1, .keep = true),
                                           sw_test_op_done, &c.restores[i], NULL),
                         0);
    }
    sw_rig_release(&rig);
    await_success(&c, c.restores);
    ck_assert_uint_eq(sw_rig_counts().restore_groups, places[_i].groups);
    ck_assert_uint_eq(sw_rig_counts().restored_items, places[_i].items);
    /* The last one's bytes stay. */
    ck_assert_int_eq(memcmp(c.to.data + places[_i].offsets[3], c.from.data + (size_t)3 * STRIDE, BYTES), 0);
    client_close(&c);
}
END_TEST

START_TEST(test_a_full_tier_fails_those_that_do_not_fit) {
    struct sw_fixture_config config = sw_fixture_defaults;
    struct client c;
    unsigned failed = 0;
    sw_rig_close(&rig);
    config.capacity_bytes = 40 << 10; /* ten blocks: the rig's region, and four frames of 8 KiB */
    sw_rig_open(&rig, &config);
    client_open(&c, 7, BYTES);
    sw_content_fill(c.from.data, c.from.bytes, SW_CONTENT_RANDOM, 1);
    sw_rig_hold(&rig);
    submit(queue_spills, &c, NULL);
    sw_rig_release(&rig);
    await(&c, c.spills);
    for (unsigned i = 0; i < c.n; i++) {
        const int rc = c.spills[i].outcome.err.code;
        ck_assert(rc == 0 || rc == -SW_ENOSPACE);
        failed += rc != 0;
    }
    ck_assert_uint_eq(failed, 3);
    ck_assert_uint_eq(sw_rig_counts().encode_groups, 1);
    ck_assert_uint_eq(sw_rig_counts().encodes, 0);
    c.n -= failed; /* they are the last ones */
    restore_held(&c);
    await_success(&c, c.restores);
    check_bytes(&c);
    client_close(&c);
}
END_TEST

/* Frames take whole blocks, so fewer fit than it seemed: frames without room go on to the disk. */
START_TEST(test_regions_for_the_disk_leave_their_group) {
    struct sw_fixture_config config = sw_fixture_defaults;
    struct client c;
    struct sw_engine_stats stats;
    sw_rig_close(&rig);
    config.capacity_bytes = 64 << 10;
    config.staging_bytes = 40 << 10;
    config.nvme_bytes = 4 << 20;
    config.high_pct = 100;
    config.low_pct = 90;
    sw_rig_open(&rig, &config);
    client_open(&c, 10, 100);
    spill_held(&c);
    sw_engine_stats(rig.f.engine, &stats);
    ck_assert_uint_eq(sw_rig_counts().encode_groups, 1);
    ck_assert_uint_gt(sw_rig_counts().encodes, 0);
    ck_assert_uint_lt(sw_rig_counts().encodes, 10);
    ck_assert_uint_gt(stats.tiers[1].committed_frames, 0);
    restore_held(&c);
    await_success(&c, c.restores);
    check_bytes(&c);
    client_close(&c);
}
END_TEST

static const char *const gates[] = {"encode_group", "store_group", "restore_group"};

START_TEST(test_a_client_leaves_during_a_step) {
    struct client leaving, staying;
    const bool restores = _i == 2;
    client_open(&leaving, 4, BYTES);
    client_open(&staying, 4, BYTES);
    if (restores) {
        spill_held(&leaving);
        spill_held(&staying);
    }
    sw_rig_close_gate(gates[_i]);
    sw_rig_hold(&rig);
    submit(restores ? queue_restores : queue_spills, &leaving, &staying);
    sw_device_faulty_release(rig.f.device);
    sw_rig_await_gate();
    sw_owner_close(leaving.owner, NULL, NULL);
    sw_rig_open_gate();
    sw_fixture_until(&rig.f, &rig.hold.done);
    await(&leaving, restores ? leaving.restores : leaving.spills);
    await_success(&staying, restores ? staying.restores : staying.spills);
    for (unsigned i = 0; i < leaving.n; i++) {
        const int rc = restores ? leaving.restores[i].outcome.err.code : leaving.spills[i].outcome.err.code;
        ck_assert(rc == -SW_ECANCELED || (rc == 0 && _i > 0));
    }
    restore_held(&staying);
    await_success(&staying, staying.restores);
    check_bytes(&staying);
    client_close(&staying);
    sw_memory_free(&leaving.from);
    sw_memory_free(&leaving.to);
}
END_TEST

/* Short regions that end before an operation, and all that have ended. */
struct flood {
    struct sw_owner *owner;
    const bool *is_over;
    unsigned n_before, n_done;
};

static void on_flood(const struct sw_outcome *outcome, void *arg) {
    struct flood *flood = arg;
    ck_assert_int_eq(outcome->err.code, 0);
    ck_assert_int_eq(sw_engine_drop(flood->owner, outcome->region, NULL), 0);
    flood->n_before += !*flood->is_over;
    flood->n_done++;
}

/* There are always more short regions waiting than a group takes; a long one still gets its turns, and so do they. */
START_TEST(test_a_flood_of_short_regions_starves_nobody) {
    enum {
        LONG = 10 * 65536,
        N_SHORT = 3000
    }; /* a session's turns are shared over 32 MiB, a short region counts for 16 KiB */
    struct sw_fixture_config config = sw_fixture_defaults;
    struct client c;
    struct sw_test_op op = {0};
    struct sw_region_id id;
    sw_rig_close(&rig);
    config.capacity_bytes = 64 << 20;
    config.max_regions = config.max_owner_regions = N_SHORT + 2;
    sw_rig_open(&rig, &config);
    struct sw_memory memory = sw_memory_new(LONG);
    client_open(&c, 1, BYTES);
    struct flood flood = {.owner = c.owner, .is_over = &op.done};
    sw_rig_hold(&rig);
    for (unsigned i = 0; i < N_SHORT; i++) {
        struct sw_range range = {.mem = c.source, .bytes = BYTES};
        ck_assert_int_eq(sw_engine_spill(c.owner, SW_TRANSFER(&range, 1), on_flood, &flood, &id, NULL), 0);
    }
    struct sw_range range = {.mem = sw_fixture_mem(&rig.f, rig.f.owner, &memory, true), .bytes = LONG};
    ck_assert_int_eq(sw_engine_spill(rig.f.owner, SW_TRANSFER(&range, 1), sw_test_op_done, &op, &op.id, NULL), 0);
    sw_rig_release(&rig);
    while (!op.done || flood.n_done < N_SHORT)
        (void)uv_run(&rig.f.loop, UV_RUN_ONCE);
    ck_assert_int_eq(op.outcome.err.code, 0);
    ck_assert_uint_gt(flood.n_before, 40);
    ck_assert_uint_lt(flood.n_before, N_SHORT);
    ck_assert_uint_gt(sw_rig_counts().encode_groups, 4);
    client_close(&c);
    sw_memory_free(&memory);
}
END_TEST

/* Two operations of two short buffers each, without a plan: the first buffers are a group, beside which the turn of the
 * second ones comes. */
START_TEST(test_buffers_of_an_operation_beside_a_group_that_is_planned) {
    struct sw_fixture_config config = sw_fixture_defaults;
    struct sw_test_op ops[2] = {{0}};
    struct sw_memory memory = sw_memory_new((size_t)4 * STRIDE);
    struct sw_fixture f;
    config.n_slots = 4;
    sw_content_fill(memory.data, memory.bytes, SW_CONTENT_TEXT, 7);
    sw_fixture_open(&f, &config);
    struct sw_mem *mem = sw_fixture_mem(&f, f.owner, &memory, false);
    sw_engine_hold(f.engine, true);
    for (unsigned k = 0; k < 2; k++) {
        const struct sw_range ranges[2] = {{.mem = mem, .offset = (uint64_t)k * 2 * STRIDE, .bytes = BYTES},
                                           {.mem = mem, .offset = ((uint64_t)k * 2 + 1) * STRIDE, .bytes = BYTES}};
        ck_assert_int_eq(sw_engine_spill(f.owner, SW_TRANSFER(ranges, 2), sw_test_op_done, &ops[k], &ops[k].id, NULL),
                         0);
    }
    sw_engine_release(f.engine);
    for (unsigned k = 0; k < 2; k++) {
        sw_fixture_until(&f, &ops[k].done);
        ck_assert_int_eq(ops[k].outcome.err.code, 0);
    }
    sw_fixture_close(&f);
    sw_memory_free(&memory);
}
END_TEST

/* A group's plan takes the time of each member. */
START_TEST(test_the_time_of_a_plan_is_each_members) {
    enum { N_MEMBERS = 3, LONG_US = 20000 };
    struct sw_test_op ops[N_MEMBERS] = {{0}};
    struct sw_memory memory = sw_memory_new((size_t)N_MEMBERS * STRIDE);
    struct sw_fixture f;
    sw_content_fill(memory.data, memory.bytes, SW_CONTENT_TEXT, 7);
    sw_fixture_open(&f, NULL);
    struct sw_mem *mem = sw_fixture_mem(&f, f.owner, &memory, false);
    sw_device_faulty_arm(f.device, "make_plan", 1, -SW_EAGAIN, SW_FAULT_DONE);
    sw_engine_hold(f.engine, true);
    for (unsigned i = 0; i < N_MEMBERS; i++) {
        const struct sw_range range = {.mem = mem, .offset = (uint64_t)i * STRIDE, .bytes = BYTES};
        ck_assert_int_eq(sw_engine_spill(f.owner, SW_TRANSFER(&range, 1), sw_test_op_done, &ops[i], &ops[i].id, NULL),
                         0);
    }
    sw_engine_release(f.engine);
    while (!sw_device_faulty_hangs(f.device))
        (void)uv_run(&f.loop, UV_RUN_NOWAIT);
    (void)usleep(LONG_US);
    sw_device_faulty_release(f.device);
    for (unsigned i = 0; i < N_MEMBERS; i++)
        sw_fixture_until(&f, &ops[i].done);
    const struct sw_histogram *stages = sw_engine_op_statistics(f.engine)->latency[SW_OP_KIND_SPILL];
    ck_assert_uint_ge(stages[SW_OP_STAGE_PLAN].sum_us, N_MEMBERS * LONG_US);
    ck_assert_uint_eq(stages[SW_OP_STAGE_WHOLE].sum_us, stages[SW_OP_STAGE_WAIT].sum_us +
                                                            stages[SW_OP_STAGE_PLAN].sum_us +
                                                            stages[SW_OP_STAGE_MOVE].sum_us);
    sw_fixture_close(&f);
    sw_memory_free(&memory);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("group");
    TCase *tcase = tcase_create("group");
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_test(tcase, test_regions_that_wait_together_share_steps);
    tcase_add_test(tcase, test_a_long_line_makes_several_groups);
    tcase_add_test(tcase, test_long_and_empty_regions_go_their_own_way);
    tcase_add_test(tcase, test_sessions_share_restores_but_no_table);
    tcase_add_test(tcase, test_a_client_harms_only_itself);
    tcase_add_loop_test(tcase, test_restores_are_tried_alone, 0, 3);
    tcase_add_test(tcase, test_a_plan_counts_one_use_for_a_group);
    tcase_add_test(tcase, test_a_region_with_a_plan_mismatch_leaves_its_group);
    tcase_add_test(tcase, test_regions_that_leave_go_together);
    tcase_add_test(tcase, test_regions_that_do_not_shrink_report_it);
    tcase_add_test(tcase, test_a_damaged_frame_loses_only_its_region);
    tcase_add_loop_test(tcase, test_two_restores_to_the_same_bytes_do_not_meet, 0, sizeof places / sizeof places[0]);
    tcase_add_test(tcase, test_a_full_tier_fails_those_that_do_not_fit);
    tcase_add_test(tcase, test_regions_for_the_disk_leave_their_group);
    tcase_add_loop_test(tcase, test_a_client_leaves_during_a_step, 0, sizeof gates / sizeof gates[0]);
    tcase_add_test(tcase, test_a_flood_of_short_regions_starves_nobody);
    suite_add_tcase(suite, tcase);
    TCase *slots = tcase_create("several slots");
    tcase_add_test(slots, test_buffers_of_an_operation_beside_a_group_that_is_planned);
    tcase_add_test(slots, test_the_time_of_a_plan_is_each_members);
    suite_add_tcase(suite, slots);
    return sw_test_run(suite, CK_FORK);
}
