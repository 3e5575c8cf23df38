/* Faults of the GPU's driver and the heap, and limits, in a serving daemon: each step of the device and each allocation
 * fails in turn while a client spills, restores, packs and unpacks. Every failure has a name, every byte is where it
 * was or comes back, regions of other clients are whole, and the daemon goes on, or ends with 1 if it must.
 *
 * Lines that begin with "row" are rows of ../FAULTS.md. */
#include "tests/lib/faulted.h"
#include "tests/lib/run.h"

#include <check.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- device and heap -----------------------------------------------------------------------------------------------
 */

static int with_command(struct sw_faulted_command command) {
    sw_faulted_command(&command);
    const int rc = sw_faulted_work();
    if (command.step[0]) { /* not reached: it must not fail the next run */
        command.nth = 0;
        sw_faulted_command(&command);
    }
    sw_faulted_disarm();
    return rc;
}

static const struct {
    const char *step, *what;
    int code;
} steps[] = {
    {"map", "handle import fails", -SW_EIMPORT},   {"make_plan", "GPU call fails", -SW_EGPU},
    {"encode", "GPU call fails", -SW_EGPU},        {"store", "GPU call fails", -SW_EGPU},
    {"load", "GPU call fails", -SW_EGPU},          {"decode", "GPU call fails", -SW_EGPU},
    {"encode_group", "GPU call fails", -SW_EGPU},  {"store_group", "GPU call fails", -SW_EGPU},
    {"restore_group", "GPU call fails", -SW_EGPU}, {"place", "GPU call fails", -SW_EGPU},
    {"fetch", "GPU call fails", -SW_EGPU},         {"unpack", "GPU call fails", -SW_EGPU},
};
enum { N_STEPS = sizeof steps / sizeof steps[0] };

START_TEST(device_calls) {
    static const char *const ways[] = {"at once", "reported late"};
    for (int way = 0; way < (strcmp(steps[_i].step, "map") == 0 ? 1 : 2); way++) {
        struct sw_faulted_seen seen = {0};
        char where[64];
        if (way == 0) {
            sw_faulted_start(false);
            sw_faulted_park();
        }
        for (unsigned nth = 1; nth <= SW_FAULTED_MAX_RUNS; nth++) {
            struct sw_faulted_command command = {
                .nth = nth, .code = steps[_i].code, .fault = way ? SW_FAULT_LATE : SW_FAULT_AT_ONCE};
            (void)snprintf(command.step, sizeof command.step, "%s", steps[_i].step);
            const int rc = with_command(command);
            ck_assert_msg(rc == 0 || rc == steps[_i].code, "%s: %s", steps[_i].step, sw_err_name(rc));
            sw_faulted_note(&seen, rc, rc != 0);
            if (rc == 0)
                break;
        }
        sw_faulted_ck_sound();
        (void)snprintf(where, sizeof where, "device step %s, %s", steps[_i].step, ways[way]);
        if (seen.n > 0)
            sw_faulted_print_row(steps[_i].what, where, &seen, "memory or stored copy whole, service up");
    }
}
END_TEST

#ifdef __SANITIZE_THREAD__
enum { MAX_ALLOCATIONS = 20 };
#else
enum { MAX_ALLOCATIONS = 400 };
#endif

START_TEST(allocations) {
    struct sw_faulted_seen seen = {0};
    unsigned in_a_row = 0;
    sw_faulted_start(_i == 1);
    sw_faulted.control->no_uring = true;
    sw_faulted_park();
    /* Some do no harm: several in a row that go well are the end. */
    for (unsigned nth = 1; in_a_row < 10 && nth < MAX_ALLOCATIONS; nth++) {
        const int rc = with_command((struct sw_faulted_command){.step = "", .nth = nth});
        ck_assert_msg(rc == 0 || rc == -SW_ENOMEM || rc == -SW_ECONN, "allocation %u: %s", nth, sw_err_name(rc));
        sw_faulted_note(&seen, rc, rc != 0);
        in_a_row = rc == 0 ? in_a_row + 1 : 0;
    }
    sw_faulted_ck_sound();
    ck_assert_uint_gt(seen.n, 10);
    sw_faulted_print_row("no memory", _i ? "sw_alloc, with a disk" : "sw_alloc", &seen, "service up");
}
END_TEST

/* As under systemd: the manager keeps the descriptors that the next process needs. */
START_TEST(device_lost) {
    static struct sw_supervisor keeper;
    struct sw_faulted_seen seen = {0};
    sw_supervisor_init(&keeper, NULL, NULL);
    sw_faulted.manager = &keeper;
    sw_faulted_start(false);
    sw_faulted_park();
    for (unsigned nth = 1; nth <= 5; nth++) {
        struct sw_faulted_command command = {
            .step = "encode", .nth = nth, .code = -SW_EGPULOST, .fault = SW_FAULT_LATE};
        struct sw_wire wire;
        struct sw_region_id id;
        int status;
        ck_assert_int_eq(sw_faulted_greet(&wire), 0);
        ck_assert_int_eq(sw_wire_mem(&wire, 1, sw_faulted.own_fd, SW_FAULTED_BYTES, false), 0);
        sw_faulted_command(&command);
        const int rc = sw_wire_spill(&wire, 1, 0, SW_FAULTED_BYTES, &id);
        ck_assert_int_eq(rc, -SW_EGPULOST);
        sw_faulted_ck_own();
        ck_assert_int_eq(waitpid(sw_faulted.daemon_pid, &status, 0), sw_faulted.daemon_pid);
        ck_assert(WIFEXITED(status) && WEXITSTATUS(status) == 1);
        sw_wire_close(&wire);
        sw_wire_close(&sw_faulted.witness);
        sw_faulted_start(false);
        ck_assert(sw_wire_resume(&sw_faulted.witness, sw_faulted.socket_path));
        sw_faulted_ck_parked();
        sw_faulted_note(&seen, rc, 1);
    }
    sw_faulted_ck_sound();
    sw_faulted_print_row("device lost", "device step encode", &seen,
                         "client's memory whole, exit 1; the next process has what was parked");
    sw_supervisor_end(&keeper);
}
END_TEST

/* Every operation that is under way fails by it, and the stop lets all of them end: it is reported once. */
START_TEST(a_lost_device_is_reported_once) {
    enum { N = 8 };
    static struct sw_supervisor keeper;
    struct sw_faulted_command command = {.step = "encode", .nth = 1, .code = -SW_EGPULOST, .fault = SW_FAULT_LATE};
    struct sw_wire wire;
    char said[4096];
    int status, errors[2];
    ck_assert_int_eq(pipe2(errors, O_CLOEXEC), 0);
    ck_assert_int_ge(dup2(errors[1], STDERR_FILENO), 0); /* of the daemon, too */
    sw_supervisor_init(&keeper, NULL, NULL);
    sw_faulted.manager = &keeper;
    sw_faulted_start(false);
    ck_assert_int_eq(sw_faulted_greet(&wire), 0);
    ck_assert_int_eq(sw_wire_mem(&wire, 1, sw_faulted.own_fd, SW_FAULTED_BYTES, false), 0);
    sw_faulted_command(&command);
    for (unsigned i = 0; i < N; i++) {
        struct sw_msg msg = sw_wire_spill_msg(1, 0, SW_FAULTED_BYTES);
        (void)sw_wire_send(&wire, &msg, NULL, 0);
    }
    ck_assert_int_eq(waitpid(sw_faulted.daemon_pid, &status, 0), sw_faulted.daemon_pid);
    ck_assert(WIFEXITED(status) && WEXITSTATUS(status) == 1);
    const ssize_t n = read(errors[0], said, sizeof said - 1);
    ck_assert_int_gt(n, 0);
    said[n] = 0;
    const char *first = strstr(said, "event=device.lost ");
    ck_assert_msg(first && !strstr(first + 1, "event=device.lost "), "%s", said);
    sw_wire_close(&wire);
    sw_supervisor_end(&keeper);
}
END_TEST

/* The grace period begins when the service is ready for reconnections. Sessions of running processes get more time, so
 * the one that has parked its regions has ended. */
START_TEST(slow_start) {
    static struct sw_supervisor keeper;
    int ends[2];
    sw_supervisor_init(&keeper, NULL, NULL);
    sw_faulted.manager = &keeper;
    ck_assert_int_eq(pipe2(ends, O_CLOEXEC), 0);
    sw_faulted_start(false);
    const pid_t owner = fork();
    if (owner == 0) {
        sw_faulted_park();
        const bool is_told =
            write(ends[1], &sw_faulted.witness, sizeof sw_faulted.witness) == sizeof sw_faulted.witness;
        (void)kill(sw_faulted.daemon_pid, SIGKILL); /* before it sees the owner's end */
        _exit(!is_told);
    }
    ck_assert_int_eq(waitpid(owner, NULL, 0), owner);
    ck_assert_int_eq(waitpid(sw_faulted.daemon_pid, NULL, 0), sw_faulted.daemon_pid);
    ck_assert_int_eq(read(ends[0], &sw_faulted.witness, sizeof sw_faulted.witness), sizeof sw_faulted.witness);
    sw_faulted.start_ms = 1500;
    sw_faulted_start(false);
    (void)usleep(50000); /* its timers have run */
    ck_assert(sw_wire_resume(&sw_faulted.witness, sw_faulted.socket_path));
    sw_wire_close(&sw_faulted.witness);
    sw_supervisor_end(&keeper);
}
END_TEST

/* ---- limits ---------------------------------------------------------------------------------------------------------
 */

START_TEST(full_queue) {
    enum { N = 40 };
    struct sw_faulted_seen seen = {0};
    struct sw_wire wire;
    struct sw_msg msg;
    unsigned refused = 0;
    sw_faulted_start(false);
    sw_faulted_park();
    ck_assert_int_eq(sw_faulted_greet(&wire), 0);
    ck_assert_int_eq(sw_wire_mem(&wire, 1, sw_faulted.own_fd, SW_FAULTED_BYTES, false), 0);
    for (unsigned i = 0; i < N; i++) {
        msg = sw_wire_spill_msg(1, 0, SW_FAULTED_PIECE_BYTES);
        (void)sw_wire_send(&wire, &msg, NULL, 0);
    }
    for (unsigned i = 0; i < N; i++) {
        struct sw_err err;
        ck_assert_int_eq(sw_wire_receive(&wire, &msg), 1);
        if (msg.header.type != SW_MSG_ERROR)
            continue;
        sw_msg_to_err(&err, &msg.u.error);
        ck_assert_int_eq(err.code, -SW_ELIMIT);
        sw_faulted_note(&seen, err.code, 1);
        refused++;
    }
    sw_wire_close(&wire);
    sw_faulted_ck_own();
    sw_faulted_ck_sound();
    if (refused > 0) /* a fast daemon may keep up */
        sw_faulted_print_row("full queue", "more operations than a session may have", &seen,
                             "the others succeed, service up");
}
END_TEST

START_TEST(full_tiers) {
    struct sw_faulted_seen seen = {0};
    struct sw_wire wire;
    struct sw_region_id ids[64];
    unsigned n = 0;
    int rc = 0;
    sw_faulted.control->no_uring = true;
    sw_faulted_start(_i == 1);
    sw_faulted_park();
    ck_assert_int_eq(sw_faulted_greet(&wire), 0);
    ck_assert_int_eq(sw_wire_mem(&wire, 1, sw_faulted.own_fd, SW_FAULTED_BYTES, false), 0);
    ck_assert_int_eq(sw_wire_mem(&wire, 2, sw_faulted.back_fd, SW_FAULTED_BYTES, false), 0);
    for (; n < 64 && (rc = sw_wire_spill(&wire, 1, 0, SW_FAULTED_BYTES, &ids[n])) == 0; n++)
        sw_faulted_ck_own();
    for (int i = 0; i < 5; i++, rc = sw_wire_spill(&wire, 1, 0, SW_FAULTED_BYTES, &ids[63])) {
        ck_assert_int_eq(rc, -SW_ENOSPACE);
        sw_faulted_ck_own();
        sw_faulted_note(&seen, rc, 1);
    }
    while (n-- > 0) {
        ck_assert_int_eq(sw_wire_restore(&wire, ids[n], 2, 0, SW_FAULTED_BYTES), 0);
        ck_assert(sw_wire_memfd_holds(sw_faulted.back_fd, SW_FAULTED_BYTES, SW_CONTENT_RANDOM, 1));
    }
    sw_wire_close(&wire);
    sw_faulted_ck_sound();
    sw_faulted_print_row("tier full", _i ? "host tier and disk" : "host tier", &seen,
                         "all others come back, service up");
}
END_TEST

int main(void) {
    Suite *suite = suite_create("fault daemon");
    TCase *tcase = tcase_create("fault daemon");
    sw_test_slow(tcase, 60);
    tcase_add_checked_fixture(tcase, sw_faulted_setup, sw_faulted_teardown);
    tcase_add_loop_test(tcase, device_calls, 0, N_STEPS);
    tcase_add_loop_test(tcase, allocations, 0, 2);
    tcase_add_test(tcase, device_lost);
    tcase_add_test(tcase, a_lost_device_is_reported_once);
    tcase_add_test(tcase, slow_start);
    tcase_add_test(tcase, full_queue);
    tcase_add_loop_test(tcase, full_tiers, 0, 2);
    suite_add_tcase(suite, tcase);
    return sw_test_run(suite, CK_FORK);
}
