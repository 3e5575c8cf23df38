#include "tests/bench/spillway_bench/session.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "ipc/spillway.h"
#include "tests/bench/spillway_bench/columns.h"
#include "tests/lib/content.h"
#include <math.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>

enum { OTHER_BYTE = 0xdb }; /* so that memory that still holds the old bytes proves nothing */
enum { BACKOFF_US = 10000 };
static const uint64_t longest_wait_us = 200000; /* then looks whether it is to stop */
static const uint64_t piece_bytes = 4 << 20;    /* filled or compared between two looks at the connection */

/* A region, and what is in it. */
struct parked {
    struct spillway_region region;
    unsigned column;
    uint64_t offset, bytes;
    uint64_t restores; /* still to come */
};

enum slot_state { SLOT_IDLE, SLOT_RUNNING, SLOT_ENDED };

struct slot {
    struct sw_buffer *memory;
    enum slot_state state;
    enum sw_bench_op op;
    struct parked content; /* of the operation */
    struct spillway_ticket *ticket;
    uint64_t not_before_us, start_us, end_us;
    int rc;
    struct spillway_result result;
    struct spillway_error error;
};

struct sw_bench_session {
    struct sw_bench_run *run;
    unsigned number;
    pthread_t thread;
    struct spillway *connection;
    struct slot *slots;    /* [options.in_flight] */
    struct parked *parked; /* a ring */
    size_t first_parked, n_parked, room;
    uint64_t random;
    uint64_t n_begun, n_spilled;
    bool full;   /* the tier was: restores first */
    bool failed; /* something went wrong that must not: no more spills */
    bool lost;   /* nothing more can be done */
    struct sw_bench_figures figures;
};

static void say(const struct sw_bench_session *s, const char *what, const char *name, const char *text) {
    (void)fprintf(stderr, "spillway-bench: session %u: %s: %s: %s\n", s->number, what, name, text);
}

static const char *op_name(enum sw_bench_op op) {
    return op == SW_BENCH_SPILL ? "spill" : "restore";
}

/* ---- what is parked ---------------------------------------------------------------------------------------------- */

static void park(struct sw_bench_session *s, const struct parked *p) {
    s->parked[(s->first_parked + s->n_parked++) % s->room] = *p;
}

static struct parked take_oldest(struct sw_bench_session *s) {
    const struct parked ret = s->parked[s->first_parked];
    s->first_parked = (s->first_parked + 1) % s->room;
    s->n_parked--;
    return ret;
}

/* How many restores the next spilled region gets, so that the mix comes out over all of them. */
static uint64_t restores_due(struct sw_bench_session *s) {
    const uint64_t spills = s->run->options.mix_spills, restores = s->run->options.mix_restores, i = s->n_spilled++;
    return (i + 1) * restores / spills - i * restores / spills;
}

/* ---- operations end ---------------------------------------------------------------------------------------------- */

/* Takes in what has ended; its time is now. */
static void look(struct sw_bench_session *s) {
    (void)spillway_dispatch(s->connection, NULL);
    for (unsigned i = 0; i < s->run->options.in_flight; i++) {
        struct slot *slot = &s->slots[i];
        if (slot->state != SLOT_RUNNING)
            continue;
        slot->rc = spillway_wait(slot->ticket, 0, &slot->result, &slot->error);
        if (slot->rc == -SPILLWAY_EAGAIN)
            continue;
        slot->end_us = sw_clock_us();
        sw_bench_busy_end(&s->run->busy, slot->op, slot->end_us);
        spillway_ticket_free(slot->ticket);
        slot->state = SLOT_ENDED;
    }
}

/* ---- work on memory ---------------------------------------------------------------------------------------------- */

enum work { FILL, WIPE, COMPARE };

static const char *work_on_piece(const struct sw_bench_session *s, enum work work, void *memory, const void *column,
                                 uint64_t bytes, bool *same) {
    const struct sw_bench_device *device = s->run->device;
    bool piece_same = true;
    const char *failed = NULL;
    if (work == FILL)
        failed = device->copy(memory, column, bytes);
    else if (work == WIPE)
        failed = device->set(memory, OTHER_BYTE, bytes);
    else
        failed = device->equal(memory, column, bytes, &piece_same);
    *same = *same && piece_same;
    return failed;
}

/* Does it piece by piece, with a look at the connection in between. Returns whether the bytes are the column's. */
static bool work_on(struct sw_bench_session *s, const struct slot *slot, enum work work) {
    const struct parked *content = &slot->content;
    const uint8_t *column = (const uint8_t *)s->run->columns[content->column]->data + content->offset;
    bool same = true;
    for (uint64_t at = 0; at < content->bytes && !s->lost; at += piece_bytes) {
        const uint64_t left = content->bytes - at;
        const char *failed = work_on_piece(s, work, (uint8_t *)slot->memory->data + at, column + at,
                                           left < piece_bytes ? left : piece_bytes, &same);
        if (failed) {
            say(s, "memory", "EGPU", failed);
            s->failed = s->lost = true;
        }
        look(s);
    }
    return same;
}

/* ---- operations begin -------------------------------------------------------------------------------------------- */

static void start(struct sw_bench_session *s, struct slot *slot, enum sw_bench_op op) {
    const struct parked *content = &slot->content;
    slot->op = op;
    slot->start_us = sw_clock_us();
    sw_bench_busy_begin(&s->run->busy, op, slot->start_us);
    if (op == SW_BENCH_SPILL)
        slot->rc = spillway_spill(s->connection, slot->memory->data, content->bytes, NULL, &slot->ticket, &slot->error);
    else
        slot->rc = spillway_restore(s->connection, content->region, slot->memory->data, content->bytes, NULL,
                                    content->restores > 1 ? SPILLWAY_RESTORE_KEEP : 0, &slot->ticket, &slot->error);
    slot->state = slot->rc < 0 ? SLOT_ENDED : SLOT_RUNNING;
    if (slot->rc < 0)
        sw_bench_busy_end(&s->run->busy, op, sw_clock_us());
}

static uint64_t random_bytes(struct sw_bench_session *s) {
    const struct sw_bench_options *o = &s->run->options;
    const double part = (double)(sw_random(&s->random) >> 11) / 9007199254740992.0; /* 2^53 */
    const double bytes = (double)o->min_bytes * exp(part * log((double)o->max_bytes / (double)o->min_bytes));
    if (bytes >= (double)o->max_bytes)
        return o->max_bytes;
    return (uint64_t)bytes < o->min_bytes ? o->min_bytes : (uint64_t)bytes;
}

static bool may_spill(const struct sw_bench_session *s) {
    const struct sw_bench_run *run = s->run;
    if (s->failed || atomic_load(&run->stop))
        return false;
    return run->options.count ? s->n_begun < run->options.count : sw_clock_us() < run->deadline_us;
}

/* Gives an idle slot something to do, if there is anything. */
static void begin(struct sw_bench_session *s, struct slot *slot) {
    const bool spill = may_spill(s);
    if (s->n_parked && (s->n_parked > s->run->options.parked || s->full || !spill)) {
        slot->content = take_oldest(s);
        (void)work_on(s, slot, WIPE);
        start(s, slot, SW_BENCH_RESTORE);
    } else if (spill) {
        s->n_begun++;
        slot->content =
            (struct parked){.column = (unsigned)(sw_random(&s->random) % s->run->options.n_columns),
                            .offset = sw_random(&s->random) % SW_BENCH_COLUMN_SLACK & ~(uint64_t)15, /* aligned */
                            .bytes = random_bytes(s)};
        (void)work_on(s, slot, FILL);
        start(s, slot, SW_BENCH_SPILL);
    }
}

/* ---- what follows from an end ------------------------------------------------------------------------------------ */

static void spilled(struct sw_bench_session *s, struct slot *slot) {
    struct spillway_error error;
    slot->content.region = slot->result.region;
    slot->content.restores = restores_due(s);
    if (slot->content.restores) {
        park(s, &slot->content);
        return;
    }
    if (spillway_drop(s->connection, slot->content.region, &error) < 0) {
        sw_bench_note_error(&s->figures, error.name);
        s->failed = true;
    }
    s->figures.n_dropped++;
}

static void restored(struct sw_bench_session *s, struct slot *slot) {
    s->full = false;
    if (s->run->options.verify) {
        s->figures.n_compared++;
        if (!work_on(s, slot, COMPARE)) {
            s->figures.n_different++;
            s->failed = true;
            say(s, "restore", "MISMATCH", "the restored bytes are not the original ones");
        }
    }
    if (--slot->content.restores)
        park(s, &slot->content);
}

/* A full service says so, and a client comes back later; whatever else fails must not. */
static void failed(struct sw_bench_session *s, struct slot *slot) {
    const bool full = slot->rc == -SPILLWAY_ENOSPACE || slot->rc == -SPILLWAY_ELIMIT;
    sw_bench_note_error(&s->figures, slot->error.name);
    s->full = s->full || full;
    if (full && slot->op == SW_BENCH_RESTORE)
        park(s, &slot->content);
    if (full)
        return;
    if (!s->failed)
        say(s, op_name(slot->op), slot->error.name, slot->error.text);
    s->failed = true;
    s->lost = s->lost || slot->error.scope >= SPILLWAY_SCOPE_SESSION;
}

static void finish(struct sw_bench_session *s, struct slot *slot) {
    slot->state = SLOT_IDLE;
    if (slot->rc < 0) {
        failed(s, slot);
        slot->not_before_us = sw_clock_us() + BACKOFF_US;
        return;
    }
    sw_bench_note(&s->figures, slot->op, &slot->result, slot->end_us - slot->start_us, slot->content.column);
    if (slot->op == SW_BENCH_SPILL)
        spilled(s, slot);
    else
        restored(s, slot);
    slot->not_before_us = sw_clock_us() + s->run->options.think_us;
}

/* ---- the thread -------------------------------------------------------------------------------------------------- */

/* Milliseconds until there may be something to do; -1: there is nothing left. */
static int time_to_wait(const struct sw_bench_session *s) {
    const bool more = s->n_parked || may_spill(s);
    const uint64_t now_us = sw_clock_us();
    uint64_t wait_us = UINT64_MAX;
    for (unsigned i = 0; i < s->run->options.in_flight; i++) {
        const struct slot *slot = &s->slots[i];
        uint64_t slot_us = UINT64_MAX;
        if (slot->state == SLOT_RUNNING)
            slot_us = longest_wait_us;
        else if (slot->state == SLOT_ENDED)
            slot_us = 0;
        else if (more)
            slot_us = slot->not_before_us > now_us ? slot->not_before_us - now_us : 0;
        wait_us = slot_us < wait_us ? slot_us : wait_us;
    }
    if (wait_us == UINT64_MAX)
        return -1;
    return (int)(((wait_us < longest_wait_us ? wait_us : longest_wait_us) + 999) / 1000);
}

static void *run_session(void *arg) {
    struct sw_bench_session *s = arg;
    for (int wait_ms; !s->lost && (wait_ms = time_to_wait(s)) >= 0;) {
        struct pollfd fd = {.fd = spillway_fd(s->connection), .events = POLLIN};
        if (wait_ms > 0)
            (void)poll(&fd, 1, wait_ms);
        look(s);
        for (unsigned i = 0; i < s->run->options.in_flight && !s->lost; i++) {
            struct slot *slot = &s->slots[i];
            if (slot->state == SLOT_ENDED)
                finish(s, slot);
            if (slot->state == SLOT_IDLE && sw_clock_us() >= slot->not_before_us)
                begin(s, slot);
        }
    }
    return NULL;
}

/* ---- life -------------------------------------------------------------------------------------------------------- */

static int take_error(struct sw_err *err, const struct spillway_error *error) {
    return sw_err_set(err, error->code, (enum sw_scope)error->scope, "%s", error->text);
}

static int make_slot(struct sw_bench_session *s, struct slot *slot, struct sw_err *err) {
    const struct sw_bench_options *o = &s->run->options;
    struct spillway_error error;
    const int rc = sw_buffer_new(&slot->memory, o->kind, o->max_bytes, err);
    if (rc < 0)
        return rc;
    const char *failed = s->run->device->set(slot->memory->data, 0, o->max_bytes); /* every page is there */
    if (failed)
        return sw_err_set(err, -SW_EGPU, SW_SCOPE_REQUEST, "%s", failed);
    if (o->registered && spillway_register(s->connection, slot->memory->data, o->max_bytes, &error) < 0)
        return take_error(err, &error);
    return 0;
}

int sw_bench_session_new(struct sw_bench_session **ret, struct sw_bench_run *run, unsigned number, struct sw_err *err) {
    const struct sw_bench_options *o = &run->options;
    struct spillway_error error;
    struct sw_bench_session *s = sw_alloc(sizeof *s);
    if (!s)
        return sw_err_set(err, -SW_ENOMEM, SW_SCOPE_REQUEST, "no memory for a session");
    s->run = run;
    s->number = number;
    s->random = o->seed * SW_BENCH_MAX_SESSIONS + number;
    s->room = (size_t)o->parked + o->in_flight + 1;
    s->slots = sw_alloc_array(o->in_flight, sizeof *s->slots);
    s->parked = sw_alloc_array(s->room, sizeof *s->parked);
    if (!s->slots || !s->parked) {
        sw_bench_session_free(s);
        return sw_err_set(err, -SW_ENOMEM, SW_SCOPE_REQUEST, "no memory for a session");
    }
    int rc = spillway_open(&s->connection, o->socket, &error) < 0 ? take_error(err, &error) : 0;
    for (unsigned i = 0; rc == 0 && i < o->in_flight; i++)
        rc = make_slot(s, &s->slots[i], err);
    if (rc < 0) {
        sw_bench_session_free(s);
        return rc;
    }
    *ret = s;
    return 0;
}

int sw_bench_session_start(struct sw_bench_session *s) {
    return pthread_create(&s->thread, NULL, run_session, s) == 0 ? 0 : -SW_ENOMEM;
}

int sw_bench_session_join(struct sw_bench_session *s) {
    (void)pthread_join(s->thread, NULL);
    return s->failed || s->lost ? -1 : 0;
}

const struct sw_bench_figures *sw_bench_session_figures(const struct sw_bench_session *s) {
    return &s->figures;
}

void sw_bench_session_free(struct sw_bench_session *s) {
    if (!s)
        return;
    spillway_close(s->connection); /* first: what still runs must not touch memory that is gone */
    for (unsigned i = 0; s->slots && i < s->run->options.in_flight; i++)
        sw_buffer_free(s->slots[i].memory);
    sw_bench_figures_fini(&s->figures);
    sw_free(s->slots);
    sw_free(s->parked);
    sw_free(s);
}
