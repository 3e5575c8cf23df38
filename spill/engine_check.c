/* engine_check.c - audits the books: every count against its list, every region against the tiers. */
#include "spill/engine_state.h"

#include "base/assert.h"

#define BLOCK_BYTES 4096u

struct tally {
    uint64_t owners, ops, mems, regions;
    struct {
        uint64_t frames, bytes;
    } tiers[SW_TIERS_MAX];
};

static void check_frame(const struct sw_stored *frame, struct tally *tally) {
    uint64_t bytes = 0;
    SW_ASSERT(frame->committed && frame->n_extents > 0);
    for (unsigned e = 0; e < frame->n_extents; e++)
        bytes += frame->extents[e].bytes;
    SW_ASSERT(bytes == frame->bytes);
    tally->tiers[frame->tier->rank].bytes += (bytes + BLOCK_BYTES - 1) / BLOCK_BYTES * BLOCK_BYTES;
    tally->tiers[frame->tier->rank].frames++;
}

/* Every appended frame has its place, and counts for the tenant. */
static void check_build(const struct sw_build *build, struct tally *tally) {
    uint64_t stored = 0;
    for (unsigned i = 0; i < build->n_buffers; i++) {
        const struct sw_frames *frames = build->buffers[i].frames;
        SW_ASSERT(build->buffers[i].end_bytes <= build->buffers[i].raw_bytes);
        for (size_t chunk = 0; frames && chunk < frames->n_begun; chunk++)
            if (frames->stored[chunk].tier) {
                check_frame(&frames->stored[chunk], tally);
                stored += frames->stored[chunk].bytes;
            }
    }
    for (size_t chunk = 0; build->joined && chunk < build->joined->n_chunks; chunk++) {
        check_frame(&build->joined->stored[chunk], tally);
        stored += build->joined->stored[chunk].bytes;
    }
    SW_ASSERT(build->series.region || stored == 0);
    SW_ASSERT(!build->series.owner->quota || build->series.has_failed || stored == build->series.region->charged_bytes);
}

static void check_series(const struct sw_series *series, struct tally *tally) {
    SW_ASSERT(series->region ? series->region->series == series : series->has_failed && series->n_ops == 0);
    if (sw_operation_encodes(series->kind->operation))
        check_build(SW_CONTAINER_OF(series, const struct sw_build, series), tally);
}

/* A stored region is complete: every chunk has a committed frame, and they add up. Frames of a lost region may lie in a
 * missing tier. */
static void check_frames(const struct sw_region *region, struct tally *tally) {
    uint64_t stored = 0, away = 0;
    const struct sw_packed_chunk *packed = region->frames ? region->frames->packed : NULL;
    SW_ASSERT(region->frames && region->frames->raw_bytes == region->raw_bytes);
    for (size_t i = 0; i < region->frames->n_chunks; i++) {
        const struct sw_stored *frame = &region->frames->stored[i];
        if (packed && frame->n_extents == 0)
            continue; /* all of it is in the client's memory */
        if (region->state == SW_REGION_LOST && !frame->tier) {
            away += frame->bytes;
            continue;
        }
        check_frame(frame, tally);
        stored += frame->bytes;
    }
    SW_ASSERT(packed ? sw_frames_packed_bytes(region->frames) == region->stored_bytes
                     : stored + away == region->stored_bytes);
    /* An unpack that has failed has released some. */
    SW_ASSERT(!region->owner->quota || (packed ? stored <= region->charged_bytes : stored == region->charged_bytes));
}

static bool is_stored(const struct sw_region *region) {
    SW_ASSERT(!region->op || !region->series);
    return sw_operation_encodes(region->op ? region->op->request.operation : region->series->kind->operation);
}

static void check_region(const struct sw_owner *owner, const struct sw_region *region, struct tally *tally) {
    SW_ASSERT(region->owner == owner && region->id.gen != 0);
    SW_ASSERT(!region->op || region->op->region == region);
    tally->regions++;
    switch (region->state) {
    case SW_REGION_STAGING:
    case SW_REGION_ENCODING:
    case SW_REGION_STORING:
        SW_ASSERT(sw_region_is_busy(region) && is_stored(region) && !region->frames);
        break;
    case SW_REGION_OUT:
    case SW_REGION_LOST:
        SW_ASSERT(!sw_region_is_busy(region) && (region->frames || region->state == SW_REGION_LOST));
        if (!region->move && region->frames) /* that changes them */
            check_frames(region, tally);
        break;
    case SW_REGION_RESTORING:
        SW_ASSERT(sw_region_is_busy(region) && !is_stored(region));
        if (!region->in_place && !region->move)
            check_frames(region, tally); /* an unpack changes them while it runs */
        break;
    case SW_REGION_IN: /* of the previous process: others are forgotten */
        SW_ASSERT(!sw_region_is_busy(region) && !region->frames && region->record);
        break;
    case SW_REGION_STATE_NR:
        SW_ASSERT(false && "no state");
    }
}

static void check_owner(const struct sw_owner *owner, const struct sw_engine_config *config, struct tally *tally) {
    uint64_t ops = 0, jobs = 0, mem_ops = 0, mems = 0, regions = tally->regions, raw_bytes = 0, stored_bytes = 0;
    for (const struct sw_list *node = owner->ops.next; node != &owner->ops; node = node->next, ops++) {
        const struct sw_op *op = SW_CONTAINER_OF(node, const struct sw_op, node);
        SW_ASSERT(op->owner == owner && sw_mem_of(&op->buffers[0])->owner == owner);
        SW_ASSERT(op->series ? op->region->series == op->series : op->region->op == op);
        jobs += op->request.n_buffers;
    }
    for (const struct sw_list *node = owner->mems.next; node != &owner->mems; node = node->next, mems++)
        mem_ops += SW_CONTAINER_OF(node, const struct sw_mem, node)->n_ops;
    for (const struct sw_list *node = owner->regions.next; node != &owner->regions; node = node->next) {
        const struct sw_region *region = SW_CONTAINER_OF(node, const struct sw_region, node);
        check_region(owner, region, tally);
        raw_bytes += region->frames ? region->raw_bytes : 0;
        stored_bytes += region->frames ? region->stored_bytes : 0;
    }
    regions = tally->regions - regions;
    uint64_t series = 0;
    for (const struct sw_list *node = owner->series.next; node != &owner->series; node = node->next, series++)
        check_series(SW_CONTAINER_OF(node, const struct sw_series, node), tally);
    SW_ASSERT(series <= owner->n_series);
    SW_ASSERT(ops == owner->n_ops && jobs == mem_ops);
    SW_ASSERT(mems == owner->n_mems && mems <= config->max_owner_mems);
    uint64_t names = 0;
    for (const struct sw_list *node = owner->names.next; node != &owner->names; node = node->next, names++) {
        const struct sw_region *region = SW_CONTAINER_OF(node, const struct sw_region, named);
        SW_ASSERT(region->name && (region->owner == owner || region->owner->tenant_owner == owner));
    }
    SW_ASSERT(names == owner->n_names && (names == 0 || owner->is_tenant_owner));
    SW_ASSERT(regions == owner->n_regions); /* the limit may have been lowered since */
    SW_ASSERT(raw_bytes == owner->raw_bytes && stored_bytes == owner->stored_bytes);
    tally->ops += ops;
    tally->mems += mems;
    tally->owners++;
}

/* Operations in flight hold more than the regions have. */
static void check_tiers(const struct sw_engine *engine, const struct tally *tally) {
    const bool moves = engine->balance.n_moves > 0, still = tally->ops == 0 && !moves && engine->keeper.n_changes == 0;
    for (unsigned i = 0; i < engine->store.place.tiers.n; i++) {
        const struct sw_tier_stats tier = sw_tier_stats_of(engine->store.place.tiers.at[i]);
        const uint64_t used_bytes = tier.used_bytes - tier.held_bytes - tier.wasted_bytes;
        SW_ASSERT(tier.used_bytes <= tier.backed_bytes && tier.backed_bytes <= tier.capacity_bytes);
        SW_ASSERT(tier.largest_free_bytes <= tier.backed_bytes - tier.used_bytes &&
                  tier.huge_bytes <= tier.backed_bytes);
        SW_ASSERT(!still || (used_bytes == tally->tiers[i].bytes && tier.committed_frames == tally->tiers[i].frames));
        SW_ASSERT(moves || (used_bytes >= tally->tiers[i].bytes && tier.committed_frames >= tally->tiers[i].frames));
    }
}

/* Without operations and moves nothing is in transit: a job that found this room taken would wait for ever. */
static void check_way(const struct sw_engine *engine, const struct tally *tally) {
    const struct sw_placement *place = &engine->store.place;
    const bool moves = engine->balance.n_moves > 0, still = tally->ops == 0 && !moves;
    SW_ASSERT(atomic_load(&place->n_demotions) <= engine->balance.n_moves);
    SW_ASSERT(!still || (atomic_load(&place->out_bytes) == 0 && atomic_load(&place->in_bytes) == 0));
}

/* Compares what a tenant's sessions have with its quota. Operations in flight hold more than the regions have. */
static void check_quota(const struct sw_engine *engine, const struct sw_quota *quota) {
    uint64_t bytes = 0, regions = 0, ops = 0, kept = 0;
    const struct sw_list *lists[] = {&engine->store.owners, &engine->store.settled};
    for (size_t i = 0; i < sizeof lists / sizeof lists[0]; i++)
        for (const struct sw_list *node = lists[i]->next; node != lists[i]; node = node->next) {
            const struct sw_owner *owner = SW_CONTAINER_OF(node, const struct sw_owner, node);
            if (owner->quota != quota)
                continue;
            ops += owner->n_ops;
            regions += owner->n_regions;
            kept += owner->kept_bytes;
            for (const struct sw_list *at = owner->mems.next; at != &owner->mems; at = at->next)
                kept += SW_CONTAINER_OF(at, const struct sw_mem, node)->kept_bytes;
            for (const struct sw_list *at = owner->ops.next; at != &owner->ops; at = at->next)
                kept += SW_CONTAINER_OF(at, const struct sw_op, node)->kept_bytes;
            for (const struct sw_list *at = owner->series.next; at != &owner->series; at = at->next)
                kept += SW_CONTAINER_OF(at, const struct sw_series, node)->kept_bytes;
            for (const struct sw_list *at = owner->regions.next; at != &owner->regions; at = at->next) {
                const struct sw_region *region = SW_CONTAINER_OF(at, const struct sw_region, node);
                bytes += region->charged_bytes;
                kept += region->kept_bytes;
            }
        }
    const uint64_t had = atomic_load(&quota->bytes);
    SW_ASSERT(regions == quota->n_regions && (ops > 0 ? bytes <= had : bytes == had));
    /* The session counts more than the engine does. */
    SW_ASSERT(kept <= atomic_load(&quota->kept.used_bytes));
}

void sw_engine_check(const struct sw_engine *engine) {
    struct tally tally = {0};
    for (const struct sw_list *node = engine->store.owners.next; node != &engine->store.owners; node = node->next)
        check_owner(SW_CONTAINER_OF(node, const struct sw_owner, node), &engine->config, &tally);
    for (const struct sw_list *node = engine->store.settled.next; node != &engine->store.settled; node = node->next)
        check_owner(SW_CONTAINER_OF(node, const struct sw_owner, node), &engine->config, &tally);
    SW_ASSERT(tally.owners == engine->store.n_owners);
    for (const struct sw_list *node = engine->store.left.next; node != &engine->store.left; node = node->next)
        check_owner(SW_CONTAINER_OF(node, const struct sw_owner, node), &engine->config, &tally);
    SW_ASSERT(tally.ops == engine->n_ops);
    SW_ASSERT(tally.mems == engine->n_mems);
    SW_ASSERT(tally.regions == engine->store.regions.n_used && tally.regions <= engine->store.regions.cap);
    check_tiers(engine, &tally);
    check_way(engine, &tally);
    for (const struct sw_list *node = engine->store.owners.next; node != &engine->store.owners; node = node->next) {
        const struct sw_quota *quota = SW_CONTAINER_OF(node, const struct sw_owner, node)->quota;
        if (quota)
            check_quota(engine, quota);
    }
}
