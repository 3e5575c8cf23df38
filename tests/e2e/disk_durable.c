/* A real spillwayd without a service manager: durable regions are there after it was stopped or killed, with the same
 * bytes, for their user, counted from the start; on an encrypted disk if there is a master key. */
#include "ipc/spillway.h"
#include "tests/lib/nvme_fixture.h"
#include "tests/lib/one_region.h"
#include "tests/lib/run.h"
#include "tests/lib/served.h"

#include <check.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { N = 4 };
static const size_t region_bytes = (4 << 20) - 77;

static struct sw_test_daemon service;
static struct spillway *connection;
static struct spillway_error error;
static struct sw_one_region memory;
static struct sw_nvme_folder folder;
static char directory[128], key_option[160], key_file[128];
static const char *encrypt = "nvme_encrypt=off";

static void start(void) {
    const char *options[] = {"chunk_bytes=1 MiB",
                             "host_tier_bytes=32 MiB",
                             "host_tier_initial_bytes=0",
                             "host_tier_slab_bytes=2 MiB",
                             directory,
                             "nvme_tier_bytes=64 MiB",
                             encrypt,
                             key_option,
                             NULL};
    sw_test_daemon_start(&service, SW_SPILLWAYD_PATH, options);
    connection = sw_served_connect(&service);
}

static void stop(int signal) {
    ck_assert_int_eq(sw_test_daemon_stop(&service, signal), signal == SIGTERM ? 0 : -signal);
    spillway_close(connection);
    sw_test_daemon_clean(&service);
}

static void write_key(const char *lines) {
    const int fd = open(key_file, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    ck_assert(fd >= 0 && write(fd, lines, strlen(lines)) == (ssize_t)strlen(lines));
    (void)close(fd);
}

#define KEY_A "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff\n"
#define KEY_B "ffeeddccbbaa99887766554433221100ffeeddccbbaa99887766554433221100\n"

static void setup(void) {
    folder = sw_nvme_folder_new();
    (void)snprintf(directory, sizeof directory, "nvme_tier_directory=%s", folder.path);
    (void)snprintf(key_file, sizeof key_file, "%s.key", folder.path);
    (void)snprintf(key_option, sizeof key_option, "nvme_key_file=none");
    sw_one_region_init(&memory, region_bytes, true);
}

static void teardown(void) {
    sw_nvme_folder_free(&folder);
    (void)unlink(key_file);
    sw_one_region_fini(&memory);
}

static void use_key(const char *lines) {
    encrypt = "nvme_encrypt=on";
    write_key(lines);
    (void)snprintf(key_option, sizeof key_option, "nvme_key_file=%s", key_file);
}

static const char *name_of(int i) {
    static char name[8];
    (void)snprintf(name, sizeof name, "r%d", i);
    return name;
}

static int try_spill(int i, uint8_t durability, struct spillway_result *ret) {
    return sw_one_region_spill(&memory, connection, (uint64_t)i, name_of(i), durability, ret, &error);
}

static void spill(int i) {
    struct spillway_result result;
    ck_assert_msg(try_spill(i, SPILLWAY_DURABLE_HOST, &result) == 0, "%s: %s", error.name, error.text);
    ck_assert_uint_eq(result.durability, SPILLWAY_DURABLE_HOST);
    ck_assert_str_eq(result.tier, "nvme");
}

static void restore(int i) {
    struct spillway_region region;
    struct spillway_region_info info = {.size = sizeof info};
    ck_assert_msg(spillway_adopt(connection, name_of(i), &region, &error) == 0, "%s: %s", error.name, error.text);
    ck_assert_int_eq(spillway_query(connection, region, &info, &error), 0);
    ck_assert_uint_eq(info.durability, SPILLWAY_DURABLE_HOST);
    (void)sw_one_region_restore(&memory, connection, region, (uint64_t)i);
}

/* Checks which regions are listed, and that they and no others take up room. */
static void ck_listed(int n, const int *regions) {
    struct spillway_list_item items[N + 2] = {{.size = sizeof items[0]}};
    uint64_t stored_bytes = 0;
    ck_assert_int_eq(spillway_list(connection, NULL, items, N + 2, &error), n);
    for (int i = 0; i < n; i++) {
        ck_assert_str_eq(items[i].name, name_of(regions[i]));
        ck_assert_str_eq(items[i].state, "out");
        ck_assert_str_eq(items[i].tier, "nvme");
        ck_assert_uint_eq(items[i].durability, SPILLWAY_DURABLE_HOST);
        stored_bytes += items[i].stored_bytes;
    }
    const uint64_t used_bytes = sw_served_status(connection).nvme_used_bytes;
    ck_assert_uint_ge(used_bytes, stored_bytes);
    ck_assert_uint_le(used_bytes, stored_bytes + 4096 * 100);
}

static void drop(int i) {
    struct spillway_region region;
    ck_assert_int_eq(spillway_adopt(connection, name_of(i), &region, &error), 0);
    ck_assert_int_eq(spillway_drop(connection, &region, 1, &error), 0);
}

/* _i 0: stopped. 1: killed. Twice, since the second start has no memory of the first. */
START_TEST(durable_regions_are_there_after_the_service) {
    const int signal = _i ? SIGKILL : SIGTERM;
    struct spillway_result result;
    start();
    for (int i = 0; i < 3; i++)
        spill(i);
    ck_assert_int_eq(try_spill(3, SPILLWAY_DURABLE_SERVICE, &result), 0);
    ck_assert_uint_eq(result.durability, SPILLWAY_DURABLE_SERVICE);
    stop(signal);
    for (int n = 0; n < 2; n++) {
        start();
        ck_listed(3, (const int[]){0, 1, 2});
        for (int i = 0; i < 3; i++)
            restore(i);
        ck_assert_int_eq(try_spill(0, SPILLWAY_DURABLE_HOST, &result), -SPILLWAY_EEXIST);
        stop(signal);
    }
    start();
    drop(1);
    spill(3);
    ck_listed(3, (const int[]){0, 2, 3});
    stop(SIGTERM);
    start();
    ck_listed(3, (const int[]){0, 2, 3});
    restore(3);
    stop(SIGTERM);
}
END_TEST

START_TEST(without_a_key_that_persists_durability_is_refused) {
    struct spillway_result result;
    encrypt = "nvme_encrypt=on";
    start();
    ck_assert_int_eq(try_spill(0, SPILLWAY_DURABLE_HOST, &result), -SPILLWAY_EDURABILITY);
    ck_assert_msg(strstr(error.text, "nvme_key_file"), "%s", error.text);
    ck_assert_int_eq(try_spill(0, SPILLWAY_DURABLE_REMOTE, &result), -SPILLWAY_EDURABILITY);
    ck_assert_int_eq(try_spill(0, SPILLWAY_DURABLE_SERVICE, &result), 0);
    stop(SIGTERM);
}
END_TEST

START_TEST(the_key_is_changed) {
    use_key(KEY_A);
    start();
    spill(0);
    stop(SIGTERM);
    write_key(KEY_B KEY_A);
    start();
    ck_assert_uint_eq(sw_test_daemon_logged(&service, "nvme.key_rewrapped"), 1);
    restore(0);
    spill(1);
    stop(SIGKILL);
    write_key(KEY_B);
    start();
    restore(0);
    restore(1);
    stop(SIGTERM);
    write_key(KEY_A);
    const char *options[] = {directory, "nvme_tier_bytes=64 MiB", encrypt, key_option, NULL};
    int code;
    ck_assert(!sw_test_daemon_try(&service, SW_SPILLWAYD_PATH, options, &code));
    ck_assert_uint_eq(sw_test_daemon_logged(&service, "another master key"), 1);
    sw_test_daemon_clean(&service);
    write_key(KEY_B);
    start();
    ck_listed(2, (const int[]){0, 1});
    stop(SIGTERM);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("disk_durable");
    TCase *tcase = tcase_create("disk_durable");
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_loop_test(tcase, durable_regions_are_there_after_the_service, 0, 2);
    tcase_add_test(tcase, without_a_key_that_persists_durability_is_refused);
    tcase_add_test(tcase, the_key_is_changed);
    suite_add_tcase(suite, tcase);
    return sw_test_run(suite, CK_FORK);
}
