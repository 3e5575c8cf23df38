/* codec.c - frames made on the GPU decode on the host and the other way round, byte for byte.
 *
 * SW_TEST_SMALL=1 leaves out the larger sizes, for runs under compute-sanitizer. */
#include "base/alloc.h"
#include "codec/checksum.h"
#include "codec/gpu.h"
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

/* A plan of a codec even where sw_plan_init would choose another: the worst case must work as well. */
static void force_codec(struct sw_plan *plan, enum sw_codec_id codec, const uint8_t *in, size_t n,
                        unsigned segment_log2) {
    uint8_t *sample = sw_alloc(SW_SAMPLE_MAX_BYTES);
    ck_assert_ptr_nonnull(sample);
    const size_t sample_bytes = sw_sample_gather(sample, in, n);
    *plan = (struct sw_plan){.codec = codec, .segment_log2 = segment_log2, .raw_bytes = n, .expected_ratio = 1};
    if (codec == SW_CODEC_V5T)
        sw_v5t_table_train(&plan->table, sample, sample_bytes, SW_SAMPLE_PIECE_BYTES);
    else
        sw_phrases_learn(&plan->table, sample, sample_bytes);
    sw_free(sample);
}

static const enum sw_codec_id of_bytes[] = {SW_CODEC_V5T, SW_CODEC_PHRASE};
#define N_OF_BYTES (sizeof of_bytes / sizeof of_bytes[0])

static bool small_run(void) {
    return getenv("SW_TEST_SMALL") != NULL;
}

static const size_t sizes[] = {0,    1,    2,    3,     4,     7,     8,      9,       15,      16,      17,
                               63,   255,  256,  257,   511,   512,   1023,   1024,    1025,    32767,   32768,
                               8191, 8193, 5000, 32769, 65537, 99991, 262144, 1000003, 8388607, 40000001};

START_TEST(every_content_and_size) {
    const enum sw_content content = (enum sw_content)_i;
    for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++) {
        const size_t n = sizes[s];
        if (small_run() && n > 100000)
            continue;
        uint8_t *in = malloc(n + 1);
        ck_assert_ptr_nonnull(in);
        sw_content_fill(in, n, content, n + 1);
        for (unsigned log2 = 8; log2 <= 10; log2++) {
            for (size_t k = 0; k < N_OF_BYTES; k++) {
                struct sw_plan plan;
                force_codec(&plan, of_bytes[k], in, n, log2);
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
    struct sw_plan plans[N_OF_BYTES], raw;
    for (size_t k = 0; k < N_OF_BYTES; k++)
        force_codec(&plans[k], of_bytes[k], in, n, 10);
    sw_plan_init_raw(&raw);
    for (size_t shift = 0; shift < 16; shift++) {
        for (size_t k = 0; k < N_OF_BYTES; k++)
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
        sw_content_table(&plan.table, letters, letters);
        sw_content_fill_symbols(in, n, &plan.table, letters);
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
            sw_phrases_table(&plan.table, phrases, letters, letters);
            sw_phrases_fill(in, n, &plan.table, letters);
            sw_gpu_round_trip(&plan, in, n, 0);
            sw_gpu_round_trip(&plan, in + 3, n - 3, 3);
            sw_content_fill(in, n, SW_CONTENT_MIXED, phrases);
            sw_gpu_round_trip(&plan, in, n, 0);
        }
    free(in);
}
END_TEST

/* Of a table that is not valid no code is believed, and what phrases refer to each other in rings has an end. */
START_TEST(made_up_tables) {
    const size_t n = 100001;
    uint8_t *in = malloc(n), *frame = aligned_alloc(16, (sw_frame_bound_bytes(n) + 15) / 16 * 16), *out = malloc(n);
    uint64_t state = 3;
    ck_assert(in && frame && out);
    sw_content_fill(in, n, SW_CONTENT_TEXT, 2);
    struct sw_plan plan;
    force_codec(&plan, SW_CODEC_PHRASE, in, n, 10);
    const uint64_t frame_bytes = sw_gpu_encode_frame(&plan, in, n, 0, frame);
    struct sw_frame_layout layout;
    ck_assert_int_eq(sw_frame_parse(&layout, frame, frame_bytes, frame_bytes, NULL), 0);
    for (int round = 0; round < (small_run() ? 20 : 200); round++) {
        const size_t section = 9 * (size_t)layout.n_symbols;
        for (unsigned hits = 0; hits < 1 + sw_random(&state) % 20; hits++)
            frame[SW_FRAME_HEADER_BYTES + sw_random(&state) % section] = (uint8_t)(sw_random(&state) >> 32);
        /* The header's hash is not looked at by the kernel, nor by what is called here: the layout is there. */
        const uint32_t bad = sw_gpu_decode_layout(&layout, frame, 0, layout.n_tiles, 0, out, n);
        ck_assert(bad > 0 || !memcmp(in, out, n));
    }
    free(in);
    free(frame);
    free(out);
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

START_TEST(codes_that_stand_for_nothing) {
    static uint8_t out[ZEROS_BYTES];
    struct sw_frame_layout layout;
    uint8_t *frame = zeros_frame(of_bytes[_i], &layout), *codes = frame + layout.data_offset;
    const size_t row = (size_t)SW_TILE_SEGMENTS * 4;
    uint64_t state = 9, decoded;
    ck_assert_int_eq(sw_codec_decode(frame, layout.frame_bytes, out, sizeof out, &decoded, NULL), 0);
    ck_assert_uint_eq(sw_gpu_decode_layout(&layout, frame, 0, 1, 0, out, sizeof out), 0);
    for (int round = 0; round < (small_run() ? 20 : 200); round++) {
        /* Anywhere but in the first row, where it is a code's second zero that would be missing. */
        const size_t at = row + sw_random(&state) % ((ZEROS_WORDS - 1) * row);
        codes[at] = (uint8_t)(ZEROS_SYMBOLS + sw_random(&state) % (SW_V5T_ESCAPE - ZEROS_SYMBOLS));
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
    force_codec(&plan, of_bytes[_i], in, n, 10);
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
    for (size_t kind = 0; kind <= N_OF_BYTES; kind++) {
        sw_content_fill(in, n, kind == N_OF_BYTES ? SW_CONTENT_RANDOM : SW_CONTENT_MIXED, 11);
        struct sw_plan plan;
        if (kind == N_OF_BYTES)
            sw_plan_init_raw(&plan);
        else
            force_codec(&plan, of_bytes[kind], in, n, 10);
        const uint64_t frame_bytes = sw_gpu_encode_frame(&plan, in, n, 0, frame);
        struct sw_frame_layout layout;
        ck_assert_int_eq(sw_frame_parse(&layout, frame, frame_bytes, frame_bytes, NULL), 0);
        uint64_t state = 77;
        for (int round = 0; round < (small_run() ? 40 : 400); round++) {
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

/* Tables trained on the GPU obey the rules of table.h and are about as good as those of the host. */
START_TEST(trained_tables) {
    const enum sw_content content = (enum sw_content)_i;
    const size_t n = SW_SAMPLE_MAX_BYTES;
    uint8_t *in = malloc(n), *d_in;
    struct sw_v5t_table host, gpu, *d_table;
    struct sw_gpu_training training, *d_training;
    void *d_scratch;
    struct sw_err err;
    ck_assert_ptr_nonnull(in);
    sw_content_fill(in, n, content, 3);
    CUDA(cudaMalloc((void **)&d_in, n));
    CUDA(cudaMalloc((void **)&d_table, sizeof gpu));
    CUDA(cudaMalloc((void **)&d_training, sizeof training));
    CUDA(cudaMalloc(&d_scratch, sw_gpu_train_scratch_bytes()));
    CUDA(cudaMemcpy(d_in, in, n, cudaMemcpyHostToDevice));
    for (size_t bytes = 0; bytes <= n; bytes = bytes ? bytes * 4 : 16) {
        ck_assert_int_eq(
            sw_gpu_train_async(d_in, bytes, d_table, d_training, d_scratch, sw_gpu_train_scratch_bytes(), NULL, &err),
            0);
        CUDA(cudaDeviceSynchronize());
        CUDA(cudaMemcpy(&gpu, d_table, sizeof gpu, cudaMemcpyDeviceToHost));
        CUDA(cudaMemcpy(&training, d_training, sizeof training, cudaMemcpyDeviceToHost));
        ck_assert_uint_eq(training.n_symbols, gpu.n_symbols);
        ck_assert_uint_le(gpu.n_symbols, SW_V5T_MAX_SYMBOLS);
        bool taken[1 << SW_V5T_HASH_LOG2] = {false};
        for (uint32_t c = 0; c < gpu.n_symbols; c++) {
            const uint32_t length = gpu.length[c];
            ck_assert(c < gpu.n2 ? length == 2 : c < gpu.n2 + gpu.n1 ? length == 1 : length >= 3 && length <= 8);
            ck_assert(length == 8 || gpu.value[c] >> 8 * length == 0);
            if (length > 2) {
                ck_assert(!taken[sw_v5t_hash3((uint32_t)gpu.value[c])]);
                taken[sw_v5t_hash3((uint32_t)gpu.value[c])] = true;
            }
        }
    }
    struct sw_plan plan = {.codec = SW_CODEC_V5T, .segment_log2 = 10, .table = gpu};
    sw_gpu_round_trip(&plan, in, n, 0);
    uint8_t *frame = aligned_alloc(16, sw_frame_bound_bytes(n));
    uint64_t by_gpu, by_host;
    ck_assert_int_eq(sw_codec_encode(&plan, in, n, frame, sw_frame_bound_bytes(n), &by_gpu, &err), 0);
    sw_v5t_table_train(&host, in, n, SW_SAMPLE_PIECE_BYTES);
    plan.table = host;
    ck_assert_int_eq(sw_codec_encode(&plan, in, n, frame, sw_frame_bound_bytes(n), &by_host, &err), 0);
    ck_assert_msg((double)by_gpu <= 1.1 * (double)by_host,
                  "content %d: %llu bytes by the GPU's table, %llu by the host's", (int)content,
                  (unsigned long long)by_gpu, (unsigned long long)by_host);
    free(frame);
    free(in);
    CUDA(cudaFree(d_in));
    CUDA(cudaFree(d_table));
    CUDA(cudaFree(d_training));
    CUDA(cudaFree(d_scratch));
}
END_TEST

START_TEST(refusals) {
    struct sw_plan plan;
    struct sw_err err;
    void *d;
    const uint64_t n = 1 << 20;
    force_codec(&plan, SW_CODEC_V5T, (const uint8_t *)"abcabcabc", 9, 10);
    struct sw_gpu_uploaded_plan p = sw_gpu_plan_upload(&plan);
    CUDA(cudaMalloc(&d, 1 << 22));
    const size_t scratch = sw_gpu_encode_scratch_bytes(n);
    ck_assert_int_eq(sw_gpu_encode_async(&p.gpu, d, n, d, sw_frame_bound_bytes(n) - 1, d, d, scratch, NULL, &err),
                     -SW_ETOOSMALL);
    ck_assert_int_eq(sw_gpu_encode_async(&p.gpu, d, n, d, sw_frame_bound_bytes(n), d, d, scratch - 1, NULL, &err),
                     -SW_ETOOSMALL);
    ck_assert_int_eq(
        sw_gpu_encode_async(&p.gpu, d, n, (uint8_t *)d + 8, sw_frame_bound_bytes(n), d, d, scratch, NULL, &err),
        -SW_EINVAL);
    struct sw_frame_layout layout;
    sw_frame_layout_init(&layout, SW_CODEC_RAW, SW_RAW_SEGMENT_LOG2, n, 0);
    ck_assert_int_eq(sw_gpu_decode_async(&layout, d, 1, layout.n_tiles, d, d, NULL, &err), -SW_EINVAL);
    CUDA(cudaFree(d));
    CUDA(cudaFree(p.d_table));
}
END_TEST

/* The scratch bound does not grow with the input. */
START_TEST(scratch_is_bounded) {
    ck_assert_uint_eq(sw_gpu_encode_scratch_bytes(1ull << 30), sw_gpu_encode_scratch_bytes(60ull << 30));
    ck_assert_uint_le(sw_gpu_encode_scratch_bytes(60ull << 30), 256u << 20);
    ck_assert_uint_le(sw_gpu_encode_scratch_bytes(1 << 20), 2u << 20);
}
END_TEST

/* ---- batches ---- */

enum { GAP_BYTES = 64 };

/* Inputs of a batch in one image and their frames in another, with gaps between them that nothing may write to. */
struct batch {
    unsigned n;
    size_t raw_total, raw_image_bytes, frames_image_bytes;
    size_t *bytes, *raw_at, *frame_at, *frame_bytes;
    bool *is_damaged;
    uint8_t *raw, *frames;
    struct sw_gpu_item *items; /* page-locked, as results */
    struct sw_gpu_result *results;
};

static void *must_calloc(size_t n, size_t bytes) {
    void *p = calloc(n, bytes);
    ck_assert_ptr_nonnull(p);
    return p;
}

static size_t align_up(size_t n, size_t unit) {
    return (n + unit - 1) / unit * unit;
}

/* align: what all inputs have in common, 16, 4 or 1. */
static struct batch batch_new(unsigned n, const size_t *bytes, unsigned align) {
    struct batch b = {.n = n, .raw_image_bytes = GAP_BYTES, .frames_image_bytes = GAP_BYTES};
    b.bytes = must_calloc(n, sizeof *b.bytes);
    b.raw_at = must_calloc(n, sizeof *b.raw_at);
    b.frame_at = must_calloc(n, sizeof *b.frame_at);
    b.frame_bytes = must_calloc(n, sizeof *b.frame_bytes);
    b.is_damaged = must_calloc(n, sizeof *b.is_damaged);
    for (unsigned i = 0; i < n; i++) {
        b.bytes[i] = bytes[i];
        b.raw_total += bytes[i];
        b.raw_at[i] = align_up(b.raw_image_bytes, 16) + i * align % 16;
        b.raw_image_bytes = b.raw_at[i] + bytes[i] + GAP_BYTES;
        b.frame_at[i] = b.frames_image_bytes;
        b.frames_image_bytes += align_up(sw_frame_bound_bytes(bytes[i]), 16) + GAP_BYTES;
    }
    b.raw = must_calloc(1, b.raw_image_bytes);
    b.frames = aligned_alloc(16, align_up(b.frames_image_bytes, 16));
    ck_assert_ptr_nonnull(b.frames);
    memset(b.raw, GUARD_VALUE, b.raw_image_bytes);
    memset(b.frames, GUARD_VALUE, b.frames_image_bytes);
    for (unsigned i = 0; i < n; i++)
        sw_content_fill(b.raw + b.raw_at[i], bytes[i], (enum sw_content)(i % SW_CONTENT_NR), i);
    CUDA(cudaHostAlloc((void **)&b.items, n * sizeof *b.items, cudaHostAllocDefault));
    CUDA(cudaHostAlloc((void **)&b.results, n * sizeof *b.results, cudaHostAllocDefault));
    return b;
}

static void batch_free(struct batch *b) {
    free(b->bytes);
    free(b->raw_at);
    free(b->frame_at);
    free(b->frame_bytes);
    free(b->is_damaged);
    free(b->raw);
    free(b->frames);
    CUDA(cudaFreeHost(b->items));
    CUDA(cudaFreeHost(b->results));
}

static void batch_encode(struct batch *b, const struct sw_plan *plan) {
    struct sw_gpu_uploaded_plan p = sw_gpu_plan_upload(plan);
    struct sw_gpu_guarded d_raw = sw_gpu_guarded_new(b->raw_image_bytes, 0),
                          d_frames = sw_gpu_guarded_new(b->frames_image_bytes, 0);
    struct sw_gpu_guarded d_scratch = sw_gpu_guarded_new(sw_gpu_batch_scratch_bytes(b->n, b->raw_total), 0);
    struct sw_err err;
    CUDA(cudaMemcpy(d_raw.data, b->raw, b->raw_image_bytes, cudaMemcpyHostToDevice));
    for (unsigned i = 0; i < b->n; i++)
        b->items[i] = (struct sw_gpu_item){.layout.raw_bytes = b->bytes[i],
                                           .d_raw = d_raw.data + b->raw_at[i],
                                           .d_frame = d_frames.data + b->frame_at[i]};
    memset(b->results, 0xEE, b->n * sizeof *b->results);
    ck_assert_msg(
        !sw_gpu_encode_batch_async(&p.gpu, b->items, b->n, b->results, d_scratch.data, d_scratch.bytes, NULL, &err),
        "%s", err.msg);
    CUDA(cudaDeviceSynchronize());
    CUDA(cudaMemcpy(b->frames, d_frames.data, b->frames_image_bytes, cudaMemcpyDeviceToHost));
    for (unsigned i = 0; i < b->n; i++) {
        const size_t bound = sw_frame_bound_bytes(b->bytes[i]);
        ck_assert_uint_eq(b->results[i].codec, plan->codec);
        ck_assert_uint_eq(b->results[i].bad_tiles, 0);
        ck_assert_uint_le(b->results[i].frame_bytes, bound);
        b->frame_bytes[i] = b->results[i].frame_bytes;
        for (size_t k = b->frame_at[i] + bound; k < (i + 1 < b->n ? b->frame_at[i + 1] : b->frames_image_bytes); k++)
            ck_assert_msg(b->frames[k] == GUARD_VALUE, "byte %zu after frame %u was written", k - b->frame_at[i], i);
    }
    sw_gpu_guarded_free(&d_raw);
    sw_gpu_guarded_free(&d_frames);
    sw_gpu_guarded_free(&d_scratch);
    CUDA(cudaFree(p.d_table));
}

static void batch_decode_on_host(const struct batch *b) {
    for (unsigned i = 0; i < b->n; i++) {
        uint8_t *out = must_calloc(1, b->bytes[i] + 1);
        struct sw_err err;
        uint64_t decoded;
        ck_assert_msg(!sw_codec_decode(b->frames + b->frame_at[i], b->frame_bytes[i], out, b->bytes[i], &decoded, &err),
                      "item %u: %s", i, err.msg);
        ck_assert_uint_eq(decoded, b->bytes[i]);
        ck_assert_msg(!memcmp(out, b->raw + b->raw_at[i], b->bytes[i]), "item %u of %zu bytes", i, b->bytes[i]);
        free(out);
    }
}

/* All items come back but the damaged ones, which are the only ones reported; gaps are as they were. */
static void batch_decode(struct batch *b) {
    struct sw_gpu_guarded d_raw = sw_gpu_guarded_new(b->raw_image_bytes, 0),
                          d_frames = sw_gpu_guarded_new(b->frames_image_bytes, 0);
    struct sw_gpu_guarded d_scratch = sw_gpu_guarded_new(sw_gpu_batch_scratch_bytes(b->n, b->raw_total), 0);
    uint8_t *out = must_calloc(1, b->raw_image_bytes);
    struct sw_err err;
    CUDA(cudaMemcpy(d_frames.data, b->frames, b->frames_image_bytes, cudaMemcpyHostToDevice));
    memset(b->results, 0, b->n * sizeof *b->results);
    for (unsigned i = 0; i < b->n; i++) {
        b->items[i] =
            (struct sw_gpu_item){.d_raw = d_raw.data + b->raw_at[i], .d_frame = d_frames.data + b->frame_at[i]};
        ck_assert_msg(!sw_frame_parse(&b->items[i].layout, b->frames + b->frame_at[i], b->frame_bytes[i],
                                      b->frame_bytes[i], &err),
                      "item %u: %s", i, err.msg);
    }
    ck_assert_msg(!sw_gpu_decode_batch_async(b->items, b->n, b->results, d_scratch.data, d_scratch.bytes, NULL, &err),
                  "%s", err.msg);
    CUDA(cudaDeviceSynchronize());
    CUDA(cudaMemcpy(out, d_raw.data, b->raw_image_bytes, cudaMemcpyDeviceToHost));
    for (unsigned i = 0; i < b->n; i++) {
        ck_assert_msg((b->results[i].bad_tiles > 0) == b->is_damaged[i], "item %u: %u bad tiles", i,
                      b->results[i].bad_tiles);
        if (b->is_damaged[i])
            memcpy(out + b->raw_at[i], b->raw + b->raw_at[i], b->bytes[i]);
        else
            ck_assert_msg(!memcmp(out + b->raw_at[i], b->raw + b->raw_at[i], b->bytes[i]), "item %u of %zu bytes", i,
                          b->bytes[i]);
    }
    ck_assert_msg(!memcmp(out, b->raw, b->raw_image_bytes), "a gap between the items was written");
    free(out);
    sw_gpu_guarded_free(&d_raw);
    sw_gpu_guarded_free(&d_frames);
    sw_gpu_guarded_free(&d_scratch);
}

/* Sizes from 0 to 4 MiB, each of them several times; returns how many. */
enum { MOST_ITEMS = 128, MOST_BATCH_BYTES = 4 << 20 };
static unsigned batch_sizes(size_t ret[MOST_ITEMS]) {
    const size_t n_sizes = sizeof sizes / sizeof sizes[0], most = small_run() ? 100000 : MOST_BATCH_BYTES;
    unsigned n = 0;
    for (size_t round = 0; round < 3; round++)
        for (size_t s = 0; s < n_sizes; s++)
            if (sizes[(s + round * 5) % n_sizes] <= most)
                ret[n++] = sizes[(s + round * 5) % n_sizes];
    ret[n++] = most;
    ret[n++] = most - 1;
    ck_assert_uint_le(n, MOST_ITEMS);
    return n;
}

/* A table of the first few contents, which the others are encoded with, too. */
static void common_plan(struct sw_plan *plan, enum sw_codec_id codec, unsigned segment_log2) {
    uint8_t *in = must_calloc(1, 100000);
    sw_content_fill(in, 100000, SW_CONTENT_MIXED, 1);
    force_codec(plan, codec, in, 100000, segment_log2);
    free(in);
}

START_TEST(batches_of_every_size) {
    static const unsigned aligns[] = {16, 4, 1};
    size_t bytes[MOST_ITEMS];
    const unsigned n = batch_sizes(bytes);
    struct batch b = batch_new(n, bytes, aligns[_i]);
    struct sw_plan plan;
    for (unsigned log2 = 8; log2 <= 10; log2++)
        for (size_t k = 0; k < N_OF_BYTES; k++) {
            common_plan(&plan, of_bytes[k], log2);
            batch_encode(&b, &plan);
            batch_decode_on_host(&b);
            batch_decode(&b);
        }
    sw_plan_init_raw(&plan);
    batch_encode(&b, &plan);
    batch_decode_on_host(&b);
    batch_decode(&b);
    batch_free(&b);
}
END_TEST

/* So many that looking one up takes three rounds; and one alone. */
START_TEST(batches_of_many_and_of_one) {
    enum { MANY = 3000 };
    size_t *bytes = must_calloc(MANY, sizeof *bytes);
    for (unsigned i = 0; i < MANY; i++)
        bytes[i] = i % 7 ? i % 97 : i % 40 * 300;
    for (unsigned n = 1; n <= MANY; n = n == 1 ? 33 : n == 33 ? MANY : MANY + 1) {
        struct batch b = batch_new(n, bytes + (n == 1), 1);
        struct sw_plan plan;
        for (size_t k = 0; k < N_OF_BYTES; k++) {
            common_plan(&plan, of_bytes[k], 8);
            batch_encode(&b, &plan);
            batch_decode_on_host(&b);
            batch_decode(&b);
        }
        sw_plan_init_raw(&plan);
        batch_encode(&b, &plan);
        batch_decode(&b);
        batch_free(&b);
    }
    free(bytes);
}
END_TEST

/* Frames of the host, each with a codec, table and segment length of its own. */
static void encode_on_host(struct batch *b) {
    for (unsigned i = 0; i < b->n; i++) {
        const uint8_t *in = b->raw + b->raw_at[i];
        struct sw_plan plan;
        struct sw_err err;
        uint64_t frame_bytes;
        if (i % 3 == 0)
            sw_plan_init_raw(&plan);
        else
            force_codec(&plan, of_bytes[i % 2], in, b->bytes[i], 8 + i % 4 % 3);
        ck_assert_int_eq(sw_codec_encode(&plan, in, b->bytes[i], b->frames + b->frame_at[i],
                                         sw_frame_bound_bytes(b->bytes[i]), &frame_bytes, &err),
                         0);
        b->frame_bytes[i] = frame_bytes;
    }
}

START_TEST(batches_of_different_frames) {
    size_t bytes[MOST_ITEMS];
    const unsigned n = batch_sizes(bytes);
    struct batch b = batch_new(n, bytes, 1);
    encode_on_host(&b);
    batch_decode(&b);
    uint64_t state = 5;
    for (int round = 0; round < (small_run() ? 3 : 20); round++) {
        struct sw_frame_layout layout;
        const unsigned hit = (unsigned)(sw_random(&state) % n);
        uint8_t *frame = b.frames + b.frame_at[hit];
        ck_assert_int_eq(sw_frame_parse(&layout, frame, b.frame_bytes[hit], b.frame_bytes[hit], NULL), 0);
        if (!layout.n_tiles)
            continue;
        /* A tile's hash, which proves it damaged, and, for those who look for reads out of bounds, its offset. */
        uint8_t *record = frame + layout.records_offset + sizeof(struct sw_tile_record) * (layout.n_tiles / 2);
        record[4] ^= 0x10;
        if (round % 2)
            record[3] ^= 0x7F;
        b.is_damaged[hit] = true;
        batch_decode(&b);
        record[4] ^= 0x10;
        if (round % 2)
            record[3] ^= 0x7F;
        b.is_damaged[hit] = false;
    }
    batch_free(&b);
}
END_TEST

START_TEST(batches_refused) {
    size_t bytes[3] = {1000, 70000, 5};
    struct batch b = batch_new(3, bytes, 16);
    struct sw_plan plan;
    struct sw_err err;
    uint8_t *d;
    const size_t scratch = sw_gpu_batch_scratch_bytes(3, b.raw_total);
    common_plan(&plan, SW_CODEC_PHRASE, 10);
    struct sw_gpu_uploaded_plan p = sw_gpu_plan_upload(&plan);
    CUDA(cudaMalloc((void **)&d, (1 << 20) + scratch));
    uint8_t *d_scratch = d + (1 << 20);
    for (unsigned i = 0; i < 3; i++)
        b.items[i] =
            (struct sw_gpu_item){.layout.raw_bytes = bytes[i], .d_raw = d, .d_frame = d + (size_t)80000 * (i + 1)};
    ck_assert_int_eq(sw_gpu_encode_batch_async(&p.gpu, b.items, 3, b.results, d_scratch, scratch - 1, NULL, &err),
                     -SW_ETOOSMALL);
    b.items[1].d_frame = d + 8;
    ck_assert_int_eq(sw_gpu_encode_batch_async(&p.gpu, b.items, 3, b.results, d_scratch, scratch, NULL, &err),
                     -SW_EINVAL);
    ck_assert_int_eq(sw_gpu_decode_batch_async(b.items, 3, b.results, d_scratch, scratch, NULL, &err), -SW_EINVAL);
    ck_assert_int_eq(sw_gpu_encode_batch_async(&p.gpu, b.items, 0, b.results, d_scratch, scratch, NULL, &err), 0);
    ck_assert_int_eq(sw_gpu_decode_batch_async(b.items, 0, b.results, d_scratch, scratch, NULL, &err), 0);
    CUDA(cudaDeviceSynchronize());
    CUDA(cudaFree(d));
    CUDA(cudaFree(p.d_table));
    batch_free(&b);
}
END_TEST

/* Between memory of the device and pinned memory of both kinds: allocated, and registered as the arena's is. */
/* ---- hashes alone ---- */

static uint32_t tiles_of(uint64_t bytes) {
    return (uint32_t)((bytes + 32767) / 32768);
}

/* The hashes that the host's raw frame of these bytes has. */
static void host_hashes(const uint8_t *in, size_t n, uint32_t *ret) {
    struct sw_plan raw;
    struct sw_frame_layout layout;
    uint64_t frame_bytes;
    uint8_t *frame = aligned_alloc(16, (sw_frame_bound_bytes(n) + 15) / 16 * 16);
    ck_assert_ptr_nonnull(frame);
    sw_plan_init_raw(&raw);
    ck_assert_int_eq(sw_codec_encode(&raw, in, n, frame, sw_frame_bound_bytes(n), &frame_bytes, NULL), 0);
    ck_assert_int_eq(sw_frame_parse(&layout, frame, frame_bytes, frame_bytes, NULL), 0);
    ck_assert_uint_eq(layout.n_tiles, tiles_of(n));
    for (uint32_t tile = 0; tile < layout.n_tiles; tile++)
        memcpy(&ret[tile], frame + layout.records_offset + UINT64_C(8) * tile + 4, 4);
    free(frame);
}

/* Hashes `count` ranges, the i-th of bytes[i] at a misalignment of shifts[i], and compares with the host. */
static void hash_ranges(const size_t *bytes, const size_t *shifts, uint32_t count) {
    struct sw_gpu_source ranges[SW_GPU_HASH_MAX];
    struct sw_gpu_guarded buffers[SW_GPU_HASH_MAX];
    uint32_t n_tiles = 0, at = 0, *hashes, *wanted;
    struct sw_err err;
    for (uint32_t i = 0; i < count; i++)
        n_tiles += tiles_of(bytes[i]);
    CUDA(cudaMallocHost((void **)&hashes, (n_tiles + 16) * sizeof *hashes));
    memset(hashes, GUARD_VALUE, (n_tiles + 16) * sizeof *hashes);
    wanted = malloc((n_tiles + 16) * sizeof *wanted);
    ck_assert_ptr_nonnull(wanted);
    memset(wanted, GUARD_VALUE, (n_tiles + 16) * sizeof *wanted);
    for (uint32_t i = 0; i < count; i++) {
        uint8_t *in = malloc(bytes[i] + 1);
        ck_assert_ptr_nonnull(in);
        sw_content_fill(in, bytes[i], SW_CONTENT_RANDOM, bytes[i] + i);
        buffers[i] = sw_gpu_guarded_new(bytes[i], shifts[i]);
        CUDA(cudaMemcpy(buffers[i].data, in, bytes[i], cudaMemcpyHostToDevice));
        ranges[i] = (struct sw_gpu_source){buffers[i].data, bytes[i]};
        host_hashes(in, bytes[i], wanted + at);
        at += tiles_of(bytes[i]);
        free(in);
    }
    ck_assert_msg(!sw_gpu_hash_async(ranges, count, hashes, NULL, &err), "%s", err.msg);
    memset(ranges, 0xEE, sizeof ranges); /* they were copied */
    CUDA(cudaDeviceSynchronize());
    ck_assert(!memcmp(hashes, wanted, (n_tiles + 16) * sizeof *hashes));
    for (uint32_t i = 0; i < count; i++)
        sw_gpu_guarded_free(&buffers[i]);
    CUDA(cudaFreeHost(hashes));
    free(wanted);
}

START_TEST(hashes_of_every_size) {
    for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++)
        for (size_t shift = 0; shift < 16 && !(small_run() && sizes[s] > 100000); shift += 1 + shift)
            hash_ranges(&sizes[s], &shift, 1);
}
END_TEST

START_TEST(hashes_of_many_ranges) {
    static const size_t bytes[SW_GPU_HASH_MAX] = {0,      70001, 0,     0,    32768, 1,   65536, 65537,
                                                  300000, 16,    32767, 4097, 0,     100, 33000, 0};
    size_t shifts[SW_GPU_HASH_MAX] = {0};
    hash_ranges(bytes, shifts, SW_GPU_HASH_MAX);
    for (size_t i = 0; i < SW_GPU_HASH_MAX; i++)
        shifts[i] = 4 * (i % 4);
    hash_ranges(bytes, shifts, SW_GPU_HASH_MAX);
    for (size_t i = 0; i < SW_GPU_HASH_MAX; i++)
        shifts[i] = i;
    hash_ranges(bytes, shifts, SW_GPU_HASH_MAX);
    hash_ranges(bytes, shifts, 1); /* nothing to do */
    struct sw_gpu_source ranges[SW_GPU_HASH_MAX + 1] = {{NULL, 0}};
    struct sw_err err;
    ck_assert_int_eq(sw_gpu_hash_async(ranges, 0, NULL, NULL, &err), 0);
    ck_assert_int_eq(sw_gpu_hash_async(ranges, SW_GPU_HASH_MAX + 1, NULL, NULL, &err), -SW_EINVAL);
    ranges[1].bytes = UINT64_C(1) << 47;
    ck_assert_int_eq(sw_gpu_hash_async(ranges, 3, NULL, NULL, &err), -SW_EINVAL);
}
END_TEST

START_TEST(runs_are_copied) {
    enum { N = 300, MOST_RUN = 70000 };
    const size_t total = (size_t)N * (MOST_RUN + GAP_BYTES);
    struct sw_gpu_run *runs;
    uint8_t *pinned[2], *expected = must_calloc(1, total), *out = must_calloc(1, total);
    struct sw_gpu_guarded d = sw_gpu_guarded_new(total, 0), d_scratch = sw_gpu_guarded_new(N * sizeof *runs, 0);
    struct sw_err err;
    CUDA(cudaHostAlloc((void **)&runs, N * sizeof *runs, cudaHostAllocDefault));
    CUDA(cudaHostAlloc((void **)&pinned[0], total, cudaHostAllocPortable));
    pinned[1] = aligned_alloc(4096, align_up(total, 4096));
    ck_assert_ptr_nonnull(pinned[1]);
    CUDA(cudaHostRegister(pinned[1], total, cudaHostRegisterPortable | cudaHostRegisterMapped));
    for (int kind = 0; kind < 2; kind++)
        for (int out_of_device = 0; out_of_device < 2; out_of_device++) {
            uint64_t state = (uint64_t)kind + 1;
            uint8_t *from = out_of_device ? d.data : pinned[kind], *to = out_of_device ? pinned[kind] : d.data;
            sw_content_fill(out, total, SW_CONTENT_RANDOM, state);
            CUDA(cudaMemcpy(from, out, total, cudaMemcpyDefault));
            memset(expected, GUARD_VALUE, total);
            CUDA(cudaMemcpy(to, expected, total, cudaMemcpyDefault));
            for (size_t i = 0, at = 0; i < N; i++) { /* the target is shifted against the source */
                const size_t bytes = i % 10 ? sw_random(&state) % (MOST_RUN / 16) * 16 : i % 20 ? 0 : 16 * i;
                runs[i] = (struct sw_gpu_run){.from = from + at, .to = to + at + 16, .bytes = bytes};
                memcpy(expected + at + 16, out + at, bytes);
                at += bytes + GAP_BYTES;
            }
            ck_assert_msg(!sw_gpu_copy_async(runs, N, d_scratch.data, d_scratch.bytes, NULL, &err), "%s", err.msg);
            CUDA(cudaDeviceSynchronize());
            CUDA(cudaMemcpy(out, to, total, cudaMemcpyDefault));
            ck_assert_msg(!memcmp(out, expected, total), "kind %d, out of the device: %d", kind, out_of_device);
        }
    ck_assert_int_eq(sw_gpu_copy_async(runs, N, d_scratch.data, d_scratch.bytes - 1, NULL, &err), -SW_ETOOSMALL);
    runs[N - 1].bytes = 8;
    ck_assert_int_eq(sw_gpu_copy_async(runs, N, d_scratch.data, d_scratch.bytes, NULL, &err), -SW_EINVAL);
    ck_assert_int_eq(sw_gpu_copy_async(runs, 0, d_scratch.data, 0, NULL, &err), 0);
    sw_gpu_guarded_free(&d);
    sw_gpu_guarded_free(&d_scratch);
    CUDA(cudaHostUnregister(pinned[1]));
    CUDA(cudaFreeHost(pinned[0]));
    CUDA(cudaFreeHost(runs));
    free(pinned[1]);
    free(expected);
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
    tcase_add_loop_test(shapes, ranges_of_tiles, 0, N_OF_BYTES);
    TCase *damage = tcase_create("damage");
    tcase_add_test(damage, made_up_tables);
    tcase_add_loop_test(damage, codes_that_stand_for_nothing, 0, N_OF_BYTES);
    tcase_add_test(damage, damaged_frames);
    tcase_add_test(damage, refusals);
    tcase_add_test(damage, scratch_is_bounded);
    TCase *training = tcase_create("training");
    tcase_add_loop_test(training, trained_tables, 0, SW_CONTENT_NR);
    tcase_add_loop_test(training, probed_samples, 0, SW_CONTENT_NR);
    TCase *batches = tcase_create("batches");
    tcase_add_loop_test(batches, batches_of_every_size, 0, 3);
    tcase_add_test(batches, batches_of_many_and_of_one);
    tcase_add_test(batches, batches_of_different_frames);
    tcase_add_test(batches, batches_refused);
    tcase_add_test(batches, hashes_of_every_size);
    tcase_add_test(batches, hashes_of_many_ranges);
    tcase_add_test(batches, runs_are_copied);
    suite_add_tcase(suite, content);
    suite_add_tcase(suite, shapes);
    suite_add_tcase(suite, damage);
    suite_add_tcase(suite, training);
    suite_add_tcase(suite, batches);
    return sw_test_run(suite, CK_NOFORK); /* one CUDA context for all tests */
}
