#include "tests/bench/spillway_bench/session.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/thread.h"
#include "ipc/spillway.h"
#include "tests/bench/spillway_bench/columns.h"
#include "tests/lib/content.h"
#include "tests/lib/requests.h"
#include <math.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>

enum { OTHER_BYTE = 0xdb };                     /* so that memory that still holds the old bytes proves nothing */
static const uint64_t longest_wait_us = 200000; /* then looks whether it is to stop */
static const uint64_t piece_bytes = 4 << 20;    /* filled or compared between two looks at the connection */

/* A region, and what is in it: so many bytes of a column. */
struct region {
    struct spillway_region id;
    uint64_t offset, bytes;
};

/* The data that an operation spills or restores. */
struct parked {
    struct region *regions; /* [n_regions()] */
    unsigned column;
    uint64_t restores; /* still to come */
};

enum slot_state { SLOT_IDLE, SLOT_RUNNING, SLOT_ENDED };

struct slot {
    struct sw_buffer *memory;
    enum slot_state state;
    enum sw_bench_op op;
    struct parked content; /* of the operation */
    unsigned column;       /* that the memory holds from the start, and for good, if nothing is verified */
    /* [n_regions()] each. A region has one buffer, at a place of its own. */
    struct spillway_buffer *buffers;
    struct spillway_request *requests;
    struct spillway_result *results;
    struct spillway_ticket *ticket;
    uint64_t not_before_us, start_us, end_us;
    int rc;
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
    struct region *regions;          /* of all that is parked, and of the slots */
    struct spillway_buffer *buffers; /* of the slots, as the next two */
    struct spillway_request *requests;
    struct spillway_result *results;
    uint64_t random;
    uint64_t n_begun, n_spilled; /* spills that succeeded or may yet; that did */
    unsigned n_held;             /* this session's share of the run's */
    bool is_stopped;             /* has seen that the run was */
    double own_s;                /* from its first moment, after the stagger, to its last */
    struct sw_bench_refused refused;
    bool full;   /* the tier was: restores first */
    bool failed; /* something went wrong that must not: no more spills */
    bool lost;   /* nothing more can be done */
    struct sw_bench_statistics statistics;
};

static void say(const struct sw_bench_session *s, const char *what, const char *name, const char *text) {
    (void)fprintf(stderr, "spillway-bench: session %u: %s: %s: %s\n", s->number, what, name, text);
}

static unsigned n_regions(const struct sw_bench_session *s) {
    return s->run->options.batch ? s->run->options.batch : 1;
}

/* Regions lie side by side, each with room for the longest, at the alignment that comparing needs. */
static uint64_t stride(const struct sw_bench_session *s) {
    return (s->run->options.max_bytes + 15) & ~(uint64_t)15;
}

static const char *op_name(enum sw_bench_op op) {
    return op == SW_BENCH_SPILL ? "spill" : "restore";
}

/* ---- what is parked ---------------------------------------------------------------------------------------------- */

/* Regions are swapped: each place in the ring, and each slot, has an array of them. */
static void swap(struct parked *a, struct parked *b) {
    const struct parked c = *a;
    *a = *b;
    *b = c;
}

static void park(struct sw_bench_session *s, struct slot *slot) {
    swap(&s->parked[(s->first_parked + s->n_parked++) % s->room], &slot->content);
}

static void take_oldest(struct sw_bench_session *s, struct slot *slot) {
    swap(&s->parked[s->first_parked], &slot->content);
    s->first_parked = (s->first_parked + 1) % s->room;
    s->n_parked--;
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
        slot->rc = spillway_wait(slot->ticket, 0, slot->results, n_regions(s), &slot->error);
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
static bool work_on_region(struct sw_bench_session *s, const struct slot *slot, unsigned i, enum work work) {
    const struct region *region = &slot->content.regions[i];
    const uint8_t *column = (const uint8_t *)s->run->columns[slot->content.column]->data + region->offset;
    bool same = true;
    for (uint64_t at = 0; at < region->bytes && !s->lost; at += piece_bytes) {
        const uint64_t left = region->bytes - at;
        const char *failed = work_on_piece(s, work, (uint8_t *)slot->buffers[i].data + at, column + at,
                                           left < piece_bytes ? left : piece_bytes, &same);
        if (failed) {
            say(s, "memory", "EGPU", failed);
            s->failed = s->lost = true;
        }
        look(s);
    }
    return same;
}

/* Returns how many regions differ. */
static unsigned work_on(struct sw_bench_session *s, const struct slot *slot, enum work work) {
    unsigned n_different = 0;
    for (unsigned i = 0; i < n_regions(s); i++)
        n_different += !work_on_region(s, slot, i, work);
    return n_different;
}

/* ---- operations begin -------------------------------------------------------------------------------------------- */

static enum spillway_value_type type_of(const struct sw_bench_session *s, const struct slot *slot) {
    return sw_bench_column_type(s->run->options.columns[slot->content.column]);
}

static void start(struct sw_bench_session *s, struct slot *slot, enum sw_bench_op op) {
    const bool is_spill = op == SW_BENCH_SPILL;
    const uint16_t type = (uint16_t)type_of(s, slot);
    for (unsigned i = 0; i < n_regions(s); i++) {
        slot->buffers[i].bytes = slot->content.regions[i].bytes;
        slot->buffers[i].type = type;
        slot->requests[i].region = is_spill ? (struct spillway_region){0} : slot->content.regions[i].id;
        slot->requests[i].flags = !is_spill && slot->content.restores > 1 ? SPILLWAY_KEEP : 0;
    }
    slot->op = op;
    slot->start_us = sw_clock_us();
    sw_bench_busy_begin(&s->run->busy, op, slot->start_us);
    slot->rc = (is_spill ? spillway_spill : spillway_restore)(s->connection, slot->requests, n_regions(s),
                                                              &slot->ticket, &slot->error);
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
    return !s->failed && !sw_bench_is_over(s->run, s->n_begun);
}

/* Gives an idle slot something to do, if there is anything. */
static void begin(struct sw_bench_session *s, struct slot *slot) {
    const bool spill = may_spill(s);
    if (s->n_parked && (s->n_parked > s->run->options.parked || s->full || !spill)) {
        take_oldest(s, slot);
        if (s->run->options.verify)
            (void)work_on(s, slot, WIPE);
        start(s, slot, SW_BENCH_RESTORE);
    } else if (spill) {
        s->n_begun++;
        slot->content.restores = 0;
        const unsigned column = (unsigned)(sw_random(&s->random) % s->run->options.n_columns);
        slot->content.column = s->run->options.verify ? column : slot->column;
        const uint64_t whole_values =
            sw_bench_column_value_bytes(s->run->options.columns[slot->content.column]) - UINT64_C(1);
        for (unsigned i = 0; i < n_regions(s); i++) {
            const uint64_t offset = sw_random(&s->random) % SW_BENCH_COLUMN_SLACK & ~(uint64_t)15; /* aligned */
            slot->content.regions[i] = (struct region){.offset = offset, .bytes = random_bytes(s) & ~whole_values};
        }
        if (s->run->options.verify)
            (void)work_on(s, slot, FILL);
        start(s, slot, SW_BENCH_SPILL);
    }
}

/* ---- what follows from an end ------------------------------------------------------------------------------------ */

static void hold(struct sw_bench_session *s, unsigned n) {
    s->n_held += n;
    (void)atomic_fetch_add(&s->run->n_held, n);
}

static void let_go(struct sw_bench_session *s, unsigned n) {
    s->n_held -= n;
    (void)atomic_fetch_sub(&s->run->n_held, n);
}

static void spilled(struct sw_bench_session *s, struct slot *slot) {
    struct spillway_error error;
    for (unsigned i = 0; i < n_regions(s); i++)
        slot->content.regions[i].id = slot->results[i].region;
    slot->content.restores = restores_due(s);
    if (slot->content.restores) {
        hold(s, 1);
        park(s, slot);
        return;
    }
    for (unsigned i = 0; i < n_regions(s); i++)
        if (spillway_drop(s->connection, &slot->content.regions[i].id, 1, &error) < 0) {
            sw_bench_note_error(&s->statistics, error.name);
            s->failed = true;
        }
    s->statistics.n_dropped += n_regions(s);
}

static void restored(struct sw_bench_session *s, struct slot *slot) {
    s->full = false;
    if (s->run->options.verify) {
        const unsigned n_different = work_on(s, slot, COMPARE);
        s->statistics.n_compared += n_regions(s);
        s->statistics.n_different += n_different;
        if (n_different) {
            s->failed = true;
            say(s, "restore", "MISMATCH", "the restored bytes are not the original ones");
        }
    }
    if (--slot->content.restores)
        park(s, slot);
    else
        let_go(s, 1);
}

/* One that may be repeated: it does not count for --count, another one takes its place. */
static void refused(struct sw_bench_session *s, const struct slot *slot) {
    char text[SW_BENCH_TEXT_BYTES];
    s->n_begun--;
    if (s->failed || !sw_bench_is_full(&slot->error) || !sw_bench_is_hopeless(s->run, &s->refused))
        return;
    s->failed = true;
    say(s, "spill", slot->error.name, sw_bench_give_up_text(text, s->run, &slot->error, s->n_spilled));
}

static void failed(struct sw_bench_session *s, struct slot *slot) {
    const bool may_repeat = sw_bench_may_repeat(&slot->error);
    sw_bench_note_error(&s->statistics, slot->error.name);
    s->full = s->full || sw_bench_is_full(&slot->error);
    if (may_repeat && slot->op == SW_BENCH_RESTORE)
        park(s, slot);
    else if (may_repeat)
        refused(s, slot);
    else if (slot->op == SW_BENCH_RESTORE)
        let_go(s, 1);
    if (may_repeat)
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
        slot->not_before_us = sw_clock_us() + SW_BENCH_BACKOFF_US;
        return;
    }
    (void)atomic_fetch_add(&s->run->n_done, 1);
    sw_bench_note(&s->statistics, slot->op, slot->results, n_regions(s), slot->end_us - slot->start_us,
                  slot->content.column);
    if (slot->op == SW_BENCH_SPILL)
        spilled(s, slot);
    else
        restored(s, slot);
    slot->not_before_us = s->is_stopped ? 0 : sw_clock_us() + s->run->options.think_us;
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

/* Who has stopped the run does not want to wait for thoughts that users would have. */
static void heed_stop(struct sw_bench_session *s) {
    if (s->is_stopped || !atomic_load(&s->run->stop))
        return;
    s->is_stopped = true;
    for (unsigned i = 0; i < s->run->options.in_flight; i++)
        s->slots[i].not_before_us = 0;
}

static void *run_session(void *arg) {
    struct sw_bench_session *s = arg;
    const uint64_t begin_us = sw_clock_us() + s->number * s->run->options.stagger_us;
    for (unsigned i = 0; i < s->run->options.in_flight; i++)
        s->slots[i].not_before_us = begin_us;
    for (int wait_ms; !s->lost && (wait_ms = time_to_wait(s)) >= 0;) {
        struct pollfd fd = {.fd = spillway_fd(s->connection), .events = POLLIN};
        if (wait_ms > 0 && s->run->options.in_flight == 1 && s->slots->state == SLOT_RUNNING)
            (void)spillway_wait(s->slots->ticket, wait_ms, NULL, 0,
                                NULL); /* as a client does that has nothing else to do */
        else if (wait_ms > 0)
            (void)poll(&fd, 1, wait_ms);
        look(s);
        heed_stop(s);
        for (unsigned i = 0; i < s->run->options.in_flight && !s->lost; i++) {
            struct slot *slot = &s->slots[i];
            if (slot->state == SLOT_ENDED)
                finish(s, slot);
            if (slot->state == SLOT_IDLE && sw_clock_us() >= slot->not_before_us)
                begin(s, slot);
        }
    }
    let_go(s, s->n_held); /* of a lost connection */
    const uint64_t end_us = sw_clock_us();
    s->own_s = end_us > begin_us ? (double)(end_us - begin_us) / 1e6 : 0;
    return NULL;
}

/* ---- life -------------------------------------------------------------------------------------------------------- */

static int take_error(struct sw_err *err, const struct spillway_error *error) {
    return sw_err_set(err, error->code, (enum sw_scope)error->scope, "%s", error->text);
}

/* Touches every page. Without verifying the session is never to disturb the device: its bytes are there before any
 * begins. */
static const char *fill_first(const struct sw_bench_session *s, const struct slot *slot, uint64_t bytes) {
    const char *failed = s->run->device->set(slot->memory->data, 0, bytes);
    for (unsigned i = 0; !failed && !s->run->options.verify && i < n_regions(s); i++)
        failed =
            s->run->device->copy(slot->buffers[i].data, s->run->columns[slot->column]->data, s->run->options.max_bytes);
    return failed;
}

static int make_slot(struct sw_bench_session *s, struct slot *slot, struct sw_err *err) {
    const struct sw_bench_options *o = &s->run->options;
    const uint64_t bytes = o->batch ? o->batch * stride(s) : o->max_bytes;
    struct spillway_error error;
    const int rc = sw_buffer_new(&slot->memory, o->kind, bytes, err);
    if (rc < 0)
        return rc;
    for (unsigned i = 0; i < n_regions(s); i++)
        slot->buffers[i].data = (uint8_t *)slot->memory->data + i * stride(s);
    sw_requests_of_each(slot->requests, slot->buffers, n_regions(s));
    for (unsigned i = 0; i < n_regions(s); i++)
        slot->requests[i].stream = s->run->device->stream();
    slot->results->size = sizeof *slot->results;
    slot->column = s->number % o->n_columns;
    const char *failed = fill_first(s, slot, bytes);
    if (failed)
        return sw_err_set(err, -SW_EGPU, SW_SCOPE_REQUEST, "%s", failed);
    if (o->registered && spillway_register(s->connection, slot->memory->data, bytes, &error) < 0)
        return take_error(err, &error);
    return 0;
}

/* Slots, and room for what is parked. */
static int make_room(struct sw_bench_session *s) {
    const struct sw_bench_options *o = &s->run->options;
    const size_t n = n_regions(s);
    s->room = (size_t)o->parked + o->in_flight + 1;
    s->slots = sw_alloc_array(o->in_flight, sizeof *s->slots);
    s->parked = sw_alloc_array(s->room, sizeof *s->parked);
    s->regions = sw_alloc_array((s->room + o->in_flight) * n, sizeof *s->regions);
    s->buffers = sw_alloc_array(o->in_flight * n, sizeof *s->buffers);
    s->requests = sw_alloc_array(o->in_flight * n, sizeof *s->requests);
    s->results = sw_alloc_array(o->in_flight * n, sizeof *s->results);
    if (!s->slots || !s->parked || !s->regions || !s->buffers || !s->requests || !s->results)
        return -SW_ENOMEM;
    for (size_t i = 0; i < s->room; i++)
        s->parked[i].regions = s->regions + i * n;
    for (size_t i = 0; i < o->in_flight; i++) {
        s->slots[i].content.regions = s->regions + (s->room + i) * n;
        s->slots[i].buffers = s->buffers + i * n;
        s->slots[i].requests = s->requests + i * n;
        s->slots[i].results = s->results + i * n;
    }
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
    if (make_room(s) < 0) {
        sw_bench_session_free(s);
        return sw_err_set(err, -SW_ENOMEM, SW_SCOPE_REQUEST, "no memory for a session");
    }
    int rc =
        spillway_open(&s->connection, SW_OPTIONS(.socket_path = o->socket), &error) < 0 ? take_error(err, &error) : 0;
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
    return sw_thread_start(&s->thread, run_session, s) == 0 ? 0 : -SW_ENOMEM;
}

int sw_bench_session_join(struct sw_bench_session *s) {
    (void)pthread_join(s->thread, NULL);
    return s->failed || s->lost ? -1 : 0;
}

const struct sw_bench_statistics *sw_bench_session_statistics(const struct sw_bench_session *s) {
    return &s->statistics;
}

double sw_bench_session_s(const struct sw_bench_session *s) {
    return s->own_s;
}

void sw_bench_session_free(struct sw_bench_session *s) {
    if (!s)
        return;
    spillway_close(s->connection); /* first: what still runs must not touch memory that is gone */
    for (unsigned i = 0; s->slots && i < s->run->options.in_flight; i++)
        sw_buffer_free(s->slots[i].memory);
    sw_bench_statistics_fini(&s->statistics);
    sw_free(s->slots);
    sw_free(s->parked);
    sw_free(s->regions);
    sw_free(s->buffers);
    sw_free(s->requests);
    sw_free(s->results);
    sw_free(s);
}
