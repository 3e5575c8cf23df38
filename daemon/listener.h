/* listener.h - the listening data socket as a file: made under the right permissions, taken over only from a daemon
 * that is gone, removed only while it is still ours. thread: loop. */
#ifndef SW_DAEMON_LISTENER_H
#define SW_DAEMON_LISTENER_H

#include "base/err.h"
#include "config/config.h"
#include <stdbool.h>
#include <sys/stat.h>

struct sw_listener {
    int socket; /* SOCK_SEQPACKET, listening, non-blocking; -1: none */
    char path[SW_CONFIG_PATH_BYTES];
    dev_t dev; /* of the file that bind() made */
    ino_t ino;
    bool is_kept; /* the service manager has it, too: the file stays */
};

/* Makes the parent folder if it is missing (one level), binds and listens. A socket file that nobody answers on is
 * replaced. errors: -SW_EEXIST (a daemon answers, or the path is no socket), -SW_EIO, -SW_EACCES and the like; nothing
 * is changed then. */
int sw_listener_open(struct sw_listener *ret, const char *path, mode_t mode, struct sw_err *err);
/* One that the service manager has kept or made: socket (moved) listens at path. */
void sw_listener_adopt(struct sw_listener *ret, int socket, const char *path);
/* Closes, and unlinks the path if it is still the file that was bound. */
void sw_listener_close(struct sw_listener *listener);

#endif
