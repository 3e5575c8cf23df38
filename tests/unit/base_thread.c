/* Threads of the library and the service, and the clock: base/thread.h, base/clock.h. */
#include "base/clock.h"
#include "base/thread.h"
#include "tests/lib/run.h"

#include <check.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

static bool blocks(const sigset_t *set, int number) {
    return sigismember(set, number) == 1;
}

static void *look_at_signals(void *arg) {
    (void)pthread_sigmask(SIG_SETMASK, NULL, arg);
    return arg;
}

/* The program's signals are for its own threads; a thread that crashes still ends the program as any other does. */
START_TEST(a_thread_takes_no_signals) {
    static const int own[] = {SIGSEGV, SIGBUS, SIGILL, SIGFPE}, others[] = {SIGTERM, SIGINT, SIGHUP, SIGALRM, SIGCHLD};
    sigset_t seen, before, after;
    pthread_t thread;
    void *ret = NULL;
    (void)sigemptyset(&before);
    (void)sigaddset(&before, SIGUSR1);
    ck_assert_int_eq(pthread_sigmask(SIG_SETMASK, &before, NULL), 0);
    ck_assert_int_eq(sw_thread_start(&thread, look_at_signals, &seen), 0);
    ck_assert_int_eq(pthread_join(thread, &ret), 0);
    ck_assert_ptr_eq(ret, &seen);
    for (size_t i = 0; i < sizeof own / sizeof own[0]; i++)
        ck_assert(!blocks(&seen, own[i]));
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++)
        ck_assert(blocks(&seen, others[i]));
    (void)pthread_sigmask(SIG_SETMASK, NULL, &after);
    for (int number = 1; number < 32; number++)
        ck_assert_int_eq(blocks(&after, number), number == SIGUSR1);
}
END_TEST

static void *look_at_stack(void *arg) {
    pthread_attr_t attributes;
    if (pthread_getattr_np(pthread_self(), &attributes) == 0)
        (void)pthread_attr_getstacksize(&attributes, arg);
    (void)pthread_attr_destroy(&attributes);
    return NULL;
}

static int look_as_program(int argc, char **argv) {
    (void)look_at_stack(argv);
    return argc;
}

/* Also where the system gives threads less. */
START_TEST(a_thread_has_a_stack_of_its_own_length) {
    pthread_attr_t little;
    pthread_t thread;
    size_t bytes = 0;
    ck_assert_int_eq(pthread_attr_init(&little), 0);
    ck_assert_int_eq(pthread_attr_setstacksize(&little, 64 << 10), 0);
    ck_assert_int_eq(pthread_setattr_default_np(&little), 0);
    (void)pthread_attr_destroy(&little);
    ck_assert_int_eq(sw_thread_start(&thread, look_at_stack, &bytes), 0);
    ck_assert_int_eq(pthread_join(thread, NULL), 0);
    ck_assert_uint_ge(bytes, SW_THREAD_STACK_BYTES);
    bytes = 0;
    ck_assert_int_eq(sw_thread_run(look_as_program, 7, (char **)(void *)&bytes), 7);
    ck_assert_uint_ge(bytes, SW_THREAD_STACK_BYTES);
    ck_assert_int_eq(pthread_getattr_default_np(&little), 0); /* of threads that libraries make */
    ck_assert_int_eq(pthread_attr_getstacksize(&little, &bytes), 0);
    ck_assert_uint_ge(bytes, SW_THREAD_STACK_BYTES);
    (void)pthread_attr_destroy(&little);
}
END_TEST

START_TEST(processors_are_counted_within_bounds) {
    const unsigned n = (unsigned)sysconf(_SC_NPROCESSORS_ONLN);
    ck_assert_uint_eq(sw_thread_cpus(1, 100000), n);
    ck_assert_uint_eq(sw_thread_cpus(n, n), n);
    ck_assert_uint_eq(sw_thread_cpus(n + 5, n + 9), n + 5);
    ck_assert_uint_eq(sw_thread_cpus(0, n - 1), n - 1);
}
END_TEST

static uint64_t monotonic_us(void) {
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000 + (uint64_t)now.tv_nsec / 1000;
}

START_TEST(the_clock_is_the_systems) {
    for (int i = 0; i < 100; i++) {
        const uint64_t before = monotonic_us(), now = sw_clock_us(), after = monotonic_us();
        ck_assert(before <= now && now <= after);
    }
}
END_TEST

int main(void) {
    TCase *tests = tcase_create("thread");
    tcase_add_test(tests, a_thread_takes_no_signals);
    tcase_add_test(tests, a_thread_has_a_stack_of_its_own_length);
    tcase_add_test(tests, processors_are_counted_within_bounds);
    tcase_add_test(tests, the_clock_is_the_systems);
    Suite *suite = suite_create("thread");
    suite_add_tcase(suite, tests);
    return sw_test_run(suite, CK_FORK);
}
