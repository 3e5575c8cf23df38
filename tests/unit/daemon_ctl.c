/* The operator's end of the control socket: what it prints for people, how it waits, and how it takes answers. */
#include "base/assert.h"
#include "daemon/ctl/print.h"
#include "daemon/ctl/wait.h"
#include "tests/lib/run.h"
#include "tests/lib/scratch.h"

#include <check.h>
#include <jansson.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

/* ---- print ------------------------------------------------------------------------------------------------------- */

static const struct {
    double value;
    const char *bytes, *time;
} values[] = {{0, "0 B", "0 us"},
              {999, "999 B", "999 us"},
              {1000, "1000 B", "1.0 ms"},
              {1023, "1023 B", "1.0 ms"},
              {1024, "1.0 KiB", "1.0 ms"},
              {100 * 1024, "100 KiB", "102.4 ms"},
              {999900, "976 KiB", "999.9 ms"},
              {1e6, "977 KiB", "1.0 s"},
              {1 << 20, "1.0 MiB", "1.0 s"},
              {119e6, "113 MiB", "119.0 s"},
              {120e6, "114 MiB", "2 min"},
              {(double)(1 << 30), "1.0 GiB", "18 min"},
              {7199e6, "6.7 GiB", "120 min"},
              {7200e6, "6.7 GiB", "2.0 h"},
              {(double)(1LL << 40), "1.0 TiB", "305.4 h"},
              {(double)(1LL << 50), "1024 TiB", "312750.0 h"}};

START_TEST(numbers_have_a_unit_that_suits) {
    char text[32];
    ck_assert_str_eq(sw_ctl_bytes(text, sizeof text, values[_i].value), values[_i].bytes);
    ck_assert_str_eq(sw_ctl_time(text, sizeof text, values[_i].value), values[_i].time);
}
END_TEST

START_TEST(a_bar_is_as_long_as_the_share) {
    static const double shares[] = {0, 0.5, 1, 1.5};
    static const size_t full[] = {0, 15, 30, 30};
    char bar[SW_CTL_BAR_BYTES];
    (void)sw_ctl_bar(bar, shares[_i]);
    ck_assert_uint_eq(strspn(bar, "#"), full[_i]);
    ck_assert_uint_eq(strspn(bar + full[_i], "."), 30 - full[_i]);
    ck_assert_uint_eq(strlen(bar), 30);
}
END_TEST

static const struct {
    const char *json, *text;
} printed[] = {
    {"\"as it is\"", "as it is"},
    {"{\"bytes\": 1024, \"raw_bytes\": 1, \"rate_bytes_per_s\": 2048, \"wait_us\": 1500, \"n\": 7}",
     "size  1.0 KiB\nraw   1 B\nrate  2.0 KiB/s\nwait  1.5 ms\nn     7\n"},
    {"{\"a\": true, \"b\": false, \"c\": null, \"d\": [], \"e\": [\"x\", 2], \"wait_us\": \"none\"}",
     "a        yes\nb        no\nc        -\nd        -\ne        x, 2\nwait_us  none\n"},
    /* Control characters, of one byte and two; letters that begin like them stay. */
    {"{\"t\": \"a\\u0007b\\u007fc\\u0085d\\u00a0\\u00e4\"}", "t  a?b?c?d\xc2\xa0\xc3\xa4\n"},
    {"{\"x\": 1, \"in\": {\"y_bytes\": 2}, \"none\": {}}", "x  1\n\nin\n  y  2 B\n\nnone\n  -\n"},
    /* A column of numbers is at the right; what a row has not is "-"; columns of later rows count. */
    {"{\"rows\": [{\"name\": \"a\", \"used_bytes\": 5}, {\"name\": \"longer\", \"used_bytes\": 2048, \"z\": \"q\"}]}",
     "name       used  z\na           5 B  -\nlonger  2.0 KiB  q\n"},
    {"{\"rows\": [{\"v\": 1}], \"k\": 2}", "k  2\n\nrows\nv\n1\n"},
};

START_TEST(answers_are_printed_for_people) {
    char *text = NULL;
    size_t bytes;
    FILE *out = open_memstream(&text, &bytes);
    json_t *json = json_loads(printed[_i].json, JSON_DECODE_ANY, NULL);
    ck_assert(out && json);
    sw_ctl_print(out, json);
    ck_assert_int_eq(fclose(out), 0);
    ck_assert_str_eq(text, printed[_i].text);
    free(text);
    json_decref(json);
}
END_TEST

/* ---- a played service -------------------------------------------------------------------------------------------- */

enum { MOST_CALLS = 8 };

static struct {
    char folder[SW_TEST_PATH_BYTES], path[SW_TEST_PATH_BYTES + 8];
    int listener;
    pthread_t thread;
    const char *const *answers; /* results; with a '!' before it: a whole line. NULL: the end */
    json_t *asked[MOST_CALLS];
    unsigned n_asked;
    struct sw_ctl *ctl;
    struct sw_err err;
} play;

static void *serve(void *arg) {
    char line[1024];
    const int fd = accept(play.listener, NULL, NULL);
    FILE *in = fdopen(fd, "r+");
    (void)arg;
    SW_ASSERT(in != NULL);
    for (const char *const *answer = play.answers; *answer && fgets(line, sizeof line, in); answer++) {
        json_t *asked = json_loads(line, 0, NULL);
        SW_ASSERT(asked && play.n_asked < MOST_CALLS);
        play.asked[play.n_asked++] = asked;
        if (**answer == '!')
            (void)snprintf(line, sizeof line, "%s\n", *answer + 1);
        else
            (void)snprintf(line, sizeof line, "{\"jsonrpc\":\"2.0\",\"id\":%lld,\"result\":%s}\n",
                           (long long)json_integer_value(json_object_get(asked, "id")), *answer);
        SW_ASSERT(send(fd, line, strlen(line), MSG_NOSIGNAL) == (ssize_t)strlen(line));
    }
    (void)fclose(in);
    return NULL;
}

static void begin(const char *const *answers) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    play.answers = answers;
    sw_test_folder(play.folder);
    (void)snprintf(play.path, sizeof play.path, "%s/c.sock", play.folder);
    memcpy(address.sun_path, play.path, strlen(play.path) + 1);
    play.listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    ck_assert_int_eq(bind(play.listener, (const struct sockaddr *)&address, sizeof address), 0);
    ck_assert_int_eq(listen(play.listener, 1), 0);
    ck_assert_int_eq(pthread_create(&play.thread, NULL, serve, NULL), 0);
    ck_assert_msg(sw_ctl_open(&play.ctl, play.path, &play.err) == 0, "%s", play.err.msg);
}

static void end(unsigned n_asked) {
    sw_ctl_close(play.ctl);
    ck_assert_int_eq(pthread_join(play.thread, NULL), 0);
    ck_assert_uint_eq(play.n_asked, n_asked);
    for (unsigned i = 0; i < play.n_asked; i++)
        json_decref(play.asked[i]);
    (void)close(play.listener);
    sw_test_remove(play.folder);
}

/* ---- wait -------------------------------------------------------------------------------------------------------- */

#define ROW(region, tier, moving)                                                                                      \
    "{\"regions\": [{\"region\": \"" region "\", \"tier\": \"" tier "\", \"moving\": " moving                          \
    ", \"moved_bytes\": 1, \"stored_bytes\": 2}]}"

static const struct {
    enum sw_control_method method;
    const char *begun; /* the command's answer */
    const char *answers[4];
    int code;
} waits[] = {
    {SW_CONTROL_DRAIN,
     "{}",
     {"{\"draining\": true, \"regions\": 1, \"operations\": 0}",
      "{\"draining\": true, \"regions\": 0, \"operations\": 1}",
      "{\"draining\": true, \"regions\": 0, \"operations\": 0}"},
     0},
    {SW_CONTROL_DRAIN, "{}", {"{\"draining\": false, \"regions\": 0, \"operations\": 0}"}, -SW_ECANCELED},
    {SW_CONTROL_DRAIN,
     "{\"to\": \"nvme\"}",
     {"{\"draining\": true, \"regions\": 0, \"operations\": 0, \"left_bytes\": 1}",
      "{\"draining\": true, \"regions\": 9, \"operations\": 9, \"left_bytes\": 0}"},
     0},
    {SW_CONTROL_DRAIN,
     "{\"to\": \"nvme\"}",
     {"{\"draining\": true, \"left_bytes\": 0, \"error\": \"it is full\"}"},
     -SW_ECANCELED},
    {SW_CONTROL_DRAIN, "{\"to\": \"nvme\"}", {"{\"draining\": true}"}, -SW_ECANCELED},
    {SW_CONTROL_SPILL,
     "{}",
     {"{\"tiers\": [{\"leaving_bytes\": 3}, {\"leaving_bytes\": 0}]}",
      "{\"tiers\": [{\"leaving_bytes\": 0}, {\"leaving_bytes\": 3}]}"},
     0},
    {SW_CONTROL_DEMOTE, "{\"region\": \"5:1\"}", {ROW("5:1", "host", "true"), ROW("5:1", "nvme", "false")}, 0},
    {SW_CONTROL_DEMOTE, "{\"region\": \"5:1\"}", {ROW("5:1", "host", "false")}, -SW_ECANCELED},
    {SW_CONTROL_PROMOTE, "{\"region\": \"5:1\"}", {ROW("5:1", "host", "false")}, 0},
    {SW_CONTROL_PROMOTE, "{\"region\": \"5:1\"}", {ROW("5:1", "nvme", "false")}, -SW_ECANCELED},
    {SW_CONTROL_PROMOTE, "{\"region\": \"5:1\"}", {ROW("5:2", "host", "false")}, -SW_ENOENT},
    {SW_CONTROL_DEMOTE, "{\"region\": \"5:1\"}", {"{\"regions\": []}"}, -SW_ENOENT},
    {SW_CONTROL_SPILL,
     "{}",
     {"!{\"jsonrpc\":\"2.0\",\"id\":1,\"error\":{\"code\":-1,\"message\":\"no\",\"data\":{\"name\":\"EACCES\"}}}"},
     -SW_EACCES},
};

START_TEST(a_wait_ends_when_it_is_done) {
    json_t *result = json_loads(waits[_i].begun, 0, NULL);
    unsigned n = 0;
    while (waits[_i].answers[n])
        n++;
    begin(waits[_i].answers);
    ck_assert_int_eq(sw_ctl_wait(play.ctl, &sw_control_rows[waits[_i].method], &result, &play.err), waits[_i].code);
    end(n);
    json_decref(result);
}
END_TEST

/* ---- answers ----------------------------------------------------------------------------------------------------- */

START_TEST(all_pages_are_collected) {
    static const char *const answers[] = {"{\"regions\": [3, 4], \"next\": \"more\"}", "{\"regions\": [5]}", NULL};
    json_t *all = json_loads("{\"tier\": 1, \"regions\": [1, 2], \"next\": 17}", 0, NULL),
           *want = json_loads("{\"tier\": 1, \"regions\": [1, 2, 3, 4, 5]}", 0, NULL);
    begin(answers);
    ck_assert_int_eq(sw_ctl_collect(play.ctl, all, &play.err), 0);
    ck_assert(json_equal(all, want));
    for (unsigned i = 0; i < 2; i++)
        ck_assert_str_eq(json_string_value(json_object_get(play.asked[i], "method")), "snapshot");
    ck_assert_int_eq(json_integer_value(json_object_get(json_object_get(play.asked[0], "params"), "cursor")), 17);
    ck_assert_str_eq(json_string_value(json_object_get(json_object_get(play.asked[1], "params"), "cursor")), "more");
    end(2);
    json_decref(all);
    json_decref(want);
}
END_TEST

#define OF(id, what) "{\"jsonrpc\":\"2.0\",\"id\":" id "," what "}"
#define FAILED(name) "\"error\":{\"code\":-1,\"message\":\"no\",\"data\":{\"name\":\"" name "\"}}"

static const struct {
    const char *answers[3];
    int code;
    int result; /* of the second call */
} lines[] = {
    {{"1", "2"}, 0, 2},
    {{"!{\"method\":\"event\"}\n" OF("1", "\"result\":1"), "2"}, 0, 2},
    {{"!" OF("1", "\"result\":1") "\n{\"method\":\"event\"}\n" OF("1", FAILED("EACCES")), "2"}, 0, 2},
    {{"1", "!" OF("2", FAILED("EBUSY"))}, -SW_EBUSY, 0},
    {{"1", "!" OF("null", FAILED("EPROTO"))}, -SW_EPROTO, 0}, /* it is about the connection */
    {{"1", "!" OF("2", "\"error\":{\"code\":-32601,\"message\":\"no\"}")}, -SW_EPROTO, 0},
    {{"1", "!no JSON"}, -SW_EPROTO, 0},
    {{"1", "!" OF("1", "\"result\":7")}, -SW_ECONN, 0}, /* of another request; then it ends */
    {{"1"}, -SW_ECONN, 0},
};

START_TEST(an_answer_is_its_requests) {
    json_t *first = NULL, *second = NULL;
    begin(lines[_i].answers);
    ck_assert_int_eq(sw_ctl_call(play.ctl, "status", NULL, &first, &play.err), 0);
    ck_assert_int_eq(json_integer_value(first), 1);
    ck_assert_int_eq(sw_ctl_call(play.ctl, "tiers", json_pack("{s:i}", "a", 1), &second, &play.err), lines[_i].code);
    ck_assert_int_eq(json_integer_value(second), lines[_i].result);
    end(lines[_i].answers[1] ? 2 : 1);
    json_decref(first);
    json_decref(second);
}
END_TEST

#define LEN(array) (int)(sizeof(array) / sizeof(array)[0])

int main(void) {
    Suite *suite = suite_create("daemon_ctl");
    TCase *tcase = tcase_create("ctl");
    tcase_add_loop_test(tcase, numbers_have_a_unit_that_suits, 0, LEN(values));
    tcase_add_loop_test(tcase, a_bar_is_as_long_as_the_share, 0, 4);
    tcase_add_loop_test(tcase, answers_are_printed_for_people, 0, LEN(printed));
    tcase_add_loop_test(tcase, a_wait_ends_when_it_is_done, 0, LEN(waits));
    tcase_add_test(tcase, all_pages_are_collected);
    tcase_add_loop_test(tcase, an_answer_is_its_requests, 0, LEN(lines));
    suite_add_tcase(suite, tcase);
    return sw_test_run(suite, CK_FORK);
}
