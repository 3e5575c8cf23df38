/* err.h - error codes, and the record that says what failed, where, and what is unusable now.
 *
 * Functions return 0 or -SW_E... The function that first knows the cause fills the optional `struct sw_err *` by
 * sw_err_set(). Callers may add context with sw_err_context(), but never replace the cause. Decide by the code alone:
 * the texts are for people. */
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

/* The errors' positions in the list, for tables with a row for each error; sw_err_index() finds one. */
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
    char msg[128];       /* what failed, for the client */
    char detail[128];    /* the failed call and its arguments, for the log */
};

/* Returns a code's name: "EINVAL" for SW_EINVAL and -SW_EINVAL, "EUNKNOWN" if the list has no such code. thread: any.
 */
const char *sw_err_name(int code);
/* Returns the list's one-line text for a code of either sign. thread: any. */
const char *sw_err_text(int code);
/* Returns the position in the list of a code of either sign, 0 to SW_ERR_COUNT - 1; -1: not in it. thread: any. */
int sw_err_index(int code);
/* Returns the name at a position in the list. thread: any. */
const char *sw_err_name_at(int index);
/* Returns the negative code of a wire name such as "ENOSPACE"; 0: there is no such name. thread: any. */
int sw_err_from_name(const char *name);
/* Returns a scope's name: "request", "region", ... thread: any. */
const char *sw_scope_name(enum sw_scope scope);
/* Returns the negative code for an errno value: the same number if the list has it, else -SW_EIO. thread: any. */
int sw_err_from_errno(int errno_value);

/* Records a negative code, its scope and a formatted message. Returns `code`, so that `return sw_err_set(...)` works.
 * err may be NULL. thread: any. */
int sw_err_set(struct sw_err *err, int code, enum sw_scope scope, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));
/* Records the failed call and its arguments in err->detail. Returns err's code, or 0 if err is NULL. thread: any. */
int sw_err_detail(struct sw_err *err, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* Puts "context: " before err->msg, and cuts the result to fit. err may be NULL. thread: any. */
void sw_err_context(struct sw_err *err, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

#ifdef __cplusplus
}
#endif
#endif
