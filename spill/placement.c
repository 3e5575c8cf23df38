#include "spill/placement.h"

#include "base/clock.h"

/* A demotion that has not got on for so long, because the disk hangs, say, is not waited for. */
#define PATIENCE_US 5000000u

void sw_placement_init(struct sw_placement *ret, struct sw_tier *host, struct sw_tier *nvme, uint64_t staging_bytes) {
    struct sw_tier_stats stats;
    host->ops->stats(host, &stats);
    ret->host = host;
    ret->nvme = nvme;
    ret->host_limit_bytes = stats.capacity_bytes - staging_bytes;
    ret->way_bytes = staging_bytes / 2;
    atomic_init(&ret->out_bytes, 0);
    atomic_init(&ret->in_bytes, 0);
    ret->epoch = 0;
    atomic_init(&ret->n_demotions, 0);
    atomic_init(&ret->demoted_us, 0);
}

bool sw_placement_goes_out(struct sw_placement *place, uint64_t bytes) {
    struct sw_tier_stats stats;
    if (!place->nvme)
        return false;
    place->host->ops->stats(place->host, &stats);
    return stats.used_bytes + bytes > place->host_limit_bytes;
}

enum sw_placement_room sw_placement_room(const struct sw_placement *place, uint64_t bytes) {
    struct sw_tier_stats stats;
    place->host->ops->stats(place->host, &stats);
    if (stats.used_bytes + bytes <= place->host_limit_bytes - place->host_limit_bytes / 8)
        return SW_ROOM_HOST;
    if (!place->nvme)
        return SW_ROOM_NONE;
    place->nvme->ops->stats(place->nvme, &stats);
    return stats.used_bytes + bytes <= stats.capacity_bytes ? SW_ROOM_DISK : SW_ROOM_NONE;
}

static atomic_ullong *counter(struct sw_placement *place, enum sw_tier_io_kind kind) {
    return kind == SW_TIER_WRITE ? &place->out_bytes : &place->in_bytes;
}

static bool is_making_room(const struct sw_placement *place) {
    const unsigned long long demoted_us = atomic_load(&place->demoted_us);
    return atomic_load(&place->n_demotions) > 0 && sw_clock_us() - demoted_us < PATIENCE_US;
}

int sw_placement_stage(struct sw_placement *place, enum sw_tier_io_kind kind, uint64_t bytes, struct sw_stored *ret,
                       struct sw_err *err) {
    const bool makes_room = is_making_room(place); /* asked first: what it made before it ended is found below */
    const unsigned long long before = atomic_fetch_add(counter(place, kind), bytes);
    const unsigned long long others =
        before + atomic_load(counter(place, kind == SW_TIER_WRITE ? SW_TIER_READ : SW_TIER_WRITE));
    /* The first one in its direction may be longer than its half. */
    int rc = before > 0 && before + bytes > place->way_bytes ? -SW_EAGAIN : 0;
    if (!rc)
        rc = place->host->ops->reserve(place->host, bytes, ret, err);
    if (rc)
        (void)atomic_fetch_sub(counter(place, kind), bytes);
    return rc == -SW_ENOSPACE && (others > 0 || makes_room) ? -SW_EAGAIN : rc;
}

void sw_placement_arrived(struct sw_placement *place, enum sw_tier_io_kind kind, struct sw_stored *staged) {
    const uint64_t bytes = staged->bytes;
    sw_stored_release(staged);
    (void)atomic_fetch_sub(counter(place, kind), bytes);
}

void sw_placement_demotion_begins(struct sw_placement *place) {
    sw_placement_demotion_gets_on(place);
    (void)atomic_fetch_add(&place->n_demotions, 1);
}

void sw_placement_demotion_gets_on(struct sw_placement *place) {
    atomic_store(&place->demoted_us, sw_clock_us());
}

void sw_placement_demotion_ended(struct sw_placement *place) {
    (void)atomic_fetch_sub(&place->n_demotions, 1);
}
