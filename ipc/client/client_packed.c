#include "ipc/client/client_packed.h"

#include "base/alloc.h"
#include "spill/mover/heap_places.h"

struct sw_packed_region *sw_packed_new(void) {
    struct sw_packed_region *packed = sw_alloc(sizeof *packed);
    if (packed)
        sw_list_init(&packed->node);
    return packed;
}

void sw_packed_free(struct sw_packed_region *packed) {
    if (!packed)
        return;
    sw_list_remove(&packed->node);
    sw_heap_free_frames(packed->frames);
    sw_free(packed);
}

struct sw_packed_region *sw_packed_find(const struct spillway *c, struct spillway_region region) {
    for (const struct sw_list *n = c->packed.next; n != &c->packed; n = n->next) {
        struct sw_packed_region *packed = SW_CONTAINER_OF(n, struct sw_packed_region, node);
        if (packed->region.slot == region.slot && packed->region.generation == region.generation)
            return packed;
    }
    return NULL;
}

void sw_packed_forget(struct spillway *c, struct spillway_region region) {
    struct sw_packed_region *packed = sw_packed_find(c, region);
    if (packed && !packed->is_busy)
        sw_packed_free(packed);
}

void sw_packed_free_all(struct spillway *c) {
    while (!sw_list_empty(&c->packed))
        sw_packed_free(SW_CONTAINER_OF(c->packed.next, struct sw_packed_region, node));
}

int sw_packed_describe(const struct sw_packed_region *packed, struct spillway_packed_chunk *ret, uint32_t max,
                       uint32_t *ret_n, struct sw_err *err) {
    const struct sw_frames *frames = packed->frames;
    if (packed->is_busy)
        return sw_err_set(err, -SW_EBUSY, SW_SCOPE_REQUEST, "region %u:%u is being unpacked", packed->region.slot,
                          packed->region.generation);
    for (size_t i = 0; i < frames->n_chunks && i < max; i++)
        ret[i] = sw_frames_packed_chunk(frames, i);
    *ret_n = (uint32_t)frames->n_chunks;
    return 0;
}
