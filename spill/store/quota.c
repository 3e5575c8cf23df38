#include "spill/store/quota.h"

#include "base/assert.h"
#include "spill/store/owner.h"

#include <inttypes.h>

int sw_quota_take(struct sw_quota *quota, uint64_t bytes, struct sw_err *err) {
    const uint64_t most = atomic_load(&quota->max_bytes);
    unsigned long long had = atomic_load(&quota->bytes);
    do
        if (most && (had > most || bytes > most - had))
            return sw_err_set(err, -SW_ETENANTBYTES, SW_SCOPE_REQUEST,
                              "the tenant has %llu bytes stored, %" PRIu64 " more would exceed %" PRIu64, had, bytes,
                              most);
    while (!atomic_compare_exchange_weak(&quota->bytes, &had, had + bytes));
    return 0;
}

void sw_quota_give(struct sw_quota *quota, uint64_t bytes) {
    SW_ASSERT(atomic_fetch_sub(&quota->bytes, bytes) >= bytes);
}

/* Returns the stored bytes that count for a region. Most of a packed region lies in its client's memory. Frames of a
 * lost region may lie on a disk that is not there. A region that was found without frames has no stored bytes. */
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

void sw_owner_leave_quota(struct sw_owner *owner) {
    for (struct sw_list *node = owner->regions.next; owner->quota && node != &owner->regions; node = node->next) {
        const struct sw_region *region = SW_CONTAINER_OF(node, const struct sw_region, node);
        sw_quota_give(owner->quota, region->charged_bytes);
        sw_budget_give(&owner->quota->kept, region->kept_bytes);
        owner->quota->n_regions--;
    }
    sw_budget_give(sw_quota_kept(owner->quota), owner->kept_bytes);
    owner->quota = NULL;
}
