#include "ipc/peer.h"

#include "base/alloc.h"
#include "base/closer.h"
#include "ipc/proto.h"
#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#ifndef SO_PEERPIDFD /* Linux 6.5 */
#define SO_PEERPIDFD 77
#endif

int sw_peer_init(struct sw_peer *ret, int socket, struct sw_err *err) {
    struct ucred credentials;
    socklen_t bytes = sizeof credentials;
    if (getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &credentials, &bytes) < 0) {
        (void)sw_err_set(err, -SW_ECONN, SW_SCOPE_SESSION, "the peer's credentials cannot be read");
        (void)sw_err_detail(err, "getsockopt(SO_PEERCRED): %s", strerror(errno));
        return -SW_ECONN;
    }
    *ret = (struct sw_peer){.pid = credentials.pid, .uid = credentials.uid, .gid = credentials.gid};
    return 0;
}

void sw_peer_identify(struct sw_process *ret, int socket, const struct sw_peer *peer) {
    int pidfd = -1;
    socklen_t bytes = sizeof pidfd;
    if (getsockopt(socket, SOL_SOCKET, SO_PEERPIDFD, &pidfd, &bytes) < 0)
        pidfd = -1;
    sw_process_identify(ret, peer->pid, pidfd);
    if (pidfd >= 0)
        (void)close(pidfd);
}

bool sw_peer_in_group(int socket, gid_t group) {
    socklen_t bytes = 0;
    bool found = false;
    /* A buffer that is too short gets the needed length. */
    if (getsockopt(socket, SOL_SOCKET, SO_PEERGROUPS, NULL, &bytes) == 0 || errno != ERANGE)
        return false;
    gid_t *groups = sw_alloc(bytes);
    if (groups && getsockopt(socket, SOL_SOCKET, SO_PEERGROUPS, groups, &bytes) == 0)
        for (size_t i = 0; i < bytes / sizeof groups[0]; i++)
            found |= groups[i] == group;
    sw_free(groups);
    return found;
}

/* The loop ends because the socket was shut down: nothing arrives any more. */
static void drain_and_close(int socket) {
    uint8_t packet[SW_PROTO_MAX_PACKET_BYTES];
    int fds[SW_PROTO_MAX_FDS];
    size_t bytes;
    unsigned n_fds;
    int rc;
    do {
        rc = sw_packet_receive(socket, packet, &bytes, fds, &n_fds);
        while (n_fds)
            (void)close(fds[--n_fds]);
    } while (rc == -SW_EPROTO || rc == -SW_EFDS || rc == -SW_ELIMIT || (rc == 0 && bytes));
    (void)close(socket);
}

void sw_peer_hang_up(int socket) {
    struct sw_peer peer = {.uid = (uid_t)-1};
    if (socket < 0)
        return;
    (void)sw_peer_init(&peer, socket, NULL);
    (void)shutdown(socket, SHUT_RDWR);
    sw_closer_end(socket, peer.uid, drain_and_close);
}
