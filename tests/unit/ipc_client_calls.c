/* Calls of several requests, with names, time limits and structs of other versions, against a played daemon. */
#include "base/alloc.h"
#include "base/assert.h"
#include "ipc/proto.h"
#include "ipc/spillway.h"
#include "tests/lib/play.h"
#include "tests/lib/run.h"

#include <check.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { N = 3, EACH_BYTES = 100 };

static struct spillway_buffer buffers[N];
static struct spillway_request requests[N];
static struct spillway_result results[N];

/* N requests of a buffer each, side by side in registered memory. */
static void lay_out(uint32_t flags) {
    for (uint32_t i = 0; i < N; i++) {
        buffers[i] =
            (struct spillway_buffer){.data = (uint8_t *)sw_play.data + (size_t)i * EACH_BYTES, .bytes = EACH_BYTES};
        requests[i] = (struct spillway_request){
            .size = sizeof requests[0], .buffers = &buffers[i], .n_buffers = 1, .flags = flags};
        results[i] = (struct spillway_result){.size = sizeof results[0]};
    }
}

static void start(void (*serve)(int socket), uint32_t flags) {
    sw_play_open(serve);
    ck_assert_int_eq(spillway_register(sw_play.connection, sw_play.data, SW_PLAY_BYTES, &sw_play.error), 0);
    lay_out(flags);
}

static struct spillway_ticket *spill_all(void) {
    struct spillway_ticket *ticket = NULL;
    ck_assert_int_eq(spillway_spill(sw_play.connection, requests, N, &ticket, &sw_play.error), 0);
    return ticket;
}

static void greet(int socket) {
    sw_play_greet(socket);
    (void)sw_play_register(socket);
}

/* ---- each by itself ---------------------------------------------------------------------------------------------- */

static void refuse_the_second(int socket) {
    static const struct sw_wire_text texts[] = {{"ENOSPACE"}, {"v5t"}};
    static const struct sw_wire_result all[N] = {
        {.slot = 1, .gen = 9, .raw_bytes = EACH_BYTES, .stored_bytes = 10, .codec = 2},
        {.slot = 2, .gen = 9, .error = 1, .scope = SW_SCOPE_REQUEST}, /* which counts for nothing */
        {.slot = 3, .gen = 9, .raw_bytes = EACH_BYTES, .stored_bytes = 30, .codec = 2}};
    struct sw_msg msg, reply = {.u.results = {.n_results = N,
                                              .n_texts = 2,
                                              .results = all,
                                              .texts = texts,
                                              .text_bytes = 12,
                                              .text = "tier is full"}};
    greet(socket);
    sw_play_expect(socket, &msg, SW_MSG_BUILD);
    SW_ASSERT(msg.u.build.flags == 0 && msg.u.build.n_builds == N);
    sw_play_put(socket, &reply, SW_MSG_RESULTS, msg.header.seq);
    sw_play_expect_end(socket); /* and nothing is dropped */
}

START_TEST(each_request_has_its_own_outcome) {
    start(refuse_the_second, SPILLWAY_EACH);
    struct spillway_ticket *ticket = spill_all();
    const int rc = spillway_wait(ticket, -1, results, N, &sw_play.error);
    sw_play_ck_error(rc, SPILLWAY_ENOSPACE, SPILLWAY_SCOPE_REQUEST, "tier is full");
    ck_assert_int_eq(results[0].code, 0);
    ck_assert_uint_eq(results[0].region.slot, 1);
    ck_assert_str_eq(results[0].codec, "v5t");
    ck_assert_int_eq(results[1].code, -SPILLWAY_ENOSPACE);
    ck_assert_uint_eq(results[1].region.generation, 0);
    ck_assert_int_eq(results[2].code, 0);
    ck_assert_uint_eq(results[2].stored_bytes, 30);
    spillway_ticket_free(ticket);
    sw_play_close();
}
END_TEST

static void fail_the_gpu(int socket) {
    static const struct sw_wire_text texts[] = {{"EGPULOST"}};
    static const struct sw_wire_result all[N] = {{.error = 1, .scope = SW_SCOPE_DEVICE},
                                                 {.error = 1, .scope = SW_SCOPE_DEVICE},
                                                 {.error = 1, .scope = SW_SCOPE_DEVICE}};
    struct sw_msg msg, reply = {.u.results = {.n_results = N,
                                              .n_texts = 1,
                                              .results = all,
                                              .texts = texts,
                                              .text_bytes = 32,
                                              .text = "request 1 of 3: the GPU was lost"}};
    greet(socket);
    sw_play_expect(socket, &msg, SW_MSG_BUILD);
    sw_play_put(socket, &reply, SW_MSG_RESULTS, msg.header.seq);
    sw_play_expect_end(socket);
}

/* That no request is to blame for. */
START_TEST(the_error_of_a_device_names_no_request) {
    start(fail_the_gpu, SPILLWAY_EACH);
    sw_play_ck_error(spillway_wait(spill_all(), -1, results, N, &sw_play.error), SPILLWAY_EGPULOST,
                     SPILLWAY_SCOPE_DEVICE, "");
    ck_assert_str_eq(sw_play.error.text, "the GPU was lost");
    sw_play_close();
}
END_TEST

static void answer_alike(int socket) {
    static const struct sw_wire_text texts[] = {{"v5t"}, {"host"}, {"EFROMLATER"}};
    static const struct sw_wire_result all[N] = {
        {.slot = 1, .gen = 7, .raw_bytes = EACH_BYTES, .stored_bytes = 10, .codec = 1, .tier = 2, .durability = 1},
        {.slot = 2, .gen = 8, .raw_bytes = EACH_BYTES, .stored_bytes = 20, .codec = 1, .tier = 2, .durability = 3},
        {.error = 3, .scope = SW_SCOPE_REGION}};
    struct sw_msg msg, reply = {.u.results = {.n_results = N, .n_texts = 3, .results = all, .texts = texts}};
    greet(socket);
    sw_play_expect(socket, &msg, SW_MSG_BUILD);
    sw_play_put(socket, &reply, SW_MSG_RESULTS, msg.header.seq);
    sw_play_expect_end(socket);
}

/* Results that have their texts in common, and one with an error that only a later service knows. */
START_TEST(results_are_each_its_own) {
    start(answer_alike, SPILLWAY_EACH);
    struct spillway_ticket *ticket = spill_all();
    ck_assert_int_eq(spillway_wait(ticket, -1, results, N, &sw_play.error), -SPILLWAY_EPROTO);
    for (unsigned i = 0; i < 2; i++) {
        ck_assert(results[i].code == 0 && results[i].raw_bytes == EACH_BYTES);
        ck_assert(results[i].region.slot == i + 1 && results[i].region.generation == i + 7);
        ck_assert_uint_eq(results[i].stored_bytes, 10 * (i + 1));
        ck_assert_uint_eq(results[i].durability, 2 * i + 1);
        ck_assert_str_eq(results[i].codec, "v5t");
        ck_assert_str_eq(results[i].tier, "host");
    }
    ck_assert_int_eq(results[2].code, -SPILLWAY_EPROTO);
    ck_assert_uint_eq(results[2].region.generation, 0);
    spillway_ticket_free(ticket);
    sw_play_close();
}
END_TEST

static void refuse_and_see_drops(int socket) {
    static const struct sw_wire_text texts[] = {{"ENOSPACE"}};
    static const struct sw_wire_result all[N] = {
        {.slot = 1, .gen = 9, .raw_bytes = EACH_BYTES}, {.error = 1}, {.slot = 3, .gen = 9, .raw_bytes = EACH_BYTES}};
    struct sw_msg msg, reply = {.u.results = {.n_results = N, .n_texts = 1, .results = all, .texts = texts}};
    greet(socket);
    sw_play_expect(socket, &msg, SW_MSG_BUILD);
    sw_play_put(socket, &reply, SW_MSG_RESULTS, msg.header.seq);
    sw_play_expect(socket, &msg, SW_MSG_DISCARD);
    SW_ASSERT(msg.u.discard.n_ids == 2 && msg.u.discard.ids[0].slot == 1 && msg.u.discard.ids[1].slot == 3);
    sw_play_put_discarded(socket, msg.header.seq, 2);
    sw_play_expect_end(socket);
}

/* Without the results the client does not know the regions that were stored; nor which of their names are taken. */
START_TEST(unreported_regions_are_dropped) {
    static const char *const names[N] = {"orders", "parts", "lines"};
    start(refuse_and_see_drops, SPILLWAY_EACH);
    for (int i = 0; _i && i < N; i++)
        requests[i].name = names[i];
    struct spillway_ticket *ticket = spill_all();
    ck_assert_int_eq(spillway_wait(ticket, -1, NULL, 0, &sw_play.error), -SPILLWAY_ENOSPACE);
    spillway_ticket_free(ticket);
    sw_play_close();
}
END_TEST

/* ---- names ------------------------------------------------------------------------------------------------------- */

static void take_names(int socket) {
    struct sw_msg msg;
    greet(socket);
    sw_play_expect(socket, &msg, SW_MSG_BUILD);
    const struct sw_msg_build *m = &msg.u.build;
    SW_ASSERT(m->builds[0].name_bytes == 6 && m->builds[1].name_bytes == 0 && m->builds[2].name_bytes == 5);
    SW_ASSERT(m->name_bytes == 11 && memcmp(m->names, "ordersparts", 11) == 0);
    SW_ASSERT(m->builds[0].durability == 0 && m->builds[2].durability == SPILLWAY_DURABLE_HOST);
    SW_ASSERT(m->builds[0].prefer == SPILLWAY_PREFER_NONE && m->builds[1].prefer == SPILLWAY_PREFER_TIME);
    SW_ASSERT(m->builds[2].prefer == SPILLWAY_PREFER_ROOM);
    SW_ASSERT(m->builds[1].keep_priority == 7 && m->buffers[2].value_type == SPILLWAY_U32);
    sw_play_put_batch(socket, msg.header.seq, N, 1, N * EACH_BYTES);
    sw_play_expect(socket, &msg, SW_MSG_DISCARD); /* only the one without a name */
    SW_ASSERT(msg.u.discard.n_ids == 1 && msg.u.discard.ids[0].slot == 2);
    sw_play_put_discarded(socket, msg.header.seq, 1);
    sw_play_expect_end(socket);
}

START_TEST(names_and_types_go_with_their_requests) {
    start(take_names, 0);
    char name[] = "orders"; /* copied during the call */
    requests[0].name = name;
    requests[1].keep_priority = 7;
    requests[1].prefer = SPILLWAY_PREFER_TIME;
    requests[2].prefer = SPILLWAY_PREFER_ROOM;
    requests[2].name = "parts";
    requests[2].durability = SPILLWAY_DURABLE_HOST;
    buffers[2].type = SPILLWAY_U32;
    struct spillway_ticket *ticket = spill_all();
    memset(name, 'x', sizeof name - 1);
    memset(buffers, 0xee, sizeof buffers);
    ck_assert_int_eq(spillway_wait(ticket, -1, NULL, 0, &sw_play.error), 0);
    spillway_ticket_free(ticket);
    sw_play_close();
}
END_TEST

/* ---- ends that come early ---------------------------------------------------------------------------------------- */

static void end_when_asked(int socket) {
    struct sw_msg spill, abort;
    greet(socket);
    sw_play_expect(socket, &spill, SW_MSG_BUILD);
    const uint32_t number = spill.u.build.builds[0].build;
    sw_play_expect(socket, &abort, SW_MSG_BUILD);
    SW_ASSERT(abort.u.build.n_builds == N && abort.u.build.n_chunks == 0);
    for (uint32_t i = 0; i < N; i++)
        SW_ASSERT(abort.u.build.builds[i].build == number + i && abort.u.build.builds[i].flags == SW_BUILD_ABORT);
    sw_play_put_error(socket, spill.header.seq, "ECANCELED", SW_SCOPE_REQUEST, "canceled");
    sw_play_put_discarded(socket, abort.header.seq, N);
    sw_play_expect_end(socket);
}

START_TEST(a_call_is_canceled) {
    start(end_when_asked, 0);
    struct spillway_ticket *ticket = spill_all();
    ck_assert_int_eq(spillway_cancel(ticket, &sw_play.error), 0);
    ck_assert_int_eq(spillway_cancel(ticket, &sw_play.error), 0); /* again: nothing more */
    sw_play_ck_error(spillway_wait(ticket, -1, results, N, &sw_play.error), SPILLWAY_ECANCELED, SPILLWAY_SCOPE_REQUEST,
                     "spillway_cancel()");
    ck_assert_int_eq(results[2].code, -SPILLWAY_ECANCELED);
    spillway_ticket_free(ticket);
    sw_play_close();
}
END_TEST

START_TEST(a_call_has_a_time_limit) {
    start(end_when_asked, 0);
    requests[1].timeout_ms = 20;
    requests[2].timeout_ms = 60000;
    struct spillway_ticket *ticket = spill_all();
    sw_play_ck_error(spillway_wait(ticket, 30000, results, N, &sw_play.error), SPILLWAY_ETIMEDOUT,
                     SPILLWAY_SCOPE_REQUEST, "timeout_ms");
    spillway_ticket_free(ticket);
    sw_play_close();
}
END_TEST

static void end_reads_when_asked(int socket) {
    struct sw_msg restore, end;
    greet(socket);
    sw_play_expect(socket, &restore, SW_MSG_READ);
    const uint32_t number = restore.u.read.reads[0].read;
    sw_play_expect(socket, &end, SW_MSG_READ);
    SW_ASSERT(end.u.read.n_reads == N && end.u.read.n_chunks == 0);
    for (uint32_t i = 0; i < N; i++)
        SW_ASSERT(end.u.read.reads[i].read == number + i && end.u.read.reads[i].flags == (SW_READ_END | SW_READ_KEEP));
    sw_play_put_error(socket, restore.header.seq, "ECANCELED", SW_SCOPE_REQUEST, "canceled");
    sw_play_put_discarded(socket, end.header.seq, N);
    sw_play_expect_end(socket);
}

/* The regions stay stored. */
START_TEST(a_restore_that_is_canceled_keeps_the_regions) {
    struct spillway_ticket *ticket = NULL;
    start(end_reads_when_asked, 0);
    for (uint32_t i = 0; i < N; i++)
        requests[i].region = (struct spillway_region){i + 1, 9};
    ck_assert_int_eq(spillway_restore(sw_play.connection, requests, N, &ticket, &sw_play.error), 0);
    ck_assert_int_eq(spillway_cancel(ticket, &sw_play.error), 0);
    sw_play_ck_error(spillway_wait(ticket, -1, results, N, &sw_play.error), SPILLWAY_ECANCELED, SPILLWAY_SCOPE_REQUEST,
                     "spillway_cancel()");
    sw_play_close();
}
END_TEST

/* Two of the three requests fit the service's limit. */
static void serve_three_reads(int socket) {
    struct sw_msg msg;
    sw_play_greet_with(socket, SW_PLAY_MAX_IN_FLIGHT, 2);
    (void)sw_play_register(socket);
    sw_play_expect(socket, &msg, SW_MSG_READ);
    SW_ASSERT(msg.u.read.n_reads == 2);
    (void)sem_wait(&sw_play.go);
    sw_play_put_batch(socket, msg.header.seq, 2, 1, 2 * EACH_BYTES);
    sw_play_expect(socket, &msg, SW_MSG_READ);
    SW_ASSERT(msg.u.read.n_reads == 1 && msg.u.read.reads[0].slot == 3);
    sw_play_put_result(socket, msg.header.seq, 3, EACH_BYTES);
    sw_play_expect(socket, &msg, SW_MSG_STATUS);
    sw_play_put(socket, &msg, SW_MSG_STATUS_OK, msg.header.seq);
    sw_play_expect_end(socket);
}

/* Its memory is written to all the same: only a spill makes something that nobody knows. */
START_TEST(a_restore_goes_on_without_its_ticket) {
    struct spillway_status status = {.size = sizeof status};
    struct spillway_ticket *ticket = NULL;
    start(serve_three_reads, SPILLWAY_EACH);
    for (uint32_t i = 0; i < N; i++)
        requests[i].region = (struct spillway_region){i + 1, 9};
    ck_assert_int_eq(spillway_restore(sw_play.connection, requests, N, &ticket, &sw_play.error), 0);
    spillway_ticket_free(ticket);
    ck_assert_int_eq(sem_post(&sw_play.go), 0);
    struct pollfd p = {.fd = spillway_fd(sw_play.connection), .events = POLLIN};
    ck_assert_int_eq(poll(&p, 1, SW_TEST_WAIT_MS), 1);
    ck_assert_int_ge(spillway_dispatch(sw_play.connection, &sw_play.error), 0);
    ck_assert_int_eq(spillway_status(sw_play.connection, &status, &sw_play.error), 0);
    sw_play_close();
}
END_TEST

/* An event loop wakes for it. */
START_TEST(a_time_limit_wakes_the_event_loop) {
    start(end_when_asked, 0);
    requests[0].timeout_ms = 20;
    struct spillway_ticket *ticket = spill_all(), *done;
    while (!(done = spillway_next_done(sw_play.connection))) {
        struct pollfd p = {.fd = spillway_fd(sw_play.connection), .events = POLLIN};
        ck_assert_int_eq(poll(&p, 1, 30000), 1);
        ck_assert_int_ge(spillway_dispatch(sw_play.connection, &sw_play.error), 0);
    }
    ck_assert_ptr_eq(done, ticket);
    sw_play_close();
}
END_TEST

/* Two calls; the one that has less time ends. */
static int hurried;

/* Takes two spills in, and requests to end them. A limit may be over before the second call begins. */
static void take_two(int socket, struct sw_msg spills[2], struct sw_msg *aborts, unsigned n_aborts) {
    for (unsigned n_begun = 0, n_ended = 0; n_begun < 2 || n_ended < n_aborts;) {
        struct sw_msg msg;
        sw_play_expect(socket, &msg, SW_MSG_BUILD);
        if (msg.u.build.builds[0].flags & SW_BUILD_BEGIN)
            spills[n_begun++] = msg;
        else
            aborts[n_ended++] = msg;
    }
}

static void end_the_hurried(int socket) {
    struct sw_msg spills[2], abort;
    greet(socket);
    take_two(socket, spills, &abort, 1);
    SW_ASSERT(abort.u.build.builds[0].build == spills[hurried].u.build.builds[0].build);
    SW_ASSERT(abort.u.build.builds[0].flags == SW_BUILD_ABORT);
    sw_play_put_error(socket, spills[hurried].header.seq, "ECANCELED", SW_SCOPE_REQUEST, "canceled");
    sw_play_put_discarded(socket, abort.header.seq, N);
    (void)sem_wait(&sw_play.go);
    sw_play_put_batch(socket, spills[!hurried].header.seq, N, 1, N * EACH_BYTES);
    sw_play_expect_end(socket);
}

START_TEST(the_first_time_limit_wakes_the_event_loop) {
    struct spillway_ticket *tickets[2], *done;
    hurried = _i;
    start(end_the_hurried, 0);
    for (int i = 0; i < 2; i++) {
        requests[0].timeout_ms = i == hurried ? 20 : 60000;
        tickets[i] = spill_all();
    }
    while (!(done = spillway_next_done(sw_play.connection))) {
        struct pollfd p = {.fd = spillway_fd(sw_play.connection), .events = POLLIN};
        ck_assert_int_eq(poll(&p, 1, 30000), 1);
        ck_assert_int_ge(spillway_dispatch(sw_play.connection, &sw_play.error), 0);
    }
    ck_assert_ptr_eq(done, tickets[hurried]);
    ck_assert_int_eq(sem_post(&sw_play.go), 0);
    ck_assert_int_eq(spillway_wait(tickets[!hurried], 30000, results, N, &sw_play.error), 0);
    sw_play_close();
}
END_TEST

/* A call is done when its own answer has come, so nothing comes after that. */
static void end_both(int socket) {
    struct sw_msg spills[2], aborts[2];
    greet(socket);
    take_two(socket, spills, aborts, 2);
    for (int i = 0; i < 2; i++)
        sw_play_put_discarded(socket, aborts[i].header.seq, N);
    for (int i = 0; i < 2; i++)
        sw_play_put_error(socket, spills[i].header.seq, "ECANCELED", SW_SCOPE_REQUEST, "canceled");
    sw_play_expect_end(socket);
}

/* A limit that is over wakes the loop no more, and the next one does. */
START_TEST(each_time_limit_wakes_the_event_loop_for_itself) {
    struct pollfd p = {.events = POLLIN};
    unsigned n_wakes = 0, n_done = 0;
    start(end_both, 0);
    p.fd = spillway_fd(sw_play.connection);
    for (int i = 0; i < 2; i++) {
        requests[0].timeout_ms = i ? 80 : 20;
        (void)spill_all();
    }
    for (; n_done < 2; n_wakes++) {
        ck_assert_int_eq(poll(&p, 1, 30000), 1);
        ck_assert_int_ge(spillway_dispatch(sw_play.connection, &sw_play.error), 0);
        while (spillway_next_done(sw_play.connection))
            n_done++;
    }
    ck_assert_uint_lt(n_wakes, 20);
    ck_assert_int_eq(poll(&p, 1, 0), 0);
    sw_play_close();
}
END_TEST

static void succeed_all_the_same(int socket) {
    struct sw_msg spill, abort;
    greet(socket);
    sw_play_expect(socket, &spill, SW_MSG_BUILD);
    sw_play_expect(socket, &abort, SW_MSG_BUILD);
    sw_play_put_batch(socket, spill.header.seq, N, 1, N * EACH_BYTES);
    sw_play_put_error(socket, abort.header.seq, "ENOENT", SW_SCOPE_REQUEST, "there is no such build");
    sw_play_expect_end(socket);
}

START_TEST(a_cancel_after_success_is_harmless) {
    start(succeed_all_the_same, 0);
    struct spillway_ticket *ticket = spill_all();
    ck_assert_int_eq(spillway_cancel(ticket, &sw_play.error), 0);
    ck_assert_int_eq(spillway_wait(ticket, -1, results, N, &sw_play.error), 0);
    ck_assert_uint_eq(results[2].region.slot, 3);
    sw_play_close();
}
END_TEST

/* Two of three requests fit the service's limit. */
static void serve_two_of_three(int socket) {
    struct sw_msg spill, abort;
    sw_play_greet_with(socket, SW_PLAY_MAX_IN_FLIGHT, 2);
    (void)sw_play_register(socket);
    sw_play_expect(socket, &spill, SW_MSG_BUILD);
    SW_ASSERT(spill.u.build.n_builds == 2);
    sw_play_expect(socket, &abort, SW_MSG_BUILD);
    SW_ASSERT(abort.u.build.n_builds == 2 && abort.u.build.builds[1].build == spill.u.build.builds[1].build);
    sw_play_put_batch(socket, spill.header.seq, 2, 1, 2 * EACH_BYTES);
    sw_play_put_error(socket, abort.header.seq, "ENOENT", SW_SCOPE_REQUEST, "there is no such build");
    sw_play_expect_end(socket);
}

START_TEST(what_was_never_sent_is_canceled_by_itself) {
    start(serve_two_of_three, SPILLWAY_EACH);
    struct spillway_ticket *ticket = spill_all();
    ck_assert_int_eq(spillway_cancel(ticket, &sw_play.error), 0);
    sw_play_ck_error(spillway_wait(ticket, -1, results, N, &sw_play.error), SPILLWAY_ECANCELED, SPILLWAY_SCOPE_REQUEST,
                     "spillway_cancel()");
    ck_assert(results[0].code == 0 && results[0].region.slot == 1);
    ck_assert(results[1].code == 0 && results[1].region.slot == 2);
    ck_assert_int_eq(results[2].code, -SPILLWAY_ECANCELED);
    ck_assert_uint_eq(results[2].region.generation, 0);
    spillway_ticket_free(ticket);
    sw_play_close();
}
END_TEST

static void answer_the_first(int socket) {
    struct sw_msg spill;
    sw_play_greet_with(socket, SW_PLAY_MAX_IN_FLIGHT, N);
    (void)sw_play_register(socket);
    sw_play_expect(socket, &spill, SW_MSG_BUILD);
    (void)sem_wait(&sw_play.go);
    sw_play_put_batch(socket, spill.header.seq, N, 1, N * EACH_BYTES);
    sw_play_expect_end(socket);
}

/* The end of a call that waits for room wakes an event loop, before the call that has the room ends. */
START_TEST(a_cancel_wakes_the_event_loop) {
    start(answer_the_first, 0);
    struct spillway_ticket *first = spill_all(), *waiting = spill_all();
    struct pollfd p = {.fd = spillway_fd(sw_play.connection), .events = POLLIN};
    ck_assert_int_eq(poll(&p, 1, 0), 0);
    ck_assert_int_eq(spillway_cancel(waiting, &sw_play.error), 0);
    ck_assert_int_eq(poll(&p, 1, SW_TEST_WAIT_MS), 1);
    ck_assert_int_eq(spillway_dispatch(sw_play.connection, &sw_play.error), 1);
    ck_assert_ptr_eq(spillway_next_done(sw_play.connection), waiting);
    ck_assert_int_eq(spillway_wait(waiting, 0, NULL, 0, &sw_play.error), -SPILLWAY_ECANCELED);
    ck_assert_int_eq(sem_post(&sw_play.go), 0);
    ck_assert_int_eq(spillway_wait(first, SW_TEST_WAIT_MS, NULL, 0, &sw_play.error), 0);
    sw_play_close();
}
END_TEST

/* ---- drops ------------------------------------------------------------------------------------------------------- */

enum { MANY = SW_PROTO_MAX_ITEMS + 3 };
static unsigned failing_drop; /* the first one that fails; all after it have another error */

static void refuse_drops(int socket) {
    static const struct sw_wire_text texts[] = {{"EBUSY"}, {"ENOENT"}};
    static struct sw_wire_result all[SW_PROTO_MAX_ITEMS];
    sw_play_greet(socket);
    for (unsigned at = 0; at < MANY; at += SW_PROTO_MAX_ITEMS) {
        const unsigned n = MANY - at < SW_PROTO_MAX_ITEMS ? MANY - at : SW_PROTO_MAX_ITEMS;
        struct sw_msg msg, reply = {.u.results = {.n_results = (uint16_t)n,
                                                  .n_texts = 2,
                                                  .results = all,
                                                  .texts = texts,
                                                  .text_bytes = 6,
                                                  .text = "no way"}};
        sw_play_expect(socket, &msg, SW_MSG_DISCARD);
        SW_ASSERT(msg.u.discard.n_ids == n && msg.u.discard.ids[n - 1].slot == at + n - 1);
        for (unsigned i = 0; i < n; i++)
            all[i] = (struct sw_wire_result){.error = at + i < failing_drop    ? 0
                                                      : at + i == failing_drop ? 1
                                                                               : 2,
                                             .scope = at + i < failing_drop ? 0 : SW_SCOPE_REQUEST};
        sw_play_put(socket, &reply, SW_MSG_RESULTS, msg.header.seq);
    }
    sw_play_expect_end(socket);
}

/* Whichever it is, and the others are asked for, too. */
START_TEST(the_first_drop_that_fails_is_reported) {
    static const unsigned which[] = {0, 1, SW_PROTO_MAX_ITEMS - 1, SW_PROTO_MAX_ITEMS, MANY - 1, MANY};
    struct spillway_region regions[MANY];
    for (unsigned i = 0; i < MANY; i++)
        regions[i] = (struct spillway_region){i, 9};
    for (unsigned k = 0; k < sizeof which / sizeof which[0]; k++) {
        failing_drop = which[k];
        sw_play_open(refuse_drops);
        const int rc = spillway_drop(sw_play.connection, regions, MANY, &sw_play.error);
        ck_assert_int_eq(rc, which[k] < MANY ? -SPILLWAY_EBUSY : 0);
        ck_assert_int_eq(sw_play.error.code, rc);
        sw_play_close();
    }
}
END_TEST

static void answer_two_drops(int socket) {
    struct sw_msg msg;
    sw_play_greet(socket);
    sw_play_expect(socket, &msg, SW_MSG_DISCARD);
    sw_play_put_discarded(socket, msg.header.seq, 2);
    sw_play_expect_end(socket);
}

START_TEST(more_answers_than_drops_end_the_connection) {
    sw_play_open(answer_two_drops);
    sw_play_ck_error(spillway_drop(sw_play.connection, &(struct spillway_region){1, 9}, 1, &sw_play.error),
                     SPILLWAY_EPROTO, SPILLWAY_SCOPE_SESSION, "");
    sw_play_close();
}
END_TEST

/* ---- adoption ---------------------------------------------------------------------------------------------------- */

#define LONGEST_NAME "012345678901234567890123456789012345678901234567890123456789012"
static atomic_bool has_ended;

/* The session of a client that has a durable region ends after its connection. */
static void serve_an_adoption(int socket) {
    struct sw_msg msg;
    sw_play_greet(socket);
    sw_play_expect(socket, &msg, SW_MSG_ADOPT);
    SW_ASSERT(strcmp((const char *)msg.u.adopt.name, LONGEST_NAME) == 0);
    sw_play_put_result(socket, msg.header.seq, 5, 1000);
    sw_play_expect_end(socket);
    (void)usleep(20000);
    atomic_store(&has_ended, true);
    sw_play_put_ok(socket, 0);
}

/* After the close another client may have the name. */
START_TEST(a_close_waits_for_the_names_that_were_adopted) {
    struct spillway_region region = {0};
    sw_play_open(serve_an_adoption);
    sw_play_ck_error(spillway_adopt(sw_play.connection, LONGEST_NAME "3", &region, &sw_play.error), SPILLWAY_EINVAL,
                     SPILLWAY_SCOPE_REQUEST, "64 bytes");
    ck_assert_int_eq(spillway_adopt(sw_play.connection, LONGEST_NAME, &region, &sw_play.error), 0);
    ck_assert(region.slot == 5 && region.generation == 9);
    spillway_close(sw_play.connection);
    ck_assert(atomic_load(&has_ended));
    sw_play.connection = NULL;
    sw_play_close();
}
END_TEST

static void adopt_beside_a_spill(int socket) {
    struct sw_msg msg;
    greet(socket);
    sw_play_expect(socket, &msg, SW_MSG_BUILD);
    sw_play_expect(socket, &msg, SW_MSG_ADOPT);
    sw_play_put_result(socket, msg.header.seq, 5, EACH_BYTES);
    while (sw_play_get(socket, &msg))
        continue;
    sw_play_put_ok(socket, 0);
}

/* A spill without a name that nobody waits for is in nobody's way. */
START_TEST(a_region_is_adopted_beside_an_abandoned_spill) {
    struct spillway_region region = {0};
    start(adopt_beside_a_spill, 0);
    spillway_ticket_free(spill_all());
    ck_assert_int_eq(spillway_adopt(sw_play.connection, "orders", &region, &sw_play.error), 0);
    sw_play_close();
}
END_TEST

static atomic_bool has_answered;

static void serve_a_late_drop(int socket) {
    struct sw_msg msg;
    greet(socket);
    sw_play_expect(socket, &msg, SW_MSG_BUILD);
    const uint32_t seq = msg.header.seq;
    (void)sem_wait(&sw_play.go);
    sw_play_put_batch(socket, seq, 1, 1, EACH_BYTES);
    atomic_store(&has_answered, true);
    sw_play_expect_drop(socket, 1);
    sw_play_expect(socket, &msg, SW_MSG_ADOPT);
    sw_play_put_result(socket, msg.header.seq, 5, EACH_BYTES);
    while (sw_play_get(socket, &msg))
        continue;
    sw_play_put_ok(socket, 0);
}

/* The library drops the region of a ticket that was freed. Adopted before that, it would be gone after it. */
START_TEST(nothing_is_adopted_that_is_to_be_dropped) {
    struct spillway_ticket *ticket = NULL;
    struct spillway_region region = {0};
    start(serve_a_late_drop, 0);
    requests[0].name = "orders";
    ck_assert_int_eq(spillway_spill(sw_play.connection, requests, 1, &ticket, &sw_play.error), 0);
    spillway_ticket_free(ticket);
    sw_play_ck_error(spillway_adopt(sw_play.connection, "orders", &region, &sw_play.error), SPILLWAY_EBUSY,
                     SPILLWAY_SCOPE_REQUEST, "try again");
    ck_assert_int_eq(sem_post(&sw_play.go), 0);
    while (!atomic_load(&has_answered))
        (void)usleep(100);
    ck_assert_int_eq(spillway_adopt(sw_play.connection, "orders", &region, &sw_play.error), 0);
    sw_play_close();
}
END_TEST

/* ---- structs of other versions, and what cannot be --------------------------------------------------------------- */

static void serve_nothing(int socket) {
    greet(socket);
    sw_play_expect_end(socket);
}

static void (*spoil)(void);

static void spoil_size(void) {
    requests[0].size = sizeof requests[0] - 8;
}
static void spoil_second_size(void) {
    requests[1].size = 0;
}
static void spoil_long_size(void) {
    for (int i = 0; i < N; i++)
        requests[i].size = 4096 + 8;
}
static void spoil_flags(void) {
    requests[0].flags = 1u << 20;
}
static void spoil_keep(void) {
    requests[0].flags = SPILLWAY_KEEP;
}
static void spoil_packed(void) {
    requests[2].flags = SPILLWAY_PACKED;
}
static void spoil_part(void) {
    requests[2].flags = SPILLWAY_PART;
}
static void spoil_each(void) {
    requests[2].flags = SPILLWAY_EACH;
}
static void spoil_packs(void) {
    requests[1].flags = SPILLWAY_IN_PLACE;
}
static void spoil_name(void) {
    requests[1].name = "";
}
static void spoil_long_name(void) {
    requests[1].name = "0123456789012345678901234567890123456789012345678901234567890123";
}
static void spoil_packed_name(void) {
    requests[0].flags = SPILLWAY_IN_PLACE;
    requests[0].name = "orders";
}
static void spoil_buffers(void) {
    requests[0].buffers = NULL;
}
static void spoil_no_buffers(void) {
    requests[0].n_buffers = 0;
}
static void spoil_many_buffers(void) {
    requests[0].n_buffers = SPILLWAY_MAX_BUFFERS + 1;
}
static void spoil_reserved(void) {
    buffers[1].reserved[1] = 1;
}
static void spoil_source(void) {
    buffers[1].source = 1;
}
static void spoil_stride(void) {
    buffers[1].stride = 8;
}
static void spoil_source_offset(void) {
    buffers[1].source_offset = 8;
}
static void spoil_durability(void) {
    requests[1].name = "a";
    requests[1].durability = 3;
}

static void spoil_nameless(void) {
    requests[1].durability = SPILLWAY_DURABLE_HOST;
}

static void spoil_urgency(void) {
    requests[2].urgency = 1;
}
static void spoil_type(void) {
    buffers[0].type = SPILLWAY_DEC128 + 1;
}
static void spoil_region(void) {
    requests[0].region.slot = 1;
}
static void spoil_generation(void) {
    requests[0].region.generation = 1;
}
static void spoil_preference(void) {
    requests[0].prefer = SPILLWAY_PREFER_ROOM + 1;
}
static void spoil_memory(void) {
    buffers[2].data = NULL;
}
static void spoil_empty_memory(void) {
    buffers[2] = (struct spillway_buffer){0};
}

static const struct {
    void (*spoil)(void);
    int code;
    const char *text;
} wrong[] = {{spoil_size, SPILLWAY_EINVAL, "sizeof"},
             {spoil_second_size, SPILLWAY_EINVAL, "request 2 of 3"},
             {spoil_long_size, SPILLWAY_EINVAL, "size is 4104"},
             {spoil_flags, SPILLWAY_EINVAL, "unknown flags 0x100000"},
             {spoil_keep, SPILLWAY_EINVAL, "unknown flags 0x1"},
             {spoil_packed, SPILLWAY_ENOTSUP, "request 3 of 3"},
             {spoil_part, SPILLWAY_ENOTSUP, "not there yet"},
             {spoil_each, SPILLWAY_EINVAL, "all requests of a call"},
             {spoil_packs, SPILLWAY_EINVAL, "need SPILLWAY_EACH"},
             {spoil_name, SPILLWAY_EINVAL, "1 to 63"},
             {spoil_long_name, SPILLWAY_EINVAL, "1 to 63"},
             {spoil_packed_name, SPILLWAY_EINVAL, "cannot be durable"},
             {spoil_buffers, SPILLWAY_EINVAL, "buffers, must be 1 to 64"},
             {spoil_no_buffers, SPILLWAY_EINVAL, "0 buffers"},
             {spoil_many_buffers, SPILLWAY_EINVAL, "65 buffers"},
             {spoil_reserved, SPILLWAY_EINVAL, "reserved"},
             {spoil_source, SPILLWAY_EINVAL, "reserved"},
             {spoil_stride, SPILLWAY_EINVAL, "reserved"},
             {spoil_source_offset, SPILLWAY_EINVAL, "reserved"},
             {spoil_urgency, SPILLWAY_EINVAL, "reserved"},
             {spoil_durability, SPILLWAY_EINVAL, "durability 3"},
             {spoil_nameless, SPILLWAY_EINVAL, "needs a name"},
             {spoil_type, SPILLWAY_EINVAL, "type 15"},
             {spoil_region, SPILLWAY_EINVAL, "region"},
             {spoil_generation, SPILLWAY_EINVAL, "region"},
             {spoil_preference, SPILLWAY_EINVAL, "preference 3"},
             {spoil_memory, SPILLWAY_EINVAL, "NULL"},
             {spoil_empty_memory, SPILLWAY_EINVAL, "data is not set"}};

START_TEST(invalid_requests_are_refused) {
    struct spillway_ticket *ticket = NULL;
    start(serve_nothing, 0);
    spoil = wrong[_i].spoil;
    spoil();
    const long live = sw_alloc_live();
    sw_play_ck_error(spillway_spill(sw_play.connection, requests, N, &ticket, &sw_play.error), wrong[_i].code,
                     SPILLWAY_SCOPE_REQUEST, wrong[_i].text);
    ck_assert_ptr_null(ticket);
    ck_assert_int_eq(sw_alloc_live(), live);
    sw_play_close();
}
END_TEST

/* Unpacking ends what is packed. */
START_TEST(an_unpack_keeps_nothing) {
    struct spillway_ticket *ticket = NULL;
    start(serve_nothing, SPILLWAY_IN_PLACE | SPILLWAY_KEEP);
    sw_play_ck_error(spillway_restore(sw_play.connection, requests, 1, &ticket, &sw_play.error), SPILLWAY_EINVAL,
                     SPILLWAY_SCOPE_REQUEST, "cannot be kept");
    sw_play_close();
}
END_TEST

/* A caller that was built with a later header: longer structs, which say nothing new. */
struct later_request {
    struct spillway_request request;
    uint64_t more[2];
};
struct later_result {
    struct spillway_result result;
    uint64_t more[3];
};

static void serve_three(int socket) {
    struct sw_msg msg;
    greet(socket);
    sw_play_expect(socket, &msg, SW_MSG_BUILD);
    SW_ASSERT(msg.u.build.n_builds == N && msg.u.build.chunks[2].offset == 2 * EACH_BYTES);
    sw_play_put_batch(socket, msg.header.seq, N, 1, N * EACH_BYTES);
    sw_play_expect_end(socket);
}

enum { TOO_LONG = 4097 }; /* for a struct of any version */

START_TEST(structs_of_a_later_version_are_read) {
    struct later_request later[N];
    struct later_result told[N];
    struct spillway_ticket *ticket = NULL;
    start(serve_three, 0);
    memset(later, 0, sizeof later);
    memset(told, 0xee, sizeof told);
    for (uint32_t i = 0; i < N; i++) {
        later[i].request = requests[i];
        later[i].request.size = sizeof later[i];
    }
    told[0].result.size = sizeof told[0];
    for (size_t i = 0; i < sizeof later[1].more; i++) { /* which this library does not know */
        ((uint8_t *)later[1].more)[i] = 1;
        sw_play_ck_error(spillway_spill(sw_play.connection, &later[0].request, N, &ticket, &sw_play.error),
                         SPILLWAY_EINVAL, SPILLWAY_SCOPE_REQUEST, "is not 0");
        ((uint8_t *)later[1].more)[i] = 0;
    }
    later[1].request.size = sizeof later[1].request;
    sw_play_ck_error(spillway_spill(sw_play.connection, &later[0].request, N, &ticket, &sw_play.error), SPILLWAY_EINVAL,
                     SPILLWAY_SCOPE_REQUEST, "differ in size");
    later[1].request.size = sizeof later[1];
    ck_assert_int_eq(spillway_spill(sw_play.connection, &later[0].request, N, &ticket, &sw_play.error), 0);
    sw_play_ck_error(spillway_wait(ticket, -1, &told[0].result, N - 1, &sw_play.error), SPILLWAY_EINVAL,
                     SPILLWAY_SCOPE_REQUEST, "room for 2 results");
    told[0].result.size = TOO_LONG;
    sw_play_ck_error(spillway_wait(ticket, -1, &told[0].result, N, &sw_play.error), SPILLWAY_EINVAL,
                     SPILLWAY_SCOPE_REQUEST, "size is");
    told[0].result.size = sizeof told[0];
    ck_assert_int_eq(spillway_wait(ticket, -1, &told[0].result, N, &sw_play.error), 0);
    for (uint32_t i = 0; i < N; i++) {
        ck_assert_uint_eq(told[i].result.size, sizeof told[i]);
        ck_assert_uint_eq(told[i].result.region.slot, i + 1);
        ck_assert_uint_eq(told[i].more[0] | told[i].more[2], 0);
    }
    sw_play_close();
}
END_TEST

static void only_greet(int socket) {
    sw_play_greet(socket);
    sw_play_expect_end(socket);
}

/* Not set, or too short for the first version, or too long for any: nothing is written there. */
START_TEST(sizes_that_no_struct_has_are_refused) {
    static const size_t sizes[] = {0, 8, TOO_LONG};
    union {
        struct spillway_status status;
        struct spillway_region_info info;
        struct spillway_list_item item;
    } u = {.status.size = sizes[_i]};
    sw_play_open(only_greet);
    sw_play_ck_error(spillway_status(sw_play.connection, &u.status, &sw_play.error), SPILLWAY_EINVAL,
                     SPILLWAY_SCOPE_REQUEST, "struct spillway_status");
    sw_play_ck_error(spillway_query(sw_play.connection, (struct spillway_region){1, 9}, &u.info, &sw_play.error),
                     SPILLWAY_EINVAL, SPILLWAY_SCOPE_REQUEST, "struct spillway_region_info");
    sw_play_ck_error(spillway_list(sw_play.connection, NULL, &u.item, 1, &sw_play.error), SPILLWAY_EINVAL,
                     SPILLWAY_SCOPE_REQUEST, "struct spillway_list_item");
    ck_assert_uint_eq(u.status.size, sizes[_i]);
    sw_play_close();
}
END_TEST

/* ---- listing ----------------------------------------------------------------------------------------------------- */

static void list_two_packets(int socket) {
    static struct sw_wire_listed items[SW_PROTO_MAX_ITEMS];
    sw_play_greet(socket);
    for (unsigned n = 0; n < 2; n++) {
        struct sw_msg msg, reply = {.u.listing = {.n_items = n ? 4 : SW_PROTO_MAX_ITEMS, .items = items}};
        sw_play_expect(socket, &msg, SW_MSG_LIST);
        SW_ASSERT(msg.u.list.max == (n ? 44 : SW_PROTO_MAX_ITEMS));
        SW_ASSERT(strcmp((const char *)msg.u.list.after, n ? "r255" : "a") == 0);
        for (unsigned i = 0; i < SW_PROTO_MAX_ITEMS; i++) {
            (void)snprintf(items[i].name, sizeof items[i].name, "r%u", n * SW_PROTO_MAX_ITEMS + i);
            items[i].raw_bytes = n * SW_PROTO_MAX_ITEMS + i;
            items[i].durability = i == 3;
            memcpy(items[i].state, "restoring", 9);
        }
        sw_play_put(socket, &reply, SW_MSG_LISTING, msg.header.seq);
    }
    sw_play_expect_end(socket);
}

START_TEST(a_long_list_comes_in_parts) {
    static struct spillway_list_item items[300];
    sw_play_open(list_two_packets);
    items[0].size = sizeof items[0];
    ck_assert_int_eq(spillway_list(sw_play.connection, "a", items, 300, &sw_play.error), 260);
    ck_assert_str_eq(items[259].name, "r259");
    ck_assert_uint_eq(items[259].raw_bytes, 259);
    ck_assert_uint_eq(items[258].durability, 0);
    ck_assert_uint_eq(items[259].durability, SPILLWAY_DURABLE_HOST);
    ck_assert_str_eq(items[259].state, "restoring");
    sw_play_close();
}
END_TEST

static void list_and_fail(int socket) {
    static struct sw_wire_listed items[SW_PROTO_MAX_ITEMS];
    struct sw_msg msg, reply = {.u.listing = {.n_items = SW_PROTO_MAX_ITEMS, .items = items}};
    sw_play_greet(socket);
    for (unsigned i = 0; i < SW_PROTO_MAX_ITEMS; i++)
        (void)snprintf(items[i].name, sizeof items[i].name, "r%u", i);
    sw_play_expect(socket, &msg, SW_MSG_LIST);
    sw_play_put(socket, &reply, SW_MSG_LISTING, msg.header.seq);
    sw_play_expect(socket, &msg, SW_MSG_LIST);
    sw_play_put_error(socket, msg.header.seq, "ENOMEM", SW_SCOPE_REQUEST, "no memory for more");
    sw_play_expect_end(socket);
}

/* A list whose second part fails is none. */
START_TEST(each_part_of_a_list_may_fail) {
    static struct spillway_list_item items[300];
    sw_play_open(list_and_fail);
    items[0].size = sizeof items[0];
    sw_play_ck_error(spillway_list(sw_play.connection, NULL, items, 300, &sw_play.error), SPILLWAY_ENOMEM,
                     SPILLWAY_SCOPE_REQUEST, "no memory for more");
    sw_play_close();
}
END_TEST

static uint16_t n_listed; /* in the answer */

static void serve_a_list(int socket) {
    static struct sw_wire_listed items[SW_PROTO_MAX_ITEMS];
    struct sw_msg msg, reply = {.u.listing = {.n_items = n_listed, .items = items}};
    sw_play_greet(socket);
    sw_play_expect(socket, &msg, SW_MSG_LIST);
    sw_play_put(socket, &reply, SW_MSG_LISTING, msg.header.seq);
    sw_play_expect_end(socket);
}

/* Nothing behind the caller's array is written to: by an answer that fills it, nor by one that has more. */
START_TEST(a_list_has_no_more_than_its_array) {
    static struct spillway_list_item items[SW_PROTO_MAX_ITEMS + 1];
    const uint32_t max = _i ? 2 : SW_PROTO_MAX_ITEMS;
    n_listed = _i ? 3 : SW_PROTO_MAX_ITEMS;
    sw_play_open(serve_a_list);
    items[0].size = sizeof items[0];
    const int rc = spillway_list(sw_play.connection, NULL, items, max, &sw_play.error);
    ck_assert_int_eq(rc, _i ? -SPILLWAY_EPROTO : (int)max);
    ck_assert_uint_eq(items[max].size, 0);
    sw_play_close();
}
END_TEST

int main(void) {
    Suite *suite = suite_create("ipc_client_calls");
    TCase *tcase = tcase_create("calls");
    tcase_add_test(tcase, each_request_has_its_own_outcome);
    tcase_add_test(tcase, the_error_of_a_device_names_no_request);
    tcase_add_test(tcase, results_are_each_its_own);
    tcase_add_loop_test(tcase, unreported_regions_are_dropped, 0, 2);
    tcase_add_test(tcase, names_and_types_go_with_their_requests);
    tcase_add_test(tcase, a_call_is_canceled);
    tcase_add_test(tcase, a_restore_that_is_canceled_keeps_the_regions);
    tcase_add_test(tcase, a_restore_goes_on_without_its_ticket);
    tcase_add_test(tcase, a_call_has_a_time_limit);
    tcase_add_test(tcase, a_time_limit_wakes_the_event_loop);
    tcase_add_loop_test(tcase, the_first_time_limit_wakes_the_event_loop, 0, 2);
    tcase_add_test(tcase, each_time_limit_wakes_the_event_loop_for_itself);
    tcase_add_test(tcase, a_cancel_after_success_is_harmless);
    tcase_add_test(tcase, what_was_never_sent_is_canceled_by_itself);
    tcase_add_test(tcase, a_cancel_wakes_the_event_loop);
    tcase_add_test(tcase, the_first_drop_that_fails_is_reported);
    tcase_add_test(tcase, more_answers_than_drops_end_the_connection);
    tcase_add_test(tcase, a_close_waits_for_the_names_that_were_adopted);
    tcase_add_test(tcase, a_region_is_adopted_beside_an_abandoned_spill);
    tcase_add_test(tcase, nothing_is_adopted_that_is_to_be_dropped);
    tcase_add_loop_test(tcase, invalid_requests_are_refused, 0, (int)(sizeof wrong / sizeof wrong[0]));
    tcase_add_test(tcase, an_unpack_keeps_nothing);
    tcase_add_test(tcase, structs_of_a_later_version_are_read);
    tcase_add_loop_test(tcase, sizes_that_no_struct_has_are_refused, 0, 3);
    tcase_add_test(tcase, a_long_list_comes_in_parts);
    tcase_add_test(tcase, each_part_of_a_list_may_fail);
    tcase_add_loop_test(tcase, a_list_has_no_more_than_its_array, 0, 2);
    suite_add_tcase(suite, tcase);
    return sw_test_run(suite, CK_FORK);
}
