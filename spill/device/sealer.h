/* sealer.h - threads that make and verify raw frames in host memory (codec/raw_runs.h), one frame at a time.
 *
 * For a slot of a GPU whose content is moved by copy engines: the hashes are the CPU's work, and too much of it for the
 * worker, on which all slots wait. thread: the device's worker. */
#ifndef SW_SPILL_DEVICE_SEALER_H
#define SW_SPILL_DEVICE_SEALER_H

#include "codec/raw_runs.h"
#include "spill/tier/tier.h"

enum { SW_SEALER_MAX_THREADS = 4 };

struct sw_sealer;

/* Makes the sealer of n_threads (1 … SW_SEALER_MAX_THREADS), which start with the first frame. errors: -SW_ENOMEM. */
int sw_sealer_new(struct sw_sealer **ret, unsigned n_threads, struct sw_err *err);
/* Waits for what was begun. NULL is a no-op. */
void sw_sealer_free(struct sw_sealer *sealer);

enum sw_sealer_work { SW_SEALER_SEAL, SW_SEALER_VERIFY };

/* Begins; nothing may be under way. frame: its extents stay as they are until it has ended. layout: as raw_runs.h wants
 * it for that work. errors: -SW_ENOMEM. */
int sw_sealer_begin(struct sw_sealer *sealer, enum sw_sealer_work work, const struct sw_frame_layout *layout,
                    const struct sw_stored *frame, struct sw_err *err);
/* True if nothing is under way. */
bool sw_sealer_ended(struct sw_sealer *sealer);
/* Waits until nothing is. */
void sw_sealer_wait(struct sw_sealer *sealer);
/* Tiles that the last work, if it was a verification, found bad. Nothing may be under way. */
uint32_t sw_sealer_bad_tiles(struct sw_sealer *sealer);

/* The runs of a frame; ret has room for its extents. thread: any. */
void sw_sealer_runs(struct sw_run *ret, const struct sw_stored *frame);

#endif
