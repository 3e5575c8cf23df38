/* rfor_gpu.cu - runs and frame of reference on the GPU. The values of a vector's runs are in a table in shared memory,
 * from which each lane takes 32 values in a row. */
#include "codec/for/for_gpu.cuh"
#include "codec/rfor/runs_gpu.cuh"

namespace {

struct codec_rfor : sw_rfor_decoder {
    template <unsigned BITS>
    __device__ static __forceinline__ sw_gpu_head measure(const uint32_t *x, const sw_gpu_content &content,
                                                          uint32_t lane) {
        sw_gpu_head head = sw_for_measure<BITS>(x, content);
        const uint32_t words = sw_run_words(sw_find_starts<BITS, 0>(x, content.n_values, lane), head.width);
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
        const sw_run_starts s = sw_find_starts<BITS, 0>(x, content.n_values, lane);
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
            out[1 + sw_lanes_before(s.mask, lane)] = s.bits;
        for (uint32_t i = lane; i < sw_run_value_words(s.n_runs, head.width); i += SW_WARP)
            values[i] = sw_make_word<BITS>(table, s.n_runs, head.width, i);
        const uint32_t end = sw_run_words(s, head.width);
        if (lane < (0u - end) % 4)
            out[end + lane] = 0; /* padding to 16 bytes */
        __syncwarp();
    }
};

} // namespace

SW_NUMBERS_LAUNCHERS(rfor, codec_rfor);
