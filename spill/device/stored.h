/* stored.h - where a frame lies: runs of bytes, in host memory or elsewhere.
 *
 * A tier or a frame sink hands out these places, and takes them back. A device copies to and from runs in memory. */
#ifndef SW_SPILL_STORED_H
#define SW_SPILL_STORED_H

#include <stdbool.h>
#include <stdint.h>

struct sw_tier;

/* A run of bytes; `memory` is set where the bytes can be addressed. */
struct sw_extent {
    void *memory;
    uint64_t offset, bytes;
};

/* The use of a place. */
enum sw_stored_use {
    SW_STORED_RESTS,     /* the frame stays there */
    SW_STORED_GOES_ON,   /* host memory for a frame in transit, on the spill path */
    SW_STORED_COMES_BACK /* host memory for a frame in transit, on the restore path */
};

/* A reserved or committed frame. owns: the code that reserved it, until release. */
struct sw_stored {
    struct sw_extent *extents; /* in frame order; all but the last are multiples of the tier's block */
    unsigned n_extents;
    uint64_t bytes; /* length of the frame */
    bool committed;
    uint8_t awaits;       /* recovery: id of the recorded kind of tier, until this tier has found the frame; 0: none */
    uint8_t use;          /* enum sw_stored_use */
    struct sw_tier *tier; /* the tier that has it; NULL: empty */
};

/* Returns true if a device can reach the frame, or if there is no frame. */
static inline bool sw_stored_is_in_memory(const struct sw_stored *stored) {
    return stored->n_extents == 0 || stored->extents[0].memory;
}

#endif
