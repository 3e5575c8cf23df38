#include "spill/tier/nvme/nvme_io.h"

#include "base/alloc.h"
#include "base/assert.h"
#include "base/clock.h"
#include "base/meter.h"
#include "base/thread.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#define BLOCK_BYTES ((uint64_t)SW_TIER_IO_ALIGN)

struct sw_nvme_io {
    struct sw_nvme_io_config config;
    pthread_t thread;
    pthread_mutex_t lock; /* guards the next three fields; held for list operations only */
    struct sw_list inbox; /* sw_tier_io.tier.node */
    bool signaled;        /* the thread was woken and has not looked yet */
    bool stop;
    atomic_ullong rates[2]; /* of the meters, by kind */
    /* The thread's own: */
    struct sw_list active[2]; /* by kind: transfers with requests that were not started */
    unsigned n_transfers;     /* transfers that have not ended */
    struct sw_list idle;      /* requests */
    struct sw_meter meters[2];
    enum sw_tier_io_kind turn;
    struct sw_nvme_request requests[];
};

static struct sw_tier_io *transfer_of(struct sw_list *node) {
    return SW_CONTAINER_OF(node, struct sw_tier_io, tier.node);
}

static uint64_t round_up(uint64_t bytes) {
    return (bytes + BLOCK_BYTES - 1) / BLOCK_BYTES * BLOCK_BYTES;
}

/* Ends a transfer. All of its requests were started or given up, and have ended. */
static void end_transfer(struct sw_nvme_io *e, struct sw_tier_io *io) {
    if (io->kind == SW_TIER_WRITE && !io->err.code)
        (void)e->config.commit(e->config.arg, io, &io->err);
    e->n_transfers--;
    sw_meter_end(&e->meters[io->kind], sw_clock_us(), io->err.code ? 0 : io->stored->bytes);
    atomic_store(&e->rates[io->kind], (unsigned long long)sw_meter_rate(&e->meters[io->kind]));
    io->done(io, io->arg); /* may free it */
}

/* Starts no more requests of it; those under way still have to end. */
static void give_up(struct sw_tier_io *io) {
    sw_list_remove(&io->tier.node);
    io->tier.left_bytes = 0;
}

static void fail_request(const struct sw_nvme_request *request, int cause, const char *what) {
    struct sw_tier_io *io = request->io;
    give_up(io);
    if (io->err.code)
        return; /* the first cause counts */
    (void)sw_err_set(&io->err, sw_nvme_error(cause), SW_SCOPE_REQUEST, "NVMe tier cannot %s a frame: %s",
                     request->write ? "write" : "read", what);
    (void)sw_err_detail(&io->err, "%zu bytes at %lld of descriptor %d: %s", request->bytes, (long long)request->offset,
                        request->fd, what);
}

static void request_ended(struct sw_nvme_io *e, struct sw_nvme_request *request) {
    struct sw_tier_io *io = request->io;
    struct sw_nvme_method *method = e->config.method;
    if (request->result == -EINTR) {
        method->ops->start(method, request);
        return;
    }
    if (request->result < 0) {
        fail_request(request, (int)-request->result, strerror((int)-request->result));
    } else if ((size_t)request->result < request->bytes) {
        /* Requests the rest again, from a whole block on: direct I/O moves whole blocks only. */
        size_t whole = (size_t)((uint64_t)request->result / BLOCK_BYTES * BLOCK_BYTES);
        if (whole > 0) {
            request->memory += whole;
            request->bytes -= whole;
            request->offset += (off_t)whole;
            request->position += whole;
            method->ops->start(method, request);
            return;
        }
        fail_request(request, EIO, request->write ? "nothing more was written" : "the file ends too early");
    }
    if (request->write)
        atomic_store(&e->config.files->data[request->position / e->config.files->file_bytes].is_dirty, true);
    sw_list_append(&e->idle, &request->node);
    if (--io->tier.in_flight == 0 && io->tier.left_bytes == 0)
        end_transfer(e, io);
}

/* Cuts the next request off a transfer: within one extent, one file and one run of memory. */
static void cut_request(const struct sw_nvme_io *e, struct sw_tier_io *io, struct sw_nvme_request *ret) {
    const struct sw_nvme_files *files = e->config.files;
    const struct sw_extent *extent = &io->stored->extents[io->tier.extent], *run = &io->memory[io->tier.run];
    const uint64_t offset = extent->offset + io->tier.extent_at, in_file = offset % files->file_bytes;
    const uint64_t extent_left = round_up(extent->bytes) - io->tier.extent_at,
                   run_left = round_up(run->bytes) - io->tier.run_at;
    uint64_t bytes = SW_NVME_REQUEST_BYTES;
    bytes = bytes < extent_left ? bytes : extent_left;
    bytes = bytes < run_left ? bytes : run_left;
    bytes = bytes < files->file_bytes - in_file ? bytes : files->file_bytes - in_file;
    ret->io = io;
    ret->write = io->kind == SW_TIER_WRITE;
    ret->fd = files->data[offset / files->file_bytes].fd;
    ret->memory = (char *)run->memory + io->tier.run_at;
    ret->bytes = (size_t)bytes;
    ret->offset = (off_t)in_file;
    ret->position = offset;
    ret->is_plain = io->tier.is_plain;
    io->tier.left_bytes -= bytes;
    io->tier.extent_at += bytes;
    if (bytes == extent_left) {
        io->tier.extent++;
        io->tier.extent_at = 0;
    }
    io->tier.run_at += bytes;
    if (bytes == run_left) {
        io->tier.run++;
        io->tier.run_at = 0;
    }
    io->tier.in_flight++;
    if (io->tier.left_bytes == 0)
        sw_list_remove(&io->tier.node);
}

static void start_requests(struct sw_nvme_io *e) {
    struct sw_nvme_method *method = e->config.method;
    while (!sw_list_empty(&e->idle)) {
        if (sw_list_empty(&e->active[e->turn]))
            e->turn = e->turn == SW_TIER_READ ? SW_TIER_WRITE : SW_TIER_READ;
        if (sw_list_empty(&e->active[e->turn]))
            return;
        struct sw_nvme_request *request = SW_CONTAINER_OF(sw_list_take_first(&e->idle), struct sw_nvme_request, node);
        cut_request(e, transfer_of(e->active[e->turn].next), request);
        method->ops->start(method, request);
        e->turn = e->turn == SW_TIER_READ ? SW_TIER_WRITE : SW_TIER_READ;
    }
}

/* Takes new transfers in. Releases that came before a write are in the manifest before the write is started. Returns
 * whether the thread is to go on. */
static bool take_inbox(struct sw_nvme_io *e) {
    struct sw_list fresh, *node;
    struct sw_err err = {0};
    sw_list_init(&fresh);
    (void)pthread_mutex_lock(&e->lock);
    while ((node = sw_list_take_first(&e->inbox)))
        sw_list_append(&fresh, node);
    bool looked = e->signaled, stop = e->stop;
    e->signaled = false;
    (void)pthread_mutex_unlock(&e->lock);
    if (!looked)
        return true;
    int rc = e->config.settle(e->config.arg, &err);
    while ((node = sw_list_take_first(&fresh))) {
        struct sw_tier_io *io = transfer_of(node);
        e->n_transfers++;
        sw_meter_begin(&e->meters[io->kind], sw_clock_us());
        if (rc && io->kind == SW_TIER_WRITE) {
            io->err = err;
            end_transfer(e, io);
        } else {
            sw_list_append(&e->active[io->kind], node);
        }
    }
    SW_ASSERT(!stop || e->n_transfers == 0);
    return !stop;
}

static void *thread_main(void *arg) {
    struct sw_nvme_io *e = arg;
    struct sw_list ended, *node;
    sw_list_init(&ended);
    while (take_inbox(e)) {
        start_requests(e);
        e->config.method->ops->wait(e->config.method, &ended);
        while ((node = sw_list_take_first(&ended)))
            request_ended(e, SW_CONTAINER_OF(node, struct sw_nvme_request, node));
    }
    return NULL;
}

/* Hands a transfer or a stop to the thread, and wakes it unless it was woken already. */
static void post(struct sw_nvme_io *e, struct sw_tier_io *transfer, bool stop) {
    (void)pthread_mutex_lock(&e->lock);
    bool wake = !e->signaled;
    e->signaled = true;
    e->stop |= stop;
    if (transfer)
        sw_list_append(&e->inbox, &transfer->tier.node);
    /* Under the lock, so that the thread cannot end, and the method be closed, in between. */
    if (wake)
        e->config.method->ops->wake(e->config.method);
    (void)pthread_mutex_unlock(&e->lock);
}

void sw_nvme_io_submit(struct sw_nvme_io *e, struct sw_tier_io *io, bool is_plain) {
    uint64_t memory_bytes = 0;
    for (unsigned i = 0; i < io->n_memory; i++) {
        SW_ASSERT((uintptr_t)io->memory[i].memory % BLOCK_BYTES == 0);
        SW_ASSERT(io->memory[i].bytes % BLOCK_BYTES == 0 || i + 1 == io->n_memory);
        memory_bytes += io->memory[i].bytes;
    }
    SW_ASSERT(io->stored->extents && memory_bytes >= io->stored->bytes);
    SW_ASSERT((io->kind == SW_TIER_READ) == io->stored->committed);
    memset(&io->err, 0, sizeof io->err);
    memset(&io->tier, 0, sizeof io->tier);
    io->tier.is_plain = is_plain;
    io->tier.left_bytes = round_up(io->stored->bytes);
    post(e, io, false);
}

void sw_nvme_io_wake(struct sw_nvme_io *e) {
    post(e, NULL, false);
}

uint64_t sw_nvme_io_rate(const struct sw_nvme_io *e, enum sw_tier_io_kind kind) {
    return atomic_load(&e->rates[kind]);
}

int sw_nvme_io_open(struct sw_nvme_io **ret, const struct sw_nvme_io_config *config, struct sw_err *err) {
    struct sw_nvme_io *e = sw_alloc(sizeof *e + config->depth * sizeof e->requests[0]);
    if (!e)
        return sw_err_set(err, -SW_ENOMEM, SW_SCOPE_DAEMON, "out of memory for the NVMe tier");
    e->config = *config;
    (void)pthread_mutex_init(&e->lock, NULL);
    sw_list_init(&e->inbox);
    sw_list_init(&e->active[SW_TIER_READ]);
    sw_list_init(&e->active[SW_TIER_WRITE]);
    sw_list_init(&e->idle);
    for (unsigned i = 0; i < config->depth; i++)
        sw_list_append(&e->idle, &e->requests[i].node);
    if (sw_thread_start(&e->thread, thread_main, e) != 0) {
        (void)pthread_mutex_destroy(&e->lock);
        sw_free(e);
        return sw_err_set(err, -SW_ENOMEM, SW_SCOPE_DAEMON, "cannot start a thread for the NVMe tier");
    }
    *ret = e;
    return 0;
}

void sw_nvme_io_close(struct sw_nvme_io *e) {
    if (!e)
        return;
    post(e, NULL, true);
    (void)pthread_join(e->thread, NULL);
    e->config.method->ops->close(e->config.method);
    (void)pthread_mutex_destroy(&e->lock);
    sw_free(e);
}
