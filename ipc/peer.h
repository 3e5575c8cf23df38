/* peer.h - the other end of a data socket: its user and process, and how to hang up.
 *
 * thread: any; no state. */
#ifndef SW_IPC_PEER_H
#define SW_IPC_PEER_H

#include "base/err.h"
#include "base/process.h"
#include <stdbool.h>
#include <sys/types.h>

struct sw_peer {
    pid_t pid; /* as of connect(): it may be reused, and is 0 if this pid namespace cannot see it */
    uid_t uid;
    gid_t gid;
};

/* Gets the credentials that the peer had when it connected. errors: -SW_ECONN. */
int sw_peer_init(struct sw_peer *ret, int socket, struct sw_err *err);

/* Identifies the peer's process, as far as the kernel can. */
void sw_peer_identify(struct sw_process *ret, int socket, const struct sw_peer *peer);

/* Returns whether the peer had a supplementary group when it connected. Also false if the kernel does not know, or
 * without memory. */
bool sw_peer_in_group(int socket, gid_t group);

/* Closes a socket (moved; -1: no-op) so that the packets already sent still reach the peer. Does not wait.
 *
 * A Unix socket that is closed with unread packets resets the connection, and the peer loses the error that was sent to
 * it. So a thread (base/closer.h) reads these packets, closes their descriptors, and then closes the socket. The peer
 * sees the end at once. */
void sw_peer_hang_up(int socket);

#endif
