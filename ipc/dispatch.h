/* dispatch.h - runs the command of a request, from a table.
 *
 * Each request has exactly one outcome: a reply now, a reply later, or an error. Rules that hold for all commands are
 * checked here: the table must have the command for the packet's version, HELLO comes first and once, and descriptors
 * come only with a command that takes some. thread: loop. */
#ifndef SW_IPC_DISPATCH_H
#define SW_IPC_DISPATCH_H

#include "ipc/proto.h"
#include <stdbool.h>

/* One received message. A command that keeps a descriptor replaces it by -1 in fds. The caller owns the others. */
struct sw_received {
    const struct sw_msg *msg;
    int *fds;
    unsigned n_fds;
    bool fds_lost; /* more descriptors came, but this process has no room for them */
};

enum { SW_REPLY_NOW = 0, SW_REPLY_LATER = 1, SW_REPLY_SENT = 2 };

/* Carries out a request. Returns one of these:
 *
 * - SW_REPLY_NOW: *ret_reply was made by sw_msg_init(), and its body is filled in.
 * - SW_REPLY_LATER: the reply is deferred.
 * - SW_REPLY_SENT: the reply was sent.
 * - A negative error. An error of scope SESSION or wider ends the session. */
typedef int sw_command_fn(void *session, const struct sw_received *request, struct sw_msg *ret_reply,
                          struct sw_err *err);

struct sw_command {
    sw_command_fn *run;
    enum sw_msg_type type;
    bool takes_fds;
    uint16_t version; /* the only version that has it; 0: all have it */
};

/* Runs one request. Returns as a command does, and fills in ret_reply->header.seq.
 *
 * - greeted: the session has had its HELLO.
 * - The caller closes the descriptors that the command did not take, also after an error.
 * - errors: those of the command, -SW_EPROTO (not a request, or not allowed now), -SW_EFDS. */
int sw_dispatch(const struct sw_command *table, size_t n_commands, void *session, bool greeted,
                const struct sw_received *request, struct sw_msg *ret_reply, struct sw_err *err);

#endif
