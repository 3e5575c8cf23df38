/* request_index.c - finds the regions that a request has made. After a restart a client asks this for each request that
 * was in flight.
 *
 * A session may have very many regions and ask any number of questions, and its requests may share numbers. So the
 * first question builds the request index: the owner's regions, sorted by request and batch index. */
#include "spill/engine_state.h"

#include "base/alloc.h"

#include <stdlib.h>
#include <string.h>

struct sw_request_entry {
    uint32_t request, batch_index;
    struct sw_region_id id;
};

static int by_request(const void *a, const void *b) {
    const struct sw_request_entry *x = a, *y = b;
    if (x->request != y->request)
        return x->request < y->request ? -1 : 1;
    return (x->batch_index > y->batch_index) - (x->batch_index < y->batch_index);
}

static void build_index(struct sw_owner *owner) {
    owner->request_index = sw_alloc_array(owner->n_regions, sizeof *owner->request_index);
    if (!owner->request_index)
        return;
    for (const struct sw_list *node = owner->regions.next; node != &owner->regions; node = node->next) {
        const struct sw_region *region = SW_CONTAINER_OF(node, const struct sw_region, node);
        if (region->request)
            owner->request_index[owner->n_request_index++] =
                (struct sw_request_entry){region->request, region->batch_index, region->id};
    }
    qsort(owner->request_index, owner->n_request_index, sizeof *owner->request_index, by_request);
}

/* Since the index was built the region may have ended or changed its owner, or its request may have been forgotten. */
static void look_up(struct sw_owner *owner, const struct sw_request_entry *key, struct sw_region_id *ret) {
    struct sw_region *region;
    const struct sw_request_entry *entry =
        bsearch(key, owner->request_index, owner->n_request_index, sizeof *key, by_request);
    if (entry && sw_engine_find(owner, entry->id, &region, NULL) == 0 && region->request == key->request &&
        !sw_region_is_busy(region))
        *ret = entry->id;
}

/* Looks at all regions, if there is no memory for the index. */
static void look_at_all(const struct sw_owner *owner, uint32_t request, struct sw_region_id *ret, uint32_t n) {
    for (const struct sw_list *node = owner->regions.next; node != &owner->regions; node = node->next) {
        const struct sw_region *region = SW_CONTAINER_OF(node, const struct sw_region, node);
        if (region->request == request && region->batch_index < n && !sw_region_is_busy(region))
            ret[region->batch_index] = region->id;
    }
}

void sw_engine_find_by_request(struct sw_owner *owner, uint32_t request, struct sw_region_id *ret, uint32_t n) {
    memset(ret, 0, n * sizeof *ret);
    if (!request)
        return;
    if (!owner->request_index)
        build_index(owner);
    if (!owner->request_index)
        look_at_all(owner, request, ret, n);
    for (uint32_t i = 0; owner->request_index && i < n; i++)
        look_up(owner, &(struct sw_request_entry){.request = request, .batch_index = i}, &ret[i]);
}

void sw_owner_free_request_index(struct sw_owner *owner) {
    sw_free(owner->request_index);
    owner->request_index = NULL;
    owner->n_request_index = 0;
}

void sw_owner_forget_requests(struct sw_owner *owner, uint32_t newest) {
    for (struct sw_list *node = owner->regions.next; node != &owner->regions; node = node->next) {
        struct sw_region *region = SW_CONTAINER_OF(node, struct sw_region, node);
        if (!region->request || newest - region->request < UINT32_C(1) << 31)
            continue;
        region->request = 0;
        sw_catalogue_forget_request(sw_engine_of(owner)->config.catalogue, region->record);
    }
}
