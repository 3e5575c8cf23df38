/* Descriptors and memories that no client should hand over, to a real daemon: each gets its named error, nothing waits
 * for them, and descriptors, mappings, regions and tier bytes are as before. */
#include "base/clock.h"
#include "tests/lib/content.h"
#include "tests/lib/run.h"
#include "tests/lib/wired.h"
#include <check.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>

/* ---- descriptors ------------------------------------------------------------------------------------------------- */

START_TEST(descriptor_counts) {
    struct sw_msg_status_ok status;
    struct sw_msg msg = {.header = {.type = SW_MSG_STATUS}};
    struct sw_region_id id;
    const int fd = sw_wire_content_memfd(SW_WIRED_BYTES, SW_CONTENT_TEXT, 1, F_SEAL_SHRINK), fds[2] = {fd, fd};
    /* None, too few, too many. The memory is refused for good, and so are requests that name it. */
    ck_assert_int_eq(sw_wire_mem_open(&sw_wired, 1, SW_MEM_MEMFD, 1, 0, SW_WIRED_BYTES), 0);
    ck_assert_int_eq(sw_wire_mem_parts(&sw_wired, 1, 0, 1, SW_WIRED_BYTES, fd, 0), -SW_EFDS);
    ck_assert_int_eq(sw_wire_spill(&sw_wired, 1, 0, SW_WIRED_BYTES, &id), -SW_EFDS);
    ck_assert_int_eq(sw_wire_mem_parts(&sw_wired, 1, 0, 1, SW_WIRED_BYTES, fd, 1), -SW_EFDS);
    ck_assert_int_eq(sw_wire_mem_close(&sw_wired, 1), 0);
    ck_assert_int_eq(sw_wire_mem_open(&sw_wired, 1, SW_MEM_MEMFD, 1, 0, SW_WIRED_BYTES), 0);
    ck_assert_int_eq(sw_wire_mem_parts(&sw_wired, 1, 0, 1, SW_WIRED_BYTES, fd, 2), -SW_EFDS);
    ck_assert_int_eq(sw_wire_mem_open(&sw_wired, 2, SW_MEM_CUDA_VMM, 3, 0, 3), 0);
    ck_assert_int_eq(sw_wire_mem_parts(&sw_wired, 2, 0, 3, 1, fd, 2), -SW_EFDS);
    /* Descriptors with a message that takes none: they are closed, the message is refused, and the session goes on. */
    ck_assert_int_eq(sw_wire_call(&sw_wired, &msg, fds, 2), -SW_EFDS);
    ck_assert_int_eq(sw_wire_status(&sw_wired, &status), 0);
    (void)close(fd);
}
END_TEST

START_TEST(more_descriptors_than_a_packet_may_carry) {
    _Alignas(SW_PROTO_ALIGN) uint8_t packet[SW_PROTO_MAX_PACKET_BYTES];
    struct sw_msg msg = {.header = {.version = SW_PROTO_OLDEST_VERSION, .type = SW_MSG_MEM_PARTS, .seq = 5}};
    msg.u.mem_parts = (struct sw_msg_mem_parts){.mem = 1, .count = 64};
    ck_assert(sw_wire_send_raw(&sw_wired, packet, sw_msg_encode(&msg, packet), sw_wired.socket, (unsigned)_i));
    ck_assert_int_eq(sw_wire_await(&sw_wired, 5, &msg), -SW_EFDS);
    ck_assert(sw_wire_is_closed(&sw_wired));
}
END_TEST

/* Spills SW_WIRED_BYTES of a memory made of this descriptor; the descriptor is closed here. */
static int spill_code(int fd, uint64_t claimed_bytes) {
    struct sw_region_id id;
    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(sw_wire_mem(&sw_wired, 3, fd, claimed_bytes, true), 0);
    (void)close(fd);
    return sw_wire_spill(&sw_wired, 3, 0, claimed_bytes, &id);
}

START_TEST(descriptors_of_the_wrong_kind) {
    char path[128];
    int pipes[2];
    (void)snprintf(path, sizeof path, "%s/file", sw_wired_daemon.folder);
    const int file = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    ck_assert_int_eq(ftruncate(file, SW_WIRED_BYTES), 0);
    ck_assert_int_eq(pipe2(pipes, O_CLOEXEC), 0);
    ck_assert_int_eq(spill_code(dup(pipes[0]), SW_WIRED_BYTES), -SW_EFDS);
    ck_assert_int_eq(spill_code(dup(pipes[1]), SW_WIRED_BYTES), -SW_EFDS);
    ck_assert_int_eq(spill_code(dup(sw_wired.socket), SW_WIRED_BYTES), -SW_EFDS);
    ck_assert_int_eq(spill_code(open("/tmp", O_RDONLY | O_DIRECTORY | O_CLOEXEC), SW_WIRED_BYTES), -SW_EFDS);
    ck_assert_int_eq(spill_code(open("/dev/zero", O_RDWR | O_CLOEXEC), SW_WIRED_BYTES), -SW_EFDS);
    const int rc = spill_code(dup(file), SW_WIRED_BYTES);
    ck_assert(rc == -SW_EFDS || rc == -SW_EUNSEALED); /* the latter where /tmp is a tmpfs */
    (void)close(file);
    (void)close(pipes[0]);
    (void)close(pipes[1]);
}
END_TEST

START_TEST(memfds_that_can_shrink_or_are_too_short_are_refused) {
    ck_assert_int_eq(spill_code(sw_wire_content_memfd(SW_WIRED_BYTES, SW_CONTENT_TEXT, 1, 0), SW_WIRED_BYTES),
                     -SW_EUNSEALED);
    ck_assert_int_eq(spill_code(sw_wire_content_memfd(SW_WIRED_BYTES, SW_CONTENT_TEXT, 1, F_SEAL_GROW), SW_WIRED_BYTES),
                     -SW_EUNSEALED);
    ck_assert_int_eq(
        spill_code(sw_wire_content_memfd(SW_WIRED_BYTES - 1, SW_CONTENT_TEXT, 1, F_SEAL_SHRINK), SW_WIRED_BYTES),
        -SW_ERANGE);
    ck_assert_int_eq(spill_code(sw_wire_content_memfd(1, SW_CONTENT_TEXT, 1, F_SEAL_SHRINK), UINT64_C(1) << 30),
                     -SW_ERANGE);
    ck_assert_int_eq(spill_code(sw_wire_content_memfd(1, SW_CONTENT_TEXT, 1, F_SEAL_SHRINK), UINT64_MAX), -SW_ENOSPACE);
}
END_TEST

/* A connection that lingers: closing its last descriptor takes until *ret_peer is closed, or half a minute. This
 * process closes its own descriptor once it is sent. */
static int lingering(int *ret_peer) {
    static const struct linger linger = {.l_onoff = 1, .l_linger = 30};
    static const uint8_t zeros[65536];
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t bytes = sizeof address;
    const int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    ck_assert_int_eq(bind(listener, (struct sockaddr *)&address, bytes), 0);
    ck_assert_int_eq(listen(listener, 1), 0);
    ck_assert_int_eq(getsockname(listener, (struct sockaddr *)&address, &bytes), 0);
    ck_assert_int_eq(connect(fd, (struct sockaddr *)&address, bytes), 0);
    *ret_peer = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
    ck_assert_int_ge(*ret_peer, 0);
    while (send(fd, zeros, sizeof zeros, MSG_DONTWAIT) > 0)
        continue;
    ck_assert_int_eq(setsockopt(fd, SOL_SOCKET, SO_LINGER, &linger, sizeof linger), 0);
    (void)close(listener);
    return fd;
}

enum { IN_STATUS, IN_MEMORY, IN_GARBAGE, IN_TOO_LONG, BEHIND_THE_END, WAYS };

/* Sends a descriptor to a daemon that is stopped meanwhile, so that the daemon closes it last, in each of the places
 * where it does. */
static void send_last(struct sw_wire *by, const struct sw_test_daemon *to, int way, int fd) {
    static const uint8_t garbage[SW_PROTO_MAX_PACKET_BYTES + 1];
    struct sw_msg status = {.header = {.type = SW_MSG_STATUS}};
    struct sw_region_id id;
    uint32_t seq = 0;
    if (way == IN_MEMORY)
        ck_assert_int_eq(sw_wire_mem(by, 1, fd, SW_WIRED_BYTES, true), 0);
    sw_test_daemon_pause(to);
    if (way == IN_STATUS)
        seq = sw_wire_send(by, &status, &fd, 1);
    if (way == BEHIND_THE_END)
        ck_assert(sw_wire_send_raw(by, garbage, 20, -1, 0));
    if (way >= IN_GARBAGE)
        ck_assert(sw_wire_send_raw(by, garbage, way == IN_TOO_LONG ? sizeof garbage : 20, fd, 1));
    (void)close(fd);
    ck_assert_int_eq(kill(to->pid, SIGCONT), 0);
    if (way == IN_MEMORY)
        ck_assert_int_eq(sw_wire_spill(by, 1, 0, SW_WIRED_BYTES, &id), -SW_EFDS);
    else
        ck_assert_int_eq(sw_wire_await(by, seq, &status), way == IN_STATUS ? -SW_EFDS : -SW_EPROTO);
}

/* Nothing waits for a descriptor whose close hangs: no request, no spill, and not the stop. */
START_TEST(descriptors_that_do_not_close) {
    struct sw_wire other;
    int peer;
    const int fd = lingering(&peer);
    const uint64_t before_us = sw_clock_us();
    sw_wire_open(&other, sw_wired_daemon.socket);
    send_last(&other, &sw_wired_daemon, _i, fd);
    ck_assert_ptr_null(sw_sound_round_trip(&sw_wired_daemon, SW_WIRED_BYTES, 3));
    sw_wire_close(&other);
    ck_assert_ptr_null(sw_sound_round_trip(&sw_wired_daemon, SW_WIRED_BYTES, 4));
    ck_assert_uint_lt(sw_clock_us() - before_us, 10000000);
    (void)close(peer);
}
END_TEST

START_TEST(a_stop_does_not_wait_for_closing_descriptors) {
    struct sw_test_daemon mine = {0};
    struct sw_wire other;
    int peer;
    const int fd = lingering(&peer);
    sw_test_daemon_start(&mine, SW_SPILLWAYD_PATH, NULL);
    sw_wire_open(&other, mine.socket);
    send_last(&other, &mine, IN_STATUS, fd);
    const uint64_t before_us = sw_clock_us();
    ck_assert_int_eq(sw_test_daemon_stop(&mine, SIGTERM), 0);
    ck_assert_uint_lt(sw_clock_us() - before_us, 15000000);
    sw_wire_close(&other);
    sw_test_daemon_clean(&mine);
    (void)close(peer);
}
END_TEST

/* ---- memories ---------------------------------------------------------------------------------------------------- */

START_TEST(memories_of_the_wrong_shape) {
    static const struct {
        uint32_t kind, n_parts, once;
    } shapes[] = {
        {SW_MEM_KIND_NR, 1, 0},
        {UINT32_MAX, 1, 0},
        {SW_MEM_MEMFD, 0, 0},
        {SW_MEM_MEMFD, 2, 0},
        {SW_MEM_CUDA_IPC, 1, 0},
        {SW_MEM_CUDA_POOL, 0, 0},
        {SW_MEM_CUDA_VMM, 0, 0},
        {SW_MEM_CUDA_VMM, SW_MEM_MAX_PARTS + 1, 0},
        {SW_MEM_CUDA_VMM, UINT32_MAX, 0},
        {SW_MEM_MEMFD, 1, 2},
    };
    struct sw_region_id id;
    for (unsigned i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
        ck_assert_int_eq(
            sw_wire_mem_open(&sw_wired, 1, shapes[i].kind, shapes[i].n_parts, shapes[i].once, SW_WIRED_BYTES),
            -SW_EINVAL);
        ck_assert_int_eq(sw_wire_mem_parts(&sw_wired, 1, 0, 1, SW_WIRED_BYTES, sw_wired.socket, 1), -SW_EINVAL);
        ck_assert_int_eq(sw_wire_spill(&sw_wired, 1, 0, 1, &id), -SW_EINVAL);
        ck_assert_int_eq(sw_wire_mem_close(&sw_wired, 1), 0);
    }
    /* Well formed, but on a GPU that this daemon does not have. */
    ck_assert_int_eq(sw_wire_mem_open(&sw_wired, 1, SW_MEM_CUDA_IPC, 0, 1, SW_WIRED_BYTES), -SW_EDEVICE);
    ck_assert_int_eq(sw_wire_spill(&sw_wired, 1, 0, 1, &id), -SW_EDEVICE);
    ck_assert_int_eq(sw_wire_spill(&sw_wired, 1, 0, 1, &id), -SW_ENOENT); /* `once`: used up by the failure */
    ck_assert_int_eq(sw_wire_mem_open(&sw_wired, 2, SW_MEM_CUDA_VMM, 2, 0, 2 * SW_WIRED_BYTES), 0);
    ck_assert_int_eq(sw_wire_mem_parts(&sw_wired, 2, 0, 2, SW_WIRED_BYTES, sw_wired.socket, 2), -SW_EDEVICE);
}
END_TEST

START_TEST(parts_that_do_not_add_up) {
    static const struct {
        uint64_t bytes, part_bytes;
        int code;
    } sums[] = {
        {2, UINT64_MAX, -SW_ERANGE},
        {UINT64_MAX - 1, UINT64_MAX, -SW_ERANGE},
        {0, UINT64_C(1) << 63, -SW_ERANGE},
        {SW_WIRED_BYTES, SW_WIRED_BYTES, -SW_ERANGE},
        {3 * SW_WIRED_BYTES, SW_WIRED_BYTES, -SW_ERANGE},
    };
    struct sw_region_id id;
    for (unsigned i = 0; i < sizeof sums / sizeof sums[0]; i++) {
        ck_assert_int_eq(sw_wire_mem_open(&sw_wired, 1, SW_MEM_CUDA_VMM, 2, 0, sums[i].bytes), 0);
        ck_assert_int_eq(sw_wire_mem_parts(&sw_wired, 1, 0, 2, sums[i].part_bytes, sw_wired.socket, 2), sums[i].code);
        ck_assert_int_eq(sw_wire_spill(&sw_wired, 1, 0, 1, &id), sums[i].code);
        ck_assert_int_eq(sw_wire_mem_close(&sw_wired, 1), 0);
    }
}
END_TEST

START_TEST(parts_in_the_wrong_order) {
    static const struct {
        uint32_t first, count;
    } parts[] = {{0, 1}, {2, 1}, {UINT32_MAX, 1}, {1, 0}, {1, 65}, {1, 3}, {1, UINT32_MAX}};
    struct sw_region_id id;
    for (unsigned i = 0; i < sizeof parts / sizeof parts[0]; i++) {
        ck_assert_int_eq(sw_wire_mem_open(&sw_wired, 1, SW_MEM_CUDA_VMM, 3, 0, 3), 0);
        ck_assert_int_eq(sw_wire_mem_parts(&sw_wired, 1, 0, 1, 1, sw_wired.socket, 1), 0);
        ck_assert_int_eq(sw_wire_spill(&sw_wired, 1, 0, 1, &id), -SW_EINVAL); /* parts missing; they may still come */
        ck_assert_int_eq(sw_wire_mem_parts(&sw_wired, 1, parts[i].first, parts[i].count, 1, sw_wired.socket, 1),
                         -SW_EINVAL);
        ck_assert_int_eq(sw_wire_mem_parts(&sw_wired, 1, 1, 1, 1, sw_wired.socket, 1), -SW_EINVAL);
        ck_assert_int_eq(sw_wire_mem_close(&sw_wired, 1), 0);
    }
}
END_TEST

START_TEST(memory_numbers) {
    struct sw_region_id id;
    const struct sw_region_id stored = sw_wired_spill(3);
    const int fd = sw_wire_content_memfd(SW_WIRED_BYTES, SW_CONTENT_TEXT, 1, F_SEAL_SHRINK);
    ck_assert_int_eq(sw_wire_mem(&sw_wired, 1, fd, SW_WIRED_BYTES, false), 0);
    ck_assert_int_eq(sw_wire_mem_open(&sw_wired, 1, SW_MEM_MEMFD, 1, 0, SW_WIRED_BYTES), -SW_EEXIST);
    ck_assert_int_eq(sw_wire_mem_parts(&sw_wired, 1, 0, 1, SW_WIRED_BYTES, fd, 1), -SW_EINVAL); /* has all its parts */
    ck_assert_int_eq(sw_wire_spill(&sw_wired, 1, 0, SW_WIRED_BYTES, &id), 0); /* and is none the worse */
    ck_assert_int_eq(sw_wire_mem_close(&sw_wired, 1), 0);
    ck_assert_int_eq(sw_wire_mem_close(&sw_wired, 1), -SW_ENOENT);
    ck_assert_int_eq(sw_wire_spill(&sw_wired, 1, 0, SW_WIRED_BYTES, &id), -SW_ENOENT);
    ck_assert_int_eq(sw_wire_mem_parts(&sw_wired, 1, 0, 1, SW_WIRED_BYTES, fd, 1), -SW_ENOENT);
    ck_assert_int_eq(sw_wire_restore(&sw_wired, stored, UINT32_MAX, 0, SW_WIRED_BYTES), -SW_ENOENT);
    /* `once` is for one operation, also one that is refused. */
    ck_assert_int_eq(sw_wire_mem(&sw_wired, 1, fd, SW_WIRED_BYTES, true), 0);
    ck_assert_int_eq(sw_wire_spill(&sw_wired, 1, 0, SW_WIRED_BYTES + 1, &id), -SW_ERANGE);
    ck_assert_int_eq(sw_wire_spill(&sw_wired, 1, 0, SW_WIRED_BYTES, &id), -SW_ENOENT);
    sw_wired_ck_restores(stored, 3);
    (void)close(fd);
}
END_TEST

/* Registered memory is mapped before it is acknowledged, so that a failed mapping is reported at once. */
START_TEST(registered_memory_is_mapped_at_once) {
    struct sw_msg_status_ok status;
    struct sw_region_id id;
    const int sealed = sw_wire_content_memfd(SW_WIRED_BYTES, SW_CONTENT_TEXT, 1, F_SEAL_SHRINK);
    const int unsealed = sw_wire_content_memfd(SW_WIRED_BYTES, SW_CONTENT_TEXT, 1, 0);
    ck_assert_int_eq(sw_wire_mem(&sw_wired, 1, sealed, SW_WIRED_BYTES, false), 0);
    ck_assert_int_eq(sw_wire_status(&sw_wired, &status), 0);
    ck_assert_uint_eq(status.mapped_memories, 1);
    ck_assert_int_eq(sw_wire_mem(&sw_wired, 2, unsealed, SW_WIRED_BYTES, false), -SW_EUNSEALED);
    ck_assert_int_eq(sw_wire_mem(&sw_wired, 3, sealed, SW_WIRED_BYTES + 1, false), -SW_ERANGE);
    ck_assert_int_eq(sw_wire_spill(&sw_wired, 3, 0, 1, &id), -SW_ERANGE); /* again, for a client that did not wait */
    for (uint32_t mem = 1; mem <= 3; mem++)
        ck_assert_int_eq(sw_wire_mem_close(&sw_wired, mem), 0);
    ck_assert_int_eq(sw_wire_status(&sw_wired, &status), 0);
    ck_assert_uint_eq(status.mapped_memories, 0);
    /* Closed before it can have been mapped: both requests are answered, in that order. */
    struct sw_msg open = {.header.type = SW_MSG_MEM_OPEN}, parts = {.header.type = SW_MSG_MEM_PARTS};
    struct sw_msg end = {.header.type = SW_MSG_MEM_CLOSE, .u.mem_close.mem = 4}, reply;
    open.u.mem_open = (struct sw_msg_mem_open){.mem = 4, .kind = SW_MEM_MEMFD, .n_parts = 1, .bytes = SW_WIRED_BYTES};
    parts.u.mem_parts = (struct sw_msg_mem_parts){.mem = 4, .count = 1, .part_bytes[0] = SW_WIRED_BYTES};
    ck_assert_int_eq(sw_wire_call(&sw_wired, &open, NULL, 0), 0);
    const uint32_t parts_seq = sw_wire_send(&sw_wired, &parts, &sealed, 1),
                   end_seq = sw_wire_send(&sw_wired, &end, NULL, 0);
    ck_assert_int_eq(sw_wire_await(&sw_wired, parts_seq, &reply), 0);
    ck_assert_int_eq(sw_wire_await(&sw_wired, end_seq, &reply), 0);
    (void)close(sealed);
    (void)close(unsealed);
}
END_TEST

START_TEST(session_limits) {
    struct sw_msg msgs[9];
    struct sw_region_id id;
    struct sw_msg_status_ok status;
    const int fd = sw_wire_content_memfd(SW_WIRED_BYTES, SW_CONTENT_TEXT, 1, F_SEAL_SHRINK);
    for (uint32_t i = 0; i < 8; i++)
        ck_assert_int_eq(sw_wire_mem(&sw_wired, i, fd, SW_WIRED_BYTES, false), 0);
    ck_assert_int_eq(sw_wire_mem_open(&sw_wired, 8, SW_MEM_MEMFD, 1, 0, SW_WIRED_BYTES), -SW_ELIMIT);
    ck_assert_int_eq(sw_wire_mem_parts(&sw_wired, 8, 0, 1, SW_WIRED_BYTES, fd, 1), -SW_ELIMIT);
    ck_assert_int_eq(sw_wire_spill(&sw_wired, 8, 0, SW_WIRED_BYTES, &id), -SW_ELIMIT);
    ck_assert_int_eq(sw_wire_mem_close(&sw_wired, 7), 0);
    ck_assert_int_eq(sw_wire_mem(&sw_wired, 8, fd, SW_WIRED_BYTES, false), 0);
    /* A burst beyond max_session_operations: eight replies of success and, unless the daemon was quick, a refusal. */
    unsigned refused = 0;
    for (int i = 0; i < 9; i++) {
        msgs[i] = sw_wire_spill_msg(0, 0, SW_WIRED_BYTES);
        (void)sw_wire_send(&sw_wired, &msgs[i], NULL, 0);
    }
    for (int i = 0; i < 9; i++) {
        struct sw_msg msg;
        ck_assert_int_eq(sw_wire_receive(&sw_wired, &msg), 1);
        if (msg.header.type == SW_MSG_ERROR) {
            ck_assert_str_eq((const char *)msg.u.error.name, "ELIMIT");
            refused++;
        }
    }
    ck_assert_uint_le(refused, 1);
    ck_assert_int_eq(sw_wire_status(&sw_wired, &status), 0);
    ck_assert_uint_eq(status.regions, 9 - refused);
    (void)close(fd);
}
END_TEST

int main(void) {
    TCase *tests = tcase_create("bad_memory");
    tcase_add_unchecked_fixture(tests, sw_wired_start, sw_wired_stop);
    tcase_add_checked_fixture(tests, sw_wired_before_each, sw_wired_after_each);
    tcase_add_test(tests, descriptor_counts);
    tcase_add_loop_test(tests, more_descriptors_than_a_packet_may_carry, 65, 67);
    tcase_add_test(tests, descriptors_of_the_wrong_kind);
    tcase_add_test(tests, memfds_that_can_shrink_or_are_too_short_are_refused);
    tcase_add_loop_test(tests, descriptors_that_do_not_close, 0, WAYS);
    tcase_add_test(tests, a_stop_does_not_wait_for_closing_descriptors);
    tcase_add_test(tests, memories_of_the_wrong_shape);
    tcase_add_test(tests, parts_that_do_not_add_up);
    tcase_add_test(tests, parts_in_the_wrong_order);
    tcase_add_test(tests, memory_numbers);
    tcase_add_test(tests, registered_memory_is_mapped_at_once);
    tcase_add_test(tests, session_limits);
    Suite *suite = suite_create("bad_memory");
    suite_add_tcase(suite, tests);
    return sw_test_run(suite, CK_FORK);
}
