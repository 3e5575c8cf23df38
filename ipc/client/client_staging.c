/* client_staging.c - transfers in pieces: through an arena, or from a composite straight into the caller's memory.
 *
 * The places of an arena are given out in the order of the transfers, so that each gets on. Memory of the host is
 * copied inside the library's calls, one piece a call. Life of a transfer:
 *
 *   ASK     of a region that the daemon has in one piece, for memory longer than the arena: how long it is
 *   READY?  until the daemon has mapped the memory, and the caller's stream is where it was at the call
 *   MOVE    several pieces on their way at a time; the first error stops it once those are back
 *   END     until the last copies are made, or the daemon has closed the caller's memory; then the ticket is done
 */
#include "ipc/client/client_staging.h"
#include "ipc/client/client_arena.h"
#include "ipc/client/client_transfer.h"

#include "base/alloc.h"
#include "base/descriptors.h"
#include <errno.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <unistd.h>

enum { POLL_GPU_NS = 100000, AT_ONCE_NS = 1 };

enum stage { STAGE_READY, STAGE_ASK, STAGE_MOVE, STAGE_END };

struct sw_staged {
    struct spillway_ticket *ticket; /* the caller's */
    struct sw_arena *arena;         /* NULL: straight into the caller's memory, or not known yet (ASK) */
    int gpu;                        /* of the arena */
    struct sw_composite *composite; /* NULL: there is none, see error; without an id: one region of the daemon */
    uint8_t *data;
    uint64_t bytes;
    uint16_t value_type; /* spill */
    bool keep;
    enum stage stage;
    struct sw_mark *mark;                    /* in the caller's stream; in the end behind the arena's last copy */
    uint32_t n_started, n_in_flight, n_held; /* pieces; of those, in the daemon; places */
    /* Straight: */
    uint32_t mem;
    struct sw_export range; /* kind and offset of data[0] */
    bool mem_own;           /* opened for this transfer, to be closed */
    bool mem_open;

    struct spillway_error error; /* the first */
};

struct sw_staging {
    struct sw_list running; /* spillway_ticket.node, oldest first */
    struct sw_list arenas;  /* sw_arena.node */
    uint32_t n_running;
    int timer;
    bool timer_set;
};

bool sw_staging_is_running(const struct spillway *c) {
    return c->staging && c->staging->n_running > 0;
}

static struct sw_staged *staged_of(struct sw_list *node) {
    return SW_CONTAINER_OF(node, struct spillway_ticket, node)->staged;
}

static bool is_spill(const struct sw_staged *op) {
    return op->ticket->operation == SW_MSG_BUILD;
}

/* ---- staging ----------------------------------------------------------------------------------------------------- */

static int staging_new(struct spillway *c, struct sw_err *err) {
    struct epoll_event event = {.events = EPOLLIN};
    struct sw_staging *s = sw_alloc(sizeof *s);
    if (!s)
        return sw_err_set(err, -SW_ENOMEM, SW_SCOPE_REQUEST, "no memory for transfers in pieces");
    sw_list_init(&s->running);
    sw_list_init(&s->arenas);
    s->timer = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
    if (s->timer < 0 || epoll_ctl(c->epoll, EPOLL_CTL_ADD, s->timer, &event) < 0) {
        const int e = errno;
        if (s->timer >= 0)
            (void)close(s->timer);
        sw_free(s);
        return sw_err_set(err, sw_is_out_of_descriptors(e) ? -SW_ELIMIT : sw_err_from_errno(e), SW_SCOPE_REQUEST,
                          "timer: %s", strerror(e));
    }
    c->staging = s;
    return 0;
}

int sw_staging_fd(const struct spillway *c) {
    return c->staging ? c->staging->timer : -1;
}

/* Has sw_staging_advance() called after so long; 0: not before something else happens. */
static void wake_after(struct sw_staging *s, long ns) {
    const struct itimerspec time = {.it_value.tv_nsec = ns};
    if (ns || s->timer_set)
        (void)timerfd_settime(s->timer, 0, &time, NULL); /* also makes it unreadable again */
    s->timer_set = ns != 0;
}

/* ---- pieces ------------------------------------------------------------------------------------------------------ */

/* Between a place, from `at` on, and the caller's memory; on a GPU it is only queued. */
static int copy(struct sw_staged *op, unsigned place, uint64_t at, uint64_t bytes, struct sw_err *err) {
    return sw_arena_copy(op->arena, place, at, op->data, bytes, is_spill(op), err);
}

static void give_back(struct sw_staged *op, unsigned first) {
    sw_arena_give_back(op->arena, first);
    op->n_held--;
}

static uint64_t part_bytes(const struct sw_staged *op, uint32_t part) {
    const uint64_t left = op->composite->raw_bytes - part * SW_PIECE_BYTES;
    return op->composite->n_parts == 1 || left < SW_PIECE_BYTES ? left : SW_PIECE_BYTES;
}

static void add_result(struct sw_staged *op, const struct spillway_result *part) {
    struct spillway_result *sum = op->ticket->result;
    sum->raw_bytes += part->raw_bytes;
    sum->stored_bytes += part->stored_bytes;
    sum->service_us += part->service_us;
    sw_client_combine(sum->codec, sizeof sum->codec, part->codec);
    sw_client_combine(sum->tier, sizeof sum->tier, part->tier);
    sw_client_combine(sum->reason, sizeof sum->reason, part->reason);
    sw_client_combine(sum->coder, sizeof sum->coder, part->coder);
}

/* The daemon has answered. What is to be sent because of it, is sent by sw_staging_advance(). */
static void part_done(struct spillway_ticket *t) {
    struct sw_staged *op = t->own.owner;
    struct sw_composite *composite = op->composite;
    const bool lies =
        !t->error.code && sw_region_is_composite(composite->id) && t->result->raw_bytes != t->transfer.bytes;
    struct sw_err err = {0};
    op->n_in_flight--;
    if (lies) {
        (void)sw_err_set(&err, -SW_EPROTO, SW_SCOPE_REGION, "piece %u of region %u:%u came back with another length",
                         t->own.part, composite->id.slot, composite->id.generation);
        sw_client_note_err(&op->error, &err);
    } else if (t->error.code) {
        sw_client_note_error(&op->error, &t->error);
    } else {
        add_result(op, t->result);
        if (is_spill(op))
            composite->parts[t->own.part] = t->result->region;
    }
    if (!op->arena)
        return;
    struct sw_place *place = &op->arena->places[t->own.place];
    place->arrived = !op->error.code && !is_spill(op);
    place->arrived_bytes = t->result->raw_bytes;
    if (!place->arrived)
        give_back(op, t->own.place);
}

/* Asks the daemon to move one piece. e: the memory; its mark moves on. */
static int send_part(struct spillway *c, struct sw_staged *op, uint32_t mem, unsigned place, struct sw_export *e,
                     struct sw_err *err) {
    const struct sw_one one = {.is_spill = is_spill(op),
                               .keep = true,
                               .region = op->composite->parts[op->n_started],
                               .type = op->value_type,
                               .mem = mem,
                               .offset = e->offset,
                               .bytes = part_bytes(op, op->n_started),
                               .mark = e->mark,
                               .on_done = part_done,
                               .owner = op};
    struct spillway_ticket *t = sw_client_send_one(c, &one, err);
    if (!t)
        return err->code;
    e->mark = NULL;
    t->own.part = op->n_started;
    t->own.place = place;
    op->n_started++;
    op->n_in_flight++;
    return 0;
}

/* ---- a transfer, step by step ------------------------------------------------------------------------------------ */

/* What a round of sw_staging_advance() has to give, and what it finds. */
struct round {
    unsigned copies; /* of pieces of the host's memory, still allowed */
    long wake_ns;    /* 0: packets tell when to go on */
};

static void come_back(struct round *round, long ns) {
    if (!round->wake_ns || ns < round->wake_ns)
        round->wake_ns = ns;
}

/* Whether the stream has got to the mark: it is then given back. */
static bool reached(struct sw_staged *op, struct round *round) {
    if (op->mark && !sw_mark_is_reached(op->mark)) {
        come_back(round, POLL_GPU_NS);
        return false;
    }
    sw_mark_unref(op->mark);
    op->mark = NULL;
    return true;
}

static bool is_ready(struct sw_staged *op, struct round *round) {
    if (op->error.code)
        return true;
    if (!reached(op, round))
        return false;
    if (!op->arena)
        return op->mem_open || op->error.code;
    if (op->arena->error.code)
        sw_client_note_error(&op->error, &op->arena->error);
    return op->arena->open || op->error.code;
}

/* False: not now; there is a copy to make first. */
static bool may_copy(const struct sw_staged *op, struct round *round) {
    if (op->arena->gpu != SW_ARENA_HOST)
        return true;
    if (!round->copies) {
        come_back(round, AT_ONCE_NS);
        return false;
    }
    round->copies--;
    return true;
}

static uint64_t at_most_a_piece(uint64_t bytes) {
    return bytes < SW_PIECE_BYTES ? bytes : SW_PIECE_BYTES;
}

/* Copies restored pieces to the caller's memory; after an error they are of no use. */
static void copy_out(struct sw_staged *op, struct round *round) {
    struct sw_err err = {0};
    for (unsigned i = 0; op->arena && i < SW_ARENA_PIECES; i++) {
        struct sw_place *place = &op->arena->places[i];
        if (place->user != op || !place->arrived)
            continue;
        do {
            const uint64_t left = place->arrived_bytes - place->copied_bytes, n = at_most_a_piece(left);
            if (!op->error.code && !may_copy(op, round))
                return;
            if (!op->error.code && copy(op, i, place->copied_bytes, n, &err) < 0)
                sw_client_note_err(&op->error, &err);
            place->copied_bytes += n;
        } while (!op->error.code && place->copied_bytes < place->arrived_bytes);
        give_back(op, i);
    }
}

/* Whether the arena of its own has been made; makes a piece of it, like a copy. */
static bool is_made(struct sw_staged *op, struct round *round) {
    struct sw_err err = {0};
    if (!may_copy(op, round))
        return false;
    const int rc = sw_arena_make_next(op->arena, &err);
    if (rc < 0)
        sw_client_note_err(&op->error, &err);
    else if (!rc)
        come_back(round, AT_ONCE_NS);
    return rc > 0;
}

/* Starts one piece through the arena. False: none can be started now. */
static bool start_through_arena(struct spillway *c, struct sw_staged *op, struct round *round) {
    const uint64_t bytes = part_bytes(op, op->n_started);
    struct sw_arena *arena = op->arena;
    const unsigned n = bytes && !arena->own ? (unsigned)((bytes + SW_PIECE_BYTES - 1) / SW_PIECE_BYTES) : 1;
    if (arena->own && !is_made(op, round))
        return false;
    const int first = arena->wanted ? -1 : sw_arena_find_places(arena, n);
    struct sw_export e = {0};
    struct sw_err err = {0};
    if (first < 0) {
        arena->wanted = true;
        return false;
    }
    if (is_spill(op) && !may_copy(op, round)) {
        arena->wanted = true;
        return false;
    }
    const unsigned place = (unsigned)first;
    sw_arena_take(arena, place, n, op, op->n_started * SW_PIECE_BYTES);
    op->n_held++;
    int rc = is_spill(op) ? copy(op, place, 0, bytes, &err) : sw_arena_make(arena, place, bytes, &err);
    if (!rc)
        rc = sw_arena_mark(c, arena, &e, &err); /* also those that still read what a restore will write to */
    e.offset += place * SW_PIECE_BYTES;
    if (!rc)
        rc = send_part(c, op, arena->mem, place, &e, &err);
    sw_mark_unref(e.mark);
    if (rc < 0) {
        give_back(op, place);
        sw_client_note_err(&op->error, &err);
    }
    return !rc;
}

static bool start_straight(struct spillway *c, struct sw_staged *op) {
    struct sw_export e = op->range;
    struct sw_err err = {0};
    if (op->n_in_flight >= SW_ARENA_PIECES)
        return false;
    const uint64_t at = op->n_started * SW_PIECE_BYTES;
    e.offset += at;
    if (sw_export_make_pages(&e, op->data + at, part_bytes(op, op->n_started), &err) == 0 &&
        send_part(c, op, op->mem, 0, &e, &err) == 0)
        return true;
    sw_client_note_err(&op->error, &err);
    return false;
}

/* True when all pieces are there, or the transfer has failed, and nothing is on its way. */
static bool move(struct spillway *c, struct sw_staged *op, struct round *round) {
    copy_out(op, round);
    while (!op->error.code && op->n_started < op->composite->n_parts && c->n_in_flight < c->max_in_flight &&
           (op->arena ? start_through_arena(c, op, round) : start_straight(c, op)))
        ;
    return !op->n_in_flight && !op->n_held && (op->error.code || op->n_started == op->composite->n_parts);
}

static void mem_closed(struct spillway_ticket *t) {
    struct sw_staged *op = t->own.owner;
    op->n_in_flight--;
    op->mem_own = false;
}

/* Has the memory closed that was opened for this transfer. True: that is done. */
static bool close_own(struct spillway *c, struct sw_staged *op, struct round *round) {
    struct sw_msg msg = {.header.type = SW_MSG_MEM_CLOSE, .u.mem_close.mem = op->mem};
    struct sw_list group;
    if (!op->mem_own || (c->lost.code && !op->n_in_flight))
        return true;
    if (op->n_in_flight)
        return false;
    sw_list_init(&group);
    struct spillway_ticket *t = sw_ticket_new(c, SW_MSG_MEM_CLOSE, NULL);
    if (!t || !sw_packet_new(&group, &msg, NULL)) {
        sw_free(t);
        come_back(round, POLL_GPU_NS); /* until there is memory for it */
        return false;
    }
    t->own.on_done = mem_closed;
    t->own.owner = op;
    sw_client_submit(t, &group);
    op->n_in_flight++;
    return false;
}

/* Where the last copies have not been made yet, they are waited for: after the ticket, the memory is the caller's. */
static void begin_end(struct spillway *c, struct sw_staged *op) {
    struct sw_export e = {0};
    struct sw_err err = {0};
    op->stage = STAGE_END;
    sw_mark_unref(op->mark); /* of the caller's stream: after an error it is not waited for */
    op->mark = NULL;
    if (!op->arena)
        return;
    if (sw_arena_mark(c, op->arena, &e, &err) < 0)
        sw_client_note_err(&op->error, &err);
    op->mark = e.mark;
}

static void staged_free(struct sw_staged *op) {
    sw_mark_unref(op->mark);
    if (op->composite && !sw_region_is_composite(op->composite->id))
        sw_free(op->composite);
    if (op->arena)
        op->arena->n_users--;
    sw_free(op);
}

/* A spill that failed leaves nothing, a restore that did not keep, neither. */
static void finish(struct spillway *c, struct sw_staged *op) {
    struct spillway_ticket *t = op->ticket;
    struct sw_composite *composite = op->composite;
    t->error = op->error;
    t->result->code = op->error.code;
    if (composite) {
        t->result->region = sw_region_is_composite(composite->id) ? composite->id : composite->parts[0];
        composite->busy = false;
        if (is_spill(op) ? op->error.code != 0 : !op->error.code && !op->keep) {
            (is_spill(op) ? sw_composite_discard : sw_composite_consume)(c, composite);
            op->composite = NULL;
        }
    }
    c->staging->n_running--;
    t->staged = NULL;
    staged_free(op);
    sw_ticket_complete(t);
}

/* The answer is there: an arena of its own for a region that the connection's is too short for. */
static void take_arena(struct spillway *c, struct sw_staged *op) {
    const uint64_t bytes = op->composite->raw_bytes;
    struct sw_list *arenas = &c->staging->arenas;
    struct sw_err err = {0};
    int rc = 0;
    if (bytes > op->bytes)
        rc = sw_err_set(&err, -SW_ETOOSMALL, SW_SCOPE_REQUEST, "region has %llu bytes, the buffer %llu",
                        (unsigned long long)bytes, (unsigned long long)op->bytes);
    else if (bytes <= SW_ARENA_BYTES)
        rc = sw_arena_get(c, arenas, op->gpu, op->data, &op->arena, &err);
    else
        rc = sw_arena_get_own(c, arenas, op->gpu, op->data, bytes, &op->arena, &err);
    if (rc < 0) {
        sw_client_note_err(&op->error, &err);
        return;
    }
    op->arena->n_users++;
    op->mem_own = op->arena->own; /* to be closed in the end */
    op->mem = op->arena->mem;
}

static void advance(struct spillway *c, struct sw_staged *op, struct round *round) {
    if (c->lost.code)
        sw_client_note_error(&op->error, &c->lost);
    if (op->stage == STAGE_ASK && !op->n_in_flight) {
        if (!op->error.code)
            take_arena(c, op);
        op->stage = STAGE_READY;
    }
    if (op->stage == STAGE_READY && is_ready(op, round))
        op->stage = STAGE_MOVE;
    if (op->stage == STAGE_MOVE && move(c, op, round))
        begin_end(c, op);
    if (op->stage == STAGE_END && reached(op, round) && close_own(c, op, round))
        finish(c, op);
}

void sw_staging_advance(struct spillway *c, unsigned copies) {
    struct sw_staging *s = c->staging;
    struct round round = {.copies = copies};
    if (!s)
        return;
    sw_arenas_begin_round(&s->arenas);
    for (struct sw_list *n = s->running.next, *next; n != &s->running; n = next) {
        next = n->next;
        advance(c, staged_of(n), &round);
    }
    if (sw_arenas_freed(&s->arenas)) /* and no packet may follow that tells when to go on */
        come_back(&round, AT_ONCE_NS);
    sw_arenas_free_unused(c, &s->arenas);
    wake_after(s, round.wake_ns);
}

void sw_staging_abandon(struct sw_staged *op) {
    if (is_spill(op))
        sw_staging_cancel(op, -SW_ECANCELED, "nobody waits for the spill any more");
}

void sw_staging_cancel(struct sw_staged *op, int code, const char *text) {
    struct sw_err err = {0};
    (void)sw_err_set(&err, code, SW_SCOPE_REQUEST, "%s", text);
    sw_client_note_err(&op->error, &err);
    wake_after(op->ticket->connection->staging, AT_ONCE_NS);
}

/* ---- beginning and end ------------------------------------------------------------------------------------------- */

/* A spill's composite is entered at once, so that nothing can fail in the end. */
static int composite_to_spill(struct spillway *c, struct sw_staged *op, struct sw_err *err) {
    const uint64_t n = op->bytes ? (op->bytes + SW_PIECE_BYTES - 1) / SW_PIECE_BYTES : 1;
    int rc = n > UINT32_MAX ? sw_err_set(err, -SW_ERANGE, SW_SCOPE_REQUEST, "memory of that length is none")
                            : sw_composite_new(&op->composite, op->bytes, (uint32_t)n, err);
    if (!rc)
        rc = sw_composite_enter(c, op->composite, err);
    return rc;
}

/* What is wrong with a region is told by the ticket, as the daemon would. */
static void composite_to_restore(struct spillway *c, struct sw_staged *op, struct spillway_region id) {
    struct sw_err err = {0};
    struct sw_composite *composite = sw_composite_find(c, id, &err);
    if (composite && composite->busy)
        (void)sw_err_set(&err, -SW_EBUSY, SW_SCOPE_REQUEST, "region %u:%u is in use by another operation", id.slot,
                         id.generation);
    else if (composite && composite->raw_bytes > op->bytes)
        (void)sw_err_set(&err, -SW_ETOOSMALL, SW_SCOPE_REQUEST, "region has %llu bytes, the buffer %llu",
                         (unsigned long long)composite->raw_bytes, (unsigned long long)op->bytes);
    if (!composite || err.code) {
        sw_client_note_err(&op->error, &err);
        return;
    }
    composite->busy = true;
    op->composite = composite;
}

/* One region of the daemon, of a length that is not known: what is offered for it is all that there is. */
static int single_to_restore(struct sw_staged *op, struct spillway_region region, struct sw_err *err) {
    const int rc = sw_composite_new(&op->composite, op->bytes, 1, err);
    if (!rc)
        op->composite->parts[0] = region;
    return rc;
}

static void answered(struct spillway_ticket *t) {
    struct sw_staged *op = t->own.owner;
    op->n_in_flight--;
    if (t->error.code)
        sw_client_note_error(&op->error, &t->error);
}

static bool take_length(struct spillway_ticket *t, const struct sw_msg *msg) {
    struct sw_staged *op = t->own.owner;
    if (msg->header.type != SW_MSG_DETAILS || msg->u.details.n_results != 1)
        return false;
    op->composite->raw_bytes = msg->u.details.results[0].raw_bytes;
    return true;
}

/* The memory is longer than the arena: is the region, too? */
static int ask_length(struct spillway *c, struct sw_staged *op, struct sw_err *err) {
    const struct spillway_region region = op->composite->parts[0];
    const struct sw_msg msg = {.header.type = SW_MSG_INSPECT,
                               .u.inspect = {.slot = region.slot, .gen = region.generation}};
    struct spillway_ticket *t = sw_client_ask(c, &msg, take_length, NULL, err);
    if (!t)
        return err->code;
    t->own.on_done = answered;
    t->own.owner = op;
    op->stage = STAGE_ASK;
    op->n_in_flight++;
    return 0;
}

static void straight_opened(struct spillway_ticket *t) {
    struct sw_staged *op = t->own.owner;
    op->n_in_flight--;
    op->mem_open = !t->error.code;
    if (t->error.code)
        sw_client_note_error(&op->error, &t->error);
}

/* Finds out whether the memory of a restore can be handed over; then no arena is needed. errors: those of
 * sw_export_find(). */
static int go_straight(struct spillway *c, struct sw_staged *op, struct CUstream_st *stream, struct sw_err *err) {
    struct sw_export e = {0};
    const struct sw_registered *registered = sw_registered_find(c, op->data, op->bytes, &e);
    int rc = registered ? 0 : sw_export_find(&e, &c->cuda, op->data, op->bytes, err);
    if (!rc)
        rc = sw_export_order(&e, &c->cuda, NULL, op->data, stream, err);
    if (!rc) {
        op->range = (struct sw_export){.kind = e.kind, .offset = e.offset};
        op->mem = registered ? registered->mem : sw_client_new_mem(c);
        op->mem_open = registered != NULL;
        op->mem_own = !registered;
        op->mark = e.mark;
        e.mark = NULL;
        struct spillway_ticket *t = registered ? NULL : sw_client_open_memory(c, op->mem, &e, err);
        if (t) {
            t->own.on_done = straight_opened;
            t->own.owner = op;
            op->n_in_flight++;
        } else if (!registered) {
            rc = -SW_ENOMEM;
        }
    }
    sw_export_fini(&e);
    return rc;
}

static int go_through_arena(struct spillway *c, struct sw_staged *op, struct CUstream_st *stream, struct sw_err *err) {
    struct sw_export e = {.kind = SW_MEM_CUDA_IPC};
    int gpu = SW_ARENA_HOST;
    const int place = sw_cuda_locate(&c->cuda, op->data, op->bytes, &gpu, err);
    int rc = place < 0 ? place : 0;
    if (!rc && place != SW_CUDA_GPU) {
        gpu = SW_ARENA_HOST;
        rc = sw_host_check(op->data, op->bytes, !is_spill(op), err);
    }
    if (!rc && place != SW_CUDA_UNKNOWN)
        rc = sw_export_order(&e, &c->cuda, NULL, op->data, stream, err);
    op->mark = e.mark;
    op->gpu = gpu;
    if (!rc && !is_spill(op) && !sw_region_is_composite(op->composite->id) && op->bytes > SW_ARENA_BYTES)
        return ask_length(c, op, err);
    if (!rc)
        rc = sw_arena_get(c, &c->staging->arenas, gpu, op->data, &op->arena, err);
    if (op->arena)
        op->arena->n_users++;
    return rc;
}

/* Fills in what the transfer is about. errors: the transfer is then to be freed. */
static int prepare(struct spillway *c, struct sw_staged *op, const struct sw_staging_request *r, struct sw_err *err) {
    const bool whole = !sw_region_is_composite(r->region);
    int rc = 0;
    if (is_spill(op))
        rc = composite_to_spill(c, op, err);
    else if (whole)
        rc = single_to_restore(op, r->region, err);
    else
        composite_to_restore(c, op, r->region);
    if (rc < 0 || op->error.code)
        return rc;
    rc = whole ? -SW_EMEMKIND : go_straight(c, op, r->stream, err);
    return sw_export_is_copied(rc) ? go_through_arena(c, op, r->stream, err) : rc;
}

/* Undoes prepare() after an error. */
static void unprepare(struct spillway *c, struct sw_staged *op) {
    struct sw_composite *composite = op->composite;
    if (composite)
        composite->busy = false;
    if (composite && is_spill(op)) {
        op->composite = NULL;
        sw_composite_discard(c, composite);
    }
    staged_free(op);
}

/* A transfer with its ticket, on no list yet. errors (NULL): -SW_ENOMEM. */
static struct sw_staged *staged_new(struct spillway *c, const struct sw_staging_request *r, struct sw_err *err) {
    struct spillway_ticket *t = sw_ticket_new(c, r->operation, err);
    struct sw_staged *op = t ? sw_alloc(sizeof *op) : NULL;
    struct spillway_result *result = sw_alloc(sizeof *result);
    if (!op || !result) {
        (void)sw_err_set(err, -SW_ENOMEM, SW_SCOPE_REQUEST, "no memory for a transfer in pieces");
        sw_free(result);
        sw_free(op);
        sw_free(t);
        return NULL;
    }
    t->result = result;
    t->user = r->user;
    *op = (struct sw_staged){
        .ticket = t, .data = r->data, .bytes = r->bytes, .value_type = r->value_type, .keep = r->keep};
    t->transfer.bytes = r->bytes;
    t->staged = op;
    return op;
}

int sw_staging_start(struct spillway *c, const struct sw_staging_request *request, struct spillway_ticket **ret,
                     struct spillway_error *error) {
    struct sw_err err = {0};
    if (c->staging && c->staging->n_running >= c->max_in_flight && sw_client_pump(c) < 0)
        return sw_client_copy_error(error, &c->lost);
    if (!c->staging)
        (void)staging_new(c, &err);
    if (c->staging && c->staging->n_running >= c->max_in_flight)
        (void)sw_client_too_many(c->staging->n_running, &err);
    struct sw_staged *op = err.code ? NULL : staged_new(c, request, &err);
    if (!op || !c->staging)
        return sw_client_report(error, &err);
    struct spillway_ticket *t = op->ticket;
    if (prepare(c, op, request, &err) < 0) {
        unprepare(c, op);
        sw_free(t->result);
        sw_free(t);
        return sw_client_report(error, &err);
    }
    c->staging->n_running++;
    sw_list_append(&c->staging->running, &t->node);
    *ret = t;
    sw_staging_advance(c, 0); /* the caller's thread copies when it waits or dispatches */
    err.code = 0;             /* what prepare() found on its way is no error */
    return sw_client_report(error, &err);
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

void sw_staging_reopen(struct spillway *c) {
    struct sw_staging *s = c->staging;
    struct sw_err err = {0};
    if (!s)
        return;
    sw_arenas_reopen(c, &s->arenas);
    (void)sw_err_set(&err, -SW_ERESTARTED, SW_SCOPE_REQUEST, "restarted: still stored, repeat the restore");
    for (struct sw_list *n = s->running.next; n != &s->running; n = n->next)
        if (staged_of(n)->mem_own && staged_of(n)->mem_open) /* else it is being opened, or that has failed by itself */
            sw_client_note_err(&staged_of(n)->error, &err);
}

bool sw_staging_uses(const struct spillway *c, uint32_t mem) {
    const struct sw_staging *s = c->staging;
    if (!s)
        return false;
    if (sw_arenas_use(&s->arenas, mem))
        return true;
    for (struct sw_list *n = s->running.next; n != &s->running; n = n->next)
        if (!staged_of(n)->arena && staged_of(n)->mem == mem)
            return true;
    return false;
}

void sw_staging_free(struct spillway *c) {
    struct sw_staging *s = c->staging;
    if (!s)
        return;
    while (!sw_list_empty(&s->running)) {
        struct spillway_ticket *t = SW_CONTAINER_OF(s->running.next, struct spillway_ticket, node);
        staged_free(t->staged);
        sw_ticket_destroy(t);
    }
    sw_arenas_free(&s->arenas);
    (void)close(s->timer);
    sw_free(s);
}
