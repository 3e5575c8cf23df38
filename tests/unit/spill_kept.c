/* Regions that the disk keeps: they come back without the catalogue and without host memory, as after a reboot. */
#include "spill/build.h"
#include "spill/engine_state.h"
#include "spill/operator.h"
#include "spill/store/names.h"
#include "tests/lib/kept_regions.h"
#include "tests/lib/lives.h"
#include "tests/lib/run.h"

#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <string.h>

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

/* From then on the catalogue knows it again, although nobody has asked for it: a start without the disk misses it. */
START_TEST(a_region_that_only_the_disk_knew_is_missed_without_it) {
    begin_life();
    spill_host("a", 0);
    end_life();
    reboot();
    begin_life();
    end_life();
    (void)sw_life_next(&life, 0);
    ck_assert_uint_eq(life.found.n_lost, 1);
    session = NULL;
    end_life();
    begin_life();
    ck_assert_uint_eq(life.found.n_lost, 0);
    ck_there("a", 0);
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

static uint64_t used_us(unsigned i) {
    return life.engine->store.regions.regions[sw_world.ids[i].slot].used_us;
}

/* The region restored last is the last to leave a full tier, also for the next process. */
START_TEST(a_restore_counts_as_a_use) {
    struct sw_test_op op;
    wanted = SW_DURABILITY_SERVICE;
    begin_life();
    for (unsigned i = 0; i < 2; i++) {
        ck_assert_int_eq(spill_as(i ? "b" : "a", SW_DURABILITY_SERVICE, i, &op), 0);
        sw_world.ids[i] = op.id;
    }
    ck_assert_uint_lt(used_us(0), used_us(1));
    ck_there("a", 0);
    ck_assert_uint_gt(used_us(0), used_us(1));
    end_life();
    begin_life();
    ck_assert_uint_gt(used_us(0), used_us(1));
    end_life();
}
END_TEST

static size_t cells_left(void) {
    const size_t n = fill_catalogue(true);
    (void)fill_catalogue(false);
    return n;
}

/* Records of restored regions stay until their client knows of the restore, or has gone. */
START_TEST(a_session_leaves_no_records) {
    const uint8_t token[SW_TOKEN_BYTES] = {9};
    begin_life();
    const size_t before = cells_left();
    struct sw_owner *owner = sw_life_named_owner(&life, UID, token);
    const size_t named = cells_left();
    ck_assert_uint_lt(named, before);
    for (unsigned i = 0; i < 2; i++) {
        ck_assert_int_eq(sw_life_run(&life, owner, i, false, false), 0);
        ck_assert_int_eq(sw_life_run(&life, owner, i, true, false), 0);
        ck_assert_uint_lt(cells_left(), named);
        if (i == 0)
            sw_owner_acknowledged(owner);
        ck_assert_int_eq(cells_left() == named, i == 0);
    }
    sw_life_close_owner(&life, owner, false);
    ck_assert_uint_eq(cells_left(), before);
    end_life();
}
END_TEST

static struct sw_region_id used[40];
static unsigned n_used;

/* name NULL: the region is not durable. */
static void spill_noted(const char *name, unsigned i) {
    struct sw_test_op op;
    ck_assert_int_eq(spill_as(name, name ? SW_DURABILITY_HOST : SW_DURABILITY_SERVICE, i, &op), 0);
    used[n_used++] = sw_world.ids[i] = op.id;
}

/* The kept region's own id has a lower generation than others that the service has used. The disk may still have frames
 * that bear one of those ids. */
START_TEST(ids_are_not_used_again_after_a_reboot) {
    sw_world.max_regions = 3;
    begin_life();
    spill_noted(NULL, 2); /* its entry is used again late */
    for (unsigned k = 0; k < 2; k++) {
        for (unsigned i = 0; i < 10; i++) {
            spill_noted("a", 1);
            drop(1);
        }
        if (k == 0) {
            drop(2);
            for (unsigned i = 0; i < 2; i++) { /* in the other entries */
                spill_noted("a", 1);
                drop(1);
            }
            spill_noted("stays", 0);
        }
        ck_there("stays", 0);
        end_life();
        reboot();
        begin_life();
    }
    end_life();
    ck_assert_uint_lt(used[13].gen, used[12].gen);
    for (unsigned i = 0; i < n_used; i++)
        for (unsigned k = 0; k < i; k++)
            ck_assert_int_ne(memcmp(&used[i], &used[k], sizeof used[i]), 0);
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

/* A region whose new owner cannot be recorded stays its tenant's, and can be adopted later. */
START_TEST(a_region_that_cannot_be_recorded_is_not_adopted) {
    struct sw_region_id id;
    begin_life();
    spill_host("a", 0);
    end_life();
    reboot();
    begin_life();
    const struct sw_region *region = sw_name_find(session->tenant_owner, "a");
    ck_assert_ptr_eq(region->owner, session->tenant_owner);
    (void)fill_catalogue(true);
    ck_assert_int_lt(sw_engine_adopt(session, "a", &id, &error), 0);
    ck_assert_ptr_eq(region->owner, session->tenant_owner);
    (void)fill_catalogue(false);
    ck_there("a", 0);
    ck_assert_ptr_eq(region->owner, session);
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

static uint32_t asked_uid;

static int note_uid(struct sw_tier *tier, uint32_t uid, struct sw_err *err) {
    (void)tier;
    asked_uid = uid;
    return sw_err_set(err, -SW_EDURABILITY, SW_SCOPE_REQUEST, "not for this tenant");
}

/* A tier is asked whether it may keep the tenant's regions, also for a session that is in no catalogue. */
START_TEST(a_tier_may_refuse_a_tenant) {
    struct sw_test_op op;
    begin_life();
    const struct sw_tier_ops *before = life.nvme->ops;
    struct sw_tier_ops ops = *before;
    ops.may_keep = note_uid;
    life.nvme->ops = &ops;
    const uint32_t uid = session->uid;
    session->uid = UINT32_MAX;
    ck_assert_int_eq(spill_as("a", SW_DURABILITY_HOST, 0, &op), -SW_EDURABILITY);
    ck_assert_str_eq(error.msg, "not for this tenant");
    ck_assert_uint_eq(asked_uid, UID);
    session->uid = uid;
    life.nvme->ops = before;
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
    for (unsigned i = 0; i < N_BUILDS; i++) /* too late: nothing ends them any more */
        sw_build_fail(builds[i], &(struct sw_err){.code = -SW_ETIMEDOUT, .msg = "nothing has come for long"});
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

static atomic_bool syncs_fail;

static int sync_or_fail(int fd, bool is_directory) {
    (void)fd;
    (void)is_directory;
    errno = EIO;
    return atomic_load(&syncs_fail) ? -1 : 0;
}

/* _i 0: the disk does not keep it. 1: the disk does, but the catalogue has no place for it. */
START_TEST(a_batch_that_is_not_kept_leaves_nothing) {
    static const struct sw_nvme_file_ops files = {.sync = sync_or_fail};
    struct sw_build *builds[N_BUILDS];
    struct sw_build_end ends[N_BUILDS];
    struct ended ended = {0};
    struct sw_mem *mem;
    sw_world.files = &files;
    begin_life();
    build(builds, &mem);
    for (unsigned i = 0; i < N_BUILDS; i++)
        ends[i] = (struct sw_build_end){.build = builds[i], .index = i, .arg = &ended};
    atomic_store(&syncs_fail, _i == 0);
    if (_i)
        (void)fill_catalogue(true);
    ck_assert_int_eq(sw_build_commit_batch(ends, N_BUILDS, 7, build_ended, NULL), 0);
    while (ended.n < N_BUILDS || life.engine->keeper.n_changes)
        (void)uv_run(&life.loop, UV_RUN_ONCE);
    ck_assert_uint_eq(ended.n_good, 0);
    atomic_store(&syncs_fail, false);
    if (_i)
        (void)fill_catalogue(false);
    sw_engine_check(life.engine);
    ck_assert_uint_eq(life.quotas[0].n_regions, 0);
    ck_assert_uint_eq(atomic_load(&life.quotas[0].bytes), 0);
    ck_assert_uint_eq(sw_tier_stats_of(life.host).used_bytes + sw_tier_stats_of(life.nvme).used_bytes, 0);
    spill_host(names[1], 1);
    sw_mem_close(mem, NULL, NULL);
    for (unsigned n = 0; n < 2; n++) {
        for (unsigned i = 0; i < N_BUILDS; i++)
            ck_assert_int_eq(is_there(names[i]), i == 1);
        ck_there(names[1], 1);
        end_life();
        reboot();
        begin_life();
    }
    end_life();
}
END_TEST

/* ---- a process that is killed between two steps ---- */

/* _i 0: the tier has kept the region, and the catalogue does not know it. 1: the catalogue knows that it was dropped,
 * and the tier has not forgotten it. */
START_TEST(what_was_begun_is_ended) {
    begin_life();
    const size_t cells = cells_left();
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
    ck_assert_int_eq(cells_left() == cells, _i); /* it leaves no record */
    end_life();
    reboot();
    begin_life();
    ck_assert_int_eq(is_there("a"), !_i);
    sw_engine_check(life.engine);
    end_life();
}
END_TEST

/* The manager's memory is another service's. */
START_TEST(regions_of_another_service_are_refused) {
    struct sw_catalogue *other = NULL;
    begin_life();
    spill_host("a", 0);
    struct sw_engine_config config = life.engine->config;
    ck_assert_int_eq(sw_catalogue_open(&other, -1, 10, NULL), 0);
    const int fd = fcntl(sw_catalogue_fd(other), F_DUPFD_CLOEXEC, 0);
    sw_catalogue_close(other);
    ck_assert_int_eq(sw_catalogue_open(&config.catalogue, fd, 10, NULL), 0);
    struct sw_engine *engine = NULL;
    ck_assert_int_eq(sw_engine_open(&engine, &life.loop, &config, &error), -SW_ECONFIG);
    sw_catalogue_close(config.catalogue);
    ck_there("a", 0);
    end_life();
}
END_TEST

static int fail_to_encode(struct sw_device *device, unsigned s, const struct sw_plan *plan,
                          const struct sw_mapping *mapping, uint64_t offset, uint64_t bytes, struct sw_err *err) {
    (void)device, (void)s, (void)plan, (void)mapping, (void)offset, (void)bytes;
    return sw_err_set(err, -SW_EGPU, SW_SCOPE_REQUEST, "it does not work");
}

/* No tier is asked to keep what has failed. */
START_TEST(a_spill_that_fails_is_not_kept) {
    struct sw_test_op op;
    begin_life();
    const struct sw_device_ops *const real = life.device->ops;
    struct sw_device_ops broken = *real;
    broken.encode = fail_to_encode;
    life.device->ops = &broken;
    ck_assert_int_eq(spill_as("a", SW_DURABILITY_HOST, 0, &op), -SW_EGPU);
    ck_assert_uint_eq(life.engine->keeper.n_changes, 0);
    life.device->ops = real;
    ck_assert(!is_there("a"));
    spill_host("a", 1); /* the name is free */
    ck_there("a", 1);
    end_life();
}
END_TEST

int main(void) {
    Suite *suite = suite_create("kept regions");
    TCase *tcase = tcase_create("kept");
    tcase_add_checked_fixture(tcase, sw_world_setup, sw_world_teardown);
    tcase_add_loop_test(tcase, regions_outlive_the_catalogue, 0, 2);
    tcase_add_test(tcase, a_region_that_only_the_disk_knew_is_missed_without_it);
    tcase_add_test(tcase, a_restart_keeps_the_id);
    tcase_add_test(tcase, a_restore_counts_as_a_use);
    tcase_add_test(tcase, a_session_leaves_no_records);
    tcase_add_test(tcase, ids_are_not_used_again_after_a_reboot);
    tcase_add_test(tcase, other_users_do_not_find_them);
    tcase_add_test(tcase, a_region_that_cannot_be_recorded_is_not_adopted);
    tcase_add_test(tcase, what_cannot_be_kept_is_refused);
    tcase_add_test(tcase, a_tier_may_refuse_a_tenant);
    tcase_add_test(tcase, they_stay_on_the_disk);
    tcase_add_loop_test(tcase, a_batch_of_builds_is_kept_as_a_whole, 0, 2);
    tcase_add_loop_test(tcase, a_batch_that_is_not_kept_leaves_nothing, 0, 2);
    tcase_add_loop_test(tcase, what_was_begun_is_ended, 0, 2);
    tcase_add_test(tcase, regions_of_another_service_are_refused);
    tcase_add_test(tcase, a_spill_that_fails_is_not_kept);
    suite_add_tcase(suite, tcase);
    return sw_test_run(suite, CK_FORK);
}
