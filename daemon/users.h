/* users.h - which users the service can tell apart, so that a uid can stand for a tenant. thread: loop. */
#ifndef SW_DAEMON_USERS_H
#define SW_DAEMON_USERS_H

#include "daemon/service.h"
#include <sys/types.h>

/* Reads which users this process's user namespace maps, and warns if these are not all. */
void sw_users_read(struct sw_service *service);

/* Checks whether a peer's uid, as the kernel reports it, may stand for a tenant. errors: -SW_EUNMAPPED (it stands for
 * every unmapped user, and unmapped_users does not make them one tenant). */
int sw_users_check(const struct sw_service *service, uid_t uid, struct sw_err *err);

#endif
