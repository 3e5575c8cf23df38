/* ids.h - how regions and owners are named outside the engine, and the states of a region. thread: any, no state. */
#ifndef SW_SPILL_IDS_H
#define SW_SPILL_IDS_H

#include <stdint.h>

enum {
    SW_TOKEN_BYTES = 16,       /* by which a client resumes its session */
    SW_REGION_NAME_BYTES = 64, /* name of a durable region, including the zero at its end */
};

/* A region id, as a client holds it. `slot` is an index in the region table. `gen` rises whenever the index is used for
 * a new region, so an old id never names another region. Using an old id gives -SW_ESTALE; -SW_ENOENT if another owner
 * has used the index since, or after a restart. */
struct sw_region_id {
    uint32_t slot, gen;
};

/*   IN -> STAGING -> ENCODING -> STORING -> OUT -> RESTORING -> IN
 *
 * A failed spill returns to IN, a failed restore to OUT. RESTORING becomes LOST when the stored copy is proved bad, OUT
 * becomes LOST when a restart does not find all of it. After a finished, failed or restored spill a region that is IN
 * is forgotten, and its table entry is free. Exception: a region that was restored shortly before a predecessor died is
 * found IN, because its client may not have been informed. */
enum sw_region_state {
    SW_REGION_IN,
    SW_REGION_STAGING,  /* queued; memory is not mapped yet, or sample and plan are being made */
    SW_REGION_ENCODING, /* chunks are being encoded */
    SW_REGION_STORING,  /* the last chunk is encoded, frames are still in transit to the tier */
    SW_REGION_OUT,
    SW_REGION_RESTORING,
    SW_REGION_LOST,
    SW_REGION_STATE_NR
};
/* Returns the state's name, such as "out". */
const char *sw_region_state_name(enum sw_region_state state);

/* The tier that is reported for packed regions, which are in no tier. */
#define SW_PACKED_TIER_NAME "device"

#endif
