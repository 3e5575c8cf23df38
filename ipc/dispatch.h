/* dispatch.h - finds the command of a request in the table it is given and sees to it that the request has exactly one
 * outcome: a reply now, a reply later, or an error.
 *
 * A command exists if and only if it is in the table, for the version of the packet. What can be said without knowing a
 * command is checked here: that HELLO comes first and once, and that descriptors come only with a command that takes
 * some. thread: loop. */
#ifndef SW_IPC_DISPATCH_H
#define SW_IPC_DISPATCH_H

#include "ipc/proto.h"
#include <stdbool.h>

/* One received message. fds: a command that keeps a descriptor puts -1 in its place; the others stay the caller's. */
struct sw_received {
    const struct sw_msg *msg;
    int *fds;
    unsigned n_fds;
    bool fds_lost; /* there were more, for which this process had no room */
};

enum { SW_REPLY_NOW = 0, SW_REPLY_LATER = 1, SW_REPLY_SENT = 2 };

/* Returns SW_REPLY_NOW with *ret_reply made by sw_msg_init() and its body filled in, SW_REPLY_LATER having deferred the
 * reply, SW_REPLY_SENT having sent it, or a negative error. An error of scope SESSION or wider ends the session. */
typedef int sw_command_fn(void *session, const struct sw_received *request, struct sw_msg *ret_reply,
                          struct sw_err *err);

struct sw_command {
    sw_command_fn *run;
    enum sw_msg_type type;
    bool takes_fds;
    uint16_t version; /* that has it; 0: all */
};

/* Runs one request of a session that has (`greeted`) or has not yet said HELLO. Returns as a command does;
 * ret_reply->header.seq is filled in. Descriptors that no command took are the caller's to close, also after an error.
 * errors: those of the command, -SW_EPROTO (not a request, or not in this place), -SW_EFDS. */
int sw_dispatch(const struct sw_command *table, size_t n_commands, void *session, bool greeted,
                const struct sw_received *request, struct sw_msg *ret_reply, struct sw_err *err);

#endif
