/* What devices share: copies of several frames in one go, places of a group's frames, and room for longer chunks. */
#include "spill/device/device.h"
#include "spill/device/stored.h"

#include "codec/frame.h"
#include "tests/lib/run.h"

#include <check.h>

enum { N = 3, BYTES = 100 };

static uint8_t memory[8 * BYTES];

/* Counts the copies of N frames of one extent each, at these places. */
static unsigned count_copies(const uint64_t *offsets, const uint64_t *places) {
    struct sw_extent extents[N];
    struct sw_stored stored[N];
    struct sw_frame_item items[N];
    struct sw_device_copy copy;
    uint64_t end = 0;
    unsigned n = 0;
    for (unsigned i = 0; i < N; i++) {
        extents[i] = (struct sw_extent){.memory = memory + places[i], .bytes = BYTES};
        stored[i] = (struct sw_stored){.extents = &extents[i], .n_extents = 1, .bytes = BYTES};
        items[i] = (struct sw_frame_item){.stored = &stored[i], .offset = offsets[i]};
    }
    struct sw_device_copies copies = {.items = items, .n = N};
    for (; sw_device_next_copy(&copies, &copy); n++)
        end = copy.offset + copy.bytes;
    ck_assert_uint_eq(end, offsets[N - 1] + BYTES);
    return n;
}

/* Frames are copied together if they follow each other in both memories. */
START_TEST(test_neighbours_are_copied_together) {
    const uint64_t step = sw_frame_step_bytes(BYTES), row[N] = {0, step, 2 * step}, apart[N] = {0, step, 3 * step};
    ck_assert_uint_eq(count_copies(row, row), 1);
    ck_assert_uint_eq(count_copies(apart, row), 2);
    ck_assert_uint_eq(count_copies(row, apart), 2);
    ck_assert_uint_eq(count_copies(apart, apart), 2);
}
END_TEST

/* A member that is left out takes no room. */
START_TEST(test_a_groups_frames_follow_each_other) {
    struct sw_group_item items[N] = {{.frame.frame_bytes = BYTES},
                                     {.frame.frame_bytes = BYTES, .frame_at = 7, .is_left_out = true},
                                     {.frame.frame_bytes = BYTES}};
    const uint64_t step = sw_frame_step_bytes(BYTES), begin = sw_frame_step_bytes(1);
    sw_device_place_group(items, N, 1);
    ck_assert_uint_eq(items[0].frame_at, begin);
    ck_assert_uint_eq(items[1].frame_at, 7);
    ck_assert_uint_eq(items[2].frame_at, begin + step);
}
END_TEST

static bool fit(const struct sw_device_config *config, uint64_t chunk_bytes, unsigned n_slots) {
    return chunk_bytes * n_slots <= config->scratch_bytes;
}

/* Stored chunks that are longer get room at the cost of slots, but for a guest in another process's memory. */
START_TEST(test_room_for_longer_chunks) {
    static uint8_t frames;
    const uint64_t chunk = SW_CHUNK_ALIGN_BYTES;
    struct sw_device_config config = {.scratch_bytes = 4 * chunk, .stored_chunk_bytes = 2 * chunk};
    unsigned n_slots = 4;
    uint64_t bytes = chunk;
    config.frames = &frames;
    sw_device_make_room(&config, fit, &n_slots, &bytes);
    ck_assert(n_slots == 4 && bytes == chunk);
    config.frames = NULL;
    sw_device_make_room(&config, fit, &n_slots, &bytes);
    ck_assert(n_slots == 2 && bytes == 2 * chunk);
    config.stored_chunk_bytes = 5 * chunk; /* finds no room */
    sw_device_make_room(&config, fit, &n_slots, &bytes);
    ck_assert(n_slots == 2 && bytes == 2 * chunk);
}
END_TEST

int main(void) {
    TCase *tests = tcase_create("copies");
    tcase_add_test(tests, test_neighbours_are_copied_together);
    tcase_add_test(tests, test_a_groups_frames_follow_each_other);
    tcase_add_test(tests, test_room_for_longer_chunks);
    Suite *suite = suite_create("device");
    suite_add_tcase(suite, tests);
    return sw_test_run(suite, CK_FORK);
}
