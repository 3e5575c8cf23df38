/* codec.c - frames made on the GPU decode on the host and the other way round, byte for byte.
 *
 * SW_TEST_SMALL=1 leaves out the larger sizes, for runs under compute-sanitizer. */
#include "codec/codec.h"
#include "codec/checksum.h"
#include "codec/gpu.h"
#include "codec/plan/plan.h"
#include "codec/streams/streams.h"
#include "codec/v5t/table.h"
#include "tests/lib/content.h"
#include "tests/lib/gpu_frames.h"
#include "tests/lib/phrases.h"
#include "tests/lib/run.h"

#include <check.h>
#include <cuda_runtime.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

START_TEST(every_content_and_size) {
    const enum sw_content content = (enum sw_content)_i;
    for (size_t s = 0; s < SW_GPU_N_SIZES; s++) {
        const size_t n = sw_gpu_sizes[s];
        if (sw_gpu_small_run() && n > 100000)
            continue;
        uint8_t *in = malloc(n + 1);
        ck_assert_ptr_nonnull(in);
        sw_content_fill(in, n, content, n + 1);
        for (unsigned log2 = 8; log2 <= 10; log2++) {
            for (size_t k = 0; k < SW_GPU_N_OF_BYTES; k++) {
                struct sw_plan plan;
                sw_gpu_plan_of(&plan, sw_gpu_of_bytes[k], in, n, log2);
                sw_gpu_round_trip(&plan, in, n, 0);
            }
            if (n > 1100000)
                break;
        }
        struct sw_plan raw;
        sw_plan_init_raw(&raw);
        sw_gpu_round_trip(&raw, in, n, 0);
        free(in);
    }
}
END_TEST

START_TEST(every_alignment) {
    const size_t n = 70001;
    uint8_t *in = malloc(n);
    ck_assert_ptr_nonnull(in);
    sw_content_fill(in, n, SW_CONTENT_MIXED, 5);
    struct sw_plan plans[SW_GPU_N_OF_BYTES], raw;
    for (size_t k = 0; k < SW_GPU_N_OF_BYTES; k++)
        sw_gpu_plan_of(&plans[k], sw_gpu_of_bytes[k], in, n, 10);
    sw_plan_init_raw(&raw);
    for (size_t shift = 0; shift < 16; shift++) {
        for (size_t k = 0; k < SW_GPU_N_OF_BYTES; k++)
            sw_gpu_round_trip(&plans[k], in, n, shift);
        sw_gpu_round_trip(&raw, in, n, shift);
    }
    free(in);
}
END_TEST

/* Symbols of every length, cut by segment borders at every place. */
START_TEST(every_symbol_length) {
    const size_t n = 100003;
    uint8_t *in = malloc(n);
    ck_assert_ptr_nonnull(in);
    for (unsigned letters = 2; letters <= 250; letters += 62) {
        struct sw_plan plan = {.codec = SW_CODEC_V5T, .segment_log2 = 8 + letters % 3};
        sw_content_table(&plan.params, letters, letters);
        sw_content_fill_symbols(in, n, &plan.params, letters);
        sw_gpu_round_trip(&plan, in, n, 0);
        sw_gpu_round_trip(&plan, in + 3, n - 3, 3);
    }
    free(in);
}
END_TEST

/* Tables that no training would make, of one phrase and of many. */
START_TEST(every_phrase_length) {
    const size_t n = 100003;
    uint8_t *in = malloc(n);
    ck_assert_ptr_nonnull(in);
    for (unsigned letters = 1; letters <= 250; letters += letters < 3 ? 1 : 82)
        for (unsigned phrases = 1; phrases <= SW_PHRASE_MAX; phrases += 127) {
            struct sw_plan plan = {.codec = SW_CODEC_PHRASE, .segment_log2 = 8 + letters % 3};
            sw_phrases_table(&plan.params, phrases, letters, letters);
            sw_phrases_fill(in, n, &plan.params, letters);
            sw_gpu_round_trip(&plan, in, n, 0);
            sw_gpu_round_trip(&plan, in + 3, n - 3, 3);
            sw_content_fill(in, n, SW_CONTENT_MIXED, phrases);
            sw_gpu_round_trip(&plan, in, n, 0);
        }
    free(in);
}
END_TEST

/* The codes of an invalid table are ignored, and phrases that refer to each other in rings end. */
START_TEST(made_up_tables) {
    const size_t n = 100001;
    uint8_t *in = malloc(n), *frame = aligned_alloc(16, (sw_frame_bound_bytes(n) + 15) / 16 * 16), *out = malloc(n);
    uint64_t state = 3;
    ck_assert(in && frame && out);
    sw_content_fill(in, n, SW_CONTENT_TEXT, 2);
    struct sw_plan plan;
    sw_gpu_plan_of(&plan, SW_CODEC_PHRASE, in, n, 10);
    const uint64_t frame_bytes = sw_gpu_encode_frame(&plan, in, n, 0, frame);
    struct sw_frame_layout layout;
    ck_assert_int_eq(sw_frame_parse(&layout, frame, frame_bytes, frame_bytes, NULL), 0);
    for (int round = 0; round < (sw_gpu_small_run() ? 20 : 200); round++) {
        const size_t section = 9 * (size_t)layout.n_symbols;
        for (unsigned hits = 0; hits < 1 + sw_random(&state) % 20; hits++)
            frame[SW_FRAME_HEADER_BYTES + sw_random(&state) % section] = (uint8_t)(sw_random(&state) >> 32);
        /* Neither the kernel nor the calls here check the header's hash: the layout is given. */
        const uint32_t bad = sw_gpu_decode_layout(&layout, frame, 0, layout.n_tiles, 0, out, n);
        ck_assert(bad > 0 || !memcmp(in, out, n));
    }
    free(in);
    free(frame);
    free(out);
}
END_TEST

/* The table changes while kernels read it, as a client may change a packed region's frames. The kernels may decode
 * anything, but they end, and write to no other bytes. */
START_TEST(tables_that_change) {
    enum { ROUNDS = 20, DECODES = 10, CHANGES = 200 };
    const size_t n = 2000003;
    const enum sw_codec_id codec = sw_gpu_of_bytes[_i];
    uint8_t *in = malloc(n), *frame = aligned_alloc(16, (sw_frame_bound_bytes(n) + 15) / 16 * 16), *tables;
    ck_assert(in && frame);
    sw_content_fill(in, n, SW_CONTENT_TEXT, 2);
    struct sw_plan plan;
    struct sw_frame_layout layout;
    sw_gpu_plan_of(&plan, codec, in, n, 10);
    const uint64_t frame_bytes = sw_gpu_encode_frame(&plan, in, n, 0, frame);
    ck_assert_int_eq(sw_frame_parse(&layout, frame, frame_bytes, frame_bytes, NULL), 0);
    const size_t section = 9 * (size_t)layout.n_symbols;
    struct sw_gpu_guarded d_frame = sw_gpu_guarded_new(frame_bytes, 0), d_out = sw_gpu_guarded_new(n, 0),
                          d_result = sw_gpu_guarded_new(sizeof(struct sw_gpu_result), 0);
    cudaStream_t decodes, changes;
    uint64_t state = 3;
    CUDA(cudaMallocHost((void **)&tables, 2 * section)); /* the frame's, and another */
    memcpy(tables, frame + SW_FRAME_HEADER_BYTES, section);
    CUDA(cudaStreamCreateWithFlags(&decodes, cudaStreamNonBlocking));
    CUDA(cudaStreamCreateWithFlags(&changes, cudaStreamNonBlocking));
    CUDA(cudaMemcpy(d_frame.data, frame, frame_bytes, cudaMemcpyHostToDevice));
    for (int round = 0; round < (sw_gpu_small_run() ? 2 : ROUNDS); round++) {
        for (size_t i = 0; i < section; i++)
            tables[section + i] = (uint8_t)(sw_random(&state) >> 32);
        for (int i = 0; i < DECODES; i++)
            ck_assert_int_eq(sw_gpu_decode_async(&layout, d_frame.data, 0, layout.n_tiles, d_out.data,
                                                 (struct sw_gpu_result *)d_result.data, (struct sw_gpu_pass){0},
                                                 decodes, NULL),
                             0);
        for (int i = 0; i < CHANGES; i++)
            CUDA(cudaMemcpyAsync(d_frame.data + SW_FRAME_HEADER_BYTES, tables + (i % 2 ? section : 0), section,
                                 cudaMemcpyHostToDevice, changes));
        CUDA(cudaStreamSynchronize(decodes));
        CUDA(cudaStreamSynchronize(changes));
    }
    CUDA(cudaStreamDestroy(decodes));
    CUDA(cudaStreamDestroy(changes));
    CUDA(cudaFreeHost(tables));
    sw_gpu_guarded_free(&d_frame);
    sw_gpu_guarded_free(&d_out);
    sw_gpu_guarded_free(&d_result);
    free(in);
    free(frame);
}
END_TEST

/* One tile of zeros, of codes for one zero and for two: whatever is decoded, its bytes and so its hash are right, and
 * only a look at the codes themselves can find one that stands for nothing. 1,020 codes make each segment. */
enum { ZEROS_SYMBOLS = 2, ZEROS_BYTES = SW_TILE_SEGMENTS << 10, ZEROS_WORDS = 255 };

static uint8_t *zeros_frame(enum sw_codec_id codec, struct sw_frame_layout *layout) {
    static const uint8_t zeros[ZEROS_BYTES], lengths[ZEROS_SYMBOLS] = {1, 2};
    sw_frame_layout_init(layout, codec, 10, ZEROS_BYTES, ZEROS_SYMBOLS);
    layout->frame_bytes = layout->data_offset + (uint64_t)SW_TILE_SEGMENTS * 4 * ZEROS_WORDS;
    uint8_t *frame = calloc(1, layout->frame_bytes), *table = frame + SW_FRAME_HEADER_BYTES;
    ck_assert_ptr_nonnull(frame);
    memcpy(table + sizeof(uint64_t) * ZEROS_SYMBOLS, lengths, sizeof lengths);
    struct sw_frame_header header;
    sw_frame_header_init(&header, layout, table);
    memcpy(frame, &header, sizeof header);
    *(struct sw_tile_record *)(frame + layout->records_offset) =
        (struct sw_tile_record){0, sw_hash_tile(zeros, sizeof zeros, 10, 0)};
    memset(frame + layout->counts_offset, ZEROS_WORDS, SW_TILE_SEGMENTS);
    memset(frame + layout->data_offset, 1, (size_t)SW_TILE_SEGMENTS * 4);
    return frame;
}

START_TEST(codes_without_a_symbol_are_refused) {
    static uint8_t out[ZEROS_BYTES];
    struct sw_frame_layout layout;
    uint8_t *frame = zeros_frame(sw_gpu_of_bytes[_i], &layout), *codes = frame + layout.data_offset;
    const size_t row = (size_t)SW_TILE_SEGMENTS * 4;
    uint64_t state = 9, decoded;
    ck_assert_int_eq(sw_codec_decode(frame, layout.frame_bytes, out, sizeof out, &decoded, NULL), 0);
    ck_assert_uint_eq(sw_gpu_decode_layout(&layout, frame, 0, 1, 0, out, sizeof out), 0);
    for (int round = 0; round < (sw_gpu_small_run() ? 20 : 200); round++) {
        /* Anywhere but in the first row, where it is a code's second zero that would be missing. */
        const size_t at = row + sw_random(&state) % ((ZEROS_WORDS - 1) * row);
        codes[at] = (uint8_t)(ZEROS_SYMBOLS + sw_random(&state) % (SW_STREAMS_ESCAPE - ZEROS_SYMBOLS));
        ck_assert_int_eq(sw_codec_decode(frame, layout.frame_bytes, out, sizeof out, &decoded, NULL), -SW_EFRAME);
        ck_assert_uint_eq(sw_gpu_decode_layout(&layout, frame, 0, 1, 0, out, sizeof out), 1);
        codes[at] = 0;
    }
    free(frame);
}
END_TEST

START_TEST(ranges_of_tiles) {
    const size_t n = 300000;
    uint8_t *in = malloc(n), *frame = aligned_alloc(16, (sw_frame_bound_bytes(n) + 15) / 16 * 16), *out = malloc(n);
    ck_assert(in && frame && out);
    sw_content_fill(in, n, SW_CONTENT_TEXT, 9);
    struct sw_plan plan;
    sw_gpu_plan_of(&plan, sw_gpu_of_bytes[_i], in, n, 10);
    const uint64_t frame_bytes = sw_gpu_encode_frame(&plan, in, n, 0, frame);
    for (uint32_t first = 0; first < 10; first++)
        for (uint32_t count = 1; first + count <= 10; count++) {
            const size_t from = (size_t)first << 15, to = (size_t)(first + count) << 15;
            const size_t bytes = (to < n ? to : n) - from;
            ck_assert_uint_eq(sw_gpu_decode_frame(frame, frame_bytes, first, count, 0, out, bytes), 0);
            ck_assert(!memcmp(in + from, out, bytes));
        }
    free(in);
    free(frame);
    free(out);
}
END_TEST

/* Damage anywhere behind the header is found, and nothing outside the buffers is touched (guards; memcheck). */
START_TEST(damaged_frames) {
    const size_t n = 100001;
    uint8_t *in = malloc(n), *frame = aligned_alloc(16, (sw_frame_bound_bytes(n) + 15) / 16 * 16), *out = malloc(n);
    ck_assert(in && frame && out);
    for (size_t kind = 0; kind <= SW_GPU_N_OF_BYTES; kind++) {
        sw_content_fill(in, n, kind == SW_GPU_N_OF_BYTES ? SW_CONTENT_RANDOM : SW_CONTENT_MIXED, 11);
        struct sw_plan plan;
        if (kind == SW_GPU_N_OF_BYTES)
            sw_plan_init_raw(&plan);
        else
            sw_gpu_plan_of(&plan, sw_gpu_of_bytes[kind], in, n, 10);
        const uint64_t frame_bytes = sw_gpu_encode_frame(&plan, in, n, 0, frame);
        struct sw_frame_layout layout;
        ck_assert_int_eq(sw_frame_parse(&layout, frame, frame_bytes, frame_bytes, NULL), 0);
        uint64_t state = 77;
        for (int round = 0; round < (sw_gpu_small_run() ? 40 : 400); round++) {
            const uint64_t r = sw_random(&state), span = frame_bytes - layout.records_offset;
            /* Half of the hits go to records and counts, where they do most harm. */
            const uint64_t meta = layout.data_offset - layout.records_offset;
            const uint64_t at = layout.records_offset + (r & 1 ? (r >> 8) % meta : (r >> 8) % span);
            const uint8_t old = frame[at];
            frame[at] ^= (uint8_t)(1 + (r >> 1) % 255);
            const uint32_t bad = sw_gpu_decode_frame(frame, frame_bytes, 0, layout.n_tiles, 0, out, n);
            ck_assert_msg(bad > 0 || !memcmp(in, out, n), "byte %llu", (unsigned long long)at);
            frame[at] = old;
        }
    }
    free(in);
    free(frame);
    free(out);
}
END_TEST

/* Only bytes without any pattern are given up without training; too few of them say nothing. */
START_TEST(probed_samples) {
    const enum sw_content content = (enum sw_content)_i;
    const size_t n = SW_SAMPLE_MAX_BYTES;
    uint8_t *in = malloc(n), *d_in;
    uint32_t *hopeless;
    struct sw_err err;
    ck_assert_ptr_nonnull(in);
    sw_content_fill(in, n, content, 5);
    CUDA(cudaMalloc((void **)&d_in, n));
    CUDA(cudaMallocHost((void **)&hopeless, sizeof *hopeless));
    CUDA(cudaMemcpy(d_in, in, n, cudaMemcpyHostToDevice));
    for (size_t bytes = 0; bytes <= n; bytes = bytes ? bytes * 4 : 16) {
        *hopeless = 2;
        ck_assert_int_eq(sw_gpu_probe_async(d_in, bytes, hopeless, NULL, &err), 0);
        CUDA(cudaDeviceSynchronize());
        ck_assert_uint_eq(*hopeless, content == SW_CONTENT_RANDOM && bytes >= 16384);
    }
    free(in);
    CUDA(cudaFree(d_in));
    CUDA(cudaFreeHost(hopeless));
}
END_TEST

/* Tables trained on the GPU obey the rules of table.h and are about as good as the host's. */
START_TEST(trained_tables) {
    const enum sw_content content = (enum sw_content)_i;
    const size_t n = sw_gpu_small_run() && content != SW_CONTENT_TEXT ? SW_SAMPLE_MAX_BYTES / 4 : SW_SAMPLE_MAX_BYTES;
    uint8_t *in = malloc(n), *d_in;
    struct sw_params host, gpu, *d_params;
    struct sw_gpu_training training, *d_training;
    void *d_scratch;
    struct sw_err err;
    ck_assert_ptr_nonnull(in);
    sw_content_fill(in, n, content, 3);
    CUDA(cudaMalloc((void **)&d_in, n));
    CUDA(cudaMalloc((void **)&d_params, sizeof gpu));
    CUDA(cudaMalloc((void **)&d_training, sizeof training));
    CUDA(cudaMalloc(&d_scratch, sw_gpu_train_scratch_bytes()));
    CUDA(cudaMemcpy(d_in, in, n, cudaMemcpyHostToDevice));
    for (size_t bytes = 0; bytes <= n; bytes = bytes ? bytes * 4 : 16) {
        ck_assert_int_eq(
            sw_gpu_train_async(d_in, bytes, d_params, d_training, d_scratch, sw_gpu_train_scratch_bytes(), NULL, &err),
            0);
        CUDA(cudaDeviceSynchronize());
        CUDA(cudaMemcpy(&gpu, d_params, sizeof gpu, cudaMemcpyDeviceToHost));
        CUDA(cudaMemcpy(&training, d_training, sizeof training, cudaMemcpyDeviceToHost));
        ck_assert_uint_eq(training.n_symbols, gpu.n_symbols);
        ck_assert_uint_le(gpu.n_symbols, SW_FRAME_MAX_SYMBOLS);
        const uint32_t n2 = gpu.own[SW_V5T_N2], n1 = gpu.own[SW_V5T_N1];
        bool taken[1 << SW_V5T_HASH_LOG2] = {false};
        for (uint32_t c = 0; c < gpu.n_symbols; c++) {
            const uint32_t length = gpu.length[c];
            ck_assert(c < n2 ? length == 2 : c < n2 + n1 ? length == 1 : length >= 3 && length <= 8);
            ck_assert(length == 8 || gpu.value[c] >> 8 * length == 0);
            if (length > 2) {
                ck_assert(!taken[sw_v5t_hash3((uint32_t)gpu.value[c])]);
                taken[sw_v5t_hash3((uint32_t)gpu.value[c])] = true;
            }
        }
    }
    struct sw_plan plan = {.codec = SW_CODEC_V5T, .segment_log2 = 10, .params = gpu};
    sw_gpu_round_trip(&plan, in, n, 0);
    uint8_t *frame = aligned_alloc(16, sw_frame_bound_bytes(n));
    uint64_t by_gpu, by_host;
    ck_assert_int_eq(sw_codec_encode(&plan, in, n, frame, sw_frame_bound_bytes(n), &by_gpu, &err), 0);
    sw_v5t_table_train(&host, in, n, SW_SAMPLE_SHORT_PIECE_BYTES);
    plan.params = host;
    ck_assert_int_eq(sw_codec_encode(&plan, in, n, frame, sw_frame_bound_bytes(n), &by_host, &err), 0);
    ck_assert_msg((double)by_gpu <= 1.1 * (double)by_host,
                  "content %d: %llu bytes by the GPU's table, %llu by the host's", (int)content,
                  (unsigned long long)by_gpu, (unsigned long long)by_host);
    free(frame);
    free(in);
    CUDA(cudaFree(d_in));
    CUDA(cudaFree(d_params));
    CUDA(cudaFree(d_training));
    CUDA(cudaFree(d_scratch));
}
END_TEST

START_TEST(refusals) {
    struct sw_plan plan;
    struct sw_err err;
    void *d;
    const uint64_t n = 1 << 20;
    sw_gpu_plan_of(&plan, SW_CODEC_V5T, (const uint8_t *)"abcabcabc", 9, 10);
    struct sw_gpu_uploaded_plan p = sw_gpu_plan_upload(&plan);
    CUDA(cudaMalloc(&d, 1 << 22));
    const uint64_t cap = sw_frame_bound_bytes(n);
    const struct sw_gpu_pool no_pool = {0};
    ck_assert_int_eq(sw_gpu_encode_async(&p.gpu, d, n, d, cap - 1, d, &no_pool, d, (struct sw_gpu_pass){0}, NULL, &err),
                     -SW_ETOOSMALL);
    ck_assert_int_eq(
        sw_gpu_encode_async(&p.gpu, d, n, (uint8_t *)d + 8, cap, d, &no_pool, d, (struct sw_gpu_pass){0}, NULL, &err),
        -SW_EINVAL);
    struct sw_frame_layout layout;
    sw_frame_layout_init(&layout, SW_CODEC_RAW, SW_RAW_SEGMENT_LOG2, n, 0);
    ck_assert_int_eq(sw_gpu_decode_async(&layout, d, 1, layout.n_tiles, d, d, (struct sw_gpu_pass){0}, NULL, &err),
                     -SW_EINVAL);
    CUDA(cudaFree(d));
    CUDA(cudaFree(p.d_params));
}
END_TEST

/* A pool does not grow with the input, and a short input needs little of it. */
START_TEST(scratch_is_bounded) {
    ck_assert_uint_eq(sw_gpu_pool_bytes(1ull << 30), sw_gpu_pool_bytes(60ull << 30));
    ck_assert_uint_le(sw_gpu_pool_bytes(60ull << 30), 54u << 20);
    ck_assert_uint_le(sw_gpu_pool_bytes(1 << 20), 2u << 20);
}
END_TEST

/* ---- pools ---- */

/* Content of n bytes by how much v5t makes of it. */
enum yield { HALF, LITTLE, LITTLE_AND_NOTHING, MUCH, N_YIELDS };

static void fill_for(enum yield yield, uint8_t *in, size_t n) {
    uint64_t state = 1 + yield;
    if (yield == MUCH)
        sw_content_fill(in, n, SW_CONTENT_TEXT, 3);
    for (size_t at = 0; yield != MUCH && at < n;) {
        const uint64_t r = sw_random(&state);
        const size_t segment = at >> 10;
        if (yield == HALF)
            in[at++] = (uint8_t) "0123456789abcdef"[r >> 40 & 15];
        else if (yield == LITTLE_AND_NOTHING && segment % 5 == 2)
            in[at++] = (uint8_t)(r >> 40);
        else if (r >> 20 & 31)
            in[at++] = (uint8_t)(' ' + (r >> 40) % 90);
        else
            for (unsigned i = 0; i < 8 && at < n; i++)
                in[at++] = (uint8_t) "Spillway"[i];
    }
}

/* A slot that is full is followed by another one, or by encoding again; without a slot all is encoded twice. The frames
 * are as long as ever. */
START_TEST(every_pool) {
    const size_t pools[] = {SIZE_MAX, sw_gpu_pool_bytes(1), 0}, n = sw_gpu_small_run() ? 150001 : 4000001;
    uint8_t *in = malloc(n), *frame = aligned_alloc(16, (sw_frame_bound_bytes(n) + 15) / 16 * 16);
    ck_assert(in && frame);
    fill_for((enum yield)_i, in, n);
    for (unsigned log2 = 9; log2 <= 10; log2++)
        for (size_t k = 0; k < SW_GPU_N_OF_BYTES; k++) {
            struct sw_plan plan;
            uint64_t bytes[3];
            sw_gpu_plan_of(&plan, sw_gpu_of_bytes[k], in, n, log2);
            for (unsigned p = 0; p < 3; p++) {
                sw_gpu_most_pool_bytes = pools[p];
                for (size_t shift = 0; shift < 5; shift += 2)
                    sw_gpu_round_trip(&plan, in + shift, n - 2 * shift, shift);
                bytes[p] = sw_gpu_encode_frame(&plan, in, n, 0, frame);
                ck_assert_uint_eq(bytes[p], bytes[0]);
            }
            sw_gpu_most_pool_bytes = SIZE_MAX;
        }
    free(in);
    free(frame);
}
END_TEST

/* Encodes on several streams at once take slots of one pool. */
START_TEST(streams_share_a_pool) {
    enum { STREAMS = 6, ROUNDS = 8 };
    const size_t n = sw_gpu_small_run() ? 300000 : 20000000, cap = sw_frame_bound_bytes(n);
    uint8_t *in[N_YIELDS], *frame = aligned_alloc(16, (cap + 15) / 16 * 16), *out = malloc(n), *d_in[N_YIELDS];
    struct sw_gpu_uploaded_plan plans[N_YIELDS];
    struct sw_gpu_guarded d_frames[STREAMS];
    struct sw_gpu_result *results;
    cudaStream_t streams[STREAMS];
    struct sw_gpu_progress *d_progress;
    struct sw_err err;
    sw_gpu_most_pool_bytes = _i ? sw_gpu_pool_bytes(50 << 20) : SIZE_MAX;
    struct sw_gpu_test_pool pool = sw_gpu_test_pool_new(STREAMS * n);
    sw_gpu_most_pool_bytes = SIZE_MAX;
    ck_assert(frame && out);
    CUDA(cudaHostAlloc((void **)&results, STREAMS * sizeof *results, cudaHostAllocDefault));
    CUDA(cudaMalloc((void **)&d_progress, STREAMS * sizeof *d_progress));
    CUDA(cudaMemset(d_progress, 0, STREAMS * sizeof *d_progress));
    for (int i = 0; i < N_YIELDS; i++) {
        struct sw_plan plan;
        in[i] = malloc(n);
        ck_assert_ptr_nonnull(in[i]);
        fill_for((enum yield)i, in[i], n);
        sw_gpu_plan_of(&plan, i == MUCH ? SW_CODEC_PHRASE : SW_CODEC_V5T, in[i], n, 10);
        plans[i] = sw_gpu_plan_upload(&plan);
        CUDA(cudaMalloc((void **)&d_in[i], n));
        CUDA(cudaMemcpy(d_in[i], in[i], n, cudaMemcpyHostToDevice));
    }
    for (int s = 0; s < STREAMS; s++) {
        CUDA(cudaStreamCreateWithFlags(&streams[s], cudaStreamNonBlocking));
        d_frames[s] = sw_gpu_guarded_new(cap, 0);
    }
    for (int round = 0; round < ROUNDS; round++) {
        for (int s = 0; s < STREAMS; s++) {
            CUDA(cudaMemsetAsync(d_frames[s].data, 0xEE, cap, streams[s]));
            ck_assert_msg(!sw_gpu_encode_async(&plans[(round + s) % N_YIELDS].gpu, d_in[(round + s) % N_YIELDS], n,
                                               d_frames[s].data, cap, &results[s], &pool.gpu, &d_progress[s],
                                               (struct sw_gpu_pass){0}, streams[s], &err),
                          "%s", err.msg);
        }
        CUDA(cudaDeviceSynchronize());
        for (int s = 0; s < STREAMS; s++) {
            uint64_t decoded = 0;
            CUDA(cudaMemcpy(frame, d_frames[s].data, results[s].frame_bytes, cudaMemcpyDeviceToHost));
            ck_assert_msg(!sw_codec_decode(frame, results[s].frame_bytes, out, n, &decoded, &err), "%s", err.msg);
            ck_assert_uint_eq(decoded, n);
            ck_assert(!memcmp(out, in[(round + s) % N_YIELDS], n));
        }
    }
    sw_gpu_test_pool_free(&pool);
    for (int s = 0; s < STREAMS; s++) {
        sw_gpu_guarded_free(&d_frames[s]);
        CUDA(cudaStreamDestroy(streams[s]));
    }
    for (int i = 0; i < N_YIELDS; i++) {
        CUDA(cudaFree(plans[i].d_params));
        CUDA(cudaFree(d_in[i]));
        free(in[i]);
    }
    CUDA(cudaFree(d_progress));
    CUDA(cudaFreeHost(results));
    free(frame);
    free(out);
}
END_TEST

int main(void) {
    const int rc = sw_gpu_codec_start();
    if (rc)
        return rc;
    /* Apart, so that a sanitizer can run them beside each other (CK_RUN_CASE). */
    Suite *suite = suite_create("gpu codec");
    TCase *content = tcase_create("content");
    tcase_add_loop_test(content, every_content_and_size, 0, SW_CONTENT_NR);
    TCase *shapes = tcase_create("shapes");
    tcase_add_test(shapes, every_alignment);
    tcase_add_test(shapes, every_symbol_length);
    tcase_add_test(shapes, every_phrase_length);
    tcase_add_loop_test(shapes, ranges_of_tiles, 0, SW_GPU_N_OF_BYTES);
    TCase *damage = tcase_create("damage");
    tcase_add_test(damage, made_up_tables);
    tcase_add_loop_test(damage, tables_that_change, 0, SW_GPU_N_OF_BYTES);
    tcase_add_loop_test(damage, codes_without_a_symbol_are_refused, 0, SW_GPU_N_OF_SYMBOLS);
    tcase_add_test(damage, damaged_frames);
    tcase_add_test(damage, refusals);
    tcase_add_test(damage, scratch_is_bounded);
    TCase *pools = tcase_create("pools");
    tcase_add_loop_test(pools, every_pool, 0, N_YIELDS);
    tcase_add_loop_test(pools, streams_share_a_pool, 0, 2);
    TCase *training = tcase_create("training");
    tcase_add_loop_test(training, trained_tables, 0, SW_CONTENT_NR);
    tcase_add_loop_test(training, probed_samples, 0, SW_CONTENT_NR);
    suite_add_tcase(suite, content);
    suite_add_tcase(suite, shapes);
    suite_add_tcase(suite, damage);
    suite_add_tcase(suite, pools);
    suite_add_tcase(suite, training);
    return sw_test_run(suite, CK_NOFORK); /* one CUDA context for all tests */
}
