/* radix_gpu.cu - a dictionary whose codes are digits to a base, on the GPU. finder_gpu.cuh says how codes are found. */
#include "codec/dict/finder_gpu.cuh"

namespace {

/* Returns the number of a word's four digits. */
__device__ inline uint32_t number_of(uint32_t codes, uint32_t base) {
    uint32_t number = 0;
#pragma unroll
    for (unsigned k = 4; k-- > 0;) {
        const uint32_t code = codes >> 8 * k & 0xFF;
        number = number * base + (code == SW_NO_CODE ? 0 : code);
    }
    return number;
}

/* Writes numbers of `width` bits, one of each lane, to `width` words. */
__device__ inline void store_row(uint32_t number, uint32_t width, uint32_t *to, uint32_t lane) {
    const uint32_t from = 32 * lane / max(width, 1u); /* the lane whose number has word `lane`'s lowest bit */
    const uint32_t shift = 32 * lane - from * width;  /* the bits of it that are in the word before */
    uint32_t word = 0;
    for (uint32_t k = 0; k * width < 32 + width && width; k++) { /* the same number of rounds in all lanes */
        const uint32_t other = __shfl_sync(0xFFFFFFFFu, number, from + k);
        if (k == 0)
            word = other >> shift;
        else if (k * width - shift < 32 && from + k < SW_WARP)
            word |= other << (k * width - shift);
    }
    if (lane < width)
        to[lane] = word;
}

struct codec_radix : sw_codec_of_codes<sw_radix_codec> {
    template <unsigned BITS>
    __device__ static __forceinline__ sw_gpu_head measure(const uint32_t *x, const sw_gpu_content &content,
                                                          uint32_t lane) {
        const sw_gpu_codes codes = sw_find_codes<BITS>(x, content, lane);
        sw_gpu_head head = {};
        if (codes.n_exceptions <= SW_RADIX_MAX_EXCEPTIONS)
            head.tag = codes.n_exceptions << 8 | (codes.most + 1);
        head.units = units(BITS, head);
        return head;
    }

    template <unsigned BITS>
    __device__ static __forceinline__ void store(const uint32_t *x, const sw_gpu_head &head,
                                                 const sw_gpu_content &content, uint8_t *to, sw_stage<BITS> &,
                                                 uint32_t lane) {
        const uint32_t base = sw_radix_base(head.tag), width = sw_radix_width(base);
        put_exceptions<BITS>(x, head, content, to, lane);
        const auto number = [&](unsigned w) { return number_of(sw_codes<BITS>(content.vector, w, lane), base); };
        if (base < 16) {
            const uint32_t fourth = base * base * base * base;
            for (unsigned i = 0; i < 4; i++)
                store_row(number(2 * i + 1) * fourth + number(2 * i), width, (uint32_t *)to + i * width, lane);
        } else {
            for (unsigned i = 0; i < 8; i++)
                store_row(number(i), width, (uint32_t *)to + i * width, lane);
        }
    }

    template <unsigned BITS>
    __device__ static __forceinline__ void put_exceptions(const uint32_t *x, const sw_gpu_head &head,
                                                          const sw_gpu_content &content, uint8_t *to, uint32_t lane) {
        constexpr unsigned PER_UNIT = 128 / BITS;
        sw_gpu_exceptions<BITS> rest(to + sw_radix_packed_units(sw_radix_base(head.tag)) * SW_UNIT_BYTES,
                                     sw_radix_exceptions(head.tag));
        if (!rest.n)
            return;
#pragma unroll
        for (unsigned i = 0; i < 32; i += PER_UNIT) {
            const uint32_t codes = sw_codes<BITS>(content.vector, i / 4, lane) >> 8 * (i % 4);
            uint32_t bad = 0;
#pragma unroll
            for (unsigned k = 0; k < PER_UNIT; k++)
                bad |= (uint32_t)((codes >> 8 * k & 0xFF) == SW_NO_CODE) << k;
            rest.template put<BITS>(i, bad, lane, [&](unsigned k) { return sw_get_value<BITS>(x, i + k); });
        }
        rest.pad(to + head.units * SW_UNIT_BYTES, lane);
    }
};

} // namespace

SW_NUMBERS_LAUNCHERS(radix, codec_radix);
