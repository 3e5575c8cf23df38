/* client_batch.c - see client_batch.h. */
#include "ipc/client/client_batch.h"

#include "base/alloc.h"
#include "ipc/client/client_staging.h"
#include "ipc/span.h"
#include <stdlib.h>
#include <string.h>

struct part {
    uint32_t piece; /* index of the caller's */
    uint32_t mem;
    uint64_t offset, bytes;
    struct spillway_region region; /* generation 0: there is none */
};

/* Parts in one memory. */
struct section {
    uint32_t mem, end; /* of the last part, + 1 */
    struct sw_mark *mark;
};

struct sw_batch {
    struct spillway_ticket *ticket; /* the caller's */
    struct spillway_piece *pieces;  /* the caller's; NULL: not to be touched any more */
    bool keep;
    bool drops;                  /* restore: the daemon keeps the stored copies, the library drops them in the end */
    struct spillway_error error; /* the first */
    struct section *sections;
    uint32_t n_sections, section;    /* the latter: of the next part to be sent */
    uint32_t n, n_sent, n_in_flight; /* parts; parts; packets */
    struct part parts[];
};

static bool is_spill(const struct sw_batch *batch) {
    return batch->ticket->operation == SW_MSG_SPILL_BATCH;
}

/* ---- packets ----------------------------------------------------------------------------------------------------- */

static void packet_done(struct spillway_ticket *t) {
    struct sw_batch *batch = t->own.owner;
    batch->n_in_flight--;
    if (t->error.code)
        sw_client_note_error(&batch->error, &t->error);
}

bool sw_batch_take(struct spillway_ticket *t, const struct sw_msg_result_batch *m) {
    struct sw_batch *batch = t->own.owner;
    struct spillway_result *sum = &batch->ticket->answer.transfer;
    char text[sizeof m->reason + 1];
    if (m->count != t->transfer.n_pieces ||
        (is_spill(batch) ? m->raw_bytes != t->transfer.bytes : m->raw_bytes > t->transfer.bytes))
        return false;
    for (uint32_t i = 0; is_spill(batch) && i < m->count; i++) {
        const struct spillway_region region = {m->slot[i], m->gen[i]};
        if (sw_region_is_composite(region) || !region.generation) /* none of the daemon's */
            return false;
        batch->parts[t->own.part + i].region = region;
    }
    sum->raw_bytes += m->raw_bytes;
    sum->stored_bytes += m->stored_bytes;
    if (m->service_us > sum->service_us) /* they overlap */
        sum->service_us = m->service_us;
    sw_client_combine(sum->codec, sizeof sum->codec, sw_msg_text(text, sizeof text, m->codec, sizeof m->codec));
    sw_client_combine(sum->tier, sizeof sum->tier, sw_msg_text(text, sizeof text, m->tier, sizeof m->tier));
    sw_client_combine(sum->reason, sizeof sum->reason, sw_msg_text(text, sizeof text, m->reason, sizeof m->reason));
    return true;
}

void sw_batch_settle(const struct spillway_ticket *t, struct sw_msg_settle9 *ret) {
    const struct sw_batch *batch = t->own.owner;
    ret->count = t->transfer.n_pieces;
    for (uint32_t i = 0; i < t->transfer.n_pieces && !is_spill(batch); i++) {
        ret->slot[i] = batch->parts[t->own.part + i].region.slot;
        ret->gen[i] = batch->parts[t->own.part + i].region.generation;
    }
}

static uint32_t flags_of(const struct sw_batch *batch, const struct section *section) {
    return (section->mark ? SW_REQ9_ORDER : 0) | (batch->keep || batch->drops ? SW_REQ9_KEEP : 0);
}

/* Fields that SPILL_BATCH and RESTORE_BATCH have in common, written into either. */
#define SET_BATCH(message, batch, section, n)                                                                          \
    do {                                                                                                               \
        (message)->mem = (section)->mem;                                                                               \
        (message)->flags = flags_of(batch, section);                                                                   \
        (message)->count = (n);                                                                                        \
        if ((section)->mark) {                                                                                         \
            (message)->order_word = sw_mark_word((section)->mark);                                                     \
            (message)->order_value = sw_mark_value((section)->mark);                                                   \
        }                                                                                                              \
        for (uint32_t i = 0; i < (n); i++) {                                                                           \
            (message)->offset[i] = (batch)->parts[(batch)->n_sent + i].offset;                                         \
            (message)->bytes[i] = (batch)->parts[(batch)->n_sent + i].bytes;                                           \
        }                                                                                                              \
    } while (0)

static void fill_message(const struct sw_batch *batch, uint32_t count, struct sw_msg *ret) {
    const struct section *section = &batch->sections[batch->section];
    sw_msg_init(ret, batch->ticket->operation);
    if (is_spill(batch)) {
        SET_BATCH(&ret->u.spill_batch, batch, section, count);
        return;
    }
    struct sw_msg_restore_batch *restore = &ret->u.restore_batch;
    SET_BATCH(restore, batch, section, count);
    for (uint32_t i = 0; i < count; i++) {
        restore->slot[i] = batch->parts[batch->n_sent + i].region.slot;
        restore->gen[i] = batch->parts[batch->n_sent + i].region.generation;
    }
}

static uint32_t most_pieces(const struct spillway *c) {
    return c->max_pieces < SW_PROTO_MAX_BATCH ? c->max_pieces : SW_PROTO_MAX_BATCH;
}

/* Sends the next packet. False: it is not its time, or it failed. */
static bool send_packet(struct spillway *c, struct sw_batch *batch) {
    const uint32_t most = most_pieces(c), left = batch->sections[batch->section].end - batch->n_sent,
                   count = left < most ? left : most;
    struct sw_list group;
    struct sw_msg msg;
    struct sw_err err = {0};
    if (c->n_in_flight >= c->max_in_flight ||
        c->n_pieces + count > c->max_pieces) /* which may be fewer after a restart */
        return false;
    sw_list_init(&group);
    fill_message(batch, count, &msg);
    const uint32_t mem = batch->sections[batch->section].mem;
    int rc = sw_registered_ready(c, mem, &err);
    if (rc == 0 && batch->sections[batch->section].mark)
        rc = sw_client_share_marks(c, &err);
    struct spillway_ticket *t = rc < 0 ? NULL : sw_ticket_new(c, batch->ticket->operation, &err);
    if (!t || !sw_packet_new(&group, &msg, &err)) {
        sw_free(t);
        sw_client_note_err(&batch->error, &err);
        return false;
    }
    t->transfer.mem = mem;
    t->own.on_done = packet_done;
    t->own.owner = batch;
    t->own.part = batch->n_sent;
    t->transfer.n_pieces = count;
    for (uint32_t i = 0; i < count; i++)
        t->transfer.bytes += batch->parts[batch->n_sent++].bytes;
    batch->section += batch->n_sent == batch->sections[batch->section].end;
    batch->n_in_flight++;
    sw_client_submit(t, &group);
    return true;
}

void sw_batch_drop(struct sw_batch *batch) {
    struct spillway *c = batch->ticket->connection;
    struct sw_msg msg;
    struct sw_msg_drop_batch *drop = &msg.u.drop_batch;
    sw_msg_init(&msg, SW_MSG_DROP_BATCH);
    drop->consume = !is_spill(batch); /* as a restore in one packet does to its regions: durable ones stay */
    for (uint32_t i = 0; i < batch->n && !c->lost.code; i++) {
        struct spillway_region *region = &batch->parts[i].region;
        if (region->generation) {
            drop->slot[drop->count] = region->slot;
            drop->gen[drop->count++] = region->generation;
            region->generation = 0;
        }
        if (drop->count == SW_PROTO_MAX_BATCH || (drop->count && i + 1 == batch->n)) {
            sw_client_submit_unattended(c, &msg);
            drop->count = 0;
        }
    }
}

/* ---- a batch ----------------------------------------------------------------------------------------------------- */

static void release_marks(struct sw_batch *batch) {
    for (uint32_t i = 0; i < batch->n_sections; i++) {
        sw_mark_unref(batch->sections[i].mark);
        batch->sections[i].mark = NULL;
    }
}

static void finish(struct spillway *c, struct sw_batch *batch) {
    struct spillway_ticket *t = batch->ticket;
    t->error = batch->error;
    release_marks(batch);
    if (is_spill(batch) ? batch->error.code != 0 : !batch->error.code && batch->drops)
        sw_batch_drop(batch);
    else if (is_spill(batch) && batch->pieces)
        for (uint32_t i = 0; i < batch->n; i++)
            batch->pieces[batch->parts[i].piece].region = batch->parts[i].region;
    c->n_batches--;
    sw_ticket_complete(t);
}

void sw_batches_advance(struct spillway *c) {
    bool room = true; /* none overtakes one that waits for it */
    for (struct sw_list *n = c->batches.next, *next; n != &c->batches; n = next) {
        struct sw_batch *batch = SW_CONTAINER_OF(n, struct spillway_ticket, node)->batch;
        next = n->next;
        if (c->lost.code)
            sw_client_note_error(&batch->error, &c->lost);
        while (room && !batch->error.code && batch->n_sent < batch->n)
            room = send_packet(c, batch) || batch->error.code;
        if (!batch->n_in_flight && (batch->error.code || batch->n_sent == batch->n))
            finish(c, batch);
    }
}

void sw_batch_abandon(struct sw_batch *batch) {
    struct sw_err err = {0};
    batch->pieces = NULL;
    if (!is_spill(batch))
        return;
    (void)sw_err_set(&err, -SW_ECANCELED, SW_SCOPE_REQUEST, "nobody waits for the batch any more");
    sw_client_note_err(&batch->error, &err);
}

bool sw_batches_use(const struct spillway *c, uint32_t mem) {
    for (struct sw_list *n = c->batches.next; n != &c->batches; n = n->next) {
        const struct sw_batch *batch = SW_CONTAINER_OF(n, struct spillway_ticket, node)->batch;
        for (uint32_t i = 0; i < batch->n_sections; i++)
            if (batch->sections[i].mem == mem)
                return true;
    }
    return false;
}

void sw_batch_free(struct sw_batch *batch) {
    if (!batch)
        return;
    release_marks(batch);
    sw_free(batch->sections);
    sw_free(batch);
}

/* ---- beginning --------------------------------------------------------------------------------------------------- */

/* The registered memory of a piece. One of no bytes may lie where a memory ends, as for a spill by itself. */
static const struct sw_registered *memory_of(const struct spillway *c, const struct spillway_piece *piece) {
    struct sw_export range;
    const struct sw_registered *r = sw_registered_find(c, piece->data, piece->bytes, &range);
    return r || piece->bytes ? r : sw_registered_find(c, (const uint8_t *)piece->data - 1, 1, &range);
}

/* Finds the memory of each piece. */
static int take_pieces(struct spillway *c, struct sw_batch *batch, struct sw_err *err) {
    const struct sw_registered *r = NULL;
    for (uint32_t i = 0; i < batch->n; i++) {
        const struct spillway_piece *piece = &batch->pieces[i];
        if (!piece->data)
            return sw_err_set(err, -SW_EINVAL, SW_SCOPE_REQUEST, "piece %u: memory is NULL", i + 1);
        if (!r || !sw_registered_holds(r, piece->data, piece->bytes))
            r = memory_of(c, piece);
        if (!r)
            return sw_err_set(err, -SW_EMEMKIND, SW_SCOPE_REQUEST,
                              "piece %u, %p and %llu bytes, is not in registered memory: spillway_register() it", i + 1,
                              piece->data, (unsigned long long)piece->bytes);
        if (!is_spill(batch) && sw_region_is_composite(piece->region))
            return sw_err_set(err, -SW_EINVAL, SW_SCOPE_REQUEST,
                              "piece %u: region %u:%u was copied in pieces: restore it by itself", i + 1,
                              piece->region.slot, piece->region.generation);
        batch->parts[i] = (struct part){.piece = i,
                                        .mem = r->mem,
                                        .offset = r->offset + ((uintptr_t)piece->data - r->address),
                                        .bytes = piece->bytes};
        if (is_spill(batch))
            continue;
        const int rc = sw_export_make_pages(&(struct sw_export){.kind = r->kind}, piece->data, piece->bytes, err);
        if (rc < 0)
            return rc;
        batch->parts[i].region = piece->region;
    }
    return 0;
}

static int by_memory(const void *a, const void *b) {
    const struct part *x = a, *y = b;
    if (x->mem != y->mem)
        return x->mem < y->mem ? -1 : 1;
    return (x->piece > y->piece) - (x->piece < y->piece);
}

/* The daemon sees the overlaps within a packet only. */
static int check_overlap(const struct sw_batch *batch, struct sw_err *err) {
    struct sw_span *spans = sw_alloc_array(batch->n, sizeof *spans);
    if (!spans)
        return sw_err_set(err, -SW_ENOMEM, SW_SCOPE_REQUEST, "no memory for a batch of %u pieces", batch->n);
    for (uint32_t i = 0; i < batch->n; i++)
        spans[i] = (struct sw_span){(uintptr_t)batch->pieces[i].data, batch->pieces[i].bytes};
    const bool overlap = sw_spans_overlap(spans, batch->n);
    sw_free(spans);
    return overlap ? sw_err_set(err, -SW_EINVAL, SW_SCOPE_REQUEST, "destinations of a batch overlap") : 0;
}

/* Makes the sections, each with a mark behind what the stream has been given. Returns how many packets they are. */
static int make_sections(struct spillway *c, struct sw_batch *batch, struct CUstream_st *stream, uint64_t *ret_packets,
                         struct sw_err *err) {
    struct sw_marks known = {0};
    uint32_t n = 1;
    for (uint32_t i = 1; i < batch->n; i++)
        n += batch->parts[i].mem != batch->parts[i - 1].mem;
    batch->sections = sw_alloc_array(n, sizeof *batch->sections);
    if (!batch->sections)
        return sw_err_set(err, -SW_ENOMEM, SW_SCOPE_REQUEST, "no memory for a batch of %u pieces", batch->n);
    for (uint32_t first = 0; first < batch->n; first = batch->sections[batch->n_sections++].end) {
        const struct spillway_piece *piece = &batch->pieces[batch->parts[first].piece];
        struct section *section = &batch->sections[batch->n_sections];
        const struct sw_registered *r = memory_of(c, piece);
        struct sw_export range = {.kind = r->kind};
        section->mem = batch->parts[first].mem;
        for (section->end = first; section->end < batch->n && batch->parts[section->end].mem == section->mem;)
            section->end++;
        const int rc = sw_export_order(&range, &c->cuda, &known, r->data, stream, err);
        if (rc < 0)
            return rc;
        section->mark = range.mark;
        known = (struct sw_marks){.n = range.mark != NULL, .marks = {range.mark}};
        *ret_packets += (section->end - first + most_pieces(c) - 1) / most_pieces(c);
    }
    return 0;
}

static int prepare(struct spillway *c, struct sw_batch *batch, struct CUstream_st *stream, struct sw_err *err) {
    uint64_t n_packets = 0;
    int rc = take_pieces(c, batch, err);
    if (rc == 0 && !is_spill(batch))
        rc = check_overlap(batch, err);
    if (rc < 0)
        return rc;
    bool sorted = true;
    for (uint32_t i = 1; sorted && i < batch->n; i++)
        sorted = by_memory(&batch->parts[i - 1], &batch->parts[i]) < 0;
    if (!sorted)
        qsort(batch->parts, batch->n, sizeof batch->parts[0], by_memory);
    rc = make_sections(c, batch, stream, &n_packets, err);
    batch->drops = !is_spill(batch) && !batch->keep && n_packets > 1;
    return rc;
}

/* A batch with its ticket, on no list yet; with *err set, to be freed. */
static struct spillway_ticket *batch_new(struct spillway *c, unsigned operation, struct spillway_piece *pieces,
                                         uint32_t n, struct sw_err *err) {
    struct spillway_ticket *t = sw_ticket_new(c, operation, err);
    if (!t)
        return NULL;
    t->batch = sw_alloc(sizeof *t->batch + n * sizeof t->batch->parts[0]);
    if (!t->batch) {
        (void)sw_err_set(err, -SW_ENOMEM, SW_SCOPE_REQUEST, "no memory for a batch of %u pieces", n);
        sw_ticket_destroy(t);
        return NULL;
    }
    t->batch->ticket = t;
    t->batch->pieces = pieces;
    t->batch->n = n;
    return t;
}

static int check_call(const struct spillway *c, const struct spillway_piece *pieces, uint32_t n, unsigned flags,
                      struct sw_err *err) {
    if (!pieces || !n)
        return sw_err_set(err, -SW_EINVAL, SW_SCOPE_REQUEST, "a batch without pieces");
    if (flags & ~SPILLWAY_RESTORE_KEEP)
        return sw_err_set(err, -SW_EINVAL, SW_SCOPE_REQUEST, "restore: unknown flags 0x%x", flags);
    if (c->n_batches >= c->max_in_flight || !c->max_pieces)
        return sw_err_set(err, -SW_ELIMIT, SW_SCOPE_REQUEST, "%u batches are in flight, the daemon allows no more",
                          c->n_batches);
    return 0;
}

static int start(struct spillway *c, unsigned operation, struct spillway_piece *pieces, uint32_t n,
                 struct CUstream_st *stream, unsigned flags, struct spillway_ticket **ret_ticket,
                 struct spillway_error *error) {
    struct sw_err err = {0};
    const int foreign = sw_client_check_process(c, error);
    if (foreign < 0)
        return foreign;
    if (c->n_batches >= c->max_in_flight)
        (void)sw_client_pump(c);
    if (c->lost.code)
        return sw_client_copy_error(error, &c->lost);
    int rc = check_call(c, pieces, n, flags, &err);
    struct spillway_ticket *t = rc < 0 ? NULL : batch_new(c, operation, pieces, n, &err);
    if (!t)
        return sw_client_report(error, &err);
    t->batch->keep = flags & SPILLWAY_RESTORE_KEEP;
    rc = prepare(c, t->batch, stream, &err);
    if (rc < 0) {
        sw_ticket_destroy(t);
        return sw_client_report(error, &err);
    }
    for (uint32_t i = 0; i < n; i++)
        t->transfer.bytes += t->batch->parts[i].bytes;
    sw_list_append(&c->batches, &t->node);
    c->n_batches++;
    *ret_ticket = t;
    sw_batches_advance(c);
    return sw_client_report(error, &err);
}

int spillway_spill_batch(struct spillway *connection, struct spillway_piece *pieces, uint32_t n,
                         struct CUstream_st *stream, struct spillway_ticket **ret_ticket,
                         struct spillway_error *error) {
    return start(connection, SW_MSG_SPILL_BATCH, pieces, n, stream, 0, ret_ticket, error);
}

int spillway_restore_batch(struct spillway *connection, struct spillway_piece *pieces, uint32_t n,
                           struct CUstream_st *stream, unsigned flags, struct spillway_ticket **ret_ticket,
                           struct spillway_error *error) {
    return start(connection, SW_MSG_RESTORE_BATCH, pieces, n, stream, flags, ret_ticket, error);
}
