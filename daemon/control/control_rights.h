/* control_rights.h - what whoever connects to the control socket may do, by the credentials of the connection.
 *
 * thread: any, no state. */
#ifndef SW_DAEMON_CONTROL_RIGHTS_H
#define SW_DAEMON_CONTROL_RIGHTS_H

#include "base/err.h"
#include "base/userns.h"
#include "config/config.h"
#include "daemon/control/control_methods.h"
#include "daemon/listener.h"
#include "ipc/peer.h"
#include <sys/types.h>

#define SW_CONTROL_NO_GROUP SW_LISTENER_ANY_GROUP

struct sw_control_groups {
    gid_t all, read; /* SW_CONTROL_NO_GROUP: none */
};

/* Numbers of both groups of a configuration that has a control socket, by name or number; none without one. May ask
 * over the network, as the system looks groups up: not while clients are served. errors: -SW_ECONFIG (there is no such
 * group, or its number stands for all groups that the user namespace does not map). */
int sw_control_groups(struct sw_control_groups *ret, const struct sw_config *config, const struct sw_userns *userns,
                      struct sw_err *err);

/* root, this process's user and members of `all` may do everything, members of `read` may look. A uid that is not one
 * user's is neither root's nor this process's. */
enum sw_control_right sw_control_right(int socket, const struct sw_peer *peer, const struct sw_control_groups *groups,
                                       const struct sw_userns *userns);

#endif
