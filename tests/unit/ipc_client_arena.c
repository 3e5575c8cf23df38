/* How the client library copies what it cannot hand over, in pieces through an arena, with a played daemon. */
#include "base/assert.h"
#include "ipc/client/client_staging.h"
#include "ipc/proto.h"
#include "ipc/spillway.h"
#include "tests/lib/play.h"
#include "tests/lib/requests.h"
#include "tests/lib/run.h"

#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- transfers in pieces ----------------------------------------------------------------------------------------- */

enum { STAGED_BYTES = (int)SW_PIECE_BYTES + 1000 };

static void expect_consume(int socket, uint16_t n) {
    struct sw_msg msg;
    sw_play_expect(socket, &msg, SW_MSG_DISCARD);
    SW_ASSERT(msg.u.discard.flags == SW_REQ_CONSUME && msg.u.discard.n_ids == n);
    for (uint16_t i = 0; i < n; i++)
        SW_ASSERT(msg.u.discard.ids[i].slot == i + 1u && msg.u.discard.ids[i].gen == 9);
    sw_play_put_discarded(socket, msg.header.seq, n);
}

/* A packet of one build or read with one chunk in the arena; returns its seq. */
static uint32_t take_part(int socket, unsigned type, uint32_t mem, uint64_t at, uint64_t bytes) {
    struct sw_msg msg;
    sw_play_expect(socket, &msg, type);
    const struct sw_wire_chunk *chunk = type == SW_MSG_BUILD ? msg.u.build.chunks : msg.u.read.chunks;
    SW_ASSERT(chunk->mem == mem && chunk->offset == at && chunk->at == at && chunk->raw_bytes == bytes);
    if (type == SW_MSG_BUILD && at == 0)
        SW_ASSERT(msg.u.build.builds[0].flags == SW_BUILD_BEGIN && msg.u.build.buffers[0].raw_bytes == STAGED_BYTES &&
                  msg.u.build.buffers[0].chunk_bytes == SW_PIECE_BYTES);
    else
        SW_ASSERT((type == SW_MSG_BUILD ? msg.u.build.builds[0].flags : msg.u.read.reads[0].flags) == 0);
    return msg.header.seq;
}

/* Both pieces of STAGED_BYTES, side by side in the arena; returns the seq of the first, the other's is the next. */
static uint32_t take_parts(int socket, unsigned type, uint32_t mem) {
    const uint32_t seq = take_part(socket, type, mem, 0, SW_PIECE_BYTES);
    SW_ASSERT(take_part(socket, type, mem, SW_PIECE_BYTES, 1000) == seq + 1);
    return seq;
}

static void put_parts(int socket, uint32_t seq) {
    sw_play_put_result(socket, seq + 1, 2, 1000);
    sw_play_put_result(socket, seq, 1, SW_PIECE_BYTES);
}

/* The packet that ends a build: its commit or its abort. */
static uint32_t take_build_end(int socket, unsigned flags) {
    struct sw_msg msg;
    sw_play_expect(socket, &msg, SW_MSG_BUILD);
    SW_ASSERT(msg.u.build.n_builds == 1 && msg.u.build.builds[0].flags == flags && msg.u.build.n_chunks == 0);
    return msg.header.seq;
}

/* The read of a region of that length, in chunks of that length; and in chunks of a piece. */
static void begin_read_by(int socket, uint64_t bytes, uint32_t chunk_bytes) {
    const struct sw_wire_buffer buffer = {.raw_bytes = bytes, .chunk_bytes = chunk_bytes};
    const struct sw_wire_result result = {.slot = 1, .gen = 9, .n_buffers = 1};
    struct sw_msg msg, reply = {.u.results = {.n_results = 1, .n_buffers = 1, .results = &result, .buffers = &buffer}};
    sw_play_expect(socket, &msg, SW_MSG_READ);
    SW_ASSERT(msg.u.read.reads[0].flags == SW_READ_BEGIN && msg.u.read.reads[0].slot == 1 && msg.u.read.n_chunks == 0);
    sw_play_put(socket, &reply, SW_MSG_RESULTS, msg.header.seq);
}

static void begin_read(int socket, uint64_t bytes) {
    begin_read_by(socket, bytes, (uint32_t)SW_PIECE_BYTES);
}

static void expect_read_end(int socket) {
    struct sw_msg msg;
    sw_play_expect(socket, &msg, SW_MSG_READ);
    SW_ASSERT(msg.u.read.reads[0].flags == (SW_READ_END | SW_READ_KEEP));
    sw_play_put_discarded(socket, msg.header.seq, 1);
}

static void serve_failures_half_way(int socket) {
    sw_play_greet(socket);
    const uint32_t mem = sw_play_register(socket);
    struct sw_msg status;
    uint32_t seq = take_parts(socket, SW_MSG_BUILD, mem), end = take_build_end(socket, SW_BUILD_COMMIT);
    sw_play_put_result(socket, seq, 7, SW_PIECE_BYTES);
    sw_play_put_error(socket, seq + 1, "ENOSPACE", SW_SCOPE_REQUEST, "tier is full");
    sw_play_put_error(socket, end, "ENOSPACE", SW_SCOPE_REQUEST, "tier is full");
    put_parts(socket, take_parts(socket, SW_MSG_BUILD, mem));
    sw_play_put_result(socket, take_build_end(socket, SW_BUILD_COMMIT), 1, STAGED_BYTES);
    begin_read(socket, STAGED_BYTES);
    seq = take_parts(socket, SW_MSG_READ, mem);
    sw_play_put_error(socket, seq, "EBUSY", SW_SCOPE_REQUEST, "try later");
    sw_play_put_result(socket, seq + 1, 2, 1000);
    expect_read_end(socket);
    begin_read(socket, STAGED_BYTES);
    put_parts(socket, take_parts(socket, SW_MSG_READ, mem));
    expect_read_end(socket);
    expect_consume(socket, 1);
    sw_play_expect(socket, &status, SW_MSG_STATUS);
    sw_play_put(socket, &status, SW_MSG_STATUS_OK, status.header.seq);
    sw_play_expect_end(socket);
}

static struct spillway_ticket *spill_staged(void *heap) {
    struct spillway_ticket *ticket = NULL;
    ck_assert_int_eq(
        spillway_spill(sw_play.connection, SW_REQUEST(SW_ONE(heap, STAGED_BYTES)), 1, &ticket, &sw_play.error), 0);
    return ticket;
}

static struct spillway_ticket *restore_staged(struct spillway_region region, void *heap) {
    struct spillway_ticket *ticket = NULL;
    ck_assert_int_eq(spillway_restore(sw_play.connection, SW_REQUEST(SW_ONE(heap, STAGED_BYTES), .region = region), 1,
                                      &ticket, &sw_play.error),
                     0);
    return ticket;
}

START_TEST(buffers_of_a_region_succeed_or_fail_together) {
    struct spillway_result result = {.size = sizeof result};
    struct spillway_status status = {.size = sizeof status};
    void *heap = calloc(1, STAGED_BYTES);
    ck_assert_ptr_nonnull(heap);
    sw_play_open(serve_failures_half_way);
    sw_play_ck_error(spillway_wait(spill_staged(heap), -1, &result, 1, &sw_play.error), SPILLWAY_ENOSPACE,
                     SPILLWAY_SCOPE_REQUEST, "tier is full");
    ck_assert_int_eq(spillway_wait(spill_staged(heap), -1, &result, 1, &sw_play.error), 0);
    ck_assert_uint_eq(result.raw_bytes, STAGED_BYTES);
    ck_assert_uint_eq(result.stored_bytes, 5);
    sw_play_ck_error(spillway_wait(restore_staged(result.region, heap), -1, NULL, 0, &sw_play.error), SPILLWAY_EBUSY,
                     SPILLWAY_SCOPE_REQUEST, "try later");
    ck_assert_int_eq(spillway_wait(restore_staged(result.region, heap), -1, &result, 1, &sw_play.error), 0);
    ck_assert_uint_eq(result.raw_bytes, STAGED_BYTES);
    ck_assert_uint_eq(result.stored_bytes, 2 * 5); /* of both parts */
    ck_assert_uint_eq(result.service_us, 2 * 7);
    ck_assert_int_eq(spillway_status(sw_play.connection, &status, &sw_play.error),
                     0); /* takes in what else is answered */
    sw_play_close();
    free(heap);
}
END_TEST

static void serve_a_spill(int socket) {
    sw_play_greet(socket);
    put_parts(socket, take_parts(socket, SW_MSG_BUILD, sw_play_register(socket)));
    sw_play_put_result(socket, take_build_end(socket, SW_BUILD_COMMIT), 1, STAGED_BYTES);
    sw_play_expect_end(socket);
}

/* The library asks to be called again for each piece that it copies, and no more when there is none. */
START_TEST(an_event_loop_sleeps_when_all_is_copied) {
    void *heap = calloc(1, STAGED_BYTES);
    unsigned n_wakes = 0;
    ck_assert_ptr_nonnull(heap);
    sw_play_open(serve_a_spill);
    struct pollfd p = {.fd = spillway_fd(sw_play.connection), .events = POLLIN};
    (void)spill_staged(heap);
    for (; !spillway_next_done(sw_play.connection); n_wakes++) {
        ck_assert_int_eq(poll(&p, 1, SW_TEST_WAIT_MS), 1);
        ck_assert_int_ge(spillway_dispatch(sw_play.connection, &sw_play.error), 0);
    }
    ck_assert_uint_lt(n_wakes, 20);
    ck_assert_int_eq(poll(&p, 1, 0), 0);
    sw_play_close();
    free(heap);
}
END_TEST

/* The commit is on its way when the service refuses to begin the build, which it then does not know. */
static void refuse_the_build(int socket) {
    static const struct sw_wire_text texts[] = {{"ENOENT"}};
    static const struct sw_wire_result unknown = {.error = 1, .scope = SW_SCOPE_REQUEST};
    struct sw_msg reply = {.u.results = {.n_results = 1, .n_texts = 1, .results = &unknown, .texts = texts}};
    sw_play_greet(socket);
    const uint32_t mem = sw_play_register(socket), seq = take_parts(socket, SW_MSG_BUILD, mem),
                   end = take_build_end(socket, SW_BUILD_COMMIT);
    sw_play_put_error(socket, seq, "ENOSPACE", SW_SCOPE_REQUEST, "tier is full");
    sw_play_put_error(socket, seq + 1, "ENOENT", SW_SCOPE_REQUEST, "no such build");
    sw_play_put(socket, &reply, SW_MSG_RESULTS, end);
    sw_play_expect_end(socket);
}

START_TEST(a_result_has_the_cause_of_its_failure) {
    struct spillway_result result = {.size = sizeof result};
    struct spillway_ticket *ticket = NULL;
    void *heap = calloc(1, STAGED_BYTES);
    ck_assert_ptr_nonnull(heap);
    sw_play_open(refuse_the_build);
    ck_assert_int_eq(spillway_spill(sw_play.connection, SW_REQUEST(SW_ONE(heap, STAGED_BYTES), .flags = SPILLWAY_EACH),
                                    1, &ticket, &sw_play.error),
                     0);
    sw_play_ck_error(spillway_wait(ticket, -1, &result, 1, &sw_play.error), SPILLWAY_ENOSPACE, SPILLWAY_SCOPE_REQUEST,
                     "tier is full");
    ck_assert_int_eq(result.code, -SPILLWAY_ENOSPACE);
    ck_assert_uint_eq(result.region.generation, 0);
    sw_play_close();
    free(heap);
}
END_TEST

static unsigned longer; /* this buffer of the region is longer than the caller's; 2: there are three; 3: only one */

static void serve_longer_buffers(int socket) {
    const struct sw_wire_buffer buffers[] = {
        {.raw_bytes = longer == 0 ? 1001 : 1000, .chunk_bytes = (uint32_t)SW_PIECE_BYTES},
        {.raw_bytes = longer == 1 ? 2001 : 2000, .chunk_bytes = (uint32_t)SW_PIECE_BYTES},
        {.raw_bytes = 1, .chunk_bytes = (uint32_t)SW_PIECE_BYTES}};
    const struct sw_wire_result result = {.slot = 1, .gen = 9, .n_buffers = longer < 2 ? 2 : longer == 2 ? 3 : 1};
    struct sw_msg msg,
        reply = {.u.results = {.n_results = 1, .n_buffers = result.n_buffers, .results = &result, .buffers = buffers}};
    sw_play_greet(socket);
    (void)sw_play_register(socket);
    sw_play_expect(socket, &msg, SW_MSG_READ);
    sw_play_put(socket, &reply, SW_MSG_RESULTS, msg.header.seq);
    expect_read_end(socket);
    sw_play_expect_end(socket);
}

/* The caller's buffers are compared with the region's before anything is copied. Loop: which one differs. */
START_TEST(copied_buffers_have_to_fit) {
    static const struct {
        int code;
        const char *text;
    } ends[] = {{SPILLWAY_ETOOSMALL, "region has 1001 bytes, the buffer 1000"},
                {SPILLWAY_ETOOSMALL, "region has 2001 bytes, the buffer 2000"},
                {SPILLWAY_EINVAL, "has 3 buffers, 2 were given"},
                {SPILLWAY_EINVAL, "has 1 buffers, 2 were given"}};
    uint8_t *heap = calloc(1, 3000);
    ck_assert_ptr_nonnull(heap);
    const struct spillway_buffer both[] = {{.data = heap, .bytes = 1000}, {.data = heap + 1000, .bytes = 2000}};
    struct spillway_ticket *ticket = NULL;
    longer = (unsigned)_i;
    sw_play_open(serve_longer_buffers);
    ck_assert_int_eq(spillway_restore(sw_play.connection,
                                      SW_REQUEST(SW_SEVERAL(both, 2), .region = (struct spillway_region){1, 9}), 1,
                                      &ticket, &sw_play.error),
                     0);
    sw_play_ck_error(spillway_wait(ticket, -1, NULL, 0, &sw_play.error), ends[_i].code, SPILLWAY_SCOPE_REQUEST,
                     ends[_i].text);
    sw_play_close();
    free(heap);
}
END_TEST

static void serve_nothing(int socket) {
    sw_play_greet(socket);
    sw_play_expect_end(socket);
}

/* A region with an error has not been begun to read, so nothing is to be ended. */
static void refuse_a_read(int socket) {
    static const struct sw_wire_text texts[] = {{"EBUSY"}};
    static const struct sw_wire_result busy = {.error = 1, .scope = SW_SCOPE_REQUEST};
    struct sw_msg msg, reply = {.u.results = {.n_results = 1, .n_texts = 1, .results = &busy, .texts = texts}};
    sw_play_greet(socket);
    (void)sw_play_register(socket);
    sw_play_expect(socket, &msg, SW_MSG_READ);
    sw_play_put(socket, &reply, SW_MSG_RESULTS, msg.header.seq);
    sw_play_expect_end(socket);
}

/* Two buffers, of which the answer has one. */
static void tell_of_too_few_buffers(int socket) {
    static const struct sw_wire_buffer buffers[] = {{.raw_bytes = 1, .chunk_bytes = (uint32_t)SW_PIECE_BYTES}};
    static const struct sw_wire_result result = {.slot = 1, .gen = 9, .n_buffers = 2};
    struct sw_msg msg, reply = {.u.results = {.n_results = 1, .n_buffers = 1, .results = &result, .buffers = buffers}};
    sw_play_greet(socket);
    (void)sw_play_register(socket);
    sw_play_expect(socket, &msg, SW_MSG_READ);
    sw_play_put(socket, &reply, SW_MSG_RESULTS, msg.header.seq);
    sw_play_expect_end(socket);
}

START_TEST(a_copied_restore_that_does_not_begin) {
    void *heap = calloc(1, STAGED_BYTES);
    ck_assert_ptr_nonnull(heap);
    sw_play_open(_i ? tell_of_too_few_buffers : refuse_a_read);
    const int rc = spillway_wait(restore_staged((struct spillway_region){1, 9}, heap), -1, NULL, 0, &sw_play.error);
    ck_assert_int_eq(rc, _i ? -SPILLWAY_EPROTO : -SPILLWAY_EBUSY);
    sw_play_close();
    free(heap);
}
END_TEST

static void leave_before_the_arena(int socket) {
    uint32_t mem;
    sw_play_greet(socket);
    (void)sw_play_take_registration(socket, &mem);
}

/* Also of those that were never sent. */
START_TEST(a_lost_connection_fails_each_copied_request) {
    uint8_t *heap = calloc(2, 100);
    ck_assert_ptr_nonnull(heap);
    const struct spillway_buffer buffers[] = {{.data = heap, .bytes = 100}, {.data = heap + 100, .bytes = 100}};
    struct spillway_request requests[2] = {{0}};
    struct spillway_result results[2] = {{.size = sizeof results[0]}};
    struct spillway_ticket *ticket = NULL;
    sw_requests_of_each(requests, buffers, 2);
    requests[0].flags = requests[1].flags = SPILLWAY_EACH;
    sw_play_open(leave_before_the_arena);
    ck_assert_int_eq(spillway_spill(sw_play.connection, requests, 2, &ticket, &sw_play.error), 0);
    ck_assert_int_eq(spillway_wait(ticket, -1, results, 2, &sw_play.error), -SPILLWAY_ECONN);
    for (unsigned i = 0; i < 2; i++)
        ck_assert_int_eq(results[i].code, -SPILLWAY_ECONN);
    sw_play_close();
    free(heap);
}
END_TEST

static void fail_the_first_of_two(int socket) {
    static const struct sw_wire_buffer buffers[] = {{.raw_bytes = 100, .chunk_bytes = (uint32_t)SW_PIECE_BYTES},
                                                    {.raw_bytes = 100, .chunk_bytes = (uint32_t)SW_PIECE_BYTES}};
    static const struct sw_wire_result begun[] = {{.slot = 1, .gen = 9, .n_buffers = 1},
                                                  {.slot = 2, .gen = 9, .n_buffers = 1}};
    struct sw_msg msg, other,
        reply = {.u.results = {.n_results = 2, .n_buffers = 2, .results = begun, .buffers = buffers}};
    sw_play_greet(socket);
    (void)sw_play_register(socket);
    sw_play_expect(socket, &msg, SW_MSG_READ);
    sw_play_put(socket, &reply, SW_MSG_RESULTS, msg.header.seq);
    sw_play_expect(socket, &msg, SW_MSG_READ);
    sw_play_expect(socket, &other, SW_MSG_READ);
    sw_play_put_result(socket, other.header.seq, 2, 100);
    sw_play_put_error(socket, msg.header.seq, "EBUSY", SW_SCOPE_REQUEST, "try later");
    sw_play_expect(socket, &msg, SW_MSG_READ);
    SW_ASSERT(msg.u.read.n_reads == 2 && msg.u.read.reads[1].flags == (SW_READ_END | SW_READ_KEEP));
    sw_play_put_discarded(socket, msg.header.seq, 2);
    sw_play_expect_end(socket);
}

/* Not even the one that is back, because the call is all or nothing. */
START_TEST(a_copied_restore_that_fails_drops_no_region) {
    uint8_t *heap = calloc(2, 100);
    ck_assert_ptr_nonnull(heap);
    const struct spillway_buffer buffers[] = {{.data = heap, .bytes = 100}, {.data = heap + 100, .bytes = 100}};
    struct spillway_request requests[2] = {{.region = {1, 9}}, {.region = {2, 9}}};
    struct spillway_ticket *ticket = NULL;
    sw_requests_of_each(requests, buffers, 2);
    sw_play_open(fail_the_first_of_two);
    ck_assert_int_eq(spillway_restore(sw_play.connection, requests, 2, &ticket, &sw_play.error), 0);
    sw_play_ck_error(spillway_wait(ticket, SW_TEST_WAIT_MS, NULL, 0, &sw_play.error), SPILLWAY_EBUSY,
                     SPILLWAY_SCOPE_REQUEST, "request 1 of 2: try later");
    sw_play_close();
    free(heap);
}
END_TEST

static void fail_the_first_part(int socket) {
    sw_play_greet(socket);
    const uint32_t mem = sw_play_register(socket);
    begin_read(socket, STAGED_BYTES);
    const uint32_t seq = take_parts(socket, SW_MSG_READ, mem);
    sw_play_put_error(socket, seq, "EBUSY", SW_SCOPE_REQUEST, "try later");
    sw_play_put_result(socket, seq + 1, 2, 1000);
    expect_read_end(socket);
    sw_play_expect_end(socket);
}

/* What the service did not write is not copied to the caller, also if the call goes on with other requests. */
START_TEST(a_part_that_failed_is_not_copied) {
    struct spillway_result result = {.size = sizeof result};
    struct spillway_ticket *ticket = NULL;
    uint8_t *heap = malloc(STAGED_BYTES);
    ck_assert_ptr_nonnull(heap);
    memset(heap, 0xA5, STAGED_BYTES);
    sw_play_open(fail_the_first_part);
    ck_assert_int_eq(spillway_restore(sw_play.connection,
                                      SW_REQUEST(SW_ONE(heap, STAGED_BYTES), .flags = SPILLWAY_EACH,
                                                 .region = (struct spillway_region){1, 9}),
                                      1, &ticket, &sw_play.error),
                     0);
    ck_assert_int_eq(spillway_wait(ticket, -1, &result, 1, &sw_play.error), -SPILLWAY_EBUSY);
    ck_assert_int_eq(result.code, -SPILLWAY_EBUSY);
    for (size_t i = 0; i < SW_PIECE_BYTES; i += 1000)
        ck_assert_uint_eq(heap[i], 0xA5);
    sw_play_close();
    free(heap);
}
END_TEST

/* Memory that a restore cannot write to, or a spill not read, is refused before the service learns of it. Loop: rights
 * of the second of two pages. */
START_TEST(copied_memory_has_the_rights_it_needs) {
    static const int rights[] = {PROT_READ, PROT_NONE, PROT_WRITE};
    const size_t page_bytes = (size_t)sysconf(_SC_PAGESIZE);
    uint8_t *pages = mmap(NULL, 2 * page_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    ck_assert_ptr_ne(pages, MAP_FAILED);
    ck_assert_int_eq(mprotect(pages + page_bytes, page_bytes, rights[_i]), 0);
    const struct spillway_region region = {1, 9};
    struct spillway_ticket *ticket = NULL;
    sw_play_open(serve_nothing);
    struct spillway *c = sw_play.connection;
    if (rights[_i] != PROT_READ) {
        ck_assert_int_eq(spillway_spill(c, SW_REQUEST(SW_ONE(pages + page_bytes, 100)), 1, &ticket, &sw_play.error),
                         -SPILLWAY_EMEMKIND);
        ck_assert_int_eq(
            spillway_spill(c, SW_REQUEST(SW_ONE(pages + page_bytes - 50, 100)), 1, &ticket, &sw_play.error),
            -SPILLWAY_ERANGE);
    }
    ck_assert_int_eq(
        spillway_restore(c, SW_REQUEST(SW_ONE(pages + page_bytes, 100), .region = region), 1, &ticket, &sw_play.error),
        -SPILLWAY_EMEMKIND);
    ck_assert_int_eq(spillway_restore(c, SW_REQUEST(SW_ONE(pages + page_bytes - 50, 100), .region = region), 1, &ticket,
                                      &sw_play.error),
                     -SPILLWAY_ERANGE);
    sw_play_close();
    (void)munmap(pages, 2 * page_bytes);
}
END_TEST

static void serve_a_restore(int socket) {
    sw_play_greet(socket);
    const uint32_t mem = sw_play_register(socket);
    begin_read(socket, STAGED_BYTES);
    put_parts(socket, take_parts(socket, SW_MSG_READ, mem));
    expect_read_end(socket);
    expect_consume(socket, 1);
    sw_play_expect_end(socket);
}

/* A chunk of a region from a service with longer chunks takes two places; its last piece is shorter. */
enum { LONG_CHUNK_BYTES = 2 * (int)SW_PIECE_BYTES, N_LONG = SW_ARENA_PIECES };
enum { LONG_BYTES = LONG_CHUNK_BYTES - 1000, BEHIND_BYTES = 2000 };

static void serve_long_chunks(int socket) {
    sw_play_greet(socket);
    const uint32_t mem = sw_play_register(socket);
    for (unsigned i = 0; i < N_LONG; i++) {
        struct sw_msg msg;
        begin_read_by(socket, LONG_BYTES, LONG_CHUNK_BYTES);
        sw_play_expect(socket, &msg, SW_MSG_READ);
        SW_ASSERT(msg.u.read.n_chunks == 1 && msg.u.read.chunks[0].mem == mem);
        SW_ASSERT(msg.u.read.chunks[0].offset % LONG_CHUNK_BYTES == 0 && msg.u.read.chunks[0].raw_bytes == LONG_BYTES);
        sw_play_put_result(socket, msg.header.seq, 1, LONG_BYTES);
        expect_read_end(socket);
        expect_consume(socket, 1);
    }
    sw_play_expect_end(socket);
}

/* All places of a chunk are free when it has been copied, and no byte behind it has changed. */
START_TEST(places_of_long_chunks_are_given_back) {
    static uint8_t behind[BEHIND_BYTES];
    uint8_t *heap = malloc(LONG_BYTES + BEHIND_BYTES);
    ck_assert_ptr_nonnull(heap);
    memset(behind, 0xA5, BEHIND_BYTES);
    memcpy(heap + LONG_BYTES, behind, BEHIND_BYTES);
    sw_play_open(serve_long_chunks);
    for (unsigned i = 0; i < N_LONG; i++) {
        struct spillway_ticket *ticket = NULL;
        ck_assert_int_eq(
            spillway_restore(sw_play.connection,
                             SW_REQUEST(SW_ONE(heap, LONG_BYTES), .region = (struct spillway_region){1, 9}), 1, &ticket,
                             &sw_play.error),
            0);
        ck_assert_int_eq(spillway_wait(ticket, SW_TEST_WAIT_MS, NULL, 0, &sw_play.error), 0);
    }
    ck_assert_mem_eq(heap + LONG_BYTES, behind, BEHIND_BYTES);
    sw_play_close();
    free(heap);
}
END_TEST

/* The next packet, which has the service write one chunk there in the arena; returns its seq. */
static uint32_t take_read(int socket, uint64_t at, uint64_t bytes, uint64_t offset) {
    struct sw_msg msg;
    sw_play_expect(socket, &msg, SW_MSG_READ);
    SW_ASSERT(msg.u.read.n_chunks == 1 && msg.u.read.chunks[0].at == at && msg.u.read.chunks[0].raw_bytes == bytes);
    SW_ASSERT(msg.u.read.chunks[0].offset == offset);
    return msg.header.seq;
}

static void serve_odd_chunks(int socket) {
    sw_play_greet(socket);
    (void)sw_play_register(socket);
    begin_read_by(socket, STAGED_BYTES, (uint32_t)SW_PIECE_BYTES - 1000);
    const uint32_t first = take_read(socket, 0, SW_PIECE_BYTES - 1000, 0),
                   second = take_read(socket, SW_PIECE_BYTES - 1000, 2000, SW_PIECE_BYTES);
    sw_play_put_result(socket, second, 1, 2000);
    sw_play_put_result(socket, first, 1, SW_PIECE_BYTES - 1000);
    expect_read_end(socket);
    expect_consume(socket, 1);
    sw_play_expect_end(socket);
}

/* The service decodes a chunk as a whole. */
START_TEST(only_whole_chunks_are_restored) {
    void *heap = calloc(1, STAGED_BYTES);
    ck_assert_ptr_nonnull(heap);
    sw_play_open(serve_odd_chunks);
    ck_assert_int_eq(
        spillway_wait(restore_staged((struct spillway_region){1, 9}, heap), SW_TEST_WAIT_MS, NULL, 0, &sw_play.error),
        0);
    sw_play_close();
    free(heap);
}
END_TEST

static atomic_bool has_come; /* what the daemon waited for */

static void dispatch_until_it_has_come(void) {
    struct pollfd p = {.fd = spillway_fd(sw_play.connection), .events = POLLIN};
    while (!atomic_load(&has_come)) {
        (void)poll(&p, 1, 1);
        ck_assert_int_ge(spillway_dispatch(sw_play.connection, &sw_play.error), 0);
    }
}

static struct spillway_ticket *restore_long(void *heap) {
    struct spillway_ticket *ticket = NULL;
    ck_assert_int_eq(spillway_restore(sw_play.connection,
                                      SW_REQUEST(SW_ONE(heap, LONG_BYTES), .region = (struct spillway_region){1, 9}), 1,
                                      &ticket, &sw_play.error),
                     0);
    return ticket;
}

static void free_the_first_place(int socket) {
    sw_play_greet(socket);
    const uint32_t mem = sw_play_register(socket), seq = take_parts(socket, SW_MSG_BUILD, mem),
                   end = take_build_end(socket, SW_BUILD_COMMIT);
    sw_play_put_result(socket, seq, 1, SW_PIECE_BYTES);
    atomic_store(&has_come, true);
    begin_read_by(socket, LONG_BYTES, LONG_CHUNK_BYTES);
    sw_play_put_result(socket, take_read(socket, 0, LONG_BYTES, 2 * SW_PIECE_BYTES), 1, LONG_BYTES);
    expect_read_end(socket);
    expect_consume(socket, 1);
    sw_play_put_result(socket, seq + 1, 2, 1000);
    sw_play_put_result(socket, end, 2, STAGED_BYTES);
    sw_play_expect_end(socket);
}

/* The first of the arena's four places is free, the second is not. */
START_TEST(places_of_a_long_chunk_lie_side_by_side) {
    void *heap = calloc(2, LONG_BYTES);
    ck_assert_ptr_nonnull(heap);
    sw_play_open(free_the_first_place);
    struct spillway_ticket *spill = spill_staged(heap);
    dispatch_until_it_has_come();
    ck_assert_int_eq(
        spillway_wait(restore_long((uint8_t *)heap + LONG_BYTES), SW_TEST_WAIT_MS, NULL, 0, &sw_play.error), 0);
    ck_assert_int_eq(spillway_wait(spill, SW_TEST_WAIT_MS, NULL, 0, &sw_play.error), 0);
    sw_play_close();
    free(heap);
}
END_TEST

enum { SMALL_BYTES = 500 };

static uint32_t take_small(int socket, uint64_t place) {
    struct sw_msg msg;
    sw_play_expect(socket, &msg, SW_MSG_BUILD);
    SW_ASSERT(msg.u.build.n_chunks == 1 && msg.u.build.chunks[0].raw_bytes == SMALL_BYTES);
    SW_ASSERT(msg.u.build.chunks[0].offset == place * SW_PIECE_BYTES);
    return msg.header.seq;
}

static void put_small(int socket, uint32_t seq) {
    sw_play_put_result(socket, seq, 1, SMALL_BYTES);
    sw_play_put_result(socket, seq + 1, 1, SMALL_BYTES);
}

static void leave_one_place(int socket) {
    struct sw_msg status;
    sw_play_greet(socket);
    const uint32_t mem = sw_play_register(socket), seq = take_parts(socket, SW_MSG_BUILD, mem),
                   end = take_build_end(socket, SW_BUILD_COMMIT), small = take_small(socket, 2);
    SW_ASSERT(take_build_end(socket, SW_BUILD_COMMIT) == small + 1);
    atomic_store(&has_come, true);
    begin_read_by(socket, LONG_BYTES, LONG_CHUNK_BYTES);
    for (unsigned i = 0; i < 2; i++) { /* nothing goes before the second one */
        sw_play_expect(socket, &status, SW_MSG_STATUS);
        sw_play_put(socket, &status, SW_MSG_STATUS_OK, status.header.seq);
    }
    put_parts(socket, seq);
    sw_play_put_result(socket, end, 2, STAGED_BYTES);
    const uint32_t read = take_read(socket, 0, LONG_BYTES, 0), last = take_small(socket, 3);
    SW_ASSERT(take_build_end(socket, SW_BUILD_COMMIT) == last + 1);
    sw_play_put_result(socket, read, 1, LONG_BYTES);
    expect_read_end(socket);
    expect_consume(socket, 1);
    put_small(socket, small);
    put_small(socket, last);
    sw_play_expect_end(socket);
}

static struct spillway_ticket *spill_small(void *heap) {
    struct spillway_ticket *ticket = NULL;
    ck_assert_int_eq(
        spillway_spill(sw_play.connection, SW_REQUEST(SW_ONE(heap, SMALL_BYTES)), 1, &ticket, &sw_play.error), 0);
    return ticket;
}

/* The one place that is free is not taken from a call that waits for two. */
START_TEST(no_copied_call_overtakes_one_that_waits_for_places) {
    struct spillway_status status = {.size = sizeof status};
    void *heap = calloc(1, LONG_BYTES);
    ck_assert_ptr_nonnull(heap);
    sw_play_open(leave_one_place);
    (void)spill_staged(heap);
    (void)spill_small(heap);
    dispatch_until_it_has_come();
    struct spillway_ticket *waiting = restore_long(heap);
    ck_assert_int_eq(spillway_status(sw_play.connection, &status, &sw_play.error), 0);
    struct spillway_ticket *last = spill_small(heap);
    for (unsigned i = 0; i < 3; i++)
        ck_assert_int_ge(spillway_dispatch(sw_play.connection, &sw_play.error), 0);
    ck_assert_int_eq(spillway_status(sw_play.connection, &status, &sw_play.error), 0);
    ck_assert_int_eq(spillway_wait(waiting, SW_TEST_WAIT_MS, NULL, 0, &sw_play.error), 0);
    ck_assert_int_eq(spillway_wait(last, SW_TEST_WAIT_MS, NULL, 0, &sw_play.error), 0);
    sw_play_close();
    free(heap);
}
END_TEST

static void answer_the_second_first(int socket) {
    sw_play_greet(socket);
    (void)sw_play_register(socket);
    for (unsigned i = 0; i < 2; i++)
        begin_read(socket, 1000);
    const uint32_t first = take_read(socket, 0, 1000, 0), second = take_read(socket, 0, 1000, SW_PIECE_BYTES);
    sw_play_put_result(socket, second, 1, 1000);
    expect_read_end(socket);
    expect_consume(socket, 1);
    sw_play_put_result(socket, first, 1, 1000);
    expect_read_end(socket);
    expect_consume(socket, 1);
    sw_play_expect_end(socket);
}

/* Each copies what is its own out of the arena. */
START_TEST(restores_share_the_arena) {
    void *heap = calloc(2, STAGED_BYTES);
    ck_assert_ptr_nonnull(heap);
    sw_play_open(answer_the_second_first);
    struct spillway_ticket *first = restore_staged((struct spillway_region){1, 9}, heap),
                           *second = restore_staged((struct spillway_region){1, 9}, (uint8_t *)heap + STAGED_BYTES);
    ck_assert_int_eq(spillway_wait(second, SW_TEST_WAIT_MS, NULL, 0, &sw_play.error), 0);
    ck_assert_int_eq(spillway_wait(first, SW_TEST_WAIT_MS, NULL, 0, &sw_play.error), 0);
    sw_play_close();
    free(heap);
}
END_TEST

enum { LONGER_CHUNK_BYTES = 3 * (int)SW_PIECE_BYTES, LONGER_BYTES = LONGER_CHUNK_BYTES - 1000 };

static void answer_nothing_behind_the_parts(int socket) {
    const struct sw_wire_buffer buffer = {.raw_bytes = LONGER_BYTES, .chunk_bytes = LONGER_CHUNK_BYTES};
    const struct sw_wire_result result = {.slot = 1, .gen = 9, .n_buffers = 1};
    struct sw_msg first, end, consume,
        reply = {.u.results = {.n_results = 1, .n_buffers = 1, .results = &result, .buffers = &buffer}};
    sw_play_greet(socket);
    const uint32_t mem = sw_play_register(socket);
    sw_play_expect(socket, &first, SW_MSG_READ);
    begin_read(socket, STAGED_BYTES);
    const uint32_t parts = take_parts(socket, SW_MSG_READ, mem);
    sw_play_put(socket, &reply, SW_MSG_RESULTS, first.header.seq);
    put_parts(socket, parts);
    sw_play_expect(socket, &end, SW_MSG_READ);
    sw_play_expect(socket, &consume, SW_MSG_DISCARD);
    sw_play_put_result(socket, take_read(socket, 0, LONGER_BYTES, 0), 1, LONGER_BYTES);
    sw_play_put_discarded(socket, end.header.seq, 1);
    sw_play_put_discarded(socket, consume.header.seq, 1);
    expect_read_end(socket);
    expect_consume(socket, 1);
    sw_play_expect_end(socket);
}

/* A later call that makes room wakes the one that waits for it: no packet does. */
START_TEST(a_call_that_waits_for_places_sees_them_become_free) {
    uint8_t *heap = calloc(1, LONGER_BYTES + STAGED_BYTES);
    struct spillway_ticket *ticket = NULL;
    ck_assert_ptr_nonnull(heap);
    sw_play_open(answer_nothing_behind_the_parts);
    ck_assert_int_eq(spillway_restore(sw_play.connection,
                                      SW_REQUEST(SW_ONE(heap, LONGER_BYTES), .region = (struct spillway_region){1, 9}),
                                      1, &ticket, &sw_play.error),
                     0);
    (void)restore_staged((struct spillway_region){1, 9}, heap + LONGER_BYTES);
    ck_assert_int_eq(spillway_wait(ticket, SW_TEST_WAIT_MS, NULL, 0, &sw_play.error), 0);
    sw_play_close();
    free(heap);
}
END_TEST

static void fail_between_parts(int socket) {
    sw_play_greet(socket);
    const uint32_t mem = sw_play_register(socket);
    sw_play_put_error(socket, take_part(socket, SW_MSG_BUILD, mem, 0, SW_PIECE_BYTES), "ENOSPACE", SW_SCOPE_REQUEST,
                      "tier is full");
    atomic_store(&has_come, true);
    const uint32_t seq = take_parts(socket, SW_MSG_BUILD, mem), end = take_build_end(socket, SW_BUILD_COMMIT);
    put_parts(socket, seq);
    sw_play_put_result(socket, end, 2, STAGED_BYTES);
    sw_play_put_discarded(socket, take_build_end(socket, SW_BUILD_ABORT), 1);
    sw_play_expect_end(socket);
}

/* Half of the first was sent; the second goes from its beginning. */
START_TEST(a_request_that_fails_half_way_does_not_touch_the_next) {
    uint8_t *heap = calloc(2, STAGED_BYTES);
    ck_assert_ptr_nonnull(heap);
    const struct spillway_buffer buffers[] = {{.data = heap, .bytes = STAGED_BYTES},
                                              {.data = heap + STAGED_BYTES, .bytes = STAGED_BYTES}};
    struct spillway_request requests[2] = {{0}};
    struct spillway_result results[2] = {{.size = sizeof results[0]}};
    struct spillway_ticket *ticket = NULL;
    sw_requests_of_each(requests, buffers, 2);
    requests[0].flags = requests[1].flags = SPILLWAY_EACH;
    sw_play_open(fail_between_parts);
    ck_assert_int_eq(spillway_prepare(sw_play.connection, heap, &sw_play.error), 0);
    ck_assert_int_eq(spillway_spill(sw_play.connection, requests, 2, &ticket, &sw_play.error), 0);
    ck_assert_int_ge(spillway_dispatch(sw_play.connection, &sw_play.error), 0); /* copies one part */
    while (!atomic_load(&has_come))
        (void)usleep(100);
    sw_play_ck_error(spillway_wait(ticket, SW_TEST_WAIT_MS, results, 2, &sw_play.error), SPILLWAY_ENOSPACE,
                     SPILLWAY_SCOPE_REQUEST, "request 1 of 2: tier is full");
    ck_assert_int_eq(results[0].code, -SPILLWAY_ENOSPACE);
    ck_assert(results[1].code == 0 && results[1].region.slot == 2);
    sw_play_close();
    free(heap);
}
END_TEST

/* The linker puts these in the place of the system's. The next call ends with that. */
static int next_errno;
int __real_fallocate(int fd, int mode, off_t at, off_t bytes);
int __wrap_fallocate(int fd, int mode, off_t at, off_t bytes);
ssize_t __real_pwrite(int fd, const void *data, size_t bytes, off_t at);
ssize_t __wrap_pwrite(int fd, const void *data, size_t bytes, off_t at);

static bool is_to_fail(void) {
    errno = next_errno;
    next_errno = 0;
    return errno;
}

int __wrap_fallocate(int fd, int mode, off_t at, off_t bytes) {
    return is_to_fail() ? -1 : __real_fallocate(fd, mode, at, bytes);
}

ssize_t __wrap_pwrite(int fd, const void *data, size_t bytes, off_t at) {
    return is_to_fail() ? -1 : __real_pwrite(fd, data, bytes, at);
}

/* A signal that comes while the library allocates, or copies, costs nothing. */
START_TEST(a_signal_does_not_end_a_copied_call) {
    void *heap = calloc(1, STAGED_BYTES);
    ck_assert_ptr_nonnull(heap);
    sw_play_open(_i ? serve_a_spill : serve_a_restore);
    next_errno = EINTR;
    struct spillway_ticket *ticket = _i ? spill_staged(heap) : restore_staged((struct spillway_region){1, 9}, heap);
    ck_assert_int_eq(spillway_wait(ticket, -1, NULL, 0, &sw_play.error), 0);
    ck_assert_int_eq(next_errno, 0);
    sw_play_close();
    free(heap);
}
END_TEST

static void serve_no_part(int socket) {
    sw_play_greet(socket);
    (void)sw_play_register(socket);
    begin_read(socket, STAGED_BYTES);
    expect_read_end(socket);
    sw_play_expect_end(socket);
}

START_TEST(an_arena_without_memory_fails_a_restore) {
    static const struct {
        int cause, code;
    } ends[] = {{ENOSPC, SPILLWAY_ENOMEM}, {ENOMEM, SPILLWAY_ENOMEM}, {EIO, SPILLWAY_EIO}};
    void *heap = calloc(1, STAGED_BYTES);
    ck_assert_ptr_nonnull(heap);
    sw_play_open(serve_no_part);
    next_errno = ends[_i].cause;
    sw_play_ck_error(spillway_wait(restore_staged((struct spillway_region){1, 9}, heap), -1, NULL, 0, &sw_play.error),
                     ends[_i].code, SPILLWAY_SCOPE_REQUEST, strerror(ends[_i].cause));
    sw_play_close();
    free(heap);
}
END_TEST

static bool is_too_long;

static void serve_the_longest_chunk(int socket) {
    sw_play_greet(socket);
    const uint32_t mem = sw_play_register(socket);
    begin_read_by(socket, 1000, (uint32_t)(SW_PIECE_BYTES * (is_too_long ? SW_ARENA_PIECES + 1 : SW_ARENA_PIECES)));
    if (!is_too_long)
        sw_play_put_result(socket, take_part(socket, SW_MSG_READ, mem, 0, 1000), 1, 1000);
    expect_read_end(socket);
    if (!is_too_long)
        expect_consume(socket, 1);
    sw_play_expect_end(socket);
}

/* A chunk of a region may be as long as the whole arena. */
START_TEST(chunks_have_to_fit_into_the_arena) {
    void *heap = calloc(1, STAGED_BYTES);
    ck_assert_ptr_nonnull(heap);
    is_too_long = _i;
    sw_play_open(serve_the_longest_chunk);
    const int rc =
        spillway_wait(restore_staged((struct spillway_region){1, 9}, heap), SW_TEST_WAIT_MS, NULL, 0, &sw_play.error);
    ck_assert_int_eq(rc, is_too_long ? -SPILLWAY_ENOTSUP : 0);
    sw_play_close();
    free(heap);
}
END_TEST

/* Returns the allocated bytes of the library's arena, the process's only memfd of this name. */
static uint64_t arena_allocated_bytes(void) {
    char path[32], name[64];
    struct stat st = {0};
    for (int fd = 0; fd < 100; fd++) {
        (void)snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
        const ssize_t n = readlink(path, name, sizeof name - 1);
        name[n < 0 ? 0 : n] = 0;
        if (!strstr(name, "spillway-staging"))
            continue;
        ck_assert_int_eq(stat(path, &st), 0);
        ck_assert_int_eq(fcntl(fd, F_GET_SEALS), F_SEAL_SHRINK); /* or the service would not map it */
    }
    return (uint64_t)st.st_blocks * 512;
}

/* The process that allocates a page pays for it. That is the client, before the daemon writes. No more pages are
 * allocated than are restored. */
START_TEST(restored_memory_has_pages_of_the_client) {
    void *heap = malloc(STAGED_BYTES);
    ck_assert_ptr_nonnull(heap);
    sw_play_open(serve_a_restore);
    struct spillway_ticket *ticket = restore_staged((struct spillway_region){1, 9}, heap);
    ck_assert_int_eq(spillway_wait(ticket, -1, NULL, 0, &sw_play.error), 0);
    ck_assert_uint_ge(arena_allocated_bytes(), STAGED_BYTES);
    ck_assert_uint_le(arena_allocated_bytes(), STAGED_BYTES + (2 << 20));
    sw_play_close();
    free(heap);
}
END_TEST

static void refuse_the_arena(int socket) {
    sw_play_greet(socket);
    sw_play_refuse_registration(socket);
    const uint32_t mem = sw_play_register(socket); /* tried anew */
    put_parts(socket, take_parts(socket, SW_MSG_BUILD, mem));
    sw_play_put_result(socket, take_build_end(socket, SW_BUILD_COMMIT), 1, STAGED_BYTES);
    begin_read(socket, STAGED_BYTES);
    const uint32_t lie = take_parts(socket, SW_MSG_READ, mem);
    sw_play_put_result(socket, lie, 1, SW_PIECE_BYTES);
    sw_play_put_result(socket, lie + 1, 2, 999);
    sw_play_expect_end(socket);
}

START_TEST(an_arena_may_be_refused) {
    struct spillway_result result = {.size = sizeof result};
    void *heap = calloc(1, STAGED_BYTES);
    ck_assert_ptr_nonnull(heap);
    sw_play_open(refuse_the_arena);
    sw_play_ck_error(spillway_wait(spill_staged(heap), -1, NULL, 0, &sw_play.error), SPILLWAY_EIMPORT,
                     SPILLWAY_SCOPE_REQUEST, "cannot be opened");
    ck_assert_int_eq(spillway_wait(spill_staged(heap), -1, &result, 1, &sw_play.error), 0);
    sw_play_ck_error(spillway_wait(restore_staged(result.region, heap), -1, NULL, 0, &sw_play.error), SPILLWAY_EPROTO,
                     SPILLWAY_SCOPE_SESSION, "");
    sw_play_close();
    free(heap);
}
END_TEST

static void refuse_a_preparation(int socket) {
    uint32_t refused;
    sw_play_greet(socket);
    const uint32_t seq = sw_play_take_registration(socket, &refused);
    sw_play_put_ok(socket, seq);
    sw_play_put_error(socket, seq + 1, "EIMPORT", SW_SCOPE_REQUEST, "cannot be opened");
    const uint32_t mem = sw_play_register(socket);
    put_parts(socket, take_parts(socket, SW_MSG_BUILD, mem));
    sw_play_put_result(socket, take_build_end(socket, SW_BUILD_COMMIT), 1, STAGED_BYTES);
    sw_play_expect_mem_close(socket, refused);
    sw_play_expect_end(socket);
}

/* The caller learns of it; and the service may forget the memory when the next call has ended. */
START_TEST(an_arena_that_is_prepared_may_be_refused) {
    struct spillway_result result = {.size = sizeof result};
    void *heap = calloc(1, STAGED_BYTES);
    ck_assert_ptr_nonnull(heap);
    sw_play_open(refuse_a_preparation);
    sw_play_ck_error(spillway_prepare(sw_play.connection, heap, &sw_play.error), SPILLWAY_EIMPORT,
                     SPILLWAY_SCOPE_REQUEST, "cannot be opened");
    ck_assert_int_eq(spillway_wait(spill_staged(heap), SW_TEST_WAIT_MS, &result, 1, &sw_play.error), 0);
    sw_play_close();
    free(heap);
}
END_TEST

static void refuse_the_arena_of_two(int socket) {
    uint32_t mem;
    sw_play_greet(socket);
    const uint32_t seq = sw_play_take_registration(socket, &mem);
    (void)sem_wait(&sw_play.go);
    sw_play_put_ok(socket, seq);
    sw_play_put_error(socket, seq + 1, "EIMPORT", SW_SCOPE_REQUEST, "cannot be opened");
    sw_play_expect_mem_close(socket, mem);
    sw_play_expect_end(socket);
}

/* It goes with the last of the calls that wait for it. */
START_TEST(a_refused_arena_fails_all_its_calls) {
    void *heap = calloc(1, STAGED_BYTES);
    ck_assert_ptr_nonnull(heap);
    sw_play_open(refuse_the_arena_of_two);
    struct spillway_ticket *tickets[] = {spill_staged(heap), spill_staged(heap)};
    ck_assert_int_eq(sem_post(&sw_play.go), 0);
    for (unsigned i = 0; i < 2; i++)
        sw_play_ck_error(spillway_wait(tickets[i], SW_TEST_WAIT_MS, NULL, 0, &sw_play.error), SPILLWAY_EIMPORT,
                         SPILLWAY_SCOPE_REQUEST, "cannot be opened");
    sw_play_close();
    free(heap);
}
END_TEST

static void keep_the_arena_waiting(int socket) {
    uint32_t mem;
    sw_play_greet(socket);
    const uint32_t seq = sw_play_take_registration(socket, &mem);
    (void)sem_wait(&sw_play.go);
    sw_play_put_ok(socket, seq);
    sw_play_put_ok(socket, seq + 1);
    sw_play_expect_end(socket);
}

/* No packet would wake the loop: the service has not opened the arena. */
START_TEST(the_end_of_its_time_wakes_the_loop_of_a_copied_call) {
    struct spillway_ticket *ticket = NULL;
    void *heap = calloc(1, STAGED_BYTES);
    ck_assert_ptr_nonnull(heap);
    sw_play_open(keep_the_arena_waiting);
    struct pollfd p = {.fd = spillway_fd(sw_play.connection), .events = POLLIN};
    ck_assert_int_eq(spillway_spill(sw_play.connection, SW_REQUEST(SW_ONE(heap, STAGED_BYTES), .timeout_ms = 10), 1,
                                    &ticket, &sw_play.error),
                     0);
    while (!spillway_next_done(sw_play.connection)) {
        ck_assert_int_eq(poll(&p, 1, SW_TEST_WAIT_MS), 1);
        ck_assert_int_ge(spillway_dispatch(sw_play.connection, &sw_play.error), 0);
    }
    ck_assert_int_eq(spillway_wait(ticket, 0, NULL, 0, &sw_play.error), -SPILLWAY_ETIMEDOUT);
    ck_assert_int_eq(sem_post(&sw_play.go), 0);
    sw_play_close();
    free(heap);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("ipc_client_arena");
    TCase *tcase = tcase_create("arena");
    tcase_add_test(tcase, buffers_of_a_region_succeed_or_fail_together);
    tcase_add_test(tcase, a_result_has_the_cause_of_its_failure);
    tcase_add_test(tcase, an_event_loop_sleeps_when_all_is_copied);
    tcase_add_test(tcase, restored_memory_has_pages_of_the_client);
    tcase_add_test(tcase, places_of_long_chunks_are_given_back);
    tcase_add_loop_test(tcase, chunks_have_to_fit_into_the_arena, 0, 2);
    tcase_add_loop_test(tcase, copied_buffers_have_to_fit, 0, 4);
    tcase_add_loop_test(tcase, a_copied_restore_that_does_not_begin, 0, 2);
    tcase_add_test(tcase, a_lost_connection_fails_each_copied_request);
    tcase_add_test(tcase, a_copied_restore_that_fails_drops_no_region);
    tcase_add_test(tcase, a_part_that_failed_is_not_copied);
    tcase_add_loop_test(tcase, copied_memory_has_the_rights_it_needs, 0, 3);
    tcase_add_test(tcase, an_arena_may_be_refused);
    tcase_add_test(tcase, an_arena_that_is_prepared_may_be_refused);
    tcase_add_test(tcase, a_refused_arena_fails_all_its_calls);
    tcase_add_test(tcase, only_whole_chunks_are_restored);
    tcase_add_test(tcase, places_of_a_long_chunk_lie_side_by_side);
    tcase_add_test(tcase, no_copied_call_overtakes_one_that_waits_for_places);
    tcase_add_test(tcase, restores_share_the_arena);
    tcase_add_test(tcase, a_call_that_waits_for_places_sees_them_become_free);
    tcase_add_test(tcase, a_request_that_fails_half_way_does_not_touch_the_next);
    tcase_add_loop_test(tcase, a_signal_does_not_end_a_copied_call, 0, 2);
    tcase_add_loop_test(tcase, an_arena_without_memory_fails_a_restore, 0, 3);
    tcase_add_test(tcase, the_end_of_its_time_wakes_the_loop_of_a_copied_call);
    suite_add_tcase(suite, tcase);
    return sw_test_run(suite, CK_FORK);
}
