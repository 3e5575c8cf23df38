/* Processes that go: a client that forks, and a spillwayd that is killed or stopped while a client has regions there.
 */
#include "ipc/spillway.h"
#include "tests/lib/requests.h"
#include "tests/lib/run.h"
#include "tests/lib/served.h"
#include "tests/lib/served_client.h"

#include <check.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- tests ------------------------------------------------------------------------------------------------------- */

/* A process that got everything of this one's by fork(); it closes the connection that is not its own, or leaves it
 * open, and lives until it is killed. */
static pid_t fork_idle(struct spillway *not_its_own) {
    int ready[2];
    char byte = 0;
    ck_assert_int_eq(pipe2(ready, O_CLOEXEC), 0);
    const pid_t pid = fork();
    ck_assert_int_ge(pid, 0);
    if (pid == 0) {
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        spillway_close(not_its_own);
        if (write(ready[1], &byte, 1) == 1)
            (void)pause();
        _exit(0);
    }
    ck_assert_int_eq(read(ready[0], &byte, 1), 1);
    (void)close(ready[0]);
    (void)close(ready[1]);
    return pid;
}

static void end_child(pid_t pid) {
    ck_assert_int_eq(kill(pid, SIGKILL), 0);
    ck_assert_int_eq(waitpid(pid, NULL, 0), pid);
}

START_TEST(a_forked_child_keeps_no_session_alive) {
    struct memory m = new_memory(200000);
    fill(m.data, m.bytes, 13);
    ck_assert_int_eq(spillway_register(connection, m.data, m.bytes, &error), 0);
    (void)spilled(m.data, m.bytes);
    const pid_t child = fork_idle(NULL);
    struct spillway *other = sw_served_connect(&sw_served_daemon);
    spillway_close(connection);
    connection = other;
    sw_served_ck_empty(connection, 0); /* the child is still there */
    end_child(child);
    free_memory(&m);
}
END_TEST

START_TEST(a_forked_child_ends_no_session) {
    struct memory m = new_memory(200000);
    fill(m.data, m.bytes, 14);
    const struct spillway_region region = spilled(m.data, m.bytes);
    const pid_t child = fork_idle(connection);
    memset(m.data, 0, m.bytes);
    ck_assert_int_eq(finish(restore(region, m.data, m.bytes, 0), NULL), 0);
    ck_assert(holds(m.data, m.bytes, 14));
    end_child(child);
    free_memory(&m);
}
END_TEST

/* All calls that a child may try on the connection that it inherited; 0: each was refused. */
static int use_in_child(struct spillway *inherited, struct spillway_ticket *ticket, uint8_t *data) {
    const struct spillway_region region = {1, 1};
    const struct spillway_buffer buffers[] = {{.data = data, .bytes = 1}, {.data = data, .bytes = 1}};
    const struct spillway_request spill = *SW_REQUEST(SW_ONE(data, 1));
    const struct spillway_request restore = *SW_REQUEST(SW_ONE(data, 1), .region = region);
    struct spillway_region adopted;
    struct spillway_region_info info = {.size = sizeof info};
    struct spillway_buffer_info infos[SPILLWAY_MAX_BUFFERS];
    struct spillway_packed_chunk chunk;
    struct spillway_status status = {.size = sizeof status};
    struct spillway_ticket *none;
    uint32_t n;
    const int codes[] = {
        spillway_spill(inherited, &spill, 1, &none, &error),
        spillway_spill(inherited, SW_REQUEST(SW_ONE_TYPED(data, 1, SPILLWAY_U8)), 1, &none, &error),
        spillway_spill(inherited, SW_REQUEST(SW_ONE(data, 1), .name = "child"), 1, &none, &error),
        spillway_adopt(inherited, "child", &adopted, &error),
        spillway_restore(inherited, &restore, 1, &none, &error),
        spillway_spill(inherited, SW_REQUEST(SW_ONE(data, 1), .flags = SPILLWAY_IN_PLACE), 1, &none, &error),
        spillway_restore(inherited, SW_REQUEST(SW_ONE(data, 1), .region = region, .flags = SPILLWAY_IN_PLACE), 1, &none,
                         &error),
        spillway_register(inherited, data, 1, &error),
        spillway_unregister(inherited, data, &error),
        spillway_spill(inherited, (const struct spillway_request[]){spill, spill}, 2, &none, &error),
        spillway_restore(inherited, (const struct spillway_request[]){restore, restore}, 2, &none, &error),
        spillway_spill(inherited, SW_REQUEST(SW_SEVERAL(buffers, 2)), 1, &none, &error),
        spillway_restore(inherited, SW_REQUEST(SW_SEVERAL(buffers, 2), .region = region), 1, &none, &error),
        spillway_wait(ticket, SW_TEST_WAIT_MS, NULL, 0, &error),
        spillway_dispatch(inherited, &error),
        spillway_drop(inherited, &region, 1, &error),
        spillway_query(inherited, region, &info, &error),
        spillway_query_buffers(inherited, region, infos, &n, &error),
        spillway_query_packed(inherited, region, &chunk, 1, &n, &error),
        spillway_advise(inherited, region, SPILLWAY_ADVICE_PIN, 1, &error),
        spillway_status(inherited, &status, &error),
    };
    for (int i = 0; i < (int)(sizeof codes / sizeof codes[0]); i++)
        if (codes[i] != -SPILLWAY_EINVAL)
            return i + 1;
    if (!strstr(error.text, "has forked") || spillway_next_done(inherited))
        return 100;
    spillway_ticket_free(ticket);
    spillway_set_reconnect(inherited, 0);
    spillway_close(inherited);
    return 0;
}

/* The child's calls would act for the parent. A connection of its own works. */
START_TEST(a_forked_child_is_refused) {
    struct memory m = new_memory(200000);
    struct spillway_result result = {.size = sizeof result};
    int status;
    fill(m.data, m.bytes, 15);
    struct spillway_ticket *ticket = spill(m.data, m.bytes);
    const pid_t child = fork();
    ck_assert_int_ge(child, 0);
    if (child == 0) {
        const int refused = use_in_child(connection, ticket, m.data);
        struct spillway *own = NULL;
        if (refused == 0 && spillway_open(&own, SW_OPTIONS(.socket_path = sw_served_daemon.socket), &error) < 0)
            _exit(101);
        spillway_close(own);
        _exit(refused);
    }
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    ck_assert_msg(WIFEXITED(status) && WEXITSTATUS(status) == 0, "call %d was not refused", WEXITSTATUS(status));
    ck_assert_int_eq(finish(ticket, &result), 0);
    memset(m.data, 0, m.bytes);
    ck_assert_int_eq(finish(restore(result.region, m.data, m.bytes, 0), NULL), 0);
    ck_assert(holds(m.data, m.bytes, 15));
    free_memory(&m);
}
END_TEST

/* ---- a daemon that goes ------------------------------------------------------------------------------------------ */

/* Killed while the spill waits, runs, or is just done, by the time that it is given: 0 means that it is stopped, and
 * so has not even begun. */
START_TEST(killed_in_mid_spill) {
    struct sw_test_daemon own;
    struct spillway_ticket *none;
    struct memory m = new_memory(8 * mib);
    fill(m.data, m.bytes, 8);
    sw_test_daemon_start(&own, SW_SPILLWAYD_PATH, NULL);
    connection = sw_served_connect(&own);
    if (_i == 0)
        sw_test_daemon_pause(&own);
    struct spillway_ticket *ticket = spill(m.data, m.bytes);
    const int early = spillway_wait(ticket, _i, NULL, 0, &error);
    if (_i == 0)
        ck_failed(early, SPILLWAY_EAGAIN, SPILLWAY_SCOPE_REQUEST);
    ck_assert_int_eq(sw_test_daemon_stop(&own, SIGKILL), -SIGKILL);
    const int rc = finish(ticket, NULL);
    if (early < 0 && rc < 0)
        ck_failed(rc, SPILLWAY_ECONN, SPILLWAY_SCOPE_SESSION);
    ck_assert(_i > 0 || rc < 0);
    ck_assert(holds(m.data, m.bytes, 8));
    ck_failed(spillway_spill(connection, SW_REQUEST(SW_ONE(m.data, 1)), 1, &none, &error), SPILLWAY_ECONN,
              SPILLWAY_SCOPE_SESSION);
    spillway_close(connection);
    sw_test_daemon_clean(&own);
    free_memory(&m);
}
END_TEST

START_TEST(stopped_with_regions_stored) {
    struct sw_test_daemon own;
    struct spillway_status status = {.size = sizeof status};
    struct memory m = new_memory(1000);
    sw_test_daemon_start(&own, SW_SPILLWAYD_PATH, NULL);
    connection = sw_served_connect(&own);
    (void)spilled(m.data, m.bytes);
    ck_assert_int_eq(sw_test_daemon_stop(&own, SIGTERM), 0);
    ck_failed(spillway_status(connection, &status, &error), SPILLWAY_ESHUTDOWN, SPILLWAY_SCOPE_SESSION);
    ck_assert_ptr_nonnull(strstr(error.text, "has been stopped"));
    spillway_close(connection);
    ck_failed(spillway_open(&connection, SW_OPTIONS(.socket_path = own.socket), &error), SPILLWAY_ENOSERVICE,
              SPILLWAY_SCOPE_SESSION);
    sw_test_daemon_clean(&own);
    free_memory(&m);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("ends of clients and services");
    TCase *served = tcase_create("served"), *left = tcase_create("left");
    sw_test_slow(served, 60);
    sw_test_slow(left, 60);
    tcase_add_unchecked_fixture(served, sw_served_start, sw_served_stop);
    tcase_add_checked_fixture(served, before_each, after_each);
    tcase_add_test(served, a_forked_child_keeps_no_session_alive);
    tcase_add_test(served, a_forked_child_ends_no_session);
    tcase_add_test(served, a_forked_child_is_refused);
    tcase_add_loop_test(left, killed_in_mid_spill, 0, 4);
    tcase_add_test(left, stopped_with_regions_stored);
    suite_add_tcase(suite, served);
    suite_add_tcase(suite, left);
    return sw_test_run(suite, CK_FORK);
}
