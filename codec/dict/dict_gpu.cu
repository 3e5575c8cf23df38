/* dict_gpu.cu - dictionary on the GPU. finder_gpu.cuh says how codes are found. Decoding (dictionary.cuh) takes a load
 * from shared memory for each value. Exceptions are patched as in codecs of floats. */
#include "codec/dict/finder_gpu.cuh"

namespace {

struct codec_dict : sw_codec_of_codes<sw_dict_codec> {
    template <unsigned BITS>
    __device__ static __forceinline__ sw_gpu_head measure(const uint32_t *x, const sw_gpu_content &content,
                                                          uint32_t lane) {
        const sw_gpu_codes codes = sw_find_codes_of_values<BITS>(x, content, lane);
        sw_gpu_head head = {0, 0, sw_width_of(codes.most), 0, codes.n_exceptions};
        head.units = units(BITS, head);
        return head;
    }

    template <unsigned BITS>
    __device__ static __forceinline__ void store(uint32_t *x, const sw_gpu_head &head, const sw_gpu_content &content,
                                                 uint8_t *to, sw_stage<BITS> &, uint32_t lane) {
        constexpr unsigned PER_UNIT = shape<BITS>::PER_UNIT;
        sw_gpu_exceptions<shape<BITS>::STORED> rest(to + head.width * SW_WARP * 4, head.tag);
#pragma unroll
        for (unsigned i = 0; i < 32; i += PER_UNIT) {
            uint32_t code[PER_UNIT], bad = 0;
#pragma unroll
            for (unsigned k = 0; k < PER_UNIT; k++) {
                code[k] = sw_codes<BITS>(content.vector, (i + k) / 4, lane) >> 8 * ((i + k) % 4) & 0xFF;
                bad |= (uint32_t)(code[k] == SW_NO_CODE) << k;
            }
            if (rest.n)
                rest.template put<BITS>(i, bad, lane, [&](unsigned k) { return sw_get_value<BITS>(x, i + k); });
#pragma unroll
            for (unsigned k = 0; k < PER_UNIT; k++)
                sw_set_value<BITS>(x, i + k, code[k] == SW_NO_CODE ? 0 : code[k]);
        }
        rest.pad(to + head.units * SW_UNIT_BYTES, lane);
        sw_pack_rows<shape<BITS>::FIELD, shape<BITS>::STEP, shape<BITS>::MAX_WIDTH>(head.width, x, to, lane);
    }
};

} // namespace

SW_NUMBERS_LAUNCHERS(dict, codec_dict);
