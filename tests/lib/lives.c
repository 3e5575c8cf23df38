#include "tests/lib/lives.h"
#include "spill/tier/host/tier_host.h"

#include "base/alloc.h"
#include "spill/engine_state.h"
#include "spill/operator.h"
#include "tests/lib/content.h"
#include "tests/lib/transfer.h"

#include <check.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

enum { BUFFERS = 3, FIRST_BYTES = 200001 };

struct sw_world sw_world;
const uint8_t sw_life_token[SW_TOKEN_BYTES] = "one of 16 bytes";
const uint64_t sw_life_disks[2] = {0, 16 << 20};

/* ---- the world ---- */

void sw_world_setup(void) {
    sw_world.catalogue = -1;
    sw_world.n_slabs = 0;
    sw_world.io_pipe = -1;
    sw_world.max_regions = 100;
    sw_world.high_pct = 60;
    sw_world.low_pct = 40;
    sw_world.files = NULL;
    sw_world.method = SW_TIER_NVME_AUTO;
    sw_world.unwanted = false;
    sw_world.open_last = NULL;
    memset(&sw_world.observer, 0, sizeof sw_world.observer);
    sw_world.host_bytes = 4 << 20;
    sw_world.folder = sw_nvme_folder_new();
    sw_world.memory = sw_memory_new(SW_WORLD_REGION_BYTES);
}

void sw_world_teardown(void) {
    sw_memory_free(&sw_world.memory);
    (void)close(sw_world.catalogue);
    for (unsigned i = 0; i < sw_world.n_slabs; i++)
        (void)close(sw_world.slabs[i].fd);
    sw_nvme_folder_free(&sw_world.folder);
}

void sw_world_fill(uint8_t to[SW_WORLD_REGION_BYTES], unsigned i) {
    sw_content_fill(to, SW_WORLD_REGION_BYTES, i % 2 ? SW_CONTENT_RANDOM : SW_CONTENT_TEXT, i + 1);
}

/* ---- a life ---- */

static void keep_slab(int fd, uint64_t offset, void *arg) {
    (void)arg;
    ck_assert_uint_lt(sw_world.n_slabs, SW_WORLD_MAX_SLABS);
    sw_world.slabs[sw_world.n_slabs++] = (struct sw_tier_host_slab){fcntl(fd, F_DUPFD_CLOEXEC, 0), offset};
}

static void open_tiers(struct sw_life *life, uint64_t nvme_bytes) {
    struct sw_tier_host_slab kept[SW_WORLD_MAX_SLABS];
    for (unsigned i = 0; i < sw_world.n_slabs; i++) /* the last made first: the order does not matter */
        kept[sw_world.n_slabs - 1 - i] =
            (struct sw_tier_host_slab){fcntl(sw_world.slabs[i].fd, F_DUPFD_CLOEXEC, 0), sw_world.slabs[i].offset};
    const int io_pipe = fcntl(sw_world.io_pipe, F_DUPFD_CLOEXEC, 0); /* of -1: none */
    const struct sw_tier_host_config host = {.capacity_bytes = sw_world.host_bytes,
                                             .initial_bytes = sw_world.host_bytes,
                                             .slab_bytes = 2 << 20,
                                             .devices = &life->device,
                                             .n_devices = 1,
                                             .keep = keep_slab,
                                             .kept = kept,
                                             .n_kept = sw_world.n_slabs,
                                             .io_pipes = &io_pipe,
                                             .n_io_pipes = io_pipe >= 0};
    ck_assert_int_eq(sw_tier_host_open(&life->host, &host, NULL), 0);
    const struct sw_tier_nvme_config nvme = {.directory = sw_world.folder.path,
                                             .capacity_bytes = nvme_bytes,
                                             .file_bytes = nvme_bytes,
                                             .queue_depth = 16,
                                             .method = sw_world.method,
                                             .unwanted = sw_world.unwanted,
                                             .files = sw_world.files};
    life->nvme = nvme_bytes ? sw_nvme_open(&nvme) : NULL;
    life->last = sw_world.open_last ? sw_world.open_last() : NULL;
}

static struct sw_tiers tiers_of(const struct sw_life *life) {
    struct sw_tiers tiers = {.at = {life->host}, .n = 1};
    if (life->nvme)
        tiers.at[tiers.n++] = life->nvme;
    if (life->last)
        tiers.at[tiers.n++] = life->last;
    return tiers;
}

void sw_life_open(struct sw_life *ret, uint64_t nvme_bytes) {
    const struct sw_device_config device = {.scratch_bytes = 64 << 20, .n_slots = 2, .chunk_bytes = 64 << 10};
    memset(ret, 0, sizeof *ret);
    ck_assert_int_eq(uv_loop_init(&ret->loop), 0);
    ck_assert_int_eq(sw_device_host_open(&ret->device, &device, NULL), 0);
    const int fd = sw_world.catalogue < 0 ? -1 : fcntl(sw_world.catalogue, F_DUPFD_CLOEXEC, 0);
    ck_assert_int_eq(sw_catalogue_open(&ret->catalogue, fd, sw_world.max_regions, NULL), 0);
    if (sw_world.catalogue < 0)
        sw_world.catalogue = fcntl(sw_catalogue_fd(ret->catalogue), F_DUPFD_CLOEXEC, 0);
    open_tiers(ret, nvme_bytes);
    const struct sw_engine_config config = {.devices = &ret->device,
                                            .n_devices = 1,
                                            .tiers = tiers_of(ret),
                                            .staging_bytes = 1 << 20,
                                            .high_pct = sw_world.high_pct,
                                            .low_pct = sw_world.low_pct,
                                            .max_regions = sw_world.max_regions,
                                            .max_owner_regions = 50,
                                            .max_owner_mems = 20,
                                            .catalogue = ret->catalogue,
                                            .observer = sw_world.observer};
    ck_assert_int_eq(sw_engine_open(&ret->engine, &ret->loop, &config, NULL), 0);
    for (size_t i = 0; i < sizeof ret->quotas / sizeof ret->quotas[0]; i++)
        ret->quotas[i].max_durable = 10;
}

static void set_flag(void *arg) {
    *(bool *)arg = true;
}

void sw_life_until(struct sw_life *life, const bool *flag) {
    while (!*flag)
        (void)uv_run(&life->loop, UV_RUN_ONCE);
}

void sw_life_close_owner(struct sw_life *life, struct sw_owner *owner, bool leave) {
    bool closed = owner == NULL;
    if (owner)
        (leave ? sw_owner_leave : sw_owner_close)(owner, set_flag, &closed);
    sw_life_until(life, &closed);
}

void sw_life_close(struct sw_life *life, struct sw_owner *owner, bool leave) {
    bool closed = false;
    sw_life_close_owner(life, owner, leave);
    (void)sw_owners_close_unclaimed(life->engine, NULL, leave, NULL);
    sw_engine_close(life->engine, set_flag, &closed);
    sw_life_until(life, &closed);
    life->host->ops->close(life->host);
    if (life->nvme)
        life->nvme->ops->close(life->nvme);
    if (life->last)
        life->last->ops->close(life->last);
    life->device->ops->close(life->device);
    sw_catalogue_close(life->catalogue);
    ck_assert_int_eq(uv_loop_close(&life->loop), 0);
}

void sw_life_await_arena(struct sw_life *life) {
    struct sw_tier_stats stats = {0};
    while (stats.backed_bytes < sw_world.host_bytes)
        life->host->ops->stats(life->host, &stats);
}

struct sw_owner *sw_life_new_owner(struct sw_life *life) {
    struct sw_owner *owner = NULL;
    ck_assert_int_eq(sw_engine_recover(life->engine, &life->found, NULL), 0);
    ck_assert_int_eq(sw_owner_open(life->engine, &owner, NULL), 0);
    ck_assert_int_eq(sw_owner_name(owner, 1000, &(struct sw_process){.pid = 0}, sw_life_token, NULL), 0);
    return owner;
}

/* ---- its regions ---- */

int sw_life_run(struct sw_life *life, struct sw_owner *owner, unsigned i, bool restore, bool keep) {
    struct sw_mem_desc desc = sw_memory_desc(&sw_world.memory);
    struct sw_test_op op = {0};
    struct sw_mem *mem;
    struct sw_range ranges[BUFFERS];
    const unsigned n = i % 4 < 2 ? 1 : BUFFERS; /* one of several is empty */
    ck_assert_int_eq(sw_mem_open(owner, &desc, n == 1, &mem, NULL), 0);
    for (unsigned k = 0; k < n; k++)
        ranges[k] = (struct sw_range){.mem = mem};
    ranges[0].bytes = n == 1 ? SW_WORLD_REGION_BYTES : FIRST_BYTES;
    ranges[n - 1].offset = n == 1 ? 0 : FIRST_BYTES;
    ranges[n - 1].bytes = n == 1 ? SW_WORLD_REGION_BYTES : SW_WORLD_REGION_BYTES - FIRST_BYTES;
    const int rc = restore
                       ? sw_engine_restore(owner, sw_world.ids[i], SW_TRANSFER(ranges, n, .keep = keep),
                                           sw_test_op_done, &op, NULL)
                       : sw_engine_spill(owner, SW_TRANSFER(ranges, n, .request = 1000 + i, .name = sw_world.spill_as),
                                         sw_test_op_done, &op, &sw_world.ids[i], NULL);
    sw_mem_close(mem, NULL, NULL);
    if (rc)
        return rc;
    sw_life_until(life, &op.done);
    return op.outcome.err.code;
}

void sw_life_spill_all(struct sw_life *life, struct sw_owner *owner) {
    for (unsigned i = 0; i < SW_WORLD_REGIONS; i++) {
        sw_world_fill(sw_world.memory.data, i);
        ck_assert_int_eq(sw_life_run(life, owner, i, false, false), 0);
    }
}

void sw_life_restore_and_compare(struct sw_life *life, struct sw_owner *owner, unsigned i, bool keep) {
    uint8_t *expected = sw_alloc(SW_WORLD_REGION_BYTES);
    memset(sw_world.memory.data, 0, SW_WORLD_REGION_BYTES);
    sw_world_fill(expected, i);
    ck_assert_int_eq(sw_life_run(life, owner, i, true, keep), 0);
    ck_assert_mem_eq(sw_world.memory.data, expected, SW_WORLD_REGION_BYTES);
    sw_free(expected);
}

void sw_life_restore_all(struct sw_life *life, struct sw_owner *owner, bool keep) {
    for (unsigned i = 0; i < SW_WORLD_REGIONS; i++)
        sw_life_restore_and_compare(life, owner, i, keep);
}

void sw_life_move_to_the_disk(struct sw_life *life) {
    do {
        ck_assert_int_eq(sw_engine_make_room(life->engine, UINT64_MAX, NULL), 0);
        if (life->engine->balance.n_moves)
            (void)uv_run(&life->loop, UV_RUN_ONCE);
    } while (life->engine->balance.n_moves);
}

/* ---- tenants ---- */

struct visit {
    struct sw_life *life;
    unsigned n_tenant_owners; /* found */
};

/* As the service does: a tenant owner for each uid, found or made. */
static int on_found(struct sw_owner *owner, uint32_t uid, bool is_tenant_owner, void *arg, struct sw_err *err) {
    struct visit *visit = arg;
    struct sw_life *life = visit->life;
    const uint32_t i = uid - 1000;
    (void)err;
    sw_owner_set_quota(owner, &life->quotas[i]);
    visit->n_tenant_owners += is_tenant_owner;
    if (is_tenant_owner)
        life->tenant_owners[i] = owner;
    if (!life->tenant_owners[i]) {
        ck_assert_int_eq(sw_owner_open(life->engine, &life->tenant_owners[i], NULL), 0);
        sw_owner_set_quota(life->tenant_owners[i], &life->quotas[i]);
        sw_owner_become_tenant_owner(life->tenant_owners[i], uid);
    }
    if (!is_tenant_owner)
        sw_owner_set_tenant_owner(owner, life->tenant_owners[i]);
    return 0;
}

unsigned sw_life_next(struct sw_life *ret, uint64_t nvme_bytes) {
    struct visit visit = {.life = ret};
    sw_life_open(ret, nvme_bytes);
    ck_assert_int_eq(sw_engine_recover(ret->engine, &ret->found, NULL), 0);
    ck_assert_int_eq(sw_owners_visit_found(ret->engine, on_found, &visit, NULL), 0);
    return visit.n_tenant_owners;
}

struct sw_owner *sw_life_named_owner(struct sw_life *life, uint32_t uid, const uint8_t token[SW_TOKEN_BYTES]) {
    struct visit visit = {.life = life};
    struct sw_owner *owner = NULL;
    ck_assert_int_eq(sw_owner_open(life->engine, &owner, NULL), 0);
    ck_assert_int_eq(on_found(owner, uid, false, &visit, NULL), 0);
    ck_assert_int_eq(sw_owner_name(owner, uid, &(struct sw_process){.pid = 0}, token, NULL), 0);
    return owner;
}

void sw_life_end(struct sw_life *life, struct sw_owner *session) {
    sw_life_close_owner(life, session, true);
    (void)sw_owners_close_unclaimed(life->engine, NULL, true, NULL);
    for (unsigned i = 0; i < SW_LIFE_TENANTS; i++)
        sw_life_close_owner(life, life->tenant_owners[i], true);
    sw_life_close(life, NULL, true);
}
