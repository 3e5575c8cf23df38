/* The operator's end of the control socket: what it prints for people, how it waits, and how it takes answers. */
#include "base/assert.h"
#include "daemon/ctl/print.h"
#include "daemon/ctl/screen.h"
#include "daemon/ctl/top.h"
#include "daemon/ctl/wait.h"
#include "tests/lib/run.h"
#include "tests/lib/scratch.h"

#include <check.h>
#include <jansson.h>
#include <pthread.h>
#include <signal.h>
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
    {"{\"rows\": [{\"n\": 10}, {\"n\": null}]}", " n\n10\n -\n"},
    {"{\"rows\": [{\"v\": 1}], \"k\": 2}", "k  2\n\nrows\nv\n1\n"},
    /* A heading may be longer than what is below it, and learns its unit late; the last column ends with its text. */
    {"{\"rows\": [{\"heading\": 1, \"b_us\": null, \"c\": \"long\"}, {\"heading\": 2, \"b_us\": 3, \"c\": \"s\"}]}",
     "heading     b  c\n      1     -  long\n      2  3 us  s\n"},
    {"{\"rows\": [{\"a\": 1, \"b\": 2, \"c\": 3, \"d\": 4, \"e\": 5, \"f\": 6, \"g\": 7, \"h\": 8, \"i\": 9, \"j\": 0, "
     "\"k\": 1}]}",
     "a  b  c  d  e  f  g  h  i  j  k\n1  2  3  4  5  6  7  8  9  0  1\n"},
    {"{\"t\": "
     "\"0123456789012345678901234567890123456789012345678901234567890123456789012345678901234567890123456789\"}",
     "t  0123456789012345678901234567890123456789012345678901234567890123456789012345678901234567890123456789\n"},
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

START_TEST(an_event_is_a_line) {
    char *text = NULL;
    size_t bytes;
    FILE *out = open_memstream(&text, &bytes);
    json_t *json = json_loads("{\"time_ms\": 1700000000123, \"event\": \"spill.done\", \"level\": \"info\", "
                              "\"tier\": \"ho\\u0007st\", \"us\": 5}",
                              0, NULL);
    ck_assert(out && json);
    sw_ctl_print_event(out, json);
    ck_assert_int_eq(fclose(out), 0);
    ck_assert_str_eq(text + strlen("2023-11-14 22:13:20"), ".123 spill.done tier=ho?st us=5\n");
    free(text);
    json_decref(json);
}
END_TEST

/* A character of several bytes is one column. */
START_TEST(a_page_is_cut_to_the_window) {
    char *text = sw_screen_fit("\u00e4\u00f6\u00fc123\nab\nthird\n", 2, 4);
    ck_assert_str_eq(text, "\033[H\u00e4\u00f6\u00fc1\033[K\r\nab\033[K\033[J");
    free(text);
}
END_TEST

/* ---- a played service -------------------------------------------------------------------------------------------- */

enum { MOST_CALLS = 8 };

static struct {
    char folder[SW_TEST_PATH_BYTES], path[SW_TEST_PATH_BYTES + 8];
    int listener;
    pthread_t thread;
    bool has_thread;
    /* Results; with a '!' before it: a whole line; with a '~': signals interrupt the wait for it. NULL: the end. */
    const char *const *answers;
    bool is_rash;    /* the answers do not wait to be asked for */
    pthread_t asker; /* gets the signals */
    json_t *asked[MOST_CALLS];
    unsigned n_asked;
    struct sw_ctl *ctl;
    struct sw_err err;
} play;

static void interrupt(void) {
    for (unsigned i = 0; i < 20; i++) {
        SW_ASSERT(pthread_kill(play.asker, SIGUSR1) == 0);
        (void)usleep(1000);
    }
}

static void *serve(void *arg) {
    char line[1024] = "{}";
    const int fd = accept(play.listener, NULL, NULL);
    FILE *in = fdopen(fd, "r+");
    (void)arg;
    SW_ASSERT(in != NULL);
    for (const char *const *answer = play.answers; *answer && (play.is_rash || fgets(line, sizeof line, in));
         answer++) {
        json_t *asked = json_loads(line, 0, NULL);
        SW_ASSERT(asked && play.n_asked < MOST_CALLS);
        play.asked[play.n_asked++] = asked;
        if (**answer == '~')
            interrupt();
        if (**answer == '!')
            (void)snprintf(line, sizeof line, "%s\n", *answer + 1);
        else
            (void)snprintf(line, sizeof line, "{\"jsonrpc\":\"2.0\",\"id\":%lld,\"result\":%s}\n",
                           (long long)json_integer_value(json_object_get(asked, "id")), *answer + (**answer == '~'));
        SW_ASSERT(send(fd, line, strlen(line), MSG_NOSIGNAL) == (ssize_t)strlen(line));
    }
    (void)fclose(in);
    return NULL;
}

static void listen_for_it(void) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    sw_test_folder(play.folder);
    (void)snprintf(play.path, sizeof play.path, "%s/c.sock", play.folder);
    memcpy(address.sun_path, play.path, strlen(play.path) + 1);
    play.listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    ck_assert_int_eq(bind(play.listener, (const struct sockaddr *)&address, sizeof address), 0);
    ck_assert_int_eq(listen(play.listener, 1), 0);
}

static void begin(const char *const *answers) {
    play.answers = answers;
    play.asker = pthread_self();
    listen_for_it();
    ck_assert_int_eq(pthread_create(&play.thread, NULL, serve, NULL), 0);
    play.has_thread = true;
    ck_assert_msg(sw_ctl_open(&play.ctl, play.path, &play.err) == 0, "%s", play.err.msg);
}

static void join(void) {
    if (play.has_thread)
        ck_assert_int_eq(pthread_join(play.thread, NULL), 0);
    play.has_thread = false;
}

static void end(unsigned n_asked) {
    sw_ctl_close(play.ctl);
    join();
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
    ck_assert(!n || !strstr(waits[_i].answers[0], "it is full") || strstr(play.err.msg, "it is full"));
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
    {{"1", "~2"}, 0, 2},
    {{"1"}, -SW_ECONN, 0},
};

/* A part of a snapshot does not pass for all of it. */
START_TEST(a_page_that_fails_is_an_error) {
    static const char *const answers[] = {"!" OF("1", FAILED("EBUSY")), NULL};
    json_t *all = json_loads("{\"regions\": [1, 2], \"next\": 17}", 0, NULL);
    begin(answers);
    ck_assert_int_eq(sw_ctl_collect(play.ctl, all, &play.err), -SW_EBUSY);
    end(1);
    json_decref(all);
}
END_TEST

static void on_signal(int number) {
    (void)number;
}

START_TEST(an_answer_is_its_requests) {
    const struct sigaction interrupts = {.sa_handler = on_signal};
    json_t *first = NULL, *second = NULL;
    ck_assert_int_eq(sigaction(SIGUSR1, &interrupts, NULL), 0);
    begin(lines[_i].answers);
    ck_assert_int_eq(sw_ctl_call(play.ctl, "status", NULL, &first, &play.err), 0);
    ck_assert_int_eq(json_integer_value(first), 1);
    ck_assert_int_eq(sw_ctl_call(play.ctl, "tiers", json_pack("{s:i}", "a", 1), &second, &play.err), lines[_i].code);
    ck_assert_int_eq(json_integer_value(second), lines[_i].result);
    ck_assert(lines[_i].code != -SW_ECONN || !lines[_i].answers[1] ||
              strstr(play.err.msg, "the service has closed it"));
    end(lines[_i].answers[1] ? 2 : 1);
    json_decref(first);
    json_decref(second);
}
END_TEST

/* A service that refuses a connection says why, and may have closed it before it is asked. */
START_TEST(a_refusal_is_read_although_nothing_can_be_sent) {
    static const char *const answers[] = {"!" OF("null", FAILED("ELIMIT")), NULL};
    json_t *result = NULL;
    play.is_rash = true;
    begin(answers);
    join();
    ck_assert_int_eq(sw_ctl_call(play.ctl, "status", NULL, &result, &play.err), -SW_ELIMIT);
    end(1);
}
END_TEST

/* A line that is not there in time is not lost, nor is what has come of it. */
START_TEST(a_line_may_come_later) {
    const char *line = NULL;
    listen_for_it();
    ck_assert_msg(sw_ctl_open(&play.ctl, play.path, &play.err) == 0, "%s", play.err.msg);
    const int fd = accept(play.listener, NULL, NULL);
    for (int i = 0; i < 3; i++) {
        ck_assert_int_eq(send(fd, "first\nsec", 9, MSG_NOSIGNAL), 9);
        ck_assert_int_eq(sw_ctl_receive(play.ctl, 10000, &line, &play.err), 0);
        ck_assert_str_eq(line, "first");
        for (int n = 0; n < 3; n++)
            ck_assert_int_eq(sw_ctl_receive(play.ctl, 0, &line, &play.err), -SW_EAGAIN);
        ck_assert_int_eq(send(fd, "ond\n", 4, MSG_NOSIGNAL), 4);
        ck_assert_int_eq(sw_ctl_receive(play.ctl, 10000, &line, &play.err), 0);
        ck_assert_str_eq(line, "second");
    }
    (void)close(fd);
    ck_assert_int_eq(sw_ctl_receive(play.ctl, 10000, &line, &play.err), -SW_ECONN);
    end(0);
}
END_TEST

/* ---- connections ------------------------------------------------------------------------------------------------- */

START_TEST(a_connection_that_fails_says_why) {
    char path[128] = "";
    struct sw_ctl *ctl = NULL;
    memset(path, 'x', sizeof((struct sockaddr_un *)0)->sun_path);
    ck_assert_int_eq(sw_ctl_open(&ctl, path, &play.err), -SW_ENOSERVICE);
    ck_assert_ptr_nonnull(strstr(play.err.msg, "too long"));
    listen_for_it();
    ck_assert_int_eq(setenv("SPILLWAY_SERVICE_UID", "nobody", 1), 0);
    ck_assert_int_eq(sw_ctl_open(&ctl, play.path, &play.err), -SW_EINVAL);
    (void)close(play.listener);
    ck_assert_int_eq(sw_ctl_open(&ctl, play.path, &play.err), -SW_ENOSERVICE);
    ck_assert_ptr_nonnull(strstr(play.err.msg, "Connection refused; is spillwayd running there?"));
    ck_assert_ptr_null(ctl);
    sw_test_remove(play.folder);
}
END_TEST

/* ---- top --------------------------------------------------------------------------------------------------------- */

#define STATUS "{\"version\":\"1\",\"state\":\"serving\",\"uptime_us\":4000000,\"sessions\":22,\"regions\":3}"
#define STATS                                                                                                          \
    "{\"spills\":40,\"spilled_raw_bytes\":8192,\"spilled_stored_bytes\":4096,\"restores\":80,"                         \
    "\"restored_raw_bytes\":12288,\"operations\":5,\"failed\":6,\"canceled\":7,\"latency\":["                          \
    "{\"kind\":\"spill\",\"stage\":\"plan\",\"operations\":9,\"mean_us\":9,\"p99_us\":9},"                             \
    "{\"kind\":\"spill\",\"stage\":\"whole\",\"operations\":9,\"mean_us\":10,\"p99_us\":20},"                          \
    "{\"kind\":\"restore\",\"stage\":\"whole\",\"operations\":9,\"mean_us\":30,\"p99_us\":null},"                      \
    "{\"kind\":\"drop\",\"stage\":\"whole\",\"operations\":0,\"mean_us\":0,\"p99_us\":0}]}"
#define TIERS                                                                                                          \
    "{\"tiers\":[{\"tier\":\"host\",\"capacity_bytes\":4096,\"used_bytes\":1024,\"frames\":2},"                        \
    "{\"tier\":\"nvme\",\"capacity_bytes\":0,\"used_bytes\":0,\"frames\":0}]}"

static struct sw_top look_at(double at_s, const char *stats, unsigned n_sessions) {
    struct sw_top top = {.status = json_loads(STATUS, 0, NULL),
                         .stats = json_loads(stats, 0, NULL),
                         .tiers = json_loads(TIERS, 0, NULL),
                         .sessions = json_pack("{s:[]}", "sessions"),
                         .at_s = at_s};
    for (unsigned i = 0; i < n_sessions; i++)
        (void)json_array_append_new(json_object_get(top.sessions, "sessions"),
                                    json_pack("{s:i, s:i}", "session", (int)i, "stored_bytes", (int)(i * 7 % 22)));
    return top;
}

static const char *page_of(const struct sw_top *now, const struct sw_top *before) {
    static char page[4096];
    memset(page, 0, sizeof page);
    FILE *out = fmemopen(page, sizeof page, "w");
    sw_top_print(out, now, before);
    ck_assert_int_eq(fclose(out), 0);
    return page;
}

/* Rates are since the last look, or else since the start. */
START_TEST(top_shows_the_state) {
    struct sw_top now = look_at(102, STATS, 0),
                  before = look_at(100, "{\"spills\":20,\"spilled_raw_bytes\":4096,\"restores\":90}", 0);
    ck_assert_str_eq(page_of(&now, NULL),
                     "spillwayd 1, serving, up 4.0 s: 22 sessions, 3 regions\n\n"
                     "spills       10.0/s     2.0 KiB/s   stored    1.0 KiB/s   ratio 2.00\n"
                     "restores     20.0/s     3.0 KiB/s   under way 5   failed 6   canceled 7\n"
                     "spill    takes 10 us on average, 99 of 100 at most 20 us\n"
                     "restore  takes 30 us on average, 99 of 100 at most more than 10 s\n\n"
                     "host     [########......................]  25 %  1.0 KiB of 4.0 KiB, 2 frames\n"
                     "nvme     [..............................]   0 %  0 B of 0 B, 0 frames\n\n");
    const char *page = page_of(&now, &before);
    ck_assert_msg(strstr(page, "spills       10.0/s     2.0 KiB/s   stored    2.0 KiB/s   ratio 2.00\n") &&
                      strstr(page, "restores      0.0/s     6.0 KiB/s "), /* counted anew since a restart */
                  "%s", page);
    sw_top_fini(&now);
    now = look_at(1, "{}", 22);
    page = page_of(&now, NULL);
    ck_assert_msg(strstr(page, "ratio 1.00") && strstr(page, "session  stored\n      3    21 B\n      6    20 B\n") &&
                      strstr(page, "     16     2 B\nand 2 more\n"),
                  "%s", page);
    sw_top_fini(&now);
    sw_top_fini(&before);
}
END_TEST

START_TEST(a_look_that_fails_leaves_nothing) {
    static const char *const answers[] = {STATUS, STATS, NULL};
    struct sw_top top;
    begin(answers);
    ck_assert_int_eq(sw_top_look(&top, play.ctl, &play.err), -SW_ECONN);
    ck_assert(!top.status && !top.stats && !top.tiers && !top.sessions);
    end(2);
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
    tcase_add_test(tcase, a_page_that_fails_is_an_error);
    tcase_add_loop_test(tcase, an_answer_is_its_requests, 0, LEN(lines));
    tcase_add_test(tcase, an_event_is_a_line);
    tcase_add_test(tcase, a_page_is_cut_to_the_window);
    tcase_add_test(tcase, a_refusal_is_read_although_nothing_can_be_sent);
    tcase_add_test(tcase, a_line_may_come_later);
    tcase_add_test(tcase, a_connection_that_fails_says_why);
    tcase_add_test(tcase, top_shows_the_state);
    tcase_add_test(tcase, a_look_that_fails_leaves_nothing);
    suite_add_tcase(suite, tcase);
    return sw_test_run(suite, CK_FORK);
}
