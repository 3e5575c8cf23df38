/* packet.c - sends or receives one SOCK_SEQPACKET packet with its descriptors. */
#include "ipc/proto.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>

/* A control message, aligned for the kernel, with room for all descriptors of a packet. */
union control {
    struct cmsghdr align;
    char bytes[CMSG_SPACE(SW_PROTO_MAX_FDS * sizeof(int))];
};

/* Returns whether a later attempt may succeed. Lack of kernel memory does not end a connection. */
static bool is_temporary(int cause) {
    return cause == EAGAIN || cause == EWOULDBLOCK || cause == ENOMEM || cause == ENOBUFS;
}

int sw_packet_send(int socket, const uint8_t *packet, size_t bytes, const int *fds, unsigned n_fds) {
    if (n_fds > SW_PROTO_MAX_FDS)
        return -SW_EFDS;
    union control control;
    struct iovec io = {.iov_base = (void *)packet, .iov_len = bytes};
    struct msghdr message = {.msg_iov = &io, .msg_iovlen = 1};
    if (n_fds) {
        memset(&control, 0, sizeof control);
        message.msg_control = control.bytes;
        message.msg_controllen = CMSG_SPACE(n_fds * sizeof *fds);
        struct cmsghdr *rights = CMSG_FIRSTHDR(&message);
        rights->cmsg_level = SOL_SOCKET;
        rights->cmsg_type = SCM_RIGHTS;
        rights->cmsg_len = CMSG_LEN(n_fds * sizeof *fds);
        memcpy(CMSG_DATA(rights), fds, n_fds * sizeof *fds);
    }
    ssize_t n;
    do
        n = sendmsg(socket, &message, MSG_NOSIGNAL);
    while (n < 0 && errno == EINTR);
    if (n >= 0)
        return 0;
    /* ETOOMANYREFS: too many descriptors of this user are in sockets. A later attempt succeeds when the peer has read.
     */
    return is_temporary(errno) || errno == ETOOMANYREFS ? -SW_EAGAIN : -SW_ECONN;
}

/* Collects the descriptors of a received message. The control buffer cannot hold more than fit into fds. */
static unsigned take_fds(struct msghdr *message, int *fds) {
    unsigned n_fds = 0;
    for (struct cmsghdr *c = CMSG_FIRSTHDR(message); c; c = CMSG_NXTHDR(message, c)) {
        if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
            continue;
        const size_t bytes = c->cmsg_len - CMSG_LEN(0);
        memcpy(fds + n_fds, CMSG_DATA(c), bytes);
        n_fds += (unsigned)(bytes / sizeof *fds);
    }
    return n_fds;
}

int sw_packet_receive(int socket, uint8_t *packet, size_t *ret_bytes, int *fds, unsigned *ret_n_fds) {
    union control control;
    struct iovec io = {.iov_base = packet, .iov_len = SW_PROTO_MAX_PACKET_BYTES};
    struct msghdr message = {
        .msg_iov = &io, .msg_iovlen = 1, .msg_control = control.bytes, .msg_controllen = sizeof control.bytes};
    ssize_t n;
    *ret_n_fds = 0;
    do
        n = recvmsg(socket, &message, MSG_CMSG_CLOEXEC);
    while (n < 0 && errno == EINTR);
    if (n < 0)
        return is_temporary(errno) ? -SW_EAGAIN : -SW_ECONN;

    *ret_n_fds = take_fds(&message, fds);
    const bool some_lost = message.msg_flags & MSG_CTRUNC;
    if (some_lost && *ret_n_fds == SW_PROTO_MAX_FDS)
        return -SW_EFDS;
    if (message.msg_flags & MSG_TRUNC || (n == 0 && (*ret_n_fds || some_lost)))
        return -SW_EPROTO; /* too long, or empty with descriptors, which is not the end of the stream */
    *ret_bytes = (size_t)n;
    return some_lost ? -SW_ELIMIT : 0; /* this process has no room for more descriptors */
}
