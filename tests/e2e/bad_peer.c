/* Peers that die, hang, come in great numbers or find the tier full, and a daemon that is stopped, started twice or
 * started wrongly: no other client is harmed, and nothing is left behind. */
#include "tests/lib/content.h"
#include "tests/lib/run.h"
#include "tests/lib/sound.h"
#include "tests/lib/wire.h"
#include <check.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static struct sw_test_daemon daemon_process;

static void start(const char *const *options) {
    sw_test_daemon_start(&daemon_process, SW_SPILLWAYD_PATH, options);
    ck_assert_ptr_null(sw_sound_round_trip(&daemon_process, 300000, 7));
}

static void ck_sound(const struct sw_sound *before) {
    const char *wrong = sw_sound_check(&daemon_process, before);
    ck_assert_msg(wrong == NULL, "%s", wrong);
}

static void ck_stops(void) {
    struct stat found;
    ck_assert_int_eq(sw_test_daemon_stop(&daemon_process, SIGTERM), 0);
    ck_assert_int_lt(lstat(daemon_process.socket, &found), 0); /* the socket file is gone */
    sw_test_daemon_clean(&daemon_process);
}

static void sleep_us(long us) {
    const struct timespec time = {.tv_sec = us / 1000000, .tv_nsec = us % 1000000 * 1000};
    (void)nanosleep(&time, NULL);
}

/* ---- peers that go away ------------------------------------------------------------------------------------------ */

/* A client process that spills and restores without end, and is killed. */
static __attribute__((noreturn)) void work_until_killed(int fd, size_t bytes) {
    struct sw_wire wire;
    sw_wire_open(&wire, daemon_process.socket);
    for (uint32_t mem = 1;; mem++) {
        struct sw_msg msg = sw_wire_spill_msg(mem, 0, bytes);
        struct sw_region_id id = {0};
        (void)sw_wire_mem(&wire, mem, fd, bytes, true);
        if (mem % 3 == 0) { /* in flight beside the next */
            (void)sw_wire_send(&wire, &msg, NULL, 0);
            if (sw_wire_receive(&wire, &msg) != 1)
                _exit(0);
            continue;
        }
        if (sw_wire_spill(&wire, mem, 0, bytes, &id) == 0 && mem % 3 == 1) {
            (void)sw_wire_mem(&wire, mem, fd, bytes, true);
            (void)sw_wire_restore(&wire, id, mem, 0, bytes);
        }
    }
}

START_TEST(clients_killed_at_any_moment) {
    enum { BYTES = 3 * 1000 * 1000 + 1 };
    struct sw_sound before;
    uint64_t random = 42;
    start(NULL);
    const int fd = sw_wire_content_memfd(BYTES, SW_CONTENT_TEXT, 1, F_SEAL_SHRINK);
    sw_sound_take(&daemon_process, &before);
    for (int i = 0; i < 30; i++) {
        const pid_t client = fork();
        ck_assert_int_ge(client, 0);
        if (client == 0)
            work_until_killed(fd, BYTES);
        sleep_us((long)(sw_random(&random) % 60000));
        (void)kill(client, SIGKILL);
        ck_assert_int_eq(waitpid(client, NULL, 0), client);
    }
    ck_sound(&before);
    /* The killed clients only read or restored the same bytes. */
    ck_assert(sw_wire_memfd_holds(fd, BYTES, SW_CONTENT_TEXT, 1));
    (void)close(fd);
    ck_stops();
}
END_TEST

START_TEST(socket_closed_behind_a_spill) {
    enum { BYTES = 2 * 1000 * 1000 };
    struct sw_sound before;
    start(NULL);
    const int fd = sw_wire_content_memfd(BYTES, SW_CONTENT_TEXT, 1, F_SEAL_SHRINK);
    sw_sound_take(&daemon_process, &before);
    for (long us = 0; us < 40000; us += 2000) {
        struct sw_wire wire;
        struct sw_msg msg = sw_wire_spill_msg(1, 0, BYTES);
        sw_wire_open(&wire, daemon_process.socket);
        ck_assert_int_eq(sw_wire_mem(&wire, 1, fd, BYTES, us % 4000 == 0), 0);
        (void)sw_wire_send(&wire, &msg, NULL, 0);
        sleep_us(us);
        sw_wire_close(&wire);
    }
    ck_sound(&before);
    (void)close(fd);
    ck_stops();
}
END_TEST

/* ---- peers that do not read -------------------------------------------------------------------------------------- */

/* Sends until the daemon takes no more; returns how many were taken. */
static unsigned flood(struct sw_wire *wire, struct sw_msg *msg) {
    unsigned n = 0;
    _Alignas(SW_PROTO_ALIGN) uint8_t packet[SW_PROTO_MAX_PACKET_BYTES];
    (void)fcntl(wire->socket, F_SETFL, O_NONBLOCK);
    for (int idle = 0; idle < 20 && n < 200000;) {
        msg->header.seq = wire->seq + 1;
        msg->header.version = wire->version;
        const int rc = sw_packet_send(wire->socket, packet, sw_msg_encode(msg, packet), NULL, 0);
        if (rc == -SW_ECONN)
            break;
        n += rc == 0;
        wire->seq += rc == 0;
        idle = rc == 0 ? 0 : idle + 1;
        if (rc < 0)
            sleep_us(10000);
    }
    (void)fcntl(wire->socket, F_SETFL, 0);
    return n;
}

START_TEST(peer_that_never_reads) {
    struct sw_sound before;
    struct sw_wire wire;
    struct sw_msg msg = {.header = {.type = SW_MSG_STATUS}};
    start(NULL);
    sw_sound_take(&daemon_process, &before);
    sw_wire_open(&wire, daemon_process.socket);
    const unsigned sent = flood(&wire, &msg);
    ck_assert_uint_lt(sent, 100000); /* it was stopped by the daemon, not by the test */
    /* Others are served meanwhile, and the daemon does not spin. */
    ck_assert_ptr_null(sw_sound_round_trip(&daemon_process, 300000, 8));
    const double cpu_s = sw_test_daemon_cpu_s(&daemon_process);
    sleep_us(500000);
    ck_assert_double_lt(sw_test_daemon_cpu_s(&daemon_process) - cpu_s, 0.2);
    /* Once it reads, every request is answered, in order. */
    const uint32_t first = wire.seq;
    for (unsigned i = 0, due = 2; i < sent; i++, due++) {
        ck_assert_int_eq(sw_wire_receive(&wire, &msg), 1);
        ck_assert_uint_eq(msg.header.seq, due);
        ck_assert_uint_le(due, first);
    }
    sw_wire_close(&wire);
    ck_sound(&before);
    ck_stops();
}
END_TEST

/* The peer sends as many requests as may be in flight, all of which fail at once, and only then reads: neither side
 * waits for the other. */
START_TEST(peer_that_reads_last) {
    struct sw_wire wire;
    start(NULL);
    sw_wire_open(&wire, daemon_process.socket);
    const int least_bytes = 1; /* the kernel's least */
    ck_assert_int_eq(setsockopt(wire.socket, SOL_SOCKET, SO_SNDBUF, &least_bytes, sizeof least_bytes), 0);
    for (uint32_t i = 0; i < 256; i++) {
        struct sw_msg msg = sw_wire_restore_msg((struct sw_region_id){.slot = i, .gen = 1}, 1, 0, 1);
        ck_assert_uint_eq(sw_wire_send(&wire, &msg, NULL, 0), i + 2);
    }
    for (uint32_t seq = 2; seq < 258; seq++) {
        struct sw_msg reply;
        ck_assert_int_eq(sw_wire_await(&wire, seq, &reply), -SW_ENOENT);
    }
    sw_wire_close(&wire);
    ck_stops();
}
END_TEST

/* ---- crowds ------------------------------------------------------------------------------------------------------ */

/* Sessions that were closed a moment ago may still count. */
static void open_when_there_is_room(struct sw_wire *wire) {
    struct sw_msg msg = {.header = {.type = SW_MSG_HELLO}};
    msg.u.hello.version = SW_PROTO_OLDEST_VERSION;
    for (int i = 0; i < 1000; i++) {
        ck_assert(sw_wire_connect(wire, daemon_process.socket));
        (void)sw_wire_send(wire, &msg, NULL, 0);
        struct sw_msg reply;
        if (sw_wire_receive(wire, &reply) == 1 && reply.header.type == SW_MSG_HELLO_OK)
            return;
        sw_wire_close(wire);
        sleep_us(10000);
    }
    ck_abort_msg("no room for a session");
}

START_TEST(too_many_sessions) {
    static const char *const options[] = {"max_sessions=4", "tenant_sessions=4", NULL};
    struct sw_sound before;
    struct sw_wire wires[4], one_more;
    struct sw_msg msg;
    start(options);
    sw_sound_take(&daemon_process, &before);
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < 4; i++)
            open_when_there_is_room(&wires[i]);
        ck_assert(sw_wire_connect(&one_more, daemon_process.socket));
        ck_assert_int_eq(sw_wire_await(&one_more, 0, &msg), -SW_ELIMIT);
        ck_assert(sw_wire_is_closed(&one_more));
        sw_wire_close(&one_more);
        for (int i = 0; i < 4; i++)
            sw_wire_close(&wires[i]);
    }
    sleep_us(100000);
    ck_sound(&before);
    ck_stops();
}
END_TEST

START_TEST(no_descriptor_left_to_accept_with) {
    enum { CROWD = 8 };
    struct sw_sound before;
    struct sw_wire wires[CROWD];
    struct rlimit limit;
    start(NULL);
    sw_sound_take(&daemon_process, &before);
    ck_assert_int_eq(prlimit(daemon_process.pid, RLIMIT_NOFILE, NULL, &limit), 0);
    const rlim_t soft = limit.rlim_cur;
    limit.rlim_cur = before.fds - 3 + 2; /* ".", ".." and the session that counted are in it */
    ck_assert_int_eq(prlimit(daemon_process.pid, RLIMIT_NOFILE, &limit, NULL), 0);
    for (int i = 0; i < CROWD; i++)
        ck_assert(sw_wire_connect(&wires[i], daemon_process.socket)); /* into the backlog */
    const double cpu_s = sw_test_daemon_cpu_s(&daemon_process);
    sleep_us(600000);
    ck_assert_double_lt(sw_test_daemon_cpu_s(&daemon_process) - cpu_s, 0.3);
    ck_assert_uint_ge(sw_test_daemon_logged(&daemon_process, "event=accept.failed"), 2);
    limit.rlim_cur = soft;
    ck_assert_int_eq(prlimit(daemon_process.pid, RLIMIT_NOFILE, &limit, NULL), 0);
    for (int i = 0; i < CROWD; i++)
        ck_assert_int_eq(sw_wire_hello(&wires[i], SW_PROTO_OLDEST_VERSION), 0); /* late, but served */
    for (int i = 0; i < CROWD; i++)
        sw_wire_close(&wires[i]);
    ck_sound(&before);
    ck_stops();
}
END_TEST

/* Many new clients leave the existing ones the descriptors that these need for their memories. */
START_TEST(many_sessions_leave_descriptors_for_memories) {
    static const struct rlimit few = {.rlim_cur = 256, .rlim_max = 256};
    enum { CROWD = 200, BYTES = 100000 };
    struct sw_sound before;
    struct sw_wire wire, wires[CROWD];
    struct sw_msg hello = {.header = {.type = SW_MSG_HELLO}}, reply = {.header = {.type = SW_MSG_HELLO_OK}};
    struct sw_region_id ids[2];
    unsigned n = 0;
    hello.u.hello.version = SW_PROTO_OLDEST_VERSION;
    ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &few), 0);
    start(NULL);
    ck_assert_uint_eq(sw_test_daemon_logged(&daemon_process, "event=descriptors.short"), 1);
    ck_assert_uint_eq(sw_test_daemon_logged(&daemon_process, "raise RLIMIT_NOFILE"), 1);
    sw_sound_take(&daemon_process, &before);
    const int fd = sw_wire_content_memfd(BYTES, SW_CONTENT_TEXT, 1, F_SEAL_SHRINK);
    sw_wire_open(&wire, daemon_process.socket);
    ck_assert_int_eq(sw_wire_mem(&wire, 1, fd, BYTES, true), 0);
    ck_assert_int_eq(sw_wire_spill(&wire, 1, 0, BYTES, &ids[0]), 0);
    for (; n < CROWD && reply.header.type == SW_MSG_HELLO_OK; n++) {
        ck_assert(sw_wire_connect(&wires[n], daemon_process.socket));
        (void)sw_wire_send(&wires[n], &hello, NULL, 0); /* refused, it has hung up, perhaps */
        ck_assert_int_eq(sw_wire_receive(&wires[n], &reply), 1);
    }
    ck_assert_uint_gt(n, 16);
    struct sw_err err;
    ck_assert_msg(reply.header.type == SW_MSG_ERROR, "%u sessions, and none was refused", n);
    sw_msg_to_err(&err, &reply.u.error);
    ck_assert_int_eq(err.code, -SW_ELIMIT);
    for (uint32_t mem = 2; mem < 12; mem++) /* more than one, which might just have found room */
        ck_assert_int_eq(sw_wire_mem(&wire, mem, fd, BYTES, false), 0);
    ck_assert_int_eq(sw_wire_spill(&wire, 2, 0, BYTES, &ids[1]), 0);
    for (int i = 0; i < 2; i++)
        ck_assert_int_eq(sw_wire_restore(&wire, ids[i], 3, 0, BYTES), 0);
    while (n)
        sw_wire_close(&wires[--n]);
    sw_wire_close(&wire);
    (void)close(fd);
    for (int i = 0; i < 10000 && sw_test_daemon_fds(&daemon_process) > before.fds; i++)
        sleep_us(1000); /* until there is room for the session that counts */
    ck_sound(&before);
    ck_stops();
}
END_TEST

/* Announces memories of `parts` parts each until one is refused or `most` are there; returns how many are. */
static uint32_t announce(struct sw_wire *wire, uint32_t parts, uint32_t most) {
    uint32_t n = 0;
    while (n < most && sw_wire_mem_open(wire, n + 1, SW_MEM_CUDA_VMM, parts, 0, parts) == 0)
        n++;
    return n;
}

/* Sends descriptors for memories that are never complete, and then for small ones, until there is no room for one. */
static void hog(struct sw_wire *wire, int fd) {
    uint32_t mem = 1;
    int rc = 0;
    for (; rc == 0; mem++) {
        rc = sw_wire_mem_open(wire, mem, SW_MEM_CUDA_VMM, SW_PROTO_MAX_FDS + 1, 0, 1);
        if (rc == 0)
            rc = sw_wire_mem_parts(wire, mem, 0, SW_PROTO_MAX_FDS, 1, fd, SW_PROTO_MAX_FDS);
    }
    ck_assert_int_eq(rc, -SW_ELIMIT);
    while ((rc = sw_wire_mem_open(wire, mem, SW_MEM_MEMFD, 1, 0, 1)) == 0)
        ck_assert_int_eq(sw_wire_mem_parts(wire, mem++, 0, 1, 1, fd, 1), 0);
    ck_assert_int_eq(rc, -SW_ELIMIT);
}

/* Two sessions of one uid use up its share, and another uid is served; announcing a memory takes no descriptors. */
START_TEST(descriptors_are_shared_between_users) {
    static const char *const options[] = {"max_session_memories=4096", "max_sessions=16", "data_socket_mode=0666",
                                          NULL};
    static const struct rlimit few = {.rlim_cur = 2048, .rlim_max = 2048};
    enum { ANNOUNCED = 300, OTHERS_UID = 65534 };
    struct sw_sound before;
    struct sw_wire wires[2];
    ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &few), 0);
    start(options);
    ck_assert_int_eq(chmod(daemon_process.folder, 0755), 0);
    sw_sound_take(&daemon_process, &before);
    const int fd = sw_wire_content_memfd(300000, SW_CONTENT_TEXT, 1, F_SEAL_SHRINK);
    for (int i = 0; i < 2; i++) {
        sw_wire_open(&wires[i], daemon_process.socket);
        ck_assert_uint_eq(announce(&wires[i], 500, ANNOUNCED), ANNOUNCED);
    }
    ck_assert_int_eq(sw_wire_mem_open(&wires[0], 4097, SW_MEM_CUDA_VMM, 2000, 0, 2000), -SW_ELIMIT);
    ck_assert_ptr_null(sw_sound_round_trip(&daemon_process, 300000, 8));
    for (int i = 0; i < 2; i++) {
        sw_wire_close(&wires[i]);
        sw_wire_open(&wires[i], daemon_process.socket);
    }
    hog(&wires[0], fd);
    hog(&wires[1], fd);
    ck_assert_ptr_nonnull(sw_sound_round_trip(&daemon_process, 300000, 8));
    if (geteuid() == 0) { /* only root can take another user's id */
        ck_assert_int_eq(seteuid(OTHERS_UID), 0);
        ck_assert_ptr_null(sw_sound_round_trip(&daemon_process, 300000, 8));
        ck_assert_int_eq(seteuid(0), 0);
    }
    for (int i = 0; i < 2; i++)
        sw_wire_close(&wires[i]);
    (void)close(fd);
    ck_sound(&before);
    ck_stops();
}
END_TEST

/* ---- arena full -------------------------------------------------------------------------------------------------- */

START_TEST(arena_full) {
    static const char *const options[] = {"host_tier_bytes=8 MiB", "host_tier_initial_bytes=8 MiB", NULL};
    enum { BYTES = 3 * 1000 * 1000, MOST = 8 };
    struct sw_sound before;
    struct sw_wire wire;
    struct sw_region_id ids[MOST], id;
    start(options);
    sw_sound_take(&daemon_process, &before);
    sw_wire_open(&wire, daemon_process.socket);
    const int fd = sw_wire_content_memfd(BYTES, SW_CONTENT_RANDOM, 1, F_SEAL_SHRINK),
              back = sw_wire_memfd(NULL, BYTES, F_SEAL_SHRINK);
    ck_assert_int_eq(sw_wire_mem(&wire, 1, fd, BYTES, false), 0);
    int rc = 0, n = 0;
    while (n < MOST && (rc = sw_wire_spill(&wire, 1, 0, BYTES, &ids[n])) == 0)
        n++;
    ck_assert_int_eq(rc, -SW_ENOSPACE);
    ck_assert_int_eq(n, 2);
    ck_assert(
        sw_wire_memfd_holds(fd, BYTES, SW_CONTENT_RANDOM, 1)); /* a failed spill leaves the bytes where they are */
    ck_assert_int_eq(sw_wire_spill(&wire, 1, 0, BYTES, &id), -SW_ENOSPACE);
    ck_assert_int_eq(sw_wire_drop(&wire, ids[0]), 0);
    ck_assert_int_eq(sw_wire_spill(&wire, 1, 0, BYTES, &ids[0]), 0);
    for (int i = 0; i < n; i++) {
        ck_assert_int_eq(sw_wire_mem(&wire, 2, back, BYTES, true), 0);
        ck_assert_int_eq(sw_wire_restore(&wire, ids[i], 2, 0, BYTES), 0);
        ck_assert(sw_wire_memfd_holds(back, BYTES, SW_CONTENT_RANDOM, 1));
    }
    (void)close(fd);
    (void)close(back);
    sw_wire_close(&wire);
    ck_sound(&before);
    ck_stops();
}
END_TEST

START_TEST(arena_that_cannot_grow_for_a_while) {
    static const char *const options[] = {"host_tier_initial_bytes=4 MiB", "host_tier_ahead_pct=0", NULL};
    enum { BYTES = 6 * 1000 * 1000 };
    struct sw_sound before;
    struct sw_wire wire;
    struct sw_region_id id;
    struct rlimit limit;
    start(options);
    sw_sound_take(&daemon_process, &before);
    sw_wire_open(&wire, daemon_process.socket);
    const int fd = sw_wire_content_memfd(BYTES, SW_CONTENT_RANDOM, 1, F_SEAL_SHRINK);
    ck_assert_int_eq(sw_wire_mem(&wire, 1, fd, BYTES, false), 0);
    ck_assert_int_eq(prlimit(daemon_process.pid, RLIMIT_FSIZE, NULL, &limit), 0);
    const rlim_t soft = limit.rlim_cur;
    limit.rlim_cur = 1 << 20; /* less than a slab */
    ck_assert_int_eq(prlimit(daemon_process.pid, RLIMIT_FSIZE, &limit, NULL), 0);
    for (int i = 0; i < 3; i++)
        ck_assert_int_eq(sw_wire_spill(&wire, 1, 0, BYTES, &id), -SW_ENOMEM);
    ck_assert(sw_wire_memfd_holds(fd, BYTES, SW_CONTENT_RANDOM, 1));
    ck_assert_uint_eq(sw_test_daemon_logged(&daemon_process, "event=tier.grow_failed name=ENOMEM"), 1);
    ck_assert_ptr_null(sw_sound_round_trip(&daemon_process, 300000, 8)); /* the service goes on */
    limit.rlim_cur = soft;
    ck_assert_int_eq(prlimit(daemon_process.pid, RLIMIT_FSIZE, &limit, NULL), 0);
    ck_assert_int_eq(sw_wire_spill(&wire, 1, 0, BYTES, &id), 0);
    (void)close(fd);
    sw_wire_close(&wire);
    ck_sound(&before);
    while (sw_test_daemon_logged(&daemon_process, "event=tier.ready ") < 2) /* at the start, and again */
        sleep_us(5000);
    ck_stops();
}
END_TEST

/* ---- start and stop ---------------------------------------------------------------------------------------------- */

START_TEST(two_daemons_on_one_socket) {
    struct sw_test_daemon second;
    int exit_code = 0;
    start(NULL);
    second = daemon_process;
    ck_assert(!sw_test_daemon_try(&second, SW_SPILLWAYD_PATH, NULL, &exit_code));
    ck_assert_int_eq(exit_code, 1);
    ck_assert_uint_eq(sw_test_daemon_logged(&daemon_process, "another daemon is listening"), 1);
    ck_assert_ptr_null(sw_sound_round_trip(&daemon_process, 300000, 8));
    ck_stops();
}
END_TEST

START_TEST(stale_and_foreign_socket_files) {
    struct sw_test_daemon again;
    struct stat found;
    int exit_code = 0;
    start(NULL);
    /* Killed: the file stays, and the next daemon takes it over. */
    ck_assert_int_eq(sw_test_daemon_stop(&daemon_process, SIGKILL), -SIGKILL);
    ck_assert_int_eq(lstat(daemon_process.socket, &found), 0);
    ck_assert_uint_eq(found.st_mode & 07777, 0660);
    ck_assert(sw_test_daemon_try(&daemon_process, SW_SPILLWAYD_PATH, NULL, &exit_code));
    ck_assert_ptr_null(sw_sound_round_trip(&daemon_process, 300000, 8));
    /* Taken away while it runs: the files that are there when it stops are not its own, and stay. */
    ck_assert_int_eq(unlink(daemon_process.socket), 0);
    ck_assert_int_eq(unlink(daemon_process.control), 0);
    again = daemon_process;
    ck_assert(sw_test_daemon_try(&again, SW_SPILLWAYD_PATH, NULL, &exit_code));
    ck_assert_int_eq(sw_test_daemon_stop(&daemon_process, SIGTERM), 0);
    ck_assert_int_eq(lstat(again.socket, &found), 0);
    ck_assert_int_eq(lstat(again.control, &found), 0);
    ck_assert_int_eq(sw_test_daemon_stop(&again, SIGTERM), 0);
    /* A file that is no socket is never removed. */
    const int file = open(again.socket, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    ck_assert_int_ge(file, 0);
    (void)close(file);
    ck_assert(!sw_test_daemon_try(&again, SW_SPILLWAYD_PATH, NULL, &exit_code));
    ck_assert_int_eq(exit_code, 1);
    ck_assert_int_eq(lstat(again.socket, &found), 0);
    ck_assert_uint_eq(sw_test_daemon_logged(&again, "is no socket"), 1);
    sw_test_daemon_clean(&again);
}
END_TEST

START_TEST(stopped_in_mid_spill) {
    enum { BYTES = 8 * 1000 * 1000 };
    const int fd = sw_wire_content_memfd(BYTES, SW_CONTENT_TEXT, 1, F_SEAL_SHRINK);
    for (long us = 0; us < 30000; us += 10000) {
        struct sw_wire wire;
        start(NULL);
        sw_wire_open(&wire, daemon_process.socket);
        ck_assert_int_eq(sw_wire_mem(&wire, 1, fd, BYTES, false), 0);
        for (int i = 0; i < 4; i++) {
            struct sw_msg msg = sw_wire_spill_msg(1, 0, BYTES);
            (void)sw_wire_send(&wire, &msg, NULL, 0);
        }
        sleep_us(us);
        ck_stops();
        ck_assert(sw_wire_is_closed(&wire));
        sw_wire_close(&wire);
    }
    ck_assert(sw_wire_memfd_holds(fd, BYTES, SW_CONTENT_TEXT, 1));
    (void)close(fd);
}
END_TEST

START_TEST(bad_command_lines) {
    static const struct {
        const char *option, *says;
        int exit_code;
    } lines[] = {
        {"scratch_bytes=1", "scratch_bytes: 1 is not a size from 64 MiB to 16 GiB", 2},
        {"scratch_bytes=2", "event=start.failed name=ECONFIG text=\"scratch_bytes: 2 is not a size", 2},
        {"nonsense=1", "nonsense: unknown option", 2},
        {"host_tier_initial_bytes=65 MiB", "exceeds host_tier_bytes", 2},
        {"data_socket=/nonexistent/folder/data.sock", "No such file or directory", 1},
        {"data_socket=/proc/data.sock", "event=start.failed", 1},
    };
    for (unsigned i = 0; i < sizeof lines / sizeof lines[0]; i++) {
        const char *const options[] = {lines[i].option, NULL};
        struct sw_test_daemon process = {0};
        int exit_code = -1;
        ck_assert(!sw_test_daemon_try(&process, SW_SPILLWAYD_PATH, options, &exit_code));
        ck_assert_int_eq(exit_code, lines[i].exit_code);
        ck_assert_msg(sw_test_daemon_logged(&process, lines[i].says) == 1, "%s: does not say '%s'", lines[i].option,
                      lines[i].says);
        sw_test_daemon_clean(&process);
    }
}
END_TEST

/* Among messages that this manager ignores: descriptors to be kept, which it closes. */
static void await_message(int manager, const char *expected) {
    char text[64] = "";
    while (strcmp(text, expected) != 0) {
        const ssize_t n = recv(manager, text, sizeof text - 1, 0);
        ck_assert_int_gt(n, 0);
        text[n] = 0;
    }
}

START_TEST(service_manager_is_told) {
    char path[SW_TEST_PATH_BYTES];
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    sw_test_folder(path);
    (void)snprintf(address.sun_path, sizeof address.sun_path, "%s/notify", path);
    socklen_t length = sizeof address;
    if (_i == 1) { /* abstract */
        length = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + strlen(address.sun_path));
        ck_assert_int_eq(setenv("NOTIFY_SOCKET", address.sun_path, 1), 0);
        getenv("NOTIFY_SOCKET")[0] = '@';
        address.sun_path[0] = 0;
    } else {
        ck_assert_int_eq(setenv("NOTIFY_SOCKET", address.sun_path, 1), 0);
    }
    const int manager = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    ck_assert_int_eq(bind(manager, (const struct sockaddr *)&address, length), 0);
    start(NULL);
    await_message(manager, "READY=1");
    ck_stops();
    await_message(manager, "STOPPING=1");
    (void)close(manager);
    if (_i == 0)
        (void)unlink(address.sun_path);
    (void)rmdir(path);
}
END_TEST

int main(void) {
    TCase *tests = tcase_create("bad_peer");
    sw_test_slow(tests, 60);
    tcase_add_test(tests, clients_killed_at_any_moment);
    tcase_add_test(tests, socket_closed_behind_a_spill);
    tcase_add_test(tests, peer_that_never_reads);
    tcase_add_test(tests, peer_that_reads_last);
    tcase_add_test(tests, too_many_sessions);
    tcase_add_test(tests, no_descriptor_left_to_accept_with);
    tcase_add_test(tests, many_sessions_leave_descriptors_for_memories);
    tcase_add_test(tests, descriptors_are_shared_between_users);
    tcase_add_test(tests, arena_full);
    tcase_add_test(tests, arena_that_cannot_grow_for_a_while);
    tcase_add_test(tests, two_daemons_on_one_socket);
    tcase_add_test(tests, stale_and_foreign_socket_files);
    tcase_add_test(tests, stopped_in_mid_spill);
    tcase_add_test(tests, bad_command_lines);
    tcase_add_loop_test(tests, service_manager_is_told, 0, 2);
    Suite *suite = suite_create("bad_peer");
    suite_add_tcase(suite, tests);
    return sw_test_run(suite, CK_FORK);
}
