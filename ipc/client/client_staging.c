/* client_staging.c - see client_staging.h. Life of a call that copies:
 *
 *   READY   until the daemon has mapped the arenas, and the caller's streams are where they were at the call
 *   BEGIN   restore: the reads have begun, and say how long the regions and their chunks are
 *   MOVE    several pieces on their way at a time, in order; the first error stops it once those are back
 *   END     spill: commits are under way; restore: until the last copies are made
 *   OVER    nothing more is sent
 *
 * The places of an arena are given out in the order of the calls, so that each gets on. Memory of the host is copied
 * inside the library's calls, one piece a call. */
#include "ipc/client/client_staging.h"
#include "ipc/client/client_arena.h"
#include "ipc/client/client_packets.h"
#include "ipc/client/client_results.h"

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
    struct sw_transfer *transfer;
    enum stage stage;
    uint32_t item, piece;      /* the next one to be moved; of the item's pieces */
    uint64_t at;               /* in that piece */
    uint32_t n_begun, n_ended; /* items: restore: reads; committed or ended */
    unsigned n_held;           /* places */
    bool is_counted;           /* in its arenas' n_users */
};

struct sw_staging {
    struct sw_list arenas; /* sw_arena.node */
    bool timer_set;
};

static bool is_spill(const struct sw_staged *op) {
    return op->transfer->call->is_spill;
}

static struct spillway *connection_of(const struct sw_staged *op) {
    return op->transfer->ticket->connection;
}

static uint32_t n_items(const struct sw_staged *op) {
    return op->transfer->call->n;
}

/* Whether the call is to stop: of one whose requests succeed or fail one by one, only what concerns all. */
static bool must_stop(const struct sw_staged *op) {
    const struct sw_transfer *x = op->transfer;
    return (x->error.code && !sw_transfer_is_each(x)) || x->cancel_code || connection_of(op)->lost.code;
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

/* Has sw_staging_advance() called after so long; 0: not before something else happens. */
static void wake_after(const struct spillway *c, long ns) {
    struct sw_staging *s = c->staging;
    const struct itimerspec time = {.it_value.tv_nsec = ns};
    if (ns || s->timer_set)
        (void)timerfd_settime(c->timers[SW_TIMER_STAGING], 0, &time, NULL); /* also makes it unreadable again */
    s->timer_set = ns != 0;
}

/* What a round of sw_staging_advance() has to give, and what it finds. */
struct round {
    unsigned copies; /* of pieces of the host's memory, still allowed */
    long wake_ns;    /* 0: packets tell when to go on */
};

static void come_back(struct round *round, long ns) {
    if (!round->wake_ns || ns < round->wake_ns)
        round->wake_ns = ns;
}

/* ---- one chunk on its way ---------------------------------------------------------------------------------------- */

static struct sw_piece *piece_at(const struct sw_staged *op, uint32_t item, uint32_t piece) {
    return &op->transfer->pieces[op->transfer->items[item].first + piece];
}

static uint8_t *data_of(const struct sw_staged *op, uint32_t item, uint32_t piece) {
    return op->transfer->items[item].request->buffers[piece].data;
}

static struct sw_arena *arena_of(const struct sw_staged *op, const struct spillway_ticket *t) {
    struct sw_arena *arena = NULL;
    for (uint32_t k = 0; !arena && k < op->transfer->call->n_buffers; k++)
        if (op->transfer->pieces[k].arena && op->transfer->pieces[k].arena->mem == t->transfer.mem)
            arena = op->transfer->pieces[k].arena;
    return arena;
}

static void give_back(struct sw_staged *op, struct sw_arena *arena, unsigned first) {
    sw_arena_give_back(arena, first);
    op->n_held--;
}

static void add_result(struct spillway_result *sum, const struct spillway_result *part) {
    sum->raw_bytes += part->raw_bytes;
    sum->stored_bytes += part->stored_bytes;
    sum->service_us += part->service_us;
    sw_client_combine(sum->codec, sizeof sum->codec, part->codec);
    sw_client_combine(sum->tier, sizeof sum->tier, part->tier);
    sw_client_combine(sum->reason, sizeof sum->reason, part->reason);
    sw_client_combine(sum->coder, sizeof sum->coder, part->coder);
}

/* The daemon has stored a chunk, or written it. */
static bool take_chunk(struct spillway_ticket *t, const struct sw_msg *msg) {
    struct sw_transfer *x = t->own.owner;
    struct spillway_result result;
    const struct sw_msg_results *m = &msg->u.results;
    if (msg->header.type != SW_MSG_RESULTS || m->n_results != 1 || !sw_results_read(m, 0, &result))
        return false;
    if (result.code)
        sw_client_result_error(&t->error, m, 0);
    else if (!x->call->is_spill)
        add_result(&x->results[t->own.part], &result);
    return result.code || !t->transfer.bytes || result.raw_bytes == t->transfer.bytes;
}

static void chunk_done(struct spillway_ticket *t) {
    struct sw_transfer *x = t->own.owner;
    struct sw_staged *op = x->staged;
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

/* What the next packet about the item begins with. */
static struct sw_arrays *begin_packet(struct sw_staged *op, uint32_t item) {
    struct sw_item *it = &op->transfer->items[item];
    struct sw_arrays *a = sw_arrays_begin(op->transfer);
    const bool begins = is_spill(op) && !it->number;
    if (begins)
        it->number = sw_client_new_number(connection_of(op));
    sw_arrays_add_item(a, it, begins ? (unsigned)SW_BUILD_BEGIN : 0u);
    for (uint32_t k = 0; begins && k < it->request->n_buffers; k++) {
        const struct sw_piece *piece = piece_at(op, item, k);
        sw_arrays_add_buffer(a, piece->bytes, piece->arena ? (uint32_t)SW_PIECE_BYTES : 0,
                             it->request->buffers[k].type);
    }
    return a;
}

/* Sends a chunk of the item's piece; mem and place: where it lies, SW_ARENA_PIECES: in the caller's memory. */
static bool send_chunk(struct sw_staged *op, const struct sw_wire_chunk *chunk, const struct sw_mark *mark,
                       unsigned place) {
    struct sw_transfer *x = op->transfer;
    struct sw_err err = {0};
    const bool was_begun = x->items[op->item].number != 0;
    struct sw_arrays *a = begin_packet(op, op->item);
    int rc = sw_registered_ready(connection_of(op), chunk->mem, &err);
    if (!rc && mark)
        rc = sw_client_share_marks(connection_of(op), &err);
    sw_arrays_add_chunk(a, chunk, mark);
    struct spillway_ticket *t = rc ? NULL : sw_arrays_send(x, a, op->item, false, take_chunk, chunk_done, &err);
    if (!t) {
        x->items[op->item].number = was_begun ? x->items[op->item].number : 0;
        x->results[op->item].code = err.code;
        sw_client_note_err(&x->error, &err);
        return false;
    }
    t->transfer.mem = chunk->mem;
    t->transfer.bytes = is_spill(op) || place < SW_ARENA_PIECES ? chunk->raw_bytes : 0;
    t->transfer.is_append = true;
    t->own.place = place;
    x->items[op->item].is_open = true;
    return true;
}

/* ---- spill ------------------------------------------------------------------------------------------------------- */

/* False: not now; there is a copy to make first. */
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

/* How much of a piece is moved at a time, and how many places of the arena that takes: chunks of a region are restored
 * as a whole. */
static uint64_t bytes_at_once(const struct sw_staged *op, const struct sw_piece *piece, unsigned *ret_places) {
    const uint64_t left = (is_spill(op) ? piece->bytes : piece->stored_bytes) - op->at,
                   unit = is_spill(op) || piece->chunk_bytes <= SW_PIECE_BYTES ? SW_PIECE_BYTES : piece->chunk_bytes,
                   whole = is_spill(op) || !piece->chunk_bytes ? unit : unit / piece->chunk_bytes * piece->chunk_bytes,
                   bytes = at_most(left, whole);
    *ret_places = bytes ? (unsigned)((bytes + SW_PIECE_BYTES - 1) / SW_PIECE_BYTES) : 1;
    return bytes;
}

/* Moves the next part of a copied piece. False: not now. */
static bool move_copied(struct sw_staged *op, struct sw_piece *piece, struct round *round) {
    struct sw_arena *arena = piece->arena;
    struct sw_export e = {0};
    struct sw_err err = {0};
    unsigned n;
    const uint64_t bytes = bytes_at_once(op, piece, &n);
    const int first = arena->wanted ? -1 : sw_arena_find_places(arena, n);
    if (first < 0 || (is_spill(op) && !may_copy(arena, round))) {
        arena->wanted = true;
        return false;
    }
    const unsigned place = (unsigned)first;
    sw_arena_take(arena, place, n, op, data_of(op, op->item, op->piece) + op->at);
    op->n_held++;
    int rc =
        is_spill(op) ? sw_arena_copy(arena, place, 0, bytes, true, &err) : sw_arena_make(arena, place, bytes, &err);
    if (!rc)
        rc = sw_arena_mark(connection_of(op), arena, &e, &err); /* also what still reads where a restore will write */
    if (rc < 0) {
        op->transfer->results[op->item].code = rc;
        sw_client_note_err(&op->transfer->error, &err);
    }
    const struct sw_wire_chunk chunk = {.at = op->at,
                                        .raw_bytes = bytes,
                                        .offset = e.offset + place * SW_PIECE_BYTES,
                                        .mem = arena->mem,
                                        .buffer = (uint16_t)op->piece};
    const bool sent = !rc && send_chunk(op, &chunk, e.mark, place);
    sw_mark_unref(e.mark);
    if (!sent)
        give_back(op, arena, place);
    op->at += sent ? bytes : 0;
    return sent;
}

/* Moves a piece that the daemon opens itself, at once. */
static bool move_whole(struct sw_staged *op, const struct sw_piece *piece) {
    const struct sw_wire_chunk chunk = {
        .raw_bytes = piece->bytes, .offset = piece->offset, .mem = piece->mem, .buffer = (uint16_t)op->piece};
    if (!send_chunk(op, &chunk, piece->mark, SW_ARENA_PIECES))
        return false;
    op->at = piece->bytes;
    return true;
}

static bool is_moved(const struct sw_staged *op, const struct sw_piece *piece) {
    return op->at >= (is_spill(op) || !piece->arena ? piece->bytes : piece->stored_bytes);
}

static bool may_send(const struct sw_staged *op) {
    const struct spillway *c = connection_of(op);
    return c->n_in_flight < c->max_in_flight && c->n_pieces < c->max_pieces;
}

/* An item none of whose buffers has bytes, or that is otherwise not begun when it is committed. */
static bool begin_empty(struct sw_staged *op) {
    struct sw_transfer *x = op->transfer;
    struct sw_err err = {0};
    struct spillway_ticket *t =
        sw_arrays_send(x, begin_packet(op, op->item), op->item, false, take_chunk, chunk_done, &err);
    if (!t) {
        sw_client_note_err(&x->error, &err);
        return false;
    }
    t->transfer.is_append = true;
    t->own.place = SW_ARENA_PIECES;
    x->items[op->item].is_open = true;
    return true;
}

/* Commits the builds from n_ended to the item `end`, all or none, unless each is by itself. */
static bool commit(struct sw_staged *op, uint32_t end) {
    struct sw_transfer *x = op->transfer;
    struct sw_err err = {0};
    while (op->n_ended < end) {
        if (!may_send(op))
            return false;
        const uint32_t first = op->n_ended;
        struct sw_arrays *a = sw_arrays_begin(x);
        for (uint32_t i = first; i < end && a->n_items < SW_PROTO_MAX_ITEMS; i++)
            sw_arrays_add_item(a, &x->items[i], SW_BUILD_COMMIT);
        struct spillway_ticket *t = sw_arrays_send(x, a, first, !sw_transfer_is_each(x), sw_transfer_take_results,
                                                   sw_transfer_packet_done, &err);
        if (!t) {
            sw_client_note_err(&x->error, &err);
            return false;
        }
        for (uint32_t i = 0; i < a->n_items; i++)
            x->items[first + i].is_open = false;
        op->n_ended += a->n_items;
    }
    return true;
}

/* Goes on with the next item; one that is by itself, and has all its bytes on their way, is committed. False: not now.
 */
static bool next_item(struct sw_staged *op) {
    struct sw_transfer *x = op->transfer;
    const bool each = sw_transfer_is_each(x);
    if (is_spill(op) && each && !x->results[op->item].code && !commit(op, op->item + 1) && !x->cancel_code)
        return false;
    if (each)
        op->n_ended = op->item + 1;
    op->item++;
    op->piece = 0;
    op->at = 0;
    return true;
}

/* Moves the next part of the call. False: not now, or there is none. */
static bool move_next(struct sw_staged *op, struct round *round) {
    const struct sw_transfer *x = op->transfer;
    if (must_stop(op) || op->item == n_items(op))
        return false;
    const uint32_t n_pieces = x->items[op->item].request->n_buffers;
    if (x->results[op->item].code) /* of one that is by itself: the others go on */
        return next_item(op);
    if (op->piece == n_pieces) {
        const bool is_begun = !is_spill(op) || x->items[op->item].number;
        return (is_begun || (may_send(op) && begin_empty(op))) && next_item(op);
    }
    struct sw_piece *piece = piece_at(op, op->item, op->piece);
    if (is_moved(op, piece)) {
        op->piece++;
        op->at = 0;
        return true;
    }
    if (!may_send(op))
        return false;
    return piece->arena ? move_copied(op, piece, round) : move_whole(op, piece);
}

/* ---- restore ----------------------------------------------------------------------------------------------------- */

static int check_buffers(const struct sw_staged *op, uint32_t item, uint32_t n, struct sw_err *err) {
    const struct sw_call_request *r = op->transfer->items[item].request;
    if (n != r->n_buffers)
        return sw_err_set(err, -SW_EINVAL, SW_SCOPE_REQUEST, "region %u:%u has %u buffers, %u were given",
                          r->region.slot, r->region.generation, n, r->n_buffers);
    for (uint32_t k = 0; k < n; k++) {
        const struct sw_piece *piece = piece_at(op, item, k);
        if (piece->stored_bytes > piece->bytes)
            return sw_err_set(err, -SW_ETOOSMALL, SW_SCOPE_REQUEST, "region has %llu bytes, the buffer %llu",
                              (unsigned long long)piece->stored_bytes, (unsigned long long)piece->bytes);
        if (piece->arena && piece->chunk_bytes > SW_ARENA_BYTES)
            return sw_err_set(err, -SW_ENOTSUP, SW_SCOPE_REQUEST,
                              "chunks of %llu bytes are longer than the staging arena of %llu",
                              (unsigned long long)piece->chunk_bytes, (unsigned long long)SW_ARENA_BYTES);
    }
    return 0;
}

/* The reads have begun: how long everything is. */
static bool take_begun(struct spillway_ticket *t, const struct sw_msg *msg) {
    struct sw_transfer *x = t->own.owner;
    const struct sw_msg_results *m = &msg->u.results;
    uint32_t next = 0;
    if (msg->header.type != SW_MSG_RESULTS || m->n_results != t->transfer.n_items)
        return false;
    for (uint32_t i = 0; i < m->n_results; i++) {
        const uint32_t item = t->own.part + i, n = m->results[i].n_buffers;
        struct spillway_result result;
        struct sw_err err = {0};
        if (!sw_results_read(m, i, &result) || n > m->n_buffers - next)
            return false;
        for (uint32_t k = 0; k < n && k < x->items[item].request->n_buffers; k++) {
            piece_at(x->staged, item, k)->stored_bytes = m->buffers[next + k].raw_bytes;
            piece_at(x->staged, item, k)->chunk_bytes = m->buffers[next + k].chunk_bytes;
        }
        next += n;
        x->results[item].size = sizeof x->results[item];
        x->results[item].region = x->items[item].request->region;
        x->items[item].is_open = !result.code;
        if (result.code) {
            x->results[item].code = result.code;
            if (!x->error.code)
                sw_client_result_error(&x->error, m, i);
        } else if (check_buffers(x->staged, item, n, &err) < 0) {
            x->results[item].code = err.code;
            sw_client_note_err(&x->error, &err);
        }
    }
    return true;
}

/* Has the daemon begin the next reads. False: not now. */
static bool begin_reads(struct sw_staged *op) {
    struct sw_transfer *x = op->transfer;
    struct sw_err err = {0};
    if (must_stop(op) || op->n_begun == n_items(op) || !may_send(op))
        return false;
    struct sw_arrays *a = sw_arrays_begin(x);
    for (uint32_t i = op->n_begun; i < n_items(op) && a->n_items < SW_PROTO_MAX_ITEMS / SPILLWAY_MAX_BUFFERS; i++) {
        x->items[i].number = sw_client_new_number(connection_of(op));
        sw_arrays_add_item(a, &x->items[i], SW_READ_BEGIN);
    }
    struct spillway_ticket *t =
        sw_arrays_send(x, a, op->n_begun, !sw_transfer_is_each(x), take_begun, sw_transfer_packet_done, &err);
    if (!t) {
        sw_client_note_err(&x->error, &err);
        return false;
    }
    t->transfer.is_append = true;
    op->n_begun += a->n_items;
    return true;
}

/* Copies restored pieces to the caller's memory; after an error they are of no use. */
static void copy_out(struct sw_staged *op, struct sw_arena *arena, struct round *round) {
    struct sw_transfer *x = op->transfer;
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

/* Whether the stream has got to the mark: it is then given back. */
static bool is_reached(struct sw_mark **mark, struct round *round) {
    if (*mark && !sw_mark_is_reached(*mark)) {
        come_back(round, POLL_GPU_NS);
        return false;
    }
    sw_mark_unref(*mark);
    *mark = NULL;
    return true;
}

/* The copied pieces' streams and arenas; the daemon waits for the others' streams. */
static bool is_ready(struct sw_staged *op, struct round *round) {
    struct sw_transfer *x = op->transfer;
    bool all = connection_of(op)->link == SW_LINK_UP;
    for (uint32_t i = 0; i < x->call->n_buffers; i++) {
        struct sw_piece *piece = &x->pieces[i];
        if (!piece->arena)
            continue;
        if (piece->arena->error.code)
            sw_client_note_error(&x->error, &piece->arena->error);
        all = is_reached(&piece->mark, round) && piece->arena->open && all;
    }
    return all || must_stop(op) || x->error.code;
}

/* Where the last copies have not been made yet, they are waited for: after the ticket, the memory is the caller's. */
static void begin_end(struct sw_staged *op) {
    struct sw_transfer *x = op->transfer;
    op->stage = STAGE_END;
    for (uint32_t i = 0; i < x->call->n_buffers; i++) {
        struct sw_piece *piece = &x->pieces[i];
        struct sw_export e = {0};
        struct sw_err err = {0};
        const bool is_first = i == 0 || x->pieces[i - 1].arena != piece->arena;
        if (!piece->arena)
            continue;
        sw_mark_unref(piece->mark); /* of the caller's stream: after an error it is not waited for */
        piece->mark = NULL;
        if (is_first && sw_arena_mark(connection_of(op), piece->arena, &e, &err) < 0)
            sw_client_note_err(&x->error, &err);
        piece->mark = e.mark;
    }
}

/* Ends reads, and builds that will not be committed. False: there was no memory for it, and some still are open. */
static bool end_open(struct sw_staged *op) {
    struct sw_item *items = op->transfer->items;
    const unsigned flags = is_spill(op) ? (unsigned)SW_BUILD_ABORT : SW_READ_END | SW_READ_KEEP;
    for (uint32_t first = 0, next = 0; first < n_items(op); first = next) {
        struct sw_arrays *a = sw_arrays_begin(op->transfer);
        for (; next < n_items(op) && a->n_items < SW_PROTO_MAX_ITEMS; next++)
            if (items[next].is_open)
                sw_arrays_add_item(a, &items[next], flags);
        if (!sw_arrays_send_unattended(op->transfer, a))
            return false;
        for (uint32_t i = first; i < next; i++)
            items[i].is_open = false;
    }
    return true;
}

/* A restore consumes by a request of its own, which is repeated if the connection is lost: its bytes are there. */
static void end(struct sw_staged *op, struct round *round) {
    if (!end_open(op)) {
        come_back(round, POLL_GPU_NS);
        return;
    }
    op->stage = STAGE_OVER;
    if (!is_spill(op) && !must_stop(op))
        sw_transfer_consume(op->transfer);
}

static bool is_all_back(const struct sw_staged *op) {
    return !op->transfer->n_in_flight && !op->n_held;
}

static void copy_all_out(struct sw_staged *op, struct round *round) {
    const struct sw_transfer *x = op->transfer;
    for (uint32_t i = 0; !is_spill(op) && op->n_held && i < x->call->n_buffers; i++)
        if (x->pieces[i].arena && (i == 0 || x->pieces[i - 1].arena != x->pieces[i].arena))
            copy_out(op, x->pieces[i].arena, round);
}

static void move(struct sw_staged *op, struct round *round) {
    copy_all_out(op, round);
    while (move_next(op, round))
        ;
    const bool all = op->item == n_items(op);
    if (!all && !must_stop(op))
        return;
    if (all && is_spill(op) && !must_stop(op) && !sw_transfer_is_each(op->transfer) && !commit(op, n_items(op)))
        return;
    if (is_spill(op) && all && !must_stop(op))
        begin_end(op); /* the commits' replies are waited for by the transfer */
    else if (is_all_back(op))
        begin_end(op);
}

static bool are_copies_made(struct sw_staged *op, struct round *round) {
    struct sw_transfer *x = op->transfer;
    bool all = true;
    for (uint32_t i = 0; i < x->call->n_buffers; i++)
        if (x->pieces[i].arena)
            all = is_reached(&x->pieces[i].mark, round) && all;
    return all;
}

static void advance(struct sw_staged *op, struct round *round) {
    if (op->stage == STAGE_READY && is_ready(op, round))
        op->stage = is_spill(op) ? STAGE_MOVE : STAGE_BEGIN;
    while (op->stage == STAGE_BEGIN && begin_reads(op))
        ;
    if (op->stage == STAGE_BEGIN && !op->transfer->n_in_flight && (op->n_begun == n_items(op) || must_stop(op)))
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
        struct sw_staged *op = SW_CONTAINER_OF(n, struct spillway_ticket, node)->call->staged;
        if (op && op->stage != STAGE_OVER)
            advance(op, &round);
    }
    if (sw_arenas_freed(&s->arenas)) /* and no packet may follow that tells when to go on */
        come_back(&round, AT_ONCE_NS);
    wake_after(c, round.wake_ns);
}

bool sw_staged_has_ended(const struct sw_staged *op) {
    return op->stage == STAGE_OVER;
}

void sw_staged_cancel(struct sw_staged *op) {
    (void)end_open(op); /* or later, with the call */
    wake_after(connection_of(op), AT_ONCE_NS);
}

/* ---- beginning and end ------------------------------------------------------------------------------------------- */

int sw_staged_new(struct sw_staged **ret, struct sw_transfer *x, struct sw_err *err) {
    struct spillway *c = x->ticket->connection;
    const int rc = c->staging ? 0 : staging_new(c, err);
    if (rc < 0)
        return rc;
    *ret = sw_alloc(sizeof **ret);
    if (!*ret)
        return sw_err_set(err, -SW_ENOMEM, SW_SCOPE_REQUEST, "no memory for a transfer in pieces");
    (*ret)->transfer = x;
    return 0;
}

int sw_staged_prepare(struct sw_staged *op, struct sw_piece *piece, const struct spillway_buffer *buffer,
                      struct CUstream_st *stream, struct sw_err *err) {
    struct spillway *c = connection_of(op);
    struct sw_export e = {.kind = SW_MEM_CUDA_IPC};
    int gpu = SW_ARENA_HOST;
    const int place = sw_cuda_locate(&c->cuda, buffer->data, buffer->bytes, &gpu, err);
    int rc = place < 0 ? place : 0;
    if (!rc && place != SW_CUDA_GPU) {
        gpu = SW_ARENA_HOST;
        rc = sw_host_check(buffer->data, buffer->bytes, !is_spill(op), err);
    }
    if (!rc && place != SW_CUDA_UNKNOWN)
        rc = sw_export_order(&e, &c->cuda, NULL, buffer->data, stream, err);
    if (!rc)
        rc = sw_arena_get(c, &c->staging->arenas, gpu, buffer->data, &piece->arena, err);
    if (!rc) {
        piece->arena->n_users++;
        piece->mem = piece->arena->mem;
        piece->mark = e.mark;
        e.mark = NULL;
    }
    sw_mark_unref(e.mark);
    return rc;
}

void sw_staged_free(struct sw_staged *op) {
    for (uint32_t i = 0; op && op->transfer->pieces && op->transfer->call && i < op->transfer->call->n_buffers; i++)
        if (op->transfer->pieces[i].arena)
            op->transfer->pieces[i].arena->n_users--;
    sw_free(op);
}

static bool is_settled(const void *arg) {
    const struct sw_arena *arena = arg;
    return arena->open || arena->error.code;
}

/* A mark in the default stream of the memory's GPU makes all that marks need. */
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
    int gpu = SW_ARENA_HOST;
    int rc = c->staging ? 0 : staging_new(c, err);
    const int place = rc < 0 ? rc : sw_cuda_locate(&c->cuda, memory, 1, &gpu, err);
    if (place < 0)
        return place;
    if (place == SW_CUDA_GPU)
        rc = prepare_marks(c, memory, err);
    else
        rc = sw_host_check(memory, 1, false, err);
    if (!rc)
        rc = sw_arena_get(c, &c->staging->arenas, place == SW_CUDA_GPU ? gpu : SW_ARENA_HOST, memory, &arena, err);
    for (unsigned i = 0; !rc && i < SW_ARENA_PIECES; i++)
        rc = sw_arena_make(arena, i, SW_PIECE_BYTES, err);
    if (rc < 0)
        return rc;
    arena->n_users++; /* so that it stays meanwhile */
    rc = sw_client_wait_answer(c, is_settled, arena, c->timeout_ms, "MEM_OPEN", err);
    arena->n_users--;
    if (!rc && arena->error.code)
        rc = sw_err_set(err, arena->error.code, SW_SCOPE_REQUEST, "%s", arena->error.text);
    return rc;
}

/* Open builds and reads have gone with the daemon; a call that has begun none waits. */
static void fail_begun(struct sw_staged *op) {
    struct sw_transfer *x = op->transfer;
    struct sw_err err = {0};
    bool has_begun = false;
    for (uint32_t i = 0; i < n_items(op); i++) {
        has_begun |= x->items[i].is_open;
        if (x->items[i].is_open && !x->results[i].code)
            x->results[i].code = -SW_ERESTARTED;
        x->items[i].is_open = false;
    }
    if (!has_begun)
        return;
    (void)sw_err_set(&err, -SW_ERESTARTED, SW_SCOPE_REQUEST,
                     is_spill(op) ? "restarted: nothing was stored, repeat the spill"
                                  : "restarted: still stored, repeat the restore");
    sw_client_note_err(&x->error, &err);
}

void sw_staging_reopen(struct spillway *c) {
    if (!c->staging)
        return;
    sw_arenas_reopen(c, &c->staging->arenas);
    for (struct sw_list *n = c->transfers.next; n != &c->transfers; n = n->next) {
        struct sw_staged *op = SW_CONTAINER_OF(n, struct spillway_ticket, node)->call->staged;
        if (op && op->stage != STAGE_OVER)
            fail_begun(op);
    }
}

void sw_staging_free_unused(struct spillway *c) {
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
