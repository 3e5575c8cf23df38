/* owner.c - what one session owns, and how it goes away: operations canceled, regions dropped, memories unmapped. */
#include "spill/engine_state.h"

#include "base/alloc.h"
#include "base/assert.h"

int sw_owner_open(struct sw_engine *engine, struct sw_owner **ret, struct sw_err *err) {
    if (engine->state != SW_ENGINE_RUNNING)
        return sw_err_set(err, -SW_ESHUTDOWN, SW_SCOPE_DAEMON, "the engine is stopping");
    struct sw_owner *owner = sw_alloc(sizeof *owner);
    if (!owner)
        return sw_err_set(err, -SW_ENOMEM, SW_SCOPE_SESSION, "out of memory for a session");
    owner->engine = engine;
    owner->number = ++engine->last_owner;
    owner->uid = UINT32_MAX;
    sw_list_init(&owner->ops);
    sw_list_init(&owner->mems);
    sw_list_init(&owner->regions);
    sw_list_init(&owner->beside);
    sw_list_init(&owner->names);
    sw_list_append(&engine->owners, &owner->node);
    engine->n_owners++;
    *ret = owner;
    return 0;
}

/* Of a packed region most lies in its client's memory, of a lost one perhaps on a disk that is not there; one that was
 * found without frames has nothing anywhere. */
static uint64_t bytes_to_charge(const struct sw_region *region) {
    const struct sw_frames *frames = region->frames;
    if (frames && !frames->packed && region->state != SW_REGION_LOST)
        return region->stored_bytes; /* a move may be changing its chunks */
    uint64_t bytes = 0;
    for (size_t i = 0; frames && i < frames->n_chunks; i++)
        bytes += frames->stored[i].tier ? frames->stored[i].bytes : 0;
    return bytes;
}

void sw_owner_set_quota(struct sw_owner *owner, struct sw_quota *quota) {
    SW_ASSERT(!owner->quota && owner->n_ops == 0);
    owner->quota = quota;
    owner->kept_bytes = sizeof *owner;
    sw_budget_take_anyway(&quota->kept, owner->kept_bytes);
    for (struct sw_list *node = owner->regions.next; node != &owner->regions; node = node->next) {
        struct sw_region *region = SW_CONTAINER_OF(node, struct sw_region, node);
        region->charged_bytes = bytes_to_charge(region);
        region->kept_bytes = SW_REGION_KEPT_BYTES + (region->frames ? sw_frames_kept(region->frames) : 0);
        quota->n_regions++;
        (void)atomic_fetch_add(&quota->bytes, region->charged_bytes);
        sw_budget_take_anyway(&quota->kept, region->kept_bytes);
    }
}

/* What an owner leaves to the next process counts no more in this one. */
static void leave_quota(struct sw_owner *owner) {
    for (struct sw_list *node = owner->regions.next; owner->quota && node != &owner->regions; node = node->next) {
        struct sw_region *region = SW_CONTAINER_OF(node, struct sw_region, node);
        sw_quota_give(owner->quota, region->charged_bytes);
        sw_budget_give(&owner->quota->kept, region->kept_bytes);
        region->charged_bytes = region->kept_bytes = 0;
        owner->quota->n_regions--;
    }
    sw_budget_give(sw_quota_kept(owner->quota), owner->kept_bytes);
    owner->quota = NULL;
}

void sw_owner_settle(struct sw_owner *owner) {
    struct sw_engine *engine = owner->engine;
    const bool closes = owner->state == SW_OWNER_CLOSING;
    if ((!closes && owner->state != SW_OWNER_LEAVING) || owner->n_ops || owner->n_mems || owner->n_moves ||
        (closes && owner->n_regions))
        return;
    owner->state = closes ? SW_OWNER_CLOSED : SW_OWNER_LEFT;
    leave_quota(owner);
    if (closes) /* regions are recorded under a name: it goes last */
        sw_catalogue_free(engine->config.catalogue, &owner->record);
    sw_list_remove(&owner->node);
    sw_list_append(&engine->settled, &owner->node);
    (void)uv_async_send(&engine->async);
}

static void forget(struct sw_owner *owner, struct sw_region *region) {
    if (region->is_beside) {
        sw_region_free_beside(region);
        return;
    }
    if (region->frames) {
        owner->raw_bytes -= region->raw_bytes;
        owner->stored_bytes -= region->stored_bytes;
    }
    if (region->move)
        sw_move_orphan(region);
    sw_frames_free(region->frames);
    region->frames = NULL;
    sw_region_unname(region);
    if (owner->quota) {
        sw_quota_give(owner->quota, region->charged_bytes);
        sw_budget_give(&owner->quota->kept, region->kept_bytes);
        owner->quota->n_regions--;
    }
    owner->n_regions--;
    sw_region_release(&owner->engine->regions, region);
}

void sw_owner_forget(struct sw_owner *owner, struct sw_region *region) {
    sw_catalogue_free(owner->engine->config.catalogue, &region->record); /* before its space is free */
    forget(owner, region);
}

void sw_owner_consume(struct sw_owner *owner, struct sw_region *region) {
    sw_catalogue_retire(owner->engine->config.catalogue, &region->record, &owner->consumed);
    forget(owner, region);
}

void sw_owner_told(struct sw_owner *owner) {
    sw_catalogue_free_retired(owner->engine->config.catalogue, &owner->consumed);
}

static void close_owner(struct sw_owner *owner, bool leave, void (*closed)(void *arg), void *arg) {
    SW_ASSERT(!sw_owner_is_ending(owner));
    const bool leaves = leave && (owner->record || (owner->is_heir && owner->engine->config.catalogue));
    owner->state = leaves ? SW_OWNER_LEAVING : SW_OWNER_CLOSING;
    owner->closed = closed;
    owner->arg = arg;
    sw_owner_forget_made(owner);
    if (!leaves)
        sw_owner_told(owner);
    for (struct sw_list *node = owner->ops.next; node != &owner->ops; node = node->next)
        sw_op_cancel(SW_CONTAINER_OF(node, struct sw_op, node));
    for (struct sw_list *node = owner->regions.next, *next; node != &owner->regions; node = next) {
        struct sw_region *region = SW_CONTAINER_OF(node, struct sw_region, node);
        next = node->next;
        if (leaves && region->move)
            sw_move_cancel(region->move);
        else if (!leaves && !region->op) /* the others go when their operation ends */
            sw_region_let_go(region);
    }
    if (!leaves)
        sw_engine_forget_in(owner);
    for (struct sw_list *node = owner->mems.next, *next; node != &owner->mems; node = next) {
        struct sw_mem *mem = SW_CONTAINER_OF(node, struct sw_mem, node);
        next = node->next;
        if (!mem->closing)
            sw_mem_close(mem, NULL, NULL);
    }
    sw_owner_settle(owner);
}

void sw_owner_close(struct sw_owner *owner, void (*closed)(void *arg), void *arg) {
    close_owner(owner, false, closed, arg);
}

void sw_owner_leave(struct sw_owner *owner, void (*closed)(void *arg), void *arg) {
    close_owner(owner, true, closed, arg);
}
