/* Batches through the public API, against a real spillwayd on the host device. */
#include "ipc/spillway.h"
#include "tests/lib/content.h"
#include "tests/lib/requests.h"
#include "tests/lib/run.h"
#include "tests/lib/served.h"
#include <check.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

enum { WAIT_MS = SW_TEST_WAIT_MS, MOST = 300, OTHER_BYTE = 0xdb };

static struct spillway *connection;
static struct spillway_error error;
static struct spillway_buffer buffers[MOST];
static struct spillway_request requests[MOST]; /* of a region for each of them, which it keeps after a spill */
static struct spillway_result results[MOST];

static void ck_good(int rc) {
    ck_assert_msg(rc == 0, "%s: %s", error.name, error.text);
}

static void ck_failed(int rc, int code, const char *text) {
    ck_assert_msg(rc == -code, "%s (%s), not %s", spillway_error_name(rc), error.text, spillway_error_name(code));
    ck_assert_int_eq(error.code, rc);
    ck_assert_msg(strstr(error.text, text) != NULL, "'%s' does not say '%s'", error.text, text);
}

static void before_each(void) {
    connection = sw_served_connect(&sw_served_daemon);
}

static void a_little_later(void) {
    const struct timespec time = {.tv_nsec = 10000000};
    (void)nanosleep(&time, NULL);
}

static void after_each(void) {
    sw_served_close(connection);
}

/* ---- memory and operations --------------------------------------------------------------------------------------- */

static uint8_t *new_memory(size_t bytes) {
    const int fd = memfd_create("e2e", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    ck_assert(fd >= 0 && ftruncate(fd, (off_t)bytes) == 0);
    uint8_t *data = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    ck_assert_ptr_ne(data, MAP_FAILED);
    return data; /* the descriptor stays open as long as the test, as spillway.h asks for */
}

static uint8_t *new_registered(size_t n, size_t bytes) {
    uint8_t *data = new_memory(n * bytes);
    ck_good(spillway_register(connection, data, n * bytes, &error));
    return data;
}

static void lay_out(uint8_t *data, uint32_t n, uint64_t bytes, uint64_t step) {
    for (uint32_t i = 0; i < n; i++)
        buffers[i] = (struct spillway_buffer){.data = data + i * step, .bytes = bytes};
}

static void fill(uint32_t n, enum sw_content kind) {
    for (uint32_t i = 0; i < n; i++)
        sw_content_fill(buffers[i].data, buffers[i].bytes, kind, i);
}

static void wipe(uint32_t n) {
    for (uint32_t i = 0; i < n; i++)
        memset(buffers[i].data, OTHER_BYTE, buffers[i].bytes);
}

static void ck_content(uint32_t n, enum sw_content kind) {
    static uint8_t expected[1 << 20];
    for (uint32_t i = 0; i < n; i++) {
        ck_assert_uint_le(buffers[i].bytes, sizeof expected);
        sw_content_fill(expected, buffers[i].bytes, kind, i);
        ck_assert_msg(memcmp(buffers[i].data, expected, buffers[i].bytes) == 0, "buffer %u differs", i);
    }
}

static void ck_wiped(uint32_t n) {
    for (uint32_t i = 0; i < n; i++)
        for (uint64_t at = 0; at < buffers[i].bytes; at++)
            ck_assert_uint_eq(((const uint8_t *)buffers[i].data)[at], OTHER_BYTE);
}

static int finish(struct spillway_ticket *ticket, uint32_t first, uint32_t n) {
    results[first].size = sizeof *results;
    const int rc = spillway_wait(ticket, WAIT_MS, &results[first], n, &error);
    spillway_ticket_free(ticket);
    return rc;
}

static int begin_spill(uint32_t first, uint32_t n, struct spillway_ticket **ret) {
    memset(&requests[first], 0, n * sizeof *requests);
    sw_requests_of_each(&requests[first], &buffers[first], n);
    return spillway_spill(connection, &requests[first], n, ret, &error);
}

static int spill(uint32_t n) {
    struct spillway_ticket *ticket = NULL;
    int rc = begin_spill(0, n, &ticket);
    if (rc == 0)
        rc = finish(ticket, 0, n);
    if (rc == 0)
        sw_requests_take_regions(requests, results, n);
    return rc;
}

static int restore(uint32_t n, unsigned flags) {
    struct spillway_ticket *ticket = NULL;
    for (uint32_t i = 0; i < n; i++)
        requests[i].flags = flags;
    const int rc = spillway_restore(connection, requests, n, &ticket, &error);
    return rc < 0 ? rc : finish(ticket, 0, n);
}

static void ck_results(uint32_t n) {
    for (uint32_t i = 0; i < n; i++) {
        ck_assert_int_eq(results[i].code, 0);
        ck_assert_uint_eq(results[i].raw_bytes, buffers[i].bytes);
        ck_assert(results[i].stored_bytes > 0 || buffers[i].bytes == 0);
        ck_assert_str_eq(results[i].tier, "host");
        ck_assert_str_ne(results[i].codec, "");
    }
}

/* ---- what is to work --------------------------------------------------------------------------------------------- */

static const uint32_t counts[] = {1, 256, 300};

/* One of a single spill, too. */
static unsigned n_logged_packets(void) {
    return sw_test_daemon_logged(&sw_served_daemon, "event=spill_batch.done") +
           sw_test_daemon_logged(&sw_served_daemon, "event=spill.done");
}

START_TEST(every_count_comes_back) {
    const uint32_t n = counts[_i], n_messages = (n + 255) / 256;
    uint8_t *data = new_registered(n, 3000);
    const unsigned logged = n_logged_packets();
    for (uint32_t i = 0, at = 0; i < n; i++) { /* odd places, odd lengths, some of nothing */
        buffers[i] = (struct spillway_buffer){.data = data + at, .bytes = (5 + i * 7919) % 2999};
        at += (uint32_t)buffers[i].bytes + i % 3;
    }
    fill(n, SW_CONTENT_MIXED);
    ck_good(spill(n));
    ck_results(n);
    ck_assert_uint_eq(sw_served_status(connection).regions, n);
    ck_assert_uint_eq(n_logged_packets(), logged + n_messages);
    wipe(n);
    ck_good(restore(n, SPILLWAY_KEEP));
    ck_results(n);
    ck_content(n, SW_CONTENT_MIXED);
    ck_assert_uint_eq(sw_served_status(connection).regions, n);
    wipe(n);
    ck_good(restore(n, 0));
    ck_content(n, SW_CONTENT_MIXED);
    ck_assert_uint_eq(sw_served_status(connection).regions, 0);
    ck_failed(restore(n, 0), SPILLWAY_ESTALE, n == 1 ? "does not exist" : "request 1 of");
    ck_good(spillway_unregister(connection, data, &error));
}
END_TEST

START_TEST(buffers_of_several_memories) {
    enum { N = 300 };
    uint8_t *data[3];
    for (int m = 0; m < 3; m++)
        data[m] = new_registered(N, 1000);
    for (uint32_t i = 0; i < N; i++)
        buffers[i] = (struct spillway_buffer){.data = data[i % 3] + (size_t)(N - 1 - i) * 1000, .bytes = 1000 - i % 7};
    fill(N, SW_CONTENT_TEXT);
    ck_good(spill(N));
    wipe(N);
    ck_good(restore(N, 0));
    ck_content(N, SW_CONTENT_TEXT);
    ck_assert_uint_eq(sw_served_status(connection).regions, 0);
    for (int m = 0; m < 3; m++)
        ck_good(spillway_unregister(connection, data[m], &error));
}
END_TEST

/* Empty buffers at the end of a memory, or where the next memory begins, also as the first buffer. */
START_TEST(empty_buffers) {
    enum { N = 8 };
    uint8_t *data = new_memory(2 * 8192);
    for (int m = 0; m < 2; m++)
        ck_good(spillway_register(connection, data + (size_t)m * 8192, 8192, &error));
    lay_out(data, N, 2048, 2048);
    buffers[0] = (struct spillway_buffer){.data = data + (size_t)2 * 8192};
    buffers[3] = (struct spillway_buffer){.data = data + 8192};
    fill(N, SW_CONTENT_TEXT);
    ck_good(spill(N));
    wipe(N);
    ck_good(restore(N, 0));
    ck_content(N, SW_CONTENT_TEXT);
    for (int m = 0; m < 2; m++)
        ck_good(spillway_unregister(connection, data + (size_t)m * 8192, &error));
}
END_TEST

START_TEST(regions_are_the_same_as_others) {
    enum { N = 20 };
    struct spillway_ticket *ticket = NULL;
    uint8_t *data = new_registered(N, 5000);
    lay_out(data, N, 4999, 5000);
    fill(N, SW_CONTENT_TEXT);
    ck_good(spill(N));
    /* One by one out of a batch, and one that was spilled alone in a batch. */
    wipe(N);
    ck_good(spillway_restore(connection, &requests[3], 1, &ticket, &error));
    ck_good(finish(ticket, 3, 1));
    ck_good(begin_spill(3, 1, &ticket));
    ck_good(finish(ticket, 3, 1));
    requests[3].region = results[3].region;
    ck_good(restore(N, 0));
    ck_content(N, SW_CONTENT_TEXT);
}
END_TEST

START_TEST(batches_at_once_and_event_loops) {
    enum { N = 100, BATCHES = 3 };
    struct spillway_ticket *tickets[BATCHES];
    uint8_t *data = new_registered(MOST, 4096);
    lay_out(data, BATCHES * N, 4096, 4096);
    fill(BATCHES * N, SW_CONTENT_TEXT);
    for (uint32_t b = 0; b < BATCHES; b++)
        ck_good(begin_spill(b * N, N, &tickets[b]));
    for (int told = 0, n_next = 0; told < BATCHES;) {
        struct pollfd fd = {.fd = spillway_fd(connection), .events = POLLIN};
        ck_assert_int_eq(poll(&fd, 1, WAIT_MS), 1);
        const int n = spillway_dispatch(connection, &error);
        ck_assert_int_ge(n, 0);
        told += n;
        while (spillway_next_done(connection))
            n_next++;
        ck_assert_int_eq(n_next, told);
    }
    for (uint32_t b = 0; b < BATCHES; b++)
        ck_good(finish(tickets[b], b * N, N));
    sw_requests_take_regions(requests, results, BATCHES * N);
    wipe(BATCHES * N);
    ck_good(restore(BATCHES * N, 0));
    ck_content(BATCHES * N, SW_CONTENT_TEXT);
}
END_TEST

START_TEST(a_freed_ticket_leaves_no_region) {
    enum { N = 300 };
    struct spillway_ticket *ticket = NULL;
    struct spillway_status status = {.size = sizeof status};
    uint8_t *data = new_registered(N, 100);
    lay_out(data, N, 100, 100);
    fill(N, SW_CONTENT_TEXT);
    ck_good(begin_spill(0, N, &ticket));
    while (_i == 1 && spillway_dispatch(connection, &error) == 0) /* until it has ended, but nobody has polled it */
        a_little_later();
    if (_i == 2) {
        spillway_close(connection); /* with the ticket */
        connection = sw_served_connect(&sw_served_daemon);
        return;
    }
    memset(buffers, 0, sizeof buffers); /* not to be touched any more */
    memset(requests, 0, sizeof requests);
    spillway_ticket_free(ticket);
    do {
        a_little_later();
        ck_assert_int_ge(spillway_dispatch(connection, &error), 0);
        status = sw_served_status(connection);
    } while (status.regions || status.tier_used_bytes);
}
END_TEST

/* ---- what is refused --------------------------------------------------------------------------------------------- */

START_TEST(invalid_calls_are_refused) {
    enum { N = 10 };
    struct spillway_ticket *none = NULL;
    uint8_t *data = new_registered(N, 100);
    lay_out(data, N, 100, 100);
    fill(N, SW_CONTENT_TEXT);
    ck_failed(spillway_spill(connection, requests, 0, &none, &error), SPILLWAY_EINVAL, "without requests");
    ck_failed(spillway_spill(connection, NULL, 1, &none, &error), SPILLWAY_EINVAL, "without requests");
    buffers[7].data = NULL;
    ck_failed(spill(N), SPILLWAY_EINVAL, "request 8 of 10: NULL");
    buffers[7].data = data + (size_t)N * 100 - 99; /* one byte too many */
    ck_failed(spill(N), SPILLWAY_ERANGE, "request 8 of 10");
    buffers[7].data = data + 5; /* may overlap while it is only read */
    ck_good(spill(N));
    ck_failed(restore(N, 0), SPILLWAY_EINVAL, "overlap");
    buffers[7].data = data + 700;
    ck_failed(restore(N, 64), SPILLWAY_EINVAL, "0x40");
    buffers[6].bytes = 99;
    ck_failed(restore(N, 0), SPILLWAY_ETOOSMALL, "request 7 of 10");
    buffers[6].bytes = 100;
    ck_assert_ptr_null(none);
    ck_assert_uint_eq(sw_served_status(connection).regions, N);
    ck_good(restore(N, 0));
}
END_TEST

START_TEST(one_bad_buffer_stops_the_batch) {
    enum { N = 300 };
    uint8_t *data = new_registered(N, 300);
    lay_out(data, N, 300, 300);
    fill(N, SW_CONTENT_TEXT);
    ck_good(spill(N));
    wipe(N);
    const struct spillway_region good = requests[100].region;
    requests[100].region.generation += 1;
    ck_failed(restore(256, 0), SPILLWAY_ENOENT, "request 101 of 256");
    ck_wiped(256); /* nothing had begun */
    requests[100].region = requests[99].region;
    ck_failed(restore(256, 0), SPILLWAY_EBUSY, "request 101 of 256");
    ck_wiped(256);
    /* The bad request is in the second message. Regions that the first one restored are still stored. */
    requests[100].region = good;
    requests[290].region.generation += 1;
    ck_failed(restore(N, 0), SPILLWAY_ENOENT, "request 35 of 44");
    requests[290].region.generation -= 1;
    ck_assert_uint_eq(sw_served_status(connection).regions, N);
    wipe(N);
    ck_good(restore(N, 0));
    ck_content(N, SW_CONTENT_TEXT);
}
END_TEST

/* Copied memory goes out in packets of one request, and comes back in packets of a few. */
START_TEST(errors_name_the_request_of_copied_memory) {
    enum { N = 10 };
    uint8_t *data = malloc((size_t)N * 100);
    ck_assert_ptr_nonnull(data);
    lay_out(data, N, 96, 100);
    fill(N, SW_CONTENT_TEXT);
    buffers[6].type = SPILLWAY_I64;
    buffers[6].bytes = 95;
    ck_failed(spill(N), SPILLWAY_EINVAL, "request 7 of 10: 95 bytes");
    buffers[6].bytes = 96;
    ck_good(spill(N));
    requests[8].region.generation += 1;
    ck_failed(restore(N, 0), SPILLWAY_ENOENT, "request 9 of 10: ");
    ck_failed(restore(N, SPILLWAY_EACH | SPILLWAY_KEEP), SPILLWAY_ENOENT, "request 9 of 10: ");
    requests[8].region.generation -= 1;
    buffers[5].bytes = 95;
    ck_failed(restore(N, 0), SPILLWAY_ETOOSMALL, "request 6 of 10: ");
    buffers[5].bytes = 96;
    wipe(N);
    ck_good(restore(N, 0));
    ck_content(N, SW_CONTENT_TEXT);
    free(data);
}
END_TEST

/* ---- limits ------------------------------------------------------------------------------------------------------ */

START_TEST(batches_wait_for_the_daemons_limits) {
    struct sw_test_daemon own;
    static const char *const options[] = {"max_session_operations=1", NULL};
    struct spillway_ticket *none = NULL, *ticket = NULL;
    memset(&own, 0, sizeof own);
    sw_test_daemon_start(&own, SW_SPILLWAYD_PATH, options);
    connection = sw_served_connect(&own);
    uint8_t *data = new_registered(MOST, 1000);
    lay_out(data, MOST, 1000, 1000);
    fill(MOST, SW_CONTENT_TEXT);
    ck_good(begin_spill(0, MOST, &ticket));
    ck_failed(spillway_spill(connection, requests, 1, &none, &error), SPILLWAY_ELIMIT, "1 operations");
    ck_good(
        spillway_unregister(connection, data, &error)); /* waits for all of it, also for packets that were not sent */
    ck_good(finish(ticket, 0, MOST));
    sw_requests_take_regions(requests, results, MOST);
    ck_assert_uint_eq(sw_served_status(connection).mapped_memories, 0);
    wipe(MOST);
    ck_good(restore(MOST, 0));
    ck_content(MOST, SW_CONTENT_TEXT);
    spillway_close(connection);
    ck_assert_int_eq(sw_test_daemon_stop(&own, SIGTERM), 0);
    sw_test_daemon_clean(&own);
}
END_TEST

START_TEST(too_many_regions) {
    struct sw_test_daemon own;
    static const char *const options[] = {"max_session_regions=290", NULL};
    memset(&own, 0, sizeof own);
    sw_test_daemon_start(&own, SW_SPILLWAYD_PATH, options);
    connection = sw_served_connect(&own);
    uint8_t *data = new_registered(MOST, 100);
    lay_out(data, MOST, 100, 100);
    ck_failed(spill(MOST), SPILLWAY_ELIMIT, "request 35 of 44");
    ck_assert_uint_eq(sw_served_status(connection).regions, 0);
    ck_assert_uint_eq(sw_served_status(connection).tier_used_bytes, 0);
    ck_good(spill(290));
    spillway_close(connection);
    ck_assert_int_eq(sw_test_daemon_stop(&own, SIGTERM), 0);
    sw_test_daemon_clean(&own);
}
END_TEST

START_TEST(a_full_tier_keeps_nothing_of_the_batch) {
    enum { N = 40, BYTES = 1 << 18, KEPT = 5 };
    struct sw_test_daemon own;
    static const char *const options[] = {"host_tier_bytes=8 MiB", "host_tier_initial_bytes=8 MiB", NULL};
    struct spillway_request kept[KEPT];
    memset(&own, 0, sizeof own);
    sw_test_daemon_start(&own, SW_SPILLWAYD_PATH, options);
    connection = sw_served_connect(&own);
    uint8_t *data = new_registered(N, BYTES);
    lay_out(data, N, BYTES, BYTES);
    fill(N, SW_CONTENT_RANDOM);
    ck_good(spill(KEPT));
    memcpy(kept, requests, sizeof kept);
    const struct spillway_status before = sw_served_status(connection);
    ck_failed(spill(N), SPILLWAY_ENOSPACE, "request");
    const struct spillway_status after = sw_served_status(connection);
    ck_assert_uint_eq(after.tier_used_bytes, before.tier_used_bytes);
    ck_assert_uint_eq(after.regions, KEPT);
    memcpy(requests, kept, sizeof kept);
    wipe(KEPT);
    ck_good(restore(KEPT, 0));
    ck_content(N, SW_CONTENT_RANDOM); /* a failed spill has changed nothing either */
    spillway_close(connection);
    ck_assert_int_eq(sw_test_daemon_stop(&own, SIGTERM), 0);
    sw_test_daemon_clean(&own);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("batch");
    TCase *served = tcase_create("served"), *limits = tcase_create("limits");
    tcase_add_unchecked_fixture(served, sw_served_start_verbose, sw_served_stop);
    tcase_add_checked_fixture(served, before_each, after_each);
    tcase_add_loop_test(served, every_count_comes_back, 0, (int)(sizeof counts / sizeof counts[0]));
    tcase_add_test(served, buffers_of_several_memories);
    tcase_add_test(served, empty_buffers);
    tcase_add_test(served, regions_are_the_same_as_others);
    tcase_add_test(served, batches_at_once_and_event_loops);
    tcase_add_loop_test(served, a_freed_ticket_leaves_no_region, 0, 3);
    tcase_add_test(served, invalid_calls_are_refused);
    tcase_add_test(served, one_bad_buffer_stops_the_batch);
    tcase_add_test(served, errors_name_the_request_of_copied_memory);
    tcase_add_test(limits, batches_wait_for_the_daemons_limits);
    tcase_add_test(limits, too_many_regions);
    tcase_add_test(limits, a_full_tier_keeps_nothing_of_the_batch);
    suite_add_tcase(suite, served);
    suite_add_tcase(suite, limits);
    return sw_test_run(suite, CK_FORK);
}
