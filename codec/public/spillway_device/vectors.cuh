/* spillway_device/vectors.cuh - vectors of numbers in a warp's registers, and where a tile stores them
 * (codec/bitpack/FORMAT.md).
 *
 * A codec is a struct with the constants that sw_load_head() reads, and decode() for sw_decode_vector(). No part of the
 * API. */
#ifndef SPILLWAY_DEVICE_VECTORS_CUH
#define SPILLWAY_DEVICE_VECTORS_CUH

#include "bits.h"
#include "memory.cuh"
#include "warp.cuh"

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

/* Returns whether a vector, of whose content `bytes` exist, is encoded. If not, its content is stored. */
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

#endif
