/* spillway_device/alp.cuh - decodes the codecs alp and alprd: floating-point numbers as decimals, or cut in two parts.
 *
 * No part of the API. */
#ifndef SPILLWAY_DEVICE_ALP_CUH
#define SPILLWAY_DEVICE_ALP_CUH

#include "exceptions.cuh"

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

#endif
