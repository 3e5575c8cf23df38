/* The client library when its connection is lost and comes back, to a played daemon that has kept the session. */
#include "base/alloc.h"
#include "base/assert.h"
#include "ipc/client/client.h"
#include "ipc/client/client_staging.h"
#include "ipc/proto.h"
#include "ipc/spillway.h"
#include "tests/lib/play.h"
#include "tests/lib/requests.h"
#include "tests/lib/run.h"

#include <check.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <unistd.h>

static const uint8_t token[16] = "of this session";
static atomic_bool is_back;
static uint32_t grace_ms = 600000; /* that the daemon tells */

/* ---- the daemon -------------------------------------------------------------------------------------------------- */

static void greet_with(int socket, bool resumed, uint32_t max_in_flight, uint32_t max_buffers) {
    struct sw_msg msg, reply = {.u.hello_ok = {.version = SW_PROTO_VERSION,
                                               .max_in_flight = max_in_flight,
                                               .max_buffers = max_buffers,
                                               .resumed = resumed,
                                               .reconnect_ms = grace_ms}};
    sw_play_expect(socket, &msg, SW_MSG_HELLO);
    SW_ASSERT(!resumed || memcmp(msg.u.hello.token, token, sizeof token) == 0);
    memcpy(reply.u.hello_ok.token, token, sizeof token);
    sw_play_put(socket, &reply, SW_MSG_HELLO_OK, msg.header.seq);
}

static void greet(int socket, bool resumed) {
    greet_with(socket, resumed, SW_PLAY_MAX_IN_FLIGHT, 100);
}

/* When the test says so. */
static void leave(int socket) {
    (void)sem_wait(&sw_play.go);
    (void)shutdown(socket, SHUT_RDWR);
}

/* The next process of the service, which has the session; returns its socket. */
static int come_back(void) {
    const int again = accept(sw_play.listener, NULL, NULL);
    SW_ASSERT(again >= 0);
    greet(again, true);
    return again;
}

/* Nothing is left to be asked about. */
static void expect_settled(int socket) {
    struct sw_msg msg;
    sw_play_expect(socket, &msg, SW_MSG_SETTLE);
    SW_ASSERT(msg.u.settle.type == 0);
    atomic_store(&is_back, true); /* before the client can have taken in all that comes */
    sw_play_put_ok(socket, msg.header.seq);
}

/* ---- the client -------------------------------------------------------------------------------------------------- */

static void dispatch(void) {
    struct pollfd p = {.fd = spillway_fd(sw_play.connection), .events = POLLIN};
    ck_assert_int_eq(poll(&p, 1, 60000), 1);
    ck_assert_int_ge(spillway_dispatch(sw_play.connection, &sw_play.error), 0);
}

/* The library notices, and has not tried to come back yet. */
static void lose_connection(void) {
    ck_assert_int_eq(sem_post(&sw_play.go), 0);
    dispatch();
}

static int spill(struct spillway_ticket **ret) {
    return spillway_spill(sw_play.connection, SW_REQUEST(SW_ONE(sw_play.data, SW_PLAY_BYTES)), 1, ret, &sw_play.error);
}

static int spill_batch(struct spillway_ticket **ret) {
    const struct spillway_request *request = SW_REQUEST(SW_ONE(sw_play.data, SW_PLAY_BYTES));
    const struct spillway_request both[] = {*request, *request};
    return spillway_spill(sw_play.connection, both, 2, ret, &sw_play.error);
}

static int spill_buffers(struct spillway_ticket **ret) {
    const struct spillway_buffer buffers[] = {{.data = sw_play.data, .bytes = SW_PLAY_BYTES},
                                              {.data = sw_play.data, .bytes = SW_PLAY_BYTES}};
    return spillway_spill(sw_play.connection, SW_REQUEST(SW_SEVERAL(buffers, 2)), 1, ret, &sw_play.error);
}

static const struct {
    int (*start)(struct spillway_ticket **ret);
    unsigned n_builds, n_buffers;
} requests[] = {{spill, 1, 1}, {spill_batch, 2, 2}, {spill_buffers, 1, 2}};
enum { N_REQUESTS = sizeof requests / sizeof requests[0] };

/* ---- registered memory ------------------------------------------------------------------------------------------- */

static void serve_a_late_registration(int socket) {
    struct sw_msg msg;
    uint32_t mem;
    greet(socket, false);
    const uint32_t before = sw_play_register(socket);
    leave(socket);
    const int again = come_back();
    expect_settled(again);
    const uint32_t seq = sw_play_take_registration(again, &mem);
    SW_ASSERT(mem == before);
    sw_play_put_ok(again, seq);
    sw_play_put_ok(again, seq + 1);
    for (unsigned i = 0; i < 2; i++) {
        sw_play_expect(again, &msg, SW_MSG_BUILD);
        SW_ASSERT(msg.u.build.chunks[0].mem == mem);
        sw_play_put_result(again, msg.header.seq, 1, SW_PLAY_BYTES);
    }
    sw_play_expect_end(again);
    (void)close(again);
}

/* Whatever of it the heap has no room for: the next operation in the memory hands it over. */
START_TEST(memory_not_handed_over_is_retried) {
    struct spillway_ticket *ticket = NULL;
    sw_play_open(serve_a_late_registration);
    ck_assert_int_eq(spillway_register(sw_play.connection, sw_play.data, SW_PLAY_BYTES, &sw_play.error), 0);
    lose_connection();
    sw_alloc_fail_nth((unsigned long)_i);
    while (!atomic_load(&is_back))
        dispatch();
    sw_alloc_fail_nth(0);
    for (unsigned i = 0; i < 2; i++) {
        ck_assert_int_eq(spill(&ticket), 0);
        ck_assert_int_eq(spillway_wait(ticket, -1, NULL, 0, &sw_play.error), 0);
    }
    sw_play_close();
}
END_TEST

static int request;

static void expect_request(int socket, struct sw_msg *ret) {
    sw_play_expect(socket, ret, SW_MSG_BUILD);
    SW_ASSERT(ret->u.build.n_builds == requests[request].n_builds);
    SW_ASSERT(ret->u.build.n_buffers == requests[request].n_buffers);
}

static void serve_without_the_memory(int socket) {
    struct sw_msg msg;
    greet(socket, false);
    (void)sw_play_register(socket);
    leave(socket);
    (void)sem_wait(&sw_play.go);
    const int again = come_back();
    expect_settled(again);
    expect_request(again, &msg);
    sw_play_put_error(again, msg.header.seq, "ENOENT", SW_SCOPE_REQUEST, "memory 1 is not open");
    sw_play_expect(again, &msg, SW_MSG_MEM_CLOSE);
    sw_play_put_error(again, msg.header.seq, "ENOENT", SW_SCOPE_REQUEST, "memory 1 is not open");
    sw_play_expect_end(again);
    (void)close(again);
}

static void ck_not_handed_over(int rc, struct spillway_ticket *ticket) {
    if (!rc)
        rc = spillway_wait(ticket, -1, NULL, 0, &sw_play.error);
    sw_play_ck_error(rc, SPILLWAY_EMEMKIND, SPILLWAY_SCOPE_REQUEST, "after a restart");
}

/* ENOENT would say that the region is gone. */
START_TEST(the_error_of_memory_not_handed_over_is_reported) {
    struct spillway_ticket *ticket = NULL;
    request = _i;
    sw_play_open(serve_without_the_memory);
    ck_assert_int_eq(spillway_register(sw_play.connection, sw_play.data, SW_PLAY_BYTES, &sw_play.error), 0);
    lose_connection();
    ck_assert_int_eq(requests[_i].start(&ticket), 0); /* waits */
    ck_assert_int_eq(munmap(sw_play.data, SW_PLAY_BYTES), 0);
    ck_assert_int_eq(sem_post(&sw_play.go), 0);
    ck_not_handed_over(0, ticket);
    for (unsigned i = 0; i < N_REQUESTS; i++) {
        const int rc = requests[i].start(&ticket);
        ck_not_handed_over(rc, ticket);
    }
    ck_assert_int_eq(spillway_unregister(sw_play.connection, sw_play.data, &sw_play.error), 0);
    ck_assert_int_eq(sw_play.error.code, 0);
    sw_play_close();
}
END_TEST

static void refuse_the_memory(int socket, const char *name) {
    uint32_t mem;
    const uint32_t seq = sw_play_take_registration(socket, &mem);
    sw_play_put_error(socket, seq, name, SW_SCOPE_REQUEST, "not now");
    sw_play_put_error(socket, seq + 1, name, SW_SCOPE_REQUEST, "not now");
}

static void expect_close(int socket) {
    struct sw_msg msg;
    sw_play_expect(socket, &msg, SW_MSG_MEM_CLOSE);
    sw_play_put_ok(socket, msg.header.seq);
}

static void refuse_the_request(int socket) {
    struct sw_msg msg;
    expect_request(socket, &msg);
    sw_play_put_error(socket, msg.header.seq, "ELIMIT", SW_SCOPE_REQUEST, "not now");
}

static void serve_the_request(int socket) {
    struct sw_msg msg;
    expect_request(socket, &msg);
    sw_play_put_batch(socket, msg.header.seq, requests[request].n_builds, 1,
                      (uint64_t)requests[request].n_buffers * SW_PLAY_BYTES);
}

/* The service has no room for the memory, at first. */
static void serve_without_room(int socket) {
    greet(socket, false);
    (void)sw_play_register(socket);
    leave(socket);
    (void)sem_wait(&sw_play.go);
    const int again = come_back();
    refuse_the_memory(again, "ELIMIT");
    expect_settled(again);
    refuse_the_request(again);
    expect_close(again);
    refuse_the_memory(again, "ELIMIT");
    refuse_the_request(again);
    expect_close(again);
    (void)sw_play_register(again);
    serve_the_request(again);
    serve_the_request(again);
    expect_close(again);
    sw_play_expect_end(again);
    (void)close(again);
}

START_TEST(refused_memory_is_retried) {
    struct spillway_ticket *ticket = NULL;
    request = _i;
    sw_play_open(serve_without_room);
    ck_assert_int_eq(spillway_register(sw_play.connection, sw_play.data, SW_PLAY_BYTES, &sw_play.error), 0);
    lose_connection();
    for (unsigned i = 0; i < 4; i++) { /* the first one waits until it is back */
        ck_assert_int_eq(requests[_i].start(&ticket), 0);
        if (i == 0)
            ck_assert_int_eq(sem_post(&sw_play.go), 0);
        const int rc = spillway_wait(ticket, -1, NULL, 0, &sw_play.error);
        if (i < 2)
            sw_play_ck_error(rc, SPILLWAY_ELIMIT, SPILLWAY_SCOPE_REQUEST, "not now");
        else
            ck_assert_int_eq(rc, 0);
    }
    ck_assert_int_eq(spillway_unregister(sw_play.connection, sw_play.data, &sw_play.error), 0);
    sw_play_close();
}
END_TEST

/* A daemon without room for entries does not know the memory that it is asked to close. */
static void serve_without_an_entry(int socket) {
    struct sw_msg msg;
    greet(socket, false);
    (void)sw_play_register(socket);
    leave(socket);
    const int again = come_back();
    refuse_the_memory(again, "ELIMIT");
    expect_settled(again);
    sw_play_expect(again, &msg, SW_MSG_MEM_CLOSE);
    sw_play_put_error(again, msg.header.seq, "ELIMIT", SW_SCOPE_REQUEST, "not now");
    sw_play_expect_end(again);
    (void)close(again);
}

START_TEST(refused_memory_can_be_unregistered) {
    sw_play_open(serve_without_an_entry);
    ck_assert_int_eq(spillway_register(sw_play.connection, sw_play.data, SW_PLAY_BYTES, &sw_play.error), 0);
    lose_connection();
    ck_assert_int_eq(spillway_unregister(sw_play.connection, sw_play.data, &sw_play.error), 0);
    ck_assert_int_eq(sw_play.error.code, 0);
    sw_play_close();
}
END_TEST

/* Answers all packets; the memory that was just handed over is not closed. */
static void serve_all(int socket) {
    struct sw_msg msg;
    while (sw_play_get(socket, &msg)) {
        SW_ASSERT(msg.header.type != SW_MSG_MEM_CLOSE);
        if (msg.header.type == SW_MSG_BUILD)
            sw_play_put_result(socket, msg.header.seq, 1, SW_PLAY_BYTES);
        else if (msg.header.type == SW_MSG_SETTLE && msg.u.settle.type)
            sw_play_put_error(socket, msg.header.seq, "ERESTARTED", SW_SCOPE_REQUEST, "restarted");
        else
            sw_play_put_ok(socket, msg.header.seq);
    }
}

static void serve_without_reading(int socket) {
    greet(socket, false);
    (void)sw_play_register(socket);
    leave(socket);
    const int second = come_back();
    refuse_the_memory(second, "ELIMIT");
    expect_settled(second);
    leave(second);
    const int third = come_back();
    serve_all(third);
    (void)close(second);
    (void)close(third);
}

static void *more_memory(void) {
    const int fd = memfd_create("other", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    ck_assert(fd >= 0 && ftruncate(fd, SW_PLAY_BYTES) == 0);
    void *memory = mmap(NULL, SW_PLAY_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    ck_assert_ptr_ne(memory, MAP_FAILED);
    return memory;
}

/* The MEM_CLOSE waits in the outbox, behind more packets than fit the socket, when the connection is lost again. */
START_TEST(memory_that_is_being_retried_stays_open) {
    enum { MANY = SW_PLAY_MAX_IN_FLIGHT - 1 };
    struct spillway_ticket *tickets[MANY], *ticket = NULL;
    void *other = more_memory();
    sw_play_open(serve_without_reading);
    void *registered = sw_play.data;
    ck_assert_int_eq(spillway_register(sw_play.connection, registered, SW_PLAY_BYTES, &sw_play.error), 0);
    lose_connection();
    while (!atomic_load(&is_back))
        dispatch();
    sw_play.data = other;
    for (unsigned i = 0; i < MANY; i++)
        tickets[i] = sw_play_spill();
    ck_assert_int_eq(spillway_wait(tickets[0], 0, NULL, 0, &sw_play.error),
                     -SPILLWAY_EAGAIN); /* takes the refusal in */
    sw_play.data = registered;
    ck_assert_int_eq(spill(&ticket), 0);
    ck_assert_int_eq(sem_post(&sw_play.go), 0);
    ck_assert_int_eq(spillway_wait(ticket, -1, NULL, 0, &sw_play.error), 0);
    for (unsigned i = 0; i < MANY; i++)
        spillway_ticket_free(tickets[i]);
    spillway_ticket_free(ticket);
    sw_play_close();
}
END_TEST

/* ---- memory that the library copies ------------------------------------------------------------------------------ */

enum { N_PLACES = SW_ARENA_PIECES, SHORT_BYTES = 1000 };
static atomic_bool has_parts; /* the daemon */

/* The part of a short region in the arena, and its commit. */
static void take_short(int socket, uint32_t mem) {
    struct sw_msg part, commit;
    sw_play_expect(socket, &part, SW_MSG_BUILD);
    SW_ASSERT(part.u.build.builds[0].flags == SW_BUILD_BEGIN && part.u.build.chunks[0].mem == mem);
    sw_play_expect(socket, &commit, SW_MSG_BUILD);
    SW_ASSERT(commit.u.build.n_chunks == 0 && commit.u.build.builds[0].flags == SW_BUILD_COMMIT);
    sw_play_put_result(socket, part.header.seq, 1, SHORT_BYTES);
    sw_play_put_result(socket, commit.header.seq, 1, SHORT_BYTES);
}

static void lose_parts(int socket) {
    struct sw_msg msg;
    greet(socket, false);
    const uint32_t mem = sw_play_register(socket);
    for (unsigned i = 0; i < N_PLACES; i++)
        sw_play_expect(socket, &msg, SW_MSG_BUILD);
    atomic_store(&has_parts, true);
    leave(socket);
    const int again = come_back();
    SW_ASSERT(sw_play_register(again) == mem);
    expect_settled(again);
    sw_play_expect(again, &msg, SW_MSG_BUILD); /* whether or not there is anything left of it */
    SW_ASSERT(msg.u.build.n_builds == 1 && msg.u.build.builds[0].flags == SW_BUILD_ABORT);
    sw_play_put_error(again, msg.header.seq, "ENOENT", SW_SCOPE_REQUEST, "no such build");
    take_short(again, mem);
    sw_play_expect_end(again);
    (void)close(again);
}

static struct spillway_ticket *spill_copied(void *heap, uint64_t bytes) {
    struct spillway_ticket *ticket = NULL;
    ck_assert_int_eq(spillway_spill(sw_play.connection, SW_REQUEST(SW_ONE(heap, bytes), .flags = SPILLWAY_EACH), 1,
                                    &ticket, &sw_play.error),
                     0);
    return ticket;
}

/* The build is gone with the process, and is not asked about. The arena serves the next call. */
START_TEST(a_copied_spill_ends_with_the_process) {
    const size_t bytes = (N_PLACES + 1) * SW_PIECE_BYTES;
    struct spillway_result result = {.size = sizeof result};
    void *heap = calloc(1, bytes);
    ck_assert_ptr_nonnull(heap);
    sw_play_open(lose_parts);
    struct spillway_ticket *ticket = spill_copied(heap, bytes);
    while (!atomic_load(&has_parts)) {
        ck_assert_int_ge(spillway_dispatch(sw_play.connection, &sw_play.error), 0);
        (void)usleep(100);
    }
    lose_connection();
    sw_play_ck_error(spillway_wait(ticket, -1, &result, 1, &sw_play.error), SPILLWAY_ERESTARTED, SPILLWAY_SCOPE_REQUEST,
                     "");
    ck_assert_int_eq(result.code, -SPILLWAY_ERESTARTED);
    ck_assert_int_eq(spillway_wait(spill_copied(heap, SHORT_BYTES), -1, NULL, 0, &sw_play.error), 0);
    sw_play_close();
    free(heap);
}
END_TEST

/* ---- frame buffers ----------------------------------------------------------------------------------------------- */

static atomic_bool is_asked;

static void answer_coder(int socket, uint32_t seq) {
    struct sw_msg ok = {.u.coder_ok = {.codecs = UINT64_MAX, .bytes = UINT64_MAX, .chunk_bytes = 16 << 20}};
    sw_play_put(socket, &ok, SW_MSG_CODER_OK, seq);
}

/* The second process reads nothing after HELLO; the third answers all. */
static void serve_a_coder(int socket) {
    struct sw_msg msg;
    greet(socket, false);
    sw_play_expect(socket, &msg, SW_MSG_CODER);
    answer_coder(socket, msg.header.seq);
    for (unsigned i = 0; i < 2; i++) /* frame buffers, and the staging buffer */
        (void)sw_play_register(socket);
    leave(socket);
    const int second = come_back();
    leave(second);
    const int third = come_back();
    while (sw_play_get(third, &msg))
        if (msg.header.type == SW_MSG_CODER) {
            answer_coder(third, msg.header.seq);
            atomic_store(&is_asked, true);
        } else if (msg.header.type == SW_MSG_BUILD) {
            sw_play_put_result(third, msg.header.seq, 1, SW_PLAY_BYTES);
        } else if (msg.header.type == SW_MSG_SETTLE && msg.u.settle.type) {
            sw_play_put_error(third, msg.header.seq, "ERESTARTED", SW_SCOPE_REQUEST, "restarted");
        } else {
            sw_play_put_ok(third, msg.header.seq);
        }
    sw_play_put_ok(third, 0); /* the session has ended, with the names */
    (void)close(second);
    (void)close(third);
}

/* A short region with a name is the service's to encode. */
static struct spillway_ticket *spill_named(void) {
    struct spillway_ticket *ticket = NULL;
    ck_assert_int_eq(spillway_spill(sw_play.connection, SW_REQUEST(SW_ONE(sw_play.data, SW_PLAY_BYTES), .name = "name"),
                                    1, &ticket, &sw_play.error),
                     0);
    return ticket;
}

/* The question what frames the service takes goes before packets that have waited, and some of these are still in the
 * outbox when the connection is lost again: the next process is asked, too. */
START_TEST(a_coder_asks_each_process) {
    enum { MANY = SW_PLAY_MAX_IN_FLIGHT - 1 };
    struct spillway_ticket *tickets[MANY];
    ck_assert_int_eq(setenv("SPILLWAY_CODEC", "client", 1), 0);
    sw_play_open(serve_a_coder);
    ck_assert_int_eq(spillway_prepare(sw_play.connection, sw_play.data, &sw_play.error), 0);
    lose_connection();
    for (unsigned i = 0; i < MANY; i++)
        tickets[i] = spill_named();
    while (sw_play.connection->link != SW_LINK_UP)
        dispatch();
    ck_assert(!sw_list_empty(&sw_play.connection->outbox));
    lose_connection();
    while (!atomic_load(&is_asked))
        dispatch();
    for (unsigned i = 0; i < MANY; i++)
        spillway_ticket_free(tickets[i]);
    sw_play_close();
}
END_TEST

/* The first process ends before it has opened the frame buffers; the next one takes no frames. */
static void leave_without_frame_buffers(int socket) {
    struct sw_msg msg;
    uint32_t mem;
    greet(socket, false);
    sw_play_expect(socket, &msg, SW_MSG_CODER);
    answer_coder(socket, msg.header.seq);
    (void)sw_play_take_registration(socket, &mem);
    leave(socket);
    const int next = come_back();
    while (sw_play_get(next, &msg))
        if (msg.header.type == SW_MSG_CODER) {
            atomic_store(&is_asked, true);
            sw_play_put_error(next, msg.header.seq, "ENOTSUP", SW_SCOPE_REQUEST, "no frames");
        } else if (msg.header.type == SW_MSG_BUILD) {
            sw_play_put_result(next, msg.header.seq, 1, SW_PLAY_BYTES);
        } else {
            sw_play_put_ok(next, msg.header.seq);
        }
    (void)close(next);
}

START_TEST(a_coder_asks_anew_if_its_frame_buffers_were_not_opened) {
    ck_assert_int_eq(setenv("SPILLWAY_CODEC", "client", 1), 0);
    sw_play_open(leave_without_frame_buffers);
    struct spillway_ticket *ticket = sw_play_spill();
    dispatch(); /* hands them over */
    lose_connection();
    ck_assert_int_eq(spillway_wait(ticket, SW_TEST_WAIT_MS, NULL, 0, &sw_play.error), 0);
    ck_assert(atomic_load(&is_asked));
    spillway_ticket_free(ticket);
    sw_play_close();
}
END_TEST

static void grant_too_little(int socket) {
    struct sw_msg msg, little = {.u.coder_ok = {.codecs = UINT64_MAX, .bytes = 1 << 20, .chunk_bytes = 16 << 20}},
                       none = {.u.coder_ok = {.codecs = UINT64_MAX, .chunk_bytes = 16 << 20}};
    greet(socket, false);
    sw_play_expect(socket, &msg, SW_MSG_CODER);
    SW_ASSERT(msg.u.coder.bytes > 1 << 20);
    sw_play_put(socket, &little, SW_MSG_CODER_OK, msg.header.seq);
    sw_play_expect(socket, &msg, SW_MSG_CODER);
    SW_ASSERT(msg.u.coder.bytes == 0);
    sw_play_put(socket, &none, SW_MSG_CODER_OK, msg.header.seq);
    sw_play_put_spilled(socket, sw_play_take_spill(socket), 1);
    sw_play_expect_end(socket);
}

/* What is granted, but too little, is given back: others may need it. The service encodes. */
START_TEST(a_grant_that_is_too_small_is_given_back) {
    struct spillway_result result = {.size = sizeof result};
    ck_assert_int_eq(setenv("SPILLWAY_CODEC", "client", 1), 0);
    sw_play_open(grant_too_little);
    struct spillway_ticket *ticket = sw_play_spill();
    ck_assert_int_eq(spillway_wait(ticket, -1, &result, 1, &sw_play.error), 0);
    spillway_ticket_free(ticket);
    sw_play_close();
}
END_TEST

static void know_one_codec(int socket) {
    struct sw_msg msg, one = {.u.coder_ok = {.codecs = 1, .bytes = UINT64_MAX, .chunk_bytes = 16 << 20}};
    greet(socket, false);
    sw_play_expect(socket, &msg, SW_MSG_CODER);
    sw_play_put(socket, &one, SW_MSG_CODER_OK, msg.header.seq);
    sw_play_put_spilled(socket, sw_play_take_spill(socket), 1);
    sw_play_expect_end(socket);
}

/* An older service could not read what this library encodes. */
START_TEST(a_service_with_fewer_codecs_encodes_itself) {
    ck_assert_int_eq(setenv("SPILLWAY_CODEC", "client", 1), 0);
    sw_play_open(know_one_codec);
    struct spillway_ticket *ticket = sw_play_spill();
    ck_assert_int_eq(spillway_wait(ticket, SW_TEST_WAIT_MS, NULL, 0, &sw_play.error), 0);
    sw_play_close();
}
END_TEST

enum { FIRST_BYTES = 2 << 20, SECOND_BYTES = 16 << 20 };

/* The first region is committed, and the second one, which is longer, has begun: half of it is not answered. Nothing of
 * the call is begun again after the restart. */
static void commit_the_first(int socket) {
    const struct sw_msg_coder_ok coder = {.codecs = UINT64_MAX, .bytes = UINT64_MAX, .chunk_bytes = 65536};
    struct sw_msg msg, ok = {.u.coder_ok = coder};
    uint32_t first = 0, second = 0, n_second = 0;
    bool is_committed = false;
    greet_with(socket, false, 1000, 100);
    while (!(is_committed && second) && sw_play_get(socket, &msg)) {
        const struct sw_msg_build *build = &msg.u.build;
        if (msg.header.type == SW_MSG_CODER) {
            sw_play_put(socket, &ok, SW_MSG_CODER_OK, msg.header.seq);
        } else if (msg.header.type != SW_MSG_BUILD) {
            sw_play_put_ok(socket, msg.header.seq);
        } else {
            const bool commits = build->builds->flags & SW_BUILD_COMMIT;
            if (build->builds->flags & SW_BUILD_BEGIN)
                *(build->buffers->raw_bytes == FIRST_BYTES ? &first : &second) = build->builds->build;
            SW_ASSERT(!(build->builds->flags & SW_BUILD_BEGIN) || build->buffers->chunk_bytes <= coder.chunk_bytes);
            SW_ASSERT(!commits || (build->n_builds == 1 && build->builds->build == first));
            n_second += build->builds->build == second ? build->n_chunks : 0;
            if (build->builds->build != second || n_second < SECOND_BYTES / 65536 / 2)
                sw_play_put_result(socket, msg.header.seq, commits, commits ? FIRST_BYTES : 0);
            is_committed |= commits;
        }
    }
    leave(socket);
    const int again = come_back();
    while (sw_play_get(again, &msg)) {
        SW_ASSERT(msg.header.type != SW_MSG_BUILD || msg.u.build.builds->flags == SW_BUILD_ABORT);
        ok = (struct sw_msg){.u.coder_ok = coder};
        if (msg.header.type == SW_MSG_CODER)
            sw_play_put(again, &ok, SW_MSG_CODER_OK, msg.header.seq);
        else if (msg.header.type == SW_MSG_STATUS)
            sw_play_put(again, &msg, SW_MSG_STATUS_OK, msg.header.seq);
        else if (msg.header.type == SW_MSG_BUILD)
            sw_play_put_result(again, msg.header.seq, 0, 0);
        else
            sw_play_put_ok(again, msg.header.seq);
    }
    (void)close(again);
}

START_TEST(a_call_of_which_a_part_is_committed_is_not_begun_anew) {
    uint8_t *data = calloc(1, FIRST_BYTES + SECOND_BYTES);
    const struct spillway_buffer buffers[] = {{.data = data, .bytes = FIRST_BYTES},
                                              {.data = data + FIRST_BYTES, .bytes = SECOND_BYTES}};
    struct spillway_request both[2];
    struct spillway_result results[2] = {{.size = sizeof results[0]}};
    struct spillway_status status = {.size = sizeof status};
    struct spillway_ticket *ticket = NULL;
    ck_assert_ptr_nonnull(data);
    ck_assert_int_eq(setenv("SPILLWAY_CODEC", "client", 1), 0);
    sw_play_open(commit_the_first);
    for (unsigned i = 0; i < 2; i++)
        both[i] = (struct spillway_request){
            .size = sizeof both[0], .buffers = &buffers[i], .n_buffers = 1, .flags = SPILLWAY_EACH};
    ck_assert_int_eq(spillway_spill(sw_play.connection, both, 2, &ticket, &sw_play.error), 0);
    ck_assert_int_eq(sem_post(&sw_play.go), 0); /* once the first one is committed */
    sw_play_ck_error(spillway_wait(ticket, SW_TEST_WAIT_MS, results, 2, &sw_play.error), SPILLWAY_ERESTARTED,
                     SPILLWAY_SCOPE_REQUEST, "");
    ck_assert(results[0].code == 0 && results[0].region.slot == 1);
    ck_assert_int_eq(results[1].code, -SPILLWAY_ERESTARTED);
    spillway_ticket_free(ticket);
    ck_assert_int_eq(spillway_status(sw_play.connection, &status, &sw_play.error), 0); /* of the next process */
    sw_play_close();
    free(data);
}
END_TEST

static void expect_packed(int socket, struct sw_msg *ret) {
    sw_play_expect(socket, ret, SW_MSG_BUILD);
    SW_ASSERT(ret->u.build.builds[0].flags & SW_BUILD_PACKED);
}

/* The process ends before it has noted the region. */
static void forget_a_packed_region(int socket) {
    struct sw_msg msg;
    greet(socket, false);
    sw_play_expect(socket, &msg, SW_MSG_CODER);
    answer_coder(socket, msg.header.seq);
    (void)sw_play_register(socket);
    expect_packed(socket, &msg);
    (void)shutdown(socket, SHUT_RDWR);
    const int again = come_back();
    for (bool is_told = false; !is_told && sw_play_get(again, &msg);) {
        is_told = msg.header.type == SW_MSG_BUILD;
        SW_ASSERT(!is_told || msg.u.build.builds[0].flags & SW_BUILD_PACKED);
        if (is_told)
            sw_play_put_result(again, msg.header.seq, 5, SW_PLAY_BYTES);
        else if (msg.header.type == SW_MSG_CODER)
            answer_coder(again, msg.header.seq);
        else if (msg.header.type == SW_MSG_SETTLE && msg.u.settle.type)
            sw_play_put_error(again, msg.header.seq, "ERESTARTED", SW_SCOPE_REQUEST, "restarted");
        else
            sw_play_put_ok(again, msg.header.seq);
    }
    while (sw_play_get(again, &msg))
        SW_ASSERT(msg.header.type == SW_MSG_MEM_PARTS || msg.header.type == SW_MSG_MEM_OPEN);
    (void)close(again);
}

/* The bytes are packed, and need no service for that. */
START_TEST(the_next_process_is_told_of_a_packed_region) {
    struct spillway_result result = {.size = sizeof result};
    struct spillway_ticket *ticket = NULL;
    ck_assert_int_eq(setenv("SPILLWAY_CODEC", "client", 1), 0);
    sw_play_open(forget_a_packed_region);
    ck_assert_int_eq(spillway_spill(sw_play.connection,
                                    SW_REQUEST(SW_ONE(sw_play.data, SW_PLAY_BYTES), .flags = SPILLWAY_IN_PLACE), 1,
                                    &ticket, &sw_play.error),
                     0);
    ck_assert_int_eq(spillway_wait(ticket, SW_TEST_WAIT_MS, &result, 1, &sw_play.error), 0);
    ck_assert_uint_eq(result.region.slot, 5);
    sw_play_close();
}
END_TEST

/* ---- marks ------------------------------------------------------------------------------------------------------- */

static uint32_t take_marked_spill(int socket) {
    struct sw_msg open, spill;
    sw_play_expect(socket, &open, SW_MSG_MEM_OPEN);
    sw_play_expect(socket, &spill, SW_MSG_BUILD);
    SW_ASSERT(spill.u.build.chunks[0].order_value > 0);
    return open.header.seq;
}

static void serve_marks(int socket) {
    greet(socket, false);
    uint32_t seq = take_marked_spill(socket);
    sw_play_put_ok(socket, seq);
    sw_play_put_result(socket, seq + 1, 1, SW_PLAY_BYTES);
    leave(socket);
    const int again = come_back();
    expect_settled(again);
    seq = take_marked_spill(again);
    sw_play_put_ok(again, seq);
    sw_play_put_result(again, seq + 1, 2, SW_PLAY_BYTES);
    sw_play_expect_end(again);
    (void)close(again);
}

/* The page of marks is handed over again before a request names one of them; also where that was made meanwhile. */
START_TEST(marks_are_known_to_the_next_process) {
    struct spillway_ticket *ticket = NULL;
    sw_play_open(serve_marks);
    sw_play.gpu.on = true;
    ck_assert_int_eq(spill(&ticket), 0);
    ck_assert_int_eq(spillway_wait(ticket, -1, NULL, 0, &sw_play.error), 0);
    dispatch(); /* takes note of that ticket */
    lose_connection();
    if (_i)
        ck_assert_int_eq(spill(&ticket), 0);
    while (!atomic_load(&is_back))
        dispatch();
    if (!_i)
        ck_assert_int_eq(spill(&ticket), 0);
    ck_assert_int_eq(spillway_wait(ticket, -1, NULL, 0, &sw_play.error), 0);
    ck_assert_uint_eq(sw_play.gpu.n_pages, 2);
    sw_play_close();
}
END_TEST

/* ---- how long it is tried ---------------------------------------------------------------------------------------- */

static void serve_no_more(int socket) {
    greet(socket, false);
    leave(socket);
}

static void stop(int socket) {
    greet(socket, false);
    (void)sem_wait(&sw_play.go);
    sw_play_put_error(socket, 0, "ESHUTDOWN", SW_SCOPE_SESSION, "the service has been stopped");
    (void)shutdown(socket, SHUT_RDWR);
}

/* The service has said so. */
START_TEST(a_service_that_stopped_for_good_is_named) {
    struct spillway_status status = {.size = sizeof status};
    sw_play_open(stop);
    spillway_set_reconnect(sw_play.connection, 50);
    lose_connection();
    sw_play_ck_error(spillway_status(sw_play.connection, &status, &sw_play.error), SPILLWAY_ESHUTDOWN,
                     SPILLWAY_SCOPE_SESSION, "did not come back in time");
    sw_play_close();
}
END_TEST

/* With a limit of 0 nothing is tried. */
START_TEST(no_reconnection_is_tried_without_time) {
    struct spillway_status status = {.size = sizeof status};
    sw_play_open(serve_no_more);
    spillway_set_reconnect(sw_play.connection, 0);
    ck_assert_int_eq(sem_post(&sw_play.go), 0);
    sw_play_ck_error(spillway_status(sw_play.connection, &status, &sw_play.error), SPILLWAY_ECONN,
                     SPILLWAY_SCOPE_SESSION, "");
    ck_assert_str_eq(sw_play.error.text, "the daemon closed the connection");
    sw_play_close();
}
END_TEST

/* The library sleeps until the time is over, while a process that took the connection does not answer. */
START_TEST(the_time_limit_wakes_once) {
    struct pollfd p = {.events = POLLIN};
    unsigned n_wakes = 0;
    int rc = 0;
    sw_play_open(serve_no_more);
    spillway_set_reconnect(sw_play.connection, 100);
    lose_connection();
    p.fd = spillway_fd(sw_play.connection);
    for (; rc == 0; n_wakes++) {
        ck_assert_int_eq(poll(&p, 1, SW_TEST_WAIT_MS), 1);
        rc = spillway_dispatch(sw_play.connection, &sw_play.error);
    }
    sw_play_ck_error(rc, SPILLWAY_ECONN, SPILLWAY_SCOPE_SESSION, "in time");
    ck_assert_uint_lt(n_wakes, 10);
    sw_play_close();
}
END_TEST

/* The service would wait for ten minutes. */
static const struct {
    int limit_ms;
    bool listens; /* it can be connected to, but does not answer */
    bool hello;   /* it has been, already */
} ends[] = {{0, true, false},  {0, true, true},  {0, false, false},
            {50, true, false}, {50, true, true}, {50, false, false}};

START_TEST(a_reconnection_ends_at_its_time_limit) {
    int rc = 0;
    sw_play_open(serve_no_more);
    lose_connection();
    if (!ends[_i].listens)
        ck_assert_int_eq(unlink(sw_play.address.sun_path), 0);
    if (ends[_i].hello)
        dispatch();
    spillway_set_reconnect(sw_play.connection, ends[_i].limit_ms);
    while (rc == 0) {
        struct pollfd p = {.fd = spillway_fd(sw_play.connection), .events = POLLIN};
        ck_assert_int_eq(poll(&p, 1, 30000), 1);
        rc = spillway_dispatch(sw_play.connection, &sw_play.error);
    }
    sw_play_ck_error(rc, SPILLWAY_ECONN, SPILLWAY_SCOPE_SESSION, "in time");
    sw_play_close();
}
END_TEST

/* The limit of the options. The service would wait for ten minutes. */
START_TEST(options_limit_a_reconnection) {
    struct spillway_status status = {.size = sizeof status};
    sw_play_start(serve_no_more);
    ck_assert_int_eq(spillway_open(&sw_play.connection,
                                   SW_OPTIONS(.socket_path = sw_play.address.sun_path, .reconnect_ms = 50),
                                   &sw_play.error),
                     0);
    lose_connection();
    sw_play_ck_error(spillway_status(sw_play.connection, &status, &sw_play.error), SPILLWAY_ECONN,
                     SPILLWAY_SCOPE_SESSION, "in time");
    spillway_close(sw_play.connection);
    sw_play_stop();
}
END_TEST

/* The linker puts it in the place of sw_clock_us(). */
uint64_t __real_sw_clock_us(void);
uint64_t __wrap_sw_clock_us(void);
static atomic_ullong skew_us;
uint64_t __wrap_sw_clock_us(void) {
    return __real_sw_clock_us() + atomic_load(&skew_us);
}

/* The pauses between the attempts become longer, up to half a second: a service that is back is found soon. */
START_TEST(attempts_are_never_far_apart) {
    enum { N_TRIES = 14, LONGEST_US = 500000 };
    struct itimerspec left;
    sw_play_open(serve_no_more);
    lose_connection();
    ck_assert_int_eq(unlink(sw_play.address.sun_path), 0);
    for (unsigned i = 0; i < N_TRIES; i++) {
        ck_assert_int_eq(timerfd_gettime(sw_play.connection->timers[SW_TIMER_RESUME], &left), 0);
        const int64_t left_us = left.it_value.tv_sec * INT64_C(1000000) + left.it_value.tv_nsec / 1000,
                      pause_us = left_us - (int64_t)atomic_load(&skew_us);
        ck_assert_int_le(pause_us, i ? LONGEST_US : LONGEST_US / 50);
        ck_assert(i < 8 || pause_us > LONGEST_US / 2);
        atomic_fetch_add(&skew_us, (unsigned long long)(pause_us > 0 ? pause_us : 0) + 1);
        ck_assert_int_eq(spillway_dispatch(sw_play.connection, &sw_play.error), 0);
    }
    spillway_set_reconnect(sw_play.connection, 0);
    ck_assert_int_lt(spillway_dispatch(sw_play.connection, &sw_play.error), 0);
    sw_play_close();
}
END_TEST

static int64_t pause_left_us(void) {
    struct itimerspec left;
    ck_assert_int_eq(timerfd_gettime(sw_play.connection->timers[SW_TIMER_RESUME], &left), 0);
    return left.it_value.tv_sec * INT64_C(1000000) + left.it_value.tv_nsec / 1000;
}

static void serve_two_losses(int socket) {
    greet(socket, false);
    leave(socket);
    const int again = come_back();
    expect_settled(again);
    leave(again);
    (void)close(again);
}

/* While the connection is up no timer runs, and after the next loss the pauses are short again. */
START_TEST(each_reconnection_begins_anew) {
    enum { FIRST_US = 5000, N_TRIES = 10 };
    char hidden[sizeof sw_play.address.sun_path + 2];
    sw_play_open(serve_two_losses);
    (void)snprintf(hidden, sizeof hidden, "%s_", sw_play.address.sun_path);
    ck_assert_int_eq(rename(sw_play.address.sun_path, hidden), 0);
    lose_connection();
    for (unsigned i = 0; i < N_TRIES; i++) {
        atomic_fetch_add(&skew_us, 500000);
        ck_assert_int_eq(spillway_dispatch(sw_play.connection, &sw_play.error), 0);
    }
    ck_assert_int_eq(rename(hidden, sw_play.address.sun_path), 0);
    atomic_fetch_add(&skew_us, 500000);
    while (!atomic_load(&is_back) || sw_play.connection->link != SW_LINK_UP)
        ck_assert_int_eq(spillway_dispatch(sw_play.connection, &sw_play.error), 0);
    ck_assert_int_eq(pause_left_us(), 0);
    ck_assert_int_eq(unlink(sw_play.address.sun_path), 0);
    lose_connection();
    ck_assert_int_le(pause_left_us() - (int64_t)atomic_load(&skew_us), FIRST_US);
    sw_play_close();
}
END_TEST

/* A program that sleeps on spillway_fd() wakes when the time is over, although the next try would come later. */
START_TEST(the_time_limit_wakes_the_event_loop) {
    struct itimerspec left;
    int rc = 0;
    sw_play_open(serve_no_more);
    spillway_set_reconnect(sw_play.connection, 1);
    lose_connection();
    if (sw_play.connection->link != SW_LINK_UP) { /* not over yet */
        ck_assert_int_eq(timerfd_gettime(sw_play.connection->timers[SW_TIMER_RESUME], &left), 0);
        ck_assert(left.it_value.tv_sec == 0 && left.it_value.tv_nsec <= 1000000);
    }
    while (rc == 0)
        rc = spillway_dispatch(sw_play.connection, &sw_play.error);
    sw_play_ck_error(rc, SPILLWAY_ECONN, SPILLWAY_SCOPE_SESSION, "in time");
    sw_play_close();
}
END_TEST

static void serve_late(int socket) {
    struct sw_msg msg;
    greet(socket, false);
    leave(socket);
    const int again = come_back();
    expect_settled(again);
    sw_play_expect(again, &msg, SW_MSG_STATUS);
    sw_play_put(again, &msg, SW_MSG_STATUS_OK, msg.header.seq);
    sw_play_expect_end(again);
    (void)close(again);
}

START_TEST(the_time_limit_can_grow_during_a_reconnection) {
    struct spillway_status status = {.size = sizeof status};
    sw_play_open(serve_late);
    spillway_set_timeout(sw_play.connection, 60); /* for a service that answers */
    spillway_set_reconnect(sw_play.connection, 50);
    lose_connection();
    spillway_set_reconnect(sw_play.connection, -1);
    (void)usleep(100000);
    ck_assert_int_eq(spillway_status(sw_play.connection, &status, &sw_play.error), 0);
    sw_play_close();
}
END_TEST

/* ---- another process, another state ------------------------------------------------------------------------------ */

static void await_return(void) {
    while (!atomic_load(&is_back))
        dispatch();
}

static void serve_with_lower_limits(int socket) {
    greet(socket, false);
    leave(socket);
    const int again = accept(sw_play.listener, NULL, NULL);
    SW_ASSERT(again >= 0);
    greet_with(again, true, 1, 1);
    expect_settled(again);
    const uint32_t seq = sw_play_take_spill(again);
    (void)sem_wait(&sw_play.go);
    sw_play_put_spilled(again, seq, 1);
    sw_play_expect_end(again);
    (void)close(again);
}

START_TEST(limits_are_those_of_the_next_process) {
    struct spillway_ticket *first = NULL, *second = NULL;
    sw_play_open(serve_with_lower_limits);
    lose_connection();
    await_return();
    ck_assert_int_eq(spill(&first), 0);
    sw_play_ck_error(spill(&second), SPILLWAY_ELIMIT, SPILLWAY_SCOPE_REQUEST, "1 operations");
    ck_assert_int_eq(sem_post(&sw_play.go), 0);
    ck_assert_int_eq(spillway_wait(first, -1, NULL, 0, &sw_play.error), 0);
    sw_play_ck_error(spill_buffers(&second), SPILLWAY_ELIMIT, SPILLWAY_SCOPE_REQUEST, "allows 1 in flight");
    sw_play_close();
}
END_TEST

static void serve_with_a_shorter_grace(int socket) {
    greet(socket, false);
    leave(socket);
    grace_ms = 50;
    const int again = come_back();
    expect_settled(again);
    leave(again);
    (void)close(again);
}

/* The next process may come back sooner than this one, or later: its own word counts. */
START_TEST(the_grace_is_that_of_the_next_process) {
    int rc = 0;
    sw_play_open(serve_with_a_shorter_grace);
    lose_connection();
    await_return();
    ck_assert_int_eq(sem_post(&sw_play.go), 0);
    while (rc == 0) {
        struct pollfd p = {.fd = spillway_fd(sw_play.connection), .events = POLLIN};
        ck_assert_int_eq(poll(&p, 1, 10000), 1);
        rc = spillway_dispatch(sw_play.connection, &sw_play.error);
    }
    sw_play_ck_error(rc, SPILLWAY_ECONN, SPILLWAY_SCOPE_SESSION, "in time");
    sw_play_close();
}
END_TEST

enum { OUTAGE_MS = 200 };

static void serve_after_an_outage(int socket) {
    struct sw_msg msg;
    greet(socket, false);
    sw_play_expect(socket, &msg, SW_MSG_STATUS);
    sw_play_hang_up(socket, msg.header.seq);
    (void)usleep(OUTAGE_MS * 1000);
    const int again = come_back();
    sw_play_expect(again, &msg, SW_MSG_STATUS);
    sw_play_put(again, &msg, SW_MSG_STATUS_OK, msg.header.seq);
    expect_settled(again);
    sw_play_expect_end(again);
    (void)close(again);
}

/* The limit of a call is the service's time to answer: while there is no service it does not run. */
START_TEST(an_outage_does_not_count) {
    struct spillway_status status = {.size = sizeof status};
    sw_play_open(serve_after_an_outage);
    spillway_set_timeout(sw_play.connection, OUTAGE_MS / 2);
    ck_assert_int_eq(spillway_status(sw_play.connection, &status, &sw_play.error), 0);
    sw_play_close();
}
END_TEST

enum { LIMIT_S = 30 }; /* of a call */

static void skew_by(unsigned seconds) {
    atomic_fetch_add(&skew_us, seconds * UINT64_C(1000000));
}

static void serve_long_after_an_outage(int socket) {
    struct sw_msg msg, settle;
    greet(socket, false);
    sw_play_expect(socket, &msg, SW_MSG_STATUS);
    sw_play_hang_up(socket, msg.header.seq);
    const int again = accept(sw_play.listener, NULL, NULL);
    SW_ASSERT(again >= 0);
    skew_by(LIMIT_S - 1); /* now that no timer of the client's waits for the true clock */
    greet(again, true);
    sw_play_expect(again, &msg, SW_MSG_STATUS);
    sw_play_expect(again, &settle, SW_MSG_SETTLE);
    (void)usleep(20000); /* until the connection is back on the other side, too */
    skew_by(LIMIT_S - 1);
    sw_play_put_ok(again, settle.header.seq); /* the call looks at the time */
    (void)usleep(20000);
    sw_play_put(again, &msg, SW_MSG_STATUS_OK, msg.header.seq);
    sw_play_expect_end(again);
    (void)close(again);
}

/* The time is counted from the return, not from the call. */
START_TEST(after_an_outage_the_service_has_all_its_time) {
    struct spillway_status status = {.size = sizeof status};
    sw_play_open(serve_long_after_an_outage);
    spillway_set_timeout(sw_play.connection, LIMIT_S * 1000);
    ck_assert_int_eq(spillway_status(sw_play.connection, &status, &sw_play.error), 0);
    sw_play_close();
}
END_TEST

static void serve_a_stop_and_a_crash(int socket) {
    greet(socket, false);
    (void)sem_wait(&sw_play.go);
    sw_play_put_error(socket, 0, "ESHUTDOWN", SW_SCOPE_SESSION, "the service has been stopped");
    (void)shutdown(socket, SHUT_RDWR);
    const int again = come_back();
    expect_settled(again);
    leave(again);
    (void)close(again);
}

/* That the process before was stopped says nothing of this one's end. */
START_TEST(a_stop_is_forgotten_when_the_service_is_back) {
    struct spillway_status status = {.size = sizeof status};
    sw_play_open(serve_a_stop_and_a_crash);
    lose_connection();
    await_return();
    spillway_set_reconnect(sw_play.connection, 50);
    ck_assert_int_eq(sem_post(&sw_play.go), 0);
    sw_play_ck_error(spillway_status(sw_play.connection, &status, &sw_play.error), SPILLWAY_ECONN,
                     SPILLWAY_SCOPE_SESSION, "in time");
    sw_play_close();
}
END_TEST

static void await_end(int rc, int code) {
    while (rc == 0) {
        struct pollfd p = {.fd = spillway_fd(sw_play.connection), .events = POLLIN};
        ck_assert_int_eq(poll(&p, 1, 30000), 1);
        rc = spillway_dispatch(sw_play.connection, &sw_play.error);
    }
    sw_play_ck_error(rc, code, SPILLWAY_SCOPE_SESSION, "has nothing of this connection");
}

static unsigned other_version; /* _i of the next test */

/* A process that is full, or stops, and then one that has no such session, or speaks another version. */
static void serve_another(int socket) {
    struct sw_msg msg, reply = {.u.hello_ok = {.version = SW_PROTO_VERSION + other_version,
                                               .max_in_flight = SW_PLAY_MAX_IN_FLIGHT,
                                               .max_buffers = 100,
                                               .resumed = other_version,
                                               .reconnect_ms = 600000}};
    greet(socket, false);
    (void)sw_play_take_spill(socket);
    leave(socket);
    int again = accept(sw_play.listener, NULL, NULL);
    sw_play_expect(again, &msg, SW_MSG_HELLO);
    sw_play_put_error(again, msg.header.seq, "ELIMIT", SW_SCOPE_SESSION, "too many sessions");
    sw_play_expect_end(again);
    (void)close(again);
    again = accept(sw_play.listener, NULL, NULL);
    sw_play_expect(again, &msg, SW_MSG_HELLO);
    SW_ASSERT(memcmp(msg.u.hello.token, token, sizeof token) == 0);
    sw_play_put(again, &reply, SW_MSG_HELLO_OK, msg.header.seq);
    sw_play_expect_end(again);
    (void)close(again);
}

START_TEST(a_session_that_is_gone_ends_the_connection) {
    struct spillway_status status = {.size = sizeof status};
    struct spillway_ticket *ticket = NULL;
    other_version = (unsigned)_i;
    sw_play_open(serve_another);
    ck_assert_int_eq(spill(&ticket), 0);
    lose_connection();
    await_end(0, SPILLWAY_ERESTARTED);
    ck_assert_int_eq(spillway_wait(ticket, -1, NULL, 0, &sw_play.error), -SPILLWAY_ERESTARTED);
    ck_assert_int_eq(spillway_status(sw_play.connection, &status, &sw_play.error), -SPILLWAY_ERESTARTED);
    ck_assert_int_eq(spill(&ticket), -SPILLWAY_ERESTARTED);
    sw_play_close();
}
END_TEST

/* Another call finds that out: an event loop wakes, to be told as well. */
START_TEST(the_end_of_a_session_wakes_the_event_loop) {
    struct spillway_status status = {.size = sizeof status};
    other_version = 0;
    sw_play_open(serve_another);
    spillway_ticket_free(sw_play_spill());
    lose_connection();
    ck_assert_int_eq(spillway_status(sw_play.connection, &status, &sw_play.error), -SPILLWAY_ERESTARTED);
    struct pollfd p = {.fd = spillway_fd(sw_play.connection), .events = POLLIN};
    ck_assert_int_eq(poll(&p, 1, SW_TEST_WAIT_MS), 1);
    ck_assert_int_eq(spillway_dispatch(sw_play.connection, &sw_play.error), -SPILLWAY_ERESTARTED);
    sw_play_close();
}
END_TEST

static void refuse_the_memory_and_leave(int socket) {
    greet(socket, false);
    sw_play_put_error(socket, sw_play_take_spill(socket), "EIMPORT", SW_SCOPE_REQUEST, "cannot be mapped");
    leave(socket);
    const int again = come_back();
    expect_settled(again);
    sw_play_expect_end(again);
    (void)close(again);
}

/* One of its packets has failed, so the service has nothing of it. */
START_TEST(a_request_that_has_failed_is_not_settled) {
    struct spillway_ticket *ticket = NULL;
    sw_play_open(refuse_the_memory_and_leave);
    ck_assert_int_eq(spill(&ticket), 0);
    ck_assert_int_eq(spillway_wait(ticket, 100, NULL, 0, &sw_play.error), -SPILLWAY_EAGAIN); /* takes the error in */
    lose_connection();
    sw_play_ck_error(spillway_wait(ticket, -1, NULL, 0, &sw_play.error), SPILLWAY_EIMPORT, SPILLWAY_SCOPE_REQUEST,
                     "cannot be mapped");
    await_return();
    sw_play_close();
}
END_TEST

static void lose_a_registration(int socket) {
    struct sw_msg msg;
    uint32_t mem;
    greet(socket, false);
    (void)sw_play_take_registration(socket, &mem);
    (void)shutdown(socket, SHUT_RDWR);
    const int again = come_back();
    expect_settled(again);
    sw_play_expect(again, &msg, SW_MSG_MEM_CLOSE); /* of the first attempt, whose end is not known */
    sw_play_put_error(again, msg.header.seq, "ENOENT", SW_SCOPE_REQUEST, "no such memory");
    (void)sw_play_register(again);
    sw_play_expect_end(again);
    (void)close(again);
}

START_TEST(a_registration_is_repeated) {
    sw_play_open(lose_a_registration);
    ck_assert_int_eq(spillway_register(sw_play.connection, sw_play.data, SW_PLAY_BYTES, &sw_play.error), 0);
    sw_play_close();
}
END_TEST

static void lose_a_drop(int socket) {
    struct sw_msg msg;
    greet(socket, false);
    sw_play_put_spilled(socket, sw_play_take_spill(socket), 7);
    sw_play_expect(socket, &msg, SW_MSG_DISCARD);
    sw_play_hang_up(socket, msg.header.seq);
    const int again = come_back();
    sw_play_expect_drop(again, 7);
    expect_settled(again);
    sw_play_expect_end(again);
    (void)close(again);
}

/* Nobody waits for it, and nobody else would drop the region. */
START_TEST(a_drop_of_the_librarys_own_is_repeated) {
    sw_play_open(lose_a_drop);
    struct spillway_ticket *ticket = sw_play_spill();
    ck_assert_int_eq(spillway_wait(ticket, -1, NULL, 0, &sw_play.error), 0);
    spillway_ticket_free(ticket);
    await_return();
    sw_play_close();
}
END_TEST

static void serve_at_a_relative_path(int socket) {
    greet(socket, false);
    leave(socket);
    const int again = come_back();
    expect_settled(again);
    sw_play_expect_end(again);
    (void)close(again);
}

START_TEST(a_program_may_leave_the_folder_of_a_relative_path) {
    sw_play_start(serve_at_a_relative_path);
    ck_assert_int_eq(chdir(sw_play.folder), 0);
    ck_assert_int_eq(spillway_open(&sw_play.connection, SW_OPTIONS(.socket_path = "s"), &sw_play.error), 0);
    ck_assert_int_eq(chdir("/"), 0);
    lose_connection();
    await_return();
    spillway_close(sw_play.connection);
    sw_play_stop();
}
END_TEST

static void expect_settle_of(int socket, uint32_t seq, struct sw_msg *ret) {
    sw_play_expect(socket, ret, SW_MSG_SETTLE);
    SW_ASSERT(ret->u.settle.type == SW_MSG_BUILD && ret->u.settle.seq == seq && ret->u.settle.n_ids == 1);
}

/* Two processes end before they answer. */
static void serve_a_request_settled_thrice(int socket) {
    struct sw_msg msg;
    greet(socket, false);
    const uint32_t seq = sw_play_take_spill(socket) + 2;
    leave(socket);
    for (unsigned i = 0; i < 2; i++) {
        const int again = come_back();
        expect_settle_of(again, seq, &msg);
        SW_ASSERT(msg.header.seq != seq);
        (void)shutdown(again, SHUT_RDWR);
        (void)close(again);
    }
    const int last = come_back();
    expect_settle_of(last, seq, &msg);
    sw_play_put_result(last, msg.header.seq, 7, SW_PLAY_BYTES);
    expect_settled(last);
    sw_play_expect_drop(last, 7);
    sw_play_expect_end(last);
    (void)close(last);
}

/* It is always asked about by the number of the request itself. */
START_TEST(a_request_is_settled_until_there_is_an_answer) {
    struct spillway_result result = {.size = sizeof result};
    struct spillway_ticket *ticket = NULL;
    sw_play_open(serve_a_request_settled_thrice);
    ck_assert_int_eq(spill(&ticket), 0);
    lose_connection();
    ck_assert_int_eq(spillway_wait(ticket, -1, &result, 1, &sw_play.error), 0);
    ck_assert_uint_eq(result.region.slot, 7);
    ck_assert_int_eq(spillway_drop(sw_play.connection, &result.region, 1, &sw_play.error), 0);
    sw_play_close();
}
END_TEST

static uint32_t settled_flags; /* that the request shall be settled with */

static void serve_a_settled_batch(int socket) {
    struct sw_msg msg;
    greet(socket, false);
    (void)sw_play_register(socket);
    sw_play_expect(socket, &msg, SW_MSG_BUILD);
    SW_ASSERT(msg.u.build.n_builds == 2);
    const uint32_t seq = msg.header.seq;
    leave(socket);
    const int again = come_back();
    (void)sw_play_register(again);
    sw_play_expect(again, &msg, SW_MSG_SETTLE);
    SW_ASSERT(msg.u.settle.seq == seq && msg.u.settle.n_ids == 2 && msg.u.settle.flags == settled_flags);
    sw_play_put_batch(again, msg.header.seq, 2, 1, UINT64_C(2) * SW_PLAY_BYTES);
    expect_settled(again);
    sw_play_expect_end(again);
    (void)close(again);
}

/* As it was sent: all or nothing, or (_i) each by itself. */
START_TEST(a_batch_is_settled_as_it_was_sent) {
    struct spillway_ticket *ticket = NULL;
    settled_flags = _i ? 0 : SW_REQ_ALL;
    sw_play_open(serve_a_settled_batch);
    ck_assert_int_eq(spillway_register(sw_play.connection, sw_play.data, SW_PLAY_BYTES, &sw_play.error), 0);
    const struct spillway_request *one =
        SW_REQUEST(SW_ONE(sw_play.data, SW_PLAY_BYTES), .flags = _i ? (uint32_t)SPILLWAY_EACH : 0u);
    const struct spillway_request both[] = {*one, *one};
    ck_assert_int_eq(spillway_spill(sw_play.connection, both, 2, &ticket, &sw_play.error), 0);
    lose_connection();
    ck_assert_int_eq(spillway_wait(ticket, -1, NULL, 0, &sw_play.error), 0);
    sw_play_close();
}
END_TEST

static const struct {
    const char *name;
    int code;
} repeated[] = {{"ENOENT", 0}, {"ESTALE", 0}, {"EBUSY", SPILLWAY_EBUSY}};
static unsigned repetition;

/* The process is killed before its answer arrives, but has dropped the region. */
static void serve_a_drop_twice(int socket) {
    const struct sw_wire_result result = {.error = 1, .scope = SW_SCOPE_REQUEST};
    struct sw_wire_text text = {""};
    struct sw_msg msg, reply = {.u.results = {.n_results = 1, .n_texts = 1, .results = &result, .texts = &text}};
    memcpy(text.text, repeated[repetition].name, strlen(repeated[repetition].name));
    greet(socket, false);
    sw_play_expect(socket, &msg, SW_MSG_DISCARD);
    sw_play_hang_up(socket, msg.header.seq);
    const int again = come_back();
    sw_play_expect(again, &msg, SW_MSG_DISCARD);
    SW_ASSERT(msg.u.discard.n_ids == 1 && msg.u.discard.ids[0].slot == 3);
    sw_play_put(again, &reply, SW_MSG_RESULTS, msg.header.seq);
    expect_settled(again);
    sw_play_expect_end(again);
    (void)close(again);
}

START_TEST(a_drop_that_is_repeated_may_find_nothing) {
    const struct spillway_region region = {3, 9};
    repetition = (unsigned)_i;
    sw_play_open(serve_a_drop_twice);
    ck_assert_int_eq(spillway_drop(sw_play.connection, &region, 1, &sw_play.error), -repeated[_i].code);
    sw_play_close();
}
END_TEST

/* ---- the end ----------------------------------------------------------------------------------------------------- */

/* The next process has the connection, and says nothing. The client hangs up at once: it has nothing of the client's.
 */
static void expect_a_quick_end(int socket) {
    struct sw_msg msg;
    greet(socket, false);
    (void)sw_play_take_spill(socket);
    leave(socket);
    const int again = accept(sw_play.listener, NULL, NULL);
    sw_play_expect(again, &msg, SW_MSG_HELLO);
    struct pollfd p = {.fd = again};
    SW_ASSERT(poll(&p, 1, 5000) == 1 && p.revents & POLLHUP);
    (void)close(again);
}

START_TEST(close_does_not_wait_for_a_service_that_is_not_back) {
    struct spillway_ticket *ticket = NULL;
    sw_play_open(expect_a_quick_end);
    ck_assert_int_eq(spill(&ticket), 0);
    lose_connection();
    while (sw_play.connection->link != SW_LINK_HELLO)
        dispatch();
    sw_play_close();
}
END_TEST

/* The process ends before the session does: its last packet is an answer. */
static void answer_at_the_end(int socket) {
    struct sw_msg msg;
    greet(socket, false);
    sw_play_put_spilled(socket, sw_play_take_spill(socket), 1);
    const uint32_t seq = sw_play_take_spill(socket);
    sw_play_expect_end(socket);
    sw_play_put_ok(socket, seq);
    (void)shutdown(socket, SHUT_RDWR);
    const int again = come_back();
    SW_ASSERT(!sw_play_get(again, &msg));
    sw_play_put_ok(again, 0);
    (void)close(again);
}

/* Else the next process would keep the name for it. */
START_TEST(close_ends_the_session_with_the_next_process) {
    sw_play_open(answer_at_the_end);
    struct spillway_ticket *named = spill_named(), *other = NULL;
    ck_assert_int_eq(spillway_wait(named, -1, NULL, 0, &sw_play.error), 0);
    ck_assert_int_eq(spill(&other), 0);
    sw_play_close();
}
END_TEST

/* ---- somebody else has taken the path ---------------------------------------------------------------------------- */

enum { IMPOSTOR = 4242 };
static atomic_bool was_impostor;

/* Until the next process is asked for its status; returns its socket. */
static int come_back_after_an_impostor(int socket) {
    struct sw_msg msg;
    greet(socket, false);
    leave(socket);
    int again;
    for (char byte; (again = accept(sw_play.listener, NULL, NULL)) >= 0 && recv(again, &byte, 1, MSG_PEEK) == 0;) {
        (void)close(again); /* no token, no memory */
        atomic_store(&was_impostor, true);
    }
    SW_ASSERT(atomic_load(&was_impostor));
    greet(again, true);
    expect_settled(again);
    sw_play_expect(again, &msg, SW_MSG_STATUS);
    sw_play_put(again, &msg, SW_MSG_STATUS_OK, msg.header.seq);
    return again;
}

static void serve_after_an_impostor(int socket) {
    const int again = come_back_after_an_impostor(socket);
    sw_play_expect_end(again);
    (void)close(again);
}

/* Opens a connection, loses it, meets an impostor, and then the service again. */
static void meet_an_impostor(void (*serve)(int socket)) {
    struct spillway_status status = {.size = sizeof status};
    sw_play_open(serve);
    lose_connection();
    sw_play.stranger = IMPOSTOR;
    while (!atomic_load(&was_impostor))
        dispatch();
    sw_play.stranger = 0;
    ck_assert_int_eq(spillway_status(sw_play.connection, &status, &sw_play.error), 0);
}

START_TEST(an_impostor_gets_no_data) {
    meet_an_impostor(serve_after_an_impostor);
    sw_play_close();
}
END_TEST

START_TEST(an_impostor_is_named_when_the_time_is_over) {
    struct spillway_status status = {.size = sizeof status};
    sw_play_open(serve_no_more);
    spillway_set_reconnect(sw_play.connection, 500);
    lose_connection();
    sw_play.stranger = IMPOSTOR;
    sw_play_ck_error(spillway_status(sw_play.connection, &status, &sw_play.error), SPILLWAY_EUNTRUSTED,
                     SPILLWAY_SCOPE_SESSION, "uid 4242");
    sw_play_close();
}
END_TEST

static void serve_after_an_impostor_and_leave(int socket) {
    const int again = come_back_after_an_impostor(socket);
    leave(again);
    (void)close(again);
}

/* It was another loss of the connection. */
START_TEST(an_impostor_is_forgotten_when_the_service_is_back) {
    struct spillway_status status = {.size = sizeof status};
    meet_an_impostor(serve_after_an_impostor_and_leave);
    spillway_set_reconnect(sw_play.connection, 50);
    ck_assert_int_eq(sem_post(&sw_play.go), 0);
    sw_play_ck_error(spillway_status(sw_play.connection, &status, &sw_play.error), SPILLWAY_ECONN,
                     SPILLWAY_SCOPE_SESSION, "in time");
    sw_play_close();
}
END_TEST

int main(void) {
    Suite *suite = suite_create("ipc_client_resume");
    TCase *tcase = tcase_create("resume");
    tcase_add_loop_test(tcase, memory_not_handed_over_is_retried, 1, 6);
    tcase_add_loop_test(tcase, the_error_of_memory_not_handed_over_is_reported, 0, N_REQUESTS);
    tcase_add_loop_test(tcase, refused_memory_is_retried, 0, N_REQUESTS);
    tcase_add_test(tcase, refused_memory_can_be_unregistered);
    tcase_add_test(tcase, memory_that_is_being_retried_stays_open);
    tcase_add_test(tcase, a_copied_spill_ends_with_the_process);
    tcase_add_test(tcase, a_coder_asks_each_process);
    tcase_add_test(tcase, a_coder_asks_anew_if_its_frame_buffers_were_not_opened);
    tcase_add_test(tcase, a_grant_that_is_too_small_is_given_back);
    tcase_add_test(tcase, a_service_with_fewer_codecs_encodes_itself);
    tcase_add_test(tcase, a_call_of_which_a_part_is_committed_is_not_begun_anew);
    tcase_add_test(tcase, the_next_process_is_told_of_a_packed_region);
    tcase_add_loop_test(tcase, marks_are_known_to_the_next_process, 0, 2);
    tcase_add_loop_test(tcase, a_reconnection_ends_at_its_time_limit, 0, (int)(sizeof ends / sizeof ends[0]));
    tcase_add_test(tcase, a_service_that_stopped_for_good_is_named);
    tcase_add_test(tcase, no_reconnection_is_tried_without_time);
    tcase_add_test(tcase, the_time_limit_wakes_once);
    tcase_add_test(tcase, options_limit_a_reconnection);
    tcase_add_test(tcase, the_time_limit_wakes_the_event_loop);
    tcase_add_test(tcase, attempts_are_never_far_apart);
    tcase_add_test(tcase, each_reconnection_begins_anew);
    tcase_add_test(tcase, the_time_limit_can_grow_during_a_reconnection);
    tcase_add_test(tcase, limits_are_those_of_the_next_process);
    tcase_add_test(tcase, the_grace_is_that_of_the_next_process);
    tcase_add_test(tcase, an_outage_does_not_count);
    tcase_add_test(tcase, after_an_outage_the_service_has_all_its_time);
    tcase_add_loop_test(tcase, a_session_that_is_gone_ends_the_connection, 0, 2);
    tcase_add_test(tcase, the_end_of_a_session_wakes_the_event_loop);
    tcase_add_test(tcase, a_request_that_has_failed_is_not_settled);
    tcase_add_test(tcase, a_registration_is_repeated);
    tcase_add_test(tcase, a_drop_of_the_librarys_own_is_repeated);
    tcase_add_test(tcase, a_program_may_leave_the_folder_of_a_relative_path);
    tcase_add_test(tcase, a_request_is_settled_until_there_is_an_answer);
    tcase_add_loop_test(tcase, a_batch_is_settled_as_it_was_sent, 0, 2);
    tcase_add_loop_test(tcase, a_drop_that_is_repeated_may_find_nothing, 0, 3);
    tcase_add_test(tcase, a_stop_is_forgotten_when_the_service_is_back);
    tcase_add_test(tcase, close_does_not_wait_for_a_service_that_is_not_back);
    tcase_add_test(tcase, close_ends_the_session_with_the_next_process);
    tcase_add_test(tcase, an_impostor_gets_no_data);
    tcase_add_test(tcase, an_impostor_is_named_when_the_time_is_over);
    tcase_add_test(tcase, an_impostor_is_forgotten_when_the_service_is_back);
    suite_add_tcase(suite, tcase);
    return sw_test_run(suite, CK_FORK);
}
