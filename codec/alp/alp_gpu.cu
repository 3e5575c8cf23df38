/* alp_gpu.cu - floats as decimals on the GPU.
 *
 * The host divides by powers of ten. The GPU computes number / 10^p as fma(number, h, number * l), without a branch. h
 * is 1 / 10^p, rounded; l is the rest of 1 / 10^p, rounded. The result is the correctly rounded quotient:
 *
 *   - Let numbers have b bits, and floats b bits of fraction. b is 53 and p at most 18, or b is 24 and p at most 9.
 *   - The distance from number / 10^p to the middle between two floats is a multiple of 1 / (2 * 5^p) of the last
 *     place. So unless it is 0, it is more than the error, which is at most 2^(2 - b) of the last place.
 *
 * The compiler must not contract these operations, hence the intrinsics.
 *
 * Exceptions are patched in shared memory; each lane patches its share of them. */
#include "codec/alp/alp_core.h"
#include "codec/alp/exceptions_gpu.cuh"

namespace {

/* The factors, by the choice of decimal places. */
__constant__ const double powers[SW_ALP_F64_CHOICES] = {1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1e0, 1e1,  1e2,
                                                        1e3,  1e4,  1e5,  1e6,  1e7,  1e8,  1e9, 1e10, 1e11,
                                                        1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18};
template <unsigned BITS> struct scale;

template <> struct scale<64> : sw_alp_down<64> {
    double up;

    __device__ inline explicit scale(uint32_t choice) : sw_alp_down<64>(choice), up(powers[choice]) {}

    /* Returns whether the value can be stored as a number. */
    __device__ inline bool number(uint64_t value_bits, int64_t *ret) const {
        const double v = __longlong_as_double((long long)value_bits);
        const uint64_t rounded = (uint64_t)__double_as_longlong(__dadd_rn(__dmul_rn(v, up), SW_ALP_ROUND));
        *ret = (int64_t)(rounded - SW_ALP_ROUND_BITS);
        return rounded >> 52 == SW_ALP_ROUND_TOP && value((uint64_t)*ret) == value_bits;
    }
};

template <> struct scale<32> : sw_alp_down<32> {
    double up;

    __device__ inline explicit scale(uint32_t choice) : sw_alp_down<32>(choice), up(powers[choice]) {}

    __device__ inline bool number(uint64_t value_bits, int64_t *ret) const {
        const double v = (double)__uint_as_float((uint32_t)value_bits);
        const uint64_t n =
            (uint64_t)__double_as_longlong(__dadd_rn(__dmul_rn(v, up), SW_ALP_ROUND)) - SW_ALP_ROUND_BITS;
        *ret = (int32_t)(uint32_t)n;
        return n + (1ull << 31) < 1ull << 32 && value(n) == value_bits;
    }
};

/* A choice of decimal places, and the smallest and largest number that it makes from the sampled values; least > most:
 * it makes no number. */
struct choice {
    uint32_t number;
    int64_t least, most;
};

/* Converts floats to integers of the same order, and back. */
__device__ inline int in_order(float v) {
    const int bits = __float_as_int(v);
    return bits ^ (bits >> 31 & INT32_MAX);
}
__device__ inline float from_order(int i) {
    return __int_as_float(i ^ (i >> 31 & INT32_MAX));
}

/* Finds the choice with the lowest cost for one value of each lane. Lane c counts for choice c. */
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
        const int low = sw_warp_min(is_exact ? at : INT32_MAX);
        const int high = sw_warp_max(is_exact ? at : INT32_MIN);
        exceptions = lane == i ? n : exceptions;
        least = lane == i ? low : least;
        most = lane == i ? high : most;
    }
    const float range = exceptions < SW_WARP ? __fsub_rn(from_order(most), from_order(least)) : 0;
    const uint32_t cost = sw_alp_cost(BITS, exceptions, __float_as_uint(range));
    const uint32_t best = sw_warp_min(lane < sw_alp_choices(BITS) ? cost << 5 | lane : ~0u) % SW_WARP;
    const bool is_exact = scale<BITS>(best).number(v, &number);
    const int64_t none = BITS == 64 ? INT64_MAX : INT32_MAX;
    return {best, sw_warp_min_signed<BITS>(is_exact ? number : none),
            ~sw_warp_min_signed<BITS>(is_exact ? ~number : none)};
}

struct codec_alp : sw_alp_decoder {
    /* Makes the head of a vector whose numbers in a window are packed; the others are exceptions. */
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
            const bool is_there = sw_value_place(BITS, i, lane) < n_values,
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
        for (int turn = 0; turn < 2; turn++) { /* first all exact numbers, then only numbers near the sampled ones */
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
                const bool is_there = sw_value_place(BITS, i + k, lane) < content.n_values;
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
};

} // namespace

SW_NUMBERS_LAUNCHERS(alp, codec_alp);
