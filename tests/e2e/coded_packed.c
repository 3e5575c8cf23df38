/* Regions that are packed and unpacked in the client's process, through a real spillwayd on the host device: nothing is
 * lost whatever fails, and the service knows what there is, or need not be there. */
#include "ipc/client/client.h"
#include "ipc/spillway.h"
#include "tests/lib/content.h"
#include "tests/lib/requests.h"
#include "tests/lib/run.h"
#include "tests/lib/served.h"

#include <check.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define MIB ((size_t)1 << 20)
enum { WAIT_MS = 120000, MAX_CHUNKS = 64 };
/* A sanitizer sees the same accesses at fewer times. */
enum { TIMES = SW_TEST_EVERY > 1 ? 2 : 6, ENDS = SW_TEST_EVERY > 1 ? 1 : 3 };
static const size_t bytes = 9 * MIB + 4096;

static struct spillway *here, *plain; /* with the codec in this process, and in the service */
static struct spillway_error error;
static uint8_t *data, *original;

static struct spillway *connect_as(uint32_t flags) {
    struct spillway *c = NULL;
    const int rc = spillway_open(&c, SW_OPTIONS(.socket_path = sw_served_daemon.socket, .flags = flags), &error);
    ck_assert_msg(rc == 0, "%s: %s", error.name, error.text);
    return c;
}

/* The first quarter does not shrink: its frames begin in the heap. */
static void before_each(void) {
    here = connect_as(SPILLWAY_CODEC_CLIENT);
    plain = connect_as(SPILLWAY_CODEC_SERVICE);
    data = sw_served_memory(bytes); /* the service can open it */
    original = malloc(bytes);
    ck_assert_ptr_nonnull(original);
    sw_content_fill(original, bytes / 4, SW_CONTENT_RANDOM, 1);
    sw_content_fill(original + bytes / 4, bytes - bytes / 4, SW_CONTENT_HEX, 2);
    memcpy(data, original, bytes);
}

static void after_each(void) {
    spillway_close(here);
    sw_served_close(plain);
    free(original);
}

static void before_each_alone(void) {
    sw_served_start();
    before_each();
}

/* The test may have ended the service. */
static void after_each_alone(void) {
    spillway_close(here);
    spillway_close(plain);
    if (sw_served_daemon.pid)
        (void)sw_test_daemon_stop(&sw_served_daemon, SIGKILL);
    sw_test_daemon_clean(&sw_served_daemon);
    free(original);
}

static void ok(int rc) {
    ck_assert_msg(rc == 0, "%s: %s", error.name, error.text);
}

static struct spillway_ticket *pack(struct spillway *c) {
    struct spillway_ticket *ticket = NULL;
    ok(spillway_spill(c, SW_REQUEST(SW_ONE(data, bytes), .flags = SPILLWAY_IN_PLACE), 1, &ticket, &error));
    return ticket;
}

static struct spillway_ticket *unpack(struct spillway *c, struct spillway_region region) {
    struct spillway_ticket *ticket = NULL;
    ok(spillway_restore(c, SW_REQUEST(SW_ONE(data, bytes), .region = region, .flags = SPILLWAY_IN_PLACE), 1, &ticket,
                        &error));
    return ticket;
}

static int finish(struct spillway_ticket *ticket, struct spillway_result *ret) {
    ret->size = sizeof *ret;
    const int rc = spillway_wait(ticket, WAIT_MS, ret, 1, &error);
    spillway_ticket_free(ticket);
    return rc;
}

/* Packs here, and overwrites what is free then. */
static struct spillway_region packed(void) {
    struct spillway_result result;
    memcpy(data, original, bytes);
    ok(finish(pack(here), &result));
    ck_assert_str_eq(result.coder, "client");
    ck_assert_str_eq(result.tier, "device");
    ck_assert(result.raw_bytes == bytes && result.stored_bytes < bytes && result.codec[0] && result.reason[0]);
    memset(data + result.stored_bytes, 0xDB, bytes - result.stored_bytes);
    return result.region;
}

static bool is_original(void) {
    return memcmp(data, original, bytes) == 0;
}

static void unpacked(struct spillway_region region) {
    struct spillway_result result;
    ok(finish(unpack(here, region), &result));
    ck_assert_str_eq(result.coder, "client");
    ck_assert_str_eq(result.tier, "device");
    ck_assert_uint_eq(result.raw_bytes, bytes);
    ck_assert(is_original());
}

static void ck_regions(unsigned n) {
    const struct spillway_status status = sw_served_status(plain);
    ck_assert_uint_eq(status.regions, n);
    ck_assert_uint_eq(status.tier_used_bytes, 0);
}

/* ---- what the service sees --------------------------------------------------------------------------------------- */

START_TEST(the_service_knows_the_region_and_has_nothing_of_it) {
    struct spillway_region_info info = {.size = sizeof info};
    const uint64_t mapped = sw_served_status(plain).mapped_memories;
    ok(spillway_prepare(here, data, &error));
    const uint64_t buffers = sw_served_status(plain).mapped_memories - mapped;
    for (unsigned i = 0; i < 2; i++) {
        const struct spillway_region region = packed();
        ck_regions(1);
        ck_assert_uint_eq(sw_served_status(plain).mapped_memories, mapped + buffers);
        ok(spillway_query(here, region, &info, &error));
        ck_assert_str_eq(info.state, "out");
        ck_assert_str_eq(info.tier, "device");
        ck_assert(info.raw_bytes == bytes && info.stored_bytes < bytes);
        unpacked(region);
        ck_assert_int_eq(spillway_query(here, region, &info, &error), -SPILLWAY_ESTALE);
        ck_regions(0);
    }
}
END_TEST

START_TEST(a_dropped_region_is_gone) {
    struct spillway_packed_chunk chunk;
    struct spillway_result result;
    uint32_t n;
    struct spillway_region region = packed();
    ok(spillway_query_packed(here, region, &chunk, 1, &n, &error));
    ok(spillway_drop(here, &region, 1, &error));
    ck_regions(0);
    ck_assert_int_eq(spillway_query_packed(here, region, &chunk, 1, &n, &error), -SPILLWAY_ESTALE);
    ck_assert_int_eq(finish(unpack(here, region), &result), -SPILLWAY_ESTALE);
    memcpy(data, original, bytes); /* freed without a look at the result */
    struct spillway_ticket *ticket = pack(here);
    ok(spillway_wait(ticket, WAIT_MS, NULL, 0, &error));
    spillway_ticket_free(ticket);
    (void)spillway_query_packed(here, region, &chunk, 1, &n, &error); /* the drop has been sent before */
    ck_regions(0);
}
END_TEST

/* Only the connection that has packed a region can unpack it, and the service says why it cannot. */
START_TEST(nothing_else_unpacks_it) {
    struct spillway_result result;
    const struct spillway_region region = packed();
    ck_assert_int_eq(finish(unpack(plain, region), &result), -SPILLWAY_ENOENT);
    struct spillway_ticket *ticket;
    ok(spillway_restore(here, SW_REQUEST(SW_ONE(data, bytes), .region = region), 1, &ticket, &error));
    ck_assert_int_eq(finish(ticket, &result), -SPILLWAY_EINVAL);
    unpacked(region);
}
END_TEST

START_TEST(the_client_s_death_leaves_nothing) {
    int ready[2];
    char byte;
    ck_assert_int_eq(pipe(ready), 0);
    const pid_t child = fork();
    ck_assert_int_ge(child, 0);
    if (child == 0) {
        here = connect_as(SPILLWAY_CODEC_CLIENT);
        (void)packed();
        byte = 1;
        _exit(write(ready[1], &byte, 1) == 1 && pause());
    }
    ck_assert_int_eq(read(ready[0], &byte, 1), 1);
    ck_regions(1);
    ck_assert_int_eq(kill(child, SIGKILL), 0);
    ck_assert_int_eq(waitpid(child, NULL, 0), child);
    for (unsigned i = 0; i < 1000 && sw_served_status(plain).regions; i++)
        (void)usleep(10000);
    ck_regions(0);
    (void)close(ready[0]);
    (void)close(ready[1]);
}
END_TEST

/* ---- what is refused --------------------------------------------------------------------------------------------- */

static void exchange(uint8_t *a, uint8_t *b, size_t n) {
    for (size_t i = 0; i < n; i++) {
        const uint8_t byte = a[i];
        a[i] = b[i];
        b[i] = byte;
    }
}

/* Each pair of frames, before any byte is written. */
START_TEST(frames_that_changed_places_are_refused) {
    struct spillway_packed_chunk chunks[MAX_CHUNKS];
    struct spillway_result result;
    uint8_t *before = malloc(bytes);
    uint32_t n;
    memset(original, 'x', bytes / 4); /* frames that begin in memory, all of them */
    const struct spillway_region region = packed();
    ok(spillway_query_packed(here, region, chunks, MAX_CHUNKS, &n, &error));
    ck_assert_uint_ge(n, 3);
    unsigned n_pairs = 0;
    for (uint32_t i = 0; i < n; i++)
        for (uint32_t k = i + 1; k < n; k++) {
            uint8_t *a = data + chunks[i].offset, *b = data + chunks[k].offset;
            const size_t common = chunks[i].bytes < chunks[k].bytes ? chunks[i].bytes : chunks[k].bytes;
            if (memcmp(a, b, common) == 0)
                continue;
            n_pairs++;
            exchange(a, b, common);
            memcpy(before, data, bytes);
            ck_assert_int_eq(finish(unpack(here, region), &result), -SPILLWAY_ECHECKSUM);
            ck_assert_int_eq(memcmp(data, before, bytes), 0);
            exchange(a, b, common);
        }
    ck_assert_uint_gt(n_pairs, 0);
    ck_regions(1);
    unpacked(region);
    free(before);
}
END_TEST

START_TEST(memory_in_use_is_refused) {
    struct spillway_result result;
    struct spillway_ticket *ticket, *other;
    ok(spillway_prepare(here, data, &error));
    ticket = pack(here);
    ck_assert_int_eq(spillway_spill(here, SW_REQUEST(SW_ONE(data + 10, 100)), 1, &other, &error), -SPILLWAY_EBUSY);
    ck_assert_int_eq(spillway_spill(here, SW_REQUEST(SW_ONE(data + bytes - MIB, MIB), .flags = SPILLWAY_IN_PLACE), 1,
                                    &other, &error),
                     -SPILLWAY_EBUSY);
    ok(finish(ticket, &result));
    const struct spillway_region region = result.region;
    ck_assert_int_eq(kill(sw_served_daemon.pid, SIGSTOP), 0); /* so that the spill does not end before */
    ok(spillway_spill(here, SW_REQUEST(SW_ONE(data, MIB)), 1, &other, &error));
    ck_assert_int_eq(spillway_restore(here,
                                      SW_REQUEST(SW_ONE(data, bytes), .region = region, .flags = SPILLWAY_IN_PLACE), 1,
                                      &ticket, &error),
                     -SPILLWAY_EBUSY);
    ck_assert_int_eq(kill(sw_served_daemon.pid, SIGCONT), 0);
    ok(finish(other, &result));
    uint8_t *copy = malloc(bytes);
    memcpy(copy, data, bytes);
    ticket = unpack(here, region); /* that it was refused has left nothing */
    ok(spillway_restore(here, SW_REQUEST(SW_ONE(copy, bytes), .region = region, .flags = SPILLWAY_IN_PLACE), 1, &other,
                        &error));
    ck_assert_int_eq(finish(other, &result), -SPILLWAY_EBUSY);
    ok(finish(ticket, &result));
    ck_assert(is_original());
    free(copy);
}
END_TEST

START_TEST(too_little_memory_is_refused) {
    struct spillway_result result;
    struct spillway_ticket *ticket;
    const struct spillway_region region = packed();
    ok(spillway_restore(here, SW_REQUEST(SW_ONE(data, bytes - 1), .region = region, .flags = SPILLWAY_IN_PLACE), 1,
                        &ticket, &error));
    ck_assert_int_eq(finish(ticket, &result), -SPILLWAY_ETOOSMALL);
    unpacked(region);
}
END_TEST

static void drain(const char *mode) {
    char line[512];
    (void)snprintf(line, sizeof line, "'%s' --socket '%s' drain %s >/dev/null", SW_SPILLWAYCTL_PATH,
                   sw_served_daemon.control, mode);
    ck_assert_int_eq(system(line), 0); /* NOLINT(cert-env33-c): paths of the build */
}

START_TEST(a_pack_that_the_service_refuses_is_undone) {
    struct spillway_result result;
    drain("on");
    ck_assert_int_eq(finish(pack(here), &result), -SPILLWAY_EDRAINING);
    ck_assert(is_original());
    ck_regions(0);
    drain("off");
    unpacked(packed());
}
END_TEST

/* ---- calls that end early ---------------------------------------------------------------------------------------- */

static void sleep_us(unsigned us) {
    const struct timespec pause = {.tv_nsec = (long)us * 1000};
    (void)nanosleep(&pause, NULL);
}

START_TEST(a_canceled_pack_is_undone) {
    struct spillway_result result;
    ok(spillway_prepare(here, data, &error));
    for (unsigned us = 0; us < 16000; us += 16000 / TIMES) {
        memcpy(data, original, bytes);
        struct spillway_ticket *ticket = pack(here);
        sleep_us(us);
        ok(spillway_cancel(ticket, &error));
        const int rc = finish(ticket, &result);
        ck_assert_msg(rc == 0 || rc == -SPILLWAY_ECANCELED, "%s", error.text);
        if (rc == 0)
            unpacked(result.region);
        ck_assert(is_original());
        ck_regions(0);
    }
}
END_TEST

/* The call is canceled while the service, which is about to know the region, does not answer. */
START_TEST(a_pack_that_is_canceled_before_the_answer_leaves_no_region) {
    struct spillway_status status = {.size = sizeof status};
    struct spillway_result result;
    ok(spillway_prepare(here, data, &error));
    ck_assert_int_eq(kill(sw_served_daemon.pid, SIGSTOP), 0);
    struct spillway_ticket *ticket = pack(here);
    do
        ck_assert_int_eq(spillway_wait(ticket, 50, NULL, 0, &error), -SPILLWAY_EAGAIN);
    while (is_original());
    ck_assert_int_eq(spillway_wait(ticket, 100, NULL, 0, &error), -SPILLWAY_EAGAIN); /* the service is told meanwhile */
    ok(spillway_cancel(ticket, &error));
    ck_assert_int_eq(kill(sw_served_daemon.pid, SIGCONT), 0);
    ck_assert_int_eq(finish(ticket, &result), -SPILLWAY_ECANCELED);
    ck_assert(is_original());
    ok(spillway_status(here, &status, &error)); /* behind what else this connection has sent */
    ck_regions(0);
}
END_TEST

/* Its error is that of the time limit, not of the cancel by which the library ends it. */
START_TEST(an_unpack_ends_at_its_time_limit) {
    struct spillway_result result;
    for (unsigned i = 0; i < TIMES; i++) {
        const struct spillway_region region = packed();
        struct spillway_ticket *ticket = NULL;
        ok(spillway_restore(
            here, SW_REQUEST(SW_ONE(data, bytes), .region = region, .flags = SPILLWAY_IN_PLACE, .timeout_ms = 1), 1,
            &ticket, &error));
        sleep_us(i * 500);
        const int rc = finish(ticket, &result);
        ck_assert_msg(rc == 0 || rc == -SPILLWAY_ETIMEDOUT, "%s: %s", error.name, error.text);
        ck_assert_int_eq(result.code, rc);
        if (rc)
            unpacked(region);
        ck_assert(is_original());
    }
}
END_TEST

START_TEST(a_canceled_unpack_can_be_repeated) {
    struct spillway_result result;
    for (unsigned us = 0; us < 8000; us += 8000 / TIMES) {
        const struct spillway_region region = packed();
        struct spillway_ticket *ticket = unpack(here, region);
        sleep_us(us);
        ok(spillway_cancel(ticket, &error));
        const int rc = finish(ticket, &result);
        ck_assert_msg(rc == 0 || rc == -SPILLWAY_ECANCELED, "%s", error.text);
        ck_regions(rc != 0);
        if (rc)
            unpacked(region);
        ck_assert(is_original());
    }
}
END_TEST

START_TEST(a_connection_can_be_closed_at_any_time) {
    for (unsigned us = 0; us < 16000; us += 16000 / TIMES) {
        memcpy(data, original, bytes);
        ok(spillway_prepare(here, data, &error));
        struct spillway_ticket *ticket = pack(here);
        sleep_us(us);
        const bool has_ended = spillway_wait(ticket, 0, NULL, 0, &error) == 0;
        spillway_close(here);
        ck_assert(has_ended || is_original());
        here = connect_as(SPILLWAY_CODEC_CLIENT);
    }
}
END_TEST

/* ---- several in one call ----------------------------------------------------------------------------------------- */

enum { N = 6 };

/* Every third one the service has packed, every third one is spilled. */
START_TEST(calls_may_mix_what_is_packed_where) {
    struct spillway_request requests[N] = {{0}};
    struct spillway_buffer buffers[N];
    struct spillway_result results[N] = {{.size = sizeof results[0]}};
    struct spillway_ticket *ticket;
    uint8_t *shared = sw_served_memory(bytes); /* the service can pack it, too */
    const size_t each = MIB;
    memcpy(shared, original, N * each);
    for (unsigned i = 0; i < N; i++)
        buffers[i] = (struct spillway_buffer){.data = shared + i * each, .bytes = each};
    buffers[1].bytes = 0; /* for the service */
    sw_requests_of_each(requests, buffers, N);
    for (unsigned i = 0; i < N; i++)
        requests[i].flags = SPILLWAY_EACH | (i % 3 < 2 ? SPILLWAY_IN_PLACE : 0);
    ok(spillway_spill(here, requests, N, &ticket, &error));
    ok(spillway_wait(ticket, WAIT_MS, results, N, &error));
    spillway_ticket_free(ticket);
    for (unsigned i = 0; i < N; i++) {
        ck_assert_int_eq(results[i].code, 0);
        ck_assert_str_eq(results[i].coder, i % 3 < 2 && i != 1 ? "client" : "daemon");
        ck_assert_str_eq(results[i].tier, i % 3 < 2 ? "device" : "host");
        memset(shared + i * each + (i % 3 < 2 ? results[i].stored_bytes : 0), 0xCC,
               each - (i % 3 < 2 ? results[i].stored_bytes : 0));
    }
    ck_assert_uint_eq(sw_served_status(plain).regions, N);
    sw_requests_take_regions(requests, results, N);
    ok(spillway_restore(here, requests, N, &ticket, &error));
    ok(spillway_wait(ticket, WAIT_MS, results, N, &error));
    spillway_ticket_free(ticket);
    for (unsigned i = 0; i < N; i++)
        ck_assert(i == 1 || memcmp(shared + i * each, original + i * each, each) == 0);
    ck_regions(0);
}
END_TEST

/* More than are packed at a time. */
START_TEST(many_regions_are_packed_by_one_call) {
    enum { MANY = 130, EACH_BYTES = 64 << 10 };
    static struct spillway_request requests[MANY];
    static struct spillway_buffer buffers[MANY];
    static struct spillway_result results[MANY];
    struct spillway_ticket *ticket;
    results[0].size = sizeof results[0];
    for (unsigned i = 0; i < MANY; i++)
        buffers[i] = (struct spillway_buffer){.data = data + (size_t)i * EACH_BYTES, .bytes = EACH_BYTES};
    sw_requests_of_each(requests, buffers, MANY);
    for (unsigned i = 0; i < MANY; i++)
        requests[i].flags = SPILLWAY_EACH | SPILLWAY_IN_PLACE;
    ok(spillway_spill(here, requests, MANY, &ticket, &error));
    ok(spillway_wait(ticket, WAIT_MS, results, MANY, &error));
    spillway_ticket_free(ticket);
    for (unsigned i = 0; i < MANY; i++)
        ck_assert_str_eq(results[i].coder, "client");
    sw_requests_take_regions(requests, results, MANY);
    ok(spillway_restore(here, requests, MANY, &ticket, &error));
    ok(spillway_wait(ticket, WAIT_MS, results, MANY, &error));
    spillway_ticket_free(ticket);
    ck_assert(is_original());
    ck_regions(0);
}
END_TEST

/* By two calls at once, neither of which uses the other's memory. */
START_TEST(neighbours_are_packed_at_the_same_time) {
    struct spillway_ticket *tickets[2];
    struct spillway_result results[2];
    for (unsigned i = 0; i < 2; i++)
        ok(spillway_spill(here, SW_REQUEST(SW_ONE(data + i * MIB, MIB), .flags = SPILLWAY_IN_PLACE), 1, &tickets[i],
                          &error));
    for (unsigned i = 0; i < 2; i++)
        ok(finish(tickets[i], &results[i]));
    for (unsigned i = 0; i < 2; i++)
        ok(spillway_restore(
            here, SW_REQUEST(SW_ONE(data + i * MIB, MIB), .region = results[i].region, .flags = SPILLWAY_IN_PLACE), 1,
            &tickets[i], &error));
    for (unsigned i = 0; i < 2; i++)
        ok(finish(tickets[i], &results[i]));
    ck_assert(is_original());
    ck_regions(0);
}
END_TEST

START_TEST(one_of_several_may_fail) {
    struct spillway_request requests[3] = {{0}};
    struct spillway_buffer buffers[3];
    struct spillway_result results[3] = {{.size = sizeof results[0]}};
    struct spillway_ticket *ticket;
    const size_t each = 2 * MIB;
    for (unsigned i = 0; i < 3; i++)
        buffers[i] = (struct spillway_buffer){.data = data + i * each, .bytes = each};
    sw_requests_of_each(requests, buffers, 3);
    for (unsigned i = 0; i < 3; i++)
        requests[i].flags = SPILLWAY_EACH | SPILLWAY_IN_PLACE;
    ok(spillway_spill(here, requests, 3, &ticket, &error));
    ok(spillway_wait(ticket, WAIT_MS, results, 3, &error));
    spillway_ticket_free(ticket);
    sw_requests_take_regions(requests, results, 3);
    data[each + 5] ^= 1; /* the header of its frame */
    ok(spillway_restore(here, requests, 3, &ticket, &error));
    ck_assert_int_lt(spillway_wait(ticket, WAIT_MS, results, 3, &error), 0);
    ck_assert_ptr_nonnull(strstr(error.text, "request 2 of 3"));
    spillway_ticket_free(ticket);
    ck_assert(results[0].code == 0 && results[1].code == error.code && results[2].code == 0);
    ck_assert(memcmp(data, original, each) == 0 && memcmp(data + 2 * each, original + 2 * each, each) == 0);
    ck_regions(1);
    data[each + 5] ^= 1;
    ok(spillway_restore(here, &requests[1], 1, &ticket, &error));
    ok(finish(ticket, &results[1]));
    ck_assert(is_original());
}
END_TEST

/* The first one fails here, and the service restores the other: the call's error is still the first one's. */
START_TEST(one_that_fails_here_fails_a_call_that_the_service_ends) {
    struct spillway_request requests[2] = {{0}};
    struct spillway_buffer buffers[2];
    struct spillway_result results[2] = {{.size = sizeof results[0]}};
    struct spillway_ticket *ticket;
    for (unsigned i = 0; i < 2; i++)
        buffers[i] = (struct spillway_buffer){.data = data + i * MIB, .bytes = MIB};
    sw_requests_of_each(requests, buffers, 2);
    for (unsigned i = 0; i < 2; i++)
        requests[i].flags = SPILLWAY_EACH | (i ? 0 : SPILLWAY_IN_PLACE);
    ok(spillway_spill(here, requests, 2, &ticket, &error));
    ok(spillway_wait(ticket, WAIT_MS, results, 2, &error));
    spillway_ticket_free(ticket);
    sw_requests_take_regions(requests, results, 2);
    data[5] ^= 1;
    memset(data + MIB, 0, MIB);
    ok(spillway_restore(here, requests, 2, &ticket, &error));
    ck_assert_int_lt(spillway_wait(ticket, WAIT_MS, results, 2, &error), 0);
    spillway_ticket_free(ticket);
    ck_assert(results[0].code == error.code && results[1].code == 0);
    ck_assert_mem_eq(data + MIB, original + MIB, MIB);
    data[5] ^= 1;
    ok(spillway_restore(here, requests, 1, &ticket, &error));
    ok(finish(ticket, &results[0]));
    ck_assert(is_original());
}
END_TEST

/* ---- the service's end ------------------------------------------------------------------------------------------- */

static void end_service(void) {
    ck_assert_int_eq(sw_test_daemon_stop(&sw_served_daemon, SIGKILL), -SIGKILL);
}

START_TEST(a_region_is_unpacked_without_a_service) {
    struct spillway_packed_chunk chunks[MAX_CHUNKS];
    struct spillway_result result;
    uint32_t n;
    const struct spillway_region region = packed(), other = {region.slot + 1, region.generation};
    spillway_set_reconnect(here, 0);
    end_service();
    while (spillway_dispatch(here, &error) >= 0)
        sleep_us(1000);
    struct spillway_ticket *ticket;
    ck_assert_int_eq(spillway_restore(here,
                                      SW_REQUEST(SW_ONE(data, bytes), .region = other, .flags = SPILLWAY_IN_PLACE), 1,
                                      &ticket, &error),
                     -SPILLWAY_ECONN);
    ck_assert_int_eq(
        spillway_spill(here, SW_REQUEST(SW_ONE(data, bytes), .flags = SPILLWAY_IN_PLACE), 1, &ticket, &error),
        -SPILLWAY_ECONN);
    ok(spillway_query_packed(here, region, chunks, MAX_CHUNKS, &n, &error));
    data[chunks[n - 1].offset + 9] ^= 1;
    ck_assert_int_eq(finish(unpack(here, region), &result), -SPILLWAY_ECHECKSUM);
    data[chunks[n - 1].offset + 9] ^= 1;
    unpacked(region);
    ck_assert_int_lt(spillway_restore(here,
                                      SW_REQUEST(SW_ONE(data, bytes), .region = region, .flags = SPILLWAY_IN_PLACE), 1,
                                      &ticket, &error),
                     0);
}
END_TEST

/* At any time: it is undone, unless the service had the region before. */
START_TEST(a_pack_is_undone_when_the_service_ends) {
    struct spillway_result result;
    ok(spillway_prepare(here, data, &error));
    spillway_set_reconnect(here, 0);
    struct spillway_ticket *ticket = pack(here);
    sleep_us(500 + (unsigned)_i * 4000);
    end_service();
    const int rc = finish(ticket, &result);
    if (rc == 0)
        unpacked(result.region);
    else
        ck_assert_msg(rc == -SPILLWAY_ECONN, "%s: %s", error.name, error.text);
    ck_assert(is_original());
}
END_TEST

START_TEST(an_unpack_goes_on_when_the_service_ends) {
    struct spillway_result result;
    const struct spillway_region region = packed();
    spillway_set_reconnect(here, 0);
    struct spillway_ticket *ticket = unpack(here, region);
    sleep_us((unsigned)_i * 2500);
    end_service();
    ok(finish(ticket, &result));
    ck_assert(is_original());
}
END_TEST

/* Its connections use the same frame buffers, which it may still write to: packed regions come back all the same. */
START_TEST(a_service_that_hangs_spoils_nothing) {
    uint8_t *more = malloc(bytes);
    struct spillway_result result;
    struct spillway_ticket *ticket;
    struct spillway *other = connect_as(SPILLWAY_CODEC_CLIENT);
    const struct spillway_region region = packed();
    ok(spillway_spill(other, SW_REQUEST(SW_ONE(original, bytes)), 1, &ticket, &error));
    ok(finish(ticket, &result));
    ck_assert_str_eq(result.coder, "client");
    sw_test_daemon_pause(&sw_served_daemon);
    ok(spillway_restore(other, SW_REQUEST(SW_ONE(more, bytes), .region = result.region, .flags = SPILLWAY_KEEP), 1,
                        &ticket, &error));
    ck_assert_int_eq(spillway_wait(ticket, 500, &result, 1, &error), -SPILLWAY_EAGAIN);
    spillway_close(other); /* ten seconds */
    unpacked(region);
    ck_assert_int_eq(kill(sw_served_daemon.pid, SIGCONT), 0);
    ok(finish(pack(here), &result));
    ck_assert_str_eq(result.tier, "device");
    ok(finish(unpack(here, result.region), &result));
    ck_assert(is_original());
    free(more);
}
END_TEST

/* Returns whether the service was told of a pack, and has not answered. */
static bool is_told(struct spillway *c) {
    ck_assert_int_eq(sw_client_enter(c, NULL), 0);
    const bool ret = c->n_in_flight > 0;
    sw_client_leave(c);
    return ret;
}

/* Nobody would know the region. */
START_TEST(a_pack_that_a_hanging_service_was_told_of_is_undone) {
    ok(spillway_prepare(here, data, &error));
    sw_test_daemon_pause(&sw_served_daemon);
    struct spillway_ticket *ticket = pack(here);
    do
        ck_assert_int_eq(spillway_wait(ticket, 10, NULL, 0, &error), -SPILLWAY_EAGAIN);
    while (!is_told(here));
    ck_assert(!is_original());
    spillway_close(here);
    ck_assert(is_original());
    ck_assert_int_eq(kill(sw_served_daemon.pid, SIGCONT), 0);
    here = connect_as(SPILLWAY_CODEC_CLIENT);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("coded_packed");
    TCase *served = tcase_create("served"), *alone = tcase_create("the service's end");
    sw_test_slow(served, 60);
    sw_test_slow(alone, 60);
    tcase_add_unchecked_fixture(served, sw_served_start, sw_served_stop);
    tcase_add_checked_fixture(served, before_each, after_each);
    tcase_add_test(served, the_service_knows_the_region_and_has_nothing_of_it);
    tcase_add_test(served, a_dropped_region_is_gone);
    tcase_add_test(served, nothing_else_unpacks_it);
    tcase_add_test(served, the_client_s_death_leaves_nothing);
    tcase_add_test(served, frames_that_changed_places_are_refused);
    tcase_add_test(served, memory_in_use_is_refused);
    tcase_add_test(served, too_little_memory_is_refused);
    tcase_add_test(served, a_pack_that_the_service_refuses_is_undone);
    tcase_add_test(served, a_canceled_pack_is_undone);
    tcase_add_test(served, a_pack_that_is_canceled_before_the_answer_leaves_no_region);
    tcase_add_test(served, an_unpack_ends_at_its_time_limit);
    tcase_add_test(served, a_canceled_unpack_can_be_repeated);
    tcase_add_test(served, a_connection_can_be_closed_at_any_time);
    tcase_add_test(served, calls_may_mix_what_is_packed_where);
    tcase_add_test(served, many_regions_are_packed_by_one_call);
    tcase_add_test(served, neighbours_are_packed_at_the_same_time);
    tcase_add_test(served, one_of_several_may_fail);
    tcase_add_test(served, one_that_fails_here_fails_a_call_that_the_service_ends);
    tcase_add_checked_fixture(alone, before_each_alone, after_each_alone);
    tcase_add_test(alone, a_region_is_unpacked_without_a_service);
    tcase_add_loop_test(alone, a_pack_is_undone_when_the_service_ends, 0, ENDS);
    tcase_add_loop_test(alone, an_unpack_goes_on_when_the_service_ends, 0, ENDS);
    tcase_add_test(alone, a_service_that_hangs_spoils_nothing);
    tcase_add_test(alone, a_pack_that_a_hanging_service_was_told_of_is_undone);
    suite_add_tcase(suite, served);
    suite_add_tcase(suite, alone);
    return sw_test_run(suite, CK_FORK);
}
