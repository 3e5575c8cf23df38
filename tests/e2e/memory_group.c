/* A service in a control group whose memory is less than its host tier: clients that store until nothing fits, and then
 * ask for more, are refused by name, and the service goes on. Needs root, and a hierarchy that has the memory
 * controller, of version 2 or 1. */
#include "ipc/spillway.h"
#include "tests/lib/requests.h"
#include "tests/lib/run.h"
#include "tests/lib/spillwayd.h"

#include <check.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { GROUP_MIB = 160, LARGE_MIB = 1024, TIER_MIB = 512, REGION_BYTES = 1 << 20 };

static char group[128];
static const char *limit; /* the file's name */

/* Returns whether all of the text went into the file. */
static bool put(const char *folder, const char *name, const char *text) {
    char path[256];
    (void)snprintf(path, sizeof path, "%s/%s", folder, name);
    const int fd = open(path, O_WRONLY | O_CLOEXEC);
    const bool good = fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text);
    if (fd >= 0)
        (void)close(fd);
    return good;
}

static bool set_limit(unsigned mib) {
    char bytes[32];
    (void)snprintf(bytes, sizeof bytes, "%u", mib << 20);
    return put(group, limit, bytes);
}

/* Makes a group with a limit; false: there is no such hierarchy here, or this user may not. */
static bool make_group(void) {
    static const struct {
        const char *mount, *limit;
    } kinds[] = {{"/sys/fs/cgroup", "memory.max"},
                 {"/sys/fs/cgroup/unified", "memory.max"},
                 {"/sys/fs/cgroup/memory", "memory.limit_in_bytes"}};
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        (void)put(kinds[i].mount, "cgroup.subtree_control", "+memory");
        (void)snprintf(group, sizeof group, "%s/spillway-test-%d", kinds[i].mount, (int)getpid());
        if (mkdir(group, 0755))
            continue;
        limit = kinds[i].limit;
        if (set_limit(GROUP_MIB)) {
            (void)put(group, "memory.swap.max", "0");
            return true;
        }
        (void)rmdir(group);
    }
    return false;
}

static int spill_noise(struct spillway *connection, uint8_t *memory, unsigned seed, struct spillway_error *error) {
    struct spillway_ticket *ticket = NULL;
    struct spillway_result result = {.size = sizeof result}; /* a region with an unknown id would be dropped */
    uint64_t x = seed * UINT64_C(0x9E3779B97F4A7C15) + 1;
    for (size_t i = 0; i < REGION_BYTES / sizeof x; i++) {
        x ^= x << 13, x ^= x >> 7, x ^= x << 17;
        memcpy(memory + i * sizeof x, &x, sizeof x);
    }
    int rc = spillway_spill(connection, SW_REQUEST(SW_ONE(memory, REGION_BYTES)), 1, &ticket, error);
    if (rc == 0)
        rc = spillway_wait(ticket, SW_TEST_WAIT_MS, &result, 1, error);
    spillway_ticket_free(ticket);
    return rc;
}

/* _i: the group's limit is lowered after the start. */
START_TEST(a_full_tier_does_not_get_the_service_killed) {
    const char *options[] = {"host_tier_bytes=512 MiB", "host_tier_initial_bytes=16 MiB", "host_tier_slab_bytes=16 MiB",
                             "scratch_bytes=64 MiB", NULL};
    char script[SW_TEST_PATH_BYTES], command[256];
    struct sw_test_daemon daemon;
    struct spillway *connection;
    struct spillway_error error;
    unsigned n = 0, n_refused = 0;
    (void)snprintf(command, sizeof command, "echo $$ >%s/cgroup.procs && exec", group);
    sw_test_daemon_script(script, command, SW_SPILLWAYD_PATH);
    ck_assert(set_limit(_i ? LARGE_MIB : GROUP_MIB));
    sw_test_daemon_start(&daemon, script, options);
    ck_assert_uint_eq(sw_test_daemon_logged(&daemon, "event=tier.exceeds_memory tier=host host_tier_bytes=536870912 "
                                                     "memory_bytes=167772160 bound_bytes="),
                      !_i);
    ck_assert(set_limit(GROUP_MIB));
    ck_assert_int_eq(spillway_open(&connection, SW_OPTIONS(.socket_path = daemon.socket), &error), 0);
    const int fd = memfd_create("column", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    ck_assert(fd >= 0 && ftruncate(fd, REGION_BYTES) == 0);
    uint8_t *memory = mmap(NULL, REGION_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    ck_assert_ptr_ne(memory, MAP_FAILED);
    for (; n_refused < 3; n++) {
        const int rc = spill_noise(connection, memory, n, &error);
        ck_assert_msg(rc == 0 || rc == -SPILLWAY_ENOSPACE, "%u: %s: %s", n, error.name, error.text);
        n_refused += rc != 0;
    }
    (void)printf("%u MiB stored in a group of %d MiB\n", n - n_refused, GROUP_MIB);
    ck_assert_uint_ge(n - n_refused, 16); /* the bound leaves something to use */
    ck_assert_uint_lt(n, TIER_MIB);
    spillway_close(connection);
    ck_assert_int_eq(sw_test_daemon_stop(&daemon, SIGTERM), 0);
    sw_test_daemon_clean(&daemon);
    ck_assert_int_eq(unlink(script), 0);
}
END_TEST

static void remove_group(void) {
    for (int i = 0; i < 100 && rmdir(group); i++) /* a process that has ended is in it for a moment */
        (void)usleep(20000);
}

int main(void) {
    if (!make_group()) {
        (void)printf("no memory controller here, or no right to it: skipped\n");
        return 77;
    }
    TCase *tests = tcase_create("memory_group");
    tcase_add_loop_test(tests, a_full_tier_does_not_get_the_service_killed, 0, 2);
    Suite *suite = suite_create("memory_group");
    suite_add_tcase(suite, tests);
    const int rc = sw_test_run(suite, CK_FORK);
    remove_group();
    return rc;
}
