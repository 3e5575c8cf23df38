/* The client library with the codec in its process, against a played daemon: what the packets about frames have, and
 * what becomes of answers that are none. */
#include "base/assert.h"
#include "codec/codec.h"
#include "ipc/client/client_coder.h"
#include "ipc/client/client_packed.h"
#include "ipc/proto.h"
#include "ipc/spillway.h"
#include "tests/lib/descriptors.h"
#include "tests/lib/play.h"
#include "tests/lib/requests.h"
#include "tests/lib/run.h"

#include <check.h>
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

enum { SHORT_BYTES = 1 << 20, LONG_BYTES = 2 << 20 }; /* SHORT_BYTES: the most that goes in a packet of its own */

/* ---- the daemon -------------------------------------------------------------------------------------------------- */

/* Until it has the frame buffers. */
static void greet_with(int socket, uint32_t max_buffers) {
    struct sw_msg msg, ok = {.u.coder_ok = {.codecs = UINT64_MAX, .bytes = UINT64_MAX, .chunk_bytes = 16 << 20}};
    sw_play_greet_with(socket, SW_PLAY_MAX_IN_FLIGHT, max_buffers);
    sw_play_expect(socket, &msg, SW_MSG_CODER);
    sw_play_put(socket, &ok, SW_MSG_CODER_OK, msg.header.seq);
    (void)sw_play_register(socket);
}

static void greet(int socket) {
    greet_with(socket, SW_PLAY_MAX_PIECES);
}

/* ---- the client -------------------------------------------------------------------------------------------------- */

static uint8_t *heap;

static void open_client(void (*serve)(int socket)) {
    heap = sw_play_open_coded(serve, LONG_BYTES);
}

static void close_client(void) {
    sw_play_close();
    free(heap);
}

static struct spillway_ticket *restore(void *data, uint64_t bytes) {
    struct spillway_ticket *ticket = NULL;
    ck_assert_int_eq(spillway_restore(sw_play.connection,
                                      SW_REQUEST(SW_ONE(data, bytes), .region = (struct spillway_region){1, 9}), 1,
                                      &ticket, &sw_play.error),
                     0);
    return ticket;
}

static int wait_for(struct spillway_ticket *ticket) {
    return spillway_wait(ticket, SW_TEST_WAIT_MS, NULL, 0, &sw_play.error);
}

/* ---- packets ----------------------------------------------------------------------------------------------------- */

static void serve_two_lengths(int socket) {
    static const uint32_t bytes[] = {SHORT_BYTES, SHORT_BYTES + 1};
    struct sw_msg msg;
    greet(socket);
    for (unsigned i = 0; i < 2; i++) {
        bool commits = false;
        for (unsigned n = 0; !commits; n++) {
            sw_play_expect(socket, &msg, SW_MSG_BUILD);
            commits = msg.u.build.builds[0].flags & SW_BUILD_COMMIT;
            SW_ASSERT(n > 0 || commits == (bytes[i] == SHORT_BYTES));
            sw_play_put_result(socket, msg.header.seq, commits ? i + 1 : 0, commits ? bytes[i] : 0);
        }
    }
    sw_play_expect_end(socket);
}

START_TEST(short_regions_take_one_packet) {
    open_client(serve_two_lengths);
    ck_assert_int_eq(wait_for(sw_play_spill_of(heap, SHORT_BYTES, 0)), 0);
    ck_assert_int_eq(wait_for(sw_play_spill_of(heap, SHORT_BYTES + 1, 0)), 0);
    close_client();
}
END_TEST

/* Of two calls with two regions each only one has room. */
static void serve_three_buffers(int socket) {
    struct sw_msg msg;
    struct pollfd p = {.fd = socket, .events = POLLIN};
    greet_with(socket, 3);
    for (unsigned i = 0; i < 2; i++) {
        sw_play_expect(socket, &msg, SW_MSG_BUILD);
        SW_ASSERT(msg.u.build.n_builds == 2 && msg.u.build.n_buffers == 2);
        SW_ASSERT(i > 0 || poll(&p, 1, 100) == 0);
        sw_play_put_batch(socket, msg.header.seq, 2, 1 + 2 * i, 2 * SW_PLAY_BYTES);
    }
    sw_play_expect_end(socket);
}

START_TEST(no_more_buffers_are_under_way_than_allowed) {
    struct spillway_ticket *tickets[2] = {NULL};
    open_client(serve_three_buffers);
    const struct spillway_request *request = SW_REQUEST(SW_ONE(heap, SW_PLAY_BYTES));
    const struct spillway_request both[] = {*request, *request};
    for (unsigned i = 0; i < 2; i++)
        ck_assert_int_eq(spillway_spill(sw_play.connection, both, 2, &tickets[i], &sw_play.error), 0);
    for (unsigned i = 0; i < 2; i++)
        ck_assert_int_eq(wait_for(tickets[i]), 0);
    close_client();
}
END_TEST

/* ---- answers ----------------------------------------------------------------------------------------------------- */

static void put_frame(int socket, uint32_t seq, const struct sw_wire_frame *frame) {
    const struct sw_wire_result result = {.slot = 1, .gen = 9, .raw_bytes = frame->raw_bytes};
    struct sw_msg reply = {.u.results = {.n_results = 1, .n_frames = 1, .results = &result, .frames = frame}};
    sw_play_put(socket, &reply, SW_MSG_RESULTS, seq);
}

static void answer_a_build_with_a_frame(int socket) {
    struct sw_msg msg;
    greet(socket);
    while (sw_play_get(socket, &msg))
        if (msg.header.type == SW_MSG_BUILD && msg.u.build.n_chunks)
            put_frame(socket, msg.header.seq, &(struct sw_wire_frame){0});
        else
            sw_play_put_result(socket, msg.header.seq, 0, 0);
}

/* And the frame buffers are used no more: it may still write there. Loop: a region of several chunks, or of one. */
START_TEST(a_build_is_not_answered_with_frames) {
    open_client(answer_a_build_with_a_frame);
    sw_play_ck_error(wait_for(sw_play_spill_of(heap, _i ? SW_PLAY_BYTES : LONG_BYTES, 0)), SPILLWAY_EPROTO,
                     SPILLWAY_SCOPE_SESSION, "");
    ck_assert(sw_coder_is_condemned(sw_play_coder()));
    close_client();
}
END_TEST

/* The service has a region without chunks, which this side cannot fetch, and is asked to restore it itself. */
static void begin_a_read_without_chunks(int socket) {
    const struct sw_wire_buffer buffer = {.raw_bytes = LONG_BYTES};
    const struct sw_wire_result result = {.slot = 1, .gen = 9, .n_buffers = 1};
    struct sw_msg msg, reply = {.u.results = {.n_results = 1, .n_buffers = 1, .results = &result, .buffers = &buffer}};
    greet(socket);
    sw_play_expect(socket, &msg, SW_MSG_READ);
    SW_ASSERT(msg.u.read.reads[0].flags & SW_READ_BEGIN);
    sw_play_put(socket, &reply, SW_MSG_RESULTS, msg.header.seq);
    while (sw_play_get(socket, &msg)) {
        if (msg.header.type != SW_MSG_READ)
            sw_play_put_ok(socket, msg.header.seq);
        else if (msg.u.read.reads[0].flags & SW_READ_BEGIN)
            sw_play_put_error(socket, msg.header.seq, "EBUSY", SW_SCOPE_REQUEST, "the second read");
        else
            sw_play_put_result(socket, msg.header.seq, 1, 0);
    }
}

START_TEST(a_region_without_chunks_is_the_service_s) {
    open_client(begin_a_read_without_chunks);
    sw_play_ck_error(wait_for(restore(heap, LONG_BYTES)), SPILLWAY_EBUSY, SPILLWAY_SCOPE_REQUEST, "the second read");
    close_client();
}
END_TEST

/* A frame of that many bytes, stored as they are. */
static struct sw_wire_frame raw_frame(uint64_t raw_bytes) {
    struct sw_frame_layout layout;
    sw_frame_layout_init(&layout, SW_CODEC_RAW, SW_RAW_SEGMENT_LOG2, raw_bytes, 0);
    return (struct sw_wire_frame){.bytes = layout.frame_bytes,
                                  .raw_bytes = raw_bytes,
                                  .codec = SW_CODEC_RAW,
                                  .segment_log2 = SW_RAW_SEGMENT_LOG2};
}

static int excess; /* of frames in an answer */

/* The region has two chunks, each of which is answered with that many frames. */
static void answer_with_other_frames(int socket) {
    const struct sw_wire_buffer buffer = {.raw_bytes = LONG_BYTES, .chunk_bytes = LONG_BYTES / 2};
    const struct sw_wire_result result = {.slot = 1, .gen = 9, .n_buffers = 1}, read = {.slot = 1, .gen = 9};
    struct sw_msg msg, reply = {.u.results = {.n_results = 1, .n_buffers = 1, .results = &result, .buffers = &buffer}};
    struct sw_wire_frame frames[SW_PROTO_MAX_ITEMS];
    greet(socket);
    sw_play_expect(socket, &msg, SW_MSG_READ);
    sw_play_put(socket, &reply, SW_MSG_RESULTS, msg.header.seq);
    sw_play_expect(socket, &msg, SW_MSG_READ);
    const int n = (int)msg.u.read.n_chunks + excess;
    SW_ASSERT(msg.u.read.n_chunks > 0 && n < SW_PROTO_MAX_ITEMS);
    for (int i = 0; i < n; i++) {
        frames[i] = raw_frame(LONG_BYTES / 2);
        frames[i].offset = msg.u.read.chunks[0].offset;
    }
    reply = (struct sw_msg){.u.results = {.n_results = 1, .n_frames = (uint16_t)n, .results = &read, .frames = frames}};
    sw_play_put(socket, &reply, SW_MSG_RESULTS, msg.header.seq);
    while (sw_play_get(socket, &msg)) /* the other chunk, which was on its way */
        ;
}

/* One too few, or one too many. */
START_TEST(a_chunk_is_answered_with_its_frame) {
    excess = _i ? 1 : -1;
    open_client(answer_with_other_frames);
    sw_play_ck_error(wait_for(restore(heap, LONG_BYTES)), SPILLWAY_EPROTO, SPILLWAY_SCOPE_SESSION, "");
    close_client();
}
END_TEST

static uint64_t room_bytes; /* of the frame that is fetched */

static struct sw_wire_frame far_away(void) {
    struct sw_wire_frame frame = raw_frame(SW_PLAY_BYTES);
    frame.offset = UINT64_C(1) << 40;
    return frame;
}

static struct sw_wire_frame at_the_end(void) {
    struct sw_wire_frame frame = raw_frame(SW_PLAY_BYTES);
    frame.offset = room_bytes - SW_PROTO_FRAME_STEP;
    return frame;
}

static struct sw_wire_frame longer(void) {
    return raw_frame(SW_PLAY_BYTES + 1);
}

static struct sw_wire_frame (*const lies[])(void) = {far_away, at_the_end, longer};
static int lie;

/* Two regions in one packet; the lie is about the second one's frame. */
static void answer_with_a_lie(int socket) {
    struct sw_wire_result results[2];
    struct sw_msg msg;
    greet(socket);
    sw_play_expect(socket, &msg, SW_MSG_READ);
    const struct sw_wire_chunk *chunks = msg.u.read.chunks;
    SW_ASSERT(msg.u.read.flags & SW_REQ_GATHER && msg.u.read.n_chunks == 2);
    room_bytes = chunks[1].frame_bytes;
    struct sw_wire_frame frames[] = {raw_frame(SW_PLAY_BYTES), lies[lie]()};
    for (unsigned i = 0; i < 2; i++) {
        results[i] = (struct sw_wire_result){.slot = 1, .gen = 9, .raw_bytes = SW_PLAY_BYTES};
        frames[i].offset += chunks[i].offset;
    }
    struct sw_msg reply = {.u.results = {.n_results = 2, .n_frames = 2, .results = results, .frames = frames}};
    sw_play_put(socket, &reply, SW_MSG_RESULTS, msg.header.seq);
    sw_play_expect_end(socket);
}

/* Behind the room for it, across its end, or with more bytes than the caller's buffer. */
START_TEST(a_frame_lies_where_it_was_asked_for) {
    struct spillway_ticket *ticket = NULL;
    lie = _i;
    open_client(answer_with_a_lie);
    const struct spillway_region region = {1, 9};
    const struct spillway_request both[] = {
        *SW_REQUEST(SW_ONE(heap, SW_PLAY_BYTES), .region = region),
        *SW_REQUEST(SW_ONE(heap + LONG_BYTES / 2, SW_PLAY_BYTES), .region = region)};
    ck_assert_int_eq(spillway_restore(sw_play.connection, both, 2, &ticket, &sw_play.error), 0);
    sw_play_ck_error(wait_for(ticket), SPILLWAY_EPROTO, SPILLWAY_SCOPE_SESSION, "");
    close_client();
}
END_TEST

/* As the service names requests, and as the caller counts them. */
static void refuse_the_second(int socket) {
    struct sw_msg msg;
    greet(socket);
    sw_play_expect(socket, &msg, SW_MSG_BUILD);
    SW_ASSERT(msg.u.build.n_builds == 2);
    sw_play_put_error(socket, msg.header.seq, "ENOSPACE", SW_SCOPE_REQUEST, "request 2 of 2: no room");
    sw_play_expect_end(socket);
}

START_TEST(the_request_that_has_failed_is_named) {
    struct spillway_ticket *ticket = NULL;
    struct spillway_request both[2] = {0};
    open_client(refuse_the_second);
    const struct spillway_buffer buffers[] = {{.data = heap, .bytes = SW_PLAY_BYTES},
                                              {.data = heap + LONG_BYTES / 2, .bytes = SW_PLAY_BYTES}};
    sw_requests_of_each(both, buffers, 2);
    ck_assert_int_eq(spillway_spill(sw_play.connection, both, 2, &ticket, &sw_play.error), 0);
    sw_play_ck_error(wait_for(ticket), SPILLWAY_ENOSPACE, SPILLWAY_SCOPE_REQUEST, "request 2 of 2: no room");
    close_client();
}
END_TEST

/* Says that it has written a frame, and has not. */
static void fetch_twice(int socket) {
    struct sw_msg msg;
    greet(socket);
    for (unsigned i = 0; i < 2; i++) {
        const struct sw_wire_result result = {.slot = 1, .gen = 9, .raw_bytes = SW_PLAY_BYTES};
        struct sw_wire_frame frame = raw_frame(SW_PLAY_BYTES);
        struct sw_msg reply = {.u.results = {.n_results = 1, .n_frames = 1, .results = &result, .frames = &frame}};
        sw_play_expect(socket, &msg, SW_MSG_READ);
        SW_ASSERT(!(msg.u.read.reads[0].flags & SW_READ_DISPUTED) == (i == 0));
        frame.offset = msg.u.read.chunks[0].offset;
        if (i == 0)
            sw_play_put(socket, &reply, SW_MSG_RESULTS, msg.header.seq);
        else
            sw_play_put_error(socket, msg.header.seq, "ECHECKSUM", SW_SCOPE_REGION, "damaged");
    }
    sw_play_expect_end(socket);
}

/* A short frame that is damaged on its way is fetched again, and the service told why: it looks at its own copy. */
START_TEST(a_damaged_frame_is_disputed) {
    open_client(fetch_twice);
    sw_play_ck_error(wait_for(restore(heap, SW_PLAY_BYTES)), SPILLWAY_ECHECKSUM, SPILLWAY_SCOPE_REGION, "damaged");
    close_client();
}
END_TEST

/* ---- whose codec --------------------------------------------------------------------------------------------------
 */

static bool is_coded; /* by the client */

static void serve_any(int socket) {
    struct sw_msg msg, ok = {.u.coder_ok = {.codecs = UINT64_MAX, .bytes = UINT64_MAX, .chunk_bytes = 16 << 20}};
    uint64_t all_bytes = 0;
    sw_play_greet(socket);
    while (sw_play_get(socket, &msg)) {
        uint64_t bytes = 0; /* of this packet */
        for (unsigned i = 0; msg.header.type == SW_MSG_BUILD && i < msg.u.build.n_chunks; i++) {
            bytes += msg.u.build.chunks[i].raw_bytes;
            is_coded |= msg.u.build.chunks[i].frame_bytes > 0;
        }
        all_bytes += bytes;
        if (msg.header.type == SW_MSG_BUILD)
            sw_play_put_result(socket, msg.header.seq, 1, bytes ? bytes : all_bytes);
        else if (msg.header.type == SW_MSG_CODER)
            sw_play_put(socket, &ok, SW_MSG_CODER_OK, msg.header.seq);
        else
            sw_play_put_ok(socket, msg.header.seq);
    }
}

/* Together they have to be long enough for their number. */
static const struct {
    uint64_t bytes[2];
    bool is_coded;
} lengths[] = {{{SW_PLAY_BYTES, LONG_BYTES - SW_PLAY_BYTES}, true},
               {{LONG_BYTES - SW_PLAY_BYTES, SW_PLAY_BYTES}, true},
               {{SHORT_BYTES, SHORT_BYTES - 1}, false}};

START_TEST(buffers_that_are_long_enough_on_average_are_encoded_here) {
    struct spillway_ticket *ticket = NULL;
    open_client(serve_any);
    const uint64_t *bytes = lengths[_i].bytes;
    const struct spillway_buffer both[] = {{.data = heap, .bytes = bytes[0]},
                                           {.data = heap + bytes[0], .bytes = bytes[1]}};
    ck_assert_int_eq(spillway_spill(sw_play.connection, SW_REQUEST(SW_SEVERAL(both, 2)), 1, &ticket, &sw_play.error),
                     0);
    ck_assert_int_eq(wait_for(ticket), 0);
    for (unsigned i = 0; lengths[_i].is_coded && i < 2; i++) /* the call attends to the coder no more */
        ck_assert(sw_coder_attend_begin(sw_play_coder()));
    close_client();
    ck_assert(is_coded == lengths[_i].is_coded);
}
END_TEST

/* The codec reads nothing behind the end of what may be read. */
START_TEST(a_buffer_ends_where_the_memory_does) {
    struct spillway_ticket *ticket = NULL;
    uint8_t *memory = mmap(NULL, 2 * LONG_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    ck_assert_ptr_ne(memory, MAP_FAILED);
    ck_assert_int_eq(mprotect(memory + LONG_BYTES, LONG_BYTES, PROT_NONE), 0);
    open_client(serve_any);
    const struct spillway_buffer both[] = {{.data = memory, .bytes = LONG_BYTES / 2},
                                           {.data = memory + LONG_BYTES / 2, .bytes = LONG_BYTES / 2 + 1}};
    ck_assert_int_eq(spillway_prepare(sw_play.connection, memory, &sw_play.error), 0);
    sw_play_ck_error(spillway_spill(sw_play.connection, SW_REQUEST(SW_SEVERAL(both, 2)), 1, &ticket, &sw_play.error),
                     SPILLWAY_ERANGE, SPILLWAY_SCOPE_REQUEST, "");
    close_client();
    (void)munmap(memory, 2 * LONG_BYTES);
}
END_TEST

static void take_the_grant_back(int socket) {
    struct sw_msg msg, ok = {.u.coder_ok = {.codecs = UINT64_MAX, .bytes = UINT64_MAX, .chunk_bytes = 16 << 20}};
    sw_play_greet(socket);
    for (unsigned i = 0; i < 2; i++) {
        sw_play_expect(socket, &msg, SW_MSG_CODER);
        SW_ASSERT((msg.u.coder.bytes == 0) == (i == 1));
        sw_play_put(socket, &ok, SW_MSG_CODER_OK, msg.header.seq);
    }
    sw_play_put_spilled(socket, sw_play_take_spill(socket), 1);
    sw_play_expect_end(socket);
}

/* What the service has granted for them is given back, and the service encodes. */
START_TEST(frame_buffers_that_cannot_be_made_are_not_needed) {
    const struct rlimit little = {SW_PLAY_BYTES, SW_PLAY_BYTES};
    open_client(take_the_grant_back);
    ck_assert(signal(SIGXFSZ, SIG_IGN) != SIG_ERR);
    ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &little), 0);
    const unsigned fds = sw_count_fds();
    ck_assert_int_eq(wait_for(sw_play_spill_of(sw_play.data, SW_PLAY_BYTES, 0)), 0);
    ck_assert_uint_eq(sw_count_fds(), fds + 1); /* the link's, to the service */
    close_client();
}
END_TEST

enum { N_SHORT = 80 }; /* more than the coder's frame buffers hold */
static unsigned n_stored, n_dropped;
static atomic_bool has_come; /* the first packet of frames */

/* Stores what comes as frames, and sees it dropped before anything comes another way. */
static void store_some(int socket) {
    struct sw_msg msg;
    greet(socket);
    sw_play_expect(socket, &msg, SW_MSG_BUILD);
    atomic_store(&has_come, true);
    (void)sem_wait(&sw_play.go);
    do {
        if (msg.header.type == SW_MSG_BUILD && msg.u.build.n_chunks && msg.u.build.chunks[0].frame_bytes) {
            SW_ASSERT(n_dropped == 0);
            sw_play_put_batch(socket, msg.header.seq, msg.u.build.n_builds, 1 + n_stored,
                              (uint64_t)msg.u.build.n_builds * SHORT_BYTES);
            n_stored += msg.u.build.n_builds;
        } else if (msg.header.type == SW_MSG_BUILD) {
            SW_ASSERT(n_dropped == n_stored);
            sw_play_put_error(socket, msg.header.seq, "ENOSPACE", SW_SCOPE_REQUEST, "the other way");
        } else if (msg.header.type == SW_MSG_DISCARD) {
            n_dropped += msg.u.discard.n_ids;
            sw_play_put_discarded(socket, msg.header.seq, msg.u.discard.n_ids);
        } else {
            sw_play_put_ok(socket, msg.header.seq);
        }
    } while (sw_play_get(socket, &msg));
}

/* All or nothing: the coder may not be used any more when some are stored, and the service begins with none. */
START_TEST(regions_that_were_stored_are_dropped_before_the_service_encodes) {
    struct spillway_buffer buffers[N_SHORT];
    struct spillway_request requests[N_SHORT] = {0};
    struct spillway_ticket *ticket = NULL;
    uint8_t *data = calloc(N_SHORT, SHORT_BYTES);
    ck_assert_ptr_nonnull(data);
    for (unsigned i = 0; i < N_SHORT; i++)
        buffers[i] = (struct spillway_buffer){.data = data + (size_t)i * SHORT_BYTES, .bytes = SHORT_BYTES};
    sw_requests_of_each(requests, buffers, N_SHORT);
    open_client(store_some);
    ck_assert_int_eq(spillway_spill(sw_play.connection, requests, N_SHORT, &ticket, &sw_play.error), 0);
    while (!atomic_load(&has_come))
        ck_assert_int_eq(spillway_dispatch(sw_play.connection, &sw_play.error), 0);
    sw_coder_condemn(sw_play_coder());
    ck_assert_int_eq(sem_post(&sw_play.go), 0);
    sw_play_ck_error(wait_for(ticket), SPILLWAY_ENOSPACE, SPILLWAY_SCOPE_REQUEST, "the other way");
    close_client();
    ck_assert_uint_gt(n_stored, 0);
    ck_assert_uint_eq(n_dropped, n_stored);
    free(data);
}
END_TEST

/* ---- packed regions ---------------------------------------------------------------------------------------------- */

static atomic_bool is_told;

static void know_a_canceled_pack(int socket) {
    struct sw_msg msg;
    greet(socket);
    sw_play_expect(socket, &msg, SW_MSG_BUILD);
    SW_ASSERT(msg.u.build.builds[0].flags & SW_BUILD_PACKED);
    atomic_store(&is_told, true);
    (void)sem_wait(&sw_play.go);
    sw_play_put_result(socket, msg.header.seq, 7, SW_PLAY_BYTES);
    sw_play_expect_drop(socket, 7);
    sw_play_expect_end(socket);
}

/* The region that the service knows of is dropped, and the result names none. */
START_TEST(a_pack_that_is_canceled_late_has_no_region) {
    struct spillway_result result = {.size = sizeof result};
    open_client(know_a_canceled_pack);
    struct spillway_ticket *ticket = sw_play_spill_of(heap, SW_PLAY_BYTES, SPILLWAY_IN_PLACE);
    while (!atomic_load(&is_told))
        ck_assert_int_ge(spillway_dispatch(sw_play.connection, &sw_play.error), 0);
    ck_assert_int_eq(spillway_cancel(ticket, &sw_play.error), 0);
    ck_assert_int_eq(sem_post(&sw_play.go), 0);
    ck_assert_int_eq(spillway_wait(ticket, SW_TEST_WAIT_MS, &result, 1, &sw_play.error), -SPILLWAY_ECANCELED);
    ck_assert_int_eq(result.code, -SPILLWAY_ECANCELED);
    ck_assert_uint_eq(result.region.slot, 0);
    ck_assert_uint_eq(result.region.generation, 0);
    for (unsigned i = 0; i < SW_PLAY_BYTES; i++)
        ck_assert_uint_eq(heap[i], 0);
    close_client();
}
END_TEST

static uint64_t told_bytes; /* of the region, as the service says */

static void answer_a_pack(int socket) {
    struct sw_msg msg;
    greet(socket);
    sw_play_expect(socket, &msg, SW_MSG_BUILD);
    sw_play_put_result(socket, msg.header.seq, 7, told_bytes);
    if (told_bytes == SW_PLAY_BYTES)
        sw_play_expect_drop(socket, 7);
    sw_play_expect_end(socket);
}

/* Nobody knows its id, so nobody could unpack it. */
START_TEST(a_packed_region_that_nobody_has_seen_is_dropped) {
    told_bytes = SW_PLAY_BYTES;
    open_client(answer_a_pack);
    struct spillway_ticket *ticket = sw_play_spill_of(heap, SW_PLAY_BYTES, SPILLWAY_IN_PLACE);
    while (spillway_dispatch(sw_play.connection, &sw_play.error) == 0)
        ;
    spillway_ticket_free(ticket);
    close_client();
}
END_TEST

/* The service has another region in mind: that one is not the caller's, whose bytes are as they were. */
START_TEST(a_pack_that_the_service_has_with_another_length_is_undone) {
    told_bytes = SW_PLAY_BYTES + 1;
    open_client(answer_a_pack);
    for (unsigned i = 0; i < SW_PLAY_BYTES; i++)
        heap[i] = (uint8_t)(i % 7);
    sw_play_ck_error(wait_for(sw_play_spill_of(heap, SW_PLAY_BYTES, SPILLWAY_IN_PLACE)), SPILLWAY_EPROTO,
                     SPILLWAY_SCOPE_SESSION, "");
    for (unsigned i = 0; i < SW_PLAY_BYTES; i++)
        ck_assert_uint_eq(heap[i], i % 7);
    close_client();
}
END_TEST

static void know_a_pack(int socket) {
    struct sw_msg msg;
    greet(socket);
    sw_play_expect(socket, &msg, SW_MSG_BUILD);
    sw_play_put_result(socket, msg.header.seq, 7, SW_PLAY_BYTES);
    sw_play_expect_drop(socket, 7);
    sw_play_expect_end(socket);
}

START_TEST(a_region_that_is_being_unpacked_is_not_dropped) {
    struct spillway_result result = {.size = sizeof result};
    struct spillway_packed_chunk chunk;
    struct spillway_ticket *ticket = NULL;
    uint32_t n;
    open_client(know_a_pack);
    ck_assert_int_eq(spillway_wait(sw_play_spill_of(heap, SW_PLAY_BYTES, SPILLWAY_IN_PLACE), SW_TEST_WAIT_MS, &result,
                                   1, &sw_play.error),
                     0);
    struct sw_packed_region *packed = sw_packed_find(sw_play.connection, result.region);
    ck_assert_ptr_nonnull(packed);
    packed->is_busy = true; /* as during an unpack, which another thread may end at any time */
    sw_play_ck_error(spillway_drop(sw_play.connection, &result.region, 1, &sw_play.error), SPILLWAY_EBUSY,
                     SPILLWAY_SCOPE_REQUEST, "being unpacked");
    sw_play_ck_error(spillway_query_packed(sw_play.connection, result.region, &chunk, 1, &n, &sw_play.error),
                     SPILLWAY_EBUSY, SPILLWAY_SCOPE_REQUEST, "being unpacked");
    ck_assert_int_eq(
        spillway_restore(sw_play.connection,
                         SW_REQUEST(SW_ONE(heap, SW_PLAY_BYTES), .region = result.region, .flags = SPILLWAY_IN_PLACE),
                         1, &ticket, &sw_play.error),
        0);
    sw_play_ck_error(wait_for(ticket), SPILLWAY_EBUSY, SPILLWAY_SCOPE_REQUEST, "being unpacked");
    packed->is_busy = false;
    ck_assert_int_eq(spillway_drop(sw_play.connection, &result.region, 1, &sw_play.error), 0);
    close_client();
}
END_TEST

static void unpack_a_pack(int socket) {
    struct sw_msg msg;
    greet(socket);
    sw_play_expect(socket, &msg, SW_MSG_BUILD);
    sw_play_put_result(socket, msg.header.seq, 7, LONG_BYTES);
    while (sw_play_get(socket, &msg))
        if (msg.header.type == SW_MSG_DISCARD)
            sw_play_put_discarded(socket, msg.header.seq, 1);
        else
            sw_play_put_ok(socket, msg.header.seq);
}

/* The unpack has ended, which nobody has seen yet: the call has no error if none of its requests has one. */
START_TEST(an_unpack_that_is_canceled_too_late_succeeds) {
    struct spillway_result result = {.size = sizeof result};
    struct spillway_ticket *ticket = NULL;
    open_client(unpack_a_pack);
    ck_assert_int_eq(spillway_wait(sw_play_spill_of(heap, LONG_BYTES, SPILLWAY_IN_PLACE), SW_TEST_WAIT_MS, &result, 1,
                                   &sw_play.error),
                     0);
    ck_assert_int_eq(sw_client_enter(sw_play.connection, NULL), 0); /* no other thread goes on with it */
    ck_assert_int_eq(
        spillway_restore(sw_play.connection,
                         SW_REQUEST(SW_ONE(heap, LONG_BYTES), .region = result.region, .flags = SPILLWAY_IN_PLACE), 1,
                         &ticket, &sw_play.error),
        0);
    (void)usleep(100000); /* mostly enough */
    ck_assert_int_eq(spillway_cancel(ticket, &sw_play.error), 0);
    sw_client_leave(sw_play.connection);
    const int rc = spillway_wait(ticket, SW_TEST_WAIT_MS, &result, 1, &sw_play.error);
    ck_assert_int_eq(rc, result.code);
    ck_assert(rc == 0 || rc == -SPILLWAY_ECANCELED);
    for (unsigned i = 0; rc == 0 && i < LONG_BYTES; i++)
        ck_assert_uint_eq(heap[i], 0);
    close_client();
}
END_TEST

static bool is_unknown; /* to the service, or it was there */

static void know_a_pack_no_more(int socket) {
    struct sw_msg msg;
    greet(socket);
    sw_play_expect(socket, &msg, SW_MSG_BUILD);
    sw_play_put_result(socket, msg.header.seq, 7, SW_PLAY_BYTES);
    sw_play_expect(socket, &msg, SW_MSG_DISCARD);
    const struct sw_wire_result result = {.error = 1, .scope = SW_SCOPE_REGION};
    const struct sw_wire_text texts[] = {{"ESTALE"}, {"ENOENT"}};
    struct sw_msg reply = {
        .u.results = {.n_results = 1, .n_texts = 1, .results = &result, .texts = &texts[is_unknown]}};
    sw_play_put(socket, &reply, SW_MSG_RESULTS, msg.header.seq);
    sw_play_expect(socket, &msg, SW_MSG_INSPECT);
    sw_play_put_error(socket, msg.header.seq, "ESTALE", SW_SCOPE_REGION, "nothing is there");
    sw_play_expect_end(socket);
}

/* Then this side forgets it, too, and asks the service. */
START_TEST(a_packed_region_that_the_service_has_not_is_forgotten) {
    struct spillway_result result = {.size = sizeof result};
    struct spillway_packed_chunk chunk;
    uint32_t n;
    is_unknown = _i;
    open_client(know_a_pack_no_more);
    ck_assert_int_eq(spillway_wait(sw_play_spill_of(heap, SW_PLAY_BYTES, SPILLWAY_IN_PLACE), SW_TEST_WAIT_MS, &result,
                                   1, &sw_play.error),
                     0);
    ck_assert_int_eq(spillway_query_packed(sw_play.connection, result.region, &chunk, 1, &n, &sw_play.error), 0);
    ck_assert_int_eq(spillway_drop(sw_play.connection, &result.region, 1, &sw_play.error),
                     is_unknown ? -SPILLWAY_ENOENT : -SPILLWAY_ESTALE);
    sw_play_ck_error(spillway_query_packed(sw_play.connection, result.region, &chunk, 1, &n, &sw_play.error),
                     SPILLWAY_ESTALE, SPILLWAY_SCOPE_REGION, "nothing is there");
    close_client();
}
END_TEST

/* The service has the region, and then answers a build with what no build has. */
static void know_a_pack_and_lie(int socket) {
    struct sw_msg msg;
    greet(socket);
    sw_play_expect(socket, &msg, SW_MSG_BUILD);
    SW_ASSERT(msg.u.build.builds[0].flags & SW_BUILD_PACKED);
    sw_play_put_result(socket, msg.header.seq, 7, LONG_BYTES);
    while (sw_play_get(socket, &msg) && !msg.u.build.n_chunks)
        sw_play_put_result(socket, msg.header.seq, 0, 0);
    put_frame(socket, msg.header.seq, &(struct sw_wire_frame){0});
    while (sw_play_get(socket, &msg)) /* other chunks, which were on their way */
        ;
}

/* It needs no service, and none of the frame buffers to which that one may still write. */
START_TEST(a_region_is_unpacked_beside_frame_buffers_that_are_lost) {
    struct spillway_result result = {.size = sizeof result};
    struct spillway_ticket *ticket = NULL;
    uint64_t frames_bytes;
    int fd;
    open_client(know_a_pack_and_lie);
    for (unsigned i = 0; i < LONG_BYTES; i++)
        heap[i] = (uint8_t)(i % 7);
    ck_assert_int_eq(spillway_wait(sw_play_spill_of(heap, LONG_BYTES, SPILLWAY_IN_PLACE), SW_TEST_WAIT_MS, &result, 1,
                                   &sw_play.error),
                     0);
    uint8_t *other = calloc(1, LONG_BYTES);
    ck_assert_ptr_nonnull(other);
    sw_play_ck_error(wait_for(sw_play_spill_of(other, LONG_BYTES, 0)), SPILLWAY_EPROTO, SPILLWAY_SCOPE_SESSION, "");
    uint8_t *frames = sw_coder_frames(sw_play_coder(), &frames_bytes, &fd);
    memset(frames, 0x77, frames_bytes);
    sw_play_ck_error(
        spillway_spill(sw_play.connection, SW_REQUEST(SW_ONE(other, LONG_BYTES)), 1, &ticket, &sw_play.error),
        SPILLWAY_EPROTO, SPILLWAY_SCOPE_SESSION, "");
    ck_assert_int_eq(
        spillway_restore(sw_play.connection,
                         SW_REQUEST(SW_ONE(heap, LONG_BYTES), .region = result.region, .flags = SPILLWAY_IN_PLACE), 1,
                         &ticket, &sw_play.error),
        0);
    ck_assert_int_eq(spillway_wait(ticket, SW_TEST_WAIT_MS, NULL, 0, &sw_play.error), 0);
    for (unsigned i = 0; i < LONG_BYTES; i++)
        ck_assert_uint_eq(heap[i], i % 7);
    for (uint64_t i = 0; i < frames_bytes; i++)
        if (frames[i] != 0x77)
            ck_abort_msg("byte %llu of the frame buffers was written", (unsigned long long)i);
    free(other);
    close_client();
}
END_TEST

int main(void) {
    Suite *suite = suite_create("ipc_client_frames");
    TCase *tcase = tcase_create("frames");
    tcase_add_test(tcase, short_regions_take_one_packet);
    tcase_add_test(tcase, no_more_buffers_are_under_way_than_allowed);
    tcase_add_loop_test(tcase, a_build_is_not_answered_with_frames, 0, 2);
    tcase_add_test(tcase, a_region_without_chunks_is_the_service_s);
    tcase_add_loop_test(tcase, a_frame_lies_where_it_was_asked_for, 0, (int)(sizeof lies / sizeof lies[0]));
    tcase_add_loop_test(tcase, a_chunk_is_answered_with_its_frame, 0, 2);
    tcase_add_test(tcase, a_damaged_frame_is_disputed);
    tcase_add_test(tcase, the_request_that_has_failed_is_named);
    tcase_add_loop_test(tcase, buffers_that_are_long_enough_on_average_are_encoded_here, 0, 3);
    tcase_add_test(tcase, a_buffer_ends_where_the_memory_does);
    tcase_add_test(tcase, regions_that_were_stored_are_dropped_before_the_service_encodes);
    tcase_add_test(tcase, frame_buffers_that_cannot_be_made_are_not_needed);
    tcase_add_test(tcase, a_pack_that_is_canceled_late_has_no_region);
    tcase_add_test(tcase, a_packed_region_that_nobody_has_seen_is_dropped);
    tcase_add_test(tcase, a_pack_that_the_service_has_with_another_length_is_undone);
    tcase_add_test(tcase, a_region_that_is_being_unpacked_is_not_dropped);
    tcase_add_test(tcase, an_unpack_that_is_canceled_too_late_succeeds);
    tcase_add_loop_test(tcase, a_packed_region_that_the_service_has_not_is_forgotten, 0, 2);
    tcase_add_test(tcase, a_region_is_unpacked_beside_frame_buffers_that_are_lost);
    suite_add_tcase(suite, tcase);
    return sw_test_run(suite, CK_FORK);
}
