/* identity_gpu.cu - computes frames' identities (identity.h) on the GPU, a warp per frame.
 *
 * The sums of a period of 16 stripes commute. So each lane of the warp loads four words of a period, and the parts of
 * each hash lane are added up once per period. The next period's words are loaded meanwhile. */
#include "codec/codec_gpu.cuh"
#include "codec/identity.h"
#include "codec/identity_format.h"

namespace {

constexpr uint32_t WARPS = 4, THREADS = WARPS * SW_WARP, ALL = 0xFFFFFFFF;
constexpr uint32_t LANES = SW_IDENTITY_LANES, STRIPE_BYTES = SW_IDENTITY_STRIPE_BYTES;
constexpr uint32_t PERIOD_BYTES = SW_IDENTITY_PERIOD_STRIPES * STRIPE_BYTES;
constexpr uint32_t WORDS = PERIOD_BYTES / 8 / SW_WARP; /* a lane's words of a period */

__device__ constexpr uint64_t keys[LANES] = SW_IDENTITY_KEYS;

/* Loads words of a period; words after the end are 0. */
struct words {
    uint64_t word[WORDS];

    __device__ void load(const uint8_t *from, uint64_t at, uint64_t bytes, uint32_t lane) {
#pragma unroll
        for (uint32_t k = 0; k < WORDS; k++) {
            const uint64_t i = at + 8 * (k * SW_WARP + lane);
            if (i + 8 <= bytes && ((uintptr_t)from & 7) == 0) {
                word[k] = *(const uint64_t *)(from + i);
                continue;
            }
            word[k] = 0;
            for (uint32_t b = 0; b < 8 && i + b < bytes; b++)
                word[k] |= (uint64_t)from[i + b] << 8 * b;
        }
    }
};

/* Returns what a period adds to hash lane `lane % LANES`; the same in all lanes of this hash lane. */
__device__ uint64_t period_sum(const words &w, uint64_t at, uint64_t bytes, uint32_t lane, uint64_t key) {
    uint64_t sum = 0;
#pragma unroll
    for (uint32_t k = 0; k < WORDS; k++) {
        const uint64_t stripe = at / STRIPE_BYTES + (k * SW_WARP + lane) / LANES;
        const uint64_t neighbour = __shfl_xor_sync(ALL, w.word[k], 1);
        const uint64_t keyed = w.word[k] ^ (key + stripe * SW_IDENTITY_STEP);
        if (stripe * STRIPE_BYTES < bytes)
            sum += neighbour + (keyed & UINT32_MAX) * (keyed >> 32);
    }
#pragma unroll
    for (uint32_t step = LANES; step < SW_WARP; step *= 2)
        sum += __shfl_xor_sync(ALL, sum, step);
    return sum;
}

__device__ uint64_t value_of(uint64_t hash, uint64_t bytes, uint32_t lane, uint64_t key) {
    const uint64_t a = hash ^ __shfl_xor_sync(ALL, key, 1), b = __shfl_xor_sync(ALL, a, 1);
    uint64_t part = lane % 2 ? 0 : (a * b ^ __umul64hi(a, b));
    for (uint32_t step = 2; step < LANES; step *= 2)
        part += __shfl_xor_sync(ALL, part, step);
    uint64_t h = bytes * SW_IDENTITY_STEP + part;
    h ^= h >> 37;
    h *= SW_IDENTITY_LAST_PRIME;
    h ^= h >> 32;
    return h ? h : 1;
}

__global__ void __launch_bounds__(THREADS)
    identify(const sw_gpu_source *sources, uint32_t n, uint64_t *identities, sw_gpu_pass pass) {
    const uint32_t lane = threadIdx.x % SW_WARP, i = blockIdx.x * WARPS + threadIdx.x / SW_WARP;
    if (i >= n || sw_gpu_is_refused(pass, lane))
        return;
    const uint8_t *from = (const uint8_t *)sources[i].d_raw;
    const uint64_t bytes = sources[i].bytes, key = keys[lane % LANES];
    uint64_t hash = key;
    words now, next;
    now.load(from, 0, bytes, lane);
    for (uint64_t at = 0; at < bytes; at += PERIOD_BYTES) {
        next.load(from, at + PERIOD_BYTES, bytes, lane);
        hash += period_sum(now, at, bytes, lane, key);
        if (bytes - at >= PERIOD_BYTES)
            hash = (hash ^ hash >> 47 ^ key) * SW_IDENTITY_SCRAMBLE_PRIME;
        now = next;
    }
    hash = value_of(hash, bytes, lane, key);
    if (lane == 0)
        identities[i] = hash;
}

} // namespace

int sw_gpu_identify_async(const struct sw_gpu_source *h_sources, uint32_t n, uint64_t *identities,
                          struct sw_gpu_pass pass, struct CUstream_st *stream, struct sw_err *err) {
    if (n == 0)
        return 0;
    identify<<<(n + WARPS - 1) / WARPS, THREADS, 0, stream>>>(h_sources, n, identities, pass);
    return sw_gpu_launched(err, "identify");
}
