/* client_staging.c - see client_staging.h. The states of a staged call:
 *
 *   READY   waits until the daemon has mapped the arenas, and the caller's streams have written their marks
 *   BEGIN   restore: begins the reads, whose replies have the lengths of the regions and their chunks
 *   MOVE    moves several chunks at a time, in order; after the first error it stops when they have ended
 *   END     spill: commits are under way; restore: until the last copies are made
 *   OVER    nothing more is sent
 *
 * The places of an arena are given out in the order of the calls, so that each gets on. Memory of the host is copied
 * inside the library's calls, one piece a call. */
#include "ipc/client/client_staging.h"
#include "ipc/client/client_arena.h"
#include "ipc/client/client_results.h"
#include "ipc/client/client_way.h"

#include "base/alloc.h"
#include "base/descriptors.h"
#include <errno.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <unistd.h>

enum { POLL_GPU_NS = 100000, AT_ONCE_NS = 1 };

enum stage { STAGE_READY, STAGE_BEGIN, STAGE_MOVE, STAGE_END, STAGE_OVER };

struct sw_staged {
    struct sw_way way;
    enum stage stage;
    uint32_t item, buffer_index; /* of the next buffer to move; the index is within the item */
    uint64_t at;                 /* in that buffer */
    unsigned n_held;             /* places */
};

struct sw_staging {
    struct sw_list arenas; /* sw_arena.node */
    bool timer_set;
};

static struct sw_staged *staged_of(struct sw_way *way) {
    return SW_CONTAINER_OF(way, struct sw_staged, way);
}

static bool is_spill(const struct sw_staged *op) {
    return sw_way_is_spill(&op->way);
}

static struct spillway *connection_of(const struct sw_staged *op) {
    return sw_way_connection(&op->way);
}

static bool must_stop(const struct sw_staged *op) {
    return sw_way_must_stop(&op->way);
}

/* ---- staging ----------------------------------------------------------------------------------------------------- */

static int staging_new(struct spillway *c, struct sw_err *err) {
    struct epoll_event event = {.events = EPOLLIN};
    struct sw_staging *s = sw_alloc(sizeof *s);
    if (!s)
        return sw_err_set(err, -SW_ENOMEM, SW_SCOPE_REQUEST, "no memory for transfers in pieces");
    sw_list_init(&s->arenas);
    const int timer = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
    if (timer < 0 || epoll_ctl(c->epoll, EPOLL_CTL_ADD, timer, &event) < 0) {
        const int e = errno;
        if (timer >= 0)
            (void)close(timer);
        sw_free(s);
        return sw_err_set(err, sw_is_out_of_descriptors(e) ? -SW_ELIMIT : sw_err_from_errno(e), SW_SCOPE_REQUEST,
                          "timer: %s", strerror(e));
    }
    c->timers[SW_TIMER_STAGING] = timer;
    c->staging = s;
    return 0;
}

/* Sets the timer that asks for sw_staging_advance(); 0: only other events ask for it. */
static void wake_after(const struct spillway *c, long ns) {
    struct sw_staging *s = c->staging;
    const struct itimerspec time = {.it_value.tv_nsec = ns};
    if (ns || s->timer_set)
        (void)timerfd_settime(c->timers[SW_TIMER_STAGING], 0, &time, NULL); /* also makes the timer unreadable */
    s->timer_set = ns != 0;
}

/* The resources of a round of sw_staging_advance(), and its result. */
struct round {
    unsigned copies; /* copies of host memory that are still allowed */
    long wake_ns;    /* when to go on; 0: when packets arrive */
};

static void come_back(struct round *round, long ns) {
    if (!round->wake_ns || ns < round->wake_ns)
        round->wake_ns = ns;
}

/* ---- one chunk --------------------------------------------------------------------------------------------------- */

static uint8_t *data_of(const struct sw_staged *op, uint32_t item, uint32_t k) {
    return op->way.transfer->items[item].request->buffers[k].data;
}

static struct sw_arena *arena_of(const struct sw_staged *op, const struct spillway_ticket *t) {
    struct sw_arena *arena = NULL;
    for (uint32_t k = 0; !arena && k < op->way.transfer->call->n_buffers; k++)
        if (op->way.transfer->buffers[k].arena && op->way.transfer->buffers[k].arena->mem == t->transfer.mem)
            arena = op->way.transfer->buffers[k].arena;
    return arena;
}

static void give_back(struct sw_staged *op, struct sw_arena *arena, unsigned first) {
    sw_arena_give_back(arena, first);
    op->n_held--;
}

/* Handles the reply to a chunk: the daemon has stored it, or written it. */
static bool take_chunk(struct spillway_ticket *t, const struct sw_msg *msg) {
    struct sw_transfer *x = t->own.owner;
    struct spillway_result result;
    const struct sw_msg_results *m = &msg->u.results;
    if (msg->header.type != SW_MSG_RESULTS || m->n_results != 1 || !sw_results_read(m, 0, &result))
        return false;
    if (result.code)
        sw_client_result_error(&t->error, m, 0);
    else if (!x->call->is_spill)
        sw_way_add_result(&x->results[t->own.part], &result);
    return result.code || !t->transfer.bytes || result.raw_bytes == t->transfer.bytes;
}

static void chunk_done(struct spillway_ticket *t) {
    struct sw_transfer *x = t->own.owner;
    struct sw_staged *op = staged_of(x->way);
    struct sw_arena *arena = arena_of(op, t);
    if (arena && t->own.place < SW_ARENA_PIECES) {
        struct sw_place *place = &arena->places[t->own.place];
        place->arrived = !t->error.code && !is_spill(op);
        place->arrived_bytes = t->transfer.bytes;
        if (!place->arrived)
            give_back(op, arena, t->own.place);
    }
    sw_transfer_packet_done(t);
}

/* Sends a chunk of the item's piece. place: of the arena; SW_ARENA_PIECES: it is in the caller's memory. */
static bool send_chunk(struct sw_staged *op, const struct sw_wire_chunk *chunk, const struct sw_mark *mark,
                       unsigned place) {
    struct spillway_ticket *t = sw_way_send_chunks(&op->way, op->item, 0, chunk, 1, mark, take_chunk, chunk_done);
    if (!t)
        return false;
    t->transfer.bytes = is_spill(op) || place < SW_ARENA_PIECES ? chunk->raw_bytes : 0;
    t->own.place = place;
    return true;
}

/* ---- spill ------------------------------------------------------------------------------------------------------- */

/* Returns false if a copy has to be made first. */
static bool may_copy(const struct sw_arena *arena, struct round *round) {
    if (arena->gpu != SW_ARENA_HOST)
        return true;
    if (!round->copies) {
        come_back(round, AT_ONCE_NS);
        return false;
    }
    round->copies--;
    return true;
}

static uint64_t at_most(uint64_t bytes, uint64_t most) {
    return bytes < most ? bytes : most;
}

/* Returns how much of a buffer is moved at a time, and how many places of the arena that takes. A restore moves whole
 * chunks of the region. */
static uint64_t bytes_at_once(const struct sw_staged *op, const struct sw_item_buffer *b, unsigned *ret_places) {
    const uint64_t left = (is_spill(op) ? b->bytes : b->stored_bytes) - op->at,
                   unit = is_spill(op) || b->chunk_bytes <= SW_PIECE_BYTES ? SW_PIECE_BYTES : b->chunk_bytes,
                   whole = is_spill(op) || !b->chunk_bytes ? unit : unit / b->chunk_bytes * b->chunk_bytes,
                   bytes = at_most(left, whole);
    *ret_places = bytes ? (unsigned)((bytes + SW_PIECE_BYTES - 1) / SW_PIECE_BYTES) : 1;
    return bytes;
}

/* Moves the next bytes of a copied buffer. Returns false if it has to wait. */
static bool move_copied(struct sw_staged *op, struct sw_item_buffer *b, struct round *round) {
    struct sw_arena *arena = b->arena;
    struct sw_export e = {0};
    struct sw_err err = {0};
    unsigned n;
    const uint64_t bytes = bytes_at_once(op, b, &n);
    const int first = arena->wanted ? -1 : sw_arena_find_places(arena, n);
    if (first < 0 || (is_spill(op) && !may_copy(arena, round))) {
        arena->wanted = true;
        return false;
    }
    const unsigned place = (unsigned)first;
    sw_arena_take(arena, place, n, op, data_of(op, op->item, op->buffer_index) + op->at);
    op->n_held++;
    int rc =
        is_spill(op) ? sw_arena_copy(arena, place, 0, bytes, true, &err) : sw_arena_make(arena, place, bytes, &err);
    if (!rc)
        rc = sw_arena_mark(connection_of(op), arena, &e,
                           &err); /* also waits for work that still reads the place that a restore will write to */
    if (rc < 0) {
        op->way.transfer->results[op->item].code = rc;
        sw_client_note_err(&op->way.transfer->error, &err);
    }
    const struct sw_wire_chunk chunk = {.at = op->at,
                                        .raw_bytes = bytes,
                                        .offset = e.offset + place * SW_PIECE_BYTES,
                                        .mem = arena->mem,
                                        .buffer = (uint16_t)op->buffer_index};
    const bool sent = !rc && send_chunk(op, &chunk, e.mark, place);
    sw_mark_unref(e.mark);
    if (!sent)
        give_back(op, arena, place);
    op->at += sent ? bytes : 0;
    return sent;
}

/* Moves a buffer whose memory the daemon opens, as one chunk. */
static bool move_whole(struct sw_staged *op, const struct sw_item_buffer *b) {
    const struct sw_wire_chunk chunk = {
        .raw_bytes = b->bytes, .offset = b->offset, .mem = b->mem, .buffer = (uint16_t)op->buffer_index};
    if (!send_chunk(op, &chunk, b->mark, SW_ARENA_PIECES))
        return false;
    op->at = b->bytes;
    return true;
}

static bool is_moved(const struct sw_staged *op, const struct sw_item_buffer *b) {
    return op->at >= (is_spill(op) || !b->arena ? b->bytes : b->stored_bytes);
}

/* Goes on with the next item. With SPILLWAY_EACH, commits the item whose bytes were all sent. Returns false if it has
 * to wait. */
static bool next_item(struct sw_staged *op) {
    struct sw_transfer *x = op->way.transfer;
    const bool each = sw_transfer_is_each(x);
    if (is_spill(op) && each && !x->results[op->item].code && !sw_way_commit(&op->way, op->item + 1) && !x->cancel_code)
        return false;
    if (each)
        op->way.n_ended = op->item + 1;
    op->item++;
    op->buffer_index = 0;
    op->at = 0;
    return true;
}

/* Moves the next part of the call. Returns false if it has to wait, or there is none. */
static bool move_next(struct sw_staged *op, struct round *round) {
    const struct sw_transfer *x = op->way.transfer;
    if (must_stop(op) || op->item == sw_way_n_items(&op->way))
        return false;
    const uint32_t n_buffers = x->items[op->item].request->n_buffers;
    if (x->results[op->item].code) /* with SPILLWAY_EACH the other items go on */
        return next_item(op);
    if (op->buffer_index == n_buffers) {
        const bool is_begun = !is_spill(op) || x->items[op->item].number;
        return (is_begun || (sw_way_may_send(&op->way) && sw_way_begin_empty(&op->way, op->item))) && next_item(op);
    }
    struct sw_item_buffer *b = sw_way_buffer(&op->way, op->item, op->buffer_index);
    if (is_moved(op, b)) {
        op->buffer_index++;
        op->at = 0;
        return true;
    }
    if (!sw_way_may_send(&op->way))
        return false;
    return b->arena ? move_copied(op, b, round) : move_whole(op, b);
}

/* ---- restore ----------------------------------------------------------------------------------------------------- */

/* Copies restored chunks to the caller's memory; not after an error. */
static void copy_out(struct sw_staged *op, struct sw_arena *arena, struct round *round) {
    struct sw_transfer *x = op->way.transfer;
    for (unsigned i = 0; i < SW_ARENA_PIECES; i++) {
        struct sw_place *place = &arena->places[i];
        if (place->user != op || !place->arrived)
            continue;
        do {
            const uint64_t n = at_most(place->arrived_bytes - place->copied_bytes, SW_PIECE_BYTES);
            struct sw_err err = {0};
            if (!must_stop(op) && !may_copy(arena, round))
                return;
            if (!must_stop(op) && sw_arena_copy(arena, i, place->copied_bytes, n, false, &err) < 0)
                sw_client_note_err(&x->error, &err);
            place->copied_bytes += n;
        } while (!must_stop(op) && place->copied_bytes < place->arrived_bytes);
        give_back(op, arena, i);
    }
}

/* ---- a call, step by step ---------------------------------------------------------------------------------------- */

/* Returns whether the stream has written the mark, which is then given back. */
static bool is_reached(struct sw_mark **mark, struct round *round) {
    if (*mark && !sw_mark_is_reached(*mark)) {
        come_back(round, POLL_GPU_NS);
        return false;
    }
    sw_mark_unref(*mark);
    *mark = NULL;
    return true;
}

/* Waits for the streams and arenas of copied buffers. The daemon waits for the streams of other buffers. */
static bool is_ready(struct sw_staged *op, struct round *round) {
    struct sw_transfer *x = op->way.transfer;
    bool all = connection_of(op)->link == SW_LINK_UP;
    for (uint32_t i = 0; i < x->call->n_buffers; i++) {
        struct sw_item_buffer *b = &x->buffers[i];
        if (!b->arena)
            continue;
        if (b->arena->error.code)
            sw_client_note_error(&x->error, &b->arena->error);
        all = is_reached(&b->mark, round) && b->arena->open && all;
    }
    return all || must_stop(op) || x->error.code;
}

/* Waits for the last copies, because after the ticket's end the memory is the caller's. */
static void begin_end(struct sw_staged *op) {
    struct sw_transfer *x = op->way.transfer;
    op->stage = STAGE_END;
    for (uint32_t i = 0; i < x->call->n_buffers; i++) {
        struct sw_item_buffer *b = &x->buffers[i];
        struct sw_export e = {0};
        struct sw_err err = {0};
        const bool is_first = i == 0 || x->buffers[i - 1].arena != b->arena;
        if (!b->arena)
            continue;
        sw_mark_unref(b->mark); /* of the caller's stream, for which nothing waits after an error */
        b->mark = NULL;
        if (is_first && sw_arena_mark(connection_of(op), b->arena, &e, &err) < 0)
            sw_client_note_err(&x->error, &err);
        b->mark = e.mark;
    }
}

static void end(struct sw_staged *op, struct round *round) {
    if (sw_way_end(&op->way))
        op->stage = STAGE_OVER;
    else
        come_back(round, POLL_GPU_NS);
}

static bool is_all_back(const struct sw_staged *op) {
    return !op->way.transfer->n_in_flight && !op->n_held;
}

static void copy_all_out(struct sw_staged *op, struct round *round) {
    const struct sw_transfer *x = op->way.transfer;
    for (uint32_t i = 0; !is_spill(op) && op->n_held && i < x->call->n_buffers; i++)
        if (x->buffers[i].arena && (i == 0 || x->buffers[i - 1].arena != x->buffers[i].arena))
            copy_out(op, x->buffers[i].arena, round);
}

static void move(struct sw_staged *op, struct round *round) {
    copy_all_out(op, round);
    while (move_next(op, round))
        ;
    const bool all = op->item == sw_way_n_items(&op->way);
    if (!all && !must_stop(op))
        return;
    if (all && is_spill(op) && !must_stop(op) && !sw_transfer_is_each(op->way.transfer) &&
        !sw_way_commit(&op->way, sw_way_n_items(&op->way)))
        return;
    if (is_spill(op) && all && !must_stop(op))
        begin_end(op); /* the transfer waits for the replies to the commits */
    else if (is_all_back(op))
        begin_end(op);
}

static bool are_copies_made(struct sw_staged *op, struct round *round) {
    struct sw_transfer *x = op->way.transfer;
    bool all = true;
    for (uint32_t i = 0; i < x->call->n_buffers; i++)
        if (x->buffers[i].arena)
            all = is_reached(&x->buffers[i].mark, round) && all;
    return all;
}

static void advance(struct sw_staged *op, struct round *round) {
    if (op->stage == STAGE_READY && is_ready(op, round))
        op->stage = is_spill(op) ? STAGE_MOVE : STAGE_BEGIN;
    if (op->stage == STAGE_BEGIN && sw_way_begin_reads(&op->way))
        op->stage = STAGE_MOVE;
    if (op->stage == STAGE_MOVE)
        move(op, round);
    if (op->stage == STAGE_END && are_copies_made(op, round) && !op->n_held)
        end(op, round);
}

void sw_staging_advance(struct spillway *c, unsigned copies) {
    struct sw_staging *s = c->staging;
    struct round round = {.copies = copies};
    if (!s)
        return;
    sw_arenas_begin_round(&s->arenas);
    for (struct sw_list *n = c->transfers.next; n != &c->transfers; n = n->next) {
        struct sw_staged *op = sw_staged_of(SW_CONTAINER_OF(n, struct spillway_ticket, node)->call);
        if (op && op->stage != STAGE_OVER)
            advance(op, &round);
    }
    if (sw_arenas_freed(&s->arenas)) /* no later packet may wake the call */
        come_back(&round, AT_ONCE_NS);
    wake_after(c, round.wake_ns);
}

/* ---- beginning and end ------------------------------------------------------------------------------------------- */

static bool has_ended(const struct sw_way *way) {
    return SW_CONTAINER_OF(way, const struct sw_staged, way)->stage == STAGE_OVER;
}

static void cancel(struct sw_way *way) {
    (void)sw_way_end_open(way); /* if that fails, the call's end does it */
    wake_after(sw_way_connection(way), AT_ONCE_NS);
}

static uint32_t chunk_bytes(const struct sw_way *way, const struct sw_item_buffer *b) {
    (void)way;
    return b->arena ? (uint32_t)SW_PIECE_BYTES : 0;
}

static int check_buffer(struct sw_way *way, const struct sw_item_buffer *b, struct sw_err *err) {
    (void)way;
    if (b->arena && b->chunk_bytes > SW_ARENA_BYTES)
        return sw_err_set(err, -SW_ENOTSUP, SW_SCOPE_REQUEST,
                          "chunks of %llu bytes are longer than the staging arena of %llu",
                          (unsigned long long)b->chunk_bytes, (unsigned long long)SW_ARENA_BYTES);
    return 0;
}

static void staged_free(struct sw_way *way) {
    const struct sw_transfer *x = way->transfer;
    for (uint32_t i = 0; x->buffers && x->call && i < x->call->n_buffers; i++)
        if (x->buffers[i].arena)
            x->buffers[i].arena->n_users--;
    sw_free(staged_of(way));
}

static const struct sw_way_ops staged_ops = {.has_ended = has_ended,
                                             .cancel = cancel,
                                             .chunk_bytes = chunk_bytes,
                                             .check_buffer = check_buffer,
                                             .free = staged_free};

struct sw_staged *sw_staged_of(const struct sw_transfer *x) {
    return x->way && x->way->ops == &staged_ops ? staged_of(x->way) : NULL;
}

int sw_staged_new(struct sw_transfer *x, struct sw_err *err) {
    struct spillway *c = x->ticket->connection;
    const int rc = c->staging ? 0 : staging_new(c, err);
    if (rc < 0)
        return rc;
    struct sw_staged *staged = sw_alloc(sizeof *staged);
    if (!staged)
        return sw_err_set(err, -SW_ENOMEM, SW_SCOPE_REQUEST, "no memory for a transfer in pieces");
    staged->way = (struct sw_way){.ops = &staged_ops, .transfer = x};
    x->way = &staged->way;
    return 0;
}

int sw_staged_prepare(struct sw_staged *op, struct sw_item_buffer *b, const struct spillway_buffer *buffer,
                      struct CUstream_st *stream, bool is_marked, struct sw_err *err) {
    struct spillway *c = connection_of(op);
    struct sw_export e = {.kind = SW_MEM_CUDA_IPC};
    struct sw_cuda_place gpu = {0};
    const int place = sw_cuda_locate(&c->cuda, buffer->data, buffer->bytes, &gpu, err);
    int rc = place < 0 ? place : 0;
    if (!rc && place != SW_CUDA_GPU) {
        gpu.ordinal = SW_ARENA_HOST;
        rc = sw_host_check(buffer->data, buffer->bytes, !is_spill(op), NULL, err);
    }
    if (!rc && place != SW_CUDA_UNKNOWN && !is_marked)
        rc = sw_export_order(&e, &c->cuda, NULL, buffer->data, stream, err);
    if (!rc)
        rc = sw_arena_get(c, &c->staging->arenas, gpu.ordinal, buffer->data, &b->arena, err);
    if (!rc) {
        b->arena->n_users++;
        b->mem = b->arena->mem;
        if (!is_marked)
            b->mark = e.mark;
        e.mark = NULL;
    }
    sw_mark_unref(e.mark);
    return rc;
}

static bool is_settled(const void *arg) {
    const struct sw_arena *arena = arg;
    return arena->open || arena->error.code;
}

/* Makes a mark in the default stream of the memory's GPU, which allocates everything that marks need. */
static int prepare_marks(struct spillway *c, const void *memory, struct sw_err *err) {
    struct sw_export e = {.kind = SW_MEM_CUDA_IPC};
    int rc = sw_export_order(&e, &c->cuda, NULL, memory, NULL, err);
    if (!rc && e.mark)
        rc = sw_client_share_marks(c, err);
    sw_export_fini(&e);
    return rc;
}

int sw_staging_prepare(struct spillway *c, const void *memory, struct sw_err *err) {
    struct sw_arena *arena = NULL;
    struct sw_cuda_place gpu = {0};
    int rc = c->staging ? 0 : staging_new(c, err);
    const int place = rc < 0 ? rc : sw_cuda_locate(&c->cuda, memory, 1, &gpu, err);
    if (place < 0)
        return place;
    if (place == SW_CUDA_GPU)
        rc = prepare_marks(c, memory, err);
    else
        rc = sw_host_check(memory, 1, false, NULL, err);
    if (!rc)
        rc = sw_arena_get(c, &c->staging->arenas, place == SW_CUDA_GPU ? gpu.ordinal : SW_ARENA_HOST, memory, &arena,
                          err);
    for (unsigned i = 0; !rc && i < SW_ARENA_PIECES; i++)
        rc = sw_arena_make(arena, i, SW_PIECE_BYTES, err);
    if (rc < 0)
        return rc;
    arena->n_users++; /* keeps the arena meanwhile */
    rc = sw_client_wait_answer(c, is_settled, arena, c->timeout_ms, "MEM_OPEN", err);
    arena->n_users--;
    if (!rc && arena->error.code)
        rc = sw_err_set(err, arena->error.code, SW_SCOPE_REQUEST, "%s", arena->error.text);
    return rc;
}

void sw_staging_reopen(struct spillway *c) {
    if (c->staging)
        sw_arenas_reopen(c, &c->staging->arenas);
}

void sw_staging_free_unused(struct spillway *c) {
    if (c->staging)
        sw_arenas_free_unused(c, &c->staging->arenas);
}

bool sw_staging_uses(const struct spillway *c, uint32_t mem) {
    return c->staging && sw_arenas_use(&c->staging->arenas, mem);
}

void sw_staging_free(struct spillway *c) {
    struct sw_staging *s = c->staging;
    if (!s)
        return;
    sw_arenas_free(&s->arenas);
    sw_free(s);
}
