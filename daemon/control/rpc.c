#include "daemon/control/rpc.h"

#include "base/log.h"
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

struct call {
    sw_control_fn *const *fn;
    void *context;
    struct sw_rpc_caller *caller;
};

json_t *sw_rpc_text(const char *text) {
    json_t *string = json_string(text);
    if (string)
        return string;
    char *copy = strdup(text);
    for (char *at = copy; at && *at; at++)
        if ((unsigned char)*at >= 0x80)
            *at = '?';
    string = copy ? json_string(copy) : NULL;
    free(copy);
    return string;
}

/* Appends a newline, which compact JSON never contains. */
static char *to_line(json_t *value) {
    char *text = value ? json_dumps(value, JSON_COMPACT) : NULL;
    json_decref(value);
    const size_t bytes = text ? strlen(text) : 0;
    char *line = text ? realloc(text, bytes + 2) : NULL;
    if (!line) {
        free(text);
        return NULL;
    }
    memcpy(line + bytes, "\n", 2);
    return line;
}

static json_t *error_object(int rpc_code, const struct sw_err *err) {
    json_t *data = json_pack("{s:s, s:s}", "name", sw_err_name(err->code), "scope", sw_scope_name(err->scope));
    if (err->detail[0])
        (void)json_object_set_new(data, "detail", sw_rpc_text(err->detail));
    return json_pack("{s:i, s:o, s:o}", "code", rpc_code, "message", sw_rpc_text(err->msg), "data", data);
}

/* id: borrowed; NULL: it could not be read. */
static json_t *error_answer(json_t *id, int rpc_code, const struct sw_err *err) {
    return json_pack("{s:s, s:o, s:O?}", "jsonrpc", "2.0", "error", error_object(rpc_code, err), "id",
                     id ? id : json_null());
}

static json_t *refuse(json_t *id, int rpc_code, int code, const char *what) {
    struct sw_err err;
    (void)sw_err_set(&err, code, SW_SCOPE_REQUEST, "%s", what);
    return error_answer(id, rpc_code, &err);
}

static void log_call(const struct sw_rpc_caller *caller, const struct sw_control_row *row, int rc,
                     const struct sw_err *err) {
    char text[300];
    if (rc == 0)
        sw_log(SW_LOG_INFO, "control.done", "method=%s uid=%u", row->name, caller->uid);
    else
        sw_log(SW_LOG_INFO, "control.failed", "method=%s uid=%u name=%s text=%s", row->name, caller->uid,
               sw_err_name(err->code), sw_log_quote(text, sizeof text, err->msg));
}

static json_t *carry_out(const struct call *call, const struct sw_control_row *row, json_t *id, const json_t *params) {
    struct sw_control_args args;
    struct sw_err err = {0};
    json_t *result = NULL;
    if (call->caller->right < row->right) {
        (void)sw_err_set(&err, -SW_EACCES, SW_SCOPE_REQUEST, "%s: this user lacks the permission", row->name);
        return error_answer(id, SW_RPC_FAILED, &err);
    }
    if (sw_control_check(row, params, &args, &err) < 0)
        return error_answer(id, SW_RPC_INVALID_PARAMS, &err);
    const int rc = call->fn[row - sw_control_rows](call->context, call->caller, &args, &result, &err);
    /* Calls that may have changed something are logged; questions are not. */
    if (row->right == SW_CONTROL_ALL && (args.arg[0].given || !row->params[0].name))
        log_call(call->caller, row, rc, &err);
    if (rc < 0) {
        json_decref(result);
        return error_answer(id, SW_RPC_FAILED, &err);
    }
    if (!result)
        return refuse(id, SW_RPC_FAILED, -SW_ENOMEM, "out of memory for the answer");
    return json_pack("{s:s, s:o, s:O}", "jsonrpc", "2.0", "result", result, "id", id ? id : json_null());
}

/* Returns true for a method that only answers. As a notification it would have no effect. */
static bool is_question(const struct sw_control_row *row) {
    return row->right == SW_CONTROL_READ && !row->sets_up;
}

static bool is_id(const json_t *id) {
    return !id || json_is_string(id) || json_is_number(id) || json_is_null(id);
}

/* NULL: no answer is due. */
static json_t *answer_request(const struct call *call, const json_t *request) {
    json_t *id = json_object_get(request, "id"), *params = json_object_get(request, "params");
    const char *version = json_string_value(json_object_get(request, "jsonrpc"));
    const char *method = json_string_value(json_object_get(request, "method"));
    char text[80];
    if (!json_is_object(request))
        return refuse(NULL, SW_RPC_INVALID_REQUEST, -SW_EPROTO, "a request must be an object");
    if (!is_id(id))
        return refuse(NULL, SW_RPC_INVALID_REQUEST, -SW_EPROTO, "id must be a string, a number or null");
    if (!version || strcmp(version, "2.0") != 0)
        return refuse(id, SW_RPC_INVALID_REQUEST, -SW_EPROTO, "jsonrpc must be \"2.0\"");
    if (!method)
        return refuse(id, SW_RPC_INVALID_REQUEST, -SW_EPROTO, "method must be a string");
    const struct sw_control_row *row = sw_control_find(method);
    json_t *answer = NULL;
    if (!id && row && is_question(row))
        return NULL;
    if (row) {
        answer = carry_out(call, row, id, params);
    } else {
        (void)snprintf(text, sizeof text, "there is no method %.48s", method);
        answer = refuse(id, SW_RPC_NO_METHOD, -SW_ENOENT, text);
    }
    if (id)
        return answer;
    json_decref(answer);
    return NULL;
}

/* Adds a bracket or a comma before each answer. An answer that exceeds memory is left out. */
static void add_answer(struct sw_rpc_work *work, json_t *answer) {
    char *line = to_line(answer);
    const size_t bytes = line ? strlen(line) - 1 : 0;
    char *text = line ? realloc(work->text, work->bytes + 1 + bytes + sizeof "]\n") : NULL;
    if (text) {
        text[work->bytes] = work->text ? ',' : '[';
        memcpy(text + work->bytes + 1, line, bytes);
        work->bytes += 1 + bytes;
        memcpy(text + work->bytes, "]\n", sizeof "]\n");
        work->text = text;
    }
    free(line);
}

static void refuse_line(struct sw_rpc_work *work, int rpc_code, int code, const char *what) {
    json_decref(work->line);
    work->line = NULL;
    work->text = to_line(refuse(NULL, rpc_code, code, what));
}

void sw_rpc_begin(struct sw_rpc_work *ret, const char *line, size_t bytes) {
    json_error_t where;
    *ret = (struct sw_rpc_work){.line = json_loadb(line, bytes, JSON_REJECT_DUPLICATES | JSON_DECODE_ANY, &where)};
    const size_t n = json_array_size(ret->line);
    if (!ret->line)
        refuse_line(ret, SW_RPC_PARSE_ERROR, -SW_EPROTO, where.text);
    else if (json_is_array(ret->line) && n == 0)
        refuse_line(ret, SW_RPC_INVALID_REQUEST, -SW_EPROTO, "a batch must have at least one request");
    else if (n > SW_RPC_MAX_BATCH)
        refuse_line(ret, SW_RPC_INVALID_REQUEST, -SW_ELIMIT, "a batch must have at most 64 requests");
}

bool sw_rpc_step(struct sw_rpc_work *work, sw_control_fn *const fn[SW_CONTROL_METHOD_NR], void *context,
                 struct sw_rpc_caller *caller) {
    const struct call call = {.fn = fn, .context = context, .caller = caller};
    if (!work->line)
        return false;
    if (!json_is_array(work->line)) {
        work->text = to_line(answer_request(&call, work->line));
        return false;
    }
    add_answer(work, answer_request(&call, json_array_get(work->line, work->n_done++)));
    return work->n_done < json_array_size(work->line);
}

char *sw_rpc_end(struct sw_rpc_work *work) {
    char *text = work->text;
    json_decref(work->line);
    *work = (struct sw_rpc_work){.line = NULL};
    return text;
}

char *sw_rpc_error_line(int rpc_code, const struct sw_err *err) {
    return to_line(error_answer(NULL, rpc_code, err));
}

char *sw_rpc_notification(const char *method, json_t *params) {
    return to_line(json_pack("{s:s, s:s, s:o}", "jsonrpc", "2.0", "method", method, "params", params));
}
