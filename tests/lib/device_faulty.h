/* device_faulty.h - a device whose steps fail on request; everything else is done by the device that it wraps. What the
 * engine's tests run on (engine_fixture.h), and a daemon in which things fail (faulted.h). thread: any. */
#ifndef SW_TEST_DEVICE_FAULTY_H
#define SW_TEST_DEVICE_FAULTY_H

#include "spill/device/device.h"

enum sw_fault {
    SW_FAULT_AT_ONCE, /* the call returns `code` */
    SW_FAULT_LATE,    /* the step is left out, slot_poll / slot_wait report `code` */
    SW_FAULT_DONE     /* the step does all its work, then slot_poll / slot_wait report `code` */
};

/* Owns the inner device, which is closed with it. errors: -SW_ENOMEM; the inner device is then still the caller's. */
int sw_device_faulty_open(struct sw_device **ret, struct sw_device *inner, struct sw_err *err);
/* The n-th call (1 = next) of the named operation ("map", "pin", "encode", "store", "load", "place", "fetch", "decode",
 * "unpack", "make_plan", "encode_group", "store_group", "restore_group", "gather_group", "decode_group", "spill_raw",
 * "restore_raw", "take_frames", "give_frames", "verify_frame"; "unmap" is never failed) fails in the given way. nth 0
 * disarms. With `code` -SW_EAGAIN the slot hangs instead until sw_device_faulty_release(), and with SW_FAULT_LATE the
 * named step itself is left out; a "pin" with -SW_EAGAIN waits for it, too, and then takes place. */
void sw_device_faulty_arm(struct sw_device *faulty, const char *operation, unsigned nth, int code, enum sw_fault fault);
/* Returns true while a slot hangs. */
bool sw_device_faulty_hangs(struct sw_device *faulty);
/* Releases hanging steps. */
void sw_device_faulty_release(struct sw_device *faulty);

#endif
