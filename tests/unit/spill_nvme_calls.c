/* The NVMe tier when one call of its files fails, whichever it is: the change fails or succeeds as a whole, the next
 * one succeeds, and what is kept then has been written and flushed, with the names of its files. */
#include "spill/tier/nvme/ledger.h"
#include "spill/tier/nvme/nvme_files.h"
#include "spill/tier/nvme/nvme_key.h"
#include "tests/lib/nvme_fixture.h"
#include "tests/lib/run.h"

#include <check.h>
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define MIB ((uint64_t)1 << 20)
enum { MOST_FILES = 64, FRAME_BYTES = 500000, SHORT_READ_BYTES = 100, NONE = 0 };

/* ---- the disk ---------------------------------------------------------------------------------------------------- */

enum call { PWRITE, SYNC, RENAME, N_CALLS };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct {
    ino_t inodes[MOST_FILES];
    bool is_dirty[MOST_FILES]; /* written, and not flushed since */
    unsigned n;
    unsigned left[N_CALLS]; /* calls until one fails; NONE: none does */
    int error;              /* of those */
    ino_t of;               /* the file of those writes; 0: any */
    bool is_short;          /* a write that fails has written a part of it */
    bool names_are_dirty;   /* there is a name that was not flushed */
    bool is_marked_early;   /* the mark of the key was there before such a flush */
    unsigned n_bad_writes;  /* of frames; the first one fails with EIO, the others later, with ENOSPC */
    bool all_are_bad;
    atomic_bool holds;   /* flushes wait ... */
    atomic_bool is_held; /* ... and one does */
} disk;

static bool *dirty(int fd) {
    struct stat st;
    unsigned i = 0;
    ck_assert_int_eq(fstat(fd, &st), 0);
    while (i < disk.n && disk.inodes[i] != st.st_ino)
        i++;
    ck_assert_uint_lt(i, MOST_FILES);
    disk.inodes[i] = st.st_ino;
    disk.n = i == disk.n ? i + 1 : disk.n;
    return &disk.is_dirty[i];
}

static bool fails(enum call call) {
    if (disk.left[call] == NONE || --disk.left[call] > 0)
        return false;
    errno = disk.error ? disk.error : EIO;
    return true;
}

static ssize_t fail_in_turn(void) {
    (void)pthread_mutex_lock(&lock);
    const bool is_first = disk.n_bad_writes++ == 0;
    (void)pthread_mutex_unlock(&lock);
    (void)usleep(is_first ? 0 : 50000);
    errno = is_first ? EIO : ENOSPC;
    return -1;
}

static ssize_t disk_pwrite(int fd, const void *data, size_t bytes, off_t offset) {
    struct stat st;
    ck_assert_int_eq(fstat(fd, &st), 0);
    if (disk.all_are_bad && bytes % 4096 == 0)
        return fail_in_turn();
    (void)pthread_mutex_lock(&lock);
    const bool has_failed = (!disk.of || disk.of == st.st_ino) && fails(PWRITE);
    *dirty(fd) = true;
    (void)pthread_mutex_unlock(&lock);
    if (!has_failed)
        return pwrite(fd, data, bytes, offset);
    if (!disk.is_short)
        return -1;
    return pwrite(fd, data, bytes > 4096 ? 4096 : bytes / 2, offset); /* and the rest is written next */
}

/* Reads lists a little at a time. */
static ssize_t disk_pread(int fd, void *ret, size_t bytes, off_t offset) {
    return pread(fd, ret, bytes % 4096 && bytes > SHORT_READ_BYTES ? SHORT_READ_BYTES : bytes, offset);
}

static int disk_sync(int fd, bool is_directory) {
    char mark[96];
    for (; atomic_load(&disk.holds); (void)usleep(1000))
        atomic_store(&disk.is_held, true);
    (void)pthread_mutex_lock(&lock);
    if (is_directory && disk.names_are_dirty)
        disk.is_marked_early |= access(sw_nvme_path(mark, SW_NVME_MARK_FILE), F_OK) == 0;
    const bool has_failed = fails(SYNC);
    if (!has_failed)
        *(is_directory ? &disk.names_are_dirty : dirty(fd)) = false;
    (void)pthread_mutex_unlock(&lock);
    return has_failed ? -1 : 0;
}

static int disk_rename(int directory, const char *from, const char *to) {
    (void)pthread_mutex_lock(&lock);
    const bool has_failed = fails(RENAME);
    disk.names_are_dirty |= !has_failed;
    (void)pthread_mutex_unlock(&lock);
    return has_failed ? -1 : renameat(directory, from, directory, to);
}

static const struct sw_nvme_file_ops files = {
    .pread = disk_pread, .pwrite = disk_pwrite, .sync = disk_sync, .rename = disk_rename};

static void ck_flushed(void) {
    static const char *const names[] = {"manifest", SW_LEDGER_FILE, "data-0000", "data-0001"};
    (void)pthread_mutex_lock(&lock);
    ck_assert(!disk.names_are_dirty);
    for (unsigned k = 0; k < sizeof names / sizeof names[0]; k++) {
        char path[96];
        struct stat st;
        ck_assert_int_eq(stat(sw_nvme_path(path, names[k]), &st), 0);
        for (unsigned i = 0; i < disk.n; i++)
            ck_assert_msg(disk.inodes[i] != st.st_ino || !disk.is_dirty[i], "%s was not flushed", names[k]);
    }
    (void)pthread_mutex_unlock(&lock);
}

/* ---- the tier ---------------------------------------------------------------------------------------------------- */

static struct sw_tier *tier;
static struct sw_tier_nvme_config config;

static int keep(const char *content, uint64_t *ret_number) {
    struct sw_tier_record record = {.content = (const uint8_t *)content, .bytes = strlen(content), .name = content};
    const int rc = sw_nvme_change(tier, SW_TIER_KEEP, &record, 1);
    *ret_number = record.number;
    return rc;
}

static int put(uint64_t seed) {
    struct sw_stored stored;
    return sw_nvme_put(tier, FRAME_BYTES, seed, &stored, NULL);
}

static char found[200];

static int visit(void *arg, const struct sw_tier_record *record, struct sw_err *err) {
    (void)arg;
    (void)err;
    (void)snprintf(found + strlen(found), sizeof found - strlen(found), "%.*s ", (int)record->bytes,
                   (const char *)record->content);
    return 0;
}

/* What the next process finds. */
static void ck_found(const char *records, const uint64_t seeds[SW_NVME_MAX_WANT]) {
    struct sw_nvme_recovered r;
    tier->ops->close(tier);
    tier = sw_nvme_reopen(&config, seeds, &r);
    found[0] = 0;
    ck_assert_int_eq(tier->ops->visit_kept(tier, visit, NULL, NULL), 0);
    ck_assert_str_eq(found, records);
}

static void setup(void) {
    sw_nvme_setup();
    config = sw_nvme_config_of(4 * MIB, SW_TIER_NVME_THREADS);
    config.files = &files;
    tier = sw_nvme_open(&config);
}

static void teardown(void) {
    tier->ops->close(tier);
    sw_nvme_teardown();
}

static void arm(enum call call, unsigned nth) {
    (void)pthread_mutex_lock(&lock);
    memset(disk.left, 0, sizeof disk.left);
    disk.left[call] = nth;
    (void)pthread_mutex_unlock(&lock);
}

static bool has_failed(enum call call) {
    return disk.left[call] == NONE;
}

/* ---- tests ------------------------------------------------------------------------------------------------------- */

enum { MOST_CALLS = 7 };

/* _i: which call of a kind fails, of a change that keeps the first record, or the second. */
START_TEST(each_call_of_a_change) {
    const enum call call = (enum call)(_i / MOST_CALLS % N_CALLS);
    const bool is_first = _i / MOST_CALLS >= N_CALLS;
    uint64_t before = 0, number = 0;
    for (uint64_t seed = 1; seed <= 3; seed++)
        ck_assert_int_eq(put(seed), 0); /* in both files */
    if (!is_first)
        ck_assert_int_eq(keep("before", &before), 0);
    ck_assert_int_eq(put(4), 0);
    arm(call, 1 + (unsigned)(_i % MOST_CALLS));
    const int rc = keep("a", &number);
    const bool has = has_failed(call);
    ck_assert_int_eq(rc, has ? -SW_EIO : 0);
    if (!has) {
        arm(call, NONE);
        ck_flushed();
        ck_found(is_first ? "a " : "before a ", SW_NVME_FRAMES(1, 2, 3, 4));
        return;
    }
    ck_assert_int_eq(keep("b", &number), 0); /* without any new frame */
    ck_flushed();
    ck_found(is_first ? "b " : "before b ", SW_NVME_FRAMES(1, 2, 3, 4));
    ck_assert_int_eq(put(5), 0);
    if (!is_first) {
        struct sw_tier_record record = {.number = before};
        ck_assert_int_eq(sw_nvme_change(tier, SW_TIER_FORGET, &record, 1), 0);
    }
    ck_found("b ", SW_NVME_FRAMES(1, 2, 3, 4, 5));
}
END_TEST

/* Two records of a batch, or none, when it is cut by a write that writes a part, or by a flush that fails. */
START_TEST(a_cut_batch) {
    struct sw_tier_record records[] = {{.content = (const uint8_t *)"x", .bytes = 1, .name = "x"},
                                       {.content = (const uint8_t *)"y", .bytes = 1, .name = "y"}};
    uint64_t number;
    ck_assert_int_eq(put(1), 0);
    ck_assert_int_eq(keep("before", &number), 0);
    disk.is_short = true;
    arm(PWRITE, 1);
    ck_assert_int_eq(sw_nvme_change(tier, SW_TIER_KEEP, records, 2), 0); /* goes on behind the part */
    ck_found("before x y ", SW_NVME_FRAMES(1));
    arm(PWRITE, NONE);
    disk.is_short = false;
    arm(SYNC, 2); /* the first is the manifest's */
    ck_assert_int_eq(sw_nvme_change(tier, SW_TIER_KEEP, records, 2), -SW_EIO);
    ck_assert_int_eq(keep("behind", &number), 0);
    ck_found("before x y behind ", SW_NVME_FRAMES(1));
}
END_TEST

/* The disk is full, so the manifest is rewritten without its dead records. That may fail, too, at its flush or its
 * renaming; and so may each flush of the change behind it. */
START_TEST(a_manifest_that_takes_less_room) {
    static const enum call fails[] = {PWRITE, SYNC, RENAME};
    const enum call other = fails[_i];
    struct sw_stored dead, next, last;
    uint64_t number;
    char records[40] = "first ";
    ck_assert_int_eq(put(1), 0);
    ck_assert_int_eq(keep("first", &number), 0); /* from now on a new manifest is flushed before it takes the name */
    for (unsigned nth = 1; nth <= 5; nth++) {
        char path[96];
        struct stat st;
        ck_assert_int_eq(sw_nvme_put(tier, 5000, 100, &dead, NULL), 0);
        tier->ops->release(tier, &dead);
        ck_assert_int_eq(sw_nvme_put(tier, 5000, 101, &next, NULL), 0); /* behind it the release is recorded */
        ck_assert_int_eq(stat(sw_nvme_path(path, "manifest"), &st), 0);
        disk.of = st.st_ino;
        disk.error = ENOSPC;
        arm(PWRITE, 1);
        if (other != PWRITE)
            disk.left[other] = 1;
        int rc = sw_nvme_put(tier, 5000, 102, &last, NULL);
        ck_assert(has_failed(PWRITE) && has_failed(other));
        ck_assert_int_eq(rc, other == PWRITE ? 0 : -SW_ENOSPACE);
        disk.error = EIO;
        disk.of = 0;
        if (rc)
            ck_assert_int_eq(sw_nvme_put(tier, 5000, 102, &last, NULL), 0);
        arm(SYNC, nth);
        rc = keep("a", &number);
        ck_assert_int_eq(rc, has_failed(SYNC) ? -SW_EIO : 0);
        arm(SYNC, NONE);
        (void)strcat(records, rc ? "" : "a ");
        ck_assert_int_eq(keep("b", &number), 0);
        ck_flushed();
        (void)strcat(records, "b ");
        tier->ops->release(tier, &next);
        tier->ops->release(tier, &last);
    }
    ck_found(records, SW_NVME_FRAMES(1));
}
END_TEST

/* Of a frame with several requests. */
START_TEST(the_first_error_of_a_write_is_reported) {
    struct sw_stored stored;
    struct sw_err err;
    disk.all_are_bad = true;
    ck_assert_int_eq(sw_nvme_put(tier, 3 * MIB, 1, &stored, &err), -SW_EIO);
    ck_assert_uint_gt(disk.n_bad_writes, 1);
    disk.all_are_bad = false;
    ck_assert_uint_eq(sw_nvme_stats(tier).used_bytes, 0);
    ck_found("", SW_NVME_FRAMES(0));
}
END_TEST

struct waiting {
    struct sw_tier_change change;
    struct sw_tier_record record;
    atomic_bool has_ended;
};

static void on_ended(struct sw_tier_change *change, void *arg) {
    (void)change;
    atomic_store((atomic_bool *)arg, true);
}

static void submit(struct waiting *w, enum sw_tier_change_kind kind) {
    w->change =
        (struct sw_tier_change){.kind = kind, .records = &w->record, .n = 1, .done = on_ended, .arg = &w->has_ended};
    tier->ops->change(tier, &w->change);
}

static int await(struct waiting *w) {
    while (!atomic_load(&w->has_ended))
        (void)usleep(1000);
    return w->change.err.code;
}

/* They have waited together. */
START_TEST(a_region_is_forgotten_beside_one_that_is_not_kept) {
    struct waiting first = {.record = {.content = "first", .bytes = 5, .name = "first"}},
                   second = {.record = {.content = "second", .bytes = 6, .name = "second"}}, third = {0};
    ck_assert_int_eq(put(1), 0);
    ck_assert_int_eq(keep("old", &third.record.number), 0);
    ck_assert_int_eq(put(2), 0);
    atomic_store(&disk.holds, true);
    submit(&first, SW_TIER_KEEP);
    while (!atomic_load(&disk.is_held))
        (void)usleep(1000);
    submit(&second, SW_TIER_KEEP);
    submit(&third, SW_TIER_FORGET);
    arm(SYNC, 4); /* the first has three: of two files and its record */
    atomic_store(&disk.holds, false);
    const int rc = await(&first), second_rc = await(&second);
    ck_assert_int_eq(rc + second_rc, -SW_EIO);
    ck_assert_int_eq(await(&third), 0);
    arm(SYNC, NONE);
    ck_found(rc ? "second " : "first ", SW_NVME_FRAMES(1, 2));
}
END_TEST

/* Encryption is turned on: the manifest says which frames are not encrypted, and is on the disk under its name before
 * the mark says that the others are. */
START_TEST(the_mark_of_a_key_comes_last) {
    static struct sw_nvme_key key;
    uint64_t number;
    ck_assert_int_eq(put(1), 0);
    ck_assert_int_eq(keep("a", &number), 0);
    tier->ops->close(tier);
    ck_assert_int_eq(sw_nvme_key_make(&key, NULL), 0);
    config.key = &key;
    config.keep_plain = true;
    tier = sw_nvme_open(&config);
    ck_assert(!disk.names_are_dirty && !disk.is_marked_early);
    ck_assert_int_eq(put(2), 0);
    ck_assert_int_eq(keep("b", &number), 0);
    ck_found("a b ", SW_NVME_FRAMES(1, 2));
    sw_nvme_key_fini(&key);
}
END_TEST

/* A process that was killed while it wrote a batch has left its beginning. _i: bytes that are missing. */
START_TEST(the_beginning_of_a_batch) {
    static const off_t missing[] = {1, 8, 40, 41, 64};
    struct sw_tier_record records[] = {{.content = (const uint8_t *)"x", .bytes = 1, .name = "x"},
                                       {.content = (const uint8_t *)"y", .bytes = 1, .name = "y"}};
    char path[96];
    uint64_t number;
    ck_assert_int_eq(keep("before", &number), 0);
    ck_assert_int_eq(sw_nvme_change(tier, SW_TIER_KEEP, records, 2), 0);
    const off_t bytes = sw_nvme_file_bytes(SW_LEDGER_FILE);
    ck_assert_int_eq(truncate(sw_nvme_path(path, SW_LEDGER_FILE), bytes - missing[_i]), 0);
    ck_found("before ", SW_NVME_FRAMES(0));
    ck_assert_int_eq(keep("y", &number), 0); /* which is no part of that batch */
    ck_found("before y ", SW_NVME_FRAMES(0));
    ck_assert_int_eq(keep("z", &number), 0);
    ck_found("before y z ", SW_NVME_FRAMES(0));
}
END_TEST

int main(void) {
    Suite *suite = suite_create("calls of the nvme tier");
    TCase *tcase = tcase_create("calls");
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_loop_test(tcase, each_call_of_a_change, 0, 2 * N_CALLS * MOST_CALLS);
    tcase_add_test(tcase, a_cut_batch);
    tcase_add_test(tcase, the_first_error_of_a_write_is_reported);
    tcase_add_test(tcase, a_region_is_forgotten_beside_one_that_is_not_kept);
    tcase_add_loop_test(tcase, a_manifest_that_takes_less_room, 0, 3);
    tcase_add_test(tcase, the_mark_of_a_key_comes_last);
    tcase_add_loop_test(tcase, the_beginning_of_a_batch, 0, 5);
    suite_add_tcase(suite, tcase);
    return sw_test_run(suite, CK_FORK);
}
