/* The hash of a tile is the sum of its segments' hashes, however many are made side by side. */
#include "codec/checksum.h"
#include "tests/lib/content.h"
#include "tests/lib/run.h"
#include <check.h>
#include <stdlib.h>

static uint32_t one_by_one(const uint8_t *p, size_t bytes, unsigned segment_log2, uint32_t tile) {
    uint32_t sum = 0;
    for (uint32_t s = 0; bytes; s++) {
        const size_t n = bytes < (size_t)1 << segment_log2 ? bytes : (size_t)1 << segment_log2;
        sum += sw_hash_finish(sw_hash_update(sw_hash_segment_seed(tile, s), p, n));
        p += n;
        bytes -= n;
    }
    return sum;
}

START_TEST(a_tile_is_the_sum_of_its_segments) {
    const unsigned segment_log2 = (unsigned)_i;
    const size_t most = (size_t)32 << segment_log2;
    uint64_t random = 11;
    /* The memory is exactly as long as needed, so that sanitizers see reads behind it; odd places, too. */
    for (int round = 0; round < 300; round++) {
        const size_t skip = (size_t)round % 7,
                     bytes = round < 4 ? most - (size_t)round : sw_random(&random) % (most + 1);
        uint8_t *memory = malloc(skip + bytes ? skip + bytes : 1);
        ck_assert_ptr_nonnull(memory);
        sw_content_fill(memory, skip + bytes, SW_CONTENT_RANDOM, (uint64_t)round);
        const uint32_t wanted = one_by_one(memory + skip, bytes, segment_log2, (uint32_t)round);
        ck_assert_uint_eq(sw_hash_tile(memory + skip, bytes, segment_log2, (uint32_t)round), wanted);
        ck_assert_uint_eq(sw_hash_last_tile(memory + skip, bytes, segment_log2, (uint32_t)round), wanted);
        free(memory);
    }
}
END_TEST

int main(void) {
    Suite *suite = suite_create("codec_hash");
    TCase *tcase = tcase_create("codec_hash");
    tcase_add_loop_test(tcase, a_tile_is_the_sum_of_its_segments, 8, 11);
    suite_add_tcase(suite, tcase);
    return sw_test_run(suite, CK_FORK);
}
