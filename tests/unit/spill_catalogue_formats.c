/* Catalogues that are damaged, of another format, or invalid are refused; those of versions 1 and 2 are read. */
#include "base/alloc.h"
#include "codec/checksum.h"
#include "spill/journal/catalogue.h"
#include "spill/tier/host/tier_host.h"
#include "spill/tier/nvme/tier_nvme.h"
#include "tests/lib/catalogue_records.h"
#include "tests/lib/run.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

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

/* ---- batches ---- */

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

int main(void) {
    Suite *suite = suite_create("formats of the catalogue");
    TCase *tcase = tcase_create("formats of the catalogue");
    sw_test_slow(tcase, 90);
    tcase_add_test(tcase, damage_is_found);
    tcase_add_test(tcase, a_chain_to_a_wrong_record_is_refused);
    tcase_add_test(tcase, a_foreign_catalogue_is_refused);
    tcase_add_test(tcase, invalid_content_is_refused);
    tcase_add_loop_test(tcase, version_2_is_read, 0, 2);
    tcase_add_test(tcase, version_1_is_read);
    tcase_add_test(tcase, a_full_catalogue_of_version_1_is_copied);
    tcase_add_test(tcase, a_failed_copy_leaves_version_1_unchanged);
    tcase_add_test(tcase, each_catalogue_has_its_own_epoch);
    suite_add_tcase(suite, tcase);
    return sw_test_run(suite, CK_FORK);
}
