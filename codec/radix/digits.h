/* digits.h - numbers of digits on the host (FORMAT.md). Digits are those of a vector's lanes, lane after lane, 32 each.
 * thread: any. */
#ifndef SW_RADIX_DIGITS_H
#define SW_RADIX_DIGITS_H

#include "codec/bitpack/bitpack_core.h"
#include <stdbool.h>

/* Writes the sw_radix_packed_units(base) of a vector. */
void sw_digits_pack(const uint8_t digit[SW_VECTOR_VALUES], unsigned base, uint8_t *out);
/* Reads the digits; false: a number is too large. */
bool sw_digits_unpack(const uint8_t *from, unsigned base, uint8_t digit[SW_VECTOR_VALUES]);
/* Returns the bits of 32 digits to a base. */
unsigned sw_digits_bits(unsigned base);

#endif
