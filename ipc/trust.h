/* trust.h - whether the process that serves a socket may be given memory: anybody can bind a socket to a path that the
 * service does not use yet, or to one in a folder like /tmp.
 *
 * Trusted are root (a socket unit's sockets are served by systemd, as the kernel sees it), this process's own user, the
 * owner of the socket's folder, and a user that the caller names. A folder's owner counts only if nobody else can have
 * put the folder, or a link on the way to it, there: none of the folders on the way may be written to by groups or
 * others, or belong to a third user.
 * thread: any, no state. */
#ifndef SW_IPC_TRUST_H
#define SW_IPC_TRUST_H

#include "base/err.h"
#include "base/userns.h"
#include <stdint.h>

#define SW_TRUST_NOBODY INT64_C(-1) /* no user is named */

/* The uid in $SPILLWAY_SERVICE_UID, or SW_TRUST_NOBODY. errors: -SW_EINVAL (it is no number). */
int sw_trust_from_environment(int64_t *ret, struct sw_err *err);

/* Whether who listens at the other end of a connected socket is trusted. path: that it was connected by. named: a uid
 * that is trusted, too, also if it is the overflow uid; or SW_TRUST_NOBODY. errors: -SW_EUNTRUSTED, -SW_ECONN. */
int sw_trust_check(int socket, const char *path, int64_t named, struct sw_err *err);

/* The decision behind it, for a peer of this uid. */
bool sw_trust_is_trusted(uid_t uid, const char *path, int64_t named, const struct sw_userns *userns);

#endif
