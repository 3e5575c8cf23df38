/* How the client library identifies the memory behind a pointer: memfds mapped in every way, and other memory. */
#include "ipc/client/memory.h"

#include "base/alloc.h"
#include "tests/lib/descriptors.h"
#include "tests/lib/run.h"
#include "tests/lib/scratch.h"
#include <check.h>
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/memfd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#define PAGE 4096L
#define BYTES (16 * PAGE)

static int new_memfd(size_t bytes, unsigned flags) {
    const int fd = memfd_create("unit test (with) 7f00-7f01 a name", flags | MFD_CLOEXEC);
    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(ftruncate(fd, (off_t)bytes), 0);
    return fd;
}

static uint8_t *map_at(void *at, int fd, size_t bytes, off_t offset, int kind) {
    void *data = mmap(at, bytes, PROT_READ | PROT_WRITE, kind | (at ? MAP_FIXED : 0), fd, offset);
    ck_assert_ptr_ne(data, MAP_FAILED);
    return data;
}

/* Address space to map into, so that neighbours are known. */
static uint8_t *reserve(size_t bytes) {
    return map_at(NULL, -1, bytes, 0, MAP_PRIVATE | MAP_ANONYMOUS);
}

/* The same, and nothing lies behind it. */
static uint8_t *reserve_alone(size_t bytes) {
    uint8_t *data = reserve(bytes + PAGE);
    ck_assert_int_eq(munmap(data + bytes, PAGE), 0);
    return data;
}

static int find(struct sw_export *ret, const void *data, uint64_t bytes) {
    struct sw_cuda *cuda = NULL;
    struct sw_err err = {0};
    const unsigned before = sw_count_fds();
    const int rc = sw_export_find(ret, &cuda, data, bytes, &err);
    ck_assert_int_eq(rc, err.code);
    ck_assert_uint_eq(sw_count_fds(), before + (rc ? 0 : 1));
    sw_cuda_free(cuda);
    return rc;
}

static uint64_t pages_of(int fd) {
    struct stat st;
    ck_assert_int_eq(fstat(fd, &st), 0);
    return (uint64_t)st.st_blocks * 512 / PAGE;
}

static void ck_refused(const void *data, uint64_t bytes, int code) {
    struct sw_export e;
    const long live = sw_alloc_live();
    ck_assert_int_eq(find(&e, data, bytes), code);
    ck_assert_int_eq(sw_alloc_live(), live);
}

/* The export's descriptor is one of `fd`'s file, writable and sealed, and its offset is where data[0] lies. */
static void ck_found(const void *data, uint64_t bytes, uint64_t offset, uint64_t file_bytes, ino_t file) {
    struct sw_export e;
    struct stat st;
    const long live = sw_alloc_live();
    ck_assert_int_eq(find(&e, data, bytes), 0);
    ck_assert_int_eq(e.kind, SW_MEM_MEMFD);
    ck_assert_uint_eq(e.n_parts, 1);
    ck_assert_uint_eq(e.offset, offset);
    ck_assert_uint_eq(e.bytes, file_bytes);
    ck_assert_uint_eq(e.part_bytes[0], file_bytes);
    ck_assert_ptr_null(e.mark);
    ck_assert_int_eq(fstat(e.fds[0], &st), 0);
    ck_assert_uint_eq(st.st_ino, file);
    ck_assert_int_eq(fcntl(e.fds[0], F_GETFL) & O_ACCMODE, O_RDWR);
    ck_assert_int_ne(fcntl(e.fds[0], F_GET_SEALS) & F_SEAL_SHRINK, 0);
    const unsigned before = sw_count_fds();
    sw_export_fini(&e);
    ck_assert_uint_eq(sw_count_fds(), before - 1);
    ck_assert_int_eq(sw_alloc_live(), live);
}

static ino_t inode_of(int fd) {
    struct stat st;
    ck_assert_int_eq(fstat(fd, &st), 0);
    return st.st_ino;
}

START_TEST(finds_every_place_of_a_mapping) {
    const int fd = new_memfd(BYTES, MFD_ALLOW_SEALING);
    const uint8_t *data = map_at(NULL, fd, BYTES, 0, MAP_SHARED);
    ck_found(data, BYTES, 0, BYTES, inode_of(fd));
    ck_found(data, 0, 0, BYTES, inode_of(fd));
    ck_found(data + 1, BYTES - 1, 1, BYTES, inode_of(fd));
    ck_found(data + 3 * PAGE + 17, 1, 3 * PAGE + 17, BYTES, inode_of(fd));
    ck_found(data + BYTES - 1, 1, BYTES - 1, BYTES, inode_of(fd));
}
END_TEST

START_TEST(finds_a_mapping_that_starts_inside_the_file) {
    const int fd = new_memfd(BYTES, MFD_ALLOW_SEALING);
    const uint8_t *data = map_at(reserve_alone(4 * PAGE), fd, 4 * PAGE, 8 * PAGE, MAP_SHARED);
    ck_found(data + 5, PAGE, 8 * PAGE + 5, BYTES, inode_of(fd));
    ck_refused(data, 4 * PAGE + 1, -SW_ERANGE);
}
END_TEST

START_TEST(sees_neighbouring_mappings_of_one_file_as_one) {
    const int fd = new_memfd(BYTES, MFD_ALLOW_SEALING);
    uint8_t *data = map_at(NULL, fd, BYTES, 0, MAP_SHARED);
    ck_assert_int_eq(mprotect(data + 4 * PAGE, 2 * PAGE, PROT_READ), 0); /* three mappings now */
    ck_found(data + 100, BYTES - 100, 100, BYTES, inode_of(fd));
    ck_found(data + 5 * PAGE, 6 * PAGE, 5 * PAGE, BYTES, inode_of(fd));
}
END_TEST

START_TEST(does_not_run_into_a_neighbour) {
    const int fd = new_memfd(BYTES, MFD_ALLOW_SEALING), other = new_memfd(BYTES, MFD_ALLOW_SEALING);
    uint8_t *data = reserve(8 * PAGE);
    (void)map_at(data, fd, 2 * PAGE, 0, MAP_SHARED);
    (void)map_at(data + 2 * PAGE, other, 2 * PAGE, 2 * PAGE, MAP_SHARED); /* another file */
    (void)map_at(data + 4 * PAGE, fd, 2 * PAGE, 8 * PAGE, MAP_SHARED);
    (void)map_at(data + 6 * PAGE, fd, 2 * PAGE, 0, MAP_SHARED); /* the same file, elsewhere */
    ck_found(data, 2 * PAGE, 0, BYTES, inode_of(fd));
    ck_refused(data, 2 * PAGE + 1, -SW_EMEMKIND);
    ck_found(data + 2 * PAGE, 2 * PAGE, 2 * PAGE, BYTES, inode_of(other));
    ck_found(data + 4 * PAGE, 2 * PAGE, 8 * PAGE, BYTES, inode_of(fd));
    ck_refused(data + 4 * PAGE, 2 * PAGE + 1, -SW_EMEMKIND);
    (void)map_at(data + 2 * PAGE, fd, 2 * PAGE, 2 * PAGE, MAP_PRIVATE);
    ck_refused(data, 2 * PAGE + 1, -SW_EMEMKIND);
}
END_TEST

START_TEST(opens_a_read_only_descriptor_for_writing) {
    char path[32];
    const int fd = new_memfd(BYTES, MFD_ALLOW_SEALING);
    const uint8_t *data = map_at(NULL, fd, BYTES, 0, MAP_SHARED);
    const ino_t file = inode_of(fd);
    (void)snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    ck_assert_int_ge(open(path, O_RDONLY | O_CLOEXEC), 0);
    (void)close(fd);
    ck_found(data, BYTES, 0, BYTES, file);
}
END_TEST

/* Only a privileged process can reopen a memfd that is mapped but closed; others are told to keep the descriptor. */
START_TEST(works_without_a_descriptor_or_reports_its_lack) {
    const int fd = new_memfd(BYTES, MFD_ALLOW_SEALING);
    const uint8_t *data = map_at(NULL, fd, BYTES, 0, MAP_SHARED);
    const ino_t file = inode_of(fd);
    struct sw_export e;
    (void)close(fd);
    const int rc = find(&e, data, BYTES);
    sw_export_fini(&e);
    if (rc == 0)
        ck_found(data + 2 * PAGE, PAGE, 2 * PAGE, BYTES, file);
    else
        ck_refused(data, BYTES, -SW_EMEMKIND);
}
END_TEST

START_TEST(refuses_memory_other_than_shared_memfds) {
    char path[SW_TEST_PATH_BYTES];
    const int fd = new_memfd(BYTES, MFD_ALLOW_SEALING), file = sw_test_file(path);
    void *heap = malloc(100);
    ck_assert(heap && unlink(path) == 0 && ftruncate(file, BYTES) == 0);
    ck_refused(map_at(NULL, fd, BYTES, 0, MAP_PRIVATE), 1, -SW_EMEMKIND);
    ck_refused(map_at(NULL, file, BYTES, 0, MAP_SHARED), 1, -SW_EMEMKIND);
    ck_refused(map_at(NULL, -1, BYTES, 0, MAP_SHARED | MAP_ANONYMOUS), 1, -SW_EMEMKIND);
    ck_refused(&fd, sizeof fd, -SW_EMEMKIND);
    ck_refused(heap, 100, -SW_EMEMKIND);
    uint8_t *gone = reserve(PAGE);
    ck_assert_int_eq(munmap(gone, PAGE), 0);
    ck_refused(gone, 1, -SW_EMEMKIND);
    ck_refused(NULL, 1, -SW_EINVAL);
    ck_refused(&fd, UINT64_MAX, -SW_ERANGE);
    free(heap);
}
END_TEST

/* The daemon cannot write to it: not handed over, so that it is copied, and not sealed for nothing. */
START_TEST(refuses_a_memfd_of_huge_pages) {
    const size_t bytes = 2 << 20;
    const int fd = memfd_create("huge", MFD_HUGETLB | MFD_HUGE_2MB | MFD_ALLOW_SEALING | MFD_CLOEXEC);
    if (fd < 0) /* the kernel has none of that size */
        return;
    ck_assert_int_eq(ftruncate(fd, (off_t)bytes), 0);
    ck_refused(map_at(NULL, fd, bytes, 0, MAP_SHARED | MAP_NORESERVE), bytes, -SW_EMEMKIND);
    ck_assert_int_eq(fcntl(fd, F_GET_SEALS), 0);
}
END_TEST

START_TEST(seals_or_refuses) {
    const int never = new_memfd(BYTES, 0), already = new_memfd(BYTES, MFD_ALLOW_SEALING);
    ck_refused(map_at(NULL, never, BYTES, 0, MAP_SHARED), 1, -SW_EUNSEALED);
    ck_assert_int_eq(fcntl(already, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL), 0);
    ck_found(map_at(NULL, already, BYTES, 0, MAP_SHARED), 1, 0, BYTES, inode_of(already));
}
END_TEST

START_TEST(refuses_a_range_beyond_mapping_or_file) {
    const int fd = new_memfd(BYTES, MFD_ALLOW_SEALING), shorter = new_memfd(PAGE + 100, MFD_ALLOW_SEALING);
    const uint8_t *data = map_at(reserve_alone(BYTES), fd, BYTES, 0, MAP_SHARED);
    const uint8_t *longer = map_at(NULL, shorter, 4 * PAGE, 0, MAP_SHARED);
    ck_refused(data, BYTES + 1, -SW_ERANGE);
    ck_refused(data + BYTES - 1, 2, -SW_ERANGE);
    ck_found(longer, PAGE + 100, 0, PAGE + 100, inode_of(shorter));
    ck_refused(longer, PAGE + 101, -SW_ERANGE);
    ck_refused(longer + 2 * PAGE, 1, -SW_ERANGE);
}
END_TEST

/* All of it is memory, but no single descriptor stands for it: not handed over, so that it is copied. */
START_TEST(refuses_a_range_in_several_mappings) {
    const int fd = new_memfd(BYTES, MFD_ALLOW_SEALING), other = new_memfd(BYTES, MFD_ALLOW_SEALING);
    uint8_t *space = reserve_alone(2 * BYTES);
    (void)map_at(space, fd, BYTES, 0, MAP_SHARED);
    (void)map_at(space + BYTES, other, BYTES, 0, MAP_SHARED);
    ck_refused(space + BYTES - 1, 2, -SW_EMEMKIND);
    (void)map_at(space + BYTES, -1, BYTES, 0, MAP_PRIVATE | MAP_ANONYMOUS);
    ck_refused(space, 2 * BYTES, -SW_EMEMKIND);
    ck_refused(space, 2 * BYTES + 1, -SW_ERANGE);
    ck_found(space, BYTES, 0, BYTES, inode_of(fd));
}
END_TEST

START_TEST(reports_that_descriptors_run_out) {
    const int fd = new_memfd(BYTES, MFD_ALLOW_SEALING);
    const uint8_t *data = map_at(NULL, fd, BYTES, 0, MAP_SHARED);
    const struct rlimit few = {.rlim_cur = 40, .rlim_max = 40};
    int last = -1;
    struct sw_cuda *cuda = NULL;
    struct sw_export e;
    struct sw_err err;
    ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &few), 0);
    for (int next; (next = dup(fd)) >= 0;)
        last = next;
    ck_assert_int_eq(sw_export_find(&e, &cuda, data, 1, &err), -SW_ELIMIT);
    (void)close(last);
    ck_assert_int_eq(sw_export_find(&e, &cuda, data, 1, &err), 0); /* one is all that it takes */
    sw_export_fini(&e);
}
END_TEST

START_TEST(survives_a_heap_that_fails) {
    const int fd = new_memfd(BYTES, MFD_ALLOW_SEALING);
    const uint8_t *data = map_at(NULL, fd, BYTES, 0, MAP_SHARED);
    for (unsigned long n = 1; n <= 2; n++) {
        sw_alloc_fail_nth(n);
        ck_refused(data, 1, -SW_ENOMEM);
    }
    sw_alloc_fail_nth(0);
    ck_found(data, 1, 0, BYTES, inode_of(fd));
}
END_TEST

/* ---- a system that is short of memory ---------------------------------------------------------------------------- */

/* The content of /proc/self/maps, or an error in the middle of it. */
static int maps_error;
static bool no_folder;

static ssize_t fail_to_read(void *cookie, char *buffer, size_t bytes) {
    (void)cookie, (void)buffer, (void)bytes;
    errno = maps_error;
    return -1;
}

static bool no_proc;

FILE *__wrap_fopen(const char *path, const char *mode);
FILE *__real_fopen(const char *path, const char *mode);
DIR *__wrap_opendir(const char *path);
DIR *__real_opendir(const char *path);

FILE *__wrap_fopen(const char *path, const char *mode) {
    const cookie_io_functions_t functions = {.read = fail_to_read};
    errno = ENOENT;
    if (no_proc)
        return NULL;
    return maps_error ? fopencookie(NULL, "r", functions) : __real_fopen(path, mode);
}

DIR *__wrap_opendir(const char *path) {
    errno = ENOMEM;
    return no_folder ? NULL : __real_opendir(path);
}

START_TEST(reports_that_proc_is_missing) {
    const int fd = new_memfd(BYTES, MFD_ALLOW_SEALING);
    const uint8_t *data = map_at(NULL, fd, BYTES, 0, MAP_SHARED);
    struct sw_err err = {0};
    no_proc = true;
    ck_refused(data, 1, -SW_ENOPROC);
    ck_assert_int_eq(sw_host_check(data, 1, true, NULL, &err), -SW_ENOPROC);
    ck_assert_ptr_nonnull(strstr(err.msg, "mount /proc"));
}
END_TEST

/* It is not the pointer's fault. */
START_TEST(reports_that_proc_cannot_be_read) {
    static const int causes[][2] = {{ENOMEM, -SW_ENOMEM}, {EIO, -SW_EIO}};
    const int fd = new_memfd(BYTES, MFD_ALLOW_SEALING);
    const uint8_t *data = map_at(NULL, fd, BYTES, 0, MAP_SHARED);
    struct sw_cuda *cuda = NULL;
    struct sw_export e;
    struct sw_err err = {0};
    for (int i = 0; i < 2; i++) {
        maps_error = causes[i][0];
        ck_assert_int_eq(sw_export_find(&e, &cuda, data, 1, &err), causes[i][1]);
        ck_assert_int_eq(sw_host_check(data, 1, true, NULL, &err), causes[i][1]);
        ck_assert_ptr_nonnull(strstr(err.msg, "maps"));
    }
    maps_error = 0;
    no_folder = true;
    ck_assert_int_eq(sw_export_find(&e, &cuda, data, 1, &err), -SW_ENOMEM);
    no_folder = false;
    ck_found(data, 1, 0, BYTES, inode_of(fd));
}
END_TEST

/* ---- descriptors that go while they are looked for ----------------------------------------------------------------
 */

/* Another thread closes the descriptor `going`, or makes it another file, once the library has seen that it belongs to
 * the file. */
static int going = -1, becomes;

int __wrap_fstatat(int dir, const char *path, struct stat *ret, int flags);
int __real_fstatat(int dir, const char *path, struct stat *ret, int flags);

int __wrap_fstatat(int dir, const char *path, struct stat *ret, int flags) {
    char name[16], target[8] = "";
    ck_assert_int_eq(readlinkat(dir, path, target, sizeof target - 1), sizeof target - 1);
    ck_assert_str_eq(target, "/memfd:");
    const int rc = __real_fstatat(dir, path, ret, flags);
    (void)snprintf(name, sizeof name, "%d", going);
    if (going >= 0 && strcmp(path, name) == 0) {
        if (becomes >= 0)
            ck_assert_int_eq(dup2(becomes, going), going);
        else
            ck_assert_int_eq(close(going), 0);
        going = -1;
    }
    return rc;
}

/* tests/fault/hung_files.c has a file system that does not answer. */
START_TEST(other_files_are_not_asked_for_their_state) {
    int ends[2];
    char path[SW_TEST_PATH_BYTES];
    ck_assert_int_eq(pipe(ends), 0);
    const int file = sw_test_file(path);
    const int fd = new_memfd(BYTES, MFD_ALLOW_SEALING);
    const uint8_t *data = map_at(NULL, fd, BYTES, 0, MAP_SHARED);
    ck_found(data, BYTES, 0, BYTES, inode_of(fd)); /* __wrap_fstatat() checks which files are asked for */
    ck_assert(unlink(path) == 0 && close(file) == 0);
}
END_TEST

/* A memfd's mapping; the library finds `going`, which goes, before *ret_other, which stays. */
static const uint8_t *map_with_two(int *ret_other) {
    const int fd = new_memfd(BYTES, MFD_ALLOW_SEALING);
    const uint8_t *data = map_at(NULL, fd, BYTES, 0, MAP_SHARED);
    *ret_other = dup(fd);
    ck_assert_int_gt(*ret_other, fd);
    going = fd;
    return data;
}

static void ck_found_beside(const uint8_t *data, int other, const struct sw_export *e) {
    struct stat st;
    ck_assert_int_eq(going, -1); /* it has gone */
    ck_assert(e->kind == SW_MEM_MEMFD && fstat(e->fds[0], &st) == 0);
    ck_assert_uint_eq(st.st_ino, inode_of(other));
    ck_found(data, BYTES, 0, BYTES, inode_of(other));
}

START_TEST(uses_another_descriptor_if_the_first_is_closed) {
    struct sw_cuda *cuda = NULL;
    struct sw_export e;
    struct sw_err err = {0};
    int other;
    const uint8_t *data = map_with_two(&other);
    becomes = -1;
    ck_assert_msg(sw_export_find(&e, &cuda, data, BYTES, &err) == 0, "%s", err.msg);
    ck_found_beside(data, other, &e);
    sw_export_fini(&e);
}
END_TEST

START_TEST(uses_another_descriptor_if_the_number_was_reused) {
    struct sw_cuda *cuda = NULL;
    struct sw_export e;
    struct sw_err err = {0};
    int other;
    const uint8_t *data = map_with_two(&other);
    becomes = new_memfd(BYTES, MFD_ALLOW_SEALING);
    const unsigned before = sw_count_fds();
    ck_assert_msg(sw_export_find(&e, &cuda, data, BYTES, &err) == 0, "%s", err.msg);
    ck_found_beside(data, other, &e);
    sw_export_fini(&e);
    ck_assert_uint_eq(sw_count_fds(), before); /* the other file's copy is not kept */
}
END_TEST

/* The result is as without a descriptor, and depends on privileges. No descriptor leaks. */
START_TEST(the_only_descriptor_may_be_closed) {
    const int fd = new_memfd(BYTES, MFD_ALLOW_SEALING);
    const uint8_t *data = map_at(NULL, fd, BYTES, 0, MAP_SHARED);
    struct sw_cuda *cuda = NULL;
    struct sw_export e;
    const unsigned before = sw_count_fds();
    going = fd;
    becomes = -1;
    const int rc = sw_export_find(&e, &cuda, data, BYTES, NULL);
    ck_assert(rc == 0 || rc == -SW_EMEMKIND);
    ck_assert_uint_eq(sw_count_fds(), before - (rc ? 1 : 0));
    sw_export_fini(&e);
}
END_TEST

static unsigned n_opened;

void *__wrap_dlopen(const char *file, int mode);
void *__real_dlopen(const char *file, int mode);

void *__wrap_dlopen(const char *file, int mode) {
    n_opened++;
    return __real_dlopen(file, mode);
}

/* A search for its file takes longer than the rest. */
START_TEST(the_driver_is_searched_for_once_more_objects_are_loaded) {
    const int fd = new_memfd(BYTES, MFD_ALLOW_SEALING);
    uint8_t *data = map_at(NULL, fd, BYTES, 0, MAP_SHARED);
    for (unsigned i = 1; i <= 2; i++) {
        for (int k = 0; k < 3; k++) {
            struct sw_export e = {0};
            ck_assert_int_eq(find(&e, data, BYTES), 0);
            sw_export_fini(&e);
            ck_assert_uint_eq(n_opened, i);
        }
        ck_assert_ptr_nonnull(__real_dlopen("libanl.so.1", RTLD_NOW));
    }
    (void)close(fd);
}
END_TEST

/* All missing pages of the range are allocated, and no others, whatever its protection. Existing pages keep their
 * bytes. */
START_TEST(missing_pages_are_allocated_by_the_client) {
    const struct sw_export e = {.kind = SW_MEM_MEMFD}, gpu = {.kind = SW_MEM_CUDA_VMM};
    const int fd = new_memfd(BYTES, MFD_ALLOW_SEALING);
    uint8_t *data = mmap(NULL, BYTES, PROT_READ, MAP_SHARED, fd, 0);
    ck_assert_ptr_ne(data, MAP_FAILED);
    ck_assert_int_eq(pwrite(fd, "x", 1, 3 * PAGE), 1);
    ck_assert_int_eq(sw_export_make_pages(&gpu, data, BYTES, NULL), 0);
    ck_assert_int_eq(sw_export_make_pages(&e, data, 0, NULL), 0);
    ck_assert_uint_eq(pages_of(fd), 1);
    ck_assert_int_eq(sw_export_make_pages(&e, data + 2 * PAGE - 1, 3 * PAGE, NULL), 0);
    ck_assert_uint_eq(pages_of(fd), 4); /* 1 to 4 */
    ck_assert_uint_eq(data[3 * PAGE], 'x');
    ck_assert_int_eq(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 2 * PAGE, PAGE), 0);
    ck_assert_int_eq(sw_export_make_pages(&e, data, BYTES, NULL), 0);
    ck_assert_uint_eq(pages_of(fd), 16);
    ck_assert_uint_eq(data[3 * PAGE], 'x');
    ck_assert_int_eq(munmap(data, BYTES), 0);
    ck_assert_int_eq(sw_export_make_pages(&e, data, BYTES, NULL), 0); /* the daemon will report the error */
    (void)close(fd);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("ipc_memory");
    TCase *tcase = tcase_create("memfd");
    tcase_add_test(tcase, finds_every_place_of_a_mapping);
    tcase_add_test(tcase, finds_a_mapping_that_starts_inside_the_file);
    tcase_add_test(tcase, sees_neighbouring_mappings_of_one_file_as_one);
    tcase_add_test(tcase, does_not_run_into_a_neighbour);
    tcase_add_test(tcase, opens_a_read_only_descriptor_for_writing);
    tcase_add_test(tcase, works_without_a_descriptor_or_reports_its_lack);
    tcase_add_test(tcase, refuses_memory_other_than_shared_memfds);
    tcase_add_test(tcase, refuses_a_memfd_of_huge_pages);
    tcase_add_test(tcase, seals_or_refuses);
    tcase_add_test(tcase, refuses_a_range_beyond_mapping_or_file);
    tcase_add_test(tcase, refuses_a_range_in_several_mappings);
    tcase_add_test(tcase, reports_that_descriptors_run_out);
    tcase_add_test(tcase, survives_a_heap_that_fails);
    tcase_add_test(tcase, reports_that_proc_cannot_be_read);
    tcase_add_test(tcase, reports_that_proc_is_missing);
    tcase_add_test(tcase, other_files_are_not_asked_for_their_state);
    suite_add_tcase(suite, tcase);
    tcase = tcase_create("descriptors that go");
    tcase_add_test(tcase, uses_another_descriptor_if_the_first_is_closed);
    tcase_add_test(tcase, uses_another_descriptor_if_the_number_was_reused);
    tcase_add_test(tcase, the_only_descriptor_may_be_closed);
    tcase_add_test(tcase, the_driver_is_searched_for_once_more_objects_are_loaded);
    tcase_add_test(tcase, missing_pages_are_allocated_by_the_client);
    suite_add_tcase(suite, tcase);
    return sw_test_run(suite, CK_FORK);
}
