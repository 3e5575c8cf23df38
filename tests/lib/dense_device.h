/* dense_device.h - a plan with a dictionary on a device, as the mover uses it: for tests of devices.
 *
 * Failures fail the test. thread: the one that runs the test. */
#ifndef SW_TEST_DENSE_DEVICE_H
#define SW_TEST_DENSE_DEVICE_H

#include "spill/device/device.h"

/* Makes a plan from the mapping `from`, which holds `text`, encodes its first chunk_bytes on slot 1, and decodes the
 * frame on the host, and on slot 0 to the beginning of the mapping `to`. Encodes again by a dictionary of the text's
 * second half, which is another one, a few bytes, which have no room for a dictionary, and a group of chunks of which
 * one has none. arena: pinned, with room for a chunk's frame. The caller compares the beginning of `to` with the chunk.
 */
void sw_dense_device_ck(struct sw_device *device, struct sw_mapping *from, struct sw_mapping *to, const uint8_t *text,
                        uint64_t bytes, uint64_t chunk_bytes, uint8_t *arena);

#endif
