#include "base/err.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct {
    int code;
    const char *name, *text;
} errors[] = {
#define ROW(name, code, text) {(code), "E" #name, (text)},
    SPILLWAY_ERROR_LIST(ROW)
#undef ROW
};
_Static_assert(sizeof errors / sizeof errors[0] == SW_ERR_COUNT, "one row for each error");

static int find(int code) {
    for (int i = 0; i < SW_ERR_COUNT; i++)
        if (errors[i].code == abs(code))
            return i;
    return -1;
}

const char *sw_err_name(int code) {
    int i = find(code);
    return i < 0 ? "EUNKNOWN" : errors[i].name;
}

int sw_err_index(int code) {
    return find(code);
}

const char *sw_err_name_at(int index) {
    return errors[index].name;
}

const char *sw_err_text(int code) {
    int i = find(code);
    return i < 0 ? "unknown error" : errors[i].text;
}

int sw_err_from_name(const char *name) {
    for (int i = 0; i < SW_ERR_COUNT; i++)
        if (strcmp(errors[i].name, name) == 0)
            return -errors[i].code;
    return 0;
}

const char *sw_scope_name(enum sw_scope scope) {
    static const char *const names[SW_SCOPE_NR] = {"request", "region", "session", "device", "daemon"};
    return (unsigned)scope < SW_SCOPE_NR ? names[scope] : "unknown";
}

int sw_err_from_errno(int errno_value) {
    return errno_value > 0 && errno_value < 200 && find(errno_value) >= 0 ? -errno_value : -SW_EIO;
}

int sw_err_set(struct sw_err *err, int code, enum sw_scope scope, const char *fmt, ...) {
    if (err) {
        va_list ap;
        memset(err, 0, sizeof *err);
        err->code = code;
        err->scope = scope;
        va_start(ap, fmt);
        (void)vsnprintf(err->msg, sizeof err->msg, fmt, ap);
        va_end(ap);
    }
    return code;
}

int sw_err_detail(struct sw_err *err, const char *fmt, ...) {
    if (!err)
        return 0;
    va_list ap;
    va_start(ap, fmt);
    (void)vsnprintf(err->detail, sizeof err->detail, fmt, ap);
    va_end(ap);
    return err->code;
}

void sw_err_context(struct sw_err *err, const char *fmt, ...) {
    if (!err)
        return;
    char cause[sizeof err->msg];
    memcpy(cause, err->msg, sizeof cause);
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(err->msg, sizeof err->msg, fmt, ap);
    va_end(ap);
    static const char between[] = ": ";
    if (n < 0 || (size_t)n + sizeof between > sizeof err->msg)
        return;
    char *end = mempcpy(err->msg + n, between, sizeof between - 1);
    const size_t room = (size_t)(err->msg + sizeof err->msg - 1 - end), bytes = strnlen(cause, room);
    *(char *)mempcpy(end, cause, bytes) = 0;
}
