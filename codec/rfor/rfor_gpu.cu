/* rfor_gpu.cu - run lengths and frame of reference on the GPU: the values of a vector's runs in a table in shared
 * memory, from which each lane picks 32 values in a row. */
#include "codec/for/for_gpu.cuh"

namespace {

/* Where the runs of a lane's 32 values in a row begin, and how many begin in lanes before it. */
struct starts {
    uint32_t bits, first_run;
    uint32_t mask;   /* of the lanes in which runs begin */
    uint32_t n_runs; /* of the vector */
};

__device__ inline starts count_starts(uint32_t bits, uint32_t lane) {
    const uint32_t n = __popc(bits);
    return {bits, sw_warp_exclusive_sum(n, lane), __ballot_sync(0xFFFFFFFFu, bits != 0), sw_warp_sum(n)};
}

template <unsigned BITS>
__device__ __forceinline__ starts find_starts(const uint32_t *x, uint32_t n_values, uint32_t lane) {
    uint64_t before = sw_value_before<BITS>(x);
    uint32_t bits = 0;
#pragma unroll
    for (unsigned i = 0; i < 32; i++) {
        const uint64_t now = sw_get_value<BITS>(x, i);
        bits |= (uint32_t)(now != before) << i;
        before = now;
    }
    const uint32_t there = n_values > lane * 32 ? sw_low_bits(min(32u, n_values - lane * 32)) : 0;
    return count_starts(lane ? bits & there : (bits & there) | 1, lane);
}

__device__ inline uint32_t value_words(uint32_t n_runs, uint32_t width) {
    return (n_runs * width + 31) / 32;
}

__device__ inline uint32_t run_words(const starts &s, uint32_t width) {
    return 1 + __popc(s.mask) + value_words(s.n_runs, width);
}

__device__ inline uint32_t lanes_before(uint32_t mask, uint32_t lane) {
    return __popc(mask & sw_low_bits(lane));
}

/* Number `run` of a stream of numbers of `width` bits. */
template <unsigned BITS> __device__ inline uint64_t load_bits(const uint32_t *words, uint32_t run, uint32_t width) {
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

/* Word `i` of a stream of n numbers of `width` bits. */
template <unsigned BITS>
__device__ inline uint32_t make_word(const uint8_t *table, uint32_t n, uint32_t width, uint32_t i) {
    uint32_t word = 0;
    for (uint32_t run = 32 * i / width; run < n && run * width < 32 * i + 32; run++) {
        const uint64_t v = sw_load_value<BITS>(table, run);
        const int shift = (int)(run * width) - (int)(32 * i);
        word |= (uint32_t)(shift < 0 ? v >> -shift : v << shift);
    }
    return word;
}

struct codec_rfor : sw_integer_codec {
    static constexpr uint32_t KINDS = 1;
    static constexpr bool HAS_SIZES = true, IN_ORDER = true, HAS_STAGE = true;
    static constexpr uint32_t DECODE_BLOCKS = 8;

    template <unsigned BITS>
    __device__ static __forceinline__ sw_gpu_head measure(const uint32_t *x, const sw_gpu_content &content,
                                                          uint32_t lane) {
        sw_gpu_head head = sw_for_measure<BITS>(x, content);
        const uint32_t words = run_words(find_starts<BITS>(x, content.n_values, lane), head.width);
        head.units = min(head.units, (words + 3) / 4);
        return head;
    }

    template <unsigned BITS>
    __device__ static __forceinline__ void store(uint32_t *x, const sw_gpu_head &head, const sw_gpu_content &content,
                                                 uint8_t *to, sw_stage<BITS> &stage, uint32_t lane) {
        if (!is_runs<BITS>(head)) {
            sw_put_by_turns<BITS>(x, stage, lane);
            sw_for_store<BITS>(x, head, to, lane);
            return;
        }
        uint8_t *table = (uint8_t *)&stage;
        const starts s = find_starts<BITS>(x, content.n_values, lane);
        uint32_t run = s.first_run;
#pragma unroll
        for (unsigned i = 0; i < 32; i++)
            if (s.bits >> i & 1)
                sw_store_value<BITS>(table, run++, sw_get_value<BITS>(x, i) - head.base);
        __syncwarp();
        uint32_t *out = (uint32_t *)to, *values = out + 1 + __popc(s.mask);
        if (lane == 0)
            out[0] = s.mask;
        if (s.bits)
            out[1 + lanes_before(s.mask, lane)] = s.bits;
        for (uint32_t i = lane; i < value_words(s.n_runs, head.width); i += SW_WARP)
            values[i] = make_word<BITS>(table, s.n_runs, head.width, i);
        const uint32_t end = run_words(s, head.width);
        if (lane < (0u - end) % 4)
            out[end + lane] = 0; /* padding to 16 bytes */
        __syncwarp();
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
        const starts s = count_starts(mask >> lane & 1 ? __ldg(words + 1 + lanes_before(mask, lane)) : 0, lane);
        if (1 + __popc(mask) + value_words(s.n_runs, head.width) > n_words || !__shfl_sync(0xFFFFFFFFu, s.bits & 1, 0))
            return false;
        uint8_t *table = (uint8_t *)&stage;
        for (uint32_t run = lane; run < s.n_runs; run += SW_WARP)
            sw_store_value<BITS>(table, run, head.base + load_bits<BITS>(words + 1 + __popc(mask), run, head.width));
        __syncwarp();
        uint32_t next = s.first_run; /* only the first lane's first value has none before it, and it begins one */
#pragma unroll
        for (unsigned i = 0; i < 32; i++) {
            next += s.bits >> i & 1;
            sw_set_value<BITS>(x, i, sw_load_value<BITS>(table, next - 1));
        }
        __syncwarp();
        sw_put_by_turns<BITS>(x, stage, lane);
        return true;
    }

  private:
    /* As on the host: whatever takes less than packed by `for`, or than all bits. */
    template <unsigned BITS> __device__ static inline bool is_runs(const sw_gpu_head &head) {
        return head.width == BITS || head.units < sw_packed_units(BITS, head.width, 0);
    }
};

} // namespace

SW_NUMBERS_LAUNCHERS(rfor, codec_rfor);
