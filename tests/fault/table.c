/* Faults of the kernel and the disk, one at a time, in a serving daemon: each call of a kind fails in turn while a
 * client spills, restores, packs and unpacks. Every failure has a name, every byte is where it was or comes back,
 * regions of other clients are whole, and the daemon goes on.
 *
 * Lines that begin with "row" are rows of ../FAULTS.md. */
#include "tests/lib/faulted.h"
#include "tests/lib/run.h"

#include <check.h>
#include <errno.h>

static const struct {
    const char *fault, *where, *then;
    enum sw_call call;
    int error;
    enum sw_way way;
    int count;
    bool disk, uring;
    int codes[6]; /* that may come of it; 0: nothing */
} faults[] = {
    {"no memory to map",
     "mmap of an arena slab",
     "service up",
     SW_CALL_MMAP,
     ENOMEM,
     0,
     1,
     false,
     false,
     {-SW_ENOMEM, 0}},
    {"no descriptor",
     "memfd_create of an arena slab",
     "service up",
     SW_CALL_MEMFD_CREATE,
     EMFILE,
     0,
     1,
     false,
     false,
     {-SW_ENOMEM, 0}},
    {"no room",
     "ftruncate of an arena slab",
     "service up",
     SW_CALL_FTRUNCATE,
     ENOSPC,
     0,
     1,
     false,
     false,
     {-SW_ENOMEM, 0}},
    {"handle import fails",
     "fcntl of a client's memfd",
     "service up",
     SW_CALL_FCNTL,
     EMFILE,
     0,
     1,
     false,
     false,
     {-SW_EUNSEALED, -SW_EFDS, -SW_EIMPORT, -SW_ENOMEM, -SW_EACCES}},
    {"client's memory cannot be read",
     "pread of a memfd",
     "service up",
     SW_CALL_CLIENT_READ,
     EIO,
     SW_WAY_ERROR,
     1,
     false,
     false,
     {-SW_EIMPORT}},
    {"client's memory is read in part",
     "pread of a memfd",
     "service up",
     SW_CALL_CLIENT_READ,
     0,
     SW_WAY_SHORT,
     3,
     false,
     false,
     {0}},
    {"client's memory cannot be written",
     "copy to a memfd",
     "service up",
     SW_CALL_CLIENT_WRITE,
     ENOMEM,
     SW_WAY_ERROR,
     1,
     false,
     false,
     {-SW_ENOMEM, 0}},
    {"client's memory is written in part",
     "copy to a memfd",
     "service up",
     SW_CALL_CLIENT_WRITE,
     0,
     SW_WAY_SHORT,
     3,
     false,
     false,
     {0}},
    {"kernel short of memory",
     "recvmsg of the data socket",
     "service up",
     SW_CALL_RECVMSG,
     ENOMEM,
     0,
     3,
     false,
     false,
     {0}},
    {"connection reset",
     "recvmsg of the data socket",
     "that session ends, others go on",
     SW_CALL_RECVMSG,
     ECONNRESET,
     0,
     1,
     false,
     false,
     {-SW_ECONN}},
    {"interrupted", "recvmsg of the data socket", "service up", SW_CALL_RECVMSG, EINTR, 0, 3, false, false, {0}},
    {"kernel short of memory",
     "sendmsg of the data socket",
     "service up",
     SW_CALL_SENDMSG,
     ENOBUFS,
     0,
     3,
     false,
     false,
     {0}},
    {"peer does not read",
     "sendmsg of the data socket",
     "service up",
     SW_CALL_SENDMSG,
     EAGAIN,
     0,
     3,
     false,
     false,
     {0}},
    {"peer is gone",
     "sendmsg of the data socket",
     "that session ends, others go on",
     SW_CALL_SENDMSG,
     EPIPE,
     0,
     1,
     false,
     false,
     {-SW_ECONN}},
    {"no descriptor",
     "accept4 of the data socket",
     "served when there is one",
     SW_CALL_ACCEPT,
     EMFILE,
     0,
     2,
     false,
     false,
     {0}},
    {"connection aborted",
     "accept4 of the data socket",
     "service up",
     SW_CALL_ACCEPT,
     ECONNABORTED,
     0,
     1,
     false,
     false,
     {0}},
    {"no credentials",
     "getsockopt(SO_PEERCRED)",
     "refused, others go on",
     SW_CALL_PEER,
     ENOTCONN,
     0,
     1,
     false,
     false,
     {-SW_ECONN}},
    {"socket cannot be watched",
     "epoll_ctl (libuv's first)",
     "refused, others go on",
     SW_CALL_EPOLL,
     ENOSPC,
     0,
     1,
     false,
     false,
     {-SW_ENOMEM}},
    {"disk full",
     "pwrite of a frame",
     "service up",
     SW_CALL_DISK_WRITE,
     ENOSPC,
     SW_WAY_ERROR,
     1,
     true,
     false,
     {-SW_ENOSPACE}},
    {"disk fails", "pwrite of a frame", "service up", SW_CALL_DISK_WRITE, EIO, SW_WAY_ERROR, 1, true, false, {-SW_EIO}},
    {"short write", "pwrite of a frame", "service up", SW_CALL_DISK_WRITE, 0, SW_WAY_SHORT, 3, true, false, {0}},
    {"disk fails",
     "pread of a frame",
     "restored when it works again",
     SW_CALL_DISK_READ,
     EIO,
     SW_WAY_ERROR,
     1,
     true,
     false,
     {-SW_EIO}},
    {"short read", "pread of a frame", "service up", SW_CALL_DISK_READ, 0, SW_WAY_SHORT, 3, true, false, {0}},
    {"slow disk, 10 ms a request",
     "pwrite of a frame",
     "service up",
     SW_CALL_DISK_WRITE,
     0,
     SW_WAY_SLOW,
     20,
     true,
     false,
     {0}},
    {"slow disk, 10 ms a request",
     "pread of a frame",
     "service up",
     SW_CALL_DISK_READ,
     0,
     SW_WAY_SLOW,
     20,
     true,
     false,
     {0}},
    {"disk full",
     "pwrite of the manifest, and of its successor",
     "service up",
     SW_CALL_MANIFEST_WRITE,
     ENOSPC,
     SW_WAY_ERROR,
     2,
     true,
     false,
     {-SW_ENOSPACE, 0}},
    {"disk fails",
     "pwrite of the manifest",
     "service up",
     SW_CALL_MANIFEST_WRITE,
     EIO,
     SW_WAY_ERROR,
     1,
     true,
     false,
     {-SW_EIO, 0}},
    {"full queue", "io_uring_submit_and_wait", "service up", SW_CALL_URING, EBUSY, 0, 5, true, true, {0}},
    {"kernel short of memory", "io_uring_submit_and_wait", "service up", SW_CALL_URING, ENOMEM, 0, 5, true, true, {0}},
    {"bits of a stored frame flip",
     "pread of a frame",
     "no wrong byte is given back, the copy counts as bad (ELOST), service up",
     SW_CALL_DISK_READ,
     0,
     SW_WAY_FLIP,
     1,
     true,
     false,
     {-SW_ECHECKSUM, -SW_EFRAME}},
    {"write lost",
     "pwrite of a frame",
     "no other frame is given back (nothing noticed: the same one lay there), the copy counts as bad (ELOST), service "
     "up",
     SW_CALL_DISK_WRITE,
     0,
     SW_WAY_NOTHING,
     1,
     true,
     false,
     {-SW_ECHECKSUM}},
};
enum { N_FAULTS = sizeof faults / sizeof faults[0] };

static void arm(unsigned i, int nth) {
    sw_faulted.control->error = faults[i].error;
    sw_faulted.control->way = faults[i].way;
    atomic_store(&sw_faulted.control->nth, nth);
    atomic_store(&sw_faulted.control->count, faults[i].count);
    atomic_store(&sw_faulted.control->fired, 0);
    atomic_store(&sw_faulted.control->call, (int)faults[i].call);
}

static bool is_expected(unsigned i, int rc) {
    bool found = false;
    for (size_t k = 0; k < sizeof faults[i].codes / sizeof faults[i].codes[0]; k++)
        found |= faults[i].codes[k] == rc && (rc != 0 || k == 0 || faults[i].codes[k - 1] != 0);
    return found;
}

/* The arena has its memory once it was asked for: a daemon of its own for each slab that fails. */
static bool is_of_arena(enum sw_call call) {
    return call == SW_CALL_MMAP || call == SW_CALL_MEMFD_CREATE || call == SW_CALL_FTRUNCATE;
}

START_TEST(kernel_and_disk) {
    struct sw_faulted_seen seen = {0};
    sw_faulted.control->no_uring = !faults[_i].uring;
    sw_faulted_start(faults[_i].disk);
    if (!is_of_arena(faults[_i].call))
        sw_faulted_park();
    for (int nth = 1; nth <= SW_FAULTED_MAX_RUNS; nth++) {
        arm((unsigned)_i, nth);
        const int rc = sw_faulted_work();
        const unsigned fired = (unsigned)atomic_load(&sw_faulted.control->fired);
        sw_faulted_disarm();
        ck_assert_msg(fired == 0 ? rc == 0 : is_expected((unsigned)_i, rc), "%s: %s in %s, call %d", faults[_i].fault,
                      sw_err_name(rc), faults[_i].where, nth);
        sw_faulted_note(&seen, rc, fired);
        /* libuv itself repeats failed additions, and ends the process if that fails. */
        if (fired == 0 || faults[_i].call == SW_CALL_EPOLL)
            break;
    }
    if (is_of_arena(faults[_i].call))
        sw_faulted_park();
    sw_faulted_ck_sound();
    ck_assert_uint_gt(seen.n, 0);
    sw_faulted_print_row(faults[_i].fault, faults[_i].where, &seen, faults[_i].then);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("fault table");
    TCase *tcase = tcase_create("fault table");
    tcase_add_checked_fixture(tcase, sw_faulted_setup, sw_faulted_teardown);
    tcase_add_loop_test(tcase, kernel_and_disk, 0, N_FAULTS);
    suite_add_tcase(suite, tcase);
    return sw_test_run(suite, CK_FORK);
}
