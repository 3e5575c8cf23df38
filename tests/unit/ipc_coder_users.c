/* The users of a coder (ipc/client/coder_users.h): which of them a thread that comes by serves, and which it wakes. */
#include "base/clock.h"
#include "ipc/client/coder_users.h"
#include "tests/lib/run.h"

#include <check.h>
#include <unistd.h>

enum { N = 66 }; /* more than are looked at together */

static struct sw_coder_users users;
static struct sw_coder_user all[N];
static unsigned n_served[N], n_woken[N];
static int sockets[N];
static int pipe_fds[2];
static uint64_t now_us;

/* The linker puts it in the place of sw_clock_us(). */
uint64_t __wrap_sw_clock_us(void);
uint64_t __wrap_sw_clock_us(void) {
    return now_us;
}

static void wake(struct sw_coder_user *user) {
    n_woken[user - all]++;
}

static int socket_of(struct sw_coder_user *user) {
    return sockets[user - all];
}

static void serve(struct sw_coder_user *user) {
    n_served[user - all]++;
    atomic_store(&user->has_news, false);
}

/* Another thread comes by meanwhile. */
static void serve_and_meet_another(struct sw_coder_user *user) {
    serve(user);
    sw_coder_users_serve(&users, NULL);
    ck_assert_uint_eq(n_served[7], 0);
}

static void setup(void) {
    ck_assert_int_eq(pipe(pipe_fds), 0);
    now_us = 1000000;
    sw_coder_users_init(&users);
    for (unsigned i = 0; i < N; i++) {
        all[i] = (struct sw_coder_user){.wake = wake, .socket = socket_of, .serve = serve};
        sockets[i] = -1;
        sw_list_init(&all[i].node);
        sw_coder_users_add(&users, &all[i]);
    }
}

static void teardown(void) {
    for (unsigned i = 0; i < N; i++)
        sw_coder_users_remove(&users, &all[i]);
    ck_assert(sw_list_empty(&users.list));
    sw_coder_users_fini(&users);
}

static void ck_served(unsigned user, unsigned n) {
    for (unsigned i = 0; i < N; i++)
        ck_assert_uint_eq(n_served[i], i == user ? n : 0);
}

/* Not those that do not sleep, unless they have news. */
START_TEST(sleeping_users_are_served_now_and_then) {
    sockets[3] = pipe_fds[0]; /* which shows nothing */
    sw_coder_users_serve(&users, &all[0]);
    ck_served(3, 1);
    now_us += 900;
    sw_coder_users_serve(&users, &all[0]);
    ck_served(3, 1);
    now_us += 100;
    sw_coder_users_serve(&users, &all[0]);
    ck_served(3, 2);
    now_us += 100;
    sw_coder_users_serve(&users, NULL); /* the coder's thread, which comes seldom */
    ck_served(3, 3);
}
END_TEST

/* Of more sockets than fit one look, each is right: no user is served for another's. */
START_TEST(many_users_may_sleep) {
    int silent[2];
    ck_assert_int_eq(pipe(silent), 0);
    ck_assert_int_eq(write(pipe_fds[1], "x", 1), 1);
    for (unsigned i = 0; i < N; i++)
        sockets[i] = silent[0];
    sw_coder_users_serve(&users, &all[0]); /* sweeps */
    for (unsigned i = 0; i < N; i++)
        n_served[i] = 0;
    sockets[40] = pipe_fds[0];
    sw_coder_users_serve(&users, &all[0]);
    ck_served(40, 1);
    sockets[40] = silent[0];
    atomic_store(&all[N - 1].has_news, true); /* there was no room for it */
    n_served[40] = 0;
    sw_coder_users_serve(&users, &all[0]);
    ck_served(N - 1, 1);
}
END_TEST

/* A user with news is served without a look at its socket, and a thread does not serve itself. */
START_TEST(a_thread_serves_only_others) {
    atomic_store(&all[5].has_news, true);
    sw_coder_users_serve(&users, &all[5]);
    ck_served(N, 0);
    sw_coder_users_serve(&users, &all[0]);
    ck_served(5, 1);
    atomic_store(&all[5].has_news, true); /* again: nobody is being served any more */
    sw_coder_users_serve(&users, &all[0]);
    ck_served(5, 2);
}
END_TEST

/* The others are left to it. */
START_TEST(one_thread_serves_at_a_time) {
    all[2].serve = serve_and_meet_another;
    atomic_store(&all[2].has_news, true);
    atomic_store(&all[7].has_news, true);
    sw_coder_users_serve(&users, &all[0]);
    ck_assert_uint_eq(n_served[2], 1);
    ck_assert_uint_eq(n_served[7], 1);
    ck_assert_uint_eq(n_woken[7], 0);
}
END_TEST

/* The coder's thread then sleeps until the first of the others is due. */
START_TEST(users_are_woken_once_when_they_are_due) {
    uint64_t next_us = 1;
    ck_assert(!sw_coder_users_wake_due(&users, &next_us));
    ck_assert_uint_eq(next_us, 0);
    atomic_store(&all[1].wake_at_us, now_us + 50);
    atomic_store(&all[2].wake_at_us, now_us + 20);
    atomic_store(&all[3].wake_at_us, now_us + 70);
    ck_assert(!sw_coder_users_wake_due(&users, &next_us));
    ck_assert_uint_eq(next_us, now_us + 20);
    now_us += 20;
    ck_assert(sw_coder_users_wake_due(&users, &next_us));
    ck_assert_uint_eq(next_us, now_us + 30);
    ck_assert(!sw_coder_users_wake_due(&users, &next_us)); /* once */
    for (unsigned i = 0; i < N; i++) {
        ck_assert_uint_eq(n_woken[i], i == 2);
        ck_assert_int_eq(atomic_load(&all[i].has_news), i == 2);
    }
}
END_TEST

int main(void) {
    Suite *suite = suite_create("ipc_coder_users");
    TCase *tcase = tcase_create("users");
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_test(tcase, sleeping_users_are_served_now_and_then);
    tcase_add_test(tcase, many_users_may_sleep);
    tcase_add_test(tcase, a_thread_serves_only_others);
    tcase_add_test(tcase, one_thread_serves_at_a_time);
    tcase_add_test(tcase, users_are_woken_once_when_they_are_due);
    suite_add_tcase(suite, tcase);
    return sw_test_run(suite, CK_FORK);
}
