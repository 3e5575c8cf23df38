/* served.h - shared by tests of the client API: one spillwayd for all tests of a case, a connection for each of them,
 * and the proof that the daemon keeps nothing of a test.
 *
 * Failures fail the test. thread: the one that runs the test. */
#ifndef SW_TEST_SERVED_H
#define SW_TEST_SERVED_H

#include "ipc/spillway.h"
#include "tests/lib/spillwayd.h"

/* The case's daemon, of the two functions below: its unchecked fixture. A test of a checked one may stop it itself. */
extern struct sw_test_daemon sw_served_daemon;
void sw_served_start(void);
void sw_served_start_verbose(void); /* with log_level debug */
void sw_served_stop(void);

/* owns: the caller, until sw_served_close() or spillway_close(). */
struct spillway *sw_served_connect(const struct sw_test_daemon *daemon);
/* Returns zeros that the service can map, and that stay until the process ends. */
uint8_t *sw_served_memory(size_t bytes);
struct spillway_status sw_served_status(struct spillway *connection);
/* Waits until the daemon has let go of all but so many mapped memories. */
void sw_served_ck_empty(struct spillway *connection, uint64_t mapped_memories);
/* Closes a connection to the case's daemon, in which nothing of it may be left. */
void sw_served_close(struct spillway *connection);

#endif
