/* err.h - error codes and the record that says what failed, where, and what is now unusable.
 *
 * Functions return 0 or -SW_E...; the optional `struct sw_err *` is filled where the cause is first known, by
 * sw_err_set(). Callers may add context with sw_err_context(), never replace the cause. Not for control flow: the code
 * alone decides. */
#ifndef SW_BASE_ERR_H
#define SW_BASE_ERR_H

#include "base/public/spillway_errors.h"

#ifdef __cplusplus
extern "C" {
#endif

enum {
#define SW_ERR_ENUM(name, code, text) SW_E##name = (code),
    SPILLWAY_ERROR_LIST(SW_ERR_ENUM)
#undef SW_ERR_ENUM
};

/* Their places in the list, for tables by error; sw_err_index() finds one. */
enum {
#define SW_ERR_ROW(name, code, text) SW_ERR_ROW_##name,
    SPILLWAY_ERROR_LIST(SW_ERR_ROW)
#undef SW_ERR_ROW
        SW_ERR_COUNT
};

/* The largest thing that is unusable after the error. */
enum sw_scope { SW_SCOPE_REQUEST, SW_SCOPE_REGION, SW_SCOPE_SESSION, SW_SCOPE_DEVICE, SW_SCOPE_DAEMON, SW_SCOPE_NR };

struct sw_err {
    int code;            /* -SW_E...; 0: nothing recorded */
    enum sw_scope scope; /* what is unusable now */
    int cuda;            /* the CUDA driver's own code, or 0 */
    char msg[128];       /* fact, for the client */
    char detail[128];    /* failed call and its arguments, for the log */
};

/* "EINVAL" for -SW_EINVAL (either sign); "EUNKNOWN" for a code that is not in the list. thread: any. */
const char *sw_err_name(int code);
/* The list's one-line text of a code. thread: any. */
const char *sw_err_text(int code);
/* Place in the list, 0 to SW_ERR_COUNT - 1, of a code of either sign; -1: not in it. And the name at a place. thread:
 * any. */
int sw_err_index(int code);
const char *sw_err_name_at(int index);
/* Code of a wire name such as "ENOSPACE" as a negative number, or 0 if there is none. thread: any. */
int sw_err_from_name(const char *name);
/* "request", "region", ... thread: any. */
const char *sw_scope_name(enum sw_scope scope);
/* Negative code for an errno value: itself if listed, else -SW_EIO. thread: any. */
int sw_err_from_errno(int errno_value);

/* Records code (negative), scope and a formatted fact; returns `code`, so that `return sw_err_set(...)` works.
 * err may be NULL. thread: any. */
int sw_err_set(struct sw_err *err, int code, enum sw_scope scope, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));
/* Fills err->detail (failed call, arguments). Returns err's code, or 0 if err is NULL. thread: any. */
int sw_err_detail(struct sw_err *err, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* Puts "context: " before err->msg; cut at the field's end. thread: any. */
void sw_err_context(struct sw_err *err, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

#ifdef __cplusplus
}
#endif
#endif
