/* What a connection makes of the coder in its process: when it cannot be made, and when its work fails here or at the
 * service, which a test plays. Runs of the coder fail as a test tells them to. */
#include "base/assert.h"
#include "ipc/client/client_coded_state.h"
#include "ipc/client/client_packed.h"
#include "ipc/proto.h"
#include "ipc/spillway.h"
#include "tests/lib/play.h"
#include "tests/lib/requests.h"
#include "tests/lib/resume_rig.h"
#include "tests/lib/run.h"

#include <check.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { LONG_BYTES = 2 << 20, SECOND_BYTES = 16 << 20, CHUNK_BYTES = 65536 };

/* ---- the linker puts these in the place of the library's functions ----------------------------------------------- */

static int no_coder; /* why none is made; 0: it is */
static struct {
    enum sw_operation operation;
    int code; /* with which its runs fail; 0: they do not */
} failure;
static unsigned n_patient[2]; /* calls that have ended to be so, and that have begun */
static uint64_t stopped_us;   /* the time; 0: it goes on */
static atomic_uint n_unsent;  /* so often there is no memory for what ends a call */

int __real_sw_coder_get(struct sw_coder **ret, const struct sw_coder_place *place, struct sw_err *err);
int __wrap_sw_coder_get(struct sw_coder **ret, const struct sw_coder_place *place, struct sw_err *err);
void __real_sw_coder_add(struct sw_coder *coder, struct sw_coder_run *const *runs, unsigned n);
void __wrap_sw_coder_add(struct sw_coder *coder, struct sw_coder_run *const *runs, unsigned n);
void __real_sw_coder_be_patient(struct sw_coder *coder, bool is_patient);
void __wrap_sw_coder_be_patient(struct sw_coder *coder, bool is_patient);
bool __real_sw_way_end(struct sw_way *way);
bool __wrap_sw_way_end(struct sw_way *way);
uint64_t __real_sw_clock_us(void);
uint64_t __wrap_sw_clock_us(void);

int __wrap_sw_coder_get(struct sw_coder **ret, const struct sw_coder_place *place, struct sw_err *err) {
    return no_coder ? sw_err_set(err, no_coder, SW_SCOPE_REQUEST, "as the test has it")
                    : __real_sw_coder_get(ret, place, err);
}

void __wrap_sw_coder_add(struct sw_coder *coder, struct sw_coder_run *const *runs, unsigned n) {
    if (!failure.code || !n || runs[0]->request.operation != failure.operation) {
        __real_sw_coder_add(coder, runs, n);
        return;
    }
    for (unsigned i = 0; i < n; i++) {
        (void)sw_err_set(&runs[i]->run.outcome.err, failure.code, SW_SCOPE_REGION, "as the test has it");
        atomic_store(&runs[i]->is_over, true);
        sw_coder_user_wake(runs[i]->user);
    }
}

void __wrap_sw_coder_be_patient(struct sw_coder *coder, bool is_patient) {
    n_patient[is_patient]++;
    __real_sw_coder_be_patient(coder, is_patient);
}

bool __wrap_sw_way_end(struct sw_way *way) {
    if (!atomic_load(&n_unsent))
        return __real_sw_way_end(way);
    (void)atomic_fetch_sub(&n_unsent, 1);
    return false;
}

uint64_t __wrap_sw_clock_us(void) {
    return stopped_us ? stopped_us : __real_sw_clock_us();
}

/* ---- the daemon -------------------------------------------------------------------------------------------------- */

static void answer_coder(int socket, const struct sw_msg *msg) {
    struct sw_msg ok = {.u.coder_ok = {.codecs = UINT64_MAX, .bytes = msg->u.coder.bytes, .chunk_bytes = CHUNK_BYTES}};
    sw_play_put(socket, &ok, SW_MSG_CODER_OK, msg->header.seq);
}

/* Until it has the frame buffers. */
static void greet(int socket) {
    struct sw_msg msg;
    sw_resume_greet(socket, false);
    sw_play_expect(socket, &msg, SW_MSG_CODER);
    answer_coder(socket, &msg);
    (void)sw_play_register(socket);
}

/* An answer to a packet of one item: it has failed. Some answers say so by an error, others by a result. */
static bool says_by_result;

static void put_failure(int socket, uint32_t seq, const char *name, const char *text) {
    const struct sw_wire_result result = {.error = 1, .scope = SW_SCOPE_REQUEST};
    struct sw_wire_text code = {{0}};
    struct sw_msg reply = {.u.results = {.n_results = 1,
                                         .n_texts = 1,
                                         .text_bytes = (uint16_t)strlen(text),
                                         .results = &result,
                                         .texts = &code,
                                         .text = text}};
    memcpy(code.text, name, strlen(name));
    if (says_by_result)
        sw_play_put(socket, &reply, SW_MSG_RESULTS, seq);
    else
        sw_play_put_error(socket, seq, name, SW_SCOPE_REQUEST, text);
}

static void expect_nothing(int socket) {
    greet(socket);
    sw_play_expect_end(socket);
}

static unsigned flags_of(const struct sw_msg *msg) {
    return msg->header.type == SW_MSG_BUILD ? msg->u.build.builds[0].flags : 0u;
}

/* ---- the client -------------------------------------------------------------------------------------------------- */

static uint8_t *heap;

static void open_client(void (*serve)(int socket)) {
    heap = sw_play_open_coded(serve, LONG_BYTES + SECOND_BYTES);
}

static void close_client(void) {
    sw_play_close();
    free(heap);
}

static int wait_for(struct spillway_ticket *ticket, struct spillway_result *ret) {
    ret->size = sizeof *ret;
    const int rc = spillway_wait(ticket, SW_TEST_WAIT_MS, ret, 1, &sw_play.error);
    spillway_ticket_free(ticket);
    return rc;
}

/* ---- there is no coder ------------------------------------------------------------------------------------------- */

static atomic_uint n_asked, n_given_back;
static atomic_bool is_coded; /* the last spill */

static void serve_without_a_coder(int socket) {
    struct sw_msg msg;
    sw_resume_greet(socket, false);
    while (sw_play_get(socket, &msg))
        if (msg.header.type == SW_MSG_CODER) {
            atomic_fetch_add(msg.u.coder.bytes ? &n_asked : &n_given_back, 1);
            answer_coder(socket, &msg);
        } else if (msg.header.type == SW_MSG_BUILD) {
            atomic_store(&is_coded, msg.u.build.chunks[0].frame_bytes > 0);
            sw_play_put_result(socket, msg.header.seq, 1, SW_PLAY_BYTES);
        } else {
            sw_play_put_ok(socket, msg.header.seq);
        }
}

static const struct {
    int code;
    bool may_pass; /* there may be room later */
} reasons[] = {{-SW_ELIMIT, true}, {-SW_ENOMEM, true}, {-SW_EBUSY, true}, {-SW_EGPU, false}, {-SW_ENOTSUP, false}};

static void ck_spilled(bool by_client, unsigned n) {
    struct spillway_result result;
    ck_assert_int_eq(wait_for(sw_play_spill_of(sw_play.data, SW_PLAY_BYTES, 0), &result), 0);
    ck_assert_int_eq(atomic_load(&is_coded), by_client);
    ck_assert_uint_eq(atomic_load(&n_asked), n);
}

/* Where only room is missing it is tried again, a second later, and others may have the grant until then. */
START_TEST(a_coder_without_room_is_tried_again) {
    const bool again = reasons[_i].may_pass;
    open_client(serve_without_a_coder);
    no_coder = reasons[_i].code;
    stopped_us = __real_sw_clock_us();
    ck_spilled(false, 1);
    ck_assert_uint_eq(atomic_load(&n_given_back), again);
    no_coder = 0;
    stopped_us += 999999;
    ck_spilled(false, 1);
    stopped_us += 1;
    ck_spilled(again, again ? 2 : 1);
    close_client();
}
END_TEST

/* ---- calls ------------------------------------------------------------------------------------------------------- */

static bool refuses_beginning; /* which may have no frames */

/* The first packet with frames has no room, and nothing of the call is begun again. */
static void refuse_frames(int socket) {
    struct sw_msg msg;
    bool has_begun = false, has_refused = false;
    greet(socket);
    while (sw_play_get(socket, &msg)) {
        const bool begins = flags_of(&msg) & SW_BUILD_BEGIN;
        const bool may_refuse = msg.header.type == SW_MSG_BUILD && (msg.u.build.n_chunks || refuses_beginning);
        if (begins && has_begun) {
            sw_play_put_error(socket, msg.header.seq, "EBUSY", SW_SCOPE_REQUEST, "begun again");
        } else if (may_refuse && !has_refused) {
            put_failure(socket, msg.header.seq, "ENOSPACE", "no room");
            has_refused = true;
        } else if (msg.header.type == SW_MSG_BUILD) {
            sw_play_put_result(socket, msg.header.seq, 0, 0);
        } else {
            sw_play_put_ok(socket, msg.header.seq);
        }
        has_begun |= begins;
    }
}

/* The service would refuse the same bytes again. Loop: all or nothing, or each by itself; how it says so. */
START_TEST(what_the_service_refuses_is_not_tried_another_way) {
    struct spillway_result result;
    says_by_result = _i & 2;
    refuses_beginning = _i & 4;
    open_client(refuse_frames);
    sw_play_ck_error(wait_for(sw_play_spill_of(heap, LONG_BYTES, _i & 1 ? SPILLWAY_EACH : 0), &result),
                     SPILLWAY_ENOSPACE, SPILLWAY_SCOPE_REQUEST, "no room");
    ck_assert_int_eq(result.code, -SPILLWAY_ENOSPACE);
    close_client();
}
END_TEST

static bool is_encoded_here;

/* Stores whatever comes. */
static void store_all(int socket) {
    struct sw_msg msg;
    uint64_t stored = 0;
    greet(socket);
    while (sw_play_get(socket, &msg)) {
        uint64_t bytes = 0;
        for (unsigned i = 0; msg.header.type == SW_MSG_BUILD && i < msg.u.build.n_chunks; i++) {
            bytes += msg.u.build.chunks[i].raw_bytes;
            is_encoded_here |= msg.u.build.chunks[i].frame_bytes > 0;
        }
        stored = flags_of(&msg) & SW_BUILD_BEGIN ? bytes : stored + bytes;
        if (msg.header.type == SW_MSG_BUILD)
            sw_play_put_result(socket, msg.header.seq, 1, flags_of(&msg) & SW_BUILD_COMMIT ? stored : bytes);
        else
            sw_play_put_ok(socket, msg.header.seq);
    }
}

/* A failure of this side's is none of the call's: the service encodes. */
START_TEST(what_fails_here_is_the_service_s) {
    struct spillway_result result;
    open_client(store_all);
    failure.operation = SW_OP_SPILL;
    failure.code = -SW_EGPU;
    ck_assert_int_eq(wait_for(sw_play_spill_of(heap, LONG_BYTES, 0), &result), 0);
    ck_assert_uint_eq(result.raw_bytes, LONG_BYTES);
    ck_assert_str_ne(result.coder, "client");
    close_client();
    ck_assert(!is_encoded_here);
}
END_TEST

/* Commits one region after the other: it answers packets about the second one, but for some, after the first commit. */
static void store_each(int socket) {
    enum { MOST = SECOND_BYTES / CHUNK_BYTES + 1, SOME = 8 };
    uint32_t held[MOST], n_held = 0, n_second = 0, first = 0;
    bool is_committed = false;
    struct sw_msg msg;
    greet(socket);
    while (sw_play_get(socket, &msg)) {
        const struct sw_msg_build *build = &msg.u.build;
        const bool commits = flags_of(&msg) & SW_BUILD_COMMIT;
        if (msg.header.type != SW_MSG_BUILD) {
            sw_play_put_ok(socket, msg.header.seq);
            continue;
        }
        if (flags_of(&msg) & SW_BUILD_BEGIN && build->buffers->raw_bytes == LONG_BYTES)
            first = build->builds->build;
        const bool is_first = build->builds->build == first;
        SW_ASSERT(!commits || build->n_builds == 1);
        n_second += !is_first;
        if (!is_first && !is_committed && n_second > SOME)
            held[n_held++] = msg.header.seq;
        else
            sw_play_put_result(socket, msg.header.seq, commits ? 1u + !is_first : 0,
                               !commits   ? 0
                               : is_first ? LONG_BYTES
                                          : SECOND_BYTES);
        is_committed |= commits;
        while (is_committed && n_held > 0)
            sw_play_put_result(socket, held[--n_held], 0, 0);
    }
}

/* Once a part is committed the service cannot do the rest. Until the call's end, and no longer, the coder waits for
 * kernels of others. */
START_TEST(a_call_is_patient_until_its_end) {
    const struct spillway_buffer buffers[] = {{.data = NULL, .bytes = LONG_BYTES},
                                              {.data = NULL, .bytes = SECOND_BYTES}};
    struct spillway_buffer both[2];
    struct spillway_request requests[2] = {0};
    struct spillway_result results[2] = {{.size = sizeof results[0]}};
    struct spillway_ticket *ticket = NULL;
    open_client(store_each);
    for (unsigned i = 0; i < 2; i++) {
        both[i] = buffers[i];
        both[i].data = heap + (i ? LONG_BYTES : 0);
    }
    sw_requests_of_each(requests, both, 2);
    requests[0].flags = requests[1].flags = SPILLWAY_EACH;
    ck_assert_int_eq(spillway_spill(sw_play.connection, requests, 2, &ticket, &sw_play.error), 0);
    ck_assert_int_eq(spillway_wait(ticket, SW_TEST_WAIT_MS, results, 2, &sw_play.error), 0);
    ck_assert_uint_eq(n_patient[true], 1);
    ck_assert_uint_eq(n_patient[false], 1);
    spillway_ticket_free(ticket);
    close_client();
}
END_TEST

/* Nothing comes any more that would wake it. */
START_TEST(a_call_that_lacked_memory_for_its_end_ends) {
    struct spillway_result result;
    open_client(store_all);
    atomic_store(&n_unsent, 3);
    ck_assert_int_eq(wait_for(sw_play_spill_of(heap, LONG_BYTES, 0), &result), 0);
    ck_assert_uint_eq(atomic_load(&n_unsent), 0);
    close_client();
}
END_TEST

/* Leaves when it has got frames. The next process takes none, and knows nothing of what was open. */
static void leave_with_frames(int socket) {
    struct sw_msg msg;
    greet(socket);
    do
        sw_play_expect(socket, &msg, SW_MSG_BUILD);
    while (!msg.u.build.n_chunks);
    sw_resume_leave(socket);
    const int again = sw_resume_come_back();
    while (sw_play_get(again, &msg)) {
        SW_ASSERT(!(flags_of(&msg) & SW_BUILD_ABORT));
        if (msg.header.type == SW_MSG_CODER)
            sw_play_put_error(again, msg.header.seq, "ENOTSUP", SW_SCOPE_REQUEST, "no frames");
        else if (msg.header.type == SW_MSG_BUILD)
            sw_play_put_error(again, msg.header.seq, "ENOSPACE", SW_SCOPE_REQUEST, "the other way");
        else
            sw_play_put_ok(again, msg.header.seq);
    }
    (void)close(again);
}

/* The service is gone, no run of the call is left, and it is to go another way. */
static bool waits_for_service(const struct spillway_ticket *ticket) {
    ck_assert_int_eq(sw_client_enter(sw_play.connection, NULL), 0);
    const struct sw_coded *op = sw_coded_of(ticket->call->way);
    const bool ret = sw_play.connection->link != SW_LINK_UP && op->falls_back && op->first_run == op->n_runs;
    sw_client_leave(sw_play.connection);
    return ret;
}

START_TEST(a_call_goes_another_way_when_the_service_is_back) {
    char hidden[sizeof sw_play.address.sun_path + 2];
    struct spillway_result result;
    open_client(leave_with_frames);
    (void)snprintf(hidden, sizeof hidden, "%s_", sw_play.address.sun_path);
    struct spillway_ticket *ticket = sw_play_spill_of(heap, LONG_BYTES, 0);
    ck_assert_int_eq(rename(sw_play.address.sun_path, hidden), 0);
    ck_assert_int_eq(sem_post(&sw_play.go), 0); /* once it has frames */
    while (!waits_for_service(ticket))
        sw_resume_dispatch();
    ck_assert_int_eq(sw_client_enter(sw_play.connection, NULL), 0);
    ck_assert_int_eq(spillway_dispatch(sw_play.connection, &sw_play.error), 0);
    ck_assert(sw_list_empty(&sw_play.connection->outbox)); /* what was open is gone: it need not be ended */
    sw_client_leave(sw_play.connection);
    ck_assert_int_eq(rename(hidden, sw_play.address.sun_path), 0);
    sw_play_ck_error(wait_for(ticket, &result), SPILLWAY_ENOSPACE, SPILLWAY_SCOPE_REQUEST, "the other way");
    close_client();
}
END_TEST

/* ---- calls that sleep ---------------------------------------------------------------------------------------------
 */

static bool has_what_it_waits_for;

static bool has_it(const void *arg) {
    ck_assert_ptr_eq(arg, heap);
    return has_what_it_waits_for;
}

/* Another thread goes on with the connection while a call sleeps like that. Returns whether it wakes the call. */
static bool wakes(struct sw_coder_link *link, const struct sw_sleeper *sleeper) {
    ck_assert_int_eq(sw_client_enter(sw_play.connection, NULL), 0);
    (void)spillway_dispatch(sw_play.connection, NULL); /* takes earlier news in */
    sw_play.connection->sleeper = *sleeper;
    link->user.serve(&link->user);
    sw_play.connection->sleeper.ended = NULL;
    const bool ret = atomic_load(&link->is_woken);
    sw_client_leave(sw_play.connection);
    return ret;
}

/* It has what it waits for, or waits by descriptors that are not the connection's any more. */
START_TEST(a_call_that_sleeps_is_woken_in_time) {
    open_client(store_all);
    ck_assert_int_eq(spillway_prepare(sw_play.connection, heap, &sw_play.error), 0);
    struct spillway *c = sw_play.connection;
    ck_assert_int_eq(sw_client_enter(c, NULL), 0);
    struct sw_coder_link *link = SW_CONTAINER_OF(c->coders.next, struct sw_coder_link, node);
    ck_assert(!c->sleeper.ended); /* the call that has slept is over */
    struct sw_sleeper sleeper = {.ended = has_it, .arg = heap, .link = c->link, .socket = c->socket};
    memcpy(sleeper.timers, c->timers, sizeof sleeper.timers);
    sw_client_leave(c);
    ck_assert(!wakes(link, &sleeper));
    has_what_it_waits_for = true;
    ck_assert(wakes(link, &sleeper));
    const struct sw_sleeper none = {0};
    ck_assert(!wakes(link, &none));
    has_what_it_waits_for = false;
    struct sw_sleeper other = sleeper;
    other.link = SW_LINK_DOWN;
    ck_assert(wakes(link, &other));
    other = sleeper;
    other.socket = -1;
    ck_assert(wakes(link, &other));
    for (unsigned i = 0; i < SW_TIMER_NR; i++) {
        other = sleeper;
        other.timers[i] = STDERR_FILENO;
        ck_assert(wakes(link, &other));
    }
    ck_assert(!wakes(link, &sleeper));
    close_client();
}
END_TEST

/* ---- packs ------------------------------------------------------------------------------------------------------- */

/* A pack during which the coder's operation fails is an error, the region's result too. */
static void ck_pack_fails(void (*serve)(int socket), enum sw_operation operation, int code, const char *text) {
    struct spillway_result result;
    open_client(serve);
    failure.operation = operation;
    failure.code = code;
    sw_play_ck_error(wait_for(sw_play_spill_of(heap, SW_PLAY_BYTES, SPILLWAY_IN_PLACE), &result), SPILLWAY_ELOST,
                     SPILLWAY_SCOPE_REGION, text);
    ck_assert_int_eq(result.code, -SPILLWAY_ELOST);
    close_client();
}

/* Nobody can pack bytes that are lost. */
START_TEST(a_pack_that_has_lost_the_bytes_is_not_tried_again) {
    ck_pack_fails(expect_nothing, SW_OP_PACK, -SW_ELOST, "as the test has it");
}
END_TEST

static void take_pack(int socket) {
    struct sw_msg msg;
    sw_play_expect(socket, &msg, SW_MSG_MEM_OPEN);
    sw_play_put_ok(socket, msg.header.seq);
    sw_play_expect(socket, &msg, SW_MSG_MEM_PARTS);
    sw_play_put_ok(socket, msg.header.seq);
    sw_play_expect(socket, &msg, SW_MSG_BUILD);
    SW_ASSERT(flags_of(&msg) == (SW_BUILD_BEGIN | SW_BUILD_COMMIT | SW_BUILD_IN_PLACE));
    sw_play_put_result(socket, msg.header.seq, 3, SW_PLAY_BYTES);
    sw_play_expect_end(socket);
}

static void pack(int socket) {
    greet(socket);
    take_pack(socket);
}

/* It takes no frames, and packs. */
static void pack_without_frames(int socket) {
    struct sw_msg msg;
    sw_resume_greet(socket, false);
    sw_play_expect(socket, &msg, SW_MSG_CODER);
    sw_play_put_error(socket, msg.header.seq, "ENOTSUP", SW_SCOPE_REQUEST, "no frames");
    take_pack(socket);
}

START_TEST(a_pack_without_a_coder_is_the_service_s) {
    struct spillway_result result;
    open_client(pack_without_frames);
    ck_assert_int_eq(wait_for(sw_play_spill_of(sw_play.data, SW_PLAY_BYTES, SPILLWAY_IN_PLACE), &result), 0);
    ck_assert_uint_eq(result.region.slot, 3);
    close_client();
}
END_TEST

/* The coder is asked for, and the answer comes late. */
static void answer_late(int socket) {
    struct sw_msg msg;
    sw_resume_greet(socket, false);
    sw_play_expect(socket, &msg, SW_MSG_CODER);
    (void)sem_wait(&sw_play.go);
    answer_coder(socket, &msg);
    while (sw_play_get(socket, &msg)) {
        SW_ASSERT(msg.header.type != SW_MSG_BUILD || (!msg.u.build.n_chunks && !(flags_of(&msg) & SW_BUILD_COMMIT)));
        if (msg.header.type == SW_MSG_BUILD)
            sw_play_put_result(socket, msg.header.seq, 0, 0);
        else
            sw_play_put_ok(socket, msg.header.seq);
    }
}

/* Loop: a pack, or a spill of a long region. */
START_TEST(a_call_that_is_canceled_before_it_begins_does_nothing) {
    struct spillway_result result;
    open_client(answer_late);
    struct spillway_ticket *ticket = sw_play_spill_of(heap, LONG_BYTES, _i ? 0 : SPILLWAY_IN_PLACE);
    ck_assert_int_eq(spillway_cancel(ticket, &sw_play.error), 0);
    sw_play_ck_error(wait_for(ticket, &result), SPILLWAY_ECANCELED, SPILLWAY_SCOPE_REQUEST, "spillway_cancel()");
    ck_assert_int_eq(result.code, -SPILLWAY_ECANCELED);
    ck_assert_int_eq(sem_post(&sw_play.go), 0);
    ck_assert_int_eq(spillway_prepare(sw_play.connection, heap, NULL), 0);
    for (unsigned i = 0; i < LONG_BYTES; i++)
        ck_assert_uint_eq(heap[i], 0);
    close_client();
}
END_TEST

/* The way that the library falls back to may fail at once. Loop: all or nothing, or each by itself. */
START_TEST(memory_that_is_gone_fails_the_other_way_too) {
    struct spillway_result results[2] = {{.size = sizeof results[0]}};
    struct spillway_request requests[2] = {0};
    struct spillway_buffer buffers[2];
    struct spillway_ticket *ticket = NULL;
    uint8_t *memory = mmap(NULL, 2 * LONG_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    ck_assert_ptr_ne(memory, MAP_FAILED);
    open_client(answer_late);
    failure.operation = SW_OP_SPILL;
    failure.code = -SW_EGPU;
    for (unsigned i = 0; i < 2; i++)
        buffers[i] = (struct spillway_buffer){.data = memory + i * LONG_BYTES, .bytes = LONG_BYTES};
    sw_requests_of_each(requests, buffers, 2);
    requests[0].flags = requests[1].flags = _i ? SPILLWAY_EACH : 0;
    ck_assert_int_eq(spillway_spill(sw_play.connection, requests, 2, &ticket, &sw_play.error), 0);
    ck_assert_int_eq(munmap(memory, 2 * LONG_BYTES), 0);
    ck_assert_int_eq(sem_post(&sw_play.go), 0);
    sw_play_ck_error(spillway_wait(ticket, SW_TEST_WAIT_MS, results, 2, &sw_play.error), SPILLWAY_EMEMKIND,
                     SPILLWAY_SCOPE_REQUEST, "");
    for (unsigned i = 0; i < 2; i++)
        ck_assert_int_eq(results[i].code, -SPILLWAY_EMEMKIND);
    spillway_ticket_free(ticket);
    close_client();
}
END_TEST

START_TEST(a_pack_that_has_failed_here_is_the_service_s) {
    struct spillway_result result;
    open_client(pack);
    failure.operation = SW_OP_PACK;
    failure.code = -SW_EGPU;
    ck_assert_int_eq(wait_for(sw_play_spill_of(sw_play.data, SW_PLAY_BYTES, SPILLWAY_IN_PLACE), &result), 0);
    ck_assert_uint_eq(result.region.slot, 3);
    close_client();
}
END_TEST

static void refuse_a_pack(int socket) {
    struct sw_msg msg;
    greet(socket);
    sw_play_expect(socket, &msg, SW_MSG_BUILD);
    SW_ASSERT(flags_of(&msg) & SW_BUILD_PACKED);
    put_failure(socket, msg.header.seq, "ENOSPACE", "too many regions");
    sw_play_expect_end(socket);
}

static unsigned n_packed_here;

static void take_any(int socket) {
    struct sw_msg msg;
    greet(socket);
    while (sw_play_get(socket, &msg))
        if (msg.header.type == SW_MSG_BUILD) {
            n_packed_here += (flags_of(&msg) & SW_BUILD_PACKED) != 0;
            sw_play_put_result(socket, msg.header.seq, 3, SW_PLAY_BYTES);
        } else {
            sw_play_put_ok(socket, msg.header.seq);
        }
}

/* Loop: which of a call's requests is to be packed. */
START_TEST(one_of_several_is_packed_here) {
    struct spillway_buffer both[2];
    struct spillway_request requests[2] = {0};
    struct spillway_ticket *ticket = NULL;
    open_client(take_any);
    for (unsigned i = 0; i < 2; i++)
        both[i] = (struct spillway_buffer){.data = heap + (size_t)i * SW_PLAY_BYTES, .bytes = SW_PLAY_BYTES};
    sw_requests_of_each(requests, both, 2);
    requests[0].flags = requests[1].flags = SPILLWAY_EACH;
    requests[_i].flags |= SPILLWAY_IN_PLACE;
    ck_assert_int_eq(spillway_spill(sw_play.connection, requests, 2, &ticket, &sw_play.error), 0);
    ck_assert_int_eq(spillway_wait(ticket, SW_TEST_WAIT_MS, NULL, 0, &sw_play.error), 0);
    spillway_ticket_free(ticket);
    close_client();
    ck_assert_uint_eq(n_packed_here, 1);
}
END_TEST

/* Loop: how the service says so. */
START_TEST(a_pack_that_is_refused_is_undone) {
    struct spillway_result result;
    says_by_result = _i;
    open_client(refuse_a_pack);
    for (unsigned i = 0; i < SW_PLAY_BYTES; i++)
        heap[i] = (uint8_t)(i % 7);
    sw_play_ck_error(wait_for(sw_play_spill_of(heap, SW_PLAY_BYTES, SPILLWAY_IN_PLACE), &result), SPILLWAY_ENOSPACE,
                     SPILLWAY_SCOPE_REQUEST, "too many regions");
    ck_assert(result.code == -SPILLWAY_ENOSPACE && !result.region.slot && !result.region.generation);
    for (unsigned i = 0; i < SW_PLAY_BYTES; i++)
        ck_assert_uint_eq(heap[i], i % 7);
    close_client();
}
END_TEST

/* What the caller has to know first is that the bytes are lost. */
START_TEST(a_pack_that_cannot_be_undone_is_a_loss) {
    ck_pack_fails(refuse_a_pack, SW_OP_UNPACK, -SW_EIO, "could not be undone");
}
END_TEST

static void know_a_pack(int socket) {
    struct sw_msg msg;
    greet(socket);
    sw_play_expect(socket, &msg, SW_MSG_BUILD);
    sw_play_put_result(socket, msg.header.seq, 7, SW_PLAY_BYTES);
    sw_play_expect(socket, &msg, SW_MSG_DISCARD);
    SW_ASSERT(msg.u.discard.flags == SW_REQ_CONSUME && msg.u.discard.n_ids == 1 && msg.u.discard.ids[0].slot == 7);
    sw_play_put_discarded(socket, msg.header.seq, 1);
    sw_play_expect_end(socket);
}

static struct spillway_ticket *unpack(struct spillway_region region) {
    struct spillway_ticket *ticket = NULL;
    ck_assert_int_eq(
        spillway_restore(sw_play.connection,
                         SW_REQUEST(SW_ONE(heap, SW_PLAY_BYTES), .region = region, .flags = SPILLWAY_IN_PLACE), 1,
                         &ticket, &sw_play.error),
        0);
    return ticket;
}

/* The region is where it was, and is free for another attempt. */
START_TEST(an_unpack_that_has_failed_can_be_repeated) {
    struct spillway_result packed, result;
    open_client(know_a_pack);
    ck_assert_int_eq(wait_for(sw_play_spill_of(heap, SW_PLAY_BYTES, SPILLWAY_IN_PLACE), &packed), 0);
    failure.operation = SW_OP_UNPACK;
    failure.code = -SW_EIO;
    sw_play_ck_error(wait_for(unpack(packed.region), &result), SPILLWAY_EIO, SPILLWAY_SCOPE_REGION,
                     "as the test has it");
    ck_assert_int_eq(result.code, -SPILLWAY_EIO);
    ck_assert(sw_packed_find(sw_play.connection, packed.region) &&
              !sw_packed_find(sw_play.connection, packed.region)->is_busy);
    failure.code = 0;
    ck_assert_int_eq(wait_for(unpack(packed.region), &result), 0);
    ck_assert_str_eq(result.codec, packed.codec);
    ck_assert_str_eq(result.reason, packed.reason);
    ck_assert_ptr_null(sw_packed_find(sw_play.connection, packed.region));
    close_client();
}
END_TEST

int main(void) {
    Suite *suite = suite_create("ipc_client_coder");
    TCase *tcase = tcase_create("coder");
    tcase_add_loop_test(tcase, a_coder_without_room_is_tried_again, 0, (int)(sizeof reasons / sizeof reasons[0]));
    tcase_add_loop_test(tcase, what_the_service_refuses_is_not_tried_another_way, 0, 8);
    tcase_add_test(tcase, what_fails_here_is_the_service_s);
    tcase_add_test(tcase, a_call_is_patient_until_its_end);
    tcase_add_test(tcase, a_call_that_lacked_memory_for_its_end_ends);
    tcase_add_test(tcase, a_call_goes_another_way_when_the_service_is_back);
    tcase_add_test(tcase, a_call_that_sleeps_is_woken_in_time);
    tcase_add_test(tcase, a_pack_that_has_lost_the_bytes_is_not_tried_again);
    tcase_add_test(tcase, a_pack_that_has_failed_here_is_the_service_s);
    tcase_add_test(tcase, a_pack_without_a_coder_is_the_service_s);
    tcase_add_loop_test(tcase, one_of_several_is_packed_here, 0, 2);
    tcase_add_loop_test(tcase, a_pack_that_is_refused_is_undone, 0, 2);
    tcase_add_loop_test(tcase, a_call_that_is_canceled_before_it_begins_does_nothing, 0, 2);
    tcase_add_loop_test(tcase, memory_that_is_gone_fails_the_other_way_too, 0, 2);
    tcase_add_test(tcase, a_pack_that_cannot_be_undone_is_a_loss);
    tcase_add_test(tcase, an_unpack_that_has_failed_can_be_repeated);
    suite_add_tcase(suite, tcase);
    return sw_test_run(suite, CK_FORK);
}
