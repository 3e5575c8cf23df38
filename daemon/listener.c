#include "daemon/listener.h"

#include "daemon/fdstore.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

enum { BACKLOG = 128 };

static int failed(struct sw_err *err, const char *call, const char *path) {
    const int code = sw_err_from_errno(errno);
    (void)sw_err_set(err, code, SW_SCOPE_DAEMON, "%.90s: %s", path, strerror(errno));
    (void)sw_err_detail(err, "%s: %s", call, strerror(errno));
    return code;
}

/* Opens the path's folder, and makes it if it is missing. Returns a descriptor or an error. */
static int open_folder(const char *path, struct sw_err *err) {
    char folder[SW_CONFIG_PATH_BYTES];
    const char *slash = strrchr(path, '/');
    const size_t bytes = !slash ? 0 : slash == path ? 1 : (size_t)(slash - path);
    memcpy(folder, bytes ? path : ".", bytes ? bytes : 1);
    folder[bytes ? bytes : 1] = 0;
    if (mkdir(folder, 0755) < 0 && errno != EEXIST)
        return failed(err, "mkdir", folder);
    const int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return fd < 0 ? failed(err, "open", folder) : fd;
}

static int new_socket(const struct sw_listener_config *config, struct sw_err *err) {
    const int fd = socket(AF_UNIX, config->type | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    return fd < 0 ? failed(err, "socket", config->path) : fd;
}

/* Removes a socket file that a daemon left behind. A file on which a daemon answers stays. */
static int clear_stale(const struct sw_listener_config *config, const struct sockaddr_un *address, struct sw_err *err) {
    const char *path = address->sun_path;
    struct stat found;
    if (lstat(path, &found) < 0)
        return errno == ENOENT ? 0 : failed(err, "lstat", path);
    if (!S_ISSOCK(found.st_mode))
        return sw_err_set(err, -SW_EEXIST, SW_SCOPE_DAEMON, "%.90s exists and is no socket: choose another path", path);
    const int fd = new_socket(config, err);
    if (fd < 0)
        return fd;
    const int refused = connect(fd, (const struct sockaddr *)address, sizeof *address) < 0 ? errno : 0;
    (void)close(fd);
    /* Success, too busy to connect (EAGAIN) and another type (EPROTOTYPE) all mean that a program listens. One of
     * another type may be this process, on its other socket, by a path that is spelled differently. */
    if (refused == EPROTOTYPE)
        return sw_err_set(err, -SW_EEXIST, SW_SCOPE_DAEMON, "%.80s: a socket of another kind is listening", path);
    if (refused != ECONNREFUSED)
        return sw_err_set(err, -SW_EEXIST, SW_SCOPE_DAEMON, "%.80s: another daemon is listening: stop it", path);
    return unlink(path) < 0 && errno != ENOENT ? failed(err, "unlink", path) : 0;
}

static int bind_and_listen(struct sw_listener *listener, const struct sw_listener_config *config,
                           const struct sockaddr_un *address, struct sw_err *err) {
    /* The file must never have wider permissions than configured, not even until a chmod(). */
    const mode_t before = umask(~config->mode & 0777);
    const int rc = bind(listener->socket, (const struct sockaddr *)address, sizeof *address);
    (void)umask(before);
    if (rc < 0)
        return failed(err, "bind", listener->path);
    struct stat made;
    if (config->gid != SW_LISTENER_ANY_GROUP && lchown(listener->path, (uid_t)-1, config->gid) < 0) {
        const int code = failed(err, "chown", listener->path);
        (void)unlink(listener->path);
        return code;
    }
    if (listen(listener->socket, BACKLOG) < 0 || lstat(listener->path, &made) < 0) {
        const int code = failed(err, "listen", listener->path);
        (void)unlink(listener->path);
        return code;
    }
    listener->dev = made.st_dev;
    listener->ino = made.st_ino;
    return 0;
}

static void adopt(struct sw_listener *ret, int socket, const char *path) {
    const int flags = fcntl(socket, F_GETFL);
    *ret = (struct sw_listener){.socket = socket, .is_kept = true};
    (void)fcntl(socket, F_SETFL, flags | O_NONBLOCK);
    (void)snprintf(ret->path, sizeof ret->path, "%s", path);
}

/* A predecessor has bound the socket by its own configuration, or a socket unit by its own. The file gets the
 * permissions of the present configuration. Its group is the socket unit's, unless one is configured. */
static int permit(struct sw_listener *listener, const struct sw_listener_config *config, bool is_units,
                  struct sw_err *err) {
    const gid_t gid = config->gid != SW_LISTENER_ANY_GROUP || is_units ? config->gid : getegid();
    if (lchown(listener->path, (uid_t)-1, gid) == 0 && chmod(listener->path, config->mode & 0777) == 0)
        return 0;
    const int code = failed(err, "chmod", listener->path);
    (void)close(listener->socket);
    listener->socket = -1;
    return code;
}

/* A socket kept under this name belongs to another path. The manager forgets a name with everything kept under it. */
static void forget_old(const struct sw_listener_config *config) {
    const int old = sw_fdstore_take(config->fdstore, config->keep_as);
    if (old < 0)
        return;
    (void)close(old);
    sw_fdstore_forget(config->keep_as);
}

int sw_listener_open(struct sw_listener *ret, const struct sw_listener_config *config, struct sw_err *err) {
    const char *path = config->path;
    struct sw_listener listener = {.socket = -1};
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    const size_t bytes = strlen(path);
    _Static_assert(sizeof listener.path <= sizeof address.sun_path, "a path that fits one fits the other");
    if (bytes >= sizeof listener.path)
        return sw_err_set(err, -SW_ERANGE, SW_SCOPE_DAEMON, "%s is too long for the path of a socket", config->option);
    memcpy(address.sun_path, path, bytes + 1);
    memcpy(listener.path, path, bytes + 1);

    const char *name = NULL;
    const int kept = config->fdstore ? sw_fdstore_take_listener(config->fdstore, config->type, path, &name) : -1;
    if (kept >= 0) {
        adopt(ret, kept, path);
        return permit(ret, config, !config->keep_as || strcmp(name, config->keep_as) != 0, err);
    }
    const int folder = open_folder(path, err);
    if (folder < 0)
        return folder;
    int rc = listener.socket = new_socket(config, err);
    /* Two daemons that start at the same time must not both find the same stale file, so the lock lets one at a time
     * look and bind. */
    if (rc >= 0)
        rc = flock(folder, LOCK_EX | LOCK_NB) == 0 ? clear_stale(config, &address, err)
             : errno == EWOULDBLOCK
                 ? sw_err_set(err, -SW_EBUSY, SW_SCOPE_DAEMON, "%.80s: another daemon is starting here", path)
                 : failed(err, "flock", path);
    if (rc >= 0)
        rc = bind_and_listen(&listener, config, &address, err);
    (void)close(folder);
    if (rc < 0) {
        if (listener.socket >= 0)
            (void)close(listener.socket);
        return rc;
    }
    if (config->keep_as && config->fdstore)
        forget_old(config);
    listener.is_kept = config->keep_as && sw_fdstore_keep(config->keep_as, listener.socket);
    *ret = listener;
    return 0;
}

void sw_listener_close(struct sw_listener *listener) {
    struct stat found;
    if (listener->socket < 0)
        return;
    if (!listener->is_kept && lstat(listener->path, &found) == 0 && found.st_dev == listener->dev &&
        found.st_ino == listener->ino)
        (void)unlink(listener->path);
    (void)close(listener->socket);
    listener->socket = -1;
}
