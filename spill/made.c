/* made.c - which regions a request of a session has made: its client asks after a restart, about each that was under
 * way. A session may have very many regions, and nothing says how many questions it asks, nor that its requests had
 * numbers of their own: its regions are put in order at the first question, and each piece is looked up there. */
#include "spill/engine_state.h"

#include "base/alloc.h"

#include <stdlib.h>
#include <string.h>

struct sw_made {
    uint32_t request, piece;
    struct sw_region_id id;
};

static int by_request(const void *a, const void *b) {
    const struct sw_made *x = a, *y = b;
    if (x->request != y->request)
        return x->request < y->request ? -1 : 1;
    return (x->piece > y->piece) - (x->piece < y->piece);
}

static void put_in_order(struct sw_owner *owner) {
    owner->made = sw_alloc_array(owner->n_regions, sizeof *owner->made);
    if (!owner->made)
        return;
    for (const struct sw_list *node = owner->regions.next; node != &owner->regions; node = node->next) {
        const struct sw_region *region = SW_CONTAINER_OF(node, const struct sw_region, node);
        if (region->request)
            owner->made[owner->n_made++] = (struct sw_made){region->request, region->piece, region->id};
    }
    qsort(owner->made, owner->n_made, sizeof *owner->made, by_request);
}

/* The region may be gone by now, or somebody else's, or its request forgotten. */
static void look_up(struct sw_owner *owner, const struct sw_made *key, struct sw_region_id *ret) {
    struct sw_region *region;
    const struct sw_made *made = bsearch(key, owner->made, owner->n_made, sizeof *key, by_request);
    if (made && sw_engine_find(owner, made->id, &region, NULL) == 0 && region->request == key->request &&
        !sw_region_is_busy(region))
        *ret = made->id;
}

/* Without memory for an order: the answer has to be right all the same. */
static void look_at_all(const struct sw_owner *owner, uint32_t request, struct sw_region_id *ret, uint32_t n_pieces) {
    for (const struct sw_list *node = owner->regions.next; node != &owner->regions; node = node->next) {
        const struct sw_region *region = SW_CONTAINER_OF(node, const struct sw_region, node);
        if (region->request == request && region->piece < n_pieces && !sw_region_is_busy(region))
            ret[region->piece] = region->id;
    }
}

void sw_engine_find_made(struct sw_owner *owner, uint32_t request, struct sw_region_id *ret, uint32_t n_pieces) {
    memset(ret, 0, n_pieces * sizeof *ret);
    if (!request)
        return;
    if (!owner->made)
        put_in_order(owner);
    if (!owner->made)
        look_at_all(owner, request, ret, n_pieces);
    for (uint32_t i = 0; owner->made && i < n_pieces; i++)
        look_up(owner, &(struct sw_made){.request = request, .piece = i}, &ret[i]);
}

void sw_owner_forget_made(struct sw_owner *owner) {
    sw_free(owner->made);
    owner->made = NULL;
    owner->n_made = 0;
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
