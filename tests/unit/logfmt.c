/* Lines that sw_log() writes are read back, and reach the tap. */
#include "base/logfmt.h"

#include "base/log.h"
#include "tests/lib/run.h"
#include <check.h>
#include <stdio.h>
#include <string.h>

static char tapped[2048];
static unsigned n_tapped;

static void tap(enum sw_log_level level, const char *line, void *arg) {
    ck_assert_int_le(level, SW_LOG_OPERATION);
    ck_assert_ptr_eq(arg, tapped);
    (void)snprintf(tapped, sizeof tapped, "%s", line);
    n_tapped++;
}

static void ck_next(const char **at, const char *name, const char *value, bool quoted) {
    struct sw_logfmt_field field;
    ck_assert(sw_logfmt_next(at, &field));
    ck_assert_str_eq(field.name, name);
    ck_assert_str_eq(field.value, value);
    ck_assert(field.quoted == quoted);
}

START_TEST(lines_are_read_back) {
    static const char odd[] = "a \"quoted\" \\ name=\n\x7f\xc3\xa4";
    char quoted[64];
    struct sw_logfmt_field field;
    const char *at = tapped;
    sw_log_set_level(SW_LOG_ERROR);
    sw_log_set_tap(tap, tapped);
    sw_log(SW_LOG_INFO, "some.event", "n=%d text=%s bare=x:1 empty=", 42, sw_log_quote(quoted, sizeof quoted, odd));
    ck_next(&at, "level", "info", false);
    ck_next(&at, "event", "some.event", false);
    ck_next(&at, "n", "42", false);
    ck_next(&at, "text", odd, true);
    ck_next(&at, "bare", "x:1", false);
    ck_next(&at, "empty", "", false);
    ck_assert(!sw_logfmt_next(&at, &field));
}
END_TEST

/* A name or value that is too long is cut, and the next field is found. */
START_TEST(long_fields_are_cut) {
    static char line[3 * sizeof(struct sw_logfmt_field)];
    struct sw_logfmt_field field;
    char text[sizeof field.name + sizeof field.value + 1];
    memset(text, 'x', sizeof text - 1);
    text[sizeof text - 1] = 0;
    for (int quoted = 0; quoted < 2; quoted++) {
        const char *at = line;
        (void)snprintf(line, sizeof line, quoted ? "%s=\"%s\" n=1" : "%s=%s n=1", text, text);
        ck_assert(sw_logfmt_next(&at, &field));
        ck_assert_uint_eq(strnlen(field.name, sizeof field.name), sizeof field.name - 1);
        ck_assert_uint_eq(strnlen(field.value, sizeof field.value), sizeof field.value - 1);
        ck_assert(field.quoted == quoted);
        ck_next(&at, "n", "1", false);
    }
}
END_TEST

/* No control character reaches a terminal. */
START_TEST(control_characters_are_escaped) {
    char quoted[32], expected[16];
    for (unsigned c = 1; c < 256; c++) {
        const char text[] = {'a', (char)c, 0}, *escape = c == '"' || c == '\\' ? "\\" : "";
        if (c < 0x20 || c == 0x7f)
            (void)snprintf(expected, sizeof expected, "\"a\\x%02x\"", c);
        else
            (void)snprintf(expected, sizeof expected, "\"a%s%c\"", escape, (char)c);
        ck_assert_str_eq(sw_log_quote(quoted, sizeof quoted, text), expected);
    }
}
END_TEST

/* A text that does not fit is cut before a character, and nothing is written behind the room. */
START_TEST(a_long_text_is_cut_when_quoted) {
    static const char *const texts[] = {"abcdefgh", "\n\n\n\n", "\"\"\"\"\"", "ab\ncd\"e"};
    char quoted[32], whole[32];
    (void)sw_log_quote(whole, sizeof whole, texts[_i]);
    for (size_t room = 3; room <= 24; room++) {
        memset(quoted, '#', sizeof quoted);
        ck_assert_ptr_eq(sw_log_quote(quoted, room, texts[_i]), quoted);
        const size_t length = strlen(quoted);
        ck_assert_uint_lt(length, room);
        ck_assert(length == strlen(whole) || length + 6 >= room);
        ck_assert_int_eq(memcmp(quoted, whole, length - 1), 0);
        ck_assert(length >= 2 && quoted[length - 1] == '"');
        for (size_t i = room; i < sizeof quoted; i++)
            ck_assert_int_eq(quoted[i], '#');
    }
    ck_assert_str_eq(sw_log_quote(quoted, 2, texts[_i]), "");
}
END_TEST

START_TEST(the_tap_sees_unprinted_lines_except_debug) {
    sw_log_set_level(SW_LOG_ERROR);
    sw_log_set_tap(tap, tapped);
    sw_log(SW_LOG_DEBUG, "detail", "n=1");
    ck_assert_uint_eq(n_tapped, 0);
    sw_log(SW_LOG_INFO, "news", "n=1");
    sw_log(SW_LOG_ERROR, "news", "n=1");
    ck_assert_uint_eq(n_tapped, 2);
    sw_log(SW_LOG_OPERATION, "spill.done", "n=1");
    ck_assert_uint_eq(n_tapped, 3);
    ck_assert_str_eq(tapped, "level=debug event=spill.done n=1");
    n_tapped = 2;
    sw_log_set_tap(NULL, NULL);
    sw_log(SW_LOG_INFO, "news", "n=1");
    ck_assert_uint_eq(n_tapped, 2);
}
END_TEST

static const struct {
    const char *line, *name, *value;
    bool number;
} fields[] = {
    {"a=1", "a", "1", true},
    {"a=0", "a", "0", true},
    {"a=-1", "a", "-1", false},
    {"a=\"1\"", "a", "1", false},
    {"a=1000000000000000000000", "a", "1000000000000000000000", false},
    {"a", "a", "", false},
    {"a=\"open", "a", "open", false},
    {"a=\"\\", "a", "\\", false},
    {"a=\"\\xzz\"", "a", "xzz", false},
    {"a=\"\\x4", "a", "x4", false},
    {"   a=b c=d", "a", "b", false},
    {"a234567890123456789012345678901234567890=1", "a234567890123456789012345678901", "1", true},
};

START_TEST(odd_fields) {
    struct sw_logfmt_field field;
    const char *at = fields[_i].line;
    ck_assert(sw_logfmt_next(&at, &field));
    ck_assert_str_eq(field.name, fields[_i].name);
    ck_assert_str_eq(field.value, fields[_i].value);
    ck_assert(sw_logfmt_is_number(&field) == fields[_i].number);
}
END_TEST

START_TEST(levels_by_name) {
    ck_assert(sw_log_set_level_name("debug") && sw_log_set_level_name("error"));
    ck_assert(!sw_log_set_level_name("verbose") && !sw_log_set_level_name(""));
}
END_TEST

int main(void) {
    TCase *tests = tcase_create("logfmt");
    tcase_add_test(tests, lines_are_read_back);
    tcase_add_test(tests, long_fields_are_cut);
    tcase_add_test(tests, control_characters_are_escaped);
    tcase_add_loop_test(tests, a_long_text_is_cut_when_quoted, 0, 4);
    tcase_add_test(tests, the_tap_sees_unprinted_lines_except_debug);
    tcase_add_loop_test(tests, odd_fields, 0, (int)(sizeof fields / sizeof fields[0]));
    tcase_add_test(tests, levels_by_name);
    Suite *suite = suite_create("logfmt");
    suite_add_tcase(suite, tests);
    return sw_test_run(suite, CK_FORK);
}
