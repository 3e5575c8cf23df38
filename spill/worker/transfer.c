#include "spill/worker/transfer.h"

#include "base/alloc.h"
#include "base/assert.h"
#include "base/clock.h"
#include "spill/tier/frame_key.h"

#include <string.h>

/* Chunks of one job that are read or written at once: with requests of 1 MiB enough for any disk's queue. */
enum { MAX_READ_AHEAD = 6, MAX_MOVES = 4 };
/* Memory that another worker's frames release is not reported to this worker, so it looks again after this time. */
#define LOOK_US 100u

struct sw_transfer {
    struct sw_list node; /* in the sink's `ended`, or in the job's `ready` or `writes` */
    struct sw_tier_io io;
    struct sw_tier_sink *sink;
    struct sw_job *job;
    size_t chunk;
    struct sw_tier_ask ask;  /* what the tier was asked for */
    struct sw_stored staged; /* in memory */
    struct sw_stored target; /* out, move: the place in the target tier */
    bool is_relayed;         /* move: between two tiers behind memory, so that `staged` is in transit */
};

/* Verifies a frame after a read. */
static void check_frame(struct sw_transfer *t) {
    struct sw_tier_key key;
    memcpy(&key, t->io.key, sizeof key);
    const struct sw_frames *frames = t->job->run.frames;
    if (t->io.err.code)
        return;
    const bool is_frame = frames->identities[t->chunk] ? sw_frames_check_memory(frames, t->chunk, &t->staged, NULL) == 0
                                                       : sw_tier_key_matches(&t->staged, key.check);
    if (!is_frame)
        (void)sw_err_set(&t->io.err, -SW_ECHECKSUM, SW_SCOPE_REGION,
                         "chunk %zu is not in its place in the %s tier: the disk lost or misdirected a write", t->chunk,
                         t->io.stored->tier->kind->name);
}

/* Called on the tier's thread, which outlives the mover. Once the lock is released the worker may take the transfer. If
 * it was the last one of a service that stops, the mover and the sink are freed then: nothing of them is touched after
 * the unlock. */
static void on_done(struct sw_tier_io *io, void *arg) {
    struct sw_transfer *t = arg;
    struct sw_tier_sink *s = t->sink;
    (void)io;
    (void)pthread_mutex_lock(&s->lock);
    sw_list_append(&s->ended, &t->node);
    atomic_store(&s->has_ended, true);
    s->arrived(s->arg);
    (void)pthread_mutex_unlock(&s->lock);
}

static struct sw_tier_sink *of(const struct sw_frame_sink *sink) {
    return SW_CONTAINER_OF(sink, struct sw_tier_sink, sink);
}

static struct sw_transfer *transfer_new(struct sw_tier_sink *s, struct sw_job *job, size_t chunk, struct sw_err *err) {
    struct sw_transfer *t = sw_alloc(sizeof *t);
    if (!t) {
        (void)sw_err_set(err, -SW_ENOMEM, SW_SCOPE_REQUEST, "out of memory for a transfer");
        return NULL;
    }
    t->sink = s;
    t->job = job;
    t->chunk = chunk;
    sw_list_init(&t->node);
    return t;
}

static bool moves(const struct sw_job *job) {
    return job->run.request->operation == SW_OP_MOVE;
}

/* Counts the transfer; the job has to wait for it. */
static void count(struct sw_transfer *t) {
    t->job->n_transfers++;
    t->job->run.n_in_sink++;
    t->sink->n_transfers++;
}

static void discount(struct sw_transfer *t) {
    t->job->n_transfers--;
    t->job->run.n_in_sink--;
    t->sink->n_transfers--;
}

static struct sw_tier_ask ask_for(const struct sw_tier *tier, enum sw_tier_io_kind kind, uint64_t bytes) {
    return (struct sw_tier_ask){.rank = tier->rank, .kind = kind, .bytes = bytes};
}

static uint64_t check_of(const struct sw_transfer *t) {
    return sw_tier_key_check(&t->staged, &t->job->run.frames->layouts[t->chunk]);
}

/* Submits a counted transfer. in_tier: a reservation, or a stored frame. */
static void submit(struct sw_transfer *t, enum sw_tier_io_kind kind, struct sw_stored *in_tier) {
    const struct sw_tier_key key = {.slot = t->job->region_slot,
                                    .gen = t->job->region_gen,
                                    .chunk = sw_frames_key(t->job->run.frames, t->chunk),
                                    .check = kind == SW_TIER_WRITE ? check_of(t) : 0, /* a read fills it in */
                                    .epoch = t->sink->place->epoch};
    t->io.kind = kind;
    t->io.stored = in_tier;
    t->io.memory = t->staged.extents;
    t->io.n_memory = t->staged.n_extents;
    t->io.is_alone = t->job->durability > SW_DURABILITY_SERVICE;
    t->io.done = on_done;
    t->io.arg = t;
    memcpy(t->io.key, &key, sizeof key);
    t->ask = ask_for(in_tier->tier, kind, in_tier->bytes);
    t->sink->asked_bytes[t->ask.rank][kind] += t->ask.bytes;
    sw_tier_share_take(&t->sink->place->share, &t->ask, moves(t->job));
    in_tier->tier->ops->submit(in_tier->tier, &t->io);
}

static void fail_at(const struct sw_transfer *t, size_t n_chunks) {
    sw_mover_fail_at(t->sink->sink.mover, &t->job->run, t->chunk, n_chunks, &t->io.err);
}

static void fail(struct sw_tier_sink *s, struct sw_job *job, const struct sw_err *err) {
    sw_mover_fail(s->sink.mover, &job->run, err);
}

/* ---- room ---- */

/* Returns the tier where all frames of a durable region go. NULL: they go wherever there is room. */
static struct sw_tier *keeper_of(const struct sw_tier_sink *s, const struct sw_run *run) {
    const enum sw_durability durability = sw_job_of_run(run)->durability;
    return durability > SW_DURABILITY_SERVICE ? sw_tiers_keeper(&s->place->tiers, durability) : NULL;
}

static bool rests(struct sw_frame_sink *sink, const struct sw_run *run, uint64_t bytes) {
    return !keeper_of(of(sink), run) && !sw_placement_goes_out(of(sink)->place, bytes);
}

static uint64_t left_of(uint64_t most, uint64_t used) {
    return most > used ? most - used : 0;
}

_Static_assert(SW_TIERS_MAX - 1 <= SW_ROOM_PLACES_MAX, "all tiers but memory");

static void room(struct sw_frame_sink *sink, const struct sw_run *run, struct sw_room *ret) {
    const struct sw_placement *place = of(sink)->place;
    const struct sw_quota *quota = sw_job_of_run(run)->quota;
    const struct sw_tier *keeper = keeper_of(of(sink), run);
    ret->memory_bytes = keeper ? 0 : sw_placement_room_bytes(place, 0);
    ret->n_behind = place->tiers.n - 1;
    for (unsigned i = 0; i < ret->n_behind; i++) {
        const struct sw_tier_stats stats = sw_tier_stats_of(place->tiers.at[i + 1]);
        const bool is_out = keeper && keeper->rank != i + 1;
        ret->behind[i] = (struct sw_room_place){.bytes = is_out ? 0 : sw_placement_room_bytes(place, i + 1),
                                                .write = (double)stats.write_bytes_per_s,
                                                .read = (double)stats.read_bytes_per_s,
                                                .is_store = sw_tier_can(place->tiers.at[i + 1], SW_TIER_SHARED)};
    }
    ret->prefer = sw_job_of_run(run)->prefer;
    if (ret->prefer == SW_PREFER_NONE && quota)
        ret->prefer = (enum sw_prefer)atomic_load(&quota->prefer);
    const uint64_t most = quota ? atomic_load(&quota->max_bytes) : 0;
    ret->allowed_bytes = most ? left_of(most, atomic_load(&quota->bytes)) : UINT64_MAX;
}

static int reserve(struct sw_frame_sink *sink, struct sw_run *run, uint64_t bytes, bool must_rest,
                   struct sw_stored *ret, struct sw_err *err) {
    struct sw_tier_sink *s = of(sink);
    struct sw_placement *place = s->place;
    struct sw_tier *memory = sw_placement_memory(place);
    struct sw_job *job = sw_job_of_run(run);
    const bool goes_on = !must_rest && !rests(sink, run, bytes);
    int rc = job->quota ? sw_quota_take(job->quota, bytes, err) : 0;
    if (rc)
        return rc;
    rc =
        goes_on ? sw_transit_reserve(&s->transit, job, bytes, ret, err) : memory->ops->reserve(memory, bytes, ret, err);
    if (rc && job->quota)
        sw_quota_give(job->quota, bytes);
    if (!rc)
        job->charged_bytes += job->quota ? bytes : 0;
    return rc;
}

static int commit(struct sw_frame_sink *sink, struct sw_stored *stored, struct sw_err *err) {
    (void)sink;
    return stored->tier->ops->commit(stored->tier, stored, err);
}

static void release(struct sw_frame_sink *sink, struct sw_run *run, struct sw_stored *stored) {
    if (stored->tier && stored->use != SW_STORED_RESTS)
        sw_transit_release(&of(sink)->transit, sw_job_of_run(run), stored);
    else
        sw_stored_release(stored);
}

/* ---- spill ---- */

/* Queues a frame in memory for its turn to be written. */
static void add_write(struct sw_transfer *t) {
    count(t);
    sw_list_append(&t->job->writes, &t->node);
}

static int reserve_target(struct sw_transfer *t, const struct sw_stored *stored, struct sw_err *err) {
    struct sw_tier *keeper = keeper_of(t->sink, &t->job->run);
    return keeper ? keeper->ops->reserve(keeper, stored->bytes, &t->target, err)
                  : sw_placement_reserve_behind(t->sink->place, stored->tier, stored->bytes, &t->target, err);
}

static void put(struct sw_frame_sink *sink, struct sw_run *run, size_t chunk, struct sw_stored *stored) {
    struct sw_tier_sink *s = of(sink);
    struct sw_job *job = sw_job_of_run(run);
    struct sw_err err = {0};
    struct sw_transfer *t = transfer_new(s, job, chunk, &err);
    /* Committed in memory, too: this zeroes the rest of its last block, which may have another tenant's bytes. */
    if (!t || stored->tier->ops->commit(stored->tier, stored, &err) || reserve_target(t, stored, &err)) {
        fail(s, job, &err);
        sw_free(t);
        release(sink, run, stored);
        return;
    }
    t->staged = *stored;
    memset(stored, 0, sizeof *stored);
    add_write(t);
    sw_transit_wake(&s->transit, job);
}

static struct sw_transfer *next_write(const struct sw_job *job) {
    return sw_list_empty(&job->writes) ? NULL : SW_CONTAINER_OF(job->writes.next, struct sw_transfer, node);
}

static void write_next(struct sw_job *job) {
    struct sw_transfer *t = next_write(job);
    sw_list_remove(&t->node);
    submit(t, SW_TIER_WRITE, &t->target);
}

static void drop_writes(struct sw_job *job) {
    struct sw_transfer *t;
    while ((t = next_write(job))) {
        sw_list_remove(&t->node);
        sw_stored_release(&t->target);
        sw_transit_release(&t->sink->transit, job, &t->staged);
        discount(t);
        sw_free(t);
    }
}

/* Makes way for a chunk's new frame. The old one is released at once, or kept until the loop has recorded the new one.
 */
static void replace(struct sw_job *job, size_t chunk) {
    (void)atomic_fetch_add(&job->signals.moved_bytes, job->run.frames->stored[chunk].bytes);
    if (job->replaced)
        job->replaced[chunk] = job->run.frames->stored[chunk];
    else
        sw_stored_release(&job->run.frames->stored[chunk]);
}

/* A frame was written, or its write has failed. */
static void arrived_out(struct sw_transfer *t) {
    struct sw_tier_sink *s = t->sink;
    struct sw_job *job = t->job;
    if (t->io.err.code) {
        fail(s, job, &t->io.err);
        sw_stored_release(&t->target);
    } else {
        if (moves(job)) {
            replace(job, t->chunk);
            if (!t->is_relayed)
                sw_placement_demotion_gets_on(s->place);
        }
        job->run.frames->stored[t->chunk] = t->target;
        sw_mover_stored(s->sink.mover, &job->run);
    }
    if (!moves(job) || t->is_relayed)
        sw_transit_release(&s->transit, job, &t->staged);
    sw_free(t);
}

/* ---- restore ---- */

/* Returns the next frame that the restore wants read. NULL: none now. */
static struct sw_stored *next_read(struct sw_job *job) {
    struct sw_frames *frames = job->run.frames;
    while (job->n_read < frames->n_chunks && !sw_stored_is_away(&frames->stored[job->n_read]))
        job->n_read++;
    return job->n_read < frames->n_chunks && job->n_ahead < MAX_READ_AHEAD ? &frames->stored[job->n_read] : NULL;
}

static bool get(struct sw_frame_sink *sink, struct sw_run *run) {
    struct sw_tier_sink *s = of(sink);
    struct sw_job *job = sw_job_of_run(run);
    struct sw_err err = {0};
    if (job->transit_turn.session || !next_read(job))
        return false;
    if (sw_transit_join(&s->transit, job, &err))
        fail(s, job, &err);
    return true;
}

/* Reads the next frame. -SW_EAGAIN: it waits for memory; any other failure is the job's. */
static int read_next(struct sw_tier_sink *s, struct sw_job *job) {
    struct sw_stored *stored = next_read(job);
    struct sw_err err = {0};
    struct sw_transfer *t = transfer_new(s, job, job->n_read, &err);
    const int rc = t ? sw_transit_reserve(&s->transit, job, stored->bytes, &t->staged, &err) : -SW_ENOMEM;
    if (rc) {
        sw_free(t);
        if (rc != -SW_EAGAIN)
            fail(s, job, &err);
        return rc;
    }
    job->n_read++;
    job->n_ahead++;
    job->run.n_in_sink++;
    count(t);
    submit(t, SW_TIER_READ, stored);
    return 0;
}

static struct sw_transfer *find_ready(const struct sw_job *job, size_t chunk) {
    for (struct sw_list *node = job->ready.next; node != &job->ready; node = node->next) {
        struct sw_transfer *t = SW_CONTAINER_OF(node, struct sw_transfer, node);
        if (t->chunk == chunk)
            return t;
    }
    return NULL;
}

static bool has(struct sw_frame_sink *sink, const struct sw_run *run, size_t chunk) {
    (void)sink;
    return !sw_stored_is_away(&run->frames->stored[chunk]) || find_ready(sw_job_of_run(run), chunk);
}

/* The job gives up a frame that was read for it. */
static void forget_ready(struct sw_job *job, struct sw_transfer *t) {
    job->n_ahead--;
    job->run.n_in_sink--;
    sw_list_remove(&t->node);
    sw_free(t);
}

static bool take(struct sw_frame_sink *sink, struct sw_run *run, size_t chunk, struct sw_stored *ret) {
    struct sw_job *job = sw_job_of_run(run);
    struct sw_transfer *t = find_ready(job, chunk);
    if (!t)
        return false;
    *ret = t->staged;
    forget_ready(job, t);
    sw_transit_wake(&of(sink)->transit, job);
    return true;
}

static void arrived_in(struct sw_transfer *t) {
    check_frame(t);
    if (t->io.err.code)
        fail_at(t, 1);
    sw_list_append(&t->job->ready, &t->node);
    sw_mover_wake(t->sink->sink.mover, &t->job->run);
}

static void abandon(struct sw_frame_sink *sink, struct sw_run *run) {
    struct sw_job *job = sw_job_of_run(run);
    drop_writes(job);
    while (!sw_list_empty(&job->ready)) {
        struct sw_transfer *t = SW_CONTAINER_OF(job->ready.next, struct sw_transfer, node);
        release(sink, run, &t->staged);
        forget_ready(job, t);
    }
}

static void ended(struct sw_frame_sink *sink, struct sw_run *run) {
    sw_transit_leave(&of(sink)->transit, sw_job_of_run(run));
}

/* ---- turns ---- */

struct dealing {
    struct sw_tier_sink *sink;
    enum sw_tier_io_kind kind;
    bool lacks_tier[SW_TIERS_MAX]; /* by rank: the job whose turn it is waits for this tier, and later jobs that want it
                                      wait with it */
    bool lacks_memory;             /* the same for memory, except for short newcomers */
    bool has_none;                 /* there is no memory even for short newcomers */
};

static const struct sw_stored *next_frame(struct sw_job *job) {
    if (job->run.outcome.err.code)
        return NULL;
    if (sw_transit_kind(job) == SW_TIER_READ)
        return next_read(job);
    const struct sw_transfer *t = next_write(job);
    return t ? &t->target : NULL;
}

static enum sw_turn_answer ask(struct sw_turn *turn, void *arg) {
    struct dealing *d = arg;
    struct sw_job *job = SW_CONTAINER_OF(turn, struct sw_job, transit_turn);
    struct sw_tier_share *share = &d->sink->place->share;
    const struct sw_stored *frame = next_frame(job);
    const uint64_t now_us = sw_clock_us();
    if (!frame)
        return SW_TURN_REST;
    const struct sw_tier_ask what = ask_for(frame->tier, d->kind, frame->bytes);
    const bool is_shared = sw_tier_share_note(share, job->run.request->tenant, now_us);
    const bool is_bound = is_shared && d->sink->asked_bytes[what.rank][d->kind] > 0;
    d->lacks_tier[what.rank] |= !sw_tier_share_has_room(share, &what, is_bound, now_us);
    const bool lacks_memory = d->has_none || (d->lacks_memory && !sw_transit_is_short_newcomer(job, frame->bytes));
    return d->lacks_tier[what.rank] || lacks_memory ? SW_TURN_LATER : SW_TURN_TAKE;
}

/* Returns false if it waits for memory. */
static bool serve(struct dealing *d, struct sw_job *job) {
    const uint64_t bytes = next_frame(job)->bytes;
    const bool is_newcomer = sw_transit_is_short_newcomer(job, bytes);
    if (d->kind == SW_TIER_WRITE) {
        write_next(job);
    } else if (read_next(d->sink, job) == -SW_EAGAIN) {
        d->lacks_memory = true;
        d->has_none |= is_newcomer;
        return false;
    }
    sw_turns_charge(&d->sink->transit.turns[d->kind], &job->transit_turn, bytes);
    return true;
}

static bool deal_kind(struct sw_tier_sink *s, enum sw_tier_io_kind kind) {
    struct dealing d = {.sink = s, .kind = kind};
    const struct sw_turn_question question = {
        .ask = ask, .arg = &d, .n_free = 2, .n_slots = 2, .now_us = sw_clock_us()};
    struct sw_turn *turn;
    bool any = false, looks;
    while ((turn = sw_turns_next(&s->transit.turns[kind], &question)))
        any |= serve(&d, SW_CONTAINER_OF(turn, struct sw_job, transit_turn));
    looks = d.has_none;
    for (unsigned rank = 0; rank < SW_TIERS_MAX; rank++)
        looks |= d.lacks_tier[rank];
    if (looks)
        sw_mover_look_at(s->sink.mover, sw_clock_us() + LOOK_US);
    return any;
}

static bool deal(struct sw_frame_sink *sink) {
    const bool reads = deal_kind(of(sink), SW_TIER_READ);
    return deal_kind(of(sink), SW_TIER_WRITE) || reads;
}

/* ---- move ---- */

/* Begins to copy a chunk to a tier behind. A chunk that is not in memory is read first. errors: also -SW_EAGAIN. */
static int demote(struct sw_transfer *t, struct sw_err *err) {
    struct sw_placement *place = t->sink->place;
    struct sw_stored *stored = &t->job->run.frames->stored[t->chunk];
    t->is_relayed = sw_stored_is_away(stored);
    int rc = sw_placement_reserve_behind(place, t->job->behind, stored->bytes, &t->target, err);
    if (!rc && t->is_relayed)
        rc = sw_transit_reserve(&t->sink->transit, t->job, stored->bytes, &t->staged, err);
    if (rc) {
        sw_stored_release(&t->target);
        return rc;
    }
    if (!t->is_relayed)
        t->staged = *stored; /* stays the region's until the copy is complete */
    count(t);
    submit(t, t->is_relayed ? SW_TIER_READ : SW_TIER_WRITE, t->is_relayed ? stored : &t->target);
    return 0;
}

/* Begins to copy a chunk from a tier behind into memory, where it is to stay. */
static int promote(struct sw_transfer *t, struct sw_err *err) {
    struct sw_stored *stored = &t->job->run.frames->stored[t->chunk];
    struct sw_tier *memory = sw_placement_memory(t->sink->place);
    if (sw_placement_goes_out(t->sink->place, stored->bytes))
        return sw_err_set(err, -SW_ENOSPACE, SW_SCOPE_REQUEST, "%s tier is full", memory->kind->name);
    int rc = memory->ops->reserve(memory, stored->bytes, &t->staged, err);
    if (rc)
        return rc;
    count(t);
    submit(t, SW_TIER_READ, stored);
    return 0;
}

static void arrived_promoted(struct sw_transfer *t) {
    struct sw_job *job = t->job;
    check_frame(t);
    if (t->io.err.code || t->staged.tier->ops->commit(t->staged.tier, &t->staged, &t->io.err)) {
        fail_at(t, 1);
        sw_stored_release(&t->staged);
    } else {
        replace(job, t->chunk);
        job->run.frames->stored[t->chunk] = t->staged;
        sw_mover_stored(t->sink->sink.mover, &job->run);
    }
    sw_free(t);
}

/* A chunk in transit between two tiers behind memory was read. */
static void arrived_half_way(struct sw_transfer *t) {
    check_frame(t);
    if (!t->io.err.code && !t->staged.tier->ops->commit(t->staged.tier, &t->staged, &t->io.err)) {
        add_write(t);
        return;
    }
    fail_at(t, 1);
    sw_stored_release(&t->target);
    sw_transit_release(&t->sink->transit, t->job, &t->staged);
    sw_free(t);
}

/* Returns whether the move ignores this chunk: it is where it should go, or was not in the source tier. */
static bool stays(const struct sw_job *job, const struct sw_stored *stored) {
    return job->from ? stored->tier != job->from : !sw_stored_is_away(stored);
}

/* Returns true if clients leave enough of the tier's rate for the chunk. tier NULL: no tier could take it. */
static bool may_move(struct sw_tier_sink *s, const struct sw_job *job, const struct sw_tier *tier,
                     enum sw_tier_io_kind kind, uint64_t bytes) {
    if (!tier)
        return true;
    const uint64_t now_us = sw_clock_us();
    const struct sw_tier_ask what = ask_for(tier, kind, bytes);
    const bool may = sw_tier_share_may_move(&s->place->share, &what, job->run.request->tenant, now_us);
    if (!may)
        sw_mover_look_at(s->sink.mover, now_us + LOOK_US);
    return may;
}

/* Returns true if the first step of moving a chunk may begin: a read if it is away, else a write to the next tier. */
static bool may_begin(struct sw_tier_sink *s, const struct sw_job *job, const struct sw_stored *stored) {
    if (sw_stored_is_away(stored))
        return may_move(s, job, stored->tier, SW_TIER_READ, stored->bytes);
    const struct sw_tier *behind = sw_placement_next_behind(s->place, job->behind, stored->bytes);
    return may_move(s, job, behind, SW_TIER_WRITE, stored->bytes);
}

/* Begins to write chunks that were read in transit between two tiers behind memory. */
static bool relay(struct sw_tier_sink *s, struct sw_job *job) {
    const struct sw_transfer *t;
    bool began = false;
    while ((t = next_write(job)) && may_move(s, job, t->target.tier, SW_TIER_WRITE, t->target.bytes)) {
        write_next(job);
        began = true;
    }
    return began;
}

static bool move(struct sw_frame_sink *sink, struct sw_run *run) {
    struct sw_tier_sink *s = of(sink);
    struct sw_job *job = sw_job_of_run(run);
    bool began = relay(s, job);
    while (!run->outcome.err.code && run->n_dealt < run->frames->n_chunks && job->n_transfers < MAX_MOVES) {
        struct sw_err err = {0};
        if (stays(job, &run->frames->stored[run->n_dealt])) {
            run->n_dealt++;
            sw_mover_stored(sink->mover, run);
            began = true;
            continue;
        }
        if (!may_begin(s, job, &run->frames->stored[run->n_dealt]))
            return began;
        struct sw_transfer *t = transfer_new(s, job, run->n_dealt, &err);
        const int rc = !t ? -SW_ENOMEM : job->from ? demote(t, &err) : promote(t, &err);
        if (rc) {
            sw_free(t);
            if (rc == -SW_EAGAIN)
                return began;
            fail(s, job, &err);
            return true;
        }
        began = true;
        run->n_dealt++;
    }
    return began;
}

/* ---- all transfers ---- */

static bool has_news(const struct sw_frame_sink *sink) {
    return atomic_load(&of(sink)->has_ended);
}

static struct sw_transfer *next_ended(struct sw_tier_sink *s) {
    (void)pthread_mutex_lock(&s->lock);
    struct sw_list *node = sw_list_take_first(&s->ended);
    (void)pthread_mutex_unlock(&s->lock);
    return node ? SW_CONTAINER_OF(node, struct sw_transfer, node) : NULL;
}

static bool collect(struct sw_frame_sink *sink) {
    struct sw_tier_sink *s = of(sink);
    struct sw_transfer *t;
    bool any = false;
    atomic_store(&s->has_ended, false);
    while ((t = next_ended(s))) {
        sw_list_init(&t->node);
        discount(t);
        s->asked_bytes[t->ask.rank][t->ask.kind] -= t->ask.bytes;
        sw_tier_share_give(&s->place->share, &t->ask);
        if (t->io.kind == SW_TIER_WRITE)
            arrived_out(t);
        else if (t->is_relayed)
            arrived_half_way(t);
        else if (moves(t->job))
            arrived_promoted(t);
        else
            arrived_in(t);
        any = true;
    }
    return any;
}

static const struct sw_frame_sink_ops ops = {.rests = rests,
                                             .room = room,
                                             .reserve = reserve,
                                             .commit = commit,
                                             .put = put,
                                             .get = get,
                                             .has = has,
                                             .take = take,
                                             .release = release,
                                             .move = move,
                                             .deal = deal,
                                             .abandon = abandon,
                                             .ended = ended,
                                             .has_news = has_news,
                                             .collect = collect};

void sw_tier_sink_init(struct sw_tier_sink *s, struct sw_placement *place, void (*arrived)(void *arg), void *arg) {
    *s = (struct sw_tier_sink){
        .sink = {.ops = &ops, .chunk_bytes = place->chunk_bytes}, .place = place, .arrived = arrived, .arg = arg};
    sw_transit_init(&s->transit, place);
    sw_list_init(&s->ended);
    (void)pthread_mutex_init(&s->lock, NULL);
}

void sw_tier_sink_fini(struct sw_tier_sink *s) {
    SW_ASSERT(s->n_transfers == 0);
    sw_transit_fini(&s->transit);
    (void)pthread_mutex_destroy(&s->lock);
}
