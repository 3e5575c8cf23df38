/* packet.c - one SOCK_SEQPACKET packet out or in, with the descriptors that travel beside it. */
#include "ipc/proto.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>

/* Aligned as the kernel wants control messages, with room for the most descriptors that a packet may carry. */
union control {
    struct cmsghdr align;
    char bytes[CMSG_SPACE(SW_PROTO_MAX_FDS * sizeof(int))];
};

/* The kernel has no memory for it now: no reason to give up a connection, and all that hangs on it. */
static bool passes(int cause) {
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
    /* ETOOMANYREFS: as many descriptors as this user may have are on their way; it passes when the peer has read. */
    return passes(errno) || errno == ETOOMANYREFS ? -SW_EAGAIN : -SW_ECONN;
}

/* Collects the descriptors of a received message; the control buffer holds no more than fit. */
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
        return passes(errno) ? -SW_EAGAIN : -SW_ECONN;

    *ret_n_fds = take_fds(&message, fds);
    const bool some_lost = message.msg_flags & MSG_CTRUNC;
    if (some_lost && *ret_n_fds == SW_PROTO_MAX_FDS)
        return -SW_EFDS;
    if (message.msg_flags & MSG_TRUNC || (n == 0 && (*ret_n_fds || some_lost)))
        return -SW_EPROTO; /* longer than any message; or empty, with descriptors, which is not the end of the stream */
    *ret_bytes = (size_t)n;
    return some_lost ? -SW_ELIMIT : 0; /* they would have fitted: it is our own table that is full */
}
