/* Raw frames made where their content lies: the same bytes as the codec's, however the frame is cut. */
#include "codec/codec.h"
#include "codec/raw_runs.h"
#include "tests/lib/content.h"
#include "tests/lib/run.h"
#include <check.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_RUNS = 64 };
static const size_t sizes[] = {1, 15, 16, 1023, 1024, 32767, 32768, 32769, 100000, 3 * 32768, 5000001};

/* A frame in memory that ends where its runs end, so that sanitizers see a step beyond one. */
struct scattered {
    struct sw_run runs[MAX_RUNS];
    unsigned n;
};

/* most: no run but the last is longer; the first ones are short. */
static void scatter(struct scattered *ret, const uint8_t *bytes, uint64_t n_bytes, uint64_t most, uint64_t *random) {
    uint64_t at = 0;
    ret->n = 0;
    while (at < n_bytes) {
        uint64_t n = 1 + sw_random(random) % most;
        if (n > n_bytes - at || ret->n == MAX_RUNS - 1)
            n = n_bytes - at;
        uint8_t *memory = malloc(n);
        ck_assert_ptr_nonnull(memory);
        memcpy(memory, bytes + at, n);
        ret->runs[ret->n++] = (struct sw_run){.memory = memory, .bytes = n};
        at += n;
    }
}

static void join(const struct scattered *s, uint8_t *to) {
    for (unsigned i = 0; i < s->n; i++) {
        memcpy(to, s->runs[i].memory, s->runs[i].bytes);
        to += s->runs[i].bytes;
    }
}

static void scattered_fini(struct scattered *s) {
    for (unsigned i = 0; i < s->n; i++)
        free(s->runs[i].memory);
}

/* The codec's own frame of random content; *ret_frame is to be freed. */
static void make_frame(struct sw_frame_layout *ret, uint8_t **ret_frame, size_t raw_bytes, uint64_t seed) {
    struct sw_plan plan;
    uint64_t frame_bytes = 0, cap = sw_frame_bound_bytes(raw_bytes);
    uint8_t *raw = malloc(raw_bytes), *frame = malloc(cap);
    ck_assert(raw && frame);
    sw_content_fill(raw, raw_bytes, SW_CONTENT_RANDOM, seed);
    sw_plan_init_raw(&plan);
    ck_assert_int_eq(sw_codec_encode(&plan, raw, raw_bytes, frame, cap, &frame_bytes, NULL), 0);
    ck_assert_int_eq(sw_frame_parse(ret, frame, frame_bytes, frame_bytes, NULL), 0);
    free(raw);
    *ret_frame = frame;
}

enum { PARTS = 3 };

static struct sw_tile_range part_of(const struct sw_frame_layout *layout, unsigned part) {
    return (struct sw_tile_range){layout->n_tiles * part / PARTS, layout->n_tiles * (part + 1) / PARTS};
}

START_TEST(sealed_runs_equal_the_codecs_frames) {
    const size_t raw_bytes = sizes[_i];
    struct sw_frame_layout parsed, layout;
    uint8_t *frame;
    uint64_t random = 7;
    make_frame(&parsed, &frame, raw_bytes, 1);
    sw_frame_layout_init(&layout, SW_CODEC_RAW, SW_RAW_SEGMENT_LOG2, raw_bytes, 0);
    uint8_t *start = malloc(layout.frame_bytes), *sealed = malloc(layout.frame_bytes);
    ck_assert(start && sealed);
    for (uint64_t most = 3; most < 4 * layout.frame_bytes; most *= 17) {
        struct scattered s;
        memset(start, 0xA5, layout.frame_bytes);
        memcpy(start + layout.data_offset, frame + layout.data_offset, raw_bytes);
        scatter(&s, start, layout.frame_bytes, most, &random);
        for (unsigned part = 0; part < PARTS; part++) /* the last one first: they depend on nothing */
            sw_raw_runs_seal(&layout, s.runs, s.n, part_of(&layout, PARTS - 1 - part));
        join(&s, sealed);
        ck_assert_mem_eq(sealed, frame, layout.frame_bytes);
        for (unsigned part = 0; part < PARTS; part++) /* in memory or in a cache, they are the same */
            sw_raw_runs_evict(&layout, s.runs, s.n, part_of(&layout, part));
        ck_assert_uint_eq(sw_raw_runs_verify(&parsed, s.runs, s.n, sw_all_tiles(&parsed)), 0);
        scattered_fini(&s);
    }
    free(start);
    free(sealed);
    free(frame);
}
END_TEST

/* The hashes of a frame's records. */
static uint32_t *hashes_of(const struct sw_frame_layout *layout, const uint8_t *frame) {
    uint32_t *hashes = malloc((size_t)layout->n_tiles * sizeof *hashes);
    ck_assert_ptr_nonnull(hashes);
    for (uint32_t tile = 0; tile < layout->n_tiles; tile++)
        memcpy(&hashes[tile], frame + layout->records_offset + 8 * tile + 4, sizeof hashes[tile]);
    return hashes;
}

START_TEST(runs_are_sealed_with_given_hashes) {
    struct sw_frame_layout layout;
    struct scattered s;
    uint8_t *frame;
    uint64_t random = 9;
    make_frame(&layout, &frame, sizes[_i], 1);
    uint8_t *start = malloc(layout.frame_bytes), *sealed = malloc(layout.frame_bytes);
    uint32_t *hashes = hashes_of(&layout, frame);
    ck_assert(start && sealed);
    memset(start, 0xA5, layout.frame_bytes);
    memcpy(start + layout.data_offset, frame + layout.data_offset, sizes[_i]);
    scatter(&s, start, layout.frame_bytes, 5000, &random);
    sw_raw_runs_seal_hashed(&layout, s.runs, s.n, hashes);
    join(&s, sealed);
    ck_assert_mem_eq(sealed, frame, layout.frame_bytes);
    ck_assert_uint_eq(sw_raw_runs_verify_hashed(&layout, s.runs, s.n, hashes), 0);
    hashes[layout.n_tiles - 1] ^= 1;
    ck_assert_uint_eq(sw_raw_runs_verify_hashed(&layout, s.runs, s.n, hashes), 1);
    hashes[0] ^= 2;
    ck_assert_uint_eq(sw_raw_runs_verify_hashed(&layout, s.runs, s.n, hashes), layout.n_tiles > 1 ? 2 : 1);
    scattered_fini(&s);
    free(hashes);
    free(start);
    free(sealed);
    free(frame);
}
END_TEST

static void flip(struct scattered *s, uint64_t at) {
    unsigned i = 0;
    for (; at >= s->runs[i].bytes; i++)
        at -= s->runs[i].bytes;
    s->runs[i].memory[at] ^= 1;
}

START_TEST(damage_is_counted_by_tiles) {
    const size_t raw_bytes = 3 * 32768 + 5;
    struct sw_frame_layout layout;
    struct scattered s;
    uint8_t *frame;
    uint64_t random = 3;
    make_frame(&layout, &frame, raw_bytes, 2);
    scatter(&s, frame, layout.frame_bytes, 9000, &random);
    flip(&s, layout.data_offset + 40000);
    ck_assert_uint_eq(sw_raw_runs_verify(&layout, s.runs, s.n, sw_all_tiles(&layout)), 1);
    for (uint32_t tile = 0; tile < layout.n_tiles; tile++) /* by itself, and with all behind it */
        for (uint32_t end = tile + 1; end <= layout.n_tiles; end++)
            ck_assert_uint_eq(sw_raw_runs_verify(&layout, s.runs, s.n, (struct sw_tile_range){tile, end}),
                              tile <= 1 && end > 1);
    flip(&s, layout.data_offset + raw_bytes - 1);
    ck_assert_uint_eq(sw_raw_runs_verify(&layout, s.runs, s.n, sw_all_tiles(&layout)), 2);
    flip(&s, layout.records_offset + 8 * 2);
    ck_assert_uint_eq(sw_raw_runs_verify(&layout, s.runs, s.n, sw_all_tiles(&layout)), 3);
    flip(&s, layout.data_offset + 40000);
    flip(&s, layout.data_offset + raw_bytes - 1);
    flip(&s, layout.records_offset + 8 * 2);
    ck_assert_uint_eq(sw_raw_runs_verify(&layout, s.runs, s.n, sw_all_tiles(&layout)), 0);
    scattered_fini(&s);
    free(frame);
}
END_TEST

START_TEST(an_empty_frame_is_sealed) {
    struct sw_frame_layout layout, found;
    uint8_t frame[512];
    sw_frame_layout_init(&layout, SW_CODEC_RAW, SW_RAW_SEGMENT_LOG2, 0, 0);
    ck_assert_uint_le(layout.frame_bytes, sizeof frame);
    memset(frame, 0xA5, sizeof frame);
    const struct sw_run run = {.memory = frame, .bytes = layout.frame_bytes};
    sw_raw_runs_seal(&layout, &run, 1, sw_all_tiles(&layout));
    ck_assert_int_eq(sw_frame_parse(&found, frame, layout.frame_bytes, layout.frame_bytes, NULL), 0);
    ck_assert_uint_eq(found.raw_bytes, 0);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("codec_raw_runs");
    TCase *tcase = tcase_create("codec_raw_runs");
    tcase_add_loop_test(tcase, sealed_runs_equal_the_codecs_frames, 0, sizeof sizes / sizeof sizes[0]);
    tcase_add_loop_test(tcase, runs_are_sealed_with_given_hashes, 0, sizeof sizes / sizeof sizes[0]);
    tcase_add_test(tcase, damage_is_counted_by_tiles);
    tcase_add_test(tcase, an_empty_frame_is_sealed);
    suite_add_tcase(suite, tcase);
    return sw_test_run(suite, CK_FORK);
}
