/* The texts of results, by number in the daemon's reply, against a played daemon. */
#include "base/assert.h"
#include "ipc/proto.h"
#include "ipc/spillway.h"
#include "tests/lib/play.h"
#include "tests/lib/requests.h"
#include "tests/lib/run.h"

#include <check.h>
#include <stdint.h>

enum { N = 3, EACH_BYTES = 100 };

static struct spillway_result results[N] = {{.size = sizeof results[0]}};

/* N requests of a buffer each, side by side. */
static struct spillway_ticket *spill_all(void) {
    struct spillway_buffer buffers[N];
    struct spillway_request requests[N] = {0};
    struct spillway_ticket *ticket = NULL;
    for (uint32_t i = 0; i < N; i++)
        buffers[i] = (struct spillway_buffer){.data = (uint8_t *)sw_play.data + i * EACH_BYTES, .bytes = EACH_BYTES};
    sw_requests_of_each(requests, buffers, N);
    for (uint32_t i = 0; i < N; i++)
        requests[i].flags = SPILLWAY_EACH;
    ck_assert_int_eq(spillway_spill(sw_play.connection, requests, N, &ticket, &sw_play.error), 0);
    return ticket;
}

/* Texts of a result: codec, tier, reason, coder, error. */
enum { N_TEXTS = 5 };

static uint8_t *number_of_text(struct sw_wire_result *r, int which) {
    uint8_t *const all[N_TEXTS] = {&r->codec, &r->tier, &r->reason, &r->coder, &r->error};
    return all[which];
}

static struct {
    int which;
    uint8_t number; /* of that text in the second result */
} other;

static void answer_with_one_other_text(int socket) {
    static const struct sw_wire_text texts[] = {{"first"}, {"second"}, {"ENOSPACE"}};
    struct sw_wire_result all[N];
    struct sw_msg msg, reply = {.u.results = {.n_results = N, .n_texts = 3, .results = all, .texts = texts}};
    sw_play_greet(socket);
    while (sw_play_get(socket, &msg) && msg.header.type != SW_MSG_BUILD)
        sw_play_put_ok(socket, msg.header.seq);
    for (uint32_t i = 0; i < N; i++) {
        all[i] = (struct sw_wire_result){.slot = i + 1, .gen = 9, .raw_bytes = EACH_BYTES};
        all[i].codec = all[i].tier = all[i].reason = all[i].coder = 1;
    }
    *number_of_text(&all[1], other.which) = other.number;
    sw_play_put(socket, &reply, SW_MSG_RESULTS, msg.header.seq);
    sw_play_expect_end(socket);
}

/* Loop: which one of its texts the second result has for itself. */
START_TEST(results_share_no_text_that_differs) {
    other.which = _i;
    other.number = _i == N_TEXTS - 1 ? 3 : 2;
    sw_play_open(answer_with_one_other_text);
    ck_assert_int_eq(spillway_wait(spill_all(), SW_TEST_WAIT_MS, results, N, &sw_play.error),
                     _i == N_TEXTS - 1 ? -SPILLWAY_ENOSPACE : 0);
    for (int i = 0; i < N; i++) {
        const char *const texts[] = {results[i].codec, results[i].tier, results[i].reason, results[i].coder};
        for (int k = 0; k < N_TEXTS - 1; k++)
            ck_assert_str_eq(texts[k], i == 1 && k == _i ? "second" : "first");
        ck_assert_int_eq(results[i].code, i == 1 && _i == N_TEXTS - 1 ? -SPILLWAY_ENOSPACE : 0);
    }
    sw_play_close();
}
END_TEST

START_TEST(a_text_that_is_not_there_ends_the_connection) {
    other.which = _i;
    other.number = 4;
    sw_play_open(answer_with_one_other_text);
    sw_play_ck_error(spillway_wait(spill_all(), SW_TEST_WAIT_MS, results, N, &sw_play.error), SPILLWAY_EPROTO,
                     SPILLWAY_SCOPE_SESSION, "");
    sw_play_close();
}
END_TEST

int main(void) {
    Suite *suite = suite_create("ipc_client_results");
    TCase *tcase = tcase_create("results");
    tcase_add_loop_test(tcase, results_share_no_text_that_differs, 0, N_TEXTS);
    tcase_add_loop_test(tcase, a_text_that_is_not_there_ends_the_connection, 0, N_TEXTS);
    suite_add_tcase(suite, tcase);
    return sw_test_run(suite, CK_FORK);
}
