/* stored.h - where a frame lies: runs of bytes, in host memory or elsewhere.
 *
 * Whoever keeps frames (a tier, a frame sink) hands such places out and takes them back; a device copies to and from
 * the runs that are memory. */
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

/* What the place is for. */
enum sw_stored_use {
    SW_STORED_RESTS,     /* the frame stays there */
    SW_STORED_GOES_ON,   /* host memory of a frame on its way out: it goes on from there */
    SW_STORED_COMES_BACK /* the same of one on its way back */
};

/* A reserved or committed frame. owns: whoever reserved it, until release. */
struct sw_stored {
    struct sw_extent *extents; /* in frame order; all but the last are multiples of the tier's block */
    unsigned n_extents;
    uint64_t bytes; /* length of the frame */
    bool committed;
    uint8_t awaits; /* id of the kind of tier that a catalogue says has it, and that has not said so yet; 0: none */
    uint8_t use;    /* enum sw_stored_use */
    struct sw_tier *tier; /* whose it is; NULL: empty */
};

/* Whether a device can reach the frame, or there is none. */
static inline bool sw_stored_is_in_memory(const struct sw_stored *stored) {
    return stored->n_extents == 0 || stored->extents[0].memory;
}

#endif
