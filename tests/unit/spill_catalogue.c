/* The catalogue: the next process finds all records and nothing else, at whichever instruction the last process was
 * killed. */
#include "base/alloc.h"
#include "codec/checksum.h"
#include "spill/journal/catalogue.h"
#include "spill/tier/host/tier_host.h"
#include "spill/tier/nvme/tier_nvme.h"
#include "tests/lib/content.h"
#include "tests/lib/run.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

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

/* ---- making and comparing ---- */

/* Frames of `n` chunks, some of several extents, some on the disk; their numbers follow from the seed. */
static struct sw_frames *frames_new(unsigned n, bool packed, uint64_t seed) {
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

static void frames_end(struct sw_frames *frames) {
    for (size_t i = 0; frames && i < frames->n_chunks; i++)
        frames->stored[i].tier = NULL;
    sw_catalogue_frames_free(frames);
}

static void ck_same_frames(const struct sw_frames *a, const struct sw_frames *found) {
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

static struct sw_catalogue *open_new(void) {
    struct sw_catalogue *c = NULL;
    ck_assert_int_eq(sw_catalogue_open(&c, -1, MAX_REGIONS, NULL), 0);
    return c;
}

static uint32_t put(struct sw_catalogue *c, uint32_t slot, uint32_t gen, struct sw_frames *frames, uint32_t replaced) {
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

static bool on_session(void *arg, const struct sw_catalogue_session *session, uint32_t record) {
    struct found *found = arg;
    (void)record;
    ck_assert_uint_eq(found->n_regions, 0);
    found->sessions[found->n_sessions++] = *session;
    return true;
}

static bool on_region(void *arg, struct sw_catalogue_region *region, uint32_t record) {
    struct found *found = arg;
    found->records[found->n_regions] = record;
    found->regions[found->n_regions++] = *region;
    return true;
}

/* As the next process: by the descriptor alone. */
static struct sw_catalogue *open_again(int fd, struct found *ret) {
    const struct sw_catalogue_visitor visitor = {.session = on_session, .found = on_region, .arg = ret};
    struct sw_catalogue *c = NULL;
    memset(ret, 0, sizeof *ret);
    ck_assert_int_eq(sw_catalogue_open(&c, fd, MAX_REGIONS, NULL), 0);
    ck_assert_int_eq(sw_catalogue_recover(c, &visitor, &ret->n_damaged, NULL), 0);
    return c;
}

static void found_end(struct found *found) {
    for (unsigned i = 0; i < found->n_regions; i++)
        sw_catalogue_frames_free(found->regions[i].frames);
}

static struct found found;

static void ck_same_session(const struct sw_catalogue_session *a, const struct sw_catalogue_session *b) {
    ck_assert_uint_eq(a->number, b->number);
    ck_assert_uint_eq(a->uid, b->uid);
    ck_assert_mem_eq(a->token, b->token, sizeof a->token);
    ck_assert_uint_eq(a->process.pid, b->process.pid);
    ck_assert_uint_eq(a->process.start_time, b->process.start_time);
    ck_assert_uint_eq(a->process.pidfd_inode, b->process.pidfd_inode);
    ck_assert_uint_eq(a->process.name_space, b->process.name_space);
}

/* ---- tests ---- */

START_TEST(recorded_regions_are_found) {
    struct sw_frames *frames[] = {frames_new(0, false, 1), frames_new(1, false, 2), frames_new(2200, false, 3),
                                  frames_new(7, true, 4), NULL};
    const struct sw_catalogue_session session = {
        .number = 7, .uid = 1000, .token = "0123456789abcde", .process = {1, UINT64_MAX, UINT64_C(1) << 33, 4}};
    struct sw_catalogue *c = open_new();
    const int fd = fcntl(sw_catalogue_fd(c), F_DUPFD_CLOEXEC, 0);
    uint32_t records[5], record;
    ck_assert_int_eq(sw_catalogue_put_session(c, &session, &record, NULL), 0);
    for (uint32_t i = 0; i < 5; i++)
        records[i] = put(c, i, 3, frames[i], 0);
    sw_catalogue_note_id(c, 3, 12);
    sw_catalogue_note_id(c, 8, 5);
    sw_catalogue_note_id(c, 0, 1);
    sw_catalogue_hint(c, records[1], &(struct sw_catalogue_hints){.used_us = 42, .priority = 255, .broken = true});
    sw_catalogue_close(c);

    c = open_again(fd, &found);
    ck_assert_uint_eq(found.n_damaged, 0);
    ck_assert_uint_eq(found.n_sessions, 1);
    ck_same_session(&session, &found.sessions[0]);
    ck_assert_uint_eq(found.n_regions, 5);
    ck_assert_uint_eq(sw_catalogue_generation(c), 12);
    ck_assert_uint_eq(sw_catalogue_n_entries(c), 9);
    for (uint32_t i = 0; i < 5; i++) {
        const struct sw_catalogue_region *r = &found.regions[4 - i]; /* the newest first */
        ck_assert(r->slot == i && r->gen == 3 && r->session == 7 && r->request == 100 + i && r->batch_index == i % 3);
        ck_assert(r->stored_bytes == 77 && r->codec == 1 && r->reason == 2 && found.records[4 - i] == records[i]);
        ck_assert_uint_eq(r->hints.used_us, i == 1 ? 42 : 1234567890123);
        ck_assert_uint_eq(r->hints.priority, i == 1 ? 255 : 9);
        ck_assert(r->hints.broken == (i == 1) && r->hints.pinned == (i == 3) && !r->hints.is_in);
        ck_assert((r->frames != NULL) == (frames[i] != NULL));
        if (frames[i])
            ck_same_frames(frames[i], r->frames);
        frames_end(frames[i]);
    }
    found_end(&found);
    sw_catalogue_close(c);
}
END_TEST

/* Whatever else becomes of the record; in its cells the next one is as any other. */
START_TEST(a_forgotten_request_is_not_found) {
    struct sw_catalogue *c = open_new();
    const int fd = fcntl(sw_catalogue_fd(c), F_DUPFD_CLOEXEC, 0);
    uint32_t records[4], list = 0;
    for (uint32_t i = 0; i < 4; i++) {
        records[i] = put(c, i, 1, NULL, 0);
        sw_catalogue_forget_request(c, records[i]);
    }
    sw_catalogue_hint(c, records[1], &(struct sw_catalogue_hints){.priority = 8});
    sw_catalogue_retire(c, &records[2], &list);
    sw_catalogue_free(c, &records[3]);
    (void)put(c, 3, 2, NULL, 0);
    sw_catalogue_forget_request(c, 0);
    sw_catalogue_forget_request(NULL, 1);
    sw_catalogue_close(c);

    c = open_again(fd, &found);
    ck_assert_uint_eq(found.n_regions, 4);
    for (uint32_t i = 0; i < 4; i++) {
        const struct sw_catalogue_region *r = &found.regions[3 - i];
        ck_assert(r->slot == i && r->request == (i == 3 ? 103 : 0) && r->hints.is_in == (i == 2));
        ck_assert_uint_eq(r->hints.priority, i == 1 ? 8 : i == 2 ? 0 : 9);
    }
    sw_catalogue_close(c);
}
END_TEST

/* Each new record carries the flag, whatever happens to it; records of an earlier version do not. */
START_TEST(only_old_records_let_holes_be_filled) {
    struct sw_catalogue *c = open_new();
    const int fd = fcntl(sw_catalogue_fd(c), F_DUPFD_CLOEXEC, 0);
    uint32_t records[6], list = 0;
    for (uint32_t i = 0; i < 4; i++)
        records[i] = put(c, i, 1, NULL, 0);
    sw_catalogue_hint(c, records[1], &(struct sw_catalogue_hints){.priority = 8});
    sw_catalogue_forget_request(c, records[2]);
    sw_catalogue_retire(c, &records[3], &list);
    for (uint32_t i = 4; i < 6; i++) { /* as they are copied */
        const struct sw_catalogue_region region = {.slot = i, .gen = 1, .may_fill_holes = true};
        ck_assert_int_eq(sw_catalogue_put_region(c, &region, 0, &records[i], NULL), 0);
    }
    sw_catalogue_forbid_holes(c, records[5]);
    sw_catalogue_hint(c, records[5], &(struct sw_catalogue_hints){.priority = 8});
    sw_catalogue_forbid_holes(c, 0);
    sw_catalogue_forbid_holes(NULL, 1);
    sw_catalogue_close(c);

    c = open_again(fd, &found);
    ck_assert_uint_eq(found.n_regions, 6);
    for (uint32_t i = 0; i < 6; i++)
        ck_assert_int_eq(found.regions[5 - i].may_fill_holes, i == 4);
    sw_catalogue_close(c);
}
END_TEST

START_TEST(freed_and_replaced_records_are_not_found) {
    struct sw_frames *one = frames_new(1, false, 1), *many = frames_new(50, false, 2);
    struct sw_catalogue *c = open_new();
    const int fd = fcntl(sw_catalogue_fd(c), F_DUPFD_CLOEXEC, 0);
    uint32_t freed = put(c, 1, 1, many, 0), retired = put(c, 2, 1, one, 0), list = 0;
    const uint32_t old = put(c, 3, 1, one, 0);
    (void)put(c, 3, 1, many, old);
    sw_catalogue_free(c, &freed);
    ck_assert_uint_eq(freed, 0);
    sw_catalogue_retire(c, &retired, &list);
    (void)put(c, 4, 1, one, 0); /* into the cells of freed records */
    sw_catalogue_close(c);

    c = open_again(fcntl(fd, F_DUPFD_CLOEXEC, 0), &found);
    ck_assert_uint_eq(found.n_regions, 3);
    ck_assert(found.regions[0].slot == 4);
    ck_assert(found.regions[1].slot == 3 && found.regions[1].frames->n_chunks == 50);
    ck_assert(found.regions[2].slot == 2 && found.regions[2].hints.is_in);
    found_end(&found);
    sw_catalogue_free_retired(c, &list);
    /* A process can free and replace records that it found like its own. */
    sw_catalogue_free(c, &found.records[1]);
    for (uint32_t i = 0; i < MAX_REGIONS; i++)
        (void)put(c, 10 + i, 1, many, 0);
    sw_catalogue_close(c);
    c = open_again(fd, &found);
    ck_assert_uint_eq(found.n_regions, 1 + MAX_REGIONS);
    found_end(&found);
    sw_catalogue_close(c);
    frames_end(one);
    frames_end(many);
}
END_TEST

/* Two valid records of one region: its process was killed between making one valid and freeing the other. */
START_TEST(the_later_of_two_records_counts) {
    struct sw_frames *frames = frames_new(2, false, 1);
    struct sw_catalogue *c = open_new();
    const int fd = fcntl(sw_catalogue_fd(c), F_DUPFD_CLOEXEC, 0);
    (void)put(c, 9, 4, frames, 0);
    const uint32_t later = put(c, 9, 4, NULL, 0);
    sw_catalogue_close(c);
    c = open_again(fd, &found);
    ck_assert_uint_eq(found.n_regions, 1);
    ck_assert_uint_eq(found.records[0], later);
    sw_catalogue_close(c);
    frames_end(frames);
}
END_TEST

START_TEST(damage_is_found) {
    for (size_t byte = 0; byte < CELL_BYTES; byte++) {
        struct sw_frames *frames = frames_new(3, false, 1);
        struct sw_catalogue *c = open_new();
        const int fd = fcntl(sw_catalogue_fd(c), F_DUPFD_CLOEXEC, 0);
        const uint32_t record = put(c, 1, 1, frames, 0);
        (void)put(c, 2, 1, frames, 0);
        sw_catalogue_close(c);
        uint8_t value;
        ck_assert_int_eq(pread(fd, &value, 1, (off_t)((size_t)record * CELL_BYTES + byte)), 1);
        value ^= 0x10;
        ck_assert_int_eq(pwrite(fd, &value, 1, (off_t)((size_t)record * CELL_BYTES + byte)), 1);
        c = open_again(fd, &found);
        /* No checksum covers hints, the list of retired records and the time of use. */
        const bool counts = byte < 8 || (byte >= 20 && byte < 28) || byte >= 32;
        ck_assert_msg(found.n_regions == (counts ? 1 : 2) && found.n_damaged == counts, "byte %zu: %u regions, %u bad",
                      byte, found.n_regions, found.n_damaged);
        found_end(&found);
        sw_catalogue_close(c);
        frames_end(frames);
    }
}
END_TEST

/* The first record's second cell is said to be another one: the header, itself, the other record's, the first one that
 * is not there, or one beyond all numbers. Nothing outside the catalogue is read, and only that record is lost. */
START_TEST(a_chain_to_a_wrong_record_is_refused) {
    enum { NEXT_AT = 24 };
    for (unsigned i = 0; i < 6; i++) {
        struct sw_frames *frames = frames_new(3, false, 1);
        struct sw_catalogue *c = open_new();
        const int fd = fcntl(sw_catalogue_fd(c), F_DUPFD_CLOEXEC, 0);
        const uint32_t record = put(c, 1, 1, frames, 0), other = put(c, 2, 1, frames, 0);
        sw_catalogue_close(c);
        const off_t end = lseek(fd, 0, SEEK_END);
        const uint32_t n_cells = (uint32_t)(end / CELL_BYTES),
                       next[6] = {0, record, other, n_cells, n_cells + 1, UINT32_MAX};
        ck_assert_int_eq(pwrite(fd, &next[i], 4, (off_t)record * CELL_BYTES + NEXT_AT), 4);
        c = open_again(fd, &found);
        ck_assert_uint_eq(found.n_damaged, 1);
        ck_assert_uint_eq(found.n_regions, 1);
        ck_assert_uint_eq(found.regions[0].slot, 2);
        ck_assert_uint_eq(sw_catalogue_longest_chunk(c), CHUNK_BYTES);
        found_end(&found);
        sw_catalogue_close(c);
        frames_end(frames);
    }
}
END_TEST

START_TEST(a_foreign_catalogue_is_refused) {
    static const struct {
        size_t at;
        int code;
    } cases[] = {{0, -SW_EFRAME}, {8, -SW_EVERSION}, {12, -SW_EFRAME}};
    for (unsigned i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct sw_catalogue *c = open_new();
        const int fd = fcntl(sw_catalogue_fd(c), F_DUPFD_CLOEXEC, 0);
        sw_catalogue_close(c);
        ck_assert_int_eq(pwrite(fd, "\x7f", 1, (off_t)cases[i].at), 1);
        ck_assert_int_eq(sw_catalogue_open(&c, fd, MAX_REGIONS, NULL), cases[i].code);
    }
    struct sw_catalogue *c;
    ck_assert_int_eq(sw_catalogue_open(&c, memfd_create("empty", MFD_CLOEXEC), MAX_REGIONS, NULL), -SW_EFRAME);
}
END_TEST

/* Bytes that make no sense although their checksum is right: whatever is found can be used, or it is damaged. */
static void set_byte(int fd, uint32_t record, size_t at, uint8_t value) {
    uint8_t content[CELL_BYTES - CELL_HEAD_BYTES];
    uint32_t bytes;
    const off_t cell = (off_t)record * CELL_BYTES;
    ck_assert_int_eq(pread(fd, &bytes, sizeof bytes, cell + 20), sizeof bytes);
    ck_assert_uint_le(bytes, sizeof content);
    ck_assert_int_eq(pread(fd, content, bytes, cell + CELL_HEAD_BYTES), bytes);
    content[at] = value;
    const uint64_t commit = (uint64_t)sw_hash_finish(sw_hash_update(bytes * 31 + 2, content, bytes)) << 32 | 2;
    ck_assert_int_eq(pwrite(fd, content, bytes, cell + CELL_HEAD_BYTES), bytes);
    ck_assert_int_eq(pwrite(fd, &commit, sizeof commit, cell), sizeof commit);
}

START_TEST(invalid_content_is_refused) {
    static const uint8_t values[] = {0, 1, 0x7F, 0x80, 0xFF};
    enum { REGION = 80, CHUNK = 32, EXTENT = 16, BYTES = REGION + 2 * CHUNK + 3 * EXTENT, BATCH_AT = 48, BEHIND = 2 };
    unsigned n_damaged = 0;
    for (size_t at = 0; at < BYTES; at++)
        for (size_t v = 0; v < sizeof values; v++) {
            struct sw_frames *frames = frames_new(2, false, 1);
            struct sw_catalogue *c = open_new();
            const int fd = fcntl(sw_catalogue_fd(c), F_DUPFD_CLOEXEC, 0);
            const uint32_t record = put(c, 1, 1, frames, 0);
            (void)put(c, 2, 1, NULL, 0);
            sw_catalogue_close(c);
            set_byte(fd, record, at, values[v]);
            c = open_again(fd, &found);
            const bool has_batch = at >= BATCH_AT && at < BATCH_AT + 8 && values[v]; /* one that is not there */
            ck_assert_uint_eq(found.n_regions + found.n_damaged + has_batch, BEHIND);
            n_damaged += found.n_damaged;
            for (unsigned r = 0; r < found.n_regions; r++) /* its chunks are as many as there is content for */
                ck_assert(!found.regions[r].frames || found.regions[r].frames->n_chunks == 2);
            found_end(&found);
            sw_catalogue_close(c);
            frames_end(frames);
        }
    ck_assert_uint_gt(n_damaged, 200);
}
END_TEST

/* ---- version 1 ---- */

/* tests/golden/v1.catalogue is what version 0.1 of the program has written, and is never rewritten. */
static int open_golden(void) {
    static uint8_t bytes[1 << 16];
    FILE *file = fopen(SW_SOURCE_DIR "/tests/golden/v1.catalogue", "rb");
    ck_assert_ptr_nonnull(file);
    const size_t n = fread(bytes, 1, sizeof bytes, file);
    (void)fclose(file);
    const int fd = memfd_create("v1", MFD_CLOEXEC);
    ck_assert_int_eq(pwrite(fd, bytes, n, 0), (ssize_t)n);
    return fd;
}

static const struct sw_catalogue_region *find_slot(uint32_t slot) {
    for (unsigned i = 0; i < found.n_regions; i++)
        if (found.regions[i].slot == slot)
            return &found.regions[i];
    ck_abort_msg("no region in slot %u", slot);
}

static void ck_layout(const struct sw_frames *frames, size_t i, enum sw_codec_id codec, enum sw_value_type type,
                      unsigned segment_log2, uint32_t n_symbols, uint64_t frame_bytes) {
    struct sw_frame_layout layout;
    sw_frame_layout_init(&layout, codec, segment_log2, sw_frames_chunk_bytes(frames, i), n_symbols);
    layout.value_type = type;
    layout.frame_bytes = frame_bytes ? frame_bytes : layout.frame_bytes;
    ck_assert_mem_eq(&layout, &frames->layouts[i], sizeof layout);
    ck_assert_uint_eq(frames->identities[i], 0);
}

static void ck_extents(const struct sw_frames *frames, size_t i, unsigned n, uint64_t first, uint64_t bytes) {
    const struct sw_stored *stored = &frames->stored[i];
    ck_assert(stored->n_extents == n && stored->bytes == bytes && stored->awaits == (n ? sw_tier_host_kind.id : 0) &&
              !stored->tier);
    for (unsigned e = 0; e < n; e++) {
        ck_assert_uint_eq(stored->extents[e].offset, first + e * 65536);
        ck_assert_uint_eq(stored->extents[e].bytes, e + 1 == n ? bytes - 4096 * e : 4096);
    }
}

static void ck_one(const struct sw_catalogue_region *region) {
    ck_assert_uint_eq(region->raw_bytes, CHUNK_BYTES);
    ck_assert_uint_eq(region->frames->n_chunks, 1);
    ck_layout(region->frames, 0, SW_CODEC_V5T, SW_VALUE_NONE, 9, 200, 350000);
    ck_extents(region->frames, 0, 1, 0x100000, 350000);
}

static void ck_many(const struct sw_frames *frames) {
    ck_assert(frames->n_chunks == 7 && frames->raw_bytes == 6 * CHUNK_BYTES + 12345);
    for (size_t i = 0; i < 7; i++) {
        if (i % 3 == 0)
            ck_layout(frames, i, SW_CODEC_RAW, SW_VALUE_NONE, 10, 0, 0);
        else if (i % 3 == 1)
            ck_layout(frames, i, SW_CODEC_SFOR, SW_VALUE_I64, 10, 0, 70000 + 16 * i);
        else
            ck_layout(frames, i, SW_CODEC_PHRASE, SW_VALUE_NONE, 8, 255, 80000 + 16 * i);
        if (i % 2 == 0)
            ck_extents(frames, i, (unsigned)(1 + i % 3), 0x200000 * (i + 1), frames->layouts[i].frame_bytes);
        else
            ck_assert(frames->stored[i].awaits == sw_tier_nvme_kind.id && frames->stored[i].n_extents == 0 &&
                      frames->stored[i].bytes == frames->layouts[i].frame_bytes);
    }
}

static void ck_packed(const struct sw_frames *frames) {
    ck_assert(frames->packed && frames->n_chunks == 5);
    for (size_t i = 0; i < 5; i++) {
        ck_assert_uint_eq(frames->packed[i].offset, 1000000 * i);
        ck_assert_uint_eq(frames->packed[i].bytes, i % 2 ? CHUNK_BYTES : 300000);
        ck_assert_int_eq(frames->packed[i].is_packed, i != 4);
        ck_layout(frames, i, i % 2 ? SW_CODEC_RAW : SW_CODEC_DFOR, i % 2 ? SW_VALUE_NONE : SW_VALUE_U32, 10, 0,
                  i % 2 ? 0 : 300000);
        ck_extents(frames, i, (unsigned)(i % 2), 0x3000000 + 0x10000 * i, i % 2 ? frames->layouts[i].data_offset : 0);
    }
}

static void ck_golden(const struct sw_catalogue *c) {
    ck_assert_uint_eq(sw_catalogue_epoch(c), 0x0123456789ABCDEF);
    ck_assert_uint_eq(sw_catalogue_generation(c), 12);
    ck_assert_uint_eq(sw_catalogue_n_entries(c), 11);
    ck_assert_uint_eq(found.n_sessions, 2);
    ck_same_session(&(struct sw_catalogue_session){7, 1000, "0123456789abcde", {.pid = 4321}}, &found.sessions[0]);
    ck_same_session(&(struct sw_catalogue_session){9, 1001, "fedcba987654321", {0}}, &found.sessions[1]);
    ck_assert_uint_eq(found.n_regions, 9); /* 0 to 8; 9 was freed, 10 is damaged */
    for (uint32_t i = 0; i < 9; i++) {
        const struct sw_catalogue_region *r = find_slot(i);
        ck_assert(r->session == 7 && r->gen == 3 && r->batch_index == i % 3 && r->stored_bytes == 777 &&
                  r->codec == 1 && r->reason == 2 && r->batch == 0 && r->hints.used_us == 1234567890123);
        ck_assert_uint_eq(r->request, i == 8 ? 0 : 100 + i);
        ck_assert_uint_eq(r->hints.priority, i == 7 ? 0 : 9);
        ck_assert(r->hints.pinned == (i == 0) && r->hints.broken == (i == 5) && r->hints.is_in == (i == 7));
        ck_assert((r->name != NULL) == (i == 4) && (r->frames == NULL) == (i == 5));
        ck_assert(i != 4 || r->uid == 1000);
        if (i == 0 || i == 4 || i >= 6)
            ck_one(r);
    }
    ck_many(find_slot(1)->frames);
    ck_packed(find_slot(2)->frames);
    const struct sw_frames *two = find_slot(3)->frames;
    for (unsigned i = 0; i < found.n_regions; i++)
        ck_assert(found.regions[i].may_fill_holes);
    ck_assert(two->n_buffers == 2 && two->n_chunks == 3 && two->buffers[1].raw_bytes == 100 &&
              two->buffers[1].chunk_bytes == 65536);
    for (size_t i = 0; i < 3; i++)
        ck_extents(two, i, 1, 0x4000000 + 0x200000 * i, two->layouts[i].frame_bytes);
}

START_TEST(version_1_is_read) {
    static uint8_t before[1 << 16], after[1 << 16];
    const int old = open_golden();
    const ssize_t n = pread(old, before, sizeof before, 0);
    struct sw_catalogue *c = open_again(fcntl(old, F_DUPFD_CLOEXEC, 0), &found);
    ck_assert(sw_catalogue_is_copy(c) && sw_catalogue_is_adopted(c));
    ck_assert_uint_eq(found.n_damaged, 1);
    ck_golden(c);
    found_end(&found);
    (void)put(c, 20, 13, NULL, 0); /* it can be written to */
    const int fd = fcntl(sw_catalogue_fd(c), F_DUPFD_CLOEXEC, 0);
    sw_catalogue_close(c);
    ck_assert_int_eq(pread(old, after, sizeof after, 0), n); /* unchanged, for a process that has to start again */
    ck_assert_mem_eq(before, after, (size_t)n);
    (void)close(old);

    c = open_again(fd, &found); /* and from then on it is like any other */
    ck_assert(!sw_catalogue_is_copy(c));
    ck_assert_uint_eq(found.n_damaged, 0);
    ck_assert_uint_eq(found.n_regions, 10);
    found.n_regions--;
    ck_assert_uint_eq(found.regions[0].slot, 20);
    memmove(&found.regions[0], &found.regions[1], 9 * sizeof found.regions[0]);
    ck_golden(c);
    found_end(&found);
    sw_catalogue_close(c);
}
END_TEST

/* However long it is: a copy has room for all. */
START_TEST(a_full_catalogue_of_version_1_is_copied) {
    const int old = open_golden();
    enum { OLD_CELL_BYTES = 128, N = 60000 };
    uint8_t head[OLD_CELL_BYTES], session[OLD_CELL_BYTES];
    ck_assert_int_eq(pread(old, head, sizeof head, 0), sizeof head);
    ck_assert_int_eq(pread(old, session, sizeof session, sizeof head), sizeof session);
    const int fd = memfd_create("full", MFD_CLOEXEC);
    ck_assert_int_eq(write(fd, head, sizeof head), sizeof head);
    for (unsigned i = 0; i < N; i++)
        ck_assert_int_eq(write(fd, session, sizeof session), sizeof session);
    struct sw_catalogue *c;
    ck_assert_int_eq(sw_catalogue_open(&c, fd, 1, NULL), 0);
    sw_catalogue_close(c);
    (void)close(old);
}
END_TEST

START_TEST(a_failed_copy_leaves_version_1_unchanged) {
    static uint8_t before[1 << 16], after[1 << 16];
    const int old = open_golden();
    const ssize_t n = pread(old, before, sizeof before, 0);
    unsigned long nth = 0;
    int rc;
    do {
        struct sw_catalogue *c = NULL;
        sw_alloc_fail_nth(++nth);
        rc = sw_catalogue_open(&c, fcntl(old, F_DUPFD_CLOEXEC, 0), MAX_REGIONS, NULL);
        sw_alloc_fail_nth(0);
        ck_assert(rc == 0 || rc == -SW_ENOMEM);
        sw_catalogue_close(c);
        ck_assert_int_eq(pread(old, after, sizeof after, 0), n);
        ck_assert_mem_eq(before, after, (size_t)n);
    } while (rc);
    ck_assert_uint_gt(nth, 10);
    (void)close(old);
}
END_TEST

/* It goes with the memory; one that an earlier version has made has none. */
START_TEST(each_catalogue_has_its_own_epoch) {
    static const uint8_t none[sizeof(uint64_t)];
    struct sw_catalogue *c = open_new(), *other = open_new();
    const uint64_t epoch = sw_catalogue_epoch(c);
    ck_assert_uint_ne(epoch, 0);
    ck_assert_uint_ne(epoch, sw_catalogue_epoch(other));
    ck_assert_uint_eq(sw_catalogue_epoch(NULL), 0);
    sw_catalogue_close(other);
    const int fd = fcntl(sw_catalogue_fd(c), F_DUPFD_CLOEXEC, 0);
    sw_catalogue_close(c);
    c = open_again(fcntl(fd, F_DUPFD_CLOEXEC, 0), &found);
    ck_assert_uint_eq(sw_catalogue_epoch(c), epoch);
    sw_catalogue_close(c);
    ck_assert_int_eq(pwrite(fd, none, sizeof none, 24), sizeof none);
    c = open_again(fd, &found);
    ck_assert_uint_eq(sw_catalogue_epoch(c), 0);
    sw_catalogue_close(c);
}
END_TEST

START_TEST(a_full_catalogue_refuses_records) {
    struct sw_frames *frames = frames_new(2200, false, 1);
    struct sw_catalogue_region region = {.slot = 1, .gen = 1, .frames = frames};
    struct sw_catalogue *c = open_new();
    struct sw_err err;
    uint32_t record = 0, first = put(c, 0, 1, frames, 0);
    int rc = 0;
    while (!rc)
        rc = sw_catalogue_put_region(c, &region, 0, &record, &err);
    ck_assert_int_eq(rc, -SW_ELIMIT);
    ck_assert_int_eq(err.code, -SW_ELIMIT);
    sw_catalogue_free(c, &first);
    ck_assert_int_eq(sw_catalogue_put_region(c, &region, 0, &record, &err), 0);
    sw_catalogue_close(c);
    frames_end(frames);
}
END_TEST

/* ---- batches ---- */

enum { BATCH = 3, N_STEPS = 2 * BATCH + 3 };

/* Does the first `steps` of: a record for each region, the batch's, each settled, the batch's freed, and, of them, the
 * first one's priority changed. */
static int put_batch(struct sw_catalogue *c, uint32_t first_slot, unsigned steps) {
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

/* Wherever the batch ended, another batch and single records are found; and the next process finds the same. */
START_TEST(a_batch_is_found_as_a_whole_or_not_at_all) {
    for (unsigned steps = 0; steps <= N_STEPS; steps++) {
        struct sw_catalogue *c = open_new();
        int fd = fcntl(sw_catalogue_fd(c), F_DUPFD_CLOEXEC, 0);
        (void)put(c, 30, 1, NULL, 0);
        (void)put_batch(c, 20, N_STEPS);
        const unsigned n = 1 + BATCH + (unsigned)put_batch(c, 10, steps);
        sw_catalogue_close(c);
        for (unsigned life = 0; life < 3; life++) {
            c = open_again(fd, &found);
            fd = fcntl(sw_catalogue_fd(c), F_DUPFD_CLOEXEC, 0);
            ck_assert_msg(found.n_regions == n, "step %u, life %u: %u regions", steps, life, found.n_regions);
            ck_assert_uint_eq(found.n_damaged, 0);
            if (life == 1) { /* in the cells of dropped records; settled records stay settled */
                sw_catalogue_hint(c, found.records[0], &(struct sw_catalogue_hints){.priority = 5});
                uint32_t record = put(c, 40, 1, NULL, 0);
                sw_catalogue_free(c, &record);
            }
            sw_catalogue_close(c);
        }
        (void)close(fd);
    }
}
END_TEST

/* Its regions are named by a batch that is not there, and of which nothing is known any more. */
START_TEST(batch_numbers_are_not_reused) {
    struct sw_catalogue *c = open_new();
    const int fd = fcntl(sw_catalogue_fd(c), F_DUPFD_CLOEXEC, 0);
    (void)put_batch(c, 10, BATCH);
    const uint64_t last = sw_catalogue_new_batch(c);
    sw_catalogue_close(c);
    c = open_again(fd, &found);
    ck_assert_uint_eq(found.n_regions, 0);
    ck_assert_uint_ge(sw_catalogue_new_batch(c), last - 1);
    (void)put_batch(c, 20, N_STEPS);
    sw_catalogue_close(c);
    ck_assert(sw_catalogue_new_batch(NULL) == 0);
    uint32_t record = 1;
    ck_assert(sw_catalogue_put_batch(NULL, 0, &record, NULL) == 0 && record == 0);
    sw_catalogue_settle(NULL, 1);
}
END_TEST

/* Version 2 has no batches: its records count, and a kind that it did not know is damage. */
START_TEST(version_2_is_read) {
    const uint32_t version = 2;
    struct sw_frames *frames = frames_new(7, false, 4);
    struct sw_catalogue *c = open_new();
    const int fd = fcntl(sw_catalogue_fd(c), F_DUPFD_CLOEXEC, 0);
    memset(frames->are_clients, 0, 7 * sizeof frames->are_clients[0]); /* it has no frames of clients either */
    (void)put(c, 5, 1, frames, 0);
    uint32_t forgotten = put(c, 6, 1, NULL, 0), list = 0, in = put(c, 7, 1, NULL, 0);
    sw_catalogue_forget_request(c, forgotten);
    sw_catalogue_retire(c, &in, &list);
    const uint64_t epoch = sw_catalogue_epoch(c);
    if (_i)
        (void)put_batch(c, 10, BATCH + 1);
    sw_catalogue_close(c);
    ck_assert_int_eq(pwrite(fd, &version, sizeof version, 8), sizeof version);
    c = open_again(fd, &found);
    ck_assert(sw_catalogue_is_copy(c) && sw_catalogue_is_adopted(c));
    ck_assert_uint_eq(sw_catalogue_epoch(c), epoch);
    ck_assert_uint_eq(found.n_damaged, (unsigned)_i);
    ck_assert_uint_eq(found.n_regions, 3 + (unsigned)_i * BATCH);
    const struct sw_catalogue_region *first = find_slot(5);
    ck_same_frames(frames, first->frames);
    ck_assert(first->request == 105 && first->hints.priority == 9 && !first->may_fill_holes);
    ck_assert(find_slot(6)->request == 0 && find_slot(7)->hints.is_in);
    frames_end(frames);
    found_end(&found);
    sw_catalogue_close(c);
}
END_TEST

/* Signals are the loop's, which is the thread that records: a reload or a stop may come while the catalogue grows. */
static unsigned n_interrupted;

int __wrap_fallocate(int fd, int mode, off_t offset, off_t bytes);
int __real_fallocate(int fd, int mode, off_t offset, off_t bytes);

int __wrap_fallocate(int fd, int mode, off_t offset, off_t bytes) {
    if (n_interrupted == 0)
        return __real_fallocate(fd, mode, offset, bytes);
    n_interrupted--;
    errno = EINTR;
    return -1;
}

START_TEST(a_signal_during_growth_is_harmless) {
    struct sw_frames *frames = frames_new(2200, false, 1);
    struct sw_catalogue *c = open_new();
    n_interrupted = 3;
    for (uint32_t i = 0; n_interrupted; i++)
        (void)put(c, i, 1, frames, 0);
    sw_catalogue_close(c);
    frames_end(frames);
}
END_TEST

/* ---- killed ---- */

enum state { EMPTY, WRITING, STORED, FREEING };
struct shared {
    atomic_uint states[N_SLOTS], gens[N_SLOTS];
    atomic_ulong n;
};

static __attribute__((noreturn)) void child_main(struct sw_catalogue *c, struct shared *shared, uint64_t seed,
                                                 uint32_t records[N_SLOTS], struct sw_frames *const frames[4]) {
    for (;;) {
        const unsigned i = (unsigned)(sw_random(&seed) % N_SLOTS);
        struct sw_catalogue_region region = {
            .session = 7, .slot = i, .gen = atomic_load(&shared->gens[i]), .frames = frames[sw_random(&seed) % 4]};
        region.raw_bytes = region.frames ? region.frames->raw_bytes : 0;
        const bool replaces = records[i] && sw_random(&seed) % 2;
        if (records[i] && !replaces) {
            atomic_store(&shared->states[i], FREEING);
            sw_catalogue_free(c, &records[i]);
            atomic_store(&shared->states[i], EMPTY);
        } else {
            if (!replaces) {
                region.gen++;
                atomic_store(&shared->gens[i], region.gen);
                atomic_store(&shared->states[i], WRITING);
            }
            if (sw_catalogue_put_region(c, &region, records[i], &records[i], NULL))
                abort();
            atomic_store(&shared->states[i], STORED);
        }
        atomic_fetch_add(&shared->n, 1);
    }
}

START_TEST(killed_at_any_moment) {
    struct sw_frames *frames[4] = {frames_new(1, false, 1), frames_new(9, false, 2), frames_new(300, false, 3), NULL};
    struct shared *shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    struct sw_catalogue *c = open_new();
    const int fd = fcntl(sw_catalogue_fd(c), F_DUPFD_CLOEXEC, 0);
    uint64_t seed = 5;
    uint32_t records[N_SLOTS] = {0};
    for (int cycle = 0; cycle < CYCLES; cycle++) {
        const unsigned long before = atomic_load(&shared->n);
        const uint64_t child_seed = sw_random(&seed);
        const pid_t child = fork();
        ck_assert_int_ge(child, 0);
        if (child == 0)
            child_main(c, shared, child_seed, records, frames);
        while (atomic_load(&shared->n) < before + 20)
            (void)usleep(50);
        (void)usleep((useconds_t)(sw_random(&seed) % 1000));
        (void)kill(child, SIGKILL);
        ck_assert_int_eq(waitpid(child, NULL, 0), child);
        sw_catalogue_close(c);
        c = open_again(fcntl(fd, F_DUPFD_CLOEXEC, 0), &found);
        ck_assert_uint_eq(found.n_damaged, 0);
        memset(records, 0, sizeof records);
        for (unsigned r = 0; r < found.n_regions; r++) {
            const unsigned i = found.regions[r].slot;
            ck_assert_uint_eq(records[i], 0);
            ck_assert_uint_eq(found.regions[r].gen, atomic_load(&shared->gens[i]));
            ck_assert_uint_ne(atomic_load(&shared->states[i]), EMPTY);
            records[i] = found.records[r];
        }
        for (unsigned i = 0; i < N_SLOTS; i++) {
            ck_assert(records[i] || atomic_load(&shared->states[i]) != STORED);
            atomic_store(&shared->states[i], records[i] ? STORED : EMPTY);
        }
        found_end(&found);
    }
    sw_catalogue_close(c);
    (void)close(fd);
    for (int i = 0; i < 4; i++)
        frames_end(frames[i]);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("catalogue");
    TCase *tcase = tcase_create("catalogue");
    sw_test_slow(tcase, 90);
    tcase_add_test(tcase, recorded_regions_are_found);
    tcase_add_test(tcase, a_forgotten_request_is_not_found);
    tcase_add_test(tcase, only_old_records_let_holes_be_filled);
    tcase_add_test(tcase, freed_and_replaced_records_are_not_found);
    tcase_add_test(tcase, the_later_of_two_records_counts);
    tcase_add_test(tcase, damage_is_found);
    tcase_add_test(tcase, a_chain_to_a_wrong_record_is_refused);
    tcase_add_test(tcase, a_foreign_catalogue_is_refused);
    tcase_add_test(tcase, invalid_content_is_refused);
    tcase_add_test(tcase, a_batch_is_found_as_a_whole_or_not_at_all);
    tcase_add_test(tcase, batch_numbers_are_not_reused);
    tcase_add_loop_test(tcase, version_2_is_read, 0, 2);
    tcase_add_test(tcase, version_1_is_read);
    tcase_add_test(tcase, a_full_catalogue_of_version_1_is_copied);
    tcase_add_test(tcase, a_failed_copy_leaves_version_1_unchanged);
    tcase_add_test(tcase, each_catalogue_has_its_own_epoch);
    tcase_add_test(tcase, a_full_catalogue_refuses_records);
    tcase_add_test(tcase, a_signal_during_growth_is_harmless);
    tcase_add_test(tcase, killed_at_any_moment);
    suite_add_tcase(suite, tcase);
    return sw_test_run(suite, CK_FORK);
}
