#include "spill/operator.h"

#include "spill/balance/policy.h"
#include "spill/engine_state.h"

#include <string.h>

void sw_owner_set_tag(struct sw_owner *owner, void *tag) {
    owner->tag = tag;
}

void sw_owner_stats(const struct sw_owner *owner, struct sw_owner_stats *ret) {
    *ret = (struct sw_owner_stats){.n_regions = owner->n_regions,
                                   .n_mems = owner->n_mems,
                                   .n_ops = owner->n_ops,
                                   .raw_bytes = owner->raw_bytes,
                                   .stored_bytes = owner->stored_bytes};
}

static void view_region(const struct sw_region *region, struct sw_region_view *ret) {
    *ret = (struct sw_region_view){.id = region->id,
                                   .tag = region->owner->tag,
                                   .used_us = region->used_us,
                                   .priority = region->priority,
                                   .pinned = region->pinned,
                                   .is_moving = region->move != NULL,
                                   .moved_bytes = region->move ? atomic_load(region->move->moved_bytes) : 0,
                                   .name = region->name,
                                   .uid = region->owner->uid};
    (void)sw_engine_query(region->owner, region->id, &ret->info, NULL); /* cannot fail: it exists */
}

uint32_t sw_engine_visit(struct sw_engine *engine, uint32_t from, unsigned max_slots,
                         bool (*visit)(const struct sw_region_view *view, void *arg), void *arg) {
    const struct sw_region_table *table = &engine->store.regions;
    for (uint32_t slot = from; slot < table->n_touched; slot++) {
        struct sw_region_view view;
        if (max_slots-- == 0)
            return slot;
        if (!table->regions[slot].owner)
            continue;
        view_region(&table->regions[slot], &view);
        if (!visit(&view, arg))
            return slot;
    }
    return UINT32_MAX;
}

int sw_engine_owner(struct sw_engine *engine, struct sw_region_id id, struct sw_owner **ret, struct sw_err *err) {
    const struct sw_region_table *table = &engine->store.regions;
    struct sw_region *region;
    const int rc = sw_region_find_any(table, id, &region, err);
    if (rc == 0)
        *ret = region->owner;
    return rc;
}

int sw_engine_find_name(struct sw_engine *engine, const char *name, uint32_t uid, struct sw_region_id *ret,
                        struct sw_err *err) {
    const struct sw_list *owners = &engine->store.owners;
    const struct sw_region *found = NULL;
    for (const struct sw_list *at = owners->next; at != owners; at = at->next) {
        const struct sw_owner *owner = SW_CONTAINER_OF(at, const struct sw_owner, node);
        const struct sw_region *region = owner->is_tenant_owner ? sw_name_find(owner, name) : NULL;
        if (!region || (uid != UINT32_MAX && owner->uid != uid))
            continue;
        if (found)
            return sw_err_set(err, -SW_EINVAL, SW_SCOPE_REQUEST,
                              "several users have a durable region of this name: give one of their uids");
        found = region;
    }
    if (!found)
        return sw_err_set(err, -SW_ENOENT, SW_SCOPE_REQUEST, "there is no durable region of this name");
    *ret = found->id;
    return 0;
}

uint64_t sw_engine_room_bytes(const struct sw_engine *engine) {
    return engine->balance.room_bytes;
}

int sw_engine_make_room(struct sw_engine *engine, uint64_t bytes, struct sw_err *err) {
    if (engine->store.place.tiers.n < 2)
        return sw_err_set(err, -SW_ENOTSUP, SW_SCOPE_REQUEST, "there is no tier behind %s",
                          sw_placement_memory(&engine->store.place)->kind->name);
    engine->balance.room_bytes = bytes;
    sw_balance_look(&engine->balance);
    return 0;
}

int sw_engine_drain(struct sw_engine *engine, const char *name, struct sw_err *err) {
    const struct sw_tiers *tiers = &engine->store.place.tiers;
    struct sw_tier *to = NULL;
    for (unsigned i = 1; name && i < tiers->n; i++)
        to = strcmp(tiers->at[i]->kind->name, name) == 0 ? tiers->at[i] : to;
    if (name && !to)
        return sw_err_set(err, -SW_ENOTSUP, SW_SCOPE_REQUEST, "there is no tier %s behind others", name);
    sw_balance_drain(&engine->balance, to);
    return 0;
}

void sw_engine_drain_state(const struct sw_engine *engine, struct sw_engine_drain *ret) {
    const struct sw_balance *balance = &engine->balance;
    *ret = (struct sw_engine_drain){
        .to = balance->drain_to, .left_bytes = sw_balance_drain_left(balance), .err = balance->drain_err};
}

void sw_engine_set_limits(struct sw_engine *engine, unsigned high_pct, unsigned low_pct, unsigned max_owner_regions) {
    engine->balance.high_pct = high_pct;
    engine->balance.low_pct = low_pct;
    engine->config.max_owner_regions = max_owner_regions;
    sw_balance_look(&engine->balance);
}

const struct sw_op_statistics *sw_engine_op_statistics(const struct sw_engine *engine) {
    return &engine->statistics;
}

const struct sw_tiers *sw_engine_tiers(const struct sw_engine *engine) {
    return &engine->store.place.tiers;
}

uint64_t sw_engine_limit_bytes(const struct sw_engine *engine, unsigned rank) {
    return engine->store.place.limit_bytes[rank];
}

struct sw_engine_marks sw_engine_marks(const struct sw_engine *engine, unsigned rank) {
    const uint64_t limit_bytes = engine->store.place.limit_bytes[rank];
    return (struct sw_engine_marks){sw_policy_mark_bytes(limit_bytes, engine->balance.high_pct),
                                    sw_policy_mark_bytes(limit_bytes, engine->balance.low_pct)};
}
