/* Batches of the client library against a played daemon. */
#include "base/alloc.h"
#include "base/assert.h"
#include "ipc/client/client_staging.h"
#include "ipc/proto.h"
#include "ipc/spillway.h"
#include "tests/lib/play.h"
#include "tests/lib/requests.h"
#include "tests/lib/run.h"

#include <check.h>
#include <poll.h>
#include <stdbool.h>
#include <string.h>
#include <unistd.h>

enum { N_BUFFERS = 300 };
#define BUFFER_BYTES UINT64_C(30)
static struct spillway_buffer buffers[N_BUFFERS];
static struct spillway_request requests[N_BUFFERS]; /* of a region for each of them */
static struct spillway_result results[N_BUFFERS];

static void lay_out_pieces(void) {
    for (uint32_t i = 0; i < N_BUFFERS; i++)
        buffers[i] =
            (struct spillway_buffer){.data = (uint8_t *)sw_play.data + i * BUFFER_BYTES, .bytes = BUFFER_BYTES};
    sw_requests_of_each(requests, buffers, N_BUFFERS);
}

/* The next packet of a spill of `count` buffers from `first` on; returns its seq. */
static uint32_t take_spill_batch(int socket, uint32_t mem, uint32_t first, uint32_t count) {
    struct sw_msg msg;
    sw_play_expect(socket, &msg, SW_MSG_BUILD);
    const struct sw_msg_build *m = &msg.u.build;
    SW_ASSERT(m->n_builds == count && m->n_chunks == count && m->flags == SW_REQ_ALL);
    for (uint32_t i = 0; i < count; i++) {
        SW_ASSERT(m->chunks[i].mem == mem && m->chunks[i].offset == (first + i) * BUFFER_BYTES);
        SW_ASSERT(m->chunks[i].raw_bytes == BUFFER_BYTES && m->chunks[i].order_word == 0);
        SW_ASSERT((m->chunks[i].order_value > 0) == sw_play.gpu.on);
    }
    return msg.header.seq;
}

static bool is_each; /* the batch's requests are each by itself */

static uint32_t take_restore_batch(int socket, uint32_t first, uint32_t count, uint32_t flags) {
    struct sw_msg msg;
    sw_play_expect(socket, &msg, SW_MSG_READ);
    const struct sw_msg_read *m = &msg.u.read;
    SW_ASSERT(m->n_reads == count && m->n_chunks == count && m->flags == (is_each ? 0 : SW_REQ_ALL));
    for (uint32_t i = 0; i < count; i++) {
        SW_ASSERT(m->reads[i].slot == first + 1 + i && m->reads[i].gen == 9);
        SW_ASSERT(m->reads[i].flags == (SW_READ_BEGIN | SW_READ_END | flags));
        SW_ASSERT(m->chunks[i].offset == (first + i) * BUFFER_BYTES && m->chunks[i].raw_bytes == BUFFER_BYTES);
    }
    return msg.header.seq;
}

static void expect_discard(int socket, uint32_t count, uint32_t first_slot, uint32_t flags) {
    struct sw_msg msg;
    sw_play_expect(socket, &msg, SW_MSG_DISCARD);
    const struct sw_msg_discard *m = &msg.u.discard;
    SW_ASSERT(m->n_ids == count && m->flags == flags && m->ids[0].slot == first_slot);
    SW_ASSERT(m->ids[count - 1].slot == first_slot + count - 1 && m->ids[count - 1].gen == 9);
    sw_play_put_discarded(socket, msg.header.seq, count);
}

static void start_batches(void (*serve)(int socket)) {
    sw_play_open(serve);
    ck_assert_int_eq(spillway_register(sw_play.connection, sw_play.data, SW_PLAY_BYTES, &sw_play.error), 0);
    lay_out_pieces();
}

static struct spillway_ticket *spill_batch(uint32_t n) {
    struct spillway_ticket *ticket = NULL;
    ck_assert_int_eq(spillway_spill(sw_play.connection, requests, n, &ticket, &sw_play.error), 0);
    return ticket;
}

static struct spillway_ticket *restore_batch(uint32_t n, unsigned flags) {
    struct spillway_ticket *ticket = NULL;
    for (uint32_t i = 0; i < n; i++) {
        requests[i].region = (struct spillway_region){i + 1, 9};
        requests[i].flags = flags;
    }
    ck_assert_int_eq(spillway_restore(sw_play.connection, requests, n, &ticket, &sw_play.error), 0);
    return ticket;
}

static int wait_batch(struct spillway_ticket *ticket, int timeout_ms, uint32_t n) {
    results->size = sizeof *results;
    return spillway_wait(ticket, timeout_ms, results, n, &sw_play.error);
}

/* Results of the regions that the played daemon gives to batches. */
static void ck_results(uint32_t n) {
    for (uint32_t i = 0; i < n; i++) {
        ck_assert(results[i].region.slot == i + 1 && results[i].region.generation == 9);
        ck_assert_uint_eq(results[i].raw_bytes, BUFFER_BYTES);
        ck_assert_uint_eq(results[i].stored_bytes, 1);
        ck_assert_uint_eq(results[i].service_us, 5);
        ck_assert_str_eq(results[i].codec, i < 256 ? "v5t" : "raw");
        ck_assert_str_eq(results[i].tier, "host");
    }
}

static void serve_two_packets(int socket) {
    sw_play_greet_with(socket, SW_PLAY_MAX_IN_FLIGHT, 512);
    const uint32_t mem = sw_play_register(socket);
    const uint32_t first = take_spill_batch(socket, mem, 0, 256), second = take_spill_batch(socket, mem, 256, 44);
    sw_play_put_batch(socket, second, 44, 257, 44 * BUFFER_BYTES);
    (void)sem_wait(&sw_play.go);
    sw_play_put_batch(socket, first, 256, 1, 256 * BUFFER_BYTES);
    /* Kept until both are back. */
    sw_play_put_batch(socket, take_restore_batch(socket, 0, 256, SW_READ_KEEP), 256, 1, 256 * BUFFER_BYTES);
    sw_play_put_batch(socket, take_restore_batch(socket, 256, 44, SW_READ_KEEP), 44, 257, 44 * BUFFER_BYTES);
    expect_discard(socket, 256, 1, SW_REQ_CONSUME);
    expect_discard(socket, 44, 257, SW_REQ_CONSUME);
    /* One packet is all or nothing by itself. */
    sw_play_put_batch(socket, take_restore_batch(socket, 0, 2, 0), 2, 1, 2 * BUFFER_BYTES);
    sw_play_put_batch(socket, take_restore_batch(socket, 0, 2, SW_READ_KEEP), 2, 1, 2 * BUFFER_BYTES);
    sw_play_expect_end(socket);
}

START_TEST(a_batch_may_take_two_packets) {
    start_batches(serve_two_packets);
    struct spillway_ticket *ticket = spill_batch(N_BUFFERS);
    sw_play_ck_error(wait_batch(ticket, 20, N_BUFFERS), SPILLWAY_EAGAIN, SPILLWAY_SCOPE_REQUEST, "");
    ck_assert_uint_eq(results[0].region.generation, 0);
    ck_assert_int_eq(sem_post(&sw_play.go), 0);
    ck_assert_int_eq(wait_batch(ticket, -1, N_BUFFERS), 0);
    spillway_ticket_free(ticket);
    ck_results(N_BUFFERS);
    memset(results, 0, sizeof results);
    ck_assert_int_eq(wait_batch(restore_batch(N_BUFFERS, 0), -1, N_BUFFERS), 0);
    ck_results(N_BUFFERS);
    ck_assert_int_eq(wait_batch(restore_batch(2, 0), -1, 2), 0);
    ck_results(2);
    ck_assert_int_eq(wait_batch(restore_batch(2, SPILLWAY_KEEP), -1, 2), 0);
    ck_results(2);
    sw_play_close();
}
END_TEST

static void abort_two_packets(int socket) {
    uint32_t numbers[N_BUFFERS], seqs[2];
    struct sw_msg msg;
    sw_play_greet(socket);
    (void)sw_play_register(socket);
    for (uint32_t k = 0, n = 0; k < 2; k++) {
        sw_play_expect(socket, &msg, SW_MSG_BUILD);
        seqs[k] = msg.header.seq;
        for (uint32_t i = 0; i < msg.u.build.n_builds; i++)
            numbers[n++] = msg.u.build.builds[i].build;
    }
    (void)sem_post(&sw_play.go);
    for (uint32_t k = 0, n = 0; k < 2; k++) {
        sw_play_expect(socket, &msg, SW_MSG_BUILD);
        SW_ASSERT(msg.u.build.n_builds == (k ? N_BUFFERS - SW_PROTO_MAX_ITEMS : SW_PROTO_MAX_ITEMS));
        for (uint32_t i = 0; i < msg.u.build.n_builds; i++)
            SW_ASSERT(msg.u.build.builds[i].build == numbers[n++] && msg.u.build.builds[i].flags == SW_BUILD_ABORT);
        sw_play_put_batch(socket, msg.header.seq, msg.u.build.n_builds, 1, 0);
    }
    for (uint32_t k = 0; k < 2; k++)
        sw_play_put_error(socket, seqs[k], "ECANCELED", SW_SCOPE_REQUEST, "aborted");
    sw_play_expect_end(socket);
}

/* Each packet's builds by their own numbers. */
START_TEST(a_batch_of_two_packets_is_canceled) {
    start_batches(abort_two_packets);
    struct spillway_ticket *ticket = spill_batch(N_BUFFERS);
    (void)sem_wait(&sw_play.go);
    ck_assert_int_eq(spillway_cancel(ticket, &sw_play.error), 0);
    ck_assert_int_eq(spillway_wait(ticket, SW_TEST_WAIT_MS, NULL, 0, &sw_play.error), -SPILLWAY_ECANCELED);
    sw_play_close();
}
END_TEST

/* Five requests have 256 buffers, or one more. */
enum { N_LONG = 6 };
static uint32_t n_buffers[N_LONG] = {64, 64, 64, 60, 4, 1};

static void take_long(int socket, uint32_t first, uint32_t n) {
    static const struct sw_wire_text texts[] = {{"v5t"}};
    struct sw_wire_result all[N_LONG] = {{0}};
    struct sw_msg msg, reply = {.u.results = {.n_results = (uint16_t)n, .n_texts = 1, .results = all, .texts = texts}};
    uint32_t n_chunks = 0;
    for (uint32_t i = 0; i < n; i++) {
        all[i] = (struct sw_wire_result){
            .slot = 1 + i, .gen = 9, .raw_bytes = n_buffers[first + i] * BUFFER_BYTES, .codec = 1};
        n_chunks += n_buffers[first + i];
    }
    sw_play_expect(socket, &msg, SW_MSG_BUILD);
    SW_ASSERT(msg.u.build.n_builds == n && msg.u.build.n_chunks == n_chunks);
    sw_play_put(socket, &reply, SW_MSG_RESULTS, msg.header.seq);
}

static void take_full_packets(int socket) {
    const uint32_t n_first = n_buffers[3] == 60 ? 5 : 4;
    sw_play_greet_with(socket, SW_PLAY_MAX_IN_FLIGHT, 512);
    (void)sw_play_register(socket);
    take_long(socket, 0, n_first);
    take_long(socket, n_first, N_LONG - n_first);
    sw_play_expect_end(socket);
}

START_TEST(a_packet_takes_whole_regions) {
    n_buffers[3] = (uint32_t)_i;
    struct spillway_ticket *ticket = NULL;
    start_batches(take_full_packets);
    for (uint32_t i = 0, first = 0; i < N_LONG; first += n_buffers[i++])
        requests[i] = (struct spillway_request){.size = sizeof requests[i], SW_SEVERAL(buffers + first, n_buffers[i])};
    ck_assert_int_eq(spillway_spill(sw_play.connection, requests, N_LONG, &ticket, &sw_play.error), 0);
    ck_assert_int_eq(wait_batch(ticket, -1, N_LONG), 0);
    spillway_ticket_free(ticket);
    sw_play_close();
}
END_TEST

static void fail_second_packets(int socket) {
    sw_play_greet_with(socket, SW_PLAY_MAX_IN_FLIGHT, 512);
    const uint32_t mem = sw_play_register(socket);
    uint32_t first = take_spill_batch(socket, mem, 0, 256);
    sw_play_put_error(socket, take_spill_batch(socket, mem, 256, 44), "ENOSPACE", SW_SCOPE_REQUEST, "tier is full");
    sw_play_put_batch(socket, first, 256, 1, 256 * BUFFER_BYTES);
    expect_discard(socket, 256, 1, 0);
    first = take_restore_batch(socket, 0, 256, SW_READ_KEEP);
    sw_play_put_error(socket, take_restore_batch(socket, 256, 44, SW_READ_KEEP), "ECHECKSUM", SW_SCOPE_REGION,
                      "bad frame");
    sw_play_put_batch(socket, first, 256, 1, 256 * BUFFER_BYTES);
    sw_play_expect_end(socket); /* nothing is dropped */
}

START_TEST(a_batch_fails_as_one) {
    start_batches(fail_second_packets);
    sw_play_ck_error(wait_batch(spill_batch(N_BUFFERS), -1, N_BUFFERS), SPILLWAY_ENOSPACE, SPILLWAY_SCOPE_REQUEST,
                     "of requests 257 to 300: tier is full");
    ck_assert_uint_eq(results[0].region.generation, 0);
    sw_play_ck_error(wait_batch(restore_batch(N_BUFFERS, 0), -1, N_BUFFERS), SPILLWAY_ECHECKSUM, SPILLWAY_SCOPE_REGION,
                     "bad frame");
    sw_play_close();
}
END_TEST

static enum sw_scope scope_of_the_last;

static void fail_the_last(int socket) {
    sw_play_greet_with(socket, SW_PLAY_MAX_IN_FLIGHT, 512);
    const uint32_t mem = sw_play_register(socket), first = take_spill_batch(socket, mem, 0, 256);
    sw_play_put_error(socket, take_spill_batch(socket, mem, 256, 1), "EGPU", scope_of_the_last, "a call failed");
    sw_play_put_batch(socket, first, 256, 1, 256 * BUFFER_BYTES);
    expect_discard(socket, 256, 1, 0);
    sw_play_expect_end(socket);
}

/* The request of a packet that has one is named, unless the error is about more than that. */
START_TEST(an_error_of_more_names_no_request) {
    static const enum sw_scope scopes[] = {SW_SCOPE_REQUEST, SW_SCOPE_REGION, SW_SCOPE_SESSION, SW_SCOPE_DEVICE};
    scope_of_the_last = scopes[_i];
    start_batches(fail_the_last);
    ck_assert_int_eq(wait_batch(spill_batch(257), -1, 257), -SPILLWAY_EGPU);
    ck_assert_str_eq(sw_play.error.text, _i < 2 ? "request 257 of 257: a call failed" : "a call failed");
    sw_play_close();
}
END_TEST

static void allow_one_packet(int socket) {
    struct pollfd p = {.fd = socket, .events = POLLIN};
    sw_play_greet_with(socket, 1, 512);
    const uint32_t mem = sw_play_register(socket), first = take_spill_batch(socket, mem, 0, 256);
    SW_ASSERT(poll(&p, 1, 20) == 0);
    sw_play_put_batch(socket, first, 256, 1, 256 * BUFFER_BYTES);
    sw_play_put_batch(socket, take_spill_batch(socket, mem, 256, 44), 44, 257, 44 * BUFFER_BYTES);
    sw_play_expect_end(socket);
}

START_TEST(packets_respect_the_daemons_limit) {
    start_batches(allow_one_packet);
    ck_assert_int_eq(wait_batch(spill_batch(N_BUFFERS), -1, N_BUFFERS), 0);
    sw_play_close();
}
END_TEST

/* No more buffers at a time than the daemon allows, and no more packets. */
static void allow_few_pieces(int socket) {
    sw_play_greet_with(socket, 2, 100);
    const uint32_t mem = sw_play_register(socket);
    for (uint32_t first = 0; first < N_BUFFERS; first += 100)
        sw_play_put_batch(socket, take_spill_batch(socket, mem, first, 100), 100, first + 1, 100 * BUFFER_BYTES);
    const uint32_t one = take_spill_batch(socket, mem, 0, 1), other = take_spill_batch(socket, mem, 0, 2);
    struct sw_msg status;
    sw_play_expect(socket, &status, SW_MSG_STATUS); /* and not the third */
    sw_play_put_batch(socket, one, 1, 1, BUFFER_BYTES);
    sw_play_put(socket, &status, SW_MSG_STATUS_OK, status.header.seq);
    const uint32_t third = take_spill_batch(socket, mem, 0, 3);
    sw_play_put_batch(socket, third, 3, 4, 3 * BUFFER_BYTES);
    sw_play_put_batch(socket, other, 2, 2, 2 * BUFFER_BYTES);
    sw_play_expect_end(socket);
}

START_TEST(batches_respect_the_daemons_limits) {
    struct spillway_status status = {.size = sizeof status};
    struct spillway_ticket *none = NULL;
    start_batches(allow_few_pieces);
    ck_assert_int_eq(wait_batch(spill_batch(N_BUFFERS), -1, N_BUFFERS), 0);
    ck_assert_uint_eq(results[N_BUFFERS - 1].region.slot, N_BUFFERS);
    struct spillway_ticket *one = spill_batch(1), *other = spill_batch(2);
    sw_play_ck_error(spillway_spill(sw_play.connection, requests, 3, &none, &sw_play.error), SPILLWAY_ELIMIT,
                     SPILLWAY_SCOPE_REQUEST, "2 operations");
    ck_assert_int_eq(spillway_status(sw_play.connection, &status, &sw_play.error), 0);
    ck_assert_int_eq(wait_batch(one, -1, 1), 0);
    struct spillway_ticket *third = spill_batch(3);
    ck_assert_int_eq(wait_batch(third, -1, 3), 0);
    ck_assert_int_eq(wait_batch(other, -1, 2), 0);
    sw_play_close();
}
END_TEST

static void refuse_batches(int socket) {
    sw_play_greet_with(socket, 1, 3);
    const uint32_t mem = sw_play_register(socket);
    for (unsigned i = 0; i < 3; i++)
        sw_play_put_error(socket, take_spill_batch(socket, mem, 0, 3), "ENOSPACE", SW_SCOPE_REQUEST, "it is full");
    sw_play_put_batch(socket, take_spill_batch(socket, mem, 0, 3), 3, 1, 3 * BUFFER_BYTES);
    sw_play_expect_end(socket);
}

/* Batches as large as the daemon allows, one after the other. */
START_TEST(batches_that_fail_leave_room_for_others) {
    start_batches(refuse_batches);
    for (unsigned i = 0; i < 3; i++)
        sw_play_ck_error(wait_batch(spill_batch(3), 20000, 3), SPILLWAY_ENOSPACE, SPILLWAY_SCOPE_REQUEST, "full");
    ck_assert_int_eq(wait_batch(spill_batch(3), 20000, 3), 0);
    sw_play_close();
}
END_TEST

static void allow_one_batch(int socket) {
    sw_play_greet_with(socket, 1, 100);
    const uint32_t mem = sw_play_register(socket);
    for (uint32_t i = 1; i <= 2; i++)
        sw_play_put_batch(socket, take_spill_batch(socket, mem, 0, 1), 1, i, BUFFER_BYTES);
    sw_play_expect_end(socket);
}

START_TEST(a_client_that_only_retries_makes_progress) {
    struct spillway_ticket *ticket = NULL;
    int rc = 0;
    start_batches(allow_one_batch);
    (void)spill_batch(1);
    for (int tries = 0; tries < 60000; tries++) {
        rc = spillway_spill(sw_play.connection, requests, 1, &ticket, &sw_play.error);
        if (rc != -SPILLWAY_ELIMIT)
            break;
        (void)usleep(1000);
    }
    ck_assert_int_eq(rc, 0);
    ck_assert_int_eq(wait_batch(ticket, -1, 1), 0);
    sw_play_close();
}
END_TEST

static void serve_gpu_batch(int socket) {
    struct sw_msg open;
    sw_play_greet_with(socket, SW_PLAY_MAX_IN_FLIGHT, 512);
    sw_play_expect(socket, &open, SW_MSG_MEM_OPEN);
    sw_play_put_ok(socket, open.header.seq);
    const uint32_t first = take_spill_batch(socket, open.u.mem_open.mem, 0, 256);
    const uint32_t second = take_spill_batch(socket, open.u.mem_open.mem, 256, 44);
    sw_play_put_batch(socket, first, 256, 1, 256 * BUFFER_BYTES);
    struct sw_msg status;
    sw_play_expect(socket, &status, SW_MSG_STATUS);
    sw_play_put(socket, &status, SW_MSG_STATUS_OK, status.header.seq);
    (void)sem_wait(&sw_play.go);
    sw_play_put_batch(socket, second, 44, 257, 44 * BUFFER_BYTES);
    sw_play_expect_end(socket);
}

START_TEST(a_batch_has_one_mark) {
    struct spillway_status status = {.size = sizeof status};
    sw_play.gpu.on = true;
    start_batches(serve_gpu_batch);
    struct spillway_ticket *ticket = spill_batch(N_BUFFERS);
    ck_assert_int_eq(spillway_status(sw_play.connection, &status, &sw_play.error), 0);
    ck_assert_uint_eq(sw_play.gpu.n_held, 44); /* one packet is not answered yet */
    ck_assert_int_eq(sem_post(&sw_play.go), 0);
    ck_assert_int_eq(wait_batch(ticket, -1, N_BUFFERS), 0);
    ck_assert_uint_eq(sw_play.gpu.n_held, 0);
    sw_play_close();
}
END_TEST

static void serve_no_bytes(int socket) {
    struct sw_msg msg;
    sw_play_greet_with(socket, SW_PLAY_MAX_IN_FLIGHT, 512);
    sw_play_expect(socket, &msg, SW_MSG_MEM_OPEN);
    sw_play_put_ok(socket, msg.header.seq);
    sw_play_expect(socket, &msg, SW_MSG_BUILD);
    const struct sw_wire_chunk *chunks = msg.u.build.chunks;
    SW_ASSERT(msg.u.build.n_builds == 2 && chunks[0].offset == SW_PLAY_BYTES);
    SW_ASSERT(chunks[0].raw_bytes == 0 && chunks[1].offset == BUFFER_BYTES);
    const struct sw_wire_result wire[] = {{.slot = 1, .gen = 9}, {.slot = 2, .gen = 9, .raw_bytes = BUFFER_BYTES}};
    struct sw_msg reply = {.u.results = {.n_results = 2, .results = wire}};
    sw_play_put(socket, &reply, SW_MSG_RESULTS, msg.header.seq);
    sw_play_expect_end(socket);
}

/* Each result differs from the one before in one text. */
static void serve_texts(int socket) {
    static const struct sw_wire_text texts[] = {{"first"}, {"second"}};
    struct sw_wire_result wire[5];
    struct sw_msg reply = {.u.results = {.n_results = 5, .n_texts = 2, .results = wire, .texts = texts}};
    sw_play_greet(socket);
    const uint32_t seq = take_spill_batch(socket, sw_play_register(socket), 0, 5);
    for (uint32_t i = 0; i < 5; i++)
        wire[i] = (struct sw_wire_result){.slot = i + 1,
                                          .gen = 9,
                                          .codec = i < 1 ? 1 : 2,
                                          .tier = i < 2 ? 1 : 2,
                                          .reason = i < 3 ? 1 : 2,
                                          .coder = i < 4 ? 1 : 2,
                                          .raw_bytes = BUFFER_BYTES};
    sw_play_put(socket, &reply, SW_MSG_RESULTS, seq);
    sw_play_expect_end(socket);
}

START_TEST(each_result_has_its_own_texts) {
    start_batches(serve_texts);
    ck_assert_int_eq(wait_batch(spill_batch(5), -1, 5), 0);
    for (uint32_t i = 0; i < 5; i++) {
        ck_assert_str_eq(results[i].codec, i < 1 ? "first" : "second");
        ck_assert_str_eq(results[i].tier, i < 2 ? "first" : "second");
        ck_assert_str_eq(results[i].reason, i < 3 ? "first" : "second");
        ck_assert_str_eq(results[i].coder, i < 4 ? "first" : "second");
    }
    sw_play_close();
}
END_TEST

/* Nothing is at the memory's end that the driver could be asked about: the mark is of the memory itself. */
START_TEST(an_empty_buffer_may_lie_at_the_end_of_memory) {
    sw_play.gpu.on = true;
    start_batches(serve_no_bytes);
    buffers[0].data = (uint8_t *)sw_play.data + SW_PLAY_BYTES;
    buffers[0].bytes = 0;
    ck_assert_int_eq(wait_batch(spill_batch(2), -1, 2), 0);
    ck_assert_ptr_eq(sw_play.gpu.memory, sw_play.data);
    sw_play_close();
}
END_TEST

static void drop_what_nobody_saw(int socket) {
    struct sw_msg status;
    sw_play_greet_with(socket, SW_PLAY_MAX_IN_FLIGHT, 256);
    const uint32_t mem = sw_play_register(socket);
    sw_play_put_batch(socket, take_spill_batch(socket, mem, 0, 10), 10, 1, 10 * BUFFER_BYTES);
    sw_play_expect(socket, &status, SW_MSG_STATUS);
    sw_play_put(socket, &status, SW_MSG_STATUS_OK, status.header.seq);
    expect_discard(socket, 10, 1, 0);
    const uint32_t first = take_spill_batch(socket, mem, 0, 256);
    (void)sem_wait(&sw_play.go);
    sw_play_put_batch(socket, first, 256, 1, 256 * BUFFER_BYTES);
    sw_play_expect(socket, &status, SW_MSG_STATUS);
    sw_play_put(socket, &status, SW_MSG_STATUS_OK, status.header.seq);
    expect_discard(socket, 256, 1, 0); /* and no second packet */
    sw_play_expect(socket, &status, SW_MSG_STATUS);
    sw_play_put(socket, &status, SW_MSG_STATUS_OK, status.header.seq);
    sw_play_expect_end(socket);
}

START_TEST(freeing_a_batch_drops_its_unknown_regions) {
    struct spillway_status status = {.size = sizeof status};
    start_batches(drop_what_nobody_saw);
    struct spillway_ticket *done = spill_batch(10);
    ck_assert_int_eq(spillway_status(sw_play.connection, &status, &sw_play.error), 0);
    spillway_ticket_free(done); /* is done, but was not waited for */
    struct spillway_ticket *running = spill_batch(N_BUFFERS);
    spillway_ticket_free(running);
    memset(buffers, 0xee, sizeof buffers); /* neither is checked any more */
    memset(requests, 0xee, sizeof requests);
    ck_assert_int_eq(sem_post(&sw_play.go), 0);
    ck_assert_int_eq(spillway_status(sw_play.connection, &status, &sw_play.error), 0);
    ck_assert_int_eq(spillway_status(sw_play.connection, &status, &sw_play.error), 0);
    sw_play_close();
}
END_TEST

/* ---- calls that need several packets ----------------------------------------------------------------------------- */

static void keep_until_the_end(int socket) {
    sw_play_greet_with(socket, SW_PLAY_MAX_IN_FLIGHT, 2);
    (void)sw_play_register(socket);
    sw_play_put_batch(socket, take_restore_batch(socket, 0, 2, SW_READ_KEEP), 2, 1, 2 * BUFFER_BYTES);
    sw_play_put_batch(socket, take_restore_batch(socket, 2, 1, SW_READ_KEEP), 1, 3, BUFFER_BYTES);
    expect_discard(socket, 3, 1, SW_REQ_CONSUME);
    sw_play_expect_end(socket);
}

/* Also if it is the service's limit that divides them. */
START_TEST(regions_are_kept_until_all_packets_are_back) {
    start_batches(keep_until_the_end);
    ck_assert_int_eq(wait_batch(restore_batch(3, 0), -1, 3), 0);
    sw_play_close();
}
END_TEST

static void serve_nothing(int socket) {
    sw_play_greet_with(socket, SW_PLAY_MAX_IN_FLIGHT, 2);
    (void)sw_play_register(socket);
    sw_play_expect_end(socket);
}

/* What two packets commit cannot be all or none. Loop: which of the regions has a name. */
START_TEST(durable_regions_of_several_packets_are_refused) {
    struct spillway_ticket *none = NULL;
    start_batches(serve_nothing);
    requests[_i].name = "orders";
    sw_play_ck_error(spillway_spill(sw_play.connection, requests, 3, &none, &sw_play.error), SPILLWAY_ELIMIT,
                     SPILLWAY_SCOPE_REQUEST, "3 requests of 3 buffers");
    ck_assert_ptr_null(none);
    sw_play_close();
}
END_TEST

/* Takes parts that the library has copied, until all are committed at once. */
static void serve_copied(int socket) {
    struct sw_msg msg;
    sw_play_greet_with(socket, SW_PLAY_MAX_IN_FLIGHT, 2);
    (void)sw_play_register(socket);
    for (uint32_t n_parts = 0; n_parts < SW_PROTO_MAX_ITEMS; n_parts++) {
        sw_play_expect(socket, &msg, SW_MSG_BUILD);
        SW_ASSERT(msg.u.build.n_chunks == 1 && msg.u.build.chunks[0].raw_bytes == BUFFER_BYTES);
        sw_play_put_result(socket, msg.header.seq, 1, BUFFER_BYTES);
    }
    sw_play_expect(socket, &msg, SW_MSG_BUILD);
    SW_ASSERT(msg.u.build.n_builds == SW_PROTO_MAX_ITEMS && msg.u.build.flags == SW_REQ_ALL);
    for (uint32_t i = 0; i < SW_PROTO_MAX_ITEMS; i++)
        SW_ASSERT(msg.u.build.builds[i].flags == SW_BUILD_COMMIT);
    sw_play_put_batch(socket, msg.header.seq, SW_PROTO_MAX_ITEMS, 1, SW_PROTO_MAX_ITEMS * BUFFER_BYTES);
    while (sw_play_get(socket, &msg))
        continue;
    sw_play_put_ok(socket, 0); /* the session has ended, with the names */
}

/* One packet commits them, however many had their bytes. */
START_TEST(copied_durable_regions_are_committed_at_once) {
    static uint8_t memory[N_BUFFERS * BUFFER_BYTES];
    sw_play_open(serve_copied);
    for (uint32_t i = 0; i < N_BUFFERS; i++)
        buffers[i] = (struct spillway_buffer){.data = memory + i * BUFFER_BYTES, .bytes = BUFFER_BYTES};
    sw_requests_of_each(requests, buffers, N_BUFFERS);
    requests[0].name = "orders";
    struct spillway_ticket *none = NULL;
    ck_assert_int_eq(spillway_spill(sw_play.connection, requests, SW_PROTO_MAX_ITEMS + 1, &none, &sw_play.error),
                     -SPILLWAY_ELIMIT);
    ck_assert_int_eq(wait_batch(spill_batch(SW_PROTO_MAX_ITEMS), -1, SW_PROTO_MAX_ITEMS), 0);
    sw_play_close();
}
END_TEST

static void serve_two_streams(int socket) {
    struct sw_msg open, msg;
    sw_play_greet(socket);
    sw_play_expect(socket, &open, SW_MSG_MEM_OPEN);
    sw_play_put_ok(socket, open.header.seq);
    sw_play_expect(socket, &msg, SW_MSG_BUILD);
    const struct sw_wire_chunk *chunks = msg.u.build.chunks;
    SW_ASSERT(msg.u.build.n_builds == 3 && chunks[0].order_word == 0 && chunks[1].order_word == 1);
    SW_ASSERT(chunks[2].order_word == 1);
    sw_play_put_batch(socket, msg.header.seq, 3, 1, 3 * BUFFER_BYTES);
    sw_play_expect_end(socket);
}

/* The service waits for each of them. */
START_TEST(each_stream_has_its_mark) {
    static int streams[2];
    sw_play.gpu.on = true;
    start_batches(serve_two_streams);
    for (uint32_t i = 0; i < 3; i++)
        requests[i].stream = (void *)&streams[i > 0];
    ck_assert_int_eq(wait_batch(spill_batch(3), -1, 3), 0);
    sw_play_close();
}
END_TEST

/* ---- false replies ----------------------------------------------------------------------------------------------- */

static void lie_about_the_count(int socket, uint32_t seq) {
    sw_play_put_batch(socket, seq, 3, 1, 2 * BUFFER_BYTES);
}

static void lie_about_the_bytes(int socket, uint32_t seq) {
    sw_play_put_batch(socket, seq, 2, 1, 2 * BUFFER_BYTES - 1);
}

/* No region has generation 0. */
static void name_no_region(int socket, uint32_t seq) {
    const struct sw_wire_result wire[] = {{.slot = 1, .gen = 9, .raw_bytes = BUFFER_BYTES},
                                          {.slot = 2, .raw_bytes = BUFFER_BYTES}};
    struct sw_msg msg = {.u.results = {.n_results = 2, .results = wire}};
    sw_play_put(socket, &msg, SW_MSG_RESULTS, seq);
}

static void answer_with_one(int socket, uint32_t seq) {
    sw_play_put_result(socket, seq, 1, 2 * BUFFER_BYTES);
}

static const struct {
    void (*lie)(int socket, uint32_t seq);
    int code;
} batch_lies[] = {
    {lie_about_the_count, SPILLWAY_EPROTO}, {lie_about_the_bytes, SPILLWAY_EPROTO}, {answer_with_one, SPILLWAY_EPROTO},
    {sw_play_hang_up, SPILLWAY_ECONN},      {name_no_region, SPILLWAY_EPROTO},
};

static void (*lie)(int socket, uint32_t seq);

static void serve_a_batch_lie(int socket) {
    sw_play_greet_with(socket, SW_PLAY_MAX_IN_FLIGHT, 512);
    lie(socket, take_spill_batch(socket, sw_play_register(socket), 0, 2));
    sw_play_expect_end(socket);
}

START_TEST(false_replies_to_batches_end_the_connection) {
    struct spillway_ticket *none = NULL;
    lie = batch_lies[_i].lie;
    start_batches(serve_a_batch_lie);
    sw_play_ck_error(wait_batch(spill_batch(2), -1, 2), batch_lies[_i].code, SPILLWAY_SCOPE_SESSION, "");
    sw_play_ck_error(spillway_spill(sw_play.connection, requests, 2, &none, &sw_play.error), batch_lies[_i].code,
                     SPILLWAY_SCOPE_SESSION, "");
    sw_play_close();
}
END_TEST

static void restore_too_much(int socket) {
    sw_play_greet_with(socket, SW_PLAY_MAX_IN_FLIGHT, 512);
    (void)sw_play_register(socket);
    sw_play_put_batch(socket, take_restore_batch(socket, 0, 2, 0), 2, 1, 2 * BUFFER_BYTES + 1);
    sw_play_expect_end(socket);
}

/* More bytes than the buffer has cannot have been restored. */
START_TEST(a_restore_of_too_many_bytes_ends_the_connection) {
    start_batches(restore_too_much);
    sw_play_ck_error(wait_batch(restore_batch(2, 0), -1, 2), SPILLWAY_EPROTO, SPILLWAY_SCOPE_SESSION, "");
    sw_play_close();
}
END_TEST

static void serve_one_batch(int socket) {
    sw_play_greet_with(socket, SW_PLAY_MAX_IN_FLIGHT, 512);
    (void)sw_play_register(socket);
    sw_play_put_batch(socket, take_restore_batch(socket, 0, 2, 0), 2, 1, 2 * BUFFER_BYTES);
    sw_play_expect_end(socket);
}

/* All requests fail alike, also those that are each by itself. */
START_TEST(a_heap_that_fails_costs_one_batch) {
    struct spillway_ticket *ticket = NULL;
    int rc = -1;
    is_each = _i;
    start_batches(serve_one_batch);
    for (uint32_t i = 0; i < 2; i++) {
        requests[i].region = (struct spillway_region){i + 1, 9};
        requests[i].flags = is_each ? SPILLWAY_EACH : 0;
    }
    const long live = sw_alloc_live();
    for (unsigned long n = 1; rc < 0; n++) {
        sw_alloc_fail_nth(n);
        rc = spillway_restore(sw_play.connection, requests, 2, &ticket, &sw_play.error);
        sw_alloc_fail_nth(0);
        if (rc == 0 && spillway_wait(ticket, 0, NULL, 0, &sw_play.error) == -SPILLWAY_ENOMEM) { /* of its packet */
            ck_assert_int_eq(wait_batch(ticket, 0, 2), -SPILLWAY_ENOMEM);
            for (unsigned i = 0; i < 2; i++)
                ck_assert_int_eq(results[i].code, -SPILLWAY_ENOMEM);
            spillway_ticket_free(ticket);
            rc = -SPILLWAY_ENOMEM;
        }
        if (rc < 0) {
            sw_play_ck_error(rc, SPILLWAY_ENOMEM, SPILLWAY_SCOPE_REQUEST, "");
            ck_assert_int_eq(sw_alloc_live(), live);
        }
    }
    ck_assert_int_eq(spillway_wait(ticket, -1, NULL, 0, &sw_play.error), 0);
    sw_play_close();
}
END_TEST

int main(void) {
    Suite *suite = suite_create("ipc_client_batch");
    TCase *tcase = tcase_create("batch");
    tcase_add_test(tcase, a_batch_may_take_two_packets);
    tcase_add_test(tcase, a_batch_of_two_packets_is_canceled);
    tcase_add_loop_test(tcase, a_packet_takes_whole_regions, 60, 62);
    tcase_add_test(tcase, a_batch_fails_as_one);
    tcase_add_loop_test(tcase, an_error_of_more_names_no_request, 0, 4);
    tcase_add_test(tcase, packets_respect_the_daemons_limit);
    tcase_add_test(tcase, batches_respect_the_daemons_limits);
    tcase_add_test(tcase, batches_that_fail_leave_room_for_others);
    tcase_add_test(tcase, a_client_that_only_retries_makes_progress);
    tcase_add_test(tcase, a_batch_has_one_mark);
    tcase_add_test(tcase, each_result_has_its_own_texts);
    tcase_add_test(tcase, an_empty_buffer_may_lie_at_the_end_of_memory);
    tcase_add_test(tcase, freeing_a_batch_drops_its_unknown_regions);
    tcase_add_test(tcase, regions_are_kept_until_all_packets_are_back);
    tcase_add_loop_test(tcase, durable_regions_of_several_packets_are_refused, 0, 3);
    tcase_add_test(tcase, copied_durable_regions_are_committed_at_once);
    tcase_add_test(tcase, each_stream_has_its_mark);
    tcase_add_loop_test(tcase, false_replies_to_batches_end_the_connection, 0,
                        (int)(sizeof batch_lies / sizeof batch_lies[0]));
    tcase_add_test(tcase, a_restore_of_too_many_bytes_ends_the_connection);
    tcase_add_loop_test(tcase, a_heap_that_fails_costs_one_batch, 0, 2);
    suite_add_tcase(suite, tcase);
    return sw_test_run(suite, CK_FORK);
}
