/* The texts of errors: base/err.h, base/shorten.h, base/similar.h. */
#include "base/err.h"
#include "base/shorten.h"
#include "base/similar.h"
#include "tests/lib/run.h"

#include <check.h>
#include <stdio.h>
#include <string.h>

START_TEST(context_goes_before_the_cause) {
    struct sw_err err;
    (void)sw_err_set(&err, -SW_EINVAL, SW_SCOPE_REQUEST, "slots: 17 is too many");
    sw_err_context(&err, "%s", "file.json");
    ck_assert_str_eq(err.msg, "file.json: slots: 17 is too many");
    ck_assert_int_eq(err.code, -SW_EINVAL);
}
END_TEST

/* However long both are, the text ends within its room, and is cut at its end only. */
START_TEST(context_is_cut_to_fit) {
    char cause[200], context[200], whole[500];
    struct sw_err err;
    memset(cause, 'c', sizeof cause - 1);
    memset(context, 'x', sizeof context - 1);
    cause[_i] = 0;
    for (size_t n = 0; n < sizeof context; n++) {
        context[n] = 0;
        (void)sw_err_set(&err, -SW_EINVAL, SW_SCOPE_REQUEST, "%s", cause);
        sw_err_context(&err, "%s", context);
        ck_assert_uint_lt(strnlen(err.msg, sizeof err.msg), sizeof err.msg);
        (void)snprintf(whole, sizeof whole, "%s: %s", context, cause);
        ck_assert_int_eq(strncmp(err.msg, whole, strlen(err.msg)), 0);
        if (strlen(whole) < sizeof err.msg)
            ck_assert_str_eq(err.msg, whole);
        context[n] = 'x';
    }
}
END_TEST

START_TEST(long_values_keep_their_ends) {
    char text[SW_SHORTENED_BYTES];
    ck_assert_str_eq(sw_shorten(text, "\"short\""), "\"short\"");
    ck_assert_str_eq(sw_shorten(text, "\"abcdefghijklmnopqrstuvwxy\""), "\"abcdefghijklmnopqrstuvwxy\"");
    ck_assert_str_eq(sw_shorten(text, "\"abcdefghijklmnopqrstuvwxyz\""), "\"abcdefghijklmnopqrstuv...\"");
    ck_assert_str_eq(sw_shorten(text, "[1,2,3,4,5,6,7,8,9,10,11,12,13]"), "[1,2,3,4,5,6,7,8,9,10,1...]");
    ck_assert_str_eq(sw_shorten(text, "12345678901234567890123456789"), "123456789012345678901234...");
    ck_assert_str_eq(sw_shorten(text, "\"abcdefghijklmnopqrstu\xc3\xa4\xc3\xa4\xc3\xa4\""),
                     "\"abcdefghijklmnopqrstu...\"");
}
END_TEST

static const struct {
    const char *meant, *hint;
} names[] = {
    {"staus", "; did you mean status?"},
    {"sttaus", "; did you mean status?"},
    {"Status", "; did you mean status?"},
    {"reg", "; did you mean regions?"},
    {"regoins", "; did you mean regions?"},
    {"session", "; did you mean sessions?"},
    {"dorp", "; did you mean drop?"},
    {"nonsense", ""},
    {"x", ""},
    {"", ""},
    {"a name that is longer than any name can be, so none", ""},
};

START_TEST(similar_names) {
    static const char *const known[] = {"status", "stats", "sessions", "regions", "drain", "drop", "on"};
    struct sw_similar best = {.edits = 0};
    char hint[80];
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
        sw_similar_try(&best, names[_i].meant, known[i]);
    ck_assert_str_eq(sw_similar_hint(hint, sizeof hint, &best), names[_i].hint);
}
END_TEST

int main(void) {
    TCase *tests = tcase_create("err");
    tcase_add_test(tests, context_goes_before_the_cause);
    tcase_add_loop_test(tests, context_is_cut_to_fit, 0, 200);
    tcase_add_test(tests, long_values_keep_their_ends);
    tcase_add_loop_test(tests, similar_names, 0, (int)(sizeof names / sizeof names[0]));
    Suite *suite = suite_create("err");
    suite_add_tcase(suite, tests);
    return sw_test_run(suite, CK_FORK);
}
