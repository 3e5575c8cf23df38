/* transfer.h - a spill or a restore of the engine, as an argument.
 *
 *     sw_engine_spill(owner, SW_TRANSFER(&range, 1, .name = "orders"), done, &op, &id, &err);
 */
#ifndef SW_TESTS_TRANSFER_H
#define SW_TESTS_TRANSFER_H

#include "spill/engine.h"

#define SW_TRANSFER(ranges_, n_, ...) (&(const struct sw_transfer){.ranges = (ranges_), .n = (n_), __VA_ARGS__})

#endif
