/* peer.h - the other end of a data socket: who it is, and how to leave it.
 *
 * thread: any; no state. */
#ifndef SW_IPC_PEER_H
#define SW_IPC_PEER_H

#include "base/err.h"
#include "base/process.h"
#include <stdbool.h>
#include <sys/types.h>

struct sw_peer {
    pid_t pid; /* as of connect(); may be reused, and 0 if this pid namespace cannot see it: for logs */
    uid_t uid;
    gid_t gid;
};

/* Credentials of whoever connected. errors: -SW_ECONN. */
int sw_peer_init(struct sw_peer *ret, int socket, struct sw_err *err);

/* Names the process that connected, as far as the kernel tells. */
void sw_peer_identify(struct sw_process *ret, int socket, const struct sw_peer *peer);

/* Whether the peer had a supplementary group when it connected. False also if the kernel does not say, or without
 * memory. */
bool sw_peer_in_group(int socket, gid_t group);

/* Closes a socket so that what was sent to the peer still reaches it: a Unix socket that is closed over unread packets
 * resets the connection, and the peer then loses the error that would have told it why. The peer sees
 * the end at once; the descriptors that travel with the unread packets, and the socket, are closed by a thread for that
 * (base/closer.h). Does not wait. owns: takes the socket; -1 is a no-op. */
void sw_peer_hang_up(int socket);

#endif
