/* learn.c - a GPU learns the same dictionary from a sample as the host does. Prints how long that takes. */
#include "base/clock.h"
#include "codec/gpu.h"
#include "codec/onpair/onpair.h"
#include "tests/lib/content.h"
#include "tests/lib/gpu_frames.h"
#include "tests/lib/run.h"
#include "tests/lib/tpch_text.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct sw_onpair_learned learned;
static struct sw_frame_dictionary of_gpu, of_host;

/* Learns on the GPU; returns the microseconds of the second of two runs, in the same scratch. */
static double learn(const uint8_t *sample, size_t bytes, uint32_t most_symbols) {
    struct sw_gpu_guarded d_sample = sw_gpu_guarded_new(bytes, 0), d_learned = sw_gpu_guarded_new(sizeof learned, 0),
                          d_scratch = sw_gpu_guarded_new(sw_gpu_learn_scratch_bytes(), 0);
    cudaEvent_t from, to;
    float ms = 0;
    CUDA(cudaEventCreate(&from));
    CUDA(cudaEventCreate(&to));
    CUDA(cudaMemcpy(d_sample.data, sample, bytes, cudaMemcpyHostToDevice));
    for (int i = 0; i < 2; i++) {
        struct sw_err err;
        CUDA(cudaEventRecord(from, NULL));
        ck_assert_int_eq(sw_gpu_learn_async(d_sample.data, bytes, most_symbols, (void *)d_learned.data, d_scratch.data,
                                            d_scratch.bytes, NULL, &err),
                         0);
        CUDA(cudaEventRecord(to, NULL));
        CUDA(cudaEventSynchronize(to));
        CUDA(cudaEventElapsedTime(&ms, from, to));
    }
    CUDA(cudaMemcpy(&learned, d_learned.data, sizeof learned, cudaMemcpyDeviceToHost));
    CUDA(cudaEventDestroy(from));
    CUDA(cudaEventDestroy(to));
    sw_gpu_guarded_free(&d_sample);
    sw_gpu_guarded_free(&d_learned);
    sw_gpu_guarded_free(&d_scratch);
    return 1e3 * ms;
}

static void ck_same(const char *name, const uint8_t *sample, size_t bytes, uint32_t most_symbols) {
    const double gpu_us = learn(sample, bytes, most_symbols);
    uint64_t begin_us = sw_clock_us();
    ck_assert_int_eq(sw_onpair_write(&of_gpu, &learned, most_symbols), 0);
    const uint64_t write_us = sw_clock_us() - begin_us;
    begin_us = sw_clock_us();
    ck_assert_int_eq(sw_onpair_learn(&of_host, sample, bytes, SW_ONPAIR_PIECE_BYTES, most_symbols), 0);
    printf("%s, %zu bytes, %u symbols: GPU %.0f us, its section %llu us, host %llu us\n", name, bytes, learned.n,
           gpu_us, (unsigned long long)write_us, (unsigned long long)(sw_clock_us() - begin_us));
    fflush(stdout);
    ck_assert_msg(of_gpu.bytes == of_host.bytes, "%s, %zu bytes: sections of %u and %u bytes", name, bytes,
                  of_gpu.bytes, of_host.bytes);
    ck_assert_msg(memcmp(of_gpu.data, of_host.data, of_gpu.bytes) == 0, "%s, %zu bytes", name, bytes);
}

static const size_t sizes[] = {1, 2, 511, 513, 8191, 8193, 65536, 262144 - 7, SW_ONPAIR_MOST_SAMPLE};
static const uint32_t most[] = {SW_ONPAIR_MAX_SYMBOLS, 1000, 100};

START_TEST(the_same_dictionary) {
    const size_t bytes = sizes[_i];
    uint8_t *sample = malloc(bytes);
    ck_assert_ptr_nonnull(sample);
    for (size_t k = 0; k < sizeof most / sizeof most[0] && !(sw_gpu_small_run() && bytes > 100000); k++) {
        sw_tpch_text_fill(sample, 0, bytes, 1);
        ck_same("l_comment", sample, bytes, most[k]);
        sw_content_fill(sample, bytes, SW_CONTENT_TEXT, 1);
        ck_same("text", sample, bytes, most[k]);
        sw_content_fill(sample, bytes, SW_CONTENT_MIXED, 1);
        ck_same("mixed", sample, bytes, most[k]);
        memset(sample, 'a', bytes);
        ck_same("one byte", sample, bytes, most[k]);
    }
    free(sample);
}
END_TEST

START_TEST(arguments_are_checked) {
    const size_t bytes = sw_gpu_learn_scratch_bytes();
    struct sw_err err;
    ck_assert_uint_le(bytes, (size_t)64 << 20);
    ck_assert_int_eq(sw_gpu_learn_async(NULL, 0, 1, NULL, NULL, bytes, NULL, &err), -SW_EINVAL);
    ck_assert_int_eq(sw_gpu_learn_async(NULL, SW_ONPAIR_MOST_SAMPLE + 1, 1, NULL, NULL, bytes, NULL, &err), -SW_EINVAL);
    ck_assert_int_eq(sw_gpu_learn_async(NULL, 1, SW_ONPAIR_MAX_SYMBOLS + 1, NULL, NULL, bytes, NULL, &err), -SW_EINVAL);
    ck_assert_int_eq(sw_gpu_learn_async(NULL, 1, 1, NULL, NULL, bytes - 1, NULL, &err), -SW_EINVAL);
}
END_TEST

int main(void) {
    const int rc = sw_gpu_codec_start();
    if (rc)
        return rc;
    Suite *suite = suite_create("gpu_learn");
    TCase *tcase = tcase_create("learn");
    sw_test_slow(tcase, 300);
    tcase_add_loop_test(tcase, the_same_dictionary, 0, sizeof sizes / sizeof sizes[0]);
    tcase_add_test(tcase, arguments_are_checked);
    suite_add_tcase(suite, tcase);
    return sw_test_run(suite, CK_NOFORK);
}
