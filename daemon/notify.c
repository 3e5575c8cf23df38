#include "daemon/notify.h"

#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

int sw_notify(const char *state) {
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
    const socklen_t length = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + bytes);
    const int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return errno;
    const ssize_t sent = sendto(fd, state, strlen(state), MSG_NOSIGNAL, (const struct sockaddr *)&address, length);
    const int failure = sent < 0 ? errno : 0;
    (void)close(fd);
    return failure;
}
