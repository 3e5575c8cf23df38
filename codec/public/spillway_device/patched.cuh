/* spillway_device/patched.cuh - decodes the codecs pfor and pdfor: packed integers and differences, with exceptions.
 *
 * No part of the API. */
#ifndef SPILLWAY_DEVICE_PATCHED_CUH
#define SPILLWAY_DEVICE_PATCHED_CUH

#include "exceptions.cuh"
#include "for.cuh"

/* The parts of a vector that follow its packed rows: its step, if that is stored, and its exceptions. */
template <unsigned BITS> struct sw_patched_rest {
    uint64_t step;
    sw_stored_exceptions<BITS> exceptions;

    /* plain: the step of vectors that store none. */
    __device__ inline sw_patched_rest(const sw_gpu_head &head, const uint8_t *from, uint64_t plain)
        : step(head.tag & SW_PATCHED_HAS_STEP ? sw_load_value<BITS>(from + head.width * SW_WARP * 4, 0) : plain),
          exceptions(from + head.width * SW_WARP * 4 + sw_patched_step_bytes(BITS, head.tag),
                     sw_alp_exceptions(head.tag)) {}
};

struct sw_patched_codec : sw_float_codec { /* the values may be of any type, but have the lengths of floats */
    static constexpr uint32_t KINDS = 1;
    static constexpr uint32_t DECODE_BLOCKS = 6;

    __device__ static inline uint32_t units(unsigned bits, const sw_gpu_head &head) {
        return sw_patched_units(bits, head.width, head.tag);
    }
};

struct sw_pfor_decoder : sw_patched_codec {
    template <unsigned BITS>
    __device__ static __forceinline__ bool decode(const sw_gpu_head &head, const uint8_t *from, sw_stage<BITS> &stage,
                                                  uint32_t lane, uint32_t *x) {
        const sw_patched_rest<BITS> rest(head, from, 1);
        sw_unpack_vector<BITS>(head.width, from, lane, x);
        if (head.tag & SW_PATCHED_HAS_STEP) {
#pragma unroll
            for (unsigned i = 0; i < 32; i++)
                sw_set_value<BITS>(x, i, sw_get_value<BITS>(x, i) * rest.step);
        }
        sw_add_base<BITS, sw_share<BITS>::VECTOR_WORDS>(x, head.base);
        return rest.exceptions.template patch<BITS>(x, stage, lane, [](uint64_t, uint64_t value) { return value; });
    }
};

struct sw_pdfor_decoder : sw_patched_codec {
    static constexpr bool IN_ORDER = true;

    template <unsigned BITS>
    __device__ static __forceinline__ bool decode(const sw_gpu_head &head, const uint8_t *from, sw_stage<BITS> &stage,
                                                  uint32_t lane, uint32_t *x) {
        const sw_patched_rest<BITS> rest(head, from, 0);
        sw_unpack_vector<BITS>(head.width, from, lane, x);
        if (!rest.exceptions.template patch<BITS, true>(x, stage, lane, [](uint64_t, uint64_t value) { return value; }))
            return false;
        sw_add_up<BITS>(head.base, rest.step, x, x, lane);
        sw_put_by_turns<BITS>(x, stage, lane);
        return true;
    }
};

#endif
