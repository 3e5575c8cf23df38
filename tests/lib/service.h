/* service.h - a daemon's inside for a test: engine on the host device, small tier, its own loop; no listening socket.
 *
 * What cannot be set up aborts the test. thread: one, the loop's. */
#ifndef SW_TEST_SERVICE_H
#define SW_TEST_SERVICE_H

#include "daemon/control/control_handlers.h"
#include "daemon/session/session.h"

struct sw_test_service {
    uv_loop_t loop;
    struct sw_config config;
    struct sw_service service;
};

/* owns: *ret stays where it is until the process ends; its threads are not joined. */
void sw_test_service_start(struct sw_test_service *ret);
/* The same with room for packets of 256 regions, of which all may be durable; sessions may have more memories, too. */
void sw_test_service_start_large(struct sw_test_service *ret);
/* Opens a session of version 9 over a socket pair and counts as greeted; *ret_peer is the client's end, owned by the
 * caller. *ret_closed is set when the session is gone. */
struct sw_session *sw_test_service_session(struct sw_test_service *service, int *ret_peer, bool *ret_closed);
/* Closes the session if that has not begun, waits for its end, and checks that nothing of it is left. */
void sw_test_service_end(struct sw_test_service *service, struct sw_session *session, const bool *closed);

/* A connection to the control socket that is none: it may do everything, and now and then has no room for an event. */
struct sw_test_control {
    struct sw_control_context context;
    struct sw_rpc_caller caller;
    struct sw_subscriber subscriber;
    unsigned n_told; /* events and counts of missed ones */
};
/* The service has started. owns: *ret stays where it is until the process ends. */
void sw_test_control_start(struct sw_test_control *ret, struct sw_test_service *service);
/* Answers one line: all that the control socket does behind its bytes. owns: the caller, until free(); NULL: no answer
 * was due. */
char *sw_test_control_line(struct sw_test_control *control, const char *line, size_t bytes);

#endif
