/* JSON-RPC of the control socket without a socket: the answers to lines, with handlers of the test. */
#include "daemon/control/rpc.h"
#include "tests/lib/run.h"

#include <check.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

static struct sw_control_args seen; /* by the handler that ran last */
static unsigned n_calls;

static int work(void *context, struct sw_rpc_caller *caller, const struct sw_control_args *args, json_t **ret_result,
                struct sw_err *err) {
    (void)caller;
    (void)err;
    seen = *args;
    n_calls++;
    *ret_result = json_string(context);
    return 0;
}

static int refuse(void *context, struct sw_rpc_caller *caller, const struct sw_control_args *args, json_t **ret_result,
                  struct sw_err *err) {
    (void)context;
    (void)caller;
    (void)args;
    *ret_result = json_true(); /* gets no answer */
    return sw_err_set(err, -SW_ESTALE, SW_SCOPE_REGION, "gone \xff");
}

static int refuse_in_detail(void *context, struct sw_rpc_caller *caller, const struct sw_control_args *args,
                            json_t **ret_result, struct sw_err *err) {
    const int rc = refuse(context, caller, args, ret_result, err);
    (void)sw_err_detail(err, "open: %s", "\xff");
    return rc;
}

static sw_control_fn *handlers[SW_CONTROL_METHOD_NR];

static void setup(void) {
    for (unsigned i = 0; i < SW_CONTROL_METHOD_NR; i++)
        handlers[i] = work;
    handlers[SW_CONTROL_DROP] = refuse;
    handlers[SW_CONTROL_PROMOTE] = refuse_in_detail;
    n_calls = 0;
}

static const char *answer_as(enum sw_control_right right, const char *line, size_t bytes) {
    static char text[32 << 10];
    struct sw_rpc_caller caller = {.right = right};
    struct sw_rpc_work work;
    sw_rpc_begin(&work, line, bytes);
    while (sw_rpc_step(&work, handlers, (void *)"done", &caller))
        ;
    char *answer = sw_rpc_end(&work);
    if (!answer)
        return NULL;
    (void)snprintf(text, sizeof text, "%s", answer);
    free(answer);
    ck_assert_ptr_eq(strchr(text, '\n'), text + strlen(text) - 1);
    text[strlen(text) - 1] = 0;
    return text;
}

static const char *answer(const char *line) {
    return answer_as(SW_CONTROL_ALL, line, strlen(line));
}

#define ERROR(code, message, name, id)                                                                                 \
    "{\"jsonrpc\":\"2.0\",\"error\":{\"code\":" code ",\"message\":\"" message "\",\"data\":{\"name\":\"" name         \
    "\",\"scope\":\"request\"}},\"id\":" id "}"
#define DONE(id) "{\"jsonrpc\":\"2.0\",\"result\":\"done\",\"id\":" id "}"
#define REQUEST(method, rest) "{\"jsonrpc\":\"2.0\",\"method\":\"" method "\",\"id\":7" rest "}"

static const struct {
    const char *line, *answer; /* NULL: none is due */
} exchanges[] = {
    {REQUEST("status", ""), DONE("7")},
    {"{\"jsonrpc\":\"2.0\",\"method\":\"status\",\"id\":\"x\\u0041\"}", DONE("\"xA\"")},
    {"{\"jsonrpc\":\"2.0\",\"method\":\"status\",\"id\":null}", DONE("null")},
    {"{\"jsonrpc\":\"2.0\",\"method\":\"status\",\"id\":1.5}", DONE("1.5")},
    {"{\"jsonrpc\":\"2.0\",\"method\":\"status\"}", NULL},
    {"{\"jsonrpc\":\"2.0\",\"method\":\"nothing\"}", NULL},
    {"{\"jsonrpc\":\"2.0\",\"method\":\"regions\",\"params\":[0]}", NULL},
    {REQUEST("nothing", ""), ERROR("-32601", "there is no method nothing", "ENOENT", "7")},
    {REQUEST("status", ",\"params\":7"), ERROR("-32602", "params must be an object or an array", "EINVAL", "7")},
    {REQUEST("status", ",\"params\":[1]"), ERROR("-32602", "status takes at most 0 parameters, not 1", "EINVAL", "7")},
    {REQUEST("status", ",\"params\":{\"a\":1}"), ERROR("-32602", "status has no parameter a", "EINVAL", "7")},
    {REQUEST("status", ",\"params\":{}"), DONE("7")},
    {"{\"jsonrpc\":\"2.0\",\"method\":\"status\",\"id\":{}}",
     ERROR("-32600", "id must be a string, a number or null", "EPROTO", "null")},
    {"{\"jsonrpc\":\"2.0\",\"method\":\"status\",\"id\":true}",
     ERROR("-32600", "id must be a string, a number or null", "EPROTO", "null")},
    {"{\"jsonrpc\":\"1.0\",\"method\":\"status\",\"id\":7}",
     ERROR("-32600", "jsonrpc must be \\\"2.0\\\"", "EPROTO", "7")},
    {"{\"method\":\"status\",\"id\":7}", ERROR("-32600", "jsonrpc must be \\\"2.0\\\"", "EPROTO", "7")},
    {"{\"jsonrpc\":\"2.0\",\"id\":7}", ERROR("-32600", "method must be a string", "EPROTO", "7")},
    {"{\"jsonrpc\":\"2.0\",\"method\":7}", ERROR("-32600", "method must be a string", "EPROTO", "null")},
    {"7", ERROR("-32600", "a request must be an object", "EPROTO", "null")},
    {"null", ERROR("-32600", "a request must be an object", "EPROTO", "null")},
    {"[]", ERROR("-32600", "a batch must have at least one request", "EPROTO", "null")},
    {"[1]", "[" ERROR("-32600", "a request must be an object", "EPROTO", "null") "]"},
    {"[{\"jsonrpc\":\"2.0\",\"method\":\"status\"}]", NULL},
    {"[" REQUEST("status", "") ",{\"jsonrpc\":\"2.0\",\"method\":\"status\"}," REQUEST("nothing", "") "]",
     "[" DONE("7") "," ERROR("-32601", "there is no method nothing", "ENOENT", "7") "]"},
    {"[[" REQUEST("status", "") "]]", "[" ERROR("-32600", "a request must be an object", "EPROTO", "null") "]"},
};

START_TEST(lines_and_their_answers) {
    const char *given = answer(exchanges[_i].line), *due = exchanges[_i].answer;
    ck_assert_msg(!given == !due, "%s: %s", exchanges[_i].line, given ? given : "no answer");
    if (due)
        ck_assert_str_eq(given, due);
}
END_TEST

static const struct {
    const char *line;
    size_t bytes; /* 0: as many as there are */
} broken[] = {
    {"{", 0},
    {"", 0},
    {"{\"a\":1,\"a\":2}", 0},
    {"{} {}", 0},
    {"{\"jsonrpc\":\"2.0\",\"method\":\"status\\u0000\",\"id\":1}", 0},
    {"\0{}", 3},
    {"{\"id\":99999999999999999999}", 0},
    {"{\"id\":1e999}", 0},
    {"\"\xff\xfe\"", 0},
    {"nan", 0},
};

START_TEST(invalid_json_is_a_parse_error) {
    const char *given =
        answer_as(SW_CONTROL_ALL, broken[_i].line, broken[_i].bytes ? broken[_i].bytes : strlen(broken[_i].line));
    ck_assert_ptr_nonnull(given);
    ck_assert_msg(strstr(given, "\"code\":-32700") && strstr(given, "\"EPROTO\"") && strstr(given, "\"id\":null"), "%s",
                  given);
}
END_TEST

START_TEST(deep_nesting_is_refused) {
    static char line[100001];
    memset(line, '[', sizeof line - 1);
    const char *given = answer(line);
    ck_assert_ptr_nonnull(given);
    ck_assert_ptr_nonnull(strstr(given, "\"code\":-32700"));
}
END_TEST

static const char *batch_of(int requests) {
    static char line[512];
    size_t n = 0;
    for (int i = 0; i < requests; i++)
        n += (size_t)snprintf(line + n, sizeof line - n, "%s0", i ? "," : "[");
    (void)snprintf(line + n, sizeof line - n, "]");
    return line;
}

START_TEST(batches_have_a_bound) {
    ck_assert_int_eq(answer(batch_of(SW_RPC_MAX_BATCH))[0], '[');
    ck_assert_str_eq(answer(batch_of(SW_RPC_MAX_BATCH + 1)),
                     ERROR("-32600", "a batch must have at most 64 requests", "ELIMIT", "null"));
}
END_TEST

/* Queries without an id are not carried out, because nobody would get the answer. Commands without an id are. */
START_TEST(queries_sent_as_notifications_are_ignored) {
    ck_assert_ptr_null(answer("{\"jsonrpc\":\"2.0\",\"method\":\"regions\"}"));
    ck_assert_ptr_null(answer("{\"jsonrpc\":\"2.0\",\"method\":\"metrics\"}"));
    ck_assert_uint_eq(n_calls, 0);
    ck_assert_ptr_null(answer("{\"jsonrpc\":\"2.0\",\"method\":\"events\"}"));
    ck_assert_ptr_null(answer("{\"jsonrpc\":\"2.0\",\"method\":\"drain\",\"params\":[\"on\"]}"));
    ck_assert_uint_eq(n_calls, 2);
    ck_assert_ptr_nonnull(answer("{\"jsonrpc\":\"2.0\",\"method\":\"regions\",\"id\":null}"));
    ck_assert_uint_eq(n_calls, 3);
}
END_TEST

/* A step is one request. The rest of a batch that is given up is never done. */
START_TEST(batches_are_done_one_request_at_a_time) {
    static const char line[] = "[" REQUEST("status", "") "," REQUEST("status", "") "," REQUEST("status", "") "]";
    struct sw_rpc_caller caller = {.right = SW_CONTROL_READ};
    struct sw_rpc_work work;
    sw_rpc_begin(&work, line, strlen(line));
    ck_assert_uint_eq(n_calls, 0);
    ck_assert(sw_rpc_step(&work, handlers, (void *)"done", &caller));
    ck_assert_uint_eq(n_calls, 1);
    ck_assert(sw_rpc_step(&work, handlers, (void *)"done", &caller));
    ck_assert_uint_eq(n_calls, 2);
    char *text = sw_rpc_end(&work);
    ck_assert_str_eq(text, "[" DONE("7") "," DONE("7") "]\n");
    free(text);
    ck_assert(!sw_rpc_step(&work, handlers, (void *)"done", &caller));
    ck_assert_ptr_null(sw_rpc_end(&work));
    ck_assert_uint_eq(n_calls, 2);
}
END_TEST

START_TEST(errors_carry_the_services_error) {
    ck_assert_str_eq(
        answer(REQUEST("drop", ",\"params\":[\"1:2\"]")),
        "{\"jsonrpc\":\"2.0\",\"error\":{\"code\":-32000,\"message\":\"gone ?\",\"data\":{\"name\":\"ESTALE\","
        "\"scope\":\"region\"}},\"id\":7}");
    ck_assert_ptr_nonnull(
        strstr(answer(REQUEST("promote", ",\"params\":[\"1:2\"]")), "\"scope\":\"region\",\"detail\":\"open: ?\"}"));
}
END_TEST

START_TEST(rights_are_checked) {
    const char *look = REQUEST("status", ""), *change = REQUEST("drain", "");
    ck_assert_str_eq(answer_as(SW_CONTROL_READ, look, strlen(look)), DONE("7"));
    ck_assert_str_eq(answer_as(SW_CONTROL_READ, change, strlen(change)),
                     ERROR("-32000", "drain: this user lacks the permission", "EACCES", "7"));
    ck_assert_str_eq(answer_as(SW_CONTROL_NOTHING, look, strlen(look)),
                     ERROR("-32000", "status: this user lacks the permission", "EACCES", "7"));
    ck_assert_uint_eq(n_calls, 1);
}
END_TEST

/* ---- parameters -------------------------------------------------------------------------------------------------- */

static const struct {
    const char *method, *params, *message; /* NULL: taken */
} checks[] = {
    {"regions", "{\"limit\":1}", NULL},
    {"regions", "{\"limit\":1000}", NULL},
    {"regions", "{\"limit\":0}", "limit: 0 is not a whole number from 1 to 1000"},
    {"regions", "{\"limit\":1001}", "limit: 1001 is not a whole number from 1 to 1000"},
    {"regions", "{\"limit\":-1}", "limit: -1 is not a whole number from 1 to 1000"},
    {"regions", "{\"limit\":1.0}", "limit: 1.0 is not a whole number from 1 to 1000"},
    {"regions", "{\"limit\":\"1\"}", "limit: \"1\" is not a whole number from 1 to 1000"},
    {"regions", "{\"limit\":null}", "limit: null is not a whole number from 1 to 1000"},
    {"regions", "{\"limit\":[]}", "limit: [] is not a whole number from 1 to 1000"},
    {"regions", "{\"tier\":\"host\"}", NULL},
    {"regions", "{\"tier\":\"device\"}", NULL},
    {"regions", "{\"tier\":\"hos\"}", "tier: \"hos\" is not one of host, nvme, remote, device"},
    {"regions", "{\"tier\":\"host, nvme\"}", "tier: \"host, nvme\" is not one of host, nvme, remote, device"},
    {"regions", "{\"tier\":\"\"}", "tier: \"\" is not one of host, nvme, remote, device"},
    {"regions", "{\"cursor\":4294967295}", "cursor: 4294967295 is not a whole number from 0 to 4294967294"},
    {"regions", "[1,2,\"nvme\",\"out\",5,6]", NULL},
    {"regions", "[1,2,\"nvme\",\"out\",5,6,7]", "regions takes at most 6 parameters, not 7"},
    {"demote", "[\"0:1\"]", NULL},
    {"demote", "[\"4294967295:4294967295\"]", NULL},
    {"demote", "[\"4294967296:1\"]", "region: \"4294967296:1\" is not a region such as \"7:3\""},
    {"demote", "[\"1:4294967296\"]", "region: \"1:4294967296\" is not a region such as \"7:3\""},
    {"demote", "[\"18446744073709551617:1\"]", "region: \"18446744073709551617:1\" is not a region such as \"7:3\""},
    {"demote", "[\"1\"]", "region: \"1\" is not a region such as \"7:3\""},
    {"demote", "[\"1:\"]", "region: \"1:\" is not a region such as \"7:3\""},
    {"demote", "[\":1\"]", "region: \":1\" is not a region such as \"7:3\""},
    {"demote", "[\"1:2 \"]", "region: \"1:2 \" is not a region such as \"7:3\""},
    {"demote", "[\"+1:2\"]", "region: \"+1:2\" is not a region such as \"7:3\""},
    {"demote", "[7]", "region: 7 is not a region such as \"7:3\""},
    {"config.set", "{}", "config.set: parameter name is missing"},
    {"config.set", NULL, "config.set: parameter name is missing"},
    {"config.set", "[\"quotas\",[]]", NULL},
    {"config.set", "[\"slots\"]", "config.set: parameter value is missing"},
    {"config.set", "[\"slots\",3]", NULL},
    {"config.set", "[\"slots\",true]", NULL},
    {"config.set", "[\"slots\",\"3\"]", NULL},
    {"config.set", "[\"slots\",null]", "value: null is not a string, a number, a boolean or a list"},
    {"config.set", "[\"slots\",{}]", "value: {} is not a string, a number, a boolean or a list"},
    {"config.set", "[\"\",1]", "name: \"\" is not a string of 1 to 48 bytes"},
    {"config.set", "[\"nnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnn\",1]", NULL},
    {"config.set", "[\"nnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnx\",1]",
     "name: \"nnnnnnnnnnnnnnnnnnnnnn...\" is not a string of 1 to 48 bytes"},
    {"spill", "[1]", NULL},
    {"spill", "[0]", "bytes: 0 is not a size from 1 to 64 TiB"},
    {"spill", "[\"0\"]", "bytes: \"0\" is not a size from 1 to 64 TiB"},
    {"spill", "[\"1\"]", NULL},
    {"spill", "[70368744177664]", NULL},
    {"spill", "[70368744177665]", "bytes: 70368744177665 is not a size from 1 to 64 TiB"},
    {"spill", "[\"64TiB\"]", NULL},
    {"spill", "[\"70368744177665\"]", "bytes: \"70368744177665\" is not a size from 1 to 64 TiB"},
    {"spill", "[\"65TiB\"]", "bytes: \"65TiB\" is not a size from 1 to 64 TiB"},
};

START_TEST(parameters_are_checked) {
    struct sw_control_args args;
    struct sw_err err = {0};
    json_t *params = checks[_i].params ? json_loads(checks[_i].params, 0, NULL) : NULL;
    const int rc = sw_control_check(sw_control_find(checks[_i].method), params, &args, &err);
    if (checks[_i].message) {
        ck_assert_int_eq(rc, -SW_EINVAL);
        ck_assert_str_eq(err.msg, checks[_i].message);
    } else {
        ck_assert_msg(rc == 0, "%s", err.msg);
    }
    json_decref(params);
}
END_TEST

START_TEST(parameters_reach_their_method) {
    (void)answer(REQUEST("regions", ",\"params\":{\"state\":\"out\",\"uid\":0}"));
    ck_assert(seen.arg[1].given && seen.arg[1].number == 0 && seen.arg[3].given && !seen.arg[0].given);
    (void)answer(REQUEST("demote", ",\"params\":[\"12:34\"]"));
    ck_assert(seen.arg[0].given && seen.arg[0].number == 12 && seen.arg[0].gen == 34);
}
END_TEST

START_TEST(table_is_complete) {
    for (unsigned i = 0; i < SW_CONTROL_METHOD_NR; i++) {
        const struct sw_control_row *row = &sw_control_rows[i];
        ck_assert(row->name && row->help && row->right != SW_CONTROL_NOTHING);
        ck_assert_ptr_eq(sw_control_find(row->name), row);
        for (const struct sw_param *param = row->params; param->name; param++) {
            ck_assert_ptr_nonnull(param->help);
            ck_assert(param->type != SW_PARAM_CHOICE || param->choices);
            ck_assert(param->type == SW_PARAM_CHOICE || param->type == SW_PARAM_REGION ||
                      param->type == SW_PARAM_VALUE || param->max > 0);
        }
    }
}
END_TEST

#define COUNT(array) (int)(sizeof(array) / sizeof((array)[0]))

int main(void) {
    TCase *tests = tcase_create("control_rpc");
    tcase_add_checked_fixture(tests, setup, NULL);
    tcase_add_loop_test(tests, lines_and_their_answers, 0, COUNT(exchanges));
    tcase_add_loop_test(tests, invalid_json_is_a_parse_error, 0, COUNT(broken));
    tcase_add_test(tests, deep_nesting_is_refused);
    tcase_add_test(tests, batches_have_a_bound);
    tcase_add_test(tests, queries_sent_as_notifications_are_ignored);
    tcase_add_test(tests, batches_are_done_one_request_at_a_time);
    tcase_add_test(tests, errors_carry_the_services_error);
    tcase_add_test(tests, rights_are_checked);
    tcase_add_loop_test(tests, parameters_are_checked, 0, COUNT(checks));
    tcase_add_test(tests, parameters_reach_their_method);
    tcase_add_test(tests, table_is_complete);
    Suite *suite = suite_create("control_rpc");
    suite_add_tcase(suite, tests);
    return sw_test_run(suite, CK_FORK);
}
