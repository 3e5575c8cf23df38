/* spillway_device/memory.cuh - loads and stores 16 bytes of global memory, aligned or not, and the tail of a buffer.
 *
 * No part of the API. */
#ifndef SPILLWAY_DEVICE_MEMORY_CUH
#define SPILLWAY_DEVICE_MEMORY_CUH

#include <cuda_runtime.h>
#include <stdint.h>

/* Loads the last bytes of a buffer, fewer than 16, at p; the rest of the unit is zero. It is a loop of few
 * instructions, because long code would slow down the loops around it, and few lanes come here. */
__device__ inline uint4 sw_load_tail(const uint8_t *p, uint32_t bytes) {
    uint4 v = make_uint4(0, 0, 0, 0);
#pragma unroll 1
    for (uint32_t i = bytes; i > 0; i--) {
        v.w = __funnelshift_l(v.z, v.w, 8);
        v.z = __funnelshift_l(v.y, v.z, 8);
        v.y = __funnelshift_l(v.x, v.y, 8);
        v.x = v.x << 8 | p[i - 1];
    }
    return v;
}

/* Loads 16 bytes of memory that is not written meanwhile, and lets L2 prefetch the 256 bytes around them, because a
 * lane reads its whole segment. */
__device__ inline uint4 sw_load_ahead(const uint4 *p) {
    uint4 v;
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 800
    v = __ldg(p); /* which has no such hint */
#else
    asm("ld.global.nc.L2::256B.v4.u32 {%0, %1, %2, %3}, [%4];" : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "l"(p));
#endif
    return v;
}

/* Loads 16 bytes at p, which is aligned to ALIGN. It touches only aligned words that hold at least one of them. */
template <int ALIGN> __device__ inline uint4 sw_load_whole_unit(const uint8_t *p) {
    if (ALIGN == 16)
        return sw_load_ahead((const uint4 *)p);
    const uint32_t shift = ALIGN == 4 ? 0 : (uint32_t)((uintptr_t)p % 4 * 8);
    const uint32_t *w = (const uint32_t *)(p - shift / 8);
    const uint32_t a = __ldg(w), b = __ldg(w + 1), c = __ldg(w + 2), d = __ldg(w + 3);
    if (ALIGN == 4)
        return make_uint4(a, b, c, d);
    const uint32_t e = shift ? __ldg(w + 4) : 0; /* if p is aligned, the next word is not the unit's */
    return make_uint4(__funnelshift_r(a, b, shift), __funnelshift_r(b, c, shift), __funnelshift_r(c, d, shift),
                      __funnelshift_r(d, e, shift));
}

/* Loads 16 bytes at p + at; bytes from `end` on are zero. ALIGN: the alignment of p and `at`. Reading a misaligned
 * buffer never leaves its allocation. */
template <int ALIGN> __device__ inline uint4 sw_load_unit(const uint8_t *p, uint32_t at, uint32_t end) {
    if (at + 16 <= end)
        return sw_load_whole_unit<ALIGN>(p + at);
    return sw_load_tail(p + at, at < end ? end - at : 0);
}

/* Stores 16 bytes at p, which is aligned to ALIGN. Without alignment it stores aligned words, and the bytes around
 * them.
 */
template <int ALIGN> __device__ inline void sw_store_unit(uint8_t *p, uint4 v) {
    if (ALIGN == 16) {
        *(uint4 *)p = v;
        return;
    }
    const uint32_t w[4] = {v.x, v.y, v.z, v.w};
    if (ALIGN == 4) {
#pragma unroll
        for (int i = 0; i < 4; i++)
            ((uint32_t *)p)[i] = w[i];
        return;
    }
    const uint32_t head = 4 - (uint32_t)((uintptr_t)p % 4); /* 1 ... 3, or 4 if p happens to be aligned */
#pragma unroll
    for (uint32_t i = 0; i < 4; i++)
        if (i < head)
            p[i] = (uint8_t)(w[0] >> 8 * i);
#pragma unroll
    for (int i = 0; i < 3; i++)
        *(uint32_t *)(p + head + 4 * i) = __funnelshift_rc(w[i], w[i + 1], 8 * head);
#pragma unroll
    for (uint32_t i = 0; i < 4; i++)
        if (i >= head)
            p[12 + i] = (uint8_t)(w[3] >> 8 * i);
}

/* Stores the first `bytes` (0 ... 16) of a unit. */
__device__ inline void sw_store_tail(uint8_t *p, uint4 v, uint32_t bytes) {
    const uint32_t w[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
    for (int i = 0; i < 16; i++)
        if ((uint32_t)i < bytes)
            p[i] = (uint8_t)(w[i / 4] >> 8 * (i % 4));
}

#endif
