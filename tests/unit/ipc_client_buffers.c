/* Regions of several buffers, and directories of packed ones, against a played daemon. */
#include "base/alloc.h"
#include "base/assert.h"
#include "ipc/proto.h"
#include "ipc/spillway.h"
#include "tests/lib/play.h"
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
    struct sw_msg open, ask, close;
    sw_play_expect(socket, &open, SW_MSG_MEM_OPEN);
    sw_play_expect(socket, &ask, (uint16_t)type);
    sw_play_expect(socket, &close, SW_MSG_MEM_CLOSE);
    const struct sw_msg_spill_buffers *m = &ask.u.spill_buffers;
    SW_ASSERT(open.u.mem_open.once == 0 && close.u.mem_close.mem == open.u.mem_open.mem);
    SW_ASSERT(ask.header.seq == open.header.seq + 1 && close.header.seq == open.header.seq + 2);
    if (type == SW_MSG_SPILL_BUFFERS)
        SW_ASSERT(m->count == 3 && m->mem[0] == open.u.mem_open.mem && m->mem[1] == m->mem[0] &&
                  m->mem[2] == m->mem[0] && m->waits[0] && m->waits[1] && !m->waits[2] &&
                  m->bytes[1] == SW_PLAY_BYTES / 2 && m->value_type[1] == SPILLWAY_I64 && m->order_word[0] == 0 &&
                  m->order_word[1] == 0 && m->order_value[0] > 0 && m->order_value[1] == m->order_value[0]);
    return open.header.seq;
}

static int start_spill_of_buffers(struct spillway_ticket **ret) {
    const struct spillway_buffer buffers[] = {
        {sw_play.data, SW_PLAY_BYTES / 2, SPILLWAY_BYTES},
        {(uint8_t *)sw_play.data + SW_PLAY_BYTES / 2, SW_PLAY_BYTES / 2, SPILLWAY_I64},
        {NULL, 0, 0}};
    return spillway_spill_buffers(sw_play.connection, buffers, 3, NULL, ret, &sw_play.error);
}

static void serve_buffers(int socket) {
    struct sw_msg msg;
    sw_play_greet_with(socket, SW_PLAY_MAX_IN_FLIGHT, 512);
    const uint32_t seq = take_buffers(socket, SW_MSG_SPILL_BUFFERS);
    sw_play_put_ok(socket, seq);
    sw_play_put_result(socket, seq + 1, 4, SW_PLAY_BYTES);
    sw_play_expect(socket, &msg, SW_MSG_STATUS); /* the client has looked, and does not believe that it is over */
    sw_play_put_ok(socket, seq + 2);
    struct sw_msg status = {0};
    sw_play_put(socket, &status, SW_MSG_STATUS_OK, msg.header.seq);
    sw_play_expect_end(socket);
}

START_TEST(memory_of_buffers_is_closed_before_they_are_done) {
    struct spillway_ticket *ticket = NULL;
    struct spillway_result result;
    struct spillway_status status;
    sw_play.gpu.on = true;
    sw_play_open(serve_buffers);
    ck_assert_int_eq(start_spill_of_buffers(&ticket), 0);
    ck_assert_int_eq(spillway_wait(ticket, 50, &result, &sw_play.error), -SPILLWAY_EAGAIN);
    ck_assert_int_eq(spillway_status(sw_play.connection, &status, &sw_play.error), 0);
    ck_assert_int_eq(spillway_wait(ticket, -1, &result, &sw_play.error), 0);
    ck_assert_uint_eq(result.region.slot, 4);
    ck_assert_uint_eq(sw_play.gpu.n_held, 0);
    spillway_ticket_free(ticket);
    sw_play_close();
}
END_TEST

static void serve_one_memfd(int socket) {
    struct sw_msg open, parts, ask, close;
    const struct sw_msg_spill_buffers *m = &ask.u.spill_buffers;
    sw_play_greet_with(socket, SW_PLAY_MAX_IN_FLIGHT, 512);
    sw_play_expect(socket, &open, SW_MSG_MEM_OPEN);
    sw_play_expect(socket, &parts, SW_MSG_MEM_PARTS);
    sw_play_expect(socket, &ask, SW_MSG_SPILL_BUFFERS);
    sw_play_expect(socket, &close, SW_MSG_MEM_CLOSE);
    SW_ASSERT(open.u.mem_open.bytes == SW_PLAY_BYTES && m->mem[0] == open.u.mem_open.mem && m->mem[1] == m->mem[0] &&
              m->offset[0] == 0 && m->offset[1] == SW_PLAY_BYTES / 2);
    sw_play_put_ok(socket, open.header.seq);
    sw_play_put_ok(socket, parts.header.seq);
    sw_play_put_result(socket, ask.header.seq, 4, SW_PLAY_BYTES);
    sw_play_put_ok(socket, close.header.seq);
    sw_play_expect_end(socket);
}

START_TEST(one_memfd_of_several_buffers_is_handed_over_once) {
    struct spillway_ticket *ticket = NULL;
    struct spillway_result result;
    sw_play_open(serve_one_memfd);
    ck_assert_int_eq(start_spill_of_buffers(&ticket), 0);
    ck_assert_int_eq(spillway_wait(ticket, -1, &result, &sw_play.error), 0);
    spillway_ticket_free(ticket);
    sw_play_close();
}
END_TEST

static void serve_two_memfds(int socket) {
    struct sw_msg open[2], parts[2], ask, close[2];
    sw_play_greet_with(socket, SW_PLAY_MAX_IN_FLIGHT, 512);
    for (int i = 0; i < 2; i++) {
        sw_play_expect(socket, &open[i], SW_MSG_MEM_OPEN);
        sw_play_expect(socket, &parts[i], SW_MSG_MEM_PARTS);
    }
    sw_play_expect(socket, &ask, SW_MSG_SPILL_BUFFERS);
    for (int i = 0; i < 2; i++)
        sw_play_expect(socket, &close[i], SW_MSG_MEM_CLOSE);
    for (int i = 0; i < 2; i++)
        SW_ASSERT(ask.u.spill_buffers.mem[i] == open[i].u.mem_open.mem);
    SW_ASSERT(open[0].u.mem_open.mem != open[1].u.mem_open.mem);
    sw_play_put_error(socket, ask.header.seq, "ENOSPACE", SW_SCOPE_REQUEST, "full");
    sw_play_expect_end(socket);
}

/* Of one length, but two files. */
START_TEST(two_memfds_stay_two) {
    const int fd = memfd_create("other", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    ck_assert(fd >= 0 && ftruncate(fd, SW_PLAY_BYTES) == 0);
    void *other = mmap(NULL, SW_PLAY_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    ck_assert_ptr_ne(other, MAP_FAILED);
    struct spillway_ticket *ticket = NULL;
    sw_play_open(serve_two_memfds);
    const struct spillway_buffer buffers[] = {{sw_play.data, SW_PLAY_BYTES, SPILLWAY_BYTES},
                                              {other, SW_PLAY_BYTES, SPILLWAY_BYTES}};
    ck_assert_int_eq(spillway_spill_buffers(sw_play.connection, buffers, 2, NULL, &ticket, &sw_play.error), 0);
    (void)spillway_wait(ticket, 50, NULL, &sw_play.error); /* what hands the memories over is not answered */
    spillway_ticket_free(ticket);
    sw_play_close();
    (void)munmap(other, SW_PLAY_BYTES);
    (void)close(fd);
}
END_TEST

static void fail_buffers(int socket, uint32_t seq) {
    sw_play_put_error(socket, seq, "ENOMEM", SW_SCOPE_REQUEST, "cannot be mapped");
    sw_play_put_error(socket, seq + 1, "ENOMEM", SW_SCOPE_REQUEST, "cannot be mapped");
    sw_play_put_ok(socket, seq + 2);
}

static void lie_about_all_bytes(int socket, uint32_t seq) {
    sw_play_put_result(socket, seq + 1, 1, SW_PLAY_BYTES - 1);
}

static void answer_with_a_batch(int socket, uint32_t seq) {
    sw_play_put_batch(socket, seq + 1, 1, 1, SW_PLAY_BYTES);
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
    answer(socket, take_buffers(socket, SW_MSG_SPILL_BUFFERS));
    sw_play_expect_end(socket);
}

static void serve_bad_restore(int socket) {
    sw_play_greet_with(socket, SW_PLAY_MAX_IN_FLIGHT, 512);
    answer(socket, take_buffers(socket, SW_MSG_RESTORE_BUFFERS));
    sw_play_expect_end(socket);
}

START_TEST(buffers_that_fail) {
    struct spillway_ticket *ticket = NULL;
    answer = buffer_answers[_i].answer;
    sw_play.gpu.on = true;
    sw_play_open(serve_bad_buffers);
    ck_assert_int_eq(start_spill_of_buffers(&ticket), 0);
    ck_assert_int_eq(spillway_wait(ticket, -1, NULL, &sw_play.error), -buffer_answers[_i].code);
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
    const struct spillway_buffer buffers[] = {{(uint8_t *)sw_play.data + second[_i].start, second[_i].bytes, 0},
                                              {sw_play.data, SW_PLAY_BYTES / 2, 0}};
    int rc = spillway_restore_buffers(sw_play.connection, (struct spillway_region){1, 1}, buffers, 2, NULL, 0, &ticket,
                                      &sw_play.error);
    if (!rc)
        rc = spillway_wait(ticket, -1, NULL, &sw_play.error);
    sw_play_ck_error(rc, second[_i].code, SPILLWAY_SCOPE_REQUEST, rc == -SPILLWAY_EINVAL ? "overlap" : "mapped");
    spillway_ticket_free(ticket);
    sw_play_close();
}
END_TEST

static void serve_one_of_buffers(int socket) {
    sw_play_greet_with(socket, (uint32_t)(answer ? SW_PLAY_MAX_IN_FLIGHT : 1), 5);
    (void)take_buffers(socket, SW_MSG_SPILL_BUFFERS);
    sw_play_expect_end(socket);
}

START_TEST(the_limit_that_is_reached_is_named) {
    static const char *const texts[] = {"1 operations", "3 buffers and pieces of batches are in flight, and 3 more"};
    struct spillway_ticket *ticket = NULL;
    answer = _i ? fail_buffers : NULL;
    sw_play.gpu.on = true;
    sw_play_open(serve_one_of_buffers);
    ck_assert_int_eq(start_spill_of_buffers(&ticket), 0);
    sw_play_ck_error(start_spill_of_buffers(&ticket), SPILLWAY_ELIMIT, SPILLWAY_SCOPE_REQUEST, texts[_i]);
    sw_play_close();
}
END_TEST

/* Three pieces at a time, as many as the request has buffers. */
static void allow_one_request(int socket) {
    sw_play_greet_with(socket, SW_PLAY_MAX_IN_FLIGHT, 3);
    for (uint32_t i = 1; i <= 2; i++) {
        const uint32_t seq = take_buffers(socket, SW_MSG_SPILL_BUFFERS);
        sw_play_put_ok(socket, seq);
        sw_play_put_result(socket, seq + 1, i, SW_PLAY_BYTES);
        sw_play_put_ok(socket, seq + 2);
    }
    sw_play_expect_end(socket);
}

START_TEST(who_only_tries_again_gets_through) {
    struct spillway_ticket *first = NULL, *second = NULL;
    int rc = 0;
    sw_play.gpu.on = true;
    sw_play_open(allow_one_request);
    ck_assert_int_eq(start_spill_of_buffers(&first), 0);
    for (int tries = 0; tries < 60000; tries++) {
        rc = start_spill_of_buffers(&second);
        if (rc != -SPILLWAY_ELIMIT)
            break;
        (void)usleep(1000);
    }
    ck_assert_int_eq(rc, 0);
    ck_assert_int_eq(spillway_wait(second, -1, NULL, &sw_play.error), 0);
    sw_play_close();
}
END_TEST

static void tell_of_buffers(int socket, struct sw_msg *reply) {
    struct sw_msg msg;
    sw_play_greet(socket);
    sw_play_expect(socket, &msg, SW_MSG_QUERY_BUFFERS);
    sw_play_put(socket, reply, SW_MSG_REGION_BUFFERS, msg.header.seq);
    sw_play_expect_end(socket);
}

static void serve_bad_region(int socket) {
    struct sw_msg reply = {.u.region_buffers = {.count = SW_PROTO_MAX_BUFFERS + 1}};
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
    struct sw_msg reply = {.u.region_buffers = {.count = 2, .raw_bytes = {300, 200}, .stored_bytes = {100, 200}}};
    struct sw_msg_region_buffers *region = &reply.u.region_buffers;
    sw_msg_set_text(region->codecs, SW_PROTO_CODEC_BYTES, "v5t");
    sw_msg_set_text(region->codecs + SW_PROTO_CODEC_BYTES, SW_PROTO_CODEC_BYTES, "raw");
    sw_msg_set_text(region->reasons, SW_PROTO_REASON_BYTES, "pays");
    sw_msg_set_text(region->reasons + SW_PROTO_REASON_BYTES, SW_PROTO_REASON_BYTES,
                    "a text that takes all of its 32 b");
    tell_of_buffers(socket, &reply);
}

START_TEST(each_buffer_is_told_of) {
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
    ck_assert_str_eq(info[1].reason, "a text that takes all of its 32");
    sw_play_close();
}
END_TEST

/* ---- directories of packed regions ------------------------------------------------------------------------------- */

/* 64 chunks, then 6. */
static void serve_a_directory(int socket) {
    sw_play_greet(socket);
    for (uint32_t first = 0, n; first < 70; first += n) {
        struct sw_msg msg, reply = {.u.region_packed = {.n_chunks = 70}};
        n = first ? 6 : SW_PROTO_MAX_CHUNKS;
        sw_play_expect(socket, &msg, SW_MSG_QUERY_PACKED);
        SW_ASSERT(msg.u.query_packed.slot == 1 && msg.u.query_packed.gen == 2 && msg.u.query_packed.first == first);
        reply.u.region_packed.count = n;
        for (uint32_t i = 0; i < n; i++) {
            reply.u.region_packed.offset[i] = UINT64_C(128) * (first + i);
            reply.u.region_packed.type[i] = SPILLWAY_F64;
            reply.u.region_packed.n_symbols[i] = first + i;
        }
        sw_play_put(socket, &reply, SW_MSG_REGION_PACKED, msg.header.seq);
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

/* More than a message has room for, more than there are, none of some, and a type and symbols that no chunk has. */
static const struct {
    uint32_t n_chunks, count, type, n_symbols;
} bad_directories[] = {
    {100, SW_PROTO_MAX_CHUNKS + 1, 0, 0}, {3, 4, 0, 0},         {3, 0, 0, 0}, {UINT32_MAX, UINT32_MAX, 0, 0},
    {3, 3, SPILLWAY_F64 + 1, 0},          {3, 3, 0, UINT32_MAX}};
static int bad_directory;

static void serve_a_bad_directory(int socket) {
    struct sw_msg msg, reply = {.u.region_packed = {.n_chunks = bad_directories[bad_directory].n_chunks,
                                                    .count = bad_directories[bad_directory].count,
                                                    .type = {0, bad_directories[bad_directory].type},
                                                    .n_symbols = {0, bad_directories[bad_directory].n_symbols}}};
    sw_play_greet(socket);
    sw_play_expect(socket, &msg, SW_MSG_QUERY_PACKED);
    sw_play_put(socket, &reply, SW_MSG_REGION_PACKED, msg.header.seq);
    sw_play_expect_end(socket);
}

START_TEST(a_directory_that_cannot_be_ends_the_connection) {
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
    tcase_add_test(tcase, two_memfds_stay_two);
    tcase_add_loop_test(tcase, buffers_that_fail, 0, (int)(sizeof buffer_answers / sizeof buffer_answers[0]));
    tcase_add_test(tcase, no_memory_for_buffers);
    tcase_add_loop_test(tcase, restored_buffers_must_not_overlap, 0, 4);
    tcase_add_loop_test(tcase, the_limit_that_is_reached_is_named, 0, 2);
    tcase_add_test(tcase, who_only_tries_again_gets_through);
    tcase_add_test(tcase, a_region_of_too_many_buffers_ends_the_connection);
    tcase_add_test(tcase, each_buffer_is_told_of);
    tcase_add_test(tcase, a_directory_comes_in_parts);
    tcase_add_loop_test(tcase, a_directory_that_cannot_be_ends_the_connection, 0, 6);
    suite_add_tcase(suite, tcase);
    return sw_test_run(suite, CK_FORK);
}
