/* The file system fails under the NVMe tier: a named error for that frame, the others and the tier go on. */
#include "spill/tier/nvme/nvme_files.h"
#include "base/alloc.h"
#include "spill/tier/nvme/nvme_key.h"
#include "spill/tier/nvme/nvme_wrap.h"
#include "tests/lib/descriptors.h"
#include "tests/lib/nvme_fixture.h"
#include "tests/lib/run.h"

#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#define MIB ((uint64_t)1 << 20)
#define BLOCK ((uint64_t)SW_TIER_IO_ALIGN)

/* `count` requests fail, from the `armed`-th one on. Requests of the manifest are no whole blocks. */
static struct {
    bool manifest; /* or data */
    int cause;     /* errno; 0: moves `moves` bytes only */
    size_t moves;
    atomic_int armed, count;
} fault;

static bool fault_hits(size_t bytes) {
    if ((bytes % BLOCK != 0) != fault.manifest || atomic_load(&fault.count) <= 0)
        return false;
    if (atomic_fetch_sub(&fault.armed, 1) > 1)
        return false;
    return atomic_fetch_sub(&fault.count, 1) > 0;
}

static void fault_arm(bool manifest, int cause, size_t moves, int nth, int count) {
    fault.manifest = manifest;
    fault.cause = cause;
    fault.moves = moves;
    atomic_store(&fault.armed, nth);
    atomic_store(&fault.count, count);
}

/* The bytes that are moved: whole blocks, because direct transfers move nothing else. */
static size_t fault_moves(void) {
    return fault.manifest ? fault.moves : fault.moves / BLOCK * BLOCK;
}

static ssize_t faulty_pwrite(int fd, const void *data, size_t bytes, off_t offset) {
    if (!fault_hits(bytes))
        return pwrite(fd, data, bytes, offset);
    if (!fault.cause)
        return pwrite(fd, data, fault_moves(), offset) < 0 ? -1 : (ssize_t)fault.moves;
    if (fault.moves) /* an error may leave anything behind, also the whole record */
        (void)!pwrite(fd, data, fault.moves < bytes ? fault.moves : bytes, offset);
    errno = fault.cause;
    return -1;
}

static ssize_t faulty_pread(int fd, void *ret, size_t bytes, off_t offset) {
    if (fault.manifest || !fault_hits(bytes))
        return pread(fd, ret, bytes, offset);
    if (!fault.cause)
        return pread(fd, ret, fault_moves(), offset) < 0 ? -1 : (ssize_t)fault.moves;
    errno = fault.cause;
    return -1;
}

static const struct sw_nvme_file_ops faulty_files = {.pwrite = faulty_pwrite, .pread = faulty_pread};

START_TEST(test_a_failing_write_is_the_error_of_its_frame_only) {
    static const struct {
        bool manifest;
        int cause;
        size_t moves;
        int count, code;
    } faults[] = {
        {false, ENOSPC, 0, 1, -SW_ENOSPACE},
        {false, EDQUOT, 0, 1, -SW_ENOSPACE},
        {false, EIO, 0, 1, -SW_EIO},
        {false, EROFS, 0, 1, -SW_EIO},
        {false, 0, 0, 1, -SW_EIO},
        {false, 0, 4096 + 17, 1, 0},
        {false, EINTR, 0, 3, 0},
        {true, ENOSPC, 0, 2, -SW_ENOSPACE},
        {true, EIO, 40, 1, -SW_EIO},
        {true, EIO, 4000, 1, -SW_EIO},
        {true, 0, 0, 1, -SW_EIO},
        {true, 0, 13, 1, 0},
        {true, EINTR, 0, 3, 0},
    };
    struct sw_tier_nvme_config config = sw_nvme_config_of(8 * MIB, SW_TIER_NVME_THREADS);
    config.files = &faulty_files;
    for (unsigned i = 0; i < sizeof faults / sizeof faults[0]; i++) {
        struct sw_tier *tier = sw_nvme_open(&config);
        struct sw_stored before, failing, after;
        struct sw_nvme_recovered r;
        struct sw_err err = {0};
        ck_assert_int_eq(sw_nvme_put(tier, 100000, 1, &before, &err), 0);
        fault_arm(faults[i].manifest, faults[i].cause, faults[i].moves, faults[i].manifest ? 1 : 2, faults[i].count);
        int rc = sw_nvme_put(tier, 3 * MIB, 2, &failing, &err);
        ck_assert_msg(rc == faults[i].code, "fault %u: %s (%s)", i, sw_err_name(rc), err.msg);
        ck_assert_int_le(atomic_load(&fault.count), 0);
        ck_assert(rc == 0 || (strlen(err.msg) > 0 && strlen(err.detail) > 0 && err.scope == SW_SCOPE_REQUEST));
        ck_assert_uint_eq(sw_nvme_stats(tier).committed_frames, rc ? 1 : 2);
        ck_assert_int_eq(sw_nvme_put(tier, 2 * MIB, 3, &after, &err), 0); /* also into the space of the failed one */
        ck_assert(sw_nvme_holds(tier, &before, 1));
        ck_assert(rc || sw_nvme_holds(tier, &failing, 2));
        tier->ops->close(tier);
        tier = sw_nvme_reopen(&config, rc ? SW_NVME_FRAMES(1, 3) : SW_NVME_FRAMES(1, 2, 3), &r);
        for (unsigned k = 0; k < r.n; k++)
            tier->ops->release(tier, &r.stored[k]);
        tier->ops->close(tier);
    }
}
END_TEST

/* Loop: the length of the record that has reached the manifest. No later record overwrites it: the next process finds
 * neither the refused frame nor damage. */
START_TEST(test_a_refused_record_does_not_count) {
    static const size_t moves[] = {1, 40, 80, 4000};
    struct sw_tier_nvme_config config = sw_nvme_config_of(8 * MIB, SW_TIER_NVME_THREADS);
    struct sw_tier_nvme_info info;
    struct sw_stored before, failing;
    struct sw_nvme_recovered r;
    struct sw_err err = {0};
    config.files = &faulty_files;
    struct sw_tier *tier = sw_nvme_open(&config);
    ck_assert_int_eq(sw_nvme_put(tier, 100000, 1, &before, &err), 0);
    const off_t bytes = sw_nvme_file_bytes("manifest");
    fault_arm(true, EIO, moves[_i], 1, 1);
    ck_assert_int_eq(sw_nvme_put(tier, 5000, 2, &failing, &err), -SW_EIO);
    ck_assert_int_eq(sw_nvme_file_bytes("manifest"), bytes);
    tier->ops->close(tier);
    tier = sw_nvme_reopen(&config, SW_NVME_FRAMES(1), &r);
    sw_tier_nvme_info(tier, &info);
    ck_assert_uint_eq(info.damage.n_places, 0);
    tier->ops->close(tier);
}
END_TEST

/* Records of frames that are gone give their room to a record that finds none. */
START_TEST(test_dead_records_make_room_for_one) {
    struct sw_tier_nvme_config config = sw_nvme_config_of(8 * MIB, SW_TIER_NVME_THREADS);
    struct sw_stored stored[3];
    struct sw_nvme_recovered r;
    struct sw_err err = {0};
    config.files = &faulty_files;
    struct sw_tier *tier = sw_nvme_open(&config);
    ck_assert_int_eq(sw_nvme_put(tier, 5000, 1, &stored[0], &err), 0);
    tier->ops->release(tier, &stored[0]);
    ck_assert_int_eq(sw_nvme_put(tier, 5000, 2, &stored[1], &err), 0); /* the release is recorded before it */
    const off_t bytes = sw_nvme_file_bytes("manifest");
    fault_arm(true, ENOSPC, 0, 1, 1);
    ck_assert_int_eq(sw_nvme_put(tier, 5000, 3, &stored[2], &err), 0);
    ck_assert_int_lt(sw_nvme_file_bytes("manifest"), bytes);
    ck_assert_int_le(atomic_load(&fault.count), 0);
    tier->ops->close(tier);
    tier = sw_nvme_reopen(&config, SW_NVME_FRAMES(2, 3), &r);
    tier->ops->close(tier);
}
END_TEST

START_TEST(test_a_failing_read_is_an_error_and_may_be_repeated) {
    static const struct {
        int cause, code;
        size_t moves;
    } faults[] = {{EIO, -SW_EIO, 0}, {0, -SW_EIO, 0}, {0, -SW_EIO, 100}, {0, 0, 8192 + 5}, {EINTR, 0, 0}};
    struct sw_tier_nvme_config config = sw_nvme_config_of(8 * MIB, SW_TIER_NVME_THREADS);
    config.files = &faulty_files;
    struct sw_tier *tier = sw_nvme_open(&config);
    struct sw_stored stored;
    struct sw_err err = {0};
    uint8_t *buffer = sw_nvme_buffer(4 * MIB);
    ck_assert_int_eq(sw_nvme_put(tier, 4 * MIB - 3, 1, &stored, &err), 0);
    for (unsigned i = 0; i < sizeof faults / sizeof faults[0]; i++) {
        fault_arm(false, faults[i].cause, faults[i].moves, 2, 1);
        int rc = sw_nvme_transfer(tier, SW_TIER_READ, &stored, buffer, 1, &err);
        ck_assert_msg(rc == faults[i].code, "fault %u: %s", i, sw_err_name(rc));
        ck_assert(rc || sw_nvme_same(buffer, stored.bytes, 1));
        ck_assert(stored.committed);
        ck_assert(sw_nvme_holds(tier, &stored, 1));
    }
    free(buffer);
    tier->ops->close(tier);
}
END_TEST

/* The manifest does not take a release. Its space is handed out, but not written to, so that the next process finds the
 * frame whole. */
START_TEST(test_space_is_not_overwritten_before_its_release_is_recorded) {
    if (!sw_nvme_allowed(sw_nvme_methods[_i]))
        return;
    struct sw_tier_nvme_config config = sw_nvme_config_of(MIB, sw_nvme_methods[_i]);
    config.files = &faulty_files;
    struct sw_tier *tier = sw_nvme_open(&config);
    struct sw_stored first, second;
    struct sw_nvme_recovered r;
    struct sw_err err = {0};
    ck_assert_int_eq(sw_nvme_put(tier, MIB, 1, &first, &err), 0);
    fault_arm(true, ENOSPC, 0, 1, 1000);
    tier->ops->release(tier, &first);
    ck_assert_uint_eq(sw_nvme_stats(tier).used_bytes, 0);
    ck_assert_int_eq(sw_nvme_put(tier, MIB, 2, &second, &err), -SW_ENOSPACE);
    tier->ops->close(tier);
    tier = sw_nvme_reopen(&config, SW_NVME_FRAMES(1), &r);
    tier->ops->release(tier, &r.stored[0]);
    ck_assert_int_eq(sw_nvme_put(tier, MIB, 3, &second, &err), -SW_ENOSPACE);
    fault_arm(true, 0, 0, 0, 0); /* there is room again */
    ck_assert_int_eq(sw_nvme_put(tier, MIB, 3, &second, &err), 0);
    tier->ops->close(tier);
    tier = sw_nvme_reopen(&config, SW_NVME_FRAMES(3), &r);
    tier->ops->close(tier);
}
END_TEST

/* Errors of the kernel while io_uring works: here by a limit on the length of files. */
START_TEST(test_a_limit_of_the_system_has_its_own_error) {
    if (!sw_nvme_allowed(sw_nvme_methods[_i]))
        return;
    struct sw_tier_nvme_config config = sw_nvme_config_of(4 * MIB, sw_nvme_methods[_i]);
    config.file_bytes = 4 * MIB;
    struct sw_tier *tier = sw_nvme_open(&config);
    struct sw_stored low, high, again;
    struct sw_err err = {0};
    struct rlimit limit, before;
    ck_assert_int_eq(sw_nvme_put(tier, 2 * MIB, 1, &low, &err), 0);
    ck_assert_int_eq(getrlimit(RLIMIT_FSIZE, &before), 0);
    limit = (struct rlimit){.rlim_cur = 3 * MIB, .rlim_max = before.rlim_max};
    ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &limit), 0);
    int rc = sw_nvme_put(tier, 2 * MIB, 2, &high, &err);
    ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &before), 0);
    ck_assert_msg(rc == -SW_ENOSPACE, "%s: %s", sw_err_name(rc), err.msg);
    ck_assert(sw_nvme_holds(tier, &low, 1));
    ck_assert_int_eq(sw_nvme_put(tier, 2 * MIB, 3, &again, &err), 0);
    ck_assert(sw_nvme_holds(tier, &again, 3));
    tier->ops->close(tier);
}
END_TEST

/* Gives this process mounts of its own. False, and says so, where that is not allowed. */
static bool may_mount(const char *path) {
    if ((unshare(CLONE_NEWNS) == 0 || unshare(CLONE_NEWUSER | CLONE_NEWNS) == 0) &&
        mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0 && mount("none", path, "tmpfs", 0, NULL) == 0 &&
        umount(path) == 0)
        return true;
    (void)fprintf(stderr, "left out, no file systems of its own: %s\n", strerror(errno));
    return false;
}

/* Takes all room that is left. */
static void fill_up(const char *name) {
    char path[96], data[4096] = {1};
    int fd = open(sw_nvme_path(path, name), O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    ck_assert_int_ge(fd, 0);
    while (write(fd, data, sizeof data) > 0)
        ;
    ck_assert_int_eq(errno, ENOSPC);
    ck_assert_int_eq(close(fd), 0);
}

/* The room that the tier needs is taken at the start: it goes on when the disk runs full later, manifest included. */
START_TEST(test_the_tier_works_on_when_the_disk_is_full) {
    char path[96];
    struct sw_tier_nvme_config config = sw_nvme_config_of(2 * MIB, sw_nvme_methods[_i]);
    struct sw_tier *tier = NULL;
    struct sw_stored keep, other;
    struct sw_nvme_recovered r;
    struct sw_err err = {0};
    if (!sw_nvme_allowed(config.method) || !may_mount(sw_nvme_path(path, "")))
        return;
    ck_assert_int_eq(mount("none", path, "tmpfs", 0, "size=1400k,mode=700"), 0);
    ck_assert_int_eq(sw_tier_nvme_open(&tier, &config, &err), -SW_ENOSPACE);
    config.capacity_bytes = MIB;
    tier = sw_nvme_open(&config);
    fill_up("filler");
    ck_assert_int_eq(sw_nvme_put(tier, 500000, 1, &keep, &err), 0);
    for (unsigned i = 0; i < 2000; i++) { /* several manifests */
        ck_assert_msg(sw_nvme_put(tier, 100000, 2, &other, &err) == 0, "%u: %s", i, err.msg);
        if (i < 1999)
            tier->ops->release(tier, &other);
    }
    tier->ops->close(tier);
    tier = sw_nvme_reopen(&config, SW_NVME_FRAMES(1, 2), &r);
    tier->ops->close(tier);
    ck_assert_int_eq(umount2(path, MNT_DETACH), 0);
}
END_TEST

/* ---- a file system of which the test says what it has ---- */

static uint64_t told_room; /* bytes; 0: the real number; UINT64_MAX: not known */
static bool cannot_take;   /* space without writing, as NFS */
static bool has_no_room;   /* for data files, although there seemed to be some */
static unsigned n_taken;   /* calls that take space for data files */

int __real_fstatvfs(int fd, struct statvfs *ret);
int __wrap_fstatvfs(int fd, struct statvfs *ret);
int __wrap_fstatvfs(int fd, struct statvfs *ret) {
    const int rc = __real_fstatvfs(fd, ret);
    if (told_room == UINT64_MAX)
        ret->f_blocks = ret->f_bfree = ret->f_bavail = 0; /* as ramfs, and a tmpfs without a limit */
    else if (told_room)
        ret->f_bfree = ret->f_bavail = told_room / ret->f_frsize;
    return rc;
}

int __real_fallocate(int fd, int mode, off_t offset, off_t bytes);
int __wrap_fallocate(int fd, int mode, off_t offset, off_t bytes);
int __wrap_fallocate(int fd, int mode, off_t offset, off_t bytes) {
    n_taken += mode == 0;
    if (cannot_take || (has_no_room && mode == 0)) {
        errno = cannot_take ? EOPNOTSUPP : ENOSPC;
        return -1;
    }
    return __real_fallocate(fd, mode, offset, bytes);
}

/* Nothing is taken that may not suffice; space that data files already have counts. */
START_TEST(test_too_long_frames_are_refused_before_space_is_taken) {
    struct sw_tier_nvme_config config = sw_nvme_config_of(8 * MIB, SW_TIER_NVME_AUTO);
    struct sw_tier *tier = NULL;
    struct sw_err err = {0};
    told_room = 6 * MIB;
    ck_assert_int_eq(sw_tier_nvme_open(&tier, &config, &err), -SW_ENOSPACE);
    ck_assert_str_eq(err.msg, "needs 8388608 more bytes, but the disk has 6291456");
    ck_assert_uint_eq(n_taken, 0);
    ck_assert_int_eq(sw_nvme_file_bytes("data-0000"), -1);
    config.capacity_bytes = 5 * MIB;
    tier = sw_nvme_open(&config);
    tier->ops->close(tier);
    n_taken = 0;
    told_room = 2 * MIB;
    config.capacity_bytes = 8 * MIB;
    ck_assert_int_eq(sw_tier_nvme_open(&tier, &config, &err), -SW_ENOSPACE);
    ck_assert_ptr_nonnull(strstr(err.msg, ", but the disk has 2097152"));
    ck_assert_uint_eq(n_taken, 0);
    config.capacity_bytes = 6 * MIB;
    tier = sw_nvme_open(&config);
    tier->ops->close(tier);
    told_room = UINT64_MAX;
    config.capacity_bytes = 7 * MIB;
    tier = sw_nvme_open(&config);
    tier->ops->close(tier);
}
END_TEST

START_TEST(test_space_that_could_not_be_reserved_is_reported) {
    struct sw_tier_nvme_config config = sw_nvme_config_of(2 * MIB, SW_TIER_NVME_AUTO);
    struct sw_tier_nvme_info info;
    struct sw_stored stored;
    struct sw_err err = {0};
    struct sw_tier *tier = sw_nvme_open(&config);
    sw_tier_nvme_info(tier, &info);
    ck_assert(info.reserved);
    tier->ops->close(tier);
    cannot_take = true;
    tier = sw_nvme_open(&config);
    sw_tier_nvme_info(tier, &info);
    ck_assert(!info.reserved);
    ck_assert_int_eq(sw_nvme_put(tier, MIB, 1, &stored, &err), 0);
    tier->ops->close(tier);
}
END_TEST

/* ---- what cannot be looked for ---- */

static int n_looks; /* of a start, until one fails; 0: none does */

static bool look_fails(void) {
    if (n_looks == 0 || --n_looks > 0)
        return false;
    errno = EIO;
    return true;
}

int __real_openat(int directory, const char *name, int flags, mode_t mode);
int __wrap_openat(int directory, const char *name, int flags, mode_t mode);
int __wrap_openat(int directory, const char *name, int flags, mode_t mode) {
    return look_fails() ? -1 : __real_openat(directory, name, flags, mode);
}

int __real_faccessat(int directory, const char *name, int mode, int flags);
int __wrap_faccessat(int directory, const char *name, int mode, int flags);
int __wrap_faccessat(int directory, const char *name, int mode, int flags) {
    return look_fails() ? -1 : __real_faccessat(directory, name, mode, flags);
}

int __real_fstatat(int directory, const char *name, struct stat *ret, int flags);
int __wrap_fstatat(int directory, const char *name, struct stat *ret, int flags);
int __wrap_fstatat(int directory, const char *name, struct stat *ret, int flags) {
    return look_fails() ? -1 : __real_fstatat(directory, name, ret, flags);
}

static void keep_done(struct sw_tier_change *change, void *arg) {
    atomic_store((atomic_bool *)arg, true);
    (void)change;
}

/* Records a durable region, so that the folder has a list of them. */
static void keep_one(struct sw_tier *tier) {
    atomic_bool done = false;
    struct sw_tier_record record = {.content = "region", .bytes = 6, .name = "a"};
    struct sw_tier_change change = {.kind = SW_TIER_KEEP, .records = &record, .n = 1, .done = keep_done, .arg = &done};
    tier->ops->change(tier, &change);
    while (!atomic_load(&done))
        (void)usleep(100);
    ck_assert_int_eq(change.err.code, 0);
}

static int count_record(void *arg, const struct sw_tier_record *record, struct sw_err *err) {
    (void)record;
    (void)err;
    ++*(unsigned *)arg;
    return 0;
}

static unsigned count_kept(struct sw_tier *tier) {
    unsigned n = 0;
    ck_assert_int_eq(tier->ops->visit_kept(tier, count_record, &n, NULL), 0);
    return n;
}

static struct sw_object_keyring *open_keyring(void) {
    static const struct sw_object_keyring_use use = {"spillway-nvme-key", "NVMe"};
    struct sw_object_keyring *keyring = NULL;
    char path[96];
    const int fd = open(sw_nvme_path(path, ".master"), O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    ck_assert_int_eq(dprintf(fd, "%064x\n", 7), 65);
    (void)close(fd);
    ck_assert_int_eq(sw_object_keyring_open_for(&keyring, path, &use, NULL), 0);
    ck_assert_int_eq(unlink(path), 0);
    return keyring;
}

/* Each file that is looked for at the start, with EIO in the place of the answer: it is there, for all we know. So
 * nothing is begun anew, and nothing removed. _i 1: what the folder has is not wanted. 2: the start fails later, too.
 * 3: there is a durable region. 4: the folder has its own key, wrapped. */
START_TEST(test_what_cannot_be_looked_for_is_not_taken_for_absent) {
    struct sw_tier_nvme_config config = sw_nvme_config_of(MIB, SW_TIER_NVME_AUTO);
    static struct sw_nvme_key own, unwrapped;
    struct sw_nvme_recovered r;
    struct sw_stored stored;
    struct sw_err err = {0};
    struct sw_object_keyring *keyring = _i == 4 ? open_keyring() : NULL;
    ck_assert(!keyring || sw_nvme_key_make(&own, NULL) == 0);
    config.key = keyring ? &own : NULL;
    config.keyring = keyring;
    config.unwrapped = &unwrapped;
    struct sw_tier *tier = sw_nvme_open(&config);
    ck_assert_int_eq(sw_nvme_put(tier, 10000, 1, &stored, &err), 0);
    if (_i == 3)
        keep_one(tier);
    tier->ops->close(tier);
    config.key = NULL;
    sw_nvme_key_fini(&own);
    int n = 1;
    for (bool through = false; !through; n++) {
        config.unwanted = _i == 1;
        has_no_room = _i == 2;
        n_looks = n;
        const int rc = sw_tier_nvme_open(&tier, &config, &err);
        through = n_looks > 0;
        n_looks = 0;
        ck_assert_msg(rc == 0 || rc == (through || (_i == 2 && rc != -SW_EIO) ? -SW_ENOSPACE : -SW_EIO),
                      "look %d: %s (%s)", n, sw_err_name(rc), err.msg);
        ck_assert(!through || rc == (_i == 2 ? -SW_ENOSPACE : 0));
        if (rc == 0) {
            ck_assert_uint_eq(count_kept(tier), _i == 3);
            tier->ops->close(tier);
        }
        sw_nvme_key_fini(&unwrapped);
        config.unwanted = has_no_room = false;
        tier = sw_nvme_reopen(&config, SW_NVME_FRAMES(1), &r);
        ck_assert_uint_eq(count_kept(tier), _i == 3);
        tier->ops->close(tier);
        sw_nvme_key_fini(&unwrapped);
    }
    ck_assert_int_gt(n, 6);
    sw_object_keyring_close(keyring);
}
END_TEST

START_TEST(test_a_full_file_system_has_its_own_error_at_the_start) {
    struct sw_tier_nvme_config config = sw_nvme_config_of(8 * MIB, SW_TIER_NVME_AUTO);
    struct sw_tier *tier = NULL;
    struct sw_err err = {0};
    struct rlimit limit, before;
    config.file_bytes = 8 * MIB;
    (void)signal(SIGXFSZ, SIG_IGN);
    ck_assert_int_eq(getrlimit(RLIMIT_FSIZE, &before), 0);
    limit = (struct rlimit){.rlim_cur = MIB, .rlim_max = before.rlim_max};
    ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &limit), 0);
    ck_assert_int_eq(sw_tier_nvme_open(&tier, &config, &err), -SW_ENOSPACE);
    ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &before), 0);
    ck_assert_int_eq(sw_nvme_file_bytes("data-0000"), -1); /* the little that it got is given back */
    tier = sw_nvme_open(&config);
    tier->ops->close(tier);
}
END_TEST

/* The lock's own mark fits in part, or not at all: no such start makes the folder another's. */
START_TEST(test_a_folder_that_could_not_be_claimed_can_be_later) {
    const struct sw_tier_nvme_config config = sw_nvme_config_of(MIB, SW_TIER_NVME_AUTO);
    struct sw_tier *tier = NULL;
    struct rlimit limit, before;
    (void)signal(SIGXFSZ, SIG_IGN);
    ck_assert_int_eq(getrlimit(RLIMIT_FSIZE, &before), 0);
    for (unsigned bytes = 0; bytes < SW_NVME_MAGIC_BYTES; bytes += 3) {
        limit = (struct rlimit){.rlim_cur = bytes, .rlim_max = before.rlim_max};
        ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &limit), 0);
        ck_assert_int_eq(sw_tier_nvme_open(&tier, &config, NULL), -SW_ENOSPACE);
        ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &before), 0);
        ck_assert_int_eq(sw_nvme_file_bytes("lock"), 0);
    }
    tier = sw_nvme_open(&config);
    tier->ops->close(tier);
    ck_assert_int_eq(sw_nvme_file_bytes("lock"), SW_NVME_MAGIC_BYTES);
}
END_TEST

/* ---- what is flushed ---- */

enum { MOST_FLUSHES = 16 };

/* Flushes and renames of files, by name, while `is_on`. */
static struct {
    bool is_on;
    unsigned n, failing; /* failing: this call, from 1 */
    char names[MOST_FLUSHES][NAME_MAX + 2];
} flushes;

static void flushes_begin(unsigned failing) {
    memset(&flushes, 0, sizeof flushes);
    flushes.is_on = true;
    flushes.failing = failing;
}

static const char *last_part(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

/* Returns true if the call is to fail. */
static bool note_flush(const char *mark, const char *path) {
    if (!flushes.is_on)
        return false;
    ck_assert_uint_lt(flushes.n, MOST_FLUSHES);
    (void)snprintf(flushes.names[flushes.n++], sizeof flushes.names[0], "%s%.*s", mark, NAME_MAX, last_part(path));
    errno = EIO;
    return flushes.n == flushes.failing;
}

int __real_fsync(int fd);
int __wrap_fsync(int fd);
int __wrap_fsync(int fd) {
    char link[64], path[PATH_MAX] = "";
    (void)snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    (void)!readlink(link, path, sizeof path - 1);
    return note_flush("", path) ? -1 : __real_fsync(fd);
}

int __real_renameat(int from_directory, const char *from, int to_directory, const char *to);
int __wrap_renameat(int from_directory, const char *from, int to_directory, const char *to);
int __wrap_renameat(int from_directory, const char *from, int to_directory, const char *to) {
    return note_flush(">", to) ? -1 : __real_renameat(from_directory, from, to_directory, to);
}

/* A new key's mark, or the wrapped key, is complete on the disk before it has its name, and then its name is. _i: which
 * of the two. */
START_TEST(test_a_key_is_flushed_with_its_name) {
    static const char *const names[2][2] = {{"key-check.new", ">key-check"}, {"key-wrapped.new", ">key-wrapped"}};
    struct sw_object_keyring *keyring = open_keyring();
    struct sw_nvme_key key;
    char path[96];
    const int directory = open(sw_nvme_path(path, ""), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    ck_assert_int_ge(directory, 0);
    ck_assert_int_eq(sw_nvme_key_make(&key, NULL), 0);
    for (unsigned failing = 3;; failing--) {
        struct sw_err err = {0};
        flushes_begin(failing);
        const int rc =
            _i ? sw_nvme_wrap_write(directory, keyring, &key, &err) : sw_nvme_key_mark(&key, directory, &err);
        flushes.is_on = false;
        ck_assert_uint_eq(flushes.n, failing ? failing : 3);
        for (unsigned i = 0; i < 2 && i < flushes.n; i++)
            ck_assert_str_eq(flushes.names[i], names[_i][i]);
        ck_assert(rc == (failing ? -SW_EIO : 0) && err.code == rc);
        if (!failing)
            break;
    }
    sw_nvme_key_fini(&key);
    sw_object_keyring_close(keyring);
    (void)close(directory);
}
END_TEST

static bool was_flushed(const char *name) {
    bool was = false;
    for (unsigned i = 0; i < flushes.n; i++)
        was |= strcmp(flushes.names[i], name) == 0;
    return was;
}

/* A power cut may lose the manifest, but not whose the folder is; nor a folder that the tier has made. */
START_TEST(test_a_claim_is_flushed) {
    char path[96], parent[96];
    struct sw_nvme_files files;
    (void)sw_nvme_path(path, "made");
    (void)snprintf(parent, sizeof parent, "%s", path);
    *strrchr(parent, '/') = 0;
    for (int made = 1; made >= 0; made--) {
        flushes_begin(0);
        ck_assert_int_eq(sw_nvme_files_open(&files, path, NULL), 0);
        flushes.is_on = false;
        ck_assert_int_eq(was_flushed("lock"), made);
        ck_assert_int_eq(was_flushed(last_part(parent)), made);
        sw_nvme_files_close(&files);
    }
    ck_assert_int_eq(unlink(strcat(path, "/lock")), 0);
    *strrchr(path, '/') = 0;
    ck_assert_int_eq(rmdir(path), 0);
}
END_TEST

/* Opens a directory with a frame, adds one, reopens: with each allocation failing in turn. */
START_TEST(test_failed_allocations_lose_nothing) {
    const unsigned fds = sw_count_fds();
    const long live = sw_alloc_live();
    struct sw_tier_nvme_config config = sw_nvme_config_of(MIB, SW_TIER_NVME_AUTO);
    struct sw_tier *tier = sw_nvme_open(&config);
    struct sw_stored stored;
    struct sw_nvme_recovered r;
    struct sw_err err = {0};
    unsigned refused = 0, nth = 0;
    ck_assert_int_eq(sw_nvme_put(tier, 10000, 1, &stored, &err), 0);
    tier->ops->close(tier);
    for (bool through = false; !through;) {
        tier = NULL;
        sw_alloc_fail_nth(++nth);
        int rc = sw_tier_nvme_open(&tier, &config, &err);
        bool opened = rc == 0;
        if (opened) {
            rc = sw_nvme_put(tier, 5000, 2, &stored, &err);
            through = rc == 0;
        }
        sw_alloc_fail_nth(0);
        ck_assert(rc == 0 || rc == -SW_ENOMEM);
        refused += rc != 0;
        if (opened) {
            ck_assert_uint_eq(sw_nvme_stats(tier).committed_frames, rc ? 1 : 2);
            tier->ops->close(tier);
        }
        ck_assert_uint_eq(sw_count_fds(), fds);
        ck_assert_int_eq(sw_alloc_live(), live);
    }
    ck_assert_uint_gt(refused, 10);
    tier = sw_nvme_reopen(&config, SW_NVME_FRAMES(1, 2), &r);
    tier->ops->close(tier);
}
END_TEST

/* A start that finds several frames: memory runs out while it takes their places, too. */
START_TEST(test_a_start_that_lacks_memory_can_be_repeated) {
    const struct sw_tier_nvme_config config = sw_nvme_config_of(MIB, SW_TIER_NVME_AUTO);
    struct sw_nvme_recovered r;
    struct sw_stored stored;
    struct sw_tier *tier = sw_nvme_open(&config);
    for (uint64_t seed = 1; seed <= 3; seed++)
        ck_assert_int_eq(sw_nvme_put(tier, 10000, seed, &stored, NULL), 0);
    tier->ops->close(tier);
    const long live = sw_alloc_live();
    int rc = -1;
    for (unsigned long n = 1; rc < 0; n++) {
        sw_alloc_fail_nth(n);
        rc = sw_tier_nvme_open(&tier, &config, NULL);
        sw_alloc_fail_nth(0);
        ck_assert(rc == 0 || rc == -SW_ENOMEM);
        if (rc == 0)
            tier->ops->close(tier);
        ck_assert_int_eq(sw_alloc_live(), live);
    }
    tier = sw_nvme_reopen(&config, SW_NVME_FRAMES(1, 2, 3), &r);
    tier->ops->close(tier);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("nvme_files");
    TCase *tcase = tcase_create("nvme_files");
    tcase_add_checked_fixture(tcase, sw_nvme_setup, sw_nvme_teardown);
    tcase_add_test(tcase, test_a_failing_write_is_the_error_of_its_frame_only);
    tcase_add_loop_test(tcase, test_a_refused_record_does_not_count, 0, 4);
    tcase_add_test(tcase, test_dead_records_make_room_for_one);
    tcase_add_test(tcase, test_a_failing_read_is_an_error_and_may_be_repeated);
    tcase_add_loop_test(tcase, test_space_is_not_overwritten_before_its_release_is_recorded, 0, SW_NVME_N_METHODS);
    tcase_add_loop_test(tcase, test_a_limit_of_the_system_has_its_own_error, 0, SW_NVME_N_METHODS);
    tcase_add_loop_test(tcase, test_the_tier_works_on_when_the_disk_is_full, 0, SW_NVME_N_METHODS);
    tcase_add_test(tcase, test_space_that_could_not_be_reserved_is_reported);
    tcase_add_test(tcase, test_too_long_frames_are_refused_before_space_is_taken);
    tcase_add_test(tcase, test_a_folder_that_could_not_be_claimed_can_be_later);
    tcase_add_loop_test(tcase, test_a_key_is_flushed_with_its_name, 0, 2);
    tcase_add_test(tcase, test_a_claim_is_flushed);
    tcase_add_test(tcase, test_a_full_file_system_has_its_own_error_at_the_start);
    tcase_add_loop_test(tcase, test_what_cannot_be_looked_for_is_not_taken_for_absent, 0, 5);
    tcase_add_test(tcase, test_failed_allocations_lose_nothing);
    tcase_add_test(tcase, test_a_start_that_lacks_memory_can_be_repeated);
    suite_add_tcase(suite, tcase);
    return sw_test_run(suite, CK_FORK);
}
