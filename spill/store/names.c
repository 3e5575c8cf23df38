#include "spill/store/names.h"

#include "base/alloc.h"
#include "base/assert.h"
#include "spill/store/owner.h"

#include <string.h>

void sw_owner_become_tenant_owner(struct sw_owner *owner, uint32_t uid) {
    SW_ASSERT(!owner->is_tenant_owner && !owner->record && !owner->tenant_owner);
    owner->is_tenant_owner = true;
    owner->uid = uid;
}

static struct sw_owner *tenant_owner_of(const struct sw_region *region) {
    return region->owner->is_tenant_owner ? region->owner : region->owner->tenant_owner;
}

static void list_name(struct sw_region *region) {
    struct sw_owner *tenant_owner = tenant_owner_of(region);
    sw_list_append(&tenant_owner->names, &region->named);
    tenant_owner->n_names++;
}

void sw_owner_set_tenant_owner(struct sw_owner *owner, struct sw_owner *tenant_owner) {
    if (owner->tenant_owner == tenant_owner)
        return;
    SW_ASSERT(!owner->tenant_owner && tenant_owner->is_tenant_owner && !sw_owner_is_ending(tenant_owner) &&
              owner->quota == tenant_owner->quota);
    owner->tenant_owner = tenant_owner;
    for (struct sw_list *node = owner->regions.next; node != &owner->regions; node = node->next) {
        struct sw_region *region = SW_CONTAINER_OF(node, struct sw_region, node);
        if (region->name)
            list_name(region);
    }
}

unsigned sw_owner_n_names(const struct sw_owner *tenant_owner) {
    return tenant_owner->n_names;
}

struct sw_region *sw_name_find(const struct sw_owner *tenant_owner, const char *name) {
    for (struct sw_list *node = tenant_owner->names.next; node != &tenant_owner->names; node = node->next) {
        struct sw_region *region = SW_CONTAINER_OF(node, struct sw_region, named);
        if (strcmp(region->name, name) == 0)
            return region;
    }
    return NULL;
}

unsigned sw_names_after(const struct sw_owner *tenant_owner, const char *after, const struct sw_region **ret,
                        unsigned max) {
    unsigned n = 0;
    for (const struct sw_list *node = tenant_owner->names.next; node != &tenant_owner->names; node = node->next) {
        const struct sw_region *region = SW_CONTAINER_OF(node, const struct sw_region, named);
        if (strcmp(region->name, after) <= 0 || (n == max && strcmp(region->name, ret[n - 1]->name) > 0))
            continue;
        unsigned at = n < max ? n++ : n - 1;
        for (; at > 0 && strcmp(region->name, ret[at - 1]->name) < 0; at--)
            ret[at] = ret[at - 1];
        ret[at] = region;
    }
    return n;
}

int sw_region_set_name(struct sw_region *region, const char *name) {
    const size_t bytes = strlen(name) + 1;
    region->name = sw_alloc(bytes);
    if (!region->name)
        return -SW_ENOMEM;
    memcpy(region->name, name, bytes);
    sw_list_init(&region->named);
    if (tenant_owner_of(region)) /* a predecessor's region gets its tenant owner later */
        list_name(region);
    return 0;
}

void sw_region_unname(struct sw_region *region) {
    if (!region->name)
        return;
    if (tenant_owner_of(region))
        tenant_owner_of(region)->n_names--;
    sw_list_remove(&region->named);
    sw_free(region->name);
    region->name = NULL;
}

/* Counts a move for the new owner of its region. */
static void follow(struct sw_move *move) {
    move->owner->n_moves--;
    move->owner = move->region->owner;
    move->owner->n_moves++;
}

void sw_region_give(struct sw_region *region, struct sw_owner *to) {
    struct sw_owner *from = region->owner;
    SW_ASSERT(from->quota == to->quota && !sw_owner_is_ending(to) && !sw_region_is_busy(region));
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
    region->request = region->batch_index = 0; /* request numbers are the old session's */
    if (region->move)
        follow(region->move);
}
