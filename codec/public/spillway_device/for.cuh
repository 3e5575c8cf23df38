/* spillway_device/for.cuh - decodes the codecs for, dfor, rfor and sfor: packed integers, differences, runs and
 * sequences.
 *
 * No part of the API. */
#ifndef SPILLWAY_DEVICE_FOR_CUH
#define SPILLWAY_DEVICE_FOR_CUH

#include "vectors.cuh"

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

#endif
