/* device_host_raw.h - steps of the host device that make raw frames in a tier's memory, and read them from there.
 *
 * The bytes pass through no buffer of the slot: the client's memory is read into the frame's own room, and hashed
 * there, so that a frame is valid whatever the client does to its memory meanwhile. thread: the slot's. */
#ifndef SW_SPILL_DEVICE_HOST_RAW_H
#define SW_SPILL_DEVICE_HOST_RAW_H

#include "spill/device/device.h"
#include "spill/device/device_host_map.h"

/* Makes the frames of the mapping's bytes. errors: those of sw_host_read(), -SW_ENOMEM. */
int sw_host_raw_spill(const struct sw_mapping *mapping, const struct sw_raw_item *items, unsigned n,
                      struct sw_err *err);
/* Verifies one stored frame after the other and writes its bytes. errors: -SW_ECHECKSUM (nothing of that frame was
 * written), those of sw_host_write(), -SW_ENOMEM. */
int sw_host_raw_restore(struct sw_memfd_writer *writer, const struct sw_mapping *mapping,
                        const struct sw_raw_item *items, unsigned n, struct sw_err *err);

#endif
