/* host_device.h - an open host device, and chunks that go through its slots; at the end nothing of it is left.
 *
 * For one test program each: its state is static. What does not fit fails the test. thread: one. */
#ifndef SW_TEST_HOST_DEVICE_H
#define SW_TEST_HOST_DEVICE_H

#include "base/alloc.h"
#include "spill/device/device.h"
#include "tests/lib/descriptors.h"

#include <check.h>
#include <string.h>
#include <unistd.h>

enum { CHUNK = 256 << 10 };

static struct sw_device *device;
static struct sw_err err;
static long live;
static unsigned fds;

static inline void setup(void) {
    struct sw_device_config config = {.scratch_bytes = 64 << 20, .n_slots = 2, .chunk_bytes = CHUNK};
    live = sw_alloc_live();
    fds = sw_count_fds();
    ck_assert_int_eq(sw_device_host_open(&device, &config, &err), 0);
}

static inline void teardown(void) {
    device->ops->close(device);
    ck_assert_int_eq(sw_alloc_live(), live);
    ck_assert_uint_eq(sw_count_fds(), fds);
}

/* Encodes a range on slot s and fetches the frame. */
static inline uint64_t encode(unsigned s, const struct sw_mapping *mapping, uint64_t offset, uint64_t bytes,
                              uint8_t *frame) {
    struct sw_slot_result result;
    struct sw_plan plan;
    ck_assert_int_eq(device->ops->make_plan(device, s, SW_VALUE_NONE, false, mapping, offset, bytes, &err), 0);
    ck_assert_int_eq(device->ops->slot_wait(device, s, &result, &err), 0);
    plan = *device->ops->plan(device, s);
    ck_assert_int_eq(device->ops->encode(device, s, &plan, mapping, offset, bytes, &err), 0);
    memset(&plan, 0xEE, sizeof plan); /* it was copied */
    ck_assert_int_eq(device->ops->slot_wait(device, s, &result, &err), 0);
    /* In pieces, more than a queue starts with. */
    for (uint64_t at = 0; at < result.frame.frame_bytes; at += 4096) {
        uint64_t left = result.frame.frame_bytes - at;
        ck_assert_int_eq(device->ops->store(device, s, frame + at, at, left < 4096 ? left : 4096, &err), 0);
    }
    uint64_t frame_bytes = result.frame.frame_bytes;
    ck_assert_int_eq(device->ops->slot_wait(device, s, &result, &err), 0);
    return frame_bytes;
}

#endif
