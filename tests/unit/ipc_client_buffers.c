/* Regions of several buffers, and directories of packed ones, against a played daemon. */
#include "base/alloc.h"
#include "base/assert.h"
#include "ipc/proto.h"
#include "ipc/spillway.h"
#include "tests/lib/play.h"
#include "tests/lib/requests.h"
#include "tests/lib/run.h"

#include <check.h>
#include <stdbool.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* ---- buffers ----------------------------------------------------------------------------------------------------- */

/* Two halves of one block of a GPU: it is opened and closed once, and one mark stands for both. Returns the seq of the
 * first packet. */
static uint32_t take_buffers(int socket, unsigned type) {
    struct sw_msg open, ask;
    sw_play_expect(socket, &open, SW_MSG_MEM_OPEN);
    sw_play_expect(socket, &ask, (uint16_t)type);
    const struct sw_msg_build *m = &ask.u.build;
    const struct sw_wire_chunk *chunks = m->chunks;
    SW_ASSERT(open.u.mem_open.once == 1 && ask.header.seq == open.header.seq + 1);
    if (type == SW_MSG_BUILD) {
        SW_ASSERT(m->n_builds == 1 && m->builds[0].n_buffers == 3 && m->n_buffers == 3 && m->n_chunks == 3);
        for (uint16_t i = 0; i < 3; i++)
            SW_ASSERT(chunks[i].mem == open.u.mem_open.mem && chunks[i].buffer == i);
        SW_ASSERT(chunks[1].raw_bytes == SW_PLAY_BYTES / 2 && m->buffers[1].value_type == SPILLWAY_I64);
        SW_ASSERT(chunks[0].order_value > 0 && chunks[1].order_value == chunks[0].order_value);
        SW_ASSERT(chunks[1].order_word == chunks[0].order_word);
        SW_ASSERT(chunks[2].order_value == 0 && chunks[2].raw_bytes == 0);
    }
    return open.header.seq;
}

static int start_spill_of_buffers(struct spillway_ticket **ret) {
    const struct spillway_buffer buffers[] = {
        {.data = sw_play.data, .bytes = SW_PLAY_BYTES / 2},
        {.data = (uint8_t *)sw_play.data + SW_PLAY_BYTES / 2, .bytes = SW_PLAY_BYTES / 2, .type = SPILLWAY_I64},
        {.bytes = 0}};
    return spillway_spill(sw_play.connection, SW_REQUEST(SW_SEVERAL(buffers, 3)), 1, ret, &sw_play.error);
}

/* A spill of two memories, the second from other_memory(): the messages that the daemon gets. */
struct two {
    struct sw_msg open[2], parts[2], ask, close[2];
};

static void take_two_memfds(int socket, struct two *ret) {
    sw_play_greet_with(socket, SW_PLAY_MAX_IN_FLIGHT, 512);
    for (int i = 0; i < 2; i++) {
        sw_play_expect(socket, &ret->open[i], SW_MSG_MEM_OPEN);
        sw_play_expect(socket, &ret->parts[i], SW_MSG_MEM_PARTS);
        SW_ASSERT(ret->open[i].u.mem_open.once == 0);
    }
    sw_play_expect(socket, &ret->ask, SW_MSG_BUILD);
    for (int i = 0; i < 2; i++) {
        sw_play_expect(socket, &ret->close[i], SW_MSG_MEM_CLOSE);
        SW_ASSERT(ret->close[i].u.mem_close.mem == ret->open[i].u.mem_open.mem);
        SW_ASSERT(ret->ask.u.build.chunks[i].mem == ret->open[i].u.mem_open.mem);
    }
    SW_ASSERT(ret->open[0].u.mem_open.mem != ret->open[1].u.mem_open.mem);
}

static void *other_memory(int *ret_fd) {
    *ret_fd = memfd_create("other", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    ck_assert(*ret_fd >= 0 && ftruncate(*ret_fd, SW_PLAY_BYTES) == 0);
    void *other = mmap(NULL, SW_PLAY_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, *ret_fd, 0);
    ck_assert_ptr_ne(other, MAP_FAILED);
    return other;
}

static int start_spill_of_two(void *other, struct spillway_ticket **ret) {
    const struct spillway_buffer buffers[] = {{.data = sw_play.data, .bytes = SW_PLAY_BYTES},
                                              {.data = other, .bytes = SW_PLAY_BYTES}};
    return spillway_spill(sw_play.connection, SW_REQUEST(SW_SEVERAL(buffers, 2)), 1, ret, &sw_play.error);
}

static void close_late(int socket) {
    struct sw_msg msg;
    struct two two;
    take_two_memfds(socket, &two);
    for (int i = 0; i < 2; i++) {
        sw_play_put_ok(socket, two.open[i].header.seq);
        sw_play_put_ok(socket, two.parts[i].header.seq);
    }
    sw_play_put_result(socket, two.ask.header.seq, 4, 2 * SW_PLAY_BYTES);
    sw_play_put_ok(socket, two.close[0].header.seq);
    sw_play_expect(socket, &msg, SW_MSG_STATUS); /* the client has looked, and does not believe that it is over */
    sw_play_put_ok(socket, two.close[1].header.seq);
    struct sw_msg status = {0};
    sw_play_put(socket, &status, SW_MSG_STATUS_OK, msg.header.seq);
    sw_play_expect_end(socket);
}

START_TEST(memory_of_buffers_is_closed_before_they_are_done) {
    struct spillway_ticket *ticket = NULL;
    struct spillway_result result = {.size = sizeof result};
    struct spillway_status status = {.size = sizeof status};
    int fd;
    void *other = other_memory(&fd);
    sw_play_open(close_late);
    ck_assert_int_eq(start_spill_of_two(other, &ticket), 0);
    ck_assert_int_eq(spillway_wait(ticket, 50, &result, 1, &sw_play.error), -SPILLWAY_EAGAIN);
    ck_assert_int_eq(spillway_status(sw_play.connection, &status, &sw_play.error), 0);
    ck_assert_int_eq(spillway_wait(ticket, -1, &result, 1, &sw_play.error), 0);
    ck_assert_uint_eq(result.region.slot, 4);
    spillway_ticket_free(ticket);
    sw_play_close();
    (void)munmap(other, SW_PLAY_BYTES);
    (void)close(fd);
}
END_TEST

static void serve_one_memfd(int socket) {
    struct sw_msg open, parts, ask;
    sw_play_greet_with(socket, SW_PLAY_MAX_IN_FLIGHT, 512);
    sw_play_expect(socket, &open, SW_MSG_MEM_OPEN);
    sw_play_expect(socket, &parts, SW_MSG_MEM_PARTS);
    sw_play_expect(socket, &ask, SW_MSG_BUILD);
    const struct sw_wire_chunk *chunks = ask.u.build.chunks;
    SW_ASSERT(open.u.mem_open.bytes == SW_PLAY_BYTES && chunks[0].mem == open.u.mem_open.mem);
    SW_ASSERT(chunks[1].mem == chunks[0].mem && chunks[0].offset == 0 && chunks[1].offset == SW_PLAY_BYTES / 2);
    sw_play_put_ok(socket, open.header.seq);
    sw_play_put_ok(socket, parts.header.seq);
    sw_play_put_result(socket, ask.header.seq, 4, SW_PLAY_BYTES);
    sw_play_expect_end(socket);
}

START_TEST(one_memfd_of_several_buffers_is_handed_over_once) {
    struct spillway_ticket *ticket = NULL;
    struct spillway_result result = {.size = sizeof result};
    sw_play_open(serve_one_memfd);
    ck_assert_int_eq(start_spill_of_buffers(&ticket), 0);
    ck_assert_int_eq(spillway_wait(ticket, -1, &result, 1, &sw_play.error), 0);
    spillway_ticket_free(ticket);
    sw_play_close();
}
END_TEST

static void serve_empty_ones(int socket) {
    struct sw_msg open, msg;
    sw_play_greet(socket);
    sw_play_expect(socket, &open, SW_MSG_MEM_OPEN);
    sw_play_put_ok(socket, open.header.seq);
    sw_play_expect(socket, &msg, SW_MSG_MEM_PARTS);
    sw_play_put_ok(socket, msg.header.seq);
    sw_play_expect(socket, &msg, SW_MSG_BUILD);
    SW_ASSERT(msg.u.build.n_chunks == 3);
    for (uint32_t k = 0; k < 3; k++)
        SW_ASSERT(msg.u.build.chunks[k].mem == open.u.mem_open.mem);
    sw_play_put_result(socket, msg.header.seq, 1, SW_PLAY_BYTES);
    sw_play_expect_end(socket);
}

/* They have no address, and use the memory of the other one, wherever that stands (_i). */
START_TEST(empty_buffers_use_the_memory_of_another) {
    struct spillway_buffer buffers[3] = {{0}};
    struct spillway_ticket *ticket = NULL;
    buffers[_i] = (struct spillway_buffer){.data = NULL, .bytes = SW_PLAY_BYTES};
    sw_play_open(serve_empty_ones);
    buffers[_i].data = sw_play.data;
    ck_assert_int_eq(spillway_spill(sw_play.connection, SW_REQUEST(SW_SEVERAL(buffers, 3)), 1, &ticket, &sw_play.error),
                     0);
    ck_assert_int_eq(spillway_wait(ticket, SW_TEST_WAIT_MS, NULL, 0, &sw_play.error), 0);
    sw_play_close();
}
END_TEST

enum { MANY_REQUESTS = SW_PROTO_MAX_ITEMS / SPILLWAY_MAX_BUFFERS + 1 };

/* Few requests with more buffers than a packet has room for. */
static void serve_two_packets(int socket) {
    struct sw_msg msg;
    uint32_t mem = 0, n = 0;
    sw_play_greet(socket);
    while (sw_play_get(socket, &msg))
        if (msg.header.type == SW_MSG_MEM_OPEN) {
            SW_ASSERT(!msg.u.mem_open.once && !mem);
            mem = msg.u.mem_open.mem;
            sw_play_put_ok(socket, msg.header.seq);
        } else if (msg.header.type == SW_MSG_BUILD) {
            SW_ASSERT(msg.u.build.chunks[0].mem == mem);
            sw_play_put_batch(socket, msg.header.seq, msg.u.build.n_builds, 1 + n,
                              (uint64_t)msg.u.build.n_builds * SPILLWAY_MAX_BUFFERS);
            n += msg.u.build.n_builds;
        } else {
            SW_ASSERT(msg.header.type != SW_MSG_MEM_CLOSE || (msg.u.mem_close.mem == mem && n == MANY_REQUESTS));
            sw_play_put_ok(socket, msg.header.seq);
        }
}

/* All of them find the memory open. */
START_TEST(buffers_of_several_packets_share_a_memory) {
    static struct spillway_buffer buffers[MANY_REQUESTS][SPILLWAY_MAX_BUFFERS];
    struct spillway_request requests[MANY_REQUESTS];
    struct spillway_ticket *ticket = NULL;
    sw_play_open(serve_two_packets);
    for (uint32_t i = 0; i < MANY_REQUESTS; i++) {
        for (uint32_t k = 0; k < SPILLWAY_MAX_BUFFERS; k++)
            buffers[i][k] = (struct spillway_buffer){.data = sw_play.data, .bytes = 1};
        requests[i] = *SW_REQUEST(SW_SEVERAL(buffers[i], SPILLWAY_MAX_BUFFERS));
    }
    ck_assert_int_eq(spillway_spill(sw_play.connection, requests, MANY_REQUESTS, &ticket, &sw_play.error), 0);
    ck_assert_int_eq(spillway_wait(ticket, SW_TEST_WAIT_MS, NULL, 0, &sw_play.error), 0);
    sw_play_close();
}
END_TEST

static void serve_empty_in_registered(int socket) {
    struct sw_msg msg;
    sw_play_greet(socket);
    const uint32_t mem = sw_play_register(socket);
    for (uint32_t i = 0; i < 2; i++) {
        sw_play_expect(socket, &msg, SW_MSG_BUILD);
        SW_ASSERT(msg.u.build.n_buffers == 2 - i && msg.u.build.n_chunks > 0);
        for (uint32_t k = 0; k < msg.u.build.n_chunks; k++)
            SW_ASSERT(msg.u.build.chunks[k].mem == mem);
        sw_play_put_result(socket, msg.header.seq, 1 + i, i ? 0 : 1000);
    }
    sw_play_expect_end(socket);
}

/* An empty buffer at the end of registered memory is in it, beside others or alone. */
START_TEST(an_empty_buffer_ends_registered_memory) {
    struct spillway_ticket *ticket = NULL;
    sw_play_open(serve_empty_in_registered);
    uint8_t *data = sw_play.data;
    const struct spillway_buffer buffers[] = {{.data = data, .bytes = 1000}, {.data = data + 1000}};
    ck_assert_int_eq(spillway_register(sw_play.connection, data, 1000, &sw_play.error), 0);
    for (uint32_t i = 0; i < 2; i++) {
        ck_assert_int_eq(
            spillway_spill(sw_play.connection, SW_REQUEST(SW_SEVERAL(buffers + i, 2 - i)), 1, &ticket, &sw_play.error),
            0);
        ck_assert_int_eq(spillway_wait(ticket, SW_TEST_WAIT_MS, NULL, 0, &sw_play.error), 0);
    }
    sw_play_close();
}
END_TEST

static void serve_overlapping_blocks(int socket) {
    struct sw_msg open[2], ask, close[2];
    sw_play_greet(socket);
    for (int i = 0; i < 2; i++) {
        sw_play_expect(socket, &open[i], SW_MSG_MEM_OPEN);
        sw_play_put_ok(socket, open[i].header.seq);
    }
    sw_play_expect(socket, &ask, SW_MSG_BUILD);
    SW_ASSERT(ask.u.build.n_chunks == 3 && ask.u.build.chunks[0].mem == open[0].u.mem_open.mem);
    SW_ASSERT(ask.u.build.chunks[1].mem == open[1].u.mem_open.mem && ask.u.build.chunks[1].offset == 0);
    SW_ASSERT(ask.u.build.chunks[2].mem == open[0].u.mem_open.mem && ask.u.build.chunks[2].offset == 50);
    for (int i = 0; i < 2; i++)
        sw_play_expect(socket, &close[i], SW_MSG_MEM_CLOSE);
    sw_play_put_result(socket, ask.header.seq, 4, 270);
    for (int i = 0; i < 2; i++)
        sw_play_put_ok(socket, close[i].header.seq);
    sw_play_expect_end(socket);
}

/* What begins in a block of a GPU and ends behind it is not in it; what ends with it is. */
START_TEST(a_block_holds_what_ends_in_it) {
    struct spillway_ticket *ticket = NULL;
    struct spillway_result result = {.size = sizeof result};
    sw_play.gpu.on = true;
    sw_play_open(serve_overlapping_blocks);
    uint8_t *data = sw_play.data;
    const struct spillway_buffer buffers[] = {
        {.data = data, .bytes = 100}, {.data = data + 50, .bytes = 120}, {.data = data + 50, .bytes = 50}};
    ck_assert_int_eq(spillway_spill(sw_play.connection, SW_REQUEST(SW_SEVERAL(buffers, 3)), 1, &ticket, &sw_play.error),
                     0);
    ck_assert_int_eq(spillway_wait(ticket, -1, &result, 1, &sw_play.error), 0);
    spillway_ticket_free(ticket);
    sw_play_close();
}
END_TEST

static void serve_two_memfds(int socket) {
    struct two two;
    take_two_memfds(socket, &two);
    sw_play_put_error(socket, two.ask.header.seq, "ENOSPACE", SW_SCOPE_REQUEST, "full");
    sw_play_expect_end(socket);
}

/* Both memfds have one length. */
START_TEST(two_memfds_are_handed_over_separately) {
    int fd;
    void *other = other_memory(&fd);
    struct spillway_ticket *ticket = NULL;
    sw_play_open(serve_two_memfds);
    ck_assert_int_eq(start_spill_of_two(other, &ticket), 0);
    (void)spillway_wait(ticket, 50, NULL, 0,
                        &sw_play.error); /* the packets that hand the memories over are not answered */
    spillway_ticket_free(ticket);
    sw_play_close();
    (void)munmap(other, SW_PLAY_BYTES);
    (void)close(fd);
}
END_TEST

static void refuse_one_memfd(int socket) {
    struct two two;
    take_two_memfds(socket, &two);
    sw_play_put_error(socket, two.open[0].header.seq, "EIMPORT", SW_SCOPE_REQUEST, "cannot be mapped");
    sw_play_put_error(socket, two.parts[0].header.seq, "ENOENT", SW_SCOPE_REQUEST, "no such memory");
    sw_play_put_ok(socket, two.open[1].header.seq);
    sw_play_put_ok(socket, two.parts[1].header.seq);
    sw_play_put_error(socket, two.ask.header.seq, "ENOENT", SW_SCOPE_REQUEST, "no such memory");
    sw_play_put_error(socket, two.close[0].header.seq, "ENOENT", SW_SCOPE_REQUEST, "no such memory");
    sw_play_put_ok(socket, two.close[1].header.seq);
    sw_play_expect_end(socket);
}

/* The service does not know memory that it has refused: that is no cause. */
START_TEST(the_cause_is_why_memory_was_refused) {
    int fd;
    void *other = other_memory(&fd);
    struct spillway_ticket *ticket = NULL;
    sw_play_open(refuse_one_memfd);
    ck_assert_int_eq(start_spill_of_two(other, &ticket), 0);
    sw_play_ck_error(spillway_wait(ticket, -1, NULL, 0, &sw_play.error), SPILLWAY_EIMPORT, SPILLWAY_SCOPE_REQUEST,
                     "cannot be mapped");
    sw_play_close();
    (void)munmap(other, SW_PLAY_BYTES);
    (void)close(fd);
}
END_TEST

static void close_badly(int socket) {
    struct two two;
    take_two_memfds(socket, &two);
    for (int i = 0; i < 2; i++) {
        sw_play_put_ok(socket, two.open[i].header.seq);
        sw_play_put_ok(socket, two.parts[i].header.seq);
        sw_play_put_error(socket, two.close[i].header.seq, "EBUSY", SW_SCOPE_REQUEST, "not now");
    }
    sw_play_put_error(socket, two.ask.header.seq, "ENOENT", SW_SCOPE_REQUEST, "no such tier");
    sw_play_expect_end(socket);
}

/* What becomes of the memory afterwards is no cause either. Which buffer of a region cannot be used is told. */
START_TEST(the_cause_is_not_the_end_of_the_memory) {
    int fd;
    void *other = other_memory(&fd);
    struct spillway_ticket *ticket = NULL;
    sw_play_open(close_badly);
    ck_assert_int_eq(start_spill_of_two(other, &ticket), 0);
    sw_play_ck_error(spillway_wait(ticket, -1, NULL, 0, &sw_play.error), SPILLWAY_ENOENT, SPILLWAY_SCOPE_REQUEST,
                     "no such tier");
    ck_assert_int_eq(munmap(other, SW_PLAY_BYTES), 0);
    sw_play_ck_error(start_spill_of_two(other, &ticket), SPILLWAY_EMEMKIND, SPILLWAY_SCOPE_REQUEST, "buffer 2");
    sw_play_close();
    (void)close(fd);
}
END_TEST

static void fail_buffers(int socket, uint32_t seq) {
    sw_play_put_error(socket, seq, "ENOMEM", SW_SCOPE_REQUEST, "cannot be mapped");
    sw_play_put_error(socket, seq + 1, "ENOMEM", SW_SCOPE_REQUEST, "cannot be mapped");
}

static void lie_about_all_bytes(int socket, uint32_t seq) {
    sw_play_put_result(socket, seq + 1, 1, SW_PLAY_BYTES - 1);
}

static void answer_with_a_batch(int socket, uint32_t seq) {
    sw_play_put_batch(socket, seq + 1, 2, 1, SW_PLAY_BYTES);
}

static const struct {
    void (*answer)(int socket, uint32_t seq);
    int code;
} buffer_answers[] = {{fail_buffers, SPILLWAY_ENOMEM},
                      {lie_about_all_bytes, SPILLWAY_EPROTO},
                      {answer_with_a_batch, SPILLWAY_EPROTO},
                      {sw_play_hang_up, SPILLWAY_ECONN}};

static void (*answer)(int socket, uint32_t seq);

static void serve_bad_buffers(int socket) {
    sw_play_greet_with(socket, SW_PLAY_MAX_IN_FLIGHT, 512);
    answer(socket, take_buffers(socket, SW_MSG_BUILD));
    sw_play_expect_end(socket);
}

static void serve_bad_restore(int socket) {
    sw_play_greet_with(socket, SW_PLAY_MAX_IN_FLIGHT, 512);
    answer(socket, take_buffers(socket, SW_MSG_READ));
    sw_play_expect_end(socket);
}

START_TEST(a_failed_buffer_fails_its_region) {
    struct spillway_ticket *ticket = NULL;
    answer = buffer_answers[_i].answer;
    sw_play.gpu.on = true;
    sw_play_open(serve_bad_buffers);
    ck_assert_int_eq(start_spill_of_buffers(&ticket), 0);
    ck_assert_int_eq(spillway_wait(ticket, -1, NULL, 0, &sw_play.error), -buffer_answers[_i].code);
    spillway_ticket_free(ticket);
    sw_play_close();
    ck_assert_uint_eq(sw_play.gpu.n_held, 0);
}
END_TEST

static void serve_nothing_of_buffers(int socket) {
    struct sw_msg msg;
    sw_play_greet_with(socket, SW_PLAY_MAX_IN_FLIGHT, 512);
    while (sw_play_get(socket, &msg))
        sw_play_put_ok(socket, msg.header.seq);
}

/* Whatever allocation fails: refused, and nothing of it has begun that is not ended. */
START_TEST(no_memory_for_buffers) {
    sw_play.gpu.on = true;
    sw_play_open(serve_nothing_of_buffers);
    for (unsigned nth = 1; nth < 9; nth++) {
        struct spillway_ticket *ticket = NULL;
        sw_alloc_fail_nth(nth);
        const int rc = start_spill_of_buffers(&ticket);
        sw_alloc_fail_nth(0);
        ck_assert_int_eq(rc, -SPILLWAY_ENOMEM);
    }
    sw_play_close();
    ck_assert_uint_eq(sw_play.gpu.n_held, 0);
}
END_TEST

/* They never come to the daemon: it would take buffers of memory that is handed over for memories of their own. */
START_TEST(restored_buffers_must_not_overlap) {
    static const struct {
        uint32_t start, bytes;
        int code;
    } second[] = {{0, 1, SPILLWAY_EINVAL},
                  {SW_PLAY_BYTES / 2 - 1, 1, SPILLWAY_EINVAL},
                  {SW_PLAY_BYTES / 2, SW_PLAY_BYTES / 2, SPILLWAY_ENOMEM},
                  {0, 0, SPILLWAY_ENOMEM}}; /* the daemon's answer to those that do not */
    struct spillway_ticket *ticket = NULL;
    answer = fail_buffers;
    sw_play.gpu.on = second[_i].code == SPILLWAY_ENOMEM;
    sw_play_open(sw_play.gpu.on ? serve_bad_restore : serve_nothing_of_buffers);
    const struct spillway_buffer buffers[] = {
        {.data = (uint8_t *)sw_play.data + second[_i].start, .bytes = second[_i].bytes},
        {.data = sw_play.data, .bytes = SW_PLAY_BYTES / 2}};
    int rc = spillway_restore(sw_play.connection,
                              SW_REQUEST(SW_SEVERAL(buffers, 2), .region = (struct spillway_region){1, 1}), 1, &ticket,
                              &sw_play.error);
    if (!rc)
        rc = spillway_wait(ticket, -1, NULL, 0, &sw_play.error);
    sw_play_ck_error(rc, second[_i].code, SPILLWAY_SCOPE_REQUEST, rc == -SPILLWAY_EINVAL ? "overlap" : "mapped");
    spillway_ticket_free(ticket);
    sw_play_close();
}
END_TEST

static void serve_one_of_buffers(int socket) {
    sw_play_greet_with(socket, 1, 5);
    (void)take_buffers(socket, SW_MSG_BUILD);
    sw_play_expect_end(socket);
}

static void serve_few_buffers(int socket) {
    sw_play_greet_with(socket, 1, 2);
    sw_play_expect_end(socket);
}

START_TEST(the_limit_that_is_reached_is_named) {
    static const char *const texts[] = {"1 operations", "3 buffers: the service allows 2 in flight"};
    struct spillway_ticket *ticket = NULL;
    sw_play.gpu.on = true;
    sw_play_open(_i ? serve_few_buffers : serve_one_of_buffers);
    if (!_i)
        ck_assert_int_eq(start_spill_of_buffers(&ticket), 0);
    sw_play_ck_error(start_spill_of_buffers(&ticket), SPILLWAY_ELIMIT, SPILLWAY_SCOPE_REQUEST, texts[_i]);
    sw_play_close();
}
END_TEST

/* A request that could never be sent is refused at each place of its call. */
START_TEST(no_request_of_a_call_has_too_many_buffers) {
    struct spillway_request requests[3];
    struct spillway_ticket *ticket = NULL;
    sw_play.gpu.on = true;
    sw_play_open(serve_few_buffers);
    const struct spillway_buffer three[3] = {{.data = sw_play.data, .bytes = 1},
                                             {.data = (uint8_t *)sw_play.data + 1, .bytes = 1},
                                             {.data = (uint8_t *)sw_play.data + 2, .bytes = 1}};
    for (int i = 0; i < 3; i++)
        requests[i] = (struct spillway_request){.size = sizeof requests[i], SW_SEVERAL(three, i == _i ? 3 : 2)};
    sw_play_ck_error(spillway_spill(sw_play.connection, requests, 3, &ticket, &sw_play.error), SPILLWAY_ELIMIT,
                     SPILLWAY_SCOPE_REQUEST, "3 buffers: the service allows 2 in flight");
    ck_assert_ptr_null(ticket);
    sw_play_close();
}
END_TEST

/* Three pieces at a time, as many as the request has buffers. */
static void allow_one_request(int socket) {
    sw_play_greet_with(socket, SW_PLAY_MAX_IN_FLIGHT, 3);
    for (uint32_t i = 1; i <= 2; i++) {
        const uint32_t seq = take_buffers(socket, SW_MSG_BUILD);
        sw_play_put_ok(socket, seq);
        sw_play_put_result(socket, seq + 1, i, SW_PLAY_BYTES);
    }
    sw_play_expect_end(socket);
}

START_TEST(a_call_waits_for_room) {
    struct spillway_ticket *first = NULL, *second = NULL;
    sw_play.gpu.on = true;
    sw_play_open(allow_one_request);
    ck_assert_int_eq(start_spill_of_buffers(&first), 0);
    ck_assert_int_eq(start_spill_of_buffers(&second), 0);
    ck_assert_int_eq(spillway_wait(second, -1, NULL, 0, &sw_play.error), 0);
    sw_play_close();
}
END_TEST

static void allow_four_buffers(int socket) {
    struct sw_msg msg;
    sw_play_greet_with(socket, SW_PLAY_MAX_IN_FLIGHT, 4);
    for (uint32_t i = 1; i <= 2; i++) {
        const uint32_t seq = take_buffers(socket, SW_MSG_BUILD);
        if (i == 1) {
            sw_play_expect(socket, &msg, SW_MSG_STATUS); /* nothing has gone before it */
            sw_play_put(socket, &msg, SW_MSG_STATUS_OK, msg.header.seq);
        }
        sw_play_put_ok(socket, seq);
        sw_play_put_result(socket, seq + 1, i, SW_PLAY_BYTES);
    }
    sw_play_expect(socket, &msg, SW_MSG_MEM_OPEN);
    const uint32_t seq = msg.header.seq;
    sw_play_expect(socket, &msg, SW_MSG_BUILD);
    SW_ASSERT(msg.u.build.n_chunks == 1);
    sw_play_put_ok(socket, seq);
    sw_play_put_result(socket, seq + 1, 3, SW_PLAY_BYTES);
    sw_play_expect_end(socket);
}

/* The last one would fit beside the first one. */
START_TEST(no_call_overtakes_one_that_waits_for_room) {
    struct spillway_ticket *first = NULL, *second = NULL;
    struct spillway_status status = {.size = sizeof status};
    sw_play.gpu.on = true;
    sw_play_open(allow_four_buffers);
    ck_assert_int_eq(start_spill_of_buffers(&first), 0);
    ck_assert_int_eq(start_spill_of_buffers(&second), 0);
    struct spillway_ticket *last = sw_play_spill();
    ck_assert_int_eq(spillway_status(sw_play.connection, &status, &sw_play.error), 0);
    ck_assert_int_eq(spillway_wait(last, -1, NULL, 0, &sw_play.error), 0);
    ck_assert_int_eq(spillway_wait(second, 0, NULL, 0, &sw_play.error), 0);
    sw_play_close();
}
END_TEST

static void tell_of_buffers(int socket, struct sw_msg *reply) {
    struct sw_msg msg;
    sw_play_greet(socket);
    sw_play_expect(socket, &msg, SW_MSG_INSPECT);
    SW_ASSERT(msg.u.inspect.what == SW_INSPECT_BUFFERS);
    sw_play_put(socket, reply, SW_MSG_DETAILS, msg.header.seq);
    sw_play_expect_end(socket);
}

static void serve_bad_region(int socket) {
    static const struct sw_wire_buffer buffers[SW_PROTO_MAX_BUFFERS + 1];
    struct sw_msg reply = {.u.details = {.n_buffers = SW_PROTO_MAX_BUFFERS + 1, .buffers = buffers}};
    tell_of_buffers(socket, &reply);
}

START_TEST(a_region_of_too_many_buffers_ends_the_connection) {
    struct spillway_buffer_info info[SPILLWAY_MAX_BUFFERS];
    uint32_t n;
    sw_play_open(serve_bad_region);
    sw_play_ck_error(
        spillway_query_buffers(sw_play.connection, (struct spillway_region){1, 1}, info, &n, &sw_play.error),
        SPILLWAY_EPROTO, SPILLWAY_SCOPE_SESSION, "");
    sw_play_close();
}
END_TEST

static void serve_a_region(int socket) {
    static const struct sw_wire_text texts[] = {{"v5t"}, {"raw"}, {"pays"}, {"a text that takes all its bytes!"}};
    static const struct sw_wire_buffer buffers[] = {{.raw_bytes = 300, .stored_bytes = 100, .codec = 1, .reason = 3},
                                                    {.raw_bytes = 200, .stored_bytes = 200, .codec = 2, .reason = 4}};
    struct sw_msg reply = {.u.details = {.n_buffers = 2, .n_texts = 4, .buffers = buffers, .texts = texts}};
    tell_of_buffers(socket, &reply);
}

START_TEST(each_buffer_is_described) {
    struct spillway_buffer_info info[SPILLWAY_MAX_BUFFERS];
    uint32_t n;
    sw_play_open(serve_a_region);
    ck_assert_int_eq(
        spillway_query_buffers(sw_play.connection, (struct spillway_region){1, 1}, info, &n, &sw_play.error), 0);
    ck_assert_uint_eq(n, 2);
    ck_assert_uint_eq(info[0].raw_bytes, 300);
    ck_assert_uint_eq(info[1].stored_bytes, 200);
    ck_assert_str_eq(info[0].codec, "v5t");
    ck_assert_str_eq(info[1].codec, "raw");
    ck_assert_str_eq(info[0].reason, "pays");
    ck_assert_str_eq(info[1].reason, "a text that takes all its bytes");
    sw_play_close();
}
END_TEST

/* ---- directories of packed regions ------------------------------------------------------------------------------- */

static uint32_t most_chunks = 80; /* that are asked for */

/* 64 chunks, then 6. */
static void serve_a_directory(int socket) {
    sw_play_greet(socket);
    for (uint32_t first = 0, n; first < 70 && first < most_chunks; first += n) {
        struct sw_wire_frame frames[SW_PROTO_MAX_FRAMES];
        struct sw_msg msg, reply = {.u.details = {.n_all = 70, .frames = frames}};
        n = first ? 6 : SW_PROTO_MAX_FRAMES;
        sw_play_expect(socket, &msg, SW_MSG_INSPECT);
        SW_ASSERT(msg.u.inspect.slot == 1 && msg.u.inspect.gen == 2 && msg.u.inspect.first == first);
        SW_ASSERT(msg.u.inspect.what == SW_INSPECT_FRAMES);
        reply.u.details.n_frames = (uint16_t)n;
        for (uint32_t i = 0; i < n; i++)
            frames[i] = (struct sw_wire_frame){
                .offset = UINT64_C(128) * (first + i), .value_type = SPILLWAY_F64, .n_symbols = first + i};
        sw_play_put(socket, &reply, SW_MSG_DETAILS, msg.header.seq);
    }
    sw_play_expect_end(socket);
}

START_TEST(a_directory_comes_in_parts) {
    struct spillway_packed_chunk chunks[80];
    uint32_t n = 0;
    sw_play_open(serve_a_directory);
    ck_assert_int_eq(
        spillway_query_packed(sw_play.connection, (struct spillway_region){1, 2}, chunks, 80, &n, &sw_play.error), 0);
    ck_assert_uint_eq(n, 70);
    for (uint32_t i = 0; i < n; i++) {
        ck_assert_uint_eq(chunks[i].offset, UINT64_C(128) * i);
        ck_assert(chunks[i].type == SPILLWAY_F64 && chunks[i].n_symbols == i);
    }
    sw_play_close();
}
END_TEST

/* The array has room for fewer: the first ones are there, and how many there are. */
START_TEST(a_directory_is_cut_to_the_array) {
    struct spillway_packed_chunk chunks[2 * SW_PROTO_MAX_FRAMES];
    uint32_t n = 0;
    most_chunks = (uint32_t)_i;
    memset(chunks, 0xEE, sizeof chunks);
    sw_play_open(serve_a_directory);
    ck_assert_int_eq(spillway_query_packed(sw_play.connection, (struct spillway_region){1, 2}, chunks, most_chunks, &n,
                                           &sw_play.error),
                     0);
    ck_assert_uint_eq(n, 70);
    ck_assert_uint_eq(chunks[most_chunks - 1].offset, UINT64_C(128) * (most_chunks - 1));
    ck_assert_uint_eq(chunks[most_chunks].offset, UINT64_C(0xEEEEEEEEEEEEEEEE));
    sw_play_close();
}
END_TEST

/* More than a message has room for, more than there are, none of some, and a type and symbols that no chunk has. */
static const struct {
    uint32_t n_chunks;
    uint16_t count;
    uint8_t type;
    uint32_t n_symbols;
} bad_directories[] = {
    {100, SW_PROTO_MAX_FRAMES + 1, 0, 0}, {3, 4, 0, 0},         {3, 0, 0, 0}, {UINT32_MAX, 200, 0, 0},
    {3, 3, SPILLWAY_DEC128 + 1, 0},       {3, 3, 0, UINT32_MAX}};
static int bad_directory;

static void serve_a_bad_directory(int socket) {
    static struct sw_wire_frame frames[200];
    struct sw_msg msg, reply = {.u.details = {.n_all = bad_directories[bad_directory].n_chunks,
                                              .n_frames = bad_directories[bad_directory].count,
                                              .frames = frames}};
    frames[1].value_type = bad_directories[bad_directory].type;
    frames[1].n_symbols = bad_directories[bad_directory].n_symbols;
    sw_play_greet(socket);
    sw_play_expect(socket, &msg, SW_MSG_INSPECT);
    sw_play_put(socket, &reply, SW_MSG_DETAILS, msg.header.seq);
    sw_play_expect_end(socket);
}

START_TEST(an_invalid_directory_ends_the_connection) {
    struct spillway_packed_chunk chunks[200];
    uint32_t n;
    bad_directory = _i;
    sw_play_open(serve_a_bad_directory);
    sw_play_ck_error(
        spillway_query_packed(sw_play.connection, (struct spillway_region){1, 1}, chunks, 200, &n, &sw_play.error),
        SPILLWAY_EPROTO, SPILLWAY_SCOPE_SESSION, "");
    sw_play_close();
}
END_TEST

int main(void) {
    Suite *suite = suite_create("ipc_client_buffers");
    TCase *tcase = tcase_create("buffers");
    tcase_add_test(tcase, memory_of_buffers_is_closed_before_they_are_done);
    tcase_add_test(tcase, one_memfd_of_several_buffers_is_handed_over_once);
    tcase_add_test(tcase, an_empty_buffer_ends_registered_memory);
    tcase_add_loop_test(tcase, empty_buffers_use_the_memory_of_another, 0, 3);
    tcase_add_test(tcase, buffers_of_several_packets_share_a_memory);
    tcase_add_test(tcase, a_block_holds_what_ends_in_it);
    tcase_add_test(tcase, two_memfds_are_handed_over_separately);
    tcase_add_test(tcase, the_cause_is_why_memory_was_refused);
    tcase_add_test(tcase, the_cause_is_not_the_end_of_the_memory);
    tcase_add_loop_test(tcase, a_failed_buffer_fails_its_region, 0,
                        (int)(sizeof buffer_answers / sizeof buffer_answers[0]));
    tcase_add_test(tcase, no_memory_for_buffers);
    tcase_add_loop_test(tcase, restored_buffers_must_not_overlap, 0, 4);
    tcase_add_loop_test(tcase, the_limit_that_is_reached_is_named, 0, 2);
    tcase_add_loop_test(tcase, no_request_of_a_call_has_too_many_buffers, 0, 3);
    tcase_add_test(tcase, a_call_waits_for_room);
    tcase_add_test(tcase, no_call_overtakes_one_that_waits_for_room);
    tcase_add_test(tcase, a_region_of_too_many_buffers_ends_the_connection);
    tcase_add_test(tcase, each_buffer_is_described);
    tcase_add_test(tcase, a_directory_comes_in_parts);
    tcase_add_loop_test(tcase, a_directory_is_cut_to_the_array, SW_PROTO_MAX_FRAMES - 1, SW_PROTO_MAX_FRAMES + 2);
    tcase_add_loop_test(tcase, an_invalid_directory_ends_the_connection, 0, 6);
    suite_add_tcase(suite, tcase);
    return sw_test_run(suite, CK_FORK);
}
