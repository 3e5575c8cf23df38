#include "tests/lib/gpu_frames.h"
#include "codec/codec.h"

#include "base/alloc.h"
#include "codec/plan/plan.h"
#include "codec/sample.h"
#include "codec/v5t/table.h"
#include "tests/lib/phrases.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Thousands of frames take a dozen allocations each: cudaMalloc() and cudaFree() would be most of the time. */
static cudaError_t keep_freed_memory(void) {
    uint64_t threshold = UINT64_MAX;
    cudaMemPool_t pool;
    const cudaError_t e = cudaDeviceGetDefaultMemPool(&pool, 0);
    return e == cudaSuccess ? cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &threshold) : e;
}

static void *gpu_alloc(size_t bytes) {
    void *memory;
    CUDA(cudaMallocAsync(&memory, bytes, NULL));
    return memory;
}

static void gpu_free(void *memory) {
    CUDA(cudaFreeAsync(memory, NULL));
}

int sw_gpu_codec_start(void) {
    int devices = 0;
    struct sw_err err;
    if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) {
        (void)puts("skipped: no GPU");
        return 77;
    }
    if (sw_gpu_codec_init(&err)) {
        (void)printf("sw_gpu_codec_init: %s\n", err.msg);
        return 1;
    }
    const cudaError_t e = keep_freed_memory();
    if (e != cudaSuccess)
        (void)printf("no memory pool: %s\n", cudaGetErrorString(e));
    return e != cudaSuccess;
}

const size_t sw_gpu_sizes[SW_GPU_N_SIZES] = {
    0,   1,    2,    3,    4,     7,     8,    9,    15,   16,    17,    63,    255,    256,     257,     511,
    512, 1023, 1024, 1025, 32767, 32768, 8191, 8193, 5000, 32769, 65537, 99991, 262144, 1000003, 8388607, 40000001};
const enum sw_codec_id sw_gpu_of_bytes[SW_GPU_N_OF_BYTES] = {SW_CODEC_V5T, SW_CODEC_PHRASE, SW_CODEC_HUFFMAN};

bool sw_gpu_small_run(void) {
    return getenv("SW_TEST_SMALL") != NULL;
}

void sw_gpu_plan_of(struct sw_plan *ret, enum sw_codec_id codec, const uint8_t *in, size_t n, unsigned segment_log2) {
    uint8_t *sample = sw_alloc(SW_SAMPLE_MAX_BYTES);
    ck_assert_ptr_nonnull(sample);
    const unsigned piece_bytes = codec == SW_CODEC_V5T ? SW_SAMPLE_SHORT_PIECE_BYTES : SW_SAMPLE_LONG_PIECE_BYTES;
    const size_t sample_bytes = sw_sample_gather(sample, in, n, piece_bytes);
    *ret = (struct sw_plan){.codec = codec, .segment_log2 = segment_log2, .raw_bytes = n, .expected_ratio = 1};
    if (codec == SW_CODEC_V5T)
        sw_v5t_table_train(&ret->params, sample, sample_bytes, piece_bytes);
    else if (codec == SW_CODEC_PHRASE)
        sw_phrases_learn(&ret->params, sample, sample_bytes);
    else
        sw_plan_learn(ret, sample, sample_bytes); /* its segments have one length */
    sw_free(sample);
}

void sw_cuda_ok(cudaError_t e, const char *call) {
    ck_assert_msg(e == cudaSuccess, "%s: %s", call, cudaGetErrorString(e));
}

struct sw_gpu_guarded sw_gpu_guarded_new(size_t bytes, size_t shift) {
    struct sw_gpu_guarded g = {NULL, NULL, bytes};
    g.base = gpu_alloc(bytes + shift + 2 * GUARD_BYTES);
    g.data = g.base + GUARD_BYTES + shift;
    CUDA(cudaMemset(g.base, GUARD_VALUE, bytes + shift + 2 * GUARD_BYTES));
    CUDA(cudaDeviceSynchronize()); /* tests use it on streams that do not wait for this one */
    return g;
}

void sw_gpu_guarded_free(struct sw_gpu_guarded *g) {
    uint8_t guard[GUARD_BYTES];
    for (int side = 0; side < 2; side++) {
        CUDA(cudaMemcpy(guard, side ? g->data + g->bytes : g->data - GUARD_BYTES, GUARD_BYTES, cudaMemcpyDeviceToHost));
        size_t i = 0;
        while (i < GUARD_BYTES && guard[i] == GUARD_VALUE)
            i++;
        /* Once: Check makes a note of each assertion that holds, too. */
        ck_assert_msg(i == GUARD_BYTES, "byte %zu %s the buffer was written", i, side ? "after" : "before");
    }
    gpu_free(g->base);
}

size_t sw_gpu_most_pool_bytes = SIZE_MAX;

static size_t pool_head_bytes(const struct sw_gpu_test_pool *pool) {
    return pool->memory.bytes < sizeof pool->free ? pool->memory.bytes : sizeof pool->free;
}

struct sw_gpu_test_pool sw_gpu_test_pool_new(uint64_t raw_bytes) {
    const size_t helps = sw_gpu_pool_bytes(raw_bytes);
    struct sw_gpu_test_pool pool;
    struct sw_err err;
    pool.memory = sw_gpu_guarded_new(helps < sw_gpu_most_pool_bytes ? helps : sw_gpu_most_pool_bytes, 0);
    pool.gpu = (struct sw_gpu_pool){.d_memory = pool.memory.data, .bytes = pool.memory.bytes};
    ck_assert_msg(!sw_gpu_pool_init_async(&pool.gpu, NULL, &err), "%s", err.msg);
    memset(pool.free, 0, sizeof pool.free);
    CUDA(cudaMemcpy(pool.free, pool.memory.data, pool_head_bytes(&pool), cudaMemcpyDeviceToHost));
    return pool;
}

void sw_gpu_test_pool_free(struct sw_gpu_test_pool *pool) {
    uint32_t now[SW_GPU_POOL_WORDS] = {0};
    CUDA(cudaDeviceSynchronize());
    CUDA(cudaMemcpy(now, pool->memory.data, pool_head_bytes(pool), cudaMemcpyDeviceToHost));
    ck_assert_msg(!memcmp(now, pool->free, sizeof now), "not all slots were given back");
    sw_gpu_guarded_free(&pool->memory);
}

struct sw_gpu_uploaded_plan sw_gpu_plan_upload(const struct sw_plan *plan) {
    struct sw_gpu_uploaded_plan d;
    d.d_params = gpu_alloc(sizeof plan->params);
    CUDA(cudaMemcpy(d.d_params, &plan->params, sizeof plan->params, cudaMemcpyHostToDevice));
    d.gpu = sw_gpu_plan_from(plan, d.d_params);
    return d;
}

uint64_t sw_gpu_encode_frame(const struct sw_plan *plan, const uint8_t *in, size_t n, size_t shift, uint8_t *frame) {
    struct sw_gpu_uploaded_plan p = sw_gpu_plan_upload(plan);
    struct sw_gpu_guarded d_in = sw_gpu_guarded_new(n, shift), d_frame = sw_gpu_guarded_new(sw_frame_bound_bytes(n), 0);
    struct sw_gpu_guarded d_progress = sw_gpu_guarded_new(sizeof(struct sw_gpu_progress), 0);
    struct sw_gpu_test_pool pool = sw_gpu_test_pool_new(n);
    struct sw_gpu_result result, *const d_result = gpu_alloc(sizeof *d_result);
    struct sw_err err;
    CUDA(cudaMemset(d_progress.data, 0, d_progress.bytes));
    CUDA(cudaMemcpy(d_in.data, in, n, cudaMemcpyHostToDevice));
    ck_assert_msg(!sw_gpu_encode_async(&p.gpu, d_in.data, n, d_frame.data, d_frame.bytes, d_result, &pool.gpu,
                                       (struct sw_gpu_progress *)(void *)d_progress.data, (struct sw_gpu_pass){0}, NULL,
                                       &err),
                  "%s", err.msg);
    CUDA(cudaDeviceSynchronize());
    CUDA(cudaMemcpy(&result, d_result, sizeof result, cudaMemcpyDeviceToHost));
    ck_assert_uint_le(result.frame_bytes, sw_frame_bound_bytes(n));
    ck_assert_uint_eq(result.codec, plan->codec);
    CUDA(cudaMemcpy(frame, d_frame.data, result.frame_bytes, cudaMemcpyDeviceToHost));
    sw_gpu_guarded_free(&d_in);
    sw_gpu_guarded_free(&d_frame);
    sw_gpu_guarded_free(&d_progress);
    sw_gpu_test_pool_free(&pool);
    gpu_free(d_result);
    gpu_free(p.d_params);
    return result.frame_bytes;
}

uint32_t sw_gpu_decode_frame(const uint8_t *frame, uint64_t frame_bytes, uint32_t first, uint32_t count, size_t shift,
                             uint8_t *out, size_t out_bytes) {
    struct sw_frame_layout layout;
    struct sw_err err;
    ck_assert_msg(!sw_frame_parse(&layout, frame, frame_bytes, frame_bytes, &err), "%s", err.msg);
    return sw_gpu_decode_layout(&layout, frame, first, count, shift, out, out_bytes);
}

uint32_t sw_gpu_decode_layout(const struct sw_frame_layout *layout, const uint8_t *frame, uint32_t first,
                              uint32_t count, size_t shift, uint8_t *out, size_t out_bytes) {
    const uint64_t frame_bytes = layout->frame_bytes;
    struct sw_err err;
    struct sw_gpu_guarded d_frame = sw_gpu_guarded_new(frame_bytes, 0), d_out = sw_gpu_guarded_new(out_bytes, shift);
    struct sw_gpu_result result, *const d_result = gpu_alloc(sizeof *d_result);
    CUDA(cudaMemset(d_result, 0, sizeof *d_result));
    CUDA(cudaMemcpy(d_frame.data, frame, frame_bytes, cudaMemcpyHostToDevice));
    ck_assert_msg(!sw_gpu_decode_async(layout, d_frame.data, first, count, d_out.data, d_result,
                                       (struct sw_gpu_pass){0}, NULL, &err),
                  "%s", err.msg);
    CUDA(cudaDeviceSynchronize());
    CUDA(cudaMemcpy(&result, d_result, sizeof result, cudaMemcpyDeviceToHost));
    CUDA(cudaMemcpy(out, d_out.data, out_bytes, cudaMemcpyDeviceToHost));
    sw_gpu_guarded_free(&d_frame);
    sw_gpu_guarded_free(&d_out);
    gpu_free(d_result);
    return result.bad_tiles;
}

void sw_gpu_round_trip(const struct sw_plan *plan, const uint8_t *in, size_t n, size_t shift) {
    const uint64_t cap = sw_frame_bound_bytes(n);
    uint8_t *frame = aligned_alloc(16, cap), *out = malloc(n + 1);
    struct sw_err err;
    uint64_t host_frame_bytes, decoded;
    ck_assert_ptr_nonnull(frame);
    ck_assert_ptr_nonnull(out);
    const uint64_t frame_bytes = sw_gpu_encode_frame(plan, in, n, shift, frame);
    ck_assert_msg(!sw_codec_decode(frame, frame_bytes, out, n, &decoded, &err), "n=%zu: %s", n, err.msg);
    ck_assert_uint_eq(decoded, n);
    ck_assert_msg(!memcmp(in, out, n), "GPU -> host, %zu bytes", n);
    struct sw_frame_layout layout;
    ck_assert_int_eq(sw_frame_parse(&layout, frame, frame_bytes, frame_bytes, &err), 0);
    memset(out, 0xEE, n);
    ck_assert_uint_eq(sw_gpu_decode_frame(frame, frame_bytes, 0, layout.n_tiles, shift, out, n), 0);
    ck_assert_msg(!memcmp(in, out, n), "GPU -> GPU, %zu bytes", n);
    ck_assert_int_eq(sw_codec_encode(plan, in, n, frame, cap, &host_frame_bytes, &err), 0);
    ck_assert_int_eq(sw_frame_parse(&layout, frame, host_frame_bytes, host_frame_bytes, &err), 0);
    memset(out, 0xEE, n);
    ck_assert_uint_eq(sw_gpu_decode_frame(frame, host_frame_bytes, 0, layout.n_tiles, shift, out, n), 0);
    ck_assert_msg(!memcmp(in, out, n), "host -> GPU, %zu bytes", n);
    free(frame);
    free(out);
}
