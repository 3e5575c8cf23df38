/* device_host_raw.h - steps of the host device that make raw frames in a tier's memory, and read them from there.
 *
 * The bytes pass through no buffer of the slot: the memfd is read into the frame's own room, and hashed there, so that
 * a frame is valid whatever the client does to its memory meanwhile. thread: the slot's. */
#ifndef SW_SPILL_DEVICE_HOST_RAW_H
#define SW_SPILL_DEVICE_HOST_RAW_H

#include "codec/frame.h"
#include "spill/tier/tier.h"

/* Makes a frame of the memfd's bytes from `offset` on. layout: of sw_frame_layout_init() for the raw codec; to: room
 * for exactly that frame. errors: those of sw_memfd_read, -SW_ENOMEM. */
int sw_host_raw_spill(int fd, uint64_t offset, const struct sw_frame_layout *layout, const struct sw_stored *to,
                      struct sw_err *err);
/* Verifies a stored frame and writes its bytes. errors: -SW_ECHECKSUM (nothing was written), those of sw_memfd_write,
 * -SW_ENOMEM. */
int sw_host_raw_restore(int fd, uint64_t offset, const struct sw_frame_layout *layout, const struct sw_stored *from,
                        struct sw_err *err);

#endif
