/* Records of the catalogue with a valid checksum and invalid content: each is refused, in both versions, and nothing is
 * read behind its last byte. */
#include "base/alloc.h"
#include "spill/journal/catalogue_format.h"
#include "spill/tier/host/tier_host.h"
#include "tests/lib/run.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CHUNK_BYTES ((uint64_t)1 << 20)
#define WHOLE UINT64_MAX

/* Sizes of a record's parts by version: the body of a region, a chunk; the others are alike. */
enum { NAME_BYTES = 68, PART_BYTES = 16, RANGE_BYTES = 16, CELL_BYTES = 256, MAX_CONTENT_BYTES = 512 };
enum shape { PLAIN, NAMED, PARTS, PACKED, NO_FRAMES, SHAPE_NR };

struct content {
    uint8_t bytes[MAX_CONTENT_BYTES];
    size_t n;
};

static void put(struct content *c, uint64_t value, size_t bytes) {
    memcpy(c->bytes + c->n, &value, bytes);
    c->n += bytes;
}

static void put_range(struct content *c, uint64_t a, uint64_t b) {
    put(c, a, 8);
    put(c, b, 8);
}

static void put_chunk(struct content *c, unsigned version, uint64_t frame_bytes, unsigned n_extents) {
    const unsigned tier = n_extents ? sw_tier_host_kind.id : 0;
    put(c, frame_bytes, 8);
    if (version == 2)
        put_range(c, 99, n_extents); /* identity; no symbols */
    else
        put(c, n_extents, 4);
    if (version == 2)
        put(c, tier << 8 | 10u << 24, 8); /* raw, no values, segments of 1 KiB */
    else
        put(c, 10u << 16 | tier << 28, 4);
}

/* Two chunks of raw frames in one and two extents. Several buffers: each has one. Packed: one lies in the tier in
 * part. No frames: nothing behind the body. */
static struct content make(unsigned version, enum shape shape) {
    struct content c = {.n = 0};
    struct sw_frame_layout layout;
    sw_frame_layout_init(&layout, SW_CODEC_RAW, 10, CHUNK_BYTES, 0);
    const bool has_frames = shape != NO_FRAMES;
    put_range(&c, 1, 7);                         /* sequence, session */
    put(&c, UINT64_C(3) << 32 | 5, 8);           /* slot, gen */
    put_range(&c, 2 * CHUNK_BYTES, CHUNK_BYTES); /* raw bytes, the longest chunk */
    put(&c, 777, 8);
    if (version == 2)
        put(&c, 4, 8); /* batch */
    put(&c, has_frames ? 2 : 0, 4);
    put(&c, 6, 8); /* request, its first buffer */
    const unsigned has = (has_frames ? 1u : 0u) | (shape == NAMED ? 2u : 0u);
    const unsigned n_parts = shape == PARTS ? 2 : 0;
    if (version == 2) {
        put(&c, n_parts, 2);
        put(&c, 2u << 8, 2);
        put(&c, has | (shape == PACKED ? 4u : 0u), 8);
    } else {
        put(&c, 2u << 8 | (shape == PACKED ? 1 : n_parts) << 16 | has << 24, 4);
    }
    if (shape == NAMED) {
        put(&c, 1000, 4);
        memcpy(c.bytes + c.n, "lineitem", 8);
        c.n += SW_REGION_NAME_BYTES;
    }
    for (unsigned i = 0; i < n_parts; i++)
        put_range(&c, CHUNK_BYTES, CHUNK_BYTES);
    for (unsigned i = 0; has_frames && i < 2; i++) {
        put_chunk(&c, version, shape == PACKED && i == 0 ? 3000 : layout.frame_bytes, shape == PACKED ? i : i + 1);
        if (shape == PACKED) {
            if (i == 1)
                put_range(&c, 65536, layout.data_offset);
            put_range(&c, i * CHUNK_BYTES, i ? CHUNK_BYTES : 3000);
        } else {
            if (i == 1)
                put_range(&c, 8 << 20, 4096);
            put_range(&c, i << 22, layout.frame_bytes - (i ? 4096 : 0));
        }
    }
    return c;
}

static const struct sw_catalogue_format *format_of(unsigned version) {
    return version == 2 ? &sw_catalogue_v2 : &sw_catalogue_v1;
}

/* Reads the first `bytes`, in memory that ends there. Frees the result. */
static int read_content(unsigned version, const struct content *c, size_t bytes, bool *ret_has_frames) {
    struct sw_catalogue_region region = {0};
    char name[SW_REGION_NAME_BYTES];
    const long live = sw_alloc_live();
    uint8_t *exact = malloc(bytes ? bytes : 1);
    ck_assert_ptr_nonnull(exact);
    memcpy(exact, c->bytes, bytes);
    const int rc = sw_catalogue_read_region(format_of(version), exact, bytes, &region, name);
    *ret_has_frames = rc == 0 && region.frames;
    if (rc == 0)
        sw_catalogue_frames_free(region.frames);
    free(exact);
    ck_assert_int_eq(sw_alloc_live(), live);
    return rc;
}

static int read_whole(unsigned version, const struct content *c) {
    bool has_frames;
    return read_content(version, c, c->n, &has_frames);
}

/* Loop: shapes of version 1, then of version 2. */
START_TEST(a_record_must_have_its_stated_length) {
    const unsigned version = 1 + (unsigned)_i / SHAPE_NR;
    const enum shape shape = (enum shape)((unsigned)_i % SHAPE_NR);
    struct content c = make(version, shape);
    bool has_frames;
    ck_assert_int_eq(read_content(version, &c, c.n, &has_frames), 0);
    ck_assert_int_eq(has_frames, shape != NO_FRAMES);
    for (size_t bytes = 0; bytes < c.n; bytes++)
        ck_assert_msg(read_content(version, &c, bytes, &has_frames) == -SW_EFRAME, "%zu of %zu bytes", bytes, c.n);
    ck_assert_int_eq(read_content(version, &c, c.n + 1, &has_frames), -SW_EFRAME);
    ck_assert_int_eq(read_content(version, &c, c.n + RANGE_BYTES, &has_frames), -SW_EFRAME);
}
END_TEST

/* `at` counts from the start of the damaged part: the body, or the part behind it. */
enum where { BODY, NAME, PART, CHUNK, FIRST_EXTENT, LAST_EXTENT, LAST_RANGE };
struct spoilt {
    const char *what;
    enum shape shape;
    enum where where;
    size_t at;
    size_t bytes;
    uint64_t value;
};

static const struct spoilt cases[] = {
    {"chunks of no bytes", PLAIN, BODY, 32, 8, 0},
    {"a chunk more than there are bytes for", PLAIN, BODY, 24, 8, 2 * CHUNK_BYTES + 1},
    {"a chunk less", PLAIN, BODY, 24, 8, CHUNK_BYTES},
    {"a length that wraps", PLAIN, BODY, 24, 8, UINT64_MAX},
    {"a name without an end", NAMED, NAME, 4 + 56, 8, UINT64_C(0x7878787878787878)},
    {"a buffer with chunks of no bytes", PARTS, PART, 8, 8, 0},
    {"a buffer one byte longer", PARTS, PART, 0, 8, CHUNK_BYTES + 1},
    {"a buffer one byte shorter", PARTS, PART, 0, 8, CHUNK_BYTES - 1},
    {"buffers whose sum wraps", PARTS, PART, 0, 8, UINT64_MAX - CHUNK_BYTES + 1},
    {"a frame one byte longer than its extents", PLAIN, CHUNK, 0, 8, WHOLE - 1},
    {"a frame longer than one of the chunk can be", PLAIN, CHUNK, 0, 8, UINT64_C(1) << 40},
    {"more extents than follow", PLAIN, CHUNK, 0, 0, 5},
    {"extents beyond all counting", PLAIN, CHUNK, 0, 0, UINT32_MAX},
    {"an extent one byte longer than its frame", PLAIN, FIRST_EXTENT, 8, 8, WHOLE - 1},
    {"an extent of all bytes", PLAIN, FIRST_EXTENT, 8, 8, UINT64_MAX},
    {"an extent that ends behind all bytes", PLAIN, FIRST_EXTENT, 0, 8, UINT64_MAX - 4096},
    {"extents whose sum wraps", PLAIN, LAST_EXTENT, 8, 8, UINT64_MAX - 4095},
    {"a packed range one byte outside", PACKED, LAST_RANGE, 8, 8, CHUNK_BYTES + 1},
    {"a packed range that begins outside", PACKED, LAST_RANGE, 0, 8, 2 * CHUNK_BYTES + 1},
    {"a packed range that wraps", PACKED, LAST_RANGE, 0, 8, UINT64_MAX},
};
enum { CASES = sizeof cases / sizeof cases[0] };

static size_t place_of(const struct spoilt *spoilt, unsigned version, size_t n) {
    const size_t body = format_of(version)->region_bytes, chunk_bytes = version == 2 ? 32 : 16;
    const size_t before_chunks = spoilt->shape == NAMED ? NAME_BYTES : spoilt->shape == PARTS ? 2 * PART_BYTES : 0;
    switch (spoilt->where) {
    case BODY:
        return spoilt->at;
    case NAME:
    case PART:
        return body + spoilt->at;
    case CHUNK:
        /* The number of extents has another place in each version. */
        return body + before_chunks + (spoilt->bytes ? spoilt->at : version == 2 ? 16 : 8);
    case FIRST_EXTENT:
        return body + before_chunks + chunk_bytes + spoilt->at;
    case LAST_EXTENT:
    case LAST_RANGE:
        return n - RANGE_BYTES + spoilt->at;
    }
    ck_abort_msg("nowhere");
}

/* Loop: cases with version 1, then with version 2. */
START_TEST(invalid_records_are_refused) {
    const unsigned version = 1 + (unsigned)_i / CASES;
    const struct spoilt *spoilt = &cases[(unsigned)_i % CASES];
    struct content c = make(version, spoilt->shape);
    const size_t at = place_of(spoilt, version, c.n), bytes = spoilt->bytes ? spoilt->bytes : 4;
    uint64_t value = spoilt->value;
    if (value == WHOLE - 1) { /* one more than there is */
        memcpy(&value, c.bytes + at, sizeof value);
        value++;
    }
    ck_assert_int_eq(read_whole(version, &c), 0);
    memcpy(c.bytes + at, &value, bytes);
    ck_assert_msg(read_whole(version, &c) == -SW_EFRAME, "version %u: %s", version, spoilt->what);
}
END_TEST

/* ---- a chain of cells ---- */

static bool on_session(void *arg, const struct sw_catalogue_session *session, uint32_t record) {
    (void)session;
    (void)record;
    ++*(unsigned *)arg;
    return true;
}

static bool on_region(void *arg, struct sw_catalogue_region *region, uint32_t record) {
    (void)record;
    sw_catalogue_frames_free(region->frames);
    ++*(unsigned *)arg;
    return true;
}

/* A record that says to be as long as a number can say, in a cell that follows itself: it is not followed for four
 * gigabytes before it is refused. The one behind it is found. */
START_TEST(a_circular_chain_is_refused) {
    const struct sw_catalogue_region region = {.session = 7, .slot = 1, .gen = 1, .raw_bytes = 5};
    const struct sw_catalogue_session session = {.number = 7};
    struct sw_catalogue *c = NULL;
    uint32_t first, second, bytes = UINT32_MAX;
    unsigned n_found = 0, n_damaged = 0;
    const struct sw_catalogue_visitor visitor = {.session = on_session, .found = on_region, .arg = &n_found};
    ck_assert_int_eq(sw_catalogue_open(&c, -1, 1, NULL), 0);
    ck_assert_int_eq(sw_catalogue_put_session(c, &session, &first, NULL), 0);
    ck_assert_int_eq(sw_catalogue_put_region(c, &region, 0, &second, NULL), 0);
    const int fd = fcntl(sw_catalogue_fd(c), F_DUPFD_CLOEXEC, 0);
    sw_catalogue_close(c);
    ck_assert_int_eq(pwrite(fd, &bytes, sizeof bytes, (off_t)first * CELL_BYTES + 20), sizeof bytes);
    ck_assert_int_eq(pwrite(fd, &first, sizeof first, (off_t)first * CELL_BYTES + 24), sizeof first);
    const long live = sw_alloc_live();
    ck_assert_int_eq(sw_catalogue_open(&c, fd, 1, NULL), 0);
    ck_assert_uint_eq(sw_catalogue_longest_chunk(c), 0);
    sw_alloc_fail_nth(4); /* two are for the scan, the third for the good record: none for the other one */
    ck_assert_int_eq(sw_catalogue_recover(c, &visitor, &n_damaged, NULL), 0);
    sw_alloc_fail_nth(0);
    ck_assert_uint_eq(n_damaged, 1);
    ck_assert_uint_eq(n_found, 1);
    sw_catalogue_close(c);
    ck_assert_int_le(sw_alloc_live(), live);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("catalogue_damage");
    TCase *tcase = tcase_create("catalogue_damage");
    tcase_add_loop_test(tcase, a_record_must_have_its_stated_length, 0, 2 * SHAPE_NR);
    tcase_add_loop_test(tcase, invalid_records_are_refused, 0, 2 * CASES);
    tcase_add_test(tcase, a_circular_chain_is_refused);
    suite_add_tcase(suite, tcase);
    return sw_test_run(suite, CK_FORK);
}
