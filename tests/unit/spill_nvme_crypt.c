/* The NVMe tier with a key: regions come back, the disk shows nothing of them, nothing can be read without the key, and
 * the key is in no file. */
#include "base/alloc.h"
#include "codec/codec.h"
#include "tests/lib/content.h"
#include "tests/lib/nvme_fixture.h"
#include "tests/lib/run.h"

#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define KIB ((uint64_t)1 << 10)
#define MIB ((uint64_t)1 << 20)
#define BLOCK ((uint64_t)SW_TIER_IO_ALIGN)

static struct sw_nvme_key make_key(void) {
    struct sw_nvme_key key;
    struct sw_err err = {0};
    ck_assert_msg(sw_nvme_key_make(&key, &err) == 0, "%s", err.msg);
    ck_assert(key.is_new);
    return key;
}

/* Adopts the key as the next process gets it. */
static struct sw_nvme_key adopt(const struct sw_nvme_key *from) {
    struct sw_nvme_key key;
    ck_assert_int_eq(sw_nvme_key_adopt(&key, fcntl(from->fd, F_DUPFD_CLOEXEC, 0), NULL), 0);
    ck_assert(!key.is_new);
    ck_assert_mem_eq(key.bytes, from->bytes, SW_NVME_KEY_BYTES);
    return key;
}

/* All data files, one behind the other. */
static size_t read_files(uint8_t *ret, size_t max) {
    size_t bytes = 0;
    for (unsigned i = 0;; i++) {
        char name[16], path[96];
        (void)snprintf(name, sizeof name, "data-%04u", i);
        const int fd = open(sw_nvme_path(path, name), O_RDONLY | O_CLOEXEC);
        if (fd < 0)
            return bytes;
        struct stat st;
        ck_assert_int_eq(fstat(fd, &st), 0);
        ck_assert_uint_eq(st.st_mode & 07777, 0600);
        for (ssize_t n; bytes < max && (n = read(fd, ret + bytes, max - bytes)) > 0;)
            bytes += (size_t)n;
        (void)close(fd);
    }
}

START_TEST(frames_come_back_and_the_disk_shows_nothing) {
    if (!sw_nvme_allowed(sw_nvme_methods[_i]))
        return;
    static const uint64_t sizes[] = {1, 4096, 4097, 100000, 3 * MIB + 5};
    enum { N = sizeof sizes / sizeof sizes[0] };
    struct sw_nvme_key key = make_key(), kept = adopt(&key);
    struct sw_tier_nvme_config config = sw_nvme_config_of(6 * MIB, sw_nvme_methods[_i]);
    struct sw_nvme_recovered r;
    struct sw_stored stored[N];
    struct sw_err err = {0};
    config.key = &key;
    struct sw_tier *tier = sw_nvme_open(&config);
    for (unsigned i = 0; i < N; i++)
        ck_assert_int_eq(sw_nvme_put(tier, sizes[i], i + 1, &stored[i], &err), 0);
    for (unsigned i = 0; i < N; i++)
        ck_assert(sw_nvme_holds(tier, &stored[i], i + 1));
    tier->ops->close(tier);
    sw_nvme_key_fini(&key);

    uint8_t *disk = malloc(8 * MIB), *plain = sw_nvme_buffer(4 * MIB);
    const size_t bytes = read_files(disk, 8 * MIB);
    ck_assert_uint_ge(bytes, 6 * MIB);
    for (unsigned i = 1; i < N; i++) {
        sw_nvme_fill(plain, sizes[i], i + 1);
        for (uint64_t at = 0; at + 16 <= sizes[i]; at += 131 * KIB + 7)
            ck_assert_ptr_null(memmem(disk, bytes, plain + at, 16));
    }
    free(disk);
    free(plain);

    config.key = &kept;
    tier = sw_nvme_reopen(&config, SW_NVME_FRAMES(1, 2, 3, 4, 5), &r);
    tier->ops->close(tier);
    sw_nvme_key_fini(&kept);
}
END_TEST

/* Equal blocks are equal on the disk nowhere. */
START_TEST(every_block_has_a_tweak_of_its_own) {
    enum { N = 64 };
    struct sw_nvme_key key = make_key();
    struct sw_tier_nvme_config config = sw_nvme_config_of(N * BLOCK, SW_TIER_NVME_AUTO);
    struct sw_stored stored;
    uint8_t *buffer = sw_nvme_buffer(N * BLOCK), *disk = malloc(2 * MIB);
    config.key = &key;
    config.file_bytes = N / 4 * BLOCK; /* also of files */
    struct sw_tier *tier = sw_nvme_open(&config);
    memset(buffer, 0, N * BLOCK);
    ck_assert_int_eq(tier->ops->reserve(tier, N * BLOCK, &stored, NULL), 0);
    ck_assert_int_eq(sw_nvme_transfer(tier, SW_TIER_WRITE, &stored, buffer, 1, NULL), 0);
    tier->ops->close(tier);
    ck_assert_uint_eq(read_files(disk, 2 * MIB), N * BLOCK);
    for (unsigned i = 0; i < N; i++)
        for (unsigned k = 0; k < i; k++)
            ck_assert_int_ne(memcmp(disk + i * BLOCK, disk + k * BLOCK, BLOCK), 0);
    free(buffer);
    free(disk);
    sw_nvme_key_fini(&key);
}
END_TEST

static void copy_file(const char *from, const char *to) {
    char a[96], b[96];
    uint8_t bytes[SW_NVME_MARK_BYTES];
    const int in = open(sw_nvme_path(a, from), O_RDONLY | O_CLOEXEC),
              out = open(sw_nvme_path(b, to), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    ck_assert(in >= 0 && out >= 0);
    ck_assert_int_eq(read(in, bytes, sizeof bytes), sizeof bytes);
    ck_assert_int_eq(write(out, bytes, sizeof bytes), sizeof bytes);
    (void)close(in);
    (void)close(out);
}

START_TEST(a_wrong_key_is_an_error_and_changes_nothing) {
    struct sw_nvme_key key = make_key(), right = adopt(&key), other = make_key(), wrong = adopt(&other);
    struct sw_tier_nvme_config config = sw_nvme_config_of(MIB, SW_TIER_NVME_AUTO);
    struct sw_nvme_recovered r;
    struct sw_stored stored;
    struct sw_tier *tier;
    struct sw_err err = {0};
    config.key = &key;
    tier = sw_nvme_open(&config);
    ck_assert_int_eq(sw_nvme_put(tier, 50000, 7, &stored, &err), 0);
    tier->ops->close(tier);
    config.key = &wrong;
    ck_assert_int_eq(sw_tier_nvme_open(&tier, &config, &err), -SW_ECHECKSUM);
    ck_assert_ptr_nonnull(strstr(err.msg, "not of the key"));
    config.key = &right;
    tier = sw_nvme_reopen(&config, SW_NVME_FRAMES(7), &r);
    tier->ops->close(tier);
    sw_nvme_key_fini(&key);
    sw_nvme_key_fini(&right);
    sw_nvme_key_fini(&other);
    sw_nvme_key_fini(&wrong);
}
END_TEST

/* A mark that cannot be read proves nothing, so no frame is removed for it. */
START_TEST(a_mark_that_cannot_be_read_is_an_error_and_changes_nothing) {
    struct sw_nvme_key key = make_key(), right = adopt(&key), other = make_key();
    struct sw_tier_nvme_config config = sw_nvme_config_of(MIB, SW_TIER_NVME_AUTO);
    const struct sw_nvme_key *const wrong[] = {NULL, &other};
    struct sw_nvme_recovered r;
    struct sw_stored stored;
    char mark[96], moved[96];
    config.key = &key;
    struct sw_tier *tier = sw_nvme_open(&config);
    ck_assert_int_eq(sw_nvme_put(tier, 50000, 7, &stored, NULL), 0);
    tier->ops->close(tier);
    ck_assert_int_eq(rename(sw_nvme_path(mark, "key-check"), sw_nvme_path(moved, "moved")), 0);
    ck_assert_int_eq(symlink(moved, mark), 0);
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        config.key = wrong[i];
        ck_assert_int_lt(sw_tier_nvme_open(&tier, &config, NULL), 0);
    }
    ck_assert_int_eq(rename(moved, mark), 0);
    config.key = &right;
    tier = sw_nvme_reopen(&config, SW_NVME_FRAMES(7), &r);
    tier->ops->close(tier);
    sw_nvme_key_fini(&key);
    sw_nvme_key_fini(&right);
    sw_nvme_key_fini(&other);
}
END_TEST

/* The mark is forged: the frame that is then read is found bad, like any damage. */
START_TEST(a_wrong_key_reads_no_valid_frame) {
    struct sw_nvme_key key = make_key(), other = make_key(), wrong = adopt(&other);
    struct sw_tier_nvme_config config = sw_nvme_config_of(MIB, SW_TIER_NVME_AUTO);
    struct sw_nvme_recovered r = {0};
    struct sw_stored stored;
    struct sw_err err = {0};
    uint8_t *raw = malloc(100000), *frame = sw_nvme_buffer(MIB / 2), *back = malloc(100000);
    struct sw_plan plan;
    uint64_t frame_bytes = 0, got = 0;
    config.key = &other;
    sw_content_fill(raw, 100000, SW_CONTENT_RANDOM, 1);
    sw_plan_init_raw(&plan);
    ck_assert_int_eq(sw_codec_encode(&plan, raw, 100000, frame, MIB / 2, &frame_bytes, &err), 0);
    struct sw_tier *tier = sw_nvme_open(&config); /* for the mark */
    tier->ops->close(tier);
    copy_file("key-check", "forged");
    config.key = &key;
    tier = sw_nvme_open(&config);
    ck_assert_int_eq(tier->ops->reserve(tier, frame_bytes, &stored, &err), 0);
    ck_assert_int_eq(sw_nvme_transfer(tier, SW_TIER_WRITE, &stored, frame, 1, &err), 0);
    tier->ops->close(tier);
    copy_file("forged", "key-check");
    config.key = &wrong;
    tier = sw_nvme_open(&config);
    (void)tier->ops->recover(tier, &(struct sw_tier_recovery){.take = sw_nvme_take, .arg = &r}, NULL);
    ck_assert_uint_eq(r.n, 1);
    memset(frame, 0, MIB / 2);
    ck_assert_int_eq(sw_nvme_transfer(tier, SW_TIER_READ, &r.stored[0], frame, 1, &err), 0);
    const int rc = sw_codec_decode(frame, frame_bytes, back, 100000, &got, &err);
    ck_assert_msg(rc == -SW_EFRAME || rc == -SW_ECHECKSUM, "%s", sw_err_name(rc));
    tier->ops->close(tier);
    free(raw);
    free(frame);
    free(back);
    sw_nvme_key_fini(&key);
    sw_nvme_key_fini(&other);
    sw_nvme_key_fini(&wrong);
}
END_TEST

static bool disk_shows(const char *text) {
    uint8_t *disk = malloc(4 * MIB);
    const size_t bytes = read_files(disk, 4 * MIB);
    const bool shows = memmem(disk, bytes, text, strlen(text)) != NULL;
    free(disk);
    return shows;
}

static void put_text(struct sw_tier *tier, const char *text) {
    struct sw_stored stored;
    uint8_t *buffer = sw_nvme_buffer(BLOCK);
    memset(buffer, 0, BLOCK);
    memcpy(buffer, text, strlen(text));
    ck_assert_int_eq(tier->ops->reserve(tier, BLOCK, &stored, NULL), 0);
    ck_assert_int_eq(sw_nvme_transfer(tier, SW_TIER_WRITE, &stored, buffer, 1, NULL), 0);
    free(buffer);
}

/* Frames of a lost key cannot be read; plain text that lay there must not stay. */
START_TEST(a_new_key_starts_over) {
    static const char text[] = "a customer's name";
    static const uint64_t none[SW_NVME_MAX_WANT] = {0};
    struct sw_nvme_key keys[2] = {make_key(), make_key()};
    struct sw_tier_nvme_config config = sw_nvme_config_of(MIB, SW_TIER_NVME_AUTO);
    const struct sw_nvme_key *turns[] = {NULL, &keys[0], &keys[1], NULL};
    struct sw_nvme_recovered r;
    for (size_t i = 0; i < sizeof turns / sizeof turns[0]; i++) {
        config.key = turns[i];
        struct sw_tier *tier = sw_nvme_reopen(&config, none, &r);
        ck_assert(!disk_shows(text));
        put_text(tier, text);
        tier->ops->close(tier);
        ck_assert_int_eq(disk_shows(text), turns[i] == NULL);
        ck_assert_int_eq(sw_nvme_file_bytes("key-check"), turns[i] ? SW_NVME_MARK_BYTES : -1);
    }
    sw_nvme_key_fini(&keys[0]);
    sw_nvme_key_fini(&keys[1]);
}
END_TEST

/* Otherwise the next process would take the frames for another key's. _i: plain frames stay. */
START_TEST(a_mark_that_cannot_be_written_stops_the_start) {
    struct sw_nvme_key key = make_key();
    struct sw_tier_nvme_config config = sw_nvme_config_of(MIB, SW_TIER_NVME_AUTO);
    struct sw_nvme_recovered r;
    struct sw_stored stored;
    struct sw_err err;
    char path[96];
    struct sw_tier *tier = sw_nvme_open(&config);
    ck_assert_int_eq(sw_nvme_put(tier, 10000, 1, &stored, NULL), 0);
    tier->ops->close(tier);
    config.key = &key;
    config.keep_plain = _i;
    ck_assert_int_eq(mkdir(sw_nvme_path(path, "key-check.new"), 0700), 0);
    ck_assert_int_eq(sw_tier_nvme_open(&tier, &config, &err), -SW_EIO);
    ck_assert_int_eq(sw_nvme_file_bytes("key-check"), -1);
    ck_assert_int_eq(rmdir(path), 0);
    tier = sw_nvme_reopen(&config, _i ? SW_NVME_FRAMES(1) : SW_NVME_FRAMES(0), &r);
    tier->ops->close(tier);
    ck_assert_int_eq(sw_nvme_file_bytes("key-check"), SW_NVME_MARK_BYTES);
    sw_nvme_key_fini(&key);
}
END_TEST

/* Some bytes in the middle of a frame of that seed. */
static bool disk_shows_frame(uint64_t bytes, uint64_t seed) {
    uint8_t *disk = malloc(4 * MIB), *plain = sw_nvme_buffer(4 * MIB);
    const size_t n = read_files(disk, 4 * MIB);
    sw_nvme_fill(plain, bytes, seed);
    const bool shows = memmem(disk, n, plain + bytes / 2, 16) != NULL;
    free(disk);
    free(plain);
    return shows;
}

/* A service is restarted with encryption turned on: old frames stay readable, and new ones are encrypted. */
START_TEST(plain_frames_stay_when_encryption_is_turned_on) {
    if (!sw_nvme_allowed(sw_nvme_methods[_i]))
        return;
    enum { BEFORE = 2 << 20 | 5, AFTER = 1 << 20 | 7 };
    struct sw_nvme_key key = make_key(), kept = adopt(&key), later = make_key();
    struct sw_tier_nvme_config config = sw_nvme_config_of(4 * MIB, sw_nvme_methods[_i]);
    struct sw_nvme_recovered r;
    struct sw_stored stored;
    struct sw_err err = {0};
    config.keep_plain = true;
    struct sw_tier *tier = sw_nvme_open(&config);
    ck_assert_int_eq(sw_nvme_put(tier, BEFORE, 1, &stored, &err), 0);
    tier->ops->close(tier);
    config.key = &key;
    tier = sw_nvme_reopen(&config, SW_NVME_FRAMES(1), &r);
    ck_assert_int_eq(sw_nvme_put(tier, AFTER, 2, &stored, &err), 0);
    tier->ops->close(tier);
    ck_assert(disk_shows_frame(BEFORE, 1) && !disk_shows_frame(AFTER, 2));
    /* Both kinds are found again, as often as one likes, and through the manifest that is written anew. */
    config.key = &kept;
    for (int i = 0; i < 2; i++) {
        tier = sw_nvme_reopen(&config, SW_NVME_FRAMES(1, 2), &r);
        tier->ops->close(tier);
    }
    /* The key is gone: so are its frames, and only these. */
    config.key = &later;
    tier = sw_nvme_reopen(&config, SW_NVME_FRAMES(1), &r);
    ck_assert_int_eq(sw_nvme_put(tier, 50000, 3, &stored, &err), 0);
    tier->ops->close(tier);
    tier = sw_nvme_reopen(&config, SW_NVME_FRAMES(1, 3), &r);
    tier->ops->close(tier);
    /* It is turned off again, or was never really on: plain frames are still there. */
    config.key = NULL;
    tier = sw_nvme_reopen(&config, SW_NVME_FRAMES(1), &r);
    ck_assert_int_eq(sw_nvme_file_bytes("key-check"), -1);
    ck_assert_int_eq(sw_nvme_put(tier, 50000, 4, &stored, &err), 0);
    tier->ops->close(tier);
    for (int i = 0; i < 2; i++) {
        tier = sw_nvme_reopen(&config, SW_NVME_FRAMES(1, 4), &r);
        tier->ops->close(tier);
    }
    sw_nvme_key_fini(&key);
    sw_nvme_key_fini(&kept);
    sw_nvme_key_fini(&later);
}
END_TEST

/* ---- what is moved in part ---- */

static atomic_int short_calls;
static size_t short_bytes;

/* Whole blocks are moved, and the exact length is reported, as with a file that bypasses the page cache. */
static size_t cut(size_t bytes) {
    return bytes % BLOCK == 0 && bytes > short_bytes && atomic_fetch_sub(&short_calls, 1) > 0 ? short_bytes : bytes;
}

static ssize_t short_pwrite(int fd, const void *data, size_t bytes, off_t offset) {
    const size_t n = cut(bytes);
    if (n == 0)
        return errno = EINTR, -1;
    const ssize_t rc = pwrite(fd, data, n == bytes ? n : n / BLOCK * BLOCK, offset);
    return rc < 0 ? rc : (ssize_t)n;
}

static ssize_t short_pread(int fd, void *ret, size_t bytes, off_t offset) {
    const size_t n = cut(bytes);
    if (n == 0)
        return errno = EINTR, -1;
    const ssize_t rc = pread(fd, ret, n == bytes ? n : n / BLOCK * BLOCK, offset);
    return rc < 0 ? rc : (ssize_t)n;
}

START_TEST(partial_transfers_continue) {
    static const size_t lengths[] = {0, 4096, 8192 + 5, 100 * 4096 + 4095};
    const struct sw_nvme_file_ops files = {.pwrite = short_pwrite, .pread = short_pread};
    struct sw_nvme_key key = make_key();
    struct sw_tier_nvme_config config = sw_nvme_config_of(8 * MIB, SW_TIER_NVME_THREADS);
    struct sw_stored stored;
    struct sw_err err = {0};
    config.files = &files;
    config.key = &key;
    struct sw_tier *tier = sw_nvme_open(&config);
    for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++) {
        short_bytes = lengths[i];
        atomic_store(&short_calls, 5);
        ck_assert_int_eq(sw_nvme_put(tier, 3 * MIB + 77, i, &stored, &err), 0);
        atomic_store(&short_calls, 5);
        ck_assert(sw_nvme_holds(tier, &stored, i));
        ck_assert_int_le(atomic_load(&short_calls), 0);
        tier->ops->release(tier, &stored);
    }
    tier->ops->close(tier);
    sw_nvme_key_fini(&key);
}
END_TEST

/* ---- the key ---- */

static atomic_int good_writes;

static ssize_t failing_pwrite(int fd, const void *data, size_t bytes, off_t offset) {
    if (atomic_fetch_sub(&good_writes, 1) > 0)
        return pwrite(fd, data, bytes, offset);
    errno = EIO;
    return -1;
}

/* A start on an empty folder, with the key that a predecessor kept, ends anywhere: the next one finds nothing there
 * that could be another key's. */
START_TEST(a_start_with_a_kept_key_may_be_cut_short) {
    static const struct sw_nvme_file_ops files = {.pwrite = failing_pwrite, .pread = pread};
    struct sw_nvme_key key = make_key(), kept = adopt(&key);
    struct sw_tier_nvme_config config = sw_nvme_config_of(MIB, SW_TIER_NVME_THREADS);
    char path[96];
    int n = 0;
    config.key = &kept;
    config.keep_plain = true;
    for (int rc = -1; rc < 0; n++) {
        struct sw_tier *tier;
        config.files = &files;
        atomic_store(&good_writes, n);
        rc = sw_tier_nvme_open(&tier, &config, NULL);
        if (rc == 0)
            tier->ops->close(tier);
        config.files = NULL;
        tier = sw_nvme_open(&config);
        tier->ops->close(tier);
        ck_assert_int_eq(sw_nvme_file_bytes("key-check"), SW_NVME_MARK_BYTES);
        ck_assert_int_eq(unlink(sw_nvme_path(path, "key-check")), 0);
        ck_assert_int_eq(unlink(sw_nvme_path(path, "manifest")), 0);
        ck_assert_int_eq(unlink(sw_nvme_path(path, "data-0000")), 0);
    }
    ck_assert_int_gt(n, 1);
    sw_nvme_key_fini(&key);
    sw_nvme_key_fini(&kept);
}
END_TEST

START_TEST(the_key_is_locked_and_left_out_of_dumps) {
    struct sw_nvme_key key = make_key();
    char line[512];
    bool is_keys = false, found = false;
    FILE *smaps = fopen("/proc/self/smaps", "re");
    ck_assert_ptr_nonnull(smaps);
    while (fgets(line, sizeof line, smaps)) {
        if (strstr(line, "-") && strstr(line, " r--s ") && strstr(line, "spillway-nvme-key"))
            is_keys = true;
        if (is_keys && strncmp(line, "VmFlags:", 8) == 0) {
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__) /* with these mlock() does nothing */
            ck_assert_ptr_nonnull(strstr(line, " lo"));
#endif
            ck_assert_ptr_nonnull(strstr(line, " dd"));
            found = true;
            break;
        }
    }
    (void)fclose(smaps);
    ck_assert(found);
    const uint8_t zeros[SW_NVME_KEY_BYTES] = {0};
    ck_assert_int_ne(memcmp(key.bytes, zeros, sizeof zeros), 0);
    sw_nvme_key_fini(&key);
    sw_nvme_key_fini(&key);
}
END_TEST

START_TEST(unsuitable_key_files_are_refused) {
    struct sw_nvme_key key;
    struct sw_err err = {0};
    for (int i = 0; i < 4; i++) {
        const int fd = i == 0 ? open("/dev/null", O_RDWR | O_CLOEXEC)
                              : memfd_create("test", MFD_CLOEXEC | (i > 1 ? MFD_ALLOW_SEALING : 0));
        ck_assert_int_ge(fd, 0);
        if (i > 0)
            ck_assert_int_eq(ftruncate(fd, i == 3 ? SW_NVME_KEY_BYTES - 1 : SW_NVME_KEY_BYTES), 0);
        if (i == 3)
            ck_assert_int_eq(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW), 0);
        ck_assert_int_eq(sw_nvme_key_adopt(&key, fd, &err), -SW_EINVAL);
        ck_assert_ptr_null(key.bytes);
    }
}
END_TEST

START_TEST(memory_runs_out) {
    struct sw_nvme_key key = make_key();
    struct sw_tier_nvme_config config = sw_nvme_config_of(MIB, SW_TIER_NVME_THREADS);
    struct sw_tier *tier = NULL;
    struct sw_err err = {0};
    config.key = &key;
    unsigned refused = 0;
    for (unsigned long nth = 1;; nth++) {
        sw_alloc_fail_nth(nth);
        const int rc = sw_tier_nvme_open(&tier, &config, &err);
        sw_alloc_fail_nth(0);
        if (rc == 0)
            break;
        ck_assert_int_eq(rc, -SW_ENOMEM);
        refused++;
    }
    ck_assert_uint_gt(refused, 5);
    tier->ops->close(tier);
    sw_nvme_key_fini(&key);
}
END_TEST

static void setup(void) {
    /* Memory that libcrypto allocates at its first use stays. */
    struct sw_nvme_key key = make_key();
    sw_nvme_key_fini(&key);
    sw_nvme_setup();
}

int main(void) {
    Suite *suite = suite_create("nvme_crypt");
    TCase *tcase = tcase_create("nvme_crypt");
    tcase_add_checked_fixture(tcase, setup, sw_nvme_teardown);
    tcase_add_loop_test(tcase, frames_come_back_and_the_disk_shows_nothing, 0, SW_NVME_N_METHODS);
    tcase_add_test(tcase, every_block_has_a_tweak_of_its_own);
    tcase_add_test(tcase, a_wrong_key_is_an_error_and_changes_nothing);
    tcase_add_test(tcase, a_mark_that_cannot_be_read_is_an_error_and_changes_nothing);
    tcase_add_test(tcase, a_wrong_key_reads_no_valid_frame);
    tcase_add_test(tcase, a_new_key_starts_over);
    tcase_add_loop_test(tcase, a_mark_that_cannot_be_written_stops_the_start, 0, 2);
    tcase_add_loop_test(tcase, plain_frames_stay_when_encryption_is_turned_on, 0, SW_NVME_N_METHODS);
    tcase_add_test(tcase, partial_transfers_continue);
    tcase_add_test(tcase, a_start_with_a_kept_key_may_be_cut_short);
    tcase_add_test(tcase, the_key_is_locked_and_left_out_of_dumps);
    tcase_add_test(tcase, unsuitable_key_files_are_refused);
    tcase_add_test(tcase, memory_runs_out);
    suite_add_tcase(suite, tcase);
    return sw_test_run(suite, CK_FORK);
}
