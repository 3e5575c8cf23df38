/* How long restores from a slow object store take, as a client sees them, and how long a drain there takes:
 * bench_remote_restore [LATENCY_MS [STALLS [REGIONS [KIB]]]]
 *
 * Starts a service and a store (tests/lib/object_store/store.py), each of whose requests takes LATENCY_MS (100); every
 * STALLS-th request of the restores (100; 0: none) gets no answer at all. Drains all regions (200 of 4096 KiB, one
 * chunk each), and restores up to 200 one after the other: without prefetch, and with the next ones prefetched. Every
 * byte is compared. */
#include "ipc/spillway.h"
#include "tests/lib/control.h"
#include "tests/lib/object_store.h"
#include "tests/lib/one_region.h"
#include "tests/lib/run.h"
#include "tests/lib/scratch.h"
#include "tests/lib/served.h"

#include <check.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

enum { MOST_REGIONS = 20000, RESTORED = 200, AHEAD = 8 };

static const char *latency_ms = "100", *stalls = "100";
static unsigned n_regions = 200, n_restored, kib = 4096;

static struct sw_object_store store;
static struct sw_test_daemon service;
static struct sw_ctl *ctl;
static struct spillway *connection;
static struct spillway_error error;
static struct sw_one_region memory;
static struct spillway_region regions[MOST_REGIONS];
static char folder[SW_TEST_PATH_BYTES], endpoint[96], keys[96];

static double now_ms(void) {
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

static void start(void) {
    store = sw_object_store_begin(false);
    sw_test_folder(folder);
    (void)snprintf(endpoint, sizeof endpoint, "remote_tier_endpoint=%s", store.endpoint);
    (void)snprintf(keys, sizeof keys, "remote_tier_keys=%s", sw_object_store_tier(&store, folder).key_file);
    const char *options[] = {"chunk_bytes=4 MiB",
                             "host_tier_bytes=2 GiB",
                             "host_tier_slab_bytes=16 MiB",
                             "remote_tier_host=bench",
                             "remote_tier_bucket=bucket",
                             "remote_tier_bytes=4 GiB",
                             "host_tier_high_pct=100",
                             endpoint,
                             keys,
                             NULL};
    sw_test_daemon_start(&service, SW_SPILLWAYD_PATH, options);
    connection = sw_served_connect(&service);
    ctl = sw_control_connect(&service);
    sw_one_region_init(&memory, (size_t)kib << 10, false);
}

static void stop(void) {
    sw_ctl_close(ctl);
    spillway_close(connection);
    (void)sw_test_daemon_stop(&service, SIGTERM);
    sw_test_daemon_clean(&service);
    sw_object_store_end(&store);
    sw_test_remove(folder);
    sw_one_region_fini(&memory);
}

/* All regions are in the store afterwards. */
static void spill_all(void) {
    struct spillway_result result;
    for (unsigned i = 0; i < n_regions; i++) {
        if (sw_one_region_spill(&memory, connection, i, NULL, SPILLWAY_DURABLE_SERVICE, &result, &error)) {
            (void)fprintf(stderr, "%s: %s\n", error.name, error.text);
            exit(1);
        }
        regions[i] = result.region;
    }
    sw_object_store_tell(&store, "latency %s", latency_ms);
    const double from_ms = now_ms();
    const unsigned n_puts = sw_object_store_count(&store, "put");
    json_decref(sw_control_ask(ctl, "drain", "{\"to\": \"remote\"}"));
    while (sw_control_number(ctl, "drain", NULL, "left_bytes") > 0)
        (void)usleep(10000);
    (void)printf("drained: %u regions of %u KiB in %.1f s, by %u PUTs\n", n_regions, kib, (now_ms() - from_ms) / 1e3,
                 sw_object_store_count(&store, "put") - n_puts);
    json_decref(sw_control_ask(ctl, "drain", "[\"off\"]"));
}

static int by_value(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static void prefetch(unsigned i) {
    if (i < n_restored && spillway_advise(connection, regions[i], SPILLWAY_ADVICE_PREFETCH, 0, &error))
        (void)fprintf(stderr, "prefetch: %s: %s\n", error.name, error.text);
}

static void measure(bool ahead) {
    static double times_ms[RESTORED];
    const double from_ms = now_ms();
    for (unsigned i = 0; ahead && i < AHEAD; i++)
        prefetch(i);
    for (unsigned i = 0; i < n_restored; i++) {
        if (ahead)
            prefetch(i + AHEAD);
        times_ms[i] = sw_one_region_restore(&memory, connection, regions[i], i);
    }
    const double all_s = (now_ms() - from_ms) / 1e3;
    qsort(times_ms, n_restored, sizeof times_ms[0], by_value);
    (void)printf("%s: %u restores of %u KiB: p50 %.1f ms, p99 %.1f ms, slowest %.0f ms, all %.1f s\n",
                 ahead ? "prefetched" : "not prefetched", n_restored, kib, times_ms[n_restored / 2],
                 times_ms[n_restored * 99 / 100 - 1], times_ms[n_restored - 1], all_s);
}

START_TEST(restores_from_a_slow_store) {
    start();
    for (unsigned ahead = 0; ahead < 2; ahead++) {
        spill_all();
        sw_object_store_tell(&store, "stalls %s 60000", stalls);
        measure(ahead);
        sw_object_store_tell(&store, "stalls 0 0");
        sw_object_store_tell(&store, "latency 0");
    }
    stop();
}
END_TEST

int main(int argc, char **argv) {
    latency_ms = argc > 1 ? argv[1] : latency_ms;
    stalls = argc > 2 ? argv[2] : stalls;
    n_regions = argc > 3 ? (unsigned)atoi(argv[3]) : n_regions;
    kib = argc > 4 ? (unsigned)atoi(argv[4]) : kib;
    n_restored = n_regions < RESTORED ? n_regions : RESTORED;
    if (n_restored < 100 || n_regions > MOST_REGIONS || kib == 0) {
        (void)fprintf(stderr, "bench_remote_restore: 100 to %d regions of at least 1 KiB\n", MOST_REGIONS);
        return 1;
    }
    sw_object_store_needed();
    Suite *suite = suite_create("remote_restore");
    TCase *tcase = tcase_create("remote_restore");
    tcase_add_test(tcase, restores_from_a_slow_store);
    suite_add_tcase(suite, tcase);
    return sw_test_run(suite, CK_NOFORK);
}
