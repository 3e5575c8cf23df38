/* served_gpu.h - main() of tests of GPU memory through a real spillwayd: one service and one connection for all tests,
 * which run in one process, because CUDA does not survive a fork. */
#ifndef SW_TEST_SERVED_GPU_H
#define SW_TEST_SERVED_GPU_H

#include "ipc/spillway.h"
#include "tests/lib/spillwayd.h"

#include <check.h>

/* Starts the service, before this process touches CUDA, connects without reconnection, and runs the suite. The caller's
 * daemon and connection are set before make_suite() is called. Returns what main() returns: 77 without a GPU. */
int sw_served_gpu_run(const char *spillwayd, struct sw_test_daemon *daemon, struct spillway **ret_connection,
                      Suite *(*make_suite)(void));

#endif
