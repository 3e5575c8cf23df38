/* alp_gpu.cu - floats as decimals on the GPU.
 *
 * The host divides by powers of ten. Here number / 10^p is fma(number, h, number * l), where h is 1 / 10^p, rounded,
 * and l what is left of it, rounded: no branch, two roundings to hide. That is the quotient, correctly rounded, because
 * number / 10^p cannot lie close to the middle m between two floats without being one: for numbers of b bits and floats
 * of b bits of fraction the distance, a multiple of 1 / (2 * 5^p) of the last place, is more than the error, which is
 * at most 2^(2 - b) of it: b is 53 and p up to 18, or 24 and up to 9. Nothing here may be contracted, hence the
 * intrinsics.
 *
 * Exceptions are patched in shared memory, each lane its share of them. */
#include "codec/alp/alp_core.h"
#include "codec/alp/exceptions_gpu.cuh"

namespace {

struct inverse64 {
    double high, low;
};
struct inverse32 {
    float high, low;
};

/* By choice of decimal places. */
__constant__ const double powers[SW_ALP_F64_CHOICES] = {1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1e0, 1e1,  1e2,
                                                        1e3,  1e4,  1e5,  1e6,  1e7,  1e8,  1e9, 1e10, 1e11,
                                                        1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18};
__constant__ const inverse64 inverses64[SW_ALP_F64_CHOICES] = {
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
__constant__ const inverse32 inverses32[SW_ALP_F32_CHOICES] = {
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

template <unsigned BITS> struct scale;

template <> struct scale<64> {
    double up;
    inverse64 down;

    __device__ inline explicit scale(uint32_t choice) : up(powers[choice]), down(inverses64[choice]) {}

    __device__ inline uint64_t value(uint64_t number) const {
        const double n = __dadd_rn(__longlong_as_double((long long)(number + SW_ALP_ROUND_BITS)), -SW_ALP_ROUND);
        return (uint64_t)__double_as_longlong(__fma_rn(n, down.high, __dmul_rn(n, down.low)));
    }

    /* Whether the value is a number's. */
    __device__ inline bool number(uint64_t value_bits, int64_t *ret) const {
        const double v = __longlong_as_double((long long)value_bits);
        const uint64_t rounded = (uint64_t)__double_as_longlong(__dadd_rn(__dmul_rn(v, up), SW_ALP_ROUND));
        *ret = (int64_t)(rounded - SW_ALP_ROUND_BITS);
        return rounded >> 52 == SW_ALP_ROUND_TOP && value((uint64_t)*ret) == value_bits;
    }
};

template <> struct scale<32> {
    double up;
    inverse32 down;

    __device__ inline explicit scale(uint32_t choice) : up(powers[choice]), down(inverses32[choice]) {}

    __device__ inline uint64_t value(uint64_t number) const {
        const float n = __int2float_rn((int)(uint32_t)number);
        return __float_as_uint(__fmaf_rn(n, down.high, __fmul_rn(n, down.low)));
    }

    __device__ inline bool number(uint64_t value_bits, int64_t *ret) const {
        const double v = (double)__uint_as_float((uint32_t)value_bits);
        const uint64_t n =
            (uint64_t)__double_as_longlong(__dadd_rn(__dmul_rn(v, up), SW_ALP_ROUND)) - SW_ALP_ROUND_BITS;
        *ret = (int32_t)(uint32_t)n;
        return n + (1ull << 31) < 1ull << 32 && value(n) == value_bits;
    }
};

/* A choice of decimal places, and the numbers that it makes of the sampled values, least and most of them; least > most
 * if it makes none. */
struct choice {
    uint32_t number;
    int64_t least, most;
};

/* As integers of the same order, and back. */
__device__ inline int in_order(float v) {
    const int bits = __float_as_int(v);
    return bits ^ (bits >> 31 & INT32_MAX);
}
__device__ inline float from_order(int i) {
    return __int_as_float(i ^ (i >> 31 & INT32_MAX));
}

/* The choice that is cheapest for a value of each lane; lane c keeps the books of choice c. */
template <unsigned BITS> __device__ __forceinline__ choice choose(const uint32_t *x, uint32_t lane) {
    const uint64_t v = sw_sampled_value<BITS>(x, lane);
    uint32_t exceptions = SW_WARP;
    int least = 0, most = 0;
    int64_t number;
#pragma unroll 1
    for (uint32_t i = 0; i < sw_alp_choices(BITS); i++) {
        const bool is_exact = scale<BITS>(i).number(v, &number);
        const uint32_t n = __popc(__ballot_sync(0xFFFFFFFFu, !is_exact));
        const int at = in_order(__ll2float_rn(number));
        const int low = __reduce_min_sync(0xFFFFFFFFu, is_exact ? at : INT32_MAX);
        const int high = __reduce_max_sync(0xFFFFFFFFu, is_exact ? at : INT32_MIN);
        exceptions = lane == i ? n : exceptions;
        least = lane == i ? low : least;
        most = lane == i ? high : most;
    }
    const float range = exceptions < SW_WARP ? __fsub_rn(from_order(most), from_order(least)) : 0;
    const uint32_t cost = sw_alp_cost(BITS, exceptions, __float_as_uint(range));
    const uint32_t best =
        __reduce_min_sync(0xFFFFFFFFu, lane < sw_alp_choices(BITS) ? cost << 5 | lane : ~0u) % SW_WARP;
    const bool is_exact = scale<BITS>(best).number(v, &number);
    const int64_t none = BITS == 64 ? INT64_MAX : INT32_MAX;
    return {best, sw_warp_min_signed<BITS>(is_exact ? number : none),
            ~sw_warp_min_signed<BITS>(is_exact ? ~number : none)};
}

struct codec_alp : sw_float_codec {
    static constexpr uint32_t KINDS = 1;
    static constexpr uint32_t DECODE_BLOCKS = 6;

    __device__ static inline uint32_t units(unsigned bits, const sw_gpu_head &head) {
        return sw_alp_units(bits, head.width, head.tag);
    }

    /* The head of a vector of which the numbers in a window are packed. */
    template <unsigned BITS>
    __device__ static __forceinline__ sw_gpu_head head_of(const uint32_t *x, uint32_t choice, uint32_t n_values,
                                                          sw_alp_window in, uint32_t lane) {
        using integer = std::conditional_t<BITS == 64, int64_t, int32_t>;
        constexpr integer GREATEST = BITS == 64 ? (integer)INT64_MAX : (integer)INT32_MAX;
        const scale<BITS> s(choice);
        const int64_t end = in.from + (1ll << in.width) - 1;
        const integer from = (integer)max(in.from, (int64_t)~GREATEST), to = (integer)min(end, (int64_t)GREATEST);
        integer least = GREATEST, most = ~GREATEST;
        uint32_t n = 0;
#pragma unroll
        for (unsigned i = 0; i < 32; i++) {
            int64_t number;
            const bool is_exact = s.number(sw_get_value<BITS>(x, i), &number);
            const bool is_there = sw_alp_place(BITS, i, lane) < n_values,
                       is_kept = is_exact && number >= from && number <= to;
            least = is_kept && is_there ? min(least, (integer)number) : least;
            most = is_kept && is_there ? max(most, (integer)number) : most;
            n += !is_kept && is_there;
        }
        n = sw_warp_sum(n);
        const int64_t low = sw_warp_min_signed<BITS>(least), high = ~sw_warp_min_signed<BITS>(~(int64_t)most);
        const sw_alp_window packed = n < n_values ? sw_alp_window_of(in, low, high) : sw_alp_window{0, 0};
        sw_gpu_head head = {(uint64_t)packed.from, 0, packed.width, 0, sw_alp_tag(choice, n)};
        head.units = units(BITS, head);
        return head;
    }

    template <unsigned BITS>
    __device__ static __forceinline__ sw_gpu_head measure(const uint32_t *x, const sw_gpu_content &content,
                                                          uint32_t lane) {
        const choice c = choose<BITS>(x, lane);
        sw_alp_window in = {-(1ll << 52), 54};
        sw_gpu_head best = {0, 0, 0, ~0u, 0};
#pragma unroll 1
        for (int turn = 0; turn < 2; turn++) { /* all exact numbers, then those around the sampled ones */
            const sw_gpu_head head = head_of<BITS>(x, c.number, content.n_values, in, lane);
            best = turn == 0 || head.units < best.units ? head : best;
            if (c.least > c.most)
                break;
            in = sw_alp_window_around(c.least, c.most);
            if (best.width < in.width)
                break;
        }
        return best;
    }

    template <unsigned BITS>
    __device__ static __forceinline__ void store(uint32_t *x, const sw_gpu_head &head, const sw_gpu_content &content,
                                                 uint8_t *to, sw_stage<BITS> &, uint32_t lane) {
        constexpr unsigned PER_UNIT = 128 / BITS;
        const scale<BITS> s(sw_alp_choice(head.tag));
        const sw_alp_window packed = {(int64_t)head.base, head.width};
        sw_gpu_exceptions<BITS> rest(to + head.width * SW_WARP * 4, sw_alp_exceptions(head.tag));
#pragma unroll
        for (unsigned i = 0; i < 32; i += PER_UNIT) {
            int64_t number[PER_UNIT];
            uint32_t bad = 0, kept = 0;
#pragma unroll
            for (unsigned k = 0; k < PER_UNIT; k++) {
                const bool is_exact = s.number(sw_get_value<BITS>(x, i + k), &number[k]);
                const bool is_kept = is_exact && sw_alp_is_in(packed, number[k]);
                const bool is_there = sw_alp_place(BITS, i + k, lane) < content.n_values;
                bad |= (uint32_t)(!is_kept && is_there) << k;
                kept |= (uint32_t)(is_kept && is_there) << k;
            }
            if (rest.n)
                rest.template put<BITS>(i, bad, lane, [&](unsigned k) { return sw_get_value<BITS>(x, i + k); });
#pragma unroll
            for (unsigned k = 0; k < PER_UNIT; k++)
                sw_set_value<BITS>(x, i + k, kept >> k & 1 ? (uint64_t)number[k] - head.base : 0);
        }
        rest.pad(to + head.units * SW_UNIT_BYTES, lane);
        sw_pack_vector<BITS, BITS == 64 ? 52 : 31>(head.width, x, to, lane);
    }

    template <unsigned BITS>
    __device__ static __forceinline__ bool decode(const sw_gpu_head &head, const uint8_t *from, sw_stage<BITS> &stage,
                                                  uint32_t lane, uint32_t *x) {
        const scale<BITS> s(sw_alp_choice(head.tag));
        const sw_gpu_exceptions<BITS> rest((uint8_t *)from + head.width * SW_WARP * 4, sw_alp_exceptions(head.tag));
        sw_unpack_vector<BITS, BITS == 64 ? 52 : 31>(head.width, from, lane, x);
#pragma unroll
        for (unsigned i = 0; i < 32; i++)
            sw_set_value<BITS>(x, i, s.value(sw_get_value<BITS>(x, i) + head.base));
        return rest.template patch<BITS>(x, stage, lane, [](uint64_t, uint64_t value) { return value; });
    }
};

} // namespace

SW_NUMBERS_LAUNCHERS(alp, codec_alp);
