/* The other end of a socket (ipc/peer.h): its groups and its process; and what it still gets when this end hangs up. */
#include "ipc/peer.h"
#include "ipc/proto.h"
#include "tests/lib/descriptors.h"
#include "tests/lib/packets.h"
#include "tests/lib/run.h"

#include <check.h>
#include <grp.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

enum { MAX_GROUPS = 1000 };

static int pair[2];

static void make_pair(void) {
    ck_assert_int_eq(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
}

/* Each of them, whether or not this process may choose them. */
START_TEST(all_groups_of_a_peer_count) {
    static const gid_t chosen[] = {4001, 4003, 4005};
    gid_t groups[MAX_GROUPS];
    (void)setgroups(sizeof chosen / sizeof chosen[0], chosen);
    const int n = getgroups(MAX_GROUPS, groups);
    ck_assert_int_ge(n, 0);
    make_pair();
    for (int i = 0; i < n; i++)
        ck_assert(sw_peer_in_group(pair[0], groups[i]));
    ck_assert(!sw_peer_in_group(pair[0], 4004));
    ck_assert(!sw_peer_in_group(-1, 4001));
}
END_TEST

START_TEST(a_process_is_identified_without_a_descriptor_left) {
    struct sw_peer peer;
    struct sw_process process;
    (void)setegid(4002); /* mostly a process has equal numbers */
    make_pair();
    const unsigned before = sw_count_fds();
    ck_assert_int_eq(sw_peer_init(&peer, pair[0], NULL), 0);
    ck_assert(peer.pid == getpid() && peer.uid == geteuid() && peer.gid == getegid());
    sw_peer_identify(&process, pair[0], &peer);
    ck_assert_uint_eq(sw_count_fds(), before);
    ck_assert_int_eq(sw_peer_init(&peer, -1, NULL), -SW_ECONN);
}
END_TEST

/* What the peer may have sent: a good packet, a long one, an empty one, one with more descriptors than are taken. */
static const struct {
    size_t bytes;
    unsigned n_fds;
} unread[] = {{16, 0}, {16, 2}, {SW_PROTO_MAX_PACKET_BYTES + 1, 1}, {0, 1}, {16, 253}};
enum { N_UNREAD = sizeof unread / sizeof unread[0] };

/* qemu-aarch64 loses descriptors that have no room (tests/unit/ipc_proto.c). */
static unsigned n_unread_here(void) {
    return getenv("SW_TEST_EMULATED") ? N_UNREAD - 1 : N_UNREAD;
}

/* The kernel would throw the last answer away if a packet were left unread. The loop's index: the first packet. */
START_TEST(the_last_answer_arrives_whatever_was_not_read) {
    char answer[8];
    make_pair();
    const unsigned before = sw_count_fds();
    for (unsigned i = 0; i < n_unread_here(); i++) {
        const unsigned next = (i + (unsigned)_i) % n_unread_here();
        sw_test_send_raw(pair[1], unread[next].bytes, unread[next].n_fds);
    }
    ck_assert_int_eq(send(pair[0], "why", 3, 0), 3);
    sw_peer_hang_up(pair[0]);
    ck_assert_uint_eq(sw_count_fds(), before - 1);
    ck_assert_int_eq(recv(pair[1], answer, sizeof answer, 0), 3);
    ck_assert_int_eq(recv(pair[1], answer, sizeof answer, 0), 0);
    sw_peer_hang_up(-1);
}
END_TEST

/* Then this process has no room for descriptors that come. */
START_TEST(the_last_answer_arrives_in_a_full_process) {
    struct rlimit limit;
    char answer[8];
    make_pair();
    sw_test_send_raw(pair[1], 16, 2);
    sw_test_send_raw(pair[1], 16, 0);
    ck_assert_int_eq(send(pair[0], "why", 3, 0), 3);
    ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &limit), 0);
    limit.rlim_cur = (rlim_t)pair[1] + 1;
    ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &limit), 0);
    while (dup(STDIN_FILENO) >= 0)
        ;
    sw_peer_hang_up(pair[0]);
    ck_assert_int_eq(recv(pair[1], answer, sizeof answer, 0), 3);
    ck_assert_int_eq(recv(pair[1], answer, sizeof answer, 0), 0);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("ipc_peer");
    TCase *tcase = tcase_create("peer");
    tcase_add_test(tcase, all_groups_of_a_peer_count);
    tcase_add_test(tcase, a_process_is_identified_without_a_descriptor_left);
    tcase_add_loop_test(tcase, the_last_answer_arrives_whatever_was_not_read, 0, (int)n_unread_here());
    if (n_unread_here() == N_UNREAD)
        tcase_add_test(tcase, the_last_answer_arrives_in_a_full_process);
    suite_add_tcase(suite, tcase);
    return sw_test_run(suite, CK_FORK);
}
