/* trust.h - checks whether the process that serves a socket may get a client's memory.
 *
 * Any user can bind a socket to a path that the service does not use yet, or to a path in a folder like /tmp. Trusted
 * are:
 *
 * - root. The kernel reports root for the sockets of a systemd socket unit.
 * - This process's own user.
 * - A user that the caller names.
 * - The owner of the socket's folder, if no other user can have made the folder or a link on the path to it. So no
 *   folder on the path may be writable for groups or others, or belong to a third user.
 *
 * thread: any, no state. */
#ifndef SW_IPC_TRUST_H
#define SW_IPC_TRUST_H

#include "base/err.h"
#include "base/userns.h"
#include <stdint.h>

#define SW_TRUST_NO_USER INT64_C(-1) /* the caller names no user */

/* Gets the uid in $SPILLWAY_SERVICE_UID, or SW_TRUST_NO_USER. errors: -SW_EINVAL (not a number). */
int sw_trust_from_environment(int64_t *ret, struct sw_err *err);

/* Checks the process that listens at the other end of a connected socket. path: the socket's. named: a uid that is
 * trusted as well, even the overflow uid; or SW_TRUST_NO_USER. errors: -SW_EUNTRUSTED, -SW_ECONN. */
int sw_trust_check(int socket, const char *path, int64_t named, struct sw_err *err);

/* Returns whether a peer of this uid is trusted. For tests; sw_trust_check() uses it. */
bool sw_trust_is_trusted(uid_t uid, const char *path, int64_t named, const struct sw_userns *userns);

#endif
