/* lz.h - makes plans for lz. Planning chooses this codec only where time hardly counts (plan/planning.h). thread: any.
 */
#ifndef SW_LZ_H
#define SW_LZ_H

#include "codec/codec.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Makes a plan for lz; its expected_ratio is 1. window: the longest distance of matches, in symbols: 32, 64, 128 or
 * 255; 0: 255 for symbols of one byte, 32 for others. type: not SW_VALUE_NONE. */
void sw_plan_init_lz(struct sw_plan *ret, enum sw_value_type type, unsigned window);

#ifdef __cplusplus
}
#endif
#endif
