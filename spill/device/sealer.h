/* sealer.h - a thread that makes and verifies raw frames in host memory (codec/raw_runs.h), one at a time.
 *
 * For a slot of a GPU whose content is moved by copy engines: the hashes are the CPU's work, and too much of it for the
 * worker, on which all slots wait (about 9 GB/s a core). thread: the device's worker, but for what the sealer does. */
#ifndef SW_SPILL_DEVICE_SEALER_H
#define SW_SPILL_DEVICE_SEALER_H

#include "codec/raw_runs.h"
#include "spill/tier/tier.h"

struct sw_sealer;

/* Where a stored frame lies. ret: [frame->n_extents]. thread: any. */
void sw_sealer_runs(struct sw_run *ret, const struct sw_stored *frame);

/* Makes the sealer; its thread starts with the first frame. errors: -SW_ENOMEM. */
int sw_sealer_new(struct sw_sealer **ret, struct sw_err *err);
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

#endif
