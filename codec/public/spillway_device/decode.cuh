/* spillway_device/decode.cuh - decodes vectors of numbers from packed chunks into a warp's registers
 * (codec/bitpack/FORMAT.md).
 *
 * The codecs' kernels and spillway_device.cuh share it. It is no part of the API. */
#ifndef SPILLWAY_DEVICE_DECODE_CUH
#define SPILLWAY_DEVICE_DECODE_CUH

#include "bits.h"
#include <cuda_runtime.h>
#include <type_traits>

constexpr int SW_WARP = 32;

/* ---- memory of any alignment ---- */

/* Loads the little-endian word at p, of which `bytes` (1 ... 4) exist; the rest is zero. */
__device__ inline uint32_t sw_load_tail(const uint8_t *p, uint32_t bytes) {
    uint32_t w = 0;
    for (uint32_t i = 0; i < bytes; i++)
        w |= (uint32_t)p[i] << 8 * i;
    return w;
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

/* Loads 16 bytes at p + at; bytes from `end` on are zero. ALIGN: the alignment of p and `at`. It touches only aligned
 * words that hold at least one byte of [p + at, p + end), so reading a misaligned buffer never leaves its allocation.
 */
template <int ALIGN> __device__ inline uint4 sw_load_unit(const uint8_t *p, uint32_t at, uint32_t end) {
    if (at + 16 <= end) {
        if (ALIGN == 16)
            return sw_load_ahead((const uint4 *)(p + at));
        const uint32_t shift = ALIGN == 4 ? 0 : (uint32_t)((uintptr_t)(p + at) % 4 * 8);
        const uint32_t *w = (const uint32_t *)(p + at - shift / 8);
        const uint32_t a = __ldg(w), b = __ldg(w + 1), c = __ldg(w + 2), d = __ldg(w + 3);
        if (ALIGN == 4)
            return make_uint4(a, b, c, d);
        const uint32_t e = shift ? __ldg(w + 4) : 0; /* if p is aligned, the next word is not the unit's */
        return make_uint4(__funnelshift_r(a, b, shift), __funnelshift_r(b, c, shift), __funnelshift_r(c, d, shift),
                          __funnelshift_r(d, e, shift));
    }
    uint32_t w[4];
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const uint32_t from = at + 4 * i;
        w[i] = from >= end ? 0 : sw_load_tail(p + from, end - from < 4 ? end - from : 4);
    }
    return make_uint4(w[0], w[1], w[2], w[3]);
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

/* ---- warps ---- */

/* Reductions over all lanes of a warp; T: int or uint32_t. GPUs before sm_80 have no instruction for them. */
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 800
#define SW_WARP_REDUCE(instruction, operation)                                                                         \
    for (int d = SW_WARP / 2; d; d /= 2) {                                                                             \
        const T other = __shfl_xor_sync(0xFFFFFFFFu, v, d);                                                            \
        v = operation;                                                                                                 \
    }                                                                                                                  \
    return v
#else
#define SW_WARP_REDUCE(instruction, operation) return instruction(0xFFFFFFFFu, v)
#endif
__device__ inline uint32_t sw_warp_sum(uint32_t v) {
    using T = uint32_t;
    SW_WARP_REDUCE(__reduce_add_sync, v + other);
}
template <class T> __device__ inline T sw_warp_min(T v) {
    SW_WARP_REDUCE(__reduce_min_sync, min(v, other));
}
template <class T> __device__ inline T sw_warp_max(T v) {
    SW_WARP_REDUCE(__reduce_max_sync, max(v, other));
}
__device__ inline uint32_t sw_warp_or(uint32_t v) {
    using T = uint32_t;
    SW_WARP_REDUCE(__reduce_or_sync, v | other);
}
#undef SW_WARP_REDUCE

/* T: uint32_t or uint64_t. */
template <class T> __device__ inline T sw_warp_exclusive_sum(T v, uint32_t lane) {
    T sum = v;
#pragma unroll
    for (int d = 1; d < SW_WARP; d *= 2) {
        const T up = __shfl_up_sync(0xFFFFFFFFu, sum, d);
        if (lane >= (uint32_t)d)
            sum += up;
    }
    return sum - v;
}

/* ---- vectors in registers ---- */

/* x[i] is word i of the lane. A *block* is 4 KiB of a tile, the unit of the hash by rows. A block has four vectors of
 * 8-bit values, two of 16-bit values, or one of 32-bit values. A vector of 64-bit values is two blocks; its even words
 * are the lower halves. A whole warp calls each function, unless it says otherwise. Widths are the same in all lanes.
 * The code for each width is unrolled, so that every shift is a constant and every word stays in a register. */

/* A warp's share of a tile: a block, or a vector of 64-bit values. */
template <unsigned BITS> struct sw_share {
    static constexpr uint32_t BLOCKS = BITS == 64 ? 2 : 1;
    static constexpr uint32_t BYTES = BLOCKS * SW_HASH_BLOCK_BYTES;
    static constexpr uint32_t WORDS = BYTES / 4 / SW_WARP; /* of a lane */
    static constexpr uint32_t UNITS = WORDS / SW_UNIT_WORDS;
    static constexpr uint32_t VECTORS = BYTES / (SW_VECTOR_VALUES / 8 * BITS);
    static constexpr uint32_t VECTOR_WORDS = WORDS / VECTORS;
    static constexpr uint32_t PER_TILE = SW_NUMBERS_TILE_BYTES / BYTES;
    static constexpr uint32_t TILE_VECTORS = PER_TILE * VECTORS;
};

/* Calls use(integral_constant) with FROM <= width <= TO. */
template <unsigned FROM, unsigned TO, class F> __device__ __forceinline__ void sw_with_width(unsigned width, F use) {
    if constexpr (FROM == TO) {
        use(std::integral_constant<unsigned, FROM>());
    } else {
        constexpr unsigned MIDDLE = (FROM + TO) / 2;
        if (width <= MIDDLE)
            sw_with_width<FROM, MIDDLE>(width, use);
        else
            sw_with_width<MIDDLE + 1, TO>(width, use);
    }
}

/* Loads W rows of packed words: units of 16 bytes, then one of 8 bytes, then one of 4. */
template <unsigned W> __device__ __forceinline__ void sw_load_rows(const uint8_t *from, uint32_t lane, uint32_t *p) {
#pragma unroll
    for (unsigned i = 0; i + 4 <= W; i += 4) {
        const uint4 v = __ldg((const uint4 *)(from + i * SW_WARP * 4) + lane);
        p[i] = v.x, p[i + 1] = v.y, p[i + 2] = v.z, p[i + 3] = v.w;
    }
    if constexpr (W % 4 >= 2) {
        const uint2 v = __ldg((const uint2 *)(from + W / 4 * 4 * SW_WARP * 4) + lane);
        p[W / 4 * 4] = v.x, p[W / 4 * 4 + 1] = v.y;
    }
    if constexpr (W % 2)
        p[W - 1] = __ldg((const uint32_t *)(from + (W - 1) * SW_WARP * 4) + lane);
}

/* Unpacks BITS rows of fields of BITS to x[0], x[STEP], ... MOST: the largest width. */
template <unsigned BITS, unsigned STEP, unsigned MOST>
__device__ __forceinline__ void sw_unpack_rows(unsigned width, const uint8_t *from, uint32_t lane, uint32_t *x) {
    sw_with_width<0, MOST>(width, [&](auto w) {
        constexpr unsigned W = decltype(w)::value;
        uint32_t p[W + 2];
        sw_load_rows<W>(from, lane, p);
        p[W] = p[W + 1] = 0; /* words after the last row are not needed */
#pragma unroll
        for (unsigned i = 0; i < BITS; i++) {
            const unsigned at = sw_row_word(BITS, W, i);
            x[i * STEP] = sw_unpack_row(BITS, W, i, p[at], p[at + 1]);
        }
    });
}

/* Unpacks one vector, whose values keep `width` bits, to x[0 ... VECTOR_WORDS). Of 64-bit values the lower halves are
 * stored first, then the rest of the upper halves. A vector that keeps all bits is not packed: see sw_load_content().
 */
template <unsigned BITS, unsigned MOST = BITS - 1>
__device__ __forceinline__ void sw_unpack_vector(unsigned width, const uint8_t *from, uint32_t lane, uint32_t *x) {
    if constexpr (BITS < 64) {
        sw_unpack_rows<BITS, 1, MOST>(width, from, lane, x);
    } else {
        const unsigned low = min(width, 32u);
        sw_unpack_rows<32, 2, 32>(low, from, lane, x);
        sw_unpack_rows<32, 2, MOST - 32>(width - low, from + low * SW_WARP * 4, lane, x + 1);
    }
}

template <unsigned BITS, unsigned WORDS> __device__ __forceinline__ void sw_add_base(uint32_t *x, uint64_t base) {
    const uint32_t fields = BITS < 64 ? sw_spread(BITS, (uint32_t)base) : 0;
#pragma unroll
    for (unsigned i = 0; i < WORDS; i += BITS == 64 ? 2 : 1) {
        if constexpr (BITS < 64) {
            x[i] = sw_add_fields(BITS, x[i], fields);
        } else {
            const uint64_t v = ((uint64_t)x[i + 1] << 32 | x[i]) + base;
            x[i] = (uint32_t)v;
            x[i + 1] = (uint32_t)(v >> 32);
        }
    }
}

/* ---- content ---- */

/* Loads UNITS rows of content, of which `bytes` exist; the rest is zero. */
template <int ALIGN, unsigned UNITS>
__device__ __forceinline__ void sw_load_units(const uint8_t *from, uint32_t bytes, uint32_t lane, uint32_t *x) {
#pragma unroll
    for (unsigned u = 0; u < UNITS; u++) {
        const uint32_t at = u * SW_HASH_ROW_BYTES + lane * SW_UNIT_BYTES;
        const uint4 v = sw_load_unit<ALIGN>(from, at, bytes);
        x[4 * u] = v.x, x[4 * u + 1] = v.y, x[4 * u + 2] = v.z, x[4 * u + 3] = v.w;
    }
}

/* Loads content of any alignment. */
template <unsigned UNITS>
__device__ __forceinline__ void sw_load_content(const uint8_t *from, uint32_t bytes, uint32_t lane, uint32_t *x) {
    const uintptr_t address = (uintptr_t)from;
    if (address % 16 == 0 && bytes == UNITS * SW_HASH_ROW_BYTES) {
#pragma unroll
        for (unsigned u = 0; u < UNITS; u++) {
            const uint4 v = __ldg((const uint4 *)from + u * SW_WARP + lane);
            x[4 * u] = v.x, x[4 * u + 1] = v.y, x[4 * u + 2] = v.z, x[4 * u + 3] = v.w;
        }
    } else if (address % 4 == 0) {
        sw_load_units<4, UNITS>(from, bytes, lane, x);
    } else {
        sw_load_units<1, UNITS>(from, bytes, lane, x);
    }
}

template <unsigned UNITS>
__device__ __forceinline__ void sw_store_content(uint8_t *to, uint32_t bytes, uint32_t lane, const uint32_t *x) {
    const bool is_aligned = (uintptr_t)to % 16 == 0;
#pragma unroll
    for (unsigned u = 0; u < UNITS; u++) {
        const uint4 v = make_uint4(x[4 * u], x[4 * u + 1], x[4 * u + 2], x[4 * u + 3]);
        const uint32_t at = u * SW_HASH_ROW_BYTES + lane * SW_UNIT_BYTES;
        if (is_aligned && at + SW_UNIT_BYTES <= bytes)
            *(uint4 *)(to + at) = v;
        else if (at + SW_UNIT_BYTES <= bytes)
            sw_store_unit<1>(to + at, v);
        else if (at < bytes)
            sw_store_tail(to + at, v, bytes - at);
    }
}

/* Replaces missing values, from byte `bytes` of x on, by the value `fill`. */
template <unsigned BITS, unsigned WORDS>
__device__ __forceinline__ void sw_fill_tail(uint32_t *x, uint32_t bytes, uint32_t lane, uint64_t fill) {
#pragma unroll
    for (unsigned i = 0; i < WORDS; i++) {
        const uint32_t at = i / 4 * SW_HASH_ROW_BYTES + lane * SW_UNIT_BYTES + i % 4 * 4;
        const uint32_t word = BITS == 64 ? (uint32_t)(i % 2 ? fill >> 32 : fill) : sw_spread(BITS, (uint32_t)fill);
        const uint32_t kept = at >= bytes ? 0 : min(4u, bytes - at);
        x[i] = (x[i] & sw_low_bits(8 * kept)) | (word & ~sw_low_bits(8 * kept));
    }
}

/* Returns the sum over lanes of the hashes of blocks [block, block + BLOCKS). `bytes` of them exist; x is zero after
 * them. */
template <unsigned BLOCKS>
__device__ __forceinline__ uint32_t sw_hash_blocks(const uint32_t *x, uint32_t block, uint32_t bytes, uint32_t lane) {
    constexpr unsigned WORDS = SW_HASH_BLOCK_BYTES / 4 / SW_WARP;
    uint32_t sum = 0;
#pragma unroll
    for (unsigned b = 0; b < BLOCKS; b++) {
        uint32_t h = sw_hash_segment_seed(block + b, lane);
#pragma unroll
        for (unsigned i = 0; i < WORDS; i++)
            h = sw_hash_word(h, x[b * WORDS + i]);
        sum += b * SW_HASH_BLOCK_BYTES < bytes ? sw_hash_finish(h) : 0;
    }
    return sw_warp_sum(sum);
}

/* ---- vectors of a tile ---- */

/* Codecs without symbols: nothing to do before encoding or decoding. */
struct sw_plain_codec {
    template <unsigned BITS> __device__ static inline void begin_encode(const uint64_t *, uint32_t) {}
    template <unsigned BITS> __device__ static inline void begin_decode(const uint64_t *, uint32_t) {}
};

/* Codecs of values of any length. */
struct sw_integer_codec : sw_plain_codec {
    static constexpr uint32_t MAX_VECTORS = SW_TILE_MAX_VECTORS, LEAST_BITS = 8;
    static constexpr bool HAS_TAGS = false, TAGS_ALONE = false;
};

/* Codecs of values of 32 and 64 bits. A vector's size follows from its tag. */
struct sw_float_codec : sw_plain_codec {
    static constexpr uint32_t MAX_VECTORS = SW_TILE_MAX_FLOAT_VECTORS, LEAST_BITS = 32;
    static constexpr bool HAS_TAGS = true, TAGS_ALONE = false, HAS_SIZES = false, IN_ORDER = false, HAS_STAGE = true;
};

template <class CODEC> constexpr bool sw_has_more = CODEC::HAS_SIZES || CODEC::HAS_TAGS;
template <class CODEC>
constexpr uint32_t sw_count_bytes = CODEC::TAGS_ALONE
                                        ? SW_TAGS_COUNT_BYTES(CODEC::KINDS, CODEC::MAX_VECTORS)
                                        : SW_VECTORS_COUNT_BYTES(CODEC::KINDS, CODEC::MAX_VECTORS, sw_has_more<CODEC>);

/* Returns the 16 bits of each vector, which may come after the widths. */
template <class CODEC> __device__ inline uint16_t *sw_tags(const uint8_t *widths) {
    return (uint16_t *)(widths + (CODEC::TAGS_ALONE ? 0 : CODEC::MAX_VECTORS));
}

/* A vector's entry in the counts section. */
struct sw_gpu_head {
    uint64_t base, step; /* step: the second kind of base */
    uint32_t width, units, tag;
};

__device__ inline uint32_t sw_bytes_left(uint32_t bytes, uint32_t at, uint32_t most) {
    return at >= bytes ? 0 : min(most, bytes - at);
}

template <unsigned BITS> __device__ inline uint64_t sw_load_value(const uint8_t *values, uint32_t i) {
    return BITS == 8    ? values[i]
           : BITS == 16 ? ((const uint16_t *)values)[i]
           : BITS == 32 ? ((const uint32_t *)values)[i]
                        : ((const uint64_t *)values)[i];
}

template <unsigned BITS> __device__ inline void sw_store_value(uint8_t *values, uint32_t i, uint64_t v) {
    if (BITS == 8)
        values[i] = (uint8_t)v;
    else if (BITS == 16)
        ((uint16_t *)values)[i] = (uint16_t)v;
    else if (BITS == 32)
        ((uint32_t *)values)[i] = (uint32_t)v;
    else
        ((uint64_t *)values)[i] = v;
}

/* ---- units by turns, or values in a row ---- */

/* A warp holds a vector's values in one of two orders. *Units by turns*: the lanes take units of 16 bytes in turn, as
 * the content is stored. *Values in a row*: each lane has 32 consecutive values. */

/* A vector in shared memory. The odd stride avoids bank conflicts. */
template <unsigned BITS> struct sw_stage {
    static constexpr uint32_t LANE_UNITS = sw_share<BITS>::VECTOR_WORDS / SW_UNIT_WORDS;
    uint4 unit[SW_WARP][LANE_UNITS + 1];

    __device__ inline uint4 &by_turns(uint32_t u, uint32_t lane) {
        const uint32_t i = u * SW_WARP + lane;
        return unit[i / LANE_UNITS][i % LANE_UNITS];
    }
};

__device__ inline uint4 sw_unit_of(const uint32_t *x) {
    return make_uint4(x[0], x[1], x[2], x[3]);
}

__device__ inline void sw_unit_to(uint32_t *x, uint4 v) {
    x[0] = v.x, x[1] = v.y, x[2] = v.z, x[3] = v.w;
}

/* Converts values in a row to units by turns. */
template <unsigned BITS>
__device__ __forceinline__ void sw_put_by_turns(uint32_t *x, sw_stage<BITS> &stage, uint32_t lane) {
#pragma unroll
    for (uint32_t u = 0; u < stage.LANE_UNITS; u++)
        stage.unit[lane][u] = sw_unit_of(x + 4 * u);
    __syncwarp();
#pragma unroll
    for (uint32_t u = 0; u < stage.LANE_UNITS; u++)
        sw_unit_to(x + 4 * u, stage.by_turns(u, lane));
    __syncwarp();
}

/* Returns value i of a lane's 32 values in a row. */
template <unsigned BITS> __device__ __forceinline__ uint64_t sw_get_value(const uint32_t *x, unsigned i) {
    if constexpr (BITS == 64)
        return (uint64_t)x[2 * i + 1] << 32 | x[2 * i];
    return x[i * BITS / 32] >> i * BITS % 32 & sw_low_bits(BITS);
}

/* Sets value i of a lane's 32 values in a row. The values before it must be set already. */
template <unsigned BITS> __device__ __forceinline__ void sw_set_value(uint32_t *x, unsigned i, uint64_t v) {
    if constexpr (BITS == 64) {
        x[2 * i] = (uint32_t)v;
        x[2 * i + 1] = (uint32_t)(v >> 32);
    } else {
        const uint32_t field = ((uint32_t)v & sw_low_bits(BITS)) << i * BITS % 32;
        x[i * BITS / 32] = i * BITS % 32 ? x[i * BITS / 32] | field : field;
    }
}

/* The stored vectors of a tile. Lane i knows vector i. */
struct sw_stored_vectors {
    sw_gpu_head head;
    uint32_t first_unit;
    bool are_good; /* all vectors have a valid width and lie in the frame */

    template <class CODEC, unsigned BITS> __device__ inline sw_gpu_head get(uint32_t vector) const {
        const auto value = [&](uint64_t v) -> uint64_t {
            return BITS == 64 ? __shfl_sync(0xFFFFFFFFu, (unsigned long long)v, vector)
                              : __shfl_sync(0xFFFFFFFFu, (uint32_t)v, vector);
        };
        return {CODEC::KINDS ? value(head.base) : 0, CODEC::KINDS == 2 ? value(head.step) : 0,
                __shfl_sync(0xFFFFFFFFu, head.width, vector), __shfl_sync(0xFFFFFFFFu, head.units, vector),
                CODEC::HAS_TAGS ? __shfl_sync(0xFFFFFFFFu, head.tag, vector) : 0};
    }
};

/* Reads the head of vector i of a tile, of whose content `bytes` exist. False: its width or size is invalid. */
template <class CODEC, unsigned BITS>
__device__ __forceinline__ bool sw_load_head(sw_gpu_head *ret, const uint8_t *counts, uint32_t i, uint32_t bytes) {
    sw_gpu_head head = {};
    if (CODEC::KINDS)
        head.base = sw_load_value<BITS>(counts, i);
    if (CODEC::KINDS == 2)
        head.step = sw_load_value<BITS>(counts + SW_TILE_BASES_BYTES, i);
    counts += CODEC::KINDS * SW_TILE_BASES_BYTES;
    const uint16_t *tags = sw_tags<CODEC>(counts);
    head.width = !CODEC::TAGS_ALONE ? counts[i] : tags[i] ? 0 : BITS;
    const uint32_t packed = sw_packed_units(BITS, head.width, bytes);
    const uint32_t more = sw_has_more<CODEC> ? tags[i] : packed;
    bool is_good;
    if constexpr (CODEC::HAS_TAGS) {
        head.tag = more;
        head.units = head.width < BITS ? CODEC::units(BITS, head) : packed;
        is_good = head.width < BITS ? head.units < sw_packed_units(BITS, BITS, bytes) : head.width == BITS;
    } else {
        head.units = more;
        is_good = head.width <= BITS && head.units <= packed;
    }
    *ret = head;
    return is_good;
}

/* Whether a vector, of whose content `bytes` exist, is encoded. If not, its content is stored. */
template <unsigned BITS> __device__ inline bool sw_is_encoded(const sw_gpu_head &head, uint32_t bytes) {
    return head.width < BITS || head.units < sw_packed_units(BITS, BITS, bytes);
}

template <class CODEC, unsigned BITS>
__device__ inline sw_stored_vectors sw_load_vectors(const uint8_t *counts, uint32_t tile_bytes, uint64_t data_units,
                                                    uint32_t lane) {
    constexpr uint32_t VECTOR_BYTES = SW_VECTOR_VALUES / 8 * BITS;
    const uint32_t bytes = sw_bytes_left(tile_bytes, lane * VECTOR_BYTES, VECTOR_BYTES);
    sw_stored_vectors v = {};
    const bool is_good = !bytes || sw_load_head<CODEC, BITS>(&v.head, counts, lane, bytes);
    v.first_unit = sw_warp_exclusive_sum(v.head.units, lane);
    v.are_good = __all_sync(0xFFFFFFFFu, is_good && v.first_unit + v.head.units <= data_units);
    return v;
}

/* Decodes one vector into x. `bytes` of its content exist; x is zero after them. codec: has the frame's dictionary, if
 * there is one. */
template <unsigned BITS, class CODEC>
__device__ __forceinline__ bool sw_decode_vector(const CODEC &codec, const sw_stored_vectors &vectors, uint32_t vector,
                                                 const uint8_t *data, uint32_t bytes, sw_stage<BITS> &stage,
                                                 uint32_t lane, uint32_t *x) {
    constexpr uint32_t WORDS = sw_share<BITS>::VECTOR_WORDS, VECTOR_BYTES = SW_VECTOR_VALUES / 8 * BITS;
    const sw_gpu_head head = vectors.template get<CODEC, BITS>(vector);
    const uint8_t *from = data + __shfl_sync(0xFFFFFFFFu, vectors.first_unit, vector) * SW_UNIT_BYTES;
    bool is_good = true;
    if (sw_is_encoded<BITS>(head, bytes))
        is_good = codec.template decode<BITS>(head, from, stage, lane, x);
    else
        sw_load_content<WORDS / SW_UNIT_WORDS>(from, bytes, lane, x);
    if (bytes < VECTOR_BYTES)
        sw_fill_tail<BITS, WORDS>(x, bytes, lane, 0);
    return is_good;
}

/* ---- codec for ---- */

template <unsigned BITS>
__device__ __forceinline__ void sw_for_decode(const sw_gpu_head &head, const uint8_t *from, uint32_t lane,
                                              uint32_t *x) {
    sw_unpack_vector<BITS>(head.width, from, lane, x);
    sw_add_base<BITS, sw_share<BITS>::VECTOR_WORDS>(x, head.base);
}

struct sw_for_decoder : sw_integer_codec {
    static constexpr uint32_t KINDS = 1;
    static constexpr bool HAS_SIZES = false, IN_ORDER = false, HAS_STAGE = false;
    static constexpr uint32_t DECODE_BLOCKS = 6;

    template <unsigned BITS>
    __device__ static __forceinline__ bool decode(const sw_gpu_head &head, const uint8_t *from, sw_stage<BITS> &,
                                                  uint32_t lane, uint32_t *x) {
        sw_for_decode<BITS>(head, from, lane, x);
        return true;
    }
};

/* ---- codec dfor ---- */

/* Packed differences: those of values of up to 32 bits take a word each. */
template <unsigned BITS> struct sw_dfor_packed {
    static constexpr unsigned AS = BITS == 64 ? 64 : 32;
    static constexpr unsigned WORDS = AS;
};

/* Adds up the rests in `sums`, which are in a row, to the values x. x may be `sums` if a value takes as much room as a
 * rest. */
template <unsigned BITS>
__device__ __forceinline__ void sw_add_up(uint64_t base, uint64_t step, uint32_t *sums, uint32_t *x, uint32_t lane) {
    constexpr unsigned AS = sw_dfor_packed<BITS>::AS;
    uint64_t sum = 0;
#pragma unroll
    for (unsigned i = 0; i < 32; i++) {
        sum += sw_get_value<AS>(sums, i) + step;
        sw_set_value<AS>(sums, i, sum);
    }
    using word = std::conditional_t<BITS == 64, uint64_t, uint32_t>;
    const uint64_t start = base + sw_warp_exclusive_sum((word)sum, lane);
#pragma unroll
    for (unsigned i = 0; i < 32; i++)
        sw_set_value<BITS>(x, i, start + sw_get_value<AS>(sums, i));
}

struct sw_dfor_decoder : sw_integer_codec {
    static constexpr uint32_t KINDS = 2;
    static constexpr bool HAS_SIZES = false, IN_ORDER = true, HAS_STAGE = true;
    static constexpr uint32_t DECODE_BLOCKS = 6;

    template <unsigned BITS>
    __device__ static __forceinline__ bool decode(const sw_gpu_head &head, const uint8_t *from, sw_stage<BITS> &stage,
                                                  uint32_t lane, uint32_t *x) {
        uint32_t sums[sw_dfor_packed<BITS>::WORDS];
        sw_unpack_vector<sw_dfor_packed<BITS>::AS, BITS - 1>(head.width, from, lane, sums);
        sw_add_up<BITS>(head.base, head.step, sums, x, lane);
        sw_put_by_turns<BITS>(x, stage, lane);
        return true;
    }
};

/* ---- codec rfor ---- */

/* The beginnings of runs in a lane's 32 values in a row, and the number of runs that begin in lanes before it. */
struct sw_run_starts {
    uint32_t bits, first_run;
    uint32_t mask;   /* a bit for each lane in which runs begin */
    uint32_t n_runs; /* of the vector */
};

__device__ inline sw_run_starts sw_count_starts(uint32_t bits, uint32_t lane) {
    const uint32_t n = __popc(bits);
    return {bits, sw_warp_exclusive_sum(n, lane), __ballot_sync(0xFFFFFFFFu, bits != 0), sw_warp_sum(n)};
}

__device__ inline uint32_t sw_run_value_words(uint32_t n_runs, uint32_t width) {
    return (n_runs * width + 31) / 32;
}

__device__ inline uint32_t sw_lanes_before(uint32_t mask, uint32_t lane) {
    return __popc(mask & sw_low_bits(lane));
}

/* Loads number `run` of a stream of numbers of `width` bits. */
template <unsigned BITS> __device__ inline uint64_t sw_load_bits(const uint32_t *words, uint32_t run, uint32_t width) {
    if (!width)
        return 0; /* the stream may be empty */
    const uint32_t at = run * width, shift = at % 32;
    const uint32_t *from = words + at / 32;
    const uint32_t a = __ldg(from), b = shift + width > 32 ? __ldg(from + 1) : 0;
    const uint32_t low = __funnelshift_r(a, b, shift);
    if constexpr (BITS < 64)
        return low & sw_low_bits(width);
    const uint32_t c = shift + width > 64 ? __ldg(from + 2) : 0;
    const uint64_t v = (uint64_t)__funnelshift_r(b, c, shift) << 32 | low;
    return width < 64 ? v & ((1ull << width) - 1) : v;
}

struct sw_rfor_decoder : sw_integer_codec {
    static constexpr uint32_t KINDS = 1;
    static constexpr bool HAS_SIZES = true, IN_ORDER = true, HAS_STAGE = true;
    static constexpr uint32_t DECODE_BLOCKS = 8;

    /* As on the host: a vector is stored as runs if it takes fewer units than packed by `for`, and than its content. */
    template <unsigned BITS> __device__ static inline bool is_runs(const sw_gpu_head &head) {
        return head.width == BITS || head.units < sw_packed_units(BITS, head.width, 0);
    }

    template <unsigned BITS>
    __device__ static __forceinline__ bool decode(const sw_gpu_head &head, const uint8_t *from, sw_stage<BITS> &stage,
                                                  uint32_t lane, uint32_t *x) {
        if (!is_runs<BITS>(head)) {
            sw_for_decode<BITS>(head, from, lane, x);
            return true;
        }
        const uint32_t *words = (const uint32_t *)from;
        const uint32_t n_words = 4 * head.units;
        if (n_words == 0) /* the same for all lanes */
            return false;
        const uint32_t mask = __ldg(words);
        if (1 + __popc(mask) > n_words)
            return false;
        const sw_run_starts s =
            sw_count_starts(mask >> lane & 1 ? __ldg(words + 1 + sw_lanes_before(mask, lane)) : 0, lane);
        if (1 + __popc(mask) + sw_run_value_words(s.n_runs, head.width) > n_words ||
            !__shfl_sync(0xFFFFFFFFu, s.bits & 1, 0))
            return false;
        uint8_t *table = (uint8_t *)&stage;
        for (uint32_t run = lane; run < s.n_runs; run += SW_WARP)
            sw_store_value<BITS>(table, run, head.base + sw_load_bits<BITS>(words + 1 + __popc(mask), run, head.width));
        __syncwarp();
        uint32_t next = s.first_run; /* only the first lane's first value has no run before it, and it begins one */
#pragma unroll
        for (unsigned i = 0; i < 32; i++) {
            next += s.bits >> i & 1;
            sw_set_value<BITS>(x, i, sw_load_value<BITS>(table, next - 1));
        }
        __syncwarp();
        sw_put_by_turns<BITS>(x, stage, lane);
        return true;
    }
};

/* ---- codec sfor ---- */

/* The first values of a vector's sequences are in a table in shared memory. Each lane adds to them the distances of its
 * 32 values in a row. */
struct sw_sfor_decoder : sw_integer_codec {
    static constexpr uint32_t KINDS = 1;
    static constexpr bool HAS_TAGS = true, HAS_SIZES = false, IN_ORDER = true, HAS_STAGE = true;
    static constexpr uint32_t DECODE_BLOCKS = 6; /* with 8 blocks some registers would spill */

    /* The words of a vector's first value. */
    template <unsigned BITS> static constexpr uint32_t FIRST_WORDS = BITS == 64 ? 2 : 1;

    /* The tag is a vector's length. */
    __device__ static inline uint32_t units(unsigned, const sw_gpu_head &head) {
        return head.tag;
    }

    /* Returns a vector's length in words. n_starts: words that mark the beginnings of sequences. */
    template <unsigned BITS>
    __device__ static inline uint32_t words(uint32_t n_starts, uint32_t n_runs, uint32_t width) {
        return 1 + n_starts + FIRST_WORDS<BITS> + sw_run_value_words(n_runs - 1, width);
    }

    /* Returns the first value of sequence `run`. first: the words of the vector's first value. */
    template <unsigned BITS>
    __device__ static inline uint64_t start(const sw_gpu_head &head, const uint32_t *first, uint32_t run) {
        return run ? head.base + sw_load_bits<BITS>(first + FIRST_WORDS<BITS>, run - 1, head.width)
                   : sw_load_bits<BITS>(first, 0, BITS);
    }

    template <unsigned BITS>
    __device__ static __forceinline__ bool decode(const sw_gpu_head &head, const uint8_t *from, sw_stage<BITS> &stage,
                                                  uint32_t lane, uint32_t *x) {
        const uint32_t *starts = (const uint32_t *)from;
        const uint32_t n_words = 4 * head.units;
        if (n_words == 0) /* the same for all lanes */
            return false;
        const uint32_t mask = __ldg(starts), *first = starts + 1 + __popc(mask);
        if (1 + __popc(mask) > n_words)
            return false;
        const sw_run_starts s =
            sw_count_starts(mask >> lane & 1 ? __ldg(starts + 1 + sw_lanes_before(mask, lane)) : 0, lane);
        if (!__shfl_sync(0xFFFFFFFFu, s.bits & 1, 0) || words<BITS>(__popc(mask), s.n_runs, head.width) > n_words)
            return false;
        uint8_t *table = (uint8_t *)&stage;
        for (uint32_t run = lane; run < s.n_runs; run += SW_WARP)
            sw_store_value<BITS>(table, run, start<BITS>(head, first, run));
        __syncwarp();
        uint32_t next = s.first_run, begun = begun_before(s, lane);
#pragma unroll
        for (unsigned i = 0; i < 32; i++) {
            const uint32_t at = 32 * lane + i, begins = s.bits >> i & 1;
            next += begins;
            begun = begins ? at : begun;
            sw_set_value<BITS>(x, i, sw_load_value<BITS>(table, next - 1) + (at - begun));
        }
        __syncwarp();
        sw_put_by_turns<BITS>(x, stage, lane);
        return true;
    }

  private:
    /* Returns the beginning of the sequence that a lane's first value is in, unless it begins one itself. */
    __device__ static inline uint32_t begun_before(const sw_run_starts &s, uint32_t lane) {
        uint32_t last = s.bits ? 32 * lane + 31 - (uint32_t)__clz((int)s.bits) : 0;
#pragma unroll
        for (uint32_t d = 1; d < SW_WARP; d *= 2)
            last = max(last, __shfl_up_sync(0xFFFFFFFFu, last, d)); /* the first lanes get their own value */
        return __shfl_up_sync(0xFFFFFFFFu, last, 1);
    }
};

/* ---- codec alp ---- */

/* number / 10^p is computed as fma(number, high, number * low). high is 1 / 10^p, rounded; low is the rest of 1 / 10^p.
 * alp_gpu.cu says why that is exact. The compiler must not contract these operations, hence the intrinsics. */
struct sw_alp_inverse64 {
    double high, low;
};
struct sw_alp_inverse32 {
    float high, low;
};

/* The factors, by the choice of decimal places. */
[[maybe_unused]] static __constant__ const sw_alp_inverse64 sw_alp_inverses64[SW_ALP_F64_CHOICES] = {
    {1e6, 0},
    {1e5, 0},
    {1e4, 0},
    {1e3, 0},
    {1e2, 0},
    {1e1, 0},
    {1e0, 0},
    {1e-1, -0x1.999999999999ap-58},
    {1e-2, -0x1.eb851eb851eb8p-63},
    {1e-3, -0x1.89374bc6a7efap-66},
    {1e-4, -0x1.6a161e4f765fep-68},
    {1e-5, -0x1.ee78183f91e64p-71},
    {1e-6, 0x1.b5a63f9a49c2cp-75},
    {1e-7, 0x1.5e1e99483b023p-78},
    {1e-8, -0x1.03023df2d4c94p-82},
    {1e-9, -0x1.34674bfabb83bp-84},
    {1e-10, -0x1.20a5465df8d2cp-88},
    {1e-11, 0x1.7f7bc7b4d28aap-91},
    {1e-12, 0x1.97f27f0f6e886p-96},
    {1e-13, -0x1.ecd79a5a0df95p-99},
    {1e-14, 0x1.ea70909833de7p-107},
    {1e-15, -0x1.937831647f5a0p-104},
    {1e-16, 0x1.5b4c2ebe68799p-109},
    {1e-17, -0x1.db7b2080a3029p-111},
    {1e-18, -0x1.7c628066e8ceep-114},
};
[[maybe_unused]] static __constant__ const sw_alp_inverse32 sw_alp_inverses32[SW_ALP_F32_CHOICES] = {
    {1e6f, 0},
    {1e5f, 0},
    {1e4f, 0},
    {1e3f, 0},
    {1e2f, 0},
    {1e1f, 0},
    {1e0f, 0},
    {1e-1f, -0x1.99999ap-30f},
    {1e-2f, 0x1.eb851ep-33f},
    {1e-3f, -0x1.a1cac0p-35f},
    {1e-4f, 0x1.638866p-39f},
    {1e-5f, 0x1.1c6d1ep-42f},
    {1e-6f, 0x1.6bdb1ap-49f},
    {1e-7f, -0x1.50d42ep-50f},
    {1e-8f, 0x1.18461cp-54f},
    {1e-9f, 0x1.04dad2p-55f},
};

template <unsigned BITS> struct sw_alp_down;

template <> struct sw_alp_down<64> {
    sw_alp_inverse64 down;

    __device__ inline explicit sw_alp_down(uint32_t choice) : down(sw_alp_inverses64[choice]) {}

    __device__ inline uint64_t value(uint64_t number) const {
        const double n = __dadd_rn(__longlong_as_double((long long)(number + SW_ALP_ROUND_BITS)), -SW_ALP_ROUND);
        return (uint64_t)__double_as_longlong(__fma_rn(n, down.high, __dmul_rn(n, down.low)));
    }
};

template <> struct sw_alp_down<32> {
    sw_alp_inverse32 down;

    __device__ inline explicit sw_alp_down(uint32_t choice) : down(sw_alp_inverses32[choice]) {}

    __device__ inline uint64_t value(uint64_t number) const {
        const float n = __int2float_rn((int)(uint32_t)number);
        return __float_as_uint(__fmaf_rn(n, down.high, __fmul_rn(n, down.low)));
    }
};

/* A packed vector's exceptions: n values of STORED bits each, then their places. For a whole warp. Lanes hold units by
 * turns, and each lane handles its own share of the exceptions. */
template <unsigned STORED> struct sw_stored_exceptions {
    const uint8_t *value;
    const uint16_t *place;
    uint32_t n;

    __device__ inline sw_stored_exceptions(const uint8_t *at, uint32_t number)
        : value(at), place((const uint16_t *)(at + number * (STORED / 8))), n(number) {}

    /* Finds the exception at place `at`; false: there is none. For a single thread. */
    __device__ inline bool find(uint32_t at, uint64_t *ret) const {
        uint32_t i = 0; /* exceptions before it have lower places */
        for (uint32_t left = n; left;) {
            const uint32_t half = left / 2;
            const bool is_lower = place[i + half] < at;
            i += is_lower ? half + 1 : 0;
            left = is_lower ? left - half - 1 : half;
        }
        const bool is_stored = i < n && place[i] == at;
        if (is_stored)
            *ret = sw_load_value<STORED>(value, i);
        return is_stored;
    }

    /* Replaces each value of x that is an exception by merge(value, the exception); false: a place is not in the
     * vector. IN_ORDER: lanes hold values in a row instead of units by turns. */
    template <unsigned BITS, bool IN_ORDER = false, class F>
    __device__ __forceinline__ bool patch(uint32_t *x, sw_stage<BITS> &stage, uint32_t lane, F merge) const {
        uint4 *unit = (uint4 *)&stage;
        bool is_good = true;
        if (!n)
            return true;
#pragma unroll
        for (uint32_t u = 0; u < stage.LANE_UNITS; u++)
            unit[u * SW_WARP + lane] = sw_unit_of(x + 4 * u);
        __syncwarp();
        for (uint32_t i = lane; i < n; i += SW_WARP) {
            const uint32_t found = place[i], at = IN_ORDER ? sw_value_place(BITS, found % 32, found / 32) : found;
            if (found < SW_VECTOR_VALUES)
                sw_store_value<BITS>((uint8_t *)unit, at,
                                     merge(sw_load_value<BITS>((uint8_t *)unit, at), sw_load_value<STORED>(value, i)));
            else
                is_good = false;
        }
        is_good = __all_sync(0xFFFFFFFFu, is_good);
        __syncwarp();
#pragma unroll
        for (uint32_t u = 0; u < stage.LANE_UNITS; u++)
            sw_unit_to(x + 4 * u, unit[u * SW_WARP + lane]);
        __syncwarp();
        return is_good;
    }
};

struct sw_alp_decoder : sw_float_codec {
    static constexpr uint32_t KINDS = 1;
    static constexpr uint32_t DECODE_BLOCKS = 6;

    __device__ static inline uint32_t units(unsigned bits, const sw_gpu_head &head) {
        return sw_alp_units(bits, head.width, head.tag);
    }

    template <unsigned BITS>
    __device__ static __forceinline__ bool decode(const sw_gpu_head &head, const uint8_t *from, sw_stage<BITS> &stage,
                                                  uint32_t lane, uint32_t *x) {
        const sw_alp_down<BITS> s(sw_alp_choice(head.tag));
        const sw_stored_exceptions<BITS> rest(from + head.width * SW_WARP * 4, sw_alp_exceptions(head.tag));
        sw_unpack_vector<BITS, BITS == 64 ? 52 : 31>(head.width, from, lane, x);
#pragma unroll
        for (unsigned i = 0; i < 32; i++)
            sw_set_value<BITS>(x, i, s.value(sw_get_value<BITS>(x, i) + head.base));
        return rest.template patch<BITS>(x, stage, lane, [](uint64_t, uint64_t value) { return value; });
    }
};

/* ---- codec alprd ---- */

/* A vector's dictionary. Its entries of 16 bits are in `low`, then in `high`. */
struct sw_alprd_entries {
    static constexpr uint32_t BYTES = SW_ALPRD_ENTRIES * 2;
    uint64_t low, high;

    __device__ inline uint32_t entry(uint32_t k) const {
        return (uint32_t)((k < 4 ? low : high) >> k % 4 * 16) & 0xFFFF;
    }
};

/* The parts of a vector that follow its right parts. */
struct sw_alprd_left {
    const uint8_t *codes, *at; /* at: the entries */
    sw_alprd_entries entries;
    sw_stored_exceptions<16> rest;

    __device__ inline sw_alprd_left(const sw_gpu_head &head, const uint8_t *from)
        : codes(from + head.width * SW_WARP * 4),
          at(codes + sw_alprd_code_width(head.tag) * SW_WARP * 4), entries{__ldg((const uint64_t *)at),
                                                                           __ldg((const uint64_t *)at + 1)},
          rest(at + sw_alprd_entries::BYTES, sw_alp_exceptions(head.tag)) {}
};

struct sw_alprd_decoder : sw_float_codec {
    static constexpr uint32_t KINDS = 0;
    static constexpr uint32_t DECODE_BLOCKS = 6;

    __device__ static inline uint32_t units(unsigned bits, const sw_gpu_head &head) {
        return sw_alprd_units(bits, head.width, head.tag);
    }

    template <unsigned BITS>
    __device__ static __forceinline__ bool decode(const sw_gpu_head &head, const uint8_t *from, sw_stage<BITS> &stage,
                                                  uint32_t lane, uint32_t *x) {
        const sw_alprd_left left(head, from);
        uint32_t codes[32];
        sw_unpack_rows<32, 1, SW_ALPRD_MAX_CODE_WIDTH>(sw_alprd_code_width(head.tag), left.codes, lane, codes);
        unpack_right<BITS>(head.width, from, lane, x);
#pragma unroll
        for (unsigned i = 0; i < 32; i++)
            set_left<BITS>(x, i, head.width, left.entries.entry(codes[i]));
        const uint64_t right = (1ull << head.width) - 1;
        return left.rest.template patch<BITS>(
            x, stage, lane, [&](uint64_t value, uint64_t part) { return (value & right) | part << head.width; });
    }

    /* Replaces the left part of value i. */
    template <unsigned BITS>
    __device__ static __forceinline__ void set_left(uint32_t *x, unsigned i, uint32_t width, uint32_t left) {
        uint32_t &top = x[BITS == 64 ? 2 * i + 1 : i];
        const uint32_t shift = BITS == 64 ? width - 32 : width;
        top = (top & sw_low_bits(shift)) | left << shift;
    }

  private:
    /* Unpacks right parts. Those of 64-bit values have all bits of the lower halves, and some of the upper halves. */
    template <unsigned BITS>
    __device__ static __forceinline__ void unpack_right(uint32_t width, const uint8_t *from, uint32_t lane,
                                                        uint32_t *x) {
        if constexpr (BITS == 64) {
            sw_unpack_rows<32, 2, 32>(32, from, lane, x);
            sw_unpack_rows<32, 2, 31>(width - 32, from + 32 * SW_WARP * 4, lane, x + 1);
        } else {
            sw_unpack_rows<32, 1, 31>(width, from, lane, x);
        }
    }
};

/* ---- codecs pfor and pdfor ---- */

/* The parts of a vector that follow its packed rows: its step, if that is stored, and its exceptions. */
template <unsigned BITS> struct sw_patched_rest {
    uint64_t step;
    sw_stored_exceptions<BITS> exceptions;

    /* plain: the step of vectors that store none. */
    __device__ inline sw_patched_rest(const sw_gpu_head &head, const uint8_t *from, uint64_t plain)
        : step(head.tag & SW_PATCHED_HAS_STEP ? sw_load_value<BITS>(from + head.width * SW_WARP * 4, 0) : plain),
          exceptions(from + head.width * SW_WARP * 4 + sw_patched_step_bytes(BITS, head.tag),
                     sw_alp_exceptions(head.tag)) {}
};

struct sw_patched_codec : sw_float_codec { /* the values may be of any type, but have the lengths of floats */
    static constexpr uint32_t KINDS = 1;
    static constexpr uint32_t DECODE_BLOCKS = 6;

    __device__ static inline uint32_t units(unsigned bits, const sw_gpu_head &head) {
        return sw_patched_units(bits, head.width, head.tag);
    }
};

struct sw_pfor_decoder : sw_patched_codec {
    template <unsigned BITS>
    __device__ static __forceinline__ bool decode(const sw_gpu_head &head, const uint8_t *from, sw_stage<BITS> &stage,
                                                  uint32_t lane, uint32_t *x) {
        const sw_patched_rest<BITS> rest(head, from, 1);
        sw_unpack_vector<BITS>(head.width, from, lane, x);
        if (head.tag & SW_PATCHED_HAS_STEP) {
#pragma unroll
            for (unsigned i = 0; i < 32; i++)
                sw_set_value<BITS>(x, i, sw_get_value<BITS>(x, i) * rest.step);
        }
        sw_add_base<BITS, sw_share<BITS>::VECTOR_WORDS>(x, head.base);
        return rest.exceptions.template patch<BITS>(x, stage, lane, [](uint64_t, uint64_t value) { return value; });
    }
};

struct sw_pdfor_decoder : sw_patched_codec {
    static constexpr bool IN_ORDER = true;

    template <unsigned BITS>
    __device__ static __forceinline__ bool decode(const sw_gpu_head &head, const uint8_t *from, sw_stage<BITS> &stage,
                                                  uint32_t lane, uint32_t *x) {
        const sw_patched_rest<BITS> rest(head, from, 0);
        sw_unpack_vector<BITS>(head.width, from, lane, x);
        if (!rest.exceptions.template patch<BITS, true>(x, stage, lane, [](uint64_t, uint64_t value) { return value; }))
            return false;
        sw_add_up<BITS>(head.base, rest.step, x, x, lane);
        sw_put_by_turns<BITS>(x, stage, lane);
        return true;
    }
};

/* ---- codec dict ---- */

template <unsigned BITS>
using sw_value_of =
    std::conditional_t<BITS == 64, uint64_t,
                       std::conditional_t<BITS == 32, uint32_t, std::conditional_t<BITS == 16, uint16_t, uint8_t>>>;

/* A frame's dictionary, in the frame. */
struct sw_stored_dictionary {
    static constexpr bool IS_STAGED = true;
    const uint64_t *values;
    uint32_t n;

    /* Returns a code's value; all bits are set if the code has none. */
    template <unsigned BITS> __device__ inline sw_value_of<BITS> get(uint32_t code) const {
        return code < n ? __ldg((const sw_value_of<BITS> *)(values + code)) : (sw_value_of<BITS>)~0ull;
    }

    /* Makes a table of the values of the first codes in shared memory. A lane has no registers for 32 addresses. */
    template <unsigned BITS>
    __device__ inline const sw_value_of<BITS> *by_code(sw_stage<BITS> &stage, uint32_t n_codes, uint32_t lane) const {
        sw_value_of<BITS> *table = (sw_value_of<BITS> *)&stage;
        for (uint32_t code = lane; code < n_codes; code += SW_WARP)
            table[code] = get<BITS>(code);
        __syncwarp();
        return table;
    }
};

/* The common part of encoder and decoder, which get at the dictionary in different ways. */
struct sw_dict_codec : sw_integer_codec {
    static constexpr uint32_t KINDS = 0;
    static constexpr bool HAS_TAGS = true, HAS_SIZES = false, IN_ORDER = false, HAS_STAGE = true;
    static constexpr uint32_t DECODE_BLOCKS = 6;

    /* The layout of codes and exceptions. Codes of 64-bit values have upper halves of zero, which are not packed. */
    template <unsigned BITS> struct shape {
        static constexpr unsigned FIELD = BITS == 64 ? 32 : BITS, STEP = BITS / FIELD;
        static constexpr unsigned MAX_WIDTH = BITS == 8 ? 7 : 8, STORED = BITS == 8 ? 16 : BITS;
        static constexpr unsigned PER_UNIT = 128 / BITS;
    };

    __device__ static inline uint32_t units(unsigned bits, const sw_gpu_head &head) {
        return sw_dict_units(bits, head.width, head.tag);
    }

    template <unsigned BITS, class DICTIONARY>
    __device__ static __forceinline__ bool decode_by(const DICTIONARY &dictionary, const sw_gpu_head &head,
                                                     const uint8_t *from, sw_stage<BITS> &stage, uint32_t lane,
                                                     uint32_t *x) {
        constexpr unsigned PER_UNIT = shape<BITS>::PER_UNIT;
        const sw_stored_exceptions<shape<BITS>::STORED> rest(from + head.width * SW_WARP * 4, head.tag);
        const sw_value_of<BITS> *values = dictionary.template by_code<BITS>(stage, 1u << head.width, lane);
        sw_unpack_rows<shape<BITS>::FIELD, shape<BITS>::STEP, shape<BITS>::MAX_WIDTH>(head.width, from, lane, x);
#pragma unroll
        for (unsigned i = 0; i < 32; i += PER_UNIT) {
            uint32_t code[PER_UNIT];
#pragma unroll
            for (unsigned k = 0; k < PER_UNIT; k++) /* read all codes before the first value overwrites one */
                code[k] = x[(i + k) * BITS / 32] >> (i + k) * BITS % 32 & 0xFF;
#pragma unroll
            for (unsigned k = 0; k < PER_UNIT; k++)
                sw_set_value<BITS>(x, i + k, values[code[k]]);
        }
        if (DICTIONARY::IS_STAGED)
            __syncwarp();
        return rest.template patch<BITS>(x, stage, lane, [](uint64_t, uint64_t value) { return value; });
    }
};

/* ---- codec radix ---- */

/* Divides numbers by `by`, which is at least 1. A product with its inverse is at most one too small. */
struct sw_divider {
    uint32_t by, inverse;

    __device__ inline explicit sw_divider(uint32_t divisor) : by(divisor), inverse(~0u / divisor) {}

    /* Returns the quotient, and replaces the number by the rest. */
    __device__ inline uint32_t divide(uint32_t *number) const {
        uint32_t quotient = __umulhi(*number, inverse), rest = *number - quotient * by;
        if (rest >= by) {
            quotient++;
            rest -= by;
        }
        *number = rest;
        return quotient;
    }
};

/* The common part of encoder and decoder. */
struct sw_radix_codec : sw_float_codec { /* the values may be of any type, but have the lengths of floats */
    static constexpr uint32_t KINDS = 0;
    static constexpr bool TAGS_ALONE = true;
    static constexpr uint32_t DECODE_BLOCKS = 6;

    __device__ static inline uint32_t units(unsigned bits, const sw_gpu_head &head) {
        return sw_radix_units(bits, head.tag);
    }

    /* Unpacks a lane's digits: those of its values 4 i ... 4 i + 3 are in the bytes of word i. All are below the base.
     */
    __device__ static __forceinline__ void unpack(uint32_t base, const uint8_t *from, uint32_t lane,
                                                  uint32_t (&digits)[8]) {
        const sw_divider one(base), two(base * base), four(base < 16 ? two.by * two.by : 1);
        if (base < 16) {
#pragma unroll
            for (uint32_t i = 0; i < 8; i += 2) {
                uint32_t low = number(base, from, i / 2, lane);
                const uint32_t high = four.divide(&low);
                digits[i] = four_digits(one, two, low);
                digits[i + 1] = four_digits(one, two, high);
            }
        } else {
#pragma unroll
            for (uint32_t i = 0; i < 8; i++)
                digits[i] = four_digits(one, two, number(base, from, i, lane));
        }
    }

    /* Unpacks a lane's 32 values by their digits. */
    template <unsigned BITS, class DICTIONARY>
    __device__ static __forceinline__ void look_up(const DICTIONARY &dictionary, const sw_gpu_head &head,
                                                   const uint8_t *from, sw_stage<BITS> &stage, uint32_t lane,
                                                   uint32_t *x) {
        const uint32_t base = sw_radix_base(head.tag);
        const sw_value_of<BITS> *values = dictionary.template by_code<BITS>(stage, base, lane);
        uint32_t digits[8];
        unpack(base, from, lane, digits);
#pragma unroll
        for (unsigned i = 0; i < 32; i++)
            sw_set_value<BITS>(x, i, values[digits[i / 4] >> i % 4 * 8 & 0xFF]);
        if (DICTIONARY::IS_STAGED)
            __syncwarp();
    }

    template <unsigned BITS, class DICTIONARY>
    __device__ static __forceinline__ bool decode_by(const DICTIONARY &dictionary, const sw_gpu_head &head,
                                                     const uint8_t *from, sw_stage<BITS> &stage, uint32_t lane,
                                                     uint32_t *x) {
        look_up<BITS>(dictionary, head, from, stage, lane, x);
        return rest<BITS>(head, from).template patch<BITS>(x, stage, lane, [](uint64_t, uint64_t v) { return v; });
    }

    template <unsigned BITS>
    __device__ static inline sw_stored_exceptions<BITS> rest(const sw_gpu_head &head, const uint8_t *from) {
        return {from + sw_radix_packed_units(sw_radix_base(head.tag)) * SW_UNIT_BYTES, sw_radix_exceptions(head.tag)};
    }

    /* Returns number i of a lane. */
    __device__ static inline uint32_t number(uint32_t base, const uint8_t *from, uint32_t i, uint32_t lane) {
        const uint32_t width = sw_radix_width(base);
        return min((uint32_t)sw_load_bits<32>((const uint32_t *)from + i * width, lane, width), sw_radix_most(base));
    }

  private:
    __device__ static inline uint32_t four_digits(const sw_divider &one, const sw_divider &two, uint32_t low) {
        uint32_t high = two.divide(&low);
        const uint32_t second = one.divide(&low), fourth = one.divide(&high);
        return low | second << 8 | high << 16 | fourth << 24;
    }
};

/* Differences of neighbors in place of values. */
struct sw_dradix_codec : sw_radix_codec {
    static constexpr uint32_t KINDS = 1;
    static constexpr bool IN_ORDER = true;

    template <unsigned BITS, class DICTIONARY>
    __device__ static __forceinline__ bool decode_by(const DICTIONARY &dictionary, const sw_gpu_head &head,
                                                     const uint8_t *from, sw_stage<BITS> &stage, uint32_t lane,
                                                     uint32_t *x) {
        look_up<BITS>(dictionary, head, from, stage, lane, x);
        if (lane == 0)
            sw_set_value<BITS>(x, 0, 0); /* the vector's first value is the base */
        if (!rest<BITS>(head, from).template patch<BITS, true>(x, stage, lane, [](uint64_t, uint64_t v) { return v; }))
            return false;
        sw_add_up<BITS>(head.base, 0, x, x, lane);
        sw_put_by_turns<BITS>(x, stage, lane);
        return true;
    }
};

/* A codec of these, with the dictionary in the frame. */
template <class CODEC> struct sw_decoder_by_frame : CODEC {
    sw_stored_dictionary dictionary;

    __device__ inline explicit sw_decoder_by_frame(const sw_stored_dictionary &of_frame) : dictionary(of_frame) {}

    template <unsigned BITS>
    __device__ __forceinline__ bool decode(const sw_gpu_head &head, const uint8_t *from, sw_stage<BITS> &stage,
                                           uint32_t lane, uint32_t *x) const {
        return CODEC::template decode_by<BITS>(dictionary, head, from, stage, lane, x);
    }
};
using sw_dict_decoder = sw_decoder_by_frame<sw_dict_codec>;
using sw_radix_decoder = sw_decoder_by_frame<sw_radix_codec>;
using sw_dradix_decoder = sw_decoder_by_frame<sw_dradix_codec>;

#endif
