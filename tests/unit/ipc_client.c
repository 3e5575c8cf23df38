/* The client library against a daemon played by a thread of the test, which answers late, out of order, with errors, or
 * not at all. */
#include "base/assert.h"
#include "ipc/client/client_staging.h"
#include "ipc/proto.h"
#include "ipc/spillway.h"
#include "tests/lib/play.h"
#include "tests/lib/requests.h"
#include "tests/lib/run.h"

#include <check.h>
#include <fcntl.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* ---- replies ----------------------------------------------------------------------------------------------------- */

static bool is_readable(int fd) {
    struct pollfd p = {.fd = fd, .events = POLLIN};
    return poll(&p, 1, 0) == 1;
}

static void answer_backwards(int socket) {
    sw_play_greet(socket);
    const uint32_t first = sw_play_take_spill(socket), second = sw_play_take_spill(socket);
    sw_play_put_result(socket, second + 2, 2, SW_PLAY_BYTES);
    sw_play_put_ok(socket, first);
    sw_play_put_ok(socket, second + 1);
    sw_play_put_ok(socket, second);
    (void)sem_wait(&sw_play.go);
    sw_play_put_result(socket, first + 2, 1, SW_PLAY_BYTES);
    sw_play_put_ok(socket, first + 1);
    sw_play_expect_end(socket);
}

START_TEST(replies_may_come_in_any_order) {
    struct spillway_result result = {.size = sizeof result};
    sw_play_open(answer_backwards);
    struct spillway_ticket *first = sw_play_spill(), *second = sw_play_spill();
    ck_assert_int_eq(spillway_wait(second, -1, &result, 1, &sw_play.error), 0);
    ck_assert_uint_eq(result.region.slot, 2);
    ck_assert_uint_eq(result.region.generation, 9);
    ck_assert_uint_eq(result.raw_bytes, SW_PLAY_BYTES);
    ck_assert_uint_eq(result.stored_bytes, 5);
    ck_assert_uint_eq(result.service_us, 7);
    ck_assert_str_eq(result.codec, "sixteen letters"); /* cut, for want of room */
    ck_assert_str_eq(result.reason, "pays");
    ck_assert_str_eq(result.tier, "host");
    ck_assert_int_eq(spillway_wait(first, 0, &result, 1, &sw_play.error), -SPILLWAY_EAGAIN);
    ck_assert_int_eq(sem_post(&sw_play.go), 0);
    ck_assert_int_eq(spillway_wait(first, -1, &result, 1, &sw_play.error), 0);
    ck_assert_uint_eq(result.region.slot, 1);
    ck_assert_int_eq(spillway_wait(second, 0, &result, 1, &sw_play.error), 0); /* again */
    ck_assert_uint_eq(result.region.slot, 2);
    spillway_ticket_free(first);
    spillway_ticket_free(second);
    sw_play_close();
}
END_TEST

static void answer_late(int socket) {
    sw_play_greet(socket);
    const uint32_t seq = sw_play_take_spill(socket);
    (void)sem_wait(&sw_play.go);
    sw_play_put_spilled(socket, seq, 1);
    sw_play_expect_end(socket);
}

enum { N_NEAR_THE_END = 2 * SW_CLIENT_MAX_GROUP };

/* The packets of a request have numbers in a row, none of which is 0: that is no request's. */
static void answer_near_the_end(int socket) {
    sw_play_greet(socket);
    for (uint32_t i = 0; i < N_NEAR_THE_END; i++) {
        const uint32_t first = sw_play_take_spill(socket);
        SW_ASSERT(first > 0 && first + 2 > first);
        sw_play_put_spilled(socket, first, i + 1);
    }
    sw_play_expect_end(socket);
}

START_TEST(seqs_wrap_around) {
    struct spillway_result result = {.size = sizeof result};
    sw_play_open(answer_near_the_end);
    for (uint32_t i = 0; i < N_NEAR_THE_END; i++) {
        sw_play.connection->next_seq = UINT32_MAX - i;
        ck_assert_int_eq(spillway_wait(sw_play_spill(), -1, &result, 1, &sw_play.error), 0);
        ck_assert_uint_eq(result.region.slot, i + 1);
    }
    sw_play_close();
}
END_TEST

START_TEST(wait_gives_up_in_time) {
    struct spillway_result result = {.size = sizeof result};
    sw_play_open(answer_late);
    struct spillway_ticket *ticket = sw_play_spill();
    sw_play_ck_error(spillway_wait(ticket, 0, &result, 1, &sw_play.error), SPILLWAY_EAGAIN, SPILLWAY_SCOPE_REQUEST,
                     "still runs");
    sw_play_ck_error(spillway_wait(ticket, 30, &result, 1, &sw_play.error), SPILLWAY_EAGAIN, SPILLWAY_SCOPE_REQUEST,
                     "30 ms");
    ck_assert_int_eq(sem_post(&sw_play.go), 0);
    ck_assert_int_eq(spillway_wait(ticket, 60000, &result, 1, &sw_play.error), 0);
    sw_play_close(); /* frees the ticket as well */
}
END_TEST

static void answer_status_last(int socket) {
    struct sw_msg msg;
    sw_play_greet(socket);
    sw_play_put_spilled(socket, sw_play_take_spill(socket), 1);
    sw_play_put_spilled(socket, sw_play_take_spill(socket), 2);
    sw_play_expect(socket, &msg, SW_MSG_STATUS);
    sw_play_put(socket, &msg, SW_MSG_STATUS_OK, msg.header.seq);
    sw_play_expect_end(socket);
}

/* Two reasons, then one that fills its field; the count is a lie: no more are taken than there is room for. */
static void answer_with_reasons(int socket) {
    struct sw_msg msg;
    sw_play_greet(socket);
    for (uint32_t n = 2; n <= 1000; n += 998) {
        sw_play_expect(socket, &msg, SW_MSG_STATUS);
        const uint32_t seq = msg.header.seq;
        sw_msg_init(&msg, SW_MSG_STATUS_OK);
        struct sw_msg_status_ok *status = &msg.u.status_ok;
        status->n_reasons = n;
        sw_msg_set_text(status->reasons, SW_PROTO_REASON_BYTES, "pays");
        sw_msg_set_text(status->reasons + SW_PROTO_REASON_BYTES, SW_PROTO_REASON_BYTES, "does not shrink");
        memset(status->reasons + (size_t)15 * SW_PROTO_REASON_BYTES, 'x', SW_PROTO_REASON_BYTES);
        status->reason_spills[0] = 7;
        status->reason_spills[1] = UINT64_MAX;
        status->reason_spills[15] = 15;
        sw_play_put(socket, &msg, SW_MSG_STATUS_OK, seq);
    }
    sw_play_expect_end(socket);
}

START_TEST(status_has_the_reasons) {
    struct spillway_status status = {.size = sizeof status};
    sw_play_open(answer_with_reasons);
    ck_assert_int_eq(spillway_status(sw_play.connection, &status, &sw_play.error), 0);
    ck_assert_uint_eq(status.n_reasons, 2);
    ck_assert_str_eq(status.reasons[0].text, "pays");
    ck_assert_uint_eq(status.reasons[0].spills, 7);
    ck_assert_str_eq(status.reasons[1].text, "does not shrink");
    ck_assert_uint_eq(status.reasons[1].spills, UINT64_MAX);
    ck_assert_uint_eq(status.reasons[15].spills, 0);
    ck_assert_int_eq(spillway_status(sw_play.connection, &status, &sw_play.error), 0);
    ck_assert_uint_eq(status.n_reasons, SPILLWAY_MAX_REASONS);
    ck_assert_uint_eq(strlen(status.reasons[15].text), sizeof status.reasons[15].text - 1);
    ck_assert_uint_eq(status.reasons[15].spills, 15);
    sw_play_close();
}
END_TEST

START_TEST(an_event_loop_sees_every_ticket_end) {
    struct spillway_result result = {.size = sizeof result};
    struct spillway_status status = {.size = sizeof status};
    sw_play_open(answer_status_last);
    ck_assert_int_eq(spillway_dispatch(sw_play.connection, &sw_play.error), 0);
    ck_assert(!is_readable(spillway_fd(sw_play.connection)));
    struct spillway_ticket *first = sw_play_spill(), *second = sw_play_spill();
    ck_assert_int_eq(spillway_status(sw_play.connection, &status, &sw_play.error),
                     0); /* takes in all that comes before its reply */
    ck_assert(is_readable(spillway_fd(sw_play.connection)));
    ck_assert_int_eq(spillway_dispatch(sw_play.connection, &sw_play.error), 2);
    ck_assert(!is_readable(spillway_fd(sw_play.connection)));
    ck_assert_int_eq(spillway_dispatch(sw_play.connection, &sw_play.error), 0);
    ck_assert_int_eq(spillway_wait(first, 0, &result, 1, &sw_play.error), 0);
    ck_assert_int_eq(spillway_wait(second, 0, &result, 1, &sw_play.error), 0);
    sw_play_close();
}
END_TEST

static void answer_two_before_status(int socket) {
    struct sw_msg msg;
    sw_play_greet(socket);
    for (uint32_t i = 1; i <= 2; i++) {
        const uint32_t seq = sw_play_take_spill(socket);
        sw_play_expect(socket, &msg, SW_MSG_STATUS);
        sw_play_put_spilled(socket, seq, i);
        sw_play_put(socket, &msg, SW_MSG_STATUS_OK, msg.header.seq);
    }
    sw_play_expect_end(socket);
}

/* Each time that another call takes the reply in, not only the first time. Reported in the order of their ends, also if
 * dispatch has counted only some. */
START_TEST(an_event_loop_wakes_again_and_again) {
    struct spillway_status status = {.size = sizeof status};
    struct spillway_ticket *tickets[2];
    sw_play_open(answer_two_before_status);
    for (unsigned i = 0; i < 2; i++) {
        tickets[i] = sw_play_spill();
        ck_assert_int_eq(spillway_status(sw_play.connection, &status, &sw_play.error), 0);
        ck_assert(is_readable(spillway_fd(sw_play.connection)));
        if (i == 0)
            ck_assert_int_eq(spillway_dispatch(sw_play.connection, &sw_play.error), 1);
    }
    for (unsigned i = 0; i < 2; i++)
        ck_assert_ptr_eq(spillway_next_done(sw_play.connection), tickets[i]);
    sw_play_close();
}
END_TEST

/* Answers five spills, last one first, and then whatever comes. */
static void answer_five_backwards(int socket) {
    uint32_t seqs[5];
    struct sw_msg msg;
    sw_play_greet(socket);
    for (int i = 0; i < 5; i++)
        seqs[i] = sw_play_take_spill(socket);
    for (int i = 5; i-- > 0;)
        sw_play_put_spilled(socket, seqs[i], (uint32_t)i);
    while (sw_play_get(socket, &msg)) {
        if (msg.header.type == SW_MSG_STATUS)
            sw_play_put(socket, &msg, SW_MSG_STATUS_OK, msg.header.seq);
        else
            sw_play_put_ok(socket, msg.header.seq);
    }
}

static void ck_next_done(const struct spillway_ticket *ticket) {
    ck_assert_ptr_eq(spillway_next_done(sw_play.connection), ticket);
}

START_TEST(every_completed_ticket_is_reported_once) {
    struct spillway_ticket *t[5];
    struct spillway_result result = {.size = sizeof result};
    struct spillway_status status = {.size = sizeof status};
    sw_play_open(answer_five_backwards);
    ck_next_done(NULL);
    for (int i = 0; i < 5; i++) {
        ck_assert_int_eq(spillway_spill(sw_play.connection,
                                        SW_REQUEST(SW_ONE(sw_play.data, SW_PLAY_BYTES), .user = &t[i]), 1, &t[i], NULL),
                         0);
    }
    spillway_ticket_free(t[4]); /* before it ends: nobody gets its result */
    ck_assert_int_eq(spillway_status(sw_play.connection, &status, &sw_play.error), 0);
    ck_assert_int_eq(spillway_wait(t[0], 0, &result, 1, &sw_play.error), 0);
    ck_next_done(t[3]);
    ck_assert_ptr_eq(spillway_ticket_user(t[3]), &t[3]);
    ck_assert_int_eq(spillway_dispatch(sw_play.connection, &sw_play.error), 2);
    ck_assert_int_eq(spillway_dispatch(sw_play.connection, &sw_play.error), 0);
    spillway_ticket_free(t[2]);
    ck_next_done(t[1]);
    ck_next_done(NULL);
    ck_assert_int_eq(spillway_dispatch(sw_play.connection, &sw_play.error), 0);
    for (unsigned i = 1; i <= 3; i += 2) {
        ck_assert_int_eq(spillway_wait(t[i], 0, &result, 1, &sw_play.error), 0);
        ck_assert_uint_eq(result.region.slot, i);
        ck_assert_ptr_eq(spillway_ticket_user(t[i]), &t[i]);
    }
    ck_next_done(NULL);
    spillway_ticket_free(t[1]);
    sw_play_close();
}
END_TEST

/* ---- errors ------------------------------------------------------------------------------------------------------ */

#define LONG_TEXT                                                                                                      \
    "sixty-four characters make one line of this text, and five lines "                                                \
    "sixty-four characters make one line of this text, and five lines "                                                \
    "sixty-four characters make one line of this text, and five lines "                                                \
    "sixty-four characters make one line of this text, and five lines "                                                \
    "sixty-four characters make one line of this text, and five lines "

static void answer_errors(int socket) {
    sw_play_greet(socket);
    uint32_t seq = sw_play_take_spill(socket);
    sw_play_put_ok(socket, seq);
    sw_play_put_ok(socket, seq + 1);
    sw_play_put_error(socket, seq + 2, "ENOSPACE", SW_SCOPE_REQUEST, "tier is full");
    seq = sw_play_take_spill(socket);
    sw_play_put_error(socket, seq + 2, "ENOENT", SW_SCOPE_REQUEST, "memory is not open");
    sw_play_put_error(socket, seq + 1, "EFDS", SW_SCOPE_REQUEST, "no such memory");
    sw_play_put_error(socket, seq, "EIMPORT", SW_SCOPE_DEVICE, LONG_TEXT);
    seq = sw_play_take_spill(socket);
    sw_play_put_ok(socket, seq);
    sw_play_put_ok(socket, seq + 1);
    sw_play_put_error(socket, seq + 2, "ENEWERTHANTHIS!!", (enum sw_scope)77, "");
    sw_play_expect_end(socket);
}

START_TEST(errors_arrive_with_name_scope_and_text) {
    sw_play_open(answer_errors);
    struct spillway_ticket *full = sw_play_spill(), *closed = sw_play_spill(), *unknown = sw_play_spill();
    sw_play_ck_error(spillway_wait(full, -1, NULL, 0, &sw_play.error), SPILLWAY_ENOSPACE, SPILLWAY_SCOPE_REQUEST,
                     "tier is full");
    ck_assert_int_eq(sw_play.error.cuda, 700);
    /* The first packet's error is the cause of the others'. */
    sw_play_ck_error(spillway_wait(closed, -1, NULL, 0, &sw_play.error), SPILLWAY_EIMPORT, SPILLWAY_SCOPE_DEVICE,
                     "sixty-four");
    ck_assert_uint_eq(strlen(sw_play.error.text), sizeof sw_play.error.text - 1);
    ck_assert_int_eq(strncmp(sw_play.error.text, LONG_TEXT, sizeof sw_play.error.text - 1), 0);
    sw_play_ck_error(spillway_wait(unknown, -1, NULL, 0, &sw_play.error), SPILLWAY_EPROTO, SPILLWAY_SCOPE_SESSION, "");
    ck_assert_int_eq(spillway_wait(unknown, 0, NULL, 0, NULL), -SPILLWAY_EPROTO);
    sw_play_close();
}
END_TEST

static void run_out_of_memory(int socket) {
    struct sw_msg msg;
    sw_play_greet(socket);
    const uint32_t seq = sw_play_take_spill(socket);
    sw_play_put_ok(socket, seq);
    sw_play_put_ok(socket, seq + 1);
    sw_play_put_error(socket, seq + 2, "ENOMEM", SW_SCOPE_REQUEST, "no memory for an operation");
    sw_play_expect(socket, &msg, SW_MSG_MEM_CLOSE);
    sw_play_put_error(socket, msg.header.seq, "ENOENT", SW_SCOPE_REQUEST, "memory is not open");
    sw_play_expect_end(socket);
}

START_TEST(memory_of_a_spill_that_never_began_is_closed) {
    sw_play_open(run_out_of_memory);
    struct spillway_ticket *ticket = sw_play_spill();
    ck_assert_int_eq(spillway_wait(ticket, -1, NULL, 0, &sw_play.error), -SPILLWAY_ENOMEM);
    sw_play_close();
}
END_TEST

static void die_in_mid_spill(int socket) {
    sw_play_greet(socket);
    sw_play_put_ok(socket, sw_play_take_spill(socket));
    sw_play_put_error(socket, sw_play_take_spill(socket), "EIMPORT", SW_SCOPE_REQUEST, "said before the end");
    (void)sem_wait(&sw_play.go);
}

START_TEST(a_dead_daemon_fails_everything) {
    struct spillway_status status = {.size = sizeof status};
    struct spillway_ticket *none = NULL;
    sw_play_open(die_in_mid_spill);
    struct spillway_ticket *first = sw_play_spill(), *second = sw_play_spill();
    ck_assert_int_eq(spillway_wait(first, 0, NULL, 0, &sw_play.error), -SPILLWAY_EAGAIN);
    ck_next_done(NULL);
    ck_assert_int_eq(sem_post(&sw_play.go), 0);
    sw_play_ck_error(spillway_wait(first, -1, NULL, 0, &sw_play.error), SPILLWAY_ECONN, SPILLWAY_SCOPE_SESSION,
                     "closed the connection");
    ck_next_done(second);
    ck_next_done(NULL);
    sw_play_ck_error(spillway_wait(second, -1, NULL, 0, &sw_play.error), SPILLWAY_EIMPORT, SPILLWAY_SCOPE_REQUEST,
                     "before the end");
    ck_assert(is_readable(spillway_fd(sw_play.connection)));
    sw_play_ck_error(spillway_dispatch(sw_play.connection, &sw_play.error), SPILLWAY_ECONN, SPILLWAY_SCOPE_SESSION, "");
    sw_play_ck_error(
        spillway_spill(sw_play.connection, SW_REQUEST(SW_ONE(sw_play.data, SW_PLAY_BYTES)), 1, &none, &sw_play.error),
        SPILLWAY_ECONN, SPILLWAY_SCOPE_SESSION, "");
    sw_play_ck_error(spillway_drop(sw_play.connection, &(struct spillway_region){1, 1}, 1, &sw_play.error),
                     SPILLWAY_ECONN, SPILLWAY_SCOPE_SESSION, "");
    sw_play_ck_error(spillway_status(sw_play.connection, &status, &sw_play.error), SPILLWAY_ECONN,
                     SPILLWAY_SCOPE_SESSION, "");
    spillway_ticket_free(first);
    sw_play_close();
}
END_TEST

static atomic_bool is_gone;

/* Ends with a request unread, which resets the connection, behind an answer. */
static void reset_behind_an_answer(int socket) {
    sw_play_greet(socket);
    const uint32_t first = sw_play_take_spill(socket);
    (void)sem_wait(&sw_play.go);
    sw_play_put_spilled(socket, first, 1);
    const int other = open("/dev/null", O_RDONLY | O_CLOEXEC);
    SW_ASSERT(other >= 0 && dup2(other, socket) == socket);
    (void)close(other);
    atomic_store(&is_gone, true);
}

/* The kernel reports a reset before it gives out what was sent earlier: that is not lost. */
START_TEST(answers_before_a_reset_arrive) {
    struct spillway_result result = {.size = sizeof result};
    sw_play_open(reset_behind_an_answer);
    struct spillway_ticket *first = sw_play_spill(), *second = sw_play_spill();
    ck_assert_int_eq(sem_post(&sw_play.go), 0);
    while (!atomic_load(&is_gone))
        (void)usleep(100);
    ck_assert_int_eq(spillway_wait(first, -1, &result, 1, &sw_play.error), 0);
    ck_assert_uint_eq(result.region.slot, 1);
    ck_assert_int_eq(spillway_wait(second, -1, NULL, 0, &sw_play.error), -SPILLWAY_ECONN);
    sw_play_close();
}
END_TEST

/* ---- tickets that nobody wants ----------------------------------------------------------------------------------- */

static void expect_drops_of_unseen_regions(int socket) {
    struct sw_msg status;
    sw_play_greet(socket);
    const uint32_t running = sw_play_take_spill(socket);
    sw_play_put_spilled(socket, sw_play_take_spill(socket), 2);
    sw_play_put_spilled(socket, sw_play_take_spill(socket), 3);
    sw_play_expect(socket, &status, SW_MSG_STATUS);
    sw_play_put(socket, &status, SW_MSG_STATUS_OK, status.header.seq);
    sw_play_expect_drop(socket, 2); /* was done, and its id not seen */
    (void)sem_wait(&sw_play.go);
    sw_play_put_spilled(socket, running, 1);
    sw_play_expect(socket, &status, SW_MSG_STATUS);
    sw_play_put(socket, &status, SW_MSG_STATUS_OK, status.header.seq);
    sw_play_expect_drop(socket, 1);
    sw_play_expect_end(socket);
}

START_TEST(freeing_a_ticket_drops_its_unknown_regions) {
    struct spillway_status status = {.size = sizeof status};
    struct spillway_result result = {.size = sizeof result};
    sw_play_open(expect_drops_of_unseen_regions);
    struct spillway_ticket *running = sw_play_spill(), *unseen = sw_play_spill(), *seen = sw_play_spill();
    spillway_ticket_free(running);
    ck_assert_int_eq(spillway_status(sw_play.connection, &status, &sw_play.error), 0);
    ck_assert_int_eq(spillway_wait(seen, 0, &result, 1, &sw_play.error), 0);
    ck_assert_int_eq(spillway_wait(unseen, 0, NULL, 0, &sw_play.error), 0); /* done, but the id was not asked for */
    spillway_ticket_free(unseen);
    spillway_ticket_free(seen);
    spillway_ticket_free(NULL);
    ck_assert_int_eq(spillway_dispatch(sw_play.connection, &sw_play.error), 0); /* wait has reported both */
    ck_assert_int_eq(sem_post(&sw_play.go), 0);
    ck_assert_int_eq(spillway_status(sw_play.connection, &status, &sw_play.error), 0);
    sw_play_close();
}
END_TEST

/* ---- the end ----------------------------------------------------------------------------------------------------- */

static atomic_bool has_ended;

/* The service has something of the client's for a while yet, when the client has hung up. */
static void end_late(int socket) {
    struct sw_msg msg;
    while (sw_play_get(socket, &msg))
        ;
    (void)usleep(50000);
    atomic_store(&has_ended, true);
}

static void open_memory_to_the_end(int socket) {
    uint32_t mem;
    sw_play_greet(socket);
    (void)sw_play_take_registration(socket, &mem);
    end_late(socket);
}

/* Although no call that the program knows of is running. */
START_TEST(close_waits_for_memory_that_is_being_opened) {
    sw_play_open(open_memory_to_the_end);
    spillway_set_timeout(sw_play.connection, 20);
    ck_assert_int_eq(spillway_register(sw_play.connection, sw_play.data, SW_PLAY_BYTES, &sw_play.error),
                     -SPILLWAY_ETIMEDOUT);
    spillway_close(sw_play.connection);
    sw_play.connection = NULL;
    ck_assert(atomic_load(&has_ended));
    sw_play_close();
}
END_TEST

static void keep_a_name_to_the_end(int socket) {
    sw_play_greet(socket);
    sw_play_put_spilled(socket, sw_play_take_spill(socket), 1);
    end_late(socket);
    sw_play_put_ok(socket, 0);
}

/* Then another connection can have the region at once. */
START_TEST(close_waits_until_names_are_free) {
    struct spillway_ticket *ticket = NULL;
    sw_play_open(keep_a_name_to_the_end);
    ck_assert_int_eq(spillway_spill(sw_play.connection, SW_REQUEST(SW_ONE(sw_play.data, SW_PLAY_BYTES), .name = "name"),
                                    1, &ticket, &sw_play.error),
                     0);
    ck_assert_int_eq(spillway_wait(ticket, -1, NULL, 0, &sw_play.error), 0);
    spillway_close(sw_play.connection);
    sw_play.connection = NULL;
    ck_assert(atomic_load(&has_ended));
    sw_play_close();
}
END_TEST

int main(void) {
    Suite *suite = suite_create("client");
    TCase *tcase = tcase_create("client");
    tcase_add_test(tcase, replies_may_come_in_any_order);
    tcase_add_test(tcase, seqs_wrap_around);
    tcase_add_test(tcase, wait_gives_up_in_time);
    tcase_add_test(tcase, status_has_the_reasons);
    tcase_add_test(tcase, an_event_loop_sees_every_ticket_end);
    tcase_add_test(tcase, an_event_loop_wakes_again_and_again);
    tcase_add_test(tcase, every_completed_ticket_is_reported_once);
    tcase_add_test(tcase, errors_arrive_with_name_scope_and_text);
    tcase_add_test(tcase, memory_of_a_spill_that_never_began_is_closed);
    tcase_add_test(tcase, a_dead_daemon_fails_everything);
    tcase_add_test(tcase, answers_before_a_reset_arrive);
    tcase_add_test(tcase, freeing_a_ticket_drops_its_unknown_regions);
    tcase_add_test(tcase, close_waits_for_memory_that_is_being_opened);
    tcase_add_test(tcase, close_waits_until_names_are_free);
    suite_add_tcase(suite, tcase);
    return sw_test_run(suite, CK_FORK);
}
