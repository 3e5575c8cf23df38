/* A real spillwayd with an NVMe tier: regions without room in the host tier go to disk and come back; frames that a
 * killed service left on disk are released by the next one. */
#include "ipc/spillway.h"
#include "tests/lib/nvme_fixture.h"
#include "tests/lib/one_region.h"
#include "tests/lib/run.h"
#include "tests/lib/served.h"

#include <check.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Bytes that do not shrink: six regions of 8 MiB, a host tier of 32 MiB of which half is for the way. */
enum { N = 6, LOOKED_AT_BYTES = 40 << 20 };
static const size_t region_bytes = (8 << 20) - 77;

static struct sw_test_daemon daemon_process;
static struct spillway *connection;
static struct spillway_error error;
static struct spillway_region regions[N];
static struct sw_one_region memory;
static struct sw_nvme_folder folder;
static char directory[128];
static const char *encrypt = "nvme_encrypt=off";

static void start(void) {
    const char *options[] = {"chunk_bytes=1 MiB",
                             "host_tier_bytes=32 MiB",
                             "host_tier_initial_bytes=0",
                             "host_tier_slab_bytes=2 MiB",
                             directory,
                             "nvme_tier_bytes=128 MiB",
                             "host_tier_high_pct=100",
                             encrypt,
                             NULL};
    sw_test_daemon_start(&daemon_process, SW_SPILLWAYD_PATH, options);
    connection = sw_served_connect(&daemon_process);
}

static void setup(void) {
    folder = sw_nvme_folder_new();
    (void)snprintf(directory, sizeof directory, "nvme_tier_directory=%s", folder.path);
    sw_one_region_init(&memory, region_bytes, false);
    start();
}

static void setup_encrypted(void) {
    encrypt = "nvme_encrypt=on";
    setup();
}

static void teardown(void) {
    spillway_close(connection);
    ck_assert_int_eq(sw_test_daemon_stop(&daemon_process, SIGTERM), 0);
    sw_test_daemon_clean(&daemon_process);
    sw_nvme_folder_free(&folder);
    sw_one_region_fini(&memory);
}

/* Spills region i; returns whether it went to disk. */
static bool spill(int i) {
    struct spillway_result result;
    ck_assert_msg(
        sw_one_region_spill(&memory, connection, (uint64_t)i, NULL, SPILLWAY_DURABLE_SERVICE, &result, &error) == 0,
        "%s: %s", error.name, error.text);
    regions[i] = result.region;
    return strcmp(result.tier, "nvme") == 0;
}

static void restore(int i) {
    (void)sw_one_region_restore(&memory, connection, regions[i], (uint64_t)i);
}

START_TEST(regions_go_to_disk_and_come_back) {
    int on_disk = 0;
    ck_assert_uint_eq(sw_served_status(connection).nvme_capacity_bytes, 128 << 20);
    for (int i = 0; i < N; i++)
        on_disk += spill(i);
    ck_assert_int_ge(on_disk, 3);
    ck_assert_uint_ge(sw_served_status(connection).nvme_used_bytes, (uint64_t)on_disk * region_bytes / 2);
    ck_assert_int_eq(spillway_advise(connection, regions[N - 1], SPILLWAY_ADVICE_PREFETCH, 0, &error),
                     -SPILLWAY_ENOSPACE);
    ck_assert_int_eq(spillway_advise(connection, regions[0], SPILLWAY_ADVICE_PRIORITY, 5, &error), 0);
    ck_assert_int_eq(spillway_advise(connection, regions[0], (enum spillway_advice)3, 0, &error), -SPILLWAY_EINVAL);
    for (int i = N; i-- > 0;)
        restore(i);
    ck_assert_uint_eq(sw_served_status(connection).nvme_used_bytes + sw_served_status(connection).tier_used_bytes, 0);
}
END_TEST

START_TEST(frames_of_a_killed_daemon_are_released) {
    for (int i = 0; i < N; i++)
        (void)spill(i);
    ck_assert_uint_gt(sw_served_status(connection).nvme_used_bytes, 0);
    ck_assert_int_eq(sw_test_daemon_stop(&daemon_process, SIGKILL), -SIGKILL);
    spillway_close(connection);
    sw_test_daemon_clean(&daemon_process);
    start();
    ck_assert_uint_eq(sw_served_status(connection).nvme_used_bytes, 0);
    ck_assert_uint_eq(sw_test_daemon_logged(&daemon_process, "released_frames=0"), 0);
    ck_assert_uint_eq(sw_test_daemon_logged(&daemon_process, "tier=nvme"), 1);
    (void)spill(0);
    restore(0);
}
END_TEST

START_TEST(the_disk_shows_nothing) {
    char path[256];
    uint8_t *disk = malloc(LOOKED_AT_BYTES);
    ck_assert_uint_eq(sw_test_daemon_logged(&daemon_process, "encrypted=yes"), 1);
    ck_assert(spill(0) + spill(1) + spill(2) + spill(3) > 0);
    (void)snprintf(path, sizeof path, "%s/data-0000", folder.path);
    FILE *file = fopen(path, "re");
    ck_assert(disk && file);
    ck_assert_uint_eq(fread(disk, 1, LOOKED_AT_BYTES, file), LOOKED_AT_BYTES);
    (void)fclose(file);
    for (int i = 0; i < 4; i++) {
        sw_one_region_expect(&memory, (uint64_t)i);
        for (size_t at = 0; at + 16 <= region_bytes; at += 3 << 20)
            ck_assert_ptr_null(memmem(disk, LOOKED_AT_BYTES, memory.expected + at, 16));
    }
    free(disk);
    for (int i = 0; i < 4; i++)
        restore(i);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("nvme");
    TCase *tcase = tcase_create("nvme");
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_test(tcase, regions_go_to_disk_and_come_back);
    tcase_add_test(tcase, frames_of_a_killed_daemon_are_released);
    suite_add_tcase(suite, tcase);
    tcase = tcase_create("encrypted");
    tcase_add_checked_fixture(tcase, setup_encrypted, teardown);
    tcase_add_test(tcase, regions_go_to_disk_and_come_back);
    tcase_add_test(tcase, the_disk_shows_nothing);
    suite_add_tcase(suite, tcase);
    return sw_test_run(suite, CK_FORK);
}
