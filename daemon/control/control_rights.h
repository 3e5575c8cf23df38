/* control_rights.h - what whoever connects to the control socket may do, by the credentials of the connection.
 *
 * thread: any, no state. */
#ifndef SW_DAEMON_CONTROL_RIGHTS_H
#define SW_DAEMON_CONTROL_RIGHTS_H

#include "base/err.h"
#include "config/config.h"
#include "daemon/control/control_methods.h"
#include "daemon/listener.h"
#include <sys/types.h>

#define SW_CONTROL_NO_GROUP SW_LISTENER_ANY_GROUP

/* Number of a group by its name or number; SW_CONTROL_NO_GROUP for "none". option: named by the error. errors:
 * -SW_ECONFIG (there is no such group). */
int sw_control_group(gid_t *ret, const char *option, const char *group, struct sw_err *err);

/* Both groups of a configuration that has a control socket, as above; none without one. May ask over the network, as
 * the system looks groups up: not while clients are served. */
int sw_control_groups(gid_t *ret_all, gid_t *ret_read, const struct sw_config *config, struct sw_err *err);

/* root, this process's user and members of `all` may do everything, members of `read` may look. */
enum sw_control_right sw_control_right(int socket, uid_t uid, gid_t gid, gid_t all, gid_t read);

#endif
