/* device_host_raw.h - the host device's steps on raw frames in a tier's memory.
 *
 * The bytes bypass the slot's buffers: the client's memory is read into the frame's place, and hashed there. So the
 * frame is valid whatever the client does to its memory meanwhile. thread: the slot's. */
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
