/* How many bytes are on their way to an object store: enough for its latency and rate, and not much more. */
#include "spill/tier/remote/remote_window.h"
#include "tests/lib/run.h"

#include <check.h>

#define PART_BYTES 8388608.0

/* A store, a link to it, and what the window must come to. */
static const struct store {
    double latency_s, connection_rate, link_rate; /* bytes per second */
    double least_share;                           /* of the rate that any window could reach */
    double most_bytes;
} stores[] = {
    {0.0001, 2e9, 1e9, 0.99, 140e6},  /* on the same machine */
    {0.002, 500e6, 3e9, 0.99, 280e6}, /* in the same room */
    {0.03, 80e6, 1.2e9, 0.99, 700e6}, /* of a cloud, whose connections have a limit each */
    {0.1, 80e6, 3e9, 0.99, 1700e6},   {0.3, 50e6, 100e6, 0.99, 140e6}, /* far away */
};

/* One turn: so many bytes are on their way. Returns the rate; *ret_s: how long a part took. */
static double run(const struct store *store, double window_bytes, double *ret_s) {
    const double alone_s = store->latency_s + PART_BYTES / store->connection_rate;
    const double shared_s = window_bytes / store->link_rate;
    *ret_s = shared_s > alone_s ? shared_s : alone_s;
    return window_bytes / *ret_s;
}

static double settle(const struct store *store, struct sw_remote_window *window, double *now_us, unsigned turns) {
    double rate = 0, took_s;
    for (; turns > 0; turns--) {
        rate = run(store, (double)sw_remote_window_bytes(window, (uint64_t)rate), &took_s);
        *now_us += took_s * 1e6;
        sw_remote_window_note(window, (uint64_t)*now_us, (uint64_t)(took_s * 1e6), (uint64_t)PART_BYTES);
    }
    return rate;
}

START_TEST(the_window_is_enough_and_not_much_more) {
    const struct store *store = &stores[_i];
    struct sw_remote_window window = {0};
    double now_us = 1e9;
    const double rate = settle(store, &window, &now_us, 12);
    ck_assert_double_ge(rate, store->least_share * store->link_rate);
    ck_assert_double_le((double)sw_remote_window_bytes(&window, (uint64_t)rate), store->most_bytes);
}
END_TEST

/* What was measured before counts for two periods. */
START_TEST(a_store_that_becomes_slower_gets_more_at_a_time) {
    const struct store near = {0.001, 1e9, 1e9, 0, 0}, far = {0.2, 80e6, 1e9, 0, 0};
    struct sw_remote_window window = {0};
    double now_us = 1e9;
    (void)settle(&near, &window, &now_us, 10);
    ck_assert_double_lt(settle(&far, &window, &now_us, 10), 0.5e9);
    now_us += 2 * SW_REMOTE_WINDOW_PERIOD_US;
    ck_assert_double_ge(settle(&far, &window, &now_us, 700), 0.99e9);
}
END_TEST

/* A short transfer takes less time, and says little about the time of long ones. */
START_TEST(short_transfers_do_not_narrow_the_window) {
    struct sw_remote_window window = {0};
    sw_remote_window_note(&window, 1, 900000, 64 << 20);
    sw_remote_window_note(&window, 2, 150000, 4 << 20);
    ck_assert_uint_eq(sw_remote_window_bytes(&window, 100000000), 180000000);
    sw_remote_window_note(&window, 3, 50000, 4 << 20);
    ck_assert_uint_eq(sw_remote_window_bytes(&window, 100000000), 160000000);
}
END_TEST

START_TEST(nothing_is_known_at_first) {
    const struct sw_remote_window window = {0}, known = {.least_us = {0, 1000000}};
    ck_assert_uint_eq(sw_remote_window_bytes(&window, 1000000000), SW_REMOTE_WINDOW_LEAST_BYTES);
    ck_assert_uint_eq(sw_remote_window_bytes(&known, 0), SW_REMOTE_WINDOW_LEAST_BYTES);
    ck_assert_uint_eq(sw_remote_window_bytes(&known, 100000000), 200000000);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("remote_window");
    TCase *tcase = tcase_create("remote_window");
    tcase_add_loop_test(tcase, the_window_is_enough_and_not_much_more, 0, sizeof stores / sizeof stores[0]);
    tcase_add_test(tcase, a_store_that_becomes_slower_gets_more_at_a_time);
    tcase_add_test(tcase, short_transfers_do_not_narrow_the_window);
    tcase_add_test(tcase, nothing_is_known_at_first);
    suite_add_tcase(suite, tcase);
    return sw_test_run(suite, CK_FORK);
}
