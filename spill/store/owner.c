#include "spill/store/owner.h"

#include "base/alloc.h"
#include "spill/store/names.h"
#include "spill/store/quota.h"

struct sw_owner *sw_owner_new(struct sw_store *store) {
    struct sw_owner *owner = sw_alloc(sizeof *owner);
    if (!owner)
        return NULL;
    owner->store = store;
    owner->number = ++store->last_owner;
    owner->uid = UINT32_MAX;
    sw_list_init(&owner->ops);
    sw_list_init(&owner->series);
    sw_list_init(&owner->mems);
    sw_list_init(&owner->regions);
    sw_list_init(&owner->detached);
    sw_list_init(&owner->names);
    sw_list_append(&store->owners, &owner->node);
    store->n_owners++;
    return owner;
}

void sw_owner_settle(struct sw_owner *owner) {
    struct sw_store *store = owner->store;
    const bool closes = owner->state == SW_OWNER_CLOSING;
    if ((!closes && owner->state != SW_OWNER_LEAVING) || owner->n_ops || owner->n_series || owner->n_mems ||
        owner->n_moves || (closes && owner->n_regions))
        return;
    owner->state = closes ? SW_OWNER_CLOSED : SW_OWNER_LEFT;
    sw_owner_leave_quota(owner);
    sw_list_remove(&owner->node);
    sw_list_append(&store->settled, &owner->node);
    store->owner_settled(owner);
}

/* Leaves a region's frames to its move, which frees them when it has ended. */
static void orphan(struct sw_move *move) {
    move->cancel(move);
    move->region->move = NULL;
    move->region->frames = NULL;
    move->region = NULL;
}

static void give_back(struct sw_quota *quota, const struct sw_region *region) {
    sw_quota_give(quota, region->charged_bytes);
    sw_budget_give(&quota->kept, region->kept_bytes);
    quota->n_regions--;
}

struct sw_frames *sw_region_end_without_frames(struct sw_region *region) {
    struct sw_owner *owner = region->owner;
    if (region->is_detached) {
        sw_region_free_detached(region);
        return NULL;
    }
    if (region->frames) {
        owner->raw_bytes -= region->raw_bytes;
        owner->stored_bytes -= region->stored_bytes;
    }
    if (region->move)
        orphan(region->move);
    struct sw_frames *frames = region->frames;
    region->frames = NULL;
    sw_region_unname(region);
    if (owner->quota)
        give_back(owner->quota, region);
    owner->n_regions--;
    sw_region_release(&owner->store->regions, region);
    return frames;
}

void sw_region_end(struct sw_region *region) {
    sw_frames_free(sw_region_end_without_frames(region));
}
