/* Whether a number is one user, from a /proc of the test's own. */
#include "base/userns.h"

#include "tests/lib/descriptors.h"
#include "tests/lib/run.h"
#include "tests/lib/scratch.h"

#include <check.h>
#include <stdio.h>
#include <unistd.h>

static char root[SW_TEST_PATH_BYTES];

static void setup(void) {
    sw_test_folder(root);
}

static void teardown(void) {
    sw_test_remove(root);
}

static void put(const char *path, const char *text) {
    sw_test_put(root, path, text);
}

static struct sw_userns read_it(void) {
    struct sw_userns ns;
    sw_userns_read(&ns, root);
    return ns;
}

START_TEST(all_ids_may_be_mapped) {
    put("/proc/self/uid_map", "         0          0 4294967295\n");
    put("/proc/self/gid_map", "0 100000 4000000000\n4000000000 0 294967295\n");
    const struct sw_userns ns = read_it();
    ck_assert(ns.maps_all_uids && ns.maps_all_gids);
    ck_assert(sw_userns_is_user(&ns, 65534) && sw_userns_is_group(&ns, 65534));
}
END_TEST

START_TEST(unmapped_overflow_ids_belong_to_no_user) {
    put("/proc/self/uid_map", "0 1000 1\n1 100000 65536\n"); /* has a 65534 of its own */
    put("/proc/self/gid_map", "0 0 4294967294\n");
    put("/proc/sys/kernel/overflowuid", "65534\n");
    put("/proc/sys/kernel/overflowgid", "4242\n");
    const struct sw_userns ns = read_it();
    ck_assert(!ns.maps_all_uids && !ns.maps_all_gids);
    ck_assert(!sw_userns_is_user(&ns, 65534) && sw_userns_is_user(&ns, 0) && sw_userns_is_user(&ns, 4242));
    ck_assert(!sw_userns_is_group(&ns, 4242) && sw_userns_is_group(&ns, 65534));
}
END_TEST

/* Each file is closed again, whatever is in it. */
START_TEST(no_file_stays_open) {
    const unsigned before = sw_count_fds();
    put("/proc/self/uid_map", "0 1000 1\n");
    put("/proc/self/gid_map", "nonsense\n");
    put("/proc/sys/kernel/overflowuid", "nonsense\n");
    put("/proc/sys/kernel/overflowgid", "4242\n");
    (void)read_it();
    ck_assert_uint_eq(sw_count_fds(), before);
}
END_TEST

/* Each of the two has a map of its own. _i 0: all users are mapped, 1: all groups */
START_TEST(users_and_groups_are_mapped_apart) {
    put(_i ? "/proc/self/gid_map" : "/proc/self/uid_map", "0 0 4294967295\n");
    put(_i ? "/proc/self/uid_map" : "/proc/self/gid_map", "0 1000 1\n");
    const struct sw_userns ns = read_it();
    ck_assert(ns.maps_all_uids == !_i && ns.maps_all_gids == _i);
}
END_TEST

/* Only a map that is missing means a kernel without such maps. */
START_TEST(a_map_that_cannot_be_read_maps_nothing) {
    char path[SW_TEST_PATH_BYTES + 32];
    put("/proc/self/status", "Name: x\n");
    (void)snprintf(path, sizeof path, "%s/proc/self/uid_map", root);
    ck_assert_int_eq(symlink(path, path), 0); /* to itself */
    const struct sw_userns ns = read_it();
    ck_assert(!ns.maps_all_uids && ns.maps_all_gids);
}
END_TEST

START_TEST(nothing_is_mapped_yet) {
    put("/proc/self/uid_map", "");
    put("/proc/self/gid_map", "no numbers");
    const struct sw_userns ns = read_it();
    ck_assert(!ns.maps_all_uids && !ns.maps_all_gids);
}
END_TEST

START_TEST(ids_outside_the_ranges_are_not_mapped) {
    struct sw_userns ns = read_it();
    ck_assert(!sw_userns_is_user(&ns, 65534) && !sw_userns_is_group(&ns, 65534) && sw_userns_is_user(&ns, 1000));
    put("/proc/self/status", "Name: x\n"); /* but for a kernel that has no namespaces of users */
    ns = read_it();
    ck_assert(sw_userns_is_user(&ns, 65534) && sw_userns_is_group(&ns, 65534));
    put("/proc/sys/kernel/overflowuid", "x\n");
    ck_assert_uint_eq(read_it().overflow_uid, 65534);
}
END_TEST

int main(void) {
    TCase *tests = tcase_create("userns");
    tcase_add_checked_fixture(tests, setup, teardown);
    tcase_add_test(tests, all_ids_may_be_mapped);
    tcase_add_test(tests, unmapped_overflow_ids_belong_to_no_user);
    tcase_add_test(tests, no_file_stays_open);
    tcase_add_loop_test(tests, users_and_groups_are_mapped_apart, 0, 2);
    tcase_add_test(tests, a_map_that_cannot_be_read_maps_nothing);
    tcase_add_test(tests, nothing_is_mapped_yet);
    tcase_add_test(tests, ids_outside_the_ranges_are_not_mapped);
    Suite *suite = suite_create("userns");
    suite_add_tcase(suite, tests);
    return sw_test_run(suite, CK_FORK);
}
