/* A tier that the engine has never heard of, behind the others, and the remote tier in its place: regions are spilled
 * to it, restored, moved there and back, on their way between two tiers that are not memory, too, and found again by
 * the next process. */
#include "spill/engine_state.h"
#include "spill/operator.h"
#include "tests/lib/folder_tier/folder_tier.h"
#include "tests/lib/lives.h"
#include "tests/lib/object_store.h"
#include "tests/lib/run.h"

#include <check.h>
#include <string.h>

/* Without an NVMe tier, and with one before it that is soon full; the folder, then the remote tier. */
static const uint64_t disks[] = {0, 2 << 20, 0, 2 << 20};
enum { N_FOLDER = 2, N_ALL = 4 };

static struct sw_life life;
static struct sw_region_id *const ids = sw_world.ids;
static struct sw_nvme_folder folder;
static struct sw_object_store store;

static struct sw_tier *open_folder(void) {
    struct sw_tier *tier = NULL;
    ck_assert_int_eq(sw_folder_tier_open(&tier, folder.path, 64 << 20, NULL), 0);
    return tier;
}

static struct sw_tier *open_remote(void) {
    const struct sw_tier_remote_config config = sw_object_store_tier(&store, folder.path);
    return sw_object_store_open(&config);
}

static void setup(void) {
    sw_world_setup();
    folder = sw_nvme_folder_new();
    store.pid = 0;
    sw_world.open_last = open_folder;
}

/* Returns the tier of a loop test's index. */
static struct sw_tier *(*last_of(int i))(void) {
    if (i >= N_FOLDER && store.pid == 0)
        store = sw_object_store_begin(false);
    return i < N_FOLDER ? open_folder : open_remote;
}

static void teardown(void) {
    if (store.pid)
        sw_object_store_end(&store);
    sw_nvme_folder_free(&folder);
    sw_world_teardown();
}

static uint64_t used_bytes(struct sw_tier *tier) {
    return sw_tier_stats_of(tier).used_bytes;
}

static void settle(void) {
    while (life.engine->balance.n_moves)
        (void)uv_run(&life.loop, UV_RUN_ONCE);
    sw_engine_check(life.engine);
}

static void advise_all(struct sw_owner *owner, enum sw_advice advice) {
    for (unsigned i = 0; i < SW_WORLD_REGIONS; i++) {
        settle();
        ck_assert_int_eq(sw_engine_advise(owner, ids[i], advice, 0, NULL), 0);
    }
    settle();
}

START_TEST(regions_are_demoted_restored_and_promoted) {
    sw_world.open_last = last_of(_i);
    sw_world.high_pct = 100; /* nothing moves by itself */
    sw_world.host_bytes = 8 << 20;
    sw_life_open(&life, disks[_i]);
    struct sw_owner *owner = sw_life_new_owner(&life);
    sw_life_spill_all(&life, owner);
    ck_assert_uint_eq(used_bytes(life.last), 0);
    advise_all(owner, SW_ADVISE_DEMOTE);
    ck_assert_uint_eq(used_bytes(life.host), 0);
    ck_assert_uint_gt(used_bytes(life.last), 0);
    sw_life_restore_all(&life, owner, true);
    advise_all(owner, SW_ADVISE_PREFETCH);
    ck_assert_uint_eq(used_bytes(life.last), 0);
    sw_life_restore_all(&life, owner, false);
    ck_assert_uint_eq(used_bytes(life.host), 0);
    sw_life_close(&life, owner, false);
}
END_TEST

START_TEST(regions_without_room_in_host_memory_go_to_it) {
    sw_world.open_last = last_of(_i);
    sw_world.high_pct = 100;
    sw_world.host_bytes = 2 << 20;
    sw_life_open(&life, disks[_i]);
    struct sw_owner *owner = sw_life_new_owner(&life);
    sw_life_spill_all(&life, owner);
    ck_assert_uint_gt(used_bytes(life.last), 0);
    sw_engine_check(life.engine);
    sw_life_restore_all(&life, owner, false);
    ck_assert_uint_eq(used_bytes(life.last), 0);
    sw_life_close(&life, owner, false);
}
END_TEST

static void spill_and_move_all(struct sw_owner *owner) {
    for (unsigned i = 0; i < SW_WORLD_REGIONS; i++) {
        sw_world_fill(sw_world.memory.data, i);
        ck_assert_int_eq(sw_life_run(&life, owner, i, false, false), 0);
        sw_life_move_to_the_disk(&life);
        settle();
    }
}

/* Regions move from one tier to the tier behind it, through memory, as soon as the first is too full. */
START_TEST(a_tier_between_is_kept_below_its_watermarks) {
    sw_world.open_last = last_of(_i);
    sw_life_open(&life, disks[1]);
    struct sw_owner *owner = sw_life_new_owner(&life);
    spill_and_move_all(owner);
    ck_assert_uint_eq(used_bytes(life.host), 0);
    ck_assert_uint_gt(used_bytes(life.nvme), 0);
    ck_assert_uint_le(used_bytes(life.nvme), disks[1] / 100 * sw_world.high_pct);
    ck_assert_uint_gt(used_bytes(life.last), 0);
    sw_life_restore_all(&life, owner, false);
    sw_life_close(&life, owner, false);
}
END_TEST

static struct sw_owner *next_life(uint64_t nvme_bytes) {
    sw_life_open(&life, nvme_bytes);
    ck_assert_int_eq(sw_engine_recover(life.engine, &life.found, NULL), 0);
    struct sw_owner *owner = sw_owner_claim(life.engine, 1000, sw_life_token);
    ck_assert_ptr_nonnull(owner);
    return owner;
}

/* A process without the tier loses its frames; a later process with the tier has them again. */
START_TEST(the_next_process_finds_it) {
    sw_world.open_last = last_of(_i);
    sw_life_open(&life, disks[_i]);
    struct sw_owner *owner = sw_life_new_owner(&life);
    spill_and_move_all(owner);
    const uint64_t bytes = used_bytes(life.last);
    ck_assert_uint_gt(bytes, 0);
    sw_life_close(&life, owner, true);
    owner = next_life(disks[_i]);
    ck_assert_uint_eq(life.found.n_lost, 0);
    ck_assert_uint_eq(used_bytes(life.last), bytes);
    settle();
    sw_life_restore_all(&life, owner, true);
    sw_life_close(&life, owner, true);
    sw_world.open_last = NULL;
    owner = next_life(disks[_i]);
    ck_assert_uint_gt(life.found.n_lost, 0);
    sw_life_close(&life, owner, true);
    sw_world.open_last = last_of(_i);
    owner = next_life(disks[_i]);
    ck_assert_uint_eq(life.found.n_lost, 0);
    sw_life_restore_all(&life, owner, false);
    sw_life_close(&life, owner, false);
}
END_TEST

START_TEST(an_invalid_order_of_tiers_is_refused) {
    struct sw_err err = {0};
    sw_life_open(&life, disks[1]);
    struct sw_owner *owner = sw_life_new_owner(&life);
    struct sw_tiers behind_first = {.at = {life.last, life.host}, .n = 2},
                    twice = {.at = {life.host, life.host}, .n = 2}, none = {.n = 0},
                    alike = {.at = {life.host, life.nvme, life.nvme}, .n = 3};
    ck_assert_int_eq(sw_tiers_settle(&behind_first, &err), -SW_EINVAL);
    ck_assert_ptr_nonnull(strstr(err.msg, "tier folder cannot be number 1"));
    ck_assert_int_eq(sw_tiers_settle(&twice, &err), -SW_EINVAL);
    ck_assert_int_eq(sw_tiers_settle(&none, &err), -SW_EINVAL);
    ck_assert_int_eq(sw_tiers_settle(&alike, &err), -SW_EINVAL);
    ck_assert_ptr_nonnull(strstr(err.msg, "twice"));
    sw_life_close(&life, owner, false);
}
END_TEST

int main(void) {
    const int n = sw_object_store_is_possible() ? N_ALL : N_FOLDER;
    TCase *tests = tcase_create("folder_tier");
    tcase_add_checked_fixture(tests, setup, teardown);
    tcase_add_loop_test(tests, regions_are_demoted_restored_and_promoted, 0, n);
    tcase_add_loop_test(tests, regions_without_room_in_host_memory_go_to_it, 0, n);
    tcase_add_loop_test(tests, a_tier_between_is_kept_below_its_watermarks, 1, n - 1);
    tcase_add_loop_test(tests, the_next_process_finds_it, 0, n);
    tcase_add_test(tests, an_invalid_order_of_tiers_is_refused);
    Suite *suite = suite_create("spill_folder_tier");
    suite_add_tcase(suite, tests);
    return sw_test_run(suite, CK_FORK);
}
