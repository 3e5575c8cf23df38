#include "codec/radix/digits.h"

#include <string.h>

void sw_digits_pack(const uint8_t digit[SW_VECTOR_VALUES], unsigned base, uint8_t *out) {
    const unsigned digits = sw_radix_digits(base), width = sw_radix_width(base);
    memset(out, 0, (size_t)sw_radix_packed_units(base) * SW_UNIT_BYTES);
    for (unsigned number = 0; number < SW_VECTOR_VALUES / digits; number++) {
        const unsigned lane = number % SW_VECTOR_LANES, row = number / SW_VECTOR_LANES, at = number * width;
        uint64_t v = 0;
        for (unsigned i = digits; i-- > 0;)
            v = v * base + digit[lane * 32 + row * digits + i];
        v <<= at % 8;
        for (uint8_t *to = out + at / 8; v; to++, v >>= 8)
            *to |= (uint8_t)v;
    }
}

bool sw_digits_unpack(const uint8_t *from, unsigned base, uint8_t digit[SW_VECTOR_VALUES]) {
    const unsigned digits = sw_radix_digits(base), width = sw_radix_width(base);
    for (unsigned number = 0; number < SW_VECTOR_VALUES / digits; number++) {
        const unsigned lane = number % SW_VECTOR_LANES, row = number / SW_VECTOR_LANES, at = number * width;
        uint64_t v = 0;
        memcpy(&v, from + at / 8, (at + width + 7) / 8 - at / 8);
        v = v >> at % 8 & (((uint64_t)1 << width) - 1);
        for (unsigned i = 0; i < digits; i++, v /= base)
            digit[lane * 32 + row * digits + i] = (uint8_t)(v % base);
        if (v)
            return false;
    }
    return true;
}

unsigned sw_digits_bits(unsigned base) {
    return 32 / sw_radix_digits(base) * sw_radix_width(base);
}
