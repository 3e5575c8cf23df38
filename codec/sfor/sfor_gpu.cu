/* sfor_gpu.cu - sequences and frame of reference on the GPU: measures and stores vectors. for.cuh has the decoder.
 */
#include "codec/rfor/runs_gpu.cuh"

namespace {

struct codec_sfor : sw_sfor_decoder {
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
        head.units = head.width == BITS ? ~0u : head.tag; /* this width means that the content is stored */
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

  private:
    template <unsigned BITS> __device__ static inline uint32_t all_words(const sw_run_starts &s, uint32_t width) {
        return words<BITS>(__popc(s.mask), s.n_runs, width);
    }

    template <unsigned BITS, class NUMBER> __device__ static inline NUMBER warp_min(NUMBER v) {
        if constexpr (BITS == 64)
            return sw_warp_min64(v);
        else
            return sw_warp_min(v);
    }
};

} // namespace

SW_NUMBERS_LAUNCHERS(sfor, codec_sfor);
