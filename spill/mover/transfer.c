#include "spill/mover/transfer.h"

#include "base/alloc.h"
#include "base/assert.h"
#include "spill/tier/frame_key.h"

#include <string.h>

/* Chunks of one job that are read or written at once: with 1 MiB requests enough for any disk's queue. */
enum { MAX_READ_AHEAD = 6, MAX_MOVES = 4 };

struct sw_transfer {
    struct sw_list node; /* of the mover's `arrived`, or of the job's `ready` */
    struct sw_tier_io io;
    struct sw_mover *mover;
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
    const struct sw_frames *frames = t->job->frames;
    if (t->io.err.code)
        return;
    const bool is_frame = frames->identities[t->chunk] ? sw_frames_check_memory(frames, t->chunk, &t->staged, NULL) == 0
                                                       : sw_tier_key_fits(&t->staged, key.check);
    if (!is_frame)
        (void)sw_err_set(&t->io.err, -SW_ECHECKSUM, SW_SCOPE_REGION,
                         "chunk %zu is not in its place in the %s tier: a write of it was lost, or one of another",
                         t->chunk, t->io.stored->tier->kind->name);
}

/* On the tier's thread, which outlives the mover. Once the lock is open the worker may take the transfer, and if
 * that was the last one of a service that stops, the mover and the sink are freed: nothing of them is touched then.
 */
static void on_done(struct sw_tier_io *io, void *arg) {
    struct sw_transfer *t = arg;
    struct sw_mover *m = t->mover;
    (void)io;
    (void)pthread_mutex_lock(&m->arrived_lock);
    sw_list_append(&m->arrived, &t->node);
    atomic_store(&m->has_arrived, true);
    m->sink.arrived(m->sink.arg);
    (void)pthread_mutex_unlock(&m->arrived_lock);
}

static struct sw_transfer *transfer_new(struct sw_mover *m, struct sw_job *job, size_t chunk, struct sw_err *err) {
    struct sw_transfer *t = sw_alloc(sizeof *t);
    if (!t) {
        (void)sw_err_set(err, -SW_ENOMEM, SW_SCOPE_REQUEST, "out of memory for a transfer");
        return NULL;
    }
    t->mover = m;
    t->job = job;
    t->chunk = chunk;
    sw_list_init(&t->node);
    return t;
}

static uint64_t check_of(const struct sw_transfer *t) {
    return sw_tier_key_check(&t->staged, &t->job->frames->layouts[t->chunk]);
}

static void submit(struct sw_transfer *t, enum sw_tier_io_kind kind, struct sw_stored *in_tier) {
    const struct sw_tier_key key = {.slot = t->job->region_slot,
                                    .gen = t->job->region_gen,
                                    .chunk = sw_frames_key(t->job->frames, t->chunk),
                                    .check = kind == SW_TIER_WRITE ? check_of(t) : 0, /* a read brings it */
                                    .epoch = t->mover->place->epoch};
    t->io.kind = kind;
    t->io.stored = in_tier;
    t->io.memory = t->staged.extents;
    t->io.n_memory = t->staged.n_extents;
    t->io.done = on_done;
    t->io.arg = t;
    memcpy(t->io.key, &key, sizeof key);
    t->job->n_transfers++;
    t->mover->n_transfers++;
    in_tier->tier->ops->submit(in_tier->tier, &t->io);
}

/* ---- out ---- */

void sw_transfer_out(struct sw_mover *m, struct sw_slot *slot) {
    struct sw_job *job = slot->job;
    struct sw_err err = {0};
    struct sw_transfer *t = transfer_new(m, job, slot->chunk, &err);
    /* Committed here too: what its last block has beyond the frame is then zero, and not another tenant's. */
    if (!t || slot->stored.tier->ops->commit(slot->stored.tier, &slot->stored, &err) ||
        sw_placement_reserve_behind(m->place, slot->stored.tier, slot->stored.bytes, &t->target, &err)) {
        sw_mover_fail(m, job, &err);
        sw_free(t);
        sw_slot_give(m, slot);
        return;
    }
    t->staged = slot->stored;
    memset(&slot->stored, 0, sizeof slot->stored);
    sw_slot_give(m, slot);
    job->frames->identities[t->chunk] = sw_frames_identify(job->frames, t->chunk, &t->staged);
    submit(t, SW_TIER_WRITE, &t->target);
}

/* Makes room for a chunk's new frame. The old one is released at once, or kept until the loop has recorded the new. */
static void replace(struct sw_job *job, size_t chunk) {
    if (job->replaced)
        job->replaced[chunk] = job->frames->stored[chunk];
    else
        sw_stored_release(&job->frames->stored[chunk]);
}

/* A frame has been written, or not. */
static void arrived_out(struct sw_transfer *t) {
    struct sw_mover *m = t->mover;
    struct sw_job *job = t->job;
    struct sw_stored *stored = &job->frames->stored[t->chunk];
    const bool moves = job->kind == SW_JOB_DEMOTE;
    if (t->io.err.code) {
        sw_mover_fail(m, job, &t->io.err);
        sw_stored_release(&t->target);
    } else {
        if (moves) {
            replace(job, t->chunk);
            if (!t->is_relayed)
                sw_placement_demotion_gets_on(m->place);
        }
        *stored = t->target;
        job->n_done++;
    }
    if (!moves || t->is_relayed)
        sw_placement_arrived(m->place, SW_TIER_WRITE, &t->staged);
    sw_free(t);
}

/* ---- in ---- */

bool sw_transfer_read_ahead(struct sw_mover *m, struct sw_job *job) {
    bool begun = false;
    while (!job->err.code && job->n_read < job->frames->n_chunks && job->n_ahead < MAX_READ_AHEAD) {
        struct sw_stored *stored = &job->frames->stored[job->n_read];
        struct sw_err err = {0};
        if (!sw_stored_is_away(stored)) {
            job->n_read++;
            continue;
        }
        struct sw_transfer *t = transfer_new(m, job, job->n_read, &err);
        int rc = t ? sw_placement_stage(m->place, SW_TIER_READ, stored->bytes, &t->staged, &err) : -SW_ENOMEM;
        if (rc) {
            sw_free(t);
            if (rc != -SW_EAGAIN)
                sw_mover_fail(m, job, &err);
            return begun;
        }
        job->n_read++;
        job->n_ahead++;
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

bool sw_transfer_is_at_hand(const struct sw_job *job, size_t chunk) {
    return !sw_stored_is_away(&job->frames->stored[chunk]) || find_ready(job, chunk);
}

void sw_transfer_take(struct sw_job *job, struct sw_slot *slot) {
    struct sw_transfer *t = find_ready(job, slot->chunk);
    if (!t)
        return;
    slot->stored = t->staged;
    slot->is_staged = true;
    job->n_ahead--;
    sw_list_remove(&t->node);
    sw_free(t);
}

static void arrived_in(struct sw_transfer *t) {
    check_frame(t);
    if (t->io.err.code)
        sw_mover_fail_at(t->mover, t->job, t->chunk, 1, &t->io.err);
    sw_list_append(&t->job->ready, &t->node);
    sw_turns_wake(&t->mover->turns, &t->job->turn);
}

void sw_transfer_abandon(struct sw_mover *m, struct sw_job *job) {
    struct sw_list *node;
    while ((node = sw_list_take_first(&job->ready))) {
        struct sw_transfer *t = SW_CONTAINER_OF(node, struct sw_transfer, node);
        sw_placement_arrived(m->place, SW_TIER_READ, &t->staged);
        job->n_ahead--;
        sw_free(t);
    }
}

/* ---- move ---- */

/* Begins to copy a chunk to a tier behind; one that is not in memory is read first. errors: also -SW_EAGAIN. */
static int demote(struct sw_mover *m, struct sw_job *job, struct sw_transfer *t, struct sw_err *err) {
    struct sw_stored *stored = &job->frames->stored[t->chunk];
    t->is_relayed = sw_stored_is_away(stored);
    int rc = sw_placement_reserve_behind(m->place, stored->tier, stored->bytes, &t->target, err);
    if (!rc && t->is_relayed)
        rc = sw_placement_stage(m->place, SW_TIER_WRITE, stored->bytes, &t->staged, err);
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
static int promote(struct sw_mover *m, struct sw_job *job, struct sw_transfer *t, struct sw_err *err) {
    struct sw_stored *stored = &job->frames->stored[t->chunk];
    struct sw_tier *memory = sw_placement_memory(m->place);
    if (sw_placement_goes_out(m->place, stored->bytes))
        return sw_err_set(err, -SW_ENOSPACE, SW_SCOPE_REQUEST, "%s tier is full", memory->kind->name);
    int rc = memory->ops->reserve(memory, stored->bytes, &t->staged, err);
    if (!rc)
        submit(t, SW_TIER_READ, stored);
    return rc;
}

static void arrived_promoted(struct sw_transfer *t) {
    struct sw_job *job = t->job;
    struct sw_stored *stored = &job->frames->stored[t->chunk];
    check_frame(t);
    if (t->io.err.code || t->staged.tier->ops->commit(t->staged.tier, &t->staged, &t->io.err)) {
        sw_mover_fail_at(t->mover, job, t->chunk, 1, &t->io.err);
        sw_stored_release(&t->staged);
    } else {
        replace(job, t->chunk);
        *stored = t->staged;
        job->n_done++;
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
    sw_mover_fail_at(t->mover, t->job, t->chunk, 1, &t->io.err);
    sw_stored_release(&t->target);
    sw_placement_arrived(t->mover->place, SW_TIER_WRITE, &t->staged);
    sw_free(t);
}

/* Whether the move is not about this chunk: it is where it is to go, or was elsewhere. */
static bool stays(const struct sw_job *job, const struct sw_stored *stored) {
    return job->kind == SW_JOB_DEMOTE ? stored->tier != job->from : !sw_stored_is_away(stored);
}

bool sw_transfer_move(struct sw_mover *m, struct sw_job *job) {
    const bool down = job->kind == SW_JOB_DEMOTE;
    bool began = false;
    while (!job->err.code && job->n_dealt < job->frames->n_chunks && job->n_transfers < MAX_MOVES) {
        const struct sw_stored *stored = &job->frames->stored[job->n_dealt];
        struct sw_err err = {0};
        if (stays(job, stored)) {
            job->n_dealt++;
            job->n_done++;
            began = true;
            continue;
        }
        struct sw_transfer *t = transfer_new(m, job, job->n_dealt, &err);
        const int rc = !t ? -SW_ENOMEM : down ? demote(m, job, t, &err) : promote(m, job, t, &err);
        if (rc) {
            sw_free(t);
            if (rc == -SW_EAGAIN)
                return began;
            sw_mover_fail(m, job, &err);
            return true;
        }
        began = true;
        job->n_dealt++;
    }
    return began;
}

/* ---- both ---- */

bool sw_transfer_collect(struct sw_mover *m) {
    bool any = false;
    atomic_store(&m->has_arrived, false);
    for (;;) {
        (void)pthread_mutex_lock(&m->arrived_lock);
        struct sw_list *node = sw_list_take_first(&m->arrived);
        (void)pthread_mutex_unlock(&m->arrived_lock);
        if (!node)
            return any;
        struct sw_transfer *t = SW_CONTAINER_OF(node, struct sw_transfer, node);
        sw_list_init(&t->node);
        t->job->n_transfers--;
        m->n_transfers--;
        if (t->io.kind == SW_TIER_WRITE)
            arrived_out(t);
        else if (t->job->kind == SW_JOB_PROMOTE)
            arrived_promoted(t);
        else if (t->is_relayed)
            arrived_half_way(t);
        else
            arrived_in(t);
        any = true;
    }
}
