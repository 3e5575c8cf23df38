/* durable.c - regions with a name, which outlive their owner: they go to its heir, and to who asks for them by name. */
#include "spill/engine_state.h"

#include "base/alloc.h"
#include "base/assert.h"

#include <string.h>

void sw_owner_become_heir(struct sw_owner *owner, uint32_t uid) {
    SW_ASSERT(!owner->is_heir && !owner->record && !owner->heir);
    owner->is_heir = true;
    owner->uid = uid;
}

static struct sw_owner *heir_of(const struct sw_region *region) {
    return region->owner->is_heir ? region->owner : region->owner->heir;
}

static void list_name(struct sw_region *region) {
    struct sw_owner *heir = heir_of(region);
    sw_list_append(&heir->names, &region->named);
    heir->n_names++;
}

void sw_owner_set_heir(struct sw_owner *owner, struct sw_owner *heir) {
    if (owner->heir == heir)
        return;
    SW_ASSERT(!owner->heir && heir->is_heir && !sw_owner_is_ending(heir) && owner->quota == heir->quota);
    owner->heir = heir;
    for (struct sw_list *node = owner->regions.next; node != &owner->regions; node = node->next) {
        struct sw_region *region = SW_CONTAINER_OF(node, struct sw_region, node);
        if (region->name)
            list_name(region);
    }
}

bool sw_owner_has_names(const struct sw_owner *heir) {
    return heir->n_names > 0;
}

static struct sw_region *find_name(const struct sw_owner *heir, const char *name) {
    for (struct sw_list *node = heir->names.next; node != &heir->names; node = node->next) {
        struct sw_region *region = SW_CONTAINER_OF(node, struct sw_region, named);
        if (strcmp(region->name, name) == 0)
            return region;
    }
    return NULL;
}

int sw_region_check_name(const struct sw_owner *owner, const struct sw_range *range, struct sw_err *err) {
    const size_t bytes = strlen(range->name);
    if (bytes == 0 || bytes >= SW_REGION_NAME_BYTES || range->in_place)
        return sw_err_set(err, -SW_EINVAL, SW_SCOPE_REQUEST,
                          range->in_place ? "a packed region cannot be durable"
                                          : "a region's name of %zu bytes, must be 1 to %u",
                          bytes, SW_REGION_NAME_BYTES - 1u);
    if (!owner->heir)
        return sw_err_set(err, -SW_ENOTSUP, SW_SCOPE_REQUEST, "nobody would have durable regions of this session");
    if (find_name(owner->heir, range->name))
        return sw_err_set(err, -SW_EEXIST, SW_SCOPE_REQUEST, "the tenant has a durable region of this name");
    if (owner->heir->n_names >= owner->engine->config.max_durable)
        return sw_err_set(err, -SW_ETENANTREGIONS, SW_SCOPE_REQUEST,
                          "the tenant has %u durable regions, the most allowed", owner->heir->n_names);
    return 0;
}

int sw_region_set_name(struct sw_region *region, const char *name) {
    const size_t bytes = strlen(name) + 1;
    region->name = sw_alloc(bytes);
    if (!region->name)
        return -SW_ENOMEM;
    memcpy(region->name, name, bytes);
    sw_list_init(&region->named);
    if (heir_of(region)) /* of what a predecessor left it is set later */
        list_name(region);
    return 0;
}

void sw_region_unname(struct sw_region *region) {
    if (!region->name)
        return;
    if (heir_of(region))
        heir_of(region)->n_names--;
    sw_list_remove(&region->named);
    sw_free(region->name);
    region->name = NULL;
}

/* Within a tenant: what counts for its quota stays the same. */
static void give(struct sw_region *region, struct sw_owner *to) {
    struct sw_owner *from = region->owner;
    SW_ASSERT(from->quota == to->quota && !sw_owner_is_ending(to) && !region->op);
    sw_list_remove(&region->node);
    sw_list_append(&to->regions, &region->node);
    from->n_regions--;
    to->n_regions++;
    if (region->frames) {
        from->raw_bytes -= region->raw_bytes;
        from->stored_bytes -= region->stored_bytes;
        to->raw_bytes += region->raw_bytes;
        to->stored_bytes += region->stored_bytes;
    }
    region->owner = to;
    region->holder = to->number;
    region->request = region->piece = 0; /* were of its last session, and another one counts its own */
    if (region->move)
        sw_move_follow(region->move);
}

/* The record stays as it is: its session is not found any more, and then it is its tenant's. */
void sw_region_let_go(struct sw_region *region) {
    struct sw_owner *owner = region->owner;
    if (region->name && owner->heir)
        give(region, owner->heir);
    else
        sw_owner_forget(owner, region);
}

int sw_engine_adopt(struct sw_owner *owner, const char *name, struct sw_region_id *ret, struct sw_err *err) {
    struct sw_owner *heir = owner->heir;
    struct sw_region *region = heir ? find_name(heir, name) : NULL;
    int rc = 0;
    if (!region)
        return sw_err_set(err, -SW_ENOENT, SW_SCOPE_REQUEST, "there is no durable region of this name");
    if (region->owner != owner && (region->owner != heir || region->move))
        return sw_err_set(err, -SW_EBUSY, SW_SCOPE_REQUEST,
                          region->move ? "the region is on its way between tiers"
                                       : "another session has the region, or may come back for it");
    if (region->op && !region->frames) /* that may fail */
        return sw_err_set(err, -SW_EBUSY, SW_SCOPE_REQUEST, "the region is being spilled");
    if (region->owner == heir) {
        if (owner->n_regions >= owner->engine->config.max_owner_regions)
            return sw_err_set(err, -SW_ELIMIT, SW_SCOPE_REQUEST, "the session has %u regions, the most allowed",
                              owner->n_regions);
        give(region, owner);
        /* One that is lost may be on a disk that is not there: its record, which is its tenant's, still has its chunks.
         */
        rc = region->state == SW_REGION_LOST ? 0 : sw_region_record(region, err);
        if (rc)
            give(region, heir);
    }
    if (!rc)
        *ret = region->id;
    return rc;
}
