/* Requests that no client should make, to a real daemon: each gets its named error, the daemon goes on serving, and
 * descriptors, mappings, regions and tier bytes are as before. */
#include "base/clock.h"
#include "tests/lib/content.h"
#include "tests/lib/run.h"
#include "tests/lib/sound.h"
#include "tests/lib/wire.h"
#include <check.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

enum { BYTES = 200000 };

static struct sw_test_daemon daemon_process;
static struct sw_sound before;
static struct sw_wire wire;

static void start(void) {
    static const char *const options[] = {"max_session_operations=8", "max_session_memories=8", NULL};
    sw_test_daemon_start(&daemon_process, SW_SPILLWAYD_PATH, options);
    /* The first round trip makes what stays: worker threads' memory, arena slabs. */
    if (sw_sound_round_trip(&daemon_process, BYTES, 7))
        abort();
}

static void stop(void) {
    if (sw_test_daemon_stop(&daemon_process, SIGTERM) != 0)
        abort();
    sw_test_daemon_clean(&daemon_process);
}

static void before_each(void) {
    sw_sound_take(&daemon_process, &before);
    sw_wire_open(&wire, daemon_process.socket);
}

static void after_each(void) {
    sw_wire_close(&wire);
    const char *wrong = sw_sound_check(&daemon_process, &before);
    ck_assert_msg(wrong == NULL, "%s", wrong);
}

/* Spills BYTES of text from memory `mem`, which is closed again. */
static struct sw_region_id spilled(struct sw_wire *by, uint64_t seed) {
    struct sw_region_id id = {0};
    const int fd = sw_wire_content_memfd(BYTES, SW_CONTENT_TEXT, seed, F_SEAL_SHRINK);
    ck_assert_int_eq(sw_wire_mem(by, 1000, fd, BYTES, true), 0);
    ck_assert_int_eq(sw_wire_spill(by, 1000, 0, BYTES, &id), 0);
    (void)close(fd);
    return id;
}

static void ck_restores(struct sw_wire *by, struct sw_region_id id, uint64_t seed) {
    const int fd = sw_wire_memfd(NULL, BYTES, F_SEAL_SHRINK);
    ck_assert_int_eq(sw_wire_mem(by, 1001, fd, BYTES, true), 0);
    ck_assert_int_eq(sw_wire_restore(by, id, 1001, 0, BYTES), 0);
    ck_assert(sw_wire_memfd_holds(fd, BYTES, SW_CONTENT_TEXT, seed));
    (void)close(fd);
}

/* ---- packets ----------------------------------------------------------------------------------------------------- */

static const struct {
    const char *what;
    size_t offset; /* one byte of a good packet is changed ... */
    uint8_t value;
    size_t bytes; /* ... and its length, if not 0 */
    int code;
    uint32_t seq; /* of the error */
} bad_packets[] = {
    {"magic", 0, 'X', 0, -SW_EPROTO, 77},
    {"version", 4, SW_PROTO_VERSION + 1, 0, -SW_EVERSION, 77},
    {"version, high byte", 5, 1, 0, -SW_EVERSION, 77},
    {"unknown type", 6, 50, 0, -SW_EPROTO, 77},
    {"a reply as request", 6, SW_MSG_OK, 0, -SW_EPROTO, 77},
    {"length in the header", 12, 8, 0, -SW_EPROTO, 77},
    {"huge length in the header", 15, 0xff, 0, -SW_EPROTO, 77},
    {"truncated body", 0, 'S', 19, -SW_EPROTO, 77},
    {"no body", 0, 'S', SW_PROTO_HEADER_BYTES, -SW_EPROTO, 77},
    {"truncated header", 0, 'S', 15, -SW_EPROTO, 0},
    {"one byte", 0, 'S', 1, -SW_EPROTO, 0},
    {"bytes behind the body", 0, 'S', 21, -SW_EPROTO, 77},
    {"longest packet", 0, 'S', SW_PROTO_MAX_PACKET_BYTES, -SW_EPROTO, 77},
    {"oversized by one", 0, 'S', SW_PROTO_MAX_PACKET_BYTES + 1, -SW_EPROTO, 77},
    {"oversized by far", 0, 'S', 60000, -SW_EPROTO, 77},
};

START_TEST(bad_packet_ends_the_session) {
    static uint8_t packet[65536];
    struct sw_msg msg = {.header = {.type = SW_MSG_STATUS, .seq = 77}};
    const size_t bytes = sw_msg_encode(&msg, packet);
    packet[bad_packets[_i].offset] = bad_packets[_i].value;
    /* With descriptors on board, which must not stay behind either. */
    ck_assert(sw_wire_send_raw(&wire, packet, bad_packets[_i].bytes ? bad_packets[_i].bytes : bytes, wire.socket, 3));
    ck_assert_msg(sw_wire_await(&wire, bad_packets[_i].seq, &msg) == bad_packets[_i].code, "%s", bad_packets[_i].what);
    ck_assert(sw_wire_is_closed(&wire));
}
END_TEST

START_TEST(error_reaches_a_peer_that_went_on_sending) {
    struct sw_msg msg = {.header = {.type = SW_MSG_STATUS}};
    uint8_t packet[SW_PROTO_MAX_PACKET_BYTES] = {0};
    ck_assert(sw_wire_send_raw(&wire, packet, 20, -1, 0));
    for (int i = 0; i < 20; i++)
        if (!sw_wire_send_raw(&wire, packet, 20, wire.socket, 2))
            break;
    ck_assert_int_eq(sw_wire_await(&wire, 0, &msg), -SW_EPROTO);
    ck_assert(sw_wire_is_closed(&wire));
}
END_TEST

START_TEST(hello_comes_first_and_once) {
    struct sw_wire other;
    struct sw_msg_status_ok status;
    ck_assert(sw_wire_connect(&other, daemon_process.socket));
    ck_assert_int_eq(sw_wire_status(&other, &status), -SW_EPROTO);
    ck_assert(sw_wire_is_closed(&other));
    sw_wire_close(&other);
    ck_assert(sw_wire_connect(&other, daemon_process.socket));
    ck_assert_int_eq(sw_wire_mem_parts(&other, 1, 0, 1, BYTES, wire.socket, 1), -SW_EPROTO);
    sw_wire_close(&other);
    ck_assert(sw_wire_connect(&other, daemon_process.socket));
    ck_assert_int_eq(sw_wire_hello(&other, SW_PROTO_VERSION + 1), -SW_EVERSION);
    ck_assert(sw_wire_is_closed(&other));
    sw_wire_close(&other);
    ck_assert_int_eq(sw_wire_hello(&wire, SW_PROTO_VERSION), -SW_EPROTO);
    ck_assert(sw_wire_is_closed(&wire));
}
END_TEST

START_TEST(seq_is_not_used_twice) {
    const int fd = sw_wire_content_memfd(BYTES, SW_CONTENT_TEXT, 1, F_SEAL_SHRINK);
    ck_assert_int_eq(sw_wire_mem(&wire, 1, fd, BYTES, false), 0);
    struct sw_msg msg = sw_wire_spill_msg(1, 0, BYTES);
    const uint32_t seq = sw_wire_send(&wire, &msg, NULL, 0);
    wire.seq--;
    (void)sw_wire_send(&wire, &msg, NULL, 0);
    /* Either the first has ended before the second was read, or the second is refused. */
    int rc = sw_wire_await(&wire, seq, &msg);
    ck_assert(rc == 0 || rc == -SW_EPROTO);
    ck_assert(rc == 0 || sw_wire_is_closed(&wire));
    (void)close(fd);
}
END_TEST

/* ---- descriptors ------------------------------------------------------------------------------------------------- */

START_TEST(descriptor_counts) {
    struct sw_msg_status_ok status;
    struct sw_msg msg = {.header = {.type = SW_MSG_STATUS}};
    struct sw_region_id id;
    const int fd = sw_wire_content_memfd(BYTES, SW_CONTENT_TEXT, 1, F_SEAL_SHRINK), fds[2] = {fd, fd};
    /* None, too few, too many; the memory is refused for good, and so is what names it. */
    ck_assert_int_eq(sw_wire_mem_open(&wire, 1, SW_MEM_MEMFD, 1, 0, BYTES), 0);
    ck_assert_int_eq(sw_wire_mem_parts(&wire, 1, 0, 1, BYTES, fd, 0), -SW_EFDS);
    ck_assert_int_eq(sw_wire_spill(&wire, 1, 0, BYTES, &id), -SW_EFDS);
    ck_assert_int_eq(sw_wire_mem_parts(&wire, 1, 0, 1, BYTES, fd, 1), -SW_EFDS);
    ck_assert_int_eq(sw_wire_mem_close(&wire, 1), 0);
    ck_assert_int_eq(sw_wire_mem_open(&wire, 1, SW_MEM_MEMFD, 1, 0, BYTES), 0);
    ck_assert_int_eq(sw_wire_mem_parts(&wire, 1, 0, 1, BYTES, fd, 2), -SW_EFDS);
    ck_assert_int_eq(sw_wire_mem_open(&wire, 2, SW_MEM_CUDA_VMM, 3, 0, 3), 0);
    ck_assert_int_eq(sw_wire_mem_parts(&wire, 2, 0, 3, 1, fd, 2), -SW_EFDS);
    /* With a message that takes none: refused, closed, and the session goes on. */
    ck_assert_int_eq(sw_wire_call(&wire, &msg, fds, 2), -SW_EFDS);
    ck_assert_int_eq(sw_wire_status(&wire, &status), 0);
    (void)close(fd);
}
END_TEST

START_TEST(more_descriptors_than_a_packet_may_carry) {
    uint8_t packet[SW_PROTO_MAX_PACKET_BYTES];
    struct sw_msg msg = {.header = {.type = SW_MSG_MEM_PARTS, .seq = 5}};
    msg.u.mem_parts = (struct sw_msg_mem_parts){.mem = 1, .count = 64};
    ck_assert(sw_wire_send_raw(&wire, packet, sw_msg_encode(&msg, packet), wire.socket, (unsigned)_i));
    ck_assert_int_eq(sw_wire_await(&wire, 5, &msg), -SW_EFDS);
    ck_assert(sw_wire_is_closed(&wire));
}
END_TEST

/* Spills BYTES of a memory made of this descriptor; the descriptor is closed here. */
static int spill_code(int fd, uint64_t claimed_bytes) {
    struct sw_region_id id;
    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(sw_wire_mem(&wire, 3, fd, claimed_bytes, true), 0);
    (void)close(fd);
    return sw_wire_spill(&wire, 3, 0, claimed_bytes, &id);
}

START_TEST(descriptors_of_the_wrong_kind) {
    char path[128];
    int pipes[2];
    (void)snprintf(path, sizeof path, "%s/file", daemon_process.folder);
    const int file = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    ck_assert_int_eq(ftruncate(file, BYTES), 0);
    ck_assert_int_eq(pipe2(pipes, O_CLOEXEC), 0);
    ck_assert_int_eq(spill_code(dup(pipes[0]), BYTES), -SW_EFDS);
    ck_assert_int_eq(spill_code(dup(pipes[1]), BYTES), -SW_EFDS);
    ck_assert_int_eq(spill_code(dup(wire.socket), BYTES), -SW_EFDS);
    ck_assert_int_eq(spill_code(open("/tmp", O_RDONLY | O_DIRECTORY | O_CLOEXEC), BYTES), -SW_EFDS);
    ck_assert_int_eq(spill_code(open("/dev/zero", O_RDWR | O_CLOEXEC), BYTES), -SW_EFDS);
    const int rc = spill_code(dup(file), BYTES);
    ck_assert(rc == -SW_EFDS || rc == -SW_EUNSEALED); /* the latter where /tmp is a tmpfs */
    (void)close(file);
    (void)close(pipes[0]);
    (void)close(pipes[1]);
}
END_TEST

START_TEST(memfds_that_cannot_be_trusted) {
    ck_assert_int_eq(spill_code(sw_wire_content_memfd(BYTES, SW_CONTENT_TEXT, 1, 0), BYTES), -SW_EUNSEALED);
    ck_assert_int_eq(spill_code(sw_wire_content_memfd(BYTES, SW_CONTENT_TEXT, 1, F_SEAL_GROW), BYTES), -SW_EUNSEALED);
    ck_assert_int_eq(spill_code(sw_wire_content_memfd(BYTES - 1, SW_CONTENT_TEXT, 1, F_SEAL_SHRINK), BYTES),
                     -SW_ERANGE);
    ck_assert_int_eq(spill_code(sw_wire_content_memfd(1, SW_CONTENT_TEXT, 1, F_SEAL_SHRINK), UINT64_C(1) << 40),
                     -SW_ERANGE);
    ck_assert_int_eq(spill_code(sw_wire_content_memfd(1, SW_CONTENT_TEXT, 1, F_SEAL_SHRINK), UINT64_MAX), -SW_ERANGE);
}
END_TEST

/* A connection that lingers: whoever closes the last descriptor of it waits until *ret_peer is closed, or half a
 * minute. This one is closed once it is sent. */
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

/* Sends a descriptor, to a daemon that stands still meanwhile, so that it is the daemon who closes it last, in each of
 * the places where it does. */
static void send_last(struct sw_wire *by, const struct sw_test_daemon *to, int way, int fd) {
    static const uint8_t garbage[SW_PROTO_MAX_PACKET_BYTES + 1];
    struct sw_msg status = {.header = {.type = SW_MSG_STATUS}};
    struct sw_region_id id;
    uint32_t seq = 0;
    if (way == IN_MEMORY)
        ck_assert_int_eq(sw_wire_mem(by, 1, fd, BYTES, true), 0);
    ck_assert_int_eq(kill(to->pid, SIGSTOP), 0);
    if (way == IN_STATUS)
        seq = sw_wire_send(by, &status, &fd, 1);
    if (way == BEHIND_THE_END)
        ck_assert(sw_wire_send_raw(by, garbage, 20, -1, 0));
    if (way >= IN_GARBAGE)
        ck_assert(sw_wire_send_raw(by, garbage, way == IN_TOO_LONG ? sizeof garbage : 20, fd, 1));
    (void)close(fd);
    ck_assert_int_eq(kill(to->pid, SIGCONT), 0);
    if (way == IN_MEMORY)
        ck_assert_int_eq(sw_wire_spill(by, 1, 0, BYTES, &id), -SW_EFDS);
    else
        ck_assert_int_eq(sw_wire_await(by, seq, &status), way == IN_STATUS ? -SW_EFDS : -SW_EPROTO);
}

/* Nobody waits for a descriptor that its sender does not let the daemon close: not in a request, not in a spill, and
 * not at the stop. */
START_TEST(descriptors_that_do_not_close) {
    struct sw_wire other;
    int peer;
    const int fd = lingering(&peer);
    const uint64_t before_us = sw_clock_us();
    sw_wire_open(&other, daemon_process.socket);
    send_last(&other, &daemon_process, _i, fd);
    ck_assert_ptr_null(sw_sound_round_trip(&daemon_process, BYTES, 3));
    sw_wire_close(&other);
    ck_assert_ptr_null(sw_sound_round_trip(&daemon_process, BYTES, 4));
    ck_assert_uint_lt(sw_clock_us() - before_us, 10000000);
    (void)close(peer);
}
END_TEST

START_TEST(a_stop_waits_for_no_close) {
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
        ck_assert_int_eq(sw_wire_mem_open(&wire, 1, shapes[i].kind, shapes[i].n_parts, shapes[i].once, BYTES),
                         -SW_EINVAL);
        ck_assert_int_eq(sw_wire_mem_parts(&wire, 1, 0, 1, BYTES, wire.socket, 1), -SW_EINVAL);
        ck_assert_int_eq(sw_wire_spill(&wire, 1, 0, 1, &id), -SW_EINVAL);
        ck_assert_int_eq(sw_wire_mem_close(&wire, 1), 0);
    }
    /* Well formed, but on a GPU that this daemon does not have. */
    ck_assert_int_eq(sw_wire_mem_open(&wire, 1, SW_MEM_CUDA_IPC, 0, 1, BYTES), -SW_EDEVICE);
    ck_assert_int_eq(sw_wire_spill(&wire, 1, 0, 1, &id), -SW_EDEVICE);
    ck_assert_int_eq(sw_wire_spill(&wire, 1, 0, 1, &id), -SW_ENOENT); /* `once`: used up by the failure */
    ck_assert_int_eq(sw_wire_mem_open(&wire, 2, SW_MEM_CUDA_VMM, 2, 0, 2 * BYTES), 0);
    ck_assert_int_eq(sw_wire_mem_parts(&wire, 2, 0, 2, BYTES, wire.socket, 2), -SW_EDEVICE);
}
END_TEST

START_TEST(parts_that_do_not_add_up) {
    static const struct {
        uint64_t bytes, part_bytes;
        int code;
    } sums[] = {
        {2, UINT64_MAX, -SW_ERANGE}, {UINT64_MAX - 1, UINT64_MAX, -SW_ERANGE}, {0, UINT64_C(1) << 63, -SW_ERANGE},
        {BYTES, BYTES, -SW_ERANGE},  {3 * BYTES, BYTES, -SW_ERANGE},
    };
    struct sw_region_id id;
    for (unsigned i = 0; i < sizeof sums / sizeof sums[0]; i++) {
        ck_assert_int_eq(sw_wire_mem_open(&wire, 1, SW_MEM_CUDA_VMM, 2, 0, sums[i].bytes), 0);
        ck_assert_int_eq(sw_wire_mem_parts(&wire, 1, 0, 2, sums[i].part_bytes, wire.socket, 2), sums[i].code);
        ck_assert_int_eq(sw_wire_spill(&wire, 1, 0, 1, &id), sums[i].code);
        ck_assert_int_eq(sw_wire_mem_close(&wire, 1), 0);
    }
}
END_TEST

START_TEST(parts_in_the_wrong_order) {
    static const struct {
        uint32_t first, count;
    } parts[] = {{0, 1}, {2, 1}, {UINT32_MAX, 1}, {1, 0}, {1, 65}, {1, 3}, {1, UINT32_MAX}};
    struct sw_region_id id;
    for (unsigned i = 0; i < sizeof parts / sizeof parts[0]; i++) {
        ck_assert_int_eq(sw_wire_mem_open(&wire, 1, SW_MEM_CUDA_VMM, 3, 0, 3), 0);
        ck_assert_int_eq(sw_wire_mem_parts(&wire, 1, 0, 1, 1, wire.socket, 1), 0);
        ck_assert_int_eq(sw_wire_spill(&wire, 1, 0, 1, &id), -SW_EINVAL); /* parts missing; they may still come */
        ck_assert_int_eq(sw_wire_mem_parts(&wire, 1, parts[i].first, parts[i].count, 1, wire.socket, 1), -SW_EINVAL);
        ck_assert_int_eq(sw_wire_mem_parts(&wire, 1, 1, 1, 1, wire.socket, 1), -SW_EINVAL);
        ck_assert_int_eq(sw_wire_mem_close(&wire, 1), 0);
    }
}
END_TEST

START_TEST(memory_numbers) {
    struct sw_region_id id;
    const struct sw_region_id stored = spilled(&wire, 3);
    const int fd = sw_wire_content_memfd(BYTES, SW_CONTENT_TEXT, 1, F_SEAL_SHRINK);
    ck_assert_int_eq(sw_wire_mem(&wire, 1, fd, BYTES, false), 0);
    ck_assert_int_eq(sw_wire_mem_open(&wire, 1, SW_MEM_MEMFD, 1, 0, BYTES), -SW_EEXIST);
    ck_assert_int_eq(sw_wire_mem_parts(&wire, 1, 0, 1, BYTES, fd, 1), -SW_EINVAL); /* has all its parts */
    ck_assert_int_eq(sw_wire_spill(&wire, 1, 0, BYTES, &id), 0);                   /* and is none the worse */
    ck_assert_int_eq(sw_wire_mem_close(&wire, 1), 0);
    ck_assert_int_eq(sw_wire_mem_close(&wire, 1), -SW_ENOENT);
    ck_assert_int_eq(sw_wire_spill(&wire, 1, 0, BYTES, &id), -SW_ENOENT);
    ck_assert_int_eq(sw_wire_mem_parts(&wire, 1, 0, 1, BYTES, fd, 1), -SW_ENOENT);
    ck_assert_int_eq(sw_wire_restore(&wire, stored, UINT32_MAX, 0, BYTES), -SW_ENOENT);
    /* `once` is for one operation, also one that is refused. */
    ck_assert_int_eq(sw_wire_mem(&wire, 1, fd, BYTES, true), 0);
    ck_assert_int_eq(sw_wire_spill(&wire, 1, 0, BYTES + 1, &id), -SW_ERANGE);
    ck_assert_int_eq(sw_wire_spill(&wire, 1, 0, BYTES, &id), -SW_ENOENT);
    ck_restores(&wire, stored, 3);
    (void)close(fd);
}
END_TEST

/* What is to stay is mapped before it is acknowledged, so that what cannot be mapped is told then. */
START_TEST(memory_that_stays_is_mapped_at_once) {
    struct sw_msg_status_ok status;
    struct sw_region_id id;
    const int sealed = sw_wire_content_memfd(BYTES, SW_CONTENT_TEXT, 1, F_SEAL_SHRINK);
    const int unsealed = sw_wire_content_memfd(BYTES, SW_CONTENT_TEXT, 1, 0);
    ck_assert_int_eq(sw_wire_mem(&wire, 1, sealed, BYTES, false), 0);
    ck_assert_int_eq(sw_wire_status(&wire, &status), 0);
    ck_assert_uint_eq(status.mapped_memories, 1);
    ck_assert_int_eq(sw_wire_mem(&wire, 2, unsealed, BYTES, false), -SW_EUNSEALED);
    ck_assert_int_eq(sw_wire_mem(&wire, 3, sealed, BYTES + 1, false), -SW_ERANGE);
    ck_assert_int_eq(sw_wire_spill(&wire, 3, 0, 1, &id), -SW_ERANGE); /* again, for who did not wait */
    for (uint32_t mem = 1; mem <= 3; mem++)
        ck_assert_int_eq(sw_wire_mem_close(&wire, mem), 0);
    ck_assert_int_eq(sw_wire_status(&wire, &status), 0);
    ck_assert_uint_eq(status.mapped_memories, 0);
    /* Closed before it can have been mapped: both are answered, in that order. */
    struct sw_msg open = {.header.type = SW_MSG_MEM_OPEN}, parts = {.header.type = SW_MSG_MEM_PARTS};
    struct sw_msg end = {.header.type = SW_MSG_MEM_CLOSE, .u.mem_close.mem = 4}, reply;
    open.u.mem_open = (struct sw_msg_mem_open){.mem = 4, .kind = SW_MEM_MEMFD, .n_parts = 1, .bytes = BYTES};
    parts.u.mem_parts = (struct sw_msg_mem_parts){.mem = 4, .count = 1, .part_bytes[0] = BYTES};
    ck_assert_int_eq(sw_wire_call(&wire, &open, NULL, 0), 0);
    const uint32_t parts_seq = sw_wire_send(&wire, &parts, &sealed, 1), end_seq = sw_wire_send(&wire, &end, NULL, 0);
    ck_assert_int_eq(sw_wire_await(&wire, parts_seq, &reply), 0);
    ck_assert_int_eq(sw_wire_await(&wire, end_seq, &reply), 0);
    (void)close(sealed);
    (void)close(unsealed);
}
END_TEST

START_TEST(session_limits) {
    struct sw_msg msgs[9];
    struct sw_region_id id;
    struct sw_msg_status_ok status;
    const int fd = sw_wire_content_memfd(BYTES, SW_CONTENT_TEXT, 1, F_SEAL_SHRINK);
    for (uint32_t i = 0; i < 8; i++)
        ck_assert_int_eq(sw_wire_mem(&wire, i, fd, BYTES, false), 0);
    ck_assert_int_eq(sw_wire_mem_open(&wire, 8, SW_MEM_MEMFD, 1, 0, BYTES), -SW_ELIMIT);
    ck_assert_int_eq(sw_wire_mem_parts(&wire, 8, 0, 1, BYTES, fd, 1), -SW_ELIMIT);
    ck_assert_int_eq(sw_wire_spill(&wire, 8, 0, BYTES, &id), -SW_ELIMIT);
    ck_assert_int_eq(sw_wire_mem_close(&wire, 7), 0);
    ck_assert_int_eq(sw_wire_mem(&wire, 8, fd, BYTES, false), 0);
    /* A burst beyond max_session_operations: eight replies of success and, unless the daemon was quick, a refusal. */
    unsigned refused = 0;
    for (int i = 0; i < 9; i++) {
        msgs[i] = sw_wire_spill_msg(0, 0, BYTES);
        (void)sw_wire_send(&wire, &msgs[i], NULL, 0);
    }
    for (int i = 0; i < 9; i++) {
        struct sw_msg msg;
        ck_assert_int_eq(sw_wire_receive(&wire, &msg), 1);
        if (msg.header.type == SW_MSG_ERROR) {
            ck_assert_str_eq((const char *)msg.u.error.name, "ELIMIT");
            refused++;
        }
    }
    ck_assert_uint_le(refused, 1);
    ck_assert_int_eq(sw_wire_status(&wire, &status), 0);
    ck_assert_uint_eq(status.regions, 9 - refused);
    (void)close(fd);
}
END_TEST

/* ---- ranges and regions ------------------------------------------------------------------------------------------ */

START_TEST(ranges_beyond_the_memory) {
    static const struct {
        uint64_t offset, bytes;
    } ranges[] = {
        {0, BYTES + 1},
        {1, BYTES},
        {BYTES, 1},
        {BYTES + 1, 0},
        {0, UINT64_MAX},
        {UINT64_MAX, 0},
        {UINT64_MAX, 1},
        {UINT64_MAX, UINT64_MAX},
        {1, UINT64_MAX},
        {BYTES, UINT64_MAX - BYTES + 1},
        {UINT64_C(1) << 63, UINT64_C(1) << 63},
    };
    struct sw_region_id id;
    const struct sw_region_id stored = spilled(&wire, 4);
    const int fd = sw_wire_content_memfd(BYTES, SW_CONTENT_TEXT, 5, F_SEAL_SHRINK);
    ck_assert_int_eq(sw_wire_mem(&wire, 1, fd, BYTES, false), 0);
    for (unsigned i = 0; i < sizeof ranges / sizeof ranges[0]; i++) {
        ck_assert_int_eq(sw_wire_spill(&wire, 1, ranges[i].offset, ranges[i].bytes, &id), -SW_ERANGE);
        ck_assert_int_eq(sw_wire_restore(&wire, stored, 1, ranges[i].offset, ranges[i].bytes), -SW_ERANGE);
    }
    ck_assert(sw_wire_memfd_holds(fd, BYTES, SW_CONTENT_TEXT, 5));
    ck_assert_int_eq(sw_wire_spill(&wire, 1, BYTES, 0, &id), 0); /* nothing, at the very end, is fine */
    ck_restores(&wire, stored, 4);
    (void)close(fd);
}
END_TEST

static void ck_unreachable(struct sw_wire *by, struct sw_region_id id, int code, int other_code) {
    struct sw_msg_region region;
    const int fd = sw_wire_memfd(NULL, BYTES, F_SEAL_SHRINK);
    ck_assert_int_eq(sw_wire_mem(by, 900, fd, BYTES, false), 0);
    const int codes[] = {sw_wire_restore(by, id, 900, 0, BYTES), sw_wire_query(by, id, &region), sw_wire_drop(by, id)};
    for (int i = 0; i < 3; i++)
        ck_assert_msg(codes[i] == code || codes[i] == other_code, "request %d gave %s", i, sw_err_name(codes[i]));
    ck_assert_int_eq(sw_wire_mem_close(by, 900), 0);
    (void)close(fd);
}

START_TEST(ids_that_are_not_ours) {
    struct sw_wire other;
    const struct sw_region_id mine = spilled(&wire, 6);
    sw_wire_open(&other, daemon_process.socket);
    /* Another session's: its existence is not even confirmed. */
    ck_unreachable(&other, mine, -SW_ESTALE, -SW_ENOENT);
    ck_unreachable(&wire, (struct sw_region_id){mine.slot, mine.gen + 1}, -SW_ESTALE, -SW_ENOENT);
    ck_unreachable(&wire, (struct sw_region_id){mine.slot, mine.gen - 1}, -SW_ESTALE, -SW_ENOENT);
    ck_unreachable(&wire, (struct sw_region_id){0, 0}, -SW_ENOENT, -SW_ESTALE);
    ck_unreachable(&wire, (struct sw_region_id){mine.slot + 1000, 1}, -SW_ENOENT, -SW_ESTALE);
    ck_unreachable(&wire, (struct sw_region_id){UINT32_MAX, UINT32_MAX}, -SW_ENOENT, -SW_ENOENT);
    ck_restores(&wire, mine, 6);
    ck_unreachable(&wire, mine, -SW_ESTALE, -SW_ESTALE); /* used up by its restore */
    const struct sw_region_id dropped = spilled(&wire, 7);
    ck_assert_int_eq(sw_wire_drop(&wire, dropped), 0);
    ck_unreachable(&wire, dropped, -SW_ESTALE, -SW_ESTALE);
    sw_wire_close(&other);
}
END_TEST

START_TEST(restore_into_the_wrong_place) {
    const struct sw_region_id id = spilled(&wire, 8);
    const int fd = sw_wire_memfd(NULL, BYTES, F_SEAL_SHRINK);
    ck_assert_int_eq(sw_wire_mem(&wire, 1, fd, BYTES, false), 0);
    ck_assert_int_eq(sw_wire_restore(&wire, id, 1, 0, BYTES - 1), -SW_ETOOSMALL);
    ck_assert_int_eq(sw_wire_restore(&wire, id, 1, 0, 0), -SW_ETOOSMALL);
    ck_assert_int_eq(sw_wire_restore(&wire, id, 1, 1, BYTES - 1), -SW_ETOOSMALL);
    (void)close(fd);
    /* A memory that cannot be written: the region stays. */
    const int sealed = sw_wire_content_memfd(BYTES, SW_CONTENT_TEXT, 1, F_SEAL_SHRINK | F_SEAL_WRITE);
    ck_assert_int_eq(sw_wire_mem(&wire, 2, sealed, BYTES, true), 0);
    ck_assert_int_eq(sw_wire_restore(&wire, id, 2, 0, BYTES), -SW_EACCES);
    (void)close(sealed);
    const int pipe_like = dup(wire.socket);
    ck_assert_int_eq(sw_wire_mem(&wire, 2, pipe_like, BYTES, true), 0);
    ck_assert_int_eq(sw_wire_restore(&wire, id, 2, 0, BYTES), -SW_EFDS);
    (void)close(pipe_like);
    ck_restores(&wire, id, 8);
}
END_TEST

START_TEST(unknown_flags_types_and_events) {
    const struct sw_region_id id = spilled(&wire, 9);
    const int fd = sw_wire_content_memfd(BYTES, SW_CONTENT_TEXT, 1, F_SEAL_SHRINK);
    ck_assert_int_eq(sw_wire_mem(&wire, 1, fd, BYTES, false), 0);
    struct sw_msg msg = sw_wire_spill_msg(1, 0, BYTES);
    msg.u.spill.flags = SW_REQ_KEEP; /* RESTORE's */
    ck_assert_int_eq(sw_wire_call(&wire, &msg, NULL, 0), -SW_EINVAL);
    msg = sw_wire_spill_msg(1, 0, BYTES);
    msg.u.spill.flags = 0x80000000u;
    ck_assert_int_eq(sw_wire_call(&wire, &msg, NULL, 0), -SW_EINVAL);
    msg = sw_wire_spill_msg(1, 0, BYTES);
    msg.u.spill.flags = SW_REQ_EVENT; /* host memory knows no GPU events */
    ck_assert_int_eq(sw_wire_call(&wire, &msg, NULL, 0), -SW_ENOTSUP);
    static const uint32_t types[] = {SW_VALUE_NR, 255, 256 + SW_VALUE_I8, 0x80000000u, UINT32_MAX};
    for (unsigned i = 0; i < sizeof types / sizeof types[0]; i++) {
        msg = sw_wire_spill_msg(1, 0, BYTES);
        msg.u.spill.value_type = types[i];
        ck_assert_int_eq(sw_wire_call(&wire, &msg, NULL, 0), -SW_EINVAL);
    }
    msg = sw_wire_spill_msg(1, 0, BYTES - 1); /* and no whole numbers */
    msg.u.spill.value_type = SW_VALUE_U16;
    ck_assert_int_eq(sw_wire_call(&wire, &msg, NULL, 0), -SW_EINVAL);
    msg = (struct sw_msg){.header = {.type = SW_MSG_RESTORE}};
    msg.u.restore = (struct sw_msg_restore){.slot = id.slot, .gen = id.gen, .mem = 1, .flags = 8, .bytes = BYTES};
    ck_assert_int_eq(sw_wire_call(&wire, &msg, NULL, 0), -SW_EINVAL);
    ck_restores(&wire, id, 9);
    (void)close(fd);
}
END_TEST

/* ---- batches ----------------------------------------------------------------------------------------------------- */

enum { PIECES = 20, PIECE_BYTES = BYTES / PIECES };

static int spill_batch_code(struct sw_msg msg) {
    const int rc = sw_wire_call(&wire, &msg, NULL, 0);
    struct sw_msg_status_ok status;
    ck_assert_int_eq(sw_wire_status(&wire, &status), 0);
    ck_assert(rc == 0 || status.regions == 0); /* all or nothing */
    return rc;
}

START_TEST(spill_batches_that_cannot_be) {
    const int fd = sw_wire_content_memfd(BYTES, SW_CONTENT_TEXT, 5, F_SEAL_SHRINK);
    struct sw_region_id id;
    ck_assert_int_eq(sw_wire_mem(&wire, 1, fd, BYTES, false), 0);
    const struct sw_msg good = sw_wire_spill_batch_msg(1, PIECES, PIECE_BYTES);
    static const uint32_t counts[] = {0, SW_PROTO_MAX_BATCH + 1, UINT32_MAX};
    for (unsigned i = 0; i < sizeof counts / sizeof counts[0]; i++) {
        struct sw_msg msg = good;
        msg.u.spill_batch.count = counts[i];
        ck_assert_int_eq(spill_batch_code(msg), -SW_EINVAL);
    }
    static const uint32_t flags[] = {SW_REQ_KEEP, SW_REQ_IN_PLACE, 0x80000000u};
    for (unsigned i = 0; i < sizeof flags / sizeof flags[0]; i++) {
        struct sw_msg msg = good;
        msg.u.spill_batch.flags = flags[i];
        ck_assert_int_eq(spill_batch_code(msg), -SW_EINVAL);
    }
    struct sw_msg msg = good;
    msg.u.spill_batch.flags = SW_REQ_EVENT; /* host memory knows no GPU events */
    ck_assert_int_eq(spill_batch_code(msg), -SW_ENOTSUP);
    /* The last piece, and the first, which is then all of the batch that was looked at. */
    for (unsigned piece = 0; piece < PIECES; piece += PIECES - 1) {
        msg = good;
        msg.u.spill_batch.bytes[piece] = BYTES + 1;
        ck_assert_int_eq(spill_batch_code(msg), -SW_ERANGE);
        msg = good;
        msg.u.spill_batch.offset[piece] = UINT64_MAX;
        ck_assert_int_eq(spill_batch_code(msg), -SW_ERANGE);
    }
    ck_assert_int_eq(spill_batch_code(sw_wire_spill_batch_msg(7, 1, 1)), -SW_ENOENT);
    /* Memory for one operation: that was it. */
    ck_assert_int_eq(sw_wire_mem(&wire, 2, fd, BYTES, true), 0);
    ck_assert_int_eq(spill_batch_code(sw_wire_spill_batch_msg(2, 2, 1)), -SW_EINVAL);
    ck_assert_int_eq(sw_wire_spill(&wire, 2, 0, BYTES, &id), -SW_ENOENT);
    ck_assert_int_eq(spill_batch_code(good), 0);
    (void)close(fd);
}
END_TEST

START_TEST(restore_batches_that_cannot_be) {
    const int fd = sw_wire_content_memfd(BYTES, SW_CONTENT_TEXT, 5, F_SEAL_SHRINK);
    const int sealed = sw_wire_content_memfd(BYTES, SW_CONTENT_TEXT, 5, F_SEAL_SHRINK | F_SEAL_WRITE);
    struct sw_region_id ids[PIECES];
    struct sw_msg_region region;
    ck_assert_int_eq(sw_wire_mem(&wire, 1, fd, BYTES, false), 0);
    ck_assert_int_eq(sw_wire_mem(&wire, 2, sealed, BYTES, false), 0);
    ck_assert_int_eq(sw_wire_spill_batch(&wire, 1, PIECES, PIECE_BYTES, ids), 0);
    const struct sw_msg good = sw_wire_restore_batch_msg(1, ids, PIECES, PIECE_BYTES);
    struct sw_msg bad[8];
    static const int codes[8] = {-SW_EINVAL, -SW_EINVAL, -SW_EINVAL, -SW_EINVAL,
                                 -SW_ESTALE, -SW_EBUSY,  -SW_ERANGE, -SW_EACCES};
    for (int i = 0; i < 8; i++)
        bad[i] = good;
    bad[0].u.restore_batch.count = SW_PROTO_MAX_BATCH + 1;
    bad[1].u.restore_batch.flags = SW_REQ_IN_PLACE;
    bad[2].u.restore_batch.offset[3] -= 1; /* overlap */
    bad[3].u.restore_batch.offset[PIECES - 1] = 0;
    bad[4].u.restore_batch.gen[PIECES - 1]++;
    bad[5].u.restore_batch.slot[PIECES - 1] = ids[0].slot;
    bad[5].u.restore_batch.gen[PIECES - 1] = ids[0].gen;
    bad[6].u.restore_batch.offset[PIECES - 1] = UINT64_MAX - 5;
    bad[7].u.restore_batch.mem = 2; /* cannot be written: fails when it has begun */
    for (int i = 0; i < 8; i++) {
        ck_assert_msg(sw_wire_call(&wire, &bad[i], NULL, 0) == codes[i], "request %d", i);
        for (int piece = 0; piece < PIECES; piece++) {
            ck_assert_int_eq(sw_wire_query(&wire, ids[piece], &region), 0);
            ck_assert_str_eq((const char *)region.state, "out");
        }
    }
    ck_assert(sw_wire_memfd_holds(fd, BYTES, SW_CONTENT_TEXT, 5));
    struct sw_msg msg = good;
    ck_assert_int_eq(sw_wire_call(&wire, &msg, NULL, 0), 0);
    ck_assert(sw_wire_memfd_holds(fd, BYTES, SW_CONTENT_TEXT, 5));
    msg = good;
    ck_assert_int_eq(sw_wire_call(&wire, &msg, NULL, 0), -SW_ESTALE);
    (void)close(fd);
    (void)close(sealed);
}
END_TEST

/* ---- buffers ----------------------------------------------------------------------------------------------------- */

enum { BUFFERS = 3 };

static struct sw_msg spill_buffers_msg(uint32_t mem) {
    struct sw_msg msg = {.header = {.type = SW_MSG_SPILL_BUFFERS}};
    struct sw_msg_spill_buffers *spill = &msg.u.spill_buffers;
    spill->count = BUFFERS;
    for (uint32_t i = 0; i < BUFFERS; i++) {
        spill->mem[i] = mem;
        spill->value_type[i] = i; /* bytes, u8, u16 */
        spill->offset[i] = (uint64_t)i * 1000;
        spill->bytes[i] = 1000;
    }
    return msg;
}

static struct sw_msg restore_buffers_msg(struct sw_region_id id, uint32_t mem) {
    struct sw_msg msg = {.header = {.type = SW_MSG_RESTORE_BUFFERS}};
    struct sw_msg_restore_buffers *restore = &msg.u.restore_buffers;
    restore->slot = id.slot;
    restore->gen = id.gen;
    restore->count = BUFFERS;
    for (uint32_t i = 0; i < BUFFERS; i++) {
        restore->mem[i] = mem;
        restore->offset[i] = (uint64_t)i * 1000;
        restore->bytes[i] = 1000;
    }
    return msg;
}

START_TEST(spills_of_buffers_that_cannot_be) {
    const int fd = sw_wire_content_memfd(BYTES, SW_CONTENT_TEXT, 5, F_SEAL_SHRINK);
    struct sw_region_id id;
    ck_assert_int_eq(sw_wire_mem(&wire, 1, fd, BYTES, false), 0);
    const struct sw_msg good = spill_buffers_msg(1);
    static const uint32_t counts[] = {0, SW_PROTO_MAX_BUFFERS + 1, UINT32_MAX};
    for (unsigned i = 0; i < sizeof counts / sizeof counts[0]; i++) {
        struct sw_msg msg = good;
        msg.u.spill_buffers.count = counts[i];
        ck_assert_int_eq(spill_batch_code(msg), -SW_EINVAL);
    }
    static const uint32_t flags[] = {SW_REQ_EVENT, SW_REQ_KEEP, SW_REQ_IN_PLACE, 0x80000000u};
    for (unsigned i = 0; i < sizeof flags / sizeof flags[0]; i++) {
        struct sw_msg msg = good;
        msg.u.spill_buffers.flags = flags[i];
        ck_assert_int_eq(spill_batch_code(msg), -SW_EINVAL);
    }
    for (unsigned i = 0; i < BUFFERS; i++) {
        struct sw_msg msg = good;
        msg.u.spill_buffers.waits[i] = 2;
        ck_assert_int_eq(spill_batch_code(msg), -SW_EINVAL);
        msg = good;
        msg.u.spill_buffers.waits[i] = 1; /* host memory knows no GPU events */
        ck_assert_int_eq(spill_batch_code(msg), -SW_ENOTSUP);
        msg = good;
        msg.u.spill_buffers.value_type[i] = SW_VALUE_NR;
        ck_assert_int_eq(spill_batch_code(msg), -SW_EINVAL);
        msg.u.spill_buffers.value_type[i] = 0x80000000u;
        ck_assert_int_eq(spill_batch_code(msg), -SW_EINVAL);
        msg = good;
        msg.u.spill_buffers.value_type[i] = SW_VALUE_U64;
        msg.u.spill_buffers.bytes[i] = 999;
        ck_assert_int_eq(spill_batch_code(msg), -SW_EINVAL);
        msg = good;
        msg.u.spill_buffers.bytes[i] = BYTES + 2;
        ck_assert_int_eq(spill_batch_code(msg), -SW_ERANGE);
        msg = good;
        msg.u.spill_buffers.offset[i] = UINT64_MAX;
        ck_assert_int_eq(spill_batch_code(msg), -SW_ERANGE);
        msg = good;
        msg.u.spill_buffers.mem[i] = 7;
        ck_assert_int_eq(spill_batch_code(msg), -SW_ENOENT);
    }
    /* Memory for one operation: that was it. */
    ck_assert_int_eq(sw_wire_mem(&wire, 2, fd, BYTES, true), 0);
    struct sw_msg msg = good;
    msg.u.spill_buffers.mem[1] = 2;
    ck_assert_int_eq(spill_batch_code(msg), -SW_EINVAL);
    ck_assert_int_eq(sw_wire_spill(&wire, 2, 0, BYTES, &id), -SW_ENOENT);
    ck_assert_int_eq(spill_batch_code(good), 0);
    (void)close(fd);
}
END_TEST

START_TEST(restores_of_buffers_that_cannot_be) {
    const int fd = sw_wire_content_memfd(BYTES, SW_CONTENT_TEXT, 5, F_SEAL_SHRINK);
    const int sealed = sw_wire_content_memfd(BYTES, SW_CONTENT_TEXT, 5, F_SEAL_SHRINK | F_SEAL_WRITE);
    const struct sw_region_id single = spilled(&wire, 3);
    struct sw_msg msg = spill_buffers_msg(1), bad[9];
    struct sw_msg_region region;
    struct sw_region_id id;
    ck_assert_int_eq(sw_wire_mem(&wire, 1, fd, BYTES, false), 0);
    ck_assert_int_eq(sw_wire_mem(&wire, 2, sealed, BYTES, false), 0);
    ck_assert_int_eq(sw_wire_call(&wire, &msg, NULL, 0), 0);
    ck_assert_uint_eq(msg.u.result.raw_bytes, BUFFERS * 1000);
    id = (struct sw_region_id){msg.u.result.slot, msg.u.result.gen};
    static const int codes[9] = {-SW_EINVAL, -SW_EINVAL, -SW_EINVAL, -SW_EINVAL,   -SW_EINVAL,
                                 -SW_ESTALE, -SW_ERANGE, -SW_EACCES, -SW_ETOOSMALL};
    for (int i = 0; i < 9; i++)
        bad[i] = restore_buffers_msg(id, 1);
    bad[0].u.restore_buffers.count = BUFFERS - 1;
    bad[1].u.restore_buffers.count = SW_PROTO_MAX_BUFFERS + 1;
    bad[2].u.restore_buffers.flags = SW_REQ_IN_PLACE;
    bad[3].u.restore_buffers.offset[2] = 1999; /* overlap */
    bad[4] = restore_buffers_msg(single, 1);
    bad[5].u.restore_buffers.gen++;
    bad[6].u.restore_buffers.offset[2] = UINT64_MAX - 5;
    bad[7].u.restore_buffers.mem[1] = 2; /* cannot be written: fails when it has begun */
    bad[8].u.restore_buffers.bytes[0] = 999;
    for (int i = 0; i < 9; i++) {
        ck_assert_msg(sw_wire_call(&wire, &bad[i], NULL, 0) == codes[i], "request %d", i);
        ck_assert_int_eq(sw_wire_query(&wire, id, &region), 0);
        ck_assert_str_eq((const char *)region.state, "out");
    }
    ck_assert_int_eq(sw_wire_restore(&wire, id, 1, 0, BYTES), -SW_EINVAL);
    msg = (struct sw_msg){.header = {.type = SW_MSG_QUERY_BUFFERS}, .u.query_buffers = {id.slot, id.gen + 1}};
    ck_assert_int_eq(sw_wire_call(&wire, &msg, NULL, 0), -SW_ESTALE);
    msg = (struct sw_msg){.header = {.type = SW_MSG_QUERY_BUFFERS}, .u.query_buffers = {single.slot, single.gen}};
    ck_assert_int_eq(sw_wire_call(&wire, &msg, NULL, 0), 0);
    ck_assert_uint_eq(msg.u.region_buffers.count, 1);
    msg = (struct sw_msg){.header = {.type = SW_MSG_QUERY_PACKED}, .u.query_packed = {id.slot, id.gen, 0}};
    ck_assert_int_eq(sw_wire_call(&wire, &msg, NULL, 0), -SW_EINVAL);
    msg = (struct sw_msg){.header = {.type = SW_MSG_QUERY_PACKED}, .u.query_packed = {id.slot, id.gen + 1, 0}};
    ck_assert_int_eq(sw_wire_call(&wire, &msg, NULL, 0), -SW_ESTALE);
    msg = restore_buffers_msg(id, 1);
    ck_assert_int_eq(sw_wire_call(&wire, &msg, NULL, 0), 0);
    ck_restores(&wire, single, 3);
    (void)close(fd);
    (void)close(sealed);
}
END_TEST

START_TEST(names_that_cannot_be) {
    struct sw_msg msg;
    const int fd = sw_wire_content_memfd(BYTES, SW_CONTENT_TEXT, 5, F_SEAL_SHRINK);
    ck_assert_int_eq(sw_wire_mem(&wire, 1, fd, BYTES, false), 0);
    for (int i = 0; i < 3; i++) { /* without an end, empty, of a region that is packed */
        struct sw_msg spill = {.header = {.type = SW_MSG_SPILL_DURABLE}}, adopt = {.header = {.type = SW_MSG_ADOPT}};
        spill.u.spill_durable = (struct sw_msg_spill_durable){.mem = 1, .bytes = BYTES};
        memset(spill.u.spill_durable.name, 'x', i == 0 ? SW_PROTO_NAME_BYTES : i == 1 ? 0 : 1);
        spill.u.spill_durable.flags = i == 2 ? SW_REQ_IN_PLACE : 0;
        memcpy(adopt.u.adopt.name, spill.u.spill_durable.name, SW_PROTO_NAME_BYTES);
        ck_assert_int_eq(sw_wire_await(&wire, sw_wire_send(&wire, &spill, NULL, 0), &msg), -SW_EINVAL);
        ck_assert_int_eq(sw_wire_await(&wire, sw_wire_send(&wire, &adopt, NULL, 0), &msg),
                         i == 0 ? -SW_EINVAL : -SW_ENOENT);
    }
    ck_assert_int_eq(sw_wire_mem_close(&wire, 1), 0);
    (void)close(fd);
}
END_TEST

START_TEST(nothing_is_settled_without_a_restart) {
    static const uint32_t types[] = {0, SW_MSG_SPILL, SW_MSG_RESTORE_BATCH, SW_MSG_STATUS, 0xFFFFFFFF};
    struct sw_msg msg;
    for (unsigned i = 0; i < sizeof types / sizeof types[0]; i++) {
        struct sw_msg settle = {.header = {.type = SW_MSG_SETTLE}};
        settle.u.settle = (struct sw_msg_settle){.type = types[i], .seq = 1, .count = i % 2 ? 1 : 0xFFFF};
        ck_assert_int_eq(sw_wire_await(&wire, sw_wire_send(&wire, &settle, NULL, 0), &msg), -SW_EINVAL);
    }
}
END_TEST

/* In the foreground nothing survives: there are no tokens, and one that somebody brings is not looked at. */
START_TEST(tokens_of_nobody_make_new_sessions) {
    struct sw_wire other;
    struct sw_msg msg = {.header = {.type = SW_MSG_HELLO}};
    msg.u.hello.version = SW_PROTO_VERSION;
    memset(msg.u.hello.token, 0x5A, sizeof msg.u.hello.token);
    ck_assert(sw_wire_connect(&other, daemon_process.socket));
    (void)sw_wire_send(&other, &msg, NULL, 0);
    ck_assert_int_eq(sw_wire_receive(&other, &msg), 1);
    ck_assert_uint_eq(msg.header.type, SW_MSG_HELLO_OK);
    ck_assert_uint_eq(msg.u.hello_ok.resumed + msg.u.hello_ok.reconnect_ms + msg.u.hello_ok.token[0], 0);
    sw_wire_close(&other);
}
END_TEST

START_TEST(drop_batches_drop_what_they_can) {
    const int fd = sw_wire_content_memfd(BYTES, SW_CONTENT_TEXT, 5, F_SEAL_SHRINK);
    struct sw_region_id ids[3];
    struct sw_msg_status_ok status;
    struct sw_msg msg = {.header = {.type = SW_MSG_DROP_BATCH}};
    ck_assert_int_eq(sw_wire_mem(&wire, 1, fd, BYTES, false), 0);
    ck_assert_int_eq(sw_wire_spill_batch(&wire, 1, 3, 1000, ids), 0);
    ck_assert_int_eq(sw_wire_call(&wire, &msg, NULL, 0), -SW_EINVAL); /* none */
    msg = (struct sw_msg){.header = {.type = SW_MSG_DROP_BATCH}};
    msg.u.drop_batch = (struct sw_msg_drop_batch){
        .count = 3, .slot = {ids[0].slot, UINT32_MAX, ids[2].slot}, .gen = {ids[0].gen, 1, ids[2].gen}};
    ck_assert_int_eq(sw_wire_call(&wire, &msg, NULL, 0), -SW_ENOENT);
    ck_assert_int_eq(sw_wire_status(&wire, &status), 0);
    ck_assert_uint_eq(status.regions, 1);
    msg = (struct sw_msg){.header = {.type = SW_MSG_DROP_BATCH}};
    msg.u.drop_batch = (struct sw_msg_drop_batch){.count = 1, .slot = {ids[1].slot}, .gen = {ids[1].gen}};
    ck_assert_int_eq(sw_wire_call(&wire, &msg, NULL, 0), 0);
    ck_assert_int_eq(sw_wire_status(&wire, &status), 0);
    ck_assert_uint_eq(status.regions, 0);
    (void)close(fd);
}
END_TEST

/* More at once than the session may have: refused as wholes, and nothing of them stays. */
START_TEST(batches_beyond_the_limits) {
    const int fd = sw_wire_content_memfd(BYTES, SW_CONTENT_TEXT, 5, F_SEAL_SHRINK);
    struct sw_msg_status_ok status;
    unsigned refused = 0;
    ck_assert_int_eq(sw_wire_mem(&wire, 1, fd, BYTES, false), 0);
    for (int i = 0; i < 12; i++) {
        struct sw_msg msg = sw_wire_spill_batch_msg(1, SW_PROTO_MAX_BATCH, 0);
        (void)sw_wire_send(&wire, &msg, NULL, 0);
    }
    for (int i = 0; i < 12; i++) {
        struct sw_msg msg;
        ck_assert_int_eq(sw_wire_receive(&wire, &msg), 1);
        ck_assert(msg.header.type != SW_MSG_ERROR || strcmp((const char *)msg.u.error.name, "ELIMIT") == 0);
        refused += msg.header.type == SW_MSG_ERROR;
    }
    ck_assert_uint_le(refused, 4);
    ck_assert_int_eq(sw_wire_status(&wire, &status), 0);
    ck_assert_uint_eq(status.regions, (12ul - refused) * SW_PROTO_MAX_BATCH);
    (void)close(fd);
}
END_TEST

START_TEST(failures_are_logged_by_name) {
    struct sw_region_id id;
    const unsigned logged = sw_test_daemon_logged(&daemon_process, "event=request.failed ");
    ck_assert_int_eq(sw_wire_spill(&wire, 123456, 0, 1, &id), -SW_ENOENT);
    ck_assert_uint_eq(sw_test_daemon_logged(&daemon_process, "event=request.failed "), logged + 1);
    ck_assert_uint_ge(sw_test_daemon_logged(&daemon_process, "request=spill seq=2 name=ENOENT scope=request"), 1);
    /* A client's name cannot forge a log line. */
    ck_assert_uint_ge(sw_test_daemon_logged(&daemon_process, "client=\"test \\\"wire\\\"\\x0a\""), 1);
}
END_TEST

int main(void) {
    TCase *tests = tcase_create("bad_input");
    tcase_set_timeout(tests, 120);
    tcase_add_unchecked_fixture(tests, start, stop);
    tcase_add_checked_fixture(tests, before_each, after_each);
    tcase_add_loop_test(tests, bad_packet_ends_the_session, 0, (int)(sizeof bad_packets / sizeof bad_packets[0]));
    tcase_add_test(tests, error_reaches_a_peer_that_went_on_sending);
    tcase_add_test(tests, hello_comes_first_and_once);
    tcase_add_test(tests, seq_is_not_used_twice);
    tcase_add_test(tests, descriptor_counts);
    tcase_add_loop_test(tests, more_descriptors_than_a_packet_may_carry, 65, 67);
    tcase_add_test(tests, descriptors_of_the_wrong_kind);
    tcase_add_test(tests, memfds_that_cannot_be_trusted);
    tcase_add_loop_test(tests, descriptors_that_do_not_close, 0, WAYS);
    tcase_add_test(tests, a_stop_waits_for_no_close);
    tcase_add_test(tests, memories_of_the_wrong_shape);
    tcase_add_test(tests, parts_that_do_not_add_up);
    tcase_add_test(tests, parts_in_the_wrong_order);
    tcase_add_test(tests, memory_numbers);
    tcase_add_test(tests, memory_that_stays_is_mapped_at_once);
    tcase_add_test(tests, session_limits);
    tcase_add_test(tests, ranges_beyond_the_memory);
    tcase_add_test(tests, ids_that_are_not_ours);
    tcase_add_test(tests, restore_into_the_wrong_place);
    tcase_add_test(tests, unknown_flags_types_and_events);
    tcase_add_test(tests, spill_batches_that_cannot_be);
    tcase_add_test(tests, restore_batches_that_cannot_be);
    tcase_add_test(tests, spills_of_buffers_that_cannot_be);
    tcase_add_test(tests, restores_of_buffers_that_cannot_be);
    tcase_add_test(tests, drop_batches_drop_what_they_can);
    tcase_add_test(tests, names_that_cannot_be);
    tcase_add_test(tests, nothing_is_settled_without_a_restart);
    tcase_add_test(tests, tokens_of_nobody_make_new_sessions);
    tcase_add_test(tests, batches_beyond_the_limits);
    tcase_add_test(tests, failures_are_logged_by_name);
    Suite *suite = suite_create("bad_input");
    suite_add_tcase(suite, tests);
    return sw_test_run(suite, CK_FORK);
}
