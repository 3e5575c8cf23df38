#include "spill/tier/nvme/nvme_method.h"

#include "base/alloc.h"
#include "base/assert.h"

#include <errno.h>
#include <liburing.h>
#include <stdint.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define RETRY_US 1000u

struct uring {
    struct sw_nvme_method method;
    struct io_uring ring;
    int event;           /* for wake(): a read of it is always under way */
    uint64_t event_data; /* target of this read */
};

static struct uring *uring_of(struct sw_nvme_method *method) {
    return SW_CONTAINER_OF(method, struct uring, method);
}

static struct io_uring_sqe *next_sqe(struct uring *u) {
    struct io_uring_sqe *sqe = io_uring_get_sqe(&u->ring);
    SW_ASSERT(sqe); /* the ring has room for everything that may be under way */
    return sqe;
}

/* The completion of the event's read has no request. */
static void arm_event(struct uring *u) {
    struct io_uring_sqe *sqe = next_sqe(u);
    io_uring_prep_read(sqe, u->event, &u->event_data, sizeof u->event_data, 0);
    io_uring_sqe_set_data(sqe, NULL);
}

static void uring_start(struct sw_nvme_method *method, struct sw_nvme_request *request) {
    struct io_uring_sqe *sqe = next_sqe(uring_of(method));
    if (request->write)
        io_uring_prep_write(sqe, request->fd, request->memory, (unsigned)request->bytes, (uint64_t)request->offset);
    else
        io_uring_prep_read(sqe, request->fd, request->memory, (unsigned)request->bytes, (uint64_t)request->offset);
    io_uring_sqe_set_data(sqe, request);
}

/* Sends queued requests; returns when there is a completion. */
static void submit_and_wait(struct uring *u) {
    for (;;) {
        int rc = io_uring_submit_and_wait(&u->ring, 1);
        if (io_uring_cq_ready(&u->ring) > 0)
            return;
        SW_ASSERT(rc >= 0 || rc == -EINTR || rc == -EAGAIN || rc == -EBUSY || rc == -ENOMEM);
        if (rc < 0 && rc != -EINTR) /* the kernel is short of memory; unsent requests are sent again */
            (void)usleep(RETRY_US);
    }
}

static void uring_wait(struct sw_nvme_method *method, struct sw_list *ret_ended) {
    struct uring *u = uring_of(method);
    struct io_uring_cqe *cqe;
    submit_and_wait(u);
    while (io_uring_peek_cqe(&u->ring, &cqe) == 0) {
        struct sw_nvme_request *request = io_uring_cqe_get_data(cqe);
        if (request) {
            request->result = cqe->res;
            sw_list_append(ret_ended, &request->node);
        } else {
            arm_event(u);
        }
        io_uring_cqe_seen(&u->ring, cqe);
    }
}

static void uring_wake(struct sw_nvme_method *method) {
    const uint64_t one = 1;
    ssize_t n;
    do
        n = write(uring_of(method)->event, &one, sizeof one);
    while (n < 0 && errno == EINTR);
    SW_ASSERT(n == sizeof one);
}

static void uring_close(struct sw_nvme_method *method) {
    struct uring *u = uring_of(method);
    uring_wake(method); /* ends the read, which would otherwise write into freed memory */
    submit_and_wait(u);
    io_uring_queue_exit(&u->ring);
    (void)close(u->event);
    sw_free(u);
}

static const struct sw_nvme_method_ops uring_ops = {
    .start = uring_start,
    .wait = uring_wait,
    .wake = uring_wake,
    .close = uring_close,
};

static bool has_operations(struct io_uring *ring) {
    struct io_uring_probe *probe = io_uring_get_probe_ring(ring);
    bool has =
        probe && io_uring_opcode_supported(probe, IORING_OP_READ) && io_uring_opcode_supported(probe, IORING_OP_WRITE);
    io_uring_free_probe(probe);
    return has;
}

/* A descriptor registered with a ring stays open until the ring is gone, after its last request. */
static bool keeps(struct io_uring *ring, int io_pipe) {
    return io_pipe < 0 || io_uring_register_files(ring, &io_pipe, 1) == 0;
}

int sw_nvme_uring_open(struct sw_nvme_method **ret, unsigned depth, int io_pipe, struct sw_err *err) {
    struct uring *u = sw_alloc(sizeof *u);
    if (!u)
        return sw_err_set(err, -SW_ENOMEM, SW_SCOPE_DAEMON, "out of memory for the NVMe tier");
    u->method.ops = &uring_ops;
    int rc = io_uring_queue_init(depth + 1, &u->ring, 0); /* one more for the event's read */
    if (rc < 0) {
        sw_free(u);
        rc = sw_err_set(err, -SW_ENOTSUP, SW_SCOPE_DAEMON, "io_uring cannot be used: %s", strerror(-rc));
        return rc;
    }
    u->event = eventfd(0, EFD_CLOEXEC);
    if (u->event < 0 || !has_operations(&u->ring) || !keeps(&u->ring, io_pipe)) {
        if (u->event >= 0)
            (void)close(u->event);
        io_uring_queue_exit(&u->ring);
        sw_free(u);
        return sw_err_set(err, -SW_ENOTSUP, SW_SCOPE_DAEMON,
                          "io_uring cannot be used: it lacks an operation, or no descriptor is left");
    }
    arm_event(u);
    *ret = &u->method;
    return 0;
}
