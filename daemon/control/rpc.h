/* rpc.h - JSON-RPC 2.0 over lines: one text in, one text out.
 *
 * Knows the specification and the table of methods; nothing of sockets, so that tests and fuzzers call it with lines of
 * their own. Whatever the line holds it is answered as the specification says, or needs no answer: a request without an
 * id (a notification) is not answered, and carried out only if it does more than to ask. Errors carry ours in `data`:
 * {"name": "EINVAL", "scope": "request"}. thread: loop. */
#ifndef SW_DAEMON_RPC_H
#define SW_DAEMON_RPC_H

#include "daemon/control/control_methods.h"

enum {
    SW_RPC_PARSE_ERROR = -32700,
    SW_RPC_INVALID_REQUEST = -32600,
    SW_RPC_NO_METHOD = -32601,
    SW_RPC_INVALID_PARAMS = -32602,
    SW_RPC_FAILED = -32000, /* `data` says what */
    SW_RPC_MAX_BATCH = 64
};

/* Who asks. A handler's arg is for whatever it stands for: a connection, or a test's. */
struct sw_rpc_caller {
    enum sw_control_right right;
    unsigned uid; /* for the log */
    void *arg;
};
/* Carries a request out. *ret_result: moved to the caller, may stay NULL with an error or without memory. */
typedef int sw_control_fn(void *context, struct sw_rpc_caller *caller, const struct sw_control_args *args,
                          struct json_t **ret_result, struct sw_err *err);

/* A line under way: whoever has a loop to keep going carries out one request of a batch, and then others'. */
struct sw_rpc_work {
    struct json_t *line; /* NULL: nothing is to be carried out */
    size_t n_done;       /* of a batch */
    char *text;          /* the answer so far, complete at any time; NULL: none yet */
    size_t bytes;        /* of a batch's text, without its end */
};
/* Reads a line (without its newline, borrowed until the return). owns: *ret, until sw_rpc_end(). */
void sw_rpc_begin(struct sw_rpc_work *ret, const char *line, size_t bytes);
/* Carries out the next request; fn: by method. Returns whether there is another one. */
bool sw_rpc_step(struct sw_rpc_work *work, sw_control_fn *const fn[SW_CONTROL_METHOD_NR], void *context,
                 struct sw_rpc_caller *caller);
/* Returns the answer with its newline, to be freed by free(), or NULL if none is due or there is no memory for it. What
 * has not been carried out is not. Of work that is all zero, or has ended: no-op. */
char *sw_rpc_end(struct sw_rpc_work *work);
/* An answer to no request in particular, to be freed like that of sw_rpc_end(). */
char *sw_rpc_error_line(int rpc_code, const struct sw_err *err);
/* A notification: {"jsonrpc": "2.0", "method": method, "params": params}, to be freed likewise. params: moved. */
char *sw_rpc_notification(const char *method, struct json_t *params);

/* A string of bytes that need not be UTF-8: what is not ASCII in one that is not becomes '?'. */
struct json_t *sw_rpc_text(const char *text);

#endif
