/* listener.h - a listening Unix socket as a file: created with the configured permissions, taken over only from a
 * daemon that is gone, removed only while it is still ours. thread: loop. */
#ifndef SW_DAEMON_LISTENER_H
#define SW_DAEMON_LISTENER_H

#include "base/err.h"
#include "config/config.h"
#include <stdbool.h>
#include <sys/stat.h>

struct sw_fdstore;

#define SW_LISTENER_ANY_GROUP ((gid_t)-1)

struct sw_listener_config {
    const char *option, *path; /* option: the option that sets the path, for errors */
    mode_t mode;
    int type;                   /* SOCK_SEQPACKET, SOCK_STREAM */
    gid_t gid;                  /* the file's group; SW_LISTENER_ANY_GROUP: none is set */
    struct sw_fdstore *fdstore; /* an existing kept socket is used; NULL: there are none */
    const char *keep_as;        /* the service manager keeps a new socket under this name; NULL: it does not */
};

struct sw_listener {
    int socket; /* listening, non-blocking; -1: none */
    char path[SW_CONFIG_PATH_BYTES];
    dev_t dev; /* of the file that bind() made */
    ino_t ino;
    bool is_kept; /* the service manager has it, too, so the file stays */
};

/* Uses the socket that the service manager has kept or made, if there is one, and sets its file's mode, and its group
 * if one is configured. Otherwise makes the missing parent folder (one level), binds and listens. A socket file on
 * which no daemon answers is replaced. errors: -SW_EEXIST (a daemon answers, or the path is no socket), -SW_EIO,
 * -SW_EACCES and the like; nothing is changed then. */
int sw_listener_open(struct sw_listener *ret, const struct sw_listener_config *config, struct sw_err *err);
/* Closes, and unlinks the path if it is still the file that was bound. */
void sw_listener_close(struct sw_listener *listener);

#endif
