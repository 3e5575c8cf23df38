/* The control methods on a service without sockets: whatever a line holds, the service is as sound as before. */
#include "base/log.h"
#include "tests/lib/run.h"
#include "tests/lib/service.h"

#include <check.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

static struct sw_test_service service;
static struct sw_test_control control;

static void setup(void) {
    sw_log_set_level(SW_LOG_ERROR);
    sw_test_service_start(&service);
    sw_test_control_start(&control, &service);
}

static bool is_answered(const char *line, const char *part) {
    char *answer = sw_test_control_line(&control, line, strlen(line));
    const bool found = answer && strstr(answer, part);
    free(answer);
    return found;
}

START_TEST(every_method_answers) {
    char line[256];
    for (unsigned i = 0; i < SW_CONTROL_METHOD_NR; i++) {
        const struct sw_control_row *row = &sw_control_rows[i];
        (void)snprintf(line, sizeof line, "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"%s\"}", row->name);
        const bool needs = row->params[0].name && row->params[0].required;
        const bool cannot = needs || i == SW_CONTROL_CONFIG_RELOAD; /* there is no configuration to read again */
        ck_assert_msg(is_answered(line, cannot ? "\"error\"" : "\"result\""), "%s", row->name);
    }
}
END_TEST

START_TEST(what_subscribers_have_no_room_for_is_counted) {
    ck_assert(is_answered("{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"events\"}", "true"));
    for (int i = 0; i < 10; i++)
        sw_log(SW_LOG_INFO, "news", "n=%d", i);
    (void)uv_run(&service.loop, UV_RUN_NOWAIT);
    ck_assert_uint_ge(control.n_told, 10);
    ck_assert_uint_gt(sw_events_dropped(control.context.events), 0);
    ck_assert_uint_lt(sw_events_dropped(control.context.events), 10);
    /* More at once than wait for the loop. */
    for (int i = 0; i < 2000; i++)
        sw_log(SW_LOG_INFO, "news", "n=%d", i);
    (void)uv_run(&service.loop, UV_RUN_NOWAIT);
    ck_assert_uint_gt(sw_events_dropped(control.context.events), 900);
    ck_assert(is_answered("{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"events\",\"params\":[\"x\",\"off\"]}", "false"));
    const unsigned told = control.n_told;
    sw_log(SW_LOG_INFO, "news", "n=1");
    (void)uv_run(&service.loop, UV_RUN_NOWAIT);
    ck_assert_uint_eq(control.n_told, told);
}
END_TEST

static uint64_t state = 1;
static uint64_t next(uint64_t below) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state % below;
}

static const char *const seeds[] = {
    "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"regions\",\"params\":{\"session\":1,\"uid\":0,\"tier\":\"host\","
    "\"limit\":9}}",
    "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"config.set\",\"params\":[\"max_session_regions\",3]}",
    "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"config.set\",\"params\":[\"host_tier_low_pct\",\"3\"]}",
    "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"drop\",\"params\":[\"0:1\"]}",
    "[{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"drain\",\"params\":[\"off\"]},{\"jsonrpc\":\"2.0\",\"method\":"
    "\"stats\"}]",
    "{\"jsonrpc\":\"2.0\",\"id\":\"x\",\"method\":\"events\",\"params\":{\"only\":\"config,drain\",\"mode\":\"on\"}}",
    "{\"jsonrpc\":\"2.0\",\"id\":null,\"method\":\"log.level\",\"params\":[\"error\"]}",
    "{\"jsonrpc\":\"2.0\",\"id\":1e3,\"method\":\"spill\",\"params\":{\"bytes\":4096}}",
};

START_TEST(mutated_lines) {
    char line[512];
    for (int i = 0; i < 10000; i++) {
        const char *seed = seeds[next(sizeof seeds / sizeof seeds[0])];
        size_t bytes = (size_t)snprintf(line, sizeof line, "%s", seed);
        for (uint64_t n = next(4); n > 0; n--) {
            const size_t at = next(bytes);
            if (next(3) == 0)
                memmove(line + at, line + at + 1, --bytes - at);
            else
                line[at] = next(2) ? (char)next(256) : "{}[]\",:0189e-\\"[next(14)];
        }
        char *answer = sw_test_control_line(&control, line, bytes);
        if (answer) {
            json_t *parsed = json_loads(answer, 0, NULL);
            ck_assert_msg(parsed != NULL, "%s", answer);
            json_decref(parsed);
        }
        free(answer);
        if (i % 100 == 0)
            (void)uv_run(&service.loop, UV_RUN_NOWAIT);
    }
    sw_engine_check(service.service.engine);
}
END_TEST

int main(void) {
    TCase *tests = tcase_create("daemon_control");
    tcase_set_timeout(tests, 120);
    tcase_add_checked_fixture(tests, setup, NULL);
    tcase_add_test(tests, every_method_answers);
    tcase_add_test(tests, what_subscribers_have_no_room_for_is_counted);
    tcase_add_test(tests, mutated_lines);
    Suite *suite = suite_create("daemon_control");
    suite_add_tcase(suite, tests);
    return sw_test_run(suite, CK_FORK);
}
