/* packed_columns.h - columns for packing, for each of which its own codec is chosen; the types have the numbers of
 * spillway.h. */
#ifndef SW_TEST_PACKED_COLUMNS_H
#define SW_TEST_PACKED_COLUMNS_H

#include "spillway_packed.h"
#include "tests/lib/numbers.h"

static const struct {
    enum sw_value_type type;
    enum sw_numbers kind;
    unsigned bits;
    enum spillway_codec codec;
} sw_packed_columns[] = {{SW_VALUE_U8, SW_NUMBERS_UNIFORM, 3, SPILLWAY_CODEC_FOR},
                         {SW_VALUE_I16, SW_NUMBERS_UNIFORM, 9, SPILLWAY_CODEC_FOR},
                         {SW_VALUE_I32, SW_NUMBERS_UNIFORM, 11, SPILLWAY_CODEC_FOR},
                         {SW_VALUE_I64, SW_NUMBERS_UNIFORM, 37, SPILLWAY_CODEC_FOR},
                         {SW_VALUE_U32, SW_NUMBERS_SORTED, 2, SPILLWAY_CODEC_DFOR},
                         {SW_VALUE_I64, SW_NUMBERS_SORTED, 3, SPILLWAY_CODEC_DFOR},
                         {SW_VALUE_U32, SW_NUMBERS_RUNS, 15, SPILLWAY_CODEC_RFOR},
                         {SW_VALUE_I64, SW_NUMBERS_RUNS, 15, SPILLWAY_CODEC_RFOR},
                         {SW_VALUE_F32, SW_NUMBERS_UNIFORM, 11, SPILLWAY_CODEC_ALP},
                         {SW_VALUE_F64, SW_NUMBERS_RARE, 12, SPILLWAY_CODEC_ALP},
                         {SW_VALUE_F32, SW_NUMBERS_REALS, 3, SPILLWAY_CODEC_ALPRD},
                         {SW_VALUE_F64, SW_NUMBERS_REALS, 3, SPILLWAY_CODEC_ALPRD},
                         {SW_VALUE_U8, SW_NUMBERS_FEW, 1, SPILLWAY_CODEC_DICT},
                         {SW_VALUE_I16, SW_NUMBERS_FEW, 2, SPILLWAY_CODEC_DICT},
                         {SW_VALUE_U32, SW_NUMBERS_FEW, 7, SPILLWAY_CODEC_DICT},
                         {SW_VALUE_F64, SW_NUMBERS_FEW, 5, SPILLWAY_CODEC_DICT},
                         {SW_VALUE_I32, SW_NUMBERS_STEPS, 12, SPILLWAY_CODEC_SFOR},
                         {SW_VALUE_U64, SW_NUMBERS_STEPS, 15, SPILLWAY_CODEC_SFOR},
                         {SW_VALUE_I32, SW_NUMBERS_OUTLIER, 12, SPILLWAY_CODEC_PFOR},
                         {SW_VALUE_I64, SW_NUMBERS_MULTIPLES, 12, SPILLWAY_CODEC_PFOR},
                         {SW_VALUE_U32, SW_NUMBERS_SENTINEL, 8, SPILLWAY_CODEC_PDFOR},
                         {SW_VALUE_I64, SW_NUMBERS_SENTINEL, 7, SPILLWAY_CODEC_PDFOR},
                         {SW_VALUE_I64, SW_NUMBERS_ODD, 3, SPILLWAY_CODEC_RADIX},
                         {SW_VALUE_F32, SW_NUMBERS_ODD, 6, SPILLWAY_CODEC_RADIX},
                         {SW_VALUE_U32, SW_NUMBERS_ORDERS, 0, SPILLWAY_CODEC_DRADIX},
                         {SW_VALUE_I64, SW_NUMBERS_ORDERS, 0, SPILLWAY_CODEC_DRADIX},
                         {SW_VALUE_I64, SW_NUMBERS_UNIFORM, 64, SPILLWAY_CODEC_RAW}};
enum { SW_N_PACKED_COLUMNS = sizeof sw_packed_columns / sizeof sw_packed_columns[0] };

#endif
