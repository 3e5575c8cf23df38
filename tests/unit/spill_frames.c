/* The records of a region's frames: of one buffer, of several, of a part of one; views, keys, and lengths. */
#include "spill/mover/frames.h"

#include "base/alloc.h"
#include "tests/lib/run.h"

#include <check.h>
#include <string.h>

enum { N_BUFFERS = 4 };

/* Of 4 chunks with a short last one, of one chunk, of none, and of 2 longer chunks. */
static const struct sw_frames_buffer buffers[N_BUFFERS] = {{.raw_bytes = 3500, .chunk_bytes = 1000},
                                                           {.raw_bytes = 10, .chunk_bytes = 1000},
                                                           {.raw_bytes = 0, .chunk_bytes = 1000},
                                                           {.raw_bytes = 4000, .chunk_bytes = 2000}};
enum { N_CHUNKS = 7 };
static const uint64_t lengths[N_CHUNKS] = {1000, 1000, 1000, 500, 10, 2000, 2000},
                      keys[N_CHUNKS] = {0, 1, 2, 3, UINT64_C(1) << 32, UINT64_C(3) << 32, (UINT64_C(3) << 32) + 1};

static long live;

static void setup(void) {
    live = sw_alloc_live();
}

static void teardown(void) {
    ck_assert_int_eq(sw_alloc_live(), live);
}

/* Gives each chunk records of its own, from this number on. */
static void mark(struct sw_frames *frames, uint64_t number) {
    for (size_t i = 0; i < frames->n_chunks; i++, number++) {
        frames->stored[i].bytes = number;
        frames->layouts[i].frame_bytes = number;
        frames->identities[i] = number;
        frames->are_clients[i] = number % 2;
    }
}

static void ck_marked(const struct sw_frames *frames, size_t first, size_t n, uint64_t number) {
    for (size_t i = first; i < first + n; i++, number++) {
        ck_assert_uint_eq(frames->stored[i].bytes, number);
        ck_assert_uint_eq(frames->layouts[i].frame_bytes, number);
        ck_assert_uint_eq(frames->identities[i], number);
        ck_assert_int_eq(frames->are_clients[i], number % 2);
    }
}

static void ck_table(const struct sw_frames *frames) {
    size_t first = 0;
    ck_assert_uint_eq(frames->n_chunks, N_CHUNKS);
    ck_assert_uint_eq(frames->raw_bytes, 7510);
    ck_assert_uint_eq(frames->chunk_bytes, 2000); /* the longest */
    ck_assert_uint_eq(sw_frames_n_buffers(frames), N_BUFFERS);
    for (unsigned i = 0; i < N_BUFFERS; i++) {
        const struct sw_frames_buffer one = sw_frames_buffer(frames, i);
        ck_assert_uint_eq(one.raw_bytes, buffers[i].raw_bytes);
        ck_assert_uint_eq(one.chunk_bytes, buffers[i].chunk_bytes);
        ck_assert_uint_eq(one.first, first);
        first += one.n_chunks;
    }
    ck_assert_uint_eq(first, N_CHUNKS);
}

START_TEST(each_buffer_has_its_chunks) {
    struct sw_frames *frames = sw_frames_new_buffers(buffers, N_BUFFERS);
    ck_assert_ptr_nonnull(frames);
    ck_table(frames);
    mark(frames, 1);
    for (size_t i = 0; i < N_CHUNKS; i++)
        ck_assert_uint_eq(sw_frames_chunk_bytes(frames, i), lengths[i]);
    ck_assert_ptr_eq(sw_frames_layout_at(frames, 0, 999), &frames->layouts[0]);
    ck_assert_ptr_eq(sw_frames_layout_at(frames, 0, 3000), &frames->layouts[3]);
    ck_assert_ptr_eq(sw_frames_layout_at(frames, 1, 5), &frames->layouts[4]);
    ck_assert_ptr_eq(sw_frames_layout_at(frames, 3, 2000), &frames->layouts[6]);
    sw_frames_delete(frames);
}
END_TEST

/* The keys of durable tiers say the buffer and the chunk. What is no chunk's key finds none. */
START_TEST(a_key_finds_its_chunk) {
    struct sw_frames *frames = sw_frames_new_buffers(buffers, N_BUFFERS), *one = sw_frames_new(3500, 1000, false);
    static const uint64_t none[] = {4, (UINT64_C(1) << 32) + 1, UINT64_C(2) << 32, (UINT64_C(3) << 32) + 2,
                                    UINT64_C(4) << 32};
    size_t found = 99;
    for (size_t i = 0; i < N_CHUNKS; i++) {
        ck_assert_uint_eq(sw_frames_key(frames, i), keys[i]);
        ck_assert(sw_frames_find(frames, keys[i], &found));
        ck_assert_uint_eq(found, i);
    }
    for (size_t i = 0; i < sizeof none / sizeof none[0]; i++)
        ck_assert(!sw_frames_find(frames, none[i], &found));
    for (size_t i = 0; i < 4; i++) {
        ck_assert_uint_eq(sw_frames_key(one, i), i);
        ck_assert(sw_frames_find(one, i, &found));
        ck_assert_uint_eq(found, i);
    }
    ck_assert(!sw_frames_find(one, 4, &found));
    ck_assert(!sw_frames_find(one, UINT64_C(1) << 32, &found)); /* of another buffer */
    one->buffer = 3;                                            /* they are a part of one of several buffers */
    one->first = 5;
    ck_assert_uint_eq(sw_frames_key(one, 2), (UINT64_C(3) << 32) + 7);
    sw_frames_delete(frames);
    sw_frames_delete(one);
}
END_TEST

/* Buffers that were stored one by one become one region; or stay as they were, if there is no memory. */
START_TEST(buffers_are_joined_in_order) {
    struct sw_frames *parts[N_BUFFERS], *all = NULL;
    uint64_t number = 10;
    for (unsigned i = 0; i < N_BUFFERS; number += parts[i++]->n_chunks) {
        parts[i] = sw_frames_new(buffers[i].raw_bytes, buffers[i].chunk_bytes, false);
        ck_assert_ptr_nonnull(parts[i]);
        mark(parts[i], number);
    }
    for (unsigned long nth = 1; nth <= 2; nth++) {
        sw_alloc_fail_nth(nth);
        ck_assert_ptr_null(sw_frames_join(parts, N_BUFFERS));
        sw_alloc_fail_nth(0);
        ck_marked(parts[0], 0, 4, 10);
    }
    all = sw_frames_join(parts, N_BUFFERS);
    ck_assert_ptr_nonnull(all);
    ck_table(all);
    ck_marked(all, 0, N_CHUNKS, 10);
    sw_frames_delete(all);
}
END_TEST

/* Parts come in any order; the chunks up to the last one that has come count as begun. */
START_TEST(parts_go_to_their_places) {
    static const size_t firsts[] = {2, 0, 3}, counts[] = {1, 2, 1};
    struct sw_frames *whole = sw_frames_new(3500, 1000, false);
    whole->n_begun = 0;
    for (int i = 0; i < 3; i++) {
        struct sw_frames *part = sw_frames_new(firsts[i] == 3 ? 500 : counts[i] * 1000, 1000, false);
        part->first = firsts[i];
        mark(part, 10 + firsts[i]);
        sw_frames_put(whole, part);
        ck_assert_uint_eq(whole->n_begun, i < 2 ? 3 : 4);
    }
    ck_marked(whole, 0, 4, 10);
    sw_frames_delete(whole);
}
END_TEST

/* A view of some chunks of a buffer, as long as these, shows the places that they have when it is filled. */
START_TEST(a_view_shows_some_chunks) {
    struct sw_frames *frames = sw_frames_new_buffers(buffers, N_BUFFERS);
    static const struct {
        unsigned buffer;
        size_t first, n;
        uint64_t raw_bytes, number;
    } rows[] = {{0, 0, 4, 3500, 1}, {0, 1, 2, 2000, 2}, {0, 2, 2, 1500, 3}, {3, 1, 1, 2000, 7}, {2, 0, 0, 0, 6}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct sw_frames *view = sw_frames_view(frames, rows[i].buffer, rows[i].first, rows[i].n);
        ck_assert_ptr_nonnull(view);
        ck_assert_uint_eq(view->raw_bytes, rows[i].raw_bytes);
        ck_assert_uint_eq(view->chunk_bytes, buffers[rows[i].buffer].chunk_bytes);
        ck_assert(view->buffer == rows[i].buffer && view->first == rows[i].first && view->n_chunks == rows[i].n);
        mark(frames, 1);
        sw_frames_view_update(view, frames);
        ck_marked(view, 0, rows[i].n, rows[i].number);
        sw_free(view);
    }
    sw_frames_delete(frames);
}
END_TEST

/* What a region keeps in memory grows with its chunks, and never wraps. */
START_TEST(records_count_for_the_budget) {
    struct sw_frames *frames = sw_frames_new(3500, 1000, false), *packed = sw_frames_new(3500, 1000, true);
    const uint64_t bytes = sw_frames_kept_bytes(3500, 1000, false);
    ck_assert_uint_eq(sw_frames_kept(frames), bytes);
    ck_assert_uint_eq(sw_frames_kept_bytes(4000, 1000, false), bytes);
    ck_assert_uint_gt(sw_frames_kept_bytes(4001, 1000, false), bytes);
    ck_assert_uint_eq(sw_frames_kept(packed), bytes + 4 * sizeof(struct sw_packed_chunk));
    ck_assert_uint_eq(sw_frames_kept_bytes(UINT64_MAX, 1, false), INT64_MAX);
    ck_assert_uint_eq(sw_frames_kept_bytes(UINT64_MAX / 64, 1, true), INT64_MAX);
    sw_frames_delete(frames);
    sw_frames_delete(packed);
    ck_assert_ptr_null(sw_frames_new(UINT64_MAX, 1, false));
    for (unsigned long nth = 1; nth <= 2; nth++) {
        sw_alloc_fail_nth(nth);
        ck_assert_ptr_null(sw_frames_new(3500, 1000, true));
        sw_alloc_fail_nth(0);
    }
}
END_TEST

/* A chunk that was unpacked is raw, in its own place; one whose frame is in a tier is elsewhere. */
START_TEST(packed_chunks_are_described) {
    struct sw_frames *frames = sw_frames_new(3500, 1000, true);
    for (size_t i = 1; i < 4; i++) {
        frames->packed[i] = (struct sw_packed_chunk){.offset = 100 * i, .bytes = 90, .is_packed = true};
        frames->layouts[i] =
            (struct sw_frame_layout){.codec = SW_CODEC_FOR, .value_type = SW_VALUE_I64, .n_symbols = 3};
    }
    frames->stored[2].bytes = 50;
    struct spillway_packed_chunk chunk = sw_frames_packed_chunk(frames, 0);
    ck_assert(chunk.offset == 0 && chunk.bytes == 1000 && chunk.raw_bytes == 1000);
    ck_assert_uint_eq(chunk.codec, SPILLWAY_CODEC_RAW);
    chunk = sw_frames_packed_chunk(frames, 1);
    ck_assert(chunk.offset == 100 && chunk.bytes == 90 && chunk.raw_bytes == 1000 && chunk.n_symbols == 3);
    ck_assert_uint_eq(chunk.codec, SPILLWAY_CODEC_FOR);
    ck_assert_uint_eq(chunk.type, SW_VALUE_I64);
    ck_assert_uint_eq(sw_frames_packed_chunk(frames, 2).codec, SPILLWAY_CODEC_ELSEWHERE);
    ck_assert_uint_eq(sw_frames_packed_chunk(frames, 3).raw_bytes, 500);
    frames->packed[3].is_packed = false;
    ck_assert_uint_eq(sw_frames_packed_chunk(frames, 3).offset, 3000);
    ck_assert_uint_eq(sw_frames_packed_bytes(frames), 390);
    sw_frames_delete(frames);
}
END_TEST

START_TEST(the_codec_of_most_bytes_is_named) {
    uint64_t bytes[SW_CODEC_NR] = {0};
    ck_assert_int_eq(sw_frames_most_used(bytes), SW_CODEC_RAW);
    bytes[SW_CODEC_RAW] = 5;
    bytes[SW_CODEC_V5T] = 5;
    ck_assert_int_eq(sw_frames_most_used(bytes), SW_CODEC_RAW);
    bytes[SW_CODEC_NR - 1] = 6;
    ck_assert_int_eq(sw_frames_most_used(bytes), SW_CODEC_NR - 1);
}
END_TEST

int main(void) {
    TCase *tests = tcase_create("frames");
    tcase_add_checked_fixture(tests, setup, teardown);
    tcase_add_test(tests, each_buffer_has_its_chunks);
    tcase_add_test(tests, a_key_finds_its_chunk);
    tcase_add_test(tests, buffers_are_joined_in_order);
    tcase_add_test(tests, parts_go_to_their_places);
    tcase_add_test(tests, a_view_shows_some_chunks);
    tcase_add_test(tests, records_count_for_the_budget);
    tcase_add_test(tests, packed_chunks_are_described);
    tcase_add_test(tests, the_codec_of_most_bytes_is_named);
    Suite *suite = suite_create("frames");
    suite_add_tcase(suite, tests);
    return sw_test_run(suite, CK_FORK);
}
