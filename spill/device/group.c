#include "spill/device/device.h"

#define ALIGN_BYTES 256

uint64_t sw_group_item_bytes(uint64_t raw_bytes) {
    return (sw_frame_bound_bytes(raw_bytes) + ALIGN_BYTES - 1) / ALIGN_BYTES * ALIGN_BYTES;
}
