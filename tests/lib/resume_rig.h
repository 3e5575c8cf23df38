/* resume_rig.h - a played daemon (play.h) whose connection is lost, and whose next process has kept the session; and
 * what a client does meanwhile.
 *
 * What does not fit aborts the test. */
#ifndef SW_TEST_RESUME_RIG_H
#define SW_TEST_RESUME_RIG_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct spillway_ticket;

/* ---- the daemon: on its thread ---- */

extern const uint8_t sw_resume_token[16]; /* of the session */
extern atomic_bool sw_resume_is_back;
extern uint32_t sw_resume_grace_ms; /* that it tells */

void sw_resume_greet_with(int socket, bool resumed, uint32_t max_in_flight, uint32_t max_buffers);
void sw_resume_greet(int socket, bool resumed);
/* Cuts the connection when the test says so. */
void sw_resume_leave(int socket);
/* The next process of the service, which has the session; returns its socket. */
int sw_resume_come_back(void);
/* Nothing is left to be asked about. Sets sw_resume_is_back. */
void sw_resume_expect_settled(int socket);

/* ---- the client ---- */

void sw_resume_dispatch(void);
/* The library notices, and has not tried to come back yet. */
void sw_resume_lose_connection(void);
/* Begin a spill of one buffer, or of two. Return the error's code, or 0. */
int sw_resume_spill(struct spillway_ticket **ret);
int sw_resume_spill_buffers(struct spillway_ticket **ret);
/* Begins one with a name: a short region that the service encodes. */
struct spillway_ticket *sw_resume_spill_named(void);

#endif
