/* rpc.h - JSON-RPC 2.0 over lines: one text in, one text out.
 *
 * It knows the specification and the table of methods, and no sockets, so that tests and fuzzers call it with lines of
 * their own. Every line is answered as the specification says, or needs no answer. A request without an id (a
 * notification) is not answered, and is carried out only if it does more than ask. Errors carry the service's error in
 * `data`: {"name": "EINVAL", "scope": "request"}. thread: loop. */
#ifndef SW_DAEMON_RPC_H
#define SW_DAEMON_RPC_H

#include "daemon/control/control_methods.h"

enum {
    SW_RPC_PARSE_ERROR = -32700,
    SW_RPC_INVALID_REQUEST = -32600,
    SW_RPC_NO_METHOD = -32601,
    SW_RPC_INVALID_PARAMS = -32602,
    SW_RPC_FAILED = -32000, /* `data` has the error */
    SW_RPC_MAX_BATCH = 64
};

/* The caller. `arg` is for the handlers: a connection's subscriber, or a test's. */
struct sw_rpc_caller {
    enum sw_control_right right;
    unsigned uid; /* for the log */
    void *arg;
};
/* A handler: carries a request out. *ret_result: moved to the caller; may stay NULL with an error or without memory. */
typedef int sw_control_fn(void *context, struct sw_rpc_caller *caller, const struct sw_control_args *args,
                          struct json_t **ret_result, struct sw_err *err);

/* A line being processed: one request of a batch at a time, so that the loop can serve others in between. */
struct sw_rpc_work {
    struct json_t *line; /* NULL: nothing is left to carry out */
    size_t n_done;       /* requests of a batch that were carried out */
    char *text;          /* the answer so far, complete at any time; NULL: none yet */
    size_t bytes;        /* of a batch's text, without its closing bracket */
};
/* Parses a line (without its newline, borrowed for the call). owns: *ret, until sw_rpc_end(). */
void sw_rpc_begin(struct sw_rpc_work *ret, const char *line, size_t bytes);
/* Carries out the next request; fn: handlers by method. Returns whether there is another request. */
bool sw_rpc_step(struct sw_rpc_work *work, sw_control_fn *const fn[SW_CONTROL_METHOD_NR], void *context,
                 struct sw_rpc_caller *caller);
/* Returns the answer with its newline, to be freed by free(), or NULL if none is due or memory is short. Remaining
 * requests are not carried out. No-op for work that is all zero, or has ended. */
char *sw_rpc_end(struct sw_rpc_work *work);
/* Returns an answer to no particular request, to be freed by free(). */
char *sw_rpc_error_line(int rpc_code, const struct sw_err *err);
/* Returns a notification, {"jsonrpc": "2.0", "method": method, "params": params}, to be freed by free(). params: moved.
 */
char *sw_rpc_notification(const char *method, struct json_t *params);

/* Makes a JSON string of bytes that may be invalid UTF-8; then every byte that is not ASCII becomes '?'. */
struct json_t *sw_rpc_text(const char *text);

#endif
