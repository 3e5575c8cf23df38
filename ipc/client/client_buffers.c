/* client_buffers.c - see client_buffers.h. */
#include "ipc/client/client_buffers.h"
#include "ipc/client/client_staging.h"

#include "base/alloc.h"
#include "ipc/span.h"
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

_Static_assert((int)SPILLWAY_MAX_BUFFERS == SW_PROTO_MAX_BUFFERS && (int)SPILLWAY_MAX_BUFFERS <= (int)SW_MARKS_MAX,
               "as many as a request has room for");

struct sw_buffers {
    struct spillway_ticket *ticket;   /* the caller's */
    unsigned n_left;                  /* packets' tickets that run */
    struct spillway_error open_error; /* the first memory that could not be opened */
    struct spillway_error error;      /* the request's */
    uint32_t n, mem[SPILLWAY_MAX_BUFFERS];
    struct sw_marks marks; /* in the caller's streams: one for each context */
};

/* A memory that is opened for the request, and what closes it. */
struct opened {
    uint32_t mem;
    struct sw_export export;
    struct spillway_ticket *close;
    struct sw_list close_group;
};

/* A request that is being made: nothing of it is sent before all of it is there. */
struct request {
    struct spillway *c;
    struct sw_buffers *buffers;
    struct sw_msg msg;
    unsigned n_opened;
    struct opened opened[SPILLWAY_MAX_BUFFERS];
};

/* ---- answers ----------------------------------------------------------------------------------------------------- */

static void release_marks(struct sw_buffers *b) {
    while (b->marks.n > 0)
        sw_mark_unref(b->marks.marks[--b->marks.n]);
}

void sw_buffers_free(struct sw_buffers *b) {
    if (b)
        release_marks(b);
    sw_free(b);
}

static void part_done(struct spillway_ticket *t) {
    struct sw_buffers *b = t->own.owner;
    b->n_left--;
    if (t->operation == b->ticket->operation) {
        release_marks(b);
        b->error = t->error;
        b->ticket->answer.transfer = t->answer.transfer;
    } else if (t->operation != SW_MSG_MEM_CLOSE && t->error.code && !b->open_error.code) {
        b->open_error = t->error;
    }
}

void sw_buffers_advance(struct spillway *c) {
    for (struct sw_list *n = c->buffers.next, *next; n != &c->buffers; n = next) {
        struct spillway_ticket *t = SW_CONTAINER_OF(n, struct spillway_ticket, node);
        const struct sw_buffers *b = t->buffers;
        next = n->next;
        if (b->n_left)
            continue;
        /* The daemon knows nothing of a memory that was not handed over again after a restart: that is the cause. */
        t->error = b->error.code == -SW_ENOENT && b->open_error.code ? b->open_error : b->error;
        sw_ticket_complete(t);
    }
}

bool sw_buffers_use(const struct spillway_ticket *t, uint32_t mem) {
    const bool is_request = t->operation == SW_MSG_SPILL_BUFFERS || t->operation == SW_MSG_RESTORE_BUFFERS;
    const struct sw_buffers *b = is_request ? t->own.owner : NULL;
    for (uint32_t i = 0; b && i < b->n; i++)
        if (b->mem[i] == mem)
            return true;
    return false;
}

bool sw_buffers_take(struct spillway_ticket *t, const struct sw_msg_region_buffers *m) {
    if (m->count < 1 || m->count > SW_PROTO_MAX_BUFFERS)
        return false;
    t->answer.buffers.n = m->count;
    for (uint32_t i = 0; i < m->count; i++) {
        struct spillway_buffer_info *info = &t->answer.buffers.info[i];
        *info = (struct spillway_buffer_info){.raw_bytes = m->raw_bytes[i], .stored_bytes = m->stored_bytes[i]};
        memcpy(info->codec, m->codecs + (size_t)i * SW_PROTO_CODEC_BYTES, sizeof info->codec - 1);
        memcpy(info->reason, m->reasons + (size_t)i * SW_PROTO_REASON_BYTES, sizeof info->reason - 1);
    }
    return true;
}

/* ---- a request is made ------------------------------------------------------------------------------------------- */

static struct spillway_ticket *part_new(struct request *r, unsigned operation, struct sw_err *err) {
    struct spillway_ticket *t = sw_ticket_new(r->c, operation, err);
    if (t) {
        t->own.on_done = part_done;
        t->own.owner = r->buffers;
    }
    return t;
}

static bool is_same_file(int fd, int other) {
    struct stat a, b;
    return fstat(fd, &a) == 0 && fstat(other, &b) == 0 && a.st_dev == b.st_dev && a.st_ino == b.st_ino;
}

static bool is_same_memory(const struct sw_export *e, const struct sw_export *other) {
    if (e->kind != other->kind || e->bytes != other->bytes)
        return false;
    return e->kind == SW_MEM_CUDA_IPC ? memcmp(e->handle, other->handle, sizeof e->handle) == 0
                                      : e->kind == SW_MEM_MEMFD && is_same_file(e->fds[0], other->fds[0]);
}

/* One that is opened for the request already: several buffers may lie in one allocation of a GPU, or in one memfd. */
static const struct opened *find_opened(const struct request *r, const struct sw_export *e) {
    for (unsigned i = 0; i < r->n_opened; i++)
        if (is_same_memory(e, &r->opened[i].export))
            return &r->opened[i];
    return NULL;
}

static int open_memory(struct request *r, struct sw_export *e, uint32_t *ret_mem, struct sw_err *err) {
    struct sw_msg close = {.header.type = SW_MSG_MEM_CLOSE};
    struct opened *o = &r->opened[r->n_opened];
    *o = (struct opened){.mem = sw_client_new_mem(r->c), .export = *e};
    *e = (struct sw_export){.kind = e->kind, .offset = e->offset};
    r->n_opened++;
    sw_list_init(&o->close_group);
    close.u.mem_close.mem = *ret_mem = o->mem;
    o->close = part_new(r, SW_MSG_MEM_CLOSE, err);
    return o->close && sw_packet_new(&o->close_group, &close, err) ? 0 : -SW_ENOMEM;
}

struct fields {
    uint32_t *mem, *waits, *order_word;
    uint64_t *order_value, *offset, *bytes;
};

static struct fields fields_of(struct sw_msg *msg) {
    struct sw_msg_spill_buffers *spill = &msg->u.spill_buffers;
    struct sw_msg_restore_buffers *restore = &msg->u.restore_buffers;
    return msg->header.type == SW_MSG_SPILL_BUFFERS
               ? (struct fields){spill->mem,         spill->waits,  spill->order_word,
                                 spill->order_value, spill->offset, spill->bytes}
               : (struct fields){restore->mem,         restore->waits,  restore->order_word,
                                 restore->order_value, restore->offset, restore->bytes};
}

/* Has buffer i wait for its mark, if it has one. A mark stands for all buffers of its context: another one would be in
 * the same stream. */
static void order_buffer(struct request *r, uint32_t i, struct sw_export *e) {
    const struct fields f = fields_of(&r->msg);
    struct sw_marks *marks = &r->buffers->marks;
    bool is_known = false;
    if (!e->mark)
        return;
    f.waits[i] = 1;
    f.order_word[i] = sw_mark_word(e->mark);
    f.order_value[i] = sw_mark_value(e->mark);
    for (unsigned k = 0; k < marks->n; k++)
        is_known |= marks->marks[k] == e->mark;
    if (is_known)
        return;
    marks->marks[marks->n++] = e->mark;
    e->mark = NULL;
}

/* Names buffer i's memory and orders the request behind the stream. */
static int add_buffer(struct request *r, uint32_t i, const struct spillway_buffer *buffer, struct CUstream_st *stream,
                      struct sw_err *err) {
    const struct fields f = fields_of(&r->msg);
    struct sw_export e = {0};
    const struct sw_registered *registered = sw_registered_find(r->c, buffer->data, buffer->bytes, &e);
    int rc = registered ? sw_registered_ready(r->c, registered->mem, err)
                        : sw_export_find(&e, &r->c->cuda, buffer->data, buffer->bytes, err);
    if (!rc)
        rc = sw_export_order(&e, &r->c->cuda, &r->buffers->marks, buffer->data, stream, err);
    if (!rc && r->msg.header.type == SW_MSG_RESTORE_BUFFERS)
        rc = sw_export_make_pages(&e, buffer->data, buffer->bytes, err);
    if (!rc) {
        f.offset[i] = e.offset;
        f.bytes[i] = buffer->bytes;
        order_buffer(r, i, &e);
        const struct opened *opened = registered ? NULL : find_opened(r, &e);
        if (registered || opened)
            f.mem[i] = registered ? registered->mem : opened->mem;
        else
            rc = open_memory(r, &e, &f.mem[i], err);
    }
    sw_export_fini(&e);
    if (rc < 0)
        sw_err_context(err, "buffer %u", i + 1);
    return rc;
}

/* Buffers without bytes have no memory of their own, perhaps not even an address. */
static int add_buffers(struct request *r, const struct spillway_buffer *buffers, uint32_t n, struct CUstream_st *stream,
                       struct sw_err *err) {
    const struct fields f = fields_of(&r->msg);
    uint32_t some = n;
    int rc = 0;
    for (uint32_t i = 0; !rc && i < n; i++) {
        if (!buffers[i].bytes)
            continue;
        rc = add_buffer(r, i, &buffers[i], stream, err);
        some = i;
    }
    if (!rc && some == n)
        rc = sw_err_set(err, -SW_EINVAL, SW_SCOPE_REQUEST, "%u buffers without any bytes", n);
    for (uint32_t i = 0; !rc && i < n; i++)
        if (!buffers[i].bytes)
            f.mem[i] = f.mem[some];
    r->buffers->n = n;
    memcpy(r->buffers->mem, f.mem, n * sizeof *f.mem);
    return rc;
}

/* The daemon sees overlaps within one memory only, and not every memory that is handed over twice is known as one. */
static int check_overlap(const struct spillway_buffer *buffers, uint32_t n, struct sw_err *err) {
    struct sw_span spans[SPILLWAY_MAX_BUFFERS];
    for (uint32_t i = 0; i < n; i++)
        spans[i] = (struct sw_span){(uintptr_t)buffers[i].data, buffers[i].bytes};
    return sw_spans_overlap(spans, n) ? sw_err_set(err, -SW_EINVAL, SW_SCOPE_REQUEST, "destinations of buffers overlap")
                                      : 0;
}

static bool is_full(const struct spillway *c, uint32_t n) {
    return c->n_in_flight >= c->max_in_flight || c->n_pieces + n > c->max_pieces;
}

static int check_call(const struct request *r, const struct spillway_buffer *buffers, uint32_t n, unsigned flags,
                      struct sw_err *err) {
    const struct spillway *c = r->c;
    if (!buffers || n < 1 || n > SPILLWAY_MAX_BUFFERS)
        return sw_err_set(err, -SW_EINVAL, SW_SCOPE_REQUEST, "%u buffers, must be 1 to %d", n, SPILLWAY_MAX_BUFFERS);
    if (flags & ~SPILLWAY_RESTORE_KEEP)
        return sw_err_set(err, -SW_EINVAL, SW_SCOPE_REQUEST, "restore: unknown flags 0x%x", flags);
    if (c->n_in_flight >= c->max_in_flight)
        return sw_client_too_many(c->n_in_flight, err);
    if (is_full(c, n))
        return sw_err_set(err, -SW_ELIMIT, SW_SCOPE_REQUEST,
                          "%u buffers and pieces of batches are in flight, and %u more: the service allows %u",
                          c->n_pieces, n, c->max_pieces);
    return r->msg.header.type == SW_MSG_RESTORE_BUFFERS ? check_overlap(buffers, n, err) : 0;
}

/* ---- and sent ---------------------------------------------------------------------------------------------------- */

static void submit(struct request *r, struct spillway_ticket *t, struct sw_list *group) {
    r->buffers->n_left++;
    sw_client_submit(t, group);
}

/* Opens the memories, asks for the operation, closes them; without waiting. Without memory for a part of it what is
 * open is closed again, and nothing has begun. */
static int send_all(struct request *r, struct spillway_ticket *operation, struct sw_list *group, struct sw_err *err) {
    struct spillway *c = r->c;
    unsigned n = 0;
    for (; n < r->n_opened; n++) {
        struct spillway_ticket *t = sw_client_open_memory(c, r->opened[n].mem, &r->opened[n].export, err);
        if (!t)
            break;
        t->own.on_done = part_done;
        t->own.owner = r->buffers;
        r->buffers->n_left++;
    }
    if (n == r->n_opened)
        submit(r, operation, group);
    for (unsigned i = 0; i < n; i++) {
        submit(r, r->opened[i].close, &r->opened[i].close_group);
        r->opened[i].close = NULL;
    }
    return n == r->n_opened ? 0 : -SW_ENOMEM;
}

static void request_fini(struct request *r) {
    for (unsigned i = 0; i < r->n_opened; i++) {
        sw_export_fini(&r->opened[i].export);
        if (r->opened[i].close)
            sw_packets_free(&r->opened[i].close_group);
        sw_free(r->opened[i].close);
    }
}

/* The ticket that the operation's packet has. */
static struct spillway_ticket *operation_new(struct request *r, const struct spillway_buffer *buffers, uint32_t n,
                                             struct sw_list *group, struct sw_err *err) {
    struct spillway_ticket *t = part_new(r, r->msg.header.type, err);
    if (!t || !sw_packet_new(group, &r->msg, err)) {
        sw_free(t);
        return NULL;
    }
    t->transfer.n_pieces = n;
    for (uint32_t i = 0; i < n; i++)
        t->transfer.bytes += buffers[i].bytes;
    if (t->operation == SW_MSG_RESTORE_BUFFERS)
        t->transfer.region = (struct spillway_region){r->msg.u.restore_buffers.slot, r->msg.u.restore_buffers.gen};
    return t;
}

/* The caller's ticket, on no list yet. errors (NULL): -SW_ENOMEM. */
static struct spillway_ticket *ticket_new(struct request *r, struct sw_err *err) {
    struct spillway_ticket *t = sw_ticket_new(r->c, r->msg.header.type, err);
    if (!t)
        return NULL;
    t->buffers = sw_alloc(sizeof *t->buffers);
    if (!t->buffers) {
        sw_ticket_destroy(t);
        (void)sw_err_set(err, -SW_ENOMEM, SW_SCOPE_REQUEST, "no memory for a request");
        return NULL;
    }
    t->buffers->ticket = t;
    r->buffers = t->buffers;
    return t;
}

/* msg: all but the memories. */
static int start(struct request *r, const struct spillway_buffer *buffers, uint32_t n, unsigned flags,
                 struct CUstream_st *stream, struct spillway_ticket **ret_ticket, struct spillway_error *error) {
    struct spillway *c = r->c;
    struct sw_list group;
    struct sw_err err = {0};
    const int foreign = sw_client_check_process(c, error);
    if (foreign < 0)
        return foreign;
    sw_list_init(&group);
    if (is_full(c, n))
        (void)sw_client_pump(c);
    if (c->lost.code)
        return sw_client_copy_error(error, &c->lost);
    int rc = check_call(r, buffers, n, flags, &err);
    struct spillway_ticket *t = rc < 0 ? NULL : ticket_new(r, &err), *operation = NULL;
    if (!t)
        return sw_client_report(error, &err);
    rc = add_buffers(r, buffers, n, stream, &err);
    if (!rc && r->buffers->marks.n > 0)
        rc = sw_client_share_marks(c, &err);
    if (!rc) {
        operation = operation_new(r, buffers, n, &group, &err);
        rc = operation ? send_all(r, operation, &group, &err) : -SW_ENOMEM;
    }
    request_fini(r);
    if (rc < 0 && operation) {
        sw_packets_free(&group);
        sw_ticket_destroy(operation);
    }
    if (rc < 0 && r->buffers->n_left) { /* what is being closed is waited for, by nobody */
        (void)sw_client_report(&r->buffers->error, &err);
        t->abandoned = true;
        sw_list_append(&c->buffers, &t->node);
    } else if (rc < 0) {
        sw_ticket_destroy(t);
    } else {
        t->transfer.bytes = operation->transfer.bytes;
        sw_list_append(&c->buffers, &t->node);
        *ret_ticket = t;
        sw_buffers_advance(c); /* a connection that is gone */
    }
    return sw_client_report(error, &err);
}

int spillway_spill_buffers(struct spillway *connection, const struct spillway_buffer *buffers, uint32_t n,
                           struct CUstream_st *stream, struct spillway_ticket **ret_ticket,
                           struct spillway_error *error) {
    struct request r;
    memset(&r, 0, sizeof r);
    r.c = connection;
    r.msg.header.type = SW_MSG_SPILL_BUFFERS;
    r.msg.u.spill_buffers.count = n;
    for (uint32_t i = 0; buffers && i < n && i < SPILLWAY_MAX_BUFFERS; i++)
        r.msg.u.spill_buffers.value_type[i] = (uint32_t)buffers[i].type;
    return start(&r, buffers, n, 0, stream, ret_ticket, error);
}

int spillway_restore_buffers(struct spillway *connection, struct spillway_region region,
                             const struct spillway_buffer *buffers, uint32_t n, struct CUstream_st *stream,
                             unsigned flags, struct spillway_ticket **ret_ticket, struct spillway_error *error) {
    struct request r;
    struct sw_err err = {0};
    if (sw_region_is_composite(region)) {
        (void)sw_err_set(&err, -SW_EINVAL, SW_SCOPE_REQUEST, "region %u:%u has one buffer: restore it", region.slot,
                         region.generation);
        return sw_client_report(error, &err);
    }
    memset(&r, 0, sizeof r);
    r.c = connection;
    r.msg.header.type = SW_MSG_RESTORE_BUFFERS;
    r.msg.u.restore_buffers.slot = region.slot;
    r.msg.u.restore_buffers.gen = region.generation;
    r.msg.u.restore_buffers.count = n;
    r.msg.u.restore_buffers.flags = flags & SPILLWAY_RESTORE_KEEP ? SW_REQ9_KEEP : 0;
    return start(&r, buffers, n, flags, stream, ret_ticket, error);
}
