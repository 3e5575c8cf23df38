/* gpu_frames.h - frames through the GPU in memory whose neighbourhood is watched. All checks are Check's. thread: gpu.
 */
#ifndef SW_TEST_GPU_FRAMES_H
#define SW_TEST_GPU_FRAMES_H

#include "codec/gpu.h"
#include <cuda_runtime.h>
#include <stdbool.h>

#define GUARD_BYTES ((size_t)4096)
#define GUARD_VALUE 0xA5

/* Sets up the codec. Returns 0, or the test's exit code after printing why: 77 without a GPU, else 1. */
int sw_gpu_codec_start(void);

/* $SW_TEST_SMALL: leave out the larger sizes. */
bool sw_gpu_small_run(void);
/* Lengths of inputs that tests go through, and the codecs of bytes. */
enum { SW_GPU_N_SIZES = 32, SW_GPU_N_OF_BYTES = 3, SW_GPU_N_OF_SYMBOLS = 2 }; /* the first ones have symbols */
extern const size_t sw_gpu_sizes[SW_GPU_N_SIZES];
extern const enum sw_codec_id sw_gpu_of_bytes[SW_GPU_N_OF_BYTES];
/* A plan of a codec of bytes even if sw_plan_init would choose another: the worst case must work as well. */
void sw_gpu_plan_of(struct sw_plan *ret, enum sw_codec_id codec, const uint8_t *in, size_t n, unsigned segment_log2);

void sw_cuda_ok(cudaError_t e, const char *call);
#define CUDA(call) sw_cuda_ok((call), #call)

/* Device memory with a guard before and after, which freeing it checks; `shift` bytes of misalignment. */
struct sw_gpu_guarded {
    uint8_t *base, *data;
    size_t bytes;
};
struct sw_gpu_guarded sw_gpu_guarded_new(size_t bytes, size_t shift);
void sw_gpu_guarded_free(struct sw_gpu_guarded *g);

/* A device copy of a plan; the caller frees d_params. */
struct sw_gpu_uploaded_plan {
    struct sw_gpu_plan gpu;
    struct sw_params *d_params;
};
struct sw_gpu_uploaded_plan sw_gpu_plan_upload(const struct sw_plan *plan);

/* A pool for encodes of raw_bytes, or a shorter one: at most sw_gpu_most_pool_bytes. Freeing it checks that all slots
 * were given back. */
extern size_t sw_gpu_most_pool_bytes; /* SIZE_MAX */
enum { SW_GPU_POOL_WORDS = 1024 };    /* the bits of free slots, with which a pool begins */
struct sw_gpu_test_pool {
    struct sw_gpu_guarded memory;
    uint32_t free[SW_GPU_POOL_WORDS];
    struct sw_gpu_pool gpu;
};
struct sw_gpu_test_pool sw_gpu_test_pool_new(uint64_t raw_bytes);
void sw_gpu_test_pool_free(struct sw_gpu_test_pool *pool);

/* Encodes n bytes at `shift` bytes of misalignment; returns the frame's bytes. frame: sw_frame_bound_bytes(n). */
uint64_t sw_gpu_encode_frame(const struct sw_plan *plan, const uint8_t *in, size_t n, size_t shift, uint8_t *frame);

/* Decodes tiles [first, first + count) to `out` (their bytes); returns the number of bad tiles. */
uint32_t sw_gpu_decode_frame(const uint8_t *frame, uint64_t frame_bytes, uint32_t first, uint32_t count, size_t shift,
                             uint8_t *out, size_t out_bytes);

/* The same for a frame whose header was parsed before its sections changed. */
uint32_t sw_gpu_decode_layout(const struct sw_frame_layout *layout, const uint8_t *frame, uint32_t first,
                              uint32_t count, size_t shift, uint8_t *out, size_t out_bytes);

/* Each side decodes the other's frames, and the GPU its own. */
void sw_gpu_round_trip(const struct sw_plan *plan, const uint8_t *in, size_t n, size_t shift);

#endif
