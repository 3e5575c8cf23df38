/* Errors and their texts: base/err.h, base/shorten.h, base/similar.h, base/choice.h. */
#include "base/err.h"
#include "base/choice.h"
#include "base/shorten.h"
#include "base/similar.h"
#include "tests/lib/run.h"

#include <check.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

/* A record that is used again keeps nothing of its last error. */
START_TEST(an_error_replaces_the_last_one) {
    struct sw_err err;
    (void)sw_err_set(&err, -SW_EGPU, SW_SCOPE_DEVICE, "first");
    (void)sw_err_detail(&err, "call %d", 1);
    err.cuda = 700;
    ck_assert_int_eq(sw_err_set(&err, -SW_EINVAL, SW_SCOPE_REQUEST, "second"), -SW_EINVAL);
    ck_assert_int_eq(err.code, -SW_EINVAL);
    ck_assert_int_eq(err.scope, SW_SCOPE_REQUEST);
    ck_assert_int_eq(err.cuda, 0);
    ck_assert_str_eq(err.msg, "second");
    ck_assert_str_eq(err.detail, "");
}
END_TEST

/* Only the system's own numbers count as they are. */
START_TEST(the_systems_errors_have_codes) {
    ck_assert_int_eq(sw_err_from_errno(ENOMEM), -SW_ENOMEM);
    ck_assert_int_eq(sw_err_from_errno(EIO), -SW_EIO);
    ck_assert_int_eq(sw_err_from_errno(EXDEV), -SW_EIO);
    ck_assert_int_eq(sw_err_from_errno(0), -SW_EIO);
    ck_assert_int_eq(sw_err_from_errno(-ENOMEM), -SW_EIO);
    ck_assert_int_eq(sw_err_from_errno(SW_ETENANTMEMORY), -SW_EIO);
    ck_assert_str_eq(sw_err_name(SW_ETENANTMEMORY), sw_err_name(-SW_ETENANTMEMORY));
    ck_assert_int_eq(sw_err_from_name(sw_err_name(-SW_ETENANTMEMORY)), -SW_ETENANTMEMORY);
}
END_TEST

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

/* Whichever comes first. */
START_TEST(the_nearest_name_is_suggested) {
    static const char *const known[] = {"sassions", "sessions"};
    struct sw_similar best = {.edits = 0};
    for (int i = 0; i < 2; i++)
        sw_similar_try(&best, "sassiens", known[i ^ _i]);
    ck_assert_str_eq(best.name, "sassions");
    best = (struct sw_similar){.edits = 0};
    for (int i = 0; i < 2; i++)
        sw_similar_try(&best, "sesions", known[i ^ _i]);
    ck_assert_str_eq(best.name, "sessions");
}
END_TEST

/* Names up to the longest are compared, and as little is suggested for a longer one as in its place. */
START_TEST(names_have_a_greatest_length) {
    char longest[SW_SIMILAR_MAX_BYTES + 1] = "", longer[SW_SIMILAR_MAX_BYTES + 2] = "";
    struct sw_similar best = {.edits = 0};
    memset(longest, 'n', SW_SIMILAR_MAX_BYTES);
    memset(longer, 'n', SW_SIMILAR_MAX_BYTES + 1);
    sw_similar_try(&best, longest, longer);
    sw_similar_try(&best, longer, longest);
    ck_assert_str_eq(best.name, "");
    longest[3] = 'm';
    sw_similar_try(&best, longest, longer + 1);
    ck_assert_str_eq(best.name, longer + 1);
}
END_TEST

/* Nothing is left of a name that differs in as many letters as it has. */
START_TEST(a_name_is_not_similar_to_any_other) {
    struct sw_similar best = {.edits = 0};
    sw_similar_try(&best, "abcd", "ab");
    ck_assert_str_eq(best.name, "");
    sw_similar_try(&best, "abcd", "abc");
    ck_assert_str_eq(best.name, "abc");
}
END_TEST

START_TEST(choices_are_numbered) {
    static const char choices[] = "off, on, often";
    char text[4] = "xyz";
    ck_assert_int_eq(sw_choice_number(choices, "off"), 0);
    ck_assert_int_eq(sw_choice_number(choices, "often"), 2);
    ck_assert(!sw_choice_has(choices, "of") && !sw_choice_has(choices, "offs") && !sw_choice_has(choices, ""));
    sw_choice_text(text, 4, choices, 0);
    ck_assert_str_eq(text, "off");
    sw_choice_text(text, 3, choices, 0); /* lacks the room for its end */
    ck_assert_str_eq(text, "");
    ck_assert_int_eq(text[3], 0);
    sw_choice_text(text, 3, choices, 1);
    ck_assert_str_eq(text, "on");
    sw_choice_text(text, 4, choices, 3);
    ck_assert_str_eq(text, "");
}
END_TEST

int main(void) {
    TCase *tests = tcase_create("err");
    tcase_add_test(tests, an_error_replaces_the_last_one);
    tcase_add_test(tests, the_systems_errors_have_codes);
    tcase_add_test(tests, context_goes_before_the_cause);
    tcase_add_loop_test(tests, context_is_cut_to_fit, 0, 200);
    tcase_add_test(tests, long_values_keep_their_ends);
    tcase_add_loop_test(tests, similar_names, 0, (int)(sizeof names / sizeof names[0]));
    tcase_add_loop_test(tests, the_nearest_name_is_suggested, 0, 2);
    tcase_add_test(tests, names_have_a_greatest_length);
    tcase_add_test(tests, a_name_is_not_similar_to_any_other);
    tcase_add_test(tests, choices_are_numbered);
    Suite *suite = suite_create("err");
    suite_add_tcase(suite, tests);
    return sw_test_run(suite, CK_FORK);
}
