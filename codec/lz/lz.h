/* lz.h - plans of lz, which is used by name only: no plan that is chosen is one. thread: any. */
#ifndef SW_LZ_H
#define SW_LZ_H

#include "codec/codec.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Makes a plan of lz; its expected_ratio is 1. window: how many symbols back matches reach, 32, 64, 128 or 255; 0: 255
 * for bytes, 32 for others. type: not SW_VALUE_NONE. */
void sw_plan_init_lz(struct sw_plan *ret, enum sw_value_type type, unsigned window);

#ifdef __cplusplus
}
#endif
#endif
