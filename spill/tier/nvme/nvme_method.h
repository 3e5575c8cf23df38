/* nvme_method.h - how requests get to the disk and back: io_uring, or blocking threads where io_uring is not allowed.
 *
 * One thread, the owner, starts requests and waits for their end; any thread may call wake(). An open method
 * allocates nothing and never fails: a failure is the request's result. */
#ifndef SW_SPILL_NVME_METHOD_H
#define SW_SPILL_NVME_METHOD_H

#include "base/list.h"
#include "spill/tier/nvme/nvme_file_ops.h"
#include <stdbool.h>
#include <stdint.h>

struct sw_tier_io;

/* The longest request: long enough for a disk's full rate, short enough that frames of some MiB keep several under way.
 */
#define SW_NVME_REQUEST_BYTES ((size_t)1 << 20)

/* One request. owns: the owner; the method's between start() and the wait() that returns it. */
struct sw_nvme_request {
    struct sw_list node;
    struct sw_tier_io *io; /* the owner's */
    bool write;
    int fd;
    char *memory;
    size_t bytes;
    off_t offset;
    uint64_t position; /* of the same byte in the tier; `offset` is in the file */
    bool is_plain;     /* an encrypting method only moves it */
    char *plain;       /* used by an encrypting method */
    long result;       /* bytes moved, or a negative errno value */
};

struct sw_nvme_method;

struct sw_nvme_method_ops {
    /* Starts a request. At most `depth` requests may be under way. It may not be sent before the next wait(). */
    void (*start)(struct sw_nvme_method *method, struct sw_nvme_request *request);
    /* Waits until a request has ended or wake() was called since the last wait(). Appends the requests that have ended.
     */
    void (*wait)(struct sw_nvme_method *method, struct sw_list *ret_ended);
    void (*wake)(struct sw_nvme_method *method);
    /* No request may be under way. */
    void (*close)(struct sw_nvme_method *method);
};

struct sw_nvme_method {
    const struct sw_nvme_method_ops *ops;
};

/* Opens io_uring. If the process is killed, its requests go on. io_pipe: a descriptor, borrowed for the call; the
 * kernel keeps a copy of it open until the last request has ended; -1: none. errors: -SW_ENOTSUP (not allowed, or the
 * kernel is too old), -SW_ENOMEM. */
int sw_nvme_uring_open(struct sw_nvme_method **ret, unsigned depth, int io_pipe, struct sw_err *err);
/* Starts threads. Their requests keep the process from ending. files: borrowed until close. errors: -SW_ENOMEM. */
int sw_nvme_threads_open(struct sw_nvme_method **ret, unsigned depth, const struct sw_nvme_file_ops *files,
                         struct sw_err *err);

#endif
