/* batch.c - what one launch does for many: frames of a batch that the host and the GPU read each other's, hashes of
 * ranges, copies of runs.
 *
 * SW_TEST_SMALL=1 leaves out the larger sizes, for runs under compute-sanitizer. */
#include "codec/codec.h"
#include "codec/gpu.h"
#include "codec/identity.h"
#include "codec/plan/plan.h"
#include "tests/lib/content.h"
#include "tests/lib/gpu_frames.h"
#include "tests/lib/run.h"

#include <check.h>
#include <cuda_runtime.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

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

/* align: the alignment of all inputs, 16, 4 or 1. */
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
    struct sw_gpu_guarded d_scratch = sw_gpu_guarded_new(sw_gpu_batch_scratch_bytes(b->n), 0);
    struct sw_gpu_test_pool pool = sw_gpu_test_pool_new(b->raw_total);
    struct sw_err err;
    CUDA(cudaMemcpy(d_raw.data, b->raw, b->raw_image_bytes, cudaMemcpyHostToDevice));
    for (unsigned i = 0; i < b->n; i++)
        b->items[i] = (struct sw_gpu_item){.layout.raw_bytes = b->bytes[i],
                                           .d_raw = d_raw.data + b->raw_at[i],
                                           .d_frame = d_frames.data + b->frame_at[i]};
    memset(b->results, 0xEE, b->n * sizeof *b->results);
    ck_assert_msg(!sw_gpu_encode_batch_async(&p.gpu, b->items, b->n, b->results, &pool.gpu, d_scratch.data,
                                             d_scratch.bytes, (struct sw_gpu_pass){0}, NULL, &err),
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
    sw_gpu_test_pool_free(&pool);
    CUDA(cudaFree(p.d_params));
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
    struct sw_gpu_guarded d_scratch = sw_gpu_guarded_new(sw_gpu_batch_scratch_bytes(b->n), 0);
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
    ck_assert_msg(!sw_gpu_decode_batch_async(b->items, b->n, b->results, d_scratch.data, d_scratch.bytes,
                                             (struct sw_gpu_pass){0}, NULL, &err),
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
    const size_t n_sizes = SW_GPU_N_SIZES, most = sw_gpu_small_run() ? 100000 : MOST_BATCH_BYTES;
    unsigned n = 0;
    for (size_t round = 0; round < 3; round++)
        for (size_t s = 0; s < n_sizes; s++)
            if (sw_gpu_sizes[(s + round * 5) % n_sizes] <= most)
                ret[n++] = sw_gpu_sizes[(s + round * 5) % n_sizes];
    ret[n++] = most;
    ret[n++] = most - 1;
    ck_assert_uint_le(n, MOST_ITEMS);
    return n;
}

/* A table of the first few contents, which the others are encoded with, too. */
static void common_plan(struct sw_plan *plan, enum sw_codec_id codec, unsigned segment_log2) {
    uint8_t *in = must_calloc(1, 100000);
    sw_content_fill(in, 100000, SW_CONTENT_MIXED, 1);
    sw_gpu_plan_of(plan, codec, in, 100000, segment_log2);
    free(in);
}

START_TEST(batches_of_every_size) {
    static const unsigned aligns[] = {16, 4, 1};
    size_t bytes[MOST_ITEMS];
    const unsigned n = batch_sizes(bytes);
    struct batch b = batch_new(n, bytes, aligns[_i]);
    struct sw_plan plan;
    for (unsigned log2 = 8; log2 <= 10; log2++)
        for (size_t k = 0; k < SW_GPU_N_OF_BYTES; k++) {
            common_plan(&plan, sw_gpu_of_bytes[k], log2);
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

/* A batch of so many items that finding one takes three rounds, and a batch of one. */
START_TEST(batches_of_many_and_of_one) {
    enum { MANY = 3000 };
    size_t *bytes = must_calloc(MANY, sizeof *bytes);
    for (unsigned i = 0; i < MANY; i++)
        bytes[i] = i % 7 ? i % 97 : i % 40 * 300;
    for (unsigned n = 1; n <= MANY; n = n == 1 ? 33 : n == 33 ? MANY : MANY + 1) {
        struct batch b = batch_new(n, bytes + (n == 1), 1);
        struct sw_plan plan;
        for (size_t k = 0; k < SW_GPU_N_OF_BYTES; k++) {
            common_plan(&plan, sw_gpu_of_bytes[k], 8);
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
            sw_gpu_plan_of(&plan, sw_gpu_of_bytes[i % 2], in, b->bytes[i], 8 + i % 4 % 3);
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
    for (int round = 0; round < (sw_gpu_small_run() ? 3 : 20); round++) {
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
    const struct sw_gpu_pool no_pool = {0};
    const size_t scratch = sw_gpu_batch_scratch_bytes(3);
    common_plan(&plan, SW_CODEC_PHRASE, 10);
    struct sw_gpu_uploaded_plan p = sw_gpu_plan_upload(&plan);
    CUDA(cudaMalloc((void **)&d, (1 << 20) + scratch));
    uint8_t *d_scratch = d + (1 << 20);
    for (unsigned i = 0; i < 3; i++)
        b.items[i] =
            (struct sw_gpu_item){.layout.raw_bytes = bytes[i], .d_raw = d, .d_frame = d + (size_t)80000 * (i + 1)};
    ck_assert_int_eq(sw_gpu_encode_batch_async(&p.gpu, b.items, 3, b.results, &no_pool, d_scratch, scratch - 1,
                                               (struct sw_gpu_pass){0}, NULL, &err),
                     -SW_ETOOSMALL);
    b.items[1].d_frame = d + 8;
    ck_assert_int_eq(sw_gpu_encode_batch_async(&p.gpu, b.items, 3, b.results, &no_pool, d_scratch, scratch,
                                               (struct sw_gpu_pass){0}, NULL, &err),
                     -SW_EINVAL);
    ck_assert_int_eq(
        sw_gpu_decode_batch_async(b.items, 3, b.results, d_scratch, scratch, (struct sw_gpu_pass){0}, NULL, &err),
        -SW_EINVAL);
    ck_assert_int_eq(sw_gpu_encode_batch_async(&p.gpu, b.items, 0, b.results, &no_pool, d_scratch, scratch,
                                               (struct sw_gpu_pass){0}, NULL, &err),
                     0);
    ck_assert_int_eq(
        sw_gpu_decode_batch_async(b.items, 0, b.results, d_scratch, scratch, (struct sw_gpu_pass){0}, NULL, &err), 0);
    CUDA(cudaDeviceSynchronize());
    CUDA(cudaFree(d));
    CUDA(cudaFree(p.d_params));
    batch_free(&b);
}
END_TEST

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
    for (size_t s = 0; s < SW_GPU_N_SIZES; s++)
        for (size_t shift = 0; shift < 16 && !(sw_gpu_small_run() && sw_gpu_sizes[s] > 100000); shift += 1 + shift)
            hash_ranges(&sw_gpu_sizes[s], &shift, 1);
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

/* ---- identities ---- */

/* Identities of beginnings of one buffer, with lengths around those of stripes and periods. */
START_TEST(identities_are_those_of_the_host) {
    static const size_t bytes[] = {0,    1,    7,    8,    63,   64,   65,   1023, 1024,       1025,
                                   1087, 2047, 2048, 2056, 3000, 4096, 4100, 5119, 32768 + 40, 200001};
    enum { N = sizeof bytes / sizeof *bytes, MOST = 200001 };
    struct sw_gpu_guarded d = sw_gpu_guarded_new(MOST + 16, 0);
    uint8_t *in = must_calloc(1, MOST + 16);
    struct sw_gpu_source *sources;
    uint64_t *identities;
    struct sw_err err;
    sw_content_fill(in, MOST + 16, SW_CONTENT_RANDOM, 1);
    CUDA(cudaMemcpy(d.data, in, MOST + 16, cudaMemcpyHostToDevice));
    CUDA(cudaHostAlloc((void **)&sources, N * sizeof *sources, cudaHostAllocPortable));
    CUDA(cudaHostAlloc((void **)&identities, N * sizeof *identities, cudaHostAllocPortable));
    for (size_t shift = 0; shift < 16; shift++) {
        for (unsigned i = 0; i < N; i++)
            sources[i] = (struct sw_gpu_source){d.data + shift, bytes[i]};
        ck_assert_msg(!sw_gpu_identify_async(sources, N, identities, (struct sw_gpu_pass){0}, NULL, &err), "%s",
                      err.msg);
        CUDA(cudaDeviceSynchronize());
        for (unsigned i = 0; i < N; i++)
            ck_assert_uint_eq(identities[i], sw_identity_of(in + shift, bytes[i]));
    }
    ck_assert_int_eq(sw_gpu_identify_async(sources, 0, identities, (struct sw_gpu_pass){0}, NULL, &err), 0);
    CUDA(cudaFreeHost(sources));
    CUDA(cudaFreeHost(identities));
    sw_gpu_guarded_free(&d);
    free(in);
}
END_TEST

/* ---- copies ---- */

/* Between memory of the device and pinned memory of both kinds: allocated, and registered as the arena's is. */
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
    Suite *suite = suite_create("gpu batch");
    TCase *batches = tcase_create("batches");
    tcase_add_loop_test(batches, batches_of_every_size, 0, 3);
    tcase_add_test(batches, batches_of_many_and_of_one);
    tcase_add_test(batches, batches_of_different_frames);
    tcase_add_test(batches, batches_refused);
    tcase_add_test(batches, hashes_of_every_size);
    tcase_add_test(batches, hashes_of_many_ranges);
    tcase_add_test(batches, identities_are_those_of_the_host);
    tcase_add_test(batches, runs_are_copied);
    suite_add_tcase(suite, batches);
    return sw_test_run(suite, CK_NOFORK); /* one CUDA context for all tests */
}
