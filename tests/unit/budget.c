/* Shares of a shared resource, budgets of a memory pool, and limits of log lines, without a service. */
#include "base/budget.h"
#include "base/alloc.h"
#include "base/clock.h"
#include "base/log_limit.h"
#include "tests/lib/run.h"
#include <check.h>
#include <pthread.h>
#include <string.h>

/* Returns how much of `limit` each of n users gets if they take in turn until none gets more. */
static void fill(uint64_t *users, unsigned n, uint64_t limit) {
    uint64_t used = 0;
    for (bool any = true; any;) {
        any = false;
        for (unsigned i = 0; i < n; i++)
            if (sw_share_allows(users[i], used, limit, 1)) {
                users[i]++;
                used++;
                any = true;
            }
    }
}

START_TEST(shares_leave_something_to_others) {
    uint64_t one[1] = {0}, two[2] = {0}, ten[10] = {0};
    fill(one, 1, 1000);
    ck_assert_uint_eq(one[0], 750);
    fill(two, 2, 700);
    ck_assert_uint_eq(two[0], 300);
    ck_assert_uint_eq(two[1], 300);
    fill(ten, 10, 3100);
    for (int i = 0; i < 10; i++)
        ck_assert_uint_eq(ten[i], 300);
    /* A user that comes when all others have their shares still gets something, and so does the last of a few users. */
    ck_assert(sw_share_allows(0, 3000, 3100, 1));
    ck_assert(sw_share_allows(0, 0, 1, 1));
    ck_assert(!sw_share_allows(0, 1, 1, 1));
    ck_assert(!sw_share_allows(5, 10, 8, 1)); /* the limit was lowered */
    ck_assert(!sw_share_allows(1, 1, 10, UINT64_MAX));
}
END_TEST

START_TEST(budgets_of_a_pool_have_shares) {
    struct sw_budget_pool pool = {.limit_bytes = 1000};
    struct sw_budget a = {.pool = &pool}, b = {.pool = &pool};
    struct sw_err err = {0};
    ck_assert_int_eq(sw_budget_take(&a, 700, "test", NULL), 0);
    ck_assert_int_eq(sw_budget_take(&a, 100, "a test", &err), -SW_ETENANTMEMORY);
    ck_assert_ptr_nonnull(strstr(err.msg, "a test"));
    ck_assert_int_eq(sw_budget_take(&b, 200, "test", NULL), 0);
    ck_assert_int_eq(sw_budget_take(&b, 101, "test", NULL), -SW_ETENANTMEMORY);
    ck_assert_uint_eq(atomic_load(&pool.used_bytes), 900);
    sw_budget_give(&a, 700);
    ck_assert_int_eq(sw_budget_take(&b, 500, "test", NULL), 0);
    sw_budget_give(&b, 700);
    ck_assert_uint_eq(atomic_load(&pool.used_bytes), 0);
}
END_TEST

/* A limit set by an operator is not a share. The pool's limit still applies, and bytes in use count. */
START_TEST(budgets_with_a_limit_of_their_own) {
    struct sw_budget_pool pool = {.limit_bytes = 1000};
    struct sw_budget a = {.pool = &pool, .limit_bytes = 950}, b = {.pool = &pool, .limit_bytes = 100}, free = {0};
    ck_assert_int_eq(sw_budget_take(&a, 950, "test", NULL), 0);
    ck_assert_int_eq(sw_budget_take(&a, 1, "test", NULL), -SW_ETENANTMEMORY);
    ck_assert_int_eq(sw_budget_take(&b, 51, "test", NULL), -SW_ETENANTMEMORY);
    ck_assert_int_eq(sw_budget_take(&b, 50, "test", NULL), 0);
    sw_budget_give(&a, 950);
    ck_assert_int_eq(sw_budget_take(&b, 51, "test", NULL), -SW_ETENANTMEMORY);
    ck_assert_uint_eq(atomic_load(&pool.used_bytes), 50);
    sw_budget_take_anyway(&b, 2000);
    ck_assert_int_eq(sw_budget_take(&a, 1, "test", NULL), -SW_ETENANTMEMORY);
    sw_budget_give(&b, 2050);
    ck_assert_int_eq(sw_budget_take(&free, UINT64_C(1) << 60, "test", NULL), 0);
    ck_assert_int_eq(sw_budget_take(NULL, 1, "test", NULL), 0);
    sw_budget_give(NULL, 1);
}
END_TEST

/* Whoever has more than a lowered limit gets nothing until it has given enough back. */
START_TEST(a_limit_may_be_lowered) {
    struct sw_budget_pool pool = {.limit_bytes = 1000};
    struct sw_budget alone = {.limit_bytes = 500}, one = {.pool = &pool, .limit_bytes = 500};
    struct sw_budget *const both[] = {&alone, &one};
    for (int i = 0; i < 2; i++) {
        ck_assert_int_eq(sw_budget_take(both[i], 400, "test", NULL), 0);
        atomic_store(&both[i]->limit_bytes, 300);
        ck_assert_int_eq(sw_budget_take(both[i], 1, "test", NULL), -SW_ETENANTMEMORY);
        sw_budget_give(both[i], 200);
        ck_assert_int_eq(sw_budget_take(both[i], 101, "test", NULL), -SW_ETENANTMEMORY);
        ck_assert_int_eq(sw_budget_take(both[i], 100, "test", NULL), 0);
        sw_budget_give(both[i], 300);
        ck_assert_uint_eq(atomic_load(&both[i]->used_bytes), 0);
    }
    ck_assert_uint_eq(atomic_load(&pool.used_bytes), 0);
}
END_TEST

START_TEST(memory_that_is_not_there_does_not_count) {
    struct sw_budget_pool pool = {.limit_bytes = 1000};
    struct sw_budget budget = {.pool = &pool};
    struct sw_err err = {0};
    int rc = 0;
    sw_alloc_fail_nth(1);
    ck_assert_ptr_null(sw_budget_alloc(&budget, 100, "a test", &rc, &err));
    ck_assert_int_eq(rc, -SW_ENOMEM);
    ck_assert_ptr_nonnull(strstr(err.msg, "a test"));
    ck_assert_uint_eq(atomic_load(&budget.used_bytes) + atomic_load(&pool.used_bytes), 0);
}
END_TEST

static struct sw_budget_pool shared = {.limit_bytes = 100000};

static void *take_and_give(void *arg) {
    struct sw_budget *budget = arg;
    for (int i = 0; i < 100000; i++)
        if (sw_budget_take(budget, 1000, "test", NULL) == 0) {
            if (atomic_load(&shared.used_bytes) > 100000)
                return arg;
            sw_budget_give(budget, 1000);
        }
    return NULL;
}

START_TEST(threads_never_exceed_the_pool) {
    struct sw_budget budgets[2] = {{.pool = &shared}, {.pool = &shared, .limit_bytes = 1500}};
    pthread_t threads[4];
    for (int i = 0; i < 4; i++)
        ck_assert_int_eq(pthread_create(&threads[i], NULL, take_and_give, &budgets[i % 2]), 0);
    for (int i = 0; i < 4; i++) {
        void *failed = NULL;
        ck_assert_int_eq(pthread_join(threads[i], &failed), 0);
        ck_assert_ptr_null(failed);
    }
    ck_assert_uint_eq(atomic_load(&shared.used_bytes), 0);
}
END_TEST

static uint64_t now_us = 1;

static uint64_t test_clock(void) {
    return now_us;
}

START_TEST(lines_are_limited_and_counted) {
    struct sw_log_limit limit = {0};
    unsigned left_out = 0;
    sw_clock_set(test_clock);
    for (int i = 0; i < 3; i++)
        ck_assert(sw_log_limit_allows(&limit, 3, &left_out) && left_out == 0);
    for (int i = 0; i < 5; i++)
        ck_assert(!sw_log_limit_allows(&limit, 3, &left_out) && left_out == 0);
    now_us += SW_LOG_LIMIT_US - 1;
    ck_assert(!sw_log_limit_allows(&limit, 3, &left_out));
    now_us++;
    ck_assert(sw_log_limit_allows(&limit, 3, &left_out));
    ck_assert_uint_eq(left_out, 6);
    ck_assert(sw_log_limit_allows(&limit, 3, &left_out));
    ck_assert_uint_eq(left_out, 0);
    sw_clock_set(NULL);
}
END_TEST

int main(void) {
    TCase *tests = tcase_create("budget");
    tcase_add_test(tests, shares_leave_something_to_others);
    tcase_add_test(tests, budgets_of_a_pool_have_shares);
    tcase_add_test(tests, budgets_with_a_limit_of_their_own);
    tcase_add_test(tests, a_limit_may_be_lowered);
    tcase_add_test(tests, memory_that_is_not_there_does_not_count);
    tcase_add_test(tests, threads_never_exceed_the_pool);
    tcase_add_test(tests, lines_are_limited_and_counted);
    Suite *suite = suite_create("budget");
    suite_add_tcase(suite, tests);
    return sw_test_run(suite, CK_FORK);
}
