/* control_rights.h - what a peer may do on the control socket, by the credentials of its connection.
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

/* Finds the numbers of both groups of a configuration that has a control socket, given by name or number; none without
 * a control socket. The system may look groups up over the network: do not call this while clients are served. errors:
 * -SW_ECONFIG (there is no such group, or its number stands for all groups that the user namespace does not map). */
int sw_control_groups(struct sw_control_groups *ret, const struct sw_config *config, const struct sw_userns *userns,
                      struct sw_err *err);

/* Returns the peer's right: root, this process's user and members of `all` may do everything, members of `read` may
 * look. A uid that stands for several users is neither root nor this process's user. */
enum sw_control_right sw_control_right(int socket, const struct sw_peer *peer, const struct sw_control_groups *groups,
                                       const struct sw_userns *userns);

#endif
