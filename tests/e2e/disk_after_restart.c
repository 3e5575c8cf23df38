/* A service with a disk after a restart: encryption, a disk that is away, and damage. */
#include "ipc/spillway.h"
#include "tests/lib/content.h"
#include "tests/lib/must.h"
#include "tests/lib/requests.h"
#include "tests/lib/run.h"
#include "tests/lib/scratch.h"
#include "tests/lib/served.h"
#include "tests/lib/supervisor.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

enum { PLACE_BYTES = 1 << 20 };

/* Bytes that do not shrink; region i's. */
enum { RANDOM_BYTES = 1000001 };

static struct spillway_region spill_random(struct spillway *connection, uint8_t *memory, unsigned i) {
    struct spillway_ticket *ticket;
    struct spillway_result result = {.size = sizeof result};
    struct spillway_error error;
    sw_content_fill(memory, RANDOM_BYTES, SW_CONTENT_RANDOM, i);
    MUST(spillway_spill(connection, SW_REQUEST(SW_ONE(memory, RANDOM_BYTES)), 1, &ticket, &error) == 0, &error);
    MUST(spillway_wait(ticket, SW_TEST_WAIT_MS, &result, 1, &error) == 0, &error);
    spillway_ticket_free(ticket);
    return result.region;
}

/* 0: these are its bytes; or why it has none. */
static int restore_random(struct spillway *connection, uint8_t *memory, struct spillway_region region, unsigned i) {
    struct spillway_ticket *ticket;
    struct spillway_error error;
    uint8_t *expected = calloc(1, PLACE_BYTES);
    sw_content_fill(expected, RANDOM_BYTES, SW_CONTENT_RANDOM, i);
    memset(memory, 0, RANDOM_BYTES);
    MUST(spillway_restore(connection,
                          SW_REQUEST(SW_ONE(memory, RANDOM_BYTES), .region = region, .flags = SPILLWAY_KEEP), 1,
                          &ticket, &error) == 0,
         &error);
    const int rc = spillway_wait(ticket, SW_TEST_WAIT_MS, NULL, 0, &error);
    spillway_ticket_free(ticket);
    if (!rc)
        ck_assert_mem_eq(memory, expected, RANDOM_BYTES);
    free(expected);
    return rc;
}

/* Plain text on the disk stays, new frames are encrypted, and both survive. */
START_TEST(encryption_is_turned_on) {
    enum { N = 8 };
    static struct sw_supervisor s;
    static struct spillway_region regions[2 * N];
    char folder[SW_TEST_PATH_BYTES], option[SW_TEST_PATH_BYTES + 32];
    struct spillway_status status = {.size = sizeof status};
    struct spillway_error error;
    uint8_t *memory = sw_served_memory(PLACE_BYTES);
    sw_test_folder_here(folder);
    (void)snprintf(option, sizeof option, "nvme_tier_directory=%s/nvme", folder);
    const char *options[] = {"log_level=warning",          option,
                             "nvme_encrypt=off",           "nvme_tier_bytes=64 MiB",
                             "host_tier_bytes=8 MiB",      "host_tier_initial_bytes=8 MiB",
                             "host_tier_slab_bytes=2 MiB", NULL};
    sw_supervisor_start(&s, SW_SPILLWAYD_PATH, options);
    struct spillway *connection = sw_served_connect(&s.daemon);
    for (unsigned i = 0; i < 2 * N; i++) {
        if (i == N) {
            options[2] = "nvme_encrypt=on";
            ck_assert_int_eq(sw_supervisor_stop(&s, SIGKILL), -SIGKILL);
            ck_assert(sw_supervisor_spawn(&s));
        }
        regions[i] = spill_random(connection, memory, i);
    }
    MUST(spillway_status(connection, &status, &error) == 0, &error);
    ck_assert_uint_gt(status.nvme_used_bytes, (uint64_t)N * RANDOM_BYTES); /* of both */
    ck_assert_int_eq(sw_supervisor_stop(&s, SIGKILL), -SIGKILL);
    ck_assert(sw_supervisor_spawn(&s));
    for (unsigned i = 0; i < 2 * N; i++)
        ck_assert_int_eq(restore_random(connection, memory, regions[i], i), 0);
    spillway_close(connection);
    ck_assert_int_eq(sw_supervisor_stop(&s, SIGTERM), 0);
    sw_supervisor_end(&s);
}
END_TEST

/* Plain or encrypted: regions on the disk are back when the disk is. */
START_TEST(a_start_without_the_disk_keeps_what_is_on_it) {
    enum { N = 8 };
    static struct sw_supervisor s;
    static struct spillway_region regions[N];
    char folder[SW_TEST_PATH_BYTES], option[SW_TEST_PATH_BYTES + 32];
    unsigned n_lost = 0;
    uint8_t *memory = sw_served_memory(PLACE_BYTES);
    sw_test_folder_here(folder);
    (void)snprintf(option, sizeof option, "nvme_tier_directory=%s/nvme", folder);
    const char *options[] = {_i ? "nvme_encrypt=on" : "nvme_encrypt=off",
                             option,
                             "log_level=warning",
                             "nvme_tier_bytes=64 MiB",
                             "host_tier_bytes=8 MiB",
                             "host_tier_initial_bytes=8 MiB",
                             "host_tier_slab_bytes=2 MiB",
                             NULL};
    sw_supervisor_start(&s, SW_SPILLWAYD_PATH, options);
    struct spillway *connection = sw_served_connect(&s.daemon);
    for (unsigned i = 0; i < N; i++)
        regions[i] = spill_random(connection, memory, i);
    options[1] = "nvme_tier_directory=none";
    ck_assert_int_eq(sw_supervisor_stop(&s, SIGTERM), 0);
    ck_assert(sw_supervisor_spawn(&s));
    for (unsigned i = 0; i < N; i++) {
        const int rc = restore_random(connection, memory, regions[i], i);
        ck_assert(rc == 0 || rc == -SPILLWAY_ELOST);
        n_lost += rc != 0;
    }
    ck_assert_uint_gt(n_lost, 0);
    options[1] = option;
    ck_assert_int_eq(sw_supervisor_stop(&s, SIGTERM), 0);
    ck_assert(sw_supervisor_spawn(&s));
    for (unsigned i = 0; i < N; i++)
        ck_assert_int_eq(restore_random(connection, memory, regions[i], i), 0);
    spillway_close(connection);
    ck_assert_int_eq(sw_supervisor_stop(&s, SIGTERM), 0);
    sw_supervisor_end(&s);
}
END_TEST

/* Disk reads of a killed process arrive in memory that its successor has, with or without that disk. They hit nothing
 * of the successor's. */
START_TEST(a_killed_process_has_requests_at_the_disk) {
    static struct sw_supervisor s;
    char folder[SW_TEST_PATH_BYTES], option[SW_TEST_PATH_BYTES + 32];
    struct spillway_error error;
    struct spillway_ticket *ticket;
    uint8_t *memory = sw_served_memory(PLACE_BYTES);
    int ends[2];
    sw_test_folder_here(folder);
    (void)snprintf(option, sizeof option, "nvme_tier_directory=%s/nvme", folder);
    const char *options[] = {option,
                             "log_level=info",
                             "nvme_tier_bytes=64 MiB",
                             "host_tier_bytes=4 MiB",
                             "host_tier_initial_bytes=0",
                             "host_tier_slab_bytes=4 MiB",
                             NULL};
    sw_supervisor_start(&s, SW_SPILLWAYD_PATH, options);
    struct spillway *connection = sw_served_connect(&s.daemon);
    const struct spillway_region region = spill_random(connection, memory, 1);
    const unsigned n_stored = sw_supervisor_n_stored(&s);
    ck_assert_int_eq(sw_supervisor_stop(&s, SIGKILL), -SIGKILL);
    ck_assert(sw_supervisor_spawn(&s)); /* they have ended by then */
    ck_assert_uint_eq(sw_test_daemon_logged(&s.daemon, "tier.held"), 0);
    ck_assert_uint_eq(sw_supervisor_n_stored(&s), n_stored);

    ck_assert_int_eq(pipe2(ends, O_CLOEXEC), 0);
    sw_supervisor_store(&s, "transfers-that-hang", ends[0]);
    options[0] = "nvme_tier_directory=none";
    ck_assert_int_eq(sw_supervisor_stop(&s, SIGKILL), -SIGKILL);
    ck_assert(sw_supervisor_spawn(&s));
    ck_assert_uint_eq(sw_test_daemon_logged(&s.daemon, "tier.held"), 1);
    ck_assert_int_eq(restore_random(connection, memory, region, 1), 0);
    MUST(spillway_spill(connection, SW_REQUEST(SW_ONE(memory, RANDOM_BYTES)), 1, &ticket, &error) == 0, &error);
    ck_assert_int_eq(spillway_wait(ticket, SW_TEST_WAIT_MS, NULL, 0, &error), -SPILLWAY_ENOSPACE);
    spillway_ticket_free(ticket);
    (void)close(ends[1]);
    const struct spillway_region other = spill_random(connection, memory, 2);
    ck_assert_int_eq(sw_supervisor_stop(&s, SIGKILL), -SIGKILL);
    ck_assert(sw_supervisor_spawn(&s));
    ck_assert_uint_eq(sw_test_daemon_logged(&s.daemon, "tier.held"), 1);
    ck_assert_int_eq(restore_random(connection, memory, region, 1), 0);
    ck_assert_int_eq(restore_random(connection, memory, other, 2), 0);
    spillway_close(connection);
    ck_assert_int_eq(sw_supervisor_stop(&s, SIGTERM), 0);
    sw_supervisor_end(&s);
}
END_TEST

/* ---- damage on the disk ---- */

enum { DISK_REGIONS = 8, COMMIT_AT = 64, COMMIT_BYTES = 88 };

struct disk {
    char folder[SW_TEST_PATH_BYTES], option[SW_TEST_PATH_BYTES + 32], path[SW_TEST_PATH_BYTES + 32];
    const char *options[8];
    struct sw_supervisor s;
    struct spillway *connection;
    uint8_t *memory;
    struct spillway_region regions[DISK_REGIONS];
};

/* Regions of which some have come to the disk; then the service is killed. */
static void disk_start(struct disk *d, bool encrypt) {
    d->memory = sw_served_memory(PLACE_BYTES);
    sw_test_folder_here(d->folder);
    (void)snprintf(d->option, sizeof d->option, "nvme_tier_directory=%s/nvme", d->folder);
    d->options[0] = d->option;
    d->options[1] = "log_level=warning";
    d->options[2] = "nvme_tier_bytes=64 MiB";
    d->options[3] = "host_tier_bytes=8 MiB";
    d->options[4] = "host_tier_initial_bytes=8 MiB";
    d->options[5] = "host_tier_slab_bytes=2 MiB";
    d->options[6] = encrypt ? "nvme_encrypt=on" : "nvme_encrypt=off";
    d->options[7] = NULL;
    sw_supervisor_start(&d->s, SW_SPILLWAYD_PATH, d->options);
    d->connection = sw_served_connect(&d->s.daemon);
    for (unsigned i = 0; i < DISK_REGIONS; i++)
        d->regions[i] = spill_random(d->connection, d->memory, i);
    ck_assert_int_eq(sw_supervisor_stop(&d->s, SIGKILL), -SIGKILL);
}

static void disk_end(struct disk *d) {
    spillway_close(d->connection);
    ck_assert_int_eq(sw_supervisor_stop(&d->s, SIGTERM), 0);
    sw_supervisor_end(&d->s);
}

static const char *disk_file(struct disk *d, const char *name) {
    (void)snprintf(d->path, sizeof d->path, "%s/nvme/%s", d->folder, name);
    return d->path;
}

/* Zeros behind the last record, as a power cut may leave them. */
static void append_zeros(const char *path) {
    const int fd = open(path, O_WRONLY | O_APPEND | O_CLOEXEC);
    const char zeros[100] = {0};
    ck_assert_int_eq(write(fd, zeros, sizeof zeros), sizeof zeros);
    (void)close(fd);
}

static void flip_byte(const char *path, off_t at) {
    const int fd = open(path, O_RDWR | O_CLOEXEC);
    char byte;
    ck_assert_int_eq(pread(fd, &byte, 1, at), 1);
    byte ^= 1;
    ck_assert_int_eq(pwrite(fd, &byte, 1, at), 1);
    (void)close(fd);
}

/* Restores all. Returns how many are lost. */
static unsigned disk_restore_all(struct disk *d) {
    unsigned n_lost = 0;
    for (unsigned i = 0; i < DISK_REGIONS; i++) {
        const int rc = restore_random(d->connection, d->memory, d->regions[i], i);
        ck_assert_msg(rc == 0 || rc == -SPILLWAY_ELOST, "region %u: %d", i, rc);
        n_lost += rc != 0;
    }
    return n_lost;
}

/* Returns the command's exit code, and its output about the folder. */
static int check_tier(struct disk *d, char ret[4096]) {
    char line[2 * SW_TEST_PATH_BYTES + 200];
    (void)snprintf(line, sizeof line, "'%s' --check-tier --set '%s' 2>&1", SW_SPILLWAYD_PATH, d->option);
    FILE *shell = popen(line, "r");
    ck_assert_ptr_nonnull(shell);
    ret[fread(ret, 1, 4095, shell)] = 0;
    return WEXITSTATUS(pclose(shell));
}

/* While regions on the disk may be needed, a damaged manifest is read as far as possible, and lost regions are named.
 * After the end of the unit or of the machine they cannot be needed any more. */
START_TEST(a_damaged_manifest) {
    static struct disk d;
    char said[4096];
    disk_start(&d, _i);
    ck_assert_int_eq(check_tier(&d, said), 0);
    ck_assert_ptr_nonnull(strstr(said, "nothing is damaged"));
    append_zeros(disk_file(&d, "manifest"));
    ck_assert_int_eq(check_tier(&d, said), 1);
    ck_assert_ptr_nonnull(strstr(said, "damage      manifest at byte "));
    ck_assert(sw_supervisor_spawn(&d.s));
    ck_assert_uint_eq(sw_test_daemon_logged(&d.s.daemon, "tier.damaged tier=nvme file=manifest offset="), 1);
    ck_assert_uint_eq(sw_test_daemon_logged(&d.s.daemon, "region.lost"), 0);
    ck_assert_uint_eq(disk_restore_all(&d), 0);
    ck_assert_int_eq(sw_supervisor_stop(&d.s, SIGKILL), -SIGKILL);

    ck_assert_int_eq(check_tier(&d, said), 0); /* it was written anew */
    flip_byte(disk_file(&d, "manifest"), COMMIT_AT + COMMIT_BYTES + 50);
    ck_assert_int_eq(check_tier(&d, said), 1);
    ck_assert_ptr_nonnull(strstr(said, ", 1 damaged places, "));
    ck_assert_ptr_nonnull(
        strstr(said, "; 1 perhaps released, since records are missing; 0 overwritten")); /* before it */
    ck_assert(sw_supervisor_spawn(&d.s));
    ck_assert_uint_eq(sw_test_daemon_logged(&d.s.daemon, "tier.damaged"), 2);
    ck_assert_uint_eq(sw_test_daemon_logged(&d.s.daemon, "region.lost region="), 1);
    ck_assert_uint_eq(sw_test_daemon_logged(&d.s.daemon, "lost=1"), 1);
    ck_assert_uint_eq(disk_restore_all(&d), 1);
    spillway_close(d.connection);
    ck_assert_int_eq(sw_supervisor_stop(&d.s, SIGKILL), -SIGKILL);

    append_zeros(disk_file(&d, "manifest"));
    sw_supervisor_forget(&d.s);
    ck_assert(sw_supervisor_spawn(&d.s));
    ck_assert_uint_eq(sw_test_daemon_logged(&d.s.daemon, "tier.emptied"), 1);
    d.connection = sw_served_connect(&d.s.daemon);
    for (unsigned i = 0; i < DISK_REGIONS; i++)
        d.regions[i] = spill_random(d.connection, d.memory, i);
    ck_assert_uint_eq(disk_restore_all(&d), 0);
    disk_end(&d);
}
END_TEST

/* A folder in the manifest's place can be opened but not read: EIO. Regions in memory are served, nothing is removed,
 * and a start that can read the disk has all regions again. If nothing can be lost, the start is refused. */
START_TEST(a_disk_that_cannot_be_read) {
    static struct disk d;
    char saved[sizeof d.path];
    disk_start(&d, _i);
    (void)strcpy(saved, disk_file(&d, "saved"));
    ck_assert_int_eq(rename(disk_file(&d, "manifest"), saved), 0);
    ck_assert_int_eq(mkdir(disk_file(&d, "manifest"), 0700), 0);
    ck_assert(sw_supervisor_spawn(&d.s));
    ck_assert_uint_eq(sw_test_daemon_logged(&d.s.daemon, "tier.unreadable tier=nvme name=EIO"), 1);
    const unsigned n_lost = disk_restore_all(&d);
    ck_assert(n_lost > 0 && n_lost < DISK_REGIONS);
    ck_assert_uint_eq(sw_test_daemon_logged(&d.s.daemon, "region.lost region="), n_lost);
    ck_assert_int_eq(sw_supervisor_stop(&d.s, SIGKILL), -SIGKILL);
    ck_assert_int_eq(rmdir(disk_file(&d, "manifest")), 0);
    ck_assert_int_eq(rename(saved, disk_file(&d, "manifest")), 0);
    ck_assert(sw_supervisor_spawn(&d.s));
    ck_assert_uint_eq(disk_restore_all(&d), 0);
    spillway_close(d.connection);
    ck_assert_int_eq(sw_supervisor_stop(&d.s, SIGKILL), -SIGKILL);

    ck_assert_int_eq(rename(disk_file(&d, "manifest"), saved), 0);
    ck_assert_int_eq(mkdir(disk_file(&d, "manifest"), 0700), 0);
    sw_supervisor_forget(&d.s);
    ck_assert(!sw_supervisor_spawn(&d.s));
    ck_assert_uint_eq(sw_test_daemon_logged(&d.s.daemon, "start.failed name=EIO"), 1);
    ck_assert_int_eq(rmdir(disk_file(&d, "manifest")), 0);
    ck_assert_int_eq(rename(saved, disk_file(&d, "manifest")), 0);
    ck_assert(sw_supervisor_spawn(&d.s));
    d.connection = sw_served_connect(&d.s.daemon);
    disk_end(&d);
}
END_TEST

/* All of the data on the disk is noise: each restore that finds it says where, at the level that everybody sees. */
START_TEST(a_damaged_frame) {
    static struct disk d;
    static char noise[1 << 20];
    char said[4096];
    unsigned n_bad = 0;
    disk_start(&d, false);
    memset(noise, 0x77, sizeof noise);
    const int fd = open(disk_file(&d, "data-0000"), O_WRONLY | O_CLOEXEC);
    for (off_t at = 0; at < 64 << 20; at += (off_t)sizeof noise)
        ck_assert_int_eq(pwrite(fd, noise, sizeof noise, at), sizeof noise);
    (void)close(fd);
    ck_assert_int_eq(check_tier(&d, said), 1);
    ck_assert_ptr_nonnull(strstr(said, "bad frame   region "));
    ck_assert_ptr_nonnull(strstr(said, "data-0000 at byte "));
    ck_assert_ptr_null(strstr(said, "perhaps released:"));
    flip_byte(disk_file(&d, "manifest"), COMMIT_AT + COMMIT_BYTES + 50);
    ck_assert_int_eq(check_tier(&d, said), 1);
    ck_assert_ptr_nonnull(strstr(said, "(perhaps released: records are missing)\n"));
    flip_byte(disk_file(&d, "manifest"), COMMIT_AT + COMMIT_BYTES + 50);
    d.options[1] = "log_level=error";
    ck_assert(sw_supervisor_spawn(&d.s));
    for (unsigned i = 0; i < DISK_REGIONS; i++)
        n_bad += restore_random(d.connection, d.memory, d.regions[i], i) != 0;
    ck_assert_uint_gt(n_bad, 0);
    ck_assert_uint_eq(sw_test_daemon_logged(&d.s.daemon, "frame.bad tier=nvme file=data-0000 offset="), n_bad);
    disk_end(&d);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("disk_after_restart");
    TCase *tcase = tcase_create("disk_after_restart");
    sw_test_slow(tcase, 90);
    tcase_add_test(tcase, encryption_is_turned_on);
    tcase_add_loop_test(tcase, a_start_without_the_disk_keeps_what_is_on_it, 0, 2);
    tcase_add_test(tcase, a_killed_process_has_requests_at_the_disk);
    tcase_add_loop_test(tcase, a_damaged_manifest, 0, 2);
    tcase_add_loop_test(tcase, a_disk_that_cannot_be_read, 0, 2);
    tcase_add_test(tcase, a_damaged_frame);
    suite_add_tcase(suite, tcase);
    return sw_test_run(suite, CK_FORK);
}
