/* Regions that share objects of a store are there after a restart of the service under a manager that keeps its memory:
 * an orderly one, or a kill. What the next process does not want goes. */
#include "ipc/spillway.h"
#include "tests/lib/control.h"
#include "tests/lib/object_store.h"
#include "tests/lib/one_region.h"
#include "tests/lib/requests.h"
#include "tests/lib/run.h"
#include "tests/lib/supervisor.h"

#include <check.h>
#include <signal.h>
#include <stdio.h>
#include <unistd.h>

enum { REGIONS = 48, REGION_BYTES = 64 << 10 };

static struct sw_object_store store;
static struct sw_supervisor service;
static struct spillway *connection;
static struct spillway_error error;
static struct sw_one_region memory;
static struct spillway_result results[REGIONS];

static void drain(void) {
    struct sw_ctl *ctl = sw_control_connect(&service.daemon);
    sw_object_store_tell(&store, "latency 100");
    json_decref(sw_control_ask(ctl, "drain", "{\"to\": \"remote\"}"));
    while (sw_control_number(ctl, "drain", NULL, "left_bytes") > 0)
        (void)usleep(1000);
    sw_object_store_tell(&store, "latency 0");
    sw_ctl_close(ctl);
}

static void restart(int signal) {
    ck_assert_int_eq(sw_supervisor_stop(&service, signal), signal == SIGKILL ? -SIGKILL : 0);
    ck_assert(sw_supervisor_spawn(&service));
}

static void restore(unsigned i) {
    (void)sw_one_region_restore(&memory, connection, results[i].region, i);
}

/* _i 0: stopped. 1: killed. Once with all regions, once with the odd ones. */
START_TEST(regions_in_packs_survive_a_restart) {
    char folder[SW_TEST_PATH_BYTES], endpoint[96], keys[96];
    const char *const options[] = {"log_level=warning",
                                   "host_tier_bytes=32 MiB",
                                   "host_tier_initial_bytes=0",
                                   "host_tier_slab_bytes=2 MiB",
                                   "scratch_bytes=64 MiB",
                                   "remote_tier_host=test",
                                   "remote_tier_bucket=bucket",
                                   endpoint,
                                   "remote_tier_bytes=64 MiB",
                                   keys,
                                   NULL};
    const int signal = _i ? SIGKILL : SIGTERM;
    store = sw_object_store_begin(false);
    sw_test_folder(folder);
    (void)snprintf(endpoint, sizeof endpoint, "remote_tier_endpoint=%s", store.endpoint);
    (void)snprintf(keys, sizeof keys, "remote_tier_keys=%s", sw_object_store_tier(&store, folder).key_file);
    sw_one_region_init(&memory, REGION_BYTES, false);
    sw_supervisor_start(&service, SW_SPILLWAYD_PATH, options);
    ck_assert_int_eq(spillway_open(&connection, SW_OPTIONS(.socket_path = service.daemon.socket), &error), 0);
    const unsigned n_puts = sw_object_store_count(&store, "put");
    for (unsigned i = 0; i < REGIONS; i++)
        ck_assert_int_eq(
            sw_one_region_spill(&memory, connection, i, NULL, SPILLWAY_DURABLE_SERVICE, &results[i], &error), 0);
    drain();
    ck_assert_uint_le(sw_object_store_count(&store, "put") - n_puts, REGIONS / 2);
    restart(signal);
    for (unsigned i = 0; i < REGIONS; i += 2)
        restore(i);
    restart(signal);
    for (unsigned i = 1; i < REGIONS; i += 2)
        restore(i);
    sw_object_store_await(&store, 0);
    spillway_close(connection);
    ck_assert_int_eq(sw_supervisor_stop(&service, SIGTERM), 0);
    sw_supervisor_end(&service);
    sw_object_store_end(&store);
    sw_test_remove(folder);
    sw_one_region_fini(&memory);
}
END_TEST

int main(void) {
    sw_object_store_needed();
    if (!sw_object_store_is_ours()) {
        (void)puts("skipped: the store takes no commands");
        return 77;
    }
    TCase *tests = tcase_create("restarts");
    tcase_add_loop_test(tests, regions_in_packs_survive_a_restart, 0, 2);
    sw_test_slow(tests, 60);
    Suite *suite = suite_create("remote_restart");
    suite_add_tcase(suite, tests);
    return sw_test_run(suite, CK_FORK);
}
