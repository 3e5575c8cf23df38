#include "spill/transfer.h"

#include "base/alloc.h"
#include "base/assert.h"
#include "spill/tier/frame_key.h"

#include <string.h>

/* Chunks of one job that are read or written at once: with 1 MiB requests enough for any disk's queue. */
enum { MAX_READ_AHEAD = 6, MAX_MOVES = 4 };

struct sw_transfer {
    struct sw_list node; /* of the sink's `ended`, or of the job's `ready` */
    struct sw_tier_io io;
    struct sw_tier_sink *sink;
    struct sw_job *job;
    size_t chunk;
    struct sw_stored staged; /* in memory */
    struct sw_stored target; /* out, move: in the tier that it goes to */
    bool is_relayed;         /* move: from a tier behind to another, so that `staged` is on its way */
};

/* After a read. */
static void check_frame(struct sw_transfer *t) {
    struct sw_tier_key key;
    memcpy(&key, t->io.key, sizeof key);
    const struct sw_frames *frames = t->job->run.frames;
    if (t->io.err.code)
        return;
    const bool is_frame = frames->identities[t->chunk] ? sw_frames_check_memory(frames, t->chunk, &t->staged, NULL) == 0
                                                       : sw_tier_key_fits(&t->staged, key.check);
    if (!is_frame)
        (void)sw_err_set(&t->io.err, -SW_ECHECKSUM, SW_SCOPE_REGION,
                         "chunk %zu is not in its place in the %s tier: a write of it was lost, or one of another",
                         t->chunk, t->io.stored->tier->kind->name);
}

/* On the tier's thread, which outlives the mover. Once the lock is open the worker may take the transfer, and if that
 * was the last one of a service that stops, the mover and the sink are freed: nothing of them is touched then. */
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

static uint64_t check_of(const struct sw_transfer *t) {
    return sw_tier_key_check(&t->staged, &t->job->run.frames->layouts[t->chunk]);
}

static void submit(struct sw_transfer *t, enum sw_tier_io_kind kind, struct sw_stored *in_tier) {
    const struct sw_tier_key key = {.slot = t->job->region_slot,
                                    .gen = t->job->region_gen,
                                    .chunk = sw_frames_key(t->job->run.frames, t->chunk),
                                    .check = kind == SW_TIER_WRITE ? check_of(t) : 0, /* a read brings it */
                                    .epoch = t->sink->place->epoch};
    t->io.kind = kind;
    t->io.stored = in_tier;
    t->io.memory = t->staged.extents;
    t->io.n_memory = t->staged.n_extents;
    t->io.done = on_done;
    t->io.arg = t;
    memcpy(t->io.key, &key, sizeof key);
    t->job->n_transfers++;
    t->job->run.n_in_sink++;
    t->sink->n_transfers++;
    in_tier->tier->ops->submit(in_tier->tier, &t->io);
}

static void fail_at(const struct sw_transfer *t, size_t n_chunks) {
    sw_mover_fail_at(t->sink->sink.mover, &t->job->run, t->chunk, n_chunks, &t->io.err);
}

static void fail(struct sw_tier_sink *s, struct sw_job *job, const struct sw_err *err) {
    sw_mover_fail(s->sink.mover, &job->run, err);
}

/* ---- room ---- */

static bool rests(struct sw_frame_sink *sink, uint64_t bytes) {
    return !sw_placement_goes_out(of(sink)->place, bytes);
}

static uint64_t left_of(uint64_t most, uint64_t used) {
    return most > used ? most - used : 0;
}

_Static_assert(SW_TIERS_MAX - 1 <= SW_ROOM_PLACES_MAX, "all tiers but memory");

static void room(struct sw_frame_sink *sink, const struct sw_run *run, struct sw_room *ret) {
    const struct sw_placement *place = of(sink)->place;
    const struct sw_quota *quota = sw_job_of_run(run)->quota;
    ret->memory_bytes = sw_placement_room_bytes(place, 0);
    ret->n_behind = place->tiers.n - 1;
    for (unsigned i = 0; i < ret->n_behind; i++) {
        const struct sw_tier_stats stats = sw_tier_stats_of(place->tiers.at[i + 1]);
        ret->behind[i] = (struct sw_room_place){.bytes = sw_placement_room_bytes(place, i + 1),
                                                .write = (double)stats.write_bytes_per_s,
                                                .read = (double)stats.read_bytes_per_s};
    }
    ret->allowed_bytes = quota && quota->max_bytes ? left_of(quota->max_bytes, atomic_load(&quota->bytes)) : UINT64_MAX;
}

static int reserve(struct sw_frame_sink *sink, struct sw_run *run, uint64_t bytes, bool must_rest,
                   struct sw_stored *ret, struct sw_err *err) {
    struct sw_placement *place = of(sink)->place;
    struct sw_tier *memory = sw_placement_memory(place);
    struct sw_job *job = sw_job_of_run(run);
    const bool goes_on = !must_rest && sw_placement_goes_out(place, bytes);
    int rc = job->quota ? sw_quota_take(job->quota, bytes, err) : 0;
    if (rc)
        return rc;
    rc = goes_on ? sw_placement_stage(place, SW_TIER_WRITE, bytes, ret, err)
                 : memory->ops->reserve(memory, bytes, ret, err);
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

static void release(struct sw_frame_sink *sink, struct sw_stored *stored) {
    if (stored->tier && stored->use != SW_STORED_RESTS)
        sw_placement_arrived(of(sink)->place, stored);
    else
        sw_stored_release(stored);
}

/* ---- out ---- */

static void put(struct sw_frame_sink *sink, struct sw_run *run, size_t chunk, struct sw_stored *stored) {
    struct sw_tier_sink *s = of(sink);
    struct sw_job *job = sw_job_of_run(run);
    struct sw_err err = {0};
    struct sw_transfer *t = transfer_new(s, job, chunk, &err);
    /* Committed here too: what its last block has beyond the frame is then zero, and not another tenant's. */
    if (!t || stored->tier->ops->commit(stored->tier, stored, &err) ||
        sw_placement_reserve_behind(s->place, stored->tier, stored->bytes, &t->target, &err)) {
        fail(s, job, &err);
        sw_free(t);
        release(sink, stored);
        return;
    }
    t->staged = *stored;
    memset(stored, 0, sizeof *stored);
    submit(t, SW_TIER_WRITE, &t->target);
}

/* Makes room for a chunk's new frame. The old one is released at once, or kept until the loop has recorded the new. */
static void replace(struct sw_job *job, size_t chunk) {
    if (job->replaced)
        job->replaced[chunk] = job->run.frames->stored[chunk];
    else
        sw_stored_release(&job->run.frames->stored[chunk]);
}

/* A frame has been written, or not. */
static void arrived_out(struct sw_transfer *t) {
    struct sw_tier_sink *s = t->sink;
    struct sw_job *job = t->job;
    const bool moves = job->run.request->operation == SW_OP_MOVE;
    if (t->io.err.code) {
        fail(s, job, &t->io.err);
        sw_stored_release(&t->target);
    } else {
        if (moves) {
            replace(job, t->chunk);
            if (!t->is_relayed)
                sw_placement_demotion_gets_on(s->place);
        }
        job->run.frames->stored[t->chunk] = t->target;
        sw_mover_stored(s->sink.mover, &job->run);
    }
    if (!moves || t->is_relayed)
        sw_placement_arrived(s->place, &t->staged);
    sw_free(t);
}

/* ---- in ---- */

static bool get(struct sw_frame_sink *sink, struct sw_run *run) {
    struct sw_tier_sink *s = of(sink);
    struct sw_job *job = sw_job_of_run(run);
    bool begun = false;
    while (!run->outcome.err.code && job->n_read < run->frames->n_chunks && job->n_ahead < MAX_READ_AHEAD) {
        struct sw_stored *stored = &run->frames->stored[job->n_read];
        struct sw_err err = {0};
        if (!sw_stored_is_away(stored)) {
            job->n_read++;
            continue;
        }
        struct sw_transfer *t = transfer_new(s, job, job->n_read, &err);
        int rc = t ? sw_placement_stage(s->place, SW_TIER_READ, stored->bytes, &t->staged, &err) : -SW_ENOMEM;
        if (rc) {
            sw_free(t);
            if (rc != -SW_EAGAIN)
                fail(s, job, &err);
            return begun;
        }
        job->n_read++;
        job->n_ahead++;
        run->n_in_sink++;
        submit(t, SW_TIER_READ, stored);
        begun = true;
    }
    return begun;
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

/* A job gives up a frame that was read for it. */
static void forget_ready(struct sw_job *job, struct sw_transfer *t) {
    job->n_ahead--;
    job->run.n_in_sink--;
    sw_list_remove(&t->node);
    sw_free(t);
}

static bool take(struct sw_frame_sink *sink, struct sw_run *run, size_t chunk, struct sw_stored *ret) {
    struct sw_transfer *t = find_ready(sw_job_of_run(run), chunk);
    (void)sink;
    if (!t)
        return false;
    *ret = t->staged;
    forget_ready(t->job, t);
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
    while (!sw_list_empty(&job->ready)) {
        struct sw_transfer *t = SW_CONTAINER_OF(job->ready.next, struct sw_transfer, node);
        release(sink, &t->staged);
        forget_ready(job, t);
    }
}

/* ---- move ---- */

/* Begins to copy a chunk to a tier behind; one that is not in memory is read first. errors: also -SW_EAGAIN. */
static int demote(struct sw_transfer *t, struct sw_err *err) {
    struct sw_placement *place = t->sink->place;
    struct sw_stored *stored = &t->job->run.frames->stored[t->chunk];
    t->is_relayed = sw_stored_is_away(stored);
    int rc = sw_placement_reserve_behind(place, stored->tier, stored->bytes, &t->target, err);
    if (!rc && t->is_relayed)
        rc = sw_placement_stage(place, SW_TIER_WRITE, stored->bytes, &t->staged, err);
    if (rc) {
        sw_stored_release(&t->target);
        return rc;
    }
    if (!t->is_relayed)
        t->staged = *stored; /* stays the region's until the copy is there */
    submit(t, t->is_relayed ? SW_TIER_READ : SW_TIER_WRITE, t->is_relayed ? stored : &t->target);
    return 0;
}

/* Begins to copy a chunk from a tier behind to where it is to rest. */
static int promote(struct sw_transfer *t, struct sw_err *err) {
    struct sw_stored *stored = &t->job->run.frames->stored[t->chunk];
    struct sw_tier *memory = sw_placement_memory(t->sink->place);
    if (sw_placement_goes_out(t->sink->place, stored->bytes))
        return sw_err_set(err, -SW_ENOSPACE, SW_SCOPE_REQUEST, "%s tier is full", memory->kind->name);
    int rc = memory->ops->reserve(memory, stored->bytes, &t->staged, err);
    if (!rc)
        submit(t, SW_TIER_READ, stored);
    return rc;
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

/* A chunk on its way between tiers behind has been read. */
static void arrived_half_way(struct sw_transfer *t) {
    check_frame(t);
    if (!t->io.err.code && !t->staged.tier->ops->commit(t->staged.tier, &t->staged, &t->io.err)) {
        submit(t, SW_TIER_WRITE, &t->target);
        return;
    }
    fail_at(t, 1);
    sw_stored_release(&t->target);
    sw_placement_arrived(t->sink->place, &t->staged);
    sw_free(t);
}

/* Whether the move is not about this chunk: it is where it is to go, or was elsewhere. */
static bool stays(const struct sw_job *job, const struct sw_stored *stored) {
    return job->from ? stored->tier != job->from : !sw_stored_is_away(stored);
}

static bool move(struct sw_frame_sink *sink, struct sw_run *run) {
    struct sw_tier_sink *s = of(sink);
    struct sw_job *job = sw_job_of_run(run);
    bool began = false;
    while (!run->outcome.err.code && run->n_dealt < run->frames->n_chunks && job->n_transfers < MAX_MOVES) {
        struct sw_err err = {0};
        if (stays(job, &run->frames->stored[run->n_dealt])) {
            run->n_dealt++;
            sw_mover_stored(sink->mover, run);
            began = true;
            continue;
        }
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

/* ---- both ---- */

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
        t->job->n_transfers--;
        t->job->run.n_in_sink--;
        s->n_transfers--;
        if (t->io.kind == SW_TIER_WRITE)
            arrived_out(t);
        else if (t->is_relayed)
            arrived_half_way(t);
        else if (t->job->run.request->operation == SW_OP_MOVE)
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
                                             .abandon = abandon,
                                             .has_news = has_news,
                                             .collect = collect};

void sw_tier_sink_init(struct sw_tier_sink *s, struct sw_placement *place, void (*arrived)(void *arg), void *arg) {
    *s = (struct sw_tier_sink){
        .sink = {.ops = &ops, .chunk_bytes = place->chunk_bytes}, .place = place, .arrived = arrived, .arg = arg};
    sw_list_init(&s->ended);
    (void)pthread_mutex_init(&s->lock, NULL);
}

void sw_tier_sink_fini(struct sw_tier_sink *s) {
    SW_ASSERT(s->n_transfers == 0);
    (void)pthread_mutex_destroy(&s->lock);
}
