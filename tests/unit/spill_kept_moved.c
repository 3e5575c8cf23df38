/* Durable regions that go from the disk to an object store, and back. */
#include "spill/build.h"
#include "spill/operator.h"
#include "tests/lib/kept_regions.h"
#include "tests/lib/lives.h"
#include "tests/lib/object_store.h"
#include "tests/lib/run.h"

#include <check.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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

/* Its move is the tenant's from then on, and goes on. */
START_TEST(a_session_ends_while_its_region_moves) {
    begin_life();
    spill_host("a", 0);
    sw_object_store_tell(&store, "latency 300");
    ck_assert_int_eq(sw_engine_drain(life.engine, "remote", NULL), 0);
    sw_life_close_owner(&life, session, false);
    ck_assert_uint_eq(life.engine->balance.n_moves, 1);
    sw_object_store_tell(&store, "latency 0");
    session = sw_life_named_owner(&life, UID, sw_life_token);
    settle();
    wanted = SW_DURABILITY_REMOTE;
    ck_there("a", 0);
    drop(0);
    end_life();
}
END_TEST

/* The record is refused when all frames are there. _i 1: nobody knows whether it is. */
START_TEST(a_region_stays_on_the_disk_if_the_store_does_not_keep_it) {
    const size_t n_frames = SW_WORLD_REGION_BYTES / 65536 + 1;
    remote.store.patience_us = 300000;
    begin_life();
    spill_host("a", 0);
    const uint64_t disk_bytes = used_bytes(life.nvme);
    sw_object_store_tell(&store, "fault put none %zu", n_frames);
    sw_object_store_tell(&store, _i ? "fault put 500 1000" : "fault put 403 1");
    ck_assert_int_eq(drain().code, _i ? -SW_EIO : -SW_EACCES);
    ck_assert_uint_eq(used_bytes(life.nvme), disk_bytes);
    ck_assert_uint_eq(used_bytes(life.last), 0);
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

/* The store has the region, but the catalogue has no place for a new record. _i: what comes next. */
START_TEST(a_move_that_cannot_be_recorded_is_undone) {
    enum { RESTART, MOVE_AGAIN, DROP };
    struct sw_engine_drain state;
    begin_life();
    spill_host("a", 0);
    sw_object_store_tell(&store, "latency 50"); /* so that the catalogue is full before the store answers */
    ck_assert_int_eq(sw_engine_drain(life.engine, "remote", NULL), 0);
    while (!life.engine->keeper.n_changes) {
        ck_assert_int_eq(sw_engine_drop(session, sw_world.ids[0], NULL), -SW_EBUSY);
        ck_assert_int_eq(sw_engine_advise(session, sw_world.ids[0], SW_ADVISE_PREFETCH, 0, NULL), -SW_EBUSY);
        ck_assert_int_eq(sw_engine_advise(session, sw_world.ids[0], SW_ADVISE_DEMOTE, 0, NULL), -SW_EBUSY);
        (void)uv_run(&life.loop, UV_RUN_ONCE);
    }
    (void)fill_catalogue(true);
    sw_object_store_tell(&store, "latency 0");
    settle();
    sw_engine_drain_state(life.engine, &state);
    ck_assert_int_eq(state.err.code, -SW_ELIMIT);
    sw_object_store_await(&store, 0);
    ck_there("a", 0);
    (void)fill_catalogue(false);
    if (_i == MOVE_AGAIN) { /* the next attempt succeeds, with the disk's record in the place that it had */
        ck_assert_int_eq(drain().code, 0);
        ck_assert_uint_eq(used_bytes(life.nvme), 0);
        wanted = SW_DURABILITY_REMOTE;
        ck_there("a", 0);
    }
    if (_i == DROP)
        drop(0);
    end_life();
    reboot();
    begin_life();
    ck_assert_uint_eq(life.found.n_lost, 0);
    if (_i == DROP) { /* its record was the disk's again */
        ck_assert(!is_there("a"));
        ck_assert_uint_eq(used_bytes(life.nvme), 0);
        end_life();
        return;
    }
    ck_there("a", 0);
    drop(0);
    end_life();
    sw_object_store_await(&store, 0);
}
END_TEST

/* A disk that is too full sends other regions on. */
START_TEST(they_stay_on_a_full_disk) {
    sw_world.high_pct = sw_world.low_pct = 1;
    begin_life();
    spill_host("a", 0);
    spill_host("b", 1);
    const uint64_t bytes = used_bytes(life.nvme);
    ck_assert_uint_gt(bytes, DISK_BYTES / 100);
    sw_balance_look(&life.engine->balance);
    ck_assert_uint_eq(life.engine->balance.n_moves, 0);
    settle();
    ck_assert_uint_eq(used_bytes(life.nvme), bytes);
    ck_assert_uint_eq(used_bytes(life.last), 0);
    end_life();
}
END_TEST

START_TEST(regions_are_drained_only_to_tiers_behind_others) {
    struct sw_engine_drain state;
    begin_life();
    ck_assert_int_eq(sw_engine_drain(life.engine, life.host->kind->name, &error), -SW_ENOTSUP);
    ck_assert_int_eq(sw_engine_drain(life.engine, "tape", &error), -SW_ENOTSUP);
    ck_assert_int_eq(sw_engine_drain(life.engine, "nvme", NULL), 0);
    sw_engine_drain_state(life.engine, &state);
    ck_assert_ptr_eq(state.to, life.nvme);
    ck_assert_int_eq(sw_engine_drain(life.engine, NULL, NULL), 0);
    sw_engine_drain_state(life.engine, &state);
    ck_assert_ptr_null(state.to);
    end_life();
}
END_TEST

/* The session's end, or the next session's find, is not recorded. */
START_TEST(a_region_that_cannot_be_recorded_changes_no_owner) {
    struct sw_region_id id;
    begin_life();
    spill_host("a", 0);
    sw_life_close_owner(&life, session, false);
    session = sw_life_named_owner(&life, UID, sw_life_token);
    (void)fill_catalogue(true);
    ck_assert_int_eq(sw_engine_adopt(session, "a", &id, &error), -SW_ELIMIT);
    ck_assert_int_eq(sw_engine_drop(session, sw_world.ids[0], NULL), -SW_ENOENT);
    ck_assert_int_eq(sw_engine_adopt(session, "a", &id, &error), -SW_ELIMIT);
    (void)fill_catalogue(false);
    ck_there("a", 0);
    sw_life_close_owner(&life, session, false);
    session = sw_life_named_owner(&life, UID, sw_life_token);
    ck_there("a", 0);
    end_life();
}
END_TEST

static void damage_frame(size_t chunk) {
    char path[600];
    uint8_t byte;
    const struct sw_frames *frames = life.engine->store.regions.regions[sw_world.ids[0].slot].frames;
    const off_t at = (off_t)frames->stored[chunk].extents[0].offset + 70;
    (void)snprintf(path, sizeof path, "%s/data-0000", sw_world.folder.path);
    const int fd = open(path, O_RDWR | O_CLOEXEC);
    ck_assert_int_eq(pread(fd, &byte, 1, at), 1);
    byte ^= 4;
    ck_assert_int_eq(pwrite(fd, &byte, 1, at), 1);
    ck_assert_int_eq(fsync(fd) + close(fd), 0);
}

/* The frames before it make way again, and what the store has of them goes. _i: the damaged frame. */
START_TEST(a_damaged_frame_is_not_moved) {
    const unsigned n_frames = SW_WORLD_REGION_BYTES / 65536 + 1;
    struct sw_region_info info;
    begin_life();
    spill_host("a", 0);
    const uint64_t bytes = used_bytes(life.nvme);
    damage_frame(_i ? n_frames - 1 : 1);
    ck_assert_int_eq(drain().code, -SW_ECHECKSUM);
    ck_assert_uint_eq(used_bytes(life.nvme), bytes);
    ck_assert_uint_eq(used_bytes(life.last), 0);
    sw_object_store_await(&store, 0);
    ck_assert_int_eq(sw_engine_query(session, sw_world.ids[0], &info, NULL), 0);
    ck_assert_int_eq(info.durability, SW_DURABILITY_HOST);
    drop(0);
    ck_assert_uint_eq(used_bytes(life.nvme), 0);
    end_life();
}
END_TEST

/* Spills a durable region, copies the disk's folder, and moves the region to the store. */
static void drain_beside_a_copy(void) {
    char command[600];
    begin_life();
    spill_host("a", 0);
    end_life();
    (void)snprintf(command, sizeof command, "cp -a %s %s/disk", sw_world.folder.path, copy.path);
    run(command);
    begin_life();
    ck_assert_int_eq(drain().code, 0);
}

/* The state of a process that was killed when both tiers had the record. _i 0: both have the frames. 1: the catalogue
 * is there, too. 2: the store has lost its frames. 3: the disk is a new one. 4: the disk has lost its frames. */
START_TEST(of_two_records_a_whole_one_counts) {
    char command[600];
    drain_beside_a_copy();
    end_life();
    (void)snprintf(command, sizeof command, "rm -rf %s/* && cp -a %s/disk/. %s", sw_world.folder.path, copy.path,
                   sw_world.folder.path);
    if (_i == 3)
        command[strcspn(command, "&")] = 0;
    run(command);
    if (_i == 2)
        remove_frames();
    if (_i == 4) {
        (void)snprintf(command, sizeof command, "rm %s/manifest", sw_world.folder.path);
        run(command);
    }
    if (_i != 1)
        reboot();
    for (unsigned n = 0; n < 2; n++) {
        begin_life();
        ck_assert_uint_eq(life.found.n_lost, 0);
        wanted = _i == 1 || _i > 2 ? SW_DURABILITY_REMOTE : SW_DURABILITY_HOST;
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

/* Killed when both tiers had the record, and the region had been dropped. */
START_TEST(two_records_of_a_dropped_region_are_forgotten) {
    const struct sw_catalogue_hints in = {.is_in = true};
    char command[600];
    drain_beside_a_copy();
    sw_catalogue_hint(life.catalogue, life.engine->store.regions.regions[sw_world.ids[0].slot].record, &in);
    end_life();
    (void)snprintf(command, sizeof command, "rm -rf %s/* && cp -a %s/disk/. %s", sw_world.folder.path, copy.path,
                   sw_world.folder.path);
    run(command);
    for (unsigned n = 0; n < 2; n++) {
        begin_life();
        settle();
        ck_assert(!is_there("a"));
        ck_assert_uint_eq(used_bytes(life.nvme) + used_bytes(life.last), 0);
        end_life();
        reboot();
    }
    sw_object_store_await(&store, 0);
}
END_TEST

/* ---- builds ---- */

static void build_ended(const struct sw_outcome *outcome, void *arg) {
    struct sw_test_op *op = arg;
    op->outcome = *outcome;
    op->done = true;
}

/* A batch is kept by one tier, as a whole, or not at all. */
START_TEST(a_batch_has_one_durability) {
    static const char *const names[] = {"a", "b"};
    struct sw_build *builds[2];
    struct sw_build_end ends[2];
    struct sw_test_op ops[2] = {0};
    struct sw_mem_desc desc = sw_memory_desc(&sw_world.memory);
    struct sw_mem *mem;
    begin_life();
    sw_world_fill(sw_world.memory.data, 5);
    ck_assert_int_eq(sw_mem_open(session, &desc, false, &mem, NULL), 0);
    for (unsigned i = 0; i < 2; i++) {
        const struct sw_build_buffer_config buffer = {.raw_bytes = SW_WORLD_REGION_BYTES, .chunk_bytes = 64 << 10};
        const struct sw_build_config config = {.buffers = &buffer,
                                               .n_buffers = 1,
                                               .name = names[i],
                                               .durability = i ? SW_DURABILITY_REMOTE : SW_DURABILITY_HOST};
        const struct sw_range range = {.mem = mem, .bytes = SW_WORLD_REGION_BYTES};
        struct sw_test_op op = {0};
        ck_assert_int_eq(sw_build_begin(session, &config, &builds[i], NULL), 0);
        ck_assert_int_eq(sw_build_append(builds[i], &range, 1, sw_test_op_done, &op, NULL), 0);
        sw_life_until(&life, &op.done);
        ck_assert_int_eq(op.outcome.err.code, 0);
        ends[i] = (struct sw_build_end){.build = builds[i], .index = i, .arg = &ops[i]};
    }
    ck_assert_int_eq(sw_build_commit_batch(ends, 2, 7, build_ended, NULL), 0);
    for (unsigned i = 0; i < 2; i++) {
        sw_life_until(&life, &ops[i].done);
        ck_assert_int_eq(ops[i].outcome.err.code, -SW_EINVAL);
    }
    sw_mem_close(mem, NULL, NULL);
    settle();
    ck_assert_uint_eq(used_bytes(life.host) + used_bytes(life.nvme) + used_bytes(life.last), 0);
    for (unsigned n = 0; n < 2; n++) {
        ck_assert(!is_there("a") && !is_there("b"));
        end_life();
        reboot();
        begin_life();
    }
    end_life();
    sw_object_store_await(&store, 0);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("kept regions that move");
    TCase *tcase = tcase_create("moved");
    tcase_add_checked_fixture(tcase, setup_store, teardown_store);
    if (sw_object_store_is_possible()) {
        tcase_add_loop_test(tcase, a_drain_takes_regions_of_the_disk_along, 0, 2);
        tcase_add_test(tcase, a_session_ends_while_its_region_moves);
        tcase_add_loop_test(tcase, a_region_stays_on_the_disk_if_the_store_does_not_keep_it, 0, 2);
        tcase_add_loop_test(tcase, a_move_that_cannot_be_recorded_is_undone, 0, 3);
        tcase_add_test(tcase, they_stay_on_a_full_disk);
        tcase_add_test(tcase, regions_are_drained_only_to_tiers_behind_others);
        tcase_add_test(tcase, a_region_that_cannot_be_recorded_changes_no_owner);
        tcase_add_loop_test(tcase, a_damaged_frame_is_not_moved, 0, 2);
        tcase_add_loop_test(tcase, of_two_records_a_whole_one_counts, 0, 5);
        tcase_add_test(tcase, a_batch_has_one_durability);
        tcase_add_test(tcase, two_records_of_a_dropped_region_are_forgotten);
    }
    suite_add_tcase(suite, tcase);
    return sw_test_run(suite, CK_FORK);
}
