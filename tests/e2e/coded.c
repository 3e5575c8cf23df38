/* Regions that the client encodes and decodes itself, through a real spillwayd on the host device: the same bytes come
 * back, whether client or service decodes them; errors are as with the service's codec. */
#include "base/alloc.h"
#include "ipc/spillway.h"
#include "tests/lib/content.h"
#include "tests/lib/descriptors.h"
#include "tests/lib/run.h"
#include "tests/lib/served.h"
#include "tests/lib/tpch_text.h"
#include <check.h>
#include <inttypes.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define MIB ((size_t)1 << 20)
/* Under a sanitizer long regions are shorter, but still of several chunks. */
enum { WAIT_MS = 120000, SHORTER = SW_TEST_EVERY > 1 ? 4 : 1 };

static struct spillway *coding, *plain; /* with the codec in this process, and in the service */
static struct spillway_error error;
static unsigned fds_before;

static struct spillway *connect_as(uint32_t flags) {
    const struct spillway_options options = {
        .size = sizeof options, .socket_path = sw_served_daemon.socket, .flags = flags};
    struct spillway *c = NULL;
    ck_assert_msg(spillway_open(&c, &options, &error) == 0, "%s: %s", error.name, error.text);
    return c;
}

static void before_each(void) {
    fds_before = sw_count_fds();
    coding = connect_as(SPILLWAY_CODEC_CLIENT);
    plain = connect_as(SPILLWAY_CODEC_SERVICE);
}

static void after_each(void) {
    spillway_close(coding);
    sw_served_close(plain);
    ck_assert_uint_eq(sw_count_fds(), fds_before);
}

/* ---- memory and calls -------------------------------------------------------------------------------------------- */

static uint8_t *filled(size_t bytes, enum sw_content content, uint64_t seed) {
    uint8_t *data = malloc(bytes + 1);
    ck_assert_ptr_nonnull(data);
    sw_content_fill(data, bytes < MIB ? bytes : MIB, content, seed);
    for (size_t at = MIB; at < bytes; at += MIB) { /* the first MIB again with a number in front: cheap to make */
        memcpy(data + at, data, bytes - at < MIB ? bytes - at : MIB);
        memcpy(data + at, &at, bytes - at < sizeof at ? bytes - at : sizeof at);
    }
    return data;
}

static struct spillway_request request_of(struct spillway_buffer *buffers, uint32_t n) {
    return (struct spillway_request){.size = sizeof(struct spillway_request), .buffers = buffers, .n_buffers = n};
}

static int finish(struct spillway_ticket *ticket, struct spillway_result *results, uint32_t n) {
    results->size = sizeof *results;
    const int rc = spillway_wait(ticket, WAIT_MS, results, n, &error);
    spillway_ticket_free(ticket);
    return rc;
}

static int spill(struct spillway *c, const struct spillway_request *requests, uint32_t n,
                 struct spillway_result *results) {
    struct spillway_ticket *ticket;
    const int rc = spillway_spill(c, requests, n, &ticket, &error);
    return rc ? rc : finish(ticket, results, n);
}

static int restore(struct spillway *c, const struct spillway_request *requests, uint32_t n,
                   struct spillway_result *results) {
    struct spillway_ticket *ticket;
    const int rc = spillway_restore(c, requests, n, &ticket, &error);
    return rc ? rc : finish(ticket, results, n);
}

static void ok(int rc) {
    ck_assert_msg(rc == 0, "%s: %s", error.name, error.text);
}

static void reconnect(struct spillway **c) {
    const bool codes = c == &coding;
    spillway_close(*c);
    *c = connect_as(codes ? SPILLWAY_CODEC_CLIENT : SPILLWAY_CODEC_SERVICE);
}

/* Out by one connection and back by another, or the same. */
static void travels(struct spillway **out, struct spillway **back, size_t bytes, enum sw_content content,
                    uint16_t type) {
    uint8_t *data = filled(bytes, content, bytes), *copy = malloc(bytes);
    struct spillway_buffer buffer = {.data = data, .bytes = bytes, .type = type};
    struct spillway_request request = request_of(&buffer, 1);
    struct spillway_result result;
    request.name = "travels"; /* so that the other connection can have it */
    ok(spill(*out, &request, 1, &result));
    ck_assert_uint_eq(result.raw_bytes, bytes);
    ck_assert_str_eq(result.coder, out == &coding ? "client" : "daemon");
    if (out != back)
        reconnect(out);
    request.region = result.region;
    if (out != back)
        ok(spillway_adopt(*back, request.name, &request.region, &error));
    buffer.data = copy;
    ok(restore(*back, &request, 1, &result));
    if (back == &coding)
        ck_assert_str_eq(result.coder, "client");
    ck_assert_int_eq(memcmp(data, copy, bytes), 0);
    ok(spillway_drop(*back, &request.region, 1, &error));
    free(copy);
    free(data);
}

/* ---- tests ------------------------------------------------------------------------------------------------------- */

START_TEST(regions_come_back) {
    travels(&coding, &coding, 1 * MIB, SW_CONTENT_TEXT, SPILLWAY_BYTES);
    travels(&coding, &coding, 33 * MIB / SHORTER + 4097, SW_CONTENT_TEXT, SPILLWAY_BYTES);
    travels(&coding, &coding, 9 * MIB / SHORTER, SW_CONTENT_RANDOM, SPILLWAY_BYTES);
    travels(&coding, &coding, 12 * MIB / SHORTER, SW_CONTENT_ZEROS, SPILLWAY_BYTES);
    travels(&coding, &coding, 16 * MIB / SHORTER, SW_CONTENT_ALL_VALUES, SPILLWAY_U32);
}
END_TEST

START_TEST(the_service_decodes_what_the_client_has_encoded) {
    travels(&coding, &plain, 21 * MIB / SHORTER + 1, SW_CONTENT_TEXT, SPILLWAY_BYTES);
    travels(&coding, &plain, 16 * MIB / SHORTER, SW_CONTENT_ALL_VALUES, SPILLWAY_U32);
}
END_TEST

START_TEST(the_client_decodes_what_the_service_has_encoded) {
    travels(&plain, &coding, 21 * MIB / SHORTER + 1, SW_CONTENT_TEXT, SPILLWAY_BYTES);
    travels(&plain, &coding, 7 * MIB / SHORTER, SW_CONTENT_RANDOM, SPILLWAY_BYTES);
}
END_TEST

/* Text by a dictionary. It comes back when its plan is long gone, whoever decodes it (the loop's index). */
START_TEST(text_is_denser_if_room_is_preferred) {
    const size_t bytes = 24 * MIB / SHORTER + 600;
    uint8_t *data = malloc(bytes), *copy = malloc(bytes);
    struct spillway_buffer buffer = {.data = data, .bytes = bytes};
    struct spillway_request request = request_of(&buffer, 1);
    struct spillway_result dense, usual, result;
    struct spillway **back = _i ? &plain : &coding;
    ck_assert(data && copy);
    sw_tpch_text_fill(data, 0, bytes, 1);
    ok(spill(coding, &request, 1, &usual));
    ok(spillway_drop(coding, &usual.region, 1, &error));
    request.name = "dense";
    request.prefer = SPILLWAY_PREFER_ROOM;
    ok(spill(coding, &request, 1, &dense));
    ck_assert_str_eq(dense.coder, "client");
    ck_assert_str_eq(dense.codec, "onpair");
    ck_assert_str_eq(usual.codec, "v5t");
    ck_assert_uint_lt(10 * dense.stored_bytes, 8 * usual.stored_bytes);
    reconnect(&coding);
    ok(spillway_adopt(*back, request.name, &request.region, &error));
    buffer.data = copy;
    ok(restore(*back, &request, 1, &result));
    ck_assert_str_eq(result.coder, _i ? "daemon" : "client");
    ck_assert_int_eq(memcmp(data, copy, bytes), 0);
    ok(spillway_drop(*back, &request.region, 1, &error));
    free(copy);
    free(data);
}
END_TEST

START_TEST(many_buffers_and_requests_go_together) {
    enum { N = 5, BUFFERS = 3 };
    struct spillway_buffer out[N][BUFFERS], in[N][BUFFERS];
    struct spillway_request requests[N];
    struct spillway_result results[N];
    for (unsigned i = 0; i < N; i++) {
        for (unsigned k = 0; k < BUFFERS; k++) {
            const size_t bytes = k == 1 && i == 2 ? 0 : (i + 1) * MIB + k * 4096;
            out[i][k] = (struct spillway_buffer){
                .data = filled(bytes, k ? SW_CONTENT_TEXT : SW_CONTENT_ALL_VALUES, i * 7 + k), .bytes = bytes};
            out[i][k].type = k ? SPILLWAY_BYTES : SPILLWAY_U32;
            in[i][k] = (struct spillway_buffer){.data = malloc(bytes + 1), .bytes = bytes};
        }
        requests[i] = request_of(out[i], BUFFERS);
    }
    ok(spill(coding, requests, N, results));
    for (unsigned i = 0; i < N; i++) {
        ck_assert_str_eq(results[i].coder, "client");
        requests[i].buffers = in[i];
        requests[i].region = results[i].region;
    }
    ok(restore(coding, requests, N, results));
    for (unsigned i = 0; i < N; i++)
        for (unsigned k = 0; k < BUFFERS; k++) {
            ck_assert_int_eq(memcmp(out[i][k].data, in[i][k].data, out[i][k].bytes), 0);
            free(out[i][k].data);
            free(in[i][k].data);
        }
}
END_TEST

/* Short buffers among long ones, and some that are just one chunk of the length that goes in groups elsewhere. */
START_TEST(short_buffers_go_with_long_ones) {
    enum { BUFFERS = 6 };
    static const size_t bytes[BUFFERS] = {MIB, MIB, 100, 9 * MIB, MIB, 0};
    struct spillway_buffer out[2][BUFFERS], in[2][BUFFERS];
    struct spillway_request requests[2];
    struct spillway_result results[2];
    for (unsigned i = 0; i < 2; i++)
        for (unsigned k = 0; k < BUFFERS; k++) {
            out[i][k] =
                (struct spillway_buffer){.data = filled(bytes[k], SW_CONTENT_TEXT, i * 7 + k), .bytes = bytes[k]};
            in[i][k] = (struct spillway_buffer){.data = malloc(bytes[k] + 1), .bytes = bytes[k]};
        }
    for (unsigned round = 0; round < 3; round++) {
        for (unsigned i = 0; i < 2; i++)
            requests[i] = request_of(out[i], BUFFERS);
        ok(spill(coding, requests, 2, results));
        for (unsigned i = 0; i < 2; i++) {
            ck_assert_str_eq(results[i].coder, "client");
            requests[i].buffers = in[i];
            requests[i].region = results[i].region;
        }
        ok(restore(coding, requests, 2, results));
        for (unsigned i = 0; i < 2; i++)
            for (unsigned k = 0; k < BUFFERS; k++)
                ck_assert_int_eq(memcmp(out[i][k].data, in[i][k].data, bytes[k]), 0);
    }
    for (unsigned i = 0; i < 2; i++)
        for (unsigned k = 0; k < BUFFERS; k++) {
            free(out[i][k].data);
            free(in[i][k].data);
        }
}
END_TEST

START_TEST(each_request_succeeds_or_fails_by_itself) {
    uint8_t *data = filled(4 * MIB, SW_CONTENT_TEXT, 1);
    struct spillway_buffer buffer = {.data = data, .bytes = 4 * MIB};
    struct spillway_request requests[3];
    struct spillway_result results[3];
    for (unsigned i = 0; i < 3; i++) {
        requests[i] = request_of(&buffer, 1);
        requests[i].flags = SPILLWAY_EACH;
        requests[i].name = i == 2 ? "last" : "twice"; /* the second of these names is there already */
    }
    ck_assert_int_eq(spill(coding, requests, 3, results), -SPILLWAY_EEXIST);
    ck_assert_int_eq(results[0].code, 0);
    ck_assert_int_eq(results[1].code, -SPILLWAY_EEXIST);
    ck_assert_int_eq(results[2].code, 0);
    ck_assert_str_eq(results[0].coder, "client");
    ck_assert_str_eq(results[1].coder, "");
    ok(spillway_drop(coding, &results[0].region, 1, &error));
    ok(spillway_drop(coding, &results[2].region, 1, &error));
    free(data);
}
END_TEST

START_TEST(all_or_none_is_stored) {
    uint8_t *data = filled(4 * MIB, SW_CONTENT_TEXT, 1);
    struct spillway_buffer buffer = {.data = data, .bytes = 4 * MIB};
    struct spillway_request requests[2] = {request_of(&buffer, 1), request_of(&buffer, 1)};
    struct spillway_result results[2];
    struct spillway_list_item item = {.size = sizeof item};
    requests[0].name = requests[1].name = "once";
    ck_assert_int_eq(spill(coding, requests, 2, results), -SPILLWAY_EEXIST);
    ck_assert_int_eq(spillway_list(coding, NULL, &item, 1, &error), 0);
    free(data);
}
END_TEST

START_TEST(a_region_that_is_not_there_is_named) {
    uint8_t *data = filled(2 * MIB, SW_CONTENT_TEXT, 1);
    struct spillway_buffer buffer = {.data = data, .bytes = 2 * MIB};
    struct spillway_request request = request_of(&buffer, 1);
    struct spillway_result result;
    request.region = (struct spillway_region){7, 7};
    ck_assert_int_eq(restore(coding, &request, 1, &result), -SPILLWAY_ENOENT);
    request.region = (struct spillway_region){0};
    ok(spill(coding, &request, 1, &result));
    request.region = result.region;
    buffer.bytes = MIB;
    ck_assert_int_eq(restore(coding, &request, 1, &result), -SPILLWAY_ETOOSMALL);
    buffer.bytes = 2 * MIB; /* it is still there */
    ok(restore(coding, &request, 1, &result));
    free(data);
}
END_TEST

START_TEST(a_canceled_call_lets_go_of_its_memory) {
    const size_t bytes = 96 * MIB / SHORTER; /* it takes longer than the pauses */
    uint8_t *data = filled(bytes, SW_CONTENT_TEXT, 1);
    struct spillway_buffer buffer = {.data = data, .bytes = bytes};
    struct spillway_request request = request_of(&buffer, 1);
    struct spillway_result result;
    struct spillway_ticket *ticket;
    for (unsigned ms = 0; ms < 40; ms += 8) {
        const struct timespec pause = {.tv_nsec = (long)ms * 1000000};
        ok(spillway_spill(coding, &request, 1, &ticket, &error));
        (void)nanosleep(&pause, NULL);
        ok(spillway_cancel(ticket, &error));
        const int rc = finish(ticket, &result, 1);
        ck_assert(rc == 0 || rc == -SPILLWAY_ECANCELED);
        if (rc == 0)
            ok(spillway_drop(coding, &result.region, 1, &error));
    }
    ok(spill(coding, &request, 1, &result));
    ok(spillway_drop(coding, &result.region, 1, &error));
    free(data);
}
END_TEST

/* The coder's thread goes on with a call whose caller does something else. */
START_TEST(a_call_goes_on_while_nobody_waits) {
    const size_t bytes = 24 * MIB;
    uint8_t *data = filled(bytes, SW_CONTENT_TEXT, 1);
    struct spillway_buffer buffer = {.data = data, .bytes = bytes};
    struct spillway_request request = request_of(&buffer, 1);
    struct spillway_result result;
    struct spillway_ticket *ticket;
    ok(spillway_prepare(coding, data, &error));
    ok(spillway_spill(coding, &request, 1, &ticket, &error));
    struct pollfd readable = {.fd = spillway_fd(coding), .events = POLLIN};
    ck_assert_int_eq(poll(&readable, 1, WAIT_MS), 1);
    ok(finish(ticket, &result, 1));
    ck_assert_str_eq(result.coder, "client");
    ok(spillway_drop(coding, &result.region, 1, &error));
    free(data);
}
END_TEST

static atomic_bool wakes_late;

int __wrap_eventfd_write(int fd, eventfd_t value);
int __real_eventfd_write(int fd, eventfd_t value);

int __wrap_eventfd_write(int fd, eventfd_t value) {
    if (atomic_load(&wakes_late))
        (void)usleep(2000);
    return __real_eventfd_write(fd, value);
}

/* The coder's thread is held up between telling of news and waking: the caller has seen the news before it is woken. */
START_TEST(a_late_wake_up_does_not_stay) {
    struct spillway_result result = {.size = sizeof result};
    struct spillway_ticket *ticket;
    uint8_t *data = filled(4 * MIB, SW_CONTENT_TEXT, 1);
    struct spillway_buffer buffer = {.data = data, .bytes = 4 * MIB};
    struct spillway_request request = request_of(&buffer, 1);
    struct pollfd readable = {.fd = spillway_fd(coding), .events = POLLIN};
    ok(spill(coding, &request, 1, &result));
    request.region = result.region;
    request.flags = SPILLWAY_KEEP;
    atomic_store(&wakes_late, true);
    for (int i = 0; i < 24; i++) {
        ok(spillway_restore(coding, &request, 1, &ticket, &error));
        while (spillway_wait(ticket, 0, &result, 1, &error) == -SPILLWAY_EAGAIN)
            (void)usleep(300); /* the coder's thread goes on meanwhile */
        spillway_ticket_free(ticket);
        ck_assert_str_eq(result.coder, "client");
        (void)usleep(10000); /* the last wake-up has come */
        ok(spillway_dispatch(coding, &error));
        ck_assert_int_eq(poll(&readable, 1, 0), 0);
    }
    atomic_store(&wakes_late, false);
    ok(spillway_drop(coding, &request.region, 1, &error));
    free(data);
}
END_TEST

START_TEST(a_connection_can_be_closed_at_any_time) {
    const size_t bytes = 64 * MIB / SHORTER; /* it takes longer than the pauses */
    uint8_t *data = filled(bytes, SW_CONTENT_TEXT, 1);
    struct spillway_buffer buffer = {.data = data, .bytes = bytes};
    struct spillway_request request = request_of(&buffer, 1);
    struct spillway_ticket *ticket;
    for (unsigned ms = 0; ms < 30; ms += 3) {
        const struct timespec pause = {.tv_nsec = (long)ms * 1000000};
        ok(spillway_spill(coding, &request, 1, &ticket, &error));
        (void)nanosleep(&pause, NULL);
        spillway_close(coding);
        coding = connect_as(SPILLWAY_CODEC_CLIENT);
    }
    free(data);
}
END_TEST

/* A connection is closed while the service hangs, with frames on their way. When the service handles them later,
 * nothing is harmed. */
START_TEST(a_service_that_hangs_spoils_no_other_connection) {
    const size_t bytes = 24 * MIB;
    uint8_t *data = filled(bytes, SW_CONTENT_TEXT, 1), *copy = malloc(bytes);
    struct spillway_buffer buffer = {.data = data, .bytes = bytes};
    struct spillway_request request = request_of(&buffer, 1);
    struct spillway_result result = {.size = sizeof result};
    struct spillway_ticket *ticket;
    struct spillway *other = connect_as(SPILLWAY_CODEC_CLIENT);
    ok(spillway_prepare(coding, data, &error));
    ok(spillway_prepare(other, data, &error));
    ck_assert_int_eq(kill(sw_served_daemon.pid, SIGSTOP), 0);
    ok(spillway_spill(coding, &request, 1, &ticket, &error));
    ck_assert_int_eq(spillway_wait(ticket, 500, &result, 1, &error), -SPILLWAY_EAGAIN);
    spillway_close(coding); /* ten seconds */
    ck_assert_int_eq(kill(sw_served_daemon.pid, SIGCONT), 0);
    coding = connect_as(SPILLWAY_CODEC_CLIENT);
    ok(spill(other, &request, 1, &result));
    ck_assert_str_eq(result.coder, "daemon"); /* it has the same buffers */
    ok(spillway_drop(other, &result.region, 1, &error));
    ok(spill(coding, &request, 1, &result));
    ck_assert_str_eq(result.coder, "client");
    request.region = result.region;
    buffer.data = copy;
    ok(restore(coding, &request, 1, &result));
    ck_assert_int_eq(memcmp(data, copy, bytes), 0);
    spillway_close(other);
    free(copy);
    free(data);
}
END_TEST

/* ---- stray writes of the engine ---------------------------------------------------------------------------------- */

static struct {
    pthread_t thread;
    atomic_bool stop;
    volatile uint8_t *frames; /* the library's frame buffers */
    size_t bytes;
    bool is_dense; /* the beginnings of all buffers, all the time */
} stray;

static void find_frames(void) {
    char line[512];
    FILE *maps = fopen("/proc/self/maps", "r");
    ck_assert_ptr_nonnull(maps);
    stray.frames = NULL;
    while (fgets(line, sizeof line, maps)) {
        uintptr_t first, end;
        if (strstr(line, "memfd:spillway-frames") && sscanf(line, "%" SCNxPTR "-%" SCNxPTR, &first, &end) == 2) {
            stray.frames = (volatile uint8_t *)first; /* NOLINT(performance-no-int-to-ptr): as it is printed */
            stray.bytes = end - first;
        }
    }
    (void)fclose(maps);
    ck_assert(stray.frames != NULL);
}

/* A race, and meant to be one: ThreadSanitizer is not told. */
static __attribute__((no_sanitize("thread"))) void *write_about(void *arg) {
    const struct timespec pause = {.tv_nsec = 1000};
    uint64_t random = 88172645463325252u;
    (void)arg;
    while (!atomic_load(&stray.stop)) {
        if (!stray.is_dense)
            (void)nanosleep(&pause, NULL); /* too fast, and it would hit every header */
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        const size_t part = stray.is_dense ? stray.bytes / 4 : stray.bytes,
                     at = random % (stray.is_dense ? MIB / 4 : stray.bytes);
        stray.frames[at + (random >> 32) % (stray.bytes / part) * part] ^= (uint8_t)(random >> 56);
    }
    return NULL;
}

static void start_stray_writes(bool is_dense) {
    find_frames();
    stray.is_dense = is_dense;
    atomic_store(&stray.stop, false);
    ck_assert_int_eq(pthread_create(&stray.thread, NULL, write_about, NULL), 0);
}

static void end_stray_writes(void) {
    atomic_store(&stray.stop, true);
    (void)pthread_join(stray.thread, NULL);
}

/* Frames that are spoilt on the way back are fetched again, or the service decodes them. */
START_TEST(stray_writes_spoil_no_restore) {
    const size_t bytes = 20 * MIB;
    uint8_t *data = filled(bytes, SW_CONTENT_TEXT, 1), *copy = malloc(bytes);
    struct spillway_buffer buffer = {.data = data, .bytes = bytes};
    struct spillway_request request = request_of(&buffer, 1);
    struct spillway_result result;
    ok(spill(coding, &request, 1, &result));
    request.region = result.region;
    request.flags = SPILLWAY_KEEP;
    buffer.data = copy;
    start_stray_writes(false);
    for (unsigned i = 0; i < 5; i++) {
        memset(copy, 0, bytes);
        ok(restore(coding, &request, 1, &result));
        ck_assert_int_eq(memcmp(data, copy, bytes), 0);
    }
    end_stray_writes();
    ok(spillway_drop(coding, &request.region, 1, &error));
    free(copy);
    free(data);
}
END_TEST

/* A call whose frames are spoilt time and again goes on with the service's codec, whichever thread notices. */
START_TEST(calls_that_give_up_end) {
    enum { N = 400 / SHORTER };
    uint8_t *data = filled(MIB, SW_CONTENT_TEXT, 1), *copy = malloc(MIB);
    struct spillway_buffer buffer = {.data = data, .bytes = MIB};
    struct spillway_request request = request_of(&buffer, 1);
    struct spillway_result result;
    unsigned n_given_up = 0;
    ok(spill(coding, &request, 1, &result));
    request.region = result.region;
    request.flags = SPILLWAY_KEEP;
    buffer.data = copy;
    start_stray_writes(true);
    for (unsigned i = 0; i < N; i++) {
        memset(copy, 0, MIB);
        ok(restore(coding, &request, 1, &result));
        ck_assert_int_eq(memcmp(data, copy, MIB), 0);
        n_given_up += strcmp(result.coder, "daemon") == 0;
    }
    end_stray_writes();
    ck_assert_uint_gt(n_given_up, 0);
    ok(spillway_drop(coding, &request.region, 1, &error));
    free(copy);
    free(data);
}
END_TEST

/* Each allocation of a call fails in turn. */
START_TEST(calls_end_when_memory_is_short) {
    enum { CALM = 8 }; /* calls in a row that need no more allocations than that */
    const size_t bytes = 5 * MIB;
    uint8_t *data = filled(bytes, SW_CONTENT_ZEROS, 1), *copy = malloc(bytes);
    struct spillway_buffer buffer = {.bytes = bytes};
    struct spillway_request request = request_of(&buffer, 1);
    struct spillway_result result;
    unsigned n = 0;
    for (unsigned n_calm = 0; n_calm < CALM; n++) {
        request.region = (struct spillway_region){0};
        request.flags = 0;
        buffer.data = data;
        sw_alloc_fail_nth(n + 1);
        int rc = spill(coding, &request, 1, &result);
        sw_alloc_fail_nth(0);
        n_calm = rc ? 0 : n_calm + 1;
        ck_assert_msg(rc == 0 || rc == -SPILLWAY_ENOMEM, "%u: %s: %s", n, error.name, error.text);
        if (rc)
            ok(spill(coding, &request, 1, &result));
        request.region = result.region;
        request.flags = SPILLWAY_KEEP;
        buffer.data = copy;
        memset(copy, 0, bytes);
        sw_alloc_fail_nth(n + 1);
        rc = restore(coding, &request, 1, &result);
        sw_alloc_fail_nth(0);
        n_calm = rc ? 0 : n_calm;
        ck_assert_msg(rc == 0 || rc == -SPILLWAY_ENOMEM, "%u: %s: %s", n, error.name, error.text);
        if (rc)
            ok(restore(coding, &request, 1, &result));
        ck_assert_int_eq(memcmp(data, copy, bytes), 0);
        ok(spillway_drop(coding, &request.region, 1, &error));
    }
    ck_assert_uint_gt(n, CALM);
    free(copy);
    free(data);
}
END_TEST

/* Frames that were spoilt before they were stored: their bytes are lost, and no others. */
START_TEST(stray_writes_lose_what_they_spoil) {
    enum { MOST = 30 };
    const size_t bytes = 20 * MIB;
    uint8_t *data = filled(bytes, SW_CONTENT_TEXT, 1), *copy = malloc(bytes);
    struct spillway_buffer buffer = {.data = data, .bytes = bytes};
    struct spillway_request request = request_of(&buffer, 1);
    struct spillway_result result;
    unsigned n_lost = 0;
    ok(spillway_prepare(coding, data, &error));
    for (unsigned i = 0; i < MOST && n_lost < 2; i++) {
        buffer.data = data;
        request.region = (struct spillway_region){0};
        start_stray_writes(false);
        int rc = spill(coding, &request, 1, &result);
        end_stray_writes();
        ck_assert_msg(rc == 0 || rc == -SPILLWAY_EFRAME, "%s: %s", error.name, error.text);
        if (rc)
            continue;
        request.region = result.region;
        buffer.data = copy;
        rc = restore(coding, &request, 1, &result);
        if (rc == 0) {
            ck_assert_int_eq(memcmp(data, copy, bytes), 0);
            continue;
        }
        ck_assert_msg(rc == -SPILLWAY_ECHECKSUM || rc == -SPILLWAY_EFRAME, "%s: %s", error.name, error.text);
        rc = restore(coding, &request, 1, &result);
        ck_assert_msg(rc == -SPILLWAY_ELOST, "%s: %s", error.name, error.text);
        ok(spillway_drop(coding, &request.region, 1, &error));
        n_lost++;
    }
    ck_assert_uint_gt(n_lost, 0);
    free(copy);
    free(data);
}
END_TEST

/* ---- frame buffers that the service grants ----------------------------------------------------------------------- */

static void set_frame_bytes(const char *value) {
    char line[512];
    (void)snprintf(line, sizeof line, "'%s' --socket '%s' config set gpu_frame_bytes %s >/dev/null",
                   SW_SPILLWAYCTL_PATH, sw_served_daemon.control, value);
    ck_assert_int_eq(system(line), 0); /* NOLINT(cert-env33-c): paths of the build */
}

static void ck_coder(const char *coder) {
    uint8_t *data = filled(2 * MIB, SW_CONTENT_TEXT, 1);
    struct spillway_buffer buffer = {.data = data, .bytes = 2 * MIB};
    struct spillway_request request = request_of(&buffer, 1);
    struct spillway_result result;
    ok(spill(coding, &request, 1, &result));
    ck_assert_str_eq(result.coder, coder);
    ok(spillway_drop(coding, &result.region, 1, &error));
    free(data);
}

/* A refused client asks again, at most once a second. */
START_TEST(a_client_without_buffers_asks_again) {
    const struct timespec a_second = {.tv_sec = 1, .tv_nsec = 100000000};
    set_frame_bytes("300MiB");
    ck_coder("daemon");
    set_frame_bytes("4GiB");
    (void)nanosleep(&a_second, NULL);
    ck_coder("client");
    set_frame_bytes("0"); /* of no account to who has some */
    ck_coder("client");
    set_frame_bytes("4GiB");
}
END_TEST

/* Connections of a process hand over the same buffers: one has room, and so have all. */
START_TEST(connections_of_a_process_share_its_buffers) {
    enum { N = 4 };
    struct spillway *others[N];
    set_frame_bytes("600MiB"); /* for one process */
    ck_coder("client");
    struct spillway *first = coding;
    for (unsigned i = 0; i < N; i++) {
        others[i] = coding = connect_as(SPILLWAY_CODEC_CLIENT);
        ck_coder("client");
    }
    coding = first;
    for (unsigned i = 0; i < N; i++)
        spillway_close(others[i]);
    set_frame_bytes("4GiB");
}
END_TEST

struct caller {
    pthread_t thread;
    unsigned number;
    bool differs;
    struct spillway *c;
};

static void *go_back_and_forth(void *arg) {
    struct caller *caller = arg;
    const size_t bytes = (2 + caller->number) * MIB;
    uint8_t *data = filled(bytes, SW_CONTENT_TEXT, caller->number), *copy = malloc(bytes);
    for (int i = 0; i < 4 && !caller->differs; i++) {
        struct spillway_buffer buffer = {.data = data, .bytes = bytes};
        struct spillway_request request = request_of(&buffer, 1);
        struct spillway_result result = {.size = sizeof result};
        struct spillway_ticket *ticket;
        caller->differs = spillway_spill(caller->c, &request, 1, &ticket, NULL) < 0 ||
                          spillway_wait(ticket, WAIT_MS, &result, 1, NULL) < 0 || strcmp(result.coder, "client") != 0;
        if (caller->differs)
            break;
        spillway_ticket_free(ticket);
        memset(copy, 0, bytes);
        buffer.data = copy;
        request.region = result.region;
        caller->differs = spillway_restore(caller->c, &request, 1, &ticket, NULL) < 0 ||
                          spillway_wait(ticket, WAIT_MS, &result, 1, NULL) < 0 || memcmp(data, copy, bytes) != 0;
        spillway_ticket_free(ticket);
    }
    free(copy);
    free(data);
    return NULL;
}

/* More than poll: most of them sleep, and others go on with their calls. */
START_TEST(calls_of_many_threads_go_on_together) {
    enum { N = 6 };
    struct caller callers[N] = {{.c = NULL}};
    for (unsigned i = 0; i < N; i++) {
        callers[i].number = i;
        callers[i].c = connect_as(SPILLWAY_CODEC_CLIENT);
        ck_assert_int_eq(pthread_create(&callers[i].thread, NULL, go_back_and_forth, &callers[i]), 0);
    }
    for (unsigned i = 0; i < N; i++) {
        ck_assert_int_eq(pthread_join(callers[i].thread, NULL), 0);
        ck_assert_msg(!callers[i].differs, "caller %u", i);
        spillway_close(callers[i].c);
    }
}
END_TEST

/* Its own codec works on registered memory, so the service opens it only for calls that are its own. */
START_TEST(the_service_opens_registered_memory_when_it_needs_it) {
    enum { BYTES = 2 * MIB, OF_THE_CODEC = 1 };
    uint8_t *data = sw_served_memory(BYTES);
    fds_before++; /* of this memory */
    struct spillway_buffer buffer = {.data = data, .bytes = BYTES};
    struct spillway_request request = request_of(&buffer, 1);
    struct spillway_result result;
    sw_content_fill(data, BYTES, SW_CONTENT_TEXT, 5);
    ok(spillway_register(coding, data, BYTES, &error));
    ok(spill(coding, &request, 1, &result));
    ck_assert_str_eq(result.coder, "client");
    request.region = result.region;
    ok(restore(coding, &request, 1, &result));
    sw_served_ck_empty(plain, OF_THE_CODEC);

    buffer.bytes = MIB / 2;
    request.name = "short"; /* such calls are the service's */
    request.region = (struct spillway_region){0};
    for (unsigned i = 0; i < 2; i++) {
        ok(spill(coding, &request, 1, &result));
        ck_assert_str_eq(result.coder, "daemon");
        ok(spillway_drop(coding, &result.region, 1, &error));
        sw_served_ck_empty(plain, OF_THE_CODEC + 1);
    }
    ok(spillway_unregister(coding, data, &error));
    sw_served_ck_empty(plain, OF_THE_CODEC);

    ok(spillway_register(coding, data, BYTES, &error)); /* and without any use */
    ck_assert_int_eq(spillway_register(coding, data + 1, 1, &error), -SPILLWAY_EEXIST);
    ok(spillway_unregister(coding, data, &error));
    ck_assert_int_eq(spillway_unregister(coding, data, &error), -SPILLWAY_ENOENT);
}
END_TEST

#ifndef __SANITIZE_THREAD__ /* it lets no child of a process with threads make some */
/* The child's own connection gets frame buffers of its own, and a thread. */
START_TEST(a_forked_child_codes_for_itself) {
    int status;
    ck_coder("client");
    const pid_t child = fork();
    ck_assert_int_ge(child, 0);
    if (child == 0) {
        struct spillway *parents = coding;
        coding = connect_as(SPILLWAY_CODEC_CLIENT);
        travels(&coding, &coding, 5 * MIB, SW_CONTENT_TEXT, SPILLWAY_BYTES);
        spillway_close(coding);
        spillway_close(parents);
        _exit(0);
    }
    for (unsigned i = 0; i < 4; i++)
        ck_coder("client");
    ck_assert(waitpid(child, &status, 0) == child);
    ck_assert(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}
END_TEST
#endif

START_TEST(both_codecs_at_once_are_refused) {
    const struct spillway_options options = {.size = sizeof options,
                                             .socket_path = sw_served_daemon.socket,
                                             .flags = SPILLWAY_CODEC_CLIENT | SPILLWAY_CODEC_SERVICE};
    struct spillway *c = NULL;
    ck_assert_int_eq(spillway_open(&c, &options, &error), -SPILLWAY_EINVAL);
}
END_TEST

int main(void) {
    TCase *tcase = tcase_create("coded");
    Suite *suite = suite_create("coded");
    sw_test_slow(tcase, 60);
    tcase_add_unchecked_fixture(tcase, sw_served_start, sw_served_stop);
    tcase_add_checked_fixture(tcase, before_each, after_each);
    tcase_add_test(tcase, regions_come_back);
    tcase_add_test(tcase, the_service_decodes_what_the_client_has_encoded);
    tcase_add_test(tcase, the_client_decodes_what_the_service_has_encoded);
    tcase_add_loop_test(tcase, text_is_denser_if_room_is_preferred, 0, 2);
    tcase_add_test(tcase, many_buffers_and_requests_go_together);
    tcase_add_test(tcase, short_buffers_go_with_long_ones);
    tcase_add_test(tcase, each_request_succeeds_or_fails_by_itself);
    tcase_add_test(tcase, all_or_none_is_stored);
    tcase_add_test(tcase, a_region_that_is_not_there_is_named);
    tcase_add_test(tcase, a_canceled_call_lets_go_of_its_memory);
    tcase_add_test(tcase, a_call_goes_on_while_nobody_waits);
    tcase_add_test(tcase, a_late_wake_up_does_not_stay);
    tcase_add_test(tcase, a_connection_can_be_closed_at_any_time);
    tcase_add_test(tcase, a_service_that_hangs_spoils_no_other_connection);
    tcase_add_test(tcase, stray_writes_spoil_no_restore);
    tcase_add_test(tcase, calls_that_give_up_end);
    tcase_add_test(tcase, calls_end_when_memory_is_short);
    tcase_add_test(tcase, stray_writes_lose_what_they_spoil);
    tcase_add_test(tcase, a_client_without_buffers_asks_again);
    tcase_add_test(tcase, connections_of_a_process_share_its_buffers);
    tcase_add_test(tcase, calls_of_many_threads_go_on_together);
    tcase_add_test(tcase, the_service_opens_registered_memory_when_it_needs_it);
#ifndef __SANITIZE_THREAD__
    tcase_add_test(tcase, a_forked_child_codes_for_itself);
#endif
    tcase_add_test(tcase, both_codecs_at_once_are_refused);
    suite_add_tcase(suite, tcase);
    return sw_test_run(suite, CK_FORK);
}
