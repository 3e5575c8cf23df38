/* The order of turns: shares of bytes, whatever the lengths of the steps; newcomers; and slots that stay free. */
#include "base/alloc.h"
#include "spill/mover/turns.h"
#include "tests/lib/content.h"
#include "tests/lib/run.h"

#include <check.h>

#define MIB ((uint64_t)1 << 20)
enum { MANY = 200, ROUNDS = 20000 };

static uint64_t state = 1;

/* ---- the heap ---- */

/* Against an implementation that looks at all nodes. */
START_TEST(test_the_lowest_key_is_first) {
    struct sw_fair fair = {.clock = SW_FAIR_BY_FIRST};
    struct sw_fair_node nodes[MANY] = {{0}};
    for (int round = 0; round < ROUNDS; round++) {
        struct sw_fair_node *node = &nodes[sw_random(&state) % MANY];
        if (!node->is_in)
            sw_fair_enter(&fair, node);
        else if (sw_random(&state) % 3 == 0)
            sw_fair_leave(&fair, node);
        else
            sw_fair_charge(&fair, sw_random(&state) % 2 ? fair.first : node, sw_random(&state) % (8 * MIB));
        const struct sw_fair_node *lowest = NULL;
        unsigned n = 0;
        for (int i = 0; i < MANY; i++) {
            n += nodes[i].is_in;
            if (nodes[i].is_in &&
                (!lowest || nodes[i].at < lowest->at || (nodes[i].at == lowest->at && nodes[i].order < lowest->order)))
                lowest = &nodes[i];
        }
        ck_assert_ptr_eq(fair.first, lowest);
        ck_assert_uint_eq(fair.n, n);
    }
}
END_TEST

/* A turn that was absent keeps its surplus, and a part of its deficit. */
START_TEST(test_an_absent_turn_keeps_its_debt_and_a_part_of_its_credit) {
    ck_assert_uint_eq(sw_fair_place(0, 100 * MIB), 100 * MIB - SW_FAIR_CREDIT_BYTES);
    ck_assert_uint_eq(sw_fair_place(99 * MIB, 100 * MIB), 99 * MIB);
    ck_assert_uint_eq(sw_fair_place(200 * MIB, 100 * MIB), 200 * MIB);
    ck_assert_uint_eq(sw_fair_place(0, MIB), 0);
}
END_TEST

/* The queue's position: the average share of all waiting turns, including the turn that is served. */
START_TEST(test_shares_count_all_waiting_turns) {
    struct sw_fair fair = {.clock = SW_FAIR_BY_SHARE, .now = 1};
    struct sw_fair_node nodes[5] = {{0}};
    for (int i = 0; i < 4; i++)
        sw_fair_enter(&fair, &nodes[i]);
    for (int i = 0; i < 4; i++)
        sw_fair_charge(&fair, fair.first, MIB);
    ck_assert_uint_eq(fair.now, 1 + MIB);
    sw_fair_enter(&fair, &nodes[4]); /* it enters beside turns that have had their share */
    ck_assert_uint_eq(nodes[4].at, nodes[0].at);
}
END_TEST

/* ---- turns ---- */

/* A job that always wants more, a step at a time. */
struct work {
    struct sw_turn turn;
    uint64_t step_bytes, bytes;
    enum sw_turn_answer answer;
};

static enum sw_turn_answer ask(struct sw_turn *turn, void *arg) {
    (void)arg;
    return SW_CONTAINER_OF(turn, struct work, turn)->answer;
}

static void add(struct sw_turns *turns, struct work *work, const void *tenant, uint64_t session, enum sw_turn_lane lane,
                uint64_t step_bytes) {
    const struct sw_turn_key key = {.tenant = tenant, .session = session, .lane = lane, .step_bytes = step_bytes};
    *work = (struct work){.step_bytes = step_bytes};
    ck_assert_int_eq(sw_turns_add(turns, &work->turn, &key, 0, NULL), 0);
}

static struct work *next(struct sw_turns *turns, unsigned n_free, uint64_t now_us) {
    const struct sw_turn_question question = {.ask = ask, .n_free = n_free, .n_slots = 4, .now_us = now_us};
    struct sw_turn *turn = sw_turns_next(turns, &question);
    return turn ? SW_CONTAINER_OF(turn, struct work, turn) : NULL;
}

static void serve(struct sw_turns *turns, struct work *work) {
    sw_turns_charge(turns, &work->turn, work->step_bytes);
    work->bytes += work->step_bytes;
}

static void run(struct sw_turns *turns, unsigned n) {
    for (unsigned i = 0; i < n; i++)
        serve(turns, next(turns, 4, 0));
}

static void end(struct sw_turns *turns, struct work *works, unsigned n) {
    for (unsigned i = 0; i < n; i++)
        sw_turns_remove(turns, &works[i].turn, 0);
    sw_turns_fini(turns);
}

static void check_part(const struct work *work, uint64_t of, double part) {
    const double got = (double)work->bytes / (double)of;
    ck_assert_msg(got > 0.95 * part && got < 1.05 * part, "%g of all, not %g", got, part);
}

/* One tenant has many jobs in many sessions, another one job of long steps, a third of short ones: a third each. */
START_TEST(test_tenants_have_equal_parts) {
    static const int tenants[3];
    struct sw_turns turns;
    struct work works[MANY + 2];
    uint64_t of_first = 0, all = 0;
    sw_turns_init(&turns);
    for (uint64_t i = 0; i < MANY; i++)
        add(&turns, &works[i], &tenants[0], i / 5, i % 2 ? SW_TURN_OUT : SW_TURN_BACK, (1 + i % 7) * MIB);
    add(&turns, &works[MANY], &tenants[1], 1000, SW_TURN_OUT, 26 * MIB);
    add(&turns, &works[MANY + 1], &tenants[2], 1001, SW_TURN_OUT, MIB / 4);
    run(&turns, ROUNDS);
    for (int i = 0; i < MANY + 2; i++)
        all += works[i].bytes;
    for (int i = 0; i < MANY; i++)
        of_first += works[i].bytes;
    works[0].bytes = of_first;
    for (int i = 0; i < 3; i++)
        check_part(&works[i ? MANY - 1 + i : 0], all, 1 / 3.0);
    end(&turns, works, MANY + 2);
}
END_TEST

/* A tenant's sessions: one has one request, the other has many, one of them with longer steps. */
START_TEST(test_sessions_and_requests_have_equal_parts) {
    struct sw_turns turns;
    struct work works[5];
    uint64_t all = 0;
    sw_turns_init(&turns);
    for (int i = 0; i < 4; i++)
        add(&turns, &works[i], NULL, 1, SW_TURN_OUT, i == 3 ? 10 * MIB : MIB);
    add(&turns, &works[4], NULL, 2, SW_TURN_OUT, 3 * MIB);
    run(&turns, ROUNDS);
    for (int i = 0; i < 5; i++)
        all += works[i].bytes;
    for (int i = 0; i < 5; i++)
        check_part(&works[i], all, i == 4 ? 0.5 : 0.125);
    end(&turns, works, 5);
}
END_TEST

/* Requests that come one after the other all the time are no reason for one that was there before to wait for ever. */
START_TEST(test_a_stream_of_new_requests_starves_none) {
    struct sw_turns turns;
    struct work works[9];
    sw_turns_init(&turns);
    add(&turns, &works[8], NULL, 1, SW_TURN_OUT, 26 * MIB);
    for (int i = 0; i < 8; i++)
        add(&turns, &works[i], NULL, 1, SW_TURN_OUT, MIB);
    for (int round = 0; round < ROUNDS; round++) {
        struct work *work = next(&turns, 4, 0);
        serve(&turns, work);
        if (work == &works[8])
            continue;
        sw_turns_remove(&turns, &work->turn, 0);
        add(&turns, work, NULL, 1, SW_TURN_OUT, MIB);
    }
    ck_assert_uint_gt(works[8].bytes, (uint64_t)ROUNDS * MIB / 12);
    end(&turns, works, 9);
}
END_TEST

/* Takes the next job for one of four slots, or for the only one. */
static struct work *take(struct sw_turns *turns, unsigned n_slots) {
    const struct sw_turn_question question = {.ask = ask, .n_free = n_slots, .n_slots = n_slots};
    struct work *work = SW_CONTAINER_OF(sw_turns_next(turns, &question), struct work, turn);
    serve(turns, work);
    sw_turns_hold(&work->turn);
    return work;
}

/* A restore gets each slot that becomes free until it has half of them. */
START_TEST(test_restores_go_first_until_they_have_half_of_the_slots) {
    struct sw_turns turns;
    struct work works[2], *slots[4];
    sw_turns_init(&turns);
    add(&turns, &works[0], NULL, 1, SW_TURN_OUT, 4 * MIB);
    for (int i = 0; i < 4; i++)
        slots[i] = take(&turns, 4);
    add(&turns, &works[1], NULL, 2, SW_TURN_BACK, 3 * MIB);
    for (int i = 0; i < 100; i++) {
        const int slot = i < 4 ? i : (int)(sw_random(&state) % 4);
        sw_turns_give(&slots[slot]->turn);
        struct work *const had = slots[slot];
        slots[slot] = take(&turns, 4);
        ck_assert_ptr_eq(slots[slot], i < 2 ? &works[1] : had); /* from then on each keeps its own */
    }
    for (int i = 0; i < 4; i++)
        sw_turns_give(&slots[i]->turn);
    end(&turns, works, 2);
}
END_TEST

/* Where only the order counts, as for memory in transit: of one tenant's jobs the restore goes first. */
START_TEST(test_a_restore_goes_before_a_spill_of_its_tenant) {
    struct sw_turns turns;
    struct work works[2];
    sw_turns_init(&turns);
    add(&turns, &works[0], NULL, 1, SW_TURN_OUT, MIB);
    add(&turns, &works[1], NULL, 2, SW_TURN_BACK, MIB);
    ck_assert(sw_turns_goes_before(&works[1].turn, &works[0].turn));
    ck_assert(!sw_turns_goes_before(&works[0].turn, &works[1].turn));
    end(&turns, works, 2);
}
END_TEST

/* A single slot goes to a spill and to a restore by turns. */
START_TEST(test_a_single_slot_serves_both_ways) {
    struct sw_turns turns;
    struct work works[2];
    sw_turns_init(&turns);
    add(&turns, &works[0], NULL, 1, SW_TURN_OUT, 4 * MIB);
    add(&turns, &works[1], NULL, 2, SW_TURN_BACK, 3 * MIB);
    for (int i = 0; i < 10; i++) {
        struct work *work = take(&turns, 1);
        ck_assert_ptr_eq(work, &works[i % 2 == 0]);
        sw_turns_give(&work->turn);
    }
    end(&turns, works, 2);
}
END_TEST

/* A turn that comes again and again for a little is next each time. */
START_TEST(test_a_light_tenant_is_next) {
    static const int tenants[17];
    struct sw_turns turns;
    struct work works[17];
    sw_turns_init(&turns);
    for (int i = 0; i < 16; i++)
        add(&turns, &works[i], &tenants[i], (uint64_t)i, i % 2 ? SW_TURN_OUT : SW_TURN_BACK, 26 * MIB);
    run(&turns, 40);
    for (int i = 0; i < 100; i++) {
        run(&turns, (unsigned)sw_random(&state) % 20);
        add(&turns, &works[16], &tenants[16], 16, SW_TURN_OUT, MIB / 16);
        ck_assert_ptr_eq(next(&turns, 4, 0), &works[16]);
        serve(&turns, &works[16]);
        sw_turns_remove(&turns, &works[16].turn, 0);
    }
    end(&turns, works, 16);
}
END_TEST

/* The last slot is kept for a tenant that had something to do lately. */
START_TEST(test_a_slot_stays_free) {
    static const int tenants[2];
    struct sw_turns turns;
    struct work works[2];
    sw_turns_init(&turns);
    add(&turns, &works[0], &tenants[0], 1, SW_TURN_OUT, 26 * MIB);
    ck_assert_ptr_eq(next(&turns, 1, 0), &works[0]); /* alone it has all slots */
    run(&turns, 2);
    add(&turns, &works[1], &tenants[1], 2, SW_TURN_BACK, MIB / 16);
    serve(&turns, &works[1]);
    sw_turns_remove(&turns, &works[1].turn, 0);
    run(&turns, 2);
    ck_assert_ptr_eq(next(&turns, 2, 1000), &works[0]);
    ck_assert_ptr_null(next(&turns, 1, 1000));
    add(&turns, &works[1], &tenants[1], 2, SW_TURN_BACK, MIB / 16);
    ck_assert_ptr_eq(next(&turns, 1, 1000), &works[1]);
    sw_turns_hold(&works[1].turn);
    works[1].answer = SW_TURN_REST;
    ck_assert_ptr_eq(next(&turns, 1, 1000), &works[0]); /* it has one */
    sw_turns_give(&works[1].turn);
    ck_assert_ptr_null(next(&turns, 1, 1000));
    sw_turns_remove(&turns, &works[1].turn, 1000);
    ck_assert_ptr_null(next(&turns, 1, 1000 + SW_TURNS_RECENT_US - 1));
    ck_assert_ptr_eq(next(&turns, 1, 1000 + SW_TURNS_RECENT_US), &works[0]);
    end(&turns, works, 1);
}
END_TEST

START_TEST(test_idle_turns_rest_until_woken) {
    struct sw_turns turns;
    struct work works[3];
    sw_turns_init(&turns);
    for (int i = 0; i < 3; i++)
        add(&turns, &works[i], NULL, (uint64_t)i / 2, SW_TURN_OUT, MIB);
    works[0].answer = SW_TURN_REST;
    works[1].answer = SW_TURN_LATER; /* the session's others, too */
    ck_assert_ptr_null(next(&turns, 4, 0));
    works[0].answer = works[1].answer = SW_TURN_TAKE;
    for (int i = 0; i < 10; i++) {
        ck_assert_ptr_ne(next(&turns, 4, 0), &works[0]);
        run(&turns, 1);
    }
    sw_turns_wake(&turns, &works[0].turn);
    ck_assert_ptr_eq(next(&turns, 4, 0), &works[0]);
    end(&turns, works, 3);
}
END_TEST

/* The slot that is kept free is for short pieces: a light tenant whose pieces are long would keep it for long. */
START_TEST(test_the_last_slot_is_for_short_steps) {
    static const int tenants[3];
    struct sw_turns turns;
    struct work works[3];
    sw_turns_init(&turns);
    add(&turns, &works[0], &tenants[0], 1, SW_TURN_OUT, 26 * MIB);
    run(&turns, 3);
    add(&turns, &works[1], &tenants[1], 2, SW_TURN_OUT, 5 * MIB);
    add(&turns, &works[2], &tenants[2], 3, SW_TURN_OUT, 5 * MIB);
    ck_assert_ptr_null(next(&turns, 1, 0));
    ck_assert_ptr_eq(next(&turns, 2, 0), &works[1]);
    sw_turns_remove(&turns, &works[2].turn, 0);
    add(&turns, &works[2], &tenants[2], 3, SW_TURN_OUT, 4 * MIB);
    ck_assert_ptr_eq(next(&turns, 1, 0), &works[2]);
    end(&turns, works, 3);
}
END_TEST

/* If two turns have got the same, the one with the shorter step goes first, whichever came first. */
START_TEST(test_the_shorter_step_goes_first) {
    static const int tenants[2];
    struct sw_turns turns;
    struct work works[2];
    sw_turns_init(&turns);
    add(&turns, &works[0], &tenants[0], 1, SW_TURN_OUT, 26 * MIB);
    add(&turns, &works[1], &tenants[1], 2, SW_TURN_OUT, MIB);
    ck_assert_ptr_eq(next(&turns, 4, 0), &works[1]);
    end(&turns, works, 2);
}
END_TEST

/* However little a job takes, its launch takes as long as some bytes: two tenants of little ones have as many turns. */
START_TEST(test_short_jobs_cost_a_launch) {
    static const int tenants[2];
    struct sw_turns turns;
    struct work works[2];
    sw_turns_init(&turns);
    add(&turns, &works[0], &tenants[0], 1, SW_TURN_OUT, 1);
    add(&turns, &works[1], &tenants[1], 2, SW_TURN_OUT, 16 << 10);
    run(&turns, 1000);
    ck_assert_uint_ge(works[0].bytes, 499);
    ck_assert_uint_le(works[0].bytes, 501);
    end(&turns, works, 2);
}
END_TEST

/* A run that got something goes to the end of its session's line, and the tenant's sessions take turns. */
START_TEST(test_a_line_goes_round) {
    struct sw_turns turns;
    struct work works[4];
    sw_turns_init(&turns);
    for (int i = 0; i < 4; i++)
        add(&turns, &works[i], NULL, i < 3 ? 1 : 2, SW_TURN_OUT, MIB);
    for (int i = 0; i < 6; i++) {
        const struct sw_turn *of = &works[0].turn;
        struct sw_turn *turn = sw_turns_line_first(of);
        for (int k = 0; k < 3; k++, turn = sw_turns_line_next(of, turn))
            ck_assert_ptr_eq(turn, &works[(i + k) % 3].turn);
        ck_assert_ptr_eq(turn, &works[3].turn);
        ck_assert_ptr_null(sw_turns_line_next(of, turn));
        serve(&turns, &works[i % 3]);
    }
    end(&turns, works, 4);
}
END_TEST

static void count(struct sw_turn *turn, void *arg) {
    (void)turn;
    ++*(unsigned *)arg;
}

/* The buffers of a request, in whatever order they come, count as one. */
START_TEST(test_buffers_of_a_request_are_one) {
    enum { REQUESTS = 5, BUFFERS = 8 };
    struct sw_turns turns;
    struct work works[REQUESTS * BUFFERS + 1];
    uint64_t all = 0;
    sw_turns_init(&turns);
    for (int i = 0; i < REQUESTS * BUFFERS; i++) {
        const int k = i * 7 % (REQUESTS * BUFFERS);
        const struct sw_turn_key key = {.session = 1, .request = (uint64_t)(1 + k / BUFFERS), .lane = SW_TURN_OUT};
        works[k] = (struct work){.step_bytes = MIB};
        ck_assert_int_eq(sw_turns_add(&turns, &works[k].turn, &key, 0, NULL), 0);
    }
    add(&turns, &works[REQUESTS * BUFFERS], NULL, 1, SW_TURN_OUT, MIB);
    ck_assert_uint_eq(turns.n_requests, REQUESTS + 1);
    for (int i = 0; i < REQUESTS * BUFFERS; i++) {
        unsigned n = 0;
        sw_turns_each_peer(&works[i].turn, count, &n);
        ck_assert_uint_eq(n, BUFFERS);
    }
    run(&turns, ROUNDS);
    for (int i = 0; i <= REQUESTS * BUFFERS; i++)
        all += works[i].bytes;
    check_part(&works[REQUESTS * BUFFERS], all, 1.0 / (REQUESTS + 1));
    for (unsigned i = 0; i < REQUESTS * BUFFERS; i++) { /* gone with its last buffer, not with its first */
        ck_assert_uint_eq(turns.n_requests, 1 + (REQUESTS * BUFFERS - i + BUFFERS - 1) / BUFFERS);
        sw_turns_remove(&turns, &works[i].turn, 0);
    }
    ck_assert_uint_eq(turns.n_requests, 1);
    end(&turns, &works[REQUESTS * BUFFERS], 1);
}
END_TEST

/* A later buffer gets its request's place, not a new one. */
START_TEST(test_a_late_buffer_has_its_requests_place) {
    struct sw_turns turns;
    struct work works[3];
    const struct sw_turn_key key = {.session = 1, .request = 7, .lane = SW_TURN_OUT, .step_bytes = MIB};
    sw_turns_init(&turns);
    works[0] = (struct work){.step_bytes = MIB};
    works[1] = works[0];
    add(&turns, &works[2], NULL, 1, SW_TURN_OUT, MIB);
    ck_assert_int_eq(sw_turns_add(&turns, &works[0].turn, &key, 0, NULL), 0);
    for (int i = 0; i < 10; i++)
        serve(&turns, &works[0]);
    ck_assert_int_eq(sw_turns_add(&turns, &works[1].turn, &key, 0, NULL), 0);
    for (int i = 0; i < 9; i++) {
        ck_assert_ptr_eq(next(&turns, 4, 0), &works[2]);
        serve(&turns, &works[2]);
    }
    end(&turns, works, 3);
}
END_TEST

/* A tenant that had nothing while another one was served gets its credit, and then its part: not all that it missed. */
START_TEST(test_a_newcomer_has_missed_nothing) {
    static const int tenants[2];
    struct sw_turns turns;
    struct work works[2];
    unsigned n = 0;
    sw_turns_init(&turns);
    add(&turns, &works[0], &tenants[0], 1, SW_TURN_OUT, MIB);
    run(&turns, 1000);
    add(&turns, &works[1], &tenants[1], 2, SW_TURN_OUT, MIB);
    for (struct work *work; (work = next(&turns, 4, 0)) == &works[1]; n++)
        serve(&turns, work);
    ck_assert_uint_ge(n, SW_FAIR_CREDIT_BYTES / MIB - 1);
    ck_assert_uint_le(n, SW_FAIR_CREDIT_BYTES / MIB + 1);
    end(&turns, works, 2);
}
END_TEST

/* A client may come back as a new session again and again, each time after its share: only some of them are
 * remembered. */
START_TEST(test_sessions_that_are_gone_take_little_memory) {
    enum { ENOUGH = 100 };
    struct sw_turns turns;
    struct work stays, work;
    sw_turns_init(&turns);
    add(&turns, &stays, NULL, 1, SW_TURN_OUT, MIB);
    const long live = sw_alloc_live();
    for (uint64_t session = 2; session < 2 + 10 * ENOUGH; session++) {
        add(&turns, &work, NULL, session, SW_TURN_OUT, 64 * MIB);
        serve(&turns, &work);
        sw_turns_remove(&turns, &work.turn, 0);
        ck_assert_int_lt(sw_alloc_live() - live, ENOUGH);
    }
    end(&turns, &stays, 1);
}
END_TEST

START_TEST(test_adding_fails_without_memory) {
    const struct sw_turn_key key = {.session = 1};
    for (int fail_at = 1; fail_at <= 2; fail_at++) {
        struct sw_turns turns;
        struct sw_turn turn = {.session = NULL};
        struct sw_err err = {0};
        sw_turns_init(&turns);
        sw_alloc_fail_nth((unsigned long)fail_at);
        ck_assert_int_eq(sw_turns_add(&turns, &turn, &key, 0, &err), -SW_ENOMEM);
        sw_alloc_fail_nth(0);
        sw_turns_wake(&turns, &turn);
        sw_turns_charge(&turns, &turn, 1);
        sw_turns_hold(&turn);
        sw_turns_give(&turn);
        sw_turns_remove(&turns, &turn, 0);
        ck_assert_ptr_null(next(&turns, 4, 0));
        ck_assert_int_eq(sw_turns_add(&turns, &turn, &key, 0, &err), 0);
        sw_turns_remove(&turns, &turn, 0);
        sw_turns_fini(&turns);
    }
    ck_assert_int_eq(sw_alloc_live(), 0);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("turns");
    TCase *tcase = tcase_create("all");
    tcase_add_test(tcase, test_the_lowest_key_is_first);
    tcase_add_test(tcase, test_tenants_have_equal_parts);
    tcase_add_test(tcase, test_sessions_and_requests_have_equal_parts);
    tcase_add_test(tcase, test_a_stream_of_new_requests_starves_none);
    tcase_add_test(tcase, test_restores_go_first_until_they_have_half_of_the_slots);
    tcase_add_test(tcase, test_a_restore_goes_before_a_spill_of_its_tenant);
    tcase_add_test(tcase, test_a_single_slot_serves_both_ways);
    tcase_add_test(tcase, test_a_light_tenant_is_next);
    tcase_add_test(tcase, test_a_slot_stays_free);
    tcase_add_test(tcase, test_idle_turns_rest_until_woken);
    tcase_add_test(tcase, test_buffers_of_a_request_are_one);
    tcase_add_test(tcase, test_an_absent_turn_keeps_its_debt_and_a_part_of_its_credit);
    tcase_add_test(tcase, test_shares_count_all_waiting_turns);
    tcase_add_test(tcase, test_the_last_slot_is_for_short_steps);
    tcase_add_test(tcase, test_the_shorter_step_goes_first);
    tcase_add_test(tcase, test_short_jobs_cost_a_launch);
    tcase_add_test(tcase, test_a_line_goes_round);
    tcase_add_test(tcase, test_a_late_buffer_has_its_requests_place);
    tcase_add_test(tcase, test_a_newcomer_has_missed_nothing);
    tcase_add_test(tcase, test_sessions_that_are_gone_take_little_memory);
    tcase_add_test(tcase, test_adding_fails_without_memory);
    suite_add_tcase(suite, tcase);
    return sw_test_run(suite, CK_FORK);
}
