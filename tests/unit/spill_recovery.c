/* The engine across two lives: what one leaves in the catalogue and in the tiers the next one finds, with every byte.
 */
#include "base/alloc.h"
#include "spill/engine_state.h"
#include "spill/operator.h"
#include "tests/lib/content.h"
#include "tests/lib/engine_fixture.h"
#include "tests/lib/run.h"

#include <check.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum {
    N = 8,
    REGION_BYTES = 10 * 65536 - 77,
    MAX_SLABS = 16,
    FAILURES = 400,
    BUFFERS = 3,
    FIRST_BYTES = 200001,
    EPOCH_AT = 24
};

/* What outlives an engine. */
static struct {
    int catalogue;
    struct sw_tier_host_slab slabs[MAX_SLABS];
    unsigned n_slabs;
    struct sw_nvme_folder folder;
} world;

struct life {
    uv_loop_t loop;
    struct sw_device *device;
    struct sw_tier *host, *nvme;
    struct sw_catalogue *catalogue;
    struct sw_engine *engine;
    struct sw_recovered found;
};

static unsigned max_regions, high_pct;
static uint64_t host_bytes;
static const uint8_t token[SW_TOKEN_BYTES] = "one of 16 bytes";
static struct life life;
static struct sw_memory memory;
static struct sw_region_id ids[N];

static void keep(int fd, uint64_t offset, void *arg) {
    (void)arg;
    ck_assert_uint_lt(world.n_slabs, MAX_SLABS);
    world.slabs[world.n_slabs++] = (struct sw_tier_host_slab){fcntl(fd, F_DUPFD_CLOEXEC, 0), offset};
}

static void open_tiers(struct life *l, uint64_t nvme_bytes) {
    struct sw_tier_host_slab kept[MAX_SLABS];
    for (unsigned i = 0; i < world.n_slabs; i++) /* the last made first: the order does not matter */
        kept[world.n_slabs - 1 - i] =
            (struct sw_tier_host_slab){fcntl(world.slabs[i].fd, F_DUPFD_CLOEXEC, 0), world.slabs[i].offset};
    const struct sw_tier_host_config host = {.capacity_bytes = host_bytes,
                                             .initial_bytes = host_bytes,
                                             .slab_bytes = 2 << 20,
                                             .devices = &l->device,
                                             .n_devices = 1,
                                             .keep = keep,
                                             .kept = kept,
                                             .n_kept = world.n_slabs};
    ck_assert_int_eq(sw_tier_host_open(&l->host, &host, NULL), 0);
    const struct sw_tier_nvme_config nvme = {
        .directory = world.folder.path, .capacity_bytes = nvme_bytes, .file_bytes = nvme_bytes, .queue_depth = 16};
    l->nvme = nvme_bytes ? sw_nvme_open(&nvme) : NULL;
}

/* Opens all but recovers nothing yet. */
static void open_life(struct life *l, uint64_t nvme_bytes) {
    const struct sw_device_config device = {.scratch_bytes = 64 << 20, .n_slots = 2, .chunk_bytes = 64 << 10};
    memset(l, 0, sizeof *l);
    ck_assert_int_eq(uv_loop_init(&l->loop), 0);
    ck_assert_int_eq(sw_device_host_open(&l->device, &device, NULL), 0);
    const int fd = world.catalogue < 0 ? -1 : fcntl(world.catalogue, F_DUPFD_CLOEXEC, 0);
    ck_assert_int_eq(sw_catalogue_open(&l->catalogue, fd, max_regions, NULL), 0);
    if (world.catalogue < 0)
        world.catalogue = fcntl(sw_catalogue_fd(l->catalogue), F_DUPFD_CLOEXEC, 0);
    open_tiers(l, nvme_bytes);
    const struct sw_engine_config config = {.devices = &l->device,
                                            .n_devices = 1,
                                            .tier = l->host,
                                            .nvme = l->nvme,
                                            .staging_bytes = nvme_bytes ? 1 << 20 : 0,
                                            .high_pct = high_pct,
                                            .low_pct = 40,
                                            .max_regions = max_regions,
                                            .max_owner_regions = 50,
                                            .max_owner_ops = 20,
                                            .max_owner_mems = 20,
                                            .max_durable = 10,
                                            .catalogue = l->catalogue};
    ck_assert_int_eq(sw_engine_open(&l->engine, &l->loop, &config, NULL), 0);
}

static void set_flag(void *arg) {
    *(bool *)arg = true;
}

static void run_until(struct life *l, const bool *flag) {
    while (!*flag)
        (void)uv_run(&l->loop, UV_RUN_ONCE);
}

static void close_life(struct life *l, struct sw_owner *owner, bool leave) {
    bool owner_closed = owner == NULL, closed = false;
    if (owner)
        (leave ? sw_owner_leave : sw_owner_close)(owner, set_flag, &owner_closed);
    run_until(l, &owner_closed);
    (void)sw_owners_close_unclaimed(l->engine, leave, NULL);
    sw_engine_close(l->engine, set_flag, &closed);
    run_until(l, &closed);
    l->host->ops->close(l->host);
    if (l->nvme)
        l->nvme->ops->close(l->nvme);
    l->device->ops->close(l->device);
    sw_catalogue_close(l->catalogue);
    ck_assert_int_eq(uv_loop_close(&l->loop), 0);
}

static void fill(uint8_t *to, unsigned i) {
    sw_content_fill(to, REGION_BYTES, i % 2 ? SW_CONTENT_RANDOM : SW_CONTENT_TEXT, i + 1);
}

static const char *spill_as; /* name of durable regions */

static int run(struct life *l, struct sw_owner *owner, unsigned i, bool restore, bool keep_it) {
    struct sw_mem_desc desc = sw_memory_desc(&memory);
    struct sw_test_op op = {0};
    struct sw_mem *mem;
    struct sw_range ranges[BUFFERS];
    const unsigned n = i % 4 < 2 ? 1 : BUFFERS; /* some regions have several, one of them empty */
    ck_assert_int_eq(sw_mem_open(owner, &desc, n == 1, &mem, NULL), 0);
    for (unsigned k = 0; k < n; k++)
        ranges[k] = (struct sw_range){.mem = mem, .request = 1000 + i};
    ranges[0].name = spill_as;
    ranges[0].bytes = n == 1 ? REGION_BYTES : FIRST_BYTES;
    ranges[n - 1].offset = n == 1 ? 0 : FIRST_BYTES;
    ranges[n - 1].bytes = n == 1 ? REGION_BYTES : REGION_BYTES - FIRST_BYTES;
    const int rc = restore ? sw_engine_restore_buffers(owner, ids[i], ranges, n, keep_it, sw_test_op_done, &op, NULL)
                           : sw_engine_spill_buffers(owner, ranges, n, sw_test_op_done, &op, &ids[i], NULL);
    sw_mem_close(mem, NULL, NULL);
    if (rc)
        return rc;
    run_until(l, &op.done);
    return op.outcome.err.code;
}

static void spill_all(struct life *l, struct sw_owner *owner) {
    for (unsigned i = 0; i < N; i++) {
        fill(memory.data, i);
        ck_assert_int_eq(run(l, owner, i, false, false), 0);
    }
}

/* Nobody but the worker uses the device then, and frames lie one behind the other. */
static void wait_for_the_arena(struct life *l) {
    struct sw_tier_stats stats = {0};
    while (stats.backed_bytes < host_bytes)
        l->host->ops->stats(l->host, &stats);
}

/* After each spill, so that none finds the host tier full: a region that is partly there ends with a life without its
 * disk. */
static void move_to_the_disk(struct life *l) {
    do {
        ck_assert_int_eq(sw_engine_make_room(l->engine, UINT64_MAX, NULL), 0);
        if (l->engine->n_moves)
            (void)uv_run(&l->loop, UV_RUN_ONCE);
    } while (l->engine->n_moves);
}

static void restore_and_compare(struct life *l, struct sw_owner *owner, unsigned i, bool keep_it) {
    uint8_t *expected = sw_alloc(REGION_BYTES);
    memset(memory.data, 0, REGION_BYTES);
    fill(expected, i);
    ck_assert_int_eq(run(l, owner, i, true, keep_it), 0);
    ck_assert_mem_eq(memory.data, expected, REGION_BYTES);
    sw_free(expected);
}

static void restore_all(struct life *l, struct sw_owner *owner, bool keep_it) {
    for (unsigned i = 0; i < N; i++)
        restore_and_compare(l, owner, i, keep_it);
}

static struct sw_owner *new_owner(struct life *l) {
    struct sw_owner *owner = NULL;
    ck_assert_int_eq(sw_engine_recover(l->engine, &l->found, NULL), 0);
    ck_assert_int_eq(sw_owner_open(l->engine, &owner, NULL), 0);
    ck_assert_int_eq(sw_owner_name(owner, 1000, token, NULL), 0);
    return owner;
}

static void setup(void) {
    world.catalogue = -1;
    world.n_slabs = 0;
    max_regions = 100;
    high_pct = 60;
    host_bytes = 4 << 20;
    world.folder = sw_nvme_folder_new();
    memory = sw_memory_new(REGION_BYTES);
}

static void teardown(void) {
    sw_memory_free(&memory);
    (void)close(world.catalogue);
    for (unsigned i = 0; i < world.n_slabs; i++)
        (void)close(world.slabs[i].fd);
    sw_nvme_folder_free(&world.folder);
}

static const uint64_t disks[] = {0, 16 << 20};

START_TEST(regions_are_there_again) {
    const uint8_t other[SW_TOKEN_BYTES] = "another token..";
    struct sw_region_info info;
    struct sw_region_id made[2];
    open_life(&life, disks[_i]);
    struct sw_owner *owner = new_owner(&life);
    spill_all(&life, owner);
    ck_assert_int_eq(sw_engine_advise(owner, ids[2], SW_ADVISE_PRIORITY, 200, NULL), 0);
    const struct sw_region_id last = ids[N - 1];
    close_life(&life, owner, true);

    open_life(&life, disks[_i]);
    ck_assert_int_eq(sw_engine_recover(life.engine, &life.found, NULL), 0);
    ck_assert(life.found.n_sessions == 1 && life.found.n_regions == N && life.found.n_lost == 0);
    ck_assert_uint_eq(life.found.n_damaged + life.found.n_released, 0);
    sw_engine_check(life.engine);
    ck_assert_ptr_null(sw_owner_claim(life.engine, 1001, token));
    ck_assert_ptr_null(sw_owner_claim(life.engine, 1000, other));
    owner = sw_owner_claim(life.engine, 1000, token);
    ck_assert_ptr_nonnull(owner);
    ck_assert_ptr_null(sw_owner_claim(life.engine, 1000, token));
    sw_engine_find_made(owner, 1003, made, 2);
    ck_assert(made[0].slot == ids[3].slot && made[0].gen == ids[3].gen && made[1].gen == 0);
    ck_assert_int_eq(sw_engine_query(owner, ids[2], &info, NULL), 0);
    ck_assert_uint_eq(info.raw_bytes, REGION_BYTES);
    ck_assert_int_eq(life.engine->regions.regions[ids[2].slot].priority, 200);
    restore_all(&life, owner, true);
    restore_all(&life, owner, false);
    /* No id of before is given out again, not even one of a slot that was free. */
    ck_assert_int_eq(run(&life, owner, 0, false, false), 0);
    ck_assert_uint_gt(ids[0].gen, last.gen);
    sw_engine_check(life.engine);
    close_life(&life, owner, false);

    open_life(&life, disks[_i]);
    ck_assert_int_eq(sw_engine_recover(life.engine, &life.found, NULL), 0);
    ck_assert_uint_eq(life.found.n_sessions + life.found.n_regions, 0);
    close_life(&life, NULL, false);
}
END_TEST

/* Requests 1000, 1001 ... have made the regions. Half of all numbers are behind the newest, the others ahead of it. */
static const struct {
    uint32_t newest;
    unsigned first, end; /* of the regions that are found */
} rounds[] = {{1003, 0, 4}, {1003 + (UINT32_C(1) << 31), 4, N}, {999, 0, 0}, {999 + (UINT32_C(1) << 31), 0, N}};

static void ck_found_made(struct sw_owner *owner, int round) {
    struct sw_region_id made;
    for (unsigned i = 0; i < N; i++) {
        const bool is_found = i >= rounds[round].first && i < rounds[round].end;
        sw_engine_find_made(owner, 1000 + i, &made, 1);
        ck_assert_uint_eq(made.gen, is_found ? ids[i].gen : 0);
    }
}

START_TEST(requests_of_the_round_before_are_forgotten) {
    open_life(&life, disks[1]);
    struct sw_owner *owner = new_owner(&life);
    spill_all(&life, owner);
    sw_owner_forget_requests(owner, rounds[_i].newest);
    ck_found_made(owner, _i);
    for (unsigned i = 0; i < N; i += 2)
        ck_assert_int_eq(sw_engine_advise(owner, ids[i], SW_ADVISE_PRIORITY, 200, NULL), 0);
    close_life(&life, owner, true);

    open_life(&life, disks[1]);
    ck_assert_int_eq(sw_engine_recover(life.engine, &life.found, NULL), 0);
    owner = sw_owner_claim(life.engine, 1000, token);
    ck_found_made(owner, _i);
    move_to_the_disk(&life);
    close_life(&life, owner, true);

    open_life(&life, disks[1]);
    ck_assert_int_eq(sw_engine_recover(life.engine, &life.found, NULL), 0);
    owner = sw_owner_claim(life.engine, 1000, token);
    ck_found_made(owner, _i);
    restore_all(&life, owner, false);
    close_life(&life, owner, false);
}
END_TEST

START_TEST(restored_ones_are_in_until_the_client_is_told) {
    struct sw_region_info info;
    open_life(&life, 0);
    struct sw_owner *owner = new_owner(&life);
    spill_all(&life, owner);
    ck_assert_int_eq(run(&life, owner, 0, true, false), 0);
    sw_owner_told(owner);
    ck_assert_int_eq(run(&life, owner, 1, true, false), 0);
    ck_assert_int_eq(sw_engine_consume(owner, ids[2], NULL), 0);
    ck_assert_int_eq(sw_engine_drop(owner, ids[3], NULL), 0);
    close_life(&life, owner, true);
    open_life(&life, 0);
    ck_assert_int_eq(sw_engine_recover(life.engine, &life.found, NULL), 0);
    ck_assert_uint_eq(life.found.n_regions, N - 2);
    owner = sw_owner_claim(life.engine, 1000, token);
    ck_assert_int_eq(sw_engine_query(owner, ids[0], &info, NULL), -SW_ESTALE);
    ck_assert_int_eq(sw_engine_query(owner, ids[3], &info, NULL), -SW_ESTALE);
    for (int i = 1; i <= 2; i++) {
        ck_assert_int_eq(sw_engine_query(owner, ids[i], &info, NULL), 0);
        ck_assert_int_eq(info.state, SW_REGION_IN);
        ck_assert_int_eq(run(&life, owner, (unsigned)i, true, false), -SW_ESTATE);
    }
    sw_engine_check(life.engine);
    sw_engine_forget_in(owner);
    ck_assert_int_eq(sw_engine_query(owner, ids[1], &info, NULL), -SW_ESTALE);
    close_life(&life, owner, false);
}
END_TEST

#ifndef __SANITIZE_THREAD__
/* A client that has not been told yet keeps the record of what it has restored; meanwhile another one's region gets the
 * slot. */
START_TEST(a_slot_belongs_to_its_newest_region) {
    static const uint8_t other_token[SW_TOKEN_BYTES] = "another of 16 by";
    struct sw_region_info info;
    struct sw_owner *other;
    bool closed = false;
    open_life(&life, 0);
    struct sw_owner *owner = new_owner(&life);
    ck_assert_int_eq(sw_owner_open(life.engine, &other, NULL), 0);
    ck_assert_int_eq(sw_owner_name(other, 1001, other_token, NULL), 0);
    fill(memory.data, 0);
    ck_assert_int_eq(run(&life, owner, 0, false, false), 0);
    ck_assert_int_eq(run(&life, owner, 0, true, false), 0);
    fill(memory.data, 1);
    for (bool is_same = false; !is_same;) {
        ck_assert_int_eq(run(&life, other, 1, false, false), 0);
        is_same = ids[1].slot == ids[0].slot;
        if (!is_same)
            ck_assert_int_eq(sw_engine_drop(other, ids[1], NULL), 0);
        sw_owner_told(other);
    }
    sw_owner_leave(owner, set_flag, &closed);
    run_until(&life, &closed);
    close_life(&life, other, true);
    open_life(&life, 0);
    ck_assert_int_eq(sw_engine_recover(life.engine, &life.found, NULL), 0);
    ck_assert_uint_eq(life.found.n_lost, 0);
    other = sw_owner_claim(life.engine, 1001, other_token);
    ck_assert_int_eq(sw_engine_query(other, ids[1], &info, NULL), 0);
    ck_assert_int_eq(info.state, SW_REGION_OUT);
    ck_assert_int_eq(sw_engine_query(other, ids[0], &info, NULL), -SW_ESTALE);
    /* The older one's client is still to be told, now or after another restart. */
    owner = sw_owner_claim(life.engine, 1000, token);
    ck_assert_int_eq(sw_engine_query(owner, ids[0], &info, NULL), 0);
    ck_assert_int_eq(info.state, SW_REGION_IN);
    ck_assert_uint_eq(info.raw_bytes, REGION_BYTES);
    sw_engine_check(life.engine);
    closed = false;
    sw_owner_leave(owner, set_flag, &closed);
    run_until(&life, &closed);
    close_life(&life, other, true);
    open_life(&life, 0);
    ck_assert_int_eq(sw_engine_recover(life.engine, &life.found, NULL), 0);
    owner = sw_owner_claim(life.engine, 1000, token);
    ck_assert_int_eq(run(&life, owner, 0, true, false), -SW_ESTATE);
    ck_assert_int_eq(sw_engine_consume(owner, ids[0], NULL), 0);
    ck_assert_int_eq(sw_engine_query(owner, ids[0], &info, NULL), -SW_ESTALE);
    sw_owner_told(owner);
    close_life(&life, owner, false);
    open_life(&life, 0);
    ck_assert_int_eq(sw_engine_recover(life.engine, &life.found, NULL), 0);
    ck_assert_uint_eq(life.found.n_regions + life.found.n_sessions, 0);
    close_life(&life, NULL, false);
}
END_TEST
#endif

/* Fewer regions are allowed than there were: those that are there stay, in whatever slot, and then there are no more.
 */
START_TEST(regions_beyond_the_bound_stay) {
    open_life(&life, disks[_i]);
    struct sw_owner *owner = new_owner(&life);
    spill_all(&life, owner);
    close_life(&life, owner, true);
    max_regions = N / 2;
    open_life(&life, disks[_i]);
    ck_assert_int_eq(sw_engine_recover(life.engine, &life.found, NULL), 0);
    ck_assert_uint_eq(life.found.n_regions, N);
    ck_assert_uint_eq(life.found.n_lost + life.found.n_released, 0);
    owner = sw_owner_claim(life.engine, 1000, token);
    const struct sw_region_id first = ids[0];
    ck_assert_int_eq(run(&life, owner, 0, false, false), -SW_ELIMIT);
    ids[0] = first;
    restore_all(&life, owner, false);
    ck_assert_int_eq(run(&life, owner, 0, false, false), 0);
    sw_engine_check(life.engine);
    close_life(&life, owner, false);
}
END_TEST

/* ---- durable regions --------------------------------------------------------------------------------------------- */

static struct sw_quota quotas[2]; /* of uid 1000 and 1001 */
static struct sw_owner *heirs[2];

/* As the service does: an heir for each uid, found or made. */
static int on_found(struct sw_owner *owner, uint32_t uid, bool is_heir, void *arg, struct sw_err *err) {
    unsigned *n_heirs = arg;
    const uint32_t i = uid - 1000;
    (void)err;
    sw_owner_set_quota(owner, &quotas[i]);
    *n_heirs += is_heir;
    if (is_heir)
        heirs[i] = owner;
    if (!heirs[i]) {
        ck_assert_int_eq(sw_owner_open(life.engine, &heirs[i], NULL), 0);
        sw_owner_set_quota(heirs[i], &quotas[i]);
        sw_owner_become_heir(heirs[i], uid);
    }
    if (!is_heir)
        sw_owner_set_heir(owner, heirs[i]);
    return 0;
}

static unsigned next_life(uint64_t nvme_bytes) {
    unsigned n_heirs = 0;
    memset(quotas, 0, sizeof quotas);
    memset(heirs, 0, sizeof heirs);
    open_life(&life, nvme_bytes);
    ck_assert_int_eq(sw_engine_recover(life.engine, &life.found, NULL), 0);
    ck_assert_int_eq(sw_owners_visit_found(life.engine, on_found, &n_heirs, NULL), 0);
    return n_heirs;
}

static struct sw_owner *named_owner(uint32_t uid, const uint8_t its_token[SW_TOKEN_BYTES]) {
    unsigned n_heirs = 0;
    struct sw_owner *owner = NULL;
    ck_assert_int_eq(sw_owner_open(life.engine, &owner, NULL), 0);
    ck_assert_int_eq(on_found(owner, uid, false, &n_heirs, NULL), 0);
    ck_assert_int_eq(sw_owner_name(owner, uid, its_token, NULL), 0);
    return owner;
}

static void close_owner(struct sw_owner *owner, bool leave) {
    bool closed = false;
    if (owner)
        (leave ? sw_owner_leave : sw_owner_close)(owner, set_flag, &closed);
    else
        closed = true;
    run_until(&life, &closed);
}

/* The session, which may be NULL, the heirs and the engine; what is left stays. */
static void end_life(struct sw_owner *session) {
    close_owner(session, true);
    (void)sw_owners_close_unclaimed(life.engine, true, NULL);
    for (unsigned i = 0; i < 2; i++)
        close_owner(heirs[i], true);
    close_life(&life, NULL, true);
}

START_TEST(durable_regions_need_nobody_to_come_back) {
    static const uint8_t second[SW_TOKEN_BYTES] = "the second one..";
    struct sw_region_id id;
    (void)next_life(disks[_i]);
    struct sw_owner *owner = named_owner(1000, token);
    spill_as = "orders";
    fill(memory.data, 0);
    ck_assert_int_eq(run(&life, owner, 0, false, false), 0);
    spill_as = NULL;
    ck_assert_int_eq(run(&life, owner, 1, false, false), 0);
    end_life(owner);

    /* Its session may come back, and has it so long. */
    ck_assert_uint_eq(next_life(disks[_i]), 0);
    ck_assert_uint_eq(life.found.n_regions, 2);
    ck_assert_uint_eq(quotas[0].n_regions, 2);
    owner = named_owner(1000, second);
    ck_assert_int_eq(sw_engine_adopt(owner, "orders", &id, NULL), -SW_EBUSY);
    ck_assert_uint_eq(sw_owners_close_unclaimed(life.engine, false, NULL), 1);
    ck_assert_int_eq(sw_engine_adopt(owner, "orders", &id, NULL), 0);
    ck_assert_mem_eq(&id, &ids[0], sizeof id);
    ck_assert_int_eq(run(&life, owner, 0, true, false), 0);
    end_life(owner);

    /* Who has adopted it finds it under its id. */
    ck_assert_uint_eq(next_life(disks[_i]), 0);
    owner = sw_owner_claim(life.engine, 1000, second);
    ck_assert_ptr_nonnull(owner);
    ck_assert_int_eq(run(&life, owner, 0, true, false), 0);
    close_owner(owner, false);
    ck_assert_uint_eq(quotas[0].n_regions, 1);
    end_life(NULL);

    /* No session at all. */
    ck_assert_uint_eq(next_life(disks[_i]), 1);
    ck_assert_uint_eq(life.found.n_sessions, 0);
    ck_assert_uint_eq(life.found.n_regions, 1);
    struct sw_owner *stranger = named_owner(1001, token);
    ck_assert_int_eq(sw_engine_adopt(stranger, "orders", &id, NULL), -SW_ENOENT);
    close_owner(stranger, false);
    owner = named_owner(1000, token);
    ck_assert_int_eq(sw_engine_adopt(owner, "orders", &id, NULL), 0);
    restore_and_compare(&life, owner, 0, false);
    sw_engine_check(life.engine);
    ck_assert_int_eq(sw_engine_drop(owner, id, NULL), 0);
    ck_assert_uint_eq(atomic_load(&quotas[0].bytes), 0);
    end_life(owner);
    (void)next_life(disks[_i]);
    ck_assert_uint_eq(life.found.n_regions + life.found.n_released, 0);
    end_life(NULL);
}
END_TEST

/* Numbers of sessions that are gone are in their durable regions' records: no session of another tenant gets one. */
START_TEST(no_session_takes_anothers_durable_region) {
    static const uint8_t others_token[SW_TOKEN_BYTES] = "somebody else's.";
    struct sw_region_id id;
    (void)next_life(0);
    struct sw_owner *stranger = named_owner(1001, others_token);
    struct sw_owner *owner = named_owner(1000, token);
    spill_as = "orders";
    fill(memory.data, 0);
    ck_assert_int_eq(run(&life, owner, 0, false, false), 0);
    spill_as = NULL;
    close_owner(owner, false);
    end_life(stranger);
    for (int i = 0; i < 3; i++) {
        (void)next_life(0);
        stranger = named_owner(1001, others_token); /* the numbers go on behind all that are recorded */
        ck_assert_uint_eq(quotas[1].n_regions, 0);
        ck_assert_uint_eq(quotas[0].n_regions, 1);
        ck_assert_int_eq(sw_engine_adopt(stranger, "orders", &id, NULL), -SW_ENOENT);
        end_life(stranger);
    }
}
END_TEST

/* A move that the catalogue has no room for has failed: the frames stay where they were, and it is not tried again and
 * again. */
START_TEST(a_move_that_cannot_be_recorded_fails) {
    const struct sw_catalogue_session other = {.number = 1000000, .uid = 1001};
    struct sw_engine_stats stats;
    uint32_t record;
    high_pct = 100;
    open_life(&life, disks[1]);
    struct sw_owner *owner = new_owner(&life);
    for (unsigned i = 0; i < 3; i++) {
        fill(memory.data, i);
        ck_assert_int_eq(run(&life, owner, i, false, false), 0);
    }
    sw_engine_stats(life.engine, &stats);
    const uint64_t used_bytes = stats.tier.used_bytes;
    while (sw_catalogue_put_session(life.catalogue, &other, &record, NULL) == 0) /* until it is full */
        continue;
    ck_assert_int_eq(sw_engine_make_room(life.engine, UINT64_MAX, NULL), 0);
    ck_assert_uint_gt(life.engine->n_moves, 0);
    while (life.engine->n_moves > 0) {
        (void)uv_run(&life.loop, UV_RUN_ONCE);
        sw_engine_stats(life.engine, &stats);
        ck_assert_uint_eq(stats.moves, 0);
    }
    ck_assert_uint_eq(stats.tier.used_bytes, used_bytes);
    for (unsigned i = 0; i < 3; i++)
        restore_and_compare(&life, owner, i, false);
    close_life(&life, owner, false);
}
END_TEST

/* A successor could not tell its client that packing was under way, and would have it pack torn bytes again. */
START_TEST(a_pack_that_cannot_be_recorded_does_not_begin) {
    const struct sw_catalogue_session other = {.number = 1000000, .uid = 1001};
    struct sw_mem_desc desc = sw_memory_desc(&memory);
    struct sw_engine_stats stats;
    struct sw_test_op op = {0};
    struct sw_mem *mem;
    uint32_t record, last = 0;
    open_life(&life, 0);
    struct sw_owner *owner = new_owner(&life);
    while (sw_catalogue_put_session(life.catalogue, &other, &record, NULL) == 0) /* until it is full */
        last = record;
    ck_assert_int_eq(sw_mem_open(owner, &desc, false, &mem, NULL), 0);
    const struct sw_range range = {.mem = mem, .bytes = REGION_BYTES, .in_place = true};
    ck_assert_int_eq(sw_engine_spill(owner, &range, sw_test_op_done, &op, &op.id, NULL), -SW_ELIMIT);
    sw_engine_stats(life.engine, &stats);
    ck_assert_uint_eq(stats.n_regions + stats.n_ops, 0);
    sw_engine_check(life.engine);
    sw_catalogue_free(life.catalogue, &last); /* room for one that is marked broken, not for its chunks, too */
    ck_assert_int_eq(sw_engine_spill(owner, &range, sw_test_op_done, &op, &op.id, NULL), 0);
    ck_assert_uint_ne(life.engine->regions.regions[op.id.slot].record, 0);
    run_until(&life, &op.done);
    ck_assert_int_eq(op.outcome.err.code, 0);
    close_life(&life, owner, false);
}
END_TEST

/* Of a region that is lost its client may have the bytes still, unless it was being packed, or was packed. */
START_TEST(what_was_in_place_is_known_to_be) {
    struct sw_catalogue_hints broken = {.broken = true};
    struct sw_region_info info;
    struct sw_test_op op = {0};
    struct sw_mem_desc desc = sw_memory_desc(&memory);
    struct sw_mem *mem;
    open_life(&life, 0);
    struct sw_owner *owner = new_owner(&life);
    fill(memory.data, 0);
    ck_assert_int_eq(run(&life, owner, 0, false, false), 0);
    ck_assert_int_eq(sw_mem_open(owner, &desc, false, &mem, NULL), 0);
    const struct sw_range range = {.mem = mem, .bytes = REGION_BYTES, .in_place = true};
    ck_assert_int_eq(sw_engine_spill(owner, &range, sw_test_op_done, &op, &op.id, NULL), 0);
    run_until(&life, &op.done);
    ids[1] = op.id;
    /* As the beginning of another pack leaves it. */
    ids[2] = (struct sw_region_id){.slot = 2, .gen = 1};
    const struct sw_catalogue_region begun = {
        .session = owner->number, .slot = ids[2].slot, .gen = ids[2].gen, .raw_bytes = REGION_BYTES, .hints = broken};
    uint32_t record;
    ck_assert_int_eq(sw_catalogue_put_region(life.catalogue, &begun, 0, &record, NULL), 0);
    for (unsigned i = 0; i < 2; i++)
        sw_catalogue_hint(life.catalogue, life.engine->regions.regions[ids[i].slot].record, &broken);
    close_life(&life, owner, true);
    open_life(&life, 0);
    ck_assert_int_eq(sw_engine_recover(life.engine, &life.found, NULL), 0);
    ck_assert_uint_eq(life.found.n_lost, 3);
    owner = sw_owner_claim(life.engine, 1000, token);
    for (unsigned i = 0; i < 3; i++) {
        ck_assert_int_eq(sw_engine_query(owner, ids[i], &info, NULL), 0);
        ck_assert_int_eq(info.state, SW_REGION_LOST);
        ck_assert_int_eq(info.in_place, i > 0);
    }
    close_life(&life, owner, false);
}
END_TEST

/* A slab, or the disk, is gone: what lay there is lost and says so, the rest is not. */
START_TEST(what_is_not_whole_is_lost) {
    unsigned n_lost = 0;
    open_life(&life, disks[_i]);
    wait_for_the_arena(&life); /* so that the first slab is filled before the second */
    struct sw_owner *owner = new_owner(&life);
    spill_all(&life, owner);
    close_life(&life, owner, true);
    if (_i == 0) {
        ck_assert_uint_eq(world.n_slabs, 2); /* of the first one every region may have a piece, by what is left of it */
        (void)close(world.slabs[--world.n_slabs].fd);
    } else {
        sw_nvme_folder_free(&world.folder);
        world.folder = sw_nvme_folder_new();
    }
    open_life(&life, disks[_i]);
    wait_for_the_arena(&life); /* a new slab in the place of the old one holds nothing of it */
    ck_assert_int_eq(sw_engine_recover(life.engine, &life.found, NULL), 0);
    ck_assert_uint_eq(life.found.n_regions, N);
    ck_assert_uint_gt(life.found.n_lost, 0);
    ck_assert_uint_lt(life.found.n_lost, N);
    sw_engine_check(life.engine);
    owner = sw_owner_claim(life.engine, 1000, token);
    for (unsigned i = 0; i < N; i++) {
        const int rc = run(&life, owner, i, true, false);
        ck_assert(rc == 0 || rc == -SW_ELOST);
        n_lost += rc != 0;
    }
    ck_assert_uint_eq(n_lost, life.found.n_lost);
    close_life(&life, owner, false);
}
END_TEST

/* The machine is started again: what was in memory is gone, and ids begin anew. */
static void restart_machine(void) {
    (void)close(world.catalogue);
    world.catalogue = -1;
    while (world.n_slabs)
        (void)close(world.slabs[--world.n_slabs].fd);
}

/* Neither all in memory nor all on the disk. */
static bool is_parted(struct sw_region_id id) {
    const struct sw_frames *frames = life.engine->regions.regions[id.slot].frames;
    size_t n_on_disk = 0;
    for (size_t i = 0; i < frames->n_chunks; i++)
        n_on_disk += frames->stored[i].tier == life.nvme;
    return n_on_disk > 0 && n_on_disk < frames->n_chunks;
}

static void spill_to_the_disk(struct sw_owner *owner, unsigned i) {
    fill(memory.data, i);
    ck_assert_int_eq(run(&life, owner, i, false, false), 0);
    move_to_the_disk(&life);
}

/* Started without its disk, or with another one, as by a mistake in the configuration. */
START_TEST(a_disk_that_was_away_has_its_regions_again) {
    const struct sw_nvme_folder right = world.folder, other = sw_nvme_folder_new();
    open_life(&life, disks[1]);
    struct sw_owner *owner = new_owner(&life);
    for (unsigned i = 0; i < N; i++)
        spill_to_the_disk(owner, i);
    close_life(&life, owner, true);
    world.folder = other;
    open_life(&life, disks[_i]);
    ck_assert_int_eq(sw_engine_recover(life.engine, &life.found, NULL), 0);
    ck_assert_uint_eq(life.found.n_lost, N);
    sw_engine_check(life.engine);
    close_life(&life, NULL, true);
    world.folder = right;
    open_life(&life, disks[1]);
    ck_assert_int_eq(sw_engine_recover(life.engine, &life.found, NULL), 0);
    ck_assert_uint_eq(life.found.n_regions, N);
    ck_assert_uint_eq(life.found.n_lost, 0);
    owner = sw_owner_claim(life.engine, 1000, token);
    for (unsigned i = 0; i < N; i++)
        restore_and_compare(&life, owner, i, false);
    close_life(&life, owner, false);
    world.folder = other;
    sw_nvme_folder_free(&world.folder);
    world.folder = right;
}
END_TEST

/* Meanwhile work goes on, on another disk, and the service is started with that more than once. What was stored there
 * waits in its turn. */
START_TEST(regions_wait_for_their_disk_as_long_as_it_takes) {
    const struct sw_nvme_folder right = world.folder, other = sw_nvme_folder_new();
    const struct sw_nvme_folder *const folders[] = {&other, &other, &other, &right, &other};
    enum { FIRST = 4 };
    open_life(&life, disks[1]);
    struct sw_owner *owner = new_owner(&life);
    for (unsigned i = 0; i < FIRST; i++)
        spill_to_the_disk(owner, i);
    close_life(&life, owner, true);
    for (unsigned k = 0; k < sizeof folders / sizeof folders[0]; k++) {
        const bool is_right = folders[k] == &right;
        const unsigned n = k == 0 ? FIRST : FIRST + 1;
        world.folder = *folders[k];
        open_life(&life, disks[1]);
        ck_assert_int_eq(sw_engine_recover(life.engine, &life.found, NULL), 0);
        ck_assert_uint_eq(life.found.n_regions, n);
        ck_assert_uint_eq(life.found.n_lost, is_right ? 1 : FIRST);
        ck_assert_uint_eq(life.found.n_released, 0);
        sw_engine_check(life.engine);
        owner = sw_owner_claim(life.engine, 1000, token);
        for (unsigned i = 0; i < n; i++) {
            if (is_right == (i < FIRST))
                restore_and_compare(&life, owner, i, true);
            else
                ck_assert_int_eq(run(&life, owner, i, true, true), -SW_ELOST);
        }
        if (k == 0)
            spill_to_the_disk(owner, FIRST);
        close_life(&life, owner, true);
    }
    sw_nvme_folder_free(&world.folder);
    world.folder = right;
}
END_TEST

/* Of some a part lies in memory, which nobody else gets meanwhile. */
START_TEST(a_region_waits_for_the_part_that_is_on_its_disk) {
    const struct sw_nvme_folder right = world.folder, other = sw_nvme_folder_new();
    struct sw_engine_stats before, after;
    unsigned n_parted = 0;
    high_pct = 100; /* nothing moves: only what finds no room goes to the disk */
    (void)next_life(disks[1]);
    struct sw_owner *owner = named_owner(1000, token);
    spill_all(&life, owner);
    for (unsigned i = 0; i < N; i++)
        n_parted += is_parted(ids[i]);
    ck_assert_uint_gt(n_parted, 0);
    end_life(owner);
    world.folder = other;
    for (int k = 0; k < 2; k++) {
        (void)next_life(disks[_i]);
        ck_assert_uint_eq(life.found.n_regions, N);
        ck_assert_uint_ge(life.found.n_lost, n_parted);
        ck_assert_uint_lt(life.found.n_lost, N);
        sw_engine_check(life.engine);
        sw_engine_stats(life.engine, k ? &after : &before);
        owner = sw_owner_claim(life.engine, 1000, token);
        end_life(owner);
    }
    ck_assert_uint_eq(before.tier.used_bytes, after.tier.used_bytes);
    world.folder = right;
    (void)next_life(disks[1]);
    ck_assert_uint_eq(life.found.n_regions, N);
    ck_assert_uint_eq(life.found.n_lost + life.found.n_released, 0);
    sw_engine_check(life.engine);
    owner = sw_owner_claim(life.engine, 1000, token);
    restore_all(&life, owner, false);
    close_owner(owner, false);
    ck_assert_uint_eq(atomic_load(&quotas[0].bytes), 0);
    end_life(NULL);
    world.folder = other;
    sw_nvme_folder_free(&world.folder);
    world.folder = right;
}
END_TEST

/* A disk that was not mounted after the machine was started comes back while the service runs: on it lie frames of
 * regions with the same ids, chunks and lengths, of somebody who has ended long since. */
START_TEST(frames_of_an_earlier_boot_are_nobodys) {
    const struct sw_nvme_folder right = world.folder, other = sw_nvme_folder_new();
    open_life(&life, disks[1]);
    struct sw_owner *owner = new_owner(&life);
    spill_to_the_disk(owner, 1);
    close_life(&life, owner, true);
    restart_machine();
    world.folder = other;
    open_life(&life, disks[1]);
    owner = new_owner(&life);
    spill_to_the_disk(owner, 5);
    ck_assert_mem_eq(&ids[5], &ids[1], sizeof ids[1]);
    close_life(&life, owner, true);
    world.folder = right;
    open_life(&life, disks[1]);
    ck_assert_int_eq(sw_engine_recover(life.engine, &life.found, NULL), 0);
    ck_assert_uint_eq(life.found.n_regions, 1);
    ck_assert_uint_eq(life.found.n_lost, 1);
    ck_assert_uint_gt(life.found.n_released, 0);
    sw_engine_check(life.engine);
    owner = sw_owner_claim(life.engine, 1000, token);
    ck_assert_int_eq(run(&life, owner, 5, true, true), -SW_ELOST);
    close_life(&life, owner, true);
    world.folder = other;
    open_life(&life, disks[1]);
    ck_assert_int_eq(sw_engine_recover(life.engine, &life.found, NULL), 0);
    owner = sw_owner_claim(life.engine, 1000, token);
    restore_and_compare(&life, owner, 5, false);
    close_life(&life, owner, false);
    sw_nvme_folder_free(&world.folder);
    world.folder = right;
}
END_TEST

/* As an earlier version of the program has made it, and what it has stored on the disk. */
START_TEST(a_catalogue_without_an_epoch_has_its_frames) {
    static const uint8_t none[sizeof(uint64_t)];
    open_life(&life, disks[1]);
    close_life(&life, NULL, false);
    ck_assert_int_eq(pwrite(world.catalogue, none, sizeof none, EPOCH_AT), sizeof none);
    open_life(&life, disks[1]);
    struct sw_owner *owner = new_owner(&life);
    spill_all(&life, owner);
    close_life(&life, owner, true);
    open_life(&life, disks[1]);
    ck_assert_int_eq(sw_engine_recover(life.engine, &life.found, NULL), 0);
    ck_assert_uint_eq(life.found.n_regions, N);
    ck_assert_uint_eq(life.found.n_lost + life.found.n_released, 0);
    owner = sw_owner_claim(life.engine, 1000, token);
    restore_all(&life, owner, false);
    close_life(&life, owner, false);
}
END_TEST

/* Adopted meanwhile, a durable one is lost only for as long, too. */
START_TEST(a_durable_region_whose_disk_was_away_is_there_again) {
    static const uint8_t second[SW_TOKEN_BYTES] = "the second one..";
    const struct sw_nvme_folder right = world.folder, other = sw_nvme_folder_new();
    char names[N][8];
    (void)next_life(disks[1]);
    struct sw_owner *owner = named_owner(1000, token);
    for (unsigned i = 0; i < N; i++) {
        (void)snprintf(names[i], sizeof names[i], "part-%u", i);
        spill_as = names[i];
        fill(memory.data, i);
        ck_assert_int_eq(run(&life, owner, i, false, false), 0);
        move_to_the_disk(&life);
    }
    spill_as = NULL;
    end_life(owner);
    world.folder = other;
    (void)next_life(disks[1]);
    ck_assert_uint_eq(life.found.n_lost, N);
    ck_assert_uint_eq(sw_owners_close_unclaimed(life.engine, false, NULL), 1);
    owner = named_owner(1000, second);
    for (unsigned i = 0; i < N; i++)
        ck_assert_int_eq(sw_engine_adopt(owner, names[i], &ids[i], NULL), 0);
    end_life(owner);
    world.folder = right;
    (void)next_life(disks[1]);
    ck_assert_uint_eq(life.found.n_regions, N);
    ck_assert_uint_eq(life.found.n_lost, 0);
    end_life(NULL);
    world.folder = other;
    sw_nvme_folder_free(&world.folder);
    world.folder = right;
}
END_TEST

/* The host tier is full, and that is why the operator has added a disk: nobody has to wait for room to be made by hand.
 */
START_TEST(a_disk_is_added_to_a_full_host_tier) {
    struct sw_region_id first;
    unsigned n = 0;
    open_life(&life, 0);
    struct sw_owner *owner = new_owner(&life);
    fill(memory.data, 1);
    for (; run(&life, owner, 1, false, false) == 0; n++)
        first = n ? first : ids[1];
    ck_assert_uint_gt(n, 3);
    close_life(&life, owner, true);
    open_life(&life, disks[1]);
    ck_assert_int_eq(sw_engine_recover(life.engine, &life.found, NULL), 0);
    ck_assert(life.found.n_regions == n && life.found.n_lost == 0);
    owner = sw_owner_claim(life.engine, 1000, token);
    for (unsigned i = 0; i < n; i++)
        ck_assert_int_eq(run(&life, owner, 1, false, false), 0);
    ids[1] = first;
    restore_and_compare(&life, owner, 1, true);
    close_life(&life, owner, false);
}
END_TEST

/* The same where its bound has become smaller than what is in it; what is on the disk can be had, too. */
START_TEST(the_host_tier_is_made_smaller) {
    struct sw_region_id on_disk;
    host_bytes = 8 << 20;
    high_pct = 100;
    open_life(&life, disks[1]);
    struct sw_owner *owner = new_owner(&life);
    fill(memory.data, 1);
    ck_assert_int_eq(run(&life, owner, 1, false, false), 0);
    on_disk = ids[1];
    move_to_the_disk(&life);
    for (int i = 0; i < 9; i++)
        ck_assert_int_eq(run(&life, owner, 1, false, false), 0);
    close_life(&life, owner, true);
    host_bytes = 4 << 20;
    open_life(&life, disks[1]);
    ck_assert_int_eq(sw_engine_recover(life.engine, &life.found, NULL), 0);
    owner = sw_owner_claim(life.engine, 1000, token);
    ids[1] = on_disk;
    restore_and_compare(&life, owner, 1, true);
    for (int i = 0; i < 4; i++)
        ck_assert_int_eq(run(&life, owner, 1, false, false), 0);
    close_life(&life, owner, false);
}
END_TEST

START_TEST(nobody_claims_it) {
    struct sw_engine_stats stats;
    open_life(&life, disks[_i]);
    struct sw_owner *owner = new_owner(&life);
    spill_all(&life, owner);
    close_life(&life, owner, true);
    open_life(&life, disks[_i]);
    ck_assert_int_eq(sw_engine_recover(life.engine, &life.found, NULL), 0);
    ck_assert_uint_eq(sw_owners_close_unclaimed(life.engine, false, NULL), 1);
    do {
        (void)uv_run(&life.loop, UV_RUN_NOWAIT);
        sw_engine_stats(life.engine, &stats);
    } while (stats.n_owners);
    ck_assert_uint_eq(stats.n_regions + stats.tier.used_bytes + stats.nvme.used_bytes, 0);
    close_life(&life, NULL, false);
    open_life(&life, disks[_i]);
    ck_assert_int_eq(sw_engine_recover(life.engine, &life.found, NULL), 0);
    ck_assert_uint_eq(life.found.n_sessions + life.found.n_regions + life.found.n_released, 0);
    close_life(&life, NULL, false);
}
END_TEST

/* Each allocation of the start fails in turn: nothing that was recorded is lost by it. */
START_TEST(memory_fails_at_the_start) {
    int rc = -SW_ENOMEM;
    open_life(&life, disks[_i]);
    struct sw_owner *owner = new_owner(&life);
    spill_all(&life, owner);
    close_life(&life, owner, true);
    for (unsigned long nth = 1; rc; nth++) {
        ck_assert_uint_lt(nth, FAILURES);
        open_life(&life, disks[_i]);
        sw_alloc_fail_nth(nth);
        rc = sw_engine_recover(life.engine, &life.found, NULL);
        sw_alloc_fail_nth(0);
        ck_assert(rc == 0 || rc == -SW_ENOMEM);
        close_life(&life, NULL, true);
    }
    open_life(&life, disks[_i]);
    ck_assert_int_eq(sw_engine_recover(life.engine, &life.found, NULL), 0);
    ck_assert_uint_eq(life.found.n_regions, N);
    ck_assert_uint_eq(life.found.n_lost, 0);
    owner = sw_owner_claim(life.engine, 1000, token);
    restore_all(&life, owner, false);
    close_life(&life, owner, false);
}
END_TEST

/* ---- signs of life ---- */

static int dead_canary(struct sw_device *device, struct sw_err *err) {
    (void)device;
    return sw_err_set(err, -SW_EGPULOST, SW_SCOPE_DEVICE, "dead");
}

START_TEST(a_dead_device_is_silent) {
    open_life(&life, 0);
    wait_for_the_arena(&life);
    sw_engine_ask_life(life.engine);
    const uint64_t given_us = life.engine->canaries[0].given_us;
    while (life.engine->canaries[0].given_us == given_us || life.engine->canaries[0].is_out)
        (void)uv_run(&life.loop, UV_RUN_NOWAIT);
    ck_assert(!sw_engine_device_lost(life.engine));
    const struct sw_device_ops *real = life.device->ops;
    struct sw_device_ops dead = *real;
    dead.canary = dead_canary;
    life.device->ops = &dead;
    const uint64_t last_us = life.engine->canaries[0].given_us;
    sw_engine_ask_life(life.engine);
    while (life.engine->canaries[0].is_out)
        (void)uv_run(&life.loop, UV_RUN_NOWAIT);
    ck_assert_uint_eq(life.engine->canaries[0].given_us, last_us);
    ck_assert(sw_engine_device_lost(life.engine));
    life.device->ops = real;
    close_life(&life, NULL, false);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("recovery");
    TCase *tcase = tcase_create("recovery");
    tcase_set_timeout(tcase, 60);
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_loop_test(tcase, regions_are_there_again, 0, 2);
    tcase_add_loop_test(tcase, requests_of_the_round_before_are_forgotten, 0, (int)(sizeof rounds / sizeof rounds[0]));
    tcase_add_test(tcase, restored_ones_are_in_until_the_client_is_told);
#ifndef __SANITIZE_THREAD__ /* thousands of spills until a slot comes round */
    tcase_add_test(tcase, a_slot_belongs_to_its_newest_region);
#endif
    tcase_add_loop_test(tcase, durable_regions_need_nobody_to_come_back, 0, 2);
    tcase_add_test(tcase, no_session_takes_anothers_durable_region);
    tcase_add_loop_test(tcase, regions_beyond_the_bound_stay, 0, 2);
    tcase_add_test(tcase, a_move_that_cannot_be_recorded_fails);
    tcase_add_test(tcase, a_pack_that_cannot_be_recorded_does_not_begin);
    tcase_add_test(tcase, what_was_in_place_is_known_to_be);
    tcase_add_loop_test(tcase, what_is_not_whole_is_lost, 0, 2);
    tcase_add_loop_test(tcase, a_disk_that_was_away_has_its_regions_again, 0, 2);
    tcase_add_test(tcase, regions_wait_for_their_disk_as_long_as_it_takes);
    tcase_add_loop_test(tcase, a_region_waits_for_the_part_that_is_on_its_disk, 0, 2);
    tcase_add_test(tcase, frames_of_an_earlier_boot_are_nobodys);
    tcase_add_test(tcase, a_catalogue_without_an_epoch_has_its_frames);
    tcase_add_test(tcase, a_durable_region_whose_disk_was_away_is_there_again);
    tcase_add_test(tcase, a_disk_is_added_to_a_full_host_tier);
    tcase_add_test(tcase, the_host_tier_is_made_smaller);
    tcase_add_loop_test(tcase, nobody_claims_it, 0, 2);
    tcase_add_loop_test(tcase, memory_fails_at_the_start, 0, 2);
    tcase_add_test(tcase, a_dead_device_is_silent);
    suite_add_tcase(suite, tcase);
    return sw_test_run(suite, CK_FORK);
}
