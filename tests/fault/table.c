/* Faults of the GPU's driver, the kernel and the disk, one at a time, in a daemon that serves: each call of a kind
 * fails in turn while a client spills, restores, packs and unpacks. Every failure has a name, every byte is where it
 * was or comes back, what another client has parked is whole, and the daemon goes on, or ends with 1 where it has to.
 *
 * The daemon is a child process of the test, with everything in it but main(); calls into the kernel are wrapped by the
 * linker (CMakeLists.txt), the device by device_faulty.c. Lines that begin with "row" are rows of ../FAULTS.md. */
#include "base/alloc.h"
#include "base/assert.h"
#include "base/log.h"
#include "daemon/daemon.h"
#include "tests/lib/nvme_fixture.h"
#include "tests/lib/run.h"
#include "tests/lib/supervisor.h"
#include "tests/lib/wire.h"

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
#include <sys/wait.h>
#include <unistd.h>

/* ---- faults, in the daemon ----------------------------------------------------------------------------------------
 */

enum call {
    CALL_NONE,
    CALL_MMAP,
    CALL_MEMFD_CREATE,
    CALL_FTRUNCATE,
    CALL_FCNTL,
    CALL_RECVMSG,
    CALL_SENDMSG,
    CALL_ACCEPT,
    CALL_PEER,
    CALL_EPOLL,
    CALL_CLIENT_READ,
    CALL_CLIENT_WRITE,
    CALL_DISK_READ,
    CALL_DISK_WRITE,
    CALL_MANIFEST_WRITE,
    CALL_URING,
};
enum way { WAY_ERROR, WAY_SHORT, WAY_FLIP, WAY_SLOW };

/* Shared with the daemon: the nth call of a kind and `count` - 1 after it fail. */
static struct {
    atomic_int call, nth, count, fired;
    int error;
    enum way way;
    bool no_uring;
} * control;

static bool is_daemon; /* the test speaks by the same functions */

static bool hits(enum call call) {
    if (!is_daemon || atomic_load(&control->call) != (int)call || atomic_fetch_sub(&control->nth, 1) > 1)
        return false;
    if (atomic_fetch_sub(&control->count, 1) <= 0)
        return false;
    atomic_fetch_add(&control->fired, 1);
    errno = control->error;
    return true;
}

void *__real_mmap(void *address, size_t bytes, int protection, int flags, int fd, off_t offset);
void *__wrap_mmap(void *address, size_t bytes, int protection, int flags, int fd, off_t offset);
void *__wrap_mmap(void *address, size_t bytes, int protection, int flags, int fd, off_t offset) {
    return hits(CALL_MMAP) ? MAP_FAILED : __real_mmap(address, bytes, protection, flags, fd, offset);
}

int __real_memfd_create(const char *name, unsigned flags);
int __wrap_memfd_create(const char *name, unsigned flags);
int __wrap_memfd_create(const char *name, unsigned flags) {
    return hits(CALL_MEMFD_CREATE) ? -1 : __real_memfd_create(name, flags);
}

int __real_ftruncate(int fd, off_t bytes);
int __wrap_ftruncate(int fd, off_t bytes);
int __wrap_ftruncate(int fd, off_t bytes) {
    return hits(CALL_FTRUNCATE) ? -1 : __real_ftruncate(fd, bytes);
}

int __real_fcntl(int fd, int command, ...);
int __wrap_fcntl(int fd, int command, ...);
int __wrap_fcntl(int fd, int command, ...) {
    va_list arguments;
    va_start(arguments, command);
    const long argument = va_arg(arguments, long);
    va_end(arguments);
    return hits(CALL_FCNTL) ? -1 : __real_fcntl(fd, command, argument);
}

ssize_t __real_recvmsg(int fd, struct msghdr *message, int flags);
ssize_t __wrap_recvmsg(int fd, struct msghdr *message, int flags);
ssize_t __wrap_recvmsg(int fd, struct msghdr *message, int flags) {
    return hits(CALL_RECVMSG) ? -1 : __real_recvmsg(fd, message, flags);
}

ssize_t __real_sendmsg(int fd, const struct msghdr *message, int flags);
ssize_t __wrap_sendmsg(int fd, const struct msghdr *message, int flags);
ssize_t __wrap_sendmsg(int fd, const struct msghdr *message, int flags) {
    return hits(CALL_SENDMSG) ? -1 : __real_sendmsg(fd, message, flags);
}

int __real_accept4(int fd, struct sockaddr *address, socklen_t *bytes, int flags);
int __wrap_accept4(int fd, struct sockaddr *address, socklen_t *bytes, int flags);
int __wrap_accept4(int fd, struct sockaddr *address, socklen_t *bytes, int flags) {
    return hits(CALL_ACCEPT) ? -1 : __real_accept4(fd, address, bytes, flags);
}

int __real_getsockopt(int fd, int level, int name, void *value, socklen_t *bytes);
int __wrap_getsockopt(int fd, int level, int name, void *value, socklen_t *bytes);
int __wrap_getsockopt(int fd, int level, int name, void *value, socklen_t *bytes) {
    return hits(CALL_PEER) ? -1 : __real_getsockopt(fd, level, name, value, bytes);
}

/* libuv's, which is no archive that the linker could wrap calls of: this one is found before the system's. */
__attribute__((visibility("default"))) int epoll_ctl(int epoll, int operation, int fd, struct epoll_event *event) {
    if (operation == EPOLL_CTL_ADD && hits(CALL_EPOLL))
        return -1;
    return (int)syscall(SYS_epoll_ctl, epoll, operation, fd, event);
}

/* A client's memory, a file of the disk in whole blocks, or its manifest. */
static enum call kind_of(int fd, size_t bytes, enum call client, enum call disk) {
    char path[64], target[16] = "";
    (void)snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    if (readlink(path, target, sizeof target - 1) > 0 && strncmp(target, "/memfd:", 7) == 0)
        return client;
    return bytes % SW_TIER_IO_ALIGN == 0 ? disk : CALL_MANIFEST_WRITE;
}

static void be_slow(void) {
    (void)usleep(10000);
}

ssize_t __real_pread(int fd, void *ret, size_t bytes, off_t offset);
ssize_t __wrap_pread(int fd, void *ret, size_t bytes, off_t offset);
ssize_t __wrap_pread(int fd, void *ret, size_t bytes, off_t offset) {
    if (!is_daemon || !hits(kind_of(fd, bytes, CALL_CLIENT_READ, CALL_DISK_READ)))
        return __real_pread(fd, ret, bytes, offset);
    if (control->way == WAY_ERROR)
        return -1;
    if (control->way == WAY_SLOW)
        be_slow();
    const ssize_t n = __real_pread(fd, ret, control->way == WAY_SHORT ? SW_TIER_IO_ALIGN : bytes, offset);
    if (control->way == WAY_FLIP && n > 1000)
        ((uint8_t *)ret)[1000] ^= 4;
    return n;
}

ssize_t __real_pwrite(int fd, const void *data, size_t bytes, off_t offset);
ssize_t __wrap_pwrite(int fd, const void *data, size_t bytes, off_t offset);
ssize_t __wrap_pwrite(int fd, const void *data, size_t bytes, off_t offset) {
    if (!is_daemon || !hits(kind_of(fd, bytes, CALL_CLIENT_WRITE, CALL_DISK_WRITE)))
        return __real_pwrite(fd, data, bytes, offset);
    if (control->way == WAY_ERROR)
        return -1;
    if (control->way == WAY_SLOW)
        be_slow();
    return __real_pwrite(fd, data, control->way == WAY_SHORT ? SW_TIER_IO_ALIGN : bytes, offset);
}

int __real_io_uring_queue_init(unsigned entries, struct io_uring *ring, unsigned flags);
int __wrap_io_uring_queue_init(unsigned entries, struct io_uring *ring, unsigned flags);
int __wrap_io_uring_queue_init(unsigned entries, struct io_uring *ring, unsigned flags) {
    return is_daemon && control->no_uring ? -ENOSYS : __real_io_uring_queue_init(entries, ring, flags);
}

int __real_io_uring_submit_and_wait(struct io_uring *ring, unsigned n);
int __wrap_io_uring_submit_and_wait(struct io_uring *ring, unsigned n);
int __wrap_io_uring_submit_and_wait(struct io_uring *ring, unsigned n) {
    return hits(CALL_URING) ? -control->error : __real_io_uring_submit_and_wait(ring, n);
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

/* What only the daemon itself can arm. */
struct command {
    char step[16]; /* of the device; "": an allocation */
    unsigned nth;
    int code;
    enum sw_fault fault;
};

static int commands[2], answers[2];

static void *obey(void *arg) {
    struct command command;
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

static char folder[SW_TEST_PATH_BYTES], socket_path[SW_TEST_PATH_BYTES + 16];
static struct sw_nvme_folder disk;
static pid_t daemon_pid;
static struct sw_supervisor *manager; /* NULL: nobody keeps descriptors */
static unsigned start_ms;             /* that a start takes longer, as with a GPU, or much memory to pin */

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
    if (manager) {
        commands[0] = fcntl(commands[0], F_DUPFD_CLOEXEC, 256); /* out of the way of what is handed over */
        answers[1] = fcntl(answers[1], F_DUPFD_CLOEXEC, 256);
        (void)sw_test_hand_over(&manager->handover);
    }
    is_daemon = true;
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    (void)signal(SIGPIPE, SIG_IGN);
    sw_log_set_level(SW_LOG_ERROR);
    sw_config_init(&config);
    for (size_t i = 0; i < sizeof options / sizeof options[0]; i++)
        SW_ASSERT(sw_config_set(&config, options[i], &err) == 0);
    (void)snprintf(text, sizeof text, "data_socket=%s", socket_path);
    SW_ASSERT(sw_config_set(&config, text, &err) == 0);
    (void)snprintf(text, sizeof text, "nvme_tier_directory=%s", with_disk ? disk.path : "none");
    SW_ASSERT(sw_config_set(&config, text, &err) == 0);
    SW_ASSERT(sw_config_set(&config, "nvme_tier_bytes=32 MiB", &err) == 0);
    SW_ASSERT(!start_ms || sw_config_set(&config, "reconnect_grace_s=1", &err) == 0);
    SW_ASSERT(uv_loop_init(&loop) == 0);
    (void)usleep(start_ms * 1000);
    const struct sw_daemon_hooks hooks = {.stopped = on_stopped, .arg = &exit_code};
    SW_ASSERT(sw_daemon_start(&daemon, &loop, &config, &hooks, &err) == 0);
    SW_ASSERT(pthread_create(&thread, NULL, obey, NULL) == 0);
    (void)uv_run(&loop, UV_RUN_DEFAULT);
    _exit(exit_code);
}

static void start(bool with_disk) {
    SW_ASSERT(pipe2(commands, O_CLOEXEC) == 0 && pipe2(answers, O_CLOEXEC) == 0);
    if (manager)
        sw_supervisor_prepare(manager);
    daemon_pid = fork();
    ck_assert_int_ge(daemon_pid, 0);
    if (daemon_pid == 0)
        be_daemon(with_disk);
    (void)close(commands[0]);
    (void)close(answers[1]);
    struct sw_wire wire;
    while (!sw_wire_connect(&wire, socket_path))
        (void)usleep(1000);
    sw_wire_close(&wire);
}

static void open_memory(void);

static void setup(void) {
    control = mmap(NULL, sizeof *control, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    ck_assert(control != MAP_FAILED);
    sw_test_folder(folder);
    (void)snprintf(socket_path, sizeof socket_path, "%s/data.sock", folder);
    open_memory();
    disk = sw_nvme_folder_new();
}

static void teardown(void) {
    (void)kill(daemon_pid, SIGKILL);
    (void)waitpid(daemon_pid, NULL, 0);
    (void)unlink(socket_path);
    (void)rmdir(folder);
    sw_nvme_folder_free(&disk);
}

/* ---- clients -------------------------------------------------------------------------------------------------------
 */

enum { BYTES = (1 << 20) + 77, PIECES = 6, PIECE_BYTES = 20000, WITNESS_BYTES = 2 << 20, N_WITNESS = 2 };

static struct sw_wire witness;
static struct sw_region_id parked[N_WITNESS];
static int own_fd, back_fd, witness_fd;

static int restore_kept(struct sw_wire *wire, struct sw_region_id id, uint32_t mem, uint64_t bytes) {
    struct sw_msg msg = {.header = {.type = SW_MSG_RESTORE}};
    msg.u.restore =
        (struct sw_msg_restore){.slot = id.slot, .gen = id.gen, .mem = mem, .bytes = bytes, .flags = SW_REQ_KEEP};
    return sw_wire_call(wire, &msg, NULL, 0);
}

static void open_memory(void) {
    own_fd = sw_wire_content_memfd(BYTES, SW_CONTENT_RANDOM, 1, F_SEAL_SHRINK);
    back_fd = sw_wire_memfd(NULL, BYTES, F_SEAL_SHRINK);
    witness_fd = sw_wire_memfd(NULL, WITNESS_BYTES, F_SEAL_SHRINK);
}

/* Half of the host tier: with a disk, what comes later goes there. */
static void park(void) {
    sw_wire_open(&witness, socket_path);
    for (unsigned i = 0; i < N_WITNESS; i++) {
        const int fd = sw_wire_content_memfd(WITNESS_BYTES, SW_CONTENT_RANDOM, 20 + i, F_SEAL_SHRINK);
        ck_assert_int_eq(sw_wire_mem(&witness, 1, fd, WITNESS_BYTES, true), 0);
        ck_assert_int_eq(sw_wire_spill(&witness, 1, 0, WITNESS_BYTES, &parked[i]), 0);
        (void)close(fd);
    }
}

static void check_parked(void) {
    for (unsigned i = 0; i < N_WITNESS; i++) {
        ck_assert_int_eq(sw_wire_mem(&witness, 2, witness_fd, WITNESS_BYTES, true), 0);
        ck_assert_int_eq(restore_kept(&witness, parked[i], 2, WITNESS_BYTES), 0);
        ck_assert(sw_wire_memfd_holds(witness_fd, WITNESS_BYTES, SW_CONTENT_RANDOM, 20 + i));
    }
}

static int greet(struct sw_wire *wire) {
    struct sw_msg msg = {.header = {.type = SW_MSG_HELLO}};
    struct sw_err err;
    if (!sw_wire_connect(wire, socket_path))
        return -SW_ECONN;
    msg.u.hello.version = SW_PROTO_VERSION;
    (void)sw_wire_send(wire, &msg, NULL, 0);
    if (sw_wire_receive(wire, &msg) != 1)
        return -SW_ECONN;
    if (msg.header.type != SW_MSG_ERROR)
        return 0;
    sw_msg_to_err(&err, &msg.u.error);
    return err.code;
}

static void disarm(void) {
    const struct command none = {.step = ""};
    char byte;
    atomic_store(&control->call, CALL_NONE);
    SW_ASSERT(write(commands[1], &none, sizeof none) == sizeof none && read(answers[0], &byte, 1) == 1);
}

static uint64_t lost_bytes; /* of regions that a fault has damaged while they were away */

/* The whole of a client's memory is what it was, but for a connection that has ended in mid-restore. */
static void check_own(void) {
    ck_assert(sw_wire_memfd_holds(own_fd, BYTES, SW_CONTENT_RANDOM, 1));
}

/* A spill, and its way back: what fails may be repeated once the fault is over. */
static int one_region(struct sw_wire *wire) {
    struct sw_region_id id;
    int rc = sw_wire_spill(wire, 1, 0, BYTES, &id);
    check_own();
    if (rc < 0)
        return rc;
    rc = restore_kept(wire, id, 2, BYTES);
    if (rc == -SW_ECONN)
        return rc;
    if (rc == -SW_ECHECKSUM || rc == -SW_EFRAME) {
        disarm();
        ck_assert_int_eq(restore_kept(wire, id, 2, BYTES), -SW_ELOST);
        lost_bytes += BYTES;
    } else if (rc < 0) {
        disarm();
        ck_assert_int_eq(restore_kept(wire, id, 2, BYTES), 0);
    }
    if (rc == 0 || lost_bytes == 0)
        ck_assert(sw_wire_memfd_holds(back_fd, BYTES, SW_CONTENT_RANDOM, 1));
    const int dropped = sw_wire_drop(wire, id);
    return rc < 0 ? rc : dropped;
}

static int batch(struct sw_wire *wire) {
    struct sw_region_id ids[PIECES];
    int rc = sw_wire_spill_batch(wire, 1, PIECES, PIECE_BYTES, ids);
    check_own();
    if (rc < 0)
        return rc;
    struct sw_msg msg = sw_wire_restore_batch_msg(2, ids, PIECES, PIECE_BYTES);
    rc = sw_wire_call(wire, &msg, NULL, 0);
    if (rc < 0 && rc != -SW_ECONN && rc != -SW_ECHECKSUM && rc != -SW_EFRAME) {
        disarm();
        msg = sw_wire_restore_batch_msg(2, ids, PIECES, PIECE_BYTES);
        ck_assert_int_eq(sw_wire_call(wire, &msg, NULL, 0), 0);
    }
    return rc;
}

static int in_place(struct sw_wire *wire) {
    struct sw_msg msg = sw_wire_spill_msg(1, 0, BYTES);
    msg.u.spill.flags = SW_REQ_IN_PLACE;
    int rc = sw_wire_call(wire, &msg, NULL, 0);
    if (rc < 0) {
        check_own(); /* undone */
        return rc;
    }
    const struct sw_region_id id = {.slot = msg.u.result.slot, .gen = msg.u.result.gen};
    for (int tries = 0; tries < 2; tries++) {
        msg = (struct sw_msg){.header = {.type = SW_MSG_RESTORE}};
        msg.u.restore =
            (struct sw_msg_restore){.slot = id.slot, .gen = id.gen, .mem = 1, .bytes = BYTES, .flags = SW_REQ_IN_PLACE};
        const int again = sw_wire_call(wire, &msg, NULL, 0);
        if (again == 0) {
            check_own();
            return rc;
        }
        ck_assert_int_eq(tries, 0); /* what failed half-way goes on from there */
        rc = again;
        disarm();
    }
    return rc;
}

/* sw_wire_mem() takes for granted that the daemon listens. */
static int hand_over(struct sw_wire *wire, uint32_t mem, int fd) {
    struct sw_msg open = {.header = {.type = SW_MSG_MEM_OPEN}}, parts = {.header = {.type = SW_MSG_MEM_PARTS}};
    open.u.mem_open = (struct sw_msg_mem_open){.mem = mem, .kind = SW_MEM_MEMFD, .n_parts = 1, .bytes = BYTES};
    parts.u.mem_parts = (struct sw_msg_mem_parts){.mem = mem, .count = 1, .part_bytes = {BYTES}};
    const int rc = sw_wire_call(wire, &open, NULL, 0);
    return rc < 0 ? rc : sw_wire_call(wire, &parts, &fd, 1);
}

/* A client's work from its connection to its end; the first error. */
static int work(void) {
    struct sw_wire wire;
    int rc = greet(&wire);
    if (rc == 0)
        rc = hand_over(&wire, 1, own_fd);
    if (rc == 0)
        rc = hand_over(&wire, 2, back_fd);
    if (rc == 0)
        rc = one_region(&wire);
    if (rc == 0)
        rc = batch(&wire);
    if (rc == 0)
        rc = in_place(&wire);
    sw_wire_close(&wire);
    return rc;
}

/* Nothing is armed any more: all of it goes well, and what was parked is whole. */
static void check_sound(void) {
    disarm();
    ck_assert_int_eq(waitpid(daemon_pid, NULL, WNOHANG), 0);
    const int rc = work();
    ck_assert_msg(rc == 0, "afterwards: %s", sw_err_name(rc));
    check_parked();
}

/* ---- rows -----------------------------------------------------------------------------------------------------------
 */

struct seen {
    unsigned n; /* faults injected */
    unsigned n_codes, times[16];
    int codes[16];
};

static void note(struct seen *seen, int rc, unsigned fired) {
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

static void print_row(const char *fault, const char *where, const struct seen *seen, const char *then) {
    char outcome[512];
    size_t at = 0;
    for (unsigned i = 0; i < seen->n_codes; i++)
        at += (size_t)snprintf(outcome + at, sizeof outcome - at, "%s%s %u×", at ? ", " : "",
                               seen->codes[i] ? sw_err_name(seen->codes[i]) : "nothing noticed", seen->times[i]);
    printf("row | %s | %s | %u | %s; %s | %llu\n", fault, where, seen->n, outcome, then,
           (unsigned long long)lost_bytes);
    (void)fflush(stdout);
}

/* ---- kernel and disk -----------------------------------------------------------------------------------------------
 */

static const struct {
    const char *fault, *where, *then;
    enum call call;
    int error;
    enum way way;
    int count;
    bool disk, uring;
    int codes[6]; /* that may come of it; 0: nothing */
} faults[] = {
    {"no memory to map", "mmap of an arena slab", "service up", CALL_MMAP, ENOMEM, 0, 1, false, false, {-SW_ENOMEM, 0}},
    {"no descriptor",
     "memfd_create of an arena slab",
     "service up",
     CALL_MEMFD_CREATE,
     EMFILE,
     0,
     1,
     false,
     false,
     {-SW_ENOMEM, 0}},
    {"no room",
     "ftruncate of an arena slab",
     "service up",
     CALL_FTRUNCATE,
     ENOSPC,
     0,
     1,
     false,
     false,
     {-SW_ENOMEM, 0}},
    {"handle import fails",
     "fcntl of a client's memfd",
     "service up",
     CALL_FCNTL,
     EMFILE,
     0,
     1,
     false,
     false,
     {-SW_EUNSEALED, -SW_EFDS, -SW_EIMPORT, -SW_ENOMEM, -SW_EACCES}},
    {"client's memory cannot be read",
     "pread of a memfd",
     "service up",
     CALL_CLIENT_READ,
     EIO,
     WAY_ERROR,
     1,
     false,
     false,
     {-SW_EIMPORT}},
    {"client's memory is read in part",
     "pread of a memfd",
     "service up",
     CALL_CLIENT_READ,
     0,
     WAY_SHORT,
     3,
     false,
     false,
     {0}},
    {"client's memory cannot be written",
     "pwrite of a memfd",
     "service up",
     CALL_CLIENT_WRITE,
     ENOSPC,
     WAY_ERROR,
     1,
     false,
     false,
     {-SW_ENOMEM, 0}},
    {"client's memory is written in part",
     "pwrite of a memfd",
     "service up",
     CALL_CLIENT_WRITE,
     0,
     WAY_SHORT,
     3,
     false,
     false,
     {0}},
    {"kernel short of memory",
     "recvmsg of the data socket",
     "service up",
     CALL_RECVMSG,
     ENOMEM,
     0,
     3,
     false,
     false,
     {0}},
    {"connection reset",
     "recvmsg of the data socket",
     "that session ends, others go on",
     CALL_RECVMSG,
     ECONNRESET,
     0,
     1,
     false,
     false,
     {-SW_ECONN}},
    {"interrupted", "recvmsg of the data socket", "service up", CALL_RECVMSG, EINTR, 0, 3, false, false, {0}},
    {"kernel short of memory",
     "sendmsg of the data socket",
     "service up",
     CALL_SENDMSG,
     ENOBUFS,
     0,
     3,
     false,
     false,
     {0}},
    {"peer does not read", "sendmsg of the data socket", "service up", CALL_SENDMSG, EAGAIN, 0, 3, false, false, {0}},
    {"peer is gone",
     "sendmsg of the data socket",
     "that session ends, others go on",
     CALL_SENDMSG,
     EPIPE,
     0,
     1,
     false,
     false,
     {-SW_ECONN}},
    {"no descriptor",
     "accept4 of the data socket",
     "served when there is one",
     CALL_ACCEPT,
     EMFILE,
     0,
     2,
     false,
     false,
     {0}},
    {"connection aborted",
     "accept4 of the data socket",
     "service up",
     CALL_ACCEPT,
     ECONNABORTED,
     0,
     1,
     false,
     false,
     {0}},
    {"no credentials",
     "getsockopt(SO_PEERCRED)",
     "refused, others go on",
     CALL_PEER,
     ENOTCONN,
     0,
     1,
     false,
     false,
     {-SW_ECONN}},
    {"socket cannot be watched",
     "epoll_ctl (libuv's first)",
     "refused, others go on",
     CALL_EPOLL,
     ENOSPC,
     0,
     1,
     false,
     false,
     {-SW_ENOMEM}},
    {"disk full",
     "pwrite of a frame",
     "service up",
     CALL_DISK_WRITE,
     ENOSPC,
     WAY_ERROR,
     1,
     true,
     false,
     {-SW_ENOSPACE}},
    {"disk fails", "pwrite of a frame", "service up", CALL_DISK_WRITE, EIO, WAY_ERROR, 1, true, false, {-SW_EIO}},
    {"short write", "pwrite of a frame", "service up", CALL_DISK_WRITE, 0, WAY_SHORT, 3, true, false, {0}},
    {"disk fails",
     "pread of a frame",
     "restored when it works again",
     CALL_DISK_READ,
     EIO,
     WAY_ERROR,
     1,
     true,
     false,
     {-SW_EIO}},
    {"short read", "pread of a frame", "service up", CALL_DISK_READ, 0, WAY_SHORT, 3, true, false, {0}},
    {"slow disk, 10 ms a request",
     "pwrite of a frame",
     "service up",
     CALL_DISK_WRITE,
     0,
     WAY_SLOW,
     20,
     true,
     false,
     {0}},
    {"slow disk, 10 ms a request", "pread of a frame", "service up", CALL_DISK_READ, 0, WAY_SLOW, 20, true, false, {0}},
    {"disk full",
     "pwrite of the manifest, and of its successor",
     "service up",
     CALL_MANIFEST_WRITE,
     ENOSPC,
     WAY_ERROR,
     2,
     true,
     false,
     {-SW_ENOSPACE, 0}},
    {"disk fails",
     "pwrite of the manifest",
     "service up",
     CALL_MANIFEST_WRITE,
     EIO,
     WAY_ERROR,
     1,
     true,
     false,
     {-SW_EIO, 0}},
    {"full queue", "io_uring_submit_and_wait", "service up", CALL_URING, EBUSY, 0, 5, true, true, {0}},
    {"kernel short of memory", "io_uring_submit_and_wait", "service up", CALL_URING, ENOMEM, 0, 5, true, true, {0}},
    {"bits of a stored frame flip",
     "pread of a frame",
     "no wrong byte is given back, the copy counts as bad (ELOST), service up",
     CALL_DISK_READ,
     0,
     WAY_FLIP,
     1,
     true,
     false,
     {-SW_ECHECKSUM, -SW_EFRAME}},
};
#ifdef __SANITIZE_THREAD__ /* many times slower: the first calls have to do */
enum { MAX_RUNS = 2, MAX_ALLOCATIONS = 20 };
#else
enum { MAX_RUNS = 10, MAX_ALLOCATIONS = 400 };
#endif
enum { N_FAULTS = sizeof faults / sizeof faults[0] };

static void arm(unsigned i, int nth) {
    control->error = faults[i].error;
    control->way = faults[i].way;
    atomic_store(&control->nth, nth);
    atomic_store(&control->count, faults[i].count);
    atomic_store(&control->fired, 0);
    atomic_store(&control->call, (int)faults[i].call);
}

static bool is_expected(unsigned i, int rc) {
    bool found = false;
    for (size_t k = 0; k < sizeof faults[i].codes / sizeof faults[i].codes[0]; k++)
        found |= faults[i].codes[k] == rc && (rc != 0 || k == 0 || faults[i].codes[k - 1] != 0);
    return found;
}

/* The arena has its memory once it was asked for: a daemon of its own for each slab that fails. */
static bool is_of_arena(enum call call) {
    return call == CALL_MMAP || call == CALL_MEMFD_CREATE || call == CALL_FTRUNCATE;
}

START_TEST(kernel_and_disk) {
    struct seen seen = {0};
    control->no_uring = !faults[_i].uring;
    start(faults[_i].disk);
    if (!is_of_arena(faults[_i].call))
        park();
    for (int nth = 1; nth <= MAX_RUNS; nth++) {
        arm((unsigned)_i, nth);
        const int rc = work();
        const unsigned fired = (unsigned)atomic_load(&control->fired);
        disarm();
        ck_assert_msg(fired == 0 ? rc == 0 : is_expected((unsigned)_i, rc), "%s: %s in %s, call %d", faults[_i].fault,
                      sw_err_name(rc), faults[_i].where, nth);
        note(&seen, rc, fired);
        /* libuv itself adds what it has tried before, and ends the process if that fails. */
        if (fired == 0 || faults[_i].call == CALL_EPOLL)
            break;
    }
    if (is_of_arena(faults[_i].call))
        park();
    check_sound();
    ck_assert_uint_gt(seen.n, 0);
    print_row(faults[_i].fault, faults[_i].where, &seen, faults[_i].then);
}
END_TEST

/* ---- device and heap -----------------------------------------------------------------------------------------------
 */

static int with_command(struct command command) {
    char byte;
    SW_ASSERT(write(commands[1], &command, sizeof command) == sizeof command && read(answers[0], &byte, 1) == 1);
    const int rc = work();
    if (command.step[0]) { /* not reached: it must not fail the next run */
        command.nth = 0;
        SW_ASSERT(write(commands[1], &command, sizeof command) == sizeof command && read(answers[0], &byte, 1) == 1);
    }
    disarm();
    return rc;
}

static const struct {
    const char *step, *what;
    int code;
} steps[] = {
    {"map", "handle import fails", -SW_EIMPORT},   {"make_plan", "GPU call fails", -SW_EGPU},
    {"encode", "GPU call fails", -SW_EGPU},        {"store", "GPU call fails", -SW_EGPU},
    {"load", "GPU call fails", -SW_EGPU},          {"decode", "GPU call fails", -SW_EGPU},
    {"encode_group", "GPU call fails", -SW_EGPU},  {"store_group", "GPU call fails", -SW_EGPU},
    {"restore_group", "GPU call fails", -SW_EGPU}, {"place", "GPU call fails", -SW_EGPU},
    {"fetch", "GPU call fails", -SW_EGPU},         {"unpack", "GPU call fails", -SW_EGPU},
};
enum { N_STEPS = sizeof steps / sizeof steps[0] };

START_TEST(device_calls) {
    static const char *const ways[] = {"at once", "reported late"};
    for (int way = 0; way < (strcmp(steps[_i].step, "map") == 0 ? 1 : 2); way++) {
        struct seen seen = {0};
        char where[64];
        if (way == 0) {
            start(false);
            park();
        }
        for (unsigned nth = 1; nth <= MAX_RUNS; nth++) {
            struct command command = {
                .nth = nth, .code = steps[_i].code, .fault = way ? SW_FAULT_LATE : SW_FAULT_AT_ONCE};
            (void)snprintf(command.step, sizeof command.step, "%s", steps[_i].step);
            const int rc = with_command(command);
            ck_assert_msg(rc == 0 || rc == steps[_i].code, "%s: %s", steps[_i].step, sw_err_name(rc));
            note(&seen, rc, rc != 0);
            if (rc == 0)
                break;
        }
        check_sound();
        (void)snprintf(where, sizeof where, "device step %s, %s", steps[_i].step, ways[way]);
        if (seen.n > 0)
            print_row(steps[_i].what, where, &seen, "memory or stored copy whole, service up");
    }
}
END_TEST

START_TEST(allocations) {
    struct seen seen = {0};
    unsigned in_a_row = 0;
    start(_i == 1);
    control->no_uring = true;
    park();
    /* Some do no harm: several in a row that go well are the end. */
    for (unsigned nth = 1; in_a_row < 10 && nth < MAX_ALLOCATIONS; nth++) {
        const int rc = with_command((struct command){.step = "", .nth = nth});
        ck_assert_msg(rc == 0 || rc == -SW_ENOMEM || rc == -SW_ECONN, "allocation %u: %s", nth, sw_err_name(rc));
        note(&seen, rc, rc != 0);
        in_a_row = rc == 0 ? in_a_row + 1 : 0;
    }
    check_sound();
    ck_assert_uint_gt(seen.n, 10);
    print_row("no memory", _i ? "sw_alloc, with a disk" : "sw_alloc", &seen, "service up");
}
END_TEST

/* As under systemd: the manager keeps what the next process needs. */
START_TEST(device_lost) {
    static struct sw_supervisor keeper;
    struct seen seen = {0};
    sw_supervisor_init(&keeper, NULL, NULL);
    manager = &keeper;
    start(false);
    park();
    for (unsigned nth = 1; nth <= 5; nth++) {
        struct command command = {.step = "encode", .nth = nth, .code = -SW_EGPULOST, .fault = SW_FAULT_LATE};
        struct sw_wire wire;
        struct sw_region_id id;
        char byte;
        int status;
        ck_assert_int_eq(greet(&wire), 0);
        ck_assert_int_eq(sw_wire_mem(&wire, 1, own_fd, BYTES, false), 0);
        SW_ASSERT(write(commands[1], &command, sizeof command) == sizeof command && read(answers[0], &byte, 1) == 1);
        const int rc = sw_wire_spill(&wire, 1, 0, BYTES, &id);
        ck_assert_int_eq(rc, -SW_EGPULOST);
        check_own();
        ck_assert_int_eq(waitpid(daemon_pid, &status, 0), daemon_pid);
        ck_assert(WIFEXITED(status) && WEXITSTATUS(status) == 1);
        sw_wire_close(&wire);
        sw_wire_close(&witness);
        start(false);
        ck_assert(sw_wire_resume(&witness, socket_path));
        check_parked();
        note(&seen, rc, 1);
    }
    check_sound();
    print_row("device lost", "device step encode", &seen,
              "client's memory whole, exit 1; the next process has what was parked");
    sw_supervisor_end(&keeper);
}
END_TEST

/* The time to come back begins when there is somebody to come back to. */
START_TEST(slow_start) {
    static struct sw_supervisor keeper;
    sw_supervisor_init(&keeper, NULL, NULL);
    manager = &keeper;
    start(false);
    park();
    ck_assert_int_eq(kill(daemon_pid, SIGKILL), 0);
    ck_assert_int_eq(waitpid(daemon_pid, NULL, 0), daemon_pid);
    sw_wire_close(&witness);
    start_ms = 1500;
    start(false);
    (void)usleep(50000); /* it has looked at its timers */
    ck_assert(sw_wire_resume(&witness, socket_path));
    check_parked();
    sw_wire_close(&witness);
    sw_supervisor_end(&keeper);
}
END_TEST

/* ---- limits ---------------------------------------------------------------------------------------------------------
 */

START_TEST(full_queue) {
    enum { N = 40 };
    struct seen seen = {0};
    struct sw_wire wire;
    struct sw_msg msg;
    unsigned refused = 0;
    start(false);
    park();
    ck_assert_int_eq(greet(&wire), 0);
    ck_assert_int_eq(sw_wire_mem(&wire, 1, own_fd, BYTES, false), 0);
    for (unsigned i = 0; i < N; i++) {
        msg = sw_wire_spill_msg(1, 0, PIECE_BYTES);
        (void)sw_wire_send(&wire, &msg, NULL, 0);
    }
    for (unsigned i = 0; i < N; i++) {
        struct sw_err err;
        ck_assert_int_eq(sw_wire_receive(&wire, &msg), 1);
        if (msg.header.type != SW_MSG_ERROR)
            continue;
        sw_msg_to_err(&err, &msg.u.error);
        ck_assert_int_eq(err.code, -SW_ELIMIT);
        note(&seen, err.code, 1);
        refused++;
    }
    sw_wire_close(&wire);
    check_own();
    check_sound();
    if (refused > 0) /* a fast daemon may keep up */
        print_row("full queue", "more operations than a session may have", &seen, "the others succeed, service up");
}
END_TEST

START_TEST(full_tiers) {
    struct seen seen = {0};
    struct sw_wire wire;
    struct sw_region_id ids[64];
    unsigned n = 0;
    int rc = 0;
    control->no_uring = true;
    start(_i == 1);
    park();
    ck_assert_int_eq(greet(&wire), 0);
    ck_assert_int_eq(sw_wire_mem(&wire, 1, own_fd, BYTES, false), 0);
    ck_assert_int_eq(sw_wire_mem(&wire, 2, back_fd, BYTES, false), 0);
    for (; n < 64 && (rc = sw_wire_spill(&wire, 1, 0, BYTES, &ids[n])) == 0; n++)
        check_own();
    for (int i = 0; i < 5; i++, rc = sw_wire_spill(&wire, 1, 0, BYTES, &ids[63])) {
        ck_assert_int_eq(rc, -SW_ENOSPACE);
        check_own();
        note(&seen, rc, 1);
    }
    while (n-- > 0) {
        ck_assert_int_eq(sw_wire_restore(&wire, ids[n], 2, 0, BYTES), 0);
        ck_assert(sw_wire_memfd_holds(back_fd, BYTES, SW_CONTENT_RANDOM, 1));
    }
    sw_wire_close(&wire);
    check_sound();
    print_row("tier full", _i ? "host tier and disk" : "host tier", &seen, "all others come back, service up");
}
END_TEST

int main(void) {
    Suite *suite = suite_create("fault table");
    TCase *tcase = tcase_create("fault table");
    tcase_set_timeout(tcase, 120);
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_loop_test(tcase, kernel_and_disk, 0, N_FAULTS);
    tcase_add_loop_test(tcase, device_calls, 0, N_STEPS);
    tcase_add_loop_test(tcase, allocations, 0, 2);
    tcase_add_test(tcase, device_lost);
    tcase_add_test(tcase, slow_start);
    tcase_add_test(tcase, full_queue);
    tcase_add_loop_test(tcase, full_tiers, 0, 2);
    suite_add_tcase(suite, tcase);
    return sw_test_run(suite, CK_FORK);
}
