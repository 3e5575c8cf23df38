#include "spill/store/placement.h"

#include "base/clock.h"
#include "codec/frame.h"

/* Frames in transit do not wait for demotions that have made no progress for this long, for example because a disk
 * hangs. */
#define PATIENCE_US 5000000u
#define CHUNK_ALIGN_BYTES 32768u

/* Returns the least room that a frame takes in the addressable tier. */
static uint64_t whole_blocks(uint64_t bytes) {
    return (bytes + SW_TIER_IO_ALIGN - 1) / SW_TIER_IO_ALIGN * SW_TIER_IO_ALIGN;
}

/* Returns the longest chunk whose frame is never longer than this. */
static uint64_t longest_chunk(uint64_t frame_bytes) {
    uint64_t chunk = frame_bytes < SW_FRAME_MAX_RAW_BYTES ? frame_bytes : SW_FRAME_MAX_RAW_BYTES;
    chunk -= chunk % CHUNK_ALIGN_BYTES;
    while (chunk > CHUNK_ALIGN_BYTES && whole_blocks(sw_frame_bound_bytes(chunk)) > frame_bytes)
        chunk -= CHUNK_ALIGN_BYTES;
    return chunk > CHUNK_ALIGN_BYTES ? chunk : CHUNK_ALIGN_BYTES;
}

void sw_placement_init(struct sw_placement *ret, const struct sw_tiers *tiers, uint64_t staging_bytes) {
    *ret = (struct sw_placement){.tiers = *tiers, .chunk_bytes = SW_FRAME_MAX_RAW_BYTES};
    for (unsigned i = 0; i < tiers->n; i++) {
        ret->limit_bytes[i] = sw_tier_stats_of(tiers->at[i]).capacity_bytes;
        ret->capacity_bytes += ret->limit_bytes[i];
    }
    sw_tier_share_init(&ret->share);
    uint64_t frame_bytes = staging_bytes / 2;
    for (unsigned i = 0; i < tiers->n; i++) {
        const uint64_t most = tiers->at[i]->kind->frame_bytes;
        frame_bytes = most && most < frame_bytes ? most : frame_bytes;
    }
    if (tiers->n > 1) {
        ret->limit_bytes[0] -= staging_bytes;
        ret->transit_bytes = staging_bytes / 2;
        ret->chunk_bytes = longest_chunk(frame_bytes);
    }
}

static bool is_last(const struct sw_placement *place, unsigned rank) {
    return rank + 1 == place->tiers.n;
}

static bool has_room(const struct sw_placement *place, unsigned rank, uint64_t bytes, uint64_t limit_bytes) {
    return sw_tier_stats_of(place->tiers.at[rank]).used_bytes + bytes <= limit_bytes;
}

bool sw_placement_goes_out(struct sw_placement *place, uint64_t bytes) {
    return !is_last(place, 0) && !has_room(place, 0, bytes, place->limit_bytes[0]);
}

uint64_t sw_placement_room_bytes(const struct sw_placement *place, unsigned rank) {
    const uint64_t limit_bytes = place->limit_bytes[rank], kept_bytes = rank == 0 ? limit_bytes / 8 : 0;
    const uint64_t used_bytes = sw_tier_stats_of(place->tiers.at[rank]).used_bytes;
    return limit_bytes - kept_bytes > used_bytes ? limit_bytes - kept_bytes - used_bytes : 0;
}

static bool accepts(const struct sw_placement *place, unsigned rank, uint64_t bytes) {
    return is_last(place, rank) || has_room(place, rank, bytes, place->limit_bytes[rank]);
}

const struct sw_tier *sw_placement_next_behind(const struct sw_placement *place, const struct sw_tier *tier,
                                               uint64_t bytes) {
    for (unsigned i = tier->rank + 1; i < place->tiers.n; i++)
        if (accepts(place, i, bytes))
            return place->tiers.at[i];
    return NULL;
}

int sw_placement_reserve_behind(const struct sw_placement *place, const struct sw_tier *tier, uint64_t bytes,
                                struct sw_stored *ret, struct sw_err *err) {
    int rc = sw_err_set(err, -SW_ENOSPACE, SW_SCOPE_REQUEST, "there is no tier behind %s", tier->kind->name);
    for (unsigned i = tier->rank + 1; rc == -SW_ENOSPACE && i < place->tiers.n; i++)
        if (accepts(place, i, bytes))
            rc = place->tiers.at[i]->ops->reserve(place->tiers.at[i], bytes, ret, err);
    if (!rc && err)
        err->code = 0;
    return rc;
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
    const bool makes_room = is_making_room(place); /* asked first: reserve() then finds all the room it has made */
    const uint64_t room_bytes = whole_blocks(bytes);
    const unsigned long long before = atomic_fetch_add(counter(place, kind), room_bytes);
    const unsigned long long others = before + (kind == SW_TIER_READ ? atomic_load(&place->out_bytes) : 0);
    /* The first frame in its direction may exceed its half: a predecessor may have stored longer frames. */
    int rc = before > 0 && before + room_bytes > place->transit_bytes ? -SW_EAGAIN : 0;
    if (!rc)
        rc = sw_placement_memory(place)->ops->reserve(sw_placement_memory(place), bytes, ret, err);
    if (!rc)
        ret->use = kind == SW_TIER_WRITE ? SW_STORED_GOES_ON : SW_STORED_COMES_BACK;
    else
        (void)atomic_fetch_sub(counter(place, kind), room_bytes);
    return rc == -SW_ENOSPACE && (others > 0 || makes_room) ? -SW_EAGAIN : rc;
}

void sw_placement_arrived(struct sw_placement *place, struct sw_stored *staged) {
    const uint64_t room_bytes = whole_blocks(staged->bytes);
    const enum sw_tier_io_kind kind = staged->use == SW_STORED_GOES_ON ? SW_TIER_WRITE : SW_TIER_READ;
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
