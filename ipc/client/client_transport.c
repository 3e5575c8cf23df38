/* client_transport.c - the socket: connects it, and moves packets between it and the outbox. */
#include "ipc/client/client.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/descriptors.h"
#include "ipc/trust.h"
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/timerfd.h>
#include <sys/un.h>
#include <unistd.h>

enum {
    FIRST_RETRY_US = 1000,
    LAST_RETRY_US = 64000
}; /* pauses for a socket that claims to have room but takes nothing */

/* ---- connecting -------------------------------------------------------------------------------------------------- */

int sw_client_open_failed(int cause) {
    return sw_is_out_of_descriptors(cause) ? -SW_ELIMIT : -SW_ECONN;
}

static int new_socket(const char *path, int flags, struct sockaddr_un *ret_address, int *ret, struct sw_err *err) {
    const size_t path_bytes = strlen(path);
    if (path_bytes >= sizeof ret_address->sun_path)
        return sw_err_set(err, -SW_EINVAL, SW_SCOPE_SESSION, "socket path of %zu bytes is longer than %zu", path_bytes,
                          sizeof ret_address->sun_path - 1);
    *ret_address = (struct sockaddr_un){.sun_family = AF_UNIX};
    memcpy(ret_address->sun_path, path, path_bytes);
    *ret = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | flags, 0);
    if (*ret >= 0)
        return 0;
    return sw_err_set(err, sw_client_open_failed(errno), SW_SCOPE_SESSION, "socket: %s", strerror(errno));
}

static int not_connected(const struct spillway *c, const char *path, int cause, struct sw_err *err) {
    switch (cause) {
    case EACCES:
        return sw_err_set(err, -SW_EACCES, SW_SCOPE_SESSION, "%s: %s; is this user in the socket's group?", path,
                          strerror(cause));
    case EAGAIN:
        return sw_err_set(err, -SW_ETIMEDOUT, SW_SCOPE_SESSION, "%s: the service did not take the connection in %d s",
                          path, c->connect_ms / 1000);
    case EPROTOTYPE:
        return sw_err_set(err, -SW_ENOSERVICE, SW_SCOPE_SESSION,
                          "%s is a socket of another kind, like control.sock; use data.sock", path);
    default:
        return sw_err_set(err, -SW_ENOSERVICE, SW_SCOPE_SESSION, "%s: %s; is spillwayd running?", path,
                          strerror(cause));
    }
}

int sw_client_connect(const struct spillway *c, const char *path, int *ret, struct sw_err *err) {
    struct sockaddr_un address;
    int fd = -1;
    int rc = new_socket(path, SOCK_NONBLOCK, &address, &fd, err);
    if (!rc && connect(fd, (const struct sockaddr *)&address, sizeof address) < 0)
        rc = not_connected(c, path, errno, err);
    if (!rc)
        rc = sw_trust_check(fd, path, c->service_uid, err);
    if (rc && fd >= 0)
        (void)close(fd);
    if (!rc)
        *ret = fd;
    return rc;
}

/* Connects within the time limit. After a signal the next attempt has the rest of the time. */
static int connect_in_time(int socket, const struct sockaddr_un *address, uint64_t deadline_us) {
    for (uint64_t now_us; (now_us = sw_clock_us()) < deadline_us;) {
        const uint64_t left_us = deadline_us - now_us;
        const struct timeval timeout = {.tv_sec = (time_t)(left_us / 1000000),
                                        .tv_usec = (suseconds_t)(left_us % 1000000)};
        (void)setsockopt(socket, SOL_SOCKET, SO_SNDTIMEO, &timeout, sizeof timeout);
        const int rc = connect(socket, (const struct sockaddr *)address, sizeof *address);
        if (rc == 0 || errno != EINTR)
            return rc;
    }
    errno = EAGAIN; /* as connect() reports a full backlog */
    return -1;
}

int sw_transport_open(struct spillway *c, const char *path, uint64_t deadline_us, struct sw_err *err) {
    struct sockaddr_un address;
    const int made = new_socket(path, 0, &address, &c->socket, err);
    if (made < 0)
        return made;
    if (connect_in_time(c->socket, &address, deadline_us) < 0)
        return not_connected(c, path, errno, err);
    if (fcntl(c->socket, F_SETFL, O_NONBLOCK) < 0)
        return sw_err_set(err, -SW_ECONN, SW_SCOPE_SESSION, "fcntl: %s", strerror(errno));
    return sw_trust_check(c->socket, path, c->service_uid, err);
}

int sw_transport_watch(struct spillway *c, struct sw_err *err) {
    struct epoll_event event = {.events = EPOLLIN};
    c->epoll = epoll_create1(EPOLL_CLOEXEC);
    c->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (c->epoll < 0 || c->wake < 0 || epoll_ctl(c->epoll, EPOLL_CTL_ADD, c->socket, &event) < 0 ||
        epoll_ctl(c->epoll, EPOLL_CTL_ADD, c->wake, &event) < 0)
        return sw_err_set(err, sw_client_open_failed(errno), SW_SCOPE_SESSION, "epoll: %s", strerror(errno));
    return 0;
}

/* ---- packets ----------------------------------------------------------------------------------------------------- */

struct sw_packet *sw_packet_new(struct sw_list *group, const struct sw_msg *msg, struct sw_err *err) {
    struct sw_packet *p = sw_alloc(sizeof *p + sw_msg_packet_bytes(msg));
    if (!p) {
        (void)sw_err_set(err, -SW_ENOMEM, SW_SCOPE_REQUEST, "no memory for a request");
        return NULL;
    }
    p->bytes = sw_msg_encode(msg, p->data);
    sw_list_append(group, &p->node);
    return p;
}

struct sw_packet *sw_packet_copy(const struct spillway *c, const struct sw_list *packet) {
    const struct sw_packet *from = SW_CONTAINER_OF(packet, const struct sw_packet, node);
    struct sw_packet *copy = c->resume && from->n_fds == 0 ? sw_alloc(sizeof *copy + from->bytes) : NULL;
    if (!copy)
        return NULL;
    sw_list_init(&copy->node);
    copy->bytes = from->bytes;
    memcpy(copy->data, from->data, from->bytes);
    return copy;
}

void sw_packet_free(struct sw_packet *p) {
    for (unsigned i = 0; i < p->n_fds; i++)
        (void)close(p->fds[i]);
    sw_list_remove(&p->node);
    sw_free(p);
}

static struct sw_packet *first_packet(struct sw_list *list) {
    return sw_list_empty(list) ? NULL : SW_CONTAINER_OF(list->next, struct sw_packet, node);
}

void sw_packets_free(struct sw_list *group) {
    for (struct sw_packet *p; (p = first_packet(group));)
        sw_packet_free(p);
}

static void stop_retry(struct spillway *c) {
    static const struct itimerspec never;
    if (c->retry_at_us)
        (void)timerfd_settime(c->retry, 0, &never, NULL); /* also makes the timer unreadable */
    c->retry_us = c->retry_at_us = 0;
}

/* Sets a timer that wakes spillway_fd(), after a longer pause each time that nothing has moved. Returns false if there
 * is no timer. */
static bool set_retry(struct spillway *c) {
    const uint64_t now_us = sw_clock_us();
    if (c->retry < 0) {
        struct epoll_event event = {.events = EPOLLIN};
        c->retry = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
        if (c->retry >= 0 && epoll_ctl(c->epoll, EPOLL_CTL_ADD, c->retry, &event) < 0) {
            (void)close(c->retry);
            c->retry = -1;
        }
    }
    if (c->retry < 0 || now_us < c->retry_at_us)
        return c->retry >= 0;
    c->retry_us = !c->retry_us ? FIRST_RETRY_US : 2 * c->retry_us < LAST_RETRY_US ? 2 * c->retry_us : LAST_RETRY_US;
    c->retry_at_us = now_us + c->retry_us;
    const struct itimerspec time = {.it_value.tv_nsec = (long)c->retry_us * 1000};
    (void)timerfd_settime(c->retry, 0, &time, NULL);
    return true;
}

/* Chooses what to watch. A socket may claim to have room but take nothing: too many descriptors are in sockets, or the
 * kernel has no memory for a packet. Watching it for room would then never sleep. */
static bool claims_room(int socket) {
    struct pollfd p = {.fd = socket, .events = POLLOUT};
    return poll(&p, 1, 0) == 1 && p.revents == POLLOUT;
}

static void watch_room(struct spillway *c, bool refused) {
    const bool waits = !sw_list_empty(&c->outbox), later = waits && refused && claims_room(c->socket) && set_retry(c),
               room = waits && !later;
    if (!later)
        stop_retry(c);
    if (room == c->polls_room)
        return;
    struct epoll_event event = {.events = EPOLLIN | (room ? (uint32_t)EPOLLOUT : 0u)};
    (void)epoll_ctl(c->epoll, EPOLL_CTL_MOD, c->socket, &event);
    c->polls_room = room;
}

/* Returns 0, or -SW_ECONN if the peer is gone. Packets that it sent before can still be received. */
int sw_transport_flush(struct spillway *c) {
    int rc = 0;
    if (c->link != SW_LINK_UP) {
        stop_retry(c);
        return 0;
    }
    for (struct sw_packet *p; (p = first_packet(&c->outbox));) {
        rc = sw_packet_send(c->socket, p->data, p->bytes, p->fds, p->n_fds);
        if (rc < 0)
            break;
        sw_packet_free(p);
        stop_retry(c);
    }
    watch_room(c, rc == -SW_EAGAIN);
    return rc == -SW_EAGAIN ? 0 : rc;
}

int sw_transport_receive(struct spillway *c, size_t *ret_bytes) {
    int fds[SW_PROTO_MAX_FDS];
    unsigned n_fds = 0;
    *ret_bytes = 0;
    if (c->socket < 0)
        return -SW_EAGAIN;
    int rc = sw_packet_receive(c->socket, c->received, ret_bytes, fds, &n_fds);
    if (rc == -SW_ECONN) /* the kernel reports a reset once, before packets that the daemon sent earlier */
        rc = sw_packet_receive(c->socket, c->received, ret_bytes, fds, &n_fds);
    for (unsigned i = 0; i < n_fds; i++)
        (void)close(fds[i]);
    if (rc == 0 && *ret_bytes == 0)
        return -SW_ECONN;
    return n_fds || rc == -SW_ELIMIT ? -SW_EFDS : rc;
}
