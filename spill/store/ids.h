/* ids.h - by what regions and owners are known outside, and the states of a region. thread: any, no state. */
#ifndef SW_SPILL_IDS_H
#define SW_SPILL_IDS_H

#include <stdint.h>

enum {
    SW_TOKEN_BYTES = 16,       /* of a session that may come back */
    SW_REGION_NAME_BYTES = 64, /* of a durable region, with the zero behind it */
};

/* What a client holds. `gen` rises whenever the slot is reused: a stale id gives -SW_ESTALE, never a neighbour;
 * -SW_ENOENT once somebody else has the slot, or after a restart. */
struct sw_region_id {
    uint32_t slot, gen;
};

/*   IN -> STAGING -> ENCODING -> STORING -> OUT -> RESTORING -> IN     a failed spill falls back to IN, a failed
 * restore to OUT; RESTORING -> LOST when the stored copy is proved bad, OUT -> LOST when a restart finds that not all
 * of it is there. IN regions of a finished, failed or restored spill are forgotten: their slot is free. But a region
 * that was restored shortly before a predecessor died is found IN: its client may not have been told. */
enum sw_region_state {
    SW_REGION_IN,
    SW_REGION_STAGING,  /* queued, memory not yet mapped, or sample and plan being made */
    SW_REGION_ENCODING, /* chunks are being encoded */
    SW_REGION_STORING,  /* last chunk encoded, frames still on their way to the tier */
    SW_REGION_OUT,
    SW_REGION_RESTORING,
    SW_REGION_LOST,
    SW_REGION_STATE_NR
};
const char *sw_region_state_name(enum sw_region_state state);

/* Where packed regions are said to be, which are in no tier. */
#define SW_PACKED_TIER_NAME "device"

#endif
