/* Which user a peer is if the user namespace does not map all users, on both sockets. This process stands for a client,
 * and its uid and gid for the overflow ids. tests/e2e/userns.c has real namespaces. */
#include "base/log.h"
#include "daemon/users.h"

#include "daemon/control/control_rights.h"
#include "tests/lib/run.h"
#include "tests/lib/service.h"

#include <check.h>
#include <grp.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static struct sw_test_service service;
static struct sw_peer peer;
static int pair[2];

static void setup(void) {
    sw_test_service_start(&service);
    ck_assert_int_eq(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair), 0);
    ck_assert_int_eq(sw_peer_init(&peer, pair[0], NULL), 0);
    service.service.userns = (struct sw_userns){.overflow_uid = getuid(), .overflow_gid = getgid()};
}

static int allowed(void) {
    return sw_tenant_allowed(&service.service, &peer, pair[0], NULL);
}

static enum sw_control_right right(gid_t all) {
    const struct sw_control_groups groups = {.all = all, .read = SW_CONTROL_NO_GROUP};
    return sw_control_right(pair[0], &peer, &groups, &service.service.userns);
}

START_TEST(users_are_refused_if_not_all_are_mapped) {
    struct sw_err err;
    ck_assert_int_eq(allowed(), -SW_EUNMAPPED);
    service.config.allowed_uids = (struct sw_config_ids){.n = 1, .ids = {getuid()}};
    ck_assert_int_eq(allowed(), -SW_EUNMAPPED);
    ck_assert_int_eq(sw_users_check(&service.service, getuid() + 1, &err), 0);
    service.service.userns.maps_all_uids = true;
    ck_assert_int_eq(allowed(), 0);
}
END_TEST

START_TEST(unmapped_users_may_be_one_tenant) {
    ck_assert_int_eq(sw_config_set(&service.config, "unmapped_users=one_tenant", NULL), 0);
    ck_assert_int_eq(allowed(), 0);
    service.config.allowed_uids = (struct sw_config_ids){.n = 1, .ids = {getuid() + 1}};
    ck_assert_int_eq(allowed(), -SW_EACCES);
}
END_TEST

START_TEST(groups_do_not_count_if_not_all_are_mapped) {
    service.service.userns.maps_all_uids = true;
    service.config.allowed_gids = (struct sw_config_ids){.n = 1, .ids = {getgid()}};
    ck_assert_int_eq(allowed(), -SW_EACCES);
    service.service.userns.maps_all_gids = true;
    ck_assert_int_eq(allowed(), 0);
}
END_TEST

static struct sw_userns found; /* by the next look */
static bool is_found;
static char logged[2048];

void __real_sw_userns_read(struct sw_userns *ret, const char *root);
void __wrap_sw_userns_read(struct sw_userns *ret, const char *root);
void __wrap_sw_userns_read(struct sw_userns *ret, const char *root) {
    if (is_found)
        *ret = found;
    else
        __real_sw_userns_read(ret, root);
}

static void keep_line(enum sw_log_level level, const char *line, void *arg) {
    (void)level, (void)arg;
    (void)snprintf(logged, sizeof logged, "%s", line);
}

/* Bit 0 of the loop's index: all users are mapped; bit 1: all groups are; bit 2: unmapped users are one tenant. */
START_TEST(a_namespace_that_does_not_map_all_is_logged) {
    struct sw_service *s = &service.service;
    found = (struct sw_userns){
        .maps_all_uids = _i & 1, .maps_all_gids = _i & 2, .overflow_uid = 4241, .overflow_gid = 4242};
    is_found = true;
    ck_assert_int_eq(
        sw_config_set(&service.config, _i & 4 ? "unmapped_users=one_tenant" : "unmapped_users=refuse", NULL), 0);
    sw_log_set_level(SW_LOG_INFO);
    sw_log_set_tap(keep_line, NULL);
    sw_users_read(s);
    sw_log_set_tap(NULL, NULL);
    ck_assert(s->userns.maps_all_uids == found.maps_all_uids && s->userns.overflow_gid == 4242);
    if ((_i & 3) == 3) {
        ck_assert_str_eq(logged, "");
    } else {
        ck_assert_msg(strstr(logged, "event=users.unmapped uid=4241 gid=4242 "), "%s", logged);
        ck_assert_msg(strstr(logged, _i & 4 ? "unmapped users are one tenant" : "unmapped users are refused"), "%s",
                      logged);
    }
}
END_TEST

/* The service's own uid may be the same number, and root's where root is not mapped. */
START_TEST(unmapped_users_have_no_special_rights) {
    ck_assert_int_eq(right(SW_CONTROL_NO_GROUP), SW_CONTROL_NOTHING);
    ck_assert_int_eq(right(getgid() + 1000000), SW_CONTROL_NOTHING);
    ck_assert_int_eq(right(getgid()), SW_CONTROL_ALL); /* a group that sw_control_groups() has taken */
    service.service.userns.maps_all_uids = true;
    ck_assert_int_eq(right(SW_CONTROL_NO_GROUP), SW_CONTROL_ALL);
}
END_TEST

/* All groups of the process that connected count, not only the first. Only root can choose them: others pass. */
START_TEST(every_group_of_a_process_has_its_right) {
    const gid_t wanted = getgid() + 1, other = getgid() + 2;
    struct sw_control_groups groups = {.all = wanted, .read = SW_CONTROL_NO_GROUP};
    if (setgroups(1, &wanted) < 0)
        return;
    ck_assert_int_eq(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair), 0);
    ck_assert_int_eq(sw_control_right(pair[0], &peer, &groups, &service.service.userns), SW_CONTROL_ALL);
    groups = (struct sw_control_groups){.all = other, .read = wanted};
    ck_assert_int_eq(sw_control_right(pair[0], &peer, &groups, &service.service.userns), SW_CONTROL_READ);
    groups.read = other;
    ck_assert_int_eq(sw_control_right(pair[0], &peer, &groups, &service.service.userns), SW_CONTROL_NOTHING);
}
END_TEST

START_TEST(the_control_group_must_be_one_group) {
    struct sw_control_groups groups;
    char assignment[40];
    (void)snprintf(assignment, sizeof assignment, "control_group=\"%u\"", (unsigned)getgid());
    ck_assert_int_eq(sw_config_set(&service.config, assignment, NULL), 0);
    ck_assert_int_eq(sw_control_groups(&groups, &service.config, &service.service.userns, NULL), -SW_ECONFIG);
    service.service.userns.maps_all_gids = true;
    ck_assert_int_eq(sw_control_groups(&groups, &service.config, &service.service.userns, NULL), 0);
    ck_assert_uint_eq(groups.all, getgid());
    ck_assert_int_eq(sw_config_set(&service.config, "control_group=\"4294967295\"", NULL), 0); /* no group at all */
    ck_assert_int_eq(sw_control_groups(&groups, &service.config, &service.service.userns, NULL), -SW_ECONFIG);
}
END_TEST

/* A number has digits only, and a wrong group matters only where there is a socket. */
START_TEST(a_control_group_has_a_name_or_a_number) {
    static const char *const wrong[] = {"-5", "+5", " 5", "5 ", "0x5", "no such group"};
    struct sw_control_groups groups;
    struct sw_config *c = &service.config;
    struct sw_err err;
    service.service.userns.maps_all_gids = true;
    for (size_t i = 0; i < 2 * sizeof wrong / sizeof wrong[0]; i++) {
        (void)snprintf(c->control_group, sizeof c->control_group, "%s", i % 2 ? "none" : wrong[i / 2]);
        (void)snprintf(c->control_read_group, sizeof c->control_read_group, "%s", i % 2 ? wrong[i / 2] : "7");
        (void)snprintf(c->control_socket, sizeof c->control_socket, "/x/control.sock");
        ck_assert_msg(sw_control_groups(&groups, c, &service.service.userns, &err) == -SW_ECONFIG, "%s", wrong[i / 2]);
        ck_assert_ptr_nonnull(
            strstr(err.msg, i % 2 ? "control_read_group: there is no" : "control_group: there is no"));
        (void)snprintf(c->control_socket, sizeof c->control_socket, "none");
        ck_assert_int_eq(sw_control_groups(&groups, c, &service.service.userns, &err), 0);
        ck_assert(groups.all == SW_CONTROL_NO_GROUP && groups.read == SW_CONTROL_NO_GROUP);
    }
}
END_TEST

int main(void) {
    TCase *tests = tcase_create("users");
    tcase_add_checked_fixture(tests, setup, NULL);
    tcase_add_test(tests, users_are_refused_if_not_all_are_mapped);
    tcase_add_test(tests, unmapped_users_may_be_one_tenant);
    tcase_add_test(tests, groups_do_not_count_if_not_all_are_mapped);
    tcase_add_loop_test(tests, a_namespace_that_does_not_map_all_is_logged, 0, 8);
    tcase_add_test(tests, unmapped_users_have_no_special_rights);
    tcase_add_test(tests, every_group_of_a_process_has_its_right);
    tcase_add_test(tests, the_control_group_must_be_one_group);
    tcase_add_test(tests, a_control_group_has_a_name_or_a_number);
    Suite *suite = suite_create("users");
    suite_add_tcase(suite, tests);
    return sw_test_run(suite, CK_FORK);
}
