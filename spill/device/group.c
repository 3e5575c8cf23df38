#include "spill/device/device.h"

uint64_t sw_group_item_bytes(uint64_t raw_bytes) {
    return (sw_frame_bound_bytes(raw_bytes) + 255) / 256 * 256;
}
