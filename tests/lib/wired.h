/* wired.h - shared by tests that speak the data protocol by hand: one spillwayd for all tests of a case, a session for
 * each of them, and the proof that the daemon is as sound afterwards as before.
 *
 * Failures fail the test. thread: the one that runs the test. */
#ifndef SW_TEST_WIRED_H
#define SW_TEST_WIRED_H

#include "tests/lib/sound.h"
#include "tests/lib/wire.h"

enum { SW_WIRED_BYTES = 200000 };

/* The case's daemon, of the two functions below: its unchecked fixture. A session may have 8 operations in flight and 8
 * memories. */
extern struct sw_test_daemon sw_wired_daemon;
void sw_wired_start(void);
void sw_wired_stop(void);

/* The test's session, of the two functions below: its checked fixture. */
extern struct sw_wire sw_wired;
void sw_wired_before_each(void);
void sw_wired_after_each(void);

/* Spills SW_WIRED_BYTES of text, and restores them; from and to a memory that is used up by it. */
struct sw_region_id sw_wired_spill(uint64_t seed);
void sw_wired_ck_restores(struct sw_region_id id, uint64_t seed);

#endif
