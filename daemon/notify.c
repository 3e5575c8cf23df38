#include "daemon/notify.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

bool sw_notify_is_heard(void) {
    return getenv("NOTIFY_SOCKET") != NULL;
}

static int send_state(const struct sockaddr_un *address, socklen_t length, const char *state, int fd) {
    union {
        struct cmsghdr header;
        char bytes[CMSG_SPACE(sizeof(int))];
    } control = {0};
    struct iovec text = {.iov_base = (void *)state, .iov_len = strlen(state)};
    struct msghdr message = {.msg_name = (void *)address, .msg_namelen = length, .msg_iov = &text, .msg_iovlen = 1};
    if (fd >= 0) {
        message.msg_control = control.bytes;
        message.msg_controllen = sizeof control.bytes;
        struct cmsghdr *header = CMSG_FIRSTHDR(&message);
        header->cmsg_level = SOL_SOCKET;
        header->cmsg_type = SCM_RIGHTS;
        header->cmsg_len = CMSG_LEN(sizeof fd);
        memcpy(CMSG_DATA(header), &fd, sizeof fd);
    }
    const int to = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (to < 0)
        return errno;
    const int failure = sendmsg(to, &message, MSG_NOSIGNAL) < 0 ? errno : 0;
    (void)close(to);
    return failure;
}

int sw_notify_fd(const char *state, int fd) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    const char *name = getenv("NOTIFY_SOCKET");
    if (!name)
        return 0;
    const size_t bytes = strlen(name);
    if (bytes < 2 || bytes >= sizeof address.sun_path || (name[0] != '/' && name[0] != '@'))
        return EINVAL;
    memcpy(address.sun_path, name, bytes);
    if (name[0] == '@')
        address.sun_path[0] = 0; /* abstract: the length below ends the name */
    return send_state(&address, (socklen_t)(offsetof(struct sockaddr_un, sun_path) + bytes), state, fd);
}

int sw_notify(const char *state) {
    return sw_notify_fd(state, -1);
}

int sw_notify_barrier(int timeout_ms) {
    int ends[2];
    if (!sw_notify_is_heard())
        return 0;
    if (pipe2(ends, O_CLOEXEC) < 0)
        return errno;
    int failure = sw_notify_fd("BARRIER=1", ends[1]);
    (void)close(ends[1]);
    struct pollfd hang_up = {.fd = ends[0]};
    int rc = 0;
    while (!failure && (rc = poll(&hang_up, 1, timeout_ms)) < 0 && errno == EINTR)
        ;
    if (!failure && rc <= 0)
        failure = rc == 0 ? ETIMEDOUT : errno;
    (void)close(ends[0]);
    return failure;
}

uint64_t sw_notify_watchdog_us(void) {
    const char *us = getenv("WATCHDOG_USEC"), *pid = getenv("WATCHDOG_PID");
    if (!us || (pid && strtol(pid, NULL, 10) != getpid()))
        return 0;
    return strtoull(us, NULL, 10);
}
