#include "spill/placement.h"

#include "base/clock.h"
#include "codec/frame.h"

/* A demotion that has not got on for so long, because the disk hangs, say, is not waited for. */
#define PATIENCE_US 5000000u
#define CHUNK_ALIGN_BYTES 32768u

/* What a frame takes of the host tier, at least. */
static uint64_t whole_blocks(uint64_t bytes) {
    return (bytes + SW_TIER_IO_ALIGN - 1) / SW_TIER_IO_ALIGN * SW_TIER_IO_ALIGN;
}

static uint64_t longest_chunk(uint64_t way_bytes) {
    uint64_t chunk = way_bytes < SW_FRAME_MAX_RAW_BYTES ? way_bytes : SW_FRAME_MAX_RAW_BYTES;
    chunk -= chunk % CHUNK_ALIGN_BYTES;
    while (chunk > CHUNK_ALIGN_BYTES && whole_blocks(sw_frame_bound_bytes(chunk)) > way_bytes)
        chunk -= CHUNK_ALIGN_BYTES;
    return chunk > CHUNK_ALIGN_BYTES ? chunk : CHUNK_ALIGN_BYTES;
}

void sw_placement_init(struct sw_placement *ret, struct sw_tier *host, struct sw_tier *nvme, uint64_t staging_bytes) {
    struct sw_tier_stats stats;
    host->ops->stats(host, &stats);
    ret->host = host;
    ret->nvme = nvme;
    ret->capacity_bytes = stats.capacity_bytes;
    ret->host_limit_bytes = stats.capacity_bytes - staging_bytes;
    ret->way_bytes = staging_bytes / 2;
    ret->chunk_bytes = nvme ? longest_chunk(ret->way_bytes) : SW_FRAME_MAX_RAW_BYTES;
    atomic_init(&ret->out_bytes, 0);
    atomic_init(&ret->in_bytes, 0);
    ret->epoch = 0;
    if (nvme) {
        nvme->ops->stats(nvme, &stats);
        ret->capacity_bytes += stats.capacity_bytes;
    }
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
    const uint64_t room_bytes = whole_blocks(bytes);
    const unsigned long long before = atomic_fetch_add(counter(place, kind), room_bytes);
    const unsigned long long others = before + (kind == SW_TIER_READ ? atomic_load(&place->out_bytes) : 0);
    /* The first one in its direction may be longer than its half: a predecessor may have made longer ones. */
    int rc = before > 0 && before + room_bytes > place->way_bytes ? -SW_EAGAIN : 0;
    if (!rc)
        rc = place->host->ops->reserve(place->host, bytes, ret, err);
    if (rc)
        (void)atomic_fetch_sub(counter(place, kind), room_bytes);
    return rc == -SW_ENOSPACE && (others > 0 || makes_room) ? -SW_EAGAIN : rc;
}

void sw_placement_arrived(struct sw_placement *place, enum sw_tier_io_kind kind, struct sw_stored *staged) {
    const uint64_t room_bytes = whole_blocks(staged->bytes);
    sw_stored_release(staged);
    (void)atomic_fetch_sub(counter(place, kind), room_bytes);
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
