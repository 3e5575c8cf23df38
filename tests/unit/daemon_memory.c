/* How much memory the service can have, and take for clients, from a /proc and a /sys of the test's own; and how it
 * shares its descriptors. */
#include "daemon/memory.h"

#include "base/log.h"
#include "base/memory.h"
#include "daemon/descriptors.h"
#include "daemon/service.h"
#include "tests/lib/run.h"
#include "tests/lib/scratch.h"

#include <check.h>
#include <inttypes.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

static char root[SW_TEST_PATH_BYTES];

static void setup(void) {
    sw_test_folder(root);
}

static void teardown(void) {
    sw_test_remove(root);
}

static void put(const char *path, const char *text) {
    sw_test_put(root, path, text);
}

START_TEST(the_smallest_limit_applies) {
    ck_assert_uint_eq(sw_memory_bytes(root), UINT64_MAX);
    put("/proc/meminfo", "MemTotal:       2048 kB\nMemFree:  1 kB\n");
    ck_assert_uint_eq(sw_memory_bytes(root), 2 << 20);
    put("/proc/self/cgroup", "4:memory:/x\n0::/system.slice/spillwayd.service\n");
    ck_assert_uint_eq(sw_memory_bytes(root), 2 << 20);
    put("/sys/fs/cgroup/system.slice/spillwayd.service/memory.max", "max\n");
    put("/sys/fs/cgroup/system.slice/memory.max", "4194304\n");
    ck_assert_uint_eq(sw_memory_bytes(root), 2 << 20);
    put("/sys/fs/cgroup/memory.max", "1044480\n");
    ck_assert_uint_eq(sw_memory_bytes(root), 1044480);
    put("/sys/fs/cgroup/system.slice/memory.max", "40960\n");
    ck_assert_uint_eq(sw_memory_bytes(root), 40960);
    put("/sys/fs/cgroup/system.slice/spillwayd.service/memory.max", "8192\n");
    ck_assert_uint_eq(sw_memory_bytes(root), 8192);
    put("/proc/self/cgroup", "0::/\n");
    ck_assert_uint_eq(sw_memory_bytes(root), 1044480);
}
END_TEST

START_TEST(groups_of_version_1_count) {
    put("/proc/meminfo", "MemTotal:       2048 kB\n");
    put("/proc/self/cgroup", "13:cpu,cpuacct:/y\n12:memory_too:/z\n4:hugetlb,memory:/a/b\n1:name=systemd:/z\n0::/z\n");
    put("/sys/fs/cgroup/memory/z/memory.limit_in_bytes", "4096\n");
    put("/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n"); /* none */
    ck_assert_uint_eq(sw_memory_bytes(root), 2 << 20);
    put("/sys/fs/cgroup/memory/a/memory.limit_in_bytes", "40960\n");
    ck_assert_uint_eq(sw_memory_bytes(root), 40960);
    put("/sys/fs/cgroup/memory/a/b/memory.limit_in_bytes", "8192\n");
    ck_assert_uint_eq(sw_memory_bytes(root), 8192);
    put("/sys/fs/cgroup/z/memory.max", "4096\n"); /* of both the less */
    ck_assert_uint_eq(sw_memory_bytes(root), 4096);
}
END_TEST

START_TEST(this_machine_has_some) {
    ck_assert_uint_gt(sw_memory_bytes(""), 1 << 20);
    ck_assert_uint_le(sw_memory_bytes(""),
                      (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE) / 10 * 11);
}
END_TEST

/* The memory that clients can make the service take fits into its limit; values that already fit stay. */
START_TEST(the_tier_fits) {
    static const struct {
        uint64_t memory_mib, tier_mib, fitted_mib, bookkeeping_mib;
        const char *device;
    } rows[] = {{120, 1024, 14, 16, "host"},       {192, 256, 74, 25, "auto"},       {192, 64, 64, 25, "host"},
                {8192, 8192, 6952, 1994, "auto"},  {8192, 4096, 4096, 1994, "auto"}, {8192, 8192, 7016, 2010, "cuda"},
                {16384, 8192, 8192, 4010, "auto"}, {80, 1024, 2, 16, "host"},        {8, 2, 2, 16, "host"}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct sw_config config;
        sw_config_init(&config);
        config.scratch_bytes = UINT64_C(64) << 20;
        config.host_tier_bytes = rows[i].tier_mib << 20;
        (void)snprintf(config.device, sizeof config.device, "%s", rows[i].device);
        const uint64_t memory = rows[i].memory_mib << 20;
        ck_assert_msg(sw_memory_fit_tier(&config, memory) == (rows[i].fitted_mib < rows[i].tier_mib), "row %zu", i);
        ck_assert_msg(config.host_tier_bytes >> 20 == rows[i].fitted_mib, "row %zu: %" PRIu64, i,
                      config.host_tier_bytes >> 20);
        ck_assert_msg(sw_memory_for_bookkeeping(&config, memory) >> 20 == rows[i].bookkeeping_mib, "row %zu: %" PRIu64,
                      i, sw_memory_for_bookkeeping(&config, memory) >> 20);
        ck_assert_uint_eq(config.host_tier_bytes % (2 << 20), 0);
        ck_assert_int_eq(sw_memory_fit_tier(&config, memory), 0);
    }
}
END_TEST

/* The buffers of a remote tier are not for clients. Without such a tier there are none. */
START_TEST(buffers_of_a_remote_tier_are_taken) {
    const uint64_t memory = UINT64_C(8) << 30, part = 4; /* of what is left is for bookkeeping */
    struct sw_config config;
    sw_config_init(&config);
    config.remote_tier_buffer_bytes = UINT64_C(512) << 20;
    const uint64_t without = sw_memory_for_bookkeeping(&config, memory);
    (void)strcpy(config.remote_tier_endpoint, "https://store.example");
    ck_assert_uint_eq(sw_memory_for_bookkeeping(&config, memory), without - (UINT64_C(512) << 20) / part);
}
END_TEST

/* Values beside the limit cannot exceed it. If the memory is not known, nothing is lowered. */
START_TEST(the_parts_of_the_tier_fit) {
    struct sw_config config, before;
    sw_config_init(&config);
    before = config;
    ck_assert(!sw_memory_fit_tier(&config, UINT64_MAX));
    ck_assert(!sw_memory_fit_tier(&config, 0));
    ck_assert_uint_eq(config.host_tier_bytes, before.host_tier_bytes);
    ck_assert_uint_eq(sw_memory_for_bookkeeping(&config, UINT64_MAX), UINT64_MAX);
    ck_assert_uint_eq(sw_memory_for_bookkeeping(&config, 0), UINT64_MAX);
    ck_assert(sw_memory_fit_tier(&config, UINT64_C(320) << 20));
    ck_assert_uint_lt(config.host_tier_bytes, before.host_tier_slab_bytes);
    ck_assert_uint_le(config.host_tier_slab_bytes, config.host_tier_bytes);
    ck_assert_uint_le(config.host_tier_initial_bytes, config.host_tier_bytes);
    ck_assert_int_eq(sw_config_check(&config, NULL), 0);
}
END_TEST

static unsigned n_warned;

static void count_warnings(enum sw_log_level level, const char *line, void *arg) {
    (void)level;
    (void)arg;
    n_warned += strstr(line, "event=descriptors.short") != NULL;
}

/* Sessions, memories and descriptors that are being closed have their parts, beside those of the tiers and a few of
 * the service. If there are few, sessions get an eighth, and memories a few. */
START_TEST(descriptors_are_shared) {
    static const struct { unsigned n, warnings; } rows[] = {{1 << 20, 0}, {600, 1}, {100, 1}};
    struct sw_config config;
    struct sw_service service = {.config = &config};
    const uint64_t tiers = UINT64_C(1000) << 32; /* 1000 files of 4 GiB */
    sw_config_init(&config);
    sw_log_set_level(SW_LOG_ERROR);
    sw_log_set_tap(count_warnings, NULL);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        service.n_descriptors = rows[i].n;
        n_warned = 0;
        sw_descriptors_share(&service);
        const struct sw_fd_budget *fds = &service.fds;
        ck_assert_uint_eq(n_warned, rows[i].warnings);
        ck_assert(rows[i].warnings || fds->limit + fds->max_closing + config.max_sessions < rows[i].n);
        ck_assert(!rows[i].warnings || fds->limit + fds->max_closing == 128);
        ck_assert_uint_ge(fds->max_sessions, rows[i].n / 8);
        ck_assert(rows[i].warnings || fds->max_sessions > rows[i].n / 10 * 9); /* where there are many */
    }
    service.n_descriptors = 1 << 20;
    sw_descriptors_share(&service);
    const unsigned before = service.fds.limit + service.fds.max_closing;
    (void)strcpy(config.nvme_tier_directory, "/nvme");
    config.nvme_tier_bytes = tiers;
    sw_descriptors_share(&service);
    ck_assert_uint_eq(service.fds.limit + service.fds.max_closing, before - 1000);
    sw_log_set_tap(NULL, NULL);
}
END_TEST

/* All that it may have, as far as it needs them; what is given later counts. The loop's index: the hard limit. */
static const unsigned hard_limits[] = {700, 1000};

START_TEST(descriptors_are_taken) {
    struct rlimit limit = {.rlim_cur = 300, .rlim_max = hard_limits[_i]};
    struct sw_config config;
    struct sw_service service = {.config = &config};
    sw_config_init(&config);
    sw_log_set_level(SW_LOG_ERROR);
    ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &limit), 0);
    sw_descriptors_take(&service);
    ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &limit), 0);
    ck_assert_uint_eq(limit.rlim_cur, hard_limits[_i]);
    ck_assert_uint_eq(service.n_descriptors, hard_limits[_i]);
    ck_assert_uint_gt(service.fds.limit, 0);
    ck_assert_uint_eq(service.fds.limit / 3, service.fds.max_closing); /* a quarter of all */
}
END_TEST

int main(void) {
    TCase *tests = tcase_create("daemon_memory");
    tcase_add_checked_fixture(tests, setup, teardown);
    tcase_add_test(tests, the_smallest_limit_applies);
    tcase_add_test(tests, groups_of_version_1_count);
    tcase_add_test(tests, this_machine_has_some);
    tcase_add_test(tests, the_tier_fits);
    tcase_add_test(tests, buffers_of_a_remote_tier_are_taken);
    tcase_add_test(tests, the_parts_of_the_tier_fit);
    tcase_add_loop_test(tests, descriptors_are_taken, 0, 2);
    tcase_add_test(tests, descriptors_are_shared);
    Suite *suite = suite_create("daemon_memory");
    suite_add_tcase(suite, tests);
    return sw_test_run(suite, CK_FORK);
}
