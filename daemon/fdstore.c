#include "daemon/fdstore.h"

#include "base/alloc.h"
#include "base/log.h"
#include "daemon/notify.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

/* UNIT_LIMIT: FileDescriptorStoreMax= of spillwayd.service. */
enum { FIRST_FD = 3, MAX_FDS = 1 << 16, NAME_BYTES = 64, BARRIER_MS = 5000, UNIT_LIMIT = 4104 };

struct kept {
    int fd; /* -1: taken */
    char name[NAME_BYTES];
};

struct sw_fdstore {
    unsigned n;
    struct kept kept[];
};

static unsigned count_fds(void) {
    const char *pid = getenv("LISTEN_PID"), *n = getenv("LISTEN_FDS");
    if (!pid || !n || strtol(pid, NULL, 10) != getpid())
        return 0;
    const long count = strtol(n, NULL, 10);
    return count > 0 && count <= MAX_FDS ? (unsigned)count : 0;
}

int sw_fdstore_open(struct sw_fdstore **ret, struct sw_err *err) {
    const unsigned n = count_fds();
    const char *names = getenv("LISTEN_FDNAMES");
    struct sw_fdstore *store = sw_alloc(sizeof *store + n * sizeof store->kept[0]);
    if (!store)
        return sw_err_set(err, -SW_ENOMEM, SW_SCOPE_DAEMON, "out of memory for %u kept descriptors", n);
    store->n = n;
    for (unsigned i = 0; i < n; i++) {
        const size_t bytes = names ? strcspn(names, ":") : 0;
        store->kept[i].fd = FIRST_FD + (int)i;
        (void)fcntl(store->kept[i].fd, F_SETFD, FD_CLOEXEC);
        (void)snprintf(store->kept[i].name, NAME_BYTES, "%.*s", (int)bytes, names ? names : "");
        if (names)
            names += bytes + (names[bytes] == ':');
    }
    (void)unsetenv("LISTEN_PID");
    (void)unsetenv("LISTEN_FDS");
    (void)unsetenv("LISTEN_FDNAMES");
    *ret = store;
    return 0;
}

void sw_fdstore_close(struct sw_fdstore *store) {
    for (unsigned i = 0; store && i < store->n; i++)
        if (store->kept[i].fd >= 0)
            (void)close(store->kept[i].fd);
    sw_free(store);
}

void sw_fdstore_forget_rest(struct sw_fdstore *store) {
    for (unsigned i = 0; i < store->n; i++) {
        if (store->kept[i].fd < 0)
            continue;
        sw_log(SW_LOG_WARNING, "fdstore.unknown", "name=%s then=\"the service manager no longer keeps it\"",
               store->kept[i].name);
        sw_fdstore_forget(store->kept[i].name);
    }
}

unsigned sw_fdstore_count(const struct sw_fdstore *store) {
    return store->n;
}

static int hand_out(struct kept *kept) {
    const int fd = kept->fd;
    kept->fd = -1;
    return fd;
}

int sw_fdstore_take(struct sw_fdstore *store, const char *name) {
    for (unsigned i = 0; i < store->n; i++)
        if (store->kept[i].fd >= 0 && strcmp(store->kept[i].name, name) == 0)
            return hand_out(&store->kept[i]);
    return -1;
}

int sw_fdstore_take_any(struct sw_fdstore *store, const char *prefix, const char **ret_name) {
    const size_t bytes = strlen(prefix);
    for (unsigned i = 0; i < store->n; i++) {
        if (store->kept[i].fd < 0 || strncmp(store->kept[i].name, prefix, bytes) != 0)
            continue;
        *ret_name = store->kept[i].name + bytes;
        return hand_out(&store->kept[i]);
    }
    return -1;
}

/* When the socket was bound, its path may have been spelled differently: through a link, with more slashes. */
static bool listens_at(int fd, int type, const char *path) {
    struct sockaddr_un address = {0};
    socklen_t length = sizeof address - 1, bytes = sizeof(int); /* the last byte stays zero */
    int found = 0, listens = 0;
    struct stat file, bound;
    return lstat(path, &file) == 0 && S_ISSOCK(file.st_mode) &&
           getsockopt(fd, SOL_SOCKET, SO_TYPE, &found, &bytes) == 0 && found == type &&
           getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &bytes) == 0 && listens &&
           getsockname(fd, (struct sockaddr *)&address, &length) == 0 && address.sun_family == AF_UNIX &&
           lstat(address.sun_path, &bound) == 0 && bound.st_dev == file.st_dev && bound.st_ino == file.st_ino;
}

int sw_fdstore_take_listener(struct sw_fdstore *store, int type, const char *path, const char **ret_name) {
    for (unsigned i = 0; i < store->n; i++) {
        if (store->kept[i].fd < 0 || !listens_at(store->kept[i].fd, type, path))
            continue;
        *ret_name = store->kept[i].name;
        return hand_out(&store->kept[i]);
    }
    return -1;
}

unsigned sw_fdstore_limit(void) {
    const char *text = getenv("FDSTORE");
    const unsigned long limit = text ? strtoul(text, NULL, 10) : UNIT_LIMIT;
    return limit <= MAX_FDS ? (unsigned)limit : MAX_FDS;
}

bool sw_fdstore_keep(const char *name, int fd) {
    char state[NAME_BYTES + 32];
    if (!sw_notify_is_heard())
        return false;
    (void)snprintf(state, sizeof state, "FDSTORE=1\nFDNAME=%s", name);
    int failure = sw_notify_fd(state, fd);
    if (!failure)
        failure = sw_notify_barrier(BARRIER_MS);
    if (failure)
        sw_log(SW_LOG_WARNING, "fdstore.failed", "name=%s cause=\"%s\" then=\"it is lost when this process ends\"",
               name, strerror(failure));
    return !failure;
}

void sw_fdstore_forget(const char *name) {
    char state[NAME_BYTES + 32];
    (void)snprintf(state, sizeof state, "FDSTOREREMOVE=1\nFDNAME=%s", name);
    (void)sw_notify(state);
}
