/* The client library when its connection is lost and comes back: what it had handed over, or was about to, is handed
 * over to the next process, which has kept the session. */
#include "base/alloc.h"
#include "base/assert.h"
#include "ipc/client/client_staging.h"
#include "ipc/proto.h"
#include "ipc/spillway.h"
#include "tests/lib/play.h"
#include "tests/lib/requests.h"
#include "tests/lib/resume_rig.h"
#include "tests/lib/run.h"

#include <check.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

static int spill_batch(struct spillway_ticket **ret) {
    const struct spillway_request *request = SW_REQUEST(SW_ONE(sw_play.data, SW_PLAY_BYTES));
    const struct spillway_request both[] = {*request, *request};
    return spillway_spill(sw_play.connection, both, 2, ret, &sw_play.error);
}

static const struct {
    int (*start)(struct spillway_ticket **ret);
    unsigned n_builds, n_buffers;
} requests[] = {{sw_resume_spill, 1, 1}, {spill_batch, 2, 2}, {sw_resume_spill_buffers, 1, 2}};
enum { N_REQUESTS = sizeof requests / sizeof requests[0] };

/* ---- registered memory ------------------------------------------------------------------------------------------- */

static void serve_a_late_registration(int socket) {
    struct sw_msg msg;
    uint32_t mem;
    sw_resume_greet(socket, false);
    const uint32_t before = sw_play_register(socket);
    sw_resume_leave(socket);
    const int again = sw_resume_come_back();
    sw_resume_expect_settled(again);
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
    sw_resume_lose_connection();
    sw_alloc_fail_nth((unsigned long)_i);
    while (!atomic_load(&sw_resume_is_back))
        sw_resume_dispatch();
    sw_alloc_fail_nth(0);
    for (unsigned i = 0; i < 2; i++) {
        ck_assert_int_eq(sw_resume_spill(&ticket), 0);
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
    sw_resume_greet(socket, false);
    (void)sw_play_register(socket);
    sw_resume_leave(socket);
    (void)sem_wait(&sw_play.go);
    const int again = sw_resume_come_back();
    sw_resume_expect_settled(again);
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
    sw_resume_lose_connection();
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
    sw_resume_greet(socket, false);
    (void)sw_play_register(socket);
    sw_resume_leave(socket);
    (void)sem_wait(&sw_play.go);
    const int again = sw_resume_come_back();
    refuse_the_memory(again, "ELIMIT");
    sw_resume_expect_settled(again);
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
    sw_resume_lose_connection();
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
    sw_resume_greet(socket, false);
    (void)sw_play_register(socket);
    sw_resume_leave(socket);
    const int again = sw_resume_come_back();
    refuse_the_memory(again, "ELIMIT");
    sw_resume_expect_settled(again);
    sw_play_expect(again, &msg, SW_MSG_MEM_CLOSE);
    sw_play_put_error(again, msg.header.seq, "ELIMIT", SW_SCOPE_REQUEST, "not now");
    sw_play_expect_end(again);
    (void)close(again);
}

START_TEST(refused_memory_can_be_unregistered) {
    sw_play_open(serve_without_an_entry);
    ck_assert_int_eq(spillway_register(sw_play.connection, sw_play.data, SW_PLAY_BYTES, &sw_play.error), 0);
    sw_resume_lose_connection();
    ck_assert_int_eq(spillway_unregister(sw_play.connection, sw_play.data, &sw_play.error), 0);
    ck_assert_int_eq(sw_play.error.code, 0);
    sw_play_close();
}
END_TEST

static void *more_memory(void) {
    const int fd = memfd_create("other", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    ck_assert(fd >= 0 && ftruncate(fd, SW_PLAY_BYTES) == 0);
    void *memory = mmap(NULL, SW_PLAY_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    ck_assert_ptr_ne(memory, MAP_FAILED);
    return memory;
}

/* The first process ends without an answer that it has closed one of two memories. */
static void leave_while_it_closes_memory(int socket) {
    struct sw_msg msg;
    sw_resume_greet(socket, false);
    const uint32_t closed = sw_play_register(socket), kept = sw_play_register(socket);
    sw_play_expect(socket, &msg, SW_MSG_MEM_CLOSE);
    SW_ASSERT(msg.u.mem_close.mem == closed);
    sw_resume_leave(socket);
    const int again = sw_resume_come_back();
    SW_ASSERT(sw_play_register(again) == kept);
    sw_resume_expect_settled(again);
    sw_play_expect(again, &msg, SW_MSG_BUILD);
    SW_ASSERT(msg.u.build.chunks[0].mem == kept);
    sw_play_put_result(again, msg.header.seq, 1, SW_PLAY_BYTES);
    sw_play_expect_end(again);
    (void)close(again);
}

/* It is not handed over again; what was registered after it is. */
START_TEST(memory_that_is_being_closed_stays_closed) {
    struct spillway_ticket *ticket = NULL;
    void *other = more_memory();
    sw_play_open(leave_while_it_closes_memory);
    ck_assert_int_eq(spillway_register(sw_play.connection, other, SW_PLAY_BYTES, &sw_play.error), 0);
    ck_assert_int_eq(spillway_register(sw_play.connection, sw_play.data, SW_PLAY_BYTES, &sw_play.error), 0);
    const int timeout_ms = sw_play.connection->timeout_ms;
    sw_play.connection->timeout_ms = 1;
    ck_assert_int_eq(spillway_unregister(sw_play.connection, other, &sw_play.error), -SPILLWAY_ETIMEDOUT);
    sw_play.connection->timeout_ms = timeout_ms;
    sw_resume_lose_connection();
    ck_assert_int_eq(sw_resume_spill(&ticket), 0);
    ck_assert_int_eq(spillway_wait(ticket, SW_TEST_WAIT_MS, NULL, 0, &sw_play.error), 0);
    ck_assert_int_eq(spillway_unregister(sw_play.connection, other, &sw_play.error), 0);
    sw_play_close();
    (void)munmap(other, SW_PLAY_BYTES);
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
    sw_resume_greet(socket, false);
    (void)sw_play_register(socket);
    sw_resume_leave(socket);
    const int second = sw_resume_come_back();
    refuse_the_memory(second, "ELIMIT");
    sw_resume_expect_settled(second);
    sw_resume_leave(second);
    const int third = sw_resume_come_back();
    serve_all(third);
    (void)close(second);
    (void)close(third);
}

/* The MEM_CLOSE waits in the outbox, behind more packets than fit the socket, when the connection is lost again. */
START_TEST(memory_that_is_being_retried_stays_open) {
    enum { MANY = SW_PLAY_MAX_IN_FLIGHT - 1 };
    struct spillway_ticket *tickets[MANY], *ticket = NULL;
    void *other = more_memory();
    sw_play_open(serve_without_reading);
    void *registered = sw_play.data;
    ck_assert_int_eq(spillway_register(sw_play.connection, registered, SW_PLAY_BYTES, &sw_play.error), 0);
    sw_resume_lose_connection();
    while (!atomic_load(&sw_resume_is_back))
        sw_resume_dispatch();
    sw_play.data = other;
    for (unsigned i = 0; i < MANY; i++)
        tickets[i] = sw_play_spill();
    ck_assert_int_eq(spillway_wait(tickets[0], 0, NULL, 0, &sw_play.error),
                     -SPILLWAY_EAGAIN); /* takes the refusal in */
    sw_play.data = registered;
    ck_assert_int_eq(sw_resume_spill(&ticket), 0);
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
    sw_resume_greet(socket, false);
    const uint32_t mem = sw_play_register(socket);
    for (unsigned i = 0; i < N_PLACES; i++)
        sw_play_expect(socket, &msg, SW_MSG_BUILD);
    atomic_store(&has_parts, true);
    sw_resume_leave(socket);
    const int again = sw_resume_come_back();
    SW_ASSERT(sw_play_register(again) == mem);
    sw_resume_expect_settled(again);
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
    sw_resume_lose_connection();
    sw_play_ck_error(spillway_wait(ticket, -1, &result, 1, &sw_play.error), SPILLWAY_ERESTARTED, SPILLWAY_SCOPE_REQUEST,
                     "");
    ck_assert_int_eq(result.code, -SPILLWAY_ERESTARTED);
    ck_assert_int_eq(spillway_wait(spill_copied(heap, SHORT_BYTES), -1, NULL, 0, &sw_play.error), 0);
    sw_play_close();
    free(heap);
}
END_TEST

/* The process ends before it has answered the commit. */
static void lose_a_commit(int socket) {
    struct sw_msg part, commit, msg;
    sw_resume_greet(socket, false);
    const uint32_t mem = sw_play_register(socket);
    sw_play_expect(socket, &part, SW_MSG_BUILD);
    sw_play_put_result(socket, part.header.seq, 1, SHORT_BYTES);
    sw_play_expect(socket, &commit, SW_MSG_BUILD);
    SW_ASSERT(commit.u.build.builds[0].flags == SW_BUILD_COMMIT);
    atomic_store(&has_parts, true);
    sw_resume_leave(socket);
    const int again = sw_resume_come_back();
    SW_ASSERT(sw_play_register(again) == mem);
    sw_play_expect(again, &msg, SW_MSG_SETTLE);
    SW_ASSERT(msg.u.settle.type == SW_MSG_BUILD && msg.u.settle.seq == commit.header.seq && msg.u.settle.n_ids == 1);
    SW_ASSERT(msg.u.settle.flags == 0); /* as it was sent: each by itself */
    sw_play_put_result(again, msg.header.seq, 1, SHORT_BYTES);
    sw_resume_expect_settled(again);
    sw_play_expect_end(again);
    (void)close(again);
}

START_TEST(a_commit_of_copied_bytes_is_settled_as_it_was_sent) {
    void *heap = calloc(1, SHORT_BYTES);
    ck_assert_ptr_nonnull(heap);
    sw_play_open(lose_a_commit);
    struct spillway_ticket *ticket = spill_copied(heap, SHORT_BYTES);
    while (!atomic_load(&has_parts)) {
        ck_assert_int_ge(spillway_dispatch(sw_play.connection, &sw_play.error), 0);
        (void)usleep(100);
    }
    sw_resume_lose_connection();
    ck_assert_int_eq(spillway_wait(ticket, SW_TEST_WAIT_MS, NULL, 0, &sw_play.error), 0);
    sw_play_close();
    free(heap);
}
END_TEST

static void *copied; /* memory that the library copies */

static void open_with_copied(void (*serve)(int socket)) {
    copied = calloc(1, SHORT_BYTES);
    ck_assert_ptr_nonnull(copied);
    sw_play_open(serve);
}

static void refuse_an_arena(int socket) {
    uint32_t refused;
    sw_resume_greet(socket, false);
    const uint32_t seq = sw_play_take_registration(socket, &refused);
    sw_play_put_error(socket, seq, "EIMPORT", SW_SCOPE_REQUEST, "cannot be mapped");
    sw_play_put_error(socket, seq + 1, "EIMPORT", SW_SCOPE_REQUEST, "cannot be mapped");
    sw_resume_leave(socket);
    const int again = sw_resume_come_back();
    sw_resume_expect_settled(again);
    const uint32_t mem = sw_play_register(again);
    SW_ASSERT(mem != refused);
    take_short(again, mem);
    sw_play_expect_mem_close(again, refused);
    sw_play_expect_end(again);
    (void)close(again);
}

/* The next process is not bothered with it: a call that needs an arena makes another one. */
START_TEST(an_arena_that_was_refused_is_not_handed_over_again) {
    open_with_copied(refuse_an_arena);
    sw_play_ck_error(spillway_prepare(sw_play.connection, copied, &sw_play.error), SPILLWAY_EIMPORT,
                     SPILLWAY_SCOPE_REQUEST, "cannot be mapped");
    sw_resume_lose_connection();
    while (!atomic_load(&sw_resume_is_back))
        sw_resume_dispatch();
    ck_assert_int_eq(spillway_wait(spill_copied(copied, SHORT_BYTES), SW_TEST_WAIT_MS, NULL, 0, &sw_play.error), 0);
    sw_play_close();
    free(copied);
}
END_TEST

static void leave_while_it_maps_an_arena(int socket) {
    uint32_t mem;
    sw_resume_greet(socket, false);
    (void)sw_play_take_registration(socket, &mem);
    (void)shutdown(socket, SHUT_RDWR);
    const int again = sw_resume_come_back();
    SW_ASSERT(sw_play_register(again) == mem);
    sw_resume_expect_settled(again);
    take_short(again, mem);
    sw_play_expect_end(again);
    (void)close(again);
}

START_TEST(an_arena_without_an_answer_is_handed_over_again) {
    open_with_copied(leave_while_it_maps_an_arena);
    ck_assert_int_eq(spillway_prepare(sw_play.connection, copied, &sw_play.error), -SPILLWAY_ERESTARTED);
    while (!atomic_load(&sw_resume_is_back))
        sw_resume_dispatch();
    ck_assert_int_eq(spillway_wait(spill_copied(copied, SHORT_BYTES), SW_TEST_WAIT_MS, NULL, 0, &sw_play.error), 0);
    sw_play_close();
    free(copied);
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
    sw_resume_greet(socket, false);
    sw_play_expect(socket, &msg, SW_MSG_CODER);
    answer_coder(socket, msg.header.seq);
    for (unsigned i = 0; i < 2; i++) /* frame buffers, and the staging buffer */
        (void)sw_play_register(socket);
    sw_resume_leave(socket);
    const int second = sw_resume_come_back();
    sw_resume_leave(second);
    const int third = sw_resume_come_back();
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

/* The question what frames the service takes goes before packets that have waited, and some of these are still in the
 * outbox when the connection is lost again: the next process is asked, too. */
START_TEST(a_coder_asks_each_process) {
    enum { MANY = SW_PLAY_MAX_IN_FLIGHT - 1 };
    struct spillway_ticket *tickets[MANY];
    ck_assert_int_eq(setenv("SPILLWAY_CODEC", "client", 1), 0);
    sw_play_open(serve_a_coder);
    ck_assert_int_eq(spillway_prepare(sw_play.connection, sw_play.data, &sw_play.error), 0);
    sw_resume_lose_connection();
    for (unsigned i = 0; i < MANY; i++)
        tickets[i] = sw_resume_spill_named();
    while (sw_play.connection->link != SW_LINK_UP)
        sw_resume_dispatch();
    ck_assert(!sw_list_empty(&sw_play.connection->outbox) && sw_play.connection->polls_room);
    sw_resume_lose_connection();
    ck_assert(!sw_play.connection->polls_room); /* the next socket's is not watched yet */
    while (!atomic_load(&is_asked))
        sw_resume_dispatch();
    for (unsigned i = 0; i < MANY; i++)
        spillway_ticket_free(tickets[i]);
    sw_play_close();
}
END_TEST

/* The first process ends before it has opened the frame buffers; the next one takes no frames. */
static void leave_without_frame_buffers(int socket) {
    struct sw_msg msg;
    uint32_t mem;
    sw_resume_greet(socket, false);
    sw_play_expect(socket, &msg, SW_MSG_CODER);
    answer_coder(socket, msg.header.seq);
    (void)sw_play_take_registration(socket, &mem);
    sw_resume_leave(socket);
    const int next = sw_resume_come_back();
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
    sw_resume_dispatch(); /* hands them over */
    sw_resume_lose_connection();
    ck_assert_int_eq(spillway_wait(ticket, SW_TEST_WAIT_MS, NULL, 0, &sw_play.error), 0);
    ck_assert(atomic_load(&is_asked));
    spillway_ticket_free(ticket);
    sw_play_close();
}
END_TEST

static void grant_too_little(int socket) {
    struct sw_msg msg, little = {.u.coder_ok = {.codecs = UINT64_MAX, .bytes = 1 << 20, .chunk_bytes = 16 << 20}},
                       none = {.u.coder_ok = {.codecs = UINT64_MAX, .chunk_bytes = 16 << 20}};
    sw_resume_greet(socket, false);
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
    sw_resume_greet(socket, false);
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
    sw_resume_greet_with(socket, false, 1000, 100);
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
    sw_resume_leave(socket);
    const int again = sw_resume_come_back();
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
    sw_resume_greet(socket, false);
    sw_play_expect(socket, &msg, SW_MSG_CODER);
    answer_coder(socket, msg.header.seq);
    (void)sw_play_register(socket);
    expect_packed(socket, &msg);
    (void)shutdown(socket, SHUT_RDWR);
    const int again = sw_resume_come_back();
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

/* Serves a client's last spill. */
static void serve_marked_spill(int socket) {
    const uint32_t seq = take_marked_spill(socket);
    sw_play_put_ok(socket, seq);
    sw_play_put_result(socket, seq + 1, 2, SW_PLAY_BYTES);
    sw_play_expect_end(socket);
    (void)close(socket);
}

static void serve_marks(int socket) {
    sw_resume_greet(socket, false);
    const uint32_t seq = take_marked_spill(socket);
    sw_play_put_ok(socket, seq);
    sw_play_put_result(socket, seq + 1, 1, SW_PLAY_BYTES);
    sw_resume_leave(socket);
    const int again = sw_resume_come_back();
    sw_resume_expect_settled(again);
    serve_marked_spill(again);
}

/* The page of marks is handed over again before a request names one of them; also where that was made meanwhile. */
START_TEST(marks_are_known_to_the_next_process) {
    struct spillway_ticket *ticket = NULL;
    sw_play_open(serve_marks);
    sw_play.gpu.on = true;
    ck_assert_int_eq(sw_resume_spill(&ticket), 0);
    ck_assert_int_eq(spillway_wait(ticket, -1, NULL, 0, &sw_play.error), 0);
    sw_resume_dispatch(); /* takes note of that ticket */
    sw_resume_lose_connection();
    if (_i)
        ck_assert_int_eq(sw_resume_spill(&ticket), 0);
    while (!atomic_load(&sw_resume_is_back))
        sw_resume_dispatch();
    if (!_i)
        ck_assert_int_eq(sw_resume_spill(&ticket), 0);
    ck_assert_int_eq(spillway_wait(ticket, -1, NULL, 0, &sw_play.error), 0);
    ck_assert_uint_eq(sw_play.gpu.n_pages, 2);
    sw_play_close();
}
END_TEST

/* The first spill has not been answered; the second one has waited. */
static void settle_marked_spills(int socket) {
    struct sw_msg msg;
    sw_resume_greet(socket, false);
    const uint32_t seq = take_marked_spill(socket);
    sw_resume_leave(socket);
    const int again = sw_resume_come_back();
    sw_play_expect(again, &msg, SW_MSG_SETTLE);
    SW_ASSERT(msg.u.settle.type == SW_MSG_BUILD && msg.u.settle.seq == seq + 1);
    sw_play_put_error(again, msg.header.seq, "ERESTARTED", SW_SCOPE_REQUEST, "restarted");
    sw_resume_expect_settled(again);
    serve_marked_spill(again);
}

/* Whatever the heap has no room for when the connection is back: it is tried again, with all that there is to say. */
START_TEST(a_heap_that_fails_delays_the_return) {
    struct spillway_ticket *first = NULL, *second = NULL;
    sw_play_open(settle_marked_spills);
    sw_play.gpu.on = true;
    ck_assert_int_eq(sw_resume_spill(&first), 0);
    ck_assert_int_eq(sem_post(&sw_play.go), 0);
    while (sw_play.connection->link == SW_LINK_UP)
        sw_resume_dispatch();
    ck_assert_int_eq(sw_resume_spill(&second), 0);
    sw_alloc_fail_nth((unsigned long)_i);
    while (!atomic_load(&sw_resume_is_back))
        sw_resume_dispatch();
    sw_alloc_fail_nth(0);
    ck_assert_int_eq(spillway_wait(first, SW_TEST_WAIT_MS, NULL, 0, &sw_play.error), -SPILLWAY_ERESTARTED);
    ck_assert_int_eq(spillway_wait(second, SW_TEST_WAIT_MS, NULL, 0, &sw_play.error), 0);
    sw_play_close();
}
END_TEST

/* Neither of two spills has been answered. */
static void settle_two_spills(int socket) {
    struct sw_msg msg;
    uint32_t seqs[2];
    sw_resume_greet(socket, false);
    for (unsigned i = 0; i < 2; i++) {
        sw_play_expect(socket, &msg, SW_MSG_MEM_OPEN);
        sw_play_expect(socket, &msg, SW_MSG_MEM_PARTS);
        sw_play_expect(socket, &msg, SW_MSG_BUILD);
        seqs[i] = msg.header.seq;
    }
    sw_resume_leave(socket);
    const int again = sw_resume_come_back();
    for (unsigned i = 0; i < 2; i++) {
        sw_play_expect(again, &msg, SW_MSG_SETTLE);
        SW_ASSERT(msg.u.settle.type == SW_MSG_BUILD && msg.u.settle.seq == seqs[i]);
        sw_play_put_error(again, msg.header.seq, "ERESTARTED", SW_SCOPE_REQUEST, "restarted");
    }
    sw_resume_expect_settled(again);
    sw_play_expect_end(again);
    (void)close(again);
}

/* The next process is asked about both, or not yet. */
START_TEST(a_heap_that_fails_for_one_request_delays_all) {
    struct spillway_ticket *tickets[2] = {NULL};
    sw_play_open(settle_two_spills);
    for (unsigned i = 0; i < 2; i++)
        ck_assert_int_eq(sw_resume_spill(&tickets[i]), 0);
    sw_resume_lose_connection();
    sw_alloc_fail_nth((unsigned long)_i);
    while (!atomic_load(&sw_resume_is_back))
        sw_resume_dispatch();
    sw_alloc_fail_nth(0);
    for (unsigned i = 0; i < 2; i++)
        ck_assert_int_eq(spillway_wait(tickets[i], SW_TEST_WAIT_MS, NULL, 0, &sw_play.error), -SPILLWAY_ERESTARTED);
    sw_play_close();
}
END_TEST

int main(void) {
    Suite *suite = suite_create("ipc_client_resume_memory");
    TCase *tcase = tcase_create("memory");
    tcase_add_loop_test(tcase, memory_not_handed_over_is_retried, 1, 6);
    tcase_add_loop_test(tcase, the_error_of_memory_not_handed_over_is_reported, 0, N_REQUESTS);
    tcase_add_loop_test(tcase, refused_memory_is_retried, 0, N_REQUESTS);
    tcase_add_test(tcase, refused_memory_can_be_unregistered);
    tcase_add_test(tcase, memory_that_is_being_closed_stays_closed);
    tcase_add_test(tcase, memory_that_is_being_retried_stays_open);
    tcase_add_test(tcase, a_copied_spill_ends_with_the_process);
    tcase_add_test(tcase, a_commit_of_copied_bytes_is_settled_as_it_was_sent);
    tcase_add_test(tcase, an_arena_that_was_refused_is_not_handed_over_again);
    tcase_add_test(tcase, an_arena_without_an_answer_is_handed_over_again);
    tcase_add_test(tcase, a_coder_asks_each_process);
    tcase_add_test(tcase, a_coder_asks_anew_if_its_frame_buffers_were_not_opened);
    tcase_add_test(tcase, a_grant_that_is_too_small_is_given_back);
    tcase_add_test(tcase, a_service_with_fewer_codecs_encodes_itself);
    tcase_add_test(tcase, a_call_of_which_a_part_is_committed_is_not_begun_anew);
    tcase_add_test(tcase, the_next_process_is_told_of_a_packed_region);
    tcase_add_loop_test(tcase, marks_are_known_to_the_next_process, 0, 2);
    tcase_add_loop_test(tcase, a_heap_that_fails_delays_the_return, 1, 4);
    tcase_add_loop_test(tcase, a_heap_that_fails_for_one_request_delays_all, 1, 3);
    suite_add_tcase(suite, tcase);
    return sw_test_run(suite, CK_FORK);
}
