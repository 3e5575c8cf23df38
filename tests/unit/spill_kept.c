/* Regions that the disk keeps: they come back without the catalogue and without host memory, as after a reboot. */
#include "base/alloc.h"
#include "spill/build.h"
#include "spill/engine_state.h"
#include "spill/operator.h"
#include "spill/tier/nvme/ledger.h"
#include "tests/lib/content.h"
#include "tests/lib/lives.h"
#include "tests/lib/object_store.h"
#include "tests/lib/run.h"
#include "tests/lib/transfer.h"

#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { DISK_BYTES = 16 << 20, UID = 1000 };

static struct sw_life life;
static struct sw_owner *session;

static void begin_life(void) {
    (void)sw_life_next(&life, DISK_BYTES);
    session = sw_owner_claim(life.engine, UID, sw_life_token);
    if (!session)
        session = sw_life_named_owner(&life, UID, sw_life_token);
}

static void end_life(void) {
    sw_engine_check(life.engine);
    sw_life_end(&life, session);
}

/* Neither the manager's memory nor the session is there any more. */
static void reboot(void) {
    (void)close(sw_world.catalogue);
    sw_world.catalogue = -1;
    for (unsigned i = 0; i < sw_world.n_slabs; i++)
        (void)close(sw_world.slabs[i].fd);
    sw_world.n_slabs = 0;
}

static struct sw_err error;

static int spill_as(const char *name, enum sw_durability durability, unsigned i, struct sw_test_op *op) {
    struct sw_mem_desc desc = sw_memory_desc(&sw_world.memory);
    struct sw_mem *mem;
    sw_world_fill(sw_world.memory.data, i);
    ck_assert_int_eq(sw_mem_open(session, &desc, true, &mem, NULL), 0);
    const struct sw_range range = {.mem = mem, .bytes = SW_WORLD_REGION_BYTES};
    *op = (struct sw_test_op){0};
    memset(&error, 0, sizeof error);
    const int rc = sw_engine_spill(session, SW_TRANSFER(&range, 1, .name = name, .durability = durability),
                                   sw_test_op_done, op, &op->id, &error);
    sw_mem_close(mem, NULL, NULL);
    if (rc)
        return rc;
    sw_life_until(&life, &op->done);
    return op->outcome.err.code;
}

static enum sw_durability wanted = SW_DURABILITY_HOST; /* of regions that are looked for */

static void spill_host(const char *name, unsigned i) {
    struct sw_test_op op;
    ck_assert_int_eq(spill_as(name, SW_DURABILITY_HOST, i, &op), 0);
    ck_assert_int_eq(op.outcome.durability, SW_DURABILITY_HOST);
    ck_assert_str_eq(op.outcome.tier, "nvme");
    sw_world.ids[i] = op.id;
}

/* Finds the region by its name, and compares its bytes. */
static void ck_there(const char *name, unsigned i) {
    struct sw_region_info info;
    ck_assert_int_eq(sw_engine_adopt(session, name, &sw_world.ids[i], NULL), 0);
    ck_assert_int_eq(sw_engine_query(session, sw_world.ids[i], &info, NULL), 0);
    ck_assert_int_eq(info.durability, wanted);
    struct sw_mem_desc desc = sw_memory_desc(&sw_world.memory);
    struct sw_mem *mem;
    struct sw_test_op op = {0};
    uint8_t *expected = sw_alloc(SW_WORLD_REGION_BYTES);
    memset(sw_world.memory.data, 0, SW_WORLD_REGION_BYTES);
    sw_world_fill(expected, i);
    ck_assert_int_eq(sw_mem_open(session, &desc, true, &mem, NULL), 0);
    const struct sw_range range = {.mem = mem, .bytes = SW_WORLD_REGION_BYTES};
    ck_assert_int_eq(sw_engine_restore(session, sw_world.ids[i], SW_TRANSFER(&range, 1), sw_test_op_done, &op, NULL),
                     0);
    sw_mem_close(mem, NULL, NULL);
    sw_life_until(&life, &op.done);
    ck_assert_int_eq(op.outcome.err.code, 0);
    ck_assert_mem_eq(sw_world.memory.data, expected, SW_WORLD_REGION_BYTES);
    sw_free(expected);
}

static bool is_there(const char *name) {
    struct sw_region_id id;
    return sw_engine_adopt(session, name, &id, NULL) == 0;
}

static void drop(unsigned i) {
    ck_assert_int_eq(sw_engine_drop(session, sw_world.ids[i], NULL), 0);
    while (life.engine->keeper.n_changes)
        (void)uv_run(&life.loop, UV_RUN_ONCE);
    sw_engine_check(life.engine);
}

/* _i 1: the manager's memory is there, as after a restart of the service. */
START_TEST(regions_outlive_the_catalogue) {
    struct sw_test_op op;
    begin_life();
    spill_host("a", 0);
    spill_host("b", 1);
    ck_assert_int_eq(spill_as("c", SW_DURABILITY_SERVICE, 2, &op), 0);
    ck_assert_int_eq(op.outcome.durability, SW_DURABILITY_SERVICE);
    end_life();
    for (unsigned n = 0; n < 3; n++) {
        if (!_i)
            reboot();
        begin_life();
        ck_assert_uint_eq(life.found.n_lost, 0);
        ck_assert_uint_eq(life.quotas[0].n_regions, _i ? 3 : 2);
        ck_assert_uint_ge(atomic_load(&life.quotas[0].bytes), 2 * SW_WORLD_REGION_BYTES / 10);
        ck_there("a", 0);
        ck_there("b", 1);
        ck_assert_int_eq(is_there("c"), _i);
        end_life();
    }
    begin_life();
    ck_there("b", 1);
    drop(1);
    spill_host("b", 3); /* the name is free */
    end_life();
    reboot();
    begin_life();
    ck_there("a", 0);
    ck_there("b", 3);
    end_life();
}
END_TEST

/* A session that is resumed has the region under the id that it knows. */
START_TEST(a_restart_keeps_the_id) {
    begin_life();
    spill_host("a", 0);
    const struct sw_region_id id = sw_world.ids[0];
    end_life();
    (void)sw_life_next(&life, DISK_BYTES);
    session = sw_owner_claim(life.engine, UID, sw_life_token);
    ck_assert_ptr_nonnull(session);
    struct sw_region_info info;
    ck_assert_int_eq(sw_engine_query(session, id, &info, NULL), 0);
    ck_assert_int_eq(info.durability, SW_DURABILITY_HOST);
    ck_there("a", 0);
    ck_assert_uint_eq(sw_world.ids[0].slot, id.slot);
    ck_assert_uint_eq(sw_world.ids[0].gen, id.gen);
    end_life();
}
END_TEST

START_TEST(other_users_do_not_find_them) {
    begin_life();
    spill_host("a", 0);
    end_life();
    reboot();
    ck_assert_uint_eq(sw_life_next(&life, DISK_BYTES), 1);
    session = sw_life_named_owner(&life, UID + 1, sw_life_token);
    ck_assert(!is_there("a"));
    ck_assert_uint_eq(life.quotas[1].n_regions, 0);
    ck_assert_uint_eq(life.quotas[0].n_regions, 1);
    end_life();
}
END_TEST

START_TEST(what_cannot_be_kept_is_refused) {
    struct sw_test_op op;
    begin_life();
    ck_assert_int_eq(spill_as(NULL, SW_DURABILITY_HOST, 0, &op), -SW_EINVAL);
    ck_assert_int_eq(spill_as("a", SW_DURABILITY_NR, 0, &op), -SW_EINVAL);
    ck_assert_int_eq(spill_as("a", SW_DURABILITY_REMOTE, 0, &op), -SW_EDURABILITY);
    ck_assert_str_eq(error.msg, "no tier keeps regions with durability remote: set remote_tier_endpoint");
    end_life();
    reboot();
    (void)sw_life_next(&life, 0);
    session = sw_life_named_owner(&life, UID, sw_life_token);
    ck_assert_int_eq(spill_as("a", SW_DURABILITY_HOST, 0, &op), -SW_EDURABILITY);
    ck_assert_ptr_nonnull(strstr(error.msg, "nvme_tier_directory"));
    end_life();
}
END_TEST

/* Advice and a host tier that is too full move other regions. */
START_TEST(they_stay_on_the_disk) {
    begin_life();
    spill_host("a", 0);
    const struct sw_owner *owner = session;
    ck_assert_int_eq(sw_engine_advise(session, sw_world.ids[0], SW_ADVISE_PREFETCH, 0, NULL), 0);
    ck_assert_uint_eq(owner->n_moves, 0);
    ck_assert_int_eq(sw_engine_make_room(life.engine, UINT64_MAX, NULL), 0);
    ck_assert_uint_eq(owner->n_moves, 0);
    end_life();
    reboot();
    begin_life();
    ck_there("a", 0);
    end_life();
}
END_TEST

/* ---- builds ---- */

struct ended {
    unsigned n, n_good;
};

static void build_ended(const struct sw_outcome *outcome, void *arg) {
    struct ended *ended = arg;
    ended->n++;
    ended->n_good += outcome->err.code == 0 && outcome->durability == SW_DURABILITY_HOST;
}

static const char *const names[] = {"x", "y", "z"};
enum { N_BUILDS = 3 };

/* Leaves builds with all their bytes, not committed. */
static void build(struct sw_build *builds[N_BUILDS], struct sw_mem **ret_mem) {
    struct sw_mem_desc desc = sw_memory_desc(&sw_world.memory);
    sw_world_fill(sw_world.memory.data, 5);
    ck_assert_int_eq(sw_mem_open(session, &desc, false, ret_mem, NULL), 0);
    for (unsigned i = 0; i < N_BUILDS; i++) {
        const struct sw_build_buffer_config buffer = {.raw_bytes = SW_WORLD_REGION_BYTES, .chunk_bytes = 64 << 10};
        const struct sw_build_config config = {
            .buffers = &buffer, .n_buffers = 1, .name = names[i], .durability = SW_DURABILITY_HOST};
        const struct sw_range range = {.mem = *ret_mem, .bytes = SW_WORLD_REGION_BYTES};
        struct sw_test_op op = {0};
        ck_assert_int_eq(sw_build_begin(session, &config, &builds[i], NULL), 0);
        ck_assert_int_eq(sw_build_append(builds[i], &range, 1, sw_test_op_done, &op, NULL), 0);
        sw_life_until(&life, &op.done);
        ck_assert_int_eq(op.outcome.err.code, 0);
    }
}

/* _i 0: all wait for the end. 1: the session closes while the disk is asked. */
START_TEST(a_batch_of_builds_is_kept_as_a_whole) {
    struct sw_build *builds[N_BUILDS];
    struct sw_build_end ends[N_BUILDS];
    struct ended ended = {0};
    struct sw_mem *mem;
    begin_life();
    build(builds, &mem);
    for (unsigned i = 0; i < N_BUILDS; i++)
        ends[i] = (struct sw_build_end){.build = builds[i], .index = i, .arg = &ended};
    ck_assert_int_eq(sw_build_commit_batch(ends, N_BUILDS, 7, build_ended, NULL), 0);
    ck_assert_uint_eq(life.engine->keeper.n_changes, 1);
    ck_assert_uint_eq(ended.n, 0);
    sw_engine_check(life.engine);
    if (_i) {
        sw_life_close_owner(&life, session, false);
        session = NULL;
    }
    while (ended.n < N_BUILDS)
        (void)uv_run(&life.loop, UV_RUN_ONCE);
    ck_assert_uint_eq(ended.n_good, N_BUILDS);
    if (!_i)
        sw_mem_close(mem, NULL, NULL);
    end_life();
    reboot();
    begin_life();
    for (unsigned i = 0; i < N_BUILDS; i++)
        ck_there(names[i], 5);
    end_life();
}
END_TEST

/* ---- a process that is killed between two steps ---- */

/* _i 0: the tier has kept the region, and the catalogue does not know it. 1: the catalogue knows that it was dropped,
 * and the tier has not forgotten it. */
START_TEST(what_was_begun_is_ended) {
    begin_life();
    spill_host("a", 0);
    const struct sw_catalogue_hints in = {.is_in = true};
    struct sw_region *region = &life.engine->store.regions.regions[sw_world.ids[0].slot];
    if (_i)
        sw_catalogue_hint(life.catalogue, region->record, &in);
    else
        sw_catalogue_free(life.catalogue, &region->record);
    end_life();
    begin_life();
    while (life.engine->keeper.n_changes)
        (void)uv_run(&life.loop, UV_RUN_ONCE);
    if (!_i)
        ck_there("a", 0);
    ck_assert_int_eq(is_there("a"), !_i);
    end_life();
    reboot();
    begin_life();
    ck_assert_int_eq(is_there("a"), !_i);
    sw_engine_check(life.engine);
    end_life();
}
END_TEST

/* ---- the file ---- */

static int ledger(int flags) {
    char path[600];
    (void)snprintf(path, sizeof path, "%s/" SW_LEDGER_FILE, sw_world.folder.path);
    return open(path, flags | O_CLOEXEC);
}

/* A damaged record costs its region, and no other. A damaged header prevents the start, and changes nothing. */
START_TEST(damage_costs_what_it_hits) {
    const char noise = 0x55;
    begin_life();
    spill_host("a", 0);
    spill_host("b", 1);
    end_life();
    reboot();
    int fd = ledger(O_RDWR);
    ck_assert_int_eq(pwrite(fd, &noise, 1, _i ? 9 : 64 + 50), 1);
    (void)close(fd);
    if (_i) {
        struct sw_tier *tier = NULL;
        const struct sw_tier_nvme_config config = {.directory = sw_world.folder.path,
                                                   .capacity_bytes = DISK_BYTES,
                                                   .file_bytes = DISK_BYTES,
                                                   .queue_depth = 16,
                                                   .unwanted = true};
        ck_assert_int_eq(sw_tier_nvme_open(&tier, &config, &error), -SW_ECHECKSUM);
        fd = ledger(O_RDONLY);
        ck_assert_int_ge(fd, 0);
        (void)close(fd);
        return;
    }
    begin_life();
    struct sw_tier_nvme_info info;
    sw_tier_nvme_info(life.nvme, &info);
    ck_assert_uint_eq(info.damaged_names, 1);
    ck_assert(!is_there("a"));
    ck_there("b", 1);
    spill_host("a", 2); /* rewrites the file */
    end_life();
    reboot();
    begin_life();
    sw_tier_nvme_info(life.nvme, &info);
    ck_assert_uint_eq(info.damaged_names, 0);
    ck_there("a", 2);
    ck_there("b", 1);
    end_life();
}
END_TEST

static int no_sync(int fd, bool is_directory) {
    (void)fd;
    (void)is_directory;
    return 0;
}

/* Hundreds of changes keep the file short. Under a sanitizer they would take a minute, so fewer are made there. */
START_TEST(the_file_does_not_grow) {
    static const struct sw_nvme_file_ops files = {.sync = no_sync};
    sw_world.files = &files;
    begin_life();
    spill_host("stays", 0);
    for (unsigned n = 0; n < 300 / SW_TEST_EVERY; n++) {
        spill_host("a", 1);
        drop(1);
    }
    const int fd = ledger(O_RDONLY);
    ck_assert_int_lt(lseek(fd, 0, SEEK_END), 96 << 10);
    (void)close(fd);
    end_life();
    reboot();
    begin_life();
    ck_there("stays", 0);
    ck_assert(!is_there("a"));
    end_life();
}
END_TEST

static atomic_int syncs_left; /* the call at 1 fails */

static int failing_sync(int fd, bool is_directory) {
    (void)fd;
    (void)is_directory;
    if (atomic_fetch_sub(&syncs_left, 1) != 1)
        return 0;
    errno = EIO;
    return -1;
}

/* Each flush in turn. Nothing is reported durable, and the next spill is. */
START_TEST(a_flush_that_fails_fails_the_spill) {
    static const struct sw_nvme_file_ops files = {.sync = failing_sync};
    struct sw_test_op op;
    sw_world.files = &files;
    atomic_store(&syncs_left, 0);
    begin_life();
    if (_i % 2)
        spill_host("before", 3);
    atomic_store(&syncs_left, 1 + _i / 2);
    const int rc = spill_as("a", SW_DURABILITY_HOST, 0, &op);
    const bool was_reached = atomic_load(&syncs_left) <= 0;
    ck_assert_int_eq(rc, was_reached ? -SW_EIO : 0);
    sw_engine_check(life.engine);
    ck_assert_int_eq(is_there("a"), !was_reached);
    if (!was_reached)
        ck_there("a", 0);
    else
        spill_host("a", 1);
    end_life();
    reboot();
    begin_life();
    ck_there("a", was_reached);
    if (_i % 2)
        ck_there("before", 3);
    end_life();
}
END_TEST

/* A region that cannot be forgotten comes back, whole. */
START_TEST(a_drop_that_is_not_recorded_is_undone_by_the_next_start) {
    static const struct sw_nvme_file_ops files = {.sync = failing_sync};
    sw_world.files = &files;
    atomic_store(&syncs_left, 0);
    begin_life();
    spill_host("a", 0);
    atomic_store(&syncs_left, 1);
    ck_assert_int_eq(sw_engine_drop(session, sw_world.ids[0], NULL), 0);
    while (life.engine->keeper.n_changes)
        (void)uv_run(&life.loop, UV_RUN_ONCE);
    ck_assert(!is_there("a"));
    sw_life_end(&life, session);
    reboot();
    begin_life();
    ck_there("a", 0);
    end_life();
}
END_TEST

/* The kept memory is of another service than the disk. */
START_TEST(two_services_do_not_mix) {
    begin_life();
    spill_host("a", 0);
    end_life();
    reboot();
    (void)sw_life_next(&life, 0); /* without the disk: a catalogue of its own */
    session = sw_life_named_owner(&life, UID, sw_life_token);
    end_life();
    struct sw_catalogue *catalogue = NULL;
    struct sw_tier *host = NULL, *nvme = NULL;
    struct sw_device *device = NULL;
    struct sw_engine *engine = NULL;
    uv_loop_t loop;
    const struct sw_device_config device_config = {.scratch_bytes = 64 << 20, .n_slots = 2, .chunk_bytes = 64 << 10};
    const struct sw_tier_nvme_config config = {
        .directory = sw_world.folder.path, .capacity_bytes = DISK_BYTES, .file_bytes = DISK_BYTES, .queue_depth = 16};
    ck_assert_int_eq(uv_loop_init(&loop), 0);
    ck_assert_int_eq(sw_device_host_open(&device, &device_config, NULL), 0);
    const struct sw_tier_host_config host_config = {
        .capacity_bytes = 4 << 20, .initial_bytes = 4 << 20, .slab_bytes = 2 << 20, .devices = &device, .n_devices = 1};
    ck_assert_int_eq(sw_catalogue_open(&catalogue, fcntl(sw_world.catalogue, F_DUPFD_CLOEXEC, 0), 100, NULL), 0);
    ck_assert_int_eq(sw_tier_host_open(&host, &host_config, NULL), 0);
    nvme = sw_nvme_open(&config);
    const struct sw_engine_config engine_config = {.devices = &device,
                                                   .n_devices = 1,
                                                   .tiers = {.at = {host, nvme}, .n = 2},
                                                   .staging_bytes = 1 << 20,
                                                   .max_regions = 100,
                                                   .catalogue = catalogue};
    ck_assert_int_eq(sw_engine_open(&engine, &loop, &engine_config, &error), -SW_ECONFIG);
    ck_assert_ptr_nonnull(strstr(error.msg, "another service"));
    nvme->ops->close(nvme);
    host->ops->close(host);
    device->ops->close(device);
    sw_catalogue_close(catalogue);
    ck_assert_int_eq(uv_loop_close(&loop), 0);
    reboot();
    begin_life();
    ck_there("a", 0);
    end_life();
}
END_TEST

/* ---- from the disk to an object store ---- */

static struct sw_object_store store;
static struct sw_nvme_folder copy;
static struct sw_tier_remote_config remote;

static struct sw_tier *open_remote(void) {
    return sw_object_store_open(&remote);
}

static void setup_store(void) {
    sw_world_setup();
    store = sw_object_store_begin(false);
    copy = sw_nvme_folder_new();
    remote = sw_object_store_tier(&store, copy.path);
    sw_world.open_last = open_remote;
}

static void run(const char *command) {
    ck_assert_int_eq(system(command), 0); /* NOLINT(cert-env33-c) */
}

static void teardown_store(void) {
    char command[300];
    (void)snprintf(command, sizeof command, "rm -rf %s/disk", copy.path);
    run(command);
    sw_object_store_end(&store);
    sw_nvme_folder_free(&copy);
    sw_world_teardown();
}

static void settle(void) {
    while (life.engine->balance.n_moves || life.engine->keeper.n_changes)
        (void)uv_run(&life.loop, UV_RUN_ONCE);
    sw_engine_check(life.engine);
}

static struct sw_err drain(void) {
    struct sw_engine_drain state;
    ck_assert_int_eq(sw_engine_drain(life.engine, "remote", NULL), 0);
    settle();
    sw_engine_drain_state(life.engine, &state);
    ck_assert_int_eq(!state.to, state.err.code != 0);
    ck_assert_uint_eq(state.left_bytes, 0);
    return state.err;
}

static uint64_t used_bytes(struct sw_tier *tier) {
    return sw_tier_stats_of(tier).used_bytes;
}

/* _i 1: the manager's memory is there, as after a restart of the service. */
START_TEST(a_drain_takes_regions_of_the_disk_along) {
    begin_life();
    spill_host("a", 0);
    spill_host("b", 1);
    ck_assert_int_eq(drain().code, 0);
    ck_assert_uint_eq(used_bytes(life.nvme), 0);
    wanted = SW_DURABILITY_REMOTE;
    for (unsigned n = 0; n < 2; n++) {
        ck_there("a", 0);
        ck_there("b", 1);
        end_life();
        if (!_i)
            reboot();
        begin_life();
        ck_assert_uint_eq(life.found.n_lost, 0);
    }
    ck_there("a", 0);
    drop(0);
    ck_there("b", 1);
    drop(1);
    ck_assert_uint_eq(used_bytes(life.last), 0);
    end_life();
    sw_object_store_await(&store, 0);
    reboot();
    begin_life();
    ck_assert(!is_there("a") && !is_there("b"));
    end_life();
}
END_TEST

/* The record is refused when all frames are there. _i 1: nobody knows whether it is. */
START_TEST(a_region_stays_on_the_disk_if_the_store_does_not_keep_it) {
    const size_t n_frames = SW_WORLD_REGION_BYTES / 65536 + 1;
    remote.store.patience_us = 300000;
    begin_life();
    spill_host("a", 0);
    sw_object_store_tell(&store, "fault put none %zu", n_frames);
    sw_object_store_tell(&store, _i ? "fault put 500 1000" : "fault put 403 1");
    ck_assert_int_eq(drain().code, _i ? -SW_EIO : -SW_EACCES);
    ck_there("a", 0);
    ck_assert_int_eq(sw_engine_drop(session, sw_world.ids[0], NULL), 0);
    settle();
    spill_host("b", 1);
    end_life();
    reboot();
    sw_object_store_tell(&store, "calm");
    begin_life();
    ck_there("b", 1);
    ck_assert(!is_there("a"));
    settle();
    end_life();
    sw_object_store_await(&store, 0);
}
END_TEST

static void remove_frames(void) {
    char found[16 << 10];
    (void)sw_object_store_ask(&store, found, sizeof found, "names");
    for (char *name = strtok(found, " "); name; name = strtok(NULL, " "))
        if (strstr(name, "frames/"))
            sw_object_store_tell(&store, "remove %s", name);
}

/* As if the process had been killed when both tiers had the record. _i 0: both have the frames. 1: the catalogue is
 * there, too. 2: the store has lost its frames. 3: the disk is a new one. */
START_TEST(of_two_records_a_whole_one_counts) {
    char command[600];
    begin_life();
    spill_host("a", 0);
    end_life();
    (void)snprintf(command, sizeof command, "cp -a %s %s/disk", sw_world.folder.path, copy.path);
    run(command);
    begin_life();
    ck_assert_int_eq(drain().code, 0);
    end_life();
    (void)snprintf(command, sizeof command, "rm -rf %s/* && cp -a %s/disk/. %s", sw_world.folder.path, copy.path,
                   sw_world.folder.path);
    if (_i == 3)
        command[strcspn(command, "&")] = 0;
    run(command);
    if (_i == 2)
        remove_frames();
    if (_i != 1)
        reboot();
    for (unsigned n = 0; n < 2; n++) {
        begin_life();
        ck_assert_uint_eq(life.found.n_lost, 0);
        wanted = _i == 1 || _i == 3 ? SW_DURABILITY_REMOTE : SW_DURABILITY_HOST;
        ck_there("a", 0);
        settle();
        ck_assert(used_bytes(life.nvme) == 0 || used_bytes(life.last) == 0);
        if (n == 1)
            drop(0);
        end_life();
        reboot();
    }
    sw_object_store_await(&store, 0);
    begin_life();
    ck_assert(!is_there("a"));
    end_life();
}
END_TEST

int main(void) {
    Suite *suite = suite_create("spill_kept");
    TCase *tcase = tcase_create("kept");
    tcase_add_checked_fixture(tcase, sw_world_setup, sw_world_teardown);
    tcase_add_loop_test(tcase, regions_outlive_the_catalogue, 0, 2);
    tcase_add_test(tcase, a_restart_keeps_the_id);
    tcase_add_test(tcase, other_users_do_not_find_them);
    tcase_add_test(tcase, what_cannot_be_kept_is_refused);
    tcase_add_test(tcase, they_stay_on_the_disk);
    tcase_add_loop_test(tcase, a_batch_of_builds_is_kept_as_a_whole, 0, 2);
    tcase_add_loop_test(tcase, what_was_begun_is_ended, 0, 2);
    tcase_add_loop_test(tcase, damage_costs_what_it_hits, 0, 2);
    tcase_add_test(tcase, the_file_does_not_grow);
    tcase_add_test(tcase, two_services_do_not_mix);
    tcase_add_loop_test(tcase, a_flush_that_fails_fails_the_spill, 0, 14);
    tcase_add_test(tcase, a_drop_that_is_not_recorded_is_undone_by_the_next_start);
    suite_add_tcase(suite, tcase);
    tcase = tcase_create("moved");
    tcase_add_checked_fixture(tcase, setup_store, teardown_store);
    if (sw_object_store_is_possible()) {
        tcase_add_loop_test(tcase, a_drain_takes_regions_of_the_disk_along, 0, 2);
        tcase_add_loop_test(tcase, a_region_stays_on_the_disk_if_the_store_does_not_keep_it, 0, 2);
        tcase_add_loop_test(tcase, of_two_records_a_whole_one_counts, 0, 4);
    }
    suite_add_tcase(suite, tcase);
    return sw_test_run(suite, CK_FORK);
}
