/* balance.c - keeps each tier but the last below its watermarks: moves regions that have not been used for long to a
 * tier behind; and moves back to the first what clients ask for. A move copies compressed bytes, chunk by chunk;
 * nothing is decoded, and the region stays OUT meanwhile.
 *
 * A restore of a region that is being moved cancels the move and waits for the chunks under way; dropping it leaves its
 * frames to the move. */
#include "spill/engine_state.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/log.h"
#include "spill/balance/policy.h"

#include <string.h>

/* Regions that are moved at once, and one after the other before the books are looked at again. */
enum { MAX_MOVES = 4 };

struct sw_move {
    struct sw_job job; /* comes back from the worker */
    struct sw_request request;
    struct sw_owner *owner;
    struct sw_region *region; /* NULL: dropped meanwhile, the frames are the move's */
};

/* from: of a demotion; NULL: it is a promotion. */
static int start_move(struct sw_engine *engine, struct sw_region *region, struct sw_tier *from) {
    struct sw_move *move = sw_alloc(sizeof *move);
    if (!move)
        return -SW_ENOMEM;
    move->owner = region->owner;
    move->region = region;
    move->request.operation = SW_OP_MOVE;
    move->request.tenant = region->owner->quota;
    sw_job_init_run(&move->job, &move->request, 0);
    move->job.from = from;
    move->job.run.frames = region->frames;
    move->job.region_slot = region->id.slot;
    move->job.region_gen = region->id.gen;
    if (region->record) /* the old frames stay until the record names the new ones */
        move->job.replaced = sw_alloc_array(region->frames->n_chunks, sizeof *move->job.replaced);
    if (region->record && !move->job.replaced) {
        sw_free(move);
        return -SW_ENOMEM;
    }
    region->move = move;
    if (from == sw_placement_memory(&engine->place))
        sw_placement_demotion_begins(&engine->place);
    engine->n_moves++;
    move->owner->n_moves++;
    sw_worker_submit(engine->workers[engine->config.n_devices - 1], &move->job);
    return 0;
}

static size_t candidates(struct sw_engine *engine, unsigned rank, struct sw_policy_candidate *ret, size_t max) {
    size_t n = 0;
    for (struct sw_list *o = engine->owners.next; o != &engine->owners; o = o->next) {
        struct sw_owner *owner = SW_CONTAINER_OF(o, struct sw_owner, node);
        for (struct sw_list *node = owner->regions.next; node != &owner->regions && n < max; node = node->next) {
            const struct sw_region *region = SW_CONTAINER_OF(node, struct sw_region, node);
            const bool rests = region->state == SW_REGION_OUT && !region->op && !region->move &&
                               region->frames->packed == NULL && region->tier_bytes[rank] > 0 &&
                               !sw_owner_is_ending(owner);
            ret[n++] = (struct sw_policy_candidate){.index = region->id.slot,
                                                    .stored_bytes = region->tier_bytes[rank],
                                                    .used_us = region->used_us,
                                                    .priority = region->priority,
                                                    .pinned = region->pinned,
                                                    .rests = rests};
        }
    }
    return n;
}

/* How full a tier is, and is not to be. */
static struct sw_policy_level level_of(const struct sw_engine *engine, unsigned rank) {
    return (struct sw_policy_level){.used_bytes = sw_tier_stats_of(engine->place.tiers.at[rank]).used_bytes,
                                    .limit_bytes = engine->place.limit_bytes[rank],
                                    .high_pct = engine->config.high_pct,
                                    .low_pct = engine->config.low_pct,
                                    .moving = engine->is_demoting[rank]};
}

/* Begins to move what has to leave a tier. Returns how many bytes; 0 also where there is no memory to find out. */
static uint64_t make_room(struct sw_engine *engine, unsigned rank, const struct sw_policy_level *level) {
    size_t victims[MAX_MOVES];
    uint64_t moved_bytes = 0;
    if (sw_policy_excess_bytes(level) == 0 || engine->regions.n_used == 0)
        return 0;
    struct sw_policy_candidate *all = sw_alloc_array(engine->regions.n_used, sizeof *all);
    if (!all)
        return 0;
    const size_t n = candidates(engine, rank, all, engine->regions.n_used);
    const size_t n_victims = sw_policy_victims(level, all, n, victims, MAX_MOVES);
    for (size_t i = 0; i < n_victims; i++) { /* what cannot be started now is looked at another time */
        struct sw_region *region = &engine->regions.regions[all[victims[i]].index];
        if (start_move(engine, region, engine->place.tiers.at[rank]) == 0)
            moved_bytes += all[victims[i]].stored_bytes;
    }
    sw_free(all);
    return moved_bytes;
}

/* An operator's wish counts like a tier that holds just these bytes and is to be empty. */
static void balance_first(struct sw_engine *engine) {
    struct sw_policy_level level = level_of(engine, 0);
    const uint64_t room_bytes = engine->room_bytes, excess_bytes = sw_policy_excess_bytes(&level);
    if (room_bytes > excess_bytes)
        level = (struct sw_policy_level){.used_bytes = room_bytes, .moving = true};
    const uint64_t moved_bytes = make_room(engine, 0, &level);
    engine->is_demoting[0] = moved_bytes > 0 && excess_bytes > 0;
    engine->room_bytes = moved_bytes && moved_bytes < room_bytes ? room_bytes - moved_bytes : 0;
}

void sw_engine_balance(struct sw_engine *engine) {
    if (engine->place.tiers.n < 2 || engine->n_moves > 0 || engine->state != SW_ENGINE_RUNNING)
        return;
    balance_first(engine);
    for (unsigned rank = 1; engine->n_moves == 0 && rank + 1 < engine->place.tiers.n; rank++) {
        const struct sw_policy_level level = level_of(engine, rank);
        engine->is_demoting[rank] = make_room(engine, rank, &level) > 0;
    }
}

void sw_move_cancel(struct sw_move *move) {
    atomic_store(&move->job.signals.cancel, true);
}

void sw_move_orphan(struct sw_region *region) {
    sw_move_cancel(region->move);
    region->move->region = NULL;
    region->move = NULL;
    region->frames = NULL;
}

static bool has_failed(const struct sw_job *job) {
    return job->run.outcome.err.code && job->run.outcome.err.code != -SW_ECANCELED;
}

/* The frames that were replaced can go once the record names those in their place; where it cannot be written, these go
 * instead, and the move has failed. */
static void settle_replaced(struct sw_region *region, struct sw_job *job) {
    struct sw_err err = {0};
    bool any = false;
    for (size_t i = 0; job->replaced && i < job->run.frames->n_chunks; i++)
        any |= job->replaced[i].tier != NULL;
    if (any && region)
        (void)sw_region_record(region, &err);
    if (err.code && !has_failed(job))
        job->run.outcome.err = err;
    for (size_t i = 0; any && i < job->run.frames->n_chunks; i++) {
        if (!job->replaced[i].tier)
            continue;
        if (err.code) {
            const struct sw_stored moved = job->run.frames->stored[i];
            job->run.frames->stored[i] = job->replaced[i];
            job->replaced[i] = moved;
        }
        sw_stored_release(&job->replaced[i]);
    }
    sw_free(job->replaced);
}

void sw_move_ended(struct sw_job *job) {
    struct sw_move *move = SW_CONTAINER_OF(job, struct sw_move, job);
    struct sw_owner *owner = move->owner;
    struct sw_engine *engine = owner->engine;
    struct sw_region *region = move->region;
    const bool makes_room = job->from == sw_placement_memory(&engine->place);
    engine->n_moves--;
    owner->n_moves--;
    sw_engine_report_bad_frame(owner, (struct sw_region_id){job->region_slot, job->region_gen}, job->run.frames,
                               &job->run.outcome);
    settle_replaced(region, job);
    const bool failed = has_failed(job);
    if (!job->run.outcome.err.code)
        ++*(job->from ? &engine->counters.demotions : &engine->counters.promotions);
    if (failed)
        sw_log(SW_LOG_DEBUG, "region.move_failed", "region=%u:%u name=%s text=\"%s\"", job->region_slot,
               job->region_gen, sw_err_name(job->run.outcome.err.code), job->run.outcome.err.msg);
    if (!region) {
        sw_frames_free(job->run.frames);
    } else {
        region->move = NULL;
        region->tier = sw_frames_tier(region->frames, region->tier_bytes);
        if (!job->from)
            region->used_us = sw_clock_us(); /* not to be the first to leave again */
        if (region->op)
            sw_op_post(region->op); /* has waited for this */
    }
    sw_free(move);
    sw_owner_settle(owner);
    if (failed) { /* a full or broken tier: not again until the next spill */
        memset(engine->is_demoting, 0, sizeof engine->is_demoting);
        engine->room_bytes = 0;
    } else {
        sw_engine_balance(engine);
    }
    if (makes_room) /* not before the next has begun: who waits for room waits on */
        sw_placement_demotion_ended(&engine->place);
}

void sw_move_follow(struct sw_move *move) {
    move->owner->n_moves--;
    move->owner = move->region->owner;
    move->owner->n_moves++;
}

/* Stored bytes of a region, at rest, that lie behind the first tier. */
static uint64_t bytes_behind(const struct sw_region *region) {
    uint64_t bytes = 0;
    for (unsigned i = 1; i < SW_TIERS_MAX; i++)
        bytes += region->tier_bytes[i];
    return bytes;
}

static int refuse_moving(const struct sw_region *region, struct sw_err *err) {
    return sw_err_set(err, -SW_EBUSY, SW_SCOPE_REQUEST, "region %u:%u is being moved", region->id.slot, region->id.gen);
}

static int begin_move(struct sw_engine *engine, struct sw_region *region, struct sw_tier *from, struct sw_err *err) {
    if (start_move(engine, region, from))
        return sw_err_set(err, -SW_ENOMEM, SW_SCOPE_REQUEST, "out of memory for a move");
    return 0;
}

static int prefetch(struct sw_engine *engine, struct sw_region *region, struct sw_err *err) {
    if (region->move)
        return refuse_moving(region, err);
    const uint64_t bytes = bytes_behind(region);
    if (bytes == 0)
        return 0;
    if (sw_placement_goes_out(&engine->place, bytes))
        return sw_err_set(err, -SW_ENOSPACE, SW_SCOPE_REQUEST, "%s tier has no room for %llu bytes",
                          sw_placement_memory(&engine->place)->kind->name, (unsigned long long)bytes);
    return begin_move(engine, region, NULL, err);
}

static int demote(struct sw_engine *engine, struct sw_region *region, struct sw_err *err) {
    struct sw_tier *from = sw_placement_memory(&engine->place);
    if (engine->place.tiers.n < 2)
        return sw_err_set(err, -SW_ENOTSUP, SW_SCOPE_REQUEST, "there is no tier behind %s", from->kind->name);
    if (region->frames->packed)
        return sw_err_set(err, -SW_EINVAL, SW_SCOPE_REQUEST, "region %u:%u is packed in its client's memory",
                          region->id.slot, region->id.gen);
    if (region->move)
        return refuse_moving(region, err);
    return region->tier_bytes[0] ? begin_move(engine, region, from, err) : 0;
}

int sw_engine_advise(struct sw_owner *owner, struct sw_region_id id, enum sw_advice advice, uint32_t value,
                     struct sw_err *err) {
    static const uint32_t most[] = {
        [SW_ADVISE_PRIORITY] = UINT8_MAX, [SW_ADVISE_PIN] = 1, [SW_ADVISE_PREFETCH] = 0, [SW_ADVISE_DEMOTE] = 0};
    struct sw_region *region;
    int rc = sw_engine_find(owner, id, &region, err);
    if (rc)
        return rc;
    if (value > most[advice])
        return sw_err_set(err, -SW_EINVAL, SW_SCOPE_REQUEST, "value %u of an advice, at most %u is known", value,
                          most[advice]);
    if (region->state == SW_REGION_LOST)
        return sw_err_set(err, -SW_ELOST, SW_SCOPE_REGION, "region %u:%u was found damaged", id.slot, id.gen);
    if (region->state != SW_REGION_OUT)
        return sw_err_set(err, -SW_EBUSY, SW_SCOPE_REQUEST, "region %u:%u is %s", id.slot, id.gen,
                          sw_region_state_name(region->state));
    if (advice == SW_ADVISE_PRIORITY)
        region->priority = (uint8_t)value;
    else if (advice == SW_ADVISE_PIN)
        region->pinned = value != 0;
    else
        rc = advice == SW_ADVISE_PREFETCH ? prefetch(owner->engine, region, err) : demote(owner->engine, region, err);
    sw_region_record_hints(region);
    return rc;
}
