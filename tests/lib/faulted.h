/* faulted.h - a daemon in which calls into the kernel and the disk, steps of the device and allocations can be made to
 * fail; a client's work in it; and the rows of ../FAULTS.md that come of it.
 *
 * The daemon is a child process of the test, with everything in it but main(). Its calls into the kernel are wrapped by
 * the linker (../fault/CMakeLists.txt), its device is device_faulty.c's. What fails, fails the test. thread: the
 * test's.
 */
#ifndef SW_TEST_FAULTED_H
#define SW_TEST_FAULTED_H

#include "tests/lib/device_faulty.h"
#include "tests/lib/scratch.h"
#include "tests/lib/supervisor.h"
#include "tests/lib/wire.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <sys/types.h>

enum { SW_FAULTED_BYTES = (1 << 20) + 77, SW_FAULTED_PIECE_BYTES = 20000 };
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__) /* slower: the first calls have to do */
enum { SW_FAULTED_MAX_RUNS = 2 };
#else
enum { SW_FAULTED_MAX_RUNS = 10 };
#endif

enum sw_call {
    SW_CALL_NONE,
    SW_CALL_MMAP,
    SW_CALL_MEMFD_CREATE,
    SW_CALL_FTRUNCATE,
    SW_CALL_FCNTL,
    SW_CALL_RECVMSG,
    SW_CALL_SENDMSG,
    SW_CALL_ACCEPT,
    SW_CALL_PEER,
    SW_CALL_EPOLL,
    SW_CALL_CLIENT_READ,
    SW_CALL_CLIENT_WRITE,
    SW_CALL_DISK_READ,
    SW_CALL_DISK_WRITE,
    SW_CALL_MANIFEST_WRITE,
    SW_CALL_URING,
};
enum sw_way { SW_WAY_ERROR, SW_WAY_SHORT, SW_WAY_FLIP, SW_WAY_SLOW, SW_WAY_NOTHING };

extern struct sw_faulted {
    /* Shared with the daemon: the nth call of a kind and `count` - 1 after it fail. */
    struct {
        atomic_int call, nth, count, fired;
        int error;
        enum sw_way way;
        bool no_uring;
    } * control;
    char socket_path[SW_TEST_PATH_BYTES + 16];
    pid_t daemon_pid;
    struct sw_supervisor *manager; /* NULL: no manager keeps descriptors */
    unsigned start_ms;             /* that a start takes longer, as with a GPU, or much memory to pin */
    struct sw_wire witness;        /* the connection of the client that has parked regions */
    int own_fd, back_fd;           /* memfds of SW_FAULTED_BYTES: the client's source and destination */
} sw_faulted;

/* The fixture of each test, which starts its daemon itself. */
void sw_faulted_setup(void);
void sw_faulted_teardown(void);
void sw_faulted_start(bool with_disk);

/* Another client's regions, half of the host tier: with a disk, later regions go there. And a check that they are
 * whole. */
void sw_faulted_park(void);
void sw_faulted_ck_parked(void);

/* Faults that only the daemon itself can arm. */
struct sw_faulted_command {
    char step[16]; /* of the device; "": an allocation */
    unsigned nth;
    int code;
    enum sw_fault fault;
};
void sw_faulted_command(const struct sw_faulted_command *command);
/* No call and no allocation fails any more; steps of the device are armed by name, and disarmed so. */
void sw_faulted_disarm(void);

/* A client's work from its connection to its end; returns the first error. It disarms a fault that has made a restore
 * fail, and repeats the restore. */
int sw_faulted_work(void);
/* Connects and says HELLO; returns the error. */
int sw_faulted_greet(struct sw_wire *wire);
/* Checks that the client's source is unchanged. */
void sw_faulted_ck_own(void);
/* Disarms; then all of the work succeeds, and parked regions are whole. */
void sw_faulted_ck_sound(void);

/* The result of a fault. */
struct sw_faulted_seen {
    unsigned n; /* faults injected */
    unsigned n_codes, times[16];
    int codes[16];
};
void sw_faulted_note(struct sw_faulted_seen *seen, int rc, unsigned fired);
void sw_faulted_print_row(const char *fault, const char *where, const struct sw_faulted_seen *seen, const char *then);

#endif
