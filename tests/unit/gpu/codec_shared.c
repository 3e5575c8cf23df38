/* The shared memory of blocks, on GPUs of every kind that kernels are compiled for. Links the kernels and needs no GPU.
 */
#include "codec/gpu.h"
#include "tests/lib/run.h"

#include <check.h>

/* Shared memory of a block: sm_75; sm_86, sm_89 and sm_120; sm_80; sm_90 and sm_100. */
static const size_t limits[] = {64 << 10, 99 << 10, 163 << 10, 227 << 10};
enum { N_LIMITS = sizeof limits / sizeof *limits };

START_TEST(each_codec_fits_every_gpu) {
    for (int codec = 0; codec < SW_CODEC_NR; codec++) {
        size_t before = 0;
        for (int i = 0; i < N_LIMITS; i++) {
            const size_t bytes = sw_gpu_codec_shared_bytes((enum sw_codec_id)codec, limits[i]);
            ck_assert_msg(bytes > 0 && bytes <= limits[i], "%s: %zu of %zu bytes",
                          sw_codec_name((enum sw_codec_id)codec), bytes, limits[i]);
            ck_assert_uint_ge(bytes, before); /* a larger GPU gets no smaller block */
            before = bytes;
        }
    }
}
END_TEST

/* Blocks use all that a GPU has: they have the large tables as soon as these fit. */
START_TEST(blocks_are_as_large_as_they_can_be) {
    ck_assert_uint_eq(sw_gpu_codec_shared_bytes(SW_CODEC_V5T, 227 << 10), 125 << 10); /* 640 threads */
    ck_assert_uint_eq(sw_gpu_codec_shared_bytes(SW_CODEC_V5T, 99 << 10), 98 << 10);   /* 256 threads */
    ck_assert_uint_eq(sw_gpu_codec_shared_bytes(SW_CODEC_V5T, 98 << 10), 98 << 10);
    ck_assert_uint_lt(sw_gpu_codec_shared_bytes(SW_CODEC_V5T, 88 << 10), 88 << 10); /* the small tables */
    ck_assert_uint_gt(sw_gpu_codec_shared_bytes(SW_CODEC_ONPAIR, 227 << 10), 140 << 10);
}
END_TEST

START_TEST(too_small_a_gpu_is_refused) {
    ck_assert_uint_eq(sw_gpu_codec_shared_bytes(SW_CODEC_V5T, 48 << 10), 0);
    ck_assert_uint_eq(sw_gpu_codec_shared_bytes(SW_CODEC_ONPAIR, 16 << 10), 0);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("codec_shared");
    TCase *tcase = tcase_create("shared");
    tcase_add_test(tcase, each_codec_fits_every_gpu);
    tcase_add_test(tcase, blocks_are_as_large_as_they_can_be);
    tcase_add_test(tcase, too_small_a_gpu_is_refused);
    suite_add_tcase(suite, tcase);
    return sw_test_run(suite, CK_FORK);
}
