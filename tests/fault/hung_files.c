/* A file system whose server does not answer any more, of which the client's process has a file open, and a process
 * without /proc: spills of a memfd go on in the first, and fail with a name in the second. */
#include "base/assert.h"
#include "ipc/client/memory.h"
#include "tests/lib/run.h"
#include "tests/lib/scratch.h"

#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/fuse.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MEMORY_BYTES = 1 << 20, FILE_NODE = 2, LIMIT_MS = 20000 };

/* ---- the server ---- */

struct answer {
    struct fuse_out_header header;
    union {
        struct fuse_init_out init;
        struct fuse_attr_out attr;
        struct fuse_entry_out entry;
        struct fuse_open_out open;
    } u;
};

static void set_attr(struct fuse_attr *ret, uint64_t node) {
    ret->ino = node;
    ret->mode = node == FUSE_ROOT_ID ? S_IFDIR | 0755 : S_IFREG | 0644;
    ret->nlink = 1;
}

/* Returns the answer's length behind its header, or a negative errno value. */
static int answer(struct answer *ret, const struct fuse_in_header *question) {
    switch (question->opcode) {
    case FUSE_INIT:
        ret->u.init = (struct fuse_init_out){.major = 7, .minor = 31, .max_write = 4096};
        return sizeof ret->u.init;
    case FUSE_GETATTR: /* which is asked each time: nothing says that it may be kept */
        set_attr(&ret->u.attr.attr, question->nodeid);
        return sizeof ret->u.attr;
    case FUSE_LOOKUP:
        ret->u.entry.nodeid = FILE_NODE;
        set_attr(&ret->u.entry.attr, FILE_NODE);
        return sizeof ret->u.entry;
    case FUSE_OPEN:
        ret->u.open.fh = 1;
        return sizeof ret->u.open;
    default:
        return -ENOSYS;
    }
}

static __attribute__((noreturn)) void serve(int device) {
    static char question[1 << 17];
    SW_ASSERT(prctl(PR_SET_PDEATHSIG, SIGKILL) == 0);
    while (read(device, question, sizeof question) > 0) {
        const struct fuse_in_header *in = (const void *)question;
        struct answer out = {.header.unique = in->unique};
        const int rc = answer(&out, in);
        out.header.error = rc < 0 ? rc : 0;
        out.header.len = (uint32_t)sizeof out.header + (uint32_t)(rc > 0 ? rc : 0);
        if (in->opcode != FUSE_FORGET && in->opcode != FUSE_BATCH_FORGET)
            (void)!write(device, &out, out.header.len);
    }
    _exit(0);
}

/* ---- the client ---- */

static void *memory;

static void map_memory(void) {
    const int fd = memfd_create("column", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    ck_assert(fd >= 0 && ftruncate(fd, MEMORY_BYTES) == 0);
    memory = mmap(NULL, MEMORY_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    ck_assert_ptr_ne(memory, MAP_FAILED);
}

/* The work of a spill before it sends anything. */
static int export_memory(void) {
    struct sw_export e = {.n_parts = 0};
    struct sw_err err = {0};
    const int rc = sw_memfd_export(&e, memory, MEMORY_BYTES, &err);
    sw_export_fini(&e);
    return rc;
}

/* Runs it in a process of its own, which cannot end before the server has, and whose leaks cannot be found without
 * /proc. Returns whether it was done in time. */
static bool export_in_time(int *ret_code, bool has_proc) {
    int ends[2];
    ck_assert_int_eq(pipe2(ends, O_CLOEXEC), 0);
    if (fork() == 0) {
        SW_ASSERT(has_proc || (unshare(CLONE_NEWNS) == 0 && umount2("/proc", MNT_DETACH) == 0));
        const int code = export_memory();
        SW_ASSERT(write(ends[1], &code, sizeof code) == sizeof code);
        _exit(0);
    }
    struct pollfd told = {.fd = ends[0], .events = POLLIN};
    return poll(&told, 1, LIMIT_MS) == 1 && read(ends[0], ret_code, sizeof *ret_code) == sizeof *ret_code;
}

static void have_own_mounts(void) {
    ck_assert_int_eq(unshare(CLONE_NEWNS), 0);
    ck_assert_int_eq(mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL), 0);
}

START_TEST(a_file_of_a_hung_server_does_not_hang_a_spill) {
    char folder[SW_TEST_PATH_BYTES], path[SW_TEST_PATH_BYTES + 8], options[80];
    int code = -1;
    have_own_mounts();
    sw_test_folder(folder);
    const int device = open("/dev/fuse", O_RDWR | O_CLOEXEC);
    ck_assert_int_ge(device, 0);
    (void)snprintf(options, sizeof options, "fd=%d,rootmode=40000,user_id=0,group_id=0", device);
    ck_assert_int_eq(mount("hung", folder, "fuse", 0, options), 0);
    const pid_t server = fork();
    if (server == 0)
        serve(device);
    (void)close(device);
    (void)snprintf(path, sizeof path, "%s/file", folder);
    const int file = open(path, O_RDONLY | O_CLOEXEC);
    ck_assert_int_ge(file, 0);
    map_memory();
    ck_assert_int_eq(export_memory(), 0);
    ck_assert(kill(server, SIGSTOP) == 0 && waitpid(server, NULL, WUNTRACED) == server);
    const bool in_time = export_in_time(&code, true);
    (void)kill(server, SIGKILL);
    ck_assert(waitpid(server, NULL, 0) == server && umount2(folder, MNT_DETACH) == 0 && rmdir(folder) == 0);
    ck_assert_msg(in_time, "asks the file system");
    ck_assert_int_eq(code, 0);
}
END_TEST

START_TEST(a_spill_without_proc_has_its_own_error) {
    int code = 0;
    have_own_mounts();
    map_memory();
    ck_assert(export_in_time(&code, false));
    ck_assert_int_eq(code, -SW_ENOPROC);
}
END_TEST

int main(void) {
    if (system("unshare --mount true >/dev/null 2>&1") != 0) {
        (void)printf("skipped: this user may not mount anything (unshare --mount)\n");
        return 77;
    }
    TCase *tests = tcase_create("hung_files");
    if (access("/dev/fuse", R_OK | W_OK) == 0)
        tcase_add_test(tests, a_file_of_a_hung_server_does_not_hang_a_spill);
    else
        (void)printf("left out: there is no /dev/fuse\n");
    tcase_add_test(tests, a_spill_without_proc_has_its_own_error);
    Suite *suite = suite_create("hung_files");
    suite_add_tcase(suite, tests);
    return sw_test_run(suite, CK_FORK);
}
