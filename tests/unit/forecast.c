/* Forecasts of an operation's duration, from steady durations of about the same length. */
#include "base/forecast.h"

#include "tests/lib/run.h"
#include <check.h>
#include <stdbool.h>

START_TEST(test_two_alike_observations_make_a_forecast) {
    struct sw_forecast f = {0};
    ck_assert_uint_eq(sw_forecast_us(&f, 1000), 0);
    sw_forecast_note(&f, 1000000, 20000);
    ck_assert_uint_eq(sw_forecast_us(&f, 1000000), 0);
    sw_forecast_note(&f, 1000000, 20400);
    ck_assert_uint_eq(sw_forecast_us(&f, 1000000), 20400);
    ck_assert_uint_eq(sw_forecast_us(&f, 1500000), 30600); /* more bytes take longer */
    ck_assert_uint_eq(sw_forecast_us(&f, 500000), 10200);
}
END_TEST

START_TEST(test_other_lengths_make_no_forecast) {
    struct sw_forecast f = {0};
    for (int i = 0; i < 2; i++)
        sw_forecast_note(&f, 1000000, 20000);
    ck_assert_uint_eq(sw_forecast_us(&f, 499999), 0);
    ck_assert_uint_eq(sw_forecast_us(&f, 2000002), 0);
    ck_assert_uint_eq(sw_forecast_us(&f, 0), 0);
    ck_assert_uint_eq(sw_forecast_us(&f, UINT64_MAX), 0);
    sw_forecast_note(&f, 10000, 200);
    ck_assert_uint_eq(sw_forecast_us(&f, 10000), 0);
    sw_forecast_note(&f, 0, 200);
    ck_assert_uint_eq(sw_forecast_us(&f, 0), 0);
}
END_TEST

/* If a load makes durations vary, there must be no forecast, so that the service does not poll. */
START_TEST(test_varying_waits_make_no_forecast) {
    static const uint64_t us[] = {20000, 21200, 18000, 30000, 30100, 15000};
    static const bool is_steady[] = {false, true, false, false, true, false};
    struct sw_forecast f = {0};
    for (int i = 0; i < 6; i++) {
        sw_forecast_note(&f, 1000000, us[i]);
        ck_assert_uint_eq(sw_forecast_us(&f, 1000000), is_steady[i] ? us[i] : 0);
    }
}
END_TEST

/* Beside a busy GPU a few operations wait for a time slice. The others are still forecast. */
START_TEST(test_one_outlier_changes_nothing) {
    static const uint64_t us[] = {1500, 1450, 1500, 4000, 1480, 1500, 300, 4000, 4100};
    static const uint64_t forecast_us[] = {0, 1450, 1500, 1500, 1480, 1500, 1500, 0, 4100};
    struct sw_forecast f = {0};
    for (int i = 0; i < 9; i++) {
        sw_forecast_note(&f, 1000000, us[i]);
        ck_assert_uint_eq(sw_forecast_us(&f, 1000000), forecast_us[i]);
    }
}
END_TEST

int main(void) {
    Suite *suite = suite_create("forecast");
    TCase *tcase = tcase_create("forecast");
    tcase_add_test(tcase, test_two_alike_observations_make_a_forecast);
    tcase_add_test(tcase, test_other_lengths_make_no_forecast);
    tcase_add_test(tcase, test_varying_waits_make_no_forecast);
    tcase_add_test(tcase, test_one_outlier_changes_nothing);
    suite_add_tcase(suite, tcase);
    return sw_test_run(suite, CK_FORK);
}
