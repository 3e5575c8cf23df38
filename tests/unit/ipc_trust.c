/* Whose socket is trusted: uids against folders that others own, and others can have made. */
#include "ipc/trust.h"

#include "tests/lib/run.h"

#include <check.h>
#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

enum { SERVICE = 4242, THIRD = 4243 };

static const struct sw_userns whole = {65534, 65534, true, true}, partial = {65534, 65534, false, false};

static bool trusted(uid_t uid, const char *path) {
    return sw_trust_is_trusted(uid, path, SW_TRUST_NO_USER, &whole);
}

START_TEST(root_and_this_user_are_trusted_anywhere) {
    ck_assert(trusted(0, "/tmp/s") && trusted(geteuid(), "/tmp/s") && trusted(0, "/nonexistent/s") && trusted(0, "s"));
    ck_assert(!trusted(SERVICE, "/tmp/s") && !trusted(SERVICE, "/nonexistent/s") && !trusted(SERVICE, "s"));
    ck_assert(!trusted(SERVICE, "/s") && !trusted(SERVICE, ""));
}
END_TEST

START_TEST(a_user_that_the_caller_names_is_trusted) {
    ck_assert(sw_trust_is_trusted(SERVICE, "/tmp/s", SERVICE, &whole));
    ck_assert(!sw_trust_is_trusted(SERVICE, "/tmp/s", SERVICE + 1, &whole));
    ck_assert(sw_trust_is_trusted(0, "/tmp/s", SERVICE, &whole));
}
END_TEST

/* This also holds if the overflow uid is this process's own, because its user is not mapped. */
START_TEST(the_overflow_uid_is_trusted_only_if_it_is_named) {
    const struct sw_userns own = {geteuid(), getegid(), false, false};
    ck_assert(!sw_trust_is_trusted(65534, "/tmp/s", SW_TRUST_NO_USER, &partial));
    ck_assert(!sw_trust_is_trusted(geteuid(), "/tmp/s", SW_TRUST_NO_USER, &own));
    ck_assert(sw_trust_is_trusted(65534, "/tmp/s", 65534, &partial));
}
END_TEST

START_TEST(the_user_of_a_real_peer_is_found) {
    struct sw_err err;
    int pair[2];
    ck_assert_int_eq(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
    ck_assert_int_eq(sw_trust_check(pair[0], "/tmp/s", SW_TRUST_NO_USER, &err), 0);
    (void)close(pair[0]);
    (void)close(pair[1]);
    ck_assert_int_eq(sw_trust_check(-1, "/tmp/s", SW_TRUST_NO_USER, &err), -SW_ECONN);
}
END_TEST

/* ---- folders of other users, below /mnt, which only root can have made: in a mount namespace of the test's own ----
 */

static void own(const char *folder, uid_t uid, mode_t mode) {
    ck_assert_msg(mkdir(folder, 0700) == 0 || errno == EEXIST, "%s: %s", folder, strerror(errno));
    ck_assert(chown(folder, uid, uid) == 0 && chmod(folder, mode) == 0);
}

static void mount_ours(void) {
    ck_assert_int_eq(unshare(CLONE_NEWNS), 0);
    ck_assert_int_eq(mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL), 0);
    ck_assert_int_eq(mount("tmpfs", "/mnt", "tmpfs", 0, "mode=0755"), 0);
}

START_TEST(the_owner_of_the_folder_is_trusted) {
    own("/mnt/service", SERVICE, 0777);
    ck_assert(trusted(SERVICE, "/mnt/service/s"));
    ck_assert(!trusted(THIRD, "/mnt/service/s"));
    ck_assert(!trusted(SERVICE, "/mnt/s") && !trusted(SERVICE, "/mnt/service"));
    ck_assert_int_eq(chdir("/mnt/service"), 0);
    ck_assert(trusted(SERVICE, "s") && trusted(SERVICE, "./s") && !trusted(SERVICE, "../s"));
    own("/mnt/service/inner", SERVICE, 0755);
    ck_assert(!trusted(SERVICE, "inner/s")); /* others may write to the one above it */
    own("/mnt/service", SERVICE, 0755);
    ck_assert(trusted(SERVICE, "inner/s"));
}
END_TEST

START_TEST(a_folder_that_anybody_can_replace_is_not_trusted) {
    own("/mnt/tmp", 0, 01777);
    own("/mnt/tmp/service", SERVICE, 0755);
    own("/mnt/tmp/service/inner", SERVICE, 0755);
    ck_assert(!trusted(SERVICE, "/mnt/tmp/service/s") && !trusted(SERVICE, "/mnt/tmp/service/inner/s"));
    own("/mnt/tmp", 0, 0775);
    ck_assert(!trusted(SERVICE, "/mnt/tmp/service/s"));
    own("/mnt/tmp", THIRD, 0755);
    ck_assert(!trusted(SERVICE, "/mnt/tmp/service/s"));
    own("/mnt/tmp", 0, 0755);
    ck_assert(trusted(SERVICE, "/mnt/tmp/service/s"));
    own("/mnt/nobody", 65534, 0755);
    ck_assert(!trusted(65534, "/mnt/nobody/s"));
}
END_TEST

START_TEST(a_link_is_followed_step_by_step) {
    own("/mnt/tmp", 0, 01777);
    own("/mnt/tmp/trap", SERVICE, 0755);
    own("/mnt/run", 0, 0755);
    own("/mnt/service", SERVICE, 0755);
    ck_assert_int_eq(symlink("/mnt/tmp/trap", "/mnt/run/folder"), 0);
    ck_assert_int_eq(symlink("/mnt/service", "/mnt/tmp/folder"), 0);
    ck_assert(!trusted(SERVICE, "/mnt/run/folder/s"));
    ck_assert(!trusted(SERVICE, "/mnt/tmp/folder/s")); /* anybody can have made the link, and to a folder of its own */
    ck_assert_int_eq(symlink("../service", "/mnt/run/service"), 0);
    ck_assert(trusted(SERVICE, "/mnt/run/service/s") && trusted(SERVICE, "/mnt/run/../service/./s"));
    ck_assert_int_eq(symlink("../tmp/folder", "/mnt/run/twice"), 0);
    ck_assert(!trusted(SERVICE, "/mnt/run/twice/s"));
    ck_assert_int_eq(symlink("circle", "/mnt/run/circle"), 0);
    ck_assert(!trusted(SERVICE, "/mnt/run/circle/s"));
}
END_TEST

/* As many as the kernel follows when it connects: 40. */
START_TEST(a_chain_of_links_has_an_end) {
    own("/mnt/run", 0, 0755);
    own("/mnt/service", SERVICE, 0755);
    ck_assert_int_eq(symlink("/mnt/service", "/mnt/run/1"), 0);
    for (unsigned i = 2; i <= 41; i++) {
        char target[32], link[32];
        (void)snprintf(target, sizeof target, "%u", i - 1);
        (void)snprintf(link, sizeof link, "/mnt/run/%u", i);
        ck_assert_int_eq(symlink(target, link), 0);
    }
    ck_assert(trusted(SERVICE, "/mnt/run/40/s"));
    ck_assert(!trusted(SERVICE, "/mnt/run/41/s"));
}
END_TEST

static TCase *folders(void) {
    TCase *tests = tcase_create("folders");
    tcase_add_checked_fixture(tests, mount_ours, NULL);
    tcase_add_test(tests, the_owner_of_the_folder_is_trusted);
    tcase_add_test(tests, a_folder_that_anybody_can_replace_is_not_trusted);
    tcase_add_test(tests, a_link_is_followed_step_by_step);
    tcase_add_test(tests, a_chain_of_links_has_an_end);
    return tests;
}

int main(void) {
    TCase *tests = tcase_create("trust");
    tcase_add_test(tests, root_and_this_user_are_trusted_anywhere);
    tcase_add_test(tests, a_user_that_the_caller_names_is_trusted);
    tcase_add_test(tests, the_overflow_uid_is_trusted_only_if_it_is_named);
    tcase_add_test(tests, the_user_of_a_real_peer_is_found);
    Suite *suite = suite_create("trust");
    suite_add_tcase(suite, tests);
    if (system("unshare --mount mount -t tmpfs none /mnt >/dev/null 2>&1") == 0)
        suite_add_tcase(suite, folders());
    else
        (void)printf("left out: folders of other users, which only root can make (unshare --mount)\n");
    return sw_test_run(suite, CK_FORK);
}
