#include "tests/lib/served_gpu.h"

#include "tests/lib/buffer.h"
#include "tests/lib/requests.h"
#include "tests/lib/run.h"

#include <signal.h>
#include <stdio.h>

static int run(const struct sw_test_daemon *daemon, struct spillway **ret_connection, Suite *(*make_suite)(void)) {
    const char *reason = NULL;
    struct spillway_error error;
    if (sw_buffer_usable_kinds(&reason) < SW_BUFFER_KIND_NR) {
        (void)printf("skipped: %s\n", reason);
        return 77;
    }
    if (spillway_open(ret_connection, SW_OPTIONS(.socket_path = daemon->socket), &error) < 0) {
        (void)printf("spillway_open: %s\n", error.text);
        return 1;
    }
    spillway_set_reconnect(*ret_connection, 0);
    const int failed = sw_test_run(make_suite(), CK_NOFORK);
    spillway_close(*ret_connection);
    return failed;
}

int sw_served_gpu_run(const char *spillwayd, struct sw_test_daemon *daemon, struct spillway **ret_connection,
                      Suite *(*make_suite)(void)) {
    static const char *const options[] = {"device=auto", "slots=0", "host_tier_bytes=512 MiB",
                                          "host_tier_initial_bytes=512 MiB", NULL};
    sw_test_daemon_start(daemon, spillwayd, options);
    int failed = run(daemon, ret_connection, make_suite);
    if (daemon->pid && sw_test_daemon_stop(daemon, SIGTERM) != 0)
        failed = 1;
    if (failed && failed != 77)
        (void)printf("the log is %s\n", daemon->log);
    else
        sw_test_daemon_clean(daemon);
    return failed;
}
