#include "spill/tier/remote/remote_io.h"

#include "base/alloc.h"
#include "base/assert.h"
#include "base/clock.h"
#include "base/meter.h"
#include "base/thread.h"
#include "spill/tier/remote/remote_buffers.h"
#include "spill/tier/remote/remote_window.h"

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

enum { MAX_THREADS = 8, PART_SEGMENTS = 8, LONG_PART_SEGMENTS = 16, MAX_ATTEMPTS = 3, MANY_PARTS = 8 };
enum { FEW_PARTS = 4, MOST_FEW_PARTS = 16 };

/* A write is one part, a read has one for each 8 MiB, or 16 if there are many parts without it. */
struct part {
    struct sw_list node; /* in a list of sw_remote_io */
    struct transfer *transfer;
    struct sw_object_request request;
    uint64_t first, n_segments, body_bytes;
    struct sw_remote_buffer *buffer; /* WRITE: in the pool; NULL: it has room for one */
    uint64_t room_bytes;             /* of the pool */
    /* READ: */
    struct sw_object_unsealing unsealing; /* of this attempt; context NULL: it has not begun */
    struct sw_err key_err;                /* of this attempt */
    unsigned n_spoilt;
};

struct transfer {
    struct sw_remote_io *io;
    struct sw_tier_io *user;
    struct sw_remote_place *place;
    unsigned n_parts, n_left;
    uint64_t part_segments;
    struct part parts[];
};

struct sw_remote_io {
    struct sw_remote_io_config config;
    unsigned n_threads, n_few; /* few: so many parts may always be on their way, of each kind */
    pthread_t threads[MAX_THREADS];
    pthread_mutex_t lock; /* guards the rest */
    pthread_cond_t work;
    struct sw_list waiting[2]; /* parts that need room, by kind */
    struct sw_list refused;    /* sw_tier_io.tier.node: end with their error */
    bool stop;
    uint64_t used_bytes, write_bytes, peak_bytes; /* of the pool; write_bytes: by writes */
    struct sw_remote_buffers buffers;             /* spare ones, in what the pool has left */
    uint64_t n_transfers, transfer_bytes;
    unsigned n_read_parts; /* of reads that have not ended */
    unsigned n_begun[2];   /* parts that have room, by kind, like the next three */
    uint64_t begun_bytes[2];
    struct sw_remote_window windows[2];
    struct sw_meter meters[2];
    atomic_ullong rates[2]; /* of the meters, for others */
};

static bool is_write(const struct part *part) {
    return part->transfer->user->kind == SW_TIER_WRITE;
}

/* ---- ends ---- */

static void count_end(struct sw_remote_io *io, enum sw_tier_io_kind kind, uint64_t bytes, bool good) {
    (void)pthread_mutex_lock(&io->lock);
    io->n_transfers--;
    io->transfer_bytes -= bytes;
    sw_meter_end(&io->meters[kind], sw_clock_us(), good ? bytes : 0);
    atomic_store(&io->rates[kind], (unsigned long long)sw_meter_rate(&io->meters[kind]));
    (void)pthread_mutex_unlock(&io->lock);
}

/* Frees spare buffers: the pool has room for those in use and these, and keeps a quarter while none is in use. */
static void trim(struct sw_remote_io *io) {
    struct sw_list surplus;
    sw_list_init(&surplus);
    (void)pthread_mutex_lock(&io->lock);
    const uint64_t pool_bytes = io->config.pool_bytes, used_bytes = io->used_bytes;
    const uint64_t most_bytes = used_bytes == 0           ? pool_bytes / 4
                                : used_bytes < pool_bytes ? pool_bytes - used_bytes
                                                          : 0;
    sw_remote_buffers_cut(&io->buffers, most_bytes, &surplus);
    (void)pthread_mutex_unlock(&io->lock);
    sw_remote_buffers_free(&surplus);
}

static void give_room(struct part *part) {
    struct sw_remote_io *io = part->transfer->io;
    (void)pthread_mutex_lock(&io->lock);
    if (part->buffer)
        sw_remote_buffers_give(&io->buffers, part->buffer);
    part->buffer = NULL;
    io->used_bytes -= part->room_bytes;
    io->write_bytes -= is_write(part) ? part->room_bytes : 0;
    io->n_begun[part->transfer->user->kind]--;
    io->begun_bytes[part->transfer->user->kind] -= part->body_bytes;
    (void)pthread_cond_broadcast(&io->work);
    (void)pthread_mutex_unlock(&io->lock);
    trim(io);
}

/* A part has ended, with or without an error; the last one ends the transfer. The first error counts. */
static void end_part(struct part *part, const struct sw_err *err) {
    struct transfer *t = part->transfer;
    struct sw_remote_io *io = t->io;
    struct sw_tier_io *user = t->user;
    (void)pthread_mutex_lock(&io->lock);
    if (err->code && !user->err.code)
        user->err = *err;
    const bool is_last = --t->n_left == 0;
    io->n_read_parts -= user->kind == SW_TIER_READ;
    (void)pthread_mutex_unlock(&io->lock);
    if (!is_last)
        return;
    count_end(io, user->kind, user->stored->bytes, user->err.code == 0);
    if (user->kind == SW_TIER_WRITE && !user->err.code)
        io->config.committed(io->config.arg, user);
    sw_free(t);
    user->done(user, user->arg); /* may free it */
}

/* Notes how long the store took for a part. Called on the client's thread. */
static void note_time(struct part *part) {
    struct sw_remote_io *io = part->transfer->io;
    const uint64_t now_us = sw_clock_us();
    if (part->request.err.code)
        return;
    (void)pthread_mutex_lock(&io->lock);
    sw_remote_window_note(&io->windows[part->transfer->user->kind], now_us, now_us - part->request.client.begun_us,
                          part->body_bytes);
    (void)pthread_mutex_unlock(&io->lock);
}

/* ---- writes ---- */

/* Called on the client's thread. */
static void sent(struct sw_object_request *request, void *arg) {
    struct part *part = arg;
    struct sw_err err = request->err;
    note_time(part);
    part->transfer->place->may_exist = !err.code || request->is_unclear;
    if (err.code == -SW_ETIMEDOUT) /* it has to be stored elsewhere */
        err.code = -SW_ENOSPACE;
    give_room(part);
    end_part(part, &err);
}

/* ---- reads ---- */

/* Begins to decrypt, also again. */
static void begin_unsealing(struct part *part) {
    const struct transfer *t = part->transfer;
    struct sw_object_key key;
    memset(&part->key_err, 0, sizeof part->key_err);
    if (part->unsealing.context)
        (void)sw_object_unsealing_end(&part->unsealing, NULL);
    if (sw_object_key_open(t->io->config.keyring, t->place->name, part->request.meta, &key, NULL, &part->key_err))
        return;
    sw_object_unsealing_begin(&part->unsealing, &key, t->place->name, t->user->stored->bytes, part->first,
                              part->n_segments, t->user->memory);
    sw_object_key_fini(&key);
}

/* Decrypts what comes while it is in the processor's cache. Called on a thread of the client. */
static void take(struct sw_object_request *request, const void *data, size_t bytes, size_t at) {
    struct part *part = request->arg;
    if (at == 0)
        begin_unsealing(part);
    if (!part->key_err.code)
        sw_object_unsealing_take(&part->unsealing, data, bytes);
}

/* Called on the client's thread. An object that is gone is no proof that the region is lost: the bucket may be the
 * wrong one. */
static void received(struct sw_object_request *request, void *arg) {
    struct part *part = arg;
    struct sw_err err = request->err.code ? request->err : part->key_err;
    note_time(part);
    if (part->unsealing.context)
        (void)sw_object_unsealing_end(&part->unsealing, err.code ? NULL : &err);
    if (err.code == -SW_ENOENT)
        err.code = -SW_EIO;
    if (err.code == -SW_ECHECKSUM && ++part->n_spoilt < MAX_ATTEMPTS) {
        sw_object_submit(part->transfer->io->config.client, &part->request);
        return;
    }
    give_room(part);
    end_part(part, &err);
}

/* ---- beginnings ---- */

/* Returns whether the part may take room_bytes of the pool. */
static bool has_room(const struct sw_remote_io *io, const struct part *part) {
    const uint64_t most = io->config.pool_bytes;
    const enum sw_tier_io_kind kind = part->transfer->user->kind;
    if (io->n_begun[kind] >= io->n_few && io->begun_bytes[kind] + part->body_bytes >
                                              sw_remote_window_bytes(&io->windows[kind], atomic_load(&io->rates[kind])))
        return false;
    if (is_write(part) && io->write_bytes > 0 && io->write_bytes + part->room_bytes > most / 4 * 3)
        return false;
    return io->used_bytes == 0 || io->used_bytes + part->room_bytes <= most;
}

/* Takes the next part of this kind, and a spare buffer if one fits. NULL: there is none that has room. Under the lock.
 */
static struct part *take_part(struct sw_remote_io *io, enum sw_tier_io_kind kind) {
    struct sw_list *waiting = &io->waiting[kind];
    if (sw_list_empty(waiting))
        return NULL;
    struct part *part = SW_CONTAINER_OF(waiting->next, struct part, node);
    struct sw_remote_buffer *spare = is_write(part) ? sw_remote_buffers_find(&io->buffers, part->body_bytes) : NULL;
    part->room_bytes = spare ? spare->bytes : is_write(part) ? part->body_bytes : SW_OBJECT_BUFFER_BYTES;
    if (!has_room(io, part))
        return NULL;
    if (spare)
        sw_remote_buffers_take(&io->buffers, spare);
    part->buffer = spare;
    sw_list_remove(&part->node);
    io->used_bytes += part->room_bytes;
    io->write_bytes += is_write(part) ? part->room_bytes : 0;
    io->n_begun[kind]++;
    io->begun_bytes[kind] += part->body_bytes;
    io->peak_bytes = io->used_bytes > io->peak_bytes ? io->used_bytes : io->peak_bytes;
    return part;
}

static struct part *next_part(struct sw_remote_io *io) {
    struct part *part = take_part(io, SW_TIER_READ);
    return part ? part : take_part(io, SW_TIER_WRITE);
}

static bool has_failed(struct sw_remote_io *io, const struct transfer *t) {
    (void)pthread_mutex_lock(&io->lock);
    const bool has = t->user->err.code != 0;
    (void)pthread_mutex_unlock(&io->lock);
    return has;
}

static void encrypt(struct part *part, struct sw_err *err) {
    const struct sw_tier_io *user = part->transfer->user;
    if (!part->buffer) {
        trim(part->transfer->io);
        part->buffer = sw_remote_buffer_new(part->body_bytes);
    }
    part->request.body = part->buffer ? part->buffer->body : NULL;
    if (!part->buffer)
        (void)sw_err_set(err, -SW_ENOMEM, SW_SCOPE_REQUEST, "out of memory for a transfer to the remote tier");
    else
        (void)sw_object_seal_request(part->transfer->io->config.keyring, user->memory, user->stored->bytes,
                                     &part->request, err);
}

static void begin(struct part *part) {
    struct sw_remote_io *io = part->transfer->io;
    struct sw_err err = {0};
    const bool ends = has_failed(io, part->transfer); /* another part has: the transfer ends with the last one */
    if (!ends && is_write(part))
        encrypt(part, &err);
    if (ends || err.code) {
        give_room(part);
        end_part(part, &err);
        return;
    }
    sw_object_submit(io->config.client, &part->request);
}

static void end_refused(struct sw_remote_io *io, struct sw_list *node) {
    struct sw_tier_io *user = SW_CONTAINER_OF(node, struct sw_tier_io, tier.node);
    count_end(io, user->kind, user->stored->bytes, false);
    user->done(user, user->arg);
}

static void *thread_main(void *arg) {
    struct sw_remote_io *io = arg;
    (void)pthread_mutex_lock(&io->lock);
    for (;;) {
        struct sw_list *refused = sw_list_take_first(&io->refused);
        struct part *part = refused ? NULL : next_part(io);
        if (!refused && !part) {
            if (io->stop)
                break;
            (void)pthread_cond_wait(&io->work, &io->lock);
            continue;
        }
        (void)pthread_mutex_unlock(&io->lock);
        if (refused)
            end_refused(io, refused);
        else
            begin(part);
        (void)pthread_mutex_lock(&io->lock);
    }
    (void)pthread_mutex_unlock(&io->lock);
    return NULL;
}

/* ---- for other threads ---- */

static void cut_part(struct transfer *t, unsigned i) {
    struct part *part = &t->parts[i];
    const bool writes = t->user->kind == SW_TIER_WRITE;
    const uint64_t bytes = t->user->stored->bytes, n = sw_object_segments(bytes);
    const uint64_t step = SW_OBJECT_SEGMENT_BYTES + SW_OBJECT_TAG_BYTES, body_bytes = sw_object_body_bytes(bytes);
    part->transfer = t;
    part->first = i * t->part_segments;
    part->n_segments = n - part->first < t->part_segments ? n - part->first : t->part_segments;
    const uint64_t end = (part->first + part->n_segments) * step;
    part->request.verb = writes ? SW_OBJECT_PUT : SW_OBJECT_GET;
    part->request.offset = part->first * step;
    part->body_bytes = (end < body_bytes ? end : body_bytes) - part->request.offset;
    part->request.body_bytes = part->body_bytes;
    part->request.take = writes ? NULL : take;
    part->request.done = writes ? sent : received;
    part->request.arg = part;
    memcpy(part->request.name, t->place->name, sizeof part->request.name);
    sw_list_init(&part->node);
}

/* Short parts of a frame arrive at the same time. If there are many anyway, fewer requests cost less. */
static uint64_t part_segments(struct sw_remote_io *io, const struct sw_tier_io *user) {
    if (user->kind == SW_TIER_WRITE)
        return sw_object_segments(user->stored->bytes);
    (void)pthread_mutex_lock(&io->lock);
    const bool are_many = io->n_read_parts >= MANY_PARTS;
    (void)pthread_mutex_unlock(&io->lock);
    return are_many ? LONG_PART_SEGMENTS : PART_SEGMENTS;
}

static struct transfer *transfer_new(struct sw_remote_io *io, struct sw_tier_io *user, struct sw_remote_place *place) {
    const uint64_t n = sw_object_segments(user->stored->bytes), n_each = part_segments(io, user);
    const unsigned n_parts = (unsigned)((n + n_each - 1) / n_each);
    struct transfer *t = sw_alloc(sizeof *t + n_parts * sizeof t->parts[0]);
    if (!t)
        return NULL;
    t->io = io;
    t->user = user;
    t->place = place;
    t->n_parts = t->n_left = n_parts;
    t->part_segments = n_each;
    for (unsigned i = 0; i < n_parts; i++)
        cut_part(t, i);
    return t;
}

void sw_remote_io_submit(struct sw_remote_io *io, struct sw_tier_io *user, struct sw_remote_place *place) {
    struct transfer *t = user->err.code ? NULL : transfer_new(io, user, place);
    if (!t && !user->err.code)
        (void)sw_err_set(&user->err, -SW_ENOMEM, SW_SCOPE_REQUEST, "out of memory for a transfer");
    (void)pthread_mutex_lock(&io->lock);
    SW_ASSERT(!io->stop);
    io->n_transfers++;
    io->transfer_bytes += user->stored->bytes;
    sw_meter_begin(&io->meters[user->kind], sw_clock_us());
    io->n_read_parts += t && user->kind == SW_TIER_READ ? t->n_parts : 0;
    for (unsigned i = 0; t && i < t->n_parts; i++)
        sw_list_append(&io->waiting[user->kind], &t->parts[i].node);
    if (!t)
        sw_list_append(&io->refused, &user->tier.node);
    (void)pthread_cond_broadcast(&io->work);
    (void)pthread_mutex_unlock(&io->lock);
}

uint64_t sw_remote_io_rate(const struct sw_remote_io *io, enum sw_tier_io_kind kind) {
    return atomic_load(&io->rates[kind]);
}

void sw_remote_io_add_stats(struct sw_remote_io *io, struct sw_tier_store_stats *ret) {
    (void)pthread_mutex_lock(&io->lock);
    ret->backlog_frames = io->n_transfers;
    ret->backlog_bytes = io->transfer_bytes;
    ret->buffer_bytes = io->config.pool_bytes;
    ret->buffer_used_bytes = io->used_bytes;
    ret->buffer_peak_bytes = io->peak_bytes;
    (void)pthread_mutex_unlock(&io->lock);
}

/* ---- life ---- */

void sw_remote_io_stop(struct sw_remote_io *io) {
    if (!io)
        return;
    (void)pthread_mutex_lock(&io->lock);
    SW_ASSERT(io->n_transfers == 0);
    io->stop = true;
    (void)pthread_cond_broadcast(&io->work);
    (void)pthread_mutex_unlock(&io->lock);
    while (io->n_threads > 0)
        (void)pthread_join(io->threads[--io->n_threads], NULL);
}

void sw_remote_io_free(struct sw_remote_io *io) {
    if (!io)
        return;
    struct sw_list spare;
    sw_list_init(&spare);
    sw_remote_buffers_cut(&io->buffers, 0, &spare);
    sw_remote_buffers_free(&spare);
    (void)pthread_cond_destroy(&io->work);
    (void)pthread_mutex_destroy(&io->lock);
    sw_free(io);
}

int sw_remote_io_open(struct sw_remote_io **ret, const struct sw_remote_io_config *config, struct sw_err *err) {
    struct sw_remote_io *io = sw_alloc(sizeof *io);
    if (!io)
        return sw_err_set(err, -SW_ENOMEM, SW_SCOPE_DAEMON, "out of memory for the remote tier");
    io->config = *config;
    (void)pthread_mutex_init(&io->lock, NULL);
    (void)pthread_cond_init(&io->work, NULL);
    for (unsigned i = 0; i < 2; i++)
        sw_list_init(&io->waiting[i]);
    sw_list_init(&io->refused);
    sw_remote_buffers_init(&io->buffers);
    io->n_few = sw_thread_cpus(FEW_PARTS, MOST_FEW_PARTS); /* a store on this machine can use each processor */
    for (const unsigned n = sw_thread_cpus(1, MAX_THREADS); io->n_threads < n; io->n_threads++)
        if (sw_thread_start(&io->threads[io->n_threads], thread_main, io) != 0)
            break;
    if (io->n_threads > 0) {
        *ret = io;
        return 0;
    }
    sw_remote_io_free(io);
    return sw_err_set(err, -SW_ENOMEM, SW_SCOPE_DAEMON, "cannot start a thread for the remote tier");
}
