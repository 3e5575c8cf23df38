#include "tests/lib/faulted.h"

#include "base/alloc.h"
#include "base/assert.h"
#include "base/log.h"
#include "daemon/daemon.h"
#include "tests/lib/nvme_fixture.h"

#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <liburing.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

struct sw_faulted sw_faulted;

/* ---- faults, in the daemon ----------------------------------------------------------------------------------------
 */

static bool is_daemon; /* the test speaks by the same functions */

static bool hits(enum sw_call call) {
    if (!is_daemon || atomic_load(&sw_faulted.control->call) != (int)call ||
        atomic_fetch_sub(&sw_faulted.control->nth, 1) > 1)
        return false;
    if (atomic_fetch_sub(&sw_faulted.control->count, 1) <= 0)
        return false;
    atomic_fetch_add(&sw_faulted.control->fired, 1);
    errno = sw_faulted.control->error;
    return true;
}

void *__real_mmap(void *address, size_t bytes, int protection, int flags, int fd, off_t offset);
void *__wrap_mmap(void *address, size_t bytes, int protection, int flags, int fd, off_t offset);
void *__wrap_mmap(void *address, size_t bytes, int protection, int flags, int fd, off_t offset) {
    return hits(SW_CALL_MMAP) ? MAP_FAILED : __real_mmap(address, bytes, protection, flags, fd, offset);
}

int __real_memfd_create(const char *name, unsigned flags);
int __wrap_memfd_create(const char *name, unsigned flags);
int __wrap_memfd_create(const char *name, unsigned flags) {
    return hits(SW_CALL_MEMFD_CREATE) ? -1 : __real_memfd_create(name, flags);
}

int __real_ftruncate(int fd, off_t bytes);
int __wrap_ftruncate(int fd, off_t bytes);
int __wrap_ftruncate(int fd, off_t bytes) {
    return hits(SW_CALL_FTRUNCATE) ? -1 : __real_ftruncate(fd, bytes);
}

int __real_fcntl(int fd, int command, ...);
int __wrap_fcntl(int fd, int command, ...);
int __wrap_fcntl(int fd, int command, ...) {
    va_list arguments;
    va_start(arguments, command);
    const long argument = va_arg(arguments, long);
    va_end(arguments);
    return hits(SW_CALL_FCNTL) ? -1 : __real_fcntl(fd, command, argument);
}

ssize_t __real_recvmsg(int fd, struct msghdr *message, int flags);
ssize_t __wrap_recvmsg(int fd, struct msghdr *message, int flags);
ssize_t __wrap_recvmsg(int fd, struct msghdr *message, int flags) {
    return hits(SW_CALL_RECVMSG) ? -1 : __real_recvmsg(fd, message, flags);
}

ssize_t __real_sendmsg(int fd, const struct msghdr *message, int flags);
ssize_t __wrap_sendmsg(int fd, const struct msghdr *message, int flags);
ssize_t __wrap_sendmsg(int fd, const struct msghdr *message, int flags) {
    return hits(SW_CALL_SENDMSG) ? -1 : __real_sendmsg(fd, message, flags);
}

int __real_accept4(int fd, struct sockaddr *address, socklen_t *bytes, int flags);
int __wrap_accept4(int fd, struct sockaddr *address, socklen_t *bytes, int flags);
int __wrap_accept4(int fd, struct sockaddr *address, socklen_t *bytes, int flags) {
    return hits(SW_CALL_ACCEPT) ? -1 : __real_accept4(fd, address, bytes, flags);
}

int __real_getsockopt(int fd, int level, int name, void *value, socklen_t *bytes);
int __wrap_getsockopt(int fd, int level, int name, void *value, socklen_t *bytes);
int __wrap_getsockopt(int fd, int level, int name, void *value, socklen_t *bytes) {
    return hits(SW_CALL_PEER) ? -1 : __real_getsockopt(fd, level, name, value, bytes);
}

/* libuv's, which is no archive that the linker could wrap calls of: this one is found before the system's. */
__attribute__((visibility("default"))) int epoll_ctl(int epoll, int operation, int fd, struct epoll_event *event) {
    if (operation == EPOLL_CTL_ADD && hits(SW_CALL_EPOLL))
        return -1;
    return (int)syscall(SYS_epoll_ctl, epoll, operation, fd, event);
}

/* A client's memory, a file of the disk in whole blocks, or its manifest. */
static enum sw_call kind_of(int fd, size_t bytes, enum sw_call client, enum sw_call disk) {
    char path[64], target[16] = "";
    (void)snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    if (readlink(path, target, sizeof target - 1) > 0 && strncmp(target, "/memfd:", 7) == 0)
        return client;
    return bytes % SW_TIER_IO_ALIGN == 0 ? disk : SW_CALL_MANIFEST_WRITE;
}

static void be_slow(void) {
    (void)usleep(10000);
}

ssize_t __real_pread(int fd, void *ret, size_t bytes, off_t offset);
ssize_t __wrap_pread(int fd, void *ret, size_t bytes, off_t offset);
ssize_t __wrap_pread(int fd, void *ret, size_t bytes, off_t offset) {
    if (!is_daemon || !hits(kind_of(fd, bytes, SW_CALL_CLIENT_READ, SW_CALL_DISK_READ)))
        return __real_pread(fd, ret, bytes, offset);
    if (sw_faulted.control->way == SW_WAY_ERROR)
        return -1;
    if (sw_faulted.control->way == SW_WAY_SLOW)
        be_slow();
    const ssize_t n = __real_pread(fd, ret, sw_faulted.control->way == SW_WAY_SHORT ? SW_TIER_IO_ALIGN : bytes, offset);
    if (sw_faulted.control->way == SW_WAY_FLIP && n > 1000)
        ((uint8_t *)ret)[1000] ^= 4;
    return n;
}

ssize_t __real_pwrite(int fd, const void *data, size_t bytes, off_t offset);
ssize_t __wrap_pwrite(int fd, const void *data, size_t bytes, off_t offset);
ssize_t __wrap_pwrite(int fd, const void *data, size_t bytes, off_t offset) {
    if (!is_daemon || !hits(kind_of(fd, bytes, SW_CALL_CLIENT_WRITE, SW_CALL_DISK_WRITE)))
        return __real_pwrite(fd, data, bytes, offset);
    if (sw_faulted.control->way == SW_WAY_ERROR)
        return -1;
    if (sw_faulted.control->way == SW_WAY_NOTHING)
        return (ssize_t)bytes;
    if (sw_faulted.control->way == SW_WAY_SLOW)
        be_slow();
    return __real_pwrite(fd, data, sw_faulted.control->way == SW_WAY_SHORT ? SW_TIER_IO_ALIGN : bytes, offset);
}

/* The way of writing to a client's memory that makes no page (spill/device/guard.c); shorter ones only map, or look at
 * a word. */
ssize_t __real_process_vm_readv(pid_t pid, const struct iovec *to, unsigned long n_to, const struct iovec *from,
                                unsigned long n_from, unsigned long flags);
ssize_t __wrap_process_vm_readv(pid_t pid, const struct iovec *to, unsigned long n_to, const struct iovec *from,
                                unsigned long n_from, unsigned long flags);
ssize_t __wrap_process_vm_readv(pid_t pid, const struct iovec *to, unsigned long n_to, const struct iovec *from,
                                unsigned long n_from, unsigned long flags) {
    struct iovec first = to[0];
    if (is_daemon && n_from == 1 && from[0].iov_len > sizeof(uint64_t) && hits(SW_CALL_CLIENT_WRITE)) {
        if (sw_faulted.control->way == SW_WAY_ERROR)
            return -1;
        if (sw_faulted.control->way == SW_WAY_SHORT && first.iov_len > SW_TIER_IO_ALIGN)
            first.iov_len = SW_TIER_IO_ALIGN;
        return __real_process_vm_readv(pid, &first, 1, from, 1, flags);
    }
    return __real_process_vm_readv(pid, to, n_to, from, n_from, flags);
}

int __real_io_uring_queue_init(unsigned entries, struct io_uring *ring, unsigned flags);
int __wrap_io_uring_queue_init(unsigned entries, struct io_uring *ring, unsigned flags);
int __wrap_io_uring_queue_init(unsigned entries, struct io_uring *ring, unsigned flags) {
    return is_daemon && sw_faulted.control->no_uring ? -ENOSYS : __real_io_uring_queue_init(entries, ring, flags);
}

int __real_io_uring_submit_and_wait(struct io_uring *ring, unsigned n);
int __wrap_io_uring_submit_and_wait(struct io_uring *ring, unsigned n);
int __wrap_io_uring_submit_and_wait(struct io_uring *ring, unsigned n) {
    return hits(SW_CALL_URING) ? -sw_faulted.control->error : __real_io_uring_submit_and_wait(ring, n);
}

static struct sw_device *faulty;

int __real_sw_device_host_open(struct sw_device **ret, const struct sw_device_config *config, struct sw_err *err);
int __wrap_sw_device_host_open(struct sw_device **ret, const struct sw_device_config *config, struct sw_err *err);
int __wrap_sw_device_host_open(struct sw_device **ret, const struct sw_device_config *config, struct sw_err *err) {
    struct sw_device *host;
    const int rc = __real_sw_device_host_open(&host, config, err);
    if (rc < 0)
        return rc;
    SW_ASSERT(sw_device_faulty_open(&faulty, host, err) == 0);
    *ret = faulty;
    return 0;
}

static int commands[2], answers[2];

static void *obey(void *arg) {
    struct sw_faulted_command command;
    (void)arg;
    while (read(commands[0], &command, sizeof command) == sizeof command) {
        if (command.step[0])
            sw_device_faulty_arm(faulty, command.step, command.nth, command.code, command.fault);
        else
            sw_alloc_fail_nth(command.nth);
        SW_ASSERT(write(answers[1], "x", 1) == 1);
    }
    return NULL;
}

/* ---- the daemon ----------------------------------------------------------------------------------------------------
 */

static char folder[SW_TEST_PATH_BYTES];
static struct sw_nvme_folder disk;

static void on_stopped(int exit_code, void *arg) {
    *(int *)arg = exit_code;
}

static __attribute__((noreturn)) void be_daemon(bool with_disk) {
    static struct sw_config config;
    struct sw_daemon *daemon;
    struct sw_err err;
    pthread_t thread;
    uv_loop_t loop;
    int exit_code = 0;
    char text[256];
    const char *const options[] = {"device=host",
                                   "slots=2",
                                   "scratch_bytes=64 MiB",
                                   "chunk_bytes=256 KiB",
                                   "host_tier_bytes=8 MiB",
                                   "host_tier_slab_bytes=2 MiB",
                                   "host_tier_ahead_pct=0",
                                   "host_tier_initial_bytes=0",
                                   "host_tier_high_pct=100",
                                   "host_tier_low_pct=100",
                                   "log_level=error",
                                   "max_session_operations=16"};
    if (sw_faulted.manager) {
        commands[0] = fcntl(commands[0], F_DUPFD_CLOEXEC, 256); /* out of the way of descriptors that are handed over */
        answers[1] = fcntl(answers[1], F_DUPFD_CLOEXEC, 256);
        (void)sw_test_hand_over(&sw_faulted.manager->handover);
    }
    is_daemon = true;
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    (void)signal(SIGPIPE, SIG_IGN);
    sw_log_set_level(SW_LOG_ERROR);
    sw_config_init(&config);
    for (size_t i = 0; i < sizeof options / sizeof options[0]; i++)
        SW_ASSERT(sw_config_set(&config, options[i], &err) == 0);
    (void)snprintf(text, sizeof text, "data_socket=%s", sw_faulted.socket_path);
    SW_ASSERT(sw_config_set(&config, text, &err) == 0);
    (void)snprintf(text, sizeof text, "nvme_tier_directory=%s", with_disk ? disk.path : "none");
    SW_ASSERT(sw_config_set(&config, text, &err) == 0);
    SW_ASSERT(sw_config_set(&config, "nvme_tier_bytes=32 MiB", &err) == 0);
    SW_ASSERT(!sw_faulted.start_ms || sw_config_set(&config, "reconnect_grace_s=1", &err) == 0);
    SW_ASSERT(uv_loop_init(&loop) == 0);
    (void)usleep(sw_faulted.start_ms * 1000);
    const struct sw_daemon_hooks hooks = {.stopped = on_stopped, .arg = &exit_code};
    SW_ASSERT(sw_daemon_start(&daemon, &loop, &config, &hooks, &err) == 0);
    SW_ASSERT(pthread_create(&thread, NULL, obey, NULL) == 0);
    (void)uv_run(&loop, UV_RUN_DEFAULT);
    _exit(exit_code);
}

void sw_faulted_start(bool with_disk) {
    SW_ASSERT(pipe2(commands, O_CLOEXEC) == 0 && pipe2(answers, O_CLOEXEC) == 0);
    if (sw_faulted.manager)
        sw_supervisor_prepare(sw_faulted.manager);
    sw_faulted.daemon_pid = fork();
    ck_assert_int_ge(sw_faulted.daemon_pid, 0);
    if (sw_faulted.daemon_pid == 0)
        be_daemon(with_disk);
    (void)close(commands[0]);
    (void)close(answers[1]);
    struct sw_wire wire;
    while (!sw_wire_connect(&wire, sw_faulted.socket_path))
        (void)usleep(1000);
    sw_wire_close(&wire);
}

static void open_memory(void);

void sw_faulted_setup(void) {
    sw_faulted.control =
        mmap(NULL, sizeof *sw_faulted.control, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    ck_assert(sw_faulted.control != MAP_FAILED);
    sw_test_folder(folder);
    (void)snprintf(sw_faulted.socket_path, sizeof sw_faulted.socket_path, "%s/data.sock", folder);
    open_memory();
    disk = sw_nvme_folder_new();
}

void sw_faulted_teardown(void) {
    (void)kill(sw_faulted.daemon_pid, SIGKILL);
    (void)waitpid(sw_faulted.daemon_pid, NULL, 0);
    (void)unlink(sw_faulted.socket_path);
    (void)rmdir(folder);
    sw_nvme_folder_free(&disk);
}

/* ---- clients -------------------------------------------------------------------------------------------------------
 */

enum { PIECES = 6, WITNESS_BYTES = 2 << 20, N_WITNESS = 2 };

static struct sw_region_id parked[N_WITNESS];
static int witness_fd;

static int restore_kept(struct sw_wire *wire, struct sw_region_id id, uint32_t mem, uint64_t bytes) {
    struct sw_msg msg = sw_wire_restore_msg(id, mem, 0, bytes);
    msg.u.restore.flags = SW_REQ9_KEEP;
    return sw_wire_call(wire, &msg, NULL, 0);
}

static void open_memory(void) {
    sw_faulted.own_fd = sw_wire_content_memfd(SW_FAULTED_BYTES, SW_CONTENT_RANDOM, 1, F_SEAL_SHRINK);
    sw_faulted.back_fd = sw_wire_memfd(NULL, SW_FAULTED_BYTES, F_SEAL_SHRINK);
    witness_fd = sw_wire_memfd(NULL, WITNESS_BYTES, F_SEAL_SHRINK);
}

void sw_faulted_park(void) {
    sw_wire_open(&sw_faulted.witness, sw_faulted.socket_path);
    for (unsigned i = 0; i < N_WITNESS; i++) {
        const int fd = sw_wire_content_memfd(WITNESS_BYTES, SW_CONTENT_RANDOM, 20 + i, F_SEAL_SHRINK);
        ck_assert_int_eq(sw_wire_mem(&sw_faulted.witness, 1, fd, WITNESS_BYTES, true), 0);
        ck_assert_int_eq(sw_wire_spill(&sw_faulted.witness, 1, 0, WITNESS_BYTES, &parked[i]), 0);
        (void)close(fd);
    }
}

void sw_faulted_ck_parked(void) {
    for (unsigned i = 0; i < N_WITNESS; i++) {
        ck_assert_int_eq(sw_wire_mem(&sw_faulted.witness, 2, witness_fd, WITNESS_BYTES, true), 0);
        ck_assert_int_eq(restore_kept(&sw_faulted.witness, parked[i], 2, WITNESS_BYTES), 0);
        ck_assert(sw_wire_memfd_holds(witness_fd, WITNESS_BYTES, SW_CONTENT_RANDOM, 20 + i));
    }
}

int sw_faulted_greet(struct sw_wire *wire) {
    struct sw_msg msg = {.header = {.type = SW_MSG_HELLO}};
    struct sw_err err;
    if (!sw_wire_connect(wire, sw_faulted.socket_path))
        return -SW_ECONN;
    msg.u.hello.version = SW_PROTO_OLDEST_VERSION;
    (void)sw_wire_send(wire, &msg, NULL, 0);
    if (sw_wire_receive(wire, &msg) != 1)
        return -SW_ECONN;
    if (msg.header.type != SW_MSG_ERROR)
        return 0;
    sw_msg_to_err(&err, &msg.u.error);
    return err.code;
}

void sw_faulted_command(const struct sw_faulted_command *command) {
    char byte;
    SW_ASSERT(write(commands[1], command, sizeof *command) == sizeof *command && read(answers[0], &byte, 1) == 1);
}

void sw_faulted_disarm(void) {
    const struct sw_faulted_command none = {.step = ""};
    atomic_store(&sw_faulted.control->call, SW_CALL_NONE);
    sw_faulted_command(&none);
}

static uint64_t lost_bytes; /* of regions that a fault has damaged while they were away */

/* The whole of it; a connection that has ended in mid-restore does not ask. */
void sw_faulted_ck_own(void) {
    ck_assert(sw_wire_memfd_holds(sw_faulted.own_fd, SW_FAULTED_BYTES, SW_CONTENT_RANDOM, 1));
}

/* A spill and its restore: failed calls may be repeated once the fault is over. */
static int one_region(struct sw_wire *wire) {
    struct sw_region_id id;
    int rc = sw_wire_spill(wire, 1, 0, SW_FAULTED_BYTES, &id);
    sw_faulted_ck_own();
    if (rc < 0)
        return rc;
    rc = restore_kept(wire, id, 2, SW_FAULTED_BYTES);
    if (rc == -SW_ECONN)
        return rc;
    if (rc == -SW_ECHECKSUM || rc == -SW_EFRAME) {
        sw_faulted_disarm();
        ck_assert_int_eq(restore_kept(wire, id, 2, SW_FAULTED_BYTES), -SW_ELOST);
        lost_bytes += SW_FAULTED_BYTES;
    } else if (rc < 0) {
        sw_faulted_disarm();
        ck_assert_int_eq(restore_kept(wire, id, 2, SW_FAULTED_BYTES), 0);
    }
    if (rc == 0 || lost_bytes == 0)
        ck_assert(sw_wire_memfd_holds(sw_faulted.back_fd, SW_FAULTED_BYTES, SW_CONTENT_RANDOM, 1));
    const int dropped = sw_wire_drop(wire, id);
    return rc < 0 ? rc : dropped;
}

static int batch(struct sw_wire *wire) {
    struct sw_region_id ids[PIECES];
    int rc = sw_wire_spill_batch(wire, 1, PIECES, SW_FAULTED_PIECE_BYTES, ids);
    sw_faulted_ck_own();
    if (rc < 0)
        return rc;
    struct sw_msg msg = sw_wire_restore_batch_msg(2, ids, PIECES, SW_FAULTED_PIECE_BYTES);
    rc = sw_wire_call(wire, &msg, NULL, 0);
    if (rc < 0 && rc != -SW_ECONN && rc != -SW_ECHECKSUM && rc != -SW_EFRAME) {
        sw_faulted_disarm();
        msg = sw_wire_restore_batch_msg(2, ids, PIECES, SW_FAULTED_PIECE_BYTES);
        ck_assert_int_eq(sw_wire_call(wire, &msg, NULL, 0), 0);
    }
    return rc;
}

static int in_place(struct sw_wire *wire) {
    struct sw_msg msg = sw_wire_spill_msg(1, 0, SW_FAULTED_BYTES);
    msg.u.spill.flags = SW_REQ9_IN_PLACE;
    int rc = sw_wire_call(wire, &msg, NULL, 0);
    if (rc < 0) {
        sw_faulted_ck_own(); /* undone */
        return rc;
    }
    const struct sw_region_id id = {.slot = msg.u.result.slot, .gen = msg.u.result.gen};
    for (int tries = 0; tries < 2; tries++) {
        msg = sw_wire_restore_msg(id, 1, 0, SW_FAULTED_BYTES);
        msg.u.restore.flags = SW_REQ9_IN_PLACE;
        const int again = sw_wire_call(wire, &msg, NULL, 0);
        if (again == 0) {
            sw_faulted_ck_own();
            return rc;
        }
        ck_assert_int_eq(tries, 0); /* a half-done unpack continues from there */
        rc = again;
        sw_faulted_disarm();
    }
    return rc;
}

/* sw_wire_mem() takes for granted that the daemon listens. */
static int hand_over(struct sw_wire *wire, uint32_t mem, int fd) {
    struct sw_msg open = {.header = {.type = SW_MSG_MEM_OPEN}}, parts = {.header = {.type = SW_MSG_MEM_PARTS}};
    open.u.mem_open =
        (struct sw_msg_mem_open){.mem = mem, .kind = SW_MEM_MEMFD, .n_parts = 1, .bytes = SW_FAULTED_BYTES};
    parts.u.mem_parts = (struct sw_msg_mem_parts){.mem = mem, .count = 1, .part_bytes = {SW_FAULTED_BYTES}};
    const int rc = sw_wire_call(wire, &open, NULL, 0);
    return rc < 0 ? rc : sw_wire_call(wire, &parts, &fd, 1);
}

int sw_faulted_work(void) {
    struct sw_wire wire;
    int rc = sw_faulted_greet(&wire);
    if (rc == 0)
        rc = hand_over(&wire, 1, sw_faulted.own_fd);
    if (rc == 0)
        rc = hand_over(&wire, 2, sw_faulted.back_fd);
    if (rc == 0)
        rc = one_region(&wire);
    if (rc == 0)
        rc = batch(&wire);
    if (rc == 0)
        rc = in_place(&wire);
    sw_wire_close(&wire);
    return rc;
}

void sw_faulted_ck_sound(void) {
    sw_faulted_disarm();
    ck_assert_int_eq(waitpid(sw_faulted.daemon_pid, NULL, WNOHANG), 0);
    const int rc = sw_faulted_work();
    ck_assert_msg(rc == 0, "afterwards: %s", sw_err_name(rc));
    sw_faulted_ck_parked();
}

/* ---- rows -----------------------------------------------------------------------------------------------------------
 */

void sw_faulted_note(struct sw_faulted_seen *seen, int rc, unsigned fired) {
    unsigned i = 0;
    seen->n += fired;
    if (fired == 0)
        return;
    while (i < seen->n_codes && seen->codes[i] != rc)
        i++;
    if (i == seen->n_codes) {
        ck_assert_uint_lt(i, 16);
        seen->codes[seen->n_codes++] = rc;
    }
    seen->times[i]++;
}

void sw_faulted_print_row(const char *fault, const char *where, const struct sw_faulted_seen *seen, const char *then) {
    char outcome[512];
    size_t at = 0;
    for (unsigned i = 0; i < seen->n_codes; i++)
        at += (size_t)snprintf(outcome + at, sizeof outcome - at, "%s%s %u×", at ? ", " : "",
                               seen->codes[i] ? sw_err_name(seen->codes[i]) : "nothing noticed", seen->times[i]);
    printf("row | %s | %s | %u | %s; %s | %llu\n", fault, where, seen->n, outcome, then,
           (unsigned long long)lost_bytes);
    (void)fflush(stdout);
}
