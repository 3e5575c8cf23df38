/* dict_core.h - what a vector of codes takes (dict/FORMAT.md), for host and device alike. thread: any. */
#ifndef SW_DICT_CORE_H
#define SW_DICT_CORE_H

#include "codec/bitpack/bitpack_core.h"
#include "codec/v5t/table.h"

/* The dictionary lies where v5t's symbols do, in a plan and in a frame. */
#define SW_DICT_MAX_VALUES SW_V5T_MAX_SYMBOLS

/* Codes of a packed vector have so many bits at most; of 8-bit values only the first 128 have codes. */
SW_HOST_DEVICE static inline unsigned sw_dict_max_width(unsigned bits) {
    return bits == 8 ? 7 : 8;
}

/* What an exception's value is stored in: places behind them are aligned to 16 bits. */
SW_HOST_DEVICE static inline unsigned sw_dict_stored_bits(unsigned bits) {
    return bits == 8 ? 16 : bits;
}

/* What a packed vector takes, by its tag; more than any content if there is none such. */
SW_HOST_DEVICE static inline unsigned sw_dict_units(unsigned bits, unsigned width, unsigned n_exceptions) {
    const unsigned bytes = n_exceptions * (sw_dict_stored_bits(bits) / 8 + 2);
    if (width > sw_dict_max_width(bits) || n_exceptions > SW_VECTOR_VALUES)
        return ~0u;
    return sw_packed_units(bits, width, 0) + (bytes + SW_UNIT_BYTES - 1) / SW_UNIT_BYTES;
}

#endif
