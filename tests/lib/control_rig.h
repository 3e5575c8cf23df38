/* control_rig.h - for tests of the control socket: a daemon, a connection to its control socket, and a client with
 * memory to spill.
 *
 * What fails, fails the test. thread: the one that runs the test. */
#ifndef SW_TEST_CONTROL_RIG_H
#define SW_TEST_CONTROL_RIG_H

#include "ipc/spillway.h"
#include "tests/lib/control.h"

enum { SW_RIG_BYTES = 1 << 20 };

extern struct sw_control_rig {
    const char *spillwayd; /* the program; main() sets it */
    struct sw_test_daemon served;
    struct spillway *client;
    struct sw_ctl *ctl;
    struct spillway_error error;
    uint8_t *data; /* a memfd's, SW_RIG_BYTES long */
} sw_rig;

/* The checked fixture. */
void sw_rig_setup(void);
void sw_rig_teardown(void);

/* The daemon and its control socket; stop: also the client. */
void sw_rig_start(const char *const *options);
void sw_rig_stop(void);
/* Starts another daemon, for one test or for those that follow. */
void sw_rig_start_anew(const char *const *options);

/* Spills the first bytes of the data. Returns 0, or the code of sw_rig.error. */
int sw_rig_try_spill(size_t bytes, struct spillway_region *ret);
/* The same, which must go well. */
struct spillway_region sw_rig_spill(size_t bytes);
/* Restores all data. Returns 0, or the code of sw_rig.error. */
int sw_rig_restore(struct spillway_region region);

/* A member of an answer: a text, "(none)" if there is none; a number, which must be there. */
const char *sw_rig_text(const json_t *object, const char *name);
long long sw_rig_number(const json_t *object, const char *name);

#endif
