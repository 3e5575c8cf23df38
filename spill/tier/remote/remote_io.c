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
enum { FEW_PARTS = 4, MOST_FEW_PARTS = 16, PACK_BYTES = 16 << 20, TINY_BYTES = 1 << 20, FEW_SHORT = 4 };

/* A write is one part, a read has one for each 8 MiB, or 16 if there are many parts without it. */
struct part {
    struct sw_list node;   /* in a list of sw_remote_io, or in `others` */
    struct sw_list others; /* parts of other transfers that go with this one: of a pack, in its order */
    bool is_short;         /* a write that may go with others */
    bool is_sent;          /* it was handed to the client */
    struct transfer *transfer;
    struct sw_object_request request;
    uint64_t first, n_segments;
    uint64_t own_bytes, body_bytes;  /* of the body: its own; with those of the others */
    struct sw_remote_buffer *buffer; /* WRITE: in the pool; NULL: it has room for one */
    uint64_t room_bytes;             /* of the pool */
    /* READ: */
    struct sw_object_unsealing unsealing; /* of this attempt; context NULL: it has not begun */
    struct sw_err err;                    /* of this attempt */
    unsigned n_spoilt;
    struct part *taking;  /* whose bytes come next: this part, or one of the others */
    uint64_t taken_bytes; /* of its own */
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
    struct sw_list waiting[2];        /* parts that need room, by kind, but for ... */
    struct sw_list waiting_short;     /* ... writes of short frames */
    uint64_t short_bytes, pack_bytes; /* that wait there, in a pack; the most in one */
    unsigned n_short;                 /* writes of short frames, or packs, that have room */
    struct sw_list sealed;            /* writes that are encrypted, and wait until the store can use them */
    unsigned n_ahead;                 /* writes that have room and are not sent: these, and those being encrypted */
    struct sw_list refused;           /* sw_tier_io.tier.node: end with their error */
    bool stop;
    uint64_t used_bytes, write_bytes, peak_bytes; /* of the pool; write_bytes: by writes */
    struct sw_remote_buffers buffers;             /* spare ones, in what the pool has left */
    uint64_t n_transfers, transfer_bytes;
    unsigned n_read_parts; /* of reads that have not ended */
    unsigned n_sent[2];    /* parts that are sent and have not ended, by kind, like the next three */
    uint64_t sent_bytes[2];
    struct sw_remote_window windows[2];
    struct sw_meter meters[2];
    atomic_ullong rates[2]; /* of the meters, for others */
};

static struct part *part_of(struct sw_list *node) {
    return SW_CONTAINER_OF(node, struct part, node);
}

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
    io->n_sent[part->transfer->user->kind] -= part->is_sent;
    io->sent_bytes[part->transfer->user->kind] -= part->is_sent ? part->body_bytes : 0;
    io->n_ahead -= !part->is_sent;
    io->n_short -= part->is_short;
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

/* ---- the store's window ---- */

/* Returns whether the store can use the part now. */
static bool has_window(const struct sw_remote_io *io, const struct part *part) {
    const enum sw_tier_io_kind kind = part->transfer->user->kind;
    return io->n_sent[kind] < io->n_few ||
           io->sent_bytes[kind] + part->body_bytes <=
               sw_remote_window_bytes(&io->windows[kind], atomic_load(&io->rates[kind]));
}

/* Counts the part as sent. Under the lock. */
static void enter_window(struct sw_remote_io *io, struct part *part) {
    part->is_sent = true;
    io->n_sent[part->transfer->user->kind]++;
    io->sent_bytes[part->transfer->user->kind] += part->body_bytes;
}

/* Sends encrypted writes that the store can use. */
static void send_sealed(struct sw_remote_io *io) {
    struct sw_list ready, *node;
    sw_list_init(&ready);
    (void)pthread_mutex_lock(&io->lock);
    while (!sw_list_empty(&io->sealed) && has_window(io, part_of(io->sealed.next))) {
        node = sw_list_take_first(&io->sealed);
        enter_window(io, part_of(node));
        io->n_ahead--;
        sw_list_append(&ready, node);
        (void)pthread_cond_signal(&io->work);
    }
    (void)pthread_mutex_unlock(&io->lock);
    while ((node = sw_list_take_first(&ready)))
        sw_object_submit(io->config.client, &part_of(node)->request);
}

/* ---- writes ---- */

/* Ends a part and its others. */
static void end_all(struct part *part, const struct sw_err *err) {
    struct sw_remote_io *io = part->transfer->io;
    struct sw_list *node;
    give_room(part);
    send_sealed(io);
    while ((node = sw_list_take_first(&part->others)))
        end_part(part_of(node), err);
    end_part(part, err);
}

/* Called on the client's thread. */
static void sent(struct sw_object_request *request, void *arg) {
    struct part *part = arg;
    struct sw_remote_place *place = part->transfer->place;
    struct sw_err err = request->err;
    note_time(part);
    *(place->pack ? &place->pack->may_exist : &place->may_exist) = !err.code || request->is_unclear;
    if (err.code == -SW_ETIMEDOUT) /* it has to be stored elsewhere */
        err.code = -SW_ENOSPACE;
    end_all(part, &err);
}

/* ---- reads ---- */

/* Returns the part behind `other` among the part and its others; NULL: there is none. */
static struct part *next_of(struct part *part, const struct part *other) {
    const struct sw_list *node = other == part ? part->others.next : other->node.next;
    return node == &part->others ? NULL : SW_CONTAINER_OF(node, struct part, node);
}

/* Begins to decrypt a part of a request's body, also again. */
static void begin_unsealing(struct part *part, const struct sw_object_request *request) {
    const struct transfer *t = part->transfer;
    struct sw_object_key key;
    const struct sw_object_range range = {
        .bytes = t->user->stored->bytes, .before = t->place->before, .first = part->first, .n = part->n_segments};
    memset(&part->err, 0, sizeof part->err);
    if (part->unsealing.context)
        (void)sw_object_unsealing_end(&part->unsealing, NULL);
    if (sw_object_key_open(t->io->config.keyring, request->name, request->meta, &key, NULL, &part->err))
        return;
    sw_object_unsealing_begin(&part->unsealing, &key, request->name, &range, t->user->memory);
    sw_object_key_fini(&key);
}

/* Decrypts what comes while it is in the processor's cache. Called on a thread of the client. */
static void take(struct sw_object_request *request, const void *data, size_t bytes, size_t at) {
    struct part *part = request->arg;
    if (at == 0) {
        part->taking = part;
        part->taken_bytes = 0;
        for (struct part *p = part; p; p = next_of(part, p))
            begin_unsealing(p, request);
    }
    for (const uint8_t *from = data, *end = from + bytes; from < end;) {
        struct part *to = part->taking, *next = next_of(part, to);
        const uint64_t left = to->own_bytes - part->taken_bytes;
        const size_t n = next && left < (size_t)(end - from) ? (size_t)left : (size_t)(end - from);
        if (!to->err.code)
            sw_object_unsealing_take(&to->unsealing, from, n);
        from += n;
        part->taken_bytes += n;
        if (next && part->taken_bytes == to->own_bytes) {
            part->taking = next;
            part->taken_bytes = 0;
        }
    }
}

/* Ends the decryption of a part. An object that is gone is no proof that the region is lost: the bucket may be the
 * wrong one. */
static void end_unsealing(struct part *part, const struct sw_object_request *request) {
    if (request->err.code)
        part->err = request->err;
    if (part->unsealing.context)
        (void)sw_object_unsealing_end(&part->unsealing, part->err.code ? NULL : &part->err);
    if (part->err.code == -SW_ENOENT)
        part->err.code = -SW_EIO;
}

/* Called on the client's thread. */
static void received(struct sw_object_request *request, void *arg) {
    struct part *part = arg, *next;
    bool is_spoilt = false;
    note_time(part);
    for (struct part *p = part; p; p = next_of(part, p)) {
        end_unsealing(p, request);
        is_spoilt |= p->err.code == -SW_ECHECKSUM;
    }
    if (is_spoilt && ++part->n_spoilt < MAX_ATTEMPTS) {
        sw_object_submit(part->transfer->io->config.client, &part->request);
        return;
    }
    give_room(part);
    for (struct part *p = next_of(part, part); p; p = next) {
        next = next_of(part, p);
        end_part(p, &p->err);
    }
    end_part(part, &part->err);
}

/* ---- beginnings ---- */

/* Returns whether the part may take room_bytes of the pool. A few writes are encrypted ahead, so that the store has the
 * next one as soon as it can use it. */
static bool has_room(const struct sw_remote_io *io, const struct part *part) {
    const uint64_t most = io->config.pool_bytes;
    if (is_write(part) ? io->n_ahead >= io->n_threads : !has_window(io, part))
        return false;
    if (is_write(part) && io->write_bytes > 0 && io->write_bytes + part->room_bytes > most / 4 * 3)
        return false;
    return io->used_bytes == 0 || io->used_bytes + part->room_bytes <= most;
}

/* Takes room for a part that waits, and a spare buffer if one fits. Returns false if there is none. Under the lock. */
static bool take_room(struct sw_remote_io *io, struct part *part) {
    struct sw_remote_buffer *spare = is_write(part) ? sw_remote_buffers_find(&io->buffers, part->body_bytes) : NULL;
    part->room_bytes = spare ? spare->bytes : is_write(part) ? part->body_bytes : SW_OBJECT_BUFFER_BYTES;
    if (!has_room(io, part))
        return false;
    if (spare)
        sw_remote_buffers_take(&io->buffers, spare);
    part->buffer = spare;
    sw_list_remove(&part->node);
    io->used_bytes += part->room_bytes;
    io->write_bytes += is_write(part) ? part->room_bytes : 0;
    if (is_write(part))
        io->n_ahead++;
    else
        enter_window(io, part);
    io->n_short += part->is_short;
    io->peak_bytes = io->used_bytes > io->peak_bytes ? io->used_bytes : io->peak_bytes;
    return true;
}

/* Takes the next part of a list. NULL: there is none that has room. */
static struct part *take_part(struct sw_remote_io *io, const struct sw_list *waiting) {
    struct part *part = sw_list_empty(waiting) ? NULL : part_of(waiting->next);
    return part && take_room(io, part) ? part : NULL;
}

static uint64_t frame_bytes(const struct part *part) {
    return part->transfer->user->stored->bytes;
}

/* Counts the short frames that go together next, at least one that waits. *ret: the length of the body of their pack.
 */
static unsigned count_pack(const struct sw_remote_io *io, uint64_t *ret) {
    unsigned n = 0;
    uint64_t bytes = 0;
    for (const struct sw_list *node = io->waiting_short.next; node != &io->waiting_short; node = node->next) {
        const uint64_t more = sw_object_body_bytes(frame_bytes(SW_CONTAINER_OF(node, struct part, node)));
        if (n == SW_REMOTE_PACK_FRAMES || (n > 0 && sw_remote_pack_index_bytes(n + 1) + bytes + more > io->pack_bytes))
            break;
        bytes += more;
        n++;
    }
    *ret = sw_remote_pack_index_bytes(n) + bytes;
    return n;
}

/* Takes short frames: all that wait, or as many as a pack takes. NULL: they wait to fill half of one. A store takes
 * longer to receive the longer ones than to begin, so a few of these do not wait. */
static struct part *take_short(struct sw_remote_io *io) {
    struct part *part = part_of(io->waiting_short.next);
    if (sw_list_empty(&io->waiting_short) ||
        (io->n_short >= (frame_bytes(part) > TINY_BYTES ? FEW_SHORT : 1) && io->short_bytes < io->pack_bytes / 2))
        return NULL;
    uint64_t body_bytes;
    const unsigned n = count_pack(io, &body_bytes);
    part->body_bytes = n > 1 ? body_bytes : part->own_bytes;
    if (!take_room(io, part))
        return NULL;
    io->short_bytes -= frame_bytes(part);
    for (unsigned i = 1; i < n; i++) {
        struct part *other = part_of(sw_list_take_first(&io->waiting_short));
        io->short_bytes -= frame_bytes(other);
        sw_list_append(&part->others, &other->node);
    }
    return part;
}

/* Returns whether what `next` reads lies right behind what the part and its others read, in the same pack. */
static bool continues(const struct part *part, const struct part *next) {
    const struct sw_remote_place *place = part->transfer->place, *behind = next->transfer->place;
    return place->pack && behind->pack == place->pack &&
           next->request.offset == part->request.offset + part->body_bytes &&
           part->body_bytes + next->body_bytes <= (uint64_t)PART_SEGMENTS * SW_OBJECT_SEGMENT_BYTES;
}

/* Takes the next part that reads, and those that wait behind it if they are the rest of one range. */
static struct part *take_read(struct sw_remote_io *io) {
    const struct sw_list *waiting = &io->waiting[SW_TIER_READ];
    struct part *part = take_part(io, waiting);
    while (part && !sw_list_empty(waiting)) {
        struct part *next = part_of(waiting->next);
        if (!continues(part, next))
            break;
        sw_list_remove(&next->node);
        sw_list_append(&part->others, &next->node);
        part->body_bytes += next->body_bytes;
        io->sent_bytes[SW_TIER_READ] += next->body_bytes;
    }
    if (part)
        part->request.body_bytes = part->body_bytes;
    return part;
}

static struct part *next_part(struct sw_remote_io *io) {
    struct part *part = take_read(io);
    part = part ? part : take_short(io);
    return part ? part : take_part(io, &io->waiting[SW_TIER_WRITE]);
}

static bool has_failed(struct sw_remote_io *io, const struct transfer *t) {
    (void)pthread_mutex_lock(&io->lock);
    const bool has = t->user->err.code != 0;
    (void)pthread_mutex_unlock(&io->lock);
    return has;
}

static int no_memory(struct sw_err *err) {
    return sw_err_set(err, -SW_ENOMEM, SW_SCOPE_REQUEST, "out of memory for a transfer to the remote tier");
}

/* The frames of a pack, in its order. */
struct members {
    unsigned n;
    struct sw_remote_place *places[SW_REMOTE_PACK_FRAMES];
    const struct sw_extent *frames[SW_REMOTE_PACK_FRAMES];
    struct sw_remote_pack_entry entries[SW_REMOTE_PACK_FRAMES];
};

static void add_member(struct members *members, const struct part *part) {
    struct sw_remote_place *place = part->transfer->place;
    struct sw_remote_pack_entry *entry = &members->entries[members->n];
    *entry = (struct sw_remote_pack_entry){.number = place->extent.offset, .bytes = frame_bytes(part)};
    memcpy(entry->key, place->key, sizeof entry->key);
    members->frames[members->n] = part->transfer->user->memory;
    members->places[members->n++] = place;
}

/* Encrypts the part's frame and the others as a pack. */
static int encrypt_pack(struct part *part, struct sw_err *err) {
    const struct sw_remote_io_config *config = &part->transfer->io->config;
    struct members *members = sw_alloc(sizeof *members);
    if (!members)
        return no_memory(err);
    add_member(members, part);
    for (struct sw_list *node = part->others.next; node != &part->others; node = node->next)
        add_member(members, part_of(node));
    const struct sw_remote_pack *pack = config->pack(config->arg, members->places, members->n, part->body_bytes);
    int rc = pack ? 0 : no_memory(err);
    if (pack) {
        memcpy(part->request.name, pack->name, sizeof part->request.name);
        rc = sw_remote_pack_seal(config->keyring, members->entries, members->frames, members->n, &part->request, err);
    }
    sw_free(members);
    return rc;
}

static int encrypt(struct part *part, struct sw_err *err) {
    const struct sw_tier_io *user = part->transfer->user;
    if (!part->buffer) {
        trim(part->transfer->io);
        part->buffer = sw_remote_buffer_new(part->body_bytes);
    }
    if (!part->buffer)
        return no_memory(err);
    part->request.body = part->buffer->body;
    part->request.body_bytes = part->body_bytes;
    if (!sw_list_empty(&part->others))
        return encrypt_pack(part, err);
    const struct sw_object_piece piece = {.memory = user->memory, .bytes = user->stored->bytes};
    return sw_object_seal_request(part->transfer->io->config.keyring, &piece, 1, &part->request, err);
}

static void begin(struct part *part) {
    struct sw_remote_io *io = part->transfer->io;
    struct sw_err err = {0};
    if (is_write(part) ? encrypt(part, &err) != 0 : has_failed(io, part->transfer)) {
        end_all(part, &err); /* another part of a read has failed: the transfer ends with the last one */
    } else if (is_write(part)) {
        (void)pthread_mutex_lock(&io->lock);
        sw_list_append(&io->sealed, &part->node);
        (void)pthread_mutex_unlock(&io->lock);
        send_sealed(io);
    } else {
        sw_object_submit(io->config.client, &part->request);
    }
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
    part->request.offset = t->place->body_at + part->first * step;
    part->own_bytes = part->body_bytes = (end < body_bytes ? end : body_bytes) - part->first * step;
    part->request.body_bytes = part->body_bytes;
    part->request.take = writes ? NULL : take;
    part->request.done = writes ? sent : received;
    part->request.arg = part;
    memcpy(part->request.name, t->place->pack ? t->place->pack->name : t->place->name, sizeof part->request.name);
    part->is_short = writes && !t->user->is_alone && bytes <= SW_REMOTE_PACK_FRAME_BYTES;
    sw_list_init(&part->node);
    sw_list_init(&part->others);
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
    for (unsigned i = 0; t && i < t->n_parts; i++) {
        struct part *part = &t->parts[i];
        sw_list_append(part->is_short ? &io->waiting_short : &io->waiting[user->kind], &part->node);
        io->short_bytes += part->is_short ? frame_bytes(part) : 0;
    }
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
    sw_list_init(&io->waiting_short);
    io->pack_bytes = config->pool_bytes / 4 < PACK_BYTES ? config->pool_bytes / 4 : PACK_BYTES;
    sw_list_init(&io->sealed);
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
