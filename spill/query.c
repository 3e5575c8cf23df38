/* query.c - finds an owner's regions by their ids, and answers questions about a region, its buffers, its packed
 * chunks, and the engine. Nothing begins or ends here. */
#include "spill/engine_state.h"

#include <string.h>

void sw_op_follow_phase(struct sw_op *op) {
    static const enum sw_region_state states[] = {SW_REGION_STAGING, SW_REGION_ENCODING, SW_REGION_STORING};
    if (!sw_operation_encodes(op->request.operation))
        return;
    const enum sw_region_state state = states[sw_op_phase(op)];
    if (op->region->state < state)
        sw_region_move(op->region, state);
}

int sw_engine_find(struct sw_owner *owner, struct sw_region_id id, struct sw_region **ret, struct sw_err *err) {
    for (struct sw_list *node = owner->detached.next; node != &owner->detached; node = node->next) {
        struct sw_region *region = SW_CONTAINER_OF(node, struct sw_region, node);
        if (region->id.slot == id.slot && region->id.gen == id.gen) {
            *ret = region;
            return 0;
        }
    }
    const int rc = sw_region_find(&owner->store->regions, owner, id, ret, err);
    if (!rc && (*ret)->op)
        sw_op_follow_phase((*ret)->op);
    return rc;
}

int sw_engine_find_idle(struct sw_owner *owner, struct sw_region_id id, struct sw_region **ret, struct sw_err *err) {
    int rc = sw_engine_find(owner, id, ret, err);
    if (!rc && sw_region_is_busy(*ret))
        rc = sw_err_set(err, -SW_EBUSY, SW_SCOPE_REQUEST, "region %u:%u is %s", id.slot, id.gen,
                        sw_region_state_name((*ret)->state));
    return rc;
}

/* A region that is not stored yet counts for the first tier. */
static const struct sw_tier *tier_of(const struct sw_region *region) {
    return region->tier ? region->tier : sw_placement_memory(&region->owner->store->place);
}

static struct sw_region_info info_of(const struct sw_region *region) {
    return (struct sw_region_info){
        .state = region->state,
        .raw_bytes = region->raw_bytes,
        .stored_bytes = region->stored_bytes,
        .codec = region->codec,
        .tier = region->in_place ? SW_PACKED_TIER_NAME : tier_of(region)->kind->name,
        .reason = sw_cost_reason_text(region->reason),
        .coder = sw_coder_name(region->reason == SW_COST_CLIENT),
        .durability = sw_region_durability(region),
        .in_place = region->in_place,
        .n_buffers = !region->frames             ? 0
                     : region->frames->n_buffers ? region->frames->n_buffers
                                                 : 1,
    };
}

int sw_engine_query(struct sw_owner *owner, struct sw_region_id id, struct sw_region_info *ret, struct sw_err *err) {
    struct sw_region *region;
    int rc = sw_engine_find(owner, id, &region, err);
    if (rc)
        return rc;
    *ret = info_of(region);
    return 0;
}

unsigned sw_engine_list(const struct sw_owner *owner, const char *after, struct sw_listed *ret, unsigned max) {
    const struct sw_region *regions[SW_LIST_MAX];
    const unsigned n = owner->tenant_owner ? sw_names_after(owner->tenant_owner, after, regions, max) : 0;
    for (unsigned i = 0; i < n; i++) {
        const bool is_owners = regions[i]->owner == owner;
        ret[i] = (struct sw_listed){.info = info_of(regions[i]),
                                    .id = is_owners ? regions[i]->id : (struct sw_region_id){0}};
        memcpy(ret[i].name, regions[i]->name, strlen(regions[i]->name));
    }
    return n;
}

static struct sw_buffer_info buffer_info(const struct sw_frames *frames, const struct sw_frames_buffer *buffer,
                                         enum sw_cost_reason reason) {
    uint64_t of_codec[SW_CODEC_NR] = {0};
    struct sw_buffer_info info = {.chunk_bytes = buffer->chunk_bytes, .reason = sw_cost_reason_text(reason)};
    for (size_t i = buffer->first; i < buffer->first + buffer->n_chunks; i++) {
        if (frames->layouts[i].value_type != SW_VALUE_NONE)
            info.type = frames->layouts[i].value_type;
        info.raw_bytes += frames->layouts[i].raw_bytes;
        info.stored_bytes += frames->layouts[i].frame_bytes;
        of_codec[frames->layouts[i].codec] += frames->layouts[i].raw_bytes;
    }
    info.codec = sw_frames_most_used(of_codec);
    return info;
}

/* Finds a region whose frames are complete. */
static int find_frames(struct sw_owner *owner, struct sw_region_id id, struct sw_region **ret, struct sw_err *err) {
    const int rc = sw_engine_find(owner, id, ret, err);
    if (rc)
        return rc;
    const struct sw_region *region = *ret;
    if (!region->frames)
        return sw_err_set(err, region->state == SW_REGION_LOST ? -SW_ELOST : -SW_EBUSY, SW_SCOPE_REQUEST,
                          "region %u:%u is %s", id.slot, id.gen, sw_region_state_name(region->state));
    return 0;
}

int sw_engine_query_buffers(struct sw_owner *owner, struct sw_region_id id,
                            struct sw_buffer_info ret[SW_FRAMES_MAX_BUFFERS], unsigned *ret_n, struct sw_err *err) {
    struct sw_region *region;
    const int rc = find_frames(owner, id, &region, err);
    if (rc)
        return rc;
    const struct sw_frames *frames = region->frames;
    *ret_n = sw_frames_n_buffers(frames);
    for (unsigned i = 0; i < *ret_n; i++) {
        const struct sw_frames_buffer buffer = sw_frames_buffer(frames, i);
        ret[i] = buffer_info(frames, &buffer, frames->n_buffers ? (enum sw_cost_reason)buffer.reason : region->reason);
    }
    return 0;
}

int sw_engine_query_packed(struct sw_owner *owner, struct sw_region_id id, size_t first,
                           struct spillway_packed_chunk *ret, size_t max, size_t *ret_n, size_t *ret_n_chunks,
                           struct sw_err *err) {
    struct sw_region *region;
    int rc = find_frames(owner, id, &region, err);
    if (!rc)
        rc = sw_engine_find_idle(owner, id, &region, err); /* an unpack changes the frames */
    if (rc)
        return rc;
    const struct sw_frames *frames = region->frames;
    if (!frames->packed)
        return sw_err_set(err, -SW_EINVAL, SW_SCOPE_REQUEST, "region %u:%u is not packed", id.slot, id.gen);
    if (sw_frames_are_held(frames))
        return sw_err_set(err, -SW_ENOTSUP, SW_SCOPE_REQUEST,
                          "region %u:%u was packed by its client: only this client knows the chunks", id.slot, id.gen);
    if (first > frames->n_chunks || (first == frames->n_chunks && first > 0))
        return sw_err_set(err, -SW_ERANGE, SW_SCOPE_REQUEST, "region %u:%u has %zu chunks", id.slot, id.gen,
                          frames->n_chunks);
    *ret_n_chunks = frames->n_chunks;
    *ret_n = frames->n_chunks - first < max ? frames->n_chunks - first : max;
    for (size_t i = 0; i < *ret_n; i++)
        ret[i] = sw_frames_packed_chunk(frames, first + i);
    return 0;
}

struct sw_tier_stats sw_engine_stats_behind(const struct sw_engine_stats *stats) {
    struct sw_tier_stats sum = {0};
    for (unsigned i = 1; i < SW_TIERS_MAX; i++) {
        sum.capacity_bytes += stats->tiers[i].capacity_bytes;
        sum.used_bytes += stats->tiers[i].used_bytes;
    }
    return sum;
}

void sw_engine_stats(const struct sw_engine *engine, struct sw_engine_stats *ret) {
    static const uint8_t host_uuid[SW_DEVICE_UUID_BYTES];
    const struct sw_tiers *tiers = &engine->store.place.tiers;
    *ret = engine->counters;
    ret->demotions = engine->balance.demotions;
    ret->promotions = engine->balance.promotions;
    ret->n_owners = engine->store.n_owners;
    ret->n_regions = engine->store.regions.n_used;
    ret->n_mems = engine->n_mems;
    ret->n_ops = engine->n_ops;
    for (unsigned i = 0; i < engine->config.n_devices; i++) {
        const struct sw_device_info *info = sw_worker_device_info(engine->workers[i]);
        ret->n_mapped += sw_worker_mapped(engine->workers[i]);
        if (memcmp(info->uuid, host_uuid, sizeof host_uuid) != 0)
            ret->scratch_bytes += info->scratch_bytes;
    }
    for (unsigned i = 0; i < tiers->n; i++)
        ret->tiers[i] = sw_tier_stats_of(tiers->at[i]);
}
