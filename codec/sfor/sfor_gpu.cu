/* sfor_gpu.cu - sequences and frame of reference on the GPU: what the sequences of a vector begin with stands in a
 * table in shared memory, to which each lane adds how far its 32 values in a row are from there. */
#include "codec/rfor/runs_gpu.cuh"

namespace {

/* Words of a vector's first value. */
template <unsigned BITS> constexpr uint32_t FIRST_WORDS = BITS == 64 ? 2 : 1;

template <unsigned BITS> __device__ inline uint32_t all_words(const sw_run_starts &s, uint32_t width) {
    return 1 + __popc(s.mask) + FIRST_WORDS<BITS> + sw_run_value_words(s.n_runs - 1, width);
}

/* Where in its vector the sequence begins that a lane's first value is in, unless it begins one. */
__device__ inline uint32_t begun_before(const sw_run_starts &s, uint32_t lane) {
    uint32_t last = s.bits ? 32 * lane + 31 - (uint32_t)__clz((int)s.bits) : 0;
#pragma unroll
    for (uint32_t d = 1; d < SW_WARP; d *= 2)
        last = max(last, __shfl_up_sync(0xFFFFFFFFu, last, d)); /* lanes that have none before them get their own */
    return __shfl_up_sync(0xFFFFFFFFu, last, 1);
}

struct codec_sfor : sw_integer_codec {
    static constexpr uint32_t KINDS = 1;
    static constexpr bool HAS_TAGS = true, HAS_SIZES = false, IN_ORDER = true, HAS_STAGE = true;
    static constexpr uint32_t DECODE_BLOCKS = 6; /* with 8 some registers would not fit */

    /* A vector says itself how long it is. */
    __device__ static inline uint32_t units(unsigned, const sw_gpu_head &head) {
        return head.tag;
    }

    template <unsigned BITS>
    __device__ static __forceinline__ sw_gpu_head measure(const uint32_t *x, const sw_gpu_content &content,
                                                          uint32_t lane) {
        using number = std::conditional_t<BITS == 64, uint64_t, uint32_t>;
        const sw_run_starts s = sw_find_starts<BITS, 1>(x, content.n_values, lane);
        number least = (number)~0ull, most = 0;
#pragma unroll
        for (unsigned i = 0; i < 32; i++) {
            const number in_order = (number)(sw_get_value<BITS>(x, i) ^ content.flip);
            const bool counts = (s.bits >> i & 1) && (i || lane);
            least = counts ? min(least, in_order) : least;
            most = counts ? max(most, in_order) : most;
        }
        sw_gpu_head head = {};
        if (s.n_runs > 1) { /* the same for all lanes */
            const uint64_t low = warp_min<BITS>(least), high = (number)~warp_min<BITS>((number)~most);
            head.base = low ^ content.flip;
            head.width = sw_width_of(high - low);
        }
        head.tag = (all_words<BITS>(s, head.width) + 3) / 4;
        head.units = head.width == BITS ? ~0u : head.tag; /* that width marks content */
        return head;
    }

    template <unsigned BITS>
    __device__ static __forceinline__ void store(uint32_t *x, const sw_gpu_head &head, const sw_gpu_content &content,
                                                 uint8_t *to, sw_stage<BITS> &stage, uint32_t lane) {
        uint8_t *table = (uint8_t *)&stage;
        const sw_run_starts s = sw_find_starts<BITS, 1>(x, content.n_values, lane);
        uint32_t run = s.first_run;
#pragma unroll
        for (unsigned i = 0; i < 32; i++)
            if (s.bits >> i & 1)
                sw_store_value<BITS>(table, run++, sw_get_value<BITS>(x, i) - head.base);
        __syncwarp();
        uint32_t *out = (uint32_t *)to, *first = out + 1 + __popc(s.mask);
        if (lane == 0) {
            const uint64_t value = sw_get_value<BITS>(x, 0);
            out[0] = s.mask;
            first[0] = (uint32_t)value;
            if (BITS == 64)
                first[1] = (uint32_t)(value >> 32);
        }
        if (s.bits)
            out[1 + sw_lanes_before(s.mask, lane)] = s.bits;
        for (uint32_t i = lane; i < sw_run_value_words(s.n_runs - 1, head.width); i += SW_WARP)
            first[FIRST_WORDS<BITS> + i] = sw_make_word<BITS>(table + BITS / 8, s.n_runs - 1, head.width, i);
        const uint32_t end = all_words<BITS>(s, head.width);
        if (lane < (0u - end) % 4)
            out[end + lane] = 0; /* padding to 16 bytes */
        __syncwarp();
    }

    template <unsigned BITS>
    __device__ static __forceinline__ bool decode(const sw_gpu_head &head, const uint8_t *from, sw_stage<BITS> &stage,
                                                  uint32_t lane, uint32_t *x) {
        const uint32_t *words = (const uint32_t *)from;
        const uint32_t n_words = 4 * head.units;
        if (n_words == 0) /* the same for all lanes */
            return false;
        const uint32_t mask = __ldg(words), *first = words + 1 + __popc(mask);
        if (1 + __popc(mask) > n_words)
            return false;
        const sw_run_starts s =
            sw_count_starts(mask >> lane & 1 ? __ldg(words + 1 + sw_lanes_before(mask, lane)) : 0, lane);
        if (!__shfl_sync(0xFFFFFFFFu, s.bits & 1, 0) ||
            1 + __popc(mask) + FIRST_WORDS<BITS> + sw_run_value_words(s.n_runs - 1, head.width) > n_words)
            return false;
        uint8_t *table = (uint8_t *)&stage;
        for (uint32_t run = lane; run < s.n_runs; run += SW_WARP)
            sw_store_value<BITS>(table, run,
                                 run ? head.base + sw_load_bits<BITS>(first + FIRST_WORDS<BITS>, run - 1, head.width)
                                     : sw_load_bits<BITS>(first, 0, BITS));
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
    template <unsigned BITS, class NUMBER> __device__ static inline NUMBER warp_min(NUMBER v) {
        if constexpr (BITS == 64)
            return sw_warp_min64(v);
        else
            return __reduce_min_sync(0xFFFFFFFFu, v);
    }
};

} // namespace

SW_NUMBERS_LAUNCHERS(sfor, codec_sfor);
