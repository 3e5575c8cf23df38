/* spillway_device/exceptions.cuh - the values of a packed vector that do not fit its width. No part of the API. */
#ifndef SPILLWAY_DEVICE_EXCEPTIONS_CUH
#define SPILLWAY_DEVICE_EXCEPTIONS_CUH

#include "vectors.cuh"

/* A packed vector's exceptions: n values of STORED bits each, then their places. For a whole warp. Lanes hold units by
 * turns, and each lane handles its own share of the exceptions. */
template <unsigned STORED> struct sw_stored_exceptions {
    const uint8_t *value;
    const uint16_t *place;
    uint32_t n;

    __device__ inline sw_stored_exceptions(const uint8_t *at, uint32_t number)
        : value(at), place((const uint16_t *)(at + number * (STORED / 8))), n(number) {}

    /* Finds the exception at place `at`; false: there is none. For a single thread. */
    __device__ inline bool find(uint32_t at, uint64_t *ret) const {
        uint32_t i = 0; /* exceptions before it have lower places */
        for (uint32_t left = n; left;) {
            const uint32_t half = left / 2;
            const bool is_lower = place[i + half] < at;
            i += is_lower ? half + 1 : 0;
            left = is_lower ? left - half - 1 : half;
        }
        const bool is_stored = i < n && place[i] == at;
        if (is_stored)
            *ret = sw_load_value<STORED>(value, i);
        return is_stored;
    }

    /* Replaces each value of x that is an exception by merge(value, the exception); false: a place is not in the
     * vector. IN_ORDER: lanes hold values in a row instead of units by turns. */
    template <unsigned BITS, bool IN_ORDER = false, class F>
    __device__ __forceinline__ bool patch(uint32_t *x, sw_stage<BITS> &stage, uint32_t lane, F merge) const {
        uint4 *unit = (uint4 *)&stage;
        bool is_good = true;
        if (!n)
            return true;
#pragma unroll
        for (uint32_t u = 0; u < stage.LANE_UNITS; u++)
            unit[u * SW_WARP + lane] = sw_unit_of(x + 4 * u);
        __syncwarp();
        for (uint32_t i = lane; i < n; i += SW_WARP) {
            const uint32_t found = place[i], at = IN_ORDER ? sw_value_place(BITS, found % 32, found / 32) : found;
            if (found < SW_VECTOR_VALUES)
                sw_store_value<BITS>((uint8_t *)unit, at,
                                     merge(sw_load_value<BITS>((uint8_t *)unit, at), sw_load_value<STORED>(value, i)));
            else
                is_good = false;
        }
        is_good = __all_sync(0xFFFFFFFFu, is_good);
        __syncwarp();
#pragma unroll
        for (uint32_t u = 0; u < stage.LANE_UNITS; u++)
            sw_unit_to(x + 4 * u, unit[u * SW_WARP + lane]);
        __syncwarp();
        return is_good;
    }
};

#endif
