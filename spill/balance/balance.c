#include "spill/balance/balance.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/log.h"
#include "spill/balance/policy.h"
#include "spill/journal/keeper.h"
#include "spill/journal/record.h"
#include "spill/store/owner.h"

#include <string.h>

/* Regions that are moved at once before the state is looked at again: a few of any length, or more if they are short. A
 * store behind a network takes about as long for any short region, so these have to be many. */
enum { FEW_MOVES = 4, MAX_MOVES = 1024, SHORT_MOVES_BYTES = 64 << 20 };

struct move {
    struct sw_balance *balance;
    struct sw_frames *replaced; /* of a region that tiers keep, while the next one takes it over */
    struct sw_tier *keeper;     /* that has kept it ... */
    uint64_t kept;              /* ... under this record */
    struct sw_move known;       /* known to the store */
    struct sw_worker *worker;
    uint64_t bytes;    /* that the region has stored */
    struct sw_job job; /* comes back from the worker */
    struct sw_request request;
};

static void cancel(struct sw_move *known) {
    struct move *move = SW_CONTAINER_OF(known, struct move, known);
    sw_worker_cancel(move->worker, &move->job);
}

static bool may_begin(const struct sw_balance *balance) {
    return balance->n_moves < (balance->moving_bytes < SHORT_MOVES_BYTES ? MAX_MOVES : FEW_MOVES);
}

static uint64_t stored_bytes(const struct sw_region *region) {
    uint64_t bytes = 0;
    for (unsigned i = 0; i < SW_TIERS_MAX; i++)
        bytes += region->tier_bytes[i];
    return bytes;
}

/* from: the tier to demote from, to one behind `behind`; NULL: a promotion. */
static int start_move(struct sw_balance *balance, struct sw_region *region, struct sw_tier *from,
                      const struct sw_tier *behind) {
    struct move *move = sw_alloc(sizeof *move);
    if (!move)
        return -SW_ENOMEM;
    move->balance = balance;
    move->known = (struct sw_move){
        .owner = region->owner, .region = region, .cancel = cancel, .moved_bytes = &move->job.signals.moved_bytes};
    move->worker = balance->worker;
    move->request.operation = SW_OP_MOVE;
    move->request.tenant = region->owner->quota;
    sw_job_init_run(&move->job, &move->request, 0);
    move->job.from = from;
    move->job.behind = behind;
    move->job.run.frames = region->frames;
    move->job.region_slot = region->id.slot;
    move->job.region_gen = region->id.gen;
    move->job.durability = region->kept ? region->durability : SW_DURABILITY_SERVICE;
    if (region->record || region->kept) /* the old frames stay until the record names the new ones */
        move->job.replaced = sw_alloc_array(region->frames->n_chunks, sizeof *move->job.replaced);
    if ((region->record || region->kept) && !move->job.replaced) {
        sw_free(move);
        return -SW_ENOMEM;
    }
    region->move = &move->known;
    if (from == sw_placement_memory(&balance->store->place))
        sw_placement_demotion_begins(&balance->store->place);
    move->bytes = stored_bytes(region);
    balance->moving_bytes += move->bytes;
    balance->n_moves++;
    region->owner->n_moves++;
    sw_worker_submit(balance->worker, &move->job);
    return 0;
}

static bool rests(const struct sw_region *region, unsigned rank) {
    return region->state == SW_REGION_OUT && !region->op && !region->move && region->frames->packed == NULL &&
           region->tier_bytes[rank] > 0 && !sw_owner_is_ending(region->owner);
}

static size_t candidates(struct sw_balance *balance, unsigned rank, struct sw_policy_candidate *ret, size_t max) {
    size_t n = 0;
    for (struct sw_list *o = balance->store->owners.next; o != &balance->store->owners; o = o->next) {
        struct sw_owner *owner = SW_CONTAINER_OF(o, struct sw_owner, node);
        for (struct sw_list *node = owner->regions.next; node != &owner->regions && n < max; node = node->next) {
            const struct sw_region *region = SW_CONTAINER_OF(node, struct sw_region, node);
            ret[n++] = (struct sw_policy_candidate){.index = region->id.slot,
                                                    .stored_bytes = region->tier_bytes[rank],
                                                    .used_us = region->used_us,
                                                    .priority = region->priority,
                                                    .pinned = region->pinned,
                                                    .rests = !region->kept && rests(region, rank)};
        }
    }
    return n;
}

/* Returns how full a tier is, and its watermarks. */
static struct sw_policy_level level_of(const struct sw_balance *balance, unsigned rank) {
    return (struct sw_policy_level){.used_bytes = sw_tier_stats_of(balance->store->place.tiers.at[rank]).used_bytes,
                                    .limit_bytes = balance->store->place.limit_bytes[rank],
                                    .high_pct = balance->high_pct,
                                    .low_pct = balance->low_pct,
                                    .moving = balance->is_demoting[rank]};
}

/* Begins to move regions that have to leave a tier. Returns how many bytes; 0 also if there is no memory to choose
 * them. */
static uint64_t make_room(struct sw_balance *balance, unsigned rank, const struct sw_policy_level *level) {
    size_t victims[MAX_MOVES];
    uint64_t moved_bytes = 0;
    if (sw_policy_excess_bytes(level) == 0 || balance->store->regions.n_used == 0)
        return 0;
    struct sw_policy_candidate *all = sw_alloc_array(balance->store->regions.n_used, sizeof *all);
    if (!all)
        return 0;
    const size_t n = candidates(balance, rank, all, balance->store->regions.n_used);
    const size_t n_victims = sw_policy_victims(level, all, n, victims, MAX_MOVES);
    /* A move that cannot start now is tried another time. */
    for (size_t i = 0; i < n_victims && may_begin(balance); i++) {
        struct sw_region *region = &balance->store->regions.regions[all[victims[i]].index];
        struct sw_tier *from = balance->store->place.tiers.at[rank];
        if (start_move(balance, region, from, from) == 0)
            moved_bytes += all[victims[i]].stored_bytes;
    }
    sw_free(all);
    return moved_bytes;
}

/* An operator's request counts like a tier that holds just these bytes and has to become empty. */
static void balance_first(struct sw_balance *balance) {
    struct sw_policy_level level = level_of(balance, 0);
    const uint64_t room_bytes = balance->room_bytes, excess_bytes = sw_policy_excess_bytes(&level);
    if (room_bytes > excess_bytes)
        level = (struct sw_policy_level){.used_bytes = room_bytes, .moving = true};
    const uint64_t moved_bytes = make_room(balance, 0, &level);
    balance->is_demoting[0] = moved_bytes > 0 && excess_bytes > 0;
    balance->room_bytes = moved_bytes && moved_bytes < room_bytes ? room_bytes - moved_bytes : 0;
}

/* ---- drain ---- */

static void end_drain(struct sw_balance *balance, const struct sw_err *err) {
    if (!balance->drain_to)
        return;
    sw_log(SW_LOG_WARNING, "drain.failed", "to=%s name=%s text=\"%s\" then=\"regions stay where they are\"",
           balance->drain_to->kind->name, sw_err_name(err->code), err->msg);
    balance->drain_to = NULL;
    balance->drain_err = *err;
}

/* Returns whether a drain takes the region along: one that a tier keeps, only to a tier that keeps it better. */
static bool leaves(const struct sw_balance *balance, const struct sw_region *region) {
    return region->owner && (!region->kept || balance->drain_to->kind->durability > region->keeper->kind->durability);
}

/* Begins the next moves. */
static void drain(struct sw_balance *balance) {
    const struct sw_tiers *tiers = &balance->store->place.tiers;
    const struct sw_region_table *table = &balance->store->regions;
    for (unsigned rank = 0; balance->drain_to && rank < balance->drain_to->rank; rank++)
        for (uint32_t i = 0; balance->drain_to && i < table->n_touched && may_begin(balance); i++) {
            struct sw_region *region = &table->regions[i];
            struct sw_err err = {0};
            if (leaves(balance, region) && rests(region, rank) &&
                start_move(balance, region, tiers->at[rank], tiers->at[balance->drain_to->rank - 1])) {
                (void)sw_err_set(&err, -SW_ENOMEM, SW_SCOPE_REQUEST, "out of memory for a move");
                end_drain(balance, &err);
            }
        }
}

uint64_t sw_balance_drain_left(const struct sw_balance *balance) {
    const struct sw_region_table *table = &balance->store->regions;
    uint64_t bytes = 0;
    for (unsigned rank = 0; balance->drain_to && rank < balance->drain_to->rank; rank++)
        for (uint32_t i = 0; i < table->n_touched; i++)
            bytes += leaves(balance, &table->regions[i]) ? table->regions[i].tier_bytes[rank] : 0;
    return bytes;
}

void sw_balance_drain(struct sw_balance *balance, struct sw_tier *to) {
    balance->drain_to = to;
    memset(&balance->drain_err, 0, sizeof balance->drain_err);
    sw_balance_look(balance);
}

/* ---- waste ---- */

/* Returns whether frames of the region keep much more room in a tier than they need (sw_tier_ops.is_wasteful). */
static bool is_wasteful(const struct sw_region *region, struct sw_tier *tier) {
    bool is = false;
    for (size_t i = 0; !is && i < region->frames->n_chunks; i++)
        is = region->frames->stored[i].tier == tier && tier->ops->is_wasteful(tier, &region->frames->stored[i]);
    return is;
}

/* Begins to bring such regions back to memory, as far as it has room. From there they leave again, with others. */
static void end_waste(struct sw_balance *balance, unsigned rank) {
    struct sw_tier *tier = balance->store->place.tiers.at[rank];
    const struct sw_region_table *table = &balance->store->regions;
    if (sw_tier_stats_of(tier).wasteful_bytes == 0 || sw_placement_goes_out(&balance->store->place, 1))
        return;
    for (uint32_t i = 0; i < table->n_touched && may_begin(balance); i++) {
        struct sw_region *region = &table->regions[i];
        if (region->owner && !region->kept && rests(region, rank) && is_wasteful(region, tier) &&
            (sw_placement_goes_out(&balance->store->place, region->tier_bytes[rank]) ||
             start_move(balance, region, NULL, NULL)))
            return;
    }
}

void sw_balance_look(struct sw_balance *balance) {
    if (balance->store->place.tiers.n < 2 || balance->n_moves > 0)
        return;
    drain(balance);
    if (balance->n_moves > 0)
        return;
    balance_first(balance);
    for (unsigned rank = 1; balance->n_moves == 0 && rank + 1 < balance->store->place.tiers.n; rank++) {
        const struct sw_policy_level level = level_of(balance, rank);
        balance->is_demoting[rank] = make_room(balance, rank, &level) > 0;
    }
    for (unsigned rank = 1; balance->n_moves == 0 && rank < balance->store->place.tiers.n; rank++)
        end_waste(balance, rank);
}

static bool has_failed(const struct sw_job *job) {
    return job->run.outcome.err.code && job->run.outcome.err.code != -SW_ECANCELED;
}

/* Replaced frames are released once the record names the new ones. If the record cannot be written, the new ones are
 * released instead, and the move has failed. */
static void settle_replaced(struct sw_catalogue *catalogue, struct sw_region *region, struct sw_job *job) {
    struct sw_err err = {0};
    bool any = false;
    for (size_t i = 0; job->replaced && i < job->run.frames->n_chunks; i++)
        any |= job->replaced[i].tier != NULL;
    if (any && region)
        (void)sw_region_record(catalogue, region, &err);
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

static void end_move(struct move *move) {
    struct sw_balance *balance = move->balance;
    struct sw_job *job = &move->job;
    struct sw_owner *owner = move->known.owner;
    struct sw_region *region = move->known.region;
    const bool makes_room = job->from == sw_placement_memory(&balance->store->place);
    const bool failed = has_failed(job);
    const struct sw_err failure = job->run.outcome.err;
    balance->moving_bytes -= move->bytes;
    balance->n_moves--;
    owner->n_moves--;
    if (!failure.code)
        ++*(job->from ? &balance->demotions : &balance->promotions);
    if (failed)
        sw_log(SW_LOG_DEBUG, "region.move_failed", "region=%u:%u name=%s text=\"%s\"", job->region_slot,
               job->region_gen, sw_err_name(failure.code), failure.msg);
    if (!region) {
        sw_frames_free(job->run.frames);
    } else {
        region->move = NULL;
        region->tier = sw_frames_tier(region->frames, region->tier_bytes);
        if (!job->from)
            region->used_us = sw_clock_us(); /* so that it is not the first to leave again */
        balance->moved(region);
    }
    sw_free(move);
    sw_owner_settle(owner);
    if (failed) { /* a full or broken tier: not again until the next spill */
        memset(balance->is_demoting, 0, sizeof balance->is_demoting);
        balance->room_bytes = 0;
        end_drain(balance, &failure);
    } else {
        sw_balance_look(balance);
    }
    if (makes_room) /* after the next move has begun, so that operations waiting for room wait on */
        sw_placement_demotion_ended(&balance->store->place);
}

/* ---- regions that a tier keeps ---- */

/* The new frames take the place of the old ones, or make way for them again. */
static void exchange(struct sw_frames *frames, struct sw_frames *others) {
    for (size_t i = 0; i < frames->n_chunks; i++) {
        const struct sw_stored stored = frames->stored[i];
        if (!others->stored[i].tier)
            continue;
        frames->stored[i] = others->stored[i];
        others->stored[i] = stored;
    }
}

/* The next keeper has the region, or not. It may have the record although it could not say so: the next start finds
 * out that the other record's frames are the whole ones. */
static void taken_over(const struct sw_err *err, void *arg) {
    struct move *move = arg;
    struct sw_region *region = move->known.region;
    struct sw_balance *balance = move->balance;
    struct sw_err failure = *err;
    if (!failure.code && region->record && sw_region_record(balance->catalogue, region, &failure)) {
        exchange(region->frames, move->replaced);
        sw_keeper_forget(balance->store->keeper, region->keeper, region->kept, move->replaced, 0);
        region->keeper = move->keeper;
        region->kept = move->kept;
        region->durability = move->keeper->kind->durability;
    } else if (failure.code) {
        exchange(region->frames, move->replaced);
        sw_frames_free(move->replaced);
    } else {
        sw_keeper_forget(balance->store->keeper, move->keeper, move->kept, move->replaced, 0);
    }
    if (failure.code)
        move->job.run.outcome.err = failure;
    end_move(move);
}

/* Makes the tier that holds all frames keep the region. Returns false if no tier holds all of them, or the change
 * cannot begin. Then the old frames are in their place again. */
static bool take_over(struct move *move) {
    struct sw_region *region = move->known.region;
    struct sw_job *job = &move->job;
    const size_t n = region->frames->n_chunks;
    struct sw_tier *to = region->frames->stored[0].tier;
    bool whole = !job->run.outcome.err.code && to->kind->durability > region->keeper->kind->durability;
    for (size_t i = 0; i < n; i++)
        whole = whole && region->frames->stored[i].tier == to;
    move->keeper = region->keeper;
    move->kept = region->kept;
    move->replaced = whole ? sw_frames_new(n, 1, false) : NULL;
    if (move->replaced) {
        memcpy(move->replaced->stored, job->replaced, n * sizeof job->replaced[0]);
        if (sw_keeper_move(move->balance->store->keeper, region, to, taken_over, move, &job->run.outcome.err) == 0) {
            sw_free(job->replaced);
            return true;
        }
        sw_frames_delete(move->replaced);
    }
    for (size_t i = 0; i < n; i++) {
        struct sw_stored moved = region->frames->stored[i];
        if (!job->replaced[i].tier)
            continue;
        region->frames->stored[i] = job->replaced[i];
        sw_stored_release(&moved);
    }
    sw_free(job->replaced);
    return false;
}

void sw_balance_move_ended(struct sw_balance *balance, struct sw_job *job) {
    struct move *move = SW_CONTAINER_OF(job, struct move, job);
    struct sw_region *region = move->known.region;
    sw_damage_report(&balance->store->observer, (struct sw_region_id){job->region_slot, job->region_gen},
                     job->run.frames, &job->run.outcome);
    if (region && region->kept) {
        if (take_over(move))
            return;
    } else {
        settle_replaced(balance->catalogue, region, job);
    }
    end_move(move);
}

/* Returns the stored bytes of a region, at rest, in tiers after the first. */
static uint64_t bytes_behind(const struct sw_region *region) {
    return stored_bytes(region) - region->tier_bytes[0];
}

static int refuse_moving(const struct sw_region *region, struct sw_err *err) {
    return sw_err_set(err, -SW_EBUSY, SW_SCOPE_REQUEST, "region %u:%u is being moved", region->id.slot, region->id.gen);
}

static int begin_move(struct sw_balance *balance, struct sw_region *region, struct sw_tier *from, struct sw_err *err) {
    if (start_move(balance, region, from, from))
        return sw_err_set(err, -SW_ENOMEM, SW_SCOPE_REQUEST, "out of memory for a move");
    return 0;
}

int sw_balance_prefetch(struct sw_balance *balance, struct sw_region *region, struct sw_err *err) {
    if (region->move)
        return refuse_moving(region, err);
    const uint64_t bytes = bytes_behind(region);
    if (bytes == 0 || region->kept) /* its record names the places of its frames */
        return 0;
    if (sw_placement_goes_out(&balance->store->place, bytes))
        return sw_err_set(err, -SW_ENOSPACE, SW_SCOPE_REQUEST, "%s tier has no room for %llu bytes",
                          sw_placement_memory(&balance->store->place)->kind->name, (unsigned long long)bytes);
    return begin_move(balance, region, NULL, err);
}

int sw_balance_demote(struct sw_balance *balance, struct sw_region *region, struct sw_err *err) {
    struct sw_tier *from = sw_placement_memory(&balance->store->place);
    if (balance->store->place.tiers.n < 2)
        return sw_err_set(err, -SW_ENOTSUP, SW_SCOPE_REQUEST, "there is no tier behind %s", from->kind->name);
    if (region->frames->packed)
        return sw_err_set(err, -SW_EINVAL, SW_SCOPE_REQUEST, "region %u:%u is packed in its client's memory",
                          region->id.slot, region->id.gen);
    if (region->move)
        return refuse_moving(region, err);
    return region->tier_bytes[0] ? begin_move(balance, region, from, err) : 0;
}
