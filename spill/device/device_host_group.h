/* device_host_group.h - the host device's steps on groups: many short chunks, each with a frame of its own.
 *
 * Frames lie one after the other in the slot's frame buffer, each with room of sw_group_item_bytes(). Raw bytes pass
 * through the slot's raw buffer, item by item. thread: the slot's. */
#ifndef SW_SPILL_DEVICE_HOST_GROUP_H
#define SW_SPILL_DEVICE_HOST_GROUP_H

#include "spill/device/device.h"
#include "spill/device/device_host_map.h"

/* Reads and encodes each item and fills in its layout. raw: room for the longest item; frames: for all of them. */
int sw_host_group_encode(const struct sw_plan *plan, struct sw_group_item *items, unsigned n, uint8_t *raw,
                         uint8_t *frames, struct sw_err *err);
/* Copies each item's frame to its place in host memory. */
void sw_host_group_store(struct sw_group_item *items, unsigned n, const uint8_t *frames);
/* Copies the frames to their places in the same buffer (device.h: gather_group). */
void sw_host_group_gather(const struct sw_group_item *items, unsigned n, uint8_t *frames);
/* Decodes the frames in the buffer, as sw_host_group_restore() does. */
int sw_host_group_decode(struct sw_group_item *items, unsigned n, const uint8_t *frames, uint8_t *raw,
                         struct sw_memfd_writer *writer, struct sw_err *err);
/* Copies each stored frame to `frame` (room for the longest one), decodes and verifies it, and writes it to its
 * mapping. Marks a bad frame, and writes nothing of it. errors: as sw_host_write(). */
int sw_host_group_restore(struct sw_group_item *items, unsigned n, uint8_t *frame, uint8_t *raw,
                          struct sw_memfd_writer *writer, struct sw_err *err);

#endif
