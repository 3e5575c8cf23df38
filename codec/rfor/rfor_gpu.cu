/* rfor_gpu.cu - run lengths and frame of reference on the GPU: the values of a vector's runs in a table in shared
 * memory, from which each lane picks 32 values in a row. */
#include "codec/for/for_gpu.cuh"
#include "codec/rfor/runs_gpu.cuh"

namespace {

struct codec_rfor : sw_integer_codec {
    static constexpr uint32_t KINDS = 1;
    static constexpr bool HAS_SIZES = true, IN_ORDER = true, HAS_STAGE = true;
    static constexpr uint32_t DECODE_BLOCKS = 8;

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
        const sw_gpu_starts s = sw_find_starts<BITS, 0>(x, content.n_values, lane);
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
        const sw_gpu_starts s =
            sw_count_starts(mask >> lane & 1 ? __ldg(words + 1 + sw_lanes_before(mask, lane)) : 0, lane);
        if (1 + __popc(mask) + sw_run_value_words(s.n_runs, head.width) > n_words ||
            !__shfl_sync(0xFFFFFFFFu, s.bits & 1, 0))
            return false;
        uint8_t *table = (uint8_t *)&stage;
        for (uint32_t run = lane; run < s.n_runs; run += SW_WARP)
            sw_store_value<BITS>(table, run, head.base + sw_load_bits<BITS>(words + 1 + __popc(mask), run, head.width));
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
