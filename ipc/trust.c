#include "ipc/trust.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

int sw_trust_from_environment(int64_t *ret, struct sw_err *err) {
    const char *text = secure_getenv("SPILLWAY_SERVICE_UID");
    char *end;
    *ret = SW_TRUST_NO_USER;
    if (!text || !*text)
        return 0;
    const unsigned long long uid = strtoull(text, &end, 10);
    if (*end || text[0] < '0' || text[0] > '9' || uid >= UINT32_MAX)
        return sw_err_set(err, -SW_EINVAL, SW_SCOPE_SESSION, "SPILLWAY_SERVICE_UID is '%.24s': must be a uid", text);
    *ret = (int64_t)uid;
    return 0;
}

/* ---- folders ----------------------------------------------------------------------------------------------------- */

enum { WALK_BYTES = 1024, MAX_LINKS = 40 };

/* A walk along a path, link by link. A path that does not fit is not trusted. */
struct walk {
    char at[WALK_BYTES];   /* where it is, without links; "" is the root */
    char rest[WALK_BYTES]; /* the rest of the path, from there */
    unsigned n_links;
    uid_t uid, own; /* folders on the path may belong to these users and root */
};

static bool append(char *to, const char *separator, const char *text) {
    const size_t bytes = strlen(to);
    const int n = snprintf(to + bytes, WALK_BYTES - bytes, "%s%s", separator, text);
    return n >= 0 && (size_t)n < WALK_BYTES - bytes;
}

static void go_up(struct walk *w) {
    char *slash = strrchr(w->at, '/');
    if (slash)
        *slash = 0;
}

/* Puts the target of the link at `at` in front of the rest, and goes to the link's folder, or to the root. */
static bool follow(struct walk *w) {
    char link[WALK_BYTES];
    const ssize_t bytes = readlink(w->at, link, sizeof link);
    if (bytes <= 0 || (size_t)bytes >= sizeof link || ++w->n_links > MAX_LINKS)
        return false;
    link[bytes] = 0;
    if (!append(link, "/", w->rest))
        return false;
    memcpy(w->rest, link, sizeof link);
    go_up(w);
    if (link[0] == '/')
        w->at[0] = 0;
    return true;
}

static const char *folder_of(const struct walk *w) {
    return w->at[0] ? w->at : "/";
}

/* Returns whether no other user can put files into the folder. */
static bool is_only_theirs(const struct walk *w) {
    struct stat st;
    return stat(folder_of(w), &st) == 0 && !(st.st_mode & (S_IWGRP | S_IWOTH)) &&
           (st.st_uid == 0 || st.st_uid == w->uid || st.st_uid == w->own);
}

/* Goes on by one name of the rest. Returns false if it does not exist, or another user may have put it there. */
static bool step(struct walk *w) {
    char name[WALK_BYTES];
    struct stat st;
    const char *begin = w->rest + strspn(w->rest, "/");
    const size_t bytes = strcspn(begin, "/");
    memcpy(name, begin, bytes);
    name[bytes] = 0;
    memmove(w->rest, begin + bytes, strlen(begin + bytes) + 1);
    if (!name[0] || strcmp(name, ".") == 0)
        return true;
    if (strcmp(name, "..") == 0) {
        go_up(w);
        return true;
    }
    if (!is_only_theirs(w) || !append(w->at, "/", name) || lstat(w->at, &st) < 0)
        return false;
    return !S_ISLNK(st.st_mode) || follow(w);
}

static bool owns_folder(uid_t uid, const char *path, const struct sw_userns *userns) {
    struct walk w = {.uid = uid, .own = sw_userns_is_user(userns, geteuid()) ? geteuid() : uid};
    struct stat st;
    if (path[0] != '/' && (!getcwd(w.rest, sizeof w.rest) || !append(w.rest, "/", "")))
        return false;
    if (!append(w.rest, "", path))
        return false;
    char *slash = strrchr(w.rest, '/');
    *slash = 0; /* cut the socket's name */
    while (w.rest[0])
        if (!step(&w))
            return false;
    return stat(folder_of(&w), &st) == 0 && st.st_uid == uid;
}

bool sw_trust_is_trusted(uid_t uid, const char *path, int64_t named, const struct sw_userns *userns) {
    if (named >= 0 && (uint64_t)named == uid)
        return true;
    if (!sw_userns_is_user(userns, uid))
        return false;
    /* A mounted folder may have the overflow uid as its owner even where all users are mapped. */
    return uid == 0 || uid == geteuid() || (uid != userns->overflow_uid && owns_folder(uid, path, userns));
}

int sw_trust_check(int socket, const char *path, int64_t named, struct sw_err *err) {
    struct ucred peer;
    socklen_t bytes = sizeof peer;
    struct sw_userns userns;
    if (getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &bytes) < 0)
        return sw_err_set(err, -SW_ECONN, SW_SCOPE_SESSION, "getsockopt(SO_PEERCRED): %s", strerror(errno));
    sw_userns_read(&userns, "");
    if (sw_trust_is_trusted(peer.uid, path, named, &userns))
        return 0;
    (void)sw_err_set(err, -SW_EUNTRUSTED, SW_SCOPE_SESSION,
                     "%.48s is served by uid %u: if that is the service's user, set SPILLWAY_SERVICE_UID", path,
                     (unsigned)peer.uid);
    (void)sw_err_detail(
        err, "%s",
        sw_userns_is_user(&userns, peer.uid)
            ? "the uid is not root, this user, or the owner of a folder that no other user can have made"
            : "the uid stands for all users that this user namespace does not map");
    return -SW_EUNTRUSTED;
}
