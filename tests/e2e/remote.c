/* A real spillwayd with a remote tier: regions without room in the host tier go to an object store and come back; what
 * a killed service left there is deleted by the next one; and a store that is gone, full or wrong has a name. */
#include "ipc/spillway.h"
#include "tests/lib/control.h"
#include "tests/lib/object_store.h"
#include "tests/lib/one_region.h"
#include "tests/lib/requests.h"
#include "tests/lib/run.h"
#include "tests/lib/served.h"

#include <check.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Bytes that do not shrink: six regions of 8 MiB, a host tier of 32 MiB of which half is for the way. */
enum { N = 6 };
static const size_t region_bytes = (8 << 20) - 77;

static struct sw_object_store store;
static struct sw_test_daemon daemon_process;
static struct spillway *connection;
static struct spillway_error error;
static struct spillway_region regions[N];
static struct sw_one_region memory;
static char folder[SW_TEST_PATH_BYTES], endpoint[96], keys[96];
static const char *host = "remote_tier_host=test";
static char disk[96] = "nvme_tier_directory=none";
static const char *chunks = "chunk_bytes=1 MiB", *host_tier = "host_tier_bytes=32 MiB";
static const char *scratch = "scratch_bytes=64 MiB";
static int exit_code;

static bool try_to_start(void) {
    const char *options[] = {chunks,
                             host_tier,
                             scratch,
                             "host_tier_initial_bytes=0",
                             "host_tier_slab_bytes=2 MiB",
                             "host_tier_high_pct=100",
                             endpoint,
                             keys,
                             host,
                             disk,
                             "nvme_tier_bytes=32 MiB",
                             "remote_tier_bucket=bucket",
                             "remote_tier_bytes=128 MiB",
                             "remote_tier_buffer_bytes=16 MiB",
                             NULL};
    return sw_test_daemon_try(&daemon_process, SW_SPILLWAYD_PATH, options, &exit_code);
}

static void start(void) {
    ck_assert(try_to_start());
    connection = sw_served_connect(&daemon_process);
}

static void setup(void) {
    store = sw_object_store_begin(false);
    sw_test_folder(folder);
    (void)snprintf(endpoint, sizeof endpoint, "remote_tier_endpoint=%s", store.endpoint);
    (void)snprintf(keys, sizeof keys, "remote_tier_keys=%s", sw_object_store_tier(&store, folder).key_file);
    sw_one_region_init(&memory, region_bytes, false);
}

static void setup_started(void) {
    setup();
    start();
}

static void setup_roomy(void) {
    setup();
    chunks = "slots=4";
    scratch = "scratch_bytes=320 MiB";
    host_tier = "host_tier_bytes=256 MiB";
    start();
}

static void setup_with_disk(void) {
    setup();
    (void)snprintf(disk, sizeof disk, "nvme_tier_directory=%s/disk", folder);
    start();
}

static void teardown(void) {
    if (daemon_process.pid)
        ck_assert_int_eq(sw_test_daemon_stop(&daemon_process, SIGTERM), 0);
    sw_test_daemon_clean(&daemon_process);
    sw_object_store_end(&store);
    sw_test_remove(folder);
    sw_one_region_fini(&memory);
}

static void teardown_started(void) {
    spillway_close(connection);
    teardown();
}

/* Spills region i; *ret_remote: it went to the store. Returns the error's code, or 0. */
static int try_to_spill(int i, bool *ret_remote) {
    struct spillway_result result;
    const int rc =
        sw_one_region_spill(&memory, connection, (uint64_t)i, NULL, SPILLWAY_DURABLE_SERVICE, &result, &error);
    regions[i] = result.region;
    *ret_remote = strcmp(result.tier, "remote") == 0;
    return rc;
}

static int spill_all(void) {
    int n_remote = 0;
    for (int i = 0; i < N; i++) {
        bool is_remote;
        ck_assert_msg(try_to_spill(i, &is_remote) == 0, "%s: %s", error.name, error.text);
        n_remote += is_remote;
    }
    return n_remote;
}

static void restore(int i) {
    (void)sw_one_region_restore(&memory, connection, regions[i], (uint64_t)i);
}

/* Checks what control socket and metrics report about the store. */
static void check_statistics(uint64_t least_bytes) {
    struct sw_ctl *ctl = sw_control_connect(&daemon_process);
    json_t *tiers = sw_control_ask(ctl, "tiers", NULL), *metrics = sw_control_ask(ctl, "metrics", NULL);
    const json_t *row = json_array_get(json_object_get(tiers, "stores"), 0);
    ck_assert_str_eq(json_string_value(json_object_get(row, "tier")), "remote");
    ck_assert(json_is_false(json_object_get(row, "out")));
    if (sw_object_store_is_ours())
        ck_assert_str_eq(json_string_value(json_object_get(row, "writers")), "several");
    ck_assert_uint_ge((uint64_t)json_integer_value(json_object_get(row, "sent_bytes")), least_bytes);
    ck_assert_uint_ge((uint64_t)json_integer_value(json_object_get(row, "received_bytes")), least_bytes);
    ck_assert_int_gt(json_integer_value(json_object_get(row, "puts")), 0);
    ck_assert_int_eq(json_integer_value(json_object_get(row, "backlog_bytes")), 0);
    ck_assert_int_eq(json_integer_value(json_object_get(row, "orphans")), 0);
    ck_assert_ptr_nonnull(strstr(json_string_value(metrics), "\nspillway_store_puts_total{tier=\"remote\"} "));
    ck_assert_ptr_nonnull(strstr(json_string_value(metrics), "\nspillway_store_out{tier=\"remote\"} 0\n"));
    json_decref(tiers);
    json_decref(metrics);
    sw_ctl_close(ctl);
}

START_TEST(regions_go_to_the_store_and_come_back) {
    const int n_remote = spill_all();
    ck_assert_int_ge(n_remote, 3);
    if (sw_object_store_is_ours()) /* of several creations of an object one wins there */
        ck_assert_uint_eq(sw_test_daemon_logged(&daemon_process, "writers=several"), 1);
    for (int i = N; i-- > 0;)
        restore(i);
    sw_object_store_await(&store, 0);
    check_statistics((uint64_t)n_remote * region_bytes / 2);
    ck_assert_uint_eq(sw_test_daemon_logged(&daemon_process, "event=tier.ready tier=remote"), 1);
}
END_TEST

START_TEST(objects_of_a_killed_service_are_deleted) {
    ck_assert_int_ge(spill_all(), 3);
    ck_assert_int_eq(sw_test_daemon_stop(&daemon_process, SIGKILL), -SIGKILL);
    spillway_close(connection);
    sw_test_daemon_clean(&daemon_process);
    start();
    sw_object_store_await(&store, 0);
    ck_assert_int_ge(spill_all(), 3);
    for (int i = 0; i < N; i++)
        restore(i);
}
END_TEST

/* ---- regions that survive the loss of the host ---- */

static const char *name_of(int i) {
    static char name[16];
    (void)snprintf(name, sizeof name, "r%d", i);
    return name;
}

static void keep(const char *name, uint64_t seed) {
    struct spillway_result result;
    ck_assert_msg(sw_one_region_spill(&memory, connection, seed, name, SPILLWAY_DURABLE_REMOTE, &result, &error) == 0,
                  "%s: %s", error.name, error.text);
    ck_assert_uint_eq(result.durability, SPILLWAY_DURABLE_REMOTE);
    ck_assert_str_eq(result.tier, "remote");
}

static void find(const char *name, int i) {
    struct spillway_region_info info = {.size = sizeof info};
    ck_assert_msg(spillway_adopt(connection, name, &regions[i], &error) == 0, "%s: %s", error.name, error.text);
    ck_assert_int_eq(spillway_query(connection, regions[i], &info, &error), 0);
    ck_assert_uint_eq(info.durability, SPILLWAY_DURABLE_REMOTE);
}

/* The host tier and the disk become empty, by the command that an operator types. _i 1: the store refuses it. */
START_TEST(a_drain_moves_all_regions_to_the_store) {
    char command[400];
    struct spillway_result on_disk;
    ck_assert_int_eq(sw_one_region_spill(&memory, connection, 9, "durable", SPILLWAY_DURABLE_HOST, &on_disk, &error),
                     0);
    ck_assert_str_eq(on_disk.tier, "nvme");
    ck_assert_int_lt(spill_all(), 4); /* and some are on the disk */
    struct sw_ctl *ctl = sw_control_connect(&daemon_process);
    if (_i)
        sw_object_store_tell(&store, "fault put 403 1");
    (void)snprintf(command, sizeof command, "%s --socket %s drain --to remote >/dev/null 2>&1", SW_SPILLWAYCTL_PATH,
                   daemon_process.control);
    ck_assert_int_eq(system(command) == 0, !_i); /* NOLINT(cert-env33-c) */
    if (_i) {
        json_t *state = sw_control_ask(ctl, "drain", NULL);
        ck_assert_ptr_nonnull(strstr(json_string_value(json_object_get(state, "error")), "not permitted"));
        ck_assert_ptr_null(json_object_get(state, "to"));
        json_decref(state);
        ck_assert_uint_eq(sw_test_daemon_logged(&daemon_process, "event=drain.failed"), 1);
        ck_assert_int_eq(system(command), 0); /* NOLINT(cert-env33-c) */
    }
    ck_assert_int_eq(sw_control_number(ctl, "drain", NULL, "left_bytes"), 0);
    json_t *tiers = sw_control_ask(ctl, "tiers", NULL);
    for (unsigned i = 0; i < 2; i++) {
        const json_t *row = json_array_get(json_object_get(tiers, "tiers"), i);
        ck_assert_int_eq(json_integer_value(json_object_get(row, "used_bytes")), 0);
    }
    json_decref(tiers);
    bool is_remote;
    ck_assert_int_eq(try_to_spill(0, &is_remote), -SPILLWAY_EDRAINING);
    sw_ctl_close(ctl);
    for (int i = 1; i < N; i++)
        restore(i);
    find("durable", 0); /* with durability remote */
    (void)sw_one_region_restore(&memory, connection, regions[0], 9);
}
END_TEST

/* Returns a number of the remote tier: a field of `tiers`, its second row, or of `stores`, its only one. */
static long long number_of(struct sw_ctl *ctl, bool of_store, const char *name) {
    json_t *reply = sw_control_ask(ctl, "tiers", NULL);
    const json_t *row = json_array_get(json_object_get(reply, of_store ? "stores" : "tiers"), of_store ? 0 : 1);
    ck_assert_ptr_nonnull(json_object_get(row, name));
    const long long n = json_integer_value(json_object_get(row, name));
    json_decref(reply);
    return n;
}

static struct spillway_result spill_short(struct sw_one_region *small, uint64_t seed) {
    struct spillway_result result;
    ck_assert_int_eq(sw_one_region_spill(small, connection, seed, NULL, SPILLWAY_DURABLE_SERVICE, &result, &error), 0);
    return result;
}

static void drain(struct sw_ctl *ctl) {
    json_decref(sw_control_ask(ctl, "drain", "{\"to\": \"remote\"}"));
    while (sw_control_number(ctl, "drain", NULL, "left_bytes") > 0)
        (void)usleep(1000);
}

/* A store takes as long for a short region as for a long one. So short ones that wait for it go together. When most of
 * an object has gone, the rest of it goes to another place, and its room is free. */
START_TEST(short_regions_share_objects) {
    enum { MANY = 48, FEW = 10 };
    struct sw_one_region small;
    struct spillway_result results[MANY];
    sw_one_region_init(&small, 64 << 10, false);
    for (uint64_t i = 0; i < MANY; i++)
        results[i] = spill_short(&small, i);
    struct sw_ctl *ctl = sw_control_connect(&daemon_process);
    const unsigned n_before = sw_object_store_count(&store, "put");
    sw_object_store_tell(&store, "latency 300");
    drain(ctl);
    sw_object_store_tell(&store, "latency 0");
    ck_assert_uint_le(sw_object_store_count(&store, "put") - n_before, MANY / 4);
    ck_assert_int_eq(number_of(ctl, false, "frames"), MANY);
    for (uint64_t i = FEW; i < MANY; i++)
        (void)sw_one_region_restore(&small, connection, results[i].region, i);
    while (number_of(ctl, true, "wasted_bytes") > number_of(ctl, false, "used_bytes") / 2)
        (void)usleep(1000);
    for (uint64_t i = 0; i < FEW; i++)
        (void)sw_one_region_restore(&small, connection, results[i].region, i);
    sw_object_store_await(&store, 0);
    sw_ctl_close(ctl);
    sw_one_region_fini(&small);
}
END_TEST

/* Nothing of the service is left on this machine: no catalogue, no memory, no folder. */
static void lose_the_host(int signal) {
    ck_assert_int_eq(sw_test_daemon_stop(&daemon_process, signal), signal == SIGKILL ? -SIGKILL : 0);
    spillway_close(connection);
    sw_test_daemon_clean(&daemon_process);
    start();
}

static void restore_kept(int i) {
    find(name_of(i), i);
    restore(i);
}

/* _i 0: stopped. 1: killed. */
START_TEST(durable_regions_survive_the_host) {
    struct spillway_list_item items[N] = {{.size = sizeof items[0]}};
    for (int i = 0; i < 3; i++)
        keep(name_of(i), (uint64_t)i);
    for (int n = 0; n < 2; n++) {
        lose_the_host(_i ? SIGKILL : SIGTERM);
        ck_assert_int_eq(spillway_list(connection, NULL, items, N, &error), 3);
        for (int i = 0; i < 3; i++)
            restore_kept(i);
    }
    ck_assert_int_eq(spillway_drop(connection, regions, 2, &error), 0);
    keep(name_of(0), 0);
    lose_the_host(SIGTERM);
    ck_assert_int_eq(spillway_list(connection, NULL, items, N, &error), 2);
    restore_kept(0);
    restore_kept(2);
    ck_assert_int_eq(spillway_drop(connection, &regions[0], 1, &error), 0);
    ck_assert_int_eq(spillway_drop(connection, &regions[2], 1, &error), 0);
    sw_object_store_await(&store, 0);
}
END_TEST

/* A region for the store has few long chunks, though the device has many slots: here as long as they may be, which is
 * 32 MiB. */
START_TEST(long_regions_make_large_objects) {
    struct sw_one_region large;
    struct spillway_result result;
    struct sw_ctl *ctl = sw_control_connect(&daemon_process);
    sw_one_region_init(&large, 40 << 20, false);
    ck_assert_msg(sw_one_region_spill(&large, connection, 1, "large", SPILLWAY_DURABLE_REMOTE, &result, &error) == 0,
                  "%s: %s", error.name, error.text);
    ck_assert_int_eq(number_of(ctl, false, "frames"), 2);
    sw_ctl_close(ctl);
    (void)sw_one_region_restore(&large, connection, result.region, 1);
    ck_assert_int_eq(spillway_drop(connection, &result.region, 1, &error), 0);
    sw_object_store_await(&store, 0);
    sw_one_region_fini(&large);
}
END_TEST

static void await_care(struct sw_ctl *ctl, const char *method, const char *mode, long long changed) {
    json_decref(sw_control_ask(ctl, method, mode));
    for (bool is_over = false; !is_over; (void)usleep(1000)) {
        json_t *state = sw_control_ask(ctl, method, NULL);
        is_over = strcmp(json_string_value(json_object_get(state, "state")), "running") != 0;
        ck_assert_str_ne(json_string_value(json_object_get(state, "state")), "failed");
        json_decref(state);
    }
    ck_assert_int_eq(sw_control_number(ctl, method, NULL, "changed"), changed);
}

START_TEST(an_operator_looks_for_orphans) {
    const int n_remote = spill_all();
    struct sw_ctl *ctl = sw_control_connect(&daemon_process);
    await_care(ctl, "remote.gc", "{\"mode\": \"find\"}", 0);
    ck_assert_int_ge(sw_control_number(ctl, "remote.gc", NULL, "objects"), n_remote);
    ck_assert_int_eq(sw_control_number(ctl, "remote.gc", NULL, "found"), 0);
    await_care(ctl, "remote.gc", "{\"mode\": \"remove\"}", 0);
    await_care(ctl, "remote.rewrap", "{\"mode\": \"replace\"}", 0);
    ck_assert_int_ge(sw_control_number(ctl, "remote.rewrap", NULL, "objects"), n_remote);
    sw_ctl_close(ctl);
    for (int i = 0; i < N; i++)
        restore(i);
}
END_TEST

/* Spills that fit into the host tier are stored there; the others are refused, with their memory unchanged. */
START_TEST(a_full_bucket_stops_no_local_spill) {
    bool is_remote = false;
    int rc = 0, n = 0;
    sw_object_store_tell(&store, "quota 1000");
    for (; !rc && n < N; n++)
        rc = try_to_spill(n, &is_remote);
    ck_assert_int_eq(rc, -SPILLWAY_ENOSPACE);
    ck_assert_ptr_nonnull(strstr(error.text, "the bucket is full"));
    ck_assert_int_ge(n, 2);
    sw_one_region_expect(&memory, (uint64_t)n - 1);
    ck_assert_int_eq(memcmp(memory.data, memory.expected, region_bytes), 0);
    restore(0);
    ck_assert_int_eq(try_to_spill(0, &is_remote), 0);
    ck_assert(!is_remote);
}
END_TEST

START_TEST(a_service_starts_without_a_silent_store) {
    bool is_remote;
    sw_object_store_tell(&store, "down");
    start();
    ck_assert_uint_eq(sw_test_daemon_logged(&daemon_process, "event=tier.unreadable tier=remote name=ETIMEDOUT"), 1);
    ck_assert_int_eq(try_to_spill(0, &is_remote), 0);
    restore(0);
    struct sw_ctl *ctl = sw_control_connect(&daemon_process);
    ck_assert_ptr_nonnull(strstr(sw_control_ck_fails(ctl, "remote.gc", NULL, SW_ENOTSUP), "there is no remote tier"));
    sw_ctl_close(ctl);
    spillway_close(connection);
}
END_TEST

START_TEST(a_wrong_configuration_is_refused) {
    host = "remote_tier_host=Wrong";
    ck_assert(!try_to_start());
    ck_assert_uint_eq(sw_test_daemon_logged(&daemon_process, "characters of [a-z0-9-]"), 1);
    host = "remote_tier_host=test";
    sw_object_store_tell(&store, "fault list 403 1");
    ck_assert(!try_to_start());
    ck_assert_uint_eq(sw_test_daemon_logged(&daemon_process, "not permitted (HTTP 403, AccessDenied)"), 1);
}
END_TEST

static char **args; /* of systemd_remote.sh: SOCKET keep|find NAME */

START_TEST(a_client_keeps_or_finds_a_region) {
    ck_assert_msg(spillway_open(&connection, SW_OPTIONS(.socket_path = args[0]), &error) == 0, "%s: %s", error.name,
                  error.text);
    sw_one_region_init(&memory, region_bytes, false);
    if (strcmp(args[1], "keep") == 0) {
        keep(args[2], 7);
    } else {
        find(args[2], 0);
        (void)sw_one_region_restore(&memory, connection, regions[0], 7);
    }
    sw_one_region_fini(&memory);
    spillway_close(connection);
}
END_TEST

int main(int argc, char **argv) {
    const bool is_ours = sw_object_store_is_ours();
    Suite *suite = suite_create("remote");
    if (argc == 5 && strcmp(argv[1], "client") == 0) {
        args = argv + 2;
        TCase *client = tcase_create("client");
        tcase_add_test(client, a_client_keeps_or_finds_a_region);
        suite_add_tcase(suite, client);
        return sw_test_run(suite, CK_NOFORK);
    }
    sw_object_store_needed();
    TCase *started = tcase_create("started"), *tests = tcase_create("starts"), *drained = tcase_create("drained"),
          *roomy = tcase_create("roomy");
    tcase_add_checked_fixture(started, setup_started, teardown_started);
    tcase_add_test(started, regions_go_to_the_store_and_come_back);
    tcase_add_test(started, objects_of_a_killed_service_are_deleted);
    tcase_add_loop_test(started, durable_regions_survive_the_host, 0, 2);
    tcase_add_test(started, an_operator_looks_for_orphans);
    if (is_ours) {
        tcase_add_test(started, a_full_bucket_stops_no_local_spill);
        tcase_add_test(started, short_regions_share_objects);
    }
    suite_add_tcase(suite, started);
    tcase_add_checked_fixture(drained, setup_with_disk, teardown_started);
    if (is_ours)
        tcase_add_loop_test(drained, a_drain_moves_all_regions_to_the_store, 0, 2);
    suite_add_tcase(suite, drained);
    tcase_add_checked_fixture(roomy, setup_roomy, teardown_started);
    tcase_add_test(roomy, long_regions_make_large_objects);
    suite_add_tcase(suite, roomy);
    tcase_add_checked_fixture(tests, setup, teardown);
    if (is_ours) {
        tcase_add_test(tests, a_service_starts_without_a_silent_store);
        tcase_add_test(tests, a_wrong_configuration_is_refused);
    }
    sw_test_slow(tests, 90);
    suite_add_tcase(suite, tests);
    return sw_test_run(suite, CK_FORK);
}
