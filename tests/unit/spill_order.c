/* In which order the buffers of one request go through two stages: the rule against all permutations. */
#include "spill/policy.h"
#include "tests/lib/content.h"
#include "tests/lib/run.h"

#include <check.h>
#include <stdlib.h>

enum { MOST = 7, ROUNDS = 400 };

static uint64_t state = 1;

/* When the last one is through both stages, each of which takes one at a time. */
static double makespan(const struct sw_policy_stages *all, const int *order, int n) {
    double first = 0, second = 0;
    for (int i = 0; i < n; i++) {
        first += all[order[i]].first_s;
        second = (second > first ? second : first) + all[order[i]].second_s;
    }
    return second;
}

static double best_of_all(const struct sw_policy_stages *all, int *order, int n, int k) {
    double best = makespan(all, order, n);
    for (int i = k; i < n; i++) {
        int swapped = order[k];
        order[k] = order[i];
        order[i] = swapped;
        const double other = best_of_all(all, order, n, k + 1);
        best = other < best ? other : best;
        swapped = order[k];
        order[k] = order[i];
        order[i] = swapped;
    }
    return best;
}

/* As the pipeline does: again and again the one that goes before all that are left. */
static void by_the_rule(const struct sw_policy_stages *all, int *ret, int n) {
    bool gone[MOST] = {false};
    for (int at = 0; at < n; at++) {
        int best = -1;
        for (int i = 0; i < n; i++)
            if (!gone[i] && (best < 0 || sw_policy_goes_before(&all[i], &all[best])))
                best = i;
        gone[best] = true;
        ret[at] = best;
    }
}

/* Few different times, so that many are equal, or any; 0 among them. */
static double some_time(int round) {
    return round % 2 ? (double)(sw_random(&state) % 4) : (double)(sw_random(&state) % 100000) / 1e5;
}

START_TEST(no_order_is_better) {
    for (int round = 0; round < ROUNDS; round++) {
        struct sw_policy_stages all[MOST];
        int order[MOST], any[MOST];
        const int n = 1 + round % MOST;
        for (int i = 0; i < n; i++) {
            all[i] = (struct sw_policy_stages){some_time(round), some_time(round)};
            any[i] = i;
        }
        by_the_rule(all, order, n);
        const double best = best_of_all(all, any, n, 0);
        ck_assert_msg(makespan(all, order, n) <= best + 1e-9, "round %d: %g, not %g", round, makespan(all, order, n),
                      best);
    }
}
END_TEST

START_TEST(it_is_an_order) {
    for (int round = 0; round < 20000; round++) {
        struct sw_policy_stages s[3];
        for (int i = 0; i < 3; i++)
            s[i] = (struct sw_policy_stages){some_time(round), some_time(round)};
        ck_assert(!sw_policy_goes_before(&s[0], &s[0]));
        ck_assert(!sw_policy_goes_before(&s[0], &s[1]) || !sw_policy_goes_before(&s[1], &s[0]));
        if (sw_policy_goes_before(&s[0], &s[1]) && sw_policy_goes_before(&s[1], &s[2]))
            ck_assert(sw_policy_goes_before(&s[0], &s[2]));
        if (!sw_policy_goes_before(&s[0], &s[1]) && !sw_policy_goes_before(&s[1], &s[2]))
            ck_assert(!sw_policy_goes_before(&s[0], &s[2]));
    }
}
END_TEST

/* Where nothing is known, nobody is preferred. */
START_TEST(unknown_times_keep_the_order) {
    const struct sw_policy_stages unknown[3] = {{0}};
    int order[3];
    by_the_rule(unknown, order, 3);
    for (int i = 0; i < 3; i++)
        ck_assert_int_eq(order[i], i);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("order");
    TCase *tcase = tcase_create("all");
    tcase_set_timeout(tcase, 60);
    tcase_add_test(tcase, no_order_is_better);
    tcase_add_test(tcase, it_is_an_order);
    tcase_add_test(tcase, unknown_times_keep_the_order);
    suite_add_tcase(suite, tcase);
    return sw_test_run(suite, CK_FORK);
}
