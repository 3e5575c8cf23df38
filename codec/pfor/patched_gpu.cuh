/* patched_gpu.cuh - chooses which numbers of a vector are packed, for a vector in a warp's registers. See
 * patched_core.h. Internal to codec/. */
#ifndef SW_PFOR_PATCHED_GPU_CUH
#define SW_PFOR_PATCHED_GPU_CUH

#include "codec/alp/exceptions_gpu.cuh"
#include "codec/pfor/patched_core.h"

template <unsigned BITS> using sw_gpu_number = std::conditional_t<BITS == 64, uint64_t, uint32_t>;

template <unsigned BITS> __device__ inline sw_gpu_number<BITS> sw_warp_least(sw_gpu_number<BITS> v) {
    if constexpr (BITS == 64)
        return sw_warp_min64(v);
    else
        return sw_warp_min(v);
}

/* Returns the smallest number of each group of lanes, in all lanes of the group. */
template <unsigned BITS>
__device__ inline sw_gpu_number<BITS> sw_group_least(sw_gpu_number<BITS> v, uint32_t group_lanes) {
    for (uint32_t d = 1; d < group_lanes; d *= 2) {
        if constexpr (BITS == 64)
            v = min(v, (uint64_t)__shfl_xor_sync(0xFFFFFFFFu, (unsigned long long)v, d));
        else
            v = min(v, __shfl_xor_sync(0xFFFFFFFFu, v, d));
    }
    return v;
}

/* A lane's numbers in a window: the smallest, the largest, and how many. */
template <unsigned BITS> struct sw_lane_numbers {
    sw_gpu_number<BITS> least, most;
    uint32_t n;
};

/* Returns a lane's numbers that are there. number(i, &v): gets the lane's number i; false: it is not there. */
template <unsigned BITS, class F> __device__ __forceinline__ sw_lane_numbers<BITS> sw_all_numbers(F number) {
    using word = sw_gpu_number<BITS>;
    sw_lane_numbers<BITS> ret = {(word)~0ull, 0, 0};
#pragma unroll
    for (unsigned i = 0; i < 32; i++) {
        word v;
        const bool is_there = number(i, &v);
        ret.least = min(ret.least, is_there ? v : (word)~0ull);
        ret.most = max(ret.most, is_there ? v : 0);
        ret.n += is_there;
    }
    return ret;
}

/* Returns those that are also in a window, less its beginning. */
template <unsigned BITS, class F>
__device__ __forceinline__ sw_lane_numbers<BITS> sw_numbers_in(const sw_patched_window &in, F number) {
    using word = sw_gpu_number<BITS>;
    const word from = (word)in.from, last = (word)in.last;
    sw_lane_numbers<BITS> ret = {(word)~0ull, 0, 0};
#pragma unroll
    for (unsigned i = 0; i < 32; i++) {
        word v;
        const bool is_there = number(i, &v), is_in = is_there && v - from <= last;
        ret.least = min(ret.least, is_in ? v - from : (word)~0ull);
        ret.most = max(ret.most, is_in ? v - from : 0);
        ret.n += is_in;
    }
    return ret;
}

/* The packed numbers of a vector: all that exist and lie in the window. */
struct sw_gpu_patched {
    sw_patched_window window;
    uint32_t width, n_packed;
};

/* lane: the lane's numbers in the window, less its beginning. */
template <unsigned BITS>
__device__ __forceinline__ sw_gpu_patched sw_packed_in(const sw_patched_window &in, const sw_lane_numbers<BITS> &lane,
                                                       uint64_t best) {
    using word = sw_gpu_number<BITS>;
    const uint32_t n = sw_warp_sum(lane.n);
    const word least = sw_warp_least<BITS>(lane.least), most = ~sw_warp_least<BITS>(~lane.most), from = (word)in.from;
    if (!n)
        return {{0, 0}, 0, 0};
    const sw_patched_window w = sw_patched_window_of(in, (word)(least + from), (word)(most + from), best);
    return {w, sw_width_of(w.last), n};
}

/* Chooses what makes the vector shortest. n: numbers that are packed or become exceptions. best: the best beginning of
 * a window, where there is a choice. */
template <unsigned BITS, class F>
__device__ __forceinline__ sw_gpu_patched sw_choose_patched(uint32_t n, uint64_t best, F number) {
    using word = sw_gpu_number<BITS>;
    const sw_patched_window everything = {0, sw_patched_last(BITS)};
    const sw_lane_numbers<BITS> lane = sw_all_numbers<BITS>(number);
    const word least = sw_warp_least<BITS>(lane.least), most = ~sw_warp_least<BITS>(~lane.most);
    sw_gpu_patched ret = sw_packed_in<BITS>(everything, lane, best);
#pragma unroll 1
    for (uint32_t group_lanes = SW_PATCHED_GROUP_LANES; group_lanes && ret.n_packed; group_lanes /= 4) {
        word low = sw_group_least<BITS>(lane.least, group_lanes), high = ~sw_group_least<BITS>(~lane.most, group_lanes);
        const bool is_empty = low > high;
        low = ~sw_warp_least<BITS>(is_empty ? (word)~0ull : ~low);
        high = sw_warp_least<BITS>(is_empty ? (word)~0ull : high);
        if (low > high || sw_width_of(high - low) >= ret.width)
            continue;
        const sw_patched_window in = sw_patched_window_around(BITS, least, low, high, most);
        const sw_gpu_patched other = sw_packed_in<BITS>(in, sw_numbers_in<BITS>(in, number), best);
        if (sw_patched_units(BITS, other.width, n - other.n_packed) <
            sw_patched_units(BITS, ret.width, n - ret.n_packed))
            ret = other;
    }
    return ret;
}

#endif
