/* Short regions that the client encodes and decodes itself, many by one call, through a real spillwayd on the host
 * device: the same bytes come back, one by one or all together, whoever decodes them. */
#include "ipc/spillway.h"
#include "tests/lib/content.h"
#include "tests/lib/descriptors.h"
#include "tests/lib/run.h"
#include "tests/lib/served.h"

#include <check.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define KIB ((size_t)1 << 10)
#define MIB ((size_t)1 << 20)
enum { WAIT_MS = 120000, MOST = 320 };
/* A sanitizer sees the same accesses in fewer rounds of fewer regions. */
enum { ROUNDS = SW_TEST_EVERY > 1 ? 1 : 2, FEWER = SW_TEST_EVERY > 1 ? 4 : 1 };

static struct spillway *coding;
static struct spillway_error error;
static unsigned fds_before;

/* A batch: region i is from[i], and comes back to to[i]. */
static struct {
    unsigned n;
    uint8_t *from, *to;
    size_t total;
    struct spillway_buffer out[MOST], back[MOST];
    struct spillway_request requests[MOST];
    struct spillway_result results[MOST];
} batch;

static void before_each(void) {
    const struct spillway_options options = {
        .size = sizeof options, .socket_path = sw_served_daemon.socket, .flags = SPILLWAY_CODEC_CLIENT};
    fds_before = sw_count_fds();
    ck_assert_msg(spillway_open(&coding, &options, &error) == 0, "%s: %s", error.name, error.text);
}

static void after_each(void) {
    free(batch.from);
    free(batch.to);
    sw_served_close(coding);
    ck_assert_uint_eq(sw_count_fds(), fds_before);
}

static void ok(int rc) {
    ck_assert_msg(rc == 0, "%s: %s", error.name, error.text);
}

/* ---- batches ----------------------------------------------------------------------------------------------------- */

/* Kinds of content that take turns, so that one plan does not fit all. */
static enum sw_content content_of(unsigned i) {
    static const enum sw_content kinds[] = {SW_CONTENT_TEXT, SW_CONTENT_TEXT, SW_CONTENT_RANDOM, SW_CONTENT_ZEROS};
    return kinds[i % 4];
}

static void make_batch(unsigned n, size_t (*bytes_of)(unsigned i), bool is_mixed) {
    size_t at = 0;
    batch.n = n;
    batch.total = 0;
    for (unsigned i = 0; i < n; i++)
        batch.total += bytes_of(i);
    batch.from = malloc(batch.total);
    batch.to = malloc(batch.total);
    ck_assert(batch.from && batch.to);
    for (unsigned i = 0; i < n; at += bytes_of(i++)) {
        sw_content_fill(batch.from + at, bytes_of(i), is_mixed ? content_of(i) : SW_CONTENT_TEXT, i);
        batch.out[i] = (struct spillway_buffer){.data = batch.from + at, .bytes = bytes_of(i)};
        batch.back[i] = (struct spillway_buffer){.data = batch.to + at, .bytes = bytes_of(i)};
        batch.requests[i] = (struct spillway_request){.size = sizeof batch.requests[i], .n_buffers = 1};
    }
}

static size_t equal(unsigned i) {
    (void)i;
    return 64 * KIB;
}

static size_t various(unsigned i) {
    static const size_t bytes[] = {1, 64 * KIB, 4095, 200 * KIB + 1, 17, 1 * MIB, 4096, 8191};
    return bytes[i % 8];
}

static int finish(struct spillway_ticket *ticket) {
    batch.results[0].size = sizeof batch.results[0];
    const int rc = spillway_wait(ticket, WAIT_MS, batch.results, batch.n, &error);
    spillway_ticket_free(ticket);
    return rc;
}

static int spill(void) {
    struct spillway_ticket *ticket;
    for (unsigned i = 0; i < batch.n; i++) {
        batch.requests[i].buffers = &batch.out[i];
        batch.requests[i].region = (struct spillway_region){0};
    }
    int rc = spillway_spill(coding, batch.requests, batch.n, &ticket, &error);
    rc = rc ? rc : finish(ticket);
    for (unsigned i = 0; i < batch.n; i++)
        batch.requests[i].region = batch.results[i].region;
    return rc;
}

static int restore(void) {
    struct spillway_ticket *ticket;
    memset(batch.to, 0xEE, batch.total);
    for (unsigned i = 0; i < batch.n; i++)
        batch.requests[i].buffers = &batch.back[i];
    const int rc = spillway_restore(coding, batch.requests, batch.n, &ticket, &error);
    return rc ? rc : finish(ticket);
}

static void ck_coder(const char *coder) {
    for (unsigned i = 0; i < batch.n; i++) {
        ck_assert_int_eq(batch.results[i].code, 0);
        ck_assert(!batch.out[i].bytes || strcmp(batch.results[i].coder, coder) == 0);
        ck_assert_uint_eq(batch.results[i].raw_bytes, batch.out[i].bytes);
    }
}

static void ck_back(void) {
    for (unsigned i = 0; i < batch.n; i++)
        ck_assert_msg(memcmp(batch.out[i].data, batch.back[i].data, batch.out[i].bytes) == 0, "region %u", i);
}

static void there_and_back(void) {
    ok(spill());
    ck_coder("client");
    for (unsigned i = 0; i < batch.n; i++)
        ck_assert_str_ne(batch.results[i].reason, "");
    ok(restore());
    ck_coder("client");
    ck_back();
}

static void keep_all(uint32_t flags) {
    for (unsigned i = 0; i < batch.n; i++)
        batch.requests[i].flags = flags;
}

/* How many regions the service has of this connection. */
static uint64_t n_regions(void) {
    return sw_served_status(coding).regions;
}

static void drop_all(void) {
    for (unsigned i = 0; i < batch.n; i++)
        ok(spillway_drop(coding, &batch.requests[i].region, 1, &error));
}

/* ---- tests ------------------------------------------------------------------------------------------------------- */

START_TEST(single_regions_come_back) {
    for (unsigned k = 0; k < 8; k++) {
        make_batch(1, various, false);
        batch.out[0].bytes = batch.back[0].bytes = batch.total = various(k);
        batch.from = realloc(batch.from, various(k));
        batch.to = realloc(batch.to, various(k));
        batch.out[0].data = batch.from;
        batch.back[0].data = batch.to;
        sw_content_fill(batch.from, various(k), content_of(k), k);
        there_and_back();
        there_and_back();
        free(batch.from);
        free(batch.to);
        batch.from = batch.to = NULL;
    }
    ck_assert_uint_eq(n_regions(), 0);
}
END_TEST

/* The loop's index: of one length and kind, or of many. */
START_TEST(batches_come_back) {
    make_batch((_i < 2 ? 256u : MOST) / (_i % 2 ? FEWER : 1u), _i % 2 ? various : equal, _i % 2);
    for (unsigned round = 0; round < ROUNDS; round++) {
        there_and_back();
        ck_assert_uint_eq(n_regions(), 0);
    }
    ok(spill());
    keep_all(SPILLWAY_KEEP);
    ok(restore());
    ck_back();
    ck_assert_uint_eq(n_regions(), batch.n);
    keep_all(SPILLWAY_EACH);
    ok(restore());
    ck_back();
    ck_assert_uint_eq(n_regions(), 0);
}
END_TEST

/* A buffer without bytes makes the service do the whole call. */
static void add_an_empty_one(void) {
    batch.out[batch.n] = batch.back[batch.n] = (struct spillway_buffer){.data = batch.from, .bytes = 0};
    batch.requests[batch.n] = (struct spillway_request){.size = sizeof batch.requests[0], .n_buffers = 1};
    batch.n++;
}

START_TEST(the_service_decodes_what_the_client_has_encoded) {
    struct spillway_buffer buffer = {.data = malloc(1), .bytes = 0};
    struct spillway_request request = {.size = sizeof request, .buffers = &buffer, .n_buffers = 1};
    struct spillway_ticket *ticket;
    struct spillway_result result = {.size = sizeof result};
    make_batch(40, various, true);
    ok(spill());
    ck_coder("client");
    ok(spillway_spill(coding, &request, 1, &ticket, &error));
    ok(spillway_wait(ticket, WAIT_MS, &result, 1, &error));
    spillway_ticket_free(ticket);
    add_an_empty_one();
    batch.requests[40].region = result.region;
    ok(restore());
    ck_coder("daemon");
    ck_back();
    ck_assert_uint_eq(n_regions(), 0);
    free(buffer.data);
}
END_TEST

START_TEST(the_client_decodes_what_the_service_has_encoded) {
    make_batch(40, various, true);
    add_an_empty_one();
    ok(spill());
    ck_coder("daemon");
    struct spillway_region empty = batch.requests[40].region;
    batch.n = 40;
    ok(restore());
    ck_coder("client");
    ck_back();
    ok(spillway_drop(coding, &empty, 1, &error));
}
END_TEST

/* An empty region has no frame: the service restores the whole call, whose requests succeed together or one by one. */
START_TEST(regions_that_have_no_frame_are_the_services) {
    make_batch(20, various, true);
    add_an_empty_one();
    keep_all(_i ? SPILLWAY_EACH : 0);
    ok(spill());
    uint8_t more;
    batch.back[20] = (struct spillway_buffer){.data = &more, .bytes = 1}; /* room for more than it has */
    ok(restore());
    ck_coder("daemon");
    ck_assert_uint_eq(batch.results[20].raw_bytes, 0);
    ck_back();
    ck_assert_uint_eq(n_regions(), 0);
}
END_TEST

START_TEST(longer_buffers_get_what_there_is) {
    make_batch(16, equal, false);
    for (unsigned i = 0; i < batch.n; i++)
        batch.out[i].bytes = 1 + 4000 * i;
    there_and_back();
    ck_assert_uint_eq(batch.back[3].bytes, 64 * KIB);
    for (unsigned i = 0; i < batch.n; i++)
        ck_assert_uint_eq(((uint8_t *)batch.back[i].data)[batch.out[i].bytes], 0xEE);
}
END_TEST

START_TEST(all_or_none_comes_back) {
    make_batch(300, equal, true);
    ok(spill());
    const struct spillway_region region = batch.requests[290].region;
    batch.requests[290].region = (struct spillway_region){7, 7777};
    ck_assert_int_eq(restore(), -SPILLWAY_ENOENT);
    ck_assert_ptr_nonnull(strstr(error.text, "request 291 of 300"));
    ck_assert_uint_eq(n_regions(), 300);
    batch.requests[290].region = region;
    batch.back[10].bytes = 100;
    ck_assert_int_eq(restore(), -SPILLWAY_ETOOSMALL);
    batch.back[10].bytes = 64 * KIB;
    ok(restore());
    ck_back();
    ck_assert_uint_eq(n_regions(), 0);
}
END_TEST

START_TEST(each_comes_back_by_itself) {
    make_batch(300, equal, true);
    keep_all(SPILLWAY_EACH);
    ok(spill());
    for (unsigned i = 0; i < 300; i++) /* texts, too, are each result's own */
        ck_assert_int_eq(strcmp(batch.results[i].codec, "raw") == 0, batch.results[i].stored_bytes >= 64 * KIB);
    const struct spillway_region region = batch.requests[90].region;
    batch.requests[90].region = (struct spillway_region){7, 7777};
    ck_assert_int_eq(restore(), -SPILLWAY_ENOENT);
    ck_assert_ptr_nonnull(strstr(error.text, "request 91 of 300"));
    for (unsigned i = 0; i < 300; i++) {
        ck_assert_int_eq(batch.results[i].code, i == 90 ? -SPILLWAY_ENOENT : 0);
        if (i != 90)
            ck_assert_int_eq(memcmp(batch.out[i].data, batch.back[i].data, 64 * KIB), 0);
    }
    ck_assert_uint_eq(n_regions(), 1);
    ok(spillway_drop(coding, &region, 1, &error));
}
END_TEST

/* Restores of one call to the same bytes: the last one or another has them, and no region looks damaged. */
START_TEST(destinations_may_overlap) {
    make_batch(8, equal, false);
    ok(spill());
    for (unsigned i = 0; i < batch.n; i++)
        batch.back[i].data = batch.to;
    const int rc = restore();
    ck_assert_msg(rc == 0 || rc == -SPILLWAY_EINVAL, "%s", error.text);
    if (rc)
        drop_all();
}
END_TEST

START_TEST(types_and_lengths_are_checked_as_ever) {
    make_batch(3, equal, false);
    batch.out[1].type = SPILLWAY_U32;
    batch.out[1].bytes = 4098;
    ck_assert_int_eq(spill(), -SPILLWAY_EINVAL);
    ck_assert_uint_eq(n_regions(), 0);
    batch.out[1].bytes = 4096;
    ok(spill());
    ok(restore());
    ck_back();
}
END_TEST

/* Begins to spill the batch, and waits for a moment. */
static struct spillway_ticket *begin_to_spill(unsigned us) {
    struct spillway_ticket *ticket;
    for (unsigned i = 0; i < batch.n; i++) {
        batch.requests[i].buffers = &batch.out[i];
        batch.requests[i].region = (struct spillway_region){0};
    }
    ok(spillway_spill(coding, batch.requests, batch.n, &ticket, &error));
    (void)nanosleep(&(struct timespec){.tv_nsec = (long)us * 1000}, NULL);
    return ticket;
}

START_TEST(canceled_calls_leave_nothing) {
    make_batch(MOST, equal, true);
    for (unsigned us = 0; us < 40000; us += 2000 * FEWER) {
        struct spillway_ticket *ticket = begin_to_spill(us);
        ok(spillway_cancel(ticket, &error));
        const int rc = finish(ticket);
        ck_assert(rc == 0 || rc == -SPILLWAY_ECANCELED);
        for (unsigned i = 0; rc == 0 && i < batch.n; i++)
            ok(spillway_drop(coding, &batch.results[i].region, 1, &error));
        ck_assert_uint_eq(n_regions(), 0);
    }
    there_and_back();
}
END_TEST

START_TEST(a_connection_can_be_closed_at_any_time) {
    make_batch(MOST, equal, true);
    for (unsigned us = 0; us < 30000; us += 3000) {
        (void)begin_to_spill(us);
        spillway_close(coding);
        before_each();
    }
    there_and_back();
}
END_TEST

/* Calls of one connection go side by side. */
START_TEST(several_calls_at_once) {
    enum { CALLS = 20, PART = MOST / CALLS };
    struct spillway_ticket *tickets[CALLS];
    make_batch(MOST, equal, true);
    for (unsigned round = 0; round < 2; round++) {
        for (unsigned i = 0; i < MOST; i++)
            batch.requests[i].buffers = round ? &batch.back[i] : &batch.out[i];
        for (unsigned k = 0; k < CALLS; k++)
            ok((round ? spillway_restore : spillway_spill)(coding, &batch.requests[k * PART], PART, &tickets[k],
                                                           &error));
        for (unsigned k = 0; k < CALLS; k++) {
            batch.results[k * PART].size = sizeof batch.results[0];
            ok(spillway_wait(tickets[k], WAIT_MS, &batch.results[k * PART], PART, &error));
            spillway_ticket_free(tickets[k]);
        }
        ck_coder("client");
        for (unsigned i = 0; i < MOST; i++)
            batch.requests[i].region = batch.results[i].region;
    }
    ck_back();
    ck_assert_uint_eq(n_regions(), 0);
}
END_TEST

int main(void) {
    TCase *tcase = tcase_create("short");
    Suite *suite = suite_create("coded short regions");
    sw_test_slow(tcase, 60);
    tcase_add_unchecked_fixture(tcase, sw_served_start, sw_served_stop);
    tcase_add_checked_fixture(tcase, before_each, after_each);
    tcase_add_test(tcase, single_regions_come_back);
    tcase_add_loop_test(tcase, batches_come_back, 0, 4);
    tcase_add_test(tcase, the_service_decodes_what_the_client_has_encoded);
    tcase_add_test(tcase, the_client_decodes_what_the_service_has_encoded);
    tcase_add_loop_test(tcase, regions_that_have_no_frame_are_the_services, 0, 2);
    tcase_add_test(tcase, longer_buffers_get_what_there_is);
    tcase_add_test(tcase, all_or_none_comes_back);
    tcase_add_test(tcase, each_comes_back_by_itself);
    tcase_add_test(tcase, destinations_may_overlap);
    tcase_add_test(tcase, types_and_lengths_are_checked_as_ever);
    tcase_add_test(tcase, canceled_calls_leave_nothing);
    tcase_add_test(tcase, a_connection_can_be_closed_at_any_time);
    tcase_add_test(tcase, several_calls_at_once);
    suite_add_tcase(suite, tcase);
    return sw_test_run(suite, CK_FORK);
}
