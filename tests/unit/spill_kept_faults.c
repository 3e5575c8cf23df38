/* The file of the disk's durable regions: damage, growth, flushes that fail, and two services on one disk. */
#include "codec/checksum.h"
#include "spill/engine_state.h"
#include "spill/tier/nvme/ledger.h"
#include "tests/lib/kept_regions.h"
#include "tests/lib/lives.h"
#include "tests/lib/run.h"

#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static int ledger(int flags) {
    char path[600];
    (void)snprintf(path, sizeof path, "%s/" SW_LEDGER_FILE, sw_world.folder.path);
    return open(path, flags | O_CLOEXEC);
}

/* The disk as a service opens it that has no room for it any more. */
static struct sw_tier_nvme_config unwanted(void) {
    return (struct sw_tier_nvme_config){.directory = sw_world.folder.path,
                                        .capacity_bytes = DISK_BYTES,
                                        .file_bytes = DISK_BYTES,
                                        .queue_depth = 16,
                                        .unwanted = true};
}

/* The first record's place is behind the end of its batch; the hash is right. */
static void leave_batch(int fd) {
    uint32_t head[10];
    ck_assert_int_eq(pread(fd, head, sizeof head, 64), sizeof head);
    head[9] = head[8];
    head[0] = sw_hash_finish(sw_hash_update(2, head + 1, sizeof head - sizeof head[0]));
    ck_assert_int_eq(pwrite(fd, head, sizeof head, 64), sizeof head);
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
    if (_i == 2)
        leave_batch(fd);
    else
        ck_assert_int_eq(pwrite(fd, &noise, 1, _i ? 9 : 64 + 50), 1);
    (void)close(fd);
    if (_i == 1) {
        struct sw_tier *tier = NULL;
        const struct sw_tier_nvme_config config = unwanted();
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

/* A whole list of another version, earlier or later, prevents the start; it is not taken for a damaged one. */
START_TEST(a_list_of_another_version_is_refused) {
    uint32_t words[16];
    struct sw_tier *tier = NULL;
    begin_life();
    spill_host("a", 0);
    end_life();
    const int fd = ledger(O_RDWR);
    ck_assert_int_eq(pread(fd, words, sizeof words, 0), sizeof words);
    words[2] += _i ? 1 : -1u;
    words[15] = sw_hash_finish(sw_hash_update(2, words, sizeof words - sizeof words[15]));
    ck_assert_int_eq(pwrite(fd, words, sizeof words, 0), sizeof words);
    (void)close(fd);
    const struct sw_tier_nvme_config config = unwanted();
    ck_assert_int_eq(sw_tier_nvme_open(&tier, &config, &error), -SW_EVERSION);
}
END_TEST

static int no_sync(int fd, bool is_directory) {
    (void)fd;
    (void)is_directory;
    return 0;
}

static size_t free_cells(void) {
    const size_t ret = fill_catalogue(true);
    (void)fill_catalogue(false);
    return ret;
}

/* Hundreds of changes keep the file short, and take nothing from the catalogue. Under a sanitizer they would take a
 * minute, so fewer are made there. */
START_TEST(the_file_does_not_grow) {
    static const struct sw_nvme_file_ops files = {.sync = no_sync};
    sw_world.files = &files;
    begin_life();
    spill_host("stays", 0);
    const size_t cells = free_cells();
    for (unsigned n = 0; n < 300 / SW_TEST_EVERY; n++) {
        spill_host("a", 1);
        drop(1);
    }
    const int fd = ledger(O_RDONLY);
    ck_assert_int_lt(lseek(fd, 0, SEEK_END), 96 << 10);
    (void)close(fd);
    ck_assert_uint_eq(free_cells(), cells);
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

/* A region that cannot be forgotten comes back, whole. _i 1: the catalogue knows that it was dropped, as it does when
 * the process is killed meanwhile. So the next start forgets it. */
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
    for (unsigned n = 0; n < 2; n++) {
        if (!_i || n > 0)
            reboot();
        begin_life();
        if (_i)
            ck_assert(!is_there("a"));
        else
            ck_there("a", 0);
        while (life.engine->keeper.n_changes)
            (void)uv_run(&life.loop, UV_RUN_ONCE);
        end_life();
    }
}
END_TEST

static void settle(void) {
    while (life.engine->keeper.n_changes)
        (void)uv_run(&life.loop, UV_RUN_ONCE);
    sw_engine_check(life.engine);
}

/* Each allocation in turn fails, of the spill and of its record. What is not kept leaves nothing. */
START_TEST(a_spill_without_memory_keeps_nothing) {
    enum { MOST_ALLOCATIONS = 40 };
    struct sw_mem_desc desc = sw_memory_desc(&sw_world.memory);
    struct sw_mem *mem;
    unsigned n_failed = 0;
    begin_life();
    sw_world_fill(sw_world.memory.data, 0);
    ck_assert_int_eq(sw_mem_open(session, &desc, false, &mem, NULL), 0);
    const struct sw_range range = {.mem = mem, .bytes = SW_WORLD_REGION_BYTES};
    struct sw_budget *kept = sw_quota_kept(&life.quotas[0]);
    const uint64_t kept_bytes = atomic_load(&kept->used_bytes);
    for (unsigned long nth = 1; nth <= MOST_ALLOCATIONS; nth++) {
        struct sw_test_op op = {0};
        sw_alloc_fail_nth(nth);
        int rc = sw_engine_spill(session, SW_TRANSFER(&range, 1, .name = "a", .durability = SW_DURABILITY_HOST),
                                 sw_test_op_done, &op, &op.id, &error);
        if (!rc) {
            sw_life_until(&life, &op.done);
            rc = op.outcome.err.code;
        }
        sw_alloc_fail_nth(0);
        settle();
        ck_assert_msg(rc == 0 || rc == -SW_ENOMEM, "allocation %lu: %s", nth, op.outcome.err.msg);
        ck_assert_int_eq(is_there("a"), rc == 0);
        n_failed += rc != 0;
        if (rc == 0)
            ck_assert_int_eq(sw_engine_drop(session, op.id, NULL), 0);
        settle();
        ck_assert_uint_eq(life.quotas[0].n_regions, 0);
        ck_assert_uint_eq(atomic_load(&life.quotas[0].bytes), 0);
        ck_assert_uint_eq(atomic_load(&kept->used_bytes), kept_bytes);
        ck_assert_uint_eq(sw_tier_stats_of(life.host).used_bytes + sw_tier_stats_of(life.nvme).used_bytes, 0);
    }
    ck_assert_uint_gt(n_failed, 5);
    sw_mem_close(mem, NULL, NULL);
    end_life();
    reboot();
    begin_life();
    ck_assert(!is_there("a"));
    end_life();
}
END_TEST

/* The disk cannot be told about a drop: the region takes up its room until the next start, and comes back then. _i 1:
 * the catalogue knows better. */
START_TEST(a_drop_without_memory_leaves_its_room_taken) {
    const long live = sw_alloc_live();
    begin_life();
    spill_host("a", 0);
    const uint64_t bytes = sw_tier_stats_of(life.nvme).used_bytes;
    sw_alloc_fail_nth(1);
    ck_assert_int_eq(sw_engine_drop(session, sw_world.ids[0], NULL), 0);
    sw_alloc_fail_nth(0);
    ck_assert_uint_eq(life.engine->keeper.n_changes, 0);
    ck_assert(!is_there("a"));
    ck_assert_uint_eq(sw_tier_stats_of(life.nvme).used_bytes, bytes);
    sw_life_end(&life, session);
    if (!_i)
        reboot();
    begin_life();
    settle();
    if (_i)
        ck_assert(!is_there("a"));
    else
        ck_there("a", 0);
    ck_assert_uint_eq(sw_tier_stats_of(life.nvme).used_bytes, _i ? 0 : bytes);
    end_life();
    ck_assert_int_eq(sw_alloc_live(), live);
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

int main(void) {
    Suite *suite = suite_create("faults of the disk that keeps regions");
    TCase *tcase = tcase_create("faults");
    tcase_add_checked_fixture(tcase, sw_world_setup, sw_world_teardown);
    tcase_add_loop_test(tcase, damage_costs_what_it_hits, 0, 3);
    tcase_add_loop_test(tcase, a_list_of_another_version_is_refused, 0, 2);
    tcase_add_test(tcase, the_file_does_not_grow);
    tcase_add_test(tcase, two_services_do_not_mix);
    tcase_add_loop_test(tcase, a_flush_that_fails_fails_the_spill, 0, 14);
    tcase_add_loop_test(tcase, a_drop_that_is_not_recorded_is_undone_by_the_next_start, 0, 2);
    tcase_add_test(tcase, a_spill_without_memory_keeps_nothing);
    tcase_add_loop_test(tcase, a_drop_without_memory_leaves_its_room_taken, 0, 2);
    suite_add_tcase(suite, tcase);
    return sw_test_run(suite, CK_FORK);
}
