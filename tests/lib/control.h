/* control.h - the control socket in tests: a daemon of the test's own, asked what it should answer.
 *
 * What fails, fails the test. thread: the one that runs the test. */
#ifndef SW_TEST_CONTROL_H
#define SW_TEST_CONTROL_H

#include "ctl/connection.h"
#include "tests/lib/spillwayd.h"
#include <jansson.h>

/* owns: the caller, until sw_ctl_close(). */
struct sw_ctl *sw_control_connect(const struct sw_test_daemon *daemon);
/* Calls a method with parameters as JSON text, or NULL; it must succeed. owns: the caller, until json_decref(). */
json_t *sw_control_ask(struct sw_ctl *ctl, const char *method, const char *params);
/* The same for a method that must fail with this code. Returns the error's text, valid until the next call. */
const char *sw_control_ck_fails(struct sw_ctl *ctl, const char *method, const char *params, int code);
/* A whole number at the top of a method's answer. */
long long sw_control_number(struct sw_ctl *ctl, const char *method, const char *params, const char *name);
/* Waits for an event of this name and passes over the others. owns: the caller: its parameters. */
json_t *sw_control_event(struct sw_ctl *ctl, const char *event);

#endif
