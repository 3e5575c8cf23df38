/* catalogue_records.h - makes records of a catalogue, opens it again as the next process does, and compares what it
 * finds.
 *
 * For one test program each: its state is static. What does not fit fails the test. thread: one. */
#ifndef SW_TEST_CATALOGUE_RECORDS_H
#define SW_TEST_CATALOGUE_RECORDS_H

#include "base/alloc.h"
#include "spill/journal/catalogue.h"
#include "spill/tier/host/tier_host.h"
#include "spill/tier/nvme/tier_nvme.h"
#include "tests/lib/content.h"

#include <check.h>
#include <string.h>

enum { MAX_REGIONS = 256, MAX_FOUND = 1024, N_SLOTS = 40, CYCLES = 150, CELL_BYTES = 256, CELL_HEAD_BYTES = 32 };
#define CHUNK_BYTES ((uint64_t)1 << 20)

static const struct sw_tier_ops memory_ops, disk_ops;
static struct sw_tier memory_tier = {.ops = &memory_ops, .kind = &sw_tier_host_kind},
                      disk_tier = {.ops = &disk_ops, .kind = &sw_tier_nvme_kind};

struct found {
    struct sw_catalogue_session sessions[8];
    struct sw_catalogue_region regions[MAX_FOUND];
    uint32_t records[MAX_FOUND];
    unsigned n_sessions, n_regions, n_damaged;
};

/* Frames of `n` chunks, some of several extents, some on the disk; their numbers follow from the seed. */
static inline struct sw_frames *frames_new(unsigned n, bool packed, uint64_t seed) {
    struct sw_frames *frames = sw_frames_new(n * CHUNK_BYTES, CHUNK_BYTES, packed);
    ck_assert_ptr_nonnull(frames);
    for (unsigned i = 0; i < n; i++) {
        struct sw_stored *stored = &frames->stored[i];
        sw_frame_layout_init(&frames->layouts[i], i % 3 ? SW_CODEC_V5T : SW_CODEC_RAW, 10, CHUNK_BYTES,
                             i % 3 ? 200 : 0);
        if (i % 3)
            frames->layouts[i].frame_bytes = 4096 + sw_random(&seed) % 100000;
        if (i % 5 == 4) {
            sw_frame_layout_init(&frames->layouts[i], SW_CODEC_RFOR, 12, CHUNK_BYTES, 0);
            frames->layouts[i].frame_bytes = 7000;
            frames->layouts[i].value_type = SW_VALUE_I64;
        }
        if (i % 7 == 6) {
            sw_frame_layout_init(&frames->layouts[i], SW_CODEC_ONPAIR, 10, CHUNK_BYTES, 0);
            sw_frame_layout_add_dictionary(&frames->layouts[i], 16 * (1 + i % 4400));
            frames->layouts[i].frame_bytes = 90000;
        }
        frames->identities[i] = sw_random(&seed);
        frames->are_clients[i] = sw_random(&seed) % 2;
        if (packed) {
            frames->packed[i] =
                (struct sw_packed_chunk){i * CHUNK_BYTES + 16, sw_random(&seed) % (CHUNK_BYTES - 16), i % 2};
            continue;
        }
        stored->committed = true;
        stored->tier = i % 4 == 1 ? &disk_tier : &memory_tier;
        stored->n_extents = 1 + i % 3;
        stored->extents = sw_alloc_array(stored->n_extents, sizeof stored->extents[0]);
        uint64_t left = stored->bytes = frames->layouts[i].frame_bytes;
        for (unsigned e = 0; e < stored->n_extents; e++) {
            const uint64_t bytes = e + 1 == stored->n_extents ? left : left / 2;
            stored->extents[e] = (struct sw_extent){.offset = sw_random(&seed), .bytes = bytes};
            left -= bytes;
        }
    }
    return frames;
}

static inline void frames_end(struct sw_frames *frames) {
    for (size_t i = 0; frames && i < frames->n_chunks; i++)
        frames->stored[i].tier = NULL;
    sw_catalogue_frames_free(frames);
}

static inline void ck_same_frames(const struct sw_frames *a, const struct sw_frames *found) {
    ck_assert_uint_eq(a->raw_bytes, found->raw_bytes);
    ck_assert_uint_eq(a->chunk_bytes, found->chunk_bytes);
    ck_assert_uint_eq(a->n_chunks, found->n_chunks);
    ck_assert((a->packed != NULL) == (found->packed != NULL));
    for (size_t i = 0; i < a->n_chunks; i++) {
        const struct sw_stored *x = &a->stored[i], *y = &found->stored[i];
        ck_assert_mem_eq(&a->layouts[i], &found->layouts[i], sizeof a->layouts[0]);
        ck_assert_ptr_null(y->tier);
        ck_assert_uint_eq(x->bytes, y->bytes);
        ck_assert_uint_eq(a->identities[i], found->identities[i]);
        ck_assert_int_eq(a->are_clients[i], found->are_clients[i]);
        ck_assert_uint_eq(y->n_extents, x->n_extents);
        ck_assert_uint_eq(y->awaits, x->tier ? x->tier->kind->id : 0);
        for (unsigned e = 0; e < y->n_extents; e++) {
            ck_assert_uint_eq(x->extents[e].offset, y->extents[e].offset);
            ck_assert_uint_eq(x->extents[e].bytes, y->extents[e].bytes);
        }
        if (a->packed) {
            ck_assert_uint_eq(a->packed[i].offset, found->packed[i].offset);
            ck_assert_uint_eq(a->packed[i].bytes, found->packed[i].bytes);
            ck_assert_int_eq(a->packed[i].is_packed, found->packed[i].is_packed);
        }
    }
}

static inline struct sw_catalogue *open_new(void) {
    struct sw_catalogue *c = NULL;
    ck_assert_int_eq(sw_catalogue_open(&c, -1, MAX_REGIONS, NULL), 0);
    return c;
}

static inline uint32_t put(struct sw_catalogue *c, uint32_t slot, uint32_t gen, struct sw_frames *frames,
                           uint32_t replaced) {
    const struct sw_catalogue_region region = {.session = 7,
                                               .slot = slot,
                                               .gen = gen,
                                               .request = 100 + slot,
                                               .batch_index = slot % 3,
                                               .raw_bytes = frames ? frames->raw_bytes : 5,
                                               .stored_bytes = 77,
                                               .codec = 1,
                                               .reason = 2,
                                               .hints = {.used_us = 1234567890123, .priority = 9, .pinned = slot % 2},
                                               .frames = frames};
    uint32_t record = 0;
    ck_assert_int_eq(sw_catalogue_put_region(c, &region, replaced, &record, NULL), 0);
    ck_assert_uint_ne(record, 0);
    return record;
}

static inline bool on_session(void *arg, const struct sw_catalogue_session *session, uint32_t record) {
    struct found *found = arg;
    (void)record;
    ck_assert_uint_eq(found->n_regions, 0);
    found->sessions[found->n_sessions++] = *session;
    return true;
}

static inline bool on_region(void *arg, struct sw_catalogue_region *region, uint32_t record) {
    struct found *found = arg;
    found->records[found->n_regions] = record;
    found->regions[found->n_regions++] = *region;
    return true;
}

/* Opens a catalogue as the next process does: by the descriptor alone. */
static inline struct sw_catalogue *open_again(int fd, struct found *ret) {
    const struct sw_catalogue_visitor visitor = {.session = on_session, .found = on_region, .arg = ret};
    struct sw_catalogue *c = NULL;
    memset(ret, 0, sizeof *ret);
    ck_assert_int_eq(sw_catalogue_open(&c, fd, MAX_REGIONS, NULL), 0);
    ck_assert_int_eq(sw_catalogue_recover(c, &visitor, &ret->n_damaged, NULL), 0);
    return c;
}

static inline void found_end(struct found *found) {
    for (unsigned i = 0; i < found->n_regions; i++)
        sw_catalogue_frames_free(found->regions[i].frames);
}

static struct found found;

static inline void ck_same_session(const struct sw_catalogue_session *a, const struct sw_catalogue_session *b) {
    ck_assert_uint_eq(a->number, b->number);
    ck_assert_uint_eq(a->uid, b->uid);
    ck_assert_mem_eq(a->token, b->token, sizeof a->token);
    ck_assert_uint_eq(a->process.pid, b->process.pid);
    ck_assert_uint_eq(a->process.start_time, b->process.start_time);
    ck_assert_uint_eq(a->process.pidfd_inode, b->process.pidfd_inode);
    ck_assert_uint_eq(a->process.name_space, b->process.name_space);
}

enum { BATCH = 3, N_STEPS = 2 * BATCH + 3 };

/* Does the first `steps` of: a record for each region, the batch's, each settled, the batch's freed, and, of them, the
 * first one's priority changed. */
static inline int put_batch(struct sw_catalogue *c, uint32_t first_slot, unsigned steps) {
    const uint64_t batch = sw_catalogue_new_batch(c);
    uint32_t records[BATCH] = {0}, whole = 0;
    ck_assert_uint_ne(batch, 0);
    for (unsigned step = 0; step < steps; step++) {
        const struct sw_catalogue_region region = {
            .session = 7, .slot = first_slot + step, .gen = 1, .batch = batch, .raw_bytes = 5};
        if (step < BATCH)
            ck_assert_int_eq(sw_catalogue_put_region(c, &region, 0, &records[step], NULL), 0);
        else if (step == BATCH)
            ck_assert_int_eq(sw_catalogue_put_batch(c, batch, &whole, NULL), 0);
        else if (step <= 2 * BATCH)
            sw_catalogue_settle(c, records[step - BATCH - 1]);
        else if (step == 2 * BATCH + 1)
            sw_catalogue_free(c, &whole);
        else
            sw_catalogue_hint(c, records[0], &(struct sw_catalogue_hints){.priority = 4});
    }
    return steps > BATCH ? BATCH : 0;
}

#endif
