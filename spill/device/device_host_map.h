/* device_host_map.h - memory that the host device reads and writes: a client's memfd, or memory of this process.
 *
 * A memfd is read and written by system calls, for the reasons in memfd.h. Memory of this process is copied. */
#ifndef SW_SPILL_DEVICE_HOST_MAP_H
#define SW_SPILL_DEVICE_HOST_MAP_H

#include "spill/device/device.h"
#include "spill/device/memfd.h"

/* The operations of device.h. thread: gpu. */
int sw_host_map(struct sw_device *device, const struct sw_mem_desc *desc, struct sw_mapping **ret, struct sw_err *err);
int sw_host_adopt(struct sw_device *device, void *data, uint64_t bytes, struct sw_mapping **ret, struct sw_err *err);
/* No writer has a window of it. */
void sw_host_unmap(struct sw_mapping *mapping);

/* Returns whether the mapping ends with the first run that uses it. */
bool sw_host_is_once(const struct sw_mapping *mapping);

/* Copy from the mapping, and to it. errors: those of sw_memfd_read() and sw_memfd_write(). thread: the slot's. */
int sw_host_read(const struct sw_mapping *mapping, void *to, uint64_t bytes, uint64_t offset, struct sw_err *err);
int sw_host_write(struct sw_memfd_writer *writer, const struct sw_mapping *mapping, const void *from, uint64_t bytes,
                  uint64_t offset, struct sw_err *err);

#endif
