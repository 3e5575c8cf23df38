/* spillway_device/dictionary.cuh - decodes the codecs dict, radix and dradix: values by a dictionary in the frame.
 *
 * No part of the API. */
#ifndef SPILLWAY_DEVICE_DICTIONARY_CUH
#define SPILLWAY_DEVICE_DICTIONARY_CUH

#include "exceptions.cuh"
#include "for.cuh"
#include <type_traits>

/* ---- codec dict ---- */

template <unsigned BITS>
using sw_value_of =
    std::conditional_t<BITS == 64, uint64_t,
                       std::conditional_t<BITS == 32, uint32_t, std::conditional_t<BITS == 16, uint16_t, uint8_t>>>;

/* A frame's dictionary, in the frame. */
struct sw_stored_dictionary {
    static constexpr bool IS_STAGED = true;
    const uint64_t *values;
    uint32_t n;

    /* Returns a code's value; all bits are set if the code has none. */
    template <unsigned BITS> __device__ inline sw_value_of<BITS> get(uint32_t code) const {
        return code < n ? __ldg((const sw_value_of<BITS> *)(values + code)) : (sw_value_of<BITS>)~0ull;
    }

    /* Makes a table of the values of the first codes in shared memory. A lane has no registers for 32 addresses. */
    template <unsigned BITS>
    __device__ inline const sw_value_of<BITS> *by_code(sw_stage<BITS> &stage, uint32_t n_codes, uint32_t lane) const {
        sw_value_of<BITS> *table = (sw_value_of<BITS> *)&stage;
        for (uint32_t code = lane; code < n_codes; code += SW_WARP)
            table[code] = get<BITS>(code);
        __syncwarp();
        return table;
    }
};

/* The common part of encoder and decoder, which get at the dictionary in different ways. */
struct sw_dict_codec : sw_integer_codec {
    static constexpr uint32_t KINDS = 0;
    static constexpr bool HAS_TAGS = true, HAS_SIZES = false, IN_ORDER = false, HAS_STAGE = true;
    static constexpr uint32_t DECODE_BLOCKS = 6;

    /* The layout of codes and exceptions. Codes of 64-bit values have upper halves of zero, which are not packed. */
    template <unsigned BITS> struct shape {
        static constexpr unsigned FIELD = BITS == 64 ? 32 : BITS, STEP = BITS / FIELD;
        static constexpr unsigned MAX_WIDTH = BITS == 8 ? 7 : 8, STORED = BITS == 8 ? 16 : BITS;
        static constexpr unsigned PER_UNIT = 128 / BITS;
    };

    __device__ static inline uint32_t units(unsigned bits, const sw_gpu_head &head) {
        return sw_dict_units(bits, head.width, head.tag);
    }

    template <unsigned BITS, class DICTIONARY>
    __device__ static __forceinline__ bool decode_by(const DICTIONARY &dictionary, const sw_gpu_head &head,
                                                     const uint8_t *from, sw_stage<BITS> &stage, uint32_t lane,
                                                     uint32_t *x) {
        constexpr unsigned PER_UNIT = shape<BITS>::PER_UNIT;
        const sw_stored_exceptions<shape<BITS>::STORED> rest(from + head.width * SW_WARP * 4, head.tag);
        const sw_value_of<BITS> *values = dictionary.template by_code<BITS>(stage, 1u << head.width, lane);
        sw_unpack_rows<shape<BITS>::FIELD, shape<BITS>::STEP, shape<BITS>::MAX_WIDTH>(head.width, from, lane, x);
#pragma unroll
        for (unsigned i = 0; i < 32; i += PER_UNIT) {
            uint32_t code[PER_UNIT];
#pragma unroll
            for (unsigned k = 0; k < PER_UNIT; k++) /* read all codes before the first value overwrites one */
                code[k] = x[(i + k) * BITS / 32] >> (i + k) * BITS % 32 & 0xFF;
#pragma unroll
            for (unsigned k = 0; k < PER_UNIT; k++)
                sw_set_value<BITS>(x, i + k, values[code[k]]);
        }
        if (DICTIONARY::IS_STAGED)
            __syncwarp();
        return rest.template patch<BITS>(x, stage, lane, [](uint64_t, uint64_t value) { return value; });
    }
};

/* ---- codec radix ---- */

/* Divides numbers by `by`, which is at least 1. A product with its inverse is at most one too small. */
struct sw_divider {
    uint32_t by, inverse;

    __device__ inline explicit sw_divider(uint32_t divisor) : by(divisor), inverse(~0u / divisor) {}

    /* Returns the quotient, and replaces the number by the rest. */
    __device__ inline uint32_t divide(uint32_t *number) const {
        uint32_t quotient = __umulhi(*number, inverse), rest = *number - quotient * by;
        if (rest >= by) {
            quotient++;
            rest -= by;
        }
        *number = rest;
        return quotient;
    }
};

/* The common part of encoder and decoder. */
struct sw_radix_codec : sw_float_codec { /* the values may be of any type, but have the lengths of floats */
    static constexpr uint32_t KINDS = 0;
    static constexpr bool TAGS_ALONE = true;
    static constexpr uint32_t DECODE_BLOCKS = 6;

    __device__ static inline uint32_t units(unsigned bits, const sw_gpu_head &head) {
        return sw_radix_units(bits, head.tag);
    }

    /* Unpacks a lane's digits: those of its values 4 i ... 4 i + 3 are in the bytes of word i. All are below the base.
     */
    __device__ static __forceinline__ void unpack(uint32_t base, const uint8_t *from, uint32_t lane,
                                                  uint32_t (&digits)[8]) {
        const sw_divider one(base), two(base * base), four(base < 16 ? two.by * two.by : 1);
        if (base < 16) {
#pragma unroll
            for (uint32_t i = 0; i < 8; i += 2) {
                uint32_t low = number(base, from, i / 2, lane);
                const uint32_t high = four.divide(&low);
                digits[i] = four_digits(one, two, low);
                digits[i + 1] = four_digits(one, two, high);
            }
        } else {
#pragma unroll
            for (uint32_t i = 0; i < 8; i++)
                digits[i] = four_digits(one, two, number(base, from, i, lane));
        }
    }

    /* Unpacks a lane's 32 values by their digits. */
    template <unsigned BITS, class DICTIONARY>
    __device__ static __forceinline__ void look_up(const DICTIONARY &dictionary, const sw_gpu_head &head,
                                                   const uint8_t *from, sw_stage<BITS> &stage, uint32_t lane,
                                                   uint32_t *x) {
        const uint32_t base = sw_radix_base(head.tag);
        const sw_value_of<BITS> *values = dictionary.template by_code<BITS>(stage, base, lane);
        uint32_t digits[8];
        unpack(base, from, lane, digits);
#pragma unroll
        for (unsigned i = 0; i < 32; i++)
            sw_set_value<BITS>(x, i, values[digits[i / 4] >> i % 4 * 8 & 0xFF]);
        if (DICTIONARY::IS_STAGED)
            __syncwarp();
    }

    template <unsigned BITS, class DICTIONARY>
    __device__ static __forceinline__ bool decode_by(const DICTIONARY &dictionary, const sw_gpu_head &head,
                                                     const uint8_t *from, sw_stage<BITS> &stage, uint32_t lane,
                                                     uint32_t *x) {
        look_up<BITS>(dictionary, head, from, stage, lane, x);
        return rest<BITS>(head, from).template patch<BITS>(x, stage, lane, [](uint64_t, uint64_t v) { return v; });
    }

    template <unsigned BITS>
    __device__ static inline sw_stored_exceptions<BITS> rest(const sw_gpu_head &head, const uint8_t *from) {
        return {from + sw_radix_packed_units(sw_radix_base(head.tag)) * SW_UNIT_BYTES, sw_radix_exceptions(head.tag)};
    }

    /* Returns number i of a lane. */
    __device__ static inline uint32_t number(uint32_t base, const uint8_t *from, uint32_t i, uint32_t lane) {
        const uint32_t width = sw_radix_width(base);
        return min((uint32_t)sw_load_bits<32>((const uint32_t *)from + i * width, lane, width), sw_radix_most(base));
    }

  private:
    __device__ static inline uint32_t four_digits(const sw_divider &one, const sw_divider &two, uint32_t low) {
        uint32_t high = two.divide(&low);
        const uint32_t second = one.divide(&low), fourth = one.divide(&high);
        return low | second << 8 | high << 16 | fourth << 24;
    }
};

/* Differences of neighbors in place of values. */
struct sw_dradix_codec : sw_radix_codec {
    static constexpr uint32_t KINDS = 1;
    static constexpr bool IN_ORDER = true;

    template <unsigned BITS, class DICTIONARY>
    __device__ static __forceinline__ bool decode_by(const DICTIONARY &dictionary, const sw_gpu_head &head,
                                                     const uint8_t *from, sw_stage<BITS> &stage, uint32_t lane,
                                                     uint32_t *x) {
        look_up<BITS>(dictionary, head, from, stage, lane, x);
        if (lane == 0)
            sw_set_value<BITS>(x, 0, 0); /* the vector's first value is the base */
        if (!rest<BITS>(head, from).template patch<BITS, true>(x, stage, lane, [](uint64_t, uint64_t v) { return v; }))
            return false;
        sw_add_up<BITS>(head.base, 0, x, x, lane);
        sw_put_by_turns<BITS>(x, stage, lane);
        return true;
    }
};

/* A codec of these, with the dictionary in the frame. */
template <class CODEC> struct sw_decoder_by_frame : CODEC {
    sw_stored_dictionary dictionary;

    __device__ inline explicit sw_decoder_by_frame(const sw_stored_dictionary &of_frame) : dictionary(of_frame) {}

    template <unsigned BITS>
    __device__ __forceinline__ bool decode(const sw_gpu_head &head, const uint8_t *from, sw_stage<BITS> &stage,
                                           uint32_t lane, uint32_t *x) const {
        return CODEC::template decode_by<BITS>(dictionary, head, from, stage, lane, x);
    }
};
using sw_dict_decoder = sw_decoder_by_frame<sw_dict_codec>;
using sw_radix_decoder = sw_decoder_by_frame<sw_radix_codec>;
using sw_dradix_decoder = sw_decoder_by_frame<sw_dradix_codec>;

#endif
